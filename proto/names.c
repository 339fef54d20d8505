/* names.c - the name thread: munge, users and groups, DNS
 *
 * From: listener.c, connector.c, scheduler/session.c (questions).  To: whoever asked, in the loop.
 * A question belongs to the loop's side. What the thread works on is a copy of its own (struct work), so that it may hang for ever in
 * somebody else's code while the question times out and the process goes on. An answer that nobody waits for any more is dropped.
 */
#include "config.h"

#include "names.h"

#include "clock.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <pthread.h>
#include <pwd.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>
#ifdef HAVE_MUNGE
#include <munge.h>
#endif

enum { MAX_QUESTIONS = 1024 };

enum kind { ENCODE, DECODE, USER, RESOLVE };
static const char *const kind_name[] = { "munge", "munge", "the user database", "name resolution" };

struct work {
    STAILQ_ENTRY(work) link;
    enum kind kind;
    void  *data;                       /* payload, credential or host, NUL after it */
    size_t size;
    char   port[32];
    char   munge_socket[256];
    uid_t  uid;
    struct name_question *question;    /* loop's side only; NULL: nobody waits any more */
    atomic_bool dropped;               /* the same for the thread: need not be asked */
    struct name_answer answer;
};
STAILQ_HEAD(works, work);

/* Shared by both threads; the last one out frees it. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t  wake;
    struct works todo, done;
    bool   stop, busy;
    int64_t busy_since;
    struct ev_loop *loop;              /* NULL once the loop's side is gone */
    ev_async *async;
    unsigned refs;
    int    spare;                      /* the thread's alone: a descriptor kept for the user database, for when there are no others; -1: not yet, or gone */
};

struct name_question {
    LIST_ENTRY(name_question) link;
    struct names *names;
    struct work  *work;
    ev_timer timer;
    double   limit_s;
    name_done done;
    void    *arg;
};

struct names {
    struct ev_loop *loop;
    ev_async async;
    struct shared *shared;
    pthread_t thread;
    LIST_HEAD(, name_question) questions;
    unsigned n_works;                  /* given to the thread and not come back: bounded, also when it hangs */
    char munge_socket[256];
};

static void work_free(struct work *w)
{
    free(w->data);
    free(w->answer.data);
    free(w);
}

