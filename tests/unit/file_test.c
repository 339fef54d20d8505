/* file_test.c - files, folders, sockets at long paths, owners */
#include "config.h"

#include "file.h"
#include "mem.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
    strcpy(dir, "/tmp/sluice-file-test-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : 0;
}

static int remove_dir(void **state)
{
    char *command = mem_printf("rm -rf '%s'", dir);
    int r = system(command);

    (void)state;
    free(command);
    return r;
}

static char *in_dir(const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

static void a_file_is_replaced_and_read_whole(void **state)
{
    char *path = in_dir("a"), *text;
    struct err e;
    struct stat st;
    size_t size;

    (void)state;
    assert_int_equal(file_replace(path, "one", 3, 0600, &e), 0);
    assert_int_equal(file_replace(path, "t\0wo", 4, 0640, &e), 0);
    text = file_read(path, 4, &size, &e);
    assert_non_null(text);
    assert_int_equal(size, 4);
    assert_memory_equal(text, "t\0wo", 5);
    free(text);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_null(file_read(path, 3, &size, &e));
    assert_non_null(strstr(e.text, "at most 3"));
    free(path);
}

static void what_is_no_regular_file_is_refused(void **state)
{
    char *fifo = in_dir("fifo"), *none = in_dir("none"), *text;
    struct err e;
    size_t size;

    (void)state;
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_null(file_read(fifo, 100, NULL, &e));            /* and does not wait */
    assert_non_null(strstr(e.text, "regular file"));
    assert_null(file_read(dir, 100, NULL, &e));
    assert_non_null(strstr(e.text, "regular file"));
    assert_null(file_read(none, 100, NULL, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
    text = file_read("/proc/self/stat", 4096, &size, &e);   /* says size 0 */
    assert_non_null(text);
    assert_true(size > 10);
    free(text);
    free(fifo);
    free(none);
}

static void a_failed_replacement_leaves_nothing(void **state)
{
    char *path = in_dir("nowhere/a"), *folder = in_dir("taken");
    struct err e;

    (void)state;
    assert_int_equal(file_replace(path, "x", 1, 0600, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(file_mkdirs(folder, 0700, &e), 0);
    assert_int_equal(file_replace(folder, "x", 1, 0600, &e), -1);
    free(path);
    path = mem_printf("test -z \"$(ls '%s' | grep new-)\"", dir);
    assert_int_equal(system(path), 0);
    free(path);
    free(folder);
}

static void folders_are_made_with_their_parents(void **state)
{
    char *path = in_dir("x/y//z"), *file = in_dir("plain"), *below = in_dir("plain/z");
    struct err e;
    struct stat st;

    (void)state;
    assert_int_equal(file_mkdirs(path, 0750, &e), 0);
    assert_int_equal(file_mkdirs(path, 0750, &e), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISDIR(st.st_mode));
    assert_int_equal(file_replace(file, "", 0, 0600, &e), 0);
    assert_int_equal(file_mkdirs(file, 0750, &e), -1);
    assert_non_null(strstr(e.text, "a folder is wanted"));
    assert_int_equal(file_mkdirs(below, 0750, &e), -1);
    free(path);
    free(file);
    free(below);
}

/* Binds and connects at the path. */
static void socket_works_at(const char *path)
{
    struct sockaddr_un addr;
    socklen_t len;
    int folder, s, c;
    struct err e;

    if (file_socket_address(path, &addr, &len, &folder, &e) < 0)
        fail_msg("%s", e.text);
    s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(s, 1), 0);
    if (folder >= 0)
        close(folder);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(file_socket_address(path, &addr, &len, &folder, &e), 0);
    c = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(connect(c, (struct sockaddr *)&addr, len), 0);
    if (folder >= 0)
        close(folder);
    close(c);
    close(s);
}

static void sockets_work_at_any_length(void **state)
{
    struct str path = { 0 };
    struct sockaddr_un addr;
    socklen_t len;
    struct err e;
    int folder;
    char *p;

    (void)state;
    p = in_dir("short.sock");
    socket_works_at(p);
    free(p);
    str_addf(&path, "%s", dir);
    while (path.len < 1000)
        str_add(&path, "/a-folder-with-quite-a-long-name");
    assert_int_equal(file_mkdirs(str_text(&path), 0700, &e), 0);
    str_add(&path, "/s.sock");
    socket_works_at(str_text(&path));
    str_clear(&path);
    str_addf(&path, "%s/", dir);
    while (path.len < 107)
        str_add(&path, "x");
    socket_works_at(str_text(&path));               /* the longest that fits */
    str_add(&path, "y");
    assert_int_equal(file_socket_address(str_text(&path), &addr, &len, &folder, &e), 0);
    assert_true(folder >= 0);                       /* one more does not */
    close(folder);
    for (int i = 0; i < 100; i++)
        str_add(&path, "z");
    assert_int_equal(file_socket_address(str_text(&path), &addr, &len, &folder, &e), -1);
    assert_int_equal(folder, -1);
    assert_int_equal(file_socket_address("/tmp/", &addr, &len, &folder, &e), -1);
    str_free(&path);
}

/* Names that read like the fields behind them. */
static void a_process_of_any_name_is_read(void **state)
{
    static const char *const names[] = { "plain", "with a blank", "a) R 1 2 3 (b", ")", ") Z 1 1 1", "(((" };
    struct file_stat self, s, t;
    int status;

    (void)state;
    assert_int_equal(file_process_stat(getpid(), &self), 0);
    assert_int_equal(self.state, 'R');
    assert_int_equal(self.parent, getppid());
    assert_int_equal(self.session, getsid(0));
    assert_true(self.start > 0 && self.start == file_process_start(getpid()));
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(prctl(PR_SET_NAME, names[i]), 0);
        assert_int_equal(file_thread_stat(getpid(), &t), 0);
        assert_true(t.state == 'R' && t.start == self.start);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, names[i]);
            _exit(file_process_stat(getpid(), &s) < 0 || s.state != 'R' || s.parent != getppid() || s.session != self.session || s.start < self.start);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(file_process_stat(child, &s), -1);
    }
    assert_int_equal(file_process_stat(0, &s), -1);
    assert_int_equal(file_process_stat(-1, &s), -1);
    assert_int_equal(file_thread_stat(1, &s), -1);           /* a process, and no thread of ours */
}

static void an_owner_is_alive_until_it_ends(void **state)
{
    struct file_owner me, other;
    struct err e;
    int status;
    pid_t child;

    (void)state;
    assert_int_equal(file_owner_self(&me, &e), 0);
    assert_int_equal(me.pid, getpid());
    assert_int_equal(strlen(me.boot_id), 36);
    assert_int_equal(file_owner_alive(&me), 1);
    other = me;
    other.start++;
    assert_int_equal(file_owner_alive(&other), 0);          /* the pid was used again */
    other = me;
    other.boot_id[0] ^= 1;
    assert_int_equal(file_owner_alive(&other), 0);          /* before the last boot */
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        pause();
        _exit(0);
    }
    other = me;
    other.pid = child;
    other.start = file_process_start(child);
    assert_true(other.start >= me.start);
    assert_int_equal(file_owner_alive(&other), 1);
    kill(child, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)child, &(siginfo_t){ 0 }, WEXITED | WNOWAIT), 0);
    assert_int_equal(file_owner_alive(&other), 0);          /* a zombie is not alive */
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(file_owner_alive(&other), 0);
    assert_true(file_process_start(child) == 0);
    other.pid = 0;
    assert_int_equal(file_owner_alive(&other), 0);
}

