/* job_control_test.c - cancelled, held, released, run again; whose jobs one may change */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "job_fixture.h"

/* B24: an attempt that failed, and the one after it, are both told of; the job is not failed; a rerun keeps all that. */
static void B24_each_try_is_kept_and_a_rerun_of_all_has_names_of_its_own(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .output = "/tmp/out" };
    Sluice__RerunJob again = SLUICE__RERUN_JOB__INIT;
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_failed(n, a, "NodeLost");
    FREE(a);
    world_turn();
    tries_are(id, 0, "1 failed NodeLost");
    finish_all();
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    tries_are(id, 0, "1 failed NodeLost, 2 done Done");
    again.has_id = again.has_all = again.all = true;
    again.id = id;
    job_rerun(client, 8, &again);
    world_turn();
    a = assigned_somewhere(&n);
    assert_string_equal(a->stem, "rerun-1/x.0");
    assert_int_equal(a->fence->attempt, 3);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    answer_published(n, a);
    FREE(a);
    finish_all();
    restart();
    tries_are(id, 0, "1 failed NodeLost, 2 done Done, 3 done Done");
    assert_int_equal(the_job(id)->reruns, 1);
    job_rerun(client, 8, &again);                        /* its tasks are read from the disk first */
    world_turn();
    world_turn();
    a = assigned_somewhere(&n);
    assert_string_equal(a->stem, "rerun-2/x.0");
    assert_int_equal(a->fence->attempt, 4);
    answer_failed(n, a, "BadInput");
    FREE(a);
    finish_all();
    world_forget_sent(client);
}

static void ask_rerun(uint64_t id, bool all)
{
    Sluice__RerunJob m = SLUICE__RERUN_JOB__INIT;

    m.has_id = m.has_all = true;
    m.id = id;
    m.all = all;
    world_forget_sent(client);
    job_rerun(client, 6, &m);
}

static uint64_t over_in(const char *output, const char *word)
{
    struct wish w = { .path = { "/data/x.tf", "/data/y.tf" }, .tfs = { 1, 1 }, .n = 2, .output = output, .attempts = 1 };
    uint64_t id = submit(&w, NULL);
    struct node *n;
    Sluice__Assign *a;

    while (word && (a = assigned_within(1, &n))) {
        answer_failed(n, a, word);
        FREE(a);
        world_turn();
    }
    finish_all();
    assert_true(the_job(id)->stored_over);
    return id;
}

/* The folder of a rerun of all is held against what others named as theirs, and the other way round; so is that of what failed. */
static void names_of_a_rerun_are_held_against_those_of_others(void **state)
{
    struct wish other = { .path = { "/more/y.tf", "/more/z.tf" }, .tfs = { 2, 2 }, .n = 2, .output = "/tmp/o/rerun-1", .hold = true };
    struct wish beside = { .path = { "/more/x.tf" }, .tfs = { 1 }, .n = 1, .output = "/tmp/o", .hold = true };

    (void)state;
    uint64_t id = over_in("/tmp/o", NULL), held = submit(&other, NULL);
    ask_rerun(id, true);
    error_of(client, ERR_STATE, "is on and delivers results of the name y into that folder, too: its end is to be waited for");
    assert_int_equal(the_job(id)->reruns, 0);
    assert_true(the_job(id)->stored_over);
    release(held);
    finish_all();
    ask_rerun(id, true);                                 /* what lies there now the worker sees */
    world_turn();
    assert_int_equal(the_job(id)->reruns, 1);
    assert_int_equal(the_job(id)->ended, 0);
    assert_int_equal(submit(&other, NULL), 0);
    error_of(client, ERR_STATE, "is on and delivers results of the name y into that folder, too: another --output is wanted");
    uint64_t second = submit(&beside, NULL);             /* the first results are there, the next ones not */
    assert_int_not_equal(second, 0);
    finish_all();
    release(second);
    finish_all();

    id = over_in("/tmp/p", "BadInput");                  /* nothing lies there */
    beside.output = "/tmp/p";
    held = submit(&beside, NULL);
    assert_int_not_equal(held, 0);
    ask_rerun(id, false);
    error_of(client, ERR_STATE, "is on and delivers results of the name x into that folder, too");
    ask_rerun(id, true);                                 /* in a folder of its own */
    world_turn();
    assert_int_equal(the_job(id)->reruns, 1);
    release(held);
    finish_all();
    world_forget_sent(client);
}

