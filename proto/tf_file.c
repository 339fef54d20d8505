/* tf_file.c - time-frames (TFs) as they lie in a file
 *
 * From: files, and memory that came from files.  To: replay.c (reads, cuts), pipeline.c of
 * kernels/ (walks blocks), the simulator (writes), `sluice tf`.
 * No length is used before it was held against what is there; a sum of lengths cannot wrap,
 * because every single one is first compared with the bytes left.
 */
#include "tf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char META[] = "FILE_STF_META", INDEX[] = "FILE_STF_INDEX";

__attribute__((format(printf, 3, 4)))
static int fail(struct tf_err *e, uint64_t offset, const char *fmt, ...)
{
    if (e) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(e->text, sizeof e->text, fmt, ap);
        va_end(ap);
        e->offset = offset;
    }
    return -1;
}

static uint32_t get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

/* A field of n bytes holds the text and then only zeros. */
static bool field_is(const uint8_t *p, const char *text, size_t n)
{
    size_t len = strlen(text);
    if (len > n || memcmp(p, text, len) != 0)
        return false;
    for (; len < n; len++) {
        if (p[len] != 0)
            return false;
    }
    return true;
}

/* Text of at most n bytes, padded by zeros; what cannot be printed is refused. */
static int field_copy(char *out, const uint8_t *p, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] != 0 && (len != i || p[i] < 0x21 || p[i] > 0x7e))
            return -1;
        if (p[i] != 0)
            out[len++] = (char)p[i];
    }
    out[len] = '\0';
    return len > 0 ? 0 : -1;
}

enum tf_kind tf_block_kind(const struct tf_block *b)
{
    if (strcmp(b->description, META) == 0)
        return TF_META;
    return strcmp(b->description, INDEX) == 0 ? TF_INDEX : TF_DATA;
}

static int header_fixed(const uint8_t *p, uint64_t at, struct tf_err *e)
{
    static const struct { unsigned pos; uint32_t want; const char *name; } word[] = {
        { 4, TF_HEADER_SIZE, "header size" }, { 8, 0, "flags" }, { 12, 3, "header version" },
        { 92, 0, "last word" },
    };
    static const struct { unsigned pos, len; const char *want, *name; } text[] = {
        { 16, 8, "DataHead", "kind of header" }, { 24, 8, "NONE", "serialisation" },
        { 56, 8, "NONE", "payload serialisation" },
    };

    if (memcmp(p, "O2O2", 4) != 0)
        return fail(e, at, "block header: magic is %02x %02x %02x %02x, want \"O2O2\"", p[0],
                    p[1], p[2], p[3]);
    for (size_t i = 0; i < sizeof word / sizeof word[0]; i++) {
        uint32_t found = get32(p + word[i].pos);
        if (found != word[i].want)
            return fail(e, at + word[i].pos, "block header: %s is %" PRIu32 ", want %" PRIu32,
                        word[i].name, found, word[i].want);
    }
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
        if (!field_is(p + text[i].pos, text[i].want, text[i].len))
            return fail(e, at + text[i].pos, "block header: %s is not \"%s\"", text[i].name,
                        text[i].want);
    }
    return 0;
}

int tf_block_parse(const void *data, uint64_t avail, uint64_t offset, struct tf_block *b,
                   struct tf_err *e)
{
    const uint8_t *p = data;

    if (avail < TF_HEADER_SIZE)
        return fail(e, offset, "block header: %d bytes wanted, %" PRIu64 " are left",
                    TF_HEADER_SIZE, avail);
    if (header_fixed(p, offset, e) < 0)
        return -1;

