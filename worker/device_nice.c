/* device_nice.c - nice levels of the node's reconstruction processes
 *
 * From: link.c (Settings: the pool's; RunOpen: of a run or job), device.c (who works for whom).  To: watch.c (all threads of a process), report.c.
 * What the kernel refuses is said, once in the log and in every report, and harms nobody.
 */
#include "config.h"
#include "device_part.h"

#include "log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int device_nice_wanted(const struct device *d)
{
    const struct work *work = d->held != NULL ? d->held->work : NULL;

    return work != NULL && work->has_nice ? work->nice : d->all->worker->nice_wanted;
}

int device_nice(const struct device *d)
{
    return priority_behind(&d->all->worker->priority, device_nice_wanted(d));
}

static void set(struct device *d, int level)
{
    int why = child_set_nice(d->child, level);

    d->nice_told = level;
    if (why == 0 && level == d->nice_refused)
        d->nice_refused = NICE_UNKNOWN;
    if (why == 0 || level == d->nice_refused)
        return;
    d->nice_refused = level;
    log_warning("device %s: nice %d wanted, it has %d: %s", d->serial, level, child_nice(d->child), strerror(why));
}

void device_set_nice(struct device *d)
{
    int level = device_nice(d);

    if (d->child == NULL || level == d->nice_told)
        return;
    set(d, level);
    worker_changed(d->all->worker);
}

/* Why the process has another level than is wanted of the node; false: it has not. */
static bool differs(const struct device *d, char *text, size_t room)
{
    const struct worker *w = d->all->worker;
    int wanted = device_nice_wanted(d), has = d->child != NULL ? child_nice(d->child) : w->nice_wanted;
    const struct work *work = d->held != NULL && d->held->work->has_nice ? d->held->work : NULL;

    if (has == w->nice_wanted && has == wanted)
        return false;
    if (has == wanted && work != NULL)
        snprintf(text, room, "has %d: so %s %" PRIu64 " wants it", has, work->key.job != 0 ? "job" : "run", work->key.job != 0 ? work->key.job : work->key.run);
    else if (has == device_nice(d))
        snprintf(text, room, "wanted %d, has %d: processes stay behind the worker's loop, which has %d", wanted, has, w->priority.loop);
    else
        snprintf(text, room, "wanted %d, has %d: the kernel does not permit it (RLIMIT_NICE, CAP_SYS_NICE)", wanted, has);
    return true;
}

const char *devices_nice_text(struct devices *all)
{
    all->nice_text[0] = '\0';
    for (unsigned i = 0; i < all->n; i++) {
        if (differs(&all->device[i], all->nice_text, sizeof all->nice_text))
            break;
    }
    return all->nice_text;
}

void devices_nice(struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (all->device[i].child != NULL)
            set(&all->device[i], device_nice(&all->device[i]));
    }
    worker_changed(all->worker);
}
