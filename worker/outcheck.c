/* outcheck.c - whether a user can deliver to a folder: it is tried, before a job or a run is accepted; and what a job left there goes, once it is over
 *
 * From: link.c (CheckOutput).  To: a thread, with that user's rights; link.c (OutputChecked).
 * What a delivery will do is done: the folder is made, a file written, given a second name, removed. A full disk is no reason to refuse: results wait for it.
 * Files that lie there already under names of results-to-be are a reason; a folder of very many is looked through for LOOK_LIMIT only: each delivery looks
 * for its own names again.
 */
#include "config.h"
#include "outcheck.h"

#include "clock.h"
#include "deliver.h"
#include "file.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "pool.h"
#include "str.h"
#include "userio.h"
#include "worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { CHECKS_MOST = 64, LOOK_STEP = 1024 };
#define LOOK_LIMIT 1.5                           /* s */

struct outcheck {
    struct pool_task task;
    struct worker *worker;
    struct user_id user;
    uint32_t id;
    char *output;
    struct stem { char *text; uint64_t tfs; } *stem; size_t n_stems;      /* sorted */
    char **roots; unsigned n_roots;
    uint64_t sweep;                              /* the job; 0: it is looked at */
    enum err_code code; char text[400];
    char *real;                                  /* where it lies, all links followed */
    bool own_disk;
};

static unsigned pending;                         /* in this worker; only the loop counts */

static bool is_full(int error)
{
    return error == ENOSPC || error == EDQUOT;
}

static void fail(struct outcheck *c, const char *what, int error)
{
    if (is_full(error))
        return;
    c->code = error == EACCES || error == EPERM ? ERR_PERMISSION : ERR_STATE;
    snprintf(c->text, sizeof c->text, "%s: %s", what, strerror(error));
}

/* A file there and its second name, as a delivery makes them. */
static void try_files(struct outcheck *c, int dir)
{
    static atomic_uint count;
    char name[80], second[90];

    snprintf(name, sizeof name, ".sluice-check-%ld-%u", (long)getpid(), atomic_fetch_add(&count, 1));
    snprintf(second, sizeof second, "%s-2", name);
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        fail(c, "no file can be made there", errno);
        return;
    }
    if (write(fd, "sluice\n", 7) != 7)
        fail(c, "no file can be written there", errno);
    else if (linkat(dir, name, dir, second, 0) < 0 && errno != EPERM && errno != EOPNOTSUPP && errno != ENOSYS)
        fail(c, "no file can get its final name there", errno);
    close(fd);
    unlinkat(dir, name, 0);
    unlinkat(dir, second, 0);
}

static int compare_stems(const void *a, const void *b)
{
    return strcmp(((const struct stem *)a)->text, ((const struct stem *)b)->text);
}

/* STEM.K.STAGE or STEM.K.STAGE.json, with one of the stems and K one of its TFs. */
static bool is_result(const struct outcheck *c, const char *name)
{
    char *copy = mem_strdup(name), *dot, *end;
    struct stem key = { copy, 0 }, *found = NULL;
    size_t n = strlen(copy);

    if (n > 5 && strcmp(copy + n - 5, ".json") == 0)
        copy[n - 5] = '\0';
    if ((dot = strrchr(copy, '.')) != NULL) {
        *dot = '\0';                              /* the stage */
        if ((dot = strrchr(copy, '.')) != NULL && dot[1] >= '0' && dot[1] <= '9') {
            uint64_t k = strtoull(dot + 1, &end, 10);
            bool number = *end == '\0';
            *dot = '\0';
            found = bsearch(&key, c->stem, c->n_stems, sizeof *c->stem, compare_stems);
            if (found && (!number || k >= found->tfs))
                found = NULL;
        }
    }
    free(copy);
    return found != NULL;
}

static void try_names(struct outcheck *c, int dir)
{
    int64_t until = clock_mono_ns() + (int64_t)(LOOK_LIMIT * 1e9);
    int fd = c->n_stems > 0 ? openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    for (unsigned i = 1; d && c->code == 0 && (entry = readdir(d)) != NULL; i++) {
        if (is_result(c, entry->d_name)) {
            c->code = ERR_STATE;
            snprintf(c->text, sizeof c->text, "%.300s is there already: results are never put over other files", entry->d_name);
        }
        if (i % LOOK_STEP == 0 && clock_mono_ns() > until)
            break;
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
}

int output_check_roots(const char *output, char *const *roots, unsigned n, struct err *e)
{
    char *path = mem_strdup(output), *real, *slash;
    int error;

    while ((real = realpath(path, NULL)) == NULL && errno == ENOENT && (slash = strrchr(path, '/')) != NULL && slash > path)
        *slash = '\0';
    error = real == NULL ? errno : 0;
    if (real == NULL && n > 0)
        err_errno(e, ERR_PERMISSION, "%s", path);
    else if (real != NULL && !str_is_below(real, roots, n))
        err_set(e, ERR_PERMISSION, "it leads to %.300s%.200s, below none of roots_output", real, output + strlen(path));
    bool good = n == 0 || (real != NULL && str_is_below(real, roots, n));
    free(real);
    free(path);
    errno = error;
    return good ? 0 : -1;
}

static void try_folder(struct outcheck *c)
{
    char *real;
    struct err e;

    if (output_check_roots(c->output, c->roots, c->n_roots, &e) < 0) {
        c->code = ERR_PERMISSION;
        snprintf(c->text, sizeof c->text, "%.380s", e.text);
        return;
    }
    errno = 0;
    if (file_mkdirs(c->output, 0755, &e) < 0) {
        int error = errno;
        if (!is_full(error)) {
            c->code = error == EACCES || error == EPERM ? ERR_PERMISSION : ERR_STATE;
            snprintf(c->text, sizeof c->text, "%.380s", e.text);
        }
        return;
    }
    real = realpath(c->output, NULL);
    int dir = real ? open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0) {
        fail(c, "it cannot be opened", errno);
    } else {
        try_files(c, dir);
        if (c->code == 0)
            try_names(c, dir);
    }
    if (dir >= 0)
        close(dir);
    if (real)
        str_mend(real, strlen(real));
    c->real = real;
}

