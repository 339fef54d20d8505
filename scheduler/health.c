/* health.c - the record of each node's work, automatic marks, the brake
 *
 * From: settle.c, health_facts.c.  To: mark.c, change.c (the brake is stored), people.
 * A mark that health decides on is made at once or not at all; whether one is needed is decided anew with the next failure or report.
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
#include "flow.h"
#include "log.h"
#include "mark.h"
#include "mem.h"

enum { BASES = 64, BASE_LEAST = 8, JUDGED_EVERY = 8 };        /* medians are not made anew for each TF */

/* Seconds a byte of one run or job on one class of nodes. */
struct base { bool is_job; uint64_t work; char class[64]; struct pace pace; double median; uint64_t used; };

struct health {
    struct sluiced *d;
    struct brake brake[2];
    int64_t brake_since[2];              /* wall ns: a person reset it; marks from before do not count */
    uint64_t done[2];                    /* TFs done in each pool */
    struct base bases[BASES];
    unsigned n_bases;
    uint64_t uses;
};

static const char good_again[] = "it is good again";       /* why a mark was taken back, in the state too */

struct doubt { struct node *node; struct failure failure; struct doubt *next; };

struct health *health_create(struct sluiced *d)
{
    struct health *h = mem_zalloc(sizeof(*h));

    h->d = d;
    return h;
}

void health_destroy(struct health *h)
{
    free(h);
}

struct node_health *health_of(struct node *n)
{
    if (n->health == NULL)
        n->health = mem_zalloc(sizeof(*n->health));
    return n->health;
}

void health_node_free(struct node *n)
{
    if (n->health != NULL)
        free(n->health->known);
    free(n->health);
    n->health = NULL;
}

/* ---- the brake ---- */

static struct brake_limits limits(const struct sluiced *d)
{
    const struct conf_health *c = &d->conf->health;

    return (struct brake_limits){ c->brake_nodes, c->brake_percent, c->brake_window };
}

/* Of health's blocking marks, all count for the brake but those on single devices that say what hardware is not there: these take nothing out that works. */
static bool is_counted(const char *part, const char *owner)
{
    static const char *const hardware[] = { "device", "device-memory" };

    for (size_t i = 0; part != NULL && strcmp(part, "node") != 0 && i < ARRAY_LEN(hardware); i++) {
        if (str_equal(owner, hardware[i]))
            return false;
    }
    return true;
}

/* A blocking mark on the node itself: of health (own), of others (not own). */
static bool is_marked(const struct node *n, bool own)
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->block && strcmp(m->part, "node") == 0 && (strcmp(m->owner_kind, "health") == 0) == own)
            return true;
    }
    return false;
}

/* Nodes that could be marked, or are: those that others took out already, and those out of contact, cannot. */
static unsigned affected(struct sluiced *d, int pool)
{
    unsigned count = 0;

    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next)
        count += n->added && n->pool == pool && n->contact == SLUICE__CONTACT__UP && !is_marked(n, false);
    return count;
}

/* Where the state keeps a brake: whether it is on, and when a person reset it last, wall ns. */
static const struct { const char *on, *since; } brake_key[2] = { { "brake_online", "brake_online_since" }, { "brake_async", "brake_async_since" } };

static void brake_went_on(struct node *n, const char *reason)
{
    struct sluiced *d = n->d;
    struct brake_limits l = limits(d);
    struct change *c = change_create(d);
    char why[400];

    snprintf(why, sizeof(why), "%u nodes were marked within %.0f s; node %s would be the next: %.200s", brake_count(&d->health->brake[n->pool], &l, clock_mono_s()), l.window,
             n->name, reason);
    log_err("health: the brake of pool %s is on: %s", pool_name[n->pool], why);
    counters_add(d->counters, "brakes", 1);
    change_setting(c, brake_key[n->pool].on, "on");
    change_event(c, NULL, "brake on", "", pool_name[n->pool], why);
    change_put(c, CHANGE_KEEP, NULL, NULL);
}

/* Whether n may be marked for what owner found. A node that health has taken out already takes nothing more out. */
static bool may_mark(struct node *n, const char *owner, const char *reason)
{
    struct health *h = n->d->health;
    struct brake *b = &h->brake[n->pool];
    struct brake_limits l = limits(n->d);
    bool was = b->on;

    if (is_marked(n, true))
        return true;
    if (health_of(n)->held)
        return false;
    if (brake_take(b, &l, affected(n->d, n->pool), n, clock_mono_s()))
        return true;
    n->health->held = true;
    snprintf(n->health->held_by, sizeof(n->health->held_by), "%s", owner);
    counters_add(n->d->counters, "marks_held", 1);
    log_warning("node %s: would be marked by health, but the brake of pool %s is on: %s", n->name, pool_name[n->pool], reason);
    if (!was)
        brake_went_on(n, reason);
    return false;
}

