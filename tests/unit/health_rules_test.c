/* health_rules_test.c - when failures are enough, how long a node is passed over, how slow is slow, and the brake: by counts made here by hand */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "health_rules.h"

static struct failure on(const char *device, const char *code)
{
    struct failure f = { .code = "" };

    snprintf(f.code, sizeof(f.code), "%s", code);
    snprintf(f.device, sizeof(f.device), "%s", device);
    snprintf(f.text, sizeof(f.text), "signal 11");
    return f;
}

static const struct failure crash = { .code = "Crashed", .device = "gpu-2", .text = "signal 11" };

static void three_in_a_row_are_enough_and_one_done_begins_anew(void **state)
{
    struct conduct c = { 0 };

    (void)state;
    assert_false(conduct_failed(&c, &crash));
    assert_false(conduct_failed(&c, &crash));
    conduct_done(&c);
    assert_false(conduct_failed(&c, &crash));
    assert_false(conduct_failed(&c, &crash));
    assert_true(conduct_failed(&c, &crash));
    conduct_forget(&c);
    assert_int_equal(conduct_count(&c), 0);
    assert_false(conduct_failed(&c, &crash));
}

/* Every k-th fails: never two in a row. A quarter is too many, once there are six of them; an eighth is not. */
static void the_share_counts_too(void **state)
{
    struct conduct c = { 0 };
    unsigned marked_at = 0;

    (void)state;
    for (unsigned i = 1; i <= 64 && marked_at == 0; i++) {
        if (i % 3 != 0)
            conduct_done(&c);
        else if (conduct_failed(&c, &crash))
            marked_at = i;
    }
    assert_int_equal(marked_at, 18);                     /* the sixth: 6 of 18 */
    conduct_forget(&c);
    for (unsigned i = 1; i <= 1000; i++) {
        if (i % 8 != 0)
            conduct_done(&c);
        else
            assert_false(conduct_failed(&c, &crash));
    }
    assert_int_equal(conduct_count(&c), 4);              /* of the last 32 */
}

static void the_pause_grows_and_a_done_one_ends_it(void **state)
{
    static const double unproved[] = { 0.25, 0.5, 1, 2, 4, 4, 4 }, proved[] = { 32, 60, 60 };
    struct conduct c = { 0 };

    (void)state;
    for (size_t i = 0; i < 7; i++)
        assert_true(conduct_trouble(&c) == unproved[i]);
    conduct_failed(&c, &crash);                          /* one was the node's: the seven before count now */
    for (size_t i = 0; i < 3; i++)
        assert_true(conduct_trouble(&c) == proved[i]);
    conduct_done(&c);
    assert_true(conduct_trouble(&c) == 0.25);
}

static void five_refusals_in_a_row_over_3_s_are_enough(void **state)
{
    struct conduct c = { 0 };
    struct str reason = { 0 };

    (void)state;
    for (int i = 0; i < 100; i++)                        /* full for a moment: as often as you like */
        assert_false(conduct_refused(&c, "NoSpace", "no space on the spool", 100 + 0.029 * i));
    conduct_done(&c);
    for (int i = 0; i < 4; i++)
        assert_false(conduct_refused(&c, "NoSpace", "no space on the spool", 200 + i));
    conduct_done(&c);
    for (int i = 0; i < 4; i++)
        assert_false(conduct_refused(&c, "NoSpace", "no space on the spool", 300 + i));
    assert_true(conduct_refused(&c, "NoSpace", "no space on the spool", 304));
    conduct_reason(&c, &reason);
    assert_string_equal(str_text(&reason), "refused 5 time-frames in a row: NoSpace: no space on the spool");
    str_free(&reason);
}

static void reason_device_and_evidence_follow_from_what_counted(void **state)
{
    struct conduct c = { 0 };
    struct failure f = on("gpu-2", "TimedOut");
    struct str s = { 0 };

    (void)state;
    conduct_failed(&c, &crash);
    conduct_failed(&c, &f);
    conduct_failed(&c, &crash);
    assert_string_equal(conduct_device(&c), "gpu-2");
    conduct_reason(&c, &s);
    assert_string_equal(str_text(&s), "3 time-frames in a row failed here and were done elsewhere: Crashed: signal 11");
    str_free(&s);
    conduct_evidence(&c, &s);
    assert_string_equal(str_text(&s), "Crashed on gpu-2: signal 11\nTimedOut on gpu-2: signal 11\nCrashed on gpu-2: signal 11");
    str_free(&s);
    f = on("gpu-3", "Crashed");
    conduct_failed(&c, &f);
    assert_null(conduct_device(&c));
    for (int i = 0; i < 8; i++)                          /* the ring keeps eight */
        conduct_failed(&c, &f);
    assert_string_equal(conduct_device(&c), "gpu-3");
    f = on("", "OutputFailed");
    conduct_failed(&c, &f);
    assert_null(conduct_device(&c));
}

static void pace_of(struct pace *p, unsigned n, double ratio)
{
    memset(p, 0, sizeof(*p));
    for (unsigned i = 0; i < n; i++)
        pace_add(p, ratio);
}

static void slow_is_twice_the_median_and_one_outlier_is_nothing(void **state)
{
    struct pace p;

    (void)state;
    pace_of(&p, 15, 9);
    assert_int_equal(pace_judge(&p), 0);                 /* too few */
    pace_of(&p, 16, 2.1);
    assert_int_equal(pace_judge(&p), 1);
    pace_of(&p, 16, 1.7);
    assert_int_equal(pace_judge(&p), 0);                 /* neither: a mark neither comes nor goes */
    pace_of(&p, 16, 1.1);
    assert_int_equal(pace_judge(&p), -1);
    pace_of(&p, 20, 1);
    for (int i = 0; i < 9; i++)
        pace_add(&p, 100);
    assert_int_equal(pace_judge(&p), -1);
    for (int i = 0; i < 20; i++)                         /* the old ones are forgotten */
        pace_add(&p, 3);
    assert_int_equal(pace_judge(&p), 1);
}

