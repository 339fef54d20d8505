/* conf.c - the configuration: what stands in the file, put into a checked struct conf, and written back from it
 *
 * From: a file or a text.  To: every program. conf_keys.c has the tables that both directions follow, conf_syntax.c reads the
 * grammar. Nothing half read ever leaves this file.
 */
#include "config.h"

#include "conf_part.h"
#include "file.h"
#include "mem.h"
#include "str.h"

#include <confuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONF_MAX_BYTES = 16 << 20 };

/* --- reading -------------------------------------------------------------------------------- */

static int read_list(cfg_t *cfg, const struct conf_key *k, void *at, struct err *e)
{
    unsigned n = cfg_size(cfg, k->name);
    char **list = mem_array(n + 1, sizeof(*list));      /* NULL ends it */

    *(char ***)at = list;
    for (unsigned i = 0; i < n; i++) {
        *conf_count(at) = i + 1;
        if (conf_value_read(k, cfg_getnstr(cfg, k->name, i), &list[i], e) < 0)
            return -1;
    }
    return 0;
}

/* Fills the struct at base; a key that is absent, or all of them when cfg is NULL, gets its default. */
static int read_keys(cfg_t *cfg, const struct conf_section *s, void *base, struct err *e)
{
    for (size_t i = 0; i < s->n_keys; i++) {
        const struct conf_key *k = &s->keys[i];
        void *at = (char *)base + k->offset;
        const char *text = k->def;

        if (conf_is_list(k->kind)) {
            if (read_list(cfg, k, at, e) < 0)
                return -1;
            continue;
        }
        if (cfg != NULL && cfg_getstr(cfg, k->name) != NULL)
            text = cfg_getstr(cfg, k->name);
        if (text != NULL && conf_value_read(k, text, at, e) < 0)
            return -1;
    }
    return 0;
}

static cfg_t *titled(cfg_t *cfg, const struct conf_section *s, const char *title)
{
    for (unsigned i = 0; i < cfg_size(cfg, s->name); i++)
        if (strcmp(cfg_title(cfg_getnsec(cfg, s->name, i)), title) == 0)
            return cfg_getnsec(cfg, s->name, i);
    return NULL;
}

static int read_many(struct conf *c, cfg_t *cfg, const struct conf_section *s, void *at, const char *file, struct err *e)
{
    unsigned n = cfg_size(cfg, s->name);
    char *array;

    if (n == 0)
        return 0;
    array = mem_array(n, s->size);
    *(char **)at = array;
    for (unsigned i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, s->name, i);
        void *base = array + i * s->size;

        *conf_count(at) = i + 1;
        *(char **)base = mem_strdup(cfg_title(sec));
        if (read_keys(sec, s, base, e) < 0 || (s->check != NULL && s->check(c, base, e) < 0))
            return err_prefix(e, "%s:%d", file, sec->line);
    }
    return 0;
}

static int read_section(struct conf *c, cfg_t *cfg, const struct conf_section *s, const char *file, struct err *e)
{
    char *at = (char *)c + s->offset;

    switch (s->shape) {
    case CONF_MANY:
        return read_many(c, cfg, s, at, file, e);
    case CONF_BOTH:
        for (unsigned i = 0; i < ARRAY_LEN(conf_pool_names); i++) {
            *(char **)(at + i * s->size) = mem_strdup(conf_pool_names[i]);
            if (read_keys(titled(cfg, s, conf_pool_names[i]), s, at + i * s->size, e) < 0)
                return err_prefix(e, "%s", file);
        }
        return 0;
    case CONF_ONE:
        if (s->name != NULL)
            cfg = cfg_size(cfg, s->name) > 0 ? cfg_getnsec(cfg, s->name, 0) : NULL;
        return read_keys(cfg, s, at, e) < 0 ? err_prefix(e, "%s", file) : 0;
    }
    return err_set(e, ERR_FAILED, "%s: a section of no shape", s->name);
}

static int check_whole(struct conf *c, const char *file, int listen_line, struct err *e)
{
    if (c->listen != NULL && strcmp(c->auth, "none") == 0)
        return err_set(e, ERR_USAGE, "%s:%d: listen needs a method of authentication: auth = munge", file, listen_line);
    if (c->health.n_programs > CONF_MOST_CHECKS)
        return err_set(e, ERR_USAGE, "%s: health.program: %u programs, at most %d are possible", file, c->health.n_programs, CONF_MOST_CHECKS);
    if (c->worker.crash_dir == NULL)
        c->worker.crash_dir = mem_printf("%s/crash", c->state_dir);
    return 0;
}

