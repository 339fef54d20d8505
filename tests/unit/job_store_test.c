/* job_store_test.c - what outlives a restart: tries, pauses, totals, what is pruned; tasks that are read while all else is served; lists and crash rows */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job_fixture.h"

static uint64_t rows_in(const char *table)
{
    char path[100], ask[80];
    sqlite3 *sql;
    sqlite3_stmt *s;

    snprintf(path, sizeof(path), "%s/state.db", world.dir);
    snprintf(ask, sizeof(ask), "SELECT count(*) FROM %s", table);
    assert_int_equal(sqlite3_open_v2(path, &sql, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(sql, ask, -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    uint64_t n = (uint64_t)sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(sql);
    return n;
}

/* B39: details of jobs that are over go, by number and by age, the jobs and their keys stay; a start reads no more for them. */
static void B39_details_of_jobs_are_pruned_by_number_and_age(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 8 }, .n = 1, .key = "first" };
    Sluice__GetTasks q = SLUICE__GET_TASKS__INIT;
    bool existed;

    (void)state;
    uint64_t first = submit(&w, NULL);
    finish_all();
    w.key = NULL;
    uint64_t second = submit(&w, NULL), third = submit(&w, NULL);
    finish_all();
    assert_int_equal(rows_in("task"), 24);
    world.conf->limits.job_tfs = 18;                     /* two jobs with a file of eight each */
    world_pass(61);
    world_turn();
    world_pass(0.1);
    world_turn();
    assert_int_equal(rows_in("task"), 16);
    assert_int_equal(rows_in("job_file"), 2);
    assert_int_equal(rows_in("job"), 3);
    assert_int_equal(the_job(first)->pruned, JOB_PRUNED);
    q.has_job = true;
    q.job = first;
    job_tasks(client, 9, &q);
    error_of(client, ERR_NOT_FOUND, "no longer kept");
    restart();
    assert_int_equal(the_job(first)->n[TASK_DONE], 8);
    assert_int_equal(the_job(first)->pruned, JOB_PRUNED);
    w.key = "first";
    w.there = true;
    assert_int_equal(submit(&w, &existed), first);
    assert_true(existed);
    world.conf->limits.job_age = 1e-9;
    world_pass(61);
    for (int i = 0; i < 4; i++) {
        world_turn();
        world_pass(0.1);
    }
    assert_int_equal(rows_in("task"), 0);
    assert_int_equal(rows_in("job_file"), 0);
    assert_int_equal(the_job(second)->n[TASK_DONE] + the_job(third)->n[TASK_DONE], 16);
    world.conf->limits.job_tfs = 5000000;
    world.conf->limits.job_age = 7776000;
}

static void tries_and_pauses_outlive_a_restart(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 4 };
    struct node *n, *at;

    (void)state;
    uint64_t id = submit(&w, NULL);
    for (unsigned try = 1; try <= 4; try++) {
        Sluice__Assign *a = assigned_within(try == 1 ? 0.1 : 5, &at);
        assert_non_null(a);
        assert_int_equal(a->fence->attempt, try);
        answer_failed(at, a, "TimedOut");
        FREE(a);
        world_turn();
        restart();
        if (try < 4) {
            /* 0.25, 0.5, 1 s since the failure, less what of it the clock on the wall gives to the restart itself */
            assert_null(assigned_within(0.15 * (1 << (try - 1)), &n));
            assert_int_equal(the_job(id)->n[TASK_WAITING], 1);
        }
    }
    world_pass(0.2);
    assert_int_equal(the_job(id)->state, SLUICE__JOB_STATE__JOB_FAILED);
    assert_string_equal(the_job(id)->task[0].code, "TimedOut");
}

/* The disk of the state is full for a while: what is stored then is what was true when it was put, also of a TF that died a second time since. */
static void the_nodes_it_died_on_are_stored_as_they_were(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 50 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    Sluice__Assign *a = assigned_within(1, &n);
    const char *first = n->name;
    world.writable = false;
    answer_built(n, a);
    answer_failed(n, a, "Crashed");
    FREE(a);
    a = assigned_within(5, &n);
    answer_built(n, a);
    answer_failed(n, a, "Crashed");
    FREE(a);
    world.writable = true;
    world_commit_batch();                                /* the first of two rows, then we die */
    world_restart();
    const struct tf *t = tf_find(&the_job(id)->work, 0);
    assert_non_null(t);
    assert_int_equal(t->n_deaths, 1);
    assert_string_equal(t->deaths, first);
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
}

