/* flow_core.h - what the files of flow share: the flow itself, and its view of a node
 *
 * Flow time is the loop's monotonic time less our own stalls: a deadline is never missed because we slept.
 */
#ifndef SLUICE_FLOW_CORE_H
#define SLUICE_FLOW_CORE_H

#include "counters.h"
#include "flow.h"
#include "settle.h"
#include "tf.h"

enum { SERVICE_KEPT = 65 };
struct service { char class[64]; double seconds[SERVICE_KEPT]; unsigned n, at; struct service *next; };

struct ghost { TAILQ_ENTRY(ghost) entry; struct fnode *node; uint64_t bytes; double until; };

/* A node as flow sees it. */
struct fnode {
    UT_hash_handle hh;
    struct node *node;
    struct flow *flow;
    struct account account;
    struct opened { bool is_job; uint64_t id; } *opened;      /* RunOpen was sent over this connection */
    size_t n_opened;
    double cooldown, cool_until;         /* after refusals: passed over, longer each time */
    bool   announced;                    /* registered since our start: what it does not list, it does not have */
    bool   redo;                         /* registered: accepted results are to be published again */
    double differs_since;                /* flow time; ledger and reports disagree since then, 0: they agree */
    char   differs[160];
    unsigned records;                    /* accepted, not yet published there */
};

struct flow {
    struct sluiced *d;
    struct dispatch *dispatch;
    struct ledger ledger;
    struct work_list works;              /* open runs and jobs */
    struct fnode *nodes;                 /* by pointer */
    struct record *records;              /* by work and TF */
    struct heap due;                     /* TFs with a deadline */
    TAILQ_HEAD(, ghost) ghosts;
    struct service *services;
    char   classes[31][64];              /* number of a class: bit of dispatch */
    unsigned n_classes;
    ev_prepare turn;
    ev_timer tick, again;
    bool   kicked;
    bool   redo;                         /* of some node's */
    double next_publish;                 /* publish.c */
    unsigned cooling;                    /* nodes that are passed over */
    struct outcheck *outchecks;          /* outcheck.c */
    struct user *users;                  /* who has jobs, by uid */
    unsigned owners;                     /* runs, jobs, and flow_create's caller: the last to go frees it */
    double now, stalled, last_tick;
    struct pool_sum { uint64_t largest, room, room_for; unsigned usable, classes; } pool[2];     /* of its nodes, while summed; room: of TFs of room_for bytes */
    bool   summed;
    struct ran *ran;                     /* of all TFs that were done since our start */
};

/* outcheck.c - whether uid can deliver to that folder, and nothing lies there under the names of these results: a worker of the pool tries it. then is called
 * once, now or later: rc 0, also when no worker is there to be asked, and what was said (NULL: nobody was asked); -1: e says why not. Strings are
 * copied. by_default: nobody asked for that folder, so that a refusal says how to. sweep: what that job, which is over, left half there goes instead, on one
 * node, or on `only`; without a worker -1. */
struct outcheck_said { const char *real; const struct node *by; bool own_disk; };       /* real: where it lies, NULL: not known */
typedef void (*outcheck_fn)(void *arg, int rc, const struct outcheck_said *said, const struct err *e);
struct outcheck_ask { const char *output; uint32_t uid, gid; const char *const *stem; const uint64_t *tfs; size_t n; uint64_t sweep; const struct node *only;
                     bool by_default; };
void outcheck(struct flow *f, int pool, const struct outcheck_ask *ask, outcheck_fn then, void *arg);
void outcheck_tick(struct flow *f);
void outcheck_drop(struct flow *f);      /* at the end: each hears -1 */

struct flow *flow_share(struct flow *f);
void flow_unshare(struct flow *f);
struct user *flow_user(struct flow *f, uint32_t uid);                    /* made on first use */
double flow_now(struct flow *f);
void flow_kick(struct flow *f);          /* something may be given out: once, at the end of this turn of the loop */
void flow_turn(struct flow *f);          /* what the turn's end does; tests call it */
void flow_tick(struct flow *f);          /* every TICK seconds */
#define FLOW_TICK 0.05
struct fnode *flow_node(struct flow *f, struct node *n);                 /* made on first use */
#define FLOW_CLASS_REST (1u << 31)       /* the rest of a site with very many classes shares this bit */
unsigned flow_class_bit(struct flow *f, const char *class);
/* Whether a node was ever of this class, whatever the configuration says. */
bool flow_class_known(const struct flow *f, const char *class);
/* The largest buffer of a pool's nodes that were ever in contact; 0: none known. */
uint64_t flow_largest_buffer(struct flow *f, int pool);
/* How many TFs of that size the pool's usable nodes may hold below their marks. */
uint64_t flow_room(struct flow *f, int pool, uint64_t bytes);
unsigned flow_usable_nodes(struct flow *f, int pool);
/* Whether a usable node of the pool is of one of these classes (0: any). */
bool flow_has_class(struct flow *f, int pool, unsigned classes);
double flow_median(struct flow *f, const char *class);                   /* s of a TF there */
void flow_median_add(struct flow *f, const char *class, double seconds);
void flow_cool(struct fnode *n, double s);
/* Passed over for a while, and nothing else is wrong with it: it takes work again by itself. */
bool flow_rests(const struct fnode *n);
void flow_add_ghost(struct flow *f, struct fnode *n, uint64_t bytes);

/* Asks the worker to give a charge's TF up. */
void flow_cancel(struct fnode *n, const struct charge *c, const char *why);

/* able.c */
/* Whether one of these classes (n 0: any) can have the backends that a workflow is to run on; -1: ERR_STATE, the sentence says what each has. */
int  able_check(const struct flow *f, const char *workflow, const char *backends, char *const *classes, size_t n, struct err *e);
void able_narrow(struct work *w);        /* classes: those asked for that can have its backends */

/* assign.c */
void assign_all(struct flow *f);         /* gives out what can be given out */
/* What keeps a usable node from taking a TF of so many bytes now, a stable code; t, which may be NULL: who refused it. "Free": nothing does. */
const char *assign_cause(const struct fnode *n, const struct tf *t, uint64_t bytes);
/* What the oldest TF of w waits for, a stable code; NULL: for nothing. */
const char *assign_why(const struct work *w);
void assign_adopt(struct tf *t, struct fnode *n, struct fence fence, uint64_t bytes, bool building);     /* a worker holds it already */
void assign_tell(struct work *w);        /* RunOpen again, to all that heard it: something of it changed */
/* A second try at a TF that is given out, on another node: that one, or NULL when none can take it now. */
struct fnode *assign_rival(struct tf *t);
void assign_close(struct work *w);       /* RunClose to all that heard RunOpen */
void assign_forget_node(struct fnode *n);/* its connection is new: nothing was opened there */
int  assign_open(struct fnode *n, struct work *w);

#endif
