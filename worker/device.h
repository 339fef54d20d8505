/* device.h - the node's devices, a reconstruction process each, and the built TFs that wait for one
 *
 * doc/reco-contract.md says what goes over the socket between here and a process.
 */
#ifndef SLUICE_DEVICE_H
#define SLUICE_DEVICE_H

#include "gpus.h"
#include "held.h"

struct devices;

/* Their states, and what moves them; the table is in device.c. */
enum device_state { DEVICE_DOWN, DEVICE_BOOT, DEVICE_IDLE, DEVICE_SETUP, DEVICE_RUN, DEVICE_ENDING, DEVICE_STUCK, DEVICE_N_STATES };
enum device_event { DEVICE_SPAWN, DEVICE_READY, DEVICE_ATTACH, DEVICE_ASK, DEVICE_GO, DEVICE_RESULT, DEVICE_KILL, DEVICE_HELD_ON, DEVICE_GONE, DEVICE_N_EVENTS };
/* -1: the event does not fit the state. */
int device_next(enum device_state from, enum device_event event, enum device_state *to);

struct devices *devices_create(struct worker *w);
void devices_destroy(struct devices *d);
void devices_start(struct devices *d);           /* the buffer is there: processes may start */
/* The real devices of the node are known now: they are taken in, and start as soon as they may. Called once. */
void devices_found(struct devices *d, const struct gpu *list, unsigned n);
/* The buffer has another generation, and nothing of it is in use: idle processes map it anew, others when they are ready. */
void devices_reattach(struct devices *d);
void devices_offer(struct devices *d);           /* there is news of their memory: those that waited for it may start */
void devices_stop(struct devices *d);            /* TERM to all, nothing starts again */
bool devices_stopped(const struct devices *d);   /* no process is left */

void devices_add(struct devices *d, struct held *h);         /* a built TF: queued, the oldest goes first */
/* Takes a queued TF out; asks the process of one that is being worked on to give up (it answers, or is ended). */
void devices_cancel(struct devices *d, struct held *h);
/* The TFs of a job that wait for a device go back to sluiced, which keeps them. */
void devices_give_back(struct devices *d, uint64_t job, const char *why);
void devices_pump(struct devices *d);            /* something that held them back may be gone */
void devices_tick(struct devices *d);            /* deadlines; every 100 ms */
void devices_nice(struct devices *d);
/* Why a process has another nice level than was wanted of the node; "" when none has. Valid until the next call. */
const char *devices_nice_text(struct devices *d);
/* These are taken out by marks, all others are not: they finish what they have and get nothing new while another device works. */
void devices_off(struct devices *d, char *const *serials, size_t n);

uint64_t devices_domains(const struct devices *d);           /* NUMA domains in which they are to run, a bit each; 0: anywhere */
/* Whether there are to be processes (Parking in sluice.proto). Until it is called for the first time none is started. */
void devices_park(struct devices *d, Sluice__Parking how, uint64_t order);
uint64_t devices_park_order(const struct devices *d);        /* the newest that came */

unsigned devices_count(const struct devices *d);
unsigned devices_usable(const struct devices *d);            /* work, or come back by themselves soon */
/* For Register and Report. Texts belong to the device until the next call; fill with the address of n messages. */
unsigned devices_fill(struct devices *d, Sluice__Device *out, int32_t *nice);      /* returns how many: at most devices_count */

#endif
