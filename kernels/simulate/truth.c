/* truth.c - the truth of a simulated TF as a file
 *
 * From: simulate.c, the clusters found in the TF.  To: cmd_simulate.c.
 */
#include "../kdef.h"
#include "../ktypes.h"

#include <stdlib.h>

#include "../result.h"
#include "simulate.h"

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
static uint32_t lower(const struct sim_tf *t, uint32_t row, uint32_t pad, uint32_t time)
{
    uint64_t want = (uint64_t)row << 24 | pad << 16 | time;
    uint32_t from = 0, to = t->ndigits;

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

static uint16_t cluster_label(const struct sim_tf *t, const uint8_t *rec)
{
    uint32_t time = ((get32(rec) & 0xffffff) + 32) >> 6, pad = (get16(rec + 4) + 32) >> 6;
    uint32_t row = K_ROWS * rec[12] + rec[13], n = 0, sum[9];
    uint16_t label[9], best = SIM_NOISE;
    uint32_t most = 0;

    for (uint32_t p = pad > 0 ? pad - 1 : 0; p <= pad + 1; p++) {
        uint32_t first = time > 0 ? time - 1 : 0;
        for (uint32_t i = lower(t, row, p, first); i < t->ndigits; i++) {
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

static void put_particle(uint8_t *p, uint32_t number, const struct sim_particle *s)
{
    const double eta = asinh(s->tgl);
    const double f[5] = { s->mass, s->pt, s->phi, s->tgl, eta };
    const double birth[4] = { s->x, s->y, s->z, s->time };

    memset(p, 0, RECORD);
    put32(p, number);
    put32(p + 4, s->collision);
    put32(p + 8, (uint32_t)s->charge);
    put32(p + 12, (uint32_t)s->pdg);
    for (int i = 0; i < 5; i++)
        putf(p + 16 + 4 * i, f[i]);
    for (int i = 0; i < 4; i++)
        putf(p + 36 + 4 * i, birth[i]);
    for (int i = 0; i < 6; i++)
        putf(p + 52 + 4 * i, s->ref[i]);
    put32(p + 76, s->digits);
    put32(p + 80, s->clusters);
    put32(p + 84, s->rows);
    put32(p + 88, s->flags);
}

int simulate_truth(struct sim_tf *t, const void *clusters, void **out, size_t *size,
                   struct k_err *e)
{
    const uint8_t *c = clusters;
    uint32_t n = get32(c + 8);
    size_t total = HEADER + (size_t)RECORD * t->nparticles + 2 * ((size_t)t->ndigits + n);
    uint8_t *p = calloc(1, total);

    if (p == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the truth");
    memcpy(p, "TPCTRU1", 8);
    put32(p + 8, t->nparticles);
    put32(p + 12, t->ndigits);
    put32(p + 16, n);
    uint8_t *q = p + HEADER + (size_t)RECORD * t->nparticles;
    for (uint32_t i = 0; i < t->ndigits; i++, q += 2)
        put16(q, t->label[i]);
    for (uint32_t i = 0; i < n; i++, q += 2) {
        uint16_t l = cluster_label(t, c + CLUSTERS_HEADER + CLUSTER_SIZE * (size_t)i);
        put16(q, l);
        if (l != SIM_NOISE)
            t->particle[l].clusters++;
    }
    for (uint32_t i = 0; i < t->nparticles; i++)
        put_particle(p + HEADER + (size_t)RECORD * i, i, &t->particle[i]);
    *out = p;
    *size = total;
    return 0;
}
