/* cluster_test.c - stage cluster: small patterns worked out by hand; one answer however it is cut */
#include "kernels_help.h"

struct cluster {
    uint32_t time;
    uint8_t flags;
    uint16_t pad, qmax, qtot;
    uint8_t sigma_t, sigma_p, sector, row;
};

/* Charges in whole counts, for patterns. */
#define Q(counts) (uint16_t)((counts) * 4)

static struct cluster record(const struct pipeline_result *r, unsigned i)
{
    const uint8_t *p = (const uint8_t *)r->out[1].data + 21920 + 16 * i;
    return (struct cluster){
        .time = p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16, .flags = p[3],
        .pad = (uint16_t)(p[4] | p[5] << 8), .sigma_t = p[6], .sigma_p = p[7],
        .qmax = (uint16_t)(p[8] | p[9] << 8), .qtot = (uint16_t)(p[10] | p[11] << 8),
        .sector = p[12], .row = p[13],
    };
}

/* The clusters of the digits: exactly n, as in want. */
static void expect(const struct digit *digits, uint32_t nd, const struct cluster *want, uint32_t n)
{
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct digit *d = malloc((nd + 1) * sizeof *d);
    struct pipeline_result r;
    struct k_err e;

    memcpy(d, digits, nd * sizeof *d);
    struct tf tf = tf_of(d, nd, 4);
    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(r.n_out, 2);
    assert_int_equal(r.out[1].count, n);
    assert_int_equal(r.out[1].size, 21920 + 16 * n);
    for (uint32_t i = 0; i < n; i++) {
        struct cluster c = record(&r, i), w = want[i];
        if (c.time != w.time || c.flags != w.flags || c.pad != w.pad || c.qmax != w.qmax ||
            c.qtot != w.qtot || c.sigma_t != w.sigma_t || c.sigma_p != w.sigma_p ||
            c.sector != w.sector || c.row != w.row)
            fail_msg("cluster %u: time %u pad %u sigma %u %u q %u %u flags %u sector %u row %u", i,
                     c.time, c.pad, c.sigma_t, c.sigma_p, c.qmax, c.qtot, c.flags, c.sector, c.row);
    }
    pipeline_destroy(p);
    free(tf.data);
    free(d);
}
#define EXPECT(d, w) expect(d, sizeof d / sizeof d[0], w, sizeof w / sizeof w[0])

static void test_one_digit(void **state)
{
    (void)state;
    const struct digit d[] = { { 3, 70, 20, 100, Q(20) } };
    const struct cluster w[] = { { 6400, 8, 1280, 20, 20, 0, 0, 3, 70 } };
    EXPECT(d, w);
}

static void test_cross(void **state)
{
    (void)state;
    /* q 10 each side in both directions around 20: Q 60, variance 20/60 either way,
     * sigma sqrt(1/3) * 32 = 18.47 -> 18 */
    const struct digit d[] = {
        { 3, 70, 20, 100, Q(20) }, { 3, 70, 19, 100, Q(10) }, { 3, 70, 21, 100, Q(10) },
        { 3, 70, 20, 99, Q(10) }, { 3, 70, 20, 101, Q(10) },
    };
    const struct cluster w[] = { { 6400, 0, 1280, 20, 60, 18, 18, 3, 70 } };
    EXPECT(d, w);
    /* one side only: mean 10/30 later: 6400 + 21.33 -> 6421; variance 10/30 - 1/9 = 2/9,
     * sigma 15.08 -> 15; no width in pad: "single" */
    const struct digit d2[] = { { 3, 70, 20, 100, Q(20) }, { 3, 70, 20, 101, Q(10) } };
    const struct cluster w2[] = { { 6421, 8, 1280, 20, 30, 15, 0, 3, 70 } };
    EXPECT(d2, w2);
}

static void test_thresholds(void **state)
{
    (void)state;
    /* a peak is above 3 counts; a cluster is above 5 rounded; qmax is cut, qtot rounded */
    const struct digit d[] = {
        { 0, 10, 10, 50, 12 }, { 0, 10, 10, 51, 11 },     /* 3.00: no peak */
        { 0, 20, 10, 50, 13 }, { 0, 20, 10, 51, 8 },      /* 3.25 + 2.00 = 5.25 -> 5: too small */
        { 0, 30, 10, 50, 13 }, { 0, 30, 10, 51, 9 },      /* 3.25 + 2.25 = 5.50 -> 6 */
        { 0, 40, 10, 50, 31 },                            /* 7.75: qmax 7, qtot 8 */
    };
    /* row 30: mean 9/22 of a bin = 26.18 -> 26; variance 9/22 - (9/22)^2 = 0.2417, sigma 15.73 -> 16 */
    const struct cluster w[] = {
        { 3226, 8, 640, 3, 6, 16, 0, 0, 30 }, { 3200, 8, 640, 7, 8, 0, 0, 0, 40 },
    };
    EXPECT(d, w);
}

