/* rows_test.c - what is put comes back, column by column, in its order */
#include "config.h"

#include "state_test.h"

#include "str.h"

/* Every text field of a row gets a text of its own, every number a number of its own, so that a column in the wrong place is seen. */
static const struct row_node NODE = { .name = "mi50-001", .class = "mi50", .pool = "online", .wanted_pool = "async", .added = 11, .retired = 12,
                                      .shm_wanted = UINT64_MAX, .nice_wanted = -7 };
static const struct row_mark MARK = { .id = 1, .node = "n1", .part = "gpu-serial", .owner_kind = "user", .owner = "ops", .class = "hw", .severity = "block",
                                      .reason = "it's \"broken\"; DROP TABLE mark;--\n\t\xc3\xa4", .evidence = "see log", .created = 21, .until = 22, .cleared = 0,
                                      .cleared_by = NULL, .clear_reason = NULL };
static const struct row_boot BOOT = { .node = "n3", .boot = "6f1c-2" };
static const struct row_device DEVICE = { .node = "n3", .serial = "GPU-1f", .place = 7, .seen = 26, .forgotten = 0 };
static const struct row_move MOVE = { .id = 2, .node = "n2", .to = "async", .when = "drained", .state = "waiting", .requested_by = "expert", .text = "t",
                                      .at = 31, .deadline = 32, .created = 33, .ended = 0 };
static const struct row_job JOB = { .id = 4, .name = "j", .owner = "o", .key = "k", .state = "waiting", .workflow = "decode", .backends = "decode=cpu",
                                    .options = "a.b=c", .output = "/out", .text = "tx", .classes = "mi50,mi100", .uid = 4000000000u, .gid = 41,
                                    .priority = -3, .attempts = 5, .time_limit = 1.5, .tasks = 42, .done = 43, .failed = 44, .skipped = 45, .cancelled = 46,
                                    .retried = 47, .submitted = 48, .begin = 49, .ended = 0, .nice = -19, .nice_min = -18, .nice_max = 17, .folder = "/real/out", .unswept = true };
static const struct row_task TASK = { .job = 4, .number = 6, .state = "done", .node = "n", .device = "d", .code = "c", .text = "t", .digest = "dg", .stem = "s",
                                      .epoch = 61, .attempt = 62, .published = 1, .seconds = 6.25, .time = 63 };
static const struct row_crash CRASH = { .id = 7, .time = 71, .node = "n", .device = "d", .word = "SIGSEGV", .text = "t", .folder = "f", .workflow = "w",
                                        .run = 72, .job = 73, .tf = 74, .bytes = 75, .attempt = 76, .purged = 77 };
static const struct row_run_tf TF = { .run = 3, .tf = 9, .outcome = "done", .reason = "r", .node = "n", .device = "d", .digest = "g", .stem = "s", .epoch = 51,
                                      .attempt = 52, .incomplete = true, .published = 0, .seconds = 0.125, .bytes = UINT64_C(1) << 40, .time = 53 };

static struct row_run run_row(void)
{
    struct row_run r = { .id = 3, .name = "nm", .state = "running", .workflow = "wf", .backends = "be", .options = "op", .policy = "buffer", .keep = "until-done",
                         .incomplete_rule = "drop", .output = "ou", .owner = "ow", .text = "tx", .sources = 81, .min_nodes = 82, .in_flight = 83,
                         .announced = 84, .dispatched = 85, .done = 86, .failed = 87, .dropped = 88, .lost = 89, .incomplete = 90, .bytes_done = 91,
                         .dropped_by = "QueueFull 3,Short 1", .started = 92, .ended = 0, .nice = 100, .nice_min = -9, .nice_max = 8 };
    for (int i = 0; i < 32; i++)
        r.key[i] = (uint8_t)(i * 8);
    return r;
}

#define SAME_TEXT(f) if (!str_equal(a->f, b->f)) fail_msg("%s: \"%s\" became \"%s\"", #f, a->f, b->f)
#define SAME(f)      if (a->f != b->f) fail_msg("%s differs", #f)

