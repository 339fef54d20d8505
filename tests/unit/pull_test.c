/* pull_test.c - the real worker pulls from sources played by the test: over descriptors and sockets, and from those that stall, lie or go */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <sys/socket.h>
#include <cmocka.h>

#include "runkey.h"
#include "worker_help.h"

enum { RUN = 5, SIZE = 300000, SOURCES = 3 };

enum manner { DESCRIPTOR, RAW, WRONG_SUM, WRONG_SIZE, STALL_AT_ONCE, STALL_MIDWAY, GONE, CLOSES, BAD_PROOF, WRONG_PART, ZERO_EXTENT };

/* Serves bytes [offset, offset + SIZE) of the input file as its part of every TF. */
struct player {
    enum manner manner;
    char     address[160];
    int      listen_fd;
    struct ev_io accept;
    struct chan *chan;
    uint8_t  worker_nonce[RUNKEY_NONCE], own_nonce[RUNKEY_NONCE];
    char     node[64];
    uint32_t part;
    unsigned pulls, connections;
    bool     proven;
    int      pipe[2];
};

static struct farm f;
static struct player player[SOURCES];
static uint8_t key[RUNKEY_SIZE] = { 1, 2, 3 };
static char *input, *out, *shm, *content;

static void serve(struct player *p, const Sluice__Pull *m)
{
    Sluice__PartData d = SLUICE__PART_DATA__INIT;
    Sluice__Extent x[3], *list[3] = { &x[0], &x[1], &x[2] };
    const char *bytes = content + p->part * SIZE;
    int fd;

    p->pulls++;
    if (p->manner == GONE) {
        Sluice__PullRefused r = SLUICE__PULL_REFUSED__INIT;
        r.has_id = 1;
        r.id = m->id;
        r.word = (char *)"Gone";
        chan_send(p->chan, 0, &r.base);
        return;
    }
    if (p->manner == CLOSES) {
        chan_close_after_send(p->chan, 0.01);
        return;
    }
    if (p->manner == STALL_AT_ONCE || (p->manner == STALL_MIDWAY && p->pulls > 1))
        return;
    d.has_id = d.has_part = d.has_size = d.has_xxh3 = 1;
    d.id = m->id;
    d.part = p->manner == WRONG_PART ? p->part + 1 : p->part;
    d.size = p->manner == WRONG_SIZE ? SIZE - 1 : SIZE;
    d.xxh3 = XXH3_64bits(bytes, SIZE) + (p->manner == WRONG_SUM);
    if (m->descriptor && p->manner != RAW && p->manner != STALL_MIDWAY) {
        /* in three pieces that are not in order in the file's own way: 100000 + 0 + rest */
        uint64_t at = p->part * (uint64_t)SIZE;
        uint64_t size[3] = { 100000, p->manner == ZERO_EXTENT ? 0 : 50000, 0 };
        size[2] = SIZE - size[0] - size[1];
        for (int i = 0; i < 3; i++) {
            sluice__extent__init(&x[i]);
            x[i].has_offset = x[i].has_size = 1;
            x[i].offset = at;
            x[i].size = size[i];
            at += size[i];
        }
        d.n_extents = 3;
        d.extents = list;
        fd = open(input, O_RDONLY | O_CLOEXEC);
        chan_send_fds(p->chan, 0, &d.base, &fd, 1);
        close(fd);
        return;
    }
    chan_send(p->chan, 0, &d.base);
    chan_send_raw(p->chan, bytes, p->manner == STALL_MIDWAY ? SIZE / 2 : SIZE, NULL, NULL);
}

