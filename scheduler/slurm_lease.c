/* slurm_lease.c - async work of ours on nodes that Slurm has: a job of Slurm, which does nothing, holds the node while our worker works there
 *
 * From: slurm_farm.c (looks), job.c (how much work there is).  To: slurm_farm.c, which asks Slurm; flow.c (what must be given up).
 * One lease a node, named after it: so a lease is never asked for twice, whatever was lost on the way, and a restart finds those that are there. As many are wanted as there are
 * tasks and max_leases allows; nodes that have one keep it, then come those that Slurm calls idle. A lease is yielded before its time is over: first nothing new, then what is still there goes
 * elsewhere. Slurm's silence ends none before its time.
 */
#include "config.h"

#include "slurm_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "constraint.h"
#include "flow.h"
#include "log.h"
#include "mem.h"
#include "move.h"
#include "str.h"

static const double idle_s = 5;          /* so long without work, and it is given back */
static const double most_yield_s = 120;  /* before its end, or a fifth of it, nothing new; for the last quarter of that, what is there goes elsewhere */

static double left_s(const struct node_slurm *ns)
{
    return ns->lease_end == 0 ? INFINITY : (double)(ns->lease_end - clock_wall_ns()) / 1e9;
}

static double yield_s(const struct node *n)
{
    return fmin(most_yield_s, n->d->conf->slurm.lease_time / 5);
}

bool slurm_lease_works(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;

    return ns->mode == SLURM_LEND && ns->lease == LEASE_HELD && ns->lease_wanted && !ns->lease_over && left_s(ns) > yield_s(n);
}

bool slurm_lease_may_go(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;

    return ns->lease != LEASE_HELD || ns->reserved || !slurm_is_heard(n) || slurm_is_parked(n);
}

/* ---- what Slurm says ---- */

static void lost(struct node *n, const char *why)
{
    if (n->n_tfs > 0) {
        log_info("node %s: %u TFs go elsewhere: %s", n->name, n->n_tfs, why);
        flow_evict(n, why);
    }
}

static void lease_is(struct node *n, enum lease_state is, const Sluice__SlurmLease *l)
{
    struct node_slurm *ns = n->slurm;
    enum lease_state was = ns->lease;

    ns->lease = is;
    ns->lease_job = l == NULL ? 0 : l->job;
    ns->lease_end = l == NULL ? 0 : l->end;
    snprintf(ns->lease_why, sizeof(ns->lease_why), "%.63s", l == NULL || l->why == NULL ? "" : l->why);
    str_mend(ns->lease_why, strlen(ns->lease_why));
    if (is == was)
        return;
    ns->lease_over = ns->lease_evicted = false;
    if (was == LEASE_NONE)               /* also one that is found after a restart: its worker has the time to come */
        ns->worked_at = clock_mono_s();
    ns->lease_wanted = is != LEASE_NONE && (was == LEASE_NONE || ns->lease_wanted);       /* one that is there is kept until it is decided among all nodes */
    log_info("node %s: lease: %s%s%s", n->name, lease_word[is], ns->lease_why[0] == '\0' ? "" : ", ", ns->lease_why);
    node_changed(n);
    if (was == LEASE_HELD && n->pool == POOL_ASYNC)
        lost(n, "Slurm ended the lease");
}

void slurm_leases_take(struct slurm *s, const Sluice__SlurmState *m, int64_t asked)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        const Sluice__SlurmLease *l = NULL;

        if (n->slurm == NULL || n->slurm->acting || asked < n->slurm->acted)
            continue;
        for (size_t i = 0; i < m->n_leases && l == NULL; i++) {
            if (str_equal(m->leases[i]->node, n->name))
                l = m->leases[i];
        }
        n->slurm->lease_heard = true;
        lease_is(n, l == NULL ? LEASE_NONE : l->running ? LEASE_HELD : LEASE_QUEUED, l);
    }
}

void slurm_lease_answer(struct node *n, const Sluice__SlurmLease *l)
{
    n->slurm->lease_heard = true;
    lease_is(n, l == NULL ? LEASE_NONE : l->running ? LEASE_HELD : LEASE_QUEUED, l);
}

/* ---- what is wanted ---- */

const char *slurm_lease_constraint(const struct node *n)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);

    return class == NULL ? NULL : class->slurm_constraint;
}

/* Slurm refuses a job that asks for features which the node it names has not, and each time keeps a record of it: so it is not asked. */
static bool fits(const struct node *n)
{
    const char *wanted = slurm_lease_constraint(n);

    return wanted == NULL || constraint_fits(wanted, n->slurm->says == NULL ? NULL : n->slurm->says->features);
}

const char *slurm_lease_never(const struct node *n)
{
    struct node_slurm *ns = n->slurm;

    if (ns->mode != SLURM_LEND || ns->says == NULL || n->d->conf->slurm.max_leases == 0 || fits(n))
        return NULL;
    snprintf(ns->lease_never, sizeof(ns->lease_never), "%s%.100s in Slurm, and class %s wants '%.100s' there (slurm_constraint): no lease is asked for",
             str_is_empty(ns->says->features) ? "it has no features" : "its features are ", str_is_empty(ns->says->features) ? "" : ns->says->features, n->class, slurm_lease_constraint(n));
    str_mend(ns->lease_never, strlen(ns->lease_never));
    return ns->lease_never;
}

static bool may_have(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;
    struct verdict v;

    if (ns == NULL || ns->mode != SLURM_LEND || n->pool != POOL_ASYNC || n->move != NULL || !n->added || n->retiring || ns->says == NULL || ns->says->unknown || !fits(n))
        return false;
    node_judge(n, &v);
    return verdict_is_good(&v);          /* nothing else stands against it */
}

