/* jobsubmit.c - a job that is submitted: checked, filled, stored with its files, answered
 *
 * From: Submit.  To: the writer, the asker.
 * Always: a job is checked whole before it is made; its number is told after the commit; the same key of the same user is the same job.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "nice.h"
#include "rows.h"
#include "run.h"
#include "str.h"
#include "workflow_words.h"

#define STRAGGLER_LEAST 1.5      /* times the median */
#define STRAGGLER_MOST  1000.0
enum { FILES_MAX = 1000000, TASKS_MAX = 10000000, ATTEMPTS_MAX = 100 };

static int path_check(const struct conf *conf, const char *path, struct err *e)
{
    if (path == NULL || path[0] != '/' || strlen(path) > 4000)
        return err_set(e, ERR_USAGE, "an input must be an absolute path, not \"%.200s\"", path ? path : "");
    for (const char *p = path; (p = strstr(p, "/..")); p += 3) {
        if (p[3] == '/' || p[3] == '\0')
            return err_set(e, ERR_USAGE, "the input \"%.200s\" has \"..\" in it", path);
    }
    for (unsigned i = 0; i < conf->n_roots_input; i++) {
        size_t n = strlen(conf->roots_input[i]);
        while (n > 1 && conf->roots_input[i][n - 1] == '/')
            n--;
        if (strncmp(path, conf->roots_input[i], n) == 0 && (path[n] == '/' || n == 1))
            return 0;
    }
    return conf->n_roots_input == 0 ? 0 : err_set(e, ERR_PERMISSION, "the input \"%.200s\" is below none of the configured roots", path);
}

static uint64_t input_tfs(const Sluice__InputFile *f)
{
    return f->n_sizes ? f->n_sizes : f->n_tfs;
}

static int extent_check(const Sluice__InputFile *f, size_t i, uint64_t offset, uint64_t size, struct err *e)
{
    if (size == 0 || size > (UINT64_C(1) << 40) || offset > INT64_MAX - size)
        return err_set(e, ERR_USAGE, "the input %s: TF %zu lies at %" PRIu64 " and has %" PRIu64 " bytes: that cannot be", f->path, i, offset, size);
    return 0;
}

static int file_check(const struct conf *conf, const Sluice__InputFile *f, uint64_t *tasks, struct err *e)
{
    uint64_t at = f->offset;

    if (path_check(conf, f->path, e) < 0)
        return -1;
    if (input_tfs(f) == 0 && (f->text == NULL || f->text[0] == '\0'))
        return err_set(e, ERR_USAGE, "the input %s has no TF and no reason why", f->path);
    if (f->n_sizes && f->n_tfs)
        return err_set(e, ERR_USAGE, "the input %s says twice where its TFs lie", f->path);
    for (size_t i = 0; i < f->n_tfs; i++) {
        if (extent_check(f, i, f->tfs[i]->offset, f->tfs[i]->size, e) < 0)
            return -1;
    }
    for (size_t i = 0; i < f->n_sizes; at += f->sizes[i++]) {
        if (extent_check(f, i, at, f->sizes[i], e) < 0)
            return -1;
    }
    *tasks += input_tfs(f);
    return *tasks <= TASKS_MAX ? 0 : err_set(e, ERR_USAGE, "more than %d TFs in one job", TASKS_MAX);
}

