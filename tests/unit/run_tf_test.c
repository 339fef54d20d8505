/* run_tf_test.c - the TFs of a run: parts coming together, given out, settled, failures, limits */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "run_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- starting --------------------------------------------------------------------------------- */

static void words_are_checked_before_a_run_is_accepted(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;

    (void)state;
    m.workflow = "decod";
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_NOT_FOUND, "none, decode, cluster");
    m.workflow = "decode";
    m.backends = "decode=fpga";
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_USAGE, "choices are auto, gpu, cpu, cuda");
    m.backends = NULL;
    m.policy = "random";
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_USAGE, "buffer or round-robin");
    m.policy = NULL;
    m.output = "relative";
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_USAGE, "absolute");
    m.output = "/tmp/../etc";
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_USAGE, "..");
    m.output = "/tmp/x";
    m.has_min_nodes = true;
    m.min_nodes = 3;
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_STATE, "2 of the online pool");
    m.min_nodes = 2;
    assert_int_equal(start_run(client, &m), 1);
    world.writable = false;
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_STATE, "not writable");
    world.writable = true;
}

static void B79_a_tf_no_buffer_can_hold_is_refused_with_the_needed_size(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;

    (void)state;
    m.workflow = "none";
    m.has_tf_size = true;
    m.tf_size = 2000 * MB;
    assert_int_equal(start_run(client, &m), 0);
    error_of(client, ERR_STATE, "2097152000");
    m.tf_size = 1000 * MB;                       /* just fits: above the mark, in an empty buffer */
    uint64_t run = start_run(client, &m);
    assert_true(run > 0);
    struct session *s = join_source(run, 0, true, 1);
    announce(s, run, 0, 4, 1000 * MB, 0, 4);
    for (unsigned done = 0; done < 4;) {
        struct node *n;
        world_turn();
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        answer_built(n, a);
        answer_done(n, a, false);
        FREE(a);
        done++;
        world_check();
    }
    assert_int_equal(the_run(run)->done, 4);
    announce(s, run, 4, 1, 1001 * MB, 0, 5);
    world_turn();
    assert_int_equal(tally_sum(the_run(run)->dropped), 1);
}

/* ---- parts coming together -------------------------------------------------------------------- */

static void a_tf_is_given_out_when_all_parts_are_there(void **state)
{
    uint64_t run = begin_run(3);
    struct session *s[3];
    struct node *n;

    (void)state;
    for (unsigned i = 0; i < 3; i++)
        s[i] = join_source(run, i, true, 1);
    assert_int_equal(the_run(run)->state, SLUICE__RUN_STATE__RUN_READY);
    announce(s[0], run, 10, 1, 100, 3200, 11);
    announce(s[2], run, 10, 1, 130, 3200, 11);
    world_turn();
    assert_null(assigned_somewhere(&n));
    assert_int_equal(the_run(run)->state, SLUICE__RUN_STATE__RUNNING);
    announce(s[1], run, 10, 1, 64, 3200, 11);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    assert_int_equal(a->n_parts, 3);
    assert_int_equal(a->bytes, 128 + 64 + 192);  /* each rounded up to 64 */
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(a->parts[i]->number, i);
    assert_string_equal(a->parts[1]->address, "unix:/run/source");
    assert_false(a->incomplete);
    assert_int_equal(a->first_orbit, 3200);
    assert_string_equal(a->stem, "1/tf-10");
    assert_int_equal(n->load.charged, 384);
    FREE(a);
}

static void a_source_that_passed_a_tf_leaves_it_incomplete(void **state)
{
    uint64_t run = begin_run(2);
    struct session *s0 = join_source(run, 0, true, 1), *s1 = join_source(run, 1, true, 1);
    struct node *n;

    (void)state;
    announce(s0, run, 5, 1, 100, 160, 6);
    world_turn();
    assert_null(assigned_somewhere(&n));
    announce(s1, run, 0, 0, 0, 0, 6);            /* nothing, and nothing below 6 will come */
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    assert_true(a->incomplete);
    assert_int_equal(a->n_parts, 1);
    FREE(a);
    announce(s0, run, 3, 1, 100, 96, 6);         /* passed by the other one before it was heard of */
    world_turn();
    a = assigned_somewhere(&n);
    assert_non_null(a);
    assert_int_equal(a->tf->id, 3);
    assert_true(a->incomplete);
    FREE(a);
    end_stream(s1, run, 6);
    announce(s0, run, 8, 1, 100, 256, 9);        /* an ended source is waited for by nobody */
    world_turn();
    a = assigned_somewhere(&n);
    assert_non_null(a);
    FREE(a);
}