static void shared_put(struct shared *s)
{
    struct work *w;
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --s->refs == 0;
    pthread_mutex_unlock(&s->lock);
    if (!last)
        return;
    while ((w = STAILQ_FIRST(&s->todo))) {
        STAILQ_REMOVE_HEAD(&s->todo, link);
        work_free(w);
    }
    while ((w = STAILQ_FIRST(&s->done))) {
        STAILQ_REMOVE_HEAD(&s->done, link);
        work_free(w);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    if (s->spare >= 0)
        close(s->spare);
    free(s);
}

/* ---- the thread: each function may hang ---- */

static void fail(struct name_answer *a, enum err_code code, const char *what, const char *why)
{
    a->code = (int)code;
    err_set(&a->why, code, "%s: %s", what, why);
}

/* Fills user, gid and groups. A uid that nobody knows is its number: that is no error. */
static void look_up(struct name_answer *a, uid_t uid)
{
    struct passwd pw, *found = NULL;
    char buf[16384];
    int n = (int)ARRAY_LEN(a->groups);

    a->uid = uid;
    snprintf(a->user, sizeof(a->user), "%lu", (unsigned long)uid);
    if (getpwuid_r(uid, &pw, buf, sizeof(buf), &found) != 0 || found == NULL)
        return;
    snprintf(a->user, sizeof(a->user), "%s", pw.pw_name);
    a->gid = pw.pw_gid;
    if (getgrouplist(pw.pw_name, pw.pw_gid, a->groups, &n) < 0)
        n = (int)ARRAY_LEN(a->groups);           /* more than fit: the first ones count */
    a->n_groups = (unsigned)n;
}

/* With as many connections as there are descriptors root would have no name: the user database is read from files. */
static void ask_user(struct shared *s, struct name_answer *a, uid_t uid)
{
    if (s->spare >= 0)
        close(s->spare);
    look_up(a, uid);
    s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

#ifdef HAVE_MUNGE
static munge_ctx_t context(const struct work *w)
{
    munge_ctx_t ctx = munge_ctx_create();

    if (ctx && w->munge_socket[0] && munge_ctx_set(ctx, MUNGE_OPT_SOCKET, w->munge_socket) != EMUNGE_SUCCESS) {
        munge_ctx_destroy(ctx);
        return NULL;
    }
    return ctx;
}

/* A munged that does not answer is not a refusal. */
static enum err_code munge_code(munge_err_t rc)
{
    return rc == EMUNGE_SOCKET || rc == EMUNGE_TIMEOUT ? ERR_UNREACHABLE : ERR_PERMISSION;
}

static const char *munge_why(munge_ctx_t ctx, munge_err_t rc)
{
    const char *text = ctx ? munge_ctx_strerror(ctx) : NULL;

    return text ? text : munge_strerror(rc);
}

static void ask_encode(struct work *w)
{
    munge_ctx_t ctx = context(w);
    char *cred = NULL;
    munge_err_t rc = munge_encode(&cred, ctx, w->data, (int)w->size);

    if (rc != EMUNGE_SUCCESS) {
        fail(&w->answer, munge_code(rc), "munge made no credential", munge_why(ctx, rc));
        free(cred);
    } else {
        w->answer.data = cred;
        w->answer.size = strlen(cred);
    }
    munge_ctx_destroy(ctx);
}

static void ask_decode(struct shared *s, struct work *w)
{
    munge_ctx_t ctx = context(w);
    void *payload = NULL;
    int size = 0;
    uid_t uid;
    gid_t gid;
    munge_err_t rc = munge_decode(w->data, ctx, &payload, &size, &uid, &gid);

    if (rc != EMUNGE_SUCCESS) {
        fail(&w->answer, munge_code(rc), "munge refused the credential", munge_why(ctx, rc));
        free(payload);
    } else {
        ask_user(s, &w->answer, uid);
        w->answer.gid = gid;
        w->answer.data = payload;
        w->answer.size = (size_t)size;
    }
    munge_ctx_destroy(ctx);
}
#else
static void ask_encode(struct work *w)
{
    fail(&w->answer, ERR_PERMISSION, "munge", "this build has no munge (configure found no libmunge)");
}

static void ask_decode(struct shared *s, struct work *w) { (void)s; ask_encode(w); }
#endif

static void ask_resolve(struct work *w)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_family = AF_UNSPEC }, *list = NULL;
    struct name_answer *a = &w->answer;
    int rc = getaddrinfo(w->data, w->port, &hints, &list);

    if (rc != 0) {
        fail(a, ERR_UNREACHABLE, w->data, rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc));
        return;
    }
    for (struct addrinfo *i = list; i && a->n_addr < ARRAY_LEN(a->addr); i = i->ai_next) {
        if (i->ai_addrlen > sizeof(a->addr[0]))
            continue;
        memcpy(&a->addr[a->n_addr], i->ai_addr, i->ai_addrlen);
        a->addr_len[a->n_addr++] = i->ai_addrlen;
    }
    freeaddrinfo(list);
    if (a->n_addr == 0)
        fail(a, ERR_UNREACHABLE, w->data, "it has no address");
}

static void ask(struct shared *s, struct work *w)
{
    switch (w->kind) {
    case ENCODE:  ask_encode(w); break;
    case DECODE:  ask_decode(s, w); break;
    case USER:    ask_user(s, &w->answer, w->uid); break;
    case RESOLVE: ask_resolve(w); break;
    }
}

