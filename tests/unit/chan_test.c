/* chan_test.c - connections on a loop: cut into single bytes, full, silent, broken, with descriptors and raw bytes */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "chan.h"
#include "loop_help.h"
#include "mem.h"

/* One end under test (or both), and what it heard. */
struct end {
    struct chan *c;
    unsigned messages, texts;
    unsigned last_type;
    uint32_t last_id;
    char     text[256];
    bool     closed, drained, wait;
    struct err why;
    int      fds[FRAME_MAX_FDS];
    unsigned n_fds;
    bool     keep_fds;
    uint8_t *raw;
    size_t   raw_size, raw_got;
    int      raw_ok;                    /* -1: not over yet */
    bool     destroy_at_message;
    unsigned pongs_seen;
};

static struct ev_loop *loop;

static void raw_done(void *arg, int ok)
{
    struct end *e = arg;

    e->raw_ok = ok;
    e->wait = true;
}

static void raw_progress(void *arg, size_t got)
{
    struct end *e = arg;

    assert_true(got > e->raw_got && got <= e->raw_size);
    e->raw_got = got;
}

static void message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct end *e = arg;

    e->messages++;
    e->last_type = type;
    e->last_id = id;
    e->wait = true;
    if (type == SLUICE__TYPE__OK) {
        const Sluice__Ok *ok = (const Sluice__Ok *)m;

        snprintf(e->text, sizeof(e->text), "%.250s", ok->text ? ok->text : "");
    }
    if (e->keep_fds)
        for (unsigned i = 0; i < n_fds; i++) {
            e->fds[e->n_fds++] = fds[i];
            fds[i] = -1;
        }
    if (type == SLUICE__TYPE__PART)
        assert_int_equal(chan_receive_raw(c, e->raw, e->raw_size, raw_done, raw_progress, e), 0);
    if (e->destroy_at_message) {
        chan_destroy(e->c);
        e->c = NULL;
    }
}

static void closed(void *arg, struct chan *c, const struct err *why)
{
    struct end *e = arg;

    assert_false(e->closed);
    assert_ptr_equal(c, e->c);
    e->closed = e->wait = true;
    e->why = *why;
}

static void drained(void *arg, struct chan *c)
{
    struct end *e = arg;

    (void)c;
    e->drained = true;
}

static const struct chan_events events = { message, closed, drained };

static void pair(int fd[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
}

/* A chan on one end, a bare socket on the other. */
static int open_one(struct end *e, const struct chan_limits *l)
{
    int fd[2];

    pair(fd);
    *e = (struct end){ .raw_ok = -1 };
    e->c = chan_create(loop, fd[0], l, &events, e);
    return fd[1];
}

static void open_two(struct end *a, struct end *b, const struct chan_limits *la, const struct chan_limits *lb)
{
    int fd[2];

    pair(fd);
    *a = *b = (struct end){ .raw_ok = -1 };
    a->c = chan_create(loop, fd[0], la, &events, a);
    b->c = chan_create(loop, fd[1], lb, &events, b);
}

static size_t make_frame(uint8_t *out, uint32_t id, const ProtobufCMessage *m, uint8_t fds)
{
    size_t size = protobuf_c_message_pack(m, out + FRAME_HEAD);

    frame_pack_head(&(struct frame_head){ .type = (uint16_t)frame_type_of(m)->type, .fds = fds, .length = (uint32_t)size, .id = id }, out);
    return FRAME_HEAD + size;
}

static size_t make_ok(uint8_t *out, uint32_t id, const char *text, uint8_t fds)
{
    Sluice__Ok m = SLUICE__OK__INIT;

    m.text = (char *)text;
    return make_frame(out, id, &m.base, fds);
}

static void send_ok(struct chan *c, uint32_t id, const char *text)
{
    Sluice__Ok m = SLUICE__OK__INIT;

    m.text = (char *)text;
    assert_int_equal(chan_send(c, id, &m.base), 0);
}

static void put(int fd, const void *data, size_t n)
{
    assert_int_equal(send(fd, data, n, MSG_NOSIGNAL), (ssize_t)n);
}

static void send_with_fds(int to, const void *data, size_t n, const int *fds, unsigned n_fds)
{
    union { struct cmsghdr align; char buf[CMSG_SPACE(sizeof(int) * 64)]; } control;
    struct iovec iov = { (void *)data, n };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int) * n_fds) };

    memset(&control, 0, sizeof(control));
    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
    memcpy(CMSG_DATA(&control.align), fds, sizeof(int) * n_fds);
    assert_int_equal(sendmsg(to, &msg, MSG_NOSIGNAL), (ssize_t)n);
}

