/* fence.h - which try at which TF: whoever saw a newer fence for a TF refuses the older one */
#ifndef SLUICE_FENCE_H
#define SLUICE_FENCE_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include "sluice.pb-c.h"

struct tf_name { uint64_t run, job, id; };       /* exactly one of run and job is not 0 */
struct fence { uint64_t epoch, attempt; };

int  fence_cmp(struct fence a, struct fence b);  /* epoch first, then attempt: <0, 0, >0 */
/* From messages; -1 when a field is missing, or run and job are both there or both not. */
int  tf_name_from(const Sluice__Tf *tf, struct tf_name *name);
int  fence_from(const Sluice__Fence *f, struct fence *fence);

/* What a message needs to name a try; fill with tf_id_fill, then msg.tf = &id.tf, msg.fence = &id.fence. */
struct tf_id { Sluice__Tf tf; Sluice__Fence fence; };
void tf_id_fill(struct tf_id *id, struct tf_name name, struct fence fence);
enum { TF_TEXT = 96 };
/* "run 7 tf 12 try 1.2": for the log. Returns out. */
const char *tf_text(struct tf_name name, struct fence fence, char out[TF_TEXT]);

/* The newest fence of each TF. At most `limit` TFs are remembered: beyond it the one that was met longest ago goes. */
struct fences;
struct fences *fences_create(size_t limit);
void fences_destroy(struct fences *f);
/* 1: newer than all before, or the newest one again that was refused; it is remembered. 0: the newest, and it was taken; -1: older. */
int  fences_meet(struct fences *f, struct tf_name name, struct fence fence);
void fences_taken(struct fences *f, struct tf_name name);               /* the newest was not refused */
void fences_forget(struct fences *f, uint64_t run, uint64_t job);       /* all of this run or job */
size_t fences_count(const struct fences *f);

#endif