    struct tf_block n = {
        .offset = offset, .size = get64(p + 72), .parts = get32(p + 52),
        .subspec = get32(p + 64), .part = get32(p + 68), .first_orbit = get32(p + 80),
        .counter = get32(p + 84), .run = get32(p + 88),
    };
    if (field_copy(n.description, p + 32, 16) < 0)
        return fail(e, offset + 32, "block header: description is not plain text");
    if (field_copy(n.origin, p + 48, 4) < 0)
        return fail(e, offset + 48, "block header: origin is not plain text");
    if (n.size > avail - TF_HEADER_SIZE)
        return fail(e, offset + 72, "block %s/%s/0x%" PRIx32 ": payload of %" PRIu64
                    " bytes announced, %" PRIu64 " are left", n.description, n.origin, n.subspec,
                    n.size, avail - TF_HEADER_SIZE);
    if (n.parts == 0 || n.part >= n.parts)
        return fail(e, offset + 68, "block %s/%s/0x%" PRIx32 ": part %" PRIu32 " of %" PRIu32
                    " (parts count from 0)", n.description, n.origin, n.subspec, n.part, n.parts);
    *b = n;
    return 0;
}

/* ---- memory ------------------------------------------------------------------------------ */

void tf_iter_init(struct tf_iter *it, const struct tf_seg *seg, unsigned n)
{
    *it = (struct tf_iter){ .seg = seg, .n = n };
}

int tf_iter_next(struct tf_iter *it, struct tf_block *b, struct tf_err *e)
{
    while (it->i < it->n && it->pos == it->seg[it->i].size) {
        it->base += it->seg[it->i++].size;
        it->pos = 0;
    }
    if (it->i >= it->n)
        return 0;

    const struct tf_seg *s = &it->seg[it->i];
    const uint8_t *p = (const uint8_t *)s->data + it->pos;
    if (tf_block_parse(p, s->size - it->pos, it->base + it->pos, b, e) < 0) {
        it->i = it->n;
        return -1;
    }
    b->payload = p + TF_HEADER_SIZE;
    it->pos += TF_HEADER_SIZE + b->size;
    return 1;
}

/* ---- one TF held against its own meta block and index ------------------------------------- */

/* Follows the blocks of a TF in order. The same steps serve files and memory. */
struct walk {
    struct tf_info info;
    uint64_t end;                  /* size in the meta block, 0 without one */
    uint64_t blocks_at;            /* offset of the first block after the index */
    const uint8_t *index;          /* its payload, NULL without one */
    uint64_t index_size;
    uint64_t entry;                /* the index element the next block belongs to */
    uint32_t entry_done;           /* blocks of it seen */
    uint64_t entry_bytes;
    bool has_index, by_index, any;
    struct tf_block last;          /* the data block before */
};

static int walk_meta(struct walk *w, const struct tf_block *b, const uint8_t *payload,
                     struct tf_err *e)
{
    uint64_t at = b->offset + TF_HEADER_SIZE;

    if (strcmp(b->origin, "FLP") != 0 || b->subspec != 0 || b->parts != 1)
        return fail(e, b->offset + 48, "meta block: origin %s, subspecification %" PRIu32
                    ", %" PRIu32 " parts; want FLP, 0, 1", b->origin, b->subspec, b->parts);
    if (b->first_orbit != 0 || b->counter != 0 || b->run != 0)
        return fail(e, b->offset + 80, "meta block: first orbit, counter and run are not 0");
    if (b->size != TF_META_SIZE)
        return fail(e, b->offset + 72, "meta block: payload of %" PRIu64 " bytes, want %d",
                    b->size, TF_META_SIZE);
    if (get64(payload) != 1)
        return fail(e, at, "meta block: version %" PRIu64 ", want 1", get64(payload));
    w->end = get64(payload + 8);
    if (w->end < TF_HEADER_SIZE + TF_META_SIZE || w->end > TF_MAX_SIZE)
        return fail(e, at + 8, "meta block: a TF of %" PRIu64 " bytes announced", w->end);
    w->info.size = w->end;
    w->info.written_ms = get64(payload + 16);
    return 0;
}

