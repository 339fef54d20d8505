/* slurm_farm.c - see slurm_farm.h
 *
 * A look every slurm.poll seconds brings what Slurm says; after it, and after whatever changes on our side, each node is considered: marks first, then at most one command.
 * A look that was asked before the last answer to a command about the node is too old for it.
 */
#include "config.h"

#include "slurm_part.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "frame.h"
#include "hostlist.h"
#include "log.h"
#include "mem.h"
#include "move.h"
#include "rows.h"
#include "str.h"

static const double first_wait_s = 1, most_wait_s = 30;      /* after a command that failed */
static const double jobs_s = 0.2;                            /* jobs that were sent away take their time to end */
static const double silent_s = 2;                            /* and three looks: then Slurm does not answer */

static const char *const mode_word[] = { [SLURM_OBSERVE] = "observe", [SLURM_LEND] = "lend", [SLURM_LEAVE] = "leaving" };
const char *const lease_word[LEASE_HELD + 1] = { "none", "queued", "held" };

/* Also one that leaves: what is ours there is taken away. */
static bool takes_part(const struct node *n)
{
    return n->slurm != NULL && (n->slurm->mode == SLURM_LEAVE || (n->added && !n->retiring));
}

bool slurm_is_settled(const struct slurm *s)
{
    return s->up_since > 0 && clock_mono_s() - s->up_since >= s->d->conf->slurm.settle;
}

/* ---- what a node says ---- */

void slurm_says_set(struct node_slurm *ns, const Sluice__SlurmNode *w)
{
    if (ns->says != NULL)
        sluice__slurm_node__free_unpacked(ns->says, NULL);
    ns->says = w == NULL ? NULL : proto_copy(&w->base);
}

static void reserved_set(struct node_slurm *ns, bool is, int64_t end)
{
    ns->reserved = is;
    ns->reserved_end = end;
    ns->resv_heard = true;
}

/* ---- one node: what is to be asked of Slurm next ---- */

static void consider(struct node *n);

const char *slurm_trouble(const struct node_slurm *ns)
{
    for (size_t i = 0; i < SLURM_ACTS; i++) {
        if (ns->tries[i].trouble[0] != '\0')
            return ns->tries[i].trouble;
    }
    return NULL;
}

static void failed(struct node *n, struct slurm_try *t, const struct err *why)
{
    t->wait_s = t->wait_s == 0 ? first_wait_s : fmin(t->wait_s * 2, most_wait_s);
    t->again_at = clock_mono_s() + t->wait_s;
    if (strncmp(t->trouble, why->text, sizeof(t->trouble) - 1) != 0)
        log_warning("node %s: Slurm: %s; again in %.3g s", n->name, why->text, t->wait_s);
    snprintf(t->trouble, sizeof(t->trouble), "%.299s", why->text);
    str_mend(t->trouble, strlen(t->trouble));
    counters_add(n->d->counters, "slurm_commands_failed", 1);
}

/* again_s: the same is not asked for so long. */
static void took(struct node *n, const Sluice__SlurmDone *d, const struct err *why, double again_s)
{
    struct node_slurm *ns = n->slurm;
    struct slurm *s = n->d->slurm;

    if (ns == NULL)
        return;
    ns->acting = false;
    ns->acted = clock_mono_ns();
    if (d == NULL) {
        failed(n, &ns->tries[ns->act], why);
        if (s->link != NULL)
            slurm_link_whole(s->link);   /* what looks said meanwhile was not taken, and is said anew when it changes only */
        consider(n);
        return;
    }
    slurm_was_done(n, ns->act);
    ns->tries[ns->act] = (struct slurm_try){ .again_at = again_s == 0 ? 0 : clock_mono_s() + again_s };
    if (again_s > 0 && !ev_is_active(&s->soon)) {
        ev_timer_set(&s->soon, again_s + 0.001, 0);
        ev_timer_start(s->d->loop, &s->soon);
    }
    if (!str_is_empty(d->text))
        log_info("node %s: Slurm: %.300s", n->name, d->text);
    slurm_says_set(ns, d->node);
    slurm_marks_take(n, false);
    slurm_park_check(n);
    consider(n);
    if (n->move != NULL)
        move_node_changed(n);
}

