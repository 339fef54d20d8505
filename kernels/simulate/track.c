/* track.c - one charged particle through the gas: electrons on pads
 *
 * From: simulate.c.  To: digitise.c.
 * The particle goes in steps of about 2 mm along its helix; each step ionises in clusters, and
 * every electron drifts, diffuses, may be lost, is amplified and lands on one pad. Numbers: see
 * simulate.h; ALEPH form of the ionisation with the parameters of the gas.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "../kdef.h"
#include "../ktypes.h"
#include "../kgeo.h"

#include "random.h"
#include "simulate.h"

static const double drift_length = 250, drift_speed = 2.58, bin_us = 8 * 10 / 400.789;
static const double curvature = 0.000299792458 * -5.00668;     /* of q/pt, per cm */
static const double inner = 83.5, outer = 250, length_max = 1500;

struct flight {
    double x, y, z, px, py, pz;
    double length;
};

/* Primary collisions relative to a minimum ionising particle. */
static double ionisation(double beta_gamma)
{
    double b = beta_gamma / sqrt(1 + beta_gamma * beta_gamma), bb = pow(b, 2.05873);
    double v = (9.94795 - bb - log(8.97292e-5 + pow(beta_gamma, -1.65272))) * 0.0820172 / bb;
    return v < 60 ? v : 60;
}

/* Energy given in one collision, eV: falls with the power -2.2 between 20.77 eV and 10 keV. */
static double collision_energy(struct random *r)
{
    const double lo = pow(20.77, -1.2), hi = pow(10000, -1.2);
    return pow(lo + random_unit(r) * (hi - lo), -1 / 1.2);
}

static int add(struct sim_row *row, const struct sim_electron *e)
{
    if (row->n == row->room) {
        uint32_t more = row->room ? row->room * 2 : 256;
        struct sim_electron *p = realloc(row->e, more * sizeof *p);
        if (p == NULL)
            return -1;
        row->e = p;
        row->room = more;
    }
    row->e[row->n++] = *e;
    return 0;
}

static int row_of(double x)
{
    static const double half[10] = { .375, .375, .375, .375, .5, .5, .6, .6, .75, .75 };
    double cm1000 = x * 1000;
    for (int g = 0; g < 10; g++) {
        int first = kgeo_region_row[g], n = kgeo_region_row[g + 1] - first;
        int i = (int)floor((cm1000 - kgeo_radius[first]) / (2000 * half[g]) + 0.5);
        if (cm1000 > kgeo_radius[first] - 1000 * half[g] && i >= 0 && i < n)
            return first + i;
    }
    return -1;
}

/* Sector, row and pad at a point of the readout plane; false outside. */
static bool pad_of(double x, double y, bool side_c, unsigned *sector, unsigned *row, unsigned *pad)
{
    double phi = atan2(y, x);
    if (phi < 0)
        phi += 2 * M_PI;
    unsigned s = (unsigned)(phi / (M_PI / 9)) % 18;
    double a = (10 + 20.0 * s) * M_PI / 180, lx = x * cos(a) + y * sin(a);
    double ly = y * cos(a) - x * sin(a), u = side_c ? -ly : ly;
    int r = row_of(lx), g = 0;

    if (r < 0)
        return false;
    while (r >= kgeo_region_row[g + 1])
        g++;
    double p = floor(u / (kgeo_width[g] / 1000.0) + kgeo_pads[r] / 2.0);
    if (p < 0 || p >= kgeo_pads[r])
        return false;
    *sector = s + (side_c ? 18 : 0);
    *row = (unsigned)r;
    *pad = (unsigned)p;
    return true;
}

/* One electron freed at (x, y, z) at `time`. */
static int drift(struct random *r, double x, double y, double z, double time, uint16_t label,
                 struct sim_particle *p, struct sim_row *rows)
{
    bool side_c = z < 0;
    double l = drift_length - fabs(z), us = (l < 0.01 ? 0.01 : l) / drift_speed;
    double root = sqrt(l < 0.01 ? 0.01 : l);
    unsigned sector, row, pad;

    if (random_unit(r) < 250 * 5e-6 * us || random_unit(r) > 0.528)
        return 0;
    x += 0.0209 * root * random_gauss(r);
    y += 0.0209 * root * random_gauss(r);
    l += 0.0221 * root * random_gauss(r);
    double gain = 2000 / 0.528 * random_gamma(r, 1.205);
    if (!pad_of(x, y, side_c, &sector, &row, &pad))
        return 0;
    struct sim_electron e = { (float)(time + l / drift_speed / bin_us), (float)(gain / 670.5),
                              label, (uint8_t)pad };
    p->row_seen[row] = 1;
    return add(&rows[K_ROWS * sector + row], &e);
}

