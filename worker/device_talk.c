/* device_talk.c - the conversation with a device's reconstruction process (doc/reco-contract.md)
 *
 * From: device.c (TFs), the processes.  To: deliver.c (results), held.c (failures), device.c (a process that breaks the contract is ended).
 */
#include "config.h"
#include "device_part.h"

#include "clock.h"
#include "deliver.h"
#include "file.h"
#include "frame.h"
#include "log.h"
#include "mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what it is told ---------------------------------------------------------------------------------- */

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
    device_post(d, DEVICE_ASK);
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
    device_post(d, DEVICE_GO);
    chan_send(d->chan, 0, &m.base);
    free(extent);
    free(list);
}

void talk_give(struct device *d)
{
    d->said_from = child_wrote(d->child);
    if (known(d, d->held->work) < 0)
        ask(d, d->held->work);
    else
        go(d);
}

void talk_cancel(struct device *d)
{
    Sluice__Cancel m = SLUICE__CANCEL__INIT;
    struct tf_id id;

    tf_id_fill(&id, d->held->key.name, d->held->key.fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.reason = d->held->cancelled;
    chan_send(d->chan, 0, &m.base);
}

void talk_forget(struct device *d)
{
    for (unsigned i = 0; i < RECIPES; i++) {
        free(d->recipe[i].recipe);
        d->recipe[i].recipe = NULL;
    }
}

/* ---- what the process says -------------------------------------------------------------------------- */

static bool is_ours(const struct device *d, const Sluice__Tf *tf, const Sluice__Fence *f)
{
    struct tf_name name;
    struct fence fence;

    return d->held != NULL && tf_name_from(tf, &name) == 0 && fence_from(f, &fence) == 0 &&
           memcmp(&name, &d->held->key.name, sizeof name) == 0 && fence_cmp(fence, d->held->key.fence) == 0;
}

static void ready(struct device *d, const Sluice__RecoReady *m)
{
    if (d->state != DEVICE_BOOT) {
        device_doom(d, "Crashed", "its process said twice that it is ready");
        return;
    }
    worker_text(d->software, sizeof d->software, m->software && m->software[0] ? m->software : "unknown");
    if (m->device != NULL && m->device->has_memory)
        d->memory = m->device->memory;
    d->boot_failures = 0;
    d->why[0] = '\0';
    d->domain = m->device != NULL && m->device->has_numa_actual ? m->device->numa_actual : -2;
    device_post(d, DEVICE_READY);
    d->nice_told = NICE_UNKNOWN;                 /* between fork and exec it may have taken the one it was started with */
    device_set_nice(d);
    log_info("device %s: ready, pid %d, %s", d->serial, child_pid(d->child), d->software);
    device_look_where(d);
    if (d->misplaced[0] != '\0')
        log_warning("device %s: %s", d->serial, d->misplaced);
    if (d->generation != buffer_generation(d->all->worker->buffer))
        talk_reattach(d);
    devices_pump(d->all);
}

static void workflow_answer(struct device *d, uint32_t id, const Sluice__Error *refused)
{
    if (d->state != DEVICE_SETUP || id != d->asked + 1) {
        device_doom(d, "Crashed", "its process answered what was not asked");
        return;
    }
    if (refused == NULL) {
        if (d->cancel_at == 0) {
            go(d);
            return;
        }
        struct held *late = device_take_off(d);
        device_post(d, DEVICE_RESULT);
        held_fail(late, "Cancelled", NULL, d->serial, NULL, "%s", late->cancelled);
        devices_pump(d->all);
        return;
    }
    free(d->recipe[d->asked].recipe);
    d->recipe[d->asked].recipe = NULL;
    struct held *h = device_take_off(d);
    device_post(d, DEVICE_RESULT);
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
        device_doom(d, "Crashed", "its process answered for a TF that it does not have");
        return;
    }
    if (deliver_check(m, fds, n_fds, &e) < 0) {
        device_doom(d, "Crashed", e.text);
        return;
    }
    struct held *h = device_take_off(d);
    h->processed = clock_mono_ns();
    d->crashes = 0;
    take_pinned(d, m->pinned);
    measure(d, (double)(h->processed - d->begun) / 1e9);
    times_add(d->all->times, h->work->recipe, h->bytes, (double)(h->processed - d->begun) / 1e9);
    device_post(d, DEVICE_RESULT);
    deliver_take(h, m, fds, d->serial, d->software);
    devices_pump(d->all);
}

static void failed(struct device *d, const Sluice__RecoFailed *m)
{
    if (d->state != DEVICE_RUN || !is_ours(d, m->tf, m->fence)) {
        device_doom(d, "Crashed", "its process answered for a TF that it does not have");
        return;
    }
    bool cancelled = d->cancel_at != 0;
    struct held *h = device_take_off(d);
    device_post(d, DEVICE_RESULT);
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
        device_doom(d, "Crashed", "its process sent what does not belong there");
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
        device_doom(d, "Crashed", text);
        return;
    }
    device_post(d, DEVICE_KILL);
    child_leaves(d->child, GRACE_S);
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

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
    m->nice = device_nice(d);
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

void talk_reattach(struct device *d)
{
    struct err e;
    int fd;

    if (d->state != DEVICE_IDLE || d->chan == NULL || !buffer_is_open(d->all->worker->buffer))
        return;
    fd = buffer_reader(d->all->worker->buffer, &e);
    if (fd < 0) {
        device_doom(d, "Crashed", e.text);
        return;
    }
    talk_forget(d);
    device_post(d, DEVICE_ATTACH);
    send_open(d, fd);
}

void talk_open(struct device *d, int socket, int buffer)
{
    static const struct chan_events events = { .message = message, .closed = closed };
    const struct chan_limits limits = { .beat_s = -1, .dead_s = -1 };     /* it computes: it cannot answer in the meantime */

    file_set_cloexec_nonblock(socket);
    d->chan = chan_create(d->all->worker->loop, socket, &limits, &events, d);
    chan_known(d->chan);
    chan_allow(d->chan, 1u << SLUICE__ROLE__RECO);
    send_open(d, buffer);
}
