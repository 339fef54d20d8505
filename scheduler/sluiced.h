/* sluiced.h - the parts of the daemon, created in the order they stand here, ended backwards (main.c)
 *
 * One loop thread owns all of it; the writer thread and the name thread own nothing here. Each part keeps its own struct private unless
 * its header opens it.
 */
#ifndef SLUICE_SLUICED_H
#define SLUICE_SLUICED_H

#include <ev.h>
#include "conf.h"
#include "names.h"
#include "peer.h"
#include "writer.h"

struct sluiced {
    struct ev_loop  *loop;
    struct conf     *conf;          /* replaced whole by a reload */
    uint64_t         epoch;         /* number of this start */
    int64_t          started;       /* wall ns */
    struct names    *names;
    struct writer   *writer;
    struct counters *counters;      /* counters.h: what happened, by name */
    struct history  *history;       /* events.h: lines of history, numbered, the newest in memory */
    struct farm     *farm;          /* node.h: the nodes */
    struct moves    *moves;         /* move.h */
    struct runs     *runs;          /* run.h: runs and their TFs */
    struct jobs     *jobs;          /* job.h: async work */
    struct flow     *flow;          /* flow.h: the ledger, and who gets what */
    struct sessions *sessions;      /* session.h: who is connected */
};

#endif
