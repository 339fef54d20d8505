/* bk_gpu.c - plugins cuda (driver API; with -DBK_CUDA) and hip (module API)
 *
 * From: the stages.  To: libcuda.so.1 or libamdhip64.so, opened at run time; no header or library of
 * either is needed to build. The two interfaces have the same shape, so one table of functions
 * with two columns of names serves both. The device code is a file (blob) made by nvcc, hipcc or
 * clang from the same source as the program's other kernels; its last line tells, and is checked.
 * Sources of the interfaces: CUDA driver API reference, HIP API reference 5.2.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bk.h"
#include "bk_place.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "k_source.h"

#ifndef K_BLOB_DIR
#define K_BLOB_DIR ""
#endif

#ifdef BK_CUDA
#define NAME(cuda, hip) cuda
#define DRIVER "CUDA"
#else
#define NAME(cuda, hip) hip
#define DRIVER "HIP"
#endif

#define OPS_NAME NAME("cuda", "hip")
static const char *const sonames[] = {
    NAME("libcuda.so.1", "libamdhip64.so.7"), NAME(NULL, "libamdhip64.so.6"), NAME(NULL, "libamdhip64.so.5"), NULL,
};
static const char without[] = NAME("no NVIDIA driver (libcuda.so.1)", "no AMD runtime (libamdhip64.so)");
static const char blob_file[] = NAME("cuda/kernels.fatbin", "hip/kernels.hsaco");

typedef void *handle;            /* context, module, function, stream, event */

/* name here, arguments, name in CUDA, name in HIP */
#define API(F) \
    F(init, (unsigned), "cuInit", "hipInit") \
    F(device_count, (int *), "cuDeviceGetCount", "hipGetDeviceCount") \
    F(device_get, (int *, int), "cuDeviceGet", "hipDeviceGet") \
    F(device_name, (char *, int, int), "cuDeviceGetName", "hipDeviceGetName") \
    F(device_memory, (size_t *, int), "cuDeviceTotalMem_v2", "hipDeviceTotalMem") \
    F(device_pci, (char *, int, int), "cuDeviceGetPCIBusId", "hipDeviceGetPCIBusId") \
    F(device_capability, (int *, int *, int), "cuDeviceComputeCapability", "hipDeviceComputeCapability") \
    F(driver_version, (int *), "cuDriverGetVersion", "hipDriverGetVersion") \
    F(ctx_retain, (handle *, int), "cuDevicePrimaryCtxRetain", "hipDevicePrimaryCtxRetain") \
    F(ctx_release, (int), "cuDevicePrimaryCtxRelease_v2", "hipDevicePrimaryCtxRelease") \
    F(ctx_set, (handle), "cuCtxSetCurrent", "hipCtxSetCurrent") \
    F(mem_alloc, (void **, size_t), "cuMemAlloc_v2", "hipMalloc") \
    F(mem_free, (void *), "cuMemFree_v2", "hipFree") \
    F(mem_set, (void *, unsigned char, size_t, handle), "cuMemsetD8Async", "hipMemsetD8Async") \
    F(h2d, (void *, const void *, size_t, handle), "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync") \
    F(d2h, (void *, void *, size_t, handle), "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync") \
    F(host_register, (void *, size_t, unsigned), "cuMemHostRegister_v2", "hipHostRegister") \
    F(host_unregister, (void *), "cuMemHostUnregister", "hipHostUnregister") \
    F(host_alloc, (void **, size_t, unsigned), "cuMemHostAlloc", "hipHostMalloc") \
    F(host_free, (void *), "cuMemFreeHost", "hipHostFree") \
    F(module_load, (handle *, const void *), "cuModuleLoadData", "hipModuleLoadData") \
    F(module_unload, (handle), "cuModuleUnload", "hipModuleUnload") \
    F(module_function, (handle *, handle, const char *), "cuModuleGetFunction", "hipModuleGetFunction") \
    F(launch, (handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, handle, void **, void **), \
      "cuLaunchKernel", "hipModuleLaunchKernel") \
    F(stream_create, (handle *, unsigned), "cuStreamCreate", "hipStreamCreateWithFlags") \
    F(stream_destroy, (handle), "cuStreamDestroy_v2", "hipStreamDestroy") \
    F(stream_sync, (handle), "cuStreamSynchronize", "hipStreamSynchronize") \
    F(stream_wait, (handle, handle, unsigned), "cuStreamWaitEvent", "hipStreamWaitEvent") \
    F(event_create, (handle *, unsigned), "cuEventCreate", "hipEventCreateWithFlags") \
    F(event_record, (handle, handle), "cuEventRecord", "hipEventRecord") \
    F(event_sync, (handle), "cuEventSynchronize", "hipEventSynchronize") \
    F(event_destroy, (handle), "cuEventDestroy_v2", "hipEventDestroy")

