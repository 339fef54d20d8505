/* source_test.c - a source between sluiced and workers: announces, serves, lets go, and trusts nobody */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <sys/mman.h>
#include <cmocka.h>

#include "outlet.h"
#include "source.h"
#include "source_help.h"

/* One source with parts that the test makes, its outlet, a sluiced, all on one loop. */
static struct ev_loop *loop;
static struct sluiced d;
static struct source *source;
static struct outlet *outlet;
static struct hold *holds[1];
static uint8_t *memory;
static int memory_fd;
static uint64_t used, last_id;
static unsigned n_freed, n_failed, n_stopping;
static struct err why_failed;

enum { MEMORY = 64 << 20, PART_NUMBER = 0 };

static void on_changed(void *arg, struct source *s)
{
    (void)arg;
    if (source_key(s) != NULL)
        outlet_open(outlet, source_key(s), memory_fd);
}

static void on_freed(void *arg, struct source *s, uint64_t id)
{
    (void)arg, (void)s, (void)id;
    n_freed++;
}

static void on_stopping(void *arg, struct source *s, const char *reason)
{
    (void)arg, (void)s, (void)reason;
    n_stopping++;
}

static void on_failed(void *arg, struct source *s, const struct err *why)
{
    (void)arg, (void)s;
    n_failed++;
    why_failed = *why;
}

/* Adds the next TF's part, of random bytes. */
static void add_part(size_t size)
{
    uint8_t *at = memory + used;

    for (size_t i = 0; i < size; i += 8)
        memcpy(at + i, &(uint64_t){ make_random(UINT64_MAX) }, size - i < 8 ? size - i : 8);
    last_id++;
    source_add(source, &(struct hold_part){ .id = last_id, .first_orbit = 100 + (uint32_t)last_id, .data = at, .size = size, .offset = used,
                                            .xxh3 = XXH3_64bits(at, size) });
    used += (size + 63) / 64 * 64;
}

static void open_source(double lost_s)
{
    struct err e;
    char address[200];

    snprintf(address, sizeof address, "unix:%s/outlet.sock", make_folder);
    const struct outlet_conf oc = {
        .loop = loop, .address = address, .mode = 0600, .run = HELP_RUN, .holds = holds, .n_holds = 1, .first_part = PART_NUMBER,
        .max_workers = 16, .handshake_s = 0.5, .limits = { .beat_s = 0.1, .dead_s = 0.5 },
    };
    outlet = outlet_create(&oc, &e);
    assert_non_null(outlet);
    assert_string_equal(outlet_address(outlet), address);
    const struct source_conf sc = {
        .loop = loop, .server = d.address, .name = "src-0", .address = address, .run = HELP_RUN, .part = PART_NUMBER, .holds = true,
        .first_s = lost_s, .lost_s = lost_s,
        .events = { .changed = on_changed, .freed = on_freed, .stopping = on_stopping, .failed = on_failed },
    };
    source = source_create(&sc, &e);
    assert_non_null(source);
    holds[0] = source_hold(source);
}

static int setup(void **unused)
{
    (void)unused;
    loop = ev_loop_new(EVFLAG_AUTO);
    sluiced_start(&d, loop, 1000);
    memory_fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memory_fd, MEMORY), 0);
    memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    used = last_id = n_freed = n_failed = n_stopping = 0;
    open_source(10);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    outlet_destroy(outlet);
    source_destroy(source);
    sluiced_stop(&d);
    munmap(memory, MEMORY);
    close(memory_fd);
    ev_loop_destroy(loop);
    return 0;
}

static void wait_in(void)
{
    wait_for(loop, source_is_in(source));
}

/* ---- sluiced --------------------------------------------------------------------------------------- */

static void what_is_new_is_announced_merged_and_let_go_on_release(void **unused)
{
    (void)unused;
    struct session *s = &d.sessions[PART_NUMBER];

    wait_in();
    assert_string_equal(s->name, "src-0");
    for (int i = 0; i < 100; i++)
        add_part(10 + (size_t)i);
    wait_for(loop, s->watermark == 101);
    /* One turn of the loop added them: one announcement, not a hundred (the empty one of the acceptance is none). */
    assert_true(s->announces <= 2);
    assert_int_equal(s->tfs[7].size, 16);
    assert_int_equal(s->tfs[7].orbit, 107);
    assert_false(s->tfs[7].pulled);
    sluiced_release(&d, PART_NUMBER, 1, 60);
    wait_for(loop, n_freed == 60);
    sluiced_release(&d, PART_NUMBER, 1, 60);     /* again is nothing */
    sluiced_release(&d, PART_NUMBER, 61, 39);
    wait_for(loop, n_freed == 99);
    assert_int_equal(hold_count(holds[0]), 1);
    source_end(source, 3);
    wait_for(loop, s->ended);
    assert_int_equal(s->watermark, 101);
    assert_false(source_is_done(source));        /* one is still held */
    sluiced_release(&d, PART_NUMBER, 100, 1);
    wait_for(loop, source_is_done(source));
    assert_int_equal(n_freed, 100);
}

