/* source.c - fake-source: all sources of a run in one process; they announce at a rate and, if told to, serve made-up bytes
 *
 * From: sluiced (SourceAccepted, Release, Window, RunStopping); workers (Pull).  To: sluiced (Announce, EndOfStream); workers (PartData); one line
 * of JSON to stdout at the end. TFs are numbered from 1. All sources go by one clock, so that the parts of a TF come together.
 * Always: a source announces a TF once a connection, and again after a reconnect only if it was not released; it ends when its
 * stream has ended and all that it announced was released.
 */
#include "config.h"

#include "clock.h"
#include "fake.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "names.h"
#include "peer.h"
#include "runkey.h"
#include "str.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <unistd.h>
#include <uthash.h>
#include <xxhash.h>

enum { RANGE = 4096 };                  /* TFs in one Announce */

static struct {
    const char *server, *method, *prefix, *listen;
    unsigned count, first_part, total, skip_part, orbit_mismatch;
    uint64_t run, tfs, size;
    double   rate, until_s, step_s;
    bool     hold, quiet, descriptor;
    int      ready_fd;
} opt = { .prefix = "s", .count = 1, .tfs = 100, .size = 1 << 20, .rate = 100, .step_s = 0.01, .ready_fd = -1 };

enum state { HELD = 1, RELEASED = 2 };

struct pulled { UT_hash_handle hh; uint64_t id, epoch; uint32_t attempt; char node[64]; };

struct source {
    char name[64];
    unsigned part;
    struct connector *link;
    bool     accepted, was_accepted, ended, end_told;
    uint64_t connections;
    uint32_t window;
    uint8_t  key[RUNKEY_SIZE];
    bool     has_key;
    uint8_t *tf;                        /* enum state of TF id, 1 ... opt.tfs */
    uint64_t next;                      /* the first TF that was not announced yet */
    uint64_t end;                       /* no TF at or above it will come */
    uint64_t announced, released, skipped, messages, again;
    double  *at;                        /* of the first source: when TF id was announced, then how long until it was released, s */
    struct pulled *pulled;
};

/* A worker's connection. */
struct pull {
    LIST_ENTRY(pull) link;
    struct chan *c;
    char     node[64];
    uint8_t  worker_nonce[RUNKEY_NONCE], source_nonce[RUNKEY_NONCE];
    bool     greeted, proven;
};

static struct ev_loop *loop;
static struct names *names;
static struct source *sources;
static struct file_owner self;
static LIST_HEAD(, pull) pulls = LIST_HEAD_INITIALIZER(pulls);
static ev_io accept_io;
static int listen_fd = -1;
static char listen_address[320];
static int64_t start_ns, begin_ns;      /* of the program; of the first announcement: 0 until all are accepted */
static struct { uint64_t parts, bytes, refused, gone, stale, bad_proofs, losses; bool told_ready, stopping; char last_error[200]; int code; } all;
static uint8_t *content;                /* opt.size bytes; the first 16 differ from TF to TF */

static double now_s(void) { return (double)(clock_mono_ns() - start_ns) / 1e9; }

/* ---- announcing ---- */

static uint64_t due(void)
{
    double n = (double)(clock_mono_ns() - begin_ns) / 1e9 * opt.rate;

    return begin_ns == 0 ? 0 : n < (double)opt.tfs ? (uint64_t)n : opt.tfs;
}

static bool leaves_out(const struct source *s, uint64_t id)
{
    return s->part == 0 && opt.skip_part > 0 && id % opt.skip_part == 0;
}

