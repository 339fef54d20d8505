/* chan.h - a framed connection on the loop: partial I/O, a bounded send queue, heartbeats, deadlines
 *
 * One owner, one loop, no threads. Callbacks come from the loop only, never from within chan_send. After `closed` was called the
 * chan is dead: the owner calls chan_destroy (also from within a callback). What is sent goes out at the end of the loop's turn. Heartbeats (PING when nothing was sent for a
 * second) go ahead of everything queued; a peer from which nothing came for dead_s is closed with ERR_TIMEOUT. Deadlines are
 * judged only after a full read pass, and shift by the length of our own stall.
 */
#ifndef SLUICE_CHAN_H
#define SLUICE_CHAN_H

#include <ev.h>
#include "frame.h"
#include "offset.h"

struct chan;

struct chan_events {
    /* m belongs to the chan and is gone after the call. fds: descriptors that came along, the callee takes them (sets them to -1) or
     * the chan closes them. */
    void (*message)(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds);
    void (*closed)(void *arg, struct chan *c, const struct err *why);     /* why->code ERR_NONE: the peer closed in order */
    void (*drained)(void *arg, struct chan *c);                           /* may be NULL: the send queue fell below half its bound */
};

struct chan_limits {
    size_t   max_queue;       /* bytes that may wait to be sent, default 8 MiB; beyond: chan_send fails, the connection is closed as lagging.
                               * One message of any size that its type allows may always be sent while nothing else waits. */
    uint32_t max_length;      /* a frame's length while the peer is not known yet, default 64 KiB (see chan_known) */
    bool     no_fds;          /* this side wants no descriptors: those that come are closed by the kernel, and reading is cheaper */
    int64_t  clock_shift_ns;  /* tests: added to the wall clock that the peer is told */
    double   beat_s, dead_s;  /* default 1 and 4; beat_s < 0: no heartbeat of ours (theirs are answered); dead_s < 0: silence is no death */
};

/* Takes fd (nonblocking, connected). limits NULL or a field 0: the default. */
struct chan *chan_create(struct ev_loop *loop, int fd, const struct chan_limits *limits, const struct chan_events *events, void *arg);
/* NULL is fine; closes at once. Raw transfers under way are told (ok 0) from within it, `closed` is not called. */
void  chan_destroy(struct chan *c);
void  chan_close_after_send(struct chan *c, double limit_s);   /* what is queued goes out, then `closed` comes */
void  chan_set_owner(struct chan *c, const struct chan_events *events, void *arg);   /* hands it to another module */
void  chan_known(struct chan *c);                         /* the peer is authenticated: the table's limits hold from now on */
/* Only types that one of these senders may send (bits of frame_type.from) are taken from now on; at first all are. */
void  chan_allow(struct chan *c, unsigned from);

/* Queues one message. -1: dead, closing, or the queue is full (ERR_TIMEOUT "lagging") or the message larger than its type allows:
 * `closed` follows from the loop. fds are duplicated. */
int   chan_send(struct chan *c, uint32_t id, const ProtobufCMessage *m);
int   chan_send_fds(struct chan *c, uint32_t id, const ProtobufCMessage *m, const int *fds, unsigned n_fds);
/* Error with the code and sentence of why. word: a stable code or NULL. */
int   chan_send_error(struct chan *c, uint32_t id, const struct err *why, const char *word);
/* size bytes at data follow the last frame, raw (a source's part), not copied: data must live until `sent` was called, once,
 * with ok 1 (the kernel has them) or 0 (closed first, before `closed`). -1: dead, `sent` will not come. Heartbeats wait behind them. They do not
 * count as queued. */
int   chan_send_raw(struct chan *c, const void *data, size_t size, void (*sent)(void *arg, int ok), void *arg);
/* Only from within `message`: that message, the caller's from now on (protobuf_c_message_free_unpacked): for what is kept with every report, a copy costs as much again.
 * NULL: none, or taken before. */
ProtobufCMessage *chan_take_message(struct chan *c);
/* Only from within `message`: the next size bytes after that frame go straight to data; then `done` is called with ok 1, and frames
 * go on. progress (may be NULL) is called after each read. When the chan closes first: done with ok 0, before `closed`. -1: dead. */
int   chan_receive_raw(struct chan *c, void *data, size_t size, void (*done)(void *arg, int ok), void (*progress)(void *arg, size_t got), void *arg);

size_t chan_queued(const struct chan *c);                 /* bytes waiting to be sent */
double chan_silence_s(const struct chan *c);              /* since the last byte from the peer */
void   chan_look_at_clock(struct chan *c);                /* asks for its clock now, not only with the next heartbeat */
/* The peer said what its clock was, after our wall clock was `sent` and before now. */
void   chan_take_clock(struct chan *c, int64_t sent, int64_t clock);
const struct offset *chan_clock(const struct chan *c);    /* the peer's clock against ours, as far as it answered */
int    chan_fd(const struct chan *c);
const char *chan_peer(const struct chan *c);              /* "unix pid 12 uid 0" or "[::1]:7000": for the log */

#endif