static void a_late_part_is_not_waited_for_longer_than_the_limit(void **state)
{
    uint64_t run = begin_run(2);
    struct session *s0 = join_source(run, 0, true, 1), *s1 = join_source(run, 1, true, 1);
    struct node *n;

    (void)state;
    announce(s0, run, 5, 1, 100, 160, 6);
    world_pass(0.8);
    assert_null(assigned_somewhere(&n));
    world_pass(0.4);
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    assert_true(a->incomplete);
    announce(s1, run, 5, 1, 100, 160, 6);
    assert_int_equal(the_run(run)->late_parts, 1);
    answer_built(n, a);
    answer_done(n, a, false);
    world_turn();
    assert_int_equal(the_run(run)->incomplete, 1);
    Sluice__Release *r = TAKE(s1, sluice__release);      /* both may let go, the late one too */
    assert_non_null(r);
    assert_int_equal(r->ranges[0]->first, 5);
    FREE(r);
    FREE(a);
}

static void a_run_may_drop_incomplete_tfs(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;
    struct node *n;

    (void)state;
    m.incomplete = "drop";
    m.has_sources = true;
    m.sources = 2;
    m.output = "/tmp/out";
    uint64_t run = start_run(client, &m);
    struct session *s0 = join_source(run, 0, true, 1);
    join_source(run, 1, true, 1);
    announce(s0, run, 5, 2, 100, 160, 7);
    world_pass(1.2);
    assert_null(assigned_somewhere(&n));
    assert_int_equal(tally_sum(the_run(run)->dropped), 2);
    assert_string_equal(the_run(run)->dropped->word, "Incomplete");
}

static void parts_of_different_orbits_are_dropped(void **state)
{
    uint64_t run = begin_run(2);
    struct session *s0 = join_source(run, 0, true, 1), *s1 = join_source(run, 1, true, 1);
    struct node *n;

    (void)state;
    announce(s0, run, 5, 1, 100, 160, 6);
    announce(s1, run, 5, 1, 100, 161, 6);
    world_turn();
    assert_null(assigned_somewhere(&n));
    assert_string_equal(the_run(run)->dropped->word, "OrbitMismatch");
    Sluice__Release *r = TAKE(s0, sluice__release);
    assert_non_null(r);
    FREE(r);
}

static void what_is_wrong_in_an_announcement_closes_its_connection(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Announce m = SLUICE__ANNOUNCE__INIT;
    Sluice__AnnounceRange r = SLUICE__ANNOUNCE_RANGE__INIT, *list = &r;
    uint64_t size = 1;

    (void)state;
    m.has_run = true;
    m.run = run;
    m.ranges = &list;
    m.n_ranges = 1;
    r.has_first = r.has_count = true;
    r.count = 4000000000u;
    r.sizes = &size;
    r.n_sizes = 1;
    run_announce(s, 0, &m);
    error_of(s, ERR_PROTOCOL, "4000000000");
    assert_true(s->chan->dead);
    assert_int_equal(the_run(run)->announced, 0);
}

/* ---- settled, released, published ------------------------------------------------------------- */

static void nobody_hears_of_an_end_before_it_is_on_disk(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);
    flow_turn(world.d.flow);
    assert_int_equal(n->load.charged, 0);
    assert_int_equal(world_sent(n->session, &sluice__verdict__descriptor), 0);
    assert_int_equal(world_sent(s, &sluice__release__descriptor), 0);
    answer_done(n, a, true);                     /* said again: no second one */
    assert_int_equal(the_run(run)->done, 1);
    world_turn();
    Sluice__Verdict *v = TAKE(n->session, sluice__verdict);
    assert_non_null(v);
    assert_true(v->accepted);
    assert_string_equal(v->stem, "1/tf-0");
    assert_string_equal(v->output, "/tmp/out");
    FREE(v);
    assert_int_equal(world_sent(s, &sluice__release__descriptor), 1);
    answer_done(n, a, true);                     /* the Verdict was lost: it comes again, accepted */
    v = TAKE(n->session, sluice__verdict);
    assert_true(v->accepted);
    FREE(v);
    answer_published(n, a);
    world_turn();
    assert_int_equal(the_run(run)->work.records, 0);
    assert_int_equal(the_run(run)->done, 1);
    FREE(a);
}

