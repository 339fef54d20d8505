/* bk_place.h - where the files of the program lie that it opens by itself: plugins, device code */
#ifndef BK_PLACE_H
#define BK_PLACE_H

#include <stddef.h>

/* A kind of files. */
struct bk_place {
    const char *env;             /* variable that names a folder; then no other is looked at */
    const char *in_tree;         /* folder below the root of a build tree */
    const char *installed;       /* folder of the installation */
};

/* Writes the path of `file` and returns 0 when it is in the folder that the variable names; or else
 * in a build tree that the program lies in (its folder or one of the two above); or else where it
 * was installed, be the whole installation moved below another root (DESTDIR). -1: it is nowhere,
 * and path lists the folders. */
int bk_place_find(const struct bk_place *place, const char *file, char *path, size_t room);

#endif