static int walk_index(struct walk *w, const struct tf_block *b, const uint8_t *payload,
                      struct tf_err *e)
{
    if (strcmp(b->origin, "***") != 0 || b->subspec != 0 || b->parts != 1)
        return fail(e, b->offset + 48, "index block: origin %s, subspecification %" PRIu32
                    ", %" PRIu32 " parts; want ***, 0, 1", b->origin, b->subspec, b->parts);
    if (b->first_orbit != 0 || b->counter != 0 || b->run != 0)
        return fail(e, b->offset + 80, "index block: first orbit, counter and run are not 0");
    if (b->size % TF_ENTRY_SIZE != 0 || b->size > TF_MAX_INDEX)
        return fail(e, b->offset + 72, "index block: payload of %" PRIu64
                    " bytes, want a multiple of %d up to %" PRIu64, b->size, TF_ENTRY_SIZE,
                    TF_MAX_INDEX);
    uint64_t sum = b->offset + TF_HEADER_SIZE + b->size;
    if (w->end != 0)
        sum -= w->info.offset;
    for (uint64_t i = 0; i < b->size; i += TF_ENTRY_SIZE) {
        uint64_t size = get64(payload + i + 40);
        if (size > TF_MAX_SIZE || (sum += size) > TF_MAX_SIZE)
            return fail(e, b->offset + TF_HEADER_SIZE + i + 40, "index: an element of %" PRIu64
                        " bytes", size);
    }
    if (w->end != 0 && sum != w->end)
        return fail(e, b->offset, "index: its elements and the blocks before them make %" PRIu64
                    " bytes, the meta block says %" PRIu64, sum, w->end);
    w->has_index = true;
    w->index = payload;
    w->index_size = b->size;
    w->info.identities = (uint32_t)(b->size / TF_ENTRY_SIZE);
    w->blocks_at = b->offset + TF_HEADER_SIZE + b->size;
    return 0;
}

/* The block at hand must be the next one the index tells of. */
static int walk_entry(struct walk *w, const struct tf_block *b, struct tf_err *e)
{
    uint64_t at = w->blocks_at - w->index_size + w->entry * TF_ENTRY_SIZE;
    const uint8_t *x = w->index + w->entry * TF_ENTRY_SIZE;

    if (w->entry * TF_ENTRY_SIZE >= w->index_size)
        return fail(e, b->offset, "index: block %s/%s/0x%" PRIx32 " is not in it",
                    b->description, b->origin, b->subspec);
    if (!field_is(x, b->description, 16) || !field_is(x + 16, b->origin, 4) ||
        get32(x + 24) != b->subspec)
        return fail(e, at, "index: element %" PRIu64 " is another than block %s/%s/0x%" PRIx32
                    " found in its place", w->entry, b->description, b->origin, b->subspec);
    if (get32(x + 20) != b->parts)
        return fail(e, at + 20, "index: element %" PRIu64 " has %" PRIu32
                    " blocks, their headers say %" PRIu32, w->entry, get32(x + 20), b->parts);
    if (get32(x + 28) != 0)
        return fail(e, at + 28, "index: element %" PRIu64 " has %" PRIu32
                    " where 0 is fixed", w->entry, get32(x + 28));
    if (w->entry_done == 0 && get64(x + 32) != b->offset - w->blocks_at)
        return fail(e, at + 32, "index: element %" PRIu64 " starts at %" PRIu64
                    " by the index, its first block at %" PRIu64, w->entry, get64(x + 32),
                    b->offset - w->blocks_at);
    if (b->part != w->entry_done)
        return fail(e, b->offset + 68, "block %s/%s/0x%" PRIx32 ": part %" PRIu32
                    " found, %" PRIu32 " is due", b->description, b->origin, b->subspec, b->part,
                    w->entry_done);
    w->entry_bytes += TF_HEADER_SIZE + b->size;
    if (++w->entry_done < b->parts)
        return 0;
    if (get64(x + 40) != w->entry_bytes)
        return fail(e, at + 40, "index: element %" PRIu64 " has %" PRIu64
                    " bytes by the index, %" PRIu64 " by its blocks", w->entry, get64(x + 40),
                    w->entry_bytes);
    w->entry++;
    w->entry_done = 0;
    w->entry_bytes = 0;
    return 0;
}

