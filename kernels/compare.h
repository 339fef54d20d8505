/* compare.h - two results held against each other: digits or clusters */
#ifndef COMPARE_H
#define COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kerr.h"

struct compare {
    const char *what;            /* digits, clusters */
    bool equal;                  /* every byte */
    uint64_t ref, own;           /* how many each has */
    uint64_t same;               /* that both have */
    uint64_t changed;            /* in the same place (cell; or sector, row, time, pad), other values */
    uint64_t only_ref, only_own;
    uint64_t index;              /* the first difference: its number in REF */
    char first[300];             /* and in words; "" when there is none */
};

/* K_EINPUT when one is no result, is cut short, or they are of two kinds. */
int compare_results(const void *ref, size_t ref_size, const void *own, size_t own_size,
                    struct compare *c, struct k_err *e);

#endif
