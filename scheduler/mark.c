/* mark.c - marks are set, and end
 *
 * From: MARK_NODES, clear.c, health, the clock (until).  To: node.c, change.c.
 * A list is all or nothing. A mark is never cleared by anyone but its owner or a person with the right; nothing else that happens to a node
 * touches its marks. Whether a node is bad is computed from open marks, never from there having been some.
 */
#include "config.h"

#include "mark_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "change.h"
#include "clock.h"
#include "counters.h"
#include "health.h"
#include "log.h"
#include "mem.h"
#include "slurm_farm.h"
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
    if (row->cleared == 0) {
        struct mark *m = mark_create(row);

        m->stored = true;
        mark_link(n, m);
    }
}

static struct row_mark mark_row(const struct node *n, const struct mark *m)
{
    return (struct row_mark){
        .id = m->id, .node = n->name, .part = m->part, .owner_kind = m->owner_kind, .owner = m->owner, .class = m->class,
        .severity = m->block ? "block" : "info", .reason = m->reason, .evidence = m->evidence, .created = m->created, .until = m->until,
    };
}

/* "mark 7 (block hw, node)", with its owner when that is no person: what history says there is, or was. */
static const char *mark_text(const struct mark *m, char out[240])
{
    bool person = strcmp(m->owner_kind, "person") == 0;

    snprintf(out, 240, "mark %llu (%s %.16s, %.100s%s%s%s%.64s)", (unsigned long long)m->id, m->block ? "block" : "info", m->class, m->part, person ? "" : ", ",
             person ? "" : m->owner_kind, person ? "" : " ", person ? "" : m->owner);
    return out;
}

struct mark *mark_find(struct node *n, uint64_t id)
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

static void batch_add(struct mark_batch *b, struct node *n, uint64_t id)
{
    b->at = mem_grow(b->at, b->n + 1, sizeof(*b->at));
    b->at[b->n].node = n;
    b->at[b->n++].id = id;
}

void mark_batch_free(struct mark_batch *b)
{
    free(b->at);
    free(b);
}

static void stored_at_last(struct change *c, void *arg, int rc, const struct err *why)
{
    struct mark_batch *b = arg;
    struct marks *all = change_sluiced(c)->marks;

    (void)why;
    if (rc < 0) {                        /* kept changes are never refused while we run: this is the end of the program */
        mark_batch_free(b);
        return;
    }
    for (unsigned i = 0; i < b->n; i++) {
        struct mark *m = mark_find(b->at[i].node, b->at[i].id);

        all->not_stored--;
        if (m == NULL)
            continue;
        m->unsaved = NULL;
        m->stored = true;
        slurm_node_changed(b->at[i].node);
    }
    mark_batch_free(b);
}

/* On disk; or not: then it acts all the same, and goes on trying. */
static void set_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct mark_batch *b = arg;
    struct err e;

    for (unsigned i = 0; rc == 0 && i < b->n; i++) {
        struct mark *m = mark_find(b->at[i].node, b->at[i].id);

        if (m != NULL)
            m->stored = true;
        slurm_node_changed(b->at[i].node);       /* others hear of what is on our disk */
    }
    if (rc == 0) {
        mark_batch_free(b);
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

static struct mark *mark_set(struct change *c, struct mark_batch *b, struct node *n, const struct row_mark *want)
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

int mark_check_reason(const char *reason, struct err *e)
{
    if (reason == NULL || reason[strspn(reason, " \t\r\n")] == '\0')
        return err_set(e, ERR_USAGE, "a reason is wanted: people read it at night");
    if (strlen(reason) > MOST_REASON)
        return err_set(e, ERR_USAGE, "the reason has %zu bytes, at most %d are kept", strlen(reason), MOST_REASON);
    return 0;
}

int mark_check_tool(const char *tool, struct err *e)
{
    static const char *const kinds[] = { "person", "health", "slurm", "tool", "sluiced" };

    if (tool == NULL || tool[0] == '\0')
        return 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (strcmp(tool, kinds[i]) == 0)
            return err_set(e, ERR_USAGE, "tool '%s': that is who else marks nodes; a name of the program's own is wanted", tool);
    }
    return str_is_name(tool) ? 0 : err_set(e, ERR_USAGE, "tool '%.80s': a program's name has 1 to 63 letters, digits, '.', '_', '-'", tool);
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
    if (mark_check_reason(m->reason, e) < 0 || check_class(m->class_, e) < 0)
        return -1;
    if (mark_check_tool(m->tool, e) < 0)
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

struct node **mark_find_nodes(struct sluiced *d, char *const *names, size_t n, struct err *e)
{
    struct node **nodes;

    if (farm_check_names(d->farm, names, n, NULL, e) < 0)
        return NULL;
    nodes = mem_array(n + 1, sizeof(*nodes));
    for (size_t i = 0; i < n; i++)
        nodes[i] = farm_node(d->farm, names[i]);
    return nodes;
}

/* The open mark of a program that says the very same again, as one that looks every minute does: one fault, one mark. */
static const struct mark *said_before(struct node *n, const struct row_mark *want)
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!m->closing && strcmp(want->owner_kind, "tool") == 0 && strcmp(m->owner_kind, "tool") == 0 && strcmp(m->owner, want->owner) == 0
            && strcmp(m->part, want->part == NULL ? "node" : want->part) == 0 && strcmp(m->reason, want->reason) == 0
            && m->block == (strcmp(want->severity, "info") != 0) && m->until == want->until)
            return m;
    }
    return NULL;
}

