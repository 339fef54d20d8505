/* cmd_help.c - the table of commands, for people, for programs, and for bash */
#include "config.h"

#include "command.h"

#include "str.h"

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

static void print_word(void *arg, const struct option_row *row)
{
    (void)arg;
    printf(" --%s", row->name);
}

static void print_completion(void)
{
    printf("# bash completion for sluice; made by sluice help --completion\n"
           "_sluice() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} words='' key=''\n"
           "  case ${COMP_CWORD} in 1) key=\"\" ;; 2) key=\"${COMP_WORDS[1]}\" ;; *) key=\"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" ;; esac\n"
           "  case \"$key\" in\n");
    printf("    '') words='--socket --server --help --version");
    for (const struct command *c = commands; c->name != NULL; c++)
        printf(" %.*s", (int)strcspn(c->name, " "), c->name);
    printf("' ;;\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        if (strchr(c->name, ' ') == NULL)
            printf("    '%s'|'%s '*) words='", c->name, c->name);
        else
            printf("    '%s') words='", c->name);
        command_options(c, print_word, NULL);
        printf("' ;;\n");
    }
    for (const struct command *c = commands; c->name != NULL; c++) {
        size_t n = strcspn(c->name, " ");

        if (c->name[n] == '\0')
            continue;
        if (c > commands && strncmp((c - 1)->name, c->name, n + 1) == 0)
            continue;                   /* families stand together in the table */
        printf("    '%.*s') words='", (int)n, c->name);
        for (const struct command *d = c; d->name != NULL && strncmp(d->name, c->name, n + 1) == 0; d++)
            printf(" %s", d->name + n + 1);
        printf("' ;;\n");
    }
    printf("  esac\n"
           "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
           "  [[ ${#COMPREPLY[@]} -gt 0 ]] || mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "}\n"
           "complete -F _sluice sluice\n");
}

static void print_list(void)
{
    printf("usage: sluice [--socket PATH | --server HOST:PORT] COMMAND [ARGUMENT...]\n\n");
    for (const struct command *c = commands; c->name != NULL; c++) {
        struct str s = { 0 };

        str_addf(&s, "%s%s%s", c->name, c->args[0] != '\0' ? " " : "", c->args);
        printf("  %-26s  %s%s\n", str_text(&s), c->help, c->flags & NEEDS_SLUICED ? "" : " *");
        str_free(&s);
    }
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
    int words;

    (void)ctx;
    if (args_has(a, "table")) {
        print_table();
    } else if (args_has(a, "completion")) {
        print_completion();
    } else if (a->n == 0) {
        print_list();
    } else {
        c = command_find(a->at[0], a->n > 1 ? a->at[1] : NULL, &words);
        if (c == NULL)
            return command_unknown(a->at[0], a->n > 1 ? a->at[1] : NULL, e);
        print_command(c);
    }
    return 0;
}
