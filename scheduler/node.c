/* node.c - the nodes of the farm: contact, what may be used and why not, what people see
 *
 * From: session.c (registration, reports, ends of connections), mark.c, move.c, roster.c, restore.c.  To: flow.c, show.c.
 * usable, state and why are computed by node_judge alone. Contact is judged by farm_tick alone, after a full read pass, on the monotonic
 * clock; the time that our own loop stood still is given to every node. A struct node lives as long as the daemon: others point at it.
 */
#include "config.h"

#include "node.h"

#include <ctype.h>
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
#include "nice.h"
#include "slurm_farm.h"
#include "str.h"

enum {
    MOST_HELD_ASIDE = 1024,              /* unknown workers that may register */
    MOST_PARTS = 256,                    /* serials remembered a node */
    JUDGED_EVERY = 16,                   /* ticks: whatever changes a verdict says so (node_changed); this is for what forgot to */
};
static const double tick_s = 0.25;
static const double stall_s = 0.25;      /* the loop standing still for longer is our own fault */

const char *const pool_name[2] = { "online", "async" };

struct farm {
    struct sluiced *d;
    struct node *by_name;
    ev_timer tick;
    double last_tick, stalled_most;
    unsigned n_aside, ticks;
};

static double now_s(void)
{
    return (double)clock_mono_ns() / 1e9;
}

int pool_parse(const char *word, int *pool, struct err *e)
{
    for (int i = 0; i < 2; i++) {
        if (word != NULL && strcmp(word, pool_name[i]) == 0) {
            *pool = i;
            return 0;
        }
    }
    return err_set(e, ERR_USAGE, "pool '%.60s': the pools are online and async", word == NULL ? "" : word);
}

/* ---- the judge ---- */

static void why_add(struct verdict *v, const char *code)
{
    for (unsigned i = 0; i < v->n_why; i++) {
        if (strcmp(v->why[i], code) == 0)
            return;
    }
    if (v->n_why < NODE_MAX_WHY)
        v->why[v->n_why++] = code;
}

static const char *mark_code(const struct mark *m)
{
    if (strcmp(m->owner_kind, "person") == 0)
        return "MarkedByOperator";
    if (strcmp(m->owner_kind, "tool") == 0)
        return "MarkedByTool";
    return strcmp(m->owner_kind, "slurm") == 0 ? "MarkedBySlurm" : "MarkedByHealth";
}

const struct mark *node_part_mark(const struct node *n, const char *serial)
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->block && serial != NULL && strcmp(m->part, serial) == 0)
            return m;
    }
    return NULL;
}

size_t node_devices(const struct node *n, Sluice__Device ***devices)
{
    *devices = NULL;
    if (n->report != NULL && n->report->n_devices > 0) {
        *devices = n->report->devices;
        return n->report->n_devices;
    }
    if (n->registered == NULL)
        return 0;
    *devices = n->registered->devices;
    return n->registered->n_devices;
}

static bool judge_marks(const struct node *n, struct verdict *v)
{
    const struct mark *m;
    bool bad = false;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->block && strcmp(m->part, "node") == 0) {
            why_add(v, mark_code(m));
            bad = true;
        }
    }
    return bad;
}

static bool is_unclean(const Sluice__Device *d)
{
    return d->has_state && d->state == SLUICE__DEVICE_STATE__DEVICE_UNCLEAN;
}

/* Counts what works. Returns false when the node may not work with so few. *marked: a mark is the reason for at least one. */
static bool judge_devices(const struct node *n, struct verdict *v, bool *marked)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);
    Sluice__Device **devices;
    size_t count = node_devices(n, &devices);
    size_t wanted = class != NULL && class->devices > count ? class->devices : count;
    unsigned before = v->n_why;

    for (size_t i = 0; i < count; i++) {
        const struct mark *m = node_part_mark(n, devices[i]->serial);

        if (m != NULL) {
            why_add(v, mark_code(m));
            *marked = true;
        }
        if (is_unclean(devices[i]))
            why_add(v, "SlotUnclean");
        else if (m == NULL && (!devices[i]->has_state || devices[i]->state != SLUICE__DEVICE_STATE__DEVICE_BROKEN))
            v->devices_usable++;
    }
    if (v->devices_usable == 0 || (v->devices_usable < wanted && !n->d->conf->pools[n->pool].degraded)) {
        if (!*marked || v->devices_usable > 0)
            why_add(v, "DeviceMissing");
        return false;
    }
    v->n_parts = v->n_why - before;
    v->part_at = before;
    return true;
}

