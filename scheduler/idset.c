/* idset.c - a set of TF numbers, kept as ranges
 *
 * From, to: run.c and source.c (what is settled, what is to be released).
 */
#include "config.h"
#include "idset.h"

#include <stdlib.h>
#include <string.h>
#include "mem.h"

/* The first range that does not end before id. */
static size_t range_at(const struct idset *s, uint64_t id)
{
    size_t low = 0, high = s->n;

    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->at[mid].last < id)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

bool idset_has(const struct idset *s, uint64_t id)
{
    size_t i = range_at(s, id);

    return i < s->n && s->at[i].first <= id;
}

static void range_insert(struct idset *s, size_t i, uint64_t id)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 8;
        s->at = mem_grow(s->at, s->cap, sizeof(*s->at));
    }
    memmove(s->at + i + 1, s->at + i, (s->n - i) * sizeof(*s->at));
    s->at[i] = (struct idrange){ id, id };
    s->n++;
}

bool idset_add(struct idset *s, uint64_t id)
{
    size_t i = range_at(s, id);

    if (i < s->n && s->at[i].first <= id)
        return false;
    s->count++;
    bool joins_left = i > 0 && s->at[i - 1].last + 1 == id;
    bool joins_right = i < s->n && id + 1 == s->at[i].first;
    if (joins_left && joins_right) {
        s->at[i - 1].last = s->at[i].last;
        memmove(s->at + i, s->at + i + 1, (s->n - i - 1) * sizeof(*s->at));
        s->n--;
    } else if (joins_left) {
        s->at[i - 1].last = id;
    } else if (joins_right) {
        s->at[i].first = id;
    } else {
        range_insert(s, i, id);
    }
    return true;
}

void idset_free(struct idset *s)
{
    free(s->at);
    *s = (struct idset){ 0 };
}
