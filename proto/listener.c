/* listener.c - takes connections and finds out who they are: HELLO, WELCOME, (AUTH)
 *
 * From: sockets of anybody.  To: conf.accepted (session.c, source.c), which owns the connection from then on.
 * A peer that is not known yet is a struct guest: few of them at a time, small frames, one deadline. When there is no room, or
 * no descriptor, a guest that says nothing gives way to the next one.
 */
#include "config.h"

#include "peer.h"

#include "clock.h"
#include "frame.h"
#include "handshake.h"
#include "log.h"
#include "mem.h"
#include "names.h"
#include "runkey.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>

enum { ACCEPTS_A_TURN = 64 };
#define MUTE_NS    (CLOCK_SECOND / 4)    /* without a word for so long: gives way when there is need */
#define NAMES_S    3.0
#define FAREWELL_S 1.0
#define PAUSE_MIN  0.05
#define PAUSE_MAX  1.0

enum guest_state { AT_HELLO, AT_AUTH, BEING_CHECKED, LEAVING };

struct guest {
    TAILQ_ENTRY(guest) link;           /* oldest first */
    struct listener *l;
    struct chan *c;
    ev_timer deadline;
    enum guest_state state;
    bool     last_fd;                  /* came in on the reserved descriptor: people only */
    int64_t  since;
    struct peer_id id;
    uint8_t  challenge[HANDSHAKE_CHALLENGE];
    Sluice__Hello *hello;
    struct name_question *question;
};

struct listener {
    struct listener_conf conf;
    int   fd, reserve;
    char  address[320];
    bool  local;
    ev_io io;
    ev_timer pause;
    double pause_s;
    bool  short_logged;
    TAILQ_HEAD(, guest) guests;
    unsigned n_guests;
    struct listener_stats stats;
};

static const struct chan_events guest_events;
static void on_pause_over(struct ev_loop *loop, ev_timer *t, int events);

/* ---- guests come and go ---- */

static void reserve_again(struct listener *l)
{
    if (l->reserve < 0)
        l->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void listen_again(struct listener *l)
{
    if (!ev_is_active(&l->pause) && !ev_is_active(&l->io))
        ev_io_start(l->conf.loop, &l->io);
}

/* Forgets the guest; its connection is another's by now, or closed. */
static void guest_free(struct guest *g)
{
    struct listener *l = g->l;

    TAILQ_REMOVE(&l->guests, g, link);
    l->n_guests--;
    ev_timer_stop(l->conf.loop, &g->deadline);
    names_cancel(g->question);
    if (g->hello)
        sluice__hello__free_unpacked(g->hello, NULL);
    free(g);
    listen_again(l);
}

static void guest_drop(struct guest *g)
{
    bool last_fd = g->last_fd;
    struct listener *l = g->l;

    chan_destroy(g->c);
    guest_free(g);
    if (last_fd)                       /* its descriptor is for the next one */
        on_pause_over(l->conf.loop, &l->pause, 0);
}

/* Says why and closes when that went out. */
static void guest_refuse(struct guest *g, const struct err *why, const char *word)
{
    log_write(g->last_fd ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARNING, "%s: refused: %s", chan_peer(g->c), why->text);
    g->l->stats.refused++;
    g->state = LEAVING;
    names_cancel(g->question);
    g->question = NULL;
    chan_send_error(g->c, 0, why, word);
    chan_close_after_send(g->c, g->last_fd ? FAREWELL_S / 10 : FAREWELL_S);
}

static void on_deadline(struct ev_loop *loop, ev_timer *t, int events)
{
    struct guest *g = CONTAINER_OF(t, struct guest, deadline);

    (void)loop, (void)events;
    g->l->stats.timed_out++;
    log_info("%s: closed: it did not say who it is within %.1f s", chan_peer(g->c), g->last_fd ? FAREWELL_S : g->l->conf.handshake_s);
    guest_drop(g);
}

static void guest_new(struct listener *l, int fd, bool last_fd)
{
    struct guest *g = mem_zalloc(sizeof(*g));
    struct ucred who;
    socklen_t len = sizeof(who);

    g->l = l;
    g->last_fd = last_fd;
    g->since = clock_mono_ns();
    g->c = chan_create(l->conf.loop, fd, &l->conf.limits, &guest_events, g);
    g->id.local = l->local;
    snprintf(g->id.address, sizeof(g->id.address), "%s", chan_peer(g->c));
    if (l->local && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0) {
        g->id.uid = who.uid;
        g->id.gid = who.gid;
        g->id.pid = who.pid;
    }
    ev_now_update(l->conf.loop);
    ev_timer_init(&g->deadline, on_deadline, last_fd ? FAREWELL_S : l->conf.handshake_s, 0);
    ev_set_priority(&g->deadline, EV_MINPRI);          /* what is here already is read first */
    ev_timer_start(l->conf.loop, &g->deadline);
    TAILQ_INSERT_TAIL(&l->guests, g, link);
    l->n_guests++;
}

/* ---- the handshake ---- */

/* Until the new owner says so, a connection that ends is just closed. */
static void nobodys_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    (void)arg, (void)c, (void)type, (void)id, (void)m, (void)fds, (void)n_fds;
}

