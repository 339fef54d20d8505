/* bk_cpu.c - backend cpu: groups of a kernel shared out over threads
 *
 * From: the stages.  To: the kernels compiled in cpu_v1.c and cpu_v3.c.
 * Memory of the device is memory of the process; every call is done when it returns, so queues
 * and events have nothing to hold. The threads live as long as the device and sleep between
 * kernels; the caller works along.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bk.h"
#include "cpu_kernels.h"
#include "kdef.h"

#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ARGS_MAX = 12, THREADS_MAX = 512, STACK_SIZE = 8 << 20 };

struct bk_mem {
    void *p;
    size_t size;
};

struct bk_queue {
    struct bk_dev *dev;
};

struct bk_kern {
    struct cpu_kernel k;
};

struct job {                      /* the kernel being run */
    cpu_kernel_fn fn;
    void **args;
    uint32_t groups;
    atomic_uint next;
};

struct bk_dev {
    char err[200];
    const struct cpu_kernel *kernels;
    struct bk_kern kern[32];
    uint64_t used, limit;
    unsigned threads, started;
    pthread_t thread[THREADS_MAX];
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    struct job job;
    unsigned turn, busy;          /* turn: number of the kernel being run */
    bool stop;
};

static bool has_v3(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("popcnt");
#else
    return false;
#endif
}

static unsigned cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 1;
}

static int cpu_count(void)
{
    return 1;
}