bool health_brake_is_on(const struct sluiced *d, int pool)
{
    return d->health->brake[pool].on;
}

bool health_brake_text(struct sluiced *d, int pool, struct str *out)
{
    const struct brake *b = &d->health->brake[pool];
    unsigned named = 0, held = 0;

    if (!b->on)
        return false;
    str_addf(out, "health marks no node of pool %s any more: too many in too short a time", pool_name[pool]);
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (n->health == NULL || !n->health->held || n->pool != pool)
            continue;
        held++;
        if (named < 6)
            str_addf(out, "%s%s", named++ == 0 ? "; would be next: " : ", ", n->name);
    }
    if (held > named)
        str_addf(out, " and %u more", held - named);
    return true;
}

static void brake_is_reset(struct change *c, void *arg, int rc, const struct err *why)
{
    struct sluiced *d = change_sluiced(c);
    int pool = (int)(intptr_t)arg;

    (void)why;
    for (int p = 0; rc == 0 && p < 2; p++) {
        if (pool != p && pool != 2)
            continue;
        log_info("health: the brake of pool %s is reset by %s", pool_name[p], change_author(c));
        brake_reset(&d->health->brake[p]);
        for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
            if (n->health != NULL && n->pool == p)
                n->health->held = false;
        }
    }
}

