/* run.c - runs: started, running, stopped, over; and what is known about them
 *
 * From: StartRun, StopRun, sources (source.c), settled TFs (settle.c), the tick.  To: the writer (one row a settled TF, with the run's totals), sources
 * (Release), the asker of StopRun.
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
#include "rows.h"
#include "str.h"
#include "wait.h"

#define PUBLISH_LIMIT 5.0        /* s after a run's cut that its results may take to be published */
#define FAILED_SHOWN 600.0       /* s after a failed TF that it stays an alarm */
#define STALLED 10.0             /* s of a full run without anything coming back: an alarm */

const char *const run_state_name[6] = { "configuring", "ready", "running", "stopping", "done", "error" };

/* ---- storing ------------------------------------------------------------------------------- */

struct run_change {
    struct run *run;
    struct record *rec;              /* NULL: only the run's row */
    struct row_run row;
    struct row_run_tf tf;
    char *dropped_by, *text, *reason, *ran;
    struct event *ev;
    void (*then)(struct run *r, int rc, const struct err *e, void *arg);
    void *arg;
};

static char *dropped_text(const struct tally *t)
{
    struct str s = { 0 };

    for (; t; t = t->next)
        str_addf(&s, "%s%s %" PRIu64, s.len ? "," : "", t->word, t->n);
    return str_take(&s);
}

/* The run as it is now. Its fixed strings are read by the writer where they are: a run outlives its changes. */
static struct run_change *change_create(struct run *r)
{
    struct run_change *c = mem_zalloc(sizeof(*c));
    struct work *w = &r->work;

    c->run = r;
    c->dropped_by = dropped_text(r->dropped);
    c->ran = ran_totals_text(r->ran);
    c->text = mem_strdup(r->text);
    c->row = (struct row_run){
        .id = w->id, .name = w->name, .state = run_state_name[r->state], .workflow = w->workflow, .backends = w->backends, .options = w->options,
        .policy = disp_policy_name[w->policy], .keep = r->until_done ? "until-done" : "until-built", .incomplete_rule = r->drop_incomplete ? "drop" : "build",
        .output = w->output, .owner = r->owner, .text = c->text, .sources = r->n_sources, .min_nodes = r->min_nodes, .in_flight = r->in_flight_asked,
        .announced = r->announced, .dispatched = w->dispatched, .done = r->done, .failed = r->failed, .dropped = tally_sum(r->dropped), .lost = r->lost,
        .incomplete = r->incomplete, .bytes_done = r->bytes_done, .dropped_by = c->dropped_by, .started = r->started, .ended = r->ended,
        .stages = c->ran };
    memcpy(c->row.key, w->key, sizeof(c->row.key));
    r->changes++;
    return c;
}

static int change_write(struct db *db, void *arg, struct err *e)
{
    struct run_change *c = arg;

    if (rows_put_run(db, &c->row, e) < 0)
        return -1;
    if (c->rec && rows_put_run_tf(db, &c->tf, e) < 0)
        return -1;
    return c->ev ? event_write(c->ev, db, e) : 0;
}

static void change_free(struct run_change *c)
{
    event_destroy(c->ev);
    free(c->dropped_by);
    free(c->ran);
    free(c->text);
    free(c->reason);
    free(c);
}

static void change_then(void *arg, int rc, const struct err *e)
{
    struct run_change *c = arg;
    struct run *r = c->run;

    r->changes--;
    if (rc == 0 && c->ev) {
        history_add(r->runs->d->history, c->ev);
        c->ev = NULL;
    }
    if (c->then)
        c->then(r, rc, e, c->arg);
    change_free(c);
}

void run_put(struct run *r, enum change_kind kind, struct event *ev, void (*then)(struct run *, int, const struct err *, void *), void *arg)
{
    struct run_change *c = change_create(r);

    c->ev = ev;
    c->then = then;
    c->arg = arg;
    writer_put(r->runs->d->writer, kind, change_write, change_then, c);
}

static void record_then(struct run *r, int rc, const struct err *e, void *arg)
{
    struct record *rec = arg;

    rec->writing = false;
    if (rc < 0) {
        log_err("run %" PRIu64 " TF %" PRIu64 ": its end was not stored: %s", r->work.id, rec->key.tf, e ? e->text : "?");
        record_free(rec);
        return;
    }
    if (!rec->stored && !rec->released)
        run_release(r, rec->key.tf);
    record_stored(rec);
}

