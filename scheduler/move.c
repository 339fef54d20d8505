/* move.c - nodes change pools
 *
 * From: MOVE_NODES, CANCEL_MOVE, the clock, node_emptied.  To: node.c, flow.c, change.c; WAIT hears of the end.
 * A node has at most one open move. It stands in exactly one pool at every instant: in the old one until the switch is on disk. A draining
 * node takes nothing new; what it holds is finished (drained), or taken back (now, or at the deadline).
 */
#include "config.h"

#include "move.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "flow.h"
#include "hostlist.h"
#include "log.h"
#include "mem.h"
#include "slurm_farm.h"
#include "str.h"

enum { KEPT_ENDED = 8192, MOST_WAITING = 1024 };      /* ended: those of a large farm together, whose ends are asked for one by one */

const char *const move_state_name[MOVE_FAILED + 1] = { "pending", "draining", "done", "cancelled", "failed" };

struct move {
    TAILQ_ENTRY(move) entry;
    UT_hash_handle hh;                   /* by id */
    struct node *node;
    uint64_t id;
    int to;
    enum move_state state;
    char when[32];                       /* drained, now, at */
    char *requested_by, *text;
    int64_t at, deadline, created, ended;
    bool writing;                        /* its next state is on the way to the disk */
    bool evicted;
};
TAILQ_HEAD(move_queue, move);

struct waiter {
    TAILQ_ENTRY(waiter) entry;
    struct session_ref asker;
    uint64_t id;
    double until;                        /* monotonic s, 0 = no end */
};

struct moves {
    struct sluiced *d;
    uint64_t last_id;
    struct move_queue open, ended;       /* ended: the newest KEPT_ENDED */
    struct move *by_id;                  /* both */
    unsigned n_open, n_ended, n_waiting;
    TAILQ_HEAD(, waiter) waiters;
    bool begun;
};

struct moves *moves_create(struct sluiced *d, uint64_t last_id)
{
    struct moves *all = mem_zalloc(sizeof(*all));

    all->d = d;
    all->last_id = last_id;
    TAILQ_INIT(&all->open);
    TAILQ_INIT(&all->ended);
    TAILQ_INIT(&all->waiters);
    return all;
}

static void move_free(struct move *m)
{
    free(m->requested_by);
    free(m->text);
    free(m);
}

static void move_drop(struct moves *all, struct move_queue *q, struct move *m)
{
    TAILQ_REMOVE(q, m, entry);
    HASH_DEL(all->by_id, m);
    if (m->node->move == m)
        m->node->move = NULL;
    move_free(m);
}

static void queue_free(struct moves *all, struct move_queue *q)
{
    while (!TAILQ_EMPTY(q))
        move_drop(all, q, TAILQ_FIRST(q));
}

void moves_destroy(struct moves *all)
{
    struct waiter *w;

    if (all == NULL)
        return;
    queue_free(all, &all->open);
    queue_free(all, &all->ended);
    while ((w = TAILQ_FIRST(&all->waiters)) != NULL) {
        TAILQ_REMOVE(&all->waiters, w, entry);
        free(w);
    }
    free(all);
}

unsigned moves_open(const struct moves *all)
{
    return all->n_open;
}

bool move_is_executing(const struct move *m)
{
    return m->state == MOVE_DRAINING || (m->state == MOVE_PENDING && m->at == 0);      /* asked for, not on disk yet: it only blocks */
}

static bool is_open(const struct move *m)
{
    return m->state == MOVE_PENDING || m->state == MOVE_DRAINING;
}

/* ---- rows ---- */

static struct row_move move_row(const struct move *m, enum move_state state, const char *text)
{
    return (struct row_move){
        .id = m->id, .node = m->node->name, .to = pool_name[m->to], .when = m->when, .state = move_state_name[state],
        .requested_by = m->requested_by, .text = text, .at = m->at, .deadline = m->deadline, .created = m->created,
        .ended = state == MOVE_PENDING || state == MOVE_DRAINING ? 0 : clock_wall_ns(),
    };
}

static void change_pools(struct change *c, const struct node *n, int pool, int wanted)
{
    struct row_node row = { .name = n->name, .class = n->class, .pool = pool_name[pool], .wanted_pool = pool_name[wanted],
                            .added = n->added_at, .shm_wanted = n->shm_wanted, .nice_wanted = n->nice_wanted };

    change_node(c, &row);
}

