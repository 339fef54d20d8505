/* stage_decode.c - stage decode on a device: pages -> digits
 *
 * From: input.c (pages whose headers are sound).  To: stage_cluster.c, result.c.
 * Three steps that depend on each other's sums: count the samples of every row and page (and
 * check every byte), turn the counts into places, write the digits in place. The sum of samples is
 * known from the page headers and proven by the counts, so all memory is taken beforehand.
 */
#include "stage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kgeo.h"

enum { MERGE_GAP = 4096 };       /* blocks this close are copied in one go */

struct decode {
    struct kdev *dev;
    struct kbuf data, pages, counts, errors, bad, total, cell, charge;
    kpage *page;                 /* host side of `pages` */
    uint32_t page_room;
};

struct decode *decode_new(struct kdev *d)
{
    struct decode *s = calloc(1, sizeof *s);
    if (s)
        s->dev = d;
    return s;
}

void decode_shrink(struct decode *s)
{
    struct kbuf *all[] = { &s->data, &s->pages, &s->counts, &s->errors, &s->bad, &s->total,
                           &s->cell, &s->charge };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kdev_release(s->dev, all[i]);
}

void decode_free(struct decode *s)
{
    if (s == NULL)
        return;
    decode_shrink(s);
    free(s->page);
    free(s);
}

static bool has_pages(const struct input *in, uint32_t link)
{
    uint32_t from = in->link_block[link], to = in->link_block[link + 1];
    return from < to && in->block[from].page < in->block[to - 1].page_end;
}

int batch_next(const struct input *in, uint32_t link, uint64_t max_bytes, struct batch *b)
{
    uint32_t sector, row, rows;

    while (link < K_LINKS && !has_pages(in, link))
        link++;
    if (link >= K_LINKS)
        return 0;
    input_link_rows(link, &sector, &row, &rows);
    *b = (struct batch){ .link = link, .link_end = link, .first_row = K_ROWS * sector + row,
                         .block = in->link_block[link] };
    uint64_t samples = 0;
    for (; b->link_end < K_LINKS; b->link_end++) {
        uint64_t bytes = 0, more = 0;
        for (uint32_t i = in->link_block[b->link_end]; i < in->link_block[b->link_end + 1]; i++) {
            bytes += in->block[i].size;
            for (uint32_t p = in->block[i].page; p < in->block[i].page_end; p++)
                more += in->page[p].samples;
        }
        if (b->link_end > link &&
            (b->bytes + bytes > max_bytes || samples + more > UINT32_MAX / 2))
            break;
        b->bytes += bytes;
        samples += more;
        input_link_rows(b->link_end, &sector, &row, &rows);
        b->rows += rows;
    }
    while (!has_pages(in, b->link_end - 1)) {
        input_link_rows(--b->link_end, &sector, &row, &rows);
        b->rows -= rows;
    }
    b->samples = (uint32_t)samples;
    b->block_end = in->link_block[b->link_end];
    b->page = in->block[b->block].page;
    b->page_end = in->block[b->block_end - 1].page_end;
    return 1;
}

krow *batch_rows(const struct input *in, const struct batch *b)
{
    krow *r = calloc(b->rows + 1, sizeof *r);
    uint32_t n = 0;

    for (uint32_t l = b->link; r && l < b->link_end; l++) {
        uint32_t sector, row, rows, page = 0, page_end = 0;
        uint32_t from = in ? in->link_block[l] : 0, to = in ? in->link_block[l + 1] : 0;
        if (from < to) {
            page = in->block[from].page - b->page;
            page_end = in->block[to - 1].page_end - b->page;
        }
        input_link_rows(l, &sector, &row, &rows);
        for (uint32_t i = 0; i < rows; i++)
            r[n++] = (krow){ .sector_row = (u16)(K_ROWS * sector + row + i),
                             .pads = kgeo_pads[row + i], .in_link = (u8)i,
                             .page = page, .page_end = page_end };
    }
    return r;
}

/* Copies the batch's blocks to the device, neighbours in memory in one go; at[] = where each
 * block went, counted from the batch's first. */
static int upload_blocks(struct decode *s, const struct input *in, const struct batch *b,
                         uint32_t *at, struct k_err *e)
{
    uint64_t size = 0;

    for (int pass = 0; pass < 2; pass++) {
        size = 0;
        for (uint32_t i = b->block, j; i < b->block_end; i = j) {
            const uint8_t *from = in->block[i].data, *to = from + in->block[i].size;
            for (j = i; j < b->block_end; j++) {
                const uint8_t *p = in->block[j].data;
                if (p < from || p > to + (j > i ? MERGE_GAP : 0) ||
                    (p > to && in->block[j].offset - in->block[j - 1].offset !=
                                   (uint64_t)(p - in->block[j - 1].data)))
                    break;
                at[j - b->block] = (uint32_t)(size + (uint64_t)(p - from));
                to = p + in->block[j].size;
            }
            if (pass == 1 &&
                kdev_upload(s->dev, &s->data, size, from, (size_t)(to - from), e) < 0)
                return -1;
            size += ((uint64_t)(to - from) + 15) & ~UINT64_C(15);
        }
        if (size > UINT32_MAX)
            return k_fail(e, K_EINPUT, "%" PRIu64 " bytes of pages on one link, at most 4 GiB "
                          "can be handled", size);
        if (pass == 0 && kdev_reserve(s->dev, &s->data, size, e) < 0)
            return -1;
    }
    return 0;
}

