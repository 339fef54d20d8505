/* jobcontrol.c - what people do with a job that is there: cancel, hold, release, run again what failed, or all
 *
 * From: CancelJob, HoldJob, ReleaseJob, RerunJob.  To: the job (job.c, task.c), the writer, the asker.
 * Always: the answer goes out after the commit. What stops a job acts at once, what lets it go on acts after the commit.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "events.h"
#include "log.h"
#include "mem.h"
#include "ran.h"
#include "rows.h"

enum { ASK_AGAIN_MS = 300 };

/* The job that s may change, which is over or not, as wanted. NULL: the asker was told why not. */
static struct job *job_asked(struct session *s, uint32_t id, uint64_t number, bool over)
{
    struct job *j = job_find(s->d->jobs, number);
    struct err e;

    if (j && job_is_unread(s, id, j))
        return NULL;
    if (j == NULL)
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, number);
    else if (!over && j->ended)
        err_set(&e, ERR_STATE, "job %" PRIu64 " is over: %s", number, job_state_name[j->state]);
    else if (over && !j->stored_over)
        err_set(&e, ERR_STATE, "job %" PRIu64 " is not over: %s", number, job_state_name[j->state]);
    else if (j->work.uid != s->peer.uid && s->right < RIGHT_EXPERT)
        err_set(&e, ERR_PERMISSION, "job %" PRIu64 " is of %s; others' jobs are for experts", number, j->owner);
    else
        return j;
    session_error(s, id, &e, NULL);
    return NULL;
}

static void say_why(struct job *j, const char *reason)
{
    free(j->why);
    j->why = reason && reason[0] ? mem_strdup(reason) : NULL;
}

struct change_ask { struct session_ref ref; uint64_t job; bool all; };

/* The answer to each of them: the job as it is now. */
static void changed_then(struct job *j, int rc, const struct err *e, void *arg)
{
    struct change_ask *ask = arg;
    struct session *s = session_find(ask->ref);
    Sluice__Jobs m = SLUICE__JOBS__INIT;

    if (s && rc < 0) {
        session_error(s, ask->ref.id, e, "StateNotWritable");
    } else if (s) {
        job_fill(s->d, true, j->work.id, &m.jobs, &m.n_jobs);
        session_answer(s, ask->ref.id, &m.base);
        job_fill_free(m.jobs, m.n_jobs);
    }
    free(ask);
}

/* Stores the job as it is now, with a line of history unless nothing changes; then is called after the commit. */
static void change_put(struct session *s, uint32_t id, struct job *j, enum change_kind kind, const char *what, const char *reason,
                       int (*more)(struct db *, void *, struct err *), void (*then)(struct job *, int, const struct err *, void *))
{
    struct change_ask *ask = mem_zalloc(sizeof(*ask));
    char who[96];

    *ask = (struct change_ask){ session_refer(s, id), j->work.id, false };
    job_put(j, kind, what ? event_create(NULL, session_author(s, who), what, NULL, j->work.name, reason) : NULL, more, then, ask);
}

void job_cancel(struct session *s, uint32_t id, const void *m)
{
    const Sluice__CancelJob *x = m;
    struct job *j = job_asked(s, id, x->id, false);

    if (j == NULL)
        return;
    if (j->n[TASK_WAITING] + j->n[TASK_RUNNING] == 0 && !j->cancelling) {
        struct err e;
        err_set(&e, ERR_STATE, "job %" PRIu64 " is over: %s; its results are being published, there is nothing to cancel", x->id,
                job_state_name[job_state_over(j)]);
        session_error(s, id, &e, NULL);
        return;
    }
    j->cancelling = true;
    j->held = false;
    say_why(j, x->reason);
    task_cancel_all(j, "Cancelled");
    j->state = job_state_now(j);
    change_put(s, id, j, CHANGE_KEEP, "job cancel", x->reason, NULL, changed_then);
    job_progress(j);
}

/* What a node has already goes on to its end. */
void job_hold(struct session *s, uint32_t id, const void *m)
{
    const Sluice__HoldJob *x = m;
    struct job *j = job_asked(s, id, x->id, false);
    bool changes = j && !j->held;
    struct err e;

    if (j == NULL)
        return;
    if (j->cancelling) {
        err_set(&e, ERR_STATE, "job %" PRIu64 " is being cancelled", x->id);
        session_error(s, id, &e, NULL);
        return;
    }
    j->held = true;
    if (changes || (x->reason && x->reason[0]))
        say_why(j, x->reason);
    j->state = job_state_now(j);
    job_gate(j);
    change_put(s, id, j, CHANGE_KEEP, changes ? "job hold" : NULL, x->reason, NULL, changed_then);
}

static void released_then(struct job *j, int rc, const struct err *e, void *arg)
{
    j->releases--;
    if (rc < 0 && !j->ended && !j->cancelling) {
        log_err("job %" PRIu64 ": its release was not stored, it stays held: %s", j->work.id, e ? e->text : "?");
        j->held = true;
    }
    job_gate(j);
    job_progress(j);
    changed_then(j, rc, e, arg);
}

