/* source.c - the sources of a run, and the parts of TFs coming together
 *
 * From: sources (Source, Announce, EndOfStream), the tick (parts that do not come).  To: the run's queue; sources (Release, Window, RunStopping).
 * Always: a TF leaves FORMING when every source announced its part or will not; a part counts as there only as long as its source is connected and
 * announced it over this connection; a source is told of everything it may let go, and only of that.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "log.h"
#include "mem.h"
#include "run.h"

enum { RANGE_MAX = 65536, STEP_MAX = 4096 };
#define PART_MAX (UINT64_C(1) << 40)
#define TF_ALIGN UINT64_C(64)

static uint64_t in_buffer(uint64_t size)
{
    return (size + TF_ALIGN - 1) / TF_ALIGN * TF_ALIGN;
}

static const struct conf_limits *limits_of(const struct run *r)
{
    return &r->work.flow->d->conf->limits;
}

/* ---- parts --------------------------------------------------------------------------------- */

static struct tf *tf_make(struct run *r, uint64_t id)
{
    struct tf *t = tf_create(&r->work, id);

    t->parts = mem_zalloc(sizeof(*t->parts) + r->n_sources * sizeof(struct part));
    r->announced++;
    r->unheard -= r->unheard > 0;
    return t;
}

void source_free_parts(struct tf *t)
{
    free(t->parts);
    t->parts = NULL;
}

/* Whether this source will not announce its part of id any more. */
static bool is_passed(const struct source *s, uint64_t id)
{
    return s->ended || s->given_up || s->watermark > id;
}

static bool is_live(const struct source *s, const struct part *p)
{
    return s->session != NULL && p->generation == s->generation;
}

static bool parts_live(const struct tf *t)
{
    const struct run *r = run_of(t->work);

    for (unsigned i = 0; i < r->n_sources; i++) {
        if (t->parts->part[i].have && !is_live(&r->source[i], &t->parts->part[i]))
            return false;
    }
    return t->parts->n_have > 0;
}

static uint64_t parts_bytes(const struct tf *t)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < run_of(t->work)->n_sources; i++)
        bytes += t->parts->part[i].have ? in_buffer(t->parts->part[i].size) : 0;
    return bytes;
}

static bool is_complete(const struct tf *t)
{
    const struct run *r = run_of(t->work);

    if (t->parts->n_have == r->n_sources)
        return true;
    if (t->parts->n_have + t->parts->n_passed < r->n_sources)
        return false;
    for (unsigned i = 0; i < r->n_sources; i++) {
        if (!t->parts->part[i].have && !is_passed(&r->source[i], t->id))
            return false;
    }
    return true;
}

/* All that it will ever have can be pulled. */
static bool is_ready(const struct tf *t)
{
    return parts_live(t) && (t->parts->incomplete || is_complete(t));
}

/* Short of a part for good: marked, or dropped as the run wants it. false: it is gone. */
static bool tf_incomplete(struct tf *t, const char *text)
{
    if (t->parts->n_have == run_of(t->work)->n_sources || t->parts->incomplete)
        return true;
    if (run_of(t->work)->drop_incomplete) {
        run_drop(t, END_DROPPED, "Incomplete", text);
        return false;
    }
    t->parts->incomplete = true;
    return true;
}

/* Nothing more will come to it: into the queue, or dropped. */
static void tf_formed(struct tf *t)
{
    struct run *r = run_of(t->work);
    struct flow *f = t->work->flow;
    uint64_t largest = flow_largest_buffer(f, t->work->pool);

    if (!tf_incomplete(t, NULL))
        return;
    if (t->bytes == 0) {
        run_drop(t, END_DROPPED, "Empty", "none of its parts has a byte");
        return;
    }
    if (largest > 0 && t->bytes > largest) {
        run_drop(t, END_DROPPED, "TooLarge", "no buffer of the pool can hold it");
        return;
    }
    if (t->bytes > r->tf_size)
        r->tf_size = t->bytes;
    if (t->pulled) {
        struct node *n = t->last_node ? farm_node(f->d->farm, t->last_node) : NULL;
        if (n == NULL || !flow_node(f, n)->announced) {
            tf_enter(t, TF_WAITING, flow_now(f) + limits_of(r)->grace);
            t->pulled = true;
            return;
        }
    }
    if (source_tf_available(t))
        tf_enter(t, TF_QUEUED, 0);
}

