/* pull.h - takes parts of TFs from their sources into memory, checksum and all
 *
 * One connection a source and run, kept open; several pulls under way on it, answered in order (doc/protocol.md section 5). On one host the
 * source passes a descriptor and a thread reads; else the bytes come over the connection, straight to their place.
 */
#ifndef SLUICE_PULL_H
#define SLUICE_PULL_H

#include <stdatomic.h>
#include <sys/queue.h>
#include "fence.h"
#include "pool.h"
#include "work.h"

struct worker;
struct pulls;
struct source;

struct pull {                                    /* of one part; lives in the caller's memory until `left` was called */
    struct work *work;
    const char  *address;                        /* of the source */
    struct tf_name tf; struct fence fence;
    uint32_t  part;
    uint64_t  size;                              /* as announced: the source's answer must be of this size */
    uint8_t  *to;
    /* Once. word NULL: the bytes are there and their checksum holds. */
    void    (*done)(struct pull *p, const char *word, const char *text);
    /* Once, last of all: neither p nor the memory is touched any more. May come from within pull_start and pull_cancel. */
    void    (*left)(struct pull *p);
    void     *owner;                              /* the caller's */

    /* of pull.c */
    TAILQ_ENTRY(pull) entry;
    struct source *source;
    enum { PULL_IDLE, PULL_WAITING, PULL_SENT, PULL_MOVING, PULL_READING, PULL_FAILING } state;
    struct pool_task task;
    int       fd;
    struct extent { uint64_t offset, size; } *extent; unsigned n_extents;
    uint64_t  wanted_hash;
    uint64_t  hash;                              /* the thread's */
    char      why[200];                          /* the thread's */
    atomic_uint_fast64_t got;                    /* bytes, for the deadline */
    uint64_t  got_seen; int64_t moved_at;
    atomic_bool abandoned;                       /* done was called, or will not be */
};

struct pulls *pulls_create(struct worker *w, unsigned max_connections, unsigned max_descriptors);
void pulls_destroy(struct pulls *s);             /* every pull ends with the word Cancelled first */
void pull_start(struct pulls *s, struct pull *p);
/* done will not be called any more; left will. */
void pull_cancel(struct pulls *s, struct pull *p);
/* The run is closed: its idle connections go. */
void pulls_close(struct pulls *s, struct work *work);
/* Judges deadlines; every 100 ms. */
void pulls_tick(struct pulls *s);

/* The thread's part, alone for tests: reads the extents of fd to `to` and takes the checksum. 0 or -1 with why. */
int  pull_read_extents(int fd, const struct extent *x, unsigned n, uint8_t *to, atomic_uint_fast64_t *got, atomic_bool *abandoned,
                       uint64_t *hash, char *why, size_t why_size);

#endif
