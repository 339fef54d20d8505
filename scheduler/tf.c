/* tf.c - a TF's states, and the lists that follow from them
 *
 * From: run.c, source.c, job.c (new ones), assign.c, settle.c (what happens to them).  To: the queue of its work, the heap of deadlines.
 * Always: a TF stands in its work's queue exactly while it is QUEUED, in the heap of deadlines exactly while due is not 0, and work->n counts it once.
 */
#include "config.h"
#include "tf.h"
#include "nice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "counters.h"
#include "flow_core.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "str.h"
#include "verify.h"

const char *const tf_state_name[TF_STATES] = { "forming", "queued", "waiting", "building", "built" };
const char *const outcome_name[END_KINDS] = { "done", "failed", "dropped", "lost", "cancelled" };

/* ---- numbers by word ----------------------------------------------------------------------- */

void tally_add(struct tally **t, const char *word, uint64_t n)
{
    for (; *t; t = &(*t)->next) {
        if (strcmp((*t)->word, word) == 0)
            break;
    }
    if (*t == NULL) {
        *t = mem_zalloc(sizeof(**t));
        snprintf((*t)->word, sizeof((*t)->word), "%s", word);
    }
    (*t)->n += n;
}

void tally_free(struct tally *t)
{
    while (t) {
        struct tally *next = t->next;
        free(t);
        t = next;
    }
}

uint64_t tally_sum(const struct tally *t)
{
    uint64_t n = 0;

    for (; t; t = t->next)
        n += t->n;
    return n;
}

char *tally_text(const struct tally *t)
{
    struct str s = { 0 };

    for (; t; t = t->next)
        str_addf(&s, "%s%s %" PRIu64, s.len ? "," : "", t->word, t->n);
    return str_take(&s);
}

void tally_read(struct tally **t, const char *text)
{
    char word[24];
    unsigned long long n;
    int used;

    while (text && sscanf(text, "%23[^ ,] %llu%n", word, &n, &used) == 2) {
        tally_add(t, word, n);
        text += used;
        text += *text == ',';
    }
}

/* ---- a work -------------------------------------------------------------------------------- */

static int queue_less(const void *a, const void *b)
{
    return ((const struct tf *)a)->id < ((const struct tf *)b)->id;
}

static size_t *queue_place(void *t)
{
    return &((struct tf *)t)->queue_place;
}

void work_init(struct work *w, struct flow *f, const struct work_ops *ops, bool is_job, uint64_t id)
{
    w->flow = f;
    w->ops = ops;
    w->is_job = is_job;
    w->id = id;
    w->progress = flow_now(f);
    w->nice = (struct work_nice){ NICE_NONE, NICE_FIRST, NICE_LAST };
    heap_init(&w->queue, queue_less, queue_place);
}

void work_free(struct work *w)
{
    heap_free(&w->queue);
    tally_free(w->failures);
    free(w->name);
    free(w->workflow);
    free(w->backends);
    free(w->options);
    free(w->output);
}

/* ---- a TF ---------------------------------------------------------------------------------- */

struct tf *tf_create(struct work *w, uint64_t id)
{
    struct tf *t = mem_zalloc(sizeof(*t));

    t->id = id;
    t->work = w;
    t->state = TF_FORMING;
    t->queue_place = t->due_place = HEAP_NOWHERE;
    t->born = t->entered = flow_now(w->flow);
    w->n[TF_FORMING]++;
    HASH_ADD(hh, w->tfs, id, sizeof(t->id), t);
    return t;
}

struct tf *tf_find(struct work *w, uint64_t id)
{
    struct tf *t;

    HASH_FIND(hh, w->tfs, &id, sizeof(id), t);
    return t;
}

struct charge_key tf_key(const struct tf *t)
{
    return (struct charge_key){ t->work->is_job, t->work->id, t->id, t->fence.epoch, t->fence.attempt };
}

void key_message(const struct charge_key *k, struct key_message *out)
{
    sluice__tf__init(&out->tf);
    sluice__fence__init(&out->fence);
    out->tf.has_run = !k->is_job;
    out->tf.has_job = k->is_job != 0;
    *(k->is_job ? &out->tf.job : &out->tf.run) = k->work;
    out->tf.has_id = out->fence.has_epoch = out->fence.has_attempt = true;
    out->tf.id = k->tf;
    out->fence.epoch = k->epoch;
    out->fence.attempt = (uint32_t)k->attempt;
}

static void books(struct tf *t, const struct charge *c, bool more)
{
    uint64_t *sums[] = { &t->work->charged, t->work->user ? &t->work->user->charged : NULL };

    for (size_t i = 0; i < ARRAY_LEN(sums); i++) {
        if (sums[i])
            *sums[i] = more ? *sums[i] + c->bytes : *sums[i] - c->bytes;
    }
}

