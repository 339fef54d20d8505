/* pull.c - takes parts of TFs from their sources
 *
 * From: intake.c.  To: the sources, intake.c (done).
 * A connection: connecting -> hello -> proof -> ready; any failure ends it, and with it every pull that waits on it. Pulls on a connection are sent in
 * order and answered in order, so the deadline "no byte for pull_timeout" is the connection's. Without progress the connection is closed: only then
 * is it certain that the source writes no more into our buffer.
 */
#include "config.h"
#include "pull.h"

#include "chan.h"
#include "clock.h"
#include "frame.h"
#include "log.h"
#include "mem.h"
#include "peer.h"
#include "worker.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

enum { DEPTH = 8, STEP = 256 * 1024 };           /* pulls under way on a connection; bytes read and hashed at a time, while they are in the cache */

enum source_state { SOURCE_CLOSED, SOURCE_RESOLVING, SOURCE_HELLO, SOURCE_PROOF, SOURCE_READY };

struct source {
    TAILQ_ENTRY(source) entry;                   /* of pulls: the one used longest ago first */
    struct pulls *pulls;
    struct work  *work;
    char    *address;
    bool     same_host;
    enum source_state state;
    struct chan *chan;
    struct name_question *question;
    uint8_t  nonce[RUNKEY_NONCE], their_nonce[RUNKEY_NONCE];
    TAILQ_HEAD(, pull) waiting, sent;
    unsigned n_sent;
    int64_t  moved_at;                           /* worker_now of the last byte, or of the first wish */
    struct pull *moving;                         /* its bytes come over the connection right now */
};

struct pulls {
    struct worker *worker;
    TAILQ_HEAD(, source) sources;
    TAILQ_HEAD(pull_list, pull) reading;         /* handed to a thread */
    unsigned n_open, max_open;
    unsigned n_descriptors, max_descriptors;     /* descriptors of sources: here, or asked for */
    bool     said_full, starved;                 /* starved: a pull waits for a descriptor to be closed */
};

static void source_pump(struct source *s);
static void pump_all(struct pulls *all, struct source *first);

struct pulls *pulls_create(struct worker *w, unsigned max_connections, unsigned max_descriptors)
{
    struct pulls *s = mem_zalloc(sizeof *s);

    s->worker = w;
    s->max_open = max_connections;
    s->max_descriptors = max_descriptors;
    TAILQ_INIT(&s->sources);
    TAILQ_INIT(&s->reading);
    return s;
}

/* ---- the end of a pull ------------------------------------------------------------------------ */

/* Says how it ended, unless nobody wants to know. */
static void pull_say(struct pull *p, const char *word, const char *text)
{
    if (!p->abandoned) {
        p->abandoned = true;
        p->done(p, word, text);
    }
}

/* p is gone afterwards. */
static void pull_end(struct pull *p, const char *word, const char *text)
{
    pull_say(p, word, text);
    p->left(p);
}

/* ---- threads: reading a descriptor, checksums --------------------------------------------------- */

int pull_read_extents(int fd, const struct extent *x, unsigned n, uint8_t *to, atomic_uint_fast64_t *got, atomic_bool *abandoned,
                      uint64_t *hash, char *why, size_t why_size)
{
    XXH3_state_t *h = XXH3_createState();
    int rc = 0;

    if (h == NULL) {
        snprintf(why, why_size, "out of memory");
        return -1;
    }
    XXH3_64bits_reset(h);
    for (unsigned i = 0; i < n && rc == 0; i++) {
        uint64_t at = 0;
        while (at < x[i].size && rc == 0) {
            size_t want = x[i].size - at < STEP ? (size_t)(x[i].size - at) : STEP;
            ssize_t r = pread(fd, to, want, (off_t)(x[i].offset + at));
            if (r < 0 && errno == EINTR)
                continue;
            if (r <= 0) {
                snprintf(why, why_size, "offset %" PRIu64 ": %zu bytes wanted, %s", x[i].offset + at, want,
                         r < 0 ? strerror(errno) : "the end of the file found");
                rc = -1;
            } else if (*abandoned) {
                snprintf(why, why_size, "given up");
                rc = -1;
            } else {
                XXH3_64bits_update(h, to, (size_t)r);
                to += r;
                at += (uint64_t)r;
                *got += (uint64_t)r;
            }
        }
    }
    *hash = XXH3_64bits_digest(h);
    XXH3_freeState(h);
    return rc;
}

