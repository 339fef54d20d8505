/* rows.c - rows of each table: one description a table, from which writing and reading both follow
 *
 * From: changes in the writer's thread (put), start-up and read connections (load).  To: db.c.
 * A column is added in three places that must agree: schema.sql (with a migration), the struct in rows.h, and the line here.
 */
#include "config.h"
#include "rows.h"
#include "db_private.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "str.h"

enum type { U64, I64, U32, INT, BOOL, REAL, TEXT, WORD, KEY32, BYTES };      /* WORD: a text that must be there. BYTES: pointer, then its size */

struct column { const char *name; enum type type; size_t offset; };

struct table {
    const char *name, *key;               /* key: the columns that find a row; its order is that of loads */
    enum db_slot slot;
    const struct column *columns;
    size_t n;
};

/* clang-format off */
#define AT(field) offsetof(struct ROW, field)
#define ROW row_event
static const struct column event_columns[] = {
    { "seq", U64, AT(seq) }, { "time", I64, AT(time) }, { "node", TEXT, AT(node) }, { "who", TEXT, AT(who) }, { "what", WORD, AT(what) },
    { "before", TEXT, AT(before) }, { "after", TEXT, AT(after) }, { "reason", TEXT, AT(reason) },
};
#undef ROW
#define ROW row_node
static const struct column node_columns[] = {
    { "name", WORD, AT(name) }, { "class", WORD, AT(class) }, { "pool", WORD, AT(pool) }, { "wanted_pool", TEXT, AT(wanted_pool) },
    { "added", I64, AT(added) }, { "retired", I64, AT(retired) }, { "shm_wanted", U64, AT(shm_wanted) }, { "nice_wanted", INT, AT(nice_wanted) },
};
#undef ROW
#define ROW row_mark
static const struct column mark_columns[] = {
    { "id", U64, AT(id) }, { "node", WORD, AT(node) }, { "part", TEXT, AT(part) }, { "owner_kind", TEXT, AT(owner_kind) }, { "owner", TEXT, AT(owner) },
    { "class", TEXT, AT(class) }, { "severity", TEXT, AT(severity) }, { "reason", TEXT, AT(reason) }, { "evidence", TEXT, AT(evidence) },
    { "created", I64, AT(created) }, { "until", I64, AT(until) }, { "cleared", I64, AT(cleared) }, { "cleared_by", TEXT, AT(cleared_by) },
    { "clear_reason", TEXT, AT(clear_reason) },
};
#undef ROW
#define ROW row_boot
static const struct column boot_columns[] = { { "node", WORD, AT(node) }, { "boot", WORD, AT(boot) } };
#undef ROW
#define ROW row_device
static const struct column device_columns[] = {
    { "node", WORD, AT(node) }, { "serial", WORD, AT(serial) }, { "place", U32, AT(place) }, { "seen", I64, AT(seen) }, { "forgotten", I64, AT(forgotten) },
};
#undef ROW
#define ROW row_move
static const struct column move_columns[] = {
    { "id", U64, AT(id) }, { "node", WORD, AT(node) }, { "to", WORD, AT(to) }, { "when", TEXT, AT(when) }, { "state", WORD, AT(state) },
    { "requested_by", TEXT, AT(requested_by) }, { "text", TEXT, AT(text) }, { "at", I64, AT(at) }, { "deadline", I64, AT(deadline) },
    { "created", I64, AT(created) }, { "ended", I64, AT(ended) },
};
#undef ROW
#define ROW row_run
static const struct column run_columns[] = {
    { "id", U64, AT(id) }, { "name", TEXT, AT(name) }, { "state", WORD, AT(state) }, { "workflow", TEXT, AT(workflow) }, { "backends", TEXT, AT(backends) },
    { "options", TEXT, AT(options) }, { "policy", TEXT, AT(policy) }, { "keep", TEXT, AT(keep) }, { "incomplete_rule", TEXT, AT(incomplete_rule) },
    { "output", TEXT, AT(output) }, { "owner", TEXT, AT(owner) }, { "text", TEXT, AT(text) }, { "sources", U32, AT(sources) },
    { "min_nodes", U32, AT(min_nodes) }, { "in_flight", U32, AT(in_flight) }, { "key", KEY32, AT(key) }, { "announced", U64, AT(announced) },
    { "dispatched", U64, AT(dispatched) }, { "done", U64, AT(done) }, { "failed", U64, AT(failed) }, { "dropped", U64, AT(dropped) },
    { "lost", U64, AT(lost) }, { "incomplete", U64, AT(incomplete) }, { "bytes_done", U64, AT(bytes_done) }, { "dropped_by", TEXT, AT(dropped_by) },
    { "started", I64, AT(started) }, { "ended", I64, AT(ended) }, { "stages", TEXT, AT(stages) },
    { "nice", INT, AT(nice) }, { "nice_min", INT, AT(nice_min) }, { "nice_max", INT, AT(nice_max) },
};
#undef ROW
#define ROW row_run_tf
static const struct column run_tf_columns[] = {
    { "run", U64, AT(run) }, { "tf", U64, AT(tf) }, { "outcome", WORD, AT(outcome) }, { "reason", TEXT, AT(reason) }, { "node", TEXT, AT(node) },
    { "device", TEXT, AT(device) }, { "digest", TEXT, AT(digest) }, { "stem", TEXT, AT(stem) }, { "epoch", U64, AT(epoch) }, { "attempt", U32, AT(attempt) },
    { "incomplete", BOOL, AT(incomplete) }, { "published", INT, AT(published) }, { "seconds", REAL, AT(seconds) }, { "bytes", U64, AT(bytes) },
    { "time", I64, AT(time) }, { "stages", TEXT, AT(stages) },
};
#undef ROW
#define ROW row_job
static const struct column job_columns[] = {
    { "id", U64, AT(id) }, { "name", TEXT, AT(name) }, { "owner", TEXT, AT(owner) }, { "key", TEXT, AT(key) }, { "state", WORD, AT(state) },
    { "workflow", TEXT, AT(workflow) }, { "backends", TEXT, AT(backends) }, { "options", TEXT, AT(options) }, { "output", TEXT, AT(output) },
    { "text", TEXT, AT(text) }, { "classes", TEXT, AT(classes) }, { "uid", U32, AT(uid) }, { "gid", U32, AT(gid) }, { "priority", INT, AT(priority) },
    { "attempts", U32, AT(attempts) }, { "time_limit", REAL, AT(time_limit) }, { "tasks", U64, AT(tasks) }, { "done", U64, AT(done) },
    { "failed", U64, AT(failed) }, { "skipped", U64, AT(skipped) }, { "cancelled", U64, AT(cancelled) }, { "retried", U64, AT(retried) },
    { "submitted", I64, AT(submitted) }, { "begin", I64, AT(begin) }, { "ended", I64, AT(ended) }, { "stages", TEXT, AT(stages) },
    { "nice", INT, AT(nice) }, { "nice_min", INT, AT(nice_min) }, { "nice_max", INT, AT(nice_max) },
    { "preempted", U64, AT(preempted) }, { "straggler", REAL, AT(straggler) },
    { "after", TEXT, AT(after) }, { "reruns", U32, AT(reruns) }, { "begun", BOOL, AT(begun) }, { "pruned", INT, AT(pruned) },
    { "unpublished", BOOL, AT(unpublished) }, { "failures", TEXT, AT(failures) }, { "folder", TEXT, AT(folder) }, { "unswept", BOOL, AT(unswept) },
};
#undef ROW
#define ROW row_job_file
static const struct column job_file_columns[] = {
    { "job", U64, AT(job) }, { "number", U32, AT(number) }, { "path", WORD, AT(path) }, { "first_task", U64, AT(first_task) }, { "tfs", U64, AT(tfs) },
    { "extents", BYTES, AT(extents) }, { "text", TEXT, AT(text) },
};
#undef ROW
#define ROW row_task
static const struct column task_columns[] = {
    { "job", U64, AT(job) }, { "number", U64, AT(number) }, { "state", WORD, AT(state) }, { "node", TEXT, AT(node) }, { "device", TEXT, AT(device) },
    { "code", TEXT, AT(code) }, { "text", TEXT, AT(text) }, { "digest", TEXT, AT(digest) }, { "stem", TEXT, AT(stem) }, { "epoch", U64, AT(epoch) },
    { "attempt", U32, AT(attempt) }, { "published", INT, AT(published) }, { "seconds", REAL, AT(seconds) }, { "time", I64, AT(time) },
    { "tries", U32, AT(tries) }, { "deaths", TEXT, AT(deaths) }, { "due", I64, AT(due) }, { "log", TEXT, AT(log) },
};
/* The same of a try that others came after: its results were published, or never will be. */
static const struct column attempt_columns[] = {
    { "job", U64, AT(job) }, { "number", U64, AT(number) }, { "attempt", U32, AT(attempt) }, { "epoch", U64, AT(epoch) }, { "state", WORD, AT(state) },
    { "node", TEXT, AT(node) }, { "device", TEXT, AT(device) }, { "code", TEXT, AT(code) }, { "text", TEXT, AT(text) }, { "digest", TEXT, AT(digest) },
    { "stem", TEXT, AT(stem) }, { "seconds", REAL, AT(seconds) }, { "time", I64, AT(time) }, { "log", TEXT, AT(log) },
};
#undef ROW
#define ROW row_crash
static const struct column crash_columns[] = {
    { "id", U64, AT(id) }, { "time", I64, AT(time) }, { "node", TEXT, AT(node) }, { "device", TEXT, AT(device) }, { "word", TEXT, AT(word) },
    { "text", TEXT, AT(text) }, { "folder", TEXT, AT(folder) }, { "workflow", TEXT, AT(workflow) }, { "run", U64, AT(run) }, { "job", U64, AT(job) },
    { "tf", U64, AT(tf) }, { "bytes", U64, AT(bytes) }, { "attempt", U32, AT(attempt) }, { "purged", I64, AT(purged) },
};
#undef ROW
_Static_assert(offsetof(struct row_job_file, extents_size) == offsetof(struct row_job_file, extents) + sizeof(void *), "BYTES: the size follows the pointer");

