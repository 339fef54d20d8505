/* mark.c - marks are set and cleared
 *
 * From: MARK_NODES, CLEAR_MARKS, health, the clock (until).  To: node.c, change.c.
 * A list is all or nothing. A mark is never cleared by anyone but its owner or a person with the right; nothing else that happens to a node
 * touches its marks. Whether a node is bad is computed from open marks, never from there having been some.
 */
#include "config.h"

#include "mark.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "clock.h"
#include "counters.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "str.h"

enum { MOST_REASON = 1000, MOST_PARTS = 64, MOST_OPEN = 256 };       /* MOST_OPEN: marks a node */

struct marks {
    struct sluiced *d;
    uint64_t last_id;
    unsigned open, not_stored;
    int64_t next_end;                    /* wall ns of the first `until`, 0 = none */
};

struct marks *marks_create(struct sluiced *d, uint64_t last_id)
{
    struct marks *m = mem_zalloc(sizeof(*m));

    m->d = d;
    m->last_id = last_id;
    return m;
}

void marks_destroy(struct marks *m)
{
    free(m);
}

unsigned marks_open(const struct marks *m)
{
    return m->open;
}

unsigned marks_not_stored(const struct marks *m)
{
    return m->not_stored;
}

/* ---- one mark ---- */

static void mark_link(struct node *n, struct mark *m)
{
    struct marks *all = n->d->marks;

    TAILQ_INSERT_TAIL(&n->marks, m, entry);
    all->open++;
    if (m->until != 0 && (all->next_end == 0 || m->until < all->next_end))
        all->next_end = m->until;
    if (strcmp(m->part, "node") != 0)
        node_see_part(n, m->part);
}

static struct mark *mark_create(const struct row_mark *r)
{
    struct mark *m = mem_zalloc(sizeof(*m));

    m->id = r->id;
    m->part = mem_strdup(r->part == NULL ? "node" : r->part);
    m->owner_kind = mem_strdup(r->owner_kind == NULL ? "person" : r->owner_kind);
    m->owner = mem_strdup(r->owner == NULL ? "" : r->owner);
    m->class = mem_strdup(r->class == NULL ? "hw" : r->class);
    m->reason = mem_strdup(r->reason == NULL ? "" : r->reason);
    m->evidence = mem_strdup(r->evidence);
    m->block = r->severity == NULL || strcmp(r->severity, "info") != 0;
    m->created = r->created;
    m->until = r->until;
    return m;
}

void mark_free(struct mark *m)
{
    free(m->part);
    free(m->owner_kind);
    free(m->owner);
    free(m->class);
    free(m->reason);
    free(m->evidence);
    free(m);
}

void mark_restore(struct node *n, const struct row_mark *row)
{
    bool block = row->severity == NULL || strcmp(row->severity, "info") != 0;

    n->marks_ever += block;
    if (row->part != NULL && strcmp(row->part, "node") != 0)
        node_see_part(n, row->part);
    if (row->cleared == 0)
        mark_link(n, mark_create(row));
}

static struct row_mark mark_row(const struct node *n, const struct mark *m)
{
    return (struct row_mark){
        .id = m->id, .node = n->name, .part = m->part, .owner_kind = m->owner_kind, .owner = m->owner, .class = m->class,
        .severity = m->block ? "block" : "info", .reason = m->reason, .evidence = m->evidence, .created = m->created, .until = m->until,
    };
}

/* "mark 7 (block hw, node)": what history says there is, or was. */
static const char *mark_text(const struct mark *m, char out[240])
{
    snprintf(out, 240, "mark %llu (%s %.16s, %.120s)", (unsigned long long)m->id, m->block ? "block" : "info", m->class, m->part);
    return out;
}

static struct mark *mark_find(struct node *n, uint64_t id)
{
    struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->id == id)
            return m;
    }
    return NULL;
}

static void marks_changed(struct node *n)
{
    node_send_settings(n);
    node_changed(n);
}

/* ---- set ---- */

/* The marks of one change: found again by node and id when it is written. */
struct batch {
    unsigned n;
    struct { struct node *node; uint64_t id; } *at;
};