static bool same_identity(const struct tf_block *a, const struct tf_block *b)
{
    return a->subspec == b->subspec && strcmp(a->origin, b->origin) == 0 &&
           strcmp(a->description, b->description) == 0;
}

static int walk_data(struct walk *w, const struct tf_block *b, struct tf_err *e)
{
    if (w->info.blocks == 0) {
        w->info.first_orbit = b->first_orbit;
        w->info.counter = b->counter;
        w->info.run = b->run;
    }
    if (b->first_orbit != w->info.first_orbit)
        return fail(e, b->offset + 80, "block %s/%s/0x%" PRIx32 ": first orbit %" PRIu32
                    ", the TF's is %" PRIu32, b->description, b->origin, b->subspec,
                    b->first_orbit, w->info.first_orbit);
    if (b->counter != w->info.counter)
        return fail(e, b->offset + 84, "block %s/%s/0x%" PRIx32 ": TF counter %" PRIu32
                    ", the TF's is %" PRIu32, b->description, b->origin, b->subspec, b->counter,
                    w->info.counter);
    if (b->run != w->info.run)
        return fail(e, b->offset + 88, "block %s/%s/0x%" PRIx32 ": run %" PRIu32
                    ", the TF's is %" PRIu32, b->description, b->origin, b->subspec, b->run,
                    w->info.run);
    if (w->by_index && walk_entry(w, b, e) < 0)
        return -1;
    if (!w->by_index && w->info.blocks > 0 && same_identity(&w->last, b) &&
        (b->part <= w->last.part || b->parts != w->last.parts))
        return fail(e, b->offset + 68, "block %s/%s/0x%" PRIx32 ": part %" PRIu32 " of %" PRIu32
                    " follows part %" PRIu32 " of %" PRIu32, b->description, b->origin,
                    b->subspec, b->part, b->parts, w->last.part, w->last.parts);
    if (w->info.blocks == UINT32_MAX)
        return fail(e, b->offset, "more than 4294967295 blocks in one TF");
    w->info.blocks++;
    w->info.payload += b->size;
    w->last = *b;
    return 0;
}

/* The next block of the TF; `payload` is that of a meta or index block. */
static int walk_block(struct walk *w, const struct tf_block *b, const uint8_t *payload,
                      struct tf_err *e)
{
    enum tf_kind kind = tf_block_kind(b);
    bool first = !w->any;

    w->any = true;
    if (kind == TF_META)
        return first ? walk_meta(w, b, payload, e)
                     : fail(e, b->offset, "a second meta block inside a TF");
    if (kind == TF_INDEX)
        return !w->has_index && w->info.blocks == 0
                   ? walk_index(w, b, payload, e)
                   : fail(e, b->offset, "an index block after data blocks or twice");
    return walk_data(w, b, e);
}

static int walk_end(struct walk *w, uint64_t at, struct tf_err *e)
{
    if (!w->by_index)
        return 0;
    if (w->entry_done != 0)
        return fail(e, at, "the TF ends after %" PRIu32 " of %" PRIu32 " blocks of %s/%s/0x%"
                    PRIx32, w->entry_done, w->last.parts, w->last.description, w->last.origin,
                    w->last.subspec);
    if (w->entry * TF_ENTRY_SIZE != w->index_size)
        return fail(e, at, "index: %" PRIu64 " elements, blocks found for %" PRIu64,
                    w->index_size / TF_ENTRY_SIZE, w->entry);
    return 0;
}

