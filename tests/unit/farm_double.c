/* farm_double.c - the farm half and the writer, played for the tests of the flow half */
#include "config.h"
#include "farm_double.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "chan.h"
#include "clock.h"
#include "events.h"
#include "frame.h"
#include "health.h"
#include "helper.h"
#include "mem.h"
#include "move.h"
#include "nice.h"
#include "rights.h"

struct world world;

/* ---- what the farm half is for the flow half ------------------------------------------------- */

const char *const pool_name[2] = { "online", "async" };

struct farm { int unused; };
struct history { int unused; };
struct counters { struct tally *t; };
static struct counters the_counters;

void counters_add(struct counters *c, const char *name, uint64_t n)
{
    tally_add(&c->t, name, n);
}

uint64_t counters_get(const struct counters *c, const char *name)
{
    for (const struct tally *t = c->t; t; t = t->next) {
        if (strncmp(t->word, name, sizeof(t->word) - 1) == 0)
            return t->n;
    }
    return 0;
}

struct node *farm_first(struct farm *f)
{
    (void)f;
    for (unsigned i = 0; i < world.n_nodes; i++)
        world.node[i].hh.next = i + 1 < world.n_nodes ? &world.node[i + 1] : NULL;
    return world.n_nodes > 0 ? &world.node[0] : NULL;
}

struct node *farm_node(struct farm *f, const char *name)
{
    (void)f;
    for (unsigned i = 0; i < world.n_nodes; i++) {
        if (strcmp(world.node[i].name, name) == 0)
            return &world.node[i];
    }
    return NULL;
}

int nice_of_pool(const struct sluiced *d, int pool)
{
    return d->conf->pools[pool].nice;
}

int nice_check(struct session *s, int level, struct err *e)
{
    (void)s, (void)level, (void)e;
    return 0;
}

bool rights_nice_range(const struct rights *r, const char *user, const gid_t *groups, unsigned n, int *min, int *max)
{
    (void)r, (void)user, (void)groups, (void)n, (void)min, (void)max;
    return false;
}

void node_judge(const struct node *n, struct verdict *v)
{
    memset(v, 0, sizeof(*v));
    v->usable = n->session != NULL && TAILQ_EMPTY(&n->marks);
    v->devices_usable = 1;
}

void node_emptied(struct node *n)
{
    assert_int_equal(n->n_tfs, 0);
    world.emptied++;
}

void node_changed(struct node *n)
{
    flow_node_changed(n);
}

/* Health has tests of its own: here nobody is to blame. */
double health_failed(struct doubt **on, struct node *n, const char *device, const char *word, const char *text)
{
    (void)on;
    (void)n;
    (void)device;
    (void)word;
    (void)text;
    return 0;
}

void health_done(struct doubt **on, struct node *n, bool is_job, uint64_t work, double seconds, uint64_t bytes)
{
    (void)on;
    (void)n;
    (void)is_job;
    (void)work;
    (void)seconds;
    (void)bytes;
}

void health_dropped(struct doubt **on)
{
    (void)on;
}

bool health_samples(struct node *n)
{
    (void)n;
    return world.sampled;
}

void health_wrong(struct node *n, const char *device, bool is_job, uint64_t work, uint64_t tf, const char *wrong, const char *right, const char *evidence)
{
    (void)device;
    world.wrong++;
    world.wrong_node = n;
    snprintf(world.wrong_text, sizeof(world.wrong_text), "%s %llu TF %llu: %s, right %s: %s", is_job ? "job" : "run", (unsigned long long)work, (unsigned long long)tf, wrong,
             right, evidence);
}

void health_refused(struct node *n, const char *word, const char *text)
{
    (void)n;
    (void)word;
    (void)text;
}

void move_wait(struct session *s, uint32_t id, const void *m)
{
    (void)m;
    session_ok(s, id);
}

struct event *event_create(const char *node, const char *who, const char *what, const char *before, const char *after, const char *reason)
{
    struct event *ev = mem_zalloc(sizeof(*ev));

    (void)node;
    (void)before;
    (void)reason;
    ev->who = mem_strdup(who);
    ev->what = mem_strdup(what);
    ev->after = mem_strdup(after);
    return ev;
}

void event_destroy(struct event *ev)
{
    if (ev == NULL)
        return;
    free(ev->who);
    free(ev->what);
    free(ev->after);
    free(ev);
}

