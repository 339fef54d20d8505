/* clear.c - people clear marks
 *
 * From: CLEAR_MARKS.  To: mark.c, change.c.
 * One's own marks, those of the program in whose name one asks, or with the right those of others. A list is cleared whole or not at all: every node is looked at before anything goes.
 * A repeat offender is judged by the blocking marks that it had before those that are open now, however they are named here; notes are no offence.
 */
#include "config.h"

#include "mark_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "str.h"

/* Who asks in the name of a program means that program's marks alone. */
static bool is_own(const struct session *s, const char *tool, const struct mark *m)
{
    if (tool != NULL && tool[0] != '\0')
        return strcmp(m->owner_kind, "tool") == 0 && strcmp(m->owner, tool) == 0;
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
    return !m->closing && (k->q->id == 0 || m->id == k->q->id) && (k->any_owner || is_own(k->s, k->q->tool, m));
}

/* Blocking marks that it had before those that are open. */
static unsigned marks_before(const struct node *n)
{
    const struct mark *m;
    unsigned open = 0;

    TAILQ_FOREACH(m, &n->marks, entry)
        open += m->block;
    return n->marks_ever - open;
}

/* A node that is taken out again and again does not come back by the way: whatever of its blocking marks is to go, and in whose name. */
static bool is_repeat_offence(const struct clearing *k, const struct node *n)
{
    const struct mark *m;

    if (k->q->repeat_ok || marks_before(n) < MARK_REPEAT)
        return false;
    TAILQ_FOREACH(m, &n->marks, entry) {
        if (m->block && may_go(k, m))
            return true;
    }
    return false;
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

/* Whoever forgot, or mistook, the name of a program needs no more rights than before. */
static const char *what_clears(const struct clearing *k, const struct mark *m, char hint[100])
{
    if (is_own(k->s, NULL, m))
        snprintf(hint, 100, "it is yours: leave --tool out");
    else if (strcmp(m->owner_kind, "tool") == 0)
        snprintf(hint, 100, "--tool %.60s clears that program's", m->owner);
    else
        snprintf(hint, 100, "--any-owner clears it too");
    return hint;
}

/* What becomes of one node: 1: marks of it go; 0: it has none that is meant; -1: it stops the whole list. e says why but for 1. */
static int check_clear(struct clearing *k, const struct node *n, struct err *e)
{
    const struct mark *stays;
    unsigned going = count_going(k, n, &stays);
    char hint[100];

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
        return err_set(e, ERR_STATE, "node %s: mark %llu is of %s %.60s (%.200s); %s", n->name, (unsigned long long)stays->id,
                       stays->owner_kind, stays->owner, stays->reason, what_clears(k, stays, hint));
    }
    if (is_repeat_offence(k, n)) {
        k->word = "RepeatOffender";
        return err_set(e, ERR_STATE, "node %s: was marked %u times before; --repeat-ok puts it back into service all the same", n->name, marks_before(n));
    }
    return 1;
}

static void clear_one(const struct clearing *k, struct change *c, struct mark_batch *b, struct node *n)
{
    struct str what = { 0 }, stay = { 0 };
    struct mark *m;
    uint64_t first = 0;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (!may_go(k, m)) {
            if (k->q->id == 0)
                str_addf(&stay, "%s mark %llu of %s %s", stay.len == 0 ? "; stays:" : ",", (unsigned long long)m->id, m->owner_kind, m->owner);
            continue;
        }
        str_addf(&what, "%s%llu", what.len == 0 ? "" : ", ", (unsigned long long)m->id);
        first = first == 0 ? m->id : first;
        if (!k->q->dry_run)
            mark_clear_add(c, b, n, m, change_author(c), k->q->reason);
    }
    if (first == 0)                      /* named twice: its marks are on their way already */
        goto done;
    change_result(c, n->name, ERR_NONE, first, "%s %s%s", k->q->dry_run ? "would clear mark" : "cleared mark", str_text(&what), str_text(&stay));
done:
    str_free(&what);
    str_free(&stay);
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
        return mark_find_nodes(s->d, q->names, q->n_names, e);
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

/* The answer when some nodes stop a list: which ones, and why the first does. */
static int stopped(struct node *const *nodes, size_t n, const int *rc, size_t stopping, struct err *e)
{
    struct hostlist *names = hostlist_create();
    struct err ignored;

    for (size_t i = 0; i < n; i++) {
        if (rc[i] < 0)
            hostlist_add(names, nodes[i]->name, &ignored);
    }
    char *list = hostlist_fold(names);
    err_prefix(e, "%.100s: %zu of %zu nodes stop this, nothing is cleared (--dry-run says why of each); the first", list, stopping, n);
    free(list);
    hostlist_destroy(names);
    return -1;
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
        return n == 1 ? -1 : stopped(nodes, n, rc, stopping, e);
    }
    if (going == 0 && stopping == 0 && k->q->id != 0) {      /* a mark was named, and is not there */
        *e = errs[0];
        return -1;
    }
    return 0;
}

static void clear_all(const struct clearing *k, struct change *c, struct mark_batch *b, struct node *const *nodes, size_t n, const int *rc, const struct err *errs)
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
    struct mark_batch *b;
    struct err e, *errs = NULL;
    int *rc = NULL;
    size_t n = 0;

    if (mark_check_reason(q->reason, &e) < 0 || mark_check_tool(q->tool, &e) < 0 || (nodes = cleared_nodes(s, q, &n, &e)) == NULL)
        goto refused;
    errs = mem_array(n, sizeof(*errs));
    rc = mem_array(n, sizeof(*rc));
    if (check_all(&k, nodes, n, rc, errs, &e) < 0)
        goto refused;
    c = change_asked(s, id);
    b = mem_zalloc(sizeof(*b));
    clear_all(&k, c, b, nodes, n, rc, errs);
    if (change_size(c) > 0) {
        change_put(c, CHANGE_MARK, mark_clear_written, b);
    } else {
        mark_batch_free(b);
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
