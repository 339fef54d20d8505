/* input.c - one TF as the stages see it
 *
 * From: the segments of a TF.  To: stage_decode.c, which moves the pages to a device.
 * What a page header or the head of its data says is checked here, field by field; what lies
 * behind is checked by the kernel, which reads every byte anyway. Fields that are fixed must have
 * their value and fillers must be zero: a damaged header is refused, not guessed around.
 */
#include "input.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kgeo.h"

enum {
    PAGE_HEADER = 64, PAGE_MAX = 8192, DATA_HEADER = 72,
    SOURCE_TPC = 3, LINK_ROW_ZS = 15, DETECTOR_FIELD = 2, ORBITS_MAX = 147,
};

/* One page header, taken apart. */
struct header {
    unsigned version, size, fee, priority, source, reserved0;
    unsigned next, memory, link, packet, cru, endpoint;
    unsigned bc, reserved2;
    uint32_t orbit, trigger;
    unsigned page, stop, reserved4;
    uint64_t word3, word5, word6, word7;
};

static uint64_t word(const uint8_t *p, unsigned i)
{
    uint64_t v = 0;
    for (int b = 7; b >= 0; b--)
        v = v << 8 | p[8 * i + (unsigned)b];
    return v;
}

static unsigned u16_at(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static void header_read(const uint8_t *p, struct header *h)
{
    uint64_t w0 = word(p, 0), w1 = word(p, 1), w2 = word(p, 2), w4 = word(p, 4);

    *h = (struct header){
        .version = w0 & 0xff, .size = w0 >> 8 & 0xff, .fee = w0 >> 16 & 0xffff,
        .priority = w0 >> 32 & 0xff, .source = w0 >> 40 & 0xff, .reserved0 = w0 >> 48,
        .next = w1 & 0xffff, .memory = w1 >> 16 & 0xffff, .link = w1 >> 32 & 0xff,
        .packet = w1 >> 40 & 0xff, .cru = w1 >> 48 & 0xfff, .endpoint = w1 >> 60,
        .bc = w2 & 0xfff, .reserved2 = w2 >> 12 & 0xfffff, .orbit = (uint32_t)(w2 >> 32),
        .trigger = (uint32_t)w4, .page = w4 >> 32 & 0xffff, .stop = w4 >> 48 & 0xff,
        .reserved4 = (unsigned)(w4 >> 56),
        .word3 = word(p, 3), .word5 = word(p, 5), .word6 = word(p, 6), .word7 = word(p, 7),
    };
}

void input_link_rows(uint32_t link, uint32_t *sector, uint32_t *row, uint32_t *rows)
{
    uint32_t region = link / 2 % 10, first = kgeo_region_row[region];
    uint32_t all = kgeo_region_row[region + 1] - first, lower = all / 2;

    *sector = link / 20;
    *row = link % 2 ? first + lower : first;
    *rows = link % 2 ? all - lower : lower;
}

static int page_fail(const struct input_block *b, uint64_t at, struct k_err *e, const char *fmt,
                     ...) __attribute__((format(printf, 4, 5)));

static int page_fail(const struct input_block *b, uint64_t at, struct k_err *e, const char *fmt,
                     ...)
{
    char text[200];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " part %" PRIu32 ", page at byte %" PRIu64
                  " (byte %" PRIu64 " of the TF): %s", b->subspec, b->part, at, b->offset + at,
                  text);
}

/* Every field of the header that has but one right value. */
static int header_check(const struct input_block *b, uint64_t at, const struct header *h,
                        uint32_t orbit, struct k_err *e)
{
    const struct { const char *name; uint64_t found, want; } f[] = {
        { "header version", h->version, 7 },
        { "header size", h->size, PAGE_HEADER },
        { "FEE id", h->fee, b->subspec },
        { "priority", h->priority, 0 },
        { "source", h->source, SOURCE_TPC },
        { "reserved bits of word 0", h->reserved0, 0 },
        { "link", h->link, LINK_ROW_ZS },
        { "CRU", h->cru, b->link / 2 },
        { "endpoint", h->endpoint, b->link % 2 },
        { "bunch crossing", h->bc, 0 },
        { "reserved bits of word 2", h->reserved2, 0 },
        { "orbit", h->orbit, orbit },
        { "word 3", h->word3, 0 },
        { "trigger", h->trigger, b->part == 0 ? 0x803 : 0x3 },
        { "reserved bits of word 4", h->reserved4, 0 },
        { "word 5", h->word5, 0 },
        { "detector field", h->word6, DETECTOR_FIELD },
        { "word 7", h->word7, 0 },
    };

    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) {
        if (f[i].found != f[i].want)
            return page_fail(b, at, e, "%s is %" PRIu64 ", want %" PRIu64, f[i].name, f[i].found,
                             f[i].want);
    }
    return 0;
}