/* The result is there for nobody: it is no TF that is done. */
static void what_cannot_be_published_is_failed(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Published m = SLUICE__PUBLISHED__INIT;
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    assert_int_equal(the_run(run)->done, 1);
    m.tf = a->tf;
    m.fence = a->fence;
    m.word = "OutputExists";
    m.text = "tf-0.digits is there already and is no result of this TF";
    flow_published(n->session, 0, &m);
    world_turn();
    struct run *r = the_run(run);
    assert_int_equal(r->done, 0);
    assert_int_equal(r->failed, 1);
    assert_int_equal(r->bytes_done, 0);
    assert_int_equal(r->work.records, 0);
    assert_non_null(strstr(r->text, "OutputExists: tf-0.digits"));
    world_check();
    world_restart();
    assert_int_equal(the_run(run)->failed, 1);
    FREE(a);
}

static void B33_a_full_disk_does_not_hold_the_sources(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    world.writable = false;
    announce(s, run, 0, 50, 100, 0, 50);
    for (int i = 0; i < 50; i++) {
        world_turn();
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        answer_built(n, a);
        answer_done(n, a, true);
        FREE(a);
    }
    world_turn();
    assert_int_equal(the_run(run)->done, 50);
    assert_int_equal(world_sent(n1->session, &sluice__verdict__descriptor) + world_sent(n2->session, &sluice__verdict__descriptor), 0);
    assert_true(world_sent(s, &sluice__release__descriptor) > 0);
    world.writable = true;
    world_turn();
    assert_int_equal(world_sent(n1->session, &sluice__verdict__descriptor) + world_sent(n2->session, &sluice__verdict__descriptor), 50);
}

static void until_built_lets_go_early_and_cannot_try_again(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;
    struct node *n;

    (void)state;
    m.keep = "until-built";
    m.output = "/tmp/out";
    uint64_t run = start_run(client, &m);
    struct session *s = join_source(run, 0, true, 1);
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_int_equal(world_sent(s, &sluice__release__descriptor), 0);
    answer_built(n, a);
    world_turn();
    assert_int_equal(world_sent(s, &sluice__release__descriptor), 1);
    answer_failed(n, a, "Crashed");
    world_turn();
    assert_int_equal(the_run(run)->lost, 1);
    FREE(a);
}

/* ---- failures --------------------------------------------------------------------------------- */

static void a_refusal_goes_to_the_next_candidate(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n, *other;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_refused(n, a, "NoSpace");
    world_turn();
    assert_int_equal(n->load.charged, 0);
    other = n == n1 ? n2 : n1;
    Sluice__Assign *b = assigned(other);
    assert_non_null(b);
    assert_int_equal(b->fence->attempt, 2);
    answer_refused(other, b, "NoSpace");
    world_turn();
    assert_null(assigned_somewhere(&n));         /* all were asked: asked anew after a while */
    world_pass(1);
    Sluice__Assign *c = assigned_somewhere(&n);
    assert_non_null(c);
    assert_int_equal(the_run(run)->failed, 0);
    FREE(a);
    FREE(b);
    FREE(c);
}

static void B19_refusals_leave_no_credit_behind(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Assign *a;
    struct node *n;
    unsigned refused = 0;

    (void)state;
    announce(s, run, 0, 200, 10 * MB, 0, 200);
    for (int i = 0; i < 4000 && the_run(run)->done < 200; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            if (++refused % 2) {
                answer_refused(n, a, "NoSpace");
            } else {
                answer_built(n, a);
                answer_done(n, a, false);
            }
            FREE(a);
            world_check();
        }
    }
    assert_int_equal(the_run(run)->done, 200);
    assert_int_equal(the_run(run)->failed, 0);
    assert_int_equal(n1->load.charged + n2->load.charged + n1->load.building + n2->load.building, 0);
    assert_int_equal(n1->n_tfs + n2->n_tfs, 0);
}

