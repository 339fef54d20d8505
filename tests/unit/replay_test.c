/* replay_test.c - files played into a run: every byte arrives, at the rate asked for, within the window, through stops and restarts */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdint.h>
#include <cmocka.h>

#include "replay.h"
#include "source_help.h"

enum { FILES = 3, TFS = 6 };                     /* the second file has four TFs */

static struct ev_loop *loop;
static struct sluiced d;
static struct replay *replay;
static struct replay_conf conf;
static char *paths[FILES];
static uint8_t *tf_data[TFS];
static size_t tf_size[TFS];
static bool is_ready, is_over;
static struct err why;

static void on_ready(void *arg)
{
    (void)arg;
    is_ready = true;
}

static void on_ended(void *arg, const struct err *e)
{
    (void)arg;
    assert_false(is_over);
    is_over = true;
    why = *e;
}

static int setup(void **unused)
{
    (void)unused;
    uint8_t *all = NULL;
    size_t from = 0;

    for (unsigned i = 0; i < TFS; i++)
        tf_data[i] = make_tf(12 + i, 4000, 0, 128 + 4 * i, 1 + i, &tf_size[i]);
    paths[0] = make_file("one.tf", tf_data[0], tf_size[0]);
    for (unsigned i = 1; i < 5; i++) {
        all = mem_grow(all, from + tf_size[i], 1);
        memcpy(all + from, tf_data[i], tf_size[i]);
        from += tf_size[i];
    }
    paths[1] = make_file("four.tf", all, from);
    free(all);
    paths[2] = make_file("last.tf", tf_data[5], tf_size[5]);
    loop = ev_loop_new(EVFLAG_AUTO);
    sluiced_start(&d, loop, 5);
    is_ready = is_over = false;
    conf = (struct replay_conf){
        .loop = loop, .server = d.address, .run = HELP_RUN, .paths = paths, .n_paths = FILES, .rate = 0, .loops = 1, .preread = 4, .threads = 2,
        .sources = 1, .max_bad = UINT64_MAX, .lost_s = 5, .first_s = 5,
    };
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    assert_int_equal(replay_destroy(replay), 0);
    replay = NULL;
    sluiced_stop(&d);
    ev_loop_destroy(loop);
    for (unsigned i = 0; i < TFS; i++)
        free(tf_data[i]);
    for (unsigned i = 0; i < FILES; i++)
        free(paths[i]);
    return 0;
}

static void start(void)
{
    struct err e;

    replay = replay_create(&conf, &e);
    if (replay == NULL || replay_start(replay, on_ready, on_ended, NULL, &e) < 0)
        fail_msg("%s", e.text);
    wait_for(loop, is_ready);
}

static struct replay_numbers numbers(void)
{
    struct replay_numbers n;

    replay_numbers(replay, &n);
    return n;
}

/* ---- a farm of one worker that takes everything ------------------------------------------------------- */

static struct puller puller;
static uint64_t next_pull, checked;

/* Whether the parts that came, joined in order, are the TF of that number. */
static void check_tf(uint64_t id)
{
    const uint8_t *want = tf_data[(id - 1) % TFS];
    size_t at = 0, size = tf_size[(id - 1) % TFS];

    for (unsigned i = 0; i < conf.sources; i++) {
        const struct got *g = &puller.gots[i];
        assert_true(g->ok);
        assert_int_equal(g->id, id);
        assert_int_equal(g->part, i);
        assert_int_equal(d.sessions[i].tfs[id].size, g->size);
        assert_int_equal(d.sessions[i].tfs[id].orbit, 128 + 4 * ((id - 1) % TFS));
        assert_true(g->size <= size - at);
        assert_memory_equal(g->data, want + at, g->size);
        at += g->size;
    }
    assert_int_equal(at, size);
    checked++;
}

static bool all_got(void)
{
    if (puller.n_got < conf.sources)
        return false;
    for (unsigned i = 0; i < conf.sources; i++) {
        if (!puller.gots[i].ok)
            return false;
    }
    return true;
}

static bool all_told(uint64_t id)
{
    for (unsigned i = 0; i < conf.sources; i++) {
        if (d.sessions[i].tfs == NULL || !d.sessions[i].tfs[id].here)
            return false;
    }
    return true;
}

/* One step of the farm: pulls the next TF that is complete, checks what came, lets go of it. */
static void farm_step(void)
{
    if (puller.ready && all_told(next_pull) && d.n_in == conf.sources) {
        for (unsigned i = 0; i < conf.sources; i++)
            puller_pull(&puller, next_pull, i, 1);
        wait_for(loop, all_got());
        check_tf(next_pull);
        puller_forget(&puller);
        for (unsigned i = 0; i < conf.sources; i++)
            sluiced_release(&d, i, next_pull, 1);
        d.settled = next_pull++;             /* a Release that is lost with its connection is said again */
    } else {
        run_for(loop, 0.001);
    }
}