static void soon_cb(struct ev_loop *loop, ev_timer *soon, int events)
{
    struct slurm *s = soon->data;
    bool later = false;

    (void)events;
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        const struct slurm_try *t = n->slurm == NULL ? NULL : &n->slurm->tries[SLUICE__SLURM_ACT__ACT_CLEAR_OUT];

        if (t == NULL)
            continue;
        consider(n);
        later |= t->again_at > clock_mono_s() && t->wait_s == 0;
    }
    if (later) {
        ev_timer_set(soon, jobs_s, 0);
        ev_timer_start(loop, soon);
    }
}

static void acted(void *arg, const Sluice__SlurmDone *d, const struct err *why)
{
    took(arg, d, why, 0);
}

/* What a reservation answer says is taken before the rest is considered. */
static void acted_reservation(void *arg, const Sluice__SlurmDone *d, const struct err *why)
{
    struct node *n = arg;

    if (n->slurm != NULL && d != NULL)
        reserved_set(n->slurm, d->reservation != NULL, d->reservation == NULL ? 0 : d->reservation->end);
    acted(arg, d, why);
}

static void acted_clear_out(void *arg, const Sluice__SlurmDone *d, const struct err *why)
{
    struct node *n = arg;
    struct node_slurm *ns = n->slurm;
    bool named = false;                  /* some are told of that are still there, and go when we ask again */

    if (ns != NULL && d != NULL) {
        named = n->move != NULL && d->n_jobs > ns->n_jobs;
        slurm_jobs_set(ns, d->jobs, n->move == NULL ? 0 : d->n_jobs);
    }
    took(n, d, why, named ? 0 : jobs_s);
}

static void acted_lease(void *arg, const Sluice__SlurmDone *d, const struct err *why)
{
    struct node *n = arg;

    if (n->slurm != NULL && d != NULL)
        slurm_lease_answer(n, d->lease);
    acted(arg, d, why);
}

static const slurm_done done_of[] = {
    [SLUICE__SLURM_ACT__ACT_LEASE] = acted_lease,            [SLUICE__SLURM_ACT__ACT_UNLEASE] = acted_lease,
    [SLUICE__SLURM_ACT__ACT_LOOK] = acted,                   [SLUICE__SLURM_ACT__ACT_DRAIN] = acted,
    [SLUICE__SLURM_ACT__ACT_UNDRAIN] = acted,                [SLUICE__SLURM_ACT__ACT_RESERVE] = acted_reservation,
    [SLUICE__SLURM_ACT__ACT_RELEASE] = acted_reservation,    [SLUICE__SLURM_ACT__ACT_CLEAR_OUT] = acted_clear_out,
};

static void act(struct node *n, Sluice__SlurmAct what, const char *reason)
{
    struct node_slurm *ns = n->slurm;
    Sluice__SlurmDo m = SLUICE__SLURM_DO__INIT;
    char reservation[80], comment[120];

    slurm_reservation_name(n, reservation);
    m.has_act = true;
    m.act = what;
    m.node = n->name;
    m.reason = (char *)reason;
    m.prefix = n->d->conf->slurm.reason_prefix;
    m.reservation = reservation;
    if (what == SLUICE__SLURM_ACT__ACT_CLEAR_OUT) {
        m.jobs = ns->jobs;
        m.n_jobs = ns->n_jobs;
    }
    if (what == SLUICE__SLURM_ACT__ACT_LEASE) {
        const struct conf_slurm *c = &n->d->conf->slurm;

        snprintf(comment, sizeof(comment), "sluice: job %llu", (unsigned long long)ns->lease_for);
        m.comment = comment;
        m.partition = c->partition;
        m.account = c->account;
        m.constraint = (char *)slurm_lease_constraint(n);
        m.has_minutes = m.has_nice = m.has_for_job = true;
        m.for_job = ns->lease_for;
        m.minutes = (uint32_t)((c->lease_time + 59) / 60);
        m.nice = c->lease_nice;
    }
    if (what == SLUICE__SLURM_ACT__ACT_DRAIN) {
        ns->sent_drain = true;
        snprintf(ns->sent_reason, sizeof(ns->sent_reason), "%s", reason);
    }
    ns->acting = true;
    ns->act = what;
    counters_add(n->d->counters, "slurm_commands", 1);
    slurm_link_do(n->d->slurm->link, &m, done_of[what], n);
}