static unsigned open_descriptors(void)
{
    unsigned n = 0;

    for (int i = 0; i < 256; i++)
        n += fcntl(i, F_GETFD) >= 0;
    return n;
}

static void messages_cross_both_ways(void **unused)
{
    struct end a, b;

    (void)unused;
    open_two(&a, &b, NULL, NULL);
    send_ok(a.c, 7, "there");
    send_ok(b.c, 9, "and back");
    assert_true(run_until(loop, &a.wait, 2) && run_until(loop, &b.wait, 2));
    assert_string_equal(b.text, "there");
    assert_int_equal(b.last_id, 7);
    assert_string_equal(a.text, "and back");
    assert_int_equal(a.last_id, 9);
    chan_destroy(a.c);
    assert_true(run_until(loop, &b.closed, 2));
    assert_int_equal(b.why.code, ERR_NONE);
    assert_int_equal(chan_send(b.c, 0, &(Sluice__Ok)SLUICE__OK__INIT.base), -1);
    chan_destroy(b.c);
    chan_destroy(NULL);
}

static void a_frame_may_come_byte_by_byte(void **unused)
{
    struct end a;
    uint8_t buf[512];
    int fd = open_one(&a, NULL);
    size_t n = make_ok(buf, 1, "one byte after the other", 0);

    (void)unused;
    n += make_ok(buf + n, 2, "", 0);
    for (size_t i = 0; i < n; i++) {
        put(fd, buf + i, 1);
        ev_run(loop, EVRUN_ONCE);
    }
    assert_int_equal(a.messages, 2);
    assert_int_equal(a.last_id, 2);
    /* Cut at every place: the first piece, then the rest together with a second frame. */
    for (size_t cut = 1; cut < n; cut++) {
        unsigned before = a.messages;

        put(fd, buf, cut);
        ev_run(loop, EVRUN_ONCE);
        put(fd, buf + cut, n - cut);
        ev_run(loop, EVRUN_ONCE);
        assert_int_equal(a.messages, before + 2);
    }
    chan_destroy(a.c);
    close(fd);
}

static void large_messages_arrive_whole(void **unused)
{
    struct end a, b;
    Sluice__Config m = SLUICE__CONFIG__INIT;
    size_t size = 7 << 20;

    (void)unused;
    open_two(&a, &b, NULL, NULL);
    chan_known(b.c);
    m.text = malloc(size + 1);
    memset(m.text, 'x', size);
    m.text[size] = '\0';
    assert_int_equal(chan_send(a.c, 3, &m.base), 0);
    send_ok(a.c, 4, "after it");
    assert_true(chan_queued(a.c) > size);
    while (b.messages < 2 && !b.closed && !a.closed)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(b.messages, 2);
    assert_string_equal(b.text, "after it");
    assert_int_equal(chan_queued(a.c), 0);
    assert_true(a.drained);
    free(m.text);
    chan_destroy(a.c);
    chan_destroy(b.c);
}

static void rubbish_closes_the_connection(void **unused)
{
    static const struct { const char *what; size_t at; uint8_t byte; const char *says; } bad[] = {
        { "magic",    0, 'G',  "not a frame" },
        { "version",  2, 9,    "frame version 9" },
        { "reserved", 4, 1,    "where 0 belongs" },
        { "type",     6, 0xff, "unknown type" },
        { "length",   11, 0x7f, "at most" },
        { "descriptors", 3, 17, "17 descriptors" },
        { "body",     FRAME_HEAD + 2, 0xff, "UTF-8" },
        { "tag",      FRAME_HEAD, 0x0f, "wire type" },
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct end a;
        uint8_t buf[64];
        int fd = open_one(&a, NULL);
        size_t n = make_ok(buf, 1, "good", 0);

        buf[bad[i].at] = bad[i].byte;
        put(fd, buf, n);
        assert_true(run_until(loop, &a.closed, 2));
        assert_int_equal(a.why.code, ERR_PROTOCOL);
        if (strstr(a.why.text, bad[i].says) == NULL)
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].what, a.why.text, bad[i].says);
        assert_int_equal(a.messages, 0);
        chan_destroy(a.c);
        close(fd);
    }
}