static void on_message(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct player *p = arg;
    uint8_t proof[RUNKEY_PROOF];

    (void)id, (void)fds, (void)n_fds;
    if (type == SLUICE__TYPE__PULL_HELLO) {
        const Sluice__PullHello *h = (const Sluice__PullHello *)m;
        Sluice__PullChallenge a = SLUICE__PULL_CHALLENGE__INIT;
        assert_int_equal(h->run, RUN);
        assert_int_equal(h->same_host, strncmp(p->address, "unix:", 5) == 0);
        memcpy(p->worker_nonce, h->nonce.data, RUNKEY_NONCE);
        snprintf(p->node, sizeof p->node, "%s", h->node);
        assert_int_equal(runkey_random(p->own_nonce, RUNKEY_NONCE, NULL), 0);
        runkey_proof(key, "source", p->node, RUN, p->worker_nonce, p->own_nonce, proof);
        proof[0] ^= p->manner == BAD_PROOF;
        a.has_nonce = a.has_proof = 1;
        a.nonce = (ProtobufCBinaryData){ RUNKEY_NONCE, p->own_nonce };
        a.proof = (ProtobufCBinaryData){ RUNKEY_PROOF, proof };
        chan_send(c, 0, &a.base);
    } else if (type == SLUICE__TYPE__PULL_PROOF) {
        const Sluice__PullProof *q = (const Sluice__PullProof *)m;
        Sluice__PullReady r = SLUICE__PULL_READY__INIT;
        runkey_proof(key, "worker", p->node, RUN, p->worker_nonce, p->own_nonce, proof);
        assert_memory_equal(q->proof.data, proof, RUNKEY_PROOF);
        p->proven = true;
        chan_send(c, 0, &r.base);
    } else if (type == SLUICE__TYPE__PULL) {
        assert_true(p->proven);
        serve(p, (const Sluice__Pull *)m);
    }
}

static void on_closed(void *arg, struct chan *c, const struct err *why)
{
    struct player *p = arg;
    (void)why;
    chan_destroy(c);
    p->chan = NULL;
    p->proven = false;
}

