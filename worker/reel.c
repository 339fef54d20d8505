/* reel.c - the time-frames of a list of files, read ahead
 *
 * From: tf_file.c (finds, checks, cuts).  To: replay.c (takes the next one, gives it back).
 * A slot is one TF of one file. It is pinned (`refs`) by each position between head and fill that plays it, and by each
 * TF taken and not given back; a slot without a pin stays in memory until its room is needed, the one that is played
 * again last goes first. Slots belong to the owner's thread; a reader has one from the queue of jobs until it put it into
 * the queue of done ones.
 */
#include "config.h"

#include "reel.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include <xxhash.h>

#include "clock.h"
#include "mem.h"
#include "page.h"

enum { READ_STEP = 8 << 20 };        /* bytes a read, so that a stop is heard */

enum slot_state { SLOT_COLD, SLOT_READING, SLOT_HOT, SLOT_BAD };

struct slot {
    struct reel_tf tf;
    const char    *path;
    uint64_t       offset;           /* in the file */
    size_t         file;             /* index of its path */
    enum slot_state state;
    unsigned       refs;
    struct range   range;            /* of the arena: reading or hot */
    int            failed;           /* of the last read: ERR_NONE, ERR_STATE a bad file, ERR_FAILED anything else */
    struct tf_err  why;
    STAILQ_ENTRY(slot) in_queue;
};
STAILQ_HEAD(slot_queue, slot);

/* What the scan found in one file. */
struct scanned {
    struct slot   *slots;
    size_t         n, cap;
    bool           bad, short_of;                /* short_of: of descriptors; the file may be good */
    enum err_code  code;                         /* when it is bad */
    struct tf_err  why;
};

struct reel {
    struct reel_conf conf;
    struct slot    **slots;          /* of one pass, in order */
    size_t           n_slots;
    struct scanned  *files;
    atomic_size_t    next_file;      /* to be scanned */
    struct reel_bad *bad;
    size_t           n_bad;
    uint64_t         largest, bad_bytes;

    struct arena    *arena;
    uint64_t         head, fill, total;          /* positions: [head, fill) are pinned */
    size_t           n_playable;                 /* slots that are not bad: without one the end is here */
    bool             no_room;

    pthread_t       *threads;
    unsigned         n_threads, n_alive;
    pthread_mutex_t  lock;           /* the two queues, n_alive */
    pthread_cond_t   more, ended;    /* a job; a reader that came to its end */
    struct slot_queue jobs, done;
    atomic_bool      stop;
    _Atomic uint64_t read_bytes;
};

struct reel *reel_create(const struct reel_conf *conf)
{
    struct reel *r = mem_zalloc(sizeof *r);

    r->conf = *conf;
    r->files = mem_array(conf->n_paths > 0 ? conf->n_paths : 1, sizeof *r->files);
    r->threads = mem_array(conf->threads, sizeof *r->threads);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->more, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&r->ended, &monotonic);
    pthread_condattr_destroy(&monotonic);
    STAILQ_INIT(&r->jobs);
    STAILQ_INIT(&r->done);
    return r;
}

void reel_destroy(struct reel *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n_slots; i++) {
        free(r->slots[i]->tf.parts);
        free(r->slots[i]->tf.xxh3);
    }
    for (size_t i = 0; i < r->conf.n_paths; i++)
        free(r->files[i].slots);
    for (size_t i = 0; i < r->n_bad; i++)
        free(r->bad[i].text);
    free(r->bad);
    free(r->slots);
    free(r->files);
    free(r->threads);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->more);
    pthread_cond_destroy(&r->ended);
    free(r);
}

/* ---- the scan ----------------------------------------------------------------------------- */

static void scanned_add(struct scanned *s, const struct tf_info *info, const char *path, size_t file)
{
    if (s->n == s->cap) {
        s->cap = s->cap > 0 ? 2 * s->cap : 4;
        s->slots = mem_grow(s->slots, s->cap, sizeof *s->slots);
    }
    s->slots[s->n++] = (struct slot){
        .path = path, .file = file, .offset = info->offset,
        .tf = { .size = info->size, .first_orbit = info->first_orbit },
    };
}

