/* sluiced.c - the daemon's parts, started in order, ended backwards; the configuration, read and read again
 *
 * From: main.c, tests.  To: every part.
 * What failed to start ends what had been started. The writer stands early in the list, because everything stores through it, and ends right
 * after the sessions: what it still has to tell finds every other part alive.
 */
#include "config.h"

#include "sluiced.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "file.h"
#include "flow.h"
#include "health.h"
#include "helper.h"
#include "hook.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "nice.h"
#include "node.h"
#include "restore.h"
#include "rights.h"
#include "roster.h"
#include "show.h"
#include "slurm_farm.h"
#include "str.h"
#include "watch.h"

static const double settle_s = 2;        /* at start-up the configuration's nodes have so long to get to the disk */

/* ---- the configuration ---- */

static void put_over(char **field, const char *word)
{
    if (word == NULL)
        return;
    free(*field);
    *field = mem_strdup(word);
}

/* The command line may have brought a port to a file that has no method. */
static int check_conf(const struct conf *c, struct err *e)
{
    if (c->listen != NULL && (c->auth == NULL || strcmp(c->auth, "none") == 0))
        return err_set(e, ERR_USAGE, "listen = %s: a TCP port wants a method of authentication (auth = munge)", c->listen);
    return 0;
}

struct conf *sluiced_conf(const struct start *start, struct err *e)
{
    struct conf *c = conf_read(start->config, e);

    if (c == NULL)
        return NULL;
    put_over(&c->state_dir, start->state_dir);
    put_over(&c->socket, start->socket);
    put_over(&c->listen, start->listen);
    if (check_conf(c, e) == 0)
        return c;
    conf_destroy(c);
    return NULL;
}

/* ---- start, in order ---- */

struct starting { struct sluiced *d; struct db *db, *reader; };

static int start_conf(struct starting *s, struct err *e)
{
    s->d->conf = sluiced_conf(s->d->start, e);
    if (s->d->conf == NULL)
        return -1;
    s->d->rights = rights_create(s->d->conf, e);
    return s->d->rights == NULL ? -1 : 0;
}

static int start_state(struct starting *s, struct err *e)
{
    struct sluiced *d = s->d;

    s->db = db_open(d->conf->state_dir, NULL, e);
    if (s->db == NULL)
        return -1;
    d->epoch = db_next_epoch(s->db, e);
    if (d->epoch == 0)
        return -1;
    s->reader = db_open_reader(d->conf->state_dir, e);
    return s->reader == NULL ? -1 : 0;
}

static int start_threads(struct starting *s, struct err *e)
{
    struct sluiced *d = s->d;
    struct db *db = s->db;

    s->db = NULL;                        /* the writer's from now on, also when it fails */
    d->names = names_create(d->loop, e);
    if (d->names == NULL) {
        db_close(db);
        return -1;
    }
    d->writer = writer_create(d->loop, db, e);
    if (d->writer == NULL)
        return -1;
    writer_set_limits(d->writer, d->conf->limits.lock_timeout, d->conf->limits.run_tfs);
    d->helper = helper_create(d->loop, e);
    return d->helper == NULL ? -1 : 0;
}

static int start_memory(struct starting *s, struct err *e)
{
    struct sluiced *d = s->d;

    d->counters = counters_create();
    d->history = history_create(d, s->reader, e);
    d->watches = watches_create(d);
    d->show = show_create(d);
    return d->history == NULL ? -1 : 0;
}

static int start_farm(struct starting *s, struct err *e)
{
    return restore_farm(s->d, s->reader, e);
}

static int start_flow(struct starting *s, struct err *e)
{
    struct sluiced *d = s->d;

    d->flow = flow_create(d);
    d->runs = runs_create(d, s->reader, e);
    if (d->runs == NULL)
        return -1;
    d->jobs = jobs_create(d, s->reader, e);
    return d->jobs == NULL ? -1 : 0;
}

static bool is_settling(struct farm *f)
{
    for (struct node *n = farm_first(f); n != NULL; n = n->hh.next) {
        if (n->adding)
            return true;
    }
    return false;
}

