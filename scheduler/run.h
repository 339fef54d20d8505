/* run.h - a run as the files that make it up see it: run.c (start, stop, end, lists), source.c (its sources, TFs coming together), samples.c
 *
 * Counts: announced = done + failed + dropped + lost + TFs in the work's table, at every instant.
 */
#ifndef SLUICE_RUN_H
#define SLUICE_RUN_H

#include "alarm.h"
#include "flow_core.h"
#include "idset.h"
#include "ran.h"

#define RUN_DATA_TIMEOUT 60.0            /* s, when StopRun names none */
enum { RUN_MAX_SOURCES = 4096 };

struct event;

/* One place of a run: the source that announces part number `part` of each TF. */
struct source {
    struct run *run;
    unsigned part;
    struct session *session;             /* NULL: none connected */
    char    *name, *address;
    char    *incarnation;                /* as text, to tell a restart from a new connection */
    uint64_t connection;
    uint64_t generation;                 /* grows with each connection: parts of an older one are to be announced again */
    bool     holds, ended;               /* ended: EndOfStream */
    uint64_t watermark, skipped;
    double   gone_since;                 /* flow time, 0: connected, or never was */
    bool     given_up;                   /* gone for longer than the grace: not waited for */
    uint32_t window;                     /* as last told */
    struct idset release;                /* only for this one: it announced what is settled */
};

struct part { uint64_t size; uint64_t generation; bool have; };

/* The part of a TF that a run's TF has and a task has not. */
struct run_tf {
    unsigned n_have, n_passed;           /* sources that announced it; that will not */
    bool incomplete, released, has_orbit, mismatch;
    bool adopted;                        /* a worker had it before our start: its bytes are known, its parts not yet */
    uint32_t first_orbit;
    struct part part[];                  /* one a source */
};

struct share { UT_hash_handle hh; char node[64], class[64]; uint64_t done, in_flight, samples, high; double fill; unsigned place; };    /* place: its name's in samples.c, from 1 on */

/* A settled TF as it is listed. Words come from a table of the run; text is its own, NULL for most. */
struct settled { uint64_t id, bytes; double seconds; char *text; char digest[17]; uint16_t node, device, reason, stages; uint8_t outcome; uint8_t incomplete; uint32_t attempt; };
enum { SETTLED_KEPT = 65536 };
struct run_word { UT_hash_handle hh; char *text; uint16_t number; };

struct samples;

struct run {
    struct work work;                    /* first: a work of this kind is a run */
    TAILQ_ENTRY(run) entry;
    struct runs *runs;
    Sluice__RunState state;
    char    *owner, *keep_word, *text;
    char    *stop_reason;                /* as StopRun gave it; NULL: none */
    bool     until_done, drop_incomplete;
    uint32_t min_nodes, in_flight_asked;
    uint64_t tf_size;                    /* the largest said or seen */
    int64_t  started, ended;             /* wall */

    unsigned n_sources;
    struct source *source;
    unsigned connected, n_ended;
    uint64_t announced, done, failed, lost, incomplete, bytes_done, late_parts;
    struct tally *dropped;
    struct ran *ran;                     /* which backend its TFs ran on */
    struct idset settled;
    struct idset release;                /* to be let go by all sources */
    bool     restored;                   /* from before our start */
    uint64_t owed;                       /* then: were in flight, and not all of them may be spoken of again */
    uint64_t unheard;                    /* of those, not yet heard of since our start; waited for within the grace */
    double   restored_at;                /* flow time */

    double   stop_at, cut_at;            /* flow time: data that is not there is given up; everything is. 0: not stopping */
    struct stop_ask { struct session_ref ref; struct stop_ask *next; } *asks;

    struct share *shares;
    struct samples *samples;
    struct settled *ring;                /* the newest SETTLED_KEPT */
    size_t  ring_at, ring_n, ring_cap;
    struct run_word *words;              /* names of nodes, devices, reasons and stages' texts in the ring, */
    char  **word;                        /* by number; 0: none */
    uint16_t n_words;
    bool     alarmed;
    bool     in_progress;                /* run_progress is at work */
    bool     stored, stored_over;        /* it is on disk; its end is */
    unsigned changes;                    /* on their way to the disk */
    double   settled_since;              /* flow time: nothing but results to publish; 0: more */
    double   full_since;                 /* flow time; 0: not full */
    double   failed_at;                  /* flow time of the last TF that failed; 0: none since our start */
};

