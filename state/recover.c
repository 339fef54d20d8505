/* recover.c - what can still be read of a damaged database, row by row, into a fresh one
 *
 * From: `sluiced --recover`.  To: a new state.db; the damaged one is kept as state.db.corrupt-TIME with its log.
 * Work is done on a copy. Rows are asked for by ranges of rowids: a range that fails is split until the bad page's rows are all that is
 * left out; salvage.c then looks for those on every page. A first page beyond use is replaced by that of a fresh database of the same schema, whose tables begin on the same pages.
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
#include <unistd.h>

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "str.h"

enum { LOST_NUMBERS = 1000, ROWS_PER_PAGE = 400, PROBES = 200000, TABLE_LIMIT_S = 20 };

struct saving {
    struct db *from, *to;
    const char *table;
    sqlite3_stmt *up, *down, *in;
    uint64_t saved, refused, bad, pieced;     /* bad: places that could not be read; pieced: rows found page by page */
    int64_t span;                             /* no table can have more rows than this */
    unsigned probes;
    int64_t until;                            /* a table gets so much time for what cannot be read */
};

static int copy_file(const char *from, const char *to, struct err *e)
{
    char buffer[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in < 0)
        return err_errno(e, ERR_FAILED, "cannot open %s", from);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK, 0600);
    int rc = out >= 0 ? 0 : err_errno(e, ERR_FAILED, "cannot make %s", to);
    ssize_t n = 0;
    while (rc == 0 && (n = read(in, buffer, sizeof buffer)) > 0)
        rc = file_write_all(out, buffer, (size_t)n, e);
    if (rc == 0 && n < 0)
        rc = err_errno(e, ERR_FAILED, "cannot read %s", from);
    close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* ---- one table ---- */

static void take_row(struct saving *s, sqlite3_stmt *row)
{
    int n = sqlite3_column_count(row);
    for (int i = 1; i < n; i++)
        sqlite3_bind_value(s->in, i, sqlite3_column_value(row, i));
    if (sqlite3_step(s->in) == SQLITE_DONE && sqlite3_changes(s->to->sql) == 1)
        s->saved++;
    else
        s->refused++;
    sqlite3_reset(s->in);
}

/* Takes rows from one end of [lo, hi]; true when the other end was reached. *last: the last rowid taken, as it was if none. */
static bool sweep(struct saving *s, sqlite3_stmt *q, int64_t lo, int64_t hi, int64_t *last)
{
    s->probes++;
    sqlite3_bind_int64(q, 1, lo);
    sqlite3_bind_int64(q, 2, hi);
    int step;
    bool first = true;
    while ((step = sqlite3_step(q)) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(q, 0);
        bool onward = q == s->up ? id > *last : id < *last;
        uint64_t jump = onward ? (uint64_t)(q == s->up ? id - *last : *last - id) : 0;
        if (id < lo || id > hi || !onward || (!first && jump > (uint64_t)s->span)) {
            step = SQLITE_CORRUPT;           /* a damaged key leads in circles, or to where no row can be */
            break;
        }
        take_row(s, q);
        *last = id;
        first = false;
    }
    sqlite3_reset(q);
    return step == SQLITE_DONE;
}

static bool is_tired(const struct saving *s)
{
    return s->probes >= PROBES || clock_mono_ns() >= s->until;
}

static void save_range(struct saving *s, int64_t lo, int64_t hi)
{
    int64_t low = lo - 1, high = hi + 1;
    if (lo > hi || is_tired(s) || sweep(s, s->up, lo, hi, &low))
        return;
    if (low < hi && sweep(s, s->down, low + 1, hi, &high))
        return;
    /* A side that could not be read at all reaches no further than rows can be. */
    if (low < lo && high <= hi && high > s->span && low < high - s->span)
        low = high - s->span;
    if (low < INT64_MAX - s->span && high > low + s->span)
        high = low + s->span;
    lo = low + 1;
    hi = high - 1;
    if (lo >= hi) {
        s->bad++;
        return;
    }
    save_range(s, lo, lo + (hi - lo) / 2);
    save_range(s, lo + (hi - lo) / 2 + 1, hi);
}

