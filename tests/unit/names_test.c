/* names_test.c - the name thread: users, names, munge; deadlines when it hangs in somebody else's code */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cmocka.h>

#include "loop_help.h"
#include "munged_help.h"
#include "names.h"

static struct ev_loop *loop;
static struct munged munged;

struct heard { bool came; unsigned times; struct name_answer a; uint8_t *data; };

static void done(void *arg, const struct name_answer *a)
{
    struct heard *h = arg;

    h->came = true;
    h->times++;
    h->a = *a;
    if (a->data) {
        h->data = malloc(a->size + 1);
        memcpy(h->data, a->data, a->size);
        h->data[a->size] = 0;
    }
}

static struct names *open_names(void)
{
    struct err e;
    struct names *n = names_create(loop, &e);

    assert_non_null(n);
    return n;
}

static void a_uid_has_a_name(void **unused)
{
    struct names *n = open_names();
    struct heard h = { .came = false }, unknown = { .came = false };
    struct err e;

    (void)unused;
    assert_non_null(names_user(n, 0, 5, done, &h, &e));
    assert_non_null(names_user(n, 3999999999u, 5, done, &unknown, &e));
    assert_true(run_until(loop, &h.came, 5) && run_until(loop, &unknown.came, 5));
    assert_int_equal(h.a.code, ERR_NONE);
    assert_string_equal(h.a.user, "root");
    assert_true(h.a.n_groups >= 1 && h.a.groups[0] == 0);
    assert_string_equal(unknown.a.user, "3999999999");
    assert_int_equal(unknown.a.n_groups, 0);
    names_destroy(n);
}

static void a_uid_has_a_name_when_there_are_no_descriptors_left(void **unused)
{
    struct names *n = open_names();
    struct heard first = { .came = false }, h = { .came = false };
    struct rlimit before, few;
    struct err e;
    int taken[64];
    unsigned n_taken = 0;

    (void)unused;
    assert_non_null(names_user(n, 0, 5, done, &first, &e));
    assert_true(run_until(loop, &first.came, 5));
    getrlimit(RLIMIT_NOFILE, &before);
    few = before;
    few.rlim_cur = ARRAY_LEN(taken);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    while (n_taken < ARRAY_LEN(taken) && (taken[n_taken] = dup(STDIN_FILENO)) >= 0)
        n_taken++;
    for (int i = 0; i < 2; i++) {
        h.came = false;
        assert_non_null(names_user(n, 1, 5, done, &h, &e));
        assert_true(run_until(loop, &h.came, 5));
        assert_string_equal(h.a.user, "daemon");             /* in every Debian's base-passwd */
    }
    while (n_taken > 0)
        close(taken[--n_taken]);
    setrlimit(RLIMIT_NOFILE, &before);
    names_destroy(n);
}

static void localhost_resolves_and_nonsense_does_not(void **unused)
{
    struct names *n = open_names();
    struct heard h = { .came = false }, bad = { .came = false };
    struct err e;

    (void)unused;
    assert_non_null(names_resolve(n, "localhost", "7000", 10, done, &h, &e));
    assert_non_null(names_resolve(n, "no-such-host.invalid", "7000", 10, done, &bad, &e));
    assert_true(run_until(loop, &h.came, 11) && run_until(loop, &bad.came, 11));
    assert_int_equal(h.a.code, ERR_NONE);
    assert_true(h.a.n_addr >= 1);
    assert_int_equal(((struct sockaddr_in *)&h.a.addr[0])->sin_port, htons(7000));
    if (bad.a.code != ERR_TIMEOUT) {     /* a machine whose resolver does not answer */
        assert_int_equal(bad.a.code, ERR_UNREACHABLE);
        assert_non_null(strstr(bad.a.why.text, "no-such-host.invalid"));
    }
    names_destroy(n);
}

static void a_cancelled_question_is_not_answered(void **unused)
{
    struct names *n = open_names();
    struct heard h = { .came = false }, later = { .came = false };
    struct err e;

    (void)unused;
    names_cancel(names_user(n, 0, 5, done, &h, &e));
    assert_non_null(names_user(n, 0, 5, done, &later, &e));
    assert_true(run_until(loop, &later.came, 5));
    assert_false(h.came);
    names_cancel(NULL);
    names_destroy(n);
    names_destroy(NULL);
}

/* A munged that takes the connection and says nothing: libmunge waits for it. */
static int mute_socket(char path[64])
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(path, 64, "/tmp/mute.%ld", (long)getpid());
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    unlink(path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 100), 0);
    return fd;
}

