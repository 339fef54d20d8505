/* arena.h - the memory of a source: one memfd, which workers on this host may read by descriptor
 *
 * Pages are given to the file by fallocate before they are touched, so that a machine without memory is an error and not a
 * signal. Taking and giving is for one thread; arena_fault is for any.
 */
#ifndef SLUICE_ARENA_H
#define SLUICE_ARENA_H

#include <stdint.h>
#include "err.h"
#include "range.h"

struct arena;

struct arena *arena_create(uint64_t size, struct err *e);    /* rounded up to whole pages; nothing is touched yet */
void     arena_destroy(struct arena *a);
int      arena_fd(const struct arena *a);                     /* read-only, sealed against growing and shrinking; the arena's */
uint64_t arena_size(const struct arena *a);
int      arena_take(struct arena *a, uint64_t size, struct range *out);   /* -1: no hole is that long */
void     arena_give(struct arena *a, struct range *taken);
void    *arena_at(const struct arena *a, uint64_t offset);
uint64_t arena_offset(const struct arena *a, const void *p);  /* in the descriptor */
/* Gives the pages of this range to the file and maps them; pages that have it cost nothing. */
int      arena_fault(struct arena *a, const struct range *r, struct err *e);

#endif
