/* range.c - which bytes of the buffer are taken
 *
 * From: buffer.c.  To: -.
 * Holes lie in one array sorted by offset; no two of them touch, so their number is at most that of the ranges taken plus one
 * (tens, as a node holds tens of TFs): a linear look is quicker than any tree. Always: used + sum of holes = size.
 */
#include "config.h"
#include "range.h"

#include "mem.h"
#include "shm_layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ranges {
    uint64_t size, used;
    struct range *hole;
    size_t n, cap;
};

struct ranges *ranges_create(uint64_t size)
{
    struct ranges *r = mem_zalloc(sizeof *r);

    r->size = size / SHM_ALIGN * SHM_ALIGN;
    r->cap = 16;
    r->hole = mem_array(r->cap, sizeof *r->hole);
    if (r->size > 0)
        r->hole[r->n++] = (struct range){ 0, r->size };
    return r;
}

void ranges_destroy(struct ranges *r)
{
    if (r != NULL)
        free(r->hole);
    free(r);
}

static void hole_remove(struct ranges *r, size_t i)
{
    r->n--;
    memmove(&r->hole[i], &r->hole[i + 1], (r->n - i) * sizeof *r->hole);
}

static void hole_insert(struct ranges *r, size_t i, struct range hole)
{
    if (r->n == r->cap) {
        r->cap *= 2;
        r->hole = mem_grow(r->hole, r->cap, sizeof *r->hole);
    }
    memmove(&r->hole[i + 1], &r->hole[i], (r->n - i) * sizeof *r->hole);
    r->hole[i] = hole;
    r->n++;
}

int ranges_take(struct ranges *r, uint64_t size, struct range *out, struct err *e)
{
    size_t best = r->n;

    if (size == 0 || size > r->size)
        return err_set(e, ERR_STATE, "%" PRIu64 " bytes wanted, the buffer has %" PRIu64, size,
                       r->size);
    size = (size + SHM_ALIGN - 1) / SHM_ALIGN * SHM_ALIGN;
    for (size_t i = 0; i < r->n; i++) {
        if (r->hole[i].size >= size && (best == r->n || r->hole[i].size < r->hole[best].size))
            best = i;
    }
    if (best == r->n)
        return err_set(e, ERR_STATE, "%" PRIu64 " bytes wanted, %" PRIu64
                       " are free, at most %" PRIu64 " in one piece", size, r->size - r->used,
                       ranges_largest(r));
    *out = (struct range){ r->hole[best].offset, size };
    r->used += size;
    r->hole[best].offset += size;
    r->hole[best].size -= size;
    if (r->hole[best].size == 0)
        hole_remove(r, best);
    return 0;
}

void ranges_give(struct ranges *r, struct range *taken)
{
    struct range t = *taken;
    size_t i = 0;

    *taken = (struct range){ 0, 0 };
    if (t.size == 0)
        return;
    while (i < r->n && r->hole[i].offset < t.offset)
        i++;
    /* Whoever gives back what is free has lost count of somebody's data: going on would give the same bytes out twice. */
    if (t.size > r->used || t.offset > r->size || t.size > r->size - t.offset ||
        (i > 0 && r->hole[i - 1].offset + r->hole[i - 1].size > t.offset) ||
        (i < r->n && t.offset + t.size > r->hole[i].offset))
        abort();
    r->used -= t.size;
    hole_insert(r, i, t);
    if (i + 1 < r->n && t.offset + t.size == r->hole[i + 1].offset) {
        r->hole[i].size += r->hole[i + 1].size;
        hole_remove(r, i + 1);
    }
    if (i > 0 && r->hole[i - 1].offset + r->hole[i - 1].size == r->hole[i].offset) {
        r->hole[i - 1].size += r->hole[i].size;
        hole_remove(r, i);
    }
}

uint64_t ranges_size(const struct ranges *r)
{
    return r->size;
}

uint64_t ranges_used(const struct ranges *r)
{
    return r->used;
}

uint64_t ranges_largest(const struct ranges *r)
{
    uint64_t largest = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->hole[i].size > largest)
            largest = r->hole[i].size;
    }
    return largest;
}
