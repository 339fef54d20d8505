/* clock_test.c - times and durations as people write them */
#include "config.h"

#include "clock.h"
#include "mem.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define S CLOCK_SECOND

struct good { const char *text; int64_t ns; };

static void check(int (*parse)(const char *, int64_t *, struct err *), const struct good *good, size_t n_good,
                  const char *const *bad, size_t n_bad)
{
    struct err e;
    int64_t ns;

    for (size_t i = 0; i < n_good; i++) {
        if (parse(good[i].text, &ns, &e) != 0)
            fail_msg("%s: %s", good[i].text, e.text);
        assert_true(ns == good[i].ns);
    }
    for (size_t i = 0; i < n_bad; i++) {
        ns = 77;
        if (parse(bad[i], &ns, &e) != -1)
            fail_msg("'%s' was taken", bad[i]);
        assert_true(ns == 77);
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.text, "accepted"));
    }
}

static void a_duration_needs_its_unit(void **state)
{
    static const struct good good[] = {
        { "90s", 90 * S }, { "15m", 900 * S }, { "4h", 14400 * S }, { "2d", 172800 * S }, { "500ms", S / 2 }, { "3650d", 3650 * INT64_C(86400) * S },
    };
    static const char *const bad[] = {
        "", "90", "0s", "0", "-1s", "+1s", "1.5h", "1 h", " 1h", "1h ", "1H", "s", "3651d", "99999999999999999999s", "1h30m", "1w", "inf",
        "9223372036854775808ms", "unlimited",
    };

    (void)state;
    check(clock_parse_duration, good, ARRAY_LEN(good), bad, ARRAY_LEN(bad));
}

static void a_limit_takes_slurms_six_forms(void **state)
{
    static const struct good good[] = {
        { "90s", 90 * S }, { "30", 1800 * S }, { "1:30", 90 * S }, { "0:01", S }, { "2:00:00", 7200 * S }, { "1-0", 86400 * S },
        { "1-12", 129600 * S }, { "1-2:3", (86400 + 7200 + 180) * S }, { "1-2:3:4", (86400 + 7200 + 184) * S }, { "100:00", 6000 * S },
    };
    static const char *const bad[] = {
        "", "0", "0:00", "0-0", "0-0:0:0", "-1", "1:2:3:4", "1-", "-", ":", "1:", "1:60", "1:00:60", "1-24", "1-1-1", "a", "1:-1",
        "99999999999999", "3651-0", "infinite", "UNLIMITED",
    };

    (void)state;
    check(clock_parse_limit, good, ARRAY_LEN(good), bad, ARRAY_LEN(bad));
}

static void a_time_is_now_or_named(void **state)
{
    const int64_t now = INT64_C(1796032800) * S;        /* 2026-11-30T10:00:00Z */
    static const struct good good[] = {
        { "now", INT64_C(1796032800) * S },
        { "now+1h", INT64_C(1796036400) * S },
        { "22:00", INT64_C(1796076000) * S },
        { "09:00", INT64_C(1796115600) * S },           /* tomorrow's */
        { "10:00", INT64_C(1796119200) * S },           /* the next one, not this instant */
        { "2026-11-30T10:00:00Z", INT64_C(1796032800) * S },
        { "2026-11-30T11:00:00.25+01:00", INT64_C(1796032800) * S + S / 4 },
        { "2026-11-30T05:30:00-04:30", INT64_C(1796032800) * S },
        { "2028-02-29T00:00:00Z", INT64_C(1835395200) * S },
    };
    static const char *const bad[] = {
        "", "tomorrow", "now+1", "now-1h", "now+0s", "24:00", "9:00", "22:60", "2026-11-30", "2026-11-30T10:00:00", "2026-13-01T00:00:00Z",
        "2026-02-29T00:00:00Z", "2026-11-31T00:00:00Z", "2026-11-30T10:00:00Zx", "2026-11-30T10:00:00+1:00", "0", "1796032800",
    };
    struct err e;
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (clock_parse_time(good[i].text, now, &ns, &e) != 0)
            fail_msg("%s: %s", good[i].text, e.text);
        if (ns != good[i].ns)
            fail_msg("%s: %lld", good[i].text, (long long)(ns / S));
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (clock_parse_time(bad[i], now, &ns, &e) != -1)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(e.text, "accepted"));
    }
}

