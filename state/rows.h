/* rows.h - what a row of each table is, how it is written, how all are read at start-up
 *
 * put functions insert or replace by key, inside the caller's transaction; each returns 0 or -1. load functions call `each` once a row, in the order of
 * the key; strings live for the call; each returns 0 to go on, anything else ends the load and comes back from it. Times are wall ns, 0 = not yet; strings may be NULL.
 */
#ifndef SLUICE_ROWS_H
#define SLUICE_ROWS_H

#include "db.h"

/* One line of history; every change of intent writes exactly one, in its own transaction. seq comes back. */
struct row_event { uint64_t seq; int64_t time; const char *node, *who, *what, *before, *after, *reason; };
int rows_put_event(struct db *db, struct row_event *ev, struct err *e);
int rows_load_events(struct db *db, const char *node, int64_t since, unsigned limit,
                     int (*each)(void *arg, const struct row_event *), void *arg, struct err *e);     /* node NULL = all; newest `limit`, oldest first */
int rows_load_events_from(struct db *db, uint64_t from, unsigned limit,
                          int (*each)(void *arg, const struct row_event *), void *arg, struct err *e);                 /* the first `limit` from this number on */

struct row_node { const char *name, *class, *pool, *wanted_pool; int64_t added, retired; uint64_t shm_wanted; int nice_wanted; };
int rows_put_node(struct db *db, const struct row_node *n, struct err *e);
/* Of a node that has a row: what else stands there may be changed by others meanwhile. */
int rows_put_node_shm(struct db *db, const char *name, uint64_t size, struct err *e);
int rows_load_nodes(struct db *db, int (*each)(void *arg, const struct row_node *), void *arg, struct err *e);

struct row_mark {
    uint64_t id; const char *node, *part, *owner_kind, *owner, *class, *severity, *reason, *evidence;
    int64_t created, until, cleared; const char *cleared_by, *clear_reason;
};
int rows_put_mark(struct db *db, const struct row_mark *m, struct err *e);
int rows_load_marks(struct db *db, bool open_only, int (*each)(void *arg, const struct row_mark *), void *arg, struct err *e);

/* A device that was seen on a node; forgotten: it is not missed any more. */
struct row_device { const char *node, *serial; uint32_t place; int64_t seen, forgotten; };
int rows_put_device(struct db *db, const struct row_device *d, struct err *e);
int rows_load_devices(struct db *db, int (*each)(void *arg, const struct row_device *), void *arg, struct err *e);      /* those that are not forgotten */
/* The boot id of a node's machine. */
struct row_boot { const char *node, *boot; };
int rows_put_boot(struct db *db, const struct row_boot *b, struct err *e);
int rows_load_boots(struct db *db, int (*each)(void *arg, const struct row_boot *), void *arg, struct err *e);

struct row_move { uint64_t id; const char *node, *to, *when, *state, *requested_by, *text; int64_t at, deadline, created, ended; };
int rows_put_move(struct db *db, const struct row_move *m, struct err *e);
int rows_load_moves(struct db *db, bool open_only, int (*each)(void *arg, const struct row_move *), void *arg, struct err *e);

/* A run: its settings as text, its totals as they stood at the last commit. Totals of settled TFs always equal the run_tf rows of the same transaction. */
struct row_run {
    uint64_t id; const char *name, *state, *workflow, *backends, *options, *policy, *keep, *incomplete_rule, *output, *owner, *text;
    uint32_t sources, min_nodes, in_flight; uint8_t key[32];
    uint64_t announced, dispatched, done, failed, dropped, lost, incomplete, bytes_done; const char *dropped_by;     /* "QueueFull 3,Short 1" */
    int64_t started, ended; const char *stages; int nice, nice_min, nice_max;       /* NICE_NONE of scheduler/tf.h: none of its own */
};
int rows_put_run(struct db *db, const struct row_run *r, struct err *e);
int rows_load_runs(struct db *db, bool open_only, int (*each)(void *arg, const struct row_run *), void *arg, struct err *e);

/* The end of one TF of a run; written with the run's totals. outcome: done failed dropped lost. published: 0 accepted only, 1 under its final name (or nothing to publish). */
struct row_run_tf {
    uint64_t run, tf; const char *outcome, *reason, *node, *device, *digest, *stem; uint64_t epoch; uint32_t attempt; bool incomplete; int published;
    double seconds; uint64_t bytes; int64_t time; const char *stages;
};
int rows_put_run_tf(struct db *db, const struct row_run_tf *t, struct err *e);
int rows_load_run_tfs(struct db *db, uint64_t run, uint64_t from, unsigned limit,
                      int (*each)(void *arg, const struct row_run_tf *), void *arg, struct err *e);