static void a_restart_resumes_a_job(void **state)
{
    struct wish w = { .path = { "/data/x.tf", "/data/y.tf" }, .tfs = { 6, 6 }, .n = 2 };
    Sluice__Assign *a[4];
    struct node *at[4], *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 4; i++) {
        a[i] = assigned_somewhere(&at[i]);
        assert_non_null(a[i]);
        answer_built(at[i], a[i]);
    }
    answer_done(at[0], a[0], true);                      /* accepted, not yet published */
    world_turn();
    answer_done(at[1], a[1], true);                      /* not on disk */
    struct idset again = { 0 };
    world_restart();
    struct job *j = the_job(id);
    assert_int_equal(j->n[TASK_DONE], 1);
    assert_int_equal(j->n[TASK_WAITING], 11);
    assert_int_equal(j->work.records, 1);
    world_check();
    Sluice__Held held[4], mine[4];
    size_t k = 0;
    for (int i = 0; i < 4; i++) {
        sluice__held__init(&held[i]);
        held[i].tf = a[i]->tf;
        held[i].fence = a[i]->fence;
        held[i].has_phase = held[i].has_bytes = true;
        held[i].phase = i == 0 ? SLUICE__PHASE__ACCEPTED : i == 1 ? SLUICE__PHASE__REPORTED : SLUICE__PHASE__PROCESSING;
        held[i].bytes = MB;
    }
    for (int m = 0; m < 2; m++) {
        struct idset forget = { 0 };
        k = 0;
        for (int i = 0; i < 4; i++) {
            if (at[i] == (m ? n2 : n1))
                mine[k++] = held[i];
        }
        world_connect(m ? n2 : n1, mine, k, &forget);
        assert_int_equal(forget.count, 0);
        idset_free(&forget);
    }
    world_turn();
    world_check();
    Sluice__Verdict *v = TAKE(at[0]->session, sluice__verdict);
    assert_non_null(v);
    assert_true(v->accepted && v->tf->id == a[0]->tf->id);
    FREE(v);
    answer_published(at[0], a[0]);
    for (int i = 1; i < 4; i++) {
        answer_done(at[i], a[i], true);
        idset_add(&again, a[i]->tf->id);
        world_turn();
        answer_published(at[i], a[i]);
    }
    idset_add(&again, a[0]->tf->id);
    for (int i = 0; i < 400 && j->n[TASK_DONE] < 12; i++) {
        Sluice__Assign *b;
        world_pass(0.05);
        while ((b = assigned_somewhere(&n))) {
            assert_true(idset_add(&again, b->tf->id));   /* none is given out that was at work or done */
            answer_built(n, b);
            answer_done(n, b, true);
            world_turn();
            answer_published(n, b);
            FREE(b);
        }
    }
    world_turn();
    world_pass(0.1);
    assert_int_equal(j->n[TASK_DONE], 12);
    assert_int_equal(j->state, SLUICE__JOB_STATE__JOB_DONE);
    for (int i = 0; i < 4; i++)
        FREE(a[i]);
    idset_free(&again);
}

static void tasks_are_listed_with_where_and_why(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 3 }, .n = 1 };
    Sluice__GetTasks m = SLUICE__GET_TASKS__INIT;
    char *failed = "failed";
    struct node *n;

    (void)state;
    m.has_job = true;
    m.job = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 2; i++) {                        /* bad input: two nodes, then it is failed and blames none */
        Sluice__Assign *a = assigned_somewhere(&n);
        while (a && a->tf->id != 0) {
            answer_done(n, a, false);
            FREE(a);
            world_pass(0.3);
            a = assigned_somewhere(&n);
        }
        assert_non_null(a);
        answer_failed(n, a, "BadInput");
        FREE(a);
        world_pass(0.4);
    }
    finish_all();
    m.n_states = 1;
    m.states = &failed;
    job_tasks(client, 1, &m);
    Sluice__Tasks *t = TAKE(client, sluice__tasks);
    assert_non_null(t);
    assert_int_equal(t->n_tasks, 1);
    assert_string_equal(t->tasks[0]->id, "1_0");
    assert_string_equal(t->tasks[0]->code, "BadInput");
    assert_string_equal(t->tasks[0]->text, "as the test wants it");
    assert_string_equal(t->tasks[0]->input, "/data/x.tf:0");
    assert_int_equal(t->tasks[0]->attempt, 2);
    FREE(t);
}