static void on_accept(struct ev_loop *loop, struct ev_io *io, int revents)
{
    static const struct chan_events events = { .message = on_message, .closed = on_closed };
    struct player *p = io->data;
    int fd = accept4(p->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

    (void)loop, (void)revents;
    if (fd < 0)
        return;
    chan_destroy(p->chan);
    p->proven = false;
    p->connections++;
    p->chan = chan_create(f.loop, fd, NULL, &events, p);
    chan_known(p->chan);
}

static void player_start(struct player *p, uint32_t part, enum manner manner, bool tcp)
{
    struct err e;
    char bound[320];

    memset(p, 0, sizeof *p);
    p->part = part;
    p->manner = manner;
    if (tcp)
        snprintf(p->address, sizeof p->address, "127.0.0.1:0");
    else
        snprintf(p->address, sizeof p->address, "unix:%s/source%u", f.dir, part);
    p->listen_fd = peer_listen_fd(p->address, 0600, &e);
    assert_true(p->listen_fd >= 0);
    if (tcp) {
        peer_bound_address(p->listen_fd, p->address, bound);
        snprintf(p->address, sizeof p->address, "%.150s", bound);
    }
    ev_io_init(&p->accept, on_accept, p->listen_fd, EV_READ);
    p->accept.data = p;
    ev_io_start(f.loop, &p->accept);
}

static void player_stop(struct player *p)
{
    if (p->listen_fd <= 0)
        return;
    ev_io_stop(f.loop, &p->accept);
    chan_destroy(p->chan);
    p->chan = NULL;
    close(p->listen_fd);
    p->listen_fd = 0;
}

static bool a_device_is_free(const Sluice__Report *r)
{
    return r->n_devices > 0 && r->devices[0]->state == SLUICE__DEVICE_STATE__DEVICE_FREE;
}

static bool all_is_back(const Sluice__Report *r)
{
    return r->bytes_used == 0 && r->building == 0 && r->queued == 0 && r->processing == 0 && r->delivering == 0;
}

static void open_run(void)
{
    Sluice__RunOpen m = SLUICE__RUN_OPEN__INIT;
    m.has_run = m.has_key = m.has_pull_timeout = 1;
    m.run = RUN;
    m.workflow = (char *)"copy";
    m.output = out;
    m.key = (ProtobufCBinaryData){ RUNKEY_SIZE, key };
    m.pull_timeout = 0.7;
    chan_send(f.chan, 0, &m.base);
}

static int setup(void **unused)
{
    (void)unused;
    struct err e;
    size_t size;

    farm_make(&f);
    input = farm_path(&f, "input");
    out = farm_path(&f, "out");
    shm = farm_path(&f, "shm");
    make_file(input, SOURCES * SIZE, 11);
    content = file_read(input, 1 << 26, &size, &e);
    farm_worker(&f, "building_limit = 8", shm, NULL);
    struct note r = farm_take(&f, SLUICE__TYPE__REGISTER, 10);
    assert_non_null(r.m);
    note_free(&r);
    assert_true(farm_report(&f, a_device_is_free, 10));
    open_run();
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    for (int i = 0; i < SOURCES; i++)
        player_stop(&player[i]);
    farm_destroy(&f);
    free(input);
    free(out);
    free(shm);
    free(content);
    memset(player, 0, sizeof player);
    return 0;
}

static void assign(uint64_t tf, unsigned n)
{
    Sluice__Assign m = SLUICE__ASSIGN__INIT;
    Sluice__Part part[SOURCES], *list[SOURCES];
    struct tf_id id;
    char stem[32];

    tf_id_fill(&id, (struct tf_name){ RUN, 0, tf }, (struct fence){ EPOCH, 1 });
    for (unsigned i = 0; i < n; i++) {
        sluice__part__init(&part[i]);
        part[i].has_number = part[i].has_size = 1;
        part[i].number = i;
        part[i].size = SIZE;
        part[i].address = player[i].address;
        part[i].source = (char *)"s";
        list[i] = &part[i];
    }
    snprintf(stem, sizeof stem, "5/tf-%" PRIu64, tf);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.n_parts = n;
    m.parts = list;
    m.stem = stem;
    chan_send(f.chan, 0, &m.base);
}

/* TFs first to last, in any order; each with n parts. */
static void expect_all_done(uint64_t first, uint64_t last, unsigned n)
{
    uint64_t seen = 0;

    for (uint64_t tf = first; tf <= last; tf++) {
        struct note note = farm_take(&f, SLUICE__TYPE__DONE, 10);
        assert_non_null(note.m);
        const Sluice__Done *d = (const Sluice__Done *)note.m;
        assert_true(d->tf->id >= first && d->tf->id <= last && !(seen >> d->tf->id & 1));
        seen |= UINT64_C(1) << d->tf->id;
        assert_true(same_range(input, 0, (size_t)n * SIZE, d->outputs[0]->file));
        farm_verdict(&f, RUN, 0, d->tf->id, 1, false, NULL, NULL);
        note_free(&note);
    }
}

static void expect_done(uint64_t tf, unsigned n)
{
    expect_all_done(tf, tf, n);
}

static void expect_failed(uint64_t tf, const char *word, double limit_s)
{
    struct note note = farm_take(&f, SLUICE__TYPE__FAILED, limit_s);
    assert_non_null(note.m);
    const Sluice__Failed *m = (const Sluice__Failed *)note.m;
    assert_int_equal(m->tf->id, tf);
    if (strcmp(m->word, word) != 0)
        print_message("%s: %s\n", m->word, m->text);
    assert_string_equal(m->word, word);
    note_free(&note);
    farm_verdict(&f, RUN, 0, tf, 1, false, NULL, NULL);
}

static void parts_come_by_descriptor_over_unix_and_tcp_sockets_to_their_places(void **unused)
{
    (void)unused;
    player_start(&player[0], 0, DESCRIPTOR, false);
    player_start(&player[1], 1, RAW, false);
    player_start(&player[2], 2, RAW, true);
    for (uint64_t tf = 1; tf <= 4; tf++)
        assign(tf, 3);
    expect_all_done(1, 4, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(player[i].connections, 1);             /* kept open */
        assert_int_equal(player[i].pulls, 4);
    }
    assert_true(farm_report(&f, all_is_back, 3));
}

/* One bad source among three: its TF fails with the word in time, nothing stays taken, and once it behaves the next TF is done. */
static void one_bad_source(enum manner manner, const char *word, double limit_s)
{
    player_start(&player[0], 0, DESCRIPTOR, false);
    player_start(&player[1], 1, manner, false);
    player_start(&player[2], 2, RAW, true);
    assign(1, 3);
    expect_failed(1, word, limit_s);
    assert_true(farm_report(&f, all_is_back, 3));
    player[1].manner = DESCRIPTOR;
    assign(2, 3);
    expect_done(2, 3);
    assert_true(farm_report(&f, all_is_back, 3));
}

static void a_wrong_checksum_fails_the_tf(void **unused)
{
    (void)unused;
    one_bad_source(WRONG_SUM, "DigestMismatch", 5);
}

static void a_part_of_another_size_fails_the_tf(void **unused)
{
    (void)unused;
    one_bad_source(WRONG_SIZE, "PartGone", 5);
}

static void an_answer_for_another_part_fails_the_tf(void **unused)
{
    (void)unused;
    one_bad_source(WRONG_PART, "PartGone", 5);
}

static void a_source_that_says_nothing_misses_the_deadline(void **unused)
{
    (void)unused;
    one_bad_source(STALL_AT_ONCE, "PullTimeout", 3);
}

static void a_source_that_stops_midway_misses_the_deadline(void **unused)
{
    (void)unused;
    one_bad_source(STALL_MIDWAY, "PullStalled", 3);
}

static void a_part_that_is_gone_fails_the_tf(void **unused)
{
    (void)unused;
    one_bad_source(GONE, "PartGone", 5);
}

static void a_source_that_closes_fails_the_tf(void **unused)
{
    (void)unused;
    one_bad_source(CLOSES, "PartGone", 5);
}

static void a_source_that_does_not_know_the_key_gets_nothing(void **unused)
{
    (void)unused;
    one_bad_source(BAD_PROOF, "PartGone", 5);
    assert_int_equal(player[1].pulls, 1);
}

static void an_empty_piece_is_no_piece(void **unused)
{
    (void)unused;
    player_start(&player[0], 0, ZERO_EXTENT, false);
    assign(1, 1);
    expect_done(1, 1);
}

static void a_source_that_is_not_there_fails_the_tf(void **unused)
{
    (void)unused;
    snprintf(player[0].address, sizeof player[0].address, "unix:%s/nobody", f.dir);
    assign(1, 1);
    expect_failed(1, "PartGone", 5);
    snprintf(player[0].address, sizeof player[0].address, "127.0.0.1:1");
    assign(2, 1);
    expect_failed(2, "PartGone", 5);
    assert_true(farm_report(&f, all_is_back, 3));
}

/* It freezes with the parts of several TFs on their way; a second source goes on, and so does the node. */
static void b30_a_source_that_freezes_for_a_while_costs_the_tfs_on_it_and_no_others(void **unused)
{
    (void)unused;
    player_start(&player[0], 0, STALL_MIDWAY, false);
    for (uint64_t tf = 1; tf <= 3; tf++)
        assign(tf, 1);
    for (uint64_t tf = 1; tf <= 3; tf++)
        expect_failed(tf, "PullStalled", 3);
    player[0].manner = RAW;
    for (uint64_t tf = 4; tf <= 8; tf++)
        assign(tf, 1);
    expect_all_done(4, 8, 1);
    assert_true(farm_report(&f, all_is_back, 3));
}

int main(void)
{
#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        here(parts_come_by_descriptor_over_unix_and_tcp_sockets_to_their_places),
        here(a_wrong_checksum_fails_the_tf),
        here(a_part_of_another_size_fails_the_tf),
        here(an_answer_for_another_part_fails_the_tf),
        here(a_source_that_says_nothing_misses_the_deadline),
        here(a_source_that_stops_midway_misses_the_deadline),
        here(a_part_that_is_gone_fails_the_tf),
        here(a_source_that_closes_fails_the_tf),
        here(a_source_that_does_not_know_the_key_gets_nothing),
        here(an_empty_piece_is_no_piece),
        here(a_source_that_is_not_there_fails_the_tf),
        here(b30_a_source_that_freezes_for_a_while_costs_the_tfs_on_it_and_no_others),
    };
    const char *only = getenv("ONLY");
    if (only != NULL)
        cmocka_set_test_filter(only);
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