/* What failed and is wanted no more, or was done all the same, is no trouble. True: something was. */
static bool forget_the_rest(struct node_slurm *ns, const Sluice__SlurmAct *due, size_t n_due)
{
    bool is_due[SLURM_ACTS] = { 0 }, was = false;

    for (size_t i = 0; i < n_due; i++)
        is_due[due[i]] = true;
    for (size_t i = 0; i < SLURM_ACTS; i++) {
        if (is_due[i])
            continue;
        was |= ns->tries[i].trouble[0] != '\0';
        ns->tries[i] = (struct slurm_try){ 0 };
    }
    return was;
}

/* Our drain stands there with words of a mark that went. Asked for once: what Slurm makes of our words is not compared again and again. */
static bool is_stale(const struct node_slurm *ns, const char *prefix, const char *reason)
{
    return reason[0] != '\0' && slurm_reason_is_ours(ns->says->reason, prefix) && !str_equal(ns->says->reason, reason) && strcmp(ns->sent_reason, reason) != 0;
}

static void consider(struct node *n)
{
    struct node_slurm *ns = n->slurm;
    struct slurm_facts f = { 0 };
    Sluice__SlurmAct due[SLURM_ACTS];
    size_t n_due, i = 0;
    char reason[512] = "";
    bool ended;

    if (!takes_part(n) || ns->acting || ns->says == NULL || n->d->slurm->link == NULL)
        return;
    f.view = slurm_view(ns->says, n->d->conf->slurm.reason_prefix, ns->sent_drain);
    f.drain = ns->mode != SLURM_LEAVE && slurm_wants_drain(n, reason);
    f.half = str_is_empty(ns->says->reason);
    f.stale = is_stale(ns, n->d->conf->slurm.reason_prefix, reason);
    f.lend = ns->mode != SLURM_OBSERVE;
    f.reserve = slurm_wants_reservation(n);
    f.heard = ns->resv_heard;
    f.reserved = ns->reserved;
    f.left_s = (double)(ns->reserved_end - clock_wall_ns()) / 1e9;
    f.clear_out = slurm_wants_clear_out(n);
    f.lease = ns->lease_wanted || !slurm_lease_may_go(n);
    f.lease_heard = ns->lease_heard;
    f.leased = ns->lease != LEASE_NONE;
    if (f.view == SLURM_CLEAN && !f.drain) {
        ns->sent_drain = false;
        ns->sent_reason[0] = '\0';
    }
    n_due = slurm_due(&f, due);
    ended = forget_the_rest(ns, due, n_due);
    for (size_t k = 0; k < n_due; k++) {
        if (due[k] != SLUICE__SLURM_ACT__ACT_DRAIN || !f.stale)          /* then it stands, with words that are old */
            slurm_undone_check(n, due[k]);
    }
    while (i < n_due && clock_mono_s() < ns->tries[due[i]].again_at)
        i++;
    if (i < n_due)
        act(n, due[i], reason);
    if (ended && n->move != NULL)
        move_node_changed(n);
}

void slurm_node_changed(struct node *n)
{
    if (n->slurm == NULL || n->d->slurm == NULL || n->d->stopping)
        return;
    if (n->move == NULL) {
        memset(&n->slurm->hand, 0, sizeof(n->slurm->hand));
        slurm_jobs_set(n->slurm, NULL, 0);
    }
    slurm_park_check(n);
    consider(n);
}

/* ---- a look ---- */

static void take_nodes(struct slurm *s, const Sluice__SlurmState *m, int64_t asked)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL && !n->slurm->acting && asked >= n->slurm->acted) {
            n->slurm->asked_for = true;
            slurm_says_set(n->slurm, NULL);
        }
    }
    for (size_t i = 0; i < m->n_nodes; i++) {
        struct node *n = m->nodes[i]->name == NULL ? NULL : farm_node(s->d->farm, m->nodes[i]->name);

        if (n != NULL && n->slurm != NULL && !n->slurm->acting && asked >= n->slurm->acted)
            slurm_says_set(n->slurm, m->nodes[i]);
    }
}

