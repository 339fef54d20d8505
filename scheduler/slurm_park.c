/* slurm_park.c - reconstruction processes hold memory of their devices: none is on a node that Slurm has
 *
 * From: slurm_farm.c, slurm_lend.c, slurm_lease.c.  To: node.c (Settings), where the worker is told.
 * What the devices are to do follows from pool, move and lease alone, and is told when it becomes another thing. Whether they are parked is what the worker says in
 * a report about that very order: only then is a reservation removed, or a lease given back.
 */
#include "config.h"

#include "slurm_part.h"

#include "clock.h"
#include "move.h"

/* There is no work for it any more, and nothing is started for that. */
static bool is_retired(const struct node *n)
{
    return !n->added && !n->adding && n->added_at != 0;
}

static Sluice__Parking wanted(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;

    if (n->n_tfs > 0)
        return SLUICE__PARKING__DEVICES_WORK;
    if (!slurm_may_be_lent(n))
        return is_retired(n) ? SLUICE__PARKING__DEVICES_AS_THEY_ARE : SLUICE__PARKING__DEVICES_WORK;
    if (slurm_is_handed(n, POOL_ASYNC))
        return SLUICE__PARKING__DEVICES_PARK;
    if (n->pool == POOL_ONLINE)
        return SLUICE__PARKING__DEVICES_WORK;
    if (slurm_is_handed(n, POOL_ONLINE) && ns->lease_heard && (ns->reserved || (ns->lease == LEASE_HELD && !ns->lease_over)))
        return ns->parking;              /* ours in a moment, and nobody else's until then: nothing ends that would only be started again */
    if (!ns->lease_heard)
        return SLUICE__PARKING__DEVICES_AS_THEY_ARE;
    if (ns->lease == LEASE_HELD)
        return ns->lease_wanted && !ns->lease_over ? SLUICE__PARKING__DEVICES_WORK : SLUICE__PARKING__DEVICES_PARK;
    return SLUICE__PARKING__DEVICES_LENT;
}

Sluice__Parking slurm_parking(const struct node *n, uint64_t *order)
{
    struct node_slurm *ns = n->slurm;
    Sluice__Parking p = wanted(n);

    *order = 0;
    if (ns == NULL)
        return p;
    if (ns->parking_order == 0 || (p != ns->parking && p != SLUICE__PARKING__DEVICES_AS_THEY_ARE)) {
        ns->parking = p;
        ns->parking_order = (uint64_t)clock_wall_ns();
    }
    *order = ns->parking_order;
    return ns->parking;
}

void slurm_park_check(struct node *n)
{
    uint64_t before = n->slurm->parking_order, order;

    slurm_parking(n, &order);
    if (order != before)
        node_send_settings(n);
}

bool slurm_is_heard(const struct node *n)
{
    return n->session != NULL && n->registered != NULL && n->contact != SLUICE__CONTACT__LOST;
}

bool slurm_is_parked(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;
    const Sluice__Report *r = n->report;

    if (!slurm_is_heard(n) || r == NULL || r->parking_order != ns->parking_order ||
        (ns->parking != SLUICE__PARKING__DEVICES_PARK && ns->parking != SLUICE__PARKING__DEVICES_LENT))
        return false;
    for (size_t i = 0; i < r->n_devices; i++) {
        if (r->devices[i]->state != SLUICE__DEVICE_STATE__DEVICE_PARKED)
            return false;
    }
    return true;
}
