/* bk_emu.c - backend emu: a device made to show what depends on order
 *
 * The kernels are compiled as for a GPU (K_EMU: group memory is static, items are shared out over
 * threads, a barrier ends each phase). Groups run one at a time in a shuffled order, the items of a
 * phase in a shuffled order on SLUICE_EMU_THREADS threads (2); SLUICE_EMU_SEED (1) says which, 0 is the
 * natural order. Under ThreadSanitizer a missing barrier or atomic is a report.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define K_EMU 1
#define K_SYM(name) name##_emu
#include "all.k"

#include "bk_emu.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*kernel_fn)(const struct k_ctx *cx, void **args);

struct bk_mem {
    void *p;
    size_t size;
};

struct bk_kern {
    const char *name;
    unsigned items, nargs;
    kernel_fn fn;
};

static struct bk_kern kernels[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, items, nargs, K_SYM(name) },
#include "klist.def"
#undef KERNEL
};

struct bk_queue {
    struct bk_dev *dev;
};

struct bk_dev {
    char err[200];
    unsigned threads;
    u64 seed;
    pthread_t thread[64];
    pthread_barrier_t start, phase, end;
    /* the kernel being run; written between `end` and `start` */
    kernel_fn fn;
    void **args;
    u32 groups;
    bool stop;
};

struct member {
    struct bk_dev *dev;
    u32 number;
};

/* j -> a*j + b mod n is one to one when a and n have no common factor: n is 2^i * 3^k here. */
static u32 shuffle(u64 seed, u32 j, u32 n)
{
    if (seed == 0)
        return j;
    u64 h = seed * 0x9e3779b97f4a7c15ull;
    u64 a = (h >> 33) * 6 + ((h & 64) ? 1 : 5), b = h >> 17;
    return (u32)((a % n * j + b % n) % n);
}

u32 k_emu_item(const struct k_ctx *cx, u32 j, u32 n)
{
    return shuffle(cx->seed, j, n);
}

void k_emu_barrier(const struct k_ctx *cx)
{
    pthread_barrier_wait(cx->barrier);
}

