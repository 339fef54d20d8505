/* kerr.c - errors of kernels/ */
#include "kerr.h"

#include <stdarg.h>
#include <stdio.h>

int k_fail(struct k_err *e, int code, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        e->code = code;
        e->need = 0;
    }
    return -1;
}
