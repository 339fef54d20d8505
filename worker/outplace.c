/* outplace.c - the folder of a result, opened once: what lies there, whose it is, and what its disk's errors mean
 *
 * From: outfile.c (writes), outpublish.c (links), in threads of deliver.c.  To: the output folder.
 */
#include "config.h"
#include "outplace.h"

#include "file.h"
#include "mem.h"
#include "outname.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Disks that come back by themselves: the result waits for them. */
enum deliver_end deliver_judge(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return DELIVER_AGAIN_FULL;
    case EROFS:
        return DELIVER_AGAIN_READONLY;
    case EACCES:
    case EPERM:
        return DELIVER_DENIED;
    case EIO:
    case ESTALE:
    case ETIMEDOUT:
    case ENODEV:
    case ENOTCONN:                               /* and these: who serves it has died or gone (FUSE, Lustre, NFS) */
    case ECONNABORTED:
    case ECONNREFUSED:
    case ECONNRESET:
    case ESHUTDOWN:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case EREMOTEIO:
    case EAGAIN:
    case EINTR:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return DELIVER_AGAIN_FAILING;
    default:
        return DELIVER_NEVER;
    }
}

enum deliver_end place_fail(struct err *e, const char *path)
{
    enum deliver_end end = deliver_judge(errno);
    err_errno(e, ERR_FAILED, "%s", path);
    return end;
}

static bool is_to_be_waited_for(enum deliver_end end)
{
    return end == DELIVER_AGAIN_FULL || end == DELIVER_AGAIN_READONLY || end == DELIVER_AGAIN_FAILING;
}

void place_found_nothing(struct place *p)
{
    if (is_to_be_waited_for(deliver_judge(errno)))
        p->trouble = errno;
}

static enum deliver_end make_folder(const char *folder, struct err *e)
{
    struct stat st;

    if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode))
        return DELIVER_OK;
    errno = 0;
    if (file_mkdirs(folder, 0755, e) < 0)
        return deliver_judge(errno);
    return DELIVER_OK;
}

enum deliver_end place_open(struct place *p, const char *output, const char *stem, bool make, struct err *e)
{
    const char *slash = strrchr(stem, '/');
    enum deliver_end end = DELIVER_OK;

