/* intake.c - takes a TF into the buffer
 *
 * From: link.c (Assign).  To: pull.c (parts), a thread (files), device.c (built TFs), link.c (Refused, Built).
 * One contiguous range a TF; part i begins at the sum of the sizes before it, each rounded up to SHM_ALIGN. Everything that can be said against an
 * Assign is said before its first byte is asked for, and a refused one leaves nothing behind.
 */
#include "config.h"
#include "intake.h"

#include "clock.h"
#include "device.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "pull.h"
#include "shm_layout.h"
#include "str.h"
#include "userio.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_PARTS = 65536, FILE_STALL_S = 30, FILE_STEP = 1 << 20 };

struct file_read {                               /* a range of a file, by a thread */
    struct held *held;
    struct pool_task task;
    struct user_id user;
    char    *path;
    uint64_t offset, size;
    char    *const *roots; unsigned n_roots;     /* of the configuration, which does not change */
    uint8_t *to;
    char     word[24], why[400];
    atomic_uint_fast64_t got;
    atomic_bool abandoned;
    uint64_t got_seen; int64_t moved_at;
    bool     running;
};

struct build {
    struct held *held;
    TAILQ_ENTRY(build) entry;
    struct pull *part; char **address; unsigned n_parts, n_done;
    struct file_read *file;
    bool  over;                                  /* succeeded, failed or cancelled */
};

struct intake {
    struct worker *worker;
    struct pulls  *pulls;
    TAILQ_HEAD(, build) builds;
};

/* A few descriptors stay for the devices (socket, pipe, results), the link, the log, files. */
static unsigned descriptor_budget(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < 64)
        return 8;
    return files.rlim_cur > 4096 ? 2048 : (unsigned)(files.rlim_cur / 4);
}

struct intake *intake_create(struct worker *w)
{
    struct intake *i = mem_zalloc(sizeof *i);
    unsigned budget = descriptor_budget();

    i->worker = w;
    i->pulls = pulls_create(w, budget, budget / 2);
    TAILQ_INIT(&i->builds);
    return i;
}

void intake_destroy(struct intake *i)
{
    if (i == NULL)
        return;
    pulls_destroy(i->pulls);
    free(i);
}

/* ---- the end of building ------------------------------------------------------------------------ */

static void build_over(struct build *b)
{
    if (!b->over)
        TAILQ_REMOVE(&b->held->worker->intake->builds, b, entry);
    b->over = true;
}

/* Nothing of it will be called any more; threads that still write keep the range busy. */
void intake_cancel(struct held *h)
{
    struct build *b = h->build;

    if (b == NULL || b->over)
        return;
    build_over(b);
    held_busy(h);                                /* b lives until the loop below is done */
    for (unsigned i = 0; i < b->n_parts; i++) {
        if (b->part[i].state != PULL_IDLE)
            pull_cancel(h->worker->intake->pulls, &b->part[i]);
    }
    if (b->file != NULL)
        b->file->abandoned = true;
    held_unbusy(h);
}

static void build_failed(struct build *b, const char *word, const char *text)
{
    struct held *h = b->held;

    if (b->over)
        return;
    intake_cancel(h);
    held_fail(h, word, NULL, NULL, NULL, "%s", text);
}

