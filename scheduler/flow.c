/* flow.c - the flow of TFs: nodes as the ledger sees them, the turn and the tick, deadlines, and what `check` proves
 *
 * From: node.c, node_register.c (nodes and reports), the loop.  To: assign.c, settle.c, run.c, job.c.
 * Always: what a node may take follows from node_judge, its last registration and report, and its charges, and is told to dispatch at once.
 */
#include "config.h"
#include "flow.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "flow_core.h"
#include "job.h"
#include "log.h"
#include "mem.h"
#include "ran.h"
#include "run.h"

enum { PREFETCH = 2 };           /* TFs a device beside those that are read: one it works on, one that is ready */

#define STALL 0.5                /* s: a tick later than this was our own fault */
#define COOL_SHOWN 1.0           /* s: passed over for longer than this it shows as Cooldown */
#define CANCEL_LIMIT 5.0         /* s for the answer to a Cancel */
#define DIFFERS_LIMIT 5.0        /* s that ledger and reports may disagree */

/* ---- time ---------------------------------------------------------------------------------- */

double flow_now(struct flow *f)
{
    return f->d->loop ? ev_now(f->d->loop) - f->stalled : f->now;
}

void flow_kick(struct flow *f)
{
    f->kicked = true;
}

void flow_turn(struct flow *f)
{
    for (int i = 0; f->kicked && i < 4; i++) {
        f->kicked = false;
        settle_redo(f);
        if (f->d->jobs)
            job_turn(f->d->jobs);
        assign_all(f);
    }
    if (f->d->jobs)
        task_rows_soon(f->d->jobs->rows);
    if (f->d->runs)
        run_turn(f->d->runs);
    if (f->kicked && f->d->loop && !ev_is_active(&f->again)) {
        ev_timer_set(&f->again, 0., 0.);
        ev_timer_start(f->d->loop, &f->again);
    }
}

static void turn_cb(struct ev_loop *loop, ev_prepare *w, int revents)
{
    (void)loop;
    (void)revents;
    flow_turn(w->data);
}

static void again_cb(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)w;
    (void)revents;               /* the turn's end follows */
}

/* ---- deadlines ----------------------------------------------------------------------------- */

static int due_less(const void *a, const void *b)
{
    return ((const struct tf *)a)->due < ((const struct tf *)b)->due;
}

static size_t *due_place(void *t)
{
    return &((struct tf *)t)->due_place;
}

/* The answer to a Cancel did not come: its charge stays until it does, the TF goes on without it. */
static void cancel_due(struct tf *t)
{
    struct work *w = t->work;

    log_warning("%s %" PRIu64 " TF %" PRIu64 ": no answer to its cancellation for %.0f s", w->is_job ? "job" : "run", w->id, t->id, CANCEL_LIMIT);
    counters_add(w->flow->d->counters, "cancels_unanswered", 1);
    t->charge->tf = NULL;
    t->charge->since = flow_now(w->flow);
    tf_uncharge(t);
    t->cancelled = false;
    if (w->ops->available(t))
        tf_enter(t, TF_QUEUED, 0);
}

static void due_all(struct flow *f, double now)
{
    struct tf *t;

    while ((t = heap_top(&f->due)) && t->due <= now) {
        tf_enter(t, t->state, 0);
        if (t->state == TF_BUILDING || t->state == TF_BUILT)
            cancel_due(t);
        else
            t->work->ops->due(t);
    }
}

static void ghosts_expire(struct flow *f, double now)
{
    struct ghost *g = TAILQ_FIRST(&f->ghosts);

    while (g) {
        struct ghost *next = TAILQ_NEXT(g, entry);
        if (g->until <= now) {
            TAILQ_REMOVE(&f->ghosts, g, entry);
            g->node->account.load->ghost -= g->bytes;
            dispatch_changed(f->dispatch, g->node->account.load);
            free(g);
            flow_kick(f);
        }
        g = next;
    }
}

