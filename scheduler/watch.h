/* watch.h - history as a stream: events from a number on, as they come
 *
 * From: session.c, events.c.  To: `sluice watch`, `sluice dump`.
 */
#ifndef SLUICE_WATCH_H
#define SLUICE_WATCH_H

#include "session.h"

struct watches *watches_create(struct sluiced *d);
void watches_destroy(struct watches *w);
void watches_tell(struct watches *w);                                   /* there is a new line of history */

void watch_ask(struct session *s, uint32_t id, const void *m);         /* WATCH */

#endif
