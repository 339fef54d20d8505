/* mock_gpu.c - a look-alike of libcuda.so.1 (MOCK_CUDA) or libamdhip64.so.5: proves host code, not device code
 *
 * Kernels are those of this tree, compiled for the host as for a GPU. Each stream is a thread that does what was queued one after the other and
 * a little late, so that a result used before the stream was waited for is a wrong result. MOCK_GPU_DEVICES (1), MOCK_GPU_MEMORY (bytes a device has),
 * MOCK_GPU_PIN_MAX (bytes one registration may have) and MOCK_GPU_LEAK (bytes lost with every context) change what it is.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define K_EMU 1
#define K_SYM(name) name##_mock
#include "all.k"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef MOCK_CUDA
#define NAME(cuda, hip) cuda
#else
#define NAME(cuda, hip) hip
#endif
#define EXPORT(ret, cuda, hip, args) ret NAME(cuda, hip) args; ret NAME(cuda, hip) args

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, ARGS_MAX = 12 };

/* one group at a time, by one thread, in order */
u32 k_emu_item(const struct k_ctx *cx, u32 j, u32 n)
{
    (void)cx, (void)n;
    return j;
}

void k_emu_barrier(const struct k_ctx *cx)
{
    (void)cx;
}

struct kernel {
    const char *name, *kinds;
    unsigned items;
    void (*fn)(const struct k_ctx *cx, void **args);
};

static const struct kernel kernels[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, kinds, items, K_SYM(name) },
#include "klist.def"
#undef KERNEL
};

enum what { COPY, CLEAR, LAUNCH, EVENT, WAIT, QUIT };

struct event {
    bool done;
};

struct op {
    struct op *next;
    enum what what;
    void *to;
    const void *from;
    size_t size;
    const struct kernel *k;
    unsigned groups;
    struct event *event;
    unsigned char arg[ARGS_MAX][64];
};

struct stream {
    pthread_t thread;
    struct op *first, **last;
    bool idle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;   /* group memory is one for all streams */
static size_t used, lost;

static size_t setting(const char *name, size_t initial)
{
    const char *t = getenv(name);
    return t ? strtoull(t, NULL, 10) : initial;
}

static void launch(struct op *o)
{
    void *a[ARGS_MAX];

    for (unsigned i = 0; o->k->kinds[i]; i++)
        a[i] = o->arg[i];
    pthread_mutex_lock(&running);
    for (unsigned g = 0; g < o->groups; g++) {
        struct k_ctx cx = { .group = g, .ngroups = o->groups, .nthreads = 1 };
        o->k->fn(&cx, a);
    }
    pthread_mutex_unlock(&running);
}

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    bool quit = false;

    while (!quit) {
        pthread_mutex_lock(&lock);
        while (s->first == NULL)
            pthread_cond_wait(&changed, &lock);
        struct op *o = s->first;
        while (o->what == WAIT && !o->event->done)
            pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        if (o->what == COPY)
            memcpy(o->to, o->from, o->size);
        else if (o->what == CLEAR)
            memset(o->to, 0, o->size);
        else if (o->what == LAUNCH)
            launch(o);
        quit = o->what == QUIT;
        pthread_mutex_lock(&lock);
        if (o->what == EVENT)
            o->event->done = true;
        s->first = o->next;
        if (s->first == NULL)
            s->last = &s->first;
        s->idle = s->first == NULL;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        free(o);
    }
    return NULL;
}

