/* worker_test.c - the real worker under a scripted sluiced: results, crashes, hangs, losses; cases B26, B42, B60, B61 */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <cmocka.h>

#include "worker_help.h"

enum { SIZE = 100000 };

static struct farm f;
static char *input, *out, *shm;

static int setup(void **unused)
{
    (void)unused;
    farm_make(&f);
    input = farm_path(&f, "input");
    out = farm_path(&f, "out");
    shm = farm_path(&f, "shm");
    make_file(input, 3 * SIZE, 1);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    unsigned left;

    if (f.pid > 0) {
        kill(f.pid, SIGTERM);
        assert_int_equal(farm_wait(&f, 4), 0);
    }
    left = farm_children(&f);
    char *in_shm = list_folder(shm);
    if (in_shm[0] != '\0' || left > 0)
        fprintf(stderr, "left behind: %u processes, in shm \"%s\"\n", left, in_shm);
    int rc = in_shm[0] != '\0' || left > 0;
    free(in_shm);
    farm_destroy(&f);
    free(input);
    free(out);
    free(shm);
    return rc;
}

static bool a_device_is_free(const Sluice__Report *r)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        if (r->devices[i]->state == SLUICE__DEVICE_STATE__DEVICE_FREE)
            return true;
    }
    return false;
}

static bool all_is_back(const Sluice__Report *r)
{
    return r->bytes_used == 0 && r->building == 0 && r->queued == 0 && r->processing == 0 && r->delivering == 0;
}

/* The report that says so may be an older one that is under way still. */
static bool all_is_back_and_two_were_stale(const Sluice__Report *r)
{
    return all_is_back(r) && r->stale == 2;
}

static void start(const char *conf, const char *class_name)
{
    farm_worker(&f, conf, shm, class_name);
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    note_free(&r);
    assert_true(farm_report(&f, a_device_is_free, 10));
}

/* The next Failed must be this. Its crash folder, if any, is the caller's. */
static char *expect_failed(uint64_t tf, const char *word, double limit_s)
{
    struct note n = farm_take(&f, SLUICE__TYPE__FAILED, limit_s);
    assert_non_null(n.m);
    const Sluice__Failed *m = (const Sluice__Failed *)n.m;
    assert_int_equal(m->tf->id, tf);
    if (strcmp(m->word, word) != 0)
        print_message("%s: %s\n", m->word, m->text);
    assert_string_equal(m->word, word);
    char *crash = mem_strdup(m->crash);
    note_free(&n);
    farm_verdict(&f, 0, 1, tf, 1, false, NULL, NULL);
    return crash;
}

static void expect_done(uint64_t tf, double limit_s)
{
    struct note n = farm_take(&f, SLUICE__TYPE__DONE, limit_s);
    assert_non_null(n.m);
    assert_int_equal(((const Sluice__Done *)n.m)->tf->id, tf);
    note_free(&n);
}

static void expect_published(uint64_t tf)
{
    struct note n = farm_take(&f, SLUICE__TYPE__PUBLISHED, 5);
    assert_non_null(n.m);
    const Sluice__Published *m = (const Sluice__Published *)n.m;
    assert_int_equal(m->tf->id, tf);
    if (m->text != NULL)
        print_message("%s\n", m->text);
    assert_null(m->text);
    note_free(&n);
}

/* ---- the good way ------------------------------------------------------------------------------------- */

static void a_tf_of_a_job_goes_from_its_file_to_its_final_name(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "two", out, 0);
    farm_assign_file(&f, 1, 5, 1, input, 7, SIZE, "in.5");
    struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
    assert_non_null(n.m);
    assert_int_equal(((const Sluice__Built *)n.m)->bytes, 100032);
    note_free(&n);

    n = farm_take(&f, SLUICE__TYPE__DONE, 5);
    assert_non_null(n.m);
    const Sluice__Done *d = (const Sluice__Done *)n.m;
    assert_int_equal(d->fence->epoch, EPOCH);
    assert_int_equal(d->n_outputs, 2);
    assert_string_equal(d->outputs[0]->stage, "digits");
    assert_int_equal(d->outputs[0]->size, SIZE);
    assert_string_equal(d->digest, d->outputs[0]->digest);
    assert_string_equal(d->device, "cpu-n1-0");
    assert_true(same_range(input, 7, SIZE, d->outputs[0]->file));
    note_free(&n);
    char *names = list_folder(out);
    assert_string_equal(names, "in.5.clusters.a7-1-j1 in.5.clusters.json.a7-1-j1 in.5.digits.a7-1-j1 in.5.digits.json.a7-1-j1");
    free(names);

    farm_verdict(&f, 0, 1, 5, 1, true, out, "in.5");
    expect_published(5);
    names = list_folder(out);
    assert_string_equal(names, "in.5.clusters in.5.clusters.json in.5.digits in.5.digits.json");
    char *file = mem_printf("%s/in.5.digits", out);
    assert_true(same_range(input, 7, SIZE, file));
    free(file);
    free(names);
    assert_true(farm_report(&f, all_is_back, 3));

    /* the same result once more, by another try: counts as published; it does not know it any more, so by the verdict's names alone */
    farm_verdict(&f, 0, 1, 5, 1, true, out, "in.5");
    expect_published(5);
}

