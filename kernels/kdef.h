/* kdef.h - the dialect in which every kernel is written once
 *
 * One source, five targets: the C compiler (baseline and x86-64-v3), the emulated device
 * (K_EMU: shuffled items on several threads, for hunting races), OpenCL C, CUDA and HIP.
 * A kernel is a sequence of phases; a barrier ends each phase:
 *
 *     K_DEF2(k_name, 64, K_GLOBAL u32 *, out, u32, n)
 *     {
 *         K_LOCALVAR u32 sum;              memory of the group; outermost scope only
 *         K_ITEMS(i, 64) { ... continue; ... } K_END_ITEMS
 *         K_ITEMS(i, 64) { ... } K_END_ITEMS
 *     }
 *
 * On a CPU a phase is a loop over the items of the group, on a GPU one trip and a barrier, so
 * `continue` means "this item is done with this phase" everywhere. Rules: the common subset of
 * C99 and C++14; no return or goto across a phase border; outside phases only code that is the
 * same for all items; a read of group memory there needs a barrier before the next write;
 * integers or fixed trees for sums over items, never float atomics; no NaN in results.
 */
#ifndef KDEF_H
#define KDEF_H

#if defined(__HIP__)
#define K_ON_HIP 1
#elif defined(__CUDACC__)
#define K_ON_CUDA 1
#elif defined(__OPENCL_C_VERSION__) || defined(__OPENCL_VERSION__)
#define K_ON_OCL 1
#else
#define K_ON_CPU 1
#endif

/* ---- OpenCL C ------------------------------------------------------------------------------ */
#if defined(K_ON_OCL)
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef float f32;
typedef double f64;
#define K_GLOBAL __global
#define K_LOCALP __local
#define K_LOCALVAR __local
#define K_CONST __constant
#define K_RESTRICT restrict
#define K_FN static inline
#define K_GROUP ((u32)get_group_id(0))
#define K_ITEM ((u32)get_local_id(0))
#define K_BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define K_ATOMIC_ADD_G(p, v) atomic_add((volatile __global u32 *)(p), (u32)(v))
#define K_ATOMIC_ADD_L(p, v) atomic_add((volatile __local u32 *)(p), (u32)(v))
#define K_SQRT(x) sqrt(x)
#define K_DIV(a, b) ((a) / (b))
#define K_FMA(a, b, c) fma(a, b, c)
#define K_ASU(x) as_uint(x)
#define K_ASF(x) as_float(x)
#define K_KERNEL(name, lsz) __kernel __attribute__((reqd_work_group_size(lsz, 1, 1))) void name

/* ---- CUDA and HIP -------------------------------------------------------------------------- */
#elif defined(K_ON_CUDA) || defined(K_ON_HIP)
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef float f32;
typedef double f64;
#define K_GLOBAL
#define K_LOCALP
#define K_RESTRICT __restrict__
#if defined(K_ON_CUDA)
#define K_LOCALVAR __shared__
#define K_CONST static __device__ const
#define K_FN static __device__ __forceinline__
#define K_GROUP ((u32)blockIdx.x)
#define K_ITEM ((u32)threadIdx.x)
#define K_BARRIER __syncthreads()
#define K_ATOMIC_ADD_G(p, v) atomicAdd((u32 *)(p), (u32)(v))
#define K_SQRT(x) __fsqrt_rn(x)
#define K_DIV(a, b) __fdiv_rn(a, b)
#define K_FMA(a, b, c) __fmaf_rn(a, b, c)
#define K_ASU(x) __float_as_uint(x)
#define K_ASF(x) __uint_as_float(x)
#define K_KERNEL(name, lsz) extern "C" __global__ __launch_bounds__(lsz) void name
#else
/* The compiler's own words only: any clang with the target amdgcn does, without headers and libraries of HIP. */
#pragma clang fp contract(off)
#define K_LOCALVAR __attribute__((shared))
#define K_CONST static __attribute__((device)) const
#define K_FN static inline __attribute__((device, always_inline, unused))
#define K_GROUP ((u32)__builtin_amdgcn_workgroup_id_x())
#define K_ITEM ((u32)__builtin_amdgcn_workitem_id_x())
#define K_BARRIER do { \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); \
        __builtin_amdgcn_s_barrier(); \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup"); \
    } while (0)
