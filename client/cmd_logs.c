/* cmd_logs.c - the last lines of nodes' logs; and shm, the nodes' buffers */
#include "config.h"

#include "command.h"

#include "call.h"
#include "mem.h"
#include "message.h"
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

static const struct column columns[] = {
    { "node" }, { "wanted", NULL, AS_SIZE }, { "active", NULL, AS_SIZE }, { "pending" }, { "used", NULL, AS_SIZE }, { "free", NULL, AS_SIZE },
    { "largest_free", NULL, AS_SIZE }, { "page_size", NULL, AS_SIZE }, { "numa_wanted" }, { "numa" }, { "misplaced" }, { "generation" }, { 0 },
};
static const struct listing listing = { "shm", columns, "node,wanted,active,pending,used,free,largest_free,page_size,generation",
                                        &sluice__shm_info__descriptor };

int cmd_shm(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetShm q = SLUICE__GET_SHM__INIT;
    struct hostlist *h = NULL;
    Sluice__Shm *s;
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (a->n > 0 && (h = nodelist(ctx, a, a->at[0], e)) == NULL)
        return -1;
    if (h != NULL) {
        q.names = nodelist_names(h);
        q.n_names = hostlist_count(h);
    }
    s = call(ctx, &q.base, SLUICE__TYPE__SHM, CALL_LIMIT_S, e);
    if (s != NULL)
        r = show_list(ctx, &listing, NULL, message_list(&s->base, "shm"), -1, e);
    call_free(s);
    if (h != NULL)
        free(q.names);
    hostlist_destroy(h);
    return r;
}
