/* device_part.h - what the files of the node's devices share: device.c (states, starts, ends), device_talk.c (the conversation with a process),
 * device_show.c (what people see). For others there is device.h.
 */
#ifndef DEVICE_PART_H
#define DEVICE_PART_H

#include "chan.h"
#include "device.h"
#include "place.h"
#include "times.h"
#include "watch.h"
#include "worker.h"

enum { RECIPES = 8 };                            /* that a process keeps at a time; the one used longest ago is replaced */
#define GRACE_S  0.5                             /* from TERM to KILL */

struct device {
    struct devices *all;
    char     serial[96], class[64], software[64], backend[16], arch[32];      /* backend, arch: "" for one on the CPU */
    bool     emulated;
    bool     off;                                /* a mark took it out: nothing new */
    bool     parked;                             /* no process, as is wanted, and its memory is free or not ours to look at */
    bool     leaving;                            /* its process is ended to park it */
    bool     unclean;                            /* its memory is not free, or not known to be: no process is started */
    double   nominal;                            /* s, 0: none */
    uint64_t memory;
    int      numa;                               /* of a real one; -1: not known */
    struct place place;                          /* where its process belongs */
    int      domain;                             /* from which that takes its memory: -1 from any, -2 not known */
    char     cpus[128], misplaced[256];          /* as it was when it was shown last */
    Sluice__Pinned pinned; char pinned_why[300]; /* what its process said last */
    bool     has_pinned;
    enum device_state state;
    struct child *child;
    struct chan  *chan;
    uint64_t generation;                         /* of the buffer, as its process was told */
    struct { char *recipe; uint64_t used; } recipe[RECIPES];     /* used: turn of the last TF of it */
    unsigned asked;                              /* place of the recipe that was asked for last */
    struct held *held;
    uint64_t said_from;                          /* what its process had printed when it was given that */
    char     stage[96];                          /* that it said last */
    int64_t  since;                              /* worker_now of the last sign of life in this state */
    int64_t  cancel_at;                          /* 0: not asked to give up */
    int64_t  begun;                              /* monotonic, of the run */
    int64_t  given;                              /* the same, worker_now */
    char     doom_word[24], doom[256];           /* why we end it: the word for its TF */
    char     why[256];                           /* why it does not work, for reports */
    struct ev_timer again;
    unsigned boot_failures, crashes;             /* in a row */
    uint64_t restarts, stalls;
    double   seconds_per_tf;
    bool     measured;
    int      nice_told, nice_refused;            /* level that its process was given last; that the kernel refused last */
    char     nice_for[40];                       /* of whom that level is, for reports */
};

struct devices {
    struct worker *worker;
    struct device *device; unsigned n;
    TAILQ_HEAD(, held) queue;
    struct times *times;
    bool started, stopping;
    Sluice__Parking parking; uint64_t parking_order;     /* AS_THEY_ARE: no word yet */
    char nice_text[200];
    uint64_t turn;
};

/* ---- device.c ---- */

void device_post(struct device *d, enum device_event event);
bool device_is_broken(const struct device *d);
bool device_is_missing(const struct device *d);   /* the driver does not have it any more, and no process of ours is on it */
/* The TF that is on the device, taken off it; or NULL. */
struct held *device_take_off(struct device *d);
/* Ends the process; the TF on it fails with this word once it is gone. */
void device_doom(struct device *d, const char *word, const char *text);

/* Starts a process as soon as it may be. */
void device_start_soon(struct device *d);

/* ---- device_park.c ---- */

/* No process is to be there now: nobody wants one, and nothing is left to be worked on. */
bool devices_rest(const struct devices *all);
/* Those that rest and have a process that does nothing: it ends. Those that need one get it. */
void devices_park_step(struct devices *all);

/* ---- device_nice.c ---- */

enum { NICE_UNKNOWN = 100 };
/* What its process is to have: as the run or job says that it works for, else as the pool says. */
int  device_nice_wanted(const struct device *d);
/* That, behind the worker's loop. */
int  device_nice(const struct device *d);
/* Its process gets the level of what it works for now, all its threads. */
void device_set_nice(struct device *d);

/* ---- device_talk.c ---- */

/* The conversation with a new process begins, on this socket; takes both descriptors. */
void talk_open(struct device *d, int socket, int buffer);
/* An idle process maps the buffer as it is now; one that cannot is replaced. */
void talk_reattach(struct device *d);
/* The TF on it (held) is told, after its recipe where the process does not know that. */
void talk_give(struct device *d);
void talk_cancel(struct device *d);
/* What a process that is gone knew. */
void talk_forget(struct device *d);

/* ---- device_show.c ---- */

/* Where its process is now, and what of that is not as wanted. */
void device_look_where(struct device *d);

#endif
