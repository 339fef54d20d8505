/* outlet.c - where workers pull parts
 *
 * From: workers (PullHello, PullProof, Pull).  To: hold.c (who pulled what), workers (PartData and bytes, PullRefused).
 * A pull is answered when it comes to the head of its connection's queue, not before: only then is its part pinned, and
 * at most one part a connection is, however many are asked for.
 */
#include "config.h"

#include "outlet.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "log.h"
#include "mem.h"
#include "peer.h"
#include "runkey.h"
#include "str.h"

enum {
    MAX_ASKED = 256,                 /* pulls that wait on a connection */
    MAX_STRANGERS = 64,              /* connections that proved nothing yet */
};
#define ACCEPT_PAUSE_S 0.1           /* out of descriptors: until the next try */

enum worker_state { WORKER_NEW, WORKER_CHALLENGED, WORKER_IN, WORKER_LEAVING };

struct ask {
    uint32_t id;                     /* of the frame, for the answer */
    uint64_t tf;
    struct hold_fence fence;
    uint32_t part;
    bool     descriptor;
    STAILQ_ENTRY(ask) in_queue;
};

/* One connection of a worker. */
struct worker {
    struct outlet *o;
    struct chan *chan;
    enum worker_state state;
    bool        proven;              /* it was WORKER_IN once */
    bool        local;               /* a Unix socket: descriptors can be passed */
    char        node[HOLD_NODE];
    uint8_t     theirs[RUNKEY_NONCE], ours[RUNKEY_NONCE];
    STAILQ_HEAD(, ask) asks;
    unsigned    n_asks;
    bool        sending;             /* raw bytes of `sent` are on their way */
    struct ask  sent;
    ev_timer    deadline;            /* of the proof */
    LIST_ENTRY(worker) in_list;
};

struct outlet {
    struct outlet_conf conf;
    int         fd, data_fd;
    char       *address;
    ev_io       io;
    ev_timer    pause;
    bool        has_key, said_full;
    uint8_t     key[RUNKEY_SIZE];
    LIST_HEAD(, worker) workers;
    unsigned    n_workers, n_strangers;
    struct outlet_stats stats;
};

static void worker_destroy(struct worker *w)
{
    struct ask *a;

    LIST_REMOVE(w, in_list);
    w->o->n_workers--;
    w->o->n_strangers -= !w->proven;
    ev_timer_stop(w->o->conf.loop, &w->deadline);
    chan_destroy(w->chan);           /* a transfer under way is told, and unpins its part */
    while ((a = STAILQ_FIRST(&w->asks)) != NULL) {
        STAILQ_REMOVE_HEAD(&w->asks, in_queue);
        free(a);
    }
    free(w);
}

/* ---- pulls -------------------------------------------------------------------------------- */

static struct hold *hold_of(const struct outlet *o, uint32_t part)
{
    if (part < o->conf.first_part || part - o->conf.first_part >= o->conf.n_holds)
        return NULL;
    return o->conf.holds[part - o->conf.first_part];
}

static void send_refused(struct worker *w, const struct ask *a, const char *word, const char *text, uint64_t *counter)
{
    Sluice__PullRefused m = SLUICE__PULL_REFUSED__INIT;

    ++*counter;
    m.has_id = true;
    m.id = a->tf;
    m.word = (char *)word;
    m.text = (char *)text;
    chan_send(w->chan, a->id, &m.base);
}

static void next_answer(struct worker *w);

static void on_sent(void *arg, int ok)
{
    struct worker *w = arg;

    w->sending = false;
    hold_unpin(hold_of(w->o, w->sent.part), w->sent.tf);
    if (ok)
        next_answer(w);
}

