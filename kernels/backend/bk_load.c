/* bk_load.c - finds a backend by name
 *
 * cpu is part of the program. The others are plugins, bk_NAME.so with the one symbol bk_entry; they
 * open their drivers themselves, so one build starts on any machine. A plugin is believed only when
 * it speaks this program's interface and was made from this program's kernels.
 */
#include "bk_load.h"
#include "bk_place.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "k_source.h"

#ifndef K_PLUGIN_DIR
#define K_PLUGIN_DIR ""
#endif

const char *const bk_names[] = { "cuda", "hip", "opencl", "cpu", NULL };

enum { REGISTERED_MAX = 8 };

static const struct bk_ops *registered[REGISTERED_MAX];

void bk_register(const struct bk_ops *ops)
{
    unsigned i = 0;
    while (i < REGISTERED_MAX - 1 && registered[i] && strcmp(registered[i]->name, ops->name) != 0)
        i++;
    registered[i] = ops;
}

static bool is_built_in(const char *name)
{
    for (const char *const *b = bk_names; *b; b++) {
        if (strcmp(*b, name) == 0)
            return true;
    }
    return false;
}

const char *bk_added(unsigned i)
{
    for (unsigned k = 0; k < REGISTERED_MAX && registered[k]; k++) {
        if (!is_built_in(registered[k]->name) && i-- == 0)
            return registered[k]->name;
    }
    return NULL;
}

/* The table of an opened plugin, or NULL and why it is not ours. */
static const struct bk_ops *believed(void *so, const char *name, const char *path, char *why,
                                     size_t room)
{
    const struct bk_ops *(*entry)(void);
    const struct bk_ops *ops;

    *(void **)(void *)&entry = dlsym(so, "bk_entry");
    ops = entry ? entry() : NULL;
    if (ops == NULL)
        snprintf(why, room, "%s is no plugin: it has no bk_entry", path);
    else if (ops->abi != BK_ABI)
        snprintf(why, room, "%s has interface %u, this program wants %u", path, ops->abi, BK_ABI);
    else if (strcmp(ops->source, K_SOURCE_HASH) != 0)
        snprintf(why, room, "%s was made from other kernels (%s) than this program (%s)", path,
                 ops->source, K_SOURCE_HASH);
    else if (strcmp(ops->name, name) != 0)
        snprintf(why, room, "%s holds backend %s", path, ops->name);
    else
        return ops;
    return NULL;
}

static const struct bk_ops *plugin(const char *name, char *why, size_t room)
{
    static const struct bk_place plugins = { "SLUICE_BACKENDS", "kernels/.libs", K_PLUGIN_DIR };
    char file[64], path[4096];

    if (snprintf(file, sizeof file, "bk_%s.so", name) >= (int)sizeof file || strchr(name, '/')) {
        snprintf(why, room, "no backend %.100s", name);
        return NULL;
    }
    if (bk_place_find(&plugins, file, path, sizeof path) < 0) {
        snprintf(why, room, "no plugin %s in %s", file, path);
        return NULL;
    }
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        snprintf(why, room, "%s", dlerror());
        return NULL;
    }
    const struct bk_ops *ops = believed(so, name, path, why, room);
    if (ops == NULL)
        dlclose(so);
    return ops;
}

const struct bk_ops *bk_load(const char *name, char *why, size_t room)
{
    for (unsigned i = 0; i < REGISTERED_MAX && registered[i]; i++) {
        if (strcmp(registered[i]->name, name) == 0)
            return registered[i];
    }
    return strcmp(name, "cpu") == 0 ? bk_cpu_entry() : plugin(name, why, room);
}
