/* health_part.h - what the files of health share */
#ifndef SLUICE_HEALTH_PART_H
#define SLUICE_HEALTH_PART_H

#include "health.h"

enum { LEVEL_GOOD, LEVEL_NOTE, LEVEL_BAD };

/* A device that was seen on the node. */
struct known { char serial[121]; unsigned place; bool missing; double broken_since; };      /* monotonic s, 0: works */

struct node_health {
    struct conduct conduct;
    struct pace    ratios;               /* its time for a TF over the class's median of that work */
    uint64_t done_in[2];                 /* TFs done in each pool */
    uint64_t lonely_mark;                /* what the others had done at its last failure without a second opinion */
    bool     held;                       /* it would be marked, but for the brake */
    char     boot_id[64];
    unsigned reboots;
    struct known *known;
    unsigned n_known;
};

struct node_health *health_of(struct node *n);
/* Marks with owner kind health, or not: configuration, brake. */
void health_mark(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason, const char *evidence);
/* What holds now about a part of n (NULL: the node): marked when it was not, taken back when it is good again, as far as that is allowed. */
void health_fact(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason);

#endif
