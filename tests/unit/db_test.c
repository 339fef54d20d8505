/* db_test.c - the state database: open, refuse, migrate, copy, recover, grow */
#include "config.h"

#include "state_test.h"
#include "state_hold.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* ---- helpers ---- */

static void raw(const char *dir, const char *sql)
{
    sqlite3 *s = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(in(dir, "state.db"), &s), SQLITE_OK);
    if (sqlite3_exec(s, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    sqlite3_close(s);
}

static int64_t raw_int(const char *file, const char *sql)
{
    sqlite3 *s = NULL;
    sqlite3_stmt *q = NULL;
    assert_int_equal(sqlite3_open_v2(file, &s, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(s, sql, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    int64_t v = sqlite3_column_int64(q, 0);
    sqlite3_finalize(q);
    sqlite3_close(s);
    return v;
}

/* db_open must refuse, with this code and all of these words (the list ends with NULL), within 10 s. */
static void refuses(const char *dir, const struct db_hooks *hooks, enum err_code code, ...)
{
    struct err e = { 0 };
    int64_t start = clock_mono_ns();
    struct db *db = db_open(dir, hooks, &e);
    assert_null(db);
    assert_true(clock_mono_ns() - start < 10 * CLOCK_SECOND);
    assert_int_equal(e.code, code);
    va_list ap;
    va_start(ap, code);
    for (const char *word; (word = va_arg(ap, const char *)) != NULL;) {
        if (strstr(e.text, word) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.text, word);
    }
    va_end(ap);
}

static void fill_marks(const char *dir, unsigned n)
{
    struct db *db = open_good(dir);
    good(db_begin(db, why));
    for (unsigned i = 1; i <= n; i++) {
        char node[16];
        snprintf(node, sizeof node, "n%03u", i % 350);
        good(put_mark_with_line(db, i, node, "ECC errors on the second of four devices", NULL, why));
        struct row_node row = { .name = node, .class = "mi50", .pool = "online", .added = 1 };
        good(rows_put_node(db, &row, why));
    }
    good(db_commit(db, why));
    db_close(db);
}

/* The first file of the folder that begins so; empty when there is none. */
static const char *find(const char *dir, const char *begin)
{
    static char name[300];
    name[0] = '\0';
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *f; (f = readdir(d)) != NULL;) {
        if (strncmp(f->d_name, begin, strlen(begin)) == 0 && strstr(f->d_name, "-wal") == NULL)
            snprintf(name, sizeof name, "%s", f->d_name);
    }
    closedir(d);
    return name;
}

/* ---- opening ---- */

static void first_open_makes_it_and_the_epoch_grows(void **state)
{
    const char *dir = in(*state, "a/b/state");
    for (uint64_t n = 1; n <= 3; n++) {
        struct db *db = open_good(dir);
        struct err e = { 0 };
        assert_int_equal(db_next_epoch(db, &e), n);
        assert_string_equal(db_dir(db), in(*state, "a/b/state"));
        db_close(db);
    }
    assert_int_equal(raw_int(in(dir, "state.db"), "PRAGMA user_version"), 10);
    struct stat st;
    assert_int_equal(stat(in(dir, "state.reserve"), &st), 0);
    assert_int_equal(st.st_size, 4 << 20);
    assert_int_equal(stat(in(dir, "state.db"), &st), 0);
    assert_int_equal(st.st_mode & 077, 0);              /* the keys of runs are in it */
}

static void durable_settings(void **state)
{
    struct db *db = open_good(*state);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "x", NULL, why));
    good(db_commit(db, why));
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT 'wal' = (SELECT journal_mode FROM pragma_journal_mode)"), 1);
    assert_true(db_log_bytes(db) > 0);
    db_close(db);
}

static void second_sluiced_is_refused_with_the_pid(void **state)
{
    int ready[2], end[2];
    assert_int_equal(pipe(ready) | pipe(end), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char c;
        struct db *db = db_open(*state, NULL, NULL);
        if (write(ready[1], db ? "y" : "n", 1) != 1)
            _exit(1);
        close(end[1]);
        _exit(read(end[0], &c, 1) != 0);                /* holds the folder until the parent lets go */
    }
    char c = 0, text[64];
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    snprintf(text, sizeof text, "already running, pid %d", (int)child);
    refuses(*state, NULL, ERR_STATE, text, *state, NULL);
    char *report = NULL;
    struct err e = { 0 };
    assert_int_equal(db_check(*state, &report, &e), -1);
    assert_non_null(strstr(e.text, text));
    free(report);
    assert_int_equal(db_recover(*state, &report, &e), -1);
    assert_non_null(strstr(e.text, text));
    free(report);
    assert_int_equal(db_restore(*state, "/nonexistent", &report, &e), -1);
    assert_non_null(strstr(e.text, text));
    free(report);
    close(end[0]);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(end[1]);
    close(ready[0]);
    close(ready[1]);
    /* the lock file with the dead one's pid is still there and means nothing */
    assert_int_equal(access(in(*state, "state.lock"), F_OK), 0);
    db_close(open_good(*state));
    write_file(in(*state, "state.lock"), "1\n", 2);     /* nor does that of a living process without the lock */
    db_close(open_good(*state));
}

static struct statfs told;
static int tell(const char *path, struct statfs *out)
{
    (void)path;
    *out = told;
    return 0;
}

static void network_file_systems_are_refused(void **state)
{
    static const struct { long magic; const char *word; } kinds[] = {
        { 0x6969, "NFS" }, { 0x517b, "SMB" }, { 0xff534d42, "CIFS" }, { 0xfe534d42, "SMB2" }, { 0x0bd00bd0, "Lustre" }, { 0x47504653, "GPFS" },
        { 0x00c36400, "CephFS" }, { 0x65735546, "network" }, { 0x01021997, "9p" }, { 0x19830326, "BeeGFS" }, { 0x5346414f, "AFS" },
    };
    const struct db_hooks hooks = { .statfs = tell };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        told = (struct statfs){ .f_type = kinds[i].magic };
        refuses(*state, &hooks, ERR_STATE, "network file system", kinds[i].word, "state_dir", NULL);
        assert_int_not_equal(access(in(*state, "state.db"), F_OK), 0);
    }
    static const long local[] = { 0xef53, 0x58465342, 0x9123683e, 0x01021994, 0x794c7630, 0x2fc12fc1 };      /* ext4 xfs btrfs tmpfs overlay zfs */
    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++) {
        told = (struct statfs){ .f_type = local[i] };
        struct db *db = db_open(*state, &hooks, NULL);
        assert_non_null(db);
        db_close(db);
    }
}

