/* dispatch.c - the order of nodes, and the choice
 *
 * From: flow.c's nodes (dispatch_changed).  To: assign.c (dispatch_choose).
 * A group has two trees over the same nodes, each an array of 2^k leaves with the sums of both children above them:
 *  - `level`, leaves sorted by class, size and mark. Where all leaves below a place share these three, the least charged one wins for every
 *    need, so its winner is kept there; where they differ, the lowest fill and the largest size give a bound, and a search leaves out what
 *    cannot win.
 *  - `turn`, leaves in the order of the round-robin list: the first with room is found from the left. The chosen one moves behind the last
 *    leaf; when there is no place left behind it, the list is packed anew.
 * What always holds: a node's sums agree with the node as it was at its last dispatch_changed.
 */
#include "config.h"
#include "dispatch.h"

#include <math.h>
#include <stdlib.h>
#include "mem.h"

const char *const disp_policy_name[2] = { "buffer", "round-robin" };

enum { LEVEL = 0, TURN = 1, GROUP = 2, ADDED = 3 };      /* what disp_node.place holds */
#define NOWHERE ((size_t)-1)

struct level {
    struct disp_node *best;      /* of a uniform place: the winner; else NULL */
    bool     uniform;            /* all that could be chosen below share class, size and mark */
    double   fill;               /* the lowest */
    uint64_t size, room;         /* the largest */
    unsigned classes;
};

struct turn {
    uint64_t room, size;         /* the largest room; the largest size of a usable node */
    unsigned classes;
};

struct group {
    int id;
    struct disp_node **node;     /* leaves of level, by key; all nodes of the group */
    size_t n_nodes, cap_nodes;
    struct level *level;
    size_t n_level;              /* leaves: a power of two */
    bool stale;                  /* the order or number of leaves changed: to be built anew */
    struct disp_node **list;     /* leaves of turn, NULL where one left */
    struct turn *turn;
    size_t n_list, cap_list;
};

struct dispatch {
    struct group *groups;
    size_t n_groups;
    uint64_t decisions, added;
};

struct dispatch *dispatch_create(void)
{
    return mem_zalloc(sizeof(struct dispatch));
}

void dispatch_destroy(struct dispatch *d)
{
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->n_groups; i++) {
        free(d->groups[i].node);
        free(d->groups[i].level);
        free(d->groups[i].list);
        free(d->groups[i].turn);
    }
    free(d->groups);
    free(d);
}

/* ---- one node ------------------------------------------------------------------------------ */

static uint64_t load_of(const struct disp_node *n)
{
    return n->charged + n->ghost;
}

static uint64_t mark_of(const struct disp_node *n)
{
    double mark = n->high_water * (double)n->size;

    return mark <= 0 ? 0 : mark >= (double)n->size ? n->size : (uint64_t)mark;
}

/* By the number of its TFs; whatever else fits. */
static enum disp_bar bar_of_number(const struct disp_node *n)
{
    if (n->building >= n->building_limit)
        return DISP_BUILDING;
    return n->held_limit > 0 && n->held >= n->held_limit ? DISP_HELD : DISP_TAKES;
}

/* The smallest need that does not fit; 0: nothing fits. */
static uint64_t room_of(const struct disp_node *n)
{
    uint64_t load = load_of(n), mark = mark_of(n);

    if (!n->usable || bar_of_number(n) != DISP_TAKES || n->size == 0)
        return 0;
    if (load == 0)
        return n->size + 1;
    return load <= mark ? mark - load + 1 : 0;
}

enum disp_bar disp_bar(const struct disp_node *n, uint64_t bytes)
{
    enum disp_bar bar = bar_of_number(n);

    if (bytes > n->size)
        return DISP_SMALL;
    if (bar != DISP_TAKES || load_of(n) == 0)
        return bar;
    return load_of(n) + bytes > mark_of(n) ? DISP_FULL : DISP_TAKES;
}