static void build_done(struct build *b)
{
    struct held *h = b->held;
    Sluice__Built m = SLUICE__BUILT__INIT;
    struct tf_id id;

    build_over(b);
    h->built = clock_mono_ns();
    tf_id_fill(&id, h->key.name, h->key.fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.has_bytes = 1;
    m.bytes = h->bytes;
    link_send(h->worker->link, &m.base);
    log_debug("%s: built, %" PRIu64 " bytes in %u parts", held_text(h), h->bytes, h->n_segments);
    devices_add(h->worker->devices, h);
}

void intake_build_free(struct build *b)
{
    if (b == NULL)
        return;
    build_over(b);
    for (unsigned i = 0; i < b->n_parts; i++)
        free(b->address[i]);
    free(b->address);
    free(b->part);
    if (b->file != NULL)
        free(b->file->path);
    free(b->file);
    free(b);
}

/* ---- parts from sources -------------------------------------------------------------------------- */

static struct build *build_of(struct pull *p)
{
    return ((struct held *)p->owner)->build;
}

static void part_done(struct pull *p, const char *word, const char *text)
{
    struct build *b = build_of(p);

    if (word != NULL)
        build_failed(b, word, text);
    else if (!b->over && ++b->n_done == b->n_parts)
        build_done(b);
}

static void part_left(struct pull *p)
{
    held_unbusy(p->owner);
}

static void start_parts(struct held *h, const Sluice__Assign *m)
{
    struct build *b = h->build;

    b->n_parts = (unsigned)m->n_parts;
    b->part = mem_array(b->n_parts, sizeof *b->part);
    b->address = mem_array(b->n_parts, sizeof *b->address);
    for (unsigned i = 0; i < b->n_parts; i++) {
        struct pull *p = &b->part[i];
        b->address[i] = mem_strdup(m->parts[i]->address);
        *p = (struct pull){
            .work = h->work, .address = b->address[i], .tf = h->key.name, .fence = h->key.fence,
            .part = m->parts[i]->number, .size = m->parts[i]->size,
            .to = buffer_at(h->worker->buffer, h->segment[i].offset),
            .done = part_done, .left = part_left, .owner = h,
        };
    }
    for (unsigned i = 0; i < b->n_parts && !b->over; i++) {
        held_busy(h);
        pull_start(h->worker->intake->pulls, &b->part[i]);
    }
}

/* ---- a range of a file ----------------------------------------------------------------------------- */

static int file_fail(struct file_read *f, const char *word, const char *what)
{
    snprintf(f->word, sizeof f->word, "%s", word);
    snprintf(f->why, sizeof f->why, "%.250s: %.120s", f->path, what);
    return -1;
}

/* Where symbolic links lead counts: who asked for a path below the roots may have put one there. */
static bool lies_below(const struct file_read *f, int fd, char where[160])
{
    char link[40], real[PATH_MAX];

    if (f->n_roots == 0)
        return true;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof real - 1);
    real[n > 0 ? n : 0] = '\0';
    if (n > 0 && str_is_below(real, f->roots, f->n_roots))
        return true;
    snprintf(where, 160, "leads to %.80s, below none of roots_input", real);
    return false;
}

static int file_open(struct file_read *f)
{
    struct stat st;
    char where[160];
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);     /* a FIFO must not hold the thread */

    if (fd < 0)
        return file_fail(f, errno == EACCES || errno == EPERM ? "InputDenied" : "InputMissing", strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return file_fail(f, "InputMissing", "is not a regular file");
    }
    if (!lies_below(f, fd, where)) {
        close(fd);
        return file_fail(f, "InputDenied", where);
    }
    if (f->offset > (uint64_t)st.st_size || f->size > (uint64_t)st.st_size - f->offset) {
        char text[120];
        close(fd);
        snprintf(text, sizeof text, "bytes %" PRIu64 " to %" PRIu64 " wanted, the file has %jd", f->offset, f->offset + f->size,
                 (intmax_t)st.st_size);
        return file_fail(f, "BadInput", text);
    }
    return fd;
}

static int file_take(struct file_read *f, int fd)
{
    uint64_t at = 0;

    while (at < f->size && !f->abandoned) {
        size_t want = f->size - at < FILE_STEP ? (size_t)(f->size - at) : FILE_STEP;
        ssize_t r = pread(fd, f->to + at, want, (off_t)(f->offset + at));
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return file_fail(f, "InputMissing", strerror(errno));
        if (r == 0)
            return file_fail(f, "BadInput", "became shorter while it was read");
        at += (uint64_t)r;
        f->got = at;
    }
    return 0;
}

static void file_run(struct pool_task *t)
{
    struct file_read *f = CONTAINER_OF(t, struct file_read, task);

    if (user_become(&f->user) < 0) {
        file_fail(f, "InputMissing", "the owner's rights cannot be taken on");
        return;
    }
    int fd = file_open(f);
    if (fd >= 0) {
        file_take(f, fd);
        close(fd);
    }
    user_return();
}

