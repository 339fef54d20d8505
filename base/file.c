/* file.c - files and folders, sockets at paths of any length, and who is alive
 *
 * A file that is replaced is whole at every instant: written beside, synced, renamed, and the
 * folder synced, so that a power cut leaves the old or the new one.
 */
#include "config.h"

#include "file.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum err_code code_of_errno(void)
{
    switch (errno) {
    case ENOENT: return ERR_NOT_FOUND;
    case EACCES:
    case EPERM:  return ERR_PERMISSION;
    default:     return ERR_FAILED;
    }
}

/* Reads until size bytes or the end; returns the number, -1 on error. */
static ssize_t read_up_to(int fd, char *p, size_t size)
{
    size_t n = 0;

    while (n < size) {
        ssize_t r = read(fd, p + n, size - n);

        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return -1;
        if (r == 0)
            break;
        n += (size_t)r;
    }
    return (ssize_t)n;
}

char *file_read(const char *path, size_t limit, size_t *size, struct err *e)
{
    /* O_NONBLOCK: opening a FIFO must not wait for a writer; it is refused just below */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    char *text = NULL;
    size_t want;
    ssize_t n;

    if (fd < 0 || fstat(fd, &st) < 0) {
        err_errno(e, code_of_errno(), "%s", path);
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        err_set(e, ERR_FAILED, "%s: a regular file is wanted", path);
        goto fail;
    }
    if (st.st_size < 0 || (uint64_t)st.st_size > limit) {
        err_set(e, ERR_FAILED, "%s: %jd bytes, at most %zu are read", path, (intmax_t)st.st_size, limit);
        goto fail;
    }
    /* Files below /proc say size 0; one byte more than the size tells whether it grew. */
    want = st.st_size > 0 ? (size_t)st.st_size : limit < 65536 ? limit : 65536;
    text = malloc(want + 2);
    if (text == NULL) {
        err_set(e, ERR_FAILED, "%s: no memory for %zu bytes", path, want);
        goto fail;
    }
    n = read_up_to(fd, text, want + 1);
    if (n < 0) {
        err_errno(e, ERR_FAILED, "%s", path);
        goto fail;
    }
    if ((size_t)n > want) {
        err_set(e, ERR_FAILED, "%s: grows while it is read, or more than %zu bytes", path, want);
        goto fail;
    }
    close(fd);
    text[n] = '\0';
    if (size != NULL)
        *size = (size_t)n;
    return text;
fail:
    if (fd >= 0)
        close(fd);
    free(text);
    return NULL;
}

int file_write_all(int fd, const void *data, size_t size, struct err *e)
{
    const char *p = data;

    while (size > 0) {
        ssize_t n = write(fd, p, size);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_FAILED, "write");
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_printf("%.*s", (int)(slash - path), path);
}

static int sync_folder(const char *path, struct err *e)
{
    char *folder = folder_of(path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = fd < 0 || fsync(fd) < 0 ? err_errno(e, ERR_FAILED, "%s", folder) : 0;

    if (fd >= 0)
        close(fd);
    free(folder);
    return r;
}

int file_replace(const char *path, const void *data, size_t size, mode_t mode, struct err *e)
{
    char *beside = mem_printf("%s.new-%ld-XXXXXX", path, (long)getpid());
    int fd = mkostemp(beside, O_CLOEXEC), r = -1;

    if (fd < 0) {
        err_errno(e, code_of_errno(), "%s", beside);
        goto out;
    }
    if (file_write_all(fd, data, size, e) < 0)
        err_prefix(e, "%s", beside);
    else if (fchmod(fd, mode) < 0 || fsync(fd) < 0)
        err_errno(e, ERR_FAILED, "%s", beside);
    else if (rename(beside, path) < 0)
        err_errno(e, code_of_errno(), "%s", path);
    else
        r = 0;
    if (r < 0)
        unlink(beside);
    close(fd);
    if (r == 0)
        r = sync_folder(path, e);
out:
    free(beside);
    return r;
}

int file_mkdirs(const char *path, mode_t mode, struct err *e)
{
    char *part = mem_strdup(path);
    struct stat st;
    int r = 0;

    for (char *p = part + 1; r == 0 && part[0] != '\0'; p++) {
        char c = *p;

        if (c != '/' && c != '\0')
            continue;
        *p = '\0';
        if (mkdir(part, mode) < 0 && errno != EEXIST)
            r = err_errno(e, code_of_errno(), "%s", part);
        else if (stat(part, &st) < 0)
            r = err_errno(e, code_of_errno(), "%s", part);
        else if (!S_ISDIR(st.st_mode))
            r = err_set(e, ERR_FAILED, "%s: a folder is wanted and something else is there", part);
        *p = c;
        if (c == '\0')
            break;
    }
    free(part);
    return r;
}

int file_socket_address(const char *path, struct sockaddr_un *addr, socklen_t *len, int *dirfd, struct err *e)
{
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    char *folder;
    int n;

    memset(addr, 0, sizeof(*addr));
    addr->sun_family = AF_UNIX;
    *dirfd = -1;
    if (name[0] == '\0')
        return err_set(e, ERR_USAGE, "'%s' does not name a socket", path);
    if (strlen(path) < sizeof(addr->sun_path)) {
        strcpy(addr->sun_path, path);
        *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
        return 0;
    }
    folder = folder_of(path);
    *dirfd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*dirfd < 0) {
        err_errno(e, code_of_errno(), "%s", folder);
        free(folder);
        return -1;
    }
    free(folder);
    n = snprintf(addr->sun_path, sizeof(addr->sun_path), "/proc/self/fd/%d/%s", *dirfd, name);
    if (n < 0 || (size_t)n >= sizeof(addr->sun_path)) {
        close(*dirfd);
        *dirfd = -1;
        return err_set(e, ERR_USAGE, "socket %s: the name after the last '/' may have at most 80 characters", path);
    }
    *len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n + 1);
    return 0;
}