static int see_node(void *arg, const struct row_node *b)
{
    const struct row_node *a = &NODE;
    ++*(int *)arg;
    SAME_TEXT(name); SAME_TEXT(class); SAME_TEXT(pool); SAME_TEXT(wanted_pool);
    SAME(added); SAME(retired); SAME(shm_wanted); SAME(nice_wanted);
    return 0;
}

static int see_mark(void *arg, const struct row_mark *b)
{
    const struct row_mark *a = &MARK;
    ++*(int *)arg;
    SAME(id); SAME_TEXT(node); SAME_TEXT(part); SAME_TEXT(owner_kind); SAME_TEXT(owner); SAME_TEXT(class); SAME_TEXT(severity); SAME_TEXT(reason);
    SAME_TEXT(evidence); SAME(created); SAME(until); SAME(cleared); SAME_TEXT(cleared_by); SAME_TEXT(clear_reason);
    return 0;
}

static int see_device(void *arg, const struct row_device *b)
{
    const struct row_device *a = &DEVICE;
    ++*(int *)arg;
    SAME_TEXT(node); SAME_TEXT(serial);
    SAME(place); SAME(seen); SAME(forgotten);
    return 0;
}

static int see_boot(void *arg, const struct row_boot *b)
{
    const struct row_boot *a = &BOOT;
    ++*(int *)arg;
    SAME_TEXT(node); SAME_TEXT(boot);
    return 0;
}

static int see_move(void *arg, const struct row_move *b)
{
    const struct row_move *a = &MOVE;
    ++*(int *)arg;
    SAME(id); SAME_TEXT(node); SAME_TEXT(to); SAME_TEXT(when); SAME_TEXT(state); SAME_TEXT(requested_by); SAME_TEXT(text); SAME(at); SAME(deadline);
    SAME(created); SAME(ended);
    return 0;
}

static int see_run(void *arg, const struct row_run *b)
{
    struct row_run r = run_row();
    const struct row_run *a = &r;
    ++*(int *)arg;
    SAME(id); SAME_TEXT(name); SAME_TEXT(state); SAME_TEXT(workflow); SAME_TEXT(backends); SAME_TEXT(options); SAME_TEXT(policy); SAME_TEXT(keep);
    SAME_TEXT(incomplete_rule); SAME_TEXT(output); SAME_TEXT(owner); SAME_TEXT(text); SAME(sources); SAME(min_nodes); SAME(in_flight);
    SAME(announced); SAME(dispatched); SAME(done); SAME(failed); SAME(dropped); SAME(lost); SAME(incomplete); SAME(bytes_done); SAME_TEXT(dropped_by);
    SAME(started); SAME(ended); SAME(nice); SAME(nice_min); SAME(nice_max);
    assert_memory_equal(a->key, b->key, 32);
    return 0;
}

static int see_tf(void *arg, const struct row_run_tf *b)
{
    const struct row_run_tf *a = &TF;
    ++*(int *)arg;
    SAME(run); SAME(tf); SAME_TEXT(outcome); SAME_TEXT(reason); SAME_TEXT(node); SAME_TEXT(device); SAME_TEXT(digest); SAME_TEXT(stem); SAME(epoch);
    SAME(attempt); SAME(incomplete); SAME(published); SAME(seconds); SAME(bytes); SAME(time);
    return 0;
}

static int see_job(void *arg, const struct row_job *b)
{
    const struct row_job *a = &JOB;
    ++*(int *)arg;
    SAME(id); SAME_TEXT(name); SAME_TEXT(owner); SAME_TEXT(key); SAME_TEXT(state); SAME_TEXT(workflow); SAME_TEXT(backends); SAME_TEXT(options);
    SAME_TEXT(output); SAME_TEXT(text); SAME_TEXT(classes); SAME(uid); SAME(gid); SAME(priority); SAME(attempts); SAME(time_limit); SAME(tasks);
    SAME(done); SAME(failed); SAME(skipped); SAME(cancelled); SAME(retried); SAME(submitted); SAME(begin); SAME(ended); SAME(nice); SAME(nice_min); SAME(nice_max);
    SAME_TEXT(folder); SAME(unswept);
    return 0;
}

