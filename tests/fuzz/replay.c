/* replay.c - a main for any fuzz target, for every compiler: its corpus, then mutants of it
 *
 * fuzz_NAME [FILE|FOLDER...]: without arguments SLUICE_SRCDIR/tests/fuzz/corpus/NAME. With SLUICE_TEST_SEED the same mutants come again.
 */
#include "config.h"

#include "clock.h"
#include "file.h"
#include "mem.h"
#include "str.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MUTANTS = 50, LARGEST = 1 << 20 };

static uint64_t seed, x;
static unsigned files, runs;

static size_t pick(size_t n)
{
    x = x * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(x >> 33) % n;
}

/* An exact copy, so that a sanitizer sees one byte too many. */
static void run(const char *data, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);

    if (exact == NULL)
        abort();
    memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    runs++;
}

static void run_mutants(char *data, size_t size, unsigned n)
{
    char *work = mem_zalloc(size + 1);

    for (unsigned i = 0; size > 0 && i < n; i++) {
        size_t len = i % 4 == 3 ? pick(size + 1) : size;

        memcpy(work, data, size);
        for (size_t k = 0; k < 1 + pick(4); k++)
            work[pick(size)] = pick(3) ? (char)pick(256) : "\0\x01\x7f\x80\xff[,-"[pick(8)];
        run(work, len);
    }
    free(work);
}

static void replay_file(const char *path, unsigned mutants)
{
    struct err e;
    size_t size;
    char *data = file_read(path, LARGEST, &size, &e);

    if (data == NULL) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    files++;
    run(data, size);
    run_mutants(data, size, mutants);
    free(data);
}

static void replay(const char *path, unsigned mutants)
{
    struct stat st;
    struct dirent **list;
    int n;

    if (stat(path, &st) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        replay_file(path, mutants);
        return;
    }
    n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char *inside = mem_printf("%s/%s", path, list[i]->d_name);

        if (list[i]->d_name[0] != '.')
            replay_file(inside, mutants);
        free(inside);
        free(list[i]);
    }
    free(list);
}

int main(int argc, char **argv)
{
    const char *given = getenv("SLUICE_TEST_SEED"), *scale = getenv("SLUICE_TEST_SCALE"), *src = getenv("SLUICE_SRCDIR");
    const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    unsigned mutants = (unsigned)(MUTANTS * (scale ? atof(scale) : 1));

    while (strncmp(name, "lt-", 3) == 0)
        name += 3;
    seed = x = given ? strtoull(given, NULL, 0) : (uint64_t)clock_wall_ns();
    printf("%s: seed %llu\n", name, (unsigned long long)seed);
    fflush(stdout);
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            replay(argv[i], 0);
    } else {
        char *path = mem_printf("%s/tests/fuzz/corpus/%s", src ? src : ".", strncmp(name, "fuzz_", 5) == 0 ? name + 5 : name);

        replay(path, mutants);
        free(path);
    }
    printf("%s: %u files, %u inputs\n", name, files, runs);
    return files > 0 ? 0 : 1;
}