static void set_one(struct change *c, struct mark_batch *b, struct node *n, const struct row_mark *want, bool dry_run)
{
    const struct mark *before = said_before(n, want);
    struct mark *m;

    if (before != NULL) {
        change_result(c, n->name, ERR_NONE, before->id, "is marked so already: mark %llu", (unsigned long long)before->id);
        return;
    }
    if (dry_run) {
        change_result(c, n->name, ERR_NONE, 0, "would be marked%s%s", want->part == NULL ? "" : ": device ", want->part == NULL ? "" : want->part);
        return;
    }
    m = mark_set(c, b, n, want);
    change_result(c, n->name, ERR_NONE, m->id, "marked%s%s (mark %llu)", want->part == NULL ? "" : ": device ", want->part == NULL ? "" : want->part,
                  (unsigned long long)m->id);
}

static bool named_before(const Sluice__MarkNodes *m, size_t p)
{
    for (size_t k = 0; k < p; k++) {
        if (strcmp(m->parts[k], m->parts[p]) == 0)
            return true;
    }
    return false;
}

static void set_all(struct change *c, struct mark_batch *b, struct node *const *nodes, const Sluice__MarkNodes *m, struct row_mark *want)
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
            if (!named_before(m, p) && node_has_part(nodes[i], m->parts[p]))
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
        .owner_kind = m->tool != NULL && m->tool[0] != '\0' ? "tool" : "person", .owner = m->tool != NULL && m->tool[0] != '\0' ? m->tool : s->peer.user, .class = m->class_ == NULL || m->class_[0] == '\0' ? "hw" : m->class_,
        .severity = m->has_severity && m->severity == SLUICE__SEVERITY__INFO ? "info" : "block", .reason = m->reason,
        .until = m->has_until ? m->until : 0,
    };
    struct node **nodes = NULL;
    struct change *c;
    struct mark_batch *b;
    struct err e;

    if (check_mark(m, &e) < 0 || (nodes = mark_find_nodes(s->d, m->names, m->n_names, &e)) == NULL || check_parts(nodes, m, &e) < 0
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
        mark_batch_free(b);
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
    struct mark_batch *b;
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

/* One that still waits for the disk, or goes, is left as it is: its owner says so again. */
bool mark_automatic_renew(struct node *n, struct mark *m, const char *reason, const char *evidence, bool told)
{
    struct change *c;
    struct mark_batch *b;
    struct row_mark row;

    if (!m->stored || m->closing)
        return false;
    c = change_create(n->d);
    b = mem_zalloc(sizeof(*b));
    m->shown = clock_mono_ns();
    if (told) {
        m->told = m->shown;
        change_event(c, n->name, "mark renewed", m->reason, reason, "");
        log_warning("node %s: mark %llu of %s %s says now: %s", n->name, (unsigned long long)m->id, m->owner_kind, m->owner, reason);
    }
    free(m->reason);
    m->reason = mem_strdup(reason);
    if (evidence != NULL) {
        free(m->evidence);
        m->evidence = mem_strdup(evidence);
    }
    m->stored = false;
    row = mark_row(n, m);
    change_mark(c, &row);
    batch_add(b, n, m->id);
    change_put(c, CHANGE_MARK, set_written, b);
    return true;
}

/* ---- clear ---- */

void mark_clear_add(struct change *c, struct mark_batch *b, struct node *n, struct mark *m, const char *by, const char *reason)
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

void mark_clear_written(struct change *c, void *arg, int rc, const struct err *why)
{
    struct mark_batch *b = arg;
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
    mark_batch_free(b);
}

unsigned mark_automatic_clear(struct node *n, const char *part, const char *owner_kind, const char *owner, const char *reason)
{
    struct change *c;
    struct mark_batch *b;
    struct mark *m;
    unsigned going;

    if (mark_automatic_find(n, part, owner_kind, owner) == NULL)
        return 0;
    c = change_create(n->d);
    b = mem_zalloc(sizeof(*b));
    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!m->closing && strcmp(m->owner_kind, owner_kind) == 0 && strcmp(m->owner, owner) == 0 && strcmp(m->part, part == NULL ? "node" : part) == 0)
            mark_clear_add(c, b, n, m, owner, reason);
    }
    going = b->n;
    change_put(c, CHANGE_MARK, mark_clear_written, b);
    return going;
}

/* ---- the end of its time ---- */

static void end_of_time(struct node *n, int64_t now, int64_t *next)
{
    struct change *c = NULL;
    struct mark_batch *b = NULL;
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
        mark_clear_add(c, b, n, m, "sluiced", "its time is over");
    }
    if (c != NULL)
        change_put(c, CHANGE_KEEP, mark_clear_written, b);
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
