/* db.c - the state database: open with its checks, transactions, the reserve
 *
 * From: scheduler/writer.c (the only writer), restore.c (at start-up), rows.c (statements).  To: SQLite, the folder.
 * A folder is ours by its lock before anything in it is looked at. state.db comes into being whole, by rename; from then on
 * state.id says that there must be one, so that an empty start after a loss cannot happen in silence.
 */
#include "config.h"
#include "db.h"
#include "db_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "schema_sql.h"

enum { CHECK_LIMIT_S = 4, START_LIMIT_S = 2, LOG_LARGE = 2 * DB_WAL_LIMIT_BYTES };

static const int64_t WRITER_WAIT = 5 * CLOCK_SECOND, READER_WAIT = 2 * CLOCK_SECOND;

/* ---- small things ---- */

char *db_path(const char *dir, const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

enum db_fault db_classify(int code)
{
    switch (code & 0xff) {
    case SQLITE_OK: case SQLITE_ROW: case SQLITE_DONE:
        return DB_FAULT_NONE;
    case SQLITE_BUSY: case SQLITE_LOCKED: case SQLITE_PROTOCOL:
        return DB_FAULT_LOCKED;
    case SQLITE_CONSTRAINT: case SQLITE_MISMATCH: case SQLITE_TOOBIG: case SQLITE_RANGE: case SQLITE_ERROR: case SQLITE_MISUSE:
        return DB_FAULT_CHANGE;
    default:                                    /* FULL IOERR READONLY CANTOPEN CORRUPT NOTADB NOMEM ... */
        return DB_FAULT_FULL;
    }
}

/* The sentence for a person, who does not know SQLite's words. */
static int say(const struct db *db, struct err *e, int code, const char *doing, const char *message)
{
    char who[96];
    if (code == SQLITE_IOERR_SHMSIZE)           /* there is no room for the file beside it */
        code = SQLITE_FULL;
    switch (code & 0xff) {
    case SQLITE_BUSY: case SQLITE_LOCKED: case SQLITE_PROTOCOL: {
        char *shm = db_path(db->dir, "state.db-shm");
        guard_lock_holder(shm, who, sizeof who);
        free(shm);
        return err_set(e, ERR_TIMEOUT, "%s: state is locked by another process (%s holds %s)", doing, who, db->path);
    }
    case SQLITE_FULL:
        return err_set(e, ERR_STATE, "%s: the disk of the state folder %s is full", doing, db->dir);
    case SQLITE_READONLY:
        return err_set(e, ERR_STATE, "%s: the state folder %s cannot be written (%s)", doing, db->dir, message);
    case SQLITE_IOERR: case SQLITE_CANTOPEN:
        return err_set(e, ERR_STATE, "%s: the disk of the state folder %s fails (%s, error %d)", doing, db->dir, message, code);
    case SQLITE_CORRUPT: case SQLITE_NOTADB:
        return db_damaged(db, e, message);
    default:
        return err_set(e, ERR_FAILED, "%s: %s", doing, message);
    }
}

int db_damaged(const struct db *db, struct err *e, const char *what)
{
    return err_set(e, ERR_FAILED, "%s is damaged (%.160s); it was left as it is. `sluiced --state %s --recover` rebuilds what can be read, "
                   "`sluiced --state %s --restore FILE` puts a backup in its place", db->path, what, db->dir, db->dir);
}

int db_fail(struct db *db, struct err *e, const char *doing)
{
    db->code = sqlite3_extended_errcode(db->sql);
    db->fault = db_classify(db->code);
    if (db->fault == DB_FAULT_NONE)             /* nothing SQLite knows of: our own call was wrong */
        db->fault = DB_FAULT_CHANGE;
    return say(db, e, db->code, doing, sqlite3_errmsg(db->sql));
}

bool db_full(const struct db *db)
{
    return db->fault == DB_FAULT_FULL;
}

bool db_locked(const struct db *db)
{
    return db->fault == DB_FAULT_LOCKED;
}

bool db_broken(const struct db *db)
{
    int primary = db->code & 0xff;

    return db->code == SQLITE_IOERR_VNODE || primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

const char *db_dir(const struct db *db)
{
    return db->dir;
}

void db_wait_until(struct db *db, int64_t mono_ns)
{
    atomic_store(&db->wait_until, mono_ns);
}

/* A POSIX lock of another process can only be asked for again and again; each wait is short and has an end. */
static int on_busy(void *arg, int tries)
{
    struct db *db = arg;
    int64_t now = clock_mono_ns(), cap = atomic_load(&db->wait_until);
    if (tries == 0)
        db->busy_since = now;
    if (now - db->busy_since >= db->busy_limit || (cap != 0 && now >= cap))
        return 0;
    nanosleep(&(struct timespec){ .tv_nsec = 1000000L * (tries < 10 ? tries + 1 : 10) }, NULL);
    return 1;
}

/* ---- statements ---- */

sqlite3_stmt *db_statement(struct db *db, unsigned slot, const char *text, struct err *e)
{
    if (db->statements[slot] == NULL &&
        sqlite3_prepare_v3(db->sql, text, -1, SQLITE_PREPARE_PERSISTENT, &db->statements[slot], NULL) != SQLITE_OK) {
        db_fail(db, e, "cannot use the state");
        return NULL;
    }
    return db->statements[slot];
}

static int run(struct db *db, enum db_slot slot, const char *text, const char *doing, struct err *e)
{
    sqlite3_stmt *s = db_statement(db, slot, text, e);
    if (s == NULL)
        return -1;
    int rc = sqlite3_step(s) == SQLITE_DONE ? 0 : db_fail(db, e, doing);
    if (rc < 0 && db->fault == DB_FAULT_CHANGE)
        db->fault = DB_FAULT_FULL;              /* no single change is to blame: nothing can be stored */
    sqlite3_reset(s);
    return rc;
}

int db_exec(struct db *db, const char *text, struct err *e)
{
    return sqlite3_exec(db->sql, text, NULL, NULL, NULL) == SQLITE_OK ? 0 : db_fail(db, e, "cannot use the state");
}

int db_query_int(struct db *db, const char *text, int64_t *value, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = -1;
    if (sqlite3_prepare_v2(db->sql, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        *value = sqlite3_column_int64(s, 0);
        rc = 0;
    } else {
        db_fail(db, e, "cannot read the state");
    }
    sqlite3_finalize(s);
    return rc;
}

int db_meta_get(struct db *db, const char *key, char *out, size_t size, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int step = SQLITE_ERROR;
    if (sqlite3_prepare_v2(db->sql, "SELECT value FROM meta WHERE key = ?1", -1, &s, NULL) == SQLITE_OK) {
        sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
        step = sqlite3_step(s);
    }
    out[0] = '\0';
    if (step == SQLITE_ROW)
        snprintf(out, size, "%s", (const char *)sqlite3_column_text(s, 0));
    int rc = step == SQLITE_ROW || step == SQLITE_DONE ? 0 : db_fail(db, e, "cannot read the state");
    sqlite3_finalize(s);
    return rc;
}

int db_meta_put(struct db *db, const char *key, const char *value, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int step = SQLITE_ERROR;
    const char *text = "INSERT INTO meta (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
    if (sqlite3_prepare_v2(db->sql, text, -1, &s, NULL) == SQLITE_OK) {
        sqlite3_bind_text(s, 1, key, -1, SQLITE_STATIC);
        sqlite3_bind_text(s, 2, value, -1, SQLITE_STATIC);
        step = sqlite3_step(s);
    }
    int rc = step == SQLITE_DONE ? 0 : db_fail(db, e, "cannot store the change");
    sqlite3_finalize(s);
    return rc;
}

/* ---- transactions ---- */

/* What is committed into a file that nobody finds any more is lost at the next start: it must not be acknowledged. */
static int check_there(struct db *db, struct err *e)
{
    int moved = 0;
    struct stat st;

    if (sqlite3_file_control(db->sql, "main", SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || !moved) {
        /* It never shrinks by itself; with its pages in the cache SQLite would write on for long. */
        if (stat(db->path, &st) == 0 && st.st_size < db->size) {
            db_damaged(db, e, "it was cut short while in use");
            db->fault = DB_FAULT_FULL;
            db->code = SQLITE_CORRUPT;
            return -1;
        }
        db->size = st.st_size > db->size ? st.st_size : db->size;
        return 0;
    }
    db->fault = DB_FAULT_FULL;
    db->code = SQLITE_IOERR_VNODE;
    return err_set(e, ERR_STATE, "%s was removed or replaced while in use: nothing can be stored; put it back, or start sluiced anew with a backup",
                   db->path);
}

int db_begin(struct db *db, struct err *e)
{
    db->fault = DB_FAULT_NONE;
    if (check_there(db, e) < 0)
        return -1;
    return run(db, SLOT_BEGIN, "BEGIN IMMEDIATE", "cannot begin a transaction", e);
}

int db_commit(struct db *db, struct err *e)
{
    if (check_there(db, e) == 0 && run(db, SLOT_COMMIT, "COMMIT", "cannot commit", e) == 0)
        return 0;
    db_rollback(db);
    return -1;
}

/* Many failures end the transaction by themselves; asking for its end then would be an error of its own. */
void db_rollback(struct db *db)
{
    if (!sqlite3_get_autocommit(db->sql))
        sqlite3_exec(db->sql, "ROLLBACK", NULL, NULL, NULL);
}

int db_save(struct db *db, struct err *e)
{
    db->fault = DB_FAULT_NONE;
    return run(db, SLOT_SAVE, "SAVEPOINT change", "cannot begin a change", e);
}

int db_release(struct db *db, bool keep, struct err *e)
{
    if (!keep && run(db, SLOT_UNDO, "ROLLBACK TO change", "cannot take a change back", e) < 0)
        return -1;
    return run(db, SLOT_KEEP, "RELEASE change", "cannot end a change", e);
}

/* ---- the reserve and the log ---- */

/* With the reserve gone the log must not eat what it left: its pages go home after every few. */
void db_use_reserve(struct db *db)
{
    char *path = db_path(db->dir, "state.reserve");
    if (unlink(path) < 0 && errno != ENOENT)
        log_warning("state: cannot give %s up: %s", path, strerror(errno));
    free(path);
    db->saving_space = true;
    sqlite3_wal_autocheckpoint(db->sql, 8);
}

static bool reserve_is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size == DB_RESERVE_BYTES && st.st_blocks * 512 >= DB_RESERVE_BYTES;
}

int db_reserve(struct db *db)
{
    char *path = db_path(db->dir, "state.reserve");
    int rc = 0;
    if (!reserve_is_there(path)) {
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
        rc = fd >= 0 && posix_fallocate(fd, 0, DB_RESERVE_BYTES) == 0 ? 0 : -1;
        if (fd >= 0)
            close(fd);
        if (rc < 0)
            unlink(path);
    }
    free(path);
    if (rc == 0 && db->saving_space) {
        db->saving_space = false;
        sqlite3_wal_autocheckpoint(db->sql, 1000);
    }
    return rc;
}

uint64_t db_log_bytes(const struct db *db)
{
    char *path = mem_printf("%s-wal", db->path);
    struct stat st;
    uint64_t size = stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    free(path);
    return size;
}

void db_tidy(struct db *db)
{
    int64_t limit = db->busy_limit;
    db->busy_limit = 0;
    sqlite3_wal_checkpoint_v2(db->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    db->busy_limit = limit;
}

/* ---- identity ---- */

void db_id_make(char id[DB_ID_SIZE])
{
    uint8_t bytes[16];
    while (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        continue;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(id + 2 * i, 3, "%02x", bytes[i]);
}

int db_id_read(const char *dir, char id[DB_ID_SIZE], uint64_t *epoch, struct err *e)
{
    char *path = db_path(dir, "state.id");
    int rc = 1;
    *epoch = 0;
    id[0] = '\0';
    if (access(path, F_OK) == 0) {
        char *text = file_read(path, 4096, NULL, e);
        rc = text ? 0 : -1;
        /* One that cannot be read as it should still says that there was a database. */
        if (text && sscanf(text, "%32s %" SCNu64, id, epoch) != 2)
            id[0] = '\0';
        free(text);
    }
    free(path);
    return rc;
}

int db_id_write(const char *dir, const char *id, uint64_t epoch, struct err *e)
{
    char *path = db_path(dir, "state.id");
    char text[96];
    int len = snprintf(text, sizeof text, "%s %" PRIu64 "\n", id, epoch);
    int rc = file_replace(path, text, (size_t)len, 0644, e);
    free(path);
    return rc;
}

/* ---- open ---- */

struct db *db_connect(const char *dir, const char *path, int flags, struct err *e)
{
    struct db *db = mem_zalloc(sizeof *db);
    db->dir = mem_strdup(dir);
    db->path = mem_strdup(path);
    db->lock_fd = -1;
    db->busy_limit = flags & SQLITE_OPEN_READONLY ? READER_WAIT : WRITER_WAIT;
    /* The keys of runs are in it: for the owner's eyes only. The log takes its mode from the file. */
    int made = flags & SQLITE_OPEN_CREATE ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (made >= 0)
        close(made);
    if (sqlite3_open_v2(path, &db->sql, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK) {
        db_fail(db, e, "cannot open the state");
        db_close(db);
        return NULL;
    }
    sqlite3_busy_handler(db->sql, on_busy, db);
    /* Until the checks are through, a close must leave the file as it is. */
    sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_db_config(db->sql, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_exec(db->sql, "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA mmap_size = 0", NULL, NULL, NULL);
    return db;
}

void db_close(struct db *db)
{
    if (db == NULL)
        return;
    for (unsigned i = 0; i < DB_STATEMENTS; i++)
        sqlite3_finalize(db->statements[i]);
    sqlite3_close(db->sql);
    if (db->lock_fd >= 0)
        close(db->lock_fd);
    free(db->dir);
    free(db->path);
    free(db);
}

int db_make_schema(struct db *db, const char *id, struct err *e)
{
    char pragmas[96], made[24];
    snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d", DB_APPLICATION_ID, DB_VERSION);
    snprintf(made, sizeof made, "%lld", (long long)clock_wall_ns());
    if (db_begin(db, e) < 0)
        return -1;
    if (db_exec(db, SCHEMA_SQL, e) < 0 || db_exec(db, pragmas, e) < 0 || db_meta_put(db, "id", id, e) < 0 ||
        db_meta_put(db, "epoch", "0", e) < 0 || db_meta_put(db, "made", made, e) < 0) {
        db_rollback(db);
        return -1;
    }
    return db_commit(db, e);
}

static int sync_path(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd >= 0 && fsync(fd) == 0 ? 0 : err_errno(e, ERR_FAILED, "cannot sync %s", path);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The first start: made beside, renamed when whole. */
static int make_fresh(const char *dir, const char *path, struct err *e)
{
    char *fresh = db_path(dir, "state.db.new"), *journal = db_path(dir, "state.db.new-journal");
    char id[DB_ID_SIZE];
    unlink(fresh);
    unlink(journal);
    db_id_make(id);
    struct db *db = db_connect(dir, fresh, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, e);
    int rc = db ? db_make_schema(db, id, e) : -1;
    db_close(db);
    if (rc == 0)
        rc = sync_path(fresh, e);
    if (rc == 0 && rename(fresh, path) < 0)
        rc = err_errno(e, ERR_FAILED, "cannot rename %s", fresh);
    if (rc == 0)
        rc = sync_path(dir, e);
    if (rc < 0)
        unlink(fresh);
    free(fresh);
    free(journal);
    return rc;
}

static bool log_is_empty(const char *path)
{
    char *log = mem_printf("%s-wal", path);
    struct stat st;
    bool empty = stat(log, &st) < 0 || st.st_size == 0;
    free(log);
    return empty;
}

/* What SQLite itself would take for a new, empty database must not be taken for one. */
int db_header_check(const char *dir, const char *path, struct err *e)
{
    struct db fake = { .dir = (char *)dir, .path = (char *)path };
    char head[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);          /* a FIFO would hold us until somebody writes */
    if (fd < 0)
        return err_errno(e, errno == EACCES ? ERR_PERMISSION : ERR_FAILED, "cannot open %s", path);
    struct stat st;
    int bad = fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || pread(fd, head, sizeof head, 0) < 0;
    close(fd);
    if (bad)
        return err_set(e, ERR_FAILED, "%s is not a file that can be read", path);
    if (st.st_size == 0)
        return db_damaged(&fake, e, "it is empty, 0 bytes");
    if (memcmp(head, "SQLite format 3", 16) != 0)
        return db_damaged(&fake, e, "it does not begin as a database does");
    /* SQLite would take a last page cut short for whole. With a log there the page may be in that, and its end not yet written. */
    if (st.st_size % DB_PAGE != 0 && log_is_empty(path))
        return db_damaged(&fake, e, "it was cut short");
    return 0;
}

static int gone(const char *dir, const char *path, struct err *e)
{
    return err_set(e, ERR_FAILED, "%s is gone, though %s/state.id says that there was one: put a backup in its place with "
                   "`sluiced --state %s --restore FILE`; to start with nothing, remove state.id and state.db-wal yourself", path, dir, dir);
}

/* 0: there is one, or there is a new one now. */
static int find_or_make(const char *dir, const char *path, struct err *e)
{
    char id[DB_ID_SIZE];
    uint64_t epoch;
    struct stat st;
    if (lstat(path, &st) == 0)
        return db_header_check(dir, path, e);
    if (errno != ENOENT)
        return err_errno(e, ERR_FAILED, "cannot look at %s", path);
    int rc = db_id_read(dir, id, &epoch, e);
    char *wal = mem_printf("%s-wal", path);
    bool log_left = access(wal, F_OK) == 0;
    free(wal);
    if (rc < 0)
        return -1;
    return rc == 0 || log_left ? gone(dir, path, e) : make_fresh(dir, path, e);
}

struct timed { int64_t until; bool over; };

static int on_progress(void *arg)
{
    struct timed *t = arg;
    t->over = clock_mono_ns() >= t->until;
    return t->over;
}

int db_integrity(struct db *db, const char *check, double limit_s, struct err *e)
{
    struct timed t = { clock_mono_ns() + (int64_t)(limit_s * 1e9), false };
    char pragma[64];
    snprintf(pragma, sizeof pragma, "PRAGMA %s(1)", check);
    sqlite3_progress_handler(db->sql, 10000, on_progress, &t);
    sqlite3_stmt *s = NULL;
    int rc = sqlite3_prepare_v2(db->sql, pragma, -1, &s, NULL);
    rc = rc == SQLITE_OK ? sqlite3_step(s) : rc;
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 0) : NULL;
    int result;
    if (said)
        result = strcmp(said, "ok") == 0 ? 0 : db_damaged(db, e, said);
    else if (t.over)
        result = 1;
    else
        result = db_fail(db, e, "cannot check the state");
    sqlite3_finalize(s);
    sqlite3_progress_handler(db->sql, 0, NULL, NULL);
    return result;
}

/* Every sentence about a broken file comes from here, within seconds. A large file is checked as far as the time goes. */
static int check_contents(struct db *db, struct err *e)
{
    int64_t application, pages;
    if (db_query_int(db, "PRAGMA application_id", &application, e) < 0 || db_query_int(db, "PRAGMA page_count", &pages, e) < 0)
        return -1;
    if (application != DB_APPLICATION_ID)
        return db_damaged(db, e, "it is a database of another program");
    int rc = db_integrity(db, pages < 4096 ? "integrity_check" : "quick_check", START_LIMIT_S, e);
    if (rc == 1)
        log_warning("state: %s is large, the check at start went for %d s and not to its end; `sluiced --check` does it whole", db->path, START_LIMIT_S);
    return rc < 0 ? -1 : 0;
}

void db_settings(struct db *db)
{
    sqlite3_exec(db->sql, "PRAGMA synchronous = FULL; PRAGMA secure_delete = OFF; PRAGMA cache_size = -8000", NULL, NULL, NULL);
    char limit[64];
    snprintf(limit, sizeof limit, "PRAGMA journal_size_limit = %d", DB_WAL_LIMIT_BYTES);
    sqlite3_exec(db->sql, limit, NULL, NULL, NULL);
    sqlite3_wal_autocheckpoint(db->sql, 1000);
}

static int into_wal(struct db *db, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int rc = -1;
    if (sqlite3_prepare_v2(db->sql, "PRAGMA journal_mode = WAL", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW &&
        strcmp((const char *)sqlite3_column_text(s, 0), "wal") == 0)
        rc = 0;
    else
        db_fail(db, e, "cannot use a write-ahead log");
    sqlite3_finalize(s);
    return rc;
}

int db_identity(struct db *db, struct err *e)
{
    char id[DB_ID_SIZE];
    uint64_t epoch;
    int rc = db_id_read(db->dir, id, &epoch, e);
    if (rc < 0 || db_meta_get(db, "id", db->id, sizeof db->id, e) < 0)
        return -1;
    if (db->id[0] == '\0')
        return db_damaged(db, e, "its identity is missing");
    if (rc != 0 || id[0] == '\0')
        return 1;
    return strcmp(id, db->id) == 0 ? 0 :
        err_set(e, ERR_STATE, "%s is not the database that this folder had (%s/state.id names another): put it in place with "
                "`sluiced --state %s --restore FILE`, which keeps the counters going", db->path, db->dir, db->dir);
}

/* A folder without state.id gets it. */
static int check_identity(struct db *db, struct err *e)
{
    int rc = db_identity(db, e);
    return rc == 1 ? db_id_write(db->dir, db->id, 0, e) : rc;
}

/* Even to read, the log's shared memory has to be made: with the disk full, the reserve pays for it. */
static struct db *connect_checked(const char *dir, const char *path, struct err *e)
{
    for (int try = 0; try < 2; try++) {
        struct db *db = db_connect(dir, path, SQLITE_OPEN_READWRITE, e);
        if (db && check_contents(db, e) == 0 && into_wal(db, e) == 0)
            return db;
        int code = db ? db->code & 0xff : SQLITE_OK;
        db_close(db);
        char *reserve = db_path(dir, "state.reserve");
        bool again = (code == SQLITE_FULL || code == SQLITE_IOERR || code == SQLITE_CANTOPEN) && unlink(reserve) == 0;
        free(reserve);
        if (!again)
            break;
        log_warning("state: %s; the reserve was given up", e ? e->text : "the disk is full");
    }
    return NULL;
}

static struct db *open_checked(const char *dir, const char *path, const struct db_hooks *hooks, struct err *e)
{
    if (find_or_make(dir, path, e) < 0)
        return NULL;
    struct db *db = connect_checked(dir, path, e);
    if (db == NULL)
        return NULL;
    if (migrate_forward(db, hooks, e) < 0 || check_identity(db, e) < 0) {
        db_close(db);
        return NULL;
    }
    db_settings(db);
    sqlite3_db_config(db->sql, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    if (db_reserve(db) < 0)
        log_warning("state: no room for the reserve of %d MiB in %s", DB_RESERVE_BYTES >> 20, dir);
    return db;
}

struct db *db_open(const char *dir, const struct db_hooks *hooks, struct err *e)
{
    if (file_mkdirs(dir, 0755, e) < 0 || guard_filesystem(dir, hooks, e) < 0)
        return NULL;
    int lock = guard_lock(dir, e);
    if (lock < 0)
        return NULL;
    char *path = db_path(dir, "state.db");
    struct db *db = open_checked(dir, path, hooks, e);
    free(path);
    if (db == NULL)
        close(lock);
    else
        db->lock_fd = lock;
    return db;
}

/* ---- epoch, pruning ---- */

static int store_meta(struct db *db, const char *key, uint64_t value, struct err *e)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    if (db_begin(db, e) < 0)
        return -1;
    if (db_meta_put(db, key, text, e) < 0) {
        db_rollback(db);
        return -1;
    }
    return db_commit(db, e);
}

int db_probe(struct db *db, struct err *e)
{
    return store_meta(db, "probe", (uint64_t)clock_wall_ns(), e);
}

/* What SQLite keeps in memory would hide a file that was cut short. */
bool db_sound(struct db *db)
{
    struct err e = { 0 };

    sqlite3_db_release_memory(db->sql);
    return db_integrity(db, "quick_check", CHECK_LIMIT_S, &e) >= 0;
}

/* The larger of both places counts: a backup that was put back must not bring old fences to life. */
uint64_t db_next_epoch(struct db *db, struct err *e)
{
    char text[24], id[DB_ID_SIZE];
    uint64_t beside;
    if (db_meta_get(db, "epoch", text, sizeof text, e) < 0 || db_id_read(db->dir, id, &beside, e) < 0)
        return 0;
    uint64_t epoch = strtoull(text, NULL, 10);
    epoch = (epoch > beside ? epoch : beside) + 1;
    if (store_meta(db, "epoch", epoch, e) < 0) {
        if (!db_full(db))
            return 0;
        db_use_reserve(db);                     /* a full disk must not keep sluiced from starting */
        if (store_meta(db, "epoch", epoch, e) < 0)
            return 0;
    }
    struct err why;
    if (db_id_write(db->dir, db->id, epoch, &why) < 0)
        log_warning("state: %s", why.text);
    return epoch;
}

/* where: which rows, oldest first, at most limit. They go, and stay counted. */
static int prune_where(struct db *db, const char *where, unsigned limit, struct err *e)
{
    char text[1200];
    snprintf(text, sizeof text,
             "CREATE TEMP TABLE IF NOT EXISTS going (row INTEGER PRIMARY KEY);"
             "DELETE FROM going;"
             "INSERT INTO going SELECT rowid FROM run_tf WHERE published != 0 AND %s LIMIT %u;"
             "INSERT INTO run_pruned (run, outcome, rows, incomplete, bytes)"
             " SELECT run, outcome, count(*), sum(incomplete), sum(bytes) FROM run_tf WHERE rowid IN (SELECT row FROM going) GROUP BY run, outcome"
             " ON CONFLICT (run, outcome) DO UPDATE SET rows = rows + excluded.rows, incomplete = incomplete + excluded.incomplete, bytes = bytes + excluded.bytes;"
             "DELETE FROM run_tf WHERE rowid IN (SELECT row FROM going);", where, limit);
    return db_exec(db, text, e) < 0 ? -1 : sqlite3_changes(db->sql);
}

/* A run that has less than keep rows in the span of its numbers needs no look at them: most runs, most of the time. */
static const char LONG_RUNS[] = "SELECT id FROM run WHERE (SELECT max(tf) FROM run_tf WHERE run = id) - (SELECT min(tf) FROM run_tf WHERE run = id) >= ?1 ORDER BY id";

static int prune_long_runs(struct db *db, uint64_t keep, unsigned limit, struct err *e)
{
    sqlite3_stmt *s = NULL;
    int gone_rows = 0, rc = 0;
    if (sqlite3_prepare_v2(db->sql, LONG_RUNS, -1, &s, NULL) != SQLITE_OK)
        return db_fail(db, e, "cannot read the state");
    sqlite3_bind_int64(s, 1, (int64_t)keep);
    while ((unsigned)gone_rows < limit && rc >= 0 && sqlite3_step(s) == SQLITE_ROW) {
        long long id = sqlite3_column_int64(s, 0);
        char where[200];
        snprintf(where, sizeof where, "run = %lld AND tf < (SELECT tf FROM run_tf WHERE run = %lld ORDER BY tf DESC LIMIT 1 OFFSET %" PRIu64 ") ORDER BY tf",
                 id, id, keep - 1);
        rc = prune_where(db, where, limit - (unsigned)gone_rows, e);
        gone_rows += rc > 0 ? rc : 0;
    }
    sqlite3_finalize(s);
    return rc < 0 ? -1 : gone_rows;
}

/* All runs together: of those that ended, the rows written first. */
static int prune_old_runs(struct db *db, uint64_t keep, unsigned limit, struct err *e)
{
    char where[200];
    snprintf(where, sizeof where, "rowid <= (SELECT max(rowid) FROM run_tf) - %" PRIu64 " AND run IN (SELECT id FROM run WHERE ended != 0) ORDER BY rowid", keep);
    return prune_where(db, where, limit, e);
}

int db_prune(struct db *db, uint64_t run_tfs, struct err *e)
{
    enum { AT_ONCE = 1000, RUNS_TOGETHER = 10 };
    uint64_t keep = run_tfs ? run_tfs : 1;
    int of_long = prune_long_runs(db, keep, AT_ONCE, e);
    if (of_long < 0 || of_long >= AT_ONCE)
        return of_long;
    int of_old = prune_old_runs(db, keep * RUNS_TOGETHER, (unsigned)(AT_ONCE - of_long), e);
    return of_old < 0 ? -1 : of_long + of_old;
}
