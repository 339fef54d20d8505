/* settle.c - the workers' answers: refused, built, done, failed, published; and workers that are lost
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
#include "verify.h"

/* ---- verdicts ------------------------------------------------------------------------------ */

static void verdict_send(struct node *n, const Sluice__Tf *tf, const Sluice__Fence *fence, bool accepted, char *stem, char *output)
{
    Sluice__Verdict m = SLUICE__VERDICT__INIT;

    if (n->session == NULL)
        return;
    m.tf = (Sluice__Tf *)tf;
    m.fence = (Sluice__Fence *)fence;
    m.has_accepted = true;
    m.accepted = accepted;
    m.stem = stem;
    m.output = output;
    chan_send(n->session->chan, 0, &m.base);
}

void settle_reject(struct node *n, const struct tf *t, struct fence at)
{
    Sluice__Tf tf = SLUICE__TF__INIT;
    Sluice__Fence fence = SLUICE__FENCE__INIT;

    tf.has_run = !t->work->is_job;
    tf.has_job = t->work->is_job;
    *(t->work->is_job ? &tf.job : &tf.run) = t->work->id;
    tf.has_id = fence.has_epoch = fence.has_attempt = true;
    tf.id = t->id;
    fence.epoch = at.epoch;
    fence.attempt = at.attempt;
    verdict_send(n, &tf, &fence, false, NULL, NULL);
}

void record_verdict(struct record *r)
{
    struct flow *f = r->work->flow;
    struct node *n = r->node ? farm_node(f->d->farm, r->node) : NULL;
    Sluice__Tf tf = SLUICE__TF__INIT;
    Sluice__Fence fence = SLUICE__FENCE__INIT;

    if (n == NULL || n->session == NULL)
        return;
    tf.has_run = !r->key.is_job;
    tf.has_job = r->key.is_job != 0;
    *(r->key.is_job ? &tf.job : &tf.run) = r->key.work;
    tf.has_id = fence.has_epoch = fence.has_attempt = true;
    tf.id = r->key.tf;
    fence.epoch = r->fence.epoch;
    fence.attempt = r->fence.attempt;
    assign_open(flow_node(f, n), r->work);       /* it must know the work to publish for it */
    verdict_send(n, &tf, &fence, true, r->stem, r->work->output);
}

/* ---- records ------------------------------------------------------------------------------- */

static struct fnode *record_node(const struct record *r)
{
    struct flow *f = r->work->flow;
    struct node *n = r->node && f->dispatch ? farm_node(f->d->farm, r->node) : NULL;     /* no dispatch: flow has ended */

    return n ? flow_node(f, n) : NULL;
}

struct record *record_find(struct flow *f, bool is_job, uint64_t work, uint64_t tf)
{
    struct record_key key = { is_job, work, tf };
    struct record *r;

    HASH_FIND(hh, f->records, &key, sizeof(key), r);
    return r;
}

static struct record *record_add(struct work *w, uint64_t tf)
{
    struct record *r = mem_zalloc(sizeof(*r));

    r->key = (struct record_key){ w->is_job, w->id, tf };
    r->work = w;
    HASH_ADD(hh, w->flow->records, key, sizeof(r->key), r);
    w->records++;
    return r;
}

struct record *record_create(struct tf *t, const struct end *end, bool incomplete)
{
    struct record *r = record_add(t->work, t->id);

    r->fence = t->fence;
    r->outcome = end->outcome;
    r->reason = mem_strdup(end->reason);
    r->text = mem_strdup(end->text);
    r->node = mem_strdup(end->node);
    r->device = mem_strdup(end->device);
    r->digest = mem_strdup(end->digest);
    r->stem = t->work->ops->stem(t);
    r->stages = mem_strdup(end->stages);
    if (t->tried.attempt == t->fence.attempt)
        r->log = mem_strdup(t->tried.log);
    r->seconds = end->seconds;
    r->bytes = t->bytes;
    r->time = clock_wall_ns();
    r->incomplete = incomplete;
    r->publish = end->publish;
    r->published = !end->publish;
    return r;
}

