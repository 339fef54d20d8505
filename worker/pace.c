/* pace.c - when the n-th time-frame is due
 *
 * From: replay.c.  To: nothing.
 * due(n) = start + n / rate, computed from n each time; a TF that went out late moves no later one.
 */
#include "config.h"

#include "pace.h"

#include <math.h>
#include <string.h>

#include "str.h"

int pace_parse(const char *text, double *rate, struct err *e)
{
    if (strcmp(text, "max") == 0) {
        *rate = 0;
        return 0;
    }
    return str_parse_f64("--rate", text, 1e-6, 1e6, rate, e);
}

void pace_start(struct pace *p, int64_t now_ns)
{
    p->start_ns = now_ns;
    p->started = true;
}

int64_t pace_due_ns(const struct pace *p, uint64_t n)
{
    if (p->rate <= 0)
        return p->start_ns;
    /* The 64 bits of a long double hold every nanosecond of 292 years. */
    long double after = (long double)n * 1e9L / (long double)p->rate;
    if (after >= (long double)(INT64_MAX - p->start_ns))
        return INT64_MAX;
    return p->start_ns + (int64_t)roundl(after);
}

double pace_offered(const struct pace *p, uint64_t n, int64_t last_ns)
{
    if (n < 2 || last_ns <= p->start_ns)
        return NAN;
    return (double)(n - 1) * 1e9 / (double)(last_ns - p->start_ns);
}
