/* chan_part.h - what chan.c and chan_read.c share; nobody else includes it */
#ifndef SLUICE_CHAN_PART_H
#define SLUICE_CHAN_PART_H

#include "chan.h"

#include <sys/queue.h>

/* One frame, or raw bytes that belong to the frame before. */
struct seg {
    TAILQ_ENTRY(seg) link;
    const uint8_t *data;
    size_t size, off;
    bool   raw, beat, ping;
    void (*sent)(void *arg, int ok);
    void  *arg;
    unsigned n_fds;
    int    fds[FRAME_MAX_FDS];
    uint8_t frame[];
};
TAILQ_HEAD(segs, seg);

struct came { unsigned n; int fds[FRAME_MAX_FDS]; uint64_t start, end; };    /* they belong to a frame that begins in [start, end) */

struct raw_in {
    uint8_t *data;
    size_t   size, got;
    void   (*done)(void *arg, int ok);
    void   (*progress)(void *arg, size_t got);
    void    *arg;
};

struct chan {
    struct ev_loop *loop;
    int  fd;
    struct chan_limits limits;
    const struct chan_events *events;
    void *arg;
    ev_io rd, wr;
    ev_prepare flush;
    ev_timer tick;

    uint8_t *in;                       /* the beginning of a frame */
    size_t   in_len, in_cap;
    struct frame_head head;            /* of that frame, once in_len >= FRAME_HEAD */
    uint64_t pos;
    struct came came;
    struct raw_in raw;                 /* raw.data != NULL: raw bytes are next */
    bool     in_message;
    ProtobufCMessage *message;         /* the one that is being handled, until somebody takes it */

    struct segs queue;
    size_t   queued;
    bool     was_full;                 /* more than half: drained is owed */
    bool     ping_queued;
    uint64_t ping_number;              /* of the last one */
    int64_t  ping_clock;               /* our wall clock then; 0: it is answered */
    struct offset clock;

    int64_t  heard, sent, tick_due, drain_due;     /* monotonic ns */
    unsigned from;
    bool known, draining, shut, dead, doomed, destroyed;
    struct err doom;
    unsigned busy;                     /* callbacks of ours on the stack */
    char peer[80];
};

bool chan_alive(const struct chan *c);                /* messages are handled and sent */
void chan_enter(struct chan *c);                      /* around every callback: the chan is not freed before the last chan_leave */
void chan_leave(struct chan *c);
void chan_close_fds(int *fds, unsigned n);
void chan_raw_end(struct chan *c, int ok);            /* tells whoever waits for raw bytes, if anybody does */
void chan_die(struct chan *c, const struct err *why); /* from the loop only: tells the owner; once */
void chan_broken(struct chan *c, enum err_code code, const char *text);
void chan_read_pass(struct chan *c);                  /* takes what the socket has */

#endif
