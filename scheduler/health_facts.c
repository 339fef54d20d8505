/* health_facts.c - what registrations and reports say about a node, held against its class, the configuration, and what was there before
 *
 * From: node_register.c.  To: health.c (facts become marks), history (reboots).
 * Missing and broken devices are marks on these devices, which take nothing out that works; the pool says whether the node may go on with the rest.
 */
#include "config.h"

#include "health_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "str.h"

static const double clock_limit_s = 2;
static const double memory_share = 0.9;      /* of the class's: the kernel and the firmware keep some */

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
    if (strncmp(h->boot_id, boot, sizeof(h->boot_id) - 1) == 0)
        return;
    struct change *c = change_create(n->d);
    struct row_boot row = { .node = n->name, .boot = h->boot_id };

    snprintf(h->boot_id, sizeof(h->boot_id), "%.63s", boot);
    change_boot(c, &row);
    change_put(c, CHANGE_KEEP, NULL, NULL);
}

bool health_was_here(const struct node *n)
{
    return n->health != NULL && n->health->boot_id[0] != '\0';
}

void health_restore_boot(struct node *n, const struct row_boot *row)
{
    snprintf(health_of(n)->boot_id, sizeof(n->health->boot_id), "%.63s", row->boot);
}

/* What its drivers call the devices against what our configuration says: the worker may have another one. */
static void look_at_arch(struct node *n, const struct conf_class *class)
{
    struct str others = { 0 };
    char reason[400];
    unsigned count = 0;

    for (size_t i = 0; class->gpu_arch != NULL && i < n->registered->n_devices; i++) {
        const Sluice__Device *d = n->registered->devices[i];

        if (d->arch != NULL && d->arch[0] != '\0' && strcmp(d->arch, class->gpu_arch) != 0 && count++ < 4)
            str_addf(&others, "%s%.60s is %.30s", others.len == 0 ? "" : ", ", d->serial, d->arch);
    }
    snprintf(reason, sizeof(reason), "%u of its devices %s no %s, which class %s has: %.300s%s", count, count == 1 ? "is" : "are", class->gpu_arch == NULL ? "" : class->gpu_arch,
             class->name, str_text(&others), count > 4 ? ", ..." : "");
    health_fact(n, NULL, "architecture", "hw", count > 0 ? LEVEL_BAD : LEVEL_GOOD, reason);
    str_free(&others);
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
    look_at_arch(n, class);
    health_fact(n, NULL, "memory", "hw", small ? LEVEL_BAD : LEVEL_GOOD, reason);
}

/* What is within the bounds of what was measured may be so, and is said of nobody. */
static void look_at_clock(struct node *n)
{
    const struct offset *o = &n->clock;
    char reason[120];

    if (!o->known)
        return;
    if (o->low > clock_limit_s || o->high < -clock_limit_s) {
        snprintf(reason, sizeof(reason), "its clock is off by %.1f s", offset_value(o));
        health_fact(n, NULL, "clock", "sw", LEVEL_NOTE, reason);
    } else if (o->low > -clock_limit_s && o->high < clock_limit_s) {
        health_fact(n, NULL, "clock", "sw", LEVEL_GOOD, NULL);
    }
}

void health_registered(struct node *n)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);

    look_at_boot(n);
    if (!n->added)
        return;
    health_configured(n);
    look_at_class(n, class);
    look_at_clock(n);
    if (n->registered->n_devices > 0)    /* none: they may not be known yet; the reports say */
        health_devices(n, n->registered->devices, n->registered->n_devices);
    health_gone_parts(n, class);
}

/* ---- reports ---- */

/* Room left against what is wanted; once marked it is good again only a tenth above that. */
static void look_at_room(struct node *n, const char *owner, const char *what, bool known, uint64_t left, uint64_t least)
{
    bool marked = mark_automatic_find(n, NULL, "health", owner) != NULL;
    char reason[160], has[32], wants[32];

    if (!known || (least == 0 && !marked))
        return;
    if (left >= least && !marked) {      /* good, as it was: this is looked at with every report */
        health_fact(n, NULL, owner, "sw", LEVEL_GOOD, NULL);
        return;
    }
    snprintf(reason, sizeof(reason), "%s of %s left, %s are wanted", str_size_text(left, has), what, str_size_text(least, wants));
    health_fact(n, NULL, owner, "sw", left < least || (marked && left < least + least / 10) ? LEVEL_BAD : LEVEL_GOOD, reason);
}

static bool is_configured(const struct sluiced *d, const char *check)
{
    const struct conf_health *conf = &d->conf->health;

    for (unsigned i = 0; i < conf->n_programs; i++) {
        if (strcmp(strrchr(conf->programs[i], '/') + 1, check) == 0)
            return true;
    }
    return false;
}

/* What health finds without a program of the site. */
static bool is_own_finding(const char *owner)
{
    static const char *const words[] = { "work", "speed", "hardware", "device", "device-memory", "memory", "clock", "architecture", "verify", "disk", "memory-left" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(owner, words[i]) == 0)
            return true;
    }
    return false;
}

void health_configured(struct node *n)
{
    struct mark *m, *next;

    for (m = TAILQ_FIRST(&n->marks); m != NULL; m = next) {
        next = TAILQ_NEXT(m, entry);
        if (!m->block && !m->closing && strcmp(m->owner_kind, "health") == 0 && !is_own_finding(m->owner) && !is_configured(n->d, m->owner))
            mark_automatic_clear(n, m->part, "health", m->owner, "the check is not configured any more");
    }
}

/* A program that the configuration does not name any more may be in a report yet. */
static void look_at_check(struct node *n, const Sluice__Check *c)
{
    static const int level[] = { LEVEL_GOOD, LEVEL_NOTE, LEVEL_BAD, LEVEL_BROKEN };
    char owner[80], reason[512];

    if (c->program == NULL || c->program[0] == '\0' || (unsigned)c->state >= ARRAY_LEN(level) || !is_configured(n->d, c->program))
        return;
    snprintf(owner, sizeof(owner), "%.79s", c->program);
    snprintf(reason, sizeof(reason), "%.500s", c->text == NULL || c->text[0] == '\0' ? "the check gives no reason" : c->text);
    health_fact(n, NULL, owner, "hw", level[c->state], reason);
}

/* A driver that answered late, or a card that is back: what was short when the worker registered is so no more. */
static void look_who_came(struct node *n)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);

    if (class != NULL && n->report->n_devices >= class->devices)
        health_fact(n, NULL, "hardware", "hw", LEVEL_GOOD, NULL);
}

void health_report(struct node *n)
{
    const struct conf_health *conf = &n->d->conf->health;
    const Sluice__Report *r = n->report;

    if (!n->added)
        return;
    if (r->n_devices > 0 || str_equal(r->word, "DeviceMissing"))         /* DeviceQuery, a driver that does not answer, accuses none */
        health_devices(n, r->devices, r->n_devices);
    if (mark_automatic_find(n, NULL, "health", "hardware") != NULL)
        look_who_came(n);
    look_at_clock(n);
    look_at_room(n, "disk", "disk", r->has_disk_free, r->disk_free, conf->disk_min);
    look_at_room(n, "memory-left", "memory", r->has_memory_free, r->memory_free, conf->memory_min);
    for (size_t i = 0; i < r->n_checks; i++)
        look_at_check(n, r->checks[i]);
}
