/* jobjunk.c - what was known of a job's files and tasks goes, a little at a time
 *
 * From: job.c (a job that is over for long, or was not accepted), jobstage.c.  To: nobody.
 * A million files are three million pieces of memory: given back at once they would hold up the loop for a good part of a second.
 */
#include "config.h"
#include "job.h"

#include <stdlib.h>
#include "mem.h"

enum { FILES_A_TICK = 10000, TASKS_A_TICK = 200000 };

struct junk {
    struct junk *next;
    struct job_file *file;
    struct task *task;
    struct word *words;
    size_t n_files;
    uint64_t n_tasks;
};

static void free_file(struct job_file *f)
{
    free(f->path);
    free(f->stem);
    free(f->text);
    free(f->extent);
}

/* At most so many, from the end. true: all are gone. */
static bool free_some(struct junk *x, size_t files, uint64_t tasks)
{
    for (; files > 0 && x->n_files > 0; files--)
        free_file(&x->file[--x->n_files]);
    for (; tasks > 0 && x->n_tasks > 0; tasks--)
        free(x->task[--x->n_tasks].text);
    if (x->n_files > 0 || x->n_tasks > 0)
        return false;
    free(x->file);
    free(x->task);
    words_free(&x->words);
    return true;
}

void junk_add(struct jobs *jobs, struct job_file *file, size_t n_files, struct task *task, uint64_t n_tasks, struct word *words)
{
    struct junk all = { .file = file, .n_files = n_files, .task = task, .n_tasks = task ? n_tasks : 0, .words = words };
    bool lazy = jobs->d != NULL && jobs->d->loop != NULL && (n_files > FILES_A_TICK || all.n_tasks > TASKS_A_TICK);

    if (!lazy) {
        free_some(&all, SIZE_MAX, UINT64_MAX);
        return;
    }
    struct junk *x = mem_zalloc(sizeof(*x));
    *x = all;
    x->next = jobs->junk;
    jobs->junk = x;
}

void junk_tick(struct jobs *jobs)
{
    struct junk *x = jobs->junk;

    if (x == NULL || !free_some(x, FILES_A_TICK, TASKS_A_TICK))
        return;
    jobs->junk = x->next;
    free(x);
}

void junk_free(struct jobs *jobs)
{
    struct junk *x;

    while ((x = jobs->junk)) {
        jobs->junk = x->next;
        free_some(x, SIZE_MAX, UINT64_MAX);
        free(x);
    }
}

void job_free_details(struct job *j)
{
    junk_add(j->jobs, j->file, j->n_files, j->task, j->n_tasks, j->words);
    j->file = NULL;
    j->task = NULL;
    j->words = NULL;
    j->n_files = 0;
}