static void an_unknown_peer_is_kept_small(void **unused)
{
    struct end a;
    struct frame_head h = { .type = SLUICE__TYPE__SUBMIT, .length = 65537, .id = 1 };
    uint8_t head[FRAME_HEAD];
    int fd = open_one(&a, NULL);

    (void)unused;
    frame_pack_head(&h, head);
    put(fd, head, sizeof(head));
    assert_true(run_until(loop, &a.closed, 2));
    assert_non_null(strstr(a.why.text, "not known yet"));
    chan_destroy(a.c);
    close(fd);

    fd = open_one(&a, NULL);
    chan_known(a.c);                    /* the same head is taken, and waits for its body */
    put(fd, head, sizeof(head));
    run_for(loop, 0.05);
    assert_false(a.closed);
    chan_destroy(a.c);
    close(fd);
}

static void only_allowed_roles_send_a_type(void **unused)
{
    struct end a;
    uint8_t buf[64];
    Sluice__Built built = SLUICE__BUILT__INIT;
    Sluice__GetStatus status = SLUICE__GET_STATUS__INIT;
    int fd = open_one(&a, NULL);
    size_t n;

    (void)unused;
    chan_allow(a.c, 1u << SLUICE__ROLE__WORKER);
    n = make_frame(buf, 1, &built.base, 0);
    put(fd, buf, n);
    assert_true(run_until(loop, &a.wait, 2));
    assert_int_equal(a.last_type, SLUICE__TYPE__BUILT);
    n = make_frame(buf, 1, &status.base, 0);
    put(fd, buf, n);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_PROTOCOL);
    assert_non_null(strstr(a.why.text, "GET_STATUS may not come"));
    assert_int_equal(a.messages, 1);
    chan_destroy(a.c);
    close(fd);
}

static void a_cut_message_is_not_an_orderly_end(void **unused)
{
    struct end a;
    uint8_t buf[64];
    int fd = open_one(&a, NULL);
    size_t n = make_ok(buf, 1, "cut", 0);

    (void)unused;
    put(fd, buf, n - 1);
    close(fd);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_UNREACHABLE);
    assert_non_null(strstr(a.why.text, "middle"));
    chan_destroy(a.c);
}

/* What came out of the bare end: counts frames by type. */
static void count_frames(int fd, unsigned counts[256], unsigned first[4])
{
    static uint8_t buf[1 << 20];
    ssize_t got = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
    unsigned n = 0;

    for (ssize_t at = 0; got > 0 && at + FRAME_HEAD <= got;) {
        struct frame_head h;
        struct err e;

        assert_int_equal(frame_parse_head(buf + at, &h, &e), 0);
        counts[h.type & 255]++;
        if (first && n < 4)
            first[n++] = h.type;
        at += FRAME_HEAD + h.length;
    }
}

static void an_idle_side_sends_pings(void **unused)
{
    struct end a;
    struct chan_limits l = { .beat_s = 0.1, .dead_s = -1 };
    unsigned counts[256] = { 0 };
    int fd = open_one(&a, &l);

    (void)unused;
    run_for(loop, 1.05);
    count_frames(fd, counts, NULL);
    assert_in_range(counts[SLUICE__TYPE__PING], 5, 11);
    chan_destroy(a.c);
    close(fd);
}