static const char *trouble_word(const struct node *n)
{
    const Sluice__Report *r = n->report;

    if (r == NULL || r->trouble == NULL || r->trouble[0] == '\0')
        return NULL;
    return r->word == NULL || r->word[0] == '\0' ? "WorkerTrouble" : r->word;
}

static bool says_resizing(const struct node *n)
{
    return trouble_word(n) != NULL && strcmp(trouble_word(n), "Resizing") == 0;
}

static bool is_moving(const struct node *n)
{
    return n->move != NULL && move_is_executing(n->move);
}

/* What it does when nothing is wrong with it. */
static Sluice__NodeState working_state(const struct node *n)
{
    if (n->load.size > 0 && (double)n->load.charged >= n->load.high_water * (double)n->load.size && n->load.charged > 0)
        return SLUICE__NODE_STATE__FULL;
    return n->n_tfs > 0 ? SLUICE__NODE_STATE__BUSY : SLUICE__NODE_STATE__IDLE;
}

/* One that comes back all the time, as workers do, and cannot get in. */
static bool speaks_another_version(const struct node *n)
{
    return n->other_version_at > 0 && now_s() - n->other_version_at < 30;
}

void node_other_version(struct node *n, const char *why)
{
    bool known = speaks_another_version(n);

    if (n->session != NULL)              /* the one that is in contact counts; this may be anybody */
        return;
    n->other_version_at = n->refused_at = now_s();
    snprintf(n->refusal, sizeof(n->refusal), "%.199s", why);
    if (known)
        return;
    log_warning("node %s: a worker of that name is refused: %s", n->name, why);
    node_changed(n);
}

void node_judge(const struct node *n, struct verdict *v)
{
    bool down = n->contact == SLUICE__CONTACT__LOST || n->contact == SLUICE__CONTACT__NEVER;
    bool bad, moving, marked = false, error = false, lent = slurm_is_lent(n);

    memset(v, 0, sizeof(*v));
    v->contact = n->contact;
    if (down && speaks_another_version(n))
        why_add(v, "VersionTooOld");
    if (down)
        why_add(v, "ContactLost");
    bad = judge_marks(n, v);
    moving = is_moving(n);
    if (moving)
        why_add(v, "Moving");
    if (shm_is_resizing(n) || says_resizing(n)) {
        why_add(v, "Resizing");
        moving = true;
    }
    if (lent)
        why_add(v, "NoLease");
    if (!n->added || n->retiring) {
        why_add(v, "NotAdded");
        error = true;
    }
    if (!down) {
        if (n->contact == SLUICE__CONTACT__LATE || n->session == NULL) {
            why_add(v, "ContactLate");
            error = true;
        }
        if (!judge_devices(n, v, &marked)) {
            bad |= marked && v->devices_usable == 0;
            error = true;
        }
        if (n->cooling) {
            why_add(v, "Cooldown");
            error = true;
        }
        if (trouble_word(n) != NULL && !says_resizing(n)) {
            why_add(v, trouble_word(n));
            error = true;
        } else if (shm_active(n) == 0) {
            why_add(v, "ShmShort");
            error = true;
        }
    }
    v->usable = !down && !bad && !moving && !error && !lent;
    v->state = down ? SLUICE__NODE_STATE__DOWN : bad ? SLUICE__NODE_STATE__BAD : moving ? SLUICE__NODE_STATE__MOVING
             : error ? SLUICE__NODE_STATE__NODE_ERROR : working_state(n);
}

/* ---- what follows from a change ---- */

static void say_usability(const struct node *n, const struct verdict *v)
{
    struct str why = { 0 };

    for (unsigned i = 0; i < v->n_why; i++)
        str_addf(&why, "%s%s", i == 0 ? "" : " ", v->why[i]);
    if (v->usable)
        log_info("node %s: usable in %s with %u device%s", n->name, pool_name[n->pool], v->devices_usable, v->devices_usable == 1 ? "" : "s");
    else
        log_info("node %s: takes no work: %s", n->name, str_text(&why));
    str_free(&why);
}

