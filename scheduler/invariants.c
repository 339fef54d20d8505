/* invariants.c - what always holds about nodes, proven on request
 *
 * From: the farm as it is.  To: `sluice check`, with flow.c's own.
 */
#include "config.h"

#include "show.h"

#include <stdio.h>
#include <string.h>

#include "flow.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "node.h"

struct proof { char bad[160]; unsigned n_bad, n; };

static void expect(struct proof *p, bool holds, const struct node *n, const char *what)
{
    p->n++;
    if (holds)
        return;
    if (p->n_bad++ == 0)
        snprintf(p->bad, sizeof(p->bad), "node %s: %s", n->name, what);
}

/* Each node in exactly one pool, and where it is going is where its open move says. */
static void prove_pools(struct sluiced *d, struct proof *p)
{
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        expect(p, n->pool == POOL_ONLINE || n->pool == POOL_ASYNC, n, "is in no pool");
        expect(p, n->move != NULL || n->wanted_pool == n->pool || !n->added, n, "wants another pool without a move");
    }
}

static void prove_verdicts(struct sluiced *d, struct proof *p)
{
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        struct verdict v;
        const struct mark *m;

        node_judge(n, &v);
        expect(p, !v.usable || (n->session != NULL && n->added && v.n_why == v.n_parts), n, "is usable with a reason not to be");
        expect(p, !v.usable || v.devices_usable > 0, n, "is usable without a device that works");
        expect(p, v.usable || v.n_why > v.n_parts, n, "is not usable and nothing says why");
        TAILQ_FOREACH(m, &n->marks, entry)
            expect(p, !(v.usable && m->block && strcmp(m->part, "node") == 0), n, "is usable under a blocking mark");
        expect(p, n->said.usable == v.usable, n, "is judged otherwise than flow was told");
    }
}

static void prove_marks(struct sluiced *d, struct proof *p)
{
    unsigned open = 0;

    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        const struct mark *m;

        TAILQ_FOREACH(m, &n->marks, entry) {
            open++;
            expect(p, m->id != 0 && m->owner_kind[0] != '\0', n, "bears a mark without number or owner");
        }
    }
    p->n++;
    if (open != marks_open(d->marks) && p->n_bad++ == 0)
        snprintf(p->bad, sizeof(p->bad), "%u marks on the nodes, %u counted", open, marks_open(d->marks));
}

void invariants_each(struct sluiced *d, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg)
{
    static const struct { const char *name; void (*prove)(struct sluiced *d, struct proof *p); } table[] = {
        { "pools",    prove_pools },
        { "verdicts", prove_verdicts },
        { "marks",    prove_marks },
    };

    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct proof p = { .n = 0 };
        char text[260];

        table[i].prove(d, &p);
        if (p.n_bad == 0)
            snprintf(text, sizeof(text), "%u statements about %u nodes hold", p.n, farm_count(d->farm));
        else
            snprintf(text, sizeof(text), "%s (%u of %u)", p.bad, p.n_bad, p.n);
        line(arg, table[i].name, p.n_bad == 0, text);
    }
    flow_check(d->flow, line, arg);
}
