/* device.c - the node's devices: their states, the start and the end of their processes, which TF goes to which
 *
 * From: intake.c (built TFs), watch.c (ends of processes), device_talk.c (answers).  To: device_talk.c (TFs), crash.c (what killed a process), held.c (failures).
 * A process may crash, hang, lie or ignore signals: that ends the attempt on which it was, its process, and nothing else. A TF is given to a device
 * only when the device is idle, so the oldest TF goes to whichever is free first.
 */
#include "config.h"
#include "device_part.h"

#include "crash.h"
#include "deliver.h"
#include "log.h"
#include "mem.h"
#include "str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SAID_MOST = 4096 };       /* bytes of what a process printed that go with a TF */

#define BOOT_S   60.0                            /* from its start to RecoReady; a GPU takes its time */
#define SETUP_S  60.0                            /* from RecoWorkflow to its answer */
#define CANCEL_S 1.0                             /* from Cancel to an answer */
#define UNCLEAN_S 2.0                            /* that a driver may take to give back what an ended process had */
#define TRIES    3                               /* ends before RecoReady in a row that make a device broken; it is tried on */

/* ---- states ------------------------------------------------------------------------------------- */

static const struct { enum device_event event; enum device_state from, to; } step[] = {
    { DEVICE_SPAWN,   DEVICE_DOWN,   DEVICE_BOOT },
    { DEVICE_READY,   DEVICE_BOOT,   DEVICE_IDLE },
    { DEVICE_ATTACH,  DEVICE_IDLE,   DEVICE_BOOT },
    { DEVICE_ASK,     DEVICE_IDLE,   DEVICE_SETUP },
    { DEVICE_GO,      DEVICE_IDLE,   DEVICE_RUN },
    { DEVICE_GO,      DEVICE_SETUP,  DEVICE_RUN },
    { DEVICE_RESULT,  DEVICE_RUN,    DEVICE_IDLE },
    { DEVICE_RESULT,  DEVICE_SETUP,  DEVICE_IDLE },
    { DEVICE_KILL,    DEVICE_BOOT,   DEVICE_ENDING },
    { DEVICE_KILL,    DEVICE_IDLE,   DEVICE_ENDING },
    { DEVICE_KILL,    DEVICE_SETUP,  DEVICE_ENDING },
    { DEVICE_KILL,    DEVICE_RUN,    DEVICE_ENDING },
    { DEVICE_HELD_ON, DEVICE_ENDING, DEVICE_STUCK },
    { DEVICE_GONE,    DEVICE_BOOT,   DEVICE_DOWN },
    { DEVICE_GONE,    DEVICE_IDLE,   DEVICE_DOWN },
    { DEVICE_GONE,    DEVICE_SETUP,  DEVICE_DOWN },
    { DEVICE_GONE,    DEVICE_RUN,    DEVICE_DOWN },
    { DEVICE_GONE,    DEVICE_ENDING, DEVICE_DOWN },
    { DEVICE_GONE,    DEVICE_STUCK,  DEVICE_DOWN },
};

int device_next(enum device_state from, enum device_event event, enum device_state *to)
{
    for (size_t i = 0; i < ARRAY_LEN(step); i++) {
        if (step[i].event == event && step[i].from == from) {
            *to = step[i].to;
            return 0;
        }
    }
    return -1;
}

/* An event that does not fit is a mistake of ours. */
void device_post(struct device *d, enum device_event event)
{
    if (device_next(d->state, event, &d->state) < 0) {
        log_err("device %s: event %d does not fit state %d", d->serial, event, d->state);
        abort();
    }
    d->since = worker_now(d->all->worker);
    if (event == DEVICE_GO)
        d->given = d->since;
    worker_changed(d->all->worker);
}

bool device_is_broken(const struct device *d)
{
    return d->unclean || d->state == DEVICE_STUCK || (d->boot_failures >= TRIES && (d->state == DEVICE_DOWN || d->state == DEVICE_BOOT ||
                                                                     d->state == DEVICE_ENDING));
}

/* ---- the end of an attempt, the end of a process --------------------------------------------------- */

struct held *device_take_off(struct device *d)
{
    struct held *h = d->held;