static void a_window_bounds_what_is_held(void **unused)
{
    (void)unused;
    Sluice__Window m = SLUICE__WINDOW__INIT;

    wait_in();
    assert_int_equal(source_window(source), 1000);
    m.has_run = m.has_window = true;
    m.run = HELP_RUN;
    m.window = 2;
    chan_send(d.sessions[0].chan, 0, &m.base);
    wait_for(loop, source_window(source) == 2);
    add_part(1);
    assert_true(source_has_room(source));
    add_part(1);
    assert_false(source_has_room(source));
    wait_for(loop, d.sessions[0].watermark == 3);
    sluiced_release(&d, 0, 1, 1);
    wait_for(loop, source_has_room(source));
    m.run = HELP_RUN + 1;                        /* another run's is not ours */
    m.window = 77;
    chan_send(d.sessions[0].chan, 0, &m.base);
    sluiced_say_stopping(&d, 0);
    wait_for(loop, n_stopping == 1);
    assert_int_equal(source_window(source), 2);
}

static void after_a_restart_of_sluiced_it_announces_fresh_and_pulled_ones_and_the_end(void **unused)
{
    (void)unused;
    struct puller p;
    struct session *s = &d.sessions[PART_NUMBER];

    wait_in();
    for (int i = 0; i < 5; i++)
        add_part(1000);
    wait_for(loop, s->watermark == 6);
    puller_open(&p, loop, s->address, "node-a", d.key, true);
    wait_for(loop, p.ready);
    puller_pull(&p, 2, PART_NUMBER, 3);
    puller_pull(&p, 3, PART_NUMBER, 3);
    wait_for(loop, p.n_got == 2);
    sluiced_release(&d, PART_NUMBER, 5, 1);
    source_end(source, 0);
    wait_for(loop, s->ended && n_freed == 1);

    sluiced_kill(&d);
    wait_for(loop, !source_is_in(source));
    puller_pull(&p, 4, PART_NUMBER, 9);          /* workers go on meanwhile */
    wait_for(loop, p.n_got == 3);
    assert_true(p.gots[2].ok);
    sluiced_listen(&d);
    wait_for(loop, s->ended);
    assert_int_equal(source_reconnects(source), 1);
    assert_int_equal(s->connection, 2);
    assert_true(s->tfs[1].here && !s->tfs[1].pulled);
    for (int id = 2; id <= 4; id++)
        assert_true(s->tfs[id].here && s->tfs[id].pulled && strcmp(s->tfs[id].node, "node-a") == 0);
    assert_int_equal(s->tfs[3].attempt, 3);
    assert_int_equal(s->tfs[4].attempt, 9);
    assert_false(s->tfs[5].here);
    assert_int_equal(s->watermark, 6);
    sluiced_release(&d, PART_NUMBER, 1, 4);
    wait_for(loop, source_is_done(source));
    assert_int_equal(n_freed, 5);
    puller_close(&p);
}

