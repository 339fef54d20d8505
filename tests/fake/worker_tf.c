/* worker_tf.c - fake-worker: a TF's way from Assign to its Verdict
 *
 * Always: every Assign ends in one Refused, Done or Failed, unless an option says otherwise.
 */
#include "config.h"

#include "worker.h"
#include "clock.h"
#include "log.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

/* Everything that was ever assigned: the newest fence, and by how many it is held now. */
struct seen { UT_hash_handle hh; uint64_t key[3]; uint64_t epoch; uint32_t attempt; unsigned holders; bool accepted; char last[64]; };

/* Keys of runs, as RunOpen brought them. */
struct key { UT_hash_handle hh; uint64_t run; uint8_t key[RUNKEY_SIZE]; };

static struct key *keys;
static struct seen *seen;

static struct seen *seen_get(uint64_t run, uint64_t job, uint64_t id)
{
    uint64_t key[3] = { run, job, id };
    struct seen *s;

    HASH_FIND(hh, seen, key, sizeof(key), s);
    if (s == NULL) {
        s = mem_zalloc(sizeof(*s));
        memcpy(s->key, key, sizeof(key));
        HASH_ADD(hh, seen, key, sizeof(s->key), s);
    }
    return s;
}

/* ---- a TF's way ---- */

void name_tf(Sluice__Tf *tf, Sluice__Fence *f, const struct held *h)
{
    sluice__tf__init(tf);
    sluice__fence__init(f);
    tf->has_run = h->run > 0;
    tf->run = h->run;
    tf->has_job = h->job > 0;
    tf->job = h->job;
    tf->has_id = f->has_epoch = f->has_attempt = 1;
    tf->id = h->id;
    f->epoch = h->epoch;
    f->attempt = h->attempt;
}

struct held *held_find(struct worker *w, const Sluice__Tf *tf)
{
    struct held *h;

    TAILQ_FOREACH(h, &w->helds, link)
        if (tf && h->run == tf->run && h->job == tf->job && h->id == tf->id)
            return h;
    return NULL;
}

static void feed_devices(struct worker *w);

static void fetch_none(struct held *h)
{
    for (size_t i = 0; i < h->n_fetch; i++)
        if (h->fetch[i])
            free(fetch_cancel(h->fetch[i]));
    free(h->fetch);
    h->fetch = NULL;
    h->n_fetch = 0;
}

void held_free(struct held *h)
{
    struct worker *w = h->w;

    ev_timer_stop(loop, &h->timer);
    fetch_none(h);
    if (h->device >= 0)
        w->device_busy[h->device] = false;
    w->used -= h->bytes;
    seen_get(h->run, h->job, h->id)->holders--;
    TAILQ_REMOVE(&w->helds, h, link);
    free(h);
    report_soon(w);
    feed_devices(w);
}

void held_drop_all(struct worker *w)
{
    struct held *h;

    while ((h = TAILQ_FIRST(&w->helds))) {
        TAILQ_REMOVE(&w->helds, h, link);
        ev_timer_stop(loop, &h->timer);
        fetch_none(h);
        free(h);
    }
}

