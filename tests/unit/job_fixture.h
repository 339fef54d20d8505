/* job_fixture.h - what the tests of jobs share: each begins with an empty world of two nodes */
#ifndef SLUICE_JOB_FIXTURE_H
#define SLUICE_JOB_FIXTURE_H

#include "farm_double.h"
#include "mem.h"

#define MB (UINT64_C(1) << 20)

extern struct session *client;
extern struct node *n1, *n2;

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, close_world)
int open_world(void **state);
int close_world(void **state);

/* A job of files with so many TFs of 1 MB each; 0 TFs: a file that could not be read. */
struct wish { const char *path[8]; unsigned tfs[8]; unsigned n; const char *key, *output; unsigned attempts; char *class, *backends; bool hold, there; int priority; double straggler; const char *after; int64_t begin; };      /* there: its key has a job already */

/* The id once it is on disk; 0: refused, error_of tells why. */
uint64_t submit(const struct wish *w, bool *existed);
/* The client was told this, with that text in it. */
void error_of(uint32_t code, const char *text);
/* What n1 or n2 was given: now (NULL: nothing), or within s. FREE it. */
Sluice__Assign *assigned_somewhere(struct node **n);
/* With its tasks, which are read again for one that was over at a restart. */
struct job *the_job(uint64_t id);
/* The exit status of who waits for it; -1: it is not over. */
int waited(uint64_t id);
/* Everything that is given out is done, until nothing comes any more. */
void finish_all(void);
void restart(void);                      /* both nodes come back with nothing */
void tries_are(uint64_t job, uint64_t tf, const char *expect);
Sluice__Assign *assigned_to(struct node *n, double s);
void release(uint64_t id);
Sluice__Assign *assigned_within(double s, struct node **n);
void restart_with_both(void);

#endif
