/* fuzz_hostlist.c - any text as a host list: refused with a column, or folded and read again as the same set */
#include "config.h"

#include "hostlist.h"
#include "mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int resolve(void *arg, const char *word, struct hostlist *h, struct err *e)
{
    (void)arg;
    return strlen(word) > 8 ? err_set(e, ERR_USAGE, "no such word") : hostlist_add(h, "resolved-1", e);
}

static void expect(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_zalloc(size + 1), *folded;
    struct err e = { 0 };
    struct hostlist *h, *again;

    if (size > 0)
        memcpy(text, data, size);
    h = hostlist_parse(text, resolve, NULL, &e);
    if (h == NULL) {
        expect(e.code == ERR_USAGE && strstr(e.text, "column") != NULL);
        free(text);
        return 0;
    }
    expect(hostlist_count(h) <= HOSTLIST_MAX_NAMES);
    folded = hostlist_fold(h);
    again = hostlist_parse(folded, NULL, NULL, &e);
    expect(again != NULL && hostlist_count(again) == hostlist_count(h));
    size_t step = 1 + hostlist_count(h) / 256;           /* of a long list some, else it is all that a run does */
    for (size_t i = 0; i < hostlist_count(h); i += step)
        expect(hostlist_has(again, hostlist_name(h, i)));
    hostlist_destroy(again);
    hostlist_destroy(h);
    free(folded);
    free(text);
    return 0;
}