static void nobodys_closed(void *arg, struct chan *c, const struct err *why)
{
    (void)arg, (void)why;
    chan_destroy(c);
}

static const struct chan_events nobodys_events = { .message = nobodys_message, .closed = nobodys_closed };

static void guest_known(struct guest *g)
{
    struct listener *l = g->l;
    peer_accepted accepted = l->conf.accepted;
    void *arg = l->conf.arg;
    struct chan *c = g->c;
    struct peer_id id = g->id;
    Sluice__Hello *hello = g->hello;

    l->stats.accepted++;
    g->hello = NULL;
    guest_free(g);
    chan_set_owner(c, &nobodys_events, NULL);
    accepted(arg, c, &id, hello);
    sluice__hello__free_unpacked(hello, NULL);
}

static void take_user(struct guest *g, const struct name_answer *a)
{
    memcpy(g->id.user, a->user, sizeof(g->id.user));
    memcpy(g->id.groups, a->groups, sizeof(g->id.groups));
    g->id.n_groups = a->n_groups;
}

/* The user database is for names and groups; when it does not answer the number has to do. */
static void user_found(void *arg, const struct name_answer *a)
{
    struct guest *g = arg;

    g->question = NULL;
    if (a->code == ERR_NONE)
        take_user(g, a);
    else
        log_warning("%s: %s; user %s goes by its number", chan_peer(g->c), a->why.text, g->id.user);
    guest_known(g);
}

static void check_local(struct guest *g)
{
    struct err e;

    snprintf(g->id.user, sizeof(g->id.user), "%lu", (unsigned long)g->id.uid);
    g->state = BEING_CHECKED;
    if (g->l->conf.names)
        g->question = names_user(g->l->conf.names, g->id.uid, NAMES_S, user_found, g, &e);
    if (g->question == NULL)
        guest_known(g);
}

static void credential_decoded(void *arg, const struct name_answer *a)
{
    struct guest *g = arg;
    uint8_t wanted[HANDSHAKE_PAYLOAD];
    size_t size = handshake_payload(g->challenge, g->hello->role, g->hello->name ? g->hello->name : "", wanted);
    struct err e;

    g->question = NULL;
    if (a->code != ERR_NONE) {
        err_set(&e, (enum err_code)a->code, "%s (its clock is %.1f s %s ours)", a->why.text,
                g->id.clock_offset < 0 ? -g->id.clock_offset : g->id.clock_offset, g->id.clock_offset < 0 ? "behind" : "ahead of");
        guest_refuse(g, &e, "NotAuthenticated");
    } else if (a->size != size || !runkey_equal(a->data, wanted, size)) {
        err_set(&e, ERR_PERMISSION, "the credential was made for another connection, role or name");
        guest_refuse(g, &e, "NotAuthenticated");
    } else {
        g->id.uid = a->uid;
        g->id.gid = a->gid;
        take_user(g, a);
        guest_known(g);
    }
}

static void handle_auth(struct guest *g, const Sluice__Auth *m)
{
    struct err e;

    if (m->method == NULL || strcmp(m->method, "munge") != 0) {
        err_set(&e, ERR_PERMISSION, "method \"%s\" is not taken here, wanted munge", m->method ? m->method : "");
        guest_refuse(g, &e, "NotAuthenticated");
        return;
    }
    g->state = BEING_CHECKED;
    g->question = names_decode(g->l->conf.names, m->credential.data, m->credential.len, NAMES_S, credential_decoded, g, &e);
    if (g->question == NULL)
        guest_refuse(g, &e, NULL);
}

