/* bench_jobs.c - jobs of a million time-frames: taken in, remembered, looked at, started anew with, done
 *
 * The real sluiced and the real command; the workers are fake and take no time, so that what is measured is the account of the work. BENCH_TASKS (10^6) TFs,
 * a thousand a file, then BENCH_FILES (10^6) with a file each, while somebody else asks, marks and clears all the time; BENCH_DONE (50 000; 10^6 for the whole
 * of it) of them are done. beanstalkd, where it is installed, does 10^5 cycles of put, reserve and delete with fsync, or as many as fit into BENCH_PEER_S (5)
 * seconds, on the same disk (TMPDIR); Slurm, where it is installed, an array of BENCH_ARRAY (1000) tasks that do nothing, on as many virtual nodes as there are
 * workers (tests/slurm/array).
 */
#include "config.h"

#include "bench_rig.h"

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "tf_file.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { A_FILE = 1000, WORKERS = 16, LOOKS = 10, SLICES = 50, PEER_JOBS = 100000 };

static uint64_t n_tasks = 1000000, n_files = 1000000, n_done = 50000;
static struct program sluiced;
static unsigned missed;

static double now(void) { return (double)clock_mono_ns() / 1e9; }

/* One line; an aim that is missed is said and counted. */
static void figure(const char *what, double value, const char *unit, double aim, bool at_most)
{
    bool good = aim == 0 || (at_most ? value <= aim : value >= aim);

    if (aim == 0)
        printf("%-58s %10.2f %s\n", what, value, unit);
    else
        printf("%-58s %10.2f %s (aim: at %s %g)%s\n", what, value, unit, at_most ? "most" : "least", aim, good ? "" : "  MISSED");
    fflush(stdout);
    missed += !good;
}

/* ---- files --------------------------------------------------------------------------------- */

/* TFs without data: meta block and empty index. The list of the files is written to `list`. */
static void make_files(const char *dir, const char *list, uint64_t files, unsigned tfs)
{
    FILE *out = fopen(list, "we");
    char path[4096], base[4096];
    struct tf_err e;

    if (out == NULL || mkdir(dir, 0700) < 0)
        bench_die(dir);
    for (uint64_t i = 0; i < files; i++) {
        snprintf(path, sizeof(path), "%s/%07" PRIu64 ".tf", dir, i);
        fprintf(out, "%s\n", path);
        if (tfs == 1 && i % 1000 != 0) {         /* names of the same file: a million inodes are not what is measured */
            if (link(base, path) < 0)
                bench_die(path);
            continue;
        }
        FILE *f = fopen(path, "we");
        for (unsigned k = 0; f && k < tfs; k++) {
            void *tf;
            size_t size;
            if (tf_build(NULL, 0, 32 * k, k, 1, 0, &tf, &size, &e) < 0)
                bench_die(e.text);
            if (fwrite(tf, size, 1, f) != 1)
                bench_die(path);
            free(tf);
        }
        if (f == NULL || fclose(f) != 0)
            bench_die(path);
        snprintf(base, sizeof(base), "%s", path);
    }
    if (fclose(out) != 0)
        bench_die(list);
}

/* ---- sluiced ------------------------------------------------------------------------------- */

static void start(void)
{
    char *conf = bench_path("conf"), *state = bench_path("state");

    bench_conf(conf);
    sluiced = bench_daemon((const char *const[]){ "sluiced", "--config", conf, "--state", state, "--socket", bench_socket, "--log-level", "warning",
                                                  "--ready-fd", "9", NULL });
    free(conf);
    free(state);
}

static double memory(void)
{
    char *path = mem_printf("/proc/%ld/status", (long)sluiced.pid), line[256];
    FILE *f = fopen(path, "re");
    double kb = 0;

    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "VmRSS: %lf", &kb) == 1)
            break;
    }
    if (f)
        fclose(f);
    free(path);
    return kb * 1024;
}

