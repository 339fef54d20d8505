/* rescue.c - copies of the state: backup, restore, check
 *
 * From: `sluice backup`, `sluiced --check`, `sluiced --restore`.  To: files beside the database, or where told.
 * A copy is one snapshot: its reader holds one read transaction to the end, so that a writer at work neither tears it nor makes it begin
 * again. Nothing is ever put over a file: what was there goes aside under a name with the time.
 */
#include "config.h"
#include "db_private.h"
#include "rows.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "str.h"

enum { COPY_STEP_PAGES = 256, COPY_LIMIT_S = 600, LOST_NUMBERS = 1000 };

/* ---- copy ---- */

static int copy_pages(struct db *from, struct db *to, struct err *e)
{
    int64_t until = clock_mono_ns() + COPY_LIMIT_S * CLOCK_SECOND;
    sqlite3_backup *b = sqlite3_backup_init(to->sql, "main", from->sql, "main");
    if (b == NULL)
        return db_fail(to, e, "cannot copy the state");
    int rc;
    do {
        rc = sqlite3_backup_step(b, COPY_STEP_PAGES);
    } while (rc == SQLITE_OK && clock_mono_ns() < until);
    int finish = sqlite3_backup_finish(b);
    if (rc == SQLITE_OK)
        return err_set(e, ERR_TIMEOUT, "cannot copy the state: not done after %d s", COPY_LIMIT_S);
    if (rc == SQLITE_DONE && finish == SQLITE_OK)
        return 0;
    /* a failed read is told on the source, a failed write on the copy */
    return db_classify(sqlite3_errcode(from->sql)) != DB_FAULT_NONE ? db_fail(from, e, "cannot copy the state") : db_fail(to, e, "cannot write the copy");
}

static int copy_snapshot(struct db *from, const char *part, struct err *e)
{
    struct db *to = db_connect(from->dir, part, SQLITE_OPEN_READWRITE, e);
    if (to == NULL)
        return -1;
    int64_t n;
    int rc = db_exec(from, "BEGIN", e);
    if (rc == 0)
        rc = db_query_int(from, "SELECT count(*) FROM sqlite_schema", &n, e) == 0 ? copy_pages(from, to, e) : -1;
    sqlite3_exec(from->sql, "COMMIT", NULL, NULL, NULL);
    if (rc == 0)
        rc = db_exec(to, "PRAGMA journal_mode = DELETE", e);          /* one file, complete in itself */
    if (rc == 0)
        rc = db_integrity(to, "quick_check", COPY_LIMIT_S, e);
    db_close(to);
    return rc == 0 ? 0 : -1;
}

