/* job_submit_test.c - what a job may be: what is refused, keys, names of results, times and other jobs it waits for, very many files */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <inttypes.h>
#include "clock.h"
#include "job_fixture.h"

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

static void a_job_is_checked_before_it_is_accepted(void **state)
{
    struct wish w = { .path = { "relative.tf" }, .tfs = { 1 }, .n = 1 };
    char *roots[] = { "/data" }, **before = world.conf->roots_input;

    (void)state;
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_USAGE, "absolute");
    w.path[0] = "/data/../etc/x.tf";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_USAGE, "..");
    w.path[0] = "/data/x.tf";
    w.output = "out";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_USAGE, "output");
    w.output = NULL;
    world.conf->roots_input = roots;
    world.conf->n_roots_input = 1;
    assert_int_equal(submit(&w, NULL), 1);
    w.path[0] = "/database/x.tf";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_PERMISSION, "roots");
    world.conf->roots_input = before;
    world.conf->n_roots_input = 0;
    w.n = 0;
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_USAGE, "1 to");
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
    error_of(client, ERR_NOT_FOUND, "night-8");
    client->peer.uid = 1001;                             /* of somebody else it says nothing */
    only.key = "night-7";
    job_submit(client, 5, &only);
    error_of(client, ERR_NOT_FOUND, "night-7");
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
    error_of(client, ERR_NOT_FOUND, "99");
    const char *const bad[] = { "ok", "ok:", "ok:0", "okay:1", "ok:1x", ":1", "ok:-1" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        w.after = bad[i];
        assert_int_equal(submit(&w, NULL), 0);
        error_of(client, ERR_USAGE, "ok:ID, any:ID or notok:ID");
    }
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
    error_of(client, ERR_STATE, "workflow decode is to run on cuda, which no class that is allowed can have: mi50 (emulated) has cpu; mi100 (gfx908) has cpu, hip, opencl");
    w.backends = "decode=hip";
    w.class = "mi50";
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_STATE, "can have: mi50 (emulated) has cpu");
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

static void tfs_that_follow_each_other_are_named_by_their_sizes(void **state)
{
    uint64_t sizes[] = { 1000, 64, MB, 200 }, bad[] = { 1000, 0 }, far[] = { 64, INT64_MAX };
    const uint64_t offset[] = { 96, 1096, 1160, 1160 + MB };
    Sluice__Assign *a;
    struct node *n;

    (void)state;
    assert_int_equal(submit_sizes(0, bad, 2), 0);
    error_of(client, ERR_USAGE, "TF 1 lies at 1000 and has 0 bytes");
    assert_int_equal(submit_sizes(0, far, 2), 0);
    error_of(client, ERR_USAGE, "TF 1 lies at 64");
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
    error_of(client, ERR_NOT_FOUND, "no job 4711");
    world.d.jobs->last_id = 5000;                        /* a number that was given to nothing in the end */
    assert_int_equal(submit(&w, NULL), 0);
    error_of(client, ERR_NOT_FOUND, "there is no such job");
    finish_all();
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
    error_of(client, ERR_STATE, "results of the name y into that folder");
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
    error_of(client, ERR_STATE, "name y");
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
    error_of(client, ERR_STATE, "name x");
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
    error_of(client, ERR_USAGE, "4499 files of this job were told before, 4500 are there");
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
    error_of(client, ERR_USAGE, "absolute path");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_job_is_checked_before_it_is_accepted),
        WITH_WORLD(the_same_key_is_the_same_job),
        WITH_WORLD(a_key_of_a_job_that_memory_forgot_gives_that_job),
        WITH_WORLD(a_job_begins_at_its_time_and_a_clock_that_is_set_back_does_not_stop_it),
        WITH_WORLD(a_job_comes_after_another_ok_notok_or_any),
        WITH_WORLD(a_job_comes_after_one_that_memory_forgot),
        WITH_WORLD(B24_names_of_jobs_in_one_folder_do_not_collide),
        WITH_WORLD(a_job_in_the_same_folder_waits_for_one_that_is_being_taken_in),
        WITH_WORLD(B26_a_job_of_very_many_files_is_taken_in_slices),
        WITH_WORLD(files_that_were_told_go_with_their_connection),
        WITH_WORLD(max_bad_counts_files_without_tfs_only),
        WITH_WORLD(classes_are_kept),
        WITH_WORLD(a_job_goes_only_where_its_backends_can_be_had),
        WITH_WORLD(tfs_that_follow_each_other_are_named_by_their_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