static uint64_t submit(const char *list, double *seconds)
{
    double from = now();
    uint64_t id = strtoull(bench_command((const char *const[]){ "sluice", "submit", "--input", list, "--workflow", "none", "--hold", NULL }), NULL, 10);

    *seconds = now() - from;
    return id;
}

static double job_number(uint64_t id, const char *key)
{
    char *text = mem_printf("%" PRIu64, id);
    struct program p = bench_start(false, (const char *const[]){ "sluice", "job", "show", text, "--json", NULL });
    json_t *j = json_loadfd(p.out, 0, NULL);
    double v = json_number_value(json_object_get(json_array_get(json_object_get(j, "jobs"), 0), key));

    json_decref(j);
    close(p.out);
    waitpid(p.pid, NULL, 0);
    free(text);
    return v;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Some looks at a job's summary, the start of the command included. */
static void look(uint64_t id)
{
    double ms[LOOKS];

    for (int i = 0; i < LOOKS; i++) {
        double from = now();
        if (job_number(id, "tasks") < 1)
            bench_die("the job is not there");
        ms[i] = (now() - from) * 1e3;
    }
    qsort(ms, LOOKS, sizeof(ms[0]), compare);
    figure("summary, median of ten", ms[LOOKS / 2], "ms", 50, true);
    figure("summary, slowest of ten", ms[LOOKS - 1], "ms", 0, true);
}

static void job_do(const char *what, uint64_t id)
{
    char *text = mem_printf("%" PRIu64, id);

    bench_command((const char *const[]){ "sluice", "job", what, text, NULL });
    free(text);
}

/* B39: what the disk and a list of nodes have of the tasks. */
static void look_at_state(const char *when)
{
    char *what = mem_printf("state on the disk %s", when), *file = bench_path("state/state.db"), *log = bench_path("state/state.db-wal");
    struct stat st, wal;
    double ms[LOOKS];

    if (stat(file, &st) < 0)
        bench_die(file);
    figure(what, ((double)st.st_size + (stat(log, &wal) == 0 ? (double)wal.st_size : 0)) / 1e6, "MB", 0, true);
    for (int i = 0; i < LOOKS; i++) {
        double from = now();
        bench_command((const char *const[]){ "sluice", "nodes", NULL });
        ms[i] = (now() - from) * 1e3;
    }
    qsort(ms, LOOKS, sizeof(ms[0]), compare);
    figure("list of nodes, median of ten", ms[LOOKS / 2], "ms", 0, true);
    free(what);
    free(file);
    free(log);
}

/* Killed and started: until it is ready with nodes and marks, and until it knows the job's tasks again. */
static void restart(uint64_t id, const char *when)
{
    char *what = mem_printf("restart %s: nodes and marks are served", when), *text = mem_printf("%" PRIu64, id);
    double from;

    kill(sluiced.pid, SIGKILL);
    waitpid(sluiced.pid, NULL, 0);
    close(sluiced.out);
    from = now();
    start();
    bench_command((const char *const[]){ "sluice", "nodes", NULL });
    figure(what, now() - from, "s", 5, true);
    free(what);
    what = mem_printf("restart %s: tasks are known", when);
    bench_command((const char *const[]){ "sluice", "job", "tfs", text, "-t", "failed", NULL });
    figure(what, now() - from, "s", 5, true);
    free(what);
    free(text);
}

/* ---- somebody else, meanwhile ----------------------------------------------------------------- */

struct other { pid_t pid; int out; };
struct waits { double ping, mark; unsigned n; };
static volatile sig_atomic_t over;

static void on_term(int signal_number)
{
    (void)signal_number;
    over = 1;
}

static double timed(const char *const argv[])
{
    double from = now();

    bench_command(argv);
    return now() - from;
}

static void ask_on(int out)
{
    struct waits w = { 0 };

    signal(SIGTERM, on_term);
    while (!over) {
        double s = timed((const char *const[]){ "sluice", "ping", NULL });
        w.ping = s > w.ping ? s : w.ping;
        s = timed(w.n % 2 ? (const char *const[]){ "sluice", "clear", "other001", "bench", "--repeat-ok", NULL }
                          : (const char *const[]){ "sluice", "mark", "other001", "bench", NULL });
        w.mark = s > w.mark ? s : w.mark;
        w.n++;
    }
    _exit(write(out, &w, sizeof(w)) == sizeof(w) ? 0 : 1);
}

static struct other other_start(void)
{
    int ends[2];

    bench_command((const char *const[]){ "sluice", "node", "add", "other001", "--class", "fake", NULL });
    if (pipe2(ends, O_CLOEXEC) < 0)
        bench_die("pipe");
    fflush(stdout);
    struct other o = { fork(), ends[0] };
    if (o.pid == 0)
        ask_on(ends[1]);
    close(ends[1]);
    return o;
}

static void other_end(struct other *o)
{
    struct waits w;

    kill(o->pid, SIGTERM);
    if (read(o->out, &w, sizeof(w)) != sizeof(w))
        bench_die("who asked meanwhile did not get through");
    waitpid(o->pid, NULL, 0);
    close(o->out);
    printf("meanwhile %u pings, marks and clears, the start of the command included\n", w.n);
    figure("slowest ping", w.ping * 1e3, "ms", 0, true);
    figure("slowest mark or clear, on disk", w.mark * 1e3, "ms", 0, true);
}

/* ---- taken in ------------------------------------------------------------------------------ */

static uint64_t measure_submit(void)
{
    char *dir = bench_path("many"), *list = bench_path("many.list");
    double s, before;
    uint64_t id;

    make_files(dir, list, n_tasks / A_FILE, A_FILE);
    before = memory();
    id = submit(list, &s);
    printf("%" PRIu64 " TFs in %" PRIu64 " files\n", n_tasks, n_tasks / A_FILE);
    figure("accepted", s, "s", 10 * (double)n_tasks / 1e6, true);
    figure("sluiced's memory", (memory() - before) / (double)n_tasks, "bytes a TF", 200, true);
    look(id);
    restart(id, "with all to be done");
    look(id);
    free(dir);
    free(list);
    return id;
}

static void measure_submit_files(void)
{
    char *dir = bench_path("files"), *list = bench_path("files.list");
    double s, before;
    uint64_t id;

    make_files(dir, list, n_files, 1);
    before = memory();
    struct other other = other_start();
    id = submit(list, &s);
    printf("%" PRIu64 " files of one TF\n", n_files);
    figure("accepted", s, "s", 0, true);
    figure("sluiced's memory", (memory() - before) / (double)n_files, "bytes a TF", 0, true);
    look(id);
    job_do("cancel", id);
    other_end(&other);
    free(dir);
    free(list);
}

/* ---- done ---------------------------------------------------------------------------------- */

struct point { double time, cpu, workers, done; };

static struct point point(uint64_t id, pid_t workers)
{
    struct point p = { .done = job_number(id, "done") };

    p.time = now();
    p.cpu = bench_cpu(sluiced.pid);
    p.workers = bench_cpu(workers);
    return p;
}

static struct point wait_done(uint64_t id, pid_t workers, double wanted)
{
    double until = now() + 600;
    struct point p;

    while ((p = point(id, workers)).done < wanted) {
        if (now() > until)
            bench_die("the tasks are not done");
        bench_sleep(0.05);
    }
    return p;
}

static double us_a_task(double seconds, const struct point *p)
{
    return seconds / (p[1].done - p[0].done) * 1e6;
}

static double median(double *v, size_t n)
{
    qsort(v, n, sizeof(v[0]), compare);
    return v[n / 2];
}

/*
 * The line of Theil and Sen through y at x (the median of the slopes of all pairs, then of what is left), which a slice that
 * something else on the machine disturbed does not turn: its values at x = 0 and at `end`.
 */
static void line_through(const double *x, const double *y, double end, double *at_first, double *at_last)
{
    double slope[SLICES * (SLICES - 1) / 2], rest[SLICES], a;
    size_t n = 0;

    for (int i = 0; i < SLICES; i++) {
        for (int k = 0; k < i; k++)
            slope[n++] = (y[i] - y[k]) / (x[i] - x[k]);
    }
    a = median(slope, n);
    for (int i = 0; i < SLICES; i++)
        rest[i] = y[i] - a * x[i];
    *at_first = median(rest, SLICES);
    *at_last = *at_first + a * end;
}

/*
 * Does a TF cost more when many are done? The machine's own speed drifts by tens of percent in half a minute, so the measure
 * is the fake workers, which do for each TF what they did for the first, on the same cores in the same slice.
 */
static void measure_growth(const struct point *p)
{
    double done[SLICES], us[SLICES], ratio[SLICES], at_first, at_last;

    for (int i = 0; i < SLICES; i++) {
        done[i] = (p[i].done + p[i + 1].done) / 2;
        us[i] = us_a_task(p[i + 1].cpu - p[i].cpu, p + i);
        ratio[i] = us[i] / us_a_task(p[i + 1].workers - p[i].workers, p + i);
    }
    line_through(done, us, p[SLICES].done, &at_first, &at_last);
    figure("processor time a TF, at the first", at_first, "us", 0, true);
    figure("processor time a TF, at the last", at_last, "us", 0, true);
    line_through(done, ratio, p[SLICES].done, &at_first, &at_last);
    figure("the same over that of the workers, at the first", at_first, "", 0, true);
    figure("the same over that of the workers, at the last", at_last, "", 0, true);
    figure("at the last / at the first, the machine's drift taken out", at_last / at_first, "", 1.1, true);
}

static double measure_done(uint64_t id)
{
    char *address = mem_printf("unix:%s", bench_socket), *count = mem_printf("%d", WORKERS), *nodes = mem_printf("n[001-%03d]", WORKERS);
    double before = memory();
    struct point p[SLICES + 1];

    bench_command((const char *const[]){ "sluice", "node", "add", nodes, "--class", "fake", "--pool", "async", NULL });
    struct program workers = bench_daemon((const char *const[]){ "tests/fake/fake-worker", "--server", address, "--count", count, "--class", "fake",
                                          "--buffer", "337G", "--devices", "8", "--building-limit", "64", "--build-seconds", "0", "--seconds-per-tf", "0",
                                          "--ready-fd", "9", "--quiet", NULL });
    look_at_state("before");
    p[0] = point(id, workers.pid);
    job_do("release", id);
    for (int i = 1; i <= SLICES; i++)
        p[i] = wait_done(id, workers.pid, (double)n_done * i / SLICES);
    double rate = p[SLICES].done / (p[SLICES].time - p[0].time);
    printf("%.0f TFs done by %d fake workers\n", p[SLICES].done, WORKERS);
    figure("durable completions", rate, "a second", 10000, false);
    measure_growth(p);
    look(id);
    json_decref(bench_end(&workers, "fake-worker"));
    figure("sluiced's memory, more than before", (memory() - before) / (double)n_done, "bytes a TF done", 200, true);
    figure("sluiced's memory in all", memory() / 1e6, "MB", 0, true);
    look_at_state("with all that is done");
    restart(id, "with all that is done");
    free(address);
    free(count);
    free(nodes);
    return rate;
}

/* ---- beanstalkd ---------------------------------------------------------------------------- */

static int beanstalkd_connect(unsigned short port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    for (int i = 0; i < 100; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
            return fd;
        close(fd);
        bench_sleep(0.05);
    }
    return -1;
}

/* A command, and its answer to `word`; what follows the word. */
static uint64_t ask(FILE *f, const char *text, const char *word)
{
    char line[256];
    size_t n = strlen(word), length = strlen(text);

    /* a command is one write: as several, each would wait for the acknowledgement of the one before */
    if (send(fileno(f), text, length, MSG_NOSIGNAL) != (ssize_t)length || fgets(line, sizeof(line), f) == NULL || strncmp(line, word, n) != 0)
        bench_die("beanstalkd");
    return strtoull(line + n, NULL, 10);
}

static void cycle(FILE *f)
{
    char text[64], data[64];
    uint64_t id;

    ask(f, "put 0 0 600 8\r\n12345678\r\n", "INSERTED ");
    id = ask(f, "reserve\r\n", "RESERVED ");
    if (fgets(data, sizeof(data), f) == NULL)
        bench_die("beanstalkd");
    snprintf(text, sizeof(text), "delete %" PRIu64 "\r\n", id);
    ask(f, text, "DELETED");
}

static void measure_beanstalkd(double ours)
{
    static const char *const places[] = { "/usr/bin/beanstalkd", "/usr/local/bin/beanstalkd" };
    const char *program = access(places[0], X_OK) == 0 ? places[0] : access(places[1], X_OK) == 0 ? places[1] : NULL;
    unsigned short port = (unsigned short)(20000 + getpid() % 20000);
    char *dir = bench_path("binlog"), *p = mem_printf("%u", port);
    uint64_t n = 0;

    if (program == NULL || mkdir(dir, 0700) < 0) {
        printf("beanstalkd is not installed: nothing to compare with\n");
        free(dir);
        free(p);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        execl(program, program, "-l", "127.0.0.1", "-p", p, "-b", dir, "-f", "0", (char *)NULL);
        _exit(127);
    }
    int fd = beanstalkd_connect(port);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    if (f == NULL)
        bench_die("beanstalkd does not answer");
    const char *most = getenv("BENCH_PEER_S");
    double from = now(), seconds = most ? strtod(most, NULL) : 5;
    while (n < PEER_JOBS && now() - from < seconds) {
        cycle(f);
        n++;
    }
    double rate = (double)n / (now() - from);
    printf("%" PRIu64 " jobs through beanstalkd\n", n);
    figure("beanstalkd -f0: put, reserve, delete", rate, "a second", 0, true);
    figure("sluiced / beanstalkd", ours / rate, "", 0, true);
    fclose(f);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    free(dir);
    free(p);
}

/* ---- Slurm ----------------------------------------------------------------------------------- */

enum { NOT_INSTALLED = 77 };

static void measure_slurm(double ours)
{
    const char *source = getenv("SLUICE_SRCDIR"), *tasks = getenv("BENCH_ARRAY");
    unsigned long n = tasks ? strtoul(tasks, NULL, 10) : 1000;
    char *command = mem_printf("'%s/tests/slurm/array' %lu %d", source ? source : "..", n, WORKERS);
    double seconds = 0;
    FILE *f = popen(command, "re");
    bool told = f && fscanf(f, "%lf", &seconds) == 1 && seconds > 0;
    int status = f ? pclose(f) : -1;

    if (status == -1 || !WIFEXITED(status) || (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != NOT_INSTALLED) || (status == 0 && !told))
        bench_die(command);
    free(command);
    if (WEXITSTATUS(status) == NOT_INSTALLED) {
        printf("Slurm is not installed: nothing to compare with\n");
        return;
    }
    printf("Slurm: an array of %lu, %d nodes of 4 CPUs\n", n, WORKERS);
    figure("from sbatch until all are completed", seconds, "s", 0, true);
    figure("Slurm: tasks", (double)n / seconds, "a second", 0, true);
    figure("sluiced / Slurm", ours / ((double)n / seconds), "", 0, true);
}

static uint64_t wish(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    uint64_t n = text ? strtoull(text, NULL, 10) / A_FILE * A_FILE : otherwise;

    return n < 10 * A_FILE ? 10 * A_FILE : n;
}

int main(int argc, char **argv)
{
    (void)argc;
    n_tasks = wish("BENCH_TASKS", n_tasks);
    n_files = wish("BENCH_FILES", n_files);
    n_done = wish("BENCH_DONE", n_done);
    n_done = n_done > n_tasks ? n_tasks : n_done;
    bench_open(argv[0]);
    start();
    uint64_t id = measure_submit();
    measure_submit_files();
    double rate = measure_done(id);
    bench_end(&sluiced, "sluiced");
    measure_beanstalkd(rate);
    measure_slurm(rate);
    return bench_close() != 0 || missed > 0;
}
