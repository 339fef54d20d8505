/* link.c - the connection to sluiced
 *
 * From: sluiced (orders), held.c, intake.c, deliver.c, report.c (what is to be said).  To: intake.c, device.c, deliver.c.
 * Nothing here waits: what cannot be sent because there is no connection is either kept in the table of held TFs (Done, Failed: sent again after
 * each registration) or comes with the registration itself (phases).
 */
#include "config.h"
#include "link.h"

#include "chan.h"
#include "check.h"
#include "clock.h"
#include "deliver.h"
#include "device.h"
#include "file.h"
#include "frame.h"
#include "intake.h"
#include "log.h"
#include "mem.h"
#include "outcheck.h"
#include "peer.h"
#include "report.h"
#include "resize.h"
#include "str.h"
#include "worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOG_LINES = 500, NAME_TIMEOUTS = 3 };
#define ANSWER_S 5.0                             /* from Register to Registered */

struct link {
    struct worker *worker;
    struct connector *connector;
    struct chan *chan;                           /* not NULL: ready */
    bool     up, tried;                          /* registered now; a connection was tried and ended */
    uint64_t connection;
    struct ev_timer answer;
    struct file_owner self;
    int64_t  lost_at;                            /* wall ns */
    int64_t  in_use_since;                       /* mono ns: another worker lives under our name; 0: not that we know */
    char     why[512];
    void   (*registered)(void *arg);
    void    *arg;
};

bool link_is_up(const struct link *l)
{
    return l != NULL && l->up;
}

const char *link_trouble(const struct link *l, int64_t *since)
{
    if (l == NULL || l->up || !l->tried)
        return NULL;
    *since = l->lost_at;
    return l->why;
}

void link_reply(struct link *l, uint32_t id, const ProtobufCMessage *m)
{
    if (link_is_up(l))
        chan_send(l->chan, id, m);
}

void link_send(struct link *l, const ProtobufCMessage *m)
{
    if (link_is_up(l))
        chan_send(l->chan, 0, m);
}

void link_answer(struct link *l, struct held *h)
{
    const struct frame_type *t = frame_type(h->answer_type);
    struct err e;

    if (!link_is_up(l))
        return;
    ProtobufCMessage *m = frame_unpack(t, h->answer, h->answer_size, &e);
    if (m == NULL) {
        log_err("%s: its answer cannot be sent: %s", held_text(h), e.text);
        return;
    }
    chan_send(l->chan, 0, m);
    protobuf_c_message_free_unpacked(m, NULL);
}

/* ---- orders ------------------------------------------------------------------------------------------ */

static struct held *held_of(struct link *l, const Sluice__Tf *tf, const Sluice__Fence *f)
{
    struct tf_name name;
    struct fence fence;

    if (tf_name_from(tf, &name) < 0 || fence_from(f, &fence) < 0)
        return NULL;
    return held_find(&l->worker->held, name, fence);
}

static void on_registered(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__Registered *m = arg;
    struct held *h, *next;

    (void)id;
    if (l->up)
        return;
    ev_timer_stop(l->worker->loop, &l->answer);
    l->up = true;
    l->in_use_since = 0;
    l->why[0] = '\0';
    log_info("sluiced: registered as node %s%s", l->worker->node, m->has_added && !m->added ? "; not added to the farm yet" : "");
    /* one that says nothing of it knows only nodes that work */
    devices_park(l->worker->devices, m->has_parking ? m->parking : SLUICE__PARKING__DEVICES_WORK, m->parking_order);
    works_lapse(&l->worker->works);
    for (size_t i = 0; i < m->n_forget; i++) {
        h = held_of(l, m->forget[i]->tf, m->forget[i]->fence);
        if (h != NULL)
            held_forget(h);
    }
    HASH_ITER(hh, l->worker->held.table, h, next) {
        if (h->phase == SLUICE__PHASE__REPORTED && !h->silent)
            link_answer(l, h);
    }
    report_first(l->worker->report);
    l->registered(l->arg);
}

static void on_settings(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__Settings *m = arg;
    struct worker *w = l->worker;

    (void)id;
    if (m->pool != NULL)
        snprintf(w->pool_name, sizeof w->pool_name, "%s", m->pool);
    if (m->has_nice && m->nice >= -20 && m->nice <= 19) {
        w->nice_wanted = m->nice;
        devices_nice(w->devices);
    }
    devices_off(w->devices, m->devices_off, m->n_devices_off);
    checks_take(w->checks, m->checks);
    if (m->has_shm_order && m->shm_order != 0 && m->shm_size >= BUFFER_LEAST)
        resize_order(w->resize, m->shm_order, m->shm_size);
    if (m->has_parking)
        devices_park(w->devices, m->parking, m->parking_order);
    worker_changed(w);
}

static void on_run_open(struct link *l, uint32_t id, const void *arg)
{
    struct err e;

    (void)id;
    if (works_open(&l->worker->works, arg, &l->worker->conf->limits, &e) == NULL)
        log_warning("sluiced: %s", e.text);
    devices_nice(l->worker->devices);            /* its level may be another one now */
}

