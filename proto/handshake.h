/* handshake.h - what listener.c and connector.c share: what a credential says */
#ifndef SLUICE_HANDSHAKE_H
#define SLUICE_HANDSHAKE_H

#include "frame.h"
#include "names.h"

enum { HANDSHAKE_CHALLENGE = 32, HANDSHAKE_PAYLOAD = HANDSHAKE_CHALLENGE + 1 + 64 };

/* challenge, role as one byte, name: so that a credential is worth nothing on another connection or for another name. Returns its length. */
size_t handshake_payload(const uint8_t challenge[HANDSHAKE_CHALLENGE], unsigned role, const char *name, uint8_t out[HANDSHAKE_PAYLOAD]);
/* "munge" or "munge:SOCKET"; tells the name thread of the socket. */
int    handshake_method(const char *method, struct names *names, struct err *e);
/* This side's version, for sentences: "1.0 (sluice 0.1.0)". */
void   handshake_version(unsigned major, unsigned minor, const char *software, char out[96]);

#endif
