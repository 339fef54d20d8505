/* page.h - the pages inside a block of raw data, as far as their headers go (`--verify`)
 *
 * A block is a chain of pages; each begins with a header of 64 bytes, little endian:
 *    0 u8 version 7, u8 header size 64, u16 FEE id (= the block's subspecification)
 *    8 u16 offset to the next page, u16 memory size (header and data)
 *   38 u8 stop: 1 in the last page of a block only
 */
#ifndef SLUICE_PAGE_H
#define SLUICE_PAGE_H

#include "tf_file.h"

/* Whether this block has such pages at all: origin TPC, description RAWDATA. */
bool page_has(const struct tf_block *b);
/* Walks the pages of b, whose payload is in memory. -1: e->offset counts like b->offset. */
int  page_check(const struct tf_block *b, struct tf_err *e);

#endif
