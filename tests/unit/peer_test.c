/* peer_test.c - addresses, listening, connecting, and the handshake with all its ways to fail (B42, B43, B46, B50) */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/times.h>
#include <cmocka.h>

#include "frame.h"
#include "handshake.h"
#include "loop_help.h"
#include "munged_help.h"
#include "names.h"
#include "peer.h"

static struct ev_loop *loop;
static struct names *names;
static struct munged munged;
static char dir[64], address[160], method[80];

/* ---- both sides ---- */

struct server {
    struct listener *l;
    unsigned accepted;
    bool came;
    struct chan *c[1024];
    struct peer_id id;
    char name[64];
    Sluice__Role role;
    bool say_nothing;
};

struct client {
    struct connector *c;
    unsigned readies, losts, messages;
    bool ready, lost;
    struct err why;
    char user[64];
    uint64_t epoch;
    double offset;
    int64_t at[64];                      /* of each lost */
    bool destroy_when_lost;
};

static void session_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    Sluice__Status status = SLUICE__STATUS__INIT;

    (void)arg, (void)m, (void)fds, (void)n_fds;
    if (type == SLUICE__TYPE__GET_STATUS)
        chan_send(c, id, &status.base);
}

static void session_closed(void *arg, struct chan *c, const struct err *why)
{
    struct server *s = arg;

    (void)why;
    for (size_t i = 0; i < ARRAY_LEN(s->c); i++)
        if (s->c[i] == c)
            s->c[i] = NULL;
    chan_destroy(c);
}

static const struct chan_events session_events = { .message = session_message, .closed = session_closed };

static void accepted(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello)
{
    struct server *s = arg;

    chan_set_owner(c, &session_events, s);
    s->c[s->accepted++ % ARRAY_LEN(s->c)] = c;
    s->id = *id;
    s->role = hello->role;
    snprintf(s->name, sizeof(s->name), "%s", hello->name ? hello->name : "");
    s->came = true;
    if (!s->say_nothing)
        peer_ready(c, id, "read", 1);
}

static void serve(struct server *s, const char *where, const char *how, struct listener_conf conf)
{
    struct err e = { .text = "" };

    *s = (struct server){ .accepted = 0 };
    conf.loop = loop;
    conf.names = names;
    conf.address = where;
    conf.method = how;
    conf.epoch = 77;
    conf.accepted = accepted;
    conf.arg = s;
    s->l = listener_create(&conf, &e);
    if (s->l == NULL)
        fail_msg("%s: %s", where, e.text);
}

static void serve_end(struct server *s)
{
    for (size_t i = 0; i < ARRAY_LEN(s->c); i++)
        chan_destroy(s->c[i]);
    listener_destroy(s->l);
}

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    struct client *k = arg;

    assert_ptr_equal(connector_chan(k->c), c);
    k->readies++;
    k->ready = true;
    k->epoch = w->epoch;
    k->offset = r->clock_offset;
    snprintf(k->user, sizeof(k->user), "%s", r->user);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct client *k = arg;

    (void)c, (void)type, (void)id, (void)m, (void)fds, (void)n_fds;
    k->messages++;
}

static void on_lost(void *arg, const struct err *why)
{
    struct client *k = arg;

    assert_null(connector_chan(k->c));
    k->at[k->losts++ % ARRAY_LEN(k->at)] = clock_mono_ns();
    k->lost = true;
    k->why = *why;
    if (k->destroy_when_lost) {
        connector_destroy(k->c);
        k->c = NULL;
    }
}

static void call(struct client *k, const char *where, const char *how, struct connector_conf conf)
{
    struct err e = { .text = "" };

    *k = (struct client){ .readies = 0 };
    conf.loop = loop;
    conf.names = names;
    conf.address = where;
    conf.method = how;
    conf.role = conf.role ? conf.role : SLUICE__ROLE__CLIENT;
    conf.name = conf.name ? conf.name : "test";
    conf.events = (struct connector_events){ .ready = on_ready, .message = on_message, .lost = on_lost };
    conf.arg = k;
    k->c = connector_create(&conf, &e);
    if (k->c == NULL)
        fail_msg("%s: %s", where, e.text);
}

/* A peer made by hand: a chan on a connected socket, the last message kept. */
struct bare { struct chan *c; bool came, closed; unsigned type; ProtobufCMessage *m; struct err why; };

static void bare_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct bare *b = arg;

    (void)c, (void)id, (void)fds, (void)n_fds;
    if (b->m)
        protobuf_c_message_free_unpacked(b->m, NULL);
    b->m = proto_copy(m);
    b->type = type;
    b->came = true;
}

static void bare_closed(void *arg, struct chan *c, const struct err *why)
{
    struct bare *b = arg;

    (void)c;
    b->closed = true;
    b->why = *why;
}