    d->held = NULL;
    d->cancel_at = 0;
    if (h != NULL) {
        const char *said = d->child != NULL ? child_tail_since(d->child, d->said_from, SAID_MOST) : "";

        h->device = NULL;
        free(h->said);
        h->said = said[0] == '\0' ? NULL : mem_strdup(said);
        if (h->said != NULL)
            str_mend(h->said, strlen(h->said));
    }
    return h;
}

void device_doom(struct device *d, const char *word, const char *text)
{
    if (d->state == DEVICE_ENDING || d->state == DEVICE_STUCK || d->state == DEVICE_DOWN)
        return;
    snprintf(d->doom_word, sizeof d->doom_word, "%s", word);
    snprintf(d->doom, sizeof d->doom, "%s", text);
    log_warning("device %s: pid %d is ended: %s", d->serial, child_pid(d->child), text);
    device_post(d, DEVICE_KILL);
    child_end(d->child, GRACE_S);
}

static void fail_held(struct device *d, const char *how)
{
    struct held *h = device_take_off(d);
    char text[512];

    if (h == NULL)
        return;
    if (d->doom_word[0] != '\0')
        snprintf(text, sizeof text, "%s", d->doom);
    else
        snprintf(text, sizeof text, "the reconstruction process ended: %s", how);
    const char *word = d->doom_word[0] ? d->doom_word : "Crashed";
    if (strcmp(word, "Cancelled") == 0 || d->all->stopping) {
        held_fail(h, word, d->stage, d->serial, NULL, "%s", text);
        return;
    }
    const struct crash c = { .word = word, .text = text, .stage = d->stage, .device = d->serial, .how = how,
                             .tail = child_tail(d->child), .software = d->software };
    crash_keep(h, &c);
}

static double back_off(const struct device *d)
{
    unsigned n = d->boot_failures > d->crashes ? d->boot_failures : d->crashes;
    double s = n > 1 ? 0.1 * pow(2, n < 10 ? n - 1 : 9) : 0.02;
    return s > 30 ? 30 : s;
}

static void ended(void *arg, int status, const char *how)
{
    struct device *d = arg;

    (void)status;
    if (!d->all->stopping && d->doom_word[0] == '\0')
        log_warning("device %s: its process ended: %s", d->serial, how);
    if (!d->leaving && (d->state == DEVICE_BOOT || (d->state == DEVICE_ENDING && d->software[0] == '\0'))) {
        d->boot_failures++;
        snprintf(d->why, sizeof d->why, "its process ended before it was ready: %.120s", d->doom[0] ? d->doom : how);
    }
    if (d->held != NULL && strcmp(d->doom_word, "Cancelled") != 0)
        d->crashes++;
    fail_held(d, how);
    chan_destroy(d->chan);
    d->chan = NULL;
    d->child = NULL;
    d->doom[0] = d->doom_word[0] = d->stage[0] = d->software[0] = '\0';
    d->has_pinned = false;
    talk_forget(d);
    device_post(d, DEVICE_GONE);
    if (!d->all->stopping) {
        d->restarts += !d->leaving;
        d->all->worker->restarts += !d->leaving;
        d->leaving = false;
        d->again.repeat = back_off(d);
        ev_timer_again(d->all->worker->loop, &d->again);
    }
}

static void stuck(void *arg, const char *what)
{
    struct device *d = arg;
    char text[300];

    device_post(d, DEVICE_HELD_ON);
    snprintf(text, sizeof text, "unkillable on %s, %s", d->all->worker->node, what);
    worker_text(d->why, sizeof d->why, text);
    snprintf(d->doom_word, sizeof d->doom_word, "Unkillable");
    snprintf(d->doom, sizeof d->doom, "%.255s", d->why);
    fail_held(d, d->why);
}

/* ---- starting a process ------------------------------------------------------------------------------- */

/* Socket pair, buffer, process; what fails leaves nothing. */
static int boot(struct device *d, struct err *e)
{
    struct worker *w = d->all->worker;
    const char *argv[] = { w->reco, "attach", "--fd", "3", NULL };
    struct child_conf conf = { .argv = argv, .name = d->serial, .nice = device_nice(d), .place = &d->place, .ended = ended, .stuck = stuck,
                               .arg = d };
    int pair[2], fd = buffer_reader(w->buffer, e);

    if (fd < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0) {
        close(fd);
        return err_errno(e, ERR_FAILED, "device %s: no socket for its process", d->serial);
    }
    conf.socket = pair[1];
    d->child = child_start(w->watch, &conf, e);
    close(pair[1]);
    if (d->child == NULL) {
        close(pair[0]);
        close(fd);
        return -1;
    }
    d->nice_told = conf.nice;
    talk_open(d, pair[0], fd);
    return 0;
}

