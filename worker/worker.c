/* worker.c - what the worker's modules share
 *
 * From: main.c (fills the struct).  To: all modules.
 */
#include "config.h"
#include "worker.h"

#include "clock.h"
#include "report.h"
#include "str.h"

#include <string.h>

int64_t worker_now(const struct worker *w)
{
    return clock_mono_ns() - w->stalled_ns;
}

void worker_changed(struct worker *w)
{
    report_changed(w->report);
}

void worker_text(char *out, size_t size, const char *text)
{
    size_t len = text ? strlen(text) : 0, n = len < size ? len : size - 1;

    for (unsigned i = 0; i < 3 && n < len && n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80; i++)
        n--;                                     /* not into the middle of a letter */
    memcpy(out, text ? text : "", n);
    out[n] = '\0';
    str_mend(out, n);
}

void worker_stop(struct worker *w, int status)
{
    w->stop(w, status);
}
