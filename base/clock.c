/* clock.c - two clocks, and times and durations as people write them
 *
 * Parsing is strict: whatever is not one of the documented forms is refused with the list of them,
 * so that a slip of the finger never becomes an hour or a year.
 */
#include "config.h"

#include "clock.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOCK_MAX_S (INT64_C(10) * 365 * 86400)     /* the longest duration taken: 10 years */

static int64_t read_clock(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * CLOCK_SECOND + t.tv_nsec;
}

int64_t clock_mono_ns(void) { return read_clock(CLOCK_MONOTONIC); }
double  clock_mono_s(void) { return (double)clock_mono_ns() / 1e9; }
int64_t clock_wall_ns(void) { return read_clock(CLOCK_REALTIME); }

/* --- showing -------------------------------------------------------------------------------- */

const char *clock_rfc3339(int64_t wall_ns, char out[CLOCK_TEXT])
{
    int64_t s = wall_ns / CLOCK_SECOND, ns = wall_ns % CLOCK_SECOND;
    time_t t;
    struct tm tm;
    char date[24];
    unsigned minutes;

    if (ns < 0) {
        ns += CLOCK_SECOND;
        s--;
    }
    t = (time_t)s;
    localtime_r(&t, &tm);
    minutes = (unsigned)(labs(tm.tm_gmtoff) / 60) % (24 * 60);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out, CLOCK_TEXT, "%s.%03u%c%02u:%02u", date, (unsigned)(ns / 1000000) % 1000,
             tm.tm_gmtoff < 0 ? '-' : '+', minutes / 60, minutes % 60);
    return out;
}

const char *clock_duration_text(int64_t ns, char out[CLOCK_TEXT])
{
    const char *sign = ns < 0 ? "-" : "";
    uint64_t v = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns, s = v / 1000000000;

    if (v == 0)
        snprintf(out, CLOCK_TEXT, "0s");
    else if (s == 0 && v < 1000000)
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 "us", sign, v / 1000);
    else if (s == 0)
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 "ms", sign, v / 1000000);
    else if (s < 60)
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 ".%" PRIu64 "s", sign, s, v / 100000000 % 10);
    else if (s < 3600)
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 "m%02" PRIu64 "s", sign, s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 "h%02" PRIu64 "m", sign, s / 3600, s / 60 % 60);
    else
        snprintf(out, CLOCK_TEXT, "%s%" PRIu64 "d%02" PRIu64 "h", sign, s / 86400, s / 3600 % 24);
    return out;
}

/* --- durations ------------------------------------------------------------------------------ */

/* 1 to 12 decimal digits; returns what follows or NULL. */
static const char *digits(const char *p, int64_t *value)
{
    size_t n = strspn(p, "0123456789");

    if (n == 0 || n > 12)
        return NULL;
    *value = strtoll(p, NULL, 10);
    return p + n;
}

static const struct { const char *word; int64_t ns; } units[] = {
    { "ms", 1000000 }, { "s", CLOCK_SECOND }, { "m", 60 * CLOCK_SECOND },
    { "h", 3600 * CLOCK_SECOND }, { "d", 86400 * CLOCK_SECOND },
};

static bool unit_duration(const char *text, int64_t *ns)
{
    int64_t v;
    const char *rest = digits(text, &v);

    for (size_t i = 0; rest != NULL && i < sizeof(units) / sizeof(units[0]); i++) {
        if (strcmp(rest, units[i].word) == 0) {
            if (v == 0 || v > CLOCK_MAX_S * CLOCK_SECOND / units[i].ns)
                return false;
            *ns = v * units[i].ns;
            return true;
        }
    }
    return false;
}

int clock_parse_duration(const char *text, int64_t *ns, struct err *e)
{
    if (unit_duration(text, ns))
        return 0;
    return err_set(e, ERR_USAGE, "'%s' is not a duration; accepted: a whole number above 0 with its unit, as in "
                   "500ms, 90s, 15m, 4h, 2d (at most 3650d)", text);
}

/* Slurm's forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S. A field below another one stays within its range. */
static bool slurm_duration(const char *text, int64_t *ns)
{
    int64_t field[3] = { 0 }, days = 0, s;
    const char *p = text, *dash = strchr(text, '-');
    unsigned n = 0;

    if (dash != NULL) {
        if ((p = digits(p, &days)) != dash)
            return false;
        p++;
    }
    for (;;) {
        if (n == 3 || (p = digits(p, &field[n++])) == NULL)
            return false;
        if (*p == '\0')
            break;
        if (*p++ != ':')
            return false;
    }
    if ((n > 1 && field[1] > 59) || field[2] > 59 || (dash != NULL && field[0] > 23))
        return false;
    if (days > CLOCK_MAX_S || field[0] > CLOCK_MAX_S)
        return false;
    if (dash != NULL || n == 3)
        s = days * 86400 + field[0] * 3600 + field[1] * 60 + field[2];
    else
        s = field[0] * 60 + field[1];
    if (s <= 0 || s > CLOCK_MAX_S)
        return false;
    *ns = s * CLOCK_SECOND;
    return true;
}