int event_write(struct event *ev, struct db *db, struct err *e)
{
    struct row_event row = { .time = 1, .who = ev->who, .what = ev->what, .after = ev->after };

    return rows_put_event(db, &row, e);
}

void history_add(struct history *h, struct event *ev)
{
    (void)h;
    event_destroy(ev);
}

uint64_t history_seq(const struct history *h)
{
    (void)h;
    return 1;
}

/* At once, instead of in a thread; or when the test says so. */
struct late { struct late *next; void (*work)(void *arg), (*done)(void *arg); void *arg; };

int helper_run(struct helper *h, void (*work)(void *arg), void (*done)(void *arg), void *arg, struct err *e)
{
    (void)h;
    (void)e;
    if (world.slow_helper) {
        struct late *x = mem_zalloc(sizeof(*x)), **p = &world.late;
        *x = (struct late){ NULL, work, done, arg };
        while (*p)
            p = &(*p)->next;
        *p = x;
        return 0;
    }
    work(arg);
    done(arg);
    return 0;
}

bool world_help(void)
{
    struct late *x = world.late;

    if (x == NULL)
        return false;
    world.late = x->next;
    x->work(x->arg);
    x->done(x->arg);
    free(x);
    return true;
}

/* ---- sessions ------------------------------------------------------------------------------- */

/* The linker puts it in chan_send's place (--wrap), whether or not something else of chan.c is linked. */
int __wrap_chan_send(struct chan *c, uint32_t id, const ProtobufCMessage *m);

int __wrap_chan_send(struct chan *c, uint32_t id, const ProtobufCMessage *m)
{
    if (c->dead)
        return -1;
    struct sent *s = mem_zalloc(sizeof(*s));

    s->m = proto_copy(m);
    s->id = id;
    TAILQ_INSERT_TAIL(&c->sent, s, entry);
    return 0;
}

void session_answer(struct session *s, uint32_t id, ProtobufCMessage *m)
{
    __wrap_chan_send(s->chan, id, m);
}

void session_ok(struct session *s, uint32_t id)
{
    Sluice__Ok m = SLUICE__OK__INIT;

    session_answer(s, id, &m.base);
}

void session_error(struct session *s, uint32_t id, const struct err *e, const char *word)
{
    Sluice__Error m = SLUICE__ERROR__INIT;

    m.has_code = true;
    m.code = e->code;
    m.text = (char *)e->text;
    m.word = (char *)word;
    session_answer(s, id, &m.base);
}

void session_busy(struct session *s, uint32_t id, const char *text, unsigned retry_ms)
{
    Sluice__Error m = SLUICE__ERROR__INIT;

    m.has_code = m.has_retry_ms = true;
    m.code = ERR_STATE;
    m.text = (char *)text;
    m.word = "Busy";
    m.retry_ms = retry_ms;
    session_answer(s, id, &m.base);
}

void session_close(struct session *s, const char *why)
{
    (void)why;
    s->chan->dead = true;
}

struct session_ref session_refer(struct session *s, uint32_t id)
{
    return (struct session_ref){ s->d, s->number, id };
}

struct session *session_find(struct session_ref r)
{
    for (struct peer *p = world.peers; p; p = p->next) {
        if (p->open && p->s.number == r.number)
            return &p->s;
    }
    return NULL;
}

const char *session_author(const struct session *s, char out[96])
{
    snprintf(out, 96, "%s (uid %u)", s->peer.user, s->peer.uid);
    return out;
}

struct session *world_peer(const char *name)
{
    struct peer *p = mem_zalloc(sizeof(*p));

    p->open = true;
    p->next = world.peers;
    world.peers = p;
    TAILQ_INIT(&p->chan.sent);
    p->s = (struct session){ .d = &world.d, .chan = &p->chan, .number = ++world.numbers, .right = RIGHT_SHIFT };
    p->s.peer.uid = 1000;
    snprintf(p->s.peer.user, sizeof(p->s.peer.user), "anna");
    snprintf(p->s.name, sizeof(p->s.name), "%s", name);
    return &p->s;
}

static struct peer *peer_of(struct session *s)
{
    return CONTAINER_OF(s, struct peer, s);
}

