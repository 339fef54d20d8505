/* run_fixture.h - what the tests of runs share: each begins with an empty world of two nodes */
#ifndef SLUICE_RUN_FIXTURE_H
#define SLUICE_RUN_FIXTURE_H

#include "pair_fixture.h"

/* A run of that many sources that decodes. */
uint64_t begin_run(unsigned sources);

#endif
