/* check.c - see check.h
 *
 * From: link.c (Settings), time.  To: watch.c (processes), a thread (room left on disk), report.c.
 * A program that is still there when its next turn comes is not started again: one that hangs for ever costs one process.
 */
#include "config.h"
#include "check.h"

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "report.h"
#include "str.h"
#include "watch.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#define GRACE_S 1.0                              /* from TERM to KILL */

struct check {
    struct checks *all;
    char    *path;
    bool     going;                              /* not wanted any more: freed when its process is gone */
    struct child *child;
    struct ev_timer period, limit;
    bool     known, late;                        /* late: its end is ours, and told already */
    Sluice__CheckState state;
    char     text[256];
    int64_t  started, ended;                     /* wall ns */
    int64_t  stuck_since;                        /* the first of the runs without an end of its own, in a row; 0: the last one ended */
    Sluice__Check m;
};

struct room_left {
    struct pool_task task;
    const char *folder;
    bool     busy, known;
    uint64_t disk, memory;                       /* written by the thread */
    uint64_t disk_free, memory_free;             /* as of its last end */
};

struct checks {
    struct worker *worker;
    struct check *at[CONF_MOST_CHECKS];          /* what is run, in order */
    struct check *going[CONF_MOST_CHECKS];       /* what was run, and has a process yet */
    Sluice__Check *messages[CONF_MOST_CHECKS];
    unsigned n, n_going;
    double   every, timeout;                     /* s */
    uid_t    uid;
    gid_t    gid;
    char     unknown[160];                       /* why the user cannot be had */
    struct ev_timer look;
    struct room_left room;
};

/* ---- a program ----------------------------------------------------------------------------------- */

static const char *name_of(const struct check *k)
{
    return strrchr(k->path, '/') + 1;            /* an absolute path, conf.c saw to that */
}

static void result(struct check *k, Sluice__CheckState state, const char *text)
{
    char shown[sizeof k->text];

    worker_text(shown, sizeof shown, text);
    if (!k->known || state != k->state || strcmp(shown, k->text) != 0) {
        if (state != SLUICE__CHECK_STATE__CHECK_GOOD)
            log_warning("check %s: %s", name_of(k), shown);
        else
            log_info("check %s: good", name_of(k));
    }
    k->known = true;
    k->state = state;
    k->ended = clock_wall_ns();
    memcpy(k->text, shown, sizeof shown);
    worker_changed(k->all->worker);
}

static void check_free(struct check *k)
{
    struct ev_loop *loop = k->all->worker->loop;

    ev_timer_stop(loop, &k->period);
    ev_timer_stop(loop, &k->limit);
    free(k->path);
    free(k);
}

/* The process of one that is not wanted any more is gone. */
static void gone(struct check *k)
{
    struct checks *c = k->all;
    unsigned i = 0;

    while (c->going[i] != k)
        i++;
    c->going[i] = c->going[--c->n_going];
    check_free(k);
}

static void ended(void *arg, int status, const char *how)
{
    struct check *k = arg;
    const char *line = child_first_line(k->child);
    char text[256];

    ev_timer_stop(k->all->worker->loop, &k->limit);
    if (!k->late)
        k->stuck_since = 0;
    if (!k->late && WIFEXITED(status) && WEXITSTATUS(status) <= 2) {
        result(k, (Sluice__CheckState)WEXITSTATUS(status), line);
    } else if (!k->late) {
        snprintf(text, sizeof text, "it ended with %s%s%.180s", how, line[0] != '\0' ? ": " : "", line);
        result(k, SLUICE__CHECK_STATE__CHECK_BROKEN, text);
    }
    k->child = NULL;
    if (k->going)
        gone(k);
}

static void stuck(void *arg, const char *what)
{
    struct check *k = arg;
    char text[300];

    snprintf(text, sizeof text, "unkillable: %s", what);
    if (!k->going)
        result(k, SLUICE__CHECK_STATE__CHECK_BROKEN, text);
}

static void too_long(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct check *k = t->data;
    char text[160], since[CLOCK_TEXT];

    (void)loop, (void)revents;
    k->late = true;
    if (k->stuck_since == 0)
        k->stuck_since = k->started;
    snprintf(text, sizeof text, "not done within %g s, stuck since %s", k->all->timeout, clock_rfc3339(k->stuck_since, since));
    result(k, SLUICE__CHECK_STATE__CHECK_BROKEN, text);
    child_end(k->child, GRACE_S);
}