static bool in_gas(const struct flight *f)
{
    double r = hypot(f->x, f->y);
    return r > inner && r < outer;
}

/* Ionises along a step; *lost = energy in GeV. */
static int ionise(struct random *r, const struct flight *a, const struct flight *b, double step,
                  double beta_gamma, uint16_t label, struct sim_particle *p, struct sim_row *rows,
                  double *lost)
{
    unsigned n = random_poisson(r, step * 14 * ionisation(beta_gamma));
    double sum = 0;

    for (unsigned i = 0; i < n; i++) {
        double energy = collision_energy(r), w = random_unit(r);
        unsigned electrons = (unsigned)((energy - 20.77) / 37.3) + 1;
        sum += energy;
        for (unsigned k = 0; k < electrons && k < 300; k++) {
            if (drift(r, a->x + w * (b->x - a->x), a->y + w * (b->y - a->y),
                      a->z + w * (b->z - a->z), p->time, label, p, rows) < 0)
                return -1;
        }
    }
    *lost = sum * 1e-9;
    return 0;
}

/* Deflection by multiple scattering over a step of gas (radiation length 28811.7 cm). */
static void scatter(struct random *r, struct flight *f, double mom, double beta, double step)
{
    double theta = 0.0136 / (beta * mom) * sqrt(step / 28811.7);
    f->px += mom * theta * random_gauss(r);
    f->py += mom * theta * random_gauss(r);
    f->pz += mom * theta * random_gauss(r);
    double k = mom / sqrt(f->px * f->px + f->py * f->py + f->pz * f->pz);
    f->px *= k;
    f->py *= k;
    f->pz *= k;
}

static void advance(struct flight *f, int charge, double step)
{
    double pt = hypot(f->px, f->py), mom = sqrt(pt * pt + f->pz * f->pz);
    double st = step * pt / mom, turn = -charge * curvature * st / pt;
    double c = cos(turn / 2), s = sin(turn / 2);
    /* the chord has the direction half way, and is shorter than the arc by sin(x)/x */
    double chord = fabs(turn) > 1e-9 ? st * sin(turn / 2) / (turn / 2) : st;

    f->x += chord * (f->px * c - f->py * s) / pt;
    f->y += chord * (f->py * c + f->px * s) / pt;
    f->z += step * f->pz / mom;
    c = cos(turn);
    s = sin(turn);
    double px = f->px * c - f->py * s;
    f->py = f->py * c + f->px * s;
    f->px = px;
    f->length += step;
}

static void reference(struct sim_particle *p, const struct flight *f)
{
    unsigned sector, row, pad;
    const double at[6] = { f->x, f->y, f->z, f->px, f->py, f->pz };

    if ((p->flags & 2) == 0 && pad_of(f->x, f->y, f->z < 0, &sector, &row, &pad)) {
        memcpy(p->ref, at, sizeof at);
        p->flags |= 2;
    }
}

int sim_track(struct random *r, struct sim_particle *p, uint16_t label, struct sim_row *rows)
{
    struct flight f = { p->x, p->y, p->z, p->pt * cos(p->phi), p->pt * sin(p->phi),
                        p->pt * p->tgl, 0 };

    for (int i = 0; i < 6; i++)
        p->ref[i] = NAN;
    while (f.length < length_max && fabs(f.z) < drift_length && hypot(f.x, f.y) < outer) {
        double mom = sqrt(f.px * f.px + f.py * f.py + f.pz * f.pz), bg = mom / p->mass;
        double beta = bg / sqrt(1 + bg * bg), lost = 0;
        double step = 0.15 + 0.1 * random_unit(r);
        struct flight before = f;
        if (!in_gas(&f)) {
            advance(&f, p->charge, 0.2);
            continue;
        }
        reference(p, &f);
        advance(&f, p->charge, step);
        if (ionise(r, &before, &f, step, bg, label, p, rows, &lost) < 0)
            return -1;
        double energy = sqrt(mom * mom + p->mass * p->mass) - lost;
        if (energy <= p->mass * 1.0001 + 1e-5)
            break;               /* it stops */
        double k = sqrt(energy * energy - p->mass * p->mass) / mom;
        f.px *= k;
        f.py *= k;
        f.pz *= k;
        scatter(r, &f, mom * k, beta, step);
    }
    for (int i = 0; i < 152; i++)
        p->rows += p->row_seen[i];
    return 0;
}
