/* archive.h - a tar archive (POSIX ustar), file by file from memory */
#ifndef SLUICE_ARCHIVE_H
#define SLUICE_ARCHIVE_H

#include <stddef.h>
#include "err.h"

/* A new file at path, for its owner only; one that is there is refused. NULL: e. */
struct archive *archive_create(const char *path, struct err *e);
/* name: at most 100 bytes. */
int  archive_add(struct archive *a, const char *name, const void *data, size_t size, struct err *e);
/* Writes the end, on disk when it returns 0. Frees a whatever comes of it; NULL is fine. */
int  archive_finish(struct archive *a, struct err *e);

#endif
