/* cmd_diag.c - diag: one archive for a report of what is wrong
 *
 * From: our own commands and programs, each a process with a time limit; files of this machine.  To: a tar archive.
 * Whatever does not answer leaves its reason in index.txt and the rest goes on: with sluiced away, hanging or of another version there is still
 * something to look at. The configuration is what conf_show makes of it: no comments, nothing unknown; there are no secrets among its keys, and
 * the environment stays out.
 */
#include "config.h"

#include "command.h"

#include "archive.h"
#include "call.h"
#include "clock.h"
#include "conf.h"
#include "farm.h"
#include "file.h"
#include "local.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PART_MOST = 8 << 20, LOG_MOST = 1 << 20 };
static const double part_s = 10;

enum when { ALWAYS, UP, DOWN };                  /* of sluiced */
#define CONFIG "@config"                         /* --config FILE, if one is known */
#define STATE  "@state"                          /* --state DIR, of a farm on this machine */

/* clang-format off */
static const struct part { const char *file; enum when when; const char *program, *args[6]; } parts[] = {
    { "version.txt",         ALWAYS, "sluice",  { "--version" } },
    { "version-sluiced.txt", ALWAYS, "sluiced", { "--version" } },
    { "version-worker.txt",  ALWAYS, "sluice-worker", { "--version" } },
    { "config.txt",          ALWAYS, "sluice",  { "config", "show", "--effective", CONFIG } },
    { "config-running.txt",  UP,     "sluice",  { "config", "show", "--running" } },
    { "ping.json",           UP,     "sluice",  { "ping", "--json" } },
    { "status.txt",          UP,     "sluice",  { "status" } },
    { "status.json",         UP,     "sluice",  { "status", "--json" } },
    { "nodes.txt",           UP,     "sluice",  { "nodes" } },
    { "nodes.json",          UP,     "sluice",  { "nodes", "--json" } },
    { "shm.txt",             UP,     "sluice",  { "shm" } },
    { "shm.json",            UP,     "sluice",  { "shm", "--json" } },
    { "health.txt",          UP,     "sluice",  { "health" } },
    { "health.json",         UP,     "sluice",  { "health", "--json" } },
    { "moves.json",          UP,     "sluice",  { "moves", "--all", "--json" } },
    { "runs.json",           UP,     "sluice",  { "runs", "--json" } },
    { "jobs.json",           UP,     "sluice",  { "jobs", "--json" } },
    { "crashes.json",        UP,     "sluice",  { "crash", "list", "--json" } },
    { "history.jsonl",       UP,     "sluice",  { "node", "history", "@all", "--jsonl" } },
    { "metrics.txt",         UP,     "sluice",  { "metrics" } },
    { "check.txt",           UP,     "sluice",  { "check" } },
    { "check-config.txt",    DOWN,   "sluiced", { "--check-config", CONFIG } },
    { "check-state.txt",     DOWN,   "sluiced", { "--check", CONFIG, STATE } },
    { "workflows.txt",       ALWAYS, "sluice",  { "workflows" } },
    { "devices.txt",         ALWAYS, "sluice",  { "devices" } },
};
static const struct { const char *file, *path; } machine[] = {
    { "machine/version", "/proc/version" }, { "machine/meminfo", "/proc/meminfo" }, { "machine/loadavg", "/proc/loadavg" },
    { "machine/limits", "/proc/self/limits" }, { "machine/mounts", "/proc/self/mounts" },
};
/* clang-format on */

struct diag {
    struct context *ctx;
    struct archive *archive;
    struct str index;
    char *config, *farm;                         /* file; folder of a farm on this machine; or NULL */
};

/* --- a program and what it says -------------------------------------------------------------- */

struct output { struct str out, err; int status; bool late; };