/* The same on every worker: splitmix64 of run (or job) and number. */
static uint64_t digest_of(const struct held *h)
{
    uint64_t z = (h->run ? h->run : h->job ^ UINT64_C(0x8000000000000000)) * UINT64_C(0x9e3779b97f4a7c15) + h->id;

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void send_result(struct held *h)
{
    struct worker *w = h->w;
    Sluice__Done done = SLUICE__DONE__INIT;
    Sluice__Failed failed = SLUICE__FAILED__INIT;
    Sluice__Tf tf;
    Sluice__Fence fence;
    char digest[17], serial[96];

    name_tf(&tf, &fence, h);
    snprintf(serial, sizeof(serial), "%.20s-%s-%d", opt.machine == NULL ? "fake" : opt.machine, w->name, h->device < 0 ? 0 : h->device);
    if (h->failed) {
        failed.tf = &tf;
        failed.fence = &fence;
        failed.word = "Crashed";
        failed.text = "told to fail";
        failed.device = serial;
        tell(w, &failed.base);
        return;
    }
    snprintf(digest, sizeof(digest), "%016llx", (unsigned long long)(digest_of(h) ^ h->corrupt));
    done.tf = &tf;
    done.fence = &fence;
    done.digest = digest;
    done.device = serial;
    done.has_process_seconds = done.has_build_seconds = done.has_wait_seconds = 1;
    done.process_seconds = w->seconds;
    done.build_seconds = opt.build_s;
    done.wait_seconds = (double)(clock_mono_ns() - h->built) / 1e9 - w->seconds;
    done.has_incomplete = h->incomplete;
    done.incomplete = h->incomplete;
    tell(w, &done.base);
}

static void on_processed(struct ev_loop *l, ev_timer *t, int events)
{
    struct held *h = CONTAINER_OF(t, struct held, timer);
    struct worker *w = h->w;

    (void)l, (void)events;
    h->phase = SLUICE__PHASE__REPORTED;
    send_result(h);
    if (h->failed)
        w->failed++;
    else
        w->done++;
    w->device_busy[h->device] = false;
    h->device = -1;
    report_soon(w);
    feed_devices(w);
}

static void process(struct held *h, unsigned device)
{
    h->phase = SLUICE__PHASE__PROCESSING;
    h->device = (int)device;
    h->w->device_busy[device] = true;
    ev_timer_init(&h->timer, on_processed, h->w->seconds, 0);
    if (!h->stalled)
        ev_timer_start(loop, &h->timer);
}

static void feed_devices(struct worker *w)
{
    struct held *h;

    for (unsigned i = 0; i < opt.devices; i++) {
        if (w->device_busy[i])
            continue;
        TAILQ_FOREACH(h, &w->helds, link)
            if (h->phase == SLUICE__PHASE__QUEUED)
                break;
        if (h == NULL)
            return;
        process(h, i);
    }
}

/* Forgets the TF and the connection: it comes back without it. */
static void forget(struct held *h)
{
    struct worker *w = h->w;

    w->forgotten++;
    held_free(h);
    chan_close_after_send(connector_chan(w->link), 1);
}

static void on_built(struct ev_loop *l, ev_timer *t, int events)
{
    struct held *h = CONTAINER_OF(t, struct held, timer);
    struct worker *w = h->w;
    Sluice__Built m = SLUICE__BUILT__INIT;
    Sluice__Tf tf;
    Sluice__Fence fence;

    (void)l, (void)events;
    h->phase = SLUICE__PHASE__QUEUED;
    h->built = clock_mono_ns();
    w->built++;
    name_tf(&tf, &fence, h);
    m.tf = &tf;
    m.fence = &fence;
    m.has_bytes = 1;
    m.bytes = h->bytes;
    tell(w, &m.base);
    if (every(opt.forget, w->built) && connector_chan(w->link)) {
        forget(h);
        return;
    }
    report_soon(w);
    feed_devices(w);
}

/* A part's place in its TF's list: what fetch hands back. */
struct part_ref { struct held *h; size_t i; };

static void fail_early(struct held *h, const char *word, const char *text)
{
    Sluice__Failed m = SLUICE__FAILED__INIT;
    Sluice__Tf tf;
    Sluice__Fence fence;
    struct worker *w = h->w;

    name_tf(&tf, &fence, h);
    m.tf = &tf;
    m.fence = &fence;
    m.word = (char *)word;
    m.text = (char *)text;
    w->pull_failed++;
    tell(w, &m.base);
    held_free(h);
}

static void on_part(void *arg, const char *why)
{
    struct part_ref r = *(struct part_ref *)arg;
    struct held *h = r.h;

    free(arg);
    h->fetch[r.i] = NULL;
    if (why) {
        fail_early(h, strcmp(why, "StaleFence") == 0 ? "StaleFence" : "PartGone", why);
    } else {
        h->w->pulled++;
        if (--h->n_missing == 0)
            ev_timer_start(loop, &h->timer);
    }
}

/* Pulls all parts; built when the last is here. */
static void pull(struct held *h, const Sluice__Assign *a)
{
    struct key *k;

    HASH_FIND(hh, keys, &h->run, sizeof(h->run), k);
    h->n_fetch = h->n_missing = a->n_parts;
    h->fetch = mem_array(a->n_parts, sizeof(*h->fetch));
    for (size_t i = 0; k && i < a->n_parts; i++) {
        struct part_ref *r = mem_zalloc(sizeof(*r));

        *r = (struct part_ref){ h, i };
        h->fetch[i] = fetch_start(h->w->fetcher, a->parts[i]->address, h->run, k->key, h->id, h->epoch, h->attempt, a->parts[i]->number, a->parts[i]->size,
                                  on_part, r);
    }
}

void handle_run_open(const Sluice__RunOpen *m)
{
    struct key *k;

    HASH_FIND(hh, keys, &m->run, sizeof(m->run), k);
    if (m->run == 0 || m->key.len != RUNKEY_SIZE)
        return;
    if (k == NULL) {
        k = mem_zalloc(sizeof(*k));
        k->run = m->run;
        HASH_ADD(hh, keys, run, sizeof(k->run), k);
    }
    memcpy(k->key, m->key.data, RUNKEY_SIZE);
}

static void refuse(struct worker *w, const Sluice__Assign *a, const char *word)
{
    Sluice__Refused m = SLUICE__REFUSED__INIT;

    w->refused++;
    m.tf = a->tf;
    m.fence = a->fence;
    m.word = (char *)word;
    m.text = "fake";
    tell(w, &m.base);
}

static bool is_older(const Sluice__Fence *f, uint64_t epoch, uint32_t attempt)
{
    return f->epoch < epoch || (f->epoch == epoch && f->attempt < attempt);
}

static void take(struct worker *w, const Sluice__Assign *a, struct seen *s)
{
    struct held *h = mem_zalloc(sizeof(*h));
    unsigned n = 0;
    const struct held *i;

    h->w = w;
    h->run = a->tf->run;
    h->job = a->tf->job;
    h->id = a->tf->id;
    h->epoch = a->fence->epoch;
    h->attempt = a->fence->attempt;
    h->bytes = a->bytes;
    h->incomplete = a->incomplete;
    h->device = -1;
    h->since = clock_mono_ns();
    h->failed = every(opt.fail, w->assigned);
    h->stalled = every(opt.stall, w->assigned);
    h->corrupt = w->number == opt.corrupt && every(opt.corrupt_every, w->assigned) ? w->assigned : 0;
    all.corrupted += h->corrupt != 0;
    w->used += h->bytes;
    s->holders++;
    if (s->holders > 1 && !s->accepted) {
        all.doubles++;
        log_warning("TF %llu: %s was given it, fence %llu.%u, and %s still has it", (unsigned long long)h->id, w->name, (unsigned long long)h->epoch,
                    h->attempt, s->last);
    }
    snprintf(s->last, sizeof(s->last), "%s", w->name);
    TAILQ_INSERT_TAIL(&w->helds, h, link);
    TAILQ_FOREACH(i, &w->helds, link)
        n++;
    w->most = n > w->most ? n : w->most;
    w->most_used = w->used > w->most_used ? w->used : w->most_used;
    ev_timer_init(&h->timer, on_built, opt.build_s, 0);
    if (opt.pull && a->n_parts > 0)
        pull(h, a);
    else
        ev_timer_start(loop, &h->timer);
    report_soon(w);
}

void handle_assign(struct worker *w, const Sluice__Assign *a)
{
    struct seen *s;
    struct held *old;

    if (a->tf == NULL || a->fence == NULL)
        return;
    w->assigned++;
    s = seen_get(a->tf->run, a->tf->job, a->tf->id);
    old = held_find(w, a->tf);
    if (is_older(a->fence, s->epoch, s->attempt)) {
        w->stale++;
        refuse(w, a, "StaleFence");
    } else if (every(opt.leave, w->assigned)) {
        chan_close_after_send(connector_chan(w->link), 1);      /* assigned, not acknowledged */
    } else if (every(opt.reject, w->assigned) || is_full(w) || w->used + a->bytes - (old ? old->bytes : 0) > w->buffer || ev_is_active(&w->resize)) {
        refuse(w, a, "NoSpace");
    } else {
        s->epoch = a->fence->epoch;
        s->attempt = a->fence->attempt;
        if (old)
            held_free(old);
        take(w, a, s);
    }
}

void handle_verdict(struct worker *w, const Sluice__Verdict *v)
{
    struct held *h = held_find(w, v->tf);
    Sluice__Published m = SLUICE__PUBLISHED__INIT;
    struct seen *s;

    if (v->tf == NULL || v->fence == NULL)
        return;
    all.verdicts++;
    if (!v->accepted)
        w->not_accepted++;
    if (v->accepted) {
        s = seen_get(v->tf->run, v->tf->job, v->tf->id);
        if (h && h->epoch == v->fence->epoch && h->attempt == v->fence->attempt) {
            w->accepted++;
            all.accepted_twice += s->accepted;
            s->accepted = true;
        }
        m.tf = v->tf;
        m.fence = v->fence;
        tell(w, &m.base);
    }
    if (h && h->epoch == v->fence->epoch && h->attempt == v->fence->attempt)
        held_free(h);
}

void handle_cancel(struct worker *w, const Sluice__Cancel *c)
{
    struct held *h = held_find(w, c->tf);
    Sluice__Failed m = SLUICE__FAILED__INIT;

    if (h == NULL || h->phase == SLUICE__PHASE__REPORTED)      /* the result is under way: that is the answer */
        return;
    w->cancelled++;
    m.tf = c->tf;
    m.fence = c->fence;
    m.word = "Cancelled";
    m.text = c->reason;
    tell(w, &m.base);
    held_free(h);
}

unsigned seen_count(void)
{
    return HASH_COUNT(seen);
}

void seen_free(void)
{
    struct seen *s, *next;
    struct key *k, *next_key;

    HASH_ITER(hh, seen, s, next) {
        HASH_DEL(seen, s);
        free(s);
    }
    HASH_ITER(hh, keys, k, next_key) {
        HASH_DEL(keys, k);
        free(k);
    }
}
