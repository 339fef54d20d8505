/* watch.c - child processes
 *
 * From: device.c.  To: device.c (ended, stuck).
 * Only SIGCHLD and waitpid say that a child is gone. After its end all processes that bear its mark in their environment are killed, those that left
 * its session too, before `ended` is called: the device is free only then.
 */
#include "config.h"
#include "watch.h"

#include "clock.h"
#include "file.h"
#include "log.h"
#include "marked.h"
#include "mem.h"
#include "place.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TAIL = 8192, LINES_A_SECOND = 50, STUCK_S = 5, SET_TURNS = 8 };

struct child {
    TAILQ_ENTRY(child) entry;
    struct watch *watch;
    pid_t    pid;
    uint64_t start;
    char    *name, *mark;                        /* mark: MARK_NAME=FARM-NODE/N */
    void   (*ended)(void *arg, int status, const char *how);
    void   (*stuck)(void *arg, const char *what);
    void    *arg;
    struct ev_timer kill, late;
    struct ev_io out;
    int      pipe;
    char     tail[TAIL + 1]; size_t n_tail; uint64_t wrote;
    char     line[512]; size_t n_line;
    char     first[256];                         /* line, as far as it fits */
    bool     quiet, spoke;                       /* spoke: first is whole */
    int64_t  second; unsigned lines;             /* written to the log in this second */
};

struct watch {
    struct ev_loop *loop;
    struct ev_signal sigchld;
    TAILQ_HEAD(, child) children;
    char   *mark;
    unsigned n, started;
    void  (*write)(void *arg, const char *list);
    void   *arg;
};

/* ---- the end of a child -------------------------------------------------------------------------- */

static void write_list(struct watch *w)
{
    struct str s = { 0 };
    struct child *c;

    TAILQ_FOREACH(c, &w->children, entry)
        str_addf(&s, "%d %" PRIu64 "\n", c->pid, c->start);
    w->write(w->arg, str_text(&s));
    str_free(&s);
}

static void how_text(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status))
        snprintf(out, size, "signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        snprintf(out, size, "exit %d", WEXITSTATUS(status));
}

static void child_read(struct child *c);

static void child_free(struct child *c)
{
    ev_timer_stop(c->watch->loop, &c->kill);
    ev_timer_stop(c->watch->loop, &c->late);
    ev_io_stop(c->watch->loop, &c->out);
    close(c->pipe);
    TAILQ_REMOVE(&c->watch->children, c, entry);
    c->watch->n--;
    free(c->name);
    free(c->mark);
    free(c);
}

static unsigned kill_strays(const struct watch *w)
{
    pid_t *known = mem_array(w->n + 1, sizeof *known);
    const struct child *c;
    unsigned n = 0;

    TAILQ_FOREACH(c, &w->children, entry)
        known[n++] = c->pid;
    n = marked_kill_strays(w->mark, known, n);
    free(known);
    return n;
}

static void child_gone(struct child *c, int status)
{
    struct watch *w = c->watch;
    char how[128];
    pid_t one;
    unsigned n = marked_kill(c->mark, true, &one) + kill_strays(w);

    if (n > 0)
        log_warning("device %s: %u processes that pid %d left behind were killed", c->name, n, c->pid);
    child_read(c);
    how_text(status, how, sizeof how);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
        snprintf(how, sizeof how, "exit 127 (the program cannot be run)");
    c->ended(c->arg, status, how);
    child_free(c);
    write_list(w);
}

/* Children, and orphans of theirs that came to us. */
static void reap(struct ev_loop *loop, struct ev_signal *sig, int revents)
{
    struct watch *w = sig->data;
    int status;
    pid_t pid;

    (void)loop, (void)revents;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        struct child *c;
        TAILQ_FOREACH(c, &w->children, entry) {
            if (c->pid == pid)
                break;
        }
        if (c != NULL)
            child_gone(c, status);
    }
}

/* What a process that does not die waits in, as far as the kernel says. */
static void stuck_text(const struct child *c, char *out, size_t size)
{
    char path[64], where[64] = "", when[CLOCK_TEXT];
    snprintf(path, sizeof path, "/proc/%d/wchan", c->pid);
    FILE *f = fopen(path, "re");

    if (f != NULL && fread(where, 1, sizeof where - 1, f) == 0)
        where[0] = '\0';
    if (f != NULL)
        fclose(f);
    snprintf(out, size, "pid %d, since %s, waiting in %s", c->pid,
             clock_rfc3339(clock_wall_ns() - STUCK_S * CLOCK_SECOND, when), where[0] ? where : "an unknown place");
}

static void too_late(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct child *c = t->data;
    char text[256];

    (void)loop, (void)revents;
    stuck_text(c, text, sizeof text);
    log_err("%s: SIGKILL does not end it: %s", c->name, text);
    c->stuck(c->arg, text);
}

static void kill_now(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct child *c = t->data;

    (void)revents;
    kill(-c->pid, SIGKILL);
    kill(c->pid, SIGKILL);
    ev_timer_start(loop, &c->late);
}

