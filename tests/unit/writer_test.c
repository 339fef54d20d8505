/* writer_test.c - the thread that commits: order, refusals, kills, locks of others, a bounded end */
#include "config.h"

#include "writer_rig.h"
#include "state_hold.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

/* ---- the ordinary day ---- */

static void answers_come_in_order_after_batches(void **state)
{
    struct rig g;
    rig_start(&g, *state);
    for (int i = 0; i < 5000; i++) {
        rig_put(&g, (enum change_kind)(i % 3), 10);
        assert_int_equal(g.answered[0] + g.answered[1] + g.answered[2], 0);        /* never from within */
    }
    assert_true(rig_run(&g, rig_all_answered, 60));
    struct writer_state s = rig_state(&g);
    assert_int_equal(g.order_broken, 0);
    assert_int_equal(s.changes, 5000);
    assert_int_equal(s.refused, 0);
    assert_int_equal(s.queued, 0);
    assert_true(s.writable);
    assert_true(s.commits >= 5 && s.commits < 2500);         /* at most 1024 a batch, and batches they are */
    print_message("5000 changes in %" PRIu64 " commits, slowest %.1f ms\n", s.commits, s.slowest_commit_s * 1e3);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static int write_nonsense(struct db *db, void *arg, struct err *e)
{
    (void)arg;
    struct row_mark good_half = mark_of(900000, "n001", "half of a change that fails"), bad = mark_of(900001, NULL, "x");
    return rows_put_mark(db, &good_half, e) < 0 ? -1 : rows_put_mark(db, &bad, e);
}

static int write_refusal(struct db *db, void *arg, struct err *e)
{
    (void)db;
    (void)arg;
    return err_set(e, ERR_STATE, "node n001: not like this");
}

static void a_change_that_fails_takes_only_itself(void **state)
{
    struct rig g;
    rig_start(&g, *state);
    rig_put(&g, CHANGE_NEW, 1);
    struct request *bad = &g.requests[++g.n], *own = &g.requests[++g.n];
    *bad = (struct request){ .rig = &g, .kind = CHANGE_NEW, .id = g.n - 1 };
    *own = (struct request){ .rig = &g, .kind = CHANGE_MARK, .id = g.n };
    writer_put(g.w, CHANGE_NEW, write_nonsense, rig_then, bad);
    writer_put(g.w, CHANGE_MARK, write_refusal, rig_then, own);
    writer_put(g.w, CHANGE_KEEP, write_refusal, NULL, NULL);               /* nobody wants to hear of it */
    rig_put(&g, CHANGE_KEEP, 1);
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(bad->rc, -1);
    assert_non_null(strstr(bad->text, "mark.node"));
    assert_int_equal(own->rc, -1);
    assert_string_equal(own->text, "node n001: not like this");
    assert_int_equal(g.requests[1].rc | g.requests[4].rc, 0);
    assert_int_equal(rig_state(&g).refused, 3);
    assert_true(rig_state(&g).writable);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static void stopping_commits_what_is_queued(void **state)
{
    struct rig g;
    rig_start(&g, *state);
    for (int i = 0; i < 3000; i++)
        rig_put(&g, CHANGE_KEEP, 10);
    assert_int_equal(rig_stop(&g, 30), 0);
    assert_true(rig_all_answered(&g));
    assert_int_equal(g.refused[CHANGE_KEEP], 0);
    rig_audit(&g);
}

static int write_tfs(struct db *db, void *arg, struct err *e)
{
    uint64_t from = *(uint64_t *)arg;
    struct row_run run = { .id = 5, .state = "running", .done = from + 100, .started = 1 };
    for (uint64_t i = 0; i < 100; i++) {
        struct row_run_tf tf = { .run = 5, .tf = from + i, .outcome = "done", .published = 1, .bytes = 1 };
        if (rows_put_run_tf(db, &tf, e) < 0)
            return -1;
    }
    return rows_put_run(db, &run, e);
}

static int count_tf(void *arg, const struct row_run_tf *tf)
{
    (void)tf;
    ++*(uint64_t *)arg;
    return 0;
}

static bool is_pruned(struct rig *g)
{
    struct db *reader = db_open_reader(g->dir, NULL);
    uint64_t n = 0;
    assert_non_null(reader);
    good(rows_load_run_tfs(reader, 5, 0, 100000, count_tf, &n, why));
    db_close(reader);
    return n == 500;
}

static void B39_old_records_go_by_themselves(void **state)
{
    struct rig g;
    uint64_t from[50];
    rig_start(&g, *state);
    for (uint64_t i = 0; i < 50; i++) {
        from[i] = i * 100;
        writer_put(g.w, CHANGE_KEEP, write_tfs, NULL, &from[i]);
    }
    rig_put(&g, CHANGE_MARK, 1);
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_false(is_pruned(&g));
    writer_set_limits(g.w, 35, 500);
    assert_true(rig_run(&g, is_pruned, 20));
    assert_int_equal(rig_stop(&g, 5), 0);
    struct db *db = open_good(*state);
    struct row_counts counts;
    good(rows_count_run_tfs(db, 5, &counts, why));
    assert_int_equal(counts.done, 5000);
    assert_int_equal(counts.bytes_done, 5000);
    db_close(db);
    char *report = NULL;
    good(db_check(*state, &report, why));                    /* its totals still agree */
    free(report);
    rig_audit(&g);
}

/* ---- kills ---- */

enum { ASKS = 4000000 };                  /* 200 lives of a fast disk */

struct ask { uint64_t id; uint32_t kind, size; };
struct answer { uint64_t id, seq; };
struct served { struct ask ask; uint64_t seq; int to; };

static int serve_write(struct db *db, void *arg, struct err *e)
{
    struct served *s = arg;
    struct request r = { .id = s->ask.id, .size = s->ask.size };
    int rc = rig_write(db, &r, e);
    s->seq = r.seq;
    return rc;
}

static void serve_then(void *arg, int rc, const struct err *e)
{
    struct served *s = arg;
    struct answer a = { s->ask.id, s->seq };
    (void)e;
    if (rc < 0 || write(s->to, &a, sizeof a) != (ssize_t)sizeof a)
        _exit(3);
    free(s);
}

struct server { ev_io io; struct writer *w; int to; };

static void serve_ask(struct ev_loop *loop, ev_io *io, int revents)
{
    struct server *v = io->data;
    struct served *s = calloc(1, sizeof *s);
    (void)loop;
    (void)revents;
    if (read(io->fd, &s->ask, sizeof s->ask) != (ssize_t)sizeof s->ask)
        _exit(0);
    s->to = v->to;
    writer_put(v->w, (enum change_kind)s->ask.kind, serve_write, serve_then, s);
}

static void serve(const char *dir, int from, int to)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct db *db = db_open(dir, NULL, NULL);
    if (db == NULL || db_next_epoch(db, NULL) == 0)
        _exit(1);
    struct server v = { .to = to, .w = writer_create(loop, db, NULL) };
    ev_io_init(&v.io, serve_ask, from, EV_READ);
    v.io.data = &v;
    ev_io_start(loop, &v.io);
    ev_run(loop, 0);
    _exit(2);
}

/* The parent's account over all rounds: 0 not asked, 1 asked, 2 acknowledged. */
struct ledger { uint8_t *state; uint64_t *seq; uint64_t asked, acknowledged; };

static void take_answers(struct ledger *l, int fd)
{
    struct answer a;
    while (read(fd, &a, sizeof a) == (ssize_t)sizeof a) {
        assert_in_range(a.id, 1, l->asked);
        assert_int_equal(l->state[a.id], 1);
        l->state[a.id] = 2;
        l->seq[a.id] = a.seq;
        l->acknowledged++;
    }
}

static void ask_one(struct ledger *l, int fd)
{
    struct ask q = { .id = ++l->asked, .kind = (uint32_t)(random() % 3), .size = (uint32_t)(random() % 3000) };
    l->state[q.id] = 1;
    assert_int_equal(write(fd, &q, sizeof q), sizeof q);
}

/* One life of the server: asks come at random until it is killed at a random moment. True when an ask was without answer then. */
static bool one_life(struct ledger *l, const char *dir)
{
    int ask[2], answer[2];
    assert_int_equal(pipe(ask) | pipe2(answer, 0), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(ask[1]);
        close(answer[0]);
        serve(dir, ask[0], answer[1]);
    }
    close(ask[0]);
    close(answer[1]);
    uint64_t before = l->asked, known = l->acknowledged;
    int64_t start = clock_mono_ns(), end = start + (20 + random() % 300) * (CLOCK_SECOND / 1000);
    struct pollfd p = { answer[0], POLLIN, 0 };
    while (clock_mono_ns() < end) {
        if (l->asked - before - (l->acknowledged - known) < 1 + (uint64_t)random() % 40)
            ask_one(l, ask[1]);
        else if (poll(&p, 1, 1) == 1) {
            struct answer a;
            assert_int_equal(read(answer[0], &a, sizeof a), sizeof a);
            l->state[a.id] = 2;
            l->seq[a.id] = a.seq;
            l->acknowledged++;
        }
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status))
        fail_msg("the server ended by itself with %d", WEXITSTATUS(status));
    close(ask[1]);
    take_answers(l, answer[0]);                              /* what it had said before it died counts */
    close(answer[0]);
    return l->acknowledged - known < l->asked - before;
}

