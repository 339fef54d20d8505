/* job_fixture.h - what the tests of jobs share: each begins with an empty world of two nodes */
#ifndef SLUICE_JOB_FIXTURE_H
#define SLUICE_JOB_FIXTURE_H

#include "pair_fixture.h"

/* A job of files with so many TFs of 1 MB each; 0 TFs: a file that could not be read. */
struct wish {
    const char *path[8];
    unsigned tfs[8], n, attempts;
    const char *key, *output, *after;
    char *class, *backends;
    bool hold, there;                    /* there: its key has a job already */
    int priority;
    double straggler;
    int64_t begin;
};

/* The id once it is on disk; 0: refused, error_of tells why. */
uint64_t submit(const struct wish *w, bool *existed);
/* With its tasks, which are read again for one that was over at a restart. */
struct job *the_job(uint64_t id);
void release(uint64_t id);
/* The exit status of who waits for it; -1: it is not over. */
int waited(uint64_t id);
/* The attempts of a TF as `job tfs` tells them: "1 failed killed, 2 done -". */
void tries_are(uint64_t job, uint64_t tf, const char *expect);
/* What n, or n1 or n2, is given within s. A test fails when nothing comes for n; else NULL. FREE it. */
Sluice__Assign *assigned_to(struct node *n, double s);
Sluice__Assign *assigned_within(double s, struct node **n);
/* Everything that is given out is done, until nothing comes any more. */
void finish_all(void);
void restart(void);                      /* both nodes come back with nothing */

#endif
