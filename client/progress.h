/* progress.h - a line on a terminal that is written over; nothing at all elsewhere */
#ifndef SLUICE_PROGRESS_H
#define SLUICE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress { bool on, shown; };

void progress_start(struct progress *p);                        /* on when standard error is a terminal */
/* done of total (0: unknown), and what to say beside it. */
void progress_show(struct progress *p, uint64_t done, uint64_t total, const char *beside);
void progress_clear(struct progress *p);                        /* before another line, and at the end */

#endif