void record_restore(struct work *w, uint64_t tf, struct fence fence, const char *node, const char *device, const char *digest, const char *stem, const char *stages,
                    double seconds, uint64_t bytes, bool incomplete, int64_t time)
{
    struct record *r = record_add(w, tf);

    r->fence = fence;
    r->outcome = END_DONE;
    r->node = mem_strdup(node);
    r->device = mem_strdup(device);
    r->digest = mem_strdup(digest);
    r->stem = mem_strdup(stem);
    r->stages = mem_strdup(stages);
    r->seconds = seconds;
    r->bytes = bytes;
    r->incomplete = incomplete;
    r->time = time;
    r->publish = r->stored = true;
    struct fnode *n = record_node(r);
    if (n)
        n->records++;
}

void record_free(struct record *r)
{
    struct work *w = r->work;
    struct fnode *n = r->stored && !r->published ? record_node(r) : NULL;

    if (n && n->records)
        n->records--;
    HASH_DEL(w->flow->records, r);
    w->records--;
    free(r->reason);
    free(r->text);
    free(r->node);
    free(r->device);
    free(r->digest);
    free(r->stem);
    free(r->stages);
    free(r->log);
    free(r);
    w->ops->answered(w);
}

static void record_store(struct record *r)
{
    if (r->key.is_job)
        job_store_record(r);
    else
        run_store_record(r);
}

void record_stored(struct record *r)
{
    if (!r->stored) {
        r->stored = true;
        if (r->publish) {
            struct fnode *n = record_node(r);
            if (n)
                n->records++;
        }
        if (r->outcome == END_DONE)
            record_verdict(r);
    }
    if (!r->publish || r->published)
        record_free(r);
}

void settle_redo(struct flow *f)
{
    bool any = f->redo;

    f->redo = false;
    for (struct fnode *n = any ? f->nodes : NULL; n; n = n->hh.next) {
        bool wanted = n->redo && n->node->session != NULL && n->records > 0;
        n->redo = false;             /* who is gone again registers again */
        if (!wanted)
            continue;
        struct record *r, *next;
        HASH_ITER(hh, f->records, r, next) {
            if (r->stored && !r->published && strcmp(r->node, n->node->name) == 0)
                record_verdict(r);
        }
    }
}

/* ---- what an answer names ------------------------------------------------------------------ */

struct answer {
    struct flow *f;
    struct fnode *n;
    const Sluice__Tf *tf;
    const Sluice__Fence *fence;
    struct fence at;
    bool is_job;
    uint64_t work;
    struct charge *charge;           /* NULL: nobody asked for it under this fence */
    bool goes_on;                    /* once its charge has returned: another try at the TF is under way */
};

