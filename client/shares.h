/* shares.h - what the nodes did for a run, for people */
#ifndef SLUICE_SHARES_H
#define SLUICE_SHARES_H

#include <jansson.h>

/* From the nodes of a run those that look alike as one object each: node (a host list), count, class, and of each number the sum and the least and the most of a
 * node. A new reference. */
json_t *shares_grouped(const json_t *nodes);

#endif
