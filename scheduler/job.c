/* job.c - jobs: submitted, run, cancelled, over; and what people see of them
 *
 * From: Submit, CancelJob, settled tasks (task.c).  To: the writer (a row a task from its first attempt on, with the job's totals), the askers.
 * Always: tasks = waiting + running + done + failed + cancelled; nobody hears of a job, a cancellation or an end before it is on disk.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "crash.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "rows.h"
#include "run.h"
#include "str.h"
#include "wait.h"
#include "workflow_words.h"

#define PUBLISH_LIMIT 10.0       /* s that the results of a job's last tasks may take to be published */
enum { FILES_MAX = 1000000, TASKS_MAX = 10000000, ATTEMPTS_MAX = 100 };

const char *const job_state_name[7] = { "held", "waiting", "running", "paused", "done", "failed", "cancelled" };

/* ---- storing ------------------------------------------------------------------------------- */

static int change_write(struct db *db, void *arg, struct err *e)
{
    struct job_change *c = arg;

    if (rows_put_job(db, c->row, e) < 0)
        return -1;
    if (c->more && c->more(db, c->arg, e) < 0)
        return -1;
    return c->ev ? event_write(c->ev, db, e) : 0;
}

static void change_then(void *arg, int rc, const struct err *e)
{
    struct job_change *c = arg;
    struct job *j = c->job;

    j->changes--;
    if (rc == 0 && c->ev) {
        history_add(j->jobs->d->history, c->ev);
        c->ev = NULL;
    }
    if (c->then)
        c->then(j, rc, e, c->arg);
    event_destroy(c->ev);
    free(c->row);
    free(c->text);
    free(c);
}

void job_put(struct job *j, int kind, struct event *ev, int (*more)(struct db *db, void *arg, struct err *e),
             void (*then)(struct job *j, int rc, const struct err *e, void *arg), void *arg)
{
    struct job_change *c = mem_zalloc(sizeof(*c));
    struct work *w = &j->work;

    *c = (struct job_change){ .job = j, .ev = ev, .more = more, .then = then, .arg = arg, .text = mem_strdup(j->why) };
    c->row = mem_zalloc(sizeof(*c->row));
    *c->row = (struct row_job){
        .id = w->id, .name = w->name, .owner = j->owner, .key = j->key, .state = job_state_name[j->state], .workflow = w->workflow, .backends = w->backends,
        .options = w->options, .output = w->output, .text = c->text, .classes = j->classes, .uid = w->uid, .gid = w->gid, .priority = w->priority,
        .attempts = j->attempts, .time_limit = w->time_limit, .tasks = j->n_tasks, .done = j->n[TASK_DONE], .failed = j->n[TASK_FAILED],
        .skipped = j->skipped_files, .cancelled = j->n[TASK_CANCELLED], .retried = w->retried, .submitted = j->submitted, .begin = j->begin, .ended = j->ended };
    j->changes++;
    writer_put(j->jobs->d->writer, (enum change_kind)kind, change_write, change_then, c);
}

/* ---- states -------------------------------------------------------------------------------- */

struct job *job_find(struct jobs *jobs, uint64_t id)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->work.id == id)
            return j->stored ? j : NULL;         /* nobody hears of it before it is on disk */
    }
    TAILQ_FOREACH(j, &jobs->over, entry) {
        if (j->work.id == id)
            return j;
    }
    return NULL;
}

void job_free_details(struct job *j)
{
    for (size_t i = 0; i < j->n_files; i++) {
        free(j->file[i].path);
        free(j->file[i].stem);
        free(j->file[i].text);
        free(j->file[i].extent);
    }
    for (uint64_t i = 0; j->task && i < j->n_tasks; i++) {
        free(j->task[i].node);
        free(j->task[i].code);
        free(j->task[i].text);
    }
    free(j->file);
    free(j->task);
    j->file = NULL;
    j->task = NULL;
    j->n_files = 0;
}

static void job_destroy(struct job *j)
{
    struct tf *t, *next;

    HASH_ITER(hh, j->work.tfs, t, next)
        tf_free(t);
    job_free_details(j);
    free(j->owner);
    free(j->key);
    free(j->classes);
    free(j->why);
    work_free(&j->work);
    free(j);
}