#define K_ATOMIC_ADD_G(p, v) __atomic_fetch_add((u32 *)(p), (u32)(v), __ATOMIC_RELAXED)
#define K_DIV(a, b) ((a) / (b))
#define K_FMA(a, b, c) __builtin_fmaf(a, b, c)
#define K_ASU(x) __builtin_bit_cast(u32, x)
#define K_ASF(x) __builtin_bit_cast(f32, x)
#define K_SQRT_NEAR(x) __builtin_amdgcn_sqrtf(x)
#include "ksqrt.inc"
#define K_SQRT(x) k_sqrt_exact(x)
#define K_KERNEL(name, lsz) extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, lsz))) void name
#endif
#define K_ATOMIC_ADD_L(p, v) K_ATOMIC_ADD_G(p, v)

/* ---- the C compiler ------------------------------------------------------------------------ */
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef long long i64;
typedef float f32;
typedef double f64;
#define K_GLOBAL
#define K_LOCALP
#define K_CONST static const
#define K_RESTRICT restrict
#define K_FN static inline __attribute__((always_inline, unused))
#define K_SQRT(x) sqrtf(x)
#define K_DIV(a, b) ((a) / (b))
#define K_FMA(a, b, c) fmaf(a, b, c)

static inline u32 k_asu(f32 x)
{
    u32 u;
    memcpy(&u, &x, 4);
    return u;
}

static inline f32 k_asf(u32 u)
{
    f32 x;
    memcpy(&x, &u, 4);
    return x;
}
#define K_ASU(x) k_asu(x)
#define K_ASF(x) k_asf(x)

/* Which group of how many this call is; the emulated device also says which of its threads. */
struct k_ctx {
    u32 group, ngroups;
    u32 thread, nthreads;
    u64 seed;                    /* 0: items in their natural order */
    void *barrier;
};
#define K_GROUP (k_cx->group)
#define K_ATOMIC_ADD_G(p, v) __atomic_fetch_add((u32 *)(p), (u32)(v), __ATOMIC_RELAXED)

#ifdef K_EMU
void k_emu_barrier(const struct k_ctx *cx);
u32 k_emu_item(const struct k_ctx *cx, u32 j, u32 n);   /* the j-th item this thread does */
#define K_LOCALVAR static
#define K_ATOMIC_ADD_L(p, v) __atomic_fetch_add((u32 *)(p), (u32)(v), __ATOMIC_RELAXED)
#define K_ITEMS(i, n) \
    for (u32 k_j = k_cx->thread; k_j < (n); k_j += k_cx->nthreads) { \
        u32 i = k_emu_item(k_cx, k_j, (n));
#define K_END_ITEMS } k_emu_barrier(k_cx);
#else
#define K_LOCALVAR
static inline u32 k_add_l(u32 *p, u32 v)
{
    u32 old = *p;
    *p += v;
    return old;
}
#define K_ATOMIC_ADD_L(p, v) k_add_l(p, (u32)(v))
#define K_SERIAL 1               /* one thread does a whole group */
#define K_ITEMS(i, n) for (u32 i = 0; i < (n); i++) {
#define K_ITEMS_OF(i, n, m) for (u32 i = 0; i < (m); i++) {
#define K_END_ITEMS }
#endif

#ifndef K_SYM
#define K_SYM(name) name
#endif
#define K_CTX __attribute__((unused)) const struct k_ctx *
#define K_A(t, n) (*(t *)k_a[n])
#define K_BODY(name, params, args) \
    K_FN void name##_body params; \
    void K_SYM(name)(const struct k_ctx *k_cx, void **k_a); \
    void K_SYM(name)(const struct k_ctx *k_cx, void **k_a) { name##_body args; } \
    K_FN void name##_body params
#define K_DEF3(name, lsz, t0, a0, t1, a1, t2, a2) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2), (k_cx, K_A(t0, 0), \
        K_A(t1, 1), K_A(t2, 2)))
