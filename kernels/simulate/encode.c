/* encode.c - digits -> pages -> a TF
 *
 * From: the simulator, tests.  To: proto/tf_file.c.
 * A page holds whole time bins: a bin of an endpoint has 2.2 kB at most and always fits. It ends
 * at its size, after 255 bins, or with its orbit; a block ends with a bare header that says stop.
 */
#include "encode.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "../input.h"
#include "tf_file.h"

enum { PAGE_HEADER = 64, DATA_HEADER = 72, PAGE_MAX = 8192, BIN_MAX = 3072, BINS_MAX = 255 };

/* The bytes of all blocks, and where each block lies. */
struct out {
    uint8_t *p;
    size_t size, room;
    bool failed;
};

struct page {
    struct out *o;
    size_t start;
    uint32_t first_bin, bins, samples;
    unsigned size;               /* bytes so far */
};

/* Where in the TF the encoder is. */
struct place {
    uint32_t link, part, orbit, orbits;
    uint8_t packet;
    unsigned page;
};

static uint8_t *room(struct out *o, size_t more)
{
    if (o->size + more > o->room) {
        size_t want = (o->size + more) * 3 / 2 + 65536;
        uint8_t *p = realloc(o->p, want);
        if (p == NULL) {
            o->failed = true;
            return NULL;
        }
        o->p = p;
        o->room = want;
    }
    return o->p + o->size;
}