/* CU_MEMHOSTREGISTER_READ_ONLY; HIP has another meaning for that bit and takes what it finds. */
enum { PIN_READ_ONLY = NAME(8, 0) };
enum { STREAM_NON_BLOCKING = 1, EVENT_NO_TIMING = 2, DEVICES_MAX = 64, OUT_OF_MEMORY = 2, ARGS_MAX = 12 };

static struct {
    pthread_mutex_t lock;
    bool tried;
    int n;                       /* devices */
    char why[200];               /* when there is none */
#define F(name, args, cuda, hip) int (*name) args;
    API(F)
#undef F
} api = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct bk_mem {
    void *p;                     /* address on the device */
    size_t size;
};

struct bk_kern {
    unsigned items, nargs;
    handle h;
};

struct bk_dev {
    char err[300];
    int device;
    handle ctx, module;
    struct bk_kern kern[32];
    uint64_t used, limit;
};

struct bk_queue {
    struct bk_dev *dev;
    handle h;
};

struct bk_event {
    struct bk_dev *dev;
    handle h;
};

static const struct { const char *name; unsigned items, nargs; } kernels[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, items, nargs },
#include "klist.def"
#undef KERNEL
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

/* ---- the driver --------------------------------------------------------------------------- */

static void *driver_open(void)
{
    void *so = NULL;
    for (int i = 0; sonames[i] && so == NULL; i++)
        so = dlopen(sonames[i], RTLD_NOW | RTLD_LOCAL);
    return so;                   /* stays open: drivers do not like to be unloaded */
}

static void driver_load(void)
{
    void *so = driver_open();
    const char *missing = NULL;
    int rc;

    if (so == NULL) {
        snprintf(api.why, sizeof api.why, "%s", without);
        return;
    }
#define F(name, args, cuda, hip) \
    *(void **)(void *)&api.name = dlsym(so, NAME(cuda, hip)); \
    missing = api.name || missing ? missing : NAME(cuda, hip);
    API(F)
#undef F
    if (missing) {
        snprintf(api.why, sizeof api.why, "the driver has no %s", missing);
        return;
    }
    rc = api.init(0);
    if (rc == 0)
        rc = api.device_count(&api.n);
    if (rc != 0) {
        api.n = 0;
        snprintf(api.why, sizeof api.why, "the driver finds no device (error %d)", rc);
    } else if (api.n == 0) {
        snprintf(api.why, sizeof api.why, "the driver finds no device");
    }
}

static int gpu_count(void)
{
    pthread_mutex_lock(&api.lock);
    if (!api.tried)
        driver_load();
    api.tried = true;
    int n = api.n;
    pthread_mutex_unlock(&api.lock);
    return n;
}

/* ---- what a device is --------------------------------------------------------------------- */

static bool read_line(const char *path, char *out, size_t room)
{
    FILE *f = fopen(path, "re");
    bool got = f && fgets(out, (int)room, f);
    if (f)
        fclose(f);
    if (got)
        out[strcspn(out, "\n")] = '\0';
    return got;
}

static int numa_of(const char *pci)
{
    char path[128], line[32], low[40];
    size_t i;

    for (i = 0; pci[i] && i < sizeof low - 1; i++)
        low[i] = pci[i] >= 'A' && pci[i] <= 'F' ? (char)(pci[i] + 32) : pci[i];
    low[i] = '\0';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", low);
    return read_line(path, line, sizeof line) ? atoi(line) : -1;
}