static const struct chan_events bare_events = { .message = bare_message, .closed = bare_closed };

static void bare_open(struct bare *b, const char *where)
{
    struct err e = { .text = "" };
    int fd = peer_connect_fd(where, &e);

    if (fd < 0)
        fail_msg("%s: %s", where, e.text);
    *b = (struct bare){ .came = false };
    b->c = chan_create(loop, fd, NULL, &bare_events, b);
}

static void bare_end(struct bare *b)
{
    chan_destroy(b->c);
    if (b->m)
        protobuf_c_message_free_unpacked(b->m, NULL);
}

static void bare_hello(struct bare *b, unsigned major, Sluice__Role role, const char *name)
{
    Sluice__Hello m = SLUICE__HELLO__INIT;

    m.has_major = m.has_minor = m.has_role = m.has_clock = 1;
    m.major = major;
    m.minor = 3;
    m.software = "9.9";
    m.role = role;
    m.name = (char *)name;
    m.clock = clock_wall_ns();
    b->came = false;
    assert_int_equal(chan_send(b->c, 0, &m.base), 0);
}

/* ---- addresses ---- */

static void B46_addresses_are_taken_apart(void **unused)
{
    static const struct { const char *address, *host, *port; } good[] = {
        { "[::1]:7000", "::1", "7000" }, { "::1", "::1", PEER_PORT }, { "[::ffff:127.0.0.1]:7000", "::ffff:127.0.0.1", "7000" },
        { "node-1.example:7000", "node-1.example", "7000" }, { "127.0.0.1:0", "127.0.0.1", "0" }, { "host", "host", PEER_PORT },
        { ":7000", "", "7000" }, { "*:7000", "", "7000" }, { "[fe80::1%lo]:1", "fe80::1%lo", "1" }, { "[::]:65535", "::", "65535" },
        { "2001:db8::7", "2001:db8::7", PEER_PORT }, { "[::1]", "::1", PEER_PORT },
    };
    static const char *const bad[] = { "[::1:7000", "[::1]7000", "host:", "host:port", "host:65536", "host:-1", "1:2:3", "[host]:7000", "[::g]:1", "host:70 00" };
    char host[256], port[16];
    struct err e;

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        if (peer_parse(good[i].address, host, port, &e) < 0)
            fail_msg("%s", e.text);
        assert_string_equal(host, good[i].host);
        assert_string_equal(port, good[i].port);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        if (peer_parse(bad[i], host, port, &e) == 0)
            fail_msg("%s was taken: host %s port %s", bad[i], host, port);
        assert_int_equal(e.code, ERR_USAGE);
    }
}

static void B46_loopback_is_recognised(void **unused)
{
    static const char *const yes[] = { "127.0.0.1:1", "127.0.1.1:1", "[::1]:1", "::1", "[::ffff:127.0.0.1]:1", "localhost:1", ":1", "*:1",
                                       "0.0.0.0:1", "[::]:1", "LOCALHOST" };
    static const char *const no[] = { "10.0.0.1:1", "[2001:db8::1]:1", "[::ffff:10.0.0.1]:1", "node-1:1", "unix:/tmp/x", "128.0.0.1:1", "rubbish:x" };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        if (!peer_is_loopback(yes[i]))
            fail_msg("%s is loopback", yes[i]);
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        if (peer_is_loopback(no[i]))
            fail_msg("%s is not loopback", no[i]);
}

/* ---- Unix sockets ---- */