static int sync_file(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : err_errno(e, ERR_FAILED, "cannot sync %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

static int sync_parent(const char *path, struct err *e)
{
    char *folder = mem_strdup(path), *slash = strrchr(folder, '/');
    if (slash == folder)
        slash++;
    if (slash)
        *slash = '\0';
    int rc = sync_file(slash ? folder : ".", e);
    free(folder);
    return rc;
}

/* An empty file is an empty database. Made here, so that a folder that takes no file is named, and not the state's. */
static int make_part(const char *part, const char *file, struct err *e)
{
    int fd = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0)
        return err_errno(e, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_FAILED, "the copy %s cannot be made", file);
    close(fd);
    return 0;
}

int rescue_copy(struct db *db, const char *file, struct err *e)
{
    if (access(file, F_OK) == 0)
        return err_set(e, ERR_STATE, "%s is there already; a copy never replaces a file", file);
    char *part = mem_printf("%s.part-%ld", file, (long)getpid());
    char *journal = mem_printf("%s-journal", part);
    unlink(part);
    int rc = make_part(part, file, e);
    if (rc == 0)
        rc = copy_snapshot(db, part, e);
    if (rc == 0)
        rc = sync_file(part, e);
    if (rc == 0 && link(part, file) < 0)
        rc = err_errno(e, errno == EEXIST ? ERR_STATE : ERR_FAILED, "cannot make %s", file);
    unlink(part);
    unlink(journal);
    if (rc == 0)
        rc = sync_parent(file, e);
    free(part);
    free(journal);
    return rc;
}

int db_backup(const char *dir, const char *file, struct err *e)
{
    struct db *db = db_open_reader(dir, e);
    if (db == NULL)
        return -1;
    int rc = rescue_copy(db, file, e);
    db_close(db);
    return rc;
}

/* ---- what restore and recover share ---- */

int rescue_enter(const char *dir, struct err *e)
{
    if (access(dir, F_OK) < 0)
        return err_errno(e, ERR_NOT_FOUND, "state folder %s", dir);
    return guard_filesystem(dir, NULL, e) < 0 ? -1 : guard_lock(dir, e);
}

static int put_number(struct db *db, const char *key, uint64_t value, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return db_meta_put(db, key, text, e);
}

static int put_floors(struct db *db, const struct row_ids *f, const char *id, uint64_t epoch, struct err *e)
{
    char text[160];
    snprintf(text, sizeof text, "DELETE FROM sqlite_sequence WHERE name = 'event'; INSERT INTO sqlite_sequence (name, seq) VALUES ('event', %" PRIu64 ")",
             f->event);
    return put_number(db, "floor_mark", f->mark, e) < 0 || put_number(db, "floor_move", f->move, e) < 0 || put_number(db, "floor_run", f->run, e) < 0 ||
           put_number(db, "floor_job", f->job, e) < 0 || put_number(db, "floor_crash", f->crash, e) < 0 ||
           put_number(db, "floor_event", f->event, e) < 0 || put_number(db, "epoch", epoch, e) < 0 || db_meta_put(db, "id", id, e) < 0 ||
           db_exec(db, text, e) < 0 ? -1 : 0;
}

int rescue_floors(struct db *db, const struct row_ids *floors, const char *id, uint64_t epoch, struct err *e)
{
    if (db_begin(db, e) < 0)
        return -1;
    if (put_floors(db, floors, id, epoch, e) < 0) {
        db_rollback(db);
        return -1;
    }
    return db_commit(db, e);
}

/* The database goes before its log: at no moment can a database stand there without the log that belongs to it, or with one that does not.
 * Killed in between, the folder has state.id and no state.db, which db_open refuses. */
static int move_aside(const char *dir, const char *path, const char *name, struct err *e)
{
    char *log = mem_printf("%s-wal", path), *log_aside = mem_printf("%s-wal", name), *shm = mem_printf("%s-shm", path);
    int rc = 0;
    if (rename(path, name) < 0 && errno != ENOENT)
        rc = err_errno(e, ERR_FAILED, "cannot rename %s to %s", path, name);
    if (rc == 0)
        rc = sync_file(dir, e);
    if (rc == 0 && rename(log, log_aside) < 0 && errno != ENOENT)
        rc = err_errno(e, ERR_FAILED, "cannot rename %s to %s", log, log_aside);
    if (rc == 0)
        unlink(shm);
    free(log);
    free(log_aside);
    free(shm);
    return rc;
}

int rescue_swap(const char *dir, const char *fresh, const char *word, char **aside, struct err *e)
{
    char *path = db_path(dir, "state.db");
    char *name = mem_printf("%s.%s-%lld", path, word, (long long)(clock_wall_ns() / 1000000));
    bool had = access(path, F_OK) == 0;
    int rc = sync_file(fresh, e) < 0 || move_aside(dir, path, name, e) < 0 ? -1 : 0;
    if (rc == 0 && rename(fresh, path) < 0)
        rc = err_errno(e, ERR_FAILED, "cannot rename %s to %s", fresh, path);
    if (rc == 0)
        rc = sync_file(dir, e);
    *aside = rc == 0 && had ? mem_strdup(name) : NULL;
    free(path);
    free(name);
    return rc;
}

/* ---- restore ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Of the present file only the counters are wanted; if it cannot tell them, a distance that no short loss reaches is put between. */
static void floors_of_present(const char *dir, struct row_ids *floors, uint64_t *epoch)
{
    struct row_ids present = { 0 };
    char text[24] = "", id[DB_ID_SIZE];
    uint64_t beside = 0;
    char *path = db_path(dir, "state.db");
    struct err ignored;
    bool known = false;
    struct db *db = db_header_check(dir, path, &ignored) == 0 ? db_connect(dir, path, SQLITE_OPEN_READWRITE, &ignored) : NULL;
    if (db)
        known = rows_load_ids(db, &present, &ignored) == 0 && db_meta_get(db, "epoch", text, sizeof text, &ignored) == 0;
    db_close(db);
    free(path);
    if (!known)
        present = (struct row_ids){ floors->mark + LOST_NUMBERS, floors->move + LOST_NUMBERS, floors->run + LOST_NUMBERS,
                                    floors->job + LOST_NUMBERS, floors->crash + LOST_NUMBERS, floors->event + LOST_NUMBERS };
    *floors = (struct row_ids){ later(floors->mark, present.mark), later(floors->move, present.move), later(floors->run, present.run),
                                later(floors->job, present.job), later(floors->crash, present.crash), later(floors->event, present.event) };
    db_id_read(dir, id, &beside, &ignored);
    *epoch = later(later(*epoch, beside), strtoull(text, NULL, 10));
}

static int check_backup(struct db *db, const char *backup, struct err *e)
{
    int64_t application, version;
    if (db_query_int(db, "PRAGMA application_id", &application, e) < 0 || db_query_int(db, "PRAGMA user_version", &version, e) < 0)
        return err_set(e, ERR_FAILED, "%s cannot be read as a backup of the state", backup);
    if (application != DB_APPLICATION_ID)
        return err_set(e, ERR_FAILED, "%s is not a backup of sluiced's state", backup);
    if (version > DB_VERSION)
        return err_set(e, ERR_STATE, "backup %s has schema version %lld, this sluiced knows versions up to %d", backup, (long long)version, DB_VERSION);
    if (db_integrity(db, "integrity_check", COPY_LIMIT_S, e) != 0)
        return err_set(e, ERR_FAILED, "backup %s is damaged; the present state was left as it is", backup);
    return 0;
}

/* The backup's contents with the counters going on from where they were. */
static int restored_file(const char *dir, const char *backup, const char *fresh, struct err *e)
{
    struct db *from = db_connect(dir, backup, SQLITE_OPEN_READONLY, e);
    if (from == NULL)
        return err_set(e, ERR_FAILED, "cannot open the backup %s", backup);
    int rc = check_backup(from, backup, e);
    if (rc == 0) {
        unlink(fresh);
        rc = rescue_copy(from, fresh, e);
    }
    db_close(from);
    struct db *db = rc == 0 ? db_connect(dir, fresh, SQLITE_OPEN_READWRITE, e) : NULL;
    struct row_ids floors;
    char text[24], id[DB_ID_SIZE], own[DB_ID_SIZE];
    uint64_t epoch = 0, ignored;
    struct err none;
    rc = db && rows_load_ids(db, &floors, e) == 0 && db_meta_get(db, "epoch", text, sizeof text, e) == 0 && db_meta_get(db, "id", own, sizeof own, e) == 0 ? 0 : -1;
    if (rc == 0) {
        epoch = strtoull(text, NULL, 10);
        floors_of_present(dir, &floors, &epoch);
        if (db_id_read(dir, id, &ignored, &none) != 0 || id[0] == '\0')
            snprintf(id, sizeof id, "%s", own);
        rc = rescue_floors(db, &floors, id, epoch, e);
    }
    db_close(db);
    return rc < 0 ? -1 : db_id_write(dir, id, epoch, e);
}

/* A file that was put in the state's place by hand would be taken for the state that was there, with its numbers as the last that were given out. */
static int refuse_own(const char *dir, const char *backup, const struct stat *st, struct err *e)
{
    char *path = db_path(dir, "state.db");
    struct stat own;
    int rc = stat(path, &own) < 0 || own.st_dev != st->st_dev || own.st_ino != st->st_ino ? 0 :
             err_set(e, ERR_USAGE, "backup %s is the state itself: if it was put there by hand, move it elsewhere first", backup);

    free(path);
    return rc;
}

int db_restore(const char *dir, const char *backup, char **report, struct err *e)
{
    struct str said = { 0 };
    *report = mem_strdup("");
    int lock = rescue_enter(dir, e);
    if (lock < 0)
        return -1;
    char *fresh = db_path(dir, "state.db.restored"), *aside = NULL;
    struct stat st;
    int rc = access(backup, R_OK) == 0 && stat(backup, &st) == 0 ? 0 : err_errno(e, ERR_NOT_FOUND, "backup %s", backup);
    if (rc == 0 && !S_ISREG(st.st_mode))
        rc = err_set(e, ERR_FAILED, "backup %s: a regular file is wanted", backup);
    if (rc == 0)
        rc = refuse_own(dir, backup, &st, e);
    if (rc == 0)
        rc = restored_file(dir, backup, fresh, e);
    if (rc == 0)
        rc = rescue_swap(dir, fresh, "before-restore", &aside, e);
    if (rc == 0) {
        str_addf(&said, "%s is in its place\n", backup);
        if (aside)
            str_addf(&said, "the state that was there is kept in %s\n", aside);
        free(*report);
        *report = str_take(&said);
    } else {
        unlink(fresh);
    }
    free(fresh);
    free(aside);
    close(lock);
    return rc;
}

/* ---- check ---- */

static int check_structure(struct db *db, struct str *said, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int bad = 0, step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(db->sql, "PRAGMA integrity_check(20)", -1, &s, NULL) == SQLITE_OK) {
        while ((step = sqlite3_step(s)) == SQLITE_ROW) {
            const char *line = (const char *)sqlite3_column_text(s, 0);
            if (line && strcmp(line, "ok") == 0)
                continue;
            str_addf(said, "damaged: %s\n", line ? line : "?");
            if (bad++ == 0)
                db_damaged(db, e, line ? line : "?");
        }
    }
    if (step != SQLITE_DONE && bad++ == 0)
        db_fail(db, e, "cannot check the state");
    sqlite3_finalize(s);
    return bad ? -1 : 0;
}

