/* job_run_test.c - tasks given out, tried again, set aside, done once; whose turn it is; what cannot be published */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "job_fixture.h"
#include "ran.h"

static void answer_unpublished(struct node *n, const Sluice__Assign *a, const char *word, const char *text)
{
    Sluice__Published m = SLUICE__PUBLISHED__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    m.word = (char *)word;
    m.text = (char *)text;
    flow_published(n->session, 0, &m);
}

/* B21: a worker dies between Assign and its acknowledgement, before and after it is built; nothing refers to it afterwards, and the job ends. */
static void B21_no_task_waits_for_a_worker_that_is_gone(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 6 }, .n = 1, .attempts = 100 };
    unsigned kills = 0;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 400 && !the_job(id)->ended; i++) {
        struct node *n;
        Sluice__Assign *a;

        world_pass(0.05);
        world_turn();
        while ((a = assigned_somewhere(&n))) {
            unsigned how = (unsigned)i % 3;
            if (kills < 12 && n == n1) {                 /* dead: without a word, once built, or with its answer on the wire */
                if (how > 0)
                    answer_built(n, a);
                FREE(a);
                world_disconnect(n);
                flow_worker_lost(n, "its connection was closed");
                world_forget_sent(n->session ? n->session : client);
                world_connect(n, NULL, 0, NULL);
                kills++;
                break;
            }
            answer_built(n, a);
            answer_done(n, a, true);
            world_turn();
            answer_published(n, a);
            FREE(a);
        }
    }
    finish_all();
    assert_true(kills > 0);
    assert_int_equal(the_job(id)->n[TASK_DONE], 6);
    assert_int_equal(the_job(id)->work.n[TF_BUILDING] + the_job(id)->work.n[TF_BUILT], 0);
    world_check();
}

static void every_tf_of_every_file_is_done_once_under_a_name_of_its_own(void **state)
{
    struct wish w = { .path = { "/a/x.tf", "/b/x.tf", "/c/x~2.tf", "/d/bad.tf", "/e/y" }, .tfs = { 2, 1, 1, 0, 1 }, .n = 5 };
    const char *expect[] = { "x.0", "x.1", "x~2.0", "x~2~2.0", "y.0" };
    bool seen[5] = { false };
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    uint64_t id = submit(&w, NULL);
    assert_int_equal(the_job(id)->n_tasks, 5);
    assert_int_equal(the_job(id)->skipped_files, 1);
    for (int i = 0; i < 5; i++) {
        world_turn();
        a = assigned_somewhere(&n);
        assert_non_null(a);
        assert_false(seen[a->tf->id]);
        seen[a->tf->id] = true;
        assert_string_equal(a->stem, expect[a->tf->id]);
        assert_int_equal(a->size, MB);
        assert_true(a->tf->has_job && a->tf->job == id && a->n_parts == 0);
        if (a->tf->id == 1) {
            assert_string_equal(a->path, "/a/x.tf");
            assert_int_equal(a->offset, MB);
        }
        answer_built(n, a);
        answer_done(n, a, true);
        world_turn();
        answer_published(n, a);
        FREE(a);
    }
    assert_int_equal(waited(id), -1);
    world_turn();
    world_pass(0.1);
    Sluice__Waited *x = TAKE(client, sluice__waited);
    assert_non_null(x);
    assert_int_equal(x->code, ERR_SOME_FAILED);          /* done, but a file was skipped */
    FREE(x);
    assert_int_equal(waited(id), ERR_SOME_FAILED);
    assert_int_equal(waited(id + 1), ERR_LOST);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
}

