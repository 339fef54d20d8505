/* event.c - collisions over a TF and their particles
 *
 * From: simulate.c.  To: track.c.
 * Nine particles of ten come from the collision, the tenth is born away from it: a decay or
 * conversion at the beam pipe and inner wall, or an electron of low energy in the gas.
 */
#include "event.h"

#define PI         3.141592653589793
#define PT_LEAST   0.1                       /* GeV; above it exponential */
#define PT_MEAN    0.45
#define ETA_MOST   0.9
#define VERTEX_Z   5.0                       /* deviation, cm */
#define PER_COLLISION 45

/* Slow heavy particles do not get to the gas: below pt_least they are taken to have had a little
 * more, up to 0.1 GeV above it. */
static const struct {
    double share;                            /* running sum */
    int pdg;                                 /* of the positive one */
    double mass, pt_least;
} kinds[] = {
    { 0.82, 211, 0.13957, 0.1 }, { 0.91, 321, 0.493677, 0.2 }, { 0.97, 2212, 0.938272, 0.3 },
    { 1.00, -11, 0.000510999, 0.1 },
};

static double between(struct sim_rng *r, double a, double b)
{
    return a + (b - a) * sim_uniform(r);
}

static void species(struct track_particle *p, unsigned kind, struct sim_rng *r)
{
    p->charge = sim_bits(r) >> 63 ? 1 : -1;
    p->pdg = p->charge * kinds[kind].pdg;
    p->mass = kinds[kind].mass;
}

/* Each number in a statement of its own: in what order arguments are evaluated is up to the compiler. */
static void direction(struct track_particle *p, double eta_most, struct sim_rng *r)
{
    p->phi = between(r, 0, 2 * PI);
    double eta = between(r, -eta_most, eta_most);
    p->tanl = 0.5 * (sim_exp(eta) - sim_exp(-eta));
}

static void primary(struct track_particle *p, struct sim_rng *r)
{
    double u = sim_uniform(r);
    unsigned kind = 0;

    while (kind < 3 && u > kinds[kind].share)
        kind++;
    species(p, kind, r);
    p->pt = PT_LEAST + PT_MEAN * sim_exponential(r);
    if (p->pt < kinds[kind].pt_least)
        p->pt = kinds[kind].pt_least + between(r, 0, 0.1);
    direction(p, ETA_MOST, r);
}

/* A decay or conversion before the gas: about in the direction of flight. */
static void early(struct track_particle *p, const struct sim_normal *t, struct sim_rng *r)
{
    double from = between(r, 2, 60), phi, s, c;

    primary(p, r);
    phi = p->phi + 0.2 * sim_normal(t, r);
    sim_sincos(phi, &s, &c);
    p->x = from * c;
    p->y = from * s;
    p->z += from * p->tanl;
}

/* An electron of some MeV set free in the gas. */
static void late(struct track_particle *p, struct sim_rng *r)
{
    double from = between(r, 85, 220), phi = between(r, 0, 2 * PI), s, c;

    species(p, 3, r);
    p->pt = between(r, 0.01, 0.075);
    direction(p, 1, r);
    sim_sincos(phi, &s, &c);
    p->x = from * c;
    p->y = from * s;
    p->z = between(r, -220, 220);
}

uint32_t event_make(struct track_particle *p, uint32_t n, uint32_t bins,
                    const struct sim_normal *t, struct sim_rng *r)
{
    uint32_t collisions = n > 0 ? (n + PER_COLLISION / 2) / PER_COLLISION : 0, i = 0, tenth = 0;

    if (n > 0 && collisions == 0)
        collisions = 1;
    for (uint32_t k = 0; k < collisions; k++) {
        double z = VERTEX_Z * sim_normal(t, r), time = between(r, 0, bins);
        /* What is left is shared evenly on the average; a collision has 0.2 to 1.8 of it. */
        double share = (n - i) / (double)(collisions - k);
        uint32_t to = k + 1 == collisions ? n : i + (uint32_t)(share * between(r, 0.2, 1.8));
        for (; i < to && i < n; i++) {
            p[i] = (struct track_particle){ .collision = k, .z = z, .time = time };
            if (i % 10 == 0)
                tenth = i + sim_below(r, 10);
            p[i].away = i == tenth && i / 10 * 10 + 10 <= n;
            if (!p[i].away)
                primary(&p[i], r);
            else if (sim_uniform(r) < 0.4)
                late(&p[i], r);
            else
                early(&p[i], t, r);
        }
    }
    return collisions;
}
