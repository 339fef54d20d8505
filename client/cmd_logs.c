/* cmd_logs.c - what the tries at a job's time-frames printed; the last lines of nodes' logs */
#include "config.h"

#include "command.h"

#include "call.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "show.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TFS_MOST = 1000 };            /* of a whole job */

static const struct column line_columns[] = { { "node" }, { "line" }, { 0 } };
static const struct listing lines_listing = { "logs", line_columns, "node,line", NULL };

static const struct column try_columns[] = {
    { "id" }, { "state" }, { "node" }, { "device" }, { "code" }, { "text" }, { "digest" }, { "output" }, { "seconds", NULL, AS_SECONDS },
    { "time", NULL, AS_TIME }, { "log" }, { 0 },
};
static const struct listing tries_listing = { "attempts", try_columns, "id,state,node,code,seconds,time,text,log", &sluice__attempt__descriptor };

static bool is_plain(const struct context *ctx)
{
    return ctx->mode == SHOW_TABLE && ctx->fields == NULL;
}

/* --- nodes ---------------------------------------------------------------------------------- */

static void take_lines(const struct context *ctx, const char *node, const Sluice__Logs *logs, json_t *all)
{
    for (size_t i = 0; i < logs->n_lines; i++) {
        if (!is_plain(ctx)) {
            json_array_append_new(all, json_pack("{s:s, s:s}", "node", node, "line", logs->lines[i]));
            continue;
        }
        char *text = show_sentence(logs->lines[i]);

        printf("%s: %s\n", node, text);
        free(text);
    }
}

/* The lines of one node; -1: e says why there are none. */
static int of_node(struct context *ctx, const char *node, uint64_t lines, json_t *all, struct err *e)
{
    Sluice__GetLogs q = SLUICE__GET_LOGS__INIT;
    Sluice__Logs *logs;

    q.node = (char *)(uintptr_t)node;
    q.has_lines = 1;
    q.lines = (uint32_t)lines;
    logs = call(ctx, &q.base, SLUICE__TYPE__LOGS, CALL_LIMIT_S, e);
    if (logs == NULL)
        return -1;
    take_lines(ctx, node, logs, all);
    call_free(logs);
    return 0;
}

/* A node that has none to show keeps back nothing of the others. Returns the exit status. */
static int of_each(struct context *ctx, const struct hostlist *h, uint64_t lines, json_t *all, struct err *e)
{
    size_t n = hostlist_count(h), failed = 0;

    for (size_t i = 0; i < n; i++) {
        if (of_node(ctx, hostlist_name(h, i), lines, all, e) == 0)
            continue;
        if (n == 1 || (e->code != ERR_STATE && e->code != ERR_NOT_FOUND))
            return -1;
        if (++failed == n)
            return -1;
        char *text = show_sentence(e->text);
        fprintf(stderr, "sluice: %s\n", text);
        free(text);
    }
    return failed == 0 ? 0 : ERR_PARTLY;
}

static int of_nodes(struct context *ctx, const struct args *a, const char *list, struct err *e)
{
    uint64_t lines = 100;
    struct hostlist *h;
    json_t *all;
    int r;

    if (show_columns_help(ctx, &lines_listing))
        return 0;
    if (args_u64(a, "lines", 1, 512, &lines, e) < 0 || show_columns_check(ctx, &lines_listing, e) < 0)
        return -1;
    if ((h = nodelist(ctx, a, list, &lines_listing, &r, e)) == NULL)
        return r;
    all = json_array();
    r = of_each(ctx, h, lines, all, e);
    hostlist_destroy(h);
    if (r < 0 || is_plain(ctx))
        json_decref(all);
    else if (show_list(ctx, &lines_listing, NULL, all, e) < 0)
        r = -1;
    return r;
}

/* --- tries ---------------------------------------------------------------------------------- */

