/* fake.h - what the fakes share: signals, limits, an end with a sentence */
#ifndef SLUICE_FAKE_H
#define SLUICE_FAKE_H

#include <ev.h>
#include "err.h"

void fake_die(const struct err *e) __attribute__((noreturn));
void fake_descriptors(unsigned wanted);      /* raises the soft limit as far as it goes; says so when that is not enough */
void fake_run(struct ev_loop *loop);         /* until SIGTERM, SIGINT or ev_break */

#endif
