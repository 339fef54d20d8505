/* cmd_move.c - move and moves: nodes between the online and the async pool */
#include "config.h"

#include "command.h"

#include "change.h"
#include "clock.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "show.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct column columns[] = {
    { "id" }, { "node" }, { "to" }, { "state" }, { "when" }, { "at", NULL, AS_TIME }, { "requested_by" }, { "created", NULL, AS_TIME }, { "deadline", NULL, AS_TIME },
    { "ended", NULL, AS_TIME }, { "text" }, { 0 },
};
static const struct listing listing = { "moves", columns, "id,node,to,state,when,at,requested_by,created,deadline,text",
                                        &sluice__move_info__descriptor };

int cmd_moves(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetMoves q = SLUICE__GET_MOVES__INIT;
    Sluice__Moves *m;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_all = q.all = args_has(a, "all");
    m = call(ctx, &q.base, SLUICE__TYPE__MOVES, CALL_LIMIT_S, e);
    if (m == NULL)
        return -1;
    r = show_list(ctx, &listing, NULL, message_list(&m->base, "moves"), e);
    call_free(m);
    return r;
}

static int cancel(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__CancelMove q = SLUICE__CANCEL_MOVE__INIT;

    if (a->n > 0)
        return err_set(e, ERR_USAGE, "move --cancel ID takes no host list");
    if (args_id("move", args_text(a, "cancel", ""), &q.id, e) < 0)
        return -1;
    q.has_id = 1;
    return change(ctx, &q.base, e);
}

/* --when is a word or a time; a deadline is a time or how long from now. What was understood is shown. */
static int move_options(const struct args *a, Sluice__MoveNodes *q, struct err *e)
{
    const char *when = args_text(a, "when", "drained"), *deadline = args_text(a, "deadline", NULL);
    int64_t ns, now = clock_wall_ns();
    char text[CLOCK_TEXT];

    q->to = (char *)args_word(a, "to", "online async", NULL, e);
    if (q->to == NULL)
        return args_has(a, "to") ? -1 : err_set(e, ERR_USAGE, "move: --to online or --to async is wanted");
    q->when = (char *)when;
    if (strcmp(when, "drained") != 0 && strcmp(when, "now") != 0) {
        if (clock_parse_time(when, now, &q->at, e) < 0)
            return err_prefix(e, "--when is drained, now, or a time");
        q->has_at = 1;
        q->when = "at";
        fprintf(stderr, "at %s\n", clock_rfc3339(q->at, text));
    }
    if (deadline != NULL) {
        if (clock_parse_duration(deadline, &ns, NULL) == 0)
            q->deadline = now + ns;
        else if (clock_parse_time(deadline, now, &q->deadline, e) < 0)
            return err_prefix(e, "--deadline is a duration or a time");
        q->has_deadline = 1;
        fprintf(stderr, "deadline %s\n", clock_rfc3339(q->deadline, text));
    }
    q->has_keep_going = q->keep_going = args_has(a, "keep-going");
    q->has_dry_run = q->dry_run = args_has(a, "dry-run");
    return 0;
}

static void say_ended(const char *node, const char *text)
{
    char *shown = show_text(text != NULL && text[0] != '\0' ? text : "the move did not end well");

    fprintf(stderr, "%s: %s\n", node, shown);
    free(shown);
}

/* Waits for every move of the answer; the first that does not end well gives the status. */
static int wait_for(struct context *ctx, const Sluice__Changed *c, double limit_s, struct err *e)
{
    int64_t start = clock_mono_ns();
    int status = 0;

    for (size_t i = 0; i < c->n_results && status == 0; i++) {
        Sluice__Wait q = SLUICE__WAIT__INIT;
        double left = limit_s - (double)(clock_mono_ns() - start) / 1e9;
        Sluice__Waited *w;

        if (c->results[i]->code != 0 || c->results[i]->id == 0)
            continue;
        if (limit_s > 0 && left <= 0)
            return err_set(e, ERR_TIMEOUT, "move %" PRIu64 " is not over in time", c->results[i]->id);
        q.kind = "move";
        q.has_id = q.has_timeout = 1;
        q.id = c->results[i]->id;
        q.has_timeout = limit_s > 0;
        w = call_patient(ctx, &q.base, SLUICE__TYPE__WAITED, limit_s > 0 ? left : 0, &q.timeout, 30, e);
        if (w == NULL)
            return -1;
        status = (int)w->code;
        if (status != 0)
            say_ended(c->results[i]->node, w->text);
        call_free(w);
    }
    return status;
}

int cmd_move(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__MoveNodes q = SLUICE__MOVE_NODES__INIT;
    Sluice__Changed *changed = NULL;
    struct hostlist *h;
    double limit = 0;
    int r = change_columns(ctx, e), waited;

    if (r <= 0)
        return r;
    if (args_has(a, "cancel"))
        return cancel(ctx, a, e);
    if (a->n == 0)
        return err_set(e, ERR_USAGE, "move: a host list is wanted");
    if (move_options(a, &q, e) < 0 || args_seconds(a, "timeout", &limit, e) < 0)
        return -1;
    h = nodelist(ctx, a, a->at[0], &change_listing, &r, e);
    if (h == NULL)
        return r;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    r = change_keep(ctx, &q.base, &changed, e);
    if (r >= 0 && changed != NULL && args_has(a, "wait") && !q.dry_run) {
        waited = wait_for(ctx, changed, limit, e);
        r = r == 0 || waited < 0 ? waited : r;
    }
    call_free(changed);
    free(q.names);
    hostlist_destroy(h);
    return r;
}
