/* pages_test.c - stage decode: pages written by hand, every byte of them changed, TFs cut and mutated */
#include "kernels_help.h"

/* One page with data of CRU 0, endpoint 0 (rows 0..7 of sector 0), orbit 128, and the stop page.
 * Bin 5: row 0 pads 3, 4 and 9 (0x123, 0x456, 0x789), row 7 pad 65 (0xfff); bin 6 empty;
 * bin 7: row 2 pad 0 (0x001). The data end at 64 + 8 + 18 + 2 + 7 = 99, so the page has 112. */
static const uint8_t page_head[64] = {
    7, 64, 0x0f, 0, 0, 3, 0, 0,  112, 0, 112, 0, 15, 0, 0, 0,  0, 0, 0, 0, 128, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,  3, 8, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,  2,
};
static const uint8_t page_data[48] = {
    2, 3, 0, 0, 40, 0, 5, 0,                       /* 3 bins from crossing 40 on, 5 samples */
    0x81, 0x00, 86, 0,                             /* 72: rows 0 and 7; row 7's data at 86 */
    2, 3, 2, 9, 3, 0x23, 0x61, 0x45, 0x89, 0x07,   /* 76: two sequences; 12 bit, low bits first */
    1, 65, 1, 0xff, 0x0f,                          /* 86: ends at 91 */
    0,                                             /* 91: to an even place */
    0, 0,                                          /* 92: bin 6 */
    0x04, 0x00, 1, 0, 1, 0x01, 0x00,               /* 94: bin 7; ends at 101 */
};
static const uint8_t stop_head[64] = {
    7, 64, 0x0f, 0, 0, 3, 0, 0,  64, 0, 64, 0, 15, 1, 0, 0,  0, 0, 0, 0, 128, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0,  3, 8, 0, 0, 1, 0, 1, 0,  0, 0, 0, 0, 0, 0, 0, 0,  2,
};

static struct tf hand_tf(void)
{
    uint8_t block[112 + 64] = { 0 };
    struct tf_err e;
    struct tf tf;
    void *out = NULL;

    memcpy(block, page_head, 64);
    memcpy(block + 64, page_data, 48);
    memcpy(block + 112, stop_head, 64);
    const struct tf_new_block b = { "RAWDATA", "TPC", 0x0f, block, sizeof block };
    assert_int_equal(tf_build(&b, 1, 128, 7, 3, 99, &out, &tf.size, &e), 0);
    tf.data = out;
    return tf;
}
enum { HAND_BLOCK = 120 + 144 + 96 };              /* where its payload begins in the TF */

static void test_by_hand(void **state)
{
    (void)state;
    static const struct { uint16_t time, charge; uint8_t row, pad; } want[5] = {
        { 5, 0x123, 0, 3 }, { 5, 0x456, 0, 4 }, { 5, 0x789, 0, 9 }, { 7, 1, 2, 0 }, { 5, 0xfff, 7, 65 },
    };
    static const uint32_t head[6] = { 5, 446, 1, 128, 7, 3 };
    struct pipeline *p = pipeline_of("decode", NULL);
    struct tf tf = hand_tf();
    struct pipeline_result r;
    struct k_err e;

    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(r.n_out, 1);
    assert_int_equal(r.out[0].count, 5);
    assert_int_equal(r.out[0].size, 192 + 35);
    const uint8_t *d = r.out[0].data;
    assert_memory_equal(d, "TPCDIG1", 8);
    assert_memory_equal(d + 8, head, 24);
    for (unsigned s = 0; s <= 36; s++)
        assert_int_equal(d[32 + 4 * s], s == 0 ? 0 : 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(d[192 + 2 * i] | d[193 + 2 * i] << 8, want[i].time);
        assert_int_equal(d[202 + 2 * i] | d[203 + 2 * i] << 8, want[i].charge);
        assert_int_equal(d[212 + i], 0);
        assert_int_equal(d[217 + i], want[i].row);
        assert_int_equal(d[222 + i], want[i].pad);
    }
    assert_int_equal(r.counter, 7);
    pipeline_destroy(p);
    free(tf.data);
}