/* They come while the names are looked at, or the tasks are read. */
static void names_of_a_rerun_are_held_against_those_who_came_meanwhile(void **state)
{
    struct wish other = { .path = { "/more/z.tf" }, .tfs = { 1 }, .n = 1, .output = "/tmp/o/rerun-1", .hold = true };

    (void)state;
    uint64_t id = over_in("/tmp/o", NULL), first = submit(&other, NULL);
    other.path[0] = "/more/x.tf";
    world.slow_helper = true;
    ask_rerun(id, true);
    world.slow_helper = false;
    uint64_t second = submit(&other, NULL);
    assert_int_not_equal(second, 0);
    while (world_help())
        ;
    world_turn();
    error_of(client, ERR_STATE, "is on and delivers results of the name x into that folder, too");
    assert_true(the_job(id)->stored_over);
    release(first);
    release(second);
    finish_all();
    world_forget_sent(client);
}

static void B27_a_cancelled_job_never_runs_after_the_confirmation(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 20 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    answer_published(n, a);
    FREE(a);
    assert_int_equal(waited(id), -1);
    m.has_id = true;
    m.id = id;
    m.reason = "wrong list";
    job_cancel(client, 6, &m);
    assert_int_equal(world_sent(client, &sluice__jobs__descriptor), 0);
    world_turn();
    Sluice__Jobs *jobs = TAKE(client, sluice__jobs);
    assert_non_null(jobs);
    assert_int_equal(jobs->jobs[0]->cancelled, 19);
    assert_int_equal(jobs->jobs[0]->done, 1);
    assert_int_equal(jobs->jobs[0]->waiting + jobs->jobs[0]->running, 0);
    FREE(jobs);
    assert_true(world_sent(n1->session, &sluice__cancel__descriptor) + world_sent(n2->session, &sluice__cancel__descriptor) >= 3);
    uint64_t counted = counters_get(world.d.counters, "stale_fences"), late = 0;
    while ((a = assigned_somewhere(&n))) {               /* sent before; a late Done is not taken */
        answer_done(n, a, true);
        Sluice__Verdict *v = TAKE(n->session, sluice__verdict);
        while (v && v->tf->id != a->tf->id) {
            FREE(v);
            v = TAKE(n->session, sluice__verdict);
        }
        assert_non_null(v);
        assert_false(v->accepted);
        FREE(v);
        FREE(a);
        late++;
    }
    assert_true(late >= 3);
    assert_int_equal(counters_get(world.d.counters, "stale_fences"), counted + late);        /* and counted */
    world_pass(2);
    assert_null(assigned_somewhere(&n));
    Sluice__Waited *x = TAKE(client, sluice__waited);
    assert_non_null(x);
    assert_int_equal(x->code, ERR_CANCELLED);
    FREE(x);
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(n1->load.charged + n2->load.charged, 0);
    world_restart();
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_CANCELLED);
    assert_int_equal(the_job(id)->n[TASK_CANCELLED], 19);
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_pass(12);
    assert_null(TAKE(n1->session, sluice__assign));
    job_cancel(client, 6, &m);
    error_of(client, ERR_STATE, "cancelled");
}

/* A job is cancelled when something of it was: what came too late is refused, and changes neither its state nor the status of who waits. */
static void a_cancel_after_the_last_end_is_refused_and_the_job_is_done(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    m.has_id = true;
    m.id = submit(&w, NULL);
    world_turn();
    a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);                             /* not on disk yet */
    assert_int_equal(the_job(m.id)->n[TASK_DONE], 1);
    assert_int_equal(waited(m.id), -1);
    job_cancel(client, 6, &m);
    error_of(client, ERR_STATE, "is over: done; its results are being published, there is nothing to cancel");
    world_turn();
    job_cancel(client, 6, &m);                           /* on disk, not published yet */
    error_of(client, ERR_STATE, "there is nothing to cancel");
    answer_published(n, a);
    world_turn();
    assert_int_equal(the_job(m.id)->state, SLUICE__JOB_STATE__JOB_DONE);
    Sluice__Waited *over = TAKE(client, sluice__waited);
    assert_int_equal(over->code, ERR_NONE);
    FREE(over);
    FREE(a);

    /* what was cancelled before its end stays cancelled, whatever its node says afterwards */
    m.id = submit(&w, NULL);
    world_turn();
    assert_non_null(a = assigned_somewhere(&n));
    answer_built(n, a);
    job_cancel(client, 6, &m);
    answer_done(n, a, true);
    world_turn();
    assert_int_equal(the_job(m.id)->state, SLUICE__JOB_STATE__JOB_CANCELLED);
    assert_int_equal(the_job(m.id)->n[TASK_DONE], 0);
    assert_int_equal(waited(m.id), ERR_CANCELLED);
    FREE(a);
}

