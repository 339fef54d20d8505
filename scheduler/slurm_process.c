/* slurm_process.c - see slurm_process.h
 *
 * States: waiting (for the end of the back-off) -> idle -> asked -> idle | waiting. What the helper writes to its standard error is not logged line by line,
 * as libslurm repeats itself with every call; the last line becomes the reason when the helper ends. SIGCHLD is not used: each process
 * that was killed is waited for by its pidfd.
 */
#include "config.h"

#include "slurm_process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "chan.h"
#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "str.h"

static const double first_wait_s = 0.25, most_wait_s = 5;        /* a start costs some ms, and no look from here at what hinders it: slurm.conf may lie where a look hangs */
static const double quiet_s = 60;        /* the same words are logged no sooner again */
static const int end_limit_ms = 1000;
static const size_t most_said = 256 * 1024;      /* on standard error, for one question */

/* A process that was killed, until it is waited for. */
struct ended { TAILQ_ENTRY(ended) entry; struct slurm_process *p; ev_io gone; pid_t pid; };

struct slurm_process {
    struct ev_loop *loop;
    char *name, *program, *slurm_conf;
    double timeout_s;
    struct slurm_process_conf to;        /* its callbacks */
    pid_t pid;                           /* 0: none runs */
    struct chan *chan;
    int said;                            /* read end of its standard error, -1 */
    ev_io said_io;
    size_t said_size;                    /* since the last question */
    char last_line[300], before[150];    /* of it, and the one before it, which often says why */
    ev_timer deadline, again;
    double wait_s;                       /* the next back-off */
    double logged;                       /* monotonic s of the last word about it in the log */
    bool asked;
    struct err down;                     /* why none runs; ERR_NONE: one does, or none was started yet */
    uint32_t id;
    unsigned answer_type, starts;
    TAILQ_HEAD(, ended) ended;
};

static void start(struct slurm_process *p);
static void give_up(struct slurm_process *p, const struct err *why);

/* ---- its standard error ---- */

static void said_close(struct slurm_process *p)
{
    if (p->said < 0)
        return;
    ev_io_stop(p->loop, &p->said_io);
    close(p->said);
    p->said = -1;
}

/* The last lines that are not empty. */
static void keep_last(struct slurm_process *p, char *text)
{
    char *line, *rest = text;

    while ((line = strsep(&rest, "\n")) != NULL) {
        if (line[strspn(line, " \r\t")] == '\0')
            continue;
        snprintf(p->last_line, sizeof(p->last_line), "%.145s%s%.145s", p->before, p->before[0] == '\0' ? "" : "; ", line);
        snprintf(p->before, sizeof(p->before), "%.149s", line);
        str_mend(p->last_line, strlen(p->last_line));
        str_mend(p->before, strlen(p->before));
    }
}

/* One piece, as it may write without end. False: no more is there now. */
static bool said_read(struct slurm_process *p)
{
    char text[4096];
    ssize_t n = p->said < 0 ? -1 : read(p->said, text, sizeof(text) - 1);

    if (n == 0)
        said_close(p);
    if (n <= 0)
        return false;
    text[n] = '\0';
    keep_last(p, text);
    p->said_size += (size_t)n;
    return true;
}

static void said_cb(struct ev_loop *loop, ev_io *io, int events)
{
    struct slurm_process *p = io->data;
    struct err e;

    (void)loop;
    (void)events;
    said_read(p);
    if (p->said_size <= most_said)
        return;
    err_set(&e, ERR_PROTOCOL, "the helper (%s) writes without end: %s", p->program, p->last_line);
    give_up(p, &e);
}

/* ---- its end ---- */

static void ended_free(struct ended *g)
{
    TAILQ_REMOVE(&g->p->ended, g, entry);
    ev_io_stop(g->p->loop, &g->gone);
    if (g->gone.fd >= 0)
        close(g->gone.fd);
    free(g);
}

static void gone_cb(struct ev_loop *loop, ev_io *io, int events)
{
    struct ended *g = io->data;

    (void)loop;
    (void)events;
    if (waitpid(g->pid, NULL, WNOHANG) != 0)
        ended_free(g);
}

static void kill_now(struct slurm_process *p)
{
    struct ended *g;
    int fd;

    if (p->pid == 0)
        return;
    kill(p->pid, SIGKILL);
    g = mem_zalloc(sizeof(*g));
    g->p = p;
    g->pid = p->pid;
    fd = pidfd_open(p->pid, 0);
    ev_io_init(&g->gone, gone_cb, fd, EV_READ);
    g->gone.data = g;
    TAILQ_INSERT_TAIL(&p->ended, g, entry);
    if (fd >= 0)
        ev_io_start(p->loop, &g->gone);
    p->pid = 0;
}