struct audit { struct ledger *l; uint64_t marks, lines, twins, last; uint8_t *found; };

static int audit_mark(void *arg, const struct row_mark *m)
{
    struct audit *a = arg;
    assert_in_range(m->id, 1, a->l->asked);
    a->found[m->id] = 1;
    a->marks++;
    return 0;
}

static int audit_line(void *arg, const struct row_event *ev)
{
    struct audit *a = arg;
    assert_true(ev->seq > a->last);
    a->last = ev->seq;
    assert_int_equal(a->found[ev->time], 1);
    if (a->l->state[ev->time] == 2)
        assert_int_equal(a->l->seq[ev->time], ev->seq);
    a->lines++;
    return 0;
}

static void audit(struct ledger *l, const char *dir)
{
    struct audit a = { .l = l, .found = calloc(ASKS, 1) };
    struct db *db = open_good(dir);
    good(rows_load_marks(db, false, audit_mark, &a, why));
    good(rows_load_events(db, NULL, 0, ASKS, audit_line, &a, why));
    good(rows_load_crashes(db, rig_see_twin, &a.twins, why));
    db_close(db);
    assert_int_equal(a.marks, a.lines);                      /* nothing half */
    assert_int_equal(a.marks, a.twins);
    for (uint64_t id = 1; id <= l->asked; id++) {
        if (l->state[id] == 2 && !a.found[id])
            fail_msg("change %" PRIu64 " was acknowledged and is lost", id);
    }
    free(a.found);
}

