/* reads.c - see reads.h
 *
 * From: session.c.  To: session.c, which answers or says when to come again.
 * A purse fills with its share of the time that passes, up to `burst`, and may be overdrawn by one answer. Who is put off is promised what an answer takes: the next one
 * who is put off comes after them, so that they come back as fast as there is something for them.
 */
#include "config.h"

#include "reads.h"

#include <stdlib.h>

#include "mem.h"

enum { USERS = 256, RETRY_LEAST = 50, RETRY_MOST = 10000 };      /* ms */
static const double burst = 0.2;             /* s of the loop's time that may be saved up */
static const double weight = 0.1;            /* of the last answer in the mean */

struct purse { uint32_t user; double credit, promised, mean, at; };      /* s; mean: of an answer */
struct reads { struct purse all, users[USERS]; unsigned n; };

struct reads *reads_create(void)
{
    struct reads *r = mem_zalloc(sizeof(*r));

    r->all.credit = burst;
    return r;
}

void reads_destroy(struct reads *r)
{
    free(r);
}

static void fill(struct purse *p, double share, double now)
{
    double more = share * (now - p->at);

    p->credit = p->credit + more < burst ? p->credit + more : burst;
    p->promised = p->promised > more ? p->promised - more : 0;
    p->at = now;
}

/* The one who asked least lately gives way when there are too many. */
static struct purse *purse_of(struct reads *r, uint32_t user, double now)
{
    struct purse *oldest = &r->users[0];

    for (unsigned i = 0; i < r->n; i++) {
        if (r->users[i].user == user)
            return &r->users[i];
        if (r->users[i].at < oldest->at)
            oldest = &r->users[i];
    }
    if (r->n < USERS)
        oldest = &r->users[r->n++];
    *oldest = (struct purse){ .user = user, .credit = burst, .at = now };
    return oldest;
}

/* 0, or ms until it is the turn of who is put off now. */
static unsigned put_off(struct purse *p, double share)
{
    double ms = 1000 * (p->promised - p->credit) / share;

    if (p->credit > 0)
        return 0;
    if (ms < RETRY_MOST)
        p->promised += p->mean;
    return ms < RETRY_LEAST ? RETRY_LEAST : ms > RETRY_MOST ? RETRY_MOST : (unsigned)ms;
}

unsigned reads_refuse(struct reads *r, uint32_t user, double share, double now)
{
    struct purse *mine = purse_of(r, user, now);
    unsigned ms;

    fill(&r->all, share, now);
    fill(mine, share / 2, now);
    ms = put_off(mine, share / 2);
    return ms > 0 ? ms : put_off(&r->all, share);
}

static void pay(struct purse *p, double seconds)
{
    p->credit -= seconds;
    p->mean += weight * (seconds - p->mean);
}

void reads_charge(struct reads *r, uint32_t user, double share, double now, double seconds)
{
    struct purse *mine = purse_of(r, user, now);

    fill(&r->all, share, now);
    fill(mine, share / 2, now);
    pay(&r->all, seconds);
    pay(mine, seconds);
}