enum { SLOT_NODE = SLOT_ROWS, SLOT_MARK, SLOT_MOVE, SLOT_RUN, SLOT_RUN_TF, SLOT_JOB, SLOT_JOB_FILE, SLOT_TASK, SLOT_CRASH, SLOT_EVENT, SLOT_NODE_SHM, SLOT_ATTEMPT, SLOT_DEVICE, SLOT_BOOT, SLOT_END };
_Static_assert((int)SLOT_END <= (int)DB_STATEMENTS, "every table keeps its statement");

#define COLUMNS(t) t##_columns, ARRAY_LEN(t##_columns)
static const struct table
    events    = { "event",    "seq",        (enum db_slot)SLOT_EVENT,    COLUMNS(event) },
    nodes     = { "node",     "name",       (enum db_slot)SLOT_NODE,     COLUMNS(node) },
    marks     = { "mark",     "id",         (enum db_slot)SLOT_MARK,     COLUMNS(mark) },
    devices   = { "known_device", "node, serial", (enum db_slot)SLOT_DEVICE, COLUMNS(device) },
    boots     = { "known_boot", "node",     (enum db_slot)SLOT_BOOT,     COLUMNS(boot) },
    moves     = { "move",     "id",         (enum db_slot)SLOT_MOVE,     COLUMNS(move) },
    runs      = { "run",      "id",         (enum db_slot)SLOT_RUN,      COLUMNS(run) },
    run_tfs   = { "run_tf",   "run, tf",    (enum db_slot)SLOT_RUN_TF,   COLUMNS(run_tf) },
    jobs      = { "job",      "id",         (enum db_slot)SLOT_JOB,      COLUMNS(job) },
    job_files = { "job_file", "job, number", (enum db_slot)SLOT_JOB_FILE, COLUMNS(job_file) },
    tasks     = { "task",     "job, number", (enum db_slot)SLOT_TASK,    COLUMNS(task) },
    attempts  = { "attempt",  "job, number, attempt", (enum db_slot)SLOT_ATTEMPT, COLUMNS(attempt) },
    crashes   = { "crash",    "id",         (enum db_slot)SLOT_CRASH,    COLUMNS(crash) };