static const uint64_t EXTENTS[] = { 0, 4096, 4096, 12345, UINT64_MAX, 1 };

static int see_file(void *arg, const struct row_job_file *b)
{
    int n = ++*(int *)arg;
    assert_int_equal(b->job, 4);
    assert_int_equal(b->number, n);                      /* in order, though put the other way round */
    assert_int_equal(b->first_task, 100 * n);
    assert_int_equal(b->tfs, 3);
    if (n == 1) {
        assert_int_equal(b->extents_size, sizeof EXTENTS);
        assert_memory_equal(b->extents, EXTENTS, sizeof EXTENTS);
        assert_string_equal(b->path, "/data/one.tf");
        assert_null(b->text);
    } else {
        assert_int_equal(b->extents_size, 0);
        assert_string_equal(b->text, "skipped: it is a folder");
    }
    return 0;
}

static int see_task(void *arg, const struct row_task *b)
{
    const struct row_task *a = &TASK;
    ++*(int *)arg;
    SAME(job); SAME(number); SAME_TEXT(state); SAME_TEXT(node); SAME_TEXT(device); SAME_TEXT(code); SAME_TEXT(text); SAME_TEXT(digest); SAME_TEXT(stem);
    SAME(epoch); SAME(attempt); SAME(published); SAME(seconds); SAME(time);
    return 0;
}

static int see_crash(void *arg, const struct row_crash *b)
{
    const struct row_crash *a = &CRASH;
    ++*(int *)arg;
    SAME(id); SAME(time); SAME_TEXT(node); SAME_TEXT(device); SAME_TEXT(word); SAME_TEXT(text); SAME_TEXT(folder); SAME_TEXT(workflow); SAME(run);
    SAME(job); SAME(tf); SAME(bytes); SAME(attempt); SAME(purged);
    return 0;
}

static void put_all(struct db *db)
{
    struct row_run run = run_row();
    struct row_job_file two = { .job = 4, .number = 2, .path = "/data/two", .first_task = 200, .tfs = 3, .text = "skipped: it is a folder" };
    struct row_job_file one = { .job = 4, .number = 1, .path = "/data/one.tf", .first_task = 100, .tfs = 3, .extents = EXTENTS, .extents_size = sizeof EXTENTS };
    good(db_begin(db, why));
    good(rows_put_node(db, &NODE, why));
    good(rows_put_mark(db, &MARK, why));
    good(rows_put_move(db, &MOVE, why));
    struct row_device old = DEVICE;
    old.serial = "GPU-0e";
    old.forgotten = 27;
    good(rows_put_device(db, &old, why));
    old.forgotten = 0;
    old.node = "n2";
    good(rows_put_device(db, &old, why));
    old.forgotten = 28;                  /* the same device again: one row */
    good(rows_put_device(db, &old, why));
    good(rows_put_device(db, &DEVICE, why));
    good(rows_put_boot(db, &(struct row_boot){ .node = "n3", .boot = "6f1c-1" }, why));
    good(rows_put_boot(db, &BOOT, why));                                     /* the later one holds */
    good(rows_put_run(db, &run, why));
    good(rows_put_run_tf(db, &TF, why));
    good(rows_put_job(db, &JOB, why));
    good(rows_put_job_file(db, &two, why));
    good(rows_put_job_file(db, &one, why));
    good(rows_put_task(db, &TASK, why));
    good(rows_put_crash(db, &CRASH, why));
    good(db_commit(db, why));
}

