/* bench_transport.c - from a source's memory into a worker's buffer, against the bare calls, as ratios of one run
 *
 * Two processes. "pull" is the worker's own code (pull.c) against the source's own (outlet.c), checksum and all; "chan" is a connection
 * with raw bytes and no checksum. Bare: pread, or send and recv of the same parts into the same pre-faulted memory. Ours and bare take turns; the
 * figures are medians. "rate" is ours / bare, "cpu" bare / ours in processor time of both processes, which means something on a busy machine too.
 * BENCH_SECONDS (0.2) is the length of each turn.
 */
#include "config.h"

#include "clock.h"
#include "fence.h"
#include "hold.h"
#include "mem.h"
#include "outlet.h"
#include "peer.h"
#include "pool.h"
#include "pull.h"
#include "runkey.h"
#include "work.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

enum { PARTS = 16, DEPTH = 8, TURNS = 3, RUN = 7 };
#define PART ((size_t)8 << 20)

static uint8_t *arena, *buffer;         /* the source's memory, the worker's */
static int arena_fd;
static uint8_t key[RUNKEY_SIZE];
static char dir[] = "/tmp/bench_transport.XXXXXX", unix_address[64];
static double turn_s = 0.2;
static uint64_t part_hash[PARTS];

static void die(const char *what)
{
    fprintf(stderr, "bench_transport: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint8_t *shared(const char *name, int *fd)
{
    uint8_t *p;

    *fd = memfd_create(name, MFD_CLOEXEC);
    if (*fd < 0 || ftruncate(*fd, PARTS * PART) < 0)
        die(name);
    p = mmap(NULL, PARTS * PART, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, *fd, 0);
    if (p == MAP_FAILED)
        die(name);
    return p;
}

/* A child that runs fn until the parent closes its end of the pipe; what it writes first is its address. */
struct child { pid_t pid; char address[320]; };

static struct child child_start(void (*fn)(int ready, void *arg), void *arg)
{
    struct child c = { 0 };
    int ready[2];
    ssize_t n;

    if (pipe(ready) < 0)
        die("pipe");
    c.pid = fork();
    if (c.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ready[0]);
        fn(ready[1], arg);
        _exit(0);
    }
    close(ready[1]);
    n = read(ready[0], c.address, sizeof(c.address) - 1);
    close(ready[0]);
    if (n <= 0)
        die("the other process");
    return c;
}

static void child_end(struct child *c)
{
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
}

/* ---- ours: pull.c against outlet.c ---- */

static void hold_nothing(void *arg, uint64_t id) { (void)arg, (void)id; }

static void serve_outlet(int ready, void *address)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct hold *hold = hold_create(hold_nothing, NULL);
    struct outlet_conf conf = { .loop = loop, .address = address, .mode = 0600, .run = RUN, .holds = &hold, .n_holds = 1, .max_workers = 4,
                                .handshake_s = 5 };
    struct err e;
    struct outlet *o = outlet_create(&conf, &e);

    if (o == NULL) {
        fprintf(stderr, "%s\n", e.text);
        _exit(1);
    }
    for (unsigned i = 0; i < PARTS; i++)
        hold_add(hold, &(struct hold_part){ .id = i + 1, .data = arena + i * PART, .size = PART, .offset = i * PART,
                                            .xxh3 = part_hash[i] });
    outlet_open(o, key, arena_fd);
    if (write(ready, outlet_address(o), strlen(outlet_address(o))) < 0)
        _exit(1);
    close(ready);
    ev_run(loop, 0);
}

int64_t worker_now(const struct worker *w)
{
    (void)w;
    return clock_mono_ns();
}

struct puller {
    struct worker w;
    struct pulls *pulls;
    struct work  *work;
    struct pull   slot[DEPTH];
    char   *address;
    uint64_t next, parts;
    int64_t end;
    unsigned flying;
};

static void puller_start(struct puller *p, struct pull *s)
{
    unsigned i = (unsigned)(p->next++ % PARTS);

    *s = (struct pull){ .work = p->work, .address = p->address, .tf = { .run = RUN, .id = i + 1 }, .fence = { .epoch = 1, .attempt = 1 },
                        .size = PART, .to = buffer + i * PART, .done = s->done, .left = s->left, .owner = p };
    p->flying++;
    pull_start(p->pulls, s);
}

