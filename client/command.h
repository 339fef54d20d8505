/* command.h - what every command is given, and the table they stand in */
#ifndef SLUICE_COMMAND_H
#define SLUICE_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

/* --- an option, as a row; the same rows make --help, completion and the check of the man page --- */

struct option_row {
    const char *name;               /* long name, without the dashes */
    char        letter;             /* or 0 */
    const char *arg;                /* name of its argument, NULL = none */
    const char *help;
};

enum show_mode { SHOW_TABLE, SHOW_JSON, SHOW_JSONL, SHOW_PARSABLE };

/* The whole of an invocation. */
/* Versions of the schema of JSON documents that can be asked for; a new one is made only where a field goes or changes its meaning, and the older ones go on being written. */
enum { SHOW_SCHEMA_OLDEST = 1, SHOW_SCHEMA_NEWEST = 1 };

struct context {
    char *address;                  /* of sluiced: "unix:PATH" or "HOST:PORT"; NULL until call_address() looked for it */
    bool  tcp;                      /* --server was given */
    const char *method;             /* of TCP: SLUICE_AUTH, or munge */
    enum show_mode mode;
    bool  no_header;
    const char *fields;             /* -o, or NULL */
    const char *program;            /* argv[0] as it was called */
    int64_t seq;                    /* of the newest event when sluiced answered last (call.c); -1: it was not asked, or does not say */
    int64_t seen;                   /* monotonic ns: sluiced was there then (call.c); 0: it never was */
    bool  keeps_seq;                /* what comes are further pages of an answer: the first one's holds */
};

struct args {
    const struct command *command;
    int    n;                       /* positional arguments */
    char **at;
    struct given { const char *name, *value; } *given;     /* options in the order given; value NULL when it takes none */
    size_t n_given;
};

enum {
    NEEDS_SLUICED = 1,              /* asks sluiced */
    SHOWS         = 2,              /* has --json, --jsonl, --parsable, -o, -h */
    TAKES_LIST    = 4,              /* has -x; its first argument is a host list */
    RAW           = 8,              /* options and arguments go untouched to another program */
    MANY          = 16,             /* any number of arguments from `min` on */
    EMPTY_TOO     = 32,             /* an argument may be empty */
    NAMES_NODE    = 64,             /* its first argument may be the name of a node: for completion */
};

struct command {
    const char *name;               /* one or two words: "node show" */
    /* An exit status, or -1 with e set. */
    int (*run)(struct context *ctx, const struct args *a, struct err *e);
    unsigned flags;
    int min, max;                   /* positional arguments */
    const char *args;               /* as shown: "LIST REASON" */
    const char *help;               /* one line */
    const struct option_row *options;       /* ends with a row without name; may be NULL */
};

extern const struct command commands[];     /* main.c; ends with a row without name */
/* Says what could have been meant instead. -1. */
int command_unknown(const char *first, const char *second, struct err *e);
/* Prints the commands that begin with this word (node: node show, ...); false: there are none. */
bool command_family_help(const char *first);
const struct command *command_find(const char *first, const char *second, int *words);

/* The common rows of a command, by its flags: calls fn for its own options first, then the shared ones. */
void command_options(const struct command *c, void (*fn)(void *arg, const struct option_row *row), void *arg);
extern const struct option_row global_options[];

/* --- arguments (args.c) --- */

/* Parses what follows the command's name; a mistake ends the program with status 2. */
void  args_parse(const struct command *c, int argc, char **argv, struct context *ctx, struct args *a);
void  args_free(struct args *a);
bool  args_has(const struct args *a, const char *option);
/* --schema, where the command shows something: one that can be written. Before anything is done. */
int args_check_schema(const struct args *a, struct err *e);
const char *args_text(const struct args *a, const char *option, const char *otherwise);    /* the last one given */
/* Values as base/ reads them. Not given: 0 and *value untouched. */
int   args_u64(const struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *value, struct err *e);
int   args_i64(const struct args *a, const char *option, int64_t min, int64_t max, int64_t *value, struct err *e);
int   args_seconds(const struct args *a, const char *option, double *seconds, struct err *e);
int   args_time(const struct args *a, const char *option, int64_t *wall_ns, struct err *e);
int   args_size(const struct args *a, const char *option, uint64_t *bytes, struct err *e);
/* One of the words; not given: otherwise. NULL: e lists them. */
const char *args_word(const struct args *a, const char *option, const char *words, const char *otherwise, struct err *e);
/* --nice (cmd_nice.c). */
int   args_nice(const struct args *a, int *has, int32_t *level, struct err *e);
int   args_id(const char *what, const char *text, uint64_t *id, struct err *e);            /* a positional number above 0 */
/* JOB, JOB_N, JOB_N.TRY. How many numbers it has, 1 to 3; 0: it is nothing of the kind, e is set. */
int   args_task(const char *text, uint64_t *job, uint64_t *n, uint32_t *attempt, struct err *e);
/* All values of a repeatable option joined by ',' ("a=b,c=d"); the caller frees; NULL when not given. */
char *args_joined(const struct args *a, const char *option);
/* An absolute path for what may be relative to here. */
char *args_path(const char *path);
/* The configuration that programs would read here (--config, SLUICE_CONF, the farm's, /etc); NULL when there is none. The caller frees. */
char *config_here(const struct args *a);

/* --- waiting (cmd_wait.c) --- */

/* Until a job, run or move is over, at most limit_s (0: for ever); the outcome as exit status, its text on stderr unless quiet. A job that waits
 * for nodes says so once. */
int   wait_until_over(struct context *ctx, const char *kind, uint64_t id, double limit_s, bool quiet, struct err *e);

/* --- the commands, each in cmd_*.c --- */
#define COMMAND(name) int cmd_##name(struct context *ctx, const struct args *a, struct err *e)
COMMAND(up);            COMMAND(down);
COMMAND(ping);          COMMAND(status);       COMMAND(metrics);      COMMAND(check);        COMMAND(backup);       COMMAND(watch);        COMMAND(dump);         COMMAND(diag);
COMMAND(nodes);         COMMAND(node_show);    COMMAND(node_add);     COMMAND(node_history); COMMAND(node_retire);
COMMAND(mark);          COMMAND(clear);        COMMAND(move);         COMMAND(moves);        COMMAND(health);
COMMAND(run_start);     COMMAND(run_stop);     COMMAND(run_show);     COMMAND(run_tfs);      COMMAND(runs);
COMMAND(replay);        COMMAND(submit);
COMMAND(jobs);          COMMAND(job_show);     COMMAND(job_tfs);      COMMAND(wait);         COMMAND(why);
COMMAND(job_cancel);    COMMAND(job_hold);     COMMAND(job_release);  COMMAND(job_rerun);
COMMAND(crash_list);    COMMAND(crash_show);   COMMAND(crash_rerun);  COMMAND(crash_purge);
COMMAND(config_show);   COMMAND(hostlist);     COMMAND(logs);         COMMAND(shm);          COMMAND(shm_set);      COMMAND(shm_clean);      COMMAND(nice);
COMMAND(local);         COMMAND(help);

#endif
