/* verify.c - see verify.h
 *
 * Always: of all results of a TF one at most is accepted; each of the others gets its Verdict(false) when the TF goes.
 */
#include "config.h"

#include "verify.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flow_core.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "run.h"
#include "settle.h"
#include "str.h"

/* A result that is not accepted yet. */
struct witness { struct fnode *n; struct fence fence; char digest[17]; char *device, *stages; double seconds; bool publish; };
struct verify { struct witness seen[2]; unsigned n; char text[300]; };

static void witness_free(struct witness *w)
{
    free(w->device);
    free(w->stages);
}

static void witness_add(struct tf *t, struct fnode *n, const struct end *end)
{
    struct witness *w;

    if (t->verify == NULL)
        t->verify = mem_zalloc(sizeof(*t->verify));
    w = &t->verify->seen[t->verify->n++];
    *w = (struct witness){ .n = n, .fence = t->fence, .device = mem_strdup(end->device), .stages = mem_strdup(end->stages), .seconds = end->seconds,
                           .publish = end->publish };
    snprintf(w->digest, sizeof(w->digest), "%.16s", end->digest);
    tf_avoid(t, &n->account);
}

static void reject(struct node *n, const struct tf *t, struct fence at)
{
    struct charge_key key = { t->work->is_job, t->work->id, t->id, at.epoch, at.attempt };

    verdict_reject(n, &key);
}

void verify_drop(struct tf *t)
{
    for (unsigned i = 0; t->verify != NULL && i < t->verify->n; i++) {
        reject(t->verify->seen[i].n->node, t, t->verify->seen[i].fence);
        witness_free(&t->verify->seen[i]);
    }
    free(t->verify);
    t->verify = NULL;
}

/* Its data are where another node can read them, and will be. */
static bool can_repeat(const struct tf *t)
{
    const struct run *r = (const struct run *)t->work;

    if (t->work->paused)
        return false;
    return t->work->is_job || (r->until_done && r->stop_at == 0 && !t->parts->released && !t->parts->incomplete);
}

static bool ask_another(struct tf *t, struct fnode *n, const struct end *end)
{
    witness_add(t, n, end);
    t->cancelled = false;
    if (t->work->ops->available(t))
        tf_enter(t, TF_QUEUED, 0);
    return true;
}

/* Whoever stands alone. The third result decides. */
static struct fnode *wrong_one(const struct verify *v, const char *digest, const char **wrong)
{
    for (unsigned i = 0; i < 2; i++) {
        if (strcmp(v->seen[1 - i].digest, digest) == 0) {
            *wrong = v->seen[i].digest;
            return v->seen[i].n;
        }
    }
    return NULL;
}

static void name_results(const struct tf *t, const struct fnode *n, const char *digest, struct str *out)
{
    for (unsigned i = 0; i < t->verify->n; i++)
        str_addf(out, "%s on %s, ", t->verify->seen[i].digest, t->verify->seen[i].n->node->name);
    str_addf(out, "%s on %s", digest, n->node->name);
}

static void blame(const struct tf *t, struct fnode *bad, const char *device, const char *wrong, const char *right, const char *all)
{
    log_err("node %s: wrong result: %s %llu TF %llu: %s", bad->node->name, t->work->is_job ? "job" : "run", (unsigned long long)t->work->id, (unsigned long long)t->id, all);
    counters_add(t->work->flow->d->counters, "results_wrong", 1);
    health_wrong(bad->node, device, t->work->is_job, t->work->id, t->id, wrong, right, all);
}

/* Nobody can say which of them is right. */
static bool give_up(struct tf *t, struct fnode *n, struct end *end, const char *all)
{
    snprintf(t->verify->text, sizeof(t->verify->text), "its results differ, and no third node could say which is right: %.200s", all);
    reject(n->node, t, t->fence);
    *end = (struct end){ .outcome = END_FAILED, .reason = "DigestsDiffer", .text = t->verify->text, .node = end->node, .device = end->device };
    return false;
}

/* The second result is another one, or the third is there. */
static bool judge(struct tf *t, struct fnode *n, struct end *end)
{
    struct verify *v = t->verify;
    struct str all = { 0 };
    const char *wrong = NULL;
    struct fnode *bad = v->n == 2 ? wrong_one(v, end->digest, &wrong) : NULL;
    bool waits = false;

    name_results(t, n, end->digest, &all);
    if (v->n == 1)
        counters_add(t->work->flow->d->counters, "results_differ", 1);
    if (bad != NULL && v->seen[0].n != v->seen[1].n)
        blame(t, bad, bad == v->seen[0].n ? v->seen[0].device : v->seen[1].device, wrong, end->digest, str_text(&all));
    else if (v->n == 1 && v->seen[0].n == n)     /* one node, one TF, two results: another one is needed only to say which is right */
        blame(t, n, end->device, v->seen[0].digest, end->digest, str_text(&all));
    if (bad == NULL && v->n == 1 && can_repeat(t))
        waits = ask_another(t, n, end);
    else if (bad == NULL)
        give_up(t, n, end, str_text(&all));
    str_free(&all);
    return waits;
}

bool verify_done(struct tf *t, struct fnode *n, struct end *end)
{
    struct counters *c = t->work->flow->d->counters;

    if (end->digest == NULL || end->digest[0] == '\0' || (t->parts != NULL && t->parts->incomplete))
        return false;
    if (t->verify == NULL) {
        if (!health_samples(n->node) || !can_repeat(t))
            return false;
        tf_avoid(t, &n->account);
        if (!settle_somebody_else(t))
            return false;
        t->n_avoid--;
        counters_add(c, "results_sampled", 1);
        return ask_another(t, n, end);
    }
    if (t->verify->n == 1 && strcmp(t->verify->seen[0].digest, end->digest) == 0) {
        counters_add(c, t->verify->seen[0].n == n ? "results_alone" : "results_equal", 1);
        return false;
    }
    return judge(t, n, end);
}

bool verify_settle(struct tf *t)
{
    struct witness w;
    struct end end;

    if (t->verify == NULL)
        return false;
    w = t->verify->seen[0];
    if (t->verify->n != 1 || w.n->node->session == NULL)
        return false;
    t->verify->n = 0;                            /* it is the accepted one */
    t->fence = w.fence;
    end = (struct end){ .outcome = END_DONE, .node = w.n->node->name, .device = w.device, .digest = w.digest, .stages = w.stages, .seconds = w.seconds, .publish = w.publish };
    counters_add(t->work->flow->d->counters, "results_alone", 1);
    health_done(&t->doubts, w.n->node, t->work->is_job, t->work->id, 0, 0);
    t->work->ops->settle(t, &end);
    witness_free(&w);
    return true;
}
