/* bench_reel.c - files read ahead by a reel, against bare pread of the same bytes into memory that is there already, in one run
 *
 * What a reel does beyond the bare call: finds the TFs (scan), gives the pages to the arena (the first time), walks every block again in memory, cuts in
 * parts, takes their checksums. Two shapes: few large blocks, many small ones. From the page cache, one reader and two. "rate" is ours / bare with one thread.
 * BENCH_BYTES (256M) is the size of the file.
 */
#include "config.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "reel.h"
#include "str.h"

enum { TFS = 8, PASSES = 4, SOURCES = 8 };

static sem_t told;
static char path[] = "/tmp/bench_reel.XXXXXX";

static void die(const char *what)
{
    perror(what);
    unlink(path);
    exit(1);
}

static void notify(void *arg)
{
    (void)arg;
    sem_post(&told);
}

/* One TF of n blocks of `size` bytes, TFS times into the file. */
static void make_file(size_t n, size_t size)
{
    struct tf_new_block *b = mem_array(n, sizeof *b);
    uint8_t *payload = mem_zalloc(size);
    struct tf_err e;
    void *tf;
    size_t tf_size;
    int fd = open(path, O_WRONLY | O_TRUNC);

    for (size_t i = 0; i < size; i++)
        payload[i] = (uint8_t)(i * 2654435761u >> 24);
    for (size_t i = 0; i < n; i++)
        b[i] = (struct tf_new_block){ .description = "RAWDATA", .origin = "ITS", .subspec = (uint32_t)(i / 4), .payload = payload, .size = size };
    if (fd < 0 || tf_build(b, n, 128, 1, 1, 0, &tf, &tf_size, &e) < 0)
        die("making the file");
    for (int i = 0; i < TFS; i++) {
        for (size_t at = 0; at < tf_size;) {
            ssize_t done = write(fd, (char *)tf + at, tf_size - at);
            if (done <= 0)
                die("writing the file");
            at += (size_t)done;
        }
    }
    close(fd);
    free(tf);
    free(payload);
    free(b);
}

/* Bytes a second of pread into pages that are there, one thread. */
static double bare(size_t tf_size)
{
    uint8_t *to = mmap(NULL, tf_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    int fd = open(path, O_RDONLY);
    double best = 0;

    if (to == MAP_FAILED || fd < 0)
        die("bare");
    for (int pass = 0; pass < PASSES; pass++) {
        int64_t from = clock_mono_ns();
        for (int i = 0; i < TFS; i++) {
            for (size_t at = 0; at < tf_size;) {
                size_t want = tf_size - at < 8 << 20 ? tf_size - at : 8 << 20;
                ssize_t n = pread(fd, to + at, want, (off_t)(i * tf_size + at));
                if (n <= 0)
                    die("pread");
                at += (size_t)n;
            }
        }
        double rate = (double)(TFS * tf_size) * 1e9 / (double)(clock_mono_ns() - from);
        best = rate > best ? rate : best;
    }
    munmap(to, tf_size);
    close(fd);
    return best;
}

/* Bytes a second of the reel: the first pass into memory never touched, the best of the later ones into memory that is there. */
static void ours(unsigned threads, size_t *tf_size, double *scan_tfs, double *first, double *later)
{
    char *paths[] = { path };
    const struct reel_conf conf = { .paths = paths, .n_paths = 1, .threads = threads, .sources = SOURCES, .preread = 3, .loops = PASSES, .notify = notify };
    struct reel *r = reel_create(&conf);
    struct err e;

    int64_t from = clock_mono_ns();
    if (reel_scan(r, &e) < 0)
        die(e.text);
    *scan_tfs = TFS * 1e9 / (double)(clock_mono_ns() - from);
    *tf_size = reel_largest(r);
    /* Room for three TFs only, so that each is read anew in each pass. */
    struct arena *a = arena_create(3 * (reel_largest(r) + 4096), &e);
    if (a == NULL || reel_start(r, a, &e) < 0)
        die(e.text);
    *later = 0;
    for (int pass = 0; pass < PASSES; pass++) {
        from = clock_mono_ns();
        for (int i = 0; i < TFS;) {
            if (reel_fill(r, &e) < 0)
                die(e.text);
            if (reel_head(r) != REEL_READY) {
                sem_wait(&told);
                continue;
            }
            reel_give(r, reel_take(r));
            i++;
        }
        double rate = (double)(TFS * *tf_size) * 1e9 / (double)(clock_mono_ns() - from);
        if (pass == 0)
            *first = rate;
        else
            *later = rate > *later ? rate : *later;
    }
    reel_stop(r, 10 * CLOCK_SECOND);
    reel_destroy(r);
    arena_destroy(a);
}

static void shape(const char *name, size_t n, size_t size)
{
    make_file(n, size);
    for (unsigned threads = 1; threads <= 2; threads++) {
        double scan, first, later, base;
        size_t tf_size;
        ours(threads, &tf_size, &scan, &first, &later);
        base = bare(tf_size);
        printf("%-18s %u reader%s: scan %6.0f TF/s; first pass %5.2f GB/s (rate %.2f), later %5.2f GB/s, %6.1f TF/s (rate %.2f); bare %5.2f GB/s\n", name, threads,
               threads > 1 ? "s" : " ", scan, first * 1e-9, first / base, later * 1e-9, later / (double)tf_size, later / base, base * 1e-9);
    }
}

int main(void)
{
    const char *text = getenv("BENCH_BYTES");
    uint64_t bytes = 256 << 20;
    struct err e;
    int fd;

    if (text != NULL && str_parse_size(text, &bytes, &e) < 0)
        die(e.text);
    if (sem_init(&told, 0, 0) < 0 || (fd = mkstemp(path)) < 0)
        die(path);
    close(fd);
    shape("blocks of 256 KiB", bytes / TFS / (256 << 10), 256 << 10);
    shape("blocks of 1 KiB", bytes / TFS / 1120, 1024);
    unlink(path);
    return 0;
}
