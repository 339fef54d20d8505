/* loop_help.h - tests of what lives on a loop: run it until something holds, or fail at a limit */
#ifndef SLUICE_LOOP_HELP_H
#define SLUICE_LOOP_HELP_H

#include <ev.h>
#include <stdbool.h>

#include "clock.h"

static inline void loop_help_tick(struct ev_loop *loop, ev_timer *w, int events)
{
    (void)loop, (void)w, (void)events;
}

/* Turns the loop until *flag is set (true) or limit_s are over (false). */
static inline bool run_until(struct ev_loop *loop, const volatile bool *flag, double limit_s)
{
    int64_t end = clock_mono_ns() + (int64_t)(limit_s * (double)CLOCK_SECOND);
    ev_timer t;

    ev_timer_init(&t, loop_help_tick, 0.01, 0.01);
    ev_timer_start(loop, &t);
    while (!*flag && clock_mono_ns() < end)
        ev_run(loop, EVRUN_ONCE);
    ev_timer_stop(loop, &t);
    return *flag;
}

static inline void run_for(struct ev_loop *loop, double s)
{
    bool never = false;

    run_until(loop, &never, s);
}

#endif
