/* truth.c - the truth of a simulated TF as a file
 *
 * From: simulate.c, the clusters found in the TF.  To: cmd_simulate.c.
 */
#include "simulate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../result.h"

enum { HEADER = 32, RECORD = 96 };

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *p, uint32_t v)
{
    put16(p, v & 0xffff);
    put16(p + 2, v >> 16);
}

static void putf(uint8_t *p, double v)
{
    put32(p, K_ASU((float)v));
}

static uint32_t get16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

/* First digit at or behind (sector, row, pad, time). */
static uint32_t lower(const struct pads_digits *t, uint32_t row, uint32_t pad, uint32_t time)
{
    uint64_t want = (uint64_t)row << 24 | pad << 16 | time;
    uint32_t from = 0, to = t->n;

    while (from < to) {
        uint32_t m = from + (to - from) / 2;
        uint64_t key = (uint64_t)(K_ROWS * t->sector[m] + t->row[m]) << 24 |
                       (uint32_t)t->pad[m] << 16 | t->time[m];
        if (key < want)
            from = m + 1;
        else
            to = m;
    }
    return from;
}

/* The largest charge in the 3x3 cells around its place; the smaller number on ties. */
static uint16_t cluster_label(const struct pads_digits *t, const uint8_t *rec)
{
    uint32_t time = ((get32(rec) & 0xffffff) + 32) >> 6, pad = (get16(rec + 4) + 32) >> 6;
    uint32_t row = K_ROWS * rec[12] + rec[13], n = 0, sum[9];
    uint16_t label[9], best = PADS_NOISE;
    uint32_t most = 0;

    for (uint32_t p = pad > 0 ? pad - 1 : 0; p <= pad + 1; p++) {
        uint32_t first = time > 0 ? time - 1 : 0;
        for (uint32_t i = lower(t, row, p, first); i < t->n; i++) {
            if (K_ROWS * (uint32_t)t->sector[i] + t->row[i] != row || t->pad[i] != p ||
                t->time[i] > time + 1)
                break;
            uint32_t k = 0;
            while (k < n && label[k] != t->label[i])
                k++;
            if (k == n) {
                label[n] = t->label[i];
                sum[n++] = 0;
            }
            sum[k] += t->charge[i];
        }
    }
    for (uint32_t k = 0; k < n; k++) {
        if (sum[k] > most || (sum[k] == most && label[k] < best)) {
            most = sum[k];
            best = label[k];
        }
    }
    return best;
}

/* What is counted of each particle. */
struct count {
    uint32_t digits, clusters, rows;
    uint8_t row_seen[K_ROWS];
};

static void put_particle(uint8_t *p, uint32_t number, const struct track_particle *s,
                         const struct count *c)
{
    /* asinh: log(t + sqrt(t^2 + 1)), of the larger side so that nothing cancels */
    double t = s->tanl < 0 ? -s->tanl : s->tanl, eta = sim_log(t + sqrt(t * t + 1));
    const double f[9] = { s->mass, s->pt, s->phi, s->tanl, s->tanl < 0 ? -eta : eta,
                          s->x, s->y, s->z, s->time };

    put32(p, number);
    put32(p + 4, s->collision);
    put32(p + 8, (uint32_t)s->charge);
    put32(p + 12, (uint32_t)s->pdg);
    for (int i = 0; i < 9; i++)
        putf(p + 16 + 4 * i, f[i]);
    for (int i = 0; i < 6; i++) {
        if (s->has_ref)
            putf(p + 52 + 4 * i, s->ref[i]);
        else
            put32(p + 52 + 4 * i, 0x7fc00000);   /* a NaN, the same everywhere */
    }
    put32(p + 76, c->digits);
    put32(p + 80, c->clusters);
    put32(p + 84, c->rows);
    put32(p + 88, (s->away ? 1 : 0) | (s->has_ref ? 2 : 0));
}

static void count_digits(const struct pads_digits *d, struct count *c)
{
    for (uint32_t i = 0; i < d->n; i++) {
        if (d->label[i] >= PADS_PATTERN)
            continue;
        struct count *k = &c[d->label[i]];
        k->digits++;
        k->rows += k->row_seen[d->row[i]] == 0;
        k->row_seen[d->row[i]] = 1;
    }
}

int simulate_truth(const struct simulate_tf *tf, const void *clusters, size_t clusters_size,
                   void **out, size_t *size, struct k_err *e)
{
    const struct pads_digits *d = &tf->digits;
    const uint8_t *r = clusters;
    uint32_t particles = tf->conf.tracks;
    uint32_t n = clusters_size >= CLUSTERS_HEADER ? get32(r + 8) : 0;

    if (clusters_size != CLUSTERS_HEADER + (size_t)CLUSTER_SIZE * n)
        return k_fail(e, K_EINPUT, "%zu bytes are no result of the stage cluster", clusters_size);
    size_t total = HEADER + (size_t)RECORD * particles + 2 * ((size_t)d->n + n);
    uint8_t *p = calloc(1, total);
    struct count *c = calloc((size_t)particles + 1, sizeof *c);
    if (p == NULL || c == NULL) {
        free(p);
        free(c);
        return k_fail(e, K_ENOMEM, "no memory for the truth of %u particles", particles);
    }
    memcpy(p, "TPCTRU1", 8);
    put32(p + 8, particles);
    put32(p + 12, d->n);
    put32(p + 16, n);
    uint8_t *q = p + HEADER + (size_t)RECORD * particles;
    for (uint32_t i = 0; i < d->n; i++, q += 2)
        put16(q, d->label[i]);
    for (uint32_t i = 0; i < n; i++, q += 2) {
        uint16_t l = cluster_label(d, r + CLUSTERS_HEADER + CLUSTER_SIZE * (size_t)i);
        put16(q, l);
        if (l < particles)
            c[l].clusters++;
    }
    count_digits(d, c);
    for (uint32_t i = 0; i < particles; i++)
        put_particle(p + HEADER + (size_t)RECORD * i, i, &tf->particle[i], &c[i]);
    free(c);
    *out = p;
    *size = total;
    return 0;
}
