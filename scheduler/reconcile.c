/* reconcile.c - workers that come back, and workers that do not: what they hold against what the ledger says they have
 *
 * From: node_register.c (Register), farm.c (contact lost), jobread.c.  To: the ledger, the works, the answer to Register.
 * Always: what a worker lists is known under its fence, adopted, or to be forgotten; what it does not list it does not have.
 */
#include "config.h"
#include "settle.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "flow_core.h"
#include "log.h"
#include "mem.h"
#include "run.h"

/* ---- lost ---------------------------------------------------------------------------------- */

/* A worker does its TFs in the order in which it has them, one a device: so many of those that were there first it may have died of. */
static unsigned were_in_devices(const struct fnode *n)
{
    struct verdict v;

    node_judge(n->node, &v);
    return v.devices_usable > 0 ? v.devices_usable : 1;
}

/* Its worker says nothing more of it. */
static void may_have_left(struct flow *f, const struct charge *c)
{
    if (c->key.is_job)
        job_may_have_left(f->d->jobs, c->key.work);
}

void settle_lost(struct flow *f, struct fnode *n, const char *word, const char *text, bool died)
{
    unsigned had = n->account.n, suspects = died ? were_in_devices(n) : 0;
    struct charge *c;

    while ((c = TAILQ_FIRST(&n->account.charges))) {
        struct tf *t = c->tf;
        bool goes_on = t && tf_detach(t, c);
        may_have_left(f, c);
        if (goes_on)
            settle_lost_try(t, c, word, text);
        if (suspects > 0 && !c->building) {
            suspects--;
            if (t && t->work->is_job)
                tf_note_death(t, n->node->name);
        }
        ledger_return(&f->ledger, c);
        if (t && !goes_on)
            attempt_failed(t, n->node->name, NULL, word, text);
    }
    n->node->n_tfs = 0;
    if (had > 0)
        node_emptied(n->node);
    flow_kick(f);
}

/* ---- what a worker holds ------------------------------------------------------------------- */

/* The TF of something a worker holds, or NULL when it is no business of that worker any more. */
static struct tf *held_tf(struct flow *f, const Sluice__Held *h, struct work **work)
{
    struct work *w;

    *work = NULL;
    TAILQ_FOREACH(w, &f->works, entry) {
        if (w->is_job == (bool)h->tf->has_job && w->id == (w->is_job ? h->tf->job : h->tf->run))
            break;
    }
    *work = w;
    return w ? tf_find(w, h->tf->id) : NULL;
}

/* Takes over what a worker held before our start. */
static bool held_adopt(struct fnode *n, const Sluice__Held *h)
{
    struct flow *f = n->flow;
    struct fence at = { h->fence->epoch, h->fence->attempt };
    struct work *w;
    struct tf *t = held_tf(f, h, &w);
    bool building = h->phase == SLUICE__PHASE__BUILDING;

    if (w == NULL || at.epoch >= f->d->epoch || h->bytes > n->account.load->size)
        return false;
    if (t == NULL)
        t = w->is_job ? NULL : run_adopt(w, h->tf->id, h->bytes);
    if (t == NULL || t->charge != NULL || fence_newer(t->fence, at))
        return false;
    t->tried.attempt = 0;
    log_info("node %s: goes on with %s %" PRIu64 " TF %" PRIu64, n->node->name, w->is_job ? "job" : "run", w->id, t->id);
    t->bytes = h->bytes;
    if (t->parts)
        t->parts->adopted = true;
    assign_adopt(t, n, at, h->bytes, building);
    w->ops->assigned(t);
    if (!building)
        w->ops->built(t);
    return true;
}

static void forget_add(Sluice__Registered *out, const Sluice__Held *h)
{
    Sluice__Held *copy = mem_zalloc(sizeof(*copy));

    sluice__held__init(copy);
    copy->tf = mem_zalloc(sizeof(*copy->tf));
    copy->fence = mem_zalloc(sizeof(*copy->fence));
    *copy->tf = *h->tf;
    *copy->fence = *h->fence;
    copy->tf->base.n_unknown_fields = copy->fence->base.n_unknown_fields = 0;
    copy->tf->base.unknown_fields = copy->fence->base.unknown_fields = NULL;
    out->forget = mem_grow(out->forget, out->n_forget + 1, sizeof(struct Sluice__Held *));
    out->forget[out->n_forget++] = copy;
}

void flow_registered_free(Sluice__Registered *out)
{
    for (size_t i = 0; i < out->n_forget; i++) {
        free(out->forget[i]->tf);
        free(out->forget[i]->fence);
        free(out->forget[i]);
    }
    free(out->forget);
    out->forget = NULL;
    out->n_forget = 0;
}

