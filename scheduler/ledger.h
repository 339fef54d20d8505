/* ledger.h - the only account of who has what: an Assign charges its fence until a final answer to that very fence
 *
 * From: assign.c (charges), settle.c (final answers, lost workers).  To: the loads that dispatch reads.
 * Reports only audit it. A charge whose TF went another way (a stop that could not wait) stays until the worker answered: its bytes are still there.
 */
#ifndef SLUICE_LEDGER_H
#define SLUICE_LEDGER_H

#include <sys/queue.h>
#include <uthash.h>
#include "dispatch.h"
#include "err.h"

struct tf;
struct charge_key { uint64_t is_job, work, tf, epoch, attempt; };

TAILQ_HEAD(charge_list, charge);
/* What is charged to a node; load's charged and building are kept equal to the sums of the list. */
struct account { struct disp_node *load; struct charge_list charges; unsigned n; void *owner; };

struct charge {
    UT_hash_handle hh;
    TAILQ_ENTRY(charge) entry;
    struct charge_key key;
    struct account *account;
    struct tf *tf;               /* NULL: nobody waits for the answer any more */
    uint64_t bytes;
    bool     building, seen;     /* seen: the worker listed it when it registered */
    double   since;              /* it was made; or nobody waits for it any more */
};

struct ledger { struct charge *all; struct dispatch *dispatch; uint64_t charged, returned; };

void account_init(struct account *a, struct disp_node *load, void *owner);
struct charge *ledger_charge(struct ledger *l, struct account *a, const struct charge_key *key, uint64_t bytes, bool building, struct tf *tf, double now);
struct charge *ledger_find(const struct ledger *l, const struct charge_key *key);
void ledger_built(struct ledger *l, struct charge *c);
void ledger_return(struct ledger *l, struct charge *c);                  /* the final answer: frees c */
/* The sums of a's list against its load, the number against n. -1: e names both. */
int  ledger_audit(const struct account *a, const char *name, struct err *e);

#endif
