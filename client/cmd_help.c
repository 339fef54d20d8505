/* cmd_help.c - the table of commands, for people, for programs, and for the completion of bash and zsh */
#include "config.h"

#include "command.h"

#include "mem.h"
#include "str.h"
#include "workflow_words.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void print_option(void *arg, const struct option_row *row)
{
    int *n = arg;

    printf("%s--%s%s%s", (*n)++ > 0 ? " " : "", row->name, row->arg != NULL ? "=" : "", row->arg != NULL ? row->arg : "");
}

/* One row a line; '|' cannot be in any field but as a choice in arguments, where it is escaped as --parsable does. */
static void print_escaped(const char *text)
{
    for (; *text != '\0'; text++)
        printf(*text == '|' ? "\\%c" : "%c", *text);
}

static void print_options_escaped(void *arg, const struct option_row *row)
{
    int *n = arg;

    printf("%s--%s", (*n)++ > 0 ? " " : "", row->name);
    if (row->arg != NULL) {
        printf("=");
        print_escaped(row->arg);
    }
}

static void print_table(void)
{
    printf("command|needs_sluiced|arguments|options|help\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        int n = 0;

        printf("%s|%s|", c->name, c->flags & NEEDS_SLUICED ? "yes" : "no");
        print_escaped(c->args);
        printf("|");
        command_options(c, print_options_escaped, &n);
        printf("|");
        print_escaped(c->help);
        printf("\n");
    }
}

/* --- completion ----------------------------------------------------------------------------- */

/* Values of options that are one of a few words, whichever command takes them. */
static const struct { const char *options, *words; } values[] = {
    { "--to|--pool|-p", "online async" },
    { "--state|-t", "idle busy full moving bad error down held waiting running paused done failed skipped set-aside cancelled" },
    { "--severity", "info block" },
    { "--when", "drained now" },
    { "--keep", "until-built until-done" },
    { "--incomplete", "build drop" },
    { "--policy", "buffer round-robin" },
};

static void print_word(void *arg, const struct option_row *row)
{
    (void)arg;
    printf(" --%s", row->name);
    if (row->letter != 0)
        printf(" -%c", row->letter);
}

static size_t first_length(const struct command *c)
{
    return strcspn(c->name, " ");
}

/* The first of the commands that begin with the same word: they stand together in the table. */
static bool is_first(const struct command *c)
{
    size_t n = first_length(c);

    return c == commands || first_length(c - 1) != n || strncmp((c - 1)->name, c->name, n) != 0;
}

static void print_options_of(const struct command *c)
{
    printf("options='--help");
    command_options(c, print_word, NULL);
    printf("'%s ;;\n", c->flags & TAKES_LIST ? "; list=yes" : c->flags & NAMES_NODE ? "; list=names" : "");
}

/* The words of which its first argument is one: "job|run|move ID". */
static void print_argument(const struct command *c)
{
    size_t n = strcspn(c->args, " ");

    if (!islower((unsigned char)c->args[0]) || memchr(c->args, '|', n) == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        putchar(c->args[i] == '|' ? ' ' : c->args[i]);
}

/* Behind the word that c begins with: the second words there are, and what the command of that one word takes. */
static void print_first(const struct command *c)
{
    const struct command *alone = NULL, *d = c;
    size_t n = first_length(c);

    printf("    '%.*s'|'%.*s '*) [ $# -gt 1 ] || choices='", (int)n, c->name, (int)n, c->name);
    do {
        if (d->name[n] == '\0')
            alone = d;
        else
            printf(" %s", d->name + n + 1);
        d++;
    } while (d->name != NULL && !is_first(d));
    if (alone != NULL)
        print_argument(alone);
    printf("'%s", alone != NULL ? "; " : " ;;\n");
    if (alone != NULL)
        print_options_of(alone);
}

static void print_commands(void)
{
    printf("    '') choices='");
    for (const struct command *c = commands; c->name != NULL; c++)
        if (is_first(c))
            printf(" %.*s", (int)first_length(c), c->name);
    printf("'; options='--socket --server --help --version' ;;\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strchr(c->name, ' ') == NULL)
            continue;
        printf("    '%s '*) ", c->name);
        print_options_of(c);
    }
    for (const struct command *c = commands; c->name != NULL; c++)
        if (is_first(c))
            print_first(c);
}

struct named { const char *name; bool flag; };

static void find_flag(void *arg, const struct option_row *row)
{
    struct named *x = arg;

    x->flag |= row->arg == NULL && strcmp(row->name, x->name) == 0;
}

/* Of one name only its use with a value is known here, and a command may have it without. */
static bool is_flag_somewhere(const char *name)
{
    struct named x = { name, false };

    for (const struct command *c = commands; c->name != NULL; c++)
        command_options(c, find_flag, &x);
    return x.flag;
}

static bool names_file(const struct option_row *row)
{
    return strcmp(row->arg, "FILE") == 0 || strcmp(row->arg, "DIR") == 0;
}

static void print_valued(void *arg, const struct option_row *row)
{
    const bool *of_files = arg;

    if (row->arg != NULL && names_file(row) == *of_files && !is_flag_somewhere(row->name))
        printf("|--%s", row->name);
}

/* Behind an option that wants a value no operand is offered; the names of files are where one is wanted. */
static void print_no_choices(void)
{
    for (int of_files = 1; of_files >= 0; of_files--) {
        bool arg = of_files;

        printf("    --%s", of_files ? "file" : "value");
        for (const struct command *c = commands; c->name != NULL; c++)
            command_options(c, print_valued, &arg);
        printf(") %sreturn ;;\n", of_files ? "" : "files=''; ");
    }
}

/* What both shells understand: the words before the cursor in, out: choices (for the word there), options (when it begins with '-'), list (not empty: it
 * is a name of a node; yes: or several, apart by commas), files (not empty: it may be a file). Names of nodes are asked for, but not waited for: without
 * sluiced, or with a slow one, they are left out. */
static void print_choose(void)
{
    printf("_sluice_choose() {\n"
           "  local key='' last='' where=''\n"
           "  choices='' options='' list='' files=yes\n"
           "  while [ $# -gt 1 ]; do case \"$1\" in --socket|--server) where=\"$1=$2\"; shift 2 ;; *) break ;; esac; done\n"
           "  case $# in 0) ;; 1) key=\"$1\" ;; *) key=\"$1 $2 \" ;; esac\n"
           "  for last; do :; done\n"
           "  case \"$last\" in\n");
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        printf("    %s) choices='%s'; return ;;\n", values[i].options, values[i].words);
    printf("    --workflow) choices='");
    for (const struct workflow_word *w = workflow_words; w->name != NULL; w++)
        printf("%s%s", w == workflow_words ? "" : " ", w->name);
    printf("'; return ;;\n"
           "    --node|-n|--exclude|-x) list=yes; key='no command' ;;\n"
           "    @) choices='all online async marked'; return ;;\n"
           "    --class) case \"$key\" in 'mark '*) choices='hw sw user ops' ;; esac; return ;;\n");
    print_no_choices();
    printf("  esac\n"
           "  case \"$key\" in\n");
    print_commands();
    printf("  esac\n"
           "  [ \"$list\" != yes ] || choices=\"$choices @all @online @async @marked\"\n"
           "  [ -z \"$list\" ] || files='' choices=\"$choices $(timeout 0.03 sluice ${where:+\"$where\"} nodes --parsable -h -o name 2>/dev/null | tr '\\n' ' ')\"\n"
           "}\n");
}

static void print_bash(void)
{
    printf("# bash completion for sluice; made by sluice help --completion bash\n");
    print_choose();
    printf("_sluice() {\n"
           "  local cur=\"${COMP_WORDS[COMP_CWORD]}\" before='' choices options list files\n"
           "  _sluice_choose \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n"
           "  case \"$cur\" in -*) choices=$options ;; *,*) [ \"$list\" != yes ] || before=\"${cur%%,*},\" ;; esac\n"
           "  mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$choices\" -- \"${cur#\"$before\"}\")\n"
           "  [ ${#COMPREPLY[@]} -gt 0 ] || [ -z \"$files\" ] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "}\n"
           "complete -F _sluice sluice\n");
}

