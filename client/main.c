/* main.c - the program sluice: THE table of commands
 *
 * From: the command line.  To: one function, whose result becomes the exit status and whose error is shown here, once.
 * Help, completion and the check of the man page read the same rows.
 */
#include "config.h"

#include "command.h"
#include "file.h"

#include "mem.h"
#include "str.h"
#include "workflow_words.h"

#include <argp.h>
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
#define ROWS(...) (const struct option_row[]){ __VA_ARGS__, { 0 } }

#define WORKFLOW_HELP(name, what, ...) "; " name ": " what
#define BACKENDS_HELP "or BACKEND for all of them: auto (default), gpu, cpu, cuda, hip, opencl"
#define WORKFLOW_ROWS \
    { "workflow", 0, "NAME",            "default decode" WORKFLOWS(WORKFLOW_HELP) }, \
    { "backend",  0, "STAGE=BACKEND,...", "where stages run, " BACKENDS_HELP }, \
    { "set",      0, "STAGE.OPTION=V,...", "options of stages" }
#define QUIET_ROW { "quiet", 0, NULL, "no messages" }
#define REASON_ROW { "reason", 0, "TEXT", "why; may stand last instead, in words" }
#define RUN_ROWS \
    { "name",       0, "NAME",  "name of the run" }, \
    { "sources",    0, "N",     "sources that a time-frame has parts from" }, \
    { "min-nodes",  0, "N",     "refuse to start with fewer usable nodes" }, \
    { "in-flight",  0, "N",     "time-frames at nodes at a time; others wait" }, \
    { "keep",       0, "WORD",  "until-built or until-done: when sources let go" }, \
    { "incomplete", 0, "WORD",  "build or drop a time-frame that is short of a part" }, \
    { "policy",     0, "WORD",  "buffer or round-robin" }, \
    { "nice",       0, "N",     "nice level of its processes, default the pool's" }, \
    { "output",     0, "DIR",   "folder of the results" }

