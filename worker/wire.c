/* wire.c - frames over a blocking socket
 *
 * From: attach.c, tests/fake/reco.c.  To: the worker's device_talk.c.
 */
#include "config.h"
#include "wire.h"

#include "clock.h"
#include "mem.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void take_fds(struct msghdr *h, struct wire_message *out)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        const unsigned char *p = CMSG_DATA(c);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, p + i * sizeof fd, sizeof fd);
            if (out->n_fds < FRAME_MAX_FDS)
                out->fds[out->n_fds++] = fd;
            else
                close(fd);
        }
    }
}

/* 1: all; 0: closed before the first byte; -1. */
static int read_all(struct wire *w, void *data, size_t size, struct wire_message *out, struct err *e)
{
    union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int) * FRAME_MAX_FDS)]; } control;
    size_t got = 0;

    while (got < size) {
        struct iovec v = { (char *)data + got, size - got };
        struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
        ssize_t n = recvmsg(w->fd, &h, MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNREACHABLE, "the worker cannot be read");
        if (n == 0 && got == 0)
            return 0;
        if (n == 0)
            return err_set(e, ERR_PROTOCOL, "the worker closed in the middle of a message");
        take_fds(&h, out);
        got += (size_t)n;
    }
    return 1;
}

static int read_one(struct wire *w, struct wire_message *out, struct err *e)
{
    uint8_t head[FRAME_HEAD];
    struct frame_head h;

    *out = (struct wire_message){ 0 };
    int rc = read_all(w, head, sizeof head, out, e);
    if (rc <= 0)
        return rc;
    if (frame_parse_head(head, &h, e) < 0)
        return -1;
    uint8_t *body = mem_zalloc(h.length + 1);
    rc = h.length == 0 ? 1 : read_all(w, body, h.length, out, e);
    if (rc > 0)
        out->m = frame_unpack(frame_type(h.type), body, h.length, e);
    else if (rc == 0)
        err_set(e, ERR_PROTOCOL, "the worker closed in the middle of a message");
    free(body);
    out->type = h.type;
    out->id = h.id;
    return out->m != NULL ? 1 : -1;
}

int wire_read(struct wire *w, struct wire_message *out, struct err *e)
{
    for (;;) {
        int rc = read_one(w, out, e);
        if (rc <= 0) {
            wire_free(out);
            return rc;
        }
        if (out->type != SLUICE__TYPE__PING && out->type != SLUICE__TYPE__PONG)
            return 1;
        Sluice__Pong pong = SLUICE__PONG__INIT;
        bool ping = out->type == SLUICE__TYPE__PING;
        wire_free(out);
        if (ping && wire_send(w, 0, &pong.base, NULL, 0, e) < 0)
            return -1;
    }
}

void wire_free(struct wire_message *m)
{
    if (m->m != NULL)
        protobuf_c_message_free_unpacked(m->m, NULL);
    for (unsigned i = 0; i < m->n_fds; i++) {
        if (m->fds[i] >= 0)
            close(m->fds[i]);
    }
    *m = (struct wire_message){ 0 };
}

static int send_all(struct wire *w, const uint8_t *data, size_t size, const int *fds, unsigned n_fds, struct err *e)
{
    union { struct cmsghdr align; char space[CMSG_SPACE(sizeof(int) * FRAME_MAX_FDS)]; } control;

    memset(&control, 0, sizeof control);
    while (size > 0) {
        struct iovec v = { (void *)data, size };
        struct msghdr h = { .msg_iov = &v, .msg_iovlen = 1 };
        if (n_fds > 0) {
            h.msg_control = &control;
            h.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
            struct cmsghdr *c = CMSG_FIRSTHDR(&h);
            c->cmsg_level = SOL_SOCKET;
            c->cmsg_type = SCM_RIGHTS;
            c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
            memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
        }
        ssize_t n = sendmsg(w->fd, &h, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNREACHABLE, "the worker cannot be written to");
        n_fds = 0;                               /* they went with the first byte */
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

int wire_send(struct wire *w, uint32_t id, const ProtobufCMessage *m, const int *fds, unsigned n_fds, struct err *e)
{
    const struct frame_type *t = frame_type_of(m);
    size_t size = protobuf_c_message_get_packed_size(m);

    if (t == NULL || size > t->max_length || n_fds > FRAME_MAX_FDS)
        return err_set(e, ERR_PROTOCOL, "a message of %zu bytes with %u descriptors cannot be sent", size, n_fds);
    struct frame_head h = { .type = (uint16_t)t->type, .fds = (uint8_t)n_fds, .length = (uint32_t)size, .id = id };
    uint8_t *data = mem_zalloc(FRAME_HEAD + size);
    frame_pack_head(&h, data);
    protobuf_c_message_pack(m, data + FRAME_HEAD);
    int rc = send_all(w, data, FRAME_HEAD + size, fds, n_fds, e);
    free(data);
    return rc;
}

int wire_poll(struct wire *w, int64_t until_ns)
{
    for (;;) {
        struct pollfd p = { .fd = w->fd, .events = POLLIN };
        int64_t left = until_ns - clock_mono_ns();
        int n = poll(&p, 1, left <= 0 ? 0 : (int)((left + 999999) / 1000000));
        if (n > 0)
            return 1;
        if (n == 0 && until_ns - clock_mono_ns() <= 0)
            return 0;
    }
}