static void print_zsh(void)
{
    printf("#compdef sluice\n"
           "# zsh completion for sluice; made by sluice help --completion zsh\n");
    print_choose();
    printf("_sluice() {\n"
           "  local cur=\"$words[CURRENT]\" choices options list files\n"
           "  _sluice_choose \"${(@)words[2,CURRENT-1]}\"\n"
           "  case \"$cur\" in -*) choices=$options ;; *,*) [ \"$list\" != yes ] || compset -P '*,' ;; esac\n"
           "  if [ -n \"$choices\" ]; then compadd -- ${=choices}; elif [ -n \"$files\" ]; then _files; fi\n"
           "}\n"
           "if [ \"$funcstack[1]\" = _sluice ]; then _sluice \"$@\"; fi\n");
}

static void print_row(const struct command *c)
{
    struct str s = { 0 };

    str_addf(&s, "%s%s%s", c->name, c->args[0] != '\0' ? " " : "", c->args);
    printf("  %-26s  %s%s\n", str_text(&s), c->help, c->flags & NEEDS_SLUICED ? "" : " *");
    str_free(&s);
}

bool command_family_help(const char *first)
{
    size_t n = strlen(first);
    bool any = false;

    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strncmp(c->name, first, n) != 0 || c->name[n] != ' ')
            continue;
        print_row(c);
        any = true;
    }
    return any;
}

static void print_list(void)
{
    printf("usage: sluice [--socket PATH | --server HOST:PORT] COMMAND [ARGUMENT...]\n\n");
    for (const struct command *c = commands; c->name != NULL; c++)
        print_row(c);
    printf("\n* works without sluiced. sluice COMMAND --help tells about one; sluice(1) about all.\n");
}

/* The help of one command: its rows, as argp would show them but without starting it. */
static void print_command(const struct command *c)
{
    int n = 0;

    printf("sluice %s %s\n  %s%s\n", c->name, c->args, c->help, c->flags & NEEDS_SLUICED ? "" : " (works without sluiced)");
    if (c->flags & RAW) {
        printf("  sluice-reco does it: sluice %s --help\n", c->name);
        return;
    }
    printf("  ");
    command_options(c, print_option, &n);
    printf("%s", n > 0 ? "\n" : "");
}

int cmd_help(struct context *ctx, const struct args *a, struct err *e)
{
    const struct command *c;
    const char *shell;
    int words;

    (void)ctx;
    if (args_has(a, "table")) {
        print_table();
    } else if (args_has(a, "completion")) {
        shell = args_word(a, "completion", "bash zsh", NULL, e);
        if (shell == NULL)
            return -1;
        if (strcmp(shell, "zsh") == 0)
            print_zsh();
        else
            print_bash();
    } else if (a->n == 0) {
        print_list();
    } else {
        c = command_find(a->at[0], a->n > 1 ? a->at[1] : NULL, &words);
        if (c == NULL && a->n == 1 && command_family_help(a->at[0]))
            return 0;
        if (c == NULL)
            return command_unknown(a->at[0], a->n > 1 ? a->at[1] : NULL, e);
        print_command(c);
    }
    return 0;
}
