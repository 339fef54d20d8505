/* paths.h - which files a job is to have: named, below folders, in lists */
#ifndef SLUICE_PATHS_H
#define SLUICE_PATHS_H

#include <stdbool.h>
#include <stddef.h>
#include "err.h"

struct paths {
    char **path; size_t n, cap;         /* absolute */
    struct empty { char *path, *text; enum err_code code; } *empty; size_t n_empty;       /* what gave nothing, and why: folders, links that lead nowhere, hidden files */
    size_t hidden;                      /* folders that were passed over: their names begin with a dot */
    size_t twice;                       /* named again, perhaps by another path, and taken once */
    size_t comments;                    /* lines of lists that were passed over, each beginning with # */
};

/* A file, or a folder: then the files in it and below it whose names end in .tf, in order of their names. Links to folders are followed, each folder is walked
 * once. Folders whose names begin with a dot are passed over and counted (snapshots, waste), such files count as empty. */
void paths_add(struct paths *p, const char *path);
/* A list, one path a line; empty lines and lines that begin with # are passed over: a file of such a name is ./#NAME there. "-": the standard input. */
int  paths_read(struct paths *p, const char *file, struct err *e);
/* Takes out what was named before, by whatever path its folder is reached. */
void paths_once(struct paths *p);
void paths_free(struct paths *p);

#endif