static void heartbeats_go_ahead_of_the_queue(void **unused)
{
    struct end a;
    struct chan_limits l = { .beat_s = 0.1, .dead_s = -1 };
    unsigned counts[256] = { 0 }, pings = 0;
    int fd = open_one(&a, &l), small = 4096;
    static char big[8000];

    (void)unused;
    setsockopt(chan_fd(a.c), SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    memset(big, 'x', sizeof(big) - 1);
    for (int i = 0; i < 200; i++)
        send_ok(a.c, 1, big);
    run_for(loop, 0.5);                 /* nothing is read: the socket is full, a ping gets in line */
    for (unsigned read = 0; pings == 0 && read < 200;) {
        uint8_t head[FRAME_HEAD], body[8192];
        struct frame_head h;
        struct err e;

        if (recv(fd, head, sizeof(head), MSG_DONTWAIT | MSG_PEEK) < (ssize_t)sizeof(head)) {
            ev_run(loop, EVRUN_ONCE);
            continue;
        }
        assert_int_equal(recv(fd, head, sizeof(head), 0), FRAME_HEAD);
        assert_int_equal(frame_parse_head(head, &h, &e), 0);
        for (uint32_t got = 0; got < h.length;) {
            ssize_t n = recv(fd, body, h.length - got, MSG_DONTWAIT);

            if (n > 0)
                got += (uint32_t)n;
            else
                ev_run(loop, EVRUN_NOWAIT);
        }
        pings += h.type == SLUICE__TYPE__PING;
        counts[h.type & 255]++;
        read++;
    }
    assert_int_equal(pings, 1);
    assert_true(counts[SLUICE__TYPE__OK] < 100);       /* most of them still wait */
    assert_true(chan_queued(a.c) > 100 * sizeof(big));
    chan_destroy(a.c);
    close(fd);
}

static void a_ping_is_answered_with_its_number(void **unused)
{
    struct end a;
    uint8_t buf[64], answer[64];
    Sluice__Ping ping = SLUICE__PING__INIT;
    Sluice__Pong *pong;
    struct frame_head h;
    struct err e;
    int fd = open_one(&a, NULL);
    ssize_t n;

    (void)unused;
    ping.has_number = 1;
    ping.number = 4711;
    put(fd, buf, make_frame(buf, 3, &ping.base, 0));
    run_for(loop, 0.05);
    n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
    assert_true(n > FRAME_HEAD);
    assert_int_equal(frame_parse_head(answer, &h, &e), 0);
    assert_int_equal(h.type, SLUICE__TYPE__PONG);
    assert_int_equal(h.id, 3);
    pong = (Sluice__Pong *)frame_unpack(frame_type(h.type), answer + FRAME_HEAD, h.length, &e);
    assert_non_null(pong);
    assert_int_equal(pong->number, 4711);
    protobuf_c_message_free_unpacked(&pong->base, NULL);
    assert_int_equal(a.messages, 0);    /* heartbeats are not the owner's business */
    chan_destroy(a.c);
    close(fd);
}

static void a_silent_peer_is_dead(void **unused)
{
    struct end a;
    struct chan_limits l = { .beat_s = 0.05, .dead_s = 0.4 };
    int fd = open_one(&a, &l);
    int64_t start = clock_mono_ns(), took;

    (void)unused;
    assert_true(run_until(loop, &a.closed, 5));
    took = clock_mono_ns() - start;
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    assert_non_null(strstr(a.why.text, "no sign of life for 0.4 s"));
    assert_in_range(took / 1000000, 399, 1400);
    chan_destroy(a.c);
    close(fd);
}

static void answers_keep_a_peer_alive(void **unused)
{
    struct end a, b;
    struct chan_limits l = { .beat_s = 0.05, .dead_s = 0.4 }, mute = { .beat_s = -1, .dead_s = -1 };

    (void)unused;
    open_two(&a, &b, &l, &mute);        /* b never pings: it only answers */
    run_for(loop, 1.2);
    assert_false(a.closed || b.closed);
    assert_true(chan_silence_s(a.c) < 0.4);
    chan_destroy(a.c);
    chan_destroy(b.c);
}

/* The answer to a heartbeat says the clock of the other side, between two bounds; what waits in between draws them apart and moves nothing. */
static void the_clock_of_a_peer_is_known_between_bounds(void **unused)
{
    static const double shift_s[] = { -3600, -5, 0, 5, 315360000 };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(shift_s); i++) {
        struct end a, b;
        struct chan_limits l = { .clock_shift_ns = (int64_t)(shift_s[i] * 1e9) };
        const struct offset *o;

        open_two(&a, &b, NULL, &l);
        o = chan_clock(a.c);
        assert_false(o->known);
        chan_look_at_clock(a.c);
        chan_look_at_clock(a.c);            /* one question at a time */
        run_for(loop, 0.2);
        assert_true(o->known && o->low <= shift_s[i] + 1e-6 && o->high >= shift_s[i] - 1e-6);
        assert_true(offset_error(o) < 0.2);
        chan_destroy(a.c);
        chan_destroy(b.c);
    }
}

