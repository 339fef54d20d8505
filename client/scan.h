/* scan.h - files of time-frames as the commands look at them before they ask */
#ifndef SLUICE_SCAN_H
#define SLUICE_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct scan {
    struct scan_tf { uint64_t offset, size; } *tfs;
    size_t   n;
    uint64_t largest;
    bool     missing;               /* there is no such file */
    char    *trouble;               /* why the file is to be skipped, with the offset; NULL = it is whole */
};

/* Walks all headers, each TF's and those in it. What came before the damage is kept in tfs. found, if it is not NULL, is told of each TF. */
void scan_file(const char *path, struct scan *s, void (*found)(void *arg), void *arg);
void scan_free(struct scan *s);

#endif
