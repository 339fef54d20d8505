/* runlist.c - what people see of runs: GetRuns, GetRunTfs, GetSamples, Status' list
 *
 * From: run.c's structs.  To: the asker. Nothing here changes a run.
 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "events.h"
#include "mem.h"
#include "nice.h"
#include "run.h"
#include "str.h"

enum { TFS_DEFAULT = 1000, TFS_MAX = 20000 };

/* ---- a run --------------------------------------------------------------------------------- */

static Sluice__Counter **counters_of(const struct tally *t, size_t *n)
{
    Sluice__Counter **list = NULL;

    *n = 0;
    for (; t; t = t->next) {
        list = mem_grow(list, *n + 1, sizeof(struct Sluice__Counter *));
        list[*n] = mem_zalloc(sizeof(Sluice__Counter));
        sluice__counter__init(list[*n]);
        list[*n]->name = (char *)t->word;
        list[*n]->has_value = true;
        list[(*n)++]->value = t->n;
    }
    return list;
}

static int compare_shares(const void *a, const void *b)
{
    return strcmp((*(Sluice__NodeShare *const *)a)->node, (*(Sluice__NodeShare *const *)b)->node);
}

static void fill_shares(const struct run *r, Sluice__Run *m)
{
    for (struct share *s = r->shares; s; s = s->hh.next)
        s->in_flight = 0;
    for (struct tf *t = r->work.tfs; t; t = t->hh.next) {
        struct fnode *n = t->charge ? t->charge->account->owner : NULL;
        if (n)
            run_share((struct run *)r, n->node->name)->in_flight++;
    }
    m->nodes = mem_array(HASH_COUNT(r->shares) + 1, sizeof(struct Sluice__NodeShare *));
    for (struct share *s = r->shares; s; s = s->hh.next) {
        Sluice__NodeShare *x = mem_zalloc(sizeof(*x));
        sluice__node_share__init(x);
        x->node = s->node;
        x->class_ = s->class;
        x->has_done = x->has_in_flight = true;
        x->done = s->done;
        x->in_flight = s->in_flight;
        x->has_fill_mean = x->has_fill_high = s->samples > 0;
        if (s->samples) {
            x->fill_mean = s->fill / (double)s->samples;
            x->fill_high = (double)s->high / (double)s->samples;
        }
        m->nodes[m->n_nodes++] = x;
    }
    if (m->n_nodes)
        qsort(m->nodes, m->n_nodes, sizeof(struct Sluice__NodeShare *), compare_shares);
}

static uint64_t limit_of(const struct run *r)
{
    if (r->in_flight_asked || r->ended)
        return r->in_flight_asked;
    return r->tf_size ? flow_room(r->work.flow, r->work.pool, r->tf_size) : 0;
}

static char *text_of(const struct run *r)
{
    unsigned usable = flow_usable_nodes(r->work.flow, r->work.pool);

    if (r->text)
        return mem_strdup(r->text);
    if (r->state == SLUICE__RUN_STATE__CONFIGURING)
        return mem_printf("%u of %u sources are connected, %u nodes are usable", r->connected, r->n_sources, usable);
    if (!r->ended && r->work.n[TF_QUEUED] && r->work.why)
        return mem_strdup(r->work.why);
    return NULL;
}

static Sluice__Run *run_message(const struct run *r)
{
    const struct work *w = &r->work;
    Sluice__Run *m = mem_zalloc(sizeof(*m));

    sluice__run__init(m);
    m->has_id = m->has_state = m->has_announced = m->has_dispatched = m->has_done = m->has_failed = m->has_lost = m->has_incomplete = true;
    m->has_in_flight = m->has_in_flight_limit = m->has_started = m->has_sources = m->has_sources_connected = m->has_queued = m->has_forming = true;
    m->has_bytes_done = m->has_retried = true;
    m->id = w->id;
    m->name = w->name;
    m->state = r->state;
    m->announced = r->announced;
    m->dispatched = w->dispatched;
    m->done = r->done;
    m->failed = r->failed;
    m->dropped = counters_of(r->dropped, &m->n_dropped);
    m->lost = r->lost;
    m->incomplete = r->incomplete;
    m->in_flight = run_in_flight(r);
    m->in_flight_limit = limit_of(r);
    fill_shares(r, m);
    m->started = r->started;
    m->has_ended = r->ended != 0;
    m->ended = r->ended;
    m->workflow = w->workflow;
    m->backends = w->backends;
    m->policy = (char *)disp_policy_name[w->policy];
    m->output = w->output;
    m->sources = r->n_sources;
    m->sources_connected = r->connected;
    m->queued = (uint64_t)w->n[TF_QUEUED] + w->n[TF_WAITING];
    m->forming = w->n[TF_FORMING];
    m->owner = r->owner;
    m->text = text_of(r);
    m->bytes_done = r->bytes_done;
    m->keep = (char *)(r->until_done ? "until-done" : "until-built");
    m->retried = w->retried;
    m->failures = counters_of(w->failures, &m->n_failures);
    m->stages = ran_list(r->ran, &m->n_stages);
    m->has_stalled_s = r->full_since > 0;
    m->stalled_s = run_stalled(r, flow_now(w->flow));
    m->nice_from = (char *)nice_from(w, r->ended != 0, &m->has_nice, &m->nice);
    m->nice_text = r->ended ? NULL : nice_text(w);
    return m;
}