static void flags_are_set_beside_those_there(void **state)
{
    int p[2];

    (void)state;
    assert_int_equal(pipe(p), 0);
    assert_int_equal(file_set_cloexec_nonblock(p[1]), 0);
    assert_true(fcntl(p[1], F_GETFL) & O_NONBLOCK);
    assert_true((fcntl(p[1], F_GETFL) & O_ACCMODE) == O_WRONLY);
    assert_true(fcntl(p[1], F_GETFD) & FD_CLOEXEC);
    close(p[0]);
    close(p[1]);
    assert_int_equal(file_set_cloexec_nonblock(p[1]), -1);
}

static void writing_to_a_full_device_says_so(void **state)
{
    int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    struct err e;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, "x", 1, &e), -1);
    assert_non_null(strstr(e.text, "No space left"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_replaced_and_read_whole),
        cmocka_unit_test(what_is_no_regular_file_is_refused),
        cmocka_unit_test(a_failed_replacement_leaves_nothing),
        cmocka_unit_test(folders_are_made_with_their_parents),
        cmocka_unit_test(sockets_work_at_any_length),
        cmocka_unit_test(a_process_of_any_name_is_read),
        cmocka_unit_test(an_owner_is_alive_until_it_ends),
        cmocka_unit_test(flags_are_set_beside_those_there),
        cmocka_unit_test(writing_to_a_full_device_says_so),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
