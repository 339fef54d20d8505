/* cmd_shm.c - the nodes' buffers: shm, shm set */
#include "config.h"

#include "command.h"

#include "change.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "show.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_S 3600.0                   /* for buffers to get their size: hundreds of GiB are faulted in the meantime */

static const struct column columns[] = {
    { "node" }, { "wanted", NULL, AS_SIZE }, { "active", NULL, AS_SIZE }, { "pending" }, { "text" }, { "failed" }, { "used", NULL, AS_SIZE },
    { "free", NULL, AS_SIZE }, { "largest_free", NULL, AS_SIZE }, { "page_size", NULL, AS_SIZE }, { "huge_wanted" }, { "huge_actual", NULL, AS_SIZE },
    { "numa_wanted" }, { "numa" }, { "misplaced" }, { "generation" }, { 0 },
};
static const struct listing listing = { "shm", columns, "node,wanted,active,pending,used,free,largest_free,page_size,huge_actual,numa,generation,text",
                                        &sluice__shm_info__descriptor };

static Sluice__Shm *ask(struct context *ctx, char **names, size_t n, struct err *e)
{
    Sluice__GetShm q = SLUICE__GET_SHM__INIT;

    q.names = names;
    q.n_names = n;
    return call(ctx, &q.base, SLUICE__TYPE__SHM, CALL_LIMIT_S, e);
}

int cmd_shm(struct context *ctx, const struct args *a, struct err *e)
{
    struct hostlist *h = NULL;
    char **names = NULL;
    Sluice__Shm *s;
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (a->n > 0 && (h = nodelist(ctx, a, a->at[0], &listing, &r, e)) == NULL)
        return r;
    r = -1;
    if (h != NULL)
        names = nodelist_names(h);
    s = ask(ctx, names, h != NULL ? hostlist_count(h) : 0, e);
    if (s != NULL)
        r = show_list(ctx, &listing, NULL, message_list(&s->base, "shm"), e);
    call_free(s);
    free(names);
    hostlist_destroy(h);
    return r;
}

/* --- shm set -------------------------------------------------------------------------------- */

static int set_options(const struct args *a, Sluice__SetShm *q, struct err *e)
{
    char shown[32];

    q->profile = (char *)args_text(a, "profile", NULL);
    q->when = (char *)args_word(a, "when", "idle", NULL, e);
    if (q->when == NULL && args_has(a, "when"))
        return -1;
    if ((a->n > 1) == (q->profile != NULL))
        return err_set(e, ERR_USAGE, "shm set: either a size or --profile NAME is wanted");
    q->has_dry_run = q->dry_run = args_has(a, "dry-run");
    if (q->profile != NULL)
        return 0;
    if (str_parse_size(a->at[1], &q->size, e) < 0)
        return err_prefix(e, "shm set");
    q->has_size = 1;
    fprintf(stderr, "size %s\n", str_size_text(q->size, shown));
    return 0;
}

/* What was begun: its number, or 0. */
static uint64_t begun(const Sluice__Changed *c)
{
    for (size_t i = 0; i < c->n_results; i++) {
        if (c->results[i]->code == 0 && c->results[i]->id != 0)
            return c->results[i]->id;
    }
    return 0;
}

/* Until every one of them has its size, or cannot have it. 0, or -1; a time that is over is no failure of the question. */
static int wait_over(struct context *ctx, uint64_t id, double limit_s, struct err *e)
{
    Sluice__Wait q = SLUICE__WAIT__INIT;
    Sluice__Waited *w;

    q.kind = (char *)"shm";
    q.has_id = q.has_timeout = 1;
    q.id = id;
    q.timeout = limit_s;
    w = call_patient(ctx, &q.base, SLUICE__TYPE__WAITED, limit_s, &q.timeout, 30, e);
    call_free(w);
    return w != NULL || e->code == ERR_TIMEOUT || e->code == ERR_LOST ? 0 : -1;
}

static void set_result(Sluice__NodeResult *r, enum err_code code, char *text)
{
    free(r->text);
    r->text = text;
    r->code = code;
}

/* The answer said what was begun; now it says what came of it. */
static void take_outcome(Sluice__NodeResult *r, const Sluice__ShmInfo *s)
{
    char active[32], wanted[32];

    str_size_text(s->active, active);
    str_size_text(s->wanted, wanted);
    if (s->has_asked && s->asked != r->id)
        set_result(r, ERR_STATE, mem_printf("another size was asked for meanwhile: has %s, is to get %s", active, wanted));
    else if (s->failed)
        set_result(r, ERR_STATE, mem_printf("stays at %s: %s", active, str_is_empty(s->text) ? "no reason given" : s->text));
    else if (s->pending)
        set_result(r, ERR_TIMEOUT, mem_printf("has %s yet, is to get %s: %s", active, wanted, str_is_empty(s->text) ? "it goes on" : s->text));
    else
        set_result(r, ERR_NONE, mem_printf("has %s now", active));
}

static int take_outcomes(struct context *ctx, Sluice__Changed *c, struct err *e)
{
    char **names = mem_array(c->n_results + 1, sizeof(*names));
    size_t n = 0;
    Sluice__Shm *s;

    for (size_t i = 0; i < c->n_results; i++) {
        if (c->results[i]->code == 0 && c->results[i]->id != 0)
            names[n++] = c->results[i]->node;
    }
    s = ask(ctx, names, n, e);
    for (size_t k = 0; s != NULL && k < s->n_shm; k++) {
        for (size_t i = 0; i < c->n_results; i++) {
            if (c->results[i]->code == 0 && c->results[i]->id != 0 && str_equal(c->results[i]->node, s->shm[k]->node)) {
                take_outcome(c->results[i], s->shm[k]);
                break;
            }
        }
    }
    free(names);
    call_free(s);
    return s != NULL ? 0 : -1;
}

static int set_names(struct context *ctx, const struct args *a, Sluice__SetShm *q, struct err *e)
{
    double limit = WAIT_S;
    Sluice__Changed *c;
    int r;

    if (args_seconds(a, "timeout", &limit, e) < 0)
        return -1;
    c = call(ctx, &q->base, SLUICE__TYPE__CHANGED, CALL_LIMIT_S, e);
    if (c == NULL)
        return -1;
    r = 0;
    if (begun(c) != 0 && !args_has(a, "no-wait"))
        r = wait_over(ctx, begun(c), limit, e) < 0 ? -1 : take_outcomes(ctx, c, e);
    if (r == 0)
        r = change_show(ctx, c, e);
    call_free(c);
    return r;
}

int cmd_shm_set(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__SetShm q = SLUICE__SET_SHM__INIT;
    struct hostlist *h;
    int r = change_columns(ctx, e);

    if (r <= 0)
        return r;
    if (set_options(a, &q, e) < 0)
        return -1;
    h = nodelist(ctx, a, a->at[0], &change_listing, &r, e);
    if (h == NULL)
        return r;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    r = set_names(ctx, a, &q, e);
    free(q.names);
    hostlist_destroy(h);
    return r;
}
