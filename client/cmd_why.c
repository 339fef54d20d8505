/* cmd_why.c - why a job, a time-frame of it or a node does not do what one expects of it */
#include "config.h"

#include "command.h"

#include "call.h"
#include "hostlist.h"
#include "mem.h"
#include "message.h"
#include "show.h"
#include "str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first of the nodes, folded; "..." where there are more. */
static json_t *nodes_of(const json_t *line)
{
    const json_t *list = json_object_get(line, "nodes"), *count = json_object_get(line, "count");
    struct hostlist *h = hostlist_create();
    json_t *one, *shown;
    struct err e;
    size_t i;

    json_array_foreach(list, i, one)
        hostlist_add(h, json_string_value(one), &e);
    char *text = hostlist_fold(h);
    bool more = json_is_integer(count) && (size_t)json_integer_value(count) > hostlist_count(h);
    shown = hostlist_count(h) == 0 ? NULL : json_sprintf("%s%s", text, more ? ",..." : "");
    free(text);
    hostlist_destroy(h);
    return shown;
}

static const struct column columns[] = {
    { "of" }, { "state" }, { "code" }, { "text" }, { "count" }, { "nodes", NULL, AS_IS, nodes_of }, { 0 },
};
static const struct listing listing = { "why", columns, "code,count,text,nodes", NULL };

static int ask(struct context *ctx, const char *text, Sluice__Why **why, struct err *e)
{
    Sluice__GetWhy q = SLUICE__GET_WHY__INIT;
    uint32_t attempt;

    if (isdigit((unsigned char)text[0])) {
        int n = args_task(text, &q.job, &q.tf, &attempt, e);

        if (n == 0)
            return -1;
        if (n > 2)
            return err_set(e, ERR_USAGE, "why %.60s: of a try sluice logs tells", text);
        q.has_job = 1;
        q.has_tf = n == 2;
    } else {
        q.node = (char *)text;
    }
    *why = call(ctx, &q.base, SLUICE__TYPE__WHY, CALL_LIMIT_S, e);
    return *why == NULL ? -1 : 0;
}

int cmd_why(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Why *why = NULL;
    json_t *lines, *line;
    size_t i;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (show_columns_check(ctx, &listing, e) < 0 || ask(ctx, a->at[0], &why, e) < 0)
        return -1;
    lines = message_list(&why->base, "lines");
    json_array_foreach(lines, i, line) {
        json_object_set_new(line, "of", json_string(why->of));
        json_object_set_new(line, "state", json_string(why->state));
    }
    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        printf("%s: %s\n", why->of, why->state);
    r = show_list(ctx, &listing, NULL, lines, e);
    call_free(why);
    return r;
}
