/* times_test.c - what is usual for a TF of a recipe */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "times.h"

static void nothing_is_usual_before_enough_were_seen(void **unused)
{
    struct times *t = times_create();

    (void)unused;
    for (int i = 0; i < TIMES_ENOUGH - 1; i++)
        times_add(t, "a", 100, 1);
    assert_true(times_usual(t, "a", 100) == 0);
    times_add(t, "a", 100, 1);
    assert_true(times_usual(t, "a", 100) == 1);
    assert_true(times_usual(t, "b", 100) == 0);
    times_destroy(t);
}

static void the_median_is_not_moved_by_a_few_that_took_long(void **unused)
{
    static const double seconds[] = { 1, 2, 1000, 3, 1000 };
    struct times *t = times_create();

    (void)unused;
    for (int i = 0; i < 5; i++)
        times_add(t, "a", 0, seconds[i]);
    assert_true(times_usual(t, "a", 0) == 3);
    times_destroy(t);
}

static void the_newest_count(void **unused)
{
    struct times *t = times_create();

    (void)unused;
    for (int i = 0; i < TIMES_KEPT; i++)
        times_add(t, "a", 0, 1);
    for (int i = 0; i < TIMES_KEPT / 2 + 1; i++)
        times_add(t, "a", 0, 8);
    assert_true(times_usual(t, "a", 0) == 8);
    times_destroy(t);
}

static void a_larger_tf_may_take_longer_and_a_smaller_one_too(void **unused)
{
    struct times *t = times_create();

    (void)unused;
    for (int i = 0; i < 5; i++)
        times_add(t, "a", 1000, 2);
    assert_true(times_usual(t, "a", 10000) == 20);
    assert_true(times_usual(t, "a", 10) == 2);
    times_destroy(t);
}

static void the_recipe_used_longest_ago_goes(void **unused)
{
    struct times *t = times_create();
    char name[16];

    (void)unused;
    for (int r = 0; r <= TIMES_RECIPES; r++) {
        snprintf(name, sizeof name, "r%d", r);
        for (int i = 0; i < TIMES_ENOUGH; i++)
            times_add(t, name, 0, 1);
    }
    assert_true(times_usual(t, "r0", 0) == 0);
    assert_true(times_usual(t, "r1", 0) == 1);
    assert_true(times_usual(t, name, 0) == 1);
    times_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_usual_before_enough_were_seen),
        cmocka_unit_test(the_median_is_not_moved_by_a_few_that_took_long),
        cmocka_unit_test(the_newest_count),
        cmocka_unit_test(a_larger_tf_may_take_longer_and_a_smaller_one_too),
        cmocka_unit_test(the_recipe_used_longest_ago_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