static void batch_add(struct batch *b, struct node *n, uint64_t id)
{
    b->at = mem_grow(b->at, b->n + 1, sizeof(*b->at));
    b->at[b->n].node = n;
    b->at[b->n++].id = id;
}

static void batch_free(struct batch *b)
{
    free(b->at);
    free(b);
}

static void stored_at_last(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;
    struct marks *all = change_sluiced(c)->marks;

    (void)why;
    if (rc < 0) {                        /* kept changes are never refused while we run: this is the end of the program */
        batch_free(b);
        return;
    }
    for (unsigned i = 0; i < b->n; i++) {
        struct mark *m = mark_find(b->at[i].node, b->at[i].id);

        all->not_stored--;
        if (m != NULL)
            m->unsaved = NULL;
    }
    batch_free(b);
}

/* On disk; or not: then it acts all the same, and goes on trying. */
static void set_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;
    struct err e;

    if (rc == 0) {
        batch_free(b);
        return;
    }
    for (unsigned i = 0; i < b->n; i++) {
        struct mark *m = mark_find(b->at[i].node, b->at[i].id);

        if (m != NULL)
            m->unsaved = c;
        change_sluiced(c)->marks->not_stored++;
    }
    counters_add(change_sluiced(c)->counters, "marks_not_stored", b->n);
    log_err("%u mark%s act%s but %s not on disk: %s", b->n, b->n == 1 ? "" : "s", b->n == 1 ? "s" : "", b->n == 1 ? "is" : "are", why->text);
    err_set(&e, ERR_STATE, "the mark acts now but is NOT stored yet (%.300s): it would be lost if sluiced ended; it is being tried again", why->text);
    change_answer_error(c, &e, "StateNotWritable");
    change_keep_again(c, stored_at_last, b);
}

static struct mark *mark_set(struct change *c, struct batch *b, struct node *n, const struct row_mark *want)
{
    struct marks *all = n->d->marks;
    struct row_mark row = *want;
    struct mark *m;
    char text[240];

    row.id = ++all->last_id;
    row.node = n->name;
    row.created = clock_wall_ns();
    m = mark_create(&row);
    n->marks_ever += m->block;
    mark_link(n, m);
    row = mark_row(n, m);
    change_mark(c, &row);
    change_event(c, n->name, "marked", "", mark_text(m, text), m->reason);
    batch_add(b, n, m->id);
    return m;
}

static int check_reason(const char *reason, struct err *e)
{
    if (reason == NULL || reason[strspn(reason, " \t\r\n")] == '\0')
        return err_set(e, ERR_USAGE, "a reason is wanted: people read it at night");
    if (strlen(reason) > MOST_REASON)
        return err_set(e, ERR_USAGE, "the reason has %zu bytes, at most %d are kept", strlen(reason), MOST_REASON);
    return 0;
}

static int check_class(const char *class, struct err *e)
{
    static const char *const words[] = { "hw", "sw", "user", "ops" };

    for (size_t i = 0; i < ARRAY_LEN(words); i++) {
        if (class == NULL || class[0] == '\0' || strcmp(class, words[i]) == 0)
            return 0;
    }
    return err_set(e, ERR_USAGE, "class '%.60s': the classes of marks are hw, sw, user and ops", class);
}

static int check_mark(const Sluice__MarkNodes *m, struct err *e)
{
    if (m->n_names == 0)
        return err_set(e, ERR_USAGE, "no node is named");
    if (m->n_parts > MOST_PARTS)
        return err_set(e, ERR_USAGE, "%zu devices, at most %d at a time", m->n_parts, MOST_PARTS);
    if (check_reason(m->reason, e) < 0 || check_class(m->class_, e) < 0)
        return -1;
    if (m->has_until && m->until != 0 && m->until <= clock_wall_ns())
        return err_set(e, ERR_USAGE, "the end of the mark is in the past");
    return 0;
}

static unsigned count_marks(const struct node *n)
{
    const struct mark *m;
    unsigned count = 0;

    TAILQ_FOREACH(m, &n->marks, entry)
        count++;
    return count;
}