static void pull_done(struct pull *s, const char *word, const char *text)
{
    struct puller *p = s->owner;

    if (word) {
        fprintf(stderr, "bench_transport: %s: %s\n", word, text);
        exit(1);
    }
    p->parts++;
}

static void pull_left(struct pull *s)
{
    struct puller *p = s->owner;

    if (--p->flying == 0 && clock_mono_ns() >= p->end)
        ev_break(p->w.loop, EVBREAK_ALL);
    else if (clock_mono_ns() < p->end)
        puller_start(p, s);
}

static double pull_rate(const char *address)
{
    struct child c = child_start(serve_outlet, (void *)address);
    struct puller *p = mem_zalloc(sizeof(*p));
    Sluice__RunOpen open = SLUICE__RUN_OPEN__INIT;
    struct conf_limits limits = { .pull_timeout = 5 };
    struct err e;
    int64_t start;
    double rate;

    p->w.loop = ev_loop_new(EVFLAG_AUTO);
    p->w.node = "bench";
    p->w.io = pool_create(p->w.loop, "bench-io", 2, 0, &e);
    open.has_run = open.has_key = 1;
    open.run = RUN;
    open.workflow = "none";
    open.key.data = key;
    open.key.len = sizeof(key);
    p->work = works_open(&p->w.works, &open, &limits, &e);
    if (p->w.io == NULL || p->work == NULL)
        die(e.text);
    p->pulls = pulls_create(&p->w, 4, 64);
    p->address = c.address;
    start = clock_mono_ns();
    p->end = start + (int64_t)(turn_s * 1e9);
    for (unsigned i = 0; i < DEPTH; i++) {
        p->slot[i].done = pull_done;
        p->slot[i].left = pull_left;
        puller_start(p, &p->slot[i]);
    }
    ev_run(p->w.loop, 0);
    rate = (double)(p->parts * PART) / (double)(clock_mono_ns() - start);
    pulls_destroy(p->pulls);
    pool_destroy(p->w.io, 1);
    works_free(&p->w.works);
    ev_loop_destroy(p->w.loop);
    free(p);
    child_end(&c);
    return rate;
}

/* ---- ours: chan.c alone ---- */

struct end { struct ev_loop *loop; struct chan *c; uint64_t next, parts; int64_t end; bool hash; uint64_t sum; size_t hashed; };

static void closed(void *arg, struct chan *c, const struct err *why)
{
    (void)arg, (void)c;
    fprintf(stderr, "bench_transport: %s\n", why->text);
    exit(1);
}

static void serve_part(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    Sluice__PartData d = SLUICE__PART_DATA__INIT;

    (void)arg, (void)type, (void)m, (void)fds, (void)n_fds;
    chan_send(c, id, &d.base);
    chan_send_raw(c, arena + (size_t)(id % PARTS) * PART, PART, NULL, NULL);
}

static void ask(struct end *s)
{
    Sluice__Pull m = SLUICE__PULL__INIT;

    chan_send(s->c, (uint32_t)(s->next++ % PARTS), &m.base);
}

static void part_here(void *arg, int ok)
{
    struct end *s = arg;

    (void)ok;
    s->parts++;
    if (clock_mono_ns() >= s->end)
        ev_break(s->loop, EVBREAK_ALL);
    else
        ask(s);
}

static void part_comes(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    (void)type, (void)m, (void)fds, (void)n_fds;
    chan_receive_raw(c, buffer + (size_t)(id % PARTS) * PART, PART, part_here, NULL, arg);
}

static const struct chan_events server_events = { .message = serve_part, .closed = closed }, client_events = { .message = part_comes, .closed = closed };

/* Two connected sockets of a kind. */
static void connect_two(bool tcp, int fd[2])
{
    char address[320];
    struct err e;
    int l, error = 0;

    if (!tcp) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
            die("socketpair");
        return;
    }
    l = peer_listen_fd("127.0.0.1:0", 0, &e);
    if (l < 0)
        die(e.text);
    peer_bound_address(l, "127.0.0.1:0", address);
    fd[0] = peer_connect_fd(address, &e);
    poll(&(struct pollfd){ .fd = l, .events = POLLIN }, 1, 1000);
    fd[1] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd[0] < 0 || fd[1] < 0 || getsockopt(fd[0], SOL_SOCKET, SO_ERROR, &error, &(socklen_t){ sizeof(error) }) < 0 || error)
        die("tcp");
    close(l);
}

