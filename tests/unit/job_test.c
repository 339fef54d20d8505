/* job_test.c - jobs: what is refused, tasks given out and tried again, cancelled, waited for, after a restart; crash rows */
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
#include <inttypes.h>
#include "clock.h"
#include "farm_double.h"
#include "mem.h"

#define MB (UINT64_C(1) << 20)

static struct session *client;
static struct node *n1, *n2;

static int open_world(void **state)
{
    (void)state;
    world_open();
    client = world_peer("client");
    n1 = world_node("n1", "mi50", POOL_ASYNC, 1000 * MB);
    n2 = world_node("n2", "mi100", POOL_ASYNC, 1000 * MB);
    return 0;
}

static int close_world(void **state)
{
    (void)state;
    world_check();
    world_close();
    return 0;
}

/* A job of files with so many TFs of 1 MB each; 0 TFs: a file that could not be read. */
struct wish { const char *path[8]; unsigned tfs[8]; unsigned n; const char *key, *output; unsigned attempts; char *class, *backends; bool hold, there; int priority; double straggler; const char *after; int64_t begin; };      /* there: its key has a job already */

static uint64_t submit(const struct wish *w, bool *existed)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file[8], *files[8];
    Sluice__Extent extent[64], *extents[64];
    unsigned at = 0;
    uint64_t id = 0;

    for (unsigned i = 0; i < w->n; i++) {
        sluice__input_file__init(&file[i]);
        files[i] = &file[i];
        file[i].path = (char *)w->path[i];
        file[i].tfs = &extents[at];
        file[i].n_tfs = w->tfs[i];
        file[i].text = w->tfs[i] ? NULL : "wrong magic at byte 0";
        for (unsigned k = 0; k < w->tfs[i]; k++, at++) {
            sluice__extent__init(&extent[at]);
            extents[at] = &extent[at];
            extent[at].has_offset = extent[at].has_size = true;
            extent[at].offset = k * MB;
            extent[at].size = MB;
        }
    }
    m.files = files;
    m.n_files = w->n;
    m.workflow = "decode";
    char own[40];                                        /* jobs that are on together have no names in common */
    static unsigned count;
    snprintf(own, sizeof(own), "/tmp/out-%u", ++count);
    m.output = (char *)(w->output ? w->output : own);
    m.key = (char *)w->key;
    m.backends = w->backends;
    m.has_attempts = w->attempts != 0;
    m.attempts = w->attempts;
    m.has_hold = m.hold = w->hold;
    m.has_straggler = w->straggler > 0;
    m.straggler = w->straggler;
    m.after = (char *)w->after;
    m.has_begin = w->begin != 0;
    m.begin = w->begin;
    m.has_priority = w->priority != 0;
    m.priority = w->priority;
    if (w->class) {
        m.classes = (char **)&w->class;
        m.n_classes = 1;
    }
    job_submit(client, 5, &m);
    assert_int_equal(world_sent(client, &sluice__submitted__descriptor), w->there);     /* not before it is on disk */
    world_turn();
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    if (s) {
        id = s->id;
        if (existed)
            *existed = s->existed;
    }
    FREE(s);
    return id;
}

/* One file whose TFs follow each other from `offset` on. */
static uint64_t submit_sizes(uint64_t offset, uint64_t *sizes, size_t n)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file = SLUICE__INPUT_FILE__INIT, *files = &file;
    uint64_t id = 0;

    file.path = "/a/x.tf";
    file.has_offset = true;
    file.offset = offset;
    file.sizes = sizes;
    file.n_sizes = n;
    m.files = &files;
    m.n_files = 1;
    m.workflow = "none";
    job_submit(client, 5, &m);
    world_turn();
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    if (s)
        id = s->id;
    FREE(s);
    return id;
}

