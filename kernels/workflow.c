/* workflow.c - which stages a workflow has, on which backend each runs, with which options
 *
 * From: what a person or sluiced asks for.  To: pipeline.c.
 * Here everything is refused that can be refused without looking at a machine. A stage that is
 * not named keeps the default; a CPU stage beside GPU stages is a choice like any other.
 */
#include "workflow.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/bk_load.h"

#ifndef ALL_BACKENDS              /* a test has stages without code for a GPU */
#define ALL_BACKENDS { "cpu", "cuda", "hip", "opencl", NULL }
#endif

const struct stage_desc stages[STAGE_COUNT] = {
    [STAGE_DECODE] = {
        "decode", "digits", "pages -> digits", ALL_BACKENDS,
        { { "batch", 32 << 20, 4096, UINT64_C(2) << 30, true, "bytes of pages done at a time" } },
    },
    [STAGE_CLUSTER] = {
        "cluster", "clusters", "digits -> clusters", ALL_BACKENDS,
        { { "peak", 3, 0, 1023, false, "counts a peak must exceed" },
          { "qtot", 5, 0, 25575, false, "counts a cluster must exceed" },
          { "noise_run", 200, 1, 4000, false, "samples in a row that make a pad noisy" },
          { "noise_count", 2000, 1, 4000, false, "samples in 4000 bins that make a pad noisy" },
          { "noise_max", 700, 0, 1024, false, "counts that clear a pad of it" } },
    },
};

const struct workflow workflows[] = {
    { "none", "takes in, checks the block headers, lets go", 0, { 0 } },
    { "decode", "digits", 1, { STAGE_DECODE } },
    { "cluster", "digits and clusters", 2, { STAGE_DECODE, STAGE_CLUSTER } },
    { 0 },
};

enum { BACKENDS_MAX = 16 };       /* of a stage, for a message */

static const char *const generic[] = { "auto", "gpu", NULL };

/* Joins names for a message. */
static const char *join(char *out, size_t room, const char *const *a, const char *const *b)
{
    size_t n = 0;
    out[0] = '\0';
    for (int k = 0; k < 2; k++) {
        for (const char *const *s = k ? b : a; s && *s && n < room; s++)
            n += (size_t)snprintf(out + n, room - n, "%s%s", n ? ", " : "", *s);
    }
    return out;
}

const char *workflow_backend(const struct stage_desc *s, unsigned i)
{
    for (const char *const *x = s->backends; *x; x++) {
        if (i-- == 0)
            return *x;
    }
    return bk_added(i);
}

/* The choices for a stage, first those in `before`. */
static const char *choices(char *out, size_t room, const char *const *before,
                           const struct stage_desc *s)
{
    const char *list[BACKENDS_MAX + 1] = { 0 };

    for (unsigned i = 0; i < BACKENDS_MAX && (list[i] = workflow_backend(s, i)) != NULL; i++)
        ;
    return join(out, room, before, list);
}

void workflow_backends(enum stage_id id, char *out, size_t room)
{
    choices(out, room, generic, &stages[id]);
}

static const struct workflow *find_workflow(const char *name, struct k_err *e)
{
    char names[200];
    const char *list[16];
    unsigned n = 0;

    for (const struct workflow *w = workflows; w->name; w++) {
        if (strcmp(w->name, name) == 0)
            return w;
        list[n++] = w->name;
    }
    list[n] = NULL;
    k_fail(e, K_EOPTION, "no workflow \"%s\": choices are %s", name,
           join(names, sizeof names, list, NULL));
    return NULL;
}

/* The name as it stands in our tables, so that the caller's text may go away; NULL: the stage has no such backend. */
static const char *own_name(const struct stage_desc *s, const char *b)
{
    const char *x;
    unsigned i = 0;

    while ((x = workflow_backend(s, i)) != NULL && strcmp(x, b) != 0)
        i++;
    return x;
}