static void crashes_are_kept_and_purged(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 2 };
    Sluice__Failed m = SLUICE__FAILED__INIT;
    Sluice__GetCrashes g = SLUICE__GET_CRASHES__INIT;
    Sluice__PurgeCrashes p = SLUICE__PURGE_CRASHES__INIT;
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    m.tf = a->tf;
    m.fence = a->fence;
    m.word = "Crashed";
    m.text = "signal 11 in stage decode";
    m.crash = "/crash/1";
    flow_failed(n->session, 0, &m);
    world_turn();
    for (int round = 0; round < 2; round++) {
        crash_list(client, 1, &g);
        Sluice__Crashes *c = TAKE(client, sluice__crashes);
        assert_int_equal(c->n_crashes, 1);
        assert_int_equal(c->crashes[0]->job, id);
        assert_int_equal(c->crashes[0]->attempt, 1);
        assert_string_equal(c->crashes[0]->folder, "/crash/1");
        assert_int_equal(c->crashes[0]->bytes, MB);
        FREE(c);
        world_restart();
        client = world_peer("client");
    }
    p.has_all = p.all = true;
    crash_purge(client, 2, &p);
    assert_int_equal(world_sent(client, &sluice__ok__descriptor), 0);
    world_turn();
    assert_int_equal(world_sent(client, &sluice__ok__descriptor), 1);
    world_restart();
    client = world_peer("client");
    crash_list(client, 1, &g);
    Sluice__Crashes *c = TAKE(client, sluice__crashes);
    assert_int_equal(c->n_crashes, 0);
    FREE(c);
    FREE(a);
}

/* How often tries failed and why is known after a restart, too. */
static void failures_by_code_outlive_restarts(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .attempts = 5 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 2; i++) {
        Sluice__Assign *a = assigned_somewhere(&n);
        answer_built(n, a);
        answer_failed(n, a, i ? "Crashed" : "TimedOut");
        FREE(a);
    }
    world_turn();
    for (int i = 0; i < 2; i++) {                        /* of one that is on, of one that is over */
        restart();
        char *text = tally_text(job_find(world.d.jobs, id)->work.failures);
        assert_string_equal(text, "TimedOut 1,Crashed 1");
        free(text);
        finish_all();
    }
}

/* ---- tasks that are read while all else is served ---- */

static void busy(void)
{
    Sluice__Error *e = TAKE(client, sluice__error);

    assert_non_null(e);
    assert_string_equal(e->word, "Busy");
    assert_non_null(strstr(e->text, "its tasks are being read"));
    FREE(e);
}

/* Until a job's tasks are read: what workers hold of it is theirs, what they say waits, nothing of it changes; then all of it counts, once. */
static void B39_workers_and_people_come_before_the_tasks_are_read(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 8 }, .n = 1 };
    Sluice__Assign *a[4];
    struct node *at[4];
    Sluice__Held held[4], mine[4];

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    for (int i = 0; i < 4; i++) {
        a[i] = assigned_somewhere(&at[i]);
        assert_non_null(a[i]);
        answer_built(at[i], a[i]);
    }
    world_turn();
    answer_done(at[0], a[0], true);                      /* accepted, to be published */
    world_turn();
    world.slow_helper = true;
    world_restart();
    client = world_peer("client");
    struct job *j = job_find(world.d.jobs, id);
    assert_true(j->loading);
    assert_int_equal(j->n[TASK_DONE], 1);
    assert_int_equal(j->n[TASK_WAITING], 7);
    world_check();
    for (int i = 0; i < 4; i++) {
        sluice__held__init(&held[i]);
        held[i].tf = a[i]->tf;
        held[i].fence = a[i]->fence;
        held[i].has_phase = held[i].has_bytes = true;
        held[i].phase = i == 0 ? SLUICE__PHASE__ACCEPTED : SLUICE__PHASE__PROCESSING;
        held[i].bytes = MB;
    }
    for (int m = 0; m < 2; m++) {
        struct idset forget = { 0 };
        size_t k = 0;
        for (int i = 0; i < 3; i++) {                    /* the last one's worker lost it */
            if (at[i] == (m ? n2 : n1))
                mine[k++] = held[i];
        }
        world_connect(m ? n2 : n1, mine, k, &forget);
        assert_int_equal(forget.count, 0);
        assert_int_equal((m ? n2 : n1)->n_tfs, k);       /* a node that holds something is not empty */
        idset_free(&forget);
    }
    answer_done(at[1], a[1], true);
    answer_published(at[0], a[0]);
    Sluice__CancelJob c = SLUICE__CANCEL_JOB__INIT;
    Sluice__GetTasks t = SLUICE__GET_TASKS__INIT;
    c.has_id = t.has_job = true;
    c.id = t.job = id;
    job_cancel(client, 7, &c);
    busy();
    job_tasks(client, 7, &t);
    busy();
    for (int i = 0; i < 40; i++)
        world_pass(0.05);
    assert_int_equal(j->n[TASK_DONE], 1);
    assert_null(TAKE(n1->session, sluice__assign));
    assert_null(TAKE(n2->session, sluice__assign));
    Sluice__Job **list;
    size_t n_list;
    job_fill(&world.d, false, id, &list, &n_list);
    assert_int_equal(n_list, 1);
    assert_string_equal(list[0]->why, "Loading");
    job_fill_free(list, n_list);
    assert_true(world_help());
    assert_false(j->loading);
    world_turn();
    world_check();
    assert_int_equal(j->n[TASK_DONE], 2);                /* what was said meanwhile */
    assert_int_equal(j->work.records, 1);                /* published is the first, not the second */
    for (int i = 1; i < 2; i++)
        answer_published(at[i], a[i]);
    answer_done(at[2], a[2], true);
    world_turn();
    answer_published(at[2], a[2]);
    world.slow_helper = false;
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 8);
    assert_int_equal(j->task[a[3]->tf->id].attempt, 2);
    assert_int_equal(j->task[a[1]->tf->id].attempt, 1);
    for (int i = 0; i < 4; i++)
        FREE(a[i]);
}

