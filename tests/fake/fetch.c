/* fetch.c - a fake worker's pulls
 *
 * One connection an address and run, kept open: hello, proof, then pulls one at a time, in the order asked. Bytes come over the socket,
 * also on one host. A connection that fails answers everything that waits on it.
 */
#include "config.h"

#include "fetch.h"

#include "mem.h"
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <xxhash.h>

struct fetch {
    TAILQ_ENTRY(fetch) link;
    uint64_t id, epoch, size, xxh3;
    uint32_t attempt, part;
    void   (*done)(void *arg, const char *why);      /* NULL: cancelled */
    void    *arg;
};

enum line_state { GREETED, PROVING, OPEN, CLOSED };

struct line {                                /* a connection */
    TAILQ_ENTRY(line) link;
    struct fetcher *f;
    char     address[320];
    uint64_t run;
    uint8_t  key[RUNKEY_SIZE], worker_nonce[RUNKEY_NONCE], source_nonce[RUNKEY_NONCE];
    enum line_state state;
    struct chan *c;
    TAILQ_HEAD(, fetch) waiting;             /* the first is asked for when the line is open */
    bool     asked;
    uint8_t *data;
    ev_timer later;                          /* a failure is told from the loop */
    char     why[200];
};

struct fetcher { struct ev_loop *loop; char node[64]; TAILQ_HEAD(, line) lines; };

static void line_free(struct line *l)
{
    struct fetch *p;

    TAILQ_REMOVE(&l->f->lines, l, link);
    ev_timer_stop(l->f->loop, &l->later);
    l->state = CLOSED;
    chan_destroy(l->c);
    while ((p = TAILQ_FIRST(&l->waiting))) {
        TAILQ_REMOVE(&l->waiting, p, link);
        free(p);
    }
    free(l->data);
    free(l);
}

/* Answers all that wait; the line is gone. */
static void line_fail(struct line *l, const char *why)
{
    TAILQ_HEAD(, fetch) all = TAILQ_HEAD_INITIALIZER(all);
    struct fetch *p;
    char text[200];

    snprintf(text, sizeof(text), "%s", why);
    TAILQ_CONCAT(&all, &l->waiting, link);
    line_free(l);
    while ((p = TAILQ_FIRST(&all))) {
        TAILQ_REMOVE(&all, p, link);
        if (p->done)
            p->done(p->arg, text);
        free(p);
    }
}

static void ask(struct line *l)
{
    Sluice__Pull m = SLUICE__PULL__INIT;
    Sluice__Fence f = SLUICE__FENCE__INIT;
    struct fetch *p = TAILQ_FIRST(&l->waiting);

    if (l->state != OPEN || l->asked || p == NULL)
        return;
    l->asked = true;
    m.has_id = m.has_part = f.has_epoch = f.has_attempt = 1;
    m.id = p->id;
    m.part = p->part;
    m.fence = &f;
    f.epoch = p->epoch;
    f.attempt = p->attempt;
    chan_send(l->c, 1, &m.base);
}

static void answered(struct line *l, const char *why)
{
    struct fetch *p = TAILQ_FIRST(&l->waiting);

    TAILQ_REMOVE(&l->waiting, p, link);
    l->asked = false;
    ask(l);
    if (p->done)
        p->done(p->arg, why);
    free(p);
}

static void part_here(void *arg, int ok)
{
    struct line *l = arg;
    struct fetch *p = TAILQ_FIRST(&l->waiting);

    if (l->state == CLOSED || !ok)
        return;                              /* `closed` follows */
    answered(l, XXH3_64bits(l->data, p->size) == p->xxh3 ? NULL : "the checksum does not hold");
}

static void handle_part(struct line *l, const Sluice__PartData *m)
{
    struct fetch *p = TAILQ_FIRST(&l->waiting);

    if (!l->asked || m->id != p->id || m->part != p->part || m->size != p->size || m->n_extents > 0) {
        line_fail(l, "another part came than was asked for");
        return;
    }
    p->xxh3 = m->xxh3;
    free(l->data);
    l->data = malloc(p->size + 1);
    if (l->data == NULL || chan_receive_raw(l->c, l->data, p->size, part_here, NULL, l) < 0)
        line_fail(l, "no memory for a part");
}

