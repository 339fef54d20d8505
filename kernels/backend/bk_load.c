/* bk_load.c - finds a backend by name */
#include "bk_load.h"

#include <stdio.h>
#include <string.h>

const char *const bk_names[] = { "cpu", NULL };

const struct bk_ops *bk_load(const char *name, char *why, size_t room)
{
    if (strcmp(name, "cpu") == 0)
        return bk_cpu_entry();
    snprintf(why, room, "backend %s is not part of this build", name);
    return NULL;
}