static sqlite3_stmt *prepare(struct db *db, char *text)
{
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db->sql, text, -1, &s, NULL) != SQLITE_OK)
        s = NULL;
    free(text);
    return s;
}

/* "\"a\", \"b\"" and "?, ?" of the table in the fresh database. */
static int column_lists(struct db *to, const char *table, struct str *names, struct str *marks, struct err *e)
{
    sqlite3_stmt *s = prepare(to, mem_printf("SELECT name FROM pragma_table_info('%s') ORDER BY cid", table));
    if (s == NULL)
        return db_fail(to, e, "cannot read the schema");
    while (sqlite3_step(s) == SQLITE_ROW) {
        str_addf(names, "%s\"%s\"", names->len ? ", " : "", (const char *)sqlite3_column_text(s, 0));
        str_add(marks, marks->len ? ", ?" : "?");
    }
    sqlite3_finalize(s);
    return 0;
}

static int save_table(struct saving *s, struct err *e)
{
    struct str names = { 0 }, marks = { 0 };
    int rc = column_lists(s->to, s->table, &names, &marks, e);
    if (rc == 0) {
        const char *form = "SELECT rowid, %s FROM %s NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2 ORDER BY rowid %s";
        char *up = NULL, *down = NULL;
        struct str u = { 0 }, d = { 0 };
        str_addf(&u, form, str_text(&names), s->table, "ASC");
        str_addf(&d, form, str_text(&names), s->table, "DESC");
        up = str_take(&u);
        down = str_take(&d);
        s->up = prepare(s->from, up);
        s->down = prepare(s->from, down);
        s->in = prepare(s->to, mem_printf("INSERT OR IGNORE INTO %s (%s) VALUES (%s)", s->table, str_text(&names), str_text(&marks)));
        if (s->in == NULL)
            rc = db_fail(s->to, e, "cannot write the fresh state");
        else if (s->up == NULL || s->down == NULL)
            s->bad++;
        else
            save_range(s, 1, INT64_MAX - 1);           /* SQLite counts rowids from 1 */
    }
    sqlite3_finalize(s->up);
    sqlite3_finalize(s->down);
    sqlite3_finalize(s->in);
    str_free(&names);
    str_free(&marks);
    return rc;
}

/* ---- all tables ---- */

/* Marks and history first: should the disk fill, they are the last to be missed. */
static const char *const tables[] = { "mark", "event", "node", "known_device", "known_boot", "move", "run", "job", "job_file", "task", "attempt", "run_pruned", "run_tf", "crash", "meta" };

static int nothing(const char *dir, struct err *e)
{
    return err_set(e, ERR_FAILED, "nothing can be read of %s/state.db, which was left as it is; `sluiced --state %s --restore FILE` puts a backup in its place",
                   dir, dir);
}

static void report_table(const struct saving *s, bool good, struct str *said)
{
    str_addf(said, "%-10s %" PRIu64 " rows saved", s->table, s->saved + s->pieced);
    if (s->pieced)
        str_addf(said, ", %" PRIu64 " of them from pages out of place", s->pieced);
    if (s->refused)
        str_addf(said, ", %" PRIu64 " rows made no sense", s->refused);
    if (!good)
        str_add(said, ", more may be lost");
    str_add(said, "\n");
}

/* Rows of run_tf are removed in time and may still lie about: those are not looked for, nor what counts them. A row of known_boot has the shape
 * of one of meta, and comes anew when the node registers. */
static bool is_kept_for_ever(const char *table)
{
    static const char *const others[] = { "run_tf", "run_pruned", "known_boot", "meta" };

    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        if (str_equal(table, others[i]))
            return false;
    }
    return true;
}

