/* gpus.h - the real devices of the node: which there are, and whether their memory is free
 *
 * A class with gpu_arch and without nominal_ms has real ones; they are found by asking, in a process of its own (query.h). What they use before any
 * process of ours was started on them is their baseline, lowered whenever less is seen: a device gets a new process only when what it uses is
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
/* Nothing of ours runs on them now. devices_found (device.h) follows, when they and their baselines are known; it is tried until then. */
void gpus_start(struct gpus *g);

struct gpu {                                     /* of devices_found */
    struct query_device device;                  /* used: as seen last */
    bool     measured;                           /* false: the driver does not say what is in use, and nobody waits for it */
    uint64_t baseline;
};
/* NULL: no such device. */
const struct gpu *gpus_find(const struct gpus *g, const char *serial);

enum gpu_memory { GPU_FREE, GPU_TAKEN, GPU_ASKED };
/* Whether its memory is at its baseline, as asked after `since` (worker_now). GPU_ASKED: not known yet, devices_offer follows; GPU_TAKEN: more is in use,
 * or it cannot be known, as text says; it is asked again every second, with devices_offer each time. */
enum gpu_memory gpus_memory(struct gpus *g, const char *serial, int64_t since, char *text, size_t room);

/* What keeps the devices from being known: DeviceQuery, DeviceMissing, or "" and no text. */
const char *gpus_trouble(const struct gpus *g, const char **text);

#endif