/* NULL, with *short_of set: for want of descriptors, which is no fault of the file. */
static struct tf_file *open_file(const char *path, bool *short_of, struct tf_err *e)
{
    errno = 0;
    struct tf_file *f = tf_file_open(path, e);
    *short_of = f == NULL && (errno == EMFILE || errno == ENFILE);
    return f;
}

static void file_scan(struct reel *r, size_t i)
{
    struct scanned *s = &r->files[i];
    const char *path = r->conf.paths[i];
    struct tf_info info;
    int found;

    struct tf_file *f = open_file(path, &s->short_of, &s->why);
    if (f == NULL) {
        s->code = err_of_errno(errno);           /* 0 where the file is there, but of the wrong kind */
        s->bad = !s->short_of;
        return;
    }
    while ((found = tf_file_next(f, &info, &s->why)) == 1)
        scanned_add(s, &info, path, i);
    s->bad = found < 0;
    s->code = ERR_FAILED;
    tf_file_close(f);
}

static void *scanner(void *arg)
{
    struct reel *r = arg;
    size_t i;

    while ((i = atomic_fetch_add(&r->next_file, 1)) < r->conf.n_paths)
        file_scan(r, i);
    return NULL;
}

static void add_bad(struct reel *r, const struct slot *s, const char *path, const struct tf_err *why,
                    uint64_t tfs, enum err_code code)
{
    size_t prefix = strlen(path);
    const char *text = why->text;

    /* One sentence a file: a reading that fails in every TF of it says no more than the first. */
    for (size_t i = 0; s != NULL && i < r->n_bad; i++) {
        if (r->bad[i].path == path)
            return;
    }
    if (strncmp(text, path, prefix) == 0 && strncmp(text + prefix, ": ", 2) == 0)
        text += prefix + 2;
    r->bad = mem_grow(r->bad, r->n_bad + 1, sizeof *r->bad);
    r->bad[r->n_bad++] = (struct reel_bad){
        .path = path, .offset = why->offset, .text = mem_strdup(text), .tfs = tfs, .code = code,
    };
}

static int scan_collect(struct reel *r, struct err *e)
{
    for (size_t i = 0; i < r->conf.n_paths; i++) {
        struct scanned *s = &r->files[i];
        if (s->short_of)
            return err_set(e, ERR_FAILED, "%s", s->why.text);
        r->slots = mem_grow(r->slots, r->n_slots + s->n + 1, sizeof *r->slots);
        for (size_t k = 0; k < s->n; k++) {
            uint64_t size = s->slots[k].tf.size;
            r->slots[r->n_slots++] = &s->slots[k];
            r->largest = size > r->largest ? size : r->largest;
        }
        if (s->bad)
            add_bad(r, NULL, r->conf.paths[i], &s->why, s->n, s->code);
    }
    return 0;
}

int reel_scan(struct reel *r, struct err *e)
{
    unsigned n = 0;

    while (n + 1 < r->conf.threads && n + 1 < r->conf.n_paths &&
           pthread_create(&r->threads[n], NULL, scanner, r) == 0)
        n++;
    scanner(r);                      /* this one helps; alone it does all */
    while (n > 0)
        pthread_join(r->threads[--n], NULL);
    if (scan_collect(r, e) < 0)
        return -1;
    r->n_playable = r->n_slots;
    r->total = r->n_slots > UINT64_MAX / r->conf.loops ? UINT64_MAX : r->n_slots * r->conf.loops;
    return 0;
}

size_t reel_tfs(const struct reel *r)
{
    return r->n_slots;
}

uint64_t reel_largest(const struct reel *r)
{
    return r->largest;
}

