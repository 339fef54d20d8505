/* flow.h - the ledger and the way of a TF: waiting -> assigned -> built -> done | failed | lost | dropped
 *
 * From: run.c (complete TFs), task.c (tasks), node_register.c and farm.c (workers come and go), the workers' answers.  To: workers (Assign, Verdict, Cancel), run.c and job.c
 * (settled), sources (Release, by run.c).
 * The only account of who has what: an Assign charges its fence until a final answer to that very fence. Files: ledger.c, assign.c, settle.c.
 */
#ifndef SLUICE_FLOW_H
#define SLUICE_FLOW_H

#include "alarm.h"
#include "node.h"

struct ran;
struct flow *flow_create(struct sluiced *d);
void flow_destroy(struct flow *f);

/* A worker registered (again): reconciles what it holds with the ledger; fills out->forget with heap strings/messages that
 * flow_registered_free gives back. Called before Registered is sent. */
void flow_worker_registered(struct node *n, const Sluice__Register *r, Sluice__Registered *out);
void flow_registered_free(Sluice__Registered *out);
/* The connection is gone: nothing is given to it; what it holds waits for its return until contact is judged lost. */
void flow_worker_disconnected(struct node *n);
/* Contact is lost for good (time-out, other incarnation, retired): every TF it holds goes elsewhere or is lost. */
void flow_worker_lost(struct node *n, const char *why);
/* The same of one whose process is known to have ended: what was complete there may have ended it, and counts a death for each TF of a job. */
void flow_worker_replaced(struct node *n, const char *why);
/* usable, pool, devices, buffer size or speed may have changed. */
void flow_node_changed(struct node *n);
/* A new report: keeps load up to date, audits the ledger against it. */
void flow_report(struct node *n, const Sluice__Report *r);
/* For how long n is passed over yet after failures or refusals, s. */
double flow_cooling_s(const struct node *n);
/* Takes back what runs on n: cancel and give it to others (move --when now, hand-over). */
void flow_evict(struct node *n, const char *why);

/* The configuration was read again: able.c. */
void able_configured(struct flow *f);

/* Handlers of a worker's answers, for session.c's table. */
void flow_refused(struct session *s, uint32_t id, const void *m);
void flow_built(struct session *s, uint32_t id, const void *m);
void flow_done(struct session *s, uint32_t id, const void *m);
void flow_failed(struct session *s, uint32_t id, const void *m);
void flow_published(struct session *s, uint32_t id, const void *m);

/* Which backend stages ran on, since our start. Borrowed. */
const struct ran *flow_ran(const struct flow *f);
/* For `sluice check`: each invariant with its figures. */
void flow_check(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg);
/* For alarms in status: e.g. a run that is full and gets nothing back, a lasting difference between ledger and reports. */
void flow_alarms(struct flow *f, alarm_fn fn, void *arg);

/* runs and jobs: handlers for session.c's table. */
void run_start(struct session *s, uint32_t id, const void *m);
void run_stop(struct session *s, uint32_t id, const void *m);
void run_list(struct session *s, uint32_t id, const void *m);
void run_tfs(struct session *s, uint32_t id, const void *m);
void run_samples(struct session *s, uint32_t id, const void *m);
void run_source(struct session *s, uint32_t id, const void *m);          /* SOURCE */
void run_announce(struct session *s, uint32_t id, const void *m);
void run_end_of_stream(struct session *s, uint32_t id, const void *m);
void run_source_gone(struct session *s);                                 /* its connection closed */
void job_submit(struct session *s, uint32_t id, const void *m);
void job_list(struct session *s, uint32_t id, const void *m);
void job_tasks(struct session *s, uint32_t id, const void *m);
void job_tries(struct session *s, uint32_t id, const void *m);           /* tries.c */
void why_ask(struct session *s, uint32_t id, const void *m);             /* why.c */
void outcheck_answer(struct session *s, uint32_t id, const void *m);     /* outcheck.c */
/* Whether the tasks of that job are not in memory yet; and, of a worker's answer about it, keeps it until they are: true. */
bool jobs_is_loading(const struct jobs *j, uint64_t id);
bool jobs_put_off(struct session *s, uint32_t id, const Sluice__Tf *tf, const ProtobufCMessage *m, void (*handler)(struct session *s, uint32_t id, const void *m));
void job_submit_files(struct session *s, uint32_t id, const void *m);    /* jobstage.c: the files of a job that will be submitted, some at a time */
void job_unstage(struct session *s);                                     /* its connection closes */
void job_cancel(struct session *s, uint32_t id, const void *m);
void job_hold(struct session *s, uint32_t id, const void *m);
void job_release(struct session *s, uint32_t id, const void *m);
void job_rerun(struct session *s, uint32_t id, const void *m);
void flow_wait(struct session *s, uint32_t id, const void *m);           /* WAIT for run and job; move goes to move_wait of move.h */
void crash_list(struct session *s, uint32_t id, const void *m);
void crash_purge(struct session *s, uint32_t id, const void *m);

/* Status' lists of open runs and jobs. */
void run_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Run ***runs, size_t *n);   /* freed by run_fill_free */
void run_fill_free(Sluice__Run **runs, size_t n);
void job_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Job ***jobs, size_t *n);
void job_fill_free(Sluice__Job **jobs, size_t n);
const char *run_name(struct sluiced *d, uint64_t id);      /* of an open run; "" when it has none */
/* How many jobs are on that no node of the pool can take as things are; then the first of them and why: a code, with figures where they say what to do. */
unsigned job_count_full(struct sluiced *d, uint64_t *first, const char **why);         /* that pause because their disk is full */
unsigned job_count_stuck(struct sluiced *d, int pool, uint64_t *first, char why[160]);
/* Tasks that wait or run, of jobs that may give out more to nodes of this class (NULL: any). first: the job that wants it most. */
uint64_t job_wants_nodes(struct sluiced *d, const char *class, uint64_t *first);
bool run_uses_pool(struct sluiced *d, int pool, unsigned *min_nodes, uint64_t *run);        /* a run is on: its minimum of nodes */

/* restore.c calls these once, in this order, before anything listens. */
struct runs *runs_create(struct sluiced *d, struct db *db, struct err *e);
void runs_destroy(struct runs *r);
struct jobs *jobs_create(struct sluiced *d, struct db *db, struct err *e);
void jobs_stop(struct jobs *j);          /* the writer is about to end: it gets what waits for it */
void jobs_destroy(struct jobs *j);
#endif
