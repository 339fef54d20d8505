/* move.h - nodes change pools: pending -> draining -> done | cancelled | failed
 *
 * From: people (session.c), the clock, flow.c (a node has emptied: node_emptied).  To: node.c (no new work while draining), flow.c (evict), the database.
 * The pool switches in one transaction with its line of history, after the node is empty; until then the node is in its old pool.
 */
#ifndef SLUICE_MOVE_H
#define SLUICE_MOVE_H

#include "node.h"
#include "rows.h"

struct move;
enum move_state { MOVE_PENDING, MOVE_DRAINING, MOVE_DONE, MOVE_CANCELLED, MOVE_FAILED };
extern const char *const move_state_name[MOVE_FAILED + 1];

struct moves *moves_create(struct sluiced *d, uint64_t last_id);
void moves_destroy(struct moves *m);
int  move_restore(struct moves *m, const struct row_move *row, struct err *e);     /* at start-up; open ones go on from where they were */
void moves_begin(struct moves *m);                                               /* everything is there: restored moves go on */
void moves_tick(struct moves *m);
unsigned moves_open(const struct moves *m);

bool move_is_executing(const struct move *m);          /* draining: the node takes no new work */
void move_message(const struct move *m, Sluice__MoveInfo *out);       /* strings borrowed */
void moves_fill(struct moves *m, bool all, Sluice__MoveInfo ***out, size_t *n);        /* by number; freed by moves_fill_free */
void moves_fill_free(Sluice__MoveInfo **infos, size_t n);
int  move_refuse(const struct node *n, struct err *e);  /* n has an open move, and something else is wanted of it: names it, and how it is cancelled. -1 */
void move_node_changed(struct node *n);

/* What the pools have left while one question or tick takes nodes from them: counted when first asked for, as counting looks at every node. All 0 at first. */
struct spare { bool counted[2]; unsigned good[2], usable[2]; };
/* Takes a node that is good (farm_good) out of the count; it must not leave its pool below min_good, or a run below its minimum. */
int  pool_spare_one(struct spare *s, const struct node *n, struct err *e);

void move_nodes(struct session *s, uint32_t id, const void *m);        /* MOVE_NODES */
void move_cancel(struct session *s, uint32_t id, const void *m);       /* CANCEL_MOVE */
void move_list(struct session *s, uint32_t id, const void *m);         /* GET_MOVES */
void move_wait(struct session *s, uint32_t id, const void *m);         /* WAIT for a move */

#endif
