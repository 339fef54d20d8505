/* mock_gpu.c - a look-alike of libcuda.so.1 (MOCK_CUDA) or libamdhip64.so.5: proves host code, not device code
 *
 * Kernels are those of this tree, compiled for the host as for a GPU. Each stream is a thread that does what was queued one after the other and
 * a little late, so that a result used before the stream was waited for is a wrong result. MOCK_GPU_DEVICES (1), MOCK_GPU_MEMORY (bytes a device has),
 * MOCK_GPU_PIN_MAX (bytes one registration may have), MOCK_GPU_PIN_COUNT (registrations there may be), MOCK_GPU_NO_HOST (no pinned memory of the driver's)
 * and MOCK_GPU_LEAK (bytes lost with every context) change what it is. MOCK_GPU_LOG names a file for what is queued and done, in that order.
 * As with the drivers, memory is registered once, and a copy does not reach across two registrations.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#define K_EMU 1
#define K_SYM(name) name##_mock
#include "all.k"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef MOCK_CUDA
#define NAME(cuda, hip) cuda
#else
#define NAME(cuda, hip) hip
#endif
#define EXPORT(ret, cuda, hip, args) ret NAME(cuda, hip) args; ret NAME(cuda, hip) args

enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, REGISTERED = 712, ARGS_MAX = 12, REGIONS_MAX = 100000 };

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

enum what { COPY_IN, COPY_OUT, CLEAR, LAUNCH, EVENT, WAIT, QUIT };
static const char *const whats[] = { "copy-in", "copy-out", "clear", "launch", "event", "wait", "quit" };

struct event {
    bool done;
    unsigned users;              /* the program, and what is queued with it */
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
    unsigned number;
    pthread_t thread;
    struct op *first, **last;
    bool idle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;   /* group memory is one for all streams */
static size_t used, lost;
static unsigned streams;
static struct { const char *p; size_t size; } region[REGIONS_MAX];   /* registered */
static size_t regions;

/* A line: queued or done, the stream's number, what, bytes or kernel. With the lock. */
static void note(const char *when, const struct stream *s, const struct op *o)
{
    static FILE *f;
    const char *path = getenv("MOCK_GPU_LOG");

    if (path == NULL || (f == NULL && (f = fopen(path, "ae")) == NULL))
        return;
    if (o->what == LAUNCH)
        fprintf(f, "%s %u launch %s\n", when, s->number, o->k->name);
    else
        fprintf(f, "%s %u %s %zu\n", when, s->number, whats[o->what], o->size);
    fflush(f);
}

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

/* An event may be destroyed while it is queued. With the lock. */
static void event_leave(struct event *e)
{
    if (e && --e->users == 0)
        free(e);
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
        if (o->what == COPY_IN || o->what == COPY_OUT)
            memcpy(o->to, o->from, o->size);
        else if (o->what == CLEAR)
            memset(o->to, 0, o->size);
        else if (o->what == LAUNCH)
            launch(o);
        quit = o->what == QUIT;
        pthread_mutex_lock(&lock);
        note("done", s, o);
        if (o->what == EVENT)
            o->event->done = true;
        event_leave(o->event);
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
    note("queued", s, o);
    if (o->event)
        o->event->users++;
    *s->last = o;
    s->last = &o->next;
    s->idle = false;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORT(int, cuInit, hipInit, (unsigned flags))
{
    while (getenv("MOCK_GPU_HANGS"))
        pause();
    if (getenv("MOCK_GPU_KILLS"))
        kill(getpid(), SIGKILL);
    return flags ? INVALID : OK;
}
/* The devices that a mask leaves, in its order (CUDA_VISIBLE_DEVICES=3,6,5,4): the card of the i-th, or how many when i is -1. */
static int visible(int i)
{
    const char *mask = getenv(NAME("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"));
    int all = (int)setting("MOCK_GPU_DEVICES", 1), n = 0;

    if (mask == NULL)
        return i < 0 ? all : i;
    for (char *end; *mask; mask = *end ? end + 1 : end) {
        int card = (int)strtol(mask, &end, 10);
        if (end == mask || card >= all)
            break;
        if (n++ == i)
            return card;
    }
    return n;
}
EXPORT(int, cuDeviceGetCount, hipGetDeviceCount, (int *n))
{
    *n = visible(-1);
    return *n ? OK : NO_DEVICE;
}
EXPORT(int, cuDeviceGet, hipDeviceGet, (int *d, int i)) { *d = visible(i); return OK; }
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
    /* by number and by bus address the cards have opposite orders */
    snprintf(out, (size_t)room, "0000:%02x:00.0", 0x40 - d);
    return OK;
}
EXPORT(int, cuDeviceComputeCapability, hipDeviceComputeCapability, (int *major, int *minor, int d))
{
    *major = d % 2 ? 8 : 9;      /* two classes */
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
/* Wholly in one registration, or in none at all. */
static bool one_region(const char *p, size_t n)
{
    size_t touched = 0, whole = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < regions; i++) {
        touched += p < region[i].p + region[i].size && region[i].p < p + n;
        whole += p >= region[i].p && p + n <= region[i].p + region[i].size;
    }
    pthread_mutex_unlock(&lock);
    return touched == whole;
}

