/* args.c - the options of a command, parsed by argp from the rows of the table
 *
 * From: main.c with what stands behind the command's name.  To: the command, which asks by the option's name.
 * A mistake in usage ends the program here with status 2; nothing has been done by then.
 */
#include "config.h"

#include "command.h"

#include "clock.h"
#include "mem.h"
#include "str.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
const struct option_row global_options[] = {
    { "socket", 0, "PATH",      "Unix socket of sluiced" },
    { "server", 0, "HOST:PORT", "sluiced over TCP (munge)" },
    { 0 },
};
static const struct option_row show_options[] = {
    { "json",      0,   NULL,        "one JSON document" },
    { "jsonl",     0,   NULL,        "one JSON object a line" },
    { "schema",    0,   "VERSION",   "JSON in this version of its schema" },
    { "parsable",  0,   NULL,        "fields apart by '|', which is written \\| inside a field, as \\\\ and \\n are" },
    { "no-header", 'h', NULL,        "no line of headings" },
    { "fields",    'o', "FIELD,...", "these columns; -o help lists them" },
    { 0 },
};
static const struct option_row list_options[] = {
    { "exclude",   'x', "LIST",      "without these" },
    { 0 },
};
/* clang-format on */

static void each(const struct option_row *rows, void (*fn)(void *arg, const struct option_row *row), void *arg)
{
    for (; rows != NULL && rows->name != NULL; rows++)
        fn(arg, rows);
}

void command_options(const struct command *c, void (*fn)(void *arg, const struct option_row *row), void *arg)
{
    each(c->options, fn, arg);
    if (c->flags & TAKES_LIST)
        each(list_options, fn, arg);
    if (c->flags & SHOWS)
        each(show_options, fn, arg);
}

/* --- argp ----------------------------------------------------------------------------------- */

enum { FIRST_KEY = 0x1000 };

struct parsing {
    struct args *a;
    const struct option_row *row[64];
    struct argp_option option[75];
    int n;
};

/* -5 is a number that is no option: argp is told of the digits as options of which help says nothing, and on_key makes arguments of them again. */
static void add_digits(struct parsing *p)
{
    int at = p->n;

    for (int digit = '0'; digit <= '9'; digit++)
        p->option[at++] = (struct argp_option){ NULL, digit, "N", OPTION_ARG_OPTIONAL | OPTION_HIDDEN, "", 0 };
}

static void add_row(void *arg, const struct option_row *row)
{
    struct parsing *p = arg;
    int key = row->letter != 0 ? row->letter : FIRST_KEY + p->n;

    if (p->n == (int)ARRAY_LEN(p->row))
        abort();
    p->row[p->n] = row;
    p->option[p->n++] = (struct argp_option){ row->name, key, row->arg, 0, row->help, 0 };
}

static const struct option_row *row_of(const struct parsing *p, int key)
{
    for (int i = 0; i < p->n; i++)
        if (p->option[i].key == key)
            return p->row[i];
    return NULL;
}

/* Names the word of the command's pattern with which something is wrong. */
static void argp_wanted(struct argp_state *state, const struct command *c, int n, const char *what)
{
    const char *word = c->args;
    bool optional;

    for (; n > 0 && strchr(word, ' ') != NULL; n--)
        word = strchr(word, ' ') + 1;
    optional = word[0] == '[';               /* [LIST]: the word is LIST */
    argp_error(state, "%.*s is %s, wanted is %s %s", (int)strcspn(word, " ") - 2 * optional, word + optional, what, c->name, c->args);
}

static void take_argument(struct argp_state *state, struct args *a, char *arg)
{
    const struct command *c = a->command;

    if (a->n >= c->max && !(c->flags & MANY))
        argp_error(state, "'%s' is one argument too many, wanted is %s %s%s", arg, c->name, c->args,
                   arg[0] == '-' && (arg[1] < '0' || arg[1] > '9') ? "; behind -- everything is an argument, options stand before it" : "");
    if (arg[0] == '\0' && !(c->flags & EMPTY_TOO))
        argp_wanted(state, c, a->n, "empty");
    a->at = mem_grow(a->at, (size_t)a->n + 1, sizeof(*a->at));
    a->at[a->n++] = arg;
}

/* An argument that begins like an option, and is a number: "-5". */
static bool take_number(struct argp_state *state, struct args *a, int key)
{
    char *word = state->argv[state->next - 1];

    if (key < '0' || key > '9' || word[0] != '-' || word[1] != key)
        return false;
    take_argument(state, a, word);
    return true;
}