static void error_of(uint32_t code, const char *text)
{
    Sluice__Error *e = TAKE(client, sluice__error);

    assert_non_null(e);
    assert_int_equal(e->code, code);
    if (strstr(e->text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, e->text);
    FREE(e);
}

static Sluice__Assign *assigned_somewhere(struct node **n)
{
    Sluice__Assign *a = TAKE(n1->session, sluice__assign);

    *n = n1;
    if (a)
        return a;
    *n = n2;
    return TAKE(n2->session, sluice__assign);
}

static void detailed(void *arg, struct job *j, const struct err *e)
{
    (void)arg;
    (void)e;
    assert_non_null(j);
}

static void answer_unpublished(struct node *n, const Sluice__Assign *a, const char *word, const char *text)
{
    Sluice__Published m = SLUICE__PUBLISHED__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    m.word = (char *)word;
    m.text = (char *)text;
    flow_published(n->session, 0, &m);
}

/* With its tasks, which are read again for one that was over at a restart. */
static struct job *the_job(uint64_t id)
{
    struct job *j = job_find(world.d.jobs, id);

    assert_non_null(j);
    if (j->ended && !j->pruned)
        job_detail(&world.d, id, detailed, NULL);
    return j;
}

static int waited(uint64_t id)
{
    Sluice__Wait m = SLUICE__WAIT__INIT;
    int code = -1;

    m.kind = "job";
    m.has_id = true;
    m.id = id;
    flow_wait(client, 11, &m);
    Sluice__Waited *w = TAKE(client, sluice__waited);
    if (w)
        code = (int)w->code;
    FREE(w);
    return code;
}

/* Everything that is given out is done, until nothing comes any more. */
static void finish_all(void)
{
    struct node *n;
    Sluice__Assign *a;

    for (int i = 0; i < 200; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);
            answer_done(n, a, true);
            world_turn();
            answer_published(n, a);
            FREE(a);
        }
    }
    world_turn();
}

static void a_job_is_checked_before_it_is_accepted(void **state)
{
    struct wish w = { .path = { "relative.tf" }, .tfs = { 1 }, .n = 1 };
    char *roots[] = { "/data" }, **before = world.conf->roots_input;

    (void)state;
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_USAGE, "absolute");
    w.path[0] = "/data/../etc/x.tf";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_USAGE, "..");
    w.path[0] = "/data/x.tf";
    w.output = "out";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_USAGE, "output");
    w.output = NULL;
    world.conf->roots_input = roots;
    world.conf->n_roots_input = 1;
    assert_int_equal(submit(&w, NULL), 1);
    w.path[0] = "/database/x.tf";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_PERMISSION, "roots");
    world.conf->roots_input = before;
    world.conf->n_roots_input = 0;
    w.n = 0;
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_USAGE, "1 to");
}

static void the_same_key_is_the_same_job(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .key = "night-7" };
    bool existed = true;

    (void)state;
    uint64_t id = submit(&w, &existed);
    assert_false(existed);
    w.there = true;
    assert_int_equal(submit(&w, &existed), id);
    assert_true(existed);
    finish_all();
    assert_int_equal(submit(&w, &existed), id);          /* over, and still the same */
    world_restart();
    client = world_peer("client");
    assert_int_equal(submit(&w, &existed), id);
    assert_true(existed);
    w.key = "night-8";
    w.there = false;
    assert_int_equal(submit(&w, &existed), id + 1);
}

static void restart(void)
{
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
}

/* Memory has the newest jobs that are over; the disk has all. */

static void a_key_of_a_job_that_memory_forgot_gives_that_job(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .key = "night-7" };
    Sluice__Submit only = SLUICE__SUBMIT__INIT;
    bool existed = true;

    (void)state;
    uint64_t id = submit(&w, &existed);
    finish_all();
    struct job *j = the_job(id);
    assert_true(j->stored_over);
    TAILQ_REMOVE(&world.d.jobs->over, j, entry);         /* as job_retire does once there are more than JOBS_KEPT */
    world.d.jobs->n_over--;
    job_destroy(j);
    assert_null(job_find(world.d.jobs, id));
    assert_int_equal(submit(&w, &existed), id);
    assert_true(existed);
    assert_true(TAILQ_EMPTY(&world.d.jobs->open));       /* the one that was made for the asking is gone */
    only.key = "night-7";
    only.has_key_only = only.key_only = true;
    job_submit(client, 5, &only);
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    assert_int_equal(s->id, id);
    FREE(s);
    only.key = "night-8";
    job_submit(client, 5, &only);
    error_of(ERR_NOT_FOUND, "night-8");
    client->peer.uid = 1001;                             /* of somebody else it says nothing */
    only.key = "night-7";
    job_submit(client, 5, &only);
    error_of(ERR_NOT_FOUND, "night-7");
    assert_int_not_equal(submit(&w, &existed), id);
    assert_false(existed);
    finish_all();
}

