/* run.c - a run's life: configuring, ready, running, stopping, over
 *
 * From: StartRun (runstart.c), StopRun, sources (source.c), settled TFs (runtf.c), the tick.  To: the writer (the run's row), sources (Release), the
 * asker of StopRun.
 * Always: announced = done + failed + dropped + lost + TFs in the table; a run is over when nothing of it is left to settle, to store or to publish.
 */
#include "config.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "wait.h"
#include "verify.h"

#define PUBLISH_LIMIT 5.0        /* s after a run's cut that its results may take to be published */

const char *const run_state_name[6] = { "configuring", "ready", "running", "stopping", "done", "error" };

/* ---- releases ------------------------------------------------------------------------------ */

void run_release(struct run *r, uint64_t id)
{
    idset_add(&r->release, id);
    r->runs->releases = true;
}

void run_release_cb(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct runs *runs = w->data;

    (void)loop;
    (void)revents;
    source_flush(runs);
}

/* Releases are put together for a few milliseconds: longer the more sources are to be told. */
void run_turn(struct runs *runs)
{
    struct run *r;
    unsigned sources = 0;

    if (!runs->releases)
        return;
    if (runs->d->loop == NULL) {
        source_flush(runs);
    } else if (!ev_is_active(&runs->release_timer)) {
        TAILQ_FOREACH(r, &runs->open, entry)
            sources += r->connected;
        ev_timer_set(&runs->release_timer, sources < 10 ? 0.002 : sources < 250 ? 0.0002 * sources : 0.05, 0.);
        ev_timer_start(runs->d->loop, &runs->release_timer);
    }
}

/* ---- states -------------------------------------------------------------------------------- */

uint64_t run_in_flight(const struct run *r)
{
    return HASH_COUNT(r->work.tfs);
}

struct run *run_find(struct runs *runs, uint64_t id, bool over)
{
    struct run *r;

    TAILQ_FOREACH(r, &runs->open, entry) {
        if (r->work.id == id)
            return r->stored ? r : NULL;         /* nobody hears of it before it is on disk */
    }
    if (over) {
        TAILQ_FOREACH(r, &runs->over, entry) {
            if (r->work.id == id)
                return r;
        }
    }
    return NULL;
}

static void run_set_state(struct run *r, Sluice__RunState state)
{
    if (r->state == state)
        return;
    log_info("run %" PRIu64 ": %s -> %s", r->work.id, run_state_name[r->state], run_state_name[state]);
    r->state = state;
    r->work.paused = state == SLUICE__RUN_STATE__CONFIGURING;
    flow_kick(r->work.flow);
}

struct run *run_create(struct runs *runs, uint64_t id, unsigned sources)
{
    struct run *r = mem_zalloc(sizeof(*r));

    work_init(&r->work, runs->flow, &run_ops, false, id);
    r->runs = runs;
    r->n_sources = sources;
    r->source = mem_array(sources, sizeof(*r->source));
    for (unsigned i = 0; i < sources; i++) {
        r->source[i].run = r;
        r->source[i].part = i;
    }
    r->work.pool = POOL_ONLINE;
    r->work.paused = true;
    r->samples = samples_create();
    TAILQ_INSERT_TAIL(&runs->open, r, entry);
    TAILQ_INSERT_TAIL(&runs->flow->works, &r->work, entry);
    return r;
}

static void run_free_details(struct run *r)
{
    struct share *s, *next;
    struct run_word *w, *next_word;

    samples_destroy(r->samples);
    r->samples = NULL;
    for (size_t i = 0; i < r->ring_n; i++)
        free(r->ring[i].text);
    free(r->ring);
    r->ring = NULL;
    r->ring_n = r->ring_cap = r->ring_at = 0;
    HASH_ITER(hh, r->words, w, next_word) {
        HASH_DEL(r->words, w);
        free(w->text);
        free(w);
    }
    free(r->word);
    r->word = NULL;
    r->n_words = 0;
    HASH_ITER(hh, r->shares, s, next) {
        HASH_DEL(r->shares, s);
        free(s);
    }
    idset_free(&r->settled);
}