static void a_failed_attempt_is_tried_elsewhere_after_a_pause(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 3 };
    struct node *n, *first;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&first);
    assert_int_equal(the_job(id)->n[TASK_RUNNING], 1);
    answer_failed(first, a, "Crashed");
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_WAITING], 1);
    assert_null(assigned_somewhere(&n));
    world_pass(0.4);
    Sluice__Assign *b = assigned_somewhere(&n);
    assert_non_null(b);
    assert_ptr_not_equal(n, first);
    assert_int_equal(b->fence->attempt, 2);
    answer_failed(n, b, "TimedOut");
    world_pass(0.4);
    assert_null(assigned_somewhere(&n));                 /* longer each time */
    world_pass(0.4);
    Sluice__Assign *c = assigned_somewhere(&n);
    assert_non_null(c);
    answer_failed(n, c, "Crashed");
    world_turn();
    world_pass(0.1);
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_FAILED);
    assert_int_equal(waited(id), ERR_SOME_FAILED);
    assert_string_equal(the_job(id)->task[0].code, "Crashed");
    assert_int_equal(the_job(id)->work.retried, 2);
    FREE(a);
    FREE(b);
    FREE(c);
}

/* B16: a node that refuses is asked again after a pause, twice as long each time up to 2 s; what it takes ends that. No try is used up. */
static void B16_refusals_in_a_row_make_the_pause_longer(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 1 };
    double pause = 0.02;
    Sluice__Assign *a;

    (void)state;
    world_disconnect(n2);
    flow_worker_lost(n2, "its connection was closed");
    uint64_t id = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 10; i++) {
        a = assigned_to(n1, 3);
        answer_refused(n1, a, "NoSpace");
        FREE(a);
        if (fabs(flow_cooling_s(n1) - pause) > 1e-6)
            fail_msg("refusal %d: passed over for %g s, not %g", i + 1, flow_cooling_s(n1), pause);
        world_pass(pause / 2);
        assert_null(TAKE(n1->session, sluice__assign));
        pause = pause < 2 ? 2 * pause : 2;
    }
    assert_int_equal(the_job(id)->n[TASK_FAILED], 0);
    a = assigned_to(n1, 3);
    answer_built(n1, a);
    answer_done(n1, a, true);
    world_turn();
    answer_published(n1, a);
    FREE(a);
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(the_job(id)->work.retried, 0);
    id = submit(&w, NULL);
    a = assigned_to(n1, 3);
    answer_refused(n1, a, "NoSpace");
    FREE(a);
    assert_true(fabs(flow_cooling_s(n1) - 0.02) < 1e-6);         /* from the beginning */
    world_connect(n2, NULL, 0, NULL);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
}

/* How many TFs each of three jobs gets of what fits, each charge kept. */
static void give_out(uint64_t first, unsigned given[3])
{
    struct node *n;
    Sluice__Assign *a;

    for (int i = 0; i < 200; i++) {
        world_turn();
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);
            given[a->tf->job - first]++;
            FREE(a);
        }
    }
}

static void priority_then_fair_by_user_then_the_oldest(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 60 }, .n = 1, .hold = true };
    unsigned given[3] = { 0 };

    (void)state;
    n1->load.size = 21 * MB;                             /* a few TFs of 1 MB each at a node */
    n2->load.size = 21 * MB;
    uint64_t first = submit(&w, NULL);                   /* two of anna's, one of somebody else */
    submit(&w, NULL);
    client->peer.uid = 2000;
    submit(&w, NULL);
    client->right = RIGHT_EXPERT;
    for (unsigned i = 0; i < 3; i++)
        release(first + i);
    world_commit();
    world_forget_sent(client);
    give_out(first, given);
    assert_true(given[0] >= 4);
    assert_int_equal(given[1], 0);                       /* behind the older one of the same user */
    assert_true(given[2] + 1 >= given[0] && given[2] <= given[0] + 1);
}

static void a_higher_priority_goes_first(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 60 }, .n = 1, .hold = true };
    unsigned given[3] = { 0 };

    (void)state;
    uint64_t first = submit(&w, NULL);
    w.priority = 7;
    submit(&w, NULL);
    world_restart();                                     /* it is kept */
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    n1->load.size = n2->load.size = 21 * MB;             /* not room for all of either */
    release(first);
    release(first + 1);
    world_commit();
    world_forget_sent(client);
    give_out(first, given);
    assert_true(given[1] >= 8);
    assert_int_equal(given[0], 0);
}

