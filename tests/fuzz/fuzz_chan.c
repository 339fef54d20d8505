/* fuzz_chan.c - any bytes into a connection, cut anywhere, some with descriptors: closed with a reason or handled, nothing leaks
 *
 * Byte 0 seeds the cuts; what follows is the stream.
 */
#include "config.h"

#include "chan.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct got { struct chan *c; int closed, raws; uint8_t raw[300]; };

static void expect(int truth)
{
    if (!truth)
        abort();
}

static void raw_done(void *arg, int ok)
{
    struct got *g = arg;

    (void)ok;
    g->raws--;
}

static void message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct got *g = arg;
    const Sluice__PartData *part = (const Sluice__PartData *)m;

    (void)id, (void)fds, (void)n_fds;
    expect(!g->closed);
    if (type == SLUICE__TYPE__PART && part->size <= sizeof(g->raw)) {
        expect(g->raws == 0);
        if (chan_receive_raw(c, g->raw, part->size, raw_done, NULL, g) == 0)
            g->raws++;
    } else if (type == SLUICE__TYPE__HELLO) {
        chan_known(c);
    } else if (type == SLUICE__TYPE__GET_CHECK) {
        chan_close_after_send(c, 1);
    }
}

static void closed(void *arg, struct chan *c, const struct err *why)
{
    struct got *g = arg;

    (void)c;
    expect(!g->closed && why->text[0]);
    g->closed = 1;
}

static const struct chan_events events = { .message = message, .closed = closed };

static void send_piece(int fd, const uint8_t *p, size_t n, int with_fd)
{
    union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int))]; } control = { 0 };
    struct iovec iov = { (void *)p, n };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    int stdin_fd = STDIN_FILENO;

    if (with_fd) {
        msg.msg_control = &control;
        msg.msg_controllen = sizeof(control);
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.align), &stdin_fd, sizeof(stdin_fd));      /* not our end: the chan would keep it open */
    }
    (void)!sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct ev_loop *loop;
    struct got g = { .closed = 0 };
    uint32_t x = size ? data[0] : 0;
    int fd[2];

    if (loop == NULL)
        loop = ev_loop_new(EVBACKEND_POLL);
    expect(loop != NULL && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) == 0);
    g.c = chan_create(loop, fd[0], &(struct chan_limits){ .beat_s = -1, .dead_s = -1 }, &events, &g);
    for (size_t at = 1; at < size && !g.closed;) {
        size_t n;

        x = x * 1664525 + 1013904223;
        n = (x >> 8) % 3 == 0 ? 1 + (x >> 24) % 20 : size - at;
        n = n < size - at ? n : size - at;
        send_piece(fd[1], data + at, n, (x >> 10) % 16 == 0 && data[0] > 127);
        ev_run(loop, EVRUN_NOWAIT);
        at += n;
    }
    close(fd[1]);
    for (int i = 0; i < 100 && !g.closed; i++)
        ev_run(loop, EVRUN_NOWAIT);
    expect(g.closed);
    chan_destroy(g.c);
    expect(g.raws == 0);
    return 0;
}
