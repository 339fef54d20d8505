/* run_options.h - the options of a run, for run start and replay */
#ifndef SLUICE_RUN_OPTIONS_H
#define SLUICE_RUN_OPTIONS_H

#include "command.h"
#include "frame.h"

/* Fills q; what it allocates goes with run_options_free. */
int  run_options(const struct args *a, Sluice__StartRun *q, struct err *e);
void run_options_free(Sluice__StartRun *q);

#endif
