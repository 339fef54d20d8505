/* scan.c - finds the time-frames of files by their headers
 *
 * Headers lie all over a file: what takes the time is a disk, mostly one behind a network, that is asked again and again. So many files are read side by side.
 */
#include "config.h"

#include "scan.h"

#include "mem.h"
#include "tf_file.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void trouble(struct scan *s, const struct tf_err *e)
{
    s->code = ERR_FAILED;
    s->trouble = strstr(e->text, "offset") != NULL ? mem_strdup(e->text) : mem_printf("%s (offset %" PRIu64 ")", e->text, e->offset);
}

/* tfs: how many were found so far, of all files; told of each. */
static void scan_one(const char *path, struct scan *s, atomic_size_t *tfs)
{
    struct tf_err e = { 0 };
    struct tf_file *f;
    struct tf_info info;
    int r;

    *s = (struct scan){ 0 };
    errno = 0;                                   /* stays 0 where the file is there, but of the wrong kind */
    f = tf_file_open(path, &e);
    if (f == NULL) {
        s->code = err_of_errno(errno);
        s->trouble = mem_strdup(e.text);         /* nothing was read yet: no offset */
        return;
    }
    while ((r = tf_file_next(f, &info, &e)) > 0) {
        if ((s->n & (s->n - 1)) == 0)
            s->tfs = mem_grow(s->tfs, s->n == 0 ? 1 : 2 * s->n, sizeof(*s->tfs));
        s->tfs[s->n++] = (struct scan_tf){ info.offset, info.size };
        s->largest = info.size > s->largest ? info.size : s->largest;
        atomic_fetch_add_explicit(tfs, 1, memory_order_relaxed);
    }
    if (r < 0)
        trouble(s, &e);
    tf_file_close(f);
}

void scan_file(const char *path, struct scan *s)
{
    atomic_size_t ignored = 0;

    scan_one(path, s, &ignored);
}

/* ---- many ---- */

enum { THREADS_LEAST = 4, THREADS_MOST = 16, LOOK_MS = 200 };

struct many {
    const char *const *path;
    struct scan *scan;
    size_t n;
    atomic_size_t next, files, tfs;      /* the next one to be taken; what is done */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned at_work;                    /* threads */
};

static void scan_some(struct many *m)
{
    size_t i;

    while ((i = atomic_fetch_add(&m->next, 1)) < m->n) {
        if (m->path[i] != NULL)
            scan_one(m->path[i], &m->scan[i], &m->tfs);
        atomic_fetch_add(&m->files, 1);
    }
}

static void *thread_main(void *arg)
{
    struct many *m = arg;

    scan_some(m);
    pthread_mutex_lock(&m->lock);
    m->at_work--;
    pthread_cond_signal(&m->ended);
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

static unsigned threads_for(size_t n)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    size_t threads = cpus < THREADS_LEAST ? THREADS_LEAST : cpus > THREADS_MOST ? THREADS_MOST : (size_t)cpus;

    return (unsigned)(threads < n ? threads : n);
}

static void wait_for_threads(struct many *m, void (*look)(void *arg, size_t files, size_t tfs), void *arg)
{
    struct timespec until;

    pthread_mutex_lock(&m->lock);
    while (m->at_work > 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        if (pthread_cond_timedwait(&m->ended, &m->lock, &until) == ETIMEDOUT)
            look(arg, atomic_load(&m->files), atomic_load(&m->tfs));
    }
    pthread_mutex_unlock(&m->lock);
}

void scan_files(const char *const *paths, size_t n, struct scan *scans, void (*look)(void *arg, size_t files, size_t tfs), void *arg)
{
    struct many m = { .path = paths, .scan = scans, .n = n, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER };
    pthread_t thread[THREADS_MOST];
    unsigned started = 0, wanted = threads_for(n);

    memset(scans, 0, n * sizeof(*scans));
    m.at_work = wanted;
    while (started < wanted && pthread_create(&thread[started], NULL, thread_main, &m) == 0)
        started++;
    pthread_mutex_lock(&m.lock);
    m.at_work -= wanted - started;
    pthread_mutex_unlock(&m.lock);
    if (started == 0)
        scan_some(&m);                           /* no thread can be had: without */
    wait_for_threads(&m, look, arg);
    for (unsigned i = 0; i < started; i++)
        pthread_join(thread[i], NULL);
}

void scan_free(struct scan *s)
{
    free(s->tfs);
    free(s->trouble);
}
