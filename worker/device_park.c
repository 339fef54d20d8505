/* device_park.c - devices without processes, while the node is somebody else's
 *
 * From: link.c (sluiced's word).  To: device.c (starts, ends).
 * A process keeps memory of its device also when it has nothing to do, and on a node that is lent that is not ours. TFs that are here, whatever the
 * order says, are worked on first: a process is ended only when nothing is left for it, and one that is needed is started.
 */
#include "config.h"
#include "device_part.h"

#include "log.h"

#include <stdio.h>

bool devices_rest(const struct devices *all)
{
    const unsigned *n = all->worker->held.n;

    return all->parking != SLUICE__PARKING__DEVICES_WORK && n[SLUICE__PHASE__BUILDING] + n[SLUICE__PHASE__QUEUED] + n[SLUICE__PHASE__PROCESSING] == 0;
}

static void leave(struct device *d)
{
    d->leaving = true;
    snprintf(d->doom_word, sizeof d->doom_word, "Cancelled");
    snprintf(d->doom, sizeof d->doom, "the device is parked");
    device_post(d, DEVICE_KILL);
    child_end(d->child, GRACE_S);
}

void devices_park_step(struct devices *all)
{
    bool rest = devices_rest(all);

    if (all->stopping || !all->started)
        return;
    for (unsigned i = 0; i < all->n; i++) {
        struct device *d = &all->device[i];

        if (rest && all->parking != SLUICE__PARKING__DEVICES_AS_THEY_ARE && (d->state == DEVICE_IDLE || d->state == DEVICE_BOOT) && d->held == NULL)
            leave(d);
        else if (!rest && d->parked && d->state == DEVICE_DOWN && !ev_is_active(&d->again))
            device_start_soon(d);
    }
}

void devices_park(struct devices *all, Sluice__Parking how, uint64_t order)
{
    bool known = all->parking != SLUICE__PARKING__DEVICES_AS_THEY_ARE;

    all->parking_order = order;
    if (how == SLUICE__PARKING__DEVICES_AS_THEY_ARE && known)
        return;                                  /* what was said last holds on */
    if (how != all->parking)
        log_info("devices: %s", how == SLUICE__PARKING__DEVICES_WORK ? "to work" : how == SLUICE__PARKING__DEVICES_PARK ? "to be parked" : "the node is lent");
    for (unsigned i = 0; i < all->n && how != all->parking; i++) {
        struct device *d = &all->device[i];

        if (d->state == DEVICE_DOWN) {           /* its memory was somebody else's meanwhile: it is looked at anew */
            d->parked = false;
            d->since = worker_now(all->worker);
        }
    }
    all->parking = how;
    devices_park_step(all);
    if (all->started)
        devices_offer(all);
    worker_changed(all->worker);
}

uint64_t devices_park_order(const struct devices *all)
{
    return all->parking_order;
}