static void send_part(struct worker *w, const struct ask *a, const struct hold_part *p)
{
    Sluice__PartData m = SLUICE__PART_DATA__INIT;
    Sluice__Extent extent = SLUICE__EXTENT__INIT, *extents[] = { &extent };
    struct hold *h = hold_of(w->o, a->part);

    m.has_id = m.has_part = m.has_size = m.has_xxh3 = true;
    m.id = a->tf;
    m.part = a->part;
    m.size = p->size;
    m.xxh3 = p->xxh3;
    w->o->stats.pulls++;
    /* The worker reads by itself, until it says Built; the part is held until sluiced heard that. An empty part needs no descriptor. */
    if (a->descriptor && w->local && p->size > 0) {
        extent.has_offset = extent.has_size = true;
        extent.offset = p->offset;
        extent.size = p->size;
        m.n_extents = 1;
        m.extents = extents;
        w->o->stats.descriptors++;
        chan_send_fds(w->chan, a->id, &m.base, &w->o->data_fd, 1);
        hold_unpin(h, a->tf);
        return;
    }
    w->sent = *a;
    w->sending = p->size > 0 && chan_send(w->chan, a->id, &m.base) == 0 &&
                 chan_send_raw(w->chan, p->data, p->size, on_sent, w) == 0;
    if (p->size == 0)
        chan_send(w->chan, a->id, &m.base);
    if (!w->sending)
        hold_unpin(h, a->tf);
    else
        w->o->stats.raw_bytes += p->size;
}

static void answer(struct worker *w, const struct ask *a)
{
    struct outlet_stats *st = &w->o->stats;
    struct hold *h = hold_of(w->o, a->part);
    struct hold_part p;

    if (h == NULL) {
        send_refused(w, a, "NotOurs", "this source has no such part", &st->not_ours);
        return;
    }
    switch (hold_pull(h, a->tf, &a->fence, w->node, &p)) {
    case HOLD_OK:
        send_part(w, a, &p);
        break;
    case HOLD_GONE:
        send_refused(w, a, "Gone", "released, or never announced", &st->gone);
        break;
    case HOLD_STALE:
        send_refused(w, a, "StaleFence", "a newer try at this time-frame pulled already", &st->stale);
        break;
    }
}

static void next_answer(struct worker *w)
{
    struct ask *a;

    while (!w->sending && (a = STAILQ_FIRST(&w->asks)) != NULL) {
        STAILQ_REMOVE_HEAD(&w->asks, in_queue);
        w->n_asks--;
        answer(w, a);
        free(a);
    }
}

/* ---- who is it ---------------------------------------------------------------------------- */

static void turn_away(struct worker *w, uint32_t id, enum err_code code, const char *text)
{
    struct err e;

    w->state = WORKER_LEAVING;
    ev_timer_stop(w->o->conf.loop, &w->deadline);
    w->o->stats.refused++;
    err_set(&e, code, "%s", text);
    log_warning("outlet: %s%s%s turned away: %s", chan_peer(w->chan), w->node[0] != '\0' ? ", node " : "", w->node,
                text);
    chan_send_error(w->chan, id, &e, NULL);
    chan_close_after_send(w->chan, w->o->conf.handshake_s);
}

static void on_hello(struct worker *w, uint32_t id, const Sluice__PullHello *m)
{
    struct outlet *o = w->o;
    Sluice__PullChallenge answer_m = SLUICE__PULL_CHALLENGE__INIT;
    uint8_t proof[RUNKEY_PROOF];
    struct err e;

    if (w->state != WORKER_NEW || m->node == NULL || !str_is_name(m->node) || m->nonce.len != RUNKEY_NONCE)
        return turn_away(w, id, ERR_PROTOCOL, "PullHello: a node's name and a nonce of 32 bytes are wanted, once");
    memcpy(w->node, m->node, strlen(m->node) + 1);
    if (m->major != PROTO_MAJOR)
        return turn_away(w, id, ERR_PROTOCOL, "the protocol's major versions differ");
    if (m->run != o->conf.run || !o->has_key)
        return turn_away(w, id, ERR_NOT_FOUND, "this source is not in that run (yet)");
    memcpy(w->theirs, m->nonce.data, RUNKEY_NONCE);
    if (runkey_random(w->ours, sizeof w->ours, &e) < 0)
        return turn_away(w, id, e.code, e.text);
    runkey_proof(o->key, "source", w->node, o->conf.run, w->theirs, w->ours, proof);
    answer_m.has_nonce = answer_m.has_proof = true;
    answer_m.nonce = (ProtobufCBinaryData){ sizeof w->ours, w->ours };
    answer_m.proof = (ProtobufCBinaryData){ sizeof proof, proof };
    w->state = WORKER_CHALLENGED;
    chan_send(w->chan, id, &answer_m.base);
}

