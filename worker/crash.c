/* crash.c - TFs that killed or hung a reconstruction process, kept
 *
 * From: device.c.  To: the disk, held.c (the failure, with the folder's name).
 * The folder is written beside and renamed: what has its final name is whole. The range stays busy until the bytes are copied.
 */
#include "config.h"
#include "crash.h"

#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "str.h"
#include "worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { KEEP_S = 10 };

struct keep {
    struct pool_task task;
    struct ev_timer limit;
    struct held *held;
    bool   answered;
    char  *word, *text, *stage, *device, *tail, *json;
    char  *dir, *folder;
    uint64_t room;
    struct crash_seg *seg; unsigned n;
    int    rc; bool kept; struct err why;
};

/* ---- in a thread ---------------------------------------------------------------------------------- */

static uint64_t bytes_kept(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;
    uint64_t sum = 0;

    while (d != NULL && (entry = readdir(d)) != NULL) {
        struct stat st;
        char *path = mem_printf("%s/%s/tf", dir, entry->d_name);
        if (entry->d_name[0] != '.' && stat(path, &st) == 0)
            sum += (uint64_t)st.st_size;
        free(path);
    }
    if (d != NULL)
        closedir(d);
    return sum;
}

static int write_file(const char *folder, const char *name, const struct crash_seg *seg, unsigned n, struct err *e)
{
    char *path = mem_printf("%s/%s", folder, name);
    int rc = 0, fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);

    if (fd < 0)
        rc = err_errno(e, ERR_FAILED, "%s cannot be made", path);
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = file_write_all(fd, seg[i].data, seg[i].size, e);
    if (rc == 0 && fsync(fd) < 0)
        rc = err_errno(e, ERR_FAILED, "%s cannot be written", path);
    if (fd >= 0)
        close(fd);
    free(path);
    return rc;
}

static void remove_folder(const char *folder)
{
    static const char *const name[] = { "tf", "crash.json", "log" };

    for (size_t i = 0; i < ARRAY_LEN(name); i++) {
        char *path = mem_printf("%s/%s", folder, name[i]);
        unlink(path);
        free(path);
    }
    rmdir(folder);
}

int crash_write(const char *crash_dir, const char *folder, uint64_t limit, const struct crash_seg *seg, unsigned n, const char *json,
                const char *tail, bool *kept, struct err *e)
{
    char *part = mem_printf("%s.part", folder);
    const struct crash_seg text[] = { { json, strlen(json) }, { tail, strlen(tail) } };
    uint64_t size = 0;

    for (unsigned i = 0; i < n; i++)
        size += seg[i].size;
    int rc = file_mkdirs(part, 0755, e);
    uint64_t held = rc == 0 ? bytes_kept(crash_dir) : 0;
    *kept = rc == 0 && held <= limit && size <= limit - held;
    if (*kept)
        rc = write_file(part, "tf", seg, n, e);
    if (rc == 0)
        rc = write_file(part, "crash.json", &text[0], 1, e);
    if (rc == 0)
        rc = write_file(part, "log", &text[1], 1, e);
    if (rc == 0 && rename(part, folder) < 0)
        rc = err_errno(e, ERR_FAILED, "%s cannot be renamed", part);
    if (rc < 0)
        remove_folder(part);
    free(part);
    return rc;
}

static void keep_run(struct pool_task *t)
{
    struct keep *k = CONTAINER_OF(t, struct keep, task);
    k->rc = crash_write(k->dir, k->folder, k->room, k->seg, k->n, k->json, k->tail, &k->kept, &k->why);
}

/* ---- in the loop ----------------------------------------------------------------------------------- */

static void answer(struct keep *k, const char *folder)
{
    if (!k->answered)
        held_fail(k->held, k->word, k->stage, k->device, folder, "%s", k->text);
    k->answered = true;
}

static void keep_free(struct keep *k)
{
    struct held *h = k->held;

    ev_timer_stop(h->worker->loop, &k->limit);
    free(k->word);
    free(k->text);
    free(k->stage);
    free(k->device);
    free(k->tail);
    free(k->json);
    free(k->dir);
    free(k->folder);
    free(k->seg);
    free(k);
    held_unbusy(h);
}

static void keep_done(struct pool_task *t)
{
    struct keep *k = CONTAINER_OF(t, struct keep, task);

    if (t->dropped || k->rc < 0) {
        log_warning("%s: not kept: %s", held_text(k->held), t->dropped ? "the worker stops" : k->why.text);
        answer(k, NULL);
    } else {
        log_info("%s: kept in %s%s", held_text(k->held), k->folder, k->kept ? "" : ", without its bytes: the limit is reached");
        answer(k, k->folder);
    }
    keep_free(k);
}

