/* cmd_wait.c - until a job, a run or a move is over; a job's progress meanwhile, on a terminal
 *
 * The rate and the time that is left are sluiced's: of the last minute, and nothing where nothing is known.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "mem.h"
#include "progress.h"
#include "show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AWAY_S = 30 };

enum { PATIENCE_S = 2 };             /* before a job that gets nowhere says why */

/* At most limit_s; 0: until it is over. */
static Sluice__Waited *ask_waited(struct context *ctx, const char *kind, uint64_t id, double limit_s, struct err *e)
{
    Sluice__Wait q = SLUICE__WAIT__INIT;

    q.kind = (char *)kind;
    q.has_id = 1;
    q.id = id;
    q.has_timeout = limit_s > 0;
    return call_patient(ctx, &q.base, SLUICE__TYPE__WAITED, limit_s, &q.timeout, AWAY_S, e);
}

/* Of one step of a longer wait: its end is no answer. Whether the wait goes on. */
static bool goes_on(const Sluice__Waited *w, const struct err *e)
{
    return w != NULL ? w->code == ERR_TIMEOUT : e->code == ERR_TIMEOUT;
}

/* When a wait is to end; monotonic ns. */
struct deadline { bool is; int64_t at; };

/* s, the least of it and most; 0 only where there is none of the two. */
static double left_of(const struct deadline *d, double most)
{
    double left = d->is ? (double)(d->at - clock_mono_ns()) / 1e9 : most;

    if (d->is && left < 0.001)
        left = 0.001;
    return most > 0 && left > most ? most : left;
}

static bool is_past(const struct deadline *d)
{
    return d->is && clock_mono_ns() >= d->at;
}

/* A wait without a word looks the same whether work is on or no node is there to do it. */
static void tell_why_it_waits(struct context *ctx, uint64_t id, const struct deadline *end)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;
    Sluice__Jobs *jobs;
    struct err e;

    q.has_id = q.has_all = q.all = 1;
    q.id = id;
    jobs = call(ctx, &q.base, SLUICE__TYPE__JOBS, left_of(end, CALL_LIMIT_S), &e);
    if (jobs != NULL && jobs->n_jobs == 1 && jobs->jobs[0]->running == 0 && jobs->jobs[0]->why != NULL && jobs->jobs[0]->why[0] != '\0') {
        char *why = show_text(jobs->jobs[0]->why);

        fprintf(stderr, "job %" PRIu64 " waits: %s (sluice status says what to do; an interrupt ends the waiting, not the job)\n", id, why);
        free(why);
    }
    call_free(jobs);
}

/* One line over and over: how far it is, how fast, how long yet. */
static void show_progress(struct context *ctx, uint64_t id, const struct deadline *end, struct progress *p)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;
    Sluice__Jobs *jobs;
    char beside[200] = "", left[CLOCK_TEXT];
    struct err e;
    int n = 0;

    q.has_id = q.has_all = q.all = 1;
    q.id = id;
    jobs = call(ctx, &q.base, SLUICE__TYPE__JOBS, left_of(end, CALL_LIMIT_S), &e);
    if (jobs != NULL && jobs->n_jobs == 1) {
        const Sluice__Job *j = jobs->jobs[0];

        if (j->has_rate)
            n += snprintf(beside + n, sizeof(beside) - (size_t)n, "%.3g TF/s  ", j->rate);
        if (j->has_remaining)
            n += snprintf(beside + n, sizeof(beside) - (size_t)n, "about %s left  ", clock_duration_text((int64_t)j->remaining * CLOCK_SECOND, left));
        else if (j->running == 0 && j->why != NULL)
            n += snprintf(beside + n, sizeof(beside) - (size_t)n, "%.60s  ", j->why);
        if (j->failed > 0)
            snprintf(beside + n, sizeof(beside) - (size_t)n, "%" PRIu64 " failed", j->failed);
        char *shown = show_text(beside);
        progress_show(p, j->done + j->failed + j->cancelled, j->tasks, shown);
        free(shown);
    }
    call_free(jobs);
}