/* A worker that goes again before the tasks are read, one with a TF of a job that is cancelled, and results of a job that is over. */
static void what_a_worker_said_before_the_tasks_are_read_goes_with_it(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    struct node *n;

    (void)state;
    uint64_t id = submit(&w, NULL);
    world_turn();
    Sluice__Assign *a = assigned_somewhere(&n);
    answer_built(n, a);
    world_turn();
    world.slow_helper = true;
    world_restart();
    client = world_peer("client");
    Sluice__Held held = SLUICE__HELD__INIT;
    held.tf = a->tf;
    held.fence = a->fence;
    held.has_phase = held.has_bytes = true;
    held.phase = SLUICE__PHASE__PROCESSING;
    held.bytes = MB;
    world_connect(n, &held, 1, NULL);
    answer_done(n, a, true);
    world_disconnect(n);
    flow_worker_lost(n, "no contact");
    assert_int_equal(n->n_tfs, 0);
    assert_true(world_help());
    world.slow_helper = false;
    world_turn();
    assert_int_equal(the_job(id)->n[TASK_DONE], 0);
    world_check();
    FREE(a);
    world_connect(n, NULL, 0, NULL);
    world_connect(n == n1 ? n2 : n1, NULL, 0, NULL);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 1);
}

/* ---- what a job left ---- */

/* What that node is asked about a folder, within a second; NULL: nothing. */
static Sluice__CheckOutput *asked(struct node *n)
{
    Sluice__CheckOutput *m = NULL;

    for (int i = 0; i < 20 && (m = TAKE(n->session, sluice__check_output)) == NULL; i++)
        world_pass(0.05);
    return m;
}

static void answer_asked_with(struct node *n, bool own_disk, uint32_t code)
{
    Sluice__OutputChecked m = SLUICE__OUTPUT_CHECKED__INIT;

    m.has_code = m.has_own_disk = true;
    m.code = code;
    m.own_disk = own_disk;
    for (uint32_t id = 1; id < 1000; id++)               /* one that was not asked is passed over */
        outcheck_answer(n->session, id, &m);
    world_turn();
}

static void answer_asked(struct node *n)
{
    answer_asked_with(n, false, 0);
}

static void can_sweep(struct node *n)
{
    n->registered->has_checks_output = n->registered->checks_output = n->registered->has_sweeps_output = n->registered->sweeps_output = true;
}