/* clang-format on */

/* ---- writing ---- */

/* INSERT ... ON CONFLICT (key) DO UPDATE: a row keeps its place in the file, other than with REPLACE. */
static char *put_text(const struct table *t)
{
    struct str s = { 0 };
    str_addf(&s, "INSERT INTO %s (", t->name);
    for (size_t i = 0; i < t->n; i++)
        str_addf(&s, "%s\"%s\"", i ? ", " : "", t->columns[i].name);
    str_add(&s, ") VALUES (");
    for (size_t i = 0; i < t->n; i++)
        str_add(&s, i ? ", ?" : "?");
    str_addf(&s, ") ON CONFLICT (%s) DO UPDATE SET ", t->key);
    for (size_t i = 0; i < t->n; i++)
        str_addf(&s, "%s\"%s\" = excluded.\"%s\"", i ? ", " : "", t->columns[i].name, t->columns[i].name);
    return str_take(&s);
}

#define FIELD(row, offset, type) (*(type const *)((const char *)(row) + (offset)))

static int bind_one(sqlite3_stmt *s, int at, const struct column *c, const void *row)
{
    size_t o = c->offset;
    switch (c->type) {
    case U64: case I64: return sqlite3_bind_int64(s, at, FIELD(row, o, int64_t));
    case U32:           return sqlite3_bind_int64(s, at, FIELD(row, o, uint32_t));
    case INT:           return sqlite3_bind_int(s, at, FIELD(row, o, int));
    case BOOL:          return sqlite3_bind_int(s, at, FIELD(row, o, bool));
    case REAL:          return sqlite3_bind_double(s, at, FIELD(row, o, double));
    case TEXT: case WORD: return sqlite3_bind_text(s, at, FIELD(row, o, const char *), -1, SQLITE_STATIC);      /* NULL binds NULL */
    case KEY32:         return sqlite3_bind_blob(s, at, (const char *)row + o, 32, SQLITE_STATIC);
    case BYTES:         return sqlite3_bind_blob64(s, at, FIELD(row, o, const void *), FIELD(row, o + sizeof(void *), size_t), SQLITE_STATIC);
    }
    return SQLITE_MISUSE;
}