static void a_rejected_result_leaves_nothing(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, 1, 3, input, 0, SIZE, "deep/er/in.1");
    expect_done(1, 5);
    char *deep = mem_printf("%s/deep/er", out), *names = list_folder(deep);
    assert_string_equal(names, "in.1.digits.a7-3-j1 in.1.digits.json.a7-3-j1");
    free(names);
    farm_verdict(&f, 0, 1, 1, 3, false, out, "deep/er/in.1");
    for (int i = 0; i < 200; i++) {
        names = list_folder(deep);
        if (names[0] == '\0')
            break;
        free(names);
        run_for(f.loop, 0.01);
    }
    assert_string_equal(names, "");
    free(names);
    free(deep);
}

static void another_file_under_the_final_name_is_never_replaced(void **unused)
{
    (void)unused;
    char *file = mem_printf("%s/in.1.digits", out);
    struct err e;

    assert_int_equal(file_replace(file, "precious", 8, 0644, &e), 0);
    start(NULL, NULL);
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "in.1");
    free(expect_failed(1, "OutputExists", 5));              /* it was there before: nothing is done for it */
    farm_assign_file(&f, 1, 2, 1, input, 0, SIZE, "in.2");
    expect_done(2, 5);
    char *late = mem_printf("%s/in.2.digits", out);
    assert_int_equal(file_replace(late, "precious", 8, 0644, &e), 0);
    farm_verdict(&f, 0, 1, 2, 1, true, out, "in.2");     /* it came before the name was given */
    struct note n = farm_take(&f, SLUICE__TYPE__PUBLISHED, 5);
    assert_non_null(n.m);
    assert_string_equal(((const Sluice__Published *)n.m)->word, "OutputExists");
    assert_non_null(strstr(((const Sluice__Published *)n.m)->text, "in.2.digits is there already"));
    note_free(&n);
    for (int i = 0; i < 2; i++) {
        size_t size;
        char *text = file_read(i ? late : file, 100, &size, &e);
        assert_string_equal(text, "precious");
        free(text);
    }
    free(late);
    free(file);
}

static void expect_built(uint64_t tf)
{
    struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);

    assert_non_null(n.m);
    assert_int_equal(((const Sluice__Built *)n.m)->tf->id, tf);
    note_free(&n);
}

/* The next one's bytes are here before the device is done with the one before it. */
static void the_next_is_read_while_one_is_processed(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "slow:1000", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    expect_built(1);
    farm_assign_file(&f, 1, 2, 1, input, SIZE, SIZE, "b");
    expect_built(2);
    struct note n = farm_take(&f, SLUICE__TYPE__DONE, 0.1);
    assert_null(n.m);
    expect_done(1, 10);
    expect_done(2, 10);
    farm_verdict(&f, 0, 1, 1, 1, true, out, "a");
    expect_published(1);
    farm_verdict(&f, 0, 1, 2, 1, true, out, "b");
    expect_published(2);
}

static void verdict_for_another(uint64_t tf, const char *stem)
{
    Sluice__Verdict m = SLUICE__VERDICT__INIT;
    struct tf_id id;

    tf_id_fill(&id, (struct tf_name){ 0, 1, tf }, (struct fence){ EPOCH, 1 });
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.has_accepted = m.accepted = m.has_for_another = m.for_another = 1;
    m.output = out;
    m.stem = (char *)stem;
    chan_send(f.chan, 0, &m.base);
}

/* What another node wrote is published where it is found whole; else it is left as it is: this one may not see all of it. */
static void what_another_node_wrote_is_published_or_left(void **unused)
{
    (void)unused;
    char *half = mem_printf("%s/y.0.digits.a%u-1-j1", out, EPOCH), *text = mem_printf("%s/y.0.digits.json.a%u-1-j1", out, EPOCH);
    const char *says = "{\"job\": 1, \"tf\": 9, \"outputs\": [\"digits\"], \"size\": 4}";
    struct err e;

    start(NULL, NULL);
    farm_open(&f, 0, 1, "copy", out, 0);
    assert_int_equal(file_replace(half, "data", 4, 0644, &e), 0);
    for (int i = 0; i < 2; i++) {                        /* asked twice, as nothing followed */
        verdict_for_another(9, "y.0");
        struct note n = farm_take(&f, SLUICE__TYPE__PUBLISHED, 5);
        assert_non_null(n.m);
        assert_string_equal(((const Sluice__Published *)n.m)->word, "OutputFailed");
        note_free(&n);
        char *names = list_folder(out);
        assert_string_equal(names, "y.0.digits.a7-1-j1");
        free(names);
    }
    assert_int_equal(file_replace(text, says, strlen(says), 0644, &e), 0);
    verdict_for_another(9, "y.0");
    expect_published(9);
    char *names = list_folder(out);
    assert_string_equal(names, "y.0.digits y.0.digits.json");
    free(names);
    free(half);
    free(text);
}

