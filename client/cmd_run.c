/* cmd_run.c - runs: start, stop, show, their time-frames, the list */
#include "config.h"

#include "command.h"

#include "call.h"
#include "mem.h"
#include "message.h"
#include "run_options.h"
#include "shares.h"
#include "show.h"
#include "stages.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 2000, AWAY_S = 30, LAST = 10 };

static json_t *make_dropped(const json_t *run)
{
    const json_t *list = json_object_get(run, "dropped");
    json_int_t sum = 0;
    json_t *one;
    size_t i;

    json_array_foreach((json_t *)list, i, one)
        sum += json_integer_value(json_object_get(one, "value"));
    return json_integer(sum);
}

/* "decode=cpu,cluster=cuda"; a fall-back has a "!". */
static json_t *make_tf_stages(const json_t *tf)
{
    json_t *list = json_array(), *one;
    size_t i;

    json_array_foreach(json_object_get(tf, "stages"), i, one)
        json_array_append_new(list, json_sprintf("%s=%s%s", json_string_value(json_object_get(one, "stage")),
                                                 json_string_value(json_object_get(one, "backend")),
                                                 json_is_string(json_object_get(one, "fallback")) ? "!" : ""));
    return list;
}

static const struct column columns[] = {
    { "id" }, { "name" }, { "state" }, { "workflow" }, { "policy" }, { "announced" }, { "dispatched" }, { "done" }, { "failed" },
    { "dropped", .make = make_dropped }, { "lost" }, { "incomplete" }, { "in_flight" }, { "in_flight_limit" }, { "queued" }, { "forming" },
    { "retried" }, { "sources" }, { "connected", "sources_connected" }, { "nodes", "nodes.node" }, { "started", NULL, AS_TIME },
    { "ended", NULL, AS_TIME }, { "bytes", "bytes_done", AS_SIZE }, { "owner" }, { "output" }, { "keep" }, { "backends" },
    { "reasons", "dropped", AS_COUNTERS }, { "failures", NULL, AS_COUNTERS }, { "stalled", "stalled_s", AS_SECONDS },
    { "ran", .make = show_stages }, { "bytes_done", NULL, AS_SIZE }, { "stalled_s", NULL, AS_SECONDS }, { "text" },
    { "nice" }, { "nice_from" }, { "nice_text" }, { 0 },
};
static const struct listing listing = { "runs", columns, "id,name,state,workflow,policy,announced,done,failed,dropped,lost,in_flight,queued,started",
                                        &sluice__run__descriptor };

static const struct column tf_columns[] = {
    { "id" }, { "state" }, { "node" }, { "device" }, { "attempt" }, { "seconds", NULL, AS_SECONDS }, { "bytes", NULL, AS_SIZE }, { "parts" },
    { "incomplete" }, { "digest" }, { "reason" }, { "text" }, { "ran", .make = make_tf_stages }, { 0 },
};
static const struct listing tfs = { "tfs", tf_columns, "id,state,node,attempt,seconds,bytes,digest,reason,text",
                                        &sluice__run_tf__descriptor };

/* --- start ---------------------------------------------------------------------------------- */

static int small_number(const struct args *a, const char *option, uint64_t max, uint32_t *value, protobuf_c_boolean *has, struct err *e)
{
    uint64_t v = 0;

    if (!args_has(a, option))
        return 0;
    if (args_u64(a, option, 1, max, &v, e) < 0)
        return -1;
    *value = (uint32_t)v;
    *has = 1;
    return 0;
}

int run_options(const struct args *a, Sluice__StartRun *q, struct err *e)
{
    const char *output = args_text(a, "output", NULL);

    q->name = (char *)args_text(a, "name", NULL);
    if (q->name != NULL && !str_is_name(q->name))
        return err_set(e, ERR_USAGE, "--name '%.64s': 1 to 63 letters, digits, '.', '_', '-' are wanted", q->name);
    q->keep = (char *)args_word(a, "keep", "until-built until-done", "until-done", e);
    q->incomplete = (char *)args_word(a, "incomplete", "build drop", "build", e);
    q->policy = (char *)args_word(a, "policy", "buffer round-robin", "buffer", e);
    if (q->keep == NULL || q->incomplete == NULL || q->policy == NULL)
        return -1;
    if (small_number(a, "sources", 4096, &q->sources, &q->has_sources, e) < 0
        || small_number(a, "min-nodes", 65536, &q->min_nodes, &q->has_min_nodes, e) < 0
        || small_number(a, "in-flight", 1000000, &q->in_flight, &q->has_in_flight, e) < 0 || args_nice(a, &q->has_nice, &q->nice, e) < 0)
        return -1;
    q->workflow = (char *)args_text(a, "workflow", "decode");
    q->backends = args_joined(a, "backend");
    q->options = args_joined(a, "set");
    q->output = output != NULL ? args_path(output) : NULL;
    return 0;
}

void run_options_free(Sluice__StartRun *q)
{
    free(q->backends);
    free(q->options);
    free(q->output);
}

static const struct column id_columns[] = { { "id" }, { "output" }, { 0 } };
static const struct listing ids = { "runs", id_columns, "id,output" };

