/* cmd_dump.c - dump: the whole state as JSON lines
 *
 * From: sluiced, question by question.  To: standard output, a line an object with its `kind`; the first line says when and up to which event,
 * the last is {"kind": "end"}. Runs and jobs are followed by their time-frames, so a dump is as long as what the state keeps.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "mem.h"
#include "message.h"
#include "show.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 2000 };

/* --- a line --------------------------------------------------------------------------------- */

/* Takes object. of, id: whose it is. */
static int put(const char *kind, const char *of, uint64_t id, json_t *object, struct err *e)
{
    json_t *line = json_pack("{s:s}", "kind", kind);
    char *text;

    if (of != NULL)
        json_object_set_new(line, of, json_integer((json_int_t)id));
    json_object_update(line, object);
    json_decref(object);
    text = json_dumps(line, SHOW_DUMP_FLAGS | JSON_COMPACT);
    json_decref(line);
    if (text == NULL)
        return err_set(e, ERR_FAILED, "a %s could not be written as JSON", kind);
    puts(text);
    free(text);
    return 0;
}

static int put_all(const char *kind, const char *of, uint64_t id, const ProtobufCMessage *m, const char *field, struct err *e)
{
    json_t *list = message_list(m, field), *object;
    int r = 0;
    size_t i;

    json_array_foreach(list, i, object) {
        if (r == 0)
            r = put(kind, of, id, json_incref(object), e);
    }
    json_decref(list);
    return r;
}

/* --- what is asked in one piece ------------------------------------------------------------- */

static int dump_list(struct context *ctx, const ProtobufCMessage *question, Sluice__Type answer, const char *kind, const char *field, struct err *e)
{
    ProtobufCMessage *m = call(ctx, question, answer, CALL_LIMIT_S, e);
    int r = m != NULL ? put_all(kind, NULL, 0, m, field, e) : -1;

    call_free(m);
    return r;
}

static int dump_nodes(struct context *ctx, struct err *e)
{
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;

    return dump_list(ctx, &q.base, SLUICE__TYPE__NODES, "node", "nodes", e);
}

static int dump_moves(struct context *ctx, struct err *e)
{
    Sluice__GetMoves q = SLUICE__GET_MOVES__INIT;

    q.has_all = q.all = 1;
    return dump_list(ctx, &q.base, SLUICE__TYPE__MOVES, "move", "moves", e);
}

static int dump_crashes(struct context *ctx, struct err *e)
{
    Sluice__GetCrashes q = SLUICE__GET_CRASHES__INIT;

    return dump_list(ctx, &q.base, SLUICE__TYPE__CRASHES, "crash", "crashes", e);
}

static int dump_status(struct context *ctx, struct err *e)
{
    Sluice__GetStatus q = SLUICE__GET_STATUS__INIT;
    Sluice__Status *s = call(ctx, &q.base, SLUICE__TYPE__STATUS, CALL_LIMIT_S, e);
    char now[CLOCK_TEXT];
    int r;

    if (s == NULL)
        return -1;
    r = put("dump", NULL, 0, json_pack("{s:i,s:s,s:s?,s:I,s:I}", "version", 1, "time", clock_rfc3339(clock_wall_ns(), now), "software", s->software,
                                       "epoch", (json_int_t)s->epoch, "seq", (json_int_t)s->seq), e);
    call_free(s);
    return r;
}

static int dump_config(struct context *ctx, struct err *e)
{
    Sluice__GetConfig q = SLUICE__GET_CONFIG__INIT;
    Sluice__Config *c = call(ctx, &q.base, SLUICE__TYPE__CONFIG, CALL_LIMIT_S, e);
    int r = c != NULL ? put("config", NULL, 0, message_answer(&c->base), e) : -1;

    call_free(c);
    return r;
}

/* --- what comes in pages -------------------------------------------------------------------- */

static int dump_tfs(struct context *ctx, uint64_t run, bool settled, struct err *e)
{
    Sluice__GetRunTfs q = SLUICE__GET_RUN_TFS__INIT;
    bool more = true;
    int r = 0;

    q.has_id = q.has_settled = q.has_limit = q.has_from = 1;
    q.id = run;
    q.settled = settled;
    for (q.limit = PAGE; r == 0 && more;) {
        Sluice__RunTfs *t = call(ctx, &q.base, SLUICE__TYPE__RUN_TFS, CALL_LIMIT_S, e);

        if (t == NULL)
            return -1;
        r = put_all("tf", "run", run, &t->base, "tfs", e);
        more = t->more && t->n_tfs > 0;
        q.from = t->n_tfs > 0 ? t->tfs[t->n_tfs - 1]->id + 1 : 0;
        call_free(t);
    }
    return r;
}