void node_changed(struct node *n)
{
    struct verdict v;

    node_judge(n, &v);
    if (!n->d->stopping && (v.usable != n->said.usable || (v.usable && v.devices_usable != n->said.devices_usable)))
        say_usability(n, &v);
    n->said = v;
    flow_node_changed(n);
    move_node_changed(n);
    shm_check(n);
    slurm_node_changed(n);
}

/* After a report or a tick: only when the verdict is another one. */
static void node_check(struct node *n)
{
    struct verdict v;

    node_judge(n, &v);
    if (v.usable != n->said.usable || v.devices_usable != n->said.devices_usable || v.n_why != n->said.n_why || v.contact != n->said.contact)
        node_changed(n);
}

void node_send_settings(struct node *n)
{
    const struct conf_health *health = &n->d->conf->health;
    Sluice__Settings m = SLUICE__SETTINGS__INIT;
    Sluice__CheckPlan checks = SLUICE__CHECK_PLAN__INIT;
    const struct mark *mark;
    char **off;

    if (n->session == NULL)
        return;
    off = mem_array(MOST_PARTS + 1, sizeof(*off));
    TAILQ_FOREACH(mark, &n->marks, entry) {
        if (mark->block && strcmp(mark->part, "node") != 0 && m.n_devices_off < MOST_PARTS)
            off[m.n_devices_off++] = mark->part;
    }
    m.devices_off = off;
    m.pool = (char *)pool_name[n->pool];
    m.has_nice = true;
    m.nice = nice_of_pool(n->d, n->pool);
    checks.programs = health->programs;
    checks.n_programs = health->n_programs;
    checks.has_period = checks.has_timeout = true;
    checks.period = health->period;
    checks.timeout = health->timeout;
    m.checks = &checks;
    m.has_parking = m.has_parking_order = true;
    m.parking = slurm_parking(n, &m.parking_order);
    shm_settings(n, &m);
    chan_send(n->session->chan, 0, &m.base);
    free(off);
}

/* ---- parts ---- */

bool node_has_part(const struct node *n, const char *serial)
{
    for (unsigned i = 0; i < n->n_parts; i++) {
        if (strcmp(n->parts[i], serial) == 0)
            return true;
    }
    return false;
}

void node_see_part(struct node *n, const char *serial)
{
    if (serial == NULL || node_has_part(n, serial) || n->n_parts >= MOST_PARTS)
        return;
    n->parts = mem_grow(n->parts, n->n_parts + 1, sizeof(*n->parts));
    n->parts[n->n_parts++] = mem_strdup(serial);
}

/* ---- registration ---- */

/* A copy of a message, the caller's: handlers keep nothing of what they are handed. */
static void *message_copy(const ProtobufCMessage *m)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = mem_zalloc(size + 1);
    ProtobufCMessage *copy;

    protobuf_c_message_pack(m, bytes);
    copy = protobuf_c_message_unpack(m->descriptor, NULL, size, bytes);
    free(bytes);
    if (copy == NULL) {
        struct err e;

        err_set(&e, ERR_FAILED, "a message could not be copied: no memory");
        log_die(&e);
    }
    return copy;
}

static void replace(ProtobufCMessage **old, const ProtobufCMessage *m)
{
    ProtobufCMessage *copy = m == NULL ? NULL : message_copy(m);

    if (*old != NULL)
        protobuf_c_message_free_unpacked(*old, NULL);
    *old = copy;
}
#define REPLACE(field, m) replace((ProtobufCMessage **)(void *)&(field), (const ProtobufCMessage *)(m))

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
                   n->name, n->host[0] == '\0' ? "?" : n->host, old->pid, now_s() - n->last_contact, r->host == NULL ? "?" : r->host, new->pid);
}

/* *word: what the worker is told beside the sentence; it stays where there is none. */
static int check_place(struct farm *f, const struct node *n, const Sluice__Register *r, const char **word, struct err *e)
{
    if (n == NULL && f->n_aside >= MOST_HELD_ASIDE)
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
        n->refused_at = now_s();
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
    REPLACE(n->incarnation, r->incarnation);
    REPLACE(n->registered, r);
    REPLACE(n->report, NULL);
    n->session = s;
    s->node = n;
    n->connection = r->connection;
    n->contact = SLUICE__CONTACT__UP;
    n->last_contact = now_s();
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
        REPLACE(n->report, r);
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
    n->last_contact = now_s();
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
    n->left_at = now_s();
    if (n->added)
        flow_worker_disconnected(n);
    if (n->contact != SLUICE__CONTACT__LOST)
        n->contact = SLUICE__CONTACT__LATE;
    node_changed(n);
}

