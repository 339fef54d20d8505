/* outcheck.c - whether a user can deliver to a folder: it is tried, before a job or a run is accepted
 *
 * From: link.c (CheckOutput).  To: a thread, with that user's rights; link.c (OutputChecked).
 * What a delivery will do is done: the folder is made, a file written, given a second name, removed. A full disk is no reason to refuse: results wait for it.
 */
#include "config.h"
#include "outcheck.h"

#include "file.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "pool.h"
#include "str.h"
#include "userio.h"
#include "worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CHECKS_MOST = 64 };

struct outcheck {
    struct pool_task task;
    struct worker *worker;
    struct user_id user;
    uint32_t id;
    char *output;
    char **roots; unsigned n_roots;
    enum err_code code; char text[400];
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

static void try_folder(struct outcheck *c)
{
    char *real;
    struct err e;

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
    } else if (!str_is_below(real, c->roots, c->n_roots)) {
        c->code = ERR_PERMISSION;
        snprintf(c->text, sizeof c->text, "it leads to %.300s, below none of roots_output", real);
    } else {
        try_files(c, dir);
    }
    if (dir >= 0)
        close(dir);
    free(real);
}

static void run(struct pool_task *t)
{
    struct outcheck *c = CONTAINER_OF(t, struct outcheck, task);

    if (user_become(&c->user) < 0) {
        fail(c, "the owner's rights cannot be taken on", errno);
        return;
    }
    try_folder(c);
    user_return();
}

static void answer(struct worker *w, uint32_t id, enum err_code code, const char *text)
{
    Sluice__OutputChecked m = SLUICE__OUTPUT_CHECKED__INIT;
    char shown[512];

    worker_text(shown, sizeof shown, text);
    m.has_code = 1;
    m.code = code;
    m.text = code ? shown : NULL;
    link_reply(w->link, id, &m.base);
}

static void ended(struct pool_task *t)
{
    struct outcheck *c = CONTAINER_OF(t, struct outcheck, task);

    pending--;
    if (!t->dropped)
        answer(c->worker, c->id, c->code, c->text);
    for (unsigned i = 0; i < c->n_roots; i++)
        free(c->roots[i]);
    free(c->roots);
    free(c->output);
    free(c);
}

void outcheck_take(struct worker *w, uint32_t id, const Sluice__CheckOutput *m)
{
    if (m->output == NULL || m->output[0] != '/') {
        answer(w, id, ERR_PROTOCOL, "an absolute path is wanted");
        return;
    }
    if (pending == CHECKS_MOST) {
        answer(w, id, ERR_STATE, "too many folders are being looked at here");
        return;
    }
    struct outcheck *c = mem_zalloc(sizeof *c);
    c->worker = w;
    c->user = (struct user_id){ m->has_uid && m->has_gid, m->uid, m->gid };
    c->id = id;
    c->output = mem_strdup(m->output);
    c->n_roots = w->conf->n_roots_output;
    c->roots = mem_array(c->n_roots + 1, sizeof *c->roots);
    for (unsigned i = 0; i < c->n_roots; i++)
        c->roots[i] = mem_strdup(w->conf->roots_output[i]);
    c->task.run = run;
    c->task.done = ended;
    pending++;
    pool_submit(w->out, &c->task);
}
