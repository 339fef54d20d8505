/* source_program_test.c - sluice-source as a process: what it prints, how it ends, what it leaves behind */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <sys/wait.h>
#include <jansson.h>
#include <cmocka.h>

#include "source_help.h"
#include "str.h"

enum { TFS = 4 };

static struct ev_loop *loop;
static struct sluiced d;
static char *film, *half;                        /* four TFs; the same with the last one cut short */
static size_t film_size, last_at;

/* The program under test. */
static pid_t pid;
static int out_fd, err_fd, status;
static struct str out, errors;
static int err_to = -1;                          /* its standard error, -1: one that the test reads */

static int setup(void **unused)
{
    (void)unused;
    uint8_t *all = NULL;
    size_t size;

    film_size = 0;
    for (uint32_t i = 0; i < TFS; i++) {
        uint8_t *tf = make_tf(10, 2000, 0, 128 + 4 * i, i, &size);
        all = mem_grow(all, film_size + size, 1);
        memcpy(all + film_size, tf, size);
        last_at = film_size;
        film_size += size;
        free(tf);
    }
    film = make_file("film.tf", all, film_size);
    half = make_file("half.tf", all, film_size - 1);
    free(all);
    loop = ev_loop_new(EVFLAG_AUTO);
    sluiced_start(&d, loop, 100);
    pid = 0;
    return 0;
}

static void drain(int fd, struct str *s)
{
    char buf[4096];
    ssize_t n;

    while ((n = read(fd, buf, sizeof buf)) > 0)
        str_addn(s, buf, (size_t)n);
}

static bool has_ended(void)
{
    drain(out_fd, &out);
    drain(err_fd, &errors);
    if (waitpid(pid, &status, WNOHANG) != pid)
        return false;
    drain(out_fd, &out);
    drain(err_fd, &errors);
    close(out_fd);
    close(err_fd);
    pid = 0;
    return true;
}

static int teardown(void **unused)
{
    (void)unused;
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    str_free(&out);
    str_free(&errors);
    sluiced_stop(&d);
    ev_loop_destroy(loop);
    free(film);
    free(half);
    return 0;
}

static const char *program(void)
{
    static char path[4096];
    const char *dir = getenv("SLUICE_BUILDDIR");

    snprintf(path, sizeof path, "%s/sluice-source", dir != NULL ? dir : ".");
    return path;
}

/* Starts `sluice-source replay` with these options; ready_fd (may be -1) is handed on as descriptor 5. */
static void launch(int ready_fd, const char *const *options)
{
    const char *argv[40] = { program(), "replay", "--server", d.address, "--run", "42" };
    int o[2], e[2];
    unsigned n = 6;

    for (; *options != NULL; options++)
        argv[n++] = *options;
    assert_int_equal(pipe2(o, O_CLOEXEC), 0);
    assert_int_equal(pipe2(e, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(o[1], 1);
        dup2(err_to >= 0 ? err_to : e[1], 2);
        if (ready_fd >= 0)
            dup2(ready_fd, 5);
        execv(argv[0], (char **)argv);
        _exit(99);
    }
    close(o[1]);
    close(e[1]);
    out_fd = o[0];
    err_fd = e[0];
    fcntl(out_fd, F_SETFL, O_NONBLOCK);
    fcntl(err_fd, F_SETFL, O_NONBLOCK);
    str_clear(&out);
    str_clear(&errors);
}

#define LAUNCH(...) launch(-1, (const char *const[]){ __VA_ARGS__, NULL })

static void ends_with(int code)
{
    wait_for(loop, has_ended());
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("status 0x%x, wanted exit %d; it said: %s", status, code, str_text(&errors));
}

/* Nothing of it may lie beside sluiced's socket. */
static void assert_no_socket_left(void)
{
    DIR *dir = opendir(make_folder);
    struct dirent *f;

    while ((f = readdir(dir)) != NULL)
        assert_null(strstr(f->d_name, "source-"));
    closedir(dir);
}

/* Lets go of everything as soon as it is announced. */
static void release_at_once(struct sluiced *dd, struct session *s, uint64_t id)
{
    sluiced_release(dd, s->part, id, 1);
}

static json_t *summary(void)
{
    json_error_t why;
    json_t *doc = json_loads(str_text(&out), 0, &why);

    if (doc == NULL)
        fail_msg("%s in: %s", why.text, str_text(&out));
    assert_string_equal(json_string_value(json_object_get(json_object_get(doc, "schema"), "name")), "replay");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "schema"), "version")), 1);
    assert_int_equal(json_array_size(json_object_get(doc, "replay")), 1);
    return doc;
}