static void message_free(Sluice__Run *m)
{
    for (size_t i = 0; i < m->n_dropped; i++)
        free(m->dropped[i]);
    for (size_t i = 0; i < m->n_failures; i++)
        free(m->failures[i]);
    for (size_t i = 0; i < m->n_nodes; i++)
        free(m->nodes[i]);
    ran_list_free(m->stages, m->n_stages);
    free(m->dropped);
    free(m->failures);
    free(m->nodes);
    free(m->text);
    free(m->nice_text);
    free(m);
}

static int compare_runs(const void *a, const void *b)
{
    uint64_t x = (*(Sluice__Run *const *)a)->id, y = (*(Sluice__Run *const *)b)->id;

    return (x > y) - (x < y);
}

static void fill_add(const struct run *r, uint64_t id, Sluice__Run ***runs, size_t *n)
{
    if ((id != 0 && r->work.id != id) || !r->stored)
        return;
    *runs = mem_grow(*runs, *n + 1, sizeof(struct Sluice__Run *));
    (*runs)[(*n)++] = run_message(r);
}

void run_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Run ***runs, size_t *n)
{
    struct run *r;

    *runs = NULL;
    *n = 0;
    if (d->runs == NULL)
        return;
    TAILQ_FOREACH(r, &d->runs->open, entry)
        fill_add(r, id, runs, n);
    if (all || id != 0) {
        TAILQ_FOREACH(r, &d->runs->over, entry)
            fill_add(r, id, runs, n);
    }
    if (*n > 1)
        qsort(*runs, *n, sizeof(struct Sluice__Run *), compare_runs);
}

void run_fill_free(Sluice__Run **runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        message_free(runs[i]);
    free(runs);
}

void run_answer(struct run *r, struct session *s, uint32_t id)
{
    Sluice__Runs m = SLUICE__RUNS__INIT;
    Sluice__Run *one = run_message(r);

    m.runs = &one;
    m.n_runs = 1;
    session_answer(s, id, &m.base);
    message_free(one);
}

static struct run *run_asked(struct session *s, uint32_t id, uint64_t run)
{
    struct run *r = run_find(s->d->runs, run, true);
    struct err e;

    if (r == NULL) {
        err_set(&e, ERR_NOT_FOUND, "no run %" PRIu64, run);
        session_error(s, id, &e, NULL);
    }
    return r;
}

void run_list(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetRuns *x = m;
    Sluice__Runs answer = SLUICE__RUNS__INIT;

    if (x->has_id && x->id && run_asked(s, id, x->id) == NULL)
        return;
    run_fill(s->d, x->all, x->has_id ? x->id : 0, &answer.runs, &answer.n_runs);
    session_answer(s, id, &answer.base);
    run_fill_free(answer.runs, answer.n_runs);
}

void run_samples(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetSamples *x = m;
    struct run *r = run_asked(s, id, x->run);

    if (r)
        samples_answer(r, s, id);
}

/* ---- its TFs ------------------------------------------------------------------------------- */

struct listing { Sluice__RunTfs answer; Sluice__RunTf *tf; size_t cap; };

static Sluice__RunTf *listing_add(struct listing *l, uint64_t id)
{
    Sluice__RunTf *x = &l->tf[l->answer.n_tfs++];

    sluice__run_tf__init(x);
    x->has_id = true;
    x->id = id;
    return x;
}

static int compare_tfs(const void *a, const void *b)
{
    uint64_t x = (*(struct tf *const *)a)->id, y = (*(struct tf *const *)b)->id;

    return (x > y) - (x < y);
}

/* Done there, and its results wait for their disk. */
static bool is_undelivered(const struct tf *t, const struct node *n)
{
    const Sluice__Report *r = n != NULL && n->session != NULL ? n->report : NULL;

    for (size_t i = 0; r != NULL && t->state == TF_BUILT && i < r->n_undelivered; i++) {
        if (r->undelivered[i]->run == t->work->id && r->undelivered[i]->job == 0 && r->undelivered[i]->id == t->id)
            return true;
    }
    return false;
}

