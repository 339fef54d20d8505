/* ledger.c - charges by fence, and the sums that dispatch reads
 *
 * From: assign.c, settle.c.  To: dispatch (dispatch_changed).
 * Always: a fence is charged at most once; load.charged and load.building are the sums over the account's charges.
 */
#include "config.h"
#include "ledger.h"

#include <inttypes.h>
#include <stdlib.h>
#include "mem.h"

void account_init(struct account *a, struct disp_node *load, void *owner)
{
    *a = (struct account){ .load = load, .owner = owner };
    TAILQ_INIT(&a->charges);
}

struct charge *ledger_find(const struct ledger *l, const struct charge_key *key)
{
    struct charge *c;

    HASH_FIND(hh, l->all, key, sizeof(*key), c);
    return c;
}

struct charge *ledger_charge(struct ledger *l, struct account *a, const struct charge_key *key, uint64_t bytes, bool building, struct tf *tf, double now)
{
    struct charge *c = mem_zalloc(sizeof(*c));

    c->key = *key;
    c->account = a;
    c->tf = tf;
    c->bytes = bytes;
    c->building = building;
    c->since = now;
    HASH_ADD(hh, l->all, key, sizeof(c->key), c);
    TAILQ_INSERT_TAIL(&a->charges, c, entry);
    a->n++;
    a->load->held++;
    a->load->charged += bytes;
    a->load->building += building;
    l->charged++;
    dispatch_changed(l->dispatch, a->load);
    return c;
}

void ledger_built(struct ledger *l, struct charge *c)
{
    if (!c->building)
        return;
    c->building = false;
    c->account->load->building--;
    dispatch_changed(l->dispatch, c->account->load);
}

void ledger_return(struct ledger *l, struct charge *c)
{
    struct account *a = c->account;

    HASH_DEL(l->all, c);
    TAILQ_REMOVE(&a->charges, c, entry);
    a->n--;
    a->load->held--;
    a->load->charged -= c->bytes;
    a->load->building -= c->building;
    l->returned++;
    dispatch_changed(l->dispatch, a->load);
    free(c);
}

int ledger_audit(const struct account *a, const char *name, struct err *e)
{
    uint64_t bytes = 0;
    unsigned n = 0, building = 0;
    const struct charge *c;

    TAILQ_FOREACH(c, &a->charges, entry) {
        n++;
        bytes += c->bytes;
        building += c->building;
    }
    if (bytes == a->load->charged && building == a->load->building && n == a->n && n == a->load->held)
        return 0;
    return err_set(e, ERR_FAILED, "node %s: %u charges of %" PRIu64 " bytes, %u building; its account says %u, %" PRIu64 ", %u",
                   name, n, bytes, building, a->n, a->load->charged, a->load->building);
}