static int dump_runs(struct context *ctx, struct err *e)
{
    Sluice__GetRuns q = SLUICE__GET_RUNS__INIT;
    Sluice__Runs *runs;
    int r = 0;

    q.has_all = q.all = 1;
    runs = call(ctx, &q.base, SLUICE__TYPE__RUNS, CALL_LIMIT_S, e);
    if (runs == NULL)
        return -1;
    for (size_t i = 0; r == 0 && i < runs->n_runs; i++) {
        r = put("run", NULL, 0, message_json(&runs->runs[i]->base), e);
        r = r < 0 ? r : dump_tfs(ctx, runs->runs[i]->id, true, e);
        r = r < 0 ? r : dump_tfs(ctx, runs->runs[i]->id, false, e);
    }
    call_free(runs);
    return r;
}

/* The number behind "JOB_". */
static uint64_t task_number(const Sluice__Task *t)
{
    const char *line = t->id != NULL ? strchr(t->id, '_') : NULL;

    return line != NULL ? strtoull(line + 1, NULL, 10) : 0;
}

static int dump_tasks(struct context *ctx, uint64_t job, struct err *e)
{
    Sluice__GetTasks q = SLUICE__GET_TASKS__INIT;
    bool more = true;
    int r = 0;

    q.has_job = q.has_limit = q.has_from = 1;
    q.job = job;
    for (q.limit = PAGE; r == 0 && more;) {
        Sluice__Tasks *t = call(ctx, &q.base, SLUICE__TYPE__TASKS, CALL_LIMIT_S, e);

        if (t == NULL)
            return -1;
        r = put_all("task", "job", job, &t->base, "tasks", e);
        more = t->more && t->n_tasks > 0;
        q.from = t->n_tasks > 0 ? task_number(t->tasks[t->n_tasks - 1]) + 1 : 0;
        call_free(t);
    }
    return r;
}

static int dump_jobs(struct context *ctx, struct err *e)
{
    Sluice__GetJobs q = SLUICE__GET_JOBS__INIT;
    Sluice__Jobs *jobs;
    int r = 0;

    q.has_all = q.all = 1;
    jobs = call(ctx, &q.base, SLUICE__TYPE__JOBS, CALL_LIMIT_S, e);
    if (jobs == NULL)
        return -1;
    for (size_t i = 0; r == 0 && i < jobs->n_jobs; i++) {
        r = put("job", NULL, 0, message_json(&jobs->jobs[i]->base), e);
        r = r < 0 ? r : dump_tasks(ctx, jobs->jobs[i]->id, e);
    }
    call_free(jobs);
    return r;
}

static int dump_events(struct context *ctx, struct err *e)
{
    Sluice__Watch q = SLUICE__WATCH__INIT;
    bool more = true;
    int r = 0;

    q.has_from = q.has_limit = 1;
    q.limit = PAGE;
    for (q.from = 1; r == 0 && more;) {
        Sluice__History *h = call(ctx, &q.base, SLUICE__TYPE__HISTORY, CALL_LIMIT_S, e);

        if (h == NULL)
            return -1;
        r = put_all("event", NULL, 0, &h->base, "events", e);
        more = h->n_events > 0 && h->events[h->n_events - 1]->seq < h->seq;
        q.from = h->n_events > 0 ? h->events[h->n_events - 1]->seq + 1 : q.from;
        call_free(h);
    }
    return r;
}

int cmd_dump(struct context *ctx, const struct args *a, struct err *e)
{
    static int (*const parts[])(struct context *ctx, struct err *e) = {
        dump_status, dump_config, dump_nodes, dump_moves, dump_runs, dump_jobs, dump_crashes, dump_events,
    };
    int r = 0;

    (void)a;
    for (size_t i = 0; i < ARRAY_LEN(parts) && r == 0; i++)
        r = parts[i](ctx, e);
    return r < 0 ? r : put("end", NULL, 0, json_object(), e);
}
