/* slurm_marks.c - what Slurm says against a node is a mark of ours; what we say against it, Slurm is told
 *
 * From: slurm_farm.c.  To: mark.c.
 * Three things are marks of owner kind slurm, each its own: DRAIN, DOWN or FAIL that is not by us; somebody else's reservation on a node that is ours; jobs of Slurm on such a
 * node. Each goes when two looks in a row did not show it any more and slurmctld had been up for long enough to know. A drain that was there before a restart of slurmctld and not after it
 * was perhaps lost with its state: that mark is a person's to clear, or Slurm shows the drain once more.
 */
#include "config.h"

#include "slurm_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "str.h"

enum { CLEAN_LOOKS = 2 };

struct said { bool is; char reason[400], evidence[400]; };

static const char *or_none(const char *s, const char *none)
{
    return str_is_empty(s) ? none : s;
}

/* Only what is bad, so that jobs that come and go do not make another mark of it. */
static void said_state(const struct node *n, struct said *s)
{
    const struct node_slurm *ns = n->slurm;
    const Sluice__SlurmNode *w = ns->says;
    char time[CLOCK_TEXT];

    s->is = slurm_view(w, n->d->conf->slurm.reason_prefix, ns->sent_drain) == SLURM_FOREIGN;
    if (!s->is)
        return;
    snprintf(s->reason, sizeof(s->reason), "%.300s", or_none(w->reason, "no reason given in Slurm"));
    snprintf(s->evidence, sizeof(s->evidence), "Slurm:%s%s%s%s, by %.60s (uid %u), since %.40s", w->down ? " DOWN" : "", w->drain ? " DRAIN" : "",
             w->fail ? " FAIL" : "", w->invalid ? " INVALID" : "", or_none(w->reason_user, "?"), w->reason_uid,
             w->reason_time == 0 ? "?" : clock_rfc3339(w->reason_time, time));
}

/* It counts where the node is ours. */
static void said_reservation(const struct node *n, struct said *s)
{
    const struct node_slurm *ns = n->slurm;

    s->is = ns->foreign[0] != '\0' && !slurm_is_lent(n);
    snprintf(s->reason, sizeof(s->reason), "reservation %s in Slurm", ns->foreign);
    snprintf(s->evidence, sizeof(s->evidence), "Slurm: %sreservation %s of %s", ns->foreign_maint ? "maintenance " : "", ns->foreign, or_none(ns->foreign_users, "?"));
}

/* A node that is ours has none; one that is being taken still may. */
static void said_jobs(const struct node *n, struct said *s)
{
    const struct node_slurm *ns = n->slurm;

    s->is = ns->mode == SLURM_LEND && n->pool == POOL_ONLINE && ns->says != NULL && !ns->says->unknown && ns->says->busy;
    snprintf(s->reason, sizeof(s->reason), "jobs of Slurm run here, though the node is ours");
    snprintf(s->evidence, sizeof(s->evidence), "Slurm: %.60s", ns->says == NULL ? "" : or_none(ns->says->state, "?"));
}

static const struct kind {
    const char *owner, *class;
    void (*said)(const struct node *n, struct said *s);
    bool follows;                        /* another text makes another mark */
} kinds[SLURM_MARKS] = {
    [SLURM_MARK_STATE]       = { "state",       "ops", said_state,       true },
    [SLURM_MARK_RESERVATION] = { "reservation", "ops", said_reservation, true },
    [SLURM_MARK_JOBS]        = { "jobs",        "ops", said_jobs,        false },
};

static void say_bad(struct node *n, const struct kind *k, const struct said *s)
{
    const struct mark *m = mark_automatic_find(n, NULL, "slurm", k->owner);
    struct row_mark want = { .owner_kind = "slurm", .owner = k->owner, .class = k->class, .severity = "block", .reason = s->reason, .evidence = s->evidence };

    if (m != NULL && (!k->follows || (str_equal(m->reason, s->reason) && str_equal(m->evidence, s->evidence))))
        return;
    if (m != NULL)                       /* the old one blocks until it is gone, the new one at once */
        mark_automatic_clear(n, NULL, "slurm", k->owner, "Slurm says something else now");
    mark_automatic(n, &want);
}