static void serve_chan(int ready, void *arg)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);

    chan_create(loop, *(int *)arg, &(struct chan_limits){ .beat_s = -1, .dead_s = -1 }, &server_events, NULL);
    (void)!write(ready, "r", 1);
    ev_run(loop, 0);
}

static double chan_rate(bool tcp)
{
    struct end s = { .loop = ev_loop_new(EVFLAG_AUTO) };
    struct child c;
    int fd[2];
    int64_t start;
    double rate;

    connect_two(tcp, fd);
    c = child_start(serve_chan, &fd[1]);
    close(fd[1]);
    s.c = chan_create(s.loop, fd[0], &(struct chan_limits){ .beat_s = -1, .dead_s = -1 }, &client_events, &s);
    start = clock_mono_ns();
    s.end = start + (int64_t)(turn_s * 1e9);
    for (int i = 0; i < DEPTH; i++)
        ask(&s);
    ev_run(s.loop, 0);
    rate = (double)(s.parts * PART) / (double)(clock_mono_ns() - start);
    chan_destroy(s.c);
    ev_loop_destroy(s.loop);
    child_end(&c);
    return rate;
}

/* ---- bare ---- */

static void serve_bare(int ready, void *arg)
{
    int fd = *(int *)arg;

    fcntl(fd, F_SETFL, 0);
    (void)!write(ready, "r", 1);
    for (unsigned i = 0;; i = (i + 1) % PARTS)
        for (size_t at = 0; at < PART;) {
            ssize_t n = send(fd, arena + i * PART + at, PART - at, MSG_NOSIGNAL);

            if (n < 0)
                return;
            at += (size_t)n;
        }
}

static volatile uint64_t sink;

static double bare_socket_rate(bool tcp, bool hash)
{
    int fd[2];
    struct child c;
    uint64_t parts = 0;
    int64_t start, end;
    double rate;

    connect_two(tcp, fd);
    c = child_start(serve_bare, &fd[1]);
    close(fd[1]);
    fcntl(fd[0], F_SETFL, 0);
    start = clock_mono_ns();
    end = start + (int64_t)(turn_s * 1e9);
    for (; clock_mono_ns() < end; parts++) {
        uint8_t *to = buffer + (size_t)(parts % PARTS) * PART;

        for (size_t at = 0; at < PART;) {
            ssize_t n = recv(fd[0], to + at, PART - at, 0);

            if (n <= 0)
                die("recv");
            at += (size_t)n;
        }
        if (hash)
            sink += XXH3_64bits(to, PART);
    }
    rate = (double)(parts * PART) / (double)(clock_mono_ns() - start);
    close(fd[0]);
    child_end(&c);
    return rate;
}

static double pread_rate(bool hash)
{
    enum { STEP = 256 * 1024 };
    uint64_t parts = 0;
    int64_t start = clock_mono_ns(), end = start + (int64_t)(turn_s * 1e9);

    for (; clock_mono_ns() < end; parts++) {
        size_t from = (size_t)(parts % PARTS) * PART;
        XXH3_state_t *h = XXH3_createState();

        XXH3_64bits_reset(h);
        for (size_t at = 0; at < PART; at += STEP) {
            if (pread(arena_fd, buffer + from + at, STEP, (off_t)(from + at)) != STEP)
                die("pread");
            if (hash)
                XXH3_64bits_update(h, buffer + from + at, STEP);
        }
        sink += XXH3_64bits_digest(h);
        XXH3_freeState(h);
    }
    return (double)(parts * PART) / (double)(clock_mono_ns() - start);
}

/* ---- rows ---- */

/* Processor time of both processes so far, s; the other one's counts once it was waited for. */
static double cpu_s(void)
{
    double sum = 0;

    for (int i = 0; i < 2; i++) {
        struct rusage r;

        getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &r);
        sum += (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
    }
    return sum;
}

