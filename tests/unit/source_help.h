/* source_help.h - the two others that a source talks to, played by a test on its own loop: sluiced by script, and a worker that pulls */
#ifndef SOURCE_HELP_H
#define SOURCE_HELP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "hold.h"
#include "loop_help.h"
#include "make_tf.h"
#include "mem.h"
#include "peer.h"
#include "runkey.h"

enum { HELP_RUN = 42, HELP_SOURCES = 40, HELP_TFS = 20000 };

/* ---- sluiced ------------------------------------------------------------------------------------- */

struct told {                                    /* of one TF by one source */
    bool     here, pulled;
    uint64_t size, attempt;
    uint32_t orbit;
    char     node[HOLD_NODE];
};

struct session {
    struct sluiced *d;
    struct chan *chan;
    struct peer_id id;
    bool     registered, ended;
    uint32_t part;
    char     name[64], address[300];
    uint64_t watermark, announces, connection, high;    /* high: the largest id announced on this connection */
    struct told *tfs;                            /* by id; as told on this connection */
};

struct sluiced {
    struct ev_loop *loop;
    struct listener *listener;
    char     address[200];
    uint8_t  key[RUNKEY_SIZE];
    uint32_t window;
    int      refuse;                             /* > 0: answer every source with this code */
    struct session sessions[HELP_SOURCES];       /* by part */
    struct session *guests[HELP_SOURCES];        /* connected, part not said yet */
    unsigned n_in, n_ended;
    bool     happened;                           /* set by every message: something to look at */
    void   (*announced)(struct sluiced *d, struct session *s, uint64_t id);
    uint64_t peak;                               /* most TFs of one source that were announced and not released */
    uint64_t released[HELP_SOURCES];             /* how many, by part */
    uint64_t settled;                            /* what is announced up to this number is answered by Release at once */
    uint64_t total[HELP_SOURCES];                /* announced as fresh for the first time, by part */
};

static inline void sluiced_send_release(struct session *s, uint64_t first, uint64_t count)
{
    Sluice__Release m = SLUICE__RELEASE__INIT;
    Sluice__Range r = SLUICE__RANGE__INIT, *list[] = { &r };

    r.has_first = r.has_count = m.has_run = true;
    r.first = first;
    r.count = count;
    m.run = HELP_RUN;
    m.ranges = list;
    m.n_ranges = 1;
    chan_send(s->chan, 0, &m.base);
}

static inline void sluiced_took_range(struct sluiced *d, struct session *s, const Sluice__AnnounceRange *r)
{
    for (uint32_t k = 0; k < r->count; k++) {
        uint64_t id = r->first + k;
        struct told *t = &s->tfs[id];
        if (id >= HELP_TFS || t->here || r->n_sizes != r->count || r->n_orbits != r->count)
            abort();                             /* twice on one connection, or a list of another length */
        t->here = true;
        t->size = r->sizes[k];
        t->orbit = r->orbits[k];
        t->pulled = r->state == SLUICE__FRESHNESS__PULLED;
        if (t->pulled) {
            snprintf(t->node, sizeof t->node, "%s", r->node);
            t->attempt = r->fence->attempt;
        }
        s->high = id > s->high ? id : s->high;
        if (id <= d->settled)
            sluiced_send_release(s, id, 1);
        if (id > d->total[s->part]) {
            if (id != d->total[s->part] + 1)
                abort();                         /* numbers are consecutive */
            d->total[s->part] = id;
        }
        uint64_t held = d->total[s->part] - d->released[s->part];
        d->peak = held > d->peak ? held : d->peak;
        if (d->announced != NULL)
            d->announced(d, s, id);
    }
}

static inline void sluiced_forget_guest(struct sluiced *d, struct session *guest)
{
    for (unsigned i = 0; i < HELP_SOURCES; i++) {
        if (d->guests[i] == guest) {
            d->guests[i] = NULL;
            chan_destroy(guest->chan);
            free(guest);
        }
    }
}

extern const struct chan_events sluiced_events;

