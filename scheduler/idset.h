/* idset.h - a set of TF numbers, kept as ranges: numbers that come about in order cost next to nothing */
#ifndef SLUICE_IDSET_H
#define SLUICE_IDSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idrange { uint64_t first, last; };
struct idset { struct idrange *at; size_t n, cap; uint64_t count; };     /* zeroed: empty; ranges ascend, with a gap between any two */

bool idset_add(struct idset *s, uint64_t id);                            /* false: it was there */
bool idset_has(const struct idset *s, uint64_t id);
void idset_free(struct idset *s);                                        /* empties it */

#endif
