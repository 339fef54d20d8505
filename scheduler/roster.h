/* roster.h - which nodes belong to the farm: added and retired by people, or by the configuration the first time it names them
 *
 * From: ADD_NODES, RETIRE_NODES, the configuration.  To: node.c, the database. What is stored wins over the configuration.
 */
#ifndef SLUICE_ROSTER_H
#define SLUICE_ROSTER_H

#include "node.h"
#include "rows.h"

/* At start-up. */
void roster_restore(struct farm *f, const struct row_node *row);
/* Nodes that the configuration names and nobody ever stored: added, with their line of history. */
void roster_take_conf(struct sluiced *d);

void roster_add(struct session *s, uint32_t id, const void *m);        /* ADD_NODES */
void roster_retire(struct session *s, uint32_t id, const void *m);     /* RETIRE_NODES */

#endif
