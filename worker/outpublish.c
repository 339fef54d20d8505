/* outpublish.c - a result that was accepted gets its final names: all of it, or nothing
 *
 * From: deliver.c, in its threads.  To: the output folder.
 */
#include "config.h"
#include "outplace.h"

#include "mem.h"
#include "outname.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STEP = 256 * 1024 };

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
            place_found_nothing(p);
        same = na > 0 && na == nb && memcmp(x, x + STEP, (size_t)na) == 0;
        at += na > 0 ? na : 0;
    }
    if (fa < 0 || fb < 0 || x == NULL)
        place_found_nothing(p);
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
    place_found_nothing(p);
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
    json_t *j = place_provenance(p, name);
    if (provenance_names(j, x->tf)) {
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
        place_found_nothing(p);
    free(tried);
    return there && S_ISREG(st->st_mode);
}

/* As its provenance says; one that says nothing of it fits. */
static bool size_fits(struct place *p, const char *json, const char *suffix, off_t size)
{
    char *tried = mem_printf("%s%s", json, suffix);
    json_t *j = place_provenance(p, tried);

    if (j == NULL)
        j = place_provenance(p, json);
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
    enum deliver_end end = same_file(p, tried, data) ? DELIVER_OK : place_look_at(p, data, x->tf, e);

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
    if (!place_is_ours(p, final, x->tf))
        return place_taken(p, final, e);               /* made since */
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
    else if (errno != ENOENT || !place_has(p, final))                  /* else: before a crash */
        end = place_fail_at(p, final, e);
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
    if (end == DELIVER_OK && !place_is_there(p)) {
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
    bool left = place_is_ours(p, final, tf) && place_is_former_of(p, name, tf, true);
    free(final);
    return left;
}

/* Our names, which have become final ones, and those of tries whose workers are dead or late. */
static enum deliver_end unlink_tried(struct place *p, const char *name, void *arg, struct err *e)
{
    const struct publish *x = arg;

    return place_before_suffix(name, x->suffix) > 0 || is_left(p, name, x->tf) ? place_unlink(p, name, NULL, e) : DELIVER_OK;
}

static enum deliver_end refuse_others(struct place *p, const char *name, void *arg, struct err *e)
{
    const struct publish *x = arg;
    size_t n = strlen(name);
    bool json = n > 5 && strcmp(name + n - 5, ".json") == 0;

    return json || place_is_ours(p, name, x->tf) ? DELIVER_OK : place_taken(p, name, e);
}

/* Nothing tells of the TF, neither under the attempt's names nor under final ones. */
static enum deliver_end nothing_there(struct place *p, struct publish *x, struct err *e)
{
    unsigned n;
    enum deliver_end end = place_each(p, "", refuse_others, x, &n, e);

    if (end == DELIVER_OK) {
        err_set(e, ERR_NOT_FOUND, "%s/%s: neither the files of try %s nor published ones are there", p->folder, p->base, x->suffix + 2);
        end = DELIVER_NEVER;
    }
    return end;
}

static enum deliver_end look_former(struct place *p, const char *name, void *arg, struct err *e)
{
    (void)e;
    return place_is_former_of(p, name, *(struct tf_name *)arg, false) ? DELIVER_OK : DELIVER_TAKEN;
}

/* Accepted by a former release, and not yet published by it. */
static bool is_former(struct place *p, struct tf_name tf, const char *suffix)
{
    struct err ignored;
    unsigned n;

    return place_each(p, suffix, look_former, &tf, &n, &ignored) == DELIVER_OK && n > 0;
}

/* The suffix under which the files of a try lie. */
static void suffix_there(struct place *p, struct tf_name tf, struct fence fence, char suffix[OUTNAME_SUFFIX])
{
    struct err ignored;
    unsigned n;

    outname_suffix(tf, fence, suffix);
    if (place_each(p, suffix, NULL, NULL, &n, &ignored) != DELIVER_OK || n > 0)
        return;
    outname_former(fence, suffix);
    if (!is_former(p, tf, suffix))
        outname_suffix(tf, fence, suffix);
}

/* It is published, whatever becomes of the other names: the folder's rights may just have been taken away. */
static enum deliver_end tidy(struct place *p, struct publish *x, struct err *e)
{
    unsigned n;
    enum deliver_end end = place_each(p, NULL, unlink_tried, x, &n, e);

    return end == DELIVER_NEVER || end == DELIVER_DENIED ? DELIVER_LEFT : end;
}

/* Nothing is taken back of what waits for its disk: the next try finds the names that were given. */
static enum deliver_end publish_at(struct place *p, struct publish *x, dev_t disk, struct err *e)
{
    unsigned n;
    enum deliver_end end = place_each(p, x->suffix, stages_of, x, &n, e);

    if (end == DELIVER_OK)
        end = place_each(p, "", stages_of, x, &n, e);
    if (end == DELIVER_OK)
        end = x->n > 0 ? link_all(p, x, e) : nothing_there(p, x, e);
    if (end == DELIVER_OK)
        return tidy(p, x, e);
    end = place_unless_away(p, disk, end, e);
    if (end == DELIVER_NEVER || end == DELIVER_TAKEN || end == DELIVER_DENIED)
        unlink_linked(p, x);
    if (end == DELIVER_NEVER && !place_is_there(p))
        place_remove_try(p, x->suffix);                /* nobody finds it there any more */
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
        end = place_unless_away(&p, disk, end, e);
    }
    place_close(&p);
    return end;
}
