/* device.c - the node's devices, a reconstruction process each
 *
 * From: intake.c (built TFs), watch.c (ends of processes), the processes.  To: deliver.c (results), crash.c (what killed a process), held.c (failures).
 * A process may crash, hang, lie or ignore signals: that ends the attempt on which it was, its process, and nothing else. A TF is given to a device
 * only when the device is idle, so the oldest TF goes to whichever is free first.
 */
#include "config.h"
#include "device.h"

#include "chan.h"
#include "clock.h"
#include "crash.h"
#include "deliver.h"
#include "file.h"
#include "frame.h"
#include "log.h"
#include "mem.h"
#include "place.h"
#include "times.h"
#include "watch.h"
#include "worker.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RECIPES = 8 };                            /* that a process keeps at a time; the one used longest ago is replaced */

#define BOOT_S   60.0                            /* from its start to RecoReady; a GPU takes its time */
#define SETUP_S  60.0                            /* from RecoWorkflow to its answer */
#define CANCEL_S 1.0                             /* from Cancel to an answer */
#define GRACE_S  0.5                             /* from TERM to KILL */
#define UNCLEAN_S 2.0                            /* that a driver may take to give back what an ended process had */
#define TRIES    3                               /* ends before RecoReady in a row that make a device broken; it is tried on */

struct device {
    struct devices *all;
    char     serial[96], class[64], software[64], backend[16];      /* backend: "" for one on the CPU */
    bool     emulated;
    bool     off;                                /* a mark took it out: nothing new */
    bool     unclean;                            /* its memory is not free, or not known to be: no process is started */
    double   nominal;                            /* s, 0: none */
    uint64_t memory;
    int      numa;                               /* of a real one; -1: not known */
    struct place place;                          /* where its process belongs */
    int      domain;                             /* from which that takes its memory: -1 from any, -2 not known */
    char     cpus[128], misplaced[256];          /* as it was when it was shown last */
    Sluice__Pinned pinned; char pinned_why[300]; /* what its process said last */
    bool     has_pinned;
    enum device_state state;
    struct child *child;
    struct chan  *chan;
    uint64_t generation;                         /* of the buffer, as its process was told */
    struct { char *recipe; uint64_t used; } recipe[RECIPES];     /* used: turn of the last TF of it */
    unsigned asked;                              /* place of the recipe that was asked for last */
    struct held *held;
    char     stage[96];                          /* that it said last */
    int64_t  since;                              /* worker_now of the last sign of life in this state */
    int64_t  cancel_at;                          /* 0: not asked to give up */
    int64_t  begun;                              /* monotonic, of the run */
    char     doom_word[24], doom[256];           /* why we end it: the word for its TF */
    char     why[256];                           /* why it does not work, for reports */
    struct ev_timer again;
    unsigned boot_failures, crashes;             /* in a row */
    uint64_t restarts, stalls;
    double   seconds_per_tf;
    bool     measured;
};

struct devices {
    struct worker *worker;
    struct device *device; unsigned n;
    TAILQ_HEAD(, held) queue;
    struct times *times;
    bool started, stopping;
    uint64_t turn;
};

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
static void post(struct device *d, enum device_event event)
{
    if (device_next(d->state, event, &d->state) < 0) {
        log_err("device %s: event %d does not fit state %d", d->serial, event, d->state);
        abort();
    }
    d->since = worker_now(d->all->worker);
    worker_changed(d->all->worker);
}

static bool broken(const struct device *d)
{
    return d->unclean || d->state == DEVICE_STUCK || (d->boot_failures >= TRIES && (d->state == DEVICE_DOWN || d->state == DEVICE_BOOT ||
                                                                     d->state == DEVICE_ENDING));
}

/* ---- the end of an attempt, the end of a process --------------------------------------------------- */

/* The TF that is on the device, taken off it. */
static struct held *take_off(struct device *d)
{
    struct held *h = d->held;

    d->held = NULL;
    d->cancel_at = 0;
    if (h != NULL)
        h->device = NULL;
    return h;
}

