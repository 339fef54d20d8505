/* cmd_hostlist.c - host lists for scripts: fold, unfold, count, diff, and; needs no sluiced */
#include "config.h"

#include "command.h"

#include "hostlist.h"
#include "mem.h"
#include "show.h"
#include "str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STDIN_LIMIT = 64 << 20 };

/* All of the standard input, refused beyond the limit. */
static char *read_stdin(struct err *e)
{
    struct str s = { 0 };
    char buf[65536];
    size_t n;

    while ((n = fread(buf, 1, sizeof(buf), stdin)) > 0) {
        str_addn(&s, buf, n);
        if (s.len > STDIN_LIMIT) {
            str_free(&s);
            return err_null(e, ERR_USAGE, "standard input: more than 64 MiB");
        }
    }
    if (ferror(stdin)) {
        str_free(&s);
        err_errno(e, ERR_FAILED, "standard input");
        return NULL;
    }
    if (strlen(str_text(&s)) != s.len) {
        str_free(&s);
        return err_null(e, ERR_USAGE, "standard input: a zero byte is in it");
    }
    return str_take(&s);
}

static struct hostlist *parse(const char *text, struct err *e)
{
    struct hostlist *h;
    char *input;

    if (strcmp(text, "-") != 0)
        return hostlist_parse(text, NULL, NULL, e);
    input = read_stdin(e);
    h = input != NULL ? hostlist_parse(input, NULL, NULL, e) : NULL;
    free(input);
    return h;
}

/* Several arguments are one list. */
static struct hostlist *parse_all(char *const *at, int n, struct err *e)
{
    struct hostlist *all = hostlist_create();

    for (int i = 0; i < n; i++) {
        struct hostlist *one = parse(at[i], e);
        int r = one == NULL ? -1 : 0;

        for (size_t k = 0; r == 0 && k < hostlist_count(one); k++)
            r = hostlist_add(all, hostlist_name(one, k), e);
        hostlist_destroy(one);
        if (r < 0) {
            hostlist_destroy(all);
            return NULL;
        }
    }
    return all;
}

static const struct column list_columns[] = { { "list" }, { "count" }, { 0 } }, name_columns[] = { { "name" }, { 0 } };
static const struct listing lists = { "hostlists", list_columns, "list,count", NULL }, names = { "hosts", name_columns, "name", NULL };

static int show(const struct context *ctx, const struct hostlist *h, bool unfolded, struct err *e)
{
    json_t *all = json_array();

    for (size_t i = 0; unfolded && i < hostlist_count(h); i++)
        json_array_append_new(all, json_pack("{s:s}", "name", hostlist_name(h, i)));
    if (!unfolded) {
        char *text = hostlist_fold(h);
        json_array_append_new(all, json_pack("{s:s, s:I}", "list", text, "count", (json_int_t)hostlist_count(h)));
        free(text);
    }
    return show_list(ctx, unfolded ? &names : &lists, NULL, all, e);
}

static void print_folded(const struct hostlist *h)
{
    char *text = hostlist_fold(h);

    printf("%s\n", text);
    free(text);
}

static void print_unfolded(const struct hostlist *h)
{
    for (size_t i = 0; i < hostlist_count(h); i++)
        printf("%s\n", hostlist_name(h, i));
}

static void print_count(const struct hostlist *h)
{
    printf("%zu\n", hostlist_count(h));
}

static const struct {
    const char *word;
    void (*print)(const struct hostlist *h);
    struct hostlist *(*join)(const struct hostlist *a, const struct hostlist *b);      /* of two lists, or NULL */
} verbs[] = {
    { "fold",   print_folded,   NULL },
    { "unfold", print_unfolded, NULL },
    { "count",  print_count,    NULL },
    { "diff",   print_folded,   hostlist_diff },
    { "and",    print_folded,   hostlist_and },
};

static int run_verb(const struct context *ctx, size_t verb, char *const *at, int n, struct err *e)
{
    struct hostlist *first = parse_all(at, verbs[verb].join != NULL ? 1 : n, e), *second, *both;

    if (first == NULL)
        return -1;
    if (verbs[verb].join != NULL) {
        second = parse(at[1], e);
        both = second != NULL ? verbs[verb].join(first, second) : NULL;
        hostlist_destroy(first);
        hostlist_destroy(second);
        first = both;
    }
    if (first == NULL)
        return -1;
    int r = 0;
    if (ctx->mode != SHOW_TABLE || ctx->fields != NULL)
        r = show(ctx, first, verbs[verb].print == print_unfolded, e);
    else
        verbs[verb].print(first);
    hostlist_destroy(first);
    return r;
}

int cmd_hostlist(struct context *ctx, const struct args *a, struct err *e)
{
    if (show_columns_help(ctx, strcmp(a->at[0], "unfold") == 0 ? &names : &lists))
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (strcmp(a->at[0], verbs[i].word) != 0)
            continue;
        if (verbs[i].join != NULL ? a->n != 3 : a->n < 2)
            return err_set(e, ERR_USAGE, "hostlist %s wants %s", verbs[i].word, verbs[i].join != NULL ? "two lists" : "a list");
        return run_verb(ctx, i, a->at + 1, a->n - 1, e);
    }
    return err_set(e, ERR_USAGE, "hostlist '%s': fold, unfold, count, diff or and is wanted", a->at[0]);
}