/* ---- contact ---- */

static void contact_lost(struct node *n, double silent)
{
    char why[220];
    struct session *s = n->session;

    if (s == NULL && now_s() - n->left_at > 0.5)
        snprintf(why, sizeof(why), "%.150s, and not back for %.1f s", n->left, now_s() - n->left_at);
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
    double now = now_s(), stood = now - f->last_tick - tick_s;
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
    f->last_tick = now_s();
    ev_timer_init(&f->tick, farm_tick, tick_s, tick_s);
    ev_set_priority(&f->tick, EV_MINPRI);            /* whatever can be read is read before anybody is called silent */
    f->tick.data = f;
    ev_timer_start(d->loop, &f->tick);
    return f;
}

static void node_free(struct node *n)
{
    struct mark *m;

    while ((m = TAILQ_FIRST(&n->marks)) != NULL) {
        TAILQ_REMOVE(&n->marks, m, entry);
        mark_free(m);
    }
    REPLACE(n->incarnation, NULL);
    REPLACE(n->registered, NULL);
    REPLACE(n->report, NULL);
    health_node_free(n);
    slurm_node_free(n);
    for (unsigned i = 0; i < n->n_parts; i++)
        free(n->parts[i]);
    free(n->parts);
    free(n);
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

int node_compare_names(const char *a, const char *b)
{
    const char *x = a, *y = b;

    while (*x != '\0' && *y != '\0') {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            size_t nx, ny;
            int c;

            x += strspn(x, "0");
            y += strspn(y, "0");
            nx = strspn(x, "0123456789");
            ny = strspn(y, "0123456789");
            if (nx != ny)
                return nx < ny ? -1 : 1;
            c = strncmp(x, y, nx);
            if (c != 0)
                return c;
            x += nx;
            y += ny;
        } else if (*x != *y) {
            return (unsigned char)*x < (unsigned char)*y ? -1 : 1;
        } else {
            x++;
            y++;
        }
    }
    return *x != *y ? (*x == '\0' ? -1 : 1) : strcmp(a, b);
}

