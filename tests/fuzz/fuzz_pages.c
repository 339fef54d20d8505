/* fuzz_pages.c - any bytes as the pages of a link, or as a whole TF: refused with a reason, or digits that survive encoding and decoding */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"
#include "simulate/encode.h"
#include "tf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth)
{
    if (!truth)
        abort();
}

static struct pipeline *open_pipeline(const char *workflow)
{
    struct k_err e;
    struct pipeline_conf c = { .workflow = workflow, .backends = "cpu", .threads = 1 };
    struct pipeline *p = pipeline_create(&c, &e);
    expect(p != NULL);
    return p;
}

/* What was accepted must come out of a TF made from it again. */
static void again(const struct pipeline_result *r)
{
    static struct pipeline *decode;
    const uint8_t *d = r->out[0].data, *a = d + 192;
    uint32_t head[6], n;
    void *tf;
    size_t size;
    struct k_err e;
    struct pipeline_result r2;

    if (decode == NULL)
        decode = open_pipeline("decode");
    memcpy(head, d + 8, sizeof head);
    n = head[0];
    if (head[2] == 0 || head[2] > 8)
        return;
    struct encode_digits ed = { n, (const void *)a, (const void *)(a + 2 * (size_t)n),
                                a + 4 * (size_t)n, a + 5 * (size_t)n, a + 6 * (size_t)n };
    struct encode_tf et = { .orbits = head[2], .first_orbit = head[3], .counter = head[4],
                            .run = head[5] };
    expect(encode_tf(&ed, &et, &tf, &size, &e) == 0);
    struct pipeline_seg s = { tf, size };
    expect(pipeline_run(decode, &s, 1, &r2, &e) == 0);
    expect(r2.digest == r->out[0].digest);
    free(tf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct pipeline *p;
    struct pipeline_result r;
    struct k_err e = { 0 };
    struct tf_err te;
    void *tf = NULL;
    size_t len = size;

    if (p == NULL)
        p = open_pipeline("cluster");
    if (size >= 4 && memcmp(data, "O2O2", 4) == 0) {
        tf = malloc(size);
        expect(tf != NULL);
        memcpy(tf, data, size);
    } else {
        const struct tf_new_block b = { "RAWDATA", "TPC", 0x0f, data, size };
        expect(tf_build(&b, 1, 128, 7, 3, 99, &tf, &len, &te) == 0);
    }
    struct pipeline_seg s = { tf, len };
    if (pipeline_run(p, &s, 1, &r, &e) == 0)
        again(&r);
    else
        expect(e.code == K_EINPUT && e.text[0] != '\0');
    free(tf);
    return 0;
}
