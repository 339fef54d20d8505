/* source.h - one source of a run: its connection to sluiced, the parts it holds there
 *
 * It announces about every 10 ms what is new, holds until sluiced releases, and after a reconnect announces everything it holds again.
 * All callbacks come from the loop; none of them may destroy the source.
 */
#ifndef SLUICE_SOURCE_H
#define SLUICE_SOURCE_H

#include <ev.h>
#include "hold.h"
#include "peer.h"
#include "runkey.h"

struct source;

struct source_events {
    void (*changed)(void *arg, struct source *s);                        /* accepted, window, lost, done: look again */
    void (*freed)(void *arg, struct source *s, uint64_t id);             /* released, and in no transfer: its memory is the owner's again */
    void (*stopping)(void *arg, struct source *s, const char *reason);   /* the run ends: hold nothing new, end the stream; reason: "" when none was given */
    void (*failed)(void *arg, struct source *s, const struct err *why);  /* refused, or out of contact for too long: nothing more is tried */
};

struct source_conf {
    struct ev_loop *loop;
    struct names   *names;                       /* NULL: Unix sockets only */
    const char *server, *method;                 /* of sluiced; as for connector_create */
    const char *name;
    const char *address;                         /* where workers pull from it */
    uint64_t    run;
    uint32_t    part;
    bool        holds;
    double      first_s, lost_s;                 /* how long to try at the start, and after contact was lost */
    struct source_events events;
    void       *arg;
};

struct source *source_create(const struct source_conf *conf, struct err *e);
void   source_destroy(struct source *s);
struct hold *source_hold(struct source *s);      /* for whoever serves its parts */

/* Accepted, not ended, and fewer parts held than sluiced allows. */
bool   source_has_room(const struct source *s);
bool   source_is_in(const struct source *s);     /* accepted on a connection that stands */
uint32_t source_window(const struct source *s);  /* 0 before it was accepted */
/* One that may not wait (holds = false) adds whatever its window is. */
void   source_add(struct source *s, const struct hold_part *p);
/* Nothing more will be added; announced parts go on being served. Once is enough. */
void   source_end(struct source *s, uint64_t skipped);
bool   source_is_done(const struct source *s);   /* ended, sluiced knows it, nothing is held */

/* The run's key; NULL before it was accepted. */
const uint8_t *source_key(const struct source *s);
const char *source_name(const struct source *s);
uint64_t source_reconnects(const struct source *s);

#endif