void flow_tick(struct flow *f)
{
    double now = flow_now(f);

    if (f->last_tick > 0 && now - f->last_tick > STALL && f->d->loop) {
        double late = now - f->last_tick - FLOW_TICK;
        f->stalled += late;
        now -= late;
        log_warning("sluiced: stood still for %.1f s; deadlines move by as much", late);
        counters_add(f->d->counters, "stalls", 1);
    }
    f->last_tick = now;
    due_all(f, now);
    ghosts_expire(f, now);
    for (struct fnode *n = f->cooling > 0 ? f->nodes : NULL; n; n = n->hh.next) {
        if (n->cool_until > 0 && n->cool_until <= now)
            flow_cool(n, 0);
    }
    outcheck_tick(f);
    publish_tick(f);
    if (f->d->runs)
        run_tick(f->d->runs, now);
    if (f->d->jobs)
        job_tick(f->d->jobs);
}

static void tick_cb(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop;
    (void)revents;
    flow_tick(w->data);
}

/* ---- nodes --------------------------------------------------------------------------------- */

bool flow_class_known(const struct flow *f, const char *class)
{
    for (const struct fnode *x = f->nodes; x; x = x->hh.next) {
        if (strcmp(x->node->class, class) == 0)
            return true;
    }
    return false;
}

unsigned flow_class_bit(struct flow *f, const char *class)
{
    for (unsigned i = 0; i < f->n_classes; i++) {
        if (strcmp(f->classes[i], class) == 0)
            return 1u << i;
    }
    if (f->n_classes == ARRAY_LEN(f->classes))
        return FLOW_CLASS_REST;
    snprintf(f->classes[f->n_classes], sizeof(f->classes[0]), "%s", class);
    return 1u << f->n_classes++;
}

struct fnode *flow_node(struct flow *f, struct node *n)
{
    struct fnode *x;

    HASH_FIND_PTR(f->nodes, &n, x);
    if (x)
        return x;
    x = mem_zalloc(sizeof(*x));
    x->node = n;
    x->flow = f;
    account_init(&x->account, &n->load, x);
    n->load = (struct disp_node){ .owner = x, .group = n->pool, .class_bit = flow_class_bit(f, n->class),
                                  .high_water = f->d->conf->worker.high_water, .building_limit = f->d->conf->worker.building_limit };
    HASH_ADD_PTR(f->nodes, node, x);
    dispatch_add(f->dispatch, &n->load);
    return x;
}

static double speed_of(const struct node *n)
{
    double speed = 0;

    if (n->report == NULL)
        return 0;
    for (size_t i = 0; i < n->report->n_devices; i++) {
        const Sluice__Device *d = n->report->devices[i];
        if (d->state != SLUICE__DEVICE_STATE__DEVICE_BROKEN && d->seconds_per_tf > 0)
            speed += 1 / d->seconds_per_tf;
    }
    return speed;
}

static uint64_t size_of(const struct node *n)
{
    if (n->report && n->report->has_buffer_size)
        return n->report->buffer_size;
    return n->registered ? n->registered->buffer_size : 0;
}

void flow_node_changed(struct node *n)
{
    struct flow *f = n->d->flow;
    struct fnode *x = flow_node(f, n);
    struct disp_node *load = &n->load;
    struct verdict v;

    node_judge(n, &v);
    load->group = n->pool;
    load->class_bit = flow_class_bit(f, n->class);
    load->size = size_of(n);
    load->usable = v.usable && n->session != NULL && load->size > 0 && x->cool_until == 0;
    load->speed = speed_of(n);
    load->high_water = f->d->conf->worker.high_water;
    load->building_limit = f->d->conf->worker.building_limit;
    if (n->registered && n->registered->has_high_water && n->registered->high_water > 0 && n->registered->high_water <= 1)
        load->high_water = n->registered->high_water;
    if (n->registered && n->registered->building_limit > 0)
        load->building_limit = n->registered->building_limit;
    /* Work that may go to any node is handed over late: what a node has beyond its need is lost time when it is called away or dies. */
    load->held_limit = n->pool == POOL_ASYNC ? PREFETCH * (v.devices_usable ? v.devices_usable : 1) + load->building_limit : 0;
    f->summed = false;
    dispatch_changed(f->dispatch, load);
    flow_kick(f);
}

