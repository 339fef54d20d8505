/* nodelist.c - host lists of commands, with the words that only sluiced can expand */
#include "config.h"

#include "nodelist.h"

#include "call.h"
#include "mem.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct words {
    struct context *ctx;
    Sluice__Nodes *nodes;           /* asked for when the first word comes */
};

/* What is not added belongs to no pool or class; a mark it may have. */
static bool in_word(const Sluice__Node *n, const char *word)
{
    if (strcmp(word, "@marked") == 0)
        return n->n_marks > 0;
    if (!n->added)
        return false;
    if (strcmp(word, "@all") == 0)
        return true;
    if (strcmp(word, "@online") == 0 || strcmp(word, "@async") == 0)
        return str_equal(n->pool, word + 1);
    return strncmp(word, "@class:", 7) == 0 && str_equal(n->class_, word + 7);
}

static bool is_word(const char *word)
{
    return strcmp(word, "@all") == 0 || strcmp(word, "@online") == 0 || strcmp(word, "@async") == 0
        || strcmp(word, "@marked") == 0 || (strncmp(word, "@class:", 7) == 0 && word[7] != '\0');
}

static int resolve(void *arg, const char *word, struct hostlist *h, struct err *e)
{
    struct words *w = arg;
    Sluice__GetNodes question = SLUICE__GET_NODES__INIT;

    if (!is_word(word))
        return err_set(e, ERR_USAGE, "'%s' is not known; there are @all @online @async @marked @class:NAME", word);
    if (w->nodes == NULL)
        w->nodes = call(w->ctx, &question.base, SLUICE__TYPE__NODES, CALL_LIMIT_S, e);
    if (w->nodes == NULL)
        return -1;
    for (size_t i = 0; i < w->nodes->n_nodes; i++)
        if (in_word(w->nodes->nodes[i], word) && hostlist_add(h, w->nodes->nodes[i]->name, e) < 0)
            return -1;
    return 0;
}

/* Lines of the standard input, at most 64 MiB. */
static char *input_text(struct err *e)
{
    struct str s = { 0 };
    char buf[65536];
    size_t n;

    while ((n = fread(buf, 1, sizeof(buf), stdin)) > 0 && s.len <= (64 << 20))
        str_addn(&s, buf, n);
    if (ferror(stdin) || s.len > (64 << 20) || strlen(str_text(&s)) != s.len) {
        str_free(&s);
        return err_null(e, ERR_USAGE, "standard input: a host list of at most 64 MiB is wanted");
    }
    return str_take(&s);
}

static struct hostlist *parse(struct words *w, const char *text, struct err *e)
{
    char *input = NULL;
    struct hostlist *h;

    if (strcmp(text, "-") == 0 && (input = input_text(e)) == NULL)
        return NULL;
    h = hostlist_parse(input != NULL ? input : text, resolve, w, e);
    free(input);
    return h;
}

/* @marked when nothing is marked, all that there are without all that there are: no mistake. */
static int nothing_there(const struct context *ctx, const struct args *a, const char *text, const struct listing *shown, struct err *e)
{
    char *list = show_text(text);

    if (text[strspn(text, " \t\n")] == '\0') {
        err_set(e, ERR_USAGE, "the host list has no node in it");
        free(list);
        return -1;
    }
    fprintf(stderr, "%s%s: no node is in that list now: nothing to do\n", strcmp(text, "-") == 0 ? "standard input" : list, args_has(a, "exclude") ? " without --exclude" : "");
    free(list);
    return ctx->mode == SHOW_TABLE && ctx->fields == NULL ? 0 : show_list(ctx, shown, NULL, json_array(), e);
}

struct hostlist *nodelist(struct context *ctx, const struct args *a, const char *text, const struct listing *shown, int *r, struct err *e)
{
    struct words w = { .ctx = ctx };
    char *without = args_joined(a, "exclude");
    struct hostlist *h = parse(&w, text, e), *out, *rest;

    if (h != NULL && without != NULL) {
        out = parse(&w, without, e);
        rest = out != NULL ? hostlist_diff(h, out) : NULL;
        hostlist_destroy(out);
        hostlist_destroy(h);
        h = rest;
    }
    free(without);
    call_free(w.nodes);
    *r = -1;
    if (h != NULL && hostlist_count(h) == 0) {
        hostlist_destroy(h);
        h = NULL;
        *r = nothing_there(ctx, a, text, shown, e);
    }
    return h;
}

char **nodelist_names(const struct hostlist *h)
{
    char **names = mem_array(hostlist_count(h), sizeof(*names));

    for (size_t i = 0; i < hostlist_count(h); i++)
        names[i] = (char *)hostlist_name(h, i);
    return names;
}

char *nodelist_fold(const json_t *names)
{
    struct hostlist *h = hostlist_create();
    json_t *name;
    char *folded;
    size_t i;

    json_array_foreach((json_t *)names, i, name)
        if (json_is_string(name))
            hostlist_add(h, json_string_value(name), NULL);
    folded = hostlist_fold(h);
    hostlist_destroy(h);
    return folded;
}