/* What is stored of a run's ends, pruned rows included: to be held against the totals of row_run. */
struct row_counts { uint64_t done, failed, dropped, lost, incomplete, bytes_done; };
int rows_count_run_tfs(struct db *db, uint64_t run, struct row_counts *counts, struct err *e);

struct row_job {
    uint64_t id; const char *name, *owner, *key, *state, *workflow, *backends, *options, *output, *text, *classes;
    uint32_t uid, gid; int priority; uint32_t attempts; double time_limit; uint64_t tasks, done, failed, skipped, cancelled, retried;
    int64_t submitted, begin, ended; const char *stages; int nice, nice_min, nice_max; uint64_t preempted; double straggler;
    const char *after; uint32_t reruns; bool begun; int pruned; bool unpublished; const char *failures, *folder; bool unswept;
};
int rows_put_job(struct db *db, const struct row_job *j, struct err *e);
int rows_load_jobs(struct db *db, bool open_only, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e);

/* The job of that number; that user's job with that key, whenever it was: `each` is called for it, or not at all. */
int rows_load_job(struct db *db, uint64_t id, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e);
int rows_load_job_key(struct db *db, const char *key, uint32_t uid, int (*each)(void *arg, const struct row_job *), void *arg, struct err *e);
/* Removes at most `limit` rows of a job's files, tasks and tries. The number of rows gone; fewer than limit: that was all. */
int rows_prune_job(struct db *db, uint64_t job, unsigned limit, struct err *e);

/* A job's input file: number of TFs and the extents of them as packed u64 pairs (offset, size), or why it is skipped. */
struct row_job_file { uint64_t job; uint32_t number; const char *path; uint64_t first_task, tfs; const void *extents; size_t extents_size; const char *text; };
int rows_put_job_file(struct db *db, const struct row_job_file *f, struct err *e);
int rows_load_job_files(struct db *db, uint64_t job, int (*each)(void *arg, const struct row_job_file *), void *arg, struct err *e);

/* Numbers of jobs that have files and no row: their files were on the way to the disk when sluiced ended. */
int rows_load_orphans(struct db *db, int (*each)(void *arg, uint64_t job), void *arg, struct err *e);

/* A task has a row from its first attempt on. state: running done failed cancelled set-aside waiting. */
struct row_task {
    uint64_t job, number; const char *state, *node, *device, *code, *text, *digest, *stem; uint64_t epoch; uint32_t attempt; int published; double seconds; int64_t time;
    uint32_t tries; const char *deaths; int64_t due;
    const char *log;
};
int rows_put_task(struct db *db, const struct row_task *t, struct err *e);
/* What failed or was cancelled of a job waits again; what is known of its tries so far is kept among the tries. */
int rows_put_tasks_again(struct db *db, uint64_t job, struct err *e);
/* The same of everything of a job. */
int rows_put_tasks_anew(struct db *db, uint64_t job, struct err *e);
/* A try that others come after. */
int rows_put_attempt(struct db *db, const struct row_task *t, struct err *e);
/* All tries of a task, its last one included, oldest first; attempt 0: all, else that one. */
int rows_load_attempts(struct db *db, uint64_t job, uint64_t number, uint32_t attempt, int (*each)(void *arg, const struct row_task *), void *arg, struct err *e);
int rows_load_tasks(struct db *db, uint64_t job, int (*each)(void *arg, const struct row_task *), void *arg, struct err *e);

struct row_crash { uint64_t id; int64_t time; const char *node, *device, *word, *text, *folder, *workflow; uint64_t run, job, tf, bytes; uint32_t attempt; int64_t purged; };
int rows_put_crash(struct db *db, const struct row_crash *c, struct err *e);
int rows_load_crashes(struct db *db, int (*each)(void *arg, const struct row_crash *), void *arg, struct err *e);

/* The largest id of each kind, for the counters after a restart: mark move run job crash. */
struct row_ids { uint64_t mark, move, run, job, crash, event; };
int rows_load_ids(struct db *db, struct row_ids *ids, struct err *e);

/* One word under a name of the caller's, stored beside the tables. load: "" when it was never put. */
int rows_put_setting(struct db *db, const char *name, const char *value, struct err *e);
int rows_load_setting(struct db *db, const char *name, char *value, size_t size, struct err *e);

/* The same questions for commands, while the writer is at work: a read connection of the caller's thread, never held across a wait. */
struct db *db_open_reader(const char *dir, struct err *e);

#endif
