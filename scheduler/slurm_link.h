/* slurm_link.h - what sluiced asks of Slurm, through two processes of the helper: one looks, one acts
 *
 * From: slurm_farm.c.  To: slurm_process.c.
 * A slow command does not keep the looks waiting. Commands wait here in order, whatever happens to the helper; each is answered once. Every command may be repeated: it does
 * no more than what is not done yet. Nothing here waits, and nothing that Slurm or the helper says can be trusted to make sense: the caller judges it.
 */
#ifndef SLUICE_SLURM_LINK_H
#define SLUICE_SLURM_LINK_H

#include <ev.h>
#include <stdbool.h>
#include "frame.h"

struct slurm_link;

struct slurm_link_conf {
    const char *program, *slurm_conf;
    double timeout_s;
    void (*state)(void *arg, const Sluice__SlurmState *s, int64_t asked);     /* asked: monotonic ns; what it says was so after that */
    void (*failed)(void *arg, const struct err *why);                         /* a look failed */
    void *arg;
};
/* d NULL: why says why not. */
typedef void (*slurm_done)(void *arg, const Sluice__SlurmDone *d, const struct err *why);

struct slurm_link *slurm_link_create(struct ev_loop *loop, const struct slurm_link_conf *conf);
void slurm_link_destroy(struct slurm_link *l);              /* commands under way are not answered any more */
/* Looks at these nodes (a host list) unless a look is under way. */
void slurm_link_poll(struct slurm_link *l, const char *names, bool leases);
void slurm_link_whole(struct slurm_link *l);                  /* the next look takes everything, also what has not changed */
void slurm_link_do(struct slurm_link *l, const Sluice__SlurmDo *m, slurm_done done, void *arg);      /* m is copied */
unsigned slurm_link_waiting(const struct slurm_link *l);    /* commands not answered yet */
unsigned slurm_link_starts(const struct slurm_link *l);     /* of helper processes */

#endif