static void *thread_main(void *arg)
{
    struct shared *s = arg;

    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct work *w = STAILQ_FIRST(&s->todo);

        if (w == NULL) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        STAILQ_REMOVE_HEAD(&s->todo, link);
        s->busy = true;
        s->busy_since = clock_mono_ns();
        pthread_mutex_unlock(&s->lock);
        if (!atomic_load(&w->dropped))
            ask(s, w);
        pthread_mutex_lock(&s->lock);
        s->busy = false;
        STAILQ_INSERT_TAIL(&s->done, w, link);
        if (s->loop)
            ev_async_send(s->loop, s->async);
    }
    pthread_mutex_unlock(&s->lock);
    shared_put(s);
    return NULL;
}

/* ---- the loop's side ---- */

/* The question is over; its work stays with the thread until it comes back. */
static void question_free(struct name_question *q)
{
    LIST_REMOVE(q, link);
    ev_timer_stop(q->names->loop, &q->timer);
    q->work->question = NULL;
    atomic_store(&q->work->dropped, true);
    free(q);
}

void names_cancel(struct name_question *q)
{
    if (q)
        question_free(q);
}

static void on_timeout(struct ev_loop *loop, ev_timer *t, int events)
{
    struct name_question *q = CONTAINER_OF(t, struct name_question, timer);
    struct name_answer *a = mem_zalloc(sizeof(*a));
    name_done done = q->done;
    void *arg = q->arg;

    (void)loop, (void)events;
    a->code = ERR_TIMEOUT;
    err_set(&a->why, ERR_TIMEOUT, "%s did not answer within %.1f s", kind_name[q->work->kind], q->limit_s);
    question_free(q);
    done(arg, a);
    free(a);
}

static struct work *next_done(struct names *n)
{
    struct work *w;

    pthread_mutex_lock(&n->shared->lock);
    w = STAILQ_FIRST(&n->shared->done);
    if (w)
        STAILQ_REMOVE_HEAD(&n->shared->done, link);
    pthread_mutex_unlock(&n->shared->lock);
    return w;
}

static void on_answers(struct ev_loop *loop, ev_async *a, int events)
{
    struct names *n = CONTAINER_OF(a, struct names, async);
    struct shared *s = n->shared;
    struct work *w;

    (void)loop, (void)events;
    pthread_mutex_lock(&s->lock);
    s->refs++;                         /* a callback may destroy the names */
    pthread_mutex_unlock(&s->lock);
    while (s->loop && (w = next_done(n))) {
        struct name_question *q = w->question;

        n->n_works--;
        if (q) {
            name_done done = q->done;
            void *arg = q->arg;

            question_free(q);
            done(arg, &w->answer);
        }
        work_free(w);
    }
    shared_put(s);
}

struct names *names_create(struct ev_loop *loop, struct err *e)
{
    struct names *n = mem_zalloc(sizeof(*n));
    sigset_t all, old;
    int rc;

    n->loop = loop;
    n->shared = mem_zalloc(sizeof(*n->shared));
    pthread_mutex_init(&n->shared->lock, NULL);
    pthread_cond_init(&n->shared->wake, NULL);
    STAILQ_INIT(&n->shared->todo);
    STAILQ_INIT(&n->shared->done);
    n->shared->loop = loop;
    n->shared->async = &n->async;
    n->shared->refs = 2;
    n->shared->spare = -1;
    LIST_INIT(&n->questions);
    ev_async_init(&n->async, on_answers);
    ev_async_start(loop, &n->async);
    ev_unref(loop);                    /* it alone does not keep a loop running */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);          /* signals are the loop's business */
    rc = pthread_create(&n->thread, NULL, thread_main, n->shared);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc == 0)
        return n;
    ev_ref(loop);
    ev_async_stop(loop, &n->async);
    n->shared->refs = 1;
    shared_put(n->shared);
    free(n);
    return err_null(e, ERR_FAILED, "the name thread cannot be started: %s", strerror(rc));
}

