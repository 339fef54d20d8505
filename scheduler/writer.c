/* writer.c - the thread that commits
 *
 * From: writer_put in the loop.  To: db.c in the thread, then `then` in the loop.
 * A change belongs to exactly one place at any moment: the queue, the batch under way, or the finished list; the lock guards
 * the lists and the figures and is never held across anything that touches the disk. Nothing reaches `then` with 0 before its commit returned.
 *
 * Two troubles, independent of each other:
 *   full    nothing can be stored. NEW is refused, MARK is tried with the reserve, alone where several do not fit, KEEP waits; a retry comes with back-off, and
 *           only after the reserve could be made anew, so that marks always have theirs.
 *           When the reason is a damaged file, nothing is written to it, marks neither, until the whole of it was read and found good again.
 *   locked  another process has the lock. All wait; beyond the limit NEW and MARK are refused and KEEP still waits.
 */
#include "config.h"
#include "writer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

#include "clock.h"
#include "log.h"
#include "mem.h"

enum { BATCH = 1024 };

static const int64_t RETRY_FIRST = CLOCK_SECOND / 4, RETRY_LAST = 4 * CLOCK_SECOND, TIDY_EVERY = CLOCK_SECOND;
static const uint64_t TIDY_ABOVE = 6u << 20;
static const double LOCK_LIMIT_S = 35;
static const int64_t PRUNE_EVERY = 60 * CLOCK_SECOND;

struct change {
    TAILQ_ENTRY(change) entry;
    enum change_kind kind;
    int  (*write)(struct db *db, void *arg, struct err *e);
    void (*then)(void *arg, int rc, const struct err *e);
    void *arg;
    int   rc;
    struct err *why;                      /* when refused */
};

TAILQ_HEAD(changes, change);

enum outcome { COMMITTED, FULL, LOCKED };

struct writer {
    struct ev_loop *loop;
    ev_async        ended;                /* something is in finished */
    struct db      *db;                   /* the thread's own */
    pthread_t       thread;
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    /* under the lock */
    struct changes  queue, batch, finished;
    uint64_t        waiting[3];           /* by kind: put, and not yet finished */
    bool            stop;
    int64_t         stop_by;
    bool            full, damaged;
    bool            singly;               /* marks did not fit together: each has a transaction of its own */
    int64_t         full_since, retry_at, retry_pause;
    int64_t         locked_since, locked_limit;
    uint64_t        prune_rows;
    int64_t         prune_at;
    int64_t         attempt_since;        /* a transaction is under way */
    bool            locked_beyond;
    struct writer_state state;            /* figures and `why` */
};

/* ---- lists ---- */

/* Under the lock. */
static void finish(struct writer *w, struct change *c, const struct err *why)
{
    struct err *before = c->why;             /* may be why itself */
    c->rc = why ? -1 : 0;
    c->why = NULL;
    if (why) {
        c->why = mem_zalloc(sizeof *c->why);
        *c->why = *why;
        w->state.refused++;
    } else {
        w->state.changes++;
    }
    free(before);
    w->waiting[c->kind]--;
    TAILQ_INSERT_TAIL(&w->finished, c, entry);
}

/* Moves up to `most` changes of the wanted kinds (bits) from the queue, in order. */
static size_t take(struct writer *w, unsigned kinds, size_t most)
{
    size_t n = 0;
    for (struct change *c = TAILQ_FIRST(&w->queue), *next; c && n < most; c = next) {
        next = TAILQ_NEXT(c, entry);
        if ((kinds >> c->kind & 1) == 0)
            continue;
        TAILQ_REMOVE(&w->queue, c, entry);
        TAILQ_INSERT_TAIL(&w->batch, c, entry);
        n++;
    }
    return n;
}

static void put_back(struct writer *w)
{
    struct change *c;
    while ((c = TAILQ_LAST(&w->batch, changes)) != NULL) {
        TAILQ_REMOVE(&w->batch, c, entry);
        TAILQ_INSERT_HEAD(&w->queue, c, entry);
    }
}

static void refuse_kinds(struct writer *w, struct changes *list, unsigned kinds, const struct err *why)
{
    for (struct change *c = TAILQ_FIRST(list), *next; c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if ((kinds >> c->kind & 1) == 0)
            continue;
        TAILQ_REMOVE(list, c, entry);
        finish(w, c, why);
    }
    ev_async_send(w->loop, &w->ended);
}

enum { MARKS = 1 << CHANGE_MARK, NEWS = 1 << CHANGE_NEW, KEEPS = 1 << CHANGE_KEEP, ALL = MARKS | NEWS | KEEPS };

/* ---- one transaction ---- */

static bool fault_is_wide(const struct db *db)
{
    return db_full(db) || db_locked(db);
}

