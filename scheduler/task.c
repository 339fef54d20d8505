/* task.c - the TFs of a job's files: given out, tried again elsewhere, settled
 *
 * From: job.c (which may be given out), settle.c (answers).  To: a row a task from its first attempt on (taskrows.c).
 * Always: a task has a TF object only while it is given out or may be soon; it is RUNNING exactly while it is charged to a node.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "job.h"
#include "log.h"
#include "mem.h"
#include "ran.h"
#include "rows.h"
#include "str.h"

#define PAUSE_FIRST 0.25         /* s after the first failure, then twice as long each time */
#define PAUSE_MOST  30.0
enum { READY = 64 };             /* TFs of a job that stand in the queue */

const char *const task_state_name[TASK_STATES] = { "waiting", "running", "done", "failed", "cancelled" };

void task_set(struct job *j, uint64_t number, enum task_state state)
{
    j->n[j->task[number].state]--;
    j->n[state]++;
    j->task[number].state = (uint8_t)state;
}

static char *task_stem(const struct tf *t)
{
    return task_stem_of(job_of(t->work), t->id);
}

/* ---- rows ---------------------------------------------------------------------------------- */

void job_store_record(struct record *rec)
{
    struct job *j = job_of(rec->work);
    struct row_task row = { .job = j->work.id, .number = rec->key.tf, .node = rec->node, .device = rec->device, .code = rec->reason, .text = rec->text,
                            .digest = rec->digest, .stem = rec->stem, .epoch = rec->fence.epoch, .attempt = rec->fence.attempt,
                            .published = rec->published, .seconds = rec->seconds, .time = rec->time, .tries = rec->tries, .log = rec->log };

    row.state = rec->outcome == END_DONE ? "done" : rec->outcome == END_CANCELLED ? "cancelled" : j->task && j->task[rec->key.tf].aside ? "set-aside" : "failed";
    rec->writing = true;
    task_rows_put(j, &row, rec);
}

static void task_assigned(struct tf *t)
{
    struct job *j = job_of(t->work);
    struct task *x = &j->task[t->id];
    struct fnode *n = t->charge->account->owner;
    char *stem = task_stem(t);

    task_set(j, t->id, TASK_RUNNING);
    x->attempt = t->fence.attempt;
    x->node = jobs_word(j->jobs, n->node->name);
    task_rows_put(j, &(struct row_task){ .job = j->work.id, .number = t->id, .state = "running", .node = n->node->name, .stem = stem,
                                         .epoch = t->fence.epoch, .attempt = t->fence.attempt, .time = clock_wall_ns(), .tries = t->tries,
                                         .deaths = t->deaths }, NULL);
    free(stem);
    job_progress(j);
}

/* ---- on its way ---------------------------------------------------------------------------- */

static struct tf *task_tf(struct job *j, uint64_t number)
{
    struct tf *t = tf_create(&j->work, number);
    const struct job_file *f = job_file_of(j, number);

    t->bytes = (f->extent[number - f->first_task][1] + 63) / 64 * 64;
    t->fence.attempt = t->last_attempt = j->task[number].attempt;
    return t;
}

void task_feed(struct job *j)
{
    while (j->work.n[TF_QUEUED] < READY && j->next < j->n_tasks) {
        uint64_t number = j->next++;
        if (j->task[number].state != TASK_WAITING || tf_find(&j->work, number) != NULL)
            continue;
        tf_enter(task_tf(j, number), TF_QUEUED, 0);
    }
}

static void task_describe(struct tf *t, Sluice__Assign *a)
{
    const struct job *j = job_of(t->work);
    const struct job_file *f = job_file_of(j, t->id);

    a->path = f->path;
    a->has_offset = a->has_size = true;
    a->offset = f->extent[t->id - f->first_task][0];
    a->size = f->extent[t->id - f->first_task][1];
}

static void task_described(Sluice__Assign *a)
{
    (void)a;
}

static void task_built(struct tf *t)
{
    (void)t;
}