/* Begin times survive restarts, and what began goes on whatever the clock does. */
static void a_job_begins_at_its_time_and_a_clock_that_is_set_back_does_not_stop_it(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 2 }, .n = 1, .begin = clock_wall_ns() + 3600 * CLOCK_SECOND };
    Sluice__HoldJob hold = SLUICE__HOLD_JOB__INIT;
    Sluice__ReleaseJob release = SLUICE__RELEASE_JOB__INIT;

    (void)state;
    uint64_t id = submit(&w, NULL);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 0);
    assert_string_equal(job_waits_for(the_job(id)), "BeginTime");
    restart();

    assert_int_equal(the_job(id)->begin, w.begin);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 0);
    the_job(id)->begin = clock_wall_ns() - 1;            /* its hour has come */
    world_pass(0.1);
    world_turn();
    assert_true(the_job(id)->begun);
    the_job(id)->begin = w.begin;                        /* the clock is set back an hour */
    hold.has_id = release.has_id = true;
    hold.id = release.id = id;
    job_hold(client, 6, &hold);
    world_turn();
    job_release(client, 7, &release);
    world_turn();
    restart();

    assert_true(the_job(id)->begun);
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 2);
}

static void after(uint64_t id, const char *word, char out[40])
{
    snprintf(out, 40, "%s:%" PRIu64, word, id);
}

static void a_job_comes_after_another_ok_notok_or_any(void **state)
{
    static const char *const words[] = { "ok", "notok", "any" };
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .attempts = 1, .hold = true };
    char text[40];
    struct node *n;

    (void)state;
    for (int fails = 0; fails <= 1; fails++) {
        w.after = NULL;
        w.hold = true;
        uint64_t first = submit(&w, NULL), id[3];
        w.hold = false;
        for (int i = 0; i < 3; i++) {
            after(first, words[i], text);
            w.after = text;
            id[i] = submit(&w, NULL);
        }
        restart();
            finish_all();
        for (int i = 0; i < 3; i++)
            assert_string_equal(job_waits_for(the_job(id[i])), "DependencyNotDone");
        Sluice__ReleaseJob release = SLUICE__RELEASE_JOB__INIT;
        release.has_id = true;
        release.id = first;
        job_release(client, 7, &release);
        world_turn();
        Sluice__Assign *a = assigned_somewhere(&n);
        assert_non_null(a);
        assert_int_equal(a->tf->job, first);
        answer_built(n, a);
        if (fails)
            answer_failed(n, a, "BadInput");
        else
            answer_done(n, a, false);
        FREE(a);
        finish_all();
        assert_true(the_job(first)->stored_over);
        int never = fails ? 0 : 1;                       /* ok after a failure, notok after none */
        assert_string_equal(job_waits_for(the_job(id[never])), "DependencyNeverSatisfied");
        assert_int_equal(the_job(id[never])->n[TASK_DONE], 0);
        assert_int_equal(the_job(id[1 - never])->n[TASK_DONE], 1);
        assert_int_equal(the_job(id[2])->n[TASK_DONE], 1);
    }
    w.after = "ok:99";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_NOT_FOUND, "99");
    const char *const bad[] = { "ok", "ok:", "ok:0", "okay:1", "ok:1x", ":1", "ok:-1" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        w.after = bad[i];
        assert_int_equal(submit(&w, NULL), 0);
        error_of(ERR_USAGE, "ok:ID, any:ID or notok:ID");
    }
}

