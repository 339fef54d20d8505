/* wait.c - Wait: answered when a run or job is over, or its time is up
 *
 * From: Wait.  To: the asker. Codes: 0 done, 10 done but some failed or were skipped, 11 cancelled, 12 lost, 1 failed, 7 time is up.
 */
#include "config.h"
#include "wait.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "job.h"
#include "mem.h"
#include "move.h"
#include "run.h"
#include "str.h"

struct wait_ask { struct session_ref ref; bool is_job; uint64_t id; double until; struct wait_ask *next; };

static void answer(struct session_ref ref, int code, const char *text)
{
    struct session *s = session_find(ref);
    Sluice__Waited m = SLUICE__WAITED__INIT;

    if (s == NULL)
        return;
    m.has_code = true;
    m.code = (uint32_t)code;
    m.text = (char *)text;
    session_answer(s, ref.id, &m.base);
}

/* Pruned long ago, or lost with the state: what became of it nobody can say. */
static void answer_unknown(struct session_ref ref, const Sluice__Wait *x)
{
    char text[160];

    snprintf(text, sizeof(text), "%s %" PRIu64 ": is not known here: there was none, it was pruned, or the state that had it is lost", x->kind, x->id);
    answer(ref, ERR_LOST, text);
}

static void answer_run(struct session_ref ref, const struct run *r)
{
    uint64_t bad = r->failed + r->lost + tally_sum(r->dropped);
    char text[500];

    snprintf(text, sizeof(text), "run %" PRIu64 ": %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " dropped, %" PRIu64 " lost%s%.300s", r->work.id, r->done, r->failed,
             tally_sum(r->dropped), r->lost, r->text == NULL ? "" : "; ", r->text == NULL ? "" : r->text);
    str_mend(text, strlen(text));
    answer(ref, r->state == SLUICE__RUN_STATE__RUN_ERROR ? ERR_FAILED : bad ? ERR_SOME_FAILED : ERR_NONE, text);
}

static void answer_job(struct session_ref ref, const struct job *j)
{
    char text[300];
    int code = ERR_NONE;

    size_t n = (size_t)snprintf(text, sizeof(text), "job %" PRIu64 ": %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " cancelled, %" PRIu64 " files skipped",
                                j->work.id, j->n[TASK_DONE], j->n[TASK_FAILED], j->n[TASK_CANCELLED], j->skipped_files);
    if (j->work.records > 0)
        snprintf(text + n, sizeof(text) - n, "; results without their final name yet: %u, as their node or their disk is away (sluice why %" PRIu64 ")", j->work.records,
                 j->work.id);
    if (j->state == SLUICE__JOB_STATE__JOB_CANCELLED)
        code = ERR_CANCELLED;
    else if (j->n[TASK_FAILED] || j->skipped_files)
        code = ERR_SOME_FAILED;
    answer(ref, code, text);
}

static void ask_add(struct session *s, uint32_t id, bool is_job, uint64_t of, double timeout)
{
    struct wait_ask *a = mem_zalloc(sizeof(*a));

    a->ref = session_refer(s, id);
    a->is_job = is_job;
    a->id = of;
    a->until = timeout > 0 ? flow_now(s->d->flow) + timeout : 0;
    a->next = s->d->runs->waits;
    s->d->runs->waits = a;
}

void flow_wait(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Wait *x = m;
    struct session_ref ref = session_refer(s, id);
    struct err e;

    if (x->kind && strcmp(x->kind, "move") == 0) {
        move_wait(s, id, m);
    } else if (x->kind && strcmp(x->kind, "run") == 0) {
        struct run *r = run_find(s->d->runs, x->id, true);
        if (r == NULL)
            answer_unknown(ref, x);
        else if (r->stored_over)
            answer_run(ref, r);
        else
            ask_add(s, id, false, x->id, x->timeout);
    } else if (x->kind && strcmp(x->kind, "job") == 0) {
        struct job *j = job_find(s->d->jobs, x->id);
        if (j == NULL)
            answer_unknown(ref, x);
        else if (j->stored_over)
            answer_job(ref, j);
        else
            ask_add(s, id, true, x->id, x->timeout);
    } else {
        err_set(&e, ERR_USAGE, "one can wait for a job, a run or a move, not for \"%.40s\"", x->kind ? x->kind : "");
        session_error(s, id, &e, NULL);
    }
}

static void each_ask(struct runs *runs, bool is_job, uint64_t id, void (*fn)(struct session_ref, const void *), const void *arg)
{
    for (struct wait_ask **p = &runs->waits; *p;) {
        struct wait_ask *a = *p;
        if (a->is_job != is_job || a->id != id) {
            p = &a->next;
            continue;
        }
        *p = a->next;
        fn(a->ref, arg);
        free(a);
    }
}

static void over_run(struct session_ref ref, const void *r)
{
    answer_run(ref, r);
}

static void over_job(struct session_ref ref, const void *j)
{
    answer_job(ref, j);
}

void wait_run_over(struct run *r)
{
    each_ask(r->runs, false, r->work.id, over_run, r);
}

void wait_job_over(struct job *j)
{
    if (j->jobs->d->runs)
        each_ask(j->jobs->d->runs, true, j->work.id, over_job, j);
}

/* Somebody gives up: of a job of which nothing runs, why that is so. */
static void answer_late(struct runs *runs, const struct wait_ask *a)
{
    const struct job *j = a->is_job ? job_find(runs->d->jobs, a->id) : NULL;
    const char *why = j != NULL && j->n[TASK_RUNNING] == 0 ? job_why(j) : NULL;
    char text[300];

    snprintf(text, sizeof(text), "%s %" PRIu64 ": is not over yet%s%.200s", a->is_job ? "job" : "run", a->id, why ? ", it waits: " : "", why ? why : "");
    answer(a->ref, ERR_TIMEOUT, text);
}

void wait_tick(struct runs *runs, double now)
{
    for (struct wait_ask **p = &runs->waits; *p;) {
        struct wait_ask *a = *p;
        bool gone = session_find(a->ref) == NULL;

        if (!gone && (a->until == 0 || now < a->until)) {
            p = &a->next;
            continue;
        }
        *p = a->next;
        if (!gone)
            answer_late(runs, a);
        free(a);
    }
}

void wait_free(struct runs *runs)
{
    while (runs->waits) {
        struct wait_ask *a = runs->waits;
        runs->waits = a->next;
        free(a);
    }
}