static inline void sluiced_took_source(struct sluiced *d, struct session *guest, const Sluice__Source *m, uint32_t id)
{
    Sluice__SourceAccepted a = SLUICE__SOURCE_ACCEPTED__INIT;
    struct session *s = &d->sessions[m->part];

    if (d->refuse > 0) {
        struct err e;
        err_set(&e, (enum err_code)d->refuse, "refused by the script");
        chan_send_error(guest->chan, id, &e, NULL);
        return;
    }
    if (s->chan != NULL && s->chan != guest->chan)
        chan_destroy(s->chan);                   /* the older connection */
    struct told *tfs = s->tfs != NULL ? s->tfs : mem_array(HELP_TFS, sizeof *s->tfs);
    memset(tfs, 0, HELP_TFS * sizeof *tfs);
    *s = (struct session){ .d = d, .chan = guest->chan, .registered = true, .part = m->part, .tfs = tfs, .connection = m->connection };
    snprintf(s->name, sizeof s->name, "%s", m->name);
    snprintf(s->address, sizeof s->address, "%s", m->address);
    guest->chan = NULL;
    sluiced_forget_guest(d, guest);
    d->n_in++;
    chan_set_owner(s->chan, &sluiced_events, s);
    a.has_epoch = a.has_key = a.has_window = a.has_until_done = true;
    a.epoch = 1;
    a.key = (ProtobufCBinaryData){ RUNKEY_SIZE, d->key };
    a.window = d->window;
    a.until_done = true;
    chan_send(s->chan, id, &a.base);
}

static inline void sluiced_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct session *s = arg;
    Sluice__Ok ok = SLUICE__OK__INIT;

    (void)fds, (void)n_fds;
    s->d->happened = true;
    if (type == SLUICE__TYPE__SOURCE) {
        sluiced_took_source(s->d, s, (const Sluice__Source *)m, id);
    } else if (type == SLUICE__TYPE__ANNOUNCE) {
        const Sluice__Announce *a = (const Sluice__Announce *)m;
        if (s->ended || a->run != HELP_RUN)
            abort();
        s->announces++;
        s->watermark = a->watermark;
        for (size_t i = 0; i < a->n_ranges; i++)
            sluiced_took_range(s->d, s, a->ranges[i]);
    } else if (type == SLUICE__TYPE__END_OF_STREAM) {
        const Sluice__EndOfStream *e = (const Sluice__EndOfStream *)m;
        if (s->ended || e->watermark < s->watermark)
            abort();
        s->watermark = e->watermark;
        s->ended = true;
        s->d->n_ended++;
        if (id != 0)
            chan_send(c, id, &ok.base);
    }
}

static inline void sluiced_closed(void *arg, struct chan *c, const struct err *why)
{
    struct session *s = arg;

    (void)why;
    s->d->happened = true;
    if (!s->registered) {
        sluiced_forget_guest(s->d, s);
        return;
    }
    s->d->n_in--;
    s->registered = false;
    chan_destroy(c);
    s->chan = NULL;
}

const struct chan_events sluiced_events = { .message = sluiced_message, .closed = sluiced_closed };

static inline void sluiced_accepted(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello)
{
    struct sluiced *d = arg;
    struct session *guest = mem_zalloc(sizeof *guest);
    unsigned i = 0;

    (void)hello;
    while (d->guests[i] != NULL)
        i++;
    d->guests[i] = guest;
    guest->d = d;
    guest->chan = c;
    guest->id = *id;
    chan_set_owner(c, &sluiced_events, guest);
    peer_ready(c, id, "shift", 1);
}

static inline void sluiced_listen(struct sluiced *d)
{
    const struct listener_conf conf = { .loop = d->loop, .address = d->address, .epoch = 1, .accepted = sluiced_accepted, .arg = d };
    struct err e;

    d->listener = listener_create(&conf, &e);
    if (d->listener == NULL) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
}

static inline void sluiced_start(struct sluiced *d, struct ev_loop *loop, uint32_t window)
{
    *d = (struct sluiced){ .loop = loop, .window = window };
    snprintf(d->address, sizeof d->address, "unix:%s/d.sock", make_folder);
    runkey_random(d->key, sizeof d->key, NULL);
    sluiced_listen(d);
}

