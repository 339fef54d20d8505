/* health_facts.c - what registrations and reports say about a node, held against its class, the configuration, and what was there before
 *
 * From: node.c.  To: health.c (facts become marks), history (reboots).
 * Missing and broken devices are marks on these devices, which take nothing out that works; the pool says whether the node may go on with the rest.
 */
#include "config.h"

#include "health_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "str.h"

static const double broken_limit_s = 5;      /* a process that is replaced is no broken device */
static const double clock_limit_s = 2;
static const double memory_share = 0.9;      /* of the class's: the kernel and the firmware keep some */

static double now_s(void)
{
    return (double)clock_mono_ns() / 1e9;
}

/* ---- devices ---- */

static struct known *known_find(struct node_health *h, const char *serial)
{
    for (unsigned i = 0; i < h->n_known; i++) {
        if (strcmp(h->known[i].serial, serial) == 0)
            return &h->known[i];
    }
    return NULL;
}

static void known_add(struct node_health *h, const char *serial, unsigned place)
{
    h->known = mem_grow(h->known, h->n_known + 1, sizeof(*h->known));
    h->known[h->n_known] = (struct known){ .place = place };
    snprintf(h->known[h->n_known++].serial, sizeof(h->known[0].serial), "%.120s", serial);
}

static const Sluice__Device *device_find(Sluice__Device *const *devices, size_t n, const char *serial)
{
    for (size_t i = 0; i < n; i++) {
        if (str_equal(devices[i]->serial, serial))
            return devices[i];
    }
    return NULL;
}

/* The place of a known device that is gone has another one now. */
static bool is_replaced(struct node_health *h, const struct known *k, Sluice__Device *const *devices, size_t n)
{
    return k->place < n && devices[k->place]->serial != NULL && known_find(h, devices[k->place]->serial) == NULL;
}

static void say_replaced(struct node *n, struct known *k, const char *serial)
{
    char reason[400];

    snprintf(reason, sizeof(reason), "another device: GPU %u is serial %.120s now, it was %.120s", k->place, serial, k->serial);
    health_mark(n, serial, "hardware", "hw", LEVEL_NOTE, reason, NULL);
    health_fact(n, k->serial, "device", "hw", LEVEL_GOOD, NULL);
    snprintf(k->serial, sizeof(k->serial), "%.120s", serial);
    k->missing = false;
    k->broken_since = 0;
}

static void say_missing(struct node *n, struct known *k, size_t count)
{
    char reason[240];

    snprintf(reason, sizeof(reason), "GPU %u (serial %.120s) missing: %zu of %u devices are there", k->place, k->serial, count, n->health->n_known);
    k->missing = true;
    health_fact(n, k->serial, "device", "hw", LEVEL_BAD, reason);
}

/* A device whose memory does not come back is marked with who holds it; the mark goes when it works again, because it was never the device's fault. */
static void say_unclean(struct node *n, struct known *k, const Sluice__Device *d)
{
    struct str pids = { 0 };
    char reason[400];

    for (size_t i = 0; i < d->n_pids; i++)
        str_addf(&pids, "%s%u", i == 0 ? "pids " : ", ", d->pids[i]);
    snprintf(reason, sizeof(reason), "%.399s", d->why != NULL && d->why[0] != '\0' ? d->why : "its memory is not free");
    health_mark(n, k->serial, "device-memory", "sw", LEVEL_BAD, reason, str_text(&pids));
    str_free(&pids);
}

static void say_state(struct node *n, struct known *k, const Sluice__Device *d)
{
    bool works = d->has_state && (d->state == SLUICE__DEVICE_STATE__DEVICE_FREE || d->state == SLUICE__DEVICE_STATE__DEVICE_BUSY);
    bool broken = d->has_state && d->state == SLUICE__DEVICE_STATE__DEVICE_BROKEN;
    char reason[400];

    k->missing = false;
    if (d->has_state && d->state == SLUICE__DEVICE_STATE__DEVICE_UNCLEAN)
        say_unclean(n, k, d);
    if (!broken)
        k->broken_since = 0;
    if (works) {
        health_fact(n, k->serial, "device", "hw", LEVEL_GOOD, NULL);
        mark_automatic_clear(n, k->serial, "health", "device-memory", "its memory is free again");
    }
    if (!broken)
        return;
    if (k->broken_since == 0)
        k->broken_since = now_s();
    if (now_s() - k->broken_since < broken_limit_s)
        return;
    snprintf(reason, sizeof(reason), "GPU %u (serial %.120s) does not work: %.200s", k->place, k->serial, d->why == NULL || d->why[0] == '\0' ? "its worker gives no reason" : d->why);
    health_fact(n, k->serial, "device", "hw", LEVEL_BAD, reason);
}

static void look_at_devices(struct node *n, Sluice__Device *const *devices, size_t count)
{
    struct node_health *h = health_of(n);
    unsigned before = h->n_known;

    for (unsigned i = 0; i < before; i++) {
        struct known *k = &h->known[i];
        const Sluice__Device *d = device_find(devices, count, k->serial);

        if (d != NULL)
            say_state(n, k, d);
        else if (is_replaced(h, k, devices, count))
            say_replaced(n, k, devices[k->place]->serial);
        else if (!k->missing)
            say_missing(n, k, count);
    }
    for (size_t i = 0; i < count; i++) {
        if (devices[i]->serial != NULL && known_find(h, devices[i]->serial) == NULL)
            known_add(h, devices[i]->serial, (unsigned)i);
    }
}

