/* jobsubmit.c - a job that is submitted: checked, filled, stored with its files, answered
 *
 * From: Submit.  To: the writer, the asker.
 * Always: a job is checked whole before it is stored; its number is told after the commit; the same key of the same user is the same job, for ever: memory
 * knows the newest jobs, the writer's thread looks for older ones in the transaction that would store a new one.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "events.h"
#include "helper.h"
#include "log.h"
#include "mem.h"
#include "nice.h"
#include "rows.h"
#include "run.h"
#include "str.h"
#include "workflow_words.h"

#define STRAGGLER_LEAST 1.5      /* times the median */
#define STRAGGLER_MOST  1000.0
enum { PATH_MOST = 4000, TASKS_MAX = 10000000, ATTEMPTS_MAX = 100 };
enum { ASK_AGAIN_MS = 300, STEMS_TOLD = 2000, STEMS_BYTES = 500000 };
enum { SLICE_FILES = 2000, SLICE_TASKS = 100000 };       /* of a job's files in one transaction, so that marks come between */

static int path_check(const struct conf *conf, const char *path, const char *of, struct err *e)
{
    if (path == NULL || path[0] != '/' || strlen(path) > PATH_MOST)
        return err_set(e, ERR_USAGE, "an input must be an absolute path, not \"%.200s\"", path ? path : "");
    for (const char *p = path; (p = strstr(p, "/..")); p += 3) {
        if (p[3] == '/' || p[3] == '\0')
            return err_set(e, ERR_USAGE, "the input \"%.200s\" has \"..\" in it", path);
    }
    if (str_is_below(path, conf->roots_input, conf->n_roots_input))
        return 0;
    if (of == path)
        return err_set(e, ERR_PERMISSION, "the input \"%.200s\" is below none of the configured roots", path);
    return err_set(e, ERR_PERMISSION, "the input \"%.150s\" leads to \"%.150s\", which is below none of the configured roots", of, path);
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

    if (input_tfs(f) == 0 && f->path && f->path[0] && strlen(f->path) <= PATH_MOST && !str_is_empty(f->text))
        return 0;                                /* skipped: nobody will open it */
    if (path_check(conf, f->path, f->path, e) < 0 || (f->real_path && f->real_path[0] && path_check(conf, f->real_path, f->path, e) < 0))
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

int submit_files_check(const struct conf *conf, size_t all, Sluice__InputFile *const *files, size_t n, uint64_t *tasks, uint64_t *bad, struct err *e)
{
    if (all > FILES_MAX)
        return err_set(e, ERR_USAGE, "a job has 1 to %d files, this one %zu", FILES_MAX, all);
    for (size_t i = 0; i < n; i++) {
        if (file_check(conf, files[i], tasks, e) < 0)
            return -1;
        if (bad)
            *bad += input_tfs(files[i]) == 0;
    }
    return 0;
}

static int submit_check(struct session *s, const Sluice__Submit *m, struct err *e)
{
    const struct sluiced *d = s->d;
    uint64_t tasks, bad;
    size_t told = staged_count(s, &tasks, &bad);
    struct after after;

    if ((m->has_files_told ? m->files_told : 0) != told)
        return err_set(e, ERR_USAGE, "%" PRIu64 " files of this job were told before, %zu are there", m->has_files_told ? m->files_told : 0, told);
    if (told + m->n_files == 0)
        return err_set(e, ERR_USAGE, "a job has 1 to %d files, this one none", FILES_MAX);
    if (m->n_files > FILES_TOLD)
        return err_set(e, ERR_USAGE, "%zu files in one message, at most %d are taken at once: the others are to be told before", m->n_files, FILES_TOLD);
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
    if (after_parse(m->after, &after, e) < 0)
        return -1;
    if (after.kind != AFTER_NOTHING && after.job > d->jobs->last_id)
        return err_set(e, ERR_NOT_FOUND, "after %s: no job %" PRIu64, m->after, after.job);
    for (size_t i = 0; i < m->n_classes; i++) {
        if (conf_class_find(d->conf, m->classes[i]) == NULL && !flow_class_known(d->flow, m->classes[i]))
            return err_set(e, ERR_NOT_FOUND, "class '%s': there is no such class in the configuration", m->classes[i]);
    }
    if (able_check(d->flow, m->workflow && m->workflow[0] ? m->workflow : "decode", m->backends, m->classes, m->n_classes, e) < 0)
        return -1;
    if (submit_files_check(d->conf, told + m->n_files, m->files, m->n_files, &tasks, &bad, e) < 0)
        return -1;
    if (m->has_max_bad && bad > m->max_bad)
        return err_set(e, ERR_FAILED, "%" PRIu64 " of the %zu files cannot be read, at most %u may be", bad, told + m->n_files, m->max_bad);
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

void submit_file_fill(struct job_file *x, const Sluice__InputFile *f, uint64_t first_task)
{
    *x = (struct job_file){ .path = mem_strdup(f->path), .first_task = first_task, .tfs = input_tfs(f) };
    if (x->tfs == 0)
        x->text = mem_strdup(f->text);
    else
        fill_extents(x, f);
}

/* Those that were told before, then those of the message. */
static void fill_files(struct job *j, struct session *s, const Sluice__Submit *m)
{
    if (s->staged)
        staged_take(s, j);
    j->file = mem_grow(j->file, j->n_files + m->n_files, sizeof(*j->file));
    for (size_t i = 0; i < m->n_files; i++) {
        struct job_file *x = &j->file[j->n_files++];
        submit_file_fill(x, m->files[i], j->n_tasks);
        j->n_tasks += x->tfs;
        j->skipped_files += x->tfs == 0;
    }
    j->task = mem_array(j->n_tasks ? j->n_tasks : 1, sizeof(*j->task));
    j->n[TASK_WAITING] = j->n_tasks;
    j->state = job_state_now(j);
}

static void fill_classes(struct job *j, char **classes, size_t n)
{
    struct str s = { 0 };

    for (size_t i = 0; i < n; i++) {
        str_addf(&s, "%s%s", i ? "," : "", classes[i]);
        j->work.asked |= flow_class_bit(j->work.flow, classes[i]);
    }
    able_narrow(&j->work);
    j->classes = str_take(&s);
}

static int fill_job(struct job *j, struct session *s, const Sluice__Submit *m, struct err *e)
{
    struct work *w = &j->work;
    const char *workflow = m->workflow && m->workflow[0] ? m->workflow : "decode";

    w->output = run_output(s->d->conf, workflow, m->output, e);
    if (w->output == NULL)
        return -1;
    j->by_default = str_is_empty(m->output);
    if (w->output[0] && j->by_default) {
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
    if (after_parse(m->after, &j->after, e) < 0)
        return -1;
    fill_classes(j, m->classes, m->n_classes);
    fill_files(j, s, m);
    return 0;
}

/* ---- who asks, and the answer ---------------------------------------------------------------- */

struct submit_ask { struct session_ref ref; bool existed; struct submit_ask *next; };

/* Of a job that is not on disk yet. */
struct submit {
    struct job *job;
    struct submit_ask *asks;
    char   who[96];
    uint64_t twin, twin_tasks, twin_skipped;             /* the job that has its key already, found by the writer's thread; 0: none */
    bool   ask_other, other_found;                       /* the job it comes after is not in memory: the writer's thread looks for its end */
    struct row_job other; char other_state[16];
    size_t at, end;                                      /* files before `at` are on disk, those before `end` on their way; the job's row comes with the last */
};

void submit_free(struct submit *x)
{
    struct submit_ask *a;

    while (x && (a = x->asks)) {
        x->asks = a->next;
        free(a);
    }
    free(x);
}

static void ask_add(struct submit *x, struct session *s, uint32_t id, bool existed)
{
    struct submit_ask *a = mem_zalloc(sizeof(*a));

    *a = (struct submit_ask){ session_refer(s, id), existed, x->asks };
    x->asks = a;
}

static void answer(struct session_ref ref, uint64_t id, uint64_t tasks, uint64_t skipped, bool existed)
{
    struct session *s = session_find(ref);
    Sluice__Submitted m = SLUICE__SUBMITTED__INIT;

    if (s == NULL)
        return;
    m.has_id = m.has_tasks = m.has_skipped = m.has_existed = true;
    m.id = id;
    m.tasks = tasks;
    m.skipped = skipped;
    m.existed = existed;
    session_answer(s, ref.id, &m.base);
}

/* It is not accepted: all who asked hear why, and nobody ever heard of it. */
static void refuse(struct job *j, const struct err *e, const char *word)
{
    for (struct submit_ask *a = j->submit->asks; a; a = a->next) {
        struct session *s = session_find(a->ref);
        if (s)
            session_error(s, a->ref.id, e, word);
    }
    job_discard(j);
}

/* ---- storing ----------------------------------------------------------------------------------- */

static int twin_row(void *arg, const struct row_job *row)
{
    struct submit *x = arg;

    x->twin = row->id;
    x->twin_tasks = row->tasks;
    x->twin_skipped = row->skipped;
    return 0;
}

static int other_row(void *arg, const struct row_job *row)
{
    struct submit *x = arg;

    snprintf(x->other_state, sizeof(x->other_state), "%s", row->state);
    x->other = (struct row_job){ .state = x->other_state, .ended = row->ended, .failed = row->failed };
    x->other_found = true;
    return 0;
}

/* What it comes after was looked for, and there is no such job. */
static bool no_other(const struct submit *x)
{
    return x->ask_other && !x->other_found;
}

/* In the writer's thread: some files of a new job, which nobody changes; nothing of it when its key has a job already. */
static int files_write(struct db *db, void *arg, struct err *e)
{
    struct submit *x = arg;
    struct job *j = x->job;

    x->twin = 0;
    if (x->ask_other && rows_load_job(db, j->after.job, other_row, x, e) < 0)
        return -1;
    if (no_other(x))
        return 1;
    if (j->key && rows_load_job_key(db, j->key, j->work.uid, twin_row, x, e) < 0)
        return -1;
    if (x->twin)
        return 1;
    for (size_t i = x->at; i < x->end; i++) {
        struct job_file *f = &j->file[i];
        struct row_job_file row = { .job = j->work.id, .number = (uint32_t)i, .path = f->path, .first_task = f->first_task, .tfs = f->tfs,
                                    .extents = f->extent, .extents_size = f->tfs * sizeof(*f->extent), .text = f->text };
        if (rows_put_job_file(db, &row, e) < 0)
            return -1;
    }
    return 0;
}

static int slice_write(struct db *db, void *arg, struct err *e)
{
    return files_write(db, arg, e) < 0 ? -1 : 0;
}

/* The job that has its key is the answer. */
static void answer_twin(struct job *j)
{
    for (struct submit_ask *a = j->submit->asks; a; a = a->next)
        answer(a->ref, j->submit->twin, j->submit->twin_tasks, j->submit->twin_skipped, true);
    job_discard(j);
}

static void submitted_then(struct job *j, int rc, const struct err *e, void *arg)
{
    struct submit *x = arg;
    struct err missing;

    if (rc == 0 && no_other(x)) {
        rc = err_set(&missing, ERR_NOT_FOUND, "after job %" PRIu64 ": there is no such job", j->after.job);
        e = &missing;
    }
    if (x->at > 0 && (rc < 0 || x->twin) && !j->jobs->d->stopping)       /* else the next start does it */
        prune_files(j->jobs, j->work.id);
    if (rc < 0) {
        refuse(j, e, e && e->code == ERR_NOT_FOUND ? NULL : "StateNotWritable");
        return;
    }
    if (x->twin) {
        answer_twin(j);
        return;
    }
    for (struct submit_ask *a = x->asks; a; a = a->next)
        answer(a->ref, j->work.id, j->n_tasks, j->skipped_files, a->existed);
    if (x->ask_other)
        after_restore(j, &x->other);
    j->submit = NULL;
    submit_free(x);
    j->stored = true;
    job_gate(j);
    job_progress(j);
}

static void store(struct submit *x);

static void slice_then(void *arg, int rc, const struct err *e)
{
    struct submit *x = arg;
    struct err ends;

    if (rc == 0 && x->job->jobs->d->stopping) {
        rc = err_set(&ends, ERR_STATE, "sluiced ends, the job was not stored");
        e = &ends;
    }
    if (rc < 0 || x->twin || no_other(x)) {
        submitted_then(x->job, rc, e, x);
        return;
    }
    x->at = x->end;
    store(x);
}

/* The next files; with the last of them the job. */
static void store(struct submit *x)
{
    struct job *j = x->job;
    uint64_t tasks = 0;

    for (x->end = x->at; x->end < j->n_files && x->end < x->at + SLICE_FILES && tasks < SLICE_TASKS; x->end++)
        tasks += j->file[x->end].tfs;
    if (x->end < j->n_files)
        writer_put(j->jobs->d->writer, CHANGE_NEW, slice_write, slice_then, x);
    else
        job_put(j, CHANGE_NEW, event_create(NULL, x->who, "job submit", NULL, j->work.name, NULL), files_write, submitted_then, x);
}

static void take_in(struct job *j)
{
    log_info("job %" PRIu64 ": %s: %" PRIu64 " TFs in %zu files, workflow %s, by %s", j->work.id, j->work.name, j->n_tasks, j->n_files, j->work.workflow, j->owner);
    store(j->submit);
}

/* It is not taken now: all who asked are to ask again. */
static void put_off(struct job *j, const struct err *e)
{
    for (struct submit_ask *a = j->submit->asks; a; a = a->next) {
        struct session *s = session_find(a->ref);
        if (s)
            session_busy(s, a->ref.id, e->text, ASK_AGAIN_MS);
    }
    job_discard(j);
}

/* Held against the names of those that came to its folder by another path. */
static void renamed_then(void *arg, int rc, const struct err *e, const struct names_seen *seen)
{
    struct job *j = arg;

    (void)seen;
    if (rc < 0)
        refuse(j, e, "OutputExists");
    else
        take_in(j);
}

/* Its output folder was looked at. */
static void checked_then(void *arg, int rc, const struct outcheck_said *said, const struct err *e)
{
    struct job *j = arg;
    struct err busy;

    if (rc < 0) {
        refuse(j, e, "OutputUnusable");
        return;
    }
    j->folder = mem_strdup(said ? said->real : NULL);
    if (!job_names_again(j))
        take_in(j);
    else if (job_names(j, renamed_then, j, &busy) < 0)
        put_off(j, &busy);
}

/* The names of its results are its own, as far as the path of its folder tells. */
static void named_then(void *arg, int rc, const struct err *e, const struct names_seen *seen)
{
    struct job *j = arg;

    (void)seen;
    if (rc < 0) {
        refuse(j, e, "OutputExists");
        return;
    }
    const char *stem[STEMS_TOLD];
    uint64_t tfs[STEMS_TOLD];
    size_t n = 0, bytes = 0;

    for (size_t i = 0; i < j->n_files && n < STEMS_TOLD && bytes < STEMS_BYTES; i++) {
        if (j->file[i].tfs == 0)
            continue;
        stem[n] = j->file[i].stem;
        tfs[n] = j->file[i].tfs;
        bytes += strlen(stem[n++]);
    }
    outcheck(j->work.flow, POOL_ASYNC, &(struct outcheck_ask){ .output = j->work.output, .uid = j->work.uid, .gid = j->work.gid, .stem = stem, .tfs = tfs, .n = n,
                                                              .by_default = j->by_default }, checked_then, j);
}

/* ---- Submit -------------------------------------------------------------------------------------- */

static struct job *find_key(struct jobs *jobs, const char *key, uid_t uid)
{
    struct job *j;

    if (str_is_empty(key))
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

struct key_ask { struct session_ref ref; char *dir, *key; struct submit found; uint32_t uid; int rc; struct err why; };

/* In a helper's thread. */
static void key_work(void *arg)
{
    struct key_ask *a = arg;
    struct db *db = db_open_reader(a->dir, &a->why);

    a->rc = db == NULL ? -1 : rows_load_job_key(db, a->key, a->uid, twin_row, &a->found, &a->why);
    db_close(db);
}

static void key_done(void *arg)
{
    struct key_ask *a = arg;
    struct session *s = session_find(a->ref);

    if (a->rc == 0 && a->found.twin == 0)
        err_set(&a->why, ERR_NOT_FOUND, "no job of yours has the key \"%.200s\"", a->key);
    if (a->rc == 0 && a->found.twin)
        answer(a->ref, a->found.twin, a->found.twin_tasks, a->found.twin_skipped, true);
    else if (s)
        session_error(s, a->ref.id, &a->why, NULL);
    free(a->dir);
    free(a->key);
    free(a);
}

/* No new job: whether there is one with this key. */
static void ask_key(struct session *s, uint32_t id, const char *key)
{
    struct key_ask *a = mem_zalloc(sizeof(*a));
    struct err e;

    *a = (struct key_ask){ .ref = session_refer(s, id), .dir = mem_strdup(s->d->conf->state_dir), .key = mem_strdup(key), .uid = s->peer.uid };
    if (helper_run(s->d->helper, key_work, key_done, a, &e) == 0)
        return;
    session_error(s, id, &e, NULL);
    free(a->dir);
    free(a->key);
    free(a);
}

void job_submit(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Submit *x = m;
    struct jobs *jobs = s->d->jobs;
    struct job *j = find_key(jobs, x->key, s->peer.uid);
    struct err e;

    if (j && j->stored) {
        answer(session_refer(s, id), j->work.id, j->n_tasks, j->skipped_files, true);
        return;
    }
    if (j) {
        ask_add(j->submit, s, id, true);                 /* with the first one's answer */
        return;
    }
    if (x->has_key_only && x->key_only && !str_is_empty(x->key)) {
        ask_key(s, id, x->key);
        return;
    }
    if (submit_check(s, x, &e) < 0) {
        job_unstage(s);
        session_error(s, id, &e, e.code == ERR_PERMISSION ? "NotPermitted" : NULL);
        return;
    }
    j = job_create(jobs, jobs->last_id + 1);
    j->submit = mem_zalloc(sizeof(*j->submit));
    j->submit->job = j;
    session_author(s, j->submit->who);
    if (fill_job(j, s, x, &e) < 0) {
        session_error(s, id, &e, NULL);
        job_discard(j);
        return;
    }
    jobs->last_id++;
    ask_add(j->submit, s, id, false);
    j->submit->ask_other = j->after.kind != AFTER_NOTHING && job_find(jobs, j->after.job) == NULL;
    if (job_names(j, named_then, j, &e) < 0)
        put_off(j, &e);
}
