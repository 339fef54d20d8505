/* log_test.c - the log: lines, levels, rotation, a disk that hangs */
#include "config.h"

#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "str.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
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

static char dir[64], path[80];

static int make_dir(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/sluice-log-test-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof(path), "%s/log", dir);
    return 0;
}

static int remove_dir(void **state)
{
    char *command = mem_printf("rm -rf '%s'", dir);
    int r = system(command);

    (void)state;
    free(command);
    return r;
}

static char *text_of(const char *name)
{
    struct err e = { 0 };
    char *text = file_read(name, 64 << 20, NULL, &e);

    if (text == NULL)
        fail_msg("%s", e.text);
    return text;
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;

    for (; (text = strstr(text, word)) != NULL; text += strlen(word))
        n++;
    return n;
}

static void lines_have_time_program_level(void **state)
{
    struct err e;
    char *text, want[64];

    (void)state;
    unlink(path);
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    log_info("job %d: started", 42);
    log_debug("not shown");
    log_err("two\nlines \x1b[31m");
    log_set_level(LOG_LEVEL_DEBUG);
    log_debug("shown");
    log_close();
    text = text_of(path);
    snprintf(want, sizeof(want), " tester[%ld] info: job 42: started\n", (long)getpid());
    assert_non_null(strstr(text, want));
    assert_int_equal(text[10], 'T');
    assert_null(strstr(text, "not shown"));
    assert_non_null(strstr(text, "err: two lines \\x1B[31m\n"));
    assert_non_null(strstr(text, "debug: shown\n"));
    assert_int_equal(count(text, "\n"), 3);
    free(text);
}

static void a_rotated_file_is_opened_again(void **state)
{
    struct err e;
    char *old = mem_printf("%s.1", path), *text;

    (void)state;
    unlink(path);
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    log_info("before");
    assert_int_equal(log_reopen(&e), 0);
    log_close();
    assert_int_equal(rename(path, old), 0);
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    assert_int_equal(rename(path, old), 0);
    assert_int_equal(log_reopen(&e), 0);
    while (access(path, F_OK) < 0)
        sched_yield();
    log_info("after");
    log_close();
    text = text_of(path);
    assert_non_null(strstr(text, "after"));
    free(text);
    free(old);
    assert_int_equal(log_reopen(&e), -1);
}

static void *write_many(void *arg)
{
    for (int i = 0; i < 1000; i++)
        log_info("thread %d line %d", *(int *)arg, i);
    return NULL;
}

