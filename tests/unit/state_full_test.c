/* state_full_test.c - the disk of the state fills, on a real small file system, and has room again
 *
 * Mounts a tmpfs of 20 MB in a mount namespace of its own, so that nothing is left behind; without root it runs itself again under
 * `unshare -rm`. Where neither is allowed it says so and exits with 77.
 */
#include "config.h"

#include "writer_rig.h"

#include <errno.h>
#include <sched.h>
#include <sys/mount.h>

static char mount_point[] = "/tmp/sluice-full-XXXXXX";

/* ---- a small disk ---- */

static int mount_small(void **state)
{
    *state = mount_point;
    return mount("sluice-test", mount_point, "tmpfs", 0, "size=20m");
}

static int unmount_small(void **state)
{
    (void)state;
    return umount2(mount_point, MNT_DETACH);
}

/* Takes what room there is, to the last byte. */
static void fill_disk(void)
{
    static char block[65536];
    int fd = open(in(mount_point, "filler"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t size = sizeof block; size > 0;)
        if (write(fd, block, size) <= 0)
            size /= 2;
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

static void free_disk(void)
{
    assert_int_equal(unlink(in(mount_point, "filler")), 0);
}

static bool reserve_is_there(const char *dir)
{
    struct stat st;
    return stat(in(dir, "state.reserve"), &st) == 0 && st.st_size == 4 << 20 && st.st_blocks * 512 >= 4 << 20;
}

/* ---- the database alone ---- */

static void the_reserve_lets_marks_in(void **state)
{
    const char *dir = in(*state, "state");
    struct err e = { 0 };
    struct db *db = open_good(dir);
    assert_true(reserve_is_there(dir));
    char big[8000];
    memset(big, 'b', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    fill_disk();
    uint64_t stored = 0;
    int rc = 0;
    for (uint64_t id = 1; id < 2000 && rc == 0; id++) {          /* what the log has of its own is used up first */
        good(db_begin(db, why));
        rc = put_mark_with_line(db, id, "n001", big, NULL, &e) < 0 || db_commit(db, &e) < 0 ? -1 : 0;
        stored += rc == 0;
    }
    assert_int_equal(rc, -1);
    assert_true(db_full(db));
    assert_false(db_locked(db));
    assert_int_equal(e.code, ERR_STATE);
    assert_non_null(strstr(e.text, dir));
    db_rollback(db);
    assert_int_equal(marks_in(db, true), stored);
    db_use_reserve(db);
    assert_false(reserve_is_there(dir));
    for (uint64_t id = 10001; id <= 10200; id++) {
        good(db_begin(db, why));
        good(put_mark_with_line(db, id, "n001", "needs no more than a line", NULL, why));
        good(db_commit(db, why));
    }
    assert_int_equal(marks_in(db, true), stored + 200);
    fill_disk();                                                 /* somebody takes that as well */
    assert_int_equal(db_reserve(db), -1);
    assert_int_not_equal(access(in(dir, "state.reserve"), F_OK), 0);
    free_disk();
    assert_int_equal(db_reserve(db), 0);
    assert_true(reserve_is_there(dir));
    good(db_probe(db, why));
    db_close(db);
    char *report = NULL;
    good(db_check(dir, &report, why));
    free(report);
}

static void it_starts_on_a_full_disk(void **state)
{
    const char *dir = in(*state, "state");
    struct db *db = open_good(dir);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "before", NULL, why));
    good(db_commit(db, why));
    struct err e = { 0 };
    assert_int_equal(db_next_epoch(db, &e), 1);
    db_close(db);
    fill_disk();
    db = open_good(dir);
    if (db_next_epoch(db, &e) != 2)
        fail_msg("%s", e.text);
    assert_int_equal(marks_in(db, true), 1);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 2, "n001", "on the full disk", NULL, why));
    good(db_commit(db, why));
    db_close(db);
    free_disk();
    db = open_good(dir);
    assert_int_equal(db_next_epoch(db, &e), 3);
    assert_int_equal(marks_in(db, true), 2);
    assert_true(reserve_is_there(dir));
    db_close(db);
}

static void a_first_start_without_room_says_so_and_leaves_nothing(void **state)
{
    const char *dir = in(*state, "state");
    struct err e = { 0 };
    fill_disk();
    assert_null(db_open(dir, NULL, &e));
    print_message("%s\n", e.text);
    assert_int_not_equal(e.code, ERR_NONE);
    free_disk();
    db_close(open_good(dir));
}

