/* worker.c - fake-worker: hundreds of workers in one process that speak the real protocol and only pretend to work
 *
 * From: sluiced (Assign, Verdict, Cancel, …).  To: sluiced (Register, Report, Built, Done, …); one line of JSON to stdout at the end.
 * Each worker has a buffer that is a number, devices that are timers, and a digest that follows from run and TF alone, so that
 * any two workers agree. Misbehaviour is scripted by options. Always: what a worker holds is what it tells at Register, and what
 * its Report counts; every Assign ends in one Refused, Done or Failed, unless an option says otherwise.
 */
#include "config.h"

#include "clock.h"
#include "fake.h"
#include "fetch.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "names.h"
#include "peer.h"
#include "str.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uthash.h>

enum { MAX_SPEEDS = 64, MAX_DEVICES = 16, BINS = 600 };

static struct {
    const char *server, *method, *prefix, *class;
    unsigned count, first, width, devices, building_limit;
    double   seconds[MAX_SPEEDS];
    unsigned n_seconds;
    double   build_s, until_s, clock_shift_s, connect_s;
    uint64_t buffer;
    unsigned reject, fail, forget, stall, leave;        /* every K-th Assign of a worker; 0: never */
    double   full_from, full_s;
    unsigned full_worker;
    unsigned corrupt, corrupt_every;
    double   resize_s;
    const char *leaks;
    unsigned resize_refuse, resize_silent;              /* every K-th worker */
    uint64_t tfs;
    int      ready_fd;
    bool     quiet, pull;
} opt = { .prefix = "n", .class = "fake", .count = 1, .first = 1, .width = 3, .devices = 1, .building_limit = 3, .seconds = { 0.1 },
          .n_seconds = 1, .build_s = 0.005, .buffer = UINT64_C(1) << 30, .ready_fd = -1, .connect_s = 5 };

struct worker;

/* A TF that a worker holds. */
struct held {
    TAILQ_ENTRY(held) link;
    struct worker *w;
    uint64_t run, job, id, epoch, bytes;
    uint32_t attempt;
    Sluice__Phase phase;
    bool     incomplete, failed, stalled;
    uint64_t corrupt;                   /* what its digest differs by */
    int      device;                    /* -1: none */
    struct fetch **fetch;               /* of each part that is not here yet */
    size_t   n_fetch, n_missing;
    ev_timer timer;
    int64_t  since, built;
};
TAILQ_HEAD(helds, held);

struct worker {
    char name[64];
    unsigned number;
    struct connector *link;
    bool     registered, added;
    uint64_t connections, reports;
    struct helds helds;
    struct fetcher *fetcher;
    uint64_t used, buffer, generation;
    uint64_t order, order_size, resized;                /* the newest order on the buffer's size; the one that was carried out last */
    const char *resize_failure;
    uint64_t parking_order;
    Sluice__Parking parking;                            /* of its devices, as it was told; they end and begin at once */
    ev_timer resize;
    bool     device_busy[MAX_DEVICES];
    ev_timer report;
    int64_t  reported;                  /* monotonic ns */
    double   seconds;
    uint64_t pulled, pull_failed;
    uint64_t assigned, refused, built, done, failed, accepted, not_accepted, stale, cancelled, forgotten, tries;
    unsigned most;                      /* held at a time */
    uint64_t most_used;
};

/* Everything that was ever assigned: the newest fence, and by how many it is held now. */
struct seen { UT_hash_handle hh; uint64_t key[3]; uint64_t epoch; uint32_t attempt; unsigned holders; bool accepted; char last[64]; };

/* Keys of runs, as RunOpen brought them. */
struct key { UT_hash_handle hh; uint64_t run; uint8_t key[RUNKEY_SIZE]; };

static struct ev_loop *loop;
static struct names *names;
static struct key *keys;
static struct worker *workers;
static struct seen *seen;
static struct file_owner self;
static int64_t start_ns;
static struct {
    unsigned registered, most_registered;
    double   full_strength_s, lost_s, back_s;           /* since start; since the first loss */
    uint64_t doubles, accepted_twice, verdicts, losses, corrupted;
    unsigned bins[BINS];                                /* tries to connect, per second since the first loss */
    unsigned most_bin;
    bool     told_ready;
    double   offset_min, offset_max;
    char     last_lost[200];
} all;

