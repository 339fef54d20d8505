/* segments.h - every shared file a node's workers ever made: RUN_DIR/segments, one path a line
 *
 * A name goes in before its file is made and goes out after the file is gone, so no crash leaves a file that nobody knows of.
 */
#ifndef SLUICE_SEGMENTS_H
#define SLUICE_SEGMENTS_H

#include <stdint.h>
#include "err.h"

struct shm_head;

/* Writes `keep` down and removes the files of all other names that are ours (magic, farm, node), belong to this user and have no live
 * owner; what does not fit that is left alone and, while it is there, stays on the list. freed: bytes; removed: files. */
int segments_take_over(const char *run_dir, const char *farm, const char *node, const char *keep, uint64_t *freed,
                       unsigned *removed, struct err *e);
/* After `path` was removed. */
int segments_forget(const char *run_dir, const char *path, struct err *e);
/* Whether the head is one of this farm and node. */
int segments_ours(const struct shm_head *h, const char *farm, const char *node);
/* Whether the worker named in the head lives. */
int segments_owner_alive(const struct shm_head *h);

#endif
