/* verify_test.c - B75: results made again on another node: equal ones, wrong ones, and what becomes of them when nodes, runs and sources go in the midst of it */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "farm_double.h"

#define MB (UINT64_C(1) << 20)
#define GOOD "00000000000000aa"
#define BAD  "00000000000000bb"
#define ODD  "00000000000000cc"

static struct session *client, *source;
static struct node *node[3];
static uint64_t run;

static int open_with(unsigned nodes)
{
    static const char *const names[3] = { "n1", "n2", "n3" };
    Sluice__StartRun m = SLUICE__START_RUN__INIT;

    world_open();
    world.sampled = true;
    world.wrong = 0;
    client = world_peer("client");
    for (unsigned i = 0; i < nodes; i++)
        node[i] = world_node(names[i], "mi50", POOL_ONLINE, 1000 * MB);
    m.workflow = (char *)"decode";
    m.output = (char *)"/tmp/out";
    m.has_sources = true;
    m.sources = 1;
    run = start_run(client, &m);
    source = join_source(run, 0, true, 1);
    announce(source, run, 0, 1, 100, 0, 1);
    world_turn();
    return 0;
}

static int three(void **state) { (void)state; return open_with(3); }
static int two(void **state) { (void)state; return open_with(2); }
static int one(void **state) { (void)state; return open_with(1); }

static int close_world(void **state)
{
    (void)state;
    world_check();
    world_close();
    return 0;
}

/* The next Assign, wherever it went; it must be there. */
static Sluice__Assign *next(struct node **n)
{
    for (unsigned i = 0; i < world.n_nodes; i++) {
        Sluice__Assign *a = world.node[i].session == NULL ? NULL : TAKE(world.node[i].session, sluice__assign);

        if (a == NULL)
            continue;
        *n = &world.node[i];
        return a;
    }
    fail_msg("nothing was given out");
    return NULL;
}

/* The next one takes it, builds it, and says that this is its digest. */
static struct node *done_next(const char *digest)
{
    struct node *n;
    Sluice__Assign *a = next(&n);

    answer_built(n, a);
    answer_done_with(n, a, true, digest);
    FREE(a);
    world_turn();
    return n;
}

/* What n was told last: 1 accepted, 0 not, -1 nothing. */
static int verdict(struct node *n)
{
    Sluice__Verdict *v = TAKE(n->session, sluice__verdict);
    int said = v == NULL ? -1 : v->accepted;

    if (v != NULL)
        FREE(v);
    return said;
}

static void b75_equal_results_are_one_result_accepted_once(void **state)
{
    struct node *a, *b;

    (void)state;
    a = done_next(GOOD);
    world_pass(0.2);
    assert_int_equal(the_run(run)->done, 0);             /* nothing is accepted before the second one is there */
    assert_int_equal(verdict(a), -1);
    assert_int_equal(world_sent(source, &sluice__release__descriptor), 0);
    b = done_next(GOOD);
    world_pass(0.2);
    assert_ptr_not_equal(a, b);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(verdict(a), 0);
    assert_int_equal(verdict(b), 1);
    assert_int_equal(verdict(b), -1);
    assert_int_equal(world.wrong, 0);
    assert_int_equal(world_sent(source, &sluice__release__descriptor), 1);
}

/* Whichever of the three is the wrong one, it is found, and its result is not the one that is accepted. */
static void b75_the_one_that_stands_alone_is_named_and_not_accepted(void **state)
{
    (void)state;
    for (unsigned wrong = 0; wrong < 2; wrong++) {
        struct node *n[3];

        if (wrong > 0) {
            announce(source, run, 1, 1, 100, 0, 2);
            world_turn();
        }
        for (unsigned i = 0; i < 3; i++) {
            n[i] = done_next(i == wrong ? BAD : GOOD);
            world_pass(0.2);
        }
        assert_int_equal(the_run(run)->done, 1 + wrong);
        assert_int_equal(the_run(run)->failed, 0);
        assert_int_equal(world.wrong, 1 + wrong);
        assert_ptr_equal(world.wrong_node, n[wrong]);
        assert_non_null(strstr(world.wrong_text, wrong == 0 ? "run 1 TF 0: " BAD ", right " GOOD : "run 1 TF 1: " BAD ", right " GOOD));
        assert_non_null(strstr(world.wrong_text, BAD " on n"));          /* both digests, and who gave them */
        assert_non_null(strstr(world.wrong_text, GOOD " on n"));
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(verdict(n[i]), i == 2);
    }
}

