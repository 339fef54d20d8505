/* detect.c - which devices there are, and why one cannot be used
 *
 * From: `devices`, for people, scripts and the worker.  To: the backends.
 * A driver may hang for ever, also in the kernel, where no signal ends it: no process that has to answer calls one. All are asked at the same time; what
 * they say comes through a pipe, device by device, so that what was said before a driver hung is not lost.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "detect.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backend/bk_load.h"

enum { BACKENDS_MAX = 8 };

struct asked {
    pid_t pid;
    int fd;                      /* its answers; a record whose backend is "" is the end */
};

static void ask(const char *backend, void (*fn)(void *arg, const struct detected *d), void *arg)
{
    struct detected d = { 0 };
    const struct bk_ops *ops = bk_load(backend, d.why, sizeof d.why);
    int n = ops ? ops->count() : 0;

    snprintf(d.backend, sizeof d.backend, "%s", backend);
    for (int i = 0; i < (n > 0 ? n : 1); i++) {
        d.info = (struct bk_info){ 0 };
        d.usable = ops && ops->describe(i, &d.info, d.why, sizeof d.why) == 0;
        d.known = d.info.id[0] != '\0';
        if (d.usable)
            d.why[0] = '\0';
        fn(arg, &d);
    }
}

/* ---- in a process of its own -------------------------------------------------------------- */

static void send_one(void *arg, const struct detected *d)
{
    const char *p = (const char *)d;
    size_t left = sizeof *d;

    while (left > 0) {
        ssize_t n = write(*(int *)arg, p, left);
        if (n < 0 && errno != EINTR)
            _exit(1);
        p += n > 0 ? n : 0;
        left -= n > 0 ? (size_t)n : 0;
    }
}

/* -1: there is no process. */
static int start(const char *backend, struct asked *a)
{
    static const struct detected end = { 0 };
    pid_t parent = getpid();
    int pair[2];

    if (pipe2(pair, O_CLOEXEC) < 0)
        return -1;
    a->pid = fork();
    if (a->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        ask(backend, send_one, &pair[1]);
        send_one(&pair[1], &end);
        _exit(0);
    }
    close(pair[1]);
    a->fd = pair[0];
    if (a->pid < 0)
        close(a->fd);
    return a->pid < 0 ? -1 : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* 1: the next answer; 0: it ended; -1: it has not said it in time. */
static int receive(int fd, struct detected *d, double until)
{
    size_t have = 0;

    while (have < sizeof *d) {
        double left = until - now();
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int ready = poll(&p, 1, left > 0 ? (int)(left * 1000) + 1 : 0);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return -1;
        ssize_t n = read(fd, (char *)d + have, sizeof *d - have);
        if (n == 0 || (n < 0 && errno != EINTR))
            return 0;
        have += n > 0 ? (size_t)n : 0;
    }
    return 1;
}

/* What one backend's process says, and what is to be said of it. One that hangs in the kernel outlives us: nobody waits for it. */
static void collect(const char *backend, const struct asked *a, double limit_s, double until,
                    void (*fn)(void *arg, const struct detected *d), void *arg)
{
    struct detected d;
    int r;

    while ((r = receive(a->fd, &d, until)) > 0 && d.backend[0] != '\0')
        fn(arg, &d);
    close(a->fd);
    kill(a->pid, SIGKILL);
    waitpid(a->pid, NULL, WNOHANG);
    if (r > 0)
        return;
    d = (struct detected){ 0 };
    snprintf(d.backend, sizeof d.backend, "%s", backend);
    if (r < 0)
        snprintf(d.why, sizeof d.why, "the driver did not answer within %.3g s; process %d, which asked it, is ended", limit_s, (int)a->pid);
    else
        snprintf(d.why, sizeof d.why, "the driver ended the process that asked it");
    fn(arg, &d);
}

static void none(const char *backend, void (*fn)(void *arg, const struct detected *d), void *arg)
{
    struct detected d = { .why = "no process to ask it: too many processes or open files" };

    snprintf(d.backend, sizeof d.backend, "%s", backend);
    fn(arg, &d);
}

void detect(double limit_s, void (*fn)(void *arg, const struct detected *d), void *arg)
{
    struct asked asked[BACKENDS_MAX];
    bool started[BACKENDS_MAX];
    double until = now() + limit_s;

    for (unsigned i = 0; bk_names[i] && limit_s > 0; i++)
        started[i] = start(bk_names[i], &asked[i]) == 0;
    for (unsigned i = 0; bk_names[i]; i++) {
        if (limit_s <= 0)
            ask(bk_names[i], fn, arg);
        else if (started[i])
            collect(bk_names[i], &asked[i], limit_s, until, fn, arg);
        else
            none(bk_names[i], fn, arg);
    }
}
