/* arena.c - the memory of a source
 *
 * From: reel.c (takes a range a TF, gives it back).  To: outlet.c (its descriptor goes to workers).
 * Which bytes are taken is range.c's business; here are the file, its pages and its mapping.
 */
#include "config.h"

#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mem.h"

#define CHUNK (UINT64_C(2) << 20)    /* pages are faulted in by such steps */

struct arena {
    int       fd, read_fd;
    uint64_t  size;
    uint8_t  *base;
    atomic_bool *faulted;            /* one a chunk */
    struct ranges *ranges;
};

static uint64_t round_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static int open_read_only(int fd, struct err *e)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int ro = open(path, O_RDONLY | O_CLOEXEC);
    return ro >= 0 ? ro : err_errno(e, ERR_FAILED, "arena: %s", path);
}

static int arena_map(struct arena *a, struct err *e)
{
    a->fd = memfd_create("sluice-source", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (a->fd < 0)
        return err_errno(e, ERR_FAILED, "arena: memfd_create");
    if (ftruncate(a->fd, (off_t)a->size) < 0)
        return err_errno(e, ERR_FAILED, "arena: %" PRIu64 " bytes", a->size);
    /* A worker that maps it must never find it shorter than it was told. */
    if (fcntl(a->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_errno(e, ERR_FAILED, "arena: sealing");
    void *p = mmap(NULL, a->size, PROT_READ | PROT_WRITE, MAP_SHARED, a->fd, 0);
    if (p == MAP_FAILED)
        return err_errno(e, ERR_FAILED, "arena: mapping %" PRIu64 " bytes", a->size);
    a->base = p;
    madvise(p, a->size, MADV_HUGEPAGE);      /* faults are dear; where the machine does not offer it nothing changes */
    a->read_fd = open_read_only(a->fd, e);
    return a->read_fd < 0 ? -1 : 0;
}

struct arena *arena_create(uint64_t size, struct err *e)
{
    if (size == 0 || size > INT64_MAX / 2)
        return err_null(e, ERR_FAILED, "arena: %" PRIu64 " bytes wanted", size);

    struct arena *a = mem_zalloc(sizeof *a);
    a->fd = a->read_fd = -1;
    a->size = round_up(size, (uint64_t)sysconf(_SC_PAGESIZE));
    if (arena_map(a, e) < 0) {
        arena_destroy(a);
        return NULL;
    }
    a->faulted = mem_array(round_up(a->size, CHUNK) / CHUNK, sizeof *a->faulted);
    a->ranges = ranges_create(a->size);
    return a;
}

void arena_destroy(struct arena *a)
{
    if (a == NULL)
        return;
    if (a->base != NULL)
        munmap(a->base, a->size);
    if (a->fd >= 0)
        close(a->fd);
    if (a->read_fd >= 0)
        close(a->read_fd);
    ranges_destroy(a->ranges);
    free(a->faulted);
    free(a);
}

int arena_fd(const struct arena *a)
{
    return a->read_fd;
}

uint64_t arena_size(const struct arena *a)
{
    return a->size;
}

void *arena_at(const struct arena *a, uint64_t offset)
{
    return a->base + offset;
}

uint64_t arena_offset(const struct arena *a, const void *p)
{
    return (uint64_t)((const uint8_t *)p - a->base);
}

int arena_take(struct arena *a, uint64_t size, struct range *out)
{
    return ranges_take(a->ranges, size, out, NULL);
}

void arena_give(struct arena *a, struct range *taken)
{
    ranges_give(a->ranges, taken);
}

int arena_fault(struct arena *a, const struct range *r, struct err *e)
{
    uint64_t first = r->offset / CHUNK, last = (r->offset + r->size + CHUNK - 1) / CHUNK;

    for (uint64_t i = first; i < last; i++) {
        uint64_t at = i * CHUNK, len = a->size - at < CHUNK ? a->size - at : CHUNK;
        if (atomic_load(&a->faulted[i]))
            continue;
        /* Two threads may do a chunk both: that changes no byte. */
        if (fallocate(a->fd, 0, (off_t)at, (off_t)len) < 0)
            return err_errno(e, ERR_FAILED, "arena: memory for byte %" PRIu64 " of %" PRIu64, at, a->size);
#ifdef MADV_POPULATE_WRITE
        /* An old kernel does not know it (EINVAL): the pages are there, the first touch only maps them. */
        if (madvise(a->base + at, len, MADV_POPULATE_WRITE) < 0 && errno != EINVAL)
            return err_errno(e, ERR_FAILED, "arena: mapping byte %" PRIu64 " of %" PRIu64, at, a->size);
#endif
        atomic_store(&a->faulted[i], true);
    }
    return 0;
}