static void what_kills_processes_is_set_aside(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .attempts = 50 };
    Sluice__GetTasks q = SLUICE__GET_TASKS__INIT;
    char *states[] = { "set-aside" };
    unsigned deaths = 0;
    struct node *at;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 20 && the_job(id)->n[TASK_WAITING] + the_job(id)->n[TASK_RUNNING] > 0; i++) {
        Sluice__Assign *a = assigned_within(10, &at);
        if (a == NULL)
            break;
        answer_built(at, a);
        if (a->tf->id == 0) {
            answer_done(at, a, false);
        } else if (i % 2) {
            answer_failed(at, a, "TimedOut");            /* no death */
        } else {
            answer_failed(at, a, "Crashed");
            deaths++;
        }
        FREE(a);
        world_turn();
        if (deaths == 2)
            restart();                         /* forgets none of them */
    }
    assert_int_equal(deaths, 3);
    q.has_job = true;
    q.job = id;
    q.states = states;
    q.n_states = 1;
    job_tasks(client, 9, &q);
    Sluice__Tasks *t = TAKE(client, sluice__tasks);
    assert_non_null(t);
    assert_int_equal(t->n_tasks, 1);
    assert_string_equal(t->tasks[0]->state, "set-aside");
    assert_string_equal(t->tasks[0]->code, "HeldPoison");
    assert_non_null(strstr(t->tasks[0]->text, "3 processes died of it, on n"));
    FREE(t);
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    restart();
    assert_true(the_job(id)->task[1].aside);
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
}

/* Ten TFs of which the last is not done: the one that holds it and its Assign. */
static Sluice__Assign *all_but_one(struct node **slow, uint64_t *id)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 10 }, .n = 1, .straggler = 3 };
    Sluice__Assign *a, *kept = NULL;
    struct node *n;

    *id = submit(&w, NULL);
    for (int i = 0; i < 30; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);
            if (a->tf->id == 9) {
                kept = a;
                *slow = n;
                continue;
            }
            answer_done(n, a, false);
            FREE(a);
        }
        if (kept && the_job(*id)->n[TASK_DONE] == 9)
            break;
    }
    assert_non_null(kept);
    assert_int_equal(the_job(*id)->n[TASK_DONE], 9);
    return kept;
}

static void a_straggler_starts_a_second_time_and_the_first_to_be_done_counts(void **state)
{
    for (int faster = 0; faster < 2; faster++) {
        struct node *slow, *n;
        uint64_t id;
        Sluice__Assign *first = all_but_one(&slow, &id);
        Sluice__Assign *second = assigned_within(5, &n);

        (void)state;
        assert_non_null(second);
        assert_ptr_not_equal(n, slow);
        assert_int_equal(second->tf->id, 9);
        assert_int_equal(first->fence->attempt, 1);
        assert_int_equal(second->fence->attempt, 2);
        world_check();
        answer_built(n, second);
        assert_null(assigned_within(2, &(struct node *){ NULL }));       /* two at a time, no more */
        struct node *winner = faster ? n : slow, *loser = faster ? slow : n;
        Sluice__Assign *won = faster ? second : first, *lost = faster ? first : second;
        answer_done(winner, won, false);
        world_turn();
        assert_int_equal(world_sent(loser->session, &sluice__cancel__descriptor), 1);
        assert_int_equal(the_job(id)->n[TASK_DONE], 10);
        assert_string_equal(the_job(id)->task[9].node, winner->name);
        assert_int_equal(the_job(id)->task[9].attempt, won->fence->attempt);
        answer_done(loser, lost, false);                                 /* too late */
        world_turn();
        assert_int_equal(the_job(id)->n[TASK_DONE], 10);
        world_pass(0.2);
        assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
        tries_are(id, 9, faster ? "1 failed Superseded, 2 done Done" : "1 done Done, 2 failed Superseded");
        world_check();
        world_forget_sent(n1->session);
        world_forget_sent(n2->session);
        FREE(first);
        FREE(second);
    }
}

