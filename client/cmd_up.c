/* cmd_up.c - up and down: a farm on this machine
 *
 * up makes the folder and its configuration, starts what does not run (sluiced first, then all workers at once), waits until the
 * nodes are usable and prints the socket. What runs already is left alone. down ends what up started, and nothing else.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "conf.h"
#include "farm.h"
#include "full.h"
#include "launch.h"
#include "local.h"
#include "mem.h"
#include "spec.h"
#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_DIR  "sluice-farm"
#define DEFAULT_SPEC "mi50:2,mi100:1"
enum { WAIT_S = 60, LOCK_S = 120, END_S = 5, SHM_LEAST = 64 << 10 };
enum { STOP_S = 1, ASK_S = 3 };               /* for time-frames in flight when down stops the runs; for sluiced's answers */

/* --- the configuration ---------------------------------------------------------------------- */

static void set(char **to, const char *fmt, const char *dir)
{
    free(*to);
    *to = mem_printf("%s/%s", dir, fmt);
}

/* The farm's own configuration, or a new one. moved: its paths were those of another folder. */
static struct conf *farm_conf(const struct farm *f, bool *fresh, bool *moved, struct err *e)
{
    char *path = farm_path(f, "sluice.conf"), *state = farm_path(f, "state");
    struct conf *c;

    *fresh = access(path, F_OK) < 0 && errno == ENOENT;
    c = *fresh ? conf_parse("pool online { min_good = 1 }\npool async { min_good = 0 }\n", path, e) : conf_read(path, e);
    *moved = c != NULL && strcmp(c->state_dir, state) != 0;
    if (*moved) {
        set(&c->state_dir, "state", f->dir);
        set(&c->socket, "sluiced.sock", f->dir);
        set(&c->worker.crash_dir, "state/crash", f->dir);
    }
    free(path);
    free(state);
    return c;
}

static int write_conf(const struct farm *f, const struct conf *c, struct err *e)
{
    char *path = farm_path(f, "sluice.conf"), *text = conf_show(c);
    struct str s = { 0 };
    int r;

    str_addf(&s, "# sluice.conf - made by sluice up; may be edited while the farm is down, see sluice.conf(5)\n%s", text);
    r = file_replace(path, str_text(&s), s.len, 0644, e);
    str_free(&s);
    free(text);
    free(path);
    return r;
}

static bool anything_runs(struct farm *f)
{
    for (unsigned i = 0; i < f->n; i++)
        if (file_owner_alive(&f->processes[i].owner))
            return true;
    return false;
}

/* Brings the file in line with what was asked for. What runs keeps what it was started with, so that is refused. */
static struct conf *prepare_conf(struct farm *f, struct spec *spec, struct err *e)
{
    struct farm_process *sluiced = farm_running(f, "sluiced");
    struct spec_change change;
    struct conf *c;
    bool fresh, moved;

    c = farm_conf(f, &fresh, &moved, e);
    if (c == NULL)
        return NULL;
    if (fresh && spec->n == 0 && spec_parse(spec, DEFAULT_SPEC, e) < 0)
        goto fail;
    if (spec_apply(spec, c, &change, e) < 0)
        goto fail;
    if ((change.classes || moved) && anything_runs(f)) {
        err_set(e, ERR_STATE, "farm %s is up with other buffers, service times or paths; sluice down --dir %s first", f->dir, f->dir);
        goto fail;
    }
    if ((fresh || moved || change.nodes || change.classes) && write_conf(f, c, e) < 0)
        goto fail;
    if (change.real != NULL)
        fprintf(stderr, "class %s is new and not emulated: its nodes are as fast as this machine (--nominal %s=MS holds them to a time)\n", change.real, change.real);
    if (change.nodes && sluiced != NULL)
        kill(sluiced->owner.pid, SIGHUP);
    return c;
fail:
    conf_destroy(c);
    return NULL;
}

/* --- starting ------------------------------------------------------------------------------- */

