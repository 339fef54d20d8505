/* stage.h - the stages of the reconstruction, batch by batch
 *
 * A batch is a run of links, so that a TF larger than a device's memory goes through in pieces;
 * the rows of a link belong to no other link, so the pieces do not know of each other.
 */
#ifndef STAGE_H
#define STAGE_H

#include <stdint.h>

#include "input.h"
#include "kdev.h"

struct batch {
    uint32_t link, link_end;
    uint32_t first_row, rows;    /* of all 152 * 36 */
    uint32_t block, block_end;
    uint32_t page, page_end;
    uint64_t bytes;              /* of pages */
    uint32_t samples;
};

/* The digits of a batch on a device, in order of row, pad, time. */
struct kdigits {
    struct kbuf rows;            /* krow */
    struct kbuf row_start;       /* u32, rows + 1 */
    struct kbuf time, charge;    /* u16 */
    struct kbuf pad;             /* u8 */
    uint32_t nrows, n;
};

/* The same on the host; arrays belong to the caller. */
struct digits_host {
    uint32_t *row_start;
    uint16_t *time, *charge;
    uint8_t *pad;
};

/* From the link on: as many links as fit into max_bytes of pages, at least one; links without data
 * before and behind are left out. 0: no link with data is left. */
int batch_next(const struct input *in, uint32_t link, uint64_t max_bytes, struct batch *b);

/* The greatest of each over all batches of a TF: what memory is taken for. */
struct batch_most {
    uint64_t blocks_size;        /* of pages, as they go to the device */
    uint32_t pages, rows, samples, batches;
};
void batch_most_add(struct batch_most *m, const struct input *in, const struct batch *b);

enum { STAGE_BUFFERS = 20 };     /* a stage wants at most */

struct decode;
struct decode *decode_new(struct kdev *d);
void decode_free(struct decode *s);
/* The buffers for batches of at most that size. With `ahead` the pages of the next batch are copied
 * while the kernels work on one. */
unsigned decode_wants(struct decode *s, struct kdigits *out, const struct batch_most *m, bool ahead,
                      struct kwant *w);
/* Gives all device memory back; the stage takes it anew when it runs. */
void decode_shrink(struct decode *s);
/* Nothing is copied any more from the TF at hand. */
void decode_settle(struct decode *s);
/* Pages -> out. next: the batch that comes after this one, or NULL. A damaged page is K_EINPUT. */
int decode_run(struct decode *s, const struct input *in, const struct batch *b,
               const struct batch *next, struct kdigits *out, struct k_err *e);

int kdigits_download(struct kdev *d, const struct kdigits *k, const struct digits_host *h,
                     struct k_err *e);
/* Host digits of a batch to a device on which another stage runs. */
int kdigits_upload(struct kdev *d, struct kdigits *k, const struct batch *b,
                   const struct digits_host *h, struct k_err *e);
void kdigits_release(struct kdev *d, struct kdigits *k);

enum { CLUSTER_WORDS = 4 };      /* of 32 bits in a record */

struct cluster_option {
    uint64_t peak, qtot;         /* whole counts: a peak, a cluster is above */
    uint64_t noise_run, noise_count, noise_max;
};

struct cluster;
struct cluster *cluster_new(struct kdev *d, const struct cluster_option *o);
void cluster_free(struct cluster *s);
void cluster_shrink(struct cluster *s);
/* The buffers for batches of at most that size; moved: digits that come from another device. */
unsigned cluster_wants(struct cluster *s, struct kdigits *moved, const struct batch_most *m,
                       uint32_t bins, struct kwant *w);
/* Digits on this device -> clusters on it; `bins` of the TF; *n clusters. */
int cluster_run(struct cluster *s, const struct kdigits *k, uint32_t bins, uint32_t *n,
                struct k_err *e);
/* Their records (16 bytes each), and the first of each row, then n. */
int cluster_download(struct cluster *s, uint32_t rows, uint32_t n, uint32_t *row_start,
                     void *records, struct k_err *e);

/* The rows of a batch with their geometry; the pages as far as `in` is given. To be freed. */
krow *batch_rows(const struct input *in, const struct batch *b);

#endif
