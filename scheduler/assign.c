/* assign.c - does what dispatch said: charges the fence, opens the run at the worker, sends Assign
 *
 * From: flow.c (once a turn).  To: workers; settle.c hears what became of it.
 * Always: the oldest TF of a work goes first; a TF is charged before its Assign is sent; a worker heard RunOpen before the first Assign of a run.
 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "flow_core.h"
#include "job.h"
#include "log.h"
#include "mem.h"
#include "nice.h"

enum { ASSIGN_TURN = 512 };      /* Assigns in one turn of the loop */

/* ---- RunOpen, RunClose --------------------------------------------------------------------- */

static bool is_opened(const struct fnode *n, const struct work *w)
{
    for (size_t i = 0; i < n->n_opened; i++) {
        if (n->opened[i].is_job == w->is_job && n->opened[i].id == w->id)
            return true;
    }
    return false;
}

static void name_work(const struct work *w, protobuf_c_boolean *has_run, uint64_t *run, protobuf_c_boolean *has_job, uint64_t *job)
{
    *has_run = !w->is_job;
    *has_job = w->is_job;
    *(w->is_job ? job : run) = w->id;
}

static int open_send(const struct fnode *n, struct work *w)
{
    const struct conf_limits *limits = &w->flow->d->conf->limits;
    Sluice__RunOpen m = SLUICE__RUN_OPEN__INIT;
    enum nice_source from;

    name_work(w, &m.has_run, &m.run, &m.has_job, &m.job);
    m.name = w->name;
    m.workflow = w->workflow;
    m.backends = w->backends;
    m.options = w->options;
    m.output = w->output;
    m.owner = w->is_job ? job_of(w)->owner : NULL;
    m.has_key = true;
    m.key = (ProtobufCBinaryData){ sizeof(w->key), w->key };
    m.has_pull_timeout = m.has_process_timeout = m.has_deliver_timeout = true;
    m.pull_timeout = limits->pull_timeout;
    m.process_timeout = limits->process_timeout;
    m.has_time_limit = w->time_limit > 0;
    m.time_limit = w->time_limit;
    m.deliver_timeout = limits->deliver_timeout;
    m.has_uid = m.has_gid = true;
    m.uid = w->uid;
    m.gid = w->gid;
    m.nice = nice_of_work(w, &from);
    m.has_nice = from != NICE_OF_POOL;
    return chan_send(n->node->session->chan, 0, &m.base);
}

int assign_open(struct fnode *n, struct work *w)
{
    if (is_opened(n, w))
        return 0;
    if (n->node->session == NULL || open_send(n, w) < 0)
        return -1;
    n->opened = mem_grow(n->opened, n->n_opened + 1, sizeof(*n->opened));
    n->opened[n->n_opened++] = (struct opened){ w->is_job, w->id };
    return 0;
}

void assign_tell(struct work *w)
{
    for (struct fnode *n = w->flow->nodes; n; n = n->hh.next) {
        if (n->node->session && is_opened(n, w))
            open_send(n, w);
    }
}

void assign_close(struct work *w)
{
    Sluice__RunClose m = SLUICE__RUN_CLOSE__INIT;

    name_work(w, &m.has_run, &m.run, &m.has_job, &m.job);
    for (struct fnode *n = w->flow->nodes; n; n = n->hh.next) {
        for (size_t i = 0; i < n->n_opened; i++) {
            if (n->opened[i].is_job != w->is_job || n->opened[i].id != w->id)
                continue;
            n->opened[i] = n->opened[--n->n_opened];
            if (n->node->session)
                chan_send(n->node->session->chan, 0, &m.base);
            break;
        }
    }
}

void assign_forget_node(struct fnode *n)
{
    n->n_opened = 0;
}

/* ---- Assign -------------------------------------------------------------------------------- */

static void charge(struct tf *t, struct fnode *n, uint64_t bytes, bool building)
{
    struct flow *f = t->work->flow;
    struct charge_key key = tf_key(t);

    tf_charge(t, ledger_charge(&f->ledger, &n->account, &key, bytes, building, t, flow_now(f)));
    n->node->n_tfs = n->account.n;
    tf_enter(t, building ? TF_BUILDING : TF_BUILT, 0);
}