static int lengths_check(const struct input_block *b, uint64_t at, const struct header *h,
                         struct k_err *e)
{
    uint64_t left = b->size - at;

    if (h->memory < PAGE_HEADER || h->memory > PAGE_MAX || h->memory % 16 != 0)
        return page_fail(b, at, e, "memory size %u, want %d to %d in steps of 16", h->memory,
                         PAGE_HEADER, PAGE_MAX);
    if (h->next < h->memory)
        return page_fail(b, at, e, "offset to next page is %u, the page has %u bytes", h->next,
                         h->memory);
    if (h->next > left)
        return page_fail(b, at, e, "offset to next page is %u, %" PRIu64
                         " bytes of the block are left", h->next, left);
    if (h->stop != (h->next == left))
        return page_fail(b, at, e, "stop is %u in %s page of the block", h->stop,
                         h->next == left ? "the last" : "not the last");
    if (h->stop && h->memory != PAGE_HEADER)
        return page_fail(b, at, e, "the last page has %u bytes, want a bare header", h->memory);
    for (uint64_t i = at + h->memory; i < at + h->next; i++) {
        if (b->data[i] != 0)
            return page_fail(b, at, e, "byte %" PRIu64 " between the data and the next page is %u,"
                             " want 0", i - at, b->data[i]);
    }
    return 0;
}

/* Grows an array of elements to hold one more than n. */
static void *room_for(void *p, uint32_t n, uint32_t *room, size_t element)
{
    if (n < *room)
        return p;
    uint32_t more = *room ? *room + *room / 2 : 4096;
    p = realloc(p, more * element);
    if (p)
        *room = more;
    return p;
}

