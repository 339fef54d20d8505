/* session.c - who is at the other end, and THE table: message, handler, role, right
 *
 * From: proto/peer (connections whose other end is known).  To: the handlers of every module.
 * A session has a number that is never used again, so that a late answer finds its asker or nobody. A message that its sender's role may
 * not send ends the connection; one that its sender's right does not cover is refused, logged and counted.
 */
#include "config.h"

#include "session.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <uthash.h>

#include "clock.h"
#include "counters.h"
#include "events.h"
#include "flow.h"
#include "health.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "nice.h"
#include "node.h"
#include "reads.h"
#include "rights.h"
#include "roster.h"
#include "shm.h"
#include "show.h"
#include "str.h"
#include "watch.h"

enum {
    ADMIN_SPARE = 8,                     /* connections beyond limits.clients that are kept for admins */
    MOST_PEERS = 8192,                   /* workers and sources */
};
static const double introduce_s = 5;     /* a worker or source has so long to say which one it is */
static const double connection_s = 0.0002;        /* what a connection costs the loop, */
static const double a_byte_s = 1e-9;     /* and a byte of an answer, until it is with the kernel */
static const double goodbye_s = 0.5;     /* what is queued has so long to go out before a connection is closed */

struct held {
    struct session s;
    UT_hash_handle hh;
    struct sessions *all;
    bool ready, closing;
    double since;                        /* monotonic s */
    double not_before;                   /* monotonic s: it was told to ask again then */
};

struct sessions {
    struct sluiced *d;
    struct listener *local, *remote;
    struct held *by_number;
    uint64_t last;
    unsigned clients, peers;
    ev_timer sweep;
    struct reads *reads;
};

/* ---- the table ---- */

enum {
    FROM_CLIENT = 1 << SLUICE__ROLE__CLIENT,
    FROM_WORKER = 1 << SLUICE__ROLE__WORKER,
    FROM_SOURCE = 1 << SLUICE__ROLE__SOURCE_ROLE,
    FROM_NODE   = 1 << 8 | FROM_WORKER,  /* a worker that has registered */
};

static void wait_for(struct session *s, uint32_t id, const void *m)
{
    const Sluice__Wait *w = m;

    if (w->kind != NULL && strcmp(w->kind, "move") == 0)
        move_wait(s, id, m);
    else if (w->kind != NULL && strcmp(w->kind, "shm") == 0)
        shm_wait(s, id, m);
    else
        flow_wait(s, id, m);
}

/* What was asked of a worker could not be done there: only GetLogs asks. */
static void worker_error(struct session *s, uint32_t id, const void *m)
{
    show_log_error(s, id, m);
}