static void file_done(struct pool_task *t)
{
    struct file_read *f = CONTAINER_OF(t, struct file_read, task);
    struct held *h = f->held;
    struct build *b = h->build;

    f->running = false;
    if (!b->over && t->dropped)
        build_failed(b, "Cancelled", "the worker stops");
    else if (!b->over && f->word[0] != '\0')
        build_failed(b, f->word, f->why);
    else if (!b->over)
        build_done(b);
    held_unbusy(h);
}

static void start_file(struct held *h, const Sluice__Assign *m)
{
    struct file_read *f = mem_zalloc(sizeof *f);

    f->held = h;
    f->user = (struct user_id){ h->work->has_owner, h->work->uid, h->work->gid };
    f->path = mem_strdup(m->path);
    f->roots = h->worker->conf->roots_input;
    f->n_roots = h->worker->conf->n_roots_input;
    f->offset = m->offset;
    f->size = m->size;
    f->to = buffer_at(h->worker->buffer, h->segment[0].offset);
    f->moved_at = worker_now(h->worker);
    f->task.run = file_run;
    f->task.done = file_done;
    f->running = true;
    h->build->file = f;
    held_busy(h);
    pool_submit(h->worker->io, &f->task);
}

/* ---- an Assign -------------------------------------------------------------------------------------- */

