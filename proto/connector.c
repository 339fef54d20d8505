/* connector.c - connects, says who it is, and comes back when the connection is lost
 *
 * From: worker/link.c, worker/source.c, client/call.c.  To: their events.
 * One try: (resolve) connect, address by address; HELLO; WELCOME; (AUTH); READY, all within connect_s. After a failed try, or
 * a lost connection, the next try comes after a random time in [0, limit); limit doubles from 0.1 s to 5 s and falls back when a
 * connection has lasted. Random, and every process for itself: a thousand that lost the same server do not come back together.
 */
#include "config.h"

#include "peer.h"

#include "clock.h"
#include "frame.h"
#include "handshake.h"
#include "mem.h"
#include "names.h"
#include "runkey.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RETRY_MIN_S 0.1
#define RETRY_MAX_S 5.0
#define LASTED_NS   (5 * CLOCK_SECOND)

enum state { WAITING, RESOLVING, CONNECTING, AT_WELCOME, AT_PROOF, AT_READY, IS_READY, OVER };

struct connector {
    struct connector_conf conf;
    char *address, *name;
    enum state state;
    ev_timer deadline;                 /* of the whole try, or until the next */
    ev_timer step;                     /* of one address */
    ev_io    io;
    int      fd;                       /* connecting; then the chan's */
    struct chan *chan;
    struct name_question *question;
    struct sockaddr_storage addr[8];
    socklen_t addr_len[8];
    unsigned n_addr, at;
    struct err last;                   /* of the addresses tried */
    Sluice__Welcome *welcome;
    unsigned tries;
    int64_t  ready_since;
    unsigned retry_ms;                 /* as the listener said when it refused us */
    int64_t  hello;                    /* our clock as HELLO said it */
};

static void try_address(struct connector *c);

static void timer_start(struct connector *c, ev_timer *t, double s)
{
    ev_now_update(c->conf.loop);
    ev_timer_stop(c->conf.loop, t);
    ev_timer_set(t, s, 0);
    ev_timer_start(c->conf.loop, t);
}

/* Everything of this try is closed and forgotten. */
static void clean(struct connector *c)
{
    ev_timer_stop(c->conf.loop, &c->deadline);
    ev_timer_stop(c->conf.loop, &c->step);
    ev_io_stop(c->conf.loop, &c->io);
    names_cancel(c->question);
    c->question = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    chan_destroy(c->chan);
    c->chan = NULL;
    if (c->welcome)
        sluice__welcome__free_unpacked(c->welcome, NULL);
    c->welcome = NULL;
}

static double retry_s(struct connector *c)
{
    uint32_t r = 0;
    double limit = RETRY_MIN_S * (double)(1u << (c->tries < 10 ? c->tries : 10));

    runkey_random((uint8_t *)&r, sizeof(r), NULL);
    if (limit > RETRY_MAX_S)
        limit = RETRY_MAX_S;
    return limit * (double)r / 4294967296.0;
}

/* Ends the try, sets the next one, tells the owner: the last thing its callers do, since the owner may destroy the connector. */
static void lose(struct connector *c, const struct err *why)
{
    struct err copy = *why;

    if (c->state == IS_READY && clock_mono_ns() - c->ready_since >= LASTED_NS)
        c->tries = 0;
    clean(c);
    c->state = c->conf.once ? OVER : WAITING;
    if (!c->conf.once)
        timer_start(c, &c->deadline, retry_s(c));
    c->tries++;
    if (c->conf.events.lost)
        c->conf.events.lost(c->conf.arg, &copy);
}

static void lose_text(struct connector *c, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s: %s", c->address, text);
    lose(c, &e);
}

/* What a state waits for. */
static const char *const doing[] = {
    [RESOLVING] = "its name was looked up", [CONNECTING] = "it was connected to", [AT_WELCOME] = "its welcome was waited for",
    [AT_PROOF] = "munge was waited for", [AT_READY] = "its word was waited for that it knows us",
};

/* ---- the handshake ---- */

static void send_hello(struct connector *c)
{
    Sluice__Hello m = SLUICE__HELLO__INIT;

    m.has_major = m.has_minor = m.has_features = m.has_role = m.has_clock = 1;
    m.major = PROTO_MAJOR;
    m.minor = PROTO_MINOR;
    m.features = PROTO_FEATURES;
    m.software = (char *)PROTO_SOFTWARE;
    m.role = c->conf.role;
    m.name = c->name;
    m.clock = c->hello = clock_wall_ns() + c->conf.limits.clock_shift_ns;
    chan_send(c->chan, 0, &m.base);
    c->state = AT_WELCOME;
    c->retry_ms = 0;
}

static void send_auth(void *arg, const struct name_answer *a)
{
    struct connector *c = arg;
    Sluice__Auth m = SLUICE__AUTH__INIT;

    c->question = NULL;
    if (a->code != ERR_NONE) {
        lose(c, &a->why);
        return;
    }
    m.method = "munge";
    m.has_credential = 1;
    m.credential.data = a->data;
    m.credential.len = a->size;
    chan_send(c->chan, 0, &m.base);
    c->state = AT_READY;
}

