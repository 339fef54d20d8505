/* replay.c - files -> memory -> pace -> sources
 *
 * From: reel.c (TFs in memory, in order), sluiced by way of source.c (window, releases, the run's end).
 * To: source.c, one part each.
 * One step, turn(), does whatever can be done now, and is asked for by everything that might allow more. Always:
 * announced - released = TFs in `out`; TF numbers are consecutive from 1 and every source has a part of each, if only an
 * empty one.
 */
#include "config.h"

#include "replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <uthash.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "outlet.h"
#include "pace.h"
#include "reel.h"
#include "room.h"
#include "source.h"
#include "str.h"

enum { MAX_WORKERS = 1024 };
#define STOP_READERS_NS CLOCK_SECOND

/* A TF that was handed to the sources and not let go by all of them. */
struct out {
    uint64_t id;
    const struct reel_tf *tf;
    unsigned parts;                  /* still held */
    UT_hash_handle hh;
};

struct replay {
    struct replay_conf conf;
    struct reel   *reel;
    struct arena  *arena;
    uint64_t       memory;           /* limit of the arena */
    struct outlet *outlet;
    struct source **sources;
    struct hold   **holds;
    struct out    *out;
    struct pace    pace;
    ev_async       again;            /* a reader finished; also fed by hand: turn() is wanted */
    ev_timer       due, limit;
    void         (*ready)(void *arg);
    void         (*ended)(void *arg, const struct err *why);
    void          *arg;

    uint64_t       announced, released, bytes;
    size_t         bad_said;
    int64_t        last_ns;          /* when the last TF went out */
    int64_t        over_ns;          /* when all was over, 0: not yet */
    enum replay_wait waiting;
    int64_t        waiting_since;
    int64_t        wait_ns[REPLAY_WAITS];
    bool           said_ready, ending, over;
    struct err     why;              /* why the stream was cut short; ERR_NONE: it was not */
};

static void want_turn(struct replay *r)
{
    ev_feed_event(r->conf.loop, &r->again, EV_CUSTOM);
}

static void finish(struct replay *r, const struct err *why)
{
    if (r->over)
        return;
    r->over = true;
    r->over_ns = clock_mono_ns();
    ev_timer_stop(r->conf.loop, &r->due);
    ev_timer_stop(r->conf.loop, &r->limit);
    r->ended(r->arg, why);
}

/* ---- the clock of waiting ------------------------------------------------------------------ */

static void set_waiting(struct replay *r, enum replay_wait what, int64_t now)
{
    if (r->waiting_since != 0)
        r->wait_ns[r->waiting] += now - r->waiting_since;
    r->waiting = what;
    r->waiting_since = now;
}

/* ---- the stream ---------------------------------------------------------------------------- */

static void end_stream(struct replay *r, int64_t now)
{
    if (r->ending)
        return;
    r->ending = true;
    /* At full speed the last ones out are waited for as all before them were; on a schedule nothing is due any more. */
    set_waiting(r, r->conf.rate > 0 ? REPLAY_NO_WAIT : REPLAY_WAIT_WORKERS, now);
    ev_timer_stop(r->conf.loop, &r->due);
    for (unsigned i = 0; i < r->conf.sources; i++)
        source_end(r->sources[i], reel_bad_count(r->reel));
}

/* Cuts the stream short; the first reason stands. */
static void cut_short(struct replay *r, const struct err *why)
{
    if (r->ending)
        return;
    r->why = *why;
    end_stream(r, clock_mono_ns());
    want_turn(r);
}

static void say_bad(struct replay *r)
{
    for (; r->bad_said < reel_bad_count(r->reel); r->bad_said++) {
        const struct reel_bad *b = reel_bad(r->reel, r->bad_said);

        if (b->tfs > 0)
            log_warning("%s: skipped from byte %" PRIu64 " on, %" PRIu64 " time-frames before it are played: %s",
                        b->path, b->offset, b->tfs, b->text);
        else
            log_warning("%s: skipped at byte %" PRIu64 ": %s", b->path, b->offset, b->text);
    }
}