/* Every part must be a device of one of the nodes, every node must have one of the parts. */
static int check_parts(struct node *const *nodes, const Sluice__MarkNodes *m, struct err *e)
{
    for (size_t p = 0; p < m->n_parts; p++) {
        bool found = false;

        for (size_t i = 0; i < m->n_names && !found; i++)
            found = node_has_part(nodes[i], m->parts[p]);
        if (!found)
            return err_set(e, ERR_NOT_FOUND, "node %s: has no device %.120s and had none since it was known", nodes[0]->name, m->parts[p]);
    }
    for (size_t i = 0; m->n_parts > 0 && i < m->n_names; i++) {
        bool found = false;

        for (size_t p = 0; p < m->n_parts && !found; p++)
            found = node_has_part(nodes[i], m->parts[p]);
        if (!found)
            return err_set(e, ERR_NOT_FOUND, "node %s: has none of the devices named", nodes[i]->name);
    }
    return 0;
}

/* The nodes by name, or NULL and e names the first that is not there. Caller frees. */
static struct node **find_nodes(struct sluiced *d, char *const *names, size_t n, struct err *e)
{
    struct node **nodes = mem_array(n + 1, sizeof(*nodes));

    for (size_t i = 0; i < n; i++) {
        nodes[i] = farm_node(d->farm, names[i]);
        if (nodes[i] == NULL) {
            free(nodes);
            return err_null(e, ERR_NOT_FOUND, "node %.63s: there is no such node", names[i]);
        }
    }
    return nodes;
}

static void set_one(struct change *c, struct batch *b, struct node *n, const struct row_mark *want, bool dry_run)
{
    struct mark *m;

    if (dry_run) {
        change_result(c, n->name, ERR_NONE, 0, "would be marked%s%s", want->part == NULL ? "" : ": device ", want->part == NULL ? "" : want->part);
        return;
    }
    m = mark_set(c, b, n, want);
    change_result(c, n->name, ERR_NONE, m->id, "marked%s%s", want->part == NULL ? "" : ": device ", want->part == NULL ? "" : want->part);
}

static void set_all(struct change *c, struct batch *b, struct node *const *nodes, const Sluice__MarkNodes *m, struct row_mark *want)
{
    for (size_t i = 0; i < m->n_names; i++) {
        bool seen = false;

        for (size_t k = 0; k < i && !seen; k++)
            seen = nodes[k] == nodes[i];
        if (seen)
            continue;
        if (m->n_parts == 0)
            set_one(c, b, nodes[i], want, m->dry_run);
        for (size_t p = 0; p < m->n_parts; p++) {
            want->part = m->parts[p];
            if (node_has_part(nodes[i], m->parts[p]))
                set_one(c, b, nodes[i], want, m->dry_run);
        }
    }
}

static int check_room(struct node *const *nodes, const Sluice__MarkNodes *m, struct err *e)
{
    size_t more = m->n_parts == 0 ? 1 : m->n_parts;

    for (size_t i = 0; i < m->n_names; i++) {
        if (count_marks(nodes[i]) + more > MOST_OPEN)
            return err_set(e, ERR_STATE, "node %s: has %u open marks, at most %d are kept; clear some", nodes[i]->name, count_marks(nodes[i]), MOST_OPEN);
    }
    return 0;
}

void mark_nodes(struct session *s, uint32_t id, const void *message)
{
    const Sluice__MarkNodes *m = message;
    struct row_mark want = {
        .owner_kind = "person", .owner = s->peer.user, .class = m->class_ == NULL || m->class_[0] == '\0' ? "hw" : m->class_,
        .severity = m->has_severity && m->severity == SLUICE__SEVERITY__INFO ? "info" : "block", .reason = m->reason,
        .until = m->has_until ? m->until : 0,
    };
    struct node **nodes = NULL;
    struct change *c;
    struct batch *b;
    struct err e;

    if (check_mark(m, &e) < 0 || (nodes = find_nodes(s->d, m->names, m->n_names, &e)) == NULL || check_parts(nodes, m, &e) < 0
        || check_room(nodes, m, &e) < 0) {
        session_error(s, id, &e, NULL);
        free(nodes);
        return;
    }
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    set_all(c, b, nodes, m, &want);
    free(nodes);
    if (change_size(c) == 0) {
        batch_free(b);
        change_answer_only(c);
        return;
    }
    for (unsigned i = 0; i < b->n; i++) {
        log_info("node %s: marked by %s: %s", b->at[i].node->name, change_author(c), m->reason);
        marks_changed(b->at[i].node);
    }
    change_put(c, CHANGE_MARK, set_written, b);
}

