/* main.c - sluiced: options, signals, being ready
 *
 * From: the command line.  To: sluiced.c, which has the list of parts.
 * Whoever waits for us hears one line on --ready-fd: "ready", or why not.
 */
#include "config.h"

#include <argp.h>
#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "conf.h"
#include "db.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "notify.h"
#include "rights.h"
#include "sluiced.h"
#include "str.h"

enum task { TASK_SERVE, TASK_CHECK, TASK_RECOVER, TASK_RESTORE, TASK_CHECK_CONFIG };
enum { OPT_STATE = 256, OPT_SOCKET, OPT_LISTEN, OPT_LOG, OPT_LEVEL, OPT_READY, OPT_CHECK, OPT_RECOVER, OPT_RESTORE, OPT_CHECK_CONFIG };

static const double stop_s = 1.2;        /* what is queued has so long to get to the disk */
static const unsigned stop_hard_s = 2;   /* then we end, whatever hangs */

struct options {
    struct start start;
    enum task task;
    const char *backup, *log;
    enum log_level level;
    int ready_fd;
};

/* clang-format off */
static const struct argp_option option_table[] = {
    { "config",       'c',              "FILE",      0, "configuration file (else $SLUICE_CONF, else the defaults)", 1 },
    { "state",        OPT_STATE,        "DIR",       0, "folder of the state", 1 },
    { "socket",       OPT_SOCKET,       "PATH",      0, "Unix socket to listen on", 1 },
    { "listen",       OPT_LISTEN,       "HOST:PORT", 0, "TCP port to listen on as well; wants auth in the configuration", 1 },
    { "log",          OPT_LOG,          "FILE",      0, "log file instead of stderr", 1 },
    { "log-level",    OPT_LEVEL,        "WORD",      0, "err, warning, info (default) or debug", 1 },
    { "ready-fd",     OPT_READY,        "N",         0, "descriptor that hears \"ready\", or why not", 1 },
    { "check-config", OPT_CHECK_CONFIG, NULL,        0, "read the configuration and say whether it is good", 2 },
    { "check",        OPT_CHECK,        NULL,        0, "examine the state", 2 },
    { "recover",      OPT_RECOVER,      NULL,        0, "rebuild a damaged state; the damaged file is kept", 2 },
    { "restore",      OPT_RESTORE,      "FILE",      0, "put a backup in place of the state; the present file is kept", 2 },
    { 0 },
};
/* clang-format on */

static error_t set_task(struct argp_state *state, struct options *o, enum task task)
{
    if (o->task != TASK_SERVE && o->task != task)
        argp_error(state, "only one of --check-config, --check, --recover and --restore at a time");
    o->task = task;
    return 0;
}

static void set_ready(struct argp_state *state, struct options *o, const char *arg)
{
    uint64_t fd;
    struct err e;

    if (str_parse_u64("--ready-fd", arg, 0, 65535, &fd, &e) < 0)
        argp_error(state, "%s", e.text);
    o->ready_fd = (int)fd;
}

static error_t option_set(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;

    switch (key) {
    case 'c':
        o->start.config = arg;
        return 0;
    case OPT_STATE:
        o->start.state_dir = arg;
        return 0;
    case OPT_SOCKET:
        o->start.socket = arg;
        return 0;
    case OPT_LISTEN:
        o->start.listen = arg;
        return 0;
    case OPT_LOG:
        o->log = arg;
        return 0;
    case OPT_LEVEL:
        if (log_level_parse(arg, &o->level) < 0)
            argp_error(state, "--log-level %s: err, warning, info or debug", arg);
        return 0;
    case OPT_READY:
        set_ready(state, o, arg);
        return 0;
    case OPT_CHECK_CONFIG:
        return set_task(state, o, TASK_CHECK_CONFIG);
    case OPT_CHECK:
        return set_task(state, o, TASK_CHECK);
    case OPT_RECOVER:
        return set_task(state, o, TASK_RECOVER);
    case OPT_RESTORE:
        o->backup = arg;
        return set_task(state, o, TASK_RESTORE);
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected: sluiced takes options only", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const char *argp_program_version = "sluiced " PACKAGE_VERSION;
static const struct argp argp = { option_table, option_set, NULL, "The scheduler of a Sluice farm.", NULL, NULL, NULL };

/* ---- being ready ---- */

static void tell_fd(int fd, const char *text)
{
    ssize_t n;

    if (fd < 0)
        return;
    n = write(fd, text, strlen(text));
    n = n < 0 ? n : write(fd, "\n", 1);
    if (n < 0)
        log_debug("--ready-fd: nobody reads it");
    close(fd);
}

static void tell_manager(const char *text)
{
    struct err e;

    if (notify_send(text, &e) < 0)
        log_warning("the service manager was not told %s: %s", text, e.text);
}

/* ---- the watchdog: a loop that stands still is not alive ---- */

static void alive_cb(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop;
    (void)w;
    (void)events;
    tell_manager("WATCHDOG=1");
}

static void watchdog_start(ev_timer *t, struct ev_loop *loop)
{
    double every = notify_watchdog_s();

    ev_timer_init(t, alive_cb, every, every);
    if (every > 0)
        ev_timer_start(loop, t);
}

/* ---- signals ---- */

static void hang_handler(int signal_number)
{
    static const char text[] = "sluiced: something hangs; ending all the same\n";
    ssize_t n = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)n;
    (void)signal_number;
    _exit(1);
}

static void end_cb(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)events;
    log_info("ending: signal %d", w->signum);
    alarm(stop_hard_s);
    ev_break(loop, EVBREAK_ALL);
}

