/* device_show.c - what people see of the node's devices
 *
 * From: device.c, gpus.c (memory), place.c (where a process is).  To: report.c.
 */
#include "config.h"
#include "device_part.h"

#include <inttypes.h>
#include <stdio.h>

void device_look_where(struct device *d)
{
    cpu_set_t cpus;

    d->cpus[0] = d->misplaced[0] = '\0';
    if (d->child != NULL && d->software[0] != '\0' && place_cpus(child_pid(d->child), &cpus, d->cpus, sizeof d->cpus))
        place_compare(&d->place, &cpus, d->cpus, d->domain, d->misplaced, sizeof d->misplaced);
}

static Sluice__DeviceState shown(const struct device *d)
{
    if (d->unclean)
        return SLUICE__DEVICE_STATE__DEVICE_UNCLEAN;
    if (d->parked && d->state == DEVICE_DOWN)
        return SLUICE__DEVICE_STATE__DEVICE_PARKED;
    if (device_is_broken(d))
        return SLUICE__DEVICE_STATE__DEVICE_BROKEN;
    switch (d->state) {
    case DEVICE_IDLE:
        return SLUICE__DEVICE_STATE__DEVICE_FREE;
    case DEVICE_SETUP:
    case DEVICE_RUN:
        return SLUICE__DEVICE_STATE__DEVICE_BUSY;
    default:
        return SLUICE__DEVICE_STATE__DEVICE_STARTING;
    }
}

static void fill_place(struct device *d, Sluice__Device *m)
{
    device_look_where(d);
    m->has_numa = d->numa >= 0;
    m->numa = d->numa;
    m->has_numa_wanted = d->place.domain >= 0;
    m->numa_wanted = d->place.domain;
    m->cpus_wanted = d->place.domain >= 0 ? d->place.text : NULL;
    m->has_numa_actual = d->cpus[0] != '\0' && d->domain >= 0;
    m->numa_actual = d->domain;
    m->cpus_actual = d->cpus[0] != '\0' ? d->cpus : NULL;
    m->misplaced = d->misplaced[0] != '\0' ? d->misplaced : NULL;
}

/* What is known of the memory of a real one. */
static void fill_memory(const struct device *d, Sluice__Device *m)
{
    const struct gpu *gpu = gpus_find(d->all->worker->gpus, d->serial);

    m->pinned = d->has_pinned ? (Sluice__Pinned *)&d->pinned : NULL;
    m->backend = d->backend[0] ? (char *)d->backend : NULL;
    if (gpu == NULL || !gpu->measured)
        return;
    m->has_memory_used = m->has_memory_baseline = 1;
    m->memory_used = gpu->device.used;
    m->memory_baseline = gpu->baseline;
    m->n_pids = gpu->device.n_pids;
    m->pids = (uint32_t *)(void *)gpu->device.pid;
}

static void fill_nice(struct device *d, Sluice__Device *m, int actual)
{
    const struct work *work = d->held != NULL ? d->held->work : NULL;

    m->has_nice_wanted = m->has_nice_actual = d->child != NULL;
    m->nice_wanted = device_nice_wanted(d);
    m->nice_actual = actual;
    if (work == NULL || !work->has_nice)
        return;
    snprintf(d->nice_for, sizeof d->nice_for, "%s %" PRIu64, work->key.job != 0 ? "job" : "run", work->key.job != 0 ? work->key.job : work->key.run);
    m->nice_for = d->nice_for;
}

static void fill_device(struct device *d, Sluice__Device *m, int32_t *nice)
{
    sluice__device__init(m);
    m->serial = (char *)d->serial;
    m->class_ = (char *)d->class;
    m->arch = d->arch[0] ? (char *)d->arch : NULL;
    m->has_emulated = m->has_state = m->has_restarts = m->has_stalls = 1;
    m->emulated = d->emulated;
    m->state = shown(d);
    m->restarts = d->restarts;
    m->stalls = d->stalls;
    m->has_memory = d->memory > 0;
    m->memory = d->memory;
    m->has_nominal = d->nominal > 0;
    m->nominal = d->nominal;
    m->has_seconds_per_tf = d->seconds_per_tf > 0;
    m->seconds_per_tf = d->seconds_per_tf;
    m->why = d->why[0] && device_is_broken(d) ? (char *)d->why : NULL;
    fill_memory(d, m);
    fill_place(d, m);
    m->has_pid = d->child != NULL;
    m->pid = d->child ? (uint32_t)child_pid(d->child) : 0;
    *nice = d->child ? child_nice(d->child) : 0;
    fill_nice(d, m, *nice);
}

/* Without a process, and in no list of its driver: to sluiced that is a device that is missing. */
bool device_is_missing(const struct device *d)
{
    const struct gpu *gpu = gpus_find(d->all->worker->gpus, d->serial);

    return d->child == NULL && gpu != NULL && gpu->gone;
}

unsigned devices_fill(struct devices *all, Sluice__Device *out, int32_t *nice)
{
    unsigned n = 0, missing = 0;

    for (unsigned i = 0; i < all->n; i++)
        missing += device_is_missing(&all->device[i]);
    for (unsigned i = 0; i < all->n; i++) {
        if (device_is_missing(&all->device[i]) && missing < all->n)       /* a node without any would be believed to have those of before */
            continue;
        fill_device(&all->device[i], &out[n], &nice[n]);
        n++;
    }
    return n;
}