/* Passed over for so long from now, or longer when it is so already; 0: not any more. */
void flow_cool(struct fnode *n, double s)
{
    double until = s > 0 ? flow_now(n->flow) + s : 0;

    if (s > 0 && until <= n->cool_until)
        return;
    n->flow->cooling = n->flow->cooling - (n->cool_until > 0) + (until > 0);
    n->cool_until = until;
    if (n->node->cooling != (s >= COOL_SHOWN)) {
        n->node->cooling = s >= COOL_SHOWN;
        node_changed(n->node);                   /* tells us, too */
        return;
    }
    flow_node_changed(n->node);
}

bool flow_rests(const struct fnode *n)
{
    const struct verdict *v = &n->node->said;

    return n->cool_until > 0 && (v->usable || (n->node->cooling && v->n_why - v->n_parts == 1));
}

double flow_cooling_s(const struct node *n)
{
    struct flow *f = n->d->flow;
    struct fnode *x;

    HASH_FIND_PTR(f->nodes, &n, x);
    return x == NULL || x->cool_until == 0 ? 0 : fmax(0, x->cool_until - flow_now(f));
}

void flow_worker_disconnected(struct node *n)
{
    struct fnode *x = flow_node(n->d->flow, n);

    assign_forget_node(x);
    flow_node_changed(n);
    if (n->d->jobs)
        job_full_report(n->d->jobs, n);
}

static void worker_lost(struct node *n, const char *why, bool died)
{
    struct flow *f = n->d->flow;
    struct fnode *x = flow_node(f, n);

    if (x->account.n > 0)
        log_err("node %s: %u TFs it had go elsewhere or are lost: %s", n->name, x->account.n, why);
    x->announced = true;                         /* nothing it pulled before is waited for any longer */
    settle_lost(f, x, "NodeLost", why, died);
    flow_node_changed(n);
}

void flow_worker_lost(struct node *n, const char *why)
{
    worker_lost(n, why, false);
}

void flow_worker_replaced(struct node *n, const char *why)
{
    worker_lost(n, why, true);
}

void flow_evict(struct node *n, const char *why)
{
    struct flow *f = n->d->flow;
    struct fnode *x = flow_node(f, n);
    struct charge *c;

    TAILQ_FOREACH(c, &x->account.charges, entry) {
        if (c->tf == NULL || c->tf->cancelled)
            continue;
        flow_cancel(x, c, why);
        if (c->tf->rival) {                      /* it goes on at the other node */
            tf_detach(c->tf, c);
            c->tf = NULL;
            c->since = flow_now(f);
            continue;
        }
        c->tf->cancelled = true;
        tf_enter(c->tf, c->tf->state, flow_now(f) + CANCEL_LIMIT);
    }
}

void flow_cancel(struct fnode *n, const struct charge *c, const char *why)
{
    Sluice__Cancel m = SLUICE__CANCEL__INIT;
    struct key_message name;

    if (n->node->session == NULL)
        return;
    key_message(&c->key, &name);
    m.tf = &name.tf;
    m.fence = &name.fence;
    m.reason = (char *)why;
    chan_send(n->node->session->chan, 0, &m.base);
}

/* ---- reports: they only audit -------------------------------------------------------------- */

static bool reports_differ(const struct fnode *n, const Sluice__Report *r, char out[160])
{
    unsigned held = r->building + r->queued + r->processing;

    if (n->account.n == 0 && n->records == 0 && (r->bytes_used > 0 || held > 0)) {
        snprintf(out, 160, "the ledger has nothing at it, it reports %" PRIu64 " bytes and %u TFs", r->bytes_used, held);
        return true;
    }
    if (n->account.n > 0 && r->bytes_used == 0 && held + r->delivering == 0) {
        snprintf(out, 160, "the ledger has %u TFs of %" PRIu64 " bytes at it, it reports nothing", n->account.n, n->account.load->charged);
        return true;
    }
    return false;
}

