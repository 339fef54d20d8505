/* run_life_test.c - the life of a run: sources come and go, stops, restarts of sluiced, what people see of it */
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

/* ---- sources come and go ---------------------------------------------------------------------- */

static void a_source_that_comes_back_goes_on(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    world_disconnect(n1);
    world_disconnect(n2);
    announce(s, run, 0, 3, 100, 0, 3);
    world_turn();
    world_hang_up(s);
    world_connect(n1, NULL, 0, NULL);
    world_turn();
    assert_null(assigned(n1));                   /* its data cannot be had now */
    world_pass(3);
    s = join_source(run, 0, true, 1);
    announce(s, run, 0, 2, 100, 0, 3);           /* the third it does not have any more */
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    FREE(a);
    world_pass(11);
    assert_int_equal(the_run(run)->lost, 1);
}

/* A stopped source: pulls fail at once, contact is lost later. The tries are not used up in between, and the time for its return is whole. */
static void a_silent_source_uses_up_no_tries(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    double contact = world.d.conf->limits.contact_timeout, grace = world.d.conf->limits.grace;
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    assert_non_null(a);
    answer_failed(n, a, "PullTimeout");
    FREE(a);
    world_pass(contact - 0.5);
    world_turn();
    assert_null(assigned_somewhere(&n));         /* no second try while nobody knows */
    world_hang_up(s);                            /* contact is lost */
    world_pass(grace - 1);                       /* longer than the pause was */
    assert_int_equal(the_run(run)->lost, 0);
    s = join_source(run, 0, true, 1);
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    a = assigned_somewhere(&n);
    assert_non_null(a);
    answer_failed(n, a, "PullStalled");          /* and one that lives is asked again after the pause */
    FREE(a);
    world_pass(contact + 0.5);
    world_turn();
    a = assigned_somewhere(&n);
    assert_non_null(a);
    answer_failed(n, a, "PullTimeout");
    FREE(a);
    world_turn();
    assert_int_equal(the_run(run)->lost, 1);     /* the third of three */
}

static void a_source_that_does_not_come_back_is_given_up(void **state)
{
    uint64_t run = begin_run(2);
    struct session *s0 = join_source(run, 0, true, 1), *s1 = join_source(run, 1, true, 1);
    struct node *n;

    (void)state;
    world_disconnect(n1);
    world_disconnect(n2);
    announce(s0, run, 0, 1, 100, 0, 1);
    announce(s1, run, 0, 1, 100, 0, 1);
    world_hang_up(s1);
    world_pass(11);
    world_connect(n1, NULL, 0, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);  /* goes on without its part */
    assert_non_null(a);
    assert_true(a->incomplete);
    assert_int_equal(a->n_parts, 1);
    FREE(a);
    announce(s0, run, 1, 1, 100, 32, 2);         /* and is not waited for any more */
    world_turn();
    a = assigned_somewhere(&n);
    assert_non_null(a);
    FREE(a);
}

static void a_place_is_taken_once(void **state)
{
    uint64_t run = begin_run(1);

    (void)state;
    join_source(run, 0, true, 1);
    struct session *other = join_source(run, 0, true, 2);
    error_of(other, ERR_STATE, "source-0");
    other = join_source(run, 1, true, 2);
    error_of(other, ERR_STATE, "parts 0 to 0");
    other = join_source(run + 1, 0, true, 2);
    error_of(other, ERR_NOT_FOUND, "no run");
    assert_null(other->source);
}

/* ---- the end ---------------------------------------------------------------------------------- */

static void a_run_is_over_when_its_sources_are_and_all_is_settled(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    end_stream(s, run, 1);
    world_turn();
    assert_int_equal(the_run(run)->state, SLUICE__RUN_STATE__RUNNING);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    assert_int_equal(the_run(run)->state, SLUICE__RUN_STATE__RUNNING);   /* its result is still to be published */
    answer_published(n, a);
    world_turn();
    assert_int_equal(the_run(run)->state, SLUICE__RUN_STATE__RUN_DONE);
    assert_null(s->source);
    Sluice__RunClose *c = TAKE(n->session, sluice__run_close);
    assert_non_null(c);
    FREE(c);
    FREE(a);
}