/* What GetAttempts says: "N STATE CODE" of each, joined. */
static void tries_are(uint64_t job, uint64_t tf, const char *expect)
{
    Sluice__GetAttempts q = SLUICE__GET_ATTEMPTS__INIT;
    char text[400] = "";

    q.has_job = q.has_tf = true;
    q.job = job;
    q.tf = tf;
    job_tries(client, 9, &q);
    Sluice__Attempts *m = TAKE(client, sluice__attempts);
    assert_non_null(m);
    for (size_t i = 0; i < m->n_attempts; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %s %s", i ? ", " : "", strrchr(m->attempts[i]->id, '.') + 1, m->attempts[i]->state,
                 m->attempts[i]->code ? m->attempts[i]->code : "-");
    assert_string_equal(text, expect);
    FREE(m);
}

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
    error_of(ERR_NOT_FOUND, "no longer kept");
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

static Sluice__Assign *assigned_to(struct node *n, double s)
{
    Sluice__Assign *a;

    for (double gone = 0; (a = TAKE(n->session, sluice__assign)) == NULL; gone += 0.05) {
        if (gone > s)
            fail_msg("nothing for %s within %g s", n->name, s);
        world_pass(0.05);
    }
    return a;
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

static void classes_are_kept(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 8 }, .n = 1, .class = "mi100" };

    (void)state;
    submit(&w, NULL);
    world_turn();
    assert_int_equal(world_sent(n1->session, &sluice__assign__descriptor), 0);
    assert_int_equal(world_sent(n2->session, &sluice__assign__descriptor), 3);
}

static void a_job_goes_only_where_its_backends_can_be_had(void **state)
{
    struct conf_class classes[] = { { .name = "mi50", .devices = 1, .nominal_ms = 20, .gpu_arch = "gfx906" }, { .name = "mi100", .devices = 1, .gpu_arch = "gfx908" } };
    struct wish w = { .path = { "/a/x.tf" }, .tfs = { 4 }, .n = 1, .backends = "cuda" };
    Sluice__Assign *a;

    (void)state;
    world.conf->classes = classes;
    world.conf->n_classes = 2;
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_STATE, "workflow decode is to run on cuda, which no class that is allowed can have: mi50 (emulated) has cpu; mi100 (gfx908) has cpu, hip, opencl");
    w.backends = "decode=hip";
    w.class = "mi50";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_STATE, "can have: mi50 (emulated) has cpu");
    w.class = NULL;
    uint64_t id = submit(&w, NULL);
    for (int i = 0; i < 4; i++) {
        assert_non_null(a = assigned_to(n2, 5));
        answer_built(n2, a);
        answer_done(n2, a, true);
        FREE(a);
    }
    finish_all();
    assert_int_equal(the_job(id)->n[TASK_DONE], 4);
    assert_int_equal(the_job(id)->work.retried, 0);

    /* so after a restart, and by a configuration that is read later */
    w.hold = true;
    id = submit(&w, NULL);
    restart();
    assert_int_equal(the_job(id)->work.classes, ~flow_class_bit(world.d.flow, "mi50"));
    classes[0].nominal_ms = 0;
    able_configured(world.d.flow);
    assert_int_equal(the_job(id)->work.classes, 0);
    world.conf->n_classes = 0;                           /* a class that the configuration does not have is believed */
    w.backends = "cuda";
    assert_int_not_equal(submit(&w, NULL), 0);
    world.conf->classes = NULL;
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
    error_of(ERR_STATE, "cancelled");
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
    error_of(ERR_STATE, "is over: done; its results are being published, there is nothing to cancel");
    world_turn();
    job_cancel(client, 6, &m);                           /* on disk, not published yet */
    error_of(ERR_STATE, "there is nothing to cancel");
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