/* A field of a header or of the data with a wrong value: refused, with its name. */
static void test_refusals(void **state)
{
    (void)state;
    static const struct { unsigned at; uint8_t value; const char *words; } c[] = {
        { 0, 5, "header version is 5, want 7" }, { 1, 32, "header size is 32, want 64" },
        { 2, 0x4f, "FEE id is 79, want 15" }, { 4, 1, "priority is 1, want 0" },
        { 5, 4, "source is 4, want 3" }, { 8, 96, "offset to next page is 96, the page has 112" },
        { 9, 1, "offset to next page is 368, 176 bytes" }, { 10, 63, "memory size 63" },
        { 10, 96, "" }, { 11, 0xff, "memory size 65392" }, { 12, 14, "link is 14, want 15" },
        { 14, 1, "CRU is 1, want 0" }, { 15, 0x10, "endpoint is 1, want 0" },
        { 16, 1, "bunch crossing is 1, want 0" }, { 20, 129, "orbit is 129, want 128" },
        { 32, 2, "trigger is 2050, want 2051" }, { 36, 1, "page counter 1, want 0" },
        { 38, 1, "stop is 1 in not the last page" }, { 48, 3, "detector field is 3, want 2" },
        { 24, 1, "word 3 is 1" }, { 64, 3, "zero suppression version 3, want 2" },
        { 65, 0, "data without a time bin" }, { 65, 2, "byte 91: the last time bin is empty" }, { 65, 4, "byte 101: the last time bin is empty" },
        { 66, 1, "data of CRU 1, the header says 0" }, { 68, 41, "no bin starts" },
        { 69, 0x0e, "no bin starts" }, { 70, 6, "number of samples is not the one announced" },
        { 71, 1, "261 samples announced in 40 bytes" },
        { 73, 0x80, "byte 72: row mask of the other endpoint" },
        { 73, 0x01, "byte 72: row mask names rows" }, { 74, 87, "byte 74: row offset" },
        { 76, 0, "byte 76: row without a sequence" }, { 76, 60, "byte 76: sequences of a row reach" },
        { 78, 0, "byte 78: number of samples of a row does not grow" },
        { 79, 4, "byte 79: sequence starts inside" }, { 79, 70, "byte 79: sequence reaches past the last pad" },
        { 80, 200, "byte 79: sequence reaches past" }, { 85, 0x17, "byte 85: filler behind the samples" },
        { 91, 1, "byte 91: filler before a time bin" }, { 93, 0x80, "byte 92: row mask without rows" },
        { 105, 1, "byte 105: filler at the end" },
        { 112 + 13, 2, "packet counter 2, want 1" }, { 112 + 36, 0, "page counter 0, want 1" },
        { 112 + 38, 0, "stop is 0 in the last page" }, { 112 + 10, 48, "memory size 48" },
    };
    struct pipeline *p = pipeline_of("decode", NULL);
    struct pipeline_result r;

    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        struct tf tf = hand_tf();
        struct k_err e = { 0 };
        tf.data[HAND_BLOCK + c[i].at] = c[i].value;
        if (run_tf(p, &tf, &r, &e) == 0 || strstr(e.text, c[i].words) == NULL)
            fail_msg("byte %u = %u: \"%s\", want \"%s\"", c[i].at, c[i].value, e.text, c[i].words);
        assert_int_equal(e.code, K_EINPUT);
        if (i > 10)
            assert_non_null(strstr(e.text, "block TPC/0xf part 0"));
        free(tf.data);
    }
    pipeline_destroy(p);
}

/* A TF of two links and two orbits with digits here and there. */
static struct tf small_tf(void)
{
    struct digit d[120];
    uint32_t n = 0;

    for (uint32_t i = 0; i < 60; i++) {
        d[n++] = (struct digit){ 0, (uint8_t)(i % 17), (uint8_t)(i % 60), (uint16_t)(3 + 13 * i), (uint16_t)(10 + 60 * i) };
        d[n++] = (struct digit){ 0, (uint8_t)(i % 17), (uint8_t)(i % 60 + 1), (uint16_t)(3 + 13 * i), (uint16_t)(4000 - 60 * i) };
    }
    struct tf all = tf_of(d, n, 2), tf = tf_links(&all, 0, 1);
    free(all.data);
    return tf;
}

/* Every bit of a whole TF: it is refused, or the digits are others. Only the time of writing in
 * the meta block says nothing about the data. */