#define T(x) [SLUICE__TYPE__##x] =
/* clang-format off */
static const struct row {
    session_handler handler; unsigned from; enum right right;
} table[] = {                            /* by type */
    T(ERROR)         { worker_error,      FROM_NODE,   RIGHT_NONE },

    T(REGISTER)      { node_register,     FROM_WORKER, RIGHT_NONE },
    T(REPORT)        { node_report,       FROM_NODE,   RIGHT_NONE },
    T(REFUSED)       { flow_refused,      FROM_NODE,   RIGHT_NONE },
    T(BUILT)         { flow_built,        FROM_NODE,   RIGHT_NONE },
    T(DONE)          { flow_done,         FROM_NODE,   RIGHT_NONE },
    T(FAILED)        { flow_failed,       FROM_NODE,   RIGHT_NONE },
    T(PUBLISHED)     { flow_published,    FROM_NODE,   RIGHT_NONE },
    T(LOG_LINES)     { show_log_lines,    FROM_NODE,   RIGHT_NONE },
    T(OUTPUT_CHECKED) { outcheck_answer,  FROM_NODE,   RIGHT_NONE },

    T(SOURCE)        { run_source,        FROM_SOURCE, RIGHT_NONE },
    T(ANNOUNCE)      { run_announce,      FROM_SOURCE, RIGHT_NONE },
    T(END_OF_STREAM) { run_end_of_stream, FROM_SOURCE, RIGHT_NONE },

    T(GET_STATUS)    { show_status,       FROM_CLIENT, RIGHT_READ },
    T(GET_NODES)     { show_nodes,        FROM_CLIENT, RIGHT_READ },
    T(GET_HISTORY)   { history_get,       FROM_CLIENT, RIGHT_READ },
    T(GET_MOVES)     { move_list,         FROM_CLIENT, RIGHT_READ },
    T(GET_RUNS)      { run_list,          FROM_CLIENT, RIGHT_READ },
    T(GET_RUN_TFS)   { run_tfs,           FROM_CLIENT, RIGHT_READ },
    T(GET_SAMPLES)   { run_samples,       FROM_CLIENT, RIGHT_READ },
    T(GET_JOBS)      { job_list,          FROM_CLIENT, RIGHT_READ },
    T(GET_TASKS)     { job_tasks,         FROM_CLIENT, RIGHT_READ },
    T(GET_ATTEMPTS)  { job_tries,         FROM_CLIENT, RIGHT_READ },
    T(GET_WHY)       { why_ask,           FROM_CLIENT, RIGHT_READ },
    T(GET_CRASHES)   { crash_list,        FROM_CLIENT, RIGHT_READ },
    T(GET_SHM)       { shm_show,          FROM_CLIENT, RIGHT_READ },
    T(GET_CONFIG)    { show_config,       FROM_CLIENT, RIGHT_READ },
    T(GET_METRICS)   { show_metrics,      FROM_CLIENT, RIGHT_READ },
    T(GET_CHECK)     { show_check,        FROM_CLIENT, RIGHT_READ },
    T(WATCH)         { watch_ask,         FROM_CLIENT, RIGHT_READ },
    T(GET_HEALTH)    { health_show,       FROM_CLIENT, RIGHT_READ },
    T(WAIT)          { wait_for,          FROM_CLIENT, RIGHT_READ },
    T(GET_LOGS)      { show_logs,         FROM_CLIENT, RIGHT_SHIFT },

    T(MARK_NODES)    { mark_nodes,        FROM_CLIENT, RIGHT_SHIFT },
    T(CLEAR_MARKS)   { mark_clear,        FROM_CLIENT, RIGHT_SHIFT },      /* of others: expert, see mark.c */
    T(MOVE_NODES)    { move_nodes,        FROM_CLIENT, RIGHT_SHIFT },
    T(CANCEL_MOVE)   { move_cancel,       FROM_CLIENT, RIGHT_SHIFT },
    T(START_RUN)     { run_start,         FROM_CLIENT, RIGHT_SHIFT },
    T(STOP_RUN)      { run_stop,          FROM_CLIENT, RIGHT_SHIFT },
    T(SUBMIT)        { job_submit,        FROM_CLIENT, RIGHT_SHIFT },
    T(SUBMIT_FILES)  { job_submit_files,  FROM_CLIENT, RIGHT_SHIFT },
    T(CANCEL_JOB)    { job_cancel,        FROM_CLIENT, RIGHT_SHIFT },
    T(HOLD_JOB)      { job_hold,          FROM_CLIENT, RIGHT_SHIFT },
    T(RELEASE_JOB)   { job_release,       FROM_CLIENT, RIGHT_SHIFT },
    T(RERUN_JOB)     { job_rerun,         FROM_CLIENT, RIGHT_SHIFT },
    T(ADD_NODES)     { roster_add,        FROM_CLIENT, RIGHT_EXPERT },
    T(RETIRE_NODES)  { roster_retire,     FROM_CLIENT, RIGHT_EXPERT },
    T(RESET_HEALTH)  { health_reset,      FROM_CLIENT, RIGHT_EXPERT },
    T(SET_NICE)      { nice_set,          FROM_CLIENT, RIGHT_SHIFT },      /* and rules of its own: see nice.c */
    T(SET_SHM)       { shm_set,           FROM_CLIENT, RIGHT_EXPERT },
    T(PURGE_CRASHES) { crash_purge,       FROM_CLIENT, RIGHT_EXPERT },
    T(BACKUP)        { show_backup,       FROM_CLIENT, RIGHT_EXPERT },
};
/* clang-format on */
#undef T

static const struct row *row_find(unsigned type)
{
    return type < ARRAY_LEN(table) && table[type].handler != NULL ? &table[type] : NULL;
}

bool session_takes(unsigned type, Sluice__Role role, enum right *right)
{
    const struct row *row = row_find(type);

    if (row == NULL || (row->from & (1u << role)) == 0)
        return false;
    *right = row->right;
    return true;
}

