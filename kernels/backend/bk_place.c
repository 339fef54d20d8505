/* bk_place.c - where the files of the program lie that it opens by itself
 *
 * From: bk_load.c (plugins), bk_gpu.c (device code).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bk_place.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef K_LIBEXECDIR
#define K_LIBEXECDIR ""          /* alone: never installed */
#endif

enum { FOLDERS = 5, TREE_HEIGHT = 3 };

struct folders {
    char path[FOLDERS][PATH_MAX];
    unsigned n;
};

static void add(struct folders *f, const char *root, const char *below, const char *folder)
{
    if (snprintf(f->path[f->n], PATH_MAX, "%s%s%s", root, below, folder) < PATH_MAX)
        f->n++;
}

/* The folder of the running program. */
static bool own_folder(char *out, size_t room)
{
    ssize_t n = readlink("/proc/self/exe", out, room - 1);
    char *slash;

    if (n <= 0)
        return false;
    out[n] = '\0';
    slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
    return slash != NULL;
}

/* An installation that was moved: what stands before K_LIBEXECDIR in the program's own folder. */
static const char *moved_root(char *own)
{
    size_t n = strlen(own), tail = strlen(K_LIBEXECDIR);

    if (tail == 0 || n < tail || strcmp(own + n - tail, K_LIBEXECDIR) != 0)
        return "";
    own[n - tail] = '\0';
    return own;
}

static void folders_of(const struct bk_place *place, struct folders *f)
{
    static const char *const up[TREE_HEIGHT] = { "/", "/../", "/../../" };
    const char *given = getenv(place->env);
    char own[PATH_MAX];

    f->n = 0;
    if (given) {
        add(f, given, "", "");
        return;
    }
    if (own_folder(own, sizeof own)) {
        for (unsigned i = 0; i < TREE_HEIGHT; i++)
            add(f, own, up[i], place->in_tree);
    } else {
        own[0] = '\0';
    }
    if (place->installed[0])
        add(f, moved_root(own), "", place->installed);
}

int bk_place_find(const struct bk_place *place, const char *file, char *path, size_t room)
{
    struct folders f;
    size_t n = 0;

    folders_of(place, &f);
    for (unsigned i = 0; i < f.n; i++) {
        if (snprintf(path, room, "%s/%s", f.path[i], file) < (int)room && access(path, F_OK) == 0)
            return 0;
    }
    path[0] = '\0';
    for (unsigned i = 0; i < f.n && n < room; i++)
        n += (size_t)snprintf(path + n, room - n, "%s%s", i ? ", " : "", f.path[i]);
    return -1;
}
