/* settle.c - the workers' answers: refused, built, done, failed, published
 *
 * From: session.c's table.  To: the ledger (credit returns), the work (settled, or the next attempt), the worker (Verdict).
 * Always: a charge returns on the first final answer to its fence, and only then; an answer to any other fence changes nothing but a counter and
 * gets Verdict(false); a Verdict(true) goes out after the commit.
 */
#include "config.h"
#include "settle.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "clock.h"
#include "crash.h"
#include "flow_core.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "ran.h"
#include "run.h"
#include "str.h"
#include "verify.h"

/* ---- what an answer names ------------------------------------------------------------------ */

struct answer {
    struct flow *f;
    struct fnode *n;
    struct charge_key key;
    struct fence at;
    bool is_job;
    struct charge *charge;           /* NULL: nobody asked for it under this fence */
    bool goes_on;                    /* once its charge has returned: another try at the TF is under way */
};

static int answer_read(struct session *s, const Sluice__Tf *tf, const Sluice__Fence *fence, struct answer *a)
{
    if (s->node == NULL || tf == NULL || fence == NULL || !tf->has_id || (tf->has_run == tf->has_job)) {
        counters_add(s->d->counters, "bad_answers", 1);
        return -1;
    }
    *a = (struct answer){ .f = s->d->flow, .n = flow_node(s->d->flow, s->node), .is_job = tf->has_job, .at = { fence->epoch, fence->attempt },
                          .key = { tf->has_job, tf->has_job ? tf->job : tf->run, tf->id, fence->epoch, fence->attempt } };
    a->charge = ledger_find(&a->f->ledger, &a->key);
    if (a->charge && a->charge->account != &a->n->account)
        a->charge = NULL;
    return 0;
}

/* The credit returns; the TF that waited for this answer, or NULL. */
static struct tf *answer_return(struct answer *a)
{
    struct tf *t = a->charge->tf;

    if (t) {
        a->goes_on = tf_detach(t, a->charge);
        t->work->progress = flow_now(a->f);
    }
    ledger_return(&a->f->ledger, a->charge);
    a->charge = NULL;
    a->n->node->n_tfs = a->n->account.n;
    if (a->n->account.n == 0)
        node_emptied(a->n->node);
    flow_kick(a->f);
    return t;
}

/* Nobody waits for it: unless it is the accepted attempt itself, asking again. */
static void answer_stale(struct answer *a)
{
    struct record *r = record_find(a->f, a->is_job, a->key.work, a->key.tf);

    if (r && r->outcome == END_DONE && r->fence.epoch == a->at.epoch && r->fence.attempt == a->at.attempt) {
        if (r->stored)
            record_verdict(r);
        return;                                  /* not yet stored: the Verdict comes with the commit */
    }
    counters_add(a->f->d->counters, "stale_fences", 1);
    verdict_reject(a->n->node, &a->key);
}

/* ---- refused, built ------------------------------------------------------------------------ */

void tf_avoid(struct tf *t, struct account *a)
{
    if (t->n_avoid == TF_AVOID) {
        memmove(t->avoid, t->avoid + 1, (TF_AVOID - 1) * sizeof(t->avoid[0]));
        t->n_avoid--;
    }
    t->avoid[t->n_avoid++] = a;
}

/* Passed over for a while, longer with each refusal in a row. */
static void cool_down(struct fnode *n)
{
    n->cooldown = n->cooldown == 0 ? 0.02 : n->cooldown < 2 ? 2 * n->cooldown : 2;
    flow_cool(n, n->cooldown);
}

void tf_requeue(struct tf *t, double pause)
{
    t->cancelled = false;
    if (!t->work->ops->available(t))
        return;
    if (pause > 0)
        tf_enter(t, TF_WAITING, flow_now(t->work->flow) + pause);
    else
        tf_enter(t, TF_QUEUED, 0);
}

void flow_refused(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Refused *r = m;
    struct answer a;

    if (jobs_put_off(s, id, r->tf, &r->base, flow_refused))
        return;
    if (answer_read(s, r->tf, r->fence, &a) < 0)
        return;
    if (a.charge == NULL) {
        answer_stale(&a);
        return;
    }
    s->node->refused++;
    counters_add(s->d->counters, "assigns_refused", 1);
    log_debug("node %s: refused %s %" PRIu64 " TF %" PRIu64 ": %s", s->node->name, a.is_job ? "job" : "run", a.key.work, r->tf->id, r->word ? r->word : "?");
    cool_down(a.n);
    health_refused(s->node, r->word ? r->word : "Unknown", r->text ? r->text : "");
    struct tf *t = answer_return(&a);
    if (t == NULL || a.goes_on)
        return;
    t->refusals++;
    tf_avoid(t, &a.n->account);
    tf_requeue(t, 0);
}

