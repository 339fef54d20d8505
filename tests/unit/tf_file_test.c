/* tf_file_test.c - TF files: found whole, cut on borders of blocks, refused with the place when damaged */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tf_file.h"

static char dir[] = "/tmp/tf_file_test.XXXXXX";

/* Two identities, three and one blocks of different sizes. */
static void *make(uint32_t counter, size_t *size)
{
    static uint8_t bytes[300];
    struct tf_err e;
    void *out = NULL;
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + counter);
    const struct tf_new_block b[] = {
        { "RAWDATA", "TPC", 0x4f, bytes, 100 }, { "RAWDATA", "ITS", 42, bytes, 0 },
        { "RAWDATA", "TPC", 0x4f, bytes + 100, 17 }, { "RAWDATA", "TPC", 0x4f, bytes, 300 },
    };
    assert_int_equal(tf_build(b, 4, 128, counter, 9, 1234, &out, size, &e), 0);
    return out;
}

static const char *save(const char *name, const void *data, size_t size)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    fclose(f);
    return path;
}

static void test_layout(void **state)
{
    (void)state;
    size_t size;
    uint8_t *p = make(5, &size);
    /* meta 96+24, index 96+2*48, blocks 4*96 + 100+0+17+300 */
    assert_int_equal(size, 120 + 192 + 384 + 417);
    assert_memory_equal(p, "O2O2\x60\0\0\0\0\0\0\0\3\0\0\0DataHeadNONE", 28);
    assert_memory_equal(p + 32, "FILE_STF_META\0\0\0FLP\0\1\0\0\0NONE", 28);
    assert_int_equal(p[72], 24);
    assert_int_equal(p[96], 1);
    assert_int_equal(p[104] | p[105] << 8, (int)size);
    assert_int_equal(p[112] | p[113] << 8, 1234);
    /* sorted: ITS before TPC, though it was given second */
    assert_memory_equal(p + 120 + 96, "RAWDATA\0\0\0\0\0\0\0\0\0ITS\0\1\0\0\0\x2a\0\0\0", 28);
    assert_memory_equal(p + 120 + 96 + 48, "RAWDATA\0\0\0\0\0\0\0\0\0TPC\0\3\0\0\0\x4f\0\0\0", 28);
    assert_int_equal(p[120 + 96 + 48 + 32], 96);          /* its first block lies behind ITS */
    free(p);
}

static void test_walk(void **state)
{
    (void)state;
    size_t size;
    uint8_t *p = make(5, &size);
    struct tf_seg s = { p, size };
    struct tf_iter it;
    struct tf_block b;
    struct tf_err e;
    struct tf_info info;
    bool complete;
    const struct { enum tf_kind kind; uint32_t part; uint64_t size; } want[] = {
        { TF_META, 0, 24 }, { TF_INDEX, 0, 96 }, { TF_DATA, 0, 0 },
        { TF_DATA, 0, 100 }, { TF_DATA, 1, 17 }, { TF_DATA, 2, 300 },
    };

    tf_iter_init(&it, &s, 1);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(tf_iter_next(&it, &b, &e), 1);
        assert_int_equal(tf_block_kind(&b), want[i].kind);
        assert_int_equal(b.part, want[i].part);
        assert_int_equal(b.size, want[i].size);
    }
    assert_int_equal(tf_iter_next(&it, &b, &e), 0);
    assert_int_equal(tf_check(&s, 1, &info, &complete, &e), 0);
    assert_true(complete);
    assert_int_equal(info.blocks, 4);
    assert_int_equal(info.identities, 2);
    assert_int_equal(info.first_orbit, 128);
    assert_int_equal(info.counter, 5);
    assert_int_equal(info.run, 9);
    assert_int_equal(info.payload, 417);
    free(p);
}