/* The size in the meta block, if the first block is a whole one. */
static uint64_t announced(const struct tf_seg *seg, unsigned n)
{
    struct tf_iter it;
    struct tf_block b;

    tf_iter_init(&it, seg, n);
    if (tf_iter_next(&it, &b, NULL) != 1 || tf_block_kind(&b) != TF_META || b.size < 16)
        return 0;
    return get64(b.payload + 8);
}

int tf_check(const struct tf_seg *seg, unsigned n, struct tf_info *info, bool *complete,
             struct tf_err *e)
{
    struct walk w = { 0 };
    struct tf_iter it;
    struct tf_block b;
    uint64_t total = 0;
    int r;

    for (unsigned i = 0; i < n; i++)
        total += seg[i].size;
    bool whole = total > 0 && announced(seg, n) == total;

    tf_iter_init(&it, seg, n);
    while ((r = tf_iter_next(&it, &b, e)) == 1) {
        if (walk_block(&w, &b, b.payload, e) < 0)
            return -1;
        w.by_index = whole && w.has_index;
        if (w.end != 0 && w.end < total)
            return fail(e, w.end, "meta block: a TF of %" PRIu64 " bytes announced, %" PRIu64
                        " are there", w.end, total);
        if (whole && w.info.blocks > 0 && !w.has_index)
            return fail(e, b.offset, "no index before the data blocks");
    }
    if (r < 0 || walk_end(&w, total, e) < 0)
        return -1;
    if (!w.any)
        return fail(e, 0, "no block at all");
    w.info.size = total;
    if (info)
        *info = w.info;
    if (complete)
        *complete = whole;
    return 0;
}

int tf_split(const void *data, size_t size, unsigned parts, struct tf_seg *out,
             struct tf_err *e)
{
    struct tf_seg all = { data, size };
    struct tf_iter it;
    struct tf_block b;
    size_t from = 0, end = 0;
    unsigned i = 0;
    int r;

    if (parts == 0)
        return fail(e, 0, "a TF in 0 parts");
    tf_iter_init(&it, &all, 1);
    while ((r = tf_iter_next(&it, &b, e)) == 1) {
        size_t next = (size_t)(b.offset + TF_HEADER_SIZE + b.size);
        /* The border i+1 of `parts` is due at this share of the bytes; a block goes to the
         * side on which the larger half of it lies. */
        while (i + 1 < parts && tf_block_kind(&b) == TF_DATA) {
            double due = (double)size * (i + 1) / parts;
            if ((double)end + (double)(next - end) / 2 < due)
                break;
            out[i++] = (struct tf_seg){ (const uint8_t *)data + from, end - from };
            from = end;
        }
        end = next;
    }
    if (r < 0)
        return -1;
    for (; i < parts; i++) {
        out[i] = (struct tf_seg){ (const uint8_t *)data + from, end - from };
        from = end;
    }
    return 0;
}

/* ---- files ------------------------------------------------------------------------------- */

enum { NEAR = 1 << 16, SMALL = 1 << 13 };

struct tf_file {
    int fd;
    uint64_t size, pos;
    bool done;
    uint8_t near[NEAR];           /* what was read last for a header, and what followed */
    uint64_t near_at, near_len;
    bool blocks_are_small;        /* the last one was */
    uint8_t *index;               /* room for the payload of an index */
    uint64_t index_room;
};

static const char *kind_of(mode_t m)
{
    return S_ISDIR(m) ? "a folder" : S_ISFIFO(m) ? "a FIFO" : S_ISSOCK(m) ? "a socket"
           : S_ISCHR(m) || S_ISBLK(m) ? "a device" : "not a file";
}