void flow_report(struct node *n, const Sluice__Report *r)
{
    struct flow *f = n->d->flow;
    struct fnode *x = flow_node(f, n);
    double now = flow_now(f);

    if (f->d->jobs)
        job_full_report(f->d->jobs, n);
    if (n->load.speed != speed_of(n) || n->load.size != size_of(n))
        flow_node_changed(n);
    if (!reports_differ(x, r, x->differs)) {
        x->differs_since = 0;
        return;
    }
    if (x->differs_since == 0)
        x->differs_since = now;
    if (x->differs_since > 0 && now - x->differs_since > DIFFERS_LIMIT) {
        counters_add(f->d->counters, "ledger_differs", 1);
        log_err("node %s: %s", n->name, x->differs);
        x->differs_since = -x->differs_since;    /* said once */
    }
}

/* ---- what others ask ----------------------------------------------------------------------- */

/* What is asked with every message is summed once a change of a node. */
static struct pool_sum *pool_sum(struct flow *f, int pool)
{
    if (f->summed)
        return &f->pool[pool];
    memset(f->pool, 0, sizeof(f->pool));
    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        const struct disp_node *l = n->account.load;
        struct pool_sum *p = &f->pool[l->group];
        if (n->node->added && l->size > p->largest)
            p->largest = l->size;
        if (l->usable) {
            p->usable++;
            p->classes |= l->class_bit;
        }
    }
    f->summed = true;
    return &f->pool[pool];
}

uint64_t flow_largest_buffer(struct flow *f, int pool)
{
    return pool_sum(f, pool)->largest;
}

uint64_t flow_room(struct flow *f, int pool, uint64_t bytes)
{
    struct pool_sum *p = pool_sum(f, pool);

    if (p->room_for == bytes)
        return p->room;
    p->room_for = bytes;
    p->room = 0;
    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        const struct disp_node *l = n->account.load;
        if (!l->usable || l->group != pool || l->size < bytes)
            continue;
        uint64_t fits = (uint64_t)(l->high_water * (double)l->size / (double)bytes);
        p->room += fits > 0 ? fits : 1;
    }
    return p->room;
}

unsigned flow_usable_nodes(struct flow *f, int pool)
{
    return pool_sum(f, pool)->usable;
}

bool flow_has_class(struct flow *f, int pool, unsigned classes)
{
    const struct pool_sum *p = pool_sum(f, pool);

    return p->usable > 0 && (classes == 0 || (p->classes & classes) != 0);
}

static struct service *service_find(struct flow *f, const char *class)
{
    for (struct service *s = f->services; s; s = s->next) {
        if (strcmp(s->class, class) == 0)
            return s;
    }
    struct service *s = mem_zalloc(sizeof(*s));
    snprintf(s->class, sizeof(s->class), "%s", class);
    s->next = f->services;
    f->services = s;
    return s;
}

void flow_median_add(struct flow *f, const char *class, double seconds)
{
    struct service *s = service_find(f, class);

    s->seconds[s->at] = seconds;
    s->at = (s->at + 1) % SERVICE_KEPT;
    s->n += s->n < SERVICE_KEPT;
}

static int compare_seconds(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double flow_median(struct flow *f, const char *class)
{
    const struct service *s = service_find(f, class);
    double sorted[SERVICE_KEPT];

    if (s->n == 0)
        return 1;
    memcpy(sorted, s->seconds, s->n * sizeof(double));
    qsort(sorted, s->n, sizeof(double), compare_seconds);
    return sorted[s->n / 2];
}

void flow_add_ghost(struct flow *f, struct fnode *n, uint64_t bytes)
{
    struct ghost *g = mem_zalloc(sizeof(*g));

    g->node = n;
    g->bytes = bytes;
    g->until = flow_now(f) + flow_median(f, n->node->class);
    n->account.load->ghost += bytes;
    TAILQ_INSERT_TAIL(&f->ghosts, g, entry);
    dispatch_changed(f->dispatch, n->account.load);
}

/* ---- check --------------------------------------------------------------------------------- */

static void check_nodes(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct err e;
    unsigned nodes = 0, charges = 0;

    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        if (ledger_audit(&n->account, n->node->name, &e) < 0) {
            line(arg, "ledger", false, e.text);
            return;
        }
        if (n->node->n_tfs != n->account.n) {
            err_set(&e, ERR_FAILED, "node %s: shows %u TFs, its account has %u", n->node->name, n->node->n_tfs, n->account.n);
            line(arg, "ledger", false, e.text);
            return;
        }
        nodes++;
        charges += n->account.n;
    }
    bool ok = charges == HASH_COUNT(f->ledger.all) && f->ledger.charged - f->ledger.returned == charges;
    err_set(&e, ERR_NONE, "%u nodes, %u charges; %" PRIu64 " made, %" PRIu64 " returned", nodes, charges, f->ledger.charged, f->ledger.returned);
    line(arg, "ledger", ok, e.text);
}

