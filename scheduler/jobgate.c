/* jobgate.c - when a job may begin: its time, the end of another job, its release
 *
 * From: job.c (every tick while it is paused), jobsubmit.c, jobcontrol.c, jobload.c.  To: work.paused, which assign.c obeys.
 * Always: what was once found to have come is stored and not looked at again: a clock that is set back, or the other job's rerun, holds up nothing that began.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "log.h"
#include "mem.h"
#include "rows.h"
#include "str.h"

static const char *const kind_word[] = { [AFTER_OK] = "ok", [AFTER_ANY] = "any", [AFTER_NOTOK] = "notok" };

int after_parse(const char *text, struct after *a, struct err *e)
{
    const char *colon = text ? strchr(text, ':') : NULL;
    struct after found = { .kind = AFTER_NOTHING };

    if (text == NULL || text[0] == '\0') {
        *a = found;
        return 0;
    }
    for (unsigned i = AFTER_OK; colon && i < ARRAY_LEN(kind_word); i++) {
        if (strlen(kind_word[i]) == (size_t)(colon - text) && strncmp(text, kind_word[i], (size_t)(colon - text)) == 0)
            found.kind = i;
    }
    if (found.kind == AFTER_NOTHING || str_parse_u64("job", colon + 1, 1, INT64_MAX, &found.job, e) < 0)
        return err_set(e, ERR_USAGE, "after \"%.80s\": ok:ID, any:ID or notok:ID is wanted, ID being the number of a job", text);
    *a = found;
    return 0;
}

char *after_text(const struct after *a)
{
    return a->kind == AFTER_NOTHING ? NULL : mem_printf("%s:%" PRIu64, kind_word[a->kind], a->job);
}

static bool is_met(const struct after *a, bool ended_ok)
{
    return a->kind == AFTER_ANY || ended_ok == (a->kind == AFTER_OK);
}

static bool ended_ok(Sluice__JobState state, uint64_t failed)
{
    return state == SLUICE__JOB_STATE__JOB_DONE && failed == 0;
}

void after_restore(struct job *j, const struct row_job *row)
{
    bool ok = row && strcmp(row->state, job_state_name[SLUICE__JOB_STATE__JOB_DONE]) == 0 && row->failed == 0;

    if (row && row->ended && is_met(&j->after, ok))
        j->after.met = true;
    else
        j->after.never = true;
}

const char *job_waits_for(const struct job *j)
{
    if (j->begun)
        return NULL;
    if (j->begin > clock_wall_ns())
        return "BeginTime";
    if (j->after.kind == AFTER_NOTHING || j->after.met)
        return NULL;
    const struct job *other = job_find(j->jobs, j->after.job);
    if (other == NULL)
        return "DependencyNeverSatisfied";
    if (!other->stored_over)
        return "DependencyNotDone";
    return is_met(&j->after, ended_ok(other->state, other->n[TASK_FAILED])) ? NULL : "DependencyNeverSatisfied";
}

static void begun_then(struct job *j, int rc, const struct err *e, void *arg)
{
    (void)arg;
    if (rc < 0)
        log_err("job %" PRIu64 ": that it may begin was not stored: %s", j->work.id, e ? e->text : "?");
}

void job_gate(struct job *j)
{
    bool was = j->work.paused;

    if (j->stored && !j->loading && !j->begun && !j->ended && job_waits_for(j) == NULL) {
        j->begun = true;
        if (j->begin || j->after.kind != AFTER_NOTHING)
            job_put(j, CHANGE_KEEP, NULL, NULL, begun_then, NULL);
    }
    j->work.paused = !j->stored || j->loading || j->held || j->full || j->sweeping || j->releases > 0 || !j->begun;
    if (was && !j->work.paused)
        flow_kick(j->work.flow);
}
