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

struct nice { bool is_set; int level; };       /* a level that was set by a person */

struct sluiced {
    struct ev_loop  *loop;
    struct conf     *conf;          /* replaced whole by a reload */
    struct rights   *rights;        /* rights.h: who may do what, from the roles of conf */
    struct start    *start;         /* what the command line said; wins over the file, at a reload too */
    uint64_t         epoch;         /* number of this start */
    int64_t          started;       /* wall ns */
    struct names    *names;
    struct writer   *writer;
    struct counters *counters;      /* counters.h: what happened, by name */
    struct helper   *helper;        /* helper.h: threads for what takes long: backup, old history, reload */
    struct history  *history;       /* events.h: lines of history, numbered, the newest in memory */
    struct watches  *watches;       /* watch.h: who waits for the next line */
    struct farm     *farm;          /* node.h: the nodes */
    struct marks    *marks;         /* mark.h: numbers, expiry */
    struct health   *health;        /* health.h: automatic marks, their brake */
    struct moves    *moves;         /* move.h */
    struct slurm    *slurm;         /* slurm_farm.h: the Slurm beside us */
    struct shms     *shms;          /* shm.h: sizes of the buffers */
    struct nice      nice[2];       /* nice.h: of the pools, as people set it */
    struct runs     *runs;          /* run.h: runs and their TFs */
    struct jobs     *jobs;          /* job.h: async work */
    struct flow     *flow;          /* flow.h: the ledger, and who gets what */
    struct sessions *sessions;      /* session.h: who is connected */
    struct show     *show;          /* show.h: questions on their way to workers */
    struct hook     *hook;          /* hook.h: who is called about alarms */
    bool             stopping;      /* connections are being closed by us: nothing new is given out */
    char             reload_why[512]; int64_t reload_failed;      /* why the last reload was refused, and when; 0 = it was not */
};

/* The command line of sluiced. NULL: as the file says. */
struct start { const char *config, *state_dir, *socket, *listen; };

/* Starts every part in order, or none: state loaded, listening when it returns. */
int  sluiced_start(struct sluiced *d, struct ev_loop *loop, const struct start *start, struct err *e);
/* Ends them backwards, within limit_s. Returns the number of changes that did not get to the disk. */
unsigned sluiced_stop(struct sluiced *d, double limit_s);
/* Reads the configuration of start with the command line put over it, and checks what sluiced alone can check. */
struct conf *sluiced_conf(const struct start *start, struct err *e);
/* Takes the file again: in a helper thread, then all of it or nothing. */
void sluiced_reload(struct sluiced *d);

#endif
