/* publish.c - accepted results whose node is away: another node gives them their final names
 *
 * From: flow.c (each tick), settle.c (what the other one says).  To: a node in contact (Verdict), the record.
 * A result lies in its output folder under its try's name, and mostly others see that folder, too. Who does not, as it is on the node's own disk, says so and
 * changes nothing: the next one is asked, then all again after a pause, until somebody could do it or the node is back. Always: that another one could not do
 * it is no failure of the TF, unless its node was retired and nobody else finds the result: then nobody ever will.
 */
#include "config.h"
#include "settle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "flow_core.h"
#include "log.h"

#define STEP   1.0           /* s between looks */
#define AWAY   4.0           /* s without a connection before another one is asked: a worker that begins anew takes less */
#define ANSWER 20.0          /* s for another one's answer; a disk that hangs takes longer */
#define AGAIN  60.0          /* s from all having been asked to the next round */
enum { ASKED_A_STEP = 64 };

static struct node *node_of(const struct record *r)
{
    return r->node ? farm_node(r->work->flow->d->farm, r->node) : NULL;
}

static bool is_away(const struct record *r)
{
    const struct node *n = node_of(r);

    return n == NULL || n->session == NULL;
}

static bool can_ask(const struct fnode *n)
{
    const struct node *x = n->node;

    return x->session != NULL && x->contact == SLUICE__CONTACT__UP && x->registered != NULL && x->registered->publishes_for_others;
}

/* The one whose turn it is of those that can be asked. NULL: each was. */
static struct fnode *next_one(const struct record *r)
{
    unsigned i = 0;

    for (struct fnode *n = r->work->flow->nodes; n; n = n->hh.next) {
        if (can_ask(n) && i++ == r->asked)
            return n;
    }
    return NULL;
}

static bool is_retired(const struct record *r)
{
    const struct node *n = node_of(r);

    return n == NULL || !n->added;
}

/* false: r is gone. */
static bool all_were_asked(struct record *r, double now)
{
    char text[300];

    if (r->asked > 0 && is_retired(r)) {
        snprintf(text, sizeof(text), "node %s, which is retired, has not published its result, and no other node finds it", r->node ? r->node : "?");
        return record_not_published(r, "OutputFailed", text);
    }
    r->asked = 0;
    r->ask_at = now + AGAIN;
    return true;
}

static bool look(struct record *r, double now)
{
    struct fnode *n;

    if (!is_away(r)) {
        r->away_since = 0;
        r->asked = 0;
        return false;
    }
    if (r->away_since == 0)
        r->away_since = now;
    if (now < r->away_since + AWAY || now < r->ask_at)
        return false;
    n = next_one(r);
    if (n == NULL) {
        all_were_asked(r, now);
        return false;
    }
    r->asked++;
    r->ask_at = now + ANSWER;
    log_info("%s %" PRIu64 " TF %" PRIu64 ": node %s, which has its result, is away: node %s is asked to publish it", r->key.is_job ? "job" : "run", r->key.work,
             r->key.tf, r->node ? r->node : "?", n->node->name);
    record_verdict_to(r, n);
    return true;
}

void publish_tick(struct flow *f)
{
    double now = flow_now(f);
    struct record *r, *next;
    unsigned asked = 0;

    if (now < f->next_publish)
        return;
    f->next_publish = now + STEP;
    HASH_ITER(hh, f->records, r, next) {
        if (r->stored && r->publish && !r->published && !r->writing && asked < ASKED_A_STEP)
            asked += look(r, now);
    }
}

bool publish_answered(struct record *r, const struct node *by, const char *why)
{
    if (why == NULL || (r->node && strcmp(r->node, by->name) == 0))
        return false;
    log_debug("%s %" PRIu64 " TF %" PRIu64 ": node %s cannot publish it: %s", r->key.is_job ? "job" : "run", r->key.work, r->key.tf, by->name, why);
    r->ask_at = 0;                               /* the next one, with the next look */
    return true;
}
