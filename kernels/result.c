/* result.c - buffers of results, and their digest */
#ifndef K_NO_XXHASH              /* only kernels/Makefile says it, where there is no such header */
#define XXH_INLINE_ALL           /* the header alone: a standalone build links nothing */
#include <xxhash.h>
#endif

#include "result.h"

#include <inttypes.h>
#include <stdlib.h>

int result_reserve(struct result_buf *r, size_t size, struct k_err *e)
{
    if (size <= r->room)
        return 0;
    uint8_t *p = realloc(r->data, size);
    if (p == NULL) {
        k_fail(e, K_ENOMEM, "no memory for a result of %zu bytes", size);
        if (e)
            e->need = size;
        return -1;
    }
    r->data = p;
    r->room = size;
    return 0;
}

void result_free(struct result_buf *r)
{
    free(r->data);
    *r = (struct result_buf){ 0 };
}

#ifndef K_NO_XXHASH

const char *const result_digest_kind = "XXH3-64";

uint64_t result_digest(const void *data, size_t size)
{
    return XXH3_64bits(data, size);
}

struct result_hash *result_hash_new(void)
{
    XXH3_state_t *s = XXH3_createState();
    if (s)
        XXH3_64bits_reset(s);
    return (struct result_hash *)s;
}

void result_hash_add(struct result_hash *h, const void *data, size_t size)
{
    XXH3_64bits_update((XXH3_state_t *)h, data, size);
}

uint64_t result_hash_end(struct result_hash *h)
{
    uint64_t d = XXH3_64bits_digest((XXH3_state_t *)h);
    XXH3_freeState((XXH3_state_t *)h);
    return d;
}

#else

/* Equal results still have equal digests; those of other programs they do not match. */
const char *const result_digest_kind = "FNV-1a-64, for want of xxhash.h: no digest of another program is like it";

struct result_hash { uint64_t h; };

static uint64_t fnv(uint64_t h, const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h;
}
#define FNV_BEGIN UINT64_C(0xcbf29ce484222325)

uint64_t result_digest(const void *data, size_t size)
{
    return fnv(FNV_BEGIN, data, size);
}

struct result_hash *result_hash_new(void)
{
    struct result_hash *h = malloc(sizeof *h);
    if (h)
        h->h = FNV_BEGIN;
    return h;
}

void result_hash_add(struct result_hash *h, const void *data, size_t size)
{
    h->h = fnv(h->h, data, size);
}

uint64_t result_hash_end(struct result_hash *h)
{
    uint64_t d = h->h;
    free(h);
    return d;
}

#endif