/* ---- what is wrong with the file ---- */

static void missing_file_is_not_an_empty_start(void **state)
{
    fill_marks(*state, 10);
    assert_int_equal(unlink(in(*state, "state.db")), 0);
    refuses(*state, NULL, ERR_FAILED, "is gone", "state.id", "--restore", NULL);
    assert_int_not_equal(access(in(*state, "state.db"), F_OK), 0);
    /* as told, the person removes the witness and starts with nothing */
    unlink(in(*state, "state.id"));
    unlink(in(*state, "state.db-wal"));
    db_close(open_good(*state));
}

static void start_killed_while_making_the_first_database(void **state)
{
    write_file(in(*state, "state.db.new"), "half", 4);
    write_file(in(*state, "state.db.new-journal"), "half", 4);
    db_close(open_good(*state));
}

static void broken_files_are_left_and_the_command_is_named(void **state)
{
    fill_marks(*state, 500);
    size_t size, after;
    char *was = whole_file(in(*state, "state.db"), &size);
    const size_t cuts[] = { 0, 1, 15, 100, 511, 4095, 4096, 5000, size / 2 / 4096 * 4096, size / 2 + 77, size - 4096, size - 1 };
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
        write_file(in(*state, "state.db"), was, cuts[i]);
        refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", "--restore", *state, NULL);
        char *now = whole_file(in(*state, "state.db"), &after);
        assert_int_equal(after, cuts[i]);
        assert_memory_equal(now, was, after);
        free(now);
    }
    char *noise = malloc(size);
    for (size_t i = 0; i < size; i++)
        noise[i] = (char)(i * 2654435761u >> 7);
    write_file(in(*state, "state.db"), noise, size);
    refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
    free(noise);
    write_file(in(*state, "state.db"), was, size);
    struct db *db = open_good(*state);
    assert_int_equal(marks_in(db, false), 500);
    db_close(db);
    free(was);
}

static void foreign_and_newer_databases_are_refused(void **state)
{
    fill_marks(*state, 5);
    raw(*state, "PRAGMA user_version = 11");
    refuses(*state, NULL, ERR_STATE, "schema version 11", "up to 10", "--restore", NULL);
    char *report = NULL;
    struct err e = { 0 };
    assert_int_equal(db_recover(*state, &report, &e), -1);
    assert_non_null(strstr(e.text, "schema version 11"));
    free(report);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM mark"), 5);
    raw(*state, "PRAGMA user_version = 200000000");
    refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
    raw(*state, "PRAGMA user_version = 10; PRAGMA application_id = 4711");
    refuses(*state, NULL, ERR_FAILED, "another program", NULL);
    raw(*state, "PRAGMA application_id = 1397511491");
    raw(*state, "UPDATE meta SET value = '00112233445566778899aabbccddeeff' WHERE key = 'id'");
    refuses(*state, NULL, ERR_STATE, "not the database that this folder had", "--restore", NULL);
}

/* ---- migrations ---- */

static const struct db_migration two_steps[] = {
    { 1, "CREATE TABLE first_step (a INTEGER) STRICT" },
    { 2, "ALTER TABLE mark ADD COLUMN ticket TEXT; UPDATE mark SET ticket = 'T' || id" },
    { 11, "CREATE INDEX mark_ticket ON mark (ticket)" },
};

static void older_schemas_come_forward_with_a_copy(void **state)
{
    for (int from = 0; from <= 1; from++) {
        char dir[300], pragma[64], begin[32];
        snprintf(dir, sizeof dir, "%s/%d", (char *)*state, from);
        fill_marks(dir, 20);
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", from);
        raw(dir, pragma);
        struct db_hooks hooks = { .migrations = two_steps, .n_migrations = 3 };
        struct db *db = db_open(dir, &hooks, NULL);
        assert_non_null(db);
        assert_int_equal(marks_in(db, true), 20);
        db_close(db);
        assert_int_equal(raw_int(in(dir, "state.db"), "PRAGMA user_version"), 11);
        assert_int_equal(raw_int(in(dir, "state.db"), "SELECT count(*) FROM mark WHERE ticket = 'T' || id"), 20);
        assert_int_equal(raw_int(in(dir, "state.db"), "SELECT count(*) FROM sqlite_schema WHERE name = 'first_step'"), from == 0);
        snprintf(begin, sizeof begin, "state.db.v%d-", from);
        char copy[600];
        snprintf(copy, sizeof copy, "%s/%s", dir, find(dir, begin));
        assert_int_equal(raw_int(copy, "PRAGMA user_version"), from);
        assert_int_equal(raw_int(copy, "SELECT count(*) FROM mark"), 20);
        refuses(dir, NULL, ERR_STATE, "schema version 11", NULL);          /* and the older program refuses it now */
    }
}