/* A real process that is stopped: half-open, the kernel still takes our bytes. */
static void a_stopped_process_is_found(void **unused)
{
    struct chan_limits l = { .beat_s = 0.05, .dead_s = 0.5 };
    struct end a;
    int fd[2], status;
    pid_t pid;

    (void)unused;
    pair(fd);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ev_loop *own = ev_loop_new(EVFLAG_AUTO);
        struct end b = { .raw_ok = -1 };

        close(fd[0]);
        b.c = chan_create(own, fd[1], NULL, &events, &b);
        run_until(own, &b.closed, 20);
        _exit(0);
    }
    close(fd[1]);
    a = (struct end){ .raw_ok = -1 };
    a.c = chan_create(loop, fd[0], &l, &events, &a);
    run_for(loop, 1.0);
    assert_false(a.closed);
    kill(pid, SIGSTOP);
    assert_true(run_until(loop, &a.closed, 5));
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    chan_destroy(a.c);
    kill(pid, SIGCONT);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void stand_still(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void our_own_stall_is_not_their_death(void **unused)
{
    struct chan_limits l = { .beat_s = 0.1, .dead_s = 0.5 };
    struct end a;
    unsigned counts[256] = { 0 };
    int fd = open_one(&a, &l);

    (void)unused;
    run_for(loop, 0.15);
    stand_still(1.0);                   /* twice the limit, and nothing came: the peer may have been waiting for us */
    run_for(loop, 0.2);
    assert_false(a.closed);
    count_frames(fd, counts, NULL);
    assert_true(counts[SLUICE__TYPE__PING] >= 1);
    assert_true(run_until(loop, &a.closed, 2));        /* but it stays silent, and that is its death */
    chan_destroy(a.c);
    close(fd);
}

static void what_has_come_is_read_before_judging(void **unused)
{
    struct chan_limits l = { .beat_s = -1, .dead_s = 0.4 };
    struct end a;
    uint8_t buf[64];
    int fd = open_one(&a, &l);
    size_t n = make_ok(buf, 1, "late", 0);

    (void)unused;
    for (int i = 0; i < 3; i++) {
        run_for(loop, 0.35);
        put(fd, buf, n);
        stand_still(0.04);              /* below what counts as a stall; the deadline passes meanwhile */
        run_for(loop, 0.02);
        assert_false(a.closed);
        assert_int_equal(a.messages, i + 1);
    }
    chan_destroy(a.c);
    close(fd);
}

static void a_reader_that_lags_is_cut_off(void **unused)
{
    struct end a;
    struct chan_limits l = { .max_queue = 64 * 1024 };
    static char text[4000];
    int fd = open_one(&a, &l), rc = 0, sent = 0;
    Sluice__Ok m = SLUICE__OK__INIT;

    (void)unused;
    memset(text, 'x', sizeof(text) - 1);
    m.text = text;
    while (rc == 0 && sent < 1000) {
        rc = chan_send(a.c, 0, &m.base);
        sent += rc == 0;
        assert_false(a.closed);         /* never from within chan_send */
        assert_true(chan_queued(a.c) <= 64 * 1024);
    }
    assert_in_range(sent, 15, 17);
    assert_int_equal(chan_send(a.c, 0, &m.base), -1);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    assert_non_null(strstr(a.why.text, "lagging"));
    chan_destroy(a.c);
    close(fd);
}

static void one_large_answer_fits_an_empty_queue(void **unused)
{
    struct end a;
    struct chan_limits l = { .max_queue = 1024 };
    static char text[6000];
    int fd = open_one(&a, &l);

    (void)unused;
    memset(text, 'x', sizeof(text) - 1);
    send_ok(a.c, 1, text);
    assert_int_equal(chan_send(a.c, 0, &(Sluice__Ok)SLUICE__OK__INIT.base), -1);
    chan_destroy(a.c);
    close(fd);
}

static void a_message_beyond_its_type_is_not_sent(void **unused)
{
    struct end a;
    char *text = mem_zalloc(20000);
    Sluice__Ok m = SLUICE__OK__INIT;
    int fd = open_one(&a, NULL);

    (void)unused;
    memset(text, 'x', 19999);
    m.text = text;
    assert_int_equal(chan_send(a.c, 0, &m.base), -1);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_PROTOCOL);
    free(text);
    chan_destroy(a.c);
    close(fd);
}

static void what_is_queued_goes_out_before_closing(void **unused)
{
    struct end a, b;
    struct err why;

    (void)unused;
    open_two(&a, &b, NULL, NULL);
    send_ok(b.c, 5, "unread by a");
    err_set(&why, ERR_PERMISSION, "no entry \xff for you");
    assert_int_equal(chan_send_error(a.c, 0, &why, "Word"), 0);
    chan_close_after_send(a.c, 2);
    assert_int_equal(chan_send(a.c, 0, &(Sluice__Ok)SLUICE__OK__INIT.base), -1);
    assert_true(run_until(loop, &b.closed, 2));
    assert_int_equal(b.messages, 1);
    assert_int_equal(b.last_type, SLUICE__TYPE__ERROR);
    assert_int_equal(b.why.code, ERR_NONE);
    chan_destroy(b.c);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_NONE);
    chan_destroy(a.c);
}

static void closing_has_a_limit(void **unused)
{
    struct end a;
    static char text[8000];
    int fd = open_one(&a, NULL);

    (void)unused;
    memset(text, 'x', sizeof(text) - 1);
    for (int i = 0; i < 100; i++)
        send_ok(a.c, 0, text);
    chan_close_after_send(a.c, 0.3);    /* the peer does not read */
    assert_true(run_until(loop, &a.closed, 3));
    assert_int_equal(a.why.code, ERR_TIMEOUT);
    chan_destroy(a.c);
    close(fd);
}