static void task_again(struct tf *t)
{
    struct job *j = job_of(t->work);

    if (j->task[t->id].state == TASK_RUNNING)
        task_set(j, t->id, TASK_WAITING);
}

/* What is known of its tries, and until when it waits: a restart changes nothing of that. */
static void task_store_wait(struct tf *t, double pause)
{
    struct job *j = job_of(t->work);
    char *stem = task_stem(t);

    task_rows_put(j, &(struct row_task){ .job = j->work.id, .number = t->id, .state = "waiting", .node = t->last_node, .code = t->last_word, .text = t->last_text,
                                         .stem = stem, .epoch = t->fence.epoch, .attempt = t->fence.attempt, .time = clock_wall_ns(), .tries = t->tries,
                                         .deaths = t->deaths, .due = clock_wall_ns() + (int64_t)(pause * 1e9) }, NULL);
    free(stem);
}

void job_store_try(struct tf *t, struct fence at, const char *node, const struct tried *how)
{
    struct job *j = job_of(t->work);
    char *stem = task_stem(t);

    task_rows_put_try(j, &(struct row_task){ .job = j->work.id, .number = t->id, .state = "failed", .node = node, .device = how->device, .code = how->word,
                                             .text = how->text, .stem = stem, .epoch = at.epoch, .attempt = at.attempt, .time = clock_wall_ns(), .log = how->log });
    free(stem);
}

/* Its try ended, and another one will follow: it goes among the tries. */
static void try_keep(struct tf *t)
{
    struct job *j = job_of(t->work);
    struct tried *x = &t->tried;

    if (x->kept || x->attempt == 0 || x->attempt != t->fence.attempt)
        return;
    x->kept = true;
    job_store_try(t, t->fence, j->task[t->id].node, x);
}

/* After a failure it waits, longer each time. */
static bool task_available(struct tf *t)
{
    double pause = PAUSE_FIRST;

    task_again(t);
    try_keep(t);
    if (t->tries == 0)
        return true;
    for (unsigned i = 1; i < t->tries && pause < PAUSE_MOST; i++)
        pause *= 2;
    task_store_wait(t, pause);
    tf_enter(t, TF_WAITING, flow_now(t->work->flow) + pause);
    return false;
}

static void task_due(struct tf *t)
{
    try_keep(t);                                 /* one that was at a worker before our start, which did not come back with it */
    tf_enter(t, TF_QUEUED, 0);
}

static void digest_keep(struct task *x, const char *text)
{
    char *end;

    x->digest = text ? strtoull(text, &end, 16) : 0;
    x->has_digest = text && strlen(text) == 16 && *end == '\0';
}

static void task_settle(struct tf *t, const struct end *end)
{
    static const enum task_state states[END_KINDS] = {
        [END_DONE] = TASK_DONE, [END_FAILED] = TASK_FAILED, [END_DROPPED] = TASK_FAILED, [END_LOST] = TASK_FAILED, [END_CANCELLED] = TASK_CANCELLED,
    };
    struct job *j = job_of(t->work);
    struct task *x = &j->task[t->id];
    struct record *rec = record_create(t, end, false);

    if (end->outcome == END_DONE)
        straggler_sample(j, flow_now(j->work.flow) - t->given);

    task_set(j, t->id, states[end->outcome]);
    if (end->outcome == END_DONE)
        ran_count(&j->ran, end->stages);
    x->attempt = t->fence.attempt;
    x->seconds = end->seconds;
    digest_keep(x, end->digest);
    free(x->text);
    x->code = jobs_word(j->jobs, end->outcome == END_DONE ? "Done" : end->reason);
    x->aside = end->reason && strcmp(end->reason, "HeldPoison") == 0;
    x->text = mem_strdup(end->text);
    if (end->node)
        x->node = jobs_word(j->jobs, end->node);
    tf_free(t);
    job_store_record(rec);
    job_progress(j);
}

