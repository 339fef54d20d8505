/* health_devices.c - the devices of a node against those that were seen there before, whenever that was
 *
 * From: node_register.c, restore.c.  To: health.c (facts become marks), change.c (what is known is stored).
 * Missing and broken devices are marks on these devices, which take nothing out that works; the pool says whether the node may go on with the rest. A device is missed until it
 * is there again, another one took its place, a person cleared its mark, or the node was retired.
 */
#include "config.h"

#include "health_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "mark.h"
#include "mem.h"
#include "str.h"

enum { MOST_KNOWN = 256 };                   /* a node */
static const double broken_limit_s = 5;      /* a process that is replaced is no broken device */

/* ---- what is known ---- */

static struct known *known_find(struct node_health *h, const char *serial)
{
    for (unsigned i = 0; i < h->n_known; i++) {
        if (strcmp(h->known[i].serial, serial) == 0)
            return &h->known[i];
    }
    return NULL;
}

static struct known *known_add(struct node_health *h, const char *serial, unsigned place, int64_t seen)
{
    struct known *k;

    if (h->n_known >= MOST_KNOWN)
        return NULL;
    h->known = mem_grow(h->known, h->n_known + 1, sizeof(*h->known));
    k = &h->known[h->n_known++];
    *k = (struct known){ .place = place, .seen = seen };
    snprintf(k->serial, sizeof(k->serial), "%.120s", serial);
    return k;
}

static void known_store(struct change **c, struct node *n, const struct known *k, int64_t forgotten)
{
    struct row_device row = { .node = n->name, .serial = k->serial, .place = k->place, .seen = k->seen, .forgotten = forgotten };

    if (*c == NULL)
        *c = change_create(n->d);
    change_device(*c, &row);
}

static void put(struct change *c)
{
    if (c != NULL)
        change_put(c, CHANGE_KEEP, NULL, NULL);
}

void health_restore_device(struct node *n, const struct row_device *row)
{
    if (row->serial[0] == '\0' || known_find(health_of(n), row->serial) != NULL)
        return;
    known_add(n->health, row->serial, row->place, row->seen);
    node_see_part(n, row->serial);
}

static void known_forget(struct change **c, struct node *n, struct known *k)
{
    struct node_health *h = n->health;

    known_store(c, n, k, clock_wall_ns());
    *k = h->known[--h->n_known];
}

void health_forget_devices(struct node *n)
{
    struct change *c = NULL;

    while (n->health != NULL && n->health->n_known > 0)
        known_forget(&c, n, &n->health->known[0]);
    put(c);
}

void health_part_cleared(struct node *n, const struct mark *m)
{
    struct known *k = n->health == NULL || strcmp(m->owner, "device") != 0 ? NULL : known_find(n->health, m->part);
    struct change *c = NULL;

    if (k == NULL || node_part_is_here(n, m->part))
        return;
    known_forget(&c, n, k);
    put(c);
}

/* ---- what is there ---- */

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

static void say_replaced(struct node *n, struct known *k, const char *serial, struct change **c)
{
    char reason[400];

    snprintf(reason, sizeof(reason), "another device: GPU %u is serial %.120s now, it was %.120s", k->place, serial, k->serial);
    health_mark(n, serial, "hardware", "hw", LEVEL_NOTE, reason, NULL);
    health_fact(n, k->serial, "device", "hw", LEVEL_GOOD, NULL);
    known_store(c, n, k, clock_wall_ns());
    *k = (struct known){ .place = k->place, .seen = clock_wall_ns() };
    snprintf(k->serial, sizeof(k->serial), "%.120s", serial);
    known_store(c, n, k, 0);
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
    if (works)
        health_fact(n, k->serial, "device", "hw", LEVEL_GOOD, NULL);
    if (works || (d->has_state && d->state == SLUICE__DEVICE_STATE__DEVICE_PARKED))
        mark_automatic_clear(n, k->serial, "health", "device-memory", "its memory is free again");
    if (!broken)
        return;
    if (k->broken_since == 0)
        k->broken_since = clock_mono_s();
    if (clock_mono_s() - k->broken_since < broken_limit_s)
        return;
    snprintf(reason, sizeof(reason), "GPU %u (serial %.120s) does not work: %.200s", k->place, k->serial, d->why == NULL || d->why[0] == '\0' ? "its worker gives no reason" : d->why);
    health_fact(n, k->serial, "device", "hw", LEVEL_BAD, reason);
}

void health_devices(struct node *n, Sluice__Device *const *devices, size_t count)
{
    struct node_health *h = health_of(n);
    struct change *c = NULL;
    unsigned before = h->n_known;

    for (unsigned i = 0; i < before; i++) {
        struct known *k = &h->known[i];
        const Sluice__Device *d = device_find(devices, count, k->serial);

        if (d != NULL)
            say_state(n, k, d);
        else if (is_replaced(h, k, devices, count))
            say_replaced(n, k, devices[k->place]->serial, &c);
        else if (!k->missing)
            say_missing(n, k, count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct known *k;

        if (devices[i]->serial == NULL || known_find(h, devices[i]->serial) != NULL)
            continue;
        k = known_add(h, devices[i]->serial, (unsigned)i, clock_wall_ns());
        if (k != NULL)
            known_store(&c, n, k, 0);
    }
    put(c);
}

/* Marks of health on devices that are neither there nor missed: the node has all that its class has. */
void health_gone_parts(struct node *n, const struct conf_class *class)
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