static void refuse(struct worker *w, struct tf_name name, struct fence fence, const char *word, const char *text)
{
    Sluice__Refused m = SLUICE__REFUSED__INIT;
    struct tf_id id;
    char line[TF_TEXT];

    tf_id_fill(&id, name, fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.word = (char *)word;
    m.text = (char *)text;
    w->refused++;
    log_info("%s: refused: %s: %s", tf_text(name, fence, line), word, text);
    link_send(w->link, &m.base);
    worker_changed(w);
}

/* The bytes that its parts take, each rounded up; -1 when the message makes no sense. */
static int measure(const Sluice__Assign *m, uint64_t *bytes, struct err *e)
{
    bool file = m->path != NULL && m->path[0] != '\0';

    *bytes = 0;
    if (file ? m->n_parts > 0 || m->path[0] != '/' || !m->has_size : m->n_parts == 0 || m->n_parts > MAX_PARTS)
        return err_set(e, ERR_PROTOCOL, "either 1 to %d parts or an absolute path wanted", MAX_PARTS);
    for (size_t i = 0; i < (file ? 1 : m->n_parts); i++) {
        uint64_t size = file ? m->size : m->parts[i]->size;
        if (size == 0 || size > INT64_MAX / 2 || *bytes > INT64_MAX / 2 ||
            (!file && (m->parts[i]->address == NULL || m->parts[i]->address[0] == '\0')))
            return err_set(e, ERR_PROTOCOL, "part %zu: %" PRIu64 " bytes, address %s", i, size,
                           file || m->parts[i]->address ? "there" : "missing");
        *bytes += (size + SHM_ALIGN - 1) / SHM_ALIGN * SHM_ALIGN;
    }
    return 0;
}

/* The word that speaks against taking it now, or NULL. */
static const char *why_not(struct worker *w, const Sluice__Assign *m, struct work *work, uint64_t *bytes, struct err *e)
{
    if (w->stopping) {
        err_set(e, ERR_STATE, "the worker stops");
        return "Stopping";
    }
    if (work == NULL) {
        err_set(e, ERR_STATE, "no RunOpen came before");
        return "NotOpen";
    }
    if (measure(m, bytes, e) < 0)
        return "BadAssign";
    if (devices_usable(w->devices) == 0) {
        err_set(e, ERR_STATE, "no device works");
        return "NoDevice";
    }
    if (w->held.n[SLUICE__PHASE__BUILDING] >= w->conf->worker.building_limit) {
        err_set(e, ERR_STATE, "%u TFs are being built, the limit is %u", w->held.n[SLUICE__PHASE__BUILDING],
                w->conf->worker.building_limit);
        return "BuildingLimit";
    }
    return NULL;
}

/* Lays the parts into the range. */
static void lay_out(struct held *h, const Sluice__Assign *m)
{
    uint64_t at = h->range.offset;

    h->n_segments = m->n_parts > 0 ? (unsigned)m->n_parts : 1;
    h->segment = mem_array(h->n_segments, sizeof *h->segment);
    for (unsigned i = 0; i < h->n_segments; i++) {
        uint64_t size = m->n_parts > 0 ? m->parts[i]->size : m->size;
        h->segment[i] = (struct range){ at, size };
        at += (size + SHM_ALIGN - 1) / SHM_ALIGN * SHM_ALIGN;
    }
}

static void take_in(struct intake *i, const Sluice__Assign *m, struct tf_name name, struct fence fence, struct work *work,
                    const struct range *range)
{
    struct held *h = held_create(i->worker, name, fence, work);
    struct build *b = mem_zalloc(sizeof *b);

    h->range = *range;
    h->bytes = range->size;
    h->stem = mem_strdup(m->stem ? m->stem : "");
    h->input = m->path != NULL && m->path[0] != '\0' ? mem_strdup(m->path) : NULL;
    h->offset = m->offset;
    h->incomplete = m->incomplete;
    h->first_orbit = m->first_orbit;
    lay_out(h, m);
    h->build = b;
    b->held = h;
    TAILQ_INSERT_TAIL(&i->builds, b, entry);
    held_busy(h);                                /* a part may fail from within its start */
    if (m->n_parts > 0)
        start_parts(h, m);
    else
        start_file(h, m);
    held_unbusy(h);
    worker_changed(i->worker);
}

void intake_assign(struct intake *i, const Sluice__Assign *m)
{
    struct worker *w = i->worker;
    struct tf_name name;
    struct fence fence;
    struct range range = { 0, 0 };
    uint64_t bytes;
    struct err e;

    if (tf_name_from(m->tf, &name) < 0 || fence_from(m->fence, &fence) < 0) {
        log_warning("an Assign without TF or fence: passed over");
        return;
    }
    struct work *work = works_find(&w->works, name.run, name.job);
    int met = fences_meet(w->fences, name, fence);
    if (met == 0 && held_find(&w->held, name, fence) != NULL)
        return;                                  /* we have it */
    if (met <= 0) {
        w->stale++;
        refuse(w, name, fence, "StaleFence", "this fence was taken before, or a newer one was met");
        return;
    }
    const char *word = why_not(w, m, work, &bytes, &e);
    if (word == NULL && (!buffer_is_open(w->buffer) || ranges_take(buffer_ranges(w->buffer), bytes, &range, &e) < 0)) {
        if (!buffer_is_open(w->buffer))
            err_set(&e, ERR_STATE, "there is no buffer: %s", buffer_word(w->buffer));
        word = "NoSpace";
    }
    if (word != NULL) {
        refuse(w, name, fence, word, e.text);
        return;
    }
    fences_taken(w->fences, name);
    take_in(i, m, name, fence, work, &range);
}

void intake_close(struct intake *i, struct work *work)
{
    pulls_close(i->pulls, work);
    fences_forget(i->worker->fences, work->key.run, work->key.job);
}

static void judge_file(struct build *b, int64_t now)
{
    struct file_read *f = b->file;
    char text[400];

    if (f->got != f->got_seen) {
        f->got_seen = f->got;
        f->moved_at = now;
    } else if (now - f->moved_at > FILE_STALL_S * CLOCK_SECOND) {
        if (pool_task_starved(&f->task)) {
            f->moved_at = now;
            return;
        }
        snprintf(text, sizeof text, "%.300s: no byte could be read for %d s", f->path, FILE_STALL_S);
        build_failed(b, "PullStalled", text);
    }
}

void intake_tick(struct intake *i)
{
    int64_t now = worker_now(i->worker);
    struct build *b, *next;

    pulls_tick(i->pulls);
    for (b = TAILQ_FIRST(&i->builds); b != NULL; b = next) {
        next = TAILQ_NEXT(b, entry);
        if (b->file != NULL)
            judge_file(b, now);
    }
}
