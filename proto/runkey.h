/* runkey.h - a run's key: worker and source prove to each other that sluiced sent them (HMAC-SHA256 over both nonces) */
#ifndef SLUICE_RUNKEY_H
#define SLUICE_RUNKEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"

enum { RUNKEY_SIZE = 32, RUNKEY_NONCE = 32, RUNKEY_PROOF = 32 };

int  runkey_random(uint8_t *out, size_t size, struct err *e);          /* getrandom */
/* who: "source" or "worker". proof = HMAC-SHA256(key, who 0 node 0 run(8 LE) worker_nonce source_nonce) */
void runkey_proof(const uint8_t key[RUNKEY_SIZE], const char *who, const char *node, uint64_t run,
                  const uint8_t worker_nonce[RUNKEY_NONCE], const uint8_t source_nonce[RUNKEY_NONCE], uint8_t proof[RUNKEY_PROOF]);
bool runkey_equal(const uint8_t *a, const uint8_t *b, size_t size);    /* constant time */

#endif