static void without_output_folder_there_are_no_files(void **unused)
{
    (void)unused;
    start(NULL, "held");
    farm_open(&f, 0, 1, "copy", "", 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "in.1");
    expect_done(1, 5);
    farm_verdict(&f, 0, 1, 1, 1, true, NULL, NULL);
    expect_published(1);
    assert_true(farm_report(&f, all_is_back, 3));
}

/* ---- refusals --------------------------------------------------------------------------------------------- */

static void expect_refused(uint64_t tf, const char *word)
{
    struct note n = farm_take(&f, SLUICE__TYPE__REFUSED, 5);
    assert_non_null(n.m);
    const Sluice__Refused *m = (const Sluice__Refused *)n.m;
    assert_int_equal(m->tf->id, tf);
    assert_string_equal(m->word, word);
    note_free(&n);
}

static void what_cannot_be_taken_is_refused_with_its_word(void **unused)
{
    (void)unused;
    char *big = farm_path(&f, "big");

    start("building_limit = 2", NULL);
    make_file(big, 8 << 20, 3);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    expect_refused(1, "NotOpen");
    farm_open(&f, 0, 1, "slow:400", out, 0);
    farm_assign_file(&f, 1, 2, 1, big, 0, 5 << 20, "b");
    expect_refused(2, "NoSpace");
    farm_assign_file(&f, 1, 3, 2, input, 0, SIZE, "c");
    farm_assign_file(&f, 1, 3, 2, input, 0, SIZE, "c");         /* twice is once */
    farm_assign_file(&f, 1, 3, 1, input, 0, SIZE, "c");
    expect_refused(3, "StaleFence");
    expect_done(3, 5);
    farm_verdict(&f, 0, 1, 3, 2, true, out, "c");
    expect_published(3);
    farm_assign_file(&f, 1, 3, 2, input, 0, SIZE, "c");         /* done with: not again */
    expect_refused(3, "StaleFence");
    farm_assign_file(&f, 1, 4, 1, "relative", 0, SIZE, "d");
    expect_refused(4, "BadAssign");
    assert_true(farm_report(&f, all_is_back_and_two_were_stale, 3));
    free(big);
}

static void a_file_that_is_not_there_or_too_short_fails_its_tf_only(void **unused)
{
    (void)unused;
    char *fifo = farm_path(&f, "fifo");

    start(NULL, NULL);
    assert_int_equal(mkfifo(fifo, 0644), 0);
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, 1, 1, "/nowhere/at/all", 0, SIZE, "a");
    free(expect_failed(1, "InputMissing", 5));
    farm_assign_file(&f, 1, 2, 1, fifo, 0, SIZE, "b");
    free(expect_failed(2, "InputMissing", 5));
    farm_assign_file(&f, 1, 3, 1, input, 3 * SIZE - 10, 11, "c");
    free(expect_failed(3, "BadInput", 5));
    farm_assign_file(&f, 1, 4, 1, input, 3 * SIZE - 10, 10, "d");
    expect_done(4, 5);
    free(fifo);
}

/* ---- processes that misbehave --------------------------------------------------------------------------------- */

static void next_tf_works(uint64_t tf)
{
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, tf, 1, input, 0, SIZE, "next");
    expect_done(tf, 10);
    farm_verdict(&f, 0, 1, tf, 1, false, out, "next");
}

static bool restarted_once(const Sluice__Report *r)
{
    return r->restarts == 1 && r->devices[0]->restarts == 1;
}

static void a_crash_fails_that_attempt_and_keeps_its_tf(void **unused)
{
    (void)unused;
    size_t size;
    struct err e;

    start(NULL, NULL);
    farm_open(&f, 0, 1, "crash", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 100, SIZE, "a");
    char *folder = expect_failed(1, "Crashed", 10);
    assert_non_null(folder);
    char *tf = mem_printf("%s/tf", folder), *json = mem_printf("%s/crash.json", folder), *log = mem_printf("%s/log", folder);
    assert_true(same_range(input, 100, SIZE, tf));
    char *text = file_read(json, 65536, &size, &e);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"workflow\": \"crash\""));
    assert_non_null(strstr(text, "signal 11"));
    assert_non_null(strstr(text, "fake reco"));
    free(text);
    text = file_read(log, 65536, &size, &e);
    assert_non_null(strstr(text, "about to crash"));
    free(text);
    next_tf_works(2);
    assert_true(farm_report(&f, restarted_once, 3));
    free(folder);
    free(tf);
    free(json);
    free(log);
}

