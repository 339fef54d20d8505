/* outcheck.h - whether a user can deliver to a folder: it is tried */
#ifndef SLUICE_OUTCHECK_H
#define SLUICE_OUTCHECK_H

#include <stdint.h>
#include "sluice.pb-c.h"

struct worker;

/* Tries it in a thread; answers OutputChecked to that question. */
void outcheck_take(struct worker *w, uint32_t id, const Sluice__CheckOutput *m);

#endif
