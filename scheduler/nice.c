/* nice.c - nice levels of the pools, and who may set which
 *
 * From: SET_NICE.  To: change.c, node.c (Settings to every worker of the pool: its reconstruction processes get it while they run), nice_work.c.
 * What a worker's machine does not permit comes back in its reports, and is shown with the node.
 */
#include "config.h"

#include "nice.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "conf.h"
#include "log.h"
#include "mem.h"
#include "rights.h"
#include "rows.h"
#include "str.h"

static const char *const key[2] = { "nice_online", "nice_async" };

int nice_of_pool(const struct sluiced *d, int pool)
{
    return d->nice[pool].is_set ? d->nice[pool].level : d->conf->pools[pool].nice;
}

int nice_restore(struct sluiced *d, struct db *db, struct err *e)
{
    char value[16];
    int64_t level;

    for (int p = 0; p < 2; p++) {
        if (rows_load_setting(db, key[p], value, sizeof(value), e) < 0)
            return -1;
        if (value[0] == '\0')
            continue;
        if (str_parse_i64(key[p], value, NICE_FIRST, NICE_LAST, &level, e) < 0)
            return err_prefix(e, "the stored nice level of pool %s", pool_name[p]);
        d->nice[p] = (struct nice){ true, (int)level };
    }
    return 0;
}

void nice_tell(struct sluiced *d, int pool)
{
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (n->pool == pool)
            node_send_settings(n);
    }
    nice_tell_works(d, pool);
}

/* ---- who may ---- */

int nice_check(struct session *s, int level, struct err *e)
{
    char author[96];
    int min, max;

    if (level < NICE_FIRST || level > NICE_LAST)
        return err_set(e, ERR_USAGE, "nice %d: %d to %d is wanted", level, NICE_FIRST, NICE_LAST);
    if (s->right >= RIGHT_EXPERT)
        return 0;
    if (!rights_nice_range(s->d->rights, s->peer.user, s->peer.groups, s->peer.n_groups, &min, &max))
        err_set(e, ERR_PERMISSION, "nice levels are set by experts, and by those whom a nice_rule of the configuration names; %s is neither", session_author(s, author));
    else if (level < min || level > max)
        err_set(e, ERR_PERMISSION, "nice %d: %s may set %d to %d", level, session_author(s, author), min, max);
    else
        return 0;
    return -1;
}

/* ---- SET_NICE ---- */

struct wish { int pool, level; };

static void stored(struct change *c, void *arg, int rc, const struct err *why)
{
    struct sluiced *d = change_sluiced(c);
    struct wish *w = arg;

    (void)why;
    if (rc == 0) {
        d->nice[w->pool] = (struct nice){ true, w->level };
        log_info("pool %s: nice %d, by %s", pool_name[w->pool], w->level, change_author(c));
        nice_tell(d, w->pool);
    }
    free(w);
}

static int set_pool(struct session *s, uint32_t id, const Sluice__SetNice *q, struct err *e)
{
    char before[16], after[16];
    struct change *c;
    struct wish *w;
    int pool;

    if (pool_parse(q->pool, &pool, e) < 0)
        return -1;
    if (!q->has_level)
        return err_set(e, ERR_USAGE, "nice of pool %s: %d to %d is wanted", pool_name[pool], NICE_FIRST, NICE_LAST);
    if (nice_check(s, q->level, e) < 0)
        return -1;
    snprintf(before, sizeof(before), "%d", nice_of_pool(s->d, pool));
    snprintf(after, sizeof(after), "%d", q->level);
    w = mem_zalloc(sizeof(*w));
    *w = (struct wish){ pool, q->level };
    c = change_asked(s, id);
    change_setting(c, key[pool], after);
    change_event(c, NULL, "nice", before, after, pool_name[pool]);
    change_result(c, pool_name[pool], ERR_NONE, 0, "nice of pool %s from %s to %s", pool_name[pool], before, after);
    change_put(c, CHANGE_NEW, stored, w);
    return 0;
}

void nice_set(struct session *s, uint32_t id, const void *message)
{
    const Sluice__SetNice *q = message;
    struct err e;
    int rc;

    if (!str_is_empty(q->pool) + q->has_job + q->has_run != 1)
        rc = err_set(&e, ERR_USAGE, "nice: one of a pool, a run and a job is wanted");
    else
        rc = str_is_empty(q->pool) ? nice_set_work(s, id, q, &e) : set_pool(s, id, q, &e);
    if (rc < 0)
        session_error(s, id, &e, e.code == ERR_PERMISSION ? "NotPermitted" : NULL);
}
