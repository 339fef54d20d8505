/* bench_sluiced.c - what sluiced costs at the rate of the farm: 250 sources, 350 workers, 351 TF/s
 *
 * The real sluiced, with fake-source and fake-worker at its other ends, in steady state for BENCH_SECONDS (5). Its processor time (all threads) is
 * divided by announced parts, by TFs and by messages that it received; the last is held against a bare process that gets as many
 * messages of that size over as many sockets at the same rate, and does epoll_wait and read and nothing else.
 */
#include "config.h"

#include "bench_rig.h"

#include "clock.h"
#include "mem.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOURCES = 250, WORKERS = 350, RATE = 351, WARM_S = 2 };

static double bench_s = 5;

static double number(json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* Counters of the run, as sluiced has them. */
static double run_counter(const char *run, const char *key)
{
    struct program p = bench_start(false, (const char *const[]){ "sluice", "run", "show", run, "--json", NULL });
    json_t *j = json_loadfd(p.out, 0, NULL);
    double v = json_number_value(json_object_get(json_array_get(json_object_get(j, "runs"), 0), key));

    json_decref(j);
    close(p.out);
    waitpid(p.pid, NULL, 0);
    return v;
}

struct figures { double cpu, seconds, parts, tfs, messages; };

static struct figures measure_sluiced(void)
{
    char *conf = bench_path("conf"), *state = bench_path("state"), *address = mem_printf("unix:%s", bench_socket), *run;
    struct program sluiced, workers, sources;
    struct figures f = { 0 };
    double cpu, done, announced;
    int64_t from;
    json_t *w, *s;

    bench_conf(conf);
    sluiced = bench_daemon((const char *const[]){ "sluiced", "--config", conf, "--state", state, "--socket", bench_socket, "--log-level", "warning", "--ready-fd", "9", NULL });
    bench_command((const char *const[]){ "sluice", "node", "add", "n[001-350]", "--class", "fake", NULL });
    workers = bench_daemon((const char *const[]){ "tests/fake/fake-worker", "--server", address, "--count", "350", "--class", "fake", "--buffer", "337G",
                                                  "--seconds-per-tf", "0.9", "--ready-fd", "9", "--quiet", NULL });
    run = mem_strdup(bench_command((const char *const[]){ "sluice", "run", "start", "--workflow", "none", "--sources", "250", NULL }));
    sources = bench_daemon((const char *const[]){ "tests/fake/fake-source", "--server", address, "--run", run, "--count", "250", "--rate", "351", "--tfs", "1000000",
                                                  "--size", "7340032", "--ready-fd", "9", "--quiet", NULL });
    bench_sleep(WARM_S);
    done = run_counter(run, "done");
    announced = run_counter(run, "announced");
    cpu = bench_cpu(sluiced.pid);
    from = clock_mono_ns();
    bench_sleep(bench_s);
    f.cpu = bench_cpu(sluiced.pid) - cpu;
    f.seconds = (double)(clock_mono_ns() - from) / 1e9;
    f.tfs = run_counter(run, "done") - done;
    f.parts = (run_counter(run, "announced") - announced) * SOURCES;
    s = bench_end(&sources, "fake-source");
    w = bench_end(&workers, "fake-worker");
    bench_end(&sluiced, "sluiced");
    if (s == NULL || w == NULL || number(s, "messages") < 1 || number(w, "accepted") < 1 || f.tfs < 1)
        bench_die("no figures came");
    f.messages = number(s, "messages") / number(s, "announcing_seconds") * f.seconds + 3 * f.tfs + WORKERS * f.seconds;
    json_decref(s);
    json_decref(w);
    free(conf);
    free(state);
    free(address);
    free(run);
    return f;
}

/* ---- bare ---- */

enum { BYTES = 64 };                         /* an Announce of three or four TFs: head, run, one range */

static void feed(int fd[SOURCES], double messages_a_s)
{
    struct itimerspec every = { { 0, 10000000 }, { 0, 10000000 } };
    int t = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    uint8_t message[BYTES] = { 0 };
    uint64_t turns;
    double owed = 0;
    unsigned at = 0;

    timerfd_settime(t, 0, &every, NULL);
    while (read(t, &turns, sizeof(turns)) == sizeof(turns)) {
        for (owed += messages_a_s * 0.01 * (double)turns; owed >= 1; owed -= 1, at = (at + 1) % SOURCES)
            if (send(fd[at], message, sizeof(message), MSG_NOSIGNAL) < 0)
                _exit(0);
    }
}

/* s of processor time a message. */
static double measure_bare(double messages_a_s)
{
    int ours[SOURCES], theirs[SOURCES], ep = epoll_create1(EPOLL_CLOEXEC);
    struct rusage before, after;
    uint8_t buf[65536];
    uint64_t n = 0;
    pid_t pid;
    int64_t end;

    for (unsigned i = 0; i < SOURCES; i++) {
        int fd[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd) < 0)
            bench_die("socketpair");
        ours[i] = fd[0];
        theirs[i] = fd[1];
        epoll_ctl(ep, EPOLL_CTL_ADD, fd[0], &(struct epoll_event){ .events = EPOLLIN, .data.fd = fd[0] });
    }
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        feed(theirs, messages_a_s);
        _exit(0);
    }
    getrusage(RUSAGE_SELF, &before);
    end = clock_mono_ns() + (int64_t)(bench_s / 2 * 1e9);
    while (clock_mono_ns() < end) {
        struct epoll_event ev[64];
        int k = epoll_wait(ep, ev, 64, 100);

        for (int i = 0; i < k; i++) {
            ssize_t got = read(ev[i].data.fd, buf, sizeof(buf));

            n += got > 0 ? (uint64_t)got / BYTES : 0;
        }
    }
    getrusage(RUSAGE_SELF, &after);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (unsigned i = 0; i < SOURCES; i++) {
        close(ours[i]);
        close(theirs[i]);
    }
    close(ep);
    return ((double)(after.ru_utime.tv_sec - before.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_stime.tv_sec) +
            (double)(after.ru_utime.tv_usec - before.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_stime.tv_usec) / 1e6) / (double)n;
}

int main(int argc, char **argv)
{
    struct figures f;
    double bare;

    (void)argc;
    if (getenv("BENCH_SECONDS"))
        bench_s = atof(getenv("BENCH_SECONDS"));
    bench_open(argv[0]);
    f = measure_sluiced();
    bare = measure_bare(f.messages / f.seconds);
    printf("%d sources, %d workers: %.0f TF/s wanted, %.0f TF/s done, %.0f parts/s announced, %.0f messages/s received, %.1f s\n", SOURCES, WORKERS, (double)RATE,
           f.tfs / f.seconds, f.parts / f.seconds, f.messages / f.seconds, f.seconds);
    printf("sluiced: %.2f of a core (aim 0.50)   %.2f us a part   %.0f us a TF   %.2f us a message\n", f.cpu / f.seconds, f.cpu / f.parts * 1e6,
           f.cpu / f.tfs * 1e6, f.cpu / f.messages * 1e6);
    printf("bare epoll + read: %.2f us a message   sluiced / bare = %.2f (aim 4)\n", bare * 1e6, f.cpu / f.messages / bare);
    return bench_close() != 0 || f.tfs / f.seconds < 0.9 * RATE;
}
