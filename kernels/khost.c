/* khost.c - memory of the host that TFs lie in, made known to a device
 *
 * From: pipeline.c (what to pin), stage_decode.c (copies).  To: a backend.
 * What is pinned is kept in one list for the process, because a second registration of the same
 * memory is an error for the drivers.
 */
#include "khost.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "kdev.h"

enum { RING_SLOTS = 4, RING_SLOT = 4 << 20 };

struct khost_region {
    struct khost_region *next;
    const struct bk_ops *ops;
    int index;                   /* of the device */
    const char *data;
    uint64_t size, chunk;
    unsigned users;
};

struct khost_ring {
    void *slot[RING_SLOTS];
    struct bk_event *busy[RING_SLOTS];           /* the copy out of it; NULL: none */
    struct bk_queue *queue[RING_SLOTS];
    unsigned next;
};

static struct {
    pthread_mutex_t lock;
    struct khost_region *first;
} pinned = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- pinning ------------------------------------------------------------------------------ */

/* Which limit stands in the way most likely. */
static void limits(char *out, size_t room)
{
    struct rlimit r;
    unsigned long maps = 0;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "re");

    if (f && fscanf(f, "%lu", &maps) != 1)
        maps = 0;
    if (f)
        fclose(f);
    if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur != RLIM_INFINITY)
        snprintf(out, room, "memory that may be locked is limited to %" PRIu64 " bytes (ulimit -l, LimitMEMLOCK=), mappings to %lu "
                 "(vm.max_map_count)", (uint64_t)r.rlim_cur, maps);
    else
        snprintf(out, room, "mappings are limited to %lu (vm.max_map_count)", maps);
}

static uint64_t chunk_at(uint64_t size, uint64_t chunk, uint64_t at)
{
    return size - at < chunk ? size - at : chunk;
}

/* The first n chunks, the last one first. */
static void unregister(struct kdev *d, const char *data, uint64_t chunk, uint64_t n)
{
    while (n-- > 0)
        d->ops->host_unregister(d->dev, data + n * chunk);
}

/* Registers all chunks, or none. */
static int register_all(struct kdev *d, const struct khost_want *w, uint64_t chunk)
{
    struct khost_report *r = &d->host;
    const char *data = w->data;
    uint64_t at = 0;
    char limit[160];

    for (; at < w->size; at += chunk_at(w->size, chunk, at)) {
        if (d->ops->host_register(d->dev, data + at, chunk_at(w->size, chunk, at), w->read_only) < 0)
            break;
        r->chunks++;
    }
    if (at >= w->size) {
        r->pinned = w->size;
        return 0;
    }
    limits(limit, sizeof limit);
    snprintf(r->why, sizeof r->why, "%.100s, at byte %" PRIu64 " of %" PRIu64 "; %s", d->ops->errstr(d->dev), at, w->size, limit);
    unregister(d, data, chunk, r->chunks);
    r->chunks = 0;
    return -1;
}

static struct khost_region *find(const struct kdev *d, const struct khost_want *w)
{
    struct khost_region *x = pinned.first;

    while (x && (x->ops != d->ops || x->index != d->index || x->data != w->data || x->size != w->size))
        x = x->next;
    return x;
}

static int pin_locked(struct kdev *d, const struct khost_want *w)
{
    struct khost_region *x = find(d, w);
    uint64_t chunk = w->chunk ? w->chunk : KHOST_CHUNK;

    if (x == NULL) {
        x = malloc(sizeof *x);
        if (x == NULL)
            snprintf(d->host.why, sizeof d->host.why, "out of memory");
        if (x == NULL || register_all(d, w, chunk) < 0) {
            free(x);
            return -1;
        }
        *x = (struct khost_region){ pinned.first, d->ops, d->index, w->data, w->size, chunk, 0 };
        pinned.first = x;
    }
    d->host.pinned = x->size;
    d->host.chunks = (x->size + x->chunk - 1) / x->chunk;
    d->region = x;
    x->users++;
    return 0;
}

int khost_pin(struct kdev *d, const struct khost_want *w)
{
    int r = 0;

    d->host = (struct khost_report){ .wanted = w->size };
    if (w->size == 0 || d->region)
        return 0;
    pthread_mutex_lock(&pinned.lock);
    r = pin_locked(d, w);
    pthread_mutex_unlock(&pinned.lock);
    return r;
}