/* A farm that was up has a state: an empty one in its place would forget every mark without a word. */
static int check_state(struct farm *f, struct err *e)
{
    char *state = farm_path(f, "state"), *id = farm_path(f, "state/state.id"), *db = farm_path(f, "state/state.db"), *run = farm_path(f, "run");
    int r = 0;

    /* Folders in run/ are made when sluiced was ready; state.id is there from its first start on. */
    bool lost = access(id, F_OK) < 0 && errno == ENOENT && rmdir(run) < 0 && (errno == ENOTEMPTY || errno == EEXIST);
    if (lost && access(db, F_OK) == 0)          /* copied by hand it would give numbers a second time */
        r = err_set(e, ERR_STATE, "%s is there, but it is not the state that this farm had (no state.id is beside it); if it is a backup, have it put in place: "
                    "mv %s FILE; sluiced --restore FILE --state %s", db, db, state);
    else if (lost)
        r = err_set(e, ERR_STATE, "the state in %s is gone, though this farm was up before; put a backup in its place (mkdir -p %s; sluiced --restore FILE "
                    "--state %s), or remove %s to begin without nodes' marks, runs and jobs", state, state, state, run);
    free(state);
    free(id);
    free(db);
    free(run);
    return r;
}

static int make_folders(struct farm *f, const struct conf *c, struct err *e)
{
    static const char *const names[] = { "state", "log", "run" };

    if (check_state(f, e) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        char *path = farm_path(f, names[i]);
        int r = file_mkdirs(path, 0755, e);

        free(path);
        if (r < 0)
            return -1;
    }
    return farm_make_shm(f, c->worker.shm_dir, e);
}

/* A sluiced whose socket somebody removed hears nobody: it is ended, so that it can be started again; workers and sources wait for
 * it as for any restart. True: there is nothing more to do, and r is how it went. */
static bool end_unheard(struct farm *f, int *r, struct err *e)
{
    char *socket = farm_path(f, "sluiced.sock");
    bool gone = access(socket, F_OK) < 0 && errno == ENOENT;

    free(socket);
    *r = 0;
    if (!gone)
        return true;
    fprintf(stderr, "the socket of sluiced is gone: starting it anew\n");
    *r = farm_end_one(farm_running(f, "sluiced"), END_S, e);
    return *r < 0;
}

static int start_sluiced(struct farm *f, const char *conf, double limit_s, struct err *e)
{
    char *program, *state, *socket, *log;
    struct launch *l;
    int r;

    if (farm_running(f, "sluiced") != NULL && end_unheard(f, &r, e))
        return r;
    program = local_find("sluiced", e);
    if (program == NULL)
        return -1;
    state = farm_path(f, "state");
    socket = farm_path(f, "sluiced.sock");
    log = farm_path(f, "log/sluiced.log");
    l = mem_zalloc(sizeof(*l));
    r = launch_start(f, "sluiced", (const char *const[]){ program, "--config", conf, "--state", state, "--socket", socket, "--log", log, NULL }, l, e);
    if (r == 0)
        r = launch_wait(l, 1, limit_s, e);
    if (r == 0)
        fprintf(stderr, "started sluiced\n");
    launch_free(l, 1);
    free(program);
    free(state);
    free(socket);
    free(log);
    return r;
}

static int start_worker(struct farm *f, const char *conf, const char *program, const char *node, const char *class, struct launch *l, struct err *e)
{
    char *server = mem_printf("unix:%s/sluiced.sock", f->dir), *run = mem_printf("%s/run/%s", f->dir, node);
    char *log = mem_printf("%s/log/%s.log", f->dir, node);
    const char *argv[] = { program, "--config", conf, "--server", server, "--node", node, "--class", class, "--shm-dir", f->shm_dir,
                           "--run-dir", run, "--log", log, NULL };
    int r = file_mkdirs(run, 0755, e);

    if (r == 0)
        r = launch_start(f, node, argv, l, e);
    free(server);
    free(run);
    free(log);
    return r;
}

/* Nodes of the configuration that people took out for good: they are left alone, and named once. NULL: e. */
static struct hostlist *retired_nodes(struct context *ctx, const struct conf *c, double limit_s, struct err *e)
{
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;
    struct hostlist *found = hostlist_create(), *r = NULL;
    Sluice__Nodes *nodes;

    q.has_retired = q.retired = 1;
    nodes = call(ctx, &q.base, SLUICE__TYPE__NODES, limit_s, e);
    for (size_t i = 0; nodes != NULL && i < nodes->n_retired; i++)
        if (conf_node_find(c, nodes->retired[i]) != NULL && hostlist_add(found, nodes->retired[i], e) < 0)
            goto done;
    r = nodes != NULL ? found : NULL;
    if (r != NULL && hostlist_count(r) > 0) {
        char *names = hostlist_fold(r);
        const char *first = hostlist_name(r, 0);

        fprintf(stderr, "left alone, as %s: %s (`sluice node add %s --class %s` and up bring %s back)\n", hostlist_count(r) == 1 ? "it was retired" : "they were retired", names,
                first, conf_node_find(c, first)->class_name, hostlist_count(r) == 1 ? "it" : "that one");
        free(names);
    }
done:
    call_free(nodes);
    if (r == NULL)
        hostlist_destroy(found);
    return r;
}