static void a_live_socket_is_not_taken(void **unused)
{
    struct err e;
    int fd = peer_listen_fd(address, 0600, &e);
    struct stat st;

    (void)unused;
    assert_true(fd >= 0);
    assert_int_equal(stat(peer_unix_path(address), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(peer_listen_fd(address, 0600, &e), -1);
    assert_int_equal(e.code, ERR_STATE);
    assert_non_null(strstr(e.text, "somebody listens"));
    peer_unlisten(fd, address);
    assert_int_equal(stat(peer_unix_path(address), &st), -1);
}

static void a_stale_socket_is_replaced(void **unused)
{
    struct err e;
    int fd = peer_listen_fd(address, 0666, &e), second;
    char *lock = mem_printf("%s.lock", peer_unix_path(address));

    (void)unused;
    close(fd);                           /* the file stays, as after a kill */
    second = peer_listen_fd(address, 0666, &e);
    assert_true(second >= 0);
    assert_int_equal(access(lock, F_OK), -1);
    fd = peer_connect_fd(address, &e);
    assert_true(fd >= 0);
    close(fd);
    peer_unlisten(second, address);
    free(lock);
}

static void a_file_that_is_no_socket_stays(void **unused)
{
    struct err e;
    int fd = open(peer_unix_path(address), O_WRONLY | O_CREAT, 0600);

    (void)unused;
    close(fd);
    assert_int_equal(peer_listen_fd(address, 0600, &e), -1);
    assert_int_equal(e.code, ERR_STATE);
    assert_non_null(strstr(e.text, "is not a socket"));
    assert_int_equal(unlink(peer_unix_path(address)), 0);
}

static void of_two_that_start_at_once_one_wins(void **unused)
{
    (void)unused;
    for (int round = 0; round < 10; round++) {
        pid_t pid[6];
        int go[2], hold[2], status, won = 0;
        struct err e;
        int stale = peer_listen_fd(address, 0666, &e);

        close(stale);
        assert_true(pipe(go) == 0 && pipe(hold) == 0);
        for (int i = 0; i < 6; i++) {
            pid[i] = fork();
            if (pid[i] == 0) {
                char c;
                int fd;

                close(go[1]);
                close(hold[1]);
                (void)!read(go[0], &c, 1);
                fd = peer_listen_fd(address, 0666, &e);
                if (fd >= 0)             /* listens until all have tried */
                    (void)!read(hold[0], &c, 1);
                _exit(fd >= 0 ? 0 : e.code == ERR_STATE ? 1 : 2);
            }
        }
        close(go[0]);
        close(hold[0]);
        close(go[1]);
        for (int lost = 0; lost < 5; lost++) {         /* five come back without it */
            assert_true(waitpid(-1, &status, 0) > 0);
            assert_int_equal(WEXITSTATUS(status), 1);
        }
        close(hold[1]);
        assert_true(waitpid(-1, &status, 0) > 0);
        won = WEXITSTATUS(status) == 0;
        assert_true(won);
        unlink(peer_unix_path(address));
    }
}

static void long_paths_work(void **unused)
{
    char *deep = mem_printf("%s/%0100d/%0100d", dir, 1, 2), *parent = mem_printf("%s/%0100d", dir, 1), *where = mem_printf("unix:%s/socket", deep);
    struct server s;
    struct client k;

    (void)unused;
    assert_true(mkdir(parent, 0755) == 0 && mkdir(deep, 0755) == 0);
    serve(&s, where, NULL, (struct listener_conf){ 0 });
    assert_string_equal(listener_address(s.l), where);
    call(&k, where, NULL, (struct connector_conf){ .once = true });
    assert_true(run_until(loop, &k.ready, 5));
    connector_destroy(k.c);
    serve_end(&s);
    free(deep);
    free(parent);
    free(where);
}

/* ---- the handshake ---- */

static void a_local_peer_is_known_by_the_kernel(void **unused)
{
    struct server s;
    struct client k;

    (void)unused;
    serve(&s, address, NULL, (struct listener_conf){ 0 });
    call(&k, address, NULL, (struct connector_conf){ .role = SLUICE__ROLE__WORKER, .name = "mi50-001" });
    assert_true(run_until(loop, &k.ready, 5));
    assert_true(s.id.local);
    assert_int_equal(s.id.uid, geteuid());
    assert_int_equal(s.id.pid, getpid());
    assert_string_equal(s.name, "mi50-001");
    assert_int_equal(s.role, SLUICE__ROLE__WORKER);
    assert_string_equal(s.id.user, k.user);
    assert_true(geteuid() != 0 || strcmp(k.user, "root") == 0);
    assert_int_equal(k.epoch, 77);
    assert_true(fabs(k.offset) < 1);
    assert_int_equal(listener_stats(s.l).accepted, 1);
    chan_destroy(s.c[0]);
    s.c[0] = NULL;
    assert_true(run_until(loop, &k.lost, 5));
    k.ready = false;
    assert_true(run_until(loop, &k.ready, 5));          /* comes back by itself */
    assert_int_equal(k.readies, 2);
    connector_destroy(k.c);
    serve_end(&s);
}

static void B50_the_clocks_difference_is_measured_and_harmless(void **unused)
{
    static const double shift_s[] = { -3600, -5, 5, 3600, 315576000 };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(shift_s); i++) {
        struct server s;
        struct client k;

        serve(&s, address, NULL, (struct listener_conf){ 0 });
        call(&k, address, NULL, (struct connector_conf){ .limits = { .clock_shift_ns = (int64_t)(shift_s[i] * 1e9) } });
        assert_true(run_until(loop, &k.ready, 5));
        assert_true(fabs(s.id.clock_offset - shift_s[i]) < 1);
        assert_true(fabs(k.offset - shift_s[i]) < 1);
        run_for(loop, 0.05);
        assert_false(k.lost);
        connector_destroy(k.c);
        serve_end(&s);
    }
}

static void another_version_is_refused_with_both_named(void **unused)
{
    struct server s;
    struct bare b;
    const Sluice__Error *error;

    (void)unused;
    serve(&s, address, NULL, (struct listener_conf){ 0 });
    bare_open(&b, address);
    bare_hello(&b, PROTO_MAJOR + 1, SLUICE__ROLE__CLIENT, "test");
    assert_true(run_until(loop, &b.came, 5));
    assert_int_equal(b.type, SLUICE__TYPE__ERROR);
    error = (const Sluice__Error *)b.m;
    assert_int_equal(error->code, ERR_PROTOCOL);
    assert_non_null(strstr(error->text, "you speak 2.3 (sluice 9.9), this side speaks 1.0 (sluice " PACKAGE_VERSION ")"));
    assert_true(run_until(loop, &b.closed, 5));
    assert_int_equal(listener_stats(s.l).refused, 1);
    assert_int_equal(s.accepted, 0);
    bare_end(&b);
    serve_end(&s);
}

/* A listener by hand, for what a connector must bear. */
static void answer_one(const char *where, int fd, struct bare *b, const ProtobufCMessage *m)
{
    bool readable = false;
    int conn = -1;

    (void)where;
    for (int i = 0; conn < 0 && i < 1000; i++) {
        run_for(loop, 0.005);
        conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    }
    assert_true(conn >= 0);
    (void)readable;
    *b = (struct bare){ .came = false };
    b->c = chan_create(loop, conn, NULL, &bare_events, b);
    assert_true(run_until(loop, &b->came, 5));
    assert_int_equal(b->type, SLUICE__TYPE__HELLO);
    if (m)
        assert_int_equal(chan_send(b->c, 0, m), 0);
}

static void a_server_of_another_version_is_left(void **unused)
{
    struct err e;
    int fd = peer_listen_fd(address, 0666, &e);
    struct client k;
    struct bare b;
    Sluice__Welcome w = SLUICE__WELCOME__INIT;

    (void)unused;
    w.has_major = w.has_minor = 1;
    w.major = 7;
    w.software = "8.0";
    call(&k, address, NULL, (struct connector_conf){ .once = true });
    answer_one(address, fd, &b, &w.base);
    assert_true(run_until(loop, &k.lost, 5));
    assert_int_equal(k.why.code, ERR_PROTOCOL);
    assert_non_null(strstr(k.why.text, "speaks 7.0 (sluice 8.0), this side speaks 1.0"));
    bare_end(&b);
    connector_destroy(k.c);

    Sluice__Status status = SLUICE__STATUS__INIT;      /* one that says something else instead */

    call(&k, address, NULL, (struct connector_conf){ .once = true });
    answer_one(address, fd, &b, &status.base);
    assert_true(run_until(loop, &k.lost, 5));
    assert_int_equal(k.why.code, ERR_PROTOCOL);
    bare_end(&b);
    connector_destroy(k.c);

    call(&k, address, NULL, (struct connector_conf){ .once = true, .connect_s = 0.3 });      /* one that says nothing */
    answer_one(address, fd, &b, NULL);
    k.destroy_when_lost = true;
    assert_true(run_until(loop, &k.lost, 5));
    assert_int_equal(k.why.code, ERR_UNREACHABLE);
    assert_non_null(strstr(k.why.text, "its welcome was waited for"));
    assert_null(k.c);
    bare_end(&b);
    peer_unlisten(fd, address);
}

static void what_is_no_hello_is_dropped(void **unused)
{
    struct server s;
    struct bare b;
    Sluice__GetStatus m = SLUICE__GET_STATUS__INIT;

    (void)unused;
    serve(&s, address, NULL, (struct listener_conf){ 0 });
    bare_open(&b, address);
    assert_int_equal(chan_send(b.c, 1, &m.base), 0);
    assert_true(run_until(loop, &b.closed, 5));
    assert_int_equal(listener_stats(s.l).bad, 1);
    bare_end(&b);

    int fd = peer_connect_fd(address, &(struct err){ 0 });
    char c;

    assert_int_equal(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    run_for(loop, 0.1);
    assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 0);
    assert_int_equal(listener_stats(s.l).bad, 2);
    close(fd);
    serve_end(&s);
}

static void roles_and_names_are_checked(void **unused)
{
    static const struct { Sluice__Role role; const char *name; bool good; } cases[] = {
        { SLUICE__ROLE__CLIENT, "", true }, { SLUICE__ROLE__CLIENT, NULL, true }, { SLUICE__ROLE__WORKER, "n1", true },
        { SLUICE__ROLE__SOURCE_ROLE, "s-1", true }, { SLUICE__ROLE__WORKER, "", false }, { SLUICE__ROLE__WORKER, NULL, false },
        { SLUICE__ROLE__WORKER, "a b", false }, { SLUICE__ROLE__CLIENT, "../x", false }, { SLUICE__ROLE__RECO, "n1", false },
        { SLUICE__ROLE__ROLE_NONE, "n1", false },
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct server s;
        struct bare b;

        serve(&s, address, NULL, (struct listener_conf){ 0 });
        bare_open(&b, address);
        bare_hello(&b, PROTO_MAJOR, cases[i].role, cases[i].name);
        assert_true(run_until(loop, cases[i].good ? &s.came : &b.closed, 5));
        assert_int_equal(s.accepted, cases[i].good);
        assert_int_equal(listener_stats(s.l).refused, !cases[i].good);
        bare_end(&b);
        serve_end(&s);
    }
}

static void a_mute_peer_is_dropped_in_time(void **unused)
{
    struct server s;
    int64_t start = clock_mono_ns();
    char c;

    (void)unused;
    serve(&s, address, NULL, (struct listener_conf){ .handshake_s = 0.3 });

    int fd = peer_connect_fd(address, &(struct err){ 0 });

    while (listener_stats(s.l).timed_out == 0 && clock_mono_ns() - start < 5 * CLOCK_SECOND)
        run_for(loop, 0.01);
    assert_int_equal(listener_stats(s.l).timed_out, 1);
    assert_in_range((clock_mono_ns() - start) / 1000000, 299, 2000);
    assert_int_equal(recv(fd, &c, 1, MSG_DONTWAIT), 0);
    close(fd);
    serve_end(&s);
}

static void mute_peers_do_not_keep_others_out(void **unused)
{
    struct server s;
    struct client k;
    int fds[20];

    (void)unused;
    serve(&s, address, NULL, (struct listener_conf){ .max_pending = 4, .handshake_s = 30 });
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = peer_connect_fd(address, &(struct err){ 0 });
    call(&k, address, NULL, (struct connector_conf){ .once = true, .connect_s = 10 });
    assert_true(run_until(loop, &k.ready, 10));
    assert_in_range(listener_stats(s.l).timed_out, 16, 20);
    connector_destroy(k.c);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        close(fds[i]);
    serve_end(&s);
}

/* ---- B42: 40 descriptors, 100 connections ---- */

static void serve_with_few_descriptors(int limit, int report)
{
    struct ev_loop *own;
    struct server *s = mem_zalloc(sizeof(*s));
    struct rlimit r = { (rlim_t)limit, (rlim_t)limit };
    struct err e;
    struct listener_conf conf = { .address = address, .accepted = accepted, .arg = s, .handshake_s = 60 };
    struct tms before, after;

    for (int fd = 3; fd < 256; fd++)
        if (fd != report)
            close(fd);                   /* the parent's */
    own = ev_loop_new(EVFLAG_AUTO);
    conf.loop = own;
    if (setrlimit(RLIMIT_NOFILE, &r) < 0)
        _exit(3);
    s->l = listener_create(&conf, &e);
    if (s->l == NULL || write(report, "r", 1) != 1)
        _exit(4);
    loop = own;
    times(&before);
    run_for(own, 4);
    times(&after);
    /* The share of a core that it took, in percent. */
    dprintf(report, "%ld %u\n", 100 * (long)(after.tms_utime + after.tms_stime - before.tms_utime - before.tms_stime) / (4 * sysconf(_SC_CLK_TCK)),
            s->accepted);
    _exit(0);
}

static void B42_out_of_descriptors(bool said_hello)
{
    int report[2], status;
    pid_t pid;
    char line[64] = "";
    struct bare idle[60];
    struct client first, k;
    int64_t start;
    long cpu;
    unsigned got_in;

    assert_int_equal(pipe(report), 0);
    pid = fork();
    if (pid == 0)
        serve_with_few_descriptors(40, report[1]);
    close(report[1]);
    assert_int_equal(read(report[0], line, 1), 1);
    call(&first, address, NULL, (struct connector_conf){ .once = true });       /* an existing connection */
    assert_true(run_until(loop, &first.ready, 5));
    for (size_t i = 0; i < ARRAY_LEN(idle); i++) {
        bare_open(&idle[i], address);
        if (said_hello)                                /* they hold their place, as workers do */
            bare_hello(&idle[i], PROTO_MAJOR, SLUICE__ROLE__WORKER, "n1");
    }
    run_for(loop, 0.5);
    start = clock_mono_ns();
    call(&k, address, NULL, (struct connector_conf){ .once = false, .connect_s = 10 });
    assert_true(run_until(loop, &k.ready, 10));        /* an operator gets in all the same */
    assert_true(clock_mono_ns() - start < 10 * CLOCK_SECOND);
    assert_int_equal(chan_send(connector_chan(first.c), 1, &(Sluice__GetStatus)SLUICE__GET_STATUS__INIT.base), 0);
    for (int i = 0; i < 200 && first.messages == 0; i++)
        run_for(loop, 0.01);
    assert_int_equal(first.messages, 1);               /* and the existing connection works */
    connector_destroy(k.c);
    connector_destroy(first.c);
    for (ssize_t n = 0; n < (ssize_t)sizeof(line) - 1 && strchr(line, '\n') == NULL;) {
        ssize_t r;

        fcntl(report[0], F_SETFL, O_NONBLOCK);
        r = read(report[0], line + n, sizeof(line) - 1 - (size_t)n);
        if (r > 0)
            n += r;
        else if (r == 0)
            break;
        else
            run_for(loop, 0.02);
    }
    assert_int_equal(sscanf(line, "%ld %u", &cpu, &got_in), 2);
    assert_true(cpu < 25);
    assert_true(got_in >= (said_hello ? 20u : 2u));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    for (size_t i = 0; i < ARRAY_LEN(idle); i++)
        bare_end(&idle[i]);
    close(report[0]);
    unlink(peer_unix_path(address));
}

static void B42_mute_connections_fill_the_descriptors(void **unused)
{
    (void)unused;
    B42_out_of_descriptors(false);
}

static void B42_known_connections_fill_the_descriptors(void **unused)
{
    (void)unused;
    B42_out_of_descriptors(true);
}

/* ---- coming back ---- */

static void tries_back_off_and_are_spread(void **unused)
{
    enum { N = 100 };
    static struct client k[N];
    unsigned tries = 0, most = 0, least = ~0u, window = 0, crowd = 0;

    (void)unused;
    for (int i = 0; i < N; i++)
        call(&k[i], address, NULL, (struct connector_conf){ .once = false });
    run_for(loop, 4);                    /* nobody listens */
    for (int i = 0; i < N; i++) {
        tries += k[i].losts;
        most = k[i].losts > most ? k[i].losts : most;
        least = k[i].losts < least ? k[i].losts : least;
        assert_int_equal(k[i].why.code, ERR_UNREACHABLE);
    }
    /* In 4 s: means of the waits are 0.05 0.1 0.2 0.4 0.8 1.6 2.5 s, so about six or seven tries. */
    assert_in_range(tries / N, 4, 12);
    assert_true(most > least);
    for (int64_t t = k[0].at[0]; window < 30; t += CLOCK_SECOND / 10, window++) {      /* after the first second no tenth of a second sees half of them */
        unsigned n = 0;

        for (int i = 0; i < N; i++)
            for (unsigned j = 0; j < k[i].losts && j < ARRAY_LEN(k[i].at); j++)
                n += k[i].at[j] >= t && k[i].at[j] < t + CLOCK_SECOND / 10;
        crowd = window >= 10 && n > crowd ? n : crowd;
    }
    assert_true(crowd < N / 2);

    struct server s;
    unsigned back = 0;

    serve(&s, address, NULL, (struct listener_conf){ .max_pending = 8 });
    for (int turn = 0; turn < 100 && back < N; turn++) {
        run_for(loop, 0.1);
        back = 0;
        for (int i = 0; i < N; i++)
            back += k[i].ready;
    }
    assert_int_equal(back, N);           /* all within twice the cap */
    for (int i = 0; i < N; i++)
        connector_destroy(k[i].c);
    serve_end(&s);
}

static void once_is_once(void **unused)
{
    struct client k;

    (void)unused;
    call(&k, address, NULL, (struct connector_conf){ .once = true });
    assert_true(run_until(loop, &k.lost, 5));
    assert_int_equal(k.why.code, ERR_UNREACHABLE);
    assert_non_null(strstr(k.why.text, peer_unix_path(address)));
    run_for(loop, 0.5);
    assert_int_equal(k.losts, 1);
    connector_destroy(k.c);
}

/* ---- TCP ---- */

static void tcp_without_a_method_is_refused(void **unused)
{
    struct err e;
    struct listener_conf l = { .loop = loop, .names = names, .address = "127.0.0.1:0", .accepted = accepted };
    struct connector_conf c = { .loop = loop, .names = names, .address = "127.0.0.1:1", .name = "test" };

    (void)unused;
    assert_null(listener_create(&l, &e));
    assert_int_equal(e.code, ERR_USAGE);
    assert_non_null(strstr(e.text, "needs a method"));
    assert_null(connector_create(&c, &e));
    assert_non_null(strstr(e.text, "needs a method"));
    l.method = "password";
    assert_null(listener_create(&l, &e));
    assert_non_null(strstr(e.text, "password"));
#ifndef HAVE_MUNGE
    l.method = "munge";
    assert_null(listener_create(&l, &e));
    assert_non_null(strstr(e.text, "no munge"));
#endif
}

static bool have_v6(void)
{
    int fd = peer_listen_fd("[::1]:0", 0, NULL);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static const char *with_port(char out[320], const char *host, const struct server *s)
{
    snprintf(out, 320, "%s:%s", host, strrchr(listener_address(s->l), ':') + 1);
    return out;
}

static void B46_tcp_peers_prove_who_they_are(void **unused)
{
    static const struct { const char *listen, *connect; bool v6; } ways[] = {
        { "127.0.0.1:0", "127.0.0.1", false }, { "[::1]:0", "[::1]", true }, { "127.0.0.1:0", "[::ffff:127.0.0.1]", true },
        { "[::]:0", "127.0.0.1", true }, { "127.0.0.1:0", "localhost", false }, { "[::1]:0", "localhost", true }, { ":0", "localhost", false },
        { "localhost:0", "localhost", false },
    };

    (void)unused;
    if (munged.pid == 0)
        skip();
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct server s;
        struct client k;
        char where[320];

        if (ways[i].v6 && !have_v6())
            continue;
        serve(&s, ways[i].listen, method, (struct listener_conf){ 0 });
        call(&k, with_port(where, ways[i].connect, &s), method, (struct connector_conf){ .role = SLUICE__ROLE__SOURCE_ROLE, .name = "s1", .once = true, .connect_s = 10 });
        while (!k.ready && !k.lost)
            run_for(loop, 0.01);
        /* A machine whose "localhost" has no address of that family. */
        if (k.lost && ways[i].v6 && strcmp(ways[i].connect, "localhost") == 0 && k.why.code == ERR_UNREACHABLE)
            ;
        else if (k.lost)
            fail_msg("listen %s connect %s: %s", listener_address(s.l), where, k.why.text);
        else {
            assert_false(s.id.local);
            assert_int_equal(s.id.uid, geteuid());
            assert_int_equal(s.id.pid, 0);
            assert_string_equal(s.id.user, k.user);
            assert_non_null(strchr(s.id.address, ':'));
        }
        connector_destroy(k.c);
        serve_end(&s);
    }
}

struct cred { bool came; char text[4096]; size_t size; };

static void have_cred(void *arg, const struct name_answer *a)
{
    struct cred *c = arg;

    assert_int_equal(a->code, ERR_NONE);
    assert_true(a->size < sizeof(c->text));
    memcpy(c->text, a->data, a->size);
    c->size = a->size;
    c->came = true;
}

static void make_cred(struct cred *c, const uint8_t *challenge, unsigned role, const char *name)
{
    uint8_t payload[HANDSHAKE_PAYLOAD];
    struct err e;

    *c = (struct cred){ .came = false };
    assert_non_null(names_encode(names, payload, handshake_payload(challenge, role, name, payload), 10, have_cred, c, &e));
    assert_true(run_until(loop, &c->came, 10));
}

static void send_cred(struct bare *b, const char *how, const struct cred *c)
{
    Sluice__Auth m = SLUICE__AUTH__INIT;

    m.method = (char *)how;
    m.has_credential = 1;
    m.credential.data = (uint8_t *)c->text;
    m.credential.len = c->size;
    b->came = false;
    assert_int_equal(chan_send(b->c, 0, &m.base), 0);
}

static void credentials_hold_for_their_connection_only(void **unused)
{
    static const struct { const char *what, *says; } cases[] = {
        { "right", NULL }, { "challenge", "another connection" }, { "role", "another connection" }, { "name", "another connection" },
        { "replayed", "eplayed" }, { "method", "\"other\" is not taken" }, { "rubbish", "munge refused" },
    };
    struct server s;
    struct cred used = { .came = false };

    (void)unused;
    if (munged.pid == 0)
        skip();
    serve(&s, "127.0.0.1:0", method, (struct listener_conf){ 0 });
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bare b;
        struct cred c;
        uint8_t challenge[HANDSHAKE_CHALLENGE];
        const char *what = cases[i].what;
        const Sluice__Welcome *w;
        unsigned before = s.accepted;

        bare_open(&b, listener_address(s.l));
        bare_hello(&b, PROTO_MAJOR, SLUICE__ROLE__WORKER, "n1");
        assert_true(run_until(loop, &b.came, 5));
        assert_int_equal(b.type, SLUICE__TYPE__WELCOME);
        w = (const Sluice__Welcome *)b.m;
        assert_int_equal(w->n_methods, 1);
        assert_int_equal(w->challenge.len, HANDSHAKE_CHALLENGE);
        memcpy(challenge, w->challenge.data, sizeof(challenge));
        challenge[0] ^= strcmp(what, "challenge") == 0;
        make_cred(&c, challenge, strcmp(what, "role") ? SLUICE__ROLE__WORKER : SLUICE__ROLE__CLIENT, strcmp(what, "name") ? "n1" : "n2");
        if (strcmp(what, "right") == 0)
            used = c;
        if (strcmp(what, "replayed") == 0)
            c = used;
        if (strcmp(what, "rubbish") == 0)
            c.text[10] ^= 1;
        send_cred(&b, strcmp(what, "method") ? "munge" : "other", &c);
        assert_true(run_until(loop, &b.came, 10));
        if (cases[i].says == NULL) {
            assert_int_equal(b.type, SLUICE__TYPE__READY);
            assert_int_equal(s.accepted, before + 1);
        } else {
            const Sluice__Error *error = (const Sluice__Error *)b.m;

            assert_int_equal(b.type, SLUICE__TYPE__ERROR);
            assert_int_equal(error->code, ERR_PERMISSION);
            if (strstr(error->text, cases[i].says) == NULL)
                fail_msg("%s: \"%s\" does not say \"%s\"", what, error->text, cases[i].says);
            assert_true(run_until(loop, &b.closed, 5));
            assert_int_equal(s.accepted, before);
        }
        bare_end(&b);
    }
    assert_int_equal(listener_stats(s.l).refused, ARRAY_LEN(cases) - 1);
    serve_end(&s);
}