static void see_all(struct db *db)
{
    int n = 0;
    good(rows_load_nodes(db, see_node, &n, why));
    good(rows_load_marks(db, true, see_mark, &n, why));
    good(rows_load_devices(db, see_device, &n, why));
    good(rows_load_boots(db, see_boot, &n, why));
    good(rows_load_moves(db, true, see_move, &n, why));
    good(rows_load_runs(db, true, see_run, &n, why));
    good(rows_load_run_tfs(db, 3, 0, 10, see_tf, &n, why));
    good(rows_load_jobs(db, true, see_job, &n, why));
    good(rows_load_tasks(db, 4, see_task, &n, why));
    good(rows_load_crashes(db, see_crash, &n, why));
    assert_int_equal(n, 10);
    n = 0;
    good(rows_load_job_files(db, 4, see_file, &n, why));
    assert_int_equal(n, 2);
}

static void every_column_comes_back(void **state)
{
    struct db *db = open_good(*state);
    put_all(db);
    see_all(db);
    put_all(db);                                         /* by key: the same rows, not second ones */
    see_all(db);
    db_close(db);
    db = open_good(*state);
    see_all(db);
    struct row_ids ids;
    good(rows_load_ids(db, &ids, why));
    assert_int_equal(ids.mark, 1);
    assert_int_equal(ids.move, 2);
    assert_int_equal(ids.run, 3);
    assert_int_equal(ids.job, 4);
    assert_int_equal(ids.crash, 7);
    assert_int_equal(ids.event, 0);
    db_close(db);
}

static void what_ended_is_not_open(void **state)
{
    struct db *db = open_good(*state);
    put_all(db);
    struct row_mark mark = MARK;
    struct row_move move = MOVE;
    struct row_run run = run_row();
    struct row_job job = JOB;
    struct row_run_tf tf = TF;
    mark.cleared = move.ended = run.ended = job.ended = 5;
    tf.published = 1;
    good(db_begin(db, why));
    good(rows_put_mark(db, &mark, why));
    good(rows_put_move(db, &move, why));
    good(rows_put_run(db, &run, why));
    good(rows_put_job(db, &job, why));
    good(rows_put_run_tf(db, &tf, why));
    good(db_commit(db, why));
    int n = 0;
    good(rows_load_marks(db, true, see_mark, &n, why));
    good(rows_load_moves(db, true, see_move, &n, why));
    good(rows_load_runs(db, true, see_run, &n, why));
    good(rows_load_jobs(db, true, see_job, &n, why));
    assert_int_equal(n, 0);
    db_close(db);
}

struct history { uint64_t seq[300]; int n; int stop_at; };

static int see_event(void *arg, const struct row_event *ev)
{
    struct history *h = arg;
    h->seq[h->n++] = ev->seq;
    assert_string_equal(ev->who, "shift");
    assert_string_equal(ev->what, "mark");
    return h->n == h->stop_at ? 42 : 0;
}

static void history_grows_and_is_asked_by_node_time_and_number(void **state)
{
    struct db *db = open_good(*state);
    uint64_t last = 0;
    for (unsigned i = 1; i <= 100; i++) {
        uint64_t seq = 0;
        good(db_begin(db, why));
        good(put_mark_with_line(db, i, i % 2 ? "odd" : "even", "r", &seq, why));
        if (i % 10 == 0) {
            db_rollback(db);                             /* its number may come again: nobody ever heard of it */
            continue;
        }
        good(db_commit(db, why));
        assert_true(seq > last);
        last = seq;
    }
    struct history h = { 0 };
    good(rows_load_events(db, NULL, 0, 1000, see_event, &h, why));
    assert_int_equal(h.n, 90);
    for (int i = 1; i < h.n; i++)
        assert_true(h.seq[i] > h.seq[i - 1]);
    assert_int_equal(h.seq[89], last);
    h = (struct history){ 0 };
    good(rows_load_events(db, NULL, 0, 7, see_event, &h, why));
    assert_int_equal(h.n, 7);
    assert_int_equal(h.seq[6], last);                    /* the newest seven, oldest first */
    h = (struct history){ 0 };
    good(rows_load_events(db, "even", 0, 1000, see_event, &h, why));
    assert_int_equal(h.n, 40);
    h = (struct history){ 0 };
    good(rows_load_events(db, "odd", 91, 1000, see_event, &h, why));
    assert_int_equal(h.n, 5);
    h = (struct history){ .stop_at = 3 };
    assert_int_equal(rows_load_events(db, NULL, 0, 1000, see_event, &h, NULL), 42);
    assert_int_equal(h.n, 3);
    db_close(db);
    /* numbers are never given twice, even when the newest line is gone from the table */
    db = open_good(*state);
    uint64_t seq = 0;
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1000, "odd", "r", &seq, why));
    good(db_commit(db, why));
    assert_int_equal(seq, last + 1);
    db_close(db);
}

