/* cmd_health.c - health: automatic marking, its brake, and what it knows of nodes */
#include "config.h"

#include "command.h"

#include "call.h"
#include "change.h"
#include "message.h"
#include "show.h"

#include <stdio.h>
#include <stdlib.h>

static const struct column columns[] = {
    { "automatic" }, { "clear_automatic" }, { "pools", "brakes.pool" }, { "brakes", "brakes.on" }, { "nodes", "nodes.node" }, { 0 },
};
static const struct listing listing = { "health", columns, "automatic,clear_automatic,pools,brakes,nodes", &sluice__health_info__descriptor };

static void print_text(const char *before, const char *text)
{
    char *shown = show_text(text != NULL ? text : "");

    printf("%s%s", before, shown);
    free(shown);
}

static void print_brake(const Sluice__Brake *b)
{
    print_text("pool ", b->pool);
    printf(": %u of %u nodes marked within %.0f s, %u may be; the brake is %s", b->marked, b->nodes, b->window, b->allowed, b->on ? "ON" : "off");
    if (b->on)
        printf(", %u marks were held back (sluice health --reset)", b->held);
    printf("\n");
}

static void print_checks(const Sluice__NodeHealth *n)
{
    for (size_t i = 0; i < n->n_checks; i++) {
        const Sluice__Check *c = n->checks[i];
        char *word;

        if (c->state == SLUICE__CHECK_STATE__CHECK_GOOD)
            continue;
        word = message_enum_word(&sluice__check_state__descriptor, (int)c->state);
        print_text(", ", c->program);
        printf(" %s", word);
        print_text(": ", c->text);
        free(word);
    }
}

static void print_node(const Sluice__NodeHealth *n)
{
    print_text("  ", n->node);
    printf(": %u of its last %u time-frames failed there and were done elsewhere", n->failed, n->of);
    if (n->failed_in_row > 0)
        printf(", %u in a row", n->failed_in_row);
    if (n->refused_in_row > 0)
        printf(", %u refused in a row", n->refused_in_row);
    if (n->last != NULL)
        print_text(", last ", n->last);
    if (n->has_slowness)
        printf(", %.2f times the time of its class", n->slowness);
    if (n->cooling_s > 0)
        printf(", passed over for %.1f s", n->cooling_s);
    if (n->restarts > 0)
        printf(", %llu processes replaced", (unsigned long long)n->restarts);
    if (n->reboots > 0)
        printf(", %u reboots", n->reboots);
    print_checks(n);
    printf("\n");
}

static void print_health(const Sluice__HealthInfo *h)
{
    printf("automatic marking: %s; taken back when it is over: %s\n", h->automatic ? "on" : "off (health { automatic = no })", h->clear_automatic ? "yes" : "no");
    for (size_t i = 0; i < h->n_brakes; i++)
        print_brake(h->brakes[i]);
    for (size_t i = 0; i < h->n_nodes; i++)
        print_node(h->nodes[i]);
}

static int reset(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__ResetHealth q = SLUICE__RESET_HEALTH__INIT;

    q.pool = (char *)args_word(a, "pool", "online async", NULL, e);
    if (q.pool == NULL && args_has(a, "pool"))
        return -1;
    return change(ctx, &q.base, e);
}

int cmd_health(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetHealth q = SLUICE__GET_HEALTH__INIT;
    Sluice__Health *m;
    int r = 0;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (args_has(a, "reset"))
        return reset(ctx, a, e);
    if (args_has(a, "pool"))
        return err_set(e, ERR_USAGE, "health: --pool goes with --reset");
    m = call(ctx, &q.base, SLUICE__TYPE__HEALTH, CALL_LIMIT_S, e);
    if (m == NULL)
        return -1;
    if (m->n_health != 1)
        r = err_set(e, ERR_PROTOCOL, "health: %zu answers instead of one", m->n_health);
    else if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        print_health(m->health[0]);
    else
        r = show_one(ctx, &listing, message_json(&m->health[0]->base), e);
    call_free(m);
    return r;
}