void flow_built(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Built *b = m;
    struct answer a;

    if (jobs_put_off(s, id, b->tf, &b->base, flow_built))
        return;
    if (answer_read(s, b->tf, b->fence, &a) < 0)
        return;
    if (a.charge == NULL) {
        counters_add(s->d->counters, "stale_fences", 1);
        return;
    }
    a.n->cooldown = 0;
    ledger_built(&a.f->ledger, a.charge);
    struct tf *t = a.charge->tf;
    if (t && t->charge == a.charge && t->state == TF_BUILDING) {
        tf_enter(t, TF_BUILT, t->cancelled ? t->due : 0);
        t->work->ops->built(t);
    }
    flow_kick(a.f);
}

/* ---- done ---------------------------------------------------------------------------------- */

void settle_lost_try(struct tf *t, const struct charge *c, const char *word, const char *text)
{
    const struct fnode *n = c->account->owner;
    struct tried how = { .text = (char *)text };

    if (!t->work->is_job)
        return;
    snprintf(how.word, sizeof(how.word), "%s", word);
    job_store_try(t, (struct fence){ c->key.epoch, (uint32_t)c->key.attempt }, n->node->name, &how);
}

/* Another try was faster: this one is given up. */
static void other_ends(struct tf *t)
{
    struct charge *c = t->charge;

    flow_cancel(c->account->owner, c, "another try was done first");
    settle_lost_try(t, c, "Superseded", "another try was done first");
    c->tf = NULL;
    c->since = flow_now(t->work->flow);
    tf_detach(t, c);
}

void flow_done(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Done *d = m;
    struct answer a;

    if (jobs_put_off(s, id, d->tf, &d->base, flow_done))
        return;
    if (answer_read(s, d->tf, d->fence, &a) < 0)
        return;
    if (a.charge == NULL) {
        answer_stale(&a);
        return;
    }
    struct tf *t = answer_return(&a);
    if (t == NULL) {
        answer_stale(&a);
        return;
    }
    if (a.goes_on)
        other_ends(t);
    t->fence = a.at;
    double seconds = d->process_seconds > 0 ? d->process_seconds : 0;
    if (d->has_process_seconds)
        flow_median_add(a.f, s->node->class, seconds);
    s->node->done++;
    health_done(&t->doubts, s->node, a.is_job, a.key.work, d->has_process_seconds ? seconds : 0, t->bytes);
    if (t->parts && d->incomplete)
        t->parts->incomplete = true;
    tf_tried(t, "Done", NULL, d->device, d->log);
    char *stages = ran_text(d->stages, d->n_stages);
    counters_add(s->d->counters, "backend_fallbacks", ran_count(&a.f->ran, stages));
    struct end end = { .outcome = END_DONE, .node = s->node->name, .device = d->device, .digest = d->digest, .stages = stages, .seconds = seconds,
                       .publish = d->n_outputs > 0 };
    if (!verify_done(t, a.n, &end))
        t->work->ops->settle(t, &end);
    free(stages);
}

/* Where its owner may not write any more nothing can be removed either. */
static void may_stay_there(struct session *s, bool is_job, uint64_t work, const char *word, bool left)
{
    if (is_job && (left || str_equal(word, "OutputDenied")))
        job_may_have_left(s->d->jobs, work);
}

/* What was accepted cannot get its final name. false: r is gone. */
static bool publish_failed(struct record *r, const char *word, const char *text)
{
    log_err("%s %" PRIu64 " TF %" PRIu64 ": accepted, but not published by %s: %s: %s", r->key.is_job ? "job" : "run", r->key.work, r->key.tf, r->node, word, text);
    counters_add(r->work->flow->d->counters, "publish_failed", 1);
    tally_add(&r->work->failures, word, 1);
    if (r->key.is_job && strcmp(word, "OutputExists") != 0 && job_publishes_again(r, word, text))
        return false;
    r->outcome = END_FAILED;
    free(r->reason);
    free(r->text);
    r->reason = mem_strdup(word);
    r->text = mem_strdup(text);
    if (r->key.is_job)
        job_unpublished(r);
    else
        run_unpublished(r);
    return true;
}

