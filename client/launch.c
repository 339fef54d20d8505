/* launch.c - fork, a session of its own, exec; then the word on --ready-fd
 *
 * The child runs its program only after it stands in the farm's list: an `up` that dies in between leaves nobody whom `down` does not know.
 */
#include "config.h"

#include "launch.h"

#include "clock.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { READY_FD = 3 };

/* In the child. go: a byte comes when it may run; the end of the pipe means that its parent is gone. */
static void __attribute__((noreturn)) run(const char *const *argv, int go, int ready, int out)
{
    char c;
    ssize_t n;
    sigset_t none;

    setsid();
    do
        n = read(go, &c, 1);
    while (n < 0 && errno == EINTR);
    if (n != 1)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    if (ready == READY_FD)          /* dup2 onto itself would keep the close-on-exec flag */
        ready = dup(ready);
    if (out == READY_FD)
        out = dup(out);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    dup2(ready, READY_FD);
    close(STDIN_FILENO);
    if (open("/dev/null", O_RDONLY) != STDIN_FILENO || chdir("/") < 0)
        _exit(1);
    close_range(READY_FD + 1, ~0u, 0);
    execv(argv[0], (char *const *)argv);
    dprintf(READY_FD, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int open_output(struct farm *f, const char *name, struct err *e)
{
    char *relative = mem_printf("log/%s.out", name), *path = farm_path(f, relative);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);

    if (fd < 0)
        err_errno(e, ERR_FAILED, "%s", path);
    free(relative);
    free(path);
    return fd;
}

static void close_pair(int p[2])
{
    for (int i = 0; i < 2; i++)
        if (p[i] >= 0)
            close(p[i]);
}

int launch_start(struct farm *f, const char *name, const char *const *argv, struct launch *l, struct err *e)
{
    int go[2] = { -1, -1 }, ready[2] = { -1, -1 }, out = open_output(f, name, e), r = -1;
    const char **full;
    size_t n = 0;
    pid_t pid;

    if (out < 0)
        return -1;
    while (argv[n] != NULL)
        n++;
    full = mem_array(n + 3, sizeof(*full));
    memcpy(full, argv, n * sizeof(*full));
    full[n] = "--ready-fd";
    full[n + 1] = "3";
    if (pipe2(go, O_CLOEXEC) < 0 || pipe2(ready, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        err_errno(e, ERR_FAILED, "%s", name);
        goto out;
    }
    if (pid == 0) {
        close(go[1]);               /* else the end of the pipe would never come */
        run(full, go[0], ready[1], out);
    }
    if (farm_record(f, name, pid, e) < 0 || file_write_all(go[1], "g", 1, e) < 0)
        goto out;
    *l = (struct launch){ .name = mem_strdup(name), .fd = ready[0] };
    ready[0] = -1;
    r = 0;
out:
    free(full);
    close_pair(go);
    close_pair(ready);
    close(out);
    return r;
}

/* --- hearing -------------------------------------------------------------------------------- */

static int judge(struct launch *l, struct err *e)
{
    struct str s = { 0 };

    close(l->fd);
    l->fd = -1;
    l->word[strcspn(l->word, "\n")] = '\0';
    if (strcmp(l->word, "ready") == 0)
        return 0;
    str_escape(&s, l->word, strlen(l->word));
    err_set(e, ERR_FAILED, "%s did not start: %s", l->name, s.len > 0 ? str_text(&s) : "it ended without a word; see its log");
    str_free(&s);
    return -1;
}

/* Reads what is there. 1: heard, 0: not yet, -1: it said no. */
static int hear(struct launch *l, struct err *e)
{
    ssize_t n = read(l->fd, l->word + l->n, sizeof(l->word) - 1 - l->n);

    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : judge(l, e);
    l->n += (size_t)n;
    l->word[l->n] = '\0';
    if (n == 0 || strchr(l->word, '\n') != NULL || l->n == sizeof(l->word) - 1)
        return judge(l, e) < 0 ? -1 : 1;
    return 0;
}

static int late(const struct launch *l, size_t n, double limit_s, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (l[i].fd >= 0)
            return err_set(e, ERR_TIMEOUT, "%s was not ready within %.0f s; see its log", l[i].name, limit_s);
    return 0;
}

int launch_wait(struct launch *l, size_t n, double limit_s, struct err *e)
{
    struct pollfd *p = mem_array(n, sizeof(*p));
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9), now;
    size_t waiting = n;
    int r = 0;

    while (waiting > 0 && (now = clock_mono_ns()) < end) {
        for (size_t i = 0; i < n; i++)
            p[i] = (struct pollfd){ .fd = l[i].fd, .events = POLLIN };
        if (poll(p, n, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR)
            break;
        for (size_t i = 0; i < n; i++) {
            struct err why;
            int heard = p[i].fd >= 0 && p[i].revents != 0 ? hear(&l[i], &why) : 0;

            waiting -= heard != 0;
            if (heard < 0 && r == 0) {
                r = -1;
                if (e != NULL)
                    *e = why;
            }
        }
    }
    free(p);
    return r < 0 ? r : late(l, n, limit_s, e);
}

void launch_free(struct launch *l, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (l[i].fd >= 0 && l[i].name != NULL)
            close(l[i].fd);
        free(l[i].name);
    }
    free(l);
}
