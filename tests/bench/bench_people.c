/* bench_people.c - how long people wait: a mark, a move, a listing, on farms of 350 and 5000 nodes; and what an idle farm costs
 *
 * The real sluiced with fake workers and, but for the idle farm, a run that feeds them. One mark and one move at a time, each to its answer, which comes after its commit;
 * beside them a timer of 1 ms in the same process: its lateness is that of the machine. BENCH_NODES: other sizes, apart by blanks.
 */
#include "config.h"

#include "bench_rig.h"

#include "clock.h"
#include "err.h"
#include "mem.h"
#include "peer.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 150, SOURCES = 25, RATE = 175, LATENESS_MOST = 200000, WAIT_S = 120 };

/* ---- one connection, one question at a time ---- */

static struct {
    struct ev_loop *loop;
    struct connector *link;
    bool ready;
    uint32_t id;
    unsigned type;                           /* of the answer to it; 0: none yet */
    size_t open_moves;
    uint64_t move;                           /* number of the first that was asked for */
    unsigned retry_ms;                       /* the question was put off for so long */
    ev_timer tick, limit;
    int64_t due;
    double late[LATENESS_MOST];              /* ms */
    unsigned n_late;
} me;

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    (void)arg, (void)c, (void)w, (void)r;
    me.ready = true;
    ev_break(me.loop, EVBREAK_ALL);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    (void)arg, (void)c, (void)fds, (void)n_fds;
    if (id != me.id)
        return;
    me.type = type;
    me.retry_ms = type == SLUICE__TYPE__ERROR ? ((const Sluice__Error *)m)->retry_ms : 0;
    if (type == SLUICE__TYPE__CHANGED && ((const Sluice__Changed *)m)->n_results > 0)
        me.move = ((const Sluice__Changed *)m)->results[0]->id;
    if (type == SLUICE__TYPE__ERROR && me.retry_ms == 0)
        fprintf(stderr, "bench_people: %s\n", ((const Sluice__Error *)m)->text);
    if (type == SLUICE__TYPE__MOVES)
        me.open_moves = ((const Sluice__Moves *)m)->n_moves;
    ev_break(me.loop, EVBREAK_ALL);
}

static void on_lost(void *arg, const struct err *why)
{
    (void)arg;
    bench_die(why->text);
}

static void on_limit(struct ev_loop *loop, ev_timer *t, int events)
{
    (void)loop, (void)t, (void)events;
    bench_die("no answer in time");
}

static void on_tick(struct ev_loop *loop, ev_timer *t, int events)
{
    int64_t now = clock_mono_ns();

    (void)loop, (void)t, (void)events;
    if (me.due != 0 && me.n_late < LATENESS_MOST)
        me.late[me.n_late++] = (double)(now - me.due) / 1e6;
    me.due = now + 1000000;
    ev_timer_stop(loop, t);
    ev_timer_set(t, 0.001, 0);
    ev_now_update(loop);
    ev_timer_start(loop, t);
}

static void await(const bool *what)
{
    ev_timer_init(&me.limit, on_limit, WAIT_S, 0);
    ev_timer_start(me.loop, &me.limit);
    while (!*what)
        ev_run(me.loop, 0);
    ev_timer_stop(me.loop, &me.limit);
}

static void connect_to_sluiced(void)
{
    char *address = mem_printf("unix:%s", bench_socket);
    struct err e;
    struct connector_conf conf = { .loop = me.loop, .address = address, .role = SLUICE__ROLE__CLIENT, .name = "bench", .once = true,
                                   .events = { .ready = on_ready, .message = on_message, .lost = on_lost } };

    me.ready = false;
    me.link = connector_create(&conf, &e);
    if (me.link == NULL)
        bench_die(e.text);
    free(address);
    await(&me.ready);
}

/* ms from the question to its answer. */
static double ask(const ProtobufCMessage *m, unsigned want)
{
    int64_t from = clock_mono_ns();

again:
    me.type = 0;
    if (chan_send(connector_chan(me.link), ++me.id, m) < 0)
        bench_die("not sent");
    ev_timer_init(&me.limit, on_limit, WAIT_S, 0);
    ev_timer_start(me.loop, &me.limit);
    while (me.type == 0)
        ev_run(me.loop, 0);
    ev_timer_stop(me.loop, &me.limit);
    if (me.retry_ms > 0) {
        bench_sleep(me.retry_ms / 1000.);
        goto again;
    }
    if (me.type != want)
        bench_die("another answer than was wanted");
    return (double)(clock_mono_ns() - from) / 1e6;
}

