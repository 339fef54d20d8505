/* outfile.c - the files of a result: written under an attempt's name, in one folder that stays the same
 *
 * From: deliver.c, in its threads.  To: the output folder.
 * STAGE has no dot, so the names of one stem are never taken for those of another that begins alike. Whose a final name is its .json says, which is
 * linked with it (outpublish.c): nothing of another run, job or TF counts as ours, whatever bytes it has.
 */
#include "config.h"
#include "outplace.h"

#include "mem.h"
#include "outname.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        end = place_fail_at(p, name, e);
    } else {
        XXH3_64bits_reset(h);
    }
    for (uint64_t at = 0; end == DELIVER_OK && at < o->size;) {
        ssize_t n = pread(from, step, o->size - at < STEP ? (size_t)(o->size - at) : STEP, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EINVAL : errno;
            end = place_fail_at(p, name, e);
        } else if (write_all(to, step, (size_t)n) < 0) {
            end = place_fail_at(p, name, e);
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
        return place_fail_at(p, name, e);
    if (o != NULL)
        end = copy(o->fd, fd, o, p, name, e);
    else if (write_all(fd, text, strlen(text)) < 0)
        end = place_fail_at(p, name, e);
    if (end == DELIVER_OK && fsync(fd) < 0)
        end = place_fail_at(p, name, e);
    if (close(fd) < 0 && end == DELIVER_OK)
        end = place_fail_at(p, name, e);
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
        end = place_look_at(p, final, tf, e);
        free(final);
    }
    return end;
}

enum deliver_end deliver_write(const char *output, const char *stem, struct tf_name tf, struct fence fence, const struct output *out, unsigned n, dev_t *disk,
                               struct err *e)
{
    char suffix[OUTNAME_SUFFIX];
    struct place p;
    struct stat st;
    enum deliver_end end = place_open(&p, output, stem, true, e);

    outname_suffix(tf, fence, suffix);
    if (end == DELIVER_OK)
        end = place_unless_away(&p, 0, look_at_finals(&p, tf, out, n, e), e);
    if (end != DELIVER_OK) {
        place_close(&p);
        return end;
    }
    for (unsigned i = 0; i < n && end == DELIVER_OK; i++)
        end = write_output(&p, &out[i], suffix, e);
    if (end == DELIVER_OK)
        end = place_sync(&p, e);
    if ((end == DELIVER_OK || end == DELIVER_NEVER) && !place_is_there(&p)) {
        err_set(e, ERR_STATE, "%s was moved or removed, or another file system mounted there, while a result was written", p.folder);
        end = DELIVER_AGAIN_FAILING;             /* the result is still in memory */
    }
    if (end != DELIVER_OK)
        place_remove_try(&p, suffix);                  /* what lies there half would keep the disk full */
    *disk = end == DELIVER_OK && fstat(p.fd, &st) == 0 ? st.st_dev : 0;
    place_close(&p);
    return end;
}

static enum deliver_end unlink_former(struct place *p, const char *name, void *arg, struct err *e)
{
    return place_is_former_of(p, name, *(struct tf_name *)arg, true) ? place_unlink(p, name, NULL, e) : DELIVER_OK;
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
        end = place_each(&p, suffix, place_unlink, NULL, &n, e);
    outname_former(fence, suffix);
    if (end == DELIVER_OK && n == 0)
        end = place_each(&p, suffix, unlink_former, &tf, &n, e);
    place_close(&p);
    return gone ? DELIVER_OK : end;
}
