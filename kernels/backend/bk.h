/* bk.h - what a backend offers: devices, memory, queues, kernels
 *
 * One symbol per plugin: const struct bk_ops *bk_entry(void). All functions returning int say 0
 * or -1 and leave the reason in errstr() of the device. One thread at a time per device. Queues
 * are in order; h2d, d2h, fill0 and launch may return before the work is done, wait() and
 * event_wait() do not.
 */
#ifndef BK_H
#define BK_H

#include <stddef.h>
#include <stdint.h>

#define BK_ABI 4u                 /* grows with every change of what stands below */

struct bk_dev;
struct bk_mem;
struct bk_kern;
struct bk_queue;
struct bk_event;

struct bk_info {
    char name[128];              /* as the driver says */
    char id[64];                 /* UUID, PCI address or serial; never only an index */
    char class[32];              /* gfx906, sm_90, x86-64-v3, ... */
    char driver[64];
    uint64_t memory;             /* bytes; 0 = not known */
    int numa;                    /* node, -1 = not known */
    int wide;                    /* its kernels are made with K_WIDE or K_SERIAL (ktypes.h) */
};

struct bk_option {
    unsigned threads;            /* of a CPU device; 0 = as many as the process may use */
    const char *isa;             /* of the CPU backend: NULL, "v1" or "v3" */
    uint64_t memory_limit;       /* 0 = none; else alloc() beyond it in all fails */
};

struct bk_arg {
    struct bk_mem *mem;          /* a buffer, or */
    const void *value;           /* a value of */
    size_t size;                 /* so many bytes */
};

struct bk_ops {
    unsigned abi;                /* the first in every version */
    const char *source;          /* of a plugin: the hash of the kernels it was made from */
    const char *name;
    int async;                   /* a copy on one queue runs beside a kernel on another */
    int (*count)(void);          /* devices; 0 without a driver */
    int (*describe)(int i, struct bk_info *info, char *why, size_t room);
    int (*open)(int i, const struct bk_option *o, struct bk_dev **d, char *why, size_t room);
    void (*close)(struct bk_dev *d);
    const char *(*errstr)(struct bk_dev *d);
    struct bk_mem *(*alloc)(struct bk_dev *d, size_t size);
    void (*free)(struct bk_dev *d, struct bk_mem *m);
    /* Pins memory of the caller's, so that copies from it need no detour. */
    int (*host_register)(struct bk_dev *d, const void *p, size_t size, int read_only);
    int (*host_unregister)(struct bk_dev *d, const void *p);
    /* Pinned memory of the driver's; NULL where there is none. */
    void *(*host_alloc)(struct bk_dev *d, size_t size);
    void (*host_free)(struct bk_dev *d, void *p);
    struct bk_kern *(*kern)(struct bk_dev *d, const char *name);
    struct bk_queue *(*queue_new)(struct bk_dev *d);
    void (*queue_free)(struct bk_queue *q);
    int (*fill0)(struct bk_queue *q, struct bk_mem *m, size_t offset, size_t size);
    int (*h2d)(struct bk_queue *q, struct bk_mem *m, size_t offset, const void *p, size_t size);
    int (*d2h)(struct bk_queue *q, void *p, struct bk_mem *m, size_t offset, size_t size);
    int (*launch)(struct bk_queue *q, struct bk_kern *k, uint32_t groups, unsigned nargs,
                  const struct bk_arg *args);
    struct bk_event *(*record)(struct bk_queue *q);
    int (*wait_for)(struct bk_queue *q, struct bk_event *e);
    int (*event_wait)(struct bk_queue *q, struct bk_event *e);
    void (*event_free)(struct bk_event *e);
    int (*wait)(struct bk_queue *q);
};

const struct bk_ops *bk_cpu_entry(void);
const struct bk_ops *bk_entry(void);         /* of a plugin */

#endif