static void answer(struct slurm_process *p, const ProtobufCMessage *m, const struct err *why, const char *word)
{
    if (!p->asked)
        return;
    p->asked = false;
    ev_timer_stop(p->loop, &p->deadline);
    p->to.answered(p->to.arg, m, why, word);
}

/* It is of no use any more: another one is started after a while, longer each time until one answers. */
static void give_up(struct slurm_process *p, const struct err *why)
{
    chan_destroy(p->chan);
    p->chan = NULL;
    kill_now(p);
    said_close(p);
    if (strcmp(p->down.text, why->text) != 0 || clock_mono_s() - p->logged >= quiet_s) {
        log_warning("sluice-slurm %s: %s; another one is started in %.3g s, and at most every %.3g s", p->name, why->text, p->wait_s, most_wait_s);
        p->logged = clock_mono_s();
    }
    ev_timer_set(&p->again, p->wait_s, 0);
    ev_timer_start(p->loop, &p->again);
    p->wait_s = p->wait_s * 2 < most_wait_s ? p->wait_s * 2 : most_wait_s;
    p->down = *why;
    answer(p, NULL, why, "SlurmHelper");
}

/* ---- its answers ---- */

static void message_cb(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct slurm_process *p = arg;
    struct err e;

    (void)c;
    (void)fds;
    (void)n_fds;
    if (!p->asked || id != p->id || (type != p->answer_type && type != SLUICE__TYPE__ERROR)) {
        err_set(&e, ERR_PROTOCOL, "an answer of type %u to question %u, which is not what was asked", type, id);
        give_up(p, &e);
        return;
    }
    p->wait_s = first_wait_s;
    if (type == SLUICE__TYPE__ERROR) {
        const Sluice__Error *error = (const void *)m;

        err_set(&e, error->code == 0 ? ERR_FAILED : (enum err_code)error->code, "%.400s", error->text == NULL ? "no reason given" : error->text);
        answer(p, NULL, &e, error->word == NULL ? "" : error->word);
    } else {
        answer(p, m, NULL, NULL);
    }
}

static void closed_cb(void *arg, struct chan *c, const struct err *why)
{
    struct slurm_process *p = arg;
    struct err e;

    (void)c;
    while (p->said_size <= most_said && said_read(p))
        ;
    if (p->last_line[0] != '\0')
        err_set(&e, ERR_UNREACHABLE, "the helper ended (slurm.conf: %s): %s", p->slurm_conf == NULL ? "the default" : p->slurm_conf, p->last_line);
    else if (why->code == ERR_NONE)
        err_set(&e, ERR_UNREACHABLE, "the helper ended");
    else
        err_set(&e, why->code, "%.400s", why->text);
    give_up(p, &e);
}

static void late_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    struct slurm_process *p = t->data;
    struct err e;

    (void)loop;
    (void)events;
    err_set(&e, ERR_TIMEOUT, "no answer within %.3g s%s%s", p->timeout_s, p->last_line[0] == '\0' ? "" : "; its last words: ", p->last_line);
    give_up(p, &e);
}

void slurm_process_ask(struct slurm_process *p, const ProtobufCMessage *m, unsigned answer_type)
{
    p->asked = true;
    p->said_size = 0;
    p->answer_type = answer_type;
    p->id = p->id == UINT32_MAX ? 1 : p->id + 1;
    ev_timer_set(&p->deadline, p->timeout_s, 0);
    ev_timer_start(p->loop, &p->deadline);
    chan_send(p->chan, p->id, m);        /* a failure is told by closed_cb */
}

bool slurm_process_is_free(const struct slurm_process *p)
{
    return p->chan != NULL && !p->asked;
}

const struct err *slurm_process_down(const struct slurm_process *p)
{
    return p->chan != NULL || p->down.code == ERR_NONE ? NULL : &p->down;
}

unsigned slurm_process_starts(const struct slurm_process *p)
{
    return p->starts;
}

/* ---- its start ---- */

static void write_text(const char *text)
{
    ssize_t n = write(2, text, strlen(text));

    (void)n;
}

/* In the child, which has our memory until it has become the program (vfork): nothing but system calls. */
static void __attribute__((noreturn)) run(char *const *argv, char *const *env, int socket, int said, pid_t parent)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (dup2(socket, 0) < 0 || dup2(said, 1) < 0 || dup2(said, 2) < 0)
        _exit(1);
    close_range(3, ~0u, 0);
    execve(argv[0], argv, env);
    write_text(argv[0]);
    write_text(" cannot be run: ");
    write_text(strerrordesc_np(errno));
    write_text("\n");
    _exit(127);
}