size_t reel_bad_count(const struct reel *r)
{
    return r->n_bad;
}

const struct reel_bad *reel_bad(const struct reel *r, size_t i)
{
    return &r->bad[i];
}

static uint64_t aligned(uint64_t size)
{
    return (size + 63) / 64 * 64;    /* as range.c cuts */
}

int reel_arena_size(const struct reel *r, uint64_t ahead, uint64_t limit, uint64_t *size, struct err *e)
{
    uint64_t all = 0, best;

    for (size_t i = 0; i < r->n_slots; i++)
        all += aligned(r->slots[i]->tf.size);
    if (limit < r->largest) {
        const struct slot *s = r->slots[0];
        for (size_t i = 0; i < r->n_slots; i++)
            s = r->slots[i]->tf.size == r->largest ? r->slots[i] : s;
        return err_set(e, ERR_STATE, "memory: %" PRIu64 " bytes are allowed, the time-frame at byte %" PRIu64
                       " of %s needs %" PRIu64, limit, s->offset, s->path, s->tf.size);
    }
    best = ahead > all / aligned(r->largest) ? all : ahead * aligned(r->largest);
    if (r->conf.loops > 1)
        best = all;
    *size = best < limit ? best : limit;
    return 0;
}

/* ---- the readers' side -------------------------------------------------------------------- */

/* ERR_NONE, ERR_STATE: the file is bad, ERR_FAILED: it could not be read for another reason. */
static int slot_read(struct reel *r, struct slot *s, uint8_t *to, struct tf_err *e)
{
    bool short_of;
    struct tf_file *f = open_file(s->path, &short_of, e);
    int failed = f == NULL ? -1 : 0;

    for (uint64_t at = 0; failed == 0 && at < s->tf.size && !atomic_load(&r->stop); at += READ_STEP) {
        uint64_t n = s->tf.size - at < READ_STEP ? s->tf.size - at : READ_STEP;
        failed = tf_file_read(f, s->offset + at, to + at, n, e);
        atomic_fetch_add(&r->read_bytes, failed == 0 ? n : 0);
    }
    tf_file_close(f);
    return failed == 0 ? ERR_NONE : short_of ? ERR_FAILED : ERR_STATE;
}

static int pages_check(const struct tf_seg *all, struct tf_err *e)
{
    struct tf_iter it;
    struct tf_block b;

    tf_iter_init(&it, all, 1);
    while (tf_iter_next(&it, &b, e) == 1) {
        if (page_has(&b) && page_check(&b, e) < 0)
            return -1;
    }
    return 0;
}

/* What the scan saw in the file must be what is in memory now. */
static int slot_check(const struct reel *r, struct slot *s, const uint8_t *data, struct tf_err *e)
{
    struct tf_seg all = { data, s->tf.size };
    struct tf_info info;
    bool complete = false;
    int failed = tf_check(&all, 1, &info, &complete, e);

    if (failed == 0 && (!complete || info.first_orbit != s->tf.first_orbit)) {
        snprintf(e->text, sizeof e->text, "the file changed while it was played");
        e->offset = 0;
        failed = -1;
    }
    if (failed == 0 && r->conf.verify)
        failed = pages_check(&all, e);
    if (failed == 0)
        failed = tf_split(data, s->tf.size, r->conf.sources, s->tf.parts, e);
    if (failed < 0)
        e->offset += s->offset;      /* of the file, not of the TF */
    return failed;
}

static void slot_load(struct reel *r, struct slot *s)
{
    uint8_t *data = arena_at(r->arena, s->range.offset);
    struct err e;

    s->failed = ERR_NONE;
    if (arena_fault(r->arena, &s->range, &e) < 0) {
        snprintf(s->why.text, sizeof s->why.text, "%.250s", e.text);
        s->failed = ERR_FAILED;
    } else {
        s->failed = slot_read(r, s, data, &s->why);
    }
    if (s->failed == ERR_NONE && !atomic_load(&r->stop) && slot_check(r, s, data, &s->why) < 0)
        s->failed = ERR_STATE;
    for (unsigned i = 0; s->failed == ERR_NONE && i < s->tf.n && !atomic_load(&r->stop); i++)
        s->tf.xxh3[i] = XXH3_64bits(s->tf.parts[i].data, s->tf.parts[i].size);
}

