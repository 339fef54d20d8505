/* worker.h - what the files of fake-worker share: its options, a worker, a TF that it holds
 *
 * worker.c speaks with sluiced, worker_tf.c follows a TF from Assign to Verdict, worker_opt.c reads the options, worker_show.c counts.
 */
#ifndef SLUICE_FAKE_WORKER_H
#define SLUICE_FAKE_WORKER_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include "fetch.h"
#include "peer.h"

enum { MAX_SPEEDS = 64, MAX_DEVICES = 16, BINS = 600 };

extern struct fake_options {
    const char *server, *method, *prefix, *class;
    unsigned count, first, width, devices, building_limit;
    double   seconds[MAX_SPEEDS];
    unsigned n_seconds;
    double   build_s, until_s, clock_shift_s, connect_s;
    uint64_t buffer;
    unsigned reject, fail, forget, stall, leave;        /* every K-th Assign of a worker; 0: never */
    double   full_from, full_s;
    unsigned full_worker;
    unsigned corrupt, corrupt_every;
    double   resize_s;
    const char *leaks, *machine;
    unsigned resize_refuse, resize_silent;              /* every K-th worker */
    uint64_t tfs;
    int      ready_fd;
    bool     quiet, pull;
} opt;

struct worker;

/* A TF that a worker holds. */
struct held {
    TAILQ_ENTRY(held) link;
    struct worker *w;
    uint64_t run, job, id, epoch, bytes;
    uint32_t attempt;
    Sluice__Phase phase;
    bool     incomplete, failed, stalled;
    uint64_t corrupt;                   /* what its digest differs by */
    int      device;                    /* -1: none */
    struct fetch **fetch;               /* of each part that is not here yet */
    size_t   n_fetch, n_missing;
    ev_timer timer;
    int64_t  since, built;
};
TAILQ_HEAD(helds, held);

struct worker {
    char name[64];
    unsigned number;
    struct connector *link;
    bool     registered, added;
    uint64_t connections, reports;
    struct helds helds;
    struct fetcher *fetcher;
    uint64_t used, buffer, generation;
    uint64_t order, order_size, resized;                /* the newest order on the buffer's size; the one that was carried out last */
    const char *resize_failure;
    uint64_t parking_order;
    Sluice__Parking parking;                            /* of its devices, as it was told; they end and begin at once */
    ev_timer resize;
    bool     device_busy[MAX_DEVICES];
    ev_timer report;
    int64_t  reported;                  /* monotonic ns */
    double   seconds;
    uint64_t pulled, pull_failed;
    uint64_t assigned, refused, built, done, failed, accepted, not_accepted, stale, cancelled, forgotten, tries;
    unsigned most;                      /* held at a time */
    uint64_t most_used;
};

extern struct totals {
    unsigned registered, most_registered;
    double   full_strength_s, lost_s, back_s;           /* since start; since the first loss */
    uint64_t doubles, accepted_twice, verdicts, losses, corrupted;
    unsigned bins[BINS];                                /* tries to connect, per second since the first loss */
    unsigned most_bin;
    bool     told_ready;
    double   offset_min, offset_max;
    char     last_lost[200];
} all;

/* worker_opt.c */
void options_read(int argc, char **argv);

/* worker_tf.c */
void handle_run_open(const Sluice__RunOpen *m);
void handle_assign(struct worker *w, const Sluice__Assign *a);
void handle_verdict(struct worker *w, const Sluice__Verdict *v);
void handle_cancel(struct worker *w, const Sluice__Cancel *c);
void name_tf(Sluice__Tf *tf, Sluice__Fence *f, const struct held *h);
struct held *held_find(struct worker *w, const Sluice__Tf *tf);
void held_free(struct held *h);              /* and what waits gets its device */
void held_drop_all(struct worker *w);        /* at the end: nothing follows */
void send_result(struct held *h);
unsigned seen_count(void);                   /* TFs that were ever assigned */
void seen_free(void);

/* worker.c */
extern struct ev_loop *loop;
extern struct worker *workers;
double now_s(void);                          /* since the start */
bool every(unsigned k, uint64_t n);          /* whether it is the turn of every k-th; k 0: never */
bool is_full(const struct worker *w);        /* --full */
void tell(struct worker *w, const ProtobufCMessage *m);
void report_soon(struct worker *w);

/* worker_show.c */
uint64_t total(size_t field);                /* of a uint64_t in struct worker, over all */
void show(void);                             /* the line of JSON */

#endif
