/* fuzz_config.c - any text as a configuration: refused with its line, or shown and read again as the same */
#include "config.h"

#include "conf.h"
#include "mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth)
{
    if (!truth)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_zalloc(size + 1), *shown, *again_shown;
    struct err e = { 0 };
    struct conf *c, *again;

    if (size > 0)
        memcpy(text, data, size);
    c = conf_parse(text, "input", &e);
    free(text);
    if (c == NULL) {
        expect(e.code == ERR_USAGE && strncmp(e.text, "input", 5) == 0);
        return 0;
    }
    shown = conf_show(c);
    again = conf_parse(shown, "shown", &e);
    expect(again != NULL);
    again_shown = conf_show(again);
    expect(strcmp(shown, again_shown) == 0);
    free(shown);
    free(again_shown);
    conf_destroy(again);
    conf_destroy(c);
    return 0;
}
