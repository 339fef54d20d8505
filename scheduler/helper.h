/* helper.h - threads for what may take long and touches nothing of the loop: backup, old history, reading the configuration
 *
 * Bounded: HELPER_MAX at a time, more are refused. A thread that hangs is abandoned at the end of the program.
 */
#ifndef SLUICE_HELPER_H
#define SLUICE_HELPER_H

#include <ev.h>
#include "err.h"

enum { HELPER_MAX = 4 };

struct helper *helper_create(struct ev_loop *loop, struct err *e);
void helper_destroy(struct helper *h);
/* work runs in a thread of its own and touches only arg; done comes in the loop afterwards and frees arg. -1: nothing was started. */
int helper_run(struct helper *h, void (*work)(void *arg), void (*done)(void *arg), void *arg, struct err *e);

#endif
