/* cmd_history.c - who did what, and why: what was (node history), and what comes (watch) */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "show.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct column event_columns[] = {
    { "seq" }, { "time", NULL, AS_TIME }, { "node" }, { "who" }, { "what" }, { "before" }, { "after" }, { "reason" }, { 0 },
};
static const struct listing events = { "events", event_columns, "seq,time,node,who,what,before,after,reason",
                                        &sluice__event__descriptor };

/* A time, or how long ago. */
static int parse_since(const struct args *a, Sluice__GetHistory *q, struct err *e)
{
    const char *text = args_text(a, "since", NULL);
    char shown[CLOCK_TEXT];

    if (text == NULL)
        return 0;
    if (clock_parse_past(text, clock_wall_ns(), &q->since, e) < 0)
        return err_prefix(e, "--since");
    q->has_since = 1;
    fprintf(stderr, "since %s\n", clock_rfc3339(q->since, shown));
    return 0;
}

int cmd_node_history(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    struct hostlist *h;
    Sluice__History *answer;
    uint64_t limit = 1000;
    char **names;
    int r = -1;

    if (show_columns_help(ctx, &events))
        return 0;
    h = nodelist(ctx, a, a->at[0], &events, &r, e);
    if (h == NULL)
        return r;
    r = -1;
    names = nodelist_names(h);
    q.names = names;
    q.n_names = hostlist_count(h);
    if (parse_since(a, &q, e) < 0 || args_u64(a, "limit", 1, 1000000, &limit, e) < 0)
        goto out;
    q.has_limit = 1;
    q.limit = (uint32_t)limit;
    answer = call(ctx, &q.base, SLUICE__TYPE__HISTORY, CALL_LIMIT_S, e);
    if (answer != NULL)
        r = show_list(ctx, &events, NULL, message_list(&answer->base, "events"), e);
    call_free(answer);
out:
    free(names);
    hostlist_destroy(h);
    return r;
}

/* --- watch ---------------------------------------------------------------------------------- */

static const double wait_s = 5;          /* of one question; then a look at who reads this, and the next one */
static const double away_s = 60;         /* a sluiced that was there may be away so long */

struct watch { struct context *ctx; bool has_from; uint64_t from; int64_t last; };

/* One answer, then its place is the question after it. */
static int watch_show(struct watch *w, Sluice__History *h, struct err *e)
{
    int r = h->n_events > 0 ? show_list(w->ctx, &events, NULL, message_list(&h->base, "events"), e) : 0;

    if (h->n_events > 0)
        w->from = h->events[h->n_events - 1]->seq + 1;
    else if (!w->has_from)
        w->from = h->seq + 1;
    w->has_from = true;
    w->ctx->no_header |= h->n_events > 0;
    return r;
}

static Sluice__History *watch_call(const struct watch *w, struct err *e)
{
    Sluice__Watch q = SLUICE__WATCH__INIT;

    q.has_from = w->has_from;
    q.from = w->from;
    q.has_wait = 1;
    q.wait = w->last != 0 ? wait_s : 0;          /* the first one only finds the place */
    return call(w->ctx, &q.base, SLUICE__TYPE__HISTORY, wait_s + CALL_LIMIT_S, e);
}

/* Whoever read this has gone: `watch | head` must not stay until the next event. */
static bool nobody_reads(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = 0 };

    return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

/* Until it is interrupted, nobody reads it, or sluiced stays away. */
static int watch_on(struct watch *w, struct err *e)
{
    while (!nobody_reads()) {
        Sluice__History *h = watch_call(w, e);
        int r;

        if (h != NULL) {
            w->last = clock_mono_ns();
            r = watch_show(w, h, e);
            call_free(h);
            if (r < 0 || fflush(stdout) != 0)
                return r;
        } else if (e->code != ERR_UNREACHABLE || w->last == 0 || clock_mono_ns() - w->last > (int64_t)(away_s * 1e9)) {
            return -1;
        } else {
            nanosleep(&(struct timespec){ .tv_nsec = 200000000 }, NULL);
        }
    }
    return 0;
}

int cmd_watch(struct context *ctx, const struct args *a, struct err *e)
{
    struct watch w = { .ctx = ctx, .has_from = args_has(a, "from") };

    if (show_columns_help(ctx, &events))
        return 0;
    if (ctx->mode == SHOW_JSON)
        return err_set(e, ERR_USAGE, "watch has no end to close a document with: --jsonl is wanted instead of --json");
    if (args_u64(a, "from", 1, INT64_MAX, &w.from, e) < 0 || show_columns_check(ctx, &events, e) < 0)
        return -1;
    return watch_on(&w, e);
}
