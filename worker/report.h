/* report.h - what the worker says of itself: Report to sluiced, status file for people */
#ifndef SLUICE_REPORT_H
#define SLUICE_REPORT_H

#include "worker.h"

struct report;

struct report *report_create(struct worker *w);
void report_destroy(struct report *r);
void report_changed(struct report *r);           /* one goes out within 50 ms */
void report_first(struct report *r);             /* a new connection: at once */
/* Extra trouble of the worker itself, beside buffer and delivery; NULL: none. word is a literal. */
void report_trouble(struct report *r, const char *word, const char *text);
/* The status file now, on the spot: for the end of the program. */
void report_last(struct report *r, const char *state, const char *reason);

#endif