static void release(uint64_t id)
{
    Sluice__ReleaseJob m = SLUICE__RELEASE_JOB__INIT;

    m.has_id = true;
    m.id = id;
    job_release(client, 6, &m);
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
    error_of(ERR_STATE, "done");
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
    error_of(ERR_STATE, "");
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
    error_of(ERR_STATE, "cancelled");
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
    error_of(ERR_STATE, "not over");
    finish_but(id, 4, &done);
    assert_int_equal(waited(id), ERR_SOME_FAILED);
    assert_int_equal(the_job(id)->n[TASK_FAILED], 1);
    assert_int_equal(the_job(id)->task[4].attempt, 2);
    world.writable = false;
    rerun(id);
    error_of(ERR_STATE, "not writable");
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
    error_of(ERR_STATE, "none of its TFs");
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
    error_of(ERR_PERMISSION, "anna");
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

static void others_jobs_are_for_experts(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    Sluice__CancelJob m = SLUICE__CANCEL_JOB__INIT;

    (void)state;
    m.has_id = true;
    m.id = submit(&w, NULL);
    client->peer.uid = 2000;
    job_cancel(client, 6, &m);
    error_of(ERR_PERMISSION, "anna");
    client->right = RIGHT_EXPERT;
    job_cancel(client, 6, &m);
    world_turn();
    Sluice__Jobs *jobs = TAKE(client, sluice__jobs);
    assert_non_null(jobs);
    FREE(jobs);
}

/* The next assign within s, or NULL. */
static Sluice__Assign *assigned_within(double s, struct node **n)
{
    Sluice__Assign *a = NULL;

    for (double gone = 0; gone < s && a == NULL; gone += 0.05) {
        world_pass(0.05);
        a = assigned_somewhere(n);
    }
    return a;
}

static void restart_with_both(void)
{
    struct idset forget = { 0 };

    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, &forget);
    world_connect(n2, NULL, 0, &forget);
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
        restart_with_both();
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
            restart_with_both();                         /* forgets none of them */
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
    restart_with_both();
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
    restart_with_both();
    assert_int_equal(the_job(id)->n[TASK_CANCELLED], 1);
    FREE(first);
    FREE(second);
}

static void what_a_node_holds_is_bounded(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 60 }, .n = 1 };
    struct node *n;
    Sluice__Assign *a;
    unsigned got = 0;

    (void)state;
    submit(&w, NULL);
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
}

static void tfs_that_follow_each_other_are_named_by_their_sizes(void **state)
{
    uint64_t sizes[] = { 1000, 64, MB, 200 }, bad[] = { 1000, 0 }, far[] = { 64, INT64_MAX };
    const uint64_t offset[] = { 96, 1096, 1160, 1160 + MB };
    Sluice__Assign *a;
    struct node *n;

    (void)state;
    assert_int_equal(submit_sizes(0, bad, 2), 0);
    error_of(ERR_USAGE, "TF 1 lies at 1000 and has 0 bytes");
    assert_int_equal(submit_sizes(0, far, 2), 0);
    error_of(ERR_USAGE, "TF 1 lies at 64");
    world_disconnect(n1);
    world_disconnect(n2);
    uint64_t id = submit_sizes(96, sizes, 4);
    assert_true(id > 0);
    world_restart();
    client = world_peer("client");
    struct idset forget = { 0 };
    world_connect(n1, NULL, 0, &forget);
    world_connect(n2, NULL, 0, &forget);
    for (unsigned got = 0; got < 4; got++) {
        world_pass(0.1);
        a = assigned_somewhere(&n);
        assert_non_null(a);
        assert_int_equal(a->offset, offset[a->tf->id]);
        assert_int_equal(a->size, sizes[a->tf->id]);
        answer_built(n, a);
        answer_done(n, a, false);
        FREE(a);
    }
    world_turn();
    assert_int_equal(waited(id), 0);
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

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)

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

/* Memory has the newest 1000 jobs that are over, the disk all: it is asked for what is not in memory. */
static void a_job_comes_after_one_that_memory_forgot(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1 };
    char after[32];

    (void)state;
    uint64_t id = submit(&w, NULL);
    finish_all();
    struct job *j = the_job(id);
    TAILQ_REMOVE(&world.d.jobs->over, j, entry);
    world.d.jobs->n_over--;
    job_destroy(j);
    snprintf(after, sizeof(after), "ok:%llu", (unsigned long long)id);
    w.after = after;
    uint64_t second = submit(&w, NULL);
    assert_true(second > id);
    finish_all();
    assert_int_equal(the_job(second)->n[TASK_DONE], 1);
    snprintf(after, sizeof(after), "notok:%llu", (unsigned long long)id);
    uint64_t third = submit(&w, NULL);
    assert_string_equal(job_waits_for(the_job(third)), "DependencyNeverSatisfied");
    snprintf(after, sizeof(after), "any:%llu", (unsigned long long)id);
    w.begin = clock_wall_ns() + (int64_t)3600 * 1000000000;
    uint64_t later = submit(&w, NULL);
    assert_string_equal(job_waits_for(the_job(later)), "BeginTime");
    the_job(later)->begin = 1;                           /* its time has come */
    assert_null(job_waits_for(the_job(later)));
    w.begin = 0;
    w.after = "ok:4711";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_NOT_FOUND, "no job 4711");
    world.d.jobs->last_id = 5000;                        /* a number that was given to nothing in the end */
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_NOT_FOUND, "there is no such job");
    finish_all();
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