static double now_s(void) { return (double)(clock_mono_ns() - start_ns) / 1e9; }

static bool every(unsigned k, uint64_t n) { return k > 0 && n % k == 0; }

static bool is_full(const struct worker *w)
{
    double t = now_s();

    return opt.full_s > 0 && w->number == opt.full_worker && t >= opt.full_from && t < opt.full_from + opt.full_s;
}

static void tell(struct worker *w, const ProtobufCMessage *m)
{
    struct chan *c = connector_chan(w->link);

    if (c && w->registered)
        chan_send(c, 0, m);
}

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

/* ---- reports ---- */

static void count_phases(const struct worker *w, Sluice__Report *r)
{
    const struct held *h;

    r->has_building = r->has_queued = r->has_processing = r->has_delivering = 1;
    TAILQ_FOREACH(h, &w->helds, link) {
        r->building += h->phase == SLUICE__PHASE__BUILDING;
        r->queued += h->phase == SLUICE__PHASE__QUEUED;
        r->processing += h->phase == SLUICE__PHASE__PROCESSING;
        r->delivering += h->phase >= SLUICE__PHASE__DELIVERING;
    }
}

/* --leak-dir DIR: while DIR/NODE is there, memory of its devices does not come free. */
static const char *leak_file(const struct worker *w)
{
    static char path[4200];

    snprintf(path, sizeof(path), "%s/%s", opt.leaks == NULL ? "/nonexistent" : opt.leaks, w->name);
    return path;
}

static void device_fill(struct worker *w, unsigned i, Sluice__Device *d, char serial[96])
{
    sluice__device__init(d);
    snprintf(serial, 96, "fake-%s-%u", w->name, i);
    d->serial = serial;
    d->class_ = (char *)opt.class;
    d->has_state = 1;
    d->state = w->device_busy[i] ? SLUICE__DEVICE_STATE__DEVICE_BUSY : SLUICE__DEVICE_STATE__DEVICE_FREE;
    if (w->parking != SLUICE__PARKING__DEVICES_WORK && TAILQ_EMPTY(&w->helds))
        d->state = w->parking == SLUICE__PARKING__DEVICES_PARK && access(leak_file(w), F_OK) == 0 ? SLUICE__DEVICE_STATE__DEVICE_UNCLEAN : SLUICE__DEVICE_STATE__DEVICE_PARKED;
    d->has_seconds_per_tf = 1;
    d->seconds_per_tf = w->seconds;
    d->has_memory = 1;
    d->memory = UINT64_C(32) << 30;
}

static void report_now(struct worker *w)
{
    Sluice__Report m = SLUICE__REPORT__INIT;
    Sluice__Device device[MAX_DEVICES], *list[MAX_DEVICES];
    char serial[MAX_DEVICES][96];

    m.has_number = m.has_bytes_used = m.has_largest_free = m.has_buffer_size = m.has_generation = m.has_refused = m.has_stale = 1;
    m.number = ++w->reports;
    m.bytes_used = is_full(w) ? w->buffer : w->used;
    m.largest_free = w->buffer - m.bytes_used;
    m.buffer_size = w->buffer;
    m.generation = w->generation;
    m.has_shm_order = w->resized != 0;
    m.shm_order = w->resized;
    m.has_parking_order = 1;
    m.parking_order = w->parking_order;
    m.shm_failure = (char *)w->resize_failure;
    m.refused = w->refused;
    m.stale = w->stale;
    count_phases(w, &m);
    for (unsigned i = 0; i < opt.devices; i++) {
        list[i] = &device[i];
        device_fill(w, i, list[i], serial[i]);
    }
    m.devices = list;
    m.n_devices = opt.devices;
    tell(w, &m.base);
    w->reported = clock_mono_ns();
}