static void nothing_is_served_before_the_proof(void **unused)
{
    struct server s;
    struct bare b;
    Sluice__GetStatus m = SLUICE__GET_STATUS__INIT;

    (void)unused;
    if (munged.pid == 0)
        skip();
    serve(&s, "127.0.0.1:0", method, (struct listener_conf){ 0 });
    bare_open(&b, listener_address(s.l));
    bare_hello(&b, PROTO_MAJOR, SLUICE__ROLE__CLIENT, "test");
    assert_int_equal(chan_send(b.c, 9, &m.base), 0);
    assert_true(run_until(loop, &b.closed, 5));
    assert_int_not_equal(b.type, SLUICE__TYPE__STATUS);
    assert_int_equal(s.accepted, 0);
    assert_int_equal(listener_stats(s.l).bad, 1);
    bare_end(&b);
    serve_end(&s);
}

static void a_name_that_does_not_resolve_is_tried_again(void **unused)
{
    struct client k;

    (void)unused;
    if (munged.pid == 0)
        skip();
    call(&k, "no-such-host.invalid:7000", method, (struct connector_conf){ .once = false, .connect_s = 8 });
    for (int i = 0; i < 2000 && k.losts < 2; i++)
        run_for(loop, 0.01);
    assert_true(k.losts >= 2);
    assert_int_equal(k.why.code, ERR_UNREACHABLE);
    connector_destroy(k.c);
}

