/* cmd_replay.c - replay: a run, a source that plays files into it, and what came of both
 *
 * The source is a program of its own (sluice-source replay): it holds the data until they are released. Here its progress becomes a bar, its
 * other lines go through, and its summary is shown; a run that was started here is stopped here, whatever happened in between.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "local.h"
#include "mem.h"
#include "message.h"
#include "progress.h"
#include "run_options.h"
#include "scan.h"
#include "show.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AWAY_S = 30, SUMMARY_LIMIT = 16 << 20, LINE_LIMIT = 1 << 16, INTERRUPTED = 128 + SIGINT };

/* --- the source ----------------------------------------------------------------------------- */

static volatile sig_atomic_t source_pid, interrupted;

/* The source ends in order when it is told; then so do we. */
static void pass_on(int sig)
{
    interrupted = sig;
    if (source_pid > 0)
        kill((pid_t)source_pid, sig);
}

static void catch_signals(void)
{
    struct sigaction sa = { .sa_handler = pass_on };

    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    sigaction(SIGHUP, &sa, NULL);
}

/* Once the source is gone there is only the wait for the run: an interrupt ends this program, the run stops without it. */
static void release_signals(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

static void add(char ***argv, size_t *n, const char *text)
{
    *argv = mem_grow(*argv, *n + 2, sizeof(**argv));
    (*argv)[(*n)++] = mem_strdup(text);
    (*argv)[*n] = NULL;
}

static void argv_free(char **argv)
{
    for (size_t i = 0; argv != NULL && argv[i] != NULL; i++)
        free(argv[i]);
    free(argv);
}

/* The options that go on to the source unchanged. */
static char **source_argv(struct context *ctx, const struct args *a, const char *program, uint64_t run)
{
    static const char *const pass[] = { "rate", "loop", "preread", "threads", "sources", "max-bad", "listen" };
    char **argv = NULL, id[32];
    size_t n = 0;

    snprintf(id, sizeof(id), "%" PRIu64, run);
    add(&argv, &n, program);
    add(&argv, &n, "replay");
    add(&argv, &n, "--server");
    add(&argv, &n, call_address(ctx));
    add(&argv, &n, "--run");
    add(&argv, &n, id);
    if (ctx->tcp) {
        add(&argv, &n, "--auth");
        add(&argv, &n, ctx->method);
    }
    for (size_t i = 0; i < ARRAY_LEN(pass); i++) {
        if (args_has(a, pass[i])) {
            char *option = mem_printf("--%s=%s", pass[i], args_text(a, pass[i], ""));

            add(&argv, &n, option);
            free(option);
        }
    }
    if (args_has(a, "verify"))
        add(&argv, &n, "--verify");
    add(&argv, &n, "--progress");
    add(&argv, &n, "--json");
    add(&argv, &n, "--log-level=warning");
    add(&argv, &n, "--");
    for (int i = 0; i < a->n; i++)
        add(&argv, &n, a->at[i]);
    return argv;
}

/* Starts the source with its two outputs on pipes. */
static pid_t spawn(char **argv, int out[2], struct err *e)
{
    int p[2], q[2];
    pid_t pid, parent = getpid();

    if (pipe2(p, O_CLOEXEC) < 0 || pipe2(q, O_CLOEXEC) < 0)
        return err_errno(e, ERR_FAILED, "pipe");
    fflush(stdout);
    pid = fork();
    if (pid < 0)
        return err_errno(e, ERR_FAILED, "fork");
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);       /* it does not outlive this program */
        if (getppid() != parent)
            _exit(ERR_FAILED);
        signal(SIGHUP, SIG_DFL);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        dup2(p[1], STDOUT_FILENO);
        dup2(q[1], STDERR_FILENO);
        execv(argv[0], argv);
        dprintf(STDERR_FILENO, "%s: %s\n", argv[0], strerror(errno));
        _exit(ERR_FAILED);
    }
    close(p[1]);
    close(q[1]);
    out[0] = p[0];
    out[1] = q[0];
    return pid;
}

/* --- what it says --------------------------------------------------------------------------- */

struct talk {
    struct progress bar;
    struct str summary, line;
    bool told;              /* that it was interrupted */
};

static void take_progress(struct talk *t, const json_t *j)
{
    char beside[160];

    snprintf(beside, sizeof(beside), "%.1f/s, waiting: input %.0f%%, buffer %.0f%%, workers %.0f%%",
             json_number_value(json_object_get(j, "rate")), 100 * json_number_value(json_object_get(j, "wait_input")),
             100 * json_number_value(json_object_get(j, "wait_buffer")), 100 * json_number_value(json_object_get(j, "wait_window")));
    progress_show(&t->bar, (uint64_t)json_integer_value(json_object_get(j, "released")),
                  (uint64_t)json_integer_value(json_object_get(j, "total")), beside);
}

