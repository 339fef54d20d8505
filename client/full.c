/* full.c - file systems without room, named where something failed that writes there
 *
 * Whoever fails for want of room says so in its own words, or waits without any; how much is free, and where, is seen from here.
 */
#include "config.h"

#include "full.h"

#include "mem.h"
#include "str.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

/* A farm's state, logs and status files need as much at the least. */
enum { LEAST = 1 << 20 };

/* Cuts the path back to the folder where its file system is mounted. */
static void to_mount(char *path)
{
    struct stat here, above;

    while (path[1] != '\0' && stat(path, &here) == 0) {
        char *end = strrchr(path, '/'), *parent = mem_printf("%.*s", end > path ? (int)(end - path) : 1, path);
        bool same = stat(parent, &above) == 0 && above.st_dev == here.st_dev;

        if (same)
            strcpy(path, parent);
        free(parent);
        if (!same)
            return;
    }
}

static bool tell(const char *folder, struct err *e)
{
    char *path = realpath(folder, NULL), left[32], all[32];
    struct statvfs v;
    bool full = path != NULL && statvfs(path, &v) == 0 && (v.f_bavail * v.f_frsize < LEAST || (v.f_files > 0 && v.f_favail == 0));

    if (full) {
        uint64_t bytes = v.f_bavail * v.f_frsize;
        bool files = bytes >= LEAST;
        struct err said = *e;

        to_mount(path);
        if (files)
            err_set(e, said.code, "%s; the file system %s, where %s is, can take no more files", said.text, path, folder);
        else
            err_set(e, said.code, "%s; the file system %s, where %s is, is full: %s of %s are free, at least 1M is wanted", said.text, path, folder,
                    str_size_text(bytes, left), str_size_text(v.f_blocks * v.f_frsize, all));
    }
    free(path);
    return full;
}

void full_tell(const char *const *folders, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++)
        if (folders[i] != NULL && tell(folders[i], e))
            return;
}