/* As if it were killed: every connection ends at once. What it knew of TFs is kept for the test's own account. */
static inline void sluiced_kill(struct sluiced *d)
{
    listener_destroy(d->listener);
    d->listener = NULL;
    for (unsigned i = 0; i < HELP_SOURCES; i++) {
        if (d->guests[i] != NULL)
            sluiced_forget_guest(d, d->guests[i]);
        chan_destroy(d->sessions[i].chan);
        d->sessions[i].chan = NULL;
        d->sessions[i].registered = d->sessions[i].ended = false;
    }
    d->n_in = 0;
    d->n_ended = 0;
}

static inline void sluiced_stop(struct sluiced *d)
{
    sluiced_kill(d);
    for (unsigned i = 0; i < HELP_SOURCES; i++)
        free(d->sessions[i].tfs);
}

static inline void sluiced_release(struct sluiced *d, unsigned part, uint64_t first, uint64_t count)
{
    d->released[part] += count;
    sluiced_send_release(&d->sessions[part], first, count);
}

static inline void sluiced_say_stopping(struct sluiced *d, unsigned part)
{
    Sluice__RunStopping m = SLUICE__RUN_STOPPING__INIT;

    m.has_run = m.has_data_timeout = true;
    m.run = HELP_RUN;
    m.data_timeout = 5;
    chan_send(d->sessions[part].chan, 0, &m.base);
}

/* ---- a worker ------------------------------------------------------------------------------------ */

struct got {
    bool     answered, refused, ok;              /* ok: the bytes are here and their checksum holds */
    bool     by_descriptor;
    char     word[32];
    uint64_t id, xxh3;
    uint32_t part;
    size_t   size;
    uint8_t *data;
};

struct puller {
    struct chan *chan;
    char     node[32];
    uint8_t  key[RUNKEY_SIZE], nonce[RUNKEY_NONCE];
    bool     same_host, wrong_proof;
    bool     ready, source_proved, closed, happened;
    int      error;                              /* code of an Error that came */
    struct err why;
    struct got gots[64];                         /* answers in the order in which they came */
    unsigned n_got;
    size_t   progress;
};

static inline void puller_check(struct got *g)
{
    g->ok = XXH3_64bits(g->data, g->size) == g->xxh3;
}

static inline void puller_raw_done(void *arg, int ok)
{
    struct puller *p = arg;

    p->happened = true;
    if (ok)
        puller_check(&p->gots[p->n_got - 1]);
}

static inline void puller_raw_progress(void *arg, size_t got)
{
    struct puller *p = arg;

    p->progress = got;
    p->happened = true;
}

static inline void puller_part(struct puller *p, struct chan *c, const Sluice__PartData *m, int *fds, unsigned n_fds)
{
    struct got *g = &p->gots[p->n_got++];

    *g = (struct got){ .answered = true, .id = m->id, .part = m->part, .size = m->size, .xxh3 = m->xxh3, .data = mem_zalloc(m->size + 1) };
    p->progress = 0;
    if (m->n_extents == 0 && m->size > 0) {
        chan_receive_raw(c, g->data, g->size, puller_raw_done, puller_raw_progress, p);
        return;
    }
    g->by_descriptor = n_fds == 1;
    size_t at = 0;
    for (size_t i = 0; i < m->n_extents; i++) {
        if (pread(fds[0], g->data + at, m->extents[i]->size, (off_t)m->extents[i]->offset) != (ssize_t)m->extents[i]->size)
            abort();
        at += m->extents[i]->size;
    }
    if (at == g->size)
        puller_check(g);
}

static inline void puller_challenge(struct puller *p, struct chan *c, const Sluice__PullChallenge *m)
{
    Sluice__PullProof proof = SLUICE__PULL_PROOF__INIT;
    uint8_t bytes[RUNKEY_PROOF];

    runkey_proof(p->key, "source", p->node, HELP_RUN, p->nonce, m->nonce.data, bytes);
    p->source_proved = m->proof.len == RUNKEY_PROOF && memcmp(bytes, m->proof.data, RUNKEY_PROOF) == 0;
    runkey_proof(p->key, "worker", p->node, HELP_RUN, p->nonce, m->nonce.data, bytes);
    bytes[0] ^= p->wrong_proof;
    proof.has_proof = true;
    proof.proof = (ProtobufCBinaryData){ sizeof bytes, bytes };
    chan_send(c, 2, &proof.base);
}