/* ---- figures ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void show(const char *what, double *ms, unsigned n)
{
    qsort(ms, n, sizeof(*ms), by_value);
    printf("  %-28s p50 %7.2f ms   p99 %7.2f ms   most %7.2f ms   (%u)\n", what, ms[n / 2], ms[n * 99 / 100], ms[n - 1], n);
}

static char *node_name(unsigned i) { return mem_printf("n%04u", i); }

/* Asks for the move; ms to its answer, and to its end. */
static void move_one(Sluice__MoveNodes *move, const char *to, double *answered, double *done)
{
    Sluice__Wait wait = SLUICE__WAIT__INIT;
    int64_t from = clock_mono_ns();

    move->to = (char *)to;
    *answered = ask(&move->base, SLUICE__TYPE__CHANGED);
    wait.kind = (char *)"move";
    wait.has_id = 1;
    wait.id = me.move;
    ask(&wait.base, SLUICE__TYPE__WAITED);
    *done = (double)(clock_mono_ns() - from) / 1e6;
}

/* A mark and its clear, then a move there and one back, of a node after the other. */
static void one_at_a_time(unsigned nodes)
{
    static double marks[ROUNDS], clears[ROUNDS], moves[2 * ROUNDS], ends[2 * ROUNDS];

    me.n_late = 0;
    me.due = 0;
    ev_timer_init(&me.tick, on_tick, 0, 0);
    ev_timer_start(me.loop, &me.tick);
    for (unsigned i = 0; i < ROUNDS; i++) {
        char *name = node_name(1 + i * (nodes / ROUNDS) % nodes);
        Sluice__MarkNodes mark = SLUICE__MARK_NODES__INIT;
        Sluice__ClearMarks clear = SLUICE__CLEAR_MARKS__INIT;
        Sluice__MoveNodes move = SLUICE__MOVE_NODES__INIT;

        mark.names = clear.names = move.names = &name;
        mark.n_names = clear.n_names = move.n_names = 1;
        mark.reason = clear.reason = (char *)"bench";
        clear.has_repeat_ok = clear.repeat_ok = 1;
        marks[i] = ask(&mark.base, SLUICE__TYPE__CHANGED);
        clears[i] = ask(&clear.base, SLUICE__TYPE__CHANGED);
        move.when = (char *)"now";
        move_one(&move, "async", &moves[2 * i], &ends[2 * i]);
        move_one(&move, "online", &moves[2 * i + 1], &ends[2 * i + 1]);
        free(name);
    }
    ev_timer_stop(me.loop, &me.tick);
    show("mark, to its answer", marks, ROUNDS);
    show("clear", clears, ROUNDS);
    show("move, to its answer", moves, 2 * ROUNDS);
    show("move, to its end", ends, 2 * ROUNDS);
    show("lateness of a 1 ms timer", me.late, me.n_late);
}

/* All nodes at once, until none of the moves is open. */
static void all_at_once(unsigned nodes)
{
    Sluice__MoveNodes move = SLUICE__MOVE_NODES__INIT;
    Sluice__GetMoves get = SLUICE__GET_MOVES__INIT;
    int64_t from = clock_mono_ns();
    double answer, s;

    move.names = mem_array(nodes, sizeof(*move.names));
    for (; move.n_names < nodes; move.n_names++)
        move.names[move.n_names] = node_name((unsigned)move.n_names + 1);
    move.to = (char *)"async";
    answer = ask(&move.base, SLUICE__TYPE__CHANGED);
    do
        ask(&get.base, SLUICE__TYPE__MOVES);
    while (me.open_moves > 0);
    s = (double)(clock_mono_ns() - from) / 1e9;
    printf("  %u idle nodes moved at once: answered in %.0f ms, done in %.2f s: %.0f moves a second\n", nodes, answer, s, nodes / s);
    for (size_t i = 0; i < nodes; i++)
        free(move.names[i]);
    free(move.names);
}

