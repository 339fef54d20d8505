/* query.c - questions to the drivers of the devices
 *
 * From: gpus.c.  To: the reconstruction program, in a process of its own; back to gpus.c.
 * What comes back is believed only after it was read whole and held against its limits. A process past its deadline is ended; its question is
 * answered at once, with what is wrong, and it counts as busy until it is really gone.
 */
#include "config.h"
#include "query.h"

#include "clock.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "watch.h"
#include "worker.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { ANSWER_MAX = 256 << 10 };
#define GRACE_S 0.5                              /* from TERM to KILL */

static const char *const word[] = { [QUERY_DEVICES] = "devices", [QUERY_USAGE] = "usage" };

/* The process is ended by us when a driver hangs: it calls them itself, or what hangs would not be known here. */
static const char *const unlimited[] = { [QUERY_DEVICES] = "--timeout=0", [QUERY_USAGE] = NULL };

struct query {
    struct worker *worker;
    struct child *child;
    int      fd;                                 /* of the answer; -1: closed */
    struct ev_io readable;
    struct ev_timer limit;
    enum query_what what;
    query_fn fn; void *arg;                      /* NULL: answered */
    char    *text; size_t n;
    int64_t  asked;                              /* wall ns */
};

/* ---- the answer's text ------------------------------------------------------------------------ */

static int get_text(const json_t *j, const char *key, char *out, size_t room, struct err *e)
{
    const json_t *v = json_object_get(j, key);

    out[0] = '\0';
    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_string(v) || json_string_length(v) >= room)
        return err_set(e, ERR_PROTOCOL, "%s: a text shorter than %zu is wanted", key, room);
    worker_text(out, room, json_string_value(v));
    return 0;
}

static int get_number(const json_t *j, const char *key, uint64_t *out, struct err *e)
{
    const json_t *v = json_object_get(j, key);

    if (v == NULL || json_is_null(v))
        return 0;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return err_set(e, ERR_PROTOCOL, "%s: a number of bytes is wanted", key);
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

static int get_pids(const json_t *j, struct query_device *d, struct err *e)
{
    const json_t *list = json_object_get(j, "pids");
    size_t n = json_array_size(list);

    for (size_t i = 0; i < n && d->n_pids < QUERY_PIDS_MAX; i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) <= 0 || json_integer_value(v) > INT32_MAX)
            return err_set(e, ERR_PROTOCOL, "pids: numbers of processes are wanted");
        d->pid[d->n_pids++] = (pid_t)json_integer_value(v);
    }
    return 0;
}

static int get_device(enum query_what what, const json_t *j, struct query_device *d, struct err *e)
{
    const json_t *numa = json_object_get(j, "numa");

    *d = (struct query_device){ .numa = json_is_integer(numa) ? (int)json_integer_value(numa) : -1, .usable = json_is_true(json_object_get(j, "usable")) };
    if (!json_is_object(j))
        return err_set(e, ERR_PROTOCOL, "an object a device is wanted");
    if (get_text(j, "id", d->id, sizeof d->id, e) < 0 || get_text(j, "backend", d->backend, sizeof d->backend, e) < 0 ||
        get_text(j, "class", d->class, sizeof d->class, e) < 0 || get_text(j, "why", d->why, sizeof d->why, e) < 0 ||
        get_number(j, "memory", &d->memory, e) < 0 || get_number(j, "used", &d->used, e) < 0 || get_pids(j, d, e) < 0)
        return -1;
    if (what == QUERY_USAGE && (d->id[0] == '\0' || !json_is_integer(json_object_get(j, "used"))))
        return err_set(e, ERR_PROTOCOL, "id and used are wanted");
    return 0;
}

int query_parse(enum query_what what, const char *text, size_t size, struct query_device *list, struct err *e)
{
    json_error_t je;
    json_t *j = json_loadb(text, size, 0, &je);
    const json_t *all = json_object_get(j, word[what]);
    size_t n = json_array_size(all);
    int rc = 0;

    if (j == NULL)
        rc = err_set(e, ERR_PROTOCOL, "no JSON: %s in line %d", je.text, je.line);
    else if (!json_is_array(all) || n > QUERY_DEVICES_MAX)
        rc = err_set(e, ERR_PROTOCOL, "a list \"%s\" of at most %d devices is wanted", word[what], QUERY_DEVICES_MAX);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        if (get_device(what, json_array_get(all, i), &list[i], e) < 0)
            rc = err_prefix(e, "device %zu", i);
    }
    json_decref(j);
    return rc < 0 ? -1 : (int)n;
}

/* ---- a question ------------------------------------------------------------------------------- */