void assign_adopt(struct tf *t, struct fnode *n, struct fence fence, uint64_t bytes, bool building)
{
    t->fence = fence;
    charge(t, n, bytes, building);
}

static int assign_send(struct tf *t, struct fnode *n)
{
    Sluice__Assign m = SLUICE__ASSIGN__INIT;
    struct charge_key key = tf_key(t);
    struct key_message name;

    key_message(&key, &name);
    m.tf = &name.tf;
    m.fence = &name.fence;
    m.has_bytes = true;
    m.bytes = t->bytes;
    t->work->ops->describe(t, &m);
    m.stem = t->work->ops->stem(t);
    int rc = chan_send(n->node->session->chan, 0, &m.base);
    free(m.stem);
    t->work->ops->described(&m);
    return rc;
}

/* Opens, charges, sends. An Assign that could not be sent stays charged: the worker's next registration, without it, gives it back. */
static void assign_tf(struct tf *t, struct fnode *n)
{
    struct flow *f = t->work->flow;

    if (n->node->session == NULL || assign_open(n, t->work) < 0) {
        flow_cool(n, 0.9);                       /* its connection is about to be closed */
        return;
    }
    t->fence = (struct fence){ f->d->epoch, (t->last_attempt > t->fence.attempt ? t->last_attempt : t->fence.attempt) + 1 };
    t->given = flow_now(f);
    charge(t, n, t->bytes, true);
    t->work->dispatched++;
    if (assign_send(t, n) < 0)
        log_warning("node %s: Assign of %s %" PRIu64 " TF %" PRIu64 " could not be sent", n->node->name,
                    t->work->is_job ? "job" : "run", t->work->id, t->id);
    t->work->ops->assigned(t);
}

struct fnode *assign_rival(struct tf *t)
{
    struct work *w = t->work;
    struct fnode *first = t->charge->account->owner;
    struct disp_node *not[TF_AVOID + 1] = { first->account.load };
    unsigned n_not = 1;

    for (unsigned i = 0; i < t->n_avoid; i++)
        not[n_not++] = t->avoid[i]->load;
    struct disp_need need = { .policy = w->policy, .group = w->pool, .classes = w->classes, .bytes = t->bytes, .refused = not, .n_refused = n_not };
    struct disp_node *chosen = dispatch_choose(w->flow->dispatch, &need, NULL);
    struct fnode *n = chosen ? chosen->owner : NULL;
    if (n == NULL || n->node->session == NULL || assign_open(n, w) < 0)
        return NULL;
    struct fence before = t->fence;
    t->fence = (struct fence){ w->flow->d->epoch, t->last_attempt + 1 };
    struct charge_key key = tf_key(t);
    tf_charge(t, ledger_charge(&w->flow->ledger, &n->account, &key, t->bytes, true, t, flow_now(w->flow)));
    n->node->n_tfs = n->account.n;
    w->dispatched++;
    if (assign_send(t, n) < 0)
        log_warning("node %s: Assign of a second try at TF %" PRIu64 " of job %" PRIu64 " could not be sent", n->node->name, t->id, w->id);
    t->fence = before;
    return n;
}

/* A node that is passed over for a while, and has not had this TF yet, can take it then. */
static bool somebody_rests(const struct tf *t)
{
    const struct work *w = t->work;

    for (const struct fnode *n = w->flow->nodes; n; n = n->hh.next) {
        const struct disp_node *load = n->account.load;
        if (!flow_rests(n) || load->group != w->pool || load->size < t->bytes || (w->classes != 0 && (load->class_bit & w->classes) == 0))
            continue;
        unsigned i = 0;
        while (i < t->n_avoid && t->avoid[i] != &n->account)
            i++;
        if (i == t->n_avoid)
            return true;
    }
    return false;
}

/* Nodes could take it, and none does now: which of these it is is counted when somebody asks, of what keeps the most of them. */
static const char crowded[] = "Crowded";
static const char *const bar_code[] = {
    [DISP_TAKES] = "Free", [DISP_BUILDING] = "ReadingFull", [DISP_HELD] = "PrefetchFull", [DISP_SMALL] = "TooLarge", [DISP_FULL] = "WaitingForBuffer",
};
static const char *const causes[] = { "WaitingForBuffer", "PrefetchFull", "ReadingFull", "Refused", "Cooldown" };

