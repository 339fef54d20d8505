/* mark_part.h - what mark.c and clear.c share */
#ifndef SLUICE_MARK_PART_H
#define SLUICE_MARK_PART_H

#include "change.h"
#include "mark.h"

/* The marks of one change: found again by node and id when it is written. */
struct mark_batch {
    unsigned n;
    struct { struct node *node; uint64_t id; } *at;
};
void mark_batch_free(struct mark_batch *b);

int mark_check_reason(const char *reason, struct err *e);
int mark_check_tool(const char *tool, struct err *e);
struct mark *mark_find(struct node *n, uint64_t id);
/* The nodes by name, or NULL and e names the first that is not there. Caller frees. */
struct node **mark_find_nodes(struct sluiced *d, char *const *names, size_t n, struct err *e);
/* m goes with this change. */
void mark_clear_add(struct change *c, struct mark_batch *b, struct node *n, struct mark *m, const char *by, const char *reason);
/* change_done with a batch. On disk: the marks go. Not: they stay as they were. */
void mark_clear_written(struct change *c, void *arg, int rc, const struct err *why);

#endif
