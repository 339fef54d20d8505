/* reel_test.c - files read ahead: parts that are the file again, damage named by its byte, memory that is scarce */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>
#include <xxhash.h>

#include "clock.h"
#include "make_tf.h"
#include "page.h"
#include "reel.h"

/* A reader says that it finished; whoever waits looks again. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static unsigned tellings;

static void notify(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    tellings++;
    pthread_cond_signal(&told);
    pthread_mutex_unlock(&lock);
}

static void wait_told(void)
{
    struct timespec until = { .tv_sec = time(NULL) + 20 };

    pthread_mutex_lock(&lock);
    while (tellings == 0)
        assert_int_equal(pthread_cond_timedwait(&told, &lock, &until), 0);
    tellings = 0;
    pthread_mutex_unlock(&lock);
}

static struct reel *make_reel(char *const *paths, size_t n, unsigned sources, unsigned preread, uint64_t loops, bool verify)
{
    const struct reel_conf conf = {
        .paths = paths, .n_paths = n, .threads = 3, .sources = sources, .preread = preread, .loops = loops, .verify = verify, .notify = notify,
    };
    struct reel *r = reel_create(&conf);

    assert_int_equal(reel_scan(r, NULL), 0);
    return r;
}

/* The next TF, however long its reading takes; NULL: the end, or (no_room set) memory is wanted. */
static const struct reel_tf *next_tf(struct reel *r, bool *no_room)
{
    struct err e;

    *no_room = false;
    for (;;) {
        assert_int_equal(reel_fill(r, &e), 0);
        switch (reel_head(r)) {
        case REEL_READY:
            return reel_take(r);
        case REEL_END:
            return NULL;
        case REEL_NO_ROOM:
            *no_room = true;
            return NULL;
        case REEL_READING:
            wait_told();
        }
    }
}

static void end_reel(struct reel *r, struct arena *a)
{
    assert_int_equal(reel_stop(r, 10 * CLOCK_SECOND), 0);
    reel_destroy(r);
    arena_destroy(a);
}

/* Whether the parts in order are these bytes, and their checksums theirs. */
static void assert_is(const struct reel_tf *tf, const uint8_t *bytes, size_t size)
{
    size_t at = 0;

    assert_int_equal(tf->size, size);
    for (unsigned i = 0; i < tf->n; i++) {
        assert_true(tf->parts[i].size <= size - at);
        assert_memory_equal(tf->parts[i].data, bytes + at, tf->parts[i].size);
        assert_true(tf->xxh3[i] == XXH3_64bits(bytes + at, tf->parts[i].size));
        at += tf->parts[i].size;
    }
    assert_int_equal(at, size);
}

static void bytes_equal_the_file_for_every_number_of_sources(void **unused)
{
    (void)unused;
    size_t size;
    uint8_t *tf = make_tf(60, 3000, 0, 128, 1, &size);
    char *path = make_file("parts.tf", tf, size);

    for (unsigned s = 1; s <= 40; s++) {
        struct reel *r = make_reel(&path, 1, s, 8, 1, false);
        struct arena *a = arena_create(size, NULL);
        bool no_room;
        assert_int_equal(reel_start(r, a, NULL), 0);
        const struct reel_tf *got = next_tf(r, &no_room);
        assert_non_null(got);
        assert_int_equal(got->n, s);
        assert_int_equal(got->first_orbit, 128);
        assert_is(got, tf, size);
        reel_give(r, got);
        assert_null(next_tf(r, &no_room));
        assert_false(no_room);
        end_reel(r, a);
    }
    free(path);
    free(tf);
}

/* ---- damage ------------------------------------------------------------------------------------ */

