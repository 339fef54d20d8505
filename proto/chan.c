/* chan.c - a framed connection on the loop
 *
 * From: the socket; the owner (chan_send).  To: the socket; the owner (message, closed, drained).
 * A read takes what the socket has: whole frames are handled where they lie, the beginning of one is kept in `in`. Raw bytes go
 * straight to their place. What is sent is queued and written once a turn of the loop, by a prepare watcher.
 * Always: a frame begins at stream position `pos`; the queue holds whole frames, only its first segment is partly sent; descriptors
 * that came are in `came` until the frame that names them is complete, and at no time more than FRAME_MAX_FDS.
 */
#include "config.h"

#include "chan.h"

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
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    SCRATCH = 64 * 1024,               /* one read */
    KEEP = 256 * 1024,                 /* a larger `in` is given back after its frame */
    READS_A_PASS = 16,                 /* then the other connections have their turn */
    RAW_READ = 4 * 1024 * 1024,
    WRITE_A_PASS = 8 * 1024 * 1024,
    IOVS = 64,
};
#define STALL_NS (CLOCK_SECOND / 20)   /* a timer later than this: we stood still ourselves */

/* One frame, or raw bytes that belong to the frame before. */
struct seg {
    TAILQ_ENTRY(seg) link;
    const uint8_t *data;
    size_t size, off;
    bool   raw, beat, ping;
    void (*sent)(void *arg, int ok);
    void  *arg;
    unsigned n_fds;
    int    fds[FRAME_MAX_FDS];
    uint8_t frame[];
};
TAILQ_HEAD(segs, seg);

struct came { unsigned n; int fds[FRAME_MAX_FDS]; uint64_t start, end; };    /* they belong to a frame that begins in [start, end) */

struct raw_in {
    uint8_t *data;
    size_t   size, got;
    void   (*done)(void *arg, int ok);
    void   (*progress)(void *arg, size_t got);
    void    *arg;
};

struct chan {
    struct ev_loop *loop;
    int  fd;
    struct chan_limits limits;
    const struct chan_events *events;
    void *arg;
    ev_io rd, wr;
    ev_prepare flush;
    ev_timer tick;

    uint8_t *in;                       /* the beginning of a frame */
    size_t   in_len, in_cap;
    struct frame_head head;            /* of that frame, once in_len >= FRAME_HEAD */
    uint64_t pos;
    struct came came;
    struct raw_in raw;                 /* raw.data != NULL: raw bytes are next */
    bool     in_message;

    struct segs queue;
    size_t   queued;
    bool     was_full;                 /* more than half: drained is owed */
    bool     ping_queued;

    int64_t  heard, sent, tick_due, drain_due;     /* monotonic ns */
    unsigned from;
    bool known, draining, shut, dead, doomed, destroyed;
    struct err doom;
    unsigned busy;                     /* callbacks of ours on the stack */
    char peer[80];
};

static _Thread_local uint8_t scratch[SCRATCH];

static int64_t ns(double s) { return (int64_t)(s * (double)CLOCK_SECOND); }
static bool alive(const struct chan *c) { return !c->dead && !c->doomed && !c->destroyed; }

static void close_fds(int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* ---- life ---- */

static void enter(struct chan *c) { c->busy++; }

static void leave(struct chan *c)
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
    close_fds(s->fds, s->n_fds);
    if (s->sent)
        s->sent(s->arg, ok);
    free(s);
}

static void raw_end(struct chan *c, int ok)
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
    close_fds(c->came.fds, c->came.n);
    c->came.n = 0;
    raw_end(c, 0);
    while ((s = TAILQ_FIRST(&c->queue)))
        seg_free(c, s, 0);
}

static void die(struct chan *c, const struct err *why)
{
    struct err copy = *why;

    if (c->dead || c->destroyed)
        return;
    quiet(c);
    if (!c->destroyed)
        c->events->closed(c->arg, c, &copy);
}

