/* settle.h - the end of an attempt and the end of a TF
 *
 * A record is a settled TF until it is on disk and, when it has results, published. A TF is counted as settled at once; its worker and its sources hear
 * of it after the commit.
 */
#ifndef SLUICE_SETTLE_H
#define SLUICE_SETTLE_H

#include "tf.h"

struct record_key { uint64_t is_job, work, tf; };
struct record {
    UT_hash_handle hh;
    struct record_key key;
    struct work *work;
    struct fence fence;
    enum outcome outcome;
    char  *reason, *text, *node, *device, *digest, *stem, *stages, *log;
    double seconds;
    unsigned tries;              /* that failed before it */
    uint64_t bytes;
    int64_t time;
    bool   incomplete;
    bool   publish;              /* there is something to publish */
    bool   stored, published;
    bool   writing;              /* the writer reads it now */
    bool   released;             /* of a run: the sources were told to let go */
    double away_since, ask_at;   /* publish.c: flow time; 0: its node is in contact */
    unsigned asked;              /* other nodes that were */
};

/* record.c */
struct record *record_create(struct tf *t, const struct end *end, bool incomplete);
struct record *record_find(struct flow *f, bool is_job, uint64_t work, uint64_t tf);
void record_store(struct record *r);      /* (again), with its work's totals */
/* Stored: the worker is told; a record with nothing to publish is done with. */
void record_stored(struct record *r);
struct record *record_restore(struct work *w, uint64_t tf, struct fence fence, const char *node, const char *device, const char *digest, const char *stem, const char *stages,
                              double seconds, uint64_t bytes, bool incomplete, int64_t time);
void record_free(struct record *r);
void record_verdict(struct record *r);   /* accepted, to its node, if it is in contact */
void record_verdict_to(struct record *r, struct fnode *another);         /* who is to publish it for that node */
/* Not accepted: its worker lets it go. */
void verdict_reject(struct node *n, const struct charge_key *key);
void settle_redo(struct flow *f);        /* verdicts for nodes that registered again */

/* run.c and job.c */
void run_store_record(struct record *r);
void job_store_record(struct record *r);
/* r was counted as done, and has failed since: its result could not be published. */
void run_unpublished(struct record *r);
void job_unpublished(struct record *r);
/* Another try instead, while there are any left and the job is on: r is gone then. */
bool job_publishes_again(struct record *r, const char *word, const char *text);
void job_may_have_left(struct jobs *jobs, uint64_t id);  /* a worker went that had a try of it: half a result may lie in its folder */
/* A try at a job's TF that came to nothing while another one is under way, or will be. */
void job_store_try(struct tf *t, struct fence at, const char *node, const struct tried *how);

/* publish.c */
void publish_tick(struct flow *f);
/* What `by` says of publishing it (why NULL: it is done). true: it is another one than its node, who could not: nothing follows. */
bool publish_answered(struct record *r, const struct node *by, const char *why);

/* settle.c */
/* There is no result, so it is not done: it is tried again, and r is gone (false), or has failed. */
bool record_not_published(struct record *r, const char *word, const char *text);
/* An attempt failed (or was given up): to another node, or settled. charge is returned before. */
void attempt_failed(struct tf *t, const char *node, const char *device, const char *word, const char *text);
/* One of two tries ended before the other one: it stands among the tries of its TF. */
void settle_lost_try(struct tf *t, const struct charge *c, const char *word, const char *text);
/* Whether a node could take t that has not had it. */
bool settle_somebody_else(const struct tf *t);
void tf_avoid(struct tf *t, struct account *a);          /* not to that one again, while others can take it */
void tf_note_death(struct tf *t, const char *node);      /* a process died there, perhaps of t */
/* Back into the queue, after a pause if there is one, if its data can still be had. */
void tf_requeue(struct tf *t, double pause);

/* reconcile.c */
/* Everything charged to n goes elsewhere or is lost. died: its worker did, perhaps of one of those that were complete there. */
void settle_lost(struct flow *f, struct fnode *n, const char *word, const char *text, bool died);
/* The tasks of that job are in memory now: what workers said meanwhile that they hold of it becomes its own, or is given up. */
void settle_adopt(struct work *w);

#endif
