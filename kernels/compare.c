/* compare.c - two results held against each other
 *
 * From: files that `sluice reco` or the reference wrote.  To: cmd_compare.c, tests.
 * Both are sorted, so one walk over both finds what only one of them has.
 */
#include "compare.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "result.h"

/* A digit or cluster: where it is, and what is there. */
struct item {
    uint64_t place;
    uint64_t value;
};

struct side {
    const uint8_t *p;
    uint64_t n;
    bool clusters;
};

static uint32_t get16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t get32(const uint8_t *p)
{
    return get16(p) | get16(p + 2) << 16;
}

static int side_open(const char *name, const uint8_t *p, size_t size, struct side *s,
                     struct k_err *e)
{
    size_t head, each;

    if (size >= 8 && memcmp(p, "TPCDIG1", 8) == 0) {
        head = DIGITS_HEADER;
        each = DIGIT_SIZE;
    } else if (size >= 8 && memcmp(p, "TPCCLU1", 8) == 0) {
        head = CLUSTERS_HEADER;
        each = CLUSTER_SIZE;
    } else {
        return k_fail(e, K_EINPUT, "%s is no result: it starts neither with TPCDIG1 nor with "
                      "TPCCLU1", name);
    }
    if (size < head)
        return k_fail(e, K_EINPUT, "%s is cut short: %zu bytes, its header has %zu", name, size,
                      head);
    *s = (struct side){ .p = p, .n = get32(p + 8), .clusters = head == CLUSTERS_HEADER };
    if (size != head + each * s->n)
        return k_fail(e, K_EINPUT, "%s has %zu bytes, %" PRIu64 " %s make %" PRIu64, name, size,
                      s->n, s->clusters ? "clusters" : "digits", (uint64_t)(head + each * s->n));
    return 0;
}

static struct item item_at(const struct side *s, uint64_t i)
{
    if (s->clusters) {
        const uint8_t *r = s->p + CLUSTERS_HEADER + CLUSTER_SIZE * i;
        uint64_t t = get32(r) & 0xffffff;
        return (struct item){
            (uint64_t)(r[12] * 152u + r[13]) << 40 | t << 16 | get16(r + 4),
            (uint64_t)r[6] << 56 | (uint64_t)r[7] << 48 | (uint64_t)get16(r + 8) << 32 |
                get16(r + 10) << 8 | r[3],
        };
    }
    const uint8_t *d = s->p + DIGITS_HEADER;
    return (struct item){
        (uint64_t)d[4 * s->n + i] << 32 | (uint64_t)d[5 * s->n + i] << 24 |
            (uint64_t)d[6 * s->n + i] << 16 | get16(d + 2 * i),
        get16(d + 2 * s->n + 2 * i),
    };
}

static void words(const struct side *s, uint64_t i, char *out, size_t room)
{
    struct item x = item_at(s, i);

    if (s->clusters) {
        unsigned row = (unsigned)(x.place >> 40);
        snprintf(out, room, "sector %u, row %u, time %.6f, pad %.6f, sigma %.5f %.5f, qmax %u, "
                 "qtot %u, flags %u", row / 152, row % 152, (double)(x.place >> 16 & 0xffffff) / 64,
                 (double)(x.place & 0xffff) / 64, (double)(x.value >> 56) / 32,
                 (double)(x.value >> 48 & 0xff) / 32, (unsigned)(x.value >> 32 & 0xffff),
                 (unsigned)(x.value >> 8 & 0xffff), (unsigned)(x.value & 0xff));
        return;
    }
    snprintf(out, room, "sector %u, row %u, pad %u, bin %u, charge %.2f",
             (unsigned)(x.place >> 32), (unsigned)(x.place >> 24 & 0xff),
             (unsigned)(x.place >> 16 & 0xff), (unsigned)(x.place & 0xffff),
             (double)x.value / 4);
}

/* The first difference: a's i-th, b's k-th; a number past the end has nothing to show. */
static void note(struct compare *c, const struct side *a, uint64_t i, const struct side *b,
                 uint64_t k)
{
    char x[140] = "nothing", y[140] = "nothing";

    if (c->first[0])
        return;
    c->index = i;
    if (i < a->n)
        words(a, i, x, sizeof x);
    if (k < b->n)
        words(b, k, y, sizeof y);
    snprintf(c->first, sizeof c->first, "REF %s; OWN %s", x, y);
}

int compare_results(const void *ref, size_t ref_size, const void *own, size_t own_size,
                    struct compare *c, struct k_err *e)
{
    struct side a, b;
    uint64_t i = 0, k = 0;

    if (side_open("REF", ref, ref_size, &a, e) < 0 || side_open("OWN", own, own_size, &b, e) < 0)
        return -1;
    if (a.clusters != b.clusters)
        return k_fail(e, K_EINPUT, "REF holds %s, OWN %s", a.clusters ? "clusters" : "digits",
                      b.clusters ? "clusters" : "digits");
    *c = (struct compare){ .what = a.clusters ? "clusters" : "digits", .ref = a.n, .own = b.n };
    while (i < a.n || k < b.n) {
        struct item x = { UINT64_MAX, 0 }, y = x;
        if (i < a.n)
            x = item_at(&a, i);
        if (k < b.n)
            y = item_at(&b, k);
        if (x.place == y.place && x.value == y.value) {
            c->same++, i++, k++;
            continue;
        }
        note(c, &a, i, &b, k);
        if (x.place == y.place)
            c->changed++, i++, k++;
        else if (x.place < y.place)
            c->only_ref++, i++;
        else
            c->only_own++, k++;
    }
    c->equal = ref_size == own_size && memcmp(ref, own, ref_size) == 0;
    if (!c->equal && c->first[0] == '\0') {
        size_t at = 0;
        while (((const uint8_t *)ref)[at] == ((const uint8_t *)own)[at])
            at++;
        snprintf(c->first, sizeof c->first, "all %s agree, but byte %zu of the file is %u in REF "
                 "and %u in OWN", c->what, at, ((const uint8_t *)ref)[at],
                 ((const uint8_t *)own)[at]);
    }
    return 0;
}
