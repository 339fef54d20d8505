/* random.h - random numbers of the simulator: the same for a seed wherever it runs */
#ifndef RANDOM_H
#define RANDOM_H

#include <math.h>
#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood 2014): any seed is a good one. */
struct random {
    uint64_t state;
};

static inline uint64_t random_u64(struct random *r)
{
    uint64_t z = r->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* In (0, 1). */
static inline double random_unit(struct random *r)
{
    return ((double)(random_u64(r) >> 11) + 0.5) * 0x1p-53;
}

static inline double random_gauss(struct random *r)
{
    return sqrt(-2 * log(random_unit(r))) * cos(2 * M_PI * random_unit(r));
}

static inline double random_exp(struct random *r, double mean)
{
    return -mean * log(random_unit(r));
}

/* Small means only: the time grows with the mean. */
static inline unsigned random_poisson(struct random *r, double mean)
{
    double limit = exp(-mean), p = random_unit(r);
    unsigned n = 0;
    while (p > limit && n < 10000) {
        p *= random_unit(r);
        n++;
    }
    return n;
}

/* Gamma of a shape of at least 1, mean 1 (Marsaglia and Tsang 2000). */
static inline double random_gamma(struct random *r, double shape)
{
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = random_gauss(r), v = 1 + c * x;
        if (v <= 0)
            continue;
        v = v * v * v;
        if (log(random_unit(r)) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v / shape;
    }
}

#endif