static void test_every_bit(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("decode", NULL);
    struct tf tf = small_tf();
    struct pipeline_result r;
    struct k_err e;
    unsigned refused = 0, changed = 0;

    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    uint64_t digest = r.digest;
    assert_int_equal(r.out[0].count, 120);
    for (size_t i = 0; i < tf.size; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            if (i >= 112 && i < 120)
                continue;
            tf.data[i] ^= (uint8_t)(1u << bit);
            if (run_tf(p, &tf, &r, &e) < 0)
                refused++;
            else if (r.digest != digest)
                changed++;
            else
                fail_msg("bit %u of byte %zu says nothing", bit, i);
            tf.data[i] ^= (uint8_t)(1u << bit);
        }
    }
    print_message("%zu bytes: %u refused, %u changed\n", tf.size, refused, changed);
    assert_true(refused > 0 && changed > 120 * 12 / 2);
    assert_int_equal(run_tf(p, &tf, &r, &e), 0);
    assert_true(r.digest == digest);
    pipeline_destroy(p);
    free(tf.data);
}

static void test_truncation(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct tf tf = small_tf();
    struct pipeline_result r;
    struct k_err e;

    if (run_tf(p, &tf, &r, &e) < 0)
        fail_msg("%s", e.text);
    uint64_t digest = r.out[0].digest;
    for (size_t len = 0; len < tf.size; len++) {
        /* a copy of just that size, so that a read past it is seen */
        uint8_t *cut = malloc(len + 1);
        memcpy(cut, tf.data, len);
        cut = realloc(cut, len ? len : 1);
        struct pipeline_seg s = { cut, len };
        if (pipeline_run(p, &s, 1, &r, &e) == 0)
            assert_true(r.out[0].digest != digest);  /* a cut on a border of blocks: fewer digits */
        free(cut);
    }
    pipeline_destroy(p);
    free(tf.data);
}

/* Random damage: bytes set, runs copied, pieces cut out. Nothing may crash or go on for ever. */
static void test_mutations(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct tf tf = small_tf();
    struct pipeline_result r;
    struct k_err e;
    uint64_t s = seed_of(20261130);
    unsigned accepted = 0, rounds = scaled(4000);

    for (unsigned i = 0; i < rounds; i++) {
        size_t size = tf.size, changes = 1 + rnd(&s) % 4;
        uint8_t *m = malloc(size);
        memcpy(m, tf.data, size);
        for (size_t k = 0; k < changes; k++) {
            size_t at = rnd(&s) % size, len = 1 + rnd(&s) % 64, from = rnd(&s) % size;
            len = at + len > size ? size - at : len;
            len = from + len > size ? size - from : len;
            switch (rnd(&s) % 4) {
            case 0: m[at] = (uint8_t)rnd(&s); break;
            case 1: memmove(m + at, m + from, len); break;
            case 2: memset(m + at, rnd(&s) & 1 ? 0xff : 0, len); break;
            case 3: size -= len; memmove(m + at, m + at + len, size - at); break;
            }
        }
        m = realloc(m, size);
        struct pipeline_seg seg = { m, size };
        e.text[0] = '\0';
        if (pipeline_run(p, &seg, 1, &r, &e) == 0)
            accepted++;
        else
            assert_true(e.code == K_EINPUT && e.text[0] != '\0');
        free(m);
    }
    print_message("%u of %u accepted\n", accepted, rounds);
    assert_true(accepted < rounds);
    pipeline_destroy(p);
    free(tf.data);
}

/* Random digits of any density: encoded and decoded they are the same, in pages of any size,
 * in one piece or in segments, in large or small batches. */
