/* track.c - a particle through the gas
 *
 * From: event.c.  To: pads.c.
 * The particle goes in steps of about 2 mm on a helix; in the gas its direction changes by
 * multiple scattering and it loses the energy that it gives to the gas. Each electron drifts by
 * itself: it may get lost, is spread by diffusion, is amplified and lands on one pad.
 */
#include "track.h"

#include <math.h>

#define PI            3.141592653589793
#define CURVE         (-TRACK_BZ * 0.000299792458)    /* 1/cm for q/pt = 1 c/GeV */
#define GAS_FROM      83.5                   /* radius of the gas, cm */
#define GAS_TO        258.0
#define RADIATION     28811.7                /* cm */
#define PER_CM        14.0                   /* collisions of a minimum ionising particle */
#define FIRST_EV      20.77                  /* a collision's least energy */
#define ELECTRON_EV   37.3                   /* energy an electron */
#define MOST_EV       1e4
#define SPECTRUM      2.2                    /* energies go as E^-2.2 */
#define MOST_ELECTRONS 300
#define SPREAD_ACROSS 0.0209                 /* cm for 1 cm of drift */
#define SPREAD_ALONG  0.0221
#define VELOCITY      2.58                   /* cm/us */
#define ATTACHED      (250 * 5e-6)           /* electrons lost a us */
#define SURVIVE       0.528                  /* the amplification */
#define GAIN_SHAPE    1.205
#define COUNTS        (2000 / 670.5 / SURVIVE)        /* mean of an electron that survives */
#define TAN10         0.17632698070846498
#define STOP_GEV      1e-4                   /* kinetic energy */

struct state {
    double x, y, z, c, s, tanl, p;           /* c, s: cosine and sine of the direction across */
    double turned;
};

struct sector_turn {
    double c[18], s[18];
};

/* cos and sin of 10 degrees + 20 degrees i. */
static void turns_init(struct sector_turn *t)
{
    for (int i = 0; i < 18; i++)
        sim_sincos(PI * (10 + 20 * i) / 180, &t->s[i], &t->c[i]);
}

/* The parametrisation of the energy loss that ALEPH used; 1 at its minimum. */
static double bethe(double beta_gamma)
{
    double b = beta_gamma / sqrt(1 + beta_gamma * beta_gamma), bp = sim_pow(b, 2.05873);

    return 0.0820172 / bp *
           (9.94795 - bp - sim_log(8.97292e-5 + sim_pow(beta_gamma, -1.65272)));
}

double track_collisions(double beta_gamma, int charge)
{
    return PER_CM * charge * charge * bethe(beta_gamma);
}

/* Along the helix by `path`: the chord lies half the turn further; a turn is small. */
static void move(struct state *a, int charge, double path)
{
    double cosl = 1 / sqrt(1 + a->tanl * a->tanl), across = path * cosl;
    double h = 0.5 * charge * CURVE / (a->p * cosl) * across, q = h * h;
    double sh = h * (1 - q / 6 * (1 - q / 20 * (1 - q / 42)));
    double ch = 1 - q / 2 * (1 - q / 12 * (1 - q / 30));
    double c = a->c * ch - a->s * sh, s = a->s * ch + a->c * sh;
    double chord = across * (1 - q / 6 * (1 - q / 20 * (1 - q / 42)));

    a->x += chord * c;
    a->y += chord * s;
    a->z += across * a->tanl;
    a->c = c * ch - s * sh;
    a->s = s * ch + c * sh;
    double norm = 1.5 - 0.5 * (a->c * a->c + a->s * a->s);
    a->c *= norm;
    a->s *= norm;
    a->turned += 2 * (h < 0 ? -h : h);
}

/* Highland's formula; its logarithm, which does not add up over steps, is taken at 1 m. */
static void scatter(struct state *a, double mass, double path, const struct sim_normal *t,
                    struct sim_rng *r)
{
    double beta = a->p / sqrt(a->p * a->p + mass * mass);
    double wide = 0.0136 * 0.785 / (beta * a->p) * sqrt(path / RADIATION);
    double u = 1 + a->tanl * a->tanl, d = wide * sqrt(u) * sim_normal(t, r), sd, cd;

    sim_sincos(d, &sd, &cd);
    double c = a->c * cd - a->s * sd;
    a->s = a->s * cd + a->c * sd;
    a->c = c;
    a->tanl += wide * u * sim_normal(t, r);
}

/* The energy of one collision, eV: E^-2.2 between its limits. */
static double collision(struct sim_rng *r)
{
    double far = 1 - sim_pow(MOST_EV / FIRST_EV, 1 - SPECTRUM);
    return FIRST_EV * sim_pow(1 - far * sim_uniform(r), 1 / (1 - SPECTRUM));
}

static int sector_of(const struct sector_turn *st, int now, double x, double y)
{
    double best = st->c[now] * x + st->s[now] * y;
    double across = st->c[now] * y - st->s[now] * x;

    if (best > 0 && (across < 0 ? -across : across) <= best * TAN10)
        return now;
    for (int i = 0; i < 18; i++) {
        double along = st->c[i] * x + st->s[i] * y;
        if (along > best) {
            best = along;
            now = i;
        }
    }
    return now;
}