/* Sends [first, first + n) as one Announce. p: how it was pulled, or NULL. */
static void announce(struct source *s, uint64_t first, uint32_t n, const struct pulled *p)
{
    Sluice__Announce m = SLUICE__ANNOUNCE__INIT;
    Sluice__AnnounceRange r = SLUICE__ANNOUNCE_RANGE__INIT, *list[] = { &r };
    Sluice__Fence f = SLUICE__FENCE__INIT;
    static uint32_t orbits[RANGE];

    for (uint32_t i = 0; i < n; i++)
        orbits[i] = (uint32_t)((first + i) * 32 + (s->part == 1 && opt.orbit_mismatch && (first + i) % opt.orbit_mismatch == 0));
    r.has_first = r.has_count = r.has_state = 1;
    r.first = first;
    r.count = n;
    r.sizes = &opt.size;
    r.n_sizes = 1;
    r.orbits = orbits;
    r.n_orbits = n;
    r.state = p ? SLUICE__FRESHNESS__PULLED : SLUICE__FRESHNESS__FRESH;
    if (p) {
        f.has_epoch = f.has_attempt = 1;
        f.epoch = p->epoch;
        f.attempt = p->attempt;
        r.node = (char *)p->node;
        r.fence = &f;
    }
    m.has_run = m.has_watermark = 1;
    m.run = opt.run;
    m.ranges = list;
    m.n_ranges = 1;
    m.watermark = first + n;            /* what lies below was announced, released, or left out */
    if (connector_chan(s->link) && chan_send(connector_chan(s->link), 0, &m.base) == 0)
        s->messages++;
}

static void tell_end(struct source *s)
{
    Sluice__EndOfStream m = SLUICE__END_OF_STREAM__INIT;

    s->ended = true;
    if (s->end_told || connector_chan(s->link) == NULL)
        return;
    s->end_told = true;
    m.has_run = m.has_watermark = m.has_skipped = 1;
    m.run = opt.run;
    m.watermark = s->end;
    m.skipped = s->skipped;
    chan_send(connector_chan(s->link), 0, &m.base);
}

static uint64_t room(const struct source *s)
{
    uint64_t held = s->announced - s->released;

    return !opt.hold ? UINT64_MAX : held < s->window ? s->window - held : 0;
}

/* What has become due since the last step. */
static void step_source(struct source *s)
{
    uint64_t until = due() + 1, first = s->next;

    if (!s->accepted || begin_ns == 0)
        return;
    if (until > s->end)
        until = s->end;
    while (s->next < until && s->next - first < RANGE && s->next - first < room(s)) {
        if (leaves_out(s, s->next))
            break;
        s->next++;
    }
    if (s->next > first) {
        memset(s->tf + first, HELD, s->next - first);
        for (uint64_t id = first; s->at != NULL && id < s->next; id++)
            s->at[id] = now_s();
        announce(s, first, (uint32_t)(s->next - first), NULL);
        s->announced += s->next - first;
    }
    if (s->next < until && leaves_out(s, s->next)) {
        s->tf[s->next++] = RELEASED;
        s->skipped++;
    }
    if (s->next >= s->end)
        tell_end(s);
}

static bool is_over(void)
{
    for (unsigned i = 0; i < opt.count; i++)
        if (!sources[i].end_told || sources[i].released < sources[i].announced)
            return false;
    return true;
}

static void on_step(struct ev_loop *l, ev_timer *t, int events)
{
    (void)t, (void)events;
    for (unsigned i = 0; i < opt.count; i++)
        step_source(&sources[i]);
    if ((opt.until_s > 0 && now_s() >= opt.until_s) || is_over())
        ev_break(l, EVBREAK_ALL);
}

/* After a reconnect: all that is held, in runs of the same kind. */
static void announce_again(struct source *s)
{
    for (uint64_t id = 1; id < s->next; id++) {
        struct pulled *p = NULL;
        uint64_t end = id;

        if (s->tf[id] != HELD)
            continue;
        HASH_FIND(hh, s->pulled, &id, sizeof(id), p);
        if (p == NULL)
            for (; end + 1 < s->next && s->tf[end + 1] == HELD && end - id + 1 < RANGE; end++) {
                uint64_t after = end + 1;
                struct pulled *q;

                HASH_FIND(hh, s->pulled, &after, sizeof(after), q);
                if (q)
                    break;
            }
        announce(s, id, (uint32_t)(end - id + 1), p);
        s->again += end - id + 1;
        id = end;
    }
}

/* ---- sluiced ---- */

