/* change.c - what one decision writes, and the answer that goes out after it
 *
 * From: mark.c, move.c, roster.c, shm.c.  To: writer.c, events.c, session.c.
 * No answer goes out before its commit; an answer that cannot be given any more (the asker has gone) changes nothing about the change.
 */
#include "config.h"

#include "change.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "events.h"
#include "mem.h"
#include "sluiced.h"

enum item_kind { ITEM_NODE, ITEM_SHM, ITEM_MARK, ITEM_DEVICE, ITEM_BOOT, ITEM_MOVE, ITEM_SETTING, ITEM_EVENT };

struct item {
    enum item_kind kind;
    atomic_bool gone;                    /* not to be written any more */
    union {
        struct row_node node;            /* ITEM_SHM: name and shm_wanted only */
        struct row_mark mark;
        struct row_device device;
        struct row_boot boot;
        struct row_move move;
        struct { const char *name, *value; } setting;
        struct event *event;
    };
};

struct change {
    struct sluiced *d;
    struct session_ref asker;
    bool asked;
    char author[96];

    struct item *items;
    unsigned n_items;
    char **strings;
    unsigned n_strings;

    Sluice__NodeResult **results;
    unsigned n_results;
    struct err error;                    /* code ERR_NONE: the results are the answer */
    char word[32];

    change_done then;
    void *arg;
    bool again;                          /* put anew by `then` */
};

struct change *change_create(struct sluiced *d)
{
    struct change *c = mem_zalloc(sizeof(*c));

    c->d = d;
    snprintf(c->author, sizeof(c->author), "sluiced");
    return c;
}

struct change *change_asked(struct session *s, uint32_t id)
{
    struct change *c = change_create(s->d);

    c->asker = session_refer(s, id);
    c->asked = true;
    session_author(s, c->author);
    return c;
}

static void results_free(struct change *c)
{
    for (unsigned i = 0; i < c->n_results; i++) {
        free(c->results[i]->node);
        free(c->results[i]->text);
        free(c->results[i]);
    }
    free(c->results);
}

void change_destroy(struct change *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->n_items; i++) {
        if (c->items[i].kind == ITEM_EVENT)
            event_destroy(c->items[i].event);
    }
    for (unsigned i = 0; i < c->n_strings; i++)
        free(c->strings[i]);
    results_free(c);
    free(c->strings);
    free(c->items);
    free(c);
}

struct sluiced *change_sluiced(const struct change *c)
{
    return c->d;
}

const char *change_author(const struct change *c)
{
    return c->author;
}

unsigned change_size(const struct change *c)
{
    return c->n_items;
}

void change_void_mark(struct change *c, uint64_t id)
{
    for (unsigned i = 0; i < c->n_items; i++) {
        if (c->items[i].kind == ITEM_MARK && c->items[i].mark.id == id)
            atomic_store(&c->items[i].gone, true);
    }
}

/* ---- what is written ---- */

static void keep(struct change *c, const char **s)
{
    if (*s == NULL)
        return;
    c->strings = mem_grow(c->strings, c->n_strings + 1, sizeof(*c->strings));
    c->strings[c->n_strings] = mem_strdup(*s);
    *s = c->strings[c->n_strings++];
}

static struct item *item_add(struct change *c, enum item_kind kind)
{
    struct item *it;

    c->items = mem_grow(c->items, c->n_items + 1, sizeof(*c->items));
    it = &c->items[c->n_items++];
    it->kind = kind;
    atomic_init(&it->gone, false);
    return it;
}

void change_node(struct change *c, const struct row_node *row)
{
    struct row_node *r = &item_add(c, ITEM_NODE)->node;

    *r = *row;
    keep(c, &r->name);
    keep(c, &r->class);
    keep(c, &r->pool);
    keep(c, &r->wanted_pool);
}

void change_shm(struct change *c, const char *node, uint64_t size)
{
    struct row_node *r = &item_add(c, ITEM_SHM)->node;

    *r = (struct row_node){ .name = node, .shm_wanted = size };
    keep(c, &r->name);
}

void change_mark(struct change *c, const struct row_mark *row)
{
    struct row_mark *r = &item_add(c, ITEM_MARK)->mark;
    const char **strings[] = { &r->node, &r->part, &r->owner_kind, &r->owner, &r->class, &r->severity, &r->reason, &r->evidence,
                               &r->cleared_by, &r->clear_reason };

    *r = *row;
    for (unsigned i = 0; i < ARRAY_LEN(strings); i++)
        keep(c, strings[i]);
}

void change_device(struct change *c, const struct row_device *row)
{
    struct row_device *r = &item_add(c, ITEM_DEVICE)->device;

    *r = *row;
    keep(c, &r->node);
    keep(c, &r->serial);
}

void change_boot(struct change *c, const struct row_boot *row)
{
    struct row_boot *r = &item_add(c, ITEM_BOOT)->boot;

    *r = *row;
    keep(c, &r->node);
    keep(c, &r->boot);
}

