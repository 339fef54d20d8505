/* jobfull.c - jobs whose output disk is full: they pause, and go on when there is room
 *
 * From: the workers' reports (flow.c).  To: the jobs' gates; the results that wait stay with their workers, who try again.
 * Always: a job is paused exactly while a worker in contact reports results of it that wait for their disk.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "log.h"
#include "mem.h"

static const Sluice__FullJob *reported(const struct node *n, uint64_t id)
{
    for (size_t i = 0; n->session && n->report && i < n->report->n_full_jobs; i++) {
        if (n->report->full_jobs[i]->job == id)
            return n->report->full_jobs[i];
    }
    return NULL;
}

static void full_set(struct job *j, const struct node *n, const char *word, const char *text)
{
    if (j->full == NULL)
        log_warning("job %" PRIu64 ": paused: %s: %s", j->work.id, n->name, text);
    free(j->full);
    j->full = mem_printf("%s: %s: %s", word, n->name, text);
    job_gate(j);
}

static void full_clear(struct job *j)
{
    log_info("job %" PRIu64 ": there is room for its results again, it goes on", j->work.id);
    free(j->full);
    j->full = NULL;
    job_gate(j);
    job_progress(j);
}

static void look(struct job *j)
{
    for (struct fnode *n = j->work.flow->nodes; n; n = n->hh.next) {
        const Sluice__FullJob *m = reported(n->node, j->work.id);
        if (m) {
            full_set(j, n->node, m->word && m->word[0] ? m->word : "OutputFull", m->text && m->text[0] ? m->text : "no space left");
            return;
        }
    }
    if (j->full)
        full_clear(j);
}

void job_full_report(struct jobs *jobs, const struct node *n)
{
    struct job *j;

    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->full || reported(n, j->work.id))
            look(j);
    }
}