static int put(struct db *db, const struct table *t, const void *row, struct err *e)
{
    sqlite3_stmt *s = db->statements[t->slot];
    if (s == NULL) {
        char *text = put_text(t);
        s = db_statement(db, t->slot, text, e);
        free(text);
        if (s == NULL)
            return -1;
    }
    int rc = SQLITE_OK;
    for (size_t i = 0; i < t->n && rc == SQLITE_OK; i++)
        rc = bind_one(s, (int)i + 1, &t->columns[i], row);
    rc = rc == SQLITE_OK && sqlite3_step(s) == SQLITE_DONE ? 0 : db_fail(db, e, "cannot store the change");
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc;
}

int rows_put_event(struct db *db, struct row_event *ev, struct err *e)
{
    sqlite3_stmt *s = db_statement(db, SLOT_EVENT, "INSERT INTO event (time, node, who, what, before, after, reason) VALUES (?, ?, ?, ?, ?, ?, ?)", e);
    if (s == NULL)
        return -1;
    int rc = SQLITE_OK;
    for (size_t i = 1; i < events.n && rc == SQLITE_OK; i++)
        rc = bind_one(s, (int)i, &events.columns[i], ev);
    rc = rc == SQLITE_OK && sqlite3_step(s) == SQLITE_DONE ? 0 : db_fail(db, e, "cannot store the history line");
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    if (rc == 0)
        ev->seq = (uint64_t)sqlite3_last_insert_rowid(db->sql);
    return rc;
}

int rows_put_node_shm(struct db *db, const char *name, uint64_t size, struct err *e)
{
    sqlite3_stmt *s = db_statement(db, SLOT_NODE_SHM, "UPDATE node SET shm_wanted = ? WHERE name = ?", e);
    if (s == NULL)
        return -1;
    int rc = sqlite3_bind_int64(s, 1, (sqlite3_int64)size);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_text(s, 2, name, -1, SQLITE_STATIC);
    rc = rc == SQLITE_OK && sqlite3_step(s) == SQLITE_DONE ? 0 : db_fail(db, e, "cannot store the change");
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc;
}

#define TRY_COLUMNS "job, number, attempt, epoch, state, node, device, code, text, digest, stem, seconds, time, log"

static int tasks_again(struct db *db, uint64_t job, const char *which, struct err *e)
{
    char *text = mem_printf("INSERT OR REPLACE INTO attempt (" TRY_COLUMNS ") SELECT " TRY_COLUMNS " FROM task WHERE job = %llu AND %s;"
                            "UPDATE task SET state = 'waiting', tries = 0, deaths = NULL, due = 0 WHERE job = %llu AND %s", (unsigned long long)job, which, (unsigned long long)job, which);
    int rc = db_exec(db, text, e);

    free(text);
    return rc;
}

int rows_put_tasks_again(struct db *db, uint64_t job, struct err *e) { return tasks_again(db, job, "state IN ('failed', 'cancelled', 'set-aside')", e); }
int rows_put_tasks_anew(struct db *db, uint64_t job, struct err *e)  { return tasks_again(db, job, "state <> 'waiting'", e); }