static void killed_at_random_nothing_acknowledged_is_lost(void **state)
{
    unsigned rounds = scaled(20), between = 0;
    srandom(seed_of_test());
    struct ledger l = { calloc(ASKS, 1), calloc(ASKS, sizeof(uint64_t)), 0, 0 };
    for (unsigned r = 0; r < rounds && l.asked < ASKS - 20000; r++) {
        between += one_life(&l, *state);
        audit(&l, *state);
    }
    print_message("%u kills, %u of them between request and answer; %" PRIu64 " asked, %" PRIu64 " acknowledged, 0 lost\n", rounds, between, l.asked,
                  l.acknowledged);
    assert_true(between * 4 >= rounds);
    assert_true(l.acknowledged > rounds);
    char *report = NULL;
    good(db_check(*state, &report, why));
    free(report);
    free(l.state);
    free(l.seq);
}

/* ---- a lock of another process ---- */

static void put_each_kind_in_turn(struct rig *g)
{
    rig_put(g, (enum change_kind)(g->n % 3), 100);
}

static void lock_for(const char *dir, double seconds)
{
    struct rig g;
    struct holder h;
    rig_start(&g, dir);
    g.on_tick = put_each_kind_in_turn;
    rig_pass(&g, 0.2);
    hold(&h, dir, "BEGIN EXCLUSIVE");
    uint64_t answered = g.answered[0] + g.answered[1] + g.answered[2], n = g.n;
    rig_pass(&g, seconds);
    struct writer_state s = rig_state(&g);
    assert_true(s.writable);                                 /* within the limit it only takes longer */
    assert_true(s.queued > 0);
    uint64_t waited = g.n - n, passed = g.answered[0] + g.answered[1] + g.answered[2] - answered;
    assert_true(passed <= 60);                               /* what was committed before the lock */
    assert_true(s.waiting_s > seconds - 0.5);
    let_go(&h);
    g.on_tick = NULL;
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(g.refused[0] + g.refused[1] + g.refused[2], 0);
    assert_int_equal(g.order_broken, 0);
    print_message("lock for %.1f s: %" PRIu64 " changes came meanwhile, all written after; longest gap of the loop's heartbeat %.0f ms\n", seconds, waited,
                  (double)g.longest_gap / 1e6);
    assert_true(g.longest_gap < CLOCK_SECOND);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static void B35_lock_for_1_s_while_100_changes_a_second_arrive(void **state)
{
    lock_for(*state, 1);
}

static void B35_lock_for_30_s_while_100_changes_a_second_arrive(void **state)
{
    lock_for(*state, is_soak() ? 30 : 3 * (double)scaled(100) / 100);
}

static bool is_not_writable(struct rig *g)
{
    return !rig_state(g).writable;
}

static bool is_writable(struct rig *g)
{
    return rig_state(g).writable;
}

static void B35_beyond_the_limit_it_is_an_alarm_with_a_name(void **state)
{
    struct rig g;
    struct holder h;
    char pid[32];
    rig_start(&g, *state);
    writer_set_limits(g.w, 1, 0);
    hold(&h, *state, "BEGIN EXCLUSIVE");
    struct request *mark = rig_put(&g, CHANGE_MARK, 1), *new = rig_put(&g, CHANGE_NEW, 1), *keep = rig_put(&g, CHANGE_KEEP, 1);
    assert_true(rig_run(&g, is_not_writable, 20));
    rig_pass(&g, 0.1);
    struct writer_state s = rig_state(&g);
    snprintf(pid, sizeof pid, "pid %d", (int)h.pid);
    assert_non_null(strstr(s.why, "locked by another process"));
    assert_non_null(strstr(s.why, pid));
    assert_true(s.since_s >= 1);
    assert_false(writer_accepts_new(g.w));
    assert_true(mark->answered && mark->rc < 0 && new->answered && new->rc < 0);
    assert_false(keep->answered);
    struct request *later = rig_put(&g, CHANGE_NEW, 1);      /* refused without another wait */
    rig_pass(&g, 0.1);
    assert_true(later->answered && later->rc < 0 && strstr(later->text, "locked"));
    assert_int_equal(rig_state(&g).kept, 1);
    let_go(&h);
    assert_true(rig_run(&g, is_writable, 20));
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(keep->rc, 0);
    struct request *again = rig_put(&g, CHANGE_NEW, 1);
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(again->rc, 0);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static void stopping_is_bounded_while_somebody_holds_the_lock(void **state)
{
    struct rig g;
    struct holder h;
    rig_start(&g, *state);
    hold(&h, *state, "BEGIN EXCLUSIVE");
    rig_put(&g, CHANGE_KEEP, 1);
    rig_put(&g, CHANGE_MARK, 1);
    rig_pass(&g, 0.2);
    int64_t start = clock_mono_ns();
    assert_int_equal(rig_stop(&g, 1), 2);
    double took = (double)(clock_mono_ns() - start) / 1e9;
    print_message("stopped in %.2f s\n", took);
    assert_true(took < 2);
    assert_true(rig_all_answered(&g));                       /* they hear that it was not written */
    assert_int_equal(g.refused[CHANGE_KEEP] + g.refused[CHANGE_MARK], 2);
    let_go(&h);
    rig_audit(&g);
}

static bool log_is_small(struct rig *g)
{
    return rig_state(g).log_bytes == 0;
}

static bool nothing_waits(struct rig *g)
{
    return rig_state(g).queued == 0 && rig_state(g).waiting_s == 0;
}

static int write_tick(struct db *db, void *arg, struct err *e)
{
    char now[24];
    (void)arg;
    snprintf(now, sizeof now, "%" PRId64, clock_wall_ns());
    return rows_put_setting(db, "tick", now, e);
}

/* 500 changes a second. */
static void five_changes(struct rig *g)
{
    for (int i = 0; i < 5; i++)
        writer_put(g->w, CHANGE_KEEP, write_tick, NULL, NULL);
}

/* The reader stays for an hour in soak. */
static void B36_the_log_shrinks_by_itself_when_idle(void **state)
{
    struct rig g;
    struct holder h;
    rig_start(&g, *state);
    rig_put(&g, CHANGE_NEW, 1);
    assert_true(rig_run(&g, rig_all_answered, 20));
    hold(&h, *state, "BEGIN; SELECT count(*) FROM mark");
    for (int i = 0; i < 500; i++)
        rig_put(&g, CHANGE_KEEP, 40000);
    assert_true(rig_run(&g, rig_all_answered, 60));
    uint64_t grown = rig_state(&g).log_bytes;
    assert_true(grown > 500 * 40000);
    g.on_tick = five_changes;
    rig_pass(&g, getenv("SLUICE_SOAK") ? 3600 : 1.5);
    g.on_tick = NULL;
    /* A commit after the reader has ended would itself begin the log anew, and leave it at its usual size. */
    assert_true(rig_run(&g, nothing_waits, 20));
    assert_true(rig_state(&g).log_bytes > grown);
    grown = rig_state(&g).log_bytes;
    let_go(&h);
    assert_true(rig_run(&g, log_is_small, getenv("SLUICE_SOAK") ? 120 : 10));
    print_message("log: %" PRIu64 " KiB, 0 after the reader ended\n", grown >> 10);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

/* Into the file that is there, if there is one. */
static void copy_file(const char *from, const char *to)
{
    static char block[1 << 20];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT, 0600);
    ssize_t n;

    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, block, sizeof block)) > 0)
        assert_int_equal(write(out, block, (size_t)n), n);
    assert_int_equal(n, 0);
    close(in);
    close(out);
}