double disp_fill(const struct disp_node *n, uint64_t bytes)
{
    return n->size == 0 ? INFINITY : (double)(load_of(n) + bytes) / (double)n->size;
}

static int compare_ties(const struct disp_node *a, const struct disp_node *b)
{
    if (a->speed != b->speed)
        return a->speed > b->speed ? -1 : 1;
    if (a->chosen != b->chosen)
        return a->chosen < b->chosen ? -1 : 1;
    return a->place[ADDED] < b->place[ADDED] ? -1 : 1;
}

/* Exact: fractions are compared crosswise. */
static bool is_better(const struct disp_node *a, const struct disp_node *b, uint64_t bytes)
{
    unsigned __int128 left = (unsigned __int128)(load_of(a) + bytes) * b->size;
    unsigned __int128 right = (unsigned __int128)(load_of(b) + bytes) * a->size;

    return left != right ? left < right : compare_ties(a, b) < 0;
}

static struct disp_node *lesser_load(struct disp_node *a, struct disp_node *b)
{
    if (a == NULL || b == NULL)
        return a ? a : b;
    if (load_of(a) != load_of(b))
        return load_of(a) < load_of(b) ? a : b;
    return compare_ties(a, b) < 0 ? a : b;
}

static bool same_key(const struct disp_node *a, const struct disp_node *b)
{
    return a->class_bit == b->class_bit && a->size == b->size && a->high_water == b->high_water;
}

static int compare_keys(const void *left, const void *right)
{
    const struct disp_node *a = *(struct disp_node *const *)left, *b = *(struct disp_node *const *)right;

    if (a->class_bit != b->class_bit)
        return a->class_bit < b->class_bit ? -1 : 1;
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    if (a->high_water != b->high_water)
        return a->high_water < b->high_water ? -1 : 1;
    return a->place[ADDED] < b->place[ADDED] ? -1 : 1;
}

/* ---- tree by level ------------------------------------------------------------------------- */

static struct level level_leaf(struct disp_node *n)
{
    uint64_t room = n ? room_of(n) : 0;

    if (room == 0)
        return (struct level){ .uniform = true, .fill = INFINITY };
    return (struct level){ .best = n, .uniform = true, .fill = disp_fill(n, 0), .size = n->size,
                           .room = room, .classes = n->class_bit };
}

static struct level level_join(const struct level *a, const struct level *b)
{
    struct level sum = {
        .fill = a->fill < b->fill ? a->fill : b->fill,
        .size = a->size > b->size ? a->size : b->size,
        .room = a->room > b->room ? a->room : b->room,
        .classes = a->classes | b->classes,
    };

    sum.uniform = a->uniform && b->uniform && (a->best == NULL || b->best == NULL || same_key(a->best, b->best));
    if (sum.uniform)
        sum.best = lesser_load(a->best, b->best);
    return sum;
}

static void level_build(struct group *g)
{
    size_t leaves = 1;

    qsort(g->node, g->n_nodes, sizeof(*g->node), compare_keys);
    while (leaves < g->n_nodes)
        leaves *= 2;
    if (leaves != g->n_level) {
        free(g->level);
        g->level = mem_array(2 * leaves, sizeof(*g->level));
        g->n_level = leaves;
    }
    for (size_t i = 0; i < leaves; i++) {
        g->level[leaves + i] = level_leaf(i < g->n_nodes ? g->node[i] : NULL);
        if (i < g->n_nodes)
            g->node[i]->place[LEVEL] = i;
    }
    for (size_t i = leaves - 1; i > 0; i--)
        g->level[i] = level_join(&g->level[2 * i], &g->level[2 * i + 1]);
    g->stale = false;
}