/* From wherever we are: `closed` follows from the loop. */
static void doom(struct chan *c, const struct err *why)
{
    if (!alive(c))
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
    enter(c);
    quiet(c);
    close(c->fd);
    free(c->in);
    leave(c);
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

    if (!alive(c) || c->draining)
        return -1;
    if (n_fds > FRAME_MAX_FDS)
        return refuse_send(c, ERR_PROTOCOL, "more descriptors than a frame can carry");
    s = frame_new(c, id, m, n_fds);
    if (s == NULL)
        return -1;
    for (; s->n_fds < n_fds; s->n_fds++) {
        s->fds[s->n_fds] = fcntl(fds[s->n_fds], F_DUPFD_CLOEXEC, 0);
        if (s->fds[s->n_fds] < 0) {
            close_fds(s->fds, s->n_fds);
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
    struct str clean = { 0 };
    int rc;

    if (!frame_is_utf8(why->text))
        str_escape(&clean, why->text, strlen(why->text));
    m.has_code = 1;
    m.code = (uint32_t)why->code;
    m.text = clean.p ? clean.p : (char *)why->text;
    m.word = (char *)word;
    rc = chan_send(c, id, &m.base);
    str_free(&clean);
    return rc;
}

int chan_send_raw(struct chan *c, const void *data, size_t size, void (*sent)(void *arg, int ok), void *arg)
{
    struct seg *s;

    if (!alive(c) || c->draining)
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
        close_fds(first->fds, first->n_fds);
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

    while (alive(c) && !TAILQ_EMPTY(&c->queue) && total < WRITE_A_PASS) {
        ssize_t n = write_some(c);

        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            err_errno(&e, ERR_UNREACHABLE, "connection lost while sending");
            die(c, &e);
            return;
        }
        total += (size_t)n;
        written(c, (size_t)n);
    }
    if (!alive(c))
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
    enter(c);
    if (c->doomed)
        die(c, &c->doom);
    else
        write_pass(c);
    leave(c);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, wr);

    (void)loop, (void)events;
    enter(c);
    write_pass(c);
    leave(c);
}

/* ---- receiving ---- */

static void broken(struct chan *c, enum err_code code, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    die(c, &e);
}

/* Takes the descriptors of a complete frame into fds. */
static int claim(struct chan *c, int *fds)
{
    struct came *k = &c->came;

    if (c->head.fds == 0)
        return 0;
    if (k->n != c->head.fds || c->pos < k->start || c->pos >= k->end) {
        broken(c, ERR_PROTOCOL, "a frame does not come with the descriptors that it names");
        return -1;
    }
    memcpy(fds, k->fds, sizeof(int) * k->n);
    k->n = 0;
    return 0;
}

static void answer_ping(struct chan *c, uint32_t id, const ProtobufCMessage *m)
{
    const Sluice__Ping *ping = (const Sluice__Ping *)m;
    Sluice__Pong pong = SLUICE__PONG__INIT;

    pong.has_number = ping->has_number;
    pong.number = ping->number;
    chan_send(c, id, &pong.base);
}

static void handle_frame(struct chan *c, const uint8_t *body)
{
    const struct frame_type *t = frame_type(c->head.type);
    int fds[FRAME_MAX_FDS];
    unsigned n_fds = c->head.fds;
    ProtobufCMessage *m;
    struct err e;

    if (claim(c, fds) < 0)
        return;
    m = frame_unpack(t, body, c->head.length, &e);
    if (m == NULL) {
        close_fds(fds, n_fds);
        die(c, &e);
        return;
    }
    if (t->type == SLUICE__TYPE__PING) {
        answer_ping(c, c->head.id, m);
    } else if (t->type != SLUICE__TYPE__PONG) {
        c->in_message = true;
        c->events->message(c->arg, c, t->type, c->head.id, m, fds, n_fds);
        c->in_message = false;
    }
    close_fds(fds, n_fds);
    protobuf_c_message_free_unpacked(m, NULL);
}

/* The head alone decides whether the frame is taken. */
static int take_head(struct chan *c, const uint8_t *p)
{
    struct err e;

    if (frame_parse_head(p, &c->head, &e) < 0)
        ;
    else if (!c->known && c->head.length > c->limits.max_length)
        err_set(&e, ERR_PROTOCOL, "%s of %u bytes from a peer that is not known yet, at most %u are taken",
                frame_type(c->head.type)->name, c->head.length, c->limits.max_length);
    else if ((frame_type(c->head.type)->from & c->from) == 0)
        err_set(&e, ERR_PROTOCOL, "%s may not come from this peer", frame_type(c->head.type)->name);
    else
        return 0;
    die(c, &e);
    return -1;
}

/* Room in `in` for the next read of a frame of `total` bytes: it grows with what has come, not with what was promised. */
static int make_room(struct chan *c, size_t total)
{
    size_t want = c->in_len + (c->in_len > SCRATCH ? c->in_len : SCRATCH);
    uint8_t *p;

    if (want > total)
        want = total;
    if (want <= c->in_cap)
        return 0;
    p = realloc(c->in, want);
    if (p == NULL) {
        broken(c, ERR_FAILED, "no memory for a message");
        return -1;
    }
    c->in = p;
    c->in_cap = want;
    return 0;
}

static void frame_end(struct chan *c, size_t total)
{
    c->pos += total;
    c->in_len = 0;
    if (c->in_cap > KEEP) {
        free(c->in);
        c->in = NULL;
        c->in_cap = 0;
    }
}

static size_t frame_total(const struct chan *c)
{
    return c->in_len < FRAME_HEAD ? FRAME_HEAD : FRAME_HEAD + (size_t)c->head.length;
}