/* Whether what the last process had is free again; if not, devices_offer comes when there is news. */
static bool memory_is_free(struct device *d)
{
    char text[256];
    enum gpu_memory memory = gpus_memory(d->all->worker->gpus, d->serial, d->since, text, sizeof text);
    double waited = (double)(worker_now(d->all->worker) - d->since) / 1e9;
    bool unclean = memory == GPU_TAKEN && waited > UNCLEAN_S;

    if (memory == GPU_TAKEN)
        snprintf(d->why, sizeof d->why, "%s", text);
    if (unclean && !d->unclean)
        log_err("device %s: not offered: %s", d->serial, text);
    if (!unclean && d->unclean && memory == GPU_FREE)
        log_info("device %s: its memory is free again", d->serial);
    if (memory != GPU_ASKED)
        d->unclean = unclean;
    worker_changed(d->all->worker);
    return memory == GPU_FREE;
}

/* No process is wanted: parked, once its memory is free, or where that is not ours to look at. */
static void rest(struct device *d)
{
    if (d->all->parking == SLUICE__PARKING__DEVICES_AS_THEY_ARE)
        return;
    if (d->all->parking == SLUICE__PARKING__DEVICES_LENT)
        d->unclean = false;
    else if (!memory_is_free(d) && !device_is_missing(d))
        return;
    if (!d->parked)
        log_info("device %s: parked", d->serial);
    d->parked = true;
    d->why[0] = '\0';
    worker_changed(d->all->worker);
}

static void start(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct device *d = t->data;
    struct err e;

    (void)revents;
    ev_timer_stop(loop, t);
    if (d->all->stopping || d->state != DEVICE_DOWN || !buffer_is_open(d->all->worker->buffer))
        return;
    if (devices_rest(d->all)) {
        rest(d);
        return;
    }
    if (!memory_is_free(d))
        return;
    d->parked = false;
    if (boot(d, &e) == 0) {
        device_post(d, DEVICE_SPAWN);
        return;
    }
    d->boot_failures++;
    worker_text(d->why, sizeof d->why, e.text);
    if (d->boot_failures == 1)
        log_warning("%s; tried again", e.text);
    d->again.repeat = back_off(d);
    ev_timer_again(loop, &d->again);
    worker_changed(d->all->worker);
}

void device_start_soon(struct device *d)
{
    start(d->all->worker->loop, &d->again, 0);
}

/* ---- giving work ---------------------------------------------------------------------------------------- */

static void give(struct device *d, struct held *h)
{
    TAILQ_REMOVE(&d->all->queue, h, queue);
    held_phase(h, SLUICE__PHASE__PROCESSING);
    h->device = d;
    d->held = h;
    device_set_nice(d);                          /* before its first instruction for that TF */
    talk_give(d);
}

/* With every device off sluiced sends nothing more: what is here is still finished. */
static bool all_off(const struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (!all->device[i].off)
            return false;
    }
    return true;
}

static bool is_named(const char *serial, char *const *serials, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(serial, serials[i]) == 0)
            return true;
    }
    return false;
}

void devices_off(struct devices *all, char *const *serials, size_t n)
{
    for (unsigned i = 0; i < all->n; i++) {
        struct device *d = &all->device[i];
        bool off = is_named(d->serial, serials, n);

        if (off != d->off)
            log_info("device %s: %s", d->serial, off ? "marked: gets nothing new" : "no longer marked");
        d->off = off;
    }
    devices_pump(all);
}

/* The first in the queue whose result has somewhere to go. */
static struct held *oldest(struct devices *all)
{
    struct held *h;

    TAILQ_FOREACH(h, &all->queue, queue) {
        if (deliver_has_room(all->worker->deliver, h->key.name.job))
            return h;
    }
    return NULL;
}

void devices_give_back(struct devices *all, uint64_t job, const char *why)
{
    struct held *h, *next;

    for (h = TAILQ_FIRST(&all->queue); h; h = next) {
        next = TAILQ_NEXT(h, queue);
        if (h->key.name.job != job)
            continue;
        TAILQ_REMOVE(&all->queue, h, queue);
        held_fail(h, "Cancelled", NULL, NULL, NULL, "%s", why);
    }
}

