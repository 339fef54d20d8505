/* kdev.c - an open device with its queue, its kernels, and buffers that only grow
 *
 * From: pipeline.c, the stages.  To: a backend.
 * A device that fails the arithmetic self-test is never handed out.
 */
#include "kdev.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/bk_load.h"

enum { SELFTEST_ITEMS = 4096 };

const uint64_t kdev_selftest_want = UINT64_C(0x1e064d33ff87a23a);

static int pick(const struct bk_ops *ops, const char *which, int *index, struct k_err *e)
{
    int n = ops->count();
    struct bk_info info;
    char why[200] = "no device on this machine";

    if (n <= 0) {
        ops->describe(0, &info, why, sizeof why);
        return k_fail(e, K_EDEVICE, "backend %s: %s", ops->name, why);
    }
    if (which == NULL || *which == '\0') {
        *index = 0;
        return 0;
    }
    for (int i = 0; i < n; i++) {
        if (ops->describe(i, &info, why, sizeof why) == 0 && strcmp(info.id, which) == 0) {
            *index = i;
            return 0;
        }
    }
    return k_fail(e, K_EDEVICE, "backend %s: no device %s (sluice devices lists them)", ops->name,
                  which);
}

int kdev_selftest(struct kdev *d, uint64_t *found, struct k_err *e)
{
    static uint32_t out[SELFTEST_ITEMS];
    struct kbuf b = { 0 };
    uint32_t n = SELFTEST_ITEMS, salt = 1;
    float one = 1.0f;
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    int r = -1;

    if (kdev_reserve(d, &b, sizeof out, e) == 0 &&
        KLAUNCH(d, e, "k_selftest", n / 64, KBUF(b), KVAL(n), KVAL(salt), KVAL(one)) == 0 &&
        kdev_download(d, out, &b, 0, sizeof out, e) == 0)
        r = 0;
    kdev_release(d, &b);
    if (r < 0)
        return -1;
    for (unsigned i = 0; i < SELFTEST_ITEMS; i++)
        sum = (sum ^ out[i]) * UINT64_C(0x100000001b3);
    *found = sum;
    return 0;
}

struct kdev *kdev_open(const char *backend, const char *which, const struct bk_option *o,
                       struct k_err *e)
{
    char why[300];
    const struct bk_ops *ops = bk_load(backend, why, sizeof why);
    uint64_t found;

    if (ops == NULL) {
        k_fail(e, K_EDEVICE, "%s", why);
        return NULL;
    }
    struct kdev *d = calloc(1, sizeof *d);
    if (d == NULL) {
        k_fail(e, K_ENOMEM, "out of memory");
        return NULL;
    }
    d->ops = ops;
    if (pick(ops, which, &d->index, e) < 0)
        goto fail;
    if (ops->describe(d->index, &d->info, why, sizeof why) < 0 ||
        ops->open(d->index, o, &d->dev, why, sizeof why) < 0) {
        k_fail(e, K_EDEVICE, "backend %s: %s", backend, why);
        goto fail;
    }
    d->queue = ops->queue_new(d->dev);
    if (d->queue && ops->async)
        d->ahead = ops->queue_new(d->dev);
    if (d->queue == NULL || (ops->async && d->ahead == NULL)) {
        k_fail(e, K_EDEVICE, "device %s: %s", d->info.id, ops->errstr(d->dev));
        goto fail;
    }
    if (kdev_selftest(d, &found, e) < 0)
        goto fail;
    if (found != kdev_selftest_want) {
        k_fail(e, K_EDEVICE, "device %s fails the arithmetic self-test (%016" PRIx64
               ", want %016" PRIx64 "): its results would differ", d->info.id, found,
               kdev_selftest_want);
        goto fail;
    }
    return d;
fail:
    kdev_close(d);
    return NULL;
}

void kdev_close(struct kdev *d)
{
    if (d == NULL)
        return;
    if (d->ahead)
        d->ops->queue_free(d->ahead);
    if (d->queue)
        d->ops->queue_free(d->queue);
    khost_release(d);
    if (d->dev)
        d->ops->close(d->dev);
    free(d);
}

static int device_fail(struct kdev *d, struct k_err *e)
{
    return k_fail(e, K_EDEVICE, "device %s: %s", d->info.id, d->ops->errstr(d->dev));
}

int kdev_reserve(struct kdev *d, struct kbuf *b, size_t size, struct k_err *e)
{
    if (size <= b->size)
        return 0;
    /* A quarter more, so that TFs of about one size do not make it grow again and again. */
    size_t more = b->size ? size + size / 4 : size;
    kdev_release(d, b);
    b->mem = d->ops->alloc(d->dev, more);
    if (b->mem == NULL && more > size)
        b->mem = d->ops->alloc(d->dev, more = size);
    if (b->mem == NULL) {
        k_fail(e, K_ENOMEM, "device %s: %s", d->info.id, d->ops->errstr(d->dev));
        if (e)
            e->need = d->taken + size;
        return -1;
    }
    b->size = more;
    d->taken += more;
    return 0;
}

int kdev_reserve_all(struct kdev *d, const struct kwant *w, unsigned n, struct k_err *e)
{
    uint64_t need = d->taken;

    for (unsigned i = 0; i < n; i++)
        need += w[i].size > w[i].buf->size ? w[i].size - w[i].buf->size : 0;
    for (unsigned i = 0; i < n; i++) {
        struct k_err why;
        if (kdev_reserve(d, w[i].buf, w[i].size, &why) == 0)
            continue;
        k_fail(e, why.code, "%.300s; %" PRIu64 " bytes are needed in all", why.text, need);
        if (e)
            e->need = need;
        return -1;
    }
    return 0;
}

void kdev_release(struct kdev *d, struct kbuf *b)
{
    if (b->mem)
        d->ops->free(d->dev, b->mem);
    d->taken -= b->size;
    *b = (struct kbuf){ 0 };
}

int kdev_upload(struct kdev *d, const struct kbuf *b, size_t offset, const void *p, size_t size,
                struct k_err *e)
{
    d->copied_in += size;
    if (size > 0 && d->ops->h2d(d->queue, b->mem, offset, p, size) < 0)
        return device_fail(d, e);
    return 0;
}

int kdev_download(struct kdev *d, void *p, const struct kbuf *b, size_t offset, size_t size,
                  struct k_err *e)
{
    d->copied_out += size;
    if (size > 0 && d->ops->d2h(d->queue, p, b->mem, offset, size) < 0)
        return device_fail(d, e);
    return kdev_wait(d, e);
}

int kdev_zero(struct kdev *d, const struct kbuf *b, size_t size, struct k_err *e)
{
    if (size > 0 && d->ops->fill0(d->queue, b->mem, 0, size) < 0)
        return device_fail(d, e);
    return 0;
}

int kdev_wait(struct kdev *d, struct k_err *e)
{
    return d->ops->wait(d->queue) < 0 ? device_fail(d, e) : 0;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int kdev_launch(struct kdev *d, const char *kernel, uint32_t groups, unsigned nargs,
                const struct bk_arg *args, struct k_err *e)
{
    struct bk_kern *k;
    double start = 0;

    if (groups == 0)
        return 0;
    if (d->took && kdev_wait(d, e) < 0)
        return -1;
    if (d->took)
        start = now();
    k = d->ops->kern(d->dev, kernel);
    if (k == NULL || d->ops->launch(d->queue, k, groups, nargs, args) < 0)
        return device_fail(d, e);
    if (d->took && kdev_wait(d, e) < 0)
        return -1;
    if (d->took)
        d->took(d->arg, kernel, now() - start);
    return 0;
}
