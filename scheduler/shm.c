/* shm.c - the size of the nodes' buffers
 *
 * From: SET_SHM, reports and registrations (node_register.c), the clock.  To: node.c, change.c; WAIT hears of the end.
 * Every node of a request is judged and answered by itself. A node that is resizing takes nothing new; the order goes to its worker once it holds no TF.
 * An order has a number of its own, so that a worker carries it out once, whatever connections come and go meanwhile.
 */
#include "config.h"

#include "shm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "events.h"
#include "flow.h"
#include "hostlist.h"
#include "log.h"
#include "mem.h"
#include "node.h"
#include "show.h"
#include "str.h"

enum { LEAST = 65536, STEP = 4096, MOST_WAITING = 1024 };    /* LEAST, STEP: bytes */

struct waiter {
    TAILQ_ENTRY(waiter) entry;
    struct session_ref asker;
    uint64_t request;
    double until;                        /* monotonic s, 0 = no end */
};

struct shms {
    struct sluiced *d;
    uint64_t last;                       /* number of the last order */
    TAILQ_HEAD(, waiter) waiters;
    unsigned n_waiting;
};

struct shms *shms_create(struct sluiced *d)
{
    struct shms *all = mem_zalloc(sizeof(*all));

    all->d = d;
    all->last = d->epoch << 32;          /* no number comes twice, in whatever start */
    TAILQ_INIT(&all->waiters);
    return all;
}

static void waiter_free(struct shms *all, struct waiter *w)
{
    TAILQ_REMOVE(&all->waiters, w, entry);
    all->n_waiting--;
    free(w);
}

void shms_destroy(struct shms *all)
{
    struct waiter *w;

    if (all == NULL)
        return;
    while ((w = TAILQ_FIRST(&all->waiters)) != NULL)
        waiter_free(all, w);
    free(all);
}

/* ---- what is, and what is wanted ---- */

uint64_t shm_wanted(const struct node *n)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);

    return n->shm_wanted != 0 ? n->shm_wanted : class != NULL ? class->shm : 0;
}

uint64_t shm_active(const struct node *n)
{
    if (n->report != NULL && n->report->has_buffer_size)
        return n->report->buffer_size;
    return n->registered != NULL ? n->registered->buffer_size : 0;
}

bool shm_is_resizing(const struct node *n)
{
    return n->shm.state == SHM_RESIZING;
}

static bool is_open(const struct node *n)
{
    return n->shm.storing || n->shm.state == SHM_WAITING || n->shm.state == SHM_RESIZING;
}

/* The run that uses it now. */
static bool is_used_by_run(const struct node *n, uint64_t *run)
{
    struct verdict v;
    unsigned min;

    if (!run_uses_pool(n->d, n->pool, &min, run))
        return false;
    node_judge(n, &v);
    return v.usable || n->n_tfs > 0;
}

/* ---- the way of an order ---- */

static void tell_waiters(struct shms *all, uint64_t request);

static void come_to(struct node *n, enum shm_state state)
{
    n->shm.state = state;
    node_changed(n);
    tell_waiters(n->d->shms, n->shm.request);
}

static void note(struct node *n, const char *what, uint64_t before, const char *reason)
{
    char from[32], to[32];

    history_note(n->d, n->name, "sluiced", what, str_size_text(before, from), str_size_text(shm_wanted(n), to), reason);
}

static void settled(struct node *n)
{
    if (n->shm.state == SHM_RESIZING || n->shm.state == SHM_FAILED) {
        log_info("node %s: its buffer has %llu bytes now", n->name, (unsigned long long)shm_active(n));
        note(n, "shm resized", n->shm.before, "");
    }
    n->shm.text[0] = '\0';
    if (n->shm.state != SHM_SET)
        come_to(n, SHM_SET);
}

static void failed(struct node *n, const char *why)
{
    log_warning("node %s: its buffer stays as it is: %s", n->name, why);
    snprintf(n->shm.text, sizeof(n->shm.text), "%.399s", why);
    note(n, "shm not resized", shm_active(n), why);
    come_to(n, SHM_FAILED);
}

/* The order goes out once the node is empty. */
static void send_order(struct node *n)
{
    if (n->shm.sent || n->n_tfs > 0 || n->session == NULL)
        return;
    n->shm.sent = true;
    if (n->shm.sent_at == 0)
        n->shm.sent_at = clock_mono_s();
    node_send_settings(n);
}