static inline void puller_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct puller *p = arg;

    (void)id;
    p->happened = true;
    if (type == SLUICE__TYPE__PULL_CHALLENGE) {
        puller_challenge(p, c, (const Sluice__PullChallenge *)m);
    } else if (type == SLUICE__TYPE__PULL_READY) {
        p->ready = true;
    } else if (type == SLUICE__TYPE__PART) {
        puller_part(p, c, (const Sluice__PartData *)m, fds, n_fds);
    } else if (type == SLUICE__TYPE__PULL_REFUSED) {
        const Sluice__PullRefused *r = (const Sluice__PullRefused *)m;
        struct got *g = &p->gots[p->n_got++];
        *g = (struct got){ .answered = true, .refused = true, .id = r->id };
        snprintf(g->word, sizeof g->word, "%s", r->word);
    } else if (type == SLUICE__TYPE__ERROR) {
        p->error = (int)((const Sluice__Error *)m)->code;
    }
}

static inline void puller_closed(void *arg, struct chan *c, const struct err *why)
{
    struct puller *p = arg;

    p->why = *why;
    p->closed = p->happened = true;
    p->chan = NULL;
    chan_destroy(c);
}

static inline void puller_open(struct puller *p, struct ev_loop *loop, const char *address, const char *node, const uint8_t *key, bool same_host)
{
    static const struct chan_events events = { .message = puller_message, .closed = puller_closed };
    static const struct chan_limits limits = { .beat_s = 0.1, .dead_s = 10 };
    Sluice__PullHello m = SLUICE__PULL_HELLO__INIT;
    struct err e;

    *p = (struct puller){ .same_host = same_host };
    snprintf(p->node, sizeof p->node, "%s", node);
    memcpy(p->key, key, sizeof p->key);
    runkey_random(p->nonce, sizeof p->nonce, NULL);
    int fd = peer_connect_fd(address, &e);
    if (fd < 0) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    p->chan = chan_create(loop, fd, &limits, &events, p);
    m.has_major = m.has_run = m.has_nonce = m.has_same_host = true;
    m.major = PROTO_MAJOR;
    m.run = HELP_RUN;
    m.node = p->node;
    m.nonce = (ProtobufCBinaryData){ sizeof p->nonce, p->nonce };
    m.same_host = same_host;
    chan_send(p->chan, 1, &m.base);
}

static inline void puller_pull(struct puller *p, uint64_t id, uint32_t part, uint32_t attempt)
{
    Sluice__Pull m = SLUICE__PULL__INIT;
    Sluice__Fence f = SLUICE__FENCE__INIT;

    f.has_epoch = f.has_attempt = m.has_id = m.has_part = m.has_descriptor = true;
    f.epoch = 1;
    f.attempt = attempt;
    m.id = id;
    m.part = part;
    m.fence = &f;
    m.descriptor = p->same_host;
    chan_send(p->chan, 7, &m.base);
}

static inline void puller_forget(struct puller *p)
{
    for (unsigned i = 0; i < p->n_got; i++)
        free(p->gots[i].data);
    p->n_got = 0;
}

static inline void puller_close(struct puller *p)
{
    chan_destroy(p->chan);
    p->chan = NULL;
    puller_forget(p);
}

/* The connection stays, but nobody reads or writes it any more: what a stopped process looks like. Close the descriptor to end it. */
static inline int puller_freeze(struct puller *p)
{
    int fd = dup(chan_fd(p->chan));

    chan_destroy(p->chan);
    p->chan = NULL;
    return fd;
}

/* Turns the loop until the condition holds, or fails. */
#define wait_for(loop, condition)                                                        \
    do {                                                                                 \
        int64_t limit_ns = clock_mono_ns() + 20 * CLOCK_SECOND;                          \
        while (!(condition)) {                                                           \
            if (clock_mono_ns() > limit_ns)                                              \
                fail_msg("waited 20 s in vain for: %s", #condition);                     \
            run_for(loop, 0.002);                                                        \
        }                                                                                \
    } while (0)

#endif