static void __attribute__((noreturn)) become(const char *const *argv, int out, int err)
{
    int none = open("/dev/null", O_RDONLY);

    setpgid(0, 0);
    dup2(none, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    close_range(3, ~0u, 0);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

/* Reads both pipes until they end; false when the time was over first. What is above the limit is read and let go. */
static bool listen_to(int out, int err, struct output *o)
{
    struct pollfd p[2] = { { .fd = out, .events = POLLIN }, { .fd = err, .events = POLLIN } };
    struct str *to[2] = { &o->out, &o->err };
    int64_t end = clock_mono_ns() + (int64_t)(part_s * 1e9), now;
    char buf[65536];

    while ((p[0].fd >= 0 || p[1].fd >= 0) && (now = clock_mono_ns()) < end) {
        if (poll(p, 2, (int)((end - now) / 1000000) + 1) < 0 && errno != EINTR)
            return false;
        for (int i = 0; i < 2; i++) {
            ssize_t n = p[i].fd >= 0 && p[i].revents != 0 ? read(p[i].fd, buf, sizeof(buf)) : 1;

            if (n <= 0)
                p[i].fd = -1;
            else if (p[i].revents != 0 && to[i]->len + (size_t)n <= PART_MOST)
                str_addn(to[i], buf, (size_t)n);
            p[i].revents = 0;
        }
    }
    return p[0].fd < 0 && p[1].fd < 0;
}

static int run(const char *const *argv, struct output *o, struct err *e)
{
    int out[2], err[2];
    pid_t pid;

    if (pipe2(out, O_CLOEXEC) < 0)
        return err_errno(e, ERR_FAILED, "no pipe");
    if (pipe2(err, O_CLOEXEC) < 0 || (pid = fork()) < 0) {
        close(out[0]);
        close(out[1]);
        return err_errno(e, ERR_FAILED, "%s", argv[0]);
    }
    if (pid == 0)
        become(argv, out[1], err[1]);
    close(out[1]);
    close(err[1]);
    o->late = !listen_to(out[0], err[0], o);
    if (o->late)
        kill(-pid, SIGKILL);
    close(out[0]);
    close(err[0]);
    while (waitpid(pid, &o->status, 0) < 0 && errno == EINTR)
        ;
    return 0;
}

/* --- parts ----------------------------------------------------------------------------------- */

static size_t add_word(const struct diag *d, const char **argv, size_t n, const char *word, const char *state)
{
    bool config = strcmp(word, CONFIG) == 0, is_state = strcmp(word, STATE) == 0;
    const char *value = config ? d->config : is_state ? state : NULL;

    if (!config && !is_state) {
        argv[n++] = word;
    } else if (value != NULL) {
        argv[n++] = config ? "--config" : "--state";
        argv[n++] = value;
    }
    return n;
}

static void note(struct diag *d, const struct part *p, const struct output *o, double seconds)
{
    str_addf(&d->index, "%s: %s", p->file, p->program);
    for (size_t i = 0; i < ARRAY_LEN(p->args) && p->args[i] != NULL; i++)
        str_addf(&d->index, " %s", p->args[i]);
    if (o->late)
        str_addf(&d->index, ": killed after %g s\n", part_s);
    else if (WIFSIGNALED(o->status))
        str_addf(&d->index, ": ended by signal %d\n", WTERMSIG(o->status));
    else
        str_addf(&d->index, ": exit status %d, %.2f s\n", WEXITSTATUS(o->status), seconds);
    str_addn(&d->index, str_text(&o->err), o->err.len);
}

static int add_part(struct diag *d, const struct part *p, const char *state, struct err *e)
{
    const char *argv[16];
    struct output o = { 0 };
    struct err why = { 0 };
    char *program = local_find(p->program, &why);
    int64_t from = clock_mono_ns();
    size_t n = 0;
    int r = 0;

    if (program == NULL) {
        str_addf(&d->index, "%s: %s\n", p->file, why.text);
        return 0;
    }
    argv[n++] = program;
    if (strcmp(p->program, "sluice") == 0 && p->when == UP) {
        argv[n++] = d->ctx->tcp ? "--server" : "--socket";
        argv[n++] = d->ctx->tcp ? d->ctx->address : d->ctx->address + strlen("unix:");
    }
    for (size_t i = 0; i < ARRAY_LEN(p->args) && p->args[i] != NULL; i++)
        n = add_word(d, argv, n, p->args[i], state);
    argv[n] = NULL;
    if (run(argv, &o, &why) < 0) {
        str_addf(&d->index, "%s: %s\n", p->file, why.text);
    } else {
        note(d, p, &o, (double)(clock_mono_ns() - from) / 1e9);
        r = archive_add(d->archive, p->file, str_text(&o.out), o.out.len, e);
    }
    str_free(&o.out);
    str_free(&o.err);
    free(program);
    return r;
}

/* What the kernel shows of this machine; such files have no size before they are read. */
static int add_machine(struct diag *d, struct err *e)
{
    char buf[65536];
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(machine); i++) {
        int fd = open(machine[i].path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, buf, sizeof(buf));

        if (n < 0)
            str_addf(&d->index, "%s: %s: %s\n", machine[i].file, machine[i].path, strerror(errno));
        else
            r = archive_add(d->archive, machine[i].file, buf, (size_t)n, e);
        if (fd >= 0)
            close(fd);
    }
    return r;
}

/* --- logs ------------------------------------------------------------------------------------ */

/* The end of a file, from a whole line on. */
static int add_log(struct diag *d, const char *path, struct err *e)
{
    static char buf[LOG_MOST];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), r = 0;
    struct stat st;
    ssize_t n = -1;
    char *name, *line;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
        n = pread(fd, buf, sizeof(buf), st.st_size > LOG_MOST ? st.st_size - LOG_MOST : 0);
    if (n < 0) {
        str_addf(&d->index, "log %s: %s\n", path, fd < 0 ? strerror(errno) : "not a file");
    } else {
        line = st.st_size > LOG_MOST ? memchr(buf, '\n', (size_t)n) : NULL;
        line = line != NULL ? line + 1 : buf;
        name = mem_printf("log/%.90s", strrchr(path, '/') + 1);
        r = archive_add(d->archive, name, line, (size_t)(buf + n - line), e);
        free(name);
    }
    if (fd >= 0)
        close(fd);
    return r;
}

