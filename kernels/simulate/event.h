/* event.h - collisions over a TF and their particles */
#ifndef EVENT_H
#define EVENT_H

#include "track.h"

/* Fills p[0..n): collisions at random times in the bins [0, bins); those of one collision
 * stand together. Returns the number of collisions. */
uint32_t event_make(struct track_particle *p, uint32_t n, uint32_t bins,
                    const struct sim_normal *t, struct sim_rng *r);

#endif
