/* call.h - one question to sluiced, one answer */
#ifndef SLUICE_CALL_H
#define SLUICE_CALL_H

#include "command.h"
#include "frame.h"

/* Where sluiced listens: --socket or --server, SLUICE_SOCKET, the farm in this folder or a parent, /run/sluice/sluiced.sock. Belongs to ctx. */
const char *call_address(struct context *ctx);

enum { CALL_LIMIT_S = 60 };
/* Asks and waits for an answer of type `want`, at most limit_s (0: as long as the connection lives). The message is the caller's
 * (protobuf_c_message_free_unpacked). NULL: e has what sluiced said, or why it could not be asked. */
void *call(struct context *ctx, const ProtobufCMessage *question, Sluice__Type want, double limit_s, struct err *e);
/* Several messages over one connection: each but the last is answered by Ok before the next is asked for. next: the i-th, NULL after the last; it belongs to the
 * caller and lives until the next call. Begun anew when sluiced is busy. */
void *call_series(struct context *ctx, const ProtobufCMessage *(*next)(void *arg, size_t i), void *arg, Sluice__Type want, double limit_s, struct err *e);
/* The same for waits: a sluiced that restarts meanwhile, or that was killed and left its socket, is asked again, until it was away for away_s. At most limit_s (0: for ever), wherever sluiced is: what is
 * left of them is put into *left, a field of the question, before each try; an answer that sluiced gives at the end of that has a second to come. */
void *call_patient(struct context *ctx, const ProtobufCMessage *question, Sluice__Type want, double limit_s, double *left, double away_s, struct err *e);
void  call_free(void *message);         /* NULL is fine */

/* Only the handshake; what the two messages said, in the caller's hands. */
int call_hello(struct context *ctx, Sluice__Welcome **w, Sluice__Ready **r, double *seconds, struct err *e);

#endif
