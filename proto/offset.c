/* offset.c - see offset.h
 *
 * From: chan.c.  To: whoever wants to know whether a peer's clock is right.
 */
#include "config.h"

#include "offset.h"

#include "clock.h"

static const double drift = 1e-3;        /* two clocks part by no more than this share of the time; ntp slews by half of it */

static double seconds(int64_t ns)
{
    return (double)ns / (double)CLOCK_SECOND;
}

void offset_take(struct offset *o, int64_t sent, int64_t came, int64_t clock, int64_t mono)
{
    double low = seconds(clock - came), high = seconds(clock - sent);
    double wider = o->known ? drift * seconds(mono - o->at) : 0;

    if (high < low)                      /* our own clock was set meanwhile */
        return;
    if (o->known && o->low - wider <= high && o->high + wider >= low) {
        low = o->low - wider > low ? o->low - wider : low;
        high = o->high + wider < high ? o->high + wider : high;
    }
    *o = (struct offset){ true, low, high, mono };
}

double offset_value(const struct offset *o)
{
    return (o->low + o->high) / 2;
}

double offset_error(const struct offset *o)
{
    return (o->high - o->low) / 2;
}
