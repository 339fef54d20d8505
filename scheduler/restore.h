/* restore.h - what was decided before, read back at start-up */
#ifndef SLUICE_RESTORE_H
#define SLUICE_RESTORE_H

#include "rows.h"
#include "sluiced.h"

/* Nodes, marks and moves from db into d->farm, d->marks, d->moves (made here). */
int restore_farm(struct sluiced *d, struct db *db, struct err *e);

#endif