static void report_at(struct worker *w, double s)
{
    ev_timer_stop(loop, &w->report);
    ev_timer_set(&w->report, s, 0);
    ev_timer_start(loop, &w->report);
}

/* On change: at most 20 a second. */
static void report_soon(struct worker *w)
{
    double wait = 0.05 - (double)(clock_mono_ns() - w->reported) / 1e9;

    if (!w->registered || (ev_is_active(&w->report) && ev_timer_remaining(loop, &w->report) < 0.06))
        return;
    report_at(w, wait > 0 ? wait : 0);
}

static void on_report(struct ev_loop *l, ev_timer *t, int events)
{
    struct worker *w = CONTAINER_OF(t, struct worker, report);

    (void)l, (void)events;
    report_now(w);
    report_at(w, 1);
}

/* ---- a TF's way ---- */

static void name_tf(Sluice__Tf *tf, Sluice__Fence *f, const struct held *h)
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

static struct held *held_find(struct worker *w, const Sluice__Tf *tf)
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

static void held_free(struct held *h)
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

/* The same on every worker: splitmix64 of run (or job) and number. */
static uint64_t digest_of(const struct held *h)
{
    uint64_t z = (h->run ? h->run : h->job ^ UINT64_C(0x8000000000000000)) * UINT64_C(0x9e3779b97f4a7c15) + h->id;

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void send_result(struct held *h)
{
    struct worker *w = h->w;
    Sluice__Done done = SLUICE__DONE__INIT;
    Sluice__Failed failed = SLUICE__FAILED__INIT;
    Sluice__Tf tf;
    Sluice__Fence fence;
    char digest[17], serial[96];

    name_tf(&tf, &fence, h);
    snprintf(serial, sizeof(serial), "fake-%s-%d", w->name, h->device < 0 ? 0 : h->device);
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

static void handle_run_open(const Sluice__RunOpen *m)
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

static void handle_assign(struct worker *w, const Sluice__Assign *a)
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

static void handle_verdict(struct worker *w, const Sluice__Verdict *v)
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

static void handle_cancel(struct worker *w, const Sluice__Cancel *c)
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

/* ---- another size of the buffer ---- */

static void on_resized(struct ev_loop *l, ev_timer *t, int events)
{
    struct worker *w = CONTAINER_OF(t, struct worker, resize);
    bool refused = every(opt.resize_refuse, w->number);

    (void)l, (void)events;
    w->resized = w->order;
    w->resize_failure = refused ? "told to refuse" : "";
    if (!refused) {
        w->buffer = w->order_size;
        w->generation++;
    }
    report_soon(w);
}

static void park(struct worker *w, bool has, Sluice__Parking parking, uint64_t order)
{
    if (!has)
        return;
    if (parking != SLUICE__PARKING__DEVICES_AS_THEY_ARE)
        w->parking = parking;
    w->parking_order = order;
    report_soon(w);
}

static void handle_settings(struct worker *w, const Sluice__Settings *m)
{
    park(w, m->has_parking, m->parking, m->parking_order);
    if (!m->has_shm_order || m->shm_order == w->order)
        return;
    w->order = m->shm_order;
    w->order_size = m->shm_size;
    if (every(opt.resize_silent, w->number))
        return;
    ev_timer_stop(loop, &w->resize);
    ev_timer_set(&w->resize, opt.resize_s, 0);
    ev_timer_start(loop, &w->resize);
}

/* ---- the connection ---- */

static void send_register(struct worker *w, struct chan *c)
{
    Sluice__Register m = SLUICE__REGISTER__INIT;
    Sluice__Incarnation inc = SLUICE__INCARNATION__INIT;
    Sluice__Device device[MAX_DEVICES], *devices[MAX_DEVICES];
    char serial[MAX_DEVICES][96];
    size_t n = 0;
    struct held *h;
    struct { Sluice__Held m; Sluice__Tf tf; Sluice__Fence fence; } *held;
    Sluice__Held **list;

    TAILQ_FOREACH(h, &w->helds, link)
        n++;
    held = mem_array(n + 1, sizeof(*held));
    list = mem_array(n + 1, sizeof(*list));
    n = 0;
    TAILQ_FOREACH(h, &w->helds, link) {
        sluice__held__init(&held[n].m);
        name_tf(&held[n].tf, &held[n].fence, h);
        held[n].m.tf = &held[n].tf;
        held[n].m.fence = &held[n].fence;
        held[n].m.has_phase = held[n].m.has_bytes = 1;
        held[n].m.phase = h->phase;
        held[n].m.bytes = h->bytes;
        list[n] = &held[n].m;
        n++;
    }
    for (unsigned i = 0; i < opt.devices; i++) {
        devices[i] = &device[i];
        device_fill(w, i, devices[i], serial[i]);
    }
    inc.boot_id = self.boot_id;
    inc.has_start = inc.has_pid = 1;
    inc.start = self.start;
    inc.pid = (uint32_t)self.pid;
    m.node = w->name;
    m.class_ = (char *)opt.class;
    m.incarnation = &inc;
    m.has_connection = m.has_memory = m.has_buffer_size = m.has_generation = m.has_building_limit = m.has_high_water = 1;
    m.connection = ++w->connections;
    m.devices = devices;
    m.n_devices = opt.devices;
    m.memory = UINT64_C(512) << 30;
    m.buffer_size = w->buffer;
    m.generation = w->generation;
    m.held = list;
    m.n_held = n;
    m.host = "fake";
    m.building_limit = opt.building_limit;
    m.high_water = 0.8;
    chan_send(c, 1, &m.base);       /* 1: an answer is wanted */
    free(held);
    free(list);
}

static void strength(int change)
{
    all.registered = (unsigned)((int)all.registered + change);
    if (all.registered > all.most_registered)
        all.most_registered = all.registered;
    if (all.registered < opt.count)
        return;
    if (all.full_strength_s == 0)
        all.full_strength_s = now_s();
    if (all.lost_s > 0)
        all.back_s = now_s() - all.lost_s;
    if (!all.told_ready && opt.ready_fd >= 0) {
        (void)!write(opt.ready_fd, "ready\n", 6);
        close(opt.ready_fd);
    }
    all.told_ready = true;
}

static void handle_registered(struct worker *w, const Sluice__Registered *m)
{
    struct held *h, *next;

    w->added = m->added;
    for (size_t i = 0; i < m->n_forget; i++) {
        h = held_find(w, m->forget[i]->tf);
        if (h)
            held_free(h);
    }
    park(w, m->has_parking, m->parking, m->parking_order);
    if (!w->registered) {
        w->registered = true;
        strength(1);
    }
    for (h = TAILQ_FIRST(&w->helds); h; h = next) {             /* what has no verdict yet is said again */
        next = TAILQ_NEXT(h, link);
        if (h->phase == SLUICE__PHASE__REPORTED)
            send_result(h);
    }
    report_at(w, 0);
}

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *welcome, const Sluice__Ready *r)
{
    struct worker *w = arg;

    (void)welcome;
    all.offset_min = r->clock_offset < all.offset_min ? r->clock_offset : all.offset_min;
    all.offset_max = r->clock_offset > all.offset_max ? r->clock_offset : all.offset_max;
    send_register(w, c);
}

static void note_try(struct worker *w)
{
    unsigned bin;

    w->tries++;
    if (all.lost_s == 0)
        return;
    bin = (unsigned)(now_s() - all.lost_s);
    if (bin < BINS && ++all.bins[bin] > all.most_bin)
        all.most_bin = all.bins[bin];
}

static void on_lost(void *arg, const struct err *why)
{
    struct worker *w = arg;

    if (w->registered) {
        all.losses++;
        if (all.lost_s == 0)
            all.lost_s = now_s();
        strength(-1);
    } else {
        note_try(w);
    }
    w->registered = false;
    ev_timer_stop(loop, &w->report);
    snprintf(all.last_lost, sizeof(all.last_lost), "%.190s", why->text);
    if (!opt.quiet)
        log_debug("%s: %s", w->name, why->text);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct worker *w = arg;
    Sluice__LogLines lines = SLUICE__LOG_LINES__INIT;

    (void)fds, (void)n_fds;
    switch (type) {
    case SLUICE__TYPE__REGISTERED: handle_registered(w, (const Sluice__Registered *)m); break;
    case SLUICE__TYPE__SETTINGS:   handle_settings(w, (const Sluice__Settings *)m); break;
    case SLUICE__TYPE__RUN_OPEN:   handle_run_open((const Sluice__RunOpen *)m); break;
    case SLUICE__TYPE__ASSIGN:     handle_assign(w, (const Sluice__Assign *)m); break;
    case SLUICE__TYPE__VERDICT:    handle_verdict(w, (const Sluice__Verdict *)m); break;
    case SLUICE__TYPE__CANCEL:     handle_cancel(w, (const Sluice__Cancel *)m); break;
    case SLUICE__TYPE__LOG_QUERY:  chan_send(c, id, &lines.base); break;
    case SLUICE__TYPE__ERROR:
        snprintf(all.last_lost, sizeof(all.last_lost), "%.190s", ((const Sluice__Error *)m)->text);
        chan_close_after_send(c, 1);
        break;
    default:
        break;
    }
}

/* ---- options, start and end ---- */

static const struct option options[] = {
    { "server", 1, NULL, 's' }, { "method", 1, NULL, 'm' }, { "count", 1, NULL, 'n' }, { "name-prefix", 1, NULL, 'p' },
    { "first", 1, NULL, '1' }, { "width", 1, NULL, 'w' }, { "class", 1, NULL, 'c' }, { "seconds-per-tf", 1, NULL, 't' },
    { "build-seconds", 1, NULL, 'b' }, { "buffer", 1, NULL, 'B' }, { "devices", 1, NULL, 'd' }, { "building-limit", 1, NULL, 'l' },
    { "reject", 1, NULL, 'r' }, { "fail", 1, NULL, 'f' }, { "forget", 1, NULL, 'g' }, { "stall", 1, NULL, 'S' }, { "leave", 1, NULL, 'v' },
    { "full", 1, NULL, 'F' }, { "corrupt", 1, NULL, 'X' }, { "clock-shift", 1, NULL, 'C' }, { "seconds", 1, NULL, 'e' }, { "tfs", 1, NULL, 'T' },
    { "ready-fd", 1, NULL, 'R' }, { "resize-seconds", 1, NULL, 'Z' }, { "resize-refuse", 1, NULL, 'y' }, { "resize-silent", 1, NULL, 'z' },
    { "leak-dir", 1, NULL, 'k' }, { "quiet", 0, NULL, 'q' }, { "pull", 0, NULL, 'P' }, { "help", 0, NULL, 'h' }, { 0 },
};

static const char usage[] =
    "fake-worker --server ADDRESS [option...]: workers that only pretend to work\n"
    "  --method munge[:SOCKET]   for a TCP address\n"
    "  --count N --name-prefix P --first K --width W    names PKKK (default n001 ...)\n"
    "  --class C --devices N --buffer SIZE --building-limit N\n"
    "  --seconds-per-tf S[,S2...]  of a device; worker i takes the i-th, over and over\n"
    "  --build-seconds S         from Assign to Built\n"
    "  --pull                    pull the parts from their sources first, over sockets\n"
    "  --reject K --fail K --stall K --forget K --leave K  every K-th TF of a worker: refused, failed, never finished, forgotten\n"
    "                            after Built (and reconnect), connection closed instead of an answer\n"
    "  --corrupt I:K             every K-th result of worker number I has another digest\n"
    "  --full I:FROM:SECONDS     worker number I reports a full buffer and refuses from FROM s after the start for SECONDS;\n"
    "                            FROM -: from each SIGUSR1 on\n"
    "  --resize-seconds S        another size of the buffer takes so long (default 0)\n"
    "  --resize-refuse K, --resize-silent K  every K-th worker keeps its size: says why, or never answers\n"
    "  --leak-dir DIR            while DIR/NODE is there, memory of its devices does not come free\n"
    "  --clock-shift S           its wall clock is said to be S ahead\n"
    "  --seconds S, --tfs N      end after S, or when N TFs were accepted; else at SIGTERM\n"
    "  --ready-fd N              says ready when all are registered\n"
    "At the end one line of JSON on stdout.\n";

static double real(const char *what, const char *text, double least, double most)
{
    struct err e;
    double v;

    if (str_parse_f64(what, text, least, most, &v, &e) < 0)
        fake_die(&e);
    return v;
}

static uint64_t whole(const char *what, const char *text, uint64_t least, uint64_t most)
{
    struct err e;
    uint64_t v;

    if (str_parse_u64(what, text, least, most, &v, &e) < 0)
        fake_die(&e);
    return v;
}

static void parse_speeds(char *list)
{
    char *save = NULL;

    opt.n_seconds = 0;
    for (char *s = strtok_r(list, ",", &save); s && opt.n_seconds < MAX_SPEEDS; s = strtok_r(NULL, ",", &save))
        opt.seconds[opt.n_seconds++] = real("--seconds-per-tf", s, 0, 86400);
    if (opt.n_seconds == 0)
        opt.seconds[opt.n_seconds++] = 0.1;
}

static void parse_full(const char *text)
{
    opt.full_from = 1e18;
    if (sscanf(text, "%u:-:%lf", &opt.full_worker, &opt.full_s) != 2 &&
        sscanf(text, "%u:%lf:%lf", &opt.full_worker, &opt.full_from, &opt.full_s) != 3) {
        fprintf(stderr, "--full %s: wanted I:FROM:SECONDS\n", text);
        exit(2);
    }
}

static void parse_corrupt(const char *text)
{
    if (sscanf(text, "%u:%u", &opt.corrupt, &opt.corrupt_every) != 2 || opt.corrupt_every == 0) {
        fprintf(stderr, "--corrupt %s: wanted I:K\n", text);
        exit(2);
    }
}

static void parse(int argc, char **argv)
{
    struct err e;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': opt.server = optarg; break;
        case 'm': opt.method = optarg; break;
        case 'n': opt.count = (unsigned)whole("--count", optarg, 1, 10000); break;
        case 'p': opt.prefix = optarg; break;
        case '1': opt.first = (unsigned)whole("--first", optarg, 0, 1000000); break;
        case 'w': opt.width = (unsigned)whole("--width", optarg, 1, 9); break;
        case 'c': opt.class = optarg; break;
        case 't': parse_speeds(optarg); break;
        case 'b': opt.build_s = real("--build-seconds", optarg, 0, 3600); break;
        case 'B': if (str_parse_size(optarg, &opt.buffer, &e) < 0) fake_die(&e); break;
        case 'd': opt.devices = (unsigned)whole("--devices", optarg, 1, MAX_DEVICES); break;
        case 'l': opt.building_limit = (unsigned)whole("--building-limit", optarg, 1, 64); break;
        case 'r': opt.reject = (unsigned)whole("--reject", optarg, 0, UINT32_MAX); break;
        case 'f': opt.fail = (unsigned)whole("--fail", optarg, 0, UINT32_MAX); break;
        case 'g': opt.forget = (unsigned)whole("--forget", optarg, 0, UINT32_MAX); break;
        case 'S': opt.stall = (unsigned)whole("--stall", optarg, 0, UINT32_MAX); break;
        case 'v': opt.leave = (unsigned)whole("--leave", optarg, 0, UINT32_MAX); break;
        case 'F': parse_full(optarg); break;
        case 'X': parse_corrupt(optarg); break;
        case 'Z': opt.resize_s = real("--resize-seconds", optarg, 0, 3600); break;
        case 'y': opt.resize_refuse = (unsigned)whole("--resize-refuse", optarg, 0, UINT32_MAX); break;
        case 'z': opt.resize_silent = (unsigned)whole("--resize-silent", optarg, 0, UINT32_MAX); break;
        case 'k': opt.leaks = optarg; break;
        case 'C': opt.clock_shift_s = real("--clock-shift", optarg, -1e10, 1e10); break;
        case 'e': opt.until_s = real("--seconds", optarg, 0, 1e6); break;
        case 'T': opt.tfs = whole("--tfs", optarg, 1, UINT64_MAX); break;
        case 'R': opt.ready_fd = (int)whole("--ready-fd", optarg, 0, 1023); break;
        case 'P': opt.pull = true; break;
        case 'q': opt.quiet = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default:  fputs(usage, stderr); exit(2);
        }
    }
    if (opt.server == NULL) {
        fputs(usage, stderr);
        exit(2);
    }
}