void run_destroy(struct run *r)
{
    struct tf *t, *next;

    source_detach(r);
    HASH_ITER(hh, r->work.tfs, t, next) {
        source_free_parts(t);
        tf_free(t);
    }
    run_free_details(r);
    for (unsigned i = 0; i < r->n_sources; i++) {
        free(r->source[i].name);
        free(r->source[i].address);
        free(r->source[i].incarnation);
        idset_free(&r->source[i].release);
    }
    while (r->asks) {
        struct stop_ask *a = r->asks;
        r->asks = a->next;
        free(a);
    }
    free(r->source);
    free(r->owner);
    free(r->text);
    free(r->stop_reason);
    tally_free(r->dropped);
    ran_free(r->ran);
    idset_free(&r->release);
    work_free(&r->work);
    free(r);
}

/* Kept a while for people; the oldest go. */
void run_retire(struct run *r)
{
    struct runs *runs = r->runs;
    unsigned n = 0;

    TAILQ_INSERT_HEAD(&runs->over, r, entry);
    runs->n_over++;
    struct run *x = TAILQ_FIRST(&runs->over), *next;
    for (; x; x = next) {
        next = TAILQ_NEXT(x, entry);
        if (++n == RUNS_DETAILED + 1 && x->changes == 0)
            run_free_details(x);
        if (n > RUNS_KEPT && x->changes == 0 && x->work.records == 0) {
            TAILQ_REMOVE(&runs->over, x, entry);
            runs->n_over--;
            run_destroy(x);
        }
    }
}

void run_answer_asks(struct run *r)
{
    while (r->asks) {
        struct stop_ask *a = r->asks;
        struct session *s = session_find(a->ref);
        r->asks = a->next;
        if (s)
            run_answer(r, s, a->ref.id);
        free(a);
    }
}

static void over_then(struct run *r, int rc, const struct err *e, void *arg)
{
    (void)arg;
    if (rc < 0)
        log_err("run %" PRIu64 ": its end was not stored: %s", r->work.id, e ? e->text : "?");
    r->stored_over = true;
    run_answer_asks(r);
    wait_run_over(r);
}

/* Nothing came of it: that is no run that is done, as with jobs. Its text has the last cause. */
static bool is_failure(const struct run *r)
{
    return r->done == 0 && r->failed > 0;
}

static void put_before(struct run *r, char *text)
{
    char *before = r->text;

    r->text = before == NULL ? text : mem_printf("%s; %s", text, before);
    if (before != NULL) {
        free(before);
        free(text);
    }
}

/* What such a source would still have sent nobody knows: the counts do not show that the run is not whole. */
static void tell_of_cut_streams(struct run *r)
{
    const struct source *first = NULL;
    unsigned n = 0;

    for (unsigned i = 0; i < r->n_sources && !r->restored; i++) {        /* of a former start it is not known which had ended */
        const struct source *s = &r->source[i];

        if (s->session == NULL && s->gone_since > 0 && !s->ended) {
            first = first == NULL ? s : first;
            n++;
        }
    }
    if (n > 0)
        put_before(r, mem_printf("cut short: %u of %u sources, %.60s first, went before the end of their stream", n, r->n_sources, first->name));
}

static void run_over(struct run *r)
{
    struct work *w = &r->work;

    source_flush(r->runs);
    if (w->records > 0)
        put_before(r, mem_printf("%u accepted results are not yet published: their workers are away", w->records));
    tell_of_cut_streams(r);
    run_set_state(r, is_failure(r) ? SLUICE__RUN_STATE__RUN_ERROR : SLUICE__RUN_STATE__RUN_DONE);
    r->ended = clock_wall_ns();
    assign_close(w);
    source_detach(r);
    TAILQ_REMOVE(&w->flow->works, w, entry);
    TAILQ_REMOVE(&r->runs->open, r, entry);
    run_put(r, CHANGE_KEEP, event_create(NULL, r->owner, "run over", NULL, w->name, NULL), over_then, NULL);
    run_retire(r);
}

/* Only results that were accepted and whose workers are away keep it from its end. */
static bool only_unpublished(const struct run *r)
{
    struct record *rec;

    for (rec = r->work.flow->records; rec; rec = rec->hh.next) {
        if (rec->work == &r->work && (!rec->stored || rec->writing))
            return false;
    }
    return true;
}

