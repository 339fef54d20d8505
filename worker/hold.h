/* hold.h - the parts that one source holds: announced or not, pulled by whom, let go when
 *
 * Pure bookkeeping: no socket, no clock, one thread. A part goes through
 *
 *   added -> (announced) -> released -> freed
 *
 * and may be pulled any number of times on the way, by growing fences. The memory belongs to whoever added it; it hears `freed`
 * once, when the part is released and no transfer uses it any more.
 */
#ifndef SLUICE_HOLD_H
#define SLUICE_HOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HOLD_NODE = 64 };             /* room for a node's name */

struct hold;

struct hold_part {
    uint64_t    id;                  /* of the TF, in its run */
    uint32_t    first_orbit;
    const void *data;
    uint64_t    size;                /* may be 0 */
    uint64_t    offset;              /* in the descriptor that holds it */
    uint64_t    xxh3;
};

struct hold_fence { uint64_t epoch; uint32_t attempt; };

/* Negative, 0, positive: a is older, the same, newer. */
int hold_fence_cmp(const struct hold_fence *a, const struct hold_fence *b);

enum hold_answer { HOLD_OK, HOLD_GONE, HOLD_STALE };

/* Consecutive TFs of one freshness, as they go into an announcement. */
struct hold_range {
    uint64_t  first;
    uint32_t  count;
    uint64_t *sizes;                 /* count each; the caller's memory */
    uint32_t *orbits;
    bool      pulled;
    char      node[HOLD_NODE];       /* pulled: who came last, with which fence */
    struct hold_fence fence;
};

struct hold *hold_create(void (*freed)(void *arg, uint64_t id), void *arg);
void     hold_destroy(struct hold *h);           /* frees nothing: who destroys it with parts in it knows that they are there */
/* The id must be above all before it. */
void     hold_add(struct hold *h, const struct hold_part *p);
/* The part, pinned until hold_unpin of it, and the fence and node are remembered; or why not. */
enum hold_answer hold_pull(struct hold *h, uint64_t id, const struct hold_fence *fence, const char *node, struct hold_part *out);
void     hold_unpin(struct hold *h, uint64_t id);
/* Lets go of what it has in [first, first + count); again, or of what it never had, is nothing. Returns how many. */
size_t   hold_release(struct hold *h, uint64_t first, uint64_t count);

/* Takes up to max_tfs parts that wait to be announced, in the order of their ids, as up to max_ranges ranges. r[i].sizes and orbits are cut from
 * the arrays given (max_tfs each). Returns how many ranges; 0: nothing waits. */
size_t   hold_announce(struct hold *h, struct hold_range *r, size_t max_ranges, uint64_t *sizes, uint32_t *orbits, size_t max_tfs);
bool     hold_waits(const struct hold *h);       /* something is to be announced */
void     hold_announce_again(struct hold *h);    /* everything, after a reconnect */

size_t   hold_count(const struct hold *h);       /* not released */
size_t   hold_in_use(const struct hold *h);      /* not freed */
uint64_t hold_bytes(const struct hold *h);       /* not freed */
uint64_t hold_watermark(const struct hold *h);   /* no part below it will still be announced (but for announcing again) */

#endif