static void put16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void put64(uint8_t *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void page_header(uint8_t *p, struct place *at, unsigned size, bool stop)
{
    uint64_t cru = at->link / 2, endpoint = at->link % 2, fee = cru << 7 | endpoint << 6 | 15;

    memset(p, 0, PAGE_HEADER);
    put64(p, 7 | PAGE_HEADER << 8 | fee << 16 | UINT64_C(3) << 40);
    put64(p + 8, size | (uint64_t)size << 16 | UINT64_C(15) << 32 | (uint64_t)at->packet << 40 |
                     cru << 48 | endpoint << 60);
    put64(p + 16, (uint64_t)at->orbit << 32);
    put64(p + 32, (at->part == 0 ? 0x803 : 0x3) | (uint64_t)at->page << 32 |
                      (uint64_t)stop << 48);
    put64(p + 48, 2);
    at->packet++;
    at->page++;
}

static void bare_page(struct out *o, struct place *at, bool stop)
{
    uint8_t *p = room(o, PAGE_HEADER);
    if (p == NULL)
        return;
    page_header(p, at, PAGE_HEADER, stop);
    o->size += PAGE_HEADER;
}

static void page_end(struct page *g, struct place *at)
{
    uint8_t *p = g->o->p + g->start;
    unsigned size = (g->size + 15) & ~15u;
    uint32_t bc = g->first_bin * K_BIN_BC - K_ORBIT_BC * at->part;

    memset(p + g->size, 0, size - g->size);
    page_header(p, at, size, false);
    p[64] = 2;
    p[65] = (uint8_t)g->bins;
    put16(p + 66, at->link / 2);
    put16(p + 68, bc);
    put16(p + 70, g->samples);
    g->o->size = g->start + size;
}

/* One row of one bin: sequences of neighbouring pads, then their samples. */
static unsigned put_row(uint8_t *p, const struct encode_digits *d, const uint32_t *list,
                        uint32_t n)
{
    uint8_t *q = p + 1;
    unsigned sequences = 0;

    for (uint32_t i = 0; i < n; i++) {
        bool last = i + 1 == n || d->pad[list[i + 1]] != d->pad[list[i]] + 1;
        if (i == 0 || d->pad[list[i]] != d->pad[list[i - 1]] + 1) {
            q[0] = d->pad[list[i]];
            sequences++;
        }
        if (last) {
            q[1] = (uint8_t)(i + 1);
            q += 2;
        }
    }
    p[0] = (uint8_t)sequences;
    for (uint32_t i = 0; i < n; i++) {
        unsigned v = d->charge[list[i]];
        if (i % 2 == 0) {
            q[0] = (uint8_t)v;
            q[1] = (uint8_t)(v >> 8);
        } else {
            q[1] |= (uint8_t)(v << 4);
            q[2] = (uint8_t)(v >> 4);
            q += 3;
        }
    }
    return (unsigned)(q - p) + (n % 2 ? 2 : 0);
}

/* The digits list[0..n) of one bin behind what the page has; at least BIN_MAX bytes are free. */
static void put_bin(struct page *g, uint32_t endpoint, uint32_t first_row,
                    const struct encode_digits *d, const uint32_t *list, uint32_t n)
{
    uint8_t *p = g->o->p + g->start;
    unsigned mask = endpoint << 15, rows = 0, i = 0;

    if (g->size & 1)
        p[g->size++] = 0;
    for (uint32_t k = 0; k < n; k++) {
        unsigned bit = 1u << (d->row[list[k]] - first_row);
        rows += (mask & bit) == 0;
        mask |= bit;
    }
    put16(p + g->size, mask);
    unsigned offsets = g->size + 2;
    g->size = offsets + 2 * (rows - 1);
    for (uint32_t k = 0, to; k < n; k = to, i++) {
        for (to = k; to < n && d->row[list[to]] == d->row[list[k]]; to++)
            ;
        if (i > 0)
            put16(p + offsets + 2 * (i - 1), g->size);
        g->size += put_row(p + g->size, d, list + k, to - k);
    }
    g->samples += n;
    g->bins++;
}

/* The block of one link and orbit: list[0..n) are its digits by time, row, pad. */
static void put_block(struct out *o, struct place *at, uint32_t first_row, uint32_t page_max,
                      const struct encode_digits *d, const uint32_t *list, uint32_t n)
{
    struct page g = { 0 };

    at->page = 0;
    if (n == 0)
        bare_page(o, at, false);
    for (uint32_t i = 0, to; i < n && !o->failed; i = to) {
        uint32_t t = d->time[list[i]];
        for (to = i; to < n && d->time[list[to]] == t; to++)
            ;
        uint32_t skipped = g.o ? t - (g.first_bin + g.bins) : 0;
        if (g.o && (g.bins + skipped + 1 > BINS_MAX ||
                    g.size + 2 * skipped + BIN_MAX > page_max)) {
            page_end(&g, at);
            g.o = NULL;
        }
        if (g.o == NULL) {
            g = (struct page){ .o = o, .start = o->size, .first_bin = t, .size = DATA_HEADER };
            if (room(o, PAGE_MAX + BIN_MAX) == NULL)
                return;
            skipped = 0;
        }
        for (; skipped > 0; skipped--, g.bins++) {
            uint8_t *p = o->p + g.start;
            if (g.size & 1)
                p[g.size++] = 0;
            put16(p + g.size, 0);
            g.size += 2;
        }
        put_bin(&g, at->link % 2, first_row, d, list + i, to - i);
    }
    if (g.o)
        page_end(&g, at);
    bare_page(o, at, true);
}

static int digits_check(const struct encode_digits *d, const struct encode_tf *t, struct k_err *e)
{
    uint64_t last = 0;

    if (t->orbits == 0 || t->orbits > 147)
        return k_fail(e, K_EINPUT, "a TF of %" PRIu32 " orbits, want 1 to 147", t->orbits);
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t key = (uint64_t)d->sector[i] << 40 | (uint64_t)d->row[i] << 32 |
                       (uint64_t)d->pad[i] << 16 | d->time[i];
        if (d->sector[i] >= K_SECTORS || d->row[i] >= K_ROWS || d->charge[i] > 4095 ||
            (i > 0 && key <= last))
            return k_fail(e, K_EINPUT, "digit %" PRIu32 " is out of range or out of order", i);
        if ((uint32_t)d->time[i] * K_BIN_BC >= t->orbits * K_ORBIT_BC)
            return k_fail(e, K_EINPUT, "digit %" PRIu32 ": bin %u is past the %" PRIu32
                          " orbits of the TF", i, d->time[i], t->orbits);
        last = key;
    }
    return 0;
}

