/* slurm_undone.c - what we did in Slurm and somebody else undoes: not done again at every look, and told
 *
 * From: slurm_farm.c.  To: slurm_farm.c (when it may be asked again), people.
 * What was done stands until we ask for its opposite. When it is due again before that, somebody else has undone it: an administrator, or another sluiced that takes our nodes for its own. That
 * a restart of slurmctld lost it is not counted. What keeps work off a node is done again soon; what lets work in waits long, as whoever does it again may know why.
 */
#include "config.h"

#include "slurm_part.h"

#include <math.h>

#include "clock.h"
#include "log.h"

static const double calm_s = 300;        /* so long undisturbed, and it is forgotten */

#define ACT(a) SLUICE__SLURM_ACT__ACT_##a
static const struct {
    Sluice__SlurmAct opposite;
    unsigned often;                      /* from then on it waits, and people are told; 0: never */
    double most_s;
    const char *word;
} of[SLURM_ACTS] = {
    [ACT(DRAIN)]   = { ACT(UNDRAIN), 3, 5,  "its drain was taken back" },
    [ACT(UNDRAIN)] = { ACT(DRAIN),   2, 60, "it was drained again in our words" },
    [ACT(RESERVE)] = { ACT(RELEASE), 3, 5,  "its reservation was removed" },
    [ACT(RELEASE)] = { ACT(RESERVE), 2, 60, "its reservation was made again" },
    [ACT(UNLEASE)] = { ACT(LEASE),   2, 60, "a lease was asked for again" },
    [ACT(LEASE)]   = { ACT(UNLEASE), 0, 0,  NULL },          /* jobs are cancelled and preempted every day */
};

void slurm_was_done(struct node *n, Sluice__SlurmAct act)
{
    struct node_slurm *ns = n->slurm;

    ns->done[act].stands = of[act].often > 0;
    ns->done[act].boot = n->d->slurm->boot;
    ns->done[of[act].opposite].stands = false;
}

static bool is_contested(const struct slurm_did *d, size_t act)
{
    return of[act].often > 0 && d->undone >= of[act].often && clock_mono_s() - d->undone_at < calm_s;
}

void slurm_undone_check(struct node *n, Sluice__SlurmAct act)
{
    struct slurm_did *d = &n->slurm->done[act];
    double wait;

    if (!d->stands)
        return;
    d->stands = false;
    if (d->boot != n->d->slurm->boot)
        return;
    d->undone = clock_mono_s() - d->undone_at < calm_s ? d->undone + 1 : 1;
    d->undone_at = clock_mono_s();
    if (d->undone < of[act].often)
        return;
    wait = fmin(ldexp(1, (int)fmin(d->undone - of[act].often, 10)), of[act].most_s);
    n->slurm->tries[act].again_at = clock_mono_s() + wait;
    if (d->undone == of[act].often)
        log_warning("node %s: Slurm: %s %u times, not by us", n->name, of[act].word, d->undone);
}

const char *slurm_undone(const struct node *n, unsigned *often)
{
    for (size_t i = 0; i < SLURM_ACTS; i++) {
        if (is_contested(&n->slurm->done[i], i)) {
            *often = n->slurm->done[i].undone;
            return of[i].word;
        }
    }
    return NULL;
}
