/* jobcontrol.c - what people do with a job that is there
 *
 * From: CancelJob.  To: the job (job.c, task.c), the writer, the asker.
 * Always: the answer goes out after the commit.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "events.h"
#include "mem.h"

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