static void test_ties(void **state)
{
    (void)state;
    /* of two equal neighbours the larger pad, then the later bin is the peak; one cluster between */
    const struct digit d[] = {
        { 1, 20, 10, 50, Q(30) }, { 1, 20, 11, 50, Q(30) },
        { 1, 21, 10, 50, Q(30) }, { 1, 21, 10, 51, Q(30) },
    };
    const struct cluster w[] = {
        { 3200, 8, 672, 30, 60, 0, 16, 1, 20 }, { 3232, 8, 640, 30, 60, 16, 0, 1, 21 },
    };
    EXPECT(d, w);
}

static void test_edges(void **state)
{
    (void)state;
    /* peak on pad 0, charge on pad 1: the mean would move inwards, and is held on the peak */
    const struct digit d[] = {
        { 35, 0, 0, 50, Q(30) }, { 35, 0, 1, 50, Q(10) },
        { 35, 151, 137, 50, Q(30) }, { 35, 151, 136, 50, Q(10) },
        { 35, 151, 134, 0, Q(9) }, { 35, 151, 2, 1781, Q(9) },
    };
    /* variance 1/4 - 1/16 = 3/16: 13.86 -> 14. Pads 134 and 2 are no edge. */
    const struct cluster w[] = {
        { 3200, 12, 0, 30, 40, 0, 14, 35, 0 },
        { 0, 8, 134 * 64, 9, 9, 0, 0, 35, 151 },
        { 3200, 12, 137 * 64, 30, 40, 0, 14, 35, 151 },
        { 1781 * 64, 8, 128, 9, 9, 0, 0, 35, 151 },
    };
    EXPECT(d, w);
}

static void test_shared(void **state)
{
    (void)state;
    /* two peaks two pads apart share the cell between them: half of 21 is 10.5 counts, and both
     * are marked as split in pad. Mean 10.5/50.5 of a pad: 13.31; sigma: 10.5/50.5 - 0.0432 ->
     * 0.4058 * 32 = 12.98 -> 13 */
    const struct digit d[] = {
        { 2, 50, 20, 100, Q(40) }, { 2, 50, 21, 100, Q(21) }, { 2, 50, 22, 100, Q(40) },
    };
    const struct cluster w[] = {
        { 6400, 9, 20 * 64 + 13, 40, 51, 0, 13, 2, 50 },
        { 6400, 9, 22 * 64 - 13, 40, 51, 0, 13, 2, 50 },
    };
    EXPECT(d, w);
}

/* n samples of q from bin t on */
static uint32_t run_of(struct digit *d, uint8_t row, uint8_t pad, unsigned t, unsigned n, double q)
{
    for (unsigned i = 0; i < n; i++)
        d[i] = (struct digit){ 5, row, pad, (uint16_t)(t + i), Q(q) };
    return n;
}

static void test_noisy(void **state)
{
    (void)state;
    struct digit d[1400];
    uint32_t n = 0;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct k_err e;

    /* each run has a step at its end, which is a peak unless the pad is noisy */
    n += run_of(d + n, 10, 10, 100, 199, 6);
    n += run_of(d + n, 20, 10, 100, 200, 6);
    n += run_of(d + n, 30, 10, 100, 200, 6);
    d[n - 50].charge = Q(700);
    n += run_of(d + n, 40, 10, 100, 200, 6);
    d[n - 50].charge = Q(700) - 1;
    n += run_of(d + n, 50, 10, 100, 200, 6);
    d[n - 50].charge = 0;                         /* no charge: the run is interrupted */
    struct tf tf = tf_of(d, n, 4);
    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    unsigned rows[152] = { 0 };
    for (unsigned i = 0; i < r.out[1].count; i++)
        rows[record(&r, i).row]++;
    assert_int_equal(rows[10] > 0, 1);
    assert_int_equal(rows[20], 0);
    assert_int_equal(rows[30] > 0, 1);
    assert_int_equal(rows[40], 0);
    assert_int_equal(rows[50] > 0, 1);
    pipeline_destroy(p);
    free(tf.data);
}

/* 2000 samples within the first 4000 bins make a pad noisy, however they are spread; those behind
 * do not count, and the rule is the same for any length of the TF. */