const struct command commands[] = {
    { "up", cmd_up, 0, 0, 0, "", "starts what is missing of a farm on this machine, waits until its nodes are usable",
      ROWS({ "dir", 0, "DIR", "folder of the farm, default ./sluice-farm" },
           { "nodes", 0, "SPEC", "as in mi50:2,mi100:1 (the default)" },
           { "shm", 0, "SIZE", "buffer of a node, default 64M" },
           { "nominal", 0, "CLASS=MS", "service time that nodes of a class are held to; may be repeated" },
           { "timeout", 0, "DURATION", "how long to wait for the nodes, default 60s" }) },
    { "down", cmd_down, 0, 0, 0, "", "ends exactly what up started",
      ROWS({ "dir", 0, "DIR", "folder of the farm, default ./sluice-farm" }) },

    { "status", cmd_status, NEEDS_SLUICED | SHOWS, 0, 0, "", "one screen: pools, runs, jobs, moves, marks, alarms and what to do", NULL },
    { "ping",   cmd_ping,   NEEDS_SLUICED | SHOWS, 0, 0, "", "whether sluiced answers, how fast, and as whom it knows you", NULL },
    { "metrics", cmd_metrics, NEEDS_SLUICED, 0, 0, "", "the numbers of status as Prometheus text", NULL },
    { "check",  cmd_check,  NEEDS_SLUICED | SHOWS, 0, 0, "", "proves the invariants of the ledger and the state", NULL },
    { "watch",  cmd_watch,  NEEDS_SLUICED | SHOWS, 0, 0, "", "the events as they come: who did what, and why",
      ROWS({ "from", 0, "SEQ", "from this event on, instead of those to come" }) },
    { "dump",   cmd_dump,   NEEDS_SLUICED, 0, 0, "", "the whole state as JSON lines", NULL },
    { "diag",   cmd_diag,   0, 0, 1, "[FILE]", "one archive for a report of what is wrong: versions, configuration, status, logs, checks",
      ROWS({ "config", 0, "FILE", "this configuration instead of SLUICE_CONF, the farm's here, or /etc/sluice/sluice.conf" }) },
    { "backup", cmd_backup, NEEDS_SLUICED, 1, 1, "FILE", "copies the state into a file, while everything runs", NULL },

    { "nodes", cmd_nodes, NEEDS_SLUICED | SHOWS | TAKES_LIST, 0, 0, "", "the nodes, grouped by pool, state and reason",
      ROWS({ "one", 'N', NULL, "one node a line" },
           { "reasons", 'R', NULL, "only marked nodes, with reason, owner and age" },
           { "long", 'l', NULL, "more columns" },
           { "pool", 'p', "POOL", "only this pool" },
           { "state", 't', "STATE,...", "only these states: idle busy full moving bad error down" },
           { "node", 'n', "LIST", "only these nodes" },
           { "class", 0, "CLASS", "only this class" },
           { "interval", 'i', "SECONDS", "again and again" }) },
    { "node show",    cmd_node_show,    NEEDS_SLUICED | SHOWS | NAMES_NODE, 1, 1, "NAME", "all about one node", NULL },
    { "node history", cmd_node_history, NEEDS_SLUICED | SHOWS | TAKES_LIST, 1, 1, "LIST", "who did what to these nodes, and why",
      ROWS({ "since", 0, "TIME|DURATION", "from this time on, or from so long ago" },
           { "limit", 0, "N", "the last N events, default 1000" }) },
    { "node add",     cmd_node_add,     NEEDS_SLUICED | SHOWS | TAKES_LIST, 1, 1, "LIST", "lets nodes that registered take part",
      ROWS({ "class", 0, "CLASS", "their class" },
           { "pool", 0, "POOL", "their pool, default online" },
           { "dry-run", 0, NULL, "change nothing" }) },
    { "node retire",  cmd_node_retire,  NEEDS_SLUICED | SHOWS | TAKES_LIST, 2, 2, "LIST REASON", "takes nodes out of the farm for good",
      ROWS({ "dry-run", 0, NULL, "change nothing" }) },
    { "mark",  cmd_mark,  NEEDS_SLUICED | SHOWS | TAKES_LIST, 2, 2, "LIST REASON", "marks nodes bad: no new work",
      ROWS({ "gpu", 0, "SERIAL", "only this device; may be repeated" },
           { "class", 0, "WORD", "hw, sw, user or ops (default)" },
           { "severity", 0, "WORD", "info or block (default)" },
           { "until", 0, "TIME", "the mark ends by itself" },
           { "tool", 0, "NAME", "in the name of a program, whose mark it is" },
           { "dry-run", 0, NULL, "change nothing" }) },
    { "clear", cmd_clear, NEEDS_SLUICED | SHOWS | TAKES_LIST, 2, 2, "LIST REASON", "clears one's own marks",
      ROWS({ "id", 0, "MARK", "only this mark" },
           { "any-owner", 0, NULL, "marks of others too" },
           { "tool", 0, "NAME", "the marks of this program instead" },
           { "repeat-ok", 0, NULL, "nodes with three marks or more before, too" },
           { "dry-run", 0, NULL, "change nothing" }) },
    { "move",  cmd_move,  NEEDS_SLUICED | SHOWS | TAKES_LIST, 0, 1, "LIST", "moves nodes to another pool",
      ROWS({ "to", 0, "POOL", "online or async" },
           { "when", 0, "WORD|TIME", "drained (default), now (also of a move that waits), or a time" },
           { "deadline", 0, "TIME|DURATION", "what still runs there then is taken back" },
           { "keep-going", 0, NULL, "those that can, with a line a node" },
           { "wait", 0, NULL, "until it is done" },
           { "timeout", 0, "DURATION", "of --wait" },
           { "dry-run", 0, NULL, "change nothing" },
           { "cancel", 0, "ID", "cancels this move instead" }) },
    { "moves", cmd_moves, NEEDS_SLUICED | SHOWS, 0, 0, "", "moves that are on",
      ROWS({ "all", 0, NULL, "ended ones too" }) },
    { "health", cmd_health, NEEDS_SLUICED | SHOWS, 0, 0, "", "automatic marking: what nodes do to their work, checks, the brake",
      ROWS({ "reset", 0, NULL, "release the brake, so that nodes are marked again" },
           { "pool", 'p', "POOL", "of --reset: only this pool's" }) },
    { "nice",  cmd_nice,  NEEDS_SLUICED | SHOWS, 1, 1, "N|pool", "nice level of the reconstruction processes, while they run",
      ROWS({ "pool", 0, "POOL", "online or async" },
           { "job", 0, "ID", "while they work for this job; pool: as its pool again" },
           { "run", 0, "ID", "while they work for this run; pool: as its pool again" }) },
    { "shm",   cmd_shm,   NEEDS_SLUICED | SHOWS | TAKES_LIST, 0, 1, "[LIST]", "the nodes' buffers", NULL },
    { "shm set", cmd_shm_set, NEEDS_SLUICED | SHOWS | TAKES_LIST, 1, 2, "LIST [SIZE]", "gives the nodes' buffers another size",
      ROWS({ "profile", 0, "NAME", "sizes by class, of a profile of the configuration" },
           { "when", 0, "WORD", "idle: not refused while a run or a job is there, but done afterwards" },
           { "no-wait", 0, NULL, "do not wait until they have it" },
           { "timeout", 0, "DURATION", "how long to wait for that, default 1h" },
           { "dry-run", 0, NULL, "change nothing" }) },
    { "shm clean", cmd_shm_clean, SHOWS | TAKES_LIST, 0, 1, "[LIST]", "removes buffers on this machine that dead workers left; never one in use",
      ROWS({ "dir", 0, "DIR", "where to look, default shm_dir of the configuration" },
           { "config", 0, "FILE", "this configuration instead of SLUICE_CONF, the farm's here, or /etc/sluice/sluice.conf" },
           { "dry-run", 0, NULL, "remove nothing" }) },

    { "run start", cmd_run_start, NEEDS_SLUICED | SHOWS, 0, 0, "", "starts a run and prints its id", ROWS(RUN_ROWS, WORKFLOW_ROWS) },
    { "run stop",  cmd_run_stop,  NEEDS_SLUICED | SHOWS, 1, 1, "ID", "stops a run; returns when all its time-frames are settled",
      ROWS({ "data-timeout", 0, "DURATION", "how long data may still come" },
           { "calib-timeout", 0, "DURATION", "how long end-of-run work may take" }) },
    { "run show",  cmd_run_show,  NEEDS_SLUICED | SHOWS, 1, 1, "ID", "all about one run", NULL },
    { "run tfs",   cmd_run_tfs,   NEEDS_SLUICED | SHOWS, 1, 1, "ID", "where each time-frame in flight is",
      ROWS({ "settled", 0, NULL, "those that came to an end instead" }) },
    { "runs",      cmd_runs,      NEEDS_SLUICED | SHOWS, 0, 0, "", "the runs that are on, and the last ten that are over",
      ROWS({ "all", 0, NULL, "all of them" }) },
    { "replay",    cmd_replay,    NEEDS_SLUICED | MANY, 1, 0, "PATH...", "replays files of time-frames through the farm",
      ROWS({ "rate", 0, "HZ|max", "time-frames a second, default max" },
           { "loop", 0, "N", "go through the files so many times" },
           { "preread", 0, "K", "time-frames read ahead" },
           { "threads", 0, "T", "threads that read" },
           { "verify", 0, NULL, "check the headers of all pages first" },
           { "run", 0, "ID", "take part in this run instead of starting one" },
           { "max-bad", 0, "N", "give up after so many bad files" },
           { "listen", 0, "ADDRESS", "where workers reach the source; wanted with --server" },
           { "json", 0, NULL, "the summary as one JSON document" },
           RUN_ROWS, WORKFLOW_ROWS) },

    { "submit", cmd_submit, NEEDS_SLUICED | SHOWS | MANY, 0, 0, "[PATH...]", "a job: every time-frame of every file once; prints its id",
      ROWS({ "input", 0, "FILE", "a list of paths, one a line; - is the standard input" },
           { "name", 0, "NAME", "name of the job" },
           { "class", 0, "CLASS,...", "only nodes of these classes" },
           { "priority", 0, "N", "before jobs of less" },
           { "nice", 0, "N", "nice level of its processes, default the pool's" },
           { "time", 0, "DURATION", "limit of a try: 90s, 15m, or Slurm's forms" },
           { "attempts", 0, "N", "tries at a time-frame" },
           { "straggler", 0, "K", "one of the last that takes K times the median starts a second time" },
           { "key", 0, "KEY", "the same key gives the same job" },
           { "begin", 0, "TIME", "not before" },
           { "after", 0, "WORD:ID", "not before that job is over: ok (all done), notok, or any" },
           { "max-bad", 0, "N", "no job when more than N files cannot be read" },
           { "hold", 0, NULL, "not before it is released" },
           { "output", 0, "DIR", "folder of the results" },
           { "wait", 0, NULL, "until it ends; the exit status is its outcome" },
           QUIET_ROW,
           WORKFLOW_ROWS) },
    { "jobs",       cmd_jobs,       NEEDS_SLUICED | SHOWS, 0, 0, "", "the jobs that are not over",
      ROWS({ "all", 0, NULL, "ended ones too" },
           { "me", 0, NULL, "only mine" },
           { "state", 't', "STATE,...", "held waiting running paused done failed cancelled" }) },
    { "job show",   cmd_job_show,   NEEDS_SLUICED | SHOWS, 1, 1, "ID", "all about one job", NULL },
    { "job tfs",    cmd_job_tfs,    NEEDS_SLUICED | SHOWS, 1, 1, "ID", "its time-frames, one a line",
      ROWS({ "state", 't', "STATE,...", "waiting running done failed skipped set-aside cancelled" }) },
    { "job cancel", cmd_job_cancel, NEEDS_SLUICED | SHOWS | MANY, 1, 0, "ID... [REASON]", "ends jobs", ROWS(REASON_ROW, QUIET_ROW) },
    { "job hold",   cmd_job_hold,   NEEDS_SLUICED | SHOWS | MANY, 1, 0, "ID... [REASON]", "gives out nothing more of jobs; what nodes have of them goes on",
      ROWS(REASON_ROW, QUIET_ROW) },
    { "job release", cmd_job_release, NEEDS_SLUICED | SHOWS | MANY, 1, 0, "ID...", "held jobs go on", ROWS(QUIET_ROW) },
    { "job rerun",  cmd_job_rerun,  NEEDS_SLUICED | SHOWS | MANY, 1, 0, "ID...", "runs jobs that are over again; their results and logs so far stay",
      ROWS({ "failed", 0, NULL, "only what failed or was cancelled of them" }, QUIET_ROW) },
    { "wait",       cmd_wait,       NEEDS_SLUICED | SHOWS, 2, 2, "job|run|move ID", "until it ends; the exit status is its outcome",
      ROWS({ "timeout", 0, "DURATION", "at most so long" }) },
    { "why",        cmd_why,        NEEDS_SLUICED | SHOWS | NAMES_NODE, 1, 1, "JOB|JOB_N|NODE", "why a job, a time-frame of it or a node does not run, with the nodes by cause", NULL },
    { "logs",       cmd_logs,       NEEDS_SLUICED | SHOWS, 0, 1, "[JOB[_N[.TRY]]]", "what the tries at a job's time-frames printed, or the last lines of nodes' logs",
      ROWS({ "node", 0, "LIST", "the logs of these nodes" },
           { "lines", 0, "N", "so many of each node, default 100" }) },
    { "crash list",  cmd_crash_list,  NEEDS_SLUICED | SHOWS, 0, 0, "", "time-frames that killed their process, kept for a look", NULL },
    { "crash show",  cmd_crash_show,  NEEDS_SLUICED | SHOWS, 1, 1, "ID", "all about one of them", NULL },
    { "crash rerun", cmd_crash_rerun, NEEDS_SLUICED, 1, 1, "ID", "reconstructs one of them here, as it was done when its process died",
      ROWS({ "backend", 0, "STAGE=BACKEND,...", "where stages run instead, " BACKENDS_HELP },
           { "output", 0, "DIR", "folder of the results" },
           { "json", 0, NULL, "one JSON document" }) },
    { "crash purge", cmd_crash_purge, NEEDS_SLUICED | MANY, 0, 0, "[ID...]", "removes them",
      ROWS({ "all", 0, NULL, "all of them" }) },

    { "config show", cmd_config_show, SHOWS, 0, 0, "", "the configuration file, checked",
      ROWS({ "config", 0, "FILE", "this file instead of SLUICE_CONF, the farm's here, or /etc/sluice/sluice.conf" },
           { "effective", 0, NULL, "with every default filled in" },
           { "running", 0, NULL, "what sluiced uses (asks it)" }) },
    { "hostlist", cmd_hostlist, MANY | SHOWS | EMPTY_TOO, 1, 0, "fold|unfold|count|diff|and [LIST...]", "works on host lists; - reads the standard input", NULL },

    { "reco",           cmd_local, RAW, 0, 0, "FILE...", "reconstructs files here, without a farm", NULL },
    { "simulate",       cmd_local, RAW, 0, 0, "-o DIR", "makes files of time-frames with their truth", NULL },
    { "compare",        cmd_local, RAW, 0, 0, "REF OWN", "names the first digit, cluster or track that differs", NULL },
    { "devices",        cmd_local, RAW, 0, 0, "", "the devices of this machine", NULL },
    { "workflows",      cmd_local, RAW, 0, 0, "", "workflows, their stages and backends", NULL },
    { "workflow check", cmd_local, RAW, 0, 0, "NAME|FILE", "whether a workflow can run", NULL },
    { "tf info",        cmd_local, RAW, 0, 0, "FILE", "what is in a file of time-frames", NULL },
    { "tf verify",      cmd_local, RAW, 0, 0, "FILE", "checks every block of a file", NULL },
    { "tf dump",        cmd_local, RAW, 0, 0, "FILE", "shows blocks", NULL },

    { "help", cmd_help, MANY, 0, 0, "[COMMAND]", "this list, or the help of a command",
      ROWS({ "table", 0, NULL, "the table for programs: name|needs sluiced|arguments|options|line" },
           { "completion", 0, "SHELL", "completion for bash or zsh" }) },
    { 0 },
};
/* clang-format on */