static void change_state(struct change *c, const struct move *m, enum move_state state, const char *text)
{
    struct row_move row = move_row(m, state, text);

    change_move(c, &row);
}

/* ---- the end of a move ---- */

static void waited(struct moves *all, struct waiter *w, const struct move *m)
{
    struct session *s = session_find(w->asker);
    Sluice__Waited out = SLUICE__WAITED__INIT;
    char text[200];

    snprintf(text, sizeof(text), "move %llu of %s to %s: %s%s%.80s", (unsigned long long)m->id, m->node->name, pool_name[m->to],
             move_state_name[m->state], m->text == NULL ? "" : ": ", m->text == NULL ? "" : m->text);
    out.has_code = true;
    out.code = m->state == MOVE_DONE ? ERR_NONE : m->state == MOVE_CANCELLED ? ERR_CANCELLED : ERR_FAILED;
    out.text = text;
    if (s != NULL)
        session_answer(s, w->asker.id, &out.base);
    TAILQ_REMOVE(&all->waiters, w, entry);
    all->n_waiting--;
    free(w);
}

static void tell_waiters(struct moves *all, const struct move *m)
{
    struct waiter *w, *next;

    for (w = TAILQ_FIRST(&all->waiters); w != NULL; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (w->id == m->id)
            waited(all, w, m);
    }
}

static void keep_ended(struct moves *all, struct move *m)
{
    TAILQ_INSERT_TAIL(&all->ended, m, entry);
    if (++all->n_ended <= KEPT_ENDED)
        return;
    all->n_ended--;
    move_drop(all, &all->ended, TAILQ_FIRST(&all->ended));
}

static void move_end(struct move *m, enum move_state state, const char *text)
{
    struct node *n = m->node;
    struct moves *all = n->d->moves;

    m->state = state;
    m->ended = clock_wall_ns();
    if (text != NULL && text != m->text) {
        free(m->text);
        m->text = mem_strdup(text);
    }
    n->move = NULL;
    n->wanted_pool = n->pool;
    TAILQ_REMOVE(&all->open, m, entry);
    all->n_open--;
    tell_waiters(all, m);
    keep_ended(all, m);
}

/* ---- the switch ---- */

static void switched(struct change *c, void *arg, int rc, const struct err *why)
{
    struct move *m = arg;
    struct node *n = m->node;

    (void)c;
    m->writing = false;
    if (rc < 0) {                        /* only at the end of the program: it goes on at the next start */
        log_warning("node %s: the move to %s is not stored: %s", n->name, pool_name[m->to], why->text);
        return;
    }
    log_info("node %s: moved from %s to %s", n->name, pool_name[n->pool], pool_name[m->to]);
    n->pool = m->to;
    move_end(m, MOVE_DONE, NULL);
    node_send_settings(n);
    node_changed(n);
}

static void move_switch(struct move *m)
{
    struct node *n = m->node;
    struct change *c = change_create(n->d);
    char reason[120];

    snprintf(reason, sizeof(reason), "move %llu, asked for by %.80s", (unsigned long long)m->id, m->requested_by);
    m->writing = true;
    change_pools(c, n, m->to, m->to);
    change_state(c, m, MOVE_DONE, NULL);
    change_event(c, n->name, "moved", pool_name[n->pool], pool_name[m->to], reason);
    change_put(c, CHANGE_KEEP, switched, m);
}

static void move_evict(struct move *m, const char *why)
{
    if (m->evicted)
        return;
    m->evicted = true;
    flow_evict(m->node, why);
}

/* One step, whenever something about the node or the time has changed. */
static void move_step(struct move *m)
{
    char why[80];

    if (m->state != MOVE_DRAINING || m->writing || !m->node->d->moves->begun)
        return;
    if (m->node->n_tfs == 0) {
        if (slurm_hand_over(m->node, m->to, strcmp(m->when, "now") == 0 || (m->deadline != 0 && clock_wall_ns() >= m->deadline)))
            move_switch(m);
        return;
    }
    snprintf(why, sizeof(why), "move %llu to %s", (unsigned long long)m->id, pool_name[m->to]);
    if (strcmp(m->when, "now") == 0)
        move_evict(m, why);
    else if (m->deadline != 0 && clock_wall_ns() >= m->deadline)
        move_evict(m, "the deadline of its move");
}

