/* fake.c - what the fakes share */
#include "config.h"

#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

void fake_die(const struct err *e)
{
    fprintf(stderr, "%s\n", e->text);
    exit(e->code ? (int)e->code : 1);
}

void fake_descriptors(unsigned wanted)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur >= wanted)
        return;
    r.rlim_cur = r.rlim_max < wanted ? r.rlim_max : wanted;
    if (setrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur < wanted)
        fprintf(stderr, "%lu descriptors may be open, %u are wanted\n", (unsigned long)r.rlim_cur, wanted);
}

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
    (void)w, (void)events;
    ev_break(loop, EVBREAK_ALL);
}

void fake_run(struct ev_loop *loop)
{
    ev_signal term, interrupt;

    signal(SIGPIPE, SIG_IGN);
    ev_signal_init(&term, on_signal, SIGTERM);
    ev_signal_init(&interrupt, on_signal, SIGINT);
    ev_signal_start(loop, &term);
    ev_signal_start(loop, &interrupt);
    ev_run(loop, 0);
    ev_signal_stop(loop, &term);
    ev_signal_stop(loop, &interrupt);
}
