/* encode_test.c - the page encoder: what goes in comes out of stage decode, and the pages are as the format wants them */
#include "kernels_help.h"

#include "kgeo_help.h"

/* Decodes the TF and holds every digit against what was encoded; frees it. */
static void same_again(struct digit *d, uint32_t n, struct tf tf)
{
    struct pipeline *p = pipeline_of("decode", NULL);
    struct pipeline_result r;
    struct k_err e;

    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(r.out[0].count, n);
    const uint8_t *q = (const uint8_t *)r.out[0].data + 192;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(q[2 * i] | q[2 * i + 1] << 8, d[i].time);
        assert_int_equal(q[2 * n + 2 * i] | q[2 * n + 2 * i + 1] << 8, d[i].charge);
        assert_int_equal(q[4 * n + i], d[i].sector);
        assert_int_equal(q[5 * n + i], d[i].row);
        assert_int_equal(q[6 * n + i], d[i].pad);
    }
    pipeline_destroy(p);
    free(tf.data);
}

static void round_trip(struct digit *d, uint32_t n, uint32_t orbits)
{
    struct tf tf = tf_of(d, n, orbits);
    same_again(d, n, tf);
}

static void test_empty(void **state)
{
    (void)state;
    struct digit none[1];

    round_trip(none, 0, 1);
    round_trip(none, 0, 4);
    round_trip(none, 0, 147);
}

/* The first and the last cell of all, and the bins on both sides of each orbit's border. */
static void test_borders(void **state)
{
    (void)state;
    struct digit d[2 * 8 * 3 + 2];
    uint32_t n = 0;

    /* bin b starts at crossing 8 b; an orbit has 3564, so borders lie at 445.5, 891, 1336.5, 1782 */
    static const uint16_t bin[8] = { 0, 444, 445, 446, 890, 891, 1336, 1337 };
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned row = 0; row < 3; row++) {
            d[n++] = (struct digit){ 0, (uint8_t)(row * 75), 3, bin[i], 4095 };
            d[n++] = (struct digit){ 35, (uint8_t)(row * 75), 65, bin[i], 1 };
        }
    }
    d[n++] = (struct digit){ 35, 151, 137, 1781, 0 };
    d[n++] = (struct digit){ 0, 0, 0, 1781, 17 };
    round_trip(d, n, 4);
}

/* Every pad of one endpoint in 40 bins, then every second pad (most sequences a row can have). */
static void test_full_bins(void **state)
{
    (void)state;
    struct digit *d = calloc(40 * 18 * 140, sizeof *d);
    uint32_t n = 0;

    for (unsigned t = 0; t < 40; t++) {
        for (unsigned row = 140; row < 152; row++) {
            for (unsigned pad = 0; pad < pads_of[row]; pad += t < 20 ? 1 : 2)
                d[n++] = (struct digit){ 17, (uint8_t)row, (uint8_t)pad, (uint16_t)(431 + t),
                                         (uint16_t)((row * 331 + pad * 17 + t) & 4095) };
        }
    }
    round_trip(d, n, 2);
    free(d);
}

/* Gaps of every length, so that pages end at 255 bins, at their size and at orbits. */
static void test_gaps(void **state)
{
    (void)state;
    struct digit d[2000];
    uint32_t n = 0;

    for (uint32_t t = 0, gap = 1; t < 57024 && n < 2000; t += gap, gap = gap % 300 + 1)
        d[n++] = (struct digit){ 20, 63, (uint8_t)(t % 76), (uint16_t)t, (uint16_t)(t & 4095) };
    round_trip(d, n, 128);
}

static void test_random(void **state)
{
    (void)state;
    uint64_t s = seed_of(11);

    for (unsigned k = 0; k < scaled(12); k++) {
        uint32_t n = 0, orbits = 1 + (uint32_t)(rnd(&s) % 5), want = (uint32_t)(rnd(&s) % 30000);
        struct digit *d = calloc(want + 1, sizeof *d);
        unsigned sectors = 1 + (unsigned)(rnd(&s) % 36), rows = 1 + (unsigned)(rnd(&s) % 152);
        for (uint32_t i = 0; i < want; i++) {
            uint8_t row = (uint8_t)(rnd(&s) % rows);
            d[i] = (struct digit){ (uint8_t)(rnd(&s) % sectors), row, (uint8_t)(rnd(&s) % pads_of[row]),
                                   (uint16_t)(rnd(&s) % (orbits * 3564 / 8)), (uint16_t)(rnd(&s) & 4095) };
        }
        qsort(d, want, sizeof *d, digit_cmp);
        for (uint32_t i = 0; i < want; i++) {
            if (n == 0 || digit_cmp(&d[n - 1], &d[i]) != 0)
                d[n++] = d[i];
        }
        round_trip(d, n, orbits);
        free(d);
    }
}