static int check_hello(const struct guest *g, const Sluice__Hello *m, struct err *e)
{
    char ours[96], theirs[96];
    bool person = m->role == SLUICE__ROLE__CLIENT;

    if (m->major != PROTO_MAJOR) {
        handshake_version(PROTO_MAJOR, PROTO_MINOR, PROTO_SOFTWARE, ours);
        handshake_version(m->major, m->minor, m->software, theirs);
        return err_set(e, ERR_PROTOCOL, "protocol versions do not fit: you speak %s, this side speaks %s", theirs, ours);
    }
    if (!person && m->role != SLUICE__ROLE__WORKER && m->role != SLUICE__ROLE__SOURCE_ROLE)
        return err_set(e, ERR_PROTOCOL, "role %d cannot connect here, wanted client, worker or source", (int)m->role);
    if (person ? m->name && m->name[0] && !str_is_name(m->name) : m->name == NULL || !str_is_name(m->name))
        return err_set(e, ERR_USAGE, "a peer's name has 1 to 63 of [A-Za-z0-9._-], this one has not");
    if (g->last_fd && !person)
        return err_set(e, ERR_STATE, "out of file descriptors: only commands get in; try again later");
    return 0;
}

static uint32_t lesser(uint32_t a, uint32_t b) { return a < b ? a : b; }

static void send_welcome(struct guest *g, const Sluice__Hello *hello)
{
    Sluice__Welcome m = SLUICE__WELCOME__INIT;
    char *methods[] = { "munge" };

    m.has_major = m.has_minor = m.has_features = m.has_clock = m.has_challenge = m.has_epoch = 1;
    m.major = PROTO_MAJOR;
    m.minor = lesser(hello->minor, PROTO_MINOR);
    m.features = hello->features & PROTO_FEATURES;
    m.software = (char *)PROTO_SOFTWARE;
    m.clock = clock_wall_ns();
    m.challenge.data = g->challenge;
    m.challenge.len = sizeof(g->challenge);
    m.methods = methods;
    m.n_methods = g->l->local ? 0 : ARRAY_LEN(methods);
    m.epoch = g->l->conf.epoch;
    chan_send(g->c, 0, &m.base);
}

static void handle_hello(struct guest *g, const Sluice__Hello *m)
{
    struct err e;

    g->id.clock_offset = (double)(m->clock - clock_wall_ns()) / (double)CLOCK_SECOND;
    g->hello = proto_copy(&m->base);
    if (g->hello == NULL || runkey_random(g->challenge, sizeof(g->challenge), &e) < 0) {
        guest_drop(g);
        return;
    }
    if (check_hello(g, m, &e) < 0) {
        if (m->major != PROTO_MAJOR && g->l->conf.mismatched != NULL)
            g->l->conf.mismatched(g->l->conf.arg, m, e.text);
        guest_refuse(g, &e, NULL);
        return;
    }
    chan_allow(g->c, 1u << m->role);
    send_welcome(g, m);
    if (g->l->local)
        check_local(g);
    else
        g->state = AT_AUTH;
}

static void guest_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct guest *g = arg;
    struct err e;

    (void)id, (void)fds, (void)n_fds;
    if (g->state == LEAVING)
        return;
    if (type == SLUICE__TYPE__HELLO && g->state == AT_HELLO) {
        handle_hello(g, (const Sluice__Hello *)m);
    } else if (type == SLUICE__TYPE__AUTH && g->state == AT_AUTH) {
        handle_auth(g, (const Sluice__Auth *)m);
    } else {
        err_set(&e, ERR_PROTOCOL, "%s came in the middle of the handshake", frame_type(type)->name);
        log_warning("%s: %s", chan_peer(c), e.text);
        g->l->stats.bad++;
        guest_drop(g);
    }
}

static void guest_closed(void *arg, struct chan *c, const struct err *why)
{
    struct guest *g = arg;

    if (g->state != LEAVING && why->code == ERR_PROTOCOL) {
        log_warning("%s: closed: %s", chan_peer(c), why->text);
        g->l->stats.bad++;
    }
    guest_drop(g);
}

static const struct chan_events guest_events = { .message = guest_message, .closed = guest_closed };

/* ---- accepting ---- */

static void on_pause_over(struct ev_loop *loop, ev_timer *t, int events)
{
    struct listener *l = CONTAINER_OF(t, struct listener, pause);

    (void)events;
    ev_timer_stop(loop, t);
    reserve_again(l);
    listen_again(l);
}

