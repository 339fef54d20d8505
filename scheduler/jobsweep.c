/* jobsweep.c - what tries that never came to an end left in the output folder of a job that is over
 *
 * From: settle.c (a worker went and had something of it), jobread.c (what was then, before our start, nobody knows).  To: a worker (outcheck.c), who removes it.
 * Always: nothing is removed while a try of the job is on or a result of it waits to be published, and no try begins while it is done. That there is
 * something to do stands in the job's row, so that a restart forgets nothing.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include "log.h"
#include "mem.h"

#define SWEEP_STEP  0.5          /* s between looks */
#define SWEEP_AGAIN 5.0          /* s after one that could not be done */

struct sweeping { struct jobs *jobs; uint64_t id; };

void job_may_have_left(struct jobs *jobs, uint64_t id)
{
    struct job *j = jobs ? job_find(jobs, id) : NULL;

    if (j == NULL || j->unswept || j->work.output[0] == '\0')
        return;
    j->unswept = jobs->unswept = true;
    if (j->ended)
        job_put(j, CHANGE_KEEP, NULL, NULL, NULL, NULL);         /* else with its next try's end */
}

static bool is_anywhere(const struct job *j)
{
    for (const struct charge *c = j->work.flow->ledger.all; c; c = c->hh.next) {
        if (c->key.is_job && c->key.work == j->work.id)
            return true;
    }
    return false;
}

static void swept_then(void *arg, int rc, const char *real, const struct err *e)
{
    struct sweeping *x = arg;
    struct jobs *jobs = x->jobs;
    struct job *j = job_find(jobs, x->id);

    (void)real;
    free(x);
    if (j == NULL)
        return;
    j->sweeping = false;
    if (rc == 0) {
        j->unswept = false;
        job_put(j, CHANGE_KEEP, NULL, NULL, NULL, NULL);
    } else {
        log_debug("job %" PRIu64 ": what it left half is not removed yet: %s", j->work.id, e ? e->text : "?");
        j->sweep_at = flow_now(jobs->flow) + SWEEP_AGAIN;
    }
    job_gate(j);
}

static void sweep(struct jobs *jobs, struct job *j)
{
    struct sweeping *x = mem_zalloc(sizeof(*x));

    *x = (struct sweeping){ jobs, j->work.id };
    j->sweeping = true;
    outcheck(jobs->flow, POOL_ASYNC, &(struct outcheck_ask){ .output = j->work.output, .uid = j->work.uid, .gid = j->work.gid, .sweep = j->work.id }, swept_then, x);
}

void sweep_tick(struct jobs *jobs)
{
    double now = flow_now(jobs->flow);
    struct job *j, *next;

    if (!jobs->unswept || now < jobs->next_sweep || jobs->d->stopping)
        return;
    jobs->next_sweep = now + SWEEP_STEP;
    jobs->unswept = false;
    for (j = TAILQ_FIRST(&jobs->over); j; j = next) {
        next = TAILQ_NEXT(j, entry);
        if (!j->unswept)
            continue;
        jobs->unswept = true;
        if (!j->sweeping && !j->loading && j->stored_over && j->work.records == 0 && now >= j->sweep_at && !is_anywhere(j))
            sweep(jobs, j);
    }
    TAILQ_FOREACH(j, &jobs->open, entry)
        jobs->unswept |= j->unswept;
}
