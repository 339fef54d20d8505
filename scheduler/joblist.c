/* joblist.c - what people see of jobs
 *
 * From: GetJobs, GetStatus.  To: the askers.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "events.h"
#include "mem.h"
#include "nice.h"
#include "ran.h"
#include "str.h"

/* A stable code, or what a person said. */
const char *job_why(const struct job *j)
{
    if (j->loading && !j->ended)
        return j->unread ? j->unread : "Loading";
    if (j->why)
        return j->why;
    if (j->held)
        return "Held";
    if (j->full && !j->ended)
        return j->full;
    if (j->ended && j->work.records > 0)
        return "Unpublished";
    if (j->ended || j->n[TASK_WAITING] == 0)
        return NULL;
    const char *waits = job_waits_for(j);
    return waits ? waits : assign_why(&j->work);
}

static void classes_fill(const struct job *j, Sluice__Job *m)
{
    char *copy = mem_strdup(j->classes ? j->classes : ""), *rest = copy, *word;

    while (copy[0] && (word = strsep(&rest, ",")) != NULL) {
        m->classes = mem_grow(m->classes, m->n_classes + 1, sizeof(*m->classes));
        m->classes[m->n_classes++] = mem_strdup(word);
    }
    free(copy);
}

static Sluice__Job *job_message(const struct job *j)
{
    const struct work *w = &j->work;
    Sluice__Job *m = mem_zalloc(sizeof(*m));

    sluice__job__init(m);
    m->has_id = m->has_state = m->has_priority = m->has_tasks = m->has_waiting = m->has_running = m->has_done = m->has_failed = m->has_skipped = true;
    m->has_cancelled = m->has_submitted = m->has_retried = m->has_preempted = m->has_skipped_files = m->has_attempts = true;
    m->id = w->id;
    m->name = w->name;
    m->owner = j->owner;
    m->state = j->state;
    m->priority = w->priority;
    m->tasks = j->n_tasks;
    m->waiting = j->n[TASK_WAITING];
    m->running = j->n[TASK_RUNNING];
    m->done = j->n[TASK_DONE];
    m->failed = j->n[TASK_FAILED];
    m->skipped = m->skipped_files = j->skipped_files;
    m->cancelled = j->n[TASK_CANCELLED];
    m->submitted = j->submitted;
    m->has_ended = j->ended != 0;
    m->ended = j->ended;
    m->workflow = w->workflow;
    m->output = w->output;
    m->why = (char *)job_why(j);
    m->retried = w->retried;
    m->preempted = w->preempted;
    m->has_straggler = j->straggler > 0;
    m->straggler = j->straggler;
    m->attempts = j->attempts;
    m->backends = w->backends;
    m->stages = ran_list(j->ran, &m->n_stages);
    m->nice_from = (char *)nice_from(w, j->ended != 0, &m->has_nice, &m->nice);
    m->nice_text = j->ended ? NULL : nice_text(w);
    m->key = j->key;
    m->after = after_text(&j->after);
    m->has_begin = j->begin != 0;
    m->begin = j->begin;
    m->has_reruns = true;
    m->reruns = j->reruns;
    m->has_time_limit = w->time_limit > 0;
    m->time_limit = w->time_limit;
    m->has_rate = pace_rate(j, flow_now(w->flow), &m->rate);
    m->has_remaining = pace_remaining(j, flow_now(w->flow), &m->remaining);
    classes_fill(j, m);
    for (const struct tally *t = w->failures; t; t = t->next) {
        m->failures = mem_grow(m->failures, m->n_failures + 1, sizeof(struct Sluice__Counter *));
        Sluice__Counter *c = m->failures[m->n_failures++] = mem_zalloc(sizeof(*c));
        sluice__counter__init(c);
        c->name = (char *)t->word;
        c->has_value = true;
        c->value = t->n;
    }
    return m;
}

static void fill_add(const struct job *j, uint64_t id, Sluice__Job ***jobs, size_t *n)
{
    if ((id != 0 && j->work.id != id) || !j->stored)
        return;
    *jobs = mem_grow(*jobs, *n + 1, sizeof(struct Sluice__Job *));
    (*jobs)[(*n)++] = job_message(j);
}

static int compare_jobs(const void *a, const void *b)
{
    uint64_t x = (*(Sluice__Job *const *)a)->id, y = (*(Sluice__Job *const *)b)->id;

    return (x > y) - (x < y);
}

void job_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Job ***jobs, size_t *n)
{
    struct job *j;

    *jobs = NULL;
    *n = 0;
    if (d->jobs == NULL)
        return;
    TAILQ_FOREACH(j, &d->jobs->open, entry)
        fill_add(j, id, jobs, n);
    if (all || id != 0) {
        TAILQ_FOREACH(j, &d->jobs->over, entry)
            fill_add(j, id, jobs, n);
    }
    if (*n > 1)
        qsort(*jobs, *n, sizeof(struct Sluice__Job *), compare_jobs);
}

