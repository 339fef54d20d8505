/* priority.c - nice values of the loop and of what works beside it
 *
 * From: main.c (once, at the start).  To: pool.c, buffer.c (threads), device.c (processes).
 * Under Linux nice belongs to a thread. Stepping back is always allowed; stepping forward wants CAP_SYS_NICE or RLIMIT_NICE.
 */
#include "config.h"
#include "priority.h"

#include "log.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

enum { NICE_LAST = 19 };

struct priority priority_take(void)
{
    int base = getpriority(PRIO_PROCESS, 0);     /* 0: this thread */
    struct priority p = { base, base };

    if (base > PRIORITY_LOOP && setpriority(PRIO_PROCESS, 0, PRIORITY_LOOP) < 0)
        log_warning("worker: nice %d wanted for the loop, it stays at %d: %s; threads and processes get %d", PRIORITY_LOOP, base,
                    strerror(errno), priority_behind(&p, base));
    else if (base > PRIORITY_LOOP)
        p.loop = PRIORITY_LOOP;
    return p;
}

int priority_behind(const struct priority *p, int wanted)
{
    int first = p->loop + PRIORITY_STEP < NICE_LAST ? p->loop + PRIORITY_STEP : NICE_LAST;

    return wanted > first ? wanted : first;
}