struct wanted { struct slurm *s; unsigned left; };

static void give(struct wanted *w, bool (*is)(const struct node *n))
{
    for (struct node *n = farm_first(w->s->d->farm); n != NULL && w->left > 0; n = n->hh.next) {
        struct node_slurm *ns = n->slurm;
        uint64_t first = 0, tasks;

        if (!may_have(n) || ns->lease_next || ns->lease_over || !is(n))
            continue;
        tasks = job_wants_nodes(w->s->d, n->class, &first);
        if (tasks == 0)
            continue;
        ns->lease_next = true;
        ns->lease_for = first;
        ns->worked_at = clock_mono_s();
        w->left--;
    }
}

static bool is_held(const struct node *n) { return n->slurm->lease == LEASE_HELD; }
static bool is_asked(const struct node *n) { return n->slurm->acting && n->slurm->lease_wanted; }
static bool is_idle(const struct node *n) { return !n->slurm->says->busy; }
static bool is_queued(const struct node *n) { return n->slurm->lease == LEASE_QUEUED; }
static bool is_idle_queued(const struct node *n) { return is_idle(n) && is_queued(n); }
static bool is_any(const struct node *n) { (void)n; return true; }

/* In this order: what is being asked for may be there already; a lease that is queued for a busy node is given up for one that is idle. */
static bool (*const choice[])(const struct node *n) = { is_held, is_asked, is_idle_queued, is_idle, is_queued, is_any };

/* Before its end, or when there is no work: nothing new, and what is there may end, up to the last moment. */
static void yield(struct node *n)
{
    struct node_slurm *ns = n->slurm;

    if (ns->lease != LEASE_HELD)
        return;
    if (left_s(ns) <= yield_s(n) && !ns->lease_over) {
        log_info("node %s: lease: ends in %.0f s, takes nothing new", n->name, left_s(ns));
        ns->lease_over = true;
        node_changed(n);
    }
    if (left_s(ns) <= yield_s(n) / 4 && n->n_tfs > 0 && !ns->lease_evicted) {
        ns->lease_evicted = true;
        lost(n, "the lease is over");
    }
}

/* A TF that is still there, or work that was there just now; and while a move is being stored that will have the node reserved. */
static bool keeps(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;
    bool begins = n->move != NULL && move_is_executing(n->move) && !slurm_is_handed(n, POOL_ONLINE), worked = n->move == NULL && clock_mono_s() - ns->worked_at < idle_s;

    return ns->lease == LEASE_HELD && n->pool == POOL_ASYNC && (n->n_tfs > 0 || (ns->mode == SLURM_LEND && !ns->lease_over && (begins || worked)));
}

void slurm_leases_want(struct slurm *s)
{
    uint64_t first, tasks = job_wants_nodes(s->d, NULL, &first);
    struct wanted w = { s, s->d->conf->slurm.max_leases };

    if (tasks < w.left)
        w.left = (unsigned)tasks;
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL)
            n->slurm->lease_next = false;
    }
    for (size_t i = 0; i < ARRAY_LEN(choice); i++)
        give(&w, choice[i]);
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm == NULL || n->slurm->mode == SLURM_OBSERVE)
            continue;
        if (n->slurm->lease_wanted != (n->slurm->lease_next || keeps(n))) {
            n->slurm->lease_wanted = !n->slurm->lease_wanted;
            node_changed(n);
        }
        yield(n);
    }
}

/* ---- for people ---- */

static unsigned leases(const struct slurm *s)
{
    unsigned count = 0;

    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next)
        count += n->slurm != NULL && n->slurm->lease != LEASE_NONE;
    return count;
}

char *slurm_lease_why(const struct node *n, bool *queued)
{
    const struct node_slurm *ns = n->slurm;
    unsigned most = n->d->conf->slurm.max_leases, there;

    *queued = false;
    if (!slurm_is_lent(n))
        return NULL;
    *queued = ns->lease == LEASE_QUEUED;
    if (ns->lease == LEASE_QUEUED)
        return mem_printf("job %u of Slurm waits there to hold it for us: %s", ns->lease_job, ns->lease_why[0] == '\0' ? "no reason given" : ns->lease_why);
    if (ns->lease == LEASE_HELD)
        return mem_printf("its lease, job %u of Slurm, is about to end", ns->lease_job);
    if (ns->mode == SLURM_LEAVE)
        return mem_strdup("it is given up by Slurm once no job of Slurm runs there");
    if (most == 0)
        return mem_strdup("no leases are asked for: max_leases in section slurm is 0");
    if (slurm_lease_never(n) != NULL)
        return mem_strdup(ns->lease_never);
    if (slurm_trouble(ns) != NULL)
        return mem_printf("Slurm: %s", slurm_trouble(ns));
    if (!ns->lease_heard)
        return mem_strdup("Slurm has not said yet whether we have a lease");
    there = leases(n->d->slurm);
    if (there >= most)
        return mem_printf("as many leases as may be are there: %u (max_leases in section slurm)", there);
    return mem_strdup(ns->lease_wanted ? "a lease is being asked for" : "there is no task for it that waits, or something else stands against it");
}

char *slurm_stuck_why(struct sluiced *d)
{
    const char *silent = slurm_silent_s(d) > 0 ? "Slurm does not answer (SlurmSilent), so there is no lease" : NULL;

    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        bool queued;
        char *why = slurm_lease_why(n, &queued), *out;

        if (why == NULL)
            continue;
        out = silent != NULL ? mem_strdup(silent) : mem_printf("Slurm has node %s: %s", n->name, why);
        free(why);
        return out;
    }
    return NULL;
}