static int queue(struct stream *s, struct op op)
{
    struct op *o = malloc(sizeof *o);

    if (o == NULL || s == NULL)
        return INVALID;
    *o = op;
    o->next = NULL;
    pthread_mutex_lock(&lock);
    *s->last = o;
    s->last = &o->next;
    s->idle = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORT(int, cuInit, hipInit, (unsigned flags)) { return flags ? INVALID : OK; }
EXPORT(int, cuDeviceGetCount, hipGetDeviceCount, (int *n))
{
    *n = (int)setting("MOCK_GPU_DEVICES", 1);
    return *n ? OK : NO_DEVICE;
}
EXPORT(int, cuDeviceGet, hipDeviceGet, (int *d, int i)) { *d = i; return OK; }
EXPORT(int, cuDeviceGetName, hipDeviceGetName, (char *out, int room, int d))
{
    snprintf(out, (size_t)room, "mock device %d", d);
    return OK;
}
EXPORT(int, cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t *n, int d))
{
    (void)d;
    *n = setting("MOCK_GPU_MEMORY", (size_t)1 << 30);
    return OK;
}
EXPORT(int, cuDeviceGetPCIBusId, hipDeviceGetPCIBusId, (char *out, int room, int d))
{
    /* by number and by bus address the devices have opposite orders */
    snprintf(out, (size_t)room, "0000:%02x:00.0", 0x40 - d);
    return OK;
}
EXPORT(int, cuDeviceComputeCapability, hipDeviceComputeCapability, (int *major, int *minor, int d))
{
    (void)d;
    *major = 9;
    *minor = 0;
    return OK;
}
EXPORT(int, cuDriverGetVersion, hipDriverGetVersion, (int *v)) { *v = 13000; return OK; }
EXPORT(int, cuDevicePrimaryCtxRetain, hipDevicePrimaryCtxRetain, (void **c, int d)) { (void)d; *c = c; return OK; }
EXPORT(int, cuDevicePrimaryCtxRelease_v2, hipDevicePrimaryCtxRelease, (int d))
{
    (void)d;
    lost += setting("MOCK_GPU_LEAK", 0);
    return OK;
}
EXPORT(int, cuCtxSetCurrent, hipCtxSetCurrent, (void *c)) { return c ? OK : INVALID; }
EXPORT(int, cuMemAlloc_v2, hipMalloc, (void **p, size_t size))
{
    size_t *m;

    pthread_mutex_lock(&lock);
    bool fits = size <= setting("MOCK_GPU_MEMORY", (size_t)1 << 30) - used - lost;
    m = fits ? malloc(size + 64) : NULL;
    if (m)
        used += *m = size;
    pthread_mutex_unlock(&lock);
    if (m == NULL)
        return OUT_OF_MEMORY;
    memset(m + 8, 0xa5, size);
    *p = m + 8;
    return OK;
}
EXPORT(int, cuMemFree_v2, hipFree, (void *p))
{
    size_t *m = p;

    pthread_mutex_lock(&lock);
    used -= m[-8];
    pthread_mutex_unlock(&lock);
    free(m - 8);
    return OK;
}
EXPORT(int, cuMemsetD8Async, hipMemsetD8Async, (void *p, unsigned char v, size_t n, void *s))
{
    return v ? INVALID : queue(s, (struct op){ .what = CLEAR, .to = p, .size = n });
}
EXPORT(int, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (void *to, const void *from, size_t n, void *s))
{
    return queue(s, (struct op){ .what = COPY, .to = to, .from = from, .size = n });
}
EXPORT(int, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *to, void *from, size_t n, void *s))
{
    return queue(s, (struct op){ .what = COPY, .to = to, .from = from, .size = n });
}
EXPORT(int, cuMemHostRegister_v2, hipHostRegister, (void *p, size_t n, unsigned flags))
{
    (void)flags;
    return p == NULL || n == 0 ? INVALID : n > setting("MOCK_GPU_PIN_MAX", SIZE_MAX) ? OUT_OF_MEMORY : OK;
}
EXPORT(int, cuMemHostUnregister, hipHostUnregister, (void *p)) { return p ? OK : INVALID; }
EXPORT(int, cuModuleLoadData, hipModuleLoadData, (void **m, const void *image)) { *m = m; return image ? OK : INVALID; }
EXPORT(int, cuModuleUnload, hipModuleUnload, (void *m)) { return m ? OK : INVALID; }
EXPORT(int, cuModuleGetFunction, hipModuleGetFunction, (void **f, void *m, const char *name))
{
    (void)m;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (strcmp(kernels[i].name, name) == 0) {
            *f = (void *)(uintptr_t)&kernels[i];
            return OK;
        }
    }
    return NOT_FOUND;
}
EXPORT(int, cuLaunchKernel, hipModuleLaunchKernel,
       (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void *s, void **params, void **extra))
{
    const struct kernel *k = f;
    struct op o = { .what = LAUNCH, .k = k, .groups = gx };

    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || bx != k->items || shared != 0 || extra != NULL || gx == 0)
        return INVALID;
    for (unsigned i = 0; k->kinds[i]; i++) {
        size_t n = k->kinds[i] == 'p' ? sizeof(void *) : k->kinds[i] == 'w' ? 4 : sizeof(kcluster_par);
        memcpy(o.arg[i], params[i], n);
    }
    return queue(s, o);
}
EXPORT(int, cuStreamCreate, hipStreamCreateWithFlags, (void **out, unsigned flags))
{
    struct stream *s = calloc(1, sizeof *s);

    (void)flags;
    if (s == NULL)
        return OUT_OF_MEMORY;
    s->last = &s->first;
    s->idle = true;
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0) {
        free(s);
        return OUT_OF_MEMORY;
    }
    *out = s;
    return OK;
}
EXPORT(int, cuStreamDestroy_v2, hipStreamDestroy, (void *stream))
{
    struct stream *s = stream;

    queue(s, (struct op){ .what = QUIT });
    pthread_join(s->thread, NULL);
    free(s);
    return OK;
}
EXPORT(int, cuStreamSynchronize, hipStreamSynchronize, (void *stream))
{
    struct stream *s = stream;

    pthread_mutex_lock(&lock);
    while (!s->idle)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return OK;
}
EXPORT(int, cuEventCreate, hipEventCreateWithFlags, (void **e, unsigned flags))
{
    (void)flags;
    *e = calloc(1, sizeof(struct event));
    return *e ? OK : OUT_OF_MEMORY;
}
EXPORT(int, cuEventRecord, hipEventRecord, (void *e, void *s)) { return queue(s, (struct op){ .what = EVENT, .event = e }); }
EXPORT(int, cuStreamWaitEvent, hipStreamWaitEvent, (void *s, void *e, unsigned flags))
{
    (void)flags;
    return queue(s, (struct op){ .what = WAIT, .event = e });
}
EXPORT(int, cuEventDestroy_v2, hipEventDestroy, (void *e))
{
    free(e);
    return OK;
}