TAILQ_HEAD(run_list, run);
struct runs {
    struct sluiced *d;
    struct flow *flow;
    struct run_list open, over;          /* over: the newest RUNS_KEPT */
    unsigned n_over;
    uint64_t last_id;
    ev_timer release_timer;
    bool     releases;                   /* there is something to be let go */
    double   sample_at, second_at;       /* flow time of the next ones */
    struct wait_ask *waits;
};
enum { RUNS_KEPT = 1000, RUNS_DETAILED = 16 };

static inline struct run *run_of(struct work *w) { return (struct run *)w; }
extern const struct work_ops run_ops;
extern const char *const run_state_name[6];

struct run *run_find(struct runs *r, uint64_t id, bool over);
void run_turn(struct runs *r);                   /* once a turn: releases, windows */
void run_tick(struct runs *r, double now);       /* every tick: states, deadlines of stops, samples */
uint64_t run_in_flight(const struct run *r);
/* A TF that a worker holds and nobody announced since our start. NULL: it is settled already. */
struct tf *run_adopt(struct work *w, uint64_t id, uint64_t bytes);
void run_progress(struct run *r);                /* perhaps it is ready, running, or over */
void run_drop(struct tf *t, enum outcome outcome, const char *reason, const char *text);
void run_release(struct run *r, uint64_t id);
/* A TF that never became one: announced and settled at once. */
void run_drop_unborn(struct run *r, uint64_t id, enum outcome outcome, const char *reason);
struct share *run_share(struct run *r, const char *node);
#define RUN_STALLED 10.0                         /* s of a full run without anything coming back: an alarm */
double run_stalled(const struct run *r, double now);         /* s of being full without anything coming back */
/* The folder asked for, or the default. NULL: refused. The caller frees. */
char *run_output(const struct conf *conf, const char *workflow, const char *asked, struct err *e);
void run_answer_asks(struct run *r);
/* A new one, among the open ones, paused. */
struct run *run_create(struct runs *runs, uint64_t id, unsigned sources);
void run_destroy(struct run *r);                 /* out of its lists already */
void run_retire(struct run *r);                  /* among those that are over */
/* Stores its row as it is now, with a line of history (may be NULL); then is called after the commit. */
void run_put(struct run *r, enum change_kind kind, struct event *ev, void (*then)(struct run *, int, const struct err *, void *), void *arg);
/* Counts one that is settled: in the totals, in its node's share, in the list. */
void run_count_settled(struct run *r, uint64_t id, enum outcome outcome, const char *reason, const char *text, const char *node, const char *device,
                       const char *digest, const char *stages, double seconds, uint64_t bytes, bool incomplete, uint32_t attempt);
/* Of a stored "WORD: TEXT": word gets the word; the text comes back, NULL when there is none. */
const char *run_reason_split(const char *reason, char word[64]);
/* The number of word among n; NULL and "" leave *value. -1: e names the choices. */
int  run_parse_word(const char *what, const char *word, const char *const *words, int n, int *value, struct err *e);
/* Releases what waits to be sent together. */
void run_release_cb(struct ev_loop *loop, ev_timer *w, int revents);
void run_answer(struct run *r, struct session *s, uint32_t id);      /* Runs with this one */
void run_each_check(struct runs *r, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg);
void run_alarms(struct runs *r, alarm_fn fn, void *arg);

/* runrows.c: answers GetRunTfs from the database, later. */
void run_tfs_stored(struct session *s, uint32_t id, uint64_t run, uint64_t from, size_t cap);

/* source.c */
void source_tf_due(struct tf *t);
bool source_tf_available(struct tf *t);
void source_free_parts(struct tf *t);
void source_detach(struct run *r);               /* the run is over: sources' sessions forget it */
/* After our start: a source that was there before has not come back, and still has its time. */
bool source_awaits_return(const struct run *r);
void source_flush(struct runs *r);               /* Release and Window to those for whom there is something */
void source_tick(struct run *r, double now);
uint32_t source_window(const struct run *r);
void source_stop(struct run *r, double data_timeout);

/* samples.c: fill of the nodes' buffers as the ledger has it, ten times a second while a run is on */
struct samples *samples_create(void);
void samples_destroy(struct samples *s);
void samples_take(struct run *r, double time);
void samples_answer(struct run *r, struct session *s, uint32_t id);

#endif