void devices_pump(struct devices *all)
{
    bool any = all_off(all);

    for (unsigned i = 0; i < all->n && !all->stopping; i++) {
        struct held *h = oldest(all);
        if (h == NULL)
            return;
        if (all->device[i].state == DEVICE_IDLE && all->device[i].chan != NULL && (any || !all->device[i].off))
            give(&all->device[i], h);
    }
}

void devices_add(struct devices *all, struct held *h)
{
    held_phase(h, SLUICE__PHASE__QUEUED);
    TAILQ_INSERT_TAIL(&all->queue, h, queue);
    devices_pump(all);
}

void devices_cancel(struct devices *all, struct held *h)
{
    struct device *d = h->device;

    if (h->phase == SLUICE__PHASE__QUEUED) {
        TAILQ_REMOVE(&all->queue, h, queue);
        return;
    }
    if (d == NULL || d->cancel_at != 0 || d->chan == NULL)
        return;
    d->cancel_at = worker_now(all->worker);
    talk_cancel(d);
}

/* ---- deadlines -------------------------------------------------------------------------------------------- */

/* No sign of progress on the TF for s: stalled when that is many times what is usual for it, timed out at the latest. */
static void judge_progress(struct device *d, double s)
{
    const struct conf_worker *conf = &d->all->worker->conf->worker;
    const struct work *work = d->held->work;
    double usual = times_usual(d->all->times, work->recipe, d->held->bytes);
    double limit = usual * conf->stall_factor < conf->stall_min ? conf->stall_min : usual * conf->stall_factor;
    bool stalled = usual > 0 && s > limit;
    char text[200];

    if (!stalled && s <= work->process_timeout)
        return;
    if (stalled)
        snprintf(text, sizeof text, "no progress for %.1f s%s%s, where %.3g s are usual for a TF", s, d->stage[0] ? " in stage " : "", d->stage, usual);
    else
        snprintf(text, sizeof text, "no sign of life for %.1f s%s%s", s, d->stage[0] ? " in stage " : "", d->stage);
    d->stalls++;
    device_doom(d, stalled ? "Stalled" : "TimedOut", text);
}

/* The limit of the job holds however well it gets on. */
static bool is_over_time(struct device *d, int64_t now)
{
    double limit = d->held->work->time_limit, s = (double)(now - d->given) / 1e9;
    char text[200];

    if (limit <= 0 || s <= limit)
        return false;
    snprintf(text, sizeof text, "the job's time limit of %.15g s is over%s%s", limit, d->stage[0] ? ", in stage " : "", d->stage);
    device_doom(d, "TimedOut", text);
    return true;
}

static void judge(struct device *d, int64_t now)
{
    double s = (double)(now - d->since) / 1e9;
    char text[200];

    if (d->state == DEVICE_BOOT && s > BOOT_S) {
        snprintf(text, sizeof text, "not ready within %.0f s", BOOT_S);
        device_doom(d, "Crashed", text);
    } else if (d->state == DEVICE_SETUP && s > SETUP_S) {
        snprintf(text, sizeof text, "workflow %.60s was not set up within %.0f s", d->held->work->workflow, SETUP_S);
        device_doom(d, "TimedOut", text);
    } else if (d->cancel_at != 0 && (double)(now - d->cancel_at) / 1e9 > CANCEL_S && (d->state == DEVICE_RUN || d->state == DEVICE_SETUP)) {
        device_doom(d, "Cancelled", "cancelled, and its process did not give up by itself");
    } else if (d->state == DEVICE_RUN && !is_over_time(d, now)) {
        judge_progress(d, s);
    }
}

/* Nobody will work on them here. */
static void fail_queue(struct devices *all)
{
    struct held *h;
    const char *why = all->n > 0 ? all->device[0].why : "none is known";

    while ((h = TAILQ_FIRST(&all->queue)) != NULL) {
        TAILQ_REMOVE(&all->queue, h, queue);
        held_fail(h, "BackendUnavailable", NULL, NULL, NULL, "no device of this node works: %s", why);
    }
}