/* Ends the process; the TF on it fails with this word once it is gone. */
static void doom(struct device *d, const char *word, const char *text)
{
    if (d->state == DEVICE_ENDING || d->state == DEVICE_STUCK || d->state == DEVICE_DOWN)
        return;
    snprintf(d->doom_word, sizeof d->doom_word, "%s", word);
    snprintf(d->doom, sizeof d->doom, "%s", text);
    log_warning("device %s: pid %d is ended: %s", d->serial, child_pid(d->child), text);
    post(d, DEVICE_KILL);
    child_end(d->child, GRACE_S);
}

static void fail_held(struct device *d, const char *how)
{
    struct held *h = take_off(d);
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

static void forget_recipes(struct device *d)
{
    for (unsigned i = 0; i < RECIPES; i++) {
        free(d->recipe[i].recipe);
        d->recipe[i].recipe = NULL;
    }
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
    if (d->state == DEVICE_BOOT || (d->state == DEVICE_ENDING && d->software[0] == '\0')) {
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
    forget_recipes(d);
    post(d, DEVICE_GONE);
    if (!d->all->stopping) {
        d->restarts++;
        d->all->worker->restarts++;
        d->again.repeat = back_off(d);
        ev_timer_again(d->all->worker->loop, &d->again);
    }
}

static void stuck(void *arg, const char *what)
{
    struct device *d = arg;

    post(d, DEVICE_HELD_ON);
    worker_text(d->why, sizeof d->why, what);
    fail_held(d, what);
}

/* ---- what the process says -------------------------------------------------------------------------- */

static void go(struct device *d);

static bool is_ours(const struct device *d, const Sluice__Tf *tf, const Sluice__Fence *f)
{
    struct tf_name name;
    struct fence fence;

    return d->held != NULL && tf_name_from(tf, &name) == 0 && fence_from(f, &fence) == 0 &&
           memcmp(&name, &d->held->key.name, sizeof name) == 0 && fence_cmp(fence, d->held->key.fence) == 0;
}

/* Where its process is now, and what of that is not as wanted. */
static void look_where(struct device *d)
{
    cpu_set_t cpus;

    d->cpus[0] = d->misplaced[0] = '\0';
    if (d->child != NULL && d->software[0] != '\0' && place_cpus(child_pid(d->child), &cpus, d->cpus, sizeof d->cpus))
        place_compare(&d->place, &cpus, d->cpus, d->domain, d->misplaced, sizeof d->misplaced);
}

static void reattach(struct device *d);

static void ready(struct device *d, const Sluice__RecoReady *m)
{
    if (d->state != DEVICE_BOOT) {
        doom(d, "Crashed", "its process said twice that it is ready");
        return;
    }
    worker_text(d->software, sizeof d->software, m->software && m->software[0] ? m->software : "unknown");
    if (m->device != NULL && m->device->has_memory)
        d->memory = m->device->memory;
    d->boot_failures = 0;
    d->why[0] = '\0';
    d->domain = m->device != NULL && m->device->has_numa_actual ? m->device->numa_actual : -2;
    post(d, DEVICE_READY);
    log_info("device %s: ready, pid %d, %s", d->serial, child_pid(d->child), d->software);
    look_where(d);
    if (d->misplaced[0] != '\0')
        log_warning("device %s: %s", d->serial, d->misplaced);
    if (d->generation != buffer_generation(d->all->worker->buffer))
        reattach(d);
    devices_pump(d->all);
}

static void workflow_answer(struct device *d, uint32_t id, const Sluice__Error *refused)
{
    if (d->state != DEVICE_SETUP || id != d->asked + 1) {
        doom(d, "Crashed", "its process answered what was not asked");
        return;
    }
    if (refused == NULL) {
        if (d->cancel_at == 0) {
            go(d);
            return;
        }
        struct held *late = take_off(d);
        post(d, DEVICE_RESULT);
        held_fail(late, "Cancelled", NULL, d->serial, NULL, "%s", late->cancelled);
        devices_pump(d->all);
        return;
    }
    free(d->recipe[d->asked].recipe);
    d->recipe[d->asked].recipe = NULL;
    struct held *h = take_off(d);
    post(d, DEVICE_RESULT);
    held_fail(h, refused->word && refused->word[0] ? refused->word : "BackendUnavailable", NULL, d->serial, NULL, "%s",
              refused->text ? refused->text : "the workflow was refused");
    devices_pump(d->all);
}

static void measure(struct device *d, double seconds)
{
    d->seconds_per_tf = d->measured ? 0.8 * d->seconds_per_tf + 0.2 * seconds : seconds;
    d->measured = true;
}

/* What of the buffer is pinned for it. */
static void take_pinned(struct device *d, const Sluice__Pinned *m)
{
    bool short_before = d->has_pinned && d->pinned.actual < d->pinned.wanted;

    if (m == NULL)
        return;
    worker_text(d->pinned_why, sizeof d->pinned_why, m->text);
    d->pinned = *m;
    d->pinned.base.n_unknown_fields = 0;
    d->pinned.base.unknown_fields = NULL;
    d->pinned.text = d->pinned_why[0] != '\0' ? d->pinned_why : NULL;
    d->has_pinned = true;
    if (m->actual < m->wanted && !short_before)
        log_warning("device %s: %" PRIu64 " of %" PRIu64 " bytes of the buffer are pinned%s%s", d->serial, m->actual, m->wanted,
                    d->pinned_why[0] ? ": " : "", d->pinned_why);
}

static void done(struct device *d, const Sluice__RecoDone *m, int *fds, unsigned n_fds)
{
    struct err e;

    if (d->state != DEVICE_RUN || !is_ours(d, m->tf, m->fence)) {
        doom(d, "Crashed", "its process answered for a TF that it does not have");
        return;
    }
    if (deliver_check(m, fds, n_fds, &e) < 0) {
        doom(d, "Crashed", e.text);
        return;
    }
    struct held *h = take_off(d);
    h->processed = clock_mono_ns();
    d->crashes = 0;
    take_pinned(d, m->pinned);
    measure(d, (double)(h->processed - d->begun) / 1e9);
    times_add(d->all->times, h->work->recipe, h->bytes, (double)(h->processed - d->begun) / 1e9);
    post(d, DEVICE_RESULT);
    deliver_take(h, m, fds, d->serial, d->software);
    devices_pump(d->all);
}

static void failed(struct device *d, const Sluice__RecoFailed *m)
{
    if (d->state != DEVICE_RUN || !is_ours(d, m->tf, m->fence)) {
        doom(d, "Crashed", "its process answered for a TF that it does not have");
        return;
    }
    bool cancelled = d->cancel_at != 0;
    struct held *h = take_off(d);
    post(d, DEVICE_RESULT);
    held_fail(h, cancelled ? "Cancelled" : m->word && m->word[0] ? m->word : "BadInput", m->stage, d->serial, NULL, "%s",
              m->text ? m->text : "no reason given");
    devices_pump(d->all);
}

static void message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct device *d = arg;

    (void)c;
    switch (type) {
    case SLUICE__TYPE__RECO_READY:
        ready(d, (const Sluice__RecoReady *)m);
        break;
    case SLUICE__TYPE__OK:
        workflow_answer(d, id, NULL);
        break;
    case SLUICE__TYPE__ERROR:
        workflow_answer(d, id, (const Sluice__Error *)m);
        break;
    case SLUICE__TYPE__RECO_STAGE: {
        const Sluice__RecoStage *s = (const Sluice__RecoStage *)m;
        worker_text(d->stage, sizeof d->stage, s->stage);
        d->since = worker_now(d->all->worker);
        break;
    }
    case SLUICE__TYPE__RECO_DONE:
        done(d, (const Sluice__RecoDone *)m, fds, n_fds);
        break;
    case SLUICE__TYPE__RECO_FAILED:
        failed(d, (const Sluice__RecoFailed *)m);
        break;
    default:
        doom(d, "Crashed", "its process sent what does not belong there");
    }
}

/* Usually it is dead already, and SIGCHLD will say of what. */
static void closed(void *arg, struct chan *c, const struct err *why)
{
    struct device *d = arg;
    char text[200];

    chan_destroy(c);
    d->chan = NULL;
    if (d->state == DEVICE_ENDING || d->state == DEVICE_STUCK || d->state == DEVICE_DOWN)
        return;
    if (why->code == ERR_PROTOCOL) {
        snprintf(text, sizeof text, "its process: %.150s", why->text);
        doom(d, "Crashed", text);
        return;
    }
    post(d, DEVICE_KILL);
    child_leaves(d->child, GRACE_S);
}

/* ---- starting a process ------------------------------------------------------------------------------- */

/* As the pool says, but behind the loop. */
static int nice_of(const struct worker *w)
{
    return priority_behind(&w->priority, w->nice_wanted);
}

static void fill_open(struct device *d, Sluice__RecoOpen *m, Sluice__Device *dev)
{
    const struct worker *w = d->all->worker;

    sluice__reco_open__init(m);
    sluice__device__init(dev);
    dev->serial = (char *)d->serial;
    dev->class_ = (char *)d->class;
    dev->has_emulated = 1;
    dev->emulated = d->emulated;
    dev->has_nominal = d->nominal > 0;
    dev->nominal = d->nominal;
    dev->backend = d->backend[0] ? (char *)d->backend : NULL;
    m->has_major = m->has_buffer_size = m->has_generation = m->has_nice = 1;
    m->major = PROTO_MAJOR;
    m->buffer_size = buffer_size(w->buffer);
    m->generation = d->generation = buffer_generation(w->buffer);
    m->device = dev;
    m->node = (char *)w->node;
    m->nice = nice_of(w);
    m->has_pin_must = 1;
    m->pin_must = w->conf->worker.pin_must;
}

/* Tells it of the buffer; takes the descriptor. */
static void send_open(struct device *d, int fd)
{
    Sluice__RecoOpen m;
    Sluice__Device dev;

    fill_open(d, &m, &dev);
    chan_send_fds(d->chan, 0, &m.base, &fd, 1);
    close(fd);
}

/* Socket pair, buffer, process; what fails leaves nothing. */
static int boot(struct device *d, struct err *e)
{
    static const struct chan_events events = { .message = message, .closed = closed };
    const struct chan_limits limits = { .beat_s = -1, .dead_s = -1 };     /* it computes: it cannot answer in the meantime */
    struct worker *w = d->all->worker;
    const char *argv[] = { w->reco, "attach", "--fd", "3", NULL };
    struct child_conf conf = { .argv = argv, .name = d->serial, .nice = nice_of(w), .place = &d->place, .ended = ended, .stuck = stuck,
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
    file_set_cloexec_nonblock(pair[0]);
    d->chan = chan_create(w->loop, pair[0], &limits, &events, d);
    chan_known(d->chan);
    chan_allow(d->chan, 1u << SLUICE__ROLE__RECO);
    send_open(d, fd);
    return 0;
}

/* An idle process maps the buffer as it is now; one that cannot is replaced. */
static void reattach(struct device *d)
{
    struct err e;
    int fd;

    if (d->state != DEVICE_IDLE || d->chan == NULL || !buffer_is_open(d->all->worker->buffer))
        return;
    fd = buffer_reader(d->all->worker->buffer, &e);
    if (fd < 0) {
        doom(d, "Crashed", e.text);
        return;
    }
    forget_recipes(d);
    post(d, DEVICE_ATTACH);
    send_open(d, fd);
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

static void start(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct device *d = t->data;
    struct err e;

    (void)revents;
    ev_timer_stop(loop, t);
    if (d->all->stopping || d->state != DEVICE_DOWN || !buffer_is_open(d->all->worker->buffer) || !memory_is_free(d))
        return;
    if (boot(d, &e) == 0) {
        post(d, DEVICE_SPAWN);
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

/* ---- giving work ---------------------------------------------------------------------------------------- */

/* The place of the TF's recipe in the process; -1: it does not know it. */
static int known(const struct device *d, const struct work *work)
{
    for (int i = 0; i < RECIPES; i++) {
        if (d->recipe[i].recipe != NULL && strcmp(d->recipe[i].recipe, work->recipe) == 0)
            return i;
    }
    return -1;
}

/* Tells it the recipe, in the place of the one that was used longest ago. */
static void ask(struct device *d, const struct work *work)
{
    Sluice__RecoWorkflow m = SLUICE__RECO_WORKFLOW__INIT;
    unsigned at = 0;

    for (unsigned i = 1; i < RECIPES; i++) {
        if (d->recipe[at].recipe != NULL && (d->recipe[i].recipe == NULL || d->recipe[i].used < d->recipe[at].used))
            at = i;
    }
    free(d->recipe[at].recipe);
    d->recipe[at].recipe = mem_strdup(work->recipe);
    d->asked = at;
    m.has_id = 1;
    m.id = at;
    m.workflow = work->workflow;
    m.backends = work->backends;
    m.options = work->options;
    post(d, DEVICE_ASK);
    chan_send(d->chan, at + 1, &m.base);
}

static void go(struct device *d)
{
    struct held *h = d->held;
    struct worker *w = d->all->worker;
    Sluice__RecoRun m = SLUICE__RECO_RUN__INIT;
    Sluice__Extent *extent = mem_array(h->n_segments, sizeof *extent), **list = mem_array(h->n_segments, sizeof *list);
    struct tf_id id;
    int at = known(d, h->work);

    for (unsigned i = 0; i < h->n_segments; i++) {
        sluice__extent__init(&extent[i]);
        extent[i].has_offset = extent[i].has_size = 1;
        extent[i].offset = h->segment[i].offset;
        extent[i].size = h->segment[i].size;
        list[i] = &extent[i];
    }
    tf_id_fill(&id, h->key.name, h->key.fence);
    m.has_workflow_id = 1;
    m.workflow_id = (uint64_t)at;
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.n_segments = h->n_segments;
    m.segments = list;
    m.has_generation = 1;
    m.generation = buffer_generation(w->buffer);
    d->recipe[at].used = ++d->all->turn;
    d->stage[0] = '\0';
    d->begun = clock_mono_ns();
    h->started = d->begun;
    post(d, DEVICE_GO);
    chan_send(d->chan, 0, &m.base);
    free(extent);
    free(list);
}

static void give(struct device *d, struct held *h)
{
    TAILQ_REMOVE(&d->all->queue, h, queue);
    held_phase(h, SLUICE__PHASE__PROCESSING);
    h->device = d;
    d->held = h;
    if (known(d, h->work) < 0)
        ask(d, h->work);
    else
        go(d);
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

void devices_pump(struct devices *all)
{
    bool any = all_off(all);

    for (unsigned i = 0; i < all->n && !all->stopping; i++) {
        struct held *h = TAILQ_FIRST(&all->queue);
        if (h == NULL || !deliver_has_room(all->worker->deliver))
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
    Sluice__Cancel m = SLUICE__CANCEL__INIT;
    struct tf_id id;

    if (h->phase == SLUICE__PHASE__QUEUED) {
        TAILQ_REMOVE(&all->queue, h, queue);
        return;
    }
    if (d == NULL || d->cancel_at != 0 || d->chan == NULL)
        return;
    tf_id_fill(&id, h->key.name, h->key.fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.reason = h->cancelled;
    d->cancel_at = worker_now(all->worker);
    chan_send(d->chan, 0, &m.base);
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
    doom(d, stalled ? "Stalled" : "TimedOut", text);
}

static void judge(struct device *d, int64_t now)
{
    double s = (double)(now - d->since) / 1e9;
    char text[200];

    if (d->state == DEVICE_BOOT && s > BOOT_S) {
        snprintf(text, sizeof text, "not ready within %.0f s", BOOT_S);
        doom(d, "Crashed", text);
    } else if (d->state == DEVICE_SETUP && s > SETUP_S) {
        snprintf(text, sizeof text, "workflow %.60s was not set up within %.0f s", d->held->work->workflow, SETUP_S);
        doom(d, "TimedOut", text);
    } else if (d->cancel_at != 0 && (double)(now - d->cancel_at) / 1e9 > CANCEL_S && (d->state == DEVICE_RUN || d->state == DEVICE_SETUP)) {
        doom(d, "Cancelled", "cancelled, and its process did not give up by itself");
    } else if (d->state == DEVICE_RUN) {
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

    for (unsigned i = 0; i < all->n; i++)
        judge(&all->device[i], now);
    if (!all->stopping && all->started && devices_usable(all) == 0)
        fail_queue(all);
    devices_pump(all);
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static struct device *device_init(struct devices *all, const char *serial)
{
    struct device *d = &all->device[all->n++];

    d->all = all;
    d->numa = -1;
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
            start(all->worker->loop, &all->device[i].again, 0);
    }
}

void devices_reattach(struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++)
        reattach(&all->device[i]);
    if (all->started)
        devices_offer(all);
}

struct devices *devices_create(struct worker *w)
{
    struct devices *all = mem_zalloc(sizeof *all);

    all->worker = w;
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
            post(d, DEVICE_KILL);
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
        forget_recipes(&all->device[i]);
    }
    times_destroy(all->times);
    free(all->device);
    free(all);
}

void devices_nice(struct devices *all)
{
    for (unsigned i = 0; i < all->n; i++) {
        if (all->device[i].child != NULL)
            child_set_nice(all->device[i].child, nice_of(all->worker));
    }
    worker_changed(all->worker);
}

unsigned devices_count(const struct devices *all)
{
    return all->n;
}

unsigned devices_usable(const struct devices *all)
{
    unsigned n = 0;
    for (unsigned i = 0; i < all->n; i++)
        n += !broken(&all->device[i]);
    return n;
}

const char *device_serial(const struct device *d)
{
    return d->serial;
}

static Sluice__DeviceState shown(const struct device *d)
{
    if (d->unclean)
        return SLUICE__DEVICE_STATE__DEVICE_UNCLEAN;
    if (broken(d))
        return SLUICE__DEVICE_STATE__DEVICE_BROKEN;
    switch (d->state) {
    case DEVICE_IDLE:
        return SLUICE__DEVICE_STATE__DEVICE_FREE;
    case DEVICE_SETUP:
    case DEVICE_RUN:
        return SLUICE__DEVICE_STATE__DEVICE_BUSY;
    default:
        return SLUICE__DEVICE_STATE__DEVICE_STARTING;
    }
}

static void fill_place(struct device *d, Sluice__Device *m)
{
    look_where(d);
    m->has_numa = d->numa >= 0;
    m->numa = d->numa;
    m->has_numa_wanted = d->place.domain >= 0;
    m->numa_wanted = d->place.domain;
    m->cpus_wanted = d->place.domain >= 0 ? d->place.text : NULL;
    m->has_numa_actual = d->cpus[0] != '\0' && d->domain >= -1;
    m->numa_actual = d->domain;
    m->cpus_actual = d->cpus[0] != '\0' ? d->cpus : NULL;
    m->misplaced = d->misplaced[0] != '\0' ? d->misplaced : NULL;
}

/* What is known of the memory of a real one. */
static void fill_memory(const struct device *d, Sluice__Device *m)
{
    const struct gpu *gpu = gpus_find(d->all->worker->gpus, d->serial);

    m->pinned = d->has_pinned ? (Sluice__Pinned *)&d->pinned : NULL;
    m->backend = d->backend[0] ? (char *)d->backend : NULL;
    if (gpu == NULL || !gpu->measured)
        return;
    m->has_memory_used = m->has_memory_baseline = 1;
    m->memory_used = gpu->device.used;
    m->memory_baseline = gpu->baseline;
    m->n_pids = gpu->device.n_pids;
    m->pids = (uint32_t *)(void *)gpu->device.pid;
}

void devices_fill(struct devices *all, Sluice__Device *out, int32_t *nice)
{
    for (unsigned i = 0; i < all->n; i++) {
        struct device *d = &all->device[i];
        Sluice__Device *m = &out[i];

        sluice__device__init(m);
        m->serial = (char *)d->serial;
        m->class_ = (char *)d->class;
        m->has_emulated = m->has_state = m->has_restarts = m->has_stalls = 1;
        m->emulated = d->emulated;
        m->state = shown(d);
        m->restarts = d->restarts;
        m->stalls = d->stalls;
        m->has_memory = d->memory > 0;
        m->memory = d->memory;
        m->has_nominal = d->nominal > 0;
        m->nominal = d->nominal;
        m->has_seconds_per_tf = d->seconds_per_tf > 0;
        m->seconds_per_tf = d->seconds_per_tf;
        m->why = d->why[0] && broken(d) ? (char *)d->why : NULL;
        fill_memory(d, m);
        fill_place(d, m);
        m->has_pid = d->child != NULL;
        m->pid = d->child ? (uint32_t)child_pid(d->child) : 0;
        nice[i] = d->child ? child_nice(d->child) : 0;
    }
}