/* The nodes of the configuration are there before anybody connects; a disk that takes longer does not keep the rest waiting. */
static int start_roster(struct starting *s, struct err *e)
{
    struct sluiced *d = s->d;
    int64_t until = clock_mono_ns() + (int64_t)(settle_s * 1e9);

    roster_take_conf(d);
    d->slurm = slurm_create(d, s->reader, e);
    if (d->slurm == NULL)
        return -1;
    slurm_take_conf(d);
    moves_begin(d->moves);
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next)
        node_changed(n);
    while (is_settling(d->farm) && clock_mono_ns() < until)
        ev_run(d->loop, EVRUN_ONCE);
    return 0;
}

static int start_sessions(struct starting *s, struct err *e)
{
    char *copy = mem_strdup(s->d->conf->socket);
    int rc = file_mkdirs(dirname(copy), 0755, e);

    free(copy);
    if (rc < 0)
        return -1;
    s->d->sessions = sessions_create(s->d, e);
    if (s->d->sessions == NULL)
        return -1;
    s->d->hook = hook_create(s->d, s->reader, e);
    return s->d->hook == NULL ? -1 : 0;
}

int sluiced_start(struct sluiced *d, struct ev_loop *loop, const struct start *start, struct err *e)
{
    static int (*const parts[])(struct starting *s, struct err *e) = {
        start_conf, start_state, start_threads, start_memory, start_farm, start_flow, start_roster, start_sessions,
    };
    struct starting s = { .d = d };
    int rc = 0;

    memset(d, 0, sizeof(*d));
    d->loop = loop;
    d->start = mem_zalloc(sizeof(*d->start));
    *d->start = *start;
    d->started = clock_wall_ns();
    for (size_t i = 0; i < ARRAY_LEN(parts) && rc == 0; i++)
        rc = parts[i](&s, e);
    db_close(s.reader);
    db_close(s.db);
    if (rc == 0) {
        log_info("sluiced %s: start %llu, state in %s, listening on %s", PACKAGE_VERSION, (unsigned long long)d->epoch, d->conf->state_dir, d->conf->socket);
        return 0;
    }
    sluiced_stop(d, 1);
    return -1;
}

/* ---- stop, backwards ---- */

unsigned sluiced_stop(struct sluiced *d, double limit_s)
{
    unsigned lost;

    d->stopping = true;
    sessions_destroy(d->sessions);
    d->sessions = NULL;
    helper_destroy(d->helper);
    jobs_stop(d->jobs);
    lost = writer_destroy(d->writer, limit_s);
    d->writer = NULL;
    flow_destroy(d->flow);
    jobs_destroy(d->jobs);
    runs_destroy(d->runs);
    show_destroy(d->show);
    slurm_destroy(d->slurm);
    shms_destroy(d->shms);
    moves_destroy(d->moves);
    farm_destroy(d->farm);
    health_destroy(d->health);
    marks_destroy(d->marks);
    watches_destroy(d->watches);
    history_destroy(d->history);
    hook_destroy(d->hook);
    counters_destroy(d->counters);
    names_destroy(d->names);
    rights_destroy(d->rights);
    conf_destroy(d->conf);
    free(d->start);
    memset(d, 0, sizeof(*d));
    return lost;
}

/* ---- reload ---- */

struct reload {
    struct sluiced *d;
    struct start start;
    struct conf *conf;
    struct rights *rights;
    struct err why;
};

/* In a helper thread: the file may lie on a slow disk, groups behind a slow directory. */
static void reload_work(void *arg)
{
    struct reload *r = arg;

    r->conf = sluiced_conf(&r->start, &r->why);
    if (r->conf != NULL)
        r->rights = rights_create(r->conf, &r->why);
}

/* What is fixed for the life of the process: all of it that the new file has otherwise, in one sentence. */
static int needs_restart(const struct conf *old, const struct conf *new, struct err *e)
{
    const struct { const char *key, *before, *after; } fixed[] = {
        { "state_dir", old->state_dir, new->state_dir }, { "socket", old->socket, new->socket },
        { "listen", old->listen, new->listen },          { "auth", old->auth, new->auth },
        { "log", old->log, new->log },
    };
    struct str found = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(fixed); i++) {
        if (!str_equal(fixed[i].before, fixed[i].after))
            str_addf(&found, "%s%s ('%.100s' instead of '%.100s')", found.len > 0 ? ", " : "", fixed[i].key, fixed[i].after == NULL ? "" : fixed[i].after,
                     fixed[i].before == NULL ? "" : fixed[i].before);
    }
    if (found.len > 0)
        err_set(e, ERR_STATE, "%s: a restart is wanted for %s; nothing was taken", new->path == NULL ? "defaults" : new->path, str_text(&found));
    int rc = found.len > 0 ? -1 : 0;
    str_free(&found);
    return rc;
}

