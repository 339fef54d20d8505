/* range.h - which bytes of the buffer are taken: contiguous ranges, 64-byte aligned, neighbours joined again when freed */
#ifndef SLUICE_RANGE_H
#define SLUICE_RANGE_H

#include <stdint.h>
#include "err.h"

struct range { uint64_t offset, size; };         /* size 0: nothing */

struct ranges;

struct ranges *ranges_create(uint64_t size);     /* of the whole, bytes; a rest below SHM_ALIGN is not given out */
void     ranges_destroy(struct ranges *r);
/* The smallest hole that holds size bytes (rounded up to SHM_ALIGN). -1: none does; e says what was wanted and what the largest is. */
int      ranges_take(struct ranges *r, uint64_t size, struct range *out, struct err *e);
void     ranges_give(struct ranges *r, struct range *taken);     /* and sets it to nothing; aborts when it was not taken */
uint64_t ranges_size(const struct ranges *r);
uint64_t ranges_used(const struct ranges *r);
uint64_t ranges_largest(const struct ranges *r); /* hole */

#endif
