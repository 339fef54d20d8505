/* worker.h - the node's daemon: what its modules share
 *
 * One loop owns everything here. Threads see only the task that they were handed (pool.h).
 */
#ifndef SLUICE_WORKER_H
#define SLUICE_WORKER_H

#include <ev.h>
#include <stdbool.h>
#include "buffer.h"
#include "conf.h"
#include "held.h"
#include "names.h"
#include "place.h"
#include "pool.h"
#include "priority.h"

struct worker {
    struct ev_loop *loop;
    struct names   *names;
    const struct conf *conf;
    const struct conf_class *class;
    const char *node, *server, *run_dir, *shm_dir, *crash_dir, *reco, *method;
    uint64_t    shm_size;                        /* as last told: by the configuration, then by sluiced */
    char        farm[20];                        /* tells farms on one machine apart: from the run folder's path */
    bool        fail_on_loss;

    struct priority priority;
    struct pool *io;                             /* reads and checksums */
    struct pool *out;                            /* delivery: a full or hanging disk there must not stop intake */
    struct pool *slow;                           /* status file, crash folders, records */
    struct buffer  *buffer;
    struct resize  *resize;
    struct works    works;
    struct held_table held;
    struct fences  *fences;
    struct intake  *intake;
    struct topology *topology;
    struct gpus    *gpus;
    struct devices *devices;
    struct checks  *checks;
    struct deliver *deliver;
    struct report  *report;
    struct link    *link;
    struct watch   *watch;

    void   (*stop)(struct worker *w, int status);
    bool     stopping;
    int64_t  stalled_ns;                         /* how long the loop stood still in all (a stopped process, a frozen machine) */
    uint64_t refused, stale, restarts;
    int      nice_wanted;
    char     pool_name[32];
};

/* Monotonic, without the time in which we stood still ourselves: deadlines of others are judged by it. */
int64_t worker_now(const struct worker *w);
/* Something that reports show has changed. */
void worker_changed(struct worker *w);
/* Text from elsewhere as it may stand in a message: UTF-8, cut to size where a letter ends. Escaped it is only where people see it. */
void worker_text(char *out, size_t size, const char *text);
/* Ends the program in order, with this status. */
void worker_stop(struct worker *w, int status);

#endif