void devices_tick(struct devices *all)
{
    int64_t now = worker_now(all->worker);

    for (unsigned i = 0; i < all->n; i++) {
        judge(&all->device[i], now);
        if (all->device[i].held == NULL)
            device_set_nice(&all->device[i]);    /* whom it worked for has no more: the pool's again */
    }
    if (!all->stopping && all->started && devices_usable(all) == 0)
        fail_queue(all);
    devices_pump(all);
    devices_park_step(all);
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static struct device *device_init(struct devices *all, const char *serial)
{
    struct device *d = &all->device[all->n++];

    d->all = all;
    d->numa = -1;
    d->nice_told = d->nice_refused = NICE_UNKNOWN;
    snprintf(d->serial, sizeof d->serial, "%s", serial);
    snprintf(d->class, sizeof d->class, "%s", all->worker->class->name);
    ev_init(&d->again, start);
    d->again.data = d;
    return d;
}

static void add_on_cpu(struct devices *all)
{
    const struct conf_class *class = all->worker->class;
    char serial[96];

    for (unsigned i = 0; i < class->devices; i++) {
        snprintf(serial, sizeof serial, "%s-%.63s-%u", class->nominal_ms > 0 ? "emu" : "cpu", all->worker->node, i);
        struct device *d = device_init(all, serial);
        d->emulated = class->nominal_ms > 0;
        d->nominal = d->seconds_per_tf = class->nominal_ms / 1000;
        place_spread(all->worker->topology, i, class->devices, &d->place);
    }
}

void devices_found(struct devices *all, const struct gpu *list, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct device *d = device_init(all, list[i].device.id);
        snprintf(d->backend, sizeof d->backend, "%s", list[i].device.backend);
        snprintf(d->arch, sizeof d->arch, "%s", list[i].device.class);
        d->memory = list[i].device.memory;
        d->numa = list[i].device.numa;
        d->since = worker_now(all->worker);
        place_near(all->worker->topology, d->serial, d->numa, &d->place);
        if (all->started)
            start(all->worker->loop, &d->again, 0);
    }
    worker_changed(all->worker);
}

uint64_t devices_domains(const struct devices *all)
{
    uint64_t domains = 0;

    for (unsigned i = 0; i < all->n; i++) {
        if (all->device[i].place.domain >= 0)
            domains |= UINT64_C(1) << all->device[i].place.domain;
    }
    return domains;
}

void devices_offer(struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (all->device[i].state == DEVICE_DOWN && !ev_is_active(&all->device[i].again))
            device_start_soon(&all->device[i]);
    }
}

void devices_reattach(struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++)
        talk_reattach(&all->device[i]);
    if (all->started)
        devices_offer(all);
}

struct devices *devices_create(struct worker *w)
{
    struct devices *all = mem_zalloc(sizeof *all);

    all->worker = w;
    all->parking = SLUICE__PARKING__DEVICES_AS_THEY_ARE;
    all->device = mem_array(QUERY_DEVICES_MAX, sizeof *all->device);
    all->times = times_create();
    TAILQ_INIT(&all->queue);
    if (!gpus_are_real(w))
        add_on_cpu(all);
    return all;
}

void devices_start(struct devices *all)
{
    all->started = true;
    for (unsigned i = 0; i < all->n; i++)
        start(all->worker->loop, &all->device[i].again, 0);
}

void devices_stop(struct devices *all)
{
    all->stopping = true;
    for (unsigned i = 0; i < all->n; i++) {
        struct device *d = &all->device[i];
        ev_timer_stop(all->worker->loop, &d->again);
        if (d->child != NULL && d->state != DEVICE_ENDING && d->state != DEVICE_STUCK) {
            snprintf(d->doom_word, sizeof d->doom_word, "Cancelled");
            snprintf(d->doom, sizeof d->doom, "the worker stops");
            device_post(d, DEVICE_KILL);
            child_end(d->child, GRACE_S);
        }
    }
}

bool devices_stopped(const struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (all->device[i].child != NULL)
            return false;
    }
    return true;
}

void devices_destroy(struct devices *all)
{
    if (all == NULL)
        return;
    for (unsigned i = 0; i < all->n; i++) {
        ev_timer_stop(all->worker->loop, &all->device[i].again);
        chan_destroy(all->device[i].chan);
        talk_forget(&all->device[i]);
    }
    times_destroy(all->times);
    free(all->device);
    free(all);
}

unsigned devices_count(const struct devices *all)
{
    return all->n;
}

unsigned devices_usable(const struct devices *all)
{
    unsigned n = 0;
    for (unsigned i = 0; i < all->n; i++)
        n += !device_is_broken(&all->device[i]);
    return n;
}