static void check_complete(struct tf *t)
{
    if (t->state == TF_FORMING && is_complete(t))
        tf_formed(t);
}

bool source_tf_available(struct tf *t)
{
    struct run *r = run_of(t->work);
    double now = flow_now(t->work->flow);
    const char *word = t->last_word[0] ? t->last_word : "NodeLost";

    if (t->parts->released) {
        run_drop(t, END_LOST, word, "the sources let it go when it was built");
        return false;
    }
    if (r->stop_at > 0 && now >= r->stop_at) {
        run_drop(t, END_LOST, "StopTimeout", word);
        return false;
    }
    if (!is_ready(t)) {
        tf_enter(t, TF_WAITING, now + limits_of(r)->grace);
        return false;
    }
    if (!tf_incomplete(t, "a source is gone"))
        return false;
    t->bytes = parts_bytes(t);
    return true;
}

/* Takes away the parts whose sources did not come back. */
static void parts_give_up(struct tf *t)
{
    struct run *r = run_of(t->work);

    for (unsigned i = 0; i < r->n_sources; i++) {
        struct part *p = &t->parts->part[i];
        if (!p->have || is_live(&r->source[i], p))
            continue;
        p->have = false;
        t->parts->n_have--;
    }
    if (t->parts->n_have == 0) {
        run_drop(t, END_LOST, "SourceGone", t->last_text ? t->last_text : "its source is gone");
    } else if (tf_incomplete(t, "a source is gone")) {
        t->bytes = parts_bytes(t);
        tf_enter(t, TF_QUEUED, 0);
    }
}

/* After our start: a source that was there before and has not come back yet still has its time. */
bool source_awaits_return(const struct run *r)
{
    for (unsigned i = 0; r->restored && i < r->n_sources; i++) {
        const struct source *s = &r->source[i];
        if (s->generation == 0 && !s->given_up)
            return true;
    }
    return false;
}

void source_tf_due(struct tf *t)
{
    struct run *r = run_of(t->work);
    double now = flow_now(t->work->flow);

    if (t->state == TF_FORMING) {
        if (r->state == SLUICE__RUN_STATE__CONFIGURING || source_awaits_return(r)) {
            tf_enter(t, TF_FORMING, now + limits_of(r)->part_timeout);     /* the other sources are still to come */
            return;
        }
        counters_add(t->work->flow->d->counters, "parts_late", 1);
        tf_formed(t);
        return;
    }
    if (!is_ready(t))
        parts_give_up(t);
    else if (source_tf_available(t))
        tf_enter(t, TF_QUEUED, 0);
}

/* ---- announcements ------------------------------------------------------------------------- */

static bool is_live_data(const struct run *r)
{
    for (unsigned i = 0; i < r->n_sources; i++) {
        if (r->source[i].session && !r->source[i].holds)
            return true;
    }
    return false;
}

/* A bounded queue: live data beyond it are dropped, the newest first; a source that holds is kept within its window, and refused far beyond it. */
static bool is_queue_full(const struct run *r)
{
    uint64_t waiting = (uint64_t)r->work.n[TF_FORMING] + r->work.n[TF_QUEUED] + r->work.n[TF_WAITING], queue = limits_of(r)->queue;

    return waiting >= (is_live_data(r) ? queue : 2 * queue);
}

static struct tf *tf_announced(struct run *r, struct source *s, uint64_t id)
{
    if (idset_has(&r->settled, id)) {
        idset_add(&s->release, id);
        r->runs->releases = true;
        r->late_parts += !r->restored;
        return NULL;
    }
    struct tf *t = tf_find(&r->work, id);
    if (t)
        return t;
    if (is_queue_full(r)) {
        run_drop_unborn(r, id, END_DROPPED, "QueueFull");
        return NULL;
    }
    t = tf_make(r, id);
    for (unsigned i = 0; i < r->n_sources; i++)
        t->parts->n_passed += is_passed(&r->source[i], id);
    tf_enter(t, TF_FORMING, flow_now(r->work.flow) + limits_of(r)->part_timeout);
    return t;
}

