/* pads.c - electrons at the pads -> digits
 *
 * From: track.c.  To: simulate.c.
 * Electrons are kept by pad row, in the order of the particles, until all are there; then one row
 * after the other goes through the electronics on a grid of pads and bins. The sums are taken in
 * one fixed order, so a seed gives the same digits everywhere.
 */
#include "pads.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../kgeo.h"

enum { ROWS = K_SECTORS * K_ROWS, CHUNK = 126, FINE = 256, PULSE = 8, FULL = 4092 };

#define SHAPING_BINS (160.0 / (8 * 1e4 / 400.789))    /* 160 ns in time bins */
#define NOISE_START  3.125                            /* counts: lone samples begin here */
#define NOISE_DECAY  1.05

struct electron {
    uint32_t when;               /* in 1/256 bin */
    float counts;
    uint16_t label;
    uint8_t pad;
};

struct chunk {
    struct chunk *next;
    uint32_t n;
    struct electron e[CHUNK];
};

struct cell {
    float sum, best, now;        /* of all; of the strongest particle; of the present one */
    uint16_t label;
};

struct pads {
    uint32_t bins;
    bool failed;                 /* out of memory */
    struct chunk *first[ROWS], *last[ROWS];
    float pulse[FINE][PULSE];
    struct cell *cell;           /* pads x bins of one row */
    uint64_t *used;              /* one bit a cell */
    uint32_t *now;               /* cells of the present particle */
    uint32_t n_now, now_room;
};

/* 55 A x^4 e^(-4x), x = (t - t0) / 160 ns, at the starts of the bins from the electron's on. */
static void pulse_init(struct pads *p)
{
    for (int f = 0; f < FINE; f++) {
        for (int k = 0; k < PULSE; k++) {
            double x = (k - (f + 0.5) / FINE) / SHAPING_BINS;
            p->pulse[f][k] = x > 0 ? (float)(55 * x * x * x * x * sim_exp(-4 * x)) : 0;
        }
    }
}

struct pads *pads_create(uint32_t bins)
{
    struct pads *p = calloc(1, sizeof *p);
    size_t cells = (size_t)K_PAD_ROOM * bins;

    if (p == NULL)
        return NULL;
    p->bins = bins;
    p->cell = calloc(cells, sizeof *p->cell);
    p->used = calloc(cells / 64 + 1, sizeof *p->used);
    if (p->cell == NULL || p->used == NULL) {
        pads_destroy(p);
        return NULL;
    }
    pulse_init(p);
    return p;
}

static void row_free(struct pads *p, uint32_t row)
{
    for (struct chunk *c = p->first[row], *next; c; c = next) {
        next = c->next;
        free(c);
    }
    p->first[row] = p->last[row] = NULL;
}

void pads_destroy(struct pads *p)
{
    if (p == NULL)
        return;
    for (uint32_t row = 0; row < ROWS; row++)
        row_free(p, row);
    free(p->cell);
    free(p->used);
    free(p->now);
    free(p);
}

int pads_find(double x, double y, bool side_c, uint32_t *row, uint32_t *pad)
{
    static const struct { uint8_t first, rows; double from, height; } stack[4] = {
        { 0, 63, 84.85, 0.75 }, { 63, 34, 134.7, 1.0 }, { 97, 30, 170.8, 1.2 },
        { 127, 25, 208.9, 1.5 },
    };
    int s = x < 134.7 ? 0 : x < 170.8 ? 1 : x < 208.9 ? 2 : 3;
    double k = floor((x - stack[s].from) / stack[s].height);

    if (!(k >= 0) || k >= stack[s].rows)
        return -1;
    uint32_t r = stack[s].first + (uint32_t)k, g = 0;
    while (r >= kgeo_region_row[g + 1])
        g++;
    double q = floor((side_c ? -y : y) / (kgeo_width[g] / 1000.0) + 0.5 * kgeo_pads[r]);
    if (!(q >= 0) || q >= kgeo_pads[r])
        return -1;
    *row = r;
    *pad = (uint32_t)q;
    return 0;
}

void pads_add(struct pads *p, uint32_t sector, uint32_t row, uint32_t pad, double when,
              float counts, uint16_t label)
{
    uint32_t i = sector * K_ROWS + row;
    struct chunk *c = p->last[i];

    if (!(when >= 0) || when >= p->bins)
        return;
    if (c == NULL || c->n == CHUNK) {
        c = malloc(sizeof *c);
        if (c == NULL) {
            p->failed = true;
            return;
        }
        c->next = NULL;
        c->n = 0;
        if (p->last[i])
            p->last[i]->next = c;
        else
            p->first[i] = c;
        p->last[i] = c;
    }
    c->e[c->n++] = (struct electron){ (uint32_t)(when * FINE), counts, label, (uint8_t)pad };
}

void pads_digits_free(struct pads_digits *d)
{
    free(d->time);
    free(d->charge);
    free(d->label);
    free(d->sector);
    free(d->row);
    free(d->pad);
    *d = (struct pads_digits){ 0 };
}

static int grow(void *array, size_t each, uint32_t room)
{
    void **a = array, *p = realloc(*a, each * room);

    if (p == NULL)
        return -1;
    *a = p;
    return 0;
}

int pads_digits_more(struct pads_digits *d, struct k_err *e)
{
    uint32_t room = d->room + d->room / 2 + 4096;

    if (d->n < d->room)
        return 0;
    if (room < d->room || grow(&d->time, 2, room) < 0 || grow(&d->charge, 2, room) < 0 ||
        grow(&d->label, 2, room) < 0 || grow(&d->sector, 1, room) < 0 ||
        grow(&d->row, 1, room) < 0 || grow(&d->pad, 1, room) < 0)
        return k_fail(e, K_ENOMEM, "no memory for more than %u digits", d->n);
    d->room = room;
    return 0;
}