static void on_proof(struct worker *w, uint32_t id, const Sluice__PullProof *m)
{
    struct outlet *o = w->o;
    Sluice__PullReady ready = SLUICE__PULL_READY__INIT;
    uint8_t want[RUNKEY_PROOF];

    if (w->state != WORKER_CHALLENGED)
        return turn_away(w, id, ERR_PROTOCOL, "PullProof before PullHello");
    runkey_proof(o->key, "worker", w->node, o->conf.run, w->theirs, w->ours, want);
    if (m->proof.len != sizeof want || !runkey_equal(m->proof.data, want, sizeof want))
        return turn_away(w, id, ERR_PERMISSION, "it does not know the run's key");
    w->state = WORKER_IN;
    w->proven = true;
    o->n_strangers--;
    ev_timer_stop(o->conf.loop, &w->deadline);
    chan_known(w->chan);
    ready.has_held = true;
    for (unsigned i = 0; i < o->conf.n_holds; i++)
        ready.held += hold_count(o->conf.holds[i]);
    chan_send(w->chan, id, &ready.base);
}

static void on_pull(struct worker *w, uint32_t id, const Sluice__Pull *m)
{
    if (w->state != WORKER_IN)
        return turn_away(w, id, ERR_PERMISSION, "Pull before the run's key was proven");
    if (!m->has_id || !m->has_part || m->fence == NULL)
        return turn_away(w, id, ERR_PROTOCOL, "Pull: a time-frame, a part and a fence are wanted");
    if (w->n_asks == MAX_ASKED)
        return turn_away(w, id, ERR_STATE, "lagging: 256 pulls wait on this connection");

    struct ask *a = mem_zalloc(sizeof *a);
    *a = (struct ask){ .id = id, .tf = m->id, .part = m->part, .descriptor = m->descriptor,
                       .fence = { m->fence->epoch, m->fence->attempt } };
    STAILQ_INSERT_TAIL(&w->asks, a, in_queue);
    w->n_asks++;
    next_answer(w);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds,
                       unsigned n_fds)
{
    struct worker *w = arg;

    (void)c, (void)fds, (void)n_fds;
    if (w->state == WORKER_LEAVING)
        return;
    switch (type) {
    case SLUICE__TYPE__PULL_HELLO:
        on_hello(w, id, (const Sluice__PullHello *)m);
        break;
    case SLUICE__TYPE__PULL_PROOF:
        on_proof(w, id, (const Sluice__PullProof *)m);
        break;
    case SLUICE__TYPE__PULL:
        on_pull(w, id, (const Sluice__Pull *)m);
        break;
    default:
        turn_away(w, id, ERR_PROTOCOL, "a message that no worker sends to a source");
    }
}

static void on_closed(void *arg, struct chan *c, const struct err *why)
{
    struct worker *w = arg;

    (void)c;
    if (why->code == ERR_PROTOCOL && w->state != WORKER_LEAVING)
        w->o->stats.refused++;
    if (why->code != ERR_NONE && w->state != WORKER_LEAVING)
        log_warning("outlet: node %s: %s", w->node[0] != '\0' ? w->node : "(unknown)", why->text);
    worker_destroy(w);
}

