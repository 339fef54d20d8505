/* chan.c - a framed connection on the loop: its life, its sending half, its deadlines
 *
 * From: the owner (chan_send).  To: the socket; the owner (closed, drained). The receiving half is chan_read.c.
 * What is sent is queued and written once a turn of the loop, by a prepare watcher.
 * Always: the queue holds whole frames, each with the raw bytes that belong to it behind it; only its first segment is partly sent.
 */
#include "config.h"

#include "chan_part.h"

#include "clock.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WRITE_A_PASS = 8 * 1024 * 1024, IOVS = 64 };
#define STALL_NS (CLOCK_SECOND / 20)   /* a timer later than this: we stood still ourselves */

static int64_t ns(double s) { return (int64_t)(s * (double)CLOCK_SECOND); }
bool chan_alive(const struct chan *c) { return !c->dead && !c->doomed && !c->destroyed; }

void chan_close_fds(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* ---- life ---- */

void chan_enter(struct chan *c) { c->busy++; }

void chan_leave(struct chan *c)
{
    if (--c->busy == 0 && c->destroyed)
        free(c);
}

static void seg_free(struct chan *c, struct seg *s, int ok)
{
    TAILQ_REMOVE(&c->queue, s, link);
    if (!s->raw)
        c->queued -= s->size;
    if (s->ping)
        c->ping_queued = false;
    chan_close_fds(s->fds, s->n_fds);
    if (s->sent)
        s->sent(s->arg, ok);
    free(s);
}

void chan_raw_end(struct chan *c, int ok)
{
    struct raw_in r = c->raw;

    c->raw = (struct raw_in){ 0 };
    if (r.done)
        r.done(r.arg, ok);
}

/* Stops everything and tells whoever waits for raw bytes. The socket stays for the name's sake until chan_destroy. */
static void quiet(struct chan *c)
{
    struct seg *s;

    c->dead = true;
    ev_io_stop(c->loop, &c->rd);
    ev_io_stop(c->loop, &c->wr);
    ev_prepare_stop(c->loop, &c->flush);
    ev_timer_stop(c->loop, &c->tick);
    chan_close_fds(c->came.fds, c->came.n);
    c->came.n = 0;
    chan_raw_end(c, 0);
    while ((s = TAILQ_FIRST(&c->queue)))
        seg_free(c, s, 0);
}

void chan_die(struct chan *c, const struct err *why)
{
    struct err copy = *why;

    if (c->dead || c->destroyed)
        return;
    quiet(c);
    if (!c->destroyed)
        c->events->closed(c->arg, c, &copy);
}

void chan_broken(struct chan *c, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    chan_die(c, &e);
}

/* From wherever we are: `closed` follows from the loop. */
static void doom(struct chan *c, const struct err *why)
{
    if (!chan_alive(c))
        return;
    c->doomed = true;
    c->doom = *why;
    ev_prepare_start(c->loop, &c->flush);
}

void chan_destroy(struct chan *c)
{
    if (c == NULL || c->destroyed)
        return;
    c->destroyed = true;
    chan_enter(c);
    quiet(c);
    close(c->fd);
    free(c->in);
    chan_leave(c);
}

/* ---- sending ---- */

/* A control message's place: before every frame of which nothing went out yet, but not between a frame and its raw bytes. */
static void queue_beat(struct chan *c, struct seg *s)
{
    struct seg *at = TAILQ_FIRST(&c->queue);

    while (at && (at->raw || at->off > 0 || at->beat))
        at = TAILQ_NEXT(at, link);
    if (at)
        TAILQ_INSERT_BEFORE(at, s, link);
    else
        TAILQ_INSERT_TAIL(&c->queue, s, link);
}

static int refuse_send(struct chan *c, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    doom(c, &e);
    return -1;
}

static struct seg *frame_new(struct chan *c, uint32_t id, const ProtobufCMessage *m, unsigned n_fds)
{
    const struct frame_type *t = frame_type_of(m);
    size_t size = protobuf_c_message_get_packed_size(m);
    struct seg *s;
    char text[160];

    if (t == NULL || size > t->max_length) {
        snprintf(text, sizeof(text), "%s of %zu bytes cannot be sent, at most %u are allowed",
                 t ? t->name : "a message without a type", size, t ? t->max_length : 0);
        refuse_send(c, ERR_PROTOCOL, text);
        return NULL;
    }
    if (c->queued > 0 && c->queued + size + FRAME_HEAD > c->limits.max_queue) {
        snprintf(text, sizeof(text), "lagging: %zu bytes wait to be sent, at most %zu may", c->queued,
                 c->limits.max_queue);
        refuse_send(c, ERR_TIMEOUT, text);
        return NULL;
    }
    s = malloc(sizeof(*s) + FRAME_HEAD + size);
    if (s == NULL) {
        refuse_send(c, ERR_FAILED, "no memory for a message");
        return NULL;
    }
    *s = (struct seg){ .data = s->frame, .size = FRAME_HEAD + size };
    frame_pack_head(&(struct frame_head){ .type = (uint16_t)t->type, .fds = (uint8_t)n_fds,
                                          .length = (uint32_t)size, .id = id }, s->frame);
    protobuf_c_message_pack(m, s->frame + FRAME_HEAD);
    s->ping = t->type == SLUICE__TYPE__PING;
    s->beat = s->ping || t->type == SLUICE__TYPE__PONG;
    return s;
}

static void queue_up(struct chan *c, struct seg *s)
{
    c->queued += s->size;
    if (s->beat)
        queue_beat(c, s);
    else
        TAILQ_INSERT_TAIL(&c->queue, s, link);
    if (c->queued > c->limits.max_queue / 2)
        c->was_full = true;
    if (!ev_is_active(&c->wr))
        ev_prepare_start(c->loop, &c->flush);
}

int chan_send_fds(struct chan *c, uint32_t id, const ProtobufCMessage *m, const int *fds, unsigned n_fds)
{
    struct seg *s;

    if (!chan_alive(c) || c->draining)
        return -1;
    if (n_fds > FRAME_MAX_FDS)
        return refuse_send(c, ERR_PROTOCOL, "more descriptors than a frame can carry");
    s = frame_new(c, id, m, n_fds);
    if (s == NULL)
        return -1;
    for (; s->n_fds < n_fds; s->n_fds++) {
        s->fds[s->n_fds] = fcntl(fds[s->n_fds], F_DUPFD_CLOEXEC, 0);
        if (s->fds[s->n_fds] < 0) {
            chan_close_fds(s->fds, s->n_fds);
            free(s);
            return refuse_send(c, ERR_FAILED, "a descriptor that was to be sent cannot be duplicated");
        }
    }
    queue_up(c, s);
    return 0;
}

int chan_send(struct chan *c, uint32_t id, const ProtobufCMessage *m)
{
    return chan_send_fds(c, id, m, NULL, 0);
}

int chan_send_error(struct chan *c, uint32_t id, const struct err *why, const char *word)
{
    Sluice__Error m = SLUICE__ERROR__INIT;
    struct err clean = *why;

    str_mend(clean.text, strlen(clean.text));
    m.has_code = 1;
    m.code = (uint32_t)why->code;
    m.text = clean.text;
    m.word = (char *)word;
    return chan_send(c, id, &m.base);
}

int chan_send_raw(struct chan *c, const void *data, size_t size, void (*sent)(void *arg, int ok), void *arg)
{
    struct seg *s;

    if (!chan_alive(c) || c->draining)
        return -1;
    s = mem_zalloc(sizeof(*s));
    s->data = data;
    s->size = size;
    s->raw = true;
    s->sent = sent;
    s->arg = arg;
    TAILQ_INSERT_TAIL(&c->queue, s, link);
    if (!ev_is_active(&c->wr))
        ev_prepare_start(c->loop, &c->flush);
    return 0;
}

/* Gathers what one sendmsg can take: descriptors go with the first byte of their frame, so a frame with some begins a call of its own. */
static unsigned gather(struct chan *c, struct iovec iov[IOVS], size_t *bytes)
{
    unsigned n = 0;
    struct seg *s;

    *bytes = 0;
    TAILQ_FOREACH(s, &c->queue, link) {
        if (n == IOVS || (n > 0 && s->n_fds > 0))
            break;
        iov[n++] = (struct iovec){ (void *)(s->data + s->off), s->size - s->off };
        *bytes += s->size - s->off;
    }
    return n;
}

static ssize_t write_some(struct chan *c)
{
    struct iovec iov[IOVS];
    union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * FRAME_MAX_FDS)]; } control;
    struct seg *first = TAILQ_FIRST(&c->queue);
    struct msghdr msg = { .msg_iov = iov };
    size_t bytes;
    ssize_t n;

    msg.msg_iovlen = gather(c, iov, &bytes);
    if (bytes == 0)
        return 0;
    if (first->n_fds > 0) {
        struct cmsghdr *h = &control.align;

        memset(&control, 0, sizeof(control));
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int) * first->n_fds);
        memcpy(CMSG_DATA(h), first->fds, sizeof(int) * first->n_fds);
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * first->n_fds);
    }
    do
        n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        c->sent = clock_mono_ns();
        chan_close_fds(first->fds, first->n_fds);
        first->n_fds = 0;
    }
    return n;
}