static error_t on_key(int key, char *arg, struct argp_state *state)
{
    struct parsing *p = state->input;
    struct args *a = p->a;
    const struct command *c = a->command;
    const struct option_row *row = row_of(p, key);

    if (row != NULL) {
        if (arg != NULL && arg[0] == '\0' && strcmp(row->arg, "DURATION") != 0)         /* its reader says which forms there are */
            argp_error(state, "--%s: a value is wanted (%s), this one is empty", row->name, row->arg);
        a->given = mem_grow(a->given, a->n_given + 1, sizeof(*a->given));
        a->given[a->n_given++] = (struct given){ row->name, arg };
        return 0;
    }
    switch (key) {
    case ARGP_KEY_ARG:
        take_argument(state, a, arg);
        return 0;
    case ARGP_KEY_END:
        if (a->n < c->min)
            argp_wanted(state, c, a->n, "missing");
        return 0;
    default:
        return take_number(state, a, key) ? 0 : ARGP_ERR_UNKNOWN;
    }
}

static void take_show_options(const struct args *a, struct context *ctx)
{
    ctx->mode = args_has(a, "json") ? SHOW_JSON : args_has(a, "jsonl") ? SHOW_JSONL
              : args_has(a, "parsable") ? SHOW_PARSABLE : SHOW_TABLE;
    ctx->no_header = args_has(a, "no-header");
    ctx->fields = args_text(a, "fields", NULL);
}

int args_check_schema(const struct args *a, struct err *e)
{
    uint64_t version = SHOW_SCHEMA_NEWEST;

    if (!args_has(a, "schema"))
        return 0;
    if (!args_has(a, "json") && !args_has(a, "jsonl"))
        return err_set(e, ERR_USAGE, "--schema: a version of JSON's schema; --json or --jsonl is wanted with it");
    if (args_u64(a, "schema", 1, INT32_MAX, &version, e) < 0)
        return -1;
    if (version >= SHOW_SCHEMA_OLDEST && version <= SHOW_SCHEMA_NEWEST)
        return 0;
    return err_set(e, ERR_PROTOCOL, "--schema %llu: this sluice knows the versions %d to %d", (unsigned long long)version, SHOW_SCHEMA_OLDEST, SHOW_SCHEMA_NEWEST);
}

void args_parse(const struct command *c, int argc, char **argv, struct context *ctx, struct args *a)
{
    struct parsing p = { .a = a };
    struct argp argp = { .options = p.option, .parser = on_key, .args_doc = c->args, .doc = c->help };
    char *name = mem_printf("sluice %s", c->name);

    *a = (struct args){ .command = c };
    if (c->flags & RAW) {
        a->n = argc - 1;
        a->at = mem_array((size_t)argc, sizeof(*a->at));
        memcpy(a->at, argv + 1, (size_t)(argc - 1) * sizeof(*a->at));
        free(name);
        return;
    }
    command_options(c, add_row, &p);
    add_digits(&p);
    argv[0] = name;                 /* argp shows it; it stays until the end of the program */
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &p);        /* in order: -5 is an argument among others */
    if (c->flags & SHOWS)
        take_show_options(a, ctx);
    argv[0] = NULL;
    free(name);
}

void args_free(struct args *a)
{
    free(a->at);
    free(a->given);
}

/* --- asking --------------------------------------------------------------------------------- */

bool args_has(const struct args *a, const char *option)
{
    for (size_t i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].name, option) == 0)
            return true;
    return false;
}

const char *args_text(const struct args *a, const char *option, const char *otherwise)
{
    for (size_t i = a->n_given; i-- > 0; )
        if (strcmp(a->given[i].name, option) == 0)
            return a->given[i].value;
    return otherwise;
}

/* Says which option the value belonged to. */
static int of_option(int r, const char *option, struct err *e)
{
    return r < 0 ? err_prefix(e, "--%s", option) : 0;
}

int args_u64(const struct args *a, const char *option, uint64_t min, uint64_t max, uint64_t *value, struct err *e)
{
    const char *text = args_text(a, option, NULL);

    return text == NULL ? 0 : of_option(str_parse_u64("value", text, min, max, value, e), option, e);
}

int args_i64(const struct args *a, const char *option, int64_t min, int64_t max, int64_t *value, struct err *e)
{
    const char *text = args_text(a, option, NULL);

    return text == NULL ? 0 : of_option(str_parse_i64("value", text, min, max, value, e), option, e);
}

int args_seconds(const struct args *a, const char *option, double *seconds, struct err *e)
{
    const char *text = args_text(a, option, NULL);
    int64_t ns;

    if (text == NULL)
        return 0;
    if (clock_parse_duration(text, &ns, e) < 0)
        return of_option(-1, option, e);
    *seconds = (double)ns / 1e9;
    return 0;
}