/* ---- one session ---- */

static struct held *held_of(struct session *s)
{
    return CONTAINER_OF(s, struct held, s);
}

static const char *role_word(Sluice__Role role)
{
    switch (role) {
    case SLUICE__ROLE__CLIENT:
        return "client";
    case SLUICE__ROLE__WORKER:
        return "worker";
    case SLUICE__ROLE__SOURCE_ROLE:
        return "source";
    default:
        return "peer";
    }
}

static void count(struct held *h, const char *name)
{
    counters_add(h->all->d->counters, name, 1);
}

const char *session_author(const struct session *s, char out[96])
{
    if (s->peer.user[0] != '\0')
        snprintf(out, 96, "%s (uid %u)", s->peer.user, (unsigned)s->peer.uid);
    else
        snprintf(out, 96, "uid %u", (unsigned)s->peer.uid);
    return out;
}

/* "worker n001 [unix pid 12 uid 0]" */
static const char *held_text(const struct held *h, char out[200])
{
    struct str name = { 0 };

    str_escape(&name, h->s.name, strlen(h->s.name));
    snprintf(out, 200, "%s %s [%s]", role_word(h->s.role), str_text(&name), chan_peer(h->s.chan));
    str_free(&name);
    return out;
}

/* Takes it out of whatever it took part in. What was begun by its questions goes on. */
static void held_detach(struct held *h, const char *why)
{
    if (h->s.node != NULL) {
        struct node *n = h->s.node;

        h->s.node = NULL;
        if (n->session == &h->s)
            node_detach(n, why);
    }
    if (h->s.source != NULL) {
        run_source_gone(&h->s);
        h->s.source = NULL;
    }
    if (h->s.staged != NULL)
        job_unstage(&h->s);
}

static void held_free(struct held *h)
{
    struct sessions *all = h->all;

    if (h->s.role == SLUICE__ROLE__CLIENT)
        all->clients--;
    else
        all->peers--;
    HASH_DEL(all->by_number, h);
    chan_destroy(h->s.chan);
    free(h);
}

static void closed_cb(void *arg, struct chan *c, const struct err *why)
{
    struct held *h = arg;
    char text[200];

    (void)c;
    if (!h->closing && (h->s.node != NULL || h->s.source != NULL))
        log_info("%s: connection closed: %s", held_text(h, text), why->code == ERR_NONE ? "by the peer, in order" : why->text);
    if (why->code == ERR_PROTOCOL)
        count(h, "protocol_errors");
    held_detach(h, why->code == ERR_NONE ? "its connection was closed" : why->text);
    held_free(h);
}

void session_close(struct session *s, const char *why)
{
    struct held *h = held_of(s);
    char text[200];

    if (h->closing)
        return;
    log_info("%s: closed: %s", held_text(h, text), why);
    h->closing = true;
    held_detach(h, why);
    chan_close_after_send(s->chan, goodbye_s);
}

/* Against the protocol: an error, and the end of the connection. */
static void held_violation(struct held *h, uint32_t id, const char *what)
{
    struct err e;

    err_set(&e, ERR_PROTOCOL, "%s", what);
    count(h, "protocol_errors");
    chan_send_error(h->s.chan, id, &e, NULL);
    session_close(&h->s, what);
}

/* MARK_NODES as people say it: "mark nodes". */
static const char *plain_name(const char *type_name, char out[40])
{
    size_t i = 0;

    for (; type_name[i] != '\0' && i < 39; i++)
        out[i] = type_name[i] == '_' ? ' ' : (char)tolower((unsigned char)type_name[i]);
    out[i] = '\0';
    return out;
}

static bool is_allowed(struct held *h, const struct row *row, uint32_t id, const char *type_name)
{
    char author[96], name[40];
    struct err e;

    if (h->s.role != SLUICE__ROLE__CLIENT || h->s.right >= row->right)
        return true;
    plain_name(type_name, name);
    err_set(&e, ERR_PERMISSION, "'%s' wants the role %s; %s has %s", name, right_name[row->right], session_author(&h->s, author), right_name[h->s.right]);
    session_error(&h->s, id, &e, "NotPermitted");
    return false;
}

/* What costs time and may wait: lists and the like. Changes, waits and watches are not put off. */
static bool is_question(const struct held *h, const struct row *row, unsigned type)
{
    return h->s.role == SLUICE__ROLE__CLIENT && row->right == RIGHT_READ && type != SLUICE__TYPE__WAIT && type != SLUICE__TYPE__WATCH;
}

