/* salvage.c - rows whose way down from the table's root is lost: every page of the file is looked at by itself
 *
 * From: recover.c, after the tables were read in order.  To: the fresh database.
 * The layout of leaf pages, cells and records is that of SQLite's published file format (sqlite.org/fileformat2.html, 1.6 and 2.1). A record
 * is taken for a row of that table whose columns its types fit; a row that was saved already is not touched.
 */
#include "config.h"
#include "db_private.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "str.h"

enum { MAX_COLUMNS = 40, LEAF = 0x0d, LEAF_HEAD = 8 };
#define MAX_RECORD (16u << 20)

enum kind { WHOLE, REAL, TEXT, BLOB };

struct salvage_table {
    const char   *name;
    struct { enum kind kind; bool must, is_rowid; } columns[MAX_COLUMNS];
    unsigned      n;
    sqlite3_stmt *in;
    uint64_t      saved;
};

struct salvage {
    int                   fd;
    uint32_t              pages;
    struct db            *to;
    struct salvage_table *tables;
    size_t                n;
};

struct record { const uint8_t *p; size_t size; int64_t rowid; uint64_t types[MAX_COLUMNS]; unsigned n; size_t body; };

/* ---- what a table's rows look like ---- */

static enum kind kind_of(const char *type)
{
    return str_equal(type, "REAL") ? REAL : str_equal(type, "TEXT") ? TEXT : str_equal(type, "BLOB") ? BLOB : WHOLE;
}

static int describe(struct salvage_table *t, struct db *to, struct err *e)
{
    struct str text = { 0 }, marks = { 0 };
    sqlite3_stmt *s = NULL;
    str_addf(&text, "SELECT name, type, \"notnull\", pk FROM pragma_table_info('%s') ORDER BY cid", t->name);
    int rc = sqlite3_prepare_v2(to->sql, str_text(&text), -1, &s, NULL) == SQLITE_OK ? 0 : db_fail(to, e, "cannot read the schema");
    str_clear(&text);
    str_addf(&text, "INSERT OR IGNORE INTO %s (", t->name);
    while (rc == 0 && t->n < MAX_COLUMNS && sqlite3_step(s) == SQLITE_ROW) {
        t->columns[t->n].kind = kind_of((const char *)sqlite3_column_text(s, 1));
        t->columns[t->n].must = sqlite3_column_int(s, 2) != 0;
        t->columns[t->n].is_rowid = sqlite3_column_int(s, 3) != 0;
        str_addf(&text, "%s\"%s\"", t->n ? ", " : "", (const char *)sqlite3_column_text(s, 0));
        str_add(&marks, t->n ? ", ?" : "?");
        t->n++;
    }
    sqlite3_finalize(s);
    str_addf(&text, ") VALUES (%s)", str_text(&marks));
    if (rc == 0 && sqlite3_prepare_v2(to->sql, str_text(&text), -1, &t->in, NULL) != SQLITE_OK)
        rc = db_fail(to, e, "cannot write the fresh state");
    str_free(&text);
    str_free(&marks);
    return rc;
}

/* ---- bytes ---- */

static unsigned be16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static uint32_t be32(const uint8_t *p)
{
    return (uint32_t)be16(p) << 16 | be16(p + 2);
}

/* Bytes used, 0 when it does not end within size. */
static size_t varint(const uint8_t *p, size_t size, uint64_t *value)
{
    uint64_t v = 0;
    for (size_t i = 0; i < size && i < 9; i++) {
        if (i == 8) {
            *value = v << 8 | p[i];
            return 9;
        }
        v = v << 7 | (p[i] & 0x7f);
        if ((p[i] & 0x80) == 0) {
            *value = v;
            return i + 1;
        }
    }
    return 0;
}

static size_t type_bytes(uint64_t type)
{
    static const uint8_t whole[] = { 0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0 };
    return type < 12 ? whole[type] : (size_t)((type - 12) / 2);
}

static bool read_page(const struct salvage *s, uint32_t number, uint8_t page[DB_PAGE])
{
    return number >= 1 && number <= s->pages && pread(s->fd, page, DB_PAGE, (off_t)(number - 1) * DB_PAGE) == DB_PAGE;
}

/* ---- records ---- */

/* The record's bytes, the part on overflow pages included; NULL when they do not add up. Caller frees. */
static uint8_t *gather(const struct salvage *s, const uint8_t *page, size_t at, uint64_t size)
{
    const uint64_t most = DB_PAGE - 35, least = (DB_PAGE - 12) * 32 / 255 - 23;
    uint64_t local = size;
    if (size > most) {
        local = least + (size - least) % (DB_PAGE - 4);
        local = local <= most ? local : least;
    }
    if (size == 0 || size > MAX_RECORD || at + local + (local < size ? 4 : 0) > DB_PAGE)
        return NULL;
    uint8_t *record = mem_zalloc(size), next_page[DB_PAGE];
    memcpy(record, page + at, local);
    uint32_t next = local < size ? be32(page + at + local) : 0;
    for (uint64_t have = local; have < size;) {
        uint64_t part = size - have < DB_PAGE - 4 ? size - have : DB_PAGE - 4;
        if (!read_page(s, next, next_page)) {
            free(record);
            return NULL;
        }
        memcpy(record + have, next_page + 4, part);
        next = be32(next_page);
        have += part;
    }
    return record;
}