static void print_try(const Sluice__Attempt *t)
{
    struct str head = { 0 };
    char *shown, *log = t->log != NULL ? mem_strdup(t->log) : NULL, *rest = log, *line;

    str_addf(&head, "%s: %s", t->id, t->state);
    if (!str_is_empty(t->node))
        str_addf(&head, " on %s", t->node);
    if (t->has_seconds)
        str_addf(&head, " in %.3g s", t->seconds);
    if (!str_is_empty(t->code) && strcmp(t->code, "Done") != 0)
        str_addf(&head, ": %s", t->code);
    if (!str_is_empty(t->text))
        str_addf(&head, ": %s", t->text);
    shown = show_text(str_text(&head));
    printf("%s\n", shown);
    free(shown);
    while (rest != NULL && (line = strsep(&rest, "\n")) != NULL) {
        if (line[0] == '\0' && rest == NULL)
            break;
        shown = show_text(line);
        printf("%s| %s\n", t->id, shown);
        free(shown);
    }
    free(log);
    str_free(&head);
}

static int tries_of(struct context *ctx, uint64_t job, uint64_t tf, uint32_t attempt, json_t *all, struct err *e)
{
    Sluice__GetAttempts q = SLUICE__GET_ATTEMPTS__INIT;
    Sluice__Attempts *tries;
    json_t *list;

    q.has_job = q.has_tf = 1;
    q.job = job;
    q.tf = tf;
    q.has_attempt = attempt > 0;
    q.attempt = attempt;
    tries = call(ctx, &q.base, SLUICE__TYPE__ATTEMPTS, CALL_LIMIT_S, e);
    if (tries == NULL)
        return -1;
    list = message_list(&tries->base, "attempts");
    json_array_extend(all, list);
    json_decref(list);
    for (size_t i = 0; i < tries->n_attempts && is_plain(ctx); i++)
        print_try(tries->attempts[i]);
    call_free(tries);
    return 0;
}

/* Of a whole job: what failed of it, and what is at work. */
static int tries_of_job(struct context *ctx, uint64_t job, json_t *all, struct err *e)
{
    static char *states[] = { "failed", "set-aside", "running" };
    Sluice__GetTasks q = SLUICE__GET_TASKS__INIT;
    Sluice__Tasks *tasks;
    int r = 0;

    q.has_job = q.has_limit = 1;
    q.job = job;
    q.limit = TFS_MOST;
    q.states = states;
    q.n_states = ARRAY_LEN(states);
    tasks = call(ctx, &q.base, SLUICE__TYPE__TASKS, CALL_LIMIT_S, e);
    if (tasks == NULL)
        return -1;
    for (size_t i = 0; r == 0 && i < tasks->n_tasks; i++) {
        const char *bar = tasks->tasks[i]->id != NULL ? strrchr(tasks->tasks[i]->id, '_') : NULL;

        if (bar != NULL)
            r = tries_of(ctx, job, strtoull(bar + 1, NULL, 10), 0, all, e);
    }
    if (tasks->n_tasks == 0 && is_plain(ctx))
        fprintf(stderr, "job %" PRIu64 ": none of its time-frames failed or is at work; sluice logs %" PRIu64 "_N shows one\n", job, job);
    if (tasks->more && is_plain(ctx))
        fprintf(stderr, "job %" PRIu64 ": these are the first %d\n", job, TFS_MOST);
    call_free(tasks);
    return r;
}

static int of_tries(struct context *ctx, const char *text, struct err *e)
{
    uint64_t job, tf;
    uint32_t attempt;
    int n, r;

    if (show_columns_help(ctx, &tries_listing))
        return 0;
    if ((n = args_task(text, &job, &tf, &attempt, e)) == 0 || show_columns_check(ctx, &tries_listing, e) < 0)
        return -1;
    json_t *all = json_array();
    r = n == 1 ? tries_of_job(ctx, job, all, e) : tries_of(ctx, job, tf, attempt, all, e);
    if (r == 0 && !is_plain(ctx))
        return show_list(ctx, &tries_listing, NULL, all, e);
    json_decref(all);
    return r;
}

int cmd_logs(struct context *ctx, const struct args *a, struct err *e)
{
    const char *list = args_text(a, "node", NULL);

    if (list != NULL && a->n > 0)
        return err_set(e, ERR_USAGE, "logs: a job or --node LIST is wanted, not both");
    if (list != NULL)
        return of_nodes(ctx, a, list, e);
    if (a->n > 0)
        return of_tries(ctx, a->at[0], e);
    return err_set(e, ERR_USAGE, "logs: JOB, JOB_N, JOB_N.TRY, or --node LIST is wanted");
}
