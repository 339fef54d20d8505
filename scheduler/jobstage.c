/* jobstage.c - the files of a job of very many, told some at a time before it is submitted
 *
 * From: SubmitFiles.  To: jobsubmit.c, which takes them with the Submit of the same connection.
 * A job of a million files in one message would hold up the loop for seconds. Always: what is told belongs to a connection and goes with it, or when nothing
 * more is told for STAGED_LIMIT; all together are bounded; each file is checked when it is told.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include "log.h"
#include "mem.h"

#define STAGED_LIMIT 60.0                /* s */
enum { STAGED_MOST = 2 * FILES_MAX, ASK_AGAIN_MS = 1000 };

struct staged {
    struct staged *next;
    struct session *session;
    struct job_file *file;
    size_t n, cap;
    uint64_t tasks, skipped;
    double at;                           /* flow time of the last part */
};

static void drop(struct jobs *jobs, struct staged *x)
{
    struct staged **p = &jobs->staged;

    while (*p != x)
        p = &(*p)->next;
    *p = x->next;
    jobs->staged_files -= x->n;
    x->session->staged = NULL;
    junk_add(jobs, x->file, x->n, NULL, 0, NULL);
    free(x);
}

void job_unstage(struct session *s)
{
    if (s->staged)
        drop(s->d->jobs, s->staged);
}

static struct staged *staged_of(struct session *s)
{
    struct jobs *jobs = s->d->jobs;
    struct staged *x = s->staged;

    if (x)
        return x;
    x = mem_zalloc(sizeof(*x));
    *x = (struct staged){ .session = s, .next = jobs->staged };
    jobs->staged = s->staged = x;
    return x;
}

static void add(struct jobs *jobs, struct staged *x, const Sluice__InputFile *f)
{
    if (x->n == x->cap) {
        x->cap = x->cap ? 2 * x->cap : 1024;
        x->file = mem_grow(x->file, x->cap, sizeof(*x->file));
    }
    submit_file_fill(&x->file[x->n], f, x->tasks);
    x->tasks += x->file[x->n].tfs;
    x->skipped += x->file[x->n].tfs == 0;
    x->n++;
    jobs->staged_files++;
}

void job_submit_files(struct session *s, uint32_t id, const void *m)
{
    const Sluice__SubmitFiles *x = m;
    struct jobs *jobs = s->d->jobs;
    struct staged *staged = staged_of(s);
    uint64_t tasks = staged->tasks;
    struct err e;

    staged->at = flow_now(jobs->flow);
    if (jobs->staged_files + x->n_files > STAGED_MOST) {
        drop(jobs, staged);
        session_busy(s, id, "other jobs of very many files are being taken in: try again in a second", ASK_AGAIN_MS);
        return;
    }
    if (submit_files_check(s->d->conf, staged->n + x->n_files, x->files, x->n_files, &tasks, NULL, &e) < 0) {
        drop(jobs, staged);
        session_error(s, id, &e, e.code == ERR_PERMISSION ? "NotPermitted" : NULL);
        return;
    }
    for (size_t i = 0; i < x->n_files; i++)
        add(jobs, staged, x->files[i]);
    session_ok(s, id);
}

size_t staged_count(const struct session *s, uint64_t *tasks, uint64_t *skipped)
{
    *tasks = s->staged ? s->staged->tasks : 0;
    *skipped = s->staged ? s->staged->skipped : 0;
    return s->staged ? s->staged->n : 0;
}

void staged_take(struct session *s, struct job *j)
{
    struct staged *x = s->staged;

    j->file = x->file;
    j->n_files = x->n;
    j->n_tasks = x->tasks;
    j->skipped_files = x->skipped;
    j->jobs->staged_files -= x->n;
    x->file = NULL;
    x->n = 0;
    drop(j->jobs, x);
}

/* Who told a part and then nothing more has no place any longer. */
void stage_tick(struct jobs *jobs)
{
    for (struct staged *x = jobs->staged, *next; x; x = next) {
        next = x->next;
        if (flow_now(jobs->flow) - x->at < STAGED_LIMIT)
            continue;
        log_warning("%s: told %zu files of a job and did not submit it", x->session->peer.user, x->n);
        drop(jobs, x);
    }
}

void stage_free(struct jobs *jobs)
{
    while (jobs->staged)
        drop(jobs, jobs->staged);
}
