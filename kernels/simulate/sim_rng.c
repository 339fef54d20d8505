/* sim_rng.c - random numbers and elementary functions of the simulator
 *
 * From: seeds.  To: all of simulate/.
 * Nothing here may call a function of libm but sqrt, which is exact.
 */
#include "sim_rng.h"

#include <math.h>
#include <string.h>

#define LN2_HIGH 0x1.62e42fefap-1            /* the first 33 bits: k * LN2_HIGH is exact */
#define LN2_LOW  0x1.cf79abc9e3b39p-40
#define ZIG_END  3.442619855899              /* where the tail begins, 128 layers */
#define ZIG_AREA 9.91256303526217e-3         /* of each layer */

static uint64_t bits_of(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

static double of_bits(uint64_t u)
{
    double x;
    memcpy(&x, &u, 8);
    return x;
}

/* x = 2^k m with m around 1; log m = 2 atanh((m - 1) / (m + 1)). */
double sim_log(double x)
{
    uint64_t u = bits_of(x);
    int k = (int)(u >> 52 & 0x7ff) - 1023;
    double m = of_bits((u & UINT64_C(0xfffffffffffff)) | UINT64_C(1023) << 52);

    if (m > 1.4142135623730951) {
        m /= 2;
        k++;
    }
    double s = (m - 1) / (m + 1), q = s * s, sum = 0;
    for (int i = 21; i >= 1; i -= 2)
        sum = sum * q + 2.0 / i;
    return k * LN2_HIGH + (s * sum + k * LN2_LOW);
}

double sim_exp(double x)
{
    double turns = x * 1.4426950408889634;
    int k = (int)(turns < 0 ? turns - 0.5 : turns + 0.5);
    double r = (x - k * LN2_HIGH) - k * LN2_LOW, sum = 1;

    for (int i = 14; i >= 1; i--)
        sum = 1 + sum * r / i;
    return sum * of_bits((uint64_t)(1023 + k) << 52);
}

double sim_pow(double x, double y)
{
    return sim_exp(y * sim_log(x));
}

/* To a quarter turn, then the series. */
void sim_sincos(double x, double *sine, double *cosine)
{
    double quarters = x * 0.63661977236758134;
    int k = (int)(quarters < 0 ? quarters - 0.5 : quarters + 0.5);
    double r = (x - k * 0x1.921fb544p0) - k * 0x1.0b4611a626331p-34, q = r * r;
    double s = 1, c = 1;

    for (int i = 18; i >= 2; i -= 2) {
        s = 1 - s * q / (i * (i + 1));
        c = 1 - c * q / (i * (i - 1));
    }
    s *= r;
    *sine = k & 1 ? c : s;
    *cosine = k & 1 ? s : c;
    if (k & 2)
        *sine = -*sine;
    if ((k + 1) & 2)
        *cosine = -*cosine;
}

static uint64_t mix(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void sim_rng_init(struct sim_rng *r, uint64_t seed, uint64_t tf, uint64_t what, uint64_t number)
{
    uint64_t state = seed;

    state = mix(&state) ^ tf;
    state = mix(&state) ^ what;
    state = mix(&state) ^ number;
    for (int i = 0; i < 4; i++)
        r->s[i] = mix(&state);
}

void sim_normal_init(struct sim_normal *t)
{
    double f = sim_exp(-0.5 * ZIG_END * ZIG_END);

    t->x[0] = ZIG_AREA / f;
    t->x[1] = ZIG_END;
    t->x[128] = 0;
    for (int i = 2; i < 128; i++) {
        t->x[i] = sqrt(-2 * sim_log(ZIG_AREA / t->x[i - 1] + f));
        f = sim_exp(-0.5 * t->x[i] * t->x[i]);
    }
    for (int i = 0; i < 128; i++)
        t->ratio[i] = t->x[i + 1] / t->x[i];
}

static double tail(struct sim_rng *r)
{
    double x, y;

    do {
        x = sim_exponential(r) / ZIG_END;
        y = sim_exponential(r);
    } while (2 * y < x * x);
    return ZIG_END + x;
}

/* The tail, and the corners of a layer that stick out of the curve. */
double sim_normal_slow(const struct sim_normal *t, struct sim_rng *r, double u, unsigned layer)
{
    if (layer == 0)
        return u < 0 ? -tail(r) : tail(r);
    double x = u * t->x[layer], a = t->x[layer], b = t->x[layer + 1];
    double low = sim_exp(-0.5 * (a * a - x * x)), high = sim_exp(-0.5 * (b * b - x * x));
    if (high + sim_uniform(r) * (low - high) < 1)
        return x;
    return sim_normal(t, r);
}

double sim_exponential(struct sim_rng *r)
{
    return -sim_log(sim_uniform(r));
}

static unsigned poisson_small(struct sim_rng *r, double mean)
{
    double limit = sim_exp(-mean), product = sim_uniform(r);
    unsigned n = 0;

    while (product > limit) {
        product *= sim_uniform(r);
        n++;
    }
    return n;
}

/* A sum of Poisson numbers is one: a large mean goes in pieces. */
unsigned sim_poisson(struct sim_rng *r, double mean)
{
    unsigned n = 0;

    for (; mean > 16; mean -= 16)
        n += poisson_small(r, 16);
    return mean > 0 ? n + poisson_small(r, mean) : n;
}

double sim_gamma(const struct sim_normal *t, struct sim_rng *r, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);

    for (;;) {
        double x = sim_normal(t, r), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        double u = sim_uniform(r), q = x * x;
        if (u < 1 - 0.0331 * q * q ||
            sim_log(u) < 0.5 * q + d * (1 - v + sim_log(v)))
            return d * v;
    }
}