static void read_run(struct pool_task *t)
{
    struct pull *p = CONTAINER_OF(t, struct pull, task);

    p->why[0] = '\0';
    pull_read_extents(p->fd, p->extent, p->n_extents, p->to, &p->got, &p->abandoned, &p->hash, p->why, sizeof p->why);
}

static void hash_run(struct pool_task *t)
{
    struct pull *p = CONTAINER_OF(t, struct pull, task);

    p->why[0] = '\0';
    p->hash = XXH3_64bits(p->to, p->size);
}

static void task_done(struct pool_task *t)
{
    struct pull *p = CONTAINER_OF(t, struct pull, task);
    struct source *s = p->source;
    struct pulls *all = s->pulls;
    char text[256];

    TAILQ_REMOVE(&all->reading, p, entry);
    if (p->fd >= 0) {
        close(p->fd);
        all->n_descriptors--;
    }
    free(p->extent);
    if (t->dropped)
        pull_end(p, "Cancelled", "the worker stops");
    else if (p->why[0] != '\0')
        pull_end(p, "PartGone", p->why);
    else if (p->hash != p->wanted_hash) {
        snprintf(text, sizeof text, "part %" PRIu32 ": checksum %016" PRIx64 " announced, %016" PRIx64 " found", p->part,
                 p->wanted_hash, p->hash);
        pull_end(p, "DigestMismatch", text);
    } else
        pull_end(p, NULL, NULL);
    pump_all(all, s);
}

static void to_thread(struct pull *p, void (*run)(struct pool_task *))
{
    struct pulls *all = p->source->pulls;

    p->state = PULL_READING;
    p->moved_at = worker_now(all->worker);
    p->got_seen = p->got;
    p->task.run = run;
    p->task.done = task_done;
    TAILQ_INSERT_TAIL(&all->reading, p, entry);
    pool_submit(all->worker->io, &p->task);
}

/* ---- a connection ------------------------------------------------------------------------------- */

/* The connection ends; whoever waits for it fails with word. The source stays known: the next pull opens it again. */
static void source_fail(struct source *s, const char *word, const char *text)
{
    TAILQ_HEAD(, pull) failed = TAILQ_HEAD_INITIALIZER(failed);
    struct chan *c = s->chan;
    struct pull *p, *moving = s->moving;
    char why[400];

    snprintf(why, sizeof why, "source %s: %s", s->address, text);
    if (s->state != SOURCE_CLOSED)
        s->pulls->n_open--;
    s->state = SOURCE_CLOSED;
    s->chan = NULL;
    if (s->question != NULL)
        names_cancel(s->question);
    s->question = NULL;
    if (s->same_host)
        s->pulls->n_descriptors -= s->n_sent;
    TAILQ_CONCAT(&failed, &s->sent, entry);
    TAILQ_CONCAT(&failed, &s->waiting, entry);
    s->n_sent = 0;
    s->moving = NULL;
    chan_destroy(c);                             /* from here on nobody writes to the part that was on its way */
    if (moving != NULL)
        TAILQ_INSERT_HEAD(&failed, moving, entry);
    TAILQ_FOREACH(p, &failed, entry)
        p->state = PULL_FAILING;
    while ((p = TAILQ_FIRST(&failed)) != NULL) {
        TAILQ_REMOVE(&failed, p, entry);
        pull_end(p, word, why);
    }
}

/* Out of `sent`: its answer is here. */
static struct pull *answered(struct source *s, uint64_t id)
{
    struct pull *p = TAILQ_FIRST(&s->sent);