static void written(struct chan *c, size_t n)
{
    struct seg *s;

    while (!c->destroyed && (s = TAILQ_FIRST(&c->queue))) {
        size_t take = n < s->size - s->off ? n : s->size - s->off;

        s->off += take;
        n -= take;
        if (s->off < s->size)
            return;
        seg_free(c, s, 1);
    }
}

static void all_sent(struct chan *c)
{
    ev_io_stop(c->loop, &c->wr);
    if (c->draining && !c->shut) {
        c->shut = true;
        shutdown(c->fd, SHUT_WR);
    }
}

static void write_pass(struct chan *c)
{
    size_t total = 0;
    struct err e;

    while (chan_alive(c) && !TAILQ_EMPTY(&c->queue) && total < WRITE_A_PASS) {
        ssize_t n = write_some(c);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            err_errno(&e, ERR_UNREACHABLE, "connection lost while sending");
            chan_die(c, &e);
            return;
        }
        total += (size_t)n;
        written(c, (size_t)n);
    }
    if (!chan_alive(c))
        return;
    if (TAILQ_EMPTY(&c->queue))
        all_sent(c);
    else
        ev_io_start(c->loop, &c->wr);
    if (c->was_full && c->queued < c->limits.max_queue / 2) {
        c->was_full = false;
        if (c->events->drained)
            c->events->drained(c->arg, c);
    }
}