static void handle_accepted(struct source *s, const Sluice__SourceAccepted *m)
{
    unsigned n = 0;

    s->accepted = true;
    s->window = m->has_window && m->window ? m->window : UINT32_MAX;
    s->has_key = m->key.len == RUNKEY_SIZE;
    if (s->has_key)
        memcpy(s->key, m->key.data, RUNKEY_SIZE);
    if (s->was_accepted) {
        announce_again(s);
        s->end_told = false;
        if (s->ended)
            tell_end(s);
        return;
    }
    s->was_accepted = true;
    for (unsigned i = 0; i < opt.count; i++)
        n += sources[i].was_accepted;
    if (n < opt.count)
        return;
    begin_ns = clock_mono_ns();
    if (opt.ready_fd >= 0) {
        (void)!write(opt.ready_fd, "ready\n", 6);
        close(opt.ready_fd);
    }
}

static void handle_release(struct source *s, const Sluice__Release *m)
{
    for (size_t i = 0; i < m->n_ranges; i++) {
        const Sluice__Range *r = m->ranges[i];
        uint64_t last = r->first + r->count;

        for (uint64_t id = r->first; id >= 1 && id < last && id < s->next; id++) {
            struct pulled *p;

            if (s->tf[id] != HELD)
                continue;
            s->tf[id] = RELEASED;
            if (s->at != NULL)
                s->at[id] = now_s() - s->at[id];
            s->released++;
            HASH_FIND(hh, s->pulled, &id, sizeof(id), p);
            if (p) {
                HASH_DEL(s->pulled, p);
                free(p);
            }
        }
    }
}

/* Nothing new from here on. */
static void handle_stopping(struct source *s)
{
    all.stopping = true;
    if (s->next < s->end)
        s->end = s->next;
    tell_end(s);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct source *s = arg;
    const Sluice__Error *error = (const Sluice__Error *)m;

    (void)c, (void)id, (void)fds, (void)n_fds;
    switch (type) {
    case SLUICE__TYPE__SOURCE_ACCEPTED: handle_accepted(s, (const Sluice__SourceAccepted *)m); break;
    case SLUICE__TYPE__RELEASE:         handle_release(s, (const Sluice__Release *)m); break;
    case SLUICE__TYPE__WINDOW:          s->window = ((const Sluice__Window *)m)->window; break;
    case SLUICE__TYPE__RUN_STOPPING:    handle_stopping(s); break;
    case SLUICE__TYPE__ERROR:
        snprintf(all.last_error, sizeof(all.last_error), "%.190s", error->text ? error->text : "");
        all.code = (int)error->code ? (int)error->code : 1;
        ev_break(loop, EVBREAK_ALL);
        break;
    default: break;
    }
}

static void on_ready(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    struct source *s = arg;
    Sluice__Source m = SLUICE__SOURCE__INIT;
    Sluice__Incarnation inc = SLUICE__INCARNATION__INIT;

    (void)w, (void)r;
    inc.boot_id = self.boot_id;
    inc.has_start = inc.has_pid = 1;
    inc.start = self.start;
    inc.pid = (uint32_t)self.pid;
    m.name = s->name;
    m.has_run = m.has_part = m.has_holds = m.has_connection = 1;
    m.run = opt.run;
    m.part = s->part;
    m.address = listen_address;
    m.incarnation = &inc;
    m.holds = opt.hold;
    m.connection = ++s->connections;
    chan_send(c, 1, &m.base);       /* 1: an answer is wanted */
}

static void on_lost(void *arg, const struct err *why)
{
    struct source *s = arg;

    all.losses += s->accepted;
    s->accepted = false;
    snprintf(all.last_error, sizeof(all.last_error), "%.190s", why->text);
}

/* ---- workers ---- */

static void pull_end(struct pull *p)
{
    LIST_REMOVE(p, link);
    chan_destroy(p->c);
    free(p);
}

/* All sources of this process have the run's key. */
static const uint8_t *run_key(void)
{
    for (unsigned i = 0; i < opt.count; i++)
        if (sources[i].has_key)
            return sources[i].key;
    return NULL;
}

