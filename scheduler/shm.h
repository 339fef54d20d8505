/* shm.h - the size of the nodes' buffers: set -> waiting -> resizing -> set | failed
 *
 * From: people (session.c), workers (node_register.c), the clock.  To: the worker's Settings, node.c (no new work meanwhile), the database.
 * The wanted size is stored; what a worker has is what it says. A size that is wanted and not there is made as soon as the node is in contact and no run
 * uses it: at once when its worker has just started. What failed is tried again by the next SetShm, or when the worker starts again.
 * A worker that does not answer within limits.resize_timeout has failed; what it says later is heard all the same. One that is out of contact meanwhile
 * is waited for by nobody: the change goes on when it is back.
 */
#ifndef SLUICE_SHM_H
#define SLUICE_SHM_H

#include "session.h"

struct node;
struct shms;

enum shm_state { SHM_SET, SHM_WAITING, SHM_RESIZING, SHM_FAILED };
struct node_shm {
    enum shm_state state;
    uint64_t order;                    /* that the worker is to carry out; 0: none yet */
    uint64_t request;                  /* of the person who asked last and waits; 0: nobody does */
    uint64_t asked;                    /* number of the request that was the last, waited for or not; 0: none since our start */
    uint64_t before;                   /* its size when the order was made */
    bool storing;                      /* the wish is on its way to the disk */
    bool sent;                         /* the worker has the order */
    uint64_t progress;                 /* of the worker, as it said last */
    double sent_at;                    /* monotonic s of the order, or of its last progress, 0: not yet; moves along when we stood still ourselves */
    char text[400];                    /* why it failed */
};

struct shms *shms_create(struct sluiced *d);
void shms_destroy(struct shms *s);
void shms_tick(struct shms *s);

uint64_t shm_wanted(const struct node *n);             /* 0: nobody knows */
uint64_t shm_active(const struct node *n);             /* as the worker says; 0: no buffer, or no worker yet */
bool shm_is_resizing(const struct node *n);            /* it takes no new work */
/* Something about the node changed: its TFs, its report, who uses it. */
void shm_check(struct node *n);
/* fresh: this worker has just started, and is in nobody's work yet. */
void shm_registered(struct node *n, bool fresh);
/* The part of Settings that is about the buffer. */
void shm_settings(const struct node *n, Sluice__Settings *m);
/* Nodes whose size could not be set: calls fn for each. */
void shm_each_failed(struct sluiced *d, void (*fn)(void *arg, const struct node *n), void *arg);

void shm_set(struct session *s, uint32_t id, const void *m);           /* SET_SHM */
void shm_show(struct session *s, uint32_t id, const void *m);          /* GET_SHM */
void shm_wait(struct session *s, uint32_t id, const void *m);          /* WAIT for what SetShm began: its number */

#endif