void tf_charge(struct tf *t, struct charge *c)
{
    *(t->charge ? &t->rival : &t->charge) = c;
    books(t, c, true);
    if (t->last_attempt < c->key.attempt)
        t->last_attempt = (uint32_t)c->key.attempt;
}

void tf_uncharge(struct tf *t)
{
    books(t, t->charge, false);
    t->charge = NULL;
}

bool tf_detach(struct tf *t, struct charge *c)
{
    books(t, c, false);
    if (c == t->rival) {
        t->rival = NULL;
        return true;
    }
    t->charge = t->rival;
    t->rival = NULL;
    if (t->charge == NULL)
        return false;
    t->fence = (struct fence){ t->charge->key.epoch, (uint32_t)t->charge->key.attempt };
    return true;
}

uint64_t work_share(const struct work *w)
{
    return w->user ? w->user->charged : w->charged;
}

static void due_set(struct tf *t, double due)
{
    struct heap *h = &t->work->flow->due;

    if (t->due != 0)
        heap_remove(h, t);
    t->due = due;
    if (due != 0)
        heap_push(h, t);
}

/* From which states each may be entered: bits. A worker that still has a TF may be heard of in any of them. */
#define FROM(s) (1u << TF_##s)
static const unsigned may_follow[TF_STATES] = {
    [TF_FORMING]  = FROM(FORMING),
    [TF_QUEUED]   = FROM(FORMING) | FROM(QUEUED) | FROM(WAITING) | FROM(BUILDING) | FROM(BUILT),
    [TF_WAITING]  = FROM(FORMING) | FROM(QUEUED) | FROM(WAITING) | FROM(BUILDING) | FROM(BUILT),
    [TF_BUILDING] = FROM(FORMING) | FROM(QUEUED) | FROM(WAITING) | FROM(BUILDING),
    [TF_BUILT]    = FROM(FORMING) | FROM(QUEUED) | FROM(WAITING) | FROM(BUILDING) | FROM(BUILT),
};

/* What must not be is said and counted, and the TF goes on as it was told: who stops there keeps a credit for ever. */
static void look_at_step(const struct tf *t, enum tf_state state)
{
    bool at_node = state == TF_BUILDING || state == TF_BUILT;

    if ((may_follow[state] & (1u << t->state)) != 0 && (!at_node || t->charge != NULL))
        return;
    log_err("%s %" PRIu64 " TF %" PRIu64 ": from %s to %s%s: that is no step it may take", t->work->is_job ? "job" : "run", t->work->id, t->id,
            tf_state_name[t->state], tf_state_name[state], at_node && t->charge == NULL ? ", at no node" : "");
    counters_add(t->work->flow->d->counters, "illegal_steps", 1);
}

void tf_enter(struct tf *t, enum tf_state state, double due)
{
    struct work *w = t->work;

    look_at_step(t, state);
    if (t->state == TF_QUEUED && state != TF_QUEUED)
        heap_remove(&w->queue, t);
    w->n[t->state]--;
    w->n[state]++;
    if (state == TF_QUEUED && t->state != TF_QUEUED)
        heap_push(&w->queue, t);
    if (state != t->state)
        t->entered = flow_now(w->flow);
    t->state = state;
    if (state != TF_WAITING && state != TF_FORMING)
        t->pulled = false;
    due_set(t, due);
    if (state == TF_QUEUED)
        flow_kick(w->flow);
}

static void tried_free(struct tried *x)
{
    free(x->text);
    free(x->device);
    free(x->log);
}

void tf_tried(struct tf *t, const char *word, const char *text, const char *device, const char *log)
{
    tried_free(&t->tried);
    t->tried = (struct tried){ .attempt = t->fence.attempt, .text = mem_strdup(text), .device = mem_strdup(device), .log = mem_strdup(log) };
    snprintf(t->tried.word, sizeof(t->tried.word), "%s", word);
}

void tf_free(struct tf *t)
{
    struct work *w = t->work;

    if (t->state == TF_QUEUED)
        heap_remove(&w->queue, t);
    due_set(t, 0);
    w->n[t->state]--;
    HASH_DEL(w->tfs, t);
    while (t->charge) {
        struct charge *c = t->charge;
        c->tf = NULL;
        c->since = flow_now(w->flow);
        tf_detach(t, c);
    }
    health_dropped(&t->doubts);
    verify_drop(t);
    free(t->last_text);
    tried_free(&t->tried);
    free(t->last_node);
    free(t->deaths);
    free(t->crash);
    free(t);
}
