/* nodelist.h - a host list as commands take it: names, brackets, @words that sluiced knows, - for the standard input, without -x */
#ifndef SLUICE_NODELIST_H
#define SLUICE_NODELIST_H

#include "command.h"
#include "hostlist.h"

/* At least one name, else an error. @online @async @all @marked @class:NAME are asked of sluiced once. */
struct hostlist *nodelist(struct context *ctx, const struct args *a, const char *text, struct err *e);
/* The names as a message holds them; they belong to h. The caller frees the array. */
char **nodelist_names(const struct hostlist *h);

#endif
