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

static enum deliver_end fail(struct err *e, const char *path)
{
    enum deliver_end end = deliver_judge(errno);
    err_errno(e, ERR_FAILED, "%s", path);
    return end;
}

/* The folder of one TF's files as it was opened: what becomes of its name meanwhile does not spread them over two. */
struct place {
    char *folder; const char *base;
    int fd, error;
    int trouble;                                 /* the disk's, met while it was looked at: what is not seen then may be there all the same */
};

static bool is_to_be_waited_for(enum deliver_end end)
{
    return end == DELIVER_AGAIN_FULL || end == DELIVER_AGAIN_READONLY || end == DELIVER_AGAIN_FAILING;
}

/* After a call that found nothing: whether there is nothing, or the disk did not say. */
static void found_nothing(struct place *p)
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

static enum deliver_end place_open(struct place *p, const char *output, const char *stem, bool make, struct err *e)
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
        end = fail(e, p->folder);
    }
    return end;
}

static void place_close(struct place *p)
{
    if (p->fd >= 0)
        close(p->fd);
    free(p->folder);
}

static enum deliver_end fail_at(struct place *p, const char *name, struct err *e)
{
    enum deliver_end end = deliver_judge(errno);
    err_errno(e, ERR_FAILED, "%s/%s", p->folder, name);
    return end;
}

static enum deliver_end place_sync(struct place *p, struct err *e)
{
    return fsync(p->fd) < 0 ? fail(e, p->folder) : DELIVER_OK;
}

