/* nodelist.h - a host list as commands take it: names, brackets, @words that sluiced knows, - for the standard input, without -x */
#ifndef SLUICE_NODELIST_H
#define SLUICE_NODELIST_H

#include "command.h"
#include "hostlist.h"
#include "show.h"

/* At least one name. @online @async @all @marked @class:NAME are asked of sluiced once. NULL: *r is what the command returns: -1 with e, or 0 when the list
 * is right and no node is in it now: that was said, and a program was shown the listing without a line. */
struct hostlist *nodelist(struct context *ctx, const struct args *a, const char *text, const struct listing *shown, int *r, struct err *e);
/* The names as a message holds them; they belong to h. The caller frees the array. */
char **nodelist_names(const struct hostlist *h);
/* Names, a JSON array of texts, folded; the caller frees. */
char *nodelist_fold(const json_t *names);

#endif