static void descriptors_travel_with_their_frame(void **unused)
{
    struct end a, b;
    int pipes[2][2];
    char byte;

    (void)unused;
    open_two(&a, &b, NULL, NULL);
    b.keep_fds = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(pipe(pipes[i]), 0);
    send_ok(a.c, 1, "before");
    assert_int_equal(chan_send_fds(a.c, 2, &(Sluice__Ok)SLUICE__OK__INIT.base, (int[]){ pipes[0][1], pipes[1][1] }, 2), 0);
    send_ok(a.c, 3, "between");
    assert_int_equal(chan_send_fds(a.c, 4, &(Sluice__Ok)SLUICE__OK__INIT.base, (int[]){ pipes[0][1] }, 1), 0);
    close(pipes[0][1]);
    close(pipes[1][1]);
    while (b.messages < 4 && !b.closed)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(b.n_fds, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(fcntl(b.fds[i], F_GETFD) & FD_CLOEXEC);
        assert_int_equal(write(b.fds[i], &"0123"[i], 1), 1);
        assert_int_equal(read(pipes[i == 1][0], &byte, 1), 1);
        assert_int_equal(byte, '0' + i);
        close(b.fds[i]);
    }
    close(pipes[0][0]);
    close(pipes[1][0]);
    chan_destroy(a.c);
    chan_destroy(b.c);
}

/* Every way of lying about descriptors closes the connection, and none stays open. */
static void descriptors_never_leak(void **unused)
{
    static const struct { uint8_t says; unsigned sends; const char *why; } cases[] = {
        { 0, 1, "no frame names" }, { 0, 16, "no frame names" }, { 0, 17, "more descriptors" }, { 0, 60, "more descriptors" },
        { 2, 1, "does not come with" }, { 1, 2, "does not come with" }, { 1, 0, "does not come with" }, { 16, 60, "more descriptors" },
    };
    unsigned before = open_descriptors();

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct end a;
        uint8_t buf[64];
        int fds[64], fd = open_one(&a, NULL);
        size_t n = make_ok(buf, 1, "liar", cases[i].says);

        for (unsigned k = 0; k < 64; k++)
            fds[k] = fd;
        if (cases[i].sends)
            send_with_fds(fd, buf, n, fds, cases[i].sends);
        else
            put(fd, buf, n);
        assert_true(run_until(loop, &a.closed, 2));
        assert_int_equal(a.why.code, ERR_PROTOCOL);
        if (strstr(a.why.text, cases[i].why) == NULL)
            fail_msg("says %u sends %u: \"%s\"", cases[i].says, cases[i].sends, a.why.text);
        chan_destroy(a.c);
        close(fd);
        assert_int_equal(open_descriptors(), before);
    }
}

static void who_wants_no_descriptors_gets_none(void **unused)
{
    struct end a;
    uint8_t buf[64];
    struct chan_limits l = { .no_fds = true };
    unsigned before = open_descriptors();
    int fd = open_one(&a, &l), fds[3] = { fd, fd, fd };
    size_t n = make_ok(buf, 1, "good", 0);

    (void)unused;
    send_with_fds(fd, buf, n, fds, 3);
    assert_true(run_until(loop, &a.wait, 2));
    assert_string_equal(a.text, "good");
    assert_int_equal(open_descriptors(), before + 2);      /* the pair */
    n = make_ok(buf, 1, "liar", 1);
    send_with_fds(fd, buf, n, fds, 1);
    assert_true(run_until(loop, &a.closed, 2));
    assert_int_equal(a.why.code, ERR_PROTOCOL);
    assert_int_equal(a.messages, 1);
    chan_destroy(a.c);
    close(fd);
    assert_int_equal(open_descriptors(), before);
    fd = open_one(&a, &l);
    for (size_t i = 0; i < n; i++) {                       /* the other way to read, byte by byte */
        n = make_ok(buf, 1, "slow", 0);
        put(fd, buf + i, 1);
        ev_run(loop, EVRUN_ONCE);
    }
    assert_int_equal(a.messages, 1);
    chan_destroy(a.c);
    close(fd);
}