/* --- finding -------------------------------------------------------------------------------- */

const struct command *command_find(const char *first, const char *second, int *words)
{
    for (int want = 2; want >= 1; want--) {
        for (const struct command *c = commands; c->name != NULL; c++) {
            const char *space = strchr(c->name, ' ');
            size_t n = space != NULL ? (size_t)(space - c->name) : strlen(c->name);

            if ((want == 2) != (space != NULL) || strlen(first) != n || strncmp(c->name, first, n) != 0)
                continue;
            if (want == 2 && !str_equal(second, space + 1))
                continue;
            *words = want;
            return c;
        }
    }
    return NULL;
}

/* What could have been meant: the commands that begin with this word. */
int command_unknown(const char *first, const char *second, struct err *e)
{
    struct str s = { 0 }, shown = { 0 };
    size_t n = strlen(first);

    str_escape(&shown, first, strnlen(first, 60));
    for (const struct command *c = commands; c->name != NULL; c++)
        if (strncmp(c->name, first, n) == 0 && c->name[n] == ' ')
            str_addf(&s, "%s%s", s.len > 0 ? ", " : "", c->name);
    if (s.len > 0)
        err_set(e, ERR_USAGE, "%s %s; there are: %s", str_text(&shown),
                second != NULL ? "does not go with that word" : "wants a second word", str_text(&s));
    else
        err_set(e, ERR_USAGE, "there is no command '%s'; sluice help lists them", str_text(&shown));
    str_free(&s);
    str_free(&shown);
    return -1;
}