static void test_split(void **state)
{
    (void)state;
    size_t size;
    uint8_t *p = make(5, &size);
    struct tf_err e;

    for (unsigned parts = 1; parts <= 12; parts++) {
        struct tf_seg out[12];
        const uint8_t *at = p;
        bool complete = false;
        assert_int_equal(tf_split(p, size, parts, out, &e), 0);
        for (unsigned i = 0; i < parts; i++) {
            assert_ptr_equal(out[i].data, at);
            at += out[i].size;
        }
        assert_ptr_equal(at, p + size);
        assert_true(out[0].size >= 120 + 192);
        /* each piece is a run of whole blocks, and together they are the TF */
        assert_int_equal(tf_check(out, parts, NULL, &complete, &e), 0);
        assert_true(complete);
        if (parts > 1 && out[parts - 1].size > 0) {
            assert_int_equal(tf_check(out, parts - 1, NULL, &complete, &e), 0);
            assert_false(complete);
        }
    }
    assert_int_equal(tf_split(p, size, 0, NULL, &e), -1);
    free(p);
}

static void test_file(void **state)
{
    (void)state;
    size_t n1, n2;
    uint8_t *a = make(1, &n1), *b = make(2, &n2), *both = malloc(n1 + n2), *back = malloc(n2);
    struct tf_err e;
    struct tf_info info;

    memcpy(both, a, n1);
    memcpy(both + n1, b, n2);
    struct tf_file *f = tf_file_open(save("two", both, n1 + n2), &e);
    assert_non_null(f);
    assert_int_equal(tf_file_size(f), n1 + n2);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(tf_file_next(f, &info, &e), 1);
        assert_int_equal(info.counter, 1);
        assert_int_equal(info.offset, 0);
        assert_int_equal(info.size, n1);
        assert_int_equal(tf_file_next(f, &info, &e), 1);
        assert_int_equal(info.counter, 2);
        assert_int_equal(info.offset, n1);
        assert_int_equal(info.written_ms, 1234);
        assert_int_equal(tf_file_next(f, &info, &e), 0);
        assert_int_equal(tf_file_next(f, &info, &e), 0);
        tf_file_rewind(f);
    }
    assert_int_equal(tf_file_read(f, n1, back, n2, &e), 0);
    assert_memory_equal(back, b, n2);
    assert_int_equal(tf_file_read(f, n1 + 1, back, n2, &e), -1);
    tf_file_close(f);
    free(a);
    free(b);
    free(both);
    free(back);
}

/* A file is opened and searched; the error's place and words are what is due. */
static void expect_bad(const char *path, uint64_t offset, const char *words)
{
    struct tf_err e = { 0 };
    struct tf_info info;
    struct tf_file *f = tf_file_open(path, &e);

    assert_non_null(f);
    int r;
    while ((r = tf_file_next(f, &info, &e)) == 1)
        ;
    assert_int_equal(r, -1);
    if (strstr(e.text, words) == NULL || e.offset != offset)
        fail_msg("at %llu: %s; wanted at %llu: %s", (unsigned long long)e.offset, e.text,
                 (unsigned long long)offset, words);
    assert_int_equal(tf_file_next(f, &info, &e), 0);      /* the rest is given up, no endless loop */
    tf_file_close(f);
}