    p->folder = slash ? mem_printf("%s/%.*s", output, (int)(slash - stem), stem) : mem_strdup(output);
    p->base = slash ? slash + 1 : stem;
    p->fd = -1;
    p->error = p->trouble = 0;
    if (make)
        end = make_folder(p->folder, e);
    if (end == DELIVER_OK && (p->fd = open(p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0) {
        p->error = errno;
        end = place_fail(e, p->folder);
    }
    return end;
}

void place_close(struct place *p)
{
    if (p->fd >= 0)
        close(p->fd);
    free(p->folder);
}

enum deliver_end place_fail_at(struct place *p, const char *name, struct err *e)
{
    enum deliver_end end = deliver_judge(errno);
    err_errno(e, ERR_FAILED, "%s/%s", p->folder, name);
    return end;
}

enum deliver_end place_sync(struct place *p, struct err *e)
{
    return fsync(p->fd) < 0 ? place_fail(e, p->folder) : DELIVER_OK;
}

bool place_is_there(struct place *p)
{
    struct stat now, then;

    if (stat(p->folder, &now) == 0 && fstat(p->fd, &then) == 0)
        return now.st_dev == then.st_dev && now.st_ino == then.st_ino;
    place_found_nothing(p);
    return false;
}

/* Of a folder, or where it would be made. 0: it cannot be told. */
static dev_t disk_of(const char *folder)
{
    char *path = mem_strdup(folder), *slash;
    struct stat st = { 0 };

    while (stat(path, &st) < 0 && errno == ENOENT && (slash = strrchr(path, '/')) != NULL && slash > path)
        *slash = '\0';
    free(path);
    return st.st_dev;
}

enum deliver_end place_unless_away(struct place *p, dev_t disk, enum deliver_end end, struct err *e)
{
    if (end != DELIVER_NEVER && end != DELIVER_TAKEN)
        return end;
    if (p->trouble != 0) {
        errno = p->trouble;
        return place_fail(e, p->folder);
    }
    if (disk == 0 || disk_of(p->folder) == disk)
        return end;
    err_set(e, ERR_STATE, "%s: the file system where the result was written is not mounted there", p->folder);
    return DELIVER_AGAIN_FAILING;
}

/* ---- whose a final name is ------------------------------------------------------------------------ */

enum { PROVENANCE_MOST = 1 << 20 };

static bool is_number(const json_t *j, const char *key, uint64_t value)
{
    const json_t *v = json_object_get(j, key);

    return json_is_integer(v) && (uint64_t)json_integer_value(v) == value;
}

/* NULL: there is none, or errno says why it cannot be read. */
static json_t *provenance(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    json_t *j = NULL;

    if (fd < 0)
        return NULL;
    errno = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= PROVENANCE_MOST)
        j = json_loadfd(fd, 0, NULL);
    int error = errno;
    close(fd);
    errno = error;
    return j;
}

json_t *place_provenance(struct place *p, const char *name)
{
    json_t *j = provenance(p->fd, name);

    if (j == NULL)
        place_found_nothing(p);
    return j;
}

bool provenance_names(const json_t *j, struct tf_name tf)
{
    return is_number(j, tf.run ? "run" : "job", tf.run ? tf.run : tf.job) && is_number(j, "tf", tf.id);
}

/* Whether that provenance tells of this TF of this run or job. */
static bool tells_of(struct place *p, const char *name, struct tf_name tf)
{
    json_t *j = place_provenance(p, name);
    bool ours = provenance_names(j, tf);

    json_decref(j);
    return ours;
}

uint64_t deliver_job_of(int dir, const char *name)
{
    json_t *j = provenance(dir, name);
    json_int_t job = json_integer_value(json_object_get(j, "job"));

    json_decref(j);
    return job > 0 ? (uint64_t)job : 0;
}

bool place_is_ours(struct place *p, const char *final, struct tf_name tf)
{
    char *path = mem_printf("%s.json", final);
    bool ours = tells_of(p, path, tf);

    free(path);
    return ours;
}

bool place_has(struct place *p, const char *name)
{
    struct stat st;

    if (fstatat(p->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    place_found_nothing(p);
    return false;
}

enum deliver_end place_taken(struct place *p, const char *final, struct err *e)
{
    err_set(e, ERR_STATE, "%s/%s is there already and is no result of this TF; it is left as it is", p->folder, final);
    return DELIVER_TAKEN;
}

enum deliver_end place_look_at(struct place *p, const char *final, struct tf_name tf, struct err *e)
{
    char *json = mem_printf("%s.json", final);
    bool there = place_has(p, final) || place_has(p, json);

    free(json);
    return there && !place_is_ours(p, final, tf) ? place_taken(p, final, e) : DELIVER_OK;
}

/* ---- the names of an attempt ------------------------------------------------------------------------ */

size_t place_before_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), n_suffix = strlen(suffix);

    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0 ? n - n_suffix : 0;
}

/* A descriptor of its own, read from the beginning. */
static DIR *names_open(struct place *p)
{
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL && fd >= 0)
        close(fd);
    return d;
}

enum deliver_end place_each(struct place *p, const char *suffix, place_fn *fn, void *arg, unsigned *count, struct err *e)
{
    size_t n_base = strlen(p->base);
    enum deliver_end end = DELIVER_OK;
    DIR *d = names_open(p);
    struct dirent *entry;
    struct tf_name ignored;

    *count = 0;
    if (d == NULL)
        return place_fail(e, p->folder);
    while (end == DELIVER_OK && (errno = 0, entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        size_t n = suffix ? place_before_suffix(name, suffix) : outname_tried(name, &ignored);
        if (n <= n_base + 1 || strncmp(name, p->base, n_base) != 0 || name[n_base] != '.' || !outname_is_stage(name + n_base + 1, n - n_base - 1))
            continue;
        ++*count;
        if (fn != NULL)
            end = fn(p, name, arg, e);
    }
    if (end == DELIVER_OK && errno != 0)
        end = place_fail(e, p->folder);
    closedir(d);
    return end;
}

enum deliver_end place_unlink(struct place *p, const char *name, void *arg, struct err *e)
{
    (void)arg;
    return unlinkat(p->fd, name, 0) < 0 && errno != ENOENT ? place_fail_at(p, name, e) : DELIVER_OK;
}

void place_remove_try(struct place *p, const char *suffix)
{
    struct err ignored;
    unsigned n;

    place_each(p, suffix, place_unlink, NULL, &n, &ignored);
}

bool place_is_former_of(struct place *p, const char *name, struct tf_name tf, bool half_too)
{
    struct tf_name whose;
    size_t n = outname_tried(name, &whose), n_final = n > 5 && strncmp(name + n - 5, ".json", 5) == 0 ? n - 5 : n;
    char *json = mem_printf("%.*s.json%s", (int)n_final, name, name + n);
    bool is = tells_of(p, json, tf) || (half_too && !place_has(p, json));

    free(json);
    return is;
}