struct tf *run_adopt(struct work *w, uint64_t id, uint64_t bytes)
{
    struct run *r = run_of(w);

    if (idset_has(&r->settled, id))
        return NULL;
    struct tf *t = tf_make(r, id);
    t->bytes = bytes;
    return t;
}

/* One that waited for its source may go on. */
static void check_waiting(struct tf *t)
{
    if (t->state == TF_WAITING && !t->pulled && is_ready(t) && source_tf_available(t))
        tf_enter(t, TF_QUEUED, 0);
}

static void part_pulled(struct tf *t, const Sluice__AnnounceRange *range)
{
    struct fence by = { range->fence ? range->fence->epoch : 0, range->fence ? range->fence->attempt : 0 };

    if (t->charge || by.epoch >= t->work->flow->d->epoch || !fence_newer(by, t->fence))
        return;                      /* ours: the ledger knows */
    t->fence = by;
    t->pulled = true;
    free(t->last_node);
    t->last_node = mem_strdup(range->node);
}

static void part_announced(struct source *s, uint64_t id, uint64_t size, const uint32_t *orbit, const Sluice__AnnounceRange *range)
{
    struct run *r = s->run;
    struct tf *t = tf_announced(r, s, id);
    struct part *p;

    if (t == NULL)
        return;
    p = &t->parts->part[s->part];
    if (p->have) {
        p->generation = s->generation;           /* announced again, over a new connection */
        check_waiting(t);
        return;
    }
    if (t->parts->incomplete) {
        r->late_parts++;             /* its time was up; it goes with the others' Release */
        return;
    }
    p->have = true;
    p->size = size;
    p->generation = s->generation;
    t->parts->n_have++;
    if (!t->parts->adopted)
        t->bytes += in_buffer(size);             /* one that a worker holds, or held, has all its bytes already */
    if (orbit && t->parts->has_orbit && t->parts->first_orbit != *orbit)
        t->parts->mismatch = true;
    if (orbit && !t->parts->has_orbit) {
        t->parts->has_orbit = true;
        t->parts->first_orbit = *orbit;
    }
    if (range->state == SLUICE__FRESHNESS__PULLED)
        part_pulled(t, range);
    if (t->state == TF_FORMING && t->parts->mismatch)
        run_drop(t, END_DROPPED, "OrbitMismatch", "its parts begin at different orbits");
    else if (t->state == TF_FORMING)
        check_complete(t);
    else
        check_waiting(t);
}

static int range_check(const Sluice__AnnounceRange *a, struct err *e)
{
    uint32_t n = a->has_count ? a->count : 1;

    if (!a->has_first || n == 0 || n > RANGE_MAX || a->first > UINT64_MAX - n)
        return err_set(e, ERR_PROTOCOL, "Announce: a range of %u TFs from %" PRIu64 "; 1 to %d are taken", n, a->first, RANGE_MAX);
    if ((a->n_sizes != 1 && a->n_sizes != n) || (a->n_orbits > 1 && a->n_orbits != n))
        return err_set(e, ERR_PROTOCOL, "Announce: %u TFs with %zu sizes and %zu orbits", n, a->n_sizes, a->n_orbits);
    for (size_t i = 0; i < a->n_sizes; i++) {
        if (a->sizes[i] > PART_MAX)
            return err_set(e, ERR_PROTOCOL, "Announce: a part of %" PRIu64 " bytes, beyond 1 TiB", a->sizes[i]);
    }
    return 0;
}

static void range_announced(struct source *s, const Sluice__AnnounceRange *a)
{
    uint32_t n = a->has_count ? a->count : 1;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *orbit = a->n_orbits == 0 ? NULL : &a->orbits[a->n_orbits == 1 ? 0 : i];
        part_announced(s, a->first + i, a->sizes[a->n_sizes == 1 ? 0 : i], orbit, a);
    }
}

