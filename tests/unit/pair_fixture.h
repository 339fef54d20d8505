/* pair_fixture.h - a world of two nodes and one client, on which the tests of runs and those of jobs stand
 *
 * Each of both has its own open_world(), which says of which pool and classes the nodes are.
 */
#ifndef SLUICE_PAIR_FIXTURE_H
#define SLUICE_PAIR_FIXTURE_H

#include "farm_double.h"
#include "mem.h"

#define MB (UINT64_C(1) << 20)

extern struct session *client;
extern struct node *n1, *n2;

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)
int open_world(void **state);
int close_world(void **state);

void open_pair(int pool, const char *class1, const char *class2);

/* The next Assign to n, or to n1 or n2, or NULL. FREE it. */
Sluice__Assign *assigned(struct node *n);
Sluice__Assign *assigned_somewhere(struct node **n);
/* s was told this, with that text in it. */
void error_of(struct session *s, uint32_t code, const char *text);

#endif
