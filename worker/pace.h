/* pace.h - when the n-th time-frame is due: an absolute schedule from the first one, so that nothing adds up */
#ifndef SLUICE_PACE_H
#define SLUICE_PACE_H

#include <stdbool.h>
#include <stdint.h>
#include "err.h"

struct pace {
    double   rate;                   /* TFs a second; 0: as fast as it goes */
    int64_t  start_ns;               /* when number 0 is due */
    bool     started;
};

/* "max" or a number above 0, at most a million. */
int     pace_parse(const char *text, double *rate, struct err *e);
void    pace_start(struct pace *p, int64_t now_ns);
int64_t pace_due_ns(const struct pace *p, uint64_t n);        /* start_ns when the rate is max */
/* TFs a second that went out: n of them, the last at last_ns; NaN below two. */
double  pace_offered(const struct pace *p, uint64_t n, int64_t last_ns);

#endif