static void job_retire(struct job *j)
{
    struct jobs *jobs = j->jobs;
    unsigned n = 0;

    TAILQ_INSERT_HEAD(&jobs->over, j, entry);
    jobs->n_over++;
    struct job *x = TAILQ_FIRST(&jobs->over), *next;
    for (; x; x = next) {
        next = TAILQ_NEXT(x, entry);
        n++;
        if (n > JOBS_DETAILED && x->task && x->changes == 0 && x->work.records == 0)
            job_free_details(x);
        if (n > JOBS_KEPT && x->changes == 0 && x->work.records == 0) {
            TAILQ_REMOVE(&jobs->over, x, entry);
            jobs->n_over--;
            job_destroy(x);
        }
    }
}

static void over_then(struct job *j, int rc, const struct err *e, void *arg)
{
    (void)arg;
    if (rc < 0)
        log_err("job %" PRIu64 ": its end was not stored: %s", j->work.id, e ? e->text : "?");
    j->stored_over = true;
    wait_job_over(j);
}

static void job_over(struct job *j)
{
    struct work *w = &j->work;

    if (j->cancelling)
        j->state = SLUICE__JOB_STATE__JOB_CANCELLED;
    else
        j->state = j->n[TASK_FAILED] && !j->n[TASK_DONE] ? SLUICE__JOB_STATE__JOB_FAILED : SLUICE__JOB_STATE__JOB_DONE;
    j->ended = clock_wall_ns();
    log_info("job %" PRIu64 ": %s: %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " cancelled", w->id, job_state_name[j->state], j->n[TASK_DONE],
             j->n[TASK_FAILED], j->n[TASK_CANCELLED]);
    assign_close(w);
    TAILQ_REMOVE(&w->flow->works, w, entry);
    TAILQ_REMOVE(&j->jobs->open, j, entry);
    job_put(j, CHANGE_KEEP, event_create(NULL, j->owner, "job over", NULL, job_state_name[j->state], NULL), NULL, over_then, NULL);
    job_retire(j);
}

static bool is_over(struct job *j)
{
    double now = flow_now(j->work.flow);

    if (!j->stored || j->n[TASK_WAITING] || j->n[TASK_RUNNING]) {
        j->settled_since = 0;
        return false;
    }
    if (j->work.records == 0)
        return true;
    if (j->settled_since == 0)
        j->settled_since = now;
    if (now - j->settled_since < PUBLISH_LIMIT)
        return false;
    for (struct record *rec = j->work.flow->records; rec; rec = rec->hh.next) {
        if (rec->work == &j->work && (!rec->stored || rec->writing))
            return false;
    }
    return true;                     /* their workers are away; they publish when they come back */
}

void job_progress(struct job *j)
{
    if (j->ended || j->in_progress || j->jobs->d->stopping)
        return;
    j->in_progress = true;
    if (j->state == SLUICE__JOB_STATE__WAITING && j->n[TASK_RUNNING] + j->n[TASK_DONE] + j->n[TASK_FAILED] > 0)
        j->state = SLUICE__JOB_STATE__JOB_RUNNING;
    if (is_over(j))
        job_over(j);
    j->in_progress = false;
}

void job_turn(struct jobs *jobs)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->stored && !j->cancelling)
            task_feed(j);
    }
}

void job_tick(struct jobs *jobs, double now)
{
    struct job *j, *next;

    (void)now;
    for (j = TAILQ_FIRST(&jobs->open); j; j = next) {
        next = TAILQ_NEXT(j, entry);
        if (j->work.paused && j->stored && !j->cancelling && j->begin <= clock_wall_ns()) {
            j->work.paused = false;
            flow_kick(jobs->flow);
        }
        job_progress(j);
    }
}

/* ---- submitting ---------------------------------------------------------------------------- */

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