void child_end(struct child *c, double grace_s)
{
    if (ev_is_active(&c->late))
        return;
    kill(-c->pid, SIGTERM);
    kill(-c->pid, SIGCONT);                      /* one that was stopped hears TERM only then */
    child_leaves(c, grace_s);
}

void child_leaves(struct child *c, double grace_s)
{
    if (ev_is_active(&c->late) || ev_is_active(&c->kill))
        return;
    ev_timer_init(&c->kill, kill_now, grace_s, 0);
    ev_timer_start(c->watch->loop, &c->kill);
}

/* ---- what it says -------------------------------------------------------------------------------- */

static void keep_first(struct child *c)
{
    size_t n = c->n_line < sizeof c->first - 1 ? c->n_line : sizeof c->first - 1;

    memcpy(c->first, c->line, n);
    c->first[n] = '\0';
    for (char *p = memchr(c->first, '\0', n); p != NULL && p < c->first + n; p++)
        *p = *p == '\0' ? ' ' : *p;
}

const char *child_first_line(struct child *c)
{
    child_read(c);
    if (!c->spoke)
        keep_first(c);                           /* without its end yet */
    return c->first;
}

static void say_line(struct child *c)
{
    int64_t now = clock_mono_ns() / CLOCK_SECOND;

    if (!c->spoke)
        keep_first(c);
    c->spoke = true;
    if (c->quiet) {
        c->n_line = 0;
        return;
    }
    if (now != c->second) {
        if (c->lines > LINES_A_SECOND)
            log_info("device %s: %u more lines of its process", c->name, c->lines - LINES_A_SECOND);
        c->second = now;
        c->lines = 0;
    }
    str_mend(c->line, c->n_line);
    if (c->lines++ < LINES_A_SECOND)
        log_info("device %s: %.*s", c->name, (int)c->n_line, c->line);
    c->n_line = 0;
}

static void keep_tail(struct child *c, const char *text, size_t n)
{
    c->wrote += n;
    if (n > TAIL) {
        text += n - TAIL;
        n = TAIL;
    }
    size_t over = c->n_tail + n > TAIL ? c->n_tail + n - TAIL : 0;
    memmove(c->tail, c->tail + over, c->n_tail - over);
    memcpy(c->tail + c->n_tail - over, text, n);
    c->n_tail = c->n_tail - over + n;
    c->tail[c->n_tail] = '\0';
}

/* At most 16 reads: a child that never stops writing must not hold the loop. */
static void child_read(struct child *c)
{
    char text[4096];

    for (int i = 0; i < 16; i++) {
        ssize_t n = read(c->pipe, text, sizeof text);
        if (n == 0)
            ev_io_stop(c->watch->loop, &c->out);
        if (n <= 0)
            return;
        keep_tail(c, text, (size_t)n);
        for (ssize_t k = 0; k < n; k++) {
            if (text[k] != '\n')
                c->line[c->n_line++] = text[k];
            if (text[k] == '\n' || c->n_line == sizeof c->line)
                say_line(c);
        }
    }
}

static void readable(struct ev_loop *loop, struct ev_io *io, int revents)
{
    (void)loop, (void)revents;
    child_read(io->data);
}

const char *child_tail(struct child *c)
{
    child_read(c);
    return c->tail;
}

uint64_t child_wrote(struct child *c)
{
    child_read(c);
    return c->wrote;
}

const char *child_tail_since(struct child *c, uint64_t since, size_t most)
{
    uint64_t n = child_wrote(c) - since;
    bool cut = n > most || n > c->n_tail;

    n = n < most ? n : most;
    n = n < c->n_tail ? n : c->n_tail;
    const char *from = c->tail + c->n_tail - n, *line = cut ? strchr(from, '\n') : NULL;
    return line != NULL && line[1] != '\0' ? line + 1 : from;
}

/* ---- the start ------------------------------------------------------------------------------------ */

/* Between fork and exec: only calls that are safe there. */
static void __attribute__((noreturn)) become(const struct child_conf *conf, char *const *env, int out, pid_t parent)
{
    sigset_t none;
    int null;

    setsid();
    if (conf->user && (setgroups(0, NULL) < 0 || setgid(conf->gid) < 0 || setuid(conf->uid) < 0))
        _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);                              /* it died before we asked to be told */
    sigemptyset(&none);
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(conf->answers ? conf->socket : out, 1);
    dup2(out, 2);
    dup2(conf->socket, 3);                       /* none: fails */
    close_range(conf->socket < 0 ? 3 : 4, ~0U, 0);
    setpriority(PRIO_PROCESS, 0, conf->nice);
    if (conf->place != NULL)
        place_become(conf->place);
    execve(conf->argv[0], (char *const *)conf->argv, env);
    _exit(127);
}

