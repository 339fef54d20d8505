/* runwatch.c - runs as others see them: the pool they use, whether their books balance, what somebody should look at
 *
 * From: move.c (minimum of a pool), show.c (check, alarms).
 */
#include "config.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "mem.h"

#define FAILED_SHOWN 600.0       /* s after a failed TF that it stays an alarm */
#define MISSING_AFTER 10.0       /* s that sources have to come before it is one that they do not */

/* ---- as others see the pool ---------------------------------------------------------------- */

const char *run_name(struct sluiced *d, uint64_t id)
{
    const struct run *r = d->runs == NULL ? NULL : run_find(d->runs, id, false);

    return r == NULL || r->work.name == NULL ? "" : r->work.name;
}

bool run_uses_pool(struct sluiced *d, int pool, unsigned *min_nodes, uint64_t *run)
{
    struct run *r;
    bool uses = false;

    *min_nodes = 0;
    if (d->runs == NULL)
        return false;
    TAILQ_FOREACH(r, &d->runs->open, entry) {
        if (r->work.pool != pool)
            continue;
        if (!uses || r->min_nodes > *min_nodes) {
            *min_nodes = r->min_nodes;
            *run = r->work.id;
        }
        uses = true;
    }
    return uses;
}

/* ---- check and alarms ---------------------------------------------------------------------- */

void run_each_check(struct runs *runs, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    struct run *r;
    struct err e;

    TAILQ_FOREACH(r, &runs->open, entry) {
        uint64_t flight = 0, dropped = tally_sum(r->dropped);
        for (struct tf *t = r->work.tfs; t; t = t->hh.next) {
            flight++;
            if (idset_has(&r->settled, t->id))
                flight += r->announced + 1;      /* in flight and settled: must not be */
        }
        bool ok = r->announced == r->done + r->failed + dropped + r->lost + flight && r->settled.count == r->done + r->failed + dropped + r->lost;
        err_set(&e, ERR_NONE, "run %" PRIu64 ": announced %" PRIu64 " = done %" PRIu64 " + failed %" PRIu64 " + dropped %" PRIu64 " + lost %" PRIu64
                " + in flight %" PRIu64 " (counted); %" PRIu64 " settled numbers", r->work.id, r->announced, r->done, r->failed, dropped, r->lost, flight,
                r->settled.count);
        line(arg, "conservation", ok, e.text);
    }
    TAILQ_FOREACH(r, &runs->over, entry) {
        uint64_t dropped = tally_sum(r->dropped);
        if (r->announced == r->done + r->failed + dropped + r->lost)
            continue;
        err_set(&e, ERR_NONE, "run %" PRIu64 " is over: announced %" PRIu64 ", done %" PRIu64 ", failed %" PRIu64 ", dropped %" PRIu64 ", lost %" PRIu64,
                r->work.id, r->announced, r->done, r->failed, dropped, r->lost);
        line(arg, "conservation", false, e.text);
    }
    err_set(&e, ERR_NONE, "%u runs that are over", runs->n_over);
    line(arg, "conservation", true, e.text);
}

static const char *run_about(const struct run *r, char out[32])
{
    snprintf(out, 32, "run %" PRIu64, r->work.id);
    return out;
}

static void alarm_sources(const struct run *r, double now, alarm_fn fn, void *arg)
{
    const struct source *first = NULL;
    unsigned gone = 0;
    char text[320], about[32];

    for (unsigned i = 0; i < r->n_sources; i++) {
        const struct source *s = &r->source[i];
        if (s->session || s->gone_since == 0 || s->ended)
            continue;
        gone++;
        if (first == NULL || s->gone_since < first->gone_since)
            first = s;
    }
    if (gone == 0)
        return;
    snprintf(text, sizeof(text), "run %" PRIu64 ": %u of %u sources are gone, source %.60s first", r->work.id, gone, r->n_sources, first->name);
    fn(arg, &(struct alarm){ .word = "SourceGone", .about = run_about(r, about), .text = text, .advice = "start it again, or stop the run", .since_s = now - first->gone_since });
}

/* A run begins when all its sources are there, so that one that was never started keeps the others waiting. */
static void alarm_missing(const struct run *r, alarm_fn fn, void *arg)
{
    double age = (double)(clock_wall_ns() - r->started) / 1e9;
    unsigned missing = 0;
    char text[160], about[32];

    for (unsigned i = 0; i < r->n_sources; i++)
        missing += r->source[i].generation == 0 && r->source[i].gone_since == 0;
    if (missing == 0 || age < MISSING_AFTER)
        return;
    snprintf(text, sizeof(text), "run %" PRIu64 " waits for sources: %u of %u have not come yet", r->work.id, missing, r->n_sources);
    fn(arg, &(struct alarm){ .word = "SourceMissing", .about = run_about(r, about), .text = text, .since_s = age - MISSING_AFTER,
                             .advice = "start what is missing, or stop the run (sluice run stop ID)" });
}

static void alarm_failed(const struct run *r, double now, alarm_fn fn, void *arg)
{
    if (r->failed_at == 0 || now - r->failed_at > FAILED_SHOWN)
        return;
    char *text = mem_printf("run %" PRIu64 ": %" PRIu64 " TFs failed; %s", r->work.id, r->failed, r->text), about[32];
    fn(arg, &(struct alarm){ .word = "TfsFailed", .about = run_about(r, about), .text = text, .since_s = now - r->failed_at,
                             .advice = "put right what the text names; `sluice run tfs ID --settled` lists them all; this goes away 10 minutes after the last" });
    free(text);
}

void run_alarms(struct runs *runs, alarm_fn fn, void *arg)
{
    double now = flow_now(runs->flow);
    char text[320], about[32];
    struct run *r;

    TAILQ_FOREACH(r, &runs->open, entry) {
        if (run_stalled(r, now) > RUN_STALLED) {
            snprintf(text, sizeof(text), "run %" PRIu64 " is full and nothing came back for %.0f s", r->work.id, run_stalled(r, now));
            fn(arg, &(struct alarm){ .word = "RunStalled", .about = run_about(r, about), .text = text, .since_s = run_stalled(r, now),
                                     .advice = "`sluice run tfs ID` shows where its TFs are; look at the nodes named there" });
        }
        if (flow_usable_nodes(runs->flow, r->work.pool) < r->min_nodes) {
            snprintf(text, sizeof(text), "run %" PRIu64 " wants %u nodes, %u are usable", r->work.id, r->min_nodes, flow_usable_nodes(runs->flow, r->work.pool));
            fn(arg, &(struct alarm){ .word = "RunShort", .about = run_about(r, about), .text = text,
                                     .advice = "see why nodes of the pool are not usable (sluice nodes -p POOL); put that right, clear marks, or move nodes there" });
        }
        alarm_sources(r, now, fn, arg);
        alarm_missing(r, fn, arg);
        alarm_failed(r, now, fn, arg);
    }
    TAILQ_FOREACH(r, &runs->over, entry)
        alarm_failed(r, now, fn, arg);
}
