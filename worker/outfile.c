/* outfile.c - the files of a result: written under an attempt's name, linked to the final one
 *
 * From: deliver.c, in its threads.  To: the output folder.
 * STAGE has no dot, so the names of one stem are never taken for those of another that begins alike. Whose a final name is its .json says, which is
 * linked with it: nothing of another run, job or TF counts as ours, whatever bytes it has.
 */
#include "config.h"
#include "deliver.h"

#include "file.h"
#include "mem.h"
#include "outname.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xxhash.h>

enum { STEP = 256 * 1024 };

bool deliver_stem_ok(const char *stem)
{
    if (stem == NULL || stem[0] == '\0' || strlen(stem) > 1024)
        return false;
    for (const char *p = stem; p != NULL; p = strchr(p, '/') ? strchr(p, '/') + 1 : NULL) {
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
    }
    return true;
}

/* Disks that come back by themselves: the result waits for them. */
static enum deliver_end judge(int error)
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
    case EMFILE:
    case ENFILE:
    case ENOMEM:
        return DELIVER_AGAIN_FAILING;
    default:
        return DELIVER_NEVER;
    }
}

static enum deliver_end fail(struct err *e, const char *path)
{
    enum deliver_end end = judge(errno);
    err_errno(e, ERR_FAILED, "%s", path);
    return end;
}

static char *folder_of(const char *output, const char *stem)
{
    const char *slash = strrchr(stem, '/');
    return slash ? mem_printf("%s/%.*s", output, (int)(slash - stem), stem) : mem_strdup(output);
}

static enum deliver_end sync_folder(const char *folder, struct err *e)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0) {
        enum deliver_end end = fail(e, folder);
        if (fd >= 0)
            close(fd);
        return end;
    }
    close(fd);
    return DELIVER_OK;
}

/* ---- whose a final name is ------------------------------------------------------------------------ */

enum { PROVENANCE_MOST = 1 << 20 };

static bool is_number(const json_t *j, const char *key, uint64_t value)
{
    const json_t *v = json_object_get(j, key);

    return json_is_integer(v) && (uint64_t)json_integer_value(v) == value;
}

/* NULL: there is none. */
static json_t *provenance(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    json_t *j = NULL;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= PROVENANCE_MOST)
        j = json_loadfd(fd, 0, NULL);
    if (fd >= 0)
        close(fd);
    return j;
}

/* Whether that provenance tells of this TF of this run or job. */
static bool tells_of(int dir, const char *name, struct tf_name tf)
{
    json_t *j = provenance(dir, name);
    bool ours = is_number(j, tf.run ? "run" : "job", tf.run ? tf.run : tf.job) && is_number(j, "tf", tf.id);

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

/* By the provenance beside a final name. */
static bool is_ours(int dir, const char *final, struct tf_name tf)
{
    char *path = mem_printf("%s.json", final);
    bool ours = tells_of(dir, path, tf);

    free(path);
    return ours;
}

static bool is_there(int dir, const char *name)
{
    struct stat st;

    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static enum deliver_end taken(const char *final, struct err *e)
{
    err_set(e, ERR_STATE, "%s is there already and is no result of this TF; it is left as it is", final);
    return DELIVER_TAKEN;
}

/* DELIVER_TAKEN: a file of somebody else has this name, or that of its provenance. */
static enum deliver_end look_at(int dir, const char *final, struct tf_name tf, struct err *e)
{
    char *json = mem_printf("%s.json", final);
    bool there = is_there(dir, final) || is_there(dir, json);

    free(json);
    return there && !is_ours(dir, final, tf) ? taken(final, e) : DELIVER_OK;
}

/* ---- writing ------------------------------------------------------------------------------------- */

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, data, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        data += n;
        size -= (size_t)n;
    }
    return 0;
}

/* From the sealed memory to the file. The digest is taken on the way: what reaches the disk is what was announced. */
static enum deliver_end copy(int from, int to, const struct output *o, const char *path, struct err *e)
{
    XXH3_state_t *h = XXH3_createState();
    char *step = malloc(STEP), digest[17];
    enum deliver_end end = DELIVER_OK;