void run_store_record(struct record *rec)
{
    struct run *r = run_of(rec->work);
    struct run_change *c = change_create(r);

    c->rec = rec;
    c->reason = rec->text && rec->text[0] ? mem_printf("%s: %s", rec->reason ? rec->reason : "Unknown", rec->text) : mem_strdup(rec->reason);
    c->tf = (struct row_run_tf){ .run = r->work.id, .tf = rec->key.tf, .outcome = outcome_name[rec->outcome], .reason = c->reason, .node = rec->node,
                                 .device = rec->device, .digest = rec->digest, .stem = rec->stem, .epoch = rec->fence.epoch, .attempt = rec->fence.attempt,
                                 .incomplete = rec->incomplete, .published = rec->published, .seconds = rec->seconds, .bytes = rec->bytes, .time = rec->time,
                                 .stages = rec->stages };
    c->then = record_then;
    c->arg = rec;
    rec->writing = true;
    if (!rec->stored && !writer_accepts_new(r->runs->d->writer)) {
        rec->released = true;        /* the worker keeps its result until it is stored: the source need not wait for our disk */
        run_release(r, rec->key.tf);
    }
    writer_put(r->runs->d->writer, CHANGE_KEEP, change_write, change_then, c);
}

/* ---- settling ------------------------------------------------------------------------------ */

struct share *run_share(struct run *r, const char *node)
{
    struct share *s;

    HASH_FIND_STR(r->shares, node, s);
    if (s)
        return s;
    struct node *n = farm_node(r->runs->d->farm, node);
    s = mem_zalloc(sizeof(*s));
    snprintf(s->node, sizeof(s->node), "%s", node);
    snprintf(s->class, sizeof(s->class), "%s", n ? n->class : "");
    HASH_ADD_STR(r->shares, node, s);
    return s;
}

static uint16_t word_number(struct run *r, const char *text)
{
    struct run_word *w;

    if (text == NULL || text[0] == '\0')
        return 0;
    HASH_FIND_STR(r->words, text, w);
    if (w)
        return w->number;
    if (r->n_words == UINT16_MAX - 1)
        return 0;
    w = mem_zalloc(sizeof(*w));
    w->text = mem_strdup(text);
    w->number = (uint16_t)++r->n_words;
    r->word = mem_grow(r->word, r->n_words + 1u, sizeof(*r->word));
    r->word[0] = NULL;
    r->word[w->number] = w->text;
    HASH_ADD_KEYPTR(hh, r->words, w->text, strlen(w->text), w);
    return w->number;
}

static void ring_add(struct run *r, const struct settled *s)
{
    if (r->ring_n == r->ring_cap && r->ring_cap < SETTLED_KEPT) {
        r->ring_cap = r->ring_cap ? 2 * r->ring_cap : 64;
        r->ring = mem_grow(r->ring, r->ring_cap, sizeof(*r->ring));
    }
    if (r->ring_n < r->ring_cap) {
        r->ring[r->ring_n++] = *s;
        return;
    }
    free(r->ring[r->ring_at].text);
    r->ring[r->ring_at] = *s;
    r->ring_at = (r->ring_at + 1) % r->ring_cap;
}

/* Counts one that is settled: in the totals, in its node's share, in the list. */
void run_count_settled(struct run *r, uint64_t id, enum outcome outcome, const char *reason, const char *text, const char *node, const char *device,
                       const char *digest, const char *stages, double seconds, uint64_t bytes, bool incomplete, uint32_t attempt)
{
    struct settled s = { .id = id, .bytes = bytes, .seconds = seconds, .outcome = (uint8_t)outcome, .incomplete = incomplete, .attempt = attempt,
                         .node = word_number(r, node), .device = word_number(r, device), .reason = word_number(r, reason), .stages = word_number(r, stages),
                         .text = text && text[0] ? mem_strdup(text) : NULL };

    snprintf(s.digest, sizeof(s.digest), "%s", digest ? digest : "");
    ring_add(r, &s);
    idset_add(&r->settled, id);
    r->incomplete += incomplete;
    switch (outcome) {
    case END_DONE:
        r->done++;
        r->bytes_done += bytes;
        ran_count(&r->ran, stages);
        if (node)
            run_share(r, node)->done++;
        break;
    case END_FAILED:
        r->failed++;
        break;
    case END_LOST:
        r->lost++;
        break;
    default:
        tally_add(&r->dropped, reason ? reason : "Unknown", 1);
    }
}

const char *run_reason_split(const char *reason, char word[64])
{
    const char *colon = reason ? strstr(reason, ": ") : NULL;

    if (reason == NULL)
        reason = "";
    snprintf(word, 64, "%.*s", (int)(colon ? (size_t)(colon - reason) : strlen(reason)), reason);
    return colon ? colon + 2 : NULL;
}

