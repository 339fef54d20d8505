/* pace_test.c - the schedule: absolute, exact, without drift */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <math.h>
#include <cmocka.h>

#include "clock.h"
#include "pace.h"

static void the_nth_is_due_n_over_rate_after_the_first(void **unused)
{
    (void)unused;
    struct pace p = { .rate = 4 };

    pace_start(&p, 1000);
    assert_int_equal(pace_due_ns(&p, 0), 1000);
    assert_int_equal(pace_due_ns(&p, 1), 1000 + 250000000);
    assert_int_equal(pace_due_ns(&p, 8), 1000 + 2 * CLOCK_SECOND);
}

static void nothing_adds_up_over_a_day_at_351_a_second(void **unused)
{
    (void)unused;
    struct pace p = { .rate = 351 };
    const uint64_t day = 86400;

    pace_start(&p, 0);
    /* After whole seconds the n-th is due at exactly that second: 351 TFs each. */
    for (uint64_t s = 0; s <= day; s += 3600)
        assert_int_equal(pace_due_ns(&p, 351 * s), (int64_t)s * CLOCK_SECOND);
    /* In between it is within half a nanosecond of n/351, in whole numbers: |351 due - n 1e9| <= 351/2. */
    for (uint64_t n = 1; n < 351 * day; n += 1234567) {
        __int128 off = (__int128)351 * pace_due_ns(&p, n) - (__int128)n * CLOCK_SECOND;
        assert_true(off <= 176 && off >= -176);
    }
}

static void max_is_always_due(void **unused)
{
    (void)unused;
    struct pace p = { .rate = 0 };

    pace_start(&p, 77);
    assert_int_equal(pace_due_ns(&p, 1000000), 77);
}

static void far_away_does_not_wrap(void **unused)
{
    (void)unused;
    struct pace p = { .rate = 1e-6 };

    pace_start(&p, 5);
    assert_int_equal(pace_due_ns(&p, UINT64_MAX), INT64_MAX);
}

static void offered_counts_the_gaps(void **unused)
{
    (void)unused;
    struct pace p = { .rate = 0 };

    pace_start(&p, 0);
    assert_true(isnan(pace_offered(&p, 0, 0)));
    assert_true(isnan(pace_offered(&p, 1, 0)));
    assert_true(fabs(pace_offered(&p, 11, 2 * CLOCK_SECOND) - 5) < 1e-12);
}

static void rates_are_read_or_refused(void **unused)
{
    (void)unused;
    static const char *const bad[] = { "", "0", "-1", "MAX", "inf", "nan", "1e9", "3Hz", "0x10" };
    double rate = 1;
    struct err e;

    assert_int_equal(pace_parse("max", &rate, &e), 0);
    assert_true(rate == 0);
    assert_int_equal(pace_parse("0.88", &rate, &e), 0);
    assert_true(rate == 0.88);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(pace_parse(bad[i], &rate, &e), -1);
        assert_int_equal(e.code, ERR_USAGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_is_due_n_over_rate_after_the_first),
        cmocka_unit_test(nothing_adds_up_over_a_day_at_351_a_second),
        cmocka_unit_test(max_is_always_due),
        cmocka_unit_test(far_away_does_not_wrap),
        cmocka_unit_test(offered_counts_the_gaps),
        cmocka_unit_test(rates_are_read_or_refused),
    };
    return cmocka_run_group_tests_name("pace", tests, NULL, NULL);
}