static int piece_together(struct saving all[], struct err *e)
{
    const char *names[ARRAY_LEN(tables)];
    uint64_t saved[ARRAY_LEN(tables)];
    size_t which[ARRAY_LEN(tables)], n = 0;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        if (!is_kept_for_ever(tables[i]))
            continue;
        names[n] = tables[i];
        which[n++] = i;
    }
    sqlite3_wal_checkpoint_v2(all[0].from->sql, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);       /* pages in the log count too */
    if (salvage_rows(all[0].from->path, all[0].to, names, n, saved, e) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        all[which[i]].pieced = saved[i];
    return 0;
}

/* Rows that were saved and then found to make no sense. */
static void take_out(struct saving *s, uint64_t n)
{
    uint64_t pieced = n < s->pieced ? n : s->pieced;
    s->pieced -= pieced;
    s->saved -= n - pieced;
    s->refused += n;
}

static int save_tables(struct db *from, struct db *to, int64_t pages, struct str *said, bool *whole, struct err *e)
{
    struct saving all[ARRAY_LEN(tables)];
    uint64_t saved = 0;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        all[i] = (struct saving){ .from = from, .to = to, .table = tables[i], .span = pages * ROWS_PER_PAGE,
                                  .until = clock_mono_ns() + TABLE_LIMIT_S * CLOCK_SECOND };
        if (save_table(&all[i], e) < 0)
            return -1;
    }
    uint64_t gone[ARRAY_LEN(tables)];
    if (piece_together(all, e) < 0 || mend_rows(to, tables, ARRAY_LEN(tables), gone, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++)
        take_out(&all[i], gone[i]);
    *whole = true;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        bool good = all[i].bad + all[i].refused + all[i].pieced == 0;      /* a bad page can also end a table early without a word */
        report_table(&all[i], good, said);
        *whole = *whole && good;
        saved += str_equal(tables[i], "meta") ? 0 : all[i].saved + all[i].pieced;
    }
    return *whole || saved > 0 ? 0 : nothing(to->dir, e);
}

/* ---- getting the damaged one open ---- */