static int check_bad(const struct replay *r, struct err *e)
{
    if (reel_bad_count(r->reel) > r->conf.max_bad)
        return err_set(e, ERR_FAILED, "%zu bad files, at most %" PRIu64 " are allowed", reel_bad_count(r->reel),
                       r->conf.max_bad);
    return 0;
}

static bool all_have_room(const struct replay *r)
{
    for (unsigned i = 0; i < r->conf.sources; i++) {
        if (!source_has_room(r->sources[i]))
            return false;
    }
    return true;
}

static bool all_done(const struct replay *r)
{
    for (unsigned i = 0; i < r->conf.sources; i++) {
        if (!source_is_done(r->sources[i]))
            return false;
    }
    return true;
}

static void put_out(struct replay *r, int64_t now)
{
    const struct reel_tf *tf = reel_take(r->reel);
    struct out *o = mem_zalloc(sizeof *o);

    *o = (struct out){ .id = ++r->announced, .tf = tf, .parts = r->conf.sources };
    HASH_ADD(hh, r->out, id, sizeof o->id, o);
    r->bytes += tf->size;
    r->last_ns = now;
    for (unsigned i = 0; i < r->conf.sources; i++) {
        const struct hold_part p = {
            .id = o->id, .first_orbit = tf->first_orbit, .data = tf->parts[i].data, .size = tf->parts[i].size,
            .offset = arena_offset(r->arena, tf->parts[i].data), .xxh3 = tf->xxh3[i],
        };
        source_add(r->sources[i], &p);
    }
}

/* Whether the TF at the head may go out now, and if not, what it waits for. */
static bool head_may_go(struct replay *r, int64_t now)
{
    static const enum replay_wait of_head[] = {
        [REEL_READING] = REPLAY_WAIT_INPUT, [REEL_NO_ROOM] = REPLAY_WAIT_BUFFER,
    };
    enum reel_head head = reel_head(r->reel);
    int64_t due = pace_due_ns(&r->pace, r->announced);

    if (now < due) {
        set_waiting(r, REPLAY_NO_WAIT, now);
        ev_now_update(r->conf.loop);
        ev_timer_stop(r->conf.loop, &r->due);
        ev_timer_set(&r->due, (double)(due - now) * 1e-9, 0);
        ev_timer_start(r->conf.loop, &r->due);
        return false;
    }
    if (!all_have_room(r)) {
        set_waiting(r, REPLAY_WAIT_WORKERS, now);
        return false;
    }
    if (head != REEL_READY) {
        set_waiting(r, of_head[head], now);
        return false;
    }
    return true;
}

static int play(struct replay *r, struct err *e)
{
    int64_t now = clock_mono_ns();

    if (reel_fill(r->reel, e) < 0)
        return -1;
    say_bad(r);
    if (!r->pace.started) {
        if (!reel_full(r->reel) && reel_head(r->reel) != REEL_END)
            return 0;                /* the first TFs are read before the clock starts */
        pace_start(&r->pace, now);
        set_waiting(r, REPLAY_NO_WAIT, now);
    }
    if (check_bad(r, e) < 0) {
        cut_short(r, e);
        return 0;
    }
    while (reel_head(r->reel) != REEL_END && head_may_go(r, now)) {
        put_out(r, now);
        if (reel_fill(r->reel, e) < 0)
            return -1;
        now = clock_mono_ns();
    }
    if (reel_head(r->reel) == REEL_END)
        end_stream(r, now);
    return 0;
}

/* All sources are in for the first time: what they may hold is known, so how much memory serves. */
static int begin(struct replay *r, struct err *e)
{
    uint64_t ahead = r->conf.preread, size;
    struct room room;

    for (unsigned i = 0; i < r->conf.sources; i++)
        ahead = source_window(r->sources[i]) > ahead ? source_window(r->sources[i]) : ahead;
    if (reel_arena_size(r->reel, ahead, r->memory, &size, e) < 0 || room_measure("/", "", &room, e) < 0)
        return -1;
    uint64_t left = room.memory < room.cgroup ? room.memory : room.cgroup;
    if (size > left)
        return err_set(e, ERR_STATE, "memory: %" PRIu64 " bytes wanted, %" PRIu64 " available here", size, left);
    r->arena = arena_create(size, e);
    if (r->arena == NULL)
        return -1;
    outlet_open(r->outlet, source_key(r->sources[0]), arena_fd(r->arena));
    if (reel_start(r->reel, r->arena, e) < 0)
        return -1;
    r->said_ready = true;
    r->ready(r->arg);
    return 0;
}