static void the_past_is_a_time_or_so_long_ago(void **state)
{
    const int64_t now = INT64_C(1796032800) * S;        /* 2026-11-30T10:00:00Z */
    static const struct good good[] = {
        { "1h", INT64_C(1796029200) * S },
        { "09:59", INT64_C(1796032740) * S },
        { "10:00", INT64_C(1796032800) * S },
        { "10:01", INT64_C(1795946460) * S },           /* yesterday's */
        { "2026-11-30T05:30:00-04:30", INT64_C(1796032800) * S },
    };
    static const char *const bad[] = { "", "now+1h", "24:00", "9:00", "-1h", "0", "30" };
    struct err e;
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (clock_parse_past(good[i].text, now, &ns, &e) != 0)
            fail_msg("%s: %s", good[i].text, e.text);
        assert_int_equal(ns, good[i].ns);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (clock_parse_past(bad[i], now, &ns, &e) != -1)
            fail_msg("'%s' was taken", bad[i]);
        assert_non_null(strstr(e.text, "accepted"));
    }
}

static void times_are_shown_with_their_offset(void **state)
{
    char out[CLOCK_TEXT];
    int64_t ns;
    struct err e;

    (void)state;
    assert_string_equal(clock_rfc3339(INT64_C(1796033209) * S + 120999999, out), "2026-11-30T10:06:49.120+00:00");
    assert_string_equal(clock_rfc3339(-1, out), "1969-12-31T23:59:59.999+00:00");
    setenv("TZ", "XXX-05:45", 1);
    tzset();
    assert_string_equal(clock_rfc3339(INT64_C(1796033209) * S, out), "2026-11-30T15:51:49.000+05:45");
    assert_int_equal(clock_parse_time(out, 0, &ns, &e), 0);
    assert_true(ns == INT64_C(1796033209) * S);
    setenv("TZ", "XXX3:30", 1);
    tzset();
    assert_string_equal(clock_rfc3339(INT64_C(1796033209) * S, out), "2026-11-30T06:36:49.000-03:30");
    setenv("TZ", "UTC0", 1);
    tzset();
}

static void durations_are_shown_by_two_units(void **state)
{
    static const struct good cases[] = {
        { "0s", 0 }, { "12us", 12345 }, { "300ms", 300000000 }, { "1.5s", 3 * S / 2 }, { "4m05s", 245 * S }, { "3h07m", 11220 * S },
        { "1d02h", 93600 * S }, { "-300ms", -300000000 },
    };
    char out[CLOCK_TEXT];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        assert_string_equal(clock_duration_text(cases[i].ns, out), cases[i].text);
    assert_non_null(clock_duration_text(INT64_MIN, out));
}

static void the_monotonic_clock_does_not_run_back(void **state)
{
    int64_t last = clock_mono_ns();

    (void)state;
    for (int i = 0; i < 1000; i++) {
        int64_t now = clock_mono_ns();

        assert_true(now >= last);
        last = now;
    }
    assert_true(clock_wall_ns() > INT64_C(1600000000) * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duration_needs_its_unit),
        cmocka_unit_test(a_limit_takes_slurms_six_forms),
        cmocka_unit_test(a_time_is_now_or_named),
        cmocka_unit_test(the_past_is_a_time_or_so_long_ago),
        cmocka_unit_test(times_are_shown_with_their_offset),
        cmocka_unit_test(durations_are_shown_by_two_units),
        cmocka_unit_test(the_monotonic_clock_does_not_run_back),
    };

    setenv("TZ", "UTC0", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