static int file_check(const struct conf *conf, const Sluice__InputFile *f, uint64_t *tasks, struct err *e)
{
    if (path_check(conf, f->path, e) < 0)
        return -1;
    if (f->n_tfs == 0 && (f->text == NULL || f->text[0] == '\0'))
        return err_set(e, ERR_USAGE, "the input %s has no TF and no reason why", f->path);
    for (size_t i = 0; i < f->n_tfs; i++) {
        if (f->tfs[i]->size == 0 || f->tfs[i]->size > (UINT64_C(1) << 40) || f->tfs[i]->offset > INT64_MAX - f->tfs[i]->size)
            return err_set(e, ERR_USAGE, "the input %s: TF %zu lies at %" PRIu64 " and has %" PRIu64 " bytes: that cannot be", f->path, i, f->tfs[i]->offset,
                           f->tfs[i]->size);
    }
    *tasks += f->n_tfs;
    return *tasks <= TASKS_MAX ? 0 : err_set(e, ERR_USAGE, "more than %d TFs in one job", TASKS_MAX);
}

static int submit_check(struct sluiced *d, const Sluice__Submit *m, struct err *e)
{
    uint64_t tasks = 0;

    if (m->n_files == 0 || m->n_files > FILES_MAX)
        return err_set(e, ERR_USAGE, "a job has 1 to %d files, this one %zu", FILES_MAX, m->n_files);
    if (m->name && m->name[0] && !str_is_name(m->name))
        return err_set(e, ERR_USAGE, "a job's name is 1 to 63 letters, digits and ._-");
    if (workflow_words_check(m->workflow && m->workflow[0] ? m->workflow : "decode", m->backends, m->options, e) < 0)
        return -1;
    if (m->key && strlen(m->key) > 200)
        return err_set(e, ERR_USAGE, "a key has at most 200 bytes");
    if (m->attempts > ATTEMPTS_MAX)
        return err_set(e, ERR_USAGE, "%u attempts; at most %d are possible", m->attempts, ATTEMPTS_MAX);
    if (m->time_limit < 0 || m->time_limit > 864000)
        return err_set(e, ERR_USAGE, "a time limit of %g s; up to 10 days are possible", m->time_limit);
    if (m->hold || m->has_max_bad)
        return err_set(e, ERR_USAGE, "%s is not there yet", m->hold ? "holding a job" : "a limit of bad TFs");
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

static struct job *job_create(struct jobs *jobs, uint64_t id)
{
    struct job *j = mem_zalloc(sizeof(*j));

    work_init(&j->work, jobs->flow, &job_ops, true, id);
    j->jobs = jobs;
    j->state = SLUICE__JOB_STATE__WAITING;
    j->work.pool = POOL_ASYNC;
    j->work.paused = true;
    TAILQ_INSERT_TAIL(&jobs->open, j, entry);
    TAILQ_INSERT_TAIL(&jobs->flow->works, &j->work, entry);
    return j;
}

static void job_discard(struct job *j)
{
    TAILQ_REMOVE(&j->work.flow->works, &j->work, entry);
    TAILQ_REMOVE(&j->jobs->open, j, entry);
    job_destroy(j);
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
        x->tfs = f->n_tfs;
        if (f->n_tfs == 0) {
            x->text = mem_strdup(f->text);
            j->skipped_files++;
            continue;
        }
        x->extent = mem_array(f->n_tfs, sizeof(*x->extent));
        for (size_t k = 0; k < f->n_tfs; k++) {
            x->extent[k][0] = f->tfs[k]->offset;
            x->extent[k][1] = f->tfs[k]->size;
        }
        j->n_tasks += f->n_tfs;
    }
    j->task = mem_array(j->n_tasks ? j->n_tasks : 1, sizeof(*j->task));
    for (size_t i = 0; i < j->n_files; i++) {
        for (uint64_t k = 0; k < j->file[i].tfs; k++)
            j->task[j->file[i].first_task + k].file = (uint32_t)i;
    }
    j->n[TASK_WAITING] = j->n_tasks;
    task_stems(j);
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
    w->gid = s->peer.gid;
    w->priority = m->priority;
    w->time_limit = m->time_limit;
    j->owner = s->peer.user[0] ? mem_strdup(s->peer.user) : mem_printf("uid %u", s->peer.uid);
    j->key = m->key && m->key[0] ? mem_strdup(m->key) : NULL;
    j->attempts = m->attempts ? m->attempts : s->d->conf->limits.attempts;
    j->submitted = clock_wall_ns();
    j->begin = m->has_begin ? m->begin : 0;
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
        j->work.paused = j->begin > clock_wall_ns();
        flow_kick(j->work.flow);
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

    if (j == NULL && submit_check(s->d, x, &e) < 0) {
        session_error(s, id, &e, NULL);
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

/* ---- cancelling ---------------------------------------------------------------------------- */

static void cancelled_then(struct job *j, int rc, const struct err *e, void *arg)
{
    struct session_ref *ref = arg;
    struct session *s = session_find(*ref);
    Sluice__Jobs m = SLUICE__JOBS__INIT;

    if (s && rc < 0) {
        session_error(s, ref->id, e, "StateNotWritable");
    } else if (s) {
        job_fill(s->d, true, j->work.id, &m.jobs, &m.n_jobs);
        session_answer(s, ref->id, &m.base);
        job_fill_free(m.jobs, m.n_jobs);
    }
    free(ref);
}

void job_cancel(struct session *s, uint32_t id, const void *m)
{
    const Sluice__CancelJob *x = m;
    struct job *j = job_find(s->d->jobs, x->id);
    char who[96];
    struct err e;

    if (j == NULL)
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, x->id);
    else if (j->ended)
        err_set(&e, ERR_STATE, "job %" PRIu64 " is over: %s", x->id, job_state_name[j->state]);
    else if (j->work.uid != s->peer.uid && s->right < RIGHT_EXPERT)
        err_set(&e, ERR_PERMISSION, "job %" PRIu64 " is of %s; others' jobs are for experts", x->id, j->owner);
    else {
        struct session_ref *ref = mem_zalloc(sizeof(*ref));
        *ref = session_refer(s, id);
        j->cancelling = true;
        free(j->why);
        j->why = x->reason && x->reason[0] ? mem_strdup(x->reason) : NULL;
        task_cancel_all(j, "Cancelled");
        job_put(j, CHANGE_KEEP, event_create(NULL, session_author(s, who), "job cancel", NULL, j->work.name, x->reason), NULL, cancelled_then, ref);
        job_progress(j);
        return;
    }
    session_error(s, id, &e, NULL);
}

/* ---- what people see ----------------------------------------------------------------------- */

static const char *why_of(const struct job *j)
{
    if (j->why)
        return j->why;
    if (j->ended || j->n[TASK_WAITING] == 0)
        return NULL;
    if (j->begin > clock_wall_ns())
        return "waits for its begin";
    return j->work.why;
}

static Sluice__Job *job_message(const struct job *j)
{
    const struct work *w = &j->work;
    Sluice__Job *m = mem_zalloc(sizeof(*m));

    sluice__job__init(m);
    m->has_id = m->has_state = m->has_priority = m->has_tasks = m->has_waiting = m->has_running = m->has_done = m->has_failed = m->has_skipped = true;
    m->has_cancelled = m->has_submitted = m->has_retried = m->has_skipped_files = m->has_attempts = true;
    m->id = w->id;
    m->name = w->name;
    m->owner = j->owner;
    m->state = j->state;
    m->priority = w->priority;
    m->tasks = j->n_tasks;
    m->waiting = j->n[TASK_WAITING];
    m->running = j->n[TASK_RUNNING];
    m->done = j->n[TASK_DONE];
    m->failed = j->n[TASK_FAILED];
    m->skipped = m->skipped_files = j->skipped_files;
    m->cancelled = j->n[TASK_CANCELLED];
    m->submitted = j->submitted;
    m->has_ended = j->ended != 0;
    m->ended = j->ended;
    m->workflow = w->workflow;
    m->output = w->output;
    m->why = (char *)why_of(j);
    m->retried = w->retried;
    m->attempts = j->attempts;
    m->backends = w->backends;
    for (const struct tally *t = w->failures; t; t = t->next) {
        m->failures = mem_grow(m->failures, m->n_failures + 1, sizeof(struct Sluice__Counter *));
        Sluice__Counter *c = m->failures[m->n_failures++] = mem_zalloc(sizeof(*c));
        sluice__counter__init(c);
        c->name = (char *)t->word;
        c->has_value = true;
        c->value = t->n;
    }
    return m;
}

static void fill_add(const struct job *j, uint64_t id, Sluice__Job ***jobs, size_t *n)
{
    if ((id != 0 && j->work.id != id) || !j->stored)
        return;
    *jobs = mem_grow(*jobs, *n + 1, sizeof(struct Sluice__Job *));
    (*jobs)[(*n)++] = job_message(j);
}

static int compare_jobs(const void *a, const void *b)
{
    uint64_t x = (*(Sluice__Job *const *)a)->id, y = (*(Sluice__Job *const *)b)->id;

    return (x > y) - (x < y);
}

void job_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Job ***jobs, size_t *n)
{
    struct job *j;

    *jobs = NULL;
    *n = 0;
    if (d->jobs == NULL)
        return;
    TAILQ_FOREACH(j, &d->jobs->open, entry)
        fill_add(j, id, jobs, n);
    if (all || id != 0) {
        TAILQ_FOREACH(j, &d->jobs->over, entry)
            fill_add(j, id, jobs, n);
    }
    if (*n > 1)
        qsort(*jobs, *n, sizeof(struct Sluice__Job *), compare_jobs);
}

