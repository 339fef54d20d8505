/* cmd_mark.c - mark and clear: nodes, or devices of theirs, out of service and back, each with a reason */
#include "config.h"

#include "command.h"

#include "change.h"
#include "clock.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A time is shown as it was understood before it is used. */
static void echo_time(const char *what, int64_t wall_ns)
{
    char text[CLOCK_TEXT];

    fprintf(stderr, "%s %s\n", what, clock_rfc3339(wall_ns, text));
}

static int mark_options(const struct args *a, Sluice__MarkNodes *q, struct err *e)
{
    const char *severity = args_word(a, "severity", "info block", "block", e);

    q->class_ = (char *)args_word(a, "class", "hw sw user ops", "ops", e);
    if (severity == NULL || q->class_ == NULL || args_time(a, "until", &q->until, e) < 0)
        return -1;
    q->has_severity = 1;
    q->severity = strcmp(severity, "info") == 0 ? SLUICE__SEVERITY__INFO : SLUICE__SEVERITY__BLOCK;
    q->has_until = args_has(a, "until");
    if (q->has_until && q->until <= clock_wall_ns())
        return err_set(e, ERR_USAGE, "--until: that time is past");
    if (q->has_until)
        echo_time("until", q->until);
    q->tool = (char *)args_text(a, "tool", NULL);
    q->has_dry_run = q->dry_run = args_has(a, "dry-run");
    return 0;
}

/* --gpu may be repeated. The words of parts lie in what comes back; the caller frees both. */
static char *part_options(const struct args *a, Sluice__MarkNodes *q)
{
    char *joined = args_joined(a, "gpu"), *rest = joined, *word;

    while (joined != NULL && (word = strsep(&rest, ",")) != NULL) {
        q->parts = mem_grow(q->parts, q->n_parts + 1, sizeof(*q->parts));
        q->parts[q->n_parts++] = word;
    }
    return joined;
}

int cmd_mark(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__MarkNodes q = SLUICE__MARK_NODES__INIT;
    struct hostlist *h;
    int r = change_columns(ctx, e);

    if (r <= 0)
        return r;
    if (change_check_reason(a->at[1], e) < 0 || mark_options(a, &q, e) < 0)
        return -1;
    h = nodelist(ctx, a, a->at[0], &change_listing, &r, e);
    if (h == NULL)
        return r;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    q.reason = a->at[1];
    char *parts = part_options(a, &q);
    r = change(ctx, &q.base, e);
    free(q.names);
    free(q.parts);
    free(parts);
    hostlist_destroy(h);
    return r;
}

int cmd_clear(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__ClearMarks q = SLUICE__CLEAR_MARKS__INIT;
    struct hostlist *h;
    int r = change_columns(ctx, e);

    if (r <= 0)
        return r;
    if (change_check_reason(a->at[1], e) < 0 || args_u64(a, "id", 1, INT64_MAX, &q.id, e) < 0)
        return -1;
    h = nodelist(ctx, a, a->at[0], &change_listing, &r, e);
    if (h == NULL)
        return r;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    q.reason = a->at[1];
    q.has_id = args_has(a, "id");
    q.has_any_owner = q.any_owner = args_has(a, "any-owner");
    q.has_repeat_ok = q.repeat_ok = args_has(a, "repeat-ok");
    q.tool = (char *)args_text(a, "tool", NULL);
    q.has_dry_run = q.dry_run = args_has(a, "dry-run");
    r = change(ctx, &q.base, e);
    free(q.names);
    hostlist_destroy(h);
    return r;
}
