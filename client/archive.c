/* archive.c - blocks of 512 bytes: a head and the data of each file, two empty ones at the end */
#include "config.h"

#include "archive.h"

#include "clock.h"
#include "file.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 512 };

struct archive { char *path; int fd; };

/* POSIX.1-1988 ustar; numbers are octal text. */
struct head {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100], magic[6], version[2];
    char user[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
_Static_assert(sizeof(struct head) == BLOCK, "a head is a block");

struct archive *archive_create(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    struct archive *a;

    if (fd < 0)
        return err_errno(e, ERR_FAILED, "%s", path), NULL;
    a = mem_zalloc(sizeof(*a));
    a->path = mem_strdup(path);
    a->fd = fd;
    return a;
}

int archive_add(struct archive *a, const char *name, const void *data, size_t size, struct err *e)
{
    static const char zeros[BLOCK];
    struct head h = { .type = '0', .magic = "ustar", .version = { '0', '0' } };
    unsigned sum = 0;

    if (strlen(name) > sizeof(h.name) || size > UINT32_MAX)
        return err_set(e, ERR_FAILED, "%s: %zu bytes are not for an archive", name, size);
    memcpy(h.name, name, strlen(name));
    snprintf(h.mode, sizeof(h.mode), "%07o", 0644u);
    snprintf(h.uid, sizeof(h.uid), "%07o", 0u);
    snprintf(h.gid, sizeof(h.gid), "%07o", 0u);
    snprintf(h.size, sizeof(h.size), "%011llo", (unsigned long long)size);
    snprintf(h.mtime, sizeof(h.mtime), "%011llo", (unsigned long long)(clock_wall_ns() / CLOCK_SECOND));
    memset(h.sum, ' ', sizeof(h.sum));
    for (size_t i = 0; i < sizeof(h); i++)
        sum += ((const unsigned char *)&h)[i];
    snprintf(h.sum, sizeof(h.sum), "%06o", sum);
    if (file_write_all(a->fd, &h, sizeof(h), e) < 0 || file_write_all(a->fd, data, size, e) < 0
        || file_write_all(a->fd, zeros, (BLOCK - size % BLOCK) % BLOCK, e) < 0)
        return err_prefix(e, "%s", a->path);
    return 0;
}

int archive_finish(struct archive *a, struct err *e)
{
    static const char zeros[2 * BLOCK];
    int r;

    if (a == NULL)
        return 0;
    r = file_write_all(a->fd, zeros, sizeof(zeros), e) < 0 ? err_prefix(e, "%s", a->path) : 0;
    if (r == 0 && fsync(a->fd) < 0)
        r = err_errno(e, ERR_FAILED, "%s", a->path);
    close(a->fd);
    free(a->path);
    free(a);
    return r;
}