/* What a line of the source's log says, without time, program and level: they are of use in a file only. */
static const char *said(const char *line)
{
    const char *word = strstr(line, "] err: ");

    if (strstr(line, " sluice-source[") == NULL)
        return line;
    word = word != NULL ? word : strstr(line, "] warning: ");
    return word != NULL ? strchr(word, ':') + 2 : line;
}

static void take_line(struct talk *t, const char *line)
{
    json_t *j = line[0] == '{' ? json_loads(line, 0, NULL) : NULL;
    char *shown;

    if (j != NULL) {
        take_progress(t, j);
        json_decref(j);
        return;
    }
    progress_clear(&t->bar);
    shown = show_text(said(line));
    fprintf(stderr, "%s%s\n", said(line) != line ? "sluice: " : "", shown);
    free(shown);
}

static void take_lines(struct talk *t, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\n' && t->line.len < LINE_LIMIT) {
            str_addn(&t->line, text + i, 1);
            continue;
        }
        take_line(t, str_text(&t->line));
        str_clear(&t->line);
    }
}

/* The source ends when what it has in flight is settled, or at once when it is told again. */
static void tell_interrupted(struct talk *t)
{
    if (!interrupted || t->told)
        return;
    t->told = true;
    progress_clear(&t->bar);
    fprintf(stderr, "waiting up to 10 s for the time-frames in flight; interrupt again to give them up\n");
}

/* Reads both pipes until they end. */
static void listen_to(struct talk *t, const int out[2])
{
    struct pollfd p[2] = { { .fd = out[0], .events = POLLIN }, { .fd = out[1], .events = POLLIN } };
    char buf[65536];

    while (p[0].fd >= 0 || p[1].fd >= 0) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            break;
        tell_interrupted(t);
        for (int i = 0; i < 2; i++) {
            ssize_t n;

            if (p[i].fd < 0 || p[i].revents == 0)
                continue;
            n = read(p[i].fd, buf, sizeof(buf));
            if (n <= 0 && !(n < 0 && errno == EINTR))
                p[i].fd = -1;
            else if (n > 0 && i == 1)
                take_lines(t, buf, (size_t)n);
            else if (n > 0 && t->summary.len < SUMMARY_LIMIT)
                str_addn(&t->summary, buf, (size_t)n);
            p[i].revents = 0;
        }
    }
    if (t->line.len > 0)
        take_line(t, str_text(&t->line));
    progress_clear(&t->bar);
}

/* An exit status of ours is told by the source itself; a signal is not. */
static int status_of(pid_t pid, struct err *e)
{
    int status;

    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return err_errno(e, ERR_FAILED, "sluice-source");
    source_pid = 0;
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (interrupted)
        return INTERRUPTED;
    return err_set(e, ERR_FAILED, "sluice-source was ended by signal %d (%s): of what was in flight only what nodes have whole is done, the rest was not played", WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
}

/* --- the run -------------------------------------------------------------------------------- */

/* The largest time-frame of the files: sluiced refuses a run that no buffer could hold. Damaged files are the source's to report. */
static uint64_t largest(const struct args *a)
{
    uint64_t size = 0;

    for (int i = 0; i < a->n && !interrupted; i++) {
        struct scan s;

        scan_file(a->at[i], &s);
        size = s.largest > size ? s.largest : size;
        scan_free(&s);
    }
    return size;
}

static int start_run(struct context *ctx, const struct args *a, uint64_t *id, struct err *e)
{
    Sluice__StartRun q = SLUICE__START_RUN__INIT;
    Sluice__StartedRun *s = NULL;

    if (run_options(a, &q, e) == 0) {
        q.name = q.name != NULL ? q.name : (char *)"replay";
        q.tf_size = largest(a);
        q.has_tf_size = q.tf_size > 0;
        s = call(ctx, &q.base, SLUICE__TYPE__STARTED_RUN, CALL_LIMIT_S, e);
    }
    if (s != NULL)
        *id = s->id;
    run_options_free(&q);
    call_free(s);
    return s != NULL ? 0 : -1;
}

static Sluice__Runs *stop_run(struct context *ctx, uint64_t id, double away_s, struct err *e)
{
    Sluice__StopRun q = SLUICE__STOP_RUN__INIT;

    q.has_id = 1;
    q.id = id;
    return call_patient(ctx, &q.base, SLUICE__TYPE__RUNS, 0, NULL, away_s, e);
}

static const Sluice__Run *find_run(const Sluice__Runs *runs, uint64_t id)
{
    for (size_t i = 0; runs != NULL && i < runs->n_runs; i++)
        if (runs->runs[i]->id == id)
            return runs->runs[i];
    return NULL;
}

static uint64_t dropped(const Sluice__Run *r)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < r->n_dropped; i++)
        sum += r->dropped[i]->value;
    return sum;
}