static void hold(uint64_t id, const char *reason)
{
    Sluice__HoldJob m = SLUICE__HOLD_JOB__INIT;

    m.has_id = true;
    m.id = id;
    m.reason = (char *)reason;
    job_hold(client, 6, &m);
}

/* What a change answered after its commit; the state then. */
static Sluice__JobState changed(const char *why)
{
    assert_int_equal(world_sent(client, &sluice__jobs__descriptor), 0);
    world_commit();
    Sluice__Jobs *jobs = TAKE(client, sluice__jobs);
    assert_non_null(jobs);
    assert_int_equal(jobs->n_jobs, 1);
    Sluice__JobState state = jobs->jobs[0]->state;
    if (why)
        assert_string_equal(jobs->jobs[0]->why, why);
    FREE(jobs);
    return state;
}

static unsigned given_out(void)
{
    return world_sent(n1->session, &sluice__assign__descriptor) + world_sent(n2->session, &sluice__assign__descriptor);
}

static void a_held_job_gives_out_nothing_more_until_it_is_released(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 20 }, .n = 1 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    unsigned at_work = given_out();
    assert_true(at_work > 0 && at_work < 20);
    hold(id, "disk is being cleaned");
    for (unsigned i = 0; i < at_work; i++) {             /* what is there ends, nothing takes its place: at once, also before the commit */
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        answer_built(n, a);
        answer_done(n, a, false);
        FREE(a);
        flow_turn(world.d.flow);
    }
    assert_int_equal(given_out(), 0);
    assert_int_equal(changed("disk is being cleaned"), SLUICE__JOB_STATE__HELD);
    world_pass(3);
    assert_int_equal(given_out(), 0);
    assert_int_equal(the_job(id)->n[TASK_DONE], at_work);
    hold(id, NULL);                                      /* again: the same, and the reason stays */
    assert_int_equal(changed("disk is being cleaned"), SLUICE__JOB_STATE__HELD);
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__HELD);
    assert_string_equal(the_job(id)->why, "disk is being cleaned");
    world_pass(12);
    assert_int_equal(given_out(), 0);
    release(id);
    flow_turn(world.d.flow);
    assert_int_equal(given_out(), 0);                    /* not before it is on disk */
    assert_int_equal(changed(NULL), SLUICE__JOB_STATE__JOB_RUNNING);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 20);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    hold(id, NULL);
    error_of(client, ERR_STATE, "done");
}

static void a_job_can_be_submitted_held(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .hold = true };

    (void)state;
    uint64_t id = submit(&w, NULL);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__HELD);
    world_pass(3);
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    world_pass(12);
    assert_int_equal(given_out(), 0);
    release(id);
    assert_int_equal(changed(NULL), SLUICE__JOB_STATE__WAITING);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 2);
}

static void a_release_that_is_not_stored_leaves_it_held(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .hold = true };

    (void)state;
    uint64_t id = submit(&w, NULL);
    world.writable = false;
    release(id);
    world_commit();
    error_of(client, ERR_STATE, "");
    world_pass(3);
    assert_int_equal(given_out(), 0);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__HELD);
    world.writable = true;
    release(id);
    changed(NULL);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 2);
}

static void a_held_job_can_be_cancelled(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .hold = true };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;

    (void)state;
    m.has_id = true;
    m.id = submit(&w, NULL);
    job_cancel(client, 6, &m);
    hold(m.id, NULL);
    error_of(client, ERR_STATE, "cancelled");
    world_turn();
    world_restart();
    client = world_peer("client");
    world_pass(1);
    assert_int_equal(the_job(m.id)->state, SLUICE__JOB_STATE__JOB_CANCELLED);
    assert_int_equal(the_job(m.id)->n[TASK_CANCELLED], 2);
}

static void rerun(uint64_t id)
{
    Sluice__RerunJob m = SLUICE__RERUN_JOB__INIT;

    m.has_id = true;
    m.id = id;
    job_rerun(client, 6, &m);
}

/* TF `bad` fails at each try, all others are done; until the job is over. */
static void finish_but(uint64_t id, uint64_t bad, struct idset *done)
{
    struct node *n;
    Sluice__Assign *a;

    for (int i = 0; i < 400 && the_job(id)->ended == 0; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            if (a->tf->id == bad) {
                answer_failed(n, a, "Crashed");
            } else {
                assert_true(idset_add(done, a->tf->id));         /* none twice */
                answer_built(n, a);
                answer_done(n, a, true);
                world_turn();
                answer_published(n, a);
            }
            FREE(a);
        }
    }
    world_turn();
    assert_true(the_job(id)->stored_over);
}