void node_emptied(struct node *n)
{
    if (n->move != NULL)
        move_step(n->move);
    shm_check(n);
}

void move_node_changed(struct node *n)
{
    if (n->move != NULL)
        move_step(n->move);
}

/* ---- what a pool can spare ---- */

int pool_spare_one(struct spare *s, const struct node *n, struct err *e)
{
    struct sluiced *d = n->d;
    const struct conf_pool *p = &d->conf->pools[n->pool];
    unsigned good, usable, min = 0;
    struct verdict v;
    uint64_t run = 0;

    node_judge(n, &v);
    if (!verdict_is_good(&v))
        return 0;                        /* it is missed already */
    if (!s->counted[n->pool]) {
        s->counted[n->pool] = true;
        s->good[n->pool] = farm_good(d->farm, n->pool);
        s->usable[n->pool] = farm_usable(d->farm, n->pool);
    }
    good = s->good[n->pool] - (s->good[n->pool] > 0);
    usable = s->usable[n->pool] - (v.usable && s->usable[n->pool] > 0);
    if (good < p->min_good)
        return err_set(e, ERR_STATE, "pool %s would have %u usable node%s, its min_good is %u", pool_name[n->pool], good, good == 1 ? "" : "s", p->min_good);
    if (v.usable && run_uses_pool(d, n->pool, &min, &run) && usable < min)
        return err_set(e, ERR_STATE, "pool %s would have %u usable node%s, run %llu wants at least %u", pool_name[n->pool], usable, usable == 1 ? "" : "s",
                       (unsigned long long)run, min);
    s->good[n->pool] = good;
    s->usable[n->pool] = usable;
    return 0;
}

/* ---- MOVE_NODES ---- */

struct wish {
    int to;
    bool timed, now;
    const Sluice__MoveNodes *q;
    struct spare spare;
    const char *word;
};

static int wish_read(struct wish *w, const Sluice__MoveNodes *q, struct err *e)
{
    const char *when = q->when == NULL || q->when[0] == '\0' ? "drained" : q->when;

    memset(w, 0, sizeof(*w));
    w->q = q;
    w->now = strcmp(when, "now") == 0;
    w->timed = q->has_at && q->at != 0;
    if (q->n_names == 0)
        return err_set(e, ERR_USAGE, "no node is named");
    if (pool_parse(q->to, &w->to, e) < 0)
        return -1;
    if (!w->now && !w->timed && strcmp(when, "drained") != 0)
        return err_set(e, ERR_USAGE, "when '%.60s': drained, now, or a time", when);
    if (w->timed && q->at <= clock_wall_ns())
        return err_set(e, ERR_USAGE, "the time of the move is in the past");
    if (q->has_deadline && q->deadline != 0 && q->deadline <= clock_wall_ns())
        return err_set(e, ERR_USAGE, "the deadline of the move is in the past");
    if (w->timed && q->has_deadline && q->deadline != 0 && q->deadline <= q->at)
        return err_set(e, ERR_USAGE, "the deadline of the move comes before its time: one after it is wanted, counted from now");
    return 0;
}

int move_refuse(const struct node *n, struct err *e)
{
    const struct move *m = n->move;
    char at[CLOCK_TEXT];

    if (m->state == MOVE_PENDING && m->at != 0)
        return err_set(e, ERR_STATE, "node %s: is to move to %s at %s (move %llu of %.80s); 'sluice move --cancel %llu' takes that back", n->name, pool_name[m->to],
                       clock_rfc3339(m->at, at), (unsigned long long)m->id, m->requested_by, (unsigned long long)m->id);
    return err_set(e, ERR_STATE, "node %s: is moving to %s already (move %llu of %.80s); 'sluice move --cancel %llu' ends that", n->name, pool_name[m->to],
                   (unsigned long long)m->id, m->requested_by, (unsigned long long)m->id);
}

/* Whoever asks for "now" while a move to the same pool waits for the node to empty does not want to wait any longer. */
static bool may_hurry(const struct wish *w, const struct move *m)
{
    return w->now && m->to == w->to && m->state == MOVE_DRAINING && !m->writing && strcmp(m->when, "now") != 0;
}

enum { JUDGED_TWICE = -2, JUDGED_NO = -1, JUDGED_THERE, JUDGED_MOVES, JUDGED_HURRIES };