static void of_two_tries_that_fail_the_job_hears_once(void **state)
{
    struct node *slow, *n;
    uint64_t id;
    Sluice__Assign *first = all_but_one(&slow, &id), *second = assigned_within(5, &n), *third;

    (void)state;
    assert_non_null(second);
    answer_failed(slow, first, "TimedOut");              /* the other goes on */
    world_turn();
    world_check();
    assert_int_equal(the_job(id)->n[TASK_RUNNING], 1);
    world_disconnect(n);
    flow_worker_lost(n, "as the test wants it");         /* and that one, too */
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_WAITING], 1);
    assert_int_equal(the_job(id)->work.retried, 1);
    struct idset forget = { 0 };
    world_connect(n, NULL, 0, &forget);
    third = assigned_within(5, &n);
    assert_non_null(third);
    assert_int_equal(third->fence->attempt, 3);          /* never a number that was used */
    answer_done(n, third, false);
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_DONE], 10);
    world_check();
    FREE(first);
    FREE(second);
    FREE(third);
}

static void a_job_with_two_tries_under_way_can_be_cancelled_and_restarted(void **state)
{
    struct node *slow, *n;
    uint64_t id;
    Sluice__Assign *first = all_but_one(&slow, &id), *second = assigned_within(5, &n);
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;

    (void)state;
    assert_non_null(second);
    m.has_id = true;
    m.id = id;
    job_cancel(client, 8, &m);
    world_turn();
    assert_int_equal(world_sent(slow->session, &sluice__cancel__descriptor), 1);
    assert_int_equal(world_sent(n->session, &sluice__cancel__descriptor), 1);
    assert_int_equal(the_job(id)->n[TASK_CANCELLED], 1);
    world_check();
    restart();
    assert_int_equal(the_job(id)->n[TASK_CANCELLED], 1);
    FREE(first);
    FREE(second);
}

/* As the list of jobs says it. */
static void why_is(uint64_t id, const char *wanted)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;

    q.has_id = true;
    q.id = id;
    job_list(client, 9, &q);
    Sluice__Jobs *jobs = TAKE(client, sluice__jobs);
    assert_non_null(jobs);
    assert_int_equal(jobs->n_jobs, 1);
    assert_non_null(jobs->jobs[0]->why);
    assert_string_equal(jobs->jobs[0]->why, wanted);
    FREE(jobs);
}

/* Each that holds no more says why: while it reads as many as it may, and when its buffer is full. */
static void a_job_says_what_keeps_the_nodes_from_taking_more(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 60 }, .n = 1 };
    struct node *n;
    Sluice__Assign *a;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 10; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n)))
            FREE(a);
    }
    why_is(id, "ReadingFull");
}

static void what_a_node_holds_is_bounded(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 60 }, .n = 1 };
    struct node *n;
    Sluice__Assign *a;
    unsigned got = 0;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 40; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);                          /* there would be room for hundreds */
            FREE(a);
            got++;
        }
    }
    /* one device each: two beside those that may be read at a time */
    assert_int_equal(got, 2 * (2 + world.d.conf->worker.building_limit));
    why_is(id, "PrefetchFull");                          /* and no full buffer, which somebody would then enlarge */
}

