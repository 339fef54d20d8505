/* change.c - a change of nodes and what came of it, a line a node */
#include "config.h"

#include "change.h"

#include "mem.h"
#include "message.h"
#include "show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the next shift reads: it must say something. */
int change_check_reason(const char *reason, struct err *e)
{
    if (reason[strspn(reason, " \t\n")] == '\0')
        return err_set(e, ERR_USAGE, "a reason is wanted, and this one is empty");
    if (strlen(reason) > 1000)
        return err_set(e, ERR_USAGE, "a reason has at most 1000 bytes, this one has %zu", strlen(reason));
    return 0;
}

static const struct column columns[] = { { "node" }, { "code" }, { "id" }, { "text" }, { 0 } };
const struct listing change_listing = { "results", columns, "node,code,id,text",
                                        &sluice__node_result__descriptor };

static void print_results(const Sluice__Changed *c)
{
    for (size_t i = 0; i < c->n_results; i++) {
        const Sluice__NodeResult *r = c->results[i];
        char *node = show_text(r->node != NULL ? r->node : ""), *text = show_text(r->text != NULL ? r->text : r->code == 0 ? "done" : "refused");

        fprintf(r->code == 0 ? stdout : stderr, "%s: %s\n", node, text);
        free(node);
        free(text);
    }
}

static int status_of(const Sluice__Changed *c)
{
    size_t failed = 0;
    int first = 0;

    for (size_t i = 0; i < c->n_results; i++) {
        if (c->results[i]->code != 0) {
            first = failed == 0 ? (int)c->results[i]->code : first;
            failed++;
        }
    }
    return failed == 0 ? 0 : failed < c->n_results ? ERR_PARTLY : first;
}

int change_columns(struct context *ctx, struct err *e)
{
    if (show_columns_help(ctx, &change_listing))
        return 0;
    return show_columns_check(ctx, &change_listing, e) < 0 ? -1 : 1;
}

int change_show(struct context *ctx, const Sluice__Changed *c, struct err *e)
{
    int r = 0;

    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        print_results(c);
    else
        r = show_list(ctx, &change_listing, NULL, message_list(&c->base, "results"), e);
    return r < 0 ? r : status_of(c);
}

int change_keep(struct context *ctx, const ProtobufCMessage *question, Sluice__Changed **changed, struct err *e)
{
    Sluice__Changed *c;
    int r = change_columns(ctx, e);

    if (r <= 0)
        return r;
    c = call(ctx, question, SLUICE__TYPE__CHANGED, CALL_LIMIT_S, e);
    if (c == NULL)
        return -1;
    r = change_show(ctx, c, e);
    if (changed != NULL)
        *changed = c;
    else
        call_free(c);
    return r;
}

int change(struct context *ctx, const ProtobufCMessage *question, struct err *e)
{
    return change_keep(ctx, question, NULL, e);
}
