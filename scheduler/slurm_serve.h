/* slurm_serve.h - the helper's side of the link: frames on a socket, one question after the other
 *
 * From: sluiced (slurm_process.c).  To: whoever knows Slurm: slurm_helper.c, or a test's.
 */
#ifndef SLUICE_SLURM_SERVE_H
#define SLUICE_SLURM_SERVE_H

#include "frame.h"

/* Both fill out, whose parts are freed by protobuf_c_message_free_unpacked: every part is from malloc. -1: e says why, *word may get a stable code. */
struct slurm_backend {
    int (*poll)(const Sluice__SlurmPoll *q, Sluice__SlurmState *out, struct err *e, const char **word);
    int (*act)(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e, const char **word);
};

/* Answers on fd until the other side closes it: 0, or breaks the protocol: -1. */
int slurm_serve(int fd, const struct slurm_backend *backend, struct err *e);

#endif