/* Ours, with SLURM_CONF as the configuration has it. Caller frees the list and its first element. */
static char **make_env(const struct slurm_process *p)
{
    size_t n = 0, k = 0;
    char **env;

    while (environ[n] != NULL)
        n++;
    env = mem_array(n + 2, sizeof(*env));
    env[k++] = p->slurm_conf == NULL ? mem_strdup("SLUICE_SLURM=1") : mem_printf("SLURM_CONF=%s", p->slurm_conf);
    for (size_t i = 0; i < n; i++) {
        if (p->slurm_conf == NULL || strncmp(environ[i], "SLURM_CONF=", 11) != 0)
            env[k++] = environ[i];
    }
    return env;
}

static int spawn(struct slurm_process *p, int socket, int said, struct err *e)
{
    char *argv[] = { p->program, p->name, NULL }, **env = make_env(p);
    pid_t parent = getpid(), pid = vfork();         /* a fork copies what maps our memory, and the loop would stand still for that */

    if (pid == 0)
        run(argv, env, socket, said, parent);
    free(env[0]);
    free(env);
    if (pid < 0)
        return err_errno(e, ERR_FAILED, "no process for %s", p->program);
    p->pid = pid;
    return 0;
}

static const struct chan_events events = { .message = message_cb, .closed = closed_cb };

static int start_process(struct slurm_process *p, struct err *e)
{
    const struct chan_limits limits = { .no_fds = true, .beat_s = -1, .dead_s = -1 };       /* it may stand in a call of libslurm: only deadlines count */
    int pair[2], said[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(e, ERR_FAILED, "no socket for the helper");
    if (pipe2(said, O_CLOEXEC) < 0) {
        close(pair[0]);
        close(pair[1]);
        return err_errno(e, ERR_FAILED, "no pipe for the helper");
    }
    rc = spawn(p, pair[1], said[1], e);
    close(pair[1]);
    close(said[1]);
    if (rc < 0) {
        close(pair[0]);
        close(said[0]);
        return -1;
    }
    file_set_cloexec_nonblock(pair[0]);
    file_set_cloexec_nonblock(said[0]);
    p->said = said[0];
    ev_io_set(&p->said_io, p->said, EV_READ);
    ev_io_start(p->loop, &p->said_io);
    p->chan = chan_create(p->loop, pair[0], &limits, &events, p);
    chan_known(p->chan);
    chan_allow(p->chan, 1u << SLUICE__ROLE__SLURM_HELPER);
    return 0;
}

static void start(struct slurm_process *p)
{
    struct err e;

    p->last_line[0] = p->before[0] = '\0';
    p->said_size = 0;
    p->starts++;
    if (start_process(p, &e) < 0)
        give_up(p, &e);
    else
        p->to.ready(p->to.arg);
}

static void again_cb(struct ev_loop *loop, ev_timer *t, int e)
{
    (void)loop;
    (void)e;
    start(t->data);
}

struct slurm_process *slurm_process_create(struct ev_loop *loop, const struct slurm_process_conf *conf)
{
    struct slurm_process *p = mem_zalloc(sizeof(*p));

    p->loop = loop;
    p->to = *conf;
    p->name = mem_strdup(conf->name);
    p->program = mem_strdup(conf->program);
    p->slurm_conf = mem_strdup(conf->slurm_conf);
    p->timeout_s = conf->timeout_s;
    p->wait_s = first_wait_s;
    p->said = -1;
    TAILQ_INIT(&p->ended);
    ev_init(&p->said_io, said_cb);
    ev_timer_init(&p->deadline, late_cb, p->timeout_s, 0);
    ev_set_priority(&p->deadline, EV_MINPRI);        /* an answer that is there is read first */
    ev_timer_init(&p->again, again_cb, 0, 0);
    p->said_io.data = p->deadline.data = p->again.data = p;
    ev_timer_start(loop, &p->again);                 /* from the loop: nobody is called back from within create */
    return p;
}

/* SIGKILL has gone out; only a process that hangs in the kernel takes longer, and that one is left behind. */
static void await_ended(struct slurm_process *p)
{
    struct ended *g;

    while ((g = TAILQ_FIRST(&p->ended)) != NULL) {
        struct pollfd pfd = { .fd = g->gone.fd, .events = POLLIN };

        if (pfd.fd >= 0)
            poll(&pfd, 1, end_limit_ms);
        waitpid(g->pid, NULL, WNOHANG);
        ended_free(g);
    }
}

void slurm_process_destroy(struct slurm_process *p)
{
    if (p == NULL)
        return;
    p->asked = false;
    ev_timer_stop(p->loop, &p->deadline);
    ev_timer_stop(p->loop, &p->again);
    chan_destroy(p->chan);
    kill_now(p);
    said_close(p);
    await_ended(p);
    free(p->name);
    free(p->program);
    free(p->slurm_conf);
    free(p);
}
