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

/* How fast its TFs come to their ends: settled so many at these times, the last 15 looks that were PACE_STEP apart, and at the beginning. */
enum { PACE_LOOKS = 16 };
struct job_pace { double at[PACE_LOOKS], from; uint64_t settled[PACE_LOOKS], first; unsigned n; };

struct job {
    struct work work;                    /* first */
    TAILQ_ENTRY(job) entry;
    struct jobs *jobs;
    char    *owner, *key, *classes, *why;
    struct after { enum { AFTER_NOTHING, AFTER_OK, AFTER_ANY, AFTER_NOTOK } kind; uint64_t job; bool never, met; } after;       /* jobgate.c; never: that job ended otherwise; met: as wanted, and memory has it no more */
    Sluice__JobState state;
    uint32_t attempts;
    int64_t  submitted, begin, ended;
    struct job_file *file;
    size_t   n_files;
    struct task *task;
    struct word *words;                  /* of its tasks, when a thread read them; else they are in those of jobs */
    uint64_t n_tasks, next;              /* next: no waiting task below it without a TF */
    uint64_t n[TASK_STATES], skipped_files;
    struct ran *ran;                     /* what the stages of those done ran on */
    char    *full;                       /* why it pauses: no room for its results; NULL: it does not */
    bool     held;                       /* nothing more of it is given out until it is released */
    unsigned releases;                   /* releases and reruns that are not on disk yet: nothing is given out before */
    bool     begun;                      /* its time, and the end of the job it comes after, have come: never looked at again, whatever clocks do */
    unsigned reruns;                     /* how often all of it was asked for again */
    int      pruned;                     /* as in its row */
    struct submit *submit;               /* until it is on disk: who asked for it */
    bool     unpublished;                /* as in its row, at the start only */
    bool     loading;                    /* after the start, until its tasks are in memory: nothing of it is given out or changed (jobread.c) */
    char    *unread;                     /* then: why they could not be read; they will be tried again */
    bool     stored, stored_over;
    struct job_pace pace;
    unsigned changes;
    double   settled_since;
    bool     in_progress;
    double   straggler;                  /* times the median after which one of its last TFs starts a second time; 0: none does */
    struct spans { double seconds[65]; unsigned n; } spans;      /* of the TFs done last */
    bool     row_due;                    /* its totals are not those of its row any more */
    bool     cancelling;
    bool     by_default;                 /* nobody named its output folder; as it is submitted only */
    char    *folder;                     /* where its output really lies, as the worker saw it that looked at it; NULL: not known */
    bool     unswept, sweeping, swept_one; double sweep_at, sweep_pause;         /* jobsweep.c */
    const struct node **to_sweep; size_t n_to_sweep;    /* those that have a folder of their own under that path, perhaps */
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
    double next_prune;
    bool pruning;
    unsigned loading;                    /* jobs that are */
    bool reading;                        /* a thread reads one of them */
    double next_read;
    struct deferred *deferred, **last_deferred;          /* jobread.c */
    struct staged *staged;               /* jobstage.c */
    uint64_t staged_files;
    struct junk *junk;                   /* jobjunk.c */
    bool unswept; double next_sweep;     /* some job may be */
};
/* The shared copy of a short text, there until the end; NULL for NULL. */
const char *jobs_word(struct jobs *jobs, const char *text);
void words_free(struct word **words);
enum { JOBS_KEPT = 1000, JOBS_DETAILED = 64, TASKS_DETAILED = 2000000 };
#define JOB_PRUNED_TEXT "are no longer kept: they were pruned, by number (limits.job_tfs) or by age (limits.job_age)"
enum { JOB_PRUNING = 1, JOB_PRUNED };        /* of its row */

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
int  after_parse(const char *text, struct after *a, struct err *e);      /* "ok:ID", ...; NULL or "": nothing */
char *after_text(const struct after *a);                                 /* NULL: nothing; the caller frees */
/* What it waits for before any of it may be given out: BeginTime, DependencyNotDone, DependencyNeverSatisfied; NULL: nothing. */
const char *job_waits_for(const struct job *j);
/* The state of the job that it comes after as the database has it: told at the start, when memory has that job no more. */
void after_restore(struct job *j, const struct row_job *row);
/* joblist.c: why nothing more of it is given out, a stable code or what a person said; NULL: nothing keeps it */
const char *job_why(const struct job *j);
/* jobpace.c */
void   pace_look(struct job *j, double now);
/* TFs a second now, and s until all are settled; false: not known. */
bool   pace_rate(const struct job *j, double now, double *rate);
bool   pace_remaining(const struct job *j, double now, double *s);
/* jobdetail.c: calls then once the tasks of a job are in memory, at once or after they were read; NULL and e: they cannot be had. */
void   job_detail(struct sluiced *d, uint64_t id, void (*then)(void *arg, struct job *j, const struct err *e), void *arg);
/* jobread.c: after the start each open job is read by a thread, small ones first, while all else is served already */
void read_begin(struct jobs *jobs);      /* all that are loading */
void read_tick(struct jobs *jobs);
void read_free(struct jobs *jobs);
/* Its tasks are not in memory yet: the asker was told to try again. */
bool job_is_unread(struct session *s, uint32_t id, const struct job *j);
/* jobsweep.c */
void sweep_tick(struct jobs *jobs);
/* jobprune.c */
void prune_tick(struct jobs *jobs);
int  prune_resume(struct jobs *jobs, struct db *db, struct err *e);      /* at the start: what was begun, and files of jobs that never were */
void prune_files(struct jobs *jobs, uint64_t id);        /* of a job that was not accepted after all */
void   submit_free(struct submit *s);
/* Of a job that is not over. */
Sluice__JobState job_state_now(const struct job *j);
/* The state in which it ends, all its tasks being settled. */
Sluice__JobState job_state_over(const struct job *j);
void job_each_check(struct jobs *j, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg);
/* jobjunk.c: the memory of its files and tasks, at once or over some ticks */
void job_free_details(struct job *j);
void junk_add(struct jobs *jobs, struct job_file *file, size_t n_files, struct task *task, uint64_t n_tasks, struct word *words);
void junk_tick(struct jobs *jobs);
void junk_free(struct jobs *jobs);       /* at the end */

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
void task_rows_put_try(struct job *j, const struct row_task *row);       /* of a try that others will come after */
/* Hands what waits to the writer: if nothing is under way (soon), or in any case (now). */
void task_rows_soon(struct task_rows *r);
void task_rows_now(struct task_rows *r);

