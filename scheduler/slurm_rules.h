/* slurm_rules.h - what Slurm's word about a node means, and what to ask of Slurm next: decisions only, no state
 *
 * From: slurm_farm.c.  To: slurm_farm.c.
 * Badness is DRAIN, DOWN, FAIL (and a registration that Slurm calls invalid) and nothing else. What is drained with our reason alone is not bad: it says what we said.
 */
#ifndef SLUICE_SLURM_RULES_H
#define SLUICE_SLURM_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "sluice.pb-c.h"

enum slurm_view {
    SLURM_NO_WORD,               /* nothing known, or UNKNOWN as after a restart of slurmctld: changes nothing */
    SLURM_CLEAN,
    SLURM_OURS,                  /* drained, and only by us */
    SLURM_FOREIGN,               /* bad by an administrator's or Slurm's own word */
};
/* sent: we have asked for a drain, so that one without a reason is ours, half done. */
enum slurm_view slurm_view(const Sluice__SlurmNode *n, const char *prefix, bool sent);
bool slurm_reason_is_ours(const char *reason, const char *prefix);       /* "PREFIX: ..." */

enum { SLURM_RENEW_S = 180 * 86400 };          /* a reservation lasts a year; it is prolonged when less than this is left */

struct slurm_facts {
    enum slurm_view view;
    bool drain;                  /* we want it drained */
    bool half;                   /* our drain has no reason yet */
    bool stale;                  /* its reason is ours, and not what it would be now */
    bool lend;                   /* the node may be handed over: its reservation is ours to make */
    bool reserve;                /* we want our reservation on it */
    bool heard;                  /* what follows was said by Slurm, and nothing was asked since */
    bool reserved;
    double left_s;               /* of the reservation */
    bool lease;                  /* we want one, or keep it */
    bool lease_heard, leased;
    bool clear_out;              /* its jobs are to go now */
};
enum { SLURM_ACTS = 8 };                 /* kinds of commands, Sluice__SlurmAct */
/* What is to be asked of Slurm, the first thing first; how many. None waits for one before it: what has to does not stand here yet. */
size_t slurm_due(const struct slurm_facts *f, Sluice__SlurmAct due[SLURM_ACTS]);

#endif
