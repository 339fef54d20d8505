/* track.h - a particle through the gas: helix, scattering, energy loss, electrons to the pads */
#ifndef TRACK_H
#define TRACK_H

#include <stdint.h>

#include "pads.h"
#include "sim_rng.h"

/* Global frame, cm and GeV; the drift field is along z, the magnetic field too. */
struct track_particle {
    uint32_t collision;
    int charge, pdg;
    double mass, pt, phi, tanl;              /* at birth */
    double x, y, z;                          /* of birth */
    double time;                             /* of the collision, bins */
    bool away;                               /* born away from the collision */
    bool has_ref;                            /* what follows is set */
    double ref[6];                           /* x y z px py pz where it first is over a pad */
};

/* What the simulation is made with (sources: doc/simulate.md). */
#define TRACK_BZ       -5.00668              /* kG */
#define TRACK_DRIFT    0.514984              /* cm a bin */
#define TRACK_LENGTH   250.0                 /* cm */
#define TRACK_TURNS    4                     /* of 2 pi: then a looper is given up */

/* Follows p, whose ref is filled, and puts its electrons on the pads under that label. */
void track_follow(struct track_particle *p, uint16_t label, const struct sim_normal *t,
                  struct sim_rng *r, struct pads *pads);

/* Collisions a cm with the gas, for momentum over mass. */
double track_collisions(double beta_gamma, int charge);

#endif