static double pull_unix(void) { return pull_rate(unix_address); }
static double pull_tcp(void) { return pull_rate("127.0.0.1:0"); }
static double chan_unix(void) { return chan_rate(false); }
static double chan_tcp(void) { return chan_rate(true); }
static double bare_pread(void) { return pread_rate(false); }
static double bare_pread_hash(void) { return pread_rate(true); }
static double bare_unix(void) { return bare_socket_rate(false, false); }
static double bare_tcp(void) { return bare_socket_rate(true, false); }
static double bare_tcp_hash(void) { return bare_socket_rate(true, true); }

static const struct { const char *path, *ours, *bare; double (*measure_ours)(void), (*measure_bare)(void); } rows[] = {
    { "same host", "pull, xxh3 checked", "pread",         pull_unix, bare_pread },
    { "same host", "pull, xxh3 checked", "pread, xxh3",   pull_unix, bare_pread_hash },
    { "unix",      "chan",               "send, recv",       chan_unix, bare_unix },
    { "tcp",       "chan",               "send, recv",       chan_tcp,  bare_tcp },
    { "tcp",       "pull, xxh3 checked", "send, recv, xxh3", pull_tcp,  bare_tcp_hash },
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct figure { double rate, cpu; };     /* GB/s; processor seconds a GB */

static struct figure turn(double (*fn)(void))
{
    double before = cpu_s();
    int64_t start = clock_mono_ns();
    struct figure f = { .rate = fn() };
    double gb = f.rate * (double)(clock_mono_ns() - start) / 1e9;

    f.cpu = (cpu_s() - before) / gb;
    return f;
}

static double median(double *v)
{
    qsort(v, TURNS, sizeof(*v), by_size);
    return v[TURNS / 2];
}

static void measure(size_t row)
{
    double ours[TURNS], bare[TURNS], ratio[TURNS], ours_cpu[TURNS], bare_cpu[TURNS], cpu_ratio[TURNS];

    for (int i = 0; i < TURNS; i++) {
        struct figure o = turn(rows[row].measure_ours), b = turn(rows[row].measure_bare);

        ours[i] = o.rate;
        bare[i] = b.rate;
        ratio[i] = o.rate / b.rate;
        ours_cpu[i] = o.cpu;
        bare_cpu[i] = b.cpu;
        cpu_ratio[i] = b.cpu / o.cpu;
    }
    printf("%-10s %-19s %6.2f GB/s %5.2f s/GB   %-17s %6.2f GB/s %5.2f s/GB   rate %.2f  cpu %.2f\n", rows[row].path, rows[row].ours, median(ours),
           median(ours_cpu), rows[row].bare, median(bare), median(bare_cpu), median(ratio), median(cpu_ratio));
    fflush(stdout);
}

int main(void)
{
    int buffer_fd;
    uint64_t x = 88172645463325252u;

    if (getenv("BENCH_SECONDS"))
        turn_s = atof(getenv("BENCH_SECONDS"));
    signal(SIGPIPE, SIG_IGN);
    if (mkdtemp(dir) == NULL)
        die(dir);
    snprintf(unix_address, sizeof(unix_address), "unix:%s/socket", dir);
    arena = shared("arena", &arena_fd);
    buffer = shared("buffer", &buffer_fd);
    for (size_t i = 0; i < PARTS * PART; i += 8) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(arena + i, &x, 8);
    }
    for (size_t i = 0; i < PARTS; i++)
        part_hash[i] = XXH3_64bits(arena + i * PART, PART);
    memset(buffer, 0, PARTS * PART);
    memset(key, 7, sizeof(key));
    printf("%d parts of %zu MiB; median of %d turns of %.1f s; %ld processors\n", PARTS, PART >> 20, TURNS, turn_s, sysconf(_SC_NPROCESSORS_ONLN));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        measure(i);
    for (size_t i = 0; i < PARTS; i++)          /* what came is what was there */
        if (memcmp(arena + i * PART, buffer + i * PART, PART) != 0) {
            fprintf(stderr, "bench_transport: part %zu is not what was sent\n", i);
            return 1;
        }
    unlink(peer_unix_path(unix_address));
    return rmdir(dir) < 0;
}