void job_fill_free(Sluice__Job **jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < jobs[i]->n_failures; k++)
            free(jobs[i]->failures[k]);
        free(jobs[i]->failures);
        free(jobs[i]);
    }
    free(jobs);
}

static bool is_asked(const Sluice__GetJobs *x, const Sluice__Job *m, const char *me)
{
    bool state = x->n_states == 0;

    for (size_t i = 0; i < x->n_states; i++)
        state = state || x->states[i] == m->state;
    return state && (!x->mine || str_equal(m->owner, me));
}

void job_list(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetJobs *x = m;
    Sluice__Jobs answer = SLUICE__JOBS__INIT;
    Sluice__Job **jobs;
    size_t n;
    struct err e;

    job_fill(s->d, x->all || x->n_states > 0, x->has_id ? x->id : 0, &jobs, &n);
    if (x->has_id && x->id && n == 0) {
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, x->id);
        session_error(s, id, &e, NULL);
        job_fill_free(jobs, n);
        return;
    }
    answer.jobs = mem_array(n + 1, sizeof(struct Sluice__Job *));
    for (size_t i = 0; i < n; i++) {
        if (is_asked(x, jobs[i], s->peer.user))
            answer.jobs[answer.n_jobs++] = jobs[i];
    }
    answer.has_seq = true;
    answer.seq = history_seq(s->d->history);
    session_answer(s, id, &answer.base);
    free(answer.jobs);
    job_fill_free(jobs, n);
}