static int by_natural_order(struct node *a, struct node *b)
{
    return node_compare_names(a->name, b->name);
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

const char *verdict_cause(const struct verdict *v)
{
    unsigned i = v->part_at == 0 ? v->n_parts : 0;

    return i < v->n_why && v->n_parts < v->n_why ? v->why[i] : NULL;
}

bool verdict_is_good(const struct verdict *v)
{
    return v->usable || (v->n_why - v->n_parts == 1 && strcmp(verdict_cause(v), "NoLease") == 0);
}

unsigned farm_good(struct farm *f, int pool)
{
    return count_nodes(f, pool, verdict_is_good);
}

double farm_stalled_s(const struct farm *f)
{
    return f->stalled_most;
}

/* ---- what people see ---- */

bool node_part_is_here(const struct node *n, const char *serial)
{
    Sluice__Device **devices;
    size_t count = node_devices(n, &devices);

    for (size_t i = 0; i < count; i++) {
        if (str_equal(devices[i]->serial, serial))
            return true;
    }
    return false;
}

static void mark_message(const struct node *n, const struct mark *m, Sluice__MarkInfo *out)
{
    sluice__mark_info__init(out);
    out->has_id = out->has_severity = out->has_created = true;
    out->id = m->id;
    out->part = m->part;
    out->owner_kind = m->owner_kind;
    out->owner = m->owner;
    out->class_ = m->class;
    out->severity = m->block ? SLUICE__SEVERITY__BLOCK : SLUICE__SEVERITY__INFO;
    out->reason = m->reason;
    out->evidence = m->evidence;
    out->created = m->created;
    out->has_until = m->until != 0;
    out->until = m->until;
    out->has_part_present = strcmp(m->part, "node") != 0 && n->registered != NULL;
    out->part_present = out->has_part_present && node_part_is_here(n, m->part);
}

static void fill_marks(const struct node *n, Sluice__Node *out)
{
    const struct mark *m;
    size_t count = 0;

    TAILQ_FOREACH(m, &n->marks, entry)
        count++;
    if (count == 0)
        return;
    out->marks = mem_array(count, sizeof(*out->marks));
    TAILQ_FOREACH(m, &n->marks, entry) {
        Sluice__MarkInfo *info = mem_zalloc(sizeof(*info));

        mark_message(n, m, info);
        out->marks[out->n_marks++] = info;
    }
}

static void fill_numbers(const struct node *n, Sluice__Node *out)
{
    const Sluice__Report *r = n->report;

    out->has_buffer_charged = out->has_tfs = out->has_done = out->has_failed = out->has_refused = true;
    out->buffer_charged = n->load.charged;
    out->tfs = n->n_tfs;
    out->done = n->done;
    out->failed = n->failed;
    out->refused = n->refused;
    out->has_building = true;
    out->building = n->load.building;
    if (r == NULL)
        return;
    out->has_buffer_used = out->has_queued = out->has_processing = out->has_delivering = true;
    out->buffer_used = r->bytes_used;
    out->queued = r->queued;
    out->processing = r->processing;
    out->delivering = r->delivering;
    out->trouble = r->trouble;
    out->has_nice_actual = r->n_nice > 0;
    out->nice_actual = r->n_nice > 0 ? r->nice[0] : 0;
    out->nice_text = r->nice_text;
}

static void fill_worker(const struct node *n, Sluice__Node *out)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);
    double sum = 0;
    unsigned known = 0;

    out->n_devices = node_devices(n, &out->devices);
    for (size_t i = 0; i < out->n_devices; i++) {
        if (out->devices[i]->seconds_per_tf > 0) {
            sum += out->devices[i]->seconds_per_tf;
            known++;
        }
    }
    out->has_seconds_per_tf = known > 0;
    out->seconds_per_tf = known > 0 ? sum / known : 0;
    out->has_emulated = true;
    out->emulated = class != NULL && class->nominal_ms > 0;
    for (size_t i = 0; i < out->n_devices; i++)
        out->emulated |= out->devices[i]->emulated;
    if (n->registered == NULL)
        return;
    out->has_buffer_size = out->has_memory = true;
    out->buffer_size = shm_active(n);
    out->has_shm_active = true;
    out->shm_active = out->buffer_size;
    out->memory = n->registered->memory;
    out->has_clock_offset = out->has_clock_error = n->clock.known;
    out->clock_offset = offset_value(&n->clock);
    out->clock_error = offset_error(&n->clock);
    out->host = (char *)n->host;
    out->software = n->software[0] == '\0' ? NULL : (char *)n->software;
}

static void fill_intent(const struct node *n, Sluice__Node *out)
{
    out->name = (char *)n->name;
    out->class_ = (char *)n->class;
    out->has_added = true;
    out->added = n->added;
    out->pool = (char *)pool_name[n->pool];
    out->wanted_pool = (char *)pool_name[n->wanted_pool];
    out->has_shm_wanted = true;
    out->shm_wanted = shm_wanted(n);
    out->has_nice_wanted = true;
    out->nice_wanted = nice_of_pool(n->d, n->pool);
    out->slurm = slurm_info(n);
    if (n->move != NULL) {
        out->move = mem_zalloc(sizeof(*out->move));
        move_message(n->move, out->move);
    }
}

void node_message(const struct node *n, Sluice__Node *out)
{
    struct verdict v;

    node_judge(n, &v);
    sluice__node__init(out);
    fill_intent(n, out);
    fill_worker(n, out);
    fill_numbers(n, out);
    fill_marks(n, out);
    out->has_state = out->has_contact = out->has_usable = true;
    out->state = v.state;
    out->contact = v.contact;
    out->usable = v.usable;
    out->why = mem_array(v.n_why + 1, sizeof(*out->why));
    for (; out->n_why < v.n_why; out->n_why++)
        out->why[out->n_why] = (char *)v.why[out->n_why];
    out->has_last_contact_s = n->last_contact > 0;
    out->last_contact_s = n->last_contact > 0 ? now_s() - n->last_contact : 0;
}

void node_message_free(Sluice__Node *out)
{
    for (size_t i = 0; i < out->n_marks; i++)
        free(out->marks[i]);
    free(out->marks);
    free(out->move);
    free(out->slurm);
    free(out->why);
}
