/* cmd_logs.c - the last lines of nodes' logs */
#include "config.h"

#include "command.h"

#include "call.h"
#include "nodelist.h"
#include "show.h"

#include <stdio.h>
#include <stdlib.h>

static void print_lines(const char *node, const Sluice__Logs *logs)
{
    for (size_t i = 0; i < logs->n_lines; i++) {
        char *text = show_text(logs->lines[i]);

        printf("%s: %s\n", node, text);
        free(text);
    }
}

int cmd_logs(struct context *ctx, const struct args *a, struct err *e)
{
    const char *list = args_text(a, "node", NULL);
    uint64_t lines = 100;
    struct hostlist *h;
    int r = 0;

    if (list == NULL)
        return err_set(e, ERR_USAGE, "logs: --node LIST is wanted");
    if (args_u64(a, "lines", 1, 512, &lines, e) < 0)
        return -1;
    h = nodelist(ctx, a, list, e);
    if (h == NULL)
        return -1;
    for (size_t i = 0; r == 0 && i < hostlist_count(h); i++) {
        Sluice__GetLogs q = SLUICE__GET_LOGS__INIT;
        Sluice__Logs *logs;

        q.node = (char *)hostlist_name(h, i);
        q.has_lines = 1;
        q.lines = (uint32_t)lines;
        logs = call(ctx, &q.base, SLUICE__TYPE__LOGS, CALL_LIMIT_S, e);
        if (logs == NULL)
            r = -1;
        else
            print_lines(q.node, logs);
        call_free(logs);
    }
    hostlist_destroy(h);
    return r;
}
