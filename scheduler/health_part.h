/* health_part.h - what the files of health share */
#ifndef SLUICE_HEALTH_PART_H
#define SLUICE_HEALTH_PART_H

#include "health.h"

enum { LEVEL_GOOD, LEVEL_NOTE, LEVEL_BROKEN, LEVEL_BAD };       /* broken: a check that says nothing; a note, as it is not the node's */

/* A device that was seen on the node. */
struct known { char serial[121]; unsigned place; int64_t seen; bool missing; double broken_since; };      /* seen: wall ns, first; broken: monotonic s, 0: works */

struct node_health {
    struct conduct conduct;
    struct pace    ratios;               /* its time for a TF over the class's median of that work */
    uint64_t done_in[2];                 /* TFs done in each pool */
    uint64_t lonely_mark;                /* what the others had done at its last failure without a second opinion */
    bool     held;                       /* it would be marked, but for the brake */
    char     held_by[64];                /* for what: the owner of that mark */
    char     boot_id[64];
    unsigned reboots;
    double   sample;                     /* of a result to be made again elsewhere */
    unsigned wrong;                      /* results that others showed to be wrong */
    struct flaps flaps;
    struct known *known;
    unsigned n_known;
};

struct node_health *health_of(struct node *n);
/* Marks with owner kind health, or not: configuration, brake. */
void health_mark(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason, const char *evidence);
/* What holds now about a part of n (NULL: the node): marked when it was not, taken back when it is good again, as far as that is allowed. */
void health_fact(struct node *n, const char *part, const char *owner, const char *class, int level, const char *reason);


/* health_devices.c */
void health_devices(struct node *n, Sluice__Device *const *devices, size_t count);         /* these are there now */
/* Marks of health on devices that are neither there nor missed go, where the site wants it: the node has all that its class has. */
void health_gone_parts(struct node *n, const struct conf_class *class);
/* A mark on a device that is away was cleared: it is not missed any more. */
void health_part_cleared(struct node *n, const struct mark *m);

#endif
