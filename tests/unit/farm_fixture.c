/* farm_fixture.c - see farm_fixture.h */
#include "config.h"

#include "farm_fixture.h"

#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "file.h"
#include "frame.h"
#include "mem.h"

/* ---- the daemon ---- */

const char *fx_path(struct fixture *f, const char *name)
{
    static char path[160];

    snprintf(path, sizeof(path), "%s/%s", f->dir, name);
    return path;
}

void fx_conf(struct fixture *f, const char *conf)
{
    struct err e;

    if (file_replace(fx_path(f, "sluice.conf"), conf, strlen(conf), 0644, &e) < 0)
        fail_msg("%s", e.text);
}

void fx_open(struct fixture *f, const char *conf)
{
    memset(f, 0, sizeof(*f));
    strcpy(f->dir, "/tmp/sluice-farm-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->loop = ev_loop_new(EVFLAG_AUTO);
    fx_conf(f, conf);
    memset(&flow_double, 0, sizeof(flow_double));
}

void fx_start(struct fixture *f)
{
    char conf[120], state[120], sock[120];
    struct start start = { .config = conf, .state_dir = state, .socket = sock };
    struct err e;

    snprintf(conf, sizeof(conf), "%s/sluice.conf", f->dir);
    snprintf(state, sizeof(state), "%s/state", f->dir);
    snprintf(sock, sizeof(sock), "%s/sock", f->dir);
    if (sluiced_start(&f->d, f->loop, &start, &e) < 0)
        fail_msg("%s", e.text);
    /* the daemon's copy must outlive this call */
    f->d.start->config = strdup(conf);
    f->d.start->state_dir = strdup(state);
    f->d.start->socket = strdup(sock);
    f->up = true;
}

void fx_stop(struct fixture *f)
{
    char *words[3];

    if (!f->up)
        return;
    words[0] = (char *)f->d.start->config;
    words[1] = (char *)f->d.start->state_dir;
    words[2] = (char *)f->d.start->socket;
    assert_int_equal(sluiced_stop(&f->d, 2), 0);
    for (int i = 0; i < 3; i++)
        free(words[i]);
    f->up = false;
}

static void child_serve(struct fixture *f, int ready)
{
    char conf[120], state[120], sock[120];
    struct start start = { .config = conf, .state_dir = state, .socket = sock };
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct err e;

    snprintf(conf, sizeof(conf), "%s/sluice.conf", f->dir);
    snprintf(state, sizeof(state), "%s/state", f->dir);
    snprintf(sock, sizeof(sock), "%s/sock", f->dir);
    if (sluiced_start(&f->d, loop, &start, &e) < 0) {
        fprintf(stderr, "child: %s\n", e.text);
        _exit(1);
    }
    if (write(ready, "r", 1) != 1)
        _exit(1);
    ev_run(loop, 0);
    _exit(0);
}

void fx_start_child(struct fixture *f)
{
    int fds[2];
    char byte;

    assert_int_equal(pipe(fds), 0);
    f->child = fork();
    assert_true(f->child >= 0);
    if (f->child == 0) {
        close(fds[0]);
        child_serve(f, fds[1]);
    }
    close(fds[1]);
    if (read(fds[0], &byte, 1) != 1)
        fail_msg("the daemon did not start");
    close(fds[0]);
}

void fx_kill_child(struct fixture *f)
{
    if (f->child <= 0)
        return;
    kill(f->child, SIGKILL);
    waitpid(f->child, NULL, 0);
    f->child = 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void close_peers(struct fixture *f)
{
    while (f->peers != NULL)
        peer_close(f->peers);
}

void fx_again(struct fixture *f)
{
    close_peers(f);
    fx_stop(f);
    fx_start(f);
}

void fx_close(struct fixture *f)
{
    close_peers(f);
    fx_stop(f);
    fx_kill_child(f);
    ev_loop_destroy(f->loop);
    nftw(f->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void wake(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)w;
    (void)events;
    ev_break(loop, EVBREAK_ONE);
}

bool fx_until(struct fixture *f, bool (*is)(void *arg), void *arg)
{
    int64_t end = clock_mono_ns() + WAIT_S * CLOCK_SECOND;
    ev_timer pulse;

    ev_timer_init(&pulse, wake, 0.01, 0.01);
    ev_timer_start(f->loop, &pulse);
    while (!is(arg) && clock_mono_ns() < end)
        ev_run(f->loop, EVRUN_ONCE);
    ev_timer_stop(f->loop, &pulse);
    return is(arg);
}

void fx_turn(struct fixture *f, double seconds)
{
    ev_timer end;

    ev_timer_init(&end, wake, seconds, 0);
    ev_timer_start(f->loop, &end);
    ev_run(f->loop, 0);
    ev_timer_stop(f->loop, &end);
}

struct search { const char *name; struct session *found; };

static void match(void *arg, struct session *s)
{
    struct search *k = arg;

    if (strcmp(s->name, k->name) == 0)
        k->found = s;
}

struct session *fx_session(struct fixture *f, const char *name)
{
    struct search k = { name, NULL };

    sessions_each(f->d.sessions, match, &k);
    return k.found;
}

/* ---- peers ---- */

static void keep(ProtobufCMessage **at, const ProtobufCMessage *m)
{
    if (*at != NULL)
        protobuf_c_message_free_unpacked(*at, NULL);
    *at = m == NULL ? NULL : proto_copy(m);
}

static void ready_cb(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    (void)c;
    (void)w;
    (void)r;
    ((struct peer *)arg)->ready = true;
}

void worker_reports(struct peer *p)
{
    const Sluice__Settings *settings = (const Sluice__Settings *)p->settings;
    const Sluice__Registered *registered = (const Sluice__Registered *)p->registered;
    bool newer = settings != NULL && (registered == NULL || settings->parking_order >= registered->parking_order);
    Sluice__Parking parking = newer ? settings->parking : registered == NULL ? SLUICE__PARKING__DEVICES_WORK : registered->parking;
    Sluice__Report r = SLUICE__REPORT__INIT;
    Sluice__Device dev = SLUICE__DEVICE__INIT, *devices[1] = { &dev };

    dev.serial = (char *)p->parks;
    dev.has_state = true;
    dev.state = parking == SLUICE__PARKING__DEVICES_WORK ? SLUICE__DEVICE_STATE__DEVICE_FREE
              : parking == SLUICE__PARKING__DEVICES_PARK && p->leaks ? SLUICE__DEVICE_STATE__DEVICE_UNCLEAN
              : parking == SLUICE__PARKING__DEVICES_AS_THEY_ARE ? SLUICE__DEVICE_STATE__DEVICE_STARTING : SLUICE__DEVICE_STATE__DEVICE_PARKED;
    r.has_parking_order = true;
    r.parking_order = newer ? settings->parking_order : registered == NULL ? 0 : registered->parking_order;
    r.n_devices = 1;
    r.devices = devices;
    r.has_buffer_size = true;
    r.buffer_size = 1 << 20;
    peer_tell(p, &r.base);
}

void worker_parks(struct peer *p, const char *serial)
{
    p->parks = serial;
    worker_reports(p);
}

static void message_cb(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct peer *p = arg;

    (void)c;
    (void)fds;
    (void)n_fds;
    p->got[type]++;
    if (type == SLUICE__TYPE__SETTINGS)
        keep(&p->settings, m);
    if (type == SLUICE__TYPE__REGISTERED)
        keep(&p->registered, m);
    if (p->parks != NULL && (type == SLUICE__TYPE__SETTINGS || type == SLUICE__TYPE__REGISTERED))
        worker_reports(p);
    if (id != 0) {
        p->answer_id = id;
        p->answer_type = type;
        keep(&p->answer, m);
    }
}

static void lost_cb(void *arg, const struct err *why)
{
    struct peer *p = arg;

    p->gone = true;
    p->why = *why;
}

static bool is_settled(void *arg)
{
    const struct peer *p = arg;

    return p->ready || p->gone;
}

static struct peer *peer_make(struct fixture *f, Sluice__Role role, const char *name, int64_t shift_ns)
{
    struct peer *p = mem_zalloc(sizeof(*p));
    struct connector_conf conf = { .loop = f->loop, .role = role, .name = name, .once = true,
                                   .events = { .ready = ready_cb, .message = message_cb, .lost = lost_cb }, .arg = p };
    char address[160];
    struct err e;

    snprintf(address, sizeof(address), "unix:%s/sock", f->dir);
    conf.address = address;
    conf.limits.clock_shift_ns = shift_ns;
    p->f = f;
    p->next = f->peers;
    f->peers = p;
    p->c = connector_create(&conf, &e);
    if (p->c == NULL)
        fail_msg("%s", e.text);
    assert_true(fx_until(f, is_settled, p));
    return p;
}

struct peer *peer_try(struct fixture *f, Sluice__Role role, const char *name)
{
    return peer_make(f, role, name, 0);
}

struct peer *peer_connect_shifted(struct fixture *f, Sluice__Role role, const char *name, int64_t shift_ns)
{
    struct peer *p = peer_make(f, role, name, shift_ns);

    if (!p->ready)
        fail_msg("%s was not let in: %s", name, p->why.text);
    return p;
}

struct peer *peer_connect(struct fixture *f, Sluice__Role role, const char *name)
{
    struct peer *p = peer_try(f, role, name);

    if (!p->ready)
        fail_msg("%s was not let in: %s", name, p->why.text);
    return p;
}

void peer_close(struct peer *p)
{
    if (p == NULL)
        return;
    for (struct peer **at = &p->f->peers; *at != NULL; at = &(*at)->next) {
        if (*at == p) {
            *at = p->next;
            break;
        }
    }
    connector_destroy(p->c);
    keep(&p->answer, NULL);
    keep(&p->settings, NULL);
    keep(&p->registered, NULL);
    free(p);
}

static bool is_answered(void *arg)
{
    const struct peer *p = arg;

    return p->answer_id == p->last_id || p->gone;
}

static bool is_gone(void *arg)
{
    return ((struct peer *)arg)->gone;
}

bool peer_until_gone(struct peer *p)
{
    return fx_until(p->f, is_gone, p);
}

const ProtobufCMessage *peer_ask(struct peer *p, const ProtobufCMessage *m)
{
    keep(&p->answer, NULL);
    assert_int_equal(chan_send(connector_chan(p->c), ++p->last_id, m), 0);
    assert_true(fx_until(p->f, is_answered, p));
    return p->answer;
}

void peer_tell(struct peer *p, const ProtobufCMessage *m)
{
    assert_int_equal(chan_send(connector_chan(p->c), 0, m), 0);
}

/* ---- workers ---- */

const ProtobufCMessage *worker_say(struct peer *p, const struct registration *r)
{
    Sluice__Register m = SLUICE__REGISTER__INIT;
    Sluice__Incarnation who = SLUICE__INCARNATION__INIT;
    Sluice__Device device = SLUICE__DEVICE__INIT, *devices[1] = { &device };
    char serial[80];

    snprintf(serial, sizeof(serial), "emu-%s-0", r->node);
    who.boot_id = (char *)(r->boot == NULL ? "boot-1" : r->boot);
    who.has_start = who.has_pid = true;
    who.start = r->start;
    who.pid = 100;
    device.serial = (char *)(r->serial == NULL ? serial : r->serial);
    device.has_state = true;
    device.state = SLUICE__DEVICE_STATE__DEVICE_FREE;
    m.node = (char *)r->node;
    m.class_ = (char *)(r->class == NULL ? "mi50" : r->class);
    m.incarnation = &who;
    m.has_connection = m.has_buffer_size = true;
    m.connection = r->connection;
    m.buffer_size = r->buffer == 0 ? 1 << 20 : r->buffer;
    m.devices = devices;
    m.n_devices = 1;
    m.host = (char *)"localhost";
    return peer_ask(p, &m.base);
}

struct peer *worker_register(struct fixture *f, const struct registration *r)
{
    struct peer *p = peer_connect(f, SLUICE__ROLE__WORKER, r->node);

    worker_say(p, r);
    if (p->answer == NULL || p->answer_type != SLUICE__TYPE__REGISTERED)
        fail_msg("%s did not register: %s", r->node, answer_text(p));
    return p;
}

/* ---- questions ---- */

int answer_code(const struct peer *p)
{
    if (p->answer == NULL)
        return -1;
    return p->answer_type == SLUICE__TYPE__ERROR ? (int)((const Sluice__Error *)p->answer)->code : 0;
}

const char *answer_text(const struct peer *p)
{
    if (p->answer == NULL || p->answer_type != SLUICE__TYPE__ERROR)
        return "";
    return ((const Sluice__Error *)p->answer)->text == NULL ? "" : ((const Sluice__Error *)p->answer)->text;
}

const char *answer_word(const struct peer *p)
{
    if (p->answer == NULL || p->answer_type != SLUICE__TYPE__ERROR)
        return "";
    return ((const Sluice__Error *)p->answer)->word == NULL ? "" : ((const Sluice__Error *)p->answer)->word;
}

int ask_mark(struct peer *p, const char *node, const char *reason, const char *part)
{
    Sluice__MarkNodes m = SLUICE__MARK_NODES__INIT;
    char *names[1] = { (char *)node }, *parts[1] = { (char *)part };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)reason;
    m.parts = parts;
    m.n_parts = part == NULL ? 0 : 1;
    peer_ask(p, &m.base);
    return answer_code(p);
}

int ask_clear(struct peer *p, const char *node, uint64_t id, bool any_owner, bool repeat_ok)
{
    Sluice__ClearMarks m = SLUICE__CLEAR_MARKS__INIT;
    char *names[1] = { (char *)node };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)"repaired";
    m.has_id = id != 0;
    m.id = id;
    m.has_any_owner = m.has_repeat_ok = true;
    m.any_owner = any_owner;
    m.repeat_ok = repeat_ok;
    peer_ask(p, &m.base);
    return answer_code(p);
}

int ask_move(struct peer *p, const char *node, const char *to, const char *when)
{
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    char *names[1] = { (char *)node };

    m.names = names;
    m.n_names = 1;
    m.to = (char *)to;
    m.when = (char *)when;
    peer_ask(p, &m.base);
    return answer_code(p);
}

const Sluice__Node *ask_node(struct peer *p, const char *node)
{
    Sluice__GetNodes m = SLUICE__GET_NODES__INIT;
    char *names[1] = { (char *)node };
    const Sluice__Nodes *nodes;

    m.names = names;
    m.n_names = 1;
    nodes = (const Sluice__Nodes *)peer_ask(p, &m.base);
    if (nodes == NULL || p->answer_type != SLUICE__TYPE__NODES || nodes->n_nodes != 1)
        fail_msg("node %s: %s", node, answer_text(p));
    return nodes->nodes[0];
}

bool node_has_why(const Sluice__Node *n, const char *word)
{
    for (size_t i = 0; i < n->n_why; i++) {
        if (strcmp(n->why[i], word) == 0)
            return true;
    }
    return false;
}

/* ---- what most tests begin and end with ---- */

struct fixture *fx_new(const char *conf)
{
    struct fixture *f = mem_zalloc(sizeof(*f));

    fx_open(f, conf);
    return f;
}

int fx_teardown(void **state)
{
    fx_close(*state);
    free(*state);
    return 0;
}

struct peer *person(struct fixture *f)
{
    return peer_connect(f, SLUICE__ROLE__CLIENT, "test");
}

struct peer *simple_worker(struct fixture *f, const char *node)
{
    struct registration r = { .node = node, .start = 1, .connection = 1 };

    return worker_register(f, &r);
}