/* s will not announce its part of what is below any more: TFs without it are incomplete, or complete at last. */
static void watermark_moved(struct source *s, uint64_t from, uint64_t to)
{
    struct run *r = s->run;
    struct tf *t, *next;

    if (to - from <= STEP_MAX) {
        for (uint64_t id = from; id < to; id++) {
            t = tf_find(&r->work, id);
            if (t == NULL || t->state != TF_FORMING || t->parts->part[s->part].have)
                continue;
            t->parts->n_passed++;
            check_complete(t);
        }
        return;
    }
    HASH_ITER(hh, r->work.tfs, t, next) {
        if (t->state != TF_FORMING || t->id < from || t->id >= to || t->parts->part[s->part].have)
            continue;
        t->parts->n_passed++;
        check_complete(t);
    }
}

static void watermark_set(struct source *s, uint64_t to)
{
    uint64_t from = s->watermark;

    if (to <= from)
        return;
    s->watermark = to;
    watermark_moved(s, from, to);
}

static struct source *asker(struct session *s, uint32_t id, bool has_run, uint64_t run)
{
    struct err e;

    if (s->source && (!has_run || s->source->run->work.id == run))
        return s->source;
    err_set(&e, ERR_STATE, "no source of run %" PRIu64 " is known here", run);
    session_error(s, id, &e, NULL);
    return NULL;
}

void run_announce(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Announce *a = m;
    struct source *src = asker(s, id, a->has_run, a->run);
    struct err e;

    if (src == NULL)
        return;
    for (size_t i = 0; i < a->n_ranges; i++) {
        if (range_check(a->ranges[i], &e) < 0) {
            session_error(s, id, &e, NULL);
            session_close(s, e.text);
            return;
        }
    }
    for (size_t i = 0; i < a->n_ranges; i++)
        range_announced(src, a->ranges[i]);
    if (a->has_watermark)
        watermark_set(src, a->watermark);
    run_progress(src->run);
}

void run_end_of_stream(struct session *s, uint32_t id, const void *m)
{
    const Sluice__EndOfStream *x = m;
    struct source *src = asker(s, id, x->has_run, x->run);

    if (src == NULL)
        return;
    src->skipped = x->skipped;
    if (!src->ended) {
        src->ended = true;
        src->run->n_ended++;
        log_info("run %" PRIu64 ": source %s: end of stream", src->run->work.id, src->name);
    }
    watermark_moved(src, 0, UINT64_MAX);
    if (x->has_watermark && x->watermark > src->watermark)
        src->watermark = x->watermark;
    if (id != 0)
        session_ok(s, id);
    run_progress(src->run);
}

/* ---- sources come and go ------------------------------------------------------------------- */

static char *incarnation_text(const Sluice__Incarnation *i)
{
    if (i == NULL)
        return mem_strdup("");
    return mem_printf("%s/%" PRIu64 "/%u", i->boot_id ? i->boot_id : "", i->start, i->pid);
}

/* Workers will connect to what is said here. From another machine it must not mean that worker's own. */
static int address_check(const struct session *session, const Sluice__Source *m, struct err *e)
{
    const struct peer_id *p = &session->peer;

    if (p->local || peer_is_loopback(p->address) || !(peer_is_unix(m->address) || peer_is_loopback(m->address)))
        return 0;
    return err_set(e, ERR_USAGE, "source %.63s on %.79s: its address %.200s is of its own machine only; workers elsewhere cannot reach it", m->name, p->address, m->address);
}

