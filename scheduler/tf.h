/* tf.h - a TF on its way, and the run or job it belongs to, as the ledger's files see them
 *
 * A `work` is what a run and a job have in common: TFs waiting in order of their number, a way to describe one to a worker, and what to do at its end.
 * A TF that is settled is no longer here: its record (settle.h) is.
 */
#ifndef SLUICE_TF_H
#define SLUICE_TF_H

#include <sys/queue.h>
#include <uthash.h>
#include "heap.h"
#include "ledger.h"
#include "node.h"

enum tf_state { TF_FORMING, TF_QUEUED, TF_WAITING, TF_BUILDING, TF_BUILT, TF_STATES };
extern const char *const tf_state_name[TF_STATES];

struct fence { uint64_t epoch; uint32_t attempt; };
static inline bool fence_newer(struct fence a, struct fence b)
{
    return a.epoch != b.epoch ? a.epoch > b.epoch : a.attempt > b.attempt;
}

struct flow;
struct work;
struct fnode;
struct run_tf;                       /* source.h: its parts */

enum { TF_AVOID = 16 };
struct tf {
    UT_hash_handle hh;               /* of its work, by id */
    uint64_t id;
    struct work *work;
    enum tf_state state;
    size_t queue_place, due_place;
    double due;                      /* flow time; 0: none */
    double born, entered;            /* flow time: first heard of; entered its state */
    uint64_t bytes;                  /* in the buffer */
    struct fence fence;              /* the present one, 0,0: never given out */
    struct charge *charge;           /* of the present fence, while BUILDING or BUILT */
    struct charge *rival;            /* a second try beside it, on another node: whoever is done first (straggler.c) */
    uint32_t last_attempt;           /* number of the last try, rivals too */
    double given;                    /* flow time of the present try */
    unsigned tries;                  /* attempts that failed */
    unsigned n_deaths;               /* processes that died of it, */
    char  *deaths, *crash;           /* on these nodes: "n1,n2"; the folder that keeps the last */
    unsigned refusals;
    bool   pulled;                   /* WAITING: for the worker that pulled it before our start */
    bool   cancelled;                /* Cancel was sent; the answer brings it back into the queue */
    char   last_word[24];            /* of the last failure */
    char  *last_text, *last_node;
    struct tried { uint32_t attempt; bool kept; char word[24]; char *text, *device, *log; } tried;      /* how the newest try that ended did; attempt 0: none yet */
    struct account *avoid[TF_AVOID]; /* refused it, or failed at it */
    unsigned n_avoid;
    struct doubt *doubts;            /* health.h: where it failed */
    struct verify *verify;           /* verify.h: results that wait to be compared */
    struct run_tf *parts;            /* of a run's TF */
};

/* How a TF ended. Strings for the call. */
enum outcome { END_DONE, END_FAILED, END_DROPPED, END_LOST, END_CANCELLED, END_KINDS };
extern const char *const outcome_name[END_KINDS];
struct end {
    enum outcome outcome;
    const char *reason, *text, *node, *device, *digest, *stages;    /* stages: text of ran.h */
    double seconds;
    bool   publish;                  /* there is something to be put under its final name */
};

struct work_ops {
    void (*describe)(struct tf *t, Sluice__Assign *a);          /* parts or path, orbit, incomplete; arrays freed by described */
    void (*described)(Sluice__Assign *a);
    char *(*stem)(const struct tf *t);                          /* of its files; the caller frees */
    void (*assigned)(struct tf *t);                             /* it was given out */
    void (*built)(struct tf *t);
    bool (*available)(struct tf *t);                            /* its data can be read by another node; else it says what becomes of it: waits or settles */
    void (*due)(struct tf *t);                                  /* its deadline passed; due is 0 now */
    void (*settle)(struct tf *t, const struct end *end);        /* counts, stores, frees t */
    void (*answered)(struct work *w);                           /* a record of it is done with */
    unsigned (*attempts)(const struct work *w);                 /* limit */
};

/* nice.h: the level of its reconstruction processes. own: NICE_NONE for the pool's, held within min and max, which the rules allow its owner. */
struct work_nice { int own, min, max; };

TAILQ_HEAD(work_list, work);
struct work {
    const struct work_ops *ops;
    TAILQ_ENTRY(work) entry;
    struct flow *flow;
    bool     is_job;
    uint64_t id;
    int      pool, priority;
    enum disp_policy policy;
    unsigned asked, classes;         /* bits of classes, 0: any; classes: those of the asked ones that can have its backends (able.c) */
    char    *name, *workflow, *backends, *options, *output;
    uint8_t  key[32];
    uint32_t uid, gid;
    double   time_limit;             /* s in a reconstruction process; 0: the configured one */
    struct work_nice nice;
    struct tf *tfs;                  /* by id */
    struct heap queue;               /* QUEUED, by id */
    unsigned n[TF_STATES];           /* TFs in each state */
    uint64_t charged;                /* bytes given out */
    struct user *user;               /* whose job it is; NULL: a run, which has a share of its own */
    uint64_t limit;                  /* BUILDING + BUILT at a time; 0: none */
    bool     paused;                 /* nothing is given out */
    bool     blocked;                /* in this pass: no node takes its oldest */
    const char *why;                 /* stable code of what its oldest waits for, NULL: nothing */
    unsigned records;                /* settled, not yet stored or published */
    uint64_t dispatched, retried, preempted;        /* preempted: tries given up for a node that was called away */
    struct tally *failures;          /* attempts that failed, by word */
    double   progress;               /* flow time of the last TF that came back */
};

/* Somebody with jobs: what all of them have of the pool together. */
struct user { UT_hash_handle hh; uint32_t uid; uint64_t charged; };

/* Numbers by word, few words. */
struct tally { char word[24]; uint64_t n; struct tally *next; };
void tally_add(struct tally **t, const char *word, uint64_t n);
void tally_free(struct tally *t);
uint64_t tally_sum(const struct tally *t);
/* "WORD N,WORD N", as it is stored; the caller frees. And back. */
char *tally_text(const struct tally *t);
void tally_read(struct tally **t, const char *text);

struct tf *tf_create(struct work *w, uint64_t id);
struct tf *tf_find(struct work *w, uint64_t id);
/* Into another state: keeps the queue, the numbers and the deadline in order. due 0: none. */
void tf_enter(struct tf *t, enum tf_state state, double due);
/* Its present try came to that end: for the list of tries. Strings may be NULL. */
void tf_tried(struct tf *t, const char *word, const char *text, const char *device, const char *log);
void tf_free(struct tf *t);          /* out of every list; its charge, if any, stays behind without it */
void work_init(struct work *w, struct flow *f, const struct work_ops *ops, bool is_job, uint64_t id);
void work_free(struct work *w);      /* contents; no TFs may be left */
struct charge_key tf_key(const struct tf *t);
/* A TF and a fence as messages name them. */
struct key_message { Sluice__Tf tf; Sluice__Fence fence; };
void key_message(const struct charge_key *k, struct key_message *out);
/* The books of its work and user: the charge was made, or is no longer this TF's. */
void tf_charge(struct tf *t, struct charge *c);
void tf_uncharge(struct tf *t);
/* One of its charges is not its own any more. true: it goes on with the other one, under that one's fence. */
bool tf_detach(struct tf *t, struct charge *c);
uint64_t work_share(const struct work *w);       /* bytes that it, or its user's jobs together, have of the pool */

#endif
