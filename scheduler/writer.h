/* writer.h - the thread that commits: the loop puts changes, hears of each after it is on disk
 *
 * From: every module that changes something stored.  To: state/, then back to the module in the loop.
 * Changes are written in the order they were put; one transaction takes all that wait (a batch, at most 1024); `then` is called in the
 * loop, in order, after the commit, never from within writer_put. While the state is not writable marks pass by what waits. The loop never calls SQLite after start-up.
 */
#ifndef SLUICE_WRITER_H
#define SLUICE_WRITER_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include "db.h"

enum change_kind {
    CHANGE_MARK,      /* marks, clears, and whatever takes a node out: may use the reserve; refused only when even that is full */
    CHANGE_NEW,       /* new moves, runs, jobs, nodes: refused at once while the state is not writable */
    CHANGE_KEEP,      /* what the running stream reports: waits in memory (counted) until it can be written, never refused; `then` comes when it is on disk */
};

struct writer;
struct writer *writer_create(struct ev_loop *loop, struct db *db, struct err *e);     /* takes db */
/* Commits what is queued (at most limit_s), ends the thread, closes the database. Returns the number of changes that could not be written; each of them,
 * CHANGE_KEEP too, hears of it by `then` with -1, but for those that a disk that hangs still has in hand. `then`s are called from here. */
unsigned writer_destroy(struct writer *w, double limit_s);

/* write: in the writer's thread, touches only arg and db, in a savepoint of its own; called again when the whole batch has to be tried again. then: in the loop; rc 0 = on disk, -1 = refused (e); may be NULL. arg is the caller's. */
void writer_put(struct writer *w, enum change_kind kind, int (*write)(struct db *db, void *arg, struct err *e),
                void (*then)(void *arg, int rc, const struct err *e), void *arg);

#define WRITER_LOG_WARNING (64u << 20)

struct writer_state {
    bool     writable;             /* false: the last commit failed for space, a lock beyond its limit, or I/O */
    char     why[512];             /* then: the sentence */
    bool     broken;               /* then: the file is gone or damaged, which no free space mends; the sentence says what to do */
    double   since_s;              /* how long */
    uint64_t queued, kept;         /* changes waiting; of them CHANGE_KEEP */
    uint64_t commits, changes, refused;
    double   last_commit_s, slowest_commit_s;
    double   waiting_s;            /* since when nothing could be committed though something waits, the transaction under way included: above 1 s worth a line */
    uint64_t log_bytes;            /* the write-ahead log; above WRITER_LOG_WARNING somebody keeps a read transaction open */
    bool     reserve;              /* the reserve for marks is there */
};
/* lock_s: how long a lock of another process is waited for before it is an alarm and CHANGE_MARK and CHANGE_NEW are refused, 35 unless set.
 * run_tfs: the thread also prunes, now and once a minute, what db_prune takes for this many rows a run; 0, and unless set: never. */
void  writer_set_limits(struct writer *w, double lock_s, uint64_t run_tfs);
void  writer_state(const struct writer *w, struct writer_state *out);
bool  writer_accepts_new(const struct writer *w);

#endif