/* A node that has an open move. */
static int judge_again(const struct wish *w, const struct node *n, struct err *e)
{
    struct wish now = *w;

    if (may_hurry(w, n->move))
        return JUDGED_HURRIES;
    move_refuse(n, e);
    now.now = true;
    return may_hurry(&now, n->move) ? err_set(e, ERR_STATE, "%s, the same with --when now ends its waiting", e->text) : JUDGED_NO;
}

static int wish_check(struct wish *w, struct sluiced *d, const char *name, struct node **out, struct err *e)
{
    struct node *n = farm_node(d->farm, name);

    *out = n;
    if (n == NULL)
        return err_set(e, ERR_NOT_FOUND, "node %.63s: there is no such node", name);
    if (!n->added || n->retiring)
        return err_set(e, ERR_STATE, "node %s: is not added to the farm", n->name);
    if (n->move != NULL)
        return judge_again(w, n, e);
    if (n->pool == w->to)
        return JUDGED_THERE;
    if (!w->timed && pool_spare_one(&w->spare, n, e) < 0) {
        w->word = "PoolMinimum";
        return err_prefix(e, "node %s", n->name);
    }
    return JUDGED_MOVES;
}

static struct move *move_make(struct change *c, const struct wish *w, struct node *n)
{
    struct moves *all = n->d->moves;
    struct move *m = mem_zalloc(sizeof(*m));

    m->node = n;
    m->id = ++all->last_id;
    m->to = w->to;
    m->state = MOVE_PENDING;
    snprintf(m->when, sizeof(m->when), "%s", w->timed ? "at" : w->now ? "now" : "drained");
    m->requested_by = mem_strdup(change_author(c));
    m->at = w->timed ? w->q->at : 0;
    m->deadline = w->q->has_deadline ? w->q->deadline : 0;
    m->created = clock_wall_ns();
    m->writing = true;
    n->move = m;
    HASH_ADD(hh, all->by_id, id, sizeof(m->id), m);
    TAILQ_INSERT_TAIL(&all->open, m, entry);
    all->n_open++;
    return m;
}

struct batch { unsigned n, n_hurried; struct move **moves, **hurried; };

static void batch_free(struct batch *b)
{
    free(b->moves);
    free(b->hurried);
    free(b);
}

/* Nobody has heard of it: as if it had never been. */
static void move_forget(struct move *m)
{
    struct moves *all = m->node->d->moves;

    m->node->wanted_pool = m->node->pool;
    all->n_open--;
    move_drop(all, &all->open, m);
}

static void asked_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;

    (void)c;
    (void)why;
    for (unsigned i = 0; i < b->n; i++) {
        struct move *m = b->moves[i];
        struct node *n = m->node;

        m->writing = false;
        if (rc < 0) {
            move_forget(m);
            node_changed(n);
            continue;
        }
        n->wanted_pool = m->to;
        if (m->at == 0)
            m->state = MOVE_DRAINING;
        node_changed(n);                 /* steps it, too */
    }
    for (unsigned i = 0; i < b->n_hurried; i++) {
        struct move *m = b->hurried[i];

        m->writing = false;
        if (rc == 0)
            snprintf(m->when, sizeof(m->when), "now");
        node_changed(m->node);
    }
    batch_free(b);
}

static void move_ask(struct change *c, struct batch *b, const struct wish *w, struct node *n)
{
    struct move *m;

    if (w->q->dry_run) {
        change_result(c, n->name, ERR_NONE, 0, "would move from %s to %s", pool_name[n->pool], pool_name[w->to]);
        return;
    }
    m = move_make(c, w, n);
    node_changed(n);
    b->moves = mem_grow(b->moves, b->n + 1, sizeof(*b->moves));
    b->moves[b->n++] = m;
    change_state(c, m, m->at == 0 ? MOVE_DRAINING : MOVE_PENDING, NULL);
    change_pools(c, n, n->pool, w->to);
    change_event(c, n->name, "move asked for", pool_name[n->pool], pool_name[w->to], m->when);
    change_result(c, n->name, ERR_NONE, m->id, "move %llu from %s to %s: %s", (unsigned long long)m->id, pool_name[n->pool], pool_name[w->to], m->when);
}