#ifdef BK_CUDA
static void class_of(struct bk_info *info, int major, int minor)
{
    snprintf(info->class, sizeof info->class, "sm_%d%d", major, minor);
}
#else
/* The kernel driver's list says gfx906 as 90006, and where the device sits. */
static bool gfx_of(const char *pci, char *out, size_t room)
{
    static const char root[] = "/sys/class/kfd/kfd/topology/nodes";
    unsigned bus, slot, function, domain;
    struct dirent *de;
    bool found = false;
    DIR *dir = opendir(root);

    if (dir == NULL || sscanf(pci, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) {
        if (dir)
            closedir(dir);
        return false;
    }
    while (!found && (de = readdir(dir)) != NULL) {
        char path[400], line[100];
        unsigned long version = 0, place = 0, dom = 0, v;
        snprintf(path, sizeof path, "%s/%s/properties", root, de->d_name);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof line, f)) {
            if (sscanf(line, "gfx_target_version %lu", &v) == 1)
                version = v;
            else if (sscanf(line, "location_id %lu", &v) == 1)
                place = v;
            else if (sscanf(line, "domain %lu", &v) == 1)
                dom = v;
        }
        if (f)
            fclose(f);
        if (version && dom == domain && place == (bus << 8 | slot << 3 | function)) {
            snprintf(out, room, "gfx%lu%lx%lx", version / 10000, version / 100 % 100, version % 100);
            found = true;
        }
    }
    closedir(dir);
    return found;
}

static void class_of(struct bk_info *info, int major, int minor)
{
    (void)major, (void)minor;
    if (!gfx_of(info->id, info->class, sizeof info->class))
        snprintf(info->class, sizeof info->class, "amd");
}
#endif

static int gpu_describe(int i, struct bk_info *info, char *why, size_t room)
{
    int dev, major = 0, minor = 0, version = 0, n = gpu_count();
    size_t memory = 0;

    memset(info, 0, sizeof *info);
    info->numa = -1;
    if (i < 0 || i >= n) {
        snprintf(why, room, "%s", n > 0 ? "no device of that number" : api.why);
        return -1;
    }
    if (api.device_get(&dev, i) != 0 || api.device_name(info->name, sizeof info->name - 1, dev) != 0 ||
        api.device_pci(info->id, sizeof info->id - 1, dev) != 0 || api.device_memory(&memory, dev) != 0) {
        snprintf(why, room, "the driver does not tell about device %d", i);
        return -1;
    }
    api.device_capability(&major, &minor, dev);
    api.driver_version(&version);
    info->memory = memory;
    info->numa = numa_of(info->id);
    snprintf(info->driver, sizeof info->driver, "%s %d", DRIVER, version);
    class_of(info, major, minor);
    return 0;
}

/* ---- device code -------------------------------------------------------------------------- */