static bool has_backend(const struct stage_desc *s, const char *b)
{
    return own_name(s, b) != NULL;
}

static bool is_generic(const char *b)
{
    return strcmp(b, generic[0]) == 0 || strcmp(b, generic[1]) == 0;
}

static bool has_gpu(const struct stage_desc *s)
{
    return has_backend(s, "cuda") || has_backend(s, "hip") || has_backend(s, "opencl");
}

static int set_backend(struct workflow_choice *c, enum stage_id id, const char *b,
                       struct k_err *e)
{
    const struct stage_desc *s = &stages[id];
    char names[200];

    if (!has_backend(s, b) && !is_generic(b))
        return k_fail(e, K_EOPTION, "stage %s: no backend \"%s\"; choices are %s", s->name, b,
                      choices(names, sizeof names, generic, s));
    if (strcmp(b, "gpu") == 0 && !has_gpu(s))
        return k_fail(e, K_EOPTION, "stage %s has no code for a GPU; choices are %s", s->name,
                      choices(names, sizeof names, NULL, s));
    if (is_generic(b))
        c->backend[id] = generic[strcmp(b, generic[0]) != 0];
    else
        c->backend[id] = own_name(s, b);
    return 0;
}

static int find_stage(const struct workflow *w, const char *name, enum stage_id *id,
                      struct k_err *e)
{
    const char *list[WORKFLOW_STAGES + 1] = { 0 };
    char names[200];

    for (unsigned i = 0; i < w->stages; i++) {
        list[i] = stages[w->stage[i]].name;
        if (strcmp(list[i], name) == 0) {
            *id = w->stage[i];
            return 0;
        }
    }
    return k_fail(e, K_EOPTION, "workflow %s has no stage \"%s\"; %s%s", w->name, name,
                  w->stages ? "its stages are " : "it has none",
                  join(names, sizeof names, list, NULL));
}

int workflow_size(const char *text, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    uint64_t v = strtoull(text, &end, 10);
    const char *u = *end ? strchr(units, *end) : NULL;
    unsigned shift = u ? 10 * (unsigned)(u - units + 1) : 0;
    if (errno || (*end && (u == NULL || end[1] != '\0')) || v > UINT64_MAX >> shift)
        return -1;
    *out = v << shift;
    return 0;
}

static int set_option(struct workflow_choice *c, enum stage_id id, const char *name,
                      const char *value, struct k_err *e)
{
    const struct stage_desc *s = &stages[id];
    const char *list[STAGE_OPTIONS + 1] = { 0 };
    char names[200];
    uint64_t v;

    for (unsigned i = 0; i < STAGE_OPTIONS && s->option[i].name; i++) {
        const struct stage_option *o = &s->option[i];
        list[i] = o->name;
        if (strcmp(o->name, name) != 0)
            continue;
        if (workflow_size(value, &v) < 0 || v < o->min || v > o->max ||
            (!o->is_size && strspn(value, "0123456789") != strlen(value)))
            return k_fail(e, K_EOPTION, "%s.%s=%s: want %s from %" PRIu64 " to %" PRIu64,
                          s->name, name, value, o->is_size ? "a size" : "a number", o->min,
                          o->max);
        c->option[id][i] = v;
        return 0;
    }
    return k_fail(e, K_EOPTION, "stage %s has no option \"%s\"; %s%s", s->name, name,
                  list[0] ? "its options are " : "it takes none",
                  join(names, sizeof names, list, NULL));
}

/* One piece of the list of backends: B or STAGE=B. */
static int take_backend(struct workflow_choice *c, char *piece, struct k_err *e)
{
    char *eq = strchr(piece, '=');
    enum stage_id id;

    if (eq) {
        *eq = '\0';
        if (find_stage(c->workflow, piece, &id, e) < 0)
            return -1;
        return set_backend(c, id, eq + 1, e);
    }
    for (unsigned i = 0; i < c->workflow->stages; i++) {
        if (set_backend(c, c->workflow->stage[i], piece, e) < 0)
            return -1;
    }
    if (c->workflow->stages == 0 && !has_backend(&stages[0], piece) && !is_generic(piece))
        return k_fail(e, K_EOPTION, "no backend \"%s\"", piece);
    return 0;
}