void world_forget_sent(struct session *s)
{
    struct sent *x;

    while ((x = TAILQ_FIRST(&s->chan->sent))) {
        TAILQ_REMOVE(&s->chan->sent, x, entry);
        FREE(x->m);
        free(x);
    }
}

void *world_take(struct session *s, const ProtobufCMessageDescriptor *d)
{
    struct sent *x;

    TAILQ_FOREACH(x, &s->chan->sent, entry) {
        if (x->m->descriptor != d)
            continue;
        ProtobufCMessage *m = x->m;
        TAILQ_REMOVE(&s->chan->sent, x, entry);
        free(x);
        return m;
    }
    return NULL;
}

unsigned world_sent(struct session *s, const ProtobufCMessageDescriptor *d)
{
    struct sent *x;
    unsigned n = 0;

    TAILQ_FOREACH(x, &s->chan->sent, entry)
        n += x->m->descriptor == d;
    return n;
}

void world_hang_up(struct session *s)
{
    peer_of(s)->open = false;
    run_source_gone(s);
    world_forget_sent(s);
    s->chan->dead = true;
}

/* ---- the writer ------------------------------------------------------------------------------ */

void writer_put(struct writer *w, enum change_kind kind, int (*write)(struct db *db, void *arg, struct err *e),
                void (*then)(void *arg, int rc, const struct err *e), void *arg)
{
    struct err e;

    (void)w;
    if (kind == CHANGE_NEW && !world.writable) {
        err_set(&e, ERR_STATE, "the state is not writable");
        if (then)
            then(arg, -1, &e);
        return;
    }
    struct change *c = mem_zalloc(sizeof(*c));
    c->write = write;
    c->then = then;
    c->arg = arg;
    *world.last = c;
    world.last = &c->next;
    world.queued++;
}

bool writer_accepts_new(const struct writer *w)
{
    (void)w;
    return world.writable;
}

static void commit_some(unsigned n)
{
    struct change *done = NULL, **last = &done;
    struct err e;

    assert_int_equal(db_begin(world.db, &e), 0);
    for (; world.first && n > 0; n--) {
        struct change *c = world.first;
        world.first = c->next;
        if (world.first == NULL)
            world.last = &world.first;
        world.queued--;
        if (c->write(world.db, c->arg, &e) < 0)
            fail_msg("a change was not written: %s", e.text);
        c->next = NULL;
        *last = c;
        last = &c->next;
    }
    assert_int_equal(db_commit(world.db, &e), 0);
    while (done) {
        struct change *c = done;
        done = c->next;
        if (c->then)
            c->then(c->arg, 0, NULL);
        free(c);
    }
}

void world_commit_batch(void)
{
    if (world.first && world.writable)
        commit_some(world.queued);
}

void world_commit(void)
{
    while (world.first && world.writable)
        commit_some(world.queued);
}

/* ---- time, beginning and end ------------------------------------------------------------------ */

void world_turn(void)
{
    flow_turn(world.d.flow);
    world_commit();
    flow_turn(world.d.flow);
}

void world_pass(double s)
{
    for (double gone = 0; gone < s; gone += FLOW_TICK) {
        world.d.flow->now += FLOW_TICK;
        flow_tick(world.d.flow);
        world_turn();
    }
}

static void begin(void)
{
    struct err e;
    static double time = 1000;

    world.d.stopping = false;
    world.d.epoch = db_next_epoch(world.db, &e);
    world.d.flow = flow_create(&world.d);
    world.d.flow->now = time += 1000;
    world.d.runs = runs_create(&world.d, world.db, &e);
    if (world.d.runs == NULL)
        fail_msg("%s", e.text);
    world.d.jobs = jobs_create(&world.d, world.db, &e);
    if (world.d.jobs == NULL)
        fail_msg("%s", e.text);
}

static void end(void)
{
    struct err e;

    err_set(&e, ERR_STATE, "it ends");
    world.d.stopping = true;
    while (world.first) {
        struct change *c = world.first;
        world.first = c->next;
        if (c->then)
            c->then(c->arg, -1, &e);
        free(c);
    }
    world.last = &world.first;
    world.queued = 0;
    flow_destroy(world.d.flow);
    jobs_destroy(world.d.jobs);
    runs_destroy(world.d.runs);
    world.d.flow = NULL;
    world.d.jobs = NULL;
    world.d.runs = NULL;
}