static void farm_open(bool same_host)
{
    next_pull = 1;
    checked = 0;
    puller_open(&puller, loop, d.sessions[0].address, "node-a", d.key, same_host);
    wait_for(loop, puller.ready);
}

static void farm_until_over(void)
{
    int64_t limit = clock_mono_ns() + 30 * CLOCK_SECOND;

    while (!is_over) {
        assert_true(clock_mono_ns() < limit);
        farm_step();
    }
    puller_close(&puller);
}

static void every_byte_arrives_with_any_number_of_sources_both_ways(void **unused)
{
    (void)unused;
    static const unsigned sources[] = { 1, 2, 7, 40 };

    for (unsigned i = 0; i < 4; i++) {
        if (i > 0) {
            teardown(NULL);
            setup(NULL);
        }
        conf.sources = sources[i];
        conf.loops = 3;
        start();
        farm_open(i % 2 == 0);
        farm_until_over();
        assert_int_equal(why.code, ERR_NONE);
        assert_int_equal(checked, 3 * TFS);
        assert_int_equal(d.n_ended, sources[i]);
        assert_true(d.peak <= d.window);
        assert_int_equal(numbers().announced, 3 * TFS);
        assert_int_equal(numbers().released, 3 * TFS);
        assert_int_equal(numbers().total, 3 * TFS);
        /* Everything fits: it was read once. */
        assert_int_equal(numbers().read_bytes, tf_size[0] + tf_size[1] + tf_size[2] + tf_size[3] + tf_size[4] + tf_size[5]);
        assert_int_equal(numbers().bytes, 3 * numbers().read_bytes);
    }
}

static void B79_memory_of_one_time_frame_is_slow_but_ends(void **unused)
{
    (void)unused;
    uint64_t largest = 0;
    struct err e;

    for (unsigned i = 0; i < TFS; i++)
        largest = tf_size[i] > largest ? tf_size[i] : largest;
    conf.memory = largest / 2;
    assert_null(replay_create(&conf, &e));
    assert_int_equal(e.code, ERR_STATE);
    conf.memory = largest;
    conf.loops = 4;
    start();
    farm_open(true);
    farm_until_over();
    assert_int_equal(why.code, ERR_NONE);
    assert_int_equal(checked, 4 * TFS);
}

static void the_rate_is_kept_on_an_absolute_schedule(void **unused)
{
    (void)unused;
    conf.loops = 10;
    conf.rate = 40;
    d.window = 200;
    start();
    farm_open(true);
    farm_until_over();
    struct replay_numbers n = numbers();
    assert_int_equal(n.announced, 10 * TFS);
    /* Never faster than asked for; on a busy machine the last one may be late. */
    assert_true(n.rate_offered <= 40.0 * 1.001);
    assert_true(n.rate_offered > 20);
    /* Both from the same instant: the last one let go after it went out. */
    assert_true(n.rate_achieved <= n.rate_offered * (10 * TFS) / (10 * TFS - 1));
    assert_true(n.seconds >= 59 / 40.0);
}

static void nobody_lets_go_so_it_waits_for_workers_and_says_so(void **unused)
{
    (void)unused;
    start();
    wait_for(loop, d.total[0] == d.window);
    run_for(loop, 0.3);
    assert_int_equal(d.total[0], d.window);
    struct replay_numbers n = numbers();
    assert_true(n.wait[REPLAY_WAIT_WORKERS] > 0.25);
    assert_true(n.wait[REPLAY_WAIT_WORKERS] + n.wait[REPLAY_WAIT_INPUT] + n.wait[REPLAY_WAIT_BUFFER] <= n.seconds);
    sluiced_release(&d, 0, 1, 5);
    wait_for(loop, d.sessions[0].ended);
    sluiced_release(&d, 0, 6, 1);
    wait_for(loop, is_over);
    assert_int_equal(why.code, ERR_NONE);
}

static void little_memory_shows_as_waiting_for_buffer(void **unused)
{
    (void)unused;
    for (unsigned i = 0; i < TFS; i++)
        conf.memory = tf_size[i] > conf.memory ? tf_size[i] : conf.memory;
    start();
    wait_for(loop, d.total[0] >= 1);
    run_for(loop, 0.3);
    assert_true(numbers().wait[REPLAY_WAIT_BUFFER] > 0.25);
    farm_open(true);
    farm_until_over();
    assert_int_equal(why.code, ERR_NONE);
}

