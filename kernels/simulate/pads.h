/* pads.h - electrons at the pads -> digits: amplifier, shaper, noise, cut at three sigma */
#ifndef PADS_H
#define PADS_H

#include <stdbool.h>
#include <stdint.h>

#include "../kdef.h"
#include "kerr.h"
#include "../ktypes.h"
#include "sim_rng.h"

/* One TF's digits in canonical order, each with the particle that gave most of its charge. */
struct pads_digits {
    uint32_t n, room;
    uint16_t *time, *charge, *label;     /* charge in quarter counts */
    uint8_t *sector, *row, *pad;
};
enum { PADS_NOISE = 0xffff, PADS_PATTERN = 0xfffe };

struct pads;

struct pads *pads_create(uint32_t bins);
void pads_destroy(struct pads *p);

/* Row and pad under a place in a sector's frame (cm; side C: mirrored); 0, or -1: no pad. */
int pads_find(double x, double y, bool side_c, uint32_t *row, uint32_t *pad);

/* `counts` (ADC counts) of particle `label` arrive at `when` (bins from the start of the TF).
 * What comes outside the TF is lost. Particles must come one after the other. */
void pads_add(struct pads *p, uint32_t sector, uint32_t row, uint32_t pad, double when,
              float counts, uint16_t label);

/* All rows to digits; noise: mean number of noise samples a pad and bin. */
int pads_digitize(struct pads *p, const struct sim_normal *t, uint64_t seed, uint64_t tf,
                  double noise, struct pads_digits *d, struct k_err *e);
void pads_digits_free(struct pads_digits *d);
/* Room for one more digit, which the caller then writes at d->n. */
int pads_digits_more(struct pads_digits *d, struct k_err *e);

#endif