static int take_option(struct workflow_choice *c, char *piece, struct k_err *e)
{
    char *dot = strchr(piece, '.'), *eq = strchr(piece, '=');
    enum stage_id id;

    if (dot == NULL || eq == NULL || dot > eq)
        return k_fail(e, K_EOPTION, "option \"%s\": want STAGE.OPTION=VALUE", piece);
    *dot = *eq = '\0';
    if (find_stage(c->workflow, piece, &id, e) < 0)
        return -1;
    return set_option(c, id, dot + 1, eq + 1, e);
}

/* KEY=VALUE, or VALUE alone, the default, of whose key the length is 0. */
static const char *value_of(const char *piece, size_t len, size_t *key)
{
    const char *eq = memchr(piece, '=', len);

    *key = eq ? (size_t)(eq - piece) : 0;
    return eq ? eq + 1 : piece;
}

/* The same key with another value further on in the list: one of the two would be lost in silence. */
static int check_twice(const char *list, struct k_err *e)
{
    for (const char *a = list + strspn(list, ","); *a; a += strspn(a, ",")) {
        size_t n = strcspn(a, ","), key, len, other;
        const char *v = value_of(a, n, &key), *end = a + n;
        for (const char *b = end + strspn(end, ","); *b; b += len, b += strspn(b, ",")) {
            len = strcspn(b, ",");
            const char *w = value_of(b, len, &other), *b_end = b + len;
            if (key != other || memcmp(a, b, key) != 0 || (end - v == b_end - w && memcmp(v, w, (size_t)(end - v)) == 0))
                continue;
            return k_fail(e, K_EOPTION, "%s%.*s is given twice: %.*s and %.*s",
                          key == 0 ? "the default" : memchr(a, '.', key) ? "" : "stage ", (int)key, a, (int)(end - v), v,
                          (int)(b_end - w), w);
        }
        a = end;
    }
    return 0;
}

/* Calls take() for the pieces of a comma separated list. Defaults (pieces without "=") go first,
 * so that their place in the list does not matter. */
static int each(struct workflow_choice *c, const char *list,
                int (*take)(struct workflow_choice *, char *, struct k_err *), struct k_err *e)
{
    if (list == NULL || *list == '\0')
        return 0;
    if (check_twice(list, e) < 0)
        return -1;
    for (int with_eq = 0; with_eq < 2; with_eq++) {
        char *copy = strdup(list), *save = NULL;
        int r = 0;
        if (copy == NULL)
            return k_fail(e, K_ENOMEM, "out of memory");
        for (char *p = strtok_r(copy, ",", &save); p && r == 0; p = strtok_r(NULL, ",", &save)) {
            if ((strchr(p, '=') != NULL) == (with_eq != 0))
                r = take(c, p, e);
        }
        free(copy);
        if (r < 0)
            return -1;
    }
    return 0;
}

int workflow_choose(const char *workflow, const char *backends, const char *options,
                    struct workflow_choice *c, struct k_err *e)
{
    struct workflow_choice n = { 0 };

    n.workflow = find_workflow(workflow, e);
    if (n.workflow == NULL)
        return -1;
    for (unsigned s = 0; s < STAGE_COUNT; s++) {
        n.backend[s] = generic[0];
        for (unsigned i = 0; i < STAGE_OPTIONS; i++)
            n.option[s][i] = stages[s].option[i].initial;
    }
    if (each(&n, backends, take_backend, e) < 0 || each(&n, options, take_option, e) < 0)
        return -1;
    *c = n;
    return 0;
}