static void *reader(void *arg)
{
    struct reel *r = arg;

    pthread_mutex_lock(&r->lock);
    while (!atomic_load(&r->stop)) {
        struct slot *s = STAILQ_FIRST(&r->jobs);
        if (s == NULL) {
            pthread_cond_wait(&r->more, &r->lock);
            continue;
        }
        STAILQ_REMOVE_HEAD(&r->jobs, in_queue);
        pthread_mutex_unlock(&r->lock);
        slot_load(r, s);
        pthread_mutex_lock(&r->lock);
        STAILQ_INSERT_TAIL(&r->done, s, in_queue);
        if (r->conf.notify != NULL)
            r->conf.notify(r->conf.arg);
    }
    r->n_alive--;
    pthread_cond_signal(&r->ended);
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

int reel_start(struct reel *r, struct arena *a, struct err *e)
{
    r->arena = a;
    while (r->n_threads < r->conf.threads) {
        pthread_mutex_lock(&r->lock);
        int error = pthread_create(&r->threads[r->n_threads], NULL, reader, r);
        r->n_alive += error == 0;
        pthread_mutex_unlock(&r->lock);
        if (error != 0) {
            errno = error;
            return err_errno(e, ERR_FAILED, "reader thread %u of %u", r->n_threads + 1, r->conf.threads);
        }
        r->n_threads++;
    }
    return 0;
}

int reel_stop(struct reel *r, int64_t limit_ns)
{
    int64_t at = clock_mono_ns() + limit_ns;
    const struct timespec until = { .tv_sec = at / CLOCK_SECOND, .tv_nsec = at % CLOCK_SECOND };
    int late = 0;

    pthread_mutex_lock(&r->lock);
    atomic_store(&r->stop, true);
    pthread_cond_broadcast(&r->more);
    while (r->n_alive > 0 && late == 0)
        late = pthread_cond_timedwait(&r->ended, &r->lock, &until);
    bool all = r->n_alive == 0;
    pthread_mutex_unlock(&r->lock);
    if (!all)
        return -1;
    while (r->n_threads > 0)
        pthread_join(r->threads[--r->n_threads], NULL);
    return 0;
}

/* ---- the owner's side --------------------------------------------------------------------- */

static struct slot *slot_of(const struct reel *r, uint64_t position)
{
    return r->slots[position % r->n_slots];
}

/* The first position from fill on that plays slot i; UINT64_MAX: none. */
static uint64_t next_use(const struct reel *r, size_t i)
{
    uint64_t at = r->fill + (i + r->n_slots - r->fill % r->n_slots) % r->n_slots;

    return at < r->total ? at : UINT64_MAX;
}

static void slot_cool(struct reel *r, struct slot *s, enum slot_state state)
{
    arena_give(r->arena, &s->range);
    free(s->tf.parts);
    free(s->tf.xxh3);
    s->tf.parts = NULL;
    s->tf.xxh3 = NULL;
    s->state = state;
}

/* Makes the room of the slot that is played again last. -1: every slot in memory is in use. */
static int evict(struct reel *r)
{
    struct slot *victim = NULL;
    uint64_t latest = 0;

    for (size_t i = 0; i < r->n_slots; i++) {
        struct slot *s = r->slots[i];
        if (s->state == SLOT_HOT && s->refs == 0 && next_use(r, i) >= latest) {
            victim = s;
            latest = next_use(r, i);
        }
    }
    if (victim == NULL)
        return -1;
    slot_cool(r, victim, SLOT_COLD);
    return 0;
}

static int slot_begin(struct reel *r, struct slot *s)
{
    while (arena_take(r->arena, s->tf.size, &s->range) < 0) {
        if (evict(r) < 0)
            return -1;
    }
    s->tf.n = r->conf.sources;
    s->tf.parts = mem_array(s->tf.n, sizeof *s->tf.parts);
    s->tf.xxh3 = mem_array(s->tf.n, sizeof *s->tf.xxh3);
    s->state = SLOT_READING;
    pthread_mutex_lock(&r->lock);
    STAILQ_INSERT_TAIL(&r->jobs, s, in_queue);
    pthread_cond_signal(&r->more);
    pthread_mutex_unlock(&r->lock);
    return 0;
}

static int slot_end(struct reel *r, struct slot *s, struct err *e)
{
    if (s->failed == ERR_NONE) {
        s->state = SLOT_HOT;
        return 0;
    }
    slot_cool(r, s, SLOT_BAD);
    s->refs = 0;                     /* its positions are passed over */
    if (s->failed != ERR_STATE)
        return err_set(e, ERR_FAILED, "%s", s->why.text);
    if (--r->n_playable == 0)
        r->head = r->fill = r->total;
    r->bad_bytes += s->tf.size;
    add_bad(r, s, s->path, &s->why, 0, ERR_FAILED);
    return 0;
}

static int collect(struct reel *r, struct err *e)
{
    struct slot_queue done = STAILQ_HEAD_INITIALIZER(done);
    struct slot *s;
    int failed = 0;

    pthread_mutex_lock(&r->lock);
    STAILQ_CONCAT(&done, &r->done);
    pthread_mutex_unlock(&r->lock);
    while ((s = STAILQ_FIRST(&done)) != NULL) {
        STAILQ_REMOVE_HEAD(&done, in_queue);
        if (slot_end(r, s, failed < 0 ? NULL : e) < 0)
            failed = -1;
    }
    return failed;
}

static void pass_bad(struct reel *r)
{
    while (r->head < r->fill && slot_of(r, r->head)->state == SLOT_BAD)
        r->head++;
}

int reel_fill(struct reel *r, struct err *e)
{
    if (collect(r, e) < 0)
        return -1;
    pass_bad(r);
    r->no_room = false;
    while (r->fill < r->total && r->fill - r->head < r->conf.preread) {
        struct slot *s = slot_of(r, r->fill);
        if (s->state == SLOT_COLD && slot_begin(r, s) < 0) {
            r->no_room = true;
            break;
        }
        if (s->state != SLOT_BAD)
            s->refs++;
        r->fill++;
        pass_bad(r);
    }
    return 0;
}

enum reel_head reel_head(const struct reel *r)
{
    if (r->head == r->total)
        return REEL_END;
    if (r->head == r->fill)
        return r->no_room ? REEL_NO_ROOM : REEL_READING;
    return slot_of(r, r->head)->state == SLOT_HOT ? REEL_READY : REEL_READING;
}

bool reel_full(const struct reel *r)
{
    for (uint64_t p = r->head; p < r->fill; p++) {
        if (slot_of(r, p)->state == SLOT_READING)
            return false;
    }
    return r->fill == r->total || r->no_room || r->fill - r->head >= r->conf.preread;
}

const struct reel_tf *reel_take(struct reel *r)
{
    struct slot *s = slot_of(r, r->head);

    r->head++;                       /* its pin is the taker's now */
    pass_bad(r);
    return &s->tf;
}

void reel_give(struct reel *r, const struct reel_tf *tf)
{
    struct slot *s = CONTAINER_OF(tf, struct slot, tf);

    if (s->refs == 0)
        abort();                     /* given twice */
    s->refs--;
    (void)r;
}

uint64_t reel_read_bytes(const struct reel *r)
{
    return atomic_load(&((struct reel *)r)->read_bytes);
}

uint64_t reel_bad_bytes(const struct reel *r)
{
    return r->bad_bytes;
}
