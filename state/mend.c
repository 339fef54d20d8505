/* mend.c - what was read of a damaged database is made fit for use
 *
 * From: recover.c, inside its transaction.  To: the fresh database.
 * A flipped byte leaves rows that SQLite can read and that mean nothing: a text that is no UTF-8 could not stand in any answer, a name that is none
 * could not be typed, a count of 2^60 tasks would be believed. A text is shown with '?' where it is spoilt, because a mark in doubt is a mark; a row that cannot be used is left out
 * and counted.
 */
#include "config.h"
#include "db_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "str.h"

/* What a row of the table must fulfil. Tables that refer to others come after them. */
static const struct { const char *table, *sound; } rules[] = {
    { "node",     "sluice_is_name(name)" },
    { "mark",     "sluice_is_name(node)" },
    { "known_device", "sluice_is_name(node) AND place BETWEEN 0 AND 255" },
    { "known_boot", "sluice_is_name(node)" },
    { "move",     "sluice_is_name(node) AND \"to\" IN ('online', 'async')" },
    { "run",      "id > 0 AND sources BETWEEN 0 AND 65536 AND length(key) = 32" },
    { "run_tf",   "outcome IN ('done', 'failed', 'dropped', 'lost', 'cancelled') AND published IN (0, 1)" },
    { "job",      "id > 0 AND tasks BETWEEN 0 AND 100000000" },
    { "job_file", "first_task >= 0 AND tfs >= 0 AND (tfs = 0 OR length(extents) = 16 * tfs)"
                  " AND EXISTS (SELECT 1 FROM job WHERE job.id = job AND first_task <= job.tasks AND tfs <= job.tasks - first_task)" },
    { "task",     "EXISTS (SELECT 1 FROM job WHERE job.id = job AND number BETWEEN 0 AND job.tasks - 1)" },
    { "attempt",  "EXISTS (SELECT 1 FROM job WHERE job.id = job AND number BETWEEN 0 AND job.tasks - 1)" },
};

static void is_name(sqlite3_context *c, int n, sqlite3_value **v)
{
    const char *text = (const char *)sqlite3_value_text(v[0]);

    (void)n;
    sqlite3_result_int(c, text != NULL && (size_t)sqlite3_value_bytes(v[0]) == strlen(text) && str_is_name(text));
}

static void mended(sqlite3_context *c, int n, sqlite3_value **v)
{
    const char *text = (const char *)sqlite3_value_text(v[0]);
    size_t size = (size_t)sqlite3_value_bytes(v[0]);

    (void)n;
    if (text == NULL)
        return;
    char *good = mem_zalloc(size + 1);
    memcpy(good, text, size);
    str_mend(good, size);
    sqlite3_result_text(c, good, (int)size, free);
}

static int mend_column(struct db *db, const char *table, const char *column, struct err *e)
{
    char *text = mem_printf("UPDATE OR IGNORE %s SET \"%s\" = sluice_mended(\"%s\") WHERE typeof(\"%s\") = 'text' AND \"%s\" <> sluice_mended(\"%s\")", table, column, column,
                            column, column, column);
    int rc = db_exec(db, text, e);

    free(text);
    return rc;
}

static int mend_texts(struct db *db, const char *table, struct err *e)
{
    sqlite3_stmt *s = NULL;
    char *ask = mem_printf("SELECT name FROM pragma_table_info('%s') WHERE type = 'TEXT'", table);
    int rc = sqlite3_prepare_v2(db->sql, ask, -1, &s, NULL) == SQLITE_OK ? 0 : db_fail(db, e, "cannot read the schema");

    while (rc == 0 && sqlite3_step(s) == SQLITE_ROW)
        rc = mend_column(db, table, (const char *)sqlite3_column_text(s, 0), e);
    sqlite3_finalize(s);
    free(ask);
    return rc;
}

static int leave_out(struct db *db, const char *table, const char *sound, uint64_t *gone, struct err *e)
{
    char *text = mem_printf("DELETE FROM %s WHERE NOT coalesce(%s, 0)", table, sound);
    int rc = db_exec(db, text, e);

    if (rc == 0)
        *gone = (uint64_t)sqlite3_changes(db->sql);
    free(text);
    return rc;
}

int mend_rows(struct db *db, const char *const *tables, size_t n, uint64_t *gone, struct err *e)
{
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;

    if (sqlite3_create_function_v2(db->sql, "sluice_is_name", 1, flags, NULL, is_name, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_create_function_v2(db->sql, "sluice_mended", 1, flags, NULL, mended, NULL, NULL, NULL) != SQLITE_OK)
        return db_fail(db, e, "cannot look at what was saved");
    for (size_t i = 0; i < n; i++) {
        gone[i] = 0;
        if (mend_texts(db, tables[i], e) < 0)
            return -1;
    }
    for (size_t r = 0; r < ARRAY_LEN(rules); r++) {
        for (size_t i = 0; i < n; i++) {
            if (str_equal(rules[r].table, tables[i]) && leave_out(db, tables[i], rules[r].sound, &gone[i], e) < 0)
                return -1;
        }
    }
    return 0;
}
