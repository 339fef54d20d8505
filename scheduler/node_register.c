/* node_register.c - what a node's worker says: who it is, how it is, and that its connection ended
 *
 * From: session.c's table.  To: node.c (judged anew), flow.c, health.c.
 * Always: one worker a node. The newest connection of the same incarnation wins; another one only when the old one's connection has closed.
 */
#include "config.h"

#include "node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "counters.h"
#include "events.h"
#include "flow.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "move.h"
#include "slurm_farm.h"
#include "str.h"

enum { MOST_HELD_ASIDE = 1024 };         /* unknown workers that may register */

/* ---- registration ---- */

static bool same_incarnation(const Sluice__Incarnation *a, const Sluice__Incarnation *b)
{
    return a->start == b->start && a->pid == b->pid && str_equal(a->boot_id, b->boot_id);
}

static int check_devices(const Sluice__Register *r, struct err *e)
{
    for (size_t i = 0; i < r->n_devices; i++) {
        const char *serial = r->devices[i]->serial;

        if (serial == NULL || serial[0] == '\0' || strlen(serial) > 120)
            return err_set(e, ERR_PROTOCOL, "node %s: device %zu has no serial that can be used", r->node, i);
        for (size_t k = 0; k < i; k++) {
            if (strcmp(serial, r->devices[k]->serial) == 0)
                return err_set(e, ERR_PROTOCOL, "node %s: two devices say that they are %s", r->node, serial);
        }
    }
    return 0;
}

static int check_register(const Sluice__Register *r, struct err *e)
{
    if (r->node == NULL || !str_is_name(r->node))
        return err_set(e, ERR_PROTOCOL, "a worker registers with a name of 1 to 63 letters, digits, '.', '_', '-'");
    if (r->class_ == NULL || !str_is_name(r->class_))
        return err_set(e, ERR_PROTOCOL, "node %s: the worker does not say its class", r->node);
    if (r->incarnation == NULL || r->incarnation->boot_id == NULL)
        return err_set(e, ERR_PROTOCOL, "node %s: the worker does not say its incarnation", r->node);
    if (r->n_devices > 64)
        return err_set(e, ERR_PROTOCOL, "node %s: %zu devices, at most 64 are possible", r->node, r->n_devices);
    return check_devices(r, e);
}

/* Same incarnation: the newest connection wins. Another one: only when the old one is out of contact, or its connection has closed. *word: as for check_place. */
static int check_incarnation(const struct node *n, const Sluice__Register *r, const char **word, struct err *e)
{
    const Sluice__Incarnation *old = n->incarnation, *new = r->incarnation;

    if (old == NULL)
        return 0;
    if (same_incarnation(old, new)) {
        if (r->connection < n->connection || (r->connection == n->connection && n->session != NULL))
            return err_set(e, ERR_STATE, "node %s: connection %llu is older than the one in use (%llu)", n->name,
                           (unsigned long long)r->connection, (unsigned long long)n->connection);
        return 0;
    }
    if (n->session == NULL)
        return 0;
    *word = "NameInUse";
    return err_set(e, ERR_STATE, "node %s: another worker is in contact under this name (host %s pid %u, %.1f s ago); host %.60s pid %u is refused",
                   n->name, n->host[0] == '\0' ? "?" : n->host, old->pid, clock_mono_s() - n->last_contact, r->host == NULL ? "?" : r->host, new->pid);
}

static unsigned count_aside(struct farm *f)
{
    unsigned count = 0;

    for (const struct node *n = farm_first(f); n != NULL; n = n->hh.next)
        count += !n->added && !n->stored && !n->adding;
    return count;
}

/* *word: what the worker is told beside the sentence; it stays where there is none. */
static int check_place(struct farm *f, const struct node *n, const Sluice__Register *r, const char **word, struct err *e)
{
    if (n == NULL && count_aside(f) >= MOST_HELD_ASIDE)
        return err_set(e, ERR_STATE, "node %s is not known, and %d unknown ones are held aside already", r->node, MOST_HELD_ASIDE);
    if (n != NULL && n->added && strcmp(n->class, r->class_) != 0)
        return err_set(e, ERR_STATE, "node %s is of class %s; the worker says %s", n->name, n->class, r->class_);
    return n == NULL ? 0 : check_incarnation(n, r, word, e);
}

static void refuse_worker(struct session *s, uint32_t id, struct node *n, const char *word, const struct err *e)
{
    counters_add(s->d->counters, "refused_workers", 1);
    log_warning("%s", e->text);
    if (n != NULL) {
        snprintf(n->refusal, sizeof(n->refusal), "%.199s", e->text);
        n->refused_at = clock_mono_s();
    }
    session_error(s, id, e, word);
    session_close(s, e->text);
}

/* The worker of before goes: for a newer connection of the same one, or for good. */
static void succeed(struct node *n, const Sluice__Register *r)
{
    bool same = n->incarnation != NULL && same_incarnation(n->incarnation, r->incarnation);

    if (n->session != NULL) {
        struct session *old = n->session;

        session_close(old, "the same worker has connected anew");
    }
    if (!same && n->incarnation != NULL) {
        if (n->added)
            flow_worker_replaced(n, "another incarnation of its worker registered");
        history_note(n->d, n->name, "sluiced", "registered", "", r->host, "a new incarnation of its worker");
    }
}