static void listing(void)
{
    double best = 1e9;
    size_t bytes = 0;

    for (int i = 0; i < 5; i++) {
        struct program p = bench_start(false, (const char *const[]){ "sluice", "nodes", "--json", NULL });
        int64_t from = clock_mono_ns();
        char buf[65536];
        ssize_t n;
        double s;

        for (bytes = 0; (n = read(p.out, buf, sizeof(buf))) > 0; bytes += (size_t)n)
            ;
        waitpid(p.pid, NULL, 0);
        close(p.out);
        s = (double)(clock_mono_ns() - from) / 1e9;
        best = s < best ? s : best;
    }
    printf("  sluice nodes --json: %.0f ms (best of 5), %.1f MB\n", 1e3 * best, (double)bytes / 1e6);
}

static void idle(const struct program *sluiced, unsigned nodes)
{
    double cpu = bench_cpu(sluiced->pid);
    int64_t from = clock_mono_ns();

    bench_sleep(5);
    printf("  idle with %u workers: %.2f %% of a core\n", nodes, 100 * (bench_cpu(sluiced->pid) - cpu) / ((double)(clock_mono_ns() - from) / 1e9));
}

static void measure(unsigned nodes)
{
    char *name = mem_printf("state-%u", nodes), *state = bench_path(name), *conf = bench_path("conf"), *address = mem_printf("unix:%s", bench_socket);
    char *list = mem_printf("n[0001-%04u]", nodes), *count = mem_printf("%u", nodes), *rate = mem_printf("%d", RATE), *sources = mem_printf("%d", SOURCES), *run;
    struct program sluiced, workers, feed;

    printf("%u nodes\n", nodes);
    bench_conf(conf);
    sluiced = bench_daemon((const char *const[]){ "sluiced", "--config", conf, "--state", state, "--socket", bench_socket, "--log-level", "warning", "--ready-fd", "9", NULL });
    bench_command((const char *const[]){ "sluice", "node", "add", list, "--class", "fake", NULL });
    workers = bench_daemon((const char *const[]){ "tests/fake/fake-worker", "--server", address, "--count", count, "--width", "4", "--class", "fake", "--buffer", "337G",
                                                  "--seconds-per-tf", "0.5", "--ready-fd", "9", "--quiet", NULL });
    bench_sleep(2);
    idle(&sluiced, nodes);
    listing();
    run = mem_strdup(bench_command((const char *const[]){ "sluice", "run", "start", "--workflow", "none", "--sources", sources, NULL }));
    feed = bench_daemon((const char *const[]){ "tests/fake/fake-source", "--server", address, "--run", run, "--count", sources, "--rate", rate, "--tfs", "1000000",
                                               "--size", "7340032", "--ready-fd", "9", "--quiet", NULL });
    bench_sleep(2);
    connect_to_sluiced();
    printf("  with a run of %d TF/s from %d sources:\n", RATE, SOURCES);
    one_at_a_time(nodes);
    json_decref(bench_end(&feed, "fake-source"));
    bench_command((const char *const[]){ "sluice", "run", "stop", run, NULL });
    all_at_once(nodes);
    connector_destroy(me.link);
    json_decref(bench_end(&workers, "fake-worker"));
    json_decref(bench_end(&sluiced, "sluiced"));
    free(name), free(state), free(conf), free(address), free(list), free(count), free(rate), free(sources), free(run);
}

int main(int argc, char **argv)
{
    const char *sizes = getenv("BENCH_NODES") ? getenv("BENCH_NODES") : "350 5000";
    char *end;

    (void)argc;
    signal(SIGPIPE, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, 0);
    bench_open(argv[0]);
    me.loop = ev_loop_new(EVFLAG_AUTO);
    for (unsigned long n = strtoul(sizes, &end, 10); n > 0; n = strtoul(end, &end, 10)) {
        if (n < ROUNDS || n > 9999)
            bench_die("BENCH_NODES: numbers from 150 to 9999 are wanted");
        measure((unsigned)n);
    }
    ev_loop_destroy(me.loop);
    return bench_close();
}
