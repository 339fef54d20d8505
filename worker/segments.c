/* segments.c - every shared file a node's workers ever made
 *
 * From: buffer.c.  To: -.
 * A file is removed only with its lock in hand: a worker that lives holds it.
 */
#include "config.h"
#include "segments.h"

#include "file.h"
#include "log.h"
#include "mem.h"
#include "shm_layout.h"
#include "str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LIST_LIMIT = 1 << 20 };

static char *list_path(const char *run_dir)
{
    return mem_printf("%s/segments", run_dir);
}

int segments_ours(const struct shm_head *h, const char *farm, const char *node)
{
    return h->magic == SHM_MAGIC && h->version == SHM_VERSION && h->head_size == sizeof *h &&
           strncmp(h->farm, farm, sizeof h->farm) == 0 && strncmp(h->node, node, sizeof h->node) == 0;
}

int segments_owner_alive(const struct shm_head *h)
{
    struct file_owner o = { .pid = (pid_t)h->owner_pid, .start = h->owner_start };
    memcpy(o.boot_id, h->owner_boot, sizeof o.boot_id - 1);
    return file_owner_alive(&o);
}

/* 1: it was removed; 0: nothing is there; -1: it stays, why is in the log. */
static int segment_remove(const char *path, const char *farm, const char *node, uint64_t *freed)
{
    struct shm_head h;
    struct stat st;
    int rc = -1, fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
        log_warning("segment %s: left alone, it is not a file of this user", path);
    else if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        log_warning("segment %s: left alone, a process holds it", path);
    else if (pread(fd, &h, sizeof h, 0) != (ssize_t)sizeof h || !segments_ours(&h, farm, node))
        log_warning("segment %s: left alone, it is no buffer of node %s", path, node);
    else if (segments_owner_alive(&h))
        log_warning("segment %s: left alone, its owner pid %llu lives", path, (unsigned long long)h.owner_pid);
    else if (unlink(path) < 0)
        log_warning("segment %s: cannot be removed: %s", path, strerror(errno));
    else {
        rc = 1;
        *freed += (uint64_t)st.st_blocks * 512;
        log_info("segment %s: removed, its owner pid %llu is gone", path, (unsigned long long)h.owner_pid);
    }
    if (fd >= 0)
        close(fd);
    return rc;
}

static int list_read(const char *file, char **text, struct err *e)
{
    size_t size;

    *text = NULL;
    if (access(file, F_OK) < 0 && errno == ENOENT)
        return 0;
    *text = file_read(file, LIST_LIMIT, &size, e);
    return *text ? 0 : -1;
}

int segments_take_over(const char *run_dir, const char *farm, const char *node, const char *keep, uint64_t *freed,
                       unsigned *removed, struct err *e)
{
    char *file = list_path(run_dir), *text, *save = NULL;
    struct str out = { 0 };
    int rc = list_read(file, &text, e);

    *freed = 0;
    *removed = 0;
    str_addf(&out, "%s\n", keep);
    for (char *path = text ? strtok_r(text, "\n", &save) : NULL; path != NULL; path = strtok_r(NULL, "\n", &save)) {
        if (strcmp(path, keep) == 0)
            continue;
        int gone = segment_remove(path, farm, node, freed);
        if (gone < 0)
            str_addf(&out, "%s\n", path);
        *removed += gone > 0;
    }
    if (rc == 0)
        rc = file_replace(file, str_text(&out), out.len, 0600, e);
    str_free(&out);
    free(text);
    free(file);
    return rc;
}

int segments_forget(const char *run_dir, const char *path, struct err *e)
{
    char *file = list_path(run_dir), *text, *save = NULL;
    struct str out = { 0 };
    int rc = list_read(file, &text, e);

    for (char *line = text ? strtok_r(text, "\n", &save) : NULL; line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (strcmp(line, path) != 0)
            str_addf(&out, "%s\n", line);
    }
    if (rc == 0 && out.len == 0) {
        if (unlink(file) < 0 && errno != ENOENT)
            rc = err_errno(e, ERR_FAILED, "%s cannot be removed", file);
    } else if (rc == 0) {
        rc = file_replace(file, str_text(&out), out.len, 0600, e);
    }
    str_free(&out);
    free(text);
    free(file);
    return rc;
}
