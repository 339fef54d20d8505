/* source_main.c - sluice-source: holds parts of time-frames and serves them to workers
 *
 * sluice-source replay: plays files into a run (replay.c). Here are its options, signals, progress, summary and exit status.
 */
#include "config.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ev.h>
#include <jansson.h>

#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "pace.h"
#include "peer.h"
#include "replay.h"
#include "str.h"

#define TERM_LIMIT_S 1.5             /* SIGTERM, SIGHUP: a daemon ends within 2 s whatever happens */
#define INT_LIMIT_S  10.0            /* SIGINT: those under way get a chance; a second one ends at once */
#define SAME_SIGNAL_NS (CLOCK_SECOND / 2)

struct options {
    struct replay_conf replay;
    const char *log;
    enum log_level log_level;
    int   ready_fd;
    bool  progress, json;
};

struct program {
    struct options opt;
    struct ev_loop *loop;
    struct replay  *replay;
    ev_signal  on_int, on_term, on_hup;
    ev_timer   tick;
    int        signal;               /* that ends us, 0: none */
    int64_t    signal_ns;            /* when it came */
    bool       ended;
    struct err why;
    uint64_t   last_released;        /* at the last tick */
    double     last_seconds;
};

/* ---- options --------------------------------------------------------------------------------- */

enum {
    OPT_SERVER = 256, OPT_RUN, OPT_RATE, OPT_LOOP, OPT_PREREAD, OPT_THREADS, OPT_SOURCES, OPT_MEMORY, OPT_MAX_BAD, OPT_LOST,
    OPT_LISTEN, OPT_AUTH, OPT_NAME, OPT_VERIFY, OPT_PROGRESS, OPT_JSON, OPT_LOG, OPT_LOG_LEVEL, OPT_READY_FD,
};

/* clang-format off */
static const struct argp_option rows[] = {
    { "server",       OPT_SERVER,    "ADDRESS",  0, "where sluiced listens: unix:PATH or HOST:PORT", 0 },
    { "run",          OPT_RUN,       "ID",       0, "the run to take part in", 0 },
    { "rate",         OPT_RATE,      "HZ|max",   0, "time-frames a second, on a fixed schedule from the first (max)", 0 },
    { "loop",         OPT_LOOP,      "N",        0, "go through the files so many times (1)", 0 },
    { "preread",      OPT_PREREAD,   "K",        0, "time-frames read ahead (8)", 0 },
    { "threads",      OPT_THREADS,   "T",        0, "threads that read (2)", 0 },
    { "sources",      OPT_SOURCES,   "S",        0, "cut each time-frame into so many parts, and stand for as many sources (1)", 0 },
    { "memory",       OPT_MEMORY,    "SIZE",     0, "memory to hold time-frames in, at most (half of what is available)", 0 },
    { "max-bad",      OPT_MAX_BAD,   "N",        0, "give up when more files than that are bad (any number may be)", 0 },
    { "lost-timeout", OPT_LOST,      "DURATION", 0, "how long to try to reach a lost sluiced (60s)", 0 },
    { "listen",       OPT_LISTEN,    "ADDRESS",  0, "where workers reach it (a Unix socket of its own)", 0 },
    { "auth",         OPT_AUTH,      "METHOD",   0, "how to prove oneself on TCP (munge)", 0 },
    { "name",         OPT_NAME,      "NAME",     0, "of the sources, -0, -1, ... is added (replay-PID)", 0 },
    { "verify",       OPT_VERIFY,    NULL,       0, "check the header of every page before a time-frame is announced", 0 },
    { "progress",     OPT_PROGRESS,  NULL,       0, "a line of JSON a second on the standard error", 0 },
    { "json",         OPT_JSON,      NULL,       0, "the summary as one JSON document", 0 },
    { "log",          OPT_LOG,       "FILE",     0, "log there (standard error)", 0 },
    { "log-level",    OPT_LOG_LEVEL, "WORD",     0, "err, warning, info or debug (info)", 0 },
    { "ready-fd",     OPT_READY_FD,  "N",        0, "write \"ready\" there once the run took the sources", 0 },
    { 0 },
};
/* clang-format on */