/* `in` got longer by n: does what has become possible. */
static void in_grown(struct chan *c, size_t n)
{
    bool had_head = c->in_len >= FRAME_HEAD;

    c->in_len += n;
    if (c->in_len < FRAME_HEAD || (!had_head && take_head(c, c->in) < 0))
        return;
    if (c->in_len == frame_total(c)) {
        uint8_t *frame = c->in;
        size_t total = c->in_len;

        handle_frame(c, frame + FRAME_HEAD);
        if (!c->destroyed)
            frame_end(c, total);
    }
}

static size_t feed_raw(struct chan *c, const uint8_t *p, size_t n)
{
    struct raw_in *r = &c->raw;
    size_t take = n < r->size - r->got ? n : r->size - r->got;

    memcpy(r->data + r->got, p, take);
    r->got += take;
    c->pos += take;
    if (take > 0 && r->progress)
        r->progress(r->arg, r->got);
    if (alive(c) && r->done && r->got == r->size)
        raw_end(c, 1);
    return take;
}

/* Handles n bytes that were read into the scratch. */
static void feed(struct chan *c, const uint8_t *p, size_t n)
{
    while (alive(c) && !c->draining && (n > 0 || (c->raw.done && c->raw.got == c->raw.size))) {
        size_t take;

        if (c->raw.done) {
            take = feed_raw(c, p, n);
        } else if (c->in_len == 0 && n >= FRAME_HEAD) {
            if (take_head(c, p) < 0)
                return;
            take = FRAME_HEAD + (size_t)c->head.length;
            if (take > n) {            /* only its beginning */
                if (make_room(c, n) < 0)
                    return;
                memcpy(c->in, p, n);
                c->in_len = n;
                return;
            }
            handle_frame(c, p + FRAME_HEAD);
            if (!c->destroyed)
                c->pos += take;
        } else {
            take = frame_total(c) - c->in_len < n ? frame_total(c) - c->in_len : n;
            if (make_room(c, c->in_len + take) < 0)
                return;
            memcpy(c->in + c->in_len, p, take);
            in_grown(c, take);
        }
        p += take;
        n -= take;
    }
}

/* Puts the descriptors of one read into `came`. The kernel ends a read at the bytes that descriptors came with. */
static int take_fds(struct chan *c, struct msghdr *msg, uint64_t start, size_t n)
{
    struct came k = { .start = start, .end = start + n };
    bool too_many = (msg->msg_flags & MSG_CTRUNC) != 0;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(msg); h; h = CMSG_NXTHDR(msg, h)) {
        size_t got = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < got; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            if (k.n < FRAME_MAX_FDS)
                k.fds[k.n++] = fd;
            else
                close(fd), too_many = true;
        }
    }
    if (k.n == 0 && !too_many)
        return 0;
    if (too_many || c->came.n > 0) {
        close_fds(k.fds, k.n);
        broken(c, ERR_PROTOCOL, "more descriptors came than a frame can carry, or than this process may have");
        return -1;
    }
    c->came = k;
    return 0;
}

/* Descriptors that no frame asked for are closed with the connection: they would be taken for another frame's. */
static void check_fds(struct chan *c)
{
    bool partial = c->in_len > 0 && c->pos < c->came.end && c->pos >= c->came.start;

    if (alive(c) && c->came.n > 0 && !(partial && (c->in_len < FRAME_HEAD || c->head.fds > 0)))
        broken(c, ERR_PROTOCOL, "descriptors came that no frame names");
}

static void peer_gone(struct chan *c)
{
    struct err e = { .code = ERR_NONE };

    if (c->in_len > 0 || c->raw.done)
        err_set(&e, ERR_UNREACHABLE, "the peer closed the connection in the middle of a message");
    else
        snprintf(e.text, sizeof(e.text), "closed by the peer");
    die(c, &e);
}

/* n as recv gave it. 0: nothing came (or the end), the pass is over. */
static int read_result(struct chan *c, ssize_t n)
{
    struct err e;

    if (n > 0) {
        c->heard = clock_mono_ns();
        return 1;
    }
    if (n == 0)
        peer_gone(c);
    else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
        err_errno(&e, ERR_UNREACHABLE, "connection lost");
        die(c, &e);
    }
    return 0;
}

/* With the beginning of a frame in `in`, first its rest; then whatever comes, into the scratch. Returns how many pieces. */
static size_t read_places(struct chan *c, struct iovec iov[2])
{
    size_t n = 0, total = frame_total(c);

    if (c->in_len > 0) {
        if (make_room(c, total) < 0)
            return 0;
        iov[n++] = (struct iovec){ c->in + c->in_len, (c->in_cap < total ? c->in_cap : total) - c->in_len };
    }
    if (c->in_len == 0 || c->in_cap >= total)
        iov[n++] = (struct iovec){ scratch, SCRATCH };
    return n;
}

