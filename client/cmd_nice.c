/* cmd_nice.c - nice: levels of the reconstruction processes, by pool */
#include "config.h"

#include "command.h"

#include "change.h"
#include "str.h"

int cmd_nice(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__SetNice q = SLUICE__SET_NICE__INIT;
    int64_t level;

    q.pool = (char *)args_word(a, "pool", "online async", NULL, e);
    if (q.pool == NULL)
        return args_has(a, "pool") ? -1 : err_set(e, ERR_USAGE, "nice: --pool online or --pool async is wanted");
    if (str_parse_i64("nice", a->at[0], -20, 19, &level, e) < 0)
        return -1;
    q.has_level = 1;
    q.level = (int32_t)level;
    return change(ctx, &q.base, e);
}