/* A foreign file has the final name: what was accepted has no result, so it is not done; also after a restart, and of a job that is over. */
static void what_cannot_be_published_fails(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 3 }, .n = 1 };
    Sluice__Assign *a[3];
    struct node *n[3];

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 3; i++) {
        a[i] = assigned_somewhere(&n[i]);
        assert_non_null(a[i]);
        answer_built(n[i], a[i]);
        answer_done(n[i], a[i], true);
        world_turn();
    }
    answer_unpublished(n[0], a[0], "OutputExists", "x.0.digits is there already and is no result of this TF");
    answer_unpublished(n[0], a[0], "OutputExists", "said twice");
    world_turn();
    struct job *j = the_job(id);
    assert_int_equal(j->n[TASK_DONE], 2);
    assert_int_equal(j->n[TASK_FAILED], 1);
    assert_int_equal(tally_sum(j->work.failures), 1);
    assert_string_equal(j->task[a[0]->tf->id].code, "OutputExists");
    world_check();
    answer_published(n[1], a[1]);
    world_turn();
    for (int i = 0; i < 250 && !the_job(id)->stored_over; i++)
        world_pass(0.05);                                /* the third one's node does not come back in time */
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    world_restart();
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    world_turn();
    answer_unpublished(n[2], a[2], "OutputFailed", "neither its files nor published ones are there");
    world_turn();
    assert_int_equal(job_find(world.d.jobs, id)->n[TASK_DONE], 1);
    restart();
    j = the_job(id);
    assert_int_equal(j->n[TASK_DONE], 1);
    assert_int_equal(j->n[TASK_FAILED], 2);
    assert_int_equal(j->work.records, 0);
    assert_string_equal(j->task[a[2]->tf->id].code, "OutputFailed");
    assert_string_equal(j->task[a[2]->tf->id].text, "neither its files nor published ones are there");
    for (int i = 0; i < 3; i++)
        FREE(a[i]);
}

static void answer_done_by_cpu(struct node *n, const Sluice__Assign *a)
{
    Sluice__Done m = SLUICE__DONE__INIT;
    Sluice__Output o = SLUICE__OUTPUT__INIT, *outputs = &o;
    Sluice__StageRan ran = SLUICE__STAGE_RAN__INIT, *stages = &ran;

    o.stage = ran.stage = "digits";
    ran.backend = "cpu";
    ran.fallback = "no device";
    m.tf = a->tf;
    m.fence = a->fence;
    m.outputs = &outputs;
    m.stages = &stages;
    m.n_outputs = m.n_stages = 1;
    flow_done(n->session, 0, &m);
}

/* Totals of stages are those of TFs that are done: one that is done a second time, as its first result was lost, is in them once; one that has failed, never. */
static void stages_of_a_lost_result_are_not_counted(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .attempts = 2 };
    struct node *n;
    char *totals;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (unsigned i = 0; i < 4; i++) {                   /* the first TF: lost, published; the other one: lost, lost */
        Sluice__Assign *a = assigned_within(10, &n);
        assert_non_null(a);
        answer_built(n, a);
        answer_done_by_cpu(n, a);
        world_turn();
        if (a->tf->id == 0 && a->fence->attempt == 2)
            answer_published(n, a);
        else
            answer_unpublished(n, a, "OutputFailed", "it is not there any more");
        FREE(a);
        world_turn();
    }
    for (int i = 0; i < 100 && !the_job(id)->ended; i++)
        world_pass(0.05);
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    assert_string_equal(totals = ran_totals_text(the_job(id)->ran), "digits=cpu 1 1!no device");
    free(totals);
    restart();
    assert_string_equal(totals = ran_totals_text(the_job(id)->ran), "digits=cpu 1 1!no device");
    free(totals);
}

/* The folder was moved, or somebody tidied up: the input is there, and the next try may find the folder again. After the last one it has failed, over a
 * restart too. */
static void what_was_lost_before_it_was_published_is_tried_again(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 3 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (unsigned i = 1; i <= 3; i++) {
        Sluice__Assign *a = assigned_within(10, &n);
        assert_non_null(a);
        assert_int_equal(a->fence->attempt, i);
        answer_built(n, a);
        answer_done(n, a, true);
        world_turn();
        if (i == 2)                                      /* accepted before, and told after a start */
            restart();
        world_turn();
        assert_int_equal(the_job(id)->n[TASK_DONE], 1);
        answer_unpublished(n, a, "OutputFailed", "x.0.digits, which was delivered, is not there any more");
        world_turn();
        world_check();
        assert_int_equal(the_job(id)->n[TASK_DONE], 0);
        assert_int_equal(the_job(id)->n[TASK_WAITING], i < 3);
        FREE(a);
    }
    for (int i = 0; i < 100 && !the_job(id)->ended; i++)
        world_pass(0.05);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_FAILED);
    assert_int_equal(the_job(id)->work.retried, 2);
    assert_string_equal(the_job(id)->task[0].code, "OutputFailed");
    tries_are(id, 0, "1 failed OutputFailed, 2 failed OutputFailed, 3 failed OutputFailed");
}

