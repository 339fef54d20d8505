/* cmd_status.c - status, ping, metrics, check, backup: how sluiced is */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "mem.h"
#include "message.h"
#include "show.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- ping ----------------------------------------------------------------------------------- */

static const struct column ping_columns[] = {
    { "software" }, { "epoch" }, { "seconds", NULL, AS_SECONDS }, { "user" }, { "role" }, { "clock_offset", NULL, AS_SECONDS }, { 0 },
};
static const struct listing ping_listing = { "ping", ping_columns, "software,epoch,seconds,user,role,clock_offset" };

int cmd_ping(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Welcome *w;
    Sluice__Ready *r;
    double seconds;
    json_t *object;
    int result = 0;

    (void)a;
    if (show_columns_help(ctx, &ping_listing))
        return 0;
    if (call_hello(ctx, &w, &r, &seconds, e) < 0)
        return -1;
    object = json_pack("{s:s?,s:I,s:f,s:s?,s:s?,s:f}", "software", w->software, "epoch", (json_int_t)w->epoch, "seconds", seconds,
                       "user", r->user, "role", r->role, "clock_offset", r->clock_offset);
    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL) {
        printf("sluiced %s at %s answered in %.1f ms; you are %s, role %s\n", w->software != NULL ? w->software : "?", ctx->address,
               1e3 * seconds, r->user != NULL ? r->user : "unknown", r->role != NULL ? r->role : "none");
        json_decref(object);
    } else {
        result = show_one(ctx, &ping_listing, object, e);
    }
    call_free(w);
    call_free(r);
    return result;
}

/* --- status --------------------------------------------------------------------------------- */

static const struct column status_columns[] = {
    { "software" }, { "epoch" }, { "state" }, { "started", NULL, AS_TIME }, { "pid" }, { "marks" },
    { "counters", NULL, AS_COUNTERS }, { "pools", "pools.name" }, { "alarms", "alarms.word" },
    { "runs", NULL, AS_COUNT }, { "jobs", NULL, AS_COUNT }, { "moves", NULL, AS_COUNT }, { 0 },
};
static const struct listing status_listing = { "status", status_columns, "software,epoch,state,pid,marks,alarms,runs,jobs,moves",
                                        &sluice__status__descriptor };

static void print_escaped(const char *before, const char *text)
{
    char *shown = show_text(text != NULL ? text : "");

    printf("%s%s", before, shown);
    free(shown);
}

static void print_run(const Sluice__Run *r)
{
    char *word = message_enum_word(&sluice__run_state__descriptor, (int)r->state);
    uint64_t without = r->queued + r->forming, with = r->in_flight > without ? r->in_flight - without : 0;       /* each in flight once */

    printf("  run %" PRIu64, r->id);
    print_escaped(" ", r->name);
    printf(": %s, %" PRIu64 " done, %" PRIu64 " with nodes, %" PRIu64 " queued, ", word, r->done, with, r->queued);
    if (r->forming > 0)
        printf("%" PRIu64 " forming, ", r->forming);
    printf("%" PRIu64 " failed, %" PRIu64 " lost\n", r->failed, r->lost);
    free(word);
}

static void print_job(const Sluice__Job *j)
{
    char *word = message_enum_word(&sluice__job_state__descriptor, (int)j->state);

    printf("  job %" PRIu64, j->id);
    print_escaped(" ", j->name);
    printf(": %s, %" PRIu64 " of %" PRIu64 " done, %" PRIu64 " running, %" PRIu64 " failed", word, j->done, j->tasks, j->running, j->failed);
    if (j->why != NULL && j->why[0] != '\0')
        print_escaped(", ", j->why);
    printf("\n");
    free(word);
}

static void print_move(const Sluice__MoveInfo *m)
{
    char text[CLOCK_TEXT];

    printf("  move %" PRIu64, m->id);
    print_escaped(": ", m->node);
    print_escaped(" to ", m->to);
    print_escaped(", ", m->state);
    if (m->has_at && str_equal(m->state, "pending"))
        printf(", begins at %s", clock_rfc3339(m->at, text));
    printf("\n");
}