static int handle_pull_hello(struct pull *p, uint32_t id, const Sluice__PullHello *m)
{
    Sluice__PullChallenge answer = SLUICE__PULL_CHALLENGE__INIT;
    uint8_t proof[RUNKEY_PROOF];

    if (p->greeted || m->run != opt.run || m->node == NULL || !str_is_name(m->node) || m->nonce.len != RUNKEY_NONCE || run_key() == NULL ||
        runkey_random(p->source_nonce, sizeof(p->source_nonce), NULL) < 0)
        return -1;
    p->greeted = true;
    snprintf(p->node, sizeof(p->node), "%s", m->node);
    memcpy(p->worker_nonce, m->nonce.data, RUNKEY_NONCE);
    runkey_proof(run_key(), "source", p->node, opt.run, p->worker_nonce, p->source_nonce, proof);
    answer.has_nonce = answer.has_proof = 1;
    answer.nonce = (ProtobufCBinaryData){ RUNKEY_NONCE, p->source_nonce };
    answer.proof = (ProtobufCBinaryData){ RUNKEY_PROOF, proof };
    return chan_send(p->c, id, &answer.base);
}

static int handle_pull_proof(struct pull *p, uint32_t id, const Sluice__PullProof *m)
{
    Sluice__PullReady answer = SLUICE__PULL_READY__INIT;
    uint8_t proof[RUNKEY_PROOF];

    if (!p->greeted || m->proof.len != RUNKEY_PROOF || run_key() == NULL)
        return -1;
    runkey_proof(run_key(), "worker", p->node, opt.run, p->worker_nonce, p->source_nonce, proof);
    if (!runkey_equal(proof, m->proof.data, RUNKEY_PROOF))
        return -1;
    p->proven = true;
    chan_known(p->c);
    return chan_send(p->c, id, &answer.base);
}

static void pull_refuse(struct pull *p, uint32_t id, uint64_t tf, const char *word)
{
    Sluice__PullRefused m = SLUICE__PULL_REFUSED__INIT;

    all.refused++;
    m.has_id = 1;
    m.id = tf;
    m.word = (char *)word;
    m.text = "fake";
    chan_send(p->c, id, &m.base);
}

static void part_sent(void *arg, int ok)
{
    all.parts += ok != 0;
    all.bytes += ok ? opt.size : 0;
    free(arg);
}

/* The bytes of a part: the content with number and place in front. */
static void part_fill(uint8_t *out, uint64_t tf, unsigned part)
{
    uint64_t head[2] = { tf, part };

    memcpy(out, content, opt.size);
    memcpy(out, head, sizeof(head) < opt.size ? sizeof(head) : opt.size);
}

static int send_part(struct pull *p, uint32_t id, const Sluice__Pull *m)
{
    Sluice__PartData d = SLUICE__PART_DATA__INIT;
    Sluice__Extent e = SLUICE__EXTENT__INIT, *extents[] = { &e };
    uint8_t *data = malloc(opt.size);
    int fd, rc;

    if (data == NULL)
        return -1;
    part_fill(data, m->id, m->part);
    d.has_id = d.has_part = d.has_size = d.has_xxh3 = 1;
    d.id = m->id;
    d.part = m->part;
    d.size = opt.size;
    d.xxh3 = XXH3_64bits(data, opt.size);
    if (!opt.descriptor || !m->descriptor)
        return chan_send(p->c, id, &d.base) < 0 ? (free(data), -1) : chan_send_raw(p->c, data, opt.size, part_sent, data);
    fd = memfd_create("part", MFD_CLOEXEC);
    e.has_offset = e.has_size = 1;
    e.size = opt.size;
    d.extents = extents;
    d.n_extents = 1;
    rc = fd < 0 || file_write_all(fd, data, opt.size, NULL) < 0 ? -1 : chan_send_fds(p->c, id, &d.base, &fd, 1);
    if (fd >= 0)
        close(fd);
    part_sent(data, rc == 0);
    return rc;
}