/* Ten nodes, each at one TF at a time for 0.1 s; the first refuses all for half a second while 500 TFs come. */
static void B30_a_brief_pause_does_not_starve_a_node(void **state)
{
    enum { N = 10 };
    struct node *n[N] = { n1, n2 };
    Sluice__Assign *queue[N][64];
    unsigned waiting[N] = { 0 }, left[N] = { 0 }, late[N] = { 0 };

    (void)state;
    for (int i = 2; i < N; i++) {
        char name[8];
        snprintf(name, sizeof(name), "n%d", i + 1);
        n[i] = world_node(name, "mi50", POOL_ONLINE, 1000 * MB);
    }
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    for (int tick = 0; tick < 400 && the_run(run)->done < 500; tick++) {
        if (tick < 10)
            announce(s, run, (uint64_t)tick * 50, 50, 50 * MB, (uint32_t)tick * 1600, (uint64_t)tick * 50 + 50);
        world_pass(FLOW_TICK);
        for (int i = 0; i < N; i++) {
            Sluice__Assign *a;
            while ((a = assigned(n[i]))) {
                if (i == 0 && tick < 10) {
                    answer_refused(n[i], a, "NoSpace");
                    FREE(a);
                    continue;
                }
                answer_built(n[i], a);
                assert_true(waiting[i] < 20);    /* handed over late: never more than its mark */
                queue[i][waiting[i]++] = a;
            }
            if (waiting[i] == 0)
                continue;
            if (left[i] == 0)
                left[i] = 2;                     /* ticks */
            if (--left[i] > 0)
                continue;
            answer_done(n[i], queue[i][0], false);
            late[i] += the_run(run)->done > 250;
            FREE(queue[i][0]);
            memmove(queue[i], queue[i] + 1, --waiting[i] * sizeof(queue[i][0]));
        }
    }
    assert_int_equal(the_run(run)->done, 500);
    unsigned others = 0;
    for (int i = 1; i < N; i++)
        others += late[i];
    print_message("in the second half: n1 did %u, the others %.1f each\n", late[0], others / (double)(N - 1));
    assert_true(late[0] >= 0.9 * others / (N - 1));
}

static void a_crash_goes_elsewhere_and_ends_after_three(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n, *last = NULL;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    for (unsigned i = 0; i < 3; i++) {
        world_pass(2);
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        if (i == 1)
            assert_ptr_not_equal(n, last);
        last = n;
        answer_built(n, a);
        answer_failed(n, a, "Crashed");
        if (i == 0)
            assert_true(n->load.ghost == 128);   /* it counts like one still there */
        FREE(a);
    }
    world_pass(2);
    assert_int_equal(the_run(run)->failed, 1);
    assert_int_equal(the_run(run)->work.retried, 2);
    assert_int_equal(n1->load.ghost + n2->load.ghost, 0);
    assert_int_equal(world_sent(s, &sluice__release__descriptor), 1);
}

static void bad_input_is_tried_at_one_other_node_only(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    for (int i = 0; i < 2; i++) {
        world_turn();
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        answer_failed(n, a, "BadInput");
        FREE(a);
    }
    world_turn();
    assert_int_equal(the_run(run)->failed, 1);
    assert_string_equal(the_run(run)->work.failures->word, "BadInput");
}

static void B22_an_answer_to_an_older_fence_changes_nothing(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    world_disconnect(n);
    struct node *old = n;
    flow_worker_lost(old, "contact lost");
    world_turn();
    n = old == n1 ? n2 : n1;
    Sluice__Assign *b = assigned(n);
    assert_non_null(b);
    struct idset forget = { 0 };
    Sluice__Held held = SLUICE__HELD__INIT;
    held.tf = a->tf;
    held.fence = a->fence;
    held.has_phase = held.has_bytes = true;
    held.phase = SLUICE__PHASE__PROCESSING;
    held.bytes = 128;
    world_connect(old, &held, 1, &forget);
    assert_int_equal(forget.count, 1);
    answer_done(old, a, true);                   /* it did not listen */
    Sluice__Verdict *v = TAKE(old->session, sluice__verdict);
    assert_non_null(v);
    assert_false(v->accepted);
    assert_int_equal(the_run(run)->done, 0);
    answer_done(n, b, true);
    world_turn();
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(old->load.charged, 0);
    idset_free(&forget);
    FREE(v);
    FREE(a);
    FREE(b);
}