struct tf_file *tf_file_open(const char *path, struct tf_err *e)
{
    struct stat st;
    /* O_NONBLOCK: opening a FIFO without a writer must not wait. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 || fstat(fd, &st) < 0) {
        fail(e, 0, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        fail(e, 0, "%s: is %s, want a regular file", path, kind_of(st.st_mode));
        goto fail;
    }
    struct tf_file *f = calloc(1, sizeof *f);
    if (f == NULL) {
        fail(e, 0, "%s: out of memory", path);
        goto fail;
    }
    f->fd = fd;
    f->size = (uint64_t)st.st_size;
    return f;
fail:
    if (fd >= 0)
        close(fd);
    return NULL;
}

void tf_file_close(struct tf_file *f)
{
    if (f == NULL)
        return;
    close(f->fd);
    free(f->index);
    free(f);
}

uint64_t tf_file_size(const struct tf_file *f)
{
    return f->size;
}

void tf_file_rewind(struct tf_file *f)
{
    f->pos = 0;
    f->done = false;
    f->near_len = 0;              /* what is read anew is looked at anew */
}

int tf_file_read(struct tf_file *f, uint64_t offset, void *buf, size_t size, struct tf_err *e)
{
    size_t got = 0;

    if (offset > INT64_MAX)
        return fail(e, offset, "no file reaches that far");
    while (got < size) {
        ssize_t n = pread(f->fd, (char *)buf + got, size - got, (off_t)(offset + got));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(e, offset + got, "reading: %s", strerror(errno));
        if (n == 0)
            return fail(e, offset + got, "the file ends: %zu bytes wanted, %zu found", size, got);
        got += (size_t)n;
    }
    return 0;
}

/* The 96 bytes at `at`. Where blocks are small one read serves many headers; where they are large no more is read than the header. */
static const uint8_t *header_bytes(struct tf_file *f, uint64_t at, uint64_t end, struct tf_err *e)
{
    uint64_t want = f->blocks_are_small && end - at > TF_HEADER_SIZE ? NEAR : TF_HEADER_SIZE;

    if (at >= f->near_at && f->near_len >= TF_HEADER_SIZE && at - f->near_at <= f->near_len - TF_HEADER_SIZE)
        return f->near + (at - f->near_at);
    want = want < end - at ? want : end - at;
    f->near_len = 0;
    if (tf_file_read(f, at, f->near, want, e) < 0)
        return NULL;
    f->near_at = at;
    f->near_len = want;
    return f->near;
}

/* Reads and parses the header at `at`; the block may reach up to `end`. */
static int file_header(struct tf_file *f, uint64_t at, uint64_t end, struct tf_block *b,
                       struct tf_err *e)
{
    if (end - at < TF_HEADER_SIZE)
        return fail(e, at, "block header: %d bytes wanted, %" PRIu64 " are left", TF_HEADER_SIZE,
                    end - at);
    const uint8_t *raw = header_bytes(f, at, end, e);
    if (raw == NULL || tf_block_parse(raw, end - at, at, b, e) < 0)
        return -1;
    f->blocks_are_small = b->size < SMALL;
    return 0;
}

static int file_index(struct tf_file *f, const struct tf_block *b, struct tf_err *e)
{
    if (b->size > TF_MAX_INDEX)
        return fail(e, b->offset + 72, "index block: payload of %" PRIu64
                    " bytes, want at most %" PRIu64, b->size, TF_MAX_INDEX);
    if (b->size > f->index_room) {
        uint8_t *p = realloc(f->index, b->size);
        if (p == NULL)
            return fail(e, b->offset, "index block: no memory for %" PRIu64 " bytes", b->size);
        f->index = p;
        f->index_room = b->size;
    }
    return tf_file_read(f, b->offset + TF_HEADER_SIZE, f->index, b->size, e);
}