    if (h == NULL || step == NULL) {
        errno = ENOMEM;
        end = fail(e, path);
    } else {
        XXH3_64bits_reset(h);
    }
    for (uint64_t at = 0; end == DELIVER_OK && at < o->size;) {
        ssize_t n = pread(from, step, o->size - at < STEP ? (size_t)(o->size - at) : STEP, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EINVAL : errno;
            end = fail(e, path);
        } else if (write_all(to, step, (size_t)n) < 0) {
            end = fail(e, path);
        } else {
            XXH3_64bits_update(h, step, (size_t)n);
            at += (uint64_t)n;
        }
    }
    if (end == DELIVER_OK) {
        snprintf(digest, sizeof digest, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(h));
        if (o->digest != NULL && strcmp(digest, o->digest) != 0) {
            err_set(e, ERR_FAILED, "%s: digest %s announced, %s found", path, o->digest, digest);
            end = DELIVER_CORRUPT;
        }
    }
    free(step);
    if (h != NULL)
        XXH3_freeState(h);
    return end;
}

/* o NULL: text. */
static enum deliver_end write_one(const char *path, const struct output *o, const char *text, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    enum deliver_end end = DELIVER_OK;

    if (fd < 0)
        return fail(e, path);
    if (o != NULL)
        end = copy(o->fd, fd, o, path, e);
    else if (write_all(fd, text, strlen(text)) < 0)
        end = fail(e, path);
    if (end == DELIVER_OK && fsync(fd) < 0)
        end = fail(e, path);
    if (close(fd) < 0 && end == DELIVER_OK)
        end = fail(e, path);
    return end;
}

static enum deliver_end make_folder(const char *folder, struct err *e)
{
    struct stat st;

    if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode))
        return DELIVER_OK;
    errno = 0;
    if (file_mkdirs(folder, 0755, e) < 0)
        return judge(errno);
    return DELIVER_OK;
}

enum deliver_end deliver_write(const char *output, const char *stem, struct tf_name tf, struct fence fence, const struct output *out, unsigned n, struct err *e)
{
    char suffix[OUTNAME_SUFFIX], *folder = folder_of(output, stem);
    enum deliver_end end = make_folder(folder, e);
    struct err ignored;

    outname_suffix(tf, fence, suffix);
    for (unsigned i = 0; i < n && end == DELIVER_OK; i++) {
        char *final = mem_printf("%s/%s.%s", output, stem, out[i].stage);
        end = look_at(AT_FDCWD, final, tf, e);
        free(final);
    }
    if (end == DELIVER_TAKEN) {
        free(folder);
        return end;
    }
    for (unsigned i = 0; i < n && end == DELIVER_OK; i++) {
        char *data = mem_printf("%s/%s.%s%s", output, stem, out[i].stage, suffix);
        char *json = mem_printf("%s/%s.%s.json%s", output, stem, out[i].stage, suffix);
        end = write_one(data, &out[i], NULL, e);
        if (end == DELIVER_OK)
            end = write_one(json, NULL, out[i].json, e);
        free(data);
        free(json);
    }
    if (end == DELIVER_OK)
        end = sync_folder(folder, e);
    if (end != DELIVER_OK)
        deliver_remove(output, stem, tf, fence, &ignored);           /* what lies there half would keep the disk full */
    free(folder);
    return end;
}

/* ---- the names of an attempt ------------------------------------------------------------------------ */

static size_t before_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), n_suffix = strlen(suffix);

    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0 ? n - n_suffix : 0;
}

/* Calls fn with the name of every file of this stem; suffix "": those under their final names, NULL: those of all tries. Stops at the first that does not end
 * well. */