static void handle_challenge(struct line *l, const Sluice__PullChallenge *m)
{
    Sluice__PullProof answer = SLUICE__PULL_PROOF__INIT;
    uint8_t proof[RUNKEY_PROOF];

    if (m->nonce.len != RUNKEY_NONCE || m->proof.len != RUNKEY_PROOF) {
        line_fail(l, "a challenge of the wrong size");
        return;
    }
    memcpy(l->source_nonce, m->nonce.data, RUNKEY_NONCE);
    runkey_proof(l->key, "source", l->f->node, l->run, l->worker_nonce, l->source_nonce, proof);
    if (!runkey_equal(proof, m->proof.data, RUNKEY_PROOF)) {
        line_fail(l, "the source does not know the key of the run");
        return;
    }
    runkey_proof(l->key, "worker", l->f->node, l->run, l->worker_nonce, l->source_nonce, proof);
    answer.has_proof = 1;
    answer.proof = (ProtobufCBinaryData){ RUNKEY_PROOF, proof };
    l->state = PROVING;
    chan_send(l->c, 1, &answer.base);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct line *l = arg;

    (void)c, (void)id, (void)fds, (void)n_fds;
    if (type == SLUICE__TYPE__PULL_CHALLENGE && l->state == GREETED) {
        handle_challenge(l, (const Sluice__PullChallenge *)m);
    } else if (type == SLUICE__TYPE__PULL_READY && l->state == PROVING) {
        l->state = OPEN;
        chan_known(l->c);
        ask(l);
    } else if (type == SLUICE__TYPE__PART && l->state == OPEN) {
        handle_part(l, (const Sluice__PartData *)m);
    } else if (type == SLUICE__TYPE__PULL_REFUSED && l->state == OPEN && l->asked) {
        answered(l, ((const Sluice__PullRefused *)m)->word ? ((const Sluice__PullRefused *)m)->word : "refused");
    } else {
        line_fail(l, "the source sent what does not belong here");
    }
}

static void on_closed(void *arg, struct chan *c, const struct err *why)
{
    (void)c;
    line_fail(arg, why->text);
}

static const struct chan_events events = { .message = on_message, .closed = on_closed };

static void on_later(struct ev_loop *loop, ev_timer *t, int revents)
{
    struct line *l = CONTAINER_OF(t, struct line, later);

    (void)loop, (void)revents;
    line_fail(l, l->why);
}

static void line_open(struct line *l)
{
    Sluice__PullHello m = SLUICE__PULL_HELLO__INIT;
    struct err e;
    int fd = peer_connect_fd(l->address, &e);

    if (fd < 0 || runkey_random(l->worker_nonce, RUNKEY_NONCE, &e) < 0) {
        snprintf(l->why, sizeof(l->why), "%.190s", e.text);
        ev_timer_start(l->f->loop, &l->later);
        return;
    }
    l->c = chan_create(l->f->loop, fd, NULL, &events, l);
    m.has_major = m.has_run = m.has_nonce = m.has_same_host = 1;
    m.major = PROTO_MAJOR;
    m.run = l->run;
    m.node = l->f->node;
    m.nonce = (ProtobufCBinaryData){ RUNKEY_NONCE, l->worker_nonce };
    m.same_host = 0;
    chan_send(l->c, 1, &m.base);
}

static struct line *line_of(struct fetcher *f, const char *address, uint64_t run, const uint8_t key[RUNKEY_SIZE])
{
    struct line *l;

    TAILQ_FOREACH(l, &f->lines, link)
        if (l->run == run && strcmp(l->address, address) == 0)
            return l;
    l = mem_zalloc(sizeof(*l));
    l->f = f;
    l->run = run;
    memcpy(l->key, key, RUNKEY_SIZE);
    snprintf(l->address, sizeof(l->address), "%s", address);
    TAILQ_INIT(&l->waiting);
    ev_timer_init(&l->later, on_later, 0, 0);
    TAILQ_INSERT_TAIL(&f->lines, l, link);
    line_open(l);
    return l;
}

struct fetch *fetch_start(struct fetcher *f, const char *address, uint64_t run, const uint8_t key[RUNKEY_SIZE], uint64_t id, uint64_t epoch,
                          uint32_t attempt, uint32_t part, uint64_t size, void (*done)(void *arg, const char *why), void *arg)
{
    struct line *l = line_of(f, address, run, key);
    struct fetch *p = mem_zalloc(sizeof(*p));

    *p = (struct fetch){ .id = id, .epoch = epoch, .attempt = attempt, .part = part, .size = size, .done = done, .arg = arg };
    TAILQ_INSERT_TAIL(&l->waiting, p, link);
    ask(l);
    return p;
}

void *fetch_cancel(struct fetch *p)
{
    p->done = NULL;
    return p->arg;
}

struct fetcher *fetcher_create(struct ev_loop *loop, const char *node)
{
    struct fetcher *f = mem_zalloc(sizeof(*f));

    f->loop = loop;
    snprintf(f->node, sizeof(f->node), "%s", node);
    TAILQ_INIT(&f->lines);
    return f;
}

void fetcher_destroy(struct fetcher *f)
{
    struct line *l;

    if (f == NULL)
        return;
    while ((l = TAILQ_FIRST(&f->lines)))
        line_free(l);
    free(f);
}