/* Whether its name still leads there. */
static bool is_in_place(struct place *p)
{
    struct stat now, then;

    if (stat(p->folder, &now) == 0 && fstat(p->fd, &then) == 0)
        return now.st_dev == then.st_dev && now.st_ino == then.st_ino;
    found_nothing(p);
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

/* What was found is believed of a disk alone that answers, and of the one where the result was written: a file system that is mounted over the folder, or not
 * mounted for a while, is no reason to give a result up. */
static enum deliver_end unless_away(struct place *p, dev_t disk, enum deliver_end end, struct err *e)
{
    if (end != DELIVER_NEVER && end != DELIVER_TAKEN)
        return end;
    if (p->trouble != 0) {
        errno = p->trouble;
        return fail(e, p->folder);
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

static json_t *provenance_in(struct place *p, const char *name)
{
    json_t *j = provenance(p->fd, name);

    if (j == NULL)
        found_nothing(p);
    return j;
}

static bool names_tf(const json_t *j, struct tf_name tf)
{
    return is_number(j, tf.run ? "run" : "job", tf.run ? tf.run : tf.job) && is_number(j, "tf", tf.id);
}

/* Whether that provenance tells of this TF of this run or job. */
static bool tells_of(struct place *p, const char *name, struct tf_name tf)
{
    json_t *j = provenance_in(p, name);
    bool ours = names_tf(j, tf);

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
static bool is_ours(struct place *p, const char *final, struct tf_name tf)
{
    char *path = mem_printf("%s.json", final);
    bool ours = tells_of(p, path, tf);

    free(path);
    return ours;
}

static bool is_there(struct place *p, const char *name)
{
    struct stat st;

    if (fstatat(p->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    found_nothing(p);
    return false;
}

static enum deliver_end taken(struct place *p, const char *final, struct err *e)
{
    err_set(e, ERR_STATE, "%s/%s is there already and is no result of this TF; it is left as it is", p->folder, final);
    return DELIVER_TAKEN;
}

/* DELIVER_TAKEN: a file of somebody else has this name, or that of its provenance. */
static enum deliver_end look_at(struct place *p, const char *final, struct tf_name tf, struct err *e)
{
    char *json = mem_printf("%s.json", final);
    bool there = is_there(p, final) || is_there(p, json);

    free(json);
    return there && !is_ours(p, final, tf) ? taken(p, final, e) : DELIVER_OK;
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
static enum deliver_end copy(int from, int to, const struct output *o, struct place *p, const char *name, struct err *e)
{
    XXH3_state_t *h = XXH3_createState();
    char *step = malloc(STEP), digest[17];
    enum deliver_end end = DELIVER_OK;

    if (h == NULL || step == NULL) {
        errno = ENOMEM;
        end = fail_at(p, name, e);
    } else {
        XXH3_64bits_reset(h);
    }
    for (uint64_t at = 0; end == DELIVER_OK && at < o->size;) {
        ssize_t n = pread(from, step, o->size - at < STEP ? (size_t)(o->size - at) : STEP, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EINVAL : errno;
            end = fail_at(p, name, e);
        } else if (write_all(to, step, (size_t)n) < 0) {
            end = fail_at(p, name, e);
        } else {
            XXH3_64bits_update(h, step, (size_t)n);
            at += (uint64_t)n;
        }
    }
    if (end == DELIVER_OK) {
        snprintf(digest, sizeof digest, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(h));
        if (o->digest != NULL && strcmp(digest, o->digest) != 0) {
            err_set(e, ERR_FAILED, "%s/%s: digest %s announced, %s found", p->folder, name, o->digest, digest);
            end = DELIVER_CORRUPT;
        }
    }
    free(step);
    if (h != NULL)
        XXH3_freeState(h);
    return end;
}

/* o NULL: text. */
static enum deliver_end write_one(struct place *p, const char *name, const struct output *o, const char *text, struct err *e)
{
    int fd = openat(p->fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0644);
    enum deliver_end end = DELIVER_OK;

    if (fd < 0)
        return fail_at(p, name, e);
    if (o != NULL)
        end = copy(o->fd, fd, o, p, name, e);
    else if (write_all(fd, text, strlen(text)) < 0)
        end = fail_at(p, name, e);
    if (end == DELIVER_OK && fsync(fd) < 0)
        end = fail_at(p, name, e);
    if (close(fd) < 0 && end == DELIVER_OK)
        end = fail_at(p, name, e);
    return end;
}

static enum deliver_end write_output(struct place *p, const struct output *o, const char *suffix, struct err *e)
{
    char *data = mem_printf("%s.%s%s", p->base, o->stage, suffix), *json = mem_printf("%s.%s.json%s", p->base, o->stage, suffix);
    enum deliver_end end = write_one(p, data, o, NULL, e);

    if (end == DELIVER_OK)
        end = write_one(p, json, NULL, o->json, e);
    free(data);
    free(json);
    return end;
}

static enum deliver_end look_at_finals(struct place *p, struct tf_name tf, const struct output *out, unsigned n, struct err *e)
{
    enum deliver_end end = DELIVER_OK;

    for (unsigned i = 0; i < n && end == DELIVER_OK; i++) {
        char *final = mem_printf("%s.%s", p->base, out[i].stage);
        end = look_at(p, final, tf, e);
        free(final);
    }
    return end;
}

static void remove_try(struct place *p, const char *suffix);

enum deliver_end deliver_write(const char *output, const char *stem, struct tf_name tf, struct fence fence, const struct output *out, unsigned n, dev_t *disk,
                               struct err *e)
{
    char suffix[OUTNAME_SUFFIX];
    struct place p;
    struct stat st;
    enum deliver_end end = place_open(&p, output, stem, true, e);

    outname_suffix(tf, fence, suffix);
    if (end == DELIVER_OK)
        end = unless_away(&p, 0, look_at_finals(&p, tf, out, n, e), e);
    if (end != DELIVER_OK) {
        place_close(&p);
        return end;
    }
    for (unsigned i = 0; i < n && end == DELIVER_OK; i++)
        end = write_output(&p, &out[i], suffix, e);
    if (end == DELIVER_OK)
        end = place_sync(&p, e);
    if ((end == DELIVER_OK || end == DELIVER_NEVER) && !is_in_place(&p)) {
        err_set(e, ERR_STATE, "%s was moved or removed, or another file system mounted there, while a result was written", p.folder);
        end = DELIVER_AGAIN_FAILING;             /* the result is still in memory */
    }
    if (end != DELIVER_OK)
        remove_try(&p, suffix);                  /* what lies there half would keep the disk full */
    *disk = end == DELIVER_OK && fstat(p.fd, &st) == 0 ? st.st_dev : 0;
    place_close(&p);
    return end;
}

/* ---- the names of an attempt ------------------------------------------------------------------------ */

static size_t before_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), n_suffix = strlen(suffix);

    return n > n_suffix && strcmp(name + n - n_suffix, suffix) == 0 ? n - n_suffix : 0;
}

typedef enum deliver_end each_fn(struct place *p, const char *name, void *arg, struct err *e);

/* A descriptor of its own, read from the beginning. */
static DIR *names_open(struct place *p)
{
    int fd = openat(p->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);

    if (d == NULL && fd >= 0)
        close(fd);
    return d;
}

/* Calls fn with the name of every file of this stem; suffix "": those under their final names, NULL: those of all tries. Stops at the first that does not end
 * well. */
static enum deliver_end each(struct place *p, const char *suffix, each_fn *fn, void *arg, unsigned *count, struct err *e)
{
    size_t n_base = strlen(p->base);
    enum deliver_end end = DELIVER_OK;
    DIR *d = names_open(p);
    struct dirent *entry;
    struct tf_name ignored;

    *count = 0;
    if (d == NULL)
        return fail(e, p->folder);
    while (end == DELIVER_OK && (errno = 0, entry = readdir(d)) != NULL) {
        const char *name = entry->d_name;
        size_t n = suffix ? before_suffix(name, suffix) : outname_tried(name, &ignored);
        if (n <= n_base + 1 || strncmp(name, p->base, n_base) != 0 || name[n_base] != '.' || !outname_is_stage(name + n_base + 1, n - n_base - 1))
            continue;
        ++*count;
        if (fn != NULL)
            end = fn(p, name, arg, e);
    }
    if (end == DELIVER_OK && errno != 0)
        end = fail(e, p->folder);
    closedir(d);
    return end;
}

static enum deliver_end unlink_one(struct place *p, const char *name, void *arg, struct err *e)
{
    (void)arg;
    return unlinkat(p->fd, name, 0) < 0 && errno != ENOENT ? fail_at(p, name, e) : DELIVER_OK;
}

static void remove_try(struct place *p, const char *suffix)
{
    struct err ignored;
    unsigned n;

    each(p, suffix, unlink_one, NULL, &n, &ignored);
}

/* What a former release wrote says in its .json alone whose it is: of this TF, or half and without one. */
static bool is_former_of(struct place *p, const char *name, struct tf_name tf, bool half_too)
{
    struct tf_name whose;
    size_t n = outname_tried(name, &whose), n_final = n > 5 && strncmp(name + n - 5, ".json", 5) == 0 ? n - 5 : n;
    char *json = mem_printf("%.*s.json%s", (int)n_final, name, name + n);
    bool is = tells_of(p, json, tf) || (half_too && !is_there(p, json));

    free(json);
    return is;
}

static enum deliver_end unlink_former(struct place *p, const char *name, void *arg, struct err *e)
{
    return is_former_of(p, name, *(struct tf_name *)arg, true) ? unlink_one(p, name, NULL, e) : DELIVER_OK;
}

enum deliver_end deliver_remove(const char *output, const char *stem, struct tf_name tf, struct fence fence, struct err *e)
{
    char suffix[OUTNAME_SUFFIX];
    struct place p;
    enum deliver_end end = place_open(&p, output, stem, false, e);
    bool gone = p.error == ENOENT;
    unsigned n = 0;

    outname_suffix(tf, fence, suffix);
    if (end == DELIVER_OK)
        end = each(&p, suffix, unlink_one, NULL, &n, e);
    outname_former(fence, suffix);
    if (end == DELIVER_OK && n == 0)
        end = each(&p, suffix, unlink_former, &tf, &n, e);
    place_close(&p);
    return gone ? DELIVER_OK : end;
}

/* ---- publishing ---------------------------------------------------------------------------------------- */

static bool same_bytes(struct place *p, const char *a, const char *b)
{
    int fa = openat(p->fd, a, O_RDONLY | O_NONBLOCK | O_CLOEXEC), fb = fa < 0 ? -1 : openat(p->fd, b, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat sa, sb;
    char *x = malloc(2 * STEP);
    bool same = fa >= 0 && fb >= 0 && x != NULL && fstat(fa, &sa) == 0 && fstat(fb, &sb) == 0 && S_ISREG(sb.st_mode) &&
               sa.st_size == sb.st_size;

    for (off_t at = 0; same && at < sa.st_size;) {
        ssize_t na = pread(fa, x, STEP, at), nb = na > 0 ? pread(fb, x + STEP, (size_t)na, at) : -1;
        if (na < 0 || (na > 0 && nb < 0))
            found_nothing(p);
        same = na > 0 && na == nb && memcmp(x, x + STEP, (size_t)na) == 0;
        at += na > 0 ? na : 0;
    }
    if (fa < 0 || fb < 0 || x == NULL)
        found_nothing(p);
    free(x);
    if (fa >= 0)
        close(fa);
    if (fb >= 0)
        close(fb);
    return same;
}

/* What is to be published: exactly the outputs that were delivered. Which these are each of their provenances says. */
struct publish {
    char suffix[OUTNAME_SUFFIX];
    struct tf_name tf;
    char stage[OUTPUTS_MOST][OUTPUT_STAGE];
    unsigned n;
    bool has_name[OUTPUTS_MOST][2];              /* given here and now: of the data, of the provenance */
};

static const char *const ending[2] = { "", ".json" };

static bool same_file(struct place *p, const char *a, const char *b)
{
    struct stat x, y;

    if (fstatat(p->fd, a, &x, AT_SYMLINK_NOFOLLOW) == 0 && fstatat(p->fd, b, &y, AT_SYMLINK_NOFOLLOW) == 0)
        return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    found_nothing(p);
    return false;
}

static void stage_add(struct publish *x, const char *stage, size_t n)
{
    bool sound = n < OUTPUT_STAGE && outname_is_stage(stage, n) && memchr(stage, '.', n) == NULL && x->n < OUTPUTS_MOST;

    for (unsigned i = 0; i < x->n && sound; i++)
        sound = strlen(x->stage[i]) != n || memcmp(x->stage[i], stage, n) != 0;
    if (!sound)
        return;
    memcpy(x->stage[x->n], stage, n);
    x->stage[x->n++][n] = '\0';
}

/* Of a file of the try, or under its final name. A provenance of a former release knows of its own output alone. */
static enum deliver_end stages_of(struct place *p, const char *name, void *arg, struct err *e)
{
    struct publish *x = arg;
    const char *stage = name + strlen(p->base) + 1;
    size_t n = strcspn(stage, ".");
    const json_t *other;
    size_t i;

    (void)e;
    if (strncmp(stage + n, ".json", 5) != 0)
        return DELIVER_OK;
    json_t *j = provenance_in(p, name);
    if (names_tf(j, x->tf)) {
        stage_add(x, stage, n);
        json_array_foreach(json_object_get(j, "outputs"), i, other)
            stage_add(x, json_is_string(other) ? json_string_value(other) : "", json_string_length(other));
    }
    json_decref(j);
    return DELIVER_OK;
}

static enum deliver_end incomplete(struct place *p, const char *name, const char *suffix, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "%s/%s%s, which was delivered, is not there any more", p->folder, name, suffix);
    return DELIVER_NEVER;
}

/* Of a name, as the try's file or as the final one. */
static bool stat_either(struct place *p, const char *final, const char *suffix, struct stat *st)
{
    char *tried = mem_printf("%s%s", final, suffix);
    bool there = fstatat(p->fd, tried, st, AT_SYMLINK_NOFOLLOW) == 0 || fstatat(p->fd, final, st, AT_SYMLINK_NOFOLLOW) == 0;

    if (!there)
        found_nothing(p);
    free(tried);
    return there && S_ISREG(st->st_mode);
}

/* As its provenance says; one that says nothing of it fits. */
static bool size_fits(struct place *p, const char *json, const char *suffix, off_t size)
{
    char *tried = mem_printf("%s%s", json, suffix);
    json_t *j = provenance_in(p, tried);

    if (j == NULL)
        j = provenance_in(p, json);
    const json_t *said = json_object_get(j, "size");
    bool fits = said == NULL || json_integer_value(said) == size;
    json_decref(j);
    free(tried);
    return fits;
}

/* Before anything gets its final name: whether all of it is there, and can. Half of it may have it, from before a crash. */
static enum deliver_end look_one(struct place *p, struct publish *x, unsigned i, struct err *e)
{
    char *data = mem_printf("%s.%s", p->base, x->stage[i]), *json = mem_printf("%s.json", data), *tried = mem_printf("%s%s", data, x->suffix);
    struct stat st_data, st_json;
    enum deliver_end end = same_file(p, tried, data) ? DELIVER_OK : look_at(p, data, x->tf, e);

    if (end == DELIVER_OK && !stat_either(p, data, x->suffix, &st_data))
        end = incomplete(p, data, x->suffix, e);
    else if (end == DELIVER_OK && !stat_either(p, json, x->suffix, &st_json))
        end = incomplete(p, json, x->suffix, e);
    else if (end == DELIVER_OK && !size_fits(p, json, x->suffix, st_data.st_size)) {
        err_set(e, ERR_FAILED, "%s/%s has another size than what was delivered", p->folder, data);
        end = DELIVER_NEVER;
    }
    free(data);
    free(json);
    free(tried);
    return end;
}

/* 0: it has its second name by this call. */
static int link_or_rename(int dir, const char *name, const char *final)
{
    if (linkat(dir, name, dir, final, 0) == 0)
        return 0;
    if (errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS)         /* a file system without hard links */
        return (int)syscall(SYS_renameat2, dir, name, dir, final, 1 /* RENAME_NOREPLACE */);
    return -1;
}

/* A name that is there already: whether it is what is to have it. A provenance that is tells of the same bytes, or of bytes that are gone. */
static enum deliver_end is_there_already(struct place *p, const struct publish *x, const char *name, const char *final, bool json, struct err *e)
{
    if (same_file(p, name, final) || json)
        return DELIVER_OK;                       /* look_one saw whose it is */
    if (!is_ours(p, final, x->tf))
        return taken(p, final, e);               /* made since */
    if (same_bytes(p, name, final))
        return DELIVER_OK;
    err_set(e, ERR_STATE, "%s/%s is there already, from another try at this TF and with other bytes; it is left as it is", p->folder, final);
    return DELIVER_TAKEN;
}

/* Gives the file its second name. */
static enum deliver_end link_one(struct place *p, struct publish *x, unsigned i, bool json, struct err *e)
{
    char *final = mem_printf("%s.%s%s", p->base, x->stage[i], ending[json]), *name = mem_printf("%s%s", final, x->suffix);
    enum deliver_end end = DELIVER_OK;

    if (link_or_rename(p->fd, name, final) == 0)
        x->has_name[i][json] = true;
    else if (errno == EEXIST)
        end = is_there_already(p, x, name, final, json, e);
    else if (errno != ENOENT || !is_there(p, final))                  /* else: before a crash */
        end = fail_at(p, final, e);
    free(final);
    free(name);
    return end;
}

/* The data of all, then what says whose they are. */
static enum deliver_end link_all(struct place *p, struct publish *x, struct err *e)
{
    enum deliver_end end = DELIVER_OK;

    for (unsigned i = 0; i < x->n && end == DELIVER_OK; i++)
        end = look_one(p, x, i, e);
    for (unsigned i = 0; i < 2 * x->n && end == DELIVER_OK; i++)
        end = link_one(p, x, i % x->n, i >= x->n, e);
    if (end == DELIVER_OK)
        end = place_sync(p, e);
    if (end == DELIVER_OK && !is_in_place(p)) {
        err_set(e, ERR_STATE, "%s was moved or removed while a result was published there", p->folder);
        end = DELIVER_NEVER;
    }
    return end;
}

/* Half a result is none, and would be in the way of the next try's. */
static void unlink_linked(struct place *p, const struct publish *x)
{
    for (unsigned i = 0; i < 2 * x->n; i++) {
        char *final = mem_printf("%s.%s%s", p->base, x->stage[i / 2], ending[i % 2]);
        if (x->has_name[i / 2][i % 2])
            unlinkat(p->fd, final, 0);
        free(final);
    }
}

/* Left by another try at the TF that is published under that name, whole or half: it can never be published any more. */
static bool is_left(struct place *p, const char *name, struct tf_name tf)
{
    struct tf_name whose;
    size_t n_try = outname_tried(name, &whose), n = n_try > 5 && strncmp(name + n_try - 5, ".json", 5) == 0 ? n_try - 5 : n_try;

    if (whose.run != 0 || whose.job != 0)
        return whose.run == tf.run && whose.job == tf.job;
    char *final = mem_printf("%.*s", (int)n, name);
    bool left = is_ours(p, final, tf) && is_former_of(p, name, tf, true);
    free(final);
    return left;
}

/* Our names, which have become final ones, and those of tries whose workers are dead or late. */
static enum deliver_end unlink_tried(struct place *p, const char *name, void *arg, struct err *e)
{
    const struct publish *x = arg;

    return before_suffix(name, x->suffix) > 0 || is_left(p, name, x->tf) ? unlink_one(p, name, NULL, e) : DELIVER_OK;
}

static enum deliver_end refuse_others(struct place *p, const char *name, void *arg, struct err *e)
{
    const struct publish *x = arg;
    size_t n = strlen(name);
    bool json = n > 5 && strcmp(name + n - 5, ".json") == 0;

    return json || is_ours(p, name, x->tf) ? DELIVER_OK : taken(p, name, e);
}

/* Nothing tells of the TF, neither under the attempt's names nor under final ones. */
static enum deliver_end nothing_there(struct place *p, struct publish *x, struct err *e)
{
    unsigned n;
    enum deliver_end end = each(p, "", refuse_others, x, &n, e);

    if (end == DELIVER_OK) {
        err_set(e, ERR_NOT_FOUND, "%s/%s: neither the files of try %s nor published ones are there", p->folder, p->base, x->suffix + 2);
        end = DELIVER_NEVER;
    }
    return end;
}

static enum deliver_end look_former(struct place *p, const char *name, void *arg, struct err *e)
{
    (void)e;
    return is_former_of(p, name, *(struct tf_name *)arg, false) ? DELIVER_OK : DELIVER_TAKEN;
}

/* Accepted by a former release, and not yet published by it. */
static bool is_former(struct place *p, struct tf_name tf, const char *suffix)
{
    struct err ignored;
    unsigned n;

    return each(p, suffix, look_former, &tf, &n, &ignored) == DELIVER_OK && n > 0;
}

/* The suffix under which the files of a try lie. */
static void suffix_there(struct place *p, struct tf_name tf, struct fence fence, char suffix[OUTNAME_SUFFIX])
{
    struct err ignored;
    unsigned n;

    outname_suffix(tf, fence, suffix);
    if (each(p, suffix, NULL, NULL, &n, &ignored) != DELIVER_OK || n > 0)
        return;
    outname_former(fence, suffix);
    if (!is_former(p, tf, suffix))
        outname_suffix(tf, fence, suffix);
}

/* It is published, whatever becomes of the other names: the folder's rights may just have been taken away. */
static enum deliver_end tidy(struct place *p, struct publish *x, struct err *e)
{
    unsigned n;
    enum deliver_end end = each(p, NULL, unlink_tried, x, &n, e);

    return end == DELIVER_NEVER || end == DELIVER_DENIED ? DELIVER_LEFT : end;
}

/* Nothing is taken back of what waits for its disk: the next try finds the names that were given. */
static enum deliver_end publish_at(struct place *p, struct publish *x, dev_t disk, struct err *e)
{
    unsigned n;
    enum deliver_end end = each(p, x->suffix, stages_of, x, &n, e);

    if (end == DELIVER_OK)
        end = each(p, "", stages_of, x, &n, e);
    if (end == DELIVER_OK)
        end = x->n > 0 ? link_all(p, x, e) : nothing_there(p, x, e);
    if (end == DELIVER_OK)
        return tidy(p, x, e);
    end = unless_away(p, disk, end, e);
    if (end == DELIVER_NEVER || end == DELIVER_TAKEN || end == DELIVER_DENIED)
        unlink_linked(p, x);
    if (end == DELIVER_NEVER && !is_in_place(p))
        remove_try(p, x->suffix);                /* nobody finds it there any more */
    return end;
}

enum deliver_end deliver_publish(const char *output, const char *stem, struct tf_name tf, struct fence fence, dev_t disk, struct err *e)
{
    struct publish x = { .tf = tf };
    struct place p;
    struct stat st;
    enum deliver_end end = place_open(&p, output, stem, false, e);

    if (end == DELIVER_OK) {
        if (disk == 0 && fstat(p.fd, &st) == 0)
            disk = st.st_dev;
        suffix_there(&p, tf, fence, x.suffix);
        end = publish_at(&p, &x, disk, e);
    } else if (p.error == ENOENT) {
        err_set(e, ERR_NOT_FOUND, "%s, where the result was delivered, is not there any more", p.folder);
        end = unless_away(&p, disk, end, e);
    }
    place_close(&p);
    return end;
}