static void test_round_trip(void **state)
{
    (void)state;
    uint64_t s = seed_of(42);
    struct pipeline *p = pipeline_of("decode", NULL), *q = pipeline_of("decode", "decode.batch=4096");
    struct pipeline_result r, r2;
    struct k_err e;

    for (unsigned round = 0; round < 6; round++) {
        uint32_t n = (uint32_t)(rnd(&s) % 20000), orbits = 1 + (uint32_t)(rnd(&s) % 3), m = 0;
        uint32_t bins = (orbits * 3564 + 7) / 8, sector = (uint32_t)(rnd(&s) % 36);
        struct digit *d = malloc((n + 1) * sizeof *d);
        for (uint32_t i = 0; i < n; i++)
            d[i] = (struct digit){ (uint8_t)((sector + (round & 1 ? rnd(&s) % 36 : 0)) % 36),
                                   (uint8_t)(rnd(&s) % 152), (uint8_t)(rnd(&s) % 66),
                                   (uint16_t)(rnd(&s) % bins), (uint16_t)(rnd(&s) % 4096) };
        qsort(d, n, sizeof *d, digit_cmp);
        for (uint32_t i = 0; i < n; i++) {
            if (i == 0 || digit_cmp(&d[i], &d[m - 1]) != 0)
                d[m++] = d[i];
        }
        struct tf tf = tf_of(d, m, orbits);
        if (run_tf(p, &tf, &r, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(r.out[0].count, m);
        const uint8_t *o = (const uint8_t *)r.out[0].data + 192;
        for (uint32_t i = 0; i < m; i++) {
            struct digit x = { o[4 * m + i], o[5 * m + i], o[6 * m + i],
                               (uint16_t)(o[2 * i] | o[2 * i + 1] << 8),
                               (uint16_t)(o[2 * m + 2 * i] | o[2 * m + 2 * i + 1] << 8) };
            assert_int_equal(digit_cmp(&x, &d[i]), 0);
            assert_int_equal(x.charge, d[i].charge);
        }
        struct tf_seg seg[5];
        struct pipeline_seg ps[5];
        struct tf_err te;
        assert_int_equal(tf_split(tf.data, tf.size, 5, seg, &te), 0);
        for (int i = 0; i < 5; i++) {
            /* memory of its own for each part */
            void *copy = malloc(seg[i].size + 1);
            memcpy(copy, seg[i].data, seg[i].size);
            ps[i] = (struct pipeline_seg){ copy, seg[i].size };
        }
        assert_int_equal(pipeline_run(q, ps, 5, &r2, &e), 0);
        assert_true(r2.digest == r.digest);
        /* without one part: fewer digits, no error */
        assert_int_equal(pipeline_run(q, ps, 4, &r2, &e), 0);
        assert_true(r2.out[0].count <= m);
        for (int i = 0; i < 5; i++)
            free((void *)(uintptr_t)ps[i].data);
        free(tf.data);
        free(d);
    }
    pipeline_destroy(p);
    pipeline_destroy(q);
}

/* Two pages that both hold a cell: refused, with the cell. */
static void test_cell_twice(void **state)
{
    (void)state;
    uint8_t block[112 + 112 + 64] = { 0 };
    struct tf_err te;
    struct tf tf;
    void *out = NULL;
    struct pipeline *p = pipeline_of("decode", NULL);
    struct pipeline_result r;
    struct k_err e;

    /* bin 5 to 7 and again a page from bin 7 on: its bin 7 has row 0 pads 3, 4, 9 and row 7 */
    for (int i = 0; i < 2; i++) {
        memcpy(block + 112 * i, page_head, 64);
        memcpy(block + 112 * i + 64, page_data, 48);
        block[112 * i + 13] = (uint8_t)i;
        block[112 * i + 36] = (uint8_t)i;
    }
    memcpy(block + 224, stop_head, 64);
    block[224 + 13] = 2;
    block[224 + 36] = 2;
    const struct tf_new_block b = { "RAWDATA", "TPC", 0x0f, block, sizeof block };
    /* the second page in bin 6: before the last bin of the page before */
    block[112 + 68] = 48;
    assert_int_equal(tf_build(&b, 1, 128, 7, 3, 99, &out, &tf.size, &te), 0);
    tf.data = out;
    assert_int_equal(run_tf(p, &tf, &r, &e), -1);
    assert_non_null(strstr(e.text, "first bin 6 lies before bin 7"));
    free(tf.data);
    /* in bin 7: allowed, a bin may go on in the next page */
    block[112 + 68] = 56;
    assert_int_equal(tf_build(&b, 1, 128, 7, 3, 99, &out, &tf.size, &te), 0);
    tf.data = out;
    assert_int_equal(run_tf(p, &tf, &r, &e), 0);
    assert_int_equal(r.out[0].count, 10);
    free(tf.data);
    /* and with row 2 pad 0 of bin 7 once more (mask row 2 instead of row 0; pad 3 -> 0): not */
    block[112 + 72] = 0x84;
    block[112 + 77] = 0;
    assert_int_equal(tf_build(&b, 1, 128, 7, 3, 99, &out, &tf.size, &te), 0);
    tf.data = out;
    assert_int_equal(run_tf(p, &tf, &r, &e), -1);
    assert_non_null(strstr(e.text, "sector 0, row 2, pad 0: bin 7 comes after bin 7"));
    free(tf.data);
    pipeline_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand), cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_every_bit), cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_mutations), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_cell_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