static int submit_check(struct session *s, const Sluice__Submit *m, struct err *e)
{
    const struct sluiced *d = s->d;
    uint64_t tasks = 0;

    if (m->n_files == 0 || m->n_files > FILES_MAX)
        return err_set(e, ERR_USAGE, "a job has 1 to %d files, this one %zu", FILES_MAX, m->n_files);
    if (m->name && m->name[0] && !str_is_name(m->name))
        return err_set(e, ERR_USAGE, "a job's name is 1 to 63 letters, digits and ._-");
    if (workflow_words_check(m->workflow && m->workflow[0] ? m->workflow : "decode", m->backends, m->options, e) < 0)
        return -1;
    if (m->has_nice && nice_check(s, m->nice, e) < 0)
        return -1;
    if (m->key && strlen(m->key) > 200)
        return err_set(e, ERR_USAGE, "a key has at most 200 bytes");
    if (m->attempts > ATTEMPTS_MAX)
        return err_set(e, ERR_USAGE, "%u attempts; at most %d are possible", m->attempts, ATTEMPTS_MAX);
    if (m->time_limit < 0 || m->time_limit > 864000)
        return err_set(e, ERR_USAGE, "a time limit of %g s; up to 10 days are possible", m->time_limit);
    if (m->has_straggler && !(m->straggler >= STRAGGLER_LEAST && m->straggler <= STRAGGLER_MOST))
        return err_set(e, ERR_USAGE, "a straggler after %g times the median; %g to %g are possible", m->straggler, STRAGGLER_LEAST, STRAGGLER_MOST);
    if (m->has_max_bad)
        return err_set(e, ERR_USAGE, "a limit of bad TFs is not there yet");
    for (size_t i = 0; i < m->n_classes; i++) {
        if (conf_class_find(d->conf, m->classes[i]) == NULL && !flow_class_known(d->flow, m->classes[i]))
            return err_set(e, ERR_NOT_FOUND, "class '%s': there is no such class in the configuration", m->classes[i]);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        if (file_check(d->conf, m->files[i], &tasks, e) < 0)
            return -1;
    }
    return 0;
}

static void fill_extents(struct job_file *x, const Sluice__InputFile *f)
{
    uint64_t at = f->offset;

    x->extent = mem_array(x->tfs, sizeof(*x->extent));
    for (size_t k = 0; k < f->n_tfs; k++) {
        x->extent[k][0] = f->tfs[k]->offset;
        x->extent[k][1] = f->tfs[k]->size;
    }
    for (size_t k = 0; k < f->n_sizes; at += f->sizes[k++]) {
        x->extent[k][0] = at;
        x->extent[k][1] = f->sizes[k];
    }
}

static void fill_files(struct job *j, const Sluice__Submit *m)
{
    j->file = mem_array(m->n_files, sizeof(*j->file));
    j->n_files = m->n_files;
    for (size_t i = 0; i < m->n_files; i++) {
        const Sluice__InputFile *f = m->files[i];
        struct job_file *x = &j->file[i];
        x->path = mem_strdup(f->path);
        x->first_task = j->n_tasks;
        x->tfs = input_tfs(f);
        if (x->tfs == 0) {
            x->text = mem_strdup(f->text);
            j->skipped_files++;
            continue;
        }
        fill_extents(x, f);
        j->n_tasks += x->tfs;
    }
    j->task = mem_array(j->n_tasks ? j->n_tasks : 1, sizeof(*j->task));
    j->n[TASK_WAITING] = j->n_tasks;
    task_stems(j);
    j->state = job_state_now(j);
}

static void fill_classes(struct job *j, char **classes, size_t n)
{
    struct str s = { 0 };

    for (size_t i = 0; i < n; i++) {
        str_addf(&s, "%s%s", i ? "," : "", classes[i]);
        j->work.classes |= flow_class_bit(j->work.flow, classes[i]);
    }
    j->classes = str_take(&s);
}

static int fill_job(struct job *j, struct session *s, const Sluice__Submit *m, struct err *e)
{
    struct work *w = &j->work;
    const char *workflow = m->workflow && m->workflow[0] ? m->workflow : "decode";

    w->output = run_output(s->d->conf, workflow, m->output, e);
    if (w->output == NULL)
        return -1;
    if (w->output[0] && (m->output == NULL || m->output[0] == '\0')) {
        char *root = w->output;                  /* a folder of its own below the default one */
        w->output = mem_printf("%s/job-%" PRIu64, root, w->id);
        free(root);
    }
    w->workflow = mem_strdup(workflow);
    w->backends = mem_strdup(m->backends ? m->backends : "");
    w->options = mem_strdup(m->options ? m->options : "");
    w->name = m->name && m->name[0] ? mem_strdup(m->name) : mem_printf("job-%" PRIu64, w->id);
    w->uid = s->peer.uid;
    w->user = flow_user(w->flow, w->uid);
    w->gid = s->peer.gid;
    w->priority = m->priority;
    w->time_limit = m->time_limit;
    nice_begin(s, w, m->has_nice, m->nice);
    j->owner = s->peer.user[0] ? mem_strdup(s->peer.user) : mem_printf("uid %u", s->peer.uid);
    j->key = m->key && m->key[0] ? mem_strdup(m->key) : NULL;
    j->attempts = m->attempts ? m->attempts : s->d->conf->limits.attempts;
    j->straggler = m->has_straggler ? m->straggler : 0;
    j->submitted = clock_wall_ns();
    j->begin = m->has_begin ? m->begin : 0;
    j->held = m->has_hold && m->hold;
    fill_classes(j, m->classes, m->n_classes);
    fill_files(j, m);
    return 0;
}

