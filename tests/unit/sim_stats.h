/* sim_stats.h - what the digits and clusters of a TF look like, as a list of named figures */
#ifndef SIM_STATS_H
#define SIM_STATS_H

#include "kernels_help.h"

enum { STATS_MAX = 64, STATS_BINS = 1 << 16 };

struct stats {
    unsigned n;
    struct { char name[24]; double value; } at[STATS_MAX];
};

static inline void stats_add(struct stats *s, const char *name, double value)
{
    assert_true(s->n < STATS_MAX);
    snprintf(s->at[s->n].name, sizeof s->at[0].name, "%s", name);
    s->at[s->n++].value = value;
}

static inline uint32_t stats_get(const uint8_t *p, unsigned bytes)
{
    uint32_t v = 0;
    while (bytes-- > 0)
        v = v << 8 | p[bytes];
    return v;
}

/* Mean and quantiles of a histogram; a quantile lies evenly between its integer's edges. */
static inline void stats_spectrum(struct stats *s, const char *name, const uint32_t *h, double unit)
{
    static const int percent[] = { 10, 25, 50, 75, 90, 99 };
    double n = 0, sum = 0, up = 0;
    unsigned v = 0;
    char text[24];

    for (unsigned i = 0; i < STATS_BINS; i++) {
        n += h[i];
        sum += (double)i * h[i];
    }
    snprintf(text, sizeof text, "%s-mean", name);
    stats_add(s, text, n > 0 ? sum / n * unit : 0);
    for (unsigned k = 0; k < 6 && n > 0; k++) {
        while (v < STATS_BINS - 1 && up + h[v] < n * percent[k] / 100)
            up += h[v++];
        snprintf(text, sizeof text, "%s-%d", name, percent[k]);
        stats_add(s, text, (v + (n * percent[k] / 100 - up) / h[v]) * unit);
    }
}

/* A histogram of one column of n records, without the zeros if so asked. */
static inline void stats_column(struct stats *s, const char *name, const uint8_t *p, uint64_t n,
                                unsigned step, unsigned bytes, double unit, bool zeros)
{
    uint32_t *h = calloc(STATS_BINS, sizeof *h);

    for (uint64_t i = 0; i < n; i++)
        h[stats_get(p + step * i, bytes)]++;
    if (!zeros)
        h[0] = 0;
    stats_spectrum(s, name, h, unit);
    free(h);
}

/* Of the results of workflow cluster. Widths: of the clusters that have one; single pads and bins
 * have 0, and their share is a figure of its own. */
static inline struct stats stats_of(const struct pipeline_result *r)
{
    struct stats s = { 0 };
    static const char *const flag[] = { "split-pad", "split-time", "edge", "single" };
    const uint8_t *d = r->out[0].data, *c = r->out[1].data;
    uint64_t digits = r->out[0].count, clusters = r->out[1].count, flags[4] = { 0 };

    assert_int_equal(r->n_out, 2);
    c += 21920;
    stats_add(&s, "digits", (double)digits);
    stats_add(&s, "digits-a-cluster", (double)digits / (double)clusters);
    for (uint64_t i = 0; i < clusters; i++) {
        for (unsigned k = 0; k < 4; k++)
            flags[k] += c[16 * i + 3] >> k & 1;
    }
    for (unsigned k = 0; k < 4; k++)
        stats_add(&s, flag[k], (double)flags[k] / (double)clusters);
    stats_column(&s, "charge", d + 192 + 2 * digits, digits, 2, 2, 0.25, true);
    stats_column(&s, "sigma-time", c + 6, clusters, 16, 1, 1.0 / 32, false);
    stats_column(&s, "sigma-pad", c + 7, clusters, 16, 1, 1.0 / 32, false);
    stats_column(&s, "qmax", c + 8, clusters, 16, 2, 1, true);
    stats_column(&s, "qtot", c + 10, clusters, 16, 2, 1, true);
    return s;
}

#endif