static void take_reservation(struct node *n, const Sluice__SlurmReservation *r)
{
    struct node_slurm *ns = n->slurm;
    char ours[80];

    slurm_reservation_name(n, ours);
    if (ns->mode != SLURM_OBSERVE && str_equal(r->name, ours) && r->ours) {
        reserved_set(ns, true, r->end);
    } else if (ns->foreign[0] == '\0') {
        snprintf(ns->foreign, sizeof(ns->foreign), "%s", r->name);
        snprintf(ns->foreign_users, sizeof(ns->foreign_users), "%.63s", r->users == NULL ? "" : r->users);
        str_mend(ns->foreign, strlen(ns->foreign));
        str_mend(ns->foreign_users, strlen(ns->foreign_users));
        ns->foreign_maint = r->maint;
    }
}

static void take_reservations(struct slurm *s, const Sluice__SlurmState *m, int64_t asked)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm == NULL || n->slurm->acting || asked < n->slurm->acted)
            continue;
        reserved_set(n->slurm, false, 0);
        n->slurm->foreign[0] = '\0';
    }
    for (size_t i = 0; i < m->n_reservations; i++) {
        const Sluice__SlurmReservation *r = m->reservations[i];

        for (size_t k = 0; k < r->n_nodes && r->name != NULL; k++) {
            struct node *n = farm_node(s->d->farm, r->nodes[k]);

            if (n != NULL && n->slurm != NULL && !n->slurm->acting && asked >= n->slurm->acted)
                take_reservation(n, r);
        }
    }
}

/* What failed while it was silent need not wait any longer. */
static void try_again(struct slurm *s)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        for (size_t i = 0; n->slurm != NULL && i < SLURM_ACTS; i++)
            n->slurm->tries[i].again_at = n->slurm->tries[i].wait_s = 0;
    }
}

/* Kept, as a drain that is gone after it may have been lost with it. */
static void boot_is(struct slurm *s, int64_t boot)
{
    struct change *c = change_create(s->d);
    char value[32];

    s->boot = boot;
    snprintf(value, sizeof(value), "%" PRId64, boot);
    change_setting(c, slurm_boot_setting, value);
    change_put(c, CHANGE_KEEP, NULL, NULL);
}

static void heard(struct slurm *s, const Sluice__SlurmState *m)
{
    double silent = s->heard > 0 ? clock_mono_s() - s->heard : 0;

    if (s->why[0] != '\0' || s->heard == 0) {
        log_info("Slurm %s answers%s", m->version == NULL ? "?" : m->version, s->heard == 0 ? "" : " again");
        if (silent > silent_s)
            history_note(s->d, NULL, "sluiced", "Slurm", "silent", "answers", s->why);
        try_again(s);
    }
    s->why[0] = '\0';
    s->heard = clock_mono_s();
    s->heard_wall = clock_wall_ns();
    snprintf(s->version, sizeof(s->version), "%.31s", m->version == NULL ? "" : m->version);
    if (s->boot != m->boot || s->up_since == 0)
        s->up_since = clock_mono_s();
    if (s->boot != m->boot)
        boot_is(s, m->boot);
}

void slurm_said(void *arg, const Sluice__SlurmState *m, int64_t asked)
{
    struct slurm *s = arg;

    heard(s, m);
    counters_add(s->d->counters, "slurm_looks", 1);
    if (m->nodes_known) {
        counters_add(s->d->counters, "slurm_looks_with_nodes", 1);       /* in the others nothing about nodes had changed */
        take_nodes(s, m, asked);
    }
    if (m->reservations_known)
        take_reservations(s, m, asked);
    if (m->leases_known)
        slurm_leases_take(s, m, asked);
    slurm_leases_want(s);
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (!takes_part(n) || n->slurm->acting)
            continue;
        if (asked < n->slurm->acted) {   /* the next one says everything, and is not too old */
            slurm_link_whole(s->link);
            continue;
        }
        slurm_marks_take(n, true);
        slurm_park_check(n);
        consider(n);
        slurm_leave_check(n);
    }
}

void slurm_silent(void *arg, const struct err *why)
{
    struct slurm *s = arg;

    if (s->why[0] == '\0')
        log_warning("Slurm does not answer: %s", why->text);
    snprintf(s->why, sizeof(s->why), "%s", why->text);
    str_mend(s->why, strlen(s->why));
    counters_add(s->d->counters, "slurm_looks_failed", 1);
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL)
            memset(n->slurm->clean, 0, sizeof(n->slurm->clean));
    }
}