/* The next Verdict on a result of another node that n gets, within s; NULL: none. */
static Sluice__Verdict *asked_for_another(struct node *n, double s)
{
    Sluice__Verdict *v = NULL;

    for (int i = 0; i < s / 0.05 && v == NULL; i++) {
        world_pass(0.05);
        v = TAKE(n->session, sluice__verdict);
    }
    assert_true(v == NULL || (v->accepted && v->for_another));
    return v;
}

/* One TF, accepted from n1, which goes before it has published; n2 can publish for others. */
static uint64_t accepted_at_a_node_that_goes(unsigned attempts, Sluice__Assign **a)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = attempts };

    world_disconnect(n2);
    uint64_t id = submit(&w, NULL);
    *a = assigned_to(n1, 5);
    assert_non_null(*a);
    answer_built(n1, *a);
    answer_done(n1, *a, true);
    world_turn();
    Sluice__Verdict *v = TAKE(n1->session, sluice__verdict);
    assert_true(v->accepted && !v->has_for_another);
    FREE(v);
    world_connect(n2, NULL, 0, NULL);
    n2->registered->has_publishes_for_others = n2->registered->publishes_for_others = true;
    world_disconnect(n1);
    flow_worker_lost(n1, "its connection was closed");
    world_turn();
    assert_null(TAKE(n2->session, sluice__assign));
    return id;
}

/* The worker of an accepted result never returns: who sees the folder publishes it, and nothing is left. */
static void what_its_worker_does_not_publish_another_one_does(void **state)
{
    Sluice__Assign *a;
    Sluice__Verdict *v;

    (void)state;
    uint64_t id = accepted_at_a_node_that_goes(2, &a);
    n2->registered->publishes_for_others = false;        /* an older worker would remove what it cannot publish */
    assert_null(asked_for_another(n2, 8));
    n2->registered->publishes_for_others = true;
    assert_non_null(v = asked_for_another(n2, 65));
    assert_int_equal(v->tf->id, 0);
    assert_int_equal(v->fence->attempt, 1);
    assert_string_equal(v->stem, "x.0");
    assert_string_equal(v->output, the_job(id)->work.output);
    FREE(v);
    answer_unpublished(n2, a, "OutputFailed", "it is not there");        /* it lies on n1's own disk, perhaps */
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(the_job(id)->work.records, 1);
    assert_int_equal(tally_sum(the_job(id)->work.failures), 0);
    assert_null(asked_for_another(n2, 50));              /* there is nobody else; each again after a while, also after a restart */
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);   /* by its totals; people are told what is missing */
    assert_string_equal(job_why(the_job(id)), "Unpublished");
    why_is(id, "Unpublished");
    assert_non_null(v = asked_for_another(n2, 20));
    FREE(v);
    world_restart();
    client = world_peer("client");
    world_connect(n2, NULL, 0, NULL);
    n2->registered->has_publishes_for_others = n2->registered->publishes_for_others = true;
    assert_null(asked_for_another(n2, 2));               /* its worker has time to come back */
    assert_non_null(v = asked_for_another(n2, 8));
    FREE(v);
    answer_published(n2, a);
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(the_job(id)->work.records, 0);
    assert_null(job_why(the_job(id)));
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    world_connect(n1, NULL, 0, NULL);
    world_turn();
    assert_null(TAKE(n1->session, sluice__verdict));
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
    assert_int_equal(the_job(id)->work.records, 0);
    FREE(a);
}