static void level_update(struct group *g, struct disp_node *n)
{
    size_t i = n->place[LEVEL];

    if (g->stale)
        return;
    if ((i > 0 && compare_keys(&g->node[i - 1], &g->node[i]) > 0) ||
        (i + 1 < g->n_nodes && compare_keys(&g->node[i], &g->node[i + 1]) > 0)) {
        g->stale = true;
        return;
    }
    g->level[g->n_level + i] = level_leaf(n);
    for (i = (g->n_level + i) / 2; i > 0; i /= 2)
        g->level[i] = level_join(&g->level[2 * i], &g->level[2 * i + 1]);
}

/* ---- tree by turn -------------------------------------------------------------------------- */

static struct turn turn_leaf(const struct disp_node *n)
{
    if (n == NULL || !n->usable)
        return (struct turn){ 0 };
    return (struct turn){ .room = room_of(n), .size = n->size, .classes = n->class_bit };
}

static struct turn turn_join(const struct turn *a, const struct turn *b)
{
    return (struct turn){ .room = a->room > b->room ? a->room : b->room,
                          .size = a->size > b->size ? a->size : b->size,
                          .classes = a->classes | b->classes };
}

static void turn_update(struct group *g, size_t i)
{
    g->turn[g->cap_list + i] = turn_leaf(g->list[i]);
    for (i = (g->cap_list + i) / 2; i > 0; i /= 2)
        g->turn[i] = turn_join(&g->turn[2 * i], &g->turn[2 * i + 1]);
}

/* Packs the list, so that half of its places are free behind the last node. */
static void turn_pack(struct group *g)
{
    size_t cap = 16, n = 0;

    while (cap < 2 * g->n_nodes)
        cap *= 2;
    struct disp_node **list = mem_array(cap, sizeof(*list));
    for (size_t i = 0; i < g->n_list; i++) {
        if (g->list[i] == NULL)
            continue;
        g->list[i]->place[TURN] = n;
        list[n++] = g->list[i];
    }
    free(g->list);
    free(g->turn);
    g->list = list;
    g->n_list = n;
    g->cap_list = cap;
    g->turn = mem_array(2 * cap, sizeof(*g->turn));
    for (size_t i = 0; i < cap; i++)
        g->turn[cap + i] = turn_leaf(list[i]);
    for (size_t i = cap - 1; i > 0; i--)
        g->turn[i] = turn_join(&g->turn[2 * i], &g->turn[2 * i + 1]);
}

static void turn_append(struct group *g, struct disp_node *n)
{
    if (g->n_list == g->cap_list)
        turn_pack(g);
    n->place[TURN] = g->n_list;
    g->list[g->n_list++] = n;
    turn_update(g, n->place[TURN]);
}

static void turn_leave(struct group *g, struct disp_node *n)
{
    size_t i = n->place[TURN];

    g->list[i] = NULL;
    turn_update(g, i);
}

/* ---- members ------------------------------------------------------------------------------- */

static struct group *group_find(struct dispatch *d, int id)
{
    for (size_t i = 0; i < d->n_groups; i++) {
        if (d->groups[i].id == id)
            return &d->groups[i];
    }
    return NULL;
}

static void group_join(struct dispatch *d, struct disp_node *n)
{
    struct group *g = group_find(d, n->group);

    if (g == NULL) {
        d->groups = mem_grow(d->groups, d->n_groups + 1, sizeof(*d->groups));
        g = &d->groups[d->n_groups++];
        *g = (struct group){ .id = n->group, .stale = true };
    }
    if (g->n_nodes == g->cap_nodes) {
        g->cap_nodes = g->cap_nodes ? 2 * g->cap_nodes : 8;
        g->node = mem_grow(g->node, g->cap_nodes, sizeof(*g->node));
    }
    n->place[LEVEL] = g->n_nodes;
    n->place[GROUP] = (size_t)(g - d->groups);
    g->node[g->n_nodes++] = n;
    g->stale = true;
    turn_append(g, n);
}

static void group_leave(struct dispatch *d, struct disp_node *n)
{
    struct group *g = &d->groups[n->place[GROUP]];
    struct disp_node *last = g->node[g->n_nodes - 1];

    turn_leave(g, n);
    g->node[n->place[LEVEL]] = last;
    last->place[LEVEL] = n->place[LEVEL];
    g->n_nodes--;
    g->stale = true;
}