/* ---- names ---- */

/* In one folder jobs that are on have no names in common; one that is over is the worker's business. */
static void B24_names_of_jobs_in_one_folder_do_not_collide(void **state)
{
    struct wish w = { .path = { "/data/x.tf", "/data/y.tf" }, .tfs = { 1, 1 }, .n = 2, .output = "/tmp/same", .hold = true };
    struct wish other = { .path = { "/other/z.tf", "/other/y.tf" }, .tfs = { 1, 1 }, .n = 2, .output = "/tmp/same" };

    (void)state;
    uint64_t id = submit(&w, NULL);
    assert_int_equal(submit(&other, NULL), 0);
    error_of(ERR_STATE, "results of the name y into that folder");
    other.tfs[1] = 0;                                    /* a file that cannot be read has no results */
    uint64_t second = submit(&other, NULL);
    assert_int_equal(second, id + 2);
    other.tfs[1] = 1;
    other.output = "/tmp/another";
    assert_int_equal(submit(&other, NULL), id + 3);
    restart();
    other.output = "/tmp/same";
    other.path[0] = "/third/q.tf";
    assert_int_equal(submit(&other, NULL), 0);           /* the names of a job from before the start count, too */
    error_of(ERR_STATE, "name y");
    Sluice__CancelJob c = SLUICE__CANCEL_JOB__INIT;
    c.has_id = true;
    c.id = id;
    job_cancel(client, 7, &c);
    world_turn();
    assert_true(submit(&other, NULL) > second);
    finish_all();
}

/* Two that come together: the names of the first are not on disk yet. */
static void a_job_in_the_same_folder_waits_for_one_that_is_being_taken_in(void **state)
{
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .output = "/tmp/same", .hold = true };

    (void)state;
    world.writable = true;
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file = SLUICE__INPUT_FILE__INIT, *files = &file;
    uint64_t size = MB;
    file.path = "/b/x.tf";
    file.has_offset = true;
    file.sizes = &size;
    file.n_sizes = 1;
    m.files = &files;
    m.n_files = 1;
    m.workflow = "decode";
    m.output = "/tmp/same";
    m.has_hold = m.hold = true;
    job_submit(client, 5, &m);                           /* not committed yet */
    job_submit(client, 6, &m);
    Sluice__Error *e = TAKE(client, sluice__error);
    assert_non_null(e);
    assert_string_equal(e->word, "Busy");
    assert_true(e->retry_ms > 0);
    FREE(e);
    world_turn();
    FREE(TAKE(client, sluice__submitted));
    assert_int_equal(submit(&w, NULL), 0);
    error_of(ERR_STATE, "name x");
}

/* ---- very many files ---- */

enum { MANY = 4500 };

static void tell_files(unsigned from, unsigned n, unsigned tfs)
{
    Sluice__SubmitFiles m = SLUICE__SUBMIT_FILES__INIT;
    Sluice__InputFile *file = mem_array(n, sizeof(*file)), **files = mem_array(n, sizeof(struct Sluice__InputFile *));
    uint64_t sizes[2] = { MB, MB };

    for (unsigned i = 0; i < n; i++) {
        sluice__input_file__init(&file[i]);
        files[i] = &file[i];
        file[i].path = mem_printf("/many/%u.tf", from + i);
        file[i].has_offset = true;
        file[i].sizes = sizes;
        file[i].n_sizes = tfs;
    }
    m.files = files;
    m.n_files = n;
    job_submit_files(client, 4, &m);
    for (unsigned i = 0; i < n; i++)
        free(file[i].path);
    free(file);
    free(files);
}

