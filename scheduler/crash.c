/* crash.c - TFs that killed a reconstruction process: what the workers kept of them
 *
 * From: settle.c (a failed attempt that names a folder).  To: rows, `crash list`.
 * The folders are the workers'; purging forgets the row, the worker keeps its folders within its own limit.
 */
#include "config.h"
#include "crash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "flow_core.h"
#include "job.h"
#include "log.h"
#include "mem.h"
#include "rows.h"

enum { CRASHES_KEPT = 10000 };

struct crash { TAILQ_ENTRY(crash) entry; struct row_crash row; unsigned writing; bool dropped; };

struct crashes {
    struct sluiced *d;
    TAILQ_HEAD(, crash) list;            /* oldest first */
    unsigned n;
    uint64_t last_id;
};

static struct crash *crash_create(const struct row_crash *row)
{
    struct crash *c = mem_zalloc(sizeof(*c));

    c->row = *row;
    c->row.node = mem_strdup(row->node);
    c->row.device = mem_strdup(row->device);
    c->row.word = mem_strdup(row->word);
    c->row.text = mem_strdup(row->text);
    c->row.folder = mem_strdup(row->folder);
    c->row.workflow = mem_strdup(row->workflow);
    return c;
}

static void crash_free(struct crash *c)
{
    free((char *)c->row.node);
    free((char *)c->row.device);
    free((char *)c->row.word);
    free((char *)c->row.text);
    free((char *)c->row.folder);
    free((char *)c->row.workflow);
    free(c);
}

/* Out of the list; freed when the writer is done with it. */
static void crash_drop(struct crashes *cs, struct crash *c)
{
    TAILQ_REMOVE(&cs->list, c, entry);
    cs->n--;
    c->dropped = true;
    if (c->writing == 0)
        crash_free(c);
}

static int crash_write(struct db *db, void *arg, struct err *e)
{
    const struct crash *c = arg;

    return rows_put_crash(db, &c->row, e);
}

static void crash_stored(void *arg, int rc, const struct err *e)
{
    struct crash *c = arg;

    if (rc < 0)
        log_err("crash %" PRIu64 ": not stored: %s", c->row.id, e ? e->text : "?");
    if (--c->writing == 0 && c->dropped)
        crash_free(c);
}

static void crash_insert(struct crashes *cs, struct crash *c)
{
    TAILQ_INSERT_TAIL(&cs->list, c, entry);
    if (++cs->n > CRASHES_KEPT)
        crash_drop(cs, TAILQ_FIRST(&cs->list));
}

void crash_add(struct sluiced *d, const char *node, bool is_job, uint64_t work, const Sluice__Failed *x)
{
    struct crashes *cs = d->jobs ? d->jobs->crashes : NULL;
    struct work *w;

    if (cs == NULL)
        return;
    TAILQ_FOREACH(w, &d->flow->works, entry) {
        if (w->is_job == is_job && w->id == work)
            break;
    }
    struct tf *t = w ? tf_find(w, x->tf->id) : NULL;
    struct row_crash row = { .id = ++cs->last_id, .time = clock_wall_ns(), .node = node, .device = x->device, .word = x->word, .text = x->text,
                             .folder = x->crash, .workflow = w ? w->workflow : NULL, .run = is_job ? 0 : work, .job = is_job ? work : 0, .tf = x->tf->id,
                             .bytes = t ? t->bytes : 0, .attempt = x->fence->attempt };
    struct crash *c = crash_create(&row);
    c->writing = 1;
    crash_insert(cs, c);
    log_warning("crash %" PRIu64 ": %s at TF %" PRIu64 " of %s %" PRIu64 " on %s: kept in %s", row.id, x->word ? x->word : "?", x->tf->id, is_job ? "job" : "run",
                work, node, x->crash);
    writer_put(d->writer, CHANGE_KEEP, crash_write, crash_stored, c);
}

void crash_list(struct session *s, uint32_t id, const void *m)
{
    const Sluice__GetCrashes *x = m;
    struct crashes *cs = s->d->jobs->crashes;
    Sluice__Crashes answer = SLUICE__CRASHES__INIT;
    Sluice__Crash *all = mem_array(cs->n + 1, sizeof(*all));
    struct crash *c;
    struct err e;

    answer.crashes = mem_array(cs->n + 1, sizeof(struct Sluice__Crash *));
    TAILQ_FOREACH(c, &cs->list, entry) {
        Sluice__Crash *o = &all[answer.n_crashes];
        if (x->has_id && x->id && c->row.id != x->id)
            continue;
        sluice__crash__init(o);
        o->has_id = o->has_time = o->has_tf = o->has_attempt = o->has_bytes = true;
        o->id = c->row.id;
        o->time = c->row.time;
        o->node = (char *)c->row.node;
        o->device = (char *)c->row.device;
        o->has_run = c->row.run != 0;
        o->run = c->row.run;
        o->has_job = c->row.job != 0;
        o->job = c->row.job;
        o->tf = c->row.tf;
        o->attempt = c->row.attempt;
        o->word = (char *)c->row.word;
        o->text = (char *)c->row.text;
        o->folder = (char *)c->row.folder;
        o->bytes = c->row.bytes;
        o->workflow = (char *)c->row.workflow;
        answer.crashes[answer.n_crashes++] = o;
    }
    if (x->has_id && x->id && answer.n_crashes == 0) {
        err_set(&e, ERR_NOT_FOUND, "no crash %" PRIu64, x->id);
        session_error(s, id, &e, NULL);
    } else {
        session_answer(s, id, &answer.base);
    }
    free(answer.crashes);
    free(all);
}