static enum deliver_end each(const char *folder, const char *stem, const char *suffix, enum deliver_end (*fn)(int dir, const char *name, void *arg, struct err *e),
                             void *arg, unsigned *count, struct err *e)
{
    const char *base = strrchr(stem, '/') ? strrchr(stem, '/') + 1 : stem;
    size_t n_base = strlen(base);
    enum deliver_end end = DELIVER_OK;
    DIR *d = opendir(folder);
    struct dirent *entry;
    struct tf_name ignored;

    *count = 0;
    if (d == NULL)
        return errno == ENOENT ? DELIVER_OK : fail(e, folder);
    while (end == DELIVER_OK && (entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        size_t n = suffix ? before_suffix(name, suffix) : outname_tried(name, &ignored);
        if (n <= n_base + 1 || strncmp(name, base, n_base) != 0 || name[n_base] != '.' || !outname_is_stage(name + n_base + 1, n - n_base - 1))
            continue;
        ++*count;
        if (fn != NULL)
            end = fn(dirfd(d), name, arg, e);
    }
    closedir(d);
    return end;
}

static enum deliver_end unlink_one(int dir, const char *name, void *arg, struct err *e)
{
    (void)arg;
    return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? fail(e, name) : DELIVER_OK;
}

/* What a former release wrote says in its .json alone whose it is: of this TF, or half and without one. */
static bool is_former_of(int dir, const char *name, struct tf_name tf, bool half_too)
{
    struct tf_name whose;
    size_t n = outname_tried(name, &whose), n_final = n > 5 && strncmp(name + n - 5, ".json", 5) == 0 ? n - 5 : n;
    char *json = mem_printf("%.*s.json%s", (int)n_final, name, name + n);
    bool is = tells_of(dir, json, tf) || (half_too && !is_there(dir, json));

    free(json);
    return is;
}

static enum deliver_end unlink_former(int dir, const char *name, void *arg, struct err *e)
{
    return is_former_of(dir, name, *(struct tf_name *)arg, true) ? unlink_one(dir, name, NULL, e) : DELIVER_OK;
}

enum deliver_end deliver_remove(const char *output, const char *stem, struct tf_name tf, struct fence fence, struct err *e)
{
    char suffix[OUTNAME_SUFFIX], *folder = folder_of(output, stem);
    unsigned n;

    outname_suffix(tf, fence, suffix);
    enum deliver_end end = each(folder, stem, suffix, unlink_one, NULL, &n, e);
    outname_former(fence, suffix);
    if (end == DELIVER_OK && n == 0)
        end = each(folder, stem, suffix, unlink_former, &tf, &n, e);
    free(folder);
    return end;
}

/* ---- publishing ---------------------------------------------------------------------------------------- */

static int same_bytes(int dir, const char *a, const char *b)
{
    int fa = openat(dir, a, O_RDONLY | O_NONBLOCK | O_CLOEXEC), fb = openat(dir, b, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat sa, sb;
    char *x = malloc(2 * STEP);
    int same = fa >= 0 && fb >= 0 && x != NULL && fstat(fa, &sa) == 0 && fstat(fb, &sb) == 0 && S_ISREG(sb.st_mode) &&
               sa.st_size == sb.st_size;

    for (off_t at = 0; same && at < sa.st_size;) {
        ssize_t na = pread(fa, x, STEP, at), nb = na > 0 ? pread(fb, x + STEP, (size_t)na, at) : -1;
        same = na > 0 && na == nb && memcmp(x, x + STEP, (size_t)na) == 0;
        at += na > 0 ? na : 0;
    }
    free(x);
    if (fa >= 0)
        close(fa);
    if (fb >= 0)
        close(fb);
    return same;
}

struct publish { const char *suffix; struct tf_name tf; bool json; unsigned ours; };

/* The final name of an attempt's file; whether it is a provenance. */
static bool final_of(const struct publish *p, const char *name, char final[NAME_MAX + 1])
{
    size_t n = strlen(name) - strlen(p->suffix);

    snprintf(final, NAME_MAX + 1, "%.*s", (int)n, name);
    return n > 5 && strcmp(final + n - 5, ".json") == 0;
}

static bool same_file(int dir, const char *a, const char *b)
{
    struct stat x, y;

    return fstatat(dir, a, &x, AT_SYMLINK_NOFOLLOW) == 0 && fstatat(dir, b, &y, AT_SYMLINK_NOFOLLOW) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Before anything gets its final name: whether all of it can. Half of it may have it, from before a crash. */
static enum deliver_end look_one(int dir, const char *name, void *arg, struct err *e)
{
    const struct publish *p = arg;
    char final[NAME_MAX + 1];

    if (final_of(p, name, final) || same_file(dir, name, final))
        return DELIVER_OK;
    return look_at(dir, final, p->tf, e);
}

/* Gives the file its second name. A provenance that is there already tells of the same bytes, or of bytes that are gone. */
static enum deliver_end link_one(int dir, const char *name, void *arg, struct err *e)
{
    const struct publish *p = arg;
    char final[NAME_MAX + 1];
    bool json = final_of(p, name, final);

    if (json != p->json)
        return DELIVER_OK;
    if (linkat(dir, name, dir, final, 0) == 0)
        return DELIVER_OK;
    int error = errno;
    if (error == EPERM || error == EOPNOTSUPP || error == ENOSYS) {       /* a file system without hard links */
        if (syscall(SYS_renameat2, dir, name, dir, final, 1 /* RENAME_NOREPLACE */) == 0)
            return DELIVER_OK;
        error = errno;
    }
    if (error == EEXIST && (same_file(dir, name, final) || json))
        return DELIVER_OK;                       /* look_one saw whose it is */
    if (error == EEXIST && !is_ours(dir, final, p->tf))
        return taken(final, e);                  /* made since */
    if (error == EEXIST && same_bytes(dir, name, final))
        return DELIVER_OK;
    if (error == EEXIST) {
        err_set(e, ERR_STATE, "%s is there already, from another try at this TF and with other bytes; it is left as it is", final);
        return DELIVER_TAKEN;
    }
    errno = error;
    return fail(e, final);
}

/* Left by another try at the TF that is published under that name, whole or half: it can never be published any more. */
static bool is_left(int dir, const char *name, struct tf_name tf)
{
    struct tf_name whose;
    size_t n_try = outname_tried(name, &whose), n = n_try > 5 && strncmp(name + n_try - 5, ".json", 5) == 0 ? n_try - 5 : n_try;

    if (whose.run != 0 || whose.job != 0)
        return whose.run == tf.run && whose.job == tf.job;
    char *final = mem_printf("%.*s", (int)n, name);
    bool left = is_ours(dir, final, tf) && is_former_of(dir, name, tf, true);
    free(final);
    return left;
}

/* Our names, which have become final ones, and those of tries whose workers are dead or late. */
static enum deliver_end unlink_tried(int dir, const char *name, void *arg, struct err *e)
{
    const struct publish *p = arg;

    return before_suffix(name, p->suffix) > 0 || is_left(dir, name, p->tf) ? unlink_one(dir, name, NULL, e) : DELIVER_OK;
}

/* Of a file under its final name. */
static enum deliver_end count_ours(int dir, const char *name, void *arg, struct err *e)
{
    struct publish *p = arg;
    char final[NAME_MAX + 1];

    if (final_of(p, name, final))
        return DELIVER_OK;
    if (!is_ours(dir, final, p->tf))
        return taken(final, e);
    p->ours++;
    return DELIVER_OK;
}

/* Nothing lies under the attempt's names: it was published before. */
static enum deliver_end published_before(const char *folder, const char *stem, struct publish *p, const char *try_name, struct err *e)
{
    struct publish all = { "", p->tf, false, 0 };
    unsigned n;
    enum deliver_end end = each(folder, stem, "", count_ours, &all, &n, e);

    if (end == DELIVER_OK && all.ours == 0) {
        err_set(e, ERR_NOT_FOUND, "%s/%s: neither the files of try %s nor published ones are there", folder, stem, try_name);
        end = DELIVER_NEVER;
    }
    return end;
}

static enum deliver_end look_former(int dir, const char *name, void *arg, struct err *e)
{
    (void)e;
    return is_former_of(dir, name, *(struct tf_name *)arg, false) ? DELIVER_OK : DELIVER_TAKEN;
}

/* Accepted by a former release, and not yet published by it. */
static bool is_former(const char *folder, const char *stem, struct tf_name tf, const char *suffix)
{
    struct err ignored;
    unsigned n;

    return each(folder, stem, suffix, look_former, &tf, &n, &ignored) == DELIVER_OK && n > 0;
}

/* The suffix under which the files of a try lie. */
static void suffix_there(const char *folder, const char *stem, struct tf_name tf, struct fence fence, char suffix[OUTNAME_SUFFIX])
{
    struct err ignored;
    unsigned n;

    outname_suffix(tf, fence, suffix);
    if (each(folder, stem, suffix, NULL, NULL, &n, &ignored) != DELIVER_OK || n > 0)
        return;
    outname_former(fence, suffix);
    if (!is_former(folder, stem, tf, suffix))
        outname_suffix(tf, fence, suffix);
}

enum deliver_end deliver_publish(const char *output, const char *stem, struct tf_name tf, struct fence fence, struct err *e)
{
    char suffix[OUTNAME_SUFFIX], *folder = folder_of(output, stem);
    struct publish data = { suffix, tf, false, 0 }, json = { suffix, tf, true, 0 };
    unsigned n = 0;

    suffix_there(folder, stem, tf, fence, suffix);
    enum deliver_end end = each(folder, stem, suffix, look_one, &data, &n, e);
    if (end == DELIVER_OK && n == 0)
        end = published_before(folder, stem, &data, suffix + 2, e);
    if (end == DELIVER_OK && n > 0) {
        end = each(folder, stem, suffix, link_one, &data, &n, e);
        if (end == DELIVER_OK)
            end = each(folder, stem, suffix, link_one, &json, &n, e);
        if (end == DELIVER_OK)
            end = sync_folder(folder, e);
        if (end == DELIVER_OK)
            end = each(folder, stem, NULL, unlink_tried, &data, &n, e);
    }
    free(folder);
    return end;
}
