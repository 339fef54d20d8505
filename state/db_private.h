/* db_private.h - what the files of state/ share */
#ifndef SLUICE_DB_PRIVATE_H
#define SLUICE_DB_PRIVATE_H

#include <sqlite3.h>
#include <stdatomic.h>
#include "db.h"

enum {
    DB_APPLICATION_ID = 0x534c5543,       /* "SLUC" */
    DB_VERSION        = 10,               /* of schema.sql */
    DB_VERSION_MOST   = 1000,             /* no schema will get there: a number above it is damage */
    DB_PAGE           = 4096,
    DB_STATEMENTS     = 19,
    DB_ID_SIZE        = 33,               /* 32 hex digits */
};

#define DB_RESERVE_BYTES   (4 * 1024 * 1024)
#define DB_WAL_LIMIT_BYTES (4 * 1024 * 1024)    /* what stays of the log after a checkpoint */

enum db_fault {
    DB_FAULT_NONE,
    DB_FAULT_CHANGE,        /* the change itself: a constraint, a value out of range */
    DB_FAULT_FULL,          /* no space, read-only, I/O error, damaged: nothing can be stored */
    DB_FAULT_LOCKED,        /* somebody else holds the lock */
};

struct db {
    sqlite3      *sql;
    char         *dir, *path;
    int           lock_fd;                    /* -1: a reader */
    bool          saving_space;               /* the reserve was given up */
    enum db_fault fault;
    int           code;                       /* SQLite's, of the last failure */
    int64_t       size;                       /* of the file, the most that was seen */
    char          id[DB_ID_SIZE];
    int64_t       busy_since, busy_limit;     /* ns */
    atomic_llong  wait_until;                 /* monotonic ns, 0: no end beyond busy_limit */
    sqlite3_stmt *statements[DB_STATEMENTS];  /* kept prepared */
};

/* slots of db_statement: transactions here, then one a table in rows.c */
enum db_slot { SLOT_BEGIN, SLOT_COMMIT, SLOT_SAVE, SLOT_KEEP, SLOT_UNDO, SLOT_ROWS };

/* What a file is called in the folder; caller frees. */
char *db_path(const char *dir, const char *name);
/* Writes the sentence for SQLite's last failure and its class. Returns -1. doing: "cannot store the change". */
int   db_fail(struct db *db, struct err *e, const char *doing);
enum db_fault db_classify(int code);
sqlite3_stmt *db_statement(struct db *db, unsigned slot, const char *text, struct err *e);
int   db_exec(struct db *db, const char *text, struct err *e);
/* One whole number or text from the first row; -1 when there is none. */
int   db_query_int(struct db *db, const char *text, int64_t *value, struct err *e);
int   db_meta_get(struct db *db, const char *key, char *out, size_t size, struct err *e);    /* empty when absent */
int   db_meta_put(struct db *db, const char *key, const char *value, struct err *e);

/* db.c for rescue.c: a connection without the checks of db_open; flags of sqlite3_open_v2. */
struct db *db_connect(const char *dir, const char *path, int flags, struct err *e);
int   db_make_schema(struct db *db, const char *id, struct err *e);
int   db_damaged(const struct db *db, struct err *e, const char *what);
/* PRAGMA CHECK (quick_check or integrity_check) within limit_s; 0 good, -1 with the sentence, 1 out of time. */
int   db_integrity(struct db *db, const char *check, double limit_s, struct err *e);
void  db_settings(struct db *db);
/* state.id: the identity of the database and its newest epoch, so that a database that went away, or that an older one took the
 * place of, is seen. 0 read, 1 absent. */
int   db_id_read(const char *dir, char id[DB_ID_SIZE], uint64_t *epoch, struct err *e);
int   db_id_write(const char *dir, const char *id, uint64_t epoch, struct err *e);
void  db_id_make(char id[DB_ID_SIZE]);
/* state.id and the database belong together: 0; 1: there is no state.id; -1. db->id is read. */
int   db_identity(struct db *db, struct err *e);
int   db_header_check(const char *dir, const char *path, struct err *e);

/* guard.c: is this folder fit and ours? */
int   guard_filesystem(const char *dir, const struct db_hooks *hooks, struct err *e);
int   guard_lock(const char *dir, struct err *e);                 /* descriptor, or -1 "already running, pid P" */
/* Who holds a POSIX lock on a file: "sqlite3, pid 1234", or "another process". */
void  guard_lock_holder(const char *path, char *out, size_t size);

/* migrate.c */
/* The version of the schema; -1: one that a start refuses, with the sentence of the start. */
int   migrate_version(struct db *db, int64_t *version, struct err *e);
int   migrate_forward(struct db *db, const struct db_hooks *hooks, struct err *e);

/* salvage.c: rows of these tables found on any page of a file, put where they are not yet; saved: how many, for each. */
int   salvage_rows(const char *file, struct db *to, const char *const *names, size_t n, uint64_t *saved, struct err *e);

/* mend.c: texts of these tables become UTF-8, rows that make no sense go; gone: how many, for each. Inside the caller's transaction. */
int   mend_rows(struct db *db, const char *const *tables, size_t n, uint64_t *gone, struct err *e);

/* rescue.c: everything of a connection into a new file, in one snapshot; fsynced and checked. */
int   rescue_copy(struct db *db, const char *file, struct err *e);
/* The folder's lock, after the checks that all three need; -1. */
int   rescue_enter(const char *dir, struct err *e);
struct row_ids;
/* Numbers up to these were given out, whatever the tables say. In a transaction of its own, with id and epoch. */
int   rescue_floors(struct db *db, const struct row_ids *floors, const char *id, uint64_t epoch, struct err *e);
/* Puts fresh in the place of state.db; that one and its log go to state.db.WORD-TIME, whose name comes back (caller frees; NULL: there was none). */
int   rescue_swap(const char *dir, const char *fresh, const char *word, char **aside, struct err *e);

#endif