static void send_busy(struct held *h, uint32_t id, const char *text, unsigned retry_ms)
{
    Sluice__Error m = SLUICE__ERROR__INIT;

    m.has_code = m.has_retry_ms = true;
    m.code = ERR_STATE;
    m.text = (char *)text;
    m.word = (char *)"Busy";
    m.retry_ms = retry_ms;
    chan_send(h->s.chan, id, &m.base);
}

static void answer_question(struct held *h, const struct row *row, uint32_t id, const ProtobufCMessage *m)
{
    struct sluiced *d = h->all->d;
    const double share = d->conf->limits.read_share;
    double from = clock_mono_s();
    /* Who comes back before the time that was told has not earned a better place. */
    unsigned ms = from < h->not_before ? 1 + (unsigned)(1000 * (h->not_before - from)) : reads_refuse(h->all->reads, h->s.peer.uid, share, from);
    size_t queued = chan_queued(h->s.chan);
    char text[160];

    if (ms > 0) {
        snprintf(text, sizeof(text), "many questions are asked, and this one has to wait: try again in %u ms (watch and wait tell without being asked)", ms);
        counters_add(d->counters, "questions_put_off", 1);
        h->not_before = from + ms / 1000.;
        send_busy(h, id, text, ms);
        return;
    }
    row->handler(&h->s, id, m);
    queued = chan_queued(h->s.chan) - queued;
    reads_charge(h->all->reads, h->s.peer.uid, share, clock_mono_s(), clock_mono_s() - from + (double)queued * a_byte_s);
}

static void message_cb(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct held *h = arg;
    const struct row *row = row_find(type);
    const struct frame_type *ft = frame_type(type);
    char what[160];

    (void)c;
    (void)fds;
    (void)n_fds;
    if (h->closing)
        return;
    if (row == NULL || (row->from & (1u << h->s.role)) == 0) {
        snprintf(what, sizeof(what), "a %s does not send %s", role_word(h->s.role), ft == NULL ? "that" : ft->name);
        held_violation(h, id, what);
    } else if (!h->ready) {
        held_violation(h, id, "a message before READY");
    } else if ((row->from & FROM_NODE) == FROM_NODE && h->s.node == NULL) {
        held_violation(h, id, "a worker registers before anything else");
    } else if (!is_allowed(h, row, id, ft->name)) {
        return;
    } else if (is_question(h, row, type)) {
        answer_question(h, row, id, m);
    } else {
        row->handler(&h->s, id, m);
    }
}

static const struct chan_events session_events = { .message = message_cb, .closed = closed_cb };

/* ---- a new one ---- */

static void held_refuse(struct held *h, enum err_code code, const char *word, const char *text)
{
    struct err e;

    err_set(&e, code, "%s", text);
    count(h, code == ERR_PERMISSION ? "refused_permission" : "refused_connections");
    chan_send_error(h->s.chan, 0, &e, word);
    session_close(&h->s, text);
}

static bool has_room(struct held *h)
{
    struct sessions *all = h->all;
    unsigned most = all->d->conf->limits.clients;
    char text[160];

    if (h->s.role != SLUICE__ROLE__CLIENT) {
        if (all->peers <= MOST_PEERS)
            return true;
        held_refuse(h, ERR_STATE, "Busy", "too many workers and sources are connected");
        return false;
    }
    if (h->s.right == RIGHT_ADMIN)
        most += ADMIN_SPARE;
    if (all->clients <= most)
        return true;
    snprintf(text, sizeof(text), "%u clients are connected already (limits.clients); try again in 1000 ms", all->clients - 1);
    count(h, "refused_connections");
    send_busy(h, 0, text, 1000);
    session_close(&h->s, text);
    return false;
}

