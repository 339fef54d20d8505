/* held.h - a TF that this worker holds: from its Assign to the last word of sluiced on it
 *
 * phases (words of the protocol):
 *   building -> queued -> processing -> delivering -> reported -> accepted -> gone
 * and from any of the first four straight to reported, by failing. Its range of the buffer is given back when nobody touches it any more:
 * whoever does (a thread that reads into it, a process that works on it) holds it busy.
 */
#ifndef SLUICE_HELD_H
#define SLUICE_HELD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uthash.h>
#include "fence.h"
#include "range.h"
#include "work.h"

struct worker;
struct build;                                    /* intake.c */
struct delivery;                                 /* deliver.c */
struct device;                                   /* device.c */

struct held {
    UT_hash_handle hh;
    TAILQ_ENTRY(held) queue;                     /* of those that wait for a device */
    struct worker *worker;
    struct { struct tf_name name; struct fence fence; } key;
    Sluice__Phase phase;
    struct work *work;
    uint64_t bytes;                              /* as charged by sluiced */
    struct range range;
    struct range *segment; unsigned n_segments;  /* parts in order, as they lie in the buffer */
    char    *stem;
    char    *input; uint64_t offset;             /* of a job's: the file, and where in it; NULL: it came from sources */
    bool     incomplete;
    uint32_t first_orbit;
    unsigned busy;                               /* who touches the range */
    bool     finished;                           /* nobody needs the range any more */
    bool     silent;                             /* sluiced wants to hear nothing more of it */
    bool     dead;                               /* out of the table; freed when no longer busy */
    char    *cancelled;                          /* the reason, or NULL */
    char    *said;                               /* the last of what its process printed meanwhile, lines as they may be shown; or NULL */
    int64_t  assigned, built, started, processed;               /* monotonic ns */
    struct build    *build;
    struct device   *device;
    struct delivery *delivery;
    unsigned answer_type;                        /* DONE or FAILED, kept until the Verdict */
    uint8_t *answer; size_t answer_size;         /* packed */
};

struct held_table { struct held *table; unsigned n[6]; };        /* n: by phase */

struct held *held_create(struct worker *w, struct tf_name name, struct fence fence, struct work *work);
struct held *held_find(struct held_table *t, struct tf_name name, struct fence fence);
/* Moves on; a step that is not in the table of held.c is a mistake of ours and ends the program. */
void held_phase(struct held *h, Sluice__Phase to);
void held_busy(struct held *h);
void held_unbusy(struct held *h);                /* h may be gone afterwards */
/* Nobody needs its bytes any more. */
void held_finish(struct held *h);
/* Out of the table; memory and range go when no longer busy. */
void held_remove(struct held *h);
/* The final answer: kept, and sent now and after each reconnect. A silent one is removed instead. */
void held_answer(struct held *h, const ProtobufCMessage *m);
/* Failed, from any phase before reported. crash: folder or NULL. */
void held_fail(struct held *h, const char *word, const char *stage, const char *device, const char *crash, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));
/* sluiced takes it back: Failed(Cancelled) follows, or the Done that was under way. */
void held_cancel(struct held *h, const char *reason);
/* sluiced knows it no more: it goes without a word, its files too. */
void held_forget(struct held *h);
void held_free_all(struct held_table *t);        /* at the end of the program, after all threads ended */
const char *held_text(const struct held *h);     /* "run 7 tf 12 try 1.2", valid until the next call */

#endif
