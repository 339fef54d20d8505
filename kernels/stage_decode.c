/* stage_decode.c - stage decode on a device: pages -> digits
 *
 * From: input.c (pages whose headers are sound).  To: stage_cluster.c, result.c.
 * The pages of the next batch are copied on a queue of their own while the kernels work on this one.
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

/* A batch's pages on the device, or on their way to it. */
struct slot {
    struct kbuf data, pages;
    kpage *page;                 /* host side of `pages` */
    uint32_t page_room;
    uint32_t link, link_end;     /* of the batch; the same: empty */
    struct bk_event *ready;      /* the copies are done; NULL: they need not be waited for */
};

struct decode {
    struct kdev *dev;
    struct slot slot[2];
    unsigned turn;               /* the slot of the batch at hand */
    bool ahead;
    struct kbuf counts, errors, bad, total, cell, charge;
};

struct decode *decode_new(struct kdev *d)
{
    struct decode *s = calloc(1, sizeof *s);
    if (s)
        s->dev = d;
    return s;
}

static void slot_empty(struct kdev *d, struct slot *t)
{
    if (t->ready)
        d->ops->event_free(t->ready);
    t->ready = NULL;
    t->link = t->link_end = 0;
}

void decode_settle(struct decode *s)
{
    if (s->dev->ahead)
        s->dev->ops->wait(s->dev->ahead);
    for (int i = 0; i < 2; i++)
        slot_empty(s->dev, &s->slot[i]);
}

void decode_shrink(struct decode *s)
{
    struct kbuf *all[] = { &s->slot[0].data, &s->slot[0].pages, &s->slot[1].data, &s->slot[1].pages,
                           &s->counts, &s->errors, &s->bad, &s->total, &s->cell, &s->charge };

    decode_settle(s);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kdev_release(s->dev, all[i]);
}