static u32 common_factor(u32 a, u32 b)
{
    while (b) {
        u32 r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Groups are walked in steps that visit each once. */
static u32 group_step(u64 seed, u32 groups)
{
    u32 step = seed ? (u32)(seed * 2654435761u % 997u) * 2u + 1u : 1u;

    while (common_factor(groups, step) != 1)
        step += 2;
    return step;
}

static void run(struct bk_dev *d, u32 number)
{
    u32 step = group_step(d->seed, d->groups);

    for (u32 g = 0; g < d->groups; g++) {
        struct k_ctx cx = {
            .group = (u32)((u64)g * step % d->groups), .ngroups = d->groups, .thread = number,
            .nthreads = d->threads, .barrier = &d->phase,
        };
        cx.seed = d->seed ? d->seed + cx.group : 0;
        d->fn(&cx, d->args);
        /* group memory is one for all groups */
        pthread_barrier_wait(&d->phase);
    }
}

static void *thread_main(void *arg)
{
    struct member m = *(struct member *)arg;

    free(arg);
    for (;;) {
        pthread_barrier_wait(&m.dev->start);
        if (m.dev->stop)
            return NULL;
        run(m.dev, m.number);
        pthread_barrier_wait(&m.dev->end);
    }
}

static int emu_count(void)
{
    return 1;
}

static int emu_describe(int i, struct bk_info *info, char *why, size_t room)
{
    (void)i, (void)why, (void)room;
    *info = (struct bk_info){ .name = "emulated device", .id = "emu-0", .class = "emu",
                              .driver = "none", .numa = -1 };
    return 0;
}

static unsigned from_env(const char *name, unsigned initial, unsigned max)
{
    const char *t = getenv(name);
    unsigned long v = t ? strtoul(t, NULL, 10) : initial;
    return v > max ? max : (unsigned)v;
}

static int emu_open(int i, const struct bk_option *o, struct bk_dev **out, char *why, size_t room)
{
    struct bk_dev *d = calloc(1, sizeof *d);

    (void)i, (void)o;
    if (d == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    d->seed = from_env("SLUICE_EMU_SEED", 1, 1000000);
    d->threads = from_env("SLUICE_EMU_THREADS", 2, 64);
    if (d->threads == 0)
        d->threads = 1;
    pthread_barrier_init(&d->start, NULL, d->threads);
    pthread_barrier_init(&d->phase, NULL, d->threads);
    pthread_barrier_init(&d->end, NULL, d->threads);
    for (unsigned t = 1; t < d->threads; t++) {
        struct member *m = malloc(sizeof *m);
        if (m == NULL)
            abort();
        *m = (struct member){ d, t };
        if (pthread_create(&d->thread[t], NULL, thread_main, m) != 0) {
            snprintf(why, room, "cannot start %u threads", d->threads);
            abort();             /* a test's device: nothing to be saved */
        }
    }
    *out = d;
    return 0;
}

static void emu_close(struct bk_dev *d)
{
    if (d == NULL)
        return;
    d->stop = true;
    if (d->threads > 1)
        pthread_barrier_wait(&d->start);
    for (unsigned t = 1; t < d->threads; t++)
        pthread_join(d->thread[t], NULL);
    pthread_barrier_destroy(&d->start);
    pthread_barrier_destroy(&d->phase);
    pthread_barrier_destroy(&d->end);
    free(d);
}

static const char *emu_errstr(struct bk_dev *d)
{
    return d->err;
}

static struct bk_mem *emu_alloc(struct bk_dev *d, size_t size)
{
    struct bk_mem *m = malloc(sizeof *m);

    if (m && (m->p = malloc(size ? size : 1)) != NULL) {
        memset(m->p, 0xa5, size);      /* nobody may count on zeros */
        m->size = size;
        return m;
    }
    free(m);
    snprintf(d->err, sizeof d->err, "no memory for %zu bytes", size);
    return NULL;
}

static void emu_free(struct bk_dev *d, struct bk_mem *m)
{
    (void)d;
    if (m)
        free(m->p);
    free(m);
}

/* The device reads the process's memory anyway. */
static int emu_host_register(struct bk_dev *d, const void *p, size_t size, int read_only)
{
    (void)d, (void)p, (void)size, (void)read_only;
    return 0;
}

static int emu_host_unregister(struct bk_dev *d, const void *p)
{
    (void)d, (void)p;
    return 0;
}

static void *emu_host_alloc(struct bk_dev *d, size_t size)
{
    (void)d;
    return malloc(size);
}

static void emu_host_free(struct bk_dev *d, void *p)
{
    (void)d;
    free(p);
}

static struct bk_kern *emu_kern(struct bk_dev *d, const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0)
            return &kernels[i];
    }
    snprintf(d->err, sizeof d->err, "no kernel %s", name);
    return NULL;
}

static struct bk_queue *emu_queue_new(struct bk_dev *d)
{
    struct bk_queue *q = malloc(sizeof *q);
    if (q)
        q->dev = d;
    return q;
}

static void emu_queue_free(struct bk_queue *q)
{
    free(q);
}

static int emu_fill0(struct bk_queue *q, struct bk_mem *m, size_t offset, size_t size)
{
    (void)q;
    memset((char *)m->p + offset, 0, size);
    return 0;
}

static int emu_h2d(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p, size_t size)
{
    (void)q;
    memcpy((char *)m->p + offset, p, size);
    return 0;
}

static int emu_d2h(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size)
{
    (void)q;
    memcpy(p, (char *)m->p + offset, size);
    return 0;
}

static int emu_launch(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs,
                      const struct bk_arg *args)
{
    struct bk_dev *d = q->dev;
    void *a[16];

    if (nargs != k->nargs) {
        snprintf(d->err, sizeof d->err, "kernel %s takes %u arguments, %u given", k->name,
                 k->nargs, nargs);
        return -1;
    }
    for (unsigned i = 0; i < nargs; i++)
        a[i] = args[i].mem ? (void *)&args[i].mem->p : (void *)(uintptr_t)args[i].value;
    d->fn = k->fn;
    d->args = a;
    d->groups = groups;
    if (d->threads > 1)
        pthread_barrier_wait(&d->start);
    run(d, 0);
    if (d->threads > 1)
        pthread_barrier_wait(&d->end);
    return 0;
}

static struct bk_event *emu_record(struct bk_queue *q)
{
    return (struct bk_event *)q;
}

static int emu_wait_for(struct bk_queue *q, struct bk_event *e)
{
    (void)q, (void)e;
    return 0;
}

static int emu_event_wait(struct bk_queue *q, struct bk_event *e)
{
    (void)q, (void)e;
    return 0;
}

static void emu_event_free(struct bk_event *e)
{
    (void)e;
}

static int emu_wait(struct bk_queue *q)
{
    (void)q;
    return 0;
}

const struct bk_ops *bk_emu_entry(void)
{
    static const struct bk_ops ops = {
        .abi = BK_ABI, .name = "emu", .count = emu_count, .describe = emu_describe,
        .open = emu_open, .close = emu_close, .errstr = emu_errstr, .alloc = emu_alloc,
        .free = emu_free, .host_register = emu_host_register,
        .host_unregister = emu_host_unregister, .host_alloc = emu_host_alloc,
        .host_free = emu_host_free, .kern = emu_kern, .queue_new = emu_queue_new,
        .queue_free = emu_queue_free, .fill0 = emu_fill0, .h2d = emu_h2d, .d2h = emu_d2h,
        .launch = emu_launch, .record = emu_record, .wait_for = emu_wait_for,
        .event_wait = emu_event_wait, .event_free = emu_event_free, .wait = emu_wait,
    };
    return &ops;
}