/* Ours with the mark of this child. Caller frees the array. */
static char **environment(char *mark)
{
    extern char **environ;
    size_t n = 0, k = 0;

    while (environ[n] != NULL)
        n++;
    char **env = mem_array(n + 2, sizeof *env);
    for (size_t i = 0; i < n; i++) {
        if (strncmp(environ[i], MARK_NAME "=", sizeof MARK_NAME) != 0)
            env[k++] = environ[i];
    }
    env[k] = mark;
    return env;
}

static pid_t spawn(const struct child_conf *conf, char *mark, int *pipe_fd, struct err *e)
{
    int p[2];
    pid_t self = getpid(), pid;

    if (pipe2(p, O_CLOEXEC) < 0)
        return err_errno(e, ERR_FAILED, "device %s: no pipe for its process", conf->name);
    char **env = environment(mark);
    pid = fork();
    if (pid == 0) {
        /* 3 and below are about to be filled: nothing that is needed may lie there */
        int out = fcntl(p[1], F_DUPFD, 16), sock = conf->socket < 0 ? -1 : fcntl(conf->socket, F_DUPFD, 16);
        struct child_conf moved = *conf;
        moved.socket = sock;
        become(&moved, env, out, self);
    }
    free(env);
    close(p[1]);
    if (pid < 0) {
        close(p[0]);
        return err_errno(e, ERR_FAILED, "device %s: no process for it", conf->name);
    }
    file_set_cloexec_nonblock(p[0]);
    *pipe_fd = p[0];
    return pid;
}

struct child *child_start(struct watch *w, const struct child_conf *conf, struct err *e)
{
    struct child *c = mem_zalloc(sizeof *c);

    c->mark = mem_printf("%s=%s/%u", MARK_NAME, w->mark, ++w->started);
    c->pid = spawn(conf, c->mark, &c->pipe, e);
    if (c->pid < 0) {
        free(c->mark);
        free(c);
        return NULL;
    }
    c->watch = w;
    c->start = file_process_start(c->pid);
    c->name = mem_strdup(conf->name);
    c->quiet = conf->quiet;
    c->ended = conf->ended;
    c->stuck = conf->stuck;
    c->arg = conf->arg;
    ev_init(&c->kill, kill_now);
    ev_timer_init(&c->late, too_late, STUCK_S, 0);
    ev_io_init(&c->out, readable, c->pipe, EV_READ);
    c->kill.data = c->late.data = c->out.data = c;
    ev_io_start(w->loop, &c->out);
    TAILQ_INSERT_TAIL(&w->children, c, entry);
    w->n++;
    write_list(w);
    return c;
}

pid_t child_pid(const struct child *c)
{
    return c->pid;
}

/* Goes through its threads once. Returns how many had another level; *why: the errno of one that cannot have it. */
static unsigned set_threads(const struct child *c, int nice, int *why)
{
    char path[64];
    unsigned n = 0;
    struct dirent *d;

    snprintf(path, sizeof path, "/proc/%d/task", c->pid);
    DIR *dir = opendir(path);
    while (dir != NULL && (d = readdir(dir)) != NULL) {
        long tid = strtol(d->d_name, NULL, 10);
        errno = 0;
        if (tid <= 0 || (getpriority(PRIO_PROCESS, (id_t)tid) == nice && errno == 0))
            continue;
        if (setpriority(PRIO_PROCESS, (id_t)tid, nice) == 0)
            n++;
        else if (errno != ESRCH)
            *why = errno;
    }
    if (dir != NULL)
        closedir(dir);
    return n;
}

/* A thread that is born meanwhile has the level of the one that made it: gone through again until none has another. */
int child_set_nice(struct child *c, int nice)
{
    int why = 0;

    for (unsigned i = 0; i < SET_TURNS && set_threads(c, nice, &why) > 0; i++)
        ;
    return why;
}

int child_nice(const struct child *c)
{
    return getpriority(PRIO_PROCESS, (id_t)c->pid);
}

struct watch *watch_create(struct ev_loop *loop, const char *mark, void (*write)(void *arg, const char *list), void *arg, struct err *e)
{
    struct watch *w = mem_zalloc(sizeof *w);

    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0) {
        free(w);
        return err_null(e, ERR_FAILED, "this process cannot become the one that orphans come to");
    }
    w->loop = loop;
    w->mark = mem_strdup(mark);
    w->write = write;
    w->arg = arg;
    TAILQ_INIT(&w->children);
    ev_signal_init(&w->sigchld, reap, SIGCHLD);
    w->sigchld.data = w;
    ev_signal_start(loop, &w->sigchld);
    return w;
}

void watch_destroy(struct watch *w)
{
    struct child *c;
    pid_t one;

    if (w == NULL)
        return;
    ev_signal_stop(w->loop, &w->sigchld);
    while ((c = TAILQ_FIRST(&w->children)) != NULL) {
        kill(-c->pid, SIGKILL);
        kill(c->pid, SIGKILL);
        marked_kill(c->mark, true, &one);
        child_free(c);
    }
    free(w->mark);
    free(w);
}