static void stop(uint64_t run, double timeout)
{
    Sluice__StopRun m = SLUICE__STOP_RUN__INIT;

    m.has_id = m.has_data_timeout = true;
    m.id = run;
    m.data_timeout = timeout;
    run_stop(client, 9, &m);
}

static void B76_a_stop_ends_within_its_time_and_leaves_nothing(void **state)
{
    struct node *n;

    (void)state;
    for (int round = 0; round < 30; round++) {
        uint64_t run = begin_run(1);
        struct session *s = join_source(run, 0, true, (uint64_t)round + 1);
        announce(s, run, 0, 20, 50 * MB, 0, 20);
        world_turn();
        stop(run, round % 5);
        world_turn();
        Sluice__RunStopping *r = TAKE(s, sluice__run_stopping);
        assert_non_null(r);
        FREE(r);
        if (round % 5) {
            assert_int_equal(world_sent(client, &sluice__runs__descriptor), 0);
            world_pass(round % 5 - 0.5);
        }
        world_pass(1);
        Sluice__Runs *answer = TAKE(client, sluice__runs);
        assert_non_null(answer);
        assert_int_equal(answer->runs[0]->announced, 20);
        assert_int_equal(answer->runs[0]->in_flight, 0);
        assert_int_equal(answer->runs[0]->state, SLUICE__RUN_STATE__RUN_DONE);
        FREE(answer);
        Sluice__Cancel *c = TAKE(n1->session, sluice__cancel);
        assert_non_null(c);
        FREE(c);
        Sluice__Assign *a;
        while ((a = assigned_somewhere(&n))) {   /* some give it up, some were done just then: both are answered, neither is counted */
            if (a->tf->id % 2)
                answer_failed(n, a, "Cancelled");
            else
                answer_done(n, a, true);
            FREE(a);
        }
        assert_int_equal(the_run(run)->done, 0);
        assert_int_equal(n1->load.charged + n2->load.charged, 0);
        assert_int_equal(n1->n_tfs + n2->n_tfs, 0);
        world_hang_up(s);
        world_check();
    }
}

static void a_stop_waits_for_what_is_on_its_way(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 2, 100, 0, 2);
    world_turn();
    stop(run, 30);
    end_stream(s, run, 2);
    for (int i = 0; i < 2; i++) {
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_int_equal(world_sent(client, &sluice__runs__descriptor), 0);
        answer_built(n, a);
        answer_done(n, a, false);
        world_turn();
        FREE(a);
    }
    Sluice__Runs *answer = TAKE(client, sluice__runs);
    assert_non_null(answer);
    assert_int_equal(answer->runs[0]->done, 2);
    FREE(answer);
    stop(run, 1);                                /* once more: it says so again */
    answer = TAKE(client, sluice__runs);
    assert_non_null(answer);
    FREE(answer);
}

/* ---- restart of sluiced ----------------------------------------------------------------------- */

static Sluice__Held held_of(const Sluice__Assign *a, Sluice__Phase phase)
{
    Sluice__Held h = SLUICE__HELD__INIT;

    h.tf = a->tf;
    h.fence = a->fence;
    h.has_phase = h.has_bytes = true;
    h.phase = phase;
    h.bytes = a->bytes;
    return h;
}

static void announce_pulled(struct session *s, uint64_t run, const Sluice__Assign *a, const char *node)
{
    Sluice__Announce m = SLUICE__ANNOUNCE__INIT;
    Sluice__AnnounceRange r = SLUICE__ANNOUNCE_RANGE__INIT, *list = &r;
    uint64_t size = 100;

    m.has_run = true;
    m.run = run;
    m.ranges = &list;
    m.n_ranges = 1;
    r.has_first = r.has_count = r.has_state = true;
    r.first = a->tf->id;
    r.count = 1;
    r.sizes = &size;
    r.n_sizes = 1;
    r.state = SLUICE__FRESHNESS__PULLED;
    r.node = (char *)node;
    r.fence = a->fence;
    run_announce(s, 0, &m);
}