/* Version 1 had nothing of what the stages ran on, version 2 nothing of it for jobs, version 3 no nice levels of runs and jobs,
 * version 6 neither tries nor what a job comes after. */
static void version_1_comes_forward(void **state)
{
    fill_marks(*state, 3);
    raw(*state, "CREATE INDEX run_tf_unpublished ON run_tf (run, tf) WHERE published = 0; DROP INDEX job_key; DROP INDEX job_pruning; ALTER TABLE job DROP COLUMN after; ALTER TABLE job DROP COLUMN reruns; ALTER TABLE job DROP COLUMN begun;"
                "ALTER TABLE job DROP COLUMN pruned; ALTER TABLE job DROP COLUMN unpublished; ALTER TABLE job DROP COLUMN failures; ALTER TABLE job DROP COLUMN folder; ALTER TABLE job DROP COLUMN unswept; ALTER TABLE task DROP COLUMN log; DROP TABLE attempt;"
                "ALTER TABLE run DROP COLUMN stages; ALTER TABLE run_tf DROP COLUMN stages; ALTER TABLE job DROP COLUMN stages; DROP TABLE known_device; DROP TABLE known_boot; PRAGMA user_version = 1;"
                "ALTER TABLE run DROP COLUMN nice; ALTER TABLE run DROP COLUMN nice_min; ALTER TABLE run DROP COLUMN nice_max;"
                "ALTER TABLE job DROP COLUMN preempted; ALTER TABLE job DROP COLUMN straggler; ALTER TABLE task DROP COLUMN tries; ALTER TABLE task DROP COLUMN deaths;"
                "ALTER TABLE task DROP COLUMN due; ALTER TABLE job DROP COLUMN nice; ALTER TABLE job DROP COLUMN nice_min; ALTER TABLE job DROP COLUMN nice_max;"
                "INSERT INTO job (id, state, uid, gid, priority, attempts, time_limit, tasks, done, failed, skipped, cancelled, retried, submitted, begin, ended)"
                " VALUES (4, 'waiting', 1, 1, 0, 3, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0);"
                "INSERT INTO run_tf (run, tf, outcome, epoch, attempt, incomplete, published, seconds, bytes, time) VALUES (1, 7, 'done', 1, 1, 0, 1, 0.5, 10, 1)");
    struct db *db = db_open(*state, NULL, NULL);
    assert_non_null(db);
    assert_int_equal(marks_in(db, true), 3);
    db_close(db);
    assert_int_equal(raw_int(in(*state, "state.db"), "PRAGMA user_version"), 10);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf WHERE tf = 7 AND stages IS NULL"), 1);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(stages) FROM run"), 0);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(stages) FROM job"), 0);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM job WHERE id = 4 AND nice = 100 AND nice_min = -20 AND nice_max = 19"), 1);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM job WHERE preempted = 0 AND straggler = 0"), 1);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(tries) + count(deaths) + count(due) FROM task"), 0);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM known_device"), 0);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM sqlite_schema WHERE name IN ('attempt', 'job_key', 'job_pruning', 'known_boot')"), 4);
}

static void failed_migration_changes_nothing(void **state)
{
    static const struct db_migration bad[] = {
        { 11, "ALTER TABLE mark ADD COLUMN ticket TEXT; DELETE FROM mark" },
        { 12, "ALTER TABLE no_such_table ADD COLUMN x TEXT" },
    };
    fill_marks(*state, 20);
    struct db_hooks hooks = { .migrations = bad, .n_migrations = 2 };
    refuses(*state, &hooks, ERR_FAILED, "migration of the schema to version 12", "no_such_table", NULL);
    assert_int_equal(raw_int(in(*state, "state.db"), "PRAGMA user_version"), 10);
    struct db *db = open_good(*state);
    assert_int_equal(marks_in(db, true), 20);
    db_close(db);
}

/* ---- transactions ---- */

static void a_change_takes_only_itself_back(void **state)
{
    struct db *db = open_good(*state);
    struct err e = { 0 };
    good(db_begin(db, why));
    good(db_save(db, why));
    good(put_mark_with_line(db, 1, "n001", "one", NULL, why));
    good(db_release(db, true, why));
    good(db_save(db, why));
    good(put_mark_with_line(db, 2, "n002", "two", NULL, why));
    struct row_mark nameless = mark_of(3, NULL, "no node");
    assert_int_equal(rows_put_mark(db, &nameless, &e), -1);
    assert_non_null(strstr(e.text, "mark.node"));
    assert_false(db_full(db));
    assert_false(db_locked(db));
    good(db_release(db, false, why));
    good(db_save(db, why));
    good(put_mark_with_line(db, 4, "n004", "four", NULL, why));
    good(db_release(db, true, why));
    good(db_commit(db, why));
    assert_int_equal(marks_in(db, false), 2);
    db_close(db);
}

