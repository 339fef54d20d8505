/* roster.c - nodes are added and retired
 *
 * From: people, the configuration, restore.c.  To: node.c, change.c.
 * A list is all or nothing. The configuration gives class and pool of a node the first time only; a node that a person retired does not
 * come back by it. Marks stay with the name, whatever happens here.
 */
#include "config.h"

#include "roster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "flow.h"
#include "health.h"
#include "hostlist.h"
#include "log.h"
#include "mem.h"
#include "move.h"
#include "slurm_farm.h"
#include "str.h"

struct place { struct node *node; char class[64]; int pool; };
struct batch { unsigned n; struct place *at; };

static void batch_free(struct batch *b)
{
    free(b->at);
    free(b);
}

static void batch_add(struct batch *b, struct node *n, const char *class, int pool)
{
    b->at = mem_grow(b->at, b->n + 1, sizeof(*b->at));
    b->at[b->n].node = n;
    snprintf(b->at[b->n].class, sizeof(b->at[b->n].class), "%s", class);
    b->at[b->n++].pool = pool;
}

/* ---- restart ---- */

void roster_restore(struct farm *f, const struct row_node *row)
{
    struct node *n = farm_obtain(f, row->name);

    snprintf(n->class, sizeof(n->class), "%s", row->class == NULL ? "" : row->class);
    n->stored = true;
    n->added = row->retired == 0;
    n->added_at = row->added;
    n->shm_wanted = row->shm_wanted;
    n->shm.state = row->shm_wanted != 0 ? SHM_WAITING : SHM_SET;
    n->nice_wanted = row->nice_wanted;
    n->pool = str_equal(row->pool, pool_name[POOL_ASYNC]) ? POOL_ASYNC : POOL_ONLINE;
    n->wanted_pool = str_equal(row->wanted_pool, pool_name[POOL_ASYNC]) ? POOL_ASYNC : POOL_ONLINE;
}

/* ---- add ---- */

static void added(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;

    for (unsigned i = 0; i < b->n; i++) {
        struct node *n = b->at[i].node;

        n->adding = false;
        if (rc < 0) {
            log_err("node %s: could not be added: %s", n->name, why->text);
            continue;
        }
        snprintf(n->class, sizeof(n->class), "%s", b->at[i].class);
        n->stored = n->added = true;
        n->pool = n->wanted_pool = b->at[i].pool;
        n->refusal[0] = '\0';
        log_info("node %s: added to %s as %s by %s", n->name, pool_name[n->pool], n->class, change_author(c));
        node_admitted(n);
    }
    if (rc == 0 && b->n > 0 && b->at[0].node->d->slurm != NULL)
        slurm_take_conf(b->at[0].node->d);           /* it may name nodes that were not there before */
    batch_free(b);
}

static void add_one(struct change *c, struct batch *b, const char *name, const char *class, int pool)
{
    struct node *n = farm_obtain(change_sluiced(c)->farm, name);
    struct row_node row = { .name = name, .class = class, .pool = pool_name[pool], .wanted_pool = pool_name[pool],
                            .added = clock_wall_ns(), .shm_wanted = n->shm_wanted, .nice_wanted = n->nice_wanted };

    n->adding = true;
    n->added_at = row.added;
    change_node(c, &row);
    change_event(c, name, "added", "", pool_name[pool], class);
    batch_add(b, n, class, pool);
}

static void put_or_answer(struct change *c, enum change_kind kind, change_done then, struct batch *b)
{
    if (change_size(c) > 0) {
        change_put(c, kind, then, b);
        return;
    }
    batch_free(b);
    change_answer_only(c);
}

static int check_add(struct sluiced *d, const char *name, const char *class, struct err *e)
{
    struct node *n;

    if (!str_is_name(name))
        return err_set(e, ERR_USAGE, "'%.80s' is no name of a node: 1 to 63 letters, digits, '.', '_', '-'", name);
    n = farm_node(d->farm, name);
    if (n != NULL && n->adding)
        return err_set(e, ERR_STATE, "node %s: is being added already", name);
    if (n != NULL && n->added)
        return err_set(e, ERR_STATE, "node %s: is there already, class %s in %s", name, n->class, pool_name[n->pool]);
    if (n != NULL && n->session != NULL && n->registered != NULL && !str_equal(n->registered->class_, class))
        return err_set(e, ERR_STATE, "node %s: its worker says that it is of class %s", name, n->registered->class_);
    return 0;
}

static int read_add(struct sluiced *d, const Sluice__AddNodes *q, int *pool, struct err *e)
{
    *pool = POOL_ONLINE;
    if (q->n_names == 0)
        return err_set(e, ERR_USAGE, "no node is named");
    if (q->pool != NULL && q->pool[0] != '\0' && pool_parse(q->pool, pool, e) < 0)
        return -1;
    if (q->class_ == NULL || conf_class_find(d->conf, q->class_) == NULL)
        return err_set(e, ERR_NOT_FOUND, "class '%.63s': there is no such class in the configuration", q->class_ == NULL ? "" : q->class_);
    for (size_t i = 0; i < q->n_names; i++) {
        if (check_add(d, q->names[i], q->class_, e) < 0)
            return -1;
    }
    return 0;
}