/* The move that is there goes on, under its number. */
static void move_hurry(struct change *c, struct batch *b, const struct wish *w, struct node *n)
{
    struct move *m = n->move;
    struct row_move row = move_row(m, m->state, m->text);

    change_result(c, n->name, ERR_NONE, w->q->dry_run ? 0 : m->id, "%smove %llu from %s to %s: now, it waited", w->q->dry_run ? "would change " : "", (unsigned long long)m->id,
                  pool_name[n->pool], pool_name[w->to]);
    if (w->q->dry_run)
        return;
    m->writing = true;
    b->hurried = mem_grow(b->hurried, b->n_hurried + 1, sizeof(*b->hurried));
    b->hurried[b->n_hurried++] = m;
    row.when = "now";
    change_move(c, &row);
    change_event(c, n->name, "move asked for", pool_name[n->pool], pool_name[w->to], "now");
}

/* Every name is judged before anything is changed. rc[i] as wish_check says, or named before. -1: all or nothing, and one cannot. */
static int judge_all(struct wish *w, struct sluiced *d, struct node **nodes, int *rc, struct err *errs, struct err *e)
{
    struct hostlist *seen;
    int r = 0;

    if (!w->q->keep_going && farm_check_names(d->farm, w->q->names, w->q->n_names, NULL, e) < 0)
        return -1;
    seen = hostlist_create();
    for (size_t i = 0; r == 0 && i < w->q->n_names; i++) {
        rc[i] = hostlist_has(seen, w->q->names[i]) ? JUDGED_TWICE : wish_check(w, d, w->q->names[i], &nodes[i], &errs[i]);
        hostlist_add(seen, w->q->names[i], NULL);
        if (rc[i] == JUDGED_NO && !w->q->keep_going) {
            *e = errs[i];
            r = -1;
        }
    }
    hostlist_destroy(seen);
    return r;
}

static void ask_all(struct change *c, struct batch *b, struct wish *w, struct node **nodes, const int *rc, const struct err *errs)
{
    for (size_t i = 0; i < w->q->n_names; i++) {
        if (rc[i] == JUDGED_MOVES)
            move_ask(c, b, w, nodes[i]);
        else if (rc[i] == JUDGED_HURRIES)
            move_hurry(c, b, w, nodes[i]);
        else if (rc[i] == JUDGED_THERE)
            change_result(c, w->q->names[i], ERR_NONE, 0, "is in %s already", pool_name[w->to]);
        else if (rc[i] == JUDGED_NO)
            change_result(c, w->q->names[i], errs[i].code, 0, "%s", errs[i].text);
    }
}

void move_nodes(struct session *s, uint32_t id, const void *message)
{
    const Sluice__MoveNodes *q = message;
    struct node **nodes = mem_array(q->n_names + 1, sizeof(*nodes));
    struct err e, *errs = mem_array(q->n_names + 1, sizeof(*errs));
    int *rc = mem_array(q->n_names + 1, sizeof(*rc));
    struct wish w;
    struct change *c;
    struct batch *b;

    if (wish_read(&w, q, &e) < 0 || judge_all(&w, s->d, nodes, rc, errs, &e) < 0) {
        session_error(s, id, &e, w.word);
        goto done;
    }
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    ask_all(c, b, &w, nodes, rc, errs);
    if (change_size(c) > 0) {
        change_put(c, CHANGE_NEW, asked_written, b);
    } else {
        batch_free(b);
        change_answer_only(c);
    }
done:
    free(nodes);
    free(errs);
    free(rc);
}

/* ---- CANCEL_MOVE ---- */

static struct move *move_find(struct moves *all, uint64_t id)
{
    struct move *m;

    HASH_FIND(hh, all->by_id, &id, sizeof(id), m);
    return m;
}

static void cancelled(struct change *c, void *arg, int rc, const struct err *why)
{
    struct move *m = arg;
    struct node *n = m->node;

    (void)why;
    m->writing = false;
    if (rc == 0) {
        char text[120];

        snprintf(text, sizeof(text), "cancelled by %.90s", change_author(c));
        log_info("node %s: move %llu %s", n->name, (unsigned long long)m->id, text);
        move_end(m, MOVE_CANCELLED, text);
    }
    node_changed(n);
}

