/* jobload.c - jobs at the start and end of sluiced: what the database has of them, and what is freed
 *
 * From: state/ (at start-up only).  To: job.c's structs; jobread.c, which reads their tasks once all else is served.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "crash.h"
#include "log.h"
#include "mem.h"
#include "ran.h"
#include "rows.h"

struct loading { struct jobs *jobs; struct err *e; };

static Sluice__JobState state_parse(const char *word)
{
    for (int i = 0; i < 7; i++) {
        if (word && strcmp(word, job_state_name[i]) == 0)
            return (Sluice__JobState)i;
    }
    return SLUICE__JOB_STATE__JOB_FAILED;
}

static void load_classes(struct job *j, const char *classes)
{
    char *copy = mem_strdup(classes ? classes : ""), *save = NULL;

    for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save))
        j->work.asked |= flow_class_bit(j->work.flow, word);
    able_narrow(&j->work);
    free(copy);
    j->classes = mem_strdup(classes ? classes : "");
}

static int load_job(void *arg, const struct row_job *row)
{
    struct loading *l = arg;
    struct job *j = job_create(l->jobs, row->id);
    struct work *w = &j->work;

    w->name = mem_strdup(row->name);
    w->workflow = mem_strdup(row->workflow);
    w->backends = mem_strdup(row->backends ? row->backends : "");
    w->options = mem_strdup(row->options ? row->options : "");
    w->output = mem_strdup(row->output ? row->output : "");
    w->uid = row->uid;
    w->user = flow_user(w->flow, w->uid);
    w->gid = row->gid;
    w->priority = row->priority;
    w->time_limit = row->time_limit;
    w->nice = (struct work_nice){ row->nice, row->nice_min, row->nice_max };
    w->retried = row->retried;
    w->preempted = row->preempted;
    j->straggler = row->straggler;
    j->owner = mem_strdup(row->owner);
    j->key = mem_strdup(row->key);
    j->why = mem_strdup(row->text);
    j->state = state_parse(row->state);
    j->held = j->state == SLUICE__JOB_STATE__HELD;
    j->attempts = row->attempts;
    j->n_tasks = row->tasks;
    j->submitted = row->submitted;
    j->begin = row->begin;
    j->begun = row->begun;
    j->reruns = row->reruns;
    j->pruned = row->pruned;
    if (after_parse(row->after, &j->after, l->e) < 0)
        return err_prefix(l->e, "job %" PRIu64, row->id);
    j->unpublished = row->unpublished;
    j->folder = mem_strdup(row->folder);
    j->unswept = row->unswept || (!row->ended && w->output[0] != '\0');        /* workers may have gone while we were away */
    l->jobs->unswept |= j->unswept;
    j->ended = row->ended;
    j->stored = true;
    ran_totals_read(&j->ran, row->stages);
    tally_read(&w->failures, row->failures);
    load_classes(j, row->classes);
    j->n[TASK_DONE] = row->done;
    j->n[TASK_FAILED] = row->failed;
    j->n[TASK_CANCELLED] = row->cancelled;
    j->n[TASK_WAITING] = j->n_tasks - row->done - row->failed - row->cancelled;
    j->skipped_files = row->skipped;
    j->loading = !row->ended || row->unpublished;
    l->jobs->loading += j->loading;
    if (row->ended) {
        j->stored_over = true;
        TAILQ_REMOVE(&w->flow->works, w, entry);
        TAILQ_REMOVE(&l->jobs->open, j, entry);
        job_retire(j);
    }
    return 0;
}

struct other { struct job *job; bool found; };

static int other_row(void *arg, const struct row_job *row)
{
    struct other *o = arg;

    o->found = true;
    after_restore(o->job, row);
    return 0;
}

/* Whether what it comes after has come. */
static int load_after(struct job *j, struct db *db, struct err *e)
{
    struct other o = { .job = j };

    j->begun = j->begun || j->n[TASK_RUNNING] + j->n[TASK_DONE] + j->n[TASK_FAILED] > 0;
    if (j->begun || j->after.kind == AFTER_NOTHING || job_find(j->jobs, j->after.job))
        return 0;
    if (rows_load_job(db, j->after.job, other_row, &o, e) < 0)
        return -1;
    if (!o.found)
        after_restore(j, NULL);
    return 0;
}

static int load_gates(struct jobs *jobs, struct db *db, struct err *e)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (load_after(j, db, e) < 0)
            return -1;
    }
    return 0;
}

struct jobs *jobs_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct jobs *jobs = mem_zalloc(sizeof(*jobs));
    struct loading l = { .jobs = jobs, .e = e };
    struct row_ids ids;

    jobs->d = d;
    jobs->flow = flow_share(d->flow);
    TAILQ_INIT(&jobs->open);
    TAILQ_INIT(&jobs->over);
    jobs->rows = task_rows_create(jobs);
    if (db && (rows_load_ids(db, &ids, e) < 0 || rows_load_jobs(db, false, load_job, &l, e) < 0 || load_gates(jobs, db, e) < 0)) {
        jobs_destroy(jobs);
        return NULL;
    }
    if (db)
        jobs->last_id = ids.job;
    jobs->crashes = crashes_create(d, db, e);
    if (jobs->crashes == NULL) {
        jobs_destroy(jobs);
        return NULL;
    }
    if (db && prune_resume(jobs, db, e) < 0) {
        jobs_destroy(jobs);
        return NULL;
    }
    read_begin(jobs);
    return jobs;
}

void jobs_stop(struct jobs *jobs)
{
    if (jobs)
        task_rows_now(jobs->rows);
}

void jobs_destroy(struct jobs *jobs)
{
    struct job *j;

    if (jobs == NULL)
        return;
    struct record *rec, *next;
    HASH_ITER(hh, jobs->flow->records, rec, next) {
        if (rec->key.is_job) {
            job_of(rec->work)->in_progress = true;       /* no end any more */
            record_free(rec);
        }
    }
    while ((j = TAILQ_FIRST(&jobs->open))) {
        TAILQ_REMOVE(&jobs->open, j, entry);
        TAILQ_REMOVE(&jobs->flow->works, &j->work, entry);
        job_destroy(j);
    }
    while ((j = TAILQ_FIRST(&jobs->over))) {
        TAILQ_REMOVE(&jobs->over, j, entry);
        job_destroy(j);
    }
    read_free(jobs);
    stage_free(jobs);
    crashes_destroy(jobs->crashes);
    task_rows_destroy(jobs->rows);
    words_free(&jobs->words);
    junk_free(jobs);
    flow_unshare(jobs->flow);
    free(jobs);
}
