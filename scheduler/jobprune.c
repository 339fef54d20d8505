/* jobprune.c - files, tasks and tries of jobs that ended long ago are removed, a bounded number of rows at a time
 *
 * From: job.c (once a minute), the start, jobsubmit.c (a job of many files that came to nothing).  To: the writer.
 * Kept are those of the newest jobs together with `limits.job_tfs` TFs, as long as they are younger than `limits.job_age`. The job itself, with its totals
 * and its key, is never removed; memory has the newest 1000 that are over.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include "clock.h"
#include "log.h"
#include "mem.h"

enum { AT_ONCE = 5000 };
#define PRUNE_EVERY 60.0         /* s */

struct step { struct jobs *jobs; uint64_t job; int gone; bool orphan; };       /* orphan: files of no job, beside any pruning */

static int step_write(struct db *db, void *arg, struct err *e)
{
    struct step *x = arg;

    x->gone = rows_prune_job(db, x->job, AT_ONCE, e);
    return x->gone < 0 ? -1 : 0;
}

static void all_then(struct job *j, int rc, const struct err *e, void *arg)
{
    (void)e;
    (void)arg;
    if (rc == 0)
        log_info("job %" PRIu64 ": its %" PRIu64 " tasks are no longer kept", j->work.id, j->n_tasks);
}

static void step_then(void *arg, int rc, const struct err *e)
{
    struct step *x = arg;
    struct jobs *jobs = x->jobs;
    struct job *j = job_find(jobs, x->job);

    if (rc < 0) {
        log_warning("job %" PRIu64 ": its tasks could not be removed: %s", x->job, e ? e->text : "?");
    } else if (x->gone == AT_ONCE) {
        writer_put(jobs->d->writer, CHANGE_KEEP, step_write, step_then, x);
        return;
    } else if (j) {
        j->pruned = JOB_PRUNED;
        job_put(j, CHANGE_KEEP, NULL, NULL, all_then, NULL);
    }
    if (!x->orphan) {
        jobs->pruning = false;
        jobs->next_prune = 0;
    }
    free(x);
}

void prune_files(struct jobs *jobs, uint64_t id)
{
    struct step *x = mem_zalloc(sizeof(*x));

    *x = (struct step){ .jobs = jobs, .job = id, .orphan = true };
    writer_put(jobs->d->writer, CHANGE_KEEP, step_write, step_then, x);
}

static void marked_then(struct job *j, int rc, const struct err *e, void *arg)
{
    struct step *x = arg;

    if (rc < 0) {
        j->pruned = 0;
        step_then(x, rc, e);
        return;
    }
    writer_put(x->jobs->d->writer, CHANGE_KEEP, step_write, step_then, x);
}

static void prune(struct job *j)
{
    struct step *x = mem_zalloc(sizeof(*x));

    *x = (struct step){ .jobs = j->jobs, .job = j->work.id };
    j->jobs->pruning = true;
    j->pruned = JOB_PRUNING;
    job_free_details(j);
    job_put(j, CHANGE_KEEP, NULL, NULL, marked_then, x);
}

static bool is_free(const struct job *j)
{
    return j->stored_over && !j->loading && !j->pruned && j->changes == 0 && j->work.records == 0;
}

void prune_tick(struct jobs *jobs)
{
    const struct conf_limits *limits = &jobs->d->conf->limits;
    double now = flow_now(jobs->flow);
    int64_t oldest = clock_wall_ns() - (int64_t)(limits->job_age * 1e9);
    struct job *j, *found = NULL;
    uint64_t kept = 0;
    unsigned n = 0;

    if (jobs->pruning || now < jobs->next_prune || jobs->d->stopping || !writer_accepts_new(jobs->d->writer))
        return;
    jobs->next_prune = now + PRUNE_EVERY;
    TAILQ_FOREACH(j, &jobs->over, entry) {
        n++;
        if (j->pruned)
            continue;
        kept += j->n_tasks + j->n_files;
        if (is_free(j) && (kept > limits->job_tfs || j->ended < oldest || n > JOBS_KEPT))
            found = j;                           /* the oldest of them first */
    }
    if (found)
        prune(found);
}

static int orphan_row(void *arg, uint64_t job)
{
    prune_files(arg, job);
    return 0;
}

int prune_resume(struct jobs *jobs, struct db *db, struct err *e)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->over, entry) {
        if (j->pruned == JOB_PRUNING && !jobs->pruning) {
            struct step *x = mem_zalloc(sizeof(*x));
            *x = (struct step){ .jobs = jobs, .job = j->work.id };
            jobs->pruning = true;
            writer_put(jobs->d->writer, CHANGE_KEEP, step_write, step_then, x);
        }
    }
    return rows_load_orphans(db, orphan_row, jobs, e);
}