static void out_of_contact_for_too_long_it_gives_up(void **unused)
{
    (void)unused;
    teardown(NULL);
    loop = ev_loop_new(EVFLAG_AUTO);
    sluiced_start(&d, loop, 10);
    memory_fd = memfd_create("test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(memory_fd, MEMORY), 0);
    memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    open_source(0.4);
    wait_in();
    sluiced_kill(&d);
    wait_for(loop, n_failed == 1);
    assert_int_equal(why_failed.code, ERR_UNREACHABLE);
    assert_non_null(strstr(why_failed.text, d.address));
}

static void a_refusal_at_the_start_is_final_and_its_code_is_kept(void **unused)
{
    (void)unused;
    d.refuse = ERR_STATE;
    wait_for(loop, n_failed == 1);
    assert_int_equal(why_failed.code, ERR_STATE);
    assert_string_equal(why_failed.text, "refused by the script");
    run_for(loop, 0.3);
    assert_int_equal(n_failed, 1);
}

/* ---- workers --------------------------------------------------------------------------------------- */

static void both_ways_bring_the_same_bytes(void **unused)
{
    (void)unused;
    struct puller by_fd, raw;
    static const size_t sizes[] = { 0, 1, 63, 5000, 3 << 20 };

    wait_in();
    for (size_t i = 0; i < 5; i++)
        add_part(sizes[i]);
    puller_open(&by_fd, loop, outlet_address(outlet), "node-a", d.key, true);
    puller_open(&raw, loop, outlet_address(outlet), "node-b", d.key, false);
    wait_for(loop, by_fd.ready && raw.ready);
    assert_true(by_fd.source_proved && raw.source_proved);
    for (uint64_t id = 1; id <= 5; id++) {       /* all at once: answered in order */
        puller_pull(&by_fd, id, PART_NUMBER, 1);
        puller_pull(&raw, id, PART_NUMBER, 1);
    }
    wait_for(loop, by_fd.n_got == 5 && raw.n_got == 5 && raw.gots[4].ok);
    for (unsigned i = 0; i < 5; i++) {
        const uint64_t at = (uint64_t[]){ 0, 0, 64, 128, 128 + 5056 }[i];
        assert_true(by_fd.gots[i].ok && raw.gots[i].ok);
        assert_int_equal(by_fd.gots[i].id, i + 1);
        assert_int_equal(raw.gots[i].id, i + 1);
        assert_int_equal(by_fd.gots[i].size, sizes[i]);
        assert_memory_equal(by_fd.gots[i].data, memory + at, sizes[i]);
        assert_memory_equal(raw.gots[i].data, memory + at, sizes[i]);
        assert_int_equal(by_fd.gots[i].by_descriptor, sizes[i] > 0);
        assert_false(raw.gots[i].by_descriptor);
    }
    assert_int_equal(outlet_stats(outlet)->pulls, 10);
    puller_close(&by_fd);
    puller_close(&raw);
}

static void over_tcp_a_wish_for_a_descriptor_is_met_with_bytes(void **unused)
{
    (void)unused;
    struct outlet *tcp;
    struct puller p;
    const struct outlet_conf oc = { .loop = loop, .address = "127.0.0.1:0", .run = HELP_RUN, .holds = holds, .n_holds = 1, .max_workers = 4, .handshake_s = 5 };
    struct err e;

    wait_in();
    add_part(300000);
    tcp = outlet_create(&oc, &e);
    assert_non_null(tcp);
    assert_string_not_equal(outlet_address(tcp), "127.0.0.1:0");
    outlet_open(tcp, source_key(source), memory_fd);
    puller_open(&p, loop, outlet_address(tcp), "node-a", d.key, true);
    wait_for(loop, p.ready);
    puller_pull(&p, 1, PART_NUMBER, 1);
    wait_for(loop, p.n_got == 1 && p.gots[0].ok);
    assert_false(p.gots[0].by_descriptor);
    assert_memory_equal(p.gots[0].data, memory, 300000);
    puller_close(&p);
    outlet_destroy(tcp);
}

static void stale_gone_and_foreign_pulls_are_refused_by_name(void **unused)
{
    (void)unused;
    struct puller a, b;

    wait_in();
    add_part(100);
    add_part(100);
    wait_for(loop, d.sessions[0].watermark == 3);
    puller_open(&a, loop, outlet_address(outlet), "node-a", d.key, false);
    puller_open(&b, loop, outlet_address(outlet), "node-b", d.key, false);
    wait_for(loop, a.ready && b.ready);
    puller_pull(&b, 1, PART_NUMBER, 2);
    wait_for(loop, b.n_got == 1 && b.gots[0].ok);
    puller_pull(&a, 1, PART_NUMBER, 1);          /* the older try comes late */
    puller_pull(&a, 9, PART_NUMBER, 1);
    puller_pull(&a, 2, PART_NUMBER + 1, 1);
    sluiced_release(&d, 0, 2, 1);
    wait_for(loop, n_freed == 1);
    puller_pull(&a, 2, PART_NUMBER, 1);
    wait_for(loop, a.n_got == 4);
    assert_string_equal(a.gots[0].word, "StaleFence");
    assert_string_equal(a.gots[1].word, "Gone");
    assert_string_equal(a.gots[2].word, "NotOurs");
    assert_string_equal(a.gots[3].word, "Gone");
    assert_int_equal(outlet_stats(outlet)->stale, 1);
    puller_pull(&b, 1, PART_NUMBER, 2);          /* the same fence may ask again */
    wait_for(loop, b.n_got == 2 && b.gots[1].ok);
    puller_close(&a);
    puller_close(&b);
}

static void who_does_not_know_the_key_gets_nothing(void **unused)
{
    (void)unused;
    struct puller wrong_key, wrong_proof, hasty;
    uint8_t other[RUNKEY_SIZE] = { 1 };

    wait_in();
    add_part(100);
    puller_open(&wrong_key, loop, outlet_address(outlet), "node-a", other, false);
    wait_for(loop, wrong_key.closed);
    assert_false(wrong_key.source_proved);       /* and the worker would notice too */
    assert_false(wrong_key.ready);
    assert_int_equal(wrong_key.error, ERR_PERMISSION);

    puller_open(&wrong_proof, loop, outlet_address(outlet), "node-a", d.key, false);
    wrong_proof.wrong_proof = true;
    wait_for(loop, wrong_proof.closed);
    assert_true(wrong_proof.source_proved && !wrong_proof.ready);

    puller_open(&hasty, loop, outlet_address(outlet), "node-a", d.key, true);
    puller_pull(&hasty, 1, PART_NUMBER, 1);      /* before anything was proven */
    wait_for(loop, hasty.closed);
    assert_int_equal(hasty.n_got, 0);
    assert_int_equal(outlet_stats(outlet)->pulls, 0);
    assert_int_equal(outlet_stats(outlet)->refused, 3);
}

static void who_says_nothing_is_turned_away_at_the_deadline(void **unused)
{
    (void)unused;
    wait_in();
    int fd = peer_connect_fd(outlet_address(outlet), NULL);
    char sink[4096];

    assert_true(fd >= 0);
    wait_for(loop, outlet_stats(outlet)->refused == 1);
    /* It is closed from the other side, after what was said. */
    wait_for(loop, read(fd, sink, sizeof sink) == 0);
    close(fd);
}

static void idle_strangers_keep_a_worker_out_no_longer_than_the_deadline(void **unused)
{
    (void)unused;
    struct puller p;
    int idle[64];

    wait_in();
    add_part(100);
    for (int i = 0; i < 64; i++) {
        idle[i] = peer_connect_fd(outlet_address(outlet), NULL);
        assert_true(idle[i] >= 0);
        run_for(loop, 0);                        /* 16 at most are let in here, the others wait in the queue of the socket */
    }
    puller_open(&p, loop, outlet_address(outlet), "node-a", d.key, true);
    wait_for(loop, p.ready);
    puller_pull(&p, 1, PART_NUMBER, 1);
    wait_for(loop, p.n_got == 1 && p.gots[0].ok);
    puller_close(&p);
    for (int i = 0; i < 64; i++)
        close(idle[i]);
}

static void a_stopped_worker_holds_up_nobody_and_is_cut_off(void **unused)
{
    (void)unused;
    struct puller stopped, other;

    wait_in();
    add_part(16 << 20);                          /* more than any socket buffers */
    puller_open(&stopped, loop, outlet_address(outlet), "node-a", d.key, false);
    wait_for(loop, stopped.ready);
    puller_pull(&stopped, 1, PART_NUMBER, 1);
    wait_for(loop, stopped.progress > 0);
    int frozen = puller_freeze(&stopped);
    puller_open(&other, loop, outlet_address(outlet), "node-b", d.key, false);
    wait_for(loop, other.ready);
    puller_pull(&other, 1, PART_NUMBER, 2);
    wait_for(loop, other.n_got == 1 && other.gots[0].ok);
    sluiced_release(&d, 0, 1, 1);
    wait_for(loop, n_freed == 1);                /* its pin fell with its connection */
    assert_int_equal(hold_in_use(holds[0]), 0);
    puller_forget(&stopped);
    puller_close(&other);
    close(frozen);
}

static void it_can_end_in_mid_transfer(void **unused)
{
    (void)unused;
    struct puller p;

    wait_in();
    add_part(16 << 20);
    puller_open(&p, loop, outlet_address(outlet), "node-a", d.key, false);
    wait_for(loop, p.ready);
    puller_pull(&p, 1, PART_NUMBER, 1);
    wait_for(loop, p.progress > 0 && p.progress < 16 << 20);
    sluiced_release(&d, 0, 1, 1);
    wait_for(loop, hold_count(holds[0]) == 0);
    outlet_destroy(outlet);
    outlet = NULL;
    assert_int_equal(n_freed, 1);
    wait_for(loop, p.closed);
    assert_false(p.gots[0].ok);
    puller_close(&p);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_new_is_announced_merged_and_let_go_on_release),
        TEST(a_window_bounds_what_is_held),
        TEST(after_a_restart_of_sluiced_it_announces_fresh_and_pulled_ones_and_the_end),
        TEST(out_of_contact_for_too_long_it_gives_up),
        TEST(a_refusal_at_the_start_is_final_and_its_code_is_kept),
        TEST(both_ways_bring_the_same_bytes),
        TEST(over_tcp_a_wish_for_a_descriptor_is_met_with_bytes),
        TEST(stale_gone_and_foreign_pulls_are_refused_by_name),
        TEST(who_does_not_know_the_key_gets_nothing),
        TEST(who_says_nothing_is_turned_away_at_the_deadline),
        TEST(idle_strangers_keep_a_worker_out_no_longer_than_the_deadline),
        TEST(a_stopped_worker_holds_up_nobody_and_is_cut_off),
        TEST(it_can_end_in_mid_transfer),
    };
    make_seed();
    make_begin();
    int failed = cmocka_run_group_tests_name("source", tests, NULL, NULL);
    make_end();
    return failed;
}
