/* reel.h - the time-frames (TFs) of a list of files, read into memory ahead of their use, by threads of its own
 *
 * The TFs of all files in order are one pass; `loops` passes are played. A position counts TFs over all passes from 0. What fits the arena
 * stays there between passes and is read once. One thread owns a reel; its readers only fill memory and call `notify`.
 */
#ifndef SLUICE_REEL_H
#define SLUICE_REEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "arena.h"
#include "err.h"
#include "tf_file.h"

struct reel;

struct reel_conf {
    char *const *paths; size_t n_paths;          /* must outlive the reel */
    unsigned threads;                            /* that scan and read */
    unsigned sources;                            /* parts a TF is cut in */
    unsigned preread;                            /* TFs read and not taken yet, at most */
    uint64_t loops;
    bool     verify;                             /* page headers too */
    void   (*notify)(void *arg);                 /* from a reader: something was read; NULL is fine */
    void    *arg;
};

/* A file that could not be played, or not to its end. */
struct reel_bad {
    const char *path;
    uint64_t    offset;                          /* in the file, where the damage is */
    char       *text;
    uint64_t    tfs;                             /* sound ones before it, which are played */
    enum err_code code;                          /* there is no such file, it may not be read, or ERR_FAILED */
};

/* A TF in memory. parts[i] is the i-th source's share, xxh3[i] its checksum. */
struct reel_tf {
    uint64_t size;
    uint32_t first_orbit;
    unsigned n;
    struct tf_seg *parts;
    uint64_t *xxh3;
};

struct reel *reel_create(const struct reel_conf *conf);
/* Finds the TFs of all files by their headers. Blocks. Bad files are kept aside, see reel_bad. -1: a reason that is in no file. */
int    reel_scan(struct reel *r, struct err *e);
size_t reel_tfs(const struct reel *r);           /* of one pass */
uint64_t reel_largest(const struct reel *r);     /* bytes */
size_t reel_bad_count(const struct reel *r);
const struct reel_bad *reel_bad(const struct reel *r, size_t i);
uint64_t reel_bad_bytes(const struct reel *r);

/* How much memory serves best: everything when it is played again, else `ahead` TFs of the largest size; at most limit. -1 (ERR_STATE):
 * limit does not hold the largest TF; e says what is needed. */
int    reel_arena_size(const struct reel *r, uint64_t ahead, uint64_t limit, uint64_t *size, struct err *e);
/* Starts the readers. The arena is borrowed. */
int    reel_start(struct reel *r, struct arena *a, struct err *e);
/* Takes up what the readers finished, hands them what comes next. -1: reading cannot go on for a reason that is in no file. */
int    reel_fill(struct reel *r, struct err *e);

enum reel_head {
    REEL_READY,                                  /* the next TF is in memory */
    REEL_READING,
    REEL_NO_ROOM,                                /* the next TF waits for memory that taken ones occupy */
    REEL_END,
};
enum reel_head reel_head(const struct reel *r);
bool   reel_full(const struct reel *r);          /* as far ahead as it can be */
/* The next TF (REEL_READY), borrowed until reel_give. */
const struct reel_tf *reel_take(struct reel *r);
void   reel_give(struct reel *r, const struct reel_tf *tf);

uint64_t reel_read_bytes(const struct reel *r);  /* from files, without the scan */
/* Ends the readers. -1: one still hangs in a read after limit_ns; the reel must not be destroyed then. */
int    reel_stop(struct reel *r, int64_t limit_ns);
void   reel_destroy(struct reel *r);             /* after reel_stop; NULL is fine */

#endif
