/* simulate.h - a TF made from the physics, with its truth */
#ifndef SIMULATE_H
#define SIMULATE_H

#include <stddef.h>
#include <stdint.h>

#include "kerr.h"
#include "pads.h"
#include "track.h"

enum { SIMULATE_MAX_TRACKS = 65000, SIMULATE_MAX_ORBITS = 128 };

/* What a TF is made of; the same conf gives the same bytes everywhere. */
struct simulate_conf {
    uint32_t tracks;             /* particles of the TF */
    uint32_t bins;               /* collisions lie in the bins [0, bins); 0: in the whole TF */
    uint32_t orbits;
    uint64_t seed;
    uint32_t tf;                 /* number of the TF, from 1 */
    uint32_t first_orbit, counter, run;
    double noise;                /* lone noise samples a pad and bin; SIMULATE_NOISE */
};
#define SIMULATE_NOISE 4.1e-6

struct simulate_tf {
    struct simulate_conf conf;
    uint32_t bins;               /* of the TF */
    uint32_t collisions;
    struct track_particle *particle;
    struct pads_digits digits;
};

/* All that follows the first returns 0 or -1. Memory of *tf: simulate_free(); of *out: free(). */
uint32_t simulate_bins(uint32_t orbits);
int simulate_run(const struct simulate_conf *c, struct simulate_tf *tf, struct k_err *e);
void simulate_free(struct simulate_tf *tf);

/* The TF as a file has it: pages, blocks, index. packet as in encode.h, or NULL. */
int simulate_encode(const struct simulate_tf *tf, uint8_t *packet, void **out, size_t *size,
                    struct k_err *e);
/* Its digits in the layout of result.h. */
int simulate_digits(const struct simulate_tf *tf, void **out, size_t *size, struct k_err *e);
/* The truth file: 0 char[8] "TPCTRU1"; 8 u32 x6 particles, digits, clusters, 0, 0, 0; 32 records of
 * 96 bytes (doc/simulate.md); u16 label of each digit; u16 label of each cluster. `clusters` is what
 * the stage cluster made of this TF. A cluster's label has the largest charge in the 3x3 cells around
 * its place, the smaller number on ties. */
int simulate_truth(const struct simulate_tf *tf, const void *clusters, size_t clusters_size,
                   void **out, size_t *size, struct k_err *e);
/* The encoded TF again with `blocks` blocks of another detector, `size` bytes in all. */
int simulate_pad(const void *tf, size_t tf_size, uint64_t size, uint64_t blocks, uint64_t seed,
                 void **out, struct k_err *e);

#endif