/* The cause of the newest failure is what people see of the run. */
static void say_failed(struct run *r, const struct tf *t, const struct end *end)
{
    free(r->text);
    r->text = mem_printf("TF %" PRIu64 " failed%s%s after %u tries: %s%s%s", t->id, end->node ? " on " : "", end->node ? end->node : "", t->tries,
                         end->reason ? end->reason : "Unknown", end->text && end->text[0] ? ": " : "", end->text ? end->text : "");
    r->failed_at = flow_now(r->work.flow);
}

static void run_settle(struct tf *t, const struct end *end)
{
    struct run *r = run_of(t->work);
    struct record *rec = record_create(t, end, t->parts->incomplete);

    if (end->outcome == END_FAILED)
        say_failed(r, t, end);
    run_count_settled(r, t->id, end->outcome, end->reason, end->text, end->node, end->device, end->digest, end->stages, end->seconds, t->bytes,
                      t->parts->incomplete, t->fence.attempt);
    if (t->parts->released)
        rec->released = true;
    source_free_parts(t);
    tf_free(t);
    run_store_record(rec);
    run_progress(r);
}

void run_drop(struct tf *t, enum outcome outcome, const char *reason, const char *text)
{
    char word[24];

    snprintf(word, sizeof(word), "%s", reason);              /* it may be the TF's own */
    t->work->ops->settle(t, &(struct end){ .outcome = outcome, .reason = word, .text = text });
}

void run_drop_unborn(struct run *r, uint64_t id, enum outcome outcome, const char *reason)
{
    struct tf *t = tf_create(&r->work, id);

    t->parts = mem_zalloc(sizeof(*t->parts) + r->n_sources * sizeof(struct part));
    r->announced++;
    run_drop(t, outcome, reason, NULL);
}

/* ---- what a worker is told of a TF --------------------------------------------------------- */

static void run_describe(struct tf *t, Sluice__Assign *a)
{
    struct run *r = run_of(t->work);
    Sluice__Part *part = mem_array(r->n_sources, sizeof(*part));
    Sluice__Part **list = mem_array(r->n_sources, sizeof(*list));
    size_t n = 0;

    for (unsigned i = 0; i < r->n_sources; i++) {
        if (!t->parts->part[i].have || t->parts->part[i].size == 0)
            continue;                /* an empty part is there, but nobody pulls it */
        sluice__part__init(&part[n]);
        part[n].has_number = part[n].has_size = true;
        part[n].number = i;
        part[n].size = t->parts->part[i].size;
        part[n].source = r->source[i].name;
        part[n].address = r->source[i].address;
        list[n] = &part[n];
        n++;
    }
    a->parts = list;
    a->n_parts = n;
    a->has_incomplete = a->has_first_orbit = true;
    a->incomplete = t->parts->incomplete;
    a->first_orbit = t->parts->first_orbit;
    if (n == 0)
        free(part);
}

static void run_described(Sluice__Assign *a)
{
    if (a->n_parts)
        free(a->parts[0]);
    free(a->parts);
}

static char *run_stem(const struct tf *t)
{
    return mem_printf("%" PRIu64 "/tf-%" PRIu64, t->work->id, t->id);
}

static void run_assigned(struct tf *t)
{
    (void)t;
}

static void run_built(struct tf *t)
{
    struct run *r = run_of(t->work);

    if (r->until_done || t->parts->released)
        return;
    t->parts->released = true;
    run_release(r, t->id);
}

static void run_answered(struct work *w)
{
    run_progress(run_of(w));
}

static unsigned run_attempts(const struct work *w)
{
    return w->flow->d->conf->limits.attempts;
}

const struct work_ops run_ops = {
    .describe = run_describe, .described = run_described, .stem = run_stem, .assigned = run_assigned, .built = run_built, .available = source_tf_available,
    .due = source_tf_due, .settle = run_settle, .answered = run_answered, .attempts = run_attempts,
};

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