static void beyond_the_limit_a_crash_keeps_no_bytes(void **unused)
{
    (void)unused;
    start("crash_limit = \"64K\"", NULL);
    farm_open(&f, 0, 1, "crash", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    char *folder = expect_failed(1, "Crashed", 10), *names = list_folder(folder);
    assert_string_equal(names, "crash.json log");
    free(names);
    free(folder);
}

static void b26_a_process_that_ignores_term_and_its_hidden_child_are_gone_when_the_tf_fails(void **unused)
{
    (void)unused;
    char *file = farm_path(&f, "brood"), *flow = mem_printf("brood:%s", file);
    size_t size;
    struct err e;

    start(NULL, NULL);
    farm_open(&f, 0, 1, flow, out, 0.4);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    free(expect_failed(1, "TimedOut", 10));
    char *text = file_read(file, 100, &size, &e);
    assert_non_null(text);
    pid_t brood = (pid_t)atoi(text);
    free(text);
    assert_false(process_lives(brood));
    farm_open(&f, 0, 1, "deaf", out, 0.4);
    farm_assign_file(&f, 1, 2, 1, input, 0, SIZE, "b");
    free(expect_failed(2, "TimedOut", 10));
    next_tf_works(3);
    free(file);
    free(flow);
}

/* The limit is that of a stage: 1.5 s in stages of 50 ms pass where 0.5 s without a word do not. */
static void process_timeout_counts_anew_from_each_stage(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "slow:1500", out, 0.5);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    expect_done(1, 10);
    farm_open(&f, 0, 1, "hang", out, 0.5);
    farm_assign_file(&f, 1, 2, 1, input, 0, SIZE, "b");
    free(expect_failed(2, "TimedOut", 10));
}

static bool one_stall(const Sluice__Report *r)
{
    return r->devices[0]->stalls == 1 && r->devices[0]->restarts == 1 && r->devices[0]->state == SLUICE__DEVICE_STATE__DEVICE_FREE;
}

/* What the workflow as:FILE does from now on. */
static void does(const char *file, const char *how)
{
    struct err e;
    assert_int_equal(file_replace(file, how, strlen(how), 0644, &e), 0);
}

/* So many TFs of job 1 are done, from number `first` on. */
static void some_are_done(unsigned first, unsigned n)
{
    for (unsigned tf = first; tf < first + n; tf++) {
        farm_assign_file(&f, 1, tf, 1, input, 0, SIZE, "usual");
        expect_done(tf, 10);
        farm_verdict(&f, 0, 1, tf, 1, false, NULL, NULL);
    }
}

/* process_timeout is far away: only what is usual for the TF says that it hangs. */
static void no_progress_for_many_times_the_usual_is_a_stall_that_is_counted_and_kept(void **unused)
{
    (void)unused;
    char *file = farm_path(&f, "does"), *flow = mem_printf("as:%s", file);
    size_t size;
    struct err e;

    start("stall_factor = 4\nstall_min = 0.5", NULL);
    farm_open(&f, 0, 1, flow, out, 600);
    some_are_done(1, 5);
    does(file, "hang");
    farm_assign_file(&f, 1, 10, 1, input, 0, SIZE, "hangs");
    char *crash = expect_failed(10, "Stalled", 30);
    assert_true(farm_report(&f, one_stall, 10));
    char *json = mem_printf("%s/crash.json", crash), *tf = mem_printf("%s/tf", crash), *text = file_read(json, 1 << 20, &size, &e);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"word\": \"Stalled\""));
    assert_non_null(strstr(text, "are usual for a TF"));
    assert_true(same_range(input, 0, SIZE, tf));
    unlink(file);
    some_are_done(11, 1);
    free(text);
    free(tf);
    free(json);
    free(crash);
    free(flow);
    free(file);
}

static void who_gives_signs_of_life_may_take_as_long_as_it_likes(void **unused)
{
    (void)unused;
    char *file = farm_path(&f, "does"), *flow = mem_printf("as:%s", file);

    start("stall_factor = 4\nstall_min = 1", NULL);
    farm_open(&f, 0, 1, flow, out, 600);
    some_are_done(1, 5);
    does(file, "slow:2500");
    some_are_done(10, 1);
    assert_int_equal(f.report->devices[0]->stalls, 0);
    assert_int_equal(f.report->devices[0]->restarts, 0);
    free(flow);
    free(file);
}

static void every_lie_ends_the_process_and_nothing_else(void **unused)
{
    (void)unused;
    static const struct { const char *flow, *word; } lie[] = {
        { "exit:3", "Crashed" }, { "unsealed", "Crashed" }, { "short", "Crashed" }, { "other", "Crashed" }, { "garbage", "Crashed" },
        { "bad", "BadInput" }, { "refuse", "BackendUnavailable" }, { "liar", "DigestMismatch" },
    };

    start(NULL, NULL);
    for (unsigned i = 0; i < ARRAY_LEN(lie); i++) {
        farm_open(&f, 0, 1, lie[i].flow, out, 5);
        farm_assign_file(&f, 1, i + 1, 1, input, 0, SIZE, "a");
        free(expect_failed(i + 1, lie[i].word, 15));
    }
    next_tf_works(100);
    char *names = list_folder(out);
    for (int i = 0; i < 200 && names[0] != '\0'; i++) {
        run_for(f.loop, 0.01);
        free(names);
        names = list_folder(out);
    }
    assert_string_equal(names, "");
    free(names);
}

