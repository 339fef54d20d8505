/* room_test.c - how much memory a buffer may take: control groups of both versions from fixture trees */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "file.h"
#include "hugetlb.h"
#include "mem.h"
#include "room.h"

static char root[64];

static int tree_make(void **unused)
{
    (void)unused;
    snprintf(root, sizeof root, "/tmp/room_test.XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int tree_remove(void **unused)
{
    (void)unused;
    char *cmd = mem_printf("rm -rf '%s'", root);
    int rc = system(cmd);
    free(cmd);
    return rc;
}

static void put(const char *path, const char *text)
{
    char *name = mem_printf("%s%s", root, path), *slash;
    struct err e;

    slash = strrchr(name, '/');
    *slash = '\0';
    assert_int_equal(file_mkdirs(name, 0755, &e), 0);
    *slash = '/';
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    free(name);
}

static void version_2_takes_the_narrowest_group_on_the_way_up(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    put("/proc/self/cgroup", "0::/system.slice/worker.service\n");
    put("/sys/fs/cgroup/system.slice/worker.service/memory.max", "max\n");
    put("/sys/fs/cgroup/system.slice/worker.service/memory.current", "4096\n");
    put("/sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
    put("/sys/fs/cgroup/system.slice/memory.current", "268435456\n");
    put("/sys/fs/cgroup/system.slice/memory.stat", "anon 1\ninactive_file 67108864\nactive_file 5\n");
    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_int_equal(r.cgroup, 1073741824 - 268435456 + 67108864);
    assert_string_equal(r.cgroup_path, "/sys/fs/cgroup/system.slice");
}

static void version_1_has_its_own_files_and_its_own_no_limit(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    put("/proc/self/cgroup", "12:cpuset:/a\n4:cpu,memory:/job/7\n1:name=systemd:/x\n");
    put("/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/job/7/memory.usage_in_bytes", "1000\n");
    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_true(r.cgroup == ROOM_ANY);
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "500000\n");
    put("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "600000\n");
    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_int_equal(r.cgroup, 0);
}

static void both_versions_at_once_and_the_narrower_counts(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    put("/proc/self/cgroup", "4:memory:/j\n0::/u\n");
    put("/sys/fs/cgroup/memory/j/memory.limit_in_bytes", "1000000\n");
    put("/sys/fs/cgroup/memory/j/memory.usage_in_bytes", "0\n");
    put("/sys/fs/cgroup/unified/u/memory.max", "400000\n");
    put("/sys/fs/cgroup/unified/u/memory.current", "100000\n");
    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_int_equal(r.cgroup, 300000);
}

static void in_a_container_the_mounted_root_stands_for_the_group(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    put("/proc/self/cgroup", "0::/docker/0123\n");
    put("/sys/fs/cgroup/memory.max", "7000\n");
    put("/sys/fs/cgroup/memory.current", "3000\n");
    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_int_equal(r.cgroup, 4000);
}

static void nothing_there_is_no_limit_and_nonsense_is_an_error(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    assert_int_equal(room_cgroup(root, &r, &e), 0);
    assert_true(r.cgroup == ROOM_ANY);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "plenty\n");
    assert_int_equal(room_cgroup(root, &r, &e), -1);
    assert_non_null(strstr(e.text, "/sys/fs/cgroup/a/memory.max"));
    assert_non_null(strstr(e.text, "plenty"));
    put("/proc/self/cgroup", "what\n");
    assert_int_equal(room_cgroup(root, &r, &e), -1);
}

static void the_machine_is_read_below_the_same_root(void **unused)
{
    (void)unused;
    struct room r = { 0 };
    struct err e;

    put("/proc/meminfo", "MemTotal:       16384 kB\nMemAvailable:    8192 kB\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.memory, 8192 * 1024);
    assert_true(r.disk > 0);
}

static void the_refusal_names_wanted_available_and_the_narrowest(void **unused)
{
    (void)unused;
    struct room r = { .disk = 64 << 20, .file = ROOM_ANY, .memory = 1 << 30, .cgroup = ROOM_ANY, .locked = ROOM_ANY };
    struct err e;

    assert_int_equal(room_check(&r, "/shm", 64 << 20, 0, &e), 0);
    assert_int_equal(room_check(&r, "/shm", 128 << 20, 0, &e), -1);
    assert_int_equal(e.code, ERR_STATE);
    assert_string_equal(e.text, "128M wanted, 64M available in /shm");
    assert_int_equal(room_check(&r, "/shm", 128 << 20, 64 << 20, &e), 0);
    r.file = 1 << 20;
    assert_int_equal(room_check(&r, "/shm", 2 << 20, 2 << 20, &e), -1);
    assert_string_equal(e.text, "2M wanted, 1M allowed by the file size limit (ulimit -f)");
    r.cgroup = 4096;
    snprintf(r.cgroup_path, sizeof r.cgroup_path, "/g");
    assert_int_equal(room_check(&r, "/shm", 2 << 20, 0, &e), -1);
    assert_string_equal(e.text, "2M wanted, 4K left by the memory limit of control group /g");
}

static void locked_memory_is_a_bound_of_its_own(void **unused)
{
    struct room r = { .disk = ROOM_ANY, .file = ROOM_ANY, .memory = 1 << 30, .cgroup = ROOM_ANY, .locked = 8 << 20 };
    struct err e;

    (void)unused;
    assert_int_equal(room_check(&r, "/shm", 8 << 20, 0, &e), 0);
    assert_int_equal(room_check(&r, "/shm", 64 << 20, 64 << 20, &e), -1);
    assert_string_equal(e.text, "64M wanted, 8M allowed by the limit of locked memory (ulimit -l)");
}

static void with_the_capability_locked_memory_has_no_bound(void **unused)
{
    struct rlimit little = { 65536, 65536 }, before;
    struct room r = { 0 };
    struct err e;

    (void)unused;
    assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &before), 0);
    little.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &little), 0);
    put("/proc/self/status", "CapEff:\t0000000000000000\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.locked, 65536);
    put("/proc/self/status", "CapEff:\t0000000000004000\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_true(r.locked == ROOM_ANY);
    setrlimit(RLIMIT_MEMLOCK, &before);
}

static void b65_whether_a_folder_gives_huge_pages(void **unused)
{
    static const struct { const char *mount, *system; bool gives; } at[] = {
        { "rw",              "always within_size advise [never] deny force", false },
        { "rw,huge=always",  "always within_size advise [never] deny force", true },
        { "rw,huge=advise",  "always within_size [advise] never deny force", true },
        { "rw,huge=always",  "always within_size advise never [deny] force", false },
        { "rw,huge=never",   "[always] within_size advise never deny force", false },
        { "rw",              "always within_size advise never deny [force]", true },
    };
    char line[400];
    struct stat st;
    struct err e;

    (void)unused;
    assert_int_equal(stat("/tmp", &st), 0);
    assert_int_equal(room_check_huge("/tmp", root, 64 << 20, &e), -1);      /* nothing is known */
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        snprintf(line, sizeof line, "30 1 0:999 / /x rw - tmpfs t rw,huge=always\n31 1 %u:%u / /tmp rw - tmpfs tmpfs %s\n", major(st.st_dev), minor(st.st_dev),
                 at[i].mount);
        put("/proc/self/mountinfo", line);
        put("/sys/kernel/mm/transparent_hugepage/shmem_enabled", at[i].system);
        assert_int_equal(room_check_huge("/tmp", root, 64 << 20, &e), at[i].gives ? 0 : -1);
        if (!at[i].gives)
            assert_non_null(strstr(e.text, "64M in huge pages wanted, /tmp gives none"));
    }
}