static int pages_make(struct decode *s, const struct input *in, const struct batch *b,
                      struct k_err *e)
{
    uint32_t n = b->page_end - b->page, row = 0;
    uint32_t *at = malloc(((size_t)(b->block_end - b->block) + 1) * sizeof *at);
    int r = -1;

    if (n > s->page_room) {
        free(s->page);
        s->page = malloc(n * sizeof *s->page);
        s->page_room = s->page ? n : 0;
    }
    if (at == NULL || (n > 0 && s->page == NULL)) {
        free(at);
        return k_fail(e, K_ENOMEM, "no memory for the list of pages");
    }
    if (upload_blocks(s, in, b, at, e) < 0)
        goto out;
    for (uint32_t l = b->link; l < b->link_end; l++) {
        uint32_t sector, first, rows;
        input_link_rows(l, &sector, &first, &rows);
        for (uint32_t i = in->link_block[l]; i < in->link_block[l + 1]; i++) {
            for (uint32_t p = in->block[i].page; p < in->block[i].page_end; p++) {
                const struct input_page *q = &in->page[p];
                s->page[p - b->page] = (kpage){
                    .offset = at[i - b->block] + q->at, .link = l - b->link,
                    .first_bin = q->first_bin, .size = q->size, .samples = q->samples,
                    .bins = q->bins, .endpoint = (u8)(l % 2), .rows = (u8)rows, .row = row,
                };
            }
        }
        row += rows;
    }
    r = 0;
out:
    free(at);
    return r;
}

static int rows_upload(struct kdev *d, struct kdigits *k, const struct input *in,
                       const struct batch *b, struct k_err *e)
{
    krow *rows = batch_rows(in, b);
    int r = -1;

    if (rows == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the list of rows");
    if (kdev_reserve(d, &k->rows, b->rows * sizeof *rows, e) == 0 &&
        kdev_upload(d, &k->rows, 0, rows, b->rows * sizeof *rows, e) == 0 &&
        kdev_wait(d, e) == 0)
        r = 0;
    free(rows);
    return r;
}

static int reserve(struct decode *s, struct kdigits *k, const struct batch *b, struct k_err *e)
{
    size_t pages = b->page_end - b->page, n = b->samples;
    const struct { struct kbuf *b; size_t size; } want[] = {
        { &s->pages, pages * sizeof(kpage) },
        { &s->counts, pages * K_LINK_ROWS * 4 },
        { &s->errors, pages * 4 },
        { &s->bad, 8 },
        { &s->total, (size_t)b->rows * 4 },
        { &s->cell, n * 4 },
        { &s->charge, n * 2 },
        { &k->row_start, ((size_t)b->rows + 1) * 4 },
        { &k->time, n * 2 },
        { &k->charge, n * 2 },
        { &k->pad, n },
    };

    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        if (kdev_reserve(s->dev, want[i].b, want[i].size ? want[i].size : 16, e) < 0)
            return -1;
    }
    return 0;
}

/* Some page is damaged: says which is the first and why. */
static int report_page(struct decode *s, const struct input *in, const struct batch *b,
                       struct k_err *e)
{
    uint32_t n = b->page_end - b->page;
    uint32_t *found = malloc(n * sizeof *found);