/* 0: written or refused by itself. -1: the whole transaction is in trouble. */
static int write_one(struct db *db, struct change *c, struct err *e)
{
    free(c->why);
    c->why = NULL;
    if (db_save(db, e) < 0)
        return -1;
    struct err own = { ERR_FAILED, "refused" };
    c->rc = c->write(db, c->arg, &own);
    if (c->rc == 0)
        return db_release(db, true, e);
    if (fault_is_wide(db)) {
        *e = own;
        return -1;
    }
    c->why = mem_zalloc(sizeof *c->why);
    *c->why = own;
    return db_release(db, false, e);
}

static int write_all(struct writer *w, struct err *e)
{
    if (TAILQ_EMPTY(&w->batch))
        return db_probe(w->db, e);
    if (db_begin(w->db, e) < 0)
        return -1;
    struct change *c;
    TAILQ_FOREACH(c, &w->batch, entry) {
        if (write_one(w->db, c, e) < 0) {
            db_rollback(w->db);
            return -1;
        }
    }
    return db_commit(w->db, e);
}

/* Without the lock: the batch is the thread's while it is under way. */
static enum outcome commit(struct writer *w, struct err *e)
{
    if (write_all(w, e) == 0)
        return COMMITTED;
    return db_locked(w->db) ? LOCKED : FULL;
}

/* ---- what follows, under the lock ---- */

static void became_well(struct writer *w)
{
    if (w->full || w->locked_beyond)
        log_info("state: can be written again");
    w->full = w->damaged = w->locked_beyond = w->singly = false;
    w->locked_since = w->full_since = w->retry_at = w->retry_pause = 0;
    w->state.why[0] = '\0';
}

static void batch_done(struct writer *w, double seconds)
{
    struct change *c;
    while ((c = TAILQ_FIRST(&w->batch)) != NULL) {
        TAILQ_REMOVE(&w->batch, c, entry);
        finish(w, c, c->why);
    }
    w->state.commits++;
    w->state.last_commit_s = seconds;
    if (seconds > w->state.slowest_commit_s)
        w->state.slowest_commit_s = seconds;
    ev_async_send(w->loop, &w->ended);
}

static void became_full(struct writer *w, const struct err *e)
{
    if (!w->full) {
        log_err("state: not writable: %s", e->text);
        w->full_since = clock_mono_ns();
    }
    w->full = true;
    w->retry_pause = w->retry_pause ? w->retry_pause * 2 : RETRY_FIRST;
    if (w->retry_pause > RETRY_LAST)
        w->retry_pause = RETRY_LAST;
    w->retry_at = clock_mono_ns() + w->retry_pause;
    snprintf(w->state.why, sizeof w->state.why, "%.511s", e->text);
    refuse_kinds(w, &w->queue, NEWS, e);
}

static void still_locked(struct writer *w, const struct err *e)
{
    int64_t now = clock_mono_ns();
    if (now - w->locked_since < w->locked_limit)
        return;
    if (!w->locked_beyond)
        log_err("state: not writable: %s, for %.0f s", e->text, (double)(now - w->locked_since) / 1e9);
    w->locked_beyond = true;
    snprintf(w->state.why, sizeof w->state.why, "%.511s", e->text);
    refuse_kinds(w, &w->queue, MARKS | NEWS, e);
}

/* ---- the thread ---- */

static void sleep_until(struct writer *w, int64_t mono_ns)
{
    struct timespec at = { mono_ns / CLOCK_SECOND, mono_ns % CLOCK_SECOND };
    pthread_cond_timedwait(&w->wake, &w->lock, &at);
}

/* Runs the batch with the lock let go. */
static enum outcome attempt(struct writer *w, bool reserve_first, struct err *e)
{
    int64_t start = clock_mono_ns();
    w->attempt_since = start;
    pthread_mutex_unlock(&w->lock);
    if (reserve_first)
        db_use_reserve(w->db);
    enum outcome o = commit(w, e);
    double seconds = (double)(clock_mono_ns() - start) / 1e9;
    uint64_t log_bytes = db_log_bytes(w->db);
    pthread_mutex_lock(&w->lock);
    w->attempt_since = 0;
    w->state.log_bytes = log_bytes;
    w->damaged = w->damaged || (o == FULL && db_broken(w->db));
    if (reserve_first)
        w->state.reserve = false;
    if (o == COMMITTED) {
        w->locked_since = 0;
        batch_done(w, seconds);
    }
    if (o == LOCKED && w->locked_since == 0) {
        w->locked_since = start;
        log_warning("state: %s; waiting", e->text);
    }
    return o;
}