static void run_over(struct run *r)
{
    struct work *w = &r->work;

    source_flush(r->runs);
    if (w->records > 0) {
        char *before = r->text;
        r->text = mem_printf("%u accepted results are not yet published: their workers are away%s%s", w->records, before ? "; " : "", before ? before : "");
        free(before);
    }
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
    char *before = r->text;

    if (reason == NULL || reason[0] == '\0')
        return;
    r->stop_reason = mem_strdup(reason);
    r->text = mem_printf("stopped: %s%s%s", reason, before ? "; " : "", before ? before : "");
    free(before);
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
    bool stalled = run_stalled(r, now) > STALLED;
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

/* ---- as others see the pool ---------------------------------------------------------------- */

bool run_uses_pool(struct sluiced *d, int pool, unsigned *min_nodes, uint64_t *run)
{
    struct run *r;
    bool uses = false;

    *min_nodes = 0;
    if (d->runs == NULL)
        return false;
    TAILQ_FOREACH(r, &d->runs->open, entry) {
        if (r->work.pool != pool)
            continue;
        if (!uses || r->min_nodes > *min_nodes) {
            *min_nodes = r->min_nodes;
            *run = r->work.id;
        }
        uses = true;
    }
    return uses;
}

/* ---- check and alarms ---------------------------------------------------------------------- */

void run_each_check(struct runs *runs, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct run *r;
    struct err e;

    TAILQ_FOREACH(r, &runs->open, entry) {
        uint64_t flight = 0, dropped = tally_sum(r->dropped);
        for (struct tf *t = r->work.tfs; t; t = t->hh.next) {
            flight++;
            if (idset_has(&r->settled, t->id))
                flight += r->announced + 1;      /* in flight and settled: must not be */
        }
        bool ok = r->announced == r->done + r->failed + dropped + r->lost + flight && r->settled.count == r->done + r->failed + dropped + r->lost;
        err_set(&e, ERR_NONE, "run %" PRIu64 ": announced %" PRIu64 " = done %" PRIu64 " + failed %" PRIu64 " + dropped %" PRIu64 " + lost %" PRIu64
                " + in flight %" PRIu64 " (counted); %" PRIu64 " settled numbers", r->work.id, r->announced, r->done, r->failed, dropped, r->lost, flight,
                r->settled.count);
        line(arg, "conservation", ok, e.text);
    }
    TAILQ_FOREACH(r, &runs->over, entry) {
        uint64_t dropped = tally_sum(r->dropped);
        if (r->announced == r->done + r->failed + dropped + r->lost)
            continue;
        err_set(&e, ERR_NONE, "run %" PRIu64 " is over: announced %" PRIu64 ", done %" PRIu64 ", failed %" PRIu64 ", dropped %" PRIu64 ", lost %" PRIu64,
                r->work.id, r->announced, r->done, r->failed, dropped, r->lost);
        line(arg, "conservation", false, e.text);
    }
    err_set(&e, ERR_NONE, "%u runs that are over", runs->n_over);
    line(arg, "conservation", true, e.text);
}

static void alarm_sources(const struct run *r, double now, void (*alarm)(void *arg, const char *word, const char *text, const char *advice, double since_s), void *arg)
{
    const struct source *first = NULL;
    unsigned gone = 0;
    char text[320];

    for (unsigned i = 0; i < r->n_sources; i++) {
        const struct source *s = &r->source[i];
        if (s->session || s->gone_since == 0 || s->ended)
            continue;
        gone++;
        if (first == NULL || s->gone_since < first->gone_since)
            first = s;
    }
    if (gone == 0)
        return;
    snprintf(text, sizeof(text), "run %" PRIu64 ": %u of %u sources are gone, source %.60s first", r->work.id, gone, r->n_sources, first->name);
    alarm(arg, "SourceGone", text, "start it again, or stop the run", now - first->gone_since);
}

static void alarm_failed(const struct run *r, double now, void (*alarm)(void *arg, const char *word, const char *text, const char *advice, double since_s), void *arg)
{
    if (r->failed_at == 0 || now - r->failed_at > FAILED_SHOWN)
        return;
    char *text = mem_printf("run %" PRIu64 ": %" PRIu64 " TFs failed; %s", r->work.id, r->failed, r->text);
    alarm(arg, "TfsFailed", text, "put right what the text names; `sluice run tfs ID --settled` lists them all", now - r->failed_at);
    free(text);
}

void run_alarms(struct runs *runs, void (*alarm)(void *arg, const char *word, const char *text, const char *advice, double since_s), void *arg)
{
    double now = flow_now(runs->flow);
    char text[320];
    struct run *r;

    TAILQ_FOREACH(r, &runs->open, entry) {
        if (run_stalled(r, now) > STALLED) {
            snprintf(text, sizeof(text), "run %" PRIu64 " is full and nothing came back for %.0f s", r->work.id, run_stalled(r, now));
            alarm(arg, "RunStalled", text, "`sluice run tfs ID` shows where its TFs are; look at the nodes named there", run_stalled(r, now));
        }
        if (flow_usable_nodes(runs->flow, r->work.pool) < r->min_nodes) {
            snprintf(text, sizeof(text), "run %" PRIu64 " wants %u nodes, %u are usable", r->work.id, r->min_nodes, flow_usable_nodes(runs->flow, r->work.pool));
            alarm(arg, "RunShort", text, "`sluice nodes -R` shows the bad ones; move nodes online", 0);
        }
        alarm_sources(r, now, alarm, arg);
        alarm_failed(r, now, alarm, arg);
    }
    TAILQ_FOREACH(r, &runs->over, entry)
        alarm_failed(r, now, alarm, arg);
}