static uint64_t word(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* Walks the pages of a block: lengths, orbit, counters, one stop page at the end. */
static void pages_are_right(const struct tf_block *b, uint8_t *packet)
{
    unsigned page = 0;

    for (uint64_t at = 0; at < b->size; page++) {
        const uint8_t *p = b->payload + at;
        uint64_t w0 = word(p), w1 = word(p + 8), w4 = word(p + 32);
        unsigned next = w1 & 0xffff, size = w1 >> 16 & 0xffff;
        assert_int_equal(w0 & 0xffff, 7 | 64 << 8);
        assert_int_equal(w0 >> 16 & 0xffff, b->subspec);
        assert_int_equal(w0 >> 40 & 0xff, 3);
        assert_int_equal(next, size);
        assert_true(size >= 64 && size <= 8192 && size % 16 == 0 && at + size <= b->size);
        assert_int_equal(w1 >> 40 & 0xff, (*packet)++);
        assert_int_equal(w1 >> 48 & 0xfff, b->subspec >> 7);
        assert_int_equal(word(p + 16) >> 32, b->first_orbit + b->part);
        assert_int_equal(w4 & 0xffffffff, b->part == 0 ? 0x803 : 3);
        assert_int_equal(w4 >> 32 & 0xffff, page);
        assert_int_equal(w4 >> 48 & 0xff, at + size == b->size);
        assert_int_equal(word(p + 48), 2);
        at += size;
    }
    assert_true(page >= 2);
}

/* A TF in which one link has several pages an orbit; packet counters run on to the next TF. */
static void test_pages(void **state)
{
    (void)state;
    enum { N = 40000 };
    uint16_t *t = calloc(N, 2), *q = calloc(N, 2);
    uint8_t *s = calloc(N, 1), *r = calloc(N, 1), *p = calloc(N, 1);
    static uint8_t packet[720], seen[720];
    struct tf_err te;
    struct k_err e;

    for (uint32_t i = 0; i < N; i++) {
        s[i] = 9;
        r[i] = 3;
        p[i] = (uint8_t)(i / 1700);
        t[i] = (uint16_t)(i % 1700 + 20);
        q[i] = (uint16_t)(i % 4096);
    }
    for (uint32_t k = 0; k < 2; k++) {
        struct encode_digits d = { N, t, q, s, r, p };
        struct encode_tf c = { .orbits = 4, .first_orbit = 500 + 4 * k, .counter = k + 1, .run = 9,
                               .packet = packet, .page_max = k ? 4000 : 0 };
        void *out;
        size_t size, blocks = 0;
        assert_int_equal(encode_tf(&d, &c, &out, &size, &e), 0);
        struct tf_seg seg = { out, size };
        struct tf_iter it;
        struct tf_block b;
        bool complete = false;
        assert_int_equal(tf_check(&seg, 1, NULL, &complete, &te), 0);
        assert_true(complete);
        tf_iter_init(&it, &seg, 1);
        while (tf_iter_next(&it, &b, &te) == 1) {
            if (tf_block_kind(&b) != TF_DATA)
                continue;
            uint32_t link = (b.subspec >> 7) * 2 + (b.subspec >> 6 & 1);
            assert_int_equal(b.subspec & 0x3f, 15);
            assert_int_equal(b.parts, 4);
            pages_are_right(&b, &seen[link]);
            blocks++;
        }
        assert_int_equal(blocks, 720 * 4);
        free(out);
    }
    assert_memory_equal(seen, packet, sizeof seen);
    assert_true(packet[180] != packet[0]);         /* the link with data made more pages */
    free(t);
    free(q);
    free(s);
    free(r);
    free(p);
}

/* What cannot be encoded is refused with a sentence that names it. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        uint16_t time[2], charge[2];
        uint8_t sector[2], row[2], pad[2];
        uint32_t orbits, page_max;
        const char *words;
    } c[] = {
        { { 5, 5 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 4, 0, "digit 1" },       /* twice */
        { { 6, 5 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 4, 0, "out of order" },
        { { 5, 5 }, { 9, 4096 }, { 0, 0 }, { 1, 1 }, { 4, 5 }, 4, 0, "digit 1" },
        { { 5, 5 }, { 9, 9 }, { 0, 36 }, { 1, 1 }, { 4, 4 }, 4, 0, "digit 1" },
        { { 5, 5 }, { 9, 9 }, { 0, 0 }, { 1, 152 }, { 4, 4 }, 4, 0, "digit 1" },
        { { 5, 1782 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 4, 0, "bin 1782" },
        { { 5, 446 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 1, 0, "bin 446" },
        { { 5, 6 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 0, 0, "0 orbits" },
        { { 5, 6 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 148, 0, "148 orbits" },
        { { 5, 6 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 4, 3000, "3000 bytes" },
        { { 5, 6 }, { 9, 9 }, { 0, 0 }, { 1, 1 }, { 4, 4 }, 4, 8193, "8193 bytes" },
    };

    for (unsigned i = 0; i < sizeof c / sizeof c[0]; i++) {
        struct encode_digits d = { 2, c[i].time, c[i].charge, c[i].sector, c[i].row, c[i].pad };
        struct encode_tf t = { .orbits = c[i].orbits, .page_max = c[i].page_max };
        void *out = NULL;
        size_t size;
        struct k_err e = { 0 };
        assert_int_equal(encode_tf(&d, &t, &out, &size, &e), -1);
        assert_int_equal(e.code, K_EINPUT);
        if (strstr(e.text, c[i].words) == NULL)
            fail_msg("case %u: \"%s\" does not say \"%s\"", i, e.text, c[i].words);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_empty),   cmocka_unit_test(test_borders), cmocka_unit_test(test_full_bins),
        cmocka_unit_test(test_gaps),    cmocka_unit_test(test_random),  cmocka_unit_test(test_pages),
        cmocka_unit_test(test_refusals),
    };
    geo_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