void change_move(struct change *c, const struct row_move *row)
{
    struct row_move *r = &item_add(c, ITEM_MOVE)->move;
    const char **strings[] = { &r->node, &r->to, &r->when, &r->state, &r->requested_by, &r->text };

    *r = *row;
    for (unsigned i = 0; i < ARRAY_LEN(strings); i++)
        keep(c, strings[i]);
}

void change_setting(struct change *c, const char *name, const char *value)
{
    struct item *it = item_add(c, ITEM_SETTING);

    it->setting.name = name;
    it->setting.value = value;
    keep(c, &it->setting.name);
    keep(c, &it->setting.value);
}

void change_event(struct change *c, const char *node, const char *what, const char *before, const char *after, const char *reason)
{
    item_add(c, ITEM_EVENT)->event = event_create(node, c->author, what, before, after, reason);
}

static int item_write(struct item *it, struct db *db, struct err *e)
{
    switch (it->kind) {
    case ITEM_NODE:
        return rows_put_node(db, &it->node, e);
    case ITEM_SHM:
        return rows_put_node_shm(db, it->node.name, it->node.shm_wanted, e);
    case ITEM_DEVICE:
        return rows_put_device(db, &it->device, e);
    case ITEM_BOOT:
        return rows_put_boot(db, &it->boot, e);
    case ITEM_MARK:
        return rows_put_mark(db, &it->mark, e);
    case ITEM_MOVE:
        return rows_put_move(db, &it->move, e);
    case ITEM_SETTING:
        return rows_put_setting(db, it->setting.name, it->setting.value, e);
    case ITEM_EVENT:
        return event_write(it->event, db, e);
    }
    return err_set(e, ERR_FAILED, "a change of unknown kind %d", (int)it->kind);
}

/* In the writer's thread. */
static int change_write(struct db *db, void *arg, struct err *e)
{
    struct change *c = arg;

    for (unsigned i = 0; i < c->n_items; i++) {
        if (!atomic_load(&c->items[i].gone) && item_write(&c->items[i], db, e) < 0)
            return -1;
    }
    return 0;
}

/* ---- what is answered ---- */

/* A sentence that was made to stand alone names the node; here it stands beside the name. */
static const char *without_node(const char *text, const char *node)
{
    size_t n = strlen(node);

    return strncmp(text, "node ", 5) == 0 && strncmp(text + 5, node, n) == 0 && strncmp(text + 5 + n, ": ", 2) == 0 ? text + 5 + n + 2 : text;
}

void change_result(struct change *c, const char *node, enum err_code code, uint64_t id, const char *fmt, ...)
{
    Sluice__NodeResult *r = mem_zalloc(sizeof(*r));
    char text[600];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    sluice__node_result__init(r);
    r->node = mem_strdup(node);
    r->text = mem_strdup(without_node(text, node));
    r->has_code = true;
    r->code = code;
    r->has_id = id != 0;
    r->id = id;
    c->results = mem_grow(c->results, c->n_results + 1, sizeof(*c->results));
    c->results[c->n_results++] = r;
}

void change_answer_error(struct change *c, const struct err *e, const char *word)
{
    c->error = *e;
    snprintf(c->word, sizeof(c->word), "%s", word == NULL ? "" : word);
}

static void answer(struct change *c)
{
    struct session *s = c->asked ? session_find(c->asker) : NULL;
    Sluice__Changed changed = SLUICE__CHANGED__INIT;

    if (s == NULL)
        return;
    if (c->error.code != ERR_NONE) {
        session_error(s, c->asker.id, &c->error, c->word[0] == '\0' ? NULL : c->word);
        return;
    }
    changed.results = c->results;
    changed.n_results = c->n_results;
    session_answer(s, c->asker.id, &changed.base);
}

void change_answer_only(struct change *c)
{
    answer(c);
    change_destroy(c);
}

static void history_take(struct change *c)
{
    for (unsigned i = 0; i < c->n_items; i++) {
        struct item *it = &c->items[i];

        if (it->kind == ITEM_EVENT && it->event != NULL) {
            history_add(c->d->history, it->event);
            it->event = NULL;
        }
    }
}

static void change_written(void *arg, int rc, const struct err *why)
{
    struct change *c = arg;

    if (rc == 0)
        history_take(c);
    if (rc < 0 && c->error.code == ERR_NONE)
        change_answer_error(c, why, "StateNotWritable");
    c->again = false;
    if (c->then != NULL)
        c->then(c, c->arg, rc, why);
    answer(c);
    c->asked = false;
    if (!c->again)
        change_destroy(c);
    else
        writer_put(c->d->writer, CHANGE_KEEP, change_write, change_written, c);
}

void change_put(struct change *c, enum change_kind kind, change_done then, void *arg)
{
    c->then = then;
    c->arg = arg;
    writer_put(c->d->writer, kind, change_write, change_written, c);
}

void change_keep_again(struct change *c, change_done then, void *arg)
{
    c->then = then;
    c->arg = arg;
    c->again = true;
}