static const char *place_word(const struct tf *t, bool undelivered)
{
    return t->cancelled ? "cancelling" : undelivered ? "undelivered" : tf_state_name[t->state];
}

static void list_in_flight(struct run *r, uint64_t from, struct listing *l)
{
    size_t n = 0;
    struct tf **sorted = mem_array(HASH_COUNT(r->work.tfs) + 1, sizeof(struct tf *));
    double now = flow_now(r->work.flow);

    for (struct tf *t = r->work.tfs; t; t = t->hh.next) {
        if (t->id >= from)
            sorted[n++] = t;
    }
    if (n)
        qsort(sorted, n, sizeof(struct tf *), compare_tfs);
    for (size_t i = 0; i < n; i++) {
        struct tf *t = sorted[i];
        if (l->answer.n_tfs == l->cap) {
            l->answer.has_more = l->answer.more = true;
            break;
        }
        Sluice__RunTf *x = listing_add(l, t->id);
        struct fnode *node = t->charge ? t->charge->account->owner : NULL;
        bool undelivered = is_undelivered(t, node ? node->node : NULL);
        x->state = (char *)place_word(t, undelivered);
        x->node = node ? node->node->name : NULL;
        x->has_attempt = x->has_seconds = x->has_incomplete = x->has_bytes = x->has_parts = true;
        x->attempt = t->fence.attempt;
        x->seconds = now - t->entered;
        x->reason = t->last_word[0] ? t->last_word : NULL;
        x->text = undelivered && !str_is_empty(node->node->report->trouble) ? node->node->report->trouble : t->last_word[0] ? t->last_text : NULL;
        x->incomplete = t->parts->incomplete;
        x->bytes = t->bytes;
        x->parts = t->parts->n_have;
    }
    free(sorted);
}

static int compare_settled(const void *a, const void *b)
{
    uint64_t x = (*(const struct settled *const *)a)->id, y = (*(const struct settled *const *)b)->id;

    return (x > y) - (x < y);
}

static void list_settled(struct run *r, uint64_t from, struct listing *l)
{
    size_t n = 0;
    const struct settled **sorted = mem_array(r->ring_n + 1, sizeof(*sorted));

    for (size_t i = 0; i < r->ring_n; i++) {
        if (r->ring[i].id >= from)
            sorted[n++] = &r->ring[i];
    }
    if (n)
        qsort(sorted, n, sizeof(*sorted), compare_settled);
    for (size_t i = 0; i < n; i++) {
        const struct settled *s = sorted[i];
        if (l->answer.n_tfs == l->cap) {
            l->answer.has_more = l->answer.more = true;
            break;
        }
        Sluice__RunTf *x = listing_add(l, s->id);
        x->state = (char *)outcome_name[s->outcome];
        x->node = s->node ? r->word[s->node] : NULL;
        x->device = s->device ? r->word[s->device] : NULL;
        x->reason = s->reason ? r->word[s->reason] : NULL;
        x->text = s->text;
        x->digest = s->digest[0] ? (char *)s->digest : NULL;
        x->has_attempt = x->has_seconds = x->has_incomplete = x->has_bytes = true;
        x->attempt = s->attempt;
        x->seconds = s->seconds;
        x->incomplete = s->incomplete;
        x->bytes = s->bytes;
        x->stages = ran_stages(s->stages ? r->word[s->stages] : NULL, &x->n_stages);
    }
    free(sorted);
}

/* In flight, or settled: of those the newest SETTLED_KEPT are in memory, for runs since our start; when not all are, the database has them. */
void run_tfs(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetRunTfs *x = m;
    struct run *r = run_asked(s, id, x->id);
    uint32_t limit = x->limit ? x->limit : TFS_DEFAULT;
    struct listing l = { .cap = limit < TFS_MAX ? limit : TFS_MAX };

    if (r == NULL)
        return;
    if (x->settled && r->done + r->failed + r->lost + tally_sum(r->dropped) > r->ring_n) {
        run_tfs_stored(s, id, x->id, x->from, l.cap);
        return;
    }
    sluice__run_tfs__init(&l.answer);
    l.tf = mem_array(l.cap, sizeof(*l.tf));
    l.answer.tfs = mem_array(l.cap, sizeof(struct Sluice__RunTf *));
    for (size_t i = 0; i < l.cap; i++)
        l.answer.tfs[i] = &l.tf[i];
    if (x->settled)
        list_settled(r, x->from, &l);
    else
        list_in_flight(r, x->from, &l);
    session_answer(s, id, &l.answer.base);
    for (size_t i = 0; i < l.answer.n_tfs; i++)
        ran_stages_free(l.tf[i].stages, l.tf[i].n_stages);
    free(l.answer.tfs);
    free(l.tf);
}
