/* tf_file.h - time-frames (TFs) as they lie in a file: read, walked, cut in parts, written.
 *
 * Layout, all little endian:  TF = meta block, index block, data blocks; the next TF follows
 * directly.  Block = header of 96 bytes + payload:
 *
 *    0 char[4] "O2O2"      16 char[8] "DataHead"         64 u32 subspecification
 *    4 u32 header size 96  24 char[8] "NONE"             68 u32 part number, from 0
 *    8 u32 flags 0         32 char[16] description       72 u64 payload size
 *   12 u32 version 3       48 char[4] origin             80 u32 first orbit of the TF
 *   56 char[8] "NONE"      52 u32 parts of this identity 84 u32 TF counter, 88 run, 92 zero
 *
 * Meta payload: u64 version 1, u64 size of the whole TF, u64 time of writing in ms.  Index
 * payload: 48 bytes an identity, sorted: char[16] description, char[4] origin, u32 number of
 * blocks, u32 subspecification, u32 0, u64 offset of the first block from the end of the
 * index, u64 size with headers.
 *
 * Nothing here needs more than libc.  All sizes are bytes.
 */
#ifndef TF_FILE_H
#define TF_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TF_HEADER_SIZE = 96,
    TF_META_SIZE   = 24,   /* payload of the meta block */
    TF_ENTRY_SIZE  = 48,   /* one element of the index */
};
#define TF_MAX_SIZE  (UINT64_C(1) << 40)    /* a TF beyond 1 TiB is taken for damage */
#define TF_MAX_INDEX (UINT64_C(1) << 26)    /* payload of an index: 1.4 million identities */

/* What was wanted, what was found, and at which byte of the file or of the memory given. */
struct tf_err {
    char text[256];
    uint64_t offset;
};

/* One block. payload points into the caller's memory; it is NULL when only a header was read. */
struct tf_block {
    uint64_t offset;             /* of the header */
    const uint8_t *payload;
    uint64_t size;               /* of the payload */
    char description[17], origin[5];
    uint32_t parts, subspec, part, first_orbit, counter, run;
};

enum tf_kind { TF_META, TF_INDEX, TF_DATA };
enum tf_kind tf_block_kind(const struct tf_block *b);

/* Reads the 96 bytes at data into b. Checks all that is fixed, and the size against the
 * `avail` bytes there are from the header on. 0 or -1. */
int tf_block_parse(const void *data, uint64_t avail, uint64_t offset, struct tf_block *b,
                   struct tf_err *e);

/* ---- a TF in memory: a list of segments, each a run of whole blocks ---------------------- */

struct tf_seg {
    const void *data;
    size_t size;
};

struct tf_iter {
    const struct tf_seg *seg;
    unsigned n, i;
    uint64_t pos;                /* in the segment */
    uint64_t base;               /* offset of the segment in all of them joined */
};

void tf_iter_init(struct tf_iter *it, const struct tf_seg *seg, unsigned n);
/* 1: b is the next block; 0: no more; -1: damaged (the iterator then stays at its end). */
int tf_iter_next(struct tf_iter *it, struct tf_block *b, struct tf_err *e);

/* What is common to a TF. */
struct tf_info {
    uint64_t offset;             /* in the file */
    uint64_t size;               /* with the meta block */
    uint64_t written_ms;
    uint64_t payload;            /* bytes of payload in data blocks */
    uint32_t blocks;             /* data blocks */
    uint32_t identities;         /* elements of the index */
    uint32_t first_orbit, counter, run;
};

/* Checks a TF in memory: one first orbit, counter and run everywhere, meta and index (if
 * there) first and once, numbers of blocks of an identity in growing order. `complete` says
 * whether nothing is missing by the size in the meta block; then, and only then, index and
 * blocks must match. info and complete may be NULL. */
int tf_check(const struct tf_seg *seg, unsigned n, struct tf_info *info, bool *complete,
             struct tf_err *e);

/* Cuts the TF of `size` bytes at data into `parts` pieces on borders of blocks, about equal in
 * bytes; joined in order they are the TF again. The first holds meta and index; pieces may be
 * empty when there are fewer blocks than parts. out has room for `parts`. */
int tf_split(const void *data, size_t size, unsigned parts, struct tf_seg *out,
             struct tf_err *e);

/* ---- TFs in a file ----------------------------------------------------------------------- */

struct tf_file;

/* Regular files only (a FIFO, folder or device is refused). The file is read by pread, never
 * mapped: a file that shrinks while it is read is an error, not a signal. */
struct tf_file *tf_file_open(const char *path, struct tf_err *e);
void tf_file_close(struct tf_file *f);
uint64_t tf_file_size(const struct tf_file *f);

/* Finds the next TF and checks it as far as headers go: all lengths, and index against blocks.
 * 1: found; 0: end of the file; -1: damaged from e->offset on. After -1 the rest of the file
 * is given up: all further calls say 0. An empty file is an error. */
int tf_file_next(struct tf_file *f, struct tf_info *info, struct tf_err *e);
void tf_file_rewind(struct tf_file *f);

/* Reads `size` bytes from `offset` on. */
int tf_file_read(struct tf_file *f, uint64_t offset, void *buf, size_t size, struct tf_err *e);

/* Walks the blocks of a TF that tf_file_next() found, headers only: calls fn for each, meta
 * and index too. fn returns 0 to go on; another value ends the walk and is returned. */
int tf_file_blocks(struct tf_file *f, const struct tf_info *info,
                   int (*fn)(const struct tf_block *, void *), void *arg, struct tf_err *e);

/* ---- making a TF ------------------------------------------------------------------------- */

/* A block to be written: description, origin, subspecification and payload; its part number
 * and number of parts come from its place among the blocks of its identity. */
struct tf_new_block {
    const char *description, *origin;
    uint32_t subspec;
    const void *payload;
    size_t size;
};

/* Makes one TF in memory (*out, to be freed by the caller): meta, sorted index, blocks sorted
 * by description, origin and subspecification, those of one identity in the order given. */
int tf_build(const struct tf_new_block *b, size_t n, uint32_t first_orbit, uint32_t counter,
             uint32_t run, uint64_t written_ms, void **out, size_t *size, struct tf_err *e);

#endif
