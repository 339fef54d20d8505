/* mem.c - allocations of our own bookkeeping; out of memory ends the program, a restart is safe */
#include "config.h"

#include "mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void __attribute__((noreturn)) die_out_of_memory(size_t n, size_t size)
{
    fprintf(stderr, "%s: out of memory (%zu x %zu bytes wanted)\n",
            program_invocation_short_name, n, size);
    abort();
}

void *mem_zalloc(size_t size)
{
    return mem_array(1, size);
}

void *mem_array(size_t n, size_t size)
{
    /* calloc checks the product; one byte at least, so that NULL always means failure */
    void *p = n == 0 || size == 0 ? calloc(1, 1) : calloc(n, size);

    if (p == NULL)
        die_out_of_memory(n, size);
    return p;
}

void *mem_grow(void *old, size_t n, size_t size)
{
    void *p = n == 0 || size == 0 ? realloc(old, 1) : reallocarray(old, n, size);

    if (p == NULL)
        die_out_of_memory(n, size);
    return p;
}

char *mem_strdup(const char *s)
{
    char *copy;

    if (s == NULL)
        return NULL;
    copy = strdup(s);
    if (copy == NULL)
        die_out_of_memory(1, strlen(s) + 1);
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        die_out_of_memory(1, 0);
    return text;
}
