/* detect.h - which devices there are, and why one cannot be used */
#ifndef DETECT_H
#define DETECT_H

#include <stdbool.h>

#include "backend/bk.h"

struct detected {
    char backend[16];
    bool known;                  /* info is filled; else the backend has no device, and why says so */
    bool usable;
    struct bk_info info;
    char why[300];               /* why it cannot be used; "": it can */
};

enum { DETECT_LIMIT_S = 30 };

/* Calls fn for every device of every backend, and once for a backend that has none. Each driver is asked in a process of its own: one that has not answered
 * within limit_s, or kills that process, is named, and the others answer for themselves. limit_s 0: asked in this process, whose end somebody else sees to. */
void detect(double limit_s, void (*fn)(void *arg, const struct detected *d), void *arg);

#endif
