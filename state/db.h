/* db.h - the state on disk: one SQLite database in one folder, one owner at a time
 *
 * From: scheduler/writer.c (all writing, one thread), scheduler/restore.c (reading at start-up).  To: the disk.
 * Stored are intents (pools, moves, marks, wanted sizes, runs, jobs) and history; what workers know is not.
 * WAL, synchronous = FULL: a commit that returned survives a power cut.
 */
#ifndef SLUICE_DB_H
#define SLUICE_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statfs.h>
#include "err.h"

struct db;

struct db_migration {                                 /* from version - 1 to version */
    unsigned    version;
    const char *sql;
};

struct db_hooks {                                     /* NULL, or a NULL member: the real ones. Tests put their own here */
    int (*statfs)(const char *path, struct statfs *out);
    const struct db_migration *migrations;            /* ascending, without gaps; the last one's version is the one wanted */
    size_t n_migrations;
};

/* Opens DIR/state.db, made when absent (DIR too). Refused, each with its sentence and what to do:
 * another sluiced on the folder ("already running, pid P": ERR_STATE), a newer schema, a file that is corrupt or cut short (the file is left as it is; the sentence
 * names `sluiced --recover`), a network file system. Checks that a database that was there before has not silently gone: DIR/state.id without state.db is refused.
 * Older schemas are migrated forward in one transaction, after a copy was kept beside (state.db.vN-TIME). Seconds, never hangs. */
struct db *db_open(const char *dir, const struct db_hooks *hooks, struct err *e);
void  db_close(struct db *db);

/* `sluiced --check`: 0 and a report, or -1. `--recover`: keeps the damaged file aside (state.db.corrupt-TIME), rebuilds what can be read, says per table what was saved and lost.
 * `--restore FILE`: puts a backup in place, the present file kept aside. report: caller frees; never NULL. All three refuse a folder in use. */
int   db_check(const char *dir, char **report, struct err *e);
int   db_recover(const char *dir, char **report, struct err *e);
int   db_restore(const char *dir, const char *backup, char **report, struct err *e);
/* A consistent copy to FILE (which must not exist), fsynced, checked. May run in a thread of its own: opens its own read connection, in short steps. */
int   db_backup(const char *dir, const char *file, struct err *e);

/* One batch = one transaction; each change in it is a savepoint, so that one that fails takes only itself back. A busy lock is waited for up to 5 s a call
 * (ERR_TIMEOUT "state is locked by another process"); a full disk is ERR_STATE with word via db_full. */
int   db_begin(struct db *db, struct err *e);
int   db_commit(struct db *db, struct err *e);
void  db_rollback(struct db *db);
int   db_save(struct db *db, struct err *e);          /* savepoint */
int   db_release(struct db *db, bool keep, struct err *e);
bool  db_full(const struct db *db);                   /* the last failure was for lack of space (or read-only, or I/O error) */
bool  db_locked(const struct db *db);                 /* the last failure was somebody's lock */
bool  db_broken(const struct db *db);                 /* the last failure was the file itself, gone or damaged: waiting does not help, a person must */
/* Gives the reserve file (4 MiB beside the database) up, so that marks still go in; db_reserve makes it anew when there is room. */
void  db_use_reserve(struct db *db);
int   db_reserve(struct db *db);                      /* 0: the reserve is there */
/* Removes the oldest run_tf rows beyond run_tfs a run, and of ended runs beyond ten times that in all, at most 1000 a call; never unpublished ones, marks, history, or totals (what goes stays counted, see
 * rows_count_run_tfs). Inside the caller's transaction. Returns how many went (0: nothing left to do), or -1. */
int   db_prune(struct db *db, uint64_t run_tfs, struct err *e);
int   db_probe(struct db *db, struct err *e);         /* a small transaction of its own: can anything be stored? */
bool  db_sound(struct db *db);                         /* the whole file is read anew, for 4 s at most: nothing of it is damaged */
const char *db_dir(const struct db *db);

/* No call waits for a lock beyond this moment of the monotonic clock (0: the usual limits). From any thread. */
void  db_wait_until(struct db *db, int64_t mono_ns);
/* Brings the log's pages home and cuts it, as far as readers allow; never waits. To be called when idle while db_log_bytes is large. */
void  db_tidy(struct db *db);
uint64_t db_log_bytes(const struct db *db);           /* size of state.db-wal: grows while somebody's read transaction stays open */

uint64_t db_next_epoch(struct db *db, struct err *e); /* counts this start, stored before it returns; 0 = error */

#endif
