/* input.h - one TF as the stages see it: its pages, link by link, headers checked
 *
 * A TF comes as segments, each a run of whole blocks; meta and index may be missing, and so may
 * blocks. Blocks of other detectors are passed over. The caller's memory is borrowed.
 */
#ifndef INPUT_H
#define INPUT_H

#include <stdint.h>

#include "kdef.h"
#include "kerr.h"
#include "ktypes.h"
#include "tf_file.h"

/* A block of pages: one link, one orbit. */
struct input_block {
    const uint8_t *data;
    uint64_t size;
    uint64_t offset;             /* of the payload in all segments joined */
    uint32_t link;               /* 20 * sector + 2 * region + endpoint */
    uint32_t part, parts, subspec;
    uint32_t page, page_end;     /* its pages with data */
};

/* Where a page with data lies; kpage is made from it for a batch. */
struct input_page {
    uint32_t block, at;          /* at: offset in the block */
    uint32_t first_bin;
    uint16_t size, samples;
    uint8_t bins;
};

struct input {
    uint32_t first_orbit, counter, run;
    uint32_t orbits, bins;       /* of the TF; 0 without a TPC block */
    struct input_block *block;   /* sorted by link, then part */
    uint32_t blocks, block_room;
    struct input_page *page;     /* in order of the blocks */
    uint32_t pages, page_room;
    uint32_t link_block[K_LINKS + 1];
    uint64_t bytes;              /* payload of the TPC blocks */
    uint64_t samples;            /* announced; a page cannot announce more than fits into it */
};

/* Geometry of a link: its sector, first row in the sector, and number of rows. */
void input_link_rows(uint32_t link, uint32_t *sector, uint32_t *row, uint32_t *rows);

/* Reads a TF into in, whose arrays are reused. K_EINPUT names block, offset and field. */
int input_read(struct input *in, const struct tf_seg *seg, unsigned n, struct k_err *e);
void input_free(struct input *in);

/* The sentence for what a kernel found in a page (enum kpage_error << 16 | offset). */
int input_page_fail(const struct input *in, uint32_t page, uint32_t found, struct k_err *e);

#endif