EXPORT(int, cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (void *to, const void *from, size_t n, void *s))
{
    return one_region(from, n) ? queue(s, (struct op){ .what = COPY_IN, .to = to, .from = from, .size = n }) : INVALID;
}
EXPORT(int, cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void *to, void *from, size_t n, void *s))
{
    return queue(s, (struct op){ .what = COPY_OUT, .to = to, .from = from, .size = n });
}
static int add_region(const char *p, size_t n)
{
    for (size_t i = 0; i < regions; i++) {
        if (p < region[i].p + region[i].size && region[i].p < p + n)
            return REGISTERED;
    }
    if (n > setting("MOCK_GPU_PIN_MAX", SIZE_MAX) || regions >= setting("MOCK_GPU_PIN_COUNT", REGIONS_MAX))
        return OUT_OF_MEMORY;
    region[regions].p = p;
    region[regions++].size = n;
    return OK;
}
EXPORT(int, cuMemHostRegister_v2, hipHostRegister, (void *p, size_t n, unsigned flags))
{
    (void)flags;
    pthread_mutex_lock(&lock);
    int r = p == NULL || n == 0 ? INVALID : add_region(p, n);
    pthread_mutex_unlock(&lock);
    return r;
}
EXPORT(int, cuMemHostUnregister, hipHostUnregister, (void *p))
{
    int r = INVALID;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < regions && r != OK; i++) {
        if (region[i].p == p) {
            region[i] = region[--regions];
            r = OK;
        }
    }
    pthread_mutex_unlock(&lock);
    return r;
}
EXPORT(int, cuMemHostAlloc, hipHostMalloc, (void **p, size_t n, unsigned flags))
{
    *p = flags || getenv("MOCK_GPU_NO_HOST") ? NULL : malloc(n);
    return *p ? OK : OUT_OF_MEMORY;
}
EXPORT(int, cuMemFreeHost, hipHostFree, (void *p))
{
    free(p);
    return OK;
}
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
    pthread_mutex_lock(&lock);
    s->number = streams++;
    pthread_mutex_unlock(&lock);
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
    struct event *x = calloc(1, sizeof *x);

    if (x)
        x->users = 1;
    *e = x;
    return x ? OK : OUT_OF_MEMORY;
}
EXPORT(int, cuEventRecord, hipEventRecord, (void *e, void *s)) { return queue(s, (struct op){ .what = EVENT, .event = e }); }
EXPORT(int, cuStreamWaitEvent, hipStreamWaitEvent, (void *s, void *e, unsigned flags))
{
    (void)flags;
    return queue(s, (struct op){ .what = WAIT, .event = e });
}
EXPORT(int, cuEventSynchronize, hipEventSynchronize, (void *event))
{
    struct event *e = event;

    pthread_mutex_lock(&lock);
    while (!e->done)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return OK;
}
EXPORT(int, cuEventDestroy_v2, hipEventDestroy, (void *e))
{
    pthread_mutex_lock(&lock);
    event_leave(e);
    pthread_mutex_unlock(&lock);
    return OK;
}