static bool no_device_works(const Sluice__Report *r)
{
    return r->n_devices == 1 && r->devices[0]->state == SLUICE__DEVICE_STATE__DEVICE_BROKEN && r->devices[0]->why != NULL;
}

static void a_program_that_never_gets_ready_makes_the_device_broken_and_says_why(void **unused)
{
    (void)unused;
    setenv("FAKE_RECO_UNUSABLE", "1", 1);
    farm_worker(&f, NULL, shm, NULL);
    unsetenv("FAKE_RECO_UNUSABLE");
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    note_free(&r);
    assert_true(farm_report(&f, no_device_works, 10));
    assert_non_null(strstr(f.report->devices[0]->why, "exit 3"));
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    expect_refused(1, "NoDevice");
}

static void a_cancel_ends_what_runs_and_what_waits(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "slow:20000", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    farm_assign_file(&f, 1, 2, 1, input, 0, SIZE, "b");
    for (int i = 0; i < 2; i++) {
        struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
        assert_non_null(n.m);
        note_free(&n);
    }
    farm_cancel(&f, 1, 2, 1);
    free(expect_failed(2, "Cancelled", 5));
    farm_cancel(&f, 1, 1, 1);
    free(expect_failed(1, "Cancelled", 5));
    farm_open(&f, 0, 1, "hang", out, 0);
    farm_assign_file(&f, 1, 3, 1, input, 0, SIZE, "c");
    struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
    note_free(&n);
    farm_cancel(&f, 1, 3, 1);
    free(expect_failed(3, "Cancelled", 5));
    assert_true(farm_report(&f, all_is_back, 3));
}

static void a_million_lines_of_a_process_do_not_disturb(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    farm_open(&f, 0, 1, "chatty", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    unsigned before = f.reports;
    expect_done(1, 60);
    assert_true(f.reports > before);
    char *log = farm_path(&f, "log");
    struct stat st;
    assert_int_equal(stat(log, &st), 0);
    assert_true(st.st_size < 4 << 20);
    free(log);
}

static bool is_nice(const Sluice__Report *r)
{
    return r->n_nice == 1 && r->nice[0] == 7 && a_device_is_free(r);
}

static void nice_is_that_of_the_pool_now_and_after_a_crash(void **unused)
{
    (void)unused;
    Sluice__Settings m = SLUICE__SETTINGS__INIT;

    start(NULL, NULL);
    m.has_nice = 1;
    m.nice = 7;
    m.pool = (char *)"async";
    chan_send(f.chan, 0, &m.base);
    assert_true(farm_report(&f, is_nice, 5));
    farm_open(&f, 0, 1, "crash", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    free(expect_failed(1, "Crashed", 10));
    assert_true(farm_report(&f, restarted_once, 5));
    assert_true(farm_report(&f, is_nice, 5));
}

static void open_as(uid_t uid)
{
    Sluice__RunOpen m = SLUICE__RUN_OPEN__INIT;

    m.has_job = m.has_uid = m.has_gid = 1;
    m.job = 1;
    m.uid = m.gid = uid;
    m.workflow = (char *)"copy";
    m.output = out;
    chan_send(f.chan, 0, &m.base);
}

static void a_worker_of_root_touches_files_with_their_owners_rights_only(void **unused)
{
    (void)unused;
    const uid_t nobody = 65534;
    struct stat st;

    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(f.dir, 0755), 0);
    assert_int_equal(chmod(input, 0600), 0);
    start(NULL, NULL);
    open_as(nobody);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    free(expect_failed(1, "InputDenied", 5));
    assert_int_equal(chown(input, nobody, nobody), 0);
    farm_assign_file(&f, 1, 2, 1, input, 0, SIZE, "b");
    free(expect_failed(2, "OutputDenied", 5));                  /* the folder is root's */
    assert_int_equal(chown(out, nobody, nobody), 0);
    farm_assign_file(&f, 1, 3, 1, input, 0, SIZE, "c");
    expect_done(3, 5);
    farm_verdict(&f, 0, 1, 3, 1, true, out, "c");
    expect_published(3);
    char *file = mem_printf("%s/c.digits", out);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_uid, nobody);
    assert_int_equal(st.st_gid, nobody);
    free(file);
}

/* ---- losing sluiced ------------------------------------------------------------------------------------------- */

static bool status_has(const char *what)
{
    char *path = farm_path(&f, "run/status.json");
    size_t size;
    struct err e;
    char *text = file_read(path, 65536, &size, &e);
    bool has = text != NULL && strstr(text, what) != NULL;

    free(text);
    free(path);
    return has;
}

static bool status_within(const char *what, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);

    while (!status_has(what) && clock_mono_ns() < end)
        run_for(f.loop, 0.05);
    return status_has(what);
}

