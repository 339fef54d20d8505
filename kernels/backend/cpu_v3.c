/* cpu_v3.c - the kernels for x86-64-v3 (AVX2); the same bits as the baseline, faster
 *
 * The instruction set is chosen here and not on the command line, so that a plain compiler call
 * builds both. Contraction stays off: AVX2 brings fused operations along.
 */
/* The loops want -O3 whatever the tree is built with; a build without optimisation stays one. */
#if defined(__OPTIMIZE__) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
#if defined(__x86_64__)
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,popcnt"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,popcnt")
#endif
#define K_SYM(name) name##_v3
#include "all.k"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#else
#define K_SYM(name) name##_v3
#include "all.k"
#endif

#include "cpu_kernels.h"

const struct cpu_kernel cpu_kernels_v3[] = {
#define KERNEL(name, items, nargs, kinds, what) { #name, items, nargs, K_SYM(name) },
#include "klist.def"
#undef KERNEL
    { 0 },
};
