/* cmd_crash.c - time-frames that killed their reconstruction process and were kept */
#include "config.h"

#include "command.h"

#include "call.h"
#include "local.h"
#include "mem.h"
#include "message.h"
#include "show.h"
#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct column columns[] = {
    { "id" }, { "time", NULL, AS_TIME }, { "node" }, { "device" }, { "run" }, { "job" }, { "tf" }, { "attempt" }, { "word" }, { "workflow" },
    { "bytes", NULL, AS_SIZE }, { "folder" }, { "text" }, { 0 },
};
static const struct listing listing = { "crashes", columns, "id,time,node,run,job,tf,attempt,word,bytes,folder",
                                        &sluice__crash__descriptor };

static int show_crashes(struct context *ctx, const uint64_t *id, struct err *e)
{
    Sluice__GetCrashes q = SLUICE__GET_CRASHES__INIT;
    Sluice__Crashes *c;
    json_t *list;
    int r;

    if (show_columns_help(ctx, &listing))
        return 0;
    q.has_id = id != NULL;
    q.id = id != NULL ? *id : 0;
    c = call(ctx, &q.base, SLUICE__TYPE__CRASHES, CALL_LIMIT_S, e);
    if (c == NULL)
        return -1;
    list = message_list(&c->base, "crashes");
    if (id == NULL)
        r = show_list(ctx, &listing, NULL, json_incref(list), e);
    else if (json_array_size(list) == 0)
        r = err_set(e, ERR_NOT_FOUND, "there is no such crash");
    else
        r = show_one(ctx, &listing, json_incref(json_array_get(list, 0)), e);
    json_decref(list);
    call_free(c);
    return r;
}

int cmd_crash_list(struct context *ctx, const struct args *a, struct err *e)
{
    (void)a;
    return show_crashes(ctx, NULL, e);
}

int cmd_crash_show(struct context *ctx, const struct args *a, struct err *e)
{
    uint64_t id;

    return args_id("crash", a->at[0], &id, e) < 0 ? -1 : show_crashes(ctx, &id, e);
}

int cmd_crash_purge(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__PurgeCrashes q = SLUICE__PURGE_CRASHES__INIT;
    Sluice__Ok *ok = NULL;
    int r = 0;

    if ((a->n == 0) != args_has(a, "all"))
        return err_set(e, ERR_USAGE, "crash purge: ids, or --all, are wanted");
    q.ids = mem_array((size_t)a->n, sizeof(*q.ids));
    for (int i = 0; r == 0 && i < a->n; i++)
        r = args_id("crash", a->at[i], &q.ids[q.n_ids++], e);
    q.has_all = q.all = args_has(a, "all");
    if (r == 0)
        ok = call(ctx, &q.base, SLUICE__TYPE__OK, CALL_LIMIT_S, e);
    if (ok != NULL && ok->text != NULL) {
        char *text = show_text(ok->text);

        fprintf(stderr, "%s\n", text);
        free(text);
    }
    r = ok != NULL ? 0 : -1;
    call_free(ok);
    free(q.ids);
    return r;
}

/* --- rerun ---------------------------------------------------------------------------------- */

/* The row of that crash. NULL: e. */
static Sluice__Crashes *crash_row(struct context *ctx, uint64_t id, struct err *e)
{
    Sluice__GetCrashes q = SLUICE__GET_CRASHES__INIT;
    Sluice__Crashes *c;

    q.has_id = 1;
    q.id = id;
    c = call(ctx, &q.base, SLUICE__TYPE__CRASHES, CALL_LIMIT_S, e);
    if (c != NULL && (c->n_crashes != 1 || str_is_empty(c->crashes[0]->folder))) {
        call_free(c);
        return err_null(e, ERR_NOT_FOUND, "crash %" PRIu64 ": nothing was kept of it", id);
    }
    return c;
}

/* What the worker wrote beside the bytes. NULL: e. */
static json_t *crash_parameters(const Sluice__Crash *c, struct err *e)
{
    char *path = mem_printf("%s/crash.json", c->folder), *tf = mem_printf("%s/tf", c->folder);
    json_t *j = NULL;

    if (access(c->folder, F_OK) < 0)
        err_set(e, ERR_NOT_FOUND, "crash %" PRIu64 ": its folder is on the machine of node %s: %s", c->id, c->node != NULL ? c->node : "?", c->folder);
    else if (access(tf, R_OK) < 0)
        err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_PERMISSION, "crash %" PRIu64 ": the bytes of the time-frame are not there: %s", c->id, tf);
    else if ((j = json_load_file(path, 0, NULL)) == NULL)
        err_set(e, ERR_FAILED, "%s: a JSON document is wanted", path);
    free(path);
    free(tf);
    return j;
}

static void tell_versions(const json_t *j)
{
    const char *then = json_string_value(json_object_get(j, "reco_software"));
    char *shown;

    if (then == NULL || str_equal(then, "sluice-reco " PACKAGE_VERSION))
        return;
    shown = show_text(then);
    fprintf(stderr, "it was %s then, and is sluice-reco " PACKAGE_VERSION " now\n", shown);
    free(shown);
}

static void add(char **argv, int *n, const char *option, const char *value)
{
    if (str_is_empty(value))
        return;
    argv[(*n)++] = mem_strdup(option);
    argv[(*n)++] = mem_strdup(value);
}

/* Becomes sluice-reco with what it had then; only where it ran, and whether another backend is to be tried, may be said anew. */
static int become_reco(const struct args *a, const Sluice__Crash *c, const json_t *j, struct err *e)
{
    char *argv[16] = { local_find("sluice-reco", e), mem_strdup("reco"), mem_printf("%s/tf", c->folder) };
    char *backend = args_joined(a, "backend");
    int n = 3;

    if (argv[0] != NULL) {
        add(argv, &n, "--workflow", json_string_value(json_object_get(j, "workflow")));
        add(argv, &n, "--backend", backend != NULL ? backend : json_string_value(json_object_get(j, "backends")));
        add(argv, &n, "--set", json_string_value(json_object_get(j, "options")));
        add(argv, &n, "--output", args_text(a, "output", NULL));
        if (args_has(a, "json"))
            argv[n++] = mem_strdup("--json");
        tell_versions(j);
        fflush(stderr);
        execv(argv[0], argv);
        err_errno(e, ERR_FAILED, "%s", argv[0]);
    }
    for (int i = 0; i < n; i++)
        free(argv[i]);
    free(backend);
    return -1;
}

int cmd_crash_rerun(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Crashes *c;
    json_t *j;
    uint64_t id;
    int r = -1;

    if (args_id("crash", a->at[0], &id, e) < 0 || (c = crash_row(ctx, id, e)) == NULL)
        return -1;
    j = crash_parameters(c->crashes[0], e);
    if (j != NULL)
        r = become_reco(a, c->crashes[0], j, e);
    json_decref(j);
    call_free(c);
    return r;
}
