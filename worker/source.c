/* source.c - one source of a run
 *
 * From: replay.c (adds parts), sluiced (Release, Window, RunStopping).
 * To: sluiced (Source, Announce, EndOfStream), replay.c (freed).
 * What it holds is in hold.c; here is only who is told what on the connection at hand. Nothing is announced before
 * SourceAccepted came on this very connection, and EndOfStream goes out behind the last announcement; it is over when
 * sluiced answered that and nothing is held.
 */
#include "config.h"

#include "source.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "log.h"
#include "mem.h"

enum { ANNOUNCE_RANGES = 64, ANNOUNCE_TFS = 512 };     /* of one message; more go into the next */
enum { ASK_SOURCE = 1, ASK_END = 2 };                  /* ids of the two frames that want an answer */
#define ANNOUNCE_S 0.010

enum source_state { SOURCE_OUT, SOURCE_ASKED, SOURCE_IN, SOURCE_FAILED };

struct source {
    struct source_conf conf;
    char        *name, *address;
    struct connector *connector;
    struct hold *hold;
    enum source_state state;
    struct file_owner self;
    uint64_t     connections, accepted;
    uint32_t     window;
    bool         has_key, ending, end_sent, end_heard, done;
    uint8_t      key[RUNKEY_SIZE];
    uint64_t     skipped;
    struct err   last;               /* why the last try failed */
    bool         stopping;           /* the run is: */
    double       stop_at;            /* loop time, from when on sluiced takes nothing any more */
    ev_timer     announce, patience;
};

/* ---- what is said to sluiced -------------------------------------------------------------- */

static void send_source(struct source *s, struct chan *c)
{
    Sluice__Source m = SLUICE__SOURCE__INIT;
    Sluice__Incarnation who = SLUICE__INCARNATION__INIT;

    who.boot_id = s->self.boot_id;
    who.has_start = who.has_pid = true;
    who.start = s->self.start;
    who.pid = (uint32_t)s->self.pid;
    m.name = s->name;
    m.has_run = m.has_part = m.has_holds = m.has_connection = true;
    m.run = s->conf.run;
    m.part = s->conf.part;
    m.address = s->address;
    m.incarnation = &who;
    m.holds = s->conf.holds;
    m.connection = ++s->connections;
    chan_send(c, ASK_SOURCE, &m.base);
}

static void range_fill(const struct hold_range *r, Sluice__AnnounceRange *m, Sluice__Fence *fence)
{
    *m = (Sluice__AnnounceRange)SLUICE__ANNOUNCE_RANGE__INIT;
    m->has_first = m->has_count = m->has_state = true;
    m->first = r->first;
    m->count = r->count;
    m->n_sizes = m->n_orbits = r->count;
    m->sizes = r->sizes;
    m->orbits = r->orbits;
    m->state = r->pulled ? SLUICE__FRESHNESS__PULLED : SLUICE__FRESHNESS__FRESH;
    if (!r->pulled)
        return;
    *fence = (Sluice__Fence)SLUICE__FENCE__INIT;
    fence->has_epoch = fence->has_attempt = true;
    fence->epoch = r->fence.epoch;
    fence->attempt = r->fence.attempt;
    m->fence = fence;
    m->node = (char *)r->node;
}

static int send_announce(struct source *s, struct chan *c)
{
    struct hold_range r[ANNOUNCE_RANGES];
    Sluice__AnnounceRange ranges[ANNOUNCE_RANGES], *list[ANNOUNCE_RANGES];
    Sluice__Fence fences[ANNOUNCE_RANGES];
    uint64_t sizes[ANNOUNCE_TFS];
    uint32_t orbits[ANNOUNCE_TFS];
    Sluice__Announce m = SLUICE__ANNOUNCE__INIT;

    m.n_ranges = hold_announce(s->hold, r, ANNOUNCE_RANGES, sizes, orbits, ANNOUNCE_TFS);
    for (size_t i = 0; i < m.n_ranges; i++) {
        range_fill(&r[i], &ranges[i], &fences[i]);
        list[i] = &ranges[i];
    }
    m.ranges = list;
    m.has_run = m.has_watermark = true;
    m.run = s->conf.run;
    m.watermark = hold_watermark(s->hold);
    return chan_send(c, 0, &m.base);
}

static void send_end(struct source *s, struct chan *c)
{
    Sluice__EndOfStream m = SLUICE__END_OF_STREAM__INIT;

    m.has_run = m.has_watermark = m.has_skipped = true;
    m.run = s->conf.run;
    m.watermark = hold_watermark(s->hold);
    m.skipped = s->skipped;
    s->end_sent = chan_send(c, ASK_END, &m.base) == 0;
}

/* A failing send closes the connection; `lost` follows, and after the reconnect everything is said again. */
static void announce_now(struct source *s)
{
    struct chan *c = connector_chan(s->connector);

    if (s->state != SOURCE_IN || c == NULL)
        return;
    while (hold_waits(s->hold)) {
        if (send_announce(s, c) < 0)
            return;
    }
    if (s->ending && !s->end_sent)
        send_end(s, c);
}

