/* fuzz_tf_file.c - any bytes as a TF file: an end or an error in bounded time, all places inside the file, cuts that join again */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tf_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth)
{
    if (!truth)
        abort();
}

static int count_block(const struct tf_block *b, void *arg)
{
    uint64_t *sum = arg;
    *sum += TF_HEADER_SIZE + b->size;
    return 0;
}

static void one_tf(struct tf_file *f, const struct tf_info *info, size_t size)
{
    struct tf_err e;
    struct tf_seg seg[7];
    uint64_t sum = 0;
    bool complete = false;

    expect(info->size <= size && info->offset <= size - info->size);
    expect(tf_file_blocks(f, info, count_block, &sum, &e) == 0);
    expect(sum == info->size);
    uint8_t *p = malloc(info->size), *at = p;
    expect(p != NULL && tf_file_read(f, info->offset, p, info->size, &e) == 0);
    for (unsigned parts = 1; parts <= 7; parts += 3) {
        expect(tf_split(p, info->size, parts, seg, &e) == 0);
        at = p;
        for (unsigned i = 0; i < parts; i++) {
            expect(seg[i].data == at);
            at += seg[i].size;
        }
        expect(at == p + info->size);
        expect(tf_check(seg, parts, NULL, &complete, &e) == 0 && complete);
    }
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct tf_err e = { 0 };
    struct tf_info info;
    char path[40];
    int fd = memfd_create("fuzz", MFD_CLOEXEC), r;

    expect(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct tf_file *f = tf_file_open(path, &e);
    expect(f != NULL);
    uint64_t next = 0;
    while ((r = tf_file_next(f, &info, &e)) == 1) {
        expect(info.offset == next && info.size > 0);
        next += info.size;
        one_tf(f, &info, size);
    }
    if (r < 0)
        expect(e.text[0] != '\0' && tf_file_next(f, &info, &e) == 0);
    else
        expect(next == size);
    tf_file_close(f);
    close(fd);

    /* the same bytes in memory, as one segment of their own size */
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    struct tf_seg s = { copy, size };
    (void)tf_check(&s, 1, NULL, NULL, &e);
    free(copy);
    return 0;
}