static void a_restart_in_mid_run_loses_nothing(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Assign *a[5];
    struct node *at[5], *n;
    struct idset forget = { 0 };

    (void)state;
    announce(s, run, 0, 6, 100, 0, 6);
    for (int i = 0; i < 5; i++) {
        world_turn();
        a[i] = assigned_somewhere(&at[i]);
        assert_non_null(a[i]);
        answer_built(at[i], a[i]);
    }
    answer_done(at[0], a[0], true);
    world_turn();                                /* TF 0: accepted, not yet published. 1: done, not on disk. 2, 3: at work. 4: its worker does not come back. 5: waits */
    answer_done(at[1], a[1], true);
    world_restart();
    client = world_peer("client");
    struct run *r = the_run(run);
    assert_non_null(r);
    assert_int_equal(r->done, 1);
    assert_int_equal(r->announced, 1);
    assert_int_equal(r->work.records, 1);
    world_check();

    s = join_source(run, 0, true, 1);
    for (int i = 0; i < 5; i++)
        announce_pulled(s, run, a[i], at[i]->name);
    announce(s, run, 5, 1, 100, 160, 6);         /* fresh */
    world_turn();
    Sluice__Release *let_go = TAKE(s, sluice__release);
    assert_non_null(let_go);                     /* settled already */
    assert_int_equal(let_go->ranges[0]->first, 0);
    FREE(let_go);
    assert_int_equal(r->announced, 6);
    world_check();

    Sluice__Held h1 = held_of(a[1], SLUICE__PHASE__REPORTED), h0 = held_of(a[0], SLUICE__PHASE__ACCEPTED);
    Sluice__Held all[4];
    size_t k = 0;
    for (int i = 0; i < 5; i++) {
        if (at[i] != n1)
            continue;
        all[k++] = i == 0 ? h0 : i == 1 ? h1 : held_of(a[i], SLUICE__PHASE__PROCESSING);
    }
    world_connect(n1, all, k, &forget);
    k = 0;
    for (int i = 0; i < 4; i++) {
        if (at[i] != n2)
            continue;
        all[k++] = i == 0 ? h0 : i == 1 ? h1 : held_of(a[i], SLUICE__PHASE__PROCESSING);
    }
    world_connect(n2, all, k, &forget);
    assert_int_equal(forget.count, 0);
    world_turn();
    world_check();
    Sluice__Verdict *v = TAKE(at[0]->session, sluice__verdict);
    assert_non_null(v);
    assert_true(v->accepted);                    /* redone */
    assert_int_equal(v->tf->id, 0);
    FREE(v);
    answer_published(at[0], a[0]);
    Sluice__Assign *b = assigned_somewhere(&n);  /* the fresh one, under the new epoch */
    assert_non_null(b);
    assert_int_equal(b->tf->id, 5);
    assert_true(b->fence->epoch > a[0]->fence->epoch);
    answer_done(n, b, false);
    FREE(b);
    for (int i = 1; i < 4; i++)
        answer_done(at[i], a[i], false);
    if (at[4] == n1)
        answer_done(n1, a[4], false);
    for (int i = 0; i < 3; i++) {
        world_turn();
        b = assigned_somewhere(&n);
        if (b)
            answer_done(n, b, false);
        FREE(b);
    }
    world_turn();
    assert_int_equal(r->done, 6);
    assert_int_equal(r->announced, 6);
    assert_int_equal(r->lost + r->failed, 0);
    end_stream(s, run, 6);
    world_pass(1);
    assert_int_equal(r->state, SLUICE__RUN_STATE__RUN_DONE);
    for (int i = 0; i < 5; i++)
        FREE(a[i]);
    idset_free(&forget);
}