static bool all_are_in(const struct replay *r)
{
    for (unsigned i = 0; i < r->conf.sources; i++) {
        if (!source_is_in(r->sources[i]))
            return false;
    }
    return true;
}

static void turn(struct replay *r)
{
    struct err e = { .code = ERR_NONE };

    if (r->over)
        return;
    if (r->arena == NULL && !r->ending) {
        if (!all_are_in(r))
            return;
        if (begin(r, &e) < 0) {
            finish(r, &e);
            return;
        }
    }
    if (!r->ending && play(r, &e) < 0) {
        finish(r, &e);
        return;
    }
    if (r->ending && all_done(r))
        finish(r, &r->why);
}

static void on_again(struct ev_loop *loop, ev_async *w, int revents)
{
    (void)loop, (void)revents;
    turn(w->data);
}

static void on_due(struct ev_loop *loop, ev_timer *w, int revents)
{
    (void)loop, (void)revents;
    turn(w->data);
}

static void notify(void *arg)
{
    struct replay *r = arg;

    ev_async_send(r->conf.loop, &r->again);
}

/* ---- what the sources tell ------------------------------------------------------------------ */

static void on_changed(void *arg, struct source *s)
{
    (void)s;
    want_turn(arg);
}

static void on_freed(void *arg, struct source *s, uint64_t id)
{
    struct replay *r = arg;
    struct out *o;

    (void)s;
    HASH_FIND(hh, r->out, &id, sizeof id, o);
    if (--o->parts > 0)
        return;
    HASH_DEL(r->out, o);
    reel_give(r->reel, o->tf);
    free(o);
    r->released++;
    want_turn(r);
}

static void on_stopping(void *arg, struct source *s, const char *reason)
{
    struct replay *r = arg;
    struct err e;

    (void)s;
    err_set(&e, ERR_CANCELLED, "run %" PRIu64 " was stopped after %" PRIu64 " time-frames%s%.300s", r->conf.run,
            r->announced, reason[0] != '\0' ? ": " : "", reason);
    cut_short(r, &e);
}

static void on_failed(void *arg, struct source *s, const struct err *why)
{
    (void)s;
    finish(arg, why);
}

/* ---- life ----------------------------------------------------------------------------------- */

static int memory_limit(struct replay *r, struct err *e)
{
    struct room room;
    uint64_t unused;

    r->memory = r->conf.memory;
    if (r->memory == 0) {
        if (room_measure("/", "", &room, e) < 0)
            return -1;
        r->memory = (room.memory < room.cgroup ? room.memory : room.cgroup) / 2;
    }
    return reel_arena_size(r->reel, 1, r->memory, &unused, e);
}

static int check_files(const struct replay *r, struct err *e)
{
    enum err_code all = ERR_NONE;

    if (check_bad(r, e) < 0)
        return -1;
    if (reel_tfs(r->reel) > 0)
        return 0;
    for (size_t i = 0; i < reel_bad_count(r->reel); i++)
        all = err_common(all, reel_bad(r->reel, i)->code);
    return err_set(e, all,
                   "none of %zu files has a time-frame that can be played", r->conf.n_paths);
}

struct replay *replay_create(const struct replay_conf *conf, struct err *e)
{
    struct replay *r = mem_zalloc(sizeof *r);