/* The descriptor comes with the first byte of a frame that then trickles in; and one that nobody takes is closed. */
static void descriptors_wait_for_the_rest_of_their_frame(void **unused)
{
    struct end a;
    uint8_t buf[64];
    unsigned before = open_descriptors();
    int fd = open_one(&a, NULL), p[2];
    size_t n = make_ok(buf, 1, "slow", 1);

    (void)unused;
    assert_int_equal(pipe(p), 0);
    send_with_fds(fd, buf, 1, p, 1);
    for (size_t i = 1; i < n; i++) {
        run_for(loop, 0.002);
        put(fd, buf + i, 1);
    }
    assert_true(run_until(loop, &a.wait, 2));
    assert_int_equal(a.messages, 1);
    close(p[0]);
    close(p[1]);
    chan_destroy(a.c);
    close(fd);
    assert_int_equal(open_descriptors(), before);
}


static void raw_bytes_follow_a_frame(void **unused)
{
    struct end a, b;
    Sluice__PartData m = SLUICE__PART_DATA__INIT;
    size_t size = (5 << 20) + 7;
    uint8_t *data = malloc(size);
    struct end sent = { .raw_ok = -1 };
    uint64_t x = 42;

    (void)unused;
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)((x = x * 6364136223846793005u + 1442695040888963407u) >> 56);
    open_two(&a, &b, NULL, NULL);
    b.raw = malloc(size);
    for (int round = 0; round < 3; round++) {
        b.raw_size = size;
        b.raw_got = 0;
        b.raw_ok = sent.raw_ok = -1;
        memset(b.raw, 0, size);
        send_ok(a.c, 1, "before");
        assert_int_equal(chan_send(a.c, 2, &m.base), 0);
        assert_int_equal(chan_send_raw(a.c, data, size, raw_done, &sent), 0);
        send_ok(a.c, 3, "after");
        b.messages = 0;
        while (b.messages < 3 && !b.closed)
            ev_run(loop, EVRUN_ONCE);
        assert_int_equal(b.raw_ok, 1);
        assert_int_equal(sent.raw_ok, 1);
        assert_int_equal(b.raw_got, size);
        assert_memory_equal(b.raw, data, size);
        assert_string_equal(b.text, "after");
    }
    /* The other way, and nothing at all is a size too. */
    a.raw = b.raw;
    a.raw_size = 0;
    assert_int_equal(chan_send(b.c, 2, &m.base), 0);
    assert_int_equal(chan_send_raw(b.c, NULL, 0, raw_done, &sent), 0);
    send_ok(b.c, 3, "after nothing");
    while (a.messages < 2 && !a.closed)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(a.raw_ok, 1);
    assert_string_equal(a.text, "after nothing");
    free(b.raw);
    free(data);
    chan_destroy(a.c);
    chan_destroy(b.c);
}

static void raw_bytes_may_come_in_any_pieces(void **unused)
{
    uint8_t buf[256];
    Sluice__PartData m = SLUICE__PART_DATA__INIT;
    size_t head = make_frame(buf, 1, &m.base, 0), n = head;

    (void)unused;
    memcpy(buf + n, "raw bytes", 9);
    n += 9;
    n += make_ok(buf + n, 2, "then a frame", 0);
    for (size_t cut = 1; cut < n; cut++) {
        struct end a;
        uint8_t raw[9];
        int fd = open_one(&a, NULL);

        a.raw = raw;
        a.raw_size = sizeof(raw);
        put(fd, buf, cut);
        ev_run(loop, EVRUN_ONCE);
        put(fd, buf + cut, n - cut);
        while (a.messages < 2 && !a.closed)
            ev_run(loop, EVRUN_ONCE);
        assert_int_equal(a.raw_ok, 1);
        assert_memory_equal(raw, "raw bytes", 9);
        assert_string_equal(a.text, "then a frame");
        chan_destroy(a.c);
        close(fd);
    }
}