static void assert_bad(const struct reel *r, size_t i, const char *path, uint64_t offset, uint64_t tfs, const char *words)
{
    const struct reel_bad *b = reel_bad(r, i);

    assert_string_equal(b->path, path);
    assert_int_equal(b->offset, offset);
    assert_int_equal(b->tfs, tfs);
    if (strstr(b->text, words) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", words, b->text);
}

static void B80_damaged_files_are_skipped_counted_and_named_with_the_byte(void **unused)
{
    (void)unused;
    size_t a_size, b_size;
    uint8_t *a = make_tf(4, 100, 1, 128, 1, &a_size), *b = make_tf(4, 100, 1, 132, 2, &b_size);
    /* meta block 96 + 24, index block 96 + 2 identities of 48, then blocks of 96 + 100 */
    const size_t blocks_at = 120 + 96 + 2 * 48, third = blocks_at + 2 * 196;
    uint8_t *both = mem_zalloc(a_size + b_size), *x = mem_zalloc(a_size);
    char *paths[12];
    size_t n = 0;
    bool no_room;

    assert_int_equal(a_size, blocks_at + 4 * 196);
    memcpy(both, a, a_size);
    memcpy(both + a_size, b, b_size);
    paths[n++] = make_file("good.tf", a, a_size);
    paths[n++] = make_file("empty.tf", "", 0);
    paths[n++] = make_file("cut-in-header.tf", a, 50);
    paths[n++] = make_file("cut-in-payload.tf", a, third + 150);
    memcpy(x, a, a_size);
    x[third] = 'X';
    paths[n++] = make_file("magic.tf", x, a_size);
    memcpy(x, a, a_size);
    memset(x + third + 72, 0, 8);
    x[third + 79] = 0x80;                        /* 2^63 */
    paths[n++] = make_file("huge-block.tf", x, a_size);
    memcpy(x, a, a_size);
    memset(x + 96 + 8, 0, 8);
    x[96 + 15] = 0x80;
    paths[n++] = make_file("huge-tf.tf", x, a_size);
    paths[n++] = make_file("second-cut.tf", both, a_size + b_size - 1);
    paths[n++] = mem_strdup(make_folder);
    paths[n++] = mem_printf("%s/fifo", make_folder);
    assert_int_equal(mkfifo(paths[n - 1], 0600), 0);
    paths[n++] = mem_printf("%s/none", make_folder);
    paths[n++] = make_file("good-again.tf", both, a_size + b_size);

    struct reel *r = make_reel(paths, n, 2, 8, 2, false);
    assert_int_equal(reel_bad_count(r), 10);
    assert_bad(r, 0, paths[1], 0, 0, "empty");
    assert_bad(r, 1, paths[2], 0, 0, "50");
    assert_bad(r, 2, paths[3], 96 + 8, 0, "left");
    assert_bad(r, 3, paths[4], third, 0, "magic");
    assert_bad(r, 4, paths[5], third + 72, 0, "9223372036854775808");
    assert_bad(r, 5, paths[6], 96 + 8, 0, "9223372036854775808");
    assert_bad(r, 6, paths[7], a_size + 96 + 8, 1, "left");
    assert_bad(r, 7, paths[8], 0, 0, "folder");
    assert_bad(r, 8, paths[9], 0, 0, "FIFO");
    assert_bad(r, 9, paths[10], 0, 0, "No such file");
    assert_true(reel_bad(r, 9)->code == ERR_NOT_FOUND && reel_bad(r, 8)->code == ERR_FAILED);

    /* Two rounds over good.tf, the first of second-cut.tf, and both of good-again.tf: nothing loops, nothing else comes. */
    const struct { const uint8_t *tf; size_t size; } want[] = { { a, a_size }, { a, a_size }, { a, a_size }, { b, b_size } };
    struct arena *arena = arena_create(1 << 20, NULL);
    assert_int_equal(reel_tfs(r), 4);
    assert_int_equal(reel_start(r, arena, NULL), 0);
    for (int i = 0; i < 8; i++) {
        const struct reel_tf *tf = next_tf(r, &no_room);
        assert_non_null(tf);
        assert_is(tf, want[i % 4].tf, want[i % 4].size);
        reel_give(r, tf);
    }
    assert_null(next_tf(r, &no_room));
    end_reel(r, arena);
    for (size_t i = 0; i < n; i++)
        free(paths[i]);
    free(a);
    free(b);
    free(both);
    free(x);
}

static void a_file_that_shrinks_after_the_scan_is_passed_over_once_and_for_all(void **unused)
{
    (void)unused;
    size_t a_size, b_size;
    uint8_t *a = make_tf(4, 100, 1, 128, 1, &a_size), *b = make_tf(4, 100, 1, 132, 2, &b_size);
    char *paths[] = { make_file("shrinks.tf", a, a_size), make_file("stays.tf", b, b_size) };
    struct reel *r = make_reel(paths, 2, 1, 4, 3, false);
    struct arena *arena = arena_create(1 << 20, NULL);
    bool no_room;

    assert_int_equal(reel_tfs(r), 2);
    assert_int_equal(truncate(paths[0], 333), 0);
    assert_int_equal(reel_start(r, arena, NULL), 0);
    for (int i = 0; i < 3; i++) {
        const struct reel_tf *tf = next_tf(r, &no_room);
        assert_non_null(tf);
        assert_is(tf, b, b_size);
        reel_give(r, tf);
    }
    assert_null(next_tf(r, &no_room));
    assert_int_equal(reel_bad_count(r), 1);
    assert_bad(r, 0, paths[0], 333, 0, "ends");
    assert_int_equal(reel_bad_bytes(r), a_size);
    end_reel(r, arena);

    /* And when nothing else is there, this is the end, however many passes were wanted. */
    free(make_file("shrinks.tf", a, a_size));
    r = make_reel(paths, 1, 1, 4, 1000000000, false);
    arena = arena_create(1 << 20, NULL);
    assert_int_equal(truncate(paths[0], 333), 0);
    assert_int_equal(reel_start(r, arena, NULL), 0);
    assert_null(next_tf(r, &no_room));
    assert_int_equal(reel_head(r), REEL_END);
    end_reel(r, arena);
    free(paths[0]);
    free(paths[1]);
    free(a);
    free(b);
}

static void without_descriptors_no_file_is_called_bad(void **unused)
{
    (void)unused;
    size_t size;
    uint8_t *tf = make_tf(4, 100, 1, 128, 1, &size);
    char *path = make_file("good.tf", tf, size);
    const struct reel_conf conf = { .paths = &path, .n_paths = 1, .threads = 1, .sources = 1, .preread = 1, .loops = 1, .notify = notify };
    struct rlimit before, none;
    struct err e;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){ .rlim_cur = 0, .rlim_max = before.rlim_max };
    struct reel *r = reel_create(&conf);
    setrlimit(RLIMIT_NOFILE, &none);
    int scanned = reel_scan(r, &e);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(scanned, -1);
    assert_int_equal(e.code, ERR_FAILED);
    assert_int_equal(reel_stop(r, CLOCK_SECOND), 0);
    reel_destroy(r);

    r = make_reel(&path, 1, 1, 1, 1, false);     /* and while it plays */
    struct arena *a = arena_create(1 << 20, NULL);
    assert_int_equal(reel_start(r, a, NULL), 0);
    setrlimit(RLIMIT_NOFILE, &none);
    int filled = reel_fill(r, &e);
    while (filled == 0 && reel_head(r) == REEL_READING) {
        wait_told();
        filled = reel_fill(r, &e);
    }
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(filled, -1);
    assert_int_equal(reel_bad_count(r), 0);
    end_reel(r, a);
    free(path);
    free(tf);
}