/* list = the digits [from, to) sorted by time (stable, so row and pad stay in order). */
static void by_time(const struct encode_digits *d, uint32_t from, uint32_t to, uint32_t *start,
                    uint32_t bins, uint32_t *list)
{
    memset(start, 0, (bins + 1) * sizeof *start);
    for (uint32_t i = from; i < to; i++)
        start[d->time[i] + 1]++;
    for (uint32_t b = 0; b < bins; b++)
        start[b + 1] += start[b];
    for (uint32_t i = from; i < to; i++)
        list[start[d->time[i]]++] = i;
}

static void put_link(struct out *o, struct place *at, const struct encode_tf *t,
                     const struct encode_digits *d, uint32_t *list, uint32_t n, size_t *block_end)
{
    uint32_t sector, first_row, rows, i = 0;

    input_link_rows(at->link, &sector, &first_row, &rows);
    for (at->part = 0; at->part < t->orbits; at->part++) {
        uint32_t to = i;
        while (to < n && (uint32_t)d->time[list[to]] * K_BIN_BC < K_ORBIT_BC * (at->part + 1))
            to++;
        at->orbit = t->first_orbit + at->part;
        put_block(o, at, first_row, t->page_max ? t->page_max : PAGE_MAX, d, list + i, to - i);
        block_end[at->part] = o->size;
        i = to;
    }
}

static int tf_make(const struct encode_tf *t, const struct out *o, const size_t *end, void **out,
                   size_t *size, struct k_err *e)
{
    size_t n = (size_t)K_LINKS * t->orbits;
    struct tf_new_block *b = calloc(n, sizeof *b);
    struct tf_err te;
    int r;

    if (b == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        size_t from = i > 0 ? end[i - 1] : 0;
        uint32_t link = (uint32_t)(i / t->orbits);
        b[i] = (struct tf_new_block){ "RAWDATA", "TPC", link / 2 << 7 | (link & 1) << 6 | 15,
                                      o->p + from, end[i] - from };
    }
    r = tf_build(b, n, t->first_orbit, t->counter, t->run, t->written_ms, out, size, &te);
    free(b);
    return r < 0 ? k_fail(e, K_ENOMEM, "%s", te.text) : 0;
}

int encode_tf(const struct encode_digits *d, const struct encode_tf *t, void **out, size_t *size,
              struct k_err *e)
{
    uint32_t bins = (t->orbits * K_ORBIT_BC + K_BIN_BC - 1) / K_BIN_BC, i = 0;
    struct out o = { 0 };
    int r = -1;

    if (digits_check(d, t, e) < 0)
        return -1;
    if (t->page_max && (t->page_max < DATA_HEADER + BIN_MAX || t->page_max > PAGE_MAX))
        return k_fail(e, K_EINPUT, "pages of %" PRIu32 " bytes, want %d to %d", t->page_max,
                      DATA_HEADER + BIN_MAX, PAGE_MAX);
    uint32_t *list = malloc(((size_t)d->n + 1) * sizeof *list);
    uint32_t *start = malloc(((size_t)bins + 2) * sizeof *start);
    size_t *end = calloc((size_t)K_LINKS * t->orbits, sizeof *end);
    if (list == NULL || start == NULL || end == NULL) {
        k_fail(e, K_ENOMEM, "out of memory");
        goto out;
    }
    for (uint32_t link = 0; link < K_LINKS && !o.failed; link++) {
        uint32_t sector, row, rows, from = i;
        struct place at = { .link = link, .packet = t->packet ? t->packet[link] : 0 };
        input_link_rows(link, &sector, &row, &rows);
        while (i < d->n && d->sector[i] == sector && d->row[i] < row + rows)
            i++;
        by_time(d, from, i, start, bins, list);
        put_link(&o, &at, t, d, list, i - from, end + (size_t)link * t->orbits);
        if (t->packet)
            t->packet[link] = at.packet;
    }
    if (o.failed)
        k_fail(e, K_ENOMEM, "no memory for the pages");
    else
        r = tf_make(t, &o, end, out, size, e);
out:
    free(list);
    free(start);
    free(end);
    free(o.p);
    return r;
}