/* Every TF given out is charged under its fence at a node that exists, every other TF is not. */
static void check_charges(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct err e;
    struct work *w;
    unsigned given = 0, orphans = 0;

    TAILQ_FOREACH(w, &f->works, entry) {
        uint64_t charged = 0;
        unsigned n[TF_STATES] = { 0 };
        for (struct tf *t = w->tfs; t; t = t->hh.next) {
            bool should = t->state == TF_BUILDING || t->state == TF_BUILT;
            struct charge_key key = tf_key(t);
            n[t->state]++;
            if (should != (t->charge != NULL) || (should && (ledger_find(&f->ledger, &key) != t->charge || t->charge->tf != t))) {
                err_set(&e, ERR_FAILED, "%s %" PRIu64 " TF %" PRIu64 " is %s and %s", w->is_job ? "job" : "run", w->id, t->id,
                        tf_state_name[t->state], t->charge ? "charged wrongly" : "not charged");
                line(arg, "charges", false, e.text);
                return;
            }
            given += should + (t->rival != NULL);
            charged += (t->charge ? t->charge->bytes : 0) + (t->rival ? t->rival->bytes : 0);
        }
        if (charged != w->charged || memcmp(n, w->n, sizeof(n)) != 0 || w->queue.n != n[TF_QUEUED]) {
            err_set(&e, ERR_FAILED, "%s %" PRIu64 ": its sums do not hold: %" PRIu64 " bytes charged, it says %" PRIu64, w->is_job ? "job" : "run",
                    w->id, charged, w->charged);
            line(arg, "charges", false, e.text);
            return;
        }
    }
    for (struct user *u = f->users; u; u = u->hh.next) {
        uint64_t charged = 0;
        TAILQ_FOREACH(w, &f->works, entry)
            charged += w->user == u ? w->charged : 0;
        if (charged != u->charged) {
            err_set(&e, ERR_FAILED, "the jobs of uid %u have %" PRIu64 " bytes charged, their sum says %" PRIu64, u->uid, charged, u->charged);
            line(arg, "charges", false, e.text);
            return;
        }
    }
    for (struct charge *c = f->ledger.all; c; c = c->hh.next)
        orphans += c->tf == NULL;
    bool ok = given + orphans == HASH_COUNT(f->ledger.all);
    err_set(&e, ERR_NONE, "%u TFs given out, %u charges wait for the answer to a given-up attempt", given, orphans);
    line(arg, "charges", ok, e.text);
}

/* With nothing on, all credits are back, but for those whose workers were asked to give up just now. */
static void check_idle(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct err e;
    unsigned left = 0, late = 0;

    if (!TAILQ_EMPTY(&f->works)) {
        line(arg, "idle", true, "work is on");
        return;
    }
    for (struct charge *c = f->ledger.all; c; c = c->hh.next) {
        left++;
        late += flow_now(f) - c->since > 2 * CANCEL_LIMIT;
    }
    err_set(&e, ERR_NONE, "nothing is on; %u charges wait for their workers' answer, %u of them for more than %.0f s", left, late, 2 * CANCEL_LIMIT);
    line(arg, "idle", late == 0, left == 0 ? "nothing is on, every credit is back" : e.text);
}