static void announce_later(struct source *s)
{
    if (s->state == SOURCE_IN && !ev_is_active(&s->announce)) {
        ev_timer_set(&s->announce, ANNOUNCE_S, 0);
        ev_timer_start(s->conf.loop, &s->announce);
    }
}

static void on_announce(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    announce_now(w->data);
}

/* Once nothing is held and sluiced knows of the end, whatever happens to the connection is no matter any more. */
static void look_if_done(struct source *s)
{
    s->done = s->done || (s->end_heard && hold_in_use(s->hold) == 0);
}

/* ---- contact ------------------------------------------------------------------------------ */

static void fail(struct source *s, const struct err *why)
{
    if (s->state == SOURCE_FAILED || s->done)
        return;
    s->state = SOURCE_FAILED;
    ev_timer_stop(s->conf.loop, &s->patience);
    ev_timer_stop(s->conf.loop, &s->announce);
    s->conf.events.failed(s->conf.arg, s, why);
}

static void on_patience(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct source *s = w->data;
    struct err e;

    (void)loop, (void)revents;
    if (s->stopping)
        err_set(&e, ERR_CANCELLED, "run %" PRIu64 " was stopped, and sluiced at %s is gone", s->conf.run, s->conf.server);
    else
        err_set(&e, ERR_UNREACHABLE, "sluiced at %s: no contact for %.3g s: %.300s", s->conf.server,
                s->accepted > 0 ? s->conf.lost_s : s->conf.first_s, s->last.text);
    fail(s, &e);
}

/* How long to try to reach sluiced: a run that is being stopped takes nothing after its time. */
static double patience_of(const struct source *s)
{
    double left = s->stop_at - ev_now(s->conf.loop), most = s->accepted > 0 ? s->conf.lost_s : s->conf.first_s;

    if (!s->stopping || left > most)
        return most;
    return left > 0 ? left : 0;
}

static void be_patient(struct source *s, double limit_s)
{
    if (ev_is_active(&s->patience))
        return;
    ev_timer_set(&s->patience, limit_s, 0);
    ev_timer_start(s->conf.loop, &s->patience);
}

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    struct source *s = arg;

    (void)w, (void)r;
    if (s->state == SOURCE_FAILED)
        return;
    s->state = SOURCE_ASKED;
    send_source(s, c);
}

static void on_lost(void *arg, const struct err *why)
{
    struct source *s = arg;
    bool was_in = s->state == SOURCE_IN;

    if (s->state == SOURCE_FAILED || s->done)
        return;
    s->state = SOURCE_OUT;
    s->end_sent = s->end_heard = false;
    ev_timer_stop(s->conf.loop, &s->announce);
    s->last = *why;
    if (was_in)
        log_warning("source %s: contact with sluiced lost: %s", s->name, why->text);
    /* Trying again changes neither a version nor a permission. */
    if (why->code == ERR_PROTOCOL || why->code == ERR_PERMISSION || why->code == ERR_USAGE) {
        fail(s, why);
        return;
    }
    be_patient(s, patience_of(s));
    if (was_in)
        s->conf.events.changed(s->conf.arg, s);
}

/* ---- what sluiced says -------------------------------------------------------------------- */

static void on_accepted(struct source *s, const Sluice__SourceAccepted *m)
{
    if (!m->has_key || m->key.len != RUNKEY_SIZE || (s->conf.holds && (!m->has_window || m->window == 0))) {
        struct err e;
        err_set(&e, ERR_PROTOCOL, "sluiced accepted source %s with a key of %zu bytes (%d wanted) and a window of %u",
                s->name, m->key.len, RUNKEY_SIZE, m->window);
        fail(s, &e);
        return;
    }
    memcpy(s->key, m->key.data, RUNKEY_SIZE);
    s->has_key = true;
    s->window = m->window;
    s->state = SOURCE_IN;
    ev_timer_stop(s->conf.loop, &s->patience);
    if (s->accepted++ > 0)
        log_info("source %s: in contact again, announces %zu time-frames anew", s->name, hold_count(s->hold));
    hold_announce_again(s->hold);
    s->end_sent = false;
    if (!hold_waits(s->hold) && hold_watermark(s->hold) > 1)
        send_announce(s, connector_chan(s->connector));      /* nothing is held: how far it got is news all the same */
    announce_now(s);
    s->conf.events.changed(s->conf.arg, s);
}

/* A refusal is final: of a newer connection of the same process sluiced refuses none but for good reasons. */
static void on_error(struct source *s, const Sluice__Error *m)
{
    struct err e;

    err_set(&e, m->has_code && m->code > 0 && m->code < 256 ? m->code : ERR_FAILED, "%.500s",
            m->text != NULL ? m->text : "refused without a reason");
    if (s->state == SOURCE_ASKED)
        fail(s, &e);
    else
        log_warning("source %s: sluiced says: %s", s->name, e.text);
}

static void on_end_heard(struct source *s, uint32_t id)
{
    if (id != ASK_END || !s->end_sent)
        return;
    s->end_heard = true;
    look_if_done(s);
    s->conf.events.changed(s->conf.arg, s);
}