/* task.c */
void task_feed(struct job *j);
void task_set(struct job *j, uint64_t number, enum task_state state);
void task_cancel_all(struct job *j, const char *reason);
void task_again_all(struct job *j, bool done_too);      /* what failed or was cancelled waits again, or all */
/* Files and tasks, as the database has them; in any thread that has j in its own hands. live: what the loop is to take up again with task_live_take, once j is
 * in its hands; NULL: nothing, the job is over. */
struct live_row { struct live_row *next; struct row_task row; char *text[7]; };
struct task_live { struct live_row *first, **last; };
int  task_load(struct job *j, struct db *db, struct task_live *live, struct err *e);
int  task_load_unpublished(struct job *j, struct db *db, struct task_live *live, struct err *e);     /* of one that is over: results that were accepted only */
void task_live_take(struct job *j, const struct task_live *live);
void task_live_free(struct task_live *live);
int  task_load_files(struct job *j, struct db *db, struct err *e);

/* jobsubmit.c: one file of a Submit, as a part of a job; first_task: the number of its first TF */
enum { FILES_MAX = 1000000, FILES_TOLD = 20000 };        /* of a job; of one message: more would hold up the loop */
void submit_file_fill(struct job_file *x, const Sluice__InputFile *f, uint64_t first_task);
/* all: files of the job so far, these included; adds to *tasks, and to *bad (may be NULL) those without TFs. */
int  submit_files_check(const struct conf *conf, size_t all, Sluice__InputFile *const *files, size_t n, uint64_t *tasks, uint64_t *bad, struct err *e);
/* jobstage.c: files that were told before */
size_t staged_count(const struct session *s, uint64_t *tasks, uint64_t *skipped);
void staged_take(struct session *s, struct job *j);      /* of a session that told some */
void stage_tick(struct jobs *jobs);
void stage_free(struct jobs *jobs);

/* jobnames.c */
/* The result's name below the output folder: a rerun of all has a folder of its own. */
char *task_stem_of(const struct job *j, uint64_t number);
/* Distinct names for the results of each file: STEM, or STEM~2 where another has it. */
void task_stems(struct job *j);
/* Those of a new job, or of one that is run again (the reruns-th time all of it), held against the names of others that are on in the same folder: then is
 * called once, now or later, with the jobs that were looked at. -1: it will not be: it is to be tried again a little later. */
struct names_seen { uint64_t *id; size_t n; };
typedef void names_fn(void *arg, int rc, const struct err *e, const struct names_seen *seen);
int  job_names(struct job *j, names_fn *then, void *arg, struct err *e);
int  job_names_rerun(const struct job *j, unsigned reruns, names_fn *then, void *arg, struct err *e);
bool job_names_still(const struct job *j, unsigned reruns, const struct names_seen *seen);        /* no other has come there since */
bool job_names_again(const struct job *j);       /* its folder became known, and others came to it by another path: job_names once more */

/* Stores the job's row with its totals after what `more` writes, then calls then. more returns 1: nothing of it is to be stored. */
struct job_change {
    struct job *job;
    struct row_job *row;
    struct event *ev;
    int  (*more)(struct db *db, void *arg, struct err *e);
    void (*then)(struct job *j, int rc, const struct err *e, void *arg);
    void *arg;
    char *text, *ran, *after, *failures;
    bool nothing;
};
/* The row alone, as it is now; to be written and ended by whoever puts it into a change of his own. */
struct job_change *job_change_create(struct job *j);
int  job_change_write(struct db *db, void *change, struct err *e);
void job_change_end(void *change, int rc, const struct err *e);
void job_put(struct job *j, int kind, struct event *ev, int (*more)(struct db *db, void *arg, struct err *e),
             void (*then)(struct job *j, int rc, const struct err *e, void *arg), void *arg);

#endif