static void worker_start(struct worker *w, unsigned i)
{
    struct err e;
    struct connector_conf conf = {
        .loop = loop, .names = names, .address = opt.server, .method = opt.method, .role = SLUICE__ROLE__WORKER, .name = w->name,
        .connect_s = opt.connect_s, .limits.clock_shift_ns = (int64_t)(opt.clock_shift_s * 1e9),
        .events = { .ready = on_ready, .message = on_message, .lost = on_lost }, .arg = w,
    };

    w->number = opt.first + i;
    snprintf(w->name, sizeof(w->name), "%.40s%0*u", opt.prefix, (int)opt.width, w->number);
    w->seconds = opt.seconds[i % opt.n_seconds];
    w->buffer = opt.buffer;
    w->generation = 1;
    w->resize_failure = "";
    ev_init(&w->resize, on_resized);
    w->fetcher = fetcher_create(loop, w->name);
    TAILQ_INIT(&w->helds);
    ev_init(&w->report, on_report);
    w->link = connector_create(&conf, &e);
    if (w->link == NULL)
        fake_die(&e);
}

static void show_worker(const struct worker *w, bool last)
{
    unsigned held = 0;
    const struct held *h;

    TAILQ_FOREACH(h, &w->helds, link)
        held++;
    printf("{\"node\": \"%s\", \"seconds_per_tf\": %g, \"connections\": %llu, \"tries\": %llu, \"assigned\": %llu, \"refused\": %llu, \"stale\": %llu, "
           "\"built\": %llu, \"done\": %llu, \"failed\": %llu, \"accepted\": %llu, \"not_accepted\": %llu, \"cancelled\": %llu, \"forgotten\": %llu, "
           "\"held\": %u, \"most_held\": %u, \"most_fill\": %.4f}%s",
           w->name, w->seconds, (unsigned long long)w->connections, (unsigned long long)w->tries, (unsigned long long)w->assigned,
           (unsigned long long)w->refused, (unsigned long long)w->stale, (unsigned long long)w->built, (unsigned long long)w->done,
           (unsigned long long)w->failed, (unsigned long long)w->accepted, (unsigned long long)w->not_accepted,
           (unsigned long long)w->cancelled, (unsigned long long)w->forgotten, held, w->most,
           (double)w->most_used / (double)w->buffer, last ? "" : ", ");
}