static void turn_normal(struct writer *w)
{
    struct err e = { 0 };
    take(w, ALL, BATCH);
    enum outcome o = attempt(w, false, &e);
    if (o == COMMITTED) {
        became_well(w);
        return;
    }
    put_back(w);
    if (o == FULL) {
        became_full(w, &e);
    } else {
        still_locked(w, &e);
        sleep_until(w, clock_mono_ns() + CLOCK_SECOND / 50);
    }
}

static void turn_marks(struct writer *w)
{
    struct err e = { 0 };
    if (w->damaged) {
        err_set(&e, ERR_STATE, "%s", w->state.why);
        refuse_kinds(w, &w->batch, ALL, &e);
        return;
    }
    enum outcome o = attempt(w, true, &e);
    if (o == COMMITTED)
        return;
    if (o == FULL && w->singly) {
        refuse_kinds(w, &w->batch, ALL, &e);
        return;
    }
    put_back(w);
    if (o == FULL)
        w->singly = true;
    else
        still_locked(w, &e);
}

static void turn_retry(struct writer *w)
{
    struct err e = { 0 };
    bool damaged = w->damaged;
    pthread_mutex_unlock(&w->lock);
    bool room = db_reserve(w->db) == 0, sound = !damaged || db_sound(w->db);
    pthread_mutex_lock(&w->lock);
    w->state.reserve = room;
    if (!room || !sound) {
        err_set(&e, ERR_STATE, "%s", w->state.why);
        became_full(w, &e);
        return;
    }
    take(w, KEEPS, BATCH);
    enum outcome o = attempt(w, false, &e);
    if (o == COMMITTED) {
        became_well(w);
        return;
    }
    put_back(w);
    if (o == FULL)
        became_full(w, &e);
    else
        still_locked(w, &e);
}

/* A mark waits for nothing; everything else for its time. */
static void turn_full(struct writer *w)
{
    if (take(w, MARKS, w->singly ? 1 : BATCH) > 0) {
        turn_marks(w);
        return;
    }
    int64_t now = clock_mono_ns();
    if (now >= w->retry_at)
        turn_retry(w);
    else
        sleep_until(w, w->stop && w->retry_at > now + RETRY_FIRST ? now + RETRY_FIRST : w->retry_at);
}

static int prune(struct db *db, uint64_t rows)
{
    struct err e = { 0 };
    if (db_begin(db, &e) < 0)
        return 0;
    int gone = db_prune(db, rows, &e);
    if (gone <= 0) {
        db_rollback(db);
        if (gone < 0)
            log_warning("state: pruning: %s", e.text);
        return 0;
    }
    return db_commit(db, &e) == 0 ? gone : 0;
}

/* In short transactions, so that a change never waits long behind one; more at once only while there is more. */
static void turn_prune(struct writer *w)
{
    uint64_t rows = w->prune_rows;
    pthread_mutex_unlock(&w->lock);
    int gone = prune(w->db, rows);
    pthread_mutex_lock(&w->lock);
    w->prune_at = clock_mono_ns() + (gone > 0 ? 0 : PRUNE_EVERY);
}

static bool is_time_to_prune(const struct writer *w)
{
    return w->prune_rows > 0 && !w->full && w->locked_since == 0 && !w->stop && w->state.commits > 0 && clock_mono_ns() >= w->prune_at;
}

/* Nothing to do: a log that a reader let grow is brought home, at most once a second. */
static void turn_idle(struct writer *w)
{
    if (is_time_to_prune(w))
        return;
    if (w->state.log_bytes <= TIDY_ABOVE) {
        pthread_cond_wait(&w->wake, &w->lock);
        return;
    }
    int64_t next = clock_mono_ns() + TIDY_EVERY;
    pthread_mutex_unlock(&w->lock);
    db_tidy(w->db);
    uint64_t log_bytes = db_log_bytes(w->db);
    pthread_mutex_lock(&w->lock);
    w->state.log_bytes = log_bytes;
    while (!w->stop && TAILQ_EMPTY(&w->queue) && clock_mono_ns() < next)
        sleep_until(w, next);
}

static bool is_over(const struct writer *w)
{
    return w->stop && (TAILQ_EMPTY(&w->queue) || clock_mono_ns() >= w->stop_by);
}