static int start_workers(struct farm *f, const struct conf *c, const struct hostlist *retired, const char *conf, double limit_s, struct err *e)
{
    char *program = local_find("sluice-worker", e);
    struct launch *l = NULL;
    size_t n = 0;
    int r = program != NULL ? 0 : -1;

    for (unsigned i = 0; r == 0 && i < c->n_nodes; i++) {
        for (size_t k = 0; r == 0 && k < hostlist_count(c->nodes[i].names); k++) {
            const char *node = hostlist_name(c->nodes[i].names, k);

            if (farm_running(f, node) != NULL || hostlist_has(retired, node))
                continue;
            l = mem_grow(l, n + 1, sizeof(*l));
            r = start_worker(f, conf, program, node, c->nodes[i].class_name, &l[n], e);
            n += r == 0;
        }
    }
    if (n > 0 && launch_wait(l, n, limit_s, r == 0 ? e : NULL) < 0)
        r = -1;
    if (n > 0 && r == 0)
        fprintf(stderr, "started %zu worker%s\n", n, n == 1 ? "" : "s");
    launch_free(l, n);
    free(program);
    return r;
}

/* --- waiting -------------------------------------------------------------------------------- */

static bool has_why(const Sluice__Node *n, const char *code)
{
    for (size_t i = 0; i < n->n_why; i++)
        if (strcmp(n->why[i], code) == 0)
            return true;
    return false;
}

/* A node that people took out is as usable as it will get; one that gets another size will be usable. */
static bool settled(const Sluice__Node *n)
{
    return n->usable || (n->has_state && n->state == SLUICE__NODE_STATE__BAD) || has_why(n, "Moving");
}

/* Which node is not there yet; NULL when all are. why gets its reasons. */
static const char *missing(const struct conf *c, const struct hostlist *retired, const Sluice__Nodes *nodes, struct str *why)
{
    for (unsigned i = 0; i < c->n_nodes; i++) {
        for (size_t k = 0; k < hostlist_count(c->nodes[i].names); k++) {
            const char *name = hostlist_name(c->nodes[i].names, k);
            const Sluice__Node *n = NULL;

            for (size_t j = 0; n == NULL && j < nodes->n_nodes; j++)
                if (str_equal(nodes->nodes[j]->name, name))
                    n = nodes->nodes[j];
            if (hostlist_has(retired, name) || (n != NULL && settled(n)))
                continue;
            str_clear(why);
            for (size_t j = 0; n != NULL && j < n->n_why; j++)
                str_addf(why, "%s%s", j > 0 ? ", " : "", n->why[j]);
            if (n != NULL && n->trouble != NULL && n->trouble[0] != '\0')
                str_addf(why, " (%s)", n->trouble);
            return name;
        }
    }
    return NULL;
}

static int wait_usable(struct context *ctx, const struct conf *c, const struct hostlist *retired, double limit_s, struct err *e)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * 1e9);
    struct str why = { 0 };
    int r = 1;

    while (r == 1) {
        Sluice__GetNodes q = SLUICE__GET_NODES__INIT;
        Sluice__Nodes *nodes = call(ctx, &q.base, SLUICE__TYPE__NODES, limit_s, e);
        const char *name = nodes != NULL ? missing(c, retired, nodes, &why) : NULL;

        if (nodes == NULL)
            r = -1;
        else if (name == NULL)
            r = 0;
        else if (clock_mono_ns() > end)
            r = err_set(e, ERR_TIMEOUT, "node %s is not usable after %.0f s: %s", name, limit_s, why.len > 0 ? str_text(&why) : "it has not registered");
        else
            nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        call_free(nodes);
    }
    str_free(&why);
    return r;
}

/* --- the commands --------------------------------------------------------------------------- */

