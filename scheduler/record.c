/* record.c - TFs that are settled, until what came of them is on disk and published; verdicts
 *
 * From: the ends of TFs (runtf.c, task.c), the database at a start.  To: the writer, the worker (Verdict).
 * Always: a Verdict(true) goes out after the commit, and again whenever its worker registers anew, until it says Published.
 */
#include "config.h"
#include "settle.h"

#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "clock.h"
#include "flow_core.h"
#include "mem.h"

/* ---- verdicts ------------------------------------------------------------------------------ */

static void verdict_send(struct node *n, const struct charge_key *key, bool accepted, const struct record *r, bool for_another)
{
    Sluice__Verdict m = SLUICE__VERDICT__INIT;
    struct key_message name;

    if (n->session == NULL)
        return;
    key_message(key, &name);
    m.tf = &name.tf;
    m.fence = &name.fence;
    m.has_accepted = true;
    m.accepted = accepted;
    m.stem = r ? r->stem : NULL;
    m.output = r ? r->work->output : NULL;
    m.has_for_another = m.for_another = for_another;
    chan_send(n->session->chan, 0, &m.base);
}

void verdict_reject(struct node *n, const struct charge_key *key)
{
    verdict_send(n, key, false, NULL, false);
}

static void accept_at(struct record *r, struct fnode *n, bool for_another)
{
    struct charge_key key = { r->key.is_job, r->key.work, r->key.tf, r->fence.epoch, r->fence.attempt };

    assign_open(n, r->work);                     /* it must know the work to publish for it */
    verdict_send(n->node, &key, true, r, for_another);
}

void record_verdict(struct record *r)
{
    struct flow *f = r->work->flow;
    struct node *n = r->node ? farm_node(f->d->farm, r->node) : NULL;

    if (n != NULL && n->session != NULL)
        accept_at(r, flow_node(f, n), false);
}

void record_verdict_to(struct record *r, struct fnode *another)
{
    accept_at(r, another, true);
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
    r->tries = t->tries;
    r->bytes = t->bytes;
    r->time = clock_wall_ns();
    r->incomplete = incomplete;
    r->publish = end->publish;
    r->published = !end->publish;
    return r;
}

struct record *record_restore(struct work *w, uint64_t tf, struct fence fence, const char *node, const char *device, const char *digest, const char *stem, const char *stages,
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
    return r;
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

void record_store(struct record *r)
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