/* A limit on the size of files makes the kernel refuse writes as a failing disk does. */
static void a_disk_that_refuses_writes_is_told_from_a_bad_change(void **state)
{
    struct db *db = open_good(*state);
    struct rlimit before, none;
    struct err e = { 0 };
    char big[50000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){ 20000, before.rlim_max };
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", big, NULL, why));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(db_commit(db, &e), -1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    print_message("%s\n", e.text);
    assert_true(db_full(db));
    assert_int_equal(e.code, ERR_STATE);
    assert_int_equal(marks_in(db, false), 0);
    good(db_begin(db, why));                             /* and it goes on by itself */
    good(put_mark_with_line(db, 1, "n001", big, NULL, why));
    good(db_commit(db, why));
    assert_int_equal(marks_in(db, false), 1);
    db_close(db);
}

static void B01_B07_marks_survive_and_bad_is_computed_from_open_marks(void **state)
{
    for (int kill_it = 0; kill_it < 2; kill_it++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct db *db = db_open(*state, NULL, NULL);
            if (db == NULL || db_begin(db, NULL) < 0)
                _exit(1);
            struct row_mark a = mark_of(1, "n003", "ECC errors"), b = mark_of(2, "n004", "fan");
            struct row_node n = { .name = "n003", .class = "mi50", .pool = "online", .wanted_pool = "async", .added = 1 };
            if (rows_put_mark(db, &a, NULL) < 0 || rows_put_mark(db, &b, NULL) < 0 || rows_put_node(db, &n, NULL) < 0 || db_commit(db, NULL) < 0 ||
                db_begin(db, NULL) < 0)
                _exit(2);
            b.cleared = 77;
            b.cleared_by = "shift";
            if (rows_put_mark(db, &b, NULL) < 0 || db_commit(db, NULL) < 0)
                _exit(3);
            if (kill_it)
                raise(SIGKILL);
            db_close(db);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(kill_it ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
        struct db *db = open_good(*state);
        assert_int_equal(marks_in(db, true), 1);
        assert_int_equal(marks_in(db, false), 2);
        db_close(db);
    }
}

static void B35_a_lock_is_waited_for_within_a_limit_and_named(void **state)
{
    struct db *db = open_good(*state);
    struct holder h;
    struct err e = { 0 };
    char pid[32];
    hold(&h, *state, "BEGIN EXCLUSIVE");
    snprintf(pid, sizeof pid, "pid %d", (int)h.pid);
    int64_t start = clock_mono_ns();
    assert_int_equal(db_begin(db, &e), -1);
    double took = (double)(clock_mono_ns() - start) / 1e9;
    assert_true(took > 4.9 && took < 10);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_non_null(strstr(e.text, "state is locked by another process"));
    assert_non_null(strstr(e.text, pid));
    assert_true(db_locked(db));
    assert_false(db_full(db));
    start = clock_mono_ns();
    db_wait_until(db, start + CLOCK_SECOND / 2);
    assert_int_equal(db_begin(db, &e), -1);
    took = (double)(clock_mono_ns() - start) / 1e9;
    assert_true(took > 0.45 && took < 3);
    db_wait_until(db, 0);
    let_go(&h);
    good(db_begin(db, why));
    db_rollback(db);
    db_close(db);
}

static void B36_the_log_shrinks_after_the_reader_ends(void **state)
{
    struct db *db = open_good(*state);
    struct holder h;
    char big[20000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    hold(&h, *state, "BEGIN; SELECT count(*) FROM mark");
    unsigned n = scaled(600);
    for (unsigned i = 1; i <= n; i++) {
        good(db_begin(db, why));
        good(put_mark_with_line(db, i % 50, "n001", big, NULL, why));
        good(db_commit(db, why));
    }
    uint64_t grown = db_log_bytes(db);
    assert_true(grown > (uint64_t)n * 20000);
    db_tidy(db);                                        /* cannot, and does not wait */
    assert_int_equal(db_log_bytes(db), grown);
    let_go(&h);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "small", NULL, why));
    good(db_commit(db, why));
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "small", NULL, why));
    good(db_commit(db, why));
    uint64_t cut = db_log_bytes(db);
    print_message("log: %" PRIu64 " KiB while read, %" PRIu64 " KiB after two more commits\n", grown >> 10, cut >> 10);
    assert_true(cut <= 4 << 20);
    db_tidy(db);
    assert_int_equal(db_log_bytes(db), 0);
    db_close(db);
}

/* ---- damage ---- */

static unsigned flip(const char *path, unsigned n, unsigned seed)
{
    size_t size;
    char *p = whole_file(path, &size);
    srandom(seed);
    for (unsigned i = 0; i < n; i++)
        p[(size_t)random() % size] ^= (char)(1 + random() % 255);
    write_file(path, p, size);
    free(p);
    return n;
}

static int same_mark(void *arg, const struct row_mark *m)
{
    unsigned *n = arg;
    char node[16];
    snprintf(node, sizeof node, "n%03u", (unsigned)m->id % 350);
    if (m->id >= 1 && m->id <= 2000 && strcmp(m->node, node) == 0 && m->reason && strcmp(m->reason, "ECC errors on the second of four devices") == 0 && m->cleared == 0)
        ++*n;
    return 0;
}