/* The folder lies on each node's own disk: each sweeps its own, who was away when it comes back; one that is retired is not waited for. */
static void what_lies_on_a_node_s_own_disk_that_node_removes(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    Sluice__CheckOutput *x;
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;

    (void)state;
    for (int retired = 0; retired < 2; retired++) {
        m.has_id = true;
        world_disconnect(n2);
        m.id = submit(&w, NULL);
        Sluice__Assign *a = assigned_to(n1, 5);
        answer_built(n1, a);
        FREE(a);
        world_disconnect(n1);
        flow_worker_lost(n1, "its connection was closed");
        job_cancel(client, 6, &m);
        world_connect(n2, NULL, 0, NULL);
        can_sweep(n2);
        world_turn();
        assert_non_null(x = asked(n2));
        FREE(x);
        answer_asked_with(n2, true, 0);
        world_turn();
        assert_null(asked(n2));
        assert_true(the_job(m.id)->unswept);
        if (retired) {
            n1->added = false;
            world_pass(11);
            assert_false(the_job(m.id)->unswept);
            n1->added = true;
            world_connect(n1, NULL, 0, NULL);
            break;
        }
        world_restart();                                 /* who was asked already is forgotten: all are asked again */
        client = world_peer("client");
        world_connect(n1, NULL, 0, NULL);
        can_sweep(n1);
        assert_non_null(x = asked(n1));
        assert_int_equal(x->sweep, m.id);
        FREE(x);
        answer_asked_with(n1, true, 0);
        assert_null(asked(n1));
        assert_true(the_job(m.id)->unswept);
        world_connect(n2, NULL, 0, NULL);
        can_sweep(n2);
        world_pass(10);
        x = TAKE(n2->session, sluice__check_output);
        assert_non_null(x);
        FREE(x);
        answer_asked_with(n2, true, ERR_FAILED);         /* not now: again a little later */
        world_pass(1);
        assert_null(TAKE(n2->session, sluice__check_output));
        world_pass(10);
        assert_non_null(x = TAKE(n2->session, sluice__check_output));
        FREE(x);
        answer_asked_with(n2, true, 0);
        world_turn();
        assert_false(the_job(m.id)->unswept);
        world_restart();
        client = world_peer("client");
        world_connect(n1, NULL, 0, NULL);
        world_connect(n2, NULL, 0, NULL);
        assert_false(the_job(m.id)->unswept);
    }
}

/* Its worker is killed with half a result on the disk, and nothing of the job comes any more: somebody else removes it, once nothing of it is on. */
static void what_a_job_that_is_over_left_half_is_removed(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;
    Sluice__RerunJob again = SLUICE__RERUN_JOB__INIT;
    Sluice__CheckOutput *x;

    (void)state;
    m.has_id = again.has_id = true;
    m.id = again.id = submit(&w, NULL);
    finish_all();
    assert_false(the_job(m.id)->unswept);                /* every try came to its end: nobody looks */

    m.id = again.id = submit(&w, NULL);
    Sluice__Assign *a = assigned_to(n1, 5);
    answer_built(n1, a);
    FREE(a);
    world_disconnect(n1);
    flow_worker_lost(n1, "its connection was closed");
    job_cancel(client, 6, &m);
    world_turn();
    assert_int_equal(the_job(m.id)->state, SLUICE__JOB_STATE__JOB_CANCELLED);
    assert_true(the_job(m.id)->unswept);
    assert_null(asked(n2));                              /* an older worker cannot do it */

    world_restart();                                     /* nor is it forgotten */
    client = world_peer("client");
    world_connect(n2, NULL, 0, NULL);
    assert_true(the_job(m.id)->unswept);
    n2->registered->has_checks_output = n2->registered->checks_output = n2->registered->has_sweeps_output = n2->registered->sweeps_output = true;
    assert_non_null(x = asked(n2));
    assert_int_equal(x->sweep, m.id);
    assert_string_equal(x->output, the_job(m.id)->work.output);
    FREE(x);

    job_rerun(client, 7, &again);                        /* meanwhile no try of it begins: its files would go, too */
    world_pass(1);
    world_turn();
    assert_null(TAKE(n2->session, sluice__assign));
    answer_asked(n2);
    a = assigned_to(n2, 5);
    answer_built(n2, a);
    answer_done(n2, a, true);
    world_turn();
    answer_published(n2, a);
    FREE(a);
    world_connect(n1, NULL, 0, NULL);
    finish_all();
    assert_int_equal(the_job(m.id)->n[TASK_DONE], 2);
    assert_false(the_job(m.id)->unswept);
    assert_null(asked(n2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(B39_details_of_jobs_are_pruned_by_number_and_age),
        WITH_WORLD(failures_by_code_outlive_restarts),
        WITH_WORLD(B39_workers_and_people_come_before_the_tasks_are_read),
        WITH_WORLD(what_a_worker_said_before_the_tasks_are_read_goes_with_it),
        WITH_WORLD(tries_and_pauses_outlive_a_restart),
        WITH_WORLD(the_nodes_it_died_on_are_stored_as_they_were),
        WITH_WORLD(a_restart_resumes_a_job),
        WITH_WORLD(tasks_are_listed_with_where_and_why),
        WITH_WORLD(crashes_are_kept_and_purged),
        WITH_WORLD(what_lies_on_a_node_s_own_disk_that_node_removes),
        WITH_WORLD(what_a_job_that_is_over_left_half_is_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
