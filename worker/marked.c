/* marked.c - the processes that bear a mark of this node in their environment
 *
 * From: watch.c (a child ended), main.c (what an earlier worker left).  To: /proc, SIGKILL.
 * Looks at no memory of a process that hangs in the kernel: whoever did would hang too.
 */
#include "config.h"
#include "marked.h"

#include "clock.h"
#include "file.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* State letter and parent. 0: gone. */
static char stat_of(pid_t pid, pid_t *parent)
{
    struct file_stat s;

    if (file_process_stat(pid, &s) < 0)
        return 0;
    *parent = s.parent;
    return s.state;
}

/* Whether pid descends from us. */
static bool is_below(pid_t pid)
{
    pid_t self = getpid();

    for (int depth = 0; depth < 64 && pid > 1; depth++) {
        if (stat_of(pid, &pid) == 0)
            return false;
        if (pid == self)
            return true;
    }
    return false;
}

/* Whether the environment of pid has the mark; exact: this child's, else any child's of this node. One that hangs in the kernel is not asked: its
 * memory may be locked, and whoever looks at it would hang too. The list of processes knows it. */
static bool has_mark(pid_t pid, const char *mark, bool exact)
{
    char path[64], *text = NULL;
    size_t n = 0, len = strlen(mark);
    bool found = false;
    pid_t parent;
    char state = stat_of(pid, &parent);

    if (state == 0 || state == 'D' || state == 'Z')
        return false;
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    FILE *f = fopen(path, "re");
    if (f == NULL)
        return false;                            /* another user's, or gone */
    while (!found && getdelim(&text, &n, '\0', f) > 0)
        found = strncmp(text, mark, len) == 0 && (text[len] == '\0' || (!exact && text[len] == '/'));
    free(text);
    fclose(f);
    return found;
}

unsigned marked_kill(const char *mark, bool exact, pid_t *one)
{
    DIR *proc = opendir("/proc");
    struct dirent *d;
    unsigned n = 0;

    while (proc != NULL && (d = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10);
        if (pid <= 1 || pid == getpid() || (exact && !is_below(pid)) || !has_mark(pid, mark, exact))
            continue;
        kill(pid, SIGKILL);
        *one = pid;
        n++;
    }
    if (proc != NULL)
        closedir(proc);
    return n;
}

/* Whether pid is, or descends from, a child of ours that is none of `known`: its parents are gone, and as their subreaper we got it. */
static bool is_stray(const pid_t *known, unsigned n_known, pid_t pid)
{
    pid_t self = getpid(), parent = pid;

    for (int depth = 0; depth < 64 && pid > 1; depth++, pid = parent) {
        if (stat_of(pid, &parent) == 0)
            return false;
        if (parent != self)
            continue;
        for (unsigned i = 0; i < n_known; i++) {
            if (known[i] == pid)
                return false;
        }
        return true;
    }
    return false;
}

unsigned marked_kill_strays(const char *mark, const pid_t *known, unsigned n_known)
{
    char *full = mem_printf("%s=%s", MARK_NAME, mark);
    DIR *proc = opendir("/proc");
    struct dirent *d;
    unsigned n = 0;

    while (proc != NULL && (d = readdir(proc)) != NULL) {
        pid_t pid = (pid_t)strtol(d->d_name, NULL, 10), parent;
        if (pid <= 1 || stat_of(pid, &parent) == 'Z' || !is_stray(known, n_known, pid) || has_mark(pid, full, false))
            continue;
        kill(pid, SIGKILL);
        n++;
    }
    if (proc != NULL)
        closedir(proc);
    free(full);
    return n;
}

/* The list's lines: "PID START". */
static unsigned kill_listed(const char *list_file, pid_t *one)
{
    FILE *f = fopen(list_file, "re");
    char line[128];
    unsigned n = 0;

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        int pid;
        uint64_t start;
        if (sscanf(line, "%d %" SCNu64, &pid, &start) != 2 || pid <= 1)
            continue;
        struct file_owner o = { .pid = pid, .start = start };
        snprintf(o.boot_id, sizeof o.boot_id, "%s", file_boot_id());
        if (file_process_start(pid) != start || file_owner_alive(&o) == 0)
            continue;
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        *one = pid;
        n++;
    }
    if (f != NULL)
        fclose(f);
    return n;
}

/* Until the process is gone, at most ms. */
static void wait_gone(pid_t pid, int ms)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (fd < 0)
        return;
    while (poll(&p, 1, ms) < 0 && errno == EINTR)
        ;
    close(fd);
}

int marked_end_old(const char *mark, const char *list_file, double limit_s, unsigned *ended, struct err *e)
{
    char *full = mem_printf("%s=%s", MARK_NAME, mark);
    int64_t until = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    int rc = 0;

    *ended = 0;
    for (;;) {
        pid_t one = 0;
        unsigned n = kill_listed(list_file, &one) + marked_kill(full, false, &one);
        if (n == 0)
            break;
        *ended = n > *ended ? n : *ended;
        int64_t left = until - clock_mono_ns();
        if (left <= 0) {
            rc = err_set(e, ERR_STATE, "process %d of an earlier worker of this node cannot be ended", one);
            break;
        }
        wait_gone(one, (int)(left / 1000000) + 1);
    }
    free(full);
    return rc;
}