void move_cancel(struct session *s, uint32_t id, const void *message)
{
    uint64_t number = ((const Sluice__CancelMove *)message)->id;
    struct move *m = move_find(s->d->moves, number);
    struct change *c;
    struct err e;
    char text[120];

    if (m == NULL || !is_open(m) || m->writing) {
        if (m == NULL)
            err_set(&e, ERR_NOT_FOUND, "move %llu: there is no such move", (unsigned long long)number);
        else
            err_set(&e, ERR_STATE, "move %llu of %s: is %s", (unsigned long long)number, m->node->name, is_open(m) ? "being done this moment" : move_state_name[m->state]);
        session_error(s, id, &e, NULL);
        return;
    }
    c = change_asked(s, id);
    m->writing = true;
    snprintf(text, sizeof(text), "cancelled by %.90s", change_author(c));
    change_state(c, m, MOVE_CANCELLED, text);
    change_pools(c, m->node, m->node->pool, m->node->pool);
    change_event(c, m->node->name, "move cancelled", pool_name[m->to], pool_name[m->node->pool], "");
    change_result(c, m->node->name, ERR_NONE, m->id, "move %llu cancelled; stays in %s", (unsigned long long)m->id, pool_name[m->node->pool]);
    change_put(c, CHANGE_MARK, cancelled, m);
}

/* ---- time ---- */

static void failed(struct change *c, void *arg, int rc, const struct err *why)
{
    struct move *m = arg;
    struct node *n = m->node;

    (void)c;
    (void)why;
    m->writing = false;
    if (rc == 0)
        move_end(m, MOVE_FAILED, m->text);
    node_changed(n);
}

/* A move at a time that has come: what was not asked when it was far away is asked now. */
static void move_due(struct move *m, struct spare *spare)
{
    struct node *n = m->node;
    struct change *c;
    struct err e;

    if (pool_spare_one(spare, n, &e) == 0) {
        m->state = MOVE_DRAINING;
        node_changed(n);
        return;
    }
    log_warning("node %s: move %llu to %s failed: %s", n->name, (unsigned long long)m->id, pool_name[m->to], e.text);
    free(m->text);
    m->text = mem_strdup(e.text);
    m->writing = true;
    c = change_create(n->d);
    change_state(c, m, MOVE_FAILED, e.text);
    change_pools(c, n, n->pool, n->pool);
    change_event(c, n->name, "move failed", pool_name[n->pool], pool_name[m->to], e.text);
    change_put(c, CHANGE_KEEP, failed, m);
}

/* As moves says it. */
static const char *waits_for(struct moves *all, uint64_t id)
{
    const struct move *m = move_find(all, id);

    if (m == NULL || !is_open(m))
        return "";
    return m->text != NULL ? m->text : slurm_waits_for(m->node);
}

static void waiters_tick(struct moves *all)
{
    struct waiter *w, *next;
    struct session *s;
    const char *waits;
    struct err e;

    for (w = TAILQ_FIRST(&all->waiters); w != NULL; w = next) {
        next = TAILQ_NEXT(w, entry);
        s = session_find(w->asker);
        if (s != NULL && (w->until == 0 || clock_mono_s() < w->until))
            continue;
        waits = waits_for(all, w->id);
        err_set(&e, ERR_TIMEOUT, "move %llu is not done yet%s%s", (unsigned long long)w->id, waits[0] == '\0' ? "" : ": ", waits);
        if (s != NULL)
            session_error(s, w->asker.id, &e, NULL);
        TAILQ_REMOVE(&all->waiters, w, entry);
        all->n_waiting--;
        free(w);
    }
}

void moves_tick(struct moves *all)
{
    int64_t now = clock_wall_ns();
    struct spare spare = { 0 };
    struct move *m, *next;

    if (all == NULL || !all->begun)
        return;
    for (m = TAILQ_FIRST(&all->open); m != NULL; m = next) {
        next = TAILQ_NEXT(m, entry);
        if (m->state == MOVE_PENDING && !m->writing && now >= m->at)
            move_due(m, &spare);
        else
            move_step(m);
    }
    waiters_tick(all);
}

/* ---- restart ---- */