/* ---- growth ---- */

static int count_job(void *arg, const struct row_job *j)
{
    *(uint64_t *)arg += j->done;
    return 0;
}

static int count_task(void *arg, const struct row_task *t)
{
    (void)t;
    ++*(uint64_t *)arg;
    return 0;
}

static int count_file(void *arg, const struct row_job_file *f)
{
    (void)f;
    ++*(uint64_t *)arg;
    return 0;
}

static int count_any_mark(void *arg, const struct row_mark *m)
{
    (void)m;
    ++*(uint64_t *)arg;
    return 0;
}

static int count_node(void *arg, const struct row_node *n)
{
    (void)n;
    ++*(uint64_t *)arg;
    return 0;
}

/* A job of n tasks in files of a hundred, one in ten of them at its second try, that is over. */
static void put_whole_job(struct db *db, uint64_t id, unsigned n)
{
    static const uint64_t extents[200];
    struct row_job job = JOB;
    char key[24];

    snprintf(key, sizeof key, "night-%" PRIu64, id);
    job.id = id;
    job.key = key;
    job.state = "done";
    job.tasks = job.done = n;
    job.failed = job.skipped = job.cancelled = 0;
    job.ended = 50;
    good(db_begin(db, why));
    good(rows_put_job(db, &job, why));
    for (unsigned i = 0; i < n; i++) {
        struct row_task t = { .job = id, .number = i, .state = "done", .node = "mi50-001", .device = "emu-mi50-001-0", .code = "Done", .digest = "0123456789abcdef",
                              .stem = "tf-123456", .epoch = 1, .attempt = 1 + (i % 10 == 9), .published = 1, .seconds = 0.3, .time = 1, .log = "/var/log/sluice/1_1.1" };
        struct row_job_file f = { .job = id, .number = i / 100, .path = "/data/night/tf-0001.tf", .first_task = i, .tfs = 100, .extents = extents,
                                  .extents_size = sizeof extents };
        good(rows_put_task(db, &t, why));
        if (i % 10 == 9) {
            t.attempt = 1;
            t.state = "failed";
            t.code = "NodeLost";
            good(rows_put_attempt(db, &t, why));
        }
        if (i % 100 == 0)
            good(rows_put_job_file(db, &f, why));
    }
    good(db_commit(db, why));
}

static void prune_whole_job(struct db *db, uint64_t id)
{
    enum { AT_ONCE = 5000 };
    int gone;

    do {
        good(db_begin(db, why));
        gone = rows_prune_job(db, id, AT_ONCE, NULL);
        assert_true(gone >= 0 && gone <= AT_ONCE);
        good(db_commit(db, why));
    } while (gone == AT_ONCE);
}