/* A folder of type hugetlbfs, with so many pages left of those that its mount may have. */
static struct statfs fake_fs;
static int fake_statfs(const char *folder, struct statfs *fs)
{
    (void)folder;
    *fs = fake_fs;
    return 0;
}

static void pages_of(const char *free, const char *promised, const char *overcommit, const char *surplus)
{
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", free);
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", promised);
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages", overcommit);
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", surplus);
}

static void b65_on_hugetlbfs_free_huge_pages_count_and_no_other_memory(void **unused)
{
    const uint64_t M = 1 << 20;
    struct room r = { 0 };
    struct err e;

    (void)unused;
    fake_fs = (struct statfs){ .f_type = HUGETLBFS_MAGIC, .f_bsize = 2 << 20 };
    hugetlb_statfs = fake_statfs;
    put("/proc/meminfo", "MemAvailable: 100 kB\n");
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "4096\n");
    put("/sys/fs/cgroup/a/memory.current", "0\n");
    pages_of("40\n", "8\n", "0\n", "0\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.page, 2 * M);
    assert_int_equal(r.huge, 32 * 2 * M);                    /* what others reserved is not free */
    assert_true(r.disk == ROOM_ANY && r.memory == ROOM_ANY && r.locked == ROOM_ANY && r.cgroup == ROOM_ANY);
    assert_int_equal(room_check(&r, "/huge", 64 * M, 0, &e), 0);
    assert_int_equal(room_check(&r, "/huge", 66 * M, 2 * M, &e), 0);
    assert_int_equal(room_check(&r, "/huge", 66 * M, 0, &e), -1);
    assert_string_equal(e.text, "66M wanted, 64M free in huge pages of 2M");
    pages_of("4\n", "8\n", "10\n", "3\n");                   /* 7 may be made on demand */
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.huge, 7 * 2 * M);
    pages_of("100\n", "0\n", "0\n", "0\n");
    fake_fs.f_blocks = 50;                                   /* mounted with a size */
    fake_fs.f_bavail = 10;
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(room_check(&r, "/huge", 22 * M, 0, &e), -1);
    assert_string_equal(e.text, "22M wanted, 20M available in /huge");
    put("/sys/fs/cgroup/a/hugetlb.2MB.max", "8388608\n");
    put("/sys/fs/cgroup/a/hugetlb.2MB.current", "2097152\n");
    put("/sys/fs/cgroup/a/hugetlb.1GB.max", "0\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.cgroup, 6 * M);
    put("/proc/self/cgroup", "5:cpu,hugetlb:/b\n4:memory:/c\n");
    put("/sys/fs/cgroup/hugetlb/b/hugetlb.2MB.limit_in_bytes", "4194304\n");
    put("/sys/fs/cgroup/hugetlb/b/hugetlb.2MB.usage_in_bytes", "0\n");
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.cgroup, 4 * M);
    assert_int_equal(room_check_huge("/tmp", root, 64 << 20, &e), 0);
    fake_fs.f_type = TMPFS_MAGIC;
    assert_int_equal(room_measure("/tmp", root, &r, &e), 0);
    assert_int_equal(r.page, 0);
    assert_int_equal(r.memory, 100 * 1024);
    hugetlb_statfs = statfs;
}

int main(void)
{
#define in_a_tree(fn) cmocka_unit_test_setup_teardown(fn, tree_make, tree_remove)
    const struct CMUnitTest tests[] = {
        in_a_tree(version_2_takes_the_narrowest_group_on_the_way_up),
        in_a_tree(version_1_has_its_own_files_and_its_own_no_limit),
        in_a_tree(both_versions_at_once_and_the_narrower_counts),
        in_a_tree(in_a_container_the_mounted_root_stands_for_the_group),
        in_a_tree(nothing_there_is_no_limit_and_nonsense_is_an_error),
        in_a_tree(the_machine_is_read_below_the_same_root),
        cmocka_unit_test(locked_memory_is_a_bound_of_its_own),
        in_a_tree(with_the_capability_locked_memory_has_no_bound),
        in_a_tree(b65_whether_a_folder_gives_huge_pages),
        in_a_tree(b65_on_hugetlbfs_free_huge_pages_count_and_no_other_memory),
        cmocka_unit_test(the_refusal_names_wanted_available_and_the_narrowest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
