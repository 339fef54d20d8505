/* counters.h - named numbers that only grow, for status, metrics and tests: "stale_fences", "refused_permission", … */
#ifndef SLUICE_COUNTERS_H
#define SLUICE_COUNTERS_H

#include <stdint.h>

struct counters;
struct counters *counters_create(void);
void counters_destroy(struct counters *c);
void counters_add(struct counters *c, const char *name, uint64_t n);     /* name: a literal [a-z_]+; made on first use */
uint64_t counters_get(const struct counters *c, const char *name);
void counters_each(const struct counters *c, void (*fn)(void *arg, const char *name, uint64_t value), void *arg);   /* by name */

#endif
