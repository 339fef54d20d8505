/* worker.c - fake-worker: hundreds of workers in one process that speak the real protocol and only pretend to work
 *
 * From: sluiced (Assign, Verdict, Cancel, …).  To: sluiced (Register, Report, Built, Done, …); one line of JSON to stdout at the end.
 * Each worker has a buffer that is a number, devices that are timers, and a digest that follows from run and TF alone, so that
 * any two workers agree. Misbehaviour is scripted by options. Always: what a worker holds is what it tells at Register, and what
 * its Report counts; every Assign ends in one Refused, Done or Failed, unless an option says otherwise.
 */
#include "config.h"

#include "worker.h"
#include "clock.h"
#include "fake.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "names.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ev_loop *loop;
struct worker *workers;
struct totals all;
static struct names *names;
static struct file_owner self;
static int64_t start_ns;

double now_s(void) { return (double)(clock_mono_ns() - start_ns) / 1e9; }

bool every(unsigned k, uint64_t n) { return k > 0 && n % k == 0; }

bool is_full(const struct worker *w)
{
    double t = now_s();

    return opt.full_s > 0 && w->number == opt.full_worker && t >= opt.full_from && t < opt.full_from + opt.full_s;
}

void tell(struct worker *w, const ProtobufCMessage *m)
{
    struct chan *c = connector_chan(w->link);

    if (c && w->registered)
        chan_send(c, 0, m);
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
    snprintf(serial, 96, "%.20s-%s-%u", opt.machine == NULL ? "fake" : opt.machine, w->name, i);
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
void report_soon(struct worker *w)
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
    inc.boot_id = opt.machine == NULL ? self.boot_id : (char *)(uintptr_t)opt.machine;
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

/* ---- start and end ---- */

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
    connector_destroy(w->link);
    held_drop_all(w);
    fetcher_destroy(w->fetcher);
    ev_timer_stop(loop, &w->report);
    ev_timer_stop(loop, &w->resize);
}

int main(int argc, char **argv)
{
    struct err e;
    ev_timer check;
    ev_signal usr1;

    options_read(argc, argv);
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
    seen_free();
    free(workers);
    names_destroy(names);
    log_close();
    return 0;
}