struct mark *mark_automatic_find(struct node *n, const char *part, const char *owner_kind, const char *owner)
{
    struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!m->closing && strcmp(m->owner_kind, owner_kind) == 0 && strcmp(m->owner, owner) == 0 && strcmp(m->part, part == NULL ? "node" : part) == 0)
            return m;
    }
    return NULL;
}

uint64_t mark_automatic(struct node *n, const struct row_mark *want)
{
    const struct mark *there = mark_automatic_find(n, want->part, want->owner_kind, want->owner);
    struct change *c;
    struct batch *b;
    uint64_t id;

    if (there != NULL)
        return there->id;
    c = change_create(n->d);
    b = mem_zalloc(sizeof(*b));
    id = mark_set(c, b, n, want)->id;
    log_warning("node %s: marked by %s %s: %s%s%s", n->name, want->owner_kind, want->owner, want->part == NULL ? "" : want->part, want->part == NULL ? "" : ": ",
                want->reason);
    marks_changed(n);
    change_put(c, CHANGE_MARK, set_written, b);
    return id;
}

/* ---- clear ---- */

static void clear_add(struct change *c, struct batch *b, struct node *n, struct mark *m, const char *by, const char *reason)
{
    struct row_mark row = mark_row(n, m);
    char text[240];

    row.cleared = clock_wall_ns();
    row.cleared_by = by;
    row.clear_reason = reason;
    change_mark(c, &row);
    change_event(c, n->name, "cleared", mark_text(m, text), "", reason);
    m->closing = true;
    if (m->unsaved != NULL)
        change_void_mark(m->unsaved, m->id);         /* what is about to be written is newer than what still waits */
    batch_add(b, n, m->id);
}

/* On disk: the marks go. Not: they stay as they were. */
static void clear_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct batch *b = arg;
    struct marks *all = change_sluiced(c)->marks;

    (void)why;
    for (unsigned i = 0; i < b->n; i++) {
        struct node *n = b->at[i].node;
        struct mark *m = mark_find(n, b->at[i].id);

        if (m == NULL)
            continue;
        m->closing = false;
        if (rc < 0)
            continue;
        TAILQ_REMOVE(&n->marks, m, entry);
        log_info("node %s: mark %llu cleared by %s", n->name, (unsigned long long)m->id, change_author(c));
        health_mark_cleared(n, m);
        mark_free(m);
        all->open--;
        marks_changed(n);
    }
    batch_free(b);
}

static bool is_own(const struct session *s, const struct mark *m)
{
    return strcmp(m->owner_kind, "person") == 0 && s->peer.user[0] != '\0' && strcmp(m->owner, s->peer.user) == 0;
}

struct clearing {
    struct session *s;
    const Sluice__ClearMarks *q;
    bool any_owner;
    const char *word;                    /* of a refusal */
};

static bool may_go(const struct clearing *k, const struct mark *m)
{
    return !m->closing && (k->q->id == 0 || m->id == k->q->id) && (k->any_owner || is_own(k->s, m));
}

/* The first mark that was meant but may not go, and how many may. */
static unsigned count_going(const struct clearing *k, const struct node *n, const struct mark **stays)
{
    const struct mark *m;
    unsigned going = 0;

    *stays = NULL;
    TAILQ_FOREACH(m, &n->marks, entry) {
        if (may_go(k, m))
            going++;
        else if (*stays == NULL && (k->q->id == 0 || m->id == k->q->id))
            *stays = m;
    }
    return going;
}