static void B38_flipped_bytes_end_in_seconds_with_the_command(void **state)
{
    unsigned seed = seed_of_test(), rounds = scaled(10), refused = 0, saved = 0;
    fill_marks(*state, 2000);
    size_t size;
    char *was = whole_file(in(*state, "state.db"), &size);
    for (unsigned r = 0; r < rounds; r++) {
        write_file(in(*state, "state.db"), was, size);
        unlink(in(*state, "state.db-wal"));
        int64_t start = clock_mono_ns();
        flip(in(*state, "state.db"), 100, seed + r);
        refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
        refused++;
        /* and the command works: most is saved, what is saved is true or visibly wrong in a letter, never invented */
        char *report = NULL;
        struct err e = { 0 };
        if (db_recover(*state, &report, &e) < 0)
            fail_msg("round %u: %s\n%s", r, e.text, report);
        struct db *db = open_good(*state);
        unsigned same = 0;
        good(rows_load_marks(db, false, same_mark, &same, why));
        db_close(db);
        print_message("round %u (seed %u): %u of 2000 marks as they were, %.2f s\n", r, seed + r, same, (double)(clock_mono_ns() - start) / 1e9);
        assert_true(same >= 1800);
        saved += same;
        assert_non_null(strstr(report, "mark "));
        assert_non_null(strstr(report, "state.db.corrupt-"));
        free(report);
        remove(in(*state, find(*state, "state.db.corrupt-")));
    }
    print_message("%u of %u damaged files were refused, %u of %u marks saved as they were\n", refused, rounds, saved, rounds * 2000);
    free(was);
}

static void recover_loses_only_the_bad_page(void **state)
{
    fill_marks(*state, 2000);
    size_t size;
    char *p = whole_file(in(*state, "state.db"), &size);
    size_t page;
    /* the last page of type "table leaf" before the middle is one of marks or events */
    for (page = size / 4096 / 2; p[page * 4096] != 0x0d; page--)
        assert_true(page > 1);
    memset(p + page * 4096, 0xa5, 4096);
    write_file(in(*state, "state.db"), p, size);
    free(p);
    refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
    char *report = NULL;
    good(db_recover(*state, &report, why));
    print_message("%s", report);
    free(report);
    struct db *db = open_good(*state);
    struct row_ids ids;
    good(rows_load_ids(db, &ids, why));
    assert_true(ids.mark >= 2000 && ids.event >= 2000);
    uint64_t rows = (uint64_t)raw_int(in(*state, "state.db"), "SELECT (SELECT count(*) FROM mark) + (SELECT count(*) FROM event)");
    assert_true(rows >= 4000 - 200);
    assert_true(rows < 4000);
    good(db_begin(db, why));
    uint64_t seq = 0;
    good(put_mark_with_line(db, 9999, "n001", "after", &seq, why));
    good(db_commit(db, why));
    assert_true(seq > 2000);
    db_close(db);
}

/* Every table begins at its root page: without it no row can be reached in order, and all of them are found nevertheless. */
static void recover_survives_lost_roots(void **state)
{
    fill_marks(*state, 2000);
    int64_t roots[3] = { raw_int(in(*state, "state.db"), "SELECT rootpage FROM sqlite_schema WHERE name = 'mark'"),
                         raw_int(in(*state, "state.db"), "SELECT rootpage FROM sqlite_schema WHERE name = 'event'"),
                         raw_int(in(*state, "state.db"), "SELECT rootpage FROM sqlite_schema WHERE name = 'node'") };
    size_t size;
    char *p = whole_file(in(*state, "state.db"), &size);
    for (int i = 0; i < 3; i++)
        memset(p + (roots[i] - 1) * 4096, 0xa5, 4096);
    write_file(in(*state, "state.db"), p, size);
    free(p);
    refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
    char *report = NULL;
    good(db_recover(*state, &report, why));
    print_message("%s", report);
    free(report);
    struct db *db = open_good(*state);
    unsigned same = 0;
    good(rows_load_marks(db, false, same_mark, &same, why));
    db_close(db);
    assert_int_equal(same, 2000);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM event WHERE what = 'mark' AND seq = time"), 2000);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM node WHERE class = 'mi50'"), 350);
}

static void recover_survives_a_lost_first_page(void **state)
{
    fill_marks(*state, 2000);
    size_t size;
    char *p = whole_file(in(*state, "state.db"), &size);
    memset(p, 0, 4096);
    write_file(in(*state, "state.db"), p, size);
    free(p);
    refuses(*state, NULL, ERR_FAILED, "is damaged", "--recover", NULL);
    char *report = NULL;
    good(db_recover(*state, &report, why));
    assert_non_null(strstr(report, "first page"));
    free(report);
    struct db *db = open_good(*state);
    assert_int_equal(marks_in(db, true), 2000);
    db_close(db);
}

