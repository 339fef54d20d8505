/* node.c - a node: what may be used of it and why not, and what follows when that changes
 *
 * From: farm.c, node_register.c, mark.c, move.c, roster.c, restore.c.  To: flow.c, move.c, the worker (Settings).
 * usable, state and why are computed by node_judge alone.
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
#include "frame.h"
#include "health.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "nice.h"
#include "slurm_farm.h"
#include "str.h"

enum { MOST_PARTS = 256 };               /* serials remembered a node */

const char *const pool_name[2] = { "online", "async" };

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

bool node_says_resizing(const struct node *n)
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
    return n->other_version_at > 0 && clock_mono_s() - n->other_version_at < 30;
}

void node_other_version(struct node *n, const char *why)
{
    bool known = speaks_another_version(n);

    if (n->session != NULL)              /* the one that is in contact counts; this may be anybody */
        return;
    n->other_version_at = n->refused_at = clock_mono_s();
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
        why_add(v, n->contact == SLUICE__CONTACT__NEVER && !health_was_here(n) ? "NeverRegistered" : "ContactLost");
    bad = judge_marks(n, v);
    moving = is_moving(n);
    if (moving)
        why_add(v, "Moving");
    if (shm_is_resizing(n) || node_says_resizing(n)) {
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
        if (trouble_word(n) != NULL && !node_says_resizing(n)) {
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

const char *verdict_cause(const struct verdict *v)
{
    unsigned i = v->part_at == 0 ? v->n_parts : 0;

    return i < v->n_why && v->n_parts < v->n_why ? v->why[i] : NULL;
}

bool verdict_is_good(const struct verdict *v)
{
    return v->usable || (v->n_why - v->n_parts == 1 && strcmp(verdict_cause(v), "NoLease") == 0);
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

void node_check(struct node *n)
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

void node_see_part(struct node *n, const char *serial)
{
    if (serial == NULL || node_has_part(n, serial) || n->n_parts >= MOST_PARTS)
        return;
    n->parts = mem_grow(n->parts, n->n_parts + 1, sizeof(*n->parts));
    n->parts[n->n_parts++] = mem_strdup(serial);
}

/* ---- what the worker said ---- */

void node_keep(ProtobufCMessage **old, const ProtobufCMessage *m)
{
    ProtobufCMessage *copy = m == NULL ? NULL : proto_copy(m);

    if (*old != NULL)
        protobuf_c_message_free_unpacked(*old, NULL);
    *old = copy;
}
void node_free(struct node *n)
{
    struct mark *m;

    while ((m = TAILQ_FIRST(&n->marks)) != NULL) {
        TAILQ_REMOVE(&n->marks, m, entry);
        mark_free(m);
    }
    NODE_KEEP(n->incarnation, NULL);
    NODE_KEEP(n->registered, NULL);
    NODE_KEEP(n->report, NULL);
    health_node_free(n);
    slurm_node_free(n);
    for (unsigned i = 0; i < n->n_parts; i++)
        free(n->parts[i]);
    free(n->parts);
    free(n);
}