void flow_check(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    check_nodes(f, line, arg);
    check_charges(f, line, arg);
    if (f->d->runs)
        run_each_check(f->d->runs, line, arg);
    if (f->d->jobs)
        job_each_check(f->d->jobs, line, arg);
    check_idle(f, line, arg);
}

void flow_alarms(struct flow *f, alarm_fn fn, void *arg)
{
    double now = flow_now(f);
    char text[320], about[80];

    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        double since = fabs(n->differs_since);
        if (n->differs_since == 0 || now - since <= DIFFERS_LIMIT)
            continue;
        snprintf(text, sizeof(text), "node %s: %s", n->node->name, n->differs);
        snprintf(about, sizeof(about), "node %s", n->node->name);
        fn(arg, &(struct alarm){ .word = "LedgerDiffers", .about = about, .text = text, .since_s = now - since,
                                 .advice = "if it lasts, restart the node's worker; `sluice check` shows the ledger" });
    }
    if (f->d->runs)
        run_alarms(f->d->runs, fn, arg);
}

/* ---- beginning and end --------------------------------------------------------------------- */

struct flow *flow_create(struct sluiced *d)
{
    struct flow *f = mem_zalloc(sizeof(*f));

    f->d = d;
    f->owners = 1;
    f->dispatch = dispatch_create();
    f->ledger.dispatch = f->dispatch;
    TAILQ_INIT(&f->works);
    TAILQ_INIT(&f->ghosts);
    heap_init(&f->due, due_less, due_place);
    if (d->loop) {
        ev_prepare_init(&f->turn, turn_cb);
        ev_init(&f->again, again_cb);
        ev_timer_init(&f->tick, tick_cb, FLOW_TICK, FLOW_TICK);
        f->turn.data = f->tick.data = f;
        ev_prepare_start(d->loop, &f->turn);
        ev_timer_start(d->loop, &f->tick);
    }
    return f;
}

struct flow *flow_share(struct flow *f)
{
    f->owners++;
    return f;
}

const struct ran *flow_ran(const struct flow *f)
{
    return f->ran;
}

struct user *flow_user(struct flow *f, uint32_t uid)
{
    struct user *u;

    HASH_FIND(hh, f->users, &uid, sizeof(uid), u);
    if (u == NULL) {
        u = mem_zalloc(sizeof(*u));
        u->uid = uid;
        HASH_ADD(hh, f->users, uid, sizeof(u->uid), u);
    }
    return u;
}

void flow_unshare(struct flow *f)
{
    if (--f->owners > 0)
        return;
    struct user *u, *next;
    HASH_ITER(hh, f->users, u, next) {
        HASH_DEL(f->users, u);
        free(u);
    }
    heap_free(&f->due);
    ran_free(f->ran);
    free(f);
}

static void free_nodes(struct flow *f)
{
    struct fnode *n, *next;
    struct ghost *g;

    while ((g = TAILQ_FIRST(&f->ghosts))) {
        TAILQ_REMOVE(&f->ghosts, g, entry);
        free(g);
    }
    HASH_ITER(hh, f->nodes, n, next) {
        HASH_DEL(f->nodes, n);
        free(n->opened);
        free(n);
    }
}

/* Runs and jobs may still have TFs: they go with them. */
void flow_destroy(struct flow *f)
{
    struct charge *c, *next;

    if (f == NULL)
        return;
    outcheck_drop(f);
    if (f->d->loop) {
        ev_prepare_stop(f->d->loop, &f->turn);
        ev_timer_stop(f->d->loop, &f->tick);
        ev_timer_stop(f->d->loop, &f->again);
    }
    HASH_ITER(hh, f->ledger.all, c, next) {
        if (c->tf)
            c->tf->charge = c->tf->rival = NULL;
        ledger_return(&f->ledger, c);
    }
    free_nodes(f);
    while (f->services) {
        struct service *s = f->services;
        f->services = s->next;
        free(s);
    }
    dispatch_destroy(f->dispatch);
    f->dispatch = NULL;
    flow_unshare(f);
}