/* All blocks of the TF at f->pos. */
static int file_walk(struct tf_file *f, struct walk *w, struct tf_err *e)
{
    uint64_t start = f->pos, at = start, end = f->size;
    struct tf_block b;
    uint8_t meta[TF_META_SIZE];

    if (file_header(f, at, end, &b, e) < 0)
        return -1;
    if (tf_block_kind(&b) != TF_META)
        return fail(e, at, "a TF starts with a meta block, found %s/%s", b.description, b.origin);
    if (b.size == TF_META_SIZE && tf_file_read(f, at + TF_HEADER_SIZE, meta, sizeof meta, e) < 0)
        return -1;
    if (walk_block(w, &b, meta, e) < 0)
        return -1;
    if (w->end > end - start)
        return fail(e, at + TF_HEADER_SIZE + 8, "a TF of %" PRIu64 " bytes announced, %" PRIu64
                    " are left in the file", w->end, end - start);
    end = start + w->end;
    for (at += TF_HEADER_SIZE + b.size; at < end; at += TF_HEADER_SIZE + b.size) {
        if (file_header(f, at, end, &b, e) < 0)
            return -1;
        if (tf_block_kind(&b) == TF_INDEX && file_index(f, &b, e) < 0)
            return -1;
        if (walk_block(w, &b, f->index, e) < 0)
            return -1;
        if (!w->has_index)
            return fail(e, at, "a TF's second block is its index, found %s/%s", b.description,
                        b.origin);
        w->by_index = true;
    }
    if (!w->has_index)
        return fail(e, at, "a TF without an index block");
    return walk_end(w, at, e);
}

int tf_file_next(struct tf_file *f, struct tf_info *info, struct tf_err *e)
{
    struct walk w = { .info.offset = f->pos };

    if (f->done || (f->pos == f->size && f->size > 0))
        return 0;
    f->done = true;               /* until this TF proves sound */
    if (f->size == 0)
        return fail(e, 0, "the file is empty");
    if (file_walk(f, &w, e) < 0)
        return -1;
    f->done = false;
    f->pos += w.end;
    *info = w.info;
    return 1;
}

int tf_file_blocks(struct tf_file *f, const struct tf_info *info,
                   int (*fn)(const struct tf_block *, void *), void *arg, struct tf_err *e)
{
    uint64_t at = info->offset, end = info->offset + info->size;

    while (at < end) {
        struct tf_block b;
        if (file_header(f, at, end, &b, e) < 0)
            return -1;
        int r = fn(&b, arg);
        if (r != 0)
            return r;
        at += TF_HEADER_SIZE + b.size;
    }
    return 0;
}

/* ---- making one -------------------------------------------------------------------------- */

static int identity_cmp(const struct tf_new_block *a, const struct tf_new_block *b)
{
    int c = strcmp(a->description, b->description);
    if (c == 0)
        c = strcmp(a->origin, b->origin);
    if (c == 0)
        c = (a->subspec > b->subspec) - (a->subspec < b->subspec);
    return c;
}

static int new_block_cmp(const void *a, const void *b)
{
    const struct tf_new_block *x = *(const struct tf_new_block *const *)a;
    const struct tf_new_block *y = *(const struct tf_new_block *const *)b;
    int c = identity_cmp(x, y);
    return c != 0 ? c : (x > y) - (x < y);       /* of one identity: as given */
}

static void put_header(uint8_t *p, const char *description, const char *origin, uint32_t parts,
                       uint32_t subspec, uint32_t part, uint64_t size, const uint32_t ids[3])
{
    memset(p, 0, TF_HEADER_SIZE);
    memcpy(p, "O2O2", 4);
    put32(p + 4, TF_HEADER_SIZE);
    put32(p + 12, 3);
    memcpy(p + 16, "DataHead", 8);
    memcpy(p + 24, "NONE", 4);
    memcpy(p + 32, description, strlen(description));
    memcpy(p + 48, origin, strlen(origin));
    put32(p + 52, parts);
    memcpy(p + 56, "NONE", 4);
    put32(p + 64, subspec);
    put32(p + 68, part);
    put64(p + 72, size);
    for (int i = 0; i < 3; i++)
        put32(p + 80 + 4 * i, ids[i]);
}

