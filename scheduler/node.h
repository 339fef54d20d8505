/* node.h - one node: what was decided about it (stored), what its worker says (not stored), what follows from both
 *
 * From: session.c (registration, reports), mark.c, move.c, restore.c.  To: flow.c (usable, load), show.c.
 * Marks hang on the name. `usable` and `state` are computed by node_judge alone, which also says why.
 */
#ifndef SLUICE_NODE_H
#define SLUICE_NODE_H

#include <sys/queue.h>
#include <uthash.h>
#include "dispatch.h"
#include "session.h"

enum { POOL_ONLINE = 0, POOL_ASYNC = 1 };
extern const char *const pool_name[2];
int pool_parse(const char *word, int *pool, struct err *e);

struct mark {
    TAILQ_ENTRY(mark) entry;
    uint64_t id;
    char    *part, *owner_kind, *owner, *class, *reason, *evidence;     /* part: "node" or a device's serial */
    bool     block;                                                     /* severity */
    int64_t  created, until;
};
TAILQ_HEAD(mark_list, mark);

struct node {
    UT_hash_handle hh;
    struct sluiced *d;
    char  name[64], class[64];
    bool  added;                       /* false: registered, held aside */
    int   pool, wanted_pool;
    int64_t added_at;
    struct mark_list marks;            /* open ones */
    unsigned marks_ever;
    struct move *move;                 /* the open one, or NULL */
    uint64_t shm_wanted; int nice_wanted;

    struct session *session;           /* the worker in contact, or NULL */
    Sluice__Incarnation *incarnation;  /* of the last registration, NULL = never */
    uint64_t connection;
    Sluice__Report *report;            /* the last one, NULL = none of this registration */
    Sluice__Register *registered;      /* the last registration */
    ev_tstamp last_contact;            /* loop time of the last sign of life, 0 = never */
    char  software[32], host[128];
    double clock_offset;

    struct disp_node load;             /* dispatch's view: charges, buffer, speed, building; kept by flow.c */
    TAILQ_HEAD(, tf) tfs;              /* charged here; kept by flow.c */
    unsigned n_tfs;
    uint64_t done, failed, refused;    /* since start of sluiced */
};

struct farm *farm_create(struct sluiced *d);
void   farm_destroy(struct farm *f);
struct node *farm_node(struct farm *f, const char *name);               /* NULL: no such node */
struct node *farm_first(struct farm *f);                                /* by name; next: n->hh.next */
unsigned farm_count(const struct farm *f);

enum { NODE_MAX_WHY = 12 };
struct verdict {                       /* what node_judge says */
    bool usable;                       /* contact up, added, no blocking mark, no move or resize executing, a device that works */
    Sluice__NodeState state;
    Sluice__Contact contact;
    unsigned n_why; const char *why[NODE_MAX_WHY];     /* stable codes */
    unsigned devices_usable;
};
void node_judge(const struct node *n, struct verdict *v);

/* Fills the message that people see. Strings borrowed from the node; arrays to be freed by node_message_free. */
void node_message(const struct node *n, Sluice__Node *out);
void node_message_free(Sluice__Node *out);

/* Something about the node changed that may change what it can take: judges, tells flow (flow_node_changed) and move.c. */
void node_changed(struct node *n);
/* The worker's pool and nice, sent again. */
void node_send_settings(struct node *n);

/* ---- move.h's part that others call ---- */
/* The last TF left n: a draining move goes on. Called by flow.c whenever n_tfs falls to 0. */
void node_emptied(struct node *n);

#endif
