/* runtf.c - a run's TFs: what a worker is told of one, how one is settled, and what is stored of it
 *
 * From: settle.c and source.c (through run_ops).  To: the writer (one row a settled TF, with the run's totals), run.c (progress, releases).
 * Always: a TF is counted in the run's totals when it leaves the table, in the same turn.
 */
#include "config.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "events.h"
#include "log.h"
#include "mem.h"
#include "rows.h"
#include "str.h"
#include "verify.h"

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

/* The run as it is now. Its fixed strings are read by the writer where they are: a run outlives its changes. */
static struct run_change *change_create(struct run *r)
{
    struct run_change *c = mem_zalloc(sizeof(*c));
    struct work *w = &r->work;

    c->run = r;
    c->dropped_by = tally_text(r->dropped);
    c->ran = ran_totals_text(r->ran);
    c->text = mem_strdup(r->text);
    c->row = (struct row_run){
        .id = w->id, .name = w->name, .state = run_state_name[r->state], .workflow = w->workflow, .backends = w->backends, .options = w->options,
        .policy = disp_policy_name[w->policy], .keep = r->until_done ? "until-done" : "until-built", .incomplete_rule = r->drop_incomplete ? "drop" : "build",
        .output = w->output, .owner = r->owner, .text = c->text, .sources = r->n_sources, .min_nodes = r->min_nodes, .in_flight = r->in_flight_asked,
        .announced = r->announced, .dispatched = w->dispatched, .done = r->done, .failed = r->failed, .dropped = tally_sum(r->dropped), .lost = r->lost,
        .incomplete = r->incomplete, .bytes_done = r->bytes_done, .dropped_by = c->dropped_by, .started = r->started, .ended = r->ended,
        .stages = c->ran, .nice = w->nice.own, .nice_min = w->nice.min, .nice_max = w->nice.max };
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

/* The listed one, newest first. NULL: it is too long ago. */
static struct settled *ring_find(struct run *r, uint64_t id)
{
    for (size_t i = 0; i < r->ring_n; i++) {
        struct settled *s = &r->ring[(r->ring_at + 2 * r->ring_n - 1 - i) % r->ring_n];
        if (s->id == id)
            return s;
    }
    return NULL;
}

void run_unpublished(struct record *rec)
{
    struct run *r = run_of(rec->work);
    struct settled *s = ring_find(r, rec->key.tf);

    r->done--;
    r->bytes_done -= rec->bytes;
    ran_uncount(&r->ran, rec->stages);
    r->failed++;
    if (rec->node && run_share(r, rec->node)->done)
        run_share(r, rec->node)->done--;
    if (s) {
        free(s->text);
        s->text = mem_strdup(rec->text);
        s->outcome = END_FAILED;
        s->reason = word_number(r, rec->reason);
    }
    free(r->text);
    r->text = mem_printf("TF %" PRIu64 " failed on %s: %s: %s", rec->key.tf, rec->node, rec->reason, rec->text);
    r->failed_at = flow_now(r->work.flow);
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

    if (verify_settle(t))
        return;
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
