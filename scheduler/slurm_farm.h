/* slurm_farm.h - the Slurm beside us: what it says of our nodes, what we say to it
 *
 * From: slurm_link.c (looks, answers), the configuration, node.c and mark.c (changes), move.c (nodes change hands).  To: mark.c (owner kind slurm), node_judge, people.
 * Nodes with slurm = observe or lend in the configuration take part. Ours is on our disk first; what Slurm is to have is compared with what it says after every look, so
 * nothing is lost by a restart of either side. No foreign reason is overwritten, no foreign drain cleared. Slurm silent, slow or senseless changes nothing on our side.
 */
#ifndef SLUICE_SLURM_FARM_H
#define SLUICE_SLURM_FARM_H

#include "node.h"
#include "show.h"

struct slurm;

struct slurm *slurm_create(struct sluiced *d, struct db *db, struct err *e);      /* NULL: what is stored cannot be read */
void slurm_destroy(struct slurm *s);                     /* before the farm goes */
void slurm_take_conf(struct sluiced *d);                 /* at start, and after every reload */

void slurm_node_changed(struct node *n);                 /* marks, moves, pool: something may be wanted of Slurm */
void slurm_node_retired(struct node *n);                 /* what is ours of it in Slurm is taken away */
bool slurm_has_our_drain(const struct node *n);          /* which is taken back when it is retired */
void slurm_node_free(struct node *n);
bool slurm_is_lent(const struct node *n);                /* Slurm's now: only a lease would let us work there */

/* Whether n's devices are to have processes now, for Settings and Registered, and the number of that order. */
Sluice__Parking slurm_parking(const struct node *n, uint64_t *order);

/* A move has nothing of ours left on n. True: nothing of Slurm stands in the way either, the pool may switch. False: it is being seen to, ask again.
 * urgent: jobs that run there are requeued or ended. */
bool slurm_hand_over(struct node *n, int to, bool urgent);
/* What the hand-over waits for, "" when for nothing; the node's, until it is asked again. */
const char *slurm_waits_for(const struct node *n);

/* For people; NULL: not in Slurm. Freed by the caller, the strings are the node's. */
Sluice__SlurmInfo *slurm_info(const struct node *n);
/* What the lease of a node that Slurm has waits for there, or why there is none; *queued: it is asked for. NULL: the node needs none. The caller frees it. */
char *slurm_lease_why(const struct node *n, bool *queued);
/* Why jobs of pool async have none of the nodes that Slurm has; NULL: it has none. The caller frees it. */
char *slurm_stuck_why(struct sluiced *d);
/* For metrics: since the last answer, 0 when it answers as often as it is asked or is not asked at all. */
double slurm_silent_s(const struct sluiced *d);
/* Nodes that may be lent, by who has them: reserved for us, Slurm's, Slurm's with a lease of ours. */
struct slurm_count { unsigned ours, slurm, leased; };
void slurm_count(struct sluiced *d, struct slurm_count *out);
void slurm_alarms(struct sluiced *d, alarm_fn fn, void *arg);

#endif
