/* khost.h - memory of the host that TFs lie in, made known to a device
 *
 * A device copies fast, and beside its kernels, only from pinned memory. The buffer is pinned in
 * chunks, all or nothing; where that fails, copies go through a small ring of the driver's own
 * pinned memory.
 */
#ifndef KHOST_H
#define KHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kerr.h"

struct kdev;
struct kbuf;
struct bk_queue;

struct khost_want {
    const void *data;
    uint64_t size;               /* 0: nothing is to be pinned */
    uint64_t chunk;              /* bytes of one registration; 0: KHOST_CHUNK */
    bool read_only;              /* as it is mapped */
};
#define KHOST_CHUNK (UINT64_C(8) << 30)      /* a driver refused 512 GiB in one go */

/* What was wanted and what came of it. */
struct khost_report {
    uint64_t wanted, pinned;     /* bytes; pinned is 0 or all that was wanted */
    uint64_t chunks;             /* registrations that stand */
    uint64_t ring;               /* bytes of the ring that is in use instead; 0: none */
    char why[300];               /* why less is pinned than wanted, and the limit to raise */
};

/* Pins for the device. Pipelines of one process that name the same memory and device share it. 0;
 * -1: nothing stays pinned, and d->host.why says why. */
int khost_pin(struct kdev *d, const struct khost_want *w);
/* Unpins (the last pipeline does it) and gives the ring back. */
void khost_release(struct kdev *d);

/* Queues a copy; the memory at p must stay until the queue was waited for. */
int khost_upload(struct kdev *d, struct bk_queue *q, const struct kbuf *b, size_t offset,
                 const void *p, size_t size, struct k_err *e);

#endif
