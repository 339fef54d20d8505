/* dispatch_test.c - the choice of a node, against a search through all nodes, and in a small farm over time */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dispatch.h"
#include "mem.h"

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

static struct disp_node node_of(uint64_t size)
{
    return (struct disp_node){ .usable = true, .class_bit = 1, .size = size, .high_water = 0.8, .building_limit = 3 };
}

/* ---- single rules -------------------------------------------------------------------------- */

static void lowest_fill_wins(void **state)
{
    struct dispatch *d = dispatch_create();
    struct disp_node a = node_of(1000), b = node_of(2000);
    struct disp_need need = { .policy = DISP_BUFFER, .bytes = 100 };
    bool could;

    (void)state;
    a.charged = 200;                     /* 0.30 with the need */
    b.charged = 450;                     /* 0.275 */
    dispatch_add(d, &a);
    dispatch_add(d, &b);
    assert_ptr_equal(dispatch_choose(d, &need, &could), &b);
    assert_true(could);
    b.charged = 550;                     /* 0.325 */
    dispatch_changed(d, &b);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &a);
    dispatch_destroy(d);
}

static void ties_go_to_the_fast_then_to_the_rested(void **state)
{
    struct dispatch *d = dispatch_create();
    struct disp_node a = node_of(1000), b = node_of(1000), c = node_of(1000);
    struct disp_need need = { .policy = DISP_BUFFER, .bytes = 10 };

    (void)state;
    b.speed = c.speed = 1.5;
    a.speed = 1;
    dispatch_add(d, &a);
    dispatch_add(d, &b);
    dispatch_add(d, &c);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &b);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &c);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &b);
    dispatch_destroy(d);
}

static void a_failed_tf_counts_like_one_still_there(void **state)
{
    struct dispatch *d = dispatch_create();
    struct disp_node a = node_of(1000), b = node_of(1000);
    struct disp_need need = { .policy = DISP_BUFFER, .bytes = 100 };

    (void)state;
    a.ghost = 300;
    b.charged = 200;
    dispatch_add(d, &a);
    dispatch_add(d, &b);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &b);
    dispatch_destroy(d);
}

static void limits_are_kept(void **state)
{
    struct dispatch *d = dispatch_create();
    struct disp_node a = node_of(1000);
    struct disp_need need = { .policy = DISP_BUFFER, .bytes = 900 };
    bool could;

    (void)state;
    dispatch_add(d, &a);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &a);       /* empty: above the mark is fine */
    need.bytes = 1001;
    assert_null(dispatch_choose(d, &need, &could));
    assert_false(could);                                         /* never */
    need.bytes = 300;
    a.charged = 501;
    dispatch_changed(d, &a);
    assert_null(dispatch_choose(d, &need, &could));              /* 801 > 800 */
    assert_true(could);                                          /* later */
    a.charged = 500;
    a.building = 3;
    dispatch_changed(d, &a);
    assert_null(dispatch_choose(d, &need, &could));
    a.building = 2;
    dispatch_changed(d, &a);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &a);
    need.group = 1;
    assert_null(dispatch_choose(d, &need, &could));
    assert_false(could);
    need.group = 0;
    need.classes = 2;
    assert_null(dispatch_choose(d, &need, &could));
    assert_false(could);
    need.classes = 3;
    struct disp_node *refused[] = { &a };
    need.refused = refused;
    need.n_refused = 1;
    assert_null(dispatch_choose(d, &need, &could));
    assert_false(could);
    need.n_refused = 0;
    a.usable = false;
    dispatch_changed(d, &a);
    assert_null(dispatch_choose(d, &need, &could));
    assert_false(could);
    dispatch_destroy(d);
}

static void round_robin_skips_and_keeps_the_place(void **state)
{
    struct dispatch *d = dispatch_create();
    struct disp_node n[4];
    struct disp_need need = { .policy = DISP_ROUND_ROBIN, .bytes = 100 };

    (void)state;
    for (int i = 0; i < 4; i++) {
        n[i] = node_of(1000);
        dispatch_add(d, &n[i]);
    }
    n[0].charged = 800;
    dispatch_changed(d, &n[0]);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &n[1]);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &n[2]);
    n[0].charged = 700;                                          /* it kept the front */
    dispatch_changed(d, &n[0]);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &n[0]);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &n[3]);
    assert_ptr_equal(dispatch_choose(d, &need, NULL), &n[1]);
    dispatch_destroy(d);
}

/* ---- against a search through all ---------------------------------------------------------- */

