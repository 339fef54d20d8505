/* watch.c - history as a stream: one question, one answer with what came from a number on
 *
 * From: Watch; events.c, which says that there is something new.  To: the asker.
 * The place in the stream is the asker's: it asks for the next number when it has read the last answer. So a client that does not read
 * costs one answer (ANSWER_BYTES at most), and whoever comes back goes on where it was, as events keep their numbers for ever. A session has one question
 * open at a time. What memory does not hold any more is read by a helper thread.
 */
#include "config.h"

#include "watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/queue.h>

#include "clock.h"
#include "events.h"
#include "helper.h"
#include "mem.h"

enum {
    LIMIT_DEFAULT = 1000,
    LIMIT_MOST = 10000,
    ANSWER_BYTES = 1 << 20,
    MOST_ASKS = 1024,
};
static const double wait_most_s = 60;
static const double sweep_s = 0.5;

struct ask {
    TAILQ_ENTRY(ask) entry;
    struct session_ref asker;
    uint64_t from;
    unsigned limit;
    double until;                        /* monotonic s */
};

struct watches {
    struct sluiced *d;
    TAILQ_HEAD(, ask) asks;
    unsigned n;
    ev_prepare turn;                     /* once a turn of the loop, after something new came */
    ev_timer sweep;
};

/* ---- answering ---- */

/* What does not fit stays for the next question. */
static void answer(struct session *s, uint32_t id, struct event *const *found, unsigned n)
{
    Sluice__History history = SLUICE__HISTORY__INIT;
    Sluice__Event *bodies = mem_array(n + 1, sizeof(*bodies));
    size_t size = 0;

    history.has_seq = true;
    history.seq = history_seq(s->d->history);
    history.events = mem_array(n + 1, sizeof(*history.events));
    for (unsigned i = 0; i < n; i++) {
        event_message(found[i], &bodies[i]);
        size += sluice__event__get_packed_size(&bodies[i]) + 8;
        if (size > ANSWER_BYTES && i > 0)
            break;
        history.events[history.n_events++] = &bodies[i];
    }
    session_answer(s, id, &history.base);
    free(history.events);
    free(bodies);
}

/* A question about what only the disk has. Owned by the loop, then by the thread, then by the loop. */
struct old {
    struct session_ref asker;
    char *dir;
    uint64_t from;
    unsigned limit, n;
    struct event **found;
    int rc;
    struct err why;
};

static int old_add(void *arg, const struct row_event *r)
{
    struct old *o = arg;

    o->found[o->n++] = event_from_row(r);
    return 0;
}

/* In the helper's thread. */
static void old_work(void *arg)
{
    struct old *o = arg;
    struct db *db = db_open_reader(o->dir, &o->why);

    o->rc = db == NULL ? -1 : rows_load_events_from(db, o->from, o->limit, old_add, o, &o->why);
    db_close(db);
}

static void old_free(struct old *o)
{
    for (unsigned i = 0; i < o->n; i++)
        event_destroy(o->found[i]);
    free(o->found);
    free(o->dir);
    free(o);
}

static void old_done(void *arg)
{
    struct old *o = arg;
    struct session *s = session_find(o->asker);

    if (s != NULL && o->rc < 0)
        session_error(s, o->asker.id, &o->why, NULL);
    else if (s != NULL)
        answer(s, o->asker.id, o->found, o->n);
    old_free(o);
}

/* False: the helper has no room now, the question waits for it. */
static bool old_ask(struct sluiced *d, const struct ask *a)
{
    struct old *o = mem_zalloc(sizeof(*o));

    *o = (struct old){ .asker = a->asker, .dir = mem_strdup(d->conf->state_dir), .from = a->from, .limit = a->limit,
                       .found = mem_array(a->limit, sizeof(*o->found)) };
    if (helper_run(d->helper, old_work, old_done, o, NULL) == 0)
        return true;
    old_free(o);
    return false;
}

