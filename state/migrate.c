/* migrate.c - an older schema comes forward, a newer one is refused
 *
 * From: db_open.  To: the database, in one transaction.
 * A copy of the file as it was is kept beside first: who has to go back to the older program has what it can read.
 */
#include "config.h"
#include "db_private.h"

#include <stdio.h>
#include <stdlib.h>

#include "clock.h"
#include "log.h"
#include "mem.h"

/* Version 1 is schema.sql as first published. A change of schema.sql adds a row here that brings the version before it
 * to the same shape, and DB_VERSION grows along. */
static const struct db_migration migrations[] = {
    { 1, "" },
    { 2, "ALTER TABLE run ADD COLUMN stages TEXT; ALTER TABLE run_tf ADD COLUMN stages TEXT" },
    { 3, "ALTER TABLE job ADD COLUMN stages TEXT" },
    { 4, "ALTER TABLE run ADD COLUMN nice INTEGER NOT NULL DEFAULT 100; ALTER TABLE run ADD COLUMN nice_min INTEGER NOT NULL DEFAULT -20;"
         "ALTER TABLE run ADD COLUMN nice_max INTEGER NOT NULL DEFAULT 19; ALTER TABLE job ADD COLUMN nice INTEGER NOT NULL DEFAULT 100;"
         "ALTER TABLE job ADD COLUMN nice_min INTEGER NOT NULL DEFAULT -20; ALTER TABLE job ADD COLUMN nice_max INTEGER NOT NULL DEFAULT 19" },
    { 5, "CREATE TABLE known_device (node TEXT NOT NULL, serial TEXT NOT NULL, place INTEGER NOT NULL, seen INTEGER NOT NULL, forgotten INTEGER NOT NULL, "
         "UNIQUE (node, serial)) STRICT" },
    { 6, "ALTER TABLE job ADD COLUMN preempted INTEGER NOT NULL DEFAULT 0; ALTER TABLE job ADD COLUMN straggler REAL NOT NULL DEFAULT 0;"
         "ALTER TABLE task ADD COLUMN tries INTEGER NOT NULL DEFAULT 0; ALTER TABLE task ADD COLUMN deaths TEXT; ALTER TABLE task ADD COLUMN due INTEGER NOT NULL DEFAULT 0" },
    { 7, "ALTER TABLE job ADD COLUMN after TEXT; ALTER TABLE job ADD COLUMN reruns INTEGER NOT NULL DEFAULT 0;"
         "ALTER TABLE job ADD COLUMN begun INTEGER NOT NULL DEFAULT 0;"
         "ALTER TABLE job ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0; ALTER TABLE job ADD COLUMN unpublished INTEGER NOT NULL DEFAULT 0; CREATE INDEX job_pruning ON job (id) WHERE pruned = 1;"
         "CREATE INDEX job_key ON job (key, uid) WHERE key IS NOT NULL;"
         "ALTER TABLE task ADD COLUMN log TEXT;"
         "CREATE TABLE attempt (job INTEGER NOT NULL, number INTEGER NOT NULL, attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, state TEXT NOT NULL,"
         " node TEXT, device TEXT, code TEXT, text TEXT, digest TEXT, stem TEXT, seconds REAL NOT NULL, time INTEGER NOT NULL, log TEXT,"
         " UNIQUE (job, number, attempt)) STRICT" },
    { 8, "CREATE TABLE known_boot (node TEXT NOT NULL UNIQUE, boot TEXT NOT NULL) STRICT" },
    { 9, "ALTER TABLE job ADD COLUMN failures TEXT" },
    { 10, "ALTER TABLE job ADD COLUMN folder TEXT; ALTER TABLE job ADD COLUMN unswept INTEGER NOT NULL DEFAULT 0; DROP INDEX IF EXISTS run_tf_unpublished" },
};

static int copy_beside(struct db *db, int64_t version, struct err *e)
{
    char name[80];
    snprintf(name, sizeof name, "state.db.v%lld-%lld", (long long)version, (long long)(clock_wall_ns() / CLOCK_SECOND));
    char *file = db_path(db->dir, name);
    int rc = rescue_copy(db, file, e);
    if (rc < 0)
        err_prefix(e, "migration of the schema: no copy of the present state could be kept");
    else
        log_info("state: schema %lld is brought forward, a copy is kept in %s", (long long)version, file);
    free(file);
    return rc;
}

static int apply(struct db *db, const struct db_migration *table, size_t n, int64_t version, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].version <= version)
            continue;
        char pragma[64];
        snprintf(pragma, sizeof pragma, "PRAGMA user_version = %u", table[i].version);
        if (db_exec(db, table[i].sql, e) < 0 || db_exec(db, pragma, e) < 0)
            return err_prefix(e, "migration of the schema to version %u", table[i].version);
    }
    return 0;
}

static int find_version(struct db *db, const struct db_migration *table, unsigned wanted, int64_t *version, struct err *e)
{
    if (db_query_int(db, "PRAGMA user_version", version, e) < 0)
        return -1;
    if (*version < 0 || *version > DB_VERSION_MOST)
        return db_damaged(db, e, "its schema version makes no sense");
    if (*version > wanted)
        return err_set(e, ERR_STATE, "%s has schema version %lld, this sluiced knows versions up to %u: install the newer sluiced again, or put back "
                       "a copy made before it with `sluiced --state %s --restore FILE`", db->path, (long long)*version, wanted, db->dir);
    if (*version + 1 < table[0].version)
        return err_set(e, ERR_STATE, "%s has schema version %lld, the oldest that can be brought forward is %u", db->path, (long long)*version,
                       table[0].version - 1);
    return 0;
}

int migrate_version(struct db *db, int64_t *version, struct err *e)
{
    return find_version(db, migrations, DB_VERSION, version, e);
}

int migrate_forward(struct db *db, const struct db_hooks *hooks, struct err *e)
{
    const struct db_migration *table = hooks && hooks->migrations ? hooks->migrations : migrations;
    size_t n = hooks && hooks->migrations ? hooks->n_migrations : ARRAY_LEN(migrations);
    int64_t version;
    if (find_version(db, table, table[n - 1].version, &version, e) < 0)
        return -1;
    if (version == table[n - 1].version)
        return 0;
    if (copy_beside(db, version, e) < 0 || db_begin(db, e) < 0)
        return -1;
    if (apply(db, table, n, version, e) < 0) {
        db_rollback(db);
        return -1;
    }
    return db_commit(db, e);
}