static void print_status(const Sluice__Status *s)
{
    char text[CLOCK_TEXT];

    print_escaped("sluiced ", s->software);
    printf(", pid %u, start %" PRIu64 ", up %s", s->pid, s->epoch,
           clock_duration_text(s->has_started ? (clock_wall_ns() - s->started) / CLOCK_SECOND * CLOCK_SECOND : 0, text));
    print_escaped(": ", s->state != NULL ? s->state : "running");
    printf("\n");
    for (size_t i = 0; i < s->n_pools; i++) {
        print_escaped("pool ", s->pools[i]->name);
        printf(": %u of %u nodes usable, at least %u wanted\n", s->pools[i]->usable, s->pools[i]->nodes, s->pools[i]->min_good);
    }
    printf("runs %zu, jobs %zu, moves %zu, marks %u, alarms %zu\n", s->n_runs, s->n_jobs, s->n_moves, s->marks, s->n_alarms);
    for (size_t i = 0; i < s->n_runs; i++)
        print_run(s->runs[i]);
    for (size_t i = 0; i < s->n_jobs; i++)
        print_job(s->jobs[i]);
    for (size_t i = 0; i < s->n_moves; i++)
        print_move(s->moves[i]);
    for (size_t i = 0; i < s->n_alarms; i++) {
        print_escaped("  alarm ", s->alarms[i]->word);
        print_escaped(": ", s->alarms[i]->text);
        print_escaped("\n    what to do: ", s->alarms[i]->advice);
        printf("\n");
    }
}

int cmd_status(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetStatus question = SLUICE__GET_STATUS__INIT;
    Sluice__Status *s;
    int r = 0;

    (void)a;
    if (show_columns_help(ctx, &status_listing))
        return 0;
    s = call(ctx, &question.base, SLUICE__TYPE__STATUS, CALL_LIMIT_S, e);
    if (s == NULL)
        return -1;
    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        print_status(s);
    else
        r = show_one(ctx, &status_listing, message_json(&s->base), e);
    call_free(s);
    return r;
}

/* --- metrics, check, backup ----------------------------------------------------------------- */

int cmd_metrics(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetMetrics question = SLUICE__GET_METRICS__INIT;
    Sluice__Metrics *m = call(ctx, &question.base, SLUICE__TYPE__METRICS, CALL_LIMIT_S, e);

    (void)a;
    if (m == NULL)
        return -1;
    fputs(m->text != NULL ? m->text : "", stdout);
    call_free(m);
    return 0;
}

static const struct column check_columns[] = { { "name" }, { "ok" }, { "text" }, { 0 } };
static const struct listing check_listing = { "checks", check_columns, "name,ok,text",
                                        &sluice__check_line__descriptor };

int cmd_check(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetCheck question = SLUICE__GET_CHECK__INIT;
    Sluice__CheckResult *c;
    size_t broken = 0, n;
    int r;

    (void)a;
    if (show_columns_help(ctx, &check_listing))
        return 0;
    c = call(ctx, &question.base, SLUICE__TYPE__CHECK_RESULT, CALL_LIMIT_S, e);
    if (c == NULL)
        return -1;
    n = c->n_checks;
    for (size_t i = 0; i < n; i++)
        broken += !c->checks[i]->ok;
    r = show_list(ctx, &check_listing, NULL, message_list(&c->base, "checks"), e);
    if (r == 0 && ctx->mode == SHOW_TABLE)
        printf(broken == 0 ? "all hold: %zu of %zu\n" : "broken: %zu of %zu\n", broken == 0 ? n : broken, n);
    if (r == 0 && (broken > 0 || !c->ok))
        r = ERR_FAILED;
    call_free(c);
    return r;
}

int cmd_backup(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Backup question = SLUICE__BACKUP__INIT;
    Sluice__Ok *ok;
    char *path = args_path(a->at[0]);

    question.file = path;
    ok = call(ctx, &question.base, SLUICE__TYPE__OK, 0, e);
    if (ok != NULL)
        fprintf(stderr, "the state is in %s\n", path);
    free(path);
    call_free(ok);
    return ok != NULL ? 0 : -1;
}
