/* replay.h - files -> memory -> pace -> sources: plays time-frames (TFs) as if a detector sent them
 *
 * S sources in one process, each with its part of every TF. TF numbers are consecutive from 1 over all passes. Everything but reading happens
 * on the loop.
 */
#ifndef SLUICE_REPLAY_H
#define SLUICE_REPLAY_H

#include <ev.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"
#include "names.h"

struct replay;

struct replay_conf {
    struct ev_loop *loop;
    struct names   *names;           /* NULL: Unix sockets only */
    const char *server, *method;
    const char *listen;              /* NULL: a socket of its own beside that of sluiced */
    const char *name;                /* of the sources; "-0", "-1", … are added. NULL: replay-PID */
    uint64_t    run;
    char *const *paths; size_t n_paths;
    double      rate;                /* TFs a second; 0: max */
    uint64_t    loops;
    unsigned    preread, threads, sources;
    uint64_t    memory;              /* bytes; 0: half of what is available here */
    uint64_t    max_bad;             /* files; UINT64_MAX: any number */
    int         verify;
    double      lost_s, first_s;     /* see source.h */
};

/* Why the head of the stream does not move, when it is due. */
enum replay_wait { REPLAY_NO_WAIT, REPLAY_WAIT_INPUT, REPLAY_WAIT_BUFFER, REPLAY_WAIT_WORKERS, REPLAY_WAITS };

struct replay_numbers {
    uint64_t announced, released, total;         /* TFs; total: in all passes */
    uint64_t bytes, read_bytes;                  /* announced; read from files */
    double   seconds;                            /* from the first TF until all was over */
    double   wait[REPLAY_WAITS];                 /* s */
    /* TFs a second. wanted 0 is max. Offered: those that went out, from the first to the last, NaN below two. Achieved: those let go, by `seconds`, NaN at none. */
    double   rate_wanted, rate_offered, rate_achieved;
    uint64_t skipped;                            /* files */
    uint64_t reconnects, pulls, stale, turned_away, memory, passes;
    unsigned sources;
    uint64_t largest;                            /* TF, bytes */
};

/* Scans the files; blocks. Bad ones are logged, each once. NULL (e): none can be played (ERR_NOT_FOUND when none exists), more bad ones than
 * max_bad, or the memory does not hold the largest TF. */
struct replay *replay_create(const struct replay_conf *conf, struct err *e);
/* Registers the sources, listens, starts reading; ended is called once when all is over. e->code ERR_NONE: every TF was announced and released. */
int    replay_start(struct replay *r, void (*ready)(void *arg), void (*ended)(void *arg, const struct err *why), void *arg, struct err *e);
/* No new TFs; ends when all are released, or limit_s later. */
void   replay_stop(struct replay *r, const char *reason, double limit_s);
void   replay_numbers(const struct replay *r, struct replay_numbers *n);
size_t replay_bad_count(const struct replay *r);
void   replay_bad(const struct replay *r, size_t i, const char **path, uint64_t *offset, const char **text, uint64_t *tfs);
/* -1: a reader hangs in a read; nothing was freed, the process must end now. */
int    replay_destroy(struct replay *r);

#endif