/* ---- memory ------------------------------------------------------------------------------------- */

enum { TFS = 7 };
static uint8_t *tfs[TFS];
static size_t sizes[TFS], largest;
static char *film;                               /* one file with all of them */

static int make_film(void **unused)
{
    (void)unused;
    uint8_t *all = NULL;
    size_t size = 0;

    largest = 0;
    for (int i = 0; i < TFS; i++) {
        tfs[i] = make_tf(5 + 3 * (size_t)i, 2000, 0, 128 + 4 * (uint32_t)i, 1 + (uint32_t)i, &sizes[i]);
        all = mem_grow(all, size + sizes[i], 1);
        memcpy(all + size, tfs[i], sizes[i]);
        size += sizes[i];
        largest = sizes[i] > largest ? sizes[i] : largest;
    }
    film = make_file("film.tf", all, size);
    free(all);
    return 0;
}

static int drop_film(void **unused)
{
    (void)unused;
    for (int i = 0; i < TFS; i++)
        free(tfs[i]);
    free(film);
    return 0;
}

/* Plays the film with at most `window` TFs out at a time, which come back in random order; every byte is looked at when it goes out and again when
 * it comes back. Returns what was read from the file. */
static uint64_t play_film(uint64_t memory, unsigned preread, unsigned window, uint64_t loops)
{
    struct reel *r = make_reel(&film, 1, 3, preread, loops, false);
    struct { const struct reel_tf *tf; uint64_t n; } out[64];
    unsigned n_out = 0;
    uint64_t size, n = 0, read;
    bool no_room = false;
    struct err e;

    assert_int_equal(reel_arena_size(r, preread > window ? preread : window, memory, &size, &e), 0);
    assert_true(size <= memory);
    struct arena *a = arena_create(size, NULL);
    assert_int_equal(reel_start(r, a, NULL), 0);
    for (;;) {
        const struct reel_tf *tf = n_out < window ? next_tf(r, &no_room) : NULL;
        if (tf != NULL) {
            assert_is(tf, tfs[n % TFS], sizes[n % TFS]);
            out[n_out].tf = tf;
            out[n_out++].n = n++;
            continue;
        }
        if (n_out == 0) {
            assert_false(no_room);               /* with all memory free the next one always fits */
            break;
        }
        unsigned i = (unsigned)make_random(n_out);
        assert_is(out[i].tf, tfs[out[i].n % TFS], sizes[out[i].n % TFS]);
        reel_give(r, out[i].tf);
        out[i] = out[--n_out];
    }
    assert_int_equal(n, TFS * loops);
    read = reel_read_bytes(r);
    end_reel(r, a);
    return read;
}