static void results_survive_the_loss_of_sluiced(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    assert_true(status_within("\"state\": \"running\"", 5));
    farm_open(&f, 0, 1, "slow:300", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    farm_assign_file(&f, 1, 2, 1, input, SIZE, SIZE, "b");
    for (int i = 0; i < 2; i++) {
        struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
        assert_non_null(n.m);
        note_free(&n);
    }
    farm_unlisten(&f);
    assert_true(status_within("\"state\": \"error\"", 5));
    assert_true(status_has("NoScheduler"));
    assert_true(status_has("no connection to sluiced"));
    run_for(f.loop, 0.8);                                       /* both are done by now, and nobody heard of it */
    farm_listen(&f);
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    const Sluice__Register *m = (const Sluice__Register *)r.m;
    assert_int_equal(m->connection, 2);
    assert_int_equal(m->n_held, 2);
    note_free(&r);
    expect_done(1, 5);
    expect_done(2, 5);
    farm_verdict(&f, 0, 1, 1, 1, true, out, "a");
    expect_published(1);
    assert_true(status_within("\"state\": \"running\"", 5));

    /* no verdict on the second before the next loss; then it is forgotten */
    struct tf_id id;
    Sluice__Held held = SLUICE__HELD__INIT, *list[] = { &held };
    tf_id_fill(&id, (struct tf_name){ 0, 1, 2 }, (struct fence){ EPOCH, 1 });
    held.tf = &id.tf;
    held.fence = &id.fence;
    f.forget = list;
    f.n_forget = 1;
    farm_unlisten(&f);
    farm_listen(&f);
    r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    assert_int_equal(((const Sluice__Register *)r.m)->n_held, 1);
    note_free(&r);
    f.n_forget = 0;
    char *names = NULL;
    for (int i = 0; i < 300; i++) {
        names = list_folder(out);
        if (strcmp(names, "a.digits a.digits.json") == 0)
            break;
        free(names);
        run_for(f.loop, 0.01);
    }
    assert_string_equal(names, "a.digits a.digits.json");
    free(names);
    struct note n = farm_take(&f, SLUICE__TYPE__DONE, 0.3);
    assert_null(n.m);
}

static void with_fail_on_loss_it_ends_with_a_status(void **unused)
{
    (void)unused;
    farm_worker(&f, "fail_on_loss = true", shm, NULL);
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    note_free(&r);
    assert_true(farm_report(&f, a_device_is_free, 10));
    farm_unlisten(&f);
    int status = farm_wait(&f, 5);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 6);
}

static void a_second_worker_of_the_name_is_refused(void **unused)
{
    (void)unused;
    start(NULL, NULL);
    pid_t first = f.pid;
    farm_worker(&f, NULL, shm, NULL);
    int status = farm_wait(&f, 5);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 4);
    f.pid = first;
    next_tf_works(1);
}

static bool two_are_processing(const Sluice__Report *r)
{
    return r->processing == 2;
}

/* As its status says, within limit_s. */
static bool ignores_term(pid_t pid, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/status", pid);
    for (;;) {
        char text[4096] = "";
        FILE *file = fopen(path, "r");
        if (file != NULL && fread(text, 1, sizeof text - 1, file) == 0)
            text[0] = '\0';
        if (file != NULL)
            fclose(file);
        const char *at = strstr(text, "SigIgn:");
        if (at != NULL && (strtoull(at + 7, NULL, 16) >> (SIGTERM - 1) & 1))
            return true;
        if (clock_mono_ns() > end)
            return false;
        run_for(f.loop, 0.01);
    }
}

static void it_stops_within_two_seconds_with_a_deaf_process_and_tfs_in_flight(void **unused)
{
    (void)unused;
    start(NULL, "two");
    farm_open(&f, 0, 1, "deaf", out, 0);
    for (unsigned i = 1; i <= 3; i++)
        farm_assign_file(&f, 1, i, 1, input, 0, SIZE, "a");
    for (int i = 0; i < 3; i++) {
        struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
        assert_non_null(n.m);
        note_free(&n);
    }
    assert_true(farm_report(&f, two_are_processing, 5));
    for (int i = 0; i < 2; i++)
        assert_true(ignores_term((pid_t)f.report->devices[i]->pid, 5));
    int64_t begun = clock_mono_ns();
    kill(f.pid, SIGTERM);
    int status = farm_wait(&f, 5);
    int64_t took = clock_mono_ns() - begun;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(took < 2 * CLOCK_SECOND);
    assert_true(took > CLOCK_SECOND / 3);                       /* they were asked first */
}

/* The worker's thread of this name, stopped by itself; 0: it cannot be done here. */
static pid_t stop_thread(const char *name)
{
    char *folder = mem_printf("/proc/%d/task", (int)f.pid);
    DIR *d = opendir(folder);
    struct dirent *entry;
    pid_t found = 0;

    while (found == 0 && d != NULL && (entry = readdir(d)) != NULL) {
        char *path = mem_printf("%s/%s/comm", folder, entry->d_name);
        size_t size;
        char *comm = file_read(path, 100, &size, NULL);
        if (comm != NULL && strcspn(comm, "\n") == strlen(name) && strncmp(comm, name, strlen(name)) == 0)
            found = (pid_t)atoi(entry->d_name);
        free(comm);
        free(path);
    }
    if (d != NULL)
        closedir(d);
    free(folder);
    assert_int_not_equal(found, 0);
    if (ptrace(PTRACE_SEIZE, found, NULL, NULL) < 0)
        return 0;
    assert_int_equal(ptrace(PTRACE_INTERRUPT, found, NULL, NULL), 0);
    assert_int_equal(waitpid(found, NULL, __WALL), found);
    return found;
}

