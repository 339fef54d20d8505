/* resize.h - the size that sluiced wants this node's buffer to have
 *
 * An order has a number: it is carried out once, as soon as nothing is in the buffer, and every report says which one was carried out last and, if it
 * could not be, why. The old size stays then.
 */
#ifndef SLUICE_RESIZE_H
#define SLUICE_RESIZE_H

#include <stdint.h>
#include "err.h"

struct worker;
struct resize;

struct resize *resize_create(struct worker *w);
void resize_destroy(struct resize *r);
/* From sluiced. One that is known already is passed over; a newer one takes the place of one that waits. */
void resize_order(struct resize *r, uint64_t order, uint64_t size);
void resize_tick(struct resize *r);
/* The buffer has become what was asked of it, or (why) has not. */
void resize_over(struct resize *r, const struct err *why);
/* The order carried out last, 0: none, and why it could not be; "": it was. */
uint64_t resize_done(const struct resize *r);
const char *resize_failure(const struct resize *r);

#endif
