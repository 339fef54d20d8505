/* notify.h - what a service manager is told over NOTIFY_SOCKET (the protocol of sd_notify(3)); without one nothing happens
 *
 * One datagram a call, never waiting: whoever does not read misses it.
 */
#ifndef SLUICE_NOTIFY_H
#define SLUICE_NOTIFY_H

#include "err.h"

/* "READY=1", "STATUS=…"; lines apart by '\n'. 0 also when nobody wants to know. */
int notify_send(const char *state, struct err *e);
/* Every so many seconds the manager wants "WATCHDOG=1" from this process, or ends it. 0: it does not. */
double notify_watchdog_s(void);

#endif