/* What can be read and means nothing: a spoilt text is shown as far as it goes, an impossible row is left out, the rest stays. */
static void recover_mends_what_can_be_read(void **state)
{
    fill_marks(*state, 20);
    raw(*state, "UPDATE mark SET reason = CAST(x'61ff62c3a9' AS TEXT) WHERE id = 3;"
                "UPDATE mark SET reason = CAST(x'610062' AS TEXT) WHERE id = 4;"
                "UPDATE mark SET node = 'no name' WHERE id = 5;"
                "UPDATE node SET name = CAST(x'6eff31' AS TEXT) WHERE name = 'n006';"
                "INSERT INTO move VALUES (1, 'n001', 'asynk', '', 'done', '', '', 0, 0, 1, 2), (2, 'n001', 'async', '', 'done', '', '', 0, 0, 1, 2);"
                "INSERT INTO job_file VALUES (77, 0, '/a', 0, 0, NULL, NULL);"
                "INSERT INTO task VALUES (77, 0, 'done', 'n', 'd', 'Done', '', '', '', 1, 1, 1, 0.5, 1, 0, NULL, 0, NULL)");
    char *report = NULL;
    good(db_recover(*state, &report, why));
    print_message("%s", report);
    assert_non_null(strstr(report, "mark       19 rows saved, 1 rows made no sense"));
    assert_non_null(strstr(report, "node       19 rows saved, 1 rows made no sense"));
    assert_non_null(strstr(report, "move       1 rows saved, 1 rows made no sense"));
    assert_non_null(strstr(report, "job_file   0 rows saved, 1 rows made no sense"));
    assert_non_null(strstr(report, "task       0 rows saved, 1 rows made no sense"));
    free(report);
    db_close(open_good(*state));
    const char *file = in(*state, "state.db");
    assert_int_equal(raw_int(file, "SELECT hex(reason) = '613F62C3A9' FROM mark WHERE id = 3"), 1);
    assert_int_equal(raw_int(file, "SELECT hex(reason) = '613F62' FROM mark WHERE id = 4"), 1);
    assert_int_equal(raw_int(file, "SELECT count(*) FROM mark WHERE reason = 'ECC errors on the second of four devices'"), 17);
}

