/* offset_test.c - a peer's clock is judged by what is certain: a long way, a clock that is set, drift */
#include "config.h"

#include "offset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define S INT64_C(1000000000)

static uint64_t seed = 1;

static double random_1(void)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (double)(seed >> 11) / (double)(UINT64_C(1) << 53);
}

/* The peer's clock is `ahead` of ours; the way there takes `there` s, back `back`. */
static void look(struct offset *o, double now, double ahead, double there, double back)
{
    int64_t sent = (int64_t)(now * 1e9) + 1000 * S;

    offset_take(o, sent, sent + (int64_t)((there + back) * 1e9), sent + (int64_t)((there + ahead) * 1e9), (int64_t)((now + there + back) * 1e9));
}

static void close_to(double value, double want, double by)
{
    assert_true(value > want - by && value < want + by);
}

static void queues_make_it_less_sure_and_never_wrong(void **state)
{
    static const double ways[][2] = { { 0, 4 }, { 4, 0 }, { 3, 1 }, { 0.001, 6 } };

    (void)state;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        struct offset o = { 0 };

        look(&o, 10, 0, ways[i][0], ways[i][1]);
        assert_true(o.known && o.low <= 1e-6 && o.high >= -1e-6);
        close_to(offset_error(&o), (ways[i][0] + ways[i][1]) / 2, 1e-6);
        look(&o, 20, 0, 0.001, 0.001);           /* a short way: now it is known */
        close_to(offset_value(&o), 0, 0.002);
        assert_true(offset_error(&o) < 0.002);
        look(&o, 21, 0, 2, 2);                   /* which a long one does not undo */
        assert_true(offset_error(&o) < 0.008);
    }
}

static void a_clock_that_is_off_is_seen_and_one_that_is_set_too(void **state)
{
    struct offset o = { 0 };

    (void)state;
    look(&o, 1, -5, 0.01, 0.01);
    close_to(offset_value(&o), -5, 0.02);
    look(&o, 2, 3600, 0.01, 0.01);
    close_to(offset_value(&o), 3600, 0.02);
    look(&o, 3, 0, 0.5, 0.1);
    assert_true(o.low <= 0 && o.high >= 0 && o.high - o.low < 0.7);
    offset_take(&o, 5 * S, 4 * S, 5 * S, 6 * S); /* our own clock was set back between the two: nothing is learnt */
    assert_true(o.low <= 0 && o.high >= 0 && o.high - o.low < 0.7);
}

static void drift_is_followed_within_the_bounds(void **state)
{
    struct offset o = { 0 };

    (void)state;
    for (unsigned i = 0; i < 20000; i++) {
        double now = i, ahead = 4e-4 * now, far = random_1() < 0.1 ? 0.9 * random_1() : 0.002 * random_1();
        double there = far * random_1();

        look(&o, now, ahead, there, far - there);
        assert_true(o.low <= ahead + 1e-6 && o.high >= ahead - 1e-3 * far - 1e-6);
    }
    assert_true(offset_error(&o) < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_make_it_less_sure_and_never_wrong),
        cmocka_unit_test(a_clock_that_is_off_is_seen_and_one_that_is_set_too),
        cmocka_unit_test(drift_is_followed_within_the_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