void health_reset(struct session *s, uint32_t id, const void *m)
{
    const Sluice__ResetHealth *q = m;
    struct change *c;
    struct err e;
    char now[24];
    int pool = 2;

    if (q->pool != NULL && q->pool[0] != '\0' && pool_parse(q->pool, &pool, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    snprintf(now, sizeof(now), "%lld", (long long)clock_wall_ns());
    c = change_asked(s, id);
    for (int p = 0; p < 2; p++) {
        if (pool != p && pool != 2)
            continue;
        change_setting(c, brake_key[p].on, "off");
        change_setting(c, brake_key[p].since, now);
        change_event(c, NULL, "brake reset", s->d->health->brake[p].on ? "on" : "off", pool_name[p], "");
        change_result(c, pool_name[p], ERR_NONE, 0, "the brake of pool %s %s", pool_name[p], s->d->health->brake[p].on ? "is released" : "was not on; its window begins anew");
    }
    change_put(c, CHANGE_MARK, brake_is_reset, (void *)(intptr_t)pool);
}

int health_restore(struct health *h, struct db *db, struct err *e)
{
    char on[16], since[24];

    for (int p = 0; p < 2; p++) {
        if (rows_load_setting(db, brake_key[p].on, on, sizeof(on), e) < 0 || rows_load_setting(db, brake_key[p].since, since, sizeof(since), e) < 0)
            return -1;
        h->brake[p].on = strcmp(on, "on") == 0;
        h->brake_since[p] = strtoll(since, NULL, 10);
    }
    return 0;
}

void health_restore_mark(struct node *n, const struct row_mark *row)
{
    struct health *h = n->d->health;
    double age = (double)(clock_wall_ns() - row->created) / 1e9;

    if (str_equal(row->owner_kind, "health") && !str_equal(row->severity, "info") && is_counted(row->part, row->owner) && row->created > h->brake_since[n->pool])
        brake_note(&h->brake[n->pool], n, clock_mono_s() - age);
    if (row->cleared != 0 && str_equal(row->owner_kind, "health") && !str_equal(row->severity, "info") && str_equal(row->clear_reason, good_again))
        flaps_add(&health_of(n)->flaps, row->cleared);
}

/* ---- marks ---- */

static double age_s(int64_t at)
{
    return at == 0 ? 1e12 : (double)(clock_mono_ns() - at) / 1e9;
}

/* The note says what happened last. What kind it was before our start is not known: then the first other text is told. */
static void renew(struct node *n, struct mark *m, int level, const char *reason, const char *evidence)
{
    bool same_level = m->level == level, same_text = strcmp(m->reason, reason) == 0;
    enum note what = note_decide(same_text, same_level, age_s(m->shown), age_s(m->told));

    if (what == NOTE_KEPT ? same_text : mark_automatic_renew(n, m, reason, evidence, what == NOTE_TOLD))
        m->level = level;
}

/* A note may become a block mark; a block mark stays what it is. */
void health_mark(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason, const char *evidence)
{
    struct row_mark want = { .part = part, .owner_kind = "health", .owner = owner, .class = class, .severity = level == LEVEL_BAD ? "block" : "info", .reason = reason,
                             .evidence = evidence };
    struct mark *m = mark_automatic_find(n, part, "health", owner);

    if (!n->d->conf->health.automatic || !n->added || (m != NULL && m->block))
        return;
    if (m != NULL && level != LEVEL_BAD) {
        renew(n, m, level, reason, evidence);
        return;
    }
    if (level == LEVEL_BAD && is_counted(part, owner) && !may_mark(n, owner, reason))
        return;                                  /* the note, if there is one, stays */
    if (m != NULL)
        mark_automatic_clear(n, part, "health", owner, reason);
    counters_add(n->d->counters, "marks_by_health", 1);
    mark_automatic(n, &want);
    m = mark_automatic_find(n, part, "health", owner);
    if (m == NULL)
        return;
    m->told = clock_mono_ns();
    m->level = level;
}

/* A blocking mark whose fault is over. What comes and goes all day stays: then a person has to look. */
static void take_back(struct node *n, struct mark *m)
{
    static const char stays[] = "; it came and went again and again, so it stays until a person clears it";
    char reason[1200];

    if (!flaps_are_many(&health_of(n)->flaps, clock_wall_ns())) {
        mark_automatic_clear(n, m->part, "health", m->owner, good_again);
        flaps_add(&n->health->flaps, clock_wall_ns());
        return;
    }
    if (strstr(m->reason, stays) != NULL)
        return;
    snprintf(reason, sizeof(reason), "%.1000s%s", m->reason, stays);
    str_mend(reason, strlen(reason));
    mark_automatic_renew(n, m, reason, NULL, true);
}

void health_fact(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason)
{
    struct mark *m = mark_automatic_find(n, part, "health", owner);

    if (level != LEVEL_GOOD) {
        health_mark(n, part, owner, class, level, reason, NULL);
        return;
    }
    if (m != NULL && !m->block)
        mark_automatic_clear(n, part, "health", owner, good_again);
    else if (m != NULL && n->d->conf->health.clear_automatic)
        take_back(n, m);
    if (part == NULL && n->health != NULL && n->health->held && strcmp(n->health->held_by, owner) == 0)
        n->health->held = false;
}

void health_mark_cleared(struct node *n, const struct mark *m)
{
    if (strcmp(m->owner_kind, "health") != 0 || n->health == NULL)
        return;
    conduct_forget(&n->health->conduct);
    if (strcmp(m->owner, "verify") == 0 && !mark_automatic_find(n, m->part, "health", "verify"))
        n->health->wrong = 0;
    health_part_cleared(n, m);
}

/* ---- a node by its work ---- */

static bool has_others(struct node *n)
{
    struct verdict v;

    for (struct node *o = farm_first(n->d->farm); o != NULL; o = o->hh.next) {
        if (o == n || o->pool != n->pool)
            continue;
        node_judge(o, &v);
        if (v.usable)
            return true;
    }
    return false;
}

static struct doubt *doubt_about(struct doubt *list, const struct node *n)
{
    while (list != NULL && list->node != n)
        list = list->next;
    return list;
}

double health_failed(struct doubt **on, struct node *n, const char *device, const char *word, const char *text)
{
    double s = conduct_trouble(&health_of(n)->conduct);

    if (doubt_about(*on, n) == NULL) {
        struct doubt *x = mem_zalloc(sizeof(*x));

        x->node = n;
        snprintf(x->failure.code, sizeof(x->failure.code), "%s", word);
        snprintf(x->failure.device, sizeof(x->failure.device), "%.120s", device == NULL ? "" : device);
        snprintf(x->failure.text, sizeof(x->failure.text), "%.199s", text == NULL ? "" : text);
        x->next = *on;
        *on = x;
    }
    return n->d->conf->health.automatic && has_others(n) ? s : 0;
}

/* The device, when all that counted happened there and the node has another one; else the node. */
static const char *part_of(struct node *n)
{
    const char *device = conduct_device(&n->health->conduct);

    return device != NULL && n->said.devices_usable > 1 && node_part_is_here(n, device) ? device : NULL;
}

static void mark_for_work(struct node *n)
{
    struct str reason = { 0 }, evidence = { 0 };

    conduct_reason(&n->health->conduct, &reason);
    conduct_evidence(&n->health->conduct, &evidence);
    health_mark(n, part_of(n), "work", "hw", LEVEL_BAD, str_text(&reason), str_text(&evidence));
    str_free(&reason);
    str_free(&evidence);
}

static void blame(struct node *n, const struct failure *f)
{
    log_info("node %s: what failed there was done elsewhere: %s%s%s", n->name, f->code, f->text[0] == '\0' ? "" : ": ", f->text);
    counters_add(n->d->counters, "failures_blamed", 1);
    if (conduct_failed(&health_of(n)->conduct, f))
        mark_for_work(n);
}

static struct base *base_of(struct health *h, bool is_job, uint64_t work, const char *class)
{
    struct base *oldest = &h->bases[0];

    for (unsigned i = 0; i < h->n_bases; i++) {
        struct base *b = &h->bases[i];

        if (b->is_job == is_job && b->work == work && strcmp(b->class, class) == 0)
            return b;
        if (b->used < oldest->used)
            oldest = b;
    }
    if (h->n_bases < BASES)
        oldest = &h->bases[h->n_bases++];
    memset(oldest, 0, sizeof(*oldest));
    oldest->is_job = is_job;
    oldest->work = work;
    snprintf(oldest->class, sizeof(oldest->class), "%s", class);
    return oldest;
}

static void note_speed(struct node *n, bool is_job, uint64_t work, double seconds, uint64_t bytes)
{
    struct health *h = n->d->health;
    struct base *b = base_of(h, is_job, work, n->class);
    struct pace *ratios = &health_of(n)->ratios;
    char reason[160];
    int judged;

    b->used = ++h->uses;
    pace_add(&b->pace, seconds / (double)bytes);
    if (b->pace.n < BASE_LEAST)
        return;
    if (b->median == 0 || b->pace.at % JUDGED_EVERY == 0)
        b->median = pace_median(&b->pace);
    pace_add(ratios, seconds / (double)bytes / b->median);
    if (ratios->at % JUDGED_EVERY != 0)
        return;
    judged = pace_judge(ratios);
    snprintf(reason, sizeof(reason), "slow: a time-frame takes %.1f times what it takes on others of class %s", pace_median(ratios), n->class);
    if (judged != 0)
        health_fact(n, NULL, "speed", "hw", judged > 0 ? LEVEL_NOTE : LEVEL_GOOD, reason);
}

void health_done(struct doubt **on, struct node *n, bool is_job, uint64_t work, double seconds, uint64_t bytes)
{
    struct doubt *x;

    health_of(n);
    n->d->health->done[n->pool]++;
    n->health->done_in[n->pool]++;
    conduct_done(&n->health->conduct);
    while ((x = *on) != NULL) {
        *on = x->next;
        if (x->node != n)
            blame(x->node, &x->failure);
        free(x);
    }
    if (seconds > 0 && bytes > 0)
        note_speed(n, is_job, work, seconds, bytes);
}

/* It failed at one node and could not be tried at another. That counts against the node when others have worked in the meantime. */
static void lonely(const struct doubt *x)
{
    struct node *n = x->node;
    uint64_t others = n->d->health->done[n->pool] - health_of(n)->done_in[n->pool];

    if (others > n->health->lonely_mark)
        blame(n, &x->failure);
    n->health->lonely_mark = others;
}

void health_dropped(struct doubt **on)
{
    struct doubt *x = *on;

    if (x != NULL && x->next == NULL && !x->node->d->stopping)
        lonely(x);
    while ((x = *on) != NULL) {
        *on = x->next;
        free(x);
    }
}

/* What a worker may well say that is in order. */
static bool is_harmless(const char *word)
{
    static const char *const words[] = { "BuildingLimit", "Stopping", "StaleFence" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (strcmp(word, words[i]) == 0)
            return true;
    }
    return false;
}

void health_refused(struct node *n, const char *word, const char *text)
{
    if (!is_harmless(word) && conduct_refused(&health_of(n)->conduct, word, text, clock_mono_s()))
        mark_for_work(n);
}

/* ---- results ---- */

enum { WRONG_MOST = 3 };

bool health_samples(struct node *n)
{
    struct node_health *h = health_of(n);

    h->sample += n->d->conf->health.verify_sample;
    if (h->sample < 1)
        return false;
    h->sample -= 1;
    return true;
}

void health_wrong(struct node *n, const char *device, bool is_job, uint64_t work, uint64_t tf, const char *wrong, const char *right, const char *evidence)
{
    const char *part = device != NULL && n->said.devices_usable > 1 && node_part_is_here(n, device) ? device : NULL;
    int level = ++health_of(n)->wrong >= WRONG_MOST ? LEVEL_BAD : LEVEL_NOTE;
    const struct mark *m = mark_automatic_find(n, part, "health", "verify");
    char reason[300];

    snprintf(reason, sizeof(reason), "wrong result: %s %llu TF %llu gave %.16s here, %.16s elsewhere%s", is_job ? "job" : "run", (unsigned long long)work,
             (unsigned long long)tf, wrong, right, level == LEVEL_BAD ? "; it was not the first" : "; a mark is proposed");
    if (m != NULL && !m->block && level == LEVEL_BAD)
        mark_automatic_clear(n, part, "health", "verify", reason);
    health_mark(n, part, "verify", "hw", level, reason, evidence);
}

/* ---- for people ---- */

static bool has_something(const struct node *n)
{
    const struct node_health *h = n->health;

    if (h == NULL || !n->added)
        return false;
    return h->conduct.failed_in_row + h->conduct.refused_in_row + conduct_count(&h->conduct) + h->reboots + h->wrong > 0 || h->held || pace_judge(&h->ratios) > 0
        || (n->report != NULL && (n->report->n_checks > 0 || n->report->restarts > 0)) || flow_cooling_s(n) > 0;
}

static Sluice__NodeHealth *node_line(struct node *n)
{
    Sluice__NodeHealth *out = mem_zalloc(sizeof(*out));
    struct conduct *c = &n->health->conduct;

    sluice__node_health__init(out);
    out->node = n->name;
    out->has_failed = out->has_of = out->has_failed_in_row = out->has_refused_in_row = out->has_cooling_s = out->has_reboots = true;
    out->failed = conduct_count(c);
    out->of = c->n;
    out->failed_in_row = c->failed_in_row;
    out->refused_in_row = c->refused_in_row;
    out->has_slowness = n->health->ratios.n >= PACE_LEAST;
    out->slowness = pace_median(&n->health->ratios);
    out->cooling_s = flow_cooling_s(n);
    out->reboots = n->health->reboots;
    out->has_wrong = true;
    out->wrong = n->health->wrong;
    if (c->n_last > 0)
        out->last = c->last[(c->n_last - 1) % CONDUCT_FAILURES].code;
    else if (c->refused_in_row > 0)
        out->last = c->refusal;
    if (n->report == NULL)
        return out;
    out->checks = n->report->checks;
    out->n_checks = n->report->n_checks;
    out->has_restarts = n->report->has_restarts;
    out->restarts = n->report->restarts;
    out->has_disk_free = n->report->has_disk_free;
    out->disk_free = n->report->disk_free;
    out->has_memory_free = n->report->has_memory_free;
    out->memory_free = n->report->memory_free;
    return out;
}

static void brake_line(struct sluiced *d, int pool, Sluice__Brake *out)
{
    const struct brake *b = &d->health->brake[pool];
    struct brake_limits l = limits(d);

    sluice__brake__init(out);
    out->pool = (char *)pool_name[pool];
    out->has_on = out->has_marked = out->has_allowed = out->has_nodes = out->has_held = out->has_window = true;
    out->on = b->on;
    out->nodes = affected(d, pool);
    out->marked = brake_count(b, &l, clock_mono_s());
    out->allowed = brake_allowance(&l, out->nodes);
    out->held = b->held;
    out->window = l.window;
}

void health_show(struct session *s, uint32_t id, const void *m)
{
    struct sluiced *d = s->d;
    Sluice__Health out = SLUICE__HEALTH__INIT;
    Sluice__HealthInfo info = SLUICE__HEALTH_INFO__INIT, *infos[1] = { &info };
    Sluice__Brake brakes[2], *brake_at[2] = { &brakes[0], &brakes[1] };

    (void)m;
    info.has_automatic = info.has_clear_automatic = true;
    info.automatic = d->conf->health.automatic;
    info.clear_automatic = d->conf->health.clear_automatic;
    for (int p = 0; p < 2; p++)
        brake_line(d, p, &brakes[p]);
    info.brakes = brake_at;
    info.n_brakes = 2;
    info.nodes = mem_array(farm_count(d->farm) + 1, sizeof(*info.nodes));
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (has_something(n))
            info.nodes[info.n_nodes++] = node_line(n);
    }
    out.health = infos;
    out.n_health = 1;
    session_answer(s, id, &out.base);
    for (size_t i = 0; i < info.n_nodes; i++)
        free(info.nodes[i]);
    free(info.nodes);
}
