/* job.c - a job's life: waiting, running, over; its row in the database
 *
 * From: jobsubmit.c and jobload.c (a new one), jobcontrol.c, settled tasks (task.c).  To: the writer (a row a task from its first attempt on, with the job's
 * totals), who waits for its end (wait.c).
 * Always: tasks = waiting + running + done + failed + cancelled; nobody hears of a job, a cancellation or an end before it is on disk.
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
#include "ran.h"
#include "rows.h"
#include "wait.h"

#define PUBLISH_LIMIT 10.0       /* s that the results of a job's last tasks may take to be published */

const char *const job_state_name[7] = { "held", "waiting", "running", "paused", "done", "failed", "cancelled" };

/* ---- storing ------------------------------------------------------------------------------- */

int job_change_write(struct db *db, void *arg, struct err *e)
{
    struct job_change *c = arg;

    int rc = c->more ? c->more(db, c->arg, e) : 0;

    c->nothing = rc > 0;
    if (rc != 0)
        return rc < 0 ? -1 : 0;
    if (rows_put_job(db, c->row, e) < 0)
        return -1;
    return c->ev ? event_write(c->ev, db, e) : 0;
}

void job_change_end(void *arg, int rc, const struct err *e)
{
    struct job_change *c = arg;
    struct job *j = c->job;

    j->changes--;
    if (rc == 0 && c->ev && !c->nothing) {
        history_add(j->jobs->d->history, c->ev);
        c->ev = NULL;
    }
    if (c->then)
        c->then(j, rc, e, c->arg);
    event_destroy(c->ev);
    free(c->row);
    free(c->text);
    free(c->ran);
    free(c->after);
    free(c->failures);
    free(c);
}

struct job_change *job_change_create(struct job *j)
{
    struct job_change *c = mem_zalloc(sizeof(*c));
    struct work *w = &j->work;

    *c = (struct job_change){ .job = j, .text = mem_strdup(j->why), .ran = ran_totals_text(j->ran), .after = after_text(&j->after),
                              .failures = w->failures ? tally_text(w->failures) : NULL };
    c->row = mem_zalloc(sizeof(*c->row));
    *c->row = (struct row_job){
        .id = w->id, .name = w->name, .owner = j->owner, .key = j->key, .state = job_state_name[j->state], .workflow = w->workflow, .backends = w->backends,
        .options = w->options, .output = w->output, .text = c->text, .classes = j->classes, .uid = w->uid, .gid = w->gid, .priority = w->priority,
        .attempts = j->attempts, .time_limit = w->time_limit, .tasks = j->n_tasks, .done = j->n[TASK_DONE], .failed = j->n[TASK_FAILED],
        .skipped = j->skipped_files, .cancelled = j->n[TASK_CANCELLED], .retried = w->retried, .submitted = j->submitted, .begin = j->begin, .ended = j->ended,
        .stages = c->ran, .after = c->after, .reruns = j->reruns, .begun = j->begun, .pruned = j->pruned, .unpublished = j->ended && (w->records > 0 || j->loading),
        .nice = w->nice.own, .nice_min = w->nice.min, .preempted = w->preempted, .straggler = j->straggler, .nice_max = w->nice.max, .failures = c->failures, .folder = j->folder, .unswept = j->unswept };
    j->changes++;
    j->row_due = false;
    return c;
}

void job_put(struct job *j, int kind, struct event *ev, int (*more)(struct db *db, void *arg, struct err *e),
             void (*then)(struct job *j, int rc, const struct err *e, void *arg), void *arg)
{
    task_rows_now(j->jobs->rows);                /* what was settled before stands before it on the disk */
    struct job_change *c = job_change_create(j);
    c->ev = ev;
    c->more = more;
    c->then = then;
    c->arg = arg;
    writer_put(j->jobs->d->writer, (enum change_kind)kind, job_change_write, job_change_end, c);
}

/* ---- words ---- */

enum { WORDS_MAX = 100000 };
struct word { UT_hash_handle hh; char text[]; };

const char *jobs_word(struct jobs *jobs, const char *text)
{
    size_t n = text ? strnlen(text, 127) : 0;
    struct word *w;

    if (text == NULL)
        return NULL;
    HASH_FIND(hh, jobs->words, text, n, w);
    if (w)
        return w->text;
    if (HASH_COUNT(jobs->words) >= WORDS_MAX)    /* names of nodes and codes are few; whoever makes them up gets no memory for it */
        return "Unknown";
    w = mem_zalloc(sizeof(*w) + n + 1);
    memcpy(w->text, text, n);
    HASH_ADD_KEYPTR(hh, jobs->words, w->text, n, w);
    return w->text;
}

void words_free(struct word **words)
{
    struct word *w, *next;

    HASH_ITER(hh, *words, w, next) {
        HASH_DEL(*words, w);
        free(w);
    }
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

struct job_file *job_file_of(const struct job *j, uint64_t number)
{
    size_t low = 0, high = j->n_files;           /* the last one that begins at number or before: files without TFs stand before it */

    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (j->file[mid].first_task <= number)
            low = mid;
        else
            high = mid;
    }
    return &j->file[low];
}