/* As one that waits for a busy disk, or gets no processor: only what hangs is left behind. */
static void a_thread_that_is_late_is_waited_for_at_the_end(void **unused)
{
    (void)unused;
    static const char *const name[] = { "io", "deliver", "slow" };

    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        start(NULL, NULL);
        pid_t thread = stop_thread(name[i]);
        if (thread == 0)
            skip();
        int64_t begun = clock_mono_ns();
        kill(f.pid, SIGTERM);
        run_for(f.loop, 0.6);
        if (ptrace(PTRACE_DETACH, thread, NULL, NULL) < 0)
            waitpid(thread, NULL, __WALL);                   /* it was left behind, and is gone */
        assert_int_equal(farm_wait(&f, 5), 0);
        assert_true(clock_mono_ns() - begun < 2 * CLOCK_SECOND);
        if (f.report != NULL)
            sluice__report__free_unpacked(f.report, NULL);
        f.report = NULL;
    }
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static unsigned scale(unsigned n)
{
    const char *s = getenv("SLUICE_TEST_SCALE");
    return s ? n * (unsigned)atoi(s) : n;
}

static void b61_killed_in_mid_tf_again_and_again_it_adopts_its_buffer_and_ends_the_old_processes(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < scale(5); i++) {
        start(NULL, NULL);
        assert_int_equal(f.report->generation, i + 1);
        farm_open(&f, i + 1, 0, "copy", out, 0);
        farm_open(&f, 0, 1, i % 2 ? "hang" : "deaf", out, 0);
        farm_assign_file(&f, 1, i + 1, 1, input, 0, SIZE, "a");
        struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
        assert_non_null(n.m);
        note_free(&n);
        kill(f.pid, SIGKILL);
        farm_wait(&f, 2);
        if (f.report != NULL)
            sluice__report__free_unpacked(f.report, NULL);
        f.report = NULL;
    }
    start(NULL, NULL);
    assert_int_equal(farm_children(&f), 1);
    char *names = list_folder(shm);
    assert_null(strchr(names, ' '));                            /* one file */
    free(names);
    next_tf_works(99);
}

static void b42_with_64_descriptors_it_does_all_tfs(void **unused)
{
    (void)unused;
    unsigned n = scale(200), sent = 0, done = 0, limit = 0;

    f.files = 64;
    start(NULL, "two");
    farm_open(&f, 0, 1, "two", out, 0);
    while (done < n && limit++ < 100 * n) {
        while (sent < n && sent < done + 6)
            sent++, farm_assign_file(&f, 1, sent, 1, input, sent, 1000, "x");
        struct note note = farm_take(&f, SLUICE__TYPE__DONE, 0.2);
        if (note.m != NULL) {
            done++;
            const Sluice__Done *m = (const Sluice__Done *)note.m;
            farm_verdict(&f, 0, 1, m->tf->id, m->fence->attempt, false, out, "x");
            note_free(&note);
        }
        while ((note = farm_take(&f, SLUICE__TYPE__REFUSED, 0)).m != NULL) {
            const Sluice__Refused *m = (const Sluice__Refused *)note.m;
            assert_string_equal(m->word, "BuildingLimit");
            farm_assign_file(&f, 1, m->tf->id, m->fence->attempt + 1, input, 0, 1000, "x");
            note_free(&note);
        }
    }
    assert_int_equal(done, n);
    assert_true(farm_report(&f, all_is_back, 5));
    assert_int_equal(f.report->restarts, 0);
}

static bool shm_short(const Sluice__Report *r)
{
    return r->word != NULL && strcmp(r->word, "ShmShort") == 0;
}

/* The job's disk is full, what waited for a device went back, the node itself has no trouble. */
static bool job_is_full(const Sluice__Report *r)
{
    return r->n_full_jobs == 1 && r->full_jobs[0]->job == 1 && strstr(r->full_jobs[0]->text, "No space left") != NULL && r->queued == 0 && r->processing == 0 &&
           r->word != NULL && r->word[0] == '\0';
}

static bool all_is_well(const Sluice__Report *r)
{
    return all_is_back(r) && r->n_full_jobs == 0 && r->word != NULL && r->word[0] == '\0';
}

static void private_mounts(const char *path, const char *size)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", path, "tmpfs", 0, size) < 0)
        skip();
}