static void a_short_outage_of_a_worker_costs_nothing(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n, *m;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    world_disconnect(n);
    world_pass(2);
    assert_int_equal(the_run(run)->work.n[TF_BUILT], 1);
    Sluice__Held held = SLUICE__HELD__INIT;
    held.tf = a->tf;
    held.fence = a->fence;
    held.has_phase = held.has_bytes = true;
    held.phase = SLUICE__PHASE__PROCESSING;
    held.bytes = 128;
    world_connect(n, &held, 1, NULL);
    world_turn();
    assert_null(assigned_somewhere(&m));
    answer_done(n, a, true);
    world_turn();
    assert_int_equal(the_run(run)->done, 1);
    world_disconnect(n);                         /* comes back without what it had: that one failed as forgotten */
    announce(s, run, 1, 1, 100, 32, 2);
    world_turn();
    m = n == n1 ? n2 : n1;
    Sluice__Assign *b = assigned(m);
    assert_non_null(b);
    world_disconnect(m);
    world_connect(m, NULL, 0, NULL);
    world_turn();
    assert_string_equal(the_run(run)->work.failures->word, "Forgotten");
    FREE(a);
    FREE(b);
}

/* ---- queue, window, limits -------------------------------------------------------------------- */

static void live_data_beyond_the_queue_are_dropped_newest_first(void **state)
{
    struct node *n;

    (void)state;
    world.conf->limits.queue = 10;
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, false, 1);
    world_disconnect(n1);
    world_disconnect(n2);
    announce(s, run, 0, 25, 100, 0, 25);
    world_turn();
    assert_int_equal(the_run(run)->announced, 25);
    assert_int_equal(tally_sum(the_run(run)->dropped), 15);
    assert_string_equal(the_run(run)->dropped->word, "QueueFull");
    assert_true(idset_has(&the_run(run)->settled, 24) && !idset_has(&the_run(run)->settled, 9));
    world_connect(n1, NULL, 0, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_int_equal(a->tf->id, 0);              /* the oldest first */
    FREE(a);
}

static void building_and_high_water_bound_what_a_node_is_given(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Assign *a;
    unsigned given = 0;

    (void)state;
    world_disconnect(n2);
    announce(s, run, 0, 20, 100 * MB, 0, 20);
    world_turn();
    assert_int_equal(world_sent(n1->session, &sluice__assign__descriptor), 3);
    while ((a = assigned(n1))) {
        answer_built(n1, a);
        FREE(a);
        given++;
        world_turn();
    }
    assert_int_equal(given, 8);                  /* 80 % of 1000 MB */
}

static void in_flight_limit_is_kept_and_comes_back(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;
    struct node *n;

    (void)state;
    m.output = "/tmp/out";
    m.has_in_flight = true;
    m.in_flight = 2;
    uint64_t run = start_run(client, &m);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__SourceAccepted *acc = TAKE(s, sluice__source_accepted);
    assert_true(acc->window >= 2 && acc->window <= 8);
    FREE(acc);
    announce(s, run, 0, 6, 100, 0, 6);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    struct node *na = n;
    Sluice__Assign *b = assigned_somewhere(&n);
    assert_non_null(b);
    assert_int_equal(world_sent(n1->session, &sluice__assign__descriptor) + world_sent(n2->session, &sluice__assign__descriptor), 0);
    answer_failed(na, a, "Crashed");             /* a credit returns on failure as on success */
    world_turn();
    assert_int_equal(world_sent(n1->session, &sluice__assign__descriptor) + world_sent(n2->session, &sluice__assign__descriptor), 1);
    FREE(a);
    FREE(b);
}

static unsigned alarms;

static void count_alarm(void *arg, const struct alarm *a)
{
    alarms += strcmp(a->word, arg) == 0;
}