void roster_add(struct session *s, uint32_t id, const void *message)
{
    const Sluice__AddNodes *q = message;
    struct change *c;
    struct batch *b;
    struct err e;
    int pool;

    if (read_add(s->d, q, &pool, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    for (size_t i = 0; i < q->n_names; i++) {
        struct node *n = farm_node(s->d->farm, q->names[i]);

        if (n != NULL && n->adding)      /* named twice */
            continue;
        if (!q->dry_run)
            add_one(c, b, q->names[i], q->class_, pool);
        change_result(c, q->names[i], ERR_NONE, 0, "%s to %s as %s%s", q->dry_run ? "would be added" : "added", pool_name[pool], q->class_,
                      n == NULL || n->registered == NULL ? "; no worker of that name was here yet" : "");
    }
    put_or_answer(c, CHANGE_NEW, added, b);
}

/* ---- the configuration's ---- */

static void take_name(struct change *c, struct batch *b, const struct conf_node *in, const char *name)
{
    struct node *n = farm_node(change_sluiced(c)->farm, name);
    int pool = str_equal(in->pool, pool_name[POOL_ASYNC]) ? POOL_ASYNC : POOL_ONLINE;

    if (n != NULL && n->stored && n->added && !str_equal(n->class, in->class_name))
        log_warning("node %s: is of class %s since it was added; the configuration says %s: retire it and add it again to change that", name, n->class, in->class_name);
    if (n != NULL && (n->stored || n->adding))
        return;
    add_one(c, b, name, in->class_name, pool);
}

void roster_take_conf(struct sluiced *d)
{
    struct change *c = change_create(d);
    struct batch *b = mem_zalloc(sizeof(*b));

    for (unsigned i = 0; i < d->conf->n_nodes; i++) {
        const struct conf_node *in = &d->conf->nodes[i];

        for (size_t k = 0; k < hostlist_count(in->names); k++)
            take_name(c, b, in, hostlist_name(in->names, k));
    }
    put_or_answer(c, CHANGE_KEEP, added, b);
}

/* ---- retire ---- */

static void retired(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;

    (void)why;
    for (unsigned i = 0; i < b->n; i++) {
        struct node *n = b->at[i].node;

        n->retiring = false;
        if (rc == 0) {
            flow_worker_lost(n, "the node is retired");
            n->added = false;
            health_forget_devices(n);
            slurm_node_retired(n);
            log_info("node %s: retired by %s", n->name, change_author(c));
        }
        node_changed(n);
        if (rc == 0)
            node_admitted(n);
    }
    batch_free(b);
}

static bool is_added(const struct node *n)
{
    return n->added;
}

static int check_retire(struct sluiced *d, const char *name, struct spare *spare, struct err *e)
{
    struct node *n = farm_node(d->farm, name);

    if (n->retiring)
        return err_set(e, ERR_STATE, "node %s: is being retired already", name);
    if (n->move != NULL)
        return move_refuse(n, e);
    if (n->n_tfs > 0)
        return err_set(e, ERR_STATE, "node %s: holds %u time-frames; mark it (class ops) and wait until it is empty", name, n->n_tfs);
    if (pool_spare_one(spare, n, e) < 0)
        return err_prefix(e, "node %s", name);
    return 0;
}

static int check_retire_all(struct sluiced *d, const Sluice__RetireNodes *q, struct err *e)
{
    struct spare spare = { 0 };
    int rc = farm_check_names(d->farm, q->names, q->n_names, is_added, e);

    for (size_t i = 0; rc == 0 && i < q->n_names; i++)
        rc = check_retire(d, q->names[i], &spare, e);
    return rc;
}

static void retire_one(struct change *c, struct batch *b, struct node *n, const char *reason)
{
    struct row_node row = { .name = n->name, .class = n->class, .pool = pool_name[n->pool], .wanted_pool = pool_name[n->pool],
                            .added = n->added_at, .retired = clock_wall_ns(), .shm_wanted = n->shm_wanted, .nice_wanted = n->nice_wanted };

    change_node(c, &row);
    change_event(c, n->name, "retired", pool_name[n->pool], "", reason);
    batch_add(b, n, n->class, n->pool);
    n->retiring = true;
    node_changed(n);
}

void roster_retire(struct session *s, uint32_t id, const void *message)
{
    const Sluice__RetireNodes *q = message;
    struct change *c;
    struct batch *b;
    struct err e;

    if (check_retire_all(s->d, q, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    for (size_t i = 0; i < q->n_names; i++) {
        struct node *n = farm_node(s->d->farm, q->names[i]);

        if (n->retiring)
            continue;
        change_result(c, n->name, ERR_NONE, 0, "%s%s", q->dry_run ? "would be retired" : "retired", slurm_has_our_drain(n) ? "; its marks here keep it drained in Slurm no longer" : "");
        if (!q->dry_run)
            retire_one(c, b, n, q->reason == NULL ? "" : q->reason);
    }
    put_or_answer(c, CHANGE_NEW, retired, b);
}
