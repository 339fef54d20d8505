/* state_test.h - what the tests of the state share: folders of their own, scale, seed, small changes */
#ifndef SLUICE_STATE_TEST_H
#define SLUICE_STATE_TEST_H

#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "db.h"
#include "rows.h"

/* n at full length is reached with SLUICE_TEST_SCALE = 10 or where it says so. */
static inline unsigned scaled(unsigned n)
{
    const char *s = getenv("SLUICE_TEST_SCALE");
    double v = n * (s ? strtod(s, NULL) : 1);
    return v < 1 ? 1 : (unsigned)v;
}

static inline bool is_soak(void)
{
    return getenv("SLUICE_SOAK") != NULL;
}

static inline unsigned seed_of_test(void)
{
    const char *s = getenv("SLUICE_TEST_SEED");
    unsigned seed = s ? (unsigned)strtoul(s, NULL, 10) : (unsigned)clock_wall_ns();
    print_message("seed %u (SLUICE_TEST_SEED repeats it)\n", seed);
    return seed;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *f)
{
    (void)st;
    (void)type;
    (void)f;
    return remove(path);
}

static inline void remove_tree(const char *dir)
{
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline int make_folder(void **state)
{
    const char *tmp = getenv("TMPDIR");
    char *dir = NULL;
    if (asprintf(&dir, "%s/sluice-state-XXXXXX", tmp ? tmp : "/tmp") < 0 || mkdtemp(dir) == NULL)
        return -1;
    *state = dir;
    return 0;
}

static inline int drop_folder(void **state)
{
    remove_tree(*state);
    free(*state);
    return 0;
}

static inline const char *in(const char *dir, const char *name)
{
    static char path[64][512];
    static int at;
    char whole[512];                        /* dir may be one of ours */
    snprintf(whole, sizeof whole, "%s/%s", dir, name);
    at = (at + 1) % 64;
    return memcpy(path[at], whole, sizeof whole);
}

static inline struct db *open_good(const char *dir)
{
    struct err e = { 0 };
    struct db *db = db_open(dir, NULL, &e);
    if (db == NULL)
        fail_msg("%s", e.text);
    return db;
}

#define good(call) do { struct err why_ = { 0 }; struct err *why = &why_; if ((call) < 0) fail_msg("%s: %s", #call, why_.text); } while (0)      /* the call names `why` as its struct err */

static inline struct row_mark mark_of(uint64_t id, const char *node, const char *reason)
{
    return (struct row_mark){ .id = id, .node = node, .owner_kind = "user", .owner = "shift", .class = "hw", .severity = "block",
                              .reason = reason, .created = (int64_t)id };
}

/* A mark with its history line, in the caller's transaction. */
static inline int put_mark_with_line(struct db *db, uint64_t id, const char *node, const char *reason, uint64_t *seq, struct err *e)
{
    struct row_mark m = mark_of(id, node, reason);
    struct row_event ev = { .time = (int64_t)id, .node = node, .who = "shift", .what = "mark", .reason = reason };
    if (rows_put_mark(db, &m, e) < 0 || rows_put_event(db, &ev, e) < 0)
        return -1;
    if (seq)
        *seq = ev.seq;
    return 0;
}

static inline char *whole_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    struct stat st;
    assert_int_equal(fstat(fileno(f), &st), 0);
    char *p = malloc((size_t)st.st_size + 1);
    *size = fread(p, 1, (size_t)st.st_size, f);
    fclose(f);
    return p;
}

static inline void write_file(const char *path, const void *p, size_t size)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, size, f), size);
    fclose(f);
}

static int count_mark(void *arg, const struct row_mark *m)
{
    (void)m;
    ++*(uint64_t *)arg;
    return 0;
}

static inline uint64_t marks_in(struct db *db, bool open_only)
{
    uint64_t n = 0;
    good(rows_load_marks(db, open_only, count_mark, &n, why));
    return n;
}

#endif