/* What sluiced has in memory: also when it logs to the journal. */
static int add_recent(struct diag *d, struct err *e)
{
    Sluice__GetLogs q = SLUICE__GET_LOGS__INIT;
    struct err why = { 0 };
    struct str text = { 0 };
    Sluice__Logs *logs;
    int r;

    q.has_lines = 1;
    q.lines = 512;
    logs = call(d->ctx, &q.base, SLUICE__TYPE__LOGS, part_s, &why);
    if (logs == NULL) {
        str_addf(&d->index, "log/sluiced-recent.txt: %s\n", why.text);
        return 0;
    }
    for (size_t i = 0; i < logs->n_lines; i++)
        str_addf(&text, "%s\n", logs->lines[i]);
    r = archive_add(d->archive, "log/sluiced-recent.txt", str_text(&text), text.len, e);
    str_free(&text);
    call_free(logs);
    return r;
}

static int add_logs(struct diag *d, bool up, struct err *e)
{
    struct conf *c = conf_read(d->config, NULL);
    char *path;
    int r = up ? add_recent(d, e) : 0;

    if (r == 0 && c != NULL && c->log != NULL)
        r = add_log(d, c->log, e);
    conf_destroy(c);
    if (r == 0 && d->farm != NULL) {
        path = mem_printf("%s/log/sluiced.log", d->farm);
        r = add_log(d, path, e);
        free(path);
    }
    return r;
}

/* --- the whole ------------------------------------------------------------------------------- */

/* The farm whose socket it is, or that of this folder. */
static char *find_farm(const struct context *ctx)
{
    char *path, *conf, *farm = NULL;

    if (!ctx->tcp) {
        path = mem_strdup(ctx->address + strlen("unix:"));
        conf = mem_printf("%s/sluice.conf", dirname(path));
        if (access(conf, F_OK) == 0)
            farm = mem_strdup(dirname(conf));
        free(conf);
        free(path);
    }
    return farm != NULL ? farm : farm_search(".");
}

static char *find_config(const struct diag *d, const struct args *a)
{
    const char *given = args_text(a, "config", getenv("SLUICE_CONF"));

    if (given != NULL && given[0] != '\0')
        return args_path(given);
    if (d->farm != NULL)
        return mem_printf("%s/sluice.conf", d->farm);
    return access("/etc/sluice/sluice.conf", F_OK) == 0 ? mem_strdup("/etc/sluice/sluice.conf") : NULL;
}

static bool is_up(struct diag *d)
{
    Sluice__GetConfig q = SLUICE__GET_CONFIG__INIT;
    struct err why = { 0 };
    void *answer = call(d->ctx, &q.base, SLUICE__TYPE__CONFIG, part_s, &why);

    str_addf(&d->index, "sluiced at %s: %s\n", d->ctx->address, answer != NULL ? "answers" : why.text);
    call_free(answer);
    return answer != NULL;
}

static int collect(struct diag *d, struct err *e)
{
    char *state = d->farm != NULL ? mem_printf("%s/state", d->farm) : NULL;
    bool up = is_up(d);
    int r = 0;

    for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts); i++)
        if (parts[i].when == ALWAYS || (parts[i].when == UP) == up)
            r = add_part(d, &parts[i], state, e);
    free(state);
    r = r < 0 ? r : add_machine(d, e);
    r = r < 0 ? r : add_logs(d, up, e);
    return r < 0 ? r : archive_add(d->archive, "index.txt", str_text(&d->index), d->index.len, e);
}

static char *default_name(void)
{
    time_t now = time(NULL);
    struct tm tm;
    char text[64];

    strftime(text, sizeof(text), "sluice-diag-%Y%m%d-%H%M%S.tar", gmtime_r(&now, &tm));
    return mem_strdup(text);
}

int cmd_diag(struct context *ctx, const struct args *a, struct err *e)
{
    struct diag d = { .ctx = ctx };
    char *path = a->n > 0 ? mem_strdup(a->at[0]) : default_name();
    int r = -1;

    call_address(ctx);
    d.farm = find_farm(ctx);
    d.config = find_config(&d, a);
    d.archive = archive_create(path, e);
    if (d.archive != NULL) {
        r = collect(&d, e);
        r = archive_finish(d.archive, r < 0 ? NULL : e) < 0 || r < 0 ? -1 : 0;
    }
    if (r == 0)
        printf("%s\n", path);
    str_free(&d.index);
    free(d.farm);
    free(d.config);
    free(path);
    return r;
}
