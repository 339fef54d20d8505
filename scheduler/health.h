/* health.h - nodes that are bad by their work, by their hardware, or by the site's own checks
 *
 * From: settle.c (what became of attempts), node_register.c, people.  To: mark.c (owner kind health), flow.c (cool-down), alarms, `sluice health`.
 * Decisions stand in health_rules.h. A TF that fails everywhere blames no node. Every blocking mark on a node passes the brake of its pool; a brake that is on stays on
 * over restarts, until a person resets it. What health marked it takes back only where the configuration lets it; notes (severity info) follow the facts.
 */
#ifndef SLUICE_HEALTH_H
#define SLUICE_HEALTH_H

#include "health_rules.h"
#include "node.h"
#include "rows.h"

struct health *health_create(struct sluiced *d);
void health_destroy(struct health *h);

/* ---- at start-up ---- */
void health_restore_mark(struct node *n, const struct row_mark *row);       /* open or cleared: counts in its window, unless the brake was reset since */
void health_restore_device(struct node *n, const struct row_device *row);    /* one that was seen on it */
bool health_was_here(const struct node *n);      /* a worker of it registered once, perhaps before our start */
void health_restore_boot(struct node *n, const struct row_boot *row);        /* what its machine was started as, when it registered last */
int  health_restore(struct health *h, struct db *db, struct err *e);        /* the brakes */

/* ---- from the flow of TFs ---- */

/* The nodes where a TF failed, while it is not known whether they or it is to blame. Hangs on the TF. */
struct doubt;
/* An attempt failed on n. Returns for how long n is to be passed over, s; 0: not at all. text, device may be NULL. */
double health_failed(struct doubt **on, struct node *n, const char *device, const char *word, const char *text);
/* The TF was done on n: whoever failed at it before was to blame. seconds 0: not known. */
void health_done(struct doubt **on, struct node *n, bool is_job, uint64_t work, double seconds, uint64_t bytes);
/* The TF is gone without having been done. */
void health_dropped(struct doubt **on);
void health_refused(struct node *n, const char *word, const char *text);
/* Whether this result of n is one of those that are made again elsewhere. */
bool health_samples(struct node *n);
/* n gave `wrong` for a TF for which others, or itself, gave `right`: a mark is proposed (severity info), and after the third it is set. evidence: who gave what. */
void health_wrong(struct node *n, const char *device, bool is_job, uint64_t work, uint64_t tf, const char *wrong, const char *right, const char *evidence);

/* ---- from nodes ---- */
void health_registered(struct node *n);
void health_configured(struct node *n);                                    /* at a reload: notes of checks that are not configured any more go */
void health_report(struct node *n);
void health_mark_cleared(struct node *n, const struct mark *m);             /* its record begins anew */
void health_forget_devices(struct node *n);                                 /* it is retired: none is missed any more */
void health_node_free(struct node *n);

/* ---- for people ---- */
void health_show(struct session *s, uint32_t id, const void *m);            /* GET_HEALTH */
void health_reset(struct session *s, uint32_t id, const void *m);           /* RESET_HEALTH */
bool health_brake_is_on(const struct sluiced *d, int pool);
/* The sentence of the alarm of a brake that is on, into out; else returns false. */
bool health_brake_text(struct sluiced *d, int pool, struct str *out);

#endif