static void look_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    struct slurm *s = t->data;

    (void)loop;
    (void)events;
    slurm_names_fold(s);
    if (s->link != NULL)
        slurm_link_poll(s->link, s->names, s->lends);
}

struct slurm *slurm_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct slurm *s;
    char value[16], boot[32];

    if (rows_load_setting(db, slurm_setting, value, sizeof(value), e) < 0 || rows_load_setting(db, slurm_boot_setting, boot, sizeof(boot), e) < 0)
        return NULL;
    s = mem_zalloc(sizeof(*s));
    s->d = d;
    s->known = strcmp(value, "on") == 0;
    s->boot = strtoll(boot, NULL, 10);
    ev_init(&s->look, look_cb);
    ev_timer_init(&s->soon, soon_cb, 0, 0);
    s->look.data = s->soon.data = s;
    return s;
}

void slurm_destroy(struct slurm *s)
{
    if (s == NULL)
        return;
    ev_timer_stop(s->d->loop, &s->look);
    ev_timer_stop(s->d->loop, &s->soon);
    slurm_link_destroy(s->link);
    for (struct node *n = s->d->farm == NULL ? NULL : farm_first(s->d->farm); n != NULL; n = n->hh.next)
        slurm_node_free(n);
    free(s->names);
    free(s->program);
    free(s->conf);
    free(s);
}

/* ---- for people ---- */

Sluice__SlurmInfo *slurm_info(const struct node *n)
{
    const struct node_slurm *ns = n->slurm;
    Sluice__SlurmInfo *out;

    if (ns == NULL || (ns->mode == SLURM_LEAVE && ns->says == NULL && !ns->asked_for))       /* whether anything is left there is not known yet */
        return NULL;
    out = mem_zalloc(sizeof(*out));
    sluice__slurm_info__init(out);
    out->has_as_of = slurm_silent_s(n->d) > 0 && ns->says != NULL;
    out->as_of = n->d->slurm->heard_wall;
    out->mode = (char *)mode_word[ns->mode];
    out->state = ns->says == NULL ? (ns->asked_for ? (char *)"not in Slurm" : NULL) : ns->says->state;
    if (ns->says != NULL && !str_is_empty(ns->says->reason)) {
        out->reason = ns->says->reason;
        out->reason_user = ns->says->reason_user;
        out->has_reason_time = ns->says->reason_time != 0;
        out->reason_time = ns->says->reason_time;
    }
    out->has_reserved = ns->resv_heard && ns->mode == SLURM_LEND;
    out->reserved = ns->reserved;
    if (ns->lease != LEASE_NONE) {
        out->lease = (char *)lease_word[ns->lease];
        out->has_lease_job = true;
        out->lease_job = ns->lease_job;
        out->has_lease_end = ns->lease_end != 0;
        out->lease_end = ns->lease_end;
        out->lease_why = ns->lease_why[0] == '\0' ? NULL : (char *)ns->lease_why;
    } else if (slurm_lease_never(n) != NULL) {
        out->lease = (char *)lease_word[LEASE_NONE];
        out->lease_why = (char *)ns->lease_never;
    }
    out->reservation = ns->foreign[0] == '\0' ? NULL : (char *)ns->foreign;
    out->trouble = (char *)slurm_trouble(ns);
    return out;
}

double slurm_silent_s(const struct sluiced *d)
{
    const struct slurm *s = d->slurm;
    double since = s == NULL || s->link == NULL ? 0 : clock_mono_s() - (s->heard > 0 ? s->heard : s->started);

    return since < silent_s + 3 * d->conf->slurm.poll ? 0 : since;
}

void slurm_count(struct sluiced *d, struct slurm_count *out)
{
    memset(out, 0, sizeof(*out));
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (!takes_part(n) || n->slurm->mode != SLURM_LEND)
            continue;
        out->ours += n->slurm->reserved;
        out->leased += !n->slurm->reserved && n->slurm->lease == LEASE_HELD;
        out->slurm += !n->slurm->reserved && n->slurm->lease != LEASE_HELD;
    }
}

/* Whether it is asked only to take back what is ours there. */
static bool is_left(const struct slurm *s)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL && n->slurm->mode != SLURM_LEAVE)
            return false;
    }
    return true;
}

