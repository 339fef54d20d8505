/* simulate.c - a TF from nothing: particles, digits, truth
 *
 * From: cmd_simulate.c, tests.  To: track.c, digitise.c, encode.c.
 */
#include "simulate.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "encode.h"
#include "random.h"

enum { TRACKS_MAX = 60000, PER_COLLISION = 36 };

struct collision {
    double z, time;
};

/* Slow heavy ones do not reach the gas: the material before it stops them. */
static const struct { int pdg; double mass, part, pt_min; } species[] = {
    { 211, 0.13957, 0.82, 0.1 }, { 321, 0.49368, 0.09, 0.2 }, { 2212, 0.93827, 0.06, 0.3 },
    { 11, 0.000510999, 0.03, 0.1 },
};
enum { SPECIES = sizeof species / sizeof species[0] };

/* A track of a collision. */
static void primary(struct random *r, struct sim_particle *p, const struct collision *c)
{
    double u = random_unit(r), eta = 1.8 * random_unit(r) - 0.9;
    unsigned s = 0;

    while (s + 1 < SPECIES && u >= species[s].part)
        u -= species[s++].part;
    p->charge = random_unit(r) < 0.5 ? 1 : -1;
    /* the negative lepton has the positive number */
    p->pdg = (species[s].pdg == 11 ? -p->charge : p->charge) * species[s].pdg;
    p->mass = species[s].mass;
    p->pt = species[s].pt_min + random_exp(r, 0.45);
    p->phi = 2 * M_PI * random_unit(r);
    p->tgl = sinh(eta);
    p->z = c->z;
    p->time = c->time;
}

/* A daughter of a decay, born away from the beam. */
static void secondary(struct random *r, struct sim_particle *p, const struct collision *c)
{
    primary(r, p, c);
    double radius = 3 + random_exp(r, 30), slope = p->tgl;
    p->x = radius * cos(p->phi);
    p->y = radius * sin(p->phi);
    p->z += radius * slope;
    p->phi += 0.3 * random_gauss(r);
    p->flags |= 1;
}

/* A slow electron set free in the gas or the wall: it curls. */
static void curler(struct random *r, struct sim_particle *p, const struct collision *c)
{
    double phi = 2 * M_PI * random_unit(r), radius = 84 + 140 * random_unit(r);

    p->charge = random_unit(r) < 0.5 ? 1 : -1;
    p->pdg = -p->charge * 11;
    p->mass = 0.000510999;
    p->pt = 0.01 + 0.065 * random_unit(r);
    p->phi = 2 * M_PI * random_unit(r);
    p->tgl = 0.4 * random_gauss(r);
    p->x = radius * cos(phi);
    p->y = radius * sin(phi);
    p->z = 400 * random_unit(r) - 200;
    p->time = c->time;
    p->flags |= 1;
}

static int particles(struct random *r, const struct sim_conf *c, uint32_t bins, struct sim_tf *t,
                     struct sim_row *rows, struct k_err *e)
{
    uint32_t n = c->tracks / PER_COLLISION + (c->tracks > 0);
    struct collision *col = calloc(n + 1, sizeof *col);
    int ret = 0;

    t->particle = calloc((size_t)c->tracks + 1, sizeof *t->particle);
    if (col == NULL || t->particle == NULL) {
        free(col);
        return k_fail(e, K_ENOMEM, "no memory for %" PRIu32 " particles", c->tracks);
    }
    for (uint32_t i = 0; i < n; i++)
        col[i] = (struct collision){ 4.2 * random_gauss(r), random_unit(r) * bins };
    for (uint32_t i = 0; i < c->tracks && ret == 0; i++) {
        struct sim_particle *p = &t->particle[i];
        p->collision = (uint32_t)((uint64_t)i * n / c->tracks);
        double u = random_unit(r);
        if (u < 0.04)
            curler(r, p, &col[p->collision]);
        else if (u < 0.10)
            secondary(r, p, &col[p->collision]);
        else
            primary(r, p, &col[p->collision]);
        if (sim_track(r, p, (uint16_t)i, rows) < 0)
            ret = k_fail(e, K_ENOMEM, "no memory for the electrons of %" PRIu32 " tracks", i);
        t->nparticles++;
    }
    free(col);
    return ret;
}

int simulate_tf(const struct sim_conf *c, uint8_t *packet, struct sim_tf *out, struct k_err *e)
{
    struct random r = { c->seed * UINT64_C(0x2545f4914f6cdd1d) + c->counter };
    uint32_t bins = (c->orbits * K_ORBIT_BC + K_BIN_BC - 1) / K_BIN_BC;
    struct sim_tf t = { 0 };
    int ret = -1;

    if (c->tracks > TRACKS_MAX)
        return k_fail(e, K_EOPTION, "%" PRIu32 " tracks, want at most %d", c->tracks, TRACKS_MAX);
    if (c->orbits == 0 || c->orbits > 147)
        return k_fail(e, K_EOPTION, "%" PRIu32 " orbits, want 1 to 147", c->orbits);
    struct sim_row *rows = calloc(K_SECTORS * K_ROWS, sizeof *rows);
    if (rows == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    if (particles(&r, c, c->bins && c->bins < bins ? c->bins : bins, &t, rows, e) < 0 ||
        sim_digitise(&r, rows, bins, &t, e) < 0)
        goto out;
    for (uint32_t i = 0; i < t.ndigits; i++) {
        if (t.label[i] != SIM_NOISE)
            t.particle[t.label[i]].digits++;
    }
    struct encode_digits d = { t.ndigits, t.time, t.charge, t.sector, t.row, t.pad };
    struct encode_tf et = { .orbits = c->orbits, .first_orbit = c->first_orbit,
                            .counter = c->counter, .run = c->run, .packet = packet };
    ret = encode_tf(&d, &et, &t.tf, &t.tf_size, e);
out:
    for (unsigned i = 0; i < K_SECTORS * K_ROWS; i++)
        free(rows[i].e);
    free(rows);
    if (ret < 0)
        simulate_free(&t);
    else
        *out = t;
    return ret;
}

void simulate_free(struct sim_tf *t)
{
    free(t->particle);
    free(t->time);
    free(t->charge);
    free(t->label);
    free(t->sector);
    free(t->row);
    free(t->pad);
    free(t->tf);
    *t = (struct sim_tf){ 0 };
}