static int handle_pull(struct pull *p, uint32_t id, const Sluice__Pull *m)
{
    struct source *s = NULL;
    struct pulled *old;
    uint64_t tf = m->id;

    if (!p->proven || m->fence == NULL)
        return -1;
    for (unsigned i = 0; i < opt.count; i++)
        if (sources[i].part == m->part)
            s = &sources[i];
    if (s == NULL) {
        pull_refuse(p, id, tf, "NotOurs");
        return 0;
    }
    if (tf == 0 || tf >= s->next || s->tf[tf] != HELD) {
        all.gone++;
        pull_refuse(p, id, tf, "Gone");
        return 0;
    }
    HASH_FIND(hh, s->pulled, &tf, sizeof(tf), old);
    if (old && (m->fence->epoch < old->epoch || (m->fence->epoch == old->epoch && m->fence->attempt < old->attempt))) {
        all.stale++;
        pull_refuse(p, id, tf, "StaleFence");
        return 0;
    }
    if (old == NULL) {
        old = mem_zalloc(sizeof(*old));
        old->id = tf;
        HASH_ADD(hh, s->pulled, id, sizeof(old->id), old);
    }
    old->epoch = m->fence->epoch;
    old->attempt = m->fence->attempt;
    snprintf(old->node, sizeof(old->node), "%s", p->node);
    return send_part(p, id, m);
}

static void on_pull_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct pull *p = arg;
    int rc = -1;

    (void)c, (void)fds, (void)n_fds;
    if (type == SLUICE__TYPE__PULL_HELLO)
        rc = handle_pull_hello(p, id, (const Sluice__PullHello *)m);
    else if (type == SLUICE__TYPE__PULL_PROOF)
        rc = handle_pull_proof(p, id, (const Sluice__PullProof *)m);
    else if (type == SLUICE__TYPE__PULL)
        rc = handle_pull(p, id, (const Sluice__Pull *)m);
    if (rc == 0)
        return;
    all.bad_proofs += !p->proven;
    pull_end(p);
}

static void on_pull_closed(void *arg, struct chan *c, const struct err *why)
{
    (void)c, (void)why;
    pull_end(arg);
}

static const struct chan_events pull_events = { .message = on_pull_message, .closed = on_pull_closed };

static void on_accept(struct ev_loop *l, ev_io *w, int events)
{
    int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    struct pull *p;

    (void)events;
    if (fd < 0)
        return;
    p = mem_zalloc(sizeof(*p));
    p->c = chan_create(l, fd, NULL, &pull_events, p);
    chan_allow(p->c, 1u << SLUICE__ROLE__WORKER);
    LIST_INSERT_HEAD(&pulls, p, link);
}

static void serve_start(void)
{
    struct err e;
    uint64_t x = 88172645463325252u;

    if (opt.listen == NULL) {
        snprintf(listen_address, sizeof(listen_address), "unix:/nonexistent/fake-source");
        return;
    }
    listen_fd = peer_listen_fd(opt.listen, 0666, &e);
    if (listen_fd < 0)
        fake_die(&e);
    peer_bound_address(listen_fd, opt.listen, listen_address);
    ev_io_init(&accept_io, on_accept, listen_fd, EV_READ);
    ev_io_start(loop, &accept_io);
    content = malloc(opt.size + 8);
    if (content == NULL)
        exit(1);
    for (uint64_t i = 0; i < opt.size; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        memcpy(content + i, &x, 8);
    }
}

/* ---- options, start and end ---- */

static const struct option options[] = {
    { "server", 1, NULL, 's' }, { "method", 1, NULL, 'm' }, { "run", 1, NULL, 'r' }, { "count", 1, NULL, 'n' }, { "first-part", 1, NULL, '1' },
    { "name-prefix", 1, NULL, 'p' }, { "rate", 1, NULL, 'R' }, { "tfs", 1, NULL, 'T' }, { "size", 1, NULL, 'z' }, { "hold", 0, NULL, 'H' },
    { "listen", 1, NULL, 'l' }, { "descriptor", 0, NULL, 'd' }, { "skip-part", 1, NULL, 'k' }, { "orbit-mismatch", 1, NULL, 'o' },
    { "step", 1, NULL, 'S' }, { "seconds", 1, NULL, 'e' }, { "ready-fd", 1, NULL, 'f' }, { "quiet", 0, NULL, 'q' }, { "help", 0, NULL, 'h' }, { 0 },
};

