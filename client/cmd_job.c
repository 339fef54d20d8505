/* cmd_job.c - jobs: the list, one of them, what one does with it, its time-frames */
#include "config.h"

#include "command.h"

#include "call.h"
#include "mem.h"
#include "message.h"
#include "show.h"
#include "stages.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 2000 };

static const struct column columns[] = {
    { "id" }, { "name" }, { "owner" }, { "state" }, { "priority" }, { "tasks" }, { "waiting" }, { "running" }, { "done" }, { "failed" }, { "skipped" },
    { "cancelled" }, { "submitted", NULL, AS_TIME }, { "ended", NULL, AS_TIME }, { "workflow" }, { "backends" }, { "output" }, { "why" }, { "retried" }, { "preempted" },
    { "failures", NULL, AS_COUNTERS }, { "skipped_files" }, { "attempts" }, { "ran", .make = show_stages },
    { "nice" }, { "nice_from" }, { "nice_text" }, { "rate" }, { "remaining", NULL, AS_SECONDS },
    { "key" }, { "after" }, { "begin", NULL, AS_TIME }, { "classes" }, { "reruns" }, { "time_limit", NULL, AS_SECONDS }, { 0 },
};
static const struct listing listing = { "jobs", columns, "id,name,owner,state,tasks,waiting,running,done,failed,skipped,remaining,submitted,why",
                                        &sluice__job__descriptor };

static const struct column task_columns[] = {
    { "id" }, { "state" }, { "node" }, { "attempt" }, { "code" }, { "text" }, { "input" }, { "output" }, { "digest" },
    { "seconds", NULL, AS_SECONDS }, { 0 },
};
static const struct listing tasks = { "tasks", task_columns, "id,state,node,attempt,code,seconds,digest,input,text",
                                        &sluice__task__descriptor };

/* --- the list, one of them ------------------------------------------------------------------ */

static int parse_states(const char *text, Sluice__GetJobs *q, struct err *e)
{
    char *copy = mem_strdup(text), *rest = copy, *word;
    int r = 0, value;

    while (r == 0 && (word = strsep(&rest, ",")) != NULL) {
        r = message_enum_value(&sluice__job_state__descriptor, "state", word, &value, e);
        q->states = mem_grow(q->states, q->n_states + 1, sizeof(*q->states));
        if (r == 0)
            q->states[q->n_states++] = (Sluice__JobState)value;
    }
    free(copy);
    return r;
}

int cmd_jobs(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;
    Sluice__Jobs *jobs = NULL;
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_all = q.all = args_has(a, "all") || args_has(a, "state");
    q.has_mine = q.mine = args_has(a, "me");
    if (!args_has(a, "state") || parse_states(args_text(a, "state", ""), &q, e) == 0)
        jobs = call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
    if (jobs != NULL)
        r = show_list(ctx, &listing, NULL, message_list(&jobs->base, "jobs"), e);
    call_free(jobs);
    free(q.states);
    return r;
}

static int show_job(struct context *ctx, Sluice__Jobs *jobs, struct err *e)
{
    json_t *list = message_list(&jobs->base, "jobs");
    int r;

    if (json_array_size(list) == 0)
        r = err_set(e, ERR_NOT_FOUND, "there is no such job");
    else
        r = show_one(ctx, &listing, json_incref(json_array_get(list, 0)), e);
    json_decref(list);
    return r;
}

int cmd_job_show(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;
    Sluice__Jobs *jobs;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (args_id("job", a->at[0], &q.id, e) < 0)
        return -1;
    q.has_id = q.has_all = q.all = 1;
    jobs = call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
    if (jobs == NULL)
        return -1;
    r = show_job(ctx, jobs, e);
    call_free(jobs);
    return r;
}

/* --- what one does with it: silent, unless the job as it is then is asked for --------------- */