/* Its rights are known now. */
static void held_ready(struct held *h, bool is_worker)
{
    struct session *s = &h->s;
    const char *word = s->role == SLUICE__ROLE__CLIENT ? right_name[s->right] : role_word(s->role);
    char text[200], author[96];

    if (s->role == SLUICE__ROLE__CLIENT ? s->right < RIGHT_READ
        : s->role == SLUICE__ROLE__WORKER ? !is_worker : !is_worker && s->right < RIGHT_SHIFT) {
        snprintf(text, sizeof(text), "%.90s may not connect as %s", session_author(s, author), role_word(s->role));
        held_refuse(h, ERR_PERMISSION, "NotPermitted", text);
        return;
    }
    if (!has_room(h))
        return;
    if (s->role == SLUICE__ROLE__CLIENT)
        reads_charge(h->all->reads, s->peer.uid, s->d->conf->limits.read_share, clock_mono_s(), connection_s);
    h->ready = true;
    if (peer_ready(s->chan, &s->peer, word, history_seq(s->d->history)) < 0)
        session_close(s, "it does not read what is sent");
    else if (s->role == SLUICE__ROLE__WORKER)
        chan_look_at_clock(s->chan);     /* its answer is here before it registers */
}

static void held_judge(struct held *h)
{
    const struct rights *r = h->all->d->rights;
    const struct peer_id *p = &h->s.peer;

    h->s.right = rights_of(r, p->uid, p->user, p->groups, p->n_groups);
    held_ready(h, rights_is_worker(r, p->uid, p->user, p->groups, p->n_groups));
}

static void accepted_cb(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello)
{
    struct sessions *all = arg;
    struct held *h = mem_zalloc(sizeof(*h));

    h->all = all;
    h->since = clock_mono_s();
    h->s.d = all->d;
    h->s.chan = c;
    h->s.peer = *id;
    h->s.role = hello->role;
    h->s.number = ++all->last;
    snprintf(h->s.name, sizeof(h->s.name), "%s", hello->name == NULL ? "" : hello->name);
    snprintf(h->s.software, sizeof(h->s.software), "%s", hello->software == NULL ? "" : hello->software);
    HASH_ADD(hh, all->by_number, s.number, sizeof(h->s.number), h);
    if (h->s.role == SLUICE__ROLE__CLIENT)
        all->clients++;
    else
        all->peers++;
    chan_set_owner(c, &session_events, h);
    if (h->s.role == SLUICE__ROLE__CLIENT || h->s.role == SLUICE__ROLE__WORKER || h->s.role == SLUICE__ROLE__SOURCE_ROLE)
        held_judge(h);
    else
        held_violation(h, 0, "sluiced talks to clients, workers and sources");
}

/* A worker that will not get in by waiting: its node says so. */
static void mismatched_cb(void *arg, const Sluice__Hello *hello, const char *why)
{
    struct sessions *all = arg;
    struct node *n = hello->role == SLUICE__ROLE__WORKER && str_is_name(hello->name) ? farm_node(all->d->farm, hello->name) : NULL;

    if (n != NULL)
        node_other_version(n, why);
}

/* A worker or source that does not say who it is would hold a place for nothing. */
static void sweep_cb(struct ev_loop *loop, ev_timer *w, int events)
{
    struct sessions *all = w->data;
    struct held *h, *next;

    (void)loop;
    (void)events;
    HASH_ITER(hh, all->by_number, h, next) {
        if (h->closing || h->s.role == SLUICE__ROLE__CLIENT || h->s.node != NULL || h->s.source != NULL)
            continue;
        if (clock_mono_s() - h->since > introduce_s)
            session_close(&h->s, h->s.role == SLUICE__ROLE__WORKER ? "it did not register" : "it did not name its run");
    }
}

/* ---- all ---- */

static struct listener *listen_on(struct sessions *all, const char *address, const char *method, struct err *e)
{
    struct listener_conf conf = {
        .loop = all->d->loop, .names = all->d->names, .address = address, .method = method, .epoch = all->d->epoch,
        .limits = { .dead_s = all->d->conf->limits.contact_timeout }, .accepted = accepted_cb, .arg = all, .mismatched = mismatched_cb,
    };

    return listener_create(&conf, e);
}

struct sessions *sessions_create(struct sluiced *d, struct err *e)
{
    struct sessions *all = mem_zalloc(sizeof(*all));
    const struct conf *conf = d->conf;
    char *address = mem_printf("unix:%s", conf->socket);
    const char *method = conf->auth != NULL && strcmp(conf->auth, "none") != 0 ? conf->auth : NULL;