    if (p == NULL || p->tf.id != id)
        return NULL;
    TAILQ_REMOVE(&s->sent, p, entry);
    s->n_sent--;
    if (s->same_host)
        s->pulls->n_descriptors--;
    return p;
}

static void progress(void *arg, size_t got)
{
    struct source *s = arg;
    s->moved_at = worker_now(s->pulls->worker);
    (void)got;
}

/* All bytes of a part came over the connection, or the connection went. */
static void moved(void *arg, int ok)
{
    struct source *s = arg;
    struct pull *p = s->moving;

    s->moving = NULL;
    if (p == NULL)
        return;                                  /* source_fail deals with it */
    if (ok) {
        s->moved_at = worker_now(s->pulls->worker);
        to_thread(p, hash_run);
        source_pump(s);
        return;
    }
    pull_end(p, "PartGone", "the connection to its source ended in the middle of a part");
}

static int take_extents(struct pull *p, const Sluice__PartData *m)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_extents; i++) {
        if (m->extents[i]->size > p->size - sum || m->extents[i]->offset > INT64_MAX - p->size)
            return -1;
        sum += m->extents[i]->size;
    }
    if (sum != p->size)
        return -1;
    p->extent = mem_array(m->n_extents, sizeof *p->extent);
    p->n_extents = (unsigned)m->n_extents;
    for (size_t i = 0; i < m->n_extents; i++)
        p->extent[i] = (struct extent){ m->extents[i]->offset, m->extents[i]->size };
    return 0;
}

static void part_data(struct source *s, const Sluice__PartData *m, int *fds, unsigned n_fds)
{
    struct pull *p = answered(s, m->id);
    char text[200];

    if (p == NULL || p->part != m->part) {
        if (p != NULL)
            pull_end(p, "PartGone", "its source answered with another part");
        source_fail(s, "PartGone", "answered what was not asked");
        return;
    }
    if (m->size != p->size || !m->has_xxh3) {
        snprintf(text, sizeof text, "part %" PRIu32 ": %" PRIu64 " bytes announced, %" PRIu64 " offered%s", p->part, p->size,
                 m->size, m->has_xxh3 ? "" : " without a checksum");
        pull_end(p, "PartGone", text);
        source_fail(s, "PartGone", "offered a part of another size");
        return;
    }
    p->wanted_hash = m->xxh3;
    if (m->n_extents > 0 || n_fds > 0) {
        if (n_fds != 1 || take_extents(p, m) < 0) {
            pull_end(p, "PartGone", "its source passed no descriptor, or ranges of another size");
            source_fail(s, "PartGone", "passed no descriptor, or ranges of another size");
            return;
        }
        p->fd = fds[0];
        fds[0] = -1;
        s->pulls->n_descriptors++;
        to_thread(p, read_run);
        source_pump(s);
        return;
    }
    p->state = PULL_MOVING;
    s->moving = p;
    if (chan_receive_raw(s->chan, p->to, p->size, moved, progress, s) < 0 && s->moving == p)
        moved(s, 0);
}

static void part_refused(struct source *s, const Sluice__PullRefused *m)
{
    struct pull *p = answered(s, m->id);
    bool stale = m->word != NULL && strcmp(m->word, "StaleFence") == 0;
    char text[256];

    if (p == NULL) {
        source_fail(s, "PartGone", "answered what was not asked");
        return;
    }
    snprintf(text, sizeof text, "source %s, part %" PRIu32 ": %s%s%s", s->address, p->part, m->word ? m->word : "refused",
             m->text ? ": " : "", m->text ? m->text : "");
    pull_end(p, stale ? "StaleFence" : "PartGone", text);
    source_pump(s);
}

static int proof_right(struct source *s, const Sluice__PullChallenge *m)
{
    uint8_t want[RUNKEY_PROOF];

    if (m->nonce.len != RUNKEY_NONCE || m->proof.len != RUNKEY_PROOF)
        return 0;
    memcpy(s->their_nonce, m->nonce.data, RUNKEY_NONCE);
    runkey_proof(s->work->secret, "source", s->pulls->worker->node, s->work->key.run, s->nonce, s->their_nonce, want);
    return runkey_equal(want, m->proof.data, RUNKEY_PROOF);
}