static const char usage[] =
    "fake-source --server ADDRESS --run ID [option...]: all sources of a run\n"
    "  --method munge[:SOCKET]    for a TCP address\n"
    "  --count N --first-part K --name-prefix P    N sources, parts K, K+1, ... named P0, P1, ...\n"
    "  --rate HZ --tfs N --size BYTES    TFs a second, in all, bytes of a part\n"
    "  --hold                     they wait when the window is full (as replay does)\n"
    "  --listen ADDRESS           serve pulls there; without it the parts can only be announced\n"
    "  --descriptor               hand out descriptors where a worker asks for them\n"
    "  --skip-part K              the source of part 0 leaves out every K-th TF\n"
    "  --orbit-mismatch K         the source of part 1 gives every K-th TF another first orbit\n"
    "  --step S                   between announcements, default 0.01\n"
    "  --seconds S                end after S; else when all is released, or at SIGTERM\n"
    "  --ready-fd N               says ready when all are accepted\n"
    "At the end one line of JSON on stdout.\n";

static uint64_t whole(const char *what, const char *text, uint64_t least, uint64_t most)
{
    struct err e;
    uint64_t v;

    if (str_parse_u64(what, text, least, most, &v, &e) < 0)
        fake_die(&e);
    return v;
}

static double real(const char *what, const char *text, double least, double most)
{
    struct err e;
    double v;

    if (str_parse_f64(what, text, least, most, &v, &e) < 0)
        fake_die(&e);
    return v;
}

static void parse(int argc, char **argv)
{
    struct err e;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (c) {
        case 's': opt.server = optarg; break;
        case 'm': opt.method = optarg; break;
        case 'r': opt.run = whole("--run", optarg, 1, UINT64_MAX); break;
        case 'n': opt.count = (unsigned)whole("--count", optarg, 1, 4096); break;
        case '1': opt.first_part = (unsigned)whole("--first-part", optarg, 0, 4095); break;
        case 'p': opt.prefix = optarg; break;
        case 'R': opt.rate = real("--rate", optarg, 0.001, 1e9); break;
        case 'T': opt.tfs = whole("--tfs", optarg, 0, 100000000); break;
        case 'z': if (str_parse_size(optarg, &opt.size, &e) < 0) fake_die(&e); break;
        case 'H': opt.hold = true; break;
        case 'l': opt.listen = optarg; break;
        case 'd': opt.descriptor = true; break;
        case 'k': opt.skip_part = (unsigned)whole("--skip-part", optarg, 0, UINT32_MAX); break;
        case 'o': opt.orbit_mismatch = (unsigned)whole("--orbit-mismatch", optarg, 0, UINT32_MAX); break;
        case 'S': opt.step_s = real("--step", optarg, 0.001, 60); break;
        case 'e': opt.until_s = real("--seconds", optarg, 0, 1e6); break;
        case 'f': opt.ready_fd = (int)whole("--ready-fd", optarg, 0, 1023); break;
        case 'q': opt.quiet = true; break;
        case 'h': fputs(usage, stdout); exit(0);
        default:  fputs(usage, stderr); exit(2);
        }
    }
    if (opt.server == NULL || opt.run == 0) {
        fputs(usage, stderr);
        exit(2);
    }
}

static void source_start(struct source *s, unsigned i)
{
    struct err e;
    struct connector_conf conf = {
        .loop = loop, .names = names, .address = opt.server, .method = opt.method, .role = SLUICE__ROLE__SOURCE_ROLE, .name = s->name,
        .events = { .ready = on_ready, .message = on_message, .lost = on_lost }, .arg = s,
    };

    s->part = opt.first_part + i;
    snprintf(s->name, sizeof(s->name), "%.40s%u", opt.prefix, s->part);
    s->next = 1;
    s->end = opt.tfs + 1;
    s->tf = mem_zalloc(opt.tfs + 2);
    s->at = s == sources ? mem_zalloc((opt.tfs + 2) * sizeof(*s->at)) : NULL;
    s->link = connector_create(&conf, &e);
    if (s->link == NULL)
        fake_die(&e);
}