static void threads_do_not_mix_their_lines(void **state)
{
    enum { THREADS = 4 };
    pthread_t t[THREADS];
    int id[THREADS];
    struct err e;
    char *text;

    (void)state;
    unlink(path);
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    for (int i = 0; i < THREADS; i++) {
        id[i] = i;
        assert_int_equal(pthread_create(&t[i], NULL, write_many, &id[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    log_close();
    text = text_of(path);
    if (strstr(text, "lines lost") == NULL)
        assert_int_equal(count(text, "\n"), 1000 * THREADS);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        assert_int_equal(line[10], 'T');
        assert_int_equal(count(line, "tester["), 1);
    }
    free(text);
}

/* A FIFO that nobody empties is a disk that hangs: the writer sticks, the callers do not; then what was lost is told. */
static void a_hanging_disk_blocks_nobody(void **state)
{
    enum { LINES = 12000 };
    char *fifo = mem_printf("%s/fifo", dir), *text = mem_zalloc(16 << 20);
    struct err e;
    int64_t start, took;
    size_t n = 0;
    int fd;

    (void)state;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    fd = open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(log_open("tester", fifo, LOG_LEVEL_INFO, &e), 0);
    start = clock_mono_ns();
    for (int i = 0; i < LINES; i++)
        log_info("line %d of a program whose log hangs", i);
    took = clock_mono_ns() - start;
    assert_true(took < 20 * CLOCK_SECOND);
    /* now the disk wakes up: read until the report of the loss is there */
    start = clock_mono_ns();
    while (strstr(text, "lines lost") == NULL && clock_mono_ns() - start < 20 * CLOCK_SECOND) {
        ssize_t r = read(fd, text + n, 65536);

        if (r > 0)
            n += (size_t)r;
        else
            sched_yield();
        assert_true(n < (16 << 20) - 65536);
    }
    assert_non_null(strstr(text, "line 0 of"));
    assert_non_null(strstr(text, "lines lost, the queue was full"));
    fcntl(fd, F_SETFL, 0);
    log_close();
    close(fd);
    free(text);
    free(fifo);
}

/* The level of a descriptor that never drains: closing gives up after its second. */
static void closing_waits_at_most_a_second(void **state)
{
    char *fifo = mem_printf("%s/stuck", dir);
    struct err e;
    int status, fd;
    int64_t start = clock_mono_ns(), took;
    pid_t child;

    (void)state;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    fd = open(fifo, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    assert_true(fd >= 0);
    child = fork();         /* the stuck thread ends with its process */
    assert_true(child >= 0);
    if (child == 0) {
        if (log_open("tester", fifo, LOG_LEVEL_INFO, &e) < 0)
            _exit(1);
        for (int i = 0; i < 3000; i++)
            log_info("line %d fills the pipe, which nobody reads, to the brim and beyond", i);
        log_close();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    took = clock_mono_ns() - start;
    assert_int_equal(status, 0);
    assert_true(took >= CLOCK_SECOND && took < 10 * CLOCK_SECOND);
    close(fd);
    free(fifo);
}

static void keep_last(void *arg, const char *line)
{
    char *last = arg;

    snprintf(last, 200, "%s", line);
}

static void the_last_lines_are_kept(void **state)
{
    char last[200] = "";
    struct err e;

    (void)state;
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    for (int i = 0; i < 2000; i++)
        log_info("number %d", i);
    log_recent(keep_last, last);
    assert_non_null(strstr(last, "number 1999"));
    assert_null(strchr(last, '\n'));
    log_close();
}

static void keep_all(void *arg, const char *line)
{
    struct str *all = arg;

    str_addf(all, "%s\n", line);
}

static bool has_last(const char *file)
{
    char *text = file_read(file, 4 << 20, NULL, NULL);
    bool there = text != NULL && strstr(text, " 1999\n") != NULL;

    free(text);
    return there;
}

/* A process that is killed after its last line. */
static void say_and_die(const char *keep)
{
    pid_t child = fork();
    struct err e;
    int status;

    assert_true(child >= 0);
    if (child == 0) {
        if (log_open("tester", path, LOG_LEVEL_INFO, &e) < 0 || log_keep(keep, &e) < 0)
            _exit(1);
        for (int i = 0; i < 2000; i++)
            log_info("a line of some length so that the files have to be changed: %d", i);
        for (int i = 0; i < 10000 && !has_last(keep); i++)
            usleep(1000);
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void lines_of_a_killed_process_are_there_again(void **state)
{
    char *kept = mem_printf("%s/kept", dir), *older = mem_printf("%s/kept.1", dir);
    struct str all = { 0 };
    struct stat st;
    struct err e;

    (void)state;
    say_and_die(kept);
    unlink(path);                                        /* the log itself was turned */
    assert_int_equal(log_open("tester", path, LOG_LEVEL_INFO, &e), 0);
    log_info("anew");
    assert_int_equal(log_keep(kept, &e), 0);
    log_info("and on");
    log_recent(keep_all, &all);
    assert_non_null(strstr(str_text(&all), "changed: 1999\n"));
    assert_non_null(strstr(str_text(&all), "changed: 1600\n"));
    assert_true(strstr(str_text(&all), "anew\n") > strstr(str_text(&all), "changed: 1999\n"));
    assert_true(strstr(str_text(&all), "and on\n") > strstr(str_text(&all), "anew\n"));
    log_close();
    assert_int_equal(stat(kept, &st), 0);                /* bounded: the older half was put aside */
    assert_true(st.st_size < 80 << 10);
    assert_int_equal(stat(older, &st), 0);
    assert_true(st.st_size < 80 << 10);
    assert_int_equal(log_keep("/nowhere/at/all", &e), -1);
    assert_non_null(strstr(e.text, "/nowhere/at/all"));
    unlink(kept);
    unlink(older);
    str_free(&all);
    free(kept);
    free(older);
}

static void the_journal_gets_priorities(void **state)
{
    int p[2], status;
    char text[200];
    ssize_t n;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(p), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char name[80];
        struct stat st;

        dup2(p[1], STDERR_FILENO);
        fstat(STDERR_FILENO, &st);
        for (unsigned other = 0; other < 2; other++) {          /* named, and then not what stderr is */
            snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino + other);
            setenv("JOURNAL_STREAM", name, 1);
            if (log_open("tester", NULL, LOG_LEVEL_INFO, NULL) < 0)
                _exit(1);
            log_warning(other == 0 ? "odd" : "elsewhere");
            log_close();
        }
        _exit(0);
    }
    close(p[1]);
    waitpid(child, &status, 0);
    n = read(p[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(strncmp(text, "<4>odd\n", 7), 0);
    assert_null(strstr(text, "<4>elsewhere"));
    assert_non_null(strstr(text, "warning: elsewhere\n"));
    assert_int_equal(status, 0);
    close(p[0]);
}

static void dying_says_why_once_and_gives_the_code(void **state)
{
    int p[2], status;
    char text[300];
    ssize_t n;
    pid_t child;

    (void)state;
    assert_int_equal(pipe(p), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct err e = { ERR_TIMEOUT, "it took too long" };

        dup2(p[1], STDERR_FILENO);
        unsetenv("JOURNAL_STREAM");
        log_open("tester", NULL, LOG_LEVEL_INFO, NULL);
        log_die(&e);
    }
    close(p[1]);
    n = read(p[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    assert_int_equal(count(text, "err: it took too long\n"), 1);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    close(p[0]);
}

static void levels_have_words(void **state)
{
    enum log_level level;

    (void)state;
    assert_int_equal(log_level_parse("debug", &level), 0);
    assert_int_equal(level, 7);
    assert_int_equal(log_level_parse("err", &level), 0);
    assert_int_equal(level, 3);
    assert_int_equal(log_level_parse("loud", &level), -1);
    assert_int_equal(level, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_have_time_program_level),
        cmocka_unit_test(a_rotated_file_is_opened_again),
        cmocka_unit_test(threads_do_not_mix_their_lines),
        cmocka_unit_test(a_hanging_disk_blocks_nobody),
        cmocka_unit_test(closing_waits_at_most_a_second),
        cmocka_unit_test(the_last_lines_are_kept),
        cmocka_unit_test(lines_of_a_killed_process_are_there_again),
        cmocka_unit_test(the_journal_gets_priorities),
        cmocka_unit_test(dying_says_why_once_and_gives_the_code),
        cmocka_unit_test(levels_have_words),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
