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
    struct str s = { 0 };
    size_t n;

    str_escape(&s, text ? text : "", text ? strlen(text) : 0);
    n = s.len < size ? s.len : size - 1;
    while (n < s.len && n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;                                     /* not into the middle of a letter */
    memcpy(out, str_text(&s), n);
    out[n] = '\0';
    str_free(&s);
}

void worker_stop(struct worker *w, int status)
{
    w->stop(w, status);
}