static void run(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct check *k = t->data;
    struct checks *c = k->all;
    const char *argv[] = { k->path, NULL };
    char name[80];
    const struct child_conf conf = { .argv = argv, .socket = -1, .name = name, .quiet = true, .user = geteuid() == 0, .uid = c->uid, .gid = c->gid,
                                     .ended = ended, .stuck = stuck, .arg = k };
    struct err e;

    (void)revents;
    if (k->child != NULL)
        return;
    if (c->unknown[0] != '\0') {
        result(k, SLUICE__CHECK_STATE__CHECK_BROKEN, c->unknown);
        return;
    }
    snprintf(name, sizeof name, "check-%.70s", name_of(k));
    k->late = false;
    k->started = clock_wall_ns();
    k->child = child_start(c->worker->watch, &conf, &e);
    if (k->child == NULL) {
        result(k, SLUICE__CHECK_STATE__CHECK_BROKEN, e.text);
        return;
    }
    ev_timer_set(&k->limit, c->timeout, 0);
    ev_timer_start(loop, &k->limit);
}

/* ---- room left ------------------------------------------------------------------------------------- */

/* MemAvailable of /proc/meminfo, bytes; 0: the kernel does not say. */
static uint64_t memory_available(void)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib = 0;

    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
            break;
    }
    if (f != NULL)
        fclose(f);
    return kib << 10;
}

static void room_run(struct pool_task *t)
{
    struct room_left *r = CONTAINER_OF(t, struct room_left, task);
    struct statvfs st;

    r->disk = statvfs(r->folder, &st) == 0 ? (uint64_t)st.f_bavail * st.f_frsize : 0;
    r->memory = memory_available();
}

static void room_done(struct pool_task *t)
{
    struct room_left *r = CONTAINER_OF(t, struct room_left, task);

    r->busy = false;
    if (t->dropped)
        return;
    r->known = true;
    r->disk_free = r->disk;
    r->memory_free = r->memory;
}

static void look(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct checks *c = t->data;

    (void)loop, (void)revents;
    if (c->room.busy)
        return;                                  /* its disk hangs */
    c->room.busy = true;
    c->room.task.run = room_run;
    c->room.task.done = room_done;
    pool_submit(c->worker->slow, &c->room.task);
}

/* ---- all -------------------------------------------------------------------------------------------- */

static void find_user(struct checks *c)
{
    const char *user = c->worker->conf->health.user;
    char text[16384];
    struct passwd pw, *found = NULL;

    if (geteuid() != 0)
        return;
    if (getpwnam_r(user, &pw, text, sizeof text, &found) != 0 || found == NULL) {
        snprintf(c->unknown, sizeof c->unknown, "not run: user %.64s (health.user) is not known on this machine", user);
        return;
    }
    c->uid = pw.pw_uid;
    c->gid = pw.pw_gid;
}

struct checks *checks_create(struct worker *w)
{
    struct checks *c = mem_zalloc(sizeof *c);

    c->worker = w;
    c->every = w->conf->health.period;
    c->timeout = w->conf->health.timeout;
    c->room.folder = w->run_dir;
    find_user(c);
    ev_init(&c->look, look);
    c->look.data = c;
    return c;
}

static void look_every(struct checks *c)
{
    c->look.repeat = c->every < 10 ? c->every : 10;
    ev_timer_again(c->worker->loop, &c->look);
}

void checks_start(struct checks *c)
{
    look(c->worker->loop, &c->look, 0);
    look_every(c);
}

/* ---- what is to be run ---------------------------------------------------------------------------------- */

struct wanted { char *const *programs; size_t n; double period, timeout; };

/* The same bounds as in a configuration: 0, or e says what is wrong with what sluiced sent. */
static int read_plan(const Sluice__CheckPlan *plan, struct wanted *out, struct err *e)
{
    const struct wanted w = { plan->programs, plan->n_programs, plan->period, plan->timeout };

    if (w.n > CONF_MOST_CHECKS)
        return err_set(e, ERR_PROTOCOL, "%zu programs, at most %d are possible", w.n, CONF_MOST_CHECKS);
    if (!(w.period >= 0.1 && w.period <= 86400) || !(w.timeout >= 0.1 && w.timeout <= 3600))
        return err_set(e, ERR_PROTOCOL, "period %g s and timeout %g s: 0.1 to 86400 and 0.1 to 3600 are wanted", w.period, w.timeout);
    for (size_t i = 0; i < w.n; i++) {
        if (w.programs[i][0] != '/' || strlen(w.programs[i]) >= 4096)
            return err_set(e, ERR_PROTOCOL, "program %zu is no absolute path", i + 1);
    }
    *out = w;
    return 0;
}