static void heartbeats_stay_out_of_raw_bytes(void **unused)
{
    struct end a, b;
    struct chan_limits l = { .beat_s = 0.02, .dead_s = -1 };
    Sluice__PartData m = SLUICE__PART_DATA__INIT;
    struct end sent = { .raw_ok = -1 };
    size_t size = 8 << 20;
    uint8_t *data = malloc(size);
    int fd[2], small = 4096;

    (void)unused;
    memset(data, 0x5a, size);
    pair(fd);
    setsockopt(fd[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    a = b = (struct end){ .raw_ok = -1 };
    a.c = chan_create(loop, fd[0], &l, &events, &a);
    assert_int_equal(chan_send(a.c, 1, &m.base), 0);
    assert_int_equal(chan_send_raw(a.c, data, size, raw_done, &sent), 0);
    run_for(loop, 0.2);                 /* pings become due while the raw bytes are stuck */
    b.raw = malloc(size);
    b.raw_size = size;
    b.c = chan_create(loop, fd[1], &l, &events, &b);
    assert_true(run_until(loop, &b.wait, 2));
    while (b.raw_ok < 0 && !b.closed)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(b.raw_ok, 1);
    assert_memory_equal(b.raw, data, size);
    run_for(loop, 0.1);
    assert_false(a.closed || b.closed);
    chan_destroy(a.c);
    chan_destroy(b.c);
    free(b.raw);
    free(data);
}

static void raw_transfers_are_told_of_the_end(void **unused)
{
    struct end a, b;
    Sluice__PartData m = SLUICE__PART_DATA__INIT;
    struct end sent = { .raw_ok = -1 };
    size_t size = 4 << 20;
    uint8_t *data = calloc(1, size);

    (void)unused;
    open_two(&a, &b, NULL, NULL);
    b.raw = malloc(size + 1);
    b.raw_size = size + 1;              /* one more than will come */
    assert_int_equal(chan_send(a.c, 1, &m.base), 0);
    assert_int_equal(chan_send_raw(a.c, data, size, raw_done, &sent), 0);
    while (b.raw_got < size)
        ev_run(loop, EVRUN_ONCE);
    assert_int_equal(chan_send_raw(a.c, data, size, raw_done, &sent), 0);
    sent.raw_ok = -1;
    chan_destroy(a.c);                  /* nothing of the second went out */
    assert_int_equal(sent.raw_ok, 0);
    assert_true(run_until(loop, &b.closed, 2));
    assert_int_equal(b.raw_ok, 0);
    chan_destroy(b.c);
    free(b.raw);
    free(data);
}

static void an_owner_may_destroy_from_within(void **unused)
{
    struct end a;
    uint8_t buf[128];
    int fd = open_one(&a, NULL);
    size_t n = make_ok(buf, 1, "first", 0);

    (void)unused;
    a.destroy_at_message = true;
    n += make_ok(buf + n, 2, "never seen", 0);
    put(fd, buf, n);
    assert_true(run_until(loop, &a.wait, 2));
    assert_int_equal(a.messages, 1);
    assert_false(a.closed);
    close(fd);
}

static int setup(void **unused)
{
    (void)unused;
    loop = ev_loop_new(EVFLAG_AUTO);
    return loop == NULL;
}

static int teardown(void **unused)
{
    (void)unused;
    ev_loop_destroy(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_cross_both_ways),
        cmocka_unit_test(a_frame_may_come_byte_by_byte),
        cmocka_unit_test(large_messages_arrive_whole),
        cmocka_unit_test(rubbish_closes_the_connection),
        cmocka_unit_test(an_unknown_peer_is_kept_small),
        cmocka_unit_test(only_allowed_roles_send_a_type),
        cmocka_unit_test(a_cut_message_is_not_an_orderly_end),
        cmocka_unit_test(an_idle_side_sends_pings),
        cmocka_unit_test(heartbeats_go_ahead_of_the_queue),
        cmocka_unit_test(a_ping_is_answered_with_its_number),
        cmocka_unit_test(the_clock_of_a_peer_is_known_between_bounds),
        cmocka_unit_test(a_silent_peer_is_dead),
        cmocka_unit_test(answers_keep_a_peer_alive),
        cmocka_unit_test(a_stopped_process_is_found),
        cmocka_unit_test(our_own_stall_is_not_their_death),
        cmocka_unit_test(what_has_come_is_read_before_judging),
        cmocka_unit_test(a_reader_that_lags_is_cut_off),
        cmocka_unit_test(one_large_answer_fits_an_empty_queue),
        cmocka_unit_test(a_message_beyond_its_type_is_not_sent),
        cmocka_unit_test(what_is_queued_goes_out_before_closing),
        cmocka_unit_test(closing_has_a_limit),
        cmocka_unit_test(descriptors_travel_with_their_frame),
        cmocka_unit_test(descriptors_never_leak),
        cmocka_unit_test(who_wants_no_descriptors_gets_none),
        cmocka_unit_test(descriptors_wait_for_the_rest_of_their_frame),
        cmocka_unit_test(raw_bytes_follow_a_frame),
        cmocka_unit_test(raw_bytes_may_come_in_any_pieces),
        cmocka_unit_test(heartbeats_stay_out_of_raw_bytes),
        cmocka_unit_test(raw_transfers_are_told_of_the_end),
        cmocka_unit_test(an_owner_may_destroy_from_within),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
