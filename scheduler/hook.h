/* hook.h - the program of the site that hears of alarms (section alarm of the configuration)
 *
 * From: alarms.c, looked at once a second.  To: the program's standard input, one line of JSON a call.
 */
#ifndef SLUICE_HOOK_H
#define SLUICE_HOOK_H

#include "alarm.h"
#include "sluiced.h"

struct db;
/* db: what was told before our start. NULL: it could not be read. */
struct hook *hook_create(struct sluiced *d, struct db *db, struct err *e);
/* When that alarm began, wall ns, also when nobody is called; 0: it was not seen yet. */
int64_t hook_since(const struct hook *h, const struct alarm *a);
/* Ends a program that runs. */
void hook_destroy(struct hook *h);

#endif
