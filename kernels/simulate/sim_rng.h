/* sim_rng.h - random numbers and elementary functions of the simulator
 *
 * The same seed gives the same numbers with every compiler: integers only in the generator
 * (xoshiro256++, Blackman and Vigna 2018, seeded through splitmix64), and of floating point only
 * what IEEE 754 fixes to the last bit: + - * / and the square root. Logarithm, exponential and
 * sine are our own series; libm's, whose last bits differ from one to the next, are not used.
 */
#ifndef SIM_RNG_H
#define SIM_RNG_H

#include <stdint.h>

struct sim_rng {
    uint64_t s[4];
};

/* Tables of the normal distribution (Marsaglia and Tsang's ziggurat, 128 layers). */
struct sim_normal {
    double x[129], ratio[128];
};

void sim_normal_init(struct sim_normal *t);

/* An own stream for each (seed, TF, what, number). */
void sim_rng_init(struct sim_rng *r, uint64_t seed, uint64_t tf, uint64_t what, uint64_t number);

static inline uint64_t sim_bits(struct sim_rng *r)
{
    uint64_t *s = r->s, sum = s[0] + s[3], t = s[1] << 17;
    uint64_t out = (sum << 23 | sum >> 41) + s[0];

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return out;
}

/* In (0, 1): never either end. */
static inline double sim_uniform(struct sim_rng *r)
{
    return ((double)(sim_bits(r) >> 12) + 0.5) * (1.0 / 4503599627370496.0);
}

/* From 0 to n - 1. */
static inline uint32_t sim_below(struct sim_rng *r, uint32_t n)
{
    return (uint32_t)(((sim_bits(r) >> 32) * n) >> 32);
}

double sim_normal_slow(const struct sim_normal *t, struct sim_rng *r, double u, unsigned layer);

/* Mean 0, deviation 1. */
static inline double sim_normal(const struct sim_normal *t, struct sim_rng *r)
{
    uint64_t b = sim_bits(r);
    unsigned layer = (unsigned)(b & 127);
    double u = ((double)(b >> 12) + 0.5) * (2.0 / 4503599627370496.0) - 1.0;

    if ((u < 0 ? -u : u) < t->ratio[layer])
        return u * t->x[layer];
    return sim_normal_slow(t, r, u, layer);
}

double sim_exponential(struct sim_rng *r);                     /* mean 1 */
unsigned sim_poisson(struct sim_rng *r, double mean);
/* Gamma distribution of that shape (>= 1), mean = shape. Marsaglia and Tsang 2000. */
double sim_gamma(const struct sim_normal *t, struct sim_rng *r, double shape);

double sim_log(double x);                                      /* x > 0, normal */
double sim_exp(double x);                                      /* |x| < 700 */
double sim_pow(double x, double y);                            /* x > 0 */
void sim_sincos(double x, double *sine, double *cosine);       /* |x| < 1e5 */

#endif