int rows_prune_job(struct db *db, uint64_t job, unsigned limit, struct err *e)
{
    static const char *const tables[] = { "attempt", "task", "job_file" };
    int gone = 0;

    for (size_t i = 0; i < ARRAY_LEN(tables) && gone < (int)limit; i++) {
        char text[200];
        snprintf(text, sizeof text, "DELETE FROM %s WHERE rowid IN (SELECT rowid FROM %s WHERE job = %llu LIMIT %d)", tables[i], tables[i],
                 (unsigned long long)job, (int)limit - gone);
        if (db_exec(db, text, e) < 0)
            return -1;
        gone += sqlite3_changes(db->sql);
    }
    return gone;
}

int rows_put_node(struct db *db, const struct row_node *n, struct err *e)         { return put(db, &nodes, n, e); }
int rows_put_mark(struct db *db, const struct row_mark *m, struct err *e)         { return put(db, &marks, m, e); }
int rows_put_device(struct db *db, const struct row_device *d, struct err *e)     { return put(db, &devices, d, e); }
int rows_put_boot(struct db *db, const struct row_boot *b, struct err *e)         { return put(db, &boots, b, e); }
int rows_put_move(struct db *db, const struct row_move *m, struct err *e)         { return put(db, &moves, m, e); }
int rows_put_run(struct db *db, const struct row_run *r, struct err *e)           { return put(db, &runs, r, e); }
int rows_put_run_tf(struct db *db, const struct row_run_tf *t, struct err *e)     { return put(db, &run_tfs, t, e); }
int rows_put_job(struct db *db, const struct row_job *j, struct err *e)           { return put(db, &jobs, j, e); }
int rows_put_job_file(struct db *db, const struct row_job_file *f, struct err *e) { return put(db, &job_files, f, e); }
int rows_put_task(struct db *db, const struct row_task *t, struct err *e)         { return put(db, &tasks, t, e); }
int rows_put_attempt(struct db *db, const struct row_task *t, struct err *e)      { return put(db, &attempts, t, e); }
int rows_put_crash(struct db *db, const struct row_crash *c, struct err *e)       { return put(db, &crashes, c, e); }

/* ---- reading ---- */

struct cursor {
    struct db *db;
    const struct table *t;
    sqlite3_stmt *s;
    struct err *e;
    int step;
};

/* rest: WHERE ... ORDER BY ...; its numbers and texts are bound by the caller. */
static int cursor_open(struct cursor *c, struct db *db, const struct table *t, const char *rest, struct err *e)
{
    struct str s = { 0 };
    str_add(&s, "SELECT ");
    for (size_t i = 0; i < t->n; i++)
        str_addf(&s, "%s\"%s\"", i ? ", " : "", t->columns[i].name);
    str_addf(&s, " FROM %s %s", t->name, rest);
    *c = (struct cursor){ .db = db, .t = t, .e = e, .step = SQLITE_DONE };
    int rc = sqlite3_prepare_v2(db->sql, str_text(&s), -1, &c->s, NULL) == SQLITE_OK ? 0 : db_fail(db, e, "cannot read the state");
    str_free(&s);
    return rc;
}

#define SET(row, offset, type, value) (*(type *)((char *)(row) + (offset)) = (value))

static void fetch_one(sqlite3_stmt *s, int at, const struct column *c, void *row)
{
    size_t o = c->offset;
    switch (c->type) {
    case U64: case I64: SET(row, o, int64_t, sqlite3_column_int64(s, at)); break;
    case U32:           SET(row, o, uint32_t, (uint32_t)sqlite3_column_int64(s, at)); break;
    case INT:           SET(row, o, int, sqlite3_column_int(s, at)); break;
    case BOOL:          SET(row, o, bool, sqlite3_column_int(s, at) != 0); break;
    case REAL:          SET(row, o, double, sqlite3_column_double(s, at)); break;
    case TEXT: case WORD: SET(row, o, const char *, (const char *)sqlite3_column_text(s, at)); break;
    case KEY32:
        memset((char *)row + o, 0, 32);
        if (sqlite3_column_bytes(s, at) == 32)
            memcpy((char *)row + o, sqlite3_column_blob(s, at), 32);
        break;
    case BYTES:
        SET(row, o, const void *, sqlite3_column_blob(s, at));
        SET(row, o + sizeof(void *), size_t, (size_t)sqlite3_column_bytes(s, at));
        break;
    }
}

