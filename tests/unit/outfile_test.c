/* outfile_test.c - files of results: written under the attempt's name, published once and never over another; a full disk leaves nothing */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>
#include <cmocka.h>

#include "crash.h"
#include "deliver.h"
#include "file.h"
#include "mem.h"
#include "worker_help.h"

static char dir[64];
static dev_t disk;
static const struct fence first = { 3, 1 }, second = { 3, 2 };
static const struct tf_name ours = { .job = 7, .id = 1 }, others = { .job = 8, .id = 1 };

static int setup(void **unused)
{
    (void)unused;
    snprintf(dir, sizeof dir, "/tmp/outfile_test.XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **unused)
{
    (void)unused;
    char *cmd = mem_printf("rm -rf '%s'", dir);
    int rc = system(cmd);
    free(cmd);
    return rc;
}

static struct output output(const char *stage, const char *text)
{
    struct output o = { (char *)stage, memfd_create("o", MFD_CLOEXEC), strlen(text), 1, NULL, (char *)"{\"job\": 7, \"tf\": 1}" };
    assert_int_equal(write(o.fd, text, strlen(text)), strlen(text));
    o.digest = mem_printf("%016" PRIx64, (uint64_t)XXH3_64bits(text, strlen(text)));
    return o;
}

static void output_free(struct output *o)
{
    close(o->fd);
    free(o->digest);
}

static void write_as(struct fence f, const char *stem, const char *text)
{
    struct output o = output("digits", text);
    struct err e;
    assert_int_equal(deliver_write(dir, stem, ours, f, &o, 1, &disk, &e), DELIVER_OK);
    output_free(&o);
}

static void assert_folder(const char *sub, const char *wanted)
{
    char *path = mem_printf("%s/%s", dir, sub), *names = list_folder(path);
    assert_string_equal(names, wanted);
    free(names);
    free(path);
}

static void assert_content(const char *name, const char *wanted)
{
    char *path = mem_printf("%s/%s", dir, name);
    size_t size;
    struct err e;
    char *text = file_read(path, 1000, &size, &e);
    assert_non_null(text);
    assert_string_equal(text, wanted);
    free(text);
    free(path);
}

/* The rights to the folder went between the final names and the removal of the others: it is published all the same, and that something stays is said. */
static void what_cannot_be_tidied_is_published_all_the_same(void **unused)
{
    (void)unused;
    char *stubborn = mem_printf("%s/a.digits.a2-9-j7", dir);     /* no right to remove it, here: it is a folder */
    struct err e;

    assert_int_equal(mkdir(stubborn, 0755), 0);
    write_as(first, "a", "hello");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_LEFT);
    assert_content("a.digits", "hello");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_LEFT);
    assert_int_equal(rmdir(stubborn), 0);
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
    free(stubborn);
}

static void written_then_published_once(void **unused)
{
    (void)unused;
    struct err e;

    write_as(first, "7/tf-1", "hello");
    assert_folder("7", "tf-1.digits.a3-1-j7 tf-1.digits.json.a3-1-j7");
    assert_int_equal(deliver_publish(dir, "7/tf-1", ours, first, 0, &e), DELIVER_OK);
    assert_folder("7", "tf-1.digits tf-1.digits.json");
    assert_content("7/tf-1.digits", "hello");
    assert_int_equal(deliver_publish(dir, "7/tf-1", ours, first, 0, &e), DELIVER_OK);     /* redone after a restart */
    write_as(second, "7/tf-1", "hello");                                        /* the same bytes by another try */
    assert_int_equal(deliver_publish(dir, "7/tf-1", ours, second, 0, &e), DELIVER_OK);
    assert_folder("7", "tf-1.digits tf-1.digits.json");
}