static void a_pulled_tf_waits_for_its_worker_no_longer_than_the_grace(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n), *b;
    world_restart();
    struct node *other = n == n1 ? n2 : n1;
    s = join_source(run, 0, true, 1);
    announce_pulled(s, run, a, n->name);
    world_connect(other, NULL, 0, NULL);
    world_pass(8);
    assert_null(assigned(other));
    world_pass(3);
    b = assigned(other);
    assert_non_null(b);
    assert_true(b->fence->epoch > a->fence->epoch && b->fence->attempt > a->fence->attempt);
    Sluice__Held h = held_of(a, SLUICE__PHASE__PROCESSING);
    struct idset forget = { 0 };
    world_connect(n, &h, 1, &forget);            /* too late */
    assert_int_equal(forget.count, 1);
    idset_free(&forget);
    FREE(a);
    FREE(b);
}

static void what_was_pulled_stays_so_while_other_sources_are_still_to_come(void **state)
{
    uint64_t run = begin_run(2);
    struct session *s0 = join_source(run, 0, true, 1), *s1 = join_source(run, 1, true, 1);
    struct node *n;

    (void)state;
    announce(s0, run, 0, 1, 100, 0, 1);
    announce(s1, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    world_restart();
    struct node *other = n == n1 ? n2 : n1;
    world_connect(other, NULL, 0, NULL);
    s0 = join_source(run, 0, true, 1);
    announce_pulled(s0, run, a, n->name);
    world_pass(3);                               /* longer than parts are waited for */
    s1 = join_source(run, 1, true, 1);
    announce(s1, run, 0, 1, 100, 0, 1);          /* nobody had come for this part yet */
    world_pass(3);
    assert_null(assigned(other));
    struct idset forget = { 0 };
    Sluice__Held h = held_of(a, SLUICE__PHASE__PROCESSING);
    world_connect(n, &h, 1, &forget);
    assert_int_equal(forget.count, 0);
    world_turn();
    assert_null(assigned(other));
    answer_done(n, a, false);
    world_turn();
    assert_int_equal(the_run(run)->done, 1);
    assert_int_equal(the_run(run)->incomplete, 0);
    FREE(a);
}

static void tfs_that_died_with_everybody_who_knew_them_are_lost_by_name(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__Assign *a;
    struct node *n;

    (void)state;
    announce(s, run, 0, 8, 100, 0, 8);
    world_turn();
    while ((a = assigned_somewhere(&n))) {       /* all but 2 and 5 are done */
        if (a->tf->id != 2 && a->tf->id != 5) {
            answer_built(n, a);
            answer_done(n, a, false);
        }
        FREE(a);
        world_turn();
    }
    assert_int_equal(the_run(run)->done, 6);
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    s = join_source(run, 0, true, 2);            /* a new process, which knows of neither */
    announce(s, run, 8, 1, 100, 256, 9);
    end_stream(s, run, 9);
    world_turn();
    a = assigned(n1);
    assert_non_null(a);
    answer_done(n1, a, false);
    FREE(a);
    world_pass(5);
    struct run *r = the_run(run);
    assert_int_equal(r->state, SLUICE__RUN_STATE__RUNNING);      /* a worker may still come and have them */
    world_pass(6);
    assert_int_equal(r->state, SLUICE__RUN_STATE__RUN_DONE);
    assert_int_equal(r->announced, 9);
    assert_int_equal(r->done, 7);
    assert_int_equal(r->lost, 2);
    assert_true(idset_has(&r->settled, 2) && idset_has(&r->settled, 5));
}

static void a_run_that_is_over_is_remembered(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    struct node *n;

    (void)state;
    announce(s, run, 0, 1, 100, 0, 1);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_done(n, a, false);
    end_stream(s, run, 1);
    world_turn();
    world_restart();
    client = world_peer("client");
    struct run *r = the_run(run);
    assert_non_null(r);
    assert_int_equal(r->state, SLUICE__RUN_STATE__RUN_DONE);
    assert_int_equal(r->done, 1);
    s = join_source(run, 0, true, 1);
    error_of(s, ERR_STATE, "is over");
    Sluice__GetRunTfs m = SLUICE__GET_RUN_TFS__INIT;
    m.has_id = m.has_settled = m.settled = true;
    m.id = run;
    run_tfs(client, 1, &m);                      /* from the database */
    Sluice__RunTfs *l = TAKE(client, sluice__run_tfs);
    assert_int_equal(l->n_tfs, 1);
    assert_string_equal(l->tfs[0]->digest, "0123456789abcdef");
    FREE(l);
    world_connect(n1, NULL, 0, NULL);
    assert_true(begin_run(1) > run);             /* numbers are not used again */
    FREE(a);
}

/* ---- what people see -------------------------------------------------------------------------- */

static void listings_say_where_each_tf_is(void **state)
{
    uint64_t run = begin_run(1);
    struct session *s = join_source(run, 0, true, 1);
    Sluice__GetRunTfs m = SLUICE__GET_RUN_TFS__INIT;
    struct node *n;

    (void)state;
    world_disconnect(n2);
    announce(s, run, 0, 5, 100 * MB, 0, 5);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    world_pass(1);
    m.has_id = true;
    m.id = run;
    run_tfs(client, 1, &m);
    Sluice__RunTfs *l = TAKE(client, sluice__run_tfs);
    assert_int_equal(l->n_tfs, 5);
    assert_string_equal(l->tfs[0]->state, "built");
    assert_string_equal(l->tfs[0]->node, "n1");
    assert_string_equal(l->tfs[1]->state, "building");
    assert_string_equal(l->tfs[4]->state, "queued");
    FREE(l);
    answer_done(n, a, false);
    world_turn();
    m.has_settled = true;
    m.settled = true;
    run_tfs(client, 1, &m);
    l = TAKE(client, sluice__run_tfs);
    assert_int_equal(l->n_tfs, 1);
    assert_string_equal(l->tfs[0]->state, "done");
    assert_string_equal(l->tfs[0]->digest, "0123456789abcdef");
    FREE(l);
    Sluice__GetRuns g = SLUICE__GET_RUNS__INIT;
    run_list(client, 1, &g);
    Sluice__Runs *runs = TAKE(client, sluice__runs);
    assert_int_equal(runs->n_runs, 1);
    assert_int_equal(runs->runs[0]->in_flight, 4);
    assert_int_equal(runs->runs[0]->n_nodes, 1);
    assert_int_equal(runs->runs[0]->nodes[0]->done, 1);
    assert_true(runs->runs[0]->nodes[0]->fill_mean > 0.2 && runs->runs[0]->nodes[0]->fill_mean < 0.45);
    FREE(runs);
    Sluice__GetSamples gs = SLUICE__GET_SAMPLES__INIT;
    gs.has_run = true;
    gs.run = run;
    run_samples(client, 1, &gs);
    Sluice__Samples *samples = TAKE(client, sluice__samples);
    assert_true(samples->n_samples >= 9 && samples->n_samples <= 11);    /* ten times a second */
    FREE(samples);
    FREE(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_source_that_comes_back_goes_on),
        WITH_WORLD(a_silent_source_uses_up_no_tries),
        WITH_WORLD(a_source_that_does_not_come_back_is_given_up),
        WITH_WORLD(a_place_is_taken_once),
        WITH_WORLD(a_run_is_over_when_its_sources_are_and_all_is_settled),
        WITH_WORLD(B76_a_stop_ends_within_its_time_and_leaves_nothing),
        WITH_WORLD(a_stop_waits_for_what_is_on_its_way),
        WITH_WORLD(a_restart_in_mid_run_loses_nothing),
        WITH_WORLD(a_pulled_tf_waits_for_its_worker_no_longer_than_the_grace),
        WITH_WORLD(what_was_pulled_stays_so_while_other_sources_are_still_to_come),
        WITH_WORLD(tfs_that_died_with_everybody_who_knew_them_are_lost_by_name),
        WITH_WORLD(a_run_that_is_over_is_remembered),
        WITH_WORLD(listings_say_where_each_tf_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