static void b75_three_different_ones_are_nobodys_result(void **state)
{
    struct node *n[3];

    (void)state;
    n[0] = done_next(GOOD);
    n[1] = done_next(BAD);
    n[2] = done_next(ODD);
    world_pass(0.2);
    assert_int_equal(the_run(run)->done, 0);
    assert_int_equal(the_run(run)->failed, 1);
    assert_non_null(strstr(the_run(run)->text, "DigestsDiffer"));
    assert_non_null(strstr(the_run(run)->text, GOOD " on "));
    assert_int_equal(world.wrong, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(verdict(n[i]), 0);
}

/* Two nodes: nobody else can say who is right, and neither result is published. A node that contradicts itself is wrong. */
static void b75_two_nodes_that_differ_are_asked_again_until_one_contradicts_itself(void **state)
{
    struct node *a, *b, *c;

    (void)state;
    a = done_next(GOOD);
    b = done_next(BAD);
    world_pass(3);                                       /* all who could were asked: they are asked anew */
    c = done_next(GOOD);
    world_pass(0.2);
    assert_true(c == a || c == b);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(world.wrong, 1);
    assert_ptr_equal(world.wrong_node, b);
}

static void b75_the_only_node_is_not_asked_twice(void **state)
{
    (void)state;
    done_next(GOOD);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(verdict(node[0]), 1);
}

static void b75_what_cannot_be_made_again_is_accepted_as_it_is(void **state)
{
    Sluice__Assign *x;
    struct node *a, *b;

    (void)state;
    a = done_next(GOOD);
    x = next(&b);
    answer_built(b, x);
    answer_failed(b, x, "Crashed");                      /* the second try fails: the first result is there */
    FREE(x);
    world_turn();
    world_pass(0.2);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(the_run(run)->failed, 0);
    assert_int_equal(verdict(a), 1);
    assert_int_equal(verdict(b), 0);
}

static void b75_a_first_result_that_went_with_its_node_costs_nothing(void **state)
{
    struct node *a, *b;

    (void)state;
    a = done_next(GOOD);
    world_disconnect(a);
    b = done_next(GOOD);
    world_pass(0.2);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(verdict(b), 1);
    world_connect(a, NULL, 0, NULL);
}

static void b75_a_run_that_is_stopped_keeps_what_was_done(void **state)
{
    Sluice__StopRun stop = SLUICE__STOP_RUN__INIT;
    struct node *a;

    (void)state;
    a = done_next(GOOD);
    stop.has_id = stop.has_data_timeout = true;
    stop.id = run;
    stop.data_timeout = 0.5;
    run_stop(client, 7, &stop);
    world_pass(2);                                       /* the second node never answers */
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(the_run(run)->lost, 0);
    assert_int_equal(verdict(a), 1);
    for (unsigned i = 0; i < world.n_nodes; i++) {
        Sluice__Assign *x = TAKE(world.node[i].session, sluice__assign);

        if (x == NULL)
            continue;
        answer_failed(&world.node[i], x, "Cancelled");
        FREE(x);
    }
    world_pass(0.2);
}

static void b75_a_source_that_goes_takes_no_result_along(void **state)
{
    Sluice__Assign *x;
    struct node *a, *b;

    (void)state;
    a = done_next(GOOD);
    x = next(&b);
    world_hang_up(source);
    answer_failed(b, x, "PartGone");
    FREE(x);
    world_pass(60);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(the_run(run)->lost, 0);
    assert_int_equal(verdict(a), 1);
}

static void b75_what_is_not_sampled_is_accepted_at_once(void **state)
{
    struct node *a;

    (void)state;
    world.sampled = false;
    a = done_next(GOOD);
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(verdict(a), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(b75_equal_results_are_one_result_accepted_once, three, close_world),
        cmocka_unit_test_setup_teardown(b75_the_one_that_stands_alone_is_named_and_not_accepted, three, close_world),
        cmocka_unit_test_setup_teardown(b75_three_different_ones_are_nobodys_result, three, close_world),
        cmocka_unit_test_setup_teardown(b75_two_nodes_that_differ_are_asked_again_until_one_contradicts_itself, two, close_world),
        cmocka_unit_test_setup_teardown(b75_the_only_node_is_not_asked_twice, one, close_world),
        cmocka_unit_test_setup_teardown(b75_what_cannot_be_made_again_is_accepted_as_it_is, three, close_world),
        cmocka_unit_test_setup_teardown(b75_a_first_result_that_went_with_its_node_costs_nothing, three, close_world),
        cmocka_unit_test_setup_teardown(b75_a_run_that_is_stopped_keeps_what_was_done, three, close_world),
        cmocka_unit_test_setup_teardown(b75_a_source_that_goes_takes_no_result_along, three, close_world),
        cmocka_unit_test_setup_teardown(b75_what_is_not_sampled_is_accepted_at_once, three, close_world),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