/* --- the options before the command --------------------------------------------------------- */

enum { KEY_SOCKET = 0x1000, KEY_SERVER };

static const struct argp_option before[] = {
    { "socket", KEY_SOCKET, "PATH", 0, "Unix socket of sluiced", 0 },
    { "server", KEY_SERVER, "HOST:PORT", 0, "sluiced over TCP (munge)", 0 },
    { 0 },
};

struct start { struct context *ctx; int command; };

static error_t on_key(int key, char *arg, struct argp_state *state)
{
    struct start *s = state->input;

    switch (key) {
    case KEY_SOCKET:
        free(s->ctx->address);
        s->ctx->address = args_path(arg);
        s->ctx->tcp = false;
        return 0;
    case KEY_SERVER:
        free(s->ctx->address);
        s->ctx->address = mem_strdup(arg);
        s->ctx->tcp = true;
        return 0;
    case ARGP_KEY_ARG:
        s->command = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "a command is missing; sluice help lists them");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key == ARGP_KEY_HELP_POST_DOC)
        return mem_strdup("sluice help lists the commands; sluice COMMAND --help tells about one.");
    return (char *)text;
}

static void show_error(const struct err *e)
{
    struct str s = { 0 };

    str_show(&s, e->text, strlen(e->text));
    fprintf(stderr, "sluice: %s\n", str_text(&s));
    str_free(&s);
}