/* What becomes of one node: 1: marks of it go; 0: it has none that is meant; -1: it stops the whole list. e says why but for 1. */
static int check_clear(struct clearing *k, const struct node *n, struct err *e)
{
    const struct mark *stays;
    unsigned going = count_going(k, n, &stays);

    if (going == 0 && stays == NULL && k->q->id != 0) {
        err_set(e, ERR_NOT_FOUND, "node %s: has no open mark %llu", n->name, (unsigned long long)k->q->id);
        return 0;
    }
    if (going == 0 && stays == NULL) {
        err_set(e, ERR_NOT_FOUND, "node %s: has no open mark", n->name);
        return 0;
    }
    if (going == 0 && stays->closing)
        return err_set(e, ERR_STATE, "node %s: mark %llu is being cleared already", n->name, (unsigned long long)stays->id);
    if (going == 0) {
        k->word = "OtherOwner";
        return err_set(e, ERR_STATE, "node %s: mark %llu is of %s %.60s (%.200s); --any-owner clears it too", n->name, (unsigned long long)stays->id,
                       stays->owner_kind, stays->owner, stays->reason);
    }
    if (n->marks_ever >= MARK_REPEAT + going && !k->q->repeat_ok) {
        k->word = "RepeatOffender";
        return err_set(e, ERR_STATE, "node %s: was marked %u times before; --repeat-ok puts it back into service all the same", n->name, n->marks_ever - going);
    }
    return 1;
}

static void clear_one(const struct clearing *k, struct change *c, struct batch *b, struct node *n)
{
    const struct mark *stays;
    struct str what = { 0 };
    struct mark *m;
    uint64_t first = 0;

    count_going(k, n, &stays);
    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!may_go(k, m))
            continue;
        str_addf(&what, "%s%llu", what.len == 0 ? "" : ", ", (unsigned long long)m->id);
        first = first == 0 ? m->id : first;
        if (!k->q->dry_run)
            clear_add(c, b, n, m, change_author(c), k->q->reason);
    }
    if (first == 0)                      /* named twice: its marks are on their way already */
        goto done;
    if (stays != NULL && k->q->id == 0)
        change_result(c, n->name, ERR_NONE, first, "%s %s; stays: mark %llu of %s %s", k->q->dry_run ? "would clear mark" : "cleared mark", str_text(&what),
                      (unsigned long long)stays->id, stays->owner_kind, stays->owner);
    else
        change_result(c, n->name, ERR_NONE, first, "%s %s", k->q->dry_run ? "would clear mark" : "cleared mark", str_text(&what));
done:
    str_free(&what);
}

/* The node that bears the mark, for a question that names only the mark. */
static struct node *bearer(struct sluiced *d, uint64_t id)
{
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (mark_find(n, id) != NULL)
            return n;
    }
    return NULL;
}

static struct node **cleared_nodes(struct session *s, const Sluice__ClearMarks *q, size_t *n, struct err *e)
{
    struct node **nodes;

    *n = q->n_names;
    if (q->n_names > 0)
        return find_nodes(s->d, q->names, q->n_names, e);
    if (q->id == 0)
        return err_null(e, ERR_USAGE, "no node and no mark is named");
    nodes = mem_array(1, sizeof(*nodes));
    nodes[0] = bearer(s->d, q->id);
    *n = 1;
    if (nodes[0] != NULL)
        return nodes;
    free(nodes);
    return err_null(e, ERR_NOT_FOUND, "mark %llu: there is no open mark of that number", (unsigned long long)q->id);
}

/* Every node is looked at before anything goes: rc and errs as check_clear says. -1: e is the answer, with the first that stops the list and how many do. A
 * dry run goes on, and shows them all. */
