/* page.c - the pages inside a block of raw data
 *
 * From: reel.c, blocks that tf_file.c found sound.  To: nothing.
 * Every page moves the position by at least a header, so that no page can hold the walk up.
 */
#include "config.h"

#include "page.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_HEADER = 64, PAGE_VERSION = 7 };

__attribute__((format(printf, 3, 4)))
static int fail(struct tf_err *e, uint64_t offset, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    e->offset = offset;
    return -1;
}

static unsigned get16(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

bool page_has(const struct tf_block *b)
{
    return strcmp(b->origin, "TPC") == 0 && strcmp(b->description, "RAWDATA") == 0;
}

/* One header with `left` bytes of the block from it on. */
static int header_check(const struct tf_block *b, const uint8_t *p, uint64_t left, uint64_t at, struct tf_err *e)
{
    unsigned next = get16(p + 8), memory = get16(p + 10), stop = p[38];

    if (p[0] != PAGE_VERSION || p[1] != PAGE_HEADER)
        return fail(e, at, "page header: version %u of %u bytes, want %d of %d", p[0], p[1], PAGE_VERSION, PAGE_HEADER);
    if (get16(p + 2) != b->subspec)
        return fail(e, at + 2, "page header: FEE id 0x%x in block 0x%" PRIx32, get16(p + 2), b->subspec);
    if (memory < PAGE_HEADER || memory > next)
        return fail(e, at + 10, "page header: memory size %u, want %d to %u (offset to the next page)",
                    memory, PAGE_HEADER, next);
    if (next > left)
        return fail(e, at + 8, "page header: offset to the next page %u, %" PRIu64
                    " bytes are left in the block", next, left);
    if ((stop == 1) != (next == left))
        return fail(e, at + 38, "page header: stop is %u in %s page of the block", stop,
                    next == left ? "the last" : "another than the last");
    return 0;
}

int page_check(const struct tf_block *b, struct tf_err *e)
{
    uint64_t pos = 0, start = b->offset + TF_HEADER_SIZE;

    while (pos < b->size) {
        if (b->size - pos < PAGE_HEADER)
            return fail(e, start + pos, "page header: %d bytes wanted, %" PRIu64
                        " are left in the block", PAGE_HEADER, b->size - pos);
        if (header_check(b, b->payload + pos, b->size - pos, start + pos, e) < 0)
            return -1;
        pos += get16(b->payload + pos + 8);
    }
    return 0;
}