void decode_free(struct decode *s)
{
    if (s == NULL)
        return;
    decode_shrink(s);
    free(s->slot[0].page);
    free(s->slot[1].page);
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

/* The batch's blocks from the i-th on that are copied in one go, neighbours in memory and the small gaps
 * between them: returns the block behind them. at[]: where each block goes, counted from the
 * batch's first, when they go to `to`. */
static uint32_t run_of_blocks(const struct input *in, const struct batch *b, uint32_t i, uint64_t to,
                              uint32_t *at, uint64_t *size)
{
    const uint8_t *from = in->block[i].data, *end = from + in->block[i].size;
    uint32_t j = i;

    for (; j < b->block_end; j++) {
        const uint8_t *p = in->block[j].data;
        if (p < from || p > end + (j > i ? MERGE_GAP : 0) ||
            (p > end && in->block[j].offset - in->block[j - 1].offset !=
                            (uint64_t)(p - in->block[j - 1].data)))
            break;
        if (at)
            at[j - b->block] = (uint32_t)(to + (uint64_t)(p - from));
        end = p + in->block[j].size;
    }
    *size = (uint64_t)(end - from);
    return j;
}

static uint64_t padded(uint64_t size)
{
    return (size + 15) & ~UINT64_C(15);
}

static uint64_t blocks_size(const struct input *in, const struct batch *b)
{
    uint64_t size = 0, n;

    for (uint32_t i = b->block; i < b->block_end; size += padded(n))
        i = run_of_blocks(in, b, i, 0, NULL, &n);
    return size;
}

void batch_most_add(struct batch_most *m, const struct input *in, const struct batch *b)
{
    uint64_t size = blocks_size(in, b);
    uint32_t pages = b->page_end - b->page;

    m->blocks_size = size > m->blocks_size ? size : m->blocks_size;
    m->pages = pages > m->pages ? pages : m->pages;
    m->rows = b->rows > m->rows ? b->rows : m->rows;
    m->samples = b->samples > m->samples ? b->samples : m->samples;
    m->batches++;
}

static int upload_blocks(struct decode *s, struct slot *t, struct bk_queue *q, const struct input *in,
                         const struct batch *b, uint32_t *at, struct k_err *e)
{
    uint64_t size = blocks_size(in, b), to = 0, n;

    if (size > UINT32_MAX)
        return k_fail(e, K_EINPUT, "%" PRIu64 " bytes of pages on one link, at most 4 GiB "
                      "can be handled", size);
    if (kdev_reserve(s->dev, &t->data, size, e) < 0)
        return -1;
    for (uint32_t i = b->block; i < b->block_end; to += padded(n)) {
        const void *from = in->block[i].data;
        i = run_of_blocks(in, b, i, to, at, &n);
        if (khost_upload(s->dev, q, &t->data, to, from, n, e) < 0)
            return -1;
    }
    return 0;
}

static void pages_make(const struct input *in, const struct batch *b, const uint32_t *at, kpage *page)
{
    uint32_t row = 0;

    for (uint32_t l = b->link; l < b->link_end; l++) {
        uint32_t sector, first, rows;
        input_link_rows(l, &sector, &first, &rows);
        for (uint32_t i = in->link_block[l]; i < in->link_block[l + 1]; i++) {
            for (uint32_t p = in->block[i].page; p < in->block[i].page_end; p++) {
                const struct input_page *q = &in->page[p];
                page[p - b->page] = (kpage){
                    .offset = at[i - b->block] + q->at, .link = l - b->link,
                    .first_bin = q->first_bin, .size = q->size, .samples = q->samples,
                    .bins = q->bins, .endpoint = (u8)(l % 2), .rows = (u8)rows, .row = row,
                };
            }
        }
        row += rows;
    }
}

static int slot_room(struct slot *t, uint32_t pages, struct k_err *e)
{
    if (pages <= t->page_room)
        return 0;
    free(t->page);
    t->page = malloc(pages * sizeof *t->page);
    t->page_room = t->page ? pages : 0;
    return t->page ? 0 : k_fail(e, K_ENOMEM, "no memory for the list of pages");
}

/* Queues the copies of the batch's pages and of their list. */
static int slot_copy(struct decode *s, struct slot *t, struct bk_queue *q, const struct input *in,
                     const struct batch *b, struct k_err *e)
{
    uint32_t n = b->page_end - b->page;
    uint32_t *at = malloc(((size_t)(b->block_end - b->block) + 1) * sizeof *at);
    int r = -1;

    if (at == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the list of blocks");
    if (slot_room(t, n, e) == 0 && kdev_reserve(s->dev, &t->pages, n * sizeof *t->page, e) == 0 &&
        upload_blocks(s, t, q, in, b, at, e) == 0) {
        pages_make(in, b, at, t->page);
        r = khost_upload(s->dev, q, &t->pages, 0, t->page, n * sizeof *t->page, e);
    }
    free(at);
    return r;
}

static int slot_fill(struct decode *s, struct slot *t, struct bk_queue *q, const struct input *in,
                     const struct batch *b, struct k_err *e)
{
    struct kdev *d = s->dev;

    slot_empty(d, t);
    if (slot_copy(s, t, q, in, b, e) < 0)
        return -1;
    if (q != d->queue && (t->ready = d->ops->record(q)) == NULL)
        return k_fail(e, K_EDEVICE, "device %s: %s", d->info.id, d->ops->errstr(d->dev));
    t->link = b->link;
    t->link_end = b->link_end;
    return 0;
}

/* The batch's pages are there for the kernels queued from now on. */
static int slot_take(struct decode *s, const struct input *in, const struct batch *b, struct k_err *e)
{
    struct kdev *d = s->dev;
    struct slot *t = &s->slot[s->turn = s->ahead ? s->turn ^ 1 : 0];

    if (t->link_end == t->link || t->link != b->link || t->link_end != b->link_end)
        return slot_fill(s, t, d->queue, in, b, e);
    if (t->ready && d->ops->wait_for(d->queue, t->ready) < 0)
        return k_fail(e, K_EDEVICE, "device %s: %s", d->info.id, d->ops->errstr(d->dev));
    return 0;
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

unsigned decode_wants(struct decode *s, struct kdigits *k, const struct batch_most *m, bool ahead,
                      struct kwant *w)
{
    size_t pages = m->pages, n = m->samples, rows = m->rows;
    const struct kwant want[] = {
        { &s->counts, pages * K_LINK_ROWS * 4 },
        { &s->errors, pages * 4 },
        { &s->bad, 8 },
        { &s->total, rows * 4 },
        { &s->cell, n * 4 },
        { &s->charge, n * 2 },
        { &k->rows, rows * sizeof(krow) },
        { &k->row_start, (rows + 1) * 4 },
        { &k->time, n * 2 },
        { &k->charge, n * 2 },
        { &k->pad, n },
        { &s->slot[0].data, m->blocks_size },
        { &s->slot[0].pages, pages * sizeof(kpage) },
        { &s->slot[1].data, m->blocks_size },
        { &s->slot[1].pages, pages * sizeof(kpage) },
    };
    unsigned count = sizeof want / sizeof want[0] - (ahead ? 0 : 2);

    s->ahead = ahead;
    for (unsigned i = 0; i < count; i++)
        w[i] = (struct kwant){ want[i].buf, want[i].size ? want[i].size : 16 };
    return count;
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
                 const struct batch *next, const struct kdigits *k, struct k_err *e)
{
    struct kdev *d = s->dev;
    const struct slot *t = &s->slot[s->turn];
    uint32_t pages = b->page_end - b->page, bad = 0;

    if (kdev_zero(d, &s->bad, 8, e) < 0 ||
        KLAUNCH(d, e, "k_decode_count", (pages + 63) / 64, KBUF(t->data), KBUF(t->pages),
                KBUF(k->rows), KBUF(s->counts), KBUF(s->errors), KBUF(s->bad),
                KVAL(pages)) < 0)
        return -1;
    if (s->ahead && next && slot_fill(s, &s->slot[s->turn ^ 1], d->ahead, in, next, e) < 0)
        return -1;
    if (kdev_download(d, &bad, &s->bad, 0, 4, e) < 0)
        return -1;
    return bad ? report_page(s, in, b, e) : 0;
}

int decode_run(struct decode *s, const struct input *in, const struct batch *b,
               const struct batch *next, struct kdigits *out, struct k_err *e)
{
    struct kdev *d = s->dev;
    const struct slot *t;
    uint32_t pages = b->page_end - b->page, rows = b->rows, twice = 0, n = 0;

    out->nrows = rows;
    out->n = b->samples;
    if (rows_upload(d, out, in, b, e) < 0 || slot_take(s, in, b, e) < 0 ||
        count(s, in, b, next, out, e) < 0)
        return -1;
    t = &s->slot[s->turn];
    if (KLAUNCH(d, e, "k_decode_rows", (rows + 63) / 64, KBUF(out->rows), KBUF(s->counts),
                KBUF(s->total), KVAL(rows)) < 0 ||
        KLAUNCH(d, e, "k_scan", 1, KBUF(s->total), KBUF(out->row_start), KVAL(rows)) < 0 ||
        KLAUNCH(d, e, "k_decode_fill", (pages + 63) / 64, KBUF(t->data), KBUF(t->pages),
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