static void pause_accept(struct listener *l)
{
    ev_io_stop(l->conf.loop, &l->io);
    ev_timer_stop(l->conf.loop, &l->pause);
    ev_timer_set(&l->pause, l->pause_s, 0);
    ev_timer_start(l->conf.loop, &l->pause);
    l->pause_s = l->pause_s * 2 < PAUSE_MAX ? l->pause_s * 2 : PAUSE_MAX;
}

/* The oldest guest that has not said a word gives way. */
static bool make_room(struct listener *l)
{
    struct guest *g;

    TAILQ_FOREACH(g, &l->guests, link) {
        if (g->state != AT_HELLO || clock_mono_ns() - g->since < MUTE_NS)
            continue;
        l->stats.timed_out++;
        guest_drop(g);
        return true;
    }
    return false;
}

/* One more can come in on the reserved descriptor, so that a person can look what is going on. */
static void out_of_descriptors(struct listener *l)
{
    struct rlimit limit;
    int fd;

    if (!l->short_logged && getrlimit(RLIMIT_NOFILE, &limit) == 0)
        log_err("%s: out of file descriptors (the limit is %lu): new connections wait; commands still get in", l->address,
                (unsigned long)limit.rlim_cur);
    l->short_logged = true;
    if (l->reserve >= 0) {
        close(l->reserve);
        l->reserve = -1;
        fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            guest_new(l, fd, true);
        else
            reserve_again(l);
    }
    pause_accept(l);
}

/* 1: took one, 0: enough for this turn. */
static int accept_one(struct listener *l)
{
    int fd;

    if (l->n_guests >= l->conf.max_pending && !make_room(l)) {
        ev_io_stop(l->conf.loop, &l->io);
        ev_timer_stop(l->conf.loop, &l->pause);
        ev_timer_set(&l->pause, PAUSE_MIN, 0);
        ev_timer_start(l->conf.loop, &l->pause);
        return 0;
    }
    fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        guest_new(l, fd, false);
        l->pause_s = PAUSE_MIN;
        return 1;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        if (make_room(l))
            return 1;
        out_of_descriptors(l);
        return 0;
    }
    return errno == EINTR || errno == ECONNABORTED;
}

static void on_accept(struct ev_loop *loop, ev_io *w, int events)
{
    struct listener *l = CONTAINER_OF(w, struct listener, io);

    (void)loop, (void)events;
    reserve_again(l);
    for (int i = 0; i < ACCEPTS_A_TURN && accept_one(l); i++)
        ;
}

struct listener *listener_create(const struct listener_conf *conf, struct err *e)
{
    struct listener *l;
    bool local = peer_is_unix(conf->address);
    int fd;

    if (!local && handshake_method(conf->method, conf->names, e) < 0) {
        err_prefix(e, "listen %s", conf->address);
        return NULL;
    }
    fd = peer_listen_fd(conf->address, conf->mode ? conf->mode : 0666, e);
    if (fd < 0)
        return NULL;
    l = mem_zalloc(sizeof(*l));
    l->conf = *conf;
    l->conf.limits.no_fds = true;      /* nobody who connects has one for us */
    if (l->conf.max_pending == 0)
        l->conf.max_pending = 64;
    if (l->conf.handshake_s <= 0)
        l->conf.handshake_s = 5;
    l->fd = fd;
    l->local = local;
    l->pause_s = PAUSE_MIN;
    l->reserve = -1;
    reserve_again(l);
    peer_bound_address(fd, conf->address, l->address);
    TAILQ_INIT(&l->guests);
    ev_io_init(&l->io, on_accept, fd, EV_READ);
    ev_init(&l->pause, on_pause_over);
    ev_io_start(conf->loop, &l->io);
    return l;
}

void listener_destroy(struct listener *l)
{
    struct guest *g;

    if (l == NULL)
        return;
    while ((g = TAILQ_FIRST(&l->guests)))
        guest_drop(g);
    ev_io_stop(l->conf.loop, &l->io);
    ev_timer_stop(l->conf.loop, &l->pause);
    peer_unlisten(l->fd, l->address);
    if (l->reserve >= 0)
        close(l->reserve);
    free(l);
}

const char *listener_address(const struct listener *l) { return l->address; }
struct listener_stats listener_stats(const struct listener *l) { return l->stats; }