bool job_publishes_again(struct record *rec, const char *word, const char *text)
{
    struct job *j = job_of(rec->work);
    uint64_t number = rec->key.tf;

    if (j->ended || j->cancelling || j->task == NULL || rec->tries + 1 >= j->attempts)
        return false;
    struct task *x = &j->task[number];
    struct tf *t = task_tf(j, number);
    t->fence = rec->fence;
    t->tries = rec->tries + 1;
    snprintf(t->last_word, sizeof(t->last_word), "%s", word);
    t->last_text = mem_strdup(text);
    t->last_node = mem_strdup(rec->node);
    tf_tried(t, word, text, rec->device, rec->log);
    task_set(j, number, TASK_WAITING);
    ran_uncount(&j->ran, rec->stages);
    x->code = jobs_word(j->jobs, word);
    x->has_digest = false;
    j->work.retried++;
    record_free(rec);
    tf_requeue(t, 0);
    return true;
}

void job_unpublished(struct record *rec)
{
    struct job *j = job_of(rec->work);
    struct task *x = j->task ? &j->task[rec->key.tf] : NULL;

    ran_uncount(&j->ran, rec->stages);
    if (x) {
        task_set(j, rec->key.tf, TASK_FAILED);
        x->code = jobs_word(j->jobs, rec->reason);
        free(x->text);
        x->text = mem_strdup(rec->text);
    } else {                                     /* over for long: only its totals are in memory */
        j->n[TASK_DONE]--;
        j->n[TASK_FAILED]++;
    }
    if (j->ended == 0)
        return;
    if (j->n[TASK_DONE] == 0 && j->state == SLUICE__JOB_STATE__JOB_DONE)
        j->state = SLUICE__JOB_STATE__JOB_FAILED;
    job_put(j, CHANGE_KEEP, NULL, NULL, NULL, NULL);
}

static void task_answered(struct work *w)
{
    struct job *j = job_of(w);

    job_progress(j);
}

static unsigned task_attempts(const struct work *w)
{
    return ((const struct job *)w)->attempts;
}

const struct work_ops job_ops = {
    .describe = task_describe, .described = task_described, .stem = task_stem, .assigned = task_assigned, .built = task_built,
    .available = task_available, .due = task_due, .settle = task_settle, .answered = task_answered, .attempts = task_attempts,
};

/* What was never tried is cancelled by the job's row alone; what a worker has is asked back and settled now. */
void task_cancel_all(struct job *j, const char *reason)
{
    struct tf *t, *next;

    j->in_progress = true;           /* it is not over before all of it is cancelled */
    HASH_ITER(hh, j->work.tfs, t, next) {
        if (t->charge == NULL && t->fence.attempt == 0) {
            task_set(j, t->id, TASK_CANCELLED);
            tf_free(t);
            continue;
        }
        char node[64] = "";
        if (t->charge) {
            struct fnode *n = t->charge->account->owner;
            snprintf(node, sizeof(node), "%s", n->node->name);
            flow_cancel(n, t->charge, "the job is cancelled");
        }
        if (t->rival)
            flow_cancel(t->rival->account->owner, t->rival, "the job is cancelled");
        task_settle(t, &(struct end){ .outcome = END_CANCELLED, .reason = reason, .node = node[0] ? node : NULL });
    }
    for (uint64_t i = 0; i < j->n_tasks; i++) {
        if (j->task[i].state == TASK_WAITING || j->task[i].state == TASK_RUNNING)
            task_set(j, i, TASK_CANCELLED);
    }
    j->next = j->n_tasks;
    j->in_progress = false;
}

/* What is known of its last try stays until the next one; tries are numbered on. */
void task_again_all(struct job *j, bool done_too)
{
    for (uint64_t i = 0; i < j->n_tasks; i++) {
        if (done_too || j->task[i].state == TASK_FAILED || j->task[i].state == TASK_CANCELLED)
            task_set(j, i, TASK_WAITING);
    }
    j->next = 0;
}

/* ---- listing ------------------------------------------------------------------------------- */

/* Of a task's state; beyond the states: one that is set aside. */
static unsigned state_index(const struct task *x)
{
    return x->state == TASK_FAILED && x->aside ? TASK_STATES : x->state;
}

