/* result.h - results in their canonical layouts, little endian
 *
 * digits:   0 char[8] "TPCDIG1"; 8 u32 x6 digits n, time bins, orbits, first orbit, TF counter,
 *           run; 32 u32 x37 first digit of each sector, then n; 180 12 bytes 0; 192 u16 xn time
 *           bin; u16 xn charge in quarter counts; u8 xn sector, u8 xn row, u8 xn pad.  Ordered
 *           by sector, row, pad, time.
 * clusters: 0 char[8] "TPCCLU1"; 8 u32 x2 clusters n, 5472; 16 u32 x5473 first cluster of
 *           (sector, row), then n; 21908 12 bytes 0; 21920 records of 16 bytes: u32 time in 1/64
 *           bin | flags << 24, u16 pad in 1/64, u8 sigma time, u8 sigma pad in 1/32, u16 qmax,
 *           u16 qtot, u8 sector, u8 row, u16 0.  Ordered by sector, row, time, pad, sigmas,
 *           qmax, qtot, flags.
 *
 * The digest of a result is XXH3-64 over it.
 */
#ifndef RESULT_H
#define RESULT_H

#include <stddef.h>
#include <stdint.h>

#include "kerr.h"

enum {
    DIGITS_HEADER = 192, DIGIT_SIZE = 7,
    CLUSTERS_HEADER = 21920, CLUSTER_SIZE = 16,
    SECTOR_ROWS = 36 * 152,
};

struct result_buf {
    uint8_t *data;
    size_t size, room;
};

/* Makes room for size bytes; the contents stay. */
int result_reserve(struct result_buf *r, size_t size, struct k_err *e);
void result_free(struct result_buf *r);

/* "XXH3-64"; in a standalone build without xxhash.h what it is instead. */
extern const char *const result_digest_kind;
uint64_t result_digest(const void *data, size_t size);

/* The running digest of several pieces. */
struct result_hash;
struct result_hash *result_hash_new(void);
void result_hash_add(struct result_hash *h, const void *data, size_t size);
uint64_t result_hash_end(struct result_hash *h);   /* frees it */

#endif
