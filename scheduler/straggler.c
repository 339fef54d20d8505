/* straggler.c - the last TFs of a job: what takes many times as long as the others starts a second time
 *
 * From: job.c (each tick, for jobs that asked for it).  To: assign.c (a second try on another node); settle.c takes whoever is done first and gives the other up.
 * Always: a TF has at most two tries at a time, on two nodes, each under a fence of its own; one result is accepted.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "counters.h"
#include "log.h"
#include "mem.h"

enum { ENOUGH = 5 };             /* TFs done before anything is unusual */
#define LEAST 0.5                /* s: what is over sooner is not worth a second try */

void straggler_sample(struct job *j, double seconds)
{
    struct spans *s = &j->spans;

    s->seconds[s->n++ % ARRAY_LEN(s->seconds)] = seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* From given out to done. */
static double median(const struct job *j)
{
    double copy[ARRAY_LEN(j->spans.seconds)];
    unsigned n = j->spans.n < ARRAY_LEN(copy) ? j->spans.n : ARRAY_LEN(copy);

    memcpy(copy, j->spans.seconds, n * sizeof(copy[0]));
    qsort(copy, n, sizeof(copy[0]), compare);
    return copy[n / 2];
}

static void second_try(struct job *j, struct tf *t, double s, double usual)
{
    struct fnode *n = assign_rival(t);
    char *stem;

    if (n == NULL)
        return;                                  /* no other node has room: asked again with the next tick */
    log_info("job %" PRIu64 " TF %" PRIu64 ": %.3g s on %s, where %.3g s are usual: a second try on %s", j->work.id, t->id, s, j->task[t->id].node, usual,
             n->node->name);
    counters_add(j->jobs->d->counters, "stragglers", 1);
    j->task[t->id].attempt = t->last_attempt;
    stem = job_ops.stem(t);
    task_rows_put(j, &(struct row_task){ .job = j->work.id, .number = t->id, .state = "running", .node = n->node->name, .stem = stem, .epoch = j->jobs->d->epoch,
                                         .attempt = t->last_attempt, .time = clock_wall_ns(), .tries = t->tries, .deaths = t->deaths }, NULL);
    free(stem);
}

void straggler_look(struct job *j)
{
    double now = flow_now(j->work.flow);

    if (j->straggler <= 0 || j->spans.n < ENOUGH || j->n[TASK_WAITING] > 0 || j->n[TASK_RUNNING] == 0 || j->work.paused || j->cancelling)
        return;
    double usual = median(j), limit = j->straggler * usual > LEAST ? j->straggler * usual : LEAST;
    for (struct tf *t = j->work.tfs; t; t = t->hh.next) {
        if (t->charge && t->rival == NULL && !t->cancelled && now - t->given > limit)
            second_try(j, t, now - t->given, usual);
    }
}
