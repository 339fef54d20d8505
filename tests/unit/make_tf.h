/* make_tf.h - small TFs for the tests of the source: random blocks, written to files of a folder that is removed again */
#ifndef MAKE_TF_H
#define MAKE_TF_H

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "tf_file.h"

static uint64_t make_state;

static void make_seed(void)
{
    const char *given = getenv("SLUICE_TEST_SEED");

    make_state = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 2654435761u;
    printf("seed %llu\n", (unsigned long long)make_state);
    make_state |= 1;
}

static uint64_t make_random(uint64_t below)
{
    make_state ^= make_state << 13;
    make_state ^= make_state >> 7;
    make_state ^= make_state << 17;
    return make_state % below;
}

/* One TF of n blocks of up to max bytes each (the same size when exact). Caller frees. */
static inline void *make_tf(size_t n, size_t max, int exact, uint32_t orbit, uint32_t counter, size_t *size)
{
    struct tf_new_block *b = mem_array(n, sizeof *b);
    struct tf_err e;
    void *out;

    for (size_t i = 0; i < n; i++) {
        size_t len = exact ? max : make_random(max + 1);
        uint8_t *p = mem_zalloc(len + 1);
        for (size_t k = 0; k < len; k++)
            p[k] = (uint8_t)make_random(256);
        b[i] = (struct tf_new_block){ .description = "RAWDATA", .origin = "ITS", .subspec = (uint32_t)(i / 2), .payload = p, .size = len };
    }
    if (tf_build(b, n, orbit, counter, 1, 0, &out, size, &e) < 0)
        abort();
    for (size_t i = 0; i < n; i++)
        free((void *)b[i].payload);
    free(b);
    return out;
}

static char make_folder[] = "/tmp/sluice-test-XXXXXX";

static inline void make_begin(void)
{
    if (mkdtemp(make_folder) == NULL)
        abort();
}

static inline void make_end(void)
{
    char command[100];

    snprintf(command, sizeof command, "rm -rf '%s'", make_folder);
    if (system(command) != 0)
        abort();
}

/* The path of a new file; caller frees. */
static inline char *make_file(const char *name, const void *data, size_t size)
{
    char *path = mem_printf("%s/%s", make_folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    return path;
}

#endif