static void B79_memory_below_one_time_frame_is_refused_with_the_size_needed(void **unused)
{
    (void)unused;
    struct reel *r = make_reel(&film, 1, 1, 8, 1, false);
    char needed[24];
    uint64_t size;
    struct err e;

    snprintf(needed, sizeof needed, "needs %zu", largest);
    assert_int_equal(reel_arena_size(r, 8, largest / 2, &size, &e), -1);
    assert_int_equal(e.code, ERR_STATE);
    assert_non_null(strstr(e.text, needed));
    assert_int_equal(reel_arena_size(r, 8, largest - 1, &size, &e), -1);
    assert_int_equal(reel_arena_size(r, 8, largest, &size, &e), 0);
    assert_int_equal(reel_stop(r, CLOCK_SECOND), 0);
    reel_destroy(r);
}

static void B79_any_memory_from_one_time_frame_on_plays_to_the_end(void **unused)
{
    (void)unused;
    static const double times[] = { 1, 1.5, 3 };
    static const unsigned prereads[] = { 1, 8 }, windows[] = { 1, 4, 60 };

    for (unsigned t = 0; t < 3; t++) {
        for (unsigned p = 0; p < 2; p++) {
            for (unsigned w = 0; w < 3; w++)
                play_film((uint64_t)(times[t] * (double)largest), prereads[p], windows[w], 5);
        }
    }
}

static void what_fits_is_read_once(void **unused)
{
    (void)unused;
    uint64_t all = 0;

    for (int i = 0; i < TFS; i++)
        all += sizes[i];
    assert_int_equal(play_film(UINT64_C(1) << 30, 8, 4, 20), all);
    /* With half the room something is read again, but less than everything each time. */
    uint64_t read = play_film(all / 2 + largest, 2, 1, 20);
    assert_true(read > all && read < 20 * all);
}

static void workers_get_the_memory_to_read_only_and_of_one_size(void **unused)
{
    (void)unused;
    struct arena *a = arena_create(100000, NULL);
    struct range r;
    char byte = 'x';

    assert_int_equal(arena_take(a, 5000, &r), 0);
    assert_int_equal(arena_fault(a, &r, NULL), 0);
    memset(arena_at(a, r.offset), 'y', 5000);
    assert_int_equal(pread(arena_fd(a), &byte, 1, (off_t)r.offset + 4999), 1);
    assert_int_equal(byte, 'y');
    assert_int_equal(pwrite(arena_fd(a), "x", 1, 0), -1);
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", arena_fd(a));
    int again = open(path, O_RDWR | O_CLOEXEC);  /* whoever may, may still not cut it */
    if (again >= 0) {
        assert_int_equal(ftruncate(again, 10), -1);
        assert_int_equal(ftruncate(again, 1 << 20), -1);
        close(again);
    }
    arena_give(a, &r);
    arena_destroy(a);
}

