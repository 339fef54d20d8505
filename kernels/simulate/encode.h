/* encode.h - digits -> pages -> a TF: the inverse of stage decode */
#ifndef ENCODE_H
#define ENCODE_H

#include <stddef.h>
#include <stdint.h>

#include "kerr.h"
#include "kdef.h"
#include "ktypes.h"

/* Digits in canonical order (sector, row, pad, time), no two in one cell; charge below 4096. */
struct encode_digits {
    uint32_t n;
    const uint16_t *time, *charge;
    const uint8_t *sector, *row, *pad;
};

struct encode_tf {
    uint32_t orbits, first_orbit, counter, run;
    uint64_t written_ms;
    uint8_t *packet;             /* K_LINKS packet counters, running on from TF to TF; or NULL */
    uint32_t page_max;           /* bytes; 0: 8192 */
};

/* Makes the TF (*out, to be freed by the caller) with one block a link and orbit. */
int encode_tf(const struct encode_digits *d, const struct encode_tf *t, void **out, size_t *size,
              struct k_err *e);

#endif
