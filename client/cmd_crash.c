/* cmd_crash.c - time-frames that killed their reconstruction process and were kept */
#include "config.h"

#include "command.h"

#include "call.h"
#include "mem.h"
#include "message.h"
#include "show.h"

#include <stdio.h>
#include <stdlib.h>

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