/* What was to come of it is not heard: nobody waits for that. */
static void judge_time(struct node *n)
{
    double limit = n->d->conf->limits.resize_timeout;
    uint64_t request = n->shm.request;
    char text[160];

    if (n->shm.state != SHM_RESIZING)
        return;
    if (n->shm.sent_at > 0 && n->report != NULL && n->report->shm_progress != n->shm.progress) {
        n->shm.progress = n->report->shm_progress;
        n->shm.sent_at = clock_mono_s();
    }
    if (n->session == NULL && n->contact == SLUICE__CONTACT__LOST) {
        log_warning("node %s: out of contact while its buffer was to get %llu bytes; done when its worker is back", n->name, (unsigned long long)n->shm_wanted);
        n->shm.request = 0;
        come_to(n, SHM_WAITING);
        tell_waiters(n->d->shms, request);
    } else if (n->session != NULL && n->shm.sent && clock_mono_s() - n->shm.sent_at > limit) {
        snprintf(text, sizeof(text), "its worker did not answer, nor get on with it, within %g s (limits.resize_timeout)", limit);
        failed(n, text);
    }
}

static void begin(struct node *n)
{
    n->shm.order = ++n->d->shms->last;
    n->shm.sent = false;
    n->shm.sent_at = 0;
    n->shm.before = shm_active(n);
    log_info("node %s: its buffer is to get %llu bytes; no new work goes there meanwhile", n->name, (unsigned long long)n->shm_wanted);
    n->shm.state = SHM_RESIZING;
    node_changed(n);                     /* checks it, too */
}

void shm_settings(const struct node *n, Sluice__Settings *m)
{
    if (n->shm.state != SHM_RESIZING || !n->shm.sent)
        return;
    m->has_shm_size = m->has_shm_order = true;
    m->shm_size = n->shm_wanted;
    m->shm_order = n->shm.order;
}

/* What the worker said of the order. */
static bool has_answered(const struct node *n)
{
    return n->report != NULL && n->report->has_shm_order && n->report->shm_order == n->shm.order;
}

void shm_check(struct node *n)
{
    uint64_t run;

    if (n->shm_wanted == 0 || n->shm.storing || !n->added || n->session == NULL || n->d->shms == NULL || n->d->stopping)
        return;
    if (n->shm.state == SHM_SET && shm_active(n) != 0 && shm_active(n) != n->shm_wanted)
        n->shm.state = SHM_WAITING;      /* an older order came about after all */
    if (shm_active(n) == n->shm_wanted && (n->shm.state != SHM_RESIZING || has_answered(n)))
        settled(n);
    else if (n->shm.state == SHM_RESIZING && has_answered(n))
        failed(n, str_is_empty(n->report->shm_failure) ? "the worker says that it is done, and has another size" : n->report->shm_failure);
    else if (n->shm.state == SHM_RESIZING)
        send_order(n);
    else if (n->shm.state == SHM_WAITING && !is_used_by_run(n, &run))
        begin(n);
}

void shm_registered(struct node *n, bool fresh)
{
    if (n->shm_wanted == 0 || n->shm.storing || !n->added)
        return;
    n->shm.sent = false;                 /* a new connection: told again */
    if (shm_active(n) == n->shm_wanted)
        settled(n);
    else if (fresh && n->n_tfs == 0)
        begin(n);
    else if (n->shm.state == SHM_SET)
        n->shm.state = SHM_WAITING;
}

void shm_each_failed(struct sluiced *d, void (*fn)(void *arg, const struct node *n), void *arg)
{
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (n->shm.state == SHM_FAILED)
            fn(arg, n);
    }
}

/* ---- SET_SHM ---- */

struct batch { unsigned n; uint64_t request; struct place { struct node *node; uint64_t before; bool at_once; } *at; };

static void batch_free(struct batch *b)
{
    free(b->at);
    free(b);
}

static void asked_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;

    (void)c;
    (void)why;
    for (unsigned i = 0; i < b->n; i++) {
        struct node *n = b->at[i].node;
        bool ordered = n->shm.state == SHM_RESIZING && n->shm.sent;      /* what the worker says of its size now is not what will be */
        uint64_t over;

        n->shm.storing = false;
        if (rc < 0) {
            n->shm_wanted = b->at[i].before;
            continue;
        }
        over = n->shm.request;
        n->shm.asked = b->request;
        n->shm.request = b->at[i].at_once ? b->request : 0;     /* nobody waits for what comes later */
        n->shm.text[0] = '\0';
        n->shm.state = SHM_WAITING;
        if (b->at[i].at_once && n->session != NULL && (ordered || shm_active(n) != n->shm_wanted))
            begin(n);
        else
            shm_check(n);
        if (over != 0)
            tell_waiters(n->d->shms, over);      /* who asked before waits for this node no longer */
    }
    batch_free(b);
}