static void about_silence(struct slurm *s, alarm_fn fn, void *arg)
{
    static const char *const advice[] = {
        "look at slurmctld and munged, and at section slurm of the configuration; what waits for it: moves of lent nodes, leases, and so the jobs that need one",
        "no node has to do with Slurm any more; it is asked to take back what is ours there, such as reservations sluice-NODE (scontrol delete reservationname=sluice-NODE). "
        "Look at slurmctld and munged; where that Slurm is gone, slurm { forget = yes } in the configuration ends it",
    };
    double since = slurm_silent_s(s->d);
    char text[700], when[CLOCK_TEXT];

    if (since == 0)
        return;
    if (s->heard > 0)
        snprintf(text, sizeof(text), "Slurm has not answered since %s%s%s", clock_rfc3339(s->heard_wall, when), s->why[0] == '\0' ? "" : ": ", s->why);
    else
        snprintf(text, sizeof(text), "Slurm has not answered since sluiced began to ask, %.0f s ago%s%s", since, s->why[0] == '\0' ? "" : ": ", s->why);
    fn(arg, &(struct alarm){ .word = "SlurmSilent", .text = text, .since_s = since, .advice = advice[is_left(s)] });
}

static void about_the_undone(struct sluiced *d, alarm_fn fn, void *arg)
{
    struct hostlist *all = hostlist_create();
    const struct node *first = NULL;
    char text[300];
    unsigned often, count = 0;

    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (!takes_part(n) || slurm_undone(n, &often) == NULL)
            continue;
        first = count++ == 0 ? n : first;
        hostlist_add(all, n->name, NULL);
    }
    if (count > 0) {
        const char *what = slurm_undone(first, &often);

        snprintf(text, sizeof(text), "somebody else undoes in Slurm what is done there for %u node%s, %s first: %s %u times", count, count == 1 ? "" : "s", first->name, what, often);
        fn(arg, &(struct alarm){ .word = "SlurmContested", .text = text, .count = count, .things = all,
                                 .advice = "perhaps another sluiced has these nodes, too, with the same reason_prefix: each node belongs to one farm, each farm has a prefix of its own (doc/slurm.md); else slurmctld's log says who" });
    }
    hostlist_destroy(all);
}

void slurm_alarms(struct sluiced *d, alarm_fn fn, void *arg)
{
    const struct node *unknown = NULL, *trouble = NULL;
    struct hostlist *unknowns, *troubled;
    bool silent = d->slurm != NULL && (d->slurm->why[0] != '\0' || slurm_silent_s(d) > 0);
    unsigned n_unknown = 0, n_trouble = 0;
    char text[500];

    if (d->slurm == NULL || d->slurm->link == NULL)
        return;
    unknowns = hostlist_create();
    troubled = hostlist_create();
    about_silence(d->slurm, fn, arg);
    about_the_undone(d, fn, arg);
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (!takes_part(n))
            continue;
        if (n->slurm->asked_for && n->slurm->says == NULL) {
            unknown = n_unknown++ == 0 ? n : unknown;
            hostlist_add(unknowns, n->name, NULL);
        }
        if (slurm_trouble(n->slurm) != NULL && !silent) {        /* SlurmSilent says it */
            trouble = n_trouble++ == 0 ? n : trouble;
            hostlist_add(troubled, n->name, NULL);
        }
    }
    if (n_unknown > 0) {
        snprintf(text, sizeof(text), "%u node%s unknown to Slurm, %s first", n_unknown, n_unknown == 1 ? " is" : "s are", unknown->name);
        fn(arg, &(struct alarm){ .word = "SlurmUnknownNode", .text = text, .count = n_unknown, .things = unknowns,
                                 .advice = "NodeName in slurm.conf and the name here must be the same; or slurm = none in the configuration" });
    }
    if (n_trouble > 0) {
        snprintf(text, sizeof(text), "what is wanted of Slurm is not done for %u node%s, %s first: %s", n_trouble, n_trouble == 1 ? "" : "s", trouble->name, slurm_trouble(trouble->slurm));
        fn(arg, &(struct alarm){ .word = "SlurmRefused", .text = text, .count = n_trouble, .things = troubled,
                                 .advice = "do what the text asks for; it is tried again by itself. Rights: doc/slurm.md" });
    }
    hostlist_destroy(unknowns);
    hostlist_destroy(troubled);
}
