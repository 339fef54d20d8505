/* cmd_job.c - jobs: the list, one of them, what one does with it, its time-frames */
#include "config.h"

#include "command.h"

#include "call.h"
#include "change.h"
#include "mem.h"
#include "message.h"
#include "show.h"
#include "stages.h"
#include "str.h"

#include <ctype.h>
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
static const struct listing listing = { "jobs", columns, "id,name,owner,state,tasks,waiting,running,done,failed,cancelled,skipped,remaining,submitted,why",
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

/* --- what one does with them: one after the other, each told of ------------------------------ */

/* What a command does with each of its jobs, and what it says of one that it was done with: a job as it is then. */
struct verb {
    Sluice__Jobs *(*ask)(struct context *ctx, const struct args *a, uint64_t id, const char *reason, struct err *e);
    char *(*done)(const Sluice__Job *j);
    bool reasons;                   /* takes one */
};

/* A sentence rather than a number: has letters, and a first digit only before other words. */
static bool is_words(const char *text)
{
    bool letters = false;

    for (const char *p = text; *p != '\0'; p++)
        letters = letters || isalpha((unsigned char)*p) || (unsigned char)*p >= 0x80;
    return letters && (!isdigit((unsigned char)text[0]) || strchr(text, ' ') != NULL);
}

/* The reason: --reason, or last behind the numbers; n: how many of the arguments are numbers. NULL is in *reason when there is none. */
static int take_reason(const struct args *a, int *n, const char **reason, struct err *e)
{
    const char *option = args_text(a, "reason", NULL), *last = a->at[a->n - 1];
    bool words = a->n > 1 && is_words(last);

    *n = a->n - words;
    *reason = option != NULL ? option : words ? last : NULL;
    if (option != NULL && words)
        return err_set(e, ERR_USAGE, "%s: the reason is wanted once, '%.60s' and --reason are two", a->command->name, last);
    return *reason != NULL ? change_check_reason(*reason, e) : 0;
}

/* The jobs' numbers, each once, in the order given. How many; 0: one is none, e is set. */
static size_t job_ids(const struct args *a, int n, bool reasons, uint64_t *id, struct err *e)
{
    size_t found = 0, seen;

    for (int i = 0; i < n; i++) {
        if (args_id("job", a->at[i], &id[found], e) < 0) {
            if (reasons && i > 0)
                err_set(e, ERR_USAGE, "'%.60s': a job's number is wanted, or, last, a reason in words; --reason TEXT takes any", a->at[i]);
            return 0;
        }
        for (seen = 0; id[seen] != id[found]; seen++)
            ;
        found += seen == found;
    }
    return found;
}

static void say_done(const struct verb *v, const struct args *a, const Sluice__Job *j, const char *reason)
{
    char *what, *shown;

    if (args_has(a, "quiet"))
        return;
    what = v->done(j);
    shown = reason != NULL ? show_text(reason) : NULL;
    printf("job %" PRIu64 ": %s%s%s\n", j->id, what, shown != NULL ? ": " : "", shown != NULL ? shown : "");
    fflush(stdout);                 /* before what is said of the next one */
    free(what);
    free(shown);
}

/* One of them; the job goes into the list of a listing, or is told of. */
static int change_job(struct context *ctx, const struct args *a, const struct verb *v, uint64_t id, const char *reason, json_t *list, struct err *e)
{
    Sluice__Jobs *jobs = v->ask(ctx, a, id, reason, e);
    json_t *shown;

    if (jobs == NULL)
        return -1;
    shown = message_list(&jobs->base, "jobs");
    json_array_extend(list, shown);
    if (jobs->n_jobs > 0 && ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        say_done(v, a, jobs->jobs[0], reason);
    json_decref(shown);
    call_free(jobs);
    return 0;
}

/* Of several, each that is refused is told of at once, and the others go on; the exit status is that of the first. */
static int change_each(struct context *ctx, const struct args *a, const struct verb *v, const uint64_t *id, size_t n, const char *reason, json_t *list,
                       struct err *e)
{
    int first = 0;

    for (size_t i = 0; i < n; i++) {
        if (change_job(ctx, a, v, id[i], reason, list, e) == 0)
            continue;
        if (n == 1 || e->code == ERR_UNREACHABLE || e->code == ERR_PROTOCOL)
            return -1;
        char *text = show_sentence(e->text);
        fprintf(stderr, "sluice: %s\n", text);
        free(text);
        first = first == 0 ? (int)e->code : first;
    }
    return first;
}

static int change_jobs(struct context *ctx, const struct args *a, const struct verb *v, struct err *e)
{
    const char *reason = NULL;
    uint64_t *id;
    json_t *list;
    size_t n = 0;
    int words = a->n, r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (show_columns_check(ctx, &listing, e) < 0 || (v->reasons && take_reason(a, &words, &reason, e) < 0))
        return -1;
    id = mem_array((size_t)a->n, sizeof(*id));
    list = json_array();
    if ((n = job_ids(a, words, v->reasons, id, e)) > 0)
        r = change_each(ctx, a, v, id, n, reason, list, e);
    if (json_array_size(list) > 0 && (ctx->mode != SHOW_TABLE || ctx->fields != NULL) && show_list(ctx, &listing, NULL, json_incref(list), e) < 0)
        r = -1;
    json_decref(list);
    free(id);
    return r;
}

static Sluice__Jobs *ask_cancel(struct context *ctx, const struct args *a, uint64_t id, const char *reason, struct err *e)
{
    Sluice__CancelJob q = SLUICE__CANCEL_JOB__INIT;

    (void)a;
    q.has_id = 1;
    q.id = id;
    q.reason = (char *)reason;
    return call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
}

static Sluice__Jobs *ask_hold(struct context *ctx, const struct args *a, uint64_t id, const char *reason, struct err *e)
{
    Sluice__HoldJob q = SLUICE__HOLD_JOB__INIT;

    (void)a;
    q.has_id = 1;
    q.id = id;
    q.reason = (char *)reason;
    return call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
}

static Sluice__Jobs *ask_release(struct context *ctx, const struct args *a, uint64_t id, const char *reason, struct err *e)
{
    Sluice__ReleaseJob q = SLUICE__RELEASE_JOB__INIT;

    (void)a;
    (void)reason;
    q.has_id = 1;
    q.id = id;
    return call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
}

static Sluice__Jobs *ask_rerun(struct context *ctx, const struct args *a, uint64_t id, const char *reason, struct err *e)
{
    Sluice__RerunJob q = SLUICE__RERUN_JOB__INIT;

    (void)reason;
    q.has_id = q.has_all = 1;
    q.id = id;
    q.all = !args_has(a, "failed");
    return call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
}

static char *done_cancel(const Sluice__Job *j)
{
    return mem_printf("cancelled, %" PRIu64 " of %" PRIu64 " TFs were done", j->done, j->tasks);
}

static char *done_hold(const Sluice__Job *j)
{
    return j->running > 0 ? mem_printf("held, %" PRIu64 " TFs that nodes have go on to their end", j->running) : mem_strdup("held");
}

static char *done_release(const Sluice__Job *j)
{
    char *word = message_enum_word(&sluice__job_state__descriptor, (int)j->state), *text = mem_printf("released, it is %s", word);

    free(word);
    return text;
}

static char *done_rerun(const Sluice__Job *j)
{
    return mem_printf("runs again, %" PRIu64 " of %" PRIu64 " TFs", j->waiting + j->running, j->tasks);
}

int cmd_job_cancel(struct context *ctx, const struct args *a, struct err *e)
{
    return change_jobs(ctx, a, &(struct verb){ ask_cancel, done_cancel, true }, e);
}

int cmd_job_hold(struct context *ctx, const struct args *a, struct err *e)
{
    return change_jobs(ctx, a, &(struct verb){ ask_hold, done_hold, true }, e);
}

int cmd_job_release(struct context *ctx, const struct args *a, struct err *e)
{
    return change_jobs(ctx, a, &(struct verb){ ask_release, done_release, false }, e);
}

int cmd_job_rerun(struct context *ctx, const struct args *a, struct err *e)
{
    return change_jobs(ctx, a, &(struct verb){ ask_rerun, done_rerun, false }, e);
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