static json_t *of(json_t *doc, const char *key)
{
    json_t *v = json_object_get(json_array_get(json_object_get(doc, "replay"), 0), key);

    if (v == NULL)
        fail_msg("the summary has no %s", key);
    return v;
}

static void it_plays_to_the_end_and_sums_up(void **unused)
{
    (void)unused;
    char ready[20] = "";
    int p[2];

    assert_int_equal(pipe(p), 0);
    d.announced = release_at_once;
    launch(p[1], (const char *const[]){ "--sources", "3", "--loop", "5", "--rate", "200", "--json", "--progress", "--ready-fd", "5", film, NULL });
    close(p[1]);
    ends_with(0);
    assert_int_equal(read(p[0], ready, sizeof ready), 6);
    assert_string_equal(ready, "ready\n");
    close(p[0]);
    json_t *doc = summary();
    assert_int_equal(json_integer_value(of(doc, "tfs")), 5 * TFS);
    assert_int_equal(json_integer_value(of(doc, "released")), 5 * TFS);
    assert_int_equal(json_integer_value(of(doc, "bytes")), 5 * film_size);
    assert_int_equal(json_integer_value(of(doc, "read_bytes")), film_size);
    assert_int_equal(json_integer_value(of(doc, "skipped")), 0);
    assert_true(json_real_value(of(doc, "rate_wanted")) == 200);
    assert_true(json_real_value(of(doc, "rate_offered")) <= 201);
    assert_true(json_real_value(of(doc, "rate_achieved")) > 0);
    assert_string_equal(json_string_value(of(doc, "ended")), "complete");
    assert_true(json_is_null(of(doc, "text")));
    json_decref(doc);
    /* The last line of progress says the same. */
    assert_non_null(strstr(str_text(&errors), "\"announced\":20,\"released\":20,\"total\":20"));
    assert_int_equal(d.n_ended, 3);
    assert_no_socket_left();
}

static void B80_with_bad_files_it_ends_with_10_and_names_them(void **unused)
{
    (void)unused;
    d.announced = release_at_once;
    LAUNCH("--json", film, make_folder, half, "/nowhere/x.tf");
    ends_with(10);
    json_t *doc = summary();
    assert_int_equal(json_integer_value(of(doc, "tfs")), 2 * TFS - 1);
    assert_int_equal(json_integer_value(of(doc, "files")), 4);
    assert_int_equal(json_integer_value(of(doc, "skipped")), 3);
    json_t *cut = json_array_get(of(doc, "skipped_files"), 1);
    assert_string_equal(json_string_value(json_object_get(cut, "path")), half);
    assert_int_equal(json_integer_value(json_object_get(cut, "offset")), last_at + 96 + 8);
    assert_int_equal(json_integer_value(json_object_get(cut, "tfs")), TFS - 1);
    json_decref(doc);
    assert_non_null(strstr(str_text(&errors), "/nowhere/x.tf: skipped"));
}

static void without_a_playable_file_it_says_why_and_never_registers(void **unused)
{
    (void)unused;
    LAUNCH("/nowhere/x.tf");
    ends_with(3);
    LAUNCH(make_folder);
    ends_with(1);
    LAUNCH("--memory", "1K", film);
    ends_with(4);
    assert_non_null(strstr(str_text(&errors), "needs"));
    LAUNCH("--max-bad", "0", film, half);
    ends_with(1);
    assert_int_equal(d.sessions[0].connection, 0);
}

