/* nice_work.c - nice levels of runs and jobs
 *
 * From: SET_NICE (nice.c), runs and jobs when they are made.  To: the writer, then assign.c (RunOpen to every worker that has the run or job: its processes
 * get the level while they work for it).
 */
#include "config.h"

#include "nice.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "events.h"
#include "flow_core.h"
#include "job.h"
#include "log.h"
#include "mem.h"
#include "rights.h"
#include "run.h"
#include "str.h"

static const char *const source_name[] = { [NICE_OF_POOL] = "pool", [NICE_OF_RULE] = "rule", [NICE_OWN] = "own" };

int nice_of_work(const struct work *w, enum nice_source *from)
{
    int pool = nice_of_pool(w->flow->d, w->pool), level = w->nice.own;

    *from = NICE_OWN;
    if (level != NICE_NONE)
        return level;
    level = pool < w->nice.min ? w->nice.min : pool > w->nice.max ? w->nice.max : pool;
    *from = level != pool ? NICE_OF_RULE : NICE_OF_POOL;
    return level;
}

void nice_begin(const struct session *s, struct work *w, bool has_own, int own)
{
    int min, max;

    if (rights_nice_range(s->d->rights, s->peer.user, s->peer.groups, s->peer.n_groups, &min, &max))
        w->nice = (struct work_nice){ NICE_NONE, min, max };
    if (has_own)
        w->nice.own = own;
}

void nice_tell_works(struct sluiced *d, int pool)
{
    struct work *w;

    if (d->flow == NULL)
        return;
    TAILQ_FOREACH(w, &d->flow->works, entry) {
        if (w->pool == pool && w->nice.own == NICE_NONE && (w->nice.min > NICE_FIRST || w->nice.max < NICE_LAST))
            assign_tell(w);
    }
}

/* ---- what people see ---- */

const char *nice_from(const struct work *w, bool over, protobuf_c_boolean *has, int32_t *level)
{
    enum nice_source from;

    *level = nice_of_work(w, &from);
    *has = !over || from == NICE_OWN;
    return *has ? source_name[from] : NULL;
}

static void name_work(const struct work *w, char out[40])
{
    snprintf(out, 40, "%s %" PRIu64, w->is_job ? "job" : "run", w->id);
}

static void add_device(struct str *s, const struct node *n, const Sluice__Device *d)
{
    if (d->nice_wanted != d->nice_actual)
        str_addf(s, "%s%s: %s: wanted %d, has %d", s->len > 0 ? "; " : "", n->name, d->serial, d->nice_wanted, d->nice_actual);
}

char *nice_text(const struct work *w)
{
    struct str s = { 0 };
    char name[40];

    name_work(w, name);
    for (const struct fnode *n = w->flow->nodes; n != NULL && s.len < 400; n = n->hh.next) {
        const Sluice__Report *r = n->node->session != NULL ? n->node->report : NULL;

        for (size_t i = 0; r != NULL && i < r->n_devices; i++) {
            if (str_equal(r->devices[i]->nice_for, name))
                add_device(&s, n->node, r->devices[i]);
        }
    }
    return s.len > 0 ? str_take(&s) : (str_free(&s), NULL);
}

/* ---- SET_NICE ---- */

/* A level of a run's or a job's own: it acts, and is answered for, after the commit. */
struct own_wish { struct session_ref ref; struct work *work; int before, level; char was[24], is[24]; };

static void own_text(const struct work *w, char out[24])
{
    enum nice_source from;
    int level = nice_of_work(w, &from);

    snprintf(out, 24, from == NICE_OWN ? "%d" : "%d, the %s's", level, source_name[from]);
}

static void own_answer(struct own_wish *o, int rc, const struct err *e)
{
    struct session *s = session_find(o->ref);
    Sluice__Changed m = SLUICE__CHANGED__INIT;
    Sluice__NodeResult line = SLUICE__NODE_RESULT__INIT, *lines = &line;
    char name[40], text[120];

    name_work(o->work, name);
    if (rc == 0) {
        log_info("%s: nice from %s to %s", name, o->was, o->is);
        assign_tell(o->work);
    } else if (o->work->nice.own == o->level) {
        o->work->nice.own = o->before;
    }
    snprintf(text, sizeof(text), "nice of %s from %s to %s", name, o->was, o->is);
    line.node = name;
    line.has_code = true;
    line.text = text;
    m.results = &lines;
    m.n_results = 1;
    if (s != NULL && rc == 0)
        session_answer(s, o->ref.id, &m.base);
    else if (s != NULL)
        session_error(s, o->ref.id, e, "StateNotWritable");
    free(o);
}

static void run_stored(struct run *r, int rc, const struct err *e, void *arg)
{
    (void)r;
    own_answer(arg, rc, e);
}

static void job_stored(struct job *j, int rc, const struct err *e, void *arg)
{
    (void)j;
    own_answer(arg, rc, e);
}

static struct work *run_asked(struct session *s, uint64_t number, struct err *e)
{
    struct run *r = run_find(s->d->runs, number, true);

    if (r == NULL)
        return err_null(e, ERR_NOT_FOUND, "no run %" PRIu64, number);
    return r->ended ? err_null(e, ERR_STATE, "run %" PRIu64 " is over", number) : &r->work;
}

static struct work *job_asked(struct session *s, uint64_t number, struct err *e)
{
    struct job *j = job_find(s->d->jobs, number);

    if (j == NULL)
        return err_null(e, ERR_NOT_FOUND, "no job %" PRIu64, number);
    if (j->work.uid != s->peer.uid && s->right < RIGHT_EXPERT)
        return err_null(e, ERR_PERMISSION, "job %" PRIu64 " is of %s; others' jobs are for experts", number, j->owner);
    return j->ended ? err_null(e, ERR_STATE, "job %" PRIu64 " is over", number) : &j->work;
}

int nice_set_work(struct session *s, uint32_t id, const Sluice__SetNice *q, struct err *e)
{
    struct work *w = q->has_job ? job_asked(s, q->job, e) : run_asked(s, q->run, e);
    char author[96], name[40];
    enum nice_source from;
    struct own_wish *o;
    struct event *ev;

    if (w == NULL)
        return -1;
    o = mem_zalloc(sizeof(*o));
    *o = (struct own_wish){ .ref = session_refer(s, id), .work = w, .before = w->nice.own, .level = q->has_level ? q->level : NICE_NONE };
    own_text(w, o->was);
    w->nice.own = o->level;
    if (nice_check(s, nice_of_work(w, &from), e) < 0) {
        w->nice.own = o->before;
        free(o);
        return -1;
    }
    own_text(w, o->is);
    name_work(w, name);
    ev = event_create(NULL, session_author(s, author), "nice", o->was, o->is, name);
    if (w->is_job)
        job_put(job_of(w), CHANGE_NEW, ev, NULL, job_stored, o);
    else
        run_put(run_of(w), CHANGE_NEW, ev, run_stored, o);
    return 0;
}
