/* clock.h - deadlines use the monotonic clock, people read the wall clock */
#ifndef SLUICE_CLOCK_H
#define SLUICE_CLOCK_H

#include <stddef.h>
#include <stdint.h>
#include "err.h"

#define CLOCK_SECOND INT64_C(1000000000)

int64_t clock_mono_ns(void);    /* CLOCK_MONOTONIC */
double  clock_mono_s(void);     /* the same in seconds */
int64_t clock_wall_ns(void);    /* CLOCK_REALTIME, ns since 1970 */

enum { CLOCK_TEXT = 40 };
/* RFC 3339 with milliseconds and offset in local time: 2026-11-30T10:06:49.120+00:00. Returns out. */
const char *clock_rfc3339(int64_t wall_ns, char out[CLOCK_TEXT]);

/* "90s" "15m" "4h" "2d", "500ms": ns; a bare number, 0, a negative one or overflow (above 10 years) is refused with the accepted forms. */
int clock_parse_duration(const char *text, int64_t *ns, struct err *e);
/* The same, or Slurm's six forms (M, M:S, H:M:S, D-H, D-H:M, D-H:M:S); 0 is refused. For --time. */
int clock_parse_limit(const char *text, int64_t *ns, struct err *e);
/* "now", "now+1h", "22:00" (the next one), RFC 3339: wall ns. */
int clock_parse_time(const char *text, int64_t now_wall_ns, int64_t *wall_ns, struct err *e);
/* How long ago ("1h"), "22:00" (the last one), RFC 3339: wall ns. For --since. */
int clock_parse_past(const char *text, int64_t now_wall_ns, int64_t *wall_ns, struct err *e);
/* "1d02h", "4m05s", "300ms": the two largest units, for people. Returns out. */
const char *clock_duration_text(int64_t ns, char out[CLOCK_TEXT]);

#endif