#define K_DEF4(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3), (k_cx, K_A(t0, \
        0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3)))
#define K_DEF5(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4), (k_cx, \
        K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3), K_A(t4, 4)))
#define K_DEF6(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5), \
        (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3), K_A(t4, 4), K_A(t5, 5)))
#define K_DEF7(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6), (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3), K_A(t4, 4), \
        K_A(t5, 5), K_A(t6, 6)))
#define K_DEF8(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, a7) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6, t7 a7), (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3), K_A(t4, 4), \
        K_A(t5, 5), K_A(t6, 6), K_A(t7, 7)))
#define K_DEF9(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, a7, \
        t8, a8) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6, t7 a7, t8 a8), (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, 3), \
        K_A(t4, 4), K_A(t5, 5), K_A(t6, 6), K_A(t7, 7), K_A(t8, 8)))
#define K_DEF10(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6, t7 a7, t8 a8, t9 a9), (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), K_A(t3, \
        3), K_A(t4, 4), K_A(t5, 5), K_A(t6, 6), K_A(t7, 7), K_A(t8, 8), K_A(t9, 9)))
#define K_DEF11(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9, t10, a10) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6, t7 a7, t8 a8, t9 a9, t10 a10), (k_cx, K_A(t0, 0), K_A(t1, 1), K_A(t2, 2), \
        K_A(t3, 3), K_A(t4, 4), K_A(t5, 5), K_A(t6, 6), K_A(t7, 7), K_A(t8, 8), K_A(t9, \
        9), K_A(t10, 10)))
#define K_DEF12(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9, t10, a10, t11, a11) \
    K_BODY(name, (K_CTX k_cx, t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, \
        t6 a6, t7 a7, t8 a8, t9 a9, t10 a10, t11 a11), (k_cx, K_A(t0, 0), K_A(t1, 1), \
        K_A(t2, 2), K_A(t3, 3), K_A(t4, 4), K_A(t5, 5), K_A(t6, 6), K_A(t7, 7), K_A(t8, \
        8), K_A(t9, 9), K_A(t10, 10), K_A(t11, 11)))
#endif

/* The first m of the n items of a group; m is the same for all. */
#ifndef K_ITEMS_OF
#define K_ITEMS_OF(i, n, m) K_ITEMS(i, n) if (i >= (m)) continue;
#endif

/* ---- the GPU targets alike ----------------------------------------------------------------- */
#ifndef K_ON_CPU
#define K_ITEMS(i, n) { u32 i = K_ITEM; do {
#define K_END_ITEMS } while (0); } K_BARRIER;
#define K_DEF3(name, lsz, t0, a0, t1, a1, t2, a2) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2)
#define K_DEF4(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3)
#define K_DEF5(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4)
#define K_DEF6(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5)
#define K_DEF7(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6)
#define K_DEF8(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, a7) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7)
#define K_DEF9(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, a7, \
        t8, a8) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8)
#define K_DEF10(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, t9 a9)
#define K_DEF11(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9, t10, a10) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, \
        t9 a9, t10 a10)
#define K_DEF12(name, lsz, t0, a0, t1, a1, t2, a2, t3, a3, t4, a4, t5, a5, t6, a6, t7, \
        a7, t8, a8, t9, a9, t10, a10, t11, a11) \
    K_KERNEL(name, lsz)(t0 a0, t1 a1, t2 a2, t3 a3, t4 a4, t5 a5, t6 a6, t7 a7, t8 a8, \
        t9 a9, t10 a10, t11 a11)
#endif

#endif
