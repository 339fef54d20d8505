/* events.c - history: numbered lines, the newest in memory, the old ones on disk
 *
 * From: change.c and history_note.  To: GetHistory.
 * A question that memory can answer is answered at once; any other goes to a reader of the database in a helper thread, so that the loop
 * never waits for the disk.
 */
#include "config.h"

#include "events.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "helper.h"
#include "mem.h"
#include "node.h"
#include "sluiced.h"
#include "watch.h"

enum {
    LIMIT_DEFAULT = 1000,
    LIMIT_MOST = 10000,
    NAMES_SINGLY = 64,                   /* up to so many nodes are asked for one by one */
};

struct history {
    struct sluiced *d;
    struct event *ring[HISTORY_KEPT];
    unsigned first, n;                   /* the oldest, how many */
    uint64_t seq;                        /* of the newest line on disk */
};

/* ---- one line ---- */

struct event *event_create(const char *node, const char *who, const char *what, const char *before, const char *after, const char *reason)
{
    struct event *ev = mem_zalloc(sizeof(*ev));

    *ev = (struct event){ .time = clock_wall_ns(), .node = mem_strdup(node), .who = mem_strdup(who), .what = mem_strdup(what),
                          .before = mem_strdup(before), .after = mem_strdup(after), .reason = mem_strdup(reason) };
    return ev;
}

void event_destroy(struct event *ev)
{
    if (ev == NULL)
        return;
    free(ev->node);
    free(ev->who);
    free(ev->what);
    free(ev->before);
    free(ev->after);
    free(ev->reason);
    free(ev);
}

struct event *event_from_row(const struct row_event *r)
{
    struct event *ev = event_create(r->node, r->who, r->what, r->before, r->after, r->reason);

    ev->seq = r->seq;
    ev->time = r->time;
    return ev;
}

void event_message(const struct event *ev, Sluice__Event *m)
{
    sluice__event__init(m);
    m->has_seq = m->has_time = true;
    m->seq = ev->seq;
    m->time = ev->time;
    m->node = ev->node;
    m->who = ev->who;
    m->what = ev->what;
    m->before = ev->before;
    m->after = ev->after;
    m->reason = ev->reason;
}

int event_write(struct event *ev, struct db *db, struct err *e)
{
    struct row_event r = { .time = ev->time, .node = ev->node, .who = ev->who, .what = ev->what,
                           .before = ev->before, .after = ev->after, .reason = ev->reason };

    if (rows_put_event(db, &r, e) < 0)
        return -1;
    ev->seq = r.seq;
    return 0;
}

/* ---- the newest in memory ---- */

static struct event *ring_at(const struct history *h, unsigned i)
{
    return h->ring[(h->first + i) % HISTORY_KEPT];
}

void history_add(struct history *h, struct event *ev)
{
    if (h->n == HISTORY_KEPT) {
        event_destroy(h->ring[h->first]);
        h->ring[h->first] = ev;
        h->first = (h->first + 1) % HISTORY_KEPT;
    } else {
        h->ring[(h->first + h->n++) % HISTORY_KEPT] = ev;
    }
    if (ev->seq > h->seq)
        h->seq = ev->seq;
    if (h->d->watches != NULL)
        watches_tell(h->d->watches);
}

int history_from(const struct history *h, uint64_t from, struct event **out, unsigned most)
{
    unsigned low = 0, high = h->n;
    int n = 0;

    if (h->n == HISTORY_KEPT && from < ring_at(h, 0)->seq)
        return -1;
    while (low < high) {
        unsigned mid = (low + high) / 2;

        if (ring_at(h, mid)->seq < from)
            low = mid + 1;
        else
            high = mid;
    }
    for (; low < h->n && (unsigned)n < most; low++)
        out[n++] = ring_at(h, low);
    return n;
}

static int load_one(void *arg, const struct row_event *r)
{
    history_add(arg, event_from_row(r));
    return 0;
}

struct history *history_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct history *h = mem_zalloc(sizeof(*h));
    struct row_ids ids = { 0 };

    h->d = d;
    if (rows_load_events(db, NULL, 0, HISTORY_KEPT, load_one, h, e) < 0 || rows_load_ids(db, &ids, e) < 0) {
        history_destroy(h);
        return NULL;
    }
    h->seq = ids.event > h->seq ? ids.event : h->seq;        /* a restored state goes on behind what was given out before */
    return h;
}

void history_destroy(struct history *h)
{
    if (h == NULL)
        return;
    for (unsigned i = 0; i < h->n; i++)
        event_destroy(ring_at(h, i));
    free(h);
}

uint64_t history_seq(const struct history *h)
{
    return h->seq;
}

struct note { struct sluiced *d; struct event *ev; };

static int note_write(struct db *db, void *arg, struct err *e)
{
    return event_write(((struct note *)arg)->ev, db, e);
}

static void note_written(void *arg, int rc, const struct err *why)
{
    struct note *n = arg;

    (void)why;
    if (rc == 0)
        history_add(n->d->history, n->ev);
    else
        event_destroy(n->ev);
    free(n);
}

void history_note(struct sluiced *d, const char *node, const char *who, const char *what, const char *before, const char *after, const char *reason)
{
    struct note *n = mem_zalloc(sizeof(*n));

    n->d = d;
    n->ev = event_create(node, who, what, before, after, reason);
    writer_put(d->writer, CHANGE_KEEP, note_write, note_written, n);
}

/* ---- GET_HISTORY ---- */