static void B78_a_full_run_without_progress_is_an_alarm(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;
    Sluice__Assign *held[5];
    struct node *at[5];

    (void)state;
    m.output = "/tmp/out";
    m.has_in_flight = true;
    m.in_flight = 5;
    uint64_t run = start_run(client, &m);
    struct session *s = join_source(run, 0, true, 1);
    announce(s, run, 0, 8, 100, 0, 8);
    for (int i = 0; i < 5; i++) {
        world_turn();
        held[i] = assigned_somewhere(&at[i]);
        assert_non_null(held[i]);
        answer_built(at[i], held[i]);
    }
    world_pass(5);
    flow_alarms(world.d.flow, count_alarm, "RunStalled");
    assert_int_equal(alarms, 0);
    world_pass(7);
    flow_alarms(world.d.flow, count_alarm, "RunStalled");
    assert_int_equal(alarms, 1);
    answer_done(at[4], held[4], false);          /* out of order */
    world_turn();
    alarms = 0;
    flow_alarms(world.d.flow, count_alarm, "RunStalled");
    assert_int_equal(alarms, 0);
    unsigned at_n2 = 0;
    for (int i = 0; i < 4; i++)
        at_n2 += at[i] == n2;
    assert_in_range(at_n2, 1, 3);
    world_disconnect(n2);                        /* one that is killed: its TFs are given to the other, whose credits they take */
    flow_worker_lost(n2, "contact lost");
    for (int i = 0; i < 4; i++) {
        if (at[i] == n1)
            answer_done(n1, held[i], false);
    }
    for (int i = 0; i < 5; i++)
        FREE(held[i]);
    unsigned given = 0;
    for (int i = 0; i < 20; i++) {
        world_pass(1);
        Sluice__Assign *a;
        while ((a = TAKE(n1->session, sluice__assign)) != NULL) {
            given++;
            answer_done(n1, a, false);
            FREE(a);
        }
    }
    assert_true(given >= 2 + at_n2);
    world_turn();
    assert_int_equal(the_run(run)->done, 8);
    assert_int_equal(the_run(run)->lost, 0);
    assert_int_equal(HASH_COUNT(the_run(run)->work.tfs), 0);
    assert_int_equal(n1->load.charged + n2->load.charged, 0);
}

static void report(struct node *n, uint64_t bytes, uint32_t processing)
{
    Sluice__Report r = SLUICE__REPORT__INIT;

    r.has_bytes_used = r.has_processing = true;
    r.bytes_used = bytes;
    r.processing = processing;
    flow_report(n, &r);
}

static void a_lasting_difference_between_ledger_and_reports_is_an_alarm(void **state)
{
    (void)state;
    report(n1, 0, 0);
    report(n2, 4096, 1);                         /* the ledger knows of nothing there */
    alarms = 0;
    world_pass(4);
    report(n2, 4096, 1);
    flow_alarms(world.d.flow, count_alarm, "LedgerDiffers");
    assert_int_equal(alarms, 0);
    world_pass(2);
    report(n2, 4096, 1);
    report(n1, 0, 0);
    flow_alarms(world.d.flow, count_alarm, "LedgerDiffers");
    assert_int_equal(alarms, 1);
    assert_int_equal(counters_get(world.d.counters, "ledger_differs"), 1);
    report(n2, 0, 0);
    alarms = 0;
    flow_alarms(world.d.flow, count_alarm, "LedgerDiffers");
    assert_int_equal(alarms, 0);
}

static void what_is_taken_back_from_a_node_goes_to_another(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n, *other;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n), *b;
    other = n == n1 ? n2 : n1;
    answer_built(n, a);
    flow_evict(n, "it moves to the other pool");
    Sluice__Cancel *c = TAKE(n->session, sluice__cancel);
    assert_non_null(c);
    FREE(c);
    n->pool = POOL_ASYNC;                        /* so that it does not get it back */
    flow_node_changed(n);
    unsigned emptied = world.emptied;
    answer_failed(n, a, "Cancelled");
    assert_int_equal(world.emptied, emptied + 1);
    world_turn();
    b = assigned(other);
    assert_non_null(b);
    assert_int_equal(the_run(run)->work.retried, 0);     /* that was no failure */
    flow_evict(other, "again");
    world_pass(6);                               /* it does not answer: its charge stays, the TF goes on */
    assert_int_equal(other->load.charged, 128 + 128);
    Sluice__Assign *d = assigned(other);
    assert_non_null(d);
    answer_done(other, d, false);
    answer_failed(other, b, "Cancelled");
    world_turn();
    assert_int_equal(other->load.charged, 0);
    assert_int_equal(the_run(run)->done, 1);
    FREE(a);
    FREE(b);
    FREE(d);
}

static void nobody_hears_of_a_run_before_it_is_on_disk(void **state)
{
    Sluice__StartRun m = SLUICE__START_RUN__INIT;
    Sluice__GetRuns g = SLUICE__GET_RUNS__INIT;

    (void)state;
    m.output = "/tmp/out";
    run_start(client, 1, &m);
    assert_int_equal(world_sent(client, &sluice__started_run__descriptor), 0);
    run_list(client, 2, &g);
    Sluice__Runs *l = TAKE(client, sluice__runs);
    assert_int_equal(l->n_runs, 0);
    FREE(l);
    error_of(join_source(1, 0, true, 1), ERR_NOT_FOUND, "no run 1");
    world_turn();
    run_list(client, 2, &g);
    l = TAKE(client, sluice__runs);
    assert_int_equal(l->n_runs, 1);
    FREE(l);
}

