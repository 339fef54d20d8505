/* offset.h - how far a peer's clock is ahead of ours: between two bounds, which a long way there and back draws apart and cannot move past the truth
 *
 * A peer's clock that was read after `sent` and before `came` (both ours) is ahead by no less than clock - came and no more than clock - sent. What a thousand
 * others in the queue add to the way is in that difference: it makes us less sure, never wrong.
 */
#ifndef SLUICE_OFFSET_H
#define SLUICE_OFFSET_H

#include <stdbool.h>
#include <stdint.h>

struct offset { bool known; double low, high; int64_t at; };      /* s; at: monotonic ns of the last look */

/* One more look. Bounds of before count as far as the clocks may not have drifted apart since; where they do not fit the new ones, a clock was set. */
void   offset_take(struct offset *o, int64_t sent, int64_t came, int64_t clock, int64_t mono);
double offset_value(const struct offset *o);                      /* the middle, s */
double offset_error(const struct offset *o);                      /* and how far from it the truth may be */

#endif