/* A question and, oldest first, what was found. Owned by the loop, then by the thread, then by the loop. */
struct query {
    struct session_ref asker;
    char *dir;
    char **names;
    unsigned n_names;
    int64_t since;
    unsigned limit;
    struct event **found;
    unsigned n_found;
    int rc;
    struct err why;
};

static struct query *query_create(struct session *s, uint32_t id, const Sluice__GetHistory *q)
{
    struct query *out = mem_zalloc(sizeof(*out));

    out->asker = session_refer(s, id);
    out->dir = mem_strdup(s->d->conf->state_dir);
    out->since = q->has_since ? q->since : 0;
    out->limit = q->has_limit && q->limit > 0 ? q->limit : LIMIT_DEFAULT;
    if (out->limit > LIMIT_MOST)
        out->limit = LIMIT_MOST;
    out->names = mem_array(q->n_names + 1, sizeof(*out->names));
    for (; out->n_names < q->n_names; out->n_names++)
        out->names[out->n_names] = mem_strdup(q->names[out->n_names]);
    return out;
}

static void query_destroy(struct query *q)
{
    for (unsigned i = 0; i < q->n_found; i++)
        event_destroy(q->found[i]);
    for (unsigned i = 0; i < q->n_names; i++)
        free(q->names[i]);
    free(q->found);
    free(q->names);
    free(q->dir);
    free(q);
}

static bool is_asked_for(const struct query *q, const char *node)
{
    for (unsigned i = 0; i < q->n_names; i++) {
        if (node != NULL && strcmp(q->names[i], node) == 0)
            return true;
    }
    return q->n_names == 0;
}

/* found: oldest first. A list too long for one frame loses its oldest lines. */
static void query_answer(struct session *s, uint32_t id, struct event *const *found, unsigned n)
{
    const size_t most = frame_type(SLUICE__TYPE__HISTORY)->max_length;
    Sluice__History history = SLUICE__HISTORY__INIT;
    Sluice__Event *bodies = mem_array(n + 1, sizeof(*bodies));
    size_t size = 0;

    history.events = mem_array(n + 1, sizeof(*history.events));
    history.events += n;
    for (; history.n_events < n; history.n_events++) {
        Sluice__Event *m = &bodies[n - 1 - history.n_events];

        event_message(found[n - 1 - history.n_events], m);
        size += sluice__event__get_packed_size(m) + 8;
        if (size > most)
            break;
        *--history.events = m;
    }
    session_answer(s, id, &history.base);
    free(history.events - (n - history.n_events));
    free(bodies);
}

/* True when memory holds everything that was asked for; then found is filled (borrowed events). */
static bool ring_answers(const struct history *h, const struct query *q, struct event **found, unsigned *n)
{
    bool enough = h->n < HISTORY_KEPT || h->n == 0 || ring_at(h, 0)->seq <= 1;

    *n = 0;
    for (unsigned i = h->n; i-- > 0;) {
        struct event *ev = ring_at(h, i);

        if (*n == q->limit || ev->time < q->since) {
            enough = true;
            break;
        }
        if (is_asked_for(q, ev->node))
            found[LIMIT_MOST - ++*n] = ev;
    }
    return enough;
}

static int found_add(void *arg, const struct row_event *r)
{
    struct query *q = arg;

    if (!is_asked_for(q, r->node))
        return 0;
    q->found = mem_grow(q->found, q->n_found + 1, sizeof(*q->found));
    q->found[q->n_found++] = event_from_row(r);
    return 0;
}

static int by_seq(const void *a, const void *b)
{
    const struct event *x = *(struct event *const *)a, *y = *(struct event *const *)b;

    return (x->seq > y->seq) - (x->seq < y->seq);
}

static int query_read(struct query *q, struct db *db)
{
    if (q->n_names == 0 || q->n_names > NAMES_SINGLY)
        return rows_load_events(db, NULL, q->since, q->n_names == 0 ? q->limit : LIMIT_MOST, found_add, q, &q->why);
    for (unsigned i = 0; i < q->n_names; i++) {
        if (rows_load_events(db, q->names[i], q->since, q->limit, found_add, q, &q->why) < 0)
            return -1;
    }
    qsort(q->found, q->n_found, sizeof(*q->found), by_seq);
    return 0;
}

/* In the helper's thread. */
static void query_work(void *arg)
{
    struct query *q = arg;
    struct db *db = db_open_reader(q->dir, &q->why);

    q->rc = db == NULL ? -1 : query_read(q, db);
    db_close(db);
}

static void query_done(void *arg)
{
    struct query *q = arg;
    struct session *s = session_find(q->asker);
    unsigned skip = q->n_found > q->limit ? q->n_found - q->limit : 0;

    if (s != NULL && q->rc < 0)
        session_error(s, q->asker.id, &q->why, NULL);
    else if (s != NULL)
        query_answer(s, q->asker.id, q->found + skip, q->n_found - skip);
    query_destroy(q);
}

void history_get(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetHistory *asked = m;
    struct err e;

    if (farm_check_names(s->d->farm, asked->names, asked->n_names, NULL, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    struct event **found = mem_array(LIMIT_MOST, sizeof(*found));
    struct query *q = query_create(s, id, m);
    unsigned n;

    if (ring_answers(s->d->history, q, found, &n)) {
        query_answer(s, id, found + LIMIT_MOST - n, n);
        query_destroy(q);
    } else if (helper_run(s->d->helper, query_work, query_done, q, &e) < 0) {
        session_error(s, id, &e, NULL);
        query_destroy(q);
    }
    free(found);
}