static void on_run_close(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__RunClose *m = arg;
    struct work *work = works_find(&l->worker->works, m->run, m->job);

    (void)id;
    if (work == NULL)
        return;
    intake_close(l->worker->intake, work);
    works_close(&l->worker->works, work);
}

static void on_assign(struct link *l, uint32_t id, const void *arg)
{
    (void)id;
    intake_assign(l->worker->intake, arg);
}

static void on_verdict(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__Verdict *m = arg;
    struct held *h = held_of(l, m->tf, m->fence);

    (void)id;
    if (h == NULL)
        deliver_stray(l->worker->deliver, m);
    else if (h->phase != SLUICE__PHASE__REPORTED || h->silent)
        log_debug("%s: a verdict that was not asked for", held_text(h));
    else if (m->accepted)
        deliver_accept(h);
    else
        deliver_discard(h);
}

static void on_cancel(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__Cancel *m = arg;
    struct held *h = held_of(l, m->tf, m->fence);

    (void)id;
    if (h != NULL)
        held_cancel(h, m->reason);
}

struct lines { char **line; size_t n, cap; };

static void add_line(void *arg, const char *line)
{
    struct lines *s = arg;

    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->line = mem_grow(s->line, s->cap, sizeof *s->line);
    }
    s->line[s->n] = mem_strdup(line);
    str_mend(s->line[s->n], strlen(s->line[s->n]));
    s->n++;
}

static void on_log_query(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__LogQuery *m = arg;
    Sluice__LogLines out = SLUICE__LOG_LINES__INIT;
    struct lines s = { 0 };
    size_t want = m->has_lines && m->lines > 0 && m->lines < LOG_LINES ? m->lines : LOG_LINES;

    log_recent(add_line, &s);
    size_t skip = s.n > want ? s.n - want : 0;
    out.n_lines = s.n - skip;
    out.lines = s.n > 0 ? s.line + skip : NULL;
    chan_send(l->chan, id, &out.base);
    for (size_t i = 0; i < s.n; i++)
        free(s.line[i]);
    free(s.line);
}

static void on_check_output(struct link *l, uint32_t id, const void *arg)
{
    outcheck_take(l->worker, id, arg);
}

/* One that crashed with its machine is called lost after contact_timeout; one that is in contact for much longer lives, and the name is its own. */
static bool name_is_taken(struct link *l, const char *word)
{
    double limit = NAME_TIMEOUTS * l->worker->conf->limits.contact_timeout;

    if (word == NULL || strcmp(word, "NameInUse") != 0 || HASH_COUNT(l->worker->held.table) > 0)
        return false;
    if (l->in_use_since == 0)
        l->in_use_since = clock_mono_ns();
    return (double)(clock_mono_ns() - l->in_use_since) > limit * (double)CLOCK_SECOND;
}

static void on_error(struct link *l, uint32_t id, const void *arg)
{
    const Sluice__Error *m = arg;

    (void)id;
    snprintf(l->why, sizeof l->why, "sluiced refused: %.400s", m->text ? m->text : "no reason given");
    log_err("%s", l->why);
    worker_changed(l->worker);
    if (!l->up && name_is_taken(l, m->word)) {
        log_err("node %s: one worker per farm and node name; this one ends", l->worker->node);
        worker_stop(l->worker, ERR_STATE);
    }
}

static const struct { unsigned type; bool before; void (*handle)(struct link *l, uint32_t id, const void *m); } orders[] = {
    { SLUICE__TYPE__REGISTERED, true,  on_registered },
    { SLUICE__TYPE__ERROR,      true,  on_error },
    { SLUICE__TYPE__SETTINGS,   true,  on_settings },
    { SLUICE__TYPE__RUN_OPEN,   false, on_run_open },
    { SLUICE__TYPE__RUN_CLOSE,  false, on_run_close },
    { SLUICE__TYPE__ASSIGN,     false, on_assign },
    { SLUICE__TYPE__VERDICT,    false, on_verdict },
    { SLUICE__TYPE__CANCEL,     false, on_cancel },
    { SLUICE__TYPE__LOG_QUERY,  true,  on_log_query },
    { SLUICE__TYPE__CHECK_OUTPUT, false, on_check_output },
};

static void message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct link *l = arg;

    (void)c, (void)fds, (void)n_fds;
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        if (orders[i].type == type && (l->up || orders[i].before)) {
            orders[i].handle(l, id, m);
            return;
        }
    }
    log_warning("sluiced: sent a message of type %u that does not belong here: passed over", type);
}

/* ---- coming and going ------------------------------------------------------------------------------- */

static Sluice__Held *held_message(struct held *h, struct tf_id *id)
{
    Sluice__Held *m = mem_zalloc(sizeof *m);

    sluice__held__init(m);
    tf_id_fill(id, h->key.name, h->key.fence);
    m->tf = &id->tf;
    m->fence = &id->fence;
    m->has_phase = m->has_bytes = 1;
    m->phase = h->phase;
    m->bytes = h->bytes;
    return m;
}

