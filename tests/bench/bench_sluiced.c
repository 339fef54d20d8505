/* bench_sluiced.c - what sluiced costs at the rate of the farm: 250 sources, 350 workers, 351 TF/s
 *
 * The real sluiced, with fake-source and fake-worker at its other ends, in steady state for BENCH_SECONDS (5). Its processor time (all threads) is
 * divided by announced parts, by TFs and by messages that it received; the last is held against a bare process that gets as many
 * messages of that size over as many sockets at the same rate, and does epoll_wait and read and nothing else.
 */
#include "config.h"

#include "clock.h"
#include "err.h"
#include "file.h"
#include "mem.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOURCES = 250, WORKERS = 350, RATE = 351, WARM_S = 2 };

static char dir[] = "/tmp/bench_sluiced.XXXXXX", *bin, *socket_path;
static double bench_s = 5;

static void die(const char *what)
{
    fprintf(stderr, "bench_sluiced: %s: %s (files in %s)\n", what, strerror(errno), dir);
    exit(1);
}

struct program { pid_t pid; int out; };      /* out: its stdout, or where it says ready */

/* Starts a program of the build tree. ready: its descriptor 9 is the pipe, else its stdout is. */
static struct program start(bool ready, const char *const *argv)
{
    struct program p;
    int fd[2];