    all->d = d;
    all->reads = reads_create();
    ev_timer_init(&all->sweep, sweep_cb, 1, 1);
    all->sweep.data = all;
    ev_timer_start(d->loop, &all->sweep);
    all->local = listen_on(all, address, NULL, e);
    free(address);
    if (all->local == NULL)
        goto fail;
    if (conf->listen != NULL) {
        all->remote = listen_on(all, conf->listen, method, e);
        if (all->remote == NULL)
            goto fail;
        log_info("listening on %s", listener_address(all->remote));
    }
    return all;
fail:
    sessions_destroy(all);
    return NULL;
}

void sessions_destroy(struct sessions *all)
{
    struct held *h, *next;

    if (all == NULL)
        return;
    listener_destroy(all->local);
    listener_destroy(all->remote);
    ev_timer_stop(all->d->loop, &all->sweep);
    HASH_ITER(hh, all->by_number, h, next) {
        held_detach(h, "sluiced stops");
        held_free(h);
    }
    reads_destroy(all->reads);
    free(all);
}

void sessions_each(struct sessions *all, void (*fn)(void *arg, struct session *), void *arg)
{
    struct held *h, *next;

    HASH_ITER(hh, all->by_number, h, next) {
        if (!h->closing && h->ready)
            fn(arg, &h->s);
    }
}

struct listener_stats sessions_stats(const struct sessions *all)
{
    struct listener_stats sum = listener_stats(all->local), more = { 0 };

    if (all->remote != NULL)
        more = listener_stats(all->remote);
    sum.accepted += more.accepted;
    sum.refused += more.refused;
    sum.timed_out += more.timed_out;
    sum.bad += more.bad;
    return sum;
}

unsigned sessions_clients(const struct sessions *all)
{
    return all->clients;
}

/* ---- answers ---- */

/* Of what is answered to people: where a watcher goes on from. A handler that knows better has set it. */
static void set_seq(const struct session *s, ProtobufCMessage *m)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, "seq");
    protobuf_c_boolean *has = f != NULL ? (protobuf_c_boolean *)((char *)m + f->quantifier_offset) : NULL;

    if (f == NULL || f->type != PROTOBUF_C_TYPE_UINT64 || f->label != PROTOBUF_C_LABEL_OPTIONAL || *has)
        return;
    *has = 1;
    *(uint64_t *)((char *)m + f->offset) = history_seq(s->d->history);
}

void session_answer(struct session *s, uint32_t id, ProtobufCMessage *m)
{
    if (id == 0 || held_of(s)->closing)
        return;
    set_seq(s, m);
    if (chan_send(s->chan, id, m) < 0)
        counters_add(s->d->counters, "answers_lagging", 1);
}

void session_ok(struct session *s, uint32_t id)
{
    Sluice__Ok ok = SLUICE__OK__INIT;

    session_answer(s, id, &ok.base);
}

static const char *refusal_counter(enum err_code code)
{
    switch (code) {
    case ERR_PERMISSION:
        return "refused_permission";
    case ERR_STATE:
        return "refused_state";
    case ERR_NOT_FOUND:
        return "refused_not_found";
    case ERR_USAGE:
        return "refused_usage";
    case ERR_PROTOCOL:
        return "protocol_errors";
    case ERR_TIMEOUT:
        return "answers_timed_out";
    default:
        return "answers_failed";
    }
}

void session_error(struct session *s, uint32_t id, const struct err *e, const char *word)
{
    char text[200], author[96];

    counters_add(s->d->counters, refusal_counter(e->code), 1);
    if (e->code == ERR_PERMISSION)
        log_warning("%s: refused to %s: %s", held_text(held_of(s), text), session_author(s, author), e->text);
    if (id == 0 || held_of(s)->closing)
        return;
    chan_send_error(s->chan, id, e, word);
}

void session_busy(struct session *s, uint32_t id, const char *text, unsigned retry_ms)
{
    if (id != 0 && !held_of(s)->closing)
        send_busy(held_of(s), id, text, retry_ms);
}

struct session_ref session_refer(struct session *s, uint32_t id)
{
    return (struct session_ref){ .d = s->d, .number = s->number, .id = id };
}

struct session *session_find(struct session_ref r)
{
    struct held *h = NULL;

    if (r.d == NULL || r.d->sessions == NULL)
        return NULL;
    HASH_FIND(hh, r.d->sessions->by_number, &r.number, sizeof(r.number), h);
    return h == NULL || h->closing ? NULL : &h->s;
}