static void sluiced_restarts_in_mid_run_and_nothing_is_lost(void **unused)
{
    (void)unused;
    conf.sources = 3;
    conf.loops = 20;
    start();
    farm_open(true);
    for (int restart = 0; restart < 2; restart++) {
        while (checked < 40 * (uint64_t)(restart + 1))
            farm_step();
        sluiced_kill(&d);
        run_for(loop, 0.05);
        sluiced_listen(&d);
    }
    farm_until_over();
    assert_int_equal(why.code, ERR_NONE);
    assert_int_equal(checked, 20 * TFS);
    assert_int_equal(numbers().reconnects, 2 * 3);
    assert_true(d.peak <= d.window);
}

static void a_stopping_run_ends_the_stream_early(void **unused)
{
    (void)unused;
    conf.sources = 2;
    conf.loops = 1000000;
    start();
    farm_open(false);
    while (checked < 30)
        farm_step();
    sluiced_say_stopping(&d, 0);
    sluiced_say_stopping(&d, 1);
    farm_until_over();
    assert_int_equal(why.code, ERR_CANCELLED);
    assert_int_equal(d.n_ended, 2);
    assert_int_equal(d.sessions[0].watermark, numbers().announced + 1);
    assert_int_equal(numbers().released, numbers().announced);
    assert_true(numbers().announced < 100);
}

static void a_signal_ends_it_within_its_limit_whatever_is_held(void **unused)
{
    (void)unused;
    start();
    wait_for(loop, d.total[0] == d.window);
    int64_t from = clock_mono_ns();
    replay_stop(replay, "terminated", 0.3);
    wait_for(loop, is_over);
    double took = (double)(clock_mono_ns() - from) * 1e-9;
    assert_true(took >= 0.29 && took < 3);
    assert_int_equal(why.code, ERR_CANCELLED);
    assert_true(d.sessions[0].ended);
}

static void a_lost_sluiced_is_given_up_after_a_while(void **unused)
{
    (void)unused;
    conf.lost_s = 0.4;
    start();
    wait_for(loop, d.total[0] == d.window);
    sluiced_kill(&d);
    wait_for(loop, is_over);
    assert_int_equal(why.code, ERR_UNREACHABLE);
}

static void a_run_that_does_not_take_it_is_said_with_its_code(void **unused)
{
    (void)unused;
    struct err e;

    d.refuse = ERR_NOT_FOUND;
    replay = replay_create(&conf, &e);
    assert_int_equal(replay_start(replay, on_ready, on_ended, NULL, &e), 0);
    wait_for(loop, is_over);
    assert_int_equal(why.code, ERR_NOT_FOUND);
    assert_false(is_ready);
}

static void B80_bad_files_are_counted_and_limited_good_ones_played(void **unused)
{
    (void)unused;
    char *with_bad[] = { paths[0], make_folder, make_file("cut.tf", tf_data[1], tf_size[1] / 2), paths[2], make_file("empty.tf", "", 0) };
    char *only_bad[] = { make_folder, with_bad[4] }, *missing[] = { "/nowhere/a.tf", "/nowhere/b.tf" };
    struct err e;

    conf.paths = missing;
    conf.n_paths = 2;
    assert_null(replay_create(&conf, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    conf.paths = only_bad;
    assert_null(replay_create(&conf, &e));
    assert_int_equal(e.code, ERR_FAILED);
    conf.paths = with_bad;
    conf.n_paths = 5;
    conf.max_bad = 2;
    assert_null(replay_create(&conf, &e));
    assert_int_equal(e.code, ERR_FAILED);
    assert_non_null(strstr(e.text, "3 bad files"));
    conf.max_bad = 3;
    start();
    sluiced_release(&d, 0, 1, 2);
    wait_for(loop, d.sessions[0].ended);
    assert_int_equal(d.total[0], 2);
    sluiced_release(&d, 0, 1, 2);
    wait_for(loop, is_over);
    assert_int_equal(why.code, ERR_NONE);
    assert_int_equal(numbers().skipped, 3);
    assert_int_equal(replay_bad_count(replay), 3);
    free(with_bad[2]);
    free(with_bad[4]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(every_byte_arrives_with_any_number_of_sources_both_ways),
        TEST(B79_memory_of_one_time_frame_is_slow_but_ends),
        TEST(the_rate_is_kept_on_an_absolute_schedule),
        TEST(nobody_lets_go_so_it_waits_for_workers_and_says_so),
        TEST(little_memory_shows_as_waiting_for_buffer),
        TEST(sluiced_restarts_in_mid_run_and_nothing_is_lost),
        TEST(a_stopping_run_ends_the_stream_early),
        TEST(a_signal_ends_it_within_its_limit_whatever_is_held),
        TEST(a_lost_sluiced_is_given_up_after_a_while),
        TEST(a_run_that_does_not_take_it_is_said_with_its_code),
        TEST(B80_bad_files_are_counted_and_limited_good_ones_played),
    };
    make_seed();
    make_begin();
    int failed = cmocka_run_group_tests_name("replay", tests, NULL, NULL);
    make_end();
    return failed;
}