static int parse_count(const char *what, const char *text, uint64_t max, unsigned *out, struct err *e)
{
    uint64_t v;

    if (str_parse_u64(what, text, 1, max, &v, e) < 0)
        return -1;
    *out = (unsigned)v;
    return 0;
}

static int parse_option(struct options *o, int key, char *text, struct err *e)
{
    struct replay_conf *r = &o->replay;
    uint64_t number;
    int64_t ns;

    switch (key) {
    case OPT_SERVER:    r->server = text; return 0;
    case OPT_RUN:       return str_parse_u64("--run", text, 1, UINT64_MAX, &r->run, e);
    case OPT_RATE:      return pace_parse(text, &r->rate, e);
    case OPT_LOOP:      return str_parse_u64("--loop", text, 1, 1000000000, &r->loops, e);
    case OPT_PREREAD:   return parse_count("--preread", text, 4096, &r->preread, e);
    case OPT_THREADS:   return parse_count("--threads", text, 256, &r->threads, e);
    case OPT_SOURCES:   return parse_count("--sources", text, 4096, &r->sources, e);
    case OPT_MEMORY:    return str_parse_size(text, &r->memory, e);
    case OPT_MAX_BAD:   return str_parse_u64("--max-bad", text, 0, UINT64_MAX, &r->max_bad, e);
    case OPT_LOST:
        if (clock_parse_duration(text, &ns, e) < 0)
            return -1;
        r->lost_s = (double)ns * 1e-9;
        return 0;
    case OPT_LISTEN:    r->listen = text; return 0;
    case OPT_AUTH:
        if (strcmp(text, "munge") != 0 && strncmp(text, "munge:", 6) != 0)
            return err_set(e, ERR_USAGE, "--auth '%s': munge or munge:SOCKET is wanted", text);
        r->method = text;
        return 0;
    case OPT_NAME:
        if (!str_is_name(text) || strlen(text) > 57)
            return err_set(e, ERR_USAGE, "--name '%s': up to 57 letters, digits, '.', '_' and '-' are wanted", text);
        r->name = text;
        return 0;
    case OPT_VERIFY:    r->verify = true; return 0;
    case OPT_PROGRESS:  o->progress = true; return 0;
    case OPT_JSON:      o->json = true; return 0;
    case OPT_LOG:       o->log = text; return 0;
    case OPT_LOG_LEVEL:
        if (log_level_parse(text, &o->log_level) == 0)
            return 0;
        return err_set(e, ERR_USAGE, "--log-level '%s': err, warning, info or debug is wanted", text);
    case OPT_READY_FD:
        if (str_parse_u64("--ready-fd", text, 0, 1 << 20, &number, e) < 0)
            return -1;
        o->ready_fd = (int)number;
        return 0;
    }
    return 1;
}

static error_t on_option(int key, char *text, struct argp_state *state)
{
    struct options *o = state->input;
    struct err e;

    if (key == ARGP_KEY_ARGS) {
        o->replay.paths = state->argv + state->next;
        o->replay.n_paths = (size_t)(state->argc - state->next);
        return 0;
    }
    if (key == ARGP_KEY_END) {
        if (o->replay.server == NULL || o->replay.run == 0 || o->replay.n_paths == 0)
            argp_error(state, "--server ADDRESS, --run ID and at least one FILE are wanted");
        return 0;
    }
    if (key < OPT_SERVER)
        return ARGP_ERR_UNKNOWN;
    if (parse_option(o, key, text, &e) < 0)
        argp_error(state, "%s", e.text);
    return 0;
}

