/* nice.h - nice levels of the pools: as the configuration says, until a person sets another one
 *
 * From: people (session.c), restore.c.  To: every node of the pool (Settings), the database.
 * An expert may set any level; whoever is named by a nice_rule of the configuration any within its range.
 */
#ifndef SLUICE_NICE_H
#define SLUICE_NICE_H

#include "db.h"
#include "session.h"

int nice_of_pool(const struct sluiced *d, int pool);
int nice_restore(struct sluiced *d, struct db *db, struct err *e);

void nice_set(struct session *s, uint32_t id, const void *m);          /* SET_NICE */

#endif
