/* restore.c - nodes, marks and moves as they were decided, before anybody can connect
 *
 * From: the database, through a reader.  To: node.c, mark.c, move.c.
 * Marks come before contact, so that a bad node is bad from the first moment. A mark on a name that is in no list is kept with the name.
 */
#include "config.h"

#include "restore.h"

#include "health.h"
#include "log.h"
#include "mark.h"
#include "move.h"
#include "nice.h"
#include "node.h"
#include "roster.h"
#include "shm.h"

static int node_row(void *arg, const struct row_node *row)
{
    roster_restore(arg, row);
    return 0;
}

static int mark_row(void *arg, const struct row_mark *row)
{
    struct sluiced *d = arg;
    struct node *n = farm_obtain(d->farm, row->node);

    mark_restore(n, row);
    health_restore_mark(n, row);
    return 0;
}

static int device_row(void *arg, const struct row_device *row)
{
    struct sluiced *d = arg;

    health_restore_device(farm_obtain(d->farm, row->node), row);
    return 0;
}

static int boot_row(void *arg, const struct row_boot *row)
{
    struct sluiced *d = arg;

    health_restore_boot(farm_obtain(d->farm, row->node), row);
    return 0;
}

struct moving { struct moves *moves; struct err *e; };

static int move_row(void *arg, const struct row_move *row)
{
    struct moving *m = arg;

    return move_restore(m->moves, row, m->e);
}

int restore_farm(struct sluiced *d, struct db *db, struct err *e)
{
    struct moving m = { .e = e };
    struct row_ids ids;

    if (rows_load_ids(db, &ids, e) < 0)
        return -1;
    d->health = health_create(d);
    d->farm = farm_create(d);
    d->marks = marks_create(d, ids.mark);
    d->moves = m.moves = moves_create(d, ids.move);
    if (health_restore(d->health, db, e) < 0)
        return -1;
    d->shms = shms_create(d);
    if (nice_restore(d, db, e) < 0)
        return -1;
    if (rows_load_nodes(db, node_row, d->farm, e) != 0 || rows_load_marks(db, false, mark_row, d, e) != 0
        || rows_load_devices(db, device_row, d, e) != 0 || rows_load_boots(db, boot_row, d, e) != 0 || rows_load_moves(db, false, move_row, &m, e) != 0)
        return -1;
    log_info("state: %u nodes, %u open marks, %u open moves", farm_count(d->farm), marks_open(d->marks), moves_open(d->moves));
    return 0;
}
