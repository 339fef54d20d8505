/* err.c - the code and the sentence that say why something failed
 *
 * From: whoever first knows the cause.  To: the one place that shows it.
 * A sentence too long for the struct is cut and ends in "...", never in half a UTF-8 character.
 */
#include "config.h"

#include "err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void cut_mark(char *text, size_t size)
{
    size_t end = size - 4;

    while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--;
    memcpy(text + end, "...", 4);
}

static void __attribute__((format(printf, 3, 0)))
put(char *text, size_t size, const char *fmt, va_list ap)
{
    int n = vsnprintf(text, size, fmt, ap);

    if (n < 0)
        snprintf(text, size, "(a message that could not be formatted)");
    else if ((size_t)n >= size)
        cut_mark(text, size);
}

enum err_code err_of_errno(int error)
{
    return error == ENOENT ? ERR_NOT_FOUND : error == EACCES || error == EPERM ? ERR_PERMISSION : ERR_FAILED;
}

enum err_code err_common(enum err_code so_far, enum err_code next)
{
    return so_far == ERR_NONE || so_far == next ? next : ERR_FAILED;
}

int err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    char text[sizeof(e->text)];     /* the arguments may lie in e itself */

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    put(text, sizeof(text), fmt, ap);
    va_end(ap);
    e->code = code;
    memcpy(e->text, text, sizeof(text));
    return -1;
}

int err_errno(struct err *e, enum err_code code, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    char text[sizeof(e->text)], why[128];

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    put(text, sizeof(text), fmt, ap);
    va_end(ap);
    err_set(e, code, "%s: %s", text, strerror_r(saved, why, sizeof(why)));
    errno = saved;
    return -1;
}

void *err_null(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    char text[sizeof(e->text)];

    if (e == NULL)
        return NULL;
    va_start(ap, fmt);
    put(text, sizeof(text), fmt, ap);
    va_end(ap);
    e->code = code;
    memcpy(e->text, text, sizeof(text));
    return NULL;
}

int err_prefix(struct err *e, const char *fmt, ...)
{
    va_list ap;
    char text[sizeof(e->text)];

    if (e == NULL)
        return -1;
    va_start(ap, fmt);
    put(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(e, e->code, "%s: %s", text, e->text);
}
