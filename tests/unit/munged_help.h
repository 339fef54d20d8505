/* munged_help.h - a private munged for a test: own folder, key and socket; as nobody when the test runs as root
 *
 * Without munge installed the tests that need it skip; with it they may not.
 */
#ifndef SLUICE_MUNGED_HELP_H
#define SLUICE_MUNGED_HELP_H

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

struct munged { char dir[32], socket[64]; pid_t pid; };

static inline bool munged_installed(void) { return access("/usr/sbin/munged", X_OK) == 0; }

static inline void munged_stop(struct munged *m)
{
    char *cmd = mem_printf("rm -rf '%s'", m->dir);

    if (m->pid > 0) {
        kill(m->pid, SIGTERM);
        waitpid(m->pid, NULL, 0);
    }
    m->pid = 0;
    if (m->dir[0] && system(cmd) != 0)
        fprintf(stderr, "%s stays behind\n", m->dir);
    free(cmd);
}

static inline int munged_start(struct munged *m)
{
    struct passwd *nobody = getpwnam("nobody");
    char path[64], arg[5][96];
    int fd;

    *m = (struct munged){ .dir = "/tmp/munged.XXXXXX" };
    if (mkdtemp(m->dir) == NULL || chmod(m->dir, 0755) < 0)
        return -1;
    snprintf(m->socket, sizeof(m->socket), "%s/socket", m->dir);
    snprintf(path, sizeof(path), "%s/key", m->dir);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || write(fd, "a key of 64 bytes for one test, worth nothing anywhere else ....", 64) != 64 || close(fd) < 0)
        return -1;
    if (geteuid() == 0 && (nobody == NULL || chown(m->dir, nobody->pw_uid, nobody->pw_gid) < 0 ||
                           chown(path, nobody->pw_uid, nobody->pw_gid) < 0))
        return -1;
    snprintf(arg[0], sizeof(arg[0]), "--key-file=%s/key", m->dir);
    snprintf(arg[1], sizeof(arg[1]), "--socket=%s/socket", m->dir);
    snprintf(arg[2], sizeof(arg[2]), "--pid-file=%s/pid", m->dir);
    snprintf(arg[3], sizeof(arg[3]), "--log-file=%s/log", m->dir);
    snprintf(arg[4], sizeof(arg[4]), "--seed-file=%s/seed", m->dir);
    m->pid = fork();
    if (m->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);              /* a test that is killed leaves no daemon */
        if (geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(nobody->pw_gid) < 0 || setuid(nobody->pw_uid) < 0))
            _exit(126);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        fd = open("/dev/null", O_RDWR);
        dup2(fd, 1);
        dup2(fd, 2);
        execl("/usr/sbin/munged", "munged", "--foreground", "--force", "--num-threads=2", arg[0], arg[1], arg[2], arg[3], arg[4],
              (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000; i++) {                    /* until it serves, at most 10 s */
        struct timespec t = { 0, 10000000 };

        if (access(m->socket, F_OK) == 0)
            return 0;
        if (waitpid(m->pid, NULL, WNOHANG) != 0)
            break;
        nanosleep(&t, NULL);
    }
    munged_stop(m);
    return -1;
}

#endif