static void read_options(int argc, char **argv, struct options *o)
{
    static const struct argp argp = {
        rows, on_option, "FILE...",
        "Plays files of time-frames into a run, as if a detector sent them.\v"
        "Files that are empty, cut short, damaged or no regular files are skipped, counted and named; then the exit "
        "status is 10.", NULL, NULL, NULL,
    };
    static const char usage[] = "usage: sluice-source replay [OPTION...] FILE...  (replay --help says more)\n";

    file_watch_stdout();
    argp_program_version = "sluice-source " PACKAGE_VERSION;
    argp_err_exit_status = ERR_USAGE;
    *o = (struct options){
        .replay = { .loops = 1, .preread = 8, .threads = 2, .sources = 1, .max_bad = UINT64_MAX, .lost_s = 60 },
        .log_level = LOG_LEVEL_INFO, .ready_fd = -1,
    };
    if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "--help") == 0)) {
        printf("%s", argv[1][2] == 'v' ? "sluice-source " PACKAGE_VERSION "\n" : usage);
        exit(0);
    }
    if (argc < 2 || strcmp(argv[1], "replay") != 0) {
        fputs(usage, stderr);
        exit(ERR_USAGE);
    }
    argv[1] = "sluice-source replay";        /* what argp calls us in its messages */
    argp_parse(&argp, argc - 1, argv + 1, 0, NULL, o);
    o->replay.first_s = o->replay.lost_s < 5 ? o->replay.lost_s : 5;
    if (o->replay.method == NULL && !peer_is_unix(o->replay.server))
        o->replay.method = "munge";
}

/* ---- what is shown ---------------------------------------------------------------------------- */

static json_t *number_or_null(double v)
{
    return isfinite(v) ? json_real(v) : json_null();
}