/* It comes back while another one is asked: it does it itself, and what the other one says then changes nothing. */
static void a_worker_that_comes_back_publishes_itself(void **state)
{
    Sluice__Assign *a;
    Sluice__Verdict *v;

    (void)state;
    uint64_t id = accepted_at_a_node_that_goes(2, &a);
    assert_non_null(v = asked_for_another(n2, 8));
    FREE(v);
    world_connect(n1, NULL, 0, NULL);
    world_turn();
    assert_non_null(v = TAKE(n1->session, sluice__verdict));
    assert_false(v->has_for_another && v->for_another);
    FREE(v);
    answer_unpublished(n2, a, "OutputFailed", "it is not there");
    answer_published(n1, a);
    answer_published(n2, a);
    world_turn();
    world_check();
    assert_null(asked_for_another(n2, 70));
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    assert_int_equal(the_job(id)->work.records, 0);
    FREE(a);
}

/* A node that is retired will never publish: what no other one finds is tried again while the job is on, and has failed when it is over. */
static void the_result_of_a_retired_node_that_nobody_finds_is_lost(void **state)
{
    Sluice__Assign *a, *b;
    Sluice__Verdict *v;

    (void)state;
    uint64_t id = accepted_at_a_node_that_goes(2, &a);
    n1->added = false;
    assert_non_null(v = asked_for_another(n2, 8));
    FREE(v);
    answer_unpublished(n2, a, "OutputFailed", "it is not there");
    FREE(a);
    assert_non_null(b = assigned_to(n2, 5));
    answer_built(n2, b);
    answer_done(n2, b, true);
    world_turn();
    answer_published(n2, b);
    FREE(b);
    for (int i = 0; i < 100 && !the_job(id)->stored_over; i++)
        world_pass(0.05);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    tries_are(id, 0, "1 failed OutputFailed, 2 done Done");

    n1->added = true;
    world_connect(n1, NULL, 0, NULL);
    id = accepted_at_a_node_that_goes(2, &a);
    for (int i = 0; i < 250 && !the_job(id)->stored_over; i++)
        world_pass(0.05);
    n1->added = false;
    assert_non_null(v = asked_for_another(n2, 80));
    FREE(v);
    answer_unpublished(n2, a, "OutputFailed", "it is not there");
    world_pass(3);
    world_turn();
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_FAILED);
    assert_string_equal(the_job(id)->task[0].code, "OutputFailed");
    assert_non_null(strstr(the_job(id)->task[0].text, "node n1, which is retired, has not published its result"));
    assert_int_equal(the_job(id)->work.records, 0);
    n1->added = true;
    world_connect(n1, NULL, 0, NULL);
    FREE(a);
}

/* His rights to the folder went for a while: that is no other thing after the result was accepted than before, and what could not be removed meanwhile goes
 * when the job is over. */
static void what_may_not_be_published_is_tried_again_and_swept(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 3 };
    Sluice__Published m = SLUICE__PUBLISHED__INIT;
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    answer_unpublished(n, a, "OutputDenied", "/tmp/out: Permission denied");
    FREE(a);
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_FAILED], 0);
    assert_true(the_job(id)->unswept);
    a = assigned_within(10, &n);
    assert_non_null(a);
    assert_int_equal(a->fence->attempt, 2);
    answer_failed(n, a, "OutputDenied");
    FREE(a);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
    tries_are(id, 0, "1 failed OutputDenied, 2 failed OutputDenied, 3 done Done");

    id = submit(&w, NULL);                               /* it has its final name, and the try's name as well */
    world_turn();
    a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_done(n, a, true);
    world_turn();
    assert_false(the_job(id)->unswept);
    m.tf = a->tf;
    m.fence = a->fence;
    m.has_left = m.left = true;
    flow_published(n->session, 0, &m);
    world_turn();
    world_pass(0.1);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_DONE);
    assert_true(the_job(id)->unswept);
    restart();
    assert_true(the_job(id)->unswept);
    FREE(a);
}

