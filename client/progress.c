/* progress.c - the bar of replay */
#include "config.h"

#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR = 30 };

void progress_start(struct progress *p)
{
    *p = (struct progress){ .on = isatty(STDERR_FILENO) };
}

void progress_show(struct progress *p, uint64_t done, uint64_t total, const char *beside)
{
    char bar[BAR + 1];
    size_t filled = total > 0 ? (size_t)(done >= total ? BAR : done * BAR / total) : 0;

    if (!p->on)
        return;
    memset(bar, '#', filled);
    memset(bar + filled, '.', BAR - filled);
    bar[BAR] = '\0';
    if (total > 0)
        fprintf(stderr, "\r[%s] %" PRIu64 " of %" PRIu64 "  %s\033[K", bar, done, total, beside);
    else
        fprintf(stderr, "\r%" PRIu64 "  %s\033[K", done, beside);
    fflush(stderr);
    p->shown = true;
}

void progress_clear(struct progress *p)
{
    if (p->shown)
        fprintf(stderr, "\r\033[K");
    p->shown = false;
}