static int source_check(struct runs *runs, const struct session *session, const Sluice__Source *m, struct run **found, struct err *e)
{
    struct run *r = m->has_run ? run_find(runs, m->run, true) : NULL;

    if (r == NULL)
        return err_set(e, ERR_NOT_FOUND, "no run %" PRIu64, m->run);
    if (r->state == SLUICE__RUN_STATE__RUN_DONE || r->state == SLUICE__RUN_STATE__RUN_ERROR)
        return err_set(e, ERR_STATE, "run %" PRIu64 " is over", m->run);
    if (m->part >= r->n_sources)
        return err_set(e, ERR_STATE, "run %" PRIu64 " has %u sources, parts 0 to %u; part %u was asked for", m->run, r->n_sources, r->n_sources - 1, m->part);
    if (m->name == NULL || m->name[0] == '\0' || m->address == NULL || m->address[0] == '\0')
        return err_set(e, ERR_PROTOCOL, "a source needs a name and an address");
    if (strlen(m->name) > 63 || strlen(m->address) > 4096)
        return err_set(e, ERR_PROTOCOL, "the source's name or address is too long");
    if (address_check(session, m, e) < 0)
        return -1;
    const struct source *s = &r->source[m->part];
    bool came_before = r->restored && s->generation == 0;        /* perhaps: nobody knows any more who it was */
    if (r->state == SLUICE__RUN_STATE__STOPPING && !came_before && (s->name == NULL || strcmp(s->name, m->name) != 0))
        return err_set(e, ERR_STATE, "run %" PRIu64 " is stopping", m->run);
    *found = r;
    return 0;
}

/* Whether m may take the place of s, which is connected. */
static int source_replace(struct source *s, const Sluice__Source *m, struct err *e)
{
    char *incarnation = incarnation_text(m->incarnation);
    bool same = strcmp(s->name, m->name) == 0 && strcmp(s->incarnation, incarnation) == 0 && m->connection > s->connection;

    free(incarnation);
    if (!same)
        return err_set(e, ERR_STATE, "run %" PRIu64 " has its source for part %u already: %s", s->run->work.id, s->part, s->name);
    struct session *old = s->session;
    run_source_gone(old);
    session_close(old, "a newer connection of this source took its place");
    return 0;
}

static void source_take(struct source *s, struct session *session, const Sluice__Source *m)
{
    char *incarnation = incarnation_text(m->incarnation);
    struct run *r = s->run;

    if (s->incarnation == NULL || strcmp(s->incarnation, incarnation) != 0) {
        r->n_ended -= s->ended;
        s->ended = false;            /* another process: what the old one had announced is gone unless it says so again */
        s->watermark = 0;
    }
    free(s->name);
    free(s->address);
    free(s->incarnation);
    s->name = mem_strdup(m->name);
    s->address = mem_strdup(m->address);
    s->incarnation = incarnation;
    s->connection = m->connection;
    s->holds = m->holds;
    s->generation++;
    s->given_up = false;
    s->gone_since = 0;
    s->session = session;
    session->source = s;
    r->connected++;
}

static void send_stopping(struct source *s, double data_timeout)
{
    Sluice__RunStopping m = SLUICE__RUN_STOPPING__INIT;

    if (s->session == NULL)
        return;
    m.has_run = m.has_data_timeout = true;
    m.run = s->run->work.id;
    m.data_timeout = data_timeout > 0 ? data_timeout : 0;
    m.reason = s->run->stop_reason;
    chan_send(s->session->chan, 0, &m.base);
}

