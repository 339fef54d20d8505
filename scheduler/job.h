/* job.h - async work: a list of files, each TF of each a task, as the files of jobs (job*.c, task.c) see it
 *
 * tasks = waiting + running + done + failed + cancelled, at every instant; skipped counts files that could not be read when they were submitted.
 */
#ifndef SLUICE_JOB_H
#define SLUICE_JOB_H

#include "flow_core.h"
#include "rows.h"

enum task_state { TASK_WAITING, TASK_RUNNING, TASK_DONE, TASK_FAILED, TASK_CANCELLED, TASK_STATES };
extern const char *const task_state_name[TASK_STATES];

struct job_file {
    char    *path, *stem, *text;         /* text: why it is skipped */
    uint64_t first_task, tfs;
    uint64_t (*extent)[2];               /* offset, size */
};

/* What is known about one TF of one file. A job may have millions: 56 bytes, and no memory of its own but for the text of a failure. */
struct task {
    uint8_t  state;
    bool     has_digest, aside;          /* aside: failed, because processes died of it */
    uint32_t attempt;
    const char *node, *code;             /* shared: jobs_word */
    char    *text;
    uint64_t digest;
    double   seconds;
};

struct job {
    struct work work;                    /* first */
    TAILQ_ENTRY(job) entry;
    struct jobs *jobs;
    char    *owner, *key, *classes, *why;
    Sluice__JobState state;
    uint32_t attempts;
    int64_t  submitted, begin, ended;
    struct job_file *file;
    size_t   n_files;
    struct task *task;
    uint64_t n_tasks, next;              /* next: no waiting task below it without a TF */
    uint64_t n[TASK_STATES], skipped_files;
    struct ran *ran;                     /* what the stages of those done ran on */
    char    *full;                       /* why it pauses: no room for its results; NULL: it does not */
    bool     held;                       /* nothing more of it is given out until it is released */
    unsigned releases;                   /* releases and reruns that are not on disk yet: nothing is given out before */
    bool     stored, stored_over;
    unsigned changes;
    double   settled_since;
    bool     in_progress;
    double   straggler;                  /* times the median after which one of its last TFs starts a second time; 0: none does */
    struct spans { double seconds[65]; unsigned n; } spans;      /* of the TFs done last */
    bool     row_due;                    /* its totals are not those of its row any more */
    bool     cancelling;
};

TAILQ_HEAD(job_list, job);
struct jobs {
    struct sluiced *d;
    struct flow *flow;
    struct job_list open, over;          /* over: newest first, JOBS_KEPT */
    unsigned n_over;
    uint64_t last_id;
    struct crashes *crashes;
    struct word *words;                  /* names of nodes and codes, each once */
    struct task_rows *rows;              /* on their way to the disk */
};
/* The shared copy of a short text, there until the end; NULL for NULL. */
const char *jobs_word(struct jobs *jobs, const char *text);
void jobs_free_words(struct jobs *jobs);
enum { JOBS_KEPT = 1000, JOBS_DETAILED = 64 };

static inline struct job *job_of(struct work *w) { return (struct job *)w; }
extern const struct work_ops job_ops;
extern const char *const job_state_name[7];

/* A new one, among the open ones, paused. */
struct job *job_create(struct jobs *jobs, uint64_t id);
void job_discard(struct job *j);         /* it could not be stored, nobody heard of it */
void job_destroy(struct job *j);         /* out of its lists already */
void job_retire(struct job *j);          /* among those that are over */
void job_reopen(struct job *j);          /* back among the open ones, nothing given out before job_gate */
struct job *job_find(struct jobs *j, uint64_t id);
void job_turn(struct jobs *j);           /* gives tasks TFs, as many as may be given out soon */
void job_tick(struct jobs *j);
void job_progress(struct job *j);        /* perhaps it runs now, or is over */
/* Whether something of it may be given out now: it is on disk, not held, and its time has come. */
void job_gate(struct job *j);
/* Of a job that is not over. */
Sluice__JobState job_state_now(const struct job *j);
void job_each_check(struct jobs *j, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg);
void job_free_details(struct job *j);

/* The file that a task belongs to. */
struct job_file *job_file_of(const struct job *j, uint64_t number);

/* straggler.c: a TF was done so long after it was given out; each tick */
void straggler_sample(struct job *j, double seconds);
void straggler_look(struct job *j);

/* jobfull.c: a report of n came, or n is out of contact */
void job_full_report(struct jobs *jobs, const struct node *n);

/* taskrows.c: a row that will be written soon, many in one change, in the order they came; `rec`, if there is one, is told. The strings of row live for the
 * call. */
struct task_rows *task_rows_create(struct jobs *jobs);
void task_rows_destroy(struct task_rows *r);
void task_rows_put(struct job *j, const struct row_task *row, struct record *rec);
/* Hands what waits to the writer: if nothing is under way (soon), or in any case (now). */
void task_rows_soon(struct task_rows *r);
void task_rows_now(struct task_rows *r);

/* task.c */
void task_feed(struct job *j);
void task_set(struct job *j, uint64_t number, enum task_state state);
void task_cancel_all(struct job *j, const char *reason);
void task_again_all(struct job *j);      /* what failed or was cancelled waits again */
int  task_load(struct job *j, struct db *db, struct err *e);
/* Distinct names for the results of each file: STEM, or STEM~2 where another has it. */
void task_stems(struct job *j);

/* Stores the job's row with its totals (and what `more` writes), then calls then. */
struct job_change {
    struct job *job;
    struct row_job *row;
    struct event *ev;
    int  (*more)(struct db *db, void *arg, struct err *e);
    void (*then)(struct job *j, int rc, const struct err *e, void *arg);
    void *arg;
    char *text, *ran;
};
/* The row alone, as it is now; to be written and ended by whoever puts it into a change of his own. */
struct job_change *job_change_create(struct job *j);
int  job_change_write(struct db *db, void *change, struct err *e);
void job_change_end(void *change, int rc, const struct err *e);
void job_put(struct job *j, int kind, struct event *ev, int (*more)(struct db *db, void *arg, struct err *e),
             void (*then)(struct job *j, int rc, const struct err *e, void *arg), void *arg);

#endif
