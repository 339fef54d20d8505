/* mutant.c - fake-mutant: a peer that sends damaged frames, to a daemon that listens or to one that connects to it
 *
 * From: the table of all messages.  To: sluiced (--server), or a worker or source that takes it for sluiced (--listen). Every connection: sometimes no
 * handshake at all, else a right one; then frames of every type, whole, with bytes changed, cut short, with false lengths, or plain rubbish.
 * One line of JSON at the end. --seed makes the same again.
 */
#include "config.h"

#include "../fuzz/fill.h"
#include "clock.h"
#include "fake.h"
#include "frame.h"
#include "mem.h"
#include "peer.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *server, *listen_at, *node = "mutant";
static double seconds = 5;
static uint64_t seed, x;
static volatile sig_atomic_t stop;
static struct { uint64_t connections, frames, whole, closed, answers, no_connection; } sum;

static uint64_t draw(uint64_t below)
{
    x = x * 6364136223846793005u + 1442695040888963407u;
    return (x >> 33) % below;
}

static void on_signal(int sig) { (void)sig; stop = 1; }

/* Throws away what came. -1: the other side closed. */
static int drain(int fd, int wait_ms)
{
    static uint8_t buf[65536];
    struct pollfd p = { .fd = fd, .events = POLLIN };

    while (poll(&p, 1, wait_ms) > 0) {
        ssize_t n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return -1;
        sum.answers += n > 0;
        wait_ms = 0;
    }
    return 0;
}

static int put(int fd, const uint8_t *p, size_t n)
{
    int64_t end = clock_mono_ns() + CLOCK_SECOND;

    while (n > 0 && clock_mono_ns() < end) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (k < 0 && errno == EAGAIN)
            poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1, 50);
        else if (k < 0)
            return -1;
        else
            p += k, n -= (size_t)k;
        if (drain(fd, 0) < 0)
            return -1;
    }
    return n > 0 ? -1 : 0;
}

static int put_message(int fd, const ProtobufCMessage *m)
{
    uint8_t buf[8192];
    size_t size = protobuf_c_message_pack(m, buf + FRAME_HEAD);

    frame_pack_head(&(struct frame_head){ .type = (uint16_t)frame_type_of(m)->type, .length = (uint32_t)size, .id = 1 }, buf);
    return put(fd, buf, FRAME_HEAD + size);
}

static int say_hello(int fd, Sluice__Role role)
{
    Sluice__Hello m = SLUICE__HELLO__INIT;

    m.has_major = m.has_minor = m.has_role = m.has_clock = 1;
    m.major = PROTO_MAJOR;
    m.role = role;
    m.name = (char *)node;
    m.clock = clock_wall_ns();
    /* WELCOME, then READY when the name thread has answered. */
    return put_message(fd, &m.base) < 0 || drain(fd, 200) < 0 ? -1 : drain(fd, 30);
}

/* Half of the workers and sources are let in first: then their frames get to the handlers. */
static int say_who(int fd, Sluice__Role role)
{
    Sluice__Register r = SLUICE__REGISTER__INIT;
    Sluice__Source s = SLUICE__SOURCE__INIT;
    Sluice__Incarnation inc = SLUICE__INCARNATION__INIT;

    inc.boot_id = "11111111-2222-3333-4444-555555555555";
    inc.has_start = inc.has_pid = 1;
    inc.start = inc.pid = 1 + (uint32_t)draw(3);
    r.node = (char *)node;
    r.class_ = "fake";
    r.incarnation = s.incarnation = &inc;
    r.has_connection = r.has_buffer_size = r.has_memory = s.has_connection = s.has_run = s.has_part = s.has_holds = 1;
    r.connection = s.connection = 1 + sum.connections;
    r.buffer_size = r.memory = UINT64_C(1) << 32;
    s.name = (char *)node;
    s.address = "unix:/nonexistent";
    s.run = 1;
    s.holds = (int)draw(2);
    return draw(2) ? 0 : put_message(fd, role == SLUICE__ROLE__WORKER ? &r.base : &s.base) < 0 ? -1 : drain(fd, 50);
}

static int say_welcome(int fd)
{
    Sluice__Welcome w = SLUICE__WELCOME__INIT;
    Sluice__Ready r = SLUICE__READY__INIT;

    w.has_major = w.has_minor = w.has_epoch = 1;
    w.major = PROTO_MAJOR;
    w.epoch = 1;
    r.user = "nobody";
    return drain(fd, 200) < 0 || put_message(fd, &w.base) < 0 || put_message(fd, &r.base) < 0 ? -1 : drain(fd, 200);
}

/* Between workers, sources and reconstruction processes: nothing for sluiced, or from it. */
static bool is_elsewhere(const struct frame_type *t)
{
    return t->type >= SLUICE__TYPE__PULL_HELLO && t->type < SLUICE__TYPE__GET_STATUS;
}