/* Kinds of file system that one machine has for itself; any other may be seen by many. A folder that is not there may be on another node's own disk. */
static bool is_own_disk(const char *folder)
{
    static const unsigned long own[] = { 0xEF53 /* ext2, 3, 4 */, 0x58465342 /* XFS */, 0x9123683E /* btrfs */, 0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */,
                                         0x794c7630 /* overlayfs */, 0x2fc12fc1 /* ZFS */, 0xF2F52010 /* F2FS */, 0x3153464a /* JFS */, 0xCA451A4E /* bcachefs */ };
    struct statfs st;

    if (statfs(folder, &st) < 0)
        return errno == ENOENT;
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if ((unsigned long)st.f_type == own[i])
            return true;
    }
    return false;
}

/* What a job that is over left there goes; nothing else is done. */
static void sweep_folder(struct outcheck *c)
{
    struct err e;

    c->own_disk = is_own_disk(c->output);
    if (access(c->output, F_OK) < 0 && errno == ENOENT)
        return;                                  /* nor anything below it, whatever the roots are here */
    if (output_check_roots(c->output, c->roots, c->n_roots, &e) == 0 && deliver_sweep(c->output, c->sweep, &e) == 0)
        return;
    c->code = ERR_FAILED;
    snprintf(c->text, sizeof c->text, "%.380s", e.text);
}

static void run(struct pool_task *t)
{
    struct outcheck *c = CONTAINER_OF(t, struct outcheck, task);

    if (user_become(&c->user) < 0) {
        fail(c, "the owner's rights cannot be taken on", errno);
        return;
    }
    if (c->sweep != 0)
        sweep_folder(c);
    else
        try_folder(c);
    user_return();
}

static void answer(struct worker *w, uint32_t id, enum err_code code, const char *text, char *real, bool own_disk)
{
    Sluice__OutputChecked m = SLUICE__OUTPUT_CHECKED__INIT;
    char shown[512];

    worker_text(shown, sizeof shown, text);
    m.has_code = 1;
    m.code = code;
    m.text = code ? shown : NULL;
    m.real = code == 0 ? real : NULL;
    m.has_own_disk = m.own_disk = own_disk;
    link_reply(w->link, id, &m.base);
}

static void ended(struct pool_task *t)
{
    struct outcheck *c = CONTAINER_OF(t, struct outcheck, task);

    pending--;
    if (!t->dropped)
        answer(c->worker, c->id, c->code, c->text, c->real, c->own_disk);
    for (unsigned i = 0; i < c->n_roots; i++)
        free(c->roots[i]);
    for (size_t i = 0; i < c->n_stems; i++)
        free(c->stem[i].text);
    free(c->stem);
    free(c->roots);
    free(c->output);
    free(c->real);
    free(c);
}

static void take_stems(struct outcheck *c, const Sluice__CheckOutput *m)
{
    c->n_stems = m->n_stems < m->n_tfs ? m->n_stems : m->n_tfs;
    c->stem = mem_array(c->n_stems + 1, sizeof *c->stem);
    for (size_t i = 0; i < c->n_stems; i++)
        c->stem[i] = (struct stem){ mem_strdup(m->stems[i]), m->tfs[i] };
    qsort(c->stem, c->n_stems, sizeof *c->stem, compare_stems);
}

void outcheck_take(struct worker *w, uint32_t id, const Sluice__CheckOutput *m)
{
    if (m->output == NULL || m->output[0] != '/') {
        answer(w, id, ERR_PROTOCOL, "an absolute path is wanted", NULL, false);
        return;
    }
    if (pending == CHECKS_MOST) {
        answer(w, id, ERR_STATE, "too many folders are being looked at here", NULL, false);
        return;
    }
    struct outcheck *c = mem_zalloc(sizeof *c);
    c->worker = w;
    c->user = (struct user_id){ m->has_uid && m->has_gid, m->uid, m->gid };
    c->id = id;
    c->output = mem_strdup(m->output);
    c->sweep = m->sweep;
    take_stems(c, m);
    c->n_roots = w->conf->n_roots_output;
    c->roots = mem_array(c->n_roots + 1, sizeof *c->roots);
    for (unsigned i = 0; i < c->n_roots; i++)
        c->roots[i] = mem_strdup(w->conf->roots_output[i]);
    c->task.run = run;
    c->task.done = ended;
    pending++;
    pool_submit(w->out, &c->task);
}