static int answer_read(struct session *s, const Sluice__Tf *tf, const Sluice__Fence *fence, struct answer *a)
{
    if (s->node == NULL || tf == NULL || fence == NULL || !tf->has_id || (tf->has_run == tf->has_job)) {
        counters_add(s->d->counters, "bad_answers", 1);
        return -1;
    }
    *a = (struct answer){ .f = s->d->flow, .n = flow_node(s->d->flow, s->node), .tf = tf, .fence = fence,
                          .at = { fence->epoch, fence->attempt }, .is_job = tf->has_job,
                          .work = tf->has_job ? tf->job : tf->run };
    struct charge_key key = { a->is_job, a->work, tf->id, fence->epoch, fence->attempt };
    a->charge = ledger_find(&a->f->ledger, &key);
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
    struct record *r = record_find(a->f, a->is_job, a->work, a->tf->id);

    if (r && r->outcome == END_DONE && r->fence.epoch == a->at.epoch && r->fence.attempt == a->at.attempt) {
        if (r->stored)
            record_verdict(r);
        return;                                  /* not yet stored: the Verdict comes with the commit */
    }
    counters_add(a->f->d->counters, "stale_fences", 1);
    verdict_send(a->n->node, a->tf, a->fence, false, NULL, NULL);
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

/* Back into the queue, after a pause if there is one, if its data can still be had. */
static void requeue(struct tf *t, double pause)
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
    log_debug("node %s: refused %s %" PRIu64 " TF %" PRIu64 ": %s", s->node->name, a.is_job ? "job" : "run", a.work, r->tf->id, r->word ? r->word : "?");
    cool_down(a.n);
    health_refused(s->node, r->word ? r->word : "Unknown", r->text ? r->text : "");
    struct tf *t = answer_return(&a);
    if (t == NULL || a.goes_on)
        return;
    t->refusals++;
    tf_avoid(t, &a.n->account);
    requeue(t, 0);
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

/* One of two tries ended before the other one: it stands among the tries of its TF. */
static void lost_try(struct tf *t, const struct charge *c, const char *word, const char *text)
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
    lost_try(t, c, "Superseded", "another try was done first");
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
    health_done(&t->doubts, s->node, a.is_job, a.work, d->has_process_seconds ? seconds : 0, t->bytes);
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

/* What was accepted cannot get its final name: there is no result, so it is not done. */
static void publish_failed(struct record *r, const Sluice__Published *p)
{
    const char *word = p->word && p->word[0] ? p->word : "OutputFailed";

    log_err("%s %" PRIu64 " TF %" PRIu64 ": accepted, but not published by %s: %s: %s", r->key.is_job ? "job" : "run", r->key.work, r->key.tf, r->node, word,
            p->text);
    counters_add(r->work->flow->d->counters, "publish_failed", 1);
    tally_add(&r->work->failures, word, 1);
    r->outcome = END_FAILED;
    free(r->reason);
    free(r->text);
    r->reason = mem_strdup(word);
    r->text = mem_strdup(p->text);
    if (r->key.is_job)
        job_unpublished(r);
    else
        run_unpublished(r);
}

void flow_published(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Published *p = m;
    struct answer a;

    if (jobs_put_off(s, id, p->tf, &p->base, flow_published))
        return;
    if (answer_read(s, p->tf, p->fence, &a) < 0)
        return;
    struct record *r = record_find(a.f, a.is_job, a.work, p->tf->id);
    if (r == NULL || !r->stored || r->published || r->writing || r->fence.epoch != a.at.epoch || r->fence.attempt != a.at.attempt) {
        counters_add(s->d->counters, "published_again", r == NULL);
        return;
    }
    if (a.n->records)
        a.n->records--;
    r->published = true;                         /* or never will be: nobody waits for it any more */
    if (p->text && p->text[0])
        publish_failed(r, p);
    record_store(r);
}

/* ---- failed -------------------------------------------------------------------------------- */

/* The input is at fault, as far as one attempt can tell: no second try at the same node, two nodes are enough. */
static bool blames_input(const char *word)
{
    static const char *const words[] = { "BadInput", "DigestMismatch", "InputMissing", "InputDenied" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(word, words[i]) == 0)
            return true;
    }
    return false;
}

/* The source does not answer: it may have gone, and nobody has judged so yet. */
static bool is_silence(const char *word)
{
    return strcmp(word, "PullTimeout") == 0 || strcmp(word, "PullStalled") == 0;
}

