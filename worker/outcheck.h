/* outcheck.h - whether a user can deliver to a folder: it is tried */
#ifndef SLUICE_OUTCHECK_H
#define SLUICE_OUTCHECK_H

#include <stdint.h>
#include "err.h"
#include "sluice.pb-c.h"

struct worker;

/* Where it leads by symbolic links, as far as it is there already, counts: below one of the roots (none: anywhere). May block. -1: e, and errno when it could not
 * be looked at. */
int output_check_roots(const char *output, char *const *roots, unsigned n, struct err *e);
/* Tries it, or sweeps it, in a thread; answers OutputChecked to that question. */
void outcheck_take(struct worker *w, uint32_t id, const Sluice__CheckOutput *m);

#endif
