/* jobread.c - after a start: the tasks of jobs that are on, read by a thread while all else is served already
 *
 * From: jobload.c (which jobs), a reader of the database in a helper thread; workers' answers about jobs that are not read yet.  To: job.c, settle.c.
 * Always: of a job that is loading nothing is given out, settled, stored or changed: its totals are those of its row, what workers hold of it is charged to
 * them, and what they say of it waits here, in the order it came. Small jobs come first.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "counters.h"
#include "helper.h"
#include "log.h"
#include "mem.h"

#define AGAIN 5.0                        /* s until what could not be read is tried again */
enum { ASK_AGAIN_MS = 200 };

/* ---- what is said meanwhile -------------------------------------------------------------------- */

struct deferred {
    struct deferred *next;
    struct session_ref ref;
    uint64_t job;
    const ProtobufCMessageDescriptor *type;
    void (*handler)(struct session *s, uint32_t id, const void *m);
    size_t size;
    uint8_t packed[];
};

static struct job *find_loading(const struct jobs *jobs, uint64_t id)
{
    struct job *j;

    if (jobs == NULL || jobs->loading == 0)
        return NULL;
    TAILQ_FOREACH(j, &jobs->open, entry) {
        if (j->work.id == id && j->loading)
            return j;
    }
    TAILQ_FOREACH(j, &jobs->over, entry) {
        if (j->work.id == id && j->loading)
            return j;
    }
    return NULL;
}

bool jobs_is_loading(const struct jobs *jobs, uint64_t id)
{
    return find_loading(jobs, id) != NULL;
}

bool jobs_put_off(struct session *s, uint32_t id, const Sluice__Tf *tf, const ProtobufCMessage *m, void (*handler)(struct session *s, uint32_t id, const void *m))
{
    struct jobs *jobs = s->d->jobs;

    if (tf == NULL || !tf->has_job || !jobs_is_loading(jobs, tf->job))
        return false;
    size_t size = protobuf_c_message_get_packed_size(m);
    struct deferred *x = mem_zalloc(sizeof(*x) + size);
    *x = (struct deferred){ .ref = session_refer(s, id), .job = tf->job, .type = m->descriptor, .handler = handler, .size = size };
    protobuf_c_message_pack(m, x->packed);
    *jobs->last_deferred = x;
    jobs->last_deferred = &x->next;
    return true;
}