void job_each_check(struct jobs *jobs, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct job *j;
    struct err e;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        uint64_t n[TASK_STATES] = { 0 }, given = 0;
        for (uint64_t i = 0; i < j->n_tasks; i++)
            n[j->task[i].state]++;
        for (struct tf *t = j->work.tfs; t; t = t->hh.next)
            given += t->charge != NULL;
        bool ok = memcmp(n, j->n, sizeof(n)) == 0 && given == n[TASK_RUNNING];
        err_set(&e, ERR_NONE, "job %" PRIu64 ": tasks %" PRIu64 " = waiting %" PRIu64 " + running %" PRIu64 " + done %" PRIu64 " + failed %" PRIu64
                " + cancelled %" PRIu64 " (counted); %" PRIu64 " given out", j->work.id, j->n_tasks, n[TASK_WAITING], n[TASK_RUNNING], n[TASK_DONE],
                n[TASK_FAILED], n[TASK_CANCELLED], given);
        line(arg, "conservation", ok, e.text);
    }
}

/* ---- beginning and end --------------------------------------------------------------------- */

struct loading { struct jobs *jobs; struct err *e; };

static Sluice__JobState state_parse(const char *word)
{
    for (int i = 0; i < 7; i++) {
        if (word && strcmp(word, job_state_name[i]) == 0)
            return (Sluice__JobState)i;
    }
    return SLUICE__JOB_STATE__JOB_FAILED;
}

static void load_classes(struct job *j, const char *classes)
{
    char *copy = mem_strdup(classes ? classes : ""), *save = NULL;

    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save))
        j->work.classes |= flow_class_bit(j->work.flow, word);
    free(copy);
    j->classes = mem_strdup(classes ? classes : "");
}

