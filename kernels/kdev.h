/* kdev.h - an open device with its queue, its kernels, and buffers that only grow */
#ifndef KDEV_H
#define KDEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backend/bk.h"
#include "kerr.h"
#include "khost.h"

struct khost_region;
struct khost_ring;

struct kdev {
    const struct bk_ops *ops;
    struct bk_dev *dev;
    struct bk_queue *queue;      /* kernels, and copies that they wait for */
    struct bk_queue *ahead;      /* copies for kernels to come; NULL: the device does one thing at a time */
    struct bk_info info;
    int index;
    uint64_t taken;              /* bytes in buffers */
    uint64_t copied_in, copied_out;              /* bytes to and from the device */
    struct khost_report host;
    struct khost_region *region; /* pinned */
    struct khost_ring *ring;
    bool no_ring;                /* the driver has no memory for one */
    void (*took)(void *arg, const char *kernel, double seconds);   /* NULL: kernels are not timed */
    void *arg;
};

struct kbuf {
    struct bk_mem *mem;
    size_t size;
};

/* Opens device `which` (NULL: the first; else an id or a number) and runs the self-test. */
struct kdev *kdev_open(const char *backend, const char *which, const struct bk_option *o,
                       struct k_err *e);
void kdev_close(struct kdev *d);

/* At least `size` bytes; what was in the buffer is lost when it grows. */
int kdev_reserve(struct kdev *d, struct kbuf *b, size_t size, struct k_err *e);
void kdev_release(struct kdev *d, struct kbuf *b);

struct kwant {
    struct kbuf *buf;
    size_t size;
};
/* All of them; e->need is what the device must give for that, everything it gave already included. */
int kdev_reserve_all(struct kdev *d, const struct kwant *w, unsigned n, struct k_err *e);

int kdev_upload(struct kdev *d, const struct kbuf *b, size_t offset, const void *p, size_t size,
                struct k_err *e);
/* Waits for what was queued, so that the bytes are there on return. */
int kdev_download(struct kdev *d, void *p, const struct kbuf *b, size_t offset, size_t size,
                  struct k_err *e);
int kdev_zero(struct kdev *d, const struct kbuf *b, size_t size, struct k_err *e);
int kdev_wait(struct kdev *d, struct k_err *e);

int kdev_launch(struct kdev *d, const char *kernel, uint32_t groups, unsigned nargs,
                const struct bk_arg *args, struct k_err *e);
#define KBUF(b) { .mem = (b).mem }
#define KVAL(v) { .value = &(v), .size = sizeof(v) }
#define KLAUNCH(d, e, name, groups, ...) \
    kdev_launch(d, name, groups, sizeof((const struct bk_arg[]){ __VA_ARGS__ }) / \
                                     sizeof(struct bk_arg), \
                (const struct bk_arg[]){ __VA_ARGS__ }, e)

/* The word k_selftest must leave on every device, and what this one leaves; see selftest.inc. */
extern const uint64_t kdev_selftest_want;
int kdev_selftest(struct kdev *d, uint64_t *found, struct k_err *e);

#endif