static void *thread_main(void *arg)
{
    struct writer *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!is_over(w)) {
        if (w->full)
            turn_full(w);
        else if (TAILQ_EMPTY(&w->queue))
            turn_idle(w);
        else
            turn_normal(w);
        if (is_time_to_prune(w))
            turn_prune(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the loop's side ---- */

static void deliver(struct writer *w)
{
    struct changes done = TAILQ_HEAD_INITIALIZER(done);
    pthread_mutex_lock(&w->lock);
    TAILQ_CONCAT(&done, &w->finished, entry);
    pthread_mutex_unlock(&w->lock);
    struct change *c;
    while ((c = TAILQ_FIRST(&done)) != NULL) {
        TAILQ_REMOVE(&done, c, entry);
        if (c->then)
            c->then(c->arg, c->rc, c->why);
        free(c->why);
        free(c);
    }
}

static void on_ended(struct ev_loop *loop, ev_async *a, int revents)
{
    (void)loop;
    (void)revents;
    deliver(a->data);
}

struct writer *writer_create(struct ev_loop *loop, struct db *db, struct err *e)
{
    struct writer *w = mem_zalloc(sizeof *w);
    pthread_condattr_t monotonic;
    w->loop = loop;
    w->db = db;
    w->locked_limit = (int64_t)(LOCK_LIMIT_S * 1e9);
    w->state.reserve = db_reserve(db) == 0;
    TAILQ_INIT(&w->queue);
    TAILQ_INIT(&w->batch);
    TAILQ_INIT(&w->finished);
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ev_async_init(&w->ended, on_ended);
    w->ended.data = w;
    ev_async_start(loop, &w->ended);
    int rc = pthread_create(&w->thread, NULL, thread_main, w);
    if (rc == 0)
        return w;
    ev_async_stop(loop, &w->ended);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    db_close(db);
    free(w);
    return err_null(e, ERR_FAILED, "cannot start the writer's thread: %s", strerror(rc));
}

static bool join_within(struct writer *w, double limit_s)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    int64_t ns = at.tv_nsec + (int64_t)(limit_s * 1e9);
    at.tv_sec += ns / CLOCK_SECOND;
    at.tv_nsec = ns % CLOCK_SECOND;
    return pthread_timedjoin_np(w->thread, NULL, &at) == 0;
}

unsigned writer_destroy(struct writer *w, double limit_s)
{
    if (w == NULL)
        return 0;
    int64_t stop_by = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    db_wait_until(w->db, stop_by);
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    w->stop_by = stop_by;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    bool joined = join_within(w, limit_s + 0.5);

    pthread_mutex_lock(&w->lock);
    unsigned lost = (unsigned)(w->waiting[0] + w->waiting[1] + w->waiting[2]);
    struct err why;
    err_set(&why, ERR_STATE, "%s", w->state.why[0] ? w->state.why : "sluiced stops and the state could not be written in time");
    refuse_kinds(w, &w->queue, ALL, &why);
    pthread_mutex_unlock(&w->lock);
    ev_async_stop(w->loop, &w->ended);
    deliver(w);
    if (!joined) {                        /* a disk that hangs has the thread and what it works on; the process ends without them */
        log_err("state: the disk does not answer; %u changes could not be written", lost);
        return lost;
    }
    db_close(w->db);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return lost;
}

void writer_put(struct writer *w, enum change_kind kind, int (*write)(struct db *db, void *arg, struct err *e),
                void (*then)(void *arg, int rc, const struct err *e), void *arg)
{
    struct change *c = mem_zalloc(sizeof *c);
    *c = (struct change){ .kind = kind, .write = write, .then = then, .arg = arg };
    pthread_mutex_lock(&w->lock);
    w->waiting[kind]++;
    if (kind == CHANGE_NEW && (w->full || w->locked_beyond)) {
        struct err why;
        err_set(&why, ERR_STATE, "%s", w->state.why);
        finish(w, c, &why);
        ev_async_send(w->loop, &w->ended);
    } else {
        TAILQ_INSERT_TAIL(&w->queue, c, entry);
        pthread_cond_signal(&w->wake);
    }
    pthread_mutex_unlock(&w->lock);
}

void writer_set_limits(struct writer *w, double lock_s, uint64_t run_tfs)
{
    pthread_mutex_lock(&w->lock);
    w->locked_limit = (int64_t)(lock_s * 1e9);
    w->prune_rows = run_tfs;
    w->prune_at = clock_mono_ns();
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void writer_state(const struct writer *cw, struct writer_state *out)
{
    struct writer *w = (struct writer *)cw;      /* the lock is not part of what is asked for */
    int64_t now = clock_mono_ns();
    pthread_mutex_lock(&w->lock);
    *out = w->state;
    out->broken = w->damaged;
    out->writable = !w->full && !w->locked_beyond;
    int64_t since = w->full ? w->full_since : w->locked_since ? w->locked_since : w->attempt_since;
    out->waiting_s = since ? (double)(now - since) / 1e9 : 0;
    out->since_s = out->writable ? 0 : out->waiting_s;
    out->kept = w->waiting[CHANGE_KEEP];
    out->queued = w->waiting[CHANGE_MARK] + w->waiting[CHANGE_NEW] + w->waiting[CHANGE_KEEP];
    pthread_mutex_unlock(&w->lock);
}

bool writer_accepts_new(const struct writer *w)
{
    struct writer_state s;
    writer_state(w, &s);
    return s.writable;
}