static void keep_late(struct ev_loop *loop, struct ev_timer *timer, int revents)
{
    struct keep *k = timer->data;

    (void)loop, (void)revents;
    log_warning("%s: its crash folder could not be written within %d s", held_text(k->held), KEEP_S);
    answer(k, NULL);
}

static void set_text(json_t *j, const char *key, const char *s)
{
    json_t *v = s != NULL ? json_string(s) : NULL;           /* NULL for what is no UTF-8, too */
    json_object_set_new(j, key, v ? v : json_null());
}

static void set_number(json_t *j, const char *key, uint64_t v)
{
    json_object_set_new(j, key, json_integer((json_int_t)v));
}

static char *describe(const struct held *h, const struct crash *c, const char *folder)
{
    char when[CLOCK_TEXT];
    json_t *j = json_object(), *schema = json_object(), *sizes = json_array();

    for (unsigned i = 0; i < h->n_segments; i++)
        json_array_append_new(sizes, json_integer((json_int_t)h->segment[i].size));
    set_text(schema, "name", "crash");
    set_number(schema, "version", 1);
    json_object_set_new(j, "schema", schema);
    set_text(j, "time", clock_rfc3339(clock_wall_ns(), when));
    set_text(j, "node", h->worker->node);
    set_text(j, "class", h->worker->class->name);
    set_text(j, "device", c->device);
    set_number(j, h->key.name.run ? "run" : "job", h->key.name.run ? h->key.name.run : h->key.name.job);
    set_number(j, "tf", h->key.name.id);
    set_number(j, "epoch", h->key.fence.epoch);
    set_number(j, "attempt", h->key.fence.attempt);
    set_text(j, "word", c->word);
    set_text(j, "text", c->text);
    set_text(j, "how", c->how);
    set_text(j, "stage", c->stage);
    set_text(j, "folder", folder);
    set_text(j, "workflow", h->work->workflow);
    set_text(j, "backends", h->work->backends);
    set_text(j, "options", h->work->options);
    set_number(j, "first_orbit", h->first_orbit);
    json_object_set_new(j, "incomplete", json_boolean(h->incomplete));
    json_object_set_new(j, "part_sizes", sizes);
    set_text(j, "software", PACKAGE_VERSION);
    set_text(j, "reco_software", c->software);
    char *text = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    return text;
}

static char *folder_name(const struct held *h)
{
    time_t now = (time_t)(clock_wall_ns() / CLOCK_SECOND);
    struct tm tm;
    char when[32];

    gmtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &tm);
    return mem_printf("%s/%s-%s-%s%" PRIu64 "-tf%" PRIu64 "-a%" PRIu64 ".%" PRIu64, h->worker->crash_dir, h->worker->node, when,
                      h->key.name.run ? "run" : "job", h->key.name.run ? h->key.name.run : h->key.name.job, h->key.name.id,
                      h->key.fence.epoch, h->key.fence.attempt);
}

void crash_keep(struct held *h, const struct crash *c)
{
    struct worker *w = h->worker;

    if (w->crash_dir == NULL || h->silent || w->stopping) {
        held_fail(h, c->word, c->stage, c->device, NULL, "%s", c->text);
        return;
    }
    struct keep *k = mem_zalloc(sizeof *k);
    k->held = h;
    k->word = mem_strdup(c->word);
    k->text = mem_strdup(c->text);
    k->stage = mem_strdup(c->stage);
    k->device = mem_strdup(c->device);
    k->tail = mem_strdup(c->tail ? c->tail : "");
    k->dir = mem_strdup(w->crash_dir);
    k->folder = folder_name(h);
    k->json = describe(h, c, k->folder);
    k->room = w->conf->worker.crash_limit;
    k->n = h->n_segments;
    k->seg = mem_array(k->n, sizeof *k->seg);
    for (unsigned i = 0; i < k->n; i++)
        k->seg[i] = (struct crash_seg){ buffer_at(w->buffer, h->segment[i].offset), h->segment[i].size };
    k->task.run = keep_run;
    k->task.done = keep_done;
    ev_timer_init(&k->limit, keep_late, KEEP_S, 0);
    k->limit.data = k;
    ev_timer_start(w->loop, &k->limit);
    held_busy(h);
    pool_submit(w->slow, &k->task);
}