/* Reads every mark, so that it meets what is damaged, wherever that is. */
static int write_after_reading_all(struct db *db, void *arg, struct err *e)
{
    uint64_t n = 0;
    return rows_load_marks(db, false, count_mark, &n, e) < 0 ? -1 : rig_write(db, arg, e);
}

static void never_writable(struct rig *g)
{
    struct writer_state s = rig_state(g);
    assert_false(s.writable);
    assert_true(s.broken);
}

static void a_file_cut_short_stays_an_alarm_until_it_is_whole_again(void **state)
{
    struct rig g;
    char path[256], copy[256];
    snprintf(path, sizeof path, "%s/state.db", (char *)*state);
    snprintf(copy, sizeof copy, "%s/copy", (char *)*state);
    rig_start(&g, *state);
    for (int i = 0; i < 500; i++)
        rig_put(&g, CHANGE_KEEP, 40000);
    assert_true(rig_run(&g, rig_all_answered, 60));
    assert_true(rig_run(&g, log_is_small, 20));
    copy_file(path, copy);
    assert_int_equal(truncate(path, 8 << 20), 0);
    struct request *meets = &g.requests[++g.n];
    *meets = (struct request){ .rig = &g, .kind = CHANGE_NEW, .id = g.n, .size = 1 };
    writer_put(g.w, CHANGE_NEW, write_after_reading_all, rig_then, meets);
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(meets->rc, -1);
    assert_non_null(strstr(meets->text, "state.db is damaged"));
    g.on_tick = never_writable;
    struct request *mark = rig_put(&g, CHANGE_MARK, 1), *keep = rig_put(&g, CHANGE_KEEP, 1);
    rig_pass(&g, 2);                                         /* some tries are made meanwhile */
    assert_true(mark->answered && mark->rc < 0 && strstr(mark->text, "state.db is damaged"));
    assert_false(keep->answered);
    g.on_tick = NULL;
    copy_file(copy, path);
    assert_true(rig_run(&g, rig_all_answered, 20));
    assert_int_equal(keep->rc, 0);
    assert_true(rig_state(&g).writable);
    assert_false(rig_state(&g).broken);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

int main(int argc, char **argv)
{
    hold_main(argc, argv);
#define T(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        T(answers_come_in_order_after_batches), T(a_change_that_fails_takes_only_itself), T(stopping_commits_what_is_queued), T(B39_old_records_go_by_themselves),
        T(killed_at_random_nothing_acknowledged_is_lost), T(B35_lock_for_1_s_while_100_changes_a_second_arrive),
        T(B35_lock_for_30_s_while_100_changes_a_second_arrive), T(B35_beyond_the_limit_it_is_an_alarm_with_a_name),
        T(stopping_is_bounded_while_somebody_holds_the_lock), T(B36_the_log_shrinks_by_itself_when_idle),
        T(a_file_cut_short_stays_an_alarm_until_it_is_whole_again),
    };
    cmocka_set_test_filter(getenv("SLUICE_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
