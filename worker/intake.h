/* intake.h - takes a TF into the buffer: its parts from their sources, or a range of a file */
#ifndef SLUICE_INTAKE_H
#define SLUICE_INTAKE_H

#include "held.h"

struct intake;
struct build;

struct intake *intake_create(struct worker *w);
void intake_destroy(struct intake *i);           /* after the pool for reading ended */
/* An Assign: ends in a Refused at once, or in a held TF that is being built. */
void intake_assign(struct intake *i, const Sluice__Assign *m);
/* Stops what is under way; the TF stays for whoever calls to answer for. */
void intake_cancel(struct held *h);
void intake_close(struct intake *i, struct work *work);
void intake_tick(struct intake *i);              /* every 100 ms */
void intake_build_free(struct build *b);         /* NULL is fine */

#endif