static void a_hanging_thread_holds_up_nobody(void **unused)
{
    struct names *n = open_names();
    struct heard h = { .came = false }, behind = { .came = false };
    struct err e;
    char path[64];
    int fd = mute_socket(path);
    unsigned given = 2;
    int64_t start = clock_mono_ns();

    (void)unused;
#ifndef HAVE_MUNGE
    skip();
#endif
    assert_int_equal(names_munge_socket(n, path, &e), 0);
    assert_non_null(names_encode(n, "x", 1, 0.3, done, &h, &e));
    assert_non_null(names_user(n, 0, 0.3, done, &behind, &e));
    assert_true(run_until(loop, &h.came, 5) && run_until(loop, &behind.came, 5));
    assert_in_range((clock_mono_ns() - start) / 1000000, 299, 1300);
    assert_int_equal(h.a.code, ERR_TIMEOUT);
    assert_string_equal(h.a.why.text, "munge did not answer within 0.3 s");
    assert_int_equal(behind.a.code, ERR_TIMEOUT);
    for (int i = 0; i < 100 && names_stuck_s(n) <= 0.29; i++)
        run_for(loop, 0.05);            /* its thread may have begun late */
    assert_true(names_stuck_s(n) > 0.29);
    while (given < 5000 && names_user(n, 0, 0.01, done, &behind, &e))
        given++;
    assert_int_equal(given, 1024);      /* the queue is bounded */
    assert_int_equal(e.code, ERR_TIMEOUT);
    run_for(loop, 0.1);
    start = clock_mono_ns();
    names_destroy(n);                   /* does not wait for it */
    assert_true(clock_mono_ns() - start < CLOCK_SECOND / 2);
    close(fd);                          /* lets the thread go */
    unlink(path);
}

static void munge_without_munged_says_so(void **unused)
{
    struct names *n = open_names();
    struct heard h = { .came = false };
    struct err e;

    (void)unused;
#ifdef HAVE_MUNGE
    assert_int_equal(names_munge_socket(n, "/nonexistent/socket", &e), 0);
#endif
    assert_non_null(names_encode(n, "x", 1, 30, done, &h, &e));
    assert_true(run_until(loop, &h.came, 30));
#ifdef HAVE_MUNGE
    assert_int_equal(h.a.code, ERR_UNREACHABLE);
    assert_non_null(strstr(h.a.why.text, "/nonexistent/socket"));
#else
    assert_int_equal(h.a.code, ERR_PERMISSION);
    assert_non_null(strstr(h.a.why.text, "no munge"));
#endif
    names_destroy(n);
}

static void credentials_are_good_once(void **unused)
{
    struct names *n;
    struct heard cred = { .came = false }, first = { .came = false }, again = { .came = false }, forged = { .came = false };
    struct err e;

    (void)unused;
    if (munged.pid == 0)
        skip();
    n = open_names();
    assert_int_equal(names_munge_socket(n, munged.socket, &e), 0);
    assert_non_null(names_encode(n, "pay\0load", 8, 10, done, &cred, &e));
    assert_true(run_until(loop, &cred.came, 10));
    assert_int_equal(cred.a.code, ERR_NONE);
    assert_memory_equal(cred.data, "MUNGE:", 6);
    assert_non_null(names_decode(n, cred.data, cred.a.size, 10, done, &first, &e));
    assert_true(run_until(loop, &first.came, 10));
    assert_int_equal(first.a.code, ERR_NONE);
    assert_int_equal(first.a.uid, geteuid());
    assert_int_equal(first.a.gid, getegid());
    assert_int_equal(first.a.size, 8);
    assert_memory_equal(first.data, "pay\0load", 8);
    assert_non_null(names_decode(n, cred.data, cred.a.size, 10, done, &again, &e));
    assert_true(run_until(loop, &again.came, 10));
    assert_int_equal(again.a.code, ERR_PERMISSION);
    assert_non_null(strstr(again.a.why.text, "eplayed"));
    assert_non_null(names_decode(n, "MUNGE:abcdef:", 13, 10, done, &forged, &e));
    assert_true(run_until(loop, &forged.came, 10));
    assert_int_equal(forged.a.code, ERR_PERMISSION);
    free(cred.data);
    free(first.data);
    free(again.data);
    free(forged.data);
    names_destroy(n);
}

static int setup(void **unused)
{
    (void)unused;
    loop = ev_loop_new(EVFLAG_AUTO);
#ifdef HAVE_MUNGE
    if (munged_installed() && munged_start(&munged) < 0)
        return -1;
#endif
    return loop == NULL;
}

static int teardown(void **unused)
{
    (void)unused;
    munged_stop(&munged);
    ev_loop_destroy(loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uid_has_a_name), cmocka_unit_test(a_uid_has_a_name_when_there_are_no_descriptors_left),
        cmocka_unit_test(localhost_resolves_and_nonsense_does_not),
        cmocka_unit_test(a_cancelled_question_is_not_answered),
        cmocka_unit_test(a_hanging_thread_holds_up_nobody),
        cmocka_unit_test(munge_without_munged_says_so),
        cmocka_unit_test(credentials_are_good_once),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
