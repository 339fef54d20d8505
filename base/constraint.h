/* constraint.h - which nodes a feature expression of Slurm means, as in "mi50" and "mi50&(ib|eth)"
 *
 * From: conf_value.c (checks), scheduler/slurm_lease.c.
 * Names joined by & or by |, not by both side by side, as Slurm says of neither that it comes first; a part in parentheses may have the other one. What Slurm knows besides, such as numbers of
 * nodes, is about several nodes together: here it is about one.
 */
#ifndef SLUICE_CONSTRAINT_H
#define SLUICE_CONSTRAINT_H

#include <stdbool.h>
#include "err.h"

enum { CONSTRAINT_MOST = 255 };            /* bytes of an expression */

int  constraint_check(const char *expression, struct err *e);     /* -1: e says what is wanted instead */
/* have: what a node has, separated by commas; NULL: nothing. Of an expression that constraint_check takes. */
bool constraint_fits(const char *expression, const char *have);

#endif