static int check_tables(struct db *db, struct str *said, struct err *e)
{
    static const char *const names[] = { "node", "mark", "move", "event", "run", "run_tf", "job", "job_file", "task", "attempt", "crash" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char text[64];
        int64_t n;
        snprintf(text, sizeof text, "SELECT count(*) FROM %s", names[i]);
        if (db_query_int(db, text, &n, e) < 0)
            return err_prefix(e, "table %s", names[i]);
        str_addf(said, "%-9s %lld rows\n", names[i], (long long)n);
    }
    return 0;
}

struct run_check { struct db *db; struct str *said; struct err *e; };

static int check_run(void *arg, const struct row_run *r)
{
    struct run_check *c = arg;
    struct row_counts n;
    if (rows_count_run_tfs(c->db, r->id, &n, c->e) < 0)
        return -1;
    if (n.done == r->done && n.failed == r->failed && n.dropped == r->dropped && n.lost == r->lost)
        return 0;
    str_addf(c->said, "run %" PRIu64 ": totals and rows differ\n", r->id);
    return err_set(c->e, ERR_FAILED, "run %" PRIu64 ": its totals say %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " dropped, %" PRIu64 " lost; its rows %"
                   PRIu64 ", %" PRIu64 ", %" PRIu64 ", %" PRIu64, r->id, r->done, r->failed, r->dropped, r->lost, n.done, n.failed, n.dropped, n.lost);
}

