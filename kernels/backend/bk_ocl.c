/* bk_ocl.c - backend opencl: any OpenCL 1.2 device with 64-bit floats
 *
 * From: the stages.  To: libOpenCL.so.1, opened at run time; nothing of OpenCL is needed to build.
 * The kernels' source is part of this program (embed.sh) and compiled when a device is opened.
 * Types and numbers below are those of the Khronos OpenCL 1.2 specification.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "bk.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "k_source.h"

typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_ulong;
typedef void *cl_handle;         /* platform, device, context, queue, program, kernel, mem, event */

#ifndef BUILD_OPTIONS            /* a checker may want others */
#define BUILD_OPTIONS "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt -Werror"
#endif

enum {
    CL_DEVICE_TYPE_CPU = 2, CL_DEVICE_TYPE_ALL = -1,
    CL_DEVICE_TYPE = 0x1000, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
    CL_DEVICE_SINGLE_FP_CONFIG = 0x101B, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023, CL_DEVICE_NAME = 0x102B, CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F, CL_DEVICE_EXTENSIONS = 0x1030,
    CL_DEVICE_DOUBLE_FP_CONFIG = 0x1032,
    CL_DEVICE_PCI_BUS_INFO_KHR = 0x410F, CL_DEVICE_UUID_KHR = 0x106A,
    CL_DEVICE_TOPOLOGY_AMD = 0x4037,
    CL_PLATFORM_NAME = 0x0902, CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_FP_DENORM = 1, CL_FP_CORRECT_DIVIDE_SQRT = 1 << 7,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_PARTITION_BY_COUNTS = 0x1087,
    CL_MEM_READ_WRITE = 1, DEVICES_MAX = 64, NEED_LOCAL = 32 << 10, WIDE_LOCAL = 128 << 10,
};