static int read_frames(struct chan *c)
{
    union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * FRAME_MAX_FDS)]; } control;
    struct iovec iov[2];
    struct msghdr msg = { .msg_iov = iov, .msg_control = &control, .msg_controllen = sizeof(control) };
    uint64_t start = c->pos + c->in_len;
    size_t first;
    ssize_t n;

    msg.msg_iovlen = read_places(c, iov);
    if (msg.msg_iovlen == 0)
        return 0;
    if (c->limits.no_fds)
        n = msg.msg_iovlen == 1 ? recv(c->fd, iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT) : readv(c->fd, iov, 2);
    else
        n = recvmsg(c->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (!read_result(c, n) || (!c->limits.no_fds && take_fds(c, &msg, start, (size_t)n) < 0))
        return 0;
    first = c->in_len == 0 ? 0 : iov[0].iov_len < (size_t)n ? iov[0].iov_len : (size_t)n;
    if (first > 0)
        in_grown(c, first);
    feed(c, scratch, (size_t)n - first);
    if (!c->destroyed)
        check_fds(c);
    return alive(c) && (c->raw.done || (size_t)n >= SCRATCH);
}

static int read_raw(struct chan *c)
{
    struct raw_in *r = &c->raw;
    size_t want = r->size - r->got < RAW_READ ? r->size - r->got : RAW_READ;
    ssize_t n = recv(c->fd, r->data + r->got, want, MSG_DONTWAIT);

    if (!read_result(c, n))
        return 0;
    r->got += (size_t)n;
    c->pos += (uint64_t)n;
    if (r->progress)
        r->progress(r->arg, r->got);
    if (alive(c) && r->done && r->got == r->size)
        raw_end(c, 1);
    return 1;
}

/* Closing in order: what still comes is thrown away until the peer has seen our end, else the kernel would take back what we sent. */
static int read_away(struct chan *c)
{
    ssize_t n = recv(c->fd, scratch, SCRATCH, MSG_DONTWAIT);
    struct err none = { .code = ERR_NONE, .text = "closed by this side" };

    if (n > 0)
        return 1;
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        die(c, &none);
    return 0;
}

static void read_pass(struct chan *c)
{
    for (unsigned i = 0; i < READS_A_PASS && alive(c); i++) {
        int more = c->draining ? read_away(c) : c->raw.done ? read_raw(c) : read_frames(c);

        if (!more)
            return;
    }
}

static void on_readable(struct ev_loop *loop, ev_io *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, rd);

    (void)loop, (void)events;
    enter(c);
    read_pass(c);
    leave(c);
}

int chan_receive_raw(struct chan *c, void *data, size_t size, void (*done)(void *arg, int ok),
                     void (*progress)(void *arg, size_t got), void *arg)
{
    if (!alive(c) || c->draining || !c->in_message || c->raw.done)
        return -1;
    c->raw = (struct raw_in){ .data = data, .size = size, .done = done, .progress = progress, .arg = arg };
    return 0;
}

/* ---- time ---- */

static void beat(struct chan *c)
{
    Sluice__Ping ping = SLUICE__PING__INIT;

    if (c->limits.beat_s < 0 || c->ping_queued || c->draining)
        return;
    if (clock_mono_ns() - c->sent >= ns(c->limits.beat_s) - CLOCK_SECOND / 1000 && chan_send(c, 0, &ping.base) == 0)
        c->ping_queued = true;
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
        broken(c, ERR_TIMEOUT, "what was left to send did not go out in time");
    } else if (c->limits.dead_s > 0 && now - c->heard >= ns(c->limits.dead_s)) {
        err_set(&e, ERR_TIMEOUT, "no sign of life for %.1f s", (double)(now - c->heard) / (double)CLOCK_SECOND);
        die(c, &e);
    }
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int events)
{
    struct chan *c = CONTAINER_OF(w, struct chan, tick);
    int64_t now = clock_mono_ns(), late = now - c->tick_due;

    (void)loop, (void)events;
    enter(c);
    if (late > STALL_NS)               /* we were the silent ones */
        c->heard = c->heard + late < now ? c->heard + late : now;
    read_pass(c);                      /* what is already here counts */
    if (alive(c))
        judge(c);
    if (alive(c))
        beat(c);
    if (!c->dead && !c->destroyed)
        tick_set(c);
    leave(c);
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
    if (!alive(c) || c->draining)
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
double chan_silence_s(const struct chan *c) { return (double)(clock_mono_ns() - c->heard) / (double)CLOCK_SECOND; }
int chan_fd(const struct chan *c) { return c->fd; }
const char *chan_peer(const struct chan *c) { return c->peer; }