static void recover_of_nothing_says_so(void **state)
{
    struct err e = { 0 };
    char *report = NULL;
    assert_int_equal(db_recover(in(*state, "no"), &report, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    free(report);
    assert_int_equal(db_recover(*state, &report, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    free(report);
    fill_marks(*state, 5);
    write_file(in(*state, "state.db"), "", 0);
    assert_int_equal(db_recover(*state, &report, &e), -1);
    assert_non_null(strstr(e.text, "--restore"));
    free(report);
    assert_int_equal(access(in(*state, "state.db"), F_OK), 0);
}

static void recover_takes_the_log_along(void **state)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct db *db = db_open(*state, NULL, NULL);
        for (unsigned i = 1; i <= 50; i++) {
            if (db == NULL || db_begin(db, NULL) < 0 || put_mark_with_line(db, i, "n001", "in the log", NULL, NULL) < 0 || db_commit(db, NULL) < 0)
                _exit(1);
        }
        raise(SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    char *report = NULL;
    good(db_recover(*state, &report, why));
    free(report);
    struct db *db = open_good(*state);
    assert_int_equal(marks_in(db, true), 50);
    struct row_ids ids;
    good(rows_load_ids(db, &ids, why));
    assert_int_equal(ids.mark, 50);                     /* nothing was lost: the numbers go on without a gap */
    db_close(db);
}

/* ---- check, backup, restore ---- */

static void check_sees_totals_that_do_not_add_up(void **state)
{
    struct db *db = open_good(*state);
    struct row_run run = { .id = 3, .state = "done", .done = 2, .started = 1, .ended = 2 };
    struct row_run_tf tf = { .run = 3, .tf = 1, .outcome = "done", .published = 1 };
    good(db_begin(db, why));
    good(rows_put_run(db, &run, why));
    good(rows_put_run_tf(db, &tf, why));
    tf.tf = 2;
    good(rows_put_run_tf(db, &tf, why));
    good(db_commit(db, why));
    db_close(db);
    char *report = NULL;
    struct err e = { 0 };
    good(db_check(*state, &report, why));
    assert_non_null(strstr(report, "totals of all runs agree"));
    free(report);
    raw(*state, "UPDATE run SET done = 3");
    assert_int_equal(db_check(*state, &report, &e), -1);
    assert_non_null(strstr(e.text, "run 3: its totals say 3 done"));
    assert_non_null(strstr(report, "run 3"));
    free(report);
}

struct load { const char *dir; atomic_bool end; atomic_uint written; };

static void *write_on(void *arg)
{
    struct load *l = arg;
    struct db *db = db_open(l->dir, NULL, NULL);
    for (unsigned i = 1; db && !atomic_load(&l->end); i++) {
        /* one transaction: a mark, its line, and its twin on another table; half of it must never be seen */
        struct row_crash twin = { .id = i, .time = i, .word = "twin" };
        if (db_begin(db, NULL) < 0 || put_mark_with_line(db, i, "n001", "under load", NULL, NULL) < 0 || rows_put_crash(db, &twin, NULL) < 0 ||
            db_commit(db, NULL) < 0)
            break;
        atomic_store(&l->written, i);
    }
    db_close(db);
    return db;
}

static void backup_under_load_is_whole(void **state)
{
    struct load l = { .dir = in(*state, "live") };
    char dir[300], copy[300];
    snprintf(dir, sizeof dir, "%s/live", (char *)*state);
    snprintf(copy, sizeof copy, "%s/backup.db", (char *)*state);
    l.dir = dir;
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, write_on, &l), 0);
    int64_t until = clock_mono_ns() + 20 * CLOCK_SECOND;
    while (atomic_load(&l.written) < 200 && clock_mono_ns() < until)
        usleep(1000);
    unsigned before = atomic_load(&l.written);
    good(db_backup(dir, copy, why));
    unsigned after = atomic_load(&l.written);
    struct err e = { 0 };
    assert_int_equal(db_backup(dir, copy, &e), -1);
    assert_non_null(strstr(e.text, "is there already"));
    while (atomic_load(&l.written) < after + 50 && clock_mono_ns() < until)
        usleep(1000);
    atomic_store(&l.end, true);
    void *wrote;
    pthread_join(t, &wrote);
    assert_non_null(wrote);
    int64_t marks = raw_int(copy, "SELECT count(*) FROM mark");
    print_message("backup: %lld changes, taken between %u and %u\n", (long long)marks, before, after);
    assert_in_range(marks, before, after + 1);
    assert_int_equal(raw_int(copy, "SELECT max(id) FROM mark"), marks);
    assert_int_equal(raw_int(copy, "SELECT count(*) FROM event WHERE what = 'mark' AND seq = time"), marks);
    assert_int_equal(raw_int(copy, "SELECT count(*) FROM crash WHERE word = 'twin'"), marks);

    /* put back: the counters go on from where the present state was, not from the backup's */
    uint64_t newest = atomic_load(&l.written);
    char *report = NULL;
    good(db_restore(dir, copy, &report, why));
    assert_non_null(strstr(report, "before-restore"));
    free(report);
    good(db_check(dir, &report, why));
    free(report);
    struct db *db = open_good(dir);
    struct row_ids ids;
    good(rows_load_ids(db, &ids, why));
    assert_int_equal(marks_in(db, true), marks);
    assert_int_equal(ids.mark, newest);
    assert_int_equal(ids.event, newest);
    good(db_begin(db, why));
    uint64_t seq = 0;
    good(put_mark_with_line(db, newest + 1, "n001", "next", &seq, why));
    good(db_commit(db, why));
    assert_int_equal(seq, newest + 1);
    db_close(db);
}

static void restore_keeps_epochs_going_and_refuses_bad_backups(void **state)
{
    char dir[300], copy[300];
    snprintf(dir, sizeof dir, "%s/live", (char *)*state);
    snprintf(copy, sizeof copy, "%s/backup.db", (char *)*state);
    struct db *db = open_good(dir);
    struct err e = { 0 };
    assert_int_equal(db_next_epoch(db, &e), 1);
    db_close(db);
    good(db_backup(dir, copy, why));
    for (uint64_t n = 2; n <= 5; n++) {
        db = open_good(dir);
        assert_int_equal(db_next_epoch(db, &e), n);
        db_close(db);
    }
    /* even with the file gone, the epoch beside it is remembered */
    unlink(in(dir, "state.db"));
    char *report = NULL;
    good(db_restore(dir, copy, &report, why));
    free(report);
    db = open_good(dir);
    assert_int_equal(db_next_epoch(db, &e), 6);
    db_close(db);

    size_t size;
    char *p = whole_file(copy, &size);
    memset(p + 8192, 0x5a, 4096);
    write_file(copy, p, size);
    free(p);
    assert_int_equal(db_restore(dir, copy, &report, &e), -1);
    assert_non_null(strstr(e.text, "backup"));
    assert_non_null(strstr(e.text, "damaged"));
    free(report);
    write_file(copy, "no database at all, no", 22);
    assert_int_equal(db_restore(dir, copy, &report, &e), -1);
    free(report);
    assert_int_equal(db_restore(dir, in(*state, "absent"), &report, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    free(report);
    db = open_good(dir);
    assert_int_equal(db_next_epoch(db, &e), 7);
    db_close(db);
}

static void a_reader_sees_what_is_committed_and_cannot_write(void **state)
{
    struct db *db = open_good(*state);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "x", NULL, why));
    good(db_commit(db, why));
    struct db *reader = db_open_reader(*state, NULL);
    assert_non_null(reader);
    good(db_begin(db, why));
    good(put_mark_with_line(db, 2, "n001", "y", NULL, why));
    assert_int_equal(marks_in(reader, true), 1);
    good(db_commit(db, why));
    assert_int_equal(marks_in(reader, true), 2);
    struct row_mark m = mark_of(3, "n001", "z");
    assert_int_equal(rows_put_mark(reader, &m, NULL), -1);
    assert_true(db_full(reader));                        /* read-only is as good as full */
    db_close(reader);
    db_close(db);
}

/* ---- growth ---- */

static int count_node(void *arg, const struct row_node *n)
{
    (void)n;
    ++*(unsigned *)arg;
    return 0;
}

static void settle(struct db *db, struct row_run *run, uint64_t from, unsigned n)
{
    good(db_begin(db, why));
    for (unsigned i = 0; i < n; i++) {
        struct row_run_tf tf = { .run = run->id, .tf = from + i, .outcome = i % 10 == 9 ? "failed" : "done", .node = "mi50-001", .device = "emu-mi50-001-0",
                                 .digest = "0123456789abcdef", .stem = "7/tf-123456", .epoch = 1, .attempt = 1, .published = 1, .seconds = 0.3,
                                 .bytes = 1000, .time = 1 };
        good(rows_put_run_tf(db, &tf, why));
        i % 10 == 9 ? run->failed++ : (run->done++, run->bytes_done += 1000);
    }
    good(rows_put_run(db, run, why));
    good(db_commit(db, why));
}

static void B39_records_of_time_frames_do_not_swell_the_database(void **state)
{
    enum { KEPT = 5000 };
    uint64_t n = is_soak() ? 1000000 : scaled(60000);
    struct db *db = open_good(*state);
    struct row_run run = { .id = 7, .state = "running", .started = 1 };
    struct row_run_tf waiting = { .run = 7, .tf = 0, .outcome = "done", .published = 0, .bytes = 1 };
    good(db_begin(db, why));
    good(put_mark_with_line(db, 1, "n001", "stays", NULL, why));
    good(rows_put_run_tf(db, &waiting, why));
    for (int i = 0; i < 350; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%03d", i);
        struct row_node node = { .name = name, .class = "mi50", .pool = "online", .added = 1 };
        good(rows_put_node(db, &node, why));
    }
    good(db_commit(db, why));
    run.done = 1;
    run.bytes_done = 1;
    struct stat st;
    off_t half = 0;
    for (uint64_t tf = 1; tf <= n; tf += 1000) {
        settle(db, &run, tf, 1000);
        int gone;
        do {
            struct err e = { 0 };
            good(db_begin(db, why));
            gone = db_prune(db, KEPT, &e);
            if (gone < 0)
                fail_msg("%s", e.text);
            good(db_commit(db, why));
        } while (gone > 0);
        if (tf < n / 2 && stat(in(*state, "state.db"), &st) == 0)
            half = st.st_size;
    }
    struct row_counts counts;
    good(rows_count_run_tfs(db, 7, &counts, why));
    assert_int_equal(counts.done, run.done);
    assert_int_equal(counts.failed, run.failed);
    assert_int_equal(counts.bytes_done, run.bytes_done);
    db_close(db);
    assert_int_equal(stat(in(*state, "state.db"), &st), 0);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf"), KEPT + 1);      /* the unpublished one stays as well */
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf WHERE published = 0"), 1);
    int64_t start = clock_mono_ns();
    db = open_good(*state);
    double opening = (double)(clock_mono_ns() - start) / 1e9;
    assert_int_equal(marks_in(db, true), 1);
    unsigned nodes = 0;
    start = clock_mono_ns();
    good(rows_load_nodes(db, count_node, &nodes, why));
    double listing = (double)(clock_mono_ns() - start) / 1e9;
    assert_int_equal(nodes, 350);
    db_close(db);
    char *report = NULL;
    good(db_check(*state, &report, why));
    free(report);
    print_message("%" PRIu64 " TFs: file %lld KiB (%lld KiB at half), start %.3f s, listing of 350 nodes %.1f ms\n", n, (long long)st.st_size >> 10, (long long)half >> 10,
                  opening, listing * 1e3);
    assert_true(listing < 0.1);
    assert_true(st.st_size <= half + half / 4);
    assert_true(opening < 5);
}

static void old_runs_are_pruned_together(void **state)
{
    struct db *db = open_good(*state);
    for (uint64_t id = 1; id <= 30; id++) {                  /* each far below the limit of one run */
        struct row_run run = { .id = id, .state = "done", .started = 1, .ended = id == 1 ? 0 : 2 };
        settle(db, &run, 0, 90);
    }
    int gone = 1;
    while (gone > 0) {
        struct err e = { 0 };
        good(db_begin(db, why));
        gone = db_prune(db, 100, &e);
        if (gone < 0)
            fail_msg("%s", e.text);
        good(db_commit(db, why));
    }
    for (uint64_t id = 1; id <= 30; id++) {
        struct row_counts counts;
        good(rows_count_run_tfs(db, id, &counts, why));
        assert_int_equal(counts.done, 81);
        assert_int_equal(counts.failed, 9);
    }
    db_close(db);
    /* 1000 in all, the newest; and the run that has not ended keeps its own */
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf WHERE run > 1"), 1000);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf WHERE run = 1"), 90);
    assert_int_equal(raw_int(in(*state, "state.db"), "SELECT count(*) FROM run_tf WHERE run > 19"), 990);
}

