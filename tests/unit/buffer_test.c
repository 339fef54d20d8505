/* buffer_test.c - the shared file: made, adopted, refused, left-overs removed; B60 and B61 without processes */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "buffer.h"
#include "file.h"
#include "mem.h"
#include "segments.h"
#include "shm_layout.h"

#define MIB (UINT64_C(1) << 20)

static char dir[64], shm[80], run[80];
static struct ev_loop *loop;

static int setup(void **unused)
{
    (void)unused;
    snprintf(dir, sizeof dir, "/tmp/buffer_test.XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(shm, sizeof shm, "%s/shm", dir);
    snprintf(run, sizeof run, "%s/run", dir);
    loop = ev_loop_new(EVFLAG_AUTO);
    return mkdir(shm, 0755);
}

static int teardown(void **unused)
{
    (void)unused;
    char *cmd = mem_printf("rm -rf '%s'", dir);
    int rc = system(cmd);
    free(cmd);
    ev_loop_destroy(loop);
    return rc;
}

struct outcome { bool came, ok; struct err why; };

static void opened(void *arg, const struct err *why)
{
    struct outcome *o = arg;
    o->came = true;
    o->ok = why == NULL;
    if (why)
        o->why = *why;
    ev_break(loop, EVBREAK_ONE);
}

static void too_long(struct ev_loop *l, struct ev_timer *t, int revents)
{
    (void)t, (void)revents;
    ev_break(l, EVBREAK_ALL);
}

/* Opens a buffer and waits for the outcome. */
static struct buffer *open_sized(uint64_t size, struct outcome *o)
{
    struct buffer_conf conf = { .loop = loop, .shm_dir = shm, .run_dir = run, .farm = "farm", .node = "n1",
                                .size = size, .huge_pages = "no", .room_root = "", .opened = opened, .arg = o };
    struct err e;
    struct ev_timer limit;

    *o = (struct outcome){ 0 };
    struct buffer *b = buffer_create(&conf, &e);
    assert_non_null(b);
    assert_int_equal(buffer_open(b, &e), 0);
    assert_string_equal(buffer_word(b), "Starting");
    assert_int_equal(buffer_open(b, &e), -1);
    ev_timer_init(&limit, too_long, 20, 0);
    ev_timer_start(loop, &limit);
    ev_run(loop, 0);
    ev_timer_stop(loop, &limit);
    assert_true(o->came);
    return b;
}

/* Another size, and waits for the outcome. */
static void resize_to(struct buffer *b, uint64_t size, struct outcome *o)
{
    struct ev_timer limit;
    struct err e;

    *o = (struct outcome){ 0 };
    assert_int_equal(buffer_resize(b, size, &e), 0);
    assert_string_equal(buffer_word(b), "Resizing");
    assert_false(buffer_is_open(b));
    assert_int_equal(buffer_resize(b, size, &e), -1);
    ev_timer_init(&limit, too_long, 20, 0);
    ev_timer_start(loop, &limit);
    ev_run(loop, 0);
    ev_timer_stop(loop, &limit);
    assert_true(o->came);
}

static void head_of(const struct buffer *b, struct shm_head *h)
{
    int fd = open(buffer_path(b), O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, h, sizeof *h), sizeof *h);
    close(fd);
}

static void another_size_keeps_the_file_and_what_is_in_it(void **unused)
{
    (void)unused;
    struct outcome o;
    struct buffer *b = open_sized(2 * MIB, &o);
    struct range r = { 0, 0 };
    struct shm_head h;
    struct stat before, after;
    struct err e;

    assert_int_equal(stat(buffer_path(b), &before), 0);
    memcpy(buffer_at(b, 4096), "stays", 5);
    assert_int_equal(ranges_take(buffer_ranges(b), 100, &r, &e), 0);
    assert_int_equal(buffer_resize(b, 5 * MIB, &e), -1);
    assert_non_null(strstr(e.text, "128 bytes of it are in use"));
    ranges_give(buffer_ranges(b), &r);

    resize_to(b, 5 * MIB, &o);
    assert_true(o.ok);
    assert_int_equal(buffer_size(b), 5 * MIB);
    assert_int_equal(ranges_size(buffer_ranges(b)), 5 * MIB);
    assert_int_equal(buffer_generation(b), 2);
    assert_int_equal(stat(buffer_path(b), &after), 0);
    assert_int_equal(after.st_ino, before.st_ino);
    assert_int_equal(after.st_size, SHM_HEAD + 5 * MIB);
    assert_true((uint64_t)after.st_blocks * 512 >= SHM_HEAD + 5 * MIB);
    assert_memory_equal(buffer_at(b, 4096), "stays", 5);
    *(char *)buffer_at(b, 5 * MIB - 1) = 1;
    head_of(b, &h);
    assert_int_equal(h.size, 5 * MIB);
    assert_int_equal(h.generation, 2);

    resize_to(b, MIB, &o);
    assert_true(o.ok);
    assert_int_equal(stat(buffer_path(b), &after), 0);
    assert_int_equal(after.st_size, SHM_HEAD + MIB);
    assert_int_equal(buffer_generation(b), 3);
    assert_memory_equal(buffer_at(b, 4096), "stays", 5);
    assert_int_equal(buffer_page_size(b), sysconf(_SC_PAGESIZE));
    assert_int_equal(buffer_huge(b), 0);
    buffer_destroy(b, true);
}

