/* guard.c - is the state folder fit for a database, and is it ours alone?
 *
 * From: db.c, rescue.c.  To: nothing is written but the lock file.
 * SQLite's write-ahead log needs shared memory and locks that only one machine can give: on a network file system it
 * would work until two machines, or a server's restart, spoil it. So those are refused by the kernel's name for them.
 */
#include "config.h"
#include "db_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

/* Numbers of statfs(2); the ones that linux/magic.h lacks are those of the file systems' own sources. */
static const struct { uint32_t magic; const char *name; } network[] = {
    { 0x00006969, "NFS" },       { 0x0000517b, "SMB" },        { 0xff534d42, "CIFS" },
    { 0xfe534d42, "SMB2" },      { 0x0bd00bd0, "Lustre" },     { 0x47504653, "GPFS" },
    { 0x00c36400, "CephFS" },    { 0x01021997, "9p" },         { 0x5346414f, "AFS" },
    { 0x6b414653, "AFS" },       { 0x73757245, "Coda" },       { 0x19830326, "BeeGFS" },
    { 0x20030528, "PVFS2" },     { 0xaad7aaea, "PanFS" },      { 0x7461636f, "OCFS2" },
    { 0x01161970, "GFS2" },      { 0x0000564c, "NCP" },        { 0x786f4256, "vboxsf" },
    { 0xbacbacbc, "VMHGFS" },
};
enum { MAGIC_FUSE = 0x65735546 };

/* FUSE carries local disks as well as network mounts and does not say which: the mount table's type does. */
static void fuse_type(const char *dir, char *out, size_t size)
{
    snprintf(out, size, "fuse");
    struct stat st;
    FILE *f = stat(dir, &st) == 0 ? fopen("/proc/self/mountinfo", "re") : NULL;
    if (f == NULL)
        return;
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, f) > 0) {
        unsigned maj, min;
        const char *dash = strstr(line, " - ");
        if (dash && sscanf(line, "%*d %*d %u:%u", &maj, &min) == 2 && makedev(maj, min) == st.st_dev) {
            int len = (int)strcspn(dash + 3, " \n");
            snprintf(out, size, "%.*s", len, dash + 3);
        }
    }
    free(line);
    fclose(f);
}

static const char *network_name(const char *dir, uint32_t magic, char fuse[64])
{
    for (size_t i = 0; i < ARRAY_LEN(network); i++) {
        if (network[i].magic == magic)
            return network[i].name;
    }
    if (magic != MAGIC_FUSE)
        return NULL;
    fuse_type(dir, fuse, 64);
    return strcmp(fuse, "fuseblk") == 0 || strcmp(fuse, "fuse.fuse-overlayfs") == 0 ? NULL : fuse;
}

int guard_filesystem(const char *dir, const struct db_hooks *hooks, struct err *e)
{
    struct statfs fs = { 0 };
    int rc = hooks && hooks->statfs ? hooks->statfs(dir, &fs) : statfs(dir, &fs);
    if (rc < 0)
        return err_errno(e, ERR_FAILED, "state folder %s", dir);
    char fuse[64];
    const char *name = network_name(dir, (uint32_t)fs.f_type, fuse);
    if (name)
        return err_set(e, ERR_STATE, "state folder %s lies on a network file system (%s), where the database could be spoiled: "
                       "set state_dir to a folder on a local disk", dir, name);
    return 0;
}

static long lock_pid(int fd)
{
    char text[32] = "";
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

/* The owner writes its pid right after it took the lock: a moment's patience for that. */
static int lock_refused(int fd, const char *dir, struct err *e)
{
    long pid = lock_pid(fd);
    for (int i = 0; i < 20 && pid <= 0; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
        pid = lock_pid(fd);
    }
    close(fd);
    return err_set(e, ERR_STATE, "sluiced is already running, pid %ld, on the state folder %s", pid, dir);
}

/* The lock is the kernel's and ends with the process, so that a file left behind by a dead one means nothing. */
int guard_lock(const char *dir, struct err *e)
{
    char *path = db_path(dir, "state.lock");
    int fd = -1;
    struct stat ours, there;
    for (int i = 0; i < 10; i++) {
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            break;
        if (fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino)
            goto locked;
        close(fd);                          /* somebody removed it between open and lock */
        fd = -1;
        errno = EAGAIN;
    }
    int error = errno;
    if (fd >= 0 && error == EWOULDBLOCK)
        lock_refused(fd, dir, e);
    else {
        if (fd >= 0)
            close(fd);
        errno = error;
        err_errno(e, ERR_FAILED, "cannot lock %s", path);
    }
    free(path);
    return -1;
locked:
    free(path);
    char text[32];
    int len = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* on a full disk the pid may not fit; the lock holds all the same */
    if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)len, 0) != len)
        return fd;
    return fd;
}

/* Opening the file to ask fcntl would, at its close, drop the locks SQLite holds in this process: the kernel's table is read instead. */
void guard_lock_holder(const char *path, char *out, size_t size)
{
    snprintf(out, size, "another process");
    struct stat st;
    FILE *f = stat(path, &st) == 0 ? fopen("/proc/locks", "re") : NULL;
    if (f == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof line, f)) {
        long pid;
        unsigned maj, min;
        unsigned long long inode;
        if (strstr(line, "WRITE") == NULL ||
            sscanf(line, "%*s %*s %*s %*s %ld %x:%x:%llu", &pid, &maj, &min, &inode) != 4 ||
            inode != st.st_ino || makedev(maj, min) != st.st_dev || pid <= 0 || pid == getpid())
            continue;
        char name[64] = "", comm[64] = "process";
        snprintf(name, sizeof name, "/proc/%ld/comm", pid);
        FILE *c = fopen(name, "re");
        if (c && fgets(comm, sizeof comm, c))
            comm[strcspn(comm, "\n")] = '\0';
        if (c)
            fclose(c);
        snprintf(out, size, "%.40s, pid %ld", comm, pid);
        break;
    }
    fclose(f);
}
