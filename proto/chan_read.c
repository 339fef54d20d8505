/* chan_read.c - the receiving half of a connection: bytes become frames, frames become messages
 *
 * From: the socket.  To: the owner (message), raw bytes to their place.
 * A read takes what the socket has: whole frames are handled where they lie, the beginning of one is kept in `in`.
 * Always: a frame begins at stream position `pos`; descriptors that came are in `came` until the frame that names them is complete, and at no
 * time more than FRAME_MAX_FDS.
 */
#include "config.h"

#include "chan_part.h"

#include "clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    SCRATCH = 64 * 1024,               /* one read */
    KEEP = 256 * 1024,                 /* a larger `in` is given back after its frame */
    READS_A_PASS = 16,                 /* then the other connections have their turn */
    RAW_READ = 4 * 1024 * 1024,
};

static _Thread_local uint8_t scratch[SCRATCH];

/* Takes the descriptors of a complete frame into fds. */
static int claim(struct chan *c, int *fds)
{
    struct came *k = &c->came;

    if (c->head.fds == 0)
        return 0;
    if (k->n != c->head.fds || c->pos < k->start || c->pos >= k->end) {
        chan_broken(c, ERR_PROTOCOL, "a frame does not come with the descriptors that it names");
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
    pong.has_clock = 1;
    pong.clock = clock_wall_ns() + c->limits.clock_shift_ns;
    chan_send(c, id, &pong.base);
}

/* Only the answer to the last question counts: when an earlier one was put is not known any more. */
static void take_pong(struct chan *c, const ProtobufCMessage *m)
{
    const Sluice__Pong *pong = (const Sluice__Pong *)m;

    if (!pong->has_clock || c->ping_clock == 0 || pong->number != c->ping_number)
        return;
    chan_take_clock(c, c->ping_clock, pong->clock);
    c->ping_clock = 0;
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
        chan_close_fds(fds, n_fds);
        chan_die(c, &e);
        return;
    }
    if (t->type == SLUICE__TYPE__PING) {
        answer_ping(c, c->head.id, m);
    } else if (t->type == SLUICE__TYPE__PONG) {
        take_pong(c, m);
    } else {
        c->in_message = true;
        c->message = m;
        c->events->message(c->arg, c, t->type, c->head.id, m, fds, n_fds);
        m = c->message;
        c->message = NULL;
        c->in_message = false;
    }
    chan_close_fds(fds, n_fds);
    if (m != NULL)
        protobuf_c_message_free_unpacked(m, NULL);
}

ProtobufCMessage *chan_take_message(struct chan *c)
{
    ProtobufCMessage *m = c->message;

    c->message = NULL;
    return m;
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
    chan_die(c, &e);
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
        chan_broken(c, ERR_FAILED, "no memory for a message");
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
    if (chan_alive(c) && r->done && r->got == r->size)
        chan_raw_end(c, 1);
    return take;
}

/* Handles n bytes that were read into the scratch. */
static void feed(struct chan *c, const uint8_t *p, size_t n)
{
    while (chan_alive(c) && !c->draining && (n > 0 || (c->raw.done && c->raw.got == c->raw.size))) {
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
        chan_close_fds(k.fds, k.n);
        chan_broken(c, ERR_PROTOCOL, "more descriptors came than a frame can carry, or than this process may have");
        return -1;
    }
    c->came = k;
    return 0;
}

/* Descriptors that no frame asked for are closed with the connection: they would be taken for another frame's. */
static void check_fds(struct chan *c)
{
    bool partial = c->in_len > 0 && c->pos < c->came.end && c->pos >= c->came.start;

    if (chan_alive(c) && c->came.n > 0 && !(partial && (c->in_len < FRAME_HEAD || c->head.fds > 0)))
        chan_broken(c, ERR_PROTOCOL, "descriptors came that no frame names");
}

static void peer_gone(struct chan *c)
{
    struct err e = { .code = ERR_NONE };

    if (c->in_len > 0 || c->raw.done)
        err_set(&e, ERR_UNREACHABLE, "the peer closed the connection in the middle of a message");
    else
        snprintf(e.text, sizeof(e.text), "closed by the peer");
    chan_die(c, &e);
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
        chan_die(c, &e);
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
    return chan_alive(c) && (c->raw.done || (size_t)n >= SCRATCH);
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
    if (chan_alive(c) && r->done && r->got == r->size)
        chan_raw_end(c, 1);
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
        chan_die(c, &none);
    return 0;
}

void chan_read_pass(struct chan *c)
{
    for (unsigned i = 0; i < READS_A_PASS && chan_alive(c); i++) {
        int more = c->draining ? read_away(c) : c->raw.done ? read_raw(c) : read_frames(c);

        if (!more)
            return;
    }
}

int chan_receive_raw(struct chan *c, void *data, size_t size, void (*done)(void *arg, int ok),
                     void (*progress)(void *arg, size_t got), void *arg)
{
    if (!chan_alive(c) || c->draining || !c->in_message || c->raw.done)
        return -1;
    c->raw = (struct raw_in){ .data = data, .size = size, .done = done, .progress = progress, .arg = arg };
    return 0;
}