int args_time(const struct args *a, const char *option, int64_t *wall_ns, struct err *e)
{
    const char *text = args_text(a, option, NULL);

    return text == NULL ? 0 : of_option(clock_parse_time(text, clock_wall_ns(), wall_ns, e), option, e);
}

int args_size(const struct args *a, const char *option, uint64_t *bytes, struct err *e)
{
    const char *text = args_text(a, option, NULL);

    return text == NULL ? 0 : of_option(str_parse_size(text, bytes, e), option, e);
}

const char *args_word(const struct args *a, const char *option, const char *words, const char *otherwise, struct err *e)
{
    const char *text = args_text(a, option, otherwise);
    size_t n = text != NULL ? strlen(text) : 0;

    if (text == otherwise)
        return text;
    for (const char *p = words; n > 0 && (p = strstr(p, text)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return text;
    return err_null(e, ERR_USAGE, "--%s '%s': one of these is wanted: %s", option, text, words);
}

int args_id(const char *what, const char *text, uint64_t *id, struct err *e)
{
    return str_parse_u64(what, text, 1, INT64_MAX, id, e);
}

char *args_joined(const struct args *a, const char *option)
{
    struct str s = { 0 };

    for (size_t i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].name, option) == 0)
            str_addf(&s, "%s%s", s.len > 0 ? "," : "", a->given[i].value);
    if (s.len == 0) {
        str_free(&s);
        return NULL;
    }
    return str_take(&s);
}

static bool goes_up(const char *path)
{
    for (const char *p = path; (p = strstr(p, "..")) != NULL; p += 2)
        if ((p == path || p[-1] == '/') && (p[2] == '/' || p[2] == '\0'))
            return true;
    return false;
}

/* The path without "..": of the file, or of the folder it is to be made in. NULL: neither is there. */
static char *without_up(const char *path)
{
    char *real = realpath(path, NULL), *parent, *slash, *whole = NULL;

    if (real != NULL)
        return real;
    parent = mem_strdup(path);
    slash = strrchr(parent, '/');
    if (slash != NULL && slash > parent && !goes_up(slash + 1)) {
        *slash = '\0';
        real = realpath(parent, NULL);
        whole = real != NULL ? mem_printf("%s/%s", strcmp(real, "/") == 0 ? "" : real, slash + 1) : NULL;
        free(real);
    }
    free(parent);
    return whole;
}

/* Drops what says nothing, in place: "//" and "/./". */
static char *tidied(char *path)
{
    char *to = path;

    for (const char *p = path; *p != '\0'; p++) {
        while (p[0] == '/' && (p[1] == '/' || (p[1] == '.' && p[2] == '/')))
            p += p[1] == '/' ? 1 : 2;
        *to++ = *p;
    }
    *to = '\0';
    return path;
}

char *args_path(const char *path)
{
    char *here, *whole, *clean;

    if (path[0] == '/') {
        whole = mem_strdup(path);
    } else {
        here = getcwd(NULL, 0);
        whole = mem_printf("%s/%s", here != NULL ? here : ".", path);
        free(here);
    }
    clean = goes_up(whole) ? without_up(whole) : NULL;
    if (clean == NULL)
        return tidied(whole);
    free(whole);
    return clean;
}

int args_task(const char *text, uint64_t *job, uint64_t *n, uint32_t *attempt, struct err *e)
{
    size_t digits = strspn(text, "0123456789"), more = text[digits] == '_' ? strspn(text + digits + 1, "0123456789") : 0;
    const char *after = text + digits + (text[digits] == '_' ? 1 + more : 0);
    uint64_t found[3] = { 0 };
    char copy[64];
    int numbers = 1 + (text[digits] == '_') + (*after == '.' && more > 0);

    if (digits == 0 || (numbers > 1 && more == 0) || strlen(text) >= sizeof(copy) || (numbers < 3 && *after != '\0')) {
        err_set(e, ERR_USAGE, "'%.60s': a job's number, JOB_N for a time-frame of it, or JOB_N.TRY is wanted", text);
        return 0;
    }
    snprintf(copy, sizeof(copy), "%s", text);
    char *rest = copy, *word;
    for (int i = 0; i < numbers && (word = strsep(&rest, "_.")) != NULL; i++) {
        if (str_parse_u64(i == 0 ? "job" : i == 1 ? "time-frame" : "try", word, i == 1 ? 0 : 1, i == 2 ? UINT32_MAX : INT64_MAX, &found[i], e) < 0)
            return 0;
    }
    *job = found[0];
    *n = found[1];
    *attempt = (uint32_t)found[2];
    return numbers;
}