void dispatch_add(struct dispatch *d, struct disp_node *n)
{
    n->place[ADDED] = (size_t)++d->added;
    group_join(d, n);
}

void dispatch_remove(struct dispatch *d, struct disp_node *n)
{
    group_leave(d, n);
    n->place[GROUP] = NOWHERE;
}

void dispatch_changed(struct dispatch *d, struct disp_node *n)
{
    struct group *g = &d->groups[n->place[GROUP]];

    if (g->id != n->group) {
        group_leave(d, n);
        group_join(d, n);
        return;
    }
    level_update(g, n);
    turn_update(g, n->place[TURN]);
}

/* ---- the choice ---------------------------------------------------------------------------- */

static bool is_refused(const struct disp_need *need, const struct disp_node *n)
{
    for (unsigned i = 0; i < need->n_refused; i++) {
        if (need->refused[i] == n)
            return true;
    }
    return false;
}

static unsigned classes_of(const struct disp_need *need)
{
    return need->classes ? need->classes : ~0u;
}

/* No node below can do better than this; a little is taken off for rounding. */
static double bound_of(const struct level *l, uint64_t bytes)
{
    return l->size == 0 ? INFINITY : (l->fill + (double)bytes / (double)l->size) * (1 - 1e-12);
}

static void level_search(const struct group *g, size_t i, const struct disp_need *need, struct disp_node **best)
{
    const struct level *l = &g->level[i];

    if (l->room <= need->bytes || (l->classes & classes_of(need)) == 0)
        return;
    if (*best != NULL && bound_of(l, need->bytes) > disp_fill(*best, need->bytes))
        return;
    if (l->uniform && !is_refused(need, l->best)) {
        if (*best == NULL || is_better(l->best, *best, need->bytes))
            *best = l->best;
        return;
    }
    if (i >= g->n_level)
        return;
    bool right_first = bound_of(&g->level[2 * i + 1], need->bytes) < bound_of(&g->level[2 * i], need->bytes);
    level_search(g, 2 * i + (right_first ? 1 : 0), need, best);
    level_search(g, 2 * i + (right_first ? 0 : 1), need, best);
}

/* The first in the list that has room (or, with by_size, could have it when it is empty). */
static struct disp_node *turn_search(const struct group *g, size_t i, const struct disp_need *need, bool by_size)
{
    const struct turn *t = &g->turn[i];
    bool enough = by_size ? t->size >= need->bytes && t->size > 0 : t->room > need->bytes;

    if (!enough || (t->classes & classes_of(need)) == 0)
        return NULL;
    if (i >= g->cap_list) {
        struct disp_node *n = g->list[i - g->cap_list];
        return is_refused(need, n) ? NULL : n;
    }
    struct disp_node *n = turn_search(g, 2 * i, need, by_size);
    return n ? n : turn_search(g, 2 * i + 1, need, by_size);
}

struct disp_node *dispatch_choose(struct dispatch *d, const struct disp_need *need, bool *could)
{
    struct group *g = group_find(d, need->group);
    struct disp_node *best = NULL;

    if (could)
        *could = false;
    if (g == NULL || g->n_nodes == 0)
        return NULL;
    if (g->stale)
        level_build(g);
    if (need->policy == DISP_ROUND_ROBIN)
        best = turn_search(g, 1, need, false);
    else
        level_search(g, 1, need, &best);
    if (best == NULL) {
        if (could)
            *could = turn_search(g, 1, need, true) != NULL;
        return NULL;
    }
    if (could)
        *could = true;
    best->chosen = ++d->decisions;
    level_update(g, best);
    if (need->policy == DISP_ROUND_ROBIN) {
        turn_leave(g, best);
        turn_append(g, best);
    }
    return best;
}
