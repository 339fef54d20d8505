/* kmath_test.c - the square root for devices whose own may be off by the last bit: whatever theirs says, ours is that of IEEE 754 */
#include "kernels_help.h"

#include <math.h>

#include "kdef.h"

static int off;                  /* what the device is off by, in last bits */

static f32 near(f32 x)
{
    f32 s = sqrtf(x);
    return s > 0.0f && s < INFINITY ? K_ASF(K_ASU(s) + (u32)off) : s;
}
#define K_SQRT_NEAR(x) near(x)
#include "ksqrt.inc"

static void one(u32 bits)
{
    f32 x = K_ASF(bits);
    u32 want = K_ASU(sqrtf(x));

    for (off = -1; off <= 1; off++) {
        u32 found = K_ASU(k_sqrt_exact(x));
        if (found != want)
            fail_msg("sqrt of %08x, off by %d: %08x, want %08x", bits, off, found, want);
    }
}

static void test_sqrt(void **state)
{
    (void)state;
    u32 bits = 1;

    for (u32 i = 0; i < 2000000; i++) {
        bits = bits * 1664525u + 1013904223u;
        if ((bits & 0x7fffffffu) < 0x7f800000u)
            one(bits & 0x7fffffffu);
    }
    for (u32 e = 0; e < 255; e++) {          /* the ends of every binade, the denormals' too */
        for (u32 m = 0; m < 64; m++) {
            one(e << 23 | m);
            one(e << 23 | (0x7fffffu - m));
        }
    }
    for (u32 n = 1; n < 4096; n++) {         /* squares, and their neighbours */
        u32 square = K_ASU((f32)(n * n));
        one(square - 1);
        one(square);
        one(square + 1);
    }
    one(0x7f800000u);
    one(0x80000000u);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sqrt) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
