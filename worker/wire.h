/* wire.h - frames over a blocking socket, for a program that does one thing at a time: the reconstruction process
 *
 * The same frames as chan.h (proto/frame.h). Descriptors come with the first byte of the frame that they belong to.
 */
#ifndef SLUICE_WIRE_H
#define SLUICE_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include "err.h"
#include "frame.h"

struct wire { int fd; };

struct wire_message {
    unsigned type;
    uint32_t id;
    ProtobufCMessage *m;
    int      fds[FRAME_MAX_FDS];
    unsigned n_fds;
};

/* Waits for the next message; heartbeats are answered and passed over. 1: there it is, for wire_free; 0: the peer closed; -1: e. */
int  wire_read(struct wire *w, struct wire_message *out, struct err *e);
void wire_free(struct wire_message *m);          /* closes the descriptors that are not -1 */
int  wire_send(struct wire *w, uint32_t id, const ProtobufCMessage *m, const int *fds, unsigned n_fds, struct err *e);
/* Whether something can be read, waiting at most until this time (monotonic ns). The end of the peer counts. */
int  wire_poll(struct wire *w, int64_t until_ns);

#endif