int move_restore(struct moves *all, const struct row_move *row, struct err *e)
{
    struct move *m = mem_zalloc(sizeof(*m));

    m->node = farm_obtain(all->d->farm, row->node);
    m->id = row->id;
    if (pool_parse(row->to, &m->to, e) < 0) {
        move_free(m);
        return err_prefix(e, "move %llu", (unsigned long long)row->id);
    }
    while (m->state < MOVE_FAILED && !str_equal(row->state, move_state_name[m->state]))
        m->state++;
    snprintf(m->when, sizeof(m->when), "%s", row->when == NULL ? "drained" : row->when);
    m->requested_by = mem_strdup(row->requested_by == NULL ? "?" : row->requested_by);
    m->text = mem_strdup(row->text);
    m->at = row->at;
    m->deadline = row->deadline;
    m->created = row->created;
    m->ended = row->ended;
    HASH_ADD(hh, all->by_id, id, sizeof(m->id), m);
    if (is_open(m) && m->node->move == NULL) {
        m->node->move = m;
        TAILQ_INSERT_TAIL(&all->open, m, entry);
        all->n_open++;
    } else {
        keep_ended(all, m);
    }
    return 0;
}

void moves_begin(struct moves *all)
{
    all->begun = true;
}

/* ---- what people see ---- */

void move_message(const struct move *m, Sluice__MoveInfo *out)
{
    sluice__move_info__init(out);
    out->has_id = out->has_created = true;
    out->id = m->id;
    out->node = m->node->name;
    out->to = (char *)pool_name[m->to];
    out->when = (char *)m->when;
    out->requested_by = m->requested_by;
    out->created = m->created;
    out->has_at = m->at != 0;
    out->at = m->at;
    out->has_deadline = m->deadline != 0;
    out->deadline = m->deadline;
    out->state = (char *)move_state_name[m->state];
    out->has_ended = m->ended != 0;
    out->ended = m->ended;
    out->text = is_open(m) && m->text == NULL && slurm_waits_for(m->node)[0] != '\0' ? (char *)slurm_waits_for(m->node) : m->text;
}

static void fill_from(const struct move_queue *q, Sluice__MoveInfo **infos, size_t *n)
{
    const struct move *m;

    TAILQ_FOREACH(m, q, entry) {
        infos[*n] = mem_zalloc(sizeof(**infos));
        move_message(m, infos[(*n)++]);
    }
}

static int by_id(const void *a, const void *b)
{
    const Sluice__MoveInfo *x = *(Sluice__MoveInfo *const *)a, *y = *(Sluice__MoveInfo *const *)b;

    return (x->id > y->id) - (x->id < y->id);
}

void moves_fill(struct moves *all, bool with_ended, Sluice__MoveInfo ***out, size_t *n)
{
    *n = 0;
    *out = mem_array(all->n_open + all->n_ended + 1, sizeof(**out));
    fill_from(&all->open, *out, n);
    if (with_ended)
        fill_from(&all->ended, *out, n);
    qsort(*out, *n, sizeof(**out), by_id);
}

void moves_fill_free(Sluice__MoveInfo **infos, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(infos[i]);
    free(infos);
}

void move_list(struct session *s, uint32_t id, const void *message)
{
    Sluice__Moves out = SLUICE__MOVES__INIT;

    moves_fill(s->d->moves, ((const Sluice__GetMoves *)message)->all, &out.moves, &out.n_moves);
    session_answer(s, id, &out.base);
    moves_fill_free(out.moves, out.n_moves);
}

/* ---- WAIT ---- */

static int wait_check(struct moves *all, const Sluice__Wait *q, const struct move *m, struct err *e)
{
    if (m == NULL && q->id > all->last_id)
        return err_set(e, ERR_LOST, "move %llu: is not known here: there was none, or the state that had it is lost", (unsigned long long)q->id);
    if (m == NULL)
        return err_set(e, ERR_LOST, "move %llu: ended long ago, its end is in the history only", (unsigned long long)q->id);
    if (all->n_waiting >= MOST_WAITING)
        return err_set(e, ERR_STATE, "%d are waiting for moves already; try again later", MOST_WAITING);
    return 0;
}

void move_wait(struct session *s, uint32_t id, const void *message)
{
    const Sluice__Wait *q = message;
    struct moves *all = s->d->moves;
    struct move *m = move_find(all, q->id);
    struct waiter *w;
    struct err e;

    if (wait_check(all, q, m, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    w = mem_zalloc(sizeof(*w));
    w->asker = session_refer(s, id);
    w->id = q->id;
    w->until = q->has_timeout && q->timeout > 0 ? clock_mono_s() + q->timeout : 0;
    TAILQ_INSERT_TAIL(&all->waiters, w, entry);
    all->n_waiting++;
    if (!is_open(m))
        waited(all, w, m);
}
