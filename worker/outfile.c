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
#include "str.h"

#include <ctype.h>
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

static void suffix_of(struct fence f, char out[64])
{
    snprintf(out, 64, ".a%" PRIu64 "-%" PRIu64, f.epoch, f.attempt);
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

/* Whether that provenance tells of this TF of this run or job. */
static bool tells_of(int dir, const char *name, struct tf_name tf)
{
    int fd = openat(dir, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    json_t *j = NULL;

    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= PROVENANCE_MOST)
        j = json_loadfd(fd, 0, NULL);
    bool ours = is_number(j, tf.run ? "run" : "job", tf.run ? tf.run : tf.job) && is_number(j, "tf", tf.id);
    json_decref(j);
    if (fd >= 0)
        close(fd);
    return ours;
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
    char suffix[64], *folder = folder_of(output, stem);
    enum deliver_end end = make_folder(folder, e);
    struct err ignored;

    suffix_of(fence, suffix);
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
        deliver_remove(output, stem, fence, &ignored);           /* what lies there half would keep the disk full */
    free(folder);
    return end;
}

/* ---- the names of an attempt ------------------------------------------------------------------------ */

/* "STAGE" or "STAGE.json". */
static bool is_stage(const char *text, size_t n)
{
    size_t i = 0;

    while (i < n && (islower((unsigned char)text[i]) || isdigit((unsigned char)text[i]) || text[i] == '_' || text[i] == '-'))
        i++;
    return i > 0 && (i == n || (n - i == 5 && strncmp(text + i, ".json", 5) == 0));
}

/* How much of a name comes before ".aEPOCH-ATTEMPT", whatever try that is; 0: it is no try's. */
static size_t before_try(const char *name)
{
    static const char digits[] = "0123456789";
    const char *dot = strrchr(name, '.');

    if (dot == NULL || dot[1] != 'a')
        return 0;
    size_t epoch = strspn(dot + 2, digits);
    const char *dash = dot + 2 + epoch;
    if (epoch == 0 || *dash != '-')
        return 0;
    size_t attempt = strspn(dash + 1, digits);
    return attempt == 0 || dash[1 + attempt] != '\0' ? 0 : (size_t)(dot - name);
}

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

    *count = 0;
    if (d == NULL)
        return errno == ENOENT ? DELIVER_OK : fail(e, folder);
    while (end == DELIVER_OK && (entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        size_t n = suffix ? before_suffix(name, suffix) : before_try(name);
        if (n <= n_base + 1 || strncmp(name, base, n_base) != 0 || name[n_base] != '.' || !is_stage(name + n_base + 1, n - n_base - 1))
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

enum deliver_end deliver_remove(const char *output, const char *stem, struct fence fence, struct err *e)
{
    char suffix[64], *folder = folder_of(output, stem);
    unsigned n;

    suffix_of(fence, suffix);
    enum deliver_end end = each(folder, stem, suffix, unlink_one, NULL, &n, e);
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
    size_t n_try = before_try(name), n = n_try > 5 && strncmp(name + n_try - 5, ".json", 5) == 0 ? n_try - 5 : n_try;
    char *final = mem_printf("%.*s", (int)n, name), *json = mem_printf("%s.json%s", final, name + n_try);
    bool left = is_ours(dir, final, tf) && (!is_there(dir, json) || tells_of(dir, json, tf));

    free(final);
    free(json);
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

enum deliver_end deliver_publish(const char *output, const char *stem, struct tf_name tf, struct fence fence, struct err *e)
{
    char suffix[64], *folder = folder_of(output, stem);
    struct publish data = { suffix, tf, false, 0 }, json = { suffix, tf, true, 0 };
    unsigned n = 0;

    suffix_of(fence, suffix);
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