static bool is_ours(const struct source *s, bool has_run, uint64_t run)
{
    return has_run && run == s->conf.run && s->state == SOURCE_IN;
}

static void on_release(struct source *s, const Sluice__Release *m)
{
    if (!is_ours(s, m->has_run, m->run))
        return;
    for (size_t i = 0; i < m->n_ranges; i++)
        hold_release(s->hold, m->ranges[i]->first, m->ranges[i]->count);
    look_if_done(s);
    s->conf.events.changed(s->conf.arg, s);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds,
                       unsigned n_fds)
{
    struct source *s = arg;

    (void)c, (void)fds, (void)n_fds;
    switch (type) {
    case SLUICE__TYPE__SOURCE_ACCEPTED:
        if (s->state == SOURCE_ASKED)
            on_accepted(s, (const Sluice__SourceAccepted *)m);
        break;
    case SLUICE__TYPE__RELEASE:
        on_release(s, (const Sluice__Release *)m);
        break;
    case SLUICE__TYPE__WINDOW: {
        const Sluice__Window *w = (const Sluice__Window *)m;
        if (is_ours(s, w->has_run, w->run) && w->has_window) {
            s->window = w->window;
            s->conf.events.changed(s->conf.arg, s);
        }
        break;
    }
    case SLUICE__TYPE__RUN_STOPPING: {
        const Sluice__RunStopping *r = (const Sluice__RunStopping *)m;
        if (!is_ours(s, r->has_run, r->run))
            break;
        s->stopping = true;
        s->stop_at = ev_now(s->conf.loop) + (r->has_data_timeout ? r->data_timeout : s->conf.lost_s);
        s->conf.events.stopping(s->conf.arg, s, r->reason != NULL ? r->reason : "");
        break;
    }
    case SLUICE__TYPE__OK:
        on_end_heard(s, id);
        break;
    case SLUICE__TYPE__ERROR:
        on_error(s, (const Sluice__Error *)m);
        break;
    default:
        log_warning("source %s: sluiced sent a message of type %u, which is none for sources", s->name, type);
    }
}

/* ---- life --------------------------------------------------------------------------------- */

static void on_freed(void *arg, uint64_t id)
{
    struct source *s = arg;

    s->conf.events.freed(s->conf.arg, s, id);
    look_if_done(s);                 /* released while a transfer went on */
}

static void timer_prepare(struct source *s, ev_timer *w, void (*fn)(struct ev_loop *, ev_timer *, int))
{
    ev_init(w, fn);
    w->data = s;
}

struct source *source_create(const struct source_conf *conf, struct err *e)
{
    struct source *s = mem_zalloc(sizeof *s);

    s->conf = *conf;
    s->name = mem_strdup(conf->name);
    s->address = mem_strdup(conf->address);
    s->hold = hold_create(on_freed, s);
    err_set(&s->last, ERR_UNREACHABLE, "no answer");
    timer_prepare(s, &s->announce, on_announce);
    timer_prepare(s, &s->patience, on_patience);
    if (file_owner_self(&s->self, e) < 0)
        goto fail;
    const struct connector_conf cc = {
        .loop = conf->loop, .names = conf->names, .address = conf->server, .method = conf->method,
        .role = SLUICE__ROLE__SOURCE_ROLE, .name = s->name,
        .events = { .ready = on_ready, .message = on_message, .lost = on_lost }, .arg = s,
    };
    s->connector = connector_create(&cc, e);
    if (s->connector == NULL)
        goto fail;
    be_patient(s, conf->first_s);
    return s;
fail:
    source_destroy(s);
    return NULL;
}

void source_destroy(struct source *s)
{
    if (s == NULL)
        return;
    ev_timer_stop(s->conf.loop, &s->announce);
    ev_timer_stop(s->conf.loop, &s->patience);
    connector_destroy(s->connector);
    hold_destroy(s->hold);
    free(s->name);
    free(s->address);
    free(s);
}

struct hold *source_hold(struct source *s)
{
    return s->hold;
}

bool source_is_in(const struct source *s)
{
    return s->state == SOURCE_IN;
}

bool source_has_room(const struct source *s)
{
    return s->state == SOURCE_IN && !s->ending && hold_count(s->hold) < s->window;
}

uint32_t source_window(const struct source *s)
{
    return s->window;
}

void source_add(struct source *s, const struct hold_part *p)
{
    hold_add(s->hold, p);
    announce_later(s);
}

void source_end(struct source *s, uint64_t skipped)
{
    if (s->ending)
        return;
    s->ending = true;
    s->skipped = skipped;
    announce_now(s);
}

bool source_is_done(const struct source *s)
{
    return s->done;
}

const uint8_t *source_key(const struct source *s)
{
    return s->has_key ? s->key : NULL;
}

const char *source_name(const struct source *s)
{
    return s->name;
}

uint64_t source_reconnects(const struct source *s)
{
    return s->accepted > 0 ? s->accepted - 1 : 0;
}