static void take_over(struct node *n, struct session *s, const Sluice__Register *r)
{
    succeed(n, r);
    if (n->added && n->contact == SLUICE__CONTACT__LOST)
        history_note(n->d, n->name, "sluiced", "contact", "lost", "up", "its worker registered");
    NODE_KEEP(n->incarnation, r->incarnation);
    NODE_KEEP(n->registered, r);
    NODE_KEEP(n->report, NULL);
    n->session = s;
    s->node = n;
    n->connection = r->connection;
    n->contact = SLUICE__CONTACT__UP;
    n->last_contact = clock_mono_s();
    n->left[0] = '\0';
    n->other_version_at = 0;
    n->clock = *chan_clock(s->chan);
    snprintf(s->name, sizeof(s->name), "%s", n->name);
    snprintf(n->software, sizeof(n->software), "%s", s->software);
    snprintf(n->host, sizeof(n->host), "%s", r->host == NULL ? "" : r->host);
    if (!n->added)
        snprintf(n->class, sizeof(n->class), "%s", r->class_);
    for (size_t i = 0; i < r->n_devices; i++)
        node_see_part(n, r->devices[i]->serial);
}

/* Registered, with what the worker should forget: for one that is not added, everything. */
static void answer_registered(struct session *s, uint32_t id, struct node *n, const Sluice__Register *r)
{
    Sluice__Registered out = SLUICE__REGISTERED__INIT;

    if (n->added) {
        flow_worker_registered(n, r, &out);
    } else {
        out.n_forget = r->n_held;
        out.forget = r->held;
    }
    out.has_epoch = out.has_added = out.has_pool = out.has_parking = out.has_parking_order = true;
    out.parking = slurm_parking(n, &out.parking_order);
    out.epoch = n->d->epoch;
    out.added = n->added;
    out.pool = (uint32_t)n->pool;
    chan_send(s->chan, id, &out.base);   /* also unasked, when it is added later */
    if (n->added)
        flow_registered_free(&out);
}

void node_register(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Register *r = m;
    struct farm *f = s->d->farm;
    const char *word = NULL;
    struct node *n;
    struct err e;

    if (s->node != NULL || check_register(r, &e) < 0) {
        if (s->node != NULL)
            err_set(&e, ERR_PROTOCOL, "node %s: registers twice on one connection", s->node->name);
        refuse_worker(s, id, NULL, NULL, &e);
        return;
    }
    n = farm_node(f, r->node);
    if (check_place(f, n, r, &word, &e) < 0) {
        refuse_worker(s, id, n, word, &e);
        return;
    }
    if (n == NULL) {
        n = farm_obtain(f, r->node);
        log_warning("node %s: not known, held aside until `sluice node add %s --class %s`", n->name, n->name, r->class_);
    }
    take_over(n, s, r);
    log_info("node %s: registered: class %s, %zu device%s, host %s, pid %u, connection %llu%s", n->name, r->class_, r->n_devices,
             r->n_devices == 1 ? "" : "s", n->host, r->incarnation->pid, (unsigned long long)r->connection, n->added ? "" : ", held aside");
    answer_registered(s, id, n, r);
    health_registered(n);
    node_send_settings(n);
    shm_registered(n, r->connection <= 1 && r->n_held == 0);
    node_changed(n);
}

void node_admitted(struct node *n)
{
    if (n->session != NULL && n->registered != NULL)
        answer_registered(n->session, 0, n, n->registered);
    if (n->session != NULL && n->registered != NULL)
        health_registered(n);
    node_send_settings(n);
    node_changed(n);
}

/* A report comes every second from every node: it is kept as it came. */
static void report_keep(struct node *n, struct session *s, const Sluice__Report *r)
{
    ProtobufCMessage *own = chan_take_message(s->chan);

    if (own == NULL || own != &r->base) {
        NODE_KEEP(n->report, r);
        return;
    }
    if (n->report != NULL)
        protobuf_c_message_free_unpacked(&n->report->base, NULL);
    n->report = (Sluice__Report *)own;
}

void node_report(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Report *r = m;
    struct node *n = s->node;
    uint64_t size = n->report == NULL ? 0 : n->report->buffer_size;

    (void)id;
    if (n->session != s)
        return;
    if (r->n_devices > 64 || r->largest_free > r->buffer_size || r->bytes_used > r->buffer_size) {
        counters_add(s->d->counters, "bad_reports", 1);
        if (r->n_devices > 64)
            return;
    }
    report_keep(n, s, r);
    r = n->report;
    n->last_contact = clock_mono_s();
    n->clock = *chan_clock(s->chan);
    for (size_t i = 0; i < r->n_devices; i++)
        node_see_part(n, r->devices[i]->serial);
    if (n->added)
        flow_report(n, n->report);
    health_report(n);
    move_node_changed(n);                /* it may have waited for this (slurm_park.c) */
    if (size != n->report->buffer_size)
        node_changed(n);
    else
        node_check(n);
    shm_check(n);
}

void node_detach(struct node *n, const char *why)
{
    n->session = NULL;
    snprintf(n->left, sizeof(n->left), "%s", why);
    n->left_at = clock_mono_s();
    if (n->added)
        flow_worker_disconnected(n);
    if (n->contact != SLUICE__CONTACT__LOST)
        n->contact = SLUICE__CONTACT__LATE;
    node_changed(n);
}