static void on_deadline(struct ev_loop *loop, ev_timer *t, int revents)
{
    (void)loop, (void)revents;
    turn_away(t->data, 0, ERR_TIMEOUT, "it did not prove itself in time");
}

/* ---- listening ---------------------------------------------------------------------------- */

static void worker_create(struct outlet *o, int fd, bool local)
{
    static const struct chan_events events = { .message = on_message, .closed = on_closed };
    struct worker *w = mem_zalloc(sizeof *w);

    w->o = o;
    w->local = local;
    STAILQ_INIT(&w->asks);
    LIST_INSERT_HEAD(&o->workers, w, in_list);
    o->n_workers++;
    o->n_strangers++;
    o->stats.workers++;
    ev_timer_init(&w->deadline, on_deadline, o->conf.handshake_s, 0);
    w->deadline.data = w;
    ev_timer_start(o->conf.loop, &w->deadline);
    w->chan = chan_create(o->conf.loop, fd, &o->conf.limits, &events, w);
    chan_allow(w->chan, 1u << SLUICE__ROLE__WORKER);
}

static void accept_pause(struct outlet *o, const char *why)
{
    if (!o->said_full)
        log_warning("outlet %s: accepting pauses: %s", o->address, why);
    o->said_full = true;
    ev_io_stop(o->conf.loop, &o->io);
    ev_timer_set(&o->pause, ACCEPT_PAUSE_S, 0);
    ev_timer_start(o->conf.loop, &o->pause);
}

static void on_pause_over(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct outlet *o = t->data;

    (void)revents;
    ev_io_start(loop, &o->io);
}

static void on_accept(struct ev_loop *loop, ev_io *io, int revents)
{
    struct outlet *o = io->data;
    struct sockaddr_storage from;
    socklen_t len = sizeof from;

    (void)loop, (void)revents;
    if (o->n_workers >= o->conf.max_workers || o->n_strangers >= MAX_STRANGERS) {
        accept_pause(o, "as many connections as there may be");
        return;
    }
    int fd = accept4(o->fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        o->said_full = false;
        worker_create(o, fd, from.ss_family == AF_UNIX);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        accept_pause(o, strerror(errno));
    }
}

/* A path may be longer than peer_bound_address has room for; nothing of it changes. */
static char *bound_address(int fd, const char *address)
{
    char at[320];

    if (peer_is_unix(address))
        return mem_printf("unix:%s", peer_unix_path(address));
    peer_bound_address(fd, address, at);
    return mem_strdup(at);
}

struct outlet *outlet_create(const struct outlet_conf *conf, struct err *e)
{
    struct outlet *o = mem_zalloc(sizeof *o);

    o->conf = *conf;
    LIST_INIT(&o->workers);
    o->fd = peer_listen_fd(conf->address, conf->mode, e);
    if (o->fd < 0) {
        free(o);
        return NULL;
    }
    o->address = bound_address(o->fd, conf->address);
    ev_io_init(&o->io, on_accept, o->fd, EV_READ);
    o->io.data = o;
    ev_io_start(conf->loop, &o->io);
    ev_timer_init(&o->pause, on_pause_over, ACCEPT_PAUSE_S, 0);
    o->pause.data = o;
    return o;
}

void outlet_destroy(struct outlet *o)
{
    struct worker *w;

    if (o == NULL)
        return;
    while ((w = LIST_FIRST(&o->workers)) != NULL)
        worker_destroy(w);
    ev_io_stop(o->conf.loop, &o->io);
    ev_timer_stop(o->conf.loop, &o->pause);
    peer_unlisten(o->fd, o->address);
    free(o->address);
    free(o);
}

void outlet_open(struct outlet *o, const uint8_t *key, int data_fd)
{
    memcpy(o->key, key, RUNKEY_SIZE);
    o->data_fd = data_fd;
    o->has_key = true;
}

const char *outlet_address(const struct outlet *o)
{
    return o->address;
}

const struct outlet_stats *outlet_stats(const struct outlet *o)
{
    return &o->stats;
}