static void unpin(struct kdev *d)
{
    struct khost_region *x = d->region, **link = &pinned.first;

    pthread_mutex_lock(&pinned.lock);
    if (--x->users == 0) {
        unregister(d, x->data, x->chunk, (x->size + x->chunk - 1) / x->chunk);
        while (*link != x)
            link = &(*link)->next;
        *link = x->next;
        free(x);
    }
    pthread_mutex_unlock(&pinned.lock);
    d->region = NULL;
}

/* ---- the ring ----------------------------------------------------------------------------- */

static void ring_free(struct kdev *d, struct khost_ring *g)
{
    for (unsigned i = 0; g && i < RING_SLOTS; i++) {
        if (g->busy[i])
            d->ops->event_free(g->busy[i]);
        if (g->slot[i])
            d->ops->host_free(d->dev, g->slot[i]);
    }
    free(g);
}

/* The ring, or NULL where the driver gives no memory for one: it copies by itself then. */
static struct khost_ring *ring_of(struct kdev *d)
{
    if (d->ring || !d->ops->async || d->ops->host_alloc == NULL || d->no_ring)
        return d->ring;
    struct khost_ring *g = calloc(1, sizeof *g);
    for (unsigned i = 0; g && i < RING_SLOTS; i++) {
        g->slot[i] = d->ops->host_alloc(d->dev, RING_SLOT);
        if (g->slot[i] == NULL) {
            ring_free(d, g);
            g = NULL;
        }
    }
    d->ring = g;
    d->no_ring = g == NULL;
    d->host.ring = g ? (uint64_t)RING_SLOTS * RING_SLOT : 0;
    return g;
}

static int ring_copy(struct kdev *d, struct khost_ring *g, struct bk_queue *q, const struct kbuf *b,
                     size_t offset, const char *p, size_t size)
{
    const struct bk_ops *ops = d->ops;

    while (size > 0) {
        unsigned i = g->next++ % RING_SLOTS;
        size_t n = size < RING_SLOT ? size : RING_SLOT;
        if (g->busy[i]) {
            if (ops->event_wait(g->queue[i], g->busy[i]) < 0)
                return -1;
            ops->event_free(g->busy[i]);
        }
        memcpy(g->slot[i], p, n);
        g->queue[i] = q;
        g->busy[i] = ops->h2d(q, b->mem, offset, g->slot[i], n) == 0 ? ops->record(q) : NULL;
        if (g->busy[i] == NULL)
            return -1;
        offset += n, p += n, size -= n;
    }
    return 0;
}

/* ---- copies ------------------------------------------------------------------------------- */

/* From pinned memory, one registration at a time: a copy across two is an error for the drivers. */
static int pinned_copy(struct kdev *d, struct bk_queue *q, const struct kbuf *b, size_t offset, const char *p, size_t size)
{
    const struct khost_region *x = d->region;

    while (size > 0) {
        uint64_t left = x->chunk - (uint64_t)(p - x->data) % x->chunk;
        size_t n = size < left ? size : (size_t)left;
        if (d->ops->h2d(q, b->mem, offset, p, n) < 0)
            return -1;
        offset += n, p += n, size -= n;
    }
    return 0;
}

static bool is_pinned(const struct kdev *d, const char *p, size_t size)
{
    const struct khost_region *x = d->region;
    return x && p >= x->data && size <= x->size && (uint64_t)(p - x->data) <= x->size - size;
}

int khost_upload(struct kdev *d, struct bk_queue *q, const struct kbuf *b, size_t offset,
                 const void *p, size_t size, struct k_err *e)
{
    struct khost_ring *g = NULL;
    int r;

    if (size == 0)
        return 0;
    d->copied_in += size;
    if (is_pinned(d, p, size))
        r = pinned_copy(d, q, b, offset, p, size);
    else if ((g = ring_of(d)) != NULL)
        r = ring_copy(d, g, q, b, offset, p, size);
    else
        r = d->ops->h2d(q, b->mem, offset, p, size);
    return r < 0 ? k_fail(e, K_EDEVICE, "device %s: %s", d->info.id, d->ops->errstr(d->dev)) : 0;
}

void khost_release(struct kdev *d)
{
    if (d->region)
        unpin(d);
    ring_free(d, d->ring);
    d->ring = NULL;
}
