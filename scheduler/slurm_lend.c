/* slurm_lend.c - nodes change hands between us and Slurm: the one who has the reservation sluice-NODE has the node
 *
 * From: move.c.  To: slurm_farm.c (what is wanted), which asks Slurm.
 * async -> online: our reservation stands, the jobs have ended or were requeued, Slurm says idle without COMPLETING, and what it has against the node is a mark of ours; then the
 * pool switches. online -> async: no TF of ours is there, the devices are parked (slurm_park.c), the reservation is gone; then the pool switches. What is wanted is computed from pool
 * and move alone, so that a restart, or a move that is cancelled, needs no memory.
 */
#include "config.h"

#include "slurm_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "move.h"
#include "str.h"

void slurm_reservation_name(const struct node *n, char out[80])
{
    snprintf(out, 80, "sluice-%s", n->name);
}

void slurm_jobs_set(struct node_slurm *ns, char *const *jobs, size_t n)
{
    for (unsigned i = 0; i < ns->n_jobs; i++)
        free(ns->jobs[i]);
    free(ns->jobs);
    ns->jobs = mem_array(n + 1, sizeof(*ns->jobs));
    ns->n_jobs = 0;
    for (size_t i = 0; i < n; i++)
        ns->jobs[ns->n_jobs++] = mem_strdup(jobs[i]);
}

/* The move that hands it over now, as far as move.c has come with it. */
bool slurm_is_handed(const struct node *n, int to)
{
    const struct node_slurm *ns = n->slurm;

    return n->move != NULL && ns->hand.move == n->move && ns->hand.to == to;
}

bool slurm_wants_reservation(const struct node *n)
{
    if (n->slurm->mode == SLURM_LEAVE)
        return false;
    if (slurm_is_handed(n, POOL_ONLINE))
        return true;
    if (slurm_is_handed(n, POOL_ASYNC))
        return !n->slurm->hand.given;
    return n->pool == POOL_ONLINE;
}

bool slurm_wants_clear_out(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;

    return ns->n_jobs > 0 || (slurm_is_handed(n, POOL_ONLINE) && ns->hand.urgent && ns->says != NULL && ns->says->busy);
}

bool slurm_may_be_lent(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;

    return ns != NULL && (ns->mode == SLURM_LEND || (ns->mode == SLURM_LEAVE && ns->was_lent && n->pool == POOL_ASYNC));
}

bool slurm_is_lent(const struct node *n)
{
    return slurm_may_be_lent(n) && n->pool == POOL_ASYNC && !slurm_is_handed(n, POOL_ONLINE) && !slurm_lease_works(n);
}

static bool has_unclean_device(const struct node *n)
{
    Sluice__Device **devices;
    size_t count = node_devices(n, &devices);

    for (size_t i = 0; i < count; i++) {
        if (devices[i]->has_state && devices[i]->state == SLUICE__DEVICE_STATE__DEVICE_UNCLEAN)
            return true;
    }
    return false;
}

const char *slurm_waits_for(const struct node *n)
{
    struct node_slurm *ns = n->slurm;
    bool to_us = ns != NULL && slurm_is_handed(n, POOL_ONLINE);
    const char *silent = slurm_silent_s(n->d) > 0 ? "Slurm does not answer: " : "";
    char *out = ns == NULL ? NULL : ns->waits;

    if (ns == NULL)
        return "";
    out[0] = '\0';
    if ((!to_us && !slurm_is_handed(n, POOL_ASYNC)))
        return out;
    if (!to_us && has_unclean_device(n))
        snprintf(out, 160, "memory of a device is still in use");
    else if (!to_us && !ns->hand.given && !slurm_is_heard(n))
        snprintf(out, 160, "its worker does not answer: whether anything of ours is on the devices is not known");
    else if (!to_us && !ns->hand.given)
        snprintf(out, 160, "reconstruction processes are being ended");
    else if (slurm_trouble(ns) != NULL)
        snprintf(out, 160, "Slurm: %.140s", slurm_trouble(ns));
    else if (ns->asked_for && ns->says == NULL)
        snprintf(out, 160, "Slurm does not know the node");
    else if (ns->says == NULL || ns->says->unknown || !ns->resv_heard)
        snprintf(out, 160, "%swaiting for Slurm's word", silent);
    else if (to_us && !ns->reserved)
        snprintf(out, 160, "%sreservation sluice-%.63s is being made", silent, n->name);
    else if (!to_us && ns->reserved)
        snprintf(out, 160, "%sreservation sluice-%.63s is being removed", silent, n->name);
    else if (to_us && ns->says->busy)
        snprintf(out, 160, "%sjobs of Slurm are there: %.60s", silent, ns->says->state == NULL ? "?" : ns->says->state);
    else if (to_us && ns->n_jobs > 0)
        snprintf(out, 160, "%srequeued jobs get their begin time", silent);
    str_mend(out, strlen(out));          /* cut to length, perhaps within a letter */
    return out;
}

/* Once its devices are parked, or whoever asked for the move does not want to wait for a worker that is not there. Then it stays so, whatever the worker says. */
static void give(struct node *n, bool urgent)
{
    struct node_slurm *ns = n->slurm;

    if (ns->hand.given || has_unclean_device(n) || !(slurm_is_parked(n) || (urgent && !slurm_is_heard(n))))
        return;
    ns->hand.given = true;
    slurm_node_changed(n);
}

bool slurm_hand_over(struct node *n, int to, bool urgent)
{
    struct node_slurm *ns = n->slurm;

    if (ns == NULL || ns->mode != SLURM_LEND)
        return true;
    if (ns->hand.move != n->move || ns->hand.to != to || ns->hand.urgent != urgent) {
        ns->hand.given &= ns->hand.move == n->move && ns->hand.to == to;
        ns->hand.move = n->move;
        ns->hand.to = to;
        ns->hand.urgent = urgent;
        slurm_node_changed(n);
    }
    if (to == POOL_ASYNC)
        give(n, urgent);
    return !ns->acting && slurm_waits_for(n)[0] == '\0';
}