/* A frame of any type that `from` may send (sometimes of any), made wrong in one of several ways, or left right. */
static int put_frame(int fd, unsigned from)
{
    size_t n, size, total;
    const struct frame_type *t = frame_types(&n);
    ProtobufCMessage *m;
    uint8_t *buf;
    int rc;

    t += draw(n);
    /* Mostly what this role may send: the others end the connection at once. */
    for (int i = 0; i < 500 && ((t->from & from) == 0 || t->type <= SLUICE__TYPE__READY || is_elsewhere(t)) && draw(100) > 0; i++)
        t = frame_types(&n) + draw(n);
    m = fill_message(t->descriptor, (unsigned)draw(4), draw(1 << 30));
    size = protobuf_c_message_get_packed_size(m);
    total = FRAME_HEAD + size;
    buf = mem_zalloc(total + 16);
    frame_pack_head(&(struct frame_head){ .type = (uint16_t)t->type, .length = (uint32_t)size, .id = (uint32_t)draw(5) }, buf);
    protobuf_c_message_pack(m, buf + FRAME_HEAD);
    protobuf_c_message_free_unpacked(m, NULL);
    switch (draw(10)) {
    case 0: case 1: case 2: case 3: sum.whole++; break;
    case 4: case 5: case 6:
        for (uint64_t i = 0; size > 0 && i < 1 + draw(8); i++)
            buf[FRAME_HEAD + draw(size)] = (uint8_t)draw(256);
        break;
    case 7: buf[draw(total)] ^= (uint8_t)(1 << draw(8)); break;
    case 8: buf[8 + draw(4)] = (uint8_t)draw(256); break;              /* another length */
    default: total = 1 + draw(total); break;                           /* cut: the next one runs into it */
    }
    rc = put(fd, buf, total);
    free(buf);
    sum.frames++;
    return rc;
}

static void talk(int fd)
{
    static const Sluice__Role roles[] = { SLUICE__ROLE__CLIENT, SLUICE__ROLE__WORKER, SLUICE__ROLE__SOURCE_ROLE };
    Sluice__Role role = roles[draw(ARRAY_LEN(roles))];
    unsigned from = listen_at ? FRAME_FROM_DAEMON : 1u << role;

    sum.connections++;
    if (listen_at ? say_welcome(fd) < 0 : draw(5) > 0 && say_hello(fd, role) < 0) {
        sum.closed++;
        return;
    }
    if (!listen_at && role != SLUICE__ROLE__CLIENT && say_who(fd, role) < 0)
        return;
    for (unsigned i = 0; i < 60 && !stop; i++)
        if (put_frame(fd, from) < 0 || drain(fd, 0) < 0) {
            sum.closed++;
            return;
        }
}

static int next_connection(int listener)
{
    struct err e;
    int fd;

    if (listener < 0) {
        fd = peer_connect_fd(server, &e);
    } else {
        poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 100);
        fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    if (fd < 0) {
        sum.no_connection++;
        poll(NULL, 0, 10);
    }
    return fd;
}

static double real(const char *what, const char *text)
{
    struct err e;
    double v;

    if (str_parse_f64(what, text, 0, 1e6, &v, &e) < 0)
        fake_die(&e);
    return v;
}

int main(int argc, char **argv)
{
    static const struct option options[] = { { "server", 1, NULL, 's' }, { "listen", 1, NULL, 'l' }, { "seconds", 1, NULL, 't' }, { "seed", 1, NULL, 'r' },
                                             { "name", 1, NULL, 'n' }, { 0 } };
    struct err e;
    int c, listener = -1;
    int64_t end;

    seed = (uint64_t)clock_wall_ns();
    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': server = optarg; break;
        case 'l': listen_at = optarg; break;
        case 't': seconds = real("--seconds", optarg); break;
        case 'r': seed = strtoull(optarg, NULL, 0); break;
        case 'n': node = optarg; break;
        default: fprintf(stderr, "fake-mutant --server ADDRESS | --listen ADDRESS [--seconds S] [--seed N] [--name N]\n"); return 2;
        }
    }
    if ((server == NULL) == (listen_at == NULL)) {
        fprintf(stderr, "fake-mutant: either --server or --listen\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_signal);
    x = seed;
    if (listen_at && (listener = peer_listen_fd(listen_at, 0666, &e)) < 0)
        fake_die(&e);
    for (end = clock_mono_ns() + (int64_t)(seconds * 1e9); clock_mono_ns() < end && !stop;) {
        int fd = next_connection(listener);

        if (fd < 0)
            continue;
        talk(fd);
        close(fd);
    }
    if (listen_at)
        peer_unlisten(listener, listen_at);
    printf("{\"seed\": %llu, \"connections\": %llu, \"frames\": %llu, \"whole\": %llu, \"closed\": %llu, \"answers\": %llu, \"no_connection\": %llu}\n",
           (unsigned long long)seed, (unsigned long long)sum.connections, (unsigned long long)sum.frames, (unsigned long long)sum.whole,
           (unsigned long long)sum.closed, (unsigned long long)sum.answers, (unsigned long long)sum.no_connection);
    return 0;
}
