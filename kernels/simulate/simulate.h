/* simulate.h - charged tracks in the TPC -> digits with their truth -> a TF
 *
 * Physics and numbers: AliceO2 TPC simulation (ionisation in clusters, diffusion, attachment, gain
 * fluctuation, shaping, noise, 3 sigma cut), gas Ne-CO2-N2, uniform field. Lengths in cm, momenta in
 * GeV/c, times in bins of 8 bunch crossings from the start of the TF.
 */
#ifndef SIMULATE_H
#define SIMULATE_H

#include <stddef.h>
#include <stdint.h>

#include "kerr.h"

#define SIM_NOISE 0xffffu        /* label of a digit no particle made */

struct sim_conf {
    uint64_t seed;
    uint32_t tracks;             /* 0 to 60000: labels are 16 bit */
    uint32_t orbits;             /* 1 to 147 */
    uint32_t bins;               /* collisions lie in the first so many; 0: the whole TF */
    uint32_t first_orbit, counter, run;
};

struct sim_particle {
    uint32_t collision;          /* 0xffffffff: none */
    int32_t charge, pdg;
    double mass, pt, phi, tgl;   /* at birth; tgl = pz / pt */
    double x, y, z, time;
    double ref[6];               /* x, y, z, px, py, pz where it first is in a sector; NaN: never */
    uint32_t digits, clusters, rows, flags;
    uint8_t row_seen[152];
};

struct sim_tf {
    uint32_t nparticles;
    struct sim_particle *particle;
    uint32_t ndigits;            /* canonical order */
    uint16_t *time, *charge;
    uint8_t *sector, *row, *pad;
    uint16_t *label;
    void *tf;                    /* the encoded TF */
    size_t tf_size;
};

/* Makes one TF. packet: K_LINKS packet counters that run on from TF to TF, or NULL. */
int simulate_tf(const struct sim_conf *c, uint8_t *packet, struct sim_tf *out, struct k_err *e);
void simulate_free(struct sim_tf *t);

/* The truth file (magic TPCTRU1): 8 u32 x6 particles, digits, clusters, 0, 0, 0; 32 records of 96
 * bytes; u16 label per digit; u16 label per cluster. `clusters` is the result of the stage cluster;
 * a cluster's label has the largest charge in the 3x3 digits around it, the smaller on ties. */
int simulate_truth(struct sim_tf *t, const void *clusters, void **out, size_t *size,
                   struct k_err *e);

/* ---- between the files of the simulator ---------------------------------------------------- */

/* An electron that arrived on a pad: signal in ADC counts before shaping. */
struct sim_electron {
    float time, signal;
    uint16_t label;
    uint8_t pad;
};

/* Electrons of a (sector, row), those of a particle together. */
struct sim_row {
    struct sim_electron *e;
    uint32_t n, room;
};

struct random;
/* Follows a particle; -1: out of memory. */
int sim_track(struct random *r, struct sim_particle *p, uint16_t label, struct sim_row *rows);
/* Electrons of all rows -> digits of t. */
int sim_digitise(struct random *r, struct sim_row *rows, uint32_t bins, struct sim_tf *t,
                 struct k_err *e);

#endif
