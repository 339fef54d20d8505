/* reads_test.c - B58: a greedy user is put off, for longer the more often they come; others are not; the share of the loop's time is kept */
#include "config.h"

#include "reads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const double share = 0.25;

static unsigned served[200];

/* Clients that ask every `period` s, an answer taking `cost` s; each comes back when it is told to, or does not care. Returns the seconds spent on answers. */
static double crowd(struct reads *r, unsigned clients, double period, double cost, double seconds, bool heeds, unsigned *longest)
{
    double *due = calloc(clients, sizeof(*due)), spent = 0;

    *longest = 0;
    memset(served, 0, sizeof(served));
    for (unsigned i = 0; i < clients; i++)
        due[i] = period * i / clients;
    for (double now = 0; now < seconds; now += 0.001) {
        for (unsigned i = 0; i < clients; i++) {
            unsigned ms;

            if (due[i] > now)
                continue;
            ms = reads_refuse(r, 1000, share, now);
            *longest = ms > *longest ? ms : *longest;
            due[i] = now + (ms > 0 && heeds ? ms / 1000. * (1 + 0.5 * i / clients) : period);      /* up to half more, as the command does */
            if (ms > 0)
                continue;
            reads_charge(r, 1000, share, now, cost);
            spent += cost;
            served[i]++;
        }
    }
    free(due);
    return spent;
}

static void b58_who_asks_little_is_never_put_off(void **state)
{
    struct reads *r = reads_create();
    unsigned longest;
    double spent = crowd(r, 5, 0.1, 0.001, 60, true, &longest);

    (void)state;
    assert_int_equal(longest, 0);
    assert_true(spent > 2.9);
    reads_destroy(r);
}

static void b58_two_hundred_that_ask_ten_times_a_second_get_their_share_and_no_more(void **state)
{
    static const double costs[] = { 0.0005, 0.002, 0.02 };

    (void)state;
    for (int heeds = 0; heeds < 2; heeds++) {
        for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
            struct reads *r = reads_create();
            unsigned longest;
            double spent = crowd(r, 200, 0.1, costs[i], 60, heeds, &longest);

            assert_true(spent < 60 * share / 2 + 0.2 + 2 * costs[i]);
            if (heeds)
                assert_true(spent > 0.8 * 60 * share / 2);       /* who heeds what they are told is served as much as there is */
            assert_in_range(longest, 50, 10000);
            for (unsigned k = 0; heeds && i < 2 && k < 200; k++)
                assert_true(served[k] > 0);                      /* nobody starves */
            /* somebody else, in the midst of it */
            assert_int_equal(reads_refuse(r, 7, share, 60), 0);
            reads_destroy(r);
        }
    }
}

static void b58_all_together_are_held_to_the_share(void **state)
{
    struct reads *r = reads_create();
    double spent = 0;
    unsigned put_off = 0;

    (void)state;
    for (double now = 0; now < 30; now += 0.001) {
        for (uint32_t user = 0; user < 20; user++) {
            if (reads_refuse(r, user, share, now) > 0) {
                put_off++;
                continue;
            }
            reads_charge(r, user, share, now, 0.001);
            spent += 0.001;
        }
    }
    assert_true(put_off > 0);
    assert_true(spent > 30 * share && spent < 30 * share + 0.21);
    /* more users than are kept apart: still an answer, still the share */
    for (uint32_t user = 0; user < 1000; user++)
        reads_refuse(r, user, share, 31);
    assert_int_equal(reads_refuse(r, 2000, share, 40), 0);
    reads_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b58_who_asks_little_is_never_put_off),
        cmocka_unit_test(b58_two_hundred_that_ask_ten_times_a_second_get_their_share_and_no_more),
        cmocka_unit_test(b58_all_together_are_held_to_the_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