/* Blocks x[i..] of one identity; returns the end of the group. */
static size_t group_end(const struct tf_new_block **x, size_t n, size_t i)
{
    size_t j = i;
    while (j < n && identity_cmp(x[i], x[j]) == 0)
        j++;
    return j;
}

static void put_blocks(uint8_t *p, uint8_t *entry, const struct tf_new_block **x, size_t n,
                       const uint32_t ids[3])
{
    uint64_t at = 0;

    for (size_t i = 0; i < n;) {
        size_t j = group_end(x, n, i);
        uint64_t start = at;
        for (size_t k = i; k < j; k++) {
            put_header(p + at, x[k]->description, x[k]->origin, (uint32_t)(j - i), x[k]->subspec,
                       (uint32_t)(k - i), x[k]->size, ids);
            if (x[k]->size > 0)
                memcpy(p + at + TF_HEADER_SIZE, x[k]->payload, x[k]->size);
            at += TF_HEADER_SIZE + x[k]->size;
        }
        memset(entry, 0, TF_ENTRY_SIZE);
        memcpy(entry, x[i]->description, strlen(x[i]->description));
        memcpy(entry + 16, x[i]->origin, strlen(x[i]->origin));
        put32(entry + 20, (uint32_t)(j - i));
        put32(entry + 24, x[i]->subspec);
        put64(entry + 32, start);
        put64(entry + 40, at - start);
        entry += TF_ENTRY_SIZE;
        i = j;
    }
}

static int new_blocks_check(const struct tf_new_block *b, size_t n, uint64_t *total,
                            struct tf_err *e)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(b[i].description) > 16 || b[i].description[0] == '\0' ||
            strlen(b[i].origin) > 4 || b[i].origin[0] == '\0')
            return fail(e, 0, "block %zu: description \"%s\" (1 to 16 letters) or origin \"%s\" "
                        "(1 to 4)", i, b[i].description, b[i].origin);
        if (b[i].size > TF_MAX_SIZE || (*total += TF_HEADER_SIZE + b[i].size) > TF_MAX_SIZE)
            return fail(e, 0, "a TF of more than %" PRIu64 " bytes", TF_MAX_SIZE);
    }
    return 0;
}

int tf_build(const struct tf_new_block *b, size_t n, uint32_t first_orbit, uint32_t counter,
             uint32_t run, uint64_t written_ms, void **out, size_t *size, struct tf_err *e)
{
    const uint32_t none[3] = { 0 }, ids[3] = { first_orbit, counter, run };
    uint64_t blocks = 0;
    size_t kinds = 0;

    if (n > UINT32_MAX || new_blocks_check(b, n, &blocks, e) < 0)
        return n > UINT32_MAX ? fail(e, 0, "too many blocks for one TF") : -1;
    const struct tf_new_block **x = malloc((n + 1) * sizeof *x);
    if (x == NULL)
        return fail(e, 0, "out of memory");
    for (size_t i = 0; i < n; i++)
        x[i] = &b[i];
    qsort(x, n, sizeof *x, new_block_cmp);
    for (size_t i = 0; i < n; i = group_end(x, n, i))
        kinds++;

    uint64_t index = kinds * TF_ENTRY_SIZE;
    uint64_t total = 2 * TF_HEADER_SIZE + TF_META_SIZE + index + blocks;
    uint8_t *p = malloc(total);
    if (p == NULL) {
        free(x);
        return fail(e, 0, "no memory for a TF of %" PRIu64 " bytes", total);
    }
    put_header(p, META, "FLP", 1, 0, 0, TF_META_SIZE, none);
    put64(p + 96, 1);
    put64(p + 104, total);
    put64(p + 112, written_ms);
    uint8_t *q = p + TF_HEADER_SIZE + TF_META_SIZE;
    put_header(q, INDEX, "***", 1, 0, 0, index, none);
    q += TF_HEADER_SIZE;
    put_blocks(q + index, q, x, n, ids);
    free(x);
    *out = p;
    *size = total;
    return 0;
}