/* The functions used, as a table: return type, name, arguments. */
#define API(F) \
    F(cl_int, clGetPlatformIDs, (cl_uint, cl_handle *, cl_uint *)) \
    F(cl_int, clGetPlatformInfo, (cl_handle, cl_uint, size_t, void *, size_t *)) \
    F(cl_int, clGetDeviceIDs, (cl_handle, cl_ulong, cl_uint, cl_handle *, cl_uint *)) \
    F(cl_int, clGetDeviceInfo, (cl_handle, cl_uint, size_t, void *, size_t *)) \
    F(cl_int, clCreateSubDevices, (cl_handle, const intptr_t *, cl_uint, cl_handle *, cl_uint *)) \
    F(cl_int, clReleaseDevice, (cl_handle)) \
    F(cl_handle, clCreateContext, (const intptr_t *, cl_uint, const cl_handle *, void *, void *, cl_int *)) \
    F(cl_int, clReleaseContext, (cl_handle)) \
    F(cl_handle, clCreateCommandQueue, (cl_handle, cl_handle, cl_ulong, cl_int *)) \
    F(cl_int, clReleaseCommandQueue, (cl_handle)) \
    F(cl_handle, clCreateProgramWithSource, (cl_handle, cl_uint, const char **, const size_t *, cl_int *)) \
    F(cl_int, clBuildProgram, (cl_handle, cl_uint, const cl_handle *, const char *, void *, void *)) \
    F(cl_int, clGetProgramBuildInfo, (cl_handle, cl_handle, cl_uint, size_t, void *, size_t *)) \
    F(cl_int, clReleaseProgram, (cl_handle)) \
    F(cl_handle, clCreateKernel, (cl_handle, const char *, cl_int *)) \
    F(cl_int, clReleaseKernel, (cl_handle)) \
    F(cl_int, clSetKernelArg, (cl_handle, cl_uint, size_t, const void *)) \
    F(cl_handle, clCreateBuffer, (cl_handle, cl_ulong, size_t, void *, cl_int *)) \
    F(cl_int, clReleaseMemObject, (cl_handle)) \
    F(cl_int, clEnqueueFillBuffer, (cl_handle, cl_handle, const void *, size_t, size_t, size_t, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clEnqueueWriteBuffer, (cl_handle, cl_handle, cl_uint, size_t, size_t, const void *, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clEnqueueReadBuffer, (cl_handle, cl_handle, cl_uint, size_t, size_t, void *, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clEnqueueNDRangeKernel, (cl_handle, cl_handle, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clEnqueueMarkerWithWaitList, (cl_handle, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clEnqueueBarrierWithWaitList, (cl_handle, cl_uint, const cl_handle *, cl_handle *)) \
    F(cl_int, clWaitForEvents, (cl_uint, const cl_handle *)) \
    F(cl_int, clReleaseEvent, (cl_handle)) \
    F(cl_int, clFlush, (cl_handle)) \
    F(cl_int, clFinish, (cl_handle))

static struct {
#define F(ret, name, args) ret (*name) args;
    API(F)
#undef F
} cl;

static struct {
    pthread_mutex_t lock;
    bool tried;
    int n;
    cl_handle device[DEVICES_MAX];
    cl_handle platform[DEVICES_MAX];
} list = { .lock = PTHREAD_MUTEX_INITIALIZER };

struct bk_mem {
    cl_handle h;
    size_t size;
};

struct bk_kern {
    const char *name;
    unsigned items, nargs;
    cl_handle h;
};

struct bk_dev {
    char err[300];
    cl_handle device, context, program;
    bool part;                   /* device is a part of one, and ours to release */
    struct bk_kern kern[32];
    uint64_t used, limit, largest;
};

struct bk_queue {
    struct bk_dev *dev;
    cl_handle h;
};

static const struct { const char *name; unsigned items, nargs; } kernels[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, items, nargs },
#include "klist.def"
#undef KERNEL
};
enum { KERNELS = sizeof kernels / sizeof kernels[0] };

static bool api_load(void)
{
    void *so = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL)
        return false;
    bool all = true;
#define F(ret, name, args) \
    *(void **)(void *)&cl.name = dlsym(so, #name); \
    all = all && cl.name != NULL;
    API(F)
#undef F
    return all;                  /* stays open: drivers do not like to be unloaded */
}

static void list_load(void)
{
    cl_handle platform[16];
    cl_uint np = 0;

    if (!api_load() || cl.clGetPlatformIDs(16, platform, &np) != 0)
        return;
    for (cl_uint p = 0; p < np && p < 16; p++) {
        cl_handle d[DEVICES_MAX];
        cl_uint nd = 0;
        if (cl.clGetDeviceIDs(platform[p], (cl_ulong)(cl_uint)CL_DEVICE_TYPE_ALL, DEVICES_MAX, d, &nd) != 0)
            continue;
        for (cl_uint i = 0; i < nd && i < DEVICES_MAX && list.n < DEVICES_MAX; i++) {
            list.platform[list.n] = platform[p];
            list.device[list.n++] = d[i];
        }
    }
}

static int ocl_count(void)
{
    pthread_mutex_lock(&list.lock);
    if (!list.tried)
        list_load();
    list.tried = true;
    int n = list.n;
    pthread_mutex_unlock(&list.lock);
    return n;
}

static uint64_t number(cl_handle d, cl_uint what)
{
    uint64_t v = 0;
    return cl.clGetDeviceInfo(d, what, sizeof v, &v, NULL) == 0 ? v : 0;
}

static void string(cl_handle d, cl_uint what, char *out, size_t room)
{
    char text[4096] = "";

    cl.clGetDeviceInfo(d, what, sizeof text - 1, text, NULL);
    snprintf(out, room, "%s", text);
}

/* The bus address of a GPU, or its UUID; a CPU device has neither, and is named by its kind. */
static void identity(cl_handle d, int i, const char *name, char *out, size_t room)
{
    uint32_t bus[4];
    uint8_t uuid[16], amd[24];

    if (cl.clGetDeviceInfo(d, CL_DEVICE_PCI_BUS_INFO_KHR, sizeof bus, bus, NULL) == 0) {
        snprintf(out, room, "%04x:%02x:%02x.%x", bus[0], bus[1], bus[2], bus[3]);
        return;
    }
    if (cl.clGetDeviceInfo(d, CL_DEVICE_TOPOLOGY_AMD, sizeof amd, amd, NULL) == 0) {
        snprintf(out, room, "0000:%02x:%02x.%x", amd[21], amd[22], amd[23]);
        return;
    }
    if (number(d, CL_DEVICE_TYPE) != CL_DEVICE_TYPE_CPU &&
        cl.clGetDeviceInfo(d, CL_DEVICE_UUID_KHR, sizeof uuid, uuid, NULL) == 0) {
        size_t n = 0;
        for (int k = 0; k < 16; k++)
            n += (size_t)snprintf(out + n, room - n, "%02x", uuid[k]);
        return;
    }
    size_t n = (size_t)snprintf(out, room, "opencl-");
    for (const char *c = name; *c && n + 8 < room && n < 40; c++)
        out[n++] = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ? *c : '-';
    snprintf(out + n, room - n, "-%d", i);
}

/* NULL, or why results would not be ours on it. */
static const char *unfit(cl_handle d)
{
    char ext[4096];

    string(d, CL_DEVICE_EXTENSIONS, ext, sizeof ext);
    if (number(d, CL_DEVICE_DOUBLE_FP_CONFIG) == 0)
        return "no 64-bit floats";
    if ((number(d, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_DENORM) == 0)
        return "no denormals in single precision";
#ifndef BK_OCL_OCLGRIND          /* the checker computes exactly but does not say so */
    if ((number(d, CL_DEVICE_SINGLE_FP_CONFIG) & CL_FP_CORRECT_DIVIDE_SQRT) == 0)
        return "no correctly rounded division and square root";
#endif
    if (strstr(ext, "cl_khr_int64_base_atomics") == NULL)
        return "no 64-bit atomics";
    if (number(d, CL_DEVICE_LOCAL_MEM_SIZE) < NEED_LOCAL)
        return "less than 32 KiB of local memory";
    if (number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE) < 256)
        return "work groups of less than 256";
    return NULL;
}

static int ocl_describe(int i, struct bk_info *info, char *why, size_t room)
{
    char driver[100];
    const char *no;

    memset(info, 0, sizeof *info);
    info->numa = -1;
    if (i < 0 || i >= ocl_count()) {
        snprintf(why, room, list.n > 0 ? "no OpenCL device of that number"
                                       : "no OpenCL (libOpenCL.so.1) or no device of it");
        return -1;
    }
    cl_handle d = list.device[i];
    string(d, CL_DEVICE_NAME, info->name, sizeof info->name);
    identity(d, i, info->name, info->id, sizeof info->id);
    string(d, CL_DRIVER_VERSION, driver, sizeof driver);
    snprintf(info->driver, sizeof info->driver, "OpenCL driver %.40s", driver);
    snprintf(info->class, sizeof info->class, "%s", number(d, CL_DEVICE_TYPE) == CL_DEVICE_TYPE_CPU ? "cpu" : "gpu");
    info->memory = number(d, CL_DEVICE_GLOBAL_MEM_SIZE);
#ifndef BK_OCL_NARROW            /* a test wants them as a GPU has them */
    info->wide = number(d, CL_DEVICE_TYPE) == CL_DEVICE_TYPE_CPU && number(d, CL_DEVICE_LOCAL_MEM_SIZE) >= WIDE_LOCAL;
#endif
    no = unfit(d);
    if (no) {
        snprintf(why, room, "%s", no);
        return -1;
    }
    return 0;
}

static void ocl_close(struct bk_dev *d)
{
    if (d == NULL)
        return;
    for (unsigned i = 0; i < KERNELS; i++) {
        if (d->kern[i].h)
            cl.clReleaseKernel(d->kern[i].h);
    }
    if (d->program)
        cl.clReleaseProgram(d->program);
    if (d->context)
        cl.clReleaseContext(d->context);
    if (d->part)
        cl.clReleaseDevice(d->device);
    free(d);
}

static int build(struct bk_dev *d, bool wide, char *why, size_t room)
{
    const char *text = k_source;
    char log[2000] = "";
    cl_int rc;

    d->program = cl.clCreateProgramWithSource(d->context, 1, &text, NULL, &rc);
    if (d->program == NULL) {
        snprintf(why, room, "clCreateProgramWithSource: error %d", rc);
        return -1;
    }
    rc = cl.clBuildProgram(d->program, 1, &d->device, wide ? BUILD_OPTIONS " -DK_WIDE" : BUILD_OPTIONS, NULL, NULL);
    if (rc != 0) {
        cl.clGetProgramBuildInfo(d->program, d->device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, NULL);
        snprintf(why, room, "the kernels do not compile (error %d): %s", rc, log);
        return -1;
    }
    return 0;
}

/* The device, or as much of a CPU as so many threads are. */
static int take_device(struct bk_dev *d, int i, const struct bk_info *info, unsigned threads, char *why, size_t room)
{
    const intptr_t counts[] = { CL_DEVICE_PARTITION_BY_COUNTS, (intptr_t)threads, 0, 0 };
    cl_handle whole = list.device[i];

    d->device = whole;
    if (threads == 0 || strcmp(info->class, "cpu") != 0 || threads >= number(whole, CL_DEVICE_MAX_COMPUTE_UNITS))
        return 0;
    cl_int rc = cl.clCreateSubDevices(whole, counts, 1, &d->device, NULL);
    if (rc != 0) {
        snprintf(why, room, "%s cannot be held to %u threads (clCreateSubDevices: error %d)", info->id, threads, rc);
        return -1;
    }
    d->part = true;
    return 0;
}

static int ocl_open(int i, const struct bk_option *o, struct bk_dev **out, char *why, size_t room)
{
    struct bk_info info;
    cl_int rc;

    if (ocl_describe(i, &info, why, room) < 0)
        return -1;
    struct bk_dev *d = calloc(1, sizeof *d);
    if (d == NULL) {
        snprintf(why, room, "out of memory");
        return -1;
    }
    if (take_device(d, i, &info, o->threads, why, room) < 0) {
        ocl_close(d);
        return -1;
    }
    d->limit = o->memory_limit;
    d->largest = number(d->device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    d->context = cl.clCreateContext(NULL, 1, &d->device, NULL, NULL, &rc);
    if (d->context == NULL) {
        snprintf(why, room, "clCreateContext: error %d", rc);
        ocl_close(d);
        return -1;
    }
    if (build(d, info.wide, why, room) < 0) {
        ocl_close(d);
        return -1;
    }
    *out = d;
    return 0;
}

static const char *ocl_errstr(struct bk_dev *d)
{
    return d->err;
}

static int bad(struct bk_dev *d, const char *what, cl_int rc)
{
    snprintf(d->err, sizeof d->err, "%s: error %d", what, rc);
    return -1;
}

static struct bk_mem *ocl_alloc(struct bk_dev *d, size_t size)
{
    cl_int rc = 0;

    if (d->limit && (size > d->limit || d->used > d->limit - size)) {
        snprintf(d->err, sizeof d->err, "%zu bytes wanted, %llu of %llu are taken", size,
                 (unsigned long long)d->used, (unsigned long long)d->limit);
        return NULL;
    }
    if (size > d->largest) {
        snprintf(d->err, sizeof d->err, "%zu bytes wanted, the device gives %llu at most at a time", size,
                 (unsigned long long)d->largest);
        return NULL;
    }
    struct bk_mem *m = calloc(1, sizeof *m);
    if (m)
        m->h = cl.clCreateBuffer(d->context, CL_MEM_READ_WRITE, size ? size : 1, NULL, &rc);
    if (m == NULL || m->h == NULL) {
        snprintf(d->err, sizeof d->err, "no device memory for %zu bytes (error %d)", size, rc);
        free(m);
        return NULL;
    }
    m->size = size;
    d->used += size;
    return m;
}

static void ocl_free(struct bk_dev *d, struct bk_mem *m)
{
    if (m == NULL)
        return;
    d->used -= m->size;
    cl.clReleaseMemObject(m->h);
    free(m);
}

static int ocl_host_register(struct bk_dev *d, const void *p, size_t size, int read_only)
{
    (void)p, (void)size, (void)read_only;
    snprintf(d->err, sizeof d->err, "OpenCL 1.2 cannot pin memory of others");
    return -1;
}

static int ocl_host_unregister(struct bk_dev *d, const void *p)
{
    (void)d, (void)p;
    return 0;
}

static struct bk_kern *ocl_kern(struct bk_dev *d, const char *name)
{
    cl_int rc;

    for (unsigned i = 0; i < KERNELS; i++) {
        struct bk_kern *k = &d->kern[i];
        if (strcmp(kernels[i].name, name) != 0)
            continue;
        if (k->h == NULL) {
            k->h = cl.clCreateKernel(d->program, name, &rc);
            if (k->h == NULL) {
                snprintf(d->err, sizeof d->err, "kernel %s: error %d", name, rc);
                return NULL;
            }
            k->name = kernels[i].name;
            k->items = kernels[i].items;
            k->nargs = kernels[i].nargs;
        }
        return k;
    }
    snprintf(d->err, sizeof d->err, "no kernel %s", name);
    return NULL;
}

static struct bk_queue *ocl_queue_new(struct bk_dev *d)
{
    cl_int rc = 0;
    struct bk_queue *q = calloc(1, sizeof *q);

    if (q)
        q->h = cl.clCreateCommandQueue(d->context, d->device, 0, &rc);
    if (q == NULL || q->h == NULL) {
        bad(d, "clCreateCommandQueue", rc);
        free(q);
        return NULL;
    }
    q->dev = d;
    return q;
}

static void ocl_queue_free(struct bk_queue *q)
{
    if (q == NULL)
        return;
    cl.clFinish(q->h);
    cl.clReleaseCommandQueue(q->h);
    free(q);
}

static int ocl_fill0(struct bk_queue *q, struct bk_mem *m, size_t offset, size_t size)
{
    const uint32_t zero = 0;
    size_t unit = offset % 4 || size % 4 ? 1 : 4;
    cl_int rc = cl.clEnqueueFillBuffer(q->h, m->h, &zero, unit, offset, size, 0, NULL, NULL);
    return rc == 0 ? 0 : bad(q->dev, "clEnqueueFillBuffer", rc);
}

static int ocl_h2d(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p, size_t size)
{
    cl_int rc = cl.clEnqueueWriteBuffer(q->h, m->h, 0, offset, size, p, 0, NULL, NULL);
    return rc == 0 ? 0 : bad(q->dev, "clEnqueueWriteBuffer", rc);
}

static int ocl_d2h(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size)
{
    cl_int rc = cl.clEnqueueReadBuffer(q->h, m->h, 0, offset, size, p, 0, NULL, NULL);
    return rc == 0 ? 0 : bad(q->dev, "clEnqueueReadBuffer", rc);
}

static int ocl_launch(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs,
                      const struct bk_arg *args)
{
    size_t local = k->items, global = (size_t)groups * local;
    cl_int rc = 0;

    if (nargs != k->nargs) {
        snprintf(q->dev->err, sizeof q->dev->err, "kernel %s takes %u arguments, %u given", k->name, k->nargs, nargs);
        return -1;
    }
    for (unsigned i = 0; i < nargs && rc == 0; i++)
        rc = args[i].mem ? cl.clSetKernelArg(k->h, i, sizeof args[i].mem->h, &args[i].mem->h)
                         : cl.clSetKernelArg(k->h, i, args[i].size, args[i].value);
    if (rc == 0)
        rc = cl.clEnqueueNDRangeKernel(q->h, k->h, 1, NULL, &global, &local, 0, NULL, NULL);
    return rc == 0 ? 0 : bad(q->dev, k->name, rc);
}

static struct bk_event *ocl_record(struct bk_queue *q)
{
    cl_handle ev = NULL;
    cl_int rc = cl.clEnqueueMarkerWithWaitList(q->h, 0, NULL, &ev);
    if (rc == 0)
        rc = cl.clFlush(q->h);   /* or another queue could wait for it for ever */
    if (rc != 0)
        bad(q->dev, "clEnqueueMarkerWithWaitList", rc);
    return (struct bk_event *)ev;
}

static int ocl_wait_for(struct bk_queue *q, struct bk_event *e)
{
    cl_handle ev = e;
    cl_int rc = cl.clEnqueueBarrierWithWaitList(q->h, 1, &ev, NULL);
    return rc == 0 ? 0 : bad(q->dev, "clEnqueueBarrierWithWaitList", rc);
}

static int ocl_event_wait(struct bk_queue *q, struct bk_event *e)
{
    cl_handle ev = e;
    cl_int rc = cl.clWaitForEvents(1, &ev);
    return rc == 0 ? 0 : bad(q->dev, "clWaitForEvents", rc);
}

static void ocl_event_free(struct bk_event *e)
{
    if (e)
        cl.clReleaseEvent(e);
}

static int ocl_wait(struct bk_queue *q)
{
    cl_int rc = cl.clFinish(q->h);
    return rc == 0 ? 0 : bad(q->dev, "clFinish", rc);
}

const struct bk_ops *bk_entry(void)
{
    static const struct bk_ops ops = {
        .abi = BK_ABI, .source = K_SOURCE_HASH, .name = "opencl", .async = 1, .count = ocl_count,
        .describe = ocl_describe,
        .open = ocl_open, .close = ocl_close, .errstr = ocl_errstr, .alloc = ocl_alloc,
        .free = ocl_free, .host_register = ocl_host_register,
        .host_unregister = ocl_host_unregister, .kern = ocl_kern, .queue_new = ocl_queue_new,
        .queue_free = ocl_queue_free, .fill0 = ocl_fill0, .h2d = ocl_h2d, .d2h = ocl_d2h,
        .launch = ocl_launch, .record = ocl_record, .wait_for = ocl_wait_for,
        .event_wait = ocl_event_wait, .event_free = ocl_event_free, .wait = ocl_wait,
    };
    return &ops;
}