static int parse_options(const struct args *a, struct spec *s, double *limit_s, struct err *e)
{
    if (spec_parse(s, args_text(a, "nodes", NULL), e) < 0 || args_size(a, "shm", &s->shm, e) < 0 || args_seconds(a, "timeout", limit_s, e) < 0)
        return -1;
    if (s->shm != 0 && s->shm < SHM_LEAST)
        return err_set(e, ERR_USAGE, "--shm '%s': at least 64K is wanted", args_text(a, "shm", ""));
    for (size_t i = 0; i < a->n_given; i++)
        if (strcmp(a->given[i].name, "nominal") == 0 && spec_nominal(s, a->given[i].value, e) < 0)
            return -1;
    return 0;
}

static int bring_up(struct context *ctx, struct farm *f, struct spec *s, double limit_s, struct err *e)
{
    char *path = farm_path(f, "sluice.conf"), *socket = farm_path(f, "sluiced.sock");
    struct conf *c = prepare_conf(f, s, e);
    struct hostlist *retired = NULL;
    int r = c != NULL ? make_folders(f, c, e) : -1;

    free(ctx->address);
    ctx->address = mem_printf("unix:%s", socket);
    ctx->tcp = false;
    if (r == 0)
        r = start_sluiced(f, path, limit_s, e);
    if (r == 0 && (retired = retired_nodes(ctx, c, limit_s, e)) == NULL)
        r = -1;
    if (r == 0)
        r = start_workers(f, c, retired, path, limit_s, e);
    if (r == 0)
        r = wait_usable(ctx, c, retired, limit_s, e);
    if (r == 0)
        printf("%s\n", socket);
    else if (e->code != ERR_USAGE)
        full_tell((const char *const[]){ f->dir, c != NULL ? c->state_dir : NULL, c != NULL ? c->worker.shm_dir : NULL }, 3, e);
    hostlist_destroy(retired);
    conf_destroy(c);
    free(path);
    free(socket);
    return r;
}

int cmd_up(struct context *ctx, const struct args *a, struct err *e)
{
    struct spec s = { 0 };
    struct farm *f = NULL;
    double limit_s = WAIT_S;
    int r = -1;

    if (parse_options(a, &s, &limit_s, e) == 0)
        f = farm_open(args_text(a, "dir", DEFAULT_DIR), true, LOCK_S, e);
    if (f != NULL)
        r = bring_up(ctx, f, &s, limit_s, e);
    farm_close(f);
    spec_free(&s);
    return r;
}

static double left_of(int64_t end)
{
    double s = (double)(end - clock_mono_ns()) / 1e9;

    return s > 0 ? s : 0;
}

/* Whoever waits for a run of this farm hears why it ends. What does not answer is ended all the same. */
static void stop_runs(struct context *ctx, const struct farm *f)
{
    int64_t end = clock_mono_ns() + (int64_t)(STOP_S * 1e9);
    Sluice__GetRuns all = SLUICE__GET_RUNS__INIT;
    Sluice__Runs *runs, *stopped;
    struct err e;

    free(ctx->address);
    ctx->address = mem_printf("unix:%s/sluiced.sock", f->dir);
    ctx->tcp = false;
    runs = call(ctx, &all.base, SLUICE__TYPE__RUNS, ASK_S, &e);
    for (size_t i = 0; runs != NULL && i < runs->n_runs; i++) {
        Sluice__StopRun q = SLUICE__STOP_RUN__INIT;

        q.has_id = q.has_data_timeout = 1;
        q.id = runs->runs[i]->id;
        q.data_timeout = left_of(end);
        q.reason = (char *)"the farm is taken down";
        stopped = call(ctx, &q.base, SLUICE__TYPE__RUNS, q.data_timeout + ASK_S, &e);
        if (stopped == NULL) {
            fprintf(stderr, "run %" PRIu64 " was not stopped: %s\n", q.id, e.text);
            break;
        }
        call_free(stopped);
    }
    call_free(runs);
}

int cmd_down(struct context *ctx, const struct args *a, struct err *e)
{
    struct farm *f = farm_open(args_text(a, "dir", DEFAULT_DIR), false, LOCK_S, e);
    unsigned ended;
    int r;

    if (f == NULL)
        return -1;
    if (farm_running(f, "sluiced") != NULL)
        stop_runs(ctx, f);
    r = farm_end(f, END_S, &ended, e);
    if (r == 0)
        fprintf(stderr, ended == 0 ? "nothing was running\n" : ended == 1 ? "ended %u process\n" : "ended %u processes\n", ended);
    farm_close(f);
    return r;
}
