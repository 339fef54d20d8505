/* kernels_help.h - small TFs for tests of kernels/: digits by hand, a few links only */
#ifndef KERNELS_HELP_H
#define KERNELS_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pipeline.h"
#include "simulate/encode.h"
#include "tf_file.h"

struct digit {
    uint8_t sector, row, pad;
    uint16_t time, charge;       /* quarter counts */
};

struct tf {
    uint8_t *data;
    size_t size;
};

static inline int digit_cmp(const void *a, const void *b)
{
    const struct digit *x = a, *y = b;
    uint64_t u = (uint64_t)x->sector << 40 | (uint64_t)x->row << 32 | (uint64_t)x->pad << 16 | x->time;
    uint64_t v = (uint64_t)y->sector << 40 | (uint64_t)y->row << 32 | (uint64_t)y->pad << 16 | y->time;
    return (u > v) - (u < v);
}

/* A TF of all links that holds the digits (which are sorted here). */
static inline struct tf tf_of(struct digit *d, uint32_t n, uint32_t orbits)
{
    struct tf tf;
    struct k_err e = { 0 };
    uint16_t *t = malloc(2 * n + 2), *q = malloc(2 * n + 2);
    uint8_t *s = malloc(n + 1), *r = malloc(n + 1), *p = malloc(n + 1);
    void *out = NULL;

    qsort(d, n, sizeof *d, digit_cmp);
    for (uint32_t i = 0; i < n; i++) {
        t[i] = d[i].time;
        q[i] = d[i].charge;
        s[i] = d[i].sector;
        r[i] = d[i].row;
        p[i] = d[i].pad;
    }
    struct encode_digits ed = { n, t, q, s, r, p };
    struct encode_tf et = { .orbits = orbits, .first_orbit = 128, .counter = 7, .run = 3,
                            .written_ms = 99 };
    if (encode_tf(&ed, &et, &out, &tf.size, &e) < 0)
        fail_msg("%s", e.text);
    tf.data = out;
    free(t);
    free(q);
    free(s);
    free(r);
    free(p);
    return tf;
}

/* The same TF with the blocks of links first..last only. */
static inline struct tf tf_links(const struct tf *all, uint32_t first, uint32_t last)
{
    struct tf_seg seg = { all->data, all->size };
    struct tf_new_block *nb = calloc(4096, sizeof *nb);
    struct tf_iter it;
    struct tf_block b;
    struct tf_err e;
    struct tf tf;
    size_t n = 0;
    void *out = NULL;

    tf_iter_init(&it, &seg, 1);
    while (tf_iter_next(&it, &b, &e) == 1) {
        uint32_t link = b.subspec >> 7 << 1 | (b.subspec >> 6 & 1);
        if (tf_block_kind(&b) == TF_DATA && link >= first && link <= last)
            nb[n++] = (struct tf_new_block){ "RAWDATA", "TPC", b.subspec, b.payload, b.size };
    }
    if (tf_build(nb, n, 128, 7, 3, 99, &out, &tf.size, &e) < 0)
        fail_msg("%s", e.text);
    tf.data = out;
    free(nb);
    return tf;
}

static inline struct pipeline *pipeline_of(const char *workflow, const char *options)
{
    struct k_err e = { 0 };
    struct pipeline_conf c = { .workflow = workflow, .backends = "cpu", .options = options,
                               .threads = 1 };
    struct pipeline *p = pipeline_create(&c, &e);
    if (p == NULL)
        fail_msg("%s", e.text);
    return p;
}

static inline int run_tf(struct pipeline *p, const struct tf *tf, struct pipeline_result *r,
                         struct k_err *e)
{
    struct pipeline_seg s = { tf->data, tf->size };
    return pipeline_run(p, &s, 1, r, e);
}

/* xorshift: the same numbers everywhere. */
static inline uint64_t rnd(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* Seed from SLUICE_TEST_SEED, or a fixed one; printed so that a failure can be repeated. */
static inline uint64_t seed_of(uint64_t fixed)
{
    const char *t = getenv("SLUICE_TEST_SEED");
    uint64_t s = t ? strtoull(t, NULL, 0) : fixed;
    print_message("seed %llu\n", (unsigned long long)s);
    return s ? s : 1;
}

static inline unsigned scaled(unsigned n)
{
    const char *t = getenv("SLUICE_TEST_SCALE");
    double v = t ? n * atof(t) : n;
    return v < 1 ? 1 : (unsigned)v;
}

#endif