    r->conf = *conf;
    r->pace.rate = conf->rate;
    r->sources = mem_array(conf->sources, sizeof *r->sources);
    r->holds = mem_array(conf->sources, sizeof *r->holds);
    ev_async_init(&r->again, on_again);
    ev_init(&r->due, on_due);
    ev_init(&r->limit, NULL);
    r->again.data = r->due.data = r->limit.data = r;
    ev_async_start(conf->loop, &r->again);
    const struct reel_conf rc = {
        .paths = conf->paths, .n_paths = conf->n_paths, .threads = conf->threads, .sources = conf->sources,
        .preread = conf->preread, .loops = conf->loops, .verify = conf->verify, .notify = notify, .arg = r,
    };
    r->reel = reel_create(&rc);
    if (reel_scan(r->reel, e) < 0)
        goto fail;
    say_bad(r);
    if (check_files(r, e) < 0 || memory_limit(r, e) < 0)
        goto fail;
    return r;
fail:
    replay_destroy(r);
    return NULL;
}

/* unix:FOLDER/source-PID.sock: beside sluiced's socket where that can be written, for then whoever cleans up finds it there. */
static char *own_address(const char *server)
{
    const char *path = peer_unix_path(server);
    const char *slash = strrchr(path, '/'), *tmp = getenv("TMPDIR");
    char *folder = slash == NULL ? mem_strdup(".")
                 : slash == path ? mem_strdup("/") : mem_printf("%.*s", (int)(slash - path), path);
    char *whole = access(folder, W_OK) == 0 ? realpath(folder, NULL) : NULL;
    const char *best = whole != NULL ? whole : tmp != NULL && tmp[0] == '/' ? tmp : "/tmp";
    char *address = mem_printf("unix:%s/source-%d.sock", best, (int)getpid());

    free(whole);
    free(folder);
    return address;
}

static bool is_remote(const struct replay_conf *c)
{
    return !peer_is_unix(c->server) && !peer_is_loopback(c->server);
}

static int listen_address(const struct replay_conf *c, char **address, struct err *e)
{
    if (c->listen == NULL && !peer_is_unix(c->server))
        return err_set(e, ERR_USAGE, "--listen HOST:PORT is wanted with a server on TCP: where workers reach this source");
    if (c->listen != NULL && is_remote(c) && (peer_is_unix(c->listen) || peer_is_loopback(c->listen)))
        return err_set(e, ERR_USAGE, "--listen %s: workers on other machines cannot reach it", c->listen);
    *address = c->listen != NULL ? mem_strdup(c->listen) : own_address(c->server);
    return 0;
}

/* A name may stand for this machine alone, as a host's own name often does; what it became is known after the bind. */
static int check_bound(const struct replay *r, struct err *e)
{
    const char *bound = outlet_address(r->outlet);

    if (is_remote(&r->conf) && peer_is_loopback(bound))
        return err_set(e, ERR_USAGE, "--listen %s is %s here: workers on other machines cannot reach it", r->conf.listen, bound);
    return 0;
}

static int add_source(struct replay *r, unsigned i, struct err *e)
{
    char *name = r->conf.name != NULL ? mem_printf("%s-%u", r->conf.name, i)
                                      : mem_printf("replay-%d-%u", (int)getpid(), i);
    const struct source_conf sc = {
        .loop = r->conf.loop, .names = r->conf.names, .server = r->conf.server, .method = r->conf.method,
        .name = name, .address = outlet_address(r->outlet), .run = r->conf.run, .part = i, .holds = true,
        .first_s = r->conf.first_s, .lost_s = r->conf.lost_s,
        .events = { .changed = on_changed, .freed = on_freed, .stopping = on_stopping, .failed = on_failed },
        .arg = r,
    };

    r->sources[i] = source_create(&sc, e);
    free(name);
    if (r->sources[i] == NULL)
        return -1;
    r->holds[i] = source_hold(r->sources[i]);
    return 0;
}

int replay_start(struct replay *r, void (*ready)(void *), void (*ended)(void *, const struct err *), void *arg,
                 struct err *e)
{
    char *address = NULL;

