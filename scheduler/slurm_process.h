/* slurm_process.h - one process of the Slurm helper: asked one thing at a time, each with a deadline; killed and started anew when it does not keep it
 *
 * From: slurm_link.c.  To: sluice-slurm (slurm_serve.c), over a socket pair.
 * Every question is answered exactly once: by the helper, or by why it could not be. Nothing here waits.
 */
#ifndef SLUICE_SLURM_PROCESS_H
#define SLUICE_SLURM_PROCESS_H

#include <ev.h>
#include <stdbool.h>
#include "frame.h"

struct slurm_process;

struct slurm_process_conf {
    const char *name;                    /* poll, act: its argument, and how it is called in messages */
    const char *program, *slurm_conf;    /* slurm_conf NULL: where libslurm looks */
    double timeout_s;
    /* m NULL: not answered, why says it. An answer of type ERROR comes as why and word. May ask again. */
    void (*answered)(void *arg, const ProtobufCMessage *m, const struct err *why, const char *word);
    void (*ready)(void *arg);            /* it may be asked (again) */
    void *arg;
};

struct slurm_process *slurm_process_create(struct ev_loop *loop, const struct slurm_process_conf *conf);
void slurm_process_destroy(struct slurm_process *p);             /* a question under way is not answered any more; waits at most 1 s for ended processes */
bool slurm_process_is_free(const struct slurm_process *p);       /* it runs, and no question is under way */
void slurm_process_ask(struct slurm_process *p, const ProtobufCMessage *m, unsigned answer);      /* only when free; answer: type of what may come back */
const struct err *slurm_process_down(const struct slurm_process *p);      /* why none runs now; NULL: one does, or is started for the first time */
unsigned slurm_process_starts(const struct slurm_process *p);    /* how often it was started */

#endif
