/* jobsweep.c - what tries that never came to an end left in the output folder of a job that is over
 *
 * From: settle.c (a worker went and had something of it), jobread.c (what was then, before our start, nobody knows).  To: a worker (outcheck.c), who removes it.
 * One does it for all. When that one says that the folder may lie on a disk of its own, or finds none, each other node is asked, too, one after the other, and
 * one that is out of contact when it comes back.
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
#define SWEEP_AGAIN 5.0          /* s after one that could not be done, then twice as long each time */
#define SWEEP_MOST  300.0

struct sweeping { struct jobs *jobs; uint64_t id; const struct node *only; };

void job_may_have_left(struct jobs *jobs, uint64_t id)
{
    struct job *j = jobs ? job_find(jobs, id) : NULL;

    if (j == NULL || j->work.output[0] == '\0')
        return;
    j->swept_one = false;                        /* wherever it was looked already */
    if (j->unswept)
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

static void others_too(struct job *j, const struct node *by)
{
    j->n_to_sweep = 0;
    for (const struct node *n = farm_first(j->jobs->d->farm); n; n = n->hh.next) {
        if (n == by || !n->added)
            continue;
        j->to_sweep = mem_grow(j->to_sweep, j->n_to_sweep + 1, sizeof(const struct node *));
        j->to_sweep[j->n_to_sweep++] = n;
    }
}

static void swept_at(struct job *j, const struct outcheck_said *said)
{
    if (!j->swept_one && said->own_disk)
        others_too(j, said->by);
    else if (!j->swept_one)
        j->n_to_sweep = 0;
    for (size_t i = 0; i < j->n_to_sweep; i++) {
        if (j->to_sweep[i] == said->by)
            j->to_sweep[i] = j->to_sweep[--j->n_to_sweep];
    }
    j->swept_one = true;
    j->sweep_pause = 0;
}

/* The others before it, the next time. */
static void put_last(struct job *j, const struct node *n)
{
    for (size_t i = 0; i + 1 < j->n_to_sweep; i++) {
        if (j->to_sweep[i] == n) {
            j->to_sweep[i] = j->to_sweep[i + 1];
            j->to_sweep[i + 1] = n;
        }
    }
}

static void swept_then(void *arg, int rc, const struct outcheck_said *said, const struct err *e)
{
    struct sweeping *x = arg;
    struct jobs *jobs = x->jobs;
    struct job *j = job_find(jobs, x->id);

    const struct node *only = x->only;
    free(x);
    if (j == NULL)
        return;
    j->sweeping = false;
    if (rc == 0) {
        swept_at(j, said);
    } else {
        log_debug("job %" PRIu64 ": what it left half is not removed yet: %s", j->work.id, e ? e->text : "?");
        j->sweep_pause = j->sweep_pause == 0 ? SWEEP_AGAIN : 2 * j->sweep_pause < SWEEP_MOST ? 2 * j->sweep_pause : SWEEP_MOST;
        j->sweep_at = flow_now(jobs->flow) + j->sweep_pause;
        put_last(j, only);
    }
    if (j->swept_one && j->n_to_sweep == 0) {
        j->unswept = false;
        job_put(j, CHANGE_KEEP, NULL, NULL, NULL, NULL);
    }
    job_gate(j);
}

/* The next of those that are left and in contact. NULL: none is; who is retired by now never will be. */
static const struct node *next_to_sweep(struct job *j)
{
    for (size_t i = 0; i < j->n_to_sweep; i++) {
        const struct node *n = j->to_sweep[i];
        if (!n->added)
            j->to_sweep[i--] = j->to_sweep[--j->n_to_sweep];
        else if (n->session != NULL && n->contact == SLUICE__CONTACT__UP)
            return n;
    }
    return NULL;
}

static void sweep(struct jobs *jobs, struct job *j)
{
    const struct node *only = j->swept_one ? next_to_sweep(j) : NULL;

    if (j->swept_one && only == NULL) {
        if (j->n_to_sweep == 0) {
            j->unswept = false;
            job_put(j, CHANGE_KEEP, NULL, NULL, NULL, NULL);
        }
        j->sweep_at = flow_now(jobs->flow) + SWEEP_AGAIN;
        return;
    }
    struct sweeping *x = mem_zalloc(sizeof(*x));

    *x = (struct sweeping){ jobs, j->work.id, only };
    j->sweeping = true;
    outcheck(jobs->flow, POOL_ASYNC, &(struct outcheck_ask){ .output = j->work.output, .uid = j->work.uid, .gid = j->work.gid, .sweep = j->work.id, .only = only },
             swept_then, x);
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
