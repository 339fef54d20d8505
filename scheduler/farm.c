/* farm.c - all nodes by name, and whether they are in contact
 *
 * From: node_register.c, roster.c, restore.c.  To: node.c, flow.c.
 * Contact is judged by farm_tick alone, after a full read pass, on the monotonic clock; the time that our own loop stood still is given
 * to every node. A struct node lives as long as the daemon: others point at it.
 */
#include "config.h"

#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "flow.h"
#include "health.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "move.h"

enum { JUDGED_EVERY = 16 };              /* ticks: whatever changes a verdict says so (node_changed); this is for what forgot to */
static const double tick_s = 0.25;
static const double stall_s = 0.25;      /* the loop standing still for longer is our own fault */

struct farm {
    struct sluiced *d;
    struct node *by_name;
    ev_timer tick;
    double began, last_tick, stalled_most;
    unsigned ticks;
};

/* ---- contact ---- */

static void contact_lost(struct node *n, double silent)
{
    char why[220];
    struct session *s = n->session;

    if (s == NULL && clock_mono_s() - n->left_at > 0.5)
        snprintf(why, sizeof(why), "%.150s, and not back for %.1f s", n->left, clock_mono_s() - n->left_at);
    else if (s == NULL)
        snprintf(why, sizeof(why), "%.150s", n->left);
    else
        snprintf(why, sizeof(why), "no sign of life for %.1f s", silent);
    n->contact = SLUICE__CONTACT__LOST;
    log_warning("node %s: contact lost: %s", n->name, why);
    counters_add(n->d->counters, "contacts_lost", 1);
    if (s != NULL)
        session_close(s, why);
    snprintf(n->left, sizeof(n->left), "%.159s", why);
    if (n->added) {
        flow_worker_lost(n, why);
        history_note(n->d, n->name, "sluiced", "contact", "up", "lost", why);
    }
    node_changed(n);
}

static void judge_contact(struct node *n, double now, bool full)
{
    const double limit = n->d->conf->limits.contact_timeout;
    double silent;

    if (n->contact == SLUICE__CONTACT__NEVER || n->contact == SLUICE__CONTACT__LOST)
        return;
    silent = now - n->last_contact;
    if (n->session != NULL && silent > limit / 4) {      /* no report lately: what else was heard? */
        if (now - chan_silence_s(n->session->chan) > n->last_contact)
            n->last_contact = now - chan_silence_s(n->session->chan);
        silent = now - n->last_contact;
    }
    if (silent > limit) {
        contact_lost(n, silent);
        return;
    }
    n->contact = n->session == NULL || silent > limit / 2 ? SLUICE__CONTACT__LATE : SLUICE__CONTACT__UP;
    if (n->contact != n->said.contact || full)
        node_check(n);
}

/* Our own stall is nobody's silence. */
static void shift_by(struct farm *f, double stood)
{
    if (stood > 1)
        log_warning("the loop stood still for %.1f s", stood);
    counters_add(f->d->counters, "stalls", 1);
    if (stood > f->stalled_most)
        f->stalled_most = stood;
    for (struct node *n = f->by_name; n != NULL; n = n->hh.next) {
        if (n->last_contact > 0)
            n->last_contact += stood;
        if (n->shm.sent_at > 0)
            n->shm.sent_at += stood;
    }
}

static void farm_tick(struct ev_loop *loop, ev_timer *w, int events)
{
    struct farm *f = w->data;
    double now = clock_mono_s(), stood = now - f->last_tick - tick_s;
    unsigned i = 0;

    (void)loop;
    (void)events;
    f->last_tick = now;
    if (stood > stall_s)
        shift_by(f, stood);
    f->ticks++;
    for (struct node *n = f->by_name; n != NULL; n = n->hh.next)
        judge_contact(n, now, ++i % JUDGED_EVERY == f->ticks % JUDGED_EVERY);
    marks_tick(f->d->marks);
    moves_tick(f->d->moves);
    shms_tick(f->d->shms);
}

/* ---- the farm ---- */

struct farm *farm_create(struct sluiced *d)
{
    struct farm *f = mem_zalloc(sizeof(*f));

