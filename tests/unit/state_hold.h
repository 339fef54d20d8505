/* state_hold.h - another process that takes a lock on the database and keeps it, as a person with the sqlite3 shell may
 *
 * The test program runs itself again: a mere fork would carry along what SQLite remembers of its locks.
 */
#ifndef SLUICE_STATE_HOLD_H
#define SLUICE_STATE_HOLD_H

#include <sqlite3.h>
#include <sys/wait.h>

#include "state_test.h"

struct holder { int to, from; pid_t pid; };

/* First thing in main: `PROGRAM --hold FILE SQL` says y on stdout when it holds, and holds until stdin ends. */
static inline void hold_main(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[1], "--hold") != 0)
        return;
    sqlite3 *s = NULL;
    char c = 'n';
    if (sqlite3_open(argv[2], &s) == SQLITE_OK && sqlite3_busy_timeout(s, 10000) == SQLITE_OK && sqlite3_exec(s, argv[3], NULL, NULL, NULL) == SQLITE_OK)
        c = 'y';
    if (write(1, &c, 1) != 1 || read(0, &c, 1) != 0)
        exit(1);
    sqlite3_close(s);
    exit(0);
}

static inline void hold(struct holder *h, const char *dir, const char *sql)
{
    int in_pipe[2], out_pipe[2];
    const char *file = in(dir, "state.db");
    assert_int_equal(pipe2(in_pipe, O_CLOEXEC) | pipe2(out_pipe, O_CLOEXEC), 0);
    h->pid = fork();
    assert_true(h->pid >= 0);
    if (h->pid == 0) {
        dup2(in_pipe[0], 0);
        dup2(out_pipe[1], 1);
        execl("/proc/self/exe", "holder", "--hold", file, sql, (char *)NULL);
        _exit(127);
    }
    close(in_pipe[0]);
    close(out_pipe[1]);
    h->to = in_pipe[1];
    h->from = out_pipe[0];
    char c = 0;
    assert_int_equal(read(h->from, &c, 1), 1);
    assert_int_equal(c, 'y');
}

static inline void let_go(struct holder *h)
{
    close(h->to);
    assert_int_equal(waitpid(h->pid, NULL, 0), h->pid);
    close(h->from);
}

#endif