static void only_what_failed_is_run_again_with_tries_numbered_on(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 6 }, .n = 1, .attempts = 2 };
    struct idset done = { 0 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    rerun(id);
    error_of(client, ERR_STATE, "not over");
    finish_but(id, 4, &done);
    assert_int_equal(waited(id), ERR_SOME_FAILED);
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    assert_int_equal(the_job(id)->task[4].attempt, 2);
    world.writable = false;
    rerun(id);
    error_of(client, ERR_STATE, "not writable");
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    world.writable = true;
    rerun(id);
    flow_turn(world.d.flow);
    assert_int_equal(given_out(), 0);                    /* not before it is on disk */
    assert_int_equal(changed(NULL), SLUICE__JOB_STATE__JOB_RUNNING);
    assert_int_equal(waited(id), -1);                    /* it is on again */
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    assert_int_equal(the_job(id)->n[TASK_WAITING], 1);
    assert_int_equal(the_job(id)->n[TASK_DONE], 5);
    assert_string_equal(the_job(id)->task[4].code, "Crashed");
    Sluice__Assign *a = NULL;
    for (int i = 0; i < 100 && a == NULL; i++) {
        world_pass(0.1);
        a = assigned_somewhere(&n);
    }
    assert_non_null(a);
    assert_int_equal(a->tf->id, 4);
    assert_int_equal(a->fence->attempt, 3);
    answer_failed(n, a, "TimedOut");                     /* as many tries as before */
    FREE(a);
    finish_but(id, 99, &done);
    assert_int_equal(done.count, 6);
    assert_int_equal(the_job(id)->task[4].attempt, 4);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    assert_int_equal(waited(id), 0);
    rerun(id);
    error_of(client, ERR_STATE, "none of its TFs");
    idset_free(&done);
}

static void what_was_cancelled_can_be_run_again(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 20 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    m.has_id = true;
    m.id = submit(&w, NULL);
    m.reason = "wrong night";
    world_turn();
    job_cancel(client, 6, &m);
    changed("wrong night");
    while ((a = assigned_somewhere(&n))) {               /* late answers to the tries before change nothing */
        answer_failed(n, a, "Cancelled");
        FREE(a);
    }
    client->peer.uid = 2000;
    rerun(m.id);
    error_of(client, ERR_PERMISSION, "anna");
    client->peer.uid = 1000;
    rerun(m.id);
    changed(NULL);
    assert_null(the_job(m.id)->why);
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    assert_int_equal(the_job(m.id)->n[TASK_CANCELLED], 0);
    finish_all();
    assert_int_equal(the_job(m.id)->n[TASK_DONE], 20);
    assert_int_equal(the_job(m.id)->state, SLUICE__JOB_STATE__JOB_DONE);
}

static void others_jobs_are_for_experts(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;

    (void)state;
    m.has_id = true;
    m.id = submit(&w, NULL);
    client->peer.uid = 2000;
    job_cancel(client, 6, &m);
    error_of(client, ERR_PERMISSION, "anna");
    client->right = RIGHT_EXPERT;
    job_cancel(client, 6, &m);
    world_turn();
    Sluice__Jobs *jobs = TAKE(client, sluice__jobs);
    assert_non_null(jobs);
    FREE(jobs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(B24_each_try_is_kept_and_a_rerun_of_all_has_names_of_its_own),
        WITH_WORLD(names_of_a_rerun_are_held_against_those_of_others),
        WITH_WORLD(names_of_a_rerun_are_held_against_those_who_came_meanwhile),
        WITH_WORLD(B27_a_cancelled_job_never_runs_after_the_confirmation),
        WITH_WORLD(a_cancel_after_the_last_end_is_refused_and_the_job_is_done),
        WITH_WORLD(a_held_job_gives_out_nothing_more_until_it_is_released),
        WITH_WORLD(a_job_can_be_submitted_held),
        WITH_WORLD(a_release_that_is_not_stored_leaves_it_held),
        WITH_WORLD(a_held_job_can_be_cancelled),
        WITH_WORLD(only_what_failed_is_run_again_with_tries_numbered_on),
        WITH_WORLD(what_was_cancelled_can_be_run_again),
        WITH_WORLD(others_jobs_are_for_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