static void source_end(struct source *s)
{
    struct pulled *p, *next;

    connector_destroy(s->link);
    HASH_ITER(hh, s->pulled, p, next) {
        HASH_DEL(s->pulled, p);
        free(p);
    }
    free(s->tf);
    free(s->at);
}

#define SUM(field) ({ uint64_t sum_ = 0; for (unsigned i_ = 0; i_ < opt.count; i_++) sum_ += sources[i_].field; (unsigned long long)sum_; })

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* ms from a TF's announcement to its release that `share` of them did not need more than. */
static double turnaround(double share)
{
    const struct source *s = &sources[0];
    double *all_of_them = mem_array(opt.tfs + 2, sizeof(double)), value;
    size_t n = 0;

    for (uint64_t id = 1; id < s->next; id++) {
        if (s->tf[id] == RELEASED && s->at[id] > 0)
            all_of_them[n++] = 1e3 * s->at[id];
    }
    qsort(all_of_them, n, sizeof(double), by_value);
    value = n == 0 ? 0 : all_of_them[(size_t)(share * (double)(n - 1))];
    free(all_of_them);
    return value;
}

static void show(void)
{
    struct str error = { 0 };

    str_escape(&error, all.last_error, strlen(all.last_error));
    printf("{\"sources\": %u, \"run\": %llu, \"seconds\": %.3f, \"announcing_seconds\": %.3f, \"announced\": %llu, \"released\": %llu, \"unreleased\": %llu, "
           "\"skipped\": %llu, \"again\": %llu, \"messages\": %llu, \"ended\": %llu, \"stopping\": %s, \"losses\": %llu, "
           "\"parts_served\": %llu, \"bytes_served\": %llu, \"pulls_refused\": %llu, \"gone\": %llu, \"stale\": %llu, \"bad_proofs\": %llu, \"last_error\": \"",
           opt.count, (unsigned long long)opt.run, now_s(), begin_ns ? (double)(clock_mono_ns() - begin_ns) / 1e9 : 0, SUM(announced), SUM(released),
           SUM(announced) - SUM(released), SUM(skipped), SUM(again), SUM(messages), SUM(end_told), all.stopping ? "true" : "false",
           (unsigned long long)all.losses, (unsigned long long)all.parts, (unsigned long long)all.bytes, (unsigned long long)all.refused,
           (unsigned long long)all.gone, (unsigned long long)all.stale, (unsigned long long)all.bad_proofs);
    for (const char *p = str_text(&error); *p; p++)
        printf(*p == '"' || *p == '\\' ? "\\%c" : "%c", *p);
    printf("\", \"turnaround_ms\": {\"p50\": %.2f, \"p90\": %.2f, \"p99\": %.2f}}\n", turnaround(0.5), turnaround(0.9), turnaround(0.99));
    fflush(stdout);
    str_free(&error);
}

int main(int argc, char **argv)
{
    struct err e;
    ev_timer step;
    struct pull *p;

    parse(argc, argv);
    if (log_open("fake-source", NULL, opt.quiet ? LOG_LEVEL_ERR : LOG_LEVEL_INFO, &e) < 0 || file_owner_self(&self, &e) < 0)
        fake_die(&e);
    loop = ev_default_loop(0);
    names = names_create(loop, &e);
    if (names == NULL)
        fake_die(&e);
    fake_descriptors(opt.listen ? 8192 : opt.count + 64);
    start_ns = clock_mono_ns();
    serve_start();
    sources = mem_array(opt.count, sizeof(*sources));
    for (unsigned i = 0; i < opt.count; i++)
        source_start(&sources[i], i);
    ev_timer_init(&step, on_step, opt.step_s, opt.step_s);
    ev_timer_start(loop, &step);
    fake_run(loop);
    show();
    while ((p = LIST_FIRST(&pulls)))
        pull_end(p);
    for (unsigned i = 0; i < opt.count; i++)
        source_end(&sources[i]);
    free(sources);
    free(content);
    if (opt.listen) {
        ev_io_stop(loop, &accept_io);
        peer_unlisten(listen_fd, opt.listen);
    }
    names_destroy(names);
    log_close();
    return all.code;
}