int clock_parse_limit(const char *text, int64_t *ns, struct err *e)
{
    if (unit_duration(text, ns) || slurm_duration(text, ns))
        return 0;
    return err_set(e, ERR_USAGE, "'%s' is not a time limit; accepted, above 0 and at most 3650 days: 90s, 15m, 4h, 2d, or "
                   "M, M:S, H:M:S, D-H, D-H:M, D-H:M:S", text);
}

/* --- points in time ------------------------------------------------------------------------- */

/* Exactly n digits, value within [min, max]. */
static bool fixed(const char **p, unsigned n, int min, int max, int *value)
{
    int v = 0;

    for (unsigned i = 0; i < n; i++) {
        char c = (*p)[i];

        if (c < '0' || c > '9')
            return false;
        v = 10 * v + (c - '0');
    }
    *p += n;
    *value = v;
    return v >= min && v <= max;
}

static bool letter(const char **p, const char *any)
{
    if (**p == '\0' || strchr(any, **p) == NULL)
        return false;
    (*p)++;
    return true;
}

static int days_in_month(int year, int month)
{
    static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
    bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

    return days[month - 1] + (month == 2 && leap);
}

/* The rest of RFC 3339 after the date and time: [.fraction] then Z or +HH:MM. */
static bool fraction_and_offset(const char **p, int64_t *ns, int *offset_s)
{
    int64_t unit = CLOCK_SECOND / 10;
    int h, m, sign;

    *ns = 0;
    if (**p == '.') {
        (*p)++;
        if (**p < '0' || **p > '9')
            return false;
        for (; **p >= '0' && **p <= '9'; (*p)++, unit /= 10)
            *ns += (**p - '0') * unit;
    }
    if (letter(p, "Zz")) {
        *offset_s = 0;
        return true;
    }
    sign = **p == '-' ? -1 : 1;
    if (!letter(p, "+-") || !fixed(p, 2, 0, 23, &h) || !letter(p, ":") || !fixed(p, 2, 0, 59, &m))
        return false;
    *offset_s = sign * (h * 3600 + m * 60);
    return true;
}

static bool rfc3339(const char *p, int64_t *wall_ns)
{
    struct tm tm = { 0 };
    int64_t ns;
    int year, month, offset;

    if (!fixed(&p, 4, 1970, 2200, &year) || !letter(&p, "-") || !fixed(&p, 2, 1, 12, &month)
        || !letter(&p, "-") || !fixed(&p, 2, 1, days_in_month(year, month), &tm.tm_mday)
        || !letter(&p, "Tt ") || !fixed(&p, 2, 0, 23, &tm.tm_hour) || !letter(&p, ":")
        || !fixed(&p, 2, 0, 59, &tm.tm_min) || !letter(&p, ":") || !fixed(&p, 2, 0, 60, &tm.tm_sec)
        || !fraction_and_offset(&p, &ns, &offset) || *p != '\0')
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    *wall_ns = ((int64_t)timegm(&tm) - offset) * CLOCK_SECOND + ns;
    return true;
}

/* HH:MM in local time: today's, or tomorrow's when today's is past. */
/* The next one, or with way = -1 the last one. */
static bool time_of_day(const char *p, int64_t now_ns, int way, int64_t *wall_ns)
{
    time_t now = (time_t)(now_ns / CLOCK_SECOND), then;
    struct tm tm;
    int hour, minute;

    if (!fixed(&p, 2, 0, 23, &hour) || !letter(&p, ":") || !fixed(&p, 2, 0, 59, &minute) || *p != '\0')
        return false;
    for (int days = 0; days <= 1; days++) {
        localtime_r(&now, &tm);
        tm.tm_mday += way * days;
        tm.tm_hour = hour;
        tm.tm_min = minute;
        tm.tm_sec = 0;
        tm.tm_isdst = -1;
        then = mktime(&tm);
        if (way > 0 ? then > now : then <= now)
            break;
    }
    *wall_ns = (int64_t)then * CLOCK_SECOND;
    return true;
}

int clock_parse_time(const char *text, int64_t now_wall_ns, int64_t *wall_ns, struct err *e)
{
    int64_t ns;

    if (strcmp(text, "now") == 0) {
        *wall_ns = now_wall_ns;
        return 0;
    }
    if (strncmp(text, "now+", 4) == 0 && unit_duration(text + 4, &ns)) {
        *wall_ns = now_wall_ns + ns;
        return 0;
    }
    if (time_of_day(text, now_wall_ns, 1, wall_ns) || rfc3339(text, wall_ns))
        return 0;
    return err_set(e, ERR_USAGE, "'%s' is not a time; accepted: now, now+1h (90s, 15m, 2d), 22:00 (the next one), "
                   "2026-11-30T22:00:00+01:00", text);
}

int clock_parse_past(const char *text, int64_t now_wall_ns, int64_t *wall_ns, struct err *e)
{
    int64_t ago;

    if (clock_parse_duration(text, &ago, NULL) == 0)
        *wall_ns = now_wall_ns - ago;
    else if (!time_of_day(text, now_wall_ns, -1, wall_ns) && !rfc3339(text, wall_ns))
        return err_set(e, ERR_USAGE, "'%s' is neither a time nor how long ago; accepted: 1h (90s, 15m, 2d), 22:00 (the last one), "
                       "2026-11-30T22:00:00+01:00", text);
    return 0;
}