enum { MANY = 40 };
struct farm {
    struct dispatch *d;
    struct disp_node node[MANY];
    bool there[MANY];
    uint64_t added[MANY], turn[MANY];    /* the reference's own order */
    uint64_t clock;
    bool odd_sizes;
};

static void farm_fill(struct farm *f, int i)
{
    struct disp_node *n = &f->node[i];

    n->usable = draw(8) != 0;
    n->group = (int)draw(2);
    n->class_bit = 1u << draw(3);
    n->size = f->odd_sizes ? 500 + draw(1000) : 1000 * (1 + draw(2));
    n->high_water = draw(4) ? 0.8 : 0.5;
    n->building_limit = 1 + (unsigned)draw(3);
    n->building = (unsigned)draw(3);
    n->charged = draw(3) ? draw(n->size) / 10 * 10 : 0;
    n->ghost = draw(4) ? 0 : draw(200);
    n->speed = (double)draw(3);
}

static bool reference_fits(const struct disp_node *n, uint64_t bytes)
{
    uint64_t load = n->charged + n->ghost;

    if (!n->usable || n->building >= n->building_limit)
        return false;
    if (load == 0)
        return bytes <= n->size;
    return (double)(load + bytes) <= floor(n->high_water * (double)n->size);
}

static bool reference_allowed(const struct disp_node *n, const struct disp_need *need)
{
    bool ok = n->group == need->group && (need->classes == 0 || (need->classes & n->class_bit));

    for (unsigned r = 0; r < need->n_refused; r++)
        ok = ok && need->refused[r] != n;
    return ok;
}

/* Whether i goes before j. Sizes are small: long double holds the fractions apart. */
static bool reference_before(const struct farm *f, int i, int j, const struct disp_need *need)
{
    const struct disp_node *a = &f->node[i], *b = &f->node[j];

    if (need->policy == DISP_ROUND_ROBIN)
        return f->turn[i] < f->turn[j];
    uint64_t left = (a->charged + a->ghost + need->bytes) * b->size;
    uint64_t right = (b->charged + b->ghost + need->bytes) * a->size;
    if (left != right)
        return left < right;
    if (a->speed != b->speed)
        return a->speed > b->speed;
    if (a->chosen != b->chosen)
        return a->chosen < b->chosen;
    return f->added[i] < f->added[j];
}

static int reference_choose(const struct farm *f, const struct disp_need *need, bool *could)
{
    int best = -1;

    *could = false;
    for (int i = 0; i < MANY; i++) {
        if (!f->there[i] || !reference_allowed(&f->node[i], need))
            continue;
        *could = *could || (f->node[i].usable && need->bytes <= f->node[i].size);
        if (reference_fits(&f->node[i], need->bytes) && (best < 0 || reference_before(f, i, best, need)))
            best = i;
    }
    return best;
}

static void random_states(bool odd_sizes)
{
    struct farm f = { .d = dispatch_create(), .odd_sizes = odd_sizes };
    unsigned chosen = 0, none = 0;

    for (int round = 0; round < 40000; round++) {
        int i = (int)draw(MANY);
        if (!f.there[i]) {
            memset(&f.node[i], 0, sizeof(f.node[i]));
            farm_fill(&f, i);
            f.there[i] = true;
            f.added[i] = f.turn[i] = ++f.clock;
            dispatch_add(f.d, &f.node[i]);
        } else if (draw(20) == 0) {
            f.there[i] = false;
            dispatch_remove(f.d, &f.node[i]);
        } else if (draw(2)) {
            int before = f.node[i].group;
            farm_fill(&f, i);
            if (f.node[i].group != before)
                f.turn[i] = ++f.clock;           /* another list: at its end */
            dispatch_changed(f.d, &f.node[i]);
        } else {
            f.node[i].charged = draw(f.node[i].size);
            f.node[i].building = (unsigned)draw(3);
            dispatch_changed(f.d, &f.node[i]);
        }
        struct disp_node *refused[6];
        struct disp_need need = { .policy = draw(2) ? DISP_BUFFER : DISP_ROUND_ROBIN, .group = (int)draw(2),
                                  .classes = (unsigned)draw(8), .bytes = draw(draw(4) ? 200 : 1200),
                                  .refused = refused, .n_refused = (unsigned)draw(7) };
        for (unsigned r = 0; r < need.n_refused; r++)
            refused[r] = &f.node[draw(MANY)];
        bool could, expect_could;
        int expect = reference_choose(&f, &need, &expect_could);
        struct disp_node *got = dispatch_choose(f.d, &need, &could);
        assert_ptr_equal(got, expect < 0 ? NULL : &f.node[expect]);
        assert_int_equal(could, expect_could);
        if (got && need.policy == DISP_ROUND_ROBIN)
            f.turn[expect] = ++f.clock;
        chosen += got != NULL;
        none += got == NULL;
    }
    assert_true(chosen > 10000 && none > 1000);
    for (int i = 0; i < MANY; i++) {
        if (f.there[i])
            dispatch_remove(f.d, &f.node[i]);
    }
    dispatch_destroy(f.d);
}