static void reload_cb(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)loop;
    (void)events;
    sluiced_reload(w->data);
}

struct signals { ev_signal term, intr, hup; };

static void signals_start(struct signals *s, struct ev_loop *loop, struct sluiced *d)
{
    struct sigaction hang = { .sa_handler = hang_handler };

    sigaction(SIGALRM, &hang, NULL);
    signal(SIGPIPE, SIG_IGN);
    ev_signal_init(&s->term, end_cb, SIGTERM);
    ev_signal_init(&s->intr, end_cb, SIGINT);
    ev_signal_init(&s->hup, reload_cb, SIGHUP);
    s->hup.data = d;
    ev_signal_start(loop, &s->term);
    ev_signal_start(loop, &s->intr);
    ev_signal_start(loop, &s->hup);
}

static void signals_stop(struct signals *s, struct ev_loop *loop)
{
    ev_signal_stop(loop, &s->term);
    ev_signal_stop(loop, &s->intr);
    ev_signal_stop(loop, &s->hup);
}

/* ---- what it is started for ---- */

static void raise_descriptors(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int serve(const struct options *o)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);     /* not the default one, which would reap the children of hook.c */
    struct sluiced d;
    struct signals signals;
    ev_timer watchdog;
    struct err e;
    unsigned lost;

    if (loop == NULL) {
        log_err("cannot start: no event loop");
        return ERR_FAILED;
    }
    raise_descriptors();
    signals_start(&signals, loop, &d);
    if (sluiced_start(&d, loop, &o->start, &e) < 0) {
        tell_fd(o->ready_fd, e.text);
        err_prefix(&e, "cannot start");
        log_last_word(e.text);
        log_close();
        return e.code;
    }
    tell_fd(o->ready_fd, "ready");
    tell_manager("READY=1");
    watchdog_start(&watchdog, loop);
    ev_run(loop, 0);
    tell_manager("STOPPING=1");
    ev_timer_stop(loop, &watchdog);
    lost = sluiced_stop(&d, stop_s);
    signals_stop(&signals, loop);
    if (lost > 0)
        log_err("%u changes could not be stored before the end", lost);
    ev_loop_destroy(loop);
    log_info("ended");
    log_close();
    return lost == 0 ? 0 : ERR_FAILED;
}

static int examine(const struct options *o)
{
    struct err e;
    char *report = NULL;
    struct conf *conf = sluiced_conf(&o->start, &e);
    int rc = -1;

    if (conf != NULL) {
        rc = o->task == TASK_CHECK ? db_check(conf->state_dir, &report, &e)
           : o->task == TASK_RECOVER ? db_recover(conf->state_dir, &report, &e)
           : db_restore(conf->state_dir, o->backup, &report, &e);
    }
    if (report != NULL)
        fputs(report, stdout);
    if (rc < 0)
        fprintf(stderr, "sluiced: %s\n", e.text);
    free(report);
    conf_destroy(conf);
    return rc < 0 ? (int)e.code : 0;
}

static int check_config(const struct options *o)
{
    struct err e;
    struct conf *conf = sluiced_conf(&o->start, &e);
    struct rights *rights = conf == NULL ? NULL : rights_create(conf, &e);
    int rc = rights == NULL ? (int)e.code : 0;

    if (rc == 0)
        printf("%s: good\n", o->start.config == NULL ? "defaults" : o->start.config);
    else
        fprintf(stderr, "sluiced: %s\n", e.text);
    rights_destroy(rights);
    conf_destroy(conf);
    return rc;
}

/* The log's file: the option's, else the configuration's. */
static int log_start(const struct options *o, struct err *e)
{
    struct conf *conf = o->log == NULL && o->task == TASK_SERVE ? sluiced_conf(&o->start, NULL) : NULL;
    int rc = log_open("sluiced", o->log != NULL ? o->log : conf != NULL ? conf->log : NULL, o->level, e);

    conf_destroy(conf);
    return rc;
}

int main(int argc, char **argv)
{
    struct options o = { .level = LOG_LEVEL_INFO, .ready_fd = -1 };
    struct err e;

    file_watch_stdout();
    argp_err_exit_status = ERR_USAGE;
    o.start.config = getenv("SLUICE_CONF");
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    umask(022);
    if (log_start(&o, &e) < 0) {
        fprintf(stderr, "sluiced: %s\n", e.text);
        tell_fd(o.ready_fd, e.text);
        return e.code;
    }
    if (o.task == TASK_SERVE)
        return serve(&o);
    if (o.task == TASK_CHECK_CONFIG)
        return check_config(&o);
    return examine(&o);
}