static void a_backup_without_room_leaves_nothing(void **state)
{
    const char *dir = in(*state, "state"), *file = in(*state, "copy.db");
    struct err e = { 0 };
    struct db *db = open_good(dir);
    fill_disk();
    assert_int_equal(db_backup(dir, file, &e), -1);
    assert_int_not_equal(access(file, F_OK), 0);
    free_disk();
    good(db_backup(dir, file, why));
    db_close(db);
}

/* ---- the writer ---- */

static void traffic(struct rig *g)
{
    rig_put(g, CHANGE_KEEP, 3000);
    if (g->n % 4 == 0)
        rig_put(g, CHANGE_MARK, 50);
    if (g->n % 4 == 2)
        rig_put(g, CHANGE_NEW, 50);
}

static bool is_not_writable(struct rig *g)
{
    return !rig_state(g).writable;
}

static bool is_well(struct rig *g)
{
    struct writer_state s = rig_state(g);
    return s.writable && s.reserve && s.kept < 100;
}

static bool mark_refused(struct rig *g)
{
    return g->refused[CHANGE_MARK] > 0;
}

static struct request *awaited;

static bool is_answered(struct rig *g)
{
    (void)g;
    return awaited->answered;
}

/* One flood and its ebb. */
static void flood(struct rig *g)
{
    g->on_tick = traffic;
    rig_pass(g, 0.3);
    uint64_t refused = g->refused[CHANGE_NEW];
    fill_disk();
    assert_true(rig_run(g, is_not_writable, 30));
    uint64_t kept = rig_state(g).kept, marks = g->answered[CHANGE_MARK];
    rig_pass(g, 2);
    struct writer_state s = rig_state(g);
    print_message("full: %s\n", s.why);
    assert_false(s.writable);
    assert_non_null(strstr(s.why, "state folder"));
    assert_true(s.since_s >= 1.9);
    assert_true(s.kept > kept + 50);                             /* they wait, counted */
    assert_true(g->answered[CHANGE_MARK] > marks + 5);           /* marks still go in */
    assert_int_equal(g->refused[CHANGE_MARK], 0);
    assert_int_equal(g->refused[CHANGE_KEEP], 0);
    assert_true(g->refused[CHANGE_NEW] > refused + 5);           /* new work is refused, with the reason */
    assert_false(writer_accepts_new(g->w));
    struct request *new = awaited = rig_put(g, CHANGE_NEW, 1);
    assert_true(rig_run(g, is_answered, 5));
    assert_true(new->rc < 0);
    assert_non_null(strstr(new->text, "state folder"));
    free_disk();
    assert_true(rig_run(g, is_well, 15));                        /* without anybody's doing */
    assert_true(reserve_is_there(g->dir));
    refused = g->refused[CHANGE_NEW];
    rig_pass(g, 0.3);
    assert_int_equal(g->refused[CHANGE_NEW], refused);
    g->on_tick = NULL;
    assert_true(rig_run(g, rig_all_answered, 20));
}