static void prove(struct connector *c)
{
    uint8_t payload[HANDSHAKE_PAYLOAD];
    size_t size = handshake_payload(c->welcome->challenge.data, c->conf.role, c->name, payload);
    struct err e;

    c->state = AT_PROOF;
    c->question = names_encode(c->conf.names, payload, size, c->conf.connect_s, send_auth, c, &e);
    if (c->question == NULL)
        lose(c, &e);
}

static bool takes_munge(const Sluice__Welcome *m)
{
    for (size_t i = 0; i < m->n_methods; i++)
        if (strcmp(m->methods[i], "munge") == 0)
            return true;
    return false;
}

static void handle_welcome(struct connector *c, const Sluice__Welcome *m)
{
    char ours[96], theirs[96];
    struct err e;

    if (m->major != PROTO_MAJOR) {
        handshake_version(PROTO_MAJOR, PROTO_MINOR, PROTO_SOFTWARE, ours);
        handshake_version(m->major, m->minor, m->software, theirs);
        err_set(&e, ERR_PROTOCOL, "protocol versions do not fit: %s speaks %s, this side speaks %s", c->address, theirs, ours);
        lose(c, &e);
        return;
    }
    if (m->has_clock)
        chan_take_clock(c->chan, c->hello, m->clock);
    c->welcome = proto_copy(&m->base);
    if (m->n_methods == 0)
        c->state = AT_READY;
    else if (c->welcome == NULL || m->challenge.len != HANDSHAKE_CHALLENGE)
        lose_text(c, ERR_PROTOCOL, "a welcome without a challenge");
    else if (c->conf.method == NULL || c->conf.names == NULL || !takes_munge(m))
        lose_text(c, ERR_PERMISSION, "it wants a proof that this side cannot give (no method is configured)");
    else
        prove(c);
}

static void handle_ready(struct connector *c, const Sluice__Ready *m)
{
    ev_timer_stop(c->conf.loop, &c->deadline);
    chan_known(c->chan);
    c->state = IS_READY;
    c->ready_since = clock_mono_ns();
    if (c->conf.events.ready)
        c->conf.events.ready(c->conf.arg, c->chan, c->welcome, m);
}

static void on_message(void *arg, struct chan *chan, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct connector *c = arg;
    const Sluice__Error *error = (const Sluice__Error *)m;
    struct err e;

    if (c->state == IS_READY) {
        c->conf.events.message(c->conf.arg, chan, type, id, m, fds, n_fds);
    } else if (type == SLUICE__TYPE__ERROR) {
        c->retry_ms = error->retry_ms;
        err_set(&e, error->code ? (enum err_code)error->code : ERR_FAILED, "%s", error->text ? error->text : "refused without a word");
        lose(c, &e);
    } else if (type == SLUICE__TYPE__WELCOME && c->state == AT_WELCOME) {
        handle_welcome(c, (const Sluice__Welcome *)m);
    } else if (type == SLUICE__TYPE__READY && c->state == AT_READY) {
        handle_ready(c, (const Sluice__Ready *)m);
    } else {
        err_set(&e, ERR_PROTOCOL, "%s: %s came in the middle of the handshake", c->address, frame_type(type)->name);
        lose(c, &e);
    }
}

static void on_closed(void *arg, struct chan *chan, const struct err *why)
{
    struct connector *c = arg;
    struct err e;

    (void)chan;
    if (c->state == IS_READY || why->code != ERR_NONE) {
        lose(c, why);
        return;
    }
    err_set(&e, ERR_UNREACHABLE, "%s: it closed the connection in the middle of the handshake, while %s", c->address, doing[c->state]);
    lose(c, &e);
}

static void on_drained(void *arg, struct chan *chan)
{
    struct connector *c = arg;

    if (c->state == IS_READY && c->conf.events.drained)
        c->conf.events.drained(c->conf.arg, chan);
}

static const struct chan_events chan_events = { .message = on_message, .closed = on_closed, .drained = on_drained };

/* ---- connecting ---- */

static void connected(struct connector *c)
{
    int fd = c->fd;

    ev_io_stop(c->conf.loop, &c->io);
    ev_timer_stop(c->conf.loop, &c->step);
    c->fd = -1;
    c->chan = chan_create(c->conf.loop, fd, &c->conf.limits, &chan_events, c);
    chan_allow(c->chan, FRAME_FROM_DAEMON);
    send_hello(c);
}

static void next_address(struct connector *c)
{
    ev_io_stop(c->conf.loop, &c->io);
    ev_timer_stop(c->conf.loop, &c->step);
    close(c->fd);
    c->fd = -1;
    c->at++;
    try_address(c);
}

