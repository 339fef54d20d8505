/* launch.h - starts a daemon of a local farm and hears when it serves */
#ifndef SLUICE_LAUNCH_H
#define SLUICE_LAUNCH_H

#include "farm.h"

struct launch {
    char *name;             /* "sluiced", or the node's */
    int   fd;               /* its word comes here; -1: heard */
    char  word[512];        /* what it said so far */
    size_t n;
};

/* Starts argv (argv[0] is the program's path) as leader of a session, recorded in the farm before it runs. "--ready-fd N" is put behind argv;
 * its standard output and error go to log/NAME.out. */
int  launch_start(struct farm *f, const char *name, const char *const *argv, struct launch *l, struct err *e);
/* Until all said that they are ready; the first that says otherwise, or nothing until limit_s, is the error. */
int  launch_wait(struct launch *l, size_t n, double limit_s, struct err *e);
void launch_free(struct launch *l, size_t n);

#endif