static void other_bytes_are_never_replaced(void **unused)
{
    (void)unused;
    struct err e;

    write_as(first, "a", "hello");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    write_as(second, "a", "hellO");
    assert_int_equal(deliver_publish(dir, "a", ours, second, 0, &e), DELIVER_TAKEN);
    assert_non_null(strstr(e.text, "a.digits"));
    assert_content("a.digits", "hello");
    assert_int_equal(deliver_remove(dir, "a", ours, second, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
}

/* What tries left whose workers died goes with the publishing: of this TF, and of what was published alone. */
static void what_other_tries_left_goes_once_one_is_published(void **unused)
{
    (void)unused;
    static const char *const left[] = { "a.digits.a2-9-j7", "a.digits.json.a4-1-j7", "a.clusters.a3-2-j7", "a.digits.a3-1-j8", "a.digits.a3-1-r7", "a.digits.a2-9", "a.digits.a3-2", "a.digits.a10-11", "a.digits.a3-3", "a.digits.json.a3-3",       /* these */
                                        "a.digits.a3-4", "a.digits.json.a3-4", "a.clusters.a3-2", "a.digits.x", "a.digits.a3-", "a.digits.a-1", "a.digits.a3-1x", "a.b.digits.a3-2", "ab.digits.a3-2",
                                        "a.a3-2" };
    struct err e;

    for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
        char *path = mem_printf("%s/%s", dir, left[i]);
        const char *text = strstr(left[i], "json.a3-3") ? "{\"job\": 7, \"tf\": 1}" : strstr(left[i], "json.a3-4") ? "{\"job\": 8, \"tf\": 1}" : "half";
        assert_int_equal(file_replace(path, text, strlen(text), 0644, &e), 0);
        free(path);
    }
    write_as(first, "a", "hello");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    assert_folder("", "a.a3-2 a.b.digits.a3-2 a.clusters.a3-2 a.digits a.digits.a-1 a.digits.a3- a.digits.a3-1-j8 a.digits.a3-1-r7 a.digits.a3-1x a.digits.a3-4 a.digits.json a.digits.json.a3-4 a.digits.x "
                      "ab.digits.a3-2");
    assert_content("a.digits", "hello");
}

/* The same bytes of another job are no result of ours, before and after they were written; a file without provenance is nobody's. */
static void what_another_made_never_counts_as_ours(void **unused)
{
    (void)unused;
    struct output o = output("digits", "hello");
    char *alone = mem_printf("%s/b.digits", dir);
    struct err e;

    write_as(first, "a", "hello");
    write_as(second, "a", "hello");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    assert_int_equal(deliver_publish(dir, "a", others, second, 0, &e), DELIVER_TAKEN);
    assert_non_null(strstr(e.text, "a.digits is there already"));
    assert_int_equal(deliver_publish(dir, "a", others, first, 0, &e), DELIVER_TAKEN);       /* nor when nothing of the try is there any more */
    assert_int_equal(deliver_write(dir, "a", others, first, &o, 1, &disk, &e), DELIVER_TAKEN);
    assert_folder("", "a.digits a.digits.json");
    assert_int_equal(deliver_write(dir, "a", ours, first, &o, 1, &disk, &e), DELIVER_OK);       /* this very TF once more */
    assert_int_equal(file_replace(alone, "hello", 5, 0644, &e), 0);
    assert_int_equal(deliver_write(dir, "b", ours, first, &o, 1, &disk, &e), DELIVER_TAKEN);
    assert_content("b.digits", "hello");
    free(alone);
    output_free(&o);
}

/* Under one name two jobs that came to the folder by two paths would write into one file. */
static void tries_of_two_jobs_have_names_of_their_own(void **unused)
{
    (void)unused;
    struct output o = output("digits", "theirs");
    struct err e;

    o.json = (char *)"{\"job\": 8, \"tf\": 1}";
    write_as(first, "a", "hello");
    assert_int_equal(deliver_write(dir, "a", others, first, &o, 1, &disk, &e), DELIVER_OK);
    assert_folder("", "a.digits.a3-1-j7 a.digits.a3-1-j8 a.digits.json.a3-1-j7 a.digits.json.a3-1-j8");
    assert_int_equal(deliver_publish(dir, "a", others, first, 0, &e), DELIVER_OK);
    assert_content("a.digits", "theirs");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_TAKEN);
    assert_int_equal(deliver_remove(dir, "a", ours, first, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
    output_free(&o);
}

static void put(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    struct err e;

    assert_int_equal(file_replace(path, text, strlen(text), 0644, &e), 0);
    free(path);
}

/* Its names do not say whose they are; what it wrote for another job is left alone. */
static void what_a_former_release_wrote_is_published_and_removed(void **unused)
{
    (void)unused;
    struct err e;

    put("a.digits.a3-1", "hello");
    put("a.digits.json.a3-1", "{\"job\": 7, \"tf\": 1}");
    assert_int_equal(deliver_publish(dir, "a", others, first, 0, &e), DELIVER_NEVER);
    assert_int_equal(deliver_remove(dir, "a", others, first, &e), DELIVER_OK);
    assert_folder("", "a.digits.a3-1 a.digits.json.a3-1");
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
    put("b.digits.a3-2", "hello");
    put("b.digits.json.a3-2", "{\"job\": 7, \"tf\": 1}");
    put("b.clusters.a3-2", "half");
    assert_int_equal(deliver_remove(dir, "b", ours, second, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
}

/* Once a job is over nothing but results is there of it, in the folders of its reruns too. */
static void what_a_job_left_is_swept(void **unused)
{
    (void)unused;
    char *rerun = mem_printf("%s/rerun-2", dir), *other = mem_printf("%s/rerun-x", dir);
    struct err e;

    assert_int_equal(mkdir(rerun, 0755), 0);
    assert_int_equal(mkdir(other, 0755), 0);
    put("a.0.digits.a3-1-j7", "half");
    put("b.0.clusters.json.a12-40-j7", "half");
    put("rerun-2/a.0.digits.a4-2-j7", "half");
    put("rerun-x/a.0.digits.a4-2-j7", "not ours");
    put("a.0.digits.a3-1-j77", "of another job");
    put("a.0.digits.a3-1-r7", "of a run");
    put("a.0.digits", "a result");
    put("a.0.digits.json", "{\"job\": 7, \"tf\": 0}");
    put("c.0.digits.a3-1", "whole, of a former release");
    put("c.0.digits.json.a3-1", "{\"job\": 7, \"tf\": 2}");
    put("d.0.digits.a3-1", "nobody knows whose");
    assert_int_equal(deliver_sweep(dir, 7, &e), 0);
    assert_folder("rerun-2", "");
    assert_folder("rerun-x", "a.0.digits.a4-2-j7");
    char *names = list_folder(dir);
    assert_non_null(strstr(names, "a.0.digits a.0.digits.a3-1-j77 a.0.digits.a3-1-r7 a.0.digits.json"));
    assert_non_null(strstr(names, "d.0.digits.a3-1"));
    assert_null(strstr(names, "-j7 "));
    assert_int_equal(deliver_sweep("/no/such/folder", 7, &e), 0);
    free(names);
    free(rerun);
    free(other);
}

/* Two outputs that belong together, as the worker's provenance says it. */
static void write_two(struct fence f, const char *stem)
{
    struct output o[2] = { output("digits", "hello"), output("clusters", "small") };
    struct err e;

    o[0].json = (char *)"{\"job\": 7, \"tf\": 1, \"size\": 5, \"outputs\": [\"digits\", \"clusters\"]}";
    o[1].json = (char *)"{\"job\": 7, \"tf\": 1, \"size\": 5, \"outputs\": [\"digits\", \"clusters\"]}";
    assert_int_equal(deliver_write(dir, stem, ours, f, o, 2, &disk, &e), DELIVER_OK);
    output_free(&o[0]);
    output_free(&o[1]);
}

static void drop(const char *name)
{
    char *path = mem_printf("%s/%s", dir, name);

    assert_int_equal(unlink(path), 0);
    free(path);
}

/* Somebody tidies up temporary files: a result of which one file is missing gets no final name at all. */
static void what_is_published_is_all_that_was_delivered(void **unused)
{
    (void)unused;
    static const char *const one[] = { "digits", "digits.json", "clusters", "clusters.json" };
    struct err e;

    for (unsigned gone = 1; gone < 16; gone++) {
        write_two(first, "a");
        for (unsigned i = 0; i < ARRAY_LEN(one); i++) {
            char *name = mem_printf("a.%s.a3-1-j7", one[i]);
            if (gone & (1u << i))
                drop(name);
            free(name);
        }
        assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_NEVER);
        assert_int_equal(e.code, ERR_NOT_FOUND);
        assert_int_equal(deliver_remove(dir, "a", ours, first, &e), DELIVER_OK);
        assert_folder("", "");
    }
    write_two(second, "a");
    assert_int_equal(deliver_publish(dir, "a", ours, second, 0, &e), DELIVER_OK);
    assert_folder("", "a.clusters a.clusters.json a.digits a.digits.json");
    for (unsigned i = 0; i < ARRAY_LEN(one); i++) {          /* a verdict that comes again does not take a part for the whole */
        char *name = mem_printf("a.%s", one[i]), *from = mem_printf("%s/%s", dir, name), *to = mem_printf("%s/kept", dir);
        assert_int_equal(deliver_publish(dir, "a", ours, second, 0, &e), DELIVER_OK);
        assert_int_equal(rename(from, to), 0);
        assert_int_not_equal(deliver_publish(dir, "a", ours, second, 0, &e), DELIVER_OK);
        assert_int_equal(rename(to, from), 0);
        free(name);
        free(from);
        free(to);
    }
}

static void a_file_that_was_cut_is_not_published(void **unused)
{
    (void)unused;
    char *path = mem_printf("%s/a.digits.a3-1-j7", dir);
    struct err e;

    write_two(first, "a");
    assert_int_equal(truncate(path, 2), 0);
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_NEVER);
    assert_non_null(strstr(e.text, "another size"));
    assert_int_equal(deliver_remove(dir, "a", ours, first, &e), DELIVER_OK);
    assert_folder("", "");
    free(path);
}

/* The name of the folder is given to another, or to none, when the n-th file or folder from now on reaches the disk. */
static int move_at, removes;
static void (*cover)(const char *folder);        /* instead: something is mounted over it */

static void move_folder(void)
{
    char *from = mem_printf("%s/out", dir), *to = mem_printf("%s/moved", dir);

    assert_int_equal(rename(from, to), 0);
    if (!removes)
        assert_int_equal(mkdir(from, 0755), 0);
    free(from);
    free(to);
}

int fsync(int fd)
{
    if (move_at > 0 && --move_at == 0) {
        if (cover != NULL)
            cover(dir);
        else
            move_folder();
    }
    return (int)syscall(SYS_fsync, fd);
}

static void a_folder_that_is_moved_takes_no_half_of_a_result_along(void **unused)
{
    (void)unused;
    struct output o[2] = { output("digits", "hello"), output("clusters", "small") };
    char *out = mem_printf("%s/out", dir), *moved = mem_printf("%s/moved", dir);
    struct err e;

    for (int i = 0; i < 2 * 5; i++) {                        /* two outputs with their .json, and the folder */
        move_at = i / 2 + 1;
        removes = i % 2;
        assert_int_equal(deliver_write(out, "a", ours, first, o, 2, &disk, &e), DELIVER_AGAIN_FAILING);
        assert_int_equal(move_at, 0);
        assert_non_null(strstr(e.text, "moved or removed"));
        assert_folder("moved", "");
        assert_int_equal(rmdir(moved), 0);
        assert_int_equal(deliver_write(out, "a", ours, first, o, 2, &disk, &e), DELIVER_OK);
        move_at = 1;
        assert_int_equal(deliver_publish(out, "a", ours, first, disk, &e), DELIVER_NEVER);
        assert_non_null(strstr(e.text, "moved or removed"));
        assert_folder("moved", "");
        assert_int_equal(rmdir(moved), 0);
        if (!removes)
            assert_folder("out", "");
    }
    removes = 1;
    assert_int_equal(deliver_write(out, "a", ours, second, o, 2, &disk, &e), DELIVER_OK);
    move_folder();                                           /* between the two */
    assert_int_equal(deliver_publish(out, "a", ours, second, disk, &e), DELIVER_NEVER);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    output_free(&o[0]);
    output_free(&o[1]);
    free(out);
    free(moved);
}

static bool own_mounts(void)
{
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

static void cover_with_tmpfs(const char *folder)
{
    assert_int_equal(mount("none", folder, "tmpfs", 0, "size=256k"), 0);
}

/* A file system whose server has died: ENOTCONN, whatever is asked. */
static void cover_with_the_dead(const char *folder)
{
    char options[80];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    assert_int_equal(mount("dead", folder, "fuse", 0, options), 0);
    close(fd);
}

/* B52: a file system comes over the folder, or the folder's goes, and comes back: no result is given up. */
static void a_disk_that_comes_back_is_waited_for(void **unused)
{
    (void)unused;
    void (*const covers[])(const char *) = { cover_with_tmpfs, cover_with_the_dead };
    struct err e;

    if (!own_mounts() || access("/dev/fuse", W_OK) < 0)
        skip();
    for (unsigned i = 0; i < ARRAY_LEN(covers); i++) {
        cover = covers[i];
        write_two(first, "sub/a");
        move_at = 1;                                         /* while it is published, after the names were given */
        assert_int_equal(deliver_publish(dir, "sub/a", ours, first, disk, &e), DELIVER_AGAIN_FAILING);
        assert_int_equal(move_at, 0);
        assert_int_equal(deliver_publish(dir, "sub/a", ours, first, disk, &e), DELIVER_AGAIN_FAILING);
        assert_int_equal(umount(dir), 0);
        assert_int_equal(deliver_publish(dir, "sub/a", ours, first, disk, &e), DELIVER_OK);
        assert_folder("sub", "a.clusters a.clusters.json a.digits a.digits.json");
        write_two(second, "sub/a");
        cover(dir);                                          /* between the two */
        assert_int_equal(deliver_publish(dir, "sub/a", ours, second, disk, &e), DELIVER_AGAIN_FAILING);
        assert_int_equal(umount(dir), 0);
        assert_int_equal(deliver_publish(dir, "sub/a", ours, second, disk, &e), DELIVER_OK);
        assert_folder("sub", "a.clusters a.clusters.json a.digits a.digits.json");
        struct output o = output("digits", "hello");         /* and while it is written */
        move_at = 1;
        assert_int_equal(deliver_write(dir, "b", ours, first, &o, 1, &disk, &e), DELIVER_AGAIN_FAILING);
        assert_int_equal(umount(dir), 0);
        assert_folder("", "sub");
        output_free(&o);
    }
    cover = NULL;
}

/* Not mounted for a while: the empty folder beneath says nothing. */
static void a_disk_that_is_not_mounted_is_waited_for(void **unused)
{
    (void)unused;
    static const char *const stem[] = { "a", "sub/a" };
    char *kept = mem_printf("%s-kept", dir);
    struct err e;

    if (!own_mounts())
        skip();
    assert_int_equal(mkdir(kept, 0755), 0);
    cover_with_tmpfs(dir);
    for (unsigned i = 0; i < ARRAY_LEN(stem); i++) {
        write_two(first, stem[i]);
        assert_int_equal(mount(dir, kept, NULL, MS_MOVE, NULL), 0);
        assert_int_equal(deliver_publish(dir, stem[i], ours, first, disk, &e), DELIVER_AGAIN_FAILING);
        assert_non_null(strstr(e.text, "not mounted"));
        assert_int_equal(mount(kept, dir, NULL, MS_MOVE, NULL), 0);
        assert_int_equal(deliver_publish(dir, stem[i], ours, first, disk, &e), DELIVER_OK);
    }
    assert_folder("sub", "a.clusters a.clusters.json a.digits a.digits.json");
    assert_int_equal(umount(dir), 0);
    assert_int_equal(rmdir(kept), 0);
    free(kept);
}

/* What cannot be opened for want of descriptors is not taken for another's, nor for gone. */
static void without_descriptors_nothing_is_given_up(void **unused)
{
    (void)unused;
    struct rlimit before, few;
    struct err e;
    int lowest = open("/dev/null", O_RDONLY | O_CLOEXEC);
    unsigned again = 0;

    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct output o = output("digits", "hello");             /* takes the lowest */
    write_as(first, "b", "hello");
    assert_int_equal(deliver_publish(dir, "b", ours, first, disk, &e), DELIVER_OK);
    for (unsigned spare = 0; spare < 5; spare++) {
        enum deliver_end end[3];
        write_two(first, "a");
        few = (struct rlimit){ (rlim_t)lowest + 1 + spare, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        end[0] = deliver_publish(dir, "a", ours, first, disk, &e);
        end[1] = deliver_publish(dir, "b", ours, second, disk, &e);          /* published before */
        end[2] = deliver_write(dir, "b", ours, second, &o, 1, &disk, &e);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        for (int i = 0; i < 3; i++) {
            assert_true(end[i] == DELIVER_OK || end[i] == DELIVER_AGAIN_FAILING);
            again += end[i] == DELIVER_AGAIN_FAILING;
        }
        assert_int_equal(deliver_publish(dir, "a", ours, first, disk, &e), DELIVER_OK);
    }
    assert_true(again > 3 && again < 15);
    output_free(&o);
}

/* As a crash between two names leaves it. */
static void half_published_is_finished(void **unused)
{
    (void)unused;
    char *from = mem_printf("%s/a.digits.a3-1-j7", dir), *to = mem_printf("%s/a.digits", dir);
    struct err e;

    write_as(first, "a", "hello");
    assert_int_equal(link(from, to), 0);
    assert_int_equal(deliver_publish(dir, "a", ours, first, 0, &e), DELIVER_OK);
    assert_folder("", "a.digits a.digits.json");
    free(from);
    free(to);
}

static void nothing_to_publish_is_said(void **unused)
{
    (void)unused;
    struct err e;
    assert_int_equal(deliver_publish(dir, "gone", ours, first, 0, &e), DELIVER_NEVER);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(deliver_remove(dir, "no/such/folder", ours, first, &e), DELIVER_OK);
}

/* File f with TF 1 has the stem f.1; a file f.1 with TF 2 the stem f.1.2. */
static void a_stem_that_begins_alike_is_another(void **unused)
{
    (void)unused;
    struct err e;

    write_as(first, "f.1", "one");
    write_as(first, "f.1.2", "two");
    write_as(first, "f.10", "ten");
    assert_int_equal(deliver_publish(dir, "f.1", ours, first, 0, &e), DELIVER_OK);
    assert_int_equal(deliver_remove(dir, "f.1", ours, first, &e), DELIVER_OK);
    assert_folder("", "f.1.2.digits.a3-1-j7 f.1.2.digits.json.a3-1-j7 f.1.digits f.1.digits.json f.10.digits.a3-1-j7 f.10.digits.json.a3-1-j7");
}

static void stems_that_lead_elsewhere_are_refused(void **unused)
{
    (void)unused;
    static const char *const bad[] = { "", "/etc/x", "../x", "a/../x", "a//b", "a/", ".", "a/." };
    static const char *const good[] = { "x", "7/tf-1", "a.b/..c", "..." };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(deliver_stem_ok(bad[i]));
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(deliver_stem_ok(good[i]));
    assert_false(deliver_stem_ok(NULL));
}

static void a_digest_that_does_not_fit_the_bytes_leaves_no_file(void **unused)
{
    (void)unused;
    struct output o = output("digits", "hello");
    struct err e;

    o.digest[0] = o.digest[0] == '0' ? '1' : '0';
    assert_int_equal(deliver_write(dir, "a", ours, first, &o, 1, &disk, &e), DELIVER_CORRUPT);
    assert_non_null(strstr(e.text, "digest"));
    assert_folder("", "");
    output_free(&o);
}

static void a_full_disk_is_tried_again_and_leaves_nothing(void **unused)
{
    (void)unused;
    struct err e;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", dir, "tmpfs", 0, "size=256k") < 0)
        skip();
    char *big = mem_zalloc(300000);
    memset(big, 'x', 299999);
    struct output o[2] = { output("digits", "small"), output("clusters", big) };
    assert_int_equal(deliver_write(dir, "sub/a", ours, first, o, 2, &disk, &e), DELIVER_AGAIN_FULL);
    assert_non_null(strstr(e.text, "No space left"));
    assert_folder("sub", "");
    assert_int_equal(mount("none", dir, NULL, MS_REMOUNT, "size=1m"), 0);
    assert_int_equal(deliver_write(dir, "sub/a", ours, first, o, 2, &disk, &e), DELIVER_OK);
    assert_folder("sub", "a.clusters.a3-1-j7 a.clusters.json.a3-1-j7 a.digits.a3-1-j7 a.digits.json.a3-1-j7");
    output_free(&o[0]);
    output_free(&o[1]);
    free(big);
    umount(dir);
}

static off_t size_of(const char *name)
{
    char *path = mem_printf("%s/%s", dir, name);
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    free(path);
    return st.st_size;
}

/* B24: killed by the kernel at the byte in the middle of a result: what is there has the try's own name, and the next try's is whole. */
static void B24_killed_at_half_of_a_result(void **unused)
{
    (void)unused;
    enum { SIZE = 1000000 };
    char *text = mem_zalloc(SIZE + 1);
    struct err e;
    int status;

    for (int i = 0; i < SIZE; i++)
        text[i] = (char)('a' + i % 23);
    struct output o[2] = { output("digits", text), output("clusters", "small") };
    pid_t pid = fork();
    if (pid == 0) {
        const struct rlimit half = { SIZE / 2, SIZE / 2 }, no_core = { 0, 0 };
        signal(SIGXFSZ, SIG_DFL);
        if (setrlimit(RLIMIT_CORE, &no_core) == 0 && setrlimit(RLIMIT_FSIZE, &half) == 0)
            deliver_write(dir, "a", ours, first, o, 2, &disk, &e);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    assert_folder("", "a.digits.a3-1-j7");
    assert_int_equal(size_of("a.digits.a3-1-j7"), SIZE / 2);
    assert_int_equal(deliver_write(dir, "a", ours, second, o, 2, &disk, &e), DELIVER_OK);
    assert_folder("", "a.clusters.a3-2-j7 a.clusters.json.a3-2-j7 a.digits.a3-1-j7 a.digits.a3-2-j7 a.digits.json.a3-2-j7");       /* not before it is accepted */
    assert_int_equal(deliver_publish(dir, "a", ours, second, 0, &e), DELIVER_OK);
    assert_folder("", "a.clusters a.clusters.json a.digits a.digits.json");          /* and the half one is gone */
    assert_int_equal(size_of("a.digits"), SIZE);
    output_free(&o[0]);
    output_free(&o[1]);
    free(text);
}

static void a_folder_that_cannot_be_made_is_no_matter_of_time(void **unused)
{
    (void)unused;
    struct output o = output("digits", "hello");
    char *file = mem_printf("%s/file", dir);
    struct err e;

    assert_int_equal(file_replace(file, "x", 1, 0644, &e), 0);
    assert_int_equal(deliver_write(file, "sub/a", ours, first, &o, 1, &disk, &e), DELIVER_NEVER);
    free(file);
    output_free(&o);
}

static void crash_folders_keep_bytes_up_to_the_limit_of_all(void **unused)
{
    (void)unused;
    char data[1000] = "tf";
    struct crash_seg seg[2] = { { data, 600 }, { data + 600, 400 } };
    struct err e;
    bool kept;

    for (int i = 0; i < 3; i++) {
        char *folder = mem_printf("%s/n1-%d", dir, i);
        assert_int_equal(crash_write(dir, folder, 2500, seg, 2, "{\"a\": 1}", "last words", &kept, &e), 0);
        assert_int_equal(kept, i < 2);
        free(folder);
    }
    assert_folder("", "n1-0 n1-1 n1-2");
    assert_folder("n1-0", "crash.json log tf");
    assert_folder("n1-2", "crash.json log");
    assert_content("n1-2/log", "last words");
    char *tf = mem_printf("%s/n1-1/tf", dir);
    struct stat st;
    assert_int_equal(stat(tf, &st), 0);
    assert_int_equal(st.st_size, 1000);
    free(tf);
}

int main(void)
{
#define here(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
    const struct CMUnitTest tests[] = {
        here(written_then_published_once),
        here(what_cannot_be_tidied_is_published_all_the_same),
        here(other_bytes_are_never_replaced),
        here(what_other_tries_left_goes_once_one_is_published),
        here(what_another_made_never_counts_as_ours),
        here(tries_of_two_jobs_have_names_of_their_own),
        here(what_a_former_release_wrote_is_published_and_removed),
        here(what_a_job_left_is_swept),
        here(what_is_published_is_all_that_was_delivered),
        here(a_file_that_was_cut_is_not_published),
        here(a_folder_that_is_moved_takes_no_half_of_a_result_along),
        here(a_disk_that_comes_back_is_waited_for),
        here(a_disk_that_is_not_mounted_is_waited_for),
        here(without_descriptors_nothing_is_given_up),
        here(half_published_is_finished),
        here(nothing_to_publish_is_said),
        here(a_stem_that_begins_alike_is_another),
        here(stems_that_lead_elsewhere_are_refused),
        here(a_digest_that_does_not_fit_the_bytes_leaves_no_file),
        here(a_full_disk_is_tried_again_and_leaves_nothing),
        here(B24_killed_at_half_of_a_result),
        here(a_folder_that_cannot_be_made_is_no_matter_of_time),
        here(crash_folders_keep_bytes_up_to_the_limit_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