void run_source(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Source *x = m;
    struct run *r = NULL;
    struct err e;

    if (s->source != NULL) {
        err_set(&e, ERR_STATE, "this connection is a source already");
        session_error(s, id, &e, NULL);
        return;
    }
    if (source_check(s->d->runs, s, x, &r, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    struct source *src = &r->source[x->part];
    if (src->session && source_replace(src, x, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    source_take(src, s, x);
    log_info("run %" PRIu64 ": source %s for part %u at %s", r->work.id, src->name, src->part, src->address);
    Sluice__SourceAccepted a = SLUICE__SOURCE_ACCEPTED__INIT;
    a.has_epoch = a.has_key = a.has_window = a.has_until_done = true;
    a.epoch = s->d->epoch;
    a.key = (ProtobufCBinaryData){ sizeof(r->work.key), r->work.key };
    a.window = src->window = source_window(r);
    a.until_done = r->until_done;
    session_answer(s, id, &a.base);
    if (r->state == SLUICE__RUN_STATE__STOPPING)
        send_stopping(src, r->stop_at - flow_now(r->work.flow));
    run_progress(r);
}

void run_source_gone(struct session *session)
{
    struct source *s = session->source;
    struct tf *t, *next;

    if (s == NULL || s->session != session)
        return;
    struct run *r = s->run;
    double now = flow_now(r->work.flow);
    session->source = NULL;
    s->session = NULL;
    s->gone_since = now;
    r->connected--;
    if ((r->work.tfs != NULL || !s->ended) && !r->runs->d->stopping)
        log_warning("run %" PRIu64 ": source %s is gone; %u TFs wait for it at most %.0f s", r->work.id, s->name, HASH_COUNT(r->work.tfs), limits_of(r)->grace);
    HASH_ITER(hh, r->work.tfs, t, next) {
        if ((t->state == TF_QUEUED || (t->state == TF_WAITING && !t->pulled)) && t->parts->part[s->part].have)
            tf_enter(t, TF_WAITING, now + limits_of(r)->grace);
    }
    run_progress(r);
}

void source_detach(struct run *r)
{
    for (unsigned i = 0; i < r->n_sources; i++) {
        if (r->source[i].session)
            r->source[i].session->source = NULL;
        r->source[i].session = NULL;
    }
    r->connected = 0;
}

void source_tick(struct run *r, double now)
{
    for (unsigned i = 0; i < r->n_sources; i++) {
        struct source *s = &r->source[i];
        if (s->session || s->given_up || s->gone_since == 0 || now - s->gone_since < limits_of(r)->grace)
            continue;
        s->given_up = true;
        log_err("run %" PRIu64 ": source %s did not come back for %.0f s: TFs are not waited for with its part", r->work.id, s->name, limits_of(r)->grace);
        watermark_moved(s, 0, UINT64_MAX);
    }
}

/* ---- what sources are told ----------------------------------------------------------------- */

uint32_t source_window(const struct run *r)
{
    struct flow *f = r->work.flow;
    uint64_t room = r->tf_size ? flow_room(f, r->work.pool, r->tf_size) : 2 * (uint64_t)flow_usable_nodes(f, r->work.pool);
    uint64_t window = r->in_flight_asked ? r->in_flight_asked : room > 2 ? room : 2;

    window += window / 2 > 4 ? window / 2 : 4;   /* some wait, so that a node that becomes free need not */
    if (window > limits_of(r)->queue)
        window = limits_of(r)->queue;
    return window < 1 ? 1 : (uint32_t)window;
}

void source_stop(struct run *r, double data_timeout)
{
    for (unsigned i = 0; i < r->n_sources; i++)
        send_stopping(&r->source[i], data_timeout);
}

static void release_send(struct source *s, const struct idset *set)
{
    enum { RANGES = 4096 };
    Sluice__Release m = SLUICE__RELEASE__INIT;

    for (size_t from = 0; from < set->n; from += RANGES) {
        size_t n = set->n - from < RANGES ? set->n - from : RANGES;
        Sluice__Range *range = mem_array(n, sizeof(*range));
        Sluice__Range **list = mem_array(n, sizeof(*list));
        for (size_t i = 0; i < n; i++) {
            sluice__range__init(&range[i]);
            range[i].has_first = range[i].has_count = true;
            range[i].first = set->at[from + i].first;
            range[i].count = set->at[from + i].last - set->at[from + i].first + 1;
            list[i] = &range[i];
        }
        m.has_run = true;
        m.run = s->run->work.id;
        m.n_ranges = n;
        m.ranges = list;
        chan_send(s->session->chan, 0, &m.base);
        free(list);
        free(range);
    }
}

static void flush_run(struct run *r, uint32_t window)
{
    for (unsigned i = 0; i < r->n_sources; i++) {
        struct source *s = &r->source[i];
        if (s->session) {
            release_send(s, &r->release);
            release_send(s, &s->release);
            if (s->holds && window != s->window) {
                Sluice__Window m = SLUICE__WINDOW__INIT;
                m.has_run = m.has_window = true;
                m.run = r->work.id;
                m.window = s->window = window;
                chan_send(s->session->chan, 0, &m.base);
            }
        }
        idset_free(&s->release);
    }
    idset_free(&r->release);
}

void source_flush(struct runs *runs)
{
    struct run *r;

    runs->releases = false;
    TAILQ_FOREACH(r, &runs->open, entry)
        flush_run(r, source_window(r));
}