/* Marks of health on devices that are neither there nor missed: the node has all that its class has. */
static void forget_gone_parts(struct node *n, const struct conf_class *class)
{
    struct mark *m, *next;

    if (!n->d->conf->health.clear_automatic || class == NULL || n->registered->n_devices < class->devices)
        return;
    for (m = TAILQ_FIRST(&n->marks); m != NULL; m = next) {
        next = TAILQ_NEXT(m, entry);
        if (!m->closing && strcmp(m->owner_kind, "health") == 0 && strcmp(m->part, "node") != 0 && !node_part_is_here(n, m->part))
            mark_automatic_clear(n, m->part, "health", m->owner, "it is about a part no longer present");
    }
}

/* ---- the machine ---- */

static void look_at_boot(struct node *n)
{
    struct node_health *h = health_of(n);
    const char *boot = n->registered->incarnation->boot_id;

    if (h->boot_id[0] != '\0' && strncmp(h->boot_id, boot, sizeof(h->boot_id) - 1) != 0) {
        h->reboots++;
        counters_add(n->d->counters, "reboots", 1);
        log_warning("node %s: its machine was started anew", n->name);
        history_note(n->d, n->name, "sluiced", "rebooted", h->boot_id, boot, "its machine was started anew");
    }
    snprintf(h->boot_id, sizeof(h->boot_id), "%.63s", boot);
}

static void look_at_class(struct node *n, const struct conf_class *class)
{
    char reason[240], has[32], wants[32];
    bool small;

    if (class == NULL)
        return;
    snprintf(reason, sizeof(reason), "%zu of the %u devices of class %s are there", n->registered->n_devices, class->devices, class->name);
    health_fact(n, NULL, "hardware", "hw", n->registered->n_devices < class->devices ? LEVEL_NOTE : LEVEL_GOOD, reason);
    small = class->memory > 0 && n->registered->has_memory && (double)n->registered->memory < memory_share * (double)class->memory;
    snprintf(reason, sizeof(reason), "the machine has %s of memory, class %s has %s", str_size_text(n->registered->memory, has), class->name, str_size_text(class->memory, wants));
    health_fact(n, NULL, "memory", "hw", small ? LEVEL_BAD : LEVEL_GOOD, reason);
}

/* What is within the bounds of what was measured may be so, and is said of nobody. */
static void look_at_clock(struct node *n)
{
    const struct offset *o = &n->clock;
    char reason[120];

    if (!o->known)
        return;
    snprintf(reason, sizeof(reason), "its clock is off by %.1f s", offset_value(o));
    if (o->low > clock_limit_s || o->high < -clock_limit_s)
        health_fact(n, NULL, "clock", "sw", LEVEL_NOTE, reason);
    else if (o->low > -clock_limit_s && o->high < clock_limit_s)
        health_fact(n, NULL, "clock", "sw", LEVEL_GOOD, reason);
}

void health_registered(struct node *n)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);

    look_at_boot(n);
    if (!n->added)
        return;
    look_at_class(n, class);
    look_at_clock(n);
    look_at_devices(n, n->registered->devices, n->registered->n_devices);
    forget_gone_parts(n, class);
}

/* ---- reports ---- */

/* Room left against what is wanted; once marked it is good again only a tenth above that. */
static void look_at_room(struct node *n, const char *owner, const char *what, bool known, uint64_t left, uint64_t least)
{
    bool marked = mark_automatic_find(n, NULL, "health", owner) != NULL;
    char reason[160], has[32], wants[32];

    if (!known || (least == 0 && !marked))
        return;
    snprintf(reason, sizeof(reason), "%s of %s left, %s are wanted", str_size_text(left, has), what, str_size_text(least, wants));
    health_fact(n, NULL, owner, "sw", left < least || (marked && left < least + least / 10) ? LEVEL_BAD : LEVEL_GOOD, reason);
}

static void look_at_check(struct node *n, const Sluice__Check *c)
{
    static const int level[] = { LEVEL_GOOD, LEVEL_NOTE, LEVEL_BAD, LEVEL_NOTE };
    char owner[80], reason[512];

    if (c->program == NULL || c->program[0] == '\0' || (unsigned)c->state >= ARRAY_LEN(level))
        return;
    snprintf(owner, sizeof(owner), "%.79s", c->program);
    snprintf(reason, sizeof(reason), "%.500s", c->text == NULL || c->text[0] == '\0' ? "the check gives no reason" : c->text);
    health_fact(n, NULL, owner, "hw", level[c->state], reason);
}

void health_report(struct node *n)
{
    const struct conf_health *conf = &n->d->conf->health;
    const Sluice__Report *r = n->report;

    if (!n->added)
        return;
    if (r->n_devices > 0)
        look_at_devices(n, r->devices, r->n_devices);
    look_at_clock(n);
    look_at_room(n, "disk", "disk", r->has_disk_free, r->disk_free, conf->disk_min);
    look_at_room(n, "memory-left", "memory", r->has_memory_free, r->memory_free, conf->memory_min);
    for (size_t i = 0; i < r->n_checks; i++)
        look_at_check(n, r->checks[i]);
}