static void runs_share_the_pool_by_least_charge(void **state)
{
    uint64_t one = begin_run(1), two = begin_run(1);
    struct session *s1 = join_source(one, 0, true, 1), *s2 = join_source(two, 0, true, 2);
    unsigned given[2] = { 0 };
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    announce(s1, one, 0, 30, 100 * MB, 0, 30);
    world_turn();                                /* the first run takes all that may be built */
    announce(s2, two, 0, 30, 100 * MB, 0, 30);
    for (int i = 0; i < 40; i++) {
        world_turn();
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);
            given[a->tf->run == two]++;
            FREE(a);
            world_turn();
        }
    }
    assert_int_equal(given[0] + given[1], 16);
    assert_true(given[0] >= 7 && given[0] <= 9);
}

static void B19_a_step_that_may_not_be_is_counted_and_leaks_nothing(void **state)
{
    uint64_t run = begin_run(1), steps = counters_get(world.d.counters, "illegal_steps");
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;
    struct tf *t;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    t = tf_find(&the_run(run)->work, 0);
    assert_int_equal(t->state, TF_BUILDING);
    assert_int_equal(counters_get(world.d.counters, "illegal_steps"), steps);
    tf_enter(t, TF_FORMING, 0);                  /* its parts were all there */
    assert_int_equal(counters_get(world.d.counters, "illegal_steps"), steps + 1);
    tf_enter(t, TF_BUILDING, 0);
    answer_built(n, a);
    assert_int_equal(t->state, TF_BUILT);
    tf_enter(t, TF_BUILDING, 0);                 /* built is built */
    assert_int_equal(counters_get(world.d.counters, "illegal_steps"), steps + 2);
    answer_done(n, a, false);
    FREE(a);
    world_turn();
    world_check();
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(n->load.charged, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(words_are_checked_before_a_run_is_accepted),
        WITH_WORLD(B79_a_tf_no_buffer_can_hold_is_refused_with_the_needed_size),
        WITH_WORLD(a_tf_is_given_out_when_all_parts_are_there),
        WITH_WORLD(a_source_that_passed_a_tf_leaves_it_incomplete),
        WITH_WORLD(a_late_part_is_not_waited_for_longer_than_the_limit),
        WITH_WORLD(a_run_may_drop_incomplete_tfs),
        WITH_WORLD(parts_of_different_orbits_are_dropped),
        WITH_WORLD(what_is_wrong_in_an_announcement_closes_its_connection),
        WITH_WORLD(nobody_hears_of_an_end_before_it_is_on_disk),
        WITH_WORLD(what_cannot_be_published_is_failed),
        WITH_WORLD(B33_a_full_disk_does_not_hold_the_sources),
        WITH_WORLD(until_built_lets_go_early_and_cannot_try_again),
        WITH_WORLD(a_refusal_goes_to_the_next_candidate),
        WITH_WORLD(B19_refusals_leave_no_credit_behind),
        WITH_WORLD(B19_a_step_that_may_not_be_is_counted_and_leaks_nothing),
        WITH_WORLD(B30_a_brief_pause_does_not_starve_a_node),
        WITH_WORLD(a_crash_goes_elsewhere_and_ends_after_three),
        WITH_WORLD(bad_input_is_tried_at_one_other_node_only),
        WITH_WORLD(B22_an_answer_to_an_older_fence_changes_nothing),
        WITH_WORLD(a_short_outage_of_a_worker_costs_nothing),
        WITH_WORLD(live_data_beyond_the_queue_are_dropped_newest_first),
        WITH_WORLD(building_and_high_water_bound_what_a_node_is_given),
        WITH_WORLD(in_flight_limit_is_kept_and_comes_back),
        WITH_WORLD(B78_a_full_run_without_progress_is_an_alarm),
        WITH_WORLD(a_lasting_difference_between_ledger_and_reports_is_an_alarm),
        WITH_WORLD(what_is_taken_back_from_a_node_goes_to_another),
        WITH_WORLD(nobody_hears_of_a_run_before_it_is_on_disk),
        WITH_WORLD(runs_share_the_pool_by_least_charge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