static void a_size_that_has_no_room_leaves_the_old_one(void **unused)
{
    (void)unused;
    struct statvfs fs;
    struct outcome o;
    struct stat st;
    struct shm_head h;

    assert_int_equal(statvfs(shm, &fs), 0);
    struct buffer *b = open_sized(2 * MIB, &o);
    resize_to(b, (uint64_t)fs.f_blocks * fs.f_frsize * 2, &o);
    assert_false(o.ok);
    assert_non_null(strstr(o.why.text, "wanted"));
    assert_true(buffer_is_open(b));
    assert_int_equal(buffer_size(b), 2 * MIB);
    assert_int_equal(buffer_generation(b), 1);
    assert_int_equal(stat(buffer_path(b), &st), 0);
    assert_int_equal(st.st_size, SHM_HEAD + 2 * MIB);
    head_of(b, &h);
    assert_int_equal(h.size, 2 * MIB);
    resize_to(b, 3 * MIB, &o);
    assert_true(o.ok);
    buffer_destroy(b, true);
}

static void a_new_buffer_is_reserved_and_its_head_says_whose_it_is(void **unused)
{
    (void)unused;
    struct outcome o;
    struct buffer *b = open_sized(3 * MIB + 100, &o);
    struct shm_head h;
    struct stat st;
    struct err e;

    assert_true(o.ok);
    assert_string_equal(buffer_word(b), "");
    assert_int_equal(buffer_size(b), 3 * MIB + 64);
    assert_int_equal(buffer_generation(b), 1);
    assert_false(buffer_was_adopted(b));
    head_of(b, &h);
    assert_int_equal(h.magic, SHM_MAGIC);
    assert_int_equal(h.owner_pid, getpid());
    assert_int_equal(h.owner_start, file_process_start(getpid()));
    assert_string_equal(h.node, "n1");
    assert_int_equal(h.faulted, h.size);
    assert_int_equal(stat(buffer_path(b), &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 >= 3 * MIB);

    int fd = buffer_reader(b, &e);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), -1);
    memcpy(buffer_at(b, 128), "data", 4);
    char got[4];
    assert_int_equal(pread(fd, got, 4, (off_t)SHM_HEAD + 128), 4);
    assert_memory_equal(got, "data", 4);
    close(fd);

    char *path = mem_strdup(buffer_path(b));
    buffer_destroy(b, true);
    assert_int_equal(access(path, F_OK), -1);
    char *list = mem_printf("%s/segments", run);
    assert_int_equal(access(list, F_OK), -1);
    free(list);
    free(path);
}

/* Leaves a buffer as a worker that was killed does: made by a child that ends without a word. */
static void crashed_worker(uint64_t size, const char *node)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct outcome o;
        loop = ev_loop_new(EVFLAG_AUTO);
        struct buffer_conf conf = { .loop = loop, .shm_dir = shm, .run_dir = run, .farm = "farm", .node = node,
                                    .size = size, .huge_pages = "no", .room_root = "", .opened = opened, .arg = &o };
        struct buffer *b = buffer_create(&conf, NULL);
        if (b == NULL || buffer_open(b, NULL) < 0)
            _exit(3);
        ev_run(loop, 0);
        _exit(o.ok ? 0 : 4);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void a_buffer_whose_worker_crashed_is_adopted(void **unused)
{
    (void)unused;
    struct outcome o;

    crashed_worker(2 * MIB, "n1");
    crashed_worker(2 * MIB, "n1");
    struct buffer *b = open_sized(2 * MIB, &o);
    assert_true(o.ok);
    assert_true(buffer_was_adopted(b));
    assert_int_equal(buffer_generation(b), 3);
    assert_int_equal(ranges_used(buffer_ranges(b)), 0);
    buffer_destroy(b, false);

    b = open_sized(4 * MIB, &o);                          /* our own record: this process lives */
    assert_false(o.ok);
    assert_string_equal(buffer_word(b), "ShmInUse");
    assert_non_null(strstr(o.why.text, "one worker per farm and node name"));
    buffer_destroy(b, true);
}

static void another_size_is_taken_over_in_place(void **unused)
{
    (void)unused;
    struct outcome o;

    crashed_worker(2 * MIB, "n1");
    struct buffer *b = open_sized(5 * MIB, &o);
    struct stat st;
    assert_true(o.ok);
    assert_false(buffer_was_adopted(b));
    assert_int_equal(buffer_generation(b), 2);
    assert_int_equal(stat(buffer_path(b), &st), 0);
    assert_int_equal(st.st_size, SHM_HEAD + 5 * MIB);
    assert_true((uint64_t)st.st_blocks * 512 >= 5 * MIB);
    buffer_destroy(b, true);
}

