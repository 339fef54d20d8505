/* hold.c - the parts that one source holds
 *
 * From: source.c (adds, announces, releases), outlet.c by way of it (pulls).  To: source.c (freed).
 * The list is in the order of ids. Everything before `next` was announced on this connection, nothing from it on was.
 */
#include "config.h"

#include "hold.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <uthash.h>

#include "mem.h"

struct entry {
    struct hold_part  part;
    struct hold_fence fence;         /* newest that pulled */
    char              node[HOLD_NODE];
    bool              pulled, released;
    unsigned          pins;
    TAILQ_ENTRY(entry) in_order;
    UT_hash_handle    hh;
};

struct hold {
    struct entry *by_id;
    TAILQ_HEAD(hold_list, entry) list;
    struct entry *next;              /* the first to be announced, NULL: none waits */
    size_t        count, in_use;
    uint64_t      bytes, last_id;
    void        (*freed)(void *arg, uint64_t id);
    void         *arg;
};

int hold_fence_cmp(const struct hold_fence *a, const struct hold_fence *b)
{
    if (a->epoch != b->epoch)
        return a->epoch < b->epoch ? -1 : 1;
    return (a->attempt > b->attempt) - (a->attempt < b->attempt);
}

struct hold *hold_create(void (*freed)(void *arg, uint64_t id), void *arg)
{
    struct hold *h = mem_zalloc(sizeof *h);

    TAILQ_INIT(&h->list);
    h->freed = freed;
    h->arg = arg;
    return h;
}

static void entry_unlink(struct hold *h, struct entry *x)
{
    if (h->next == x)
        h->next = TAILQ_NEXT(x, in_order);
    TAILQ_REMOVE(&h->list, x, in_order);
    HASH_DEL(h->by_id, x);
    h->in_use--;
    h->bytes -= x->part.size;
}

void hold_destroy(struct hold *h)
{
    struct entry *x;

    if (h == NULL)
        return;
    while ((x = TAILQ_FIRST(&h->list)) != NULL) {
        entry_unlink(h, x);
        free(x);
    }
    free(h);
}

static struct entry *find(const struct hold *h, uint64_t id)
{
    struct entry *x;

    HASH_FIND(hh, h->by_id, &id, sizeof id, x);
    return x;
}

void hold_add(struct hold *h, const struct hold_part *p)
{
    if (p->id <= h->last_id)
        abort();                     /* ids grow: the watermark depends on it */

    struct entry *x = mem_zalloc(sizeof *x);
    x->part = *p;
    HASH_ADD(hh, h->by_id, part.id, sizeof x->part.id, x);
    TAILQ_INSERT_TAIL(&h->list, x, in_order);
    if (h->next == NULL)
        h->next = x;
    h->last_id = p->id;
    h->count++;
    h->in_use++;
    h->bytes += p->size;
}

/* The last step of a part: released, and no transfer uses it. */
static void free_if_unused(struct hold *h, struct entry *x)
{
    if (!x->released || x->pins > 0)
        return;
    uint64_t id = x->part.id;
    entry_unlink(h, x);
    free(x);
    if (h->freed != NULL)
        h->freed(h->arg, id);
}

enum hold_answer hold_pull(struct hold *h, uint64_t id, const struct hold_fence *fence, const char *node,
                           struct hold_part *out)
{
    struct entry *x = find(h, id);

    if (x == NULL || x->released)
        return HOLD_GONE;
    if (x->pulled && hold_fence_cmp(fence, &x->fence) < 0)
        return HOLD_STALE;
    x->pulled = true;
    x->fence = *fence;
    strncpy(x->node, node, sizeof x->node - 1);
    x->pins++;
    *out = x->part;
    return HOLD_OK;
}

void hold_unpin(struct hold *h, uint64_t id)
{
    struct entry *x = find(h, id);

    if (x == NULL || x->pins == 0)
        abort();                     /* a pin keeps its part: our own mistake */
    x->pins--;
    free_if_unused(h, x);
}

static size_t release(struct hold *h, struct entry *x)
{
    if (x->released)
        return 0;
    if (h->next == x)                /* never to be announced any more */
        h->next = TAILQ_NEXT(x, in_order);
    x->released = true;
    h->count--;
    free_if_unused(h, x);
    return 1;
}

size_t hold_release(struct hold *h, uint64_t first, uint64_t count)
{
    struct entry *x, *after;
    size_t n = 0;

    /* Whichever is shorter is walked: the range as told, or what is here. */
    if (count < h->in_use) {
        for (uint64_t i = 0; i < count && first + i >= first; i++) {
            x = find(h, first + i);
            n += x != NULL ? release(h, x) : 0;
        }
        return n;
    }
    for (x = TAILQ_FIRST(&h->list); x != NULL; x = after) {
        after = TAILQ_NEXT(x, in_order);
        if (x->part.id >= first && x->part.id - first < count)
            n += release(h, x);
    }
    return n;
}

/* Whether x can stand in the range that is being made. */
static bool fits(const struct hold_range *r, const struct entry *x)
{
    if (r->first + r->count != x->part.id || r->pulled != x->pulled)
        return false;
    return !x->pulled || (strcmp(r->node, x->node) == 0 && hold_fence_cmp(&r->fence, &x->fence) == 0);
}

static void open_range(struct hold_range *r, const struct entry *x, uint64_t *sizes, uint32_t *orbits)
{
    *r = (struct hold_range){ .first = x->part.id, .sizes = sizes, .orbits = orbits, .pulled = x->pulled };
    if (x->pulled) {
        memcpy(r->node, x->node, sizeof r->node);
        r->fence = x->fence;
    }
}

size_t hold_announce(struct hold *h, struct hold_range *r, size_t max_ranges, uint64_t *sizes, uint32_t *orbits,
                     size_t max_tfs)
{
    size_t n = 0, tfs = 0;

    for (; h->next != NULL && tfs < max_tfs; h->next = TAILQ_NEXT(h->next, in_order)) {
        struct entry *x = h->next;
        if (x->released)             /* kept by a transfer only */
            continue;
        if (n == 0 || !fits(&r[n - 1], x)) {
            if (n == max_ranges)
                break;
            open_range(&r[n++], x, sizes + tfs, orbits + tfs);
        }
        sizes[tfs] = x->part.size;
        orbits[tfs] = x->part.first_orbit;
        r[n - 1].count++;
        tfs++;
    }
    return n;
}

bool hold_waits(const struct hold *h)
{
    return h->next != NULL;
}

void hold_announce_again(struct hold *h)
{
    h->next = TAILQ_FIRST(&h->list);
}

size_t hold_count(const struct hold *h)
{
    return h->count;
}

size_t hold_in_use(const struct hold *h)
{
    return h->in_use;
}

uint64_t hold_bytes(const struct hold *h)
{
    return h->bytes;
}

uint64_t hold_watermark(const struct hold *h)
{
    return h->next != NULL ? h->next->part.id : h->last_id + 1;
}
