/* scan.h - files of time-frames as the commands look at them before they ask */
#ifndef SLUICE_SCAN_H
#define SLUICE_SCAN_H

#include <stddef.h>
#include <stdint.h>
#include "err.h"

struct scan {
    struct scan_tf { uint64_t offset, size; } *tfs;
    size_t   n;
    uint64_t largest;
    enum err_code code;             /* of the trouble: there is no such file, it may not be read, or ERR_FAILED */
    char    *trouble;               /* why the file is to be skipped, with the offset; NULL = it is whole */
};

/* Walks all headers, each TF's and those in it. What came before the damage is kept in tfs. */
void scan_file(const char *path, struct scan *s);
/* The same of many files, some at a time, into scans[n]; a path that is NULL is passed over. look is called now and then, until all are done. */
void scan_files(const char *const *paths, size_t n, struct scan *scans, void (*look)(void *arg, size_t files, size_t tfs), void *arg);
void scan_free(struct scan *s);

#endif