const char *assign_cause(const struct fnode *n, const struct tf *t, uint64_t bytes)
{
    const struct disp_node *load = n->account.load;

    if (n->cool_until > 0)
        return "Cooldown";
    if (bytes > load->size)
        return "TooLarge";
    for (unsigned i = 0; t && i < t->n_avoid; i++) {
        if (t->avoid[i] == &n->account)
            return "Refused";
    }
    return bar_code[disp_bar(load, bytes)];
}

const char *assign_why(const struct work *w)
{
    const struct tf *t = heap_top(&w->queue);
    unsigned count[ARRAY_LEN(causes)] = { 0 }, most = 0;

    if (w->why != crowded || t == NULL)
        return w->why != crowded ? w->why : NULL;
    for (const struct fnode *n = w->flow->nodes; n; n = n->hh.next) {
        if (!(n->account.load->usable || flow_rests(n)) || n->account.load->group != w->pool || (w->classes != 0 && (n->account.load->class_bit & w->classes) == 0))
            continue;
        const char *code = assign_cause(n, t, t->bytes);
        for (unsigned i = 0; i < ARRAY_LEN(causes); i++)
            count[i] += strcmp(code, causes[i]) == 0;
    }
    for (unsigned i = 1; i < ARRAY_LEN(causes); i++)
        most = count[i] > count[most] ? i : most;
    return count[most] > 0 ? causes[most] : NULL;
}

/* Nobody takes it now. When all who could were asked, they are asked anew after a while. */
static void assign_wait(struct tf *t, bool could)
{
    struct work *w = t->work;
    double pause = 0.05;

    bool may = could || somebody_rests(t);

    w->why = flow_usable_nodes(w->flow, w->pool) == 0 ? "WaitingForNodes"
           : !flow_has_class(w->flow, w->pool, w->classes) ? "WaitingForClass"
           : !may && t->n_avoid == 0 ? "TooLarge" : crowded;
    w->blocked = true;
    if (may || t->n_avoid == 0)
        return;
    for (unsigned i = 0; i < t->refusals && pause < 2; i++)
        pause *= 2;
    t->n_avoid = 0;
    tf_enter(t, TF_WAITING, flow_now(w->flow) + pause);
    w->blocked = false;
}

/* The oldest of w. false: nothing more of it can be given out in this turn. */
static bool assign_oldest(struct work *w)
{
    struct tf *t = heap_top(&w->queue);
    struct disp_node *refused[TF_AVOID];
    bool could;

    if (w->limit && w->n[TF_BUILDING] + w->n[TF_BUILT] >= w->limit) {
        w->why = "InFlightLimit";
        w->blocked = true;
        return false;
    }
    for (unsigned i = 0; i < t->n_avoid; i++)
        refused[i] = t->avoid[i]->load;
    struct disp_need need = { .policy = w->policy, .group = w->pool, .classes = w->classes, .bytes = t->bytes,
                              .refused = refused, .n_refused = t->n_avoid };
    struct disp_node *chosen = dispatch_choose(w->flow->dispatch, &need, &could);
    if (chosen == NULL) {
        assign_wait(t, could);
        return false;
    }
    w->why = NULL;
    assign_tf(t, chosen->owner);
    return true;
}

/* Whose turn: jobs by priority; then whoever, a run or a user with all jobs, has the least of the pool; then the oldest. */
static bool goes_before(const struct work *a, const struct work *b)
{
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (work_share(a) != work_share(b))
        return work_share(a) < work_share(b);
    return a->id < b->id;
}

static struct work *next_work(struct flow *f)
{
    struct work *best = NULL, *w;

    TAILQ_FOREACH(w, &f->works, entry) {
        if (w->paused || w->blocked || heap_top(&w->queue) == NULL)
            continue;
        if (best == NULL || goes_before(w, best))
            best = w;
    }
    return best;
}

void assign_all(struct flow *f)
{
    struct work *w;

    TAILQ_FOREACH(w, &f->works, entry)
        w->blocked = false;
    for (unsigned i = 0; i < ASSIGN_TURN; i++) {
        w = next_work(f);
        if (w == NULL)
            return;
        assign_oldest(w);
    }
    flow_kick(f);                                /* more than a turn's worth: go on in the next */
}
