/* jobpace.c - how fast a job goes, and how long it will take at that rate
 *
 * From: job.c (every tick).  To: joblist.c.
 * The rate is that of the last minute; of everything since the job began here when too few TFs ended in that time. Nothing is said before something was
 * settled, nor of a job that does not move: no number is better than one that is made up.
 */
#include "config.h"
#include "job.h"

#include <string.h>

#define PACE_STEP 4.0            /* s */
enum { PACE_FEW = 3 };

/* A result that could not be published waits again: then there are fewer. */
static uint64_t since(uint64_t now, uint64_t then)
{
    return now > then ? now - then : 0;
}

static uint64_t settled(const struct job *j)
{
    return j->n[TASK_DONE] + j->n[TASK_FAILED] + j->n[TASK_CANCELLED];
}

void pace_look(struct job *j, double now)
{
    struct job_pace *p = &j->pace;

    if (p->n == 0 && j->n[TASK_RUNNING] == 0)
        return;
    if (p->n == 0) {
        p->from = now;
        p->first = settled(j);
    } else if (now - p->at[p->n - 1] < PACE_STEP) {
        return;
    }
    if (p->n == PACE_LOOKS) {
        memmove(p->at, p->at + 1, (PACE_LOOKS - 1) * sizeof(p->at[0]));
        memmove(p->settled, p->settled + 1, (PACE_LOOKS - 1) * sizeof(p->settled[0]));
        p->n--;
    }
    p->at[p->n] = now;
    p->settled[p->n++] = settled(j);
}

bool pace_rate(const struct job *j, double now, double *rate)
{
    const struct job_pace *p = &j->pace;
    uint64_t done = settled(j);

    if (p->n == 0 || j->ended)
        return false;
    double span = now - p->at[0];
    uint64_t of = since(done, p->settled[0]);
    if (of < PACE_FEW) {
        span = now - p->from;
        of = since(done, p->first);
    }
    if (of == 0 || span < 1)
        return false;
    *rate = (double)of / span;
    return true;
}

bool pace_remaining(const struct job *j, double now, double *s)
{
    double rate;

    if (j->work.paused || j->n[TASK_RUNNING] == 0 || !pace_rate(j, now, &rate))
        return false;
    *s = (double)(j->n[TASK_WAITING] + j->n[TASK_RUNNING]) / rate;
    return true;
}
