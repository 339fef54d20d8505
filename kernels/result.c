/* result.c - buffers of results, and their digest */
#define XXH_INLINE_ALL           /* the header alone: a standalone build links nothing */
#include <xxhash.h>

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
