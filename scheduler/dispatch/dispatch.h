/* dispatch.h - who gets the next time-frame: a pure library, nodes and a need in, a choice out
 *
 * No clock, no socket, no memory of its own but the order of nodes. flow.c keeps struct disp_node up to date; the simulator and the tests do too.
 *
 * Policy buffer: the lowest (charged + need) / size; ties: the higher measured speed, then the least recently chosen ("join the fastest of the
 * shortest queues"). A failed TF counts like one still there, for the class's median service time (ghost bytes with an end). A node is passed over
 * when it is not usable, builds as many TFs as it may (building_limit), holds as many (held_limit), or would stand above its high-water mark; an empty node (nothing charged, no
 * ghost) takes whatever fits its size. Equal in all of that: the one added first.
 * Policy round-robin: a list scanned from the front, full nodes are skipped, the chosen one goes to the back.
 * A decision costs O(log n) in the number of nodes: an index by score, rescored on change.
 */
#ifndef SLUICE_DISPATCH_H
#define SLUICE_DISPATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum disp_policy { DISP_BUFFER, DISP_ROUND_ROBIN };
extern const char *const disp_policy_name[2];

struct disp_node {
    void    *owner;                 /* the caller's node */
    bool     usable;
    int      group;                 /* pool: only nodes of the asked group are looked at */
    unsigned class_bit;             /* 1 << class number: a need may name allowed classes */
    uint64_t size, charged;         /* buffer, bytes */
    uint64_t ghost;                 /* bytes of failed TFs still counted */
    double   high_water;            /* share of size */
    unsigned building, building_limit;
    unsigned held, held_limit;      /* TFs there, and how many may be; limit 0: any number */
    double   speed;                 /* TFs per second, measured; 0 = unknown */
    uint64_t chosen;                /* number of the decision that last took it */
    size_t   place[4];              /* private to dispatch */
};

struct dispatch;
struct dispatch *dispatch_create(void);
void dispatch_destroy(struct dispatch *d);
void dispatch_add(struct dispatch *d, struct disp_node *n);
void dispatch_remove(struct dispatch *d, struct disp_node *n);
void dispatch_changed(struct dispatch *d, struct disp_node *n);       /* after any field changed */

struct disp_need {
    enum disp_policy policy;
    int      group;
    unsigned classes;               /* bits allowed, 0 = all */
    uint64_t bytes;
    struct disp_node *const *refused; unsigned n_refused;      /* already asked for this TF: passed over */
};
/* The node to ask, which now counts as chosen (the caller charges it and calls dispatch_changed), or NULL. When NULL, *could (may be
 * NULL): a usable node of the group and classes that did not refuse is big enough, so that waiting may help. */
struct disp_node *dispatch_choose(struct dispatch *d, const struct disp_need *need, bool *could);
/* What keeps a usable node from taking so many bytes now: it reads as many TFs as it may, holds as many, is smaller than that, or would stand above its mark. */
enum disp_bar { DISP_TAKES, DISP_BUILDING, DISP_HELD, DISP_SMALL, DISP_FULL };
enum disp_bar disp_bar(const struct disp_node *n, uint64_t bytes);
/* Its fill if the need went there: (charged + ghost + bytes) / size. */
double disp_fill(const struct disp_node *n, uint64_t bytes);

#endif