static void send_register(struct link *l, Sluice__Held **list, size_t n)
{
    struct worker *w = l->worker;
    Sluice__Register m = SLUICE__REGISTER__INIT;
    Sluice__Incarnation inc = SLUICE__INCARNATION__INIT;
    unsigned n_dev = devices_count(w->devices);
    Sluice__Device *dev = mem_array(n_dev, sizeof *dev), **devs = mem_array(n_dev, sizeof *devs);
    int32_t *nice = mem_array(n_dev, sizeof *nice);
    char host[256] = "";

    gethostname(host, sizeof host - 1);
    inc.boot_id = l->self.boot_id;
    inc.has_start = inc.has_pid = 1;
    inc.start = l->self.start;
    inc.pid = (uint32_t)l->self.pid;
    n_dev = devices_fill(w->devices, dev, nice);
    for (unsigned i = 0; i < n_dev; i++)
        devs[i] = &dev[i];
    m.node = (char *)w->node;
    m.class_ = w->class->name;
    m.incarnation = &inc;
    m.has_connection = m.has_memory = m.has_buffer_size = m.has_generation = m.has_building_limit = m.has_high_water = 1;
    m.connection = ++l->connection;
    m.n_devices = n_dev;
    m.devices = devs;
    m.memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    m.buffer_size = buffer_size(w->buffer);
    m.generation = buffer_generation(w->buffer);
    m.n_held = n;
    m.held = list;
    m.host = host;
    m.building_limit = w->conf->worker.building_limit;
    m.high_water = w->conf->worker.high_water;
    m.has_checks_output = m.checks_output = m.has_sweeps_output = m.sweeps_output = m.has_publishes_for_others = m.publishes_for_others = 1;
    chan_send(l->chan, 1, &m.base);
    free(dev);
    free(devs);
    free(nice);
}

static void ready(void *arg, struct chan *c, const Sluice__Welcome *welcome, const Sluice__Ready *r)
{
    struct link *l = arg;
    const struct offset *clock = chan_clock(c);
    struct held *h, *next;
    size_t n = 0, count = HASH_COUNT(l->worker->held.table);
    Sluice__Held **list = mem_array(count + 1, sizeof *list);
    struct tf_id *id = mem_array(count + 1, sizeof *id);

    (void)welcome, (void)r;
    l->chan = c;
    if (clock->known && (clock->low > 2 || clock->high < -2))
        log_warning("sluiced: its clock is %.1f s %s ours; times in the two logs differ as much", clock->low > 2 ? offset_value(clock) : -offset_value(clock), clock->low > 2 ? "ahead of" : "behind");
    HASH_ITER(hh, l->worker->held.table, h, next) {
        if (!h->silent) {
            list[n] = held_message(h, &id[n]);
            n++;
        }
    }
    send_register(l, list, n);
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
    free(id);
    ev_timer_init(&l->answer, l->answer.cb, ANSWER_S, 0);
    ev_timer_start(l->worker->loop, &l->answer);
}

static void no_answer(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct link *l = t->data;

    (void)loop, (void)revents;
    log_warning("sluiced: no answer to the registration within %.0f s; connecting anew", ANSWER_S);
    if (l->chan != NULL)
        chan_close_after_send(l->chan, 0.01);
}

static void lost(void *arg, const struct err *why)
{
    struct link *l = arg;
    struct worker *w = l->worker;
    bool was_up = l->up;

    ev_timer_stop(w->loop, &l->answer);
    l->up = false;
    l->tried = true;
    l->chan = NULL;
    if (was_up)
        l->lost_at = clock_wall_ns();
    if (was_up || strncmp(l->why, "sluiced refused", 15) != 0)
        snprintf(l->why, sizeof l->why, "no connection to sluiced at %.150s: %.300s", w->server,
                 why->code == ERR_NONE ? "it closed the connection" : why->text);
    if (was_up)
        log_err("%s; %u TFs are kept, %s", l->why, HASH_COUNT(w->held.table), w->fail_on_loss ? "the worker ends, as it was told to" : "connecting again");
    worker_changed(w);
    if (was_up && w->fail_on_loss)
        worker_stop(w, ERR_UNREACHABLE);
}

struct link *link_create(struct worker *w, void (*registered)(void *arg), void *arg, struct err *e)
{
    struct link *l = mem_zalloc(sizeof *l);
    struct connector_conf conf = {
        .loop = w->loop, .names = w->names, .address = w->server, .method = w->method, .role = SLUICE__ROLE__WORKER,
        .name = w->node, .events = { .ready = ready, .message = message, .lost = lost }, .arg = l,
    };

    l->worker = w;
    l->registered = registered;
    l->arg = arg;
    l->lost_at = clock_wall_ns();
    snprintf(l->why, sizeof l->why, "not connected to sluiced yet");
    ev_init(&l->answer, no_answer);
    l->answer.data = l;
    if (file_owner_self(&l->self, e) < 0 || (l->connector = connector_create(&conf, e)) == NULL) {
        link_destroy(l);
        return NULL;
    }
    return l;
}

void link_destroy(struct link *l)
{
    if (l == NULL)
        return;
    ev_timer_stop(l->worker->loop, &l->answer);
    connector_destroy(l->connector);
    free(l);
}
