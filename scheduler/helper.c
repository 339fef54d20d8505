/* helper.c - one thread a task, at most HELPER_MAX of them; the loop hears of each end through ev_async
 *
 * From: show.c (backup), events.c (old history), reload.c.  To: their `done`, in the loop.
 * The core outlives the loop's side: a thread that ends later finds it closed and lets its task go.
 */
#include "config.h"

#include "helper.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "mem.h"

struct task {
    struct task *next;
    struct core *core;
    void (*work)(void *arg);
    void (*done)(void *arg);
    void *arg;
};

struct core {
    pthread_mutex_t lock;
    struct ev_loop *loop;                /* NULL: the loop's side has gone */
    ev_async wake;
    struct task *finished;
    unsigned running;                    /* threads that live */
};

struct helper {
    struct core *core;
};

/* The last one out frees the core. */
static void core_leave(struct core *c)
{
    bool last = c->loop == NULL && c->running == 0;

    pthread_mutex_unlock(&c->lock);
    if (last) {
        pthread_mutex_destroy(&c->lock);
        free(c);
    }
}

static void *task_main(void *arg)
{
    struct task *t = arg;
    struct core *c = t->core;

    t->work(t->arg);
    pthread_mutex_lock(&c->lock);
    c->running--;
    if (c->loop != NULL) {
        t->next = c->finished;
        c->finished = t;
        ev_async_send(c->loop, &c->wake);
    } else {
        free(t);                         /* its asker has gone with the loop; arg goes with the program */
    }
    core_leave(c);
    return NULL;
}

static void finished_cb(struct ev_loop *loop, ev_async *w, int events)
{
    struct core *c = w->data;
    struct task *t, *next;

    (void)loop;
    (void)events;
    pthread_mutex_lock(&c->lock);
    t = c->finished;
    c->finished = NULL;
    pthread_mutex_unlock(&c->lock);
    for (; t != NULL; t = next) {
        next = t->next;
        t->done(t->arg);
        free(t);
    }
}

struct helper *helper_create(struct ev_loop *loop, struct err *e)
{
    struct helper *h = mem_zalloc(sizeof(*h));

    (void)e;
    h->core = mem_zalloc(sizeof(*h->core));
    pthread_mutex_init(&h->core->lock, NULL);
    h->core->loop = loop;
    ev_async_init(&h->core->wake, finished_cb);
    h->core->wake.data = h->core;
    ev_async_start(loop, &h->core->wake);
    return h;
}

void helper_destroy(struct helper *h)
{
    if (h == NULL)
        return;
    finished_cb(h->core->loop, &h->core->wake, 0);
    pthread_mutex_lock(&h->core->lock);
    ev_async_stop(h->core->loop, &h->core->wake);
    h->core->loop = NULL;
    core_leave(h->core);
    free(h);
}

/* Signals are the loop's business. */
static int start_thread(struct task *t)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&thread, &attr, task_main, t);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

int helper_run(struct helper *h, void (*work)(void *arg), void (*done)(void *arg), void *arg, struct err *e)
{
    struct core *c = h->core;
    struct task *t;
    bool room;

    pthread_mutex_lock(&c->lock);
    room = c->running < HELPER_MAX;
    c->running += room;
    pthread_mutex_unlock(&c->lock);
    if (!room)
        return err_set(e, ERR_STATE, "%d long questions are being worked on already; try again later", HELPER_MAX);
    t = mem_zalloc(sizeof(*t));
    *t = (struct task){ .core = c, .work = work, .done = done, .arg = arg };
    if (start_thread(t) == 0)
        return 0;
    free(t);
    pthread_mutex_lock(&c->lock);
    c->running--;
    pthread_mutex_unlock(&c->lock);
    return err_set(e, ERR_FAILED, "no thread could be started for a long question");
}
