/* resize.c - the size that sluiced wants this node's buffer to have
 *
 * From: link.c (Settings), main.c (the buffer's answer, the clock).  To: buffer.c, device_talk.c (processes map it anew), report.c.
 * sluiced orders it when the node holds no TF; what a thread still reads for a TF that was cancelled is waited for here.
 */
#include "config.h"
#include "resize.h"

#include "device.h"
#include "log.h"
#include "mem.h"
#include "worker.h"

#include <inttypes.h>
#include <stdlib.h>

struct resize {
    struct worker *worker;
    uint64_t order, size;                        /* the newest */
    uint64_t running;                            /* order that the buffer works on; 0: none */
    uint64_t done;
    char     failure[400];
};

struct resize *resize_create(struct worker *w)
{
    struct resize *r = mem_zalloc(sizeof *r);

    r->worker = w;
    return r;
}

void resize_destroy(struct resize *r)
{
    free(r);
}

static void finish(struct resize *r, uint64_t order, const struct err *why)
{
    r->done = order;
    worker_text(r->failure, sizeof r->failure, why != NULL ? why->text : "");
    worker_changed(r->worker);
}

void resize_tick(struct resize *r)
{
    struct worker *w = r->worker;
    struct err e;

    if (r->order == r->done || r->running != 0 || w->stopping)
        return;
    if (buffer_is_open(w->buffer) && buffer_size(w->buffer) == r->size)
        finish(r, r->order, NULL);
    else if (buffer_resize(w->buffer, r->size, &e) == 0)
        r->running = r->order;                   /* else it is in use, or being made: tried at the next tick */
    worker_changed(w);
}

void resize_order(struct resize *r, uint64_t order, uint64_t size)
{
    if (order == r->order)
        return;
    log_info("buffer: %" PRIu64 " bytes are wanted (order %" PRIu64 ")", size, order);
    r->order = order;
    r->size = size;
    resize_tick(r);
}

void resize_over(struct resize *r, const struct err *why)
{
    uint64_t order = r->running;

    if (order == 0)
        return;
    r->running = 0;
    if (why == NULL)
        r->worker->shm_size = buffer_size(r->worker->buffer);
    finish(r, order, why);
    devices_reattach(r->worker->devices);
}

uint64_t resize_done(const struct resize *r)
{
    return r->done;
}

const char *resize_failure(const struct resize *r)
{
    return r->failure;
}
