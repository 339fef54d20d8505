/* spec.c - the nodes of a local farm
 *
 * CLASS:N stands for nodes CLASS-001 ... CLASS-N with a device each. The classes of the sample configuration have their usual
 * service times; a class without one is a plain CPU device.
 */
#include "config.h"

#include "spec.h"

#include "mem.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES_MAX = 1000 };
#define SHM_DEFAULT (UINT64_C(64) << 20)

static const struct { const char *name; double nominal_ms; } known[] = { { "mi50", 300 }, { "mi100", 200 } };

/* --- reading -------------------------------------------------------------------------------- */

static int add_class(struct spec *s, const char *name, uint64_t nodes, struct err *e)
{
    for (unsigned i = 0; i < s->n; i++)
        if (strcmp(s->classes[i].name, name) == 0)
            return err_set(e, ERR_USAGE, "--nodes: class %s is there twice", name);
    s->classes = mem_grow(s->classes, s->n + 1, sizeof(*s->classes));
    s->classes[s->n++] = (struct spec_class){ mem_strdup(name), (unsigned)nodes };
    return 0;
}

int spec_parse(struct spec *s, const char *text, struct err *e)
{
    char *copy = mem_strdup(text), *rest = copy, *word;
    int r = 0;

    while (r == 0 && rest != NULL && (word = strsep(&rest, ",")) != NULL) {
        char *colon = strchr(word, ':');
        uint64_t nodes = 0;

        if (colon != NULL)
            *colon = '\0';
        if (colon == NULL || !str_is_name(word) || strlen(word) > 40)
            r = err_set(e, ERR_USAGE, "--nodes '%.80s': CLASS:N,... is wanted, as in mi50:2,mi100:1", text);
        else if (str_parse_u64("--nodes: number of nodes", colon + 1, 1, NODES_MAX, &nodes, e) < 0)
            r = -1;
        else
            r = add_class(s, word, nodes, e);
    }
    free(copy);
    return r;
}

int spec_nominal(struct spec *s, const char *text, struct err *e)
{
    const char *equals = strchr(text, '=');
    char *name = equals != NULL ? mem_printf("%.*s", (int)(equals - text), text) : mem_strdup("");
    double ms;

    if (!str_is_name(name)) {
        free(name);
        return err_set(e, ERR_USAGE, "--nominal '%.80s': CLASS=MS is wanted, as in mi50=300", text);
    }
    if (str_parse_f64("--nominal: milliseconds", equals + 1, 0, 3600e3, &ms, e) < 0) {
        free(name);
        return -1;
    }
    s->nominal = mem_grow(s->nominal, s->n_nominal + 1, sizeof(*s->nominal));
    s->nominal[s->n_nominal++] = (struct spec_nominal){ name, ms };
    return 0;
}

void spec_free(struct spec *s)
{
    for (unsigned i = 0; i < s->n; i++)
        free(s->classes[i].name);
    for (unsigned i = 0; i < s->n_nominal; i++)
        free(s->nominal[i].class_name);
    free(s->classes);
    free(s->nominal);
}

/* --- applying ------------------------------------------------------------------------------- */

static struct conf_class *class_of(struct conf *c, const char *name)
{
    return (struct conf_class *)conf_class_find(c, name);
}

/* The service time asked for, else the usual one of that name. */
static double first_nominal(const struct spec *s, const char *name)
{
    for (unsigned i = s->n_nominal; i-- > 0; )
        if (strcmp(s->nominal[i].class_name, name) == 0)
            return s->nominal[i].ms;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].nominal_ms;
    return 0;
}

static void apply_class(const struct spec *s, struct conf *c, const char *name, struct spec_change *change)
{
    if (class_of(c, name) != NULL)
        return;
    c->classes = mem_grow(c->classes, c->n_classes + 1, sizeof(*c->classes));
    c->classes[c->n_classes++] = (struct conf_class){
        .name = mem_strdup(name), .devices = 1, .shm = s->shm != 0 ? s->shm : SHM_DEFAULT, .nominal_ms = first_nominal(s, name),
    };
    change->nodes = true;
    if (c->classes[c->n_classes - 1].nominal_ms <= 0)
        change->real = c->classes[c->n_classes - 1].name;
}

static int apply_nodes(struct conf *c, const struct spec_class *want, struct spec_change *change, struct err *e)
{
    struct hostlist *fresh = hostlist_create();
    char name[64];

    for (unsigned i = 1; i <= want->nodes; i++) {
        const struct conf_node *there;

        snprintf(name, sizeof(name), "%s-%03u", want->name, i);
        there = conf_node_find(c, name);
        if (there != NULL && strcmp(there->class_name, want->name) != 0) {
            hostlist_destroy(fresh);
            return err_set(e, ERR_STATE, "node %s is of class %s in the farm's configuration, not %s", name, there->class_name, want->name);
        }
        if (there == NULL && hostlist_add(fresh, name, e) < 0) {
            hostlist_destroy(fresh);
            return -1;
        }
    }
    if (hostlist_count(fresh) == 0) {
        hostlist_destroy(fresh);
        return 0;
    }
    c->nodes = mem_grow(c->nodes, c->n_nodes + 1, sizeof(*c->nodes));
    c->nodes[c->n_nodes++] = (struct conf_node){
        .list = hostlist_fold(fresh), .names = fresh, .class_name = mem_strdup(want->name), .pool = mem_strdup("online"), .slurm = mem_strdup("none"),
    };
    change->nodes = true;
    return 0;
}

/* Buffers of the classes that were named, or of all when none was. */
static void apply_shm(const struct spec *s, struct conf *c, struct spec_change *change)
{
    for (unsigned i = 0; s->shm != 0 && i < c->n_classes; i++) {
        bool named = s->n == 0;

        for (unsigned k = 0; k < s->n; k++)
            named |= strcmp(s->classes[k].name, c->classes[i].name) == 0;
        if (!named || c->classes[i].shm == s->shm)
            continue;
        c->classes[i].shm = s->shm;
        change->classes = true;
    }
}

static int apply_nominal(const struct spec *s, struct conf *c, struct spec_change *change, struct err *e)
{
    for (unsigned i = 0; i < s->n_nominal; i++) {
        struct conf_class *class = class_of(c, s->nominal[i].class_name);

        if (class == NULL)
            return err_set(e, ERR_USAGE, "--nominal: the farm has no class '%s'", s->nominal[i].class_name);
        if (class->nominal_ms == s->nominal[i].ms)
            continue;
        class->nominal_ms = s->nominal[i].ms;
        change->classes = true;
    }
    return 0;
}

int spec_apply(const struct spec *s, struct conf *c, struct spec_change *change, struct err *e)
{
    *change = (struct spec_change){ 0 };
    for (unsigned i = 0; i < s->n; i++) {
        apply_class(s, c, s->classes[i].name, change);
        if (apply_nodes(c, &s->classes[i], change, e) < 0)
            return -1;
    }
    apply_shm(s, c, change);
    return apply_nominal(s, c, change, e);
}