/* ---- pages ---------------------------------------------------------------------------------------- */

static void page_put(uint8_t *p, unsigned fee, unsigned next, unsigned memory, unsigned stop)
{
    memset(p, 0, 64);
    p[0] = 7;
    p[1] = 64;
    p[2] = (uint8_t)fee;
    p[3] = (uint8_t)(fee >> 8);
    p[8] = (uint8_t)next;
    p[9] = (uint8_t)(next >> 8);
    p[10] = (uint8_t)memory;
    p[11] = (uint8_t)(memory >> 8);
    p[38] = (uint8_t)stop;
}

static void verify_walks_the_pages_of_raw_data(void **unused)
{
    (void)unused;
    enum { FEE = 0x24f, SIZE = 256 + 128 + 64 };
    uint8_t pages[SIZE];
    static const struct { unsigned at; uint8_t value; unsigned offset; const char *words; } harm[] = {
        { 0, 6, 0, "version 6" },        { 1, 63, 0, "63" },              { 2, 0, 2, "FEE id" },
        { 9, 0, 10, "memory size" },     { 10, 0, 10, "memory size 0" },  { 38, 1, 38, "stop is 1" },
        { 256 + 9, 9, 256 + 8, "next" }, { 384 + 38, 0, 384 + 38, "stop is 0" },
        { 256 + 8, 160, 256 + 160, "bytes wanted" },
    };
    struct tf_err e;

    for (size_t i = 0; i <= sizeof harm / sizeof harm[0]; i++) {
        memset(pages, 0xee, sizeof pages);
        page_put(pages, FEE, 256, 200, 0);
        page_put(pages + 256, FEE, 128, 128, 0);
        page_put(pages + 384, FEE, 64, 64, 1);
        if (i > 0)
            pages[harm[i - 1].at] = harm[i - 1].value;
        const struct tf_new_block b = { .description = "RAWDATA", .origin = "TPC", .subspec = FEE, .payload = pages, .size = SIZE };
        void *tf;
        size_t size;
        bool no_room;
        assert_int_equal(tf_build(&b, 1, 128, 1, 1, 0, &tf, &size, &e), 0);
        char *path = make_file("pages.tf", tf, size);
        struct reel *r = make_reel(&path, 1, 1, 1, 1, true);
        struct arena *a = arena_create(1 << 20, NULL);
        assert_int_equal(reel_start(r, a, NULL), 0);
        const struct reel_tf *got = next_tf(r, &no_room);
        if (i == 0) {
            if (got == NULL)
                fail_msg("%s", reel_bad(r, 0)->text);
        } else {
            assert_null(got);
            assert_int_equal(reel_bad_count(r), 1);
            assert_bad(r, 0, path, size - SIZE + harm[i - 1].offset, 0, harm[i - 1].words);
        }
        end_reel(r, a);
        free(path);
        free(tf);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_equal_the_file_for_every_number_of_sources),
        cmocka_unit_test(B80_damaged_files_are_skipped_counted_and_named_with_the_byte),
        cmocka_unit_test(a_file_that_shrinks_after_the_scan_is_passed_over_once_and_for_all),
        cmocka_unit_test(without_descriptors_no_file_is_called_bad),
        cmocka_unit_test_setup_teardown(B79_memory_below_one_time_frame_is_refused_with_the_size_needed, make_film, drop_film),
        cmocka_unit_test_setup_teardown(B79_any_memory_from_one_time_frame_on_plays_to_the_end, make_film, drop_film),
        cmocka_unit_test_setup_teardown(what_fits_is_read_once, make_film, drop_film),
        cmocka_unit_test(workers_get_the_memory_to_read_only_and_of_one_size),
        cmocka_unit_test(verify_walks_the_pages_of_raw_data),
    };
    make_seed();
    make_begin();
    int failed = cmocka_run_group_tests_name("reel", tests, NULL, NULL);
    make_end();
    return failed;
}
