/* jobdetail.c - the tasks of a job that is over for long, read again when somebody asks for them
 *
 * From: job tfs, job rerun.  To: a reader of the database in a helper thread; back to whoever asked.
 * The thread fills a job of its own, which nobody else knows; its files and tasks change hands in the loop, if the real one still lacks them.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "helper.h"
#include "mem.h"

struct detail {
    struct sluiced *d;
    uint64_t id;
    char  *dir;
    struct jobs words;                   /* of the thread's: short texts that its tasks share */
    struct job read;                     /* its number, its tasks */
    int    rc;
    struct err why;
    void (*then)(void *arg, struct job *j, const struct err *e);
    void  *arg;
};

static void work(void *arg)
{
    struct detail *x = arg;
    struct db *db = db_open_reader(x->dir, &x->why);

    x->rc = db == NULL ? -1 : task_load(&x->read, db, NULL, &x->why);
    db_close(db);
}

static void done(void *arg)
{
    struct detail *x = arg;
    struct job *j = x->d->jobs ? job_find(x->d->jobs, x->id) : NULL;

    if (x->rc == 0 && j && j->ended && j->task == NULL && !j->pruned) {
        j->file = x->read.file;
        j->n_files = x->read.n_files;
        j->task = x->read.task;
        j->words = x->words.words;
        x->words.words = NULL;
        x->read.file = NULL;
        x->read.task = NULL;
        x->read.n_files = 0;
    }
    if (x->rc == 0 && (j == NULL || j->task == NULL))
        x->rc = err_set(&x->why, ERR_NOT_FOUND, "the tasks of job %" PRIu64 " " JOB_PRUNED_TEXT, x->id);
    x->then(x->arg, x->rc < 0 ? NULL : j, &x->why);
    job_free_details(&x->read);
    words_free(&x->words.words);
    free(x->dir);
    free(x);
}

void job_detail(struct sluiced *d, uint64_t id, void (*then)(void *arg, struct job *j, const struct err *e), void *arg)
{
    struct job *j = job_find(d->jobs, id);
    struct err e;

    if (j && j->task) {
        then(arg, j, NULL);
        return;
    }
    if (j == NULL || j->pruned) {
        err_set(&e, ERR_NOT_FOUND, j ? "the tasks of job %" PRIu64 " " JOB_PRUNED_TEXT : "no job %" PRIu64, id);
        then(arg, NULL, &e);
        return;
    }
    struct detail *x = mem_zalloc(sizeof(*x));
    *x = (struct detail){ .d = d, .id = id, .dir = mem_strdup(d->conf->state_dir), .then = then, .arg = arg };
    x->read.work.id = id;
    x->read.jobs = &x->words;
    x->read.n_tasks = j->n_tasks;
    x->read.ended = j->ended;
    if (helper_run(d->helper, work, done, x, &e) < 0) {
        then(arg, NULL, &e);
        free(x->dir);
        free(x);
    }
}
