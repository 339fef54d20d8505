/* worker.c - what the worker's modules share
 *
 * From: main.c (fills the struct).  To: all modules.
 */
#include "config.h"
#include "worker.h"

#include "clock.h"
#include "report.h"

int64_t worker_now(const struct worker *w)
{
    return clock_mono_ns() - w->stalled_ns;
}

void worker_changed(struct worker *w)
{
    report_changed(w->report);
}

void worker_stop(struct worker *w, int status)
{
    w->stop(w, status);
}