static int check_all(struct clearing *k, struct node *const *nodes, size_t n, int *rc, struct err *errs, struct err *e)
{
    size_t going = 0, stopping = 0, first = n;
    const char *word = NULL;

    if (k->q->any_owner && k->s->right < RIGHT_EXPERT) {
        k->word = "NotPermitted";
        return err_set(e, ERR_PERMISSION, "clearing marks of others wants the role expert");
    }
    for (size_t i = 0; i < n; i++) {
        rc[i] = check_clear(k, nodes[i], &errs[i]);
        going += rc[i] > 0;
        if (rc[i] < 0 && stopping++ == 0) {
            first = i;
            word = k->word;
        }
    }
    k->word = word;
    if (stopping > 0 && !k->q->dry_run) {
        *e = errs[first];
        return stopping == 1 ? -1 : err_prefix(e, "%zu of %zu nodes stop this, nothing is cleared", stopping, n);
    }
    if (going == 0 && stopping == 0) {
        *e = errs[0];
        return -1;
    }
    return 0;
}

static void clear_all(const struct clearing *k, struct change *c, struct batch *b, struct node *const *nodes, size_t n, const int *rc, const struct err *errs)
{
    for (size_t i = 0; i < n; i++) {
        if (rc[i] > 0)
            clear_one(k, c, b, nodes[i]);
        else
            change_result(c, nodes[i]->name, rc[i] == 0 ? ERR_NONE : errs[i].code, 0, "%s", rc[i] == 0 ? "has no open mark" : errs[i].text);
    }
}

void mark_clear(struct session *s, uint32_t id, const void *message)
{
    const Sluice__ClearMarks *q = message;
    struct clearing k = { .s = s, .q = q, .any_owner = q->any_owner };
    struct node **nodes = NULL;
    struct change *c;
    struct batch *b;
    struct err e, *errs = NULL;
    int *rc = NULL;
    size_t n = 0;

    if (check_reason(q->reason, &e) < 0 || (nodes = cleared_nodes(s, q, &n, &e)) == NULL)
        goto refused;
    errs = mem_array(n, sizeof(*errs));
    rc = mem_array(n, sizeof(*rc));
    if (check_all(&k, nodes, n, rc, errs, &e) < 0)
        goto refused;
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    clear_all(&k, c, b, nodes, n, rc, errs);
    if (change_size(c) > 0) {
        change_put(c, CHANGE_MARK, clear_written, b);
    } else {
        batch_free(b);
        change_answer_only(c);
    }
    goto done;
refused:
    session_error(s, id, &e, k.word);
done:
    free(nodes);
    free(errs);
    free(rc);
}

unsigned mark_automatic_clear(struct node *n, const char *part, const char *owner_kind, const char *owner, const char *reason)
{
    struct change *c;
    struct batch *b;
    struct mark *m;
    unsigned going;

    if (mark_automatic_find(n, part, owner_kind, owner) == NULL)
        return 0;
    c = change_create(n->d);
    b = mem_zalloc(sizeof(*b));
    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!m->closing && strcmp(m->owner_kind, owner_kind) == 0 && strcmp(m->owner, owner) == 0 && strcmp(m->part, part == NULL ? "node" : part) == 0)
            clear_add(c, b, n, m, owner, reason);
    }
    going = b->n;
    change_put(c, CHANGE_MARK, clear_written, b);
    return going;
}

/* ---- the end of its time ---- */

static void end_of_time(struct node *n, int64_t now, int64_t *next)
{
    struct change *c = NULL;
    struct batch *b = NULL;
    struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->until == 0 || m->closing)
            continue;
        if (m->until > now) {
            if (*next == 0 || m->until < *next)
                *next = m->until;
            continue;
        }
        if (c == NULL) {
            c = change_create(n->d);
            b = mem_zalloc(sizeof(*b));
        }
        clear_add(c, b, n, m, "sluiced", "its time is over");
    }
    if (c != NULL)
        change_put(c, CHANGE_KEEP, clear_written, b);
}

void marks_tick(struct marks *all)
{
    int64_t now = clock_wall_ns(), next = 0;

    if (all->next_end == 0 || now < all->next_end)
        return;
    for (struct node *n = farm_first(all->d->farm); n != NULL; n = n->hh.next)
        end_of_time(n, now, &next);
    all->next_end = next;
}
