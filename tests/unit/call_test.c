/* call_test.c - one question, one answer, and the ways not to get one, against a small sluiced in a process of its own */
#include "config.h"

#include "call.h"
#include "clock.h"
#include "file.h"
#include "mem.h"
#include "nodelist.h"
#include "peer.h"

#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char dir[64], path[80], address[90];

/* --- the other end -------------------------------------------------------------------------- */

static bool dies_at_wait;

static void answer_nodes(struct chan *c, uint32_t id)
{
    Sluice__Node n[4] = { SLUICE__NODE__INIT, SLUICE__NODE__INIT, SLUICE__NODE__INIT, SLUICE__NODE__INIT }, *list[] = { &n[0], &n[1], &n[2], &n[3] };
    Sluice__MarkInfo mark = SLUICE__MARK_INFO__INIT, *marks[] = { &mark };
    Sluice__Nodes m = SLUICE__NODES__INIT;

    n[0].name = "a1", n[0].pool = "online", n[0].class_ = "mi50";
    n[1].name = "a2", n[1].pool = "async", n[1].class_ = "mi50", n[1].n_marks = 1, n[1].marks = marks;
    n[2].name = "b1", n[2].pool = "online", n[2].class_ = "mi100";
    n[3].name = "stray", n[3].pool = "online", n[3].class_ = "mi50";        /* its worker is held aside */
    for (unsigned i = 0; i < 3; i++)
        n[i].has_added = n[i].added = true;
    m.n_nodes = 4;
    m.nodes = list;
    chan_send(c, id, &m.base);
}

static void on_question(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct err refused = { ERR_STATE, "pool online: 1 node is left, 2 are wanted" };
    Sluice__Status status = SLUICE__STATUS__INIT;
    Sluice__Ok ok = SLUICE__OK__INIT;
    Sluice__Waited waited = SLUICE__WAITED__INIT;

    (void)arg, (void)m, (void)fds, (void)n_fds;
    switch (type) {
    case SLUICE__TYPE__GET_STATUS:
        status.has_pid = 1;
        status.pid = 4711;
        chan_send(c, id, &status.base);
        break;
    case SLUICE__TYPE__GET_NODES:
        answer_nodes(c, id);
        break;
    case SLUICE__TYPE__MOVE_NODES:
        chan_send_error(c, id, &refused, "PoolMinimum");
        break;
    case SLUICE__TYPE__GET_JOBS:                /* an answer of the wrong type */
        chan_send(c, id, &ok.base);
        break;
    case SLUICE__TYPE__GET_RUNS:                /* dies */
        _exit(0);
    case SLUICE__TYPE__WAIT:
        if (dies_at_wait)
            _exit(0);
        waited.has_code = 1;
        waited.code = 10;
        waited.has_seq = 1;
        waited.seq = 9;
        chan_send(c, id, &waited.base);
        break;
    default:                                    /* no answer at all */
        break;
    }
}

static void on_closed(void *arg, struct chan *c, const struct err *why)
{
    (void)arg, (void)why;
    chan_destroy(c);
}

static const struct chan_events events = { .message = on_question, .closed = on_closed };

static void on_accepted(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello)
{
    (void)arg, (void)hello;
    chan_set_owner(c, &events, NULL);
    peer_ready(c, id, "admin", 1);
}

static void __attribute__((noreturn)) serve_here(bool dies, int ready)
{
    struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
    struct listener_conf conf = { .loop = loop, .address = address, .epoch = 3, .mode = 0600, .accepted = on_accepted };
    struct err e;

    dies_at_wait = dies;
    alarm(60);
    if (listener_create(&conf, &e) == NULL || (ready >= 0 && write(ready, "r", 1) != 1))
        _exit(1);
    ev_run(loop, 0);
    _exit(0);
}

