/* local_farm_test.c - the folder of a local farm: where it is found, who is recorded, how it ends */
#include "config.h"

#include "call.h"
#include "clock.h"
#include "farm.h"
#include "launch.h"
#include "mem.h"
#include "str.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-local-farm-test-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static void shell(char *command)
{
    assert_int_equal(system(command), 0);
    free(command);
}

static int remove_dir(void **state)
{
    (void)state;
    shell(mem_printf("rm -rf '%s'", dir));
    return 0;
}

static char *in_dir(const char *name) { return mem_printf("%s/%s", dir, name); }

static void touch_farm(const char *path)
{
    struct err e;
    char *conf = mem_printf("%s/sluice.conf", path);

    assert_int_equal(file_mkdirs(path, 0755, &e), 0);
    assert_int_equal(file_replace(conf, "", 0, 0644, &e), 0);
    free(conf);
}

static void a_farm_is_found_from_below(void **state)
{
    struct err e;
    char *farm = in_dir("a/sluice-farm"), *deep = in_dir("a/b/c/d"), *near = in_dir("a/b/sluice-farm"), *other = in_dir("x"), *linked = in_dir("x/sluice-farm"), *found;

    (void)state;
    assert_int_equal(file_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(file_mkdirs(other, 0755, &e), 0);
    assert_null(farm_search(other));
    touch_farm(farm);
    found = farm_search(deep);
    assert_string_equal(found, farm);
    free(found);
    assert_int_equal(file_mkdirs(near, 0755, &e), 0);       /* a folder of that name without a farm */
    found = farm_search(deep);
    assert_string_equal(found, farm);
    free(found);
    touch_farm(near);
    found = farm_search(deep);
    assert_string_equal(found, near);
    free(found);
    assert_null(farm_search("/"));
    assert_int_equal(symlink(farm, linked), 0);             /* its disk may be another one */
    found = farm_search(other);
    assert_string_equal(found, farm);
    free(found);
    if (geteuid() == 0) {
        assert_int_equal(lchown(linked, 65534, 65534), 0);
        assert_null(farm_search(other));
    }
    free(linked);
    free(farm);
    free(deep);
    free(near);
    free(other);
}

static void a_farm_of_another_user_is_passed_by(void **state)
{
    char *farm = in_dir("u/sluice-farm"), *deep = in_dir("u/v/w"), *theirs = in_dir("u/v/sluice-farm"), *conf = in_dir("u/v/sluice-farm/sluice.conf"), *found;
    struct farm *opened;
    struct err e;

    (void)state;
    if (geteuid() != 0)
        skip();                 /* only root can make a folder of somebody else */
    touch_farm(farm);
    touch_farm(theirs);
    assert_int_equal(file_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(chown(conf, 65534, 65534), 0);
    found = farm_search(deep);
    assert_string_equal(found, farm);
    free(found);
    assert_int_equal(chown(theirs, 65534, 65534), 0);
    found = farm_search(deep);
    assert_string_equal(found, farm);
    free(found);
    opened = farm_open(theirs, true, 1, &e);
    assert_null(opened);
    assert_int_equal(e.code, ERR_PERMISSION);
    free(farm);
    free(deep);
    free(theirs);
    free(conf);
}

static void the_address_follows_its_order(void **state)
{
    struct context ctx = { 0 };
    char *here = getcwd(NULL, 0), *deep = in_dir("o/p"), *farm = in_dir("o/sluice-farm"), *want;
    struct err e;

    (void)state;
    assert_int_equal(file_mkdirs(deep, 0755, &e), 0);
    assert_int_equal(chdir(deep), 0);
    unsetenv("SLUICE_SOCKET");
    assert_string_equal(call_address(&ctx), "unix:/run/sluice/sluiced.sock");
    free(ctx.address);
    touch_farm(farm);
    ctx.address = NULL;
    want = mem_printf("unix:%s/sluiced.sock", farm);
    assert_string_equal(call_address(&ctx), want);
    free(want);
    free(ctx.address);
    setenv("SLUICE_SOCKET", "rel.sock", 1);
    ctx.address = NULL;
    want = mem_printf("unix:%s/rel.sock", deep);
    assert_string_equal(call_address(&ctx), want);
    assert_string_equal(call_address(&ctx), want);          /* and stays */
    free(want);
    free(ctx.address);
    ctx.address = mem_strdup("/given.sock");
    assert_string_equal(call_address(&ctx), "unix:/given.sock");
    free(ctx.address);
    ctx.address = mem_strdup("host:7000");
    ctx.tcp = true;
    assert_string_equal(call_address(&ctx), "host:7000");
    free(ctx.address);
    unsetenv("SLUICE_SOCKET");
    assert_int_equal(chdir(here), 0);
    free(here);
    free(deep);
    free(farm);
}

static void one_at_a_time_holds_the_folder(void **state)
{
    char *path = in_dir("lock");
    struct err e;
    struct farm *f = farm_open(path, true, 1, &e), *second;
    int64_t start = clock_mono_ns();

    (void)state;
    assert_non_null(f);
    second = farm_open(path, true, 0.2, &e);
    assert_null(second);
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_true(clock_mono_ns() - start < 20 * CLOCK_SECOND);
    farm_close(f);
    f = farm_open(path, false, 1, &e);
    assert_non_null(f);
    farm_close(f);
    assert_null(farm_open("/nowhere/at/all", false, 1, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    free(path);
}

/* A daemon that says ready and stays, with a child that would outlive it. */
static const char *const daemon_argv[] = { "/bin/sh", "-c", "echo ready >&3; exec 3>&-; sleep 600 & exec sleep 600", NULL };

static void logs_of(const char *path)
{
    struct err e;
    char *log = mem_printf("%s/log", path);

    assert_int_equal(file_mkdirs(log, 0755, &e), 0);
    free(log);
}

static void what_was_started_is_known_and_ends_with_its_children(void **state)
{
    char *path = in_dir("run"), *list = in_dir("run/started"), *record = in_dir("run/shm-dir");
    struct err e = { 0 };
    struct farm *f = farm_open(path, true, 1, &e);
    struct launch *l = mem_zalloc(2 * sizeof(*l));
    struct file_owner owner;
    struct stat st;
    unsigned ended;
    char *shm;

    (void)state;
    assert_non_null(f);
    logs_of(path);
    assert_int_equal(farm_make_shm(f, "/dev/shm", &e), 0);
    assert_int_equal(stat(f->shm_dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    if (launch_start(f, "one", daemon_argv, &l[0], &e) < 0 || launch_start(f, "sluiced", daemon_argv, &l[1], &e) < 0 || launch_wait(l, 2, 20, &e) < 0)
        fail_msg("%s", e.text);
    launch_free(l, 2);
    assert_non_null(farm_running(f, "one"));
    assert_null(farm_running(f, "two"));
    owner = farm_running(f, "one")->owner;
    farm_close(f);
    f = farm_open(path, false, 1, &e);                      /* another program reads the list */
    assert_non_null(f);
    assert_non_null(farm_running(f, "one"));
    assert_int_equal(farm_running(f, "one")->owner.pid, owner.pid);
    shm = mem_strdup(f->shm_dir);
    assert_int_equal(kill(owner.pid, SIGKILL), 0);          /* its child is an orphan now, in the same session */
    assert_int_equal(waitpid(owner.pid, NULL, 0), owner.pid);
    assert_int_equal(farm_end(f, 5, &ended, &e), 0);
    assert_int_equal(ended, 1);
    assert_int_equal(access(shm, F_OK), -1);
    assert_int_equal(access(list, F_OK), -1);
    assert_int_equal(access(record, F_OK), -1);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    assert_int_equal(farm_end(f, 5, &ended, &e), 0);
    assert_int_equal(ended, 0);
    farm_close(f);
    free(shm);
    free(path);
    free(list);
    free(record);
}

static void a_daemon_that_hears_no_term_is_killed(void **state)
{
    static const char *const deaf[] = { "/bin/sh", "-c", "trap '' TERM; echo ready >&3; while :; do sleep 1; done", NULL };
    char *path = in_dir("deaf");
    struct err e = { 0 };
    struct farm *f = farm_open(path, true, 1, &e);
    struct launch *l = mem_zalloc(sizeof(*l));
    unsigned ended;

    (void)state;
    assert_non_null(f);
    logs_of(path);
    if (launch_start(f, "deaf", deaf, l, &e) < 0 || launch_wait(l, 1, 20, &e) < 0)
        fail_msg("%s", e.text);
    launch_free(l, 1);
    assert_int_equal(kill(farm_running(f, "deaf")->owner.pid, SIGSTOP), 0);
    assert_int_equal(farm_end(f, 0.2, &ended, &e), 0);
    assert_int_equal(ended, 1);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    farm_close(f);
    free(path);
}

static void who_cannot_start_says_why(void **state)
{
    static const char *const no[] = { "/bin/sh", "-c", "echo 'the disk is full' >&3", NULL };
    static const char *const mute[] = { "/bin/sh", "-c", "exit 3", NULL };
    static const char *const none[] = { "/nowhere/sluiced", NULL };
    static const char *const slow[] = { "/bin/sh", "-c", "exec sleep 600", NULL };
    static const struct { const char *const *argv; const char *words; } cases[] = {
        { no, "x did not start: the disk is full" }, { mute, "ended without a word" }, { none, "No such file" }, { slow, "not ready within" },
    };
    char *path = in_dir("no");
    struct err e = { 0 };
    struct farm *f = farm_open(path, true, 1, &e);
    unsigned ended;

    (void)state;
    assert_non_null(f);
    logs_of(path);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct launch *l = mem_zalloc(sizeof(*l));

        assert_int_equal(launch_start(f, "x", cases[i].argv, l, &e), 0);
        assert_int_equal(launch_wait(l, 1, cases[i].argv == slow ? 0.3 : 20, &e), -1);
        if (strstr(e.text, cases[i].words) == NULL)
            fail_msg("'%s', wanted '%s'", e.text, cases[i].words);
        launch_free(l, 1);
    }
    assert_int_equal(farm_end(f, 5, &ended, &e), 0);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    farm_close(f);
    free(path);
}

static void a_copied_folder_is_another_farm(void **state)
{
    char *path = in_dir("orig"), *copy = in_dir("copy");
    struct err e = { 0 };
    struct farm *f = farm_open(path, true, 1, &e), *g;
    struct launch *l = mem_zalloc(sizeof(*l));
    unsigned ended;

    (void)state;
    assert_non_null(f);
    logs_of(path);
    assert_int_equal(farm_make_shm(f, "/dev/shm", &e), 0);
    if (launch_start(f, "one", daemon_argv, l, &e) < 0 || launch_wait(l, 1, 20, &e) < 0)
        fail_msg("%s", e.text);
    launch_free(l, 1);
    farm_close(f);
    f = farm_open(path, false, 1, &e);
    assert_non_null(f);
    shell(mem_printf("cp -a '%s' '%s'", path, copy));
    g = farm_open(copy, false, 1, &e);
    assert_non_null(g);
    assert_null(farm_running(g, "one"));
    assert_string_not_equal(g->shm_dir, f->shm_dir);
    assert_int_equal(farm_end(g, 1, &ended, &e), 0);
    assert_int_equal(ended, 0);
    assert_non_null(farm_running(f, "one"));                /* untouched */
    assert_int_equal(access(f->shm_dir, F_OK), 0);
    farm_close(g);
    assert_int_equal(farm_end(f, 5, &ended, &e), 0);
    while (waitpid(-1, NULL, 0) > 0)
        ;
    farm_close(f);
    free(path);
    free(copy);
}

static void a_strange_buffer_folder_is_refused(void **state)
{
    char *path = in_dir("strange");
    struct err e = { 0 };
    struct farm *f = farm_open(path, true, 1, &e);

    (void)state;
    assert_non_null(f);
    assert_int_equal(symlink("/tmp", f->shm_dir), 0);
    assert_int_equal(farm_make_shm(f, "/dev/shm", &e), -1);
    assert_int_equal(e.code, ERR_PERMISSION);
    assert_int_equal(unlink(f->shm_dir), 0);
    assert_int_equal(mkdir(f->shm_dir, 0755), 0);
    chmod(f->shm_dir, 0755);
    assert_int_equal(farm_make_shm(f, "/dev/shm", &e), -1);
    assert_int_equal(rmdir(f->shm_dir), 0);
    farm_close(f);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_farm_is_found_from_below),
        cmocka_unit_test(a_farm_of_another_user_is_passed_by),
        cmocka_unit_test(the_address_follows_its_order),
        cmocka_unit_test(one_at_a_time_holds_the_folder),
        cmocka_unit_test(what_was_started_is_known_and_ends_with_its_children),
        cmocka_unit_test(a_daemon_that_hears_no_term_is_killed),
        cmocka_unit_test(who_cannot_start_says_why),
        cmocka_unit_test(a_copied_folder_is_another_farm),
        cmocka_unit_test(a_strange_buffer_folder_is_refused),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