void job_destroy(struct job *j)
{
    struct tf *t, *next;

    HASH_ITER(hh, j->work.tfs, t, next)
        tf_free(t);
    job_free_details(j);
    free(j->owner);
    free(j->key);
    free(j->classes);
    free(j->why);
    free(j->full);
    free(j->folder);
    free(j->to_sweep);
    free(j->unread);
    ran_free(j->ran);
    submit_free(j->submit);
    work_free(&j->work);
    free(j);
}

void job_retire(struct job *j)
{
    struct jobs *jobs = j->jobs;
    unsigned n = 0;
    uint64_t tasks = 0;

    TAILQ_INSERT_HEAD(&jobs->over, j, entry);
    jobs->n_over++;
    struct job *x = TAILQ_FIRST(&jobs->over), *next;
    for (; x; x = next) {
        next = TAILQ_NEXT(x, entry);
        n++;
        tasks += x->task ? x->n_tasks : 0;
        if ((n > JOBS_DETAILED || (n > 1 && tasks > TASKS_DETAILED)) && x->task && x->changes == 0 && x->work.records == 0)
            job_free_details(x);
        if (n > JOBS_KEPT && x->pruned == JOB_PRUNED && x->changes == 0 && x->work.records == 0) {
            TAILQ_REMOVE(&jobs->over, x, entry);
            jobs->n_over--;
            job_destroy(x);
        }
    }
}

struct job *job_create(struct jobs *jobs, uint64_t id)
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

void job_discard(struct job *j)
{
    TAILQ_REMOVE(&j->work.flow->works, &j->work, entry);
    TAILQ_REMOVE(&j->jobs->open, j, entry);
    job_destroy(j);
}

void job_reopen(struct job *j)
{
    TAILQ_REMOVE(&j->jobs->over, j, entry);
    j->jobs->n_over--;
    TAILQ_INSERT_TAIL(&j->jobs->open, j, entry);
    TAILQ_INSERT_TAIL(&j->work.flow->works, &j->work, entry);
    j->work.paused = true;
    j->ended = 0;
    j->stored_over = j->cancelling = false;
    j->settled_since = 0;
    j->pace.n = 0;
}

static void over_then(struct job *j, int rc, const struct err *e, void *arg)
{
    (void)arg;
    if (rc < 0)
        log_err("job %" PRIu64 ": its end was not stored: %s", j->work.id, e ? e->text : "?");
    j->stored_over = true;
    wait_job_over(j);
}

Sluice__JobState job_state_over(const struct job *j)
{
    if (j->cancelling && j->n[TASK_CANCELLED] > 0)       /* else all of it was done or had failed before */
        return SLUICE__JOB_STATE__JOB_CANCELLED;
    return j->n[TASK_FAILED] && !j->n[TASK_DONE] ? SLUICE__JOB_STATE__JOB_FAILED : SLUICE__JOB_STATE__JOB_DONE;
}

static void job_over(struct job *j)
{
    struct work *w = &j->work;

    j->state = job_state_over(j);
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

Sluice__JobState job_state_now(const struct job *j)
{
    if (j->held)
        return SLUICE__JOB_STATE__HELD;
    if (j->full)
        return SLUICE__JOB_STATE__PAUSED;
    return j->n[TASK_RUNNING] + j->n[TASK_DONE] + j->n[TASK_FAILED] > 0 ? SLUICE__JOB_STATE__JOB_RUNNING : SLUICE__JOB_STATE__WAITING;
}

void job_progress(struct job *j)
{
    if (j->ended || j->loading || j->in_progress || j->jobs->d->stopping)
        return;
    j->in_progress = true;
    j->state = job_state_now(j);
    if (is_over(j))
        job_over(j);
    j->in_progress = false;
}

void job_turn(struct jobs *jobs)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->stored && !j->cancelling && !j->loading)
            task_feed(j);
    }
}

void job_tick(struct jobs *jobs)
{
    struct job *j, *next;

    for (j = TAILQ_FIRST(&jobs->open); j; j = next) {
        next = TAILQ_NEXT(j, entry);
        if (j->loading)
            continue;
        if (j->work.paused)
            job_gate(j);
        straggler_look(j);
        pace_look(j, flow_now(jobs->flow));
        job_progress(j);
    }
    sweep_tick(jobs);
    prune_tick(jobs);
    read_tick(jobs);
    stage_tick(jobs);
    junk_tick(jobs);
}

/* ---- checking -------------------------------------------------------------------------------- */

void job_each_check(struct jobs *jobs, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct job *j;
    struct err e;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        uint64_t n[TASK_STATES] = { 0 }, given = 0;
        if (j->loading) {
            err_set(&e, ERR_NONE, "job %" PRIu64 ": its tasks are being read", j->work.id);
            line(arg, "conservation", true, e.text);
            continue;
        }
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