struct submit_ask { struct session_ref ref; struct job *job; bool existed; };

/* In the writer's thread: the files of a new job, which nobody changes. */
static int files_write(struct db *db, void *arg, struct err *e)
{
    struct job *j = ((struct submit_ask *)arg)->job;

    for (size_t i = 0; i < j->n_files; i++) {
        struct job_file *f = &j->file[i];
        struct row_job_file row = { .job = j->work.id, .number = (uint32_t)i, .path = f->path, .first_task = f->first_task, .tfs = f->tfs,
                                    .extents = f->extent, .extents_size = f->tfs * sizeof(*f->extent), .text = f->text };
        if (rows_put_job_file(db, &row, e) < 0)
            return -1;
    }
    return 0;
}

static void submitted_answer(struct submit_ask *ask, const struct job *j)
{
    struct session *s = session_find(ask->ref);
    Sluice__Submitted m = SLUICE__SUBMITTED__INIT;

    if (s == NULL)
        return;
    m.has_id = m.has_tasks = m.has_skipped = m.has_existed = true;
    m.id = j->work.id;
    m.tasks = j->n_tasks;
    m.skipped = j->skipped_files;
    m.existed = ask->existed;
    session_answer(s, ask->ref.id, &m.base);
}

static void submitted_then(struct job *j, int rc, const struct err *e, void *arg)
{
    struct submit_ask *ask = arg;
    struct err lost;

    if (rc == 0 && ask->existed && !j->stored) {         /* the one with this key before it could not be stored */
        err_set(&lost, ERR_STATE, "the job could not be stored; submit it again");
        e = &lost;
        rc = -1;
    }
    if (rc < 0) {
        struct session *s = session_find(ask->ref);
        if (s)
            session_error(s, ask->ref.id, e, "StateNotWritable");
        if (!j->stored && j->changes == 0)
            job_discard(j);
        free(ask);
        return;
    }
    submitted_answer(ask, j);
    free(ask);
    if (!j->stored) {
        j->stored = true;
        job_gate(j);
        job_progress(j);
    }
}

static struct job *find_key(struct jobs *jobs, const char *key, uid_t uid)
{
    struct job *j;

    if (key == NULL || key[0] == '\0')
        return NULL;
    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->work.uid == uid && str_equal(j->key, key))
            return j;
    }
    TAILQ_FOREACH(j, &jobs->over, entry) {
        if (j->work.uid == uid && str_equal(j->key, key))
            return j;
    }
    return NULL;
}

void job_submit(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Submit *x = m;
    struct jobs *jobs = s->d->jobs;
    struct job *j = find_key(jobs, x->key, s->peer.uid);
    char who[96];
    struct err e;

    if (j == NULL && submit_check(s, x, &e) < 0) {
        session_error(s, id, &e, e.code == ERR_PERMISSION ? "NotPermitted" : NULL);
        return;
    }
    struct submit_ask *ask = mem_zalloc(sizeof(*ask));
    ask->ref = session_refer(s, id);
    if (j) {
        ask->existed = true;
        job_put(j, CHANGE_NEW, NULL, NULL, submitted_then, ask);      /* behind the first one's commit */
        return;
    }
    j = ask->job = job_create(jobs, jobs->last_id + 1);
    if (fill_job(j, s, x, &e) < 0) {
        session_error(s, id, &e, NULL);
        job_discard(j);
        free(ask);
        return;
    }
    jobs->last_id++;
    log_info("job %" PRIu64 ": %s: %" PRIu64 " TFs in %zu files, workflow %s, by %s", j->work.id, j->work.name, j->n_tasks, j->n_files, j->work.workflow, j->owner);
    job_put(j, CHANGE_NEW, event_create(NULL, session_author(s, who), "job submit", NULL, j->work.name, NULL), files_write, submitted_then, ask);
}