static bool readable(struct db *db)
{
    int64_t n;
    struct err ignored;
    sqlite3_exec(db->sql, "PRAGMA writable_schema = ON", NULL, NULL, NULL);        /* a schema with a bad entry is better than none */
    return db_query_int(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('mark', 'event', 'node', 'run', 'job')", &n, &ignored) == 0 && n == 5;
}

static int copy_page(int in, int out, uint64_t number)
{
    uint8_t page[DB_PAGE];
    off_t at = (off_t)(number - 1) * DB_PAGE;
    return pread(in, page, sizeof page, at) == (ssize_t)sizeof page && pwrite(out, page, sizeof page, at) == (ssize_t)sizeof page ? 0 : -1;
}

static uint32_t big_endian(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The schema's tree: the first page, and the leaves it points to when it does not fit into one. */
static int copy_schema_pages(int in, int out, uint64_t pages)
{
    enum { HEAD = 100, INTERIOR = 0x05 };
    uint8_t page[DB_PAGE];
    if (pread(in, page, sizeof page, 0) != (ssize_t)sizeof page)
        return -1;
    if (page[HEAD] == INTERIOR) {
        unsigned cells = (unsigned)page[HEAD + 3] << 8 | page[HEAD + 4];
        if (copy_page(in, out, big_endian(page + HEAD + 8)) < 0)
            return -1;
        for (unsigned i = 0; i < cells; i++) {
            unsigned at = (unsigned)page[HEAD + 12 + 2 * i] << 8 | page[HEAD + 13 + 2 * i];
            if (at > DB_PAGE - 4 || copy_page(in, out, big_endian(page + at)) < 0)
                return -1;
        }
    }
    for (int i = 0; i < 4; i++) {
        page[28 + i] = (uint8_t)(pages >> (24 - 8 * i));          /* size of the file in pages */
        page[32 + i] = page[36 + i] = 0;                          /* no free pages: nothing is written here anyway */
        page[92 + i] = page[24 + i];                              /* the size is valid for this change counter */
    }
    return pwrite(out, page, sizeof page, 0) == (ssize_t)sizeof page ? 0 : -1;
}

static int transplant(const char *work, const char *fresh, struct err *e)
{
    struct stat st;
    int in = open(fresh, O_RDONLY | O_CLOEXEC), out = open(work, O_RDWR | O_CLOEXEC);
    int rc = in >= 0 && out >= 0 && fstat(out, &st) == 0 ? copy_schema_pages(in, out, (uint64_t)st.st_size / DB_PAGE) : -1;
    if (rc < 0)
        err_errno(e, ERR_FAILED, "cannot repair the first page of %s", work);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return rc;
}

/* As it is; else with a fresh first page; else with that and without its log. */
static struct db *open_damaged(const char *dir, const char *work, const char *fresh, struct str *said, struct err *e)
{
    char *log = mem_printf("%s-wal", work), *shm = mem_printf("%s-shm", work);
    struct db *db = NULL;
    for (int try = 0; try < 3 && db == NULL; try++) {
        struct err ignored;
        unlink(shm);
        if (try == 1 && transplant(work, fresh, e) < 0)
            break;
        if (try == 2 && unlink(log) < 0)
            break;
        db = db_connect(dir, work, SQLITE_OPEN_READWRITE, &ignored);
        if (db && readable(db)) {
            if (try > 0)
                str_addf(said, "the first page could not be read and was made anew%s\n", try == 2 ? ", the log was left out" : "");
            break;
        }
        db_close(db);
        db = NULL;
    }
    if (db == NULL)
        nothing(dir, e);
    free(log);
    free(shm);
    return db;
}

/* ---- the whole ---- */

struct work { char *path, *log, *damaged, *damaged_log, *damaged_shm, *fresh; };

static void work_init(struct work *w, const char *dir)
{
    w->path = db_path(dir, "state.db");
    w->log = db_path(dir, "state.db-wal");
    w->damaged = db_path(dir, "state.db.damaged");
    w->damaged_log = db_path(dir, "state.db.damaged-wal");
    w->damaged_shm = db_path(dir, "state.db.damaged-shm");
    w->fresh = db_path(dir, "state.db.recovered");
}

static void work_end(struct work *w)
{
    unlink(w->damaged);
    unlink(w->damaged_log);
    unlink(w->damaged_shm);
    free(w->path);
    free(w->log);
    free(w->damaged);
    free(w->damaged_log);
    free(w->damaged_shm);
    free(w->fresh);
}

static int copy_damaged(const struct work *w, const char *dir, struct err *e)
{
    if (access(w->path, F_OK) < 0)
        return err_set(e, ERR_NOT_FOUND, "%s is not there; `sluiced --state %s --restore FILE` puts a backup in its place", w->path, dir);
    unlink(w->damaged_log);
    if (copy_file(w->path, w->damaged, e) < 0)
        return -1;
    return access(w->log, F_OK) == 0 ? copy_file(w->log, w->damaged_log, e) : 0;
}

/* For whoever has to choose between this and a backup: up to when the history goes, what is not there, what a backup would bring and cost. */
static int report_loss(struct db *to, const char *dir, bool whole, struct str *said, struct err *e)
{
    char text[CLOCK_TEXT];
    int64_t last;
    if (db_query_int(to, "SELECT coalesce(max(time), 0) FROM event", &last, e) < 0)
        return -1;
    if (last > 0)
        str_addf(said, "the last line of the history that was saved is of %s\n", clock_rfc3339(last, text));
    else
        str_add(said, "nothing of the history was saved\n");
    if (whole)
        str_add(said, "no loss was found\n");
    else
        str_addf(said, "what could not be read is lost, whatever its age: marks, runs, jobs and lines of the history of the tables above where more may be lost, or rows "
                 "made no sense. A backup has them as they were when it was taken: `sluiced --state %s --restore FILE` puts it in place of this state, and all that "
                 "came after it is lost then\n", dir);
    return 0;
}

/* The identity and epoch beside the file are better than those in it. */
static int finish_fresh(struct db *to, const char *dir, bool whole, struct str *said, struct err *e)
{
    struct row_ids top;
    char id[DB_ID_SIZE], text[24];
    uint64_t beside, epoch;
    if (db_commit(to, e) < 0 || rows_load_ids(to, &top, e) < 0 || db_meta_get(to, "epoch", text, sizeof text, e) < 0)
        return -1;
    if (db_id_read(dir, id, &beside, e) != 0 || id[0] == '\0')
        db_id_make(id);
    uint64_t more = whole ? 0 : LOST_NUMBERS, stored = strtoull(text, NULL, 10);
    epoch = (stored > beside ? stored : beside) + more;
    struct row_ids floors = { top.mark + more, top.move + more, top.run + more, top.job + more, top.crash + more, top.event + more };
    if (rescue_floors(to, &floors, id, epoch, e) < 0 || db_integrity(to, "integrity_check", 600, e) != 0)
        return -1;
    if (!whole)
        str_addf(said, "new numbers begin %u higher, so that none of a lost row comes twice\n", LOST_NUMBERS);
    return report_loss(to, dir, whole, said, e) < 0 ? -1 : db_id_write(dir, id, epoch, e);
}

/* Rows of a schema that we do not know would be lost in ours. A number that no schema has is damage like any other. */
static int refuse_newer(struct db *from, const char *dir, struct err *e)
{
    int64_t version;
    struct err ignored;
    if (db_query_int(from, "PRAGMA user_version", &version, &ignored) < 0 || version <= DB_VERSION || version > DB_VERSION_MOST)
        return 0;
    return err_set(e, ERR_STATE, "%s/state.db has schema version %lld, this sluiced knows versions up to %d: recover it with the newer sluiced", dir,
                   (long long)version, DB_VERSION);
}

static int rebuild(const struct work *w, const char *dir, struct str *said, struct err *e)
{
    char id[DB_ID_SIZE];
    struct stat st;
    db_id_make(id);
    unlink(w->fresh);
    struct db *to = db_connect(dir, w->fresh, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, e);
    int rc = to && db_make_schema(to, id, e) == 0 && stat(w->damaged, &st) == 0 ? 0 : -1;
    struct db *from = rc == 0 ? open_damaged(dir, w->damaged, w->fresh, said, e) : NULL;
    rc = from ? refuse_newer(from, dir, e) : -1;
    bool whole = false;
    /* rows of meta that can be read win over those of the fresh schema */
    if (rc == 0)
        rc = db_begin(to, e) < 0 || db_exec(to, "DELETE FROM meta", e) < 0 ? -1 : save_tables(from, to, st.st_size / DB_PAGE + 1, said, &whole, e);
    db_close(from);
    if (rc == 0)
        rc = finish_fresh(to, dir, whole, said, e);
    db_close(to);
    return rc;
}

int db_recover(const char *dir, char **report, struct err *e)
{
    struct str said = { 0 };
    *report = mem_strdup("");
    int lock = rescue_enter(dir, e);
    if (lock < 0)
        return -1;
    struct work w;
    work_init(&w, dir);
    char *aside = NULL;
    int rc = copy_damaged(&w, dir, e);
    if (rc == 0)
        rc = rebuild(&w, dir, &said, e);
    if (rc == 0)
        rc = rescue_swap(dir, w.fresh, "corrupt", &aside, e);
    if (rc == 0)
        str_addf(&said, "the damaged file is kept in %s\n", aside);
    else
        unlink(w.fresh);
    work_end(&w);
    free(aside);
    close(lock);
    free(*report);
    *report = str_take(&said);
    return rc;
}