void names_destroy(struct names *n)
{
    struct name_question *q;
    bool busy;

    if (n == NULL)
        return;
    while ((q = LIST_FIRST(&n->questions)))
        question_free(q);
    pthread_mutex_lock(&n->shared->lock);
    n->shared->stop = true;
    n->shared->loop = NULL;
    busy = n->shared->busy;
    pthread_cond_signal(&n->shared->wake);
    pthread_mutex_unlock(&n->shared->lock);
    if (busy)
        pthread_detach(n->thread);     /* it frees what is left when it comes back, if ever */
    else
        pthread_join(n->thread, NULL);
    ev_ref(n->loop);
    ev_async_stop(n->loop, &n->async);
    shared_put(n->shared);
    free(n);
}

double names_stuck_s(const struct names *n)
{
    double s;

    pthread_mutex_lock(&n->shared->lock);
    s = n->shared->busy ? (double)(clock_mono_ns() - n->shared->busy_since) / (double)CLOCK_SECOND : 0;
    pthread_mutex_unlock(&n->shared->lock);
    return s;
}

int names_munge_socket(struct names *n, const char *path, struct err *e)
{
    if (strlen(path) >= sizeof(n->munge_socket))
        return err_set(e, ERR_USAGE, "the path of munge's socket has %zu bytes, at most %zu can be used",
                       strlen(path), sizeof(n->munge_socket) - 1);
    snprintf(n->munge_socket, sizeof(n->munge_socket), "%s", path);
    return 0;
}

static struct work *work_new(enum kind kind, const void *data, size_t size)
{
    struct work *w = mem_zalloc(sizeof(*w));

    w->kind = kind;
    w->size = size;
    w->data = mem_zalloc(size + 1);
    if (size)
        memcpy(w->data, data, size);
    return w;
}

/* Hands w to the thread. */
static struct name_question *put(struct names *n, struct work *w, double limit_s, name_done done, void *arg, struct err *e)
{
    struct name_question *q;

    if (n->n_works >= MAX_QUESTIONS) {
        double stuck = names_stuck_s(n);

        err_set(e, ERR_TIMEOUT, "%u questions wait for %s, which has been busy with one for %.1f s", n->n_works,
                kind_name[w->kind], stuck);
        work_free(w);
        return NULL;
    }
    q = mem_zalloc(sizeof(*q));
    *q = (struct name_question){ .names = n, .work = w, .limit_s = limit_s, .done = done, .arg = arg };
    w->question = q;
    memcpy(w->munge_socket, n->munge_socket, sizeof(w->munge_socket));
    LIST_INSERT_HEAD(&n->questions, q, link);
    ev_now_update(n->loop);
    ev_timer_init(&q->timer, on_timeout, limit_s, 0);
    ev_timer_start(n->loop, &q->timer);
    n->n_works++;
    pthread_mutex_lock(&n->shared->lock);
    STAILQ_INSERT_TAIL(&n->shared->todo, w, link);
    pthread_cond_signal(&n->shared->wake);
    pthread_mutex_unlock(&n->shared->lock);
    return q;
}

struct name_question *names_encode(struct names *n, const void *payload, size_t size, double limit_s, name_done done, void *arg, struct err *e)
{
    return put(n, work_new(ENCODE, payload, size), limit_s, done, arg, e);
}

struct name_question *names_decode(struct names *n, const void *cred, size_t size, double limit_s, name_done done, void *arg, struct err *e)
{
    return put(n, work_new(DECODE, cred, size), limit_s, done, arg, e);
}

struct name_question *names_user(struct names *n, uid_t uid, double limit_s, name_done done, void *arg, struct err *e)
{
    struct work *w = work_new(USER, NULL, 0);

    w->uid = uid;
    return put(n, w, limit_s, done, arg, e);
}

struct name_question *names_resolve(struct names *n, const char *host, const char *port, double limit_s, name_done done, void *arg, struct err *e)
{
    struct work *w = work_new(RESOLVE, host, strlen(host));

    snprintf(w->port, sizeof(w->port), "%s", port);
    return put(n, w, limit_s, done, arg, e);
}