/* TFs that were in flight when we died and that nobody spoke of since: sources and workers that had them died too. Numbers follow each other, so
 * that the gaps name them; there are at most as many as were in flight at the last commit. */
static void lose_unspoken(struct run *r)
{
    uint64_t gap[64];
    size_t n = 0;

    for (size_t i = 1; i < r->settled.n && r->owed > 0 && n < ARRAY_LEN(gap); i++) {
        for (uint64_t id = r->settled.at[i - 1].last + 1; id < r->settled.at[i].first && r->owed > 0 && n < ARRAY_LEN(gap); id++, r->owed--)
            gap[n++] = id;
    }
    if (n == 0)
        r->owed = 0;
    for (size_t i = 0; i < n; i++)
        run_drop_unborn(r, gap[i], END_LOST, "NotAnnouncedAgain");
}

static bool is_over(struct run *r)
{
    bool ending = r->state == SLUICE__RUN_STATE__STOPPING || (r->n_ended == r->n_sources && r->state != SLUICE__RUN_STATE__CONFIGURING);

    if (!ending || r->work.tfs != NULL)
        return false;
    if (r->state == SLUICE__RUN_STATE__STOPPING && r->n_ended < r->n_sources && r->connected > 0 && flow_now(r->work.flow) < r->stop_at)
        return false;                /* its sources have not ended the stream yet */
    double patience = r->restored_at + r->runs->d->conf->limits.grace;
    if (r->state == SLUICE__RUN_STATE__STOPPING && r->cut_at < patience)
        patience = r->cut_at;
    if (r->restored && flow_now(r->work.flow) < patience && (r->unheard > 0 || source_awaits_return(r)))
        return false;                /* who had them before our start is still to come */
    if (r->owed > 0) {
        lose_unspoken(r);
        return false;                /* their ends are to be stored first */
    }
    if (r->work.records == 0)
        return true;
    if (r->settled_since == 0)
        r->settled_since = flow_now(r->work.flow);
    return flow_now(r->work.flow) - r->settled_since > PUBLISH_LIMIT && only_unpublished(r);
}

void run_progress(struct run *r)
{
    unsigned wanted = r->min_nodes > 1 ? r->min_nodes : 1;

    if (r->ended || r->in_progress || r->runs->d->stopping)
        return;
    r->in_progress = true;
    if (r->state == SLUICE__RUN_STATE__CONFIGURING && r->connected == r->n_sources &&
        flow_usable_nodes(r->work.flow, r->work.pool) >= wanted)
        run_set_state(r, SLUICE__RUN_STATE__RUN_READY);
    if (r->state == SLUICE__RUN_STATE__RUN_READY && r->announced > 0)
        run_set_state(r, SLUICE__RUN_STATE__RUNNING);
    if (r->work.tfs != NULL)
        r->settled_since = 0;
    if (is_over(r))
        run_over(r);
    r->in_progress = false;
}

/* ---- stopping ------------------------------------------------------------------------------ */

/* What is given out and not to be waited for: the worker is asked to give it up, its charge stays until it answers. */
static void cut_off(struct run *r, bool built_too)
{
    struct tf *t, *next;

    HASH_ITER(hh, r->work.tfs, t, next) {
        if (t->state == TF_BUILT && !built_too)
            continue;
        if (t->charge == NULL) {
            run_drop(t, END_DROPPED, "StopTimeout", "it was not at a node when the run's time was up");
            continue;
        }
        struct fnode *n = t->charge->account->owner;
        char node[64];
        snprintf(node, sizeof(node), "%s", n->node->name);
        flow_cancel(n, t->charge, "the run is stopped");
        if (verify_settle(t))
            continue;
        t->work->ops->settle(t, &(struct end){ .outcome = END_LOST, .reason = "StopTimeout", .text = "it was not done when the run's time was up", .node = node });
    }
}

static void stop_tick(struct run *r, double now)
{
    if (r->state != SLUICE__RUN_STATE__STOPPING)
        return;
    if (now >= r->cut_at)
        cut_off(r, true);
    else if (now >= r->stop_at)
        cut_off(r, false);
}