static bool is_as_now(const struct checks *c, const struct wanted *w)
{
    bool same = w->n == c->n && w->period == c->every && w->timeout == c->timeout;

    for (unsigned i = 0; same && i < c->n; i++)
        same = strcmp(c->at[i]->path, w->programs[i]) == 0;
    return same;
}

static struct check *check_create(struct checks *c, const char *path)
{
    struct check *k = mem_zalloc(sizeof *k);

    k->all = c;
    k->path = mem_strdup(path);
    ev_init(&k->period, run);
    ev_init(&k->limit, too_long);
    k->period.data = k->limit.data = k;
    return k;
}

/* One of before with that path, taken out of the list; else a new one, which begins at once. */
static struct check *take_or_create(struct checks *c, struct check **before, unsigned n, const char *path)
{
    struct check *k = NULL;

    for (unsigned i = 0; k == NULL && i < n; i++) {
        if (before[i] != NULL && strcmp(before[i]->path, path) == 0) {
            k = before[i];
            before[i] = NULL;
        }
    }
    if (k == NULL) {
        k = check_create(c, path);
        ev_timer_set(&k->period, 0, c->every);
        ev_timer_start(c->worker->loop, &k->period);
    } else if (k->period.repeat != c->every) {
        k->period.repeat = c->every;
        ev_timer_again(c->worker->loop, &k->period);
    }
    return k;
}

static void leave(struct checks *c, struct check *k)
{
    k->going = k->late = true;
    ev_timer_stop(c->worker->loop, &k->period);
    ev_timer_stop(c->worker->loop, &k->limit);
    if (k->child == NULL) {
        check_free(k);
        return;
    }
    c->going[c->n_going++] = k;
    child_end(k->child, GRACE_S);
}

void checks_take(struct checks *c, const Sluice__CheckPlan *plan)
{
    const struct conf_health *own = &c->worker->conf->health;
    struct wanted w = { own->programs, own->n_programs, own->period, own->timeout };
    struct check *before[CONF_MOST_CHECKS];
    unsigned n = c->n;
    struct err e;

    if (plan != NULL && read_plan(plan, &w, &e) < 0) {
        log_err("checks: sluiced sent what cannot be taken, nothing changes: %s", e.text);
        return;
    }
    if (c->worker->stopping || is_as_now(c, &w))
        return;
    if (c->n_going + n > CONF_MOST_CHECKS) {     /* processes that do not end; the next settings try again */
        log_warning("checks: %u programs of before have not ended yet, nothing changes", c->n_going);
        return;
    }
    memcpy(before, c->at, n * sizeof *before);
    c->every = w.period;
    c->timeout = w.timeout;
    for (c->n = 0; c->n < w.n; c->n++)
        c->at[c->n] = take_or_create(c, before, n, w.programs[c->n]);
    for (unsigned i = 0; i < n; i++) {
        if (before[i] != NULL)
            leave(c, before[i]);
    }
    look_every(c);
    log_info("checks: %u program%s every %g s, %g s at most each", c->n, c->n == 1 ? "" : "s", c->every, c->timeout);
    worker_changed(c->worker);
}

/* ---- the end -------------------------------------------------------------------------------------------- */

void checks_stop(struct checks *c)
{
    ev_timer_stop(c->worker->loop, &c->look);
    for (unsigned i = 0; i < c->n; i++) {
        struct check *k = c->at[i];

        ev_timer_stop(c->worker->loop, &k->period);
        ev_timer_stop(c->worker->loop, &k->limit);
        k->late = true;
        if (k->child != NULL)
            child_end(k->child, GRACE_S / 2);
    }
}

bool checks_stopped(const struct checks *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->at[i]->child != NULL)
            return false;
    }
    return c->n_going == 0;
}

/* The watch has ended its children before. */
void checks_destroy(struct checks *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->n; i++)
        check_free(c->at[i]);
    for (unsigned i = 0; i < c->n_going; i++)
        check_free(c->going[i]);
    free(c);
}

void checks_fill(struct checks *c, Sluice__Report *m)
{
    m->checks = c->messages;
    for (unsigned i = 0; i < c->n; i++) {
        struct check *k = c->at[i];

        if (!k->known)
            continue;
        sluice__check__init(&k->m);
        k->m.program = (char *)name_of(k);
        k->m.has_state = k->m.has_time = k->m.has_seconds = 1;
        k->m.state = k->state;
        k->m.text = k->text;
        k->m.time = k->ended;
        k->m.seconds = (double)(k->ended - k->started) / 1e9;
        m->checks[m->n_checks++] = &k->m;
    }
    m->has_disk_free = c->room.known;
    m->disk_free = c->room.disk_free;
    m->has_memory_free = c->room.known && c->room.memory_free > 0;
    m->memory_free = c->room.memory_free;
}