static void on_connected(struct ev_loop *loop, ev_io *w, int events)
{
    struct connector *c = CONTAINER_OF(w, struct connector, io);
    int error = 0;
    socklen_t len = sizeof(error);

    (void)loop, (void)events;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0)
        error = errno;
    if (error == 0) {
        connected(c);
        return;
    }
    errno = error;
    err_errno(&c->last, ERR_UNREACHABLE, "nobody answers at %s", c->address);
    next_address(c);
}

static void on_step(struct ev_loop *loop, ev_timer *t, int events)
{
    struct connector *c = CONTAINER_OF(t, struct connector, step);

    (void)loop, (void)events;
    err_set(&c->last, ERR_UNREACHABLE, "nobody answers at %s within its time", c->address);
    next_address(c);
}

/* One of several that does not answer may not use up the time of the others. */
static void try_address(struct connector *c)
{
    for (; c->at < c->n_addr; c->at++) {
        const struct sockaddr_storage *a = &c->addr[c->at];

        c->fd = socket(a->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (c->fd >= 0 && (connect(c->fd, (const struct sockaddr *)a, c->addr_len[c->at]) == 0 || errno == EINPROGRESS)) {
            c->state = CONNECTING;
            ev_io_set(&c->io, c->fd, EV_WRITE);
            ev_io_start(c->conf.loop, &c->io);
            if (c->at + 1 < c->n_addr)
                timer_start(c, &c->step, c->conf.connect_s / (double)(c->n_addr + 1));
            return;
        }
        err_errno(&c->last, ERR_UNREACHABLE, "nobody answers at %s", c->address);
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
    }
    lose(c, &c->last);
}

static void resolved(void *arg, const struct name_answer *a)
{
    struct connector *c = arg;

    c->question = NULL;
    if (a->code != ERR_NONE) {
        lose(c, &a->why);
        return;
    }
    memcpy(c->addr, a->addr, sizeof(c->addr));
    memcpy(c->addr_len, a->addr_len, sizeof(c->addr_len));
    c->n_addr = a->n_addr;
    try_address(c);
}

static int numeric(struct connector *c, const char *host, const char *port)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV }, *list = NULL;

    if (getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    memcpy(&c->addr[0], list->ai_addr, list->ai_addrlen);
    c->addr_len[0] = list->ai_addrlen;
    c->n_addr = 1;
    freeaddrinfo(list);
    return 0;
}

static void start_tcp(struct connector *c)
{
    char host[256], port[16];
    struct err e;

    c->at = c->n_addr = 0;
    if (peer_parse(c->address, host, port, &e) < 0) {
        lose(c, &e);
    } else if (host[0] == '\0') {
        lose_text(c, ERR_USAGE, "an address to connect to needs a host");
    } else if (numeric(c, host, port) == 0) {
        try_address(c);
    } else {
        c->state = RESOLVING;
        c->question = names_resolve(c->conf.names, host, port, c->conf.connect_s, resolved, c, &e);
        if (c->question == NULL)
            lose(c, &e);
    }
}

static void start_try(struct connector *c)
{
    struct err e;

    timer_start(c, &c->deadline, c->conf.connect_s);
    c->state = CONNECTING;
    if (!peer_is_unix(c->address)) {
        start_tcp(c);
        return;
    }
    c->fd = peer_connect_fd(c->address, &e);
    if (c->fd < 0)
        lose(c, &e);
    else
        connected(c);
}

static void on_deadline(struct ev_loop *loop, ev_timer *t, int events)
{
    struct connector *c = CONTAINER_OF(t, struct connector, deadline);
    struct err e;

    (void)loop, (void)events;
    if (c->state == WAITING) {
        start_try(c);
        return;
    }
    err_set(&e, ERR_UNREACHABLE, "%s does not answer: %.1f s were over while %s", c->address, c->conf.connect_s, doing[c->state]);
    lose(c, &e);
}

struct connector *connector_create(const struct connector_conf *conf, struct err *e)
{
    struct connector *c;

    if (!peer_is_unix(conf->address) && handshake_method(conf->method, conf->names, e) < 0) {
        err_prefix(e, "%s", conf->address);
        return NULL;
    }
    c = mem_zalloc(sizeof(*c));
    c->conf = *conf;
    c->address = mem_strdup(conf->address);
    c->name = mem_strdup(conf->name ? conf->name : "");
    c->fd = -1;
    if (c->conf.connect_s <= 0)
        c->conf.connect_s = 5;
    ev_init(&c->deadline, on_deadline);
    ev_init(&c->step, on_step);
    ev_set_priority(&c->deadline, EV_MINPRI);          /* what is here already is read first */
    ev_set_priority(&c->step, EV_MINPRI);
    ev_init(&c->io, on_connected);
    timer_start(c, &c->deadline, 0);   /* callbacks come from the loop only */
    return c;
}

void connector_destroy(struct connector *c)
{
    if (c == NULL)
        return;
    clean(c);
    free(c->address);
    free(c->name);
    free(c);
}

unsigned connector_retry_ms(const struct connector *c)
{
    return c->retry_ms;
}

struct chan *connector_chan(const struct connector *c)
{
    return c->state == IS_READY ? c->chan : NULL;
}