static void take_reason(struct run *r, const char *reason)
{
    if (reason == NULL || reason[0] == '\0')
        return;
    r->stop_reason = mem_strdup(reason);
    put_before(r, mem_printf("stopped: %s", reason));
}

void run_stop(struct session *s, uint32_t id, const void *m)
{
    const Sluice__StopRun *x = m;
    struct run *r = run_find(s->d->runs, x->id, true);
    double data = x->has_data_timeout && x->data_timeout >= 0 ? x->data_timeout : RUN_DATA_TIMEOUT;
    double calib = x->has_calib_timeout && x->calib_timeout > 0 ? x->calib_timeout : 0;
    char who[96];
    struct err e;

    if (r == NULL) {
        err_set(&e, ERR_NOT_FOUND, "no run %" PRIu64, x->id);
        session_error(s, id, &e, NULL);
        return;
    }
    if (r->ended && r->stored_over) {
        run_answer(r, s, id);
        return;
    }
    struct stop_ask *a = mem_zalloc(sizeof(*a));
    a->ref = session_refer(s, id);
    a->next = r->asks;
    r->asks = a;
    if (r->ended)
        return;
    double now = flow_now(r->work.flow);
    bool first = r->state != SLUICE__RUN_STATE__STOPPING;
    if (first || now + data < r->stop_at)        /* a second stop may hurry it, never delay it */
        r->stop_at = now + data;
    if (first || now + data + calib < r->cut_at)
        r->cut_at = now + data + calib;
    if (first) {
        take_reason(r, x->reason);
        run_set_state(r, SLUICE__RUN_STATE__STOPPING);
        run_put(r, CHANGE_KEEP, event_create(NULL, session_author(s, who), "run stop", NULL, r->work.name, r->stop_reason), NULL, NULL);
    }
    source_stop(r, r->stop_at - now);
    run_progress(r);
}

/* ---- the tick ------------------------------------------------------------------------------ */

static void watch_full(struct run *r, double now)
{
    bool full = (r->work.n[TF_QUEUED] > 0 && r->work.why != NULL) || (r->work.limit && r->work.n[TF_BUILDING] + r->work.n[TF_BUILT] >= r->work.limit);

    if (!full)
        r->full_since = 0;
    else if (r->full_since == 0)
        r->full_since = now;
    bool stalled = run_stalled(r, now) > RUN_STALLED;
    if (stalled && !r->alarmed) {
        counters_add(r->runs->d->counters, "runs_stalled", 1);
        log_err("run %" PRIu64 ": full (%s), and nothing came back for %.0f s; %u TFs are given out, %u wait", r->work.id, r->work.why ? r->work.why : "?",
                run_stalled(r, now), r->work.n[TF_BUILDING] + r->work.n[TF_BUILT], r->work.n[TF_QUEUED]);
    }
    r->alarmed = stalled;
}

double run_stalled(const struct run *r, double now)
{
    double since = r->full_since > r->work.progress ? r->full_since : r->work.progress;

    return r->full_since == 0 ? 0 : now - since;
}

/* TFs that are done but not on disk while it cannot be written: the sources need not hold them. */
static void release_unstored(struct runs *runs)
{
    if (writer_accepts_new(runs->d->writer))
        return;
    for (struct record *rec = runs->flow->records; rec; rec = rec->hh.next) {
        if (rec->key.is_job || rec->stored || rec->released)
            continue;
        rec->released = true;
        run_release(run_of(rec->work), rec->key.tf);
    }
}

void run_tick(struct runs *runs, double now)
{
    struct run *r, *next;
    bool sample = now >= runs->sample_at, second = now >= runs->second_at;

    if (sample)
        runs->sample_at = now + 0.1;
    if (second) {
        runs->second_at = now + 1;
        release_unstored(runs);
        source_flush(runs);
    }
    for (r = TAILQ_FIRST(&runs->open); r; r = next) {
        next = TAILQ_NEXT(r, entry);
        source_tick(r, now);
        stop_tick(r, now);
        watch_full(r, now);
        if (sample && r->state != SLUICE__RUN_STATE__CONFIGURING)
            samples_take(r, (double)(clock_wall_ns() - r->started) / (double)CLOCK_SECOND);
        run_progress(r);
    }
    wait_tick(runs, now);
}