void world_open(void)
{
    struct err e;

    memset(&world, 0, sizeof(world));
    world.last = &world.first;
    world.writable = true;
    snprintf(world.dir, sizeof(world.dir), "/tmp/flow-test-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    world.db = db_open(world.dir, NULL, &e);
    if (world.db == NULL)
        fail_msg("%s", e.text);
    world.conf = conf_read(NULL, &e);
    assert_non_null(world.conf);
    free(world.conf->state_dir);
    world.conf->state_dir = mem_strdup(world.dir);
    world.d.conf = world.conf;
    world.d.counters = &the_counters;
    begin();
}

static void peers_free(void)
{
    struct peer *p;

    while ((p = world.peers)) {
        world.peers = p->next;
        world_forget_sent(&p->s);
        free(p);
    }
}

static void registration_free(struct node *n)
{
    if (n->registered)
        sluice__register__free_unpacked(n->registered, NULL);
    n->registered = NULL;
}

void world_close(void)
{
    char command[128];

    end();
    peers_free();
    for (unsigned i = 0; i < world.n_nodes; i++)
        registration_free(&world.node[i]);
    tally_free(the_counters.t);
    the_counters.t = NULL;
    conf_destroy(world.conf);
    db_close(world.db);
    snprintf(command, sizeof(command), "rm -rf '%s'", world.dir);
    assert_int_equal(system(command), 0);
}

void world_restart(void)
{
    for (struct peer *p = world.peers; p; p = p->next) {
        p->open = false;
        p->chan.dead = true;
    }
    end();
    for (unsigned i = 0; i < world.n_nodes; i++) {
        world.node[i].session = NULL;
        world.node[i].n_tfs = 0;
        memset(&world.node[i].load, 0, sizeof(world.node[i].load));
        registration_free(&world.node[i]);
    }
    peers_free();
    begin();
}

/* ---- nodes ------------------------------------------------------------------------------------ */

struct node *world_node(const char *name, const char *class, int pool, uint64_t size)
{
    struct node *n = &world.node[world.n_nodes++];

    assert_true(world.n_nodes <= WORLD_NODES);
    n->d = &world.d;
    n->added = true;
    n->pool = n->wanted_pool = pool;
    n->shm_wanted = size;
    TAILQ_INIT(&n->marks);
    snprintf(n->name, sizeof(n->name), "%s", name);
    snprintf(n->class, sizeof(n->class), "%s", class);
    world_connect(n, NULL, 0, NULL);
    return n;
}

void world_connect_with(struct node *n, const Sluice__Held *held, size_t n_held, void (*forget)(void *arg, const Sluice__Held *h), void *arg)
{
    Sluice__Register reg = SLUICE__REGISTER__INIT;
    Sluice__Registered out = SLUICE__REGISTERED__INIT;
    const Sluice__Held **list = mem_array(n_held + 1, sizeof(*list));

    for (size_t i = 0; i < n_held; i++)
        list[i] = &held[i];
    n->session = world_peer(n->name);
    n->session->node = n;
    reg.node = n->name;
    reg.has_buffer_size = reg.has_building_limit = reg.has_high_water = true;
    reg.buffer_size = n->shm_wanted;
    reg.building_limit = 3;
    reg.high_water = 0.8;
    reg.held = (Sluice__Held **)list;
    reg.n_held = n_held;
    registration_free(n);
    n->registered = proto_copy(&reg.base);
    flow_node_changed(n);
    flow_worker_registered(n, n->registered, &out);
    for (size_t i = 0; forget && i < out.n_forget; i++)
        forget(arg, out.forget[i]);
    flow_registered_free(&out);
    free(list);
}

static void forget_id(void *arg, const Sluice__Held *h)
{
    idset_add(arg, h->tf->id);
}

void world_connect(struct node *n, const Sluice__Held *held, size_t n_held, struct idset *forget)
{
    world_connect_with(n, held, n_held, forget ? forget_id : NULL, forget);
}

void world_disconnect(struct node *n)
{
    struct session *s = n->session;

    n->session = NULL;
    flow_worker_disconnected(n);
    peer_of(s)->open = false;
    world_forget_sent(s);
    s->node = NULL;
}

/* ---- what must hold ---------------------------------------------------------------------------- */

static void line(void *arg, const char *name, bool ok, const char *text)
{
    (void)arg;
    if (!ok)
        fail_msg("%s: %s", name, text);
}

void world_check(void)
{
    flow_check(world.d.flow, line, NULL);
}

/* ---- shorthands -------------------------------------------------------------------------------- */

struct run *the_run(uint64_t id)
{
    return run_find(world.d.runs, id, true);
}

uint64_t start_run(struct session *client, Sluice__StartRun *m)
{
    uint64_t id = 0;

    run_start(client, 7, m);
    world_turn();
    Sluice__StartedRun *started = TAKE(client, sluice__started_run);
    if (started)
        id = started->id;
    FREE(started);
    return id;
}

struct session *join_source(uint64_t run, unsigned part, bool holds, uint64_t start)
{
    Sluice__Source m = SLUICE__SOURCE__INIT;
    Sluice__Incarnation i = SLUICE__INCARNATION__INIT;
    char name[32];
    struct session *s;
    static uint64_t connection;

    snprintf(name, sizeof(name), "source-%u", part);
    s = world_peer(name);
    i.boot_id = "boot";
    i.has_start = true;
    i.start = start;
    m.name = name;
    m.address = "unix:/run/source";
    m.has_run = m.has_part = m.has_holds = m.has_connection = true;
    m.run = run;
    m.part = part;
    m.holds = holds;
    m.connection = ++connection;
    m.incarnation = &i;
    run_source(s, 3, &m);
    return s;
}

void announce(struct session *source, uint64_t run, uint64_t first, unsigned n, uint64_t size, uint32_t orbit, uint64_t watermark)
{
    Sluice__Announce m = SLUICE__ANNOUNCE__INIT;
    Sluice__AnnounceRange r = SLUICE__ANNOUNCE_RANGE__INIT, *list = &r;
    uint32_t *orbits = mem_array(n + 1, sizeof(*orbits));

    for (unsigned i = 0; i < n; i++)
        orbits[i] = orbit + 32 * i;
    m.has_run = true;
    m.run = run;
    r.has_first = r.has_count = true;
    r.first = first;
    r.count = n;
    r.sizes = &size;
    r.n_sizes = 1;
    r.orbits = orbits;
    r.n_orbits = n;
    if (n) {
        m.ranges = &list;
        m.n_ranges = 1;
    }
    m.has_watermark = watermark != 0;
    m.watermark = watermark;
    run_announce(source, 0, &m);
    free(orbits);
}

void end_stream(struct session *source, uint64_t run, uint64_t watermark)
{
    Sluice__EndOfStream m = SLUICE__END_OF_STREAM__INIT;

    m.has_run = m.has_watermark = true;
    m.run = run;
    m.watermark = watermark;
    run_end_of_stream(source, 0, &m);
}

void answer_built(struct node *n, const Sluice__Assign *a)
{
    Sluice__Built m = SLUICE__BUILT__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    flow_built(n->session, 0, &m);
}

void answer_done(struct node *n, const Sluice__Assign *a, bool outputs)
{
    answer_done_with(n, a, outputs, "0123456789abcdef");
}

void answer_done_with(struct node *n, const Sluice__Assign *a, bool outputs, const char *digest)
{
    Sluice__Done m = SLUICE__DONE__INIT;
    Sluice__Output o = SLUICE__OUTPUT__INIT, *list = &o;

    m.tf = a->tf;
    m.fence = a->fence;
    m.digest = (char *)(uintptr_t)digest;
    m.has_process_seconds = true;
    m.process_seconds = 0.3;
    o.stage = "digits";
    if (outputs) {
        m.outputs = &list;
        m.n_outputs = 1;
    }
    flow_done(n->session, 0, &m);
}

void answer_failed(struct node *n, const Sluice__Assign *a, const char *word)
{
    Sluice__Failed m = SLUICE__FAILED__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    m.word = (char *)word;
    m.text = "as the test wants it";
    flow_failed(n->session, 0, &m);
}

void answer_refused(struct node *n, const Sluice__Assign *a, const char *word)
{
    Sluice__Refused m = SLUICE__REFUSED__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    m.word = (char *)word;
    flow_refused(n->session, 0, &m);
}

void answer_published(struct node *n, const Sluice__Assign *a)
{
    Sluice__Published m = SLUICE__PUBLISHED__INIT;

    m.tf = a->tf;
    m.fence = a->fence;
    flow_published(n->session, 0, &m);
}