/* One thing held: known under its fence, adopted, or to be forgotten. */
static void held_reconcile(struct fnode *n, const Sluice__Held *h, Sluice__Registered *out)
{
    struct charge_key key = { h->tf->has_job, h->tf->has_job ? h->tf->job : h->tf->run, h->tf->id, h->fence->epoch, h->fence->attempt };
    struct charge *c = ledger_find(&n->flow->ledger, &key);
    struct record *r = record_find(n->flow, h->tf->has_job, key.work, key.tf);

    if (key.is_job && jobs_is_loading(n->flow->d->jobs, key.work) && h->bytes <= n->account.load->size) {
        if (c == NULL)                           /* its node has it: settle_adopt will say of which task it is */
            c = ledger_charge(&n->flow->ledger, &n->account, &key, h->bytes, h->phase == SLUICE__PHASE__BUILDING, NULL, flow_now(n->flow));
        c->seen = c->seen || c->account == &n->account;
        return;
    }
    if (c && c->account == &n->account) {
        c->seen = true;
        if (h->phase != SLUICE__PHASE__BUILDING) {
            ledger_built(&n->flow->ledger, c);
            if (c->tf && c->tf->charge == c && c->tf->state == TF_BUILDING) {
                tf_enter(c->tf, TF_BUILT, c->tf->cancelled ? c->tf->due : 0);
                c->tf->work->ops->built(c->tf);
            }
        }
        return;
    }
    if (c == NULL && r && r->fence.epoch == key.epoch && r->fence.attempt == key.attempt)
        return;                                  /* accepted, or on its way to the disk: its Verdict will come */
    if (c == NULL && held_adopt(n, h)) {
        c = ledger_find(&n->flow->ledger, &key);
        if (c)
            c->seen = true;
        return;
    }
    counters_add(n->flow->d->counters, "forgotten", 1);
    forget_add(out, h);
}

/* What the worker did not list it does not have. */
static void missing_fail(struct fnode *n)
{
    struct flow *f = n->flow;
    struct charge *c = TAILQ_FIRST(&n->account.charges);

    while (c) {
        struct charge *next = TAILQ_NEXT(c, entry);
        struct tf *t = c->tf;
        if (!c->seen) {
            bool goes_on = t && tf_detach(t, c);
            may_have_left(f, c);
            if (goes_on)
                settle_lost_try(t, c, "Forgotten", "the worker came back without it");
            ledger_return(&f->ledger, c);
            if (t && !goes_on)
                attempt_failed(t, n->node->name, NULL, "Forgotten", "the worker came back without it");
        }
        c = next;
    }
}

/* What waited for this worker's list and was not in it is given out anew. */
static void pulled_elsewhere(struct flow *f, const char *node)
{
    struct work *w;

    TAILQ_FOREACH(w, &f->works, entry) {
        struct tf *t, *next;
        HASH_ITER(hh, w->tfs, t, next) {
            if (t->pulled && t->last_node && strcmp(t->last_node, node) == 0) {
                t->pulled = false;
                tf_requeue(t, 0);
            }
        }
    }
}

/* As if its worker had said just now what it holds. */
static void late_reconcile(struct fnode *n, struct charge *c)
{
    Sluice__Held h = SLUICE__HELD__INIT;
    Sluice__Registered out = SLUICE__REGISTERED__INIT;
    struct charge_key key = c->key;
    struct key_message name;

    key_message(&key, &name);
    h.has_phase = h.has_bytes = true;
    h.tf = &name.tf;
    h.fence = &name.fence;
    h.phase = c->building ? SLUICE__PHASE__BUILDING : SLUICE__PHASE__QUEUED;
    h.bytes = c->bytes;
    ledger_return(&n->flow->ledger, c);
    held_reconcile(n, &h, &out);
    if (out.n_forget > 0)
        verdict_reject(n->node, &key);
    flow_registered_free(&out);
    n->node->n_tfs = n->account.n;
    if (n->account.n == 0)
        node_emptied(n->node);
}

void settle_adopt(struct work *w)
{
    struct flow *f = w->flow;
    struct charge *c, *next;

    HASH_ITER(hh, f->ledger.all, c, next) {
        if (c->key.is_job && c->key.work == w->id && c->tf == NULL)
            late_reconcile(c->account->owner, c);
    }
    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        if (n->announced)
            pulled_elsewhere(f, n->node->name);
        n->redo = f->redo = true;
    }
    flow_kick(f);
}

void flow_worker_registered(struct node *node, const Sluice__Register *reg, Sluice__Registered *out)
{
    struct flow *f = node->d->flow;
    struct fnode *n = flow_node(f, node);
    unsigned before = n->account.n;
    struct charge *c;

    assign_forget_node(n);
    flow_node_changed(node);         /* the size of its buffer is known from here on, and what it holds is held against it */
    TAILQ_FOREACH(c, &n->account.charges, entry)
        c->seen = false;
    for (size_t i = 0; i < reg->n_held; i++) {
        const Sluice__Held *h = reg->held[i];
        if (h->tf && h->fence && h->tf->has_id && h->tf->has_run != h->tf->has_job)
            held_reconcile(n, h, out);
    }
    n->announced = true;
    missing_fail(n);
    pulled_elsewhere(f, node->name);
    node->n_tfs = n->account.n;
    n->redo = f->redo = true;
    n->cooldown = 0;
    flow_cool(n, 0);
    if (before > 0 && n->account.n == 0)
        node_emptied(node);
    flow_kick(f);
}