/* It is published, or never will be: nobody waits for it any more. */
static void settled_for_good(struct record *r)
{
    struct node *n = r->node ? farm_node(r->work->flow->d->farm, r->node) : NULL;

    if (n && flow_node(r->work->flow, n)->records)
        flow_node(r->work->flow, n)->records--;
    r->published = true;
    record_store(r);
}

bool record_not_published(struct record *r, const char *word, const char *text)
{
    if (!publish_failed(r, word, text))
        return false;
    settled_for_good(r);
    return true;
}

void flow_published(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Published *p = m;
    struct answer a;

    if (jobs_put_off(s, id, p->tf, &p->base, flow_published))
        return;
    if (answer_read(s, p->tf, p->fence, &a) < 0)
        return;
    struct record *r = record_find(a.f, a.is_job, a.key.work, p->tf->id);
    if (r == NULL || !r->stored || r->published || r->writing || r->fence.epoch != a.at.epoch || r->fence.attempt != a.at.attempt) {
        counters_add(s->d->counters, "published_again", r == NULL);
        return;
    }
    const char *why = p->text && p->text[0] ? p->text : NULL;
    may_stay_there(s, a.is_job, a.key.work, p->word, p->left);
    if (publish_answered(r, s->node, why))
        return;
    if (why)
        record_not_published(r, p->word && p->word[0] ? p->word : "OutputFailed", why);
    else
        settled_for_good(r);
}

/* ---- failed -------------------------------------------------------------------------------- */

/* Whom a failure speaks against; a word that is not here speaks against the node, or the TF: which one will show. */
enum {
    BLAMES_INPUT  = 1,      /* as far as one attempt can tell: no second try at the same node, two nodes are enough */
    BLAMES_SOURCE = 2,      /* the data did not come */
    IS_SILENCE    = 4,      /* it may have gone, and nobody has judged so yet */
    BLAMES_PLACE  = 8,      /* another's: no node can do better */
    BLAMES_OWNER  = 16,     /* what he may not read or write */
    IS_DEATH      = 32,     /* its process died of it: nobody knows what it does to the next one */
};

static bool says(const char *word, unsigned what)
{
    static const struct { const char *word; unsigned says; } words[] = {
        { "BadInput",       BLAMES_INPUT },
        { "DigestMismatch", BLAMES_INPUT },
        { "InputMissing",   BLAMES_INPUT },
        { "InputDenied",    BLAMES_INPUT | BLAMES_OWNER },
        { "OutputDenied",   BLAMES_OWNER },
        { "OutputExists",   BLAMES_PLACE },
        { "PartGone",       BLAMES_SOURCE },
        { "PullTimeout",    BLAMES_SOURCE | IS_SILENCE },
        { "PullStalled",    BLAMES_SOURCE | IS_SILENCE },
        { "Crashed",        IS_DEATH },
        { "Unkillable",     IS_DEATH },
    };

    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        if (strcmp(word, words[i].word) == 0)
            return words[i].says & what;
    return false;
}

bool settle_somebody_else(const struct tf *t)
{
    for (struct fnode *n = t->work->flow->nodes; n; n = n->hh.next) {
        bool tried = (!n->account.load->usable && !flow_rests(n)) || n->account.load->group != t->work->pool || n->account.load->size < t->bytes;
        for (unsigned i = 0; i < t->n_avoid && !tried; i++)
            tried = t->avoid[i] == &n->account;
        if (!tried)
            return true;
    }
    return false;
}

void tf_note_death(struct tf *t, const char *node)
{
    char *before = t->deaths;

    t->n_deaths++;
    t->deaths = mem_printf("%s%s%s", before ? before : "", before ? "," : "", node ? node : "?");
    free(before);
}

static void set_aside(struct tf *t, const char *node, const char *device, const char *text)
{
    char *why = mem_printf("%u processes died of it, on %s; the last: %s%s%s", t->n_deaths, t->deaths, text ? text : "?", t->crash ? "; kept in " : "",
                           t->crash ? t->crash : "");

    tally_add(&t->work->failures, "HeldPoison", 1);          /* besides the deaths: who looks at the job sees that some are set aside */
    t->work->ops->settle(t, &(struct end){ .outcome = END_FAILED, .reason = "HeldPoison", .text = why, .node = node, .device = device });
    free(why);
}