static int read_request(struct sluiced *d, const Sluice__SetShm *q, struct err *e)
{
    bool profile = !str_is_empty(q->profile);

    if (q->n_names == 0)
        return err_set(e, ERR_USAGE, "no node is named");
    if (profile == (q->has_size && q->size != 0))
        return err_set(e, ERR_USAGE, "either a size or a profile is wanted");
    if (profile && conf_profile_find(d->conf, q->profile) == NULL)
        return err_set(e, ERR_NOT_FOUND, "profile '%.63s': there is no such profile in the configuration", q->profile);
    if (!profile && (q->size < LEAST || q->size > INT64_MAX / 2))
        return err_set(e, ERR_USAGE, "a buffer has 64K at least, and less than 4194304T");
    if (!str_is_empty(q->when) && strcmp(q->when, "idle") != 0)
        return err_set(e, ERR_USAGE, "when '%.60s': idle, or nothing", q->when);
    return 0;
}

/* A profile is for a whole farm: nodes of classes that it does not name are none of its business. */
static bool is_left_alone(const struct node *n, const Sluice__SetShm *q)
{
    const struct conf_profile *p = str_is_empty(q->profile) ? NULL : conf_profile_find(n->d->conf, q->profile);

    return p != NULL && conf_profile_size(p, n->class) == 0;
}

/* What the node is to get: whole pages. 0: e. */
static uint64_t size_for(const struct node *n, const Sluice__SetShm *q, struct err *e)
{
    const struct conf_profile *p = str_is_empty(q->profile) ? NULL : conf_profile_find(n->d->conf, q->profile);
    uint64_t size = p == NULL ? q->size : conf_profile_size(p, n->class);
    char want[32], have[32];

    size = (size + STEP - 1) / STEP * STEP;
    if (n->registered != NULL && n->registered->memory > 0 && size > n->registered->memory) {
        err_set(e, ERR_STATE, "%s wanted, the machine has %s of memory", str_size_text(size, want), str_size_text(n->registered->memory, have));
        return 0;
    }
    return size;
}

/* 1: it is to be changed; 0: it has that already; -1: it cannot be. *later: what is waited for, NULL: nothing. */
static int judge(struct node *n, const Sluice__SetShm *q, uint64_t *size, const char **later, struct err *e)
{
    uint64_t run;
    bool idle = !str_is_empty(q->when);

    *later = NULL;
    if (!n->added || n->retiring)
        return err_set(e, ERR_STATE, "is not added to the farm");
    if (n->shm.storing)
        return err_set(e, ERR_STATE, "its size is being changed this moment");
    *size = size_for(n, q, e);
    if (*size == 0)
        return -1;
    if (n->shm_wanted == *size && shm_active(n) == *size && n->shm.state == SHM_SET)
        return 0;
    if (n->session == NULL)
        *later = "when its worker is back";
    else if (is_used_by_run(n, &run) && !idle)
        return err_set(e, ERR_STATE, "run %llu (%s) uses it; --when idle waits until no run does", (unsigned long long)run, run_name(n->d, run));
    else if (is_used_by_run(n, &run))
        *later = "when no run uses it any more";
    else if (n->n_tfs > 0 && !idle)
        return err_set(e, ERR_STATE, "%u time-frames of jobs are there; --when idle lets them finish and gives it no more", n->n_tfs);
    else if (n->n_tfs > 0)
        *later = "when the time-frames that are there are done";
    return 1;
}

static void ask(struct change *c, struct batch *b, const Sluice__SetShm *q, struct node *n, uint64_t size, const char *later)
{
    uint64_t has = shm_active(n) != 0 ? shm_active(n) : shm_wanted(n);
    char from[32], to[32], text[160];

    str_size_text(has, from);
    str_size_text(size, to);
    if (has == size)                     /* another size was asked for, or is not reached yet */
        snprintf(text, sizeof(text), "%s %s as before%s%s", q->dry_run ? "would have" : "is to have", to, later != NULL ? ", " : "", later != NULL ? later : "");
    else
        snprintf(text, sizeof(text), "%sfrom %s to %s%s%s", q->dry_run ? "would go " : "", from, to, later != NULL ? ", " : "", later != NULL ? later : "");
    if (q->dry_run) {
        change_result(c, n->name, ERR_NONE, 0, "%s", text);
        return;
    }
    b->at = mem_grow(b->at, b->n + 1, sizeof(*b->at));
    b->at[b->n++] = (struct place){ n, n->shm_wanted, later == NULL };
    change_shm(c, n->name, size);
    change_event(c, n->name, "shm asked for", from, to, str_is_empty(q->profile) ? later : q->profile);
    change_result(c, n->name, ERR_NONE, later == NULL ? b->request : 0, "%s", text);
    n->shm.storing = true;
    n->shm_wanted = size;                /* rows that others write meanwhile say it, too; it acts when it is on disk */
}