static const char *state_word(unsigned i)
{
    return i == TASK_STATES ? "set-aside" : task_state_name[i];
}

static bool state_asked(const Sluice__GetTasks *x, const char *word)
{
    bool asked = x->n_states == 0;

    for (size_t i = 0; i < x->n_states; i++)
        asked = asked || strcmp(x->states[i], word) == 0;
    return asked;
}

static void task_message(const struct job *j, uint64_t number, Sluice__Task *m)
{
    const struct task *x = &j->task[number];
    const struct job_file *f = job_file_of(j, number);

    sluice__task__init(m);
    m->id = mem_printf("%" PRIu64 "_%" PRIu64, j->work.id, number);
    m->state = (char *)state_word(state_index(x));
    m->node = (char *)x->node;
    m->has_attempt = true;
    m->attempt = x->attempt;
    m->code = (char *)x->code;
    m->text = x->text;
    m->input = f->tfs > 1 ? mem_printf("%s:%" PRIu64, f->path, number - f->first_task) : mem_strdup(f->path);
    if (j->work.output[0]) {
        char *stem = task_stem_of(j, number);
        m->output = mem_printf("%s/%s", j->work.output, stem);
        free(stem);
    }
    m->digest = x->has_digest ? mem_printf("%016" PRIx64, x->digest) : NULL;
    m->has_seconds = x->seconds > 0;
    m->seconds = x->seconds;
}

struct tasks_ask { struct session_ref ref; uint64_t from; uint32_t limit; bool all, skipped, state[TASK_STATES + 1]; };

/* A file that is skipped: it has no number. */
static void skipped_message(const struct job_file *f, Sluice__Task *m)
{
    sluice__task__init(m);
    m->state = "skipped";
    m->input = mem_strdup(f->path);
    m->text = f->text;
}

static void tasks_answer(void *arg, struct job *j, const struct err *e)
{
    struct tasks_ask *ask = arg;
    struct session *s = session_find(ask->ref);
    Sluice__Tasks answer = SLUICE__TASKS__INIT;

    if (s == NULL || j == NULL) {
        if (s)
            session_error(s, ask->ref.id, e, NULL);
        free(ask);
        return;
    }
    Sluice__Task *task = mem_array(ask->limit, sizeof(*task));
    answer.tasks = mem_array(ask->limit, sizeof(struct Sluice__Task *));
    /* Skipped files come behind the tasks, when they are asked for. */
    for (uint64_t i = ask->from; i < j->n_tasks + (ask->skipped ? j->n_files : 0); i++) {
        if (i < j->n_tasks ? !ask->all && !ask->state[state_index(&j->task[i])] : j->file[i - j->n_tasks].tfs > 0)
            continue;
        if (answer.n_tasks == ask->limit) {
            answer.has_more = answer.more = answer.has_next = true;
            answer.next = i;
            break;
        }
        if (i < j->n_tasks)
            task_message(j, i, &task[answer.n_tasks]);
        else
            skipped_message(&j->file[i - j->n_tasks], &task[answer.n_tasks]);
        answer.tasks[answer.n_tasks] = &task[answer.n_tasks];
        answer.n_tasks++;
    }
    session_answer(s, ask->ref.id, &answer.base);
    for (size_t i = 0; i < answer.n_tasks; i++) {
        free(task[i].id);
        free(task[i].input);
        free(task[i].output);
        free(task[i].digest);
    }
    free(answer.tasks);
    free(task);
    free(ask);
}

void job_tasks(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetTasks *x = m;
    const struct job *j = job_find(s->d->jobs, x->job);

    if (j && job_is_unread(s, id, j))
        return;
    struct tasks_ask *ask = mem_zalloc(sizeof(*ask));

    *ask = (struct tasks_ask){ .ref = session_refer(s, id), .from = x->from, .limit = x->limit && x->limit < 20000 ? x->limit : 1000, .all = x->n_states == 0 };
    for (unsigned i = 0; i <= TASK_STATES; i++)
        ask->state[i] = state_asked(x, state_word(i));
    for (size_t i = 0; i < x->n_states; i++)
        ask->skipped = ask->skipped || strcmp(x->states[i], "skipped") == 0;
    job_detail(s->d, x->job, tasks_answer, ask);
}

