/* flow_double.c - the other half of sluiced for tests of the farm half: takes every call, counts it, does nothing
 *
 * All weak: a test that wants one of them to do something writes its own.
 */
#include "config.h"

#include "flow_double.h"

#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "nice.h"

#define WEAK __attribute__((weak))

struct flow_double flow_double;

WEAK struct flow *flow_create(struct sluiced *d) { (void)d; return mem_zalloc(1); }
WEAK void flow_destroy(struct flow *f) { free(f); }
WEAK struct runs *runs_create(struct sluiced *d, struct db *db, struct err *e) { (void)d; (void)db; (void)e; return mem_zalloc(1); }
WEAK void runs_destroy(struct runs *r) { free(r); }
WEAK struct jobs *jobs_create(struct sluiced *d, struct db *db, struct err *e) { (void)d; (void)db; (void)e; return mem_zalloc(1); }
WEAK void jobs_destroy(struct jobs *j) { free(j); }
WEAK void jobs_stop(struct jobs *j) { (void)j; }

WEAK void flow_worker_registered(struct node *n, const Sluice__Register *r, Sluice__Registered *out)
{
    (void)n;
    (void)r;
    (void)out;
    flow_double.registered++;
}

WEAK void flow_registered_free(Sluice__Registered *out) { (void)out; }
WEAK void flow_worker_disconnected(struct node *n) { (void)n; flow_double.disconnected++; }

WEAK void flow_worker_replaced(struct node *n, const char *why)
{
    (void)why;
    flow_double.lost++;
    n->n_tfs = 0;
}

WEAK void flow_worker_lost(struct node *n, const char *why)
{
    (void)why;
    flow_double.lost++;
    n->n_tfs = 0;
}

WEAK void flow_node_changed(struct node *n) { (void)n; flow_double.changed++; }
WEAK void flow_report(struct node *n, const Sluice__Report *r) { (void)n; (void)r; flow_double.reports++; }
WEAK double flow_cooling_s(const struct node *n) { (void)n; return 0; }
WEAK void flow_evict(struct node *n, const char *why) { (void)n; (void)why; flow_double.evicted++; }
WEAK void able_configured(struct flow *f) { (void)f; }
WEAK const struct ran *flow_ran(const struct flow *f) { (void)f; return NULL; }
WEAK void flow_check(struct flow *f, void (*line)(void *arg, const char *name, bool ok, const char *text), void *arg) { (void)f; (void)line; (void)arg; }

WEAK void flow_alarms(struct flow *f, alarm_fn fn, void *arg)
{
    (void)f;
    (void)fn;
    (void)arg;
}

#define HANDLER(name) WEAK void name(struct session *s, uint32_t id, const void *m) { (void)m; flow_double.messages++; session_ok(s, id); }
HANDLER(flow_refused) HANDLER(flow_built) HANDLER(flow_done) HANDLER(flow_failed) HANDLER(flow_published)
HANDLER(run_start) HANDLER(run_stop) HANDLER(run_list) HANDLER(run_tfs) HANDLER(run_samples) HANDLER(run_source) HANDLER(run_announce)
HANDLER(run_end_of_stream) HANDLER(job_submit) HANDLER(job_list) HANDLER(job_tasks) HANDLER(job_cancel) HANDLER(job_hold) HANDLER(job_release) HANDLER(job_rerun) HANDLER(flow_wait)
HANDLER(crash_list) HANDLER(crash_purge) HANDLER(job_tries) HANDLER(why_ask) HANDLER(outcheck_answer)
HANDLER(job_submit_files)

WEAK void run_source_gone(struct session *s) { (void)s; }
WEAK void job_unstage(struct session *s) { (void)s; }
WEAK void run_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Run ***runs, size_t *n) { (void)d; (void)all; (void)id; *runs = NULL; *n = 0; }
WEAK void run_fill_free(Sluice__Run **runs, size_t n) { (void)runs; (void)n; }
WEAK void job_fill(struct sluiced *d, bool all, uint64_t id, Sluice__Job ***jobs, size_t *n) { (void)d; (void)all; (void)id; *jobs = NULL; *n = 0; }
WEAK void job_fill_free(Sluice__Job **jobs, size_t n) { (void)jobs; (void)n; }

WEAK void nice_tell_works(struct sluiced *d, int pool) { (void)d; (void)pool; }
WEAK int nice_set_work(struct session *s, uint32_t id, const Sluice__SetNice *q, struct err *e) { (void)q; (void)e; session_ok(s, id); return 0; }

WEAK const char *run_name(struct sluiced *d, uint64_t id) { (void)d, (void)id; return "physics"; }
WEAK unsigned job_count_full(struct sluiced *d, uint64_t *first, const char **why)
{
    (void)d;
    (void)first;
    (void)why;
    return 0;
}

WEAK unsigned job_count_stuck(struct sluiced *d, int pool, uint64_t *first, char why[160])
{
    (void)d;
    (void)pool;
    (void)first;
    (void)why;
    return 0;
}

WEAK uint64_t job_wants_nodes(struct sluiced *d, const char *class, uint64_t *first)
{
    (void)d;
    (void)class;
    *first = 4;
    return flow_double.tasks;
}

WEAK bool run_uses_pool(struct sluiced *d, int pool, unsigned *min_nodes, uint64_t *run)
{
    (void)d;
    if (pool != POOL_ONLINE || flow_double.run_min_nodes == 0)
        return false;
    *min_nodes = flow_double.run_min_nodes;
    *run = 7;
    return true;
}