static int load_job(void *arg, const struct row_job *row)
{
    struct loading *l = arg;
    struct job *j = job_create(l->jobs, row->id);
    struct work *w = &j->work;

    w->name = mem_strdup(row->name);
    w->workflow = mem_strdup(row->workflow);
    w->backends = mem_strdup(row->backends ? row->backends : "");
    w->options = mem_strdup(row->options ? row->options : "");
    w->output = mem_strdup(row->output ? row->output : "");
    w->uid = row->uid;
    w->gid = row->gid;
    w->priority = row->priority;
    w->time_limit = row->time_limit;
    w->retried = row->retried;
    j->owner = mem_strdup(row->owner);
    j->key = mem_strdup(row->key);
    j->why = mem_strdup(row->text);
    j->state = state_parse(row->state);
    j->attempts = row->attempts;
    j->n_tasks = row->tasks;
    j->submitted = row->submitted;
    j->begin = row->begin;
    j->ended = row->ended;
    j->stored = true;
    load_classes(j, row->classes);
    j->n[TASK_DONE] = row->done;
    j->n[TASK_FAILED] = row->failed;
    j->n[TASK_CANCELLED] = row->cancelled;
    j->skipped_files = row->skipped;
    if (row->ended) {
        j->stored_over = true;
        TAILQ_REMOVE(&w->flow->works, w, entry);
        TAILQ_REMOVE(&l->jobs->open, j, entry);
        job_retire(j);
    }
    return 0;
}

static int load_details(struct jobs *jobs, struct db *db, struct err *e)
{
    struct job *j;
    unsigned n = 0;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (task_load(j, db, e) < 0)
            return -1;
        j->cancelling = j->n[TASK_CANCELLED] > 0;        /* its cancellation was stored with these */
        if (j->cancelling)
            task_cancel_all(j, "Cancelled");
        j->work.paused = j->begin > clock_wall_ns();
        log_info("job %" PRIu64 ": goes on: %" PRIu64 " tasks wait, %" PRIu64 " were at work, %" PRIu64 " done", j->work.id, j->n[TASK_WAITING],
                 j->n[TASK_RUNNING], j->n[TASK_DONE]);
    }
    TAILQ_FOREACH(j, &jobs->over, entry) {
        if (n++ < JOBS_DETAILED && task_load(j, db, e) < 0)
            return -1;
    }
    return 0;
}

struct jobs *jobs_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct jobs *jobs = mem_zalloc(sizeof(*jobs));
    struct loading l = { .jobs = jobs, .e = e };
    struct row_ids ids;

    jobs->d = d;
    jobs->flow = flow_share(d->flow);
    TAILQ_INIT(&jobs->open);
    TAILQ_INIT(&jobs->over);
    if (db && (rows_load_ids(db, &ids, e) < 0 || rows_load_jobs(db, false, load_job, &l, e) < 0 || load_details(jobs, db, e) < 0)) {
        jobs_destroy(jobs);
        return NULL;
    }
    if (db)
        jobs->last_id = ids.job;
    jobs->crashes = crashes_create(d, db, e);
    if (jobs->crashes == NULL) {
        jobs_destroy(jobs);
        return NULL;
    }
    return jobs;
}

void jobs_destroy(struct jobs *jobs)
{
    struct job *j;

    if (jobs == NULL)
        return;
    struct record *rec, *next;
    HASH_ITER(hh, jobs->flow->records, rec, next) {
        if (rec->key.is_job) {
            job_of(rec->work)->in_progress = true;       /* no end any more */
            record_free(rec);
        }
    }
    while ((j = TAILQ_FIRST(&jobs->open))) {
        TAILQ_REMOVE(&jobs->open, j, entry);
        TAILQ_REMOVE(&jobs->flow->works, &j->work, entry);
        job_destroy(j);
    }
    while ((j = TAILQ_FIRST(&jobs->over))) {
        TAILQ_REMOVE(&jobs->over, j, entry);
        job_destroy(j);
    }
    crashes_destroy(jobs->crashes);
    flow_unshare(jobs->flow);
    free(jobs);
}
