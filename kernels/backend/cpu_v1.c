/* cpu_v1.c - the kernels for the baseline of the architecture */
/* The loops want -O3 whatever the tree is built with; a build without optimisation stays one. */
#if defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#define K_SYM(name) name##_v1
#include "all.k"

#include "cpu_kernels.h"

const struct cpu_kernel cpu_kernels_v1[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, items, nargs, K_SYM(name) },
#include "klist.def"
#undef KERNEL
    { 0 },
};
