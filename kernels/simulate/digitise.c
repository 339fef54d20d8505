/* digitise.c - electrons on pads -> digits: shaping, noise, zero suppression
 *
 * From: track.c.  To: simulate.c.
 * A row at a time, on a plane of pads and bins. The electrons of a particle lie together, so the
 * particle with the largest share of a cell is found by adding one particle after the other.
 */
#include "../kdef.h"
#include "../ktypes.h"
#include "../kgeo.h"

#include <stdbool.h>
#include <stdlib.h>

#include "random.h"
#include "simulate.h"

enum { SHAPE_BINS = 8 };

static const double bin_ns = 8 * 10e3 / 400.789, shaping_ns = 160;
static const double noise_cells_bin = 0.0004;  /* cells of noise alone, a row and bin */

struct cell {
    float sum, own, best;        /* of all; of the particle at hand; of the one with most */
    uint16_t label;
    bool touched;
};

struct plane {
    struct cell *cell;           /* pad * bins + bin */
    uint32_t *list, n, room;     /* touched cells; those of the particle at hand from `own` on */
    uint32_t *own, nown, own_room;
    uint32_t bins;
};

static int push(uint32_t **list, uint32_t *n, uint32_t *room, uint32_t v)
{
    if (*n == *room) {
        uint32_t more = *room ? *room * 2 : 4096;
        uint32_t *p = realloc(*list, more * sizeof *p);
        if (p == NULL)
            return -1;
        *list = p;
        *room = more;
    }
    (*list)[(*n)++] = v;
    return 0;
}

/* 55 A x^4 exp(-4x) of the time since arrival, at the starts of the next bins. */
static int shape(struct plane *p, const struct sim_electron *e)
{
    double t0 = e->time, first = floor(t0);

    for (int k = 1; k < SHAPE_BINS; k++) {
        double bin = first + k, x = (bin - t0) * bin_ns / shaping_ns, x2 = x * x;
        if (bin < 0 || bin >= p->bins)
            continue;
        uint32_t at = e->pad * p->bins + (uint32_t)bin;
        struct cell *c = &p->cell[at];
        if (c->own == 0 && push(&p->own, &p->nown, &p->own_room, at) < 0)
            return -1;
        c->own += (float)(55 * e->signal * x2 * x2 * exp(-4 * x));
    }
    return 0;
}

/* The particle at hand is complete: into the sums. */
static int settle(struct plane *p, uint16_t label)
{
    for (uint32_t i = 0; i < p->nown; i++) {
        struct cell *c = &p->cell[p->own[i]];
        if (!c->touched) {
            c->touched = true;
            if (push(&p->list, &p->n, &p->room, p->own[i]) < 0)
                return -1;
        }
        c->sum += c->own;
        if (c->own > c->best) {
            c->best = c->own;
            c->label = label;
        }
        c->own = 0;
    }
    p->nown = 0;
    return 0;
}

static int digit_add(struct sim_tf *t, uint32_t *room, unsigned sector, unsigned row,
                     unsigned pad, unsigned time, double adc, uint16_t label)
{
    if (t->ndigits == *room) {
        uint32_t n = *room ? *room + *room / 2 : 65536;
        void *a = realloc(t->time, n * 2), *b = a ? realloc(t->charge, n * 2) : NULL;
        t->time = a ? a : t->time;
        void *c = b ? realloc(t->label, n * 2) : NULL;
        t->charge = b ? b : t->charge;
        void *d = c ? realloc(t->sector, n) : NULL;
        t->label = c ? c : t->label;
        void *e = d ? realloc(t->row, n) : NULL;
        t->sector = d ? d : t->sector;
        void *f = e ? realloc(t->pad, n) : NULL;
        t->row = e ? e : t->row;
        if (f == NULL)
            return -1;
        t->pad = f;
        *room = n;
    }
    uint32_t i = t->ndigits++;
    t->time[i] = (uint16_t)time;
    t->charge[i] = (uint16_t)(adc * 4 + 0.5);
    t->label[i] = label;
    t->sector[i] = (uint8_t)sector;
    t->row[i] = (uint8_t)row;
    t->pad[i] = (uint8_t)pad;
    return 0;
}

static int u32_cmp(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Noise of a pad: the same whenever the pad is asked for. */
static double pad_noise(unsigned row_number, unsigned pad)
{
    struct random r = { (uint64_t)row_number << 16 | pad };
    double s = 1 + 0.05 * random_gauss(&r);
    return s < 0.8 ? 0.8 : s > 1.4 ? 1.4 : s;
}

/* Some cells that no particle reached, just above the cut. */
static int noise_cells(struct random *r, struct plane *p, unsigned pads)
{
    double mean = noise_cells_bin * p->bins;
    unsigned n = random_poisson(r, mean > 500 ? 500 : mean);

    for (unsigned i = 0; i < n; i++) {
        uint32_t at = (uint32_t)(random_unit(r) * pads) * p->bins + (uint32_t)(random_unit(r) * p->bins);
        struct cell *c = &p->cell[at];
        if (c->touched)
            continue;
        c->touched = true;
        c->label = SIM_NOISE;
        c->sum = (float)(3.2 + random_exp(r, 0.3));
        if (push(&p->list, &p->n, &p->room, at) < 0)
            return -1;
    }
    return 0;
}

static int row_digits(struct random *r, struct plane *p, unsigned number, struct sim_tf *t,
                      uint32_t *room)
{
    if (t->nparticles > 0 && noise_cells(r, p, kgeo_pads[number % K_ROWS]) < 0)
        return -1;
    if (p->n > 0)
        qsort(p->list, p->n, sizeof *p->list, u32_cmp);
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t at = p->list[i], pad = at / p->bins;
        struct cell *c = &p->cell[at];
        double sigma = pad_noise(number, pad), adc = c->sum;
        if (c->label != SIM_NOISE)
            adc += sigma * random_gauss(r);
        if (adc > 1023)
            adc = 1023;
        if ((c->label == SIM_NOISE || adc >= 3 * sigma) &&
            digit_add(t, room, number / K_ROWS, number % K_ROWS, pad, at % p->bins, adc,
                      c->label) < 0)
            return -1;
        *c = (struct cell){ 0 };
    }
    p->n = 0;
    return 0;
}

int sim_digitise(struct random *r, struct sim_row *rows, uint32_t bins, struct sim_tf *t,
                 struct k_err *e)
{
    struct plane p = { .cell = calloc((size_t)K_PAD_ROOM * bins, sizeof *p.cell), .bins = bins };
    uint32_t room = 0;
    int bad = p.cell == NULL;

    for (unsigned i = 0; i < K_SECTORS * K_ROWS && !bad; i++) {
        for (uint32_t k = 0; k < rows[i].n && !bad; k++) {
            bad = shape(&p, &rows[i].e[k]) < 0;
            if (k + 1 == rows[i].n || rows[i].e[k + 1].label != rows[i].e[k].label)
                bad = bad || settle(&p, rows[i].e[k].label) < 0;
        }
        bad = bad || row_digits(r, &p, i, t, &room) < 0;
        free(rows[i].e);
        rows[i] = (struct sim_row){ 0 };
    }
    free(p.cell);
    free(p.list);
    free(p.own);
    return bad ? k_fail(e, K_ENOMEM, "no memory for the digits") : 0;
}