static void on_flush(struct ev_loop *loop, ev_prepare *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, flush);

    (void)events;
    ev_prepare_stop(loop, w);
    chan_enter(c);
    if (c->doomed)
        chan_die(c, &c->doom);
    else
        write_pass(c);
    chan_leave(c);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, wr);

    (void)loop, (void)events;
    chan_enter(c);
    write_pass(c);
    chan_leave(c);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, rd);

    (void)loop, (void)events;
    chan_enter(c);
    chan_read_pass(c);
    chan_leave(c);
}

/* ---- time ---- */

void chan_look_at_clock(struct chan *c)
{
    Sluice__Ping ping = SLUICE__PING__INIT;

    if (c->ping_queued || c->draining)
        return;
    ping.has_number = 1;
    ping.number = ++c->ping_number;
    c->ping_clock = clock_wall_ns() + c->limits.clock_shift_ns;
    c->ping_queued = chan_send(c, 0, &ping.base) == 0;
}

static void beat(struct chan *c)
{
    if (c->limits.beat_s >= 0 && clock_mono_ns() - c->sent >= ns(c->limits.beat_s) - CLOCK_SECOND / 1000)
        chan_look_at_clock(c);
}

/* The next moment at which something may be due; never more than a beat away, so that a stall of ours is seen. */
static void tick_set(struct chan *c)
{
    int64_t now = clock_mono_ns();
    int64_t step = ns(c->limits.beat_s > 0 && c->limits.beat_s < 1 ? c->limits.beat_s : 1);
    int64_t due = now + step;

    if (c->limits.beat_s > 0 && !c->ping_queued && c->sent + ns(c->limits.beat_s) < due)
        due = c->sent + ns(c->limits.beat_s);
    if (c->limits.dead_s > 0 && c->heard + ns(c->limits.dead_s) < due)
        due = c->heard + ns(c->limits.dead_s);
    if (c->draining && c->drain_due < due)
        due = c->drain_due;
    if (due < now + CLOCK_SECOND / 1000)
        due = now + CLOCK_SECOND / 1000;
    c->tick_due = due;
    ev_now_update(c->loop);            /* timers count from the loop's time, which is old after a long turn */
    ev_timer_stop(c->loop, &c->tick);
    ev_timer_set(&c->tick, (double)(due - now) / (double)CLOCK_SECOND, 0);
    ev_timer_start(c->loop, &c->tick);
}