int main(int argc, char **argv)
{
    hold_main(argc, argv);
#define T(f) cmocka_unit_test_setup_teardown(f, make_folder, drop_folder)
    const struct CMUnitTest tests[] = {
        T(first_open_makes_it_and_the_epoch_grows), T(durable_settings), T(second_sluiced_is_refused_with_the_pid), T(network_file_systems_are_refused),
        T(missing_file_is_not_an_empty_start), T(start_killed_while_making_the_first_database), T(broken_files_are_left_and_the_command_is_named),
        T(foreign_and_newer_databases_are_refused), T(older_schemas_come_forward_with_a_copy), T(version_1_comes_forward), T(failed_migration_changes_nothing),
        T(a_change_takes_only_itself_back), T(a_disk_that_refuses_writes_is_told_from_a_bad_change), T(B01_B07_marks_survive_and_bad_is_computed_from_open_marks), T(B35_a_lock_is_waited_for_within_a_limit_and_named),
        T(B36_the_log_shrinks_after_the_reader_ends), T(B38_flipped_bytes_end_in_seconds_with_the_command), T(recover_loses_only_the_bad_page),
        T(recover_survives_lost_roots), T(recover_survives_a_lost_first_page), T(recover_mends_what_can_be_read), T(recover_of_nothing_says_so), T(recover_takes_the_log_along),
        T(check_sees_totals_that_do_not_add_up), T(backup_under_load_is_whole), T(restore_keeps_epochs_going_and_refuses_bad_backups),
        T(a_reader_sees_what_is_committed_and_cannot_write), T(B39_records_of_time_frames_do_not_swell_the_database), T(old_runs_are_pruned_together),
    };
    cmocka_set_test_filter(getenv("SLUICE_TEST_ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