static void submit_told(uint64_t told, const char *key)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;

    m.workflow = "none";
    m.has_files_told = told > 0;
    m.files_told = told;
    m.has_hold = m.hold = true;
    m.key = (char *)key;
    job_submit(client, 5, &m);
}

static int count_orphan(void *arg, uint64_t job)
{
    (void)job;
    ++*(unsigned *)arg;
    return 0;
}

static unsigned orphans(void)
{
    unsigned n = 0;
    struct err e;

    assert_int_equal(rows_load_orphans(world.db, count_orphan, &n, &e), 0);
    return n;
}

/* Told in parts, stored in parts with room for marks between them, one job at the end; killed on the way, nothing of it is left and its number does not come
 * again. */
static void B26_a_job_of_very_many_files_is_taken_in_slices(void **state)
{
    unsigned slices = 0;

    (void)state;
    for (unsigned i = 0; i < MANY; i += 1500) {
        tell_files(i, 1500, 2);
        FREE(TAKE(client, sluice__ok));
    }
    submit_told(MANY - 1, NULL);
    error_of(ERR_USAGE, "4499 files of this job were told before, 4500 are there");
    assert_null(client->staged);                         /* and what was told is gone */
    for (unsigned i = 0; i < MANY; i += 1500)
        tell_files(i, 1500, 2);
    submit_told(MANY, "many");
    assert_int_equal(world.queued, 1);
    for (slices = 0; world_sent(client, &sluice__submitted__descriptor) == 0; slices++) {
        assert_true(slices < 10);
        world_commit_batch();
    }
    assert_int_equal(slices, 3);
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    assert_int_equal(s->tasks, 2 * MANY);
    uint64_t id = s->id;
    FREE(s);
    for (unsigned i = 0; i < MANY; i += 1500)
        tell_files(i, 1500, 2);
    submit_told(MANY, NULL);
    world_commit_batch();
    assert_int_equal(orphans(), 1);
    restart();                                           /* killed when some of its files were on disk */
    world_turn();
    assert_null(job_find(world.d.jobs, id + 1));
    assert_int_equal(orphans(), 0);
    struct job *j = the_job(id);
    assert_int_equal(j->n_files, MANY);
    assert_string_equal(j->file[MANY - 1].path, "/many/4499.tf");
    assert_string_equal(j->file[MANY - 1].stem, "4499");
    struct wish w = { .path = { "/data/x.tf" }, .tfs = { 1 }, .n = 1, .hold = true };
    assert_int_equal(submit(&w, NULL), id + 2);
    world_check();
}

/* What is told belongs to its connection; a bad file ends it all. */
static void files_that_were_told_go_with_their_connection(void **state)
{
    Sluice__SubmitFiles bad = SLUICE__SUBMIT_FILES__INIT;
    Sluice__InputFile file = SLUICE__INPUT_FILE__INIT, *files = &file;

    (void)state;
    tell_files(0, 100, 1);
    assert_int_equal(world.d.jobs->staged_files, 100);
    file.path = "no/absolute/path";
    bad.files = &files;
    bad.n_files = 1;
    job_submit_files(client, 4, &bad);
    error_of(ERR_USAGE, "absolute path");
    assert_int_equal(world.d.jobs->staged_files, 0);
    tell_files(0, 100, 1);
    job_unstage(client);
    assert_int_equal(world.d.jobs->staged_files, 0);
    tell_files(0, 100, 1);
    for (int i = 0; i < 25 && world.d.jobs->staged; i++)
        world_pass(3);
    assert_null(client->staged);                         /* nothing more came for a minute */
    world_forget_sent(client);
}