/* Also for whoever reads the mark. It is on our disk with it, so that a restart of ours changes nothing. */
static const char lost[] = "; not said any more since a restart of slurmctld: clear it (--any-owner), or drain and resume the node in Slurm";

/* DRAIN or FAIL is somebody's word; DOWN alone Slurm finds out anew. */
static bool is_word(const struct mark *m)
{
    const char *end = strstr(m->evidence, ", by "), *drain = strstr(m->evidence, " DRAIN"), *fail = strstr(m->evidence, " FAIL");

    return end != NULL && ((drain != NULL && drain < end) || (fail != NULL && fail < end));
}

/* True: it stays, though Slurm does not say so any more. */
static bool is_kept(struct node *n)
{
    struct mark *m = mark_automatic_find(n, NULL, "slurm", kinds[SLURM_MARK_STATE].owner);
    char *reason, *evidence;

    if (m == NULL || !is_word(m))
        return false;
    if (strstr(m->evidence, lost) != NULL)
        return true;
    if (n->slurm->bad_boot == n->d->slurm->boot)
        return false;
    reason = mem_strdup(m->reason);
    evidence = mem_printf("%s%s", m->evidence, lost);
    if (mark_automatic_renew(n, m, reason, evidence, false))
        log_warning("node %s: Slurm: its drain is gone since slurmctld was started anew, the mark stays", n->name);
    free(reason);
    free(evidence);
    return true;
}

static void not_said(struct node *n, enum slurm_mark i)
{
    unsigned *clean = &n->slurm->clean[i];

    if (!slurm_is_settled(n->d->slurm) || ++*clean < CLEAN_LOOKS || (i == SLURM_MARK_STATE && is_kept(n)))
        return;
    mark_automatic_clear(n, NULL, "slurm", kinds[i].owner, "Slurm does not say so any more");
}

void slurm_marks_take(struct node *n, bool counts)
{
    struct node_slurm *ns = n->slurm;
    bool word = ns->says != NULL && !ns->says->unknown;

    if (ns->mode == SLURM_LEAVE)
        return;

    for (enum slurm_mark i = 0; i < SLURM_MARKS; i++) {
        struct said s = { 0 };

        if (!word && i != SLURM_MARK_RESERVATION) {      /* no information is no good news */
            ns->clean[i] = 0;
            continue;
        }
        kinds[i].said(n, &s);
        str_mend(s.reason, strlen(s.reason));        /* cut to length, perhaps within a letter */
        str_mend(s.evidence, strlen(s.evidence));
        if (s.is) {
            ns->clean[i] = 0;
            if (i == SLURM_MARK_STATE)
                ns->bad_boot = n->d->slurm->boot;
            say_bad(n, &kinds[i], &s);
        } else if (counts) {
            not_said(n, i);
        }
    }
}

bool slurm_has_our_drain(const struct node *n)
{
    char reason[512];

    return n->slurm != NULL && n->slurm->mode != SLURM_LEAVE && slurm_wants_drain(n, reason);
}

/* Marks on the whole node that are on our disk; those that came from Slurm need not be told to it. */
bool slurm_wants_drain(const struct node *n, char reason[512])
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->block && m->stored && strcmp(m->part, "node") == 0 && strcmp(m->owner_kind, "slurm") != 0) {
            struct str shown = { 0 };

            str_escape(&shown, m->reason, strlen(m->reason));
            snprintf(reason, 512, "%.63s: %.300s (%.60s)", n->d->conf->slurm.reason_prefix, str_text(&shown), m->owner);
            str_mend(reason, strlen(reason));
            str_free(&shown);
            return true;
        }
    }
    return false;
}
