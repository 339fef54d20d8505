/* pool.c - a few threads for what may block
 *
 * From: intake.c, deliver.c, buffer.c, crash.c, report.c.  To: the same, in the loop.
 * The mutex guards the two queues and the counters and nothing else. A task belongs to the pool from pool_submit until its done()
 * is called.
 */
#include "config.h"
#include "pool.h"

#include "clock.h"
#include "file.h"
#include "mem.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

struct queue { struct pool_task *first, **last; };

struct pool {
    struct ev_loop *loop;
    struct ev_async wake;
    pthread_mutex_t lock;
    pthread_cond_t  work, idle;
    struct queue todo, ready;
    size_t   pending;
    unsigned threads, alive;
    int      nice;
    bool     stop;
    pthread_t thread[];
};

static void queue_add(struct queue *q, struct pool_task *t)
{
    t->next = NULL;
    *q->last = t;
    q->last = &t->next;
}

static struct pool_task *queue_take(struct queue *q)
{
    struct pool_task *t = q->first;
    if (t != NULL) {
        q->first = t->next;
        if (q->first == NULL)
            q->last = &q->first;
    }
    return t;
}

static void *pool_thread(void *arg)
{
    struct pool *p = arg;

    setpriority(PRIO_PROCESS, 0, p->nice);       /* 0: this thread */
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->todo.first == NULL)
            pthread_cond_wait(&p->work, &p->lock);
        if (p->stop)
            break;
        struct pool_task *t = queue_take(&p->todo);
        pthread_mutex_unlock(&p->lock);
        t->thread = gettid();
        t->run(t);
        t->thread = 0;
        pthread_mutex_lock(&p->lock);
        queue_add(&p->ready, t);
        if (!p->stop)
            ev_async_send(p->loop, &p->wake);
    }
    p->alive--;
    pthread_cond_signal(&p->idle);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Calls done() of all that came back. */
static void pool_finish(struct pool *p)
{
    for (;;) {
        pthread_mutex_lock(&p->lock);
        struct pool_task *t = queue_take(&p->ready);
        if (t != NULL)
            p->pending--;
        pthread_mutex_unlock(&p->lock);
        if (t == NULL)
            return;
        t->done(t);
    }
}

static void pool_woken(struct ev_loop *loop, struct ev_async *w, int revents)
{
    (void)loop, (void)revents;
    pool_finish(w->data);
}

/* Every signal is handled by the loop's thread. */
static int start_threads(struct pool *p, const char *name, unsigned threads, struct err *e)
{
    sigset_t all, old;
    int rc = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (p->threads < threads && rc == 0) {
        rc = pthread_create(&p->thread[p->threads], NULL, pool_thread, p);
        if (rc == 0) {
            pthread_setname_np(p->thread[p->threads], name);
            p->threads++;
            pthread_mutex_lock(&p->lock);
            p->alive++;
            pthread_mutex_unlock(&p->lock);
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        errno = rc;
        return err_errno(e, ERR_FAILED, "thread %s cannot be started", name);
    }
    return 0;
}

struct pool *pool_create(struct ev_loop *loop, const char *name, unsigned threads, int nice, struct err *e)
{
    struct pool *p = mem_zalloc(sizeof *p + threads * sizeof p->thread[0]);
    pthread_condattr_t attr;

    p->loop = loop;
    p->nice = nice;
    p->todo.last = &p->todo.first;
    p->ready.last = &p->ready.first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->work, &attr);
    pthread_cond_init(&p->idle, &attr);
    pthread_condattr_destroy(&attr);
    ev_async_init(&p->wake, pool_woken);
    p->wake.data = p;
    ev_async_start(loop, &p->wake);
    if (start_threads(p, name, threads, e) < 0) {
        pool_destroy(p, 1);
        return NULL;
    }
    return p;
}

void pool_submit(struct pool *p, struct pool_task *t)
{
    pthread_mutex_lock(&p->lock);
    t->dropped = false;
    p->pending++;
    queue_add(&p->todo, t);
    pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

bool pool_task_starved(const struct pool_task *t)
{
    struct file_stat s;

    return file_thread_stat(t->thread, &s) == 0 && s.state == 'R';
}

/* Asks the threads to end and waits. Returns how many did not. */
static unsigned stop_threads(struct pool *p, double limit_s)
{
    struct timespec until;
    int64_t at = clock_mono_ns() + (int64_t)(limit_s * 1e9);

    until.tv_sec = (time_t)(at / CLOCK_SECOND);
    until.tv_nsec = (long)(at % CLOCK_SECOND);
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    while (p->alive > 0 && pthread_cond_timedwait(&p->idle, &p->lock, &until) != ETIMEDOUT)
        ;
    unsigned left = p->alive;
    while (p->todo.first != NULL) {
        struct pool_task *t = queue_take(&p->todo);
        t->dropped = true;
        queue_add(&p->ready, t);
    }
    pthread_mutex_unlock(&p->lock);
    return left;
}

int pool_destroy(struct pool *p, double limit_s)
{
    if (p == NULL)
        return 0;

    unsigned left = stop_threads(p, limit_s);
    ev_async_stop(p->loop, &p->wake);
    pool_finish(p);
    for (unsigned i = 0; i < p->threads; i++) {
        if (left == 0)
            pthread_join(p->thread[i], NULL);
        else
            pthread_detach(p->thread[i]);
    }
    if (left > 0)
        return -1;              /* the thread still uses p: it stays */
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    free(p);
    return 0;
}