static uint64_t total(size_t field)
{
    uint64_t sum = 0;

    for (unsigned i = 0; i < opt.count; i++)
        sum += *(const uint64_t *)((const char *)&workers[i] + field);
    return sum;
}

static unsigned count_held(void)
{
    unsigned n = 0;
    const struct held *h;

    for (unsigned i = 0; i < opt.count; i++)
        TAILQ_FOREACH(h, &workers[i].helds, link)
            n++;
    return n;
}

#define TOTAL(field) (unsigned long long)total(offsetof(struct worker, field))

static void show(void)
{
    struct str why = { 0 };

    printf("{\"workers\": %u, \"seconds\": %.3f, \"assigned\": %llu, \"refused\": %llu, \"stale\": %llu, \"built\": %llu, \"done\": %llu, \"failed\": %llu, "
           "\"accepted\": %llu, \"not_accepted\": %llu, \"cancelled\": %llu, \"forgotten\": %llu, \"pulled\": %llu, \"pull_failed\": %llu, \"held\": %u, \"tfs\": %u, \"doubles\": %llu, \"accepted_twice\": %llu, \"corrupted\": %llu, ",
           opt.count, now_s(), TOTAL(assigned), TOTAL(refused), TOTAL(stale), TOTAL(built), TOTAL(done), TOTAL(failed), TOTAL(accepted),
           TOTAL(not_accepted), TOTAL(cancelled), TOTAL(forgotten), TOTAL(pulled), TOTAL(pull_failed), count_held(), HASH_COUNT(seen), (unsigned long long)all.doubles,
           (unsigned long long)all.accepted_twice, (unsigned long long)all.corrupted);
    printf("\"registered\": %u, \"most_registered\": %u, \"full_strength_s\": %.3f, \"losses\": %llu, \"back_s\": %.3f, \"most_tries_a_second\": %u, "
           "\"clock_offset_min\": %.3f, \"clock_offset_max\": %.3f, \"last_lost\": \"",
           all.registered, all.most_registered, all.full_strength_s, (unsigned long long)all.losses, all.back_s, all.most_bin, all.offset_min, all.offset_max);
    str_escape(&why, all.last_lost, strlen(all.last_lost));
    for (const char *p = str_text(&why); *p; p++)
        printf(*p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    str_free(&why);
    printf("\", \"tries\": [");
    for (unsigned i = 0, n = (unsigned)(all.lost_s > 0 ? now_s() - all.lost_s : 0) + 1; i < n && i < BINS; i++)
        printf("%s%u", i ? ", " : "", all.bins[i]);
    printf("], \"nodes\": [");
    for (unsigned i = 0; i < opt.count; i++)
        show_worker(&workers[i], i + 1 == opt.count);
    printf("]}\n");
    fflush(stdout);
}

static void on_usr1(struct ev_loop *l, ev_signal *w, int events)
{
    (void)l, (void)w, (void)events;
    opt.full_from = now_s();
    for (unsigned i = 0; i < opt.count; i++)
        if (is_full(&workers[i]))
            report_now(&workers[i]);
}

static void on_check(struct ev_loop *l, ev_timer *t, int events)
{
    (void)t, (void)events;
    if ((opt.until_s > 0 && now_s() >= opt.until_s) || (opt.tfs > 0 && total(offsetof(struct worker, accepted)) >= opt.tfs))
        ev_break(l, EVBREAK_ALL);
}

static void worker_end(struct worker *w)
{
    struct held *h;

    connector_destroy(w->link);
    while ((h = TAILQ_FIRST(&w->helds))) {
        TAILQ_REMOVE(&w->helds, h, link);
        ev_timer_stop(loop, &h->timer);
        fetch_none(h);
        free(h);
    }
    fetcher_destroy(w->fetcher);
    ev_timer_stop(loop, &w->report);
    ev_timer_stop(loop, &w->resize);
}

int main(int argc, char **argv)
{
    struct err e;
    struct seen *s, *next;
    struct key *k, *next_key;
    ev_timer check;
    ev_signal usr1;

    parse(argc, argv);
    if (log_open("fake-worker", NULL, opt.quiet ? LOG_LEVEL_WARNING : LOG_LEVEL_INFO, &e) < 0 || file_owner_self(&self, &e) < 0)
        fake_die(&e);
    loop = ev_default_loop(0);
    names = names_create(loop, &e);
    if (names == NULL)
        fake_die(&e);
    fake_descriptors(opt.pull ? 8 * opt.count + 64 : opt.count + 64);
    start_ns = clock_mono_ns();
    workers = mem_array(opt.count, sizeof(*workers));
    for (unsigned i = 0; i < opt.count; i++)
        worker_start(&workers[i], i);
    ev_signal_init(&usr1, on_usr1, SIGUSR1);
    ev_signal_start(loop, &usr1);
    ev_timer_init(&check, on_check, 0.05, 0.05);
    ev_timer_start(loop, &check);
    fake_run(loop);
    show();
    for (unsigned i = 0; i < opt.count; i++)
        worker_end(&workers[i]);
    HASH_ITER(hh, seen, s, next) {
        HASH_DEL(seen, s);
        free(s);
    }
    HASH_ITER(hh, keys, k, next_key) {
        HASH_DEL(keys, k);
        free(k);
    }
    free(workers);
    names_destroy(names);
    log_close();
    return 0;
}