static void *blob_read(const char *path, char *why, size_t room)
{
    static const char last[] = "\nsluice-blob " K_SOURCE_HASH "\n";
    size_t tail = sizeof last - 1;
    long size = -1;
    char *p = NULL;
    FILE *f = fopen(path, "re");

    if (f == NULL) {
        snprintf(why, room, "no device code: %s: %s", path, strerror(errno));
        return NULL;
    }
    if (fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (size > (long)tail && size < 1 << 28 && (p = malloc((size_t)size)) != NULL) {
        rewind(f);
        if (fread(p, 1, (size_t)size, f) != (size_t)size)
            size = -1;
    }
    fclose(f);
    if (p == NULL || size < 0 || memcmp(p + size - tail, last, tail) != 0) {
        snprintf(why, room, "%s was not made from this program's kernels (%s)", path,
                 K_SOURCE_HASH);
        free(p);
        return NULL;
    }
    return p;
}

static int module_open(struct bk_dev *d, char *why, size_t room)
{
    static const struct bk_place blobs = { "SLUICE_BLOBS", "", K_BLOB_DIR };
    char path[4096];

    if (bk_place_find(&blobs, blob_file, path, sizeof path) < 0) {
        snprintf(why, room, "no device code: no %s in %s", blob_file, path);
        return -1;
    }
    void *blob = blob_read(path, why, room);
    if (blob == NULL)
        return -1;
    int rc = api.module_load(&d->module, blob);
    free(blob);
    if (rc != 0) {
        snprintf(why, room, "%s holds no code for this device (error %d)", path, rc);
        d->module = NULL;
        return -1;
    }
    return 0;
}

static void gpu_close(struct bk_dev *d)
{
    if (d == NULL)
        return;
    if (d->ctx)
        api.ctx_set(d->ctx);
    if (d->module)
        api.module_unload(d->module);
    if (d->ctx)
        api.ctx_release(d->device);
    free(d);
}

static int gpu_open(int i, const struct bk_option *o, struct bk_dev **out, char *why, size_t room)
{
    int rc;

    if (i < 0 || i >= gpu_count()) {
        snprintf(why, room, "%s", api.n > 0 ? "no device of that number" : api.why);
        return -1;
    }
    struct bk_dev *d = calloc(1, sizeof *d);
    if (d == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    d->limit = o->memory_limit;
    rc = api.device_get(&d->device, i);
    if (rc == 0)
        rc = api.ctx_retain(&d->ctx, d->device);
    if (rc == 0)
        rc = api.ctx_set(d->ctx);
    if (rc != 0)
        snprintf(why, room, "device %d cannot be opened (error %d)", i, rc);
    if (rc != 0 || module_open(d, why, room) < 0) {
        gpu_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

static const char *gpu_errstr(struct bk_dev *d)
{
    return d->err;
}

static int check(struct bk_dev *d, const char *what, int rc)
{
    if (rc == 0)
        return 0;
    snprintf(d->err, sizeof d->err, "%s: %s error %d", what, OPS_NAME, rc);
    return -1;
}

/* The context belongs to the calling thread; callers may change from call to call. */
static int enter(struct bk_dev *d)
{
    return check(d, "making the context current", api.ctx_set(d->ctx));
}

/* ---- memory ------------------------------------------------------------------------------- */

static struct bk_mem *gpu_alloc(struct bk_dev *d, size_t size)
{
    struct bk_mem *m;
    int rc = 0;

    if (d->limit && (size > d->limit || d->used > d->limit - size)) {
        snprintf(d->err, sizeof d->err, "%zu bytes wanted, %llu of %llu are taken", size,
                 (unsigned long long)d->used, (unsigned long long)d->limit);
        return NULL;
    }
    if (enter(d) < 0)
        return NULL;
    m = calloc(1, sizeof *m);
    if (m == NULL || (rc = api.mem_alloc(&m->p, size ? size : 1)) != 0) {
        if (rc == OUT_OF_MEMORY)
            snprintf(d->err, sizeof d->err, "no device memory for %zu bytes, %llu are taken", size,
                     (unsigned long long)d->used);
        else
            check(d, "taking device memory", rc);
        free(m);
        return NULL;
    }
    m->size = size;
    d->used += size;
    return m;
}

static void gpu_free(struct bk_dev *d, struct bk_mem *m)
{
    if (m == NULL)
        return;
    enter(d);
    api.mem_free(m->p);
    d->used -= m->size;
    free(m);
}

static int gpu_host_register(struct bk_dev *d, const void *p, size_t size, int read_only)
{
    if (enter(d) < 0)
        return -1;
    return check(d, "pinning host memory",
                 api.host_register((void *)(uintptr_t)p, size, read_only ? PIN_READ_ONLY : 0));
}

static int gpu_host_unregister(struct bk_dev *d, const void *p)
{
    return enter(d) < 0 ? -1 : check(d, "unpinning host memory", api.host_unregister((void *)(uintptr_t)p));
}

static void *gpu_host_alloc(struct bk_dev *d, size_t size)
{
    void *p = NULL;

    if (enter(d) < 0 || check(d, "taking pinned memory", api.host_alloc(&p, size, 0)) < 0)
        return NULL;
    return p;
}

static void gpu_host_free(struct bk_dev *d, void *p)
{
    if (enter(d) == 0)
        api.host_free(p);
}

/* ---- kernels and queues ------------------------------------------------------------------- */

static struct bk_kern *gpu_kern(struct bk_dev *d, const char *name)
{
    for (unsigned i = 0; i < KERNELS; i++) {
        struct bk_kern *k = &d->kern[i];
        if (strcmp(kernels[i].name, name) != 0)
            continue;
        if (k->h == NULL && (enter(d) < 0 ||
                             check(d, name, api.module_function(&k->h, d->module, name)) < 0)) {
            k->h = NULL;
            return NULL;
        }
        k->items = kernels[i].items;
        k->nargs = kernels[i].nargs;
        return k;
    }
    snprintf(d->err, sizeof d->err, "no kernel %s", name);
    return NULL;
}

static struct bk_queue *gpu_queue_new(struct bk_dev *d)
{
    struct bk_queue *q = calloc(1, sizeof *q);

    if (q == NULL || enter(d) < 0 ||
        check(d, "making a stream", api.stream_create(&q->h, STREAM_NON_BLOCKING)) < 0) {
        free(q);
        return NULL;
    }
    q->dev = d;
    return q;
}

static void gpu_queue_free(struct bk_queue *q)
{
    if (q == NULL)
        return;
    enter(q->dev);
    api.stream_sync(q->h);
    api.stream_destroy(q->h);
    free(q);
}

static int gpu_fill0(struct bk_queue *q, struct bk_mem *m, size_t offset, size_t size)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "clearing", api.mem_set((char *)m->p + offset, 0, size, q->h));
}

static int gpu_h2d(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p, size_t size)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "copying to the device",
                 api.h2d((char *)m->p + offset, p, size, q->h));
}

