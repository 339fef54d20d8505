/* mark.h - marks: who took what out of service, why, until when
 *
 * From: people (session.c), health programs, restore.c.  To: node.c (the verdict), the database.
 * A mark acts in memory at once and is acknowledged after its commit. If even the reserve on the disk is used up, the mark stays: the caller hears that it acts
 * but is not stored, it is put again until it is, and status shows it (MarksNotStored).
 */
#ifndef SLUICE_MARK_H
#define SLUICE_MARK_H

#include "node.h"
#include "rows.h"

enum { MARK_REPEAT = 3 };                      /* so many marks before make a node a repeat offender */

struct marks *marks_create(struct sluiced *d, uint64_t last_id);
void marks_destroy(struct marks *m);
void marks_tick(struct marks *m);              /* ends marks whose time is over */
unsigned marks_open(const struct marks *m);
unsigned marks_not_stored(const struct marks *m);

/* At start-up: one row, open or cleared. */
void mark_restore(struct node *n, const struct row_mark *row);
void mark_free(struct mark *m);
/* An automatic mark: part (NULL: the node), owner_kind (health, slurm, tool), owner, class, severity, reason, evidence of want. Acts at once. Returns its id, or
 * that of the open one of the same owner on the same part: one fault, one mark. */
uint64_t mark_automatic(struct node *n, const struct row_mark *want);
/* That open mark, or NULL. */
struct mark *mark_automatic_find(struct node *n, const char *part, const char *owner_kind, const char *owner);
/* Its owner says something else about it now, NULL evidence: the old one. It stays the same mark. told: the history has a line about that. Returns false when
 * that cannot be now: its last change is on the way to the disk. */
bool mark_automatic_renew(struct node *n, struct mark *m, const char *reason, const char *evidence, bool told);
/* Its owner takes back what it set: no other mark goes. Returns how many go. */
unsigned mark_automatic_clear(struct node *n, const char *part, const char *owner_kind, const char *owner, const char *reason);

void mark_nodes(struct session *s, uint32_t id, const void *m);        /* MARK_NODES */
void mark_clear(struct session *s, uint32_t id, const void *m);        /* CLEAR_MARKS; clear.c */

#endif