static void challenged(struct source *s, const Sluice__PullChallenge *m)
{
    Sluice__PullProof proof = SLUICE__PULL_PROOF__INIT;
    uint8_t own[RUNKEY_PROOF];

    if (!proof_right(s, m)) {
        source_fail(s, "PartGone", "does not know the key of the run");
        return;
    }
    runkey_proof(s->work->secret, "worker", s->pulls->worker->node, s->work->key.run, s->nonce, s->their_nonce, own);
    proof.has_proof = 1;
    proof.proof.data = own;
    proof.proof.len = sizeof own;
    s->state = SOURCE_PROOF;
    chan_send(s->chan, 0, &proof.base);
}

static void message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct source *s = arg;

    (void)id;
    s->moved_at = worker_now(s->pulls->worker);
    if (type == SLUICE__TYPE__PULL_CHALLENGE && s->state == SOURCE_HELLO) {
        challenged(s, (const Sluice__PullChallenge *)m);
    } else if (type == SLUICE__TYPE__PULL_READY && s->state == SOURCE_PROOF) {
        s->state = SOURCE_READY;
        chan_known(c);
        source_pump(s);
    } else if (type == SLUICE__TYPE__PART && s->state == SOURCE_READY) {
        part_data(s, (const Sluice__PartData *)m, fds, n_fds);
    } else if (type == SLUICE__TYPE__PULL_REFUSED && s->state == SOURCE_READY) {
        part_refused(s, (const Sluice__PullRefused *)m);
    } else if (type == SLUICE__TYPE__ERROR) {
        const Sluice__Error *e = (const Sluice__Error *)m;
        source_fail(s, "PartGone", e->text ? e->text : "refused the connection");
    } else {
        source_fail(s, "PartGone", "sent what does not belong here");
    }
}

static void closed(void *arg, struct chan *c, const struct err *why)
{
    (void)c;
    source_fail(arg, "PartGone", why->code == ERR_NONE ? "closed the connection" : why->text);
}

/* The socket connects, or is connected. */
static void source_talk(struct source *s, int fd)
{
    static const struct chan_events events = { .message = message, .closed = closed };
    const struct chan_limits limits = { .dead_s = -1 };     /* the pull's own deadline is sharper; our beats keep a source alive to us in a long part */
    Sluice__PullHello hello = SLUICE__PULL_HELLO__INIT;
    struct err e;

    if (runkey_random(s->nonce, sizeof s->nonce, &e) < 0) {
        close(fd);
        source_fail(s, "PartGone", e.text);
        return;
    }
    s->chan = chan_create(s->pulls->worker->loop, fd, &limits, &events, s);
    s->state = SOURCE_HELLO;
    hello.has_major = hello.has_run = hello.has_nonce = hello.has_same_host = 1;
    hello.major = PROTO_MAJOR;
    hello.run = s->work->key.run;
    hello.node = (char *)s->pulls->worker->node;
    hello.nonce.data = s->nonce;
    hello.nonce.len = sizeof s->nonce;
    hello.same_host = s->same_host;
    chan_send(s->chan, 0, &hello.base);
}