int cmd_run_start(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__StartRun q = SLUICE__START_RUN__INIT;
    Sluice__StartedRun *s = NULL;
    int r = -1;

    if (show_columns_help(ctx, &ids))
        return 0;
    if (show_columns_check(ctx, &ids, e) == 0 && run_options(a, &q, e) == 0)
        s = call(ctx, &q.base, SLUICE__TYPE__STARTED_RUN, CALL_LIMIT_S, e);
    if (s != NULL && ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        r = printf("%" PRIu64 "\n", s->id) < 0 ? -1 : 0;
    else if (s != NULL)
        r = show_one(ctx, &ids, message_answer(&s->base), e);
    call_free(s);
    run_options_free(&q);
    return r;
}

/* --- stop, show, list ----------------------------------------------------------------------- */

/* On one page, however many nodes. */
static json_t *for_people(json_t *run)
{
    json_object_set_new(run, "nodes", shares_grouped(json_object_get(run, "nodes")));
    return run;
}

static int show_runs(struct context *ctx, Sluice__Runs *runs, bool one, struct err *e)
{
    json_t *list = message_list(&runs->base, "runs");
    int r;

    if (!one)
        return show_list(ctx, &listing, NULL, list, e);
    if (json_array_size(list) == 0)
        r = err_set(e, ERR_NOT_FOUND, "there is no such run");
    else if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        r = show_one(ctx, &listing, for_people(json_incref(json_array_get(list, 0))), e);
    else
        r = show_one(ctx, &listing, json_incref(json_array_get(list, 0)), e);
    json_decref(list);
    return r;
}

int cmd_run_stop(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__StopRun q = SLUICE__STOP_RUN__INIT;
    Sluice__Runs *runs;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (show_columns_check(ctx, &listing, e) < 0 || args_id("run", a->at[0], &q.id, e) < 0 || args_seconds(a, "data-timeout", &q.data_timeout, e) < 0
        || args_seconds(a, "calib-timeout", &q.calib_timeout, e) < 0)
        return -1;
    q.has_id = 1;
    q.has_data_timeout = args_has(a, "data-timeout");
    q.has_calib_timeout = args_has(a, "calib-timeout");
    runs = call_patient(ctx, &q.base, SLUICE__TYPE__RUNS, 0, NULL, AWAY_S, e);
    if (runs == NULL)
        return -1;
    r = show_runs(ctx, runs, false, e);
    call_free(runs);
    return r;
}

int cmd_run_show(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetRuns q = SLUICE__GET_RUNS__INIT;
    Sluice__Runs *runs;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (args_id("run", a->at[0], &q.id, e) < 0)
        return -1;
    q.has_id = 1;
    runs = call(ctx, &q.base, SLUICE__TYPE__RUNS, CALL_LIMIT_S, e);
    if (runs == NULL)
        return -1;
    r = show_runs(ctx, runs, true, e);
    call_free(runs);
    return r;
}

static bool is_over(const Sluice__Run *r)
{
    return r->state == SLUICE__RUN_STATE__RUN_DONE || r->state == SLUICE__RUN_STATE__RUN_ERROR;
}

static int by_id(const void *a, const void *b)
{
    const Sluice__Run *x = *(Sluice__Run *const *)a, *y = *(Sluice__Run *const *)b;

    return x->id < y->id ? -1 : x->id > y->id;
}

/* In the order of their ids; of those that are over only the last ones. */
static void keep_last(Sluice__Runs *runs, size_t last)
{
    size_t over = 0, kept = 0;

    if (runs->n_runs > 0)
        qsort(runs->runs, runs->n_runs, sizeof(*runs->runs), by_id);
    for (size_t i = 0; i < runs->n_runs; i++)
        over += is_over(runs->runs[i]);
    for (size_t i = 0; i < runs->n_runs; i++) {
        if (is_over(runs->runs[i]) && over-- > last)
            call_free(runs->runs[i]);
        else
            runs->runs[kept++] = runs->runs[i];
    }
    runs->n_runs = kept;
}

int cmd_runs(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetRuns q = SLUICE__GET_RUNS__INIT;
    Sluice__Runs *runs;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_all = q.all = 1;
    runs = call(ctx, &q.base, SLUICE__TYPE__RUNS, CALL_LIMIT_S, e);
    if (runs == NULL)
        return -1;
    keep_last(runs, args_has(a, "all") ? runs->n_runs : LAST);
    r = show_runs(ctx, runs, false, e);
    call_free(runs);
    return r;
}

/* Pages until there are no more; each next page begins behind the last id. */
int cmd_run_tfs(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetRunTfs q = SLUICE__GET_RUN_TFS__INIT;
    json_t *all = json_array();
    bool more = true;

    if (show_columns_help(ctx, &tfs) || args_id("run", a->at[0], &q.id, e) < 0) {
        json_decref(all);
        return ctx->fields != NULL && strcmp(ctx->fields, "help") == 0 ? 0 : -1;
    }
    q.has_id = q.has_limit = 1;
    q.limit = PAGE;
    q.has_settled = q.settled = args_has(a, "settled");
    while (more) {
        Sluice__RunTfs *page = call(ctx, &q.base, SLUICE__TYPE__RUN_TFS, CALL_LIMIT_S, e);
        json_t *list;

        if (page == NULL) {
            json_decref(all);
            return -1;
        }
        list = message_list(&page->base, "tfs");
        json_array_extend(all, list);
        json_decref(list);
        more = page->more && page->n_tfs > 0;
        if (more) {
            q.has_from = 1;
            q.from = page->tfs[page->n_tfs - 1]->id + 1;
        }
        call_free(page);
        ctx->keeps_seq = true;
    }
    return show_list(ctx, &tfs, NULL, all, e);
}