struct purge { struct session_ref ref; unsigned left, failed; };

struct purge_change { struct crashes *crashes; struct crash *crash; struct purge *purge; int64_t purged; };

static int purge_write(struct db *db, void *arg, struct err *e)
{
    const struct purge_change *p = arg;
    struct row_crash row = p->crash->row;

    row.purged = p->purged;
    return rows_put_crash(db, &row, e);
}

static void purge_answer(struct purge *p)
{
    struct session *s = session_find(p->ref);
    struct err e;

    if (s && p->failed) {
        err_set(&e, ERR_STATE, "%u crashes could not be purged: the state is not writable", p->failed);
        session_error(s, p->ref.id, &e, "StateNotWritable");
    } else if (s) {
        session_ok(s, p->ref.id);
    }
    free(p);
}

static void purge_stored(void *arg, int rc, const struct err *e)
{
    struct purge_change *c = arg;

    (void)e;
    c->purge->failed += rc < 0;
    if (rc == 0 && !c->crash->dropped)
        crash_drop(c->crashes, c->crash);
    if (--c->purge->left == 0)
        purge_answer(c->purge);
    if (--c->crash->writing == 0 && c->crash->dropped)
        crash_free(c->crash);
    free(c);
}

static bool purge_names(const Sluice__PurgeCrashes *x, uint64_t id)
{
    bool named = x->all;

    for (size_t i = 0; i < x->n_ids; i++)
        named = named || x->ids[i] == id;
    return named;
}

/* The first of the ids that no crash has; 0: none. */
static uint64_t purge_unknown(const struct crashes *cs, const Sluice__PurgeCrashes *x)
{
    const struct crash *c;

    for (size_t i = 0; i < x->n_ids; i++) {
        TAILQ_FOREACH(c, &cs->list, entry) {
            if (c->row.id == x->ids[i])
                break;
        }
        if (c == NULL)
            return x->ids[i];
    }
    return 0;
}

void crash_purge(struct session *s, uint32_t id, const void *m)
{
    const Sluice__PurgeCrashes *x = m;
    struct crashes *cs = s->d->jobs->crashes;
    struct purge *p;
    struct crash *c, *next;
    uint64_t unknown = purge_unknown(cs, x);
    struct err e;

    if (unknown != 0) {
        err_set(&e, ERR_NOT_FOUND, "no crash %" PRIu64 "; nothing was removed", unknown);
        session_error(s, id, &e, NULL);
        return;
    }
    p = mem_zalloc(sizeof(*p));
    p->ref = session_refer(s, id);
    p->left = 1;
    for (c = TAILQ_FIRST(&cs->list); c; c = next) {
        next = TAILQ_NEXT(c, entry);
        if (!purge_names(x, c->row.id))
            continue;
        struct purge_change *change = mem_zalloc(sizeof(*change));
        *change = (struct purge_change){ cs, c, p, clock_wall_ns() };
        p->left++;
        c->writing++;
        writer_put(s->d->writer, CHANGE_NEW, purge_write, purge_stored, change);
    }
    if (--p->left == 0)
        purge_answer(p);
}

static int load_crash(void *arg, const struct row_crash *row)
{
    struct crashes *cs = arg;

    if (row->purged == 0)
        crash_insert(cs, crash_create(row));
    return 0;
}

struct crashes *crashes_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct crashes *cs = mem_zalloc(sizeof(*cs));
    struct row_ids ids = { 0 };

    cs->d = d;
    TAILQ_INIT(&cs->list);
    if (db && (rows_load_ids(db, &ids, e) < 0 || rows_load_crashes(db, load_crash, cs, e) < 0)) {
        crashes_destroy(cs);
        return NULL;
    }
    cs->last_id = ids.crash;
    return cs;
}

void crashes_destroy(struct crashes *cs)
{
    struct crash *c;

    if (cs == NULL)
        return;
    while ((c = TAILQ_FIRST(&cs->list)))
        crash_drop(cs, c);
    free(cs);
}