/* Where a collision's electrons come from. */
struct cloud {
    const struct sim_normal *t;
    struct sim_rng *r;
    struct pads *pads;
    uint16_t label;
    double time;
    int sector;                              /* 0 to 17, whatever the side */
};

static void electrons(const struct cloud *k, const struct sector_turn *st, double x, double y,
                      double z, unsigned n)
{
    double c = st->c[k->sector], s = st->s[k->sector];
    double lx = c * x + s * y, ly = c * y - s * x, drift = TRACK_LENGTH - (z < 0 ? -z : z);
    double root = sqrt(drift > 0.01 ? drift : 0.01), live = SURVIVE * (1 - ATTACHED * drift / VELOCITY);

    while (n-- > 0) {
        uint32_t row, pad;
        if (sim_uniform(k->r) > live)
            continue;
        double ex = lx + SPREAD_ACROSS * root * sim_normal(k->t, k->r);
        double ey = ly + SPREAD_ACROSS * root * sim_normal(k->t, k->r);
        double path = drift + SPREAD_ALONG * root * sim_normal(k->t, k->r);
        if (pads_find(ex, ey, z < 0, &row, &pad) < 0)
            continue;
        double counts = COUNTS / GAIN_SHAPE * sim_gamma(k->t, k->r, GAIN_SHAPE);
        pads_add(k->pads, (uint32_t)(k->sector + (z < 0 ? 18 : 0)), row, pad,
                 k->time + path / TRACK_DRIFT, (float)counts, k->label);
    }
}

/* One step from a to b in the gas: collisions anywhere on it. Returns the energy left there, GeV. */
static double ionise(struct cloud *k, const struct sector_turn *st, const struct state *a,
                     const struct state *b, double mass, int charge, double path)
{
    unsigned n = sim_poisson(k->r, path * track_collisions(a->p / mass, charge));
    double ev = 0;

    for (unsigned i = 0; i < n; i++) {
        double f = sim_uniform(k->r), e = collision(k->r);
        double many = floor((e - FIRST_EV) / ELECTRON_EV) + 1;
        ev += e;
        electrons(k, st, a->x + f * (b->x - a->x), a->y + f * (b->y - a->y),
                  a->z + f * (b->z - a->z), many > MOST_ELECTRONS ? MOST_ELECTRONS : (unsigned)many);
    }
    return ev * 1e-9;
}

static void note_ref(struct track_particle *p, const struct state *a, const struct sector_turn *st,
                     int sector)
{
    double c = st->c[sector], s = st->s[sector];
    double lx = c * a->x + s * a->y, ly = c * a->y - s * a->x;
    double pt = a->p / sqrt(1 + a->tanl * a->tanl);
    uint32_t row, pad;

    if (pads_find(lx, ly, a->z < 0, &row, &pad) < 0)
        return;
    const double ref[6] = { a->x, a->y, a->z, pt * a->c, pt * a->s, pt * a->tanl };
    for (int i = 0; i < 6; i++)
        p->ref[i] = ref[i];
    p->has_ref = true;
}

/* The momentum after `gev` have gone; false when it stops. */
static bool slow_down(struct state *a, double mass, double gev)
{
    double energy = sqrt(a->p * a->p + mass * mass) - gev;

    if (energy < mass + STOP_GEV)
        return false;
    a->p = sqrt(energy * energy - mass * mass);
    return true;
}

void track_follow(struct track_particle *p, uint16_t label, const struct sim_normal *t,
                  struct sim_rng *r, struct pads *pads)
{
    struct state a = { .x = p->x, .y = p->y, .z = p->z, .tanl = p->tanl,
                       .p = p->pt * sqrt(1 + p->tanl * p->tanl) };
    struct cloud k = { .t = t, .r = r, .pads = pads, .label = label, .time = p->time };
    struct sector_turn st;

    turns_init(&st);
    sim_sincos(p->phi, &a.s, &a.c);
    while (a.turned < TRACK_TURNS * 2 * PI && a.z < TRACK_LENGTH && a.z > -TRACK_LENGTH) {
        double r2 = a.x * a.x + a.y * a.y, path = 0.15 + 0.1 * sim_uniform(r);
        struct state b = a;
        if (r2 > GAS_TO * GAS_TO)
            return;
        if (r2 < (GAS_FROM - 1) * (GAS_FROM - 1))
            path = 0.5;
        move(&b, p->charge, path);
        if (r2 >= GAS_FROM * GAS_FROM) {
            k.sector = sector_of(&st, k.sector, a.x, a.y);
            if (!p->has_ref)
                note_ref(p, &a, &st, k.sector);
            double gev = ionise(&k, &st, &a, &b, p->mass, p->charge, path);
            scatter(&b, p->mass, path, t, r);
            if (!slow_down(&b, p->mass, gev))
                return;
        }
        a = b;
    }
}
