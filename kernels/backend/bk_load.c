/* bk_load.c - finds a backend by name
 *
 * What is built in, what a test registered, or else a plugin: bk_NAME.so in the folder that
 * SLUICE_BACKENDS names, with the one symbol bk_entry. The drivers of GPUs are opened by the backends
 * themselves, so the same program starts on any machine.
 */
#include "bk_load.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bk_names[] = { "cuda", "hip", "opencl", "cpu", NULL };

static const struct {
    const char *name;
    const struct bk_ops *(*entry)(void);
} builtin[] = {
    { "cpu", bk_cpu_entry },
    { "opencl", bk_ocl_entry },
    { "cuda", bk_cuda_entry },
    { "hip", bk_hip_entry },
};

static const struct bk_ops *registered[8];

void bk_register(const struct bk_ops *ops)
{
    unsigned i = 0;
    while (i < 7 && registered[i] && strcmp(registered[i]->name, ops->name) != 0)
        i++;
    registered[i] = ops;
}

static const struct bk_ops *plugin(const char *name, char *why, size_t room)
{
    const char *dir = getenv("SLUICE_BACKENDS");
    const struct bk_ops *(*entry)(void);
    char path[4096];

    if (dir == NULL || strchr(name, '/') ||
        snprintf(path, sizeof path, "%s/bk_%s.so", dir, name) >= (int)sizeof path) {
        snprintf(why, room, "no backend %s in this program, and SLUICE_BACKENDS names no folder of "
                 "plugins", name);
        return NULL;
    }
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so)
        *(void **)(void *)&entry = dlsym(so, "bk_entry");
    if (so == NULL || entry == NULL) {
        snprintf(why, room, "%s", dlerror());
        return NULL;
    }
    const struct bk_ops *ops = entry();
    if (ops->abi != BK_ABI) {
        snprintf(why, room, "%s: interface %u, this program has %u", path, ops->abi, BK_ABI);
        return NULL;
    }
    return ops;
}

const struct bk_ops *bk_load(const char *name, char *why, size_t room)
{
    for (unsigned i = 0; i < 8 && registered[i]; i++) {
        if (strcmp(registered[i]->name, name) == 0)
            return registered[i];
    }
    for (size_t i = 0; i < sizeof builtin / sizeof builtin[0]; i++) {
        if (strcmp(builtin[i].name, name) == 0)
            return builtin[i].entry();
    }
    return plugin(name, why, room);
}