static void stop_listening(struct query *q)
{
    ev_io_stop(q->worker->loop, &q->readable);
    ev_timer_stop(q->worker->loop, &q->limit);
    if (q->fd >= 0)
        close(q->fd);
    q->fd = -1;
}

static void answer(struct query *q, const struct query_device *list, unsigned n, const struct err *why)
{
    query_fn fn = q->fn;

    stop_listening(q);
    q->fn = NULL;
    free(q->text);
    q->text = NULL;
    if (why != NULL)
        log_warning("device query: %s", why->text);
    if (fn != NULL)
        fn(q->arg, list, n, why);
}

/* Once a question is answered its process has no business any more, whatever it still does. */
static void fail(struct query *q, const struct err *why)
{
    if (q->child != NULL)
        child_end(q->child, GRACE_S);
    if (q->fn != NULL)
        answer(q, NULL, 0, why);
}

static void readable(struct ev_loop *loop, struct ev_io *io, int revents)
{
    struct query *q = io->data;
    struct err e;

    (void)revents;
    while (q->n < ANSWER_MAX) {
        ssize_t n = read(q->fd, q->text + q->n, ANSWER_MAX - q->n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            ev_io_stop(loop, io);                /* its end is judged with its status */
        if (n <= 0)
            return;
        q->n += (size_t)n;
    }
    err_set(&e, ERR_PROTOCOL, "%s %s wrote more than %d bytes", q->worker->reco, word[q->what], ANSWER_MAX);
    fail(q, &e);
}

static void ended(void *arg, int status, const char *how)
{
    struct query *q = arg;
    struct query_device *list;
    struct err e;
    int n;

    q->child = NULL;
    if (q->fn == NULL)
        return;
    readable(q->worker->loop, &q->readable, 0);
    if (q->fn == NULL)
        return;
    if (status != 0) {
        err_set(&e, ERR_FAILED, "%s %s ended without an answer: %.100s", q->worker->reco, word[q->what], how);
        answer(q, NULL, 0, &e);
        return;
    }
    list = mem_array(QUERY_DEVICES_MAX, sizeof *list);
    n = query_parse(q->what, q->text, q->n, list, &e);
    if (n < 0)
        err_prefix(&e, "%s %s", q->worker->reco, word[q->what]);
    answer(q, n < 0 ? NULL : list, n < 0 ? 0 : (unsigned)n, n < 0 ? &e : NULL);
    free(list);
}

static void stuck(void *arg, const char *what)
{
    (void)arg;
    log_err("device query: unkillable, %s; no other is asked until it is gone", what);
}

static void too_late(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct query *q = t->data;
    char since[CLOCK_TEXT];
    struct err e;

    (void)loop, (void)revents;
    err_set(&e, ERR_TIMEOUT, "device query stuck since %s: no answer to %s within %.3g s", clock_rfc3339(q->asked, since), word[q->what],
            q->worker->conf->worker.query_timeout);
    fail(q, &e);
}

static int start(struct query *q, struct err *e)
{
    const char *argv[] = { q->worker->reco, word[q->what], "--json", unlimited[q->what], NULL };
    struct child_conf conf = { .argv = argv, .name = "query", .answers = true, .ended = ended, .stuck = stuck, .arg = q };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(e, ERR_FAILED, "no socket for the device query");
    conf.socket = pair[1];
    q->child = child_start(q->worker->watch, &conf, e);
    close(pair[1]);
    if (q->child == NULL) {
        close(pair[0]);
        return -1;
    }
    file_set_cloexec_nonblock(pair[0]);
    q->fd = pair[0];
    return 0;
}

int query_ask(struct query *q, enum query_what what, query_fn fn, void *arg, struct err *e)
{
    q->what = what;
    if (start(q, e) < 0)
        return -1;
    q->fn = fn;
    q->arg = arg;
    q->asked = clock_wall_ns();
    q->text = mem_zalloc(ANSWER_MAX);
    q->n = 0;
    ev_io_set(&q->readable, q->fd, EV_READ);
    ev_io_start(q->worker->loop, &q->readable);
    ev_timer_set(&q->limit, q->worker->conf->worker.query_timeout, 0);
    ev_timer_start(q->worker->loop, &q->limit);
    return 0;
}

bool query_is_busy(const struct query *q)
{
    return q->child != NULL;
}

struct query *query_create(struct worker *w)
{
    struct query *q = mem_zalloc(sizeof *q);

    q->worker = w;
    q->fd = -1;
    ev_init(&q->readable, readable);
    ev_init(&q->limit, too_late);
    q->readable.data = q->limit.data = q;
    return q;
}

void query_destroy(struct query *q)
{
    if (q == NULL)
        return;
    stop_listening(q);
    free(q->text);
    free(q);
}