void job_release(struct session *s, uint32_t id, const void *m)
{
    const Sluice__ReleaseJob *x = m;
    struct job *j = job_asked(s, id, x->id, false);

    if (j == NULL)
        return;
    bool changes = j->held;
    j->held = false;
    if (changes)
        say_why(j, NULL);
    j->state = job_state_now(j);
    j->releases++;
    change_put(s, id, j, CHANGE_NEW, changes ? "job release" : NULL, NULL, NULL, released_then);
}

/* In the writer's thread. */
static int again_write(struct db *db, void *arg, struct err *e)
{
    const struct change_ask *ask = arg;

    return ask->all ? rows_put_tasks_anew(db, ask->job, e) : rows_put_tasks_again(db, ask->job, e);
}

static void again_then(struct job *j, int rc, const struct err *e, void *arg)
{
    j->releases--;
    job_gate(j);
    changed_then(j, rc, e, arg);
}

static int rerun_check(const struct job *j, bool all, struct err *e)
{
    if (!j->stored_over)
        return err_set(e, ERR_STATE, "job %" PRIu64 " is not over: %s", j->work.id, job_state_name[j->state]);
    if (j->n_tasks == 0 || (!all && j->n[TASK_FAILED] + j->n[TASK_CANCELLED] == 0))
        return err_set(e, ERR_STATE, "job %" PRIu64 ": none of its TFs failed or was cancelled", j->work.id);
    if (all && j->work.records > 0)
        return err_set(e, ERR_STATE, "job %" PRIu64 ": %u of its results are accepted, but wait for their node to be published", j->work.id, j->work.records);
    if (!writer_accepts_new(j->jobs->d->writer))
        return err_set(e, ERR_STATE, "the state is not writable now: job %" PRIu64 " stays as it is", j->work.id);
    return 0;
}

struct rerun { struct sluiced *d; struct session_ref ref; uint64_t id; bool all; struct names_seen seen; };

static void rerun_free(struct rerun *r)
{
    free(r->seen.id);
    free(r);
}

static void rerun_names(struct rerun *r, struct job *j);

/* The job is open again as soon as it is asked for, and gives out nothing before that is on disk. */
static void reopen(struct rerun *r, struct session *s, struct job *j)
{
    struct change_ask *ask = mem_zalloc(sizeof(*ask));
    char who[96];

    *ask = (struct change_ask){ r->ref, j->work.id, r->all };
    job_reopen(j);
    j->reruns += r->all;
    if (r->all) {
        ran_free(j->ran);
        j->ran = NULL;
    }
    task_again_all(j, r->all);
    say_why(j, NULL);
    j->state = job_state_now(j);
    j->releases++;
    job_put(j, CHANGE_KEEP, event_create(NULL, session_author(s, who), "job rerun", NULL, j->work.name, r->all ? "all" : "failed"), again_write, again_then, ask);
}

static void rerun_now(void *arg, struct job *j, const struct err *e)
{
    struct rerun *r = arg;
    struct session *s = session_find(r->ref);
    struct err why;

    if (s && j == NULL) {
        session_error(s, r->ref.id, e, NULL);
    } else if (s && rerun_check(j, r->all, &why) < 0) {
        session_error(s, r->ref.id, &why, NULL);
    } else if (s && !job_names_still(j, j->reruns + r->all, &r->seen)) {
        rerun_names(r, j);
        return;
    } else if (s) {
        reopen(r, s, j);
    }
    rerun_free(r);
}

/* Its names were held against those of others that are on. */
static void rerun_named(void *arg, int rc, const struct err *e, const struct names_seen *seen)
{
    struct rerun *r = arg;
    struct session *s = session_find(r->ref);

    if (rc < 0 || s == NULL) {
        if (s)
            session_error(s, r->ref.id, e, "OutputExists");
        rerun_free(r);
        return;
    }
    for (size_t i = 0; i < seen->n; i++) {
        r->seen.id = mem_grow(r->seen.id, r->seen.n + 1, sizeof(*r->seen.id));
        r->seen.id[r->seen.n++] = seen->id[i];
    }
    job_detail(r->d, r->id, rerun_now, r);
}

static void rerun_names(struct rerun *r, struct job *j)
{
    struct session *s = session_find(r->ref);
    struct err e;

    if (job_names_rerun(j, j->reruns + r->all, rerun_named, r, &e) == 0)
        return;
    if (s)
        session_busy(s, r->ref.id, e.text, ASK_AGAIN_MS);
    rerun_free(r);
}

void job_rerun(struct session *s, uint32_t id, const void *m)
{
    const Sluice__RerunJob *x = m;
    struct job *j = job_asked(s, id, x->id, true);
    struct err e;

    if (j == NULL)
        return;
    if (rerun_check(j, x->all, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    struct rerun *r = mem_zalloc(sizeof(*r));
    *r = (struct rerun){ .d = s->d, .ref = session_refer(s, id), .id = x->id, .all = x->all };
    rerun_names(r, j);
}
