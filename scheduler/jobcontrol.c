/* jobcontrol.c - what people do with a job that is there: cancel, hold, release
 *
 * From: CancelJob, HoldJob, ReleaseJob.  To: the job (job.c, task.c), the writer, the asker.
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

/* The job that s may change. NULL: the asker was told why not. */
static struct job *job_asked(struct session *s, uint32_t id, uint64_t number)
{
    struct job *j = job_find(s->d->jobs, number);
    struct err e;

    if (j == NULL)
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, number);
    else if (j->ended)
        err_set(&e, ERR_STATE, "job %" PRIu64 " is over: %s", number, job_state_name[j->state]);
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

/* The answer to each of them: the job as it is now. */
static void changed_then(struct job *j, int rc, const struct err *e, void *arg)
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

/* Stores the job as it is now, with a line of history unless nothing changes; then is called after the commit. */
static void change_put(struct session *s, uint32_t id, struct job *j, enum change_kind kind, const char *what, const char *reason,
                       void (*then)(struct job *, int, const struct err *, void *))
{
    struct session_ref *ref = mem_zalloc(sizeof(*ref));
    char who[96];

    *ref = session_refer(s, id);
    job_put(j, kind, what ? event_create(NULL, session_author(s, who), what, NULL, j->work.name, reason) : NULL, NULL, then, ref);
}

void job_cancel(struct session *s, uint32_t id, const void *m)
{
    const Sluice__CancelJob *x = m;
    struct job *j = job_asked(s, id, x->id);

    if (j == NULL)
        return;
    j->cancelling = true;
    j->held = false;
    say_why(j, x->reason);
    task_cancel_all(j, "Cancelled");
    j->state = job_state_now(j);
    change_put(s, id, j, CHANGE_KEEP, "job cancel", x->reason, changed_then);
    job_progress(j);
}

/* What a node has already goes on to its end. */
void job_hold(struct session *s, uint32_t id, const void *m)
{
    const Sluice__HoldJob *x = m;
    struct job *j = job_asked(s, id, x->id);
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
    change_put(s, id, j, CHANGE_KEEP, changes ? "job hold" : NULL, x->reason, changed_then);
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
    struct job *j = job_asked(s, id, x->id);

    if (j == NULL)
        return;
    bool changes = j->held;
    j->held = false;
    if (changes)
        say_why(j, NULL);
    j->state = job_state_now(j);
    j->releases++;
    change_put(s, id, j, CHANGE_NEW, changes ? "job release" : NULL, NULL, released_then);
}