    r->ready = ready;
    r->ended = ended;
    r->arg = arg;
    if (listen_address(&r->conf, &address, e) < 0)
        return -1;
    const struct outlet_conf oc = {
        .loop = r->conf.loop, .address = address, .mode = 0666, .run = r->conf.run, .holds = r->holds,
        .n_holds = r->conf.sources, .max_workers = MAX_WORKERS, .handshake_s = 5,
    };
    r->outlet = outlet_create(&oc, e);
    free(address);
    if (r->outlet == NULL || check_bound(r, e) < 0)
        return -1;
    for (unsigned i = 0; i < r->conf.sources; i++) {
        if (add_source(r, i, e) < 0)
            return -1;
    }
    return 0;
}

static void on_limit(struct ev_loop *loop, ev_timer *w, int revents)
{
    struct replay *r = w->data;

    (void)loop, (void)revents;
    finish(r, &r->why);
}

void replay_stop(struct replay *r, const char *reason, double limit_s)
{
    struct err e;

    err_set(&e, ERR_CANCELLED, "%s after %" PRIu64 " time-frames", reason, r->announced);
    cut_short(r, &e);
    if (r->over)
        return;
    r->why = e;
    ev_timer_stop(r->conf.loop, &r->limit);
    ev_set_cb(&r->limit, on_limit);
    ev_timer_set(&r->limit, limit_s, 0);
    ev_timer_start(r->conf.loop, &r->limit);
    want_turn(r);
}

void replay_numbers(const struct replay *r, struct replay_numbers *n)
{
    int64_t now = r->over_ns != 0 ? r->over_ns : clock_mono_ns();

    *n = (struct replay_numbers){
        .announced = r->announced, .released = r->released, .total = reel_tfs(r->reel) * r->conf.loops,
        .bytes = r->bytes,
        .read_bytes = reel_read_bytes(r->reel), .rate_wanted = r->conf.rate, .skipped = reel_bad_count(r->reel),
        .rate_offered = pace_offered(&r->pace, r->announced, r->last_ns), .rate_achieved = NAN,
        .sources = r->conf.sources, .memory = r->arena != NULL ? arena_size(r->arena) : 0, .passes = r->conf.loops, .largest = reel_largest(r->reel),
    };
    if (r->pace.started)
        n->seconds = (double)(now - r->pace.start_ns) * 1e-9;
    if (n->seconds > 0 && r->released > 0)
        n->rate_achieved = (double)r->released / n->seconds;
    for (int i = 0; i < REPLAY_WAITS; i++) {
        int64_t ns = r->wait_ns[i] + (i == (int)r->waiting && r->waiting_since != 0 ? now - r->waiting_since : 0);
        n->wait[i] = (double)ns * 1e-9;
    }
    if (r->outlet != NULL) {
        n->pulls = outlet_stats(r->outlet)->pulls;
        n->stale = outlet_stats(r->outlet)->stale;
        n->turned_away = outlet_stats(r->outlet)->refused;
    }
    for (unsigned i = 0; i < r->conf.sources; i++)
        n->reconnects += r->sources[i] != NULL ? source_reconnects(r->sources[i]) : 0;
}

size_t replay_bad_count(const struct replay *r)
{
    return reel_bad_count(r->reel);
}

void replay_bad(const struct replay *r, size_t i, const char **path, uint64_t *offset, const char **text,
                uint64_t *tfs)
{
    const struct reel_bad *b = reel_bad(r->reel, i);

    *path = b->path;
    *offset = b->offset;
    *text = b->text;
    *tfs = b->tfs;
}

int replay_destroy(struct replay *r)
{
    struct out *o, *next;

    if (r == NULL)
        return 0;
    if (reel_stop(r->reel, STOP_READERS_NS) < 0)
        return -1;
    ev_async_stop(r->conf.loop, &r->again);
    ev_timer_stop(r->conf.loop, &r->due);
    ev_timer_stop(r->conf.loop, &r->limit);
    outlet_destroy(r->outlet);       /* before the holds: its transfers unpin parts */
    for (unsigned i = 0; i < r->conf.sources; i++)
        source_destroy(r->sources[i]);
    HASH_ITER(hh, r->out, o, next) {
        HASH_DEL(r->out, o);
        free(o);
    }
    reel_destroy(r->reel);
    arena_destroy(r->arena);
    free(r->sources);
    free(r->holds);
    free(r);
    return 0;
}