static void what_came_back_three_times_in_a_day_stays(void **state)
{
    const int64_t hour = 3600 * (int64_t)1000000000;
    struct flaps f = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_false(flaps_are_many(&f, i * hour));
        flaps_add(&f, i * hour);
    }
    assert_true(flaps_are_many(&f, 3 * hour));
    assert_true(flaps_are_many(&f, 23 * hour));
    assert_false(flaps_are_many(&f, 24 * hour + 1));     /* the first was a day ago */
    flaps_add(&f, 24 * hour + 1);
    assert_true(flaps_are_many(&f, 24 * hour + 2));
    assert_false(flaps_are_many(&f, 25 * hour + 1));
}

static void a_note_is_shown_each_minute_and_told_each_hour_or_when_it_is_another(void **state)
{
    static const struct { bool same_text, same_level; double shown, told; enum note want; } cases[] = {
        { true, true, 1e9, 1e9, NOTE_KEPT },     { true, false, 1e9, 1e9, NOTE_KEPT },        { false, false, 0, 0, NOTE_TOLD },
        { false, true, 59, 3599, NOTE_KEPT },    { false, true, 60, 3599, NOTE_SHOWN },       { false, true, 0, 3600, NOTE_TOLD },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(note_decide(cases[i].same_text, cases[i].same_level, cases[i].shown, cases[i].told), cases[i].want);
}

static void the_brake_allows_by_number_and_by_share(void **state)
{
    static const struct { unsigned nodes; double percent; unsigned pool, want; } cases[] = {
        { 5, 10, 350, 5 }, { 50, 10, 350, 35 }, { 5, 10, 20, 2 }, { 5, 10, 9, 1 }, { 5, 0, 350, 1 }, { 1, 100, 350, 1 }, { 64, 100, 5000, 64 }, { 5, 10, 0, 1 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct brake_limits l = { cases[i].nodes, cases[i].percent, 3600 };

        assert_int_equal(brake_allowance(&l, cases[i].pool), cases[i].want);
    }
}

static void the_brake_goes_on_once_and_stays(void **state)
{
    const struct brake_limits l = { 2, 100, 60 };
    struct brake b = { 0 };

    const char node[300] = "";                           /* addresses to tell them apart */

    (void)state;
    assert_true(brake_take(&b, &l, 10, &node[0], 0));
    assert_true(brake_take(&b, &l, 10, &node[1], 50));
    assert_true(brake_take(&b, &l, 10, &node[2], 61));             /* the first has left the window */
    assert_int_equal(brake_count(&b, &l, 61), 2);
    assert_false(brake_take(&b, &l, 10, &node[3], 62));
    assert_true(b.on);
    assert_false(brake_take(&b, &l, 10, &node[3], 100000));        /* time does not release it */
    assert_int_equal(b.held, 2);
    brake_reset(&b);
    assert_true(brake_take(&b, &l, 10, &node[3], 100001));
    brake_reset(&b);
    brake_note(&b, &node[0], 90);
    brake_note(&b, &node[1], 95);
    assert_false(brake_take(&b, &l, 10, &node[2], 100));           /* what was marked before a restart counts */
    for (int i = 0; i < 200; i++)
        brake_note(&b, &node[i], 200 + i);
    assert_int_equal(b.n, BRAKE_MOST);
    assert_int_equal(brake_count(&b, &l, 400), 60 - 1);  /* 341 ... 399 */
}

static void a_node_that_is_marked_again_counts_once(void **state)
{
    const struct brake_limits l = { 2, 100, 60 };
    struct brake b = { 0 };
    const char node[3] = "";

    (void)state;
    assert_true(brake_take(&b, &l, 10, &node[0], 0));
    assert_true(brake_take(&b, &l, 10, &node[1], 10));
    for (int i = 0; i < 100; i++)
        assert_true(brake_take(&b, &l, 10, &node[0], 20 + i * 0.1));
    assert_int_equal(brake_count(&b, &l, 30), 2);
    assert_false(b.on);
    assert_int_equal(brake_count(&b, &l, 75), 1);        /* the second's minute is over, the first was marked at 29.9 */
    assert_true(brake_take(&b, &l, 10, &node[2], 75));
    assert_false(brake_take(&b, &l, 10, &node[1], 76));
    assert_false(brake_take(&b, &l, 10, &node[0], 77));  /* on is on */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_in_a_row_are_enough_and_one_done_begins_anew),
        cmocka_unit_test(the_share_counts_too),
        cmocka_unit_test(the_pause_grows_and_a_done_one_ends_it),
        cmocka_unit_test(five_refusals_in_a_row_over_3_s_are_enough),
        cmocka_unit_test(reason_device_and_evidence_follow_from_what_counted),
        cmocka_unit_test(slow_is_twice_the_median_and_one_outlier_is_nothing),
        cmocka_unit_test(what_came_back_three_times_in_a_day_stays),
        cmocka_unit_test(a_note_is_shown_each_minute_and_told_each_hour_or_when_it_is_another),
        cmocka_unit_test(the_brake_allows_by_number_and_by_share),
        cmocka_unit_test(the_brake_goes_on_once_and_stays),
        cmocka_unit_test(a_node_that_is_marked_again_counts_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