static void b60_too_little_room_is_said_and_the_node_stays_in_contact(void **unused)
{
    (void)unused;
    private_mounts(shm, "size=64m");
    farm_worker(&f, NULL, shm, "big");
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    assert_int_equal(((const Sluice__Register *)r.m)->buffer_size, 0);
    note_free(&r);
    assert_true(farm_report(&f, shm_short, 5));
    assert_non_null(strstr(f.report->trouble, "128M wanted, 64M available"));
    assert_true(status_within("ShmShort", 3));
    unsigned before = f.reports;
    run_for(f.loop, 2.5);
    assert_true(f.reports >= before + 2);                       /* it lives, and tries again */
    assert_true(shm_short(f.report));
    farm_open(&f, 0, 1, "copy", out, 0);
    farm_assign_file(&f, 1, 1, 1, input, 0, SIZE, "a");
    expect_refused(1, "NoSpace");
    assert_int_equal(mount("none", shm, NULL, MS_REMOUNT, "size=200m"), 0);
    assert_true(farm_report(&f, a_device_is_free, 15));         /* room was made: it goes on by itself */
    assert_int_equal(f.report->buffer_size, 128 << 20);
    kill(f.pid, SIGTERM);
    farm_wait(&f, 5);
    umount(shm);
}

static void a_full_disk_stops_the_job_there_and_loses_nothing(void **unused)
{
    (void)unused;
    private_mounts(out, "size=1m");
    char *ballast = mem_printf("%s/ballast", out);
    make_file(ballast, 900000, 5);
    start(NULL, NULL);
    farm_open(&f, 0, 1, "copy", out, 0);
    for (unsigned i = 1; i <= 8; i++) {
        char stem[16];
        snprintf(stem, sizeof stem, "in.%u", i);
        farm_assign_file(&f, 1, i, 1, input, i, SIZE, stem);
        struct note n = farm_take(&f, SLUICE__TYPE__BUILT, 5);
        assert_non_null(n.m);
        note_free(&n);
    }
    assert_true(farm_report(&f, job_is_full, 5));
    assert_in_range(f.report->delivering, 1, 4);                /* 2 * 1 device + 2: the bound */
    unsigned back = 0;
    for (struct note n; (n = farm_take(&f, SLUICE__TYPE__FAILED, 0.2)).m != NULL; back++) {
        assert_string_equal(((const Sluice__Failed *)n.m)->word, "Cancelled");
        note_free(&n);
    }
    assert_in_range(back, 1, 7);
    unlink(ballast);
    for (unsigned i = back; i < 8; i++) {
        struct note n = farm_take(&f, SLUICE__TYPE__DONE, 15);
        assert_non_null(n.m);
        uint64_t id = ((const Sluice__Done *)n.m)->tf->id;
        assert_true(same_range(input, id, SIZE, ((const Sluice__Done *)n.m)->outputs[0]->file));
        farm_verdict(&f, 0, 1, id, 1, false, out, NULL);
        note_free(&n);
    }
    assert_true(farm_report(&f, all_is_well, 5));
    kill(f.pid, SIGTERM);
    farm_wait(&f, 5);
    umount(out);
    free(ballast);
}

int main(void)
{
#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        here(a_tf_of_a_job_goes_from_its_file_to_its_final_name),
        here(a_rejected_result_leaves_nothing),
        here(the_next_is_read_while_one_is_processed),
        here(what_another_node_wrote_is_published_or_left),
        here(another_file_under_the_final_name_is_never_replaced),
        here(without_output_folder_there_are_no_files),
        here(what_cannot_be_taken_is_refused_with_its_word),
        here(a_file_that_is_not_there_or_too_short_fails_its_tf_only),
        here(a_crash_fails_that_attempt_and_keeps_its_tf),
        here(beyond_the_limit_a_crash_keeps_no_bytes),
        here(b26_a_process_that_ignores_term_and_its_hidden_child_are_gone_when_the_tf_fails),
        here(process_timeout_counts_anew_from_each_stage),
        here(no_progress_for_many_times_the_usual_is_a_stall_that_is_counted_and_kept),
        here(who_gives_signs_of_life_may_take_as_long_as_it_likes),
        here(every_lie_ends_the_process_and_nothing_else),
        here(a_program_that_never_gets_ready_makes_the_device_broken_and_says_why),
        here(a_cancel_ends_what_runs_and_what_waits),
        here(a_million_lines_of_a_process_do_not_disturb),
        here(nice_is_that_of_the_pool_now_and_after_a_crash),
        here(a_worker_of_root_touches_files_with_their_owners_rights_only),
        here(results_survive_the_loss_of_sluiced),
        here(with_fail_on_loss_it_ends_with_a_status),
        here(a_second_worker_of_the_name_is_refused),
        here(it_stops_within_two_seconds_with_a_deaf_process_and_tfs_in_flight),
        here(a_thread_that_is_late_is_waited_for_at_the_end),
        here(b61_killed_in_mid_tf_again_and_again_it_adopts_its_buffer_and_ends_the_old_processes),
        here(b42_with_64_descriptors_it_does_all_tfs),
        here(b60_too_little_room_is_said_and_the_node_stays_in_contact),
        here(a_full_disk_stops_the_job_there_and_loses_nothing),
    };
    const char *only = getenv("ONLY");
    if (only != NULL)
        cmocka_set_test_filter(only);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
