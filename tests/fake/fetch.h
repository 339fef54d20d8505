/* fetch.h - a fake worker's pulls: the real handshake and the real messages, the bytes checked and thrown away */
#ifndef SLUICE_FETCH_H
#define SLUICE_FETCH_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include "runkey.h"

struct fetcher;                              /* of one worker */
struct fetch;                                /* of one part */

struct fetcher *fetcher_create(struct ev_loop *loop, const char *node);
void fetcher_destroy(struct fetcher *f);     /* what is under way is not answered any more */

/* Asks the source at address for a part. done is called once, from the loop, unless fetch_cancel comes first; why: NULL, it came and its
 * checksum holds. */
struct fetch *fetch_start(struct fetcher *f, const char *address, uint64_t run, const uint8_t key[RUNKEY_SIZE], uint64_t id, uint64_t epoch,
                          uint32_t attempt, uint32_t part, uint64_t size, void (*done)(void *arg, const char *why), void *arg);
void *fetch_cancel(struct fetch *p);         /* returns its arg */

#endif