/* ---- loading ------------------------------------------------------------------------------- */

struct loading { struct job *job; struct task_live *live; struct err *e; };

static int load_file(void *arg, const struct row_job_file *row)
{
    struct loading *l = arg;
    struct job *j = l->job;

    if (row->extents_size != row->tfs * sizeof(uint64_t[2]) || row->first_task + row->tfs > j->n_tasks)
        return err_set(l->e, ERR_FAILED, "job %" PRIu64 ": file %u: its row does not hold together", row->job, row->number);
    if ((j->n_files & (j->n_files - 1)) == 0)
        j->file = mem_grow(j->file, j->n_files ? 2 * j->n_files : 1, sizeof(*j->file));
    struct job_file *f = &j->file[j->n_files];
    *f = (struct job_file){ .path = mem_strdup(row->path), .text = mem_strdup(row->text), .first_task = row->first_task, .tfs = row->tfs };
    if (f->tfs) {
        f->extent = mem_array(f->tfs, sizeof(*f->extent));
        memcpy(f->extent, row->extents, row->extents_size);
    }
    j->n_files++;
    return 0;
}

static struct tf *load_tf(struct job *j, const struct row_task *row)
{
    struct tf *t = task_tf(j, row->number);

    t->fence = (struct fence){ row->epoch, row->attempt };
    t->tries = row->tries;
    t->last_node = mem_strdup(row->node);
    t->deaths = mem_strdup(row->deaths);
    for (const char *p = row->deaths; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        t->n_deaths++;
    return t;
}

/* It waits after a failure: as long as it has to, whatever the clock did meanwhile, and not for the node it failed at. */
static void load_waiting(struct job *j, const struct row_task *row)
{
    struct tf *t = load_tf(j, row);
    struct node *n = row->node ? farm_node(j->jobs->d->farm, row->node) : NULL;
    double left = (double)(row->due - clock_wall_ns()) / 1e9;

    snprintf(t->last_word, sizeof(t->last_word), "%s", row->code ? row->code : "");
    t->last_text = mem_strdup(row->text);
    if (n)
        tf_avoid(t, &flow_node(j->work.flow, n)->account);
    tf_enter(t, TF_WAITING, flow_now(j->work.flow) + (left < 0.01 ? 0.01 : left > PAUSE_MOST ? PAUSE_MOST : left));
}

/* It was at a worker: that one's list is waited for, or the grace. */
static void load_running(struct job *j, const struct row_task *row)
{
    struct tf *t = load_tf(j, row);

    tf_tried(t, "NodeLost", "sluiced began anew, and its node did not come back with it", row->device, NULL);
    tf_enter(t, TF_WAITING, flow_now(j->work.flow) + j->jobs->d->conf->limits.grace);
    t->pulled = true;
}

/* Rows that mean more than the state of a task: what was at work, what waits after a failure, what is accepted but not published. */
static bool is_live(const struct row_task *row)
{
    if (strcmp(row->state, "done") == 0)
        return !row->published;
    return strcmp(row->state, "running") == 0 || (strcmp(row->state, "waiting") == 0 && row->tries > 0);
}

static void live_add(struct task_live *live, const struct row_task *row)
{
    struct live_row *x = mem_zalloc(sizeof(*x));

    x->row = *row;
    for (unsigned i = 0; i < TASK_STATES; i++) {
        if (strcmp(row->state, task_state_name[i]) == 0)
            x->row.state = task_state_name[i];
    }
    x->row.node = x->text[0] = mem_strdup(row->node);
    x->row.device = x->text[1] = mem_strdup(row->device);
    x->row.code = x->text[2] = mem_strdup(row->code);
    x->row.text = x->text[3] = mem_strdup(row->text);
    x->row.digest = x->text[4] = mem_strdup(row->digest);
    x->row.stem = x->text[5] = mem_strdup(row->stem);
    x->row.deaths = x->text[6] = mem_strdup(row->deaths);
    x->row.log = NULL;
    *live->last = x;
    live->last = &x->next;
}

void task_live_free(struct task_live *live)
{
    struct live_row *x;

    while ((x = live->first)) {
        live->first = x->next;
        for (size_t i = 0; i < ARRAY_LEN(x->text); i++)
            free(x->text[i]);
        free(x);
    }
}

static void live_take(struct job *j, const struct row_task *row)
{
    if (strcmp(row->state, "done") == 0) {
        struct record *rec = record_restore(&j->work, row->number, (struct fence){ row->epoch, row->attempt }, row->node, row->device, row->digest, row->stem, NULL,
                                            row->seconds, 0, false, row->time);
        rec->tries = row->tries;
        return;
    }
    task_set(j, row->number, TASK_WAITING);
    if (strcmp(row->state, "running") == 0)
        load_running(j, row);
    else
        load_waiting(j, row);
}

void task_live_take(struct job *j, const struct task_live *live)
{
    for (const struct live_row *x = live->first; x; x = x->next)
        live_take(j, &x->row);
}

static int load_task(void *arg, const struct row_task *row)
{
    struct loading *l = arg;
    struct job *j = l->job;

    if (row->number >= j->n_tasks || row->state == NULL)
        return err_set(l->e, ERR_FAILED, "job %" PRIu64 ": task %" PRIu64 " is beyond its %" PRIu64 " tasks", row->job, row->number, j->n_tasks);
    struct task *x = &j->task[row->number];
    x->attempt = row->attempt;
    x->seconds = row->seconds;
    x->node = jobs_word(j->jobs, row->node);
    x->code = jobs_word(j->jobs, strcmp(row->state, "done") == 0 ? "Done" : row->code);
    x->text = mem_strdup(row->text);
    digest_keep(x, row->digest);
    for (unsigned i = 0; i < TASK_STATES; i++) {
        if (strcmp(row->state, task_state_name[i]) == 0 && i != TASK_RUNNING)
            task_set(j, row->number, (enum task_state)i);
    }
    x->aside = strcmp(row->state, "set-aside") == 0;
    if (x->aside)
        task_set(j, row->number, TASK_FAILED);
    if (l->live && is_live(row))
        live_add(l->live, row);
    return 0;
}

int task_load_files(struct job *j, struct db *db, struct err *e)
{
    struct loading l = { .job = j, .e = e };

    return rows_load_job_files(db, j->work.id, load_file, &l, e);
}

int task_load(struct job *j, struct db *db, struct task_live *live, struct err *e)
{
    struct loading l = { j, live, e };
    uint64_t cancelled = j->n[TASK_CANCELLED];

    j->task = mem_array(j->n_tasks ? j->n_tasks : 1, sizeof(*j->task));
    memset(j->n, 0, sizeof(j->n));
    j->n[TASK_WAITING] = j->n_tasks;
    if (task_load_files(j, db, e) < 0)
        return -1;
    task_stems(j);
    if (rows_load_tasks(db, j->work.id, load_task, &l, e) < 0)
        return -1;
    for (uint64_t i = 0; i < j->n_tasks && (j->ended || cancelled); i++) {
        if (j->task[i].state == TASK_WAITING)
            task_set(j, i, TASK_CANCELLED);
    }
    return 0;
}

static int load_unpublished(void *arg, const struct row_task *row)
{
    struct loading *l = arg;

    if (row->state != NULL && strcmp(row->state, "done") == 0 && !row->published && row->number < l->job->n_tasks)
        live_add(l->live, row);
    return 0;
}

int task_load_unpublished(struct job *j, struct db *db, struct task_live *live, struct err *e)
{
    struct loading l = { j, live, e };

    return rows_load_tasks(db, j->work.id, load_unpublished, &l, e);
}