/* The head of the data: 8 bytes behind the page header. */
static int data_check(struct input *in, uint32_t block, uint64_t at, const struct header *h,
                      uint32_t *last_bin, struct k_err *e)
{
    const struct input_block *b = &in->block[block];
    const uint8_t *d = b->data + at + PAGE_HEADER;
    uint32_t orbit_bc = K_ORBIT_BC * b->part;

    if (h->memory < DATA_HEADER)
        return page_fail(b, at, e, "%u bytes of data, want at least 8", h->memory - PAGE_HEADER);
    unsigned version = d[0], bins = d[1], cru = u16_at(d + 2), bc = u16_at(d + 4);
    unsigned samples = u16_at(d + 6);
    uint32_t first = (bc + orbit_bc) / K_BIN_BC;

    if (version != 2)
        return page_fail(b, at, e, "zero suppression version %u, want 2", version);
    if (cru != b->link / 2)
        return page_fail(b, at, e, "data of CRU %u, the header says %u", cru, b->link / 2);
    if (bc >= K_ORBIT_BC || (bc + orbit_bc) % K_BIN_BC != 0)
        return page_fail(b, at, e, "first bin at bunch crossing %u of the orbit: no bin starts"
                         " there", bc);
    if (bins == 0)
        return page_fail(b, at, e, "data without a time bin");
    if ((first + bins - 1) * K_BIN_BC >= orbit_bc + K_ORBIT_BC)
        return page_fail(b, at, e, "%u time bins from bin %" PRIu32 " on reach past the orbit",
                         bins, first);
    if (*last_bin != UINT32_MAX && first < *last_bin)
        return page_fail(b, at, e, "first bin %" PRIu32 " lies before bin %" PRIu32
                         " of the page before", first, *last_bin);
    if (samples > (h->memory - DATA_HEADER) * 2u / 3u)
        return page_fail(b, at, e, "%u samples announced in %u bytes", samples,
                         h->memory - DATA_HEADER);
    *last_bin = first + bins - 1;
    struct input_page *p = room_for(in->page, in->pages, &in->page_room, sizeof *p);
    if (p == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the list of pages");
    in->page = p;
    in->page[in->pages++] = (struct input_page){
        .block = block, .at = (uint32_t)at, .first_bin = first, .size = (uint16_t)h->memory,
        .samples = (uint16_t)samples, .bins = (uint8_t)bins,
    };
    in->samples += samples;
    return 0;
}

/* What goes on from block to block of a link. */
struct chain {
    uint32_t last_bin;           /* UINT32_MAX: none */
    unsigned packet;             /* 256: any */
};

static int block_pages(struct input *in, uint32_t i, struct chain *c, struct k_err *e)
{
    struct input_block *b = &in->block[i];
    struct header h = { 0 };
    unsigned count = 0;

    b->page = in->pages;
    for (uint64_t at = 0; at < b->size; at += h.next, count++) {
        if (b->size - at < PAGE_HEADER)
            return page_fail(b, at, e, "%" PRIu64 " bytes are left, a page header has %d",
                             b->size - at, PAGE_HEADER);
        header_read(b->data + at, &h);
        if (header_check(b, at, &h, in->first_orbit + b->part, e) < 0 ||
            lengths_check(b, at, &h, e) < 0)
            return -1;
        if (h.page != (count & 0xffff))
            return page_fail(b, at, e, "page counter %u, want %u", h.page, count & 0xffff);
        if (c->packet != 256 && h.packet != c->packet)
            return page_fail(b, at, e, "packet counter %u, want %u", h.packet, c->packet);
        c->packet = (h.packet + 1) & 0xff;
        if (h.memory > PAGE_HEADER && data_check(in, i, at, &h, &c->last_bin, e) < 0)
            return -1;
    }
    in->block[i].page_end = in->pages;
    if (count == 0)
        return page_fail(b, 0, e, "a block without a page");
    return 0;
}

static int block_add(struct input *in, const struct tf_block *t, uint64_t offset,
                     struct k_err *e)
{
    uint32_t cru = t->subspec >> 7, endpoint = t->subspec >> 6 & 1;

    if (t->subspec > 0xffff || cru >= 360)
        return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " at byte %" PRIu64
                      " of the TF: no CRU %" PRIu32 ", there are 360", t->subspec, offset, cru);
    if ((t->subspec & 63) != LINK_ROW_ZS)
        return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " at byte %" PRIu64
                      " of the TF: link %" PRIu32 ", want %d (row-based zero suppression)",
                      t->subspec, offset, t->subspec & 63, LINK_ROW_ZS);
    if (t->parts > ORBITS_MAX)
        return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " at byte %" PRIu64
                      " of the TF: %" PRIu32 " orbits, at most %d have room in 16 bit of time",
                      t->subspec, offset, t->parts, ORBITS_MAX);
    if (in->orbits != 0 && in->orbits != t->parts)
        return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " at byte %" PRIu64
                      " of the TF: %" PRIu32 " orbits, other links have %" PRIu32, t->subspec,
                      offset, t->parts, in->orbits);
    in->orbits = t->parts;
    struct input_block *b = room_for(in->block, in->blocks, &in->block_room, sizeof *b);
    if (b == NULL)
        return k_fail(e, K_ENOMEM, "no memory for the list of blocks");
    in->block = b;
    in->block[in->blocks++] = (struct input_block){
        .data = t->payload, .size = t->size, .offset = offset + TF_HEADER_SIZE,
        .link = 2 * cru + endpoint, .part = t->part, .parts = t->parts, .subspec = t->subspec,
    };
    in->bytes += t->size;
    return 0;
}

static int block_cmp(const void *a, const void *b)
{
    const struct input_block *x = a, *y = b;
    if (x->link != y->link)
        return x->link < y->link ? -1 : 1;
    return (x->part > y->part) - (x->part < y->part);
}

