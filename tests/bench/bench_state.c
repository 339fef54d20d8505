/* bench_state.c - what a commit costs against a bare write and fsync on the same disk, and how many changes go into one */
#include "config.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "db.h"
#include "rows.h"

static const double SECONDS = 1.5;              /* a measurement */

static void die(const struct err *e)
{
    fprintf(stderr, "bench_state: %s\n", e->text);
    exit(1);
}

static double since(int64_t start)
{
    return (double)(clock_mono_ns() - start) / 1e9;
}

/* The floor: one page appended and made durable. */
static double bare_us(const char *dir)
{
    char path[300], page[4096] = "";
    snprintf(path, sizeof path, "%s/bare", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    unsigned n = 0;
    int64_t start = clock_mono_ns();
    for (; since(start) < SECONDS; n++) {
        if (fd < 0 || write(fd, page, sizeof page) != (ssize_t)sizeof page || fdatasync(fd) < 0) {
            perror("bench_state");
            exit(1);
        }
    }
    double us = since(start) * 1e6 / n;
    close(fd);
    unlink(path);
    return us;
}

/* The end of a time-frame: its row and its run's totals, as sluiced writes them. */
static void put_end(struct db *db, uint64_t tf)
{
    struct err e;
    struct row_run run = { .id = 1, .name = "bench", .state = "running", .done = tf, .started = 1 };
    struct row_run_tf end = { .run = 1, .tf = tf, .outcome = "done", .node = "mi50-001", .device = "emu-mi50-001-0", .digest = "0123456789abcdef",
                              .stem = "1/tf-1", .epoch = 1, .attempt = 1, .published = 1, .seconds = 0.3, .bytes = 1800000000, .time = clock_wall_ns() };
    if (db_save(db, &e) < 0 || rows_put_run_tf(db, &end, &e) < 0 || rows_put_run(db, &run, &e) < 0 || db_release(db, true, &e) < 0)
        die(&e);
}

/* Microseconds a commit with `batch` changes in it. */
static double commit_us(struct db *db, uint64_t *tf, unsigned batch)
{
    struct err e;
    unsigned n = 0;
    int64_t start = clock_mono_ns();
    for (; since(start) < SECONDS; n++) {
        if (db_begin(db, &e) < 0)
            die(&e);
        for (unsigned i = 0; i < batch; i++)
            put_end(db, ++*tf);
        if (db_commit(db, &e) < 0)
            die(&e);
    }
    return since(start) * 1e6 / n;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

int main(void)
{
    static const unsigned batches[] = { 1, 10, 100, 1000 };
    const char *tmp = getenv("TMPDIR");
    char dir[256];
    snprintf(dir, sizeof dir, "%s/sluice-bench-XXXXXX", tmp ? tmp : "/tmp");
    struct err e;
    struct db *db = mkdtemp(dir) ? db_open(dir, NULL, &e) : NULL;
    if (db == NULL)
        die(&e);
    double bare = bare_us(dir);
    uint64_t tf = 0;
    printf("one page and fdatasync: %.0f us\n%8s %12s %12s %14s %10s\n", bare, "changes", "us a commit", "of the bare", "changes/s", "of 351/s");
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        double us = commit_us(db, &tf, batches[i]), rate = batches[i] * 1e6 / us;
        printf("%8u %12.0f %12.1f %14.0f %10.1f\n", batches[i], us, us / bare, rate, rate / 351);
    }
    db_close(db);
    int64_t start = clock_mono_ns();
    db = db_open(dir, NULL, &e);
    if (db == NULL)
        die(&e);
    printf("start with %llu records: %.3f s\n", (unsigned long long)tf, since(start));
    db_close(db);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