static void judge(struct chan *c)
{
    struct err e;
    int64_t now = clock_mono_ns();

    if (c->draining && now >= c->drain_due) {
        chan_broken(c, ERR_TIMEOUT, "what was left to send did not go out in time");
    } else if (c->limits.dead_s > 0 && now - c->heard >= ns(c->limits.dead_s)) {
        err_set(&e, ERR_TIMEOUT, "no sign of life for %.1f s", (double)(now - c->heard) / (double)CLOCK_SECOND);
        chan_die(c, &e);
    }
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, tick);
    int64_t now = clock_mono_ns(), late = now - c->tick_due;

    (void)loop, (void)events;
    chan_enter(c);
    if (late > STALL_NS)               /* we were the silent ones */
        c->heard = c->heard + late < now ? c->heard + late : now;
    if (c->draining || (c->limits.dead_s > 0 && now - c->heard >= ns(c->limits.dead_s)))
        chan_read_pass(c);                  /* what is already here counts */
    if (chan_alive(c))
        judge(c);
    if (chan_alive(c))
        beat(c);
    if (!c->dead && !c->destroyed)
        tick_set(c);
    chan_leave(c);
}

/* ---- the rest ---- */

static void name_peer(int fd, char out[80])
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);
    struct ucred who;
    socklen_t who_len = sizeof(who);
    char host[48], port[8];

    if (getpeername(fd, (struct sockaddr *)&a, &len) < 0)
        snprintf(out, 80, "unknown");
    else if (a.ss_family == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_len) == 0)
        snprintf(out, 80, "unix pid %ld uid %lu", (long)who.pid, (unsigned long)who.uid);
    else if (getnameinfo((struct sockaddr *)&a, len, host, sizeof(host), port, sizeof(port),
                         NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(out, 80, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    else
        snprintf(out, 80, "family %d", a.ss_family);
}

static struct chan_limits with_defaults(const struct chan_limits *given)
{
    struct chan_limits l = given ? *given : (struct chan_limits){ 0 };

    if (l.max_queue == 0)
        l.max_queue = 8u << 20;
    if (l.max_length == 0)
        l.max_length = 64 << 10;
    if (l.beat_s == 0)
        l.beat_s = 1;
    if (l.dead_s == 0)
        l.dead_s = 4;
    return l;
}

struct chan *chan_create(struct ev_loop *loop, int fd, const struct chan_limits *limits, const struct chan_events *events, void *arg)
{
    struct chan *c = mem_zalloc(sizeof(*c));
    int one = 1;

    c->loop = loop;
    c->fd = fd;
    c->limits = with_defaults(limits);
    c->events = events;
    c->arg = arg;
    c->from = ~0u;
    c->heard = c->sent = clock_mono_ns();
    TAILQ_INIT(&c->queue);
    name_peer(fd, c->peer);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));      /* fails on a Unix socket, which needs none */
    ev_io_init(&c->rd, on_readable, fd, EV_READ);
    ev_io_init(&c->wr, on_writable, fd, EV_WRITE);
    ev_prepare_init(&c->flush, on_flush);
    ev_init(&c->tick, on_tick);
    ev_set_priority(&c->tick, EV_MINPRI);                             /* after every read of its turn */
    ev_io_start(loop, &c->rd);
    tick_set(c);
    return c;
}

void chan_close_after_send(struct chan *c, double limit_s)
{
    if (!chan_alive(c) || c->draining)
        return;
    c->draining = true;
    c->drain_due = clock_mono_ns() + ns(limit_s);
    ev_prepare_start(c->loop, &c->flush);
    tick_set(c);
}

void chan_set_owner(struct chan *c, const struct chan_events *events, void *arg)
{
    c->events = events;
    c->arg = arg;
}

void chan_known(struct chan *c) { c->known = true; }
void chan_allow(struct chan *c, unsigned from) { c->from = from; }

size_t chan_queued(const struct chan *c) { return c->queued; }
void chan_take_clock(struct chan *c, int64_t sent, int64_t clock)
{
    offset_take(&c->clock, sent, clock_wall_ns() + c->limits.clock_shift_ns, clock, clock_mono_ns());
}

const struct offset *chan_clock(const struct chan *c)
{
    return &c->clock;
}

double chan_silence_s(const struct chan *c) { return (double)(clock_mono_ns() - c->heard) / (double)CLOCK_SECOND; }
int chan_fd(const struct chan *c) { return c->fd; }
const char *chan_peer(const struct chan *c) { return c->peer; }