struct conf *conf_parse(const char *text, const char *name, struct err *e)
{
    int listen_line, r = 0;
    cfg_t *cfg = conf_syntax(text, name, &listen_line, e);
    struct conf *c;

    if (cfg == NULL)
        return NULL;
    c = mem_zalloc(sizeof(*c));
    c->names = hostlist_create();
    for (size_t i = 0; r == 0 && i < CONF_SECTIONS; i++)
        r = read_section(c, cfg, &conf_sections[i], name, e);
    cfg_free(cfg);
    if (r == 0 && check_whole(c, name, listen_line, e) == 0)
        return c;
    conf_destroy(c);
    return NULL;
}

struct conf *conf_read(const char *path, struct err *e)
{
    struct conf *c;
    size_t size;
    char *text;

    if (path == NULL)
        return conf_parse("", "defaults", e);
    text = file_read(path, CONF_MAX_BYTES, &size, e);
    if (text == NULL)
        return NULL;
    if (strlen(text) != size) {
        free(text);
        return err_null(e, ERR_USAGE, "%s: a zero byte stands in the text", path);
    }
    c = conf_parse(text, path, e);
    free(text);
    if (c != NULL)
        c->path = mem_strdup(path);
    return c;
}

/* --- all structs of a section, in either direction ------------------------------------------ */

static unsigned n_structs(const struct conf_section *s, const struct conf *c)
{
    switch (s->shape) {
    case CONF_ONE:  return 1;
    case CONF_BOTH: return ARRAY_LEN(conf_pool_names);
    case CONF_MANY: return *conf_count((const char *)c + s->offset);
    }
    return 0;
}

static void *struct_at(const struct conf_section *s, const struct conf *c, unsigned i)
{
    char *at = (char *)c + s->offset;

    return (s->shape == CONF_MANY ? *(char **)at : at) + i * s->size;
}

void conf_destroy(struct conf *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->n_nodes; i++)
        hostlist_destroy(c->nodes[i].names);
    for (const struct conf_section *s = conf_sections; s < conf_sections + CONF_SECTIONS; s++) {
        for (unsigned i = 0; i < n_structs(s, c); i++) {
            char *base = struct_at(s, c, i);

            for (size_t k = 0; k < s->n_keys; k++)
                conf_value_free(&s->keys[k], base + s->keys[k].offset);
            if (s->shape != CONF_ONE)
                free(*(char **)base);
        }
        if (s->shape == CONF_MANY)
            free(*(void **)((char *)c + s->offset));
    }
    hostlist_destroy(c->names);
    free(c->path);
    free(c);
}

static void show_struct(struct str *out, const struct conf_section *s, const char *base)
{
    if (s->name != NULL)
        str_addf(out, "\n%s ", s->name);
    if (s->shape != CONF_ONE) {
        conf_text_show(out, *(char *const *)base);
        str_add(out, " ");
    }
    str_add(out, s->name != NULL ? "{\n" : "");
    for (const struct conf_key *k = s->keys; k < s->keys + s->n_keys; k++) {
        if (conf_value_absent(k, base + k->offset))
            continue;
        str_addf(out, "%s%s = ", s->name != NULL ? "    " : "", k->name);
        conf_value_show(out, k, base + k->offset);
        str_add(out, "\n");
    }
    str_add(out, s->name != NULL ? "}\n" : "");
}

char *conf_show(const struct conf *c)
{
    struct str out = { 0 };

    for (const struct conf_section *s = conf_sections; s < conf_sections + CONF_SECTIONS; s++)
        for (unsigned i = 0; i < n_structs(s, c); i++)
            show_struct(&out, s, struct_at(s, c, i));
    return str_take(&out);
}

/* --- finding -------------------------------------------------------------------------------- */

const struct conf_class *conf_class_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_classes; i++)
        if (strcmp(c->classes[i].name, name) == 0)
            return &c->classes[i];
    return NULL;
}

const struct conf_profile *conf_profile_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].name, name) == 0)
            return &c->profiles[i];
    return NULL;
}

uint64_t conf_profile_size(const struct conf_profile *p, const char *class)
{
    size_t n = strlen(class);
    uint64_t size;

    for (unsigned i = 0; i < p->n_shm; i++)
        if (strncmp(p->shm[i], class, n) == 0 && p->shm[i][n] == '=' && conf_class_size(p->shm[i], &size, NULL) == 0)
            return size;
    return 0;
}

const struct conf_node *conf_node_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_nodes; i++)
        if (hostlist_has(c->nodes[i].names, name))
            return &c->nodes[i];
    return NULL;
}