/* Returns when it listens. */
static pid_t serve(bool dies)
{
    int p[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(p), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        serve_here(dies, p[1]);
    close(p[1]);
    assert_int_equal(read(p[0], &c, 1), 1);
    close(p[0]);
    return pid;
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-call-test-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/s.sock", dir);
    snprintf(address, sizeof(address), "unix:%s", path);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static struct context context(void)
{
    return (struct context){ .address = address, .seq = -1 };
}

/* --- tests ---------------------------------------------------------------------------------- */

static void an_answer_comes_back(void **state)
{
    struct context ctx = context();
    Sluice__GetStatus q = SLUICE__GET_STATUS__INIT;
    struct err e;
    pid_t pid = serve(false);
    Sluice__Status *s = call(&ctx, &q.base, SLUICE__TYPE__STATUS, 20, &e);

    (void)state;
    if (s == NULL)
        fail_msg("%s", e.text);
    assert_int_equal(s->pid, 4711);
    call_free(s);
    end(pid);
}

static void a_refusal_keeps_its_code_and_sentence(void **state)
{
    struct context ctx = context();
    Sluice__MoveNodes q = SLUICE__MOVE_NODES__INIT;
    struct err e;
    pid_t pid = serve(false);

    (void)state;
    assert_null(call(&ctx, &q.base, SLUICE__TYPE__CHANGED, 20, &e));
    assert_int_equal(e.code, ERR_STATE);
    assert_string_equal(e.text, "pool online: 1 node is left, 2 are wanted");
    end(pid);
}

/* As one that is killed leaves it. */
static void leave_a_socket(void)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    close(fd);
}

static void nobody_there_is_unreachable(void **state)
{
    struct context ctx = context();
    Sluice__GetStatus q = SLUICE__GET_STATUS__INIT;
    struct err e;
    int64_t start = clock_mono_ns();

    (void)state;
    unlink(path);
    assert_null(call(&ctx, &q.base, SLUICE__TYPE__STATUS, 20, &e));
    assert_int_equal(e.code, ERR_UNREACHABLE);
    assert_non_null(strstr(e.text, path));
    assert_null(call_patient(&ctx, &q.base, SLUICE__TYPE__STATUS, 0, NULL, 20, &e));      /* never was there: not waited for */
    assert_int_equal(e.code, ERR_UNREACHABLE);
    assert_true(clock_mono_ns() - start < 15 * CLOCK_SECOND);
    leave_a_socket();
    start = clock_mono_ns();
    assert_null(call(&ctx, &q.base, SLUICE__TYPE__STATUS, 20, &e));
    assert_null(call_patient(&ctx, &q.base, SLUICE__TYPE__STATUS, 0, NULL, 1, &e));       /* it was killed, and may be started again */
    assert_int_equal(e.code, ERR_UNREACHABLE);
    assert_true(clock_mono_ns() - start > CLOCK_SECOND);
    unlink(path);
}

static void a_wrong_answer_and_a_lost_connection_are_told_apart(void **state)
{
    struct context ctx = context();
    Sluice__GetJobs jobs = SLUICE__GET_JOBS__INIT;
    Sluice__GetRuns runs = SLUICE__GET_RUNS__INIT;
    struct err e;
    pid_t pid = serve(false);

    (void)state;
    assert_null(call(&ctx, &jobs.base, SLUICE__TYPE__JOBS, 20, &e));
    assert_int_equal(e.code, ERR_PROTOCOL);
    assert_null(call(&ctx, &runs.base, SLUICE__TYPE__RUNS, 20, &e));
    assert_int_equal(e.code, ERR_UNREACHABLE);
    end(pid);
}

static void no_answer_in_time_is_a_timeout(void **state)
{
    struct context ctx = context();
    Sluice__Backup q = SLUICE__BACKUP__INIT;
    struct err e;
    pid_t pid = serve(false);

    (void)state;
    assert_null(call(&ctx, &q.base, SLUICE__TYPE__OK, 0.3, &e));
    assert_int_equal(e.code, ERR_TIMEOUT);
    end(pid);
}

static pid_t serve_after(pid_t first)
{
    int p[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(p), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        close(p[0]);
        if (write(p[1], "r", 1) != 1)
            _exit(1);
        while (file_process_start(first) != 0 && getppid() != 1)      /* its parent, the test, reaps it */
            usleep(1000);
        usleep(200000);                         /* away for a while: the first tries fail */
        serve_here(false, -1);
    }
    close(p[1]);
    assert_int_equal(read(p[0], &c, 1), 1);
    close(p[0]);
    return pid;
}

/* The first sluiced dies when it is asked; a second one takes its place and answers. */
static void a_wait_outlives_a_restart(void **state)
{
    struct context ctx = context();
    Sluice__Wait q = SLUICE__WAIT__INIT;
    struct err e = { 0 };
    pid_t first, second;
    Sluice__Waited *w;

    (void)state;
    signal(SIGCHLD, SIG_IGN);                   /* the first is reaped by itself */
    first = serve(true);
    second = serve_after(first);
    assert_int_equal(ctx.seq, -1);
    w = call_patient(&ctx, &q.base, SLUICE__TYPE__WAITED, 30, &q.timeout, 20, &e);
    if (w == NULL)
        fail_msg("%s", e.text);
    assert_int_equal(w->code, 10);
    assert_int_equal(ctx.seq, 9);
    assert_true(q.timeout > 20 && q.timeout < 30);        /* what is left is asked for, not the whole again */
    call_free(w);
    kill(second, SIGKILL);
    signal(SIGCHLD, SIG_DFL);
    while (waitpid(second, NULL, 0) > 0)
        ;
}

/* sluiced dies while it is asked, and stays away: the time holds all the same, and it is no loss of sluiced. */
static void a_wait_ends_in_time_whatever_sluiced_does(void **state)
{
    struct context ctx = context();
    Sluice__Wait q = SLUICE__WAIT__INIT;
    struct err e = { 0 };
    int64_t start;

    (void)state;
    signal(SIGCHLD, SIG_IGN);
    serve(true);
    start = clock_mono_ns();
    assert_null(call_patient(&ctx, &q.base, SLUICE__TYPE__WAITED, 1.2, &q.timeout, 20, &e));
    assert_int_equal(e.code, ERR_TIMEOUT);
    assert_string_equal(e.text, "not over within 1.2 s");
    assert_in_range(clock_mono_ns() - start, CLOCK_SECOND * 12 / 10, CLOCK_SECOND * 3);
    signal(SIGCHLD, SIG_DFL);
}

static void words_are_asked_of_sluiced(void **state)
{
    static const struct { const char *list, *without, *want; } cases[] = {
        { "@all", NULL, "a[1-2],b1" }, { "@online", NULL, "a1,b1" }, { "@async", NULL, "a2" }, { "@marked", NULL, "a2" },
        { "@class:mi50", NULL, "a[1-2]" }, { "@all", "@async,b1", "a1" }, { "z9,@online", "a1", "b1,z9" },
    };
    static const char *const blank[] = { "", " " };
    static const struct listing none = { "nodes", NULL, NULL, NULL };
    struct args all_out = { .given = &(struct given){ "exclude", "@all" }, .n_given = 1 };
    struct context ctx = context();
    struct err e = { 0 };
    int r;
    pid_t pid = serve(false);

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct given given = { "exclude", cases[i].without };
        struct args a = { .given = &given, .n_given = cases[i].without != NULL };
        struct hostlist *h = nodelist(&ctx, &a, cases[i].list, &none, &r, &e);
        char *folded;

        if (h == NULL)
            fail_msg("%s: %s", cases[i].list, e.text);
        folded = hostlist_fold(h);
        assert_string_equal(folded, cases[i].want);
        free(folded);
        hostlist_destroy(h);
    }
    assert_null(nodelist(&ctx, &(struct args){ 0 }, "@wrong", &none, &r, &e));
    assert_int_equal(r, -1);
    assert_non_null(strstr(e.text, "column 1"));
    /* a list that is right and has no node in it now is nothing to do */
    assert_null(nodelist(&ctx, &(struct args){ 0 }, "@class:none", &none, &r, &e));
    assert_int_equal(r, 0);
    assert_null(nodelist(&ctx, &all_out, "a1", &none, &r, &e));
    assert_int_equal(r, 0);
    /* and one without a word is a slip */
    for (size_t i = 0; i < ARRAY_LEN(blank); i++) {
        assert_null(nodelist(&ctx, &(struct args){ 0 }, blank[i], &none, &r, &e));
        assert_int_equal(r, -1);
        assert_non_null(strstr(e.text, "no node in it"));
    }
    end(pid);
}

static void the_handshake_says_who_is_there(void **state)
{
    struct context ctx = context();
    Sluice__Welcome *w;
    Sluice__Ready *r;
    double seconds;
    struct err e;
    pid_t pid = serve(false);

    (void)state;
    assert_int_equal(call_hello(&ctx, &w, &r, &seconds, &e), 0);
    assert_int_equal(w->epoch, 3);
    assert_string_equal(r->role, "admin");
    assert_true(seconds >= 0 && seconds < 20);
    call_free(w);
    call_free(r);
    end(pid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_comes_back),
        cmocka_unit_test(a_refusal_keeps_its_code_and_sentence),
        cmocka_unit_test(nobody_there_is_unreachable),
        cmocka_unit_test(a_wrong_answer_and_a_lost_connection_are_told_apart),
        cmocka_unit_test(no_answer_in_time_is_a_timeout),
        cmocka_unit_test(a_wait_outlives_a_restart),
        cmocka_unit_test(a_wait_ends_in_time_whatever_sluiced_does),
        cmocka_unit_test(words_are_asked_of_sluiced),
        cmocka_unit_test(the_handshake_says_who_is_there),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