void attempt_failed(struct tf *t, const char *node, const char *device, const char *word, const char *text)
{
    struct work *w = t->work;
    struct node *n = node ? farm_node(w->flow->d->farm, node) : NULL;

    t->tries++;
    t->cancelled = false;
    if (t->tried.attempt != t->fence.attempt)
        tf_tried(t, word, text, device, NULL);
    tally_add(&w->failures, word, 1);
    if (verify_settle(t))
        return;
    if (n && !says(word, BLAMES_SOURCE))
        tf_avoid(t, &flow_node(w->flow, n)->account);
    if (says(word, IS_DEATH))
        tf_note_death(t, node);
    if (w->is_job && t->n_deaths >= w->flow->d->conf->limits.deaths) {
        set_aside(t, node, device, text);
        return;
    }
    bool last = t->tries >= w->ops->attempts(w) || says(word, BLAMES_PLACE) || (says(word, BLAMES_INPUT) && (t->tries >= 2 || !settle_somebody_else(t)));
    if (last) {
        w->ops->settle(t, &(struct end){ .outcome = says(word, BLAMES_SOURCE) ? END_LOST : END_FAILED, .reason = word, .text = text,
                                         .node = node, .device = device });
        return;
    }
    snprintf(t->last_word, sizeof(t->last_word), "%s", word);
    free(t->last_text);
    free(t->last_node);
    t->last_text = mem_strdup(text);
    t->last_node = mem_strdup(node);
    w->retried++;
    /* The next try when contact with its source would be lost: one that is gone uses up no tries. */
    tf_requeue(t, says(word, IS_SILENCE) ? w->flow->d->conf->limits.contact_timeout : 0);
}

/* Whether the node or the TF is to blame will show; until then the node is passed over for a while. */
static void doubt(struct fnode *n, struct tf *t, const Sluice__Failed *x, const char *word)
{
    double s = health_failed(&t->doubts, n->node, x->device, word, x->text);

    if (s > 0 && !says(word, BLAMES_INPUT))
        flow_cool(n, s);
}

void flow_failed(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Failed *x = m;
    const char *word = x->word && x->word[0] ? x->word : "Unknown";
    struct answer a;

    if (jobs_put_off(s, id, x->tf, &x->base, flow_failed))
        return;
    if (answer_read(s, x->tf, x->fence, &a) < 0)
        return;
    if (x->crash && x->crash[0])
        crash_add(s->d, s->node->name, a.is_job, a.key.work, x);
    if (a.charge == NULL) {
        answer_stale(&a);
        return;
    }
    may_stay_there(s, a.is_job, a.key.work, word, false);
    uint64_t bytes = a.charge->bytes;
    bool cancelled = strcmp(word, "Cancelled") == 0;
    if (!cancelled && !says(word, BLAMES_SOURCE))
        flow_add_ghost(a.f, a.n, bytes);
    struct tf *t = answer_return(&a);
    verdict_reject(s->node, &a.key);
    if (t == NULL)
        return;
    if (cancelled && a.goes_on)
        return;
    struct tried how = { .text = x->text, .device = x->device, .log = x->log };
    snprintf(how.word, sizeof(how.word), "%s", cancelled && t->cancelled ? "Preempted" : word);
    if (!a.goes_on)
        tf_tried(t, how.word, x->text, x->device, x->log);
    else if (a.is_job)
        job_store_try(t, a.at, s->node->name, &how);
    if (cancelled) {
        t->work->preempted += t->cancelled;
        tf_requeue(t, 0);
        return;
    }
    if (x->crash && x->crash[0]) {
        free(t->crash);
        t->crash = mem_strdup(x->crash);
    }
    s->node->failed++;
    log_info("%s %" PRIu64 " TF %" PRIu64 ": attempt %u failed on %s: %s%s%s", a.is_job ? "job" : "run", a.key.work, x->tf->id, a.at.attempt,
             s->node->name, word, x->text ? ": " : "", x->text ? x->text : "");
    if (!says(word, BLAMES_SOURCE | BLAMES_PLACE | BLAMES_OWNER))
        doubt(a.n, t, x, word);
    if (a.goes_on)
        return;                                  /* the other try decides */
    attempt_failed(t, s->node->name, x->device, word, x->text);
}