static void max_bad_counts_files_without_tfs_only(void **state)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file = SLUICE__INPUT_FILE__INIT, *files = &file;
    uint64_t sizes[2] = { MB, MB };

    (void)state;
    file.path = "/a/x.tf";
    file.has_offset = true;
    file.sizes = sizes;
    file.n_sizes = 2;
    m.files = &files;
    m.n_files = 1;
    m.workflow = "none";
    m.has_max_bad = true;
    job_submit(client, 5, &m);
    world_turn();
    assert_int_equal(world_sent(client, &sluice__submitted__descriptor), 1);
    world_forget_sent(client);
    finish_all();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_job_is_checked_before_it_is_accepted),
        WITH_WORLD(the_same_key_is_the_same_job),
        WITH_WORLD(a_key_of_a_job_that_memory_forgot_gives_that_job),
        WITH_WORLD(a_job_begins_at_its_time_and_a_clock_that_is_set_back_does_not_stop_it),
        WITH_WORLD(a_job_comes_after_another_ok_notok_or_any),
        WITH_WORLD(B24_each_try_is_kept_and_a_rerun_of_all_has_names_of_its_own),
        WITH_WORLD(B39_details_of_jobs_are_pruned_by_number_and_age),
        WITH_WORLD(B21_no_task_waits_for_a_worker_that_is_gone),
        WITH_WORLD(every_tf_of_every_file_is_done_once_under_a_name_of_its_own),
        WITH_WORLD(a_job_comes_after_one_that_memory_forgot),
        WITH_WORLD(what_kills_workers_is_set_aside),
        WITH_WORLD(a_worker_dies_of_what_its_devices_had),
        WITH_WORLD(failures_by_code_outlive_restarts),
        WITH_WORLD(B24_names_of_jobs_in_one_folder_do_not_collide),
        WITH_WORLD(a_job_in_the_same_folder_waits_for_one_that_is_being_taken_in),
        WITH_WORLD(B26_a_job_of_very_many_files_is_taken_in_slices),
        WITH_WORLD(files_that_were_told_go_with_their_connection),
        WITH_WORLD(max_bad_counts_files_without_tfs_only),
        WITH_WORLD(B39_workers_and_people_come_before_the_tasks_are_read),
        WITH_WORLD(what_a_worker_said_before_the_tasks_are_read_goes_with_it),
        WITH_WORLD(what_cannot_be_published_fails),
        WITH_WORLD(a_name_that_is_taken_is_tried_once),
        WITH_WORLD(a_failed_attempt_is_tried_elsewhere_after_a_pause),
        WITH_WORLD(B16_refusals_in_a_row_make_the_pause_longer),
        WITH_WORLD(classes_are_kept),
        WITH_WORLD(a_job_goes_only_where_its_backends_can_be_had),
        WITH_WORLD(B27_a_cancelled_job_never_runs_after_the_confirmation),
        WITH_WORLD(a_cancel_after_the_last_end_is_refused_and_the_job_is_done),
        WITH_WORLD(a_held_job_gives_out_nothing_more_until_it_is_released),
        WITH_WORLD(a_job_can_be_submitted_held),
        WITH_WORLD(a_release_that_is_not_stored_leaves_it_held),
        WITH_WORLD(a_held_job_can_be_cancelled),
        WITH_WORLD(only_what_failed_is_run_again_with_tries_numbered_on),
        WITH_WORLD(what_was_cancelled_can_be_run_again),
        WITH_WORLD(priority_then_fair_by_user_then_the_oldest),
        WITH_WORLD(a_higher_priority_goes_first),
        WITH_WORLD(others_jobs_are_for_experts),
        WITH_WORLD(tries_and_pauses_outlive_a_restart),
        WITH_WORLD(what_kills_processes_is_set_aside),
        WITH_WORLD(a_straggler_starts_a_second_time_and_the_first_to_be_done_counts),
        WITH_WORLD(of_two_tries_that_fail_the_job_hears_once),
        WITH_WORLD(a_job_with_two_tries_under_way_can_be_cancelled_and_restarted),
        WITH_WORLD(what_a_node_holds_is_bounded),
        WITH_WORLD(tfs_that_follow_each_other_are_named_by_their_sizes),
        WITH_WORLD(a_restart_resumes_a_job),
        WITH_WORLD(tasks_are_listed_with_where_and_why),
        WITH_WORLD(crashes_are_kept_and_purged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