int file_set_cloexec_nonblock(int fd)
{
    int fl = fcntl(fd, F_GETFL), fdfl = fcntl(fd, F_GETFD);

    if (fl < 0 || fdfl < 0)
        return -1;
    return fcntl(fd, F_SETFL, fl | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, fdfl | FD_CLOEXEC) < 0 ? -1 : 0;
}

/* --- who lives ------------------------------------------------------------------------------ */

/* The name, after the number and in parentheses, may hold anything: the last ')' ends it. Fields 3 to 6 and 22 count. */
static int read_stat(const char *path, struct file_stat *s)
{
    char text[1024], *end;
    int fd = open(path, O_RDONLY | O_CLOEXEC), parent, session;
    ssize_t n = fd < 0 ? -1 : read_up_to(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    text[n] = '\0';
    end = strrchr(text, ')');
    if (end == NULL
        || sscanf(end + 1, " %c %d %*s %d %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64, &s->state, &parent, &session, &s->start) != 4)
        return -1;
    s->parent = parent;
    s->session = session;
    return 0;
}

int file_process_stat(pid_t pid, struct file_stat *s)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    return pid > 0 ? read_stat(path, s) : -1;
}

bool file_has_ended(const struct file_stat *s)
{
    return s->state == 'Z' || s->state == 'X' || s->state == 'x';
}

int file_thread_stat(pid_t tid, struct file_stat *s)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", (long)tid);
    return tid > 0 ? read_stat(path, s) : -1;
}

uint64_t file_process_start(pid_t pid)
{
    struct file_stat s;

    return file_process_stat(pid, &s) == 0 ? s.start : 0;
}

static char boot_id[37];

static void boot_id_load(void)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read_up_to(fd, boot_id, 36);

    if (fd >= 0)
        close(fd);
    boot_id[n > 0 ? n : 0] = '\0';
}

const char *file_boot_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, boot_id_load);
    return boot_id;
}

int file_owner_self(struct file_owner *o, struct err *e)
{
    memset(o, 0, sizeof(*o));
    o->pid = getpid();
    o->start = file_process_start(o->pid);
    snprintf(o->boot_id, sizeof(o->boot_id), "%s", file_boot_id());
    if (o->start == 0 || o->boot_id[0] == '\0')
        return err_set(e, ERR_FAILED, "/proc does not tell the start of process %ld or the boot id", (long)o->pid);
    return 0;
}

int file_owner_alive(const struct file_owner *o)
{
    struct file_stat s;

    if (strncmp(o->boot_id, file_boot_id(), sizeof(o->boot_id)) != 0)
        return 0;
    return file_process_stat(o->pid, &s) == 0 && s.start == o->start && !file_has_ended(&s);
}

static void end_stdout(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return;
    fprintf(stderr, "%s: standard output: %s\n", program_invocation_short_name, strerror(errno));
    _exit(ERR_FAILED);
}

void file_watch_stdout(void)
{
    atexit(end_stdout);
}