/* ---- */

static int setup(void **unused)
{
    struct err e;

    (void)unused;
    snprintf(dir, sizeof(dir), "/tmp/peer_test.XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(address, sizeof(address), "unix:%s/socket", dir);
    loop = ev_loop_new(EVFLAG_AUTO);
    names = names_create(loop, &e);
#ifdef HAVE_MUNGE
    if (munged_installed() && munged_start(&munged) < 0)
        return -1;
#endif
    snprintf(method, sizeof(method), "munge:%s", munged.socket);
    return names == NULL;
}

static int teardown(void **unused)
{
    char *cmd = mem_printf("rm -rf '%s'", dir);
    int rc = system(cmd);

    (void)unused;
    free(cmd);
    munged_stop(&munged);
    names_destroy(names);
    ev_loop_destroy(loop);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B46_addresses_are_taken_apart),
        cmocka_unit_test(B46_loopback_is_recognised),
        cmocka_unit_test(a_live_socket_is_not_taken),
        cmocka_unit_test(a_stale_socket_is_replaced),
        cmocka_unit_test(a_file_that_is_no_socket_stays),
        cmocka_unit_test(of_two_that_start_at_once_one_wins),
        cmocka_unit_test(long_paths_work),
        cmocka_unit_test(a_local_peer_is_known_by_the_kernel),
        cmocka_unit_test(B50_the_clocks_difference_is_measured_and_harmless),
        cmocka_unit_test(another_version_is_refused_with_both_named),
        cmocka_unit_test(a_server_of_another_version_is_left),
        cmocka_unit_test(what_is_no_hello_is_dropped),
        cmocka_unit_test(roles_and_names_are_checked),
        cmocka_unit_test(a_mute_peer_is_dropped_in_time),
        cmocka_unit_test(mute_peers_do_not_keep_others_out),
        cmocka_unit_test(B42_mute_connections_fill_the_descriptors),
        cmocka_unit_test(B42_known_connections_fill_the_descriptors),
        cmocka_unit_test(tries_back_off_and_are_spread),
        cmocka_unit_test(once_is_once),
        cmocka_unit_test(tcp_without_a_method_is_refused),
        cmocka_unit_test(B46_tcp_peers_prove_who_they_are),
        cmocka_unit_test(credentials_hold_for_their_connection_only),
        cmocka_unit_test(nothing_is_served_before_the_proof),
        cmocka_unit_test(a_name_that_does_not_resolve_is_tried_again),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, setup, teardown);
}