/* True: answered, on its way, or its asker has gone. */
static bool ask_settle(struct watches *w, const struct ask *a)
{
    struct session *s = session_find(a->asker);
    struct event *found[LIMIT_MOST];
    int n;

    if (s == NULL)
        return true;
    n = history_from(w->d->history, a->from, found, a->limit);
    if (n < 0)
        return old_ask(w->d, a);
    if (n == 0 && clock_mono_s() < a->until)
        return false;
    answer(s, a->asker.id, found, (unsigned)n);
    return true;
}

static void settle_all(struct watches *w)
{
    struct ask *a, *next;

    for (a = TAILQ_FIRST(&w->asks); a != NULL; a = next) {
        next = TAILQ_NEXT(a, entry);
        if (!ask_settle(w, a))
            continue;
        TAILQ_REMOVE(&w->asks, a, entry);
        w->n--;
        free(a);
    }
}

/* ---- when ---- */

static void turn_cb(struct ev_loop *loop, ev_prepare *p, int events)
{
    (void)events;
    ev_prepare_stop(loop, p);
    settle_all(p->data);
}

static void sweep_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop;
    (void)events;
    settle_all(t->data);
}

void watches_tell(struct watches *w)
{
    if (w->n > 0)
        ev_prepare_start(w->d->loop, &w->turn);
}

struct watches *watches_create(struct sluiced *d)
{
    struct watches *w = mem_zalloc(sizeof(*w));

    w->d = d;
    TAILQ_INIT(&w->asks);
    ev_prepare_init(&w->turn, turn_cb);
    ev_timer_init(&w->sweep, sweep_cb, sweep_s, sweep_s);
    w->turn.data = w->sweep.data = w;
    ev_timer_start(d->loop, &w->sweep);
    return w;
}

void watches_destroy(struct watches *w)
{
    struct ask *a;

    if (w == NULL)
        return;
    ev_prepare_stop(w->d->loop, &w->turn);
    ev_timer_stop(w->d->loop, &w->sweep);
    while ((a = TAILQ_FIRST(&w->asks)) != NULL) {
        TAILQ_REMOVE(&w->asks, a, entry);
        free(a);
    }
    free(w);
}

/* ---- WATCH ---- */

static bool has_asked(const struct watches *w, const struct session *s)
{
    const struct ask *a;

    TAILQ_FOREACH(a, &w->asks, entry) {
        if (a->asker.number == s->number)
            return true;
    }
    return false;
}

static int check_ask(const struct watches *w, const struct session *s, const Sluice__Watch *m, struct err *e)
{
    uint64_t newest = history_seq(w->d->history);

    if (m->has_from && m->from > newest + 1)
        return err_set(e, ERR_NOT_FOUND, "there is no event %" PRIu64 " yet: the newest is %" PRIu64, m->from, newest);
    if (m->has_wait && !(m->wait >= 0 && m->wait <= wait_most_s))
        return err_set(e, ERR_USAGE, "watch: a wait of %g s; 0 to %g s are possible", m->wait, wait_most_s);
    if (has_asked(w, s))
        return err_set(e, ERR_STATE, "watch: the question before this one is still open");
    if (w->n >= MOST_ASKS)
        return err_set(e, ERR_STATE, "watch: %d others wait for events already", MOST_ASKS);
    return 0;
}

void watch_ask(struct session *s, uint32_t id, const void *message)
{
    const Sluice__Watch *m = message;
    struct watches *w = s->d->watches;
    struct ask *a;
    struct err e;

    if (check_ask(w, s, m, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    a = mem_zalloc(sizeof(*a));
    a->asker = session_refer(s, id);
    a->from = m->has_from ? m->from : history_seq(w->d->history) + 1;
    a->limit = !m->has_limit || m->limit == 0 ? LIMIT_DEFAULT : m->limit > LIMIT_MOST ? LIMIT_MOST : m->limit;
    a->until = clock_mono_s() + (m->has_wait ? m->wait : 0);
    TAILQ_INSERT_TAIL(&w->asks, a, entry);
    w->n++;
    watches_tell(w);
}