static int gpu_d2h(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "copying from the device",
                 api.d2h(p, (char *)m->p + offset, size, q->h));
}

static int gpu_launch(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs,
                      const struct bk_arg *args)
{
    struct bk_dev *d = q->dev;
    void *a[ARGS_MAX];

    if (nargs != k->nargs || nargs > ARGS_MAX) {
        snprintf(d->err, sizeof d->err, "a kernel takes %u arguments, %u given", k->nargs, nargs);
        return -1;
    }
    for (unsigned i = 0; i < nargs; i++)
        a[i] = args[i].mem ? (void *)&args[i].mem->p : (void *)(uintptr_t)args[i].value;
    if (enter(d) < 0)
        return -1;
    return check(d, "starting a kernel",
                 api.launch(k->h, groups, 1, 1, k->items, 1, 1, 0, q->h, a, NULL));
}

static struct bk_event *gpu_record(struct bk_queue *q)
{
    struct bk_event *e = calloc(1, sizeof *e);
    struct bk_dev *d = q->dev;

    if (e == NULL || enter(d) < 0 ||
        check(d, "making an event", api.event_create(&e->h, EVENT_NO_TIMING)) < 0) {
        free(e);
        return NULL;
    }
    e->dev = d;
    if (check(d, "recording an event", api.event_record(e->h, q->h)) < 0) {
        api.event_destroy(e->h);
        free(e);
        return NULL;
    }
    return e;
}

static int gpu_wait_for(struct bk_queue *q, struct bk_event *e)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "waiting for an event", api.stream_wait(q->h, e->h, 0));
}

static int gpu_event_wait(struct bk_queue *q, struct bk_event *e)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "waiting for an event", api.event_sync(e->h));
}

static void gpu_event_free(struct bk_event *e)
{
    if (e == NULL)
        return;
    enter(e->dev);
    api.event_destroy(e->h);
    free(e);
}

static int gpu_wait(struct bk_queue *q)
{
    if (enter(q->dev) < 0)
        return -1;
    return check(q->dev, "waiting for the device", api.stream_sync(q->h));
}

const struct bk_ops *bk_entry(void)
{
    static const struct bk_ops ops = {
        .abi = BK_ABI, .source = K_SOURCE_HASH, .name = OPS_NAME, .async = 1,
        .count = gpu_count,
        .describe = gpu_describe, .open = gpu_open, .close = gpu_close, .errstr = gpu_errstr,
        .alloc = gpu_alloc, .free = gpu_free, .host_register = gpu_host_register,
        .host_unregister = gpu_host_unregister, .host_alloc = gpu_host_alloc,
        .host_free = gpu_host_free, .kern = gpu_kern, .queue_new = gpu_queue_new,
        .queue_free = gpu_queue_free, .fill0 = gpu_fill0, .h2d = gpu_h2d, .d2h = gpu_d2h,
        .launch = gpu_launch, .record = gpu_record, .wait_for = gpu_wait_for,
        .event_wait = gpu_event_wait, .event_free = gpu_event_free, .wait = gpu_wait,
    };
    return &ops;
}