int main(int argc, char **argv)
{
    static const struct argp argp = { before, on_key, "COMMAND [ARGUMENT...]", "Sluice: a batch scheduler for a farm of GPU nodes.\v ",
                                      NULL, filter_help, NULL };
    struct context ctx = { .program = argv[0], .method = getenv("SLUICE_AUTH"), .seq = -1 };
    struct start s = { .ctx = &ctx };
    struct args a = { 0 };
    struct err e = { 0 };
    const struct command *c;
    int words, status;

    if (ctx.method == NULL || ctx.method[0] == '\0')
        ctx.method = "munge";
    file_watch_stdout();
    argp_program_version = PACKAGE_STRING;
    argp_err_exit_status = ERR_USAGE;
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &s);
    c = command_find(argv[s.command], s.command + 1 < argc ? argv[s.command + 1] : NULL, &words);
    if (c == NULL && s.command + 2 == argc && (str_equal(argv[s.command + 1], "--help") || str_equal(argv[s.command + 1], "-?"))
        && command_family_help(argv[s.command])) {
        free(ctx.address);
        return 0;
    }
    if (c == NULL) {
        command_unknown(argv[s.command], s.command + 1 < argc ? argv[s.command + 1] : NULL, &e);
        show_error(&e);
        free(ctx.address);
        return ERR_USAGE;
    }
    args_parse(c, argc - s.command - words + 1, argv + s.command + words - 1, &ctx, &a);
    status = args_check_schema(&a, &e) < 0 ? -1 : c->run(&ctx, &a, &e);
    if (status < 0) {
        show_error(&e);
        status = e.code != ERR_NONE ? (int)e.code : ERR_FAILED;
    }
    args_free(&a);
    free(ctx.address);
    return status;
}
