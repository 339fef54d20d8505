/* heap_test.c - the heap against a plain sorted search */
#include "config.h"

#include "heap.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct thing { int key; size_t place; };

static int less(const void *a, const void *b)
{
    return ((const struct thing *)a)->key < ((const struct thing *)b)->key;
}

static size_t *place(void *element)
{
    return &((struct thing *)element)->place;
}

static void an_empty_heap_has_no_top(void **state)
{
    struct heap h;

    (void)state;
    heap_init(&h, less, place);
    assert_null(heap_top(&h));
    assert_null(heap_pop(&h));
    heap_free(&h);
}

static void what_is_in_no_heap_is_left_alone(void **state)
{
    struct thing in = { 1, HEAP_NOWHERE }, out = { 2, HEAP_NOWHERE };
    struct heap h;

    (void)state;
    heap_init(&h, less, place);
    heap_push(&h, &in);
    heap_remove(&h, &out);
    heap_fix(&h, &out);
    assert_ptr_equal(heap_top(&h), &in);
    heap_free(&h);
    assert_true(in.place == HEAP_NOWHERE);
}

static int least(const struct thing *t, size_t n)
{
    int best = -1;

    for (size_t i = 0; i < n; i++)
        if (t[i].place != HEAP_NOWHERE && (best < 0 || t[i].key < t[best].key))
            best = (int)i;
    return best;
}

static void pushes_changes_and_removals_keep_the_least_on_top(void **state)
{
    enum { N = 200, STEPS = 20000 };
    static struct thing t[N];
    const char *given = getenv("SLUICE_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    struct heap h;

    (void)state;
    printf("seed %u\n", seed);
    srandom(seed);
    heap_init(&h, less, place);
    for (size_t i = 0; i < N; i++)
        t[i].place = HEAP_NOWHERE;
    for (int step = 0; step < STEPS; step++) {
        struct thing *one = &t[random() % N];
        struct thing *top;
        int best;

        if (one->place == HEAP_NOWHERE) {
            one->key = (int)(random() % 1000);
            heap_push(&h, one);
        } else if (random() % 3 == 0) {
            heap_remove(&h, one);
        } else if (random() % 3 == 0) {
            top = heap_pop(&h);
            assert_true(top->place == HEAP_NOWHERE);
        } else {
            one->key = (int)(random() % 1000);
            heap_fix(&h, one);
        }
        best = least(t, N);
        top = heap_top(&h);
        if (best < 0)
            assert_null(top);
        else
            assert_int_equal(top->key, t[best].key);
    }
    heap_free(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_heap_has_no_top),
        cmocka_unit_test(what_is_in_no_heap_is_left_alone),
        cmocka_unit_test(pushes_changes_and_removals_keep_the_least_on_top),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