void shm_set(struct session *s, uint32_t id, const void *message)
{
    const Sluice__SetShm *q = message;
    struct hostlist *seen;
    struct change *c;
    struct batch *b;
    struct err e;

    if (read_request(s->d, q, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    b->request = ++s->d->shms->last;
    seen = hostlist_create();
    for (size_t i = 0; i < q->n_names; i++) {
        struct node *n = farm_node(s->d->farm, q->names[i]);
        const char *later = NULL;
        uint64_t size = 0;
        int rc = n != NULL ? 0 : err_set(&e, ERR_NOT_FOUND, "there is no such node");

        if (hostlist_has(seen, q->names[i]))
            continue;
        hostlist_add(seen, q->names[i], NULL);
        if (rc == 0 && n->added && !n->retiring && is_left_alone(n, q)) {
            change_result(c, n->name, ERR_NONE, 0, "is left alone: profile %.63s has no size for class %s", q->profile, n->class);
            continue;
        }
        if (rc == 0)
            rc = judge(n, q, &size, &later, &e);
        if (rc > 0)
            ask(c, b, q, n, size, later);
        else
            change_result(c, q->names[i], rc < 0 ? e.code : ERR_NONE, 0, "%s", rc < 0 ? e.text : "has that size already");
    }
    hostlist_destroy(seen);
    if (change_size(c) > 0) {
        change_put(c, CHANGE_NEW, asked_written, b);
    } else {
        batch_free(b);
        change_answer_only(c);
    }
}

/* ---- WAIT ---- */

/* Whether anything of the request is still to come; failed: one that could not be done. */
static bool is_under_way(struct sluiced *d, uint64_t request, const struct node **gone_wrong)
{
    *gone_wrong = NULL;
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (n->shm.request != request)
            continue;
        if (is_open(n))
            return true;
        if (n->shm.state == SHM_FAILED && *gone_wrong == NULL)
            *gone_wrong = n;
    }
    return false;
}

static void answer(struct shms *all, struct waiter *w, const struct node *gone_wrong)
{
    struct session *s = session_find(w->asker);
    Sluice__Waited out = SLUICE__WAITED__INIT;
    char text[500] = "";

    if (gone_wrong != NULL)
        snprintf(text, sizeof(text), "node %s: %.400s", gone_wrong->name, gone_wrong->shm.text);
    out.has_code = true;
    out.code = gone_wrong != NULL ? ERR_FAILED : ERR_NONE;
    out.text = text;
    if (s != NULL)
        session_answer(s, w->asker.id, &out.base);
    waiter_free(all, w);
}

static void tell_waiters(struct shms *all, uint64_t request)
{
    struct waiter *w, *next;
    const struct node *gone_wrong;

    for (w = TAILQ_FIRST(&all->waiters); w != NULL; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (w->request == request && !is_under_way(all->d, request, &gone_wrong))
            answer(all, w, gone_wrong);
    }
}

static void waiters_tick(struct shms *all)
{
    struct waiter *w, *next;
    struct err e;

    for (w = TAILQ_FIRST(&all->waiters); w != NULL; w = next) {
        struct session *s = session_find(w->asker);

        next = TAILQ_NEXT(w, entry);
        if (s != NULL && (w->until == 0 || clock_mono_s() < w->until))
            continue;
        err_set(&e, ERR_TIMEOUT, "not every buffer has its size yet");
        if (s != NULL)
            session_error(s, w->asker.id, &e, NULL);
        waiter_free(all, w);
    }
}

void shms_tick(struct shms *all)
{
    if (all == NULL)
        return;
    for (struct node *n = farm_first(all->d->farm); n != NULL; n = n->hh.next) {
        if (is_open(n))
            shm_check(n);
        judge_time(n);
    }
    waiters_tick(all);
}

void shm_wait(struct session *s, uint32_t id, const void *message)
{
    const Sluice__Wait *q = message;
    struct shms *all = s->d->shms;
    const struct node *gone_wrong;
    struct waiter *w;
    struct err e;

    if (q->id > all->last || q->id <= s->d->epoch << 32 || all->n_waiting >= MOST_WAITING) {
        if (q->id > all->last)
            err_set(&e, ERR_NOT_FOUND, "shm %llu: nothing of that number was asked for", (unsigned long long)q->id);
        else if (q->id <= s->d->epoch << 32)
            err_set(&e, ERR_LOST, "shm %llu: was asked for before this start of sluiced; sluice shm shows what became of it", (unsigned long long)q->id);
        else
            err_set(&e, ERR_STATE, "%d are waiting for buffers already; try again later", MOST_WAITING);
        session_error(s, id, &e, NULL);
        return;
    }
    w = mem_zalloc(sizeof(*w));
    w->asker = session_refer(s, id);
    w->request = q->id;
    w->until = q->has_timeout && q->timeout > 0 ? clock_mono_s() + q->timeout : 0;
    TAILQ_INSERT_TAIL(&all->waiters, w, entry);
    all->n_waiting++;
    if (!is_under_way(s->d, q->id, &gone_wrong))
        answer(all, w, gone_wrong);
}

/* ---- GET_SHM ---- */

static const char *pending_text(const struct node *n)
{
    uint64_t run;

    if (n->shm.state == SHM_FAILED)
        return n->shm.text;
    if (n->session == NULL)
        return "waits for its worker";
    if (n->shm.state == SHM_RESIZING)
        return n->n_tfs > 0 ? "waits for the time-frames that are there" : "is resized";
    return is_used_by_run(n, &run) ? "waits until no run uses it" : "is about to be resized";
}

static void fill_report(const struct node *n, Sluice__ShmInfo *out)
{
    if (out->active == 0 && out->text == NULL && n->report->trouble != NULL && n->report->trouble[0] != '\0')
        out->text = n->report->trouble;              /* why there is none */
    out->has_used = out->has_free = out->has_largest_free = true;
    out->used = n->report->bytes_used;
    out->free = out->active > out->used ? out->active - out->used : 0;
    out->largest_free = n->report->largest_free;
    out->numa_wanted = n->report->numa_wanted;
    out->numa = n->report->numa_actual;
    out->has_misplaced = n->report->has_misplaced;
    out->misplaced = n->report->misplaced;
    out->has_page_size = n->report->has_page_size;
    out->page_size = n->report->page_size;
    out->huge_wanted = n->report->huge_wanted;
    out->has_huge_actual = n->report->has_huge_actual;
    out->huge_actual = n->report->huge_actual;
}

static void fill(const struct node *n, Sluice__ShmInfo *out)
{
    sluice__shm_info__init(out);
    out->node = (char *)n->name;
    out->has_wanted = out->has_pending = out->has_failed = true;
    out->wanted = shm_wanted(n);
    out->failed = n->shm.state == SHM_FAILED;
    out->has_asked = n->shm.asked != 0;
    out->asked = n->shm.asked;
    out->pending = n->shm_wanted != 0 && (is_open(n) || out->failed);
    out->text = out->pending ? (char *)pending_text(n) : NULL;
    if (n->registered == NULL)
        return;
    out->has_active = out->has_generation = true;
    out->active = shm_active(n);
    out->generation = n->report != NULL && n->report->has_generation ? n->report->generation : n->registered->generation;
    if (n->report != NULL)
        fill_report(n, out);
}

void shm_show(struct session *s, uint32_t id, const void *message)
{
    const Sluice__GetShm *q = message;
    Sluice__Shm out = SLUICE__SHM__INIT;
    Sluice__ShmInfo *bodies;
    struct node **at;
    struct err e;
    size_t n;

    at = show_named(s->d->farm, q->names, q->n_names, &n, &e);
    if (at == NULL) {
        session_error(s, id, &e, NULL);
        return;
    }
    bodies = mem_array(n + 1, sizeof(*bodies));
    out.shm = mem_array(n + 1, sizeof(*out.shm));
    for (size_t i = 0; i < n; i++) {
        if (!show_is_shown(at[i]))
            continue;
        out.shm[out.n_shm] = &bodies[out.n_shm];
        fill(at[i], &bodies[out.n_shm++]);
    }
    session_answer(s, id, &out.base);
    free(out.shm);
    free(bodies);
    free(at);
}