/* True with the next row in row. */
static bool cursor_next(struct cursor *c, void *row)
{
    c->step = sqlite3_step(c->s);
    if (c->step != SQLITE_ROW)
        return false;
    for (size_t i = 0; i < c->t->n; i++)
        fetch_one(c->s, (int)i, &c->t->columns[i], row);
    return true;
}

/* stopped: what `each` returned last. */
static int cursor_close(struct cursor *c, int stopped)
{
    int rc = stopped;
    if (rc == 0 && c->step != SQLITE_DONE && c->step != SQLITE_ROW) {
        db_fail(c->db, c->e, "cannot read the state");
        err_prefix(c->e, "table %s", c->t->name);
        rc = -1;
    }
    sqlite3_finalize(c->s);
    return rc;
}

/* The loop of every load: `row` is a variable of the row's own type, so that `each` is called as what it is. */
#define FOR_EACH(c, row, stopped) \
    while ((stopped) == 0 && cursor_next(&(c), &(row)))         \
        (stopped) = each(arg, &(row))

int rows_load_events(struct db *db, const char *node, int64_t since, unsigned limit,
                     int (*each)(void *arg, const struct row_event *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_event ev;
    int stopped = 0;
    const char *rest = node ? "WHERE seq IN (SELECT seq FROM event WHERE node = ?1 AND time >= ?2 ORDER BY seq DESC LIMIT ?3) ORDER BY seq"
                            : "WHERE seq IN (SELECT seq FROM event WHERE time >= ?2 ORDER BY seq DESC LIMIT ?3) ORDER BY seq";
    if (cursor_open(&c, db, &events, rest, e) < 0)
        return -1;
    if (node)
        sqlite3_bind_text(c.s, 1, node, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c.s, 2, since);
    sqlite3_bind_int64(c.s, 3, limit);
    FOR_EACH(c, ev, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_events_from(struct db *db, uint64_t from, unsigned limit,
                          int (*each)(void *arg, const struct row_event *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_event ev;
    int stopped = 0;
    if (cursor_open(&c, db, &events, "WHERE seq >= ?1 ORDER BY seq LIMIT ?2", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (sqlite3_int64)from);
    sqlite3_bind_int64(c.s, 2, limit);
    FOR_EACH(c, ev, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_nodes(struct db *db, int (*each)(void *arg, const struct row_node *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_node n;
    int stopped = 0;
    if (cursor_open(&c, db, &nodes, "ORDER BY name", e) < 0)
        return -1;
    FOR_EACH(c, n, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_marks(struct db *db, bool open_only, int (*each)(void *arg, const struct row_mark *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_mark m;
    int stopped = 0;
    if (cursor_open(&c, db, &marks, open_only ? "WHERE cleared = 0 ORDER BY id" : "ORDER BY id", e) < 0)
        return -1;
    FOR_EACH(c, m, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_devices(struct db *db, int (*each)(void *arg, const struct row_device *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_device d;
    int stopped = 0;
    if (cursor_open(&c, db, &devices, "WHERE forgotten = 0 ORDER BY node, place, serial", e) < 0)
        return -1;
    FOR_EACH(c, d, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_boots(struct db *db, int (*each)(void *arg, const struct row_boot *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_boot b;
    int stopped = 0;
    if (cursor_open(&c, db, &boots, "ORDER BY node", e) < 0)
        return -1;
    FOR_EACH(c, b, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_moves(struct db *db, bool open_only, int (*each)(void *arg, const struct row_move *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_move m;
    int stopped = 0;
    if (cursor_open(&c, db, &moves, open_only ? "WHERE ended = 0 ORDER BY id" : "ORDER BY id", e) < 0)
        return -1;
    FOR_EACH(c, m, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_runs(struct db *db, bool open_only, int (*each)(void *arg, const struct row_run *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_run r;
    int stopped = 0;
    if (cursor_open(&c, db, &runs, open_only ? "WHERE ended = 0 ORDER BY id" : "ORDER BY id", e) < 0)
        return -1;
    FOR_EACH(c, r, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_run_tfs(struct db *db, uint64_t run, uint64_t from, unsigned limit,
                      int (*each)(void *arg, const struct row_run_tf *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_run_tf t;
    int stopped = 0;
    if (cursor_open(&c, db, &run_tfs, "WHERE run = ?1 AND tf >= ?2 ORDER BY tf LIMIT ?3", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (int64_t)run);
    sqlite3_bind_int64(c.s, 2, (int64_t)from);
    sqlite3_bind_int64(c.s, 3, limit);
    FOR_EACH(c, t, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_jobs(struct db *db, bool open_only, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_job j;
    int stopped = 0;
    if (cursor_open(&c, db, &jobs, open_only ? "WHERE ended = 0 ORDER BY id" : "ORDER BY id", e) < 0)
        return -1;
    FOR_EACH(c, j, stopped);
    return cursor_close(&c, stopped);
}

static int load_one_job(struct cursor *c, int (*each)(void *arg, const struct row_job *), void *arg)
{
    struct row_job j;
    int stopped = 0;
    FOR_EACH(*c, j, stopped);
    return cursor_close(c, stopped);
}

int rows_load_job(struct db *db, uint64_t id, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e)
{
    struct cursor c;
    if (cursor_open(&c, db, &jobs, "WHERE id = ?1", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (int64_t)id);
    return load_one_job(&c, each, arg);
}

int rows_load_job_key(struct db *db, const char *key, uint32_t uid, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e)
{
    struct cursor c;
    if (cursor_open(&c, db, &jobs, "WHERE key = ?1 AND uid = ?2 ORDER BY id LIMIT 1", e) < 0)
        return -1;
    sqlite3_bind_text(c.s, 1, key, -1, SQLITE_STATIC);
    sqlite3_bind_int64(c.s, 2, uid);
    return load_one_job(&c, each, arg);
}

int rows_load_attempts(struct db *db, uint64_t job, uint64_t number, uint32_t attempt, int (*each)(void *arg, const struct row_task *), void *arg, struct err *e)
{
    static const struct table tries = { "(SELECT " TRY_COLUMNS " FROM attempt WHERE job = ?1 AND number = ?2"
                                        " UNION ALL SELECT " TRY_COLUMNS " FROM task WHERE job = ?1 AND number = ?2"
                                        " AND NOT EXISTS (SELECT 1 FROM attempt a WHERE a.job = ?1 AND a.number = ?2 AND a.attempt = task.attempt))",
                                        "", (enum db_slot)0, COLUMNS(attempt) };
    struct cursor c;
    struct row_task t = { .published = 1 };
    int stopped = 0;
    if (cursor_open(&c, db, &tries, "WHERE ?3 = 0 OR attempt = ?3 ORDER BY attempt", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (int64_t)job);
    sqlite3_bind_int64(c.s, 2, (int64_t)number);
    sqlite3_bind_int64(c.s, 3, attempt);
    FOR_EACH(c, t, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_job_files(struct db *db, uint64_t job, int (*each)(void *arg, const struct row_job_file *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_job_file f;
    int stopped = 0;
    if (cursor_open(&c, db, &job_files, "WHERE job = ?1 ORDER BY number", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (int64_t)job);
    FOR_EACH(c, f, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_orphans(struct db *db, int (*each)(void *arg, uint64_t job), void *arg, struct err *e)
{
    /* From number to number by the index: a job may have a million files. */
    static const char text[] = "WITH RECURSIVE n(job) AS (SELECT min(job) FROM job_file UNION ALL SELECT (SELECT min(job) FROM job_file WHERE job > n.job) FROM n"
                               " WHERE n.job IS NOT NULL) SELECT job FROM n WHERE job IS NOT NULL AND job NOT IN (SELECT id FROM job)";
    sqlite3_stmt *s = NULL;
    int step = SQLITE_ERROR, stopped = 0;

    if (sqlite3_prepare_v2(db->sql, text, -1, &s, NULL) == SQLITE_OK) {
        while (stopped == 0 && (step = sqlite3_step(s)) == SQLITE_ROW)
            stopped = each(arg, (uint64_t)sqlite3_column_int64(s, 0));
    }
    if (stopped == 0 && step != SQLITE_DONE)
        stopped = db_fail(db, e, "cannot read the state");
    sqlite3_finalize(s);
    return stopped;
}

int rows_load_tasks(struct db *db, uint64_t job, int (*each)(void *arg, const struct row_task *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_task t;
    int stopped = 0;
    if (cursor_open(&c, db, &tasks, "WHERE job = ?1 ORDER BY number", e) < 0)
        return -1;
    sqlite3_bind_int64(c.s, 1, (int64_t)job);
    FOR_EACH(c, t, stopped);
    return cursor_close(&c, stopped);
}

int rows_load_crashes(struct db *db, int (*each)(void *arg, const struct row_crash *), void *arg, struct err *e)
{
    struct cursor c;
    struct row_crash r;
    int stopped = 0;
    if (cursor_open(&c, db, &crashes, "ORDER BY id", e) < 0)
        return -1;
    FOR_EACH(c, r, stopped);
    return cursor_close(&c, stopped);
}

/* ---- questions ---- */

static void count_one(struct row_counts *counts, const char *outcome, uint64_t n, uint64_t incomplete, uint64_t bytes)
{
    counts->incomplete += incomplete;
    if (str_equal(outcome, "done")) {
        counts->done += n;
        counts->bytes_done += bytes;
    } else if (str_equal(outcome, "failed")) {
        counts->failed += n;
    } else if (str_equal(outcome, "dropped")) {
        counts->dropped += n;
    } else if (str_equal(outcome, "lost")) {
        counts->lost += n;
    }
}

int rows_count_run_tfs(struct db *db, uint64_t run, struct row_counts *counts, struct err *e)
{
    struct row_counts sum = { 0 };
    sqlite3_stmt *s = NULL;
    int step = SQLITE_ERROR;
    const char *text = "SELECT outcome, count(*), sum(incomplete), sum(bytes) FROM run_tf WHERE run = ?1 GROUP BY outcome "
                       "UNION ALL SELECT outcome, rows, incomplete, bytes FROM run_pruned WHERE run = ?1";
    if (sqlite3_prepare_v2(db->sql, text, -1, &s, NULL) == SQLITE_OK) {
        sqlite3_bind_int64(s, 1, (int64_t)run);
        while ((step = sqlite3_step(s)) == SQLITE_ROW)
            count_one(&sum, (const char *)sqlite3_column_text(s, 0), (uint64_t)sqlite3_column_int64(s, 1),
                      (uint64_t)sqlite3_column_int64(s, 2), (uint64_t)sqlite3_column_int64(s, 3));
    }
    int rc = step == SQLITE_DONE ? 0 : db_fail(db, e, "cannot read the state");
    sqlite3_finalize(s);
    if (rc == 0)
        *counts = sum;
    return rc;
}

/* A floor is left by --restore and --recover: numbers given out after the backup was taken must not come again. */
static int largest(struct db *db, const char *table, const char *column, uint64_t *id, struct err *e)
{
    char text[96], key[32], floor_text[24];
    int64_t top;
    snprintf(text, sizeof text, "SELECT coalesce(max(%s), 0) FROM %s", column, table);
    snprintf(key, sizeof key, "floor_%s", table);
    if (db_query_int(db, text, &top, e) < 0 || db_meta_get(db, key, floor_text, sizeof floor_text, e) < 0)
        return -1;
    uint64_t floor_id = strtoull(floor_text, NULL, 10);
    *id = (uint64_t)top > floor_id ? (uint64_t)top : floor_id;
    return 0;
}

int rows_load_ids(struct db *db, struct row_ids *ids, struct err *e)
{
    struct row_ids found;
    uint64_t files;                              /* a job whose files were on their way to the disk had a number, too */
    if (largest(db, "job_file", "job", &files, e) < 0)
        return -1;
    if (largest(db, "mark", "id", &found.mark, e) < 0 || largest(db, "move", "id", &found.move, e) < 0 ||
        largest(db, "run", "id", &found.run, e) < 0 || largest(db, "job", "id", &found.job, e) < 0 ||
        largest(db, "crash", "id", &found.crash, e) < 0 || largest(db, "event", "seq", &found.event, e) < 0)
        return -1;
    found.job = found.job > files ? found.job : files;
    *ids = found;
    return 0;
}

int rows_put_setting(struct db *db, const char *name, const char *value, struct err *e)
{
    return db_meta_put(db, name, value, e);
}

int rows_load_setting(struct db *db, const char *name, char *value, size_t size, struct err *e)
{
    return db_meta_get(db, name, value, size, e);
}

struct db *db_open_reader(const char *dir, struct err *e)
{
    char *path = db_path(dir, "state.db");
    struct db *db = NULL;

    if (access(path, F_OK) < 0)                  /* SQLite would blame the disk */
        err_set(e, ERR_STATE, "the state cannot be read: %s: %s", path, strerror(errno));
    else
        db = db_connect(dir, path, SQLITE_OPEN_READONLY, e);
    free(path);
    return db;
}