/* Of a worker that has gone meanwhile nothing is told: it says again what it has when it comes back. */
static void tell(struct deferred *x)
{
    struct session *s = session_find(x->ref);
    ProtobufCMessage *m = s ? protobuf_c_message_unpack(x->type, NULL, x->size, x->packed) : NULL;

    if (m) {
        x->handler(s, x->ref.id, m);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    free(x);
}

static void tell_all(struct jobs *jobs, uint64_t job)
{
    struct deferred **p = &jobs->deferred, *mine = NULL, **last = &mine, *x;

    while ((x = *p)) {
        if (x->job != job) {
            p = &x->next;
            continue;
        }
        *p = x->next;
        x->next = NULL;
        *last = x;
        last = &x->next;
    }
    jobs->last_deferred = p;
    while ((x = mine)) {
        mine = x->next;
        tell(x);
    }
}

/* ---- reading ----------------------------------------------------------------------------------- */

struct reading {
    struct jobs *jobs;
    uint64_t id;
    char  *dir;
    bool   over;
    struct jobs words;                   /* of the thread's: short texts that its tasks share */
    struct job read;                     /* its number, its tasks */
    struct task_live live;
    int    rc;
    struct err why;
};

static void work(void *arg)
{
    struct reading *x = arg;
    struct db *db = db_open_reader(x->dir, &x->why);

    if (db == NULL)
        x->rc = -1;
    else if (x->over)
        x->rc = task_load_unpublished(&x->read, db, &x->live, &x->why);
    else
        x->rc = task_load(&x->read, db, &x->live, &x->why);
    db_close(db);
}

/* Its files and tasks change hands. */
static void take(struct job *j, struct reading *x)
{
    if (!x->over) {
        j->file = x->read.file;
        j->n_files = x->read.n_files;
        j->task = x->read.task;
        j->words = x->words.words;
        memcpy(j->n, x->read.n, sizeof(j->n));
        x->read.file = NULL;
        x->read.task = NULL;
        x->read.n_files = 0;
        x->words.words = NULL;
    }
    j->loading = false;
    j->jobs->loading--;
    task_live_take(j, &x->live);
    settle_adopt(&j->work);
}

/* cancelled: as its row says, which was stored with its cancellation. */
static void go_on(struct job *j, bool cancelled)
{
    j->cancelling = cancelled || j->n[TASK_CANCELLED] > 0;
    if (j->cancelling)
        task_cancel_all(j, "Cancelled");
    job_gate(j);
    log_info("job %" PRIu64 ": goes on: %" PRIu64 " tasks wait, %" PRIu64 " were at work, %" PRIu64 " done", j->work.id, j->n[TASK_WAITING],
             j->n[TASK_RUNNING], j->n[TASK_DONE]);
}

static void failed(struct jobs *jobs, struct job *j, const struct err *why)
{
    log_err("job %" PRIu64 ": its tasks cannot be read, they will be tried again: %s", j->work.id, why->text);
    counters_add(jobs->d->counters, "jobs_unread", 1);
    free(j->unread);
    j->unread = mem_printf("StateUnreadable: %s", why->text);
    jobs->next_read = flow_now(jobs->flow) + AGAIN;
}

static void done(void *arg)
{
    struct reading *x = arg;
    struct jobs *jobs = x->jobs;
    struct job *j = find_loading(jobs, x->id);

    jobs->reading = false;
    if (j && x->rc < 0) {
        failed(jobs, j, &x->why);
    } else if (j) {
        bool cancelled = j->n[TASK_CANCELLED] > 0;
        take(j, x);
        if (!x->over)
            go_on(j, cancelled);
        tell_all(jobs, j->work.id);
        job_progress(j);
    }
    task_live_free(&x->live);
    job_free_details(&x->read);
    words_free(&x->words.words);
    free(x->dir);
    free(x);
}

static struct job *smallest(struct job_list *list)
{
    struct job *j, *found = NULL;

    TAILQ_FOREACH(j, list, entry) {
        if (j->loading && (found == NULL || j->n_tasks < found->n_tasks))
            found = j;
    }
    return found;
}

static bool read_next(struct jobs *jobs)
{
    struct job *j = smallest(&jobs->open);
    struct err e;

    j = j ? j : smallest(&jobs->over);
    if (j == NULL)
        return false;
    struct reading *x = mem_zalloc(sizeof(*x));
    *x = (struct reading){ .jobs = jobs, .id = j->work.id, .dir = mem_strdup(jobs->d->conf->state_dir), .over = j->ended != 0 };
    x->read.work.id = j->work.id;
    x->read.jobs = &x->words;
    x->read.n_tasks = j->n_tasks;
    x->read.n[TASK_CANCELLED] = j->n[TASK_CANCELLED];
    x->read.ended = j->ended;
    x->live.last = &x->live.first;
    jobs->reading = true;
    if (helper_run(jobs->d->helper, work, done, x, &e) == 0)
        return !jobs->reading;
    jobs->reading = false;                       /* all threads are taken: with the next tick */
    free(x->dir);
    free(x);
    return false;
}

void read_tick(struct jobs *jobs)
{
    while (jobs->loading > 0 && !jobs->reading && flow_now(jobs->flow) >= jobs->next_read) {
        if (!read_next(jobs))
            return;
    }
}

void read_begin(struct jobs *jobs)
{
    jobs->last_deferred = &jobs->deferred;
    if (jobs->loading > 0)
        log_info("state: %u jobs are on; their tasks are read while all else is served", jobs->loading);
    read_tick(jobs);
}

void read_free(struct jobs *jobs)
{
    struct deferred *x;

    while ((x = jobs->deferred)) {
        jobs->deferred = x->next;
        free(x);
    }
}

bool job_is_unread(struct session *s, uint32_t id, const struct job *j)
{
    struct err e;

    if (!j->loading)
        return false;
    err_set(&e, ERR_STATE, "job %" PRIu64 ": its tasks are being read after the start of sluiced%s%s: try again in %d ms", j->work.id, j->unread ? "; " : "",
            j->unread ? j->unread : "", ASK_AGAIN_MS);
    session_busy(s, id, e.text, ASK_AGAIN_MS);
    return true;
}
