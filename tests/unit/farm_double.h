/* farm_double.h - the flow half of sluiced without sockets: real ledger, runs, jobs and database; recorded messages instead of connections
 *
 * The world plays the farm half (nodes, sessions, history) and the writer: changes are written when the test says so. Time is set by the test.
 */
#ifndef SLUICE_FARM_DOUBLE_H
#define SLUICE_FARM_DOUBLE_H

#include <stdbool.h>
#include "flow_core.h"
#include "job.h"
#include "run.h"

struct sent { TAILQ_ENTRY(sent) entry; uint32_t id; ProtobufCMessage *m; };
struct chan { TAILQ_HEAD(, sent) sent; bool dead; };       /* what was sent over it, oldest first */

struct peer { struct session s; struct chan chan; bool open; struct peer *next; };

enum { WORLD_NODES = 16 };
struct world {
    struct sluiced d;
    struct conf *conf;
    struct db *db;
    char dir[64];
    struct node node[WORLD_NODES];
    unsigned n_nodes;
    struct peer *peers;
    uint64_t numbers;
    struct change { struct change *next; int (*write)(struct db *, void *, struct err *); void (*then)(void *, int, const struct err *); void *arg; } *first, **last;
    unsigned queued, emptied;
    bool writable;
    bool slow_helper;                    /* what is asked of a thread waits for world_help */
    struct late *late;
    bool sampled;                        /* every result is made again elsewhere */
    unsigned wrong; struct node *wrong_node; char wrong_text[300];       /* what health was told of wrong results */
};

extern struct world world;

bool world_help(void);                   /* does the oldest thing that a thread was asked for; false: there is none */
void world_open(void);
void world_close(void);
/* Ends flow, runs and jobs as a crash does (changes that were not committed are gone) and starts them again from the database. */
void world_restart(void);
void world_commit(void);                 /* writes and answers all that is queued */
void world_commit_batch(void);           /* only what is queued now */
void world_turn(void);                   /* the turn's end, with the answers of what was committed */
void world_pass(double s);               /* time goes by, in ticks */

struct node *world_node(const char *name, const char *class, int pool, uint64_t size);
struct session *world_peer(const char *name);
/* A worker registers with what it holds; the numbers of the TFs that it shall forget, or each of them by its fence. */
void world_connect(struct node *n, const Sluice__Held *held, size_t n_held, struct idset *forget);
void world_connect_with(struct node *n, const Sluice__Held *held, size_t n_held, void (*forget)(void *arg, const Sluice__Held *h), void *arg);
void world_disconnect(struct node *n);
void world_hang_up(struct session *s);   /* a source's or client's connection closes */

/* The oldest message of that kind that was sent to s, taken out; NULL: none. The caller frees it. */
void *world_take(struct session *s, const ProtobufCMessageDescriptor *d);
unsigned world_sent(struct session *s, const ProtobufCMessageDescriptor *d);
void world_forget_sent(struct session *s);
#define TAKE(s, lower) ((void *)world_take((s), &lower##__descriptor))
#define FREE(m) protobuf_c_message_free_unpacked((ProtobufCMessage *)(m), NULL)

/* Fails the test when an invariant does not hold. */
void world_check(void);

/* Shorthands. */
uint64_t start_run(struct session *client, Sluice__StartRun *m);         /* commits; 0: refused */
struct session *join_source(uint64_t run, unsigned part, bool holds, uint64_t start);
void announce(struct session *source, uint64_t run, uint64_t first, unsigned n, uint64_t size, uint32_t orbit, uint64_t watermark);
void end_stream(struct session *source, uint64_t run, uint64_t watermark);
void answer_built(struct node *n, const Sluice__Assign *a);
void answer_done(struct node *n, const Sluice__Assign *a, bool outputs);
void answer_done_with(struct node *n, const Sluice__Assign *a, bool outputs, const char *digest);
void answer_failed(struct node *n, const Sluice__Assign *a, const char *word);
void answer_refused(struct node *n, const Sluice__Assign *a, const char *word);
void answer_published(struct node *n, const Sluice__Assign *a);
struct run *the_run(uint64_t id);

#endif
