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
#include "shm.h"

enum { POOL_ONLINE = 0, POOL_ASYNC = 1 };
extern const char *const pool_name[2];
int pool_parse(const char *word, int *pool, struct err *e);

struct mark {
    TAILQ_ENTRY(mark) entry;
    uint64_t id;
    char    *part, *owner_kind, *owner, *class, *reason, *evidence;     /* part: "node" or a device's serial */
    bool     block;                                                     /* severity */
    int64_t  created, until;
    bool     stored;                                                    /* is on disk */
    bool     closing;                                                   /* its clearing is on the way to the disk */
    struct change *unsaved;                                             /* acts, but is not on disk yet; NULL = stored */
    int64_t  shown, told;                                               /* when its reason was renewed, and when the history had a line about it: monotonic ns, 0: not since our start */
    int      level;                                                     /* what kind of finding of health it is (health_part.h), 0: not known */
};
TAILQ_HEAD(mark_list, mark);
struct change;

enum { NODE_MAX_WHY = 12 };
struct verdict {                       /* what node_judge says */
    bool usable;                       /* contact up, added, no blocking mark, no move or resize executing, a device that works */
    Sluice__NodeState state;
    Sluice__Contact contact;
    unsigned n_why; const char *why[NODE_MAX_WHY];     /* stable codes */
    unsigned n_parts;                  /* those of them that are about single devices alone, while the node may work with the rest: usable is, whose every reason is one */
    unsigned part_at;                  /* the first of those */
    unsigned devices_usable;
};

struct node {
    UT_hash_handle hh;
    struct sluiced *d;
    char  name[64], class[64];
    bool  added;                       /* false: registered, held aside */
    bool  stored;                      /* a row of it is on disk, added or retired */
    bool  adding;                      /* that row is on its way there */
    bool  retiring;                    /* takes no new work while its retirement is on the way to the disk */
    int   pool, wanted_pool;
    int64_t added_at;
    struct mark_list marks;            /* open ones */
    unsigned marks_ever;               /* blocking ones, open or cleared */
    struct move *move;                 /* the open one, or NULL */
    uint64_t shm_wanted; int nice_wanted;    /* shm_wanted: bytes, 0: what the worker starts with */
    struct node_shm shm;               /* kept by shm.c */

    struct session *session;           /* the worker in contact, or NULL */
    Sluice__Incarnation *incarnation;  /* of the last registration, NULL = never */
    uint64_t connection;
    Sluice__Report *report;            /* the last one, NULL = none of this registration */
    Sluice__Register *registered;      /* the last registration */
    Sluice__Contact contact;           /* judged four times a second on the monotonic clock (node.c) */
    double last_contact;               /* monotonic s of the last sign of life, 0 = never; moves along when we stood still ourselves */
    char  left[160]; double left_at;   /* why the last connection ended, and when, monotonic s */
    char  refusal[200]; double refused_at;      /* the last worker that was refused under this name, monotonic s */
    double other_version_at;                    /* monotonic s: the last one that was refused for its protocol version */
    char **parts; unsigned n_parts;    /* serials that were ever seen here: registered, or named by a mark */
    struct verdict said;               /* as flow.c was told last */
    struct node_health *health;        /* health_part.h; NULL: nothing is known yet */
    struct node_slurm *slurm;          /* slurm_part.h; NULL: not in Slurm */
    char  software[32], host[128];
    struct offset clock;               /* the worker's against ours */

    struct disp_node load;             /* dispatch's view: charges, buffer, speed, building; kept by flow.c */
    bool cooling;                      /* passed over for seconds after failures; kept by flow.c */
    unsigned n_tfs;                    /* charged here; kept by flow.c, whose ledger has the list */
    uint64_t done, failed, refused;    /* since start of sluiced */
};

/* farm.c */
struct farm *farm_create(struct sluiced *d);
void   farm_destroy(struct farm *f);
struct node *farm_node(struct farm *f, const char *name);               /* NULL: no such node */
struct node *farm_obtain(struct farm *f, const char *name);             /* made when absent: not added, held aside */
struct node *farm_first(struct farm *f);                                /* in natural order of the names; next: n->hh.next */
int    farm_check_names(struct farm *f, char *const *names, size_t n, bool (*counts)(const struct node *n), struct err *e);   /* -1: e names all that are no nodes, or do not count (NULL: all do) */
unsigned farm_count(const struct farm *f);
unsigned farm_usable(struct farm *f, int pool);                         /* nodes of the pool that take work now */
unsigned farm_good(struct farm *f, int pool);                           /* those, and those that only want a lease: what min_good counts */
bool     node_has_gone(const struct node *n, double *since_s);          /* out of contact that had been in contact, perhaps before our start; for so long, or since our start */
double   farm_stalled_s(const struct farm *f);                          /* the longest time our own loop stood still */

/* node_register.c: handlers of a worker's messages, for session.c's table */
void node_register(struct session *s, uint32_t id, const void *m);
void node_report(struct session *s, uint32_t id, const void *m);
/* The worker's connection is gone, or goes: nothing is sent to it any more. */
void node_detach(struct node *n, const char *why);
/* It was added, or retired, while its worker is in contact: the worker hears of it and flow takes it in or out. */
void node_admitted(struct node *n);

/* node.c */
bool node_says_resizing(const struct node *n);                           /* its buffer gets another size just now */
void node_judge(const struct node *n, struct verdict *v);
bool verdict_is_good(const struct verdict *v);
const char *verdict_cause(const struct verdict *v);                     /* the first reason that takes the node out; NULL: none */
/* Something about the node changed that may change what it can take: judges, tells flow (flow_node_changed) and move.c. */
void node_changed(struct node *n);
/* After a report or a tick: the same, if the verdict is another one. */
void node_check(struct node *n);
/* The worker's pool and nice, sent again. */
void node_send_settings(struct node *n);
void node_other_version(struct node *n, const char *why);               /* somebody of its name was refused for the version of the protocol */
void node_see_part(struct node *n, const char *serial);
bool node_has_part(const struct node *n, const char *serial);           /* there, or there once */
bool node_part_is_here(const struct node *n, const char *serial);       /* as its worker said last */
const struct mark *node_part_mark(const struct node *n, const char *serial);   /* the blocking mark on that device, or NULL */
/* Its devices as the worker said last: in its report, else at its registration. Borrowed. Returns how many. */
size_t node_devices(const struct node *n, Sluice__Device ***devices);
/* A copy of m (NULL: none) in the place of what was kept before: handlers keep nothing of what they are handed. */
void node_keep(ProtobufCMessage **old, const ProtobufCMessage *m);
#define NODE_KEEP(field, m) node_keep((ProtobufCMessage **)(void *)&(field), (const ProtobufCMessage *)(m))
void node_free(struct node *n);

/* node_show.c */
/* Fills the message that people see. Strings borrowed from the node; arrays to be freed by node_message_free. */
void node_message(const struct node *n, Sluice__Node *out);
void node_message_free(Sluice__Node *out);

/* move.c: the last TF left n, a draining move goes on. Called by flow.c whenever n_tfs falls to 0. */
void node_emptied(struct node *n);

#endif
