/* writer_rig.h - a loop with a writer, changes that keep account of themselves, and a heartbeat that must not miss */
#ifndef SLUICE_WRITER_RIG_H
#define SLUICE_WRITER_RIG_H

#include <ev.h>

#include "state_test.h"
#include "writer.h"

enum { REQUESTS = 200000 };

struct request {
    struct rig *rig;
    enum change_kind kind;
    uint64_t id, seq;
    unsigned size;                       /* of its evidence */
    bool answered;
    int  rc;
    char text[160];
};

struct rig {
    struct ev_loop *loop;
    struct writer *w;
    const char *dir;
    struct request *requests;
    uint64_t n, answered[3], refused[3], order_broken, last_answered;
    ev_timer tick, beat, limit;
    bool (*until)(struct rig *);
    bool over;
    int64_t last_beat, longest_gap;
    void (*on_tick)(struct rig *);
};

static inline int rig_write(struct db *db, void *arg, struct err *e)
{
    struct request *r = arg;
    char *evidence = malloc(r->size + 1);
    memset(evidence, 'e', r->size);
    evidence[r->size] = '\0';
    struct row_mark m = mark_of(r->id, "n001", "rig");
    struct row_event ev = { .time = (int64_t)r->id, .node = "n001", .who = "rig", .what = "mark" };
    struct row_crash twin = { .id = r->id, .time = 1, .word = "twin" };
    m.evidence = evidence;
    int rc = rows_put_mark(db, &m, e) < 0 || rows_put_event(db, &ev, e) < 0 || rows_put_crash(db, &twin, e) < 0 ? -1 : 0;
    r->seq = ev.seq;
    free(evidence);
    return rc;
}

static inline void rig_then(void *arg, int rc, const struct err *e)
{
    struct request *r = arg;
    struct rig *g = r->rig;
    assert_false(r->answered);
    r->answered = true;
    r->rc = rc;
    assert_true(rc == 0 ? e == NULL : e != NULL);
    if (e)
        snprintf(r->text, sizeof r->text, "%.159s", e->text);
    g->answered[r->kind]++;
    if (rc < 0)
        g->refused[r->kind]++;
    if (r->id < g->last_answered)
        g->order_broken++;
    g->last_answered = r->id;
}

static inline struct request *rig_put(struct rig *g, enum change_kind kind, unsigned size)
{
    assert_true(g->n + 1 < REQUESTS);
    struct request *r = &g->requests[++g->n];
    *r = (struct request){ .rig = g, .kind = kind, .id = g->n, .size = size };
    writer_put(g->w, kind, rig_write, rig_then, r);
    return r;
}

static void rig_on_beat(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct rig *g = t->data;
    (void)loop;
    (void)revents;
    int64_t now = clock_mono_ns();
    if (g->last_beat && now - g->last_beat > g->longest_gap)
        g->longest_gap = now - g->last_beat;
    g->last_beat = now;
}

static void rig_on_tick(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct rig *g = t->data;
    (void)revents;
    if (g->on_tick)
        g->on_tick(g);
    if (g->until && g->until(g))
        ev_break(loop, EVBREAK_ALL);
}

static void rig_on_limit(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct rig *g = t->data;
    (void)revents;
    g->over = true;
    ev_break(loop, EVBREAK_ALL);
}

static inline void rig_start(struct rig *g, const char *dir)
{
    *g = (struct rig){ .loop = ev_loop_new(EVFLAG_AUTO), .dir = dir, .requests = calloc(REQUESTS, sizeof(struct request)) };
    struct err e = { 0 };
    g->w = writer_create(g->loop, open_good(dir), &e);
    assert_non_null(g->w);
    ev_timer_init(&g->beat, rig_on_beat, 0, 0.02);
    ev_timer_init(&g->tick, rig_on_tick, 0, 0.01);          /* 100 a second */
    ev_timer_init(&g->limit, rig_on_limit, 0, 0);
    g->beat.data = g->tick.data = g->limit.data = g;
    ev_timer_start(g->loop, &g->beat);
    ev_timer_start(g->loop, &g->tick);
}

/* Runs the loop until the condition holds; false when it did not within the time. */
static inline bool rig_run(struct rig *g, bool (*until)(struct rig *), double limit_s)
{
    g->until = until;
    g->over = false;
    g->last_beat = 0;
    ev_now_update(g->loop);
    ev_timer_set(&g->limit, limit_s, 0);
    ev_timer_start(g->loop, &g->limit);
    ev_run(g->loop, 0);
    ev_timer_stop(g->loop, &g->limit);
    return !g->over;
}

static inline bool rig_all_answered(struct rig *g)
{
    return g->answered[0] + g->answered[1] + g->answered[2] == g->n;
}

static inline bool rig_never(struct rig *g)
{
    (void)g;
    return false;
}

static inline void rig_pass(struct rig *g, double seconds)
{
    assert_false(rig_run(g, rig_never, seconds));
}

static inline unsigned rig_stop(struct rig *g, double limit_s)
{
    unsigned lost = writer_destroy(g->w, limit_s);
    ev_loop_destroy(g->loop);
    g->w = NULL;
    return lost;
}

static inline struct writer_state rig_state(struct rig *g)
{
    struct writer_state s;
    writer_state(g->w, &s);
    return s;
}

/* What is on disk against what was answered: acknowledged = there and whole, refused = not there. */
static int rig_see_mark(void *arg, const struct row_mark *m)
{
    struct rig *g = arg;
    assert_in_range(m->id, 1, g->n);
    struct request *r = &g->requests[m->id];
    assert_int_equal(strlen(m->evidence), r->size);
    if (r->answered && r->rc < 0)
        fail_msg("change %" PRIu64 " was refused and is on disk", m->id);
    r->id = 0;                                               /* seen */
    return 0;
}

static int rig_see_event(void *arg, const struct row_event *ev)
{
    struct rig *g = arg;
    struct request *r = &g->requests[ev->time];
    assert_int_equal(r->id, 0);                              /* its mark is there too */
    if (r->answered)
        assert_int_equal(ev->seq, r->seq);
    assert_true(ev->seq > g->last_answered);
    g->last_answered = ev->seq;
    return 0;
}

static int rig_see_twin(void *arg, const struct row_crash *c)
{
    (void)c;
    ++*(uint64_t *)arg;
    return 0;
}

/* After rig_stop. */
static inline void rig_audit(struct rig *g)
{
    struct db *db = open_good(g->dir);
    uint64_t twins = 0, marks = marks_in(db, false);
    good(rows_load_marks(db, false, rig_see_mark, g, why));
    g->last_answered = 0;
    good(rows_load_events(db, NULL, 0, REQUESTS, rig_see_event, g, why));
    good(rows_load_crashes(db, rig_see_twin, &twins, why));
    assert_int_equal(twins, marks);
    for (uint64_t i = 1; i <= g->n; i++) {
        if (g->requests[i].answered && g->requests[i].rc == 0 && g->requests[i].id != 0)
            fail_msg("change %" PRIu64 " was acknowledged and is not on disk", i);
    }
    db_close(db);
    free(g->requests);
}

#endif