static void equal_sizes_as_a_full_search(void **state)
{
    (void)state;
    random_states(false);
}

static void odd_sizes_as_a_full_search(void **state)
{
    (void)state;
    random_states(true);
}

/* ---- six slow nodes, two fast ones, equal buffers, 90 % of what they can do together --- */

enum { SLOW = 6, FAST = 2, ALL = SLOW + FAST, DEPTH = 12 };
struct result {
    unsigned given[ALL], refusals;
    double   highest_slow, highest;      /* fill */
};

/* Steps of 1 ms; a TF of 100 bytes, room for DEPTH of them; a node works on one at a time. */
static struct result simulate(enum disp_policy policy, double high_water)
{
    struct result r = { 0 };
    struct dispatch *d = dispatch_create();
    struct disp_node n[ALL];
    int left[ALL] = { 0 };               /* ms of the TF at work */
    double owed = 0;

    for (int i = 0; i < ALL; i++) {
        n[i] = node_of(100 * DEPTH);
        n[i].high_water = high_water;
        n[i].building_limit = DEPTH;
        n[i].speed = i < SLOW ? 1 : 2;
        dispatch_add(d, &n[i]);
    }
    for (int ms = 0; ms < 600000; ms++) {
        for (int i = 0; i < ALL; i++) {
            if (n[i].charged == 0)
                continue;
            if (left[i] == 0)
                left[i] = i < SLOW ? 1000 : 500;
            if (--left[i] == 0) {
                n[i].charged -= 100;
                dispatch_changed(d, &n[i]);
            }
        }
        for (owed += 0.9 * (SLOW * 1 + FAST * 2) / 1000; owed >= 1; owed -= 1) {
            struct disp_need need = { .policy = policy, .bytes = 100 };
            struct disp_node *to = dispatch_choose(d, &need, NULL);
            if (to == NULL) {
                r.refusals++;
                continue;
            }
            to->charged += 100;
            dispatch_changed(d, to);
            r.given[to - n]++;
            if (disp_fill(to, 0) > r.highest)
                r.highest = disp_fill(to, 0);
            if (to < n + SLOW && disp_fill(to, 0) > r.highest_slow)
                r.highest_slow = disp_fill(to, 0);
        }
    }
    dispatch_destroy(d);
    return r;
}

static void B32_fast_nodes_get_double_by_buffer_level(void **state)
{
    struct result r = simulate(DISP_BUFFER, 0.8);
    double slow = 0, fast = 0;

    (void)state;
    for (int i = 0; i < ALL; i++)
        *(i < SLOW ? &slow : &fast) += (double)r.given[i] / (i < SLOW ? SLOW : FAST);
    print_message("buffer: a fast node gets %.2f times a slow one, highest fill %.2f, %u refused\n",
                  fast / slow, r.highest, r.refusals);
    assert_true(fast / slow > 1.8 && fast / slow < 2.2);
    assert_true(r.highest < 0.8);
    assert_int_equal(r.refusals, 0);
}

static void B32_round_robin_drives_the_slow_ones_to_the_limit(void **state)
{
    struct result r = simulate(DISP_ROUND_ROBIN, 1.0);

    (void)state;
    print_message("round-robin: slow nodes reach a fill of %.2f\n", r.highest_slow);
    assert_true(r.highest_slow > 0.95);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lowest_fill_wins),
        cmocka_unit_test(ties_go_to_the_fast_then_to_the_rested),
        cmocka_unit_test(a_failed_tf_counts_like_one_still_there),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(round_robin_skips_and_keeps_the_place),
        cmocka_unit_test(equal_sizes_as_a_full_search),
        cmocka_unit_test(odd_sizes_as_a_full_search),
        cmocka_unit_test(B32_fast_nodes_get_double_by_buffer_level),
        cmocka_unit_test(B32_round_robin_drives_the_slow_ones_to_the_limit),
    };
    const char *given = getenv("SLUICE_TEST_SEED");

    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