/* B39: a million tasks, of which those of the newest two jobs are kept: the file has a size, the start and the list of nodes know nothing of them. */
static void B39_tasks_of_jobs_do_not_swell_the_database(void **state)
{
    const uint64_t jobs = 20, all = is_soak() ? 1000000 : scaled(60000);
    const unsigned each = (unsigned)(all / jobs);
    const char *file = in(*state, "state.db");
    struct db *db = open_good(*state);
    struct history h = { 0 };
    struct stat st;
    off_t half = 0;
    uint64_t n;

    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "stays", NULL, why));
    good(put_mark_with_line(db, 2, "n001", "stays, though it is cleared", NULL, why));
    struct row_mark cleared = mark_of(2, "n001", "stays, though it is cleared");
    cleared.cleared = 5;
    good(rows_put_mark(db, &cleared, why));
    for (int i = 0; i < 350; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%03d", i);
        struct row_node node = { .name = name, .class = "mi50", .pool = "online", .added = 1 };
        good(rows_put_node(db, &node, why));
    }
    good(db_commit(db, why));
    for (uint64_t id = 1; id <= jobs; id++) {
        put_whole_job(db, id, each);
        if (id > 2)
            prune_whole_job(db, id - 2);
        if (id == jobs / 2) {
            assert_int_equal(stat(file, &st), 0);
            half = st.st_size;
        }
    }
    db_close(db);
    assert_int_equal(stat(file, &st), 0);
    int64_t start = clock_mono_ns();
    db = open_good(*state);
    double opening = (double)(clock_mono_ns() - start) / 1e9;
    start = clock_mono_ns();
    n = 0;
    good(rows_load_nodes(db, count_node, &n, why));
    double listing = (double)(clock_mono_ns() - start) / 1e9;
    assert_int_equal(n, 350);
    for (uint64_t id = 1; id <= jobs; id++) {
        uint64_t tasks = 0, files = 0, tries = 0;
        good(rows_load_tasks(db, id, count_task, &tasks, why));
        good(rows_load_job_files(db, id, count_file, &files, why));
        good(rows_load_attempts(db, id, 9, 0, count_task, &tries, why));
        assert_int_equal(tasks, id > jobs - 2 ? each : 0);
        assert_int_equal(files, id > jobs - 2 ? (each + 99) / 100 : 0);
        assert_int_equal(tries, id > jobs - 2 ? 2 : 0);
    }
    n = 0;
    good(rows_load_jobs(db, false, count_job, &n, why));
    assert_int_equal(n, jobs * each);                    /* what became of them stays */
    n = 0;
    good(rows_load_marks(db, false, count_any_mark, &n, why));
    assert_int_equal(n, 2);
    good(rows_load_events(db, "n001", 0, 1000, see_event, &h, why));
    assert_int_equal(h.n, 2);
    db_close(db);
    print_message("%" PRIu64 " tasks: file %lld KiB (%lld KiB at half), start %.3f s, list of 350 nodes %.1f ms\n", jobs * each, (long long)st.st_size >> 10,
                  (long long)half >> 10, opening, listing * 1e3);
    assert_true(st.st_size <= half + half / 4);
    assert_true(opening < 5);
    assert_true(listing < 0.1);
}

static int collect_tf(void *arg, const struct row_run_tf *tf)
{
    struct history *h = arg;
    h->seq[h->n++] = tf->tf;
    return 0;
}

static void time_frames_come_by_pages(void **state)
{
    struct db *db = open_good(*state);
    good(db_begin(db, why));
    for (unsigned i = 0; i < 100; i++) {
        struct row_run_tf tf = TF;
        tf.tf = 99 - i;
        tf.run = 3 + i % 2;
        good(rows_put_run_tf(db, &tf, why));
    }
    good(db_commit(db, why));
    struct history h = { 0 };
    good(rows_load_run_tfs(db, 3, 50, 10, collect_tf, &h, why));
    assert_int_equal(h.n, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(h.seq[i], 51 + 2 * (unsigned)i);
    db_close(db);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        T(every_column_comes_back), T(what_ended_is_not_open), T(history_grows_and_is_asked_by_node_time_and_number), T(time_frames_come_by_pages),
        T(B39_tasks_of_jobs_do_not_swell_the_database),
    };
    cmocka_set_test_filter(getenv("SLUICE_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