static void usage_is_checked_before_anything_else(void **unused)
{
    (void)unused;
    static const char *const bad[][2] = {
        { "--rate", "0" }, { "--loop", "0" }, { "--sources", "0" }, { "--preread", "99999" }, { "--lost-timeout", "5" }, { "--memory", "-1" },
        { "--no-such", "1" }, { "--server", "127.0.0.1:7" }, { "--auth", "none" }, { "--name", "a b" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        LAUNCH(bad[i][0], bad[i][1], film);
        ends_with(2);
        assert_true(errors.len > 0 && out.len == 0);
    }
}

static void sigterm_ends_it_within_2_s_whatever_is_held(void **unused)
{
    (void)unused;
    LAUNCH("--json", film);
    wait_for(loop, d.total[0] == TFS);           /* and nobody lets go */
    int64_t from = clock_mono_ns();
    kill(pid, SIGTERM);
    ends_with(143);
    assert_true(clock_mono_ns() - from < 2 * CLOCK_SECOND);
    json_t *doc = summary();
    assert_string_equal(json_string_value(of(doc, "ended")), "interrupted");
    assert_int_equal(json_integer_value(of(doc, "released")), 0);
    json_decref(doc);
    assert_true(d.sessions[0].ended);
    assert_no_socket_left();
}

static void a_closed_terminal_ends_it_too(void **unused)
{
    (void)unused;
    LAUNCH(film);
    wait_for(loop, d.total[0] == TFS);
    kill(pid, SIGHUP);
    ends_with(129);
    assert_no_socket_left();
}

static void nobody_reads_its_progress_and_it_plays_on(void **unused)
{
    (void)unused;
    static char junk[1 << 20];
    int e[2];

    /* A standard error that is full from the start. */
    assert_int_equal(pipe2(e, O_CLOEXEC), 0);
    fcntl(e[1], F_SETFL, O_NONBLOCK);
    while (write(e[1], junk, 4096) > 0)
        continue;
    fcntl(e[1], F_SETFL, 0);
    d.announced = release_at_once;
    d.window = 4;
    err_to = e[1];
    LAUNCH("--progress", "--rate", "20", "--loop", "12", film);
    err_to = -1;
    wait_for(loop, d.total[0] == 12 * TFS);      /* 2.4 s: at least two lines were due */
    fcntl(e[0], F_SETFL, O_NONBLOCK);
    drain(e[0], &errors);                        /* the last words need a reader again */
    close(e[1]);
    ends_with(0);
    close(e[0]);
}

static void sigint_waits_for_what_is_under_way(void **unused)
{
    (void)unused;
    LAUNCH("--loop", "1000", "--rate", "20", film);
    wait_for(loop, d.total[0] >= 3);
    kill(pid, SIGINT);
    kill(pid, SIGINT);                           /* the terminal's and the command's: one */
    wait_for(loop, d.sessions[0].ended);
    assert_false(has_ended());
    sluiced_release(&d, 0, 1, d.total[0]);
    ends_with(130);
    assert_no_socket_left();
}

static void a_second_sigint_ends_at_once(void **unused)
{
    (void)unused;
    LAUNCH(film);
    wait_for(loop, d.total[0] == TFS);
    kill(pid, SIGINT);
    wait_for(loop, d.sessions[0].ended);
    run_for(loop, 0.7);                          /* longer than one press of a key is passed on */
    int64_t from = clock_mono_ns();
    kill(pid, SIGINT);
    ends_with(130);
    assert_true(clock_mono_ns() - from < CLOCK_SECOND);
}

static void a_lost_sluiced_is_6_a_refusal_its_code_a_stopped_run_11(void **unused)
{
    (void)unused;
    LAUNCH("--lost-timeout", "500ms", film);
    wait_for(loop, d.total[0] == TFS);
    sluiced_kill(&d);
    ends_with(6);
    assert_no_socket_left();
    LAUNCH("--lost-timeout", "500ms", film);     /* never there */
    ends_with(6);
    sluiced_listen(&d);
    d.refuse = 4;
    LAUNCH(film);
    ends_with(4);
    assert_non_null(strstr(str_text(&errors), "refused by the script"));
    d.refuse = 0;
    d.total[0] = d.released[0] = 0;
    d.announced = release_at_once;
    LAUNCH("--loop", "1000000", "--rate", "50", film);
    wait_for(loop, d.total[0] > 3);
    sluiced_say_stopping(&d, 0);
    ends_with(11);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(it_plays_to_the_end_and_sums_up),
        TEST(B80_with_bad_files_it_ends_with_10_and_names_them),
        TEST(without_a_playable_file_it_says_why_and_never_registers),
        TEST(usage_is_checked_before_anything_else),
        TEST(sigterm_ends_it_within_2_s_whatever_is_held),
        TEST(a_closed_terminal_ends_it_too),
        TEST(nobody_reads_its_progress_and_it_plays_on),
        TEST(sigint_waits_for_what_is_under_way),
        TEST(a_second_sigint_ends_at_once),
        TEST(a_lost_sluiced_is_6_a_refusal_its_code_a_stopped_run_11),
    };
    signal(SIGPIPE, SIG_IGN);
    make_seed();
    make_begin();
    int failed = cmocka_run_group_tests_name("sluice-source", tests, NULL, NULL);
    make_end();
    return failed;
}