static void cpu_model(char *out, size_t room)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "re");

    snprintf(out, room, "CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *v = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && v) {
            v[strcspn(v, "\n")] = '\0';
            snprintf(out, room, "%s", v + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

static int cpu_describe(int i, struct bk_info *info, char *why, size_t room)
{
    char host[64] = "host";

    if (i != 0) {
        snprintf(why, room, "the cpu backend has one device, number 0");
        return -1;
    }
    memset(info, 0, sizeof *info);
    gethostname(host, sizeof host - 1);
    cpu_model(info->name, sizeof info->name);
    snprintf(info->id, sizeof info->id, "cpu-%.50s-0", host);
    snprintf(info->class, sizeof info->class, "%s", has_v3() ? "x86-64-v3" : "baseline");
    snprintf(info->driver, sizeof info->driver, "%u threads", cpus());
    info->memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    info->numa = -1;
    info->wide = 1;
    return 0;
}

static void work(struct job *j)
{
    struct k_ctx cx = { .ngroups = j->groups, .nthreads = 1 };
    unsigned g;

    while ((g = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed)) < j->groups) {
        cx.group = g;
        j->fn(&cx, j->args);
    }
}

static void *thread_main(void *arg)
{
    struct bk_dev *d = arg;
    unsigned seen = 0;

    /* A library built for speed may have set flush-to-zero for threads to come. */
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&d->lock);
    for (;;) {
        while (!d->stop && d->turn == seen)
            pthread_cond_wait(&d->wake, &d->lock);
        if (d->stop)
            break;
        seen = d->turn;
        pthread_mutex_unlock(&d->lock);
        work(&d->job);
        pthread_mutex_lock(&d->lock);
        if (--d->busy == 0)
            pthread_cond_signal(&d->done);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void cpu_close(struct bk_dev *d)
{
    if (d == NULL)
        return;
    pthread_mutex_lock(&d->lock);
    d->stop = true;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    for (unsigned i = 0; i < d->started; i++)
        pthread_join(d->thread[i], NULL);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->wake);
    pthread_cond_destroy(&d->done);
    free(d);
}

static int threads_start(struct bk_dev *d, char *why, size_t room)
{
    pthread_attr_t attr;
    int r = 0;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    for (unsigned i = 1; i < d->threads && r == 0; i++) {
        r = pthread_create(&d->thread[d->started], &attr, thread_main, d);
        if (r == 0)
            d->started++;
    }
    pthread_attr_destroy(&attr);
    if (r != 0) {
        snprintf(why, room, "cannot start thread %u of %u: %s", d->started + 2, d->threads,
                 strerror(r));
        return -1;
    }
    return 0;
}

static int cpu_open(int i, const struct bk_option *o, struct bk_dev **out, char *why,
                    size_t room)
{
    bool v3 = has_v3();

    if (i != 0) {
        snprintf(why, room, "the cpu backend has one device, number 0");
        return -1;
    }
    if (o->isa && strcmp(o->isa, "v1") != 0 && strcmp(o->isa, "v3") != 0) {
        snprintf(why, room, "isa \"%s\": choices are v1, v3", o->isa);
        return -1;
    }
    if (o->isa && strcmp(o->isa, "v3") == 0 && !v3) {
        snprintf(why, room, "isa v3 asked for, this processor has no AVX2");
        return -1;
    }
    struct bk_dev *d = calloc(1, sizeof *d);
    if (d == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    if (o->isa)
        v3 = strcmp(o->isa, "v3") == 0;
    d->kernels = v3 ? cpu_kernels_v3 : cpu_kernels_v1;
    d->limit = o->memory_limit;
    d->threads = o->threads ? o->threads : cpus();
    if (d->threads > THREADS_MAX)
        d->threads = THREADS_MAX;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->wake, NULL);
    pthread_cond_init(&d->done, NULL);
    if (threads_start(d, why, room) < 0) {
        cpu_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

static const char *cpu_errstr(struct bk_dev *d)
{
    return d->err;
}

static struct bk_mem *cpu_alloc(struct bk_dev *d, size_t size)
{
    struct bk_mem *m = NULL;

    if (d->limit && (size > d->limit || d->used > d->limit - size)) {
        snprintf(d->err, sizeof d->err, "%zu bytes wanted, %llu of %llu are taken", size,
                 (unsigned long long)d->used, (unsigned long long)d->limit);
        return NULL;
    }
    m = malloc(sizeof *m);
    if (m == NULL || posix_memalign(&m->p, 256, size ? size : 1) != 0) {
        snprintf(d->err, sizeof d->err, "no memory for %zu bytes", size);
        free(m);
        return NULL;
    }
    m->size = size;
    d->used += size;
    return m;
}

static void cpu_free(struct bk_dev *d, struct bk_mem *m)
{
    if (m == NULL)
        return;
    d->used -= m->size;
    free(m->p);
    free(m);
}

/* The device reads the process's memory anyway. */
static int cpu_host_register(struct bk_dev *d, const void *p, size_t size, int read_only)
{
    (void)d, (void)p, (void)size, (void)read_only;
    return 0;
}

static int cpu_host_unregister(struct bk_dev *d, const void *p)
{
    (void)d, (void)p;
    return 0;
}

static void *cpu_host_alloc(struct bk_dev *d, size_t size)
{
    (void)d;
    return malloc(size);
}

static void cpu_host_free(struct bk_dev *d, void *p)
{
    (void)d;
    free(p);
}

static struct bk_kern *cpu_kern(struct bk_dev *d, const char *name)
{
    for (unsigned i = 0; d->kernels[i].name && i < sizeof d->kern / sizeof d->kern[0]; i++) {
        if (strcmp(d->kernels[i].name, name) == 0) {
            d->kern[i].k = d->kernels[i];
            return &d->kern[i];
        }
    }
    snprintf(d->err, sizeof d->err, "no kernel %s", name);
    return NULL;
}

static struct bk_queue *cpu_queue_new(struct bk_dev *d)
{
    struct bk_queue *q = malloc(sizeof *q);
    if (q)
        q->dev = d;
    else
        snprintf(d->err, sizeof d->err, "out of memory");
    return q;
}

static void cpu_queue_free(struct bk_queue *q)
{
    free(q);
}

static int range_check(struct bk_dev *d, const struct bk_mem *m, size_t offset, size_t size)
{
    if (size <= m->size && offset <= m->size - size)
        return 0;
    snprintf(d->err, sizeof d->err, "copy of %zu bytes at %zu into a buffer of %zu", size, offset,
             m->size);
    return -1;
}

static int cpu_fill0(struct bk_queue *q, struct bk_mem *m, size_t offset, size_t size)
{
    if (range_check(q->dev, m, offset, size) < 0)
        return -1;
    if (size > 0)
        memset((char *)m->p + offset, 0, size);
    return 0;
}

static int cpu_h2d(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p,
                   size_t size)
{
    if (range_check(q->dev, m, offset, size) < 0)
        return -1;
    if (size > 0)
        memcpy((char *)m->p + offset, p, size);
    return 0;
}

static int cpu_d2h(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size)
{
    if (range_check(q->dev, m, offset, size) < 0)
        return -1;
    if (size > 0)
        memcpy(p, (char *)m->p + offset, size);
    return 0;
}

static void run_threads(struct bk_dev *d)
{
    pthread_mutex_lock(&d->lock);
    d->turn++;
    d->busy = d->started;
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    work(&d->job);
    pthread_mutex_lock(&d->lock);
    while (d->busy > 0)
        pthread_cond_wait(&d->done, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static int cpu_launch(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs,
                      const struct bk_arg *args)
{
    struct bk_dev *d = q->dev;
    void *a[ARGS_MAX];

    if (nargs != k->k.nargs || nargs > ARGS_MAX) {
        snprintf(d->err, sizeof d->err, "kernel %s takes %u arguments, %u given", k->k.name,
                 k->k.nargs, nargs);
        return -1;
    }
    for (unsigned i = 0; i < nargs; i++)
        a[i] = args[i].mem ? (void *)&args[i].mem->p : (void *)(uintptr_t)args[i].value;
    d->job.fn = k->k.fn;
    d->job.args = a;
    d->job.groups = groups;
    atomic_store(&d->job.next, 0);
    if (d->started == 0 || groups == 1)
        work(&d->job);
    else
        run_threads(d);
    return 0;
}

/* Everything is done already: any address says "recorded". */
static struct bk_event *cpu_record(struct bk_queue *q)
{
    return (struct bk_event *)q;
}

static int cpu_wait_for(struct bk_queue *q, struct bk_event *e)
{
    (void)q, (void)e;
    return 0;
}

static int cpu_event_wait(struct bk_queue *q, struct bk_event *e)
{
    (void)q, (void)e;
    return 0;
}

static void cpu_event_free(struct bk_event *e)
{
    (void)e;
}

static int cpu_wait(struct bk_queue *q)
{
    (void)q;
    return 0;
}

const struct bk_ops *bk_cpu_entry(void)
{
    static const struct bk_ops ops = {
        .abi = BK_ABI, .name = "cpu", .count = cpu_count, .describe = cpu_describe,
        .open = cpu_open, .close = cpu_close, .errstr = cpu_errstr, .alloc = cpu_alloc,
        .free = cpu_free, .host_register = cpu_host_register,
        .host_unregister = cpu_host_unregister, .host_alloc = cpu_host_alloc,
        .host_free = cpu_host_free, .kern = cpu_kern, .queue_new = cpu_queue_new,
        .queue_free = cpu_queue_free, .fill0 = cpu_fill0, .h2d = cpu_h2d, .d2h = cpu_d2h,
        .launch = cpu_launch, .record = cpu_record, .wait_for = cpu_wait_for,
        .event_wait = cpu_event_wait, .event_free = cpu_event_free, .wait = cpu_wait,
    };
    return &ops;
}