static int change(struct context *ctx, const ProtobufCMessage *q, struct err *e)
{
    Sluice__Jobs *jobs = call(ctx, q, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
    int r;

    if (jobs == NULL)
        return -1;
    r = ctx->mode == SHOW_TABLE && ctx->fields == NULL ? 0 : show_job(ctx, jobs, e);
    call_free(jobs);
    return r;
}

/* The job's number, once all that was given is good. */
static int change_args(struct context *ctx, const struct args *a, uint64_t *id, struct err *e)
{
    return show_columns_check(ctx, &listing, e) < 0 ? -1 : args_id("job", a->at[0], id, e);
}

int cmd_job_cancel(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__CancelJob q = SLUICE__CANCEL_JOB__INIT;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_id = 1;
    q.reason = a->n > 1 ? a->at[1] : NULL;
    return change_args(ctx, a, &q.id, e) < 0 ? -1 : change(ctx, &q.base, e);
}

int cmd_job_hold(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__HoldJob q = SLUICE__HOLD_JOB__INIT;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_id = 1;
    q.reason = a->n > 1 ? a->at[1] : NULL;
    return change_args(ctx, a, &q.id, e) < 0 ? -1 : change(ctx, &q.base, e);
}

int cmd_job_release(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__ReleaseJob q = SLUICE__RELEASE_JOB__INIT;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_id = 1;
    return change_args(ctx, a, &q.id, e) < 0 ? -1 : change(ctx, &q.base, e);
}

int cmd_job_rerun(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__RerunJob q = SLUICE__RERUN_JOB__INIT;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_id = q.has_all = 1;
    q.all = !args_has(a, "failed");
    return change_args(ctx, a, &q.id, e) < 0 ? -1 : change(ctx, &q.base, e);
}

/* --- its time-frames ------------------------------------------------------------------------ */

static const char task_words[] = "waiting running done failed skipped set-aside cancelled";

static int split_states(const char *text, char ***states, size_t *n, struct err *e)
{
    char *copy = mem_strdup(text), *rest = copy, *word;
    int r = 0;

    while (r == 0 && (word = strsep(&rest, ",")) != NULL) {
        struct args one = { .given = &(struct given){ "state", word }, .n_given = 1 };

        r = args_word(&one, "state", task_words, NULL, e) == NULL ? -1 : 0;
        *states = mem_grow(*states, *n + 1, sizeof(**states));
        (*states)[(*n)++] = mem_strdup(word);
    }
    free(copy);
    return r;
}

/* The N of JOB_N. */
static uint64_t task_number(const char *id)
{
    const char *bar = id != NULL ? strrchr(id, '_') : NULL;

    return bar != NULL ? strtoull(bar + 1, NULL, 10) : 0;
}

static json_t *all_tasks(struct context *ctx, Sluice__GetTasks *q, struct err *e)
{
    json_t *all = json_array(), *list;
    bool more = true;

    while (more) {
        Sluice__Tasks *page = call(ctx, &q->base, SLUICE__TYPE__TASKS, CALL_LIMIT_S, e);

        if (page == NULL) {
            json_decref(all);
            return NULL;
        }
        list = message_list(&page->base, "tasks");
        json_array_extend(all, list);
        json_decref(list);
        more = page->more && page->n_tasks > 0;
        if (more) {
            q->has_from = 1;
            q->from = page->has_next ? page->next : task_number(page->tasks[page->n_tasks - 1]->id) + 1;
        }
        call_free(page);
        ctx->keeps_seq = true;
    }
    return all;
}

int cmd_job_tfs(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetTasks q = SLUICE__GET_TASKS__INIT;
    json_t *all = NULL;
    int r = -1;

    if (show_columns_help(ctx, &tasks))
        return 0;
    if (args_id("job", a->at[0], &q.job, e) < 0)
        return -1;
    q.has_job = q.has_limit = 1;
    q.limit = PAGE;
    if (!args_has(a, "state") || split_states(args_text(a, "state", ""), &q.states, &q.n_states, e) == 0)
        all = all_tasks(ctx, &q, e);
    if (all != NULL)
        r = show_list(ctx, &tasks, NULL, all, e);
    for (size_t i = 0; i < q.n_states; i++)
        free(q.states[i]);
    free(q.states);
    return r;
}
