/* ledger_test.c - sets of numbers as ranges; charges by fence and the sums that follow from them */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "idset.h"
#include "ledger.h"
#include "mem.h"

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static void ranges_grow_together(void **state)
{
    struct idset s = { 0 };

    (void)state;
    assert_true(idset_add(&s, 5));
    assert_true(idset_add(&s, 7));
    assert_int_equal(s.n, 2);
    assert_true(idset_add(&s, 6));
    assert_int_equal(s.n, 1);
    assert_int_equal(s.at[0].first, 5);
    assert_int_equal(s.at[0].last, 7);
    assert_false(idset_add(&s, 6));
    assert_true(idset_add(&s, 4));
    assert_true(idset_add(&s, 0));
    assert_int_equal(s.n, 2);
    assert_int_equal(s.count, 5);
    assert_true(idset_has(&s, 0) && idset_has(&s, 7));
    assert_false(idset_has(&s, 1) || idset_has(&s, 8));
    idset_free(&s);
}

static void set_agrees_with_a_table(void **state)
{
    enum { N = 600 };
    bool there[N] = { false };
    struct idset s = { 0 };
    uint64_t count = 0;

    (void)state;
    for (int i = 0; i < 4000; i++) {
        uint64_t id = draw(N);
        assert_int_equal(idset_add(&s, id), !there[id]);
        count += !there[id];
        there[id] = true;
        id = draw(N);
        assert_int_equal(idset_has(&s, id), there[id]);
        for (size_t k = 1; k < s.n; k++)
            assert_true(s.at[k - 1].last + 1 < s.at[k].first);
    }
    assert_int_equal(s.count, count);
    idset_free(&s);
}

static void a_charge_returns_once(void **state)
{
    struct dispatch *d = dispatch_create();
    struct ledger l = { .dispatch = d };
    struct disp_node load = { .usable = true, .class_bit = 1, .size = 1000, .high_water = 0.8, .building_limit = 3 };
    struct account a;
    struct charge_key first = { 0, 1, 42, 1, 1 }, second = { 0, 1, 42, 1, 2 };
    struct err e;

    (void)state;
    account_init(&a, &load, NULL);
    dispatch_add(d, &load);
    struct charge *c = ledger_charge(&l, &a, &first, 300, true, NULL, 0);
    assert_ptr_equal(ledger_find(&l, &first), c);
    assert_null(ledger_find(&l, &second));
    assert_int_equal(load.charged, 300);
    assert_int_equal(load.building, 1);
    ledger_built(&l, c);
    ledger_built(&l, c);                         /* told twice */
    assert_int_equal(load.building, 0);
    ledger_charge(&l, &a, &second, 200, true, NULL, 0);
    assert_int_equal(ledger_audit(&a, "n", &e), 0);
    load.charged++;
    assert_int_equal(ledger_audit(&a, "n", &e), -1);
    assert_non_null(strstr(e.text, "501"));
    load.charged--;
    ledger_return(&l, ledger_find(&l, &first));
    assert_null(ledger_find(&l, &first));
    ledger_return(&l, ledger_find(&l, &second));
    assert_int_equal(load.charged, 0);
    assert_int_equal(load.building, 0);
    assert_int_equal(a.n, 0);
    assert_int_equal(l.charged, l.returned);
    dispatch_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_grow_together),
        cmocka_unit_test(set_agrees_with_a_table),
        cmocka_unit_test(a_charge_returns_once),
    };
    const char *given = getenv("SLUICE_TEST_SEED");

    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