/* The data did not come: the node is not to blame. */
static bool blames_source(const char *word)
{
    return strcmp(word, "PartGone") == 0 || is_silence(word);
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

/* Its place is another's: no node can do better. */
static bool blames_output(const char *word)
{
    return strcmp(word, "OutputExists") == 0;
}

/* What its owner may not read or write. */
static bool blames_owner(const char *word)
{
    return strcmp(word, "OutputDenied") == 0 || strcmp(word, "InputDenied") == 0;
}

/* Its process died of it: nobody knows what it does to the next one. */
static bool is_death(const char *word)
{
    return strcmp(word, "Crashed") == 0 || strcmp(word, "Unkillable") == 0;
}

static void note_death(struct tf *t, const char *node)
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
    if (n && !blames_source(word))
        tf_avoid(t, &flow_node(w->flow, n)->account);
    if (is_death(word))
        note_death(t, node);
    if (w->is_job && t->n_deaths >= w->flow->d->conf->limits.deaths) {
        set_aside(t, node, device, text);
        return;
    }
    bool last = t->tries >= w->ops->attempts(w) || blames_output(word) || (blames_input(word) && (t->tries >= 2 || !settle_somebody_else(t)));
    if (last) {
        w->ops->settle(t, &(struct end){ .outcome = blames_source(word) ? END_LOST : END_FAILED, .reason = word, .text = text,
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
    requeue(t, is_silence(word) ? w->flow->d->conf->limits.contact_timeout : 0);
}

/* Whether the node or the TF is to blame will show; until then the node is passed over for a while. */
static void doubt(struct fnode *n, struct tf *t, const Sluice__Failed *x, const char *word)
{
    double s = health_failed(&t->doubts, n->node, x->device, word, x->text);

    if (s > 0 && !blames_input(word))
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
        crash_add(s->d, s->node->name, a.is_job, a.work, x);
    if (a.charge == NULL) {
        answer_stale(&a);
        return;
    }
    uint64_t bytes = a.charge->bytes;
    bool cancelled = strcmp(word, "Cancelled") == 0;
    if (!cancelled && !blames_source(word))
        flow_add_ghost(a.f, a.n, bytes);
    struct tf *t = answer_return(&a);
    verdict_send(s->node, x->tf, x->fence, false, NULL, NULL);
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
        requeue(t, 0);
        return;
    }
    if (x->crash && x->crash[0]) {
        free(t->crash);
        t->crash = mem_strdup(x->crash);
    }
    s->node->failed++;
    log_info("%s %" PRIu64 " TF %" PRIu64 ": attempt %u failed on %s: %s%s%s", a.is_job ? "job" : "run", a.work, x->tf->id, a.at.attempt,
             s->node->name, word, x->text ? ": " : "", x->text ? x->text : "");
    if (!blames_source(word) && !blames_output(word) && !blames_owner(word))
        doubt(a.n, t, x, word);
    if (a.goes_on)
        return;                                  /* the other try decides */
    attempt_failed(t, s->node->name, x->device, word, x->text);
}

/* ---- workers that come back, or do not ----------------------------------------------------- */

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
            lost_try(t, c, word, text);
        if (suspects > 0 && !c->building) {
            suspects--;
            if (t && t->work->is_job)
                note_death(t, n->node->name);
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
                lost_try(t, c, "Forgotten", "the worker came back without it");
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
                requeue(t, 0);
            }
        }
    }
}

/* As if its worker had said just now what it holds. */
static void late_reconcile(struct fnode *n, struct charge *c)
{
    Sluice__Tf tf = SLUICE__TF__INIT;
    Sluice__Fence fence = SLUICE__FENCE__INIT;
    Sluice__Held h = SLUICE__HELD__INIT;
    Sluice__Registered out = SLUICE__REGISTERED__INIT;

    tf.has_job = tf.has_id = fence.has_epoch = fence.has_attempt = h.has_phase = h.has_bytes = true;
    tf.job = c->key.work;
    tf.id = c->key.tf;
    fence.epoch = c->key.epoch;
    fence.attempt = (uint32_t)c->key.attempt;
    h.tf = &tf;
    h.fence = &fence;
    h.phase = c->building ? SLUICE__PHASE__BUILDING : SLUICE__PHASE__QUEUED;
    h.bytes = c->bytes;
    ledger_return(&n->flow->ledger, c);
    held_reconcile(n, &h, &out);
    if (out.n_forget > 0)
        verdict_send(n->node, &tf, &fence, false, NULL, NULL);
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