/* No other node is asked for what no node can do, and none is blamed. */
static void a_name_that_is_taken_is_tried_once(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    answer_failed(n, a, "OutputExists");
    FREE(a);
    assert_true(flow_cooling_s(n) == 0);
    finish_all();
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_FAILED);
    assert_string_equal(the_job(id)->task[0].code, "OutputExists");
    assert_int_equal(the_job(id)->task[0].attempt, 1);
}

/* A worker that comes back as another one has died, perhaps of what it had complete; one that is out of contact has not, nor of what it was still reading. */
static void what_kills_workers_is_set_aside(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 50 };
    struct node *at;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 5; i++) {
        Sluice__Assign *a = assigned_within(40, &at);
        assert_non_null(a);
        if (i != 1)
            answer_built(at, a);
        world_turn();
        world_disconnect(at);
        if (i == 2)
            flow_worker_lost(at, "no contact");
        else
            flow_worker_replaced(at, "another incarnation of its worker registered");
        world_connect(at, NULL, 0, NULL);
        world_turn();
        world_check();
        FREE(a);
    }
    world_pass(0.2);
    struct job *j = the_job(id);
    assert_int_equal(j->n[TASK_FAILED], 1);
    assert_true(j->task[0].aside);
    assert_int_equal(j->task[0].attempt, 5);
    assert_non_null(strstr(j->task[0].text, "3 processes died of it, on n"));
}

/* What only waits in the buffer of a worker that dies is none the worse for it. */
static void a_worker_dies_of_what_its_devices_had(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 8 }, .n = 1, .attempts = 50 };
    Sluice__Assign *a;
    struct node *at;
    unsigned on_n1 = 0;

    (void)state;
    world.conf->limits.deaths = 1;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 40; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&at))) {
            on_n1 += at == n1;
            answer_built(at, a);
            world_turn();
            FREE(a);
        }
    }
    assert_true(on_n1 >= 2);
    world_disconnect(n1);
    flow_worker_replaced(n1, "another incarnation of its worker registered");
    world_pass(0.2);
    world_check();
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);          /* it has one device */
    assert_true(the_job(id)->task[0].aside || the_job(id)->task[1].aside);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(B21_no_task_waits_for_a_worker_that_is_gone),
        WITH_WORLD(every_tf_of_every_file_is_done_once_under_a_name_of_its_own),
        WITH_WORLD(what_kills_workers_is_set_aside),
        WITH_WORLD(a_worker_dies_of_what_its_devices_had),
        WITH_WORLD(what_cannot_be_published_fails),
        WITH_WORLD(what_may_not_be_published_is_tried_again_and_swept),
        WITH_WORLD(what_its_worker_does_not_publish_another_one_does),
        WITH_WORLD(a_worker_that_comes_back_publishes_itself),
        WITH_WORLD(the_result_of_a_retired_node_that_nobody_finds_is_lost),
        WITH_WORLD(stages_of_a_lost_result_are_not_counted),
        WITH_WORLD(what_was_lost_before_it_was_published_is_tried_again),
        WITH_WORLD(a_name_that_is_taken_is_tried_once),
        WITH_WORLD(a_failed_attempt_is_tried_elsewhere_after_a_pause),
        WITH_WORLD(B16_refusals_in_a_row_make_the_pause_longer),
        WITH_WORLD(priority_then_fair_by_user_then_the_oldest),
        WITH_WORLD(a_higher_priority_goes_first),
        WITH_WORLD(what_kills_processes_is_set_aside),
        WITH_WORLD(a_straggler_starts_a_second_time_and_the_first_to_be_done_counts),
        WITH_WORLD(of_two_tries_that_fail_the_job_hears_once),
        WITH_WORLD(a_job_with_two_tries_under_way_can_be_cancelled_and_restarted),
        WITH_WORLD(a_job_says_what_keeps_the_nodes_from_taking_more),
        WITH_WORLD(what_a_node_holds_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