static void a_second_worker_is_refused_and_the_first_keeps_its_file(void **unused)
{
    (void)unused;
    struct outcome o, second;
    struct buffer *b = open_sized(MIB, &o), *c = open_sized(MIB, &second);

    assert_true(o.ok);
    assert_false(second.ok);
    assert_int_equal(second.why.code, ERR_STATE);
    assert_non_null(strstr(second.why.text, "one worker per farm and node name"));
    assert_int_equal(buffer_size(c), 0);
    buffer_destroy(c, true);
    assert_int_equal(access(buffer_path(b), F_OK), 0);
    buffer_destroy(b, true);
}

static void a_foreign_file_under_our_name_is_left_alone(void **unused)
{
    (void)unused;
    struct outcome o;
    char *path = mem_printf("%s/sluice-farm-n1.buffer", shm);
    FILE *f = fopen(path, "w");
    char text[16] = "";

    fputs("somebody's notes", f);
    fclose(f);
    struct buffer *b = open_sized(MIB, &o);
    assert_false(o.ok);
    assert_string_equal(buffer_word(b), "ShmInUse");
    buffer_destroy(b, true);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(text, 1, 16, f), 16);
    assert_memory_equal(text, "somebody's notes", 16);
    fclose(f);
    free(path);
}

/* The folder for segments changed twice; one of the old names now belongs to somebody else. */
static void b61_left_overs_under_other_names_are_removed_and_counted(void **unused)
{
    (void)unused;
    struct outcome o;
    char first[80], *kept = mem_printf("%s/elsewhere", dir), *foreign = mem_printf("%s/other.buffer", dir);
    struct err e;
    uint64_t freed;
    unsigned removed;

    crashed_worker(2 * MIB, "n1");
    snprintf(first, sizeof first, "%s", shm);
    snprintf(shm, sizeof shm, "%s/shm2", dir);
    assert_int_equal(mkdir(shm, 0755), 0);
    assert_int_equal(file_replace(foreign, "not ours", 8, 0644, &e), 0);
    assert_int_equal(segments_take_over(run, "farm", "n9", foreign, &freed, &removed, &e), 0);   /* n9 is not the owner of n1's file */
    assert_int_equal(removed, 0);

    struct buffer *b = open_sized(MIB, &o);
    assert_true(o.ok);
    assert_true(buffer_freed(b) >= 2 * MIB);
    char *old = mem_printf("%s/sluice-farm-n1.buffer", first);
    assert_int_equal(access(old, F_OK), -1);
    assert_int_equal(access(foreign, F_OK), 0);
    buffer_destroy(b, true);
    free(old);
    free(kept);
    free(foreign);
}

static void b60_a_folder_that_is_too_small_is_refused_with_numbers(void **unused)
{
    (void)unused;
    struct outcome o;

    /* In a mount namespace of its own: nothing of it outlives this program. */
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", shm, "tmpfs", 0, "size=64m") < 0)
        skip();
    struct buffer *b = open_sized(128 * MIB, &o);
    assert_false(o.ok);
    assert_string_equal(buffer_word(b), "ShmShort");
    assert_non_null(strstr(o.why.text, "128M wanted"));
    assert_non_null(strstr(o.why.text, "64M available"));
    assert_int_equal(access(buffer_path(b), F_OK), -1);
    buffer_destroy(b, true);

    b = open_sized(48 * MIB, &o);                        /* somebody else fills the rest: every page is ours already */
    assert_true(o.ok);
    char *other = mem_printf("%s/other", shm), *junk = mem_zalloc(MIB);
    int fd = open(other, O_WRONLY | O_CREAT, 0600);
    while (write(fd, junk, MIB) > 0)
        ;
    assert_int_equal(errno, ENOSPC);
    close(fd);
    for (uint64_t at = 0; at < 48 * MIB; at += 4096)
        memset(buffer_at(b, at), 7, 64);
    unlink(other);
    buffer_destroy(b, true);
    free(other);
    free(junk);
    umount(shm);
}

int main(void)
{
#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        here(a_new_buffer_is_reserved_and_its_head_says_whose_it_is),
        here(another_size_keeps_the_file_and_what_is_in_it),
        here(a_size_that_has_no_room_leaves_the_old_one),
        here(a_buffer_whose_worker_crashed_is_adopted),
        here(another_size_is_taken_over_in_place),
        here(a_second_worker_is_refused_and_the_first_keeps_its_file),
        here(a_foreign_file_under_our_name_is_left_alone),
        here(b61_left_overs_under_other_names_are_removed_and_counted),
        here(b60_a_folder_that_is_too_small_is_refused_with_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
