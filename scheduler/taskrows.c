/* taskrows.c - rows of tasks on their way to the disk, many in one change
 *
 * From: task.c (given out, settled, published).  To: the writer; the records, once their row is on disk.
 * A job of a million TFs must not pay for a transaction a TF: while one change is under way the rows that come gather for the next, and a row that was
 * not handed over yet gives way to a later one of the same task. Always: rows of a task reach the disk in the order they were put, and what job.c
 * stores comes behind what was put before it.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "log.h"
#include "mem.h"

enum { MOST = 4096 };                /* rows that gather while a change is under way: a commit of some 20 ms */

struct task_key { uint64_t job, number, attempt; };      /* attempt: of a row among the tries, 0: the task's own row */
struct task_change {
    UT_hash_handle hh;
    struct task_key key;
    struct job *job;
    struct record *rec;
    struct row_task row;             /* its strings lie in text */
    bool failed;                     /* by the writer: it alone could not be stored */
    struct err why;
    char text[];
};

struct task_rows {
    struct jobs *jobs;
    struct task_change *waiting;     /* in the order they came */
    unsigned under_way;              /* changes at the writer */
};

struct batch {
    struct task_rows *rows;
    struct job_change **job;         /* the totals of the jobs follow their tasks, in the same transaction */
    size_t n_jobs, n;
    struct task_change *change[];
};

/* ---- in the writer's thread ---------------------------------------------------------------- */

static int batch_write(struct db *db, void *arg, struct err *e)
{
    struct batch *b = arg;

    for (size_t i = 0; i < b->n; i++) {
        struct task_change *c = b->change[i];
        c->failed = (c->key.attempt ? rows_put_attempt(db, &c->row, e) : rows_put_task(db, &c->row, e)) < 0;
        if (c->failed && (db_full(db) || db_locked(db)))
            return -1;                           /* no row's fault: all of it is tried again */
        if (c->failed)
            c->why = *e;
    }
    for (size_t i = 0; i < b->n_jobs; i++) {
        if (job_change_write(db, b->job[i], e) < 0)
            return -1;
    }
    return 0;
}

/* ---- in the loop --------------------------------------------------------------------------- */

static void change_end(struct task_change *c, const struct err *why)
{
    struct job *j = c->job;
    struct record *rec = c->rec;

    j->changes--;
    if (why)
        log_err("job %" PRIu64 " task %" PRIu64 ": not stored: %s", c->row.job, c->row.number, why->text);
    free(c);
    if (rec == NULL)
        return;
    rec->writing = false;
    if (why)
        record_free(rec);
    else
        record_stored(rec);
}

static void batch_then(void *arg, int rc, const struct err *e)
{
    static const struct err unknown = { ERR_FAILED, "?" };
    struct batch *b = arg;

    b->rows->under_way--;
    for (size_t i = 0; i < b->n; i++) {
        struct task_change *c = b->change[i];
        struct err own = c->why;
        change_end(c, rc < 0 ? (e ? e : &unknown) : c->failed ? &own : NULL);
    }
    for (size_t i = 0; i < b->n_jobs; i++)
        job_change_end(b->job[i], rc, e);
    if (!b->rows->jobs->d->stopping)             /* the writer is about to end: jobs_stop was the last to hand over */
        task_rows_soon(b->rows);
    free(b->job);
    free(b);
}

static void take_jobs(struct batch *b)
{
    struct job *j;

    TAILQ_FOREACH(j, &b->rows->jobs->open, entry) {
        if (!j->row_due)
            continue;
        b->job = mem_grow(b->job, b->n_jobs + 1, sizeof(struct job_change *));
        b->job[b->n_jobs++] = job_change_create(j);
    }
}

void task_rows_now(struct task_rows *r)
{
    struct task_change *c, *next;

    if (r->waiting == NULL)
        return;
    struct batch *b = mem_zalloc(sizeof(*b) + HASH_COUNT(r->waiting) * sizeof(struct task_change *));
    b->rows = r;
    HASH_ITER(hh, r->waiting, c, next) {
        HASH_DEL(r->waiting, c);
        b->change[b->n++] = c;
    }
    take_jobs(b);
    r->under_way++;
    writer_put(r->jobs->d->writer, CHANGE_KEEP, batch_write, batch_then, b);
}

void task_rows_soon(struct task_rows *r)
{
    if (r->waiting && (r->under_way == 0 || HASH_COUNT(r->waiting) >= MOST))
        task_rows_now(r);
}

/* Copies a string to *at, which moves on; NULL stays NULL. */
static const char *keep(char **at, const char *text)
{
    char *copy = *at;

    if (text == NULL)
        return NULL;
    *at = stpcpy(copy, text) + 1;
    return copy;
}

static size_t size_of(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

static void rows_put(struct job *j, const struct row_task *row, uint32_t attempt, struct record *rec)
{
    struct task_rows *r = j->jobs->rows;
    size_t size = size_of(row->node) + size_of(row->device) + size_of(row->code) + size_of(row->text) + size_of(row->digest) + size_of(row->stem) +
                  size_of(row->deaths) + size_of(row->log);
    struct task_change *c = mem_zalloc(sizeof(*c) + size), *before;
    char *at = c->text;

    c->key = (struct task_key){ row->job, row->number, attempt };
    c->job = j;
    c->rec = rec;
    c->row = *row;                               /* state is one of the program's own words */
    c->row.node = keep(&at, row->node);
    c->row.device = keep(&at, row->device);
    c->row.code = keep(&at, row->code);
    c->row.text = keep(&at, row->text);
    c->row.digest = keep(&at, row->digest);
    c->row.stem = keep(&at, row->stem);
    c->row.deaths = keep(&at, row->deaths);
    c->row.log = keep(&at, row->log);
    j->changes++;
    j->row_due = true;
    HASH_FIND(hh, r->waiting, &c->key, sizeof(c->key), before);
    if (before && before->rec == NULL) {         /* the later one says all that it said */
        HASH_DEL(r->waiting, before);
        change_end(before, NULL);
    } else if (before) {
        task_rows_now(r);
    }
    HASH_ADD(hh, r->waiting, key, sizeof(c->key), c);
}

void task_rows_put(struct job *j, const struct row_task *row, struct record *rec)
{
    rows_put(j, row, 0, rec);
}

void task_rows_put_try(struct job *j, const struct row_task *row)
{
    rows_put(j, row, row->attempt, NULL);
}

struct task_rows *task_rows_create(struct jobs *jobs)
{
    struct task_rows *r = mem_zalloc(sizeof(*r));

    r->jobs = jobs;
    return r;
}

void task_rows_destroy(struct task_rows *r)
{
    struct task_change *c, *next;

    if (r == NULL)
        return;
    HASH_ITER(hh, r->waiting, c, next) {         /* as after a crash: the start finds it as it was before */
        HASH_DEL(r->waiting, c);
        free(c);
    }
    free(r);
}