static double share(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void print_json(FILE *to, json_t *j, size_t flags)
{
    char *text = json_dumps(j, flags | JSON_REAL_PRECISION(9));

    fprintf(to, "%s\n", text);
    fflush(to);
    free(text);
    json_decref(j);
}

static void print_progress(struct program *p)
{
    struct replay_numbers n;

    replay_numbers(p->replay, &n);
    double passed = n.seconds - p->last_seconds;
    double rate = passed > 0 ? (double)(n.released - p->last_released) / passed : 0;
    p->last_released = n.released;
    p->last_seconds = n.seconds;
    json_t *line = json_pack("{s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:I}", "announced", (json_int_t)n.announced,
                             "released", (json_int_t)n.released, "total", (json_int_t)n.total, "rate", rate,
                             "wait_input", share(n.wait[REPLAY_WAIT_INPUT], n.seconds),
                             "wait_buffer", share(n.wait[REPLAY_WAIT_BUFFER], n.seconds),
                             "wait_window", share(n.wait[REPLAY_WAIT_WORKERS], n.seconds),
                             "skipped", (json_int_t)n.skipped);
    print_json(stderr, line, JSON_COMPACT);
}

static json_t *bad_files(const struct replay *r)
{
    json_t *list = json_array();

    for (size_t i = 0; i < replay_bad_count(r); i++) {
        const char *path, *text;
        uint64_t offset, tfs;
        replay_bad(r, i, &path, &offset, &text, &tfs);
        char *p = mem_strdup(path), *t = mem_strdup(text);
        str_mend(p, strlen(p));
        str_mend(t, strlen(t));
        json_array_append_new(list, json_pack("{s:s, s:I, s:s, s:I}", "path", p, "offset", (json_int_t)offset, "text", t, "tfs", (json_int_t)tfs));
        free(p);
        free(t);
    }
    return list;
}

static const char *ended_word(const struct program *p)
{
    if (p->signal != 0)
        return "interrupted";
    return p->why.code == ERR_CANCELLED ? "stopped" : p->why.code != ERR_NONE ? "failed" : "complete";
}

static void print_summary_json(const struct program *p, const struct replay_numbers *n)
{
    char now[CLOCK_TEXT];
    json_t *row = json_pack("{s:I, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "run", (json_int_t)p->opt.replay.run,
                            "ended", ended_word(p), "tfs", (json_int_t)n->announced,
                            "released", (json_int_t)n->released, "total", (json_int_t)n->total,
                            "loops", (json_int_t)n->passes, "sources", (json_int_t)n->sources,
                            "files", (json_int_t)p->opt.replay.n_paths);

    json_object_set_new(row, "rate_wanted", n->rate_wanted > 0 ? json_real(n->rate_wanted) : json_null());
    json_object_set_new(row, "rate_offered", number_or_null(n->rate_offered));
    json_object_set_new(row, "rate_achieved", number_or_null(n->rate_achieved));
    json_object_set_new(row, "seconds", json_real(n->seconds));
    json_object_set_new(row, "bytes", json_integer((json_int_t)n->bytes));
    json_object_set_new(row, "bytes_per_s", json_real(share((double)n->bytes, n->seconds)));
    json_object_set_new(row, "wait_input", json_real(share(n->wait[REPLAY_WAIT_INPUT], n->seconds)));
    json_object_set_new(row, "wait_buffer", json_real(share(n->wait[REPLAY_WAIT_BUFFER], n->seconds)));
    json_object_set_new(row, "wait_workers", json_real(share(n->wait[REPLAY_WAIT_WORKERS], n->seconds)));
    json_object_set_new(row, "skipped", json_integer((json_int_t)n->skipped));
    json_object_set_new(row, "skipped_files", bad_files(p->replay));
    json_object_set_new(row, "read_bytes", json_integer((json_int_t)n->read_bytes));
    json_object_set_new(row, "memory", json_integer((json_int_t)n->memory));
    json_object_set_new(row, "pulls", json_integer((json_int_t)n->pulls));
    json_object_set_new(row, "stale_pulls", json_integer((json_int_t)n->stale));
    json_object_set_new(row, "turned_away", json_integer((json_int_t)n->turned_away));
    json_object_set_new(row, "reconnects", json_integer((json_int_t)n->reconnects));
    json_object_set_new(row, "text", p->why.code != ERR_NONE ? json_string(p->why.text) : json_null());
    print_json(stdout, json_pack("{s:{s:s, s:i}, s:{s:s, s:n}, s:[o]}", "schema", "name", "replay", "version", 1,
                                 "meta", "time", clock_rfc3339(clock_wall_ns(), now), "seq", "replay", row), JSON_INDENT(2));
}

static const char *rate_text(double rate, char out[32])
{
    if (isfinite(rate))
        snprintf(out, 32, "%.4g/s", rate);
    else
        snprintf(out, 32, "-");
    return out;
}

static void print_summary(const struct program *p, const struct replay_numbers *n)
{
    char bytes[32], speed[32], wanted[32] = "max", offered[32], achieved[32];

    if (n->rate_wanted > 0)
        snprintf(wanted, sizeof wanted, "%.4g/s", n->rate_wanted);
    printf("run %" PRIu64 ": %" PRIu64 " of %" PRIu64 " time-frames announced, %" PRIu64 " let go, %s%s%s\n",
           p->opt.replay.run, n->announced, n->total, n->released, ended_word(p), p->why.code != ERR_NONE ? ": " : "",
           p->why.code != ERR_NONE ? p->why.text : "");
    printf("rate: %s wanted, %s offered, %s achieved; ", wanted, rate_text(n->rate_offered, offered), rate_text(n->rate_achieved, achieved));
    printf("%s in %.2f s, %s/s\n", str_size_text(n->bytes, bytes), n->seconds,
           str_size_text((uint64_t)share((double)n->bytes, n->seconds), speed));
    printf("waited: %.0f %% for input, %.0f %% for buffer, %.0f %% for workers\n",
           100 * share(n->wait[REPLAY_WAIT_INPUT], n->seconds), 100 * share(n->wait[REPLAY_WAIT_BUFFER], n->seconds),
           100 * share(n->wait[REPLAY_WAIT_WORKERS], n->seconds));
    if (n->skipped > 0)
        printf("skipped: %" PRIu64 " of %zu files\n", n->skipped, p->opt.replay.n_paths);
}

/* ---- the way through ------------------------------------------------------------------------- */

static void tell_ready(struct program *p, const char *line)
{
    struct err e;
    char text[600];

    if (p->opt.ready_fd < 0)
        return;
    int n = snprintf(text, sizeof text, "%s\n", line);
    if (file_write_all(p->opt.ready_fd, text, (size_t)n, &e) < 0)
        log_warning("--ready-fd %d: %s", p->opt.ready_fd, e.text);
    close(p->opt.ready_fd);
    p->opt.ready_fd = -1;
}

static void on_ready(void *arg)
{
    tell_ready(arg, "ready");
}

static void on_ended(void *arg, const struct err *why)
{
    struct program *p = arg;

    p->ended = true;
    p->why = *why;
    ev_break(p->loop, EVBREAK_ALL);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
    struct program *p = w->data;

    (void)revents;
    /* A second one ends at once, but for the same key pressed once: a terminal and `sluice replay` both pass it on. */
    if (p->signal != 0) {
        if (clock_mono_ns() - p->signal_ns > SAME_SIGNAL_NS)
            ev_break(loop, EVBREAK_ALL);
        return;
    }
    p->signal = w->signum;
    p->signal_ns = clock_mono_ns();
    replay_stop(p->replay, w->signum == SIGINT ? "interrupted" : "terminated",
                w->signum == SIGINT ? INT_LIMIT_S : TERM_LIMIT_S);
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct pollfd reader = { .fd = STDERR_FILENO, .events = POLLOUT };

    (void)loop, (void)revents;
    /* Whoever reads it may stand still; the loop does not wait for that, the next line says as much. */
    if (poll(&reader, 1, 0) == 1 && (reader.revents & POLLOUT))
        print_progress(w->data);
}

static void watch(struct program *p)
{
    ev_signal_init(&p->on_int, on_signal, SIGINT);
    ev_signal_init(&p->on_term, on_signal, SIGTERM);
    ev_signal_init(&p->on_hup, on_signal, SIGHUP);
    ev_timer_init(&p->tick, on_tick, 1, 1);
    p->on_int.data = p->on_term.data = p->on_hup.data = p->tick.data = p;
    ev_signal_start(p->loop, &p->on_int);
    ev_signal_start(p->loop, &p->on_term);
    ev_signal_start(p->loop, &p->on_hup);
    if (p->opt.progress)
        ev_timer_start(p->loop, &p->tick);
}

static int exit_status(const struct program *p, const struct replay_numbers *n)
{
    if (p->signal != 0)
        return 128 + p->signal;
    if (p->why.code != ERR_NONE)
        return p->why.code;
    if (n->announced == 0)
        return ERR_FAILED;           /* what the scan found sound could not be read */
    return n->skipped > 0 ? ERR_SOME_FAILED : 0;
}

static int conclude(struct program *p)
{
    struct replay_numbers n;

    replay_numbers(p->replay, &n);
    if (p->opt.progress)
        print_progress(p);
    if (p->opt.json)
        print_summary_json(p, &n);
    else
        print_summary(p, &n);
    if (p->why.code != ERR_NONE && p->signal == 0) {
        log_err("%s", p->why.text);
        tell_ready(p, p->why.text);
    }
    return exit_status(p, &n);
}

static int replay_run(struct program *p, struct names **names, struct err *e)
{
    if (!peer_is_unix(p->opt.replay.server)) {
        *names = names_create(p->loop, e);
        if (*names == NULL)
            return -1;
    }
    p->opt.replay.loop = p->loop;
    p->opt.replay.names = *names;
    p->replay = replay_create(&p->opt.replay, e);
    if (p->replay == NULL || replay_start(p->replay, on_ready, on_ended, p, e) < 0)
        return -1;
    watch(p);
    ev_run(p->loop, 0);
    return 0;
}

int main(int argc, char **argv)
{
    struct program p = { .ended = false };
    struct names *names = NULL;
    struct err e;
    int status;

    read_options(argc, argv, &p.opt);
    if (log_open("sluice-source", p.opt.log, p.opt.log_level, &e) < 0)
        log_die(&e);
    signal(SIGPIPE, SIG_IGN);
    p.loop = ev_default_loop(EVFLAG_AUTO);
    if (replay_run(&p, &names, &e) == 0) {
        status = conclude(&p);
    } else {
        log_last_word(e.text);
        tell_ready(&p, e.text);
        status = e.code;
    }
    if (replay_destroy(p.replay) < 0) {      /* a reader hangs in a file system that does not answer */
        log_close();
        _exit(status);
    }
    names_destroy(names);
    log_close();
    ev_loop_destroy(p.loop);
    return status;
}
