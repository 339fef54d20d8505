/* gpus.h - the real devices of the node: which there are, and whether their memory is free
 *
 * A class with gpu_arch and without nominal_ms has real ones; they are found by asking, in a process of its own (query.h). What they use before any
 * process of ours was started on them is their baseline, lowered whenever less is seen, and kept for the next worker in RUN_DIR/baselines: a device gets a new process only when what it uses is
 * within memory_tolerance of that.
 */
#ifndef SLUICE_GPUS_H
#define SLUICE_GPUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "query.h"

struct gpus;
struct worker;

bool gpus_are_real(const struct worker *w);      /* whether the node's class is of real devices */
struct gpus *gpus_create(struct worker *w);
void gpus_destroy(struct gpus *g);               /* after watch_destroy */
/* Looks for them, until there are some: then devices_found (device.h). answered is called once, when the first answer is there, or none. */
void gpus_search(struct gpus *g, void (*answered)(void *arg), void *arg);

struct gpu {
    struct query_device device;                  /* used: as seen last */
    bool     measured;                           /* false: the driver does not say what is in use, and nobody waits for it */
    bool     gone;                               /* it was measured, and the driver's last answer does not have it */
    uint64_t baseline;
};
/* NULL: no such device. */
const struct gpu *gpus_find(const struct gpus *g, const char *serial);

enum gpu_memory { GPU_FREE, GPU_TAKEN, GPU_ASKED };
/* Called when no process of ours is on it: the first call starts the first measurement, which makes the baselines of all.
 * Whether its memory is at its baseline, as asked after `since` (worker_now). GPU_ASKED: not known yet, devices_offer follows; GPU_TAKEN: more is in use,
 * or it cannot be known, as text says; it is asked again every second, with devices_offer each time. */
enum gpu_memory gpus_memory(struct gpus *g, const char *serial, int64_t since, char *text, size_t room);

/* What keeps the devices from being known: DeviceQuery, DeviceMissing, or "" and no text. */
const char *gpus_trouble(const struct gpus *g, const char **text);

#endif
