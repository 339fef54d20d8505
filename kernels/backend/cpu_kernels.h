/* cpu_kernels.h - the table of kernels as compiled for a processor */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

struct k_ctx;

typedef void (*cpu_kernel_fn)(const struct k_ctx *cx, void **args);

struct cpu_kernel {
    const char *name;
    unsigned items, nargs;
    cpu_kernel_fn fn;
};

extern const struct cpu_kernel cpu_kernels_v1[], cpu_kernels_v3[];   /* end: name NULL */

#endif
