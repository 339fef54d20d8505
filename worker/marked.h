/* marked.h - processes by the mark in their environment: found and killed, wherever they went */
#ifndef SLUICE_MARKED_H
#define SLUICE_MARKED_H

#include <stdbool.h>
#include <sys/types.h>
#include "err.h"

#define MARK_NAME "SLUICE_CHILD_OF"              /* MARK_NAME=FARM-NODE/N: the N-th child of that node's worker */

/* Kills every process that bears the mark, given as NAME=VALUE, of a child of ours (exact: what it left has us as a forebear now, as its subreaper), or of
 * any child of an earlier worker. Returns how many there were; one of them in *one. */
unsigned marked_kill(const char *mark, bool exact, pid_t *one);
/* Kills what came to us without a mark and is, or descends from, none of `known`; what bears mark, FARM-NODE, belongs to a child that lives. Returns how many. */
unsigned marked_kill_strays(const char *mark, const pid_t *known, unsigned n_known);
/* Ends what an earlier worker of this node started: those in the list file, lines "PID START", and those that bear the mark. Waits at most limit_s. -1: one
 * lives yet. */
int marked_end_old(const char *mark, const char *list_file, double limit_s, unsigned *ended, struct err *e);

#endif