    f->d = d;
    f->began = f->last_tick = clock_mono_s();
    ev_timer_init(&f->tick, farm_tick, tick_s, tick_s);
    ev_set_priority(&f->tick, EV_MINPRI);            /* whatever can be read is read before anybody is called silent */
    f->tick.data = f;
    ev_timer_start(d->loop, &f->tick);
    return f;
}

void farm_destroy(struct farm *f)
{
    struct node *n, *next;

    if (f == NULL)
        return;
    ev_timer_stop(f->d->loop, &f->tick);
    HASH_ITER(hh, f->by_name, n, next) {
        HASH_DEL(f->by_name, n);
        node_free(n);
    }
    free(f);
}

struct node *farm_node(struct farm *f, const char *name)
{
    struct node *n;

    HASH_FIND_STR(f->by_name, name, n);
    return n;
}

static int by_natural_order(struct node *a, struct node *b)
{
    return hostlist_compare(a->name, b->name);
}

struct node *farm_obtain(struct farm *f, const char *name)
{
    struct node *n = farm_node(f, name);

    if (n != NULL)
        return n;
    n = mem_zalloc(sizeof(*n));
    n->d = f->d;
    snprintf(n->name, sizeof(n->name), "%s", name);
    TAILQ_INIT(&n->marks);
    n->contact = SLUICE__CONTACT__NEVER;
    n->load.owner = n;
    /* Lists of names come in order: then the end is the place, and nobody is passed on the way there. */
    if (f->by_name == NULL || by_natural_order(ELMT_FROM_HH(f->by_name->hh.tbl, f->by_name->hh.tbl->tail), n) < 0)
        HASH_ADD(hh, f->by_name, name[0], strlen(n->name), n);
    else
        HASH_ADD_INORDER(hh, f->by_name, name[0], strlen(n->name), n, by_natural_order);
    return n;
}

int farm_check_names(struct farm *f, char *const *names, size_t n, bool (*counts)(const struct node *n), struct err *e)
{
    struct hostlist *unknown = NULL;
    const char *first = NULL;
    char *folded;

    for (size_t i = 0; i < n; i++) {
        const struct node *it = farm_node(f, names[i]);

        if (it != NULL && (counts == NULL || counts(it)))
            continue;
        first = first == NULL ? names[i] : first;
        unknown = unknown == NULL ? hostlist_create() : unknown;
        hostlist_add(unknown, names[i], NULL);
    }
    if (first == NULL)
        return 0;
    if (hostlist_count(unknown) < 2) {
        err_set(e, ERR_NOT_FOUND, "node %.63s: there is no such node", first);
    } else {
        folded = hostlist_fold(unknown);
        err_set(e, ERR_NOT_FOUND, "nodes %.350s%s: there are no such nodes", folded, strlen(folded) > 350 ? "..." : "");
        free(folded);
    }
    hostlist_destroy(unknown);
    return -1;
}

struct node *farm_first(struct farm *f)
{
    return f->by_name;
}

unsigned farm_count(const struct farm *f)
{
    return HASH_COUNT(f->by_name);
}

static unsigned count_nodes(struct farm *f, int pool, bool (*counts)(const struct verdict *v))
{
    struct verdict v;
    unsigned count = 0;

    for (struct node *n = f->by_name; n != NULL; n = n->hh.next) {
        if (n->pool != pool)
            continue;
        node_judge(n, &v);
        count += counts(&v);
    }
    return count;
}

static bool is_usable(const struct verdict *v)
{
    return v->usable;
}

unsigned farm_usable(struct farm *f, int pool)
{
    return count_nodes(f, pool, is_usable);
}

unsigned farm_good(struct farm *f, int pool)
{
    return count_nodes(f, pool, verdict_is_good);
}

bool node_has_gone(const struct node *n, double *since_s)
{
    const struct farm *f = n->d->farm;
    bool never = n->contact == SLUICE__CONTACT__NEVER;

    *since_s = clock_mono_s() - (never ? f->began : n->last_contact);
    return never ? health_was_here(n) && *since_s > n->d->conf->limits.contact_timeout : n->contact == SLUICE__CONTACT__LOST;
}

double farm_stalled_s(const struct farm *f)
{
    return f->stalled_most;
}
