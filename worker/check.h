/* check.h - the site's own checks, and how much room is left: what a node's health is judged by, beside its work
 *
 * health.program of sluiced's configuration: each runs alone, once a period, as a fixed user, whatever the node's marks say. Exit 0, 1, 2: good, a note, bad; the first line it
 * writes is the reason. Nothing here stops work: sluiced decides, and nothing is run before it was heard.
 */
#ifndef SLUICE_CHECK_H
#define SLUICE_CHECK_H

#include "worker.h"

struct checks;
/* Looks the user up: before the loop. One that nobody knows is said with every check, which then is not run. */
struct checks *checks_create(struct worker *w);
void checks_destroy(struct checks *c);
void checks_start(struct checks *c);
/* What is to be run from now on; NULL: what our own configuration says. What goes on as it was keeps its turn and what it said; what is not in it any more is ended. */
void checks_take(struct checks *c, const Sluice__CheckPlan *plan);
void checks_stop(struct checks *c);              /* TERM to all, nothing starts again */
bool checks_stopped(const struct checks *c);     /* no process is left */
/* Puts what is known into a report; the arrays and texts belong to c. */
void checks_fill(struct checks *c, Sluice__Report *m);

#endif