static void resolved(void *arg, const struct name_answer *a)
{
    struct source *s = arg;
    char host[NI_MAXHOST], port[NI_MAXSERV], address[NI_MAXHOST + NI_MAXSERV + 4];
    struct err e = { 0 };
    int fd = -1;

    s->question = NULL;
    if (a->code != ERR_NONE) {
        source_fail(s, "PartGone", a->why.text);
        return;
    }
    for (unsigned i = 0; i < a->n_addr && fd < 0; i++) {
        if (getnameinfo((const struct sockaddr *)&a->addr[i], a->addr_len[i], host, sizeof host, port, sizeof port,
                        NI_NUMERICHOST | NI_NUMERICSERV) != 0)
            continue;
        snprintf(address, sizeof address, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
        fd = peer_connect_fd(address, &e);
    }
    if (fd < 0)
        source_fail(s, "PartGone", e.text[0] ? e.text : "has no address");
    else
        source_talk(s, fd);
}

/* Room for one more connection: the idle one that was used longest ago goes. */
static bool make_room(struct pulls *all)
{
    struct source *s;

    if (all->n_open < all->max_open)
        return true;
    TAILQ_FOREACH(s, &all->sources, entry) {
        if (s->state == SOURCE_READY && TAILQ_EMPTY(&s->sent) && TAILQ_EMPTY(&s->waiting) && s->moving == NULL) {
            source_fail(s, "PartGone", "closed to make room");
            return true;
        }
    }
    if (!all->said_full)
        log_warning("pulls: %u connections to sources are open, the limit of descriptors allows no more; others wait", all->n_open);
    all->said_full = true;
    return false;
}

static void source_open(struct source *s)
{
    char host[256], port[16];
    struct err e;

    if (!make_room(s->pulls))
        return;                                  /* again at the next tick, until the deadline */
    s->pulls->n_open++;
    s->state = SOURCE_RESOLVING;
    int fd = peer_connect_fd(s->address, &e);
    if (fd >= 0) {
        source_talk(s, fd);
        return;
    }
    if (!s->same_host && peer_parse(s->address, host, port, NULL) == 0 && s->pulls->worker->names != NULL) {
        s->question = names_resolve(s->pulls->worker->names, host, port, s->work->pull_timeout, resolved, s, &e);
        if (s->question != NULL)
            return;
    }
    source_fail(s, "PartGone", e.text);
}

/* Sends what may be sent. */
static void source_pump(struct source *s)
{
    struct pulls *all = s->pulls;
    struct pull *p;

    while (s->state == SOURCE_READY && (p = TAILQ_FIRST(&s->waiting)) != NULL && s->n_sent < DEPTH) {
        if (s->same_host && all->n_descriptors >= all->max_descriptors) {
            all->starved = true;
            return;
        }
        Sluice__Pull m = SLUICE__PULL__INIT;
        struct tf_id id;

        tf_id_fill(&id, p->tf, p->fence);
        m.has_id = m.has_part = m.has_descriptor = 1;
        m.id = p->tf.id;
        m.fence = &id.fence;
        m.part = p->part;
        m.descriptor = s->same_host;
        if (s->n_sent == 0)
            s->moved_at = worker_now(all->worker);
        TAILQ_REMOVE(&s->waiting, p, entry);
        TAILQ_INSERT_TAIL(&s->sent, p, entry);
        s->n_sent++;
        if (s->same_host)
            all->n_descriptors++;
        p->state = PULL_SENT;
        if (chan_send(s->chan, 0, &m.base) < 0)
            return;                              /* `closed` follows */
    }
}

/* first, and when descriptors were short everybody. */
static void pump_all(struct pulls *all, struct source *first)
{
    struct source *s;

    if (!all->starved) {
        source_pump(first);
        return;
    }
    all->starved = false;
    TAILQ_FOREACH(s, &all->sources, entry)
        source_pump(s);
}

/* ---- called by intake.c ------------------------------------------------------------------------- */

static struct source *source_of(struct pulls *all, struct work *work, const char *address)
{
    struct source *s;

    TAILQ_FOREACH(s, &all->sources, entry) {
        if (s->work == work && strcmp(s->address, address) == 0) {
            TAILQ_REMOVE(&all->sources, s, entry);
            TAILQ_INSERT_TAIL(&all->sources, s, entry);
            return s;
        }
    }
    s = mem_zalloc(sizeof *s);
    s->pulls = all;
    s->work = work_use(work);
    s->address = mem_strdup(address);
    s->same_host = strncmp(address, "unix:", 5) == 0 || strchr(address, '/') != NULL;
    TAILQ_INIT(&s->waiting);
    TAILQ_INIT(&s->sent);
    TAILQ_INSERT_TAIL(&all->sources, s, entry);
    return s;
}

void pull_start(struct pulls *all, struct pull *p)
{
    struct source *s = source_of(all, p->work, p->address);

    p->source = s;
    p->fd = -1;
    p->state = PULL_WAITING;
    if (TAILQ_EMPTY(&s->waiting) && TAILQ_EMPTY(&s->sent) && s->moving == NULL)
        s->moved_at = worker_now(all->worker);
    TAILQ_INSERT_TAIL(&s->waiting, p, entry);
    if (s->state == SOURCE_CLOSED)
        source_open(s);
    else
        source_pump(s);
}

/* What was sent is answered all the same, and its bytes must have a place: only what waits can leave at once. */
void pull_cancel(struct pulls *all, struct pull *p)
{
    (void)all;
    p->abandoned = true;
    if (p->state == PULL_WAITING) {
        TAILQ_REMOVE(&p->source->waiting, p, entry);
        p->state = PULL_FAILING;
        p->left(p);
    }
}

static void source_free(struct source *s)
{
    struct pulls *all = s->pulls;

    source_fail(s, "Cancelled", "the run is closed");
    TAILQ_REMOVE(&all->sources, s, entry);
    work_unuse(&all->worker->works, s->work);
    free(s->address);
    free(s);
}

static bool source_idle(const struct source *s)
{
    struct pull *p;

    TAILQ_FOREACH(p, &s->pulls->reading, entry) {
        if (p->source == s)
            return false;
    }
    return TAILQ_EMPTY(&s->waiting) && TAILQ_EMPTY(&s->sent) && s->moving == NULL;
}

void pulls_close(struct pulls *all, struct work *work)
{
    struct source *s, *next;

    for (s = TAILQ_FIRST(&all->sources); s != NULL; s = next) {
        next = TAILQ_NEXT(s, entry);
        if (s->work == work && source_idle(s))
            source_free(s);
    }
}

static void judge_source(struct source *s, int64_t now)
{
    char text[120];

    if (TAILQ_EMPTY(&s->waiting) && TAILQ_EMPTY(&s->sent) && s->moving == NULL)
        return;
    if (s->state == SOURCE_CLOSED)
        source_open(s);
    if (s->state == SOURCE_READY && TAILQ_EMPTY(&s->sent) && s->moving == NULL)
        return;                                  /* waits for us, not for the source */
    if (now - s->moved_at < (int64_t)(s->work->pull_timeout * 1e9))
        return;
    snprintf(text, sizeof text, "no byte for %.1f s", (double)(now - s->moved_at) / 1e9);
    source_fail(s, s->moving ? "PullStalled" : "PullTimeout", text);
}

static void judge_reading(struct pull *p, int64_t now)
{
    uint64_t got = p->got;
    char text[160];

    if (got != p->got_seen || p->task.run == hash_run) {
        p->got_seen = got;
        p->moved_at = now;
        return;
    }
    if (p->abandoned || now - p->moved_at < (int64_t)(p->work->pull_timeout * 1e9))
        return;
    if (pool_task_starved(&p->task)) {
        p->moved_at = now;
        return;
    }
    snprintf(text, sizeof text, "source %s, part %" PRIu32 ": nothing could be read from its descriptor for %.1f s",
             p->address, p->part, (double)(now - p->moved_at) / 1e9);
    pull_say(p, "PullStalled", text);            /* its thread comes back when it can; until then the memory is not ours to give */
}

void pulls_tick(struct pulls *all)
{
    int64_t now = worker_now(all->worker);
    struct source *s, *next;
    struct pull *p, *after;

    for (s = TAILQ_FIRST(&all->sources); s != NULL; s = next) {
        next = TAILQ_NEXT(s, entry);
        judge_source(s, now);
        if (s->work->closed && source_idle(s))
            source_free(s);
    }
    for (p = TAILQ_FIRST(&all->reading); p != NULL; p = after) {
        after = TAILQ_NEXT(p, entry);
        judge_reading(p, now);
    }
}

void pulls_destroy(struct pulls *all)
{
    struct source *s;

    if (all == NULL)
        return;
    while ((s = TAILQ_FIRST(&all->sources)) != NULL)
        source_free(s);
    free(all);
}