static bool takes_class(const struct job *j, const char *class)
{
    size_t n = class == NULL ? 0 : strlen(class);

    if (class == NULL || str_is_empty(j->classes))
        return true;
    for (const char *p = j->classes; *p != '\0'; p += strcspn(p, ","), p += *p == ',') {
        if (strncmp(p, class, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    }
    return false;
}

uint64_t job_wants_nodes(struct sluiced *d, const char *class, uint64_t *first)
{
    const struct job *most = NULL;
    uint64_t tasks = 0;
    struct job *j;

    if (d->jobs == NULL)
        return 0;
    TAILQ_FOREACH(j, &d->jobs->open, entry) {
        if (j->work.paused || j->n[TASK_WAITING] + j->n[TASK_RUNNING] == 0 || !takes_class(j, class))
            continue;
        tasks += j->n[TASK_WAITING] + j->n[TASK_RUNNING];
        if (most == NULL || j->work.priority > most->work.priority)
            most = j;
    }
    if (most != NULL)
        *first = most->work.id;
    return tasks;
}

static bool is_stuck(const struct job *j)
{
    const char *w = j->work.why;             /* before job_why, which looks at all nodes where some could take it */

    static const char *const causes[] = { "WaitingForNodes", "WaitingForClass", "TooLarge" };

    for (size_t i = 0; w != NULL && j->n[TASK_RUNNING] == 0 && i < ARRAY_LEN(causes); i++) {
        if (strcmp(w, causes[i]) == 0)
            return job_why(j) == w;
    }
    return false;
}

static void stuck_why(const struct job *j, char why[160])
{
    const struct tf *t = heap_top(&j->work.queue);
    char need[32], have[32];

    snprintf(why, 160, "%s", j->work.why);
    if (strcmp(why, "TooLarge") == 0 && t != NULL)
        snprintf(why, 160, "TooLarge, as TF %" PRIu64 " needs a buffer of %s and the largest of the pool has %s", t->id, str_size_text(t->bytes, need),
                 str_size_text(flow_largest_buffer(j->work.flow, j->work.pool), have));
}

/* Work that no node of its pool can take as things are now. */
unsigned job_count_stuck(struct sluiced *d, int pool, uint64_t *first, char why[160])
{
    unsigned n = 0;
    struct job *j;

    if (d->jobs == NULL)
        return 0;
    TAILQ_FOREACH(j, &d->jobs->open, entry) {
        if (j->work.pool != pool || !is_stuck(j))
            continue;
        if (n++ == 0) {
            *first = j->work.id;
            stuck_why(j, why);
        }
    }
    return n;
}

unsigned job_count_full(struct sluiced *d, uint64_t *first, const char **why)
{
    unsigned n = 0;
    struct job *j;

    if (d->jobs == NULL)
        return 0;
    TAILQ_FOREACH(j, &d->jobs->open, entry) {
        if (j->full == NULL)
            continue;
        if (n++ == 0) {
            *first = j->work.id;
            *why = j->full;
        }
    }
    return n;
}

void job_fill_free(Sluice__Job **jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < jobs[i]->n_failures; k++)
            free(jobs[i]->failures[k]);
        free(jobs[i]->failures);
        ran_list_free(jobs[i]->stages, jobs[i]->n_stages);
        free(jobs[i]->nice_text);
        for (size_t k = 0; k < jobs[i]->n_classes; k++)
            free(jobs[i]->classes[k]);
        free(jobs[i]->classes);
        free(jobs[i]->after);
        free(jobs[i]);
    }
    free(jobs);
}

static bool is_asked(const Sluice__GetJobs *x, const Sluice__Job *m, const char *me)
{
    bool state = x->n_states == 0;

    for (size_t i = 0; i < x->n_states; i++)
        state = state || x->states[i] == m->state;
    return state && (!x->mine || str_equal(m->owner, me));
}

void job_list(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetJobs *x = m;
    Sluice__Jobs answer = SLUICE__JOBS__INIT;
    Sluice__Job **jobs;
    size_t n;
    struct err e;

    job_fill(s->d, x->all || x->n_states > 0, x->has_id ? x->id : 0, &jobs, &n);
    if (x->has_id && x->id && n == 0) {
        err_set(&e, ERR_NOT_FOUND, "no job %" PRIu64, x->id);
        session_error(s, id, &e, NULL);
        job_fill_free(jobs, n);
        return;
    }
    answer.jobs = mem_array(n + 1, sizeof(struct Sluice__Job *));
    for (size_t i = 0; i < n; i++) {
        if (is_asked(x, jobs[i], s->peer.user))
            answer.jobs[answer.n_jobs++] = jobs[i];
    }
    session_answer(s, id, &answer.base);
    free(answer.jobs);
    job_fill_free(jobs, n);
}
