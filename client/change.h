/* change.h - commands that change nodes: asked, answered with a line a node */
#ifndef SLUICE_CHANGE_H
#define SLUICE_CHANGE_H

#include "call.h"
#include "command.h"
#include "show.h"

extern const struct listing change_listing;

/* Asks, shows the results, returns the exit status: 0 all did, 8 some did, else what the first said. -1: refused as a whole.
 * changed (may be NULL) gets the answer, the caller's. */
int change_keep(struct context *ctx, const ProtobufCMessage *question, Sluice__Changed **changed, struct err *e);
int change(struct context *ctx, const ProtobufCMessage *question, struct err *e);

/* The same in parts. 1: go on; 0: -o help was answered; -1: a column that is not there. */
int change_columns(struct context *ctx, struct err *e);
int change_show(struct context *ctx, const Sluice__Changed *changed, struct err *e);

/* Whether a reason says something and is not too long. 0 or -1. */
int change_check_reason(const char *reason, struct err *e);

#endif
