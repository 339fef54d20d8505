/* bench_rig.c - see bench_rig.h */
#include "config.h"

#include "bench_rig.h"

#include "clock.h"
#include "err.h"
#include "file.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char *dir, *bin;
char *bench_socket;

void bench_die(const char *what)
{
    fprintf(stderr, "bench: %s: %s (files in %s)\n", what, strerror(errno), dir ? dir : "-");
    exit(1);
}

/* Starts a program of the build tree. ready: its descriptor 9 is the pipe, else its stdout is. */
struct program bench_start(bool ready, const char *const *argv)
{
    struct program p;
    int fd[2];

    if (pipe(fd) < 0)
        bench_die("pipe");
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
char *bench_command(const char *const *argv)
{
    struct program p = bench_start(false, argv);
    char *line = read_line(&p);
    char rest[256];
    int status;

    while (read(p.out, rest, sizeof(rest)) > 0)
        ;
    close(p.out);
    if (waitpid(p.pid, &status, 0) != p.pid || status != 0)
        bench_die(argv[1]);
    return line;
}

struct program bench_daemon(const char *const *argv)
{
    struct program p = bench_start(true, argv);

    if (strcmp(read_line(&p), "ready") != 0)
        bench_die(argv[0]);
    return p;
}

/* Asks the program to end; its line of JSON. */
json_t *bench_end(struct program *p, const char *name)
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

/* Processor time of all threads of a process, s. */
double bench_cpu(pid_t pid)
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

void bench_sleep(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

void bench_conf(const char *path)
{
    static const char text[] = "class fake {\n  devices = 1\n  shm = 337G\n}\nlimits {\n  read_share = 1\n}\n";
    struct err e;

    if (file_replace(path, text, sizeof(text) - 1, 0600, &e) < 0)
        bench_die(e.text);
}

void bench_open(const char *self)
{
    struct rlimit many;
    char *slash;

    bin = realpath(self, NULL);
    for (int up = 0; bin && up < 3 && (slash = strrchr(bin, '/')); up++)     /* tests/bench/NAME, the build tree above it */
        *slash = '\0';
    const char *above = getenv("TMPDIR");
    dir = mem_printf("%s/sluice-bench.XXXXXX", above ? above : "/tmp");
    if (bin == NULL || mkdtemp(dir) == NULL)
        bench_die(dir);
    if (getrlimit(RLIMIT_NOFILE, &many) == 0) {
        many.rlim_cur = many.rlim_max;
        setrlimit(RLIMIT_NOFILE, &many);
    }
    bench_socket = mem_printf("%s/socket", dir);
    setenv("SLUICE_SOCKET", bench_socket, 1);
}

char *bench_path(const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

int bench_close(void)
{
    char *cmd = mem_printf("rm -rf '%s'", dir);
    int rc = system(cmd);

    free(cmd);
    return rc;
}