/* Names, six at most. */
struct dropped { struct str names; unsigned n; };

static void dropped_add(struct dropped *x, const struct node *n)
{
    if (x->n++ < 6)
        str_addf(&x->names, "%s%s", x->names.len > 0 ? ", " : "", n->name);
}

static int dropped_say(struct dropped *x, const struct conf *new, const char *what, struct err *e)
{
    int rc = 0;

    if (x->n > 6)
        str_addf(&x->names, " and %u more", x->n - 6);
    if (x->n > 0)
        rc = err_set(e, ERR_STATE, "%s: %u node%s %s: %s; `sluice node retire` takes a node out, then the file may go without it; nothing was taken",
                     new->path == NULL ? "defaults" : new->path, x->n, x->n == 1 ? "" : "s", what, str_text(&x->names));
    str_free(&x->names);
    return rc;
}

/* A file that was emptied, or lost a line, strips no farm: nodes leave by a decision of people, which is stored with its reason. */
static int drops_nodes(struct sluiced *d, const struct conf *new, struct err *e)
{
    struct dropped classless = { 0 }, unnamed = { 0 };
    int rc = 0;

    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (!n->added && !n->adding)
            continue;
        if (conf_class_find(new, n->class) == NULL && conf_class_find(d->conf, n->class) != NULL)
            dropped_add(&classless, n);
        else if ((n->session != NULL || n->n_tfs > 0) && conf_node_find(d->conf, n->name) != NULL && conf_node_find(new, n->name) == NULL)
            dropped_add(&unnamed, n);
    }
    rc |= dropped_say(&unnamed, new, "in use would be named no more", e);
    rc |= dropped_say(&classless, new, "of the farm would be of a class that is not there any more", e);
    return rc;
}

static void reload_refused(struct sluiced *d, const struct err *why)
{
    log_err("configuration: %s; the old one holds", why->text);
    snprintf(d->reload_why, sizeof(d->reload_why), "%s", why->text);
    d->reload_failed = clock_wall_ns();
    counters_add(d->counters, "reloads_refused", 1);
}

static void reload_taken(struct sluiced *d, struct reload *r)
{
    conf_destroy(d->conf);
    rights_destroy(d->rights);
    d->conf = r->conf;
    d->rights = r->rights;
    r->conf = NULL;
    r->rights = NULL;
    d->reload_failed = 0;
    writer_set_limits(d->writer, d->conf->limits.lock_timeout, d->conf->limits.run_tfs);
    log_info("configuration: read again from %s", d->conf->path == NULL ? "nowhere: defaults" : d->conf->path);
    history_note(d, NULL, "sluiced", "configuration read", "", "", d->conf->path);
    roster_take_conf(d);
    slurm_take_conf(d);
    able_configured(d->flow);
    for (int pool = 0; pool < 2; pool++)
        nice_tell(d, pool);              /* and with it all that workers are told of the configuration */
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        health_configured(n);
        node_changed(n);
    }
}

static void reload_done(void *arg)
{
    struct reload *r = arg;
    struct sluiced *d = r->d;

    if (r->rights == NULL || needs_restart(d->conf, r->conf, &r->why) < 0 || drops_nodes(d, r->conf, &r->why) < 0)
        reload_refused(d, &r->why);
    else
        reload_taken(d, r);
    rights_destroy(r->rights);
    conf_destroy(r->conf);
    free(r);
}

void sluiced_reload(struct sluiced *d)
{
    struct reload *r = mem_zalloc(sizeof(*r));
    struct err e;

    r->d = d;
    r->start = *d->start;
    if (log_reopen(&e) < 0)
        log_warning("log: %s", e.text);
    if (helper_run(d->helper, reload_work, reload_done, r, &e) == 0)
        return;
    reload_refused(d, &e);
    free(r);
}