/* The present particle's cells join the sums; of equal shares the earlier particle's counts. */
static void particle_end(struct pads *p, uint16_t label)
{
    for (uint32_t i = 0; i < p->n_now; i++) {
        struct cell *c = &p->cell[p->now[i]];
        c->sum += c->now;
        if (c->now > c->best) {
            c->best = c->now;
            c->label = label;
        }
        c->now = 0;
    }
    p->n_now = 0;
}

static int electron_shape(struct pads *p, const struct electron *x)
{
    uint32_t bin = x->when / FINE, end = bin + PULSE < p->bins ? bin + PULSE : p->bins;
    const float *pulse = p->pulse[x->when % FINE];

    if (p->n_now + PULSE > p->now_room) {
        uint32_t room = p->now_room * 2 + 4096;
        if (grow(&p->now, sizeof *p->now, room) < 0)
            return -1;
        p->now_room = room;
    }
    for (uint32_t b = bin + 1; b < end; b++) {
        uint32_t at = x->pad * p->bins + b;
        struct cell *c = &p->cell[at];
        if (c->now == 0)
            p->now[p->n_now++] = at;
        c->now += x->counts * pulse[b - bin];
        p->used[at / 64] |= UINT64_C(1) << at % 64;
    }
    return 0;
}

static int row_sum(struct pads *p, uint32_t row)
{
    uint16_t label = 0;

    for (struct chunk *c = p->first[row]; c; c = c->next) {
        for (uint32_t i = 0; i < c->n; i++) {
            if (c->e[i].label != label) {
                particle_end(p, label);
                label = c->e[i].label;
            }
            if (electron_shape(p, &c->e[i]) < 0)
                return -1;
        }
    }
    particle_end(p, label);
    row_free(p, row);
    return 0;
}

/* Lone samples where no particle left anything: pick-up, with an exponential spectrum. */
static void row_noise(struct pads *p, struct sim_rng *r, uint32_t pads, double noise)
{
    unsigned n = sim_poisson(r, noise * pads * p->bins);

    while (n-- > 0) {
        uint32_t at = sim_below(r, pads * p->bins);
        double counts = NOISE_START + NOISE_DECAY * sim_exponential(r);
        if (p->used[at / 64] >> at % 64 & 1)
            continue;
        p->used[at / 64] |= UINT64_C(1) << at % 64;
        p->cell[at] = (struct cell){ .sum = (float)counts, .label = PADS_NOISE };
    }
}

/* A pad's noise: deviation 1 count, 5 % from pad to pad, cut to 0.8 .. 1.4; the same in all TFs. */
static void row_sigma(const struct sim_normal *t, uint64_t seed, uint32_t row, double *sigma)
{
    struct sim_rng r;

    sim_rng_init(&r, seed, 0, 3, row);
    for (uint32_t i = 0; i < K_PAD_ROOM; i++) {
        double s = 1 + 0.05 * sim_normal(t, &r);
        sigma[i] = s < 0.8 ? 0.8 : s > 1.4 ? 1.4 : s;
    }
}

static int cell_digit(const struct cell *c, double noise, double cut, uint32_t row, uint32_t pad,
                      uint32_t bin, struct pads_digits *d, struct k_err *e)
{
    double counts = c->sum + noise;

    if (counts < cut)
        return 0;
    if (pads_digits_more(d, e) < 0)
        return -1;
    double q = floor(4 * counts + 0.5);
    d->time[d->n] = (uint16_t)bin;
    d->charge[d->n] = q > FULL ? FULL : (uint16_t)q;
    d->label[d->n] = c->label;
    d->sector[d->n] = (uint8_t)(row / K_ROWS);
    d->row[d->n] = (uint8_t)(row % K_ROWS);
    d->pad[d->n] = (uint8_t)pad;
    d->n++;
    return 0;
}

/* The used cells of a row in order; each is cleared on the way. */
static int row_digits(struct pads *p, const struct sim_normal *t, struct sim_rng *r,
                      const double *sigma, uint32_t row, uint32_t pads, struct pads_digits *d,
                      struct k_err *e)
{
    uint32_t words = pads * p->bins / 64 + 1;

    for (uint32_t w = 0; w < words; w++) {
        for (uint64_t left = p->used[w]; left; left &= left - 1) {
            uint32_t at = 64 * w + (uint32_t)__builtin_ctzll(left), pad = at / p->bins;
            struct cell *c = &p->cell[at];
            bool lone = c->label == PADS_NOISE;
            double noise = lone ? 0 : sigma[pad] * sim_normal(t, r);
            if (cell_digit(c, noise, lone ? 0 : 3 * sigma[pad], row, pad, at % p->bins, d, e) < 0)
                return -1;
            *c = (struct cell){ 0 };
        }
        p->used[w] = 0;
    }
    return 0;
}

int pads_digitize(struct pads *p, const struct sim_normal *t, uint64_t seed, uint64_t tf,
                  double noise, struct pads_digits *d, struct k_err *e)
{
    if (p->failed)
        return k_fail(e, K_ENOMEM, "no memory for the electrons");
    for (uint32_t row = 0; row < ROWS; row++) {
        uint32_t pads = kgeo_pads[row % K_ROWS];
        double sigma[K_PAD_ROOM];
        struct sim_rng r;
        row_sigma(t, seed, row, sigma);
        sim_rng_init(&r, seed, tf, 2, row);
        if (row_sum(p, row) < 0)
            return k_fail(e, K_ENOMEM, "no memory for a pad row");
        row_noise(p, &r, pads, noise);
        if (row_digits(p, t, &r, sigma, row, pads, d, e) < 0)
            return -1;
    }
    return 0;
}