    if (found == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the list of pages");
    if (kdev_download(s->dev, found, &s->errors, 0, n * sizeof *found, e) == 0) {
        uint32_t i = 0;
        while (i + 1 < n && found[i] == 0)
            i++;
        input_page_fail(in, b->page + i, found[i], e);
    }
    free(found);
    return -1;
}

/* A cell with two samples can only be named on the host. */
static int report_twice(struct decode *s, const struct kdigits *k, const struct batch *b,
                        struct k_err *e)
{
    struct digits_host h = {
        .row_start = malloc(((size_t)b->rows + 1) * 4), .time = malloc((size_t)k->n * 2),
        .charge = malloc((size_t)k->n * 2), .pad = malloc(k->n),
    };
    k_fail(e, K_EINPUT, "a cell with two samples");
    if (h.row_start && h.time && h.charge && h.pad && kdigits_download(s->dev, k, &h, e) == 0) {
        for (uint32_t r = 0; r < b->rows; r++) {
            for (uint32_t i = h.row_start[r] + 1; i < h.row_start[r + 1]; i++) {
                uint32_t row = b->first_row + r;
                if (h.pad[i] == h.pad[i - 1] && h.time[i] <= h.time[i - 1]) {
                    k_fail(e, K_EINPUT, "sector %" PRIu32 ", row %" PRIu32 ", pad %u: bin %u "
                           "comes after bin %u; a cell has one sample and bins go up",
                           row / K_ROWS, row % K_ROWS, h.pad[i], h.time[i], h.time[i - 1]);
                    goto out;
                }
            }
        }
    }
out:
    free(h.row_start);
    free(h.time);
    free(h.charge);
    free(h.pad);
    return -1;
}

static int count(struct decode *s, const struct input *in, const struct batch *b,
                 const struct kdigits *k, struct k_err *e)
{
    struct kdev *d = s->dev;
    uint32_t pages = b->page_end - b->page, bad = 0;

    if (kdev_upload(d, &s->pages, 0, s->page, pages * sizeof(kpage), e) < 0 ||
        kdev_zero(d, &s->bad, 8, e) < 0 ||
        KLAUNCH(d, e, "k_decode_count", (pages + 63) / 64, KBUF(s->data), KBUF(s->pages),
                KBUF(k->rows), KBUF(s->counts), KBUF(s->errors), KBUF(s->bad),
                KVAL(pages)) < 0 ||
        kdev_download(d, &bad, &s->bad, 0, 4, e) < 0)
        return -1;
    return bad ? report_page(s, in, b, e) : 0;
}

int decode_run(struct decode *s, const struct input *in, const struct batch *b,
               struct kdigits *out, struct k_err *e)
{
    struct kdev *d = s->dev;
    uint32_t pages = b->page_end - b->page, rows = b->rows, twice = 0, n = 0;

    out->nrows = rows;
    out->n = b->samples;
    if (reserve(s, out, b, e) < 0 || rows_upload(d, out, in, b, e) < 0 ||
        pages_make(s, in, b, e) < 0 || count(s, in, b, out, e) < 0)
        return -1;
    if (KLAUNCH(d, e, "k_decode_rows", (rows + 63) / 64, KBUF(out->rows), KBUF(s->counts),
                KBUF(s->total), KVAL(rows)) < 0 ||
        KLAUNCH(d, e, "k_scan", 1, KBUF(s->total), KBUF(out->row_start), KVAL(rows)) < 0 ||
        KLAUNCH(d, e, "k_decode_fill", (pages + 63) / 64, KBUF(s->data), KBUF(s->pages),
                KBUF(s->counts), KBUF(out->row_start), KBUF(s->cell), KBUF(s->charge),
                KVAL(pages)) < 0 ||
        KLAUNCH(d, e, "k_decode_sort", rows, KBUF(out->row_start), KBUF(s->cell),
                KBUF(s->charge), KBUF(out->time), KBUF(out->charge), KBUF(out->pad),
                KBUF(s->bad)) < 0 ||
        kdev_download(d, &n, &out->row_start, (size_t)rows * 4, 4, e) < 0 ||
        kdev_download(d, &twice, &s->bad, 0, 4, e) < 0)
        return -1;
    if (n != b->samples)
        return k_fail(e, K_EINTERNAL, "decode: %" PRIu32 " digits, the pages announced %" PRIu32,
                      n, b->samples);
    return twice ? report_twice(s, out, b, e) : 0;
}

int kdigits_download(struct kdev *d, const struct kdigits *k, const struct digits_host *h,
                     struct k_err *e)
{
    size_t n = k->n;
    if (kdev_download(d, h->row_start, &k->row_start, 0, ((size_t)k->nrows + 1) * 4, e) < 0 ||
        kdev_download(d, h->time, &k->time, 0, n * 2, e) < 0 ||
        kdev_download(d, h->charge, &k->charge, 0, n * 2, e) < 0 ||
        kdev_download(d, h->pad, &k->pad, 0, n, e) < 0)
        return -1;
    return 0;
}

int kdigits_upload(struct kdev *d, struct kdigits *k, const struct batch *b,
                   const struct digits_host *h, struct k_err *e)
{
    size_t n = h->row_start[b->rows];

    k->nrows = b->rows;
    k->n = (uint32_t)n;
    if (kdev_reserve(d, &k->row_start, ((size_t)b->rows + 1) * 4, e) < 0 ||
        kdev_reserve(d, &k->time, n * 2 + 16, e) < 0 ||
        kdev_reserve(d, &k->charge, n * 2 + 16, e) < 0 ||
        kdev_reserve(d, &k->pad, n + 16, e) < 0 || rows_upload(d, k, NULL, b, e) < 0 ||
        kdev_upload(d, &k->row_start, 0, h->row_start, ((size_t)b->rows + 1) * 4, e) < 0 ||
        kdev_upload(d, &k->time, 0, h->time, n * 2, e) < 0 ||
        kdev_upload(d, &k->charge, 0, h->charge, n * 2, e) < 0 ||
        kdev_upload(d, &k->pad, 0, h->pad, n, e) < 0)
        return -1;
    return kdev_wait(d, e);
}

void kdigits_release(struct kdev *d, struct kdigits *k)
{
    kdev_release(d, &k->rows);
    kdev_release(d, &k->row_start);
    kdev_release(d, &k->time);
    kdev_release(d, &k->charge);
    kdev_release(d, &k->pad);
}
