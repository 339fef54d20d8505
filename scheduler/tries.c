/* tries.c - the tries at a TF of a job, with what the reconstruction process printed
 *
 * From: GetAttempts.  To: a reader of the database in a helper thread; the asker.
 * The database has a try from its beginning on, and how it ended from the next one's beginning on; of the newest one memory may know more.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "helper.h"
#include "mem.h"

enum { TRIES_MOST = 1000 };

struct tries {
    struct session_ref ref;
    struct sluiced *d;
    char *dir, *output;
    uint64_t job, number;
    uint32_t attempt;
    Sluice__Attempts m;
    int rc;
    struct err why;
};

static int row_take(void *arg, const struct row_task *row)
{
    struct tries *x = arg;
    Sluice__Attempt *a = mem_zalloc(sizeof(*a));
    bool done = row->state && strcmp(row->state, "done") == 0;

    sluice__attempt__init(a);
    a->id = mem_printf("%" PRIu64 "_%" PRIu64 ".%u", x->job, x->number, row->attempt);
    a->state = mem_strdup(row->state && strcmp(row->state, "waiting") == 0 ? "failed" : row->state);
    a->node = mem_strdup(row->node);
    a->device = mem_strdup(row->device);
    a->code = mem_strdup(done ? "Done" : row->code);
    a->text = mem_strdup(row->text);
    a->digest = mem_strdup(row->digest);
    a->output = done && x->output[0] && row->stem ? mem_printf("%s/%s", x->output, row->stem) : NULL;
    a->has_seconds = row->seconds > 0;
    a->seconds = row->seconds;
    a->has_time = true;
    a->time = row->time;
    a->log = mem_strdup(row->log);
    x->m.attempts = mem_grow(x->m.attempts, x->m.n_attempts + 1, sizeof(*x->m.attempts));
    x->m.attempts[x->m.n_attempts++] = a;
    return x->m.n_attempts < TRIES_MOST ? 0 : 1;
}

/* In a helper's thread. */
static void work(void *arg)
{
    struct tries *x = arg;
    struct db *db = db_open_reader(x->dir, &x->why);

    x->rc = db == NULL ? -1 : rows_load_attempts(db, x->job, x->number, x->attempt, row_take, x, &x->why);
    db_close(db);
}

/* The newest try failed and the next one has not begun: its row still says that it runs. */
static void newest(struct tries *x)
{
    struct job *j = job_find(x->d->jobs, x->job);
    struct tf *t = j && !j->ended ? tf_find(&j->work, x->number) : NULL;

    if (t == NULL || t->charge || t->tried.attempt == 0 || x->m.n_attempts == 0)
        return;
    Sluice__Attempt *a = x->m.attempts[x->m.n_attempts - 1];
    const char *dot = strrchr(a->id, '.');
    if (strcmp(a->state, "running") != 0 || strtoul(dot + 1, NULL, 10) != t->tried.attempt)
        return;
    free(a->state);
    free(a->code);
    free(a->text);
    free(a->log);
    a->state = mem_strdup("failed");
    a->code = mem_strdup(t->tried.word);
    a->text = mem_strdup(t->tried.text);
    a->log = mem_strdup(t->tried.log);
}

static void tries_free(struct tries *x)
{
    for (size_t i = 0; i < x->m.n_attempts; i++)
        sluice__attempt__free_unpacked(x->m.attempts[i], NULL);
    free(x->m.attempts);
    free(x->dir);
    free(x->output);
    free(x);
}

static void done(void *arg)
{
    struct tries *x = arg;
    struct session *s = session_find(x->ref);

    if (x->rc >= 0 && x->m.n_attempts == 0 && x->attempt)
        x->rc = err_set(&x->why, ERR_NOT_FOUND, "TF %" PRIu64 "_%" PRIu64 " has no try %u", x->job, x->number, x->attempt);
    if (s && x->rc < 0) {
        session_error(s, x->ref.id, &x->why, NULL);
    } else if (s) {
        newest(x);
        session_answer(s, x->ref.id, &x->m.base);
    }
    tries_free(x);
}

void job_tries(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetAttempts *q = m;
    struct job *j = job_find(s->d->jobs, q->job);
    struct err e;

    if (j == NULL)
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, q->job);
    else if (q->tf >= j->n_tasks)
        err_set(&e, ERR_NOT_FOUND, "job %" PRIu64 " has no TF %" PRIu64 ": it has %" PRIu64 ", from 0 on", q->job, q->tf, j->n_tasks);
    else if (j->pruned)
        err_set(&e, ERR_NOT_FOUND, "the tries of job %" PRIu64 " " JOB_PRUNED_TEXT, q->job);
    else {
        struct tries *x = mem_zalloc(sizeof(*x));
        *x = (struct tries){ .ref = session_refer(s, id), .d = s->d, .dir = mem_strdup(s->d->conf->state_dir), .output = mem_strdup(j->work.output),
                             .job = q->job, .number = q->tf, .attempt = q->attempt, .m = SLUICE__ATTEMPTS__INIT };
        if (helper_run(s->d->helper, work, done, x, &e) == 0)
            return;
        tries_free(x);
    }
    session_error(s, id, &e, NULL);
}
