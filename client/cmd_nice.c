/* cmd_nice.c - nice: levels of the reconstruction processes, by pool, job or run */
#include "config.h"

#include "command.h"

#include "change.h"
#include "str.h"

#include <string.h>

int args_nice(const struct args *a, int *has, int32_t *level, struct err *e)
{
    int64_t v = 0;

    *has = args_has(a, "nice");
    if (args_i64(a, "nice", -20, 19, &v, e) < 0)
        return -1;
    *level = (int32_t)v;
    return 0;
}

/* Exactly one of the three. */
static int whose(const struct args *a, Sluice__SetNice *q, struct err *e)
{
    if (args_has(a, "pool") + args_has(a, "job") + args_has(a, "run") != 1)
        return err_set(e, ERR_USAGE, "nice: one of --pool online, --pool async, --job ID and --run ID is wanted");
    q->has_job = args_has(a, "job");
    q->has_run = args_has(a, "run");
    if (q->has_job)
        return args_id("job", args_text(a, "job", ""), &q->job, e);
    if (q->has_run)
        return args_id("run", args_text(a, "run", ""), &q->run, e);
    q->pool = (char *)args_word(a, "pool", "online async", NULL, e);
    return q->pool != NULL ? 0 : -1;
}

int cmd_nice(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__SetNice q = SLUICE__SET_NICE__INIT;
    int64_t level = 0;
    int r = change_columns(ctx, e);

    if (r <= 0)
        return r;
    if (whose(a, &q, e) < 0)
        return -1;
    q.has_level = strcmp(a->at[0], "pool") != 0;
    if (!q.has_level && q.pool != NULL)
        return err_set(e, ERR_USAGE, "nice: the level of a pool is -20 to 19");
    if (q.has_level && str_parse_i64("nice", a->at[0], -20, 19, &level, e) < 0)
        return -1;
    q.level = (int32_t)level;
    return change(ctx, &q.base, e);
}