/* Asks again every second, so that the line moves. NULL: e says why. */
static Sluice__Waited *watch_job(struct context *ctx, uint64_t id, const struct deadline *end, struct progress *p, struct err *e)
{
    Sluice__Waited *w;

    for (;;) {
        show_progress(ctx, id, end, p);
        w = ask_waited(ctx, "job", id, left_of(end, 1), e);
        if (!goes_on(w, e) || is_past(end))
            break;
        call_free(w);
    }
    progress_clear(p);
    return w;
}

/* NULL: e says why. */
static Sluice__Waited *wait_for(struct context *ctx, const char *kind, uint64_t id, double limit_s, bool quiet, struct err *e)
{
    const struct deadline end = { limit_s > 0, clock_mono_ns() + (int64_t)(limit_s * 1e9) };
    bool is_job = strcmp(kind, "job") == 0;
    Sluice__Waited *w = NULL;
    struct progress p;
    bool asked = !quiet && is_job && (limit_s == 0 || limit_s > PATIENCE_S);

    if (asked) {
        w = ask_waited(ctx, kind, id, PATIENCE_S, e);
        asked = !goes_on(w, e);
        if (!asked) {
            call_free(w);
            tell_why_it_waits(ctx, id, &end);
        }
    }
    progress_start(&p);
    if (!asked && p.on && !quiet && is_job)
        w = watch_job(ctx, id, &end, &p, e);
    else if (!asked)
        w = ask_waited(ctx, kind, id, left_of(&end, 0), e);
    if (w == NULL && e->code == ERR_TIMEOUT)
        err_set(e, ERR_TIMEOUT, "%s %" PRIu64 ": not over within %g s", kind, id, limit_s);
    return w;
}

int wait_until_over(struct context *ctx, const char *kind, uint64_t id, double limit_s, bool quiet, struct err *e)
{
    Sluice__Waited *w = wait_for(ctx, kind, id, limit_s, quiet, e);
    int status;

    if (w == NULL)
        return -1;
    status = (int)w->code;
    if (!quiet && w->text != NULL && w->text[0] != '\0') {
        char *text = show_text(w->text);

        fprintf(stderr, "%s\n", text);
        free(text);
    }
    call_free(w);
    return status;
}

static const struct column columns[] = { { "kind" }, { "id" }, { "exit" }, { "text" }, { 0 } };
static const struct listing listing = { "waits", columns, "kind,id,exit,text" };

/* The outcome is the exit status, and stands in what is shown, too. */
static int show_outcome(struct context *ctx, const char *kind, uint64_t id, double limit_s, struct err *e)
{
    Sluice__Waited *w = wait_for(ctx, kind, id, limit_s, false, e);
    json_t *o;
    int status;

    if (w == NULL)
        return -1;
    status = (int)w->code;
    o = json_object();
    json_object_set_new(o, "kind", json_string(kind));
    json_object_set_new(o, "id", json_integer((json_int_t)id));
    json_object_set_new(o, "exit", json_integer(status));
    json_object_set_new(o, "text", w->text != NULL && w->text[0] != '\0' ? json_string(w->text) : json_null());
    call_free(w);
    return show_one(ctx, &listing, o, e) < 0 ? -1 : status;
}

int cmd_wait(struct context *ctx, const struct args *a, struct err *e)
{
    struct args kind = { .given = &(struct given){ "wait", a->at[0] }, .n_given = 1 };
    double limit = 0;
    uint64_t id;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (args_word(&kind, "wait", "job run move", NULL, e) == NULL)
        return err_set(e, ERR_USAGE, "wait '%s': job, run or move is wanted", a->at[0]);
    if (show_columns_check(ctx, &listing, e) < 0 || args_id(a->at[0], a->at[1], &id, e) < 0 || args_seconds(a, "timeout", &limit, e) < 0)
        return -1;
    if (ctx->mode != SHOW_TABLE || ctx->fields != NULL)
        return show_outcome(ctx, a->at[0], id, limit, e);
    return wait_until_over(ctx, a->at[0], id, limit, false, e);
}