static void test_noisy_count(void **state)
{
    (void)state;
    struct digit *d = malloc(20000 * sizeof *d);
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct k_err e;

    for (int extra = 0; extra < 2; extra++) {
        uint32_t n = 0;
        for (unsigned i = 0; i < 1999u + (unsigned)extra; i++)
            d[n++] = (struct digit){ 5, 10, 10, (uint16_t)(2 * i), Q(8) };
        for (unsigned i = 0; i < 1500; i++)
            d[n++] = (struct digit){ 5, 10, 10, (uint16_t)(4001 + 2 * i), Q(8) };
        struct tf tf = tf_of(d, n, 20);
        if (run_tf(p, &tf, &r, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(r.out[1].count, extra ? 0 : 1999 + 1500);
        free(tf.data);
    }
    pipeline_destroy(p);
    free(d);
}

/* Bin 3999 is the last that the rule looks at: of a run and of the charge that would clear the pad. */
static void test_noisy_border(void **state)
{
    (void)state;
    struct digit d[1200];
    uint32_t n = 0;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct k_err e;
    unsigned rows[152] = { 0 };

    n += run_of(d + n, 10, 10, 3800, 200, 6);     /* to 3999: noisy */
    n += run_of(d + n, 20, 10, 3801, 200, 6);     /* 199 of it before 4000 */
    n += run_of(d + n, 30, 10, 3800, 201, 6);
    d[n - 1].charge = Q(700);                     /* at 4000: too late */
    n += run_of(d + n, 40, 10, 3800, 200, 6);
    d[n - 1].charge = Q(700);                     /* at 3999 */
    struct tf tf = tf_of(d, n, 20);
    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    for (unsigned i = 0; i < r.out[1].count; i++)
        rows[record(&r, i).row]++;
    assert_int_equal(rows[10], 0);
    assert_true(rows[20] > 0);
    assert_int_equal(rows[30], 0);
    assert_true(rows[40] > 0);
    pipeline_destroy(p);
    free(tf.data);
}

/* A busy TF: the same bytes for every batch size, number of threads and instruction set, and when
 * the first estimate of memory was too small. */
static void test_any_cut(void **state)
{
    (void)state;
    static const struct { const char *options, *isa; unsigned threads; } c[] = {
        { NULL, "v1", 1 }, { NULL, "v1", 3 }, { NULL, NULL, 2 }, { "decode.batch=4096", NULL, 2 },
        { "decode.batch=64K", "v1", 1 },
    };
    uint64_t s = seed_of(7), digest = 0;
    enum { N = 60000 };
    struct digit *d = malloc(N * sizeof *d);
    uint32_t m = 0;
    struct k_err e = { 0 };

    /* half of it single cells without neighbours: more clusters a digit than the estimate has */
    for (uint32_t i = 0; i < N; i++)
        d[i] = i % 2 ? (struct digit){ 9, (uint8_t)(2 + i % 5), (uint8_t)(3 * (rnd(&s) % 20)),
                                       (uint16_t)(3 * (rnd(&s) % 590)), Q(8 + rnd(&s) % 100) }
                     : (struct digit){ 8, (uint8_t)(rnd(&s) % 40), (uint8_t)(rnd(&s) % 66),
                                       (uint16_t)(rnd(&s) % 1782), (uint16_t)(rnd(&s) % 500) };
    qsort(d, N, sizeof *d, digit_cmp);
    for (uint32_t i = 0; i < N; i++) {
        if (i == 0 || digit_cmp(&d[i], &d[m - 1]) != 0)
            d[m++] = d[i];
    }
    struct tf tf = tf_of(d, m, 4);
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        struct pipeline_conf conf = { .workflow = "cluster", .backends = "cpu", .isa = c[i].isa,
                                      .options = c[i].options, .threads = c[i].threads };
        struct pipeline *p = pipeline_create(&conf, &e);
        struct pipeline_result r;
        if (p == NULL || run_tf(p, &tf, &r, &e) < 0)
            fail_msg("%s", e.text);
        if (i == 0) {
            digest = r.digest;
            print_message("%u digits, %u clusters\n", (unsigned)m, (unsigned)r.out[1].count);
            assert_true(r.out[1].count > m / 4 + 1000);
        }
        assert_true(r.digest == digest);
        pipeline_destroy(p);
    }
    free(tf.data);
    free(d);
}

/* Too little device memory is an error that says how much would do; with that much it works. */
static void test_memory(void **state)
{
    (void)state;
    struct digit d[] = { { 3, 70, 20, 100, Q(20) } };
    struct tf tf = tf_of(d, 1, 4);
    struct pipeline_conf conf = { .workflow = "cluster", .backends = "cpu", .threads = 1,
                                  .memory_limit = 20000 };
    struct pipeline_result r;
    struct k_err e = { 0 };
    unsigned tries = 0;

    for (;; tries++) {
        struct pipeline *p = pipeline_create(&conf, &e);
        assert_non_null(p);
        int ret = run_tf(p, &tf, &r, &e);
        pipeline_destroy(p);
        if (ret == 0)
            break;
        assert_int_equal(e.code, K_ENOMEM);
        assert_true(e.need > conf.memory_limit);
        conf.memory_limit = e.need;
        assert_true(tries < 20);
    }
    assert_true(tries > 0);
    free(tf.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_digit), cmocka_unit_test(test_cross),
        cmocka_unit_test(test_thresholds), cmocka_unit_test(test_ties),
        cmocka_unit_test(test_edges), cmocka_unit_test(test_shared),
        cmocka_unit_test(test_noisy), cmocka_unit_test(test_noisy_count),
        cmocka_unit_test(test_noisy_border),
        cmocka_unit_test(test_any_cut), cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
