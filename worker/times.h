/* times.h - how long TFs take on this node, by recipe: what is usual, so that a device that makes no progress can be told from a slow one */
#ifndef SLUICE_TIMES_H
#define SLUICE_TIMES_H

#include <stddef.h>
#include <stdint.h>

enum { TIMES_ENOUGH = 5, TIMES_KEPT = 31, TIMES_RECIPES = 32 };

struct times;

struct times *times_create(void);
void   times_destroy(struct times *t);
/* A TF of so many bytes took so long (s, > 0). The newest TIMES_KEPT of a recipe count; of more than TIMES_RECIPES the one used longest ago goes. */
void   times_add(struct times *t, const char *recipe, uint64_t bytes, double seconds);
/* Seconds that are usual for a TF of this size: the median of the times, or the median of the times per byte for its bytes, whichever is more.
 * 0 until TIMES_ENOUGH were added. */
double times_usual(const struct times *t, const char *recipe, uint64_t bytes);

#endif