static int links_index(struct input *in, struct k_err *e)
{
    uint32_t i = 0;

    for (uint32_t l = 0; l < K_LINKS; l++) {
        struct chain c = { .last_bin = UINT32_MAX, .packet = 256 };
        in->link_block[l] = i;
        for (; i < in->blocks && in->block[i].link == l; i++) {
            const struct input_block *b = &in->block[i];
            bool first = i == in->link_block[l];
            if (!first && b[-1].part == b->part)
                return k_fail(e, K_EINPUT, "block TPC/0x%" PRIx32 " part %" PRIu32
                              " is there twice", b->subspec, b->part);
            if (!first && b[-1].part + 1 != b->part)
                c.packet = 256;   /* a part is missing: its pages are not counted */
            if (block_pages(in, i, &c, e) < 0)
                return -1;
        }
    }
    in->link_block[K_LINKS] = i;
    return 0;
}

int input_read(struct input *in, const struct tf_seg *seg, unsigned n, struct k_err *e)
{
    struct tf_err te;
    struct tf_info info;
    struct tf_iter it;
    struct tf_block b;
    int r;

    in->blocks = in->pages = 0;
    in->orbits = in->bins = 0;
    in->bytes = in->samples = 0;
    if (tf_check(seg, n, &info, NULL, &te) < 0)
        return k_fail(e, K_EINPUT, "byte %" PRIu64 " of the TF: %s", te.offset, te.text);
    in->first_orbit = info.first_orbit;
    in->counter = info.counter;
    in->run = info.run;
    tf_iter_init(&it, seg, n);
    while ((r = tf_iter_next(&it, &b, &te)) == 1) {
        if (strcmp(b.origin, "TPC") != 0 || strcmp(b.description, "RAWDATA") != 0)
            continue;
        if (block_add(in, &b, b.offset, e) < 0)
            return -1;
    }
    if (r < 0)
        return k_fail(e, K_EINPUT, "byte %" PRIu64 " of the TF: %s", te.offset, te.text);
    if (in->blocks > 0)
        qsort(in->block, in->blocks, sizeof in->block[0], block_cmp);
    in->bins = (in->orbits * K_ORBIT_BC + K_BIN_BC - 1) / K_BIN_BC;
    return links_index(in, e);
}

void input_free(struct input *in)
{
    free(in->block);
    free(in->page);
    memset(in, 0, sizeof *in);
}

int input_page_fail(const struct input *in, uint32_t page, uint32_t found, struct k_err *e)
{
    static const char *const text[KPE_LAST] = {
        [KPE_ALIGN] = "filler before a time bin is not 0",
        [KPE_MASK_CUT] = "row mask of a time bin reaches past the page",
        [KPE_MASK_EMPTY] = "row mask without rows is not 0",
        [KPE_MASK_END] = "row mask of the other endpoint",
        [KPE_MASK_ROWS] = "row mask names rows the endpoint does not have",
        [KPE_OFFSETS_CUT] = "row offsets reach past the page",
        [KPE_OFFSET] = "row offset does not point behind the row before",
        [KPE_ROW_CUT] = "row data start past the page",
        [KPE_NO_SEQUENCE] = "row without a sequence",
        [KPE_SEQUENCES_CUT] = "sequences of a row reach past the page",
        [KPE_LENGTH] = "number of samples of a row does not grow",
        [KPE_OVERLAP] = "sequence starts inside the one before",
        [KPE_PAD] = "sequence reaches past the last pad of its row",
        [KPE_SAMPLES_CUT] = "samples of a row reach past the page",
        [KPE_NIBBLE] = "filler behind the samples of a row is not 0",
        [KPE_COUNT] = "number of samples is not the one announced",
        [KPE_EMPTY_END] = "the last time bin is empty",
        [KPE_TAIL] = "filler at the end of the page is not 0",
    };
    const struct input_page *p = &in->page[page];
    uint32_t code = found >> 16;

    return page_fail(&in->block[p->block], p->at, e, "byte %" PRIu32 ": %s", found & 0xffff,
                     code < KPE_LAST && text[code] ? text[code] : "unknown error");
}
