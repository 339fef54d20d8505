/* str.c - strings: growing, escaping, sizes and numbers as people write them
 *
 * Numbers are read whole and strictly: no sign where none is meant, no blank, no rest.
 */
#include "config.h"

#include "str.h"
#include "mem.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a growing string ----------------------------------------------------------------------- */

static void reserve(struct str *s, size_t more)
{
    size_t want = s->len + more + 1;

    if (want <= s->cap)
        return;
    if (want < 2 * s->cap)
        want = 2 * s->cap;
    s->p = mem_grow(s->p, want < 64 ? 64 : want, 1);
    s->cap = want < 64 ? 64 : want;
}

void str_addn(struct str *s, const char *bytes, size_t n)
{
    reserve(s, n);
    if (n > 0)
        memcpy(s->p + s->len, bytes, n);
    s->len += n;
    s->p[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    reserve(s, (size_t)n);
    va_start(ap, fmt);
    vsnprintf(s->p + s->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    s->len += (size_t)n;
}

void str_clear(struct str *s)
{
    s->len = 0;
    if (s->p != NULL)
        s->p[0] = '\0';
}

char *str_take(struct str *s)
{
    char *text = s->p != NULL ? s->p : mem_zalloc(1);

    *s = (struct str){ 0 };
    return text;
}

void str_free(struct str *s)
{
    free(s->p);
    *s = (struct str){ 0 };
}

const char *str_text(const struct str *s)
{
    return s->p != NULL ? s->p : "";
}

/* --- escaping ------------------------------------------------------------------------------- */

/* Length of the UTF-8 character at p with n bytes left, 0 when it is none (overlong, surrogate, above U+10FFFF too). */
static size_t utf8_char(const unsigned char *p, size_t n, uint32_t *rune)
{
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t len = p[0] < 0x80 ? 1 : (p[0] & 0xe0) == 0xc0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3
               : (p[0] & 0xf8) == 0xf0 ? 4 : 0;
    uint32_t r;

    if (len == 0 || len > n)
        return 0;
    r = len == 1 ? p[0] : p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        r = r << 6 | (p[i] & 0x3fu);
    }
    if (r < least[len] || r > 0x10ffff || (r >= 0xd800 && r <= 0xdfff))
        return 0;
    *rune = r;
    return len;
}

void str_mend(char *text, size_t n)
{
    for (size_t i = 0; i < n; ) {
        uint32_t rune = 0;
        size_t len = utf8_char((unsigned char *)text + i, n - i, &rune);

        if (len == 0 || rune == 0)
            text[i] = '?';
        i += len == 0 ? 1 : len;
    }
}

/* Characters that drive a terminal or turn the line about: C0, DEL, C1, line and bidi controls. */
static bool is_control(uint32_t r)
{
    return r < 0x20 || (r >= 0x7f && r < 0xa0) || (r >= 0x200e && r <= 0x200f)
        || (r >= 0x2028 && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069);
}

static void escape(struct str *s, const char *text, size_t n, bool backslash)
{
    const unsigned char *p = (const unsigned char *)text;

    for (size_t i = 0; i < n; ) {
        uint32_t rune = 0;
        size_t len = utf8_char(p + i, n - i, &rune);

        if (len == 1 && (rune == '\n' || rune == '\t' || (rune == '\\' && backslash))) {
            str_add(s, rune == '\n' ? "\\n" : rune == '\t' ? "\\t" : "\\\\");
        } else if (len == 0 || is_control(rune)) {
            for (size_t k = 0; k < (len == 0 ? 1 : len); k++)
                str_addf(s, "\\x%02X", p[i + k]);
        } else {
            str_addn(s, text + i, len);
        }
        i += len == 0 ? 1 : len;
    }
}

void str_escape(struct str *s, const char *text, size_t n)
{
    escape(s, text, n, true);
}

void str_show(struct str *s, const char *text, size_t n)
{
    escape(s, text, n, false);
}

/* --- sizes and numbers ---------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Decimal digits at text into value; returns what follows, NULL when there are none or it overflows. */
static const char *read_digits(const char *text, uint64_t *value)
{
    uint64_t v = 0;
    const char *p = text;

    for (; is_digit(*p); p++) {
        unsigned d = (unsigned)(*p - '0');

        if (v > (UINT64_MAX - d) / 10)
            return NULL;
        v = 10 * v + d;
    }
    *value = v;
    return p == text ? NULL : p;
}

int str_parse_size(const char *text, uint64_t *bytes, struct err *e)
{
    static const char units[] = "KMGT";
    uint64_t v;
    unsigned shift = 0;
    const char *rest = read_digits(text, &v);
    const char *unit;

    if (rest != NULL && *rest != '\0' && (unit = strchr(units, *rest)) != NULL) {
        shift = 10 * (unsigned)(unit - units + 1);
        rest++;
    }
    if (rest == NULL || *rest != '\0' || v == 0 || v > UINT64_MAX >> shift)
        return err_set(e, ERR_USAGE, "'%s' is not a size; accepted: a whole number above 0 of bytes, or "
                       "with K, M, G or T (powers of 1024), as in 64M", text);
    *bytes = v << shift;
    return 0;
}

const char *str_size_text(uint64_t bytes, char out[32])
{
    static const char units[] = "KMGT";
    unsigned u = 0;
    double v = (double)bytes;

    for (unsigned i = 4; i > 0; i--) {
        if (bytes > 0 && bytes % (UINT64_C(1) << (10 * i)) == 0 && bytes >> (10 * i) < 10000) {
            snprintf(out, 32, "%" PRIu64 "%c", bytes >> (10 * i), units[i - 1]);
            return out;
        }
    }
    for (; v >= 1024 && u < 4; u++)
        v /= 1024;
    if (u == 0)
        snprintf(out, 32, "%" PRIu64, bytes);
    else
        snprintf(out, 32, "%.1f %ciB", v, units[u - 1]);
    return out;
}

int str_parse_u64(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *value, struct err *e)
{
    uint64_t v;
    const char *rest = read_digits(text, &v);

    if (rest == NULL || *rest != '\0' || v < min || v > max)
        return err_set(e, ERR_USAGE, "%s '%s': a whole number from %" PRIu64 " to %" PRIu64 " is wanted",
                       what, text, min, max);
    *value = v;
    return 0;
}

int str_parse_i64(const char *what, const char *text, int64_t min, int64_t max, int64_t *value, struct err *e)
{
    bool negative = text[0] == '-';
    uint64_t v, room = negative ? (uint64_t)INT64_MAX + 1 : INT64_MAX;
    const char *rest = read_digits(text + negative, &v);
    int64_t signed_v;

    if (rest == NULL || *rest != '\0' || v > room)
        goto bad;
    signed_v = negative ? (int64_t)(0 - v) : (int64_t)v;
    if (signed_v < min || signed_v > max)
        goto bad;
    *value = signed_v;
    return 0;
bad:
    return err_set(e, ERR_USAGE, "%s '%s': a whole number from %" PRId64 " to %" PRId64 " is wanted",
                   what, text, min, max);
}

/* The C locale whatever the environment says, so that 0.8 is never read as 0. */
static locale_t c_locale(void)
{
    static locale_t loc;
    locale_t fresh, none = (locale_t)0;

    if (__atomic_load_n(&loc, __ATOMIC_ACQUIRE) == none) {
        fresh = newlocale(LC_ALL_MASK, "C", none);
        if (fresh != none && !__atomic_compare_exchange_n(&loc, &none, fresh, false,
                                                          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            freelocale(fresh);
    }
    return __atomic_load_n(&loc, __ATOMIC_ACQUIRE);
}

int str_parse_f64(const char *what, const char *text, double min, double max, double *value, struct err *e)
{
    const char *first = text + (text[0] == '-');
    char *rest;
    double v;

    /* strtod would take blanks, hexadecimal, nan and infinity as well */
    if (!is_digit(*first) && !(*first == '.' && is_digit(first[1])))
        goto bad;
    if (text[strspn(text, "0123456789.eE+-")] != '\0')
        goto bad;
    v = strtod_l(text, &rest, c_locale());
    if (*rest != '\0' || !isfinite(v) || v < min || v > max)
        goto bad;
    *value = v;
    return 0;
bad:
    return err_set(e, ERR_USAGE, "%s '%s': a number from %g to %g is wanted", what, text, min, max);
}

bool str_is_name(const char *text)
{
    size_t n = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");

    return n >= 1 && n <= 63 && text[n] == '\0' && strchr("._-", text[0]) == NULL;
}

bool str_equal(const char *a, const char *b)
{
    return a == NULL || b == NULL ? a == b : strcmp(a, b) == 0;
}

bool str_is_below(const char *path, char *const *folders, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        size_t len = strlen(folders[i]);

        while (len > 0 && folders[i][len - 1] == '/')
            len--;
        if (strncmp(path, folders[i], len) == 0 && (path[len] == '/' || path[len] == '\0'))
            return true;
    }
    return n == 0;
}