    if (pipe(fd) < 0)
        die("pipe");
    p.pid = fork();
    if (p.pid == 0) {
        char *log = mem_printf("%s/log", dir), *path = mem_printf("%s/%s", bin, argv[0]), *json = mem_printf("%s/%s.json", dir, strrchr(path, '/') + 1);
        int err = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(err, 2);
        if (ready)
            dup2(open(json, O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
        dup2(fd[1], ready ? 9 : 1);
        if (fd[1] != 9 && fd[1] != 1)
            close(fd[1]);
        close(fd[0]);
        execv(path, (char *const *)argv);
        _exit(127);
    }
    close(fd[1]);
    p.out = fd[0];
    return p;
}

static char *read_line(struct program *p)
{
    static char line[4096];
    size_t n = 0;

    while (n + 1 < sizeof(line) && read(p->out, line + n, 1) == 1 && line[n] != '\n')
        n++;
    line[n] = '\0';
    return line;
}

/* A command that ends by itself: its first line. */
static char *command(const char *const *argv)
{
    struct program p = start(false, argv);
    char *line = read_line(&p);
    char rest[256];
    int status;

    while (read(p.out, rest, sizeof(rest)) > 0)
        ;
    close(p.out);
    if (waitpid(p.pid, &status, 0) != p.pid || status != 0)
        die(argv[1]);
    return line;
}

static struct program daemon_start(const char *const *argv)
{
    struct program p = start(true, argv);

    if (strcmp(read_line(&p), "ready") != 0)
        die(argv[0]);
    return p;
}

/* Asks the program to end; its line of JSON. */
static json_t *program_end(struct program *p, const char *name)
{
    char *path = mem_printf("%s/%s.json", dir, name);
    json_t *j;

    kill(p->pid, SIGTERM);
    waitpid(p->pid, NULL, 0);
    close(p->out);
    j = json_load_file(path, 0, NULL);
    free(path);
    return j;
}

static double number(json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

/* Processor time of all threads of a process, s. */
static double cpu_of(pid_t pid)
{
    char *path = mem_printf("/proc/%ld/task", (long)pid);
    DIR *d = opendir(path);
    double sum = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char *file = mem_printf("%s/%s/schedstat", path, e->d_name);
        FILE *f = fopen(file, "r");
        unsigned long long ns;

        if (f && fscanf(f, "%llu", &ns) == 1)
            sum += (double)ns / 1e9;
        if (f)
            fclose(f);
        free(file);
    }
    if (d)
        closedir(d);
    free(path);
    return sum;
}

/* Counters of the run, as sluiced has them. */
static double run_counter(const char *run, const char *key)
{
    struct program p = start(false, (const char *const[]){ "sluice", "run", "show", run, "--json", NULL });
    json_t *j = json_loadfd(p.out, 0, NULL);
    double v = json_number_value(json_object_get(json_array_get(json_object_get(j, "runs"), 0), key));

    json_decref(j);
    close(p.out);
    waitpid(p.pid, NULL, 0);
    return v;
}

static void sleep_s(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static void write_conf(const char *path)
{
    static const char text[] = "class fake {\n  devices = 1\n  shm = 337G\n}\n";
    struct err e;

    if (file_replace(path, text, sizeof(text) - 1, 0600, &e) < 0)
        die(e.text);
}

struct figures { double cpu, seconds, parts, tfs, messages; };

static struct figures measure_sluiced(void)
{
    char *conf = mem_printf("%s/conf", dir), *state = mem_printf("%s/state", dir), *address = mem_printf("unix:%s", socket_path), *run;
    struct program sluiced, workers, sources;
    struct figures f = { 0 };
    double cpu, done, announced;
    int64_t from;
    json_t *w, *s;

    write_conf(conf);
    sluiced = daemon_start((const char *const[]){ "sluiced", "--config", conf, "--state", state, "--socket", socket_path, "--log-level", "warning", "--ready-fd", "9", NULL });
    command((const char *const[]){ "sluice", "node", "add", "n[001-350]", "--class", "fake", NULL });
    workers = daemon_start((const char *const[]){ "tests/fake/fake-worker", "--server", address, "--count", "350", "--class", "fake", "--buffer", "337G",
                                                  "--seconds-per-tf", "0.9", "--ready-fd", "9", "--quiet", NULL });
    run = mem_strdup(command((const char *const[]){ "sluice", "run", "start", "--workflow", "none", "--sources", "250", NULL }));
    sources = daemon_start((const char *const[]){ "tests/fake/fake-source", "--server", address, "--run", run, "--count", "250", "--rate", "351", "--tfs", "1000000",
                                                  "--size", "7340032", "--ready-fd", "9", "--quiet", NULL });
    sleep_s(WARM_S);
    done = run_counter(run, "done");
    announced = run_counter(run, "announced");
    cpu = cpu_of(sluiced.pid);
    from = clock_mono_ns();
    sleep_s(bench_s);
    f.cpu = cpu_of(sluiced.pid) - cpu;
    f.seconds = (double)(clock_mono_ns() - from) / 1e9;
    f.tfs = run_counter(run, "done") - done;
    f.parts = (run_counter(run, "announced") - announced) * SOURCES;
    s = program_end(&sources, "fake-source");
    w = program_end(&workers, "fake-worker");
    program_end(&sluiced, "sluiced");
    if (s == NULL || w == NULL || number(s, "messages") < 1 || number(w, "accepted") < 1 || f.tfs < 1)
        die("no figures came");
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
            die("socketpair");
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
    struct rlimit many = { 4096, 4096 };
    struct figures f;
    double bare;
    char *slash, *cmd;
    int rc;

    (void)argc;
    if (getenv("BENCH_SECONDS"))
        bench_s = atof(getenv("BENCH_SECONDS"));
    bin = realpath(argv[0], NULL);
    for (int up = 0; bin && up < 3 && (slash = strrchr(bin, '/')); up++)     /* tests/bench/bench_sluiced, the build tree above it */
        *slash = '\0';
    if (bin == NULL || mkdtemp(dir) == NULL)
        die(dir);
    setrlimit(RLIMIT_NOFILE, &many);
    socket_path = mem_printf("%s/socket", dir);
    setenv("SLUICE_SOCKET", socket_path, 1);
    f = measure_sluiced();
    bare = measure_bare(f.messages / f.seconds);
    printf("%d sources, %d workers: %.0f TF/s wanted, %.0f TF/s done, %.0f parts/s announced, %.0f messages/s received, %.1f s\n", SOURCES, WORKERS, (double)RATE,
           f.tfs / f.seconds, f.parts / f.seconds, f.messages / f.seconds, f.seconds);
    printf("sluiced: %.2f of a core (aim 0.50)   %.2f us a part   %.0f us a TF   %.2f us a message\n", f.cpu / f.seconds, f.cpu / f.parts * 1e6,
           f.cpu / f.tfs * 1e6, f.cpu / f.messages * 1e6);
    printf("bare epoll + read: %.2f us a message   sluiced / bare = %.2f (aim 4)\n", bare * 1e6, f.cpu / f.messages / bare);
    cmd = mem_printf("rm -rf '%s'", dir);
    rc = system(cmd);
    free(cmd);
    return rc != 0 || f.tfs / f.seconds < 0.9 * RATE;
}