static bool parse(struct record *r)
{
    uint64_t head, body;
    size_t at = varint(r->p, r->size, &head);
    if (at == 0 || head > r->size)
        return false;
    r->body = head;
    body = head;
    for (r->n = 0; at < head; r->n++) {
        size_t used = r->n < MAX_COLUMNS ? varint(r->p + at, head - at, &r->types[r->n]) : 0;
        if (used == 0 || r->types[r->n] == 10 || r->types[r->n] == 11 || type_bytes(r->types[r->n]) > r->size - body)
            return false;
        body += type_bytes(r->types[r->n]);
        at += used;
    }
    return at == head && body == r->size;
}

static bool fits(const struct salvage_table *t, const struct record *r)
{
    if (t->n != r->n)
        return false;
    for (unsigned i = 0; i < t->n; i++) {
        uint64_t type = r->types[i];
        bool whole = (type >= 1 && type <= 6) || type == 8 || type == 9, ok;
        if (t->columns[i].is_rowid)
            ok = type == 0;
        else if (type == 0)
            ok = !t->columns[i].must;
        else if (t->columns[i].kind == WHOLE)
            ok = whole;
        else if (t->columns[i].kind == REAL)
            ok = whole || type == 7;
        else
            ok = type >= 12 && type % 2 == (t->columns[i].kind == TEXT);
        if (!ok)
            return false;
    }
    return true;
}

static int64_t whole_number(const uint8_t *p, size_t bytes)
{
    uint64_t v = bytes && p[0] & 0x80 ? UINT64_MAX : 0;
    for (size_t i = 0; i < bytes; i++)
        v = v << 8 | p[i];
    return (int64_t)v;
}

static void bind_value(sqlite3_stmt *in, int at, uint64_t type, const uint8_t *p)
{
    size_t bytes = type_bytes(type);
    if (type == 0) {
        sqlite3_bind_null(in, at);
    } else if (type == 7) {
        int64_t bits = whole_number(p, 8);
        double real;
        memcpy(&real, &bits, sizeof real);
        sqlite3_bind_double(in, at, real);
    } else if (type < 12) {
        sqlite3_bind_int64(in, at, type == 8 ? 0 : type == 9 ? 1 : whole_number(p, bytes));
    } else if (type % 2) {
        sqlite3_bind_text(in, at, (const char *)p, (int)bytes, SQLITE_STATIC);
    } else {
        sqlite3_bind_blob(in, at, p, (int)bytes, SQLITE_STATIC);
    }
}

static void take_record(struct salvage *s, const struct record *r)
{
    for (size_t k = 0; k < s->n; k++) {
        struct salvage_table *t = &s->tables[k];
        if (!fits(t, r))
            continue;
        const uint8_t *p = r->p + r->body;
        for (unsigned i = 0; i < r->n; i++) {
            if (t->columns[i].is_rowid)
                sqlite3_bind_int64(t->in, (int)i + 1, r->rowid);
            else
                bind_value(t->in, (int)i + 1, r->types[i], p);
            p += type_bytes(r->types[i]);
        }
        if (sqlite3_step(t->in) == SQLITE_DONE)
            t->saved += (uint64_t)sqlite3_changes(s->to->sql);
        sqlite3_reset(t->in);
        return;
    }
}

static void scan_page(struct salvage *s, const uint8_t page[DB_PAGE])
{
    unsigned cells = be16(page + 3);
    if (page[0] != LEAF || cells > (DB_PAGE - LEAF_HEAD) / 2)
        return;
    for (unsigned i = 0; i < cells; i++) {
        size_t at = be16(page + LEAF_HEAD + 2 * i);
        uint64_t size, rowid;
        if (at < LEAF_HEAD + 2 * (size_t)cells || at >= DB_PAGE)
            continue;
        size_t used = varint(page + at, DB_PAGE - at, &size);
        size_t more = used ? varint(page + at + used, DB_PAGE - at - used, &rowid) : 0;
        uint8_t *bytes = more ? gather(s, page, at + used + more, size) : NULL;
        struct record r = { .p = bytes, .size = (size_t)size, .rowid = bytes ? (int64_t)rowid : 0 };
        if (bytes && r.rowid > 0 && parse(&r))
            take_record(s, &r);
        free(bytes);
    }
}

int salvage_rows(const char *file, struct db *to, const char *const *names, size_t n, uint64_t *saved, struct err *e)
{
    struct salvage s = { .fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .to = to, .n = n };
    if (s.fd < 0)
        return err_errno(e, ERR_FAILED, "cannot open %s", file);
    s.tables = mem_array(n, sizeof *s.tables);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        s.tables[i].name = names[i];
        rc = describe(&s.tables[i], to, e);
    }
    uint8_t page[DB_PAGE];
    s.pages = (uint32_t)(lseek(s.fd, 0, SEEK_END) / DB_PAGE);
    for (uint32_t p = 2; rc == 0 && p <= s.pages; p++) {
        if (read_page(&s, p, page))
            scan_page(&s, page);
    }
    for (size_t i = 0; i < n; i++) {
        saved[i] = s.tables[i].saved;
        sqlite3_finalize(s.tables[i].in);
    }
    free(s.tables);
    close(s.fd);
    return rc;
}
