/* range_test.c - ranges of the buffer against a map of single blocks kept beside it */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "mem.h"
#include "range.h"
#include "shm_layout.h"

enum { BLOCKS = 1024, ROUNDS = 20000 };

static uint32_t state;

static uint32_t next(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)state * below) >> 32);
}

/* The longest run of zeros. */
static uint64_t longest(const uint8_t *taken)
{
    uint64_t best = 0, run = 0;
    for (int i = 0; i < BLOCKS; i++) {
        run = taken[i] ? 0 : run + 1;
        best = run > best ? run : best;
    }
    return best * SHM_ALIGN;
}

static void random_takes_and_gives_conserve_every_byte(void **unused)
{
    (void)unused;
    struct ranges *r = ranges_create(BLOCKS * SHM_ALIGN + 17);
    uint8_t *taken = mem_zalloc(BLOCKS);
    struct range held[64] = { 0 };
    uint64_t used = 0;
    const char *given = getenv("SLUICE_TEST_SEED");

    state = given ? (uint32_t)strtoul(given, NULL, 10) : (uint32_t)time(NULL);
    print_message("seed %u\n", state);
    assert_int_equal(ranges_size(r), BLOCKS * SHM_ALIGN);
    for (int round = 0; round < ROUNDS; round++) {
        struct range *h = &held[next(64)];
        if (h->size > 0) {
            used -= h->size;
            memset(taken + h->offset / SHM_ALIGN, 0, h->size / SHM_ALIGN);
            ranges_give(r, h);
            assert_int_equal(h->size, 0);
        } else {
            uint64_t want = 1 + next(60 * SHM_ALIGN), rounded = (want + 63) / 64 * 64;
            bool fits = longest(taken) >= rounded;
            assert_int_equal(ranges_take(r, want, h, NULL), fits ? 0 : -1);
            if (fits) {
                assert_int_equal(h->size, rounded);
                assert_int_equal(h->offset % SHM_ALIGN, 0);
                assert_true(h->offset + h->size <= BLOCKS * SHM_ALIGN);
                for (uint64_t i = h->offset / 64; i < (h->offset + h->size) / 64; i++) {
                    assert_int_equal(taken[i], 0);
                    taken[i] = 1;
                }
                used += h->size;
            }
        }
        assert_int_equal(ranges_used(r), used);
        assert_int_equal(ranges_largest(r), longest(taken));
    }
    for (int i = 0; i < 64; i++)
        ranges_give(r, &held[i]);
    assert_int_equal(ranges_used(r), 0);
    assert_int_equal(ranges_largest(r), BLOCKS * SHM_ALIGN);
    ranges_destroy(r);
    free(taken);
}

static void what_does_not_fit_says_how_much_there_is(void **unused)
{
    (void)unused;
    struct ranges *r = ranges_create(1024);
    struct range a, b, c;
    struct err e;

    assert_int_equal(ranges_take(r, 2048, &a, &e), -1);
    assert_string_equal(e.text, "2048 bytes wanted, the buffer has 1024");
    assert_int_equal(ranges_take(r, UINT64_MAX, &a, &e), -1);
    assert_int_equal(ranges_take(r, 0, &a, &e), -1);
    assert_int_equal(ranges_take(r, 256, &a, &e), 0);
    assert_int_equal(ranges_take(r, 256, &b, &e), 0);
    assert_int_equal(ranges_take(r, 512, &c, &e), 0);
    ranges_give(r, &a);
    ranges_give(r, &c);
    assert_int_equal(ranges_take(r, 600, &a, &e), -1);
    assert_string_equal(e.text, "640 bytes wanted, 768 are free, at most 512 in one piece");
    assert_int_equal(ranges_used(r), 256);
    ranges_give(r, &b);
    ranges_destroy(r);
}

static void the_smallest_hole_that_fits_is_taken(void **unused)
{
    (void)unused;
    struct ranges *r = ranges_create(64 * 10);
    struct range big, wall, small, rest, got;

    assert_int_equal(ranges_take(r, 64 * 4, &big, NULL), 0);
    assert_int_equal(ranges_take(r, 64, &wall, NULL), 0);
    assert_int_equal(ranges_take(r, 64 * 2, &small, NULL), 0);
    assert_int_equal(ranges_take(r, 64 * 3, &rest, NULL), 0);
    uint64_t at = small.offset;
    ranges_give(r, &big);
    ranges_give(r, &small);
    assert_int_equal(ranges_take(r, 64 * 2, &got, NULL), 0);
    assert_int_equal(got.offset, at);
    ranges_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_takes_and_gives_conserve_every_byte),
        cmocka_unit_test(what_does_not_fit_says_how_much_there_is),
        cmocka_unit_test(the_smallest_hole_that_fits_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