static void B33_full_disk_and_back_twice(void **state)
{
    struct rig g;
    char dir[100];
    snprintf(dir, sizeof dir, "%s", in(*state, "state"));
    rig_start(&g, dir);
    flood(&g);
    flood(&g);
    assert_int_equal(g.refused[CHANGE_MARK] + g.refused[CHANGE_KEEP], 0);
    print_message("%" PRIu64 " changes, %" PRIu64 " new ones refused while full; longest gap of the heartbeat %.0f ms\n", g.n, g.refused[CHANGE_NEW],
                  (double)g.longest_gap / 1e6);
    assert_true(g.longest_gap < CLOCK_SECOND);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static void big_marks(struct rig *g)
{
    rig_put(g, CHANGE_MARK, 100000);
}

static void B33_marks_are_refused_only_when_the_reserve_is_full_too(void **state)
{
    struct rig g;
    char dir[100];
    snprintf(dir, sizeof dir, "%s", in(*state, "state"));
    rig_start(&g, dir);
    struct request *first = rig_put(&g, CHANGE_KEEP, 1);
    assert_true(rig_run(&g, rig_all_answered, 10));
    fill_disk();
    g.on_tick = big_marks;
    assert_true(rig_run(&g, mark_refused, 60));
    g.on_tick = NULL;
    assert_true(rig_run(&g, rig_all_answered, 10));
    uint64_t taken = g.answered[CHANGE_MARK] - g.refused[CHANGE_MARK];
    print_message("%" PRIu64 " marks of 100 kB went in before the first was refused\n", taken);
    assert_true(taken >= 20);                                    /* 4 MiB hold that many, twice over for log and file */
    struct request *keep = rig_put(&g, CHANGE_KEEP, 1000);
    rig_pass(&g, 0.5);
    assert_false(keep->answered);
    free_disk();
    assert_true(rig_run(&g, is_well, 15));
    assert_true(rig_run(&g, rig_all_answered, 10));
    assert_int_equal(keep->rc | first->rc, 0);
    struct request *mark = rig_put(&g, CHANGE_MARK, 10);
    assert_true(rig_run(&g, rig_all_answered, 10));
    assert_int_equal(mark->rc, 0);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

/* In one transaction they do not fit, alone most of them do. */
static void B33_marks_that_come_together_are_refused_one_by_one(void **state)
{
    struct rig g;
    char dir[100];
    snprintf(dir, sizeof dir, "%s", in(*state, "state"));
    rig_start(&g, dir);
    rig_put(&g, CHANGE_KEEP, 1);
    assert_true(rig_run(&g, rig_all_answered, 10));
    fill_disk();
    for (unsigned i = 0; i < 80; i++)
        rig_put(&g, CHANGE_MARK, 100000);
    assert_true(rig_run(&g, rig_all_answered, 60));
    uint64_t taken = g.answered[CHANGE_MARK] - g.refused[CHANGE_MARK];
    print_message("%" PRIu64 " of 80 marks of 100 kB went in\n", taken);
    assert_true(taken >= 20 && taken < 80);
    free_disk();
    assert_true(rig_run(&g, is_well, 15));
    rig_put(&g, CHANGE_NEW, 10);
    assert_true(rig_run(&g, rig_all_answered, 10));
    assert_int_equal(g.refused[CHANGE_NEW], 0);
    assert_int_equal(rig_stop(&g, 5), 0);
    rig_audit(&g);
}

static void B33_stopping_on_a_full_disk_is_bounded_and_counted(void **state)
{
    struct rig g;
    char dir[100];
    snprintf(dir, sizeof dir, "%s", in(*state, "state"));
    rig_start(&g, dir);
    g.on_tick = traffic;
    rig_pass(&g, 0.2);
    fill_disk();
    assert_true(rig_run(&g, is_not_writable, 30));
    rig_pass(&g, 0.5);
    uint64_t waiting = rig_state(&g).queued;
    int64_t start = clock_mono_ns();
    unsigned lost = rig_stop(&g, 1.5);
    assert_true(clock_mono_ns() - start < 3 * CLOCK_SECOND);
    assert_in_range(lost, 1, waiting);
    assert_true(rig_all_answered(&g));
    assert_int_equal(g.refused[CHANGE_KEEP], lost);
    free_disk();
    rig_audit(&g);
}

/* ---- a namespace of our own ---- */

static int no_mounts(const char *what)
{
    print_message("SKIP: no file system can be mounted here (%s: %s)\n", what, strerror(errno));
    return 77;
}

int main(int argc, char **argv)
{
    if (geteuid() != 0 && argc < 2) {
        char self[4096] = "";
        if (readlink("/proc/self/exe", self, sizeof self - 1) > 0)
            execlp("unshare", "unshare", "-rm", self, "mapped", (char *)NULL);
        return no_mounts("unshare");
    }
    (void)argv;
    if (argc < 2 && unshare(CLONE_NEWNS) < 0)
        return no_mounts("unshare");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return no_mounts("mount");
    if (mkdtemp(mount_point) == NULL || mount("sluice-test", mount_point, "tmpfs", 0, "size=1m") < 0)
        return no_mounts("mount");
    umount(mount_point);
#define T(f) cmocka_unit_test_setup_teardown(f, mount_small, unmount_small)
    const struct CMUnitTest tests[] = {
        T(the_reserve_lets_marks_in), T(it_starts_on_a_full_disk), T(a_first_start_without_room_says_so_and_leaves_nothing),
        T(a_backup_without_room_leaves_nothing), T(B33_full_disk_and_back_twice), T(B33_marks_are_refused_only_when_the_reserve_is_full_too),
        T(B33_marks_that_come_together_are_refused_one_by_one), T(B33_stopping_on_a_full_disk_is_bounded_and_counted),
    };
    cmocka_set_test_filter(getenv("SLUICE_TEST_ONLY"));
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(mount_point);
    return rc;
}