/* --- the summary ---------------------------------------------------------------------------- */

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

/* Why some are not done, and where to look. */
static void print_reasons(const Sluice__Run *r)
{
    const struct { const char *what; Sluice__Counter *const *list; size_t n; } kinds[] = {
        { "failed tries", r->failures, r->n_failures }, { "dropped", r->dropped, r->n_dropped },
    };

    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        for (size_t k = 0; k < kinds[i].n; k++) {
            char *name = show_text(kinds[i].list[k]->name != NULL ? kinds[i].list[k]->name : "");

            printf("%s: %s %" PRIu64 "%s\n", kinds[i].what, name, kinds[i].list[k]->value,
                   i == 0 ? " (sluice logs --node @all says more)" : "");
            free(name);
        }
    }
}

static void print_rate(const json_t *row, const char *key, const char *word)
{
    if (json_is_number(json_object_get(row, key)))
        printf("%.4g/s %s", number(row, key), word);
}

static void print_summary(const json_t *row, const Sluice__Run *r)
{
    char bytes[32], speed[32];
    const json_t *wanted = json_object_get(row, "rate_wanted");

    printf("run %.0f: %.0f time-frame%s", number(row, "run"), number(row, "tfs"), number(row, "tfs") == 1 ? "" : "s");
    if (r != NULL)
        printf(", %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " dropped, %" PRIu64 " lost", r->done, r->failed, dropped(r), r->lost);
    printf("\n");
    if (r != NULL)
        print_reasons(r);
    printf("rate: ");
    if (json_is_number(wanted))
        printf("%.4g/s wanted, ", json_number_value(wanted));
    else
        printf("as fast as it goes, ");
    print_rate(row, "rate_offered", "offered, ");
    print_rate(row, "rate_achieved", "achieved; ");
    printf("%s in %.2f s, %s/s\n", str_size_text((uint64_t)number(row, "bytes"), bytes), number(row, "seconds"),
           str_size_text((uint64_t)number(row, "bytes_per_s"), speed));
    printf("waited: %.0f%% for input, %.0f%% for buffer, %.0f%% for workers\n", 100 * number(row, "wait_input"), 100 * number(row, "wait_buffer"),
           100 * number(row, "wait_workers"));
    if (number(row, "skipped") > 0)
        printf("skipped: %.0f of %.0f files\n", number(row, "skipped"), number(row, "files"));
}

/* The run's outcome belongs into the summary when the run was ours. */
static void add_outcome(json_t *row, const Sluice__Run *r)
{
    json_t *skipped = json_object_get(row, "skipped");

    if (skipped != NULL)
        json_object_set(row, "files_skipped", skipped);
    if (r == NULL)
        return;
    json_object_set_new(row, "done", json_integer((json_int_t)r->done));
    json_object_set_new(row, "failed", json_integer((json_int_t)r->failed));
    json_object_set_new(row, "dropped", json_integer((json_int_t)dropped(r)));
    json_object_set_new(row, "lost", json_integer((json_int_t)r->lost));
}

static int show_summary(const struct context *ctx, const struct args *a, const struct str *text, const Sluice__Run *r, struct err *e)
{
    json_t *doc = json_loadb(str_text(text), text->len, 0, NULL), *row = json_array_get(json_object_get(doc, "replay"), 0);
    char *out;

    if (row == NULL) {
        json_decref(doc);
        return err_set(e, ERR_FAILED, "the source ended without a summary");
    }
    add_outcome(row, r);
    if (ctx->seq >= 0)
        json_object_set_new(json_object_get(doc, "meta"), "seq", json_integer(ctx->seq));
    if (args_has(a, "json")) {
        out = json_dumps(doc, JSON_INDENT(2) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
        puts(out);
        free(out);
    } else {
        print_summary(row, r);
    }
    json_decref(doc);
    return 0;
}

/* --- the command ---------------------------------------------------------------------------- */

static int play(struct context *ctx, const struct args *a, uint64_t run, struct talk *t, struct err *e)
{
    char *program = local_find("sluice-source", e), **argv;
    int out[2] = { -1, -1 }, status;
    pid_t pid;

    if (program == NULL)
        return -1;
    argv = source_argv(ctx, a, program, run);
    progress_start(&t->bar);
    pid = spawn(argv, out, e);
    argv_free(argv);
    free(program);
    if (pid < 0)
        return -1;
    source_pid = pid;
    if (interrupted)
        kill(pid, interrupted);
    listen_to(t, out);
    status = status_of(pid, e);
    close(out[0]);
    close(out[1]);
    return status;
}

/* The first thing that went wrong is the status; a run of ours with failed time-frames makes 10 of a 0. */
static int conclude(const struct context *ctx, const struct args *a, struct talk *t, int status, const Sluice__Run *r, struct err *e)
{
    if (status < 0)
        return -1;
    if (t->summary.len > 0 && show_summary(ctx, a, &t->summary, r, e) < 0)
        return -1;
    if (t->summary.len == 0 && status == 0)
        return err_set(e, ERR_FAILED, "the source ended without a summary");
    if (status == 0 && r != NULL && r->failed + r->lost + dropped(r) > 0)
        status = r->state == SLUICE__RUN_STATE__RUN_ERROR ? ERR_FAILED : ERR_SOME_FAILED;
    return status;
}

/* What belongs to the start of a run says nothing about one that is on. */
static int check_run_options(const struct args *a, struct err *e)
{
    static const char *const of_start[] = { "name", "min-nodes", "in-flight", "keep", "incomplete", "policy", "output", "workflow", "backend", "set", "nice" };

    for (size_t i = 0; args_has(a, "run") && i < ARRAY_LEN(of_start); i++)
        if (args_has(a, of_start[i]))
            return err_set(e, ERR_USAGE, "--%s is for a run that is started, and --run names one that is on", of_start[i]);
    return 0;
}

/* What goes on to the source is looked at here too: a slip must not leave a run behind. */
static int check_source_options(const struct args *a, struct err *e)
{
    const char *rate = args_text(a, "rate", "max");
    uint64_t n;
    double hz;

    if (strcmp(rate, "max") != 0 && str_parse_f64("--rate", rate, 1e-6, 1e6, &hz, NULL) < 0)
        return err_set(e, ERR_USAGE, "--rate '%s': max, or a number from 1e-06 to 1e+06 is wanted", rate);
    return args_u64(a, "loop", 1, 1000000000, &n, e) < 0 || args_u64(a, "preread", 1, 4096, &n, e) < 0 || args_u64(a, "threads", 1, 256, &n, e) < 0
        || args_u64(a, "sources", 1, 4096, &n, e) < 0 || args_u64(a, "max-bad", 0, UINT64_MAX, &n, e) < 0 ? -1 : 0;
}

/* A run that is given must be on. */
static int check_run(struct context *ctx, uint64_t id, struct err *e)
{
    Sluice__GetRuns q = SLUICE__GET_RUNS__INIT;
    Sluice__Runs *runs;
    const Sluice__Run *r;
    int rc = 0;

    q.has_id = 1;
    q.id = id;
    runs = call(ctx, &q.base, SLUICE__TYPE__RUNS, CALL_LIMIT_S, e);
    if (runs == NULL)
        return -1;
    r = find_run(runs, id);
    if (r == NULL)
        rc = err_set(e, ERR_NOT_FOUND, "no run %" PRIu64, id);
    else if (r->state == SLUICE__RUN_STATE__RUN_DONE || r->state == SLUICE__RUN_STATE__RUN_ERROR)
        rc = err_set(e, ERR_STATE, "run %" PRIu64 " is over", id);
    call_free(runs);
    return rc;
}

/* A run of ours is stopped whatever came of the source. What it waits for may take as long as the farm is without nodes. One that somebody else
 * stopped needs us no more: a sluiced that is gone is not waited for. */
static Sluice__Runs *end_run(struct context *ctx, uint64_t run, bool stopped, struct err *e)
{
    release_signals();
    if (interrupted)
        fprintf(stderr, "stopping run %" PRIu64 "; interrupt again to leave that to the farm\n", run);
    return stop_run(ctx, run, stopped ? 0 : AWAY_S, e);
}

int cmd_replay(struct context *ctx, const struct args *a, struct err *e)
{
    struct talk t = { 0 };
    Sluice__Runs *runs = NULL;
    bool own = !args_has(a, "run");
    struct err stop = { 0 };
    uint64_t run = 0;
    int status;

    if (check_run_options(a, e) < 0 || check_source_options(a, e) < 0)
        return -1;
    catch_signals();            /* an interrupt just now must not leave the run behind either */
    if (own ? start_run(ctx, a, &run, e) < 0 : args_id("run", args_text(a, "run", ""), &run, e) < 0 || check_run(ctx, run, e) < 0)
        return -1;
    status = play(ctx, a, run, &t, e);
    if (own)
        runs = end_run(ctx, run, status == ERR_CANCELLED, &stop);
    if (own && runs == NULL && status >= 0 && status != ERR_CANCELLED) {
        if (e != NULL)
            *e = stop;
        status = -1;
    }
    status = conclude(ctx, a, &t, status, find_run(runs, run), e);
    call_free(runs);
    str_free(&t.summary);
    str_free(&t.line);
    return status;
}