static void test_damage(void **state)
{
    (void)state;
    size_t n;
    uint8_t *p = make(1, &n), *q = malloc(2 * n);
    const struct { size_t at; uint8_t value[8]; size_t len; uint64_t offset; const char *words; } c[] = {
        { 0, "X", 1, 0, "magic" },
        { 4, { 80 }, 1, 4, "header size is 80, want 96" },
        { 104, { 0, 0, 0, 0, 0, 0, 0, 0x80 }, 8, 104, "a TF of 9223372036854775808 bytes" },
        { 104, { 1, 0, 0, 0, 0, 0, 0, 0 }, 8, 104, "a TF of 1 bytes" },
        { 96, { 2 }, 1, 96, "version 2" },
        { 120 + 72, { 0, 0, 0, 0, 0, 0, 0, 0x80 }, 8, 192, "payload of 9223372036854775" },
        { 120 + 72, { 95 }, 1, 192, "multiple of 48" },
        { 312 + 72, { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff }, 8, 384, "payload of 184467440737" },
        { 216 + 20, { 2 }, 1, 236, "has 2 blocks, their headers say 1" },
        { 216 + 48 + 32, { 97 }, 1, 296, "starts at 97" },
        { 216 + 24, { 43 }, 1, 216, "another than block RAWDATA/ITS/0x2a" },
        { 408 + 68, { 1 }, 1, 476, "part 1 found, 0 is due" },
        { 408 + 80, { 129 }, 1, 488, "first orbit 129, the TF's is 128" },
        { 408 + 88, { 8 }, 1, 496, "run 8, the TF's is 9" },
    };

    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        /* alone, and behind a sound TF: then the place moves along */
        memcpy(q, p, n);
        memcpy(q + c[i].at, c[i].value, c[i].len);
        expect_bad(save("bad", q, n), c[i].offset, c[i].words);
        memmove(q + n, q, n);
        memcpy(q, p, n);
        expect_bad(save("bad", q, 2 * n), c[i].offset + n, c[i].words);
    }
    free(p);
    free(q);
}

static void test_truncation(void **state)
{
    (void)state;
    size_t n;
    uint8_t *p = make(1, &n);
    struct tf_err e;
    struct tf_info info;

    for (size_t len = 0; len < n; len++) {
        struct tf_file *f = tf_file_open(save("cut", p, len), &e);
        assert_non_null(f);
        assert_int_equal(tf_file_next(f, &info, &e), -1);
        assert_true(e.offset <= len || e.offset == 104);
        assert_true(e.text[0] != '\0');
        assert_int_equal(tf_file_next(f, &info, &e), 0);
        tf_file_close(f);
        struct tf_seg s = { p, len };
        bool complete = true;
        assert_true(tf_check(&s, 1, NULL, &complete, &e) < 0 || !complete);
    }
    expect_bad(save("cut", p, 0), 0, "empty");
    free(p);
}

/* The file shrinks between scan and read: an error, no signal, no short data taken for whole. */
static void test_shrinks(void **state)
{
    (void)state;
    size_t n;
    uint8_t *p = make(1, &n), *back = malloc(n);
    struct tf_err e;
    struct tf_info info;
    const char *path = save("shrink", p, n);
    struct tf_file *f = tf_file_open(path, &e);

    assert_int_equal(tf_file_next(f, &info, &e), 1);
    assert_int_equal(truncate(path, (off_t)n / 2), 0);
    assert_int_equal(tf_file_read(f, info.offset, back, info.size, &e), -1);
    assert_int_equal(e.offset, n / 2);
    assert_non_null(strstr(e.text, "the file ends"));
    tf_file_close(f);
    free(p);
    free(back);
}

static void test_kinds(void **state)
{
    (void)state;
    struct tf_err e;
    char fifo[100];

    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_null(tf_file_open(fifo, &e));                 /* and does not wait for a writer */
    assert_non_null(strstr(e.text, "FIFO"));
    assert_null(tf_file_open(dir, &e));
    assert_non_null(strstr(e.text, "folder"));
    assert_null(tf_file_open("/dev/zero", &e));
    assert_non_null(strstr(e.text, "device"));
    assert_null(tf_file_open("/tmp/there is no such file", &e));
    assert_non_null(strstr(e.text, "No such file"));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    char cmd[100];
    (void)state;
    snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
    return system(cmd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout), cmocka_unit_test(test_walk), cmocka_unit_test(test_split),
        cmocka_unit_test(test_file), cmocka_unit_test(test_damage),
        cmocka_unit_test(test_truncation), cmocka_unit_test(test_shrinks),
        cmocka_unit_test(test_kinds),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