static int check_all(struct db *db, struct str *said, struct err *e)
{
    int64_t version, application;
    if (db_query_int(db, "PRAGMA application_id", &application, e) < 0)
        return -1;
    if (application != DB_APPLICATION_ID)
        return db_damaged(db, e, "it is a database of another program");
    if (check_structure(db, said, e) < 0 || migrate_version(db, &version, e) < 0 || db_identity(db, e) < 0)
        return -1;
    str_addf(said, "structure good, schema version %lld\n", (long long)version);
    if (version < DB_VERSION) {
        str_addf(said, "the next start brings it to version %d; its rows can be checked then\n", DB_VERSION);
        return 0;
    }
    struct run_check c = { db, said, e };
    if (check_tables(db, said, e) < 0 || rows_load_runs(db, false, check_run, &c, e) < 0)
        return -1;
    str_add(said, "totals of all runs agree with their rows\n");
    return 0;
}

int db_check(const char *dir, char **report, struct err *e)
{
    struct str said = { 0 };
    *report = mem_strdup("");
    int lock = rescue_enter(dir, e);
    if (lock < 0)
        return -1;
    char *path = db_path(dir, "state.db");
    int rc = access(path, F_OK) == 0 ? db_header_check(dir, path, e) : err_errno(e, ERR_NOT_FOUND, "no state to check: %s", path);
    struct db *db = rc == 0 ? db_connect(dir, path, SQLITE_OPEN_READWRITE, e) : NULL;
    rc = db ? check_all(db, &said, e) : -1;
    db_close(db);
    free(path);
    close(lock);
    free(*report);
    *report = str_take(&said);
    return rc;
}
