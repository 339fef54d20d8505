/* simulate_test.c - the simulator: random numbers, the reference's distributions, truth, sizes, the same bytes for a seed
 *
 *   simulate_test             runs the tests
 *   simulate_test FILE...     prints the figures of each TF of the files, as tests/data/simulate-reference.txt has them
 */
#include "sim_stats.h"

#include "kgeo_help.h"
#include "result.h"
#include "simulate/simulate.h"

static struct simulate_conf conf_of(uint64_t seed, uint32_t tracks, uint32_t bins, uint32_t orbits)
{
    return (struct simulate_conf){ .seed = seed, .tracks = tracks, .bins = bins, .orbits = orbits, .tf = 1,
                                   .first_orbit = 128, .counter = 1, .run = 1, .noise = SIMULATE_NOISE };
}

/* Simulates, encodes, runs the pages through `p` and holds the digits against those simulated. */
static struct tf make(const struct simulate_conf *c, struct simulate_tf *s, struct pipeline *p, struct pipeline_result *r)
{
    struct tf tf;
    void *out = NULL, *digits;
    size_t size;
    struct k_err e;

    if (simulate_run(c, s, &e) < 0 || simulate_encode(s, NULL, &out, &tf.size, &e) < 0)
        fail_msg("%s", e.text);
    tf.data = out;
    if (run_tf(p, &tf, r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(simulate_digits(s, &digits, &size, &e), 0);
    assert_int_equal(size, r->out[0].size);
    assert_memory_equal(digits, r->out[0].data, size);
    free(digits);
    return tf;
}

/* ---- numbers ------------------------------------------------------------------------------- */

static void test_functions(void **state)
{
    (void)state;
    uint64_t seed = seed_of(3);

    for (unsigned i = 0; i < 20000; i++) {
        double u = (double)(rnd(&seed) >> 11) * 0x1p-53, big = ldexp(0.5 + u, (int)(rnd(&seed) % 1000) - 500), s, c;
        double x = (u - 0.5) * 1200, angle = (u - 0.5) * 1e4, y = 8 * u - 4;
        assert_true(fabs(sim_log(big) - log(big)) <= 4e-16 * fmax(1, fabs(log(big))));
        assert_true(fabs(sim_exp(x) / exp(x) - 1) < 4e-16 * fmax(4, fabs(x)));
        sim_sincos(angle, &s, &c);
        assert_true(fabs(s - sin(angle)) < 4e-16 + 2e-16 * fabs(angle));
        assert_true(fabs(c - cos(angle)) < 4e-16 + 2e-16 * fabs(angle));
        assert_true(fabs(sim_pow(1 + u, y) / pow(1 + u, y) - 1) < 4e-15);
    }
    assert_true(sim_log(1) == 0 && sim_exp(0) == 1);
}

/* Mean and variance of n numbers, each within six of their own deviations. */
static void moments(const char *name, double (*draw)(const struct sim_normal *, struct sim_rng *), double mean, double variance,
                    double fourth)
{
    enum { N = 200000 };
    struct sim_normal t;
    struct sim_rng r;
    double sum = 0, squares = 0;

    sim_normal_init(&t);
    sim_rng_init(&r, 5, 1, 2, 3);
    for (unsigned i = 0; i < N; i++) {
        double x = draw(&t, &r) - mean;
        sum += x;
        squares += x * x;
    }
    if (fabs(sum / N) > 6 * sqrt(variance / N) || fabs(squares / N - variance) > 6 * sqrt((fourth - variance * variance) / N))
        fail_msg("%s: mean off by %g, variance %g, want %g", name, sum / N, squares / N, variance);
}

static double draw_normal(const struct sim_normal *t, struct sim_rng *r) { return sim_normal(t, r); }
static double draw_uniform(const struct sim_normal *t, struct sim_rng *r) { (void)t; return sim_uniform(r); }
static double draw_exponential(const struct sim_normal *t, struct sim_rng *r) { (void)t; return sim_exponential(r); }
static double draw_gamma(const struct sim_normal *t, struct sim_rng *r) { return sim_gamma(t, r, 1.205); }
static double draw_poisson(const struct sim_normal *t, struct sim_rng *r) { (void)t; return sim_poisson(r, 2.8); }
static double draw_many(const struct sim_normal *t, struct sim_rng *r) { (void)t; return sim_poisson(r, 50); }
static double draw_below(const struct sim_normal *t, struct sim_rng *r) { (void)t; return sim_below(r, 7); }

/* The fourth central moments are those of the textbook. */
static void test_distributions(void **state)
{
    (void)state;
    moments("normal", draw_normal, 0, 1, 3);
    moments("uniform", draw_uniform, 0.5, 1.0 / 12, 1.0 / 80);
    moments("exponential", draw_exponential, 1, 1, 9);
    moments("gamma", draw_gamma, 1.205, 1.205, 3 * 1.205 * 1.205 + 6 * 1.205);
    moments("poisson", draw_poisson, 2.8, 2.8, 2.8 * (1 + 3 * 2.8));
    moments("poisson 50", draw_many, 50, 50, 50 * 151.0);
    moments("below 7", draw_below, 3, 4, 28);
}

/* The tails of the normal distribution: the layers of the ziggurat fit together. */
static void test_normal_tail(void **state)
{
    (void)state;
    static const double cut[] = { 0.5, 1, 2, 3, 3.442619855899, 4 };
    enum { N = 400000 };
    unsigned beyond[6] = { 0 };
    struct sim_normal t;
    struct sim_rng r;

    sim_normal_init(&t);
    sim_rng_init(&r, 8, 0, 0, 0);
    for (unsigned i = 0; i < N; i++) {
        double x = fabs(sim_normal(&t, &r));
        for (unsigned k = 0; k < 6; k++)
            beyond[k] += x > cut[k];
    }
    for (unsigned k = 0; k < 6; k++) {
        double want = N * erfc(cut[k] / sqrt(2));
        if (fabs(beyond[k] - want) > 5 * sqrt(want) + 1)
            fail_msg("%u beyond %g, want %g", beyond[k], cut[k], want);
    }
}

/* ---- distributions ------------------------------------------------------------------------- */

struct reference {
    unsigned n;
    struct { char name[24]; double a, b; } at[STATS_MAX];
};

static void reference_read(struct reference *ref)
{
    const char *dir = getenv("SLUICE_SRCDIR");
    char path[1024], line[256];

    snprintf(path, sizeof path, "%s/tests/data/simulate-reference.txt", dir ? dir : ".");
    FILE *f = fopen(path, "r");
    if (f == NULL)
        fail_msg("%s cannot be read", path);
    ref->n = 0;
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#')
            continue;
        assert_true(ref->n < STATS_MAX);
        assert_int_equal(sscanf(line, "%23s %lf %lf", ref->at[ref->n].name, &ref->at[ref->n].a, &ref->at[ref->n].b), 3);
        ref->n++;
    }
    fclose(f);
}

/* Sets of the reference's size and density; the mean of every figure within 10 %, of the number of digits within 25 % (it
 * hangs on few loopers). From one sparse set to the next the shares of split clusters scatter by 9 %, qtot-99 by 5 %. */
static void like_reference(bool dense, uint64_t seed, unsigned sets)
{
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct reference ref;
    struct stats mean = { 0 };
    unsigned off = 0;

    reference_read(&ref);
    for (unsigned k = 0; k < sets; k++) {
        struct simulate_conf c = conf_of(seed + k, dense ? 920 : 250, dense ? 500 : 1000, 4);
        struct simulate_tf s;
        struct pipeline_result r;
        struct tf tf = make(&c, &s, p, &r);
        struct stats st = stats_of(&r);
        for (unsigned i = 0; i < st.n; i++) {
            mean.at[i].value += st.at[i].value / sets;
            strcpy(mean.at[i].name, st.at[i].name);
        }
        mean.n = st.n;
        simulate_free(&s);
        free(tf.data);
    }
    assert_int_equal(mean.n, ref.n);
    for (unsigned i = 0; i < mean.n; i++) {
        double want = dense ? ref.at[i].b : ref.at[i].a, ratio = mean.at[i].value / want;
        double part = strcmp(mean.at[i].name, "digits") == 0 ? 0.25 : 0.10;
        bool bad = !(fabs(ratio - 1) <= part);
        assert_string_equal(mean.at[i].name, ref.at[i].name);
        print_message("%s %-18s %10.5g, reference %10.5g (%+.1f %%)\n", bad ? "***" : "   ", mean.at[i].name,
                      mean.at[i].value, want, 100 * (ratio - 1));
        off += bad;
    }
    assert_int_equal(off, 0);
    pipeline_destroy(p);
}

static void test_sparse(void **state)
{
    (void)state;
    like_reference(false, seed_of(21), scaled(3));
}

static void test_dense(void **state)
{
    (void)state;
    like_reference(true, seed_of(1), scaled(1));
}

/* ---- truth --------------------------------------------------------------------------------- */

static double getf(const uint8_t *p)
{
    uint32_t u = stats_get(p, 4);
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

/* A truth file as a reader sees it who knows only the layout. */
struct truth {
    uint32_t particles, digits, clusters;
    const uint8_t *record, *digit_label, *cluster_label;
};

static struct truth truth_open(const void *data, size_t size)
{
    const uint8_t *p = data;
    struct truth t = { stats_get(p + 8, 4), stats_get(p + 12, 4), stats_get(p + 16, 4), p + 32, NULL, NULL };

    assert_memory_equal(p, "TPCTRU1", 8);
    assert_int_equal(size, 32 + 96 * (size_t)t.particles + 2 * ((size_t)t.digits + t.clusters));
    t.digit_label = t.record + 96 * (size_t)t.particles;
    t.cluster_label = t.digit_label + 2 * (size_t)t.digits;
    return t;
}

/* Radius in cm of a track of pt GeV; a positive particle turns counter-clockwise, so its centre lies to the left. */
static double radius_of(double pt)
{
    return pt / (0.000299792458 * 5.00668);
}

/* Distances of a place from the helix of a record: across it, and along z. */
static void from_helix(const uint8_t *q, double x, double y, double z, double *across, double *along)
{
    double charge = (int32_t)stats_get(q + 8, 4), pt = getf(q + 20), phi = getf(q + 24), tanl = getf(q + 28), r = radius_of(pt);
    double cx = getf(q + 36) - charge * r * sin(phi), cy = getf(q + 40) + charge * r * cos(phi);
    double turn = charge * remainder(atan2(charge * (y - cy), charge * (x - cx)) -
                                     atan2(charge * (getf(q + 40) - cy), charge * (getf(q + 36) - cx)), 2 * M_PI);

    *across = hypot(x - cx, y - cy) - r;
    *along = z - getf(q + 44) - r * turn * tanl;
}

/* Where a cluster of that record is, with the drift taken from the particle's time. */
static void cluster_place(const uint8_t *c, const uint8_t *q, double *x, double *y, double *z)
{
    unsigned sector = c[12], row = c[13];
    double pad = stats_get(c + 4, 2) / 64.0, time = (stats_get(c, 4) & 0xffffff) / 64.0;
    double u = (pad - (pads_of[row] - 1) / 2.0) * width_of[row], ly = sector < 18 ? u : -u, a = M_PI * (10 + 20 * (sector % 18)) / 180;
    double v = (time - getf(q + 48)) * 0.514984 - 0.195 * 2.58;

    *x = x_of[row] * cos(a) - ly * sin(a);
    *y = x_of[row] * sin(a) + ly * cos(a);
    *z = sector < 18 ? 250 - v : v - 250;
}

static int double_cmp(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Clusters of straight primaries lie on their helix: half of them within 1.5 mm, nearly all within scattering and overlap,
 * and on the average neither early nor late (which T0 and drift velocity are for). */
static void clusters_on_helix(const struct truth *t, const uint8_t *cluster)
{
    double *d[2] = { calloc(t->clusters, sizeof(double)), calloc(t->clusters, sizeof(double)) }, late = 0;
    unsigned n = 0;

    for (uint32_t i = 0; i < t->clusters; i++) {
        unsigned label = stats_get(t->cluster_label + 2 * i, 2);
        const uint8_t *c = cluster + 16 * (size_t)i, *q = t->record + 96 * (size_t)label;
        double x, y, z, across, along;
        if (label >= t->particles || stats_get(q + 88, 4) != 2 || getf(q + 20) < 0.5 || (c[3] & 12))
            continue;
        cluster_place(c, q, &x, &y, &z);
        from_helix(q, x, y, z, &across, &along);
        d[0][n] = fabs(across);
        d[1][n++] = fabs(along);
        late += (c[12] < 18 ? -along : along) > 0 ? 1 : -1;
    }
    assert_true(n > 1000);
    print_message("%.1f %% more clusters late than early\n", 100 * late / n);
    assert_true(fabs(late / n) < 0.25);
    for (unsigned k = 0; k < 2; k++) {
        qsort(d[k], n, sizeof(double), double_cmp);
        print_message("%u clusters off the helix by %.3f cm (half), %.3f cm (95 %%)\n", n, d[k][n / 2], d[k][n * 19 / 20]);
        assert_true(d[k][n / 2] < 0.15);
        assert_true(d[k][n * 19 / 20] < 0.6);
        free(d[k]);
    }
}

static void reference_points(const struct truth *t)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < t->particles; i++) {
        const uint8_t *q = t->record + 96 * (size_t)i;
        double x = getf(q + 52), y = getf(q + 56), z = getf(q + 60), pt = hypot(getf(q + 64), getf(q + 68)), across, along;
        assert_int_equal(stats_get(q, 4), i);
        assert_true(fabs(sinh(getf(q + 32)) - getf(q + 28)) < 1e-5);
        if (!(stats_get(q + 88, 4) & 2)) {
            assert_true(isnan(x) && isnan(getf(q + 72)));
            continue;
        }
        assert_true(hypot(x, y) > 84.8 && hypot(x, y) < 250.5 && fabs(z) < 250);
        /* between birth and there lie some cm of gas at most: momentum and place have hardly changed */
        from_helix(q, x, y, z, &across, &along);
        double soft = getf(q + 20) < 0.2 ? 0.5 : 0.02;
        assert_true(fabs(across) < soft && fabs(along) < soft);
        assert_true(fabs(pt - getf(q + 20)) < 0.002 + 0.01 * getf(q + 20));
        assert_true(fabs(getf(q + 72) - pt * getf(q + 28)) < 0.02 * pt + 0.001);
        n++;
    }
    assert_true(n >= t->particles * 9 / 10);
}

/* Counts in the records against those by label; the rows by looking at every digit. */
static void counts_add_up(const struct truth *t, const uint8_t *digit)
{
    uint32_t n = t->digits;

    for (uint32_t k = 0; k < t->particles; k++) {
        const uint8_t *q = t->record + 96 * (size_t)k;
        uint32_t digits = 0, clusters = 0, rows = 0;
        bool seen[152] = { false };
        for (uint32_t i = 0; i < n; i++) {
            if (stats_get(t->digit_label + 2 * i, 2) == k) {
                digits++;
                rows += !seen[digit[5 * n + i]];
                seen[digit[5 * n + i]] = true;
            }
        }
        for (uint32_t i = 0; i < t->clusters; i++)
            clusters += stats_get(t->cluster_label + 2 * i, 2) == k;
        assert_int_equal(digits, stats_get(q + 76, 4));
        assert_int_equal(clusters, stats_get(q + 80, 4));
        assert_int_equal(rows, stats_get(q + 84, 4));
    }
}

/* All charge in digits is that in clusters but for what no cluster takes; both by particle. */
static void charges_add_up(const struct truth *t, const uint8_t *digit, const uint8_t *cluster)
{
    uint32_t n = t->digits;
    double *in = calloc(65536, sizeof *in), *out = calloc(65536, sizeof *out), sum_in = 0, sum_out = 0;

    for (uint32_t i = 0; i < n; i++)
        in[stats_get(t->digit_label + 2 * i, 2)] += stats_get(digit + 2 * n + 2 * i, 2) / 4.0;
    for (uint32_t i = 0; i < t->clusters; i++)
        out[stats_get(t->cluster_label + 2 * i, 2)] += stats_get(cluster + 16 * (size_t)i + 10, 2);
    for (uint32_t k = 0; k < t->particles; k++) {
        const uint8_t *q = t->record + 96 * (size_t)k;
        sum_in += in[k];
        sum_out += out[k];
        if (in[k] > 5000 && (out[k] < 0.9 * in[k] || out[k] > 1.1 * in[k]))
            fail_msg("particle %u: %g counts in digits, %g in clusters", k, in[k], out[k]);
        assert_true((in[k] > 0) == (stats_get(q + 76, 4) > 0));
    }
    assert_true(sum_out > 0.93 * sum_in && sum_out < 1.02 * sum_in);
    free(in);
    free(out);
}

static void test_truth(void **state)
{
    (void)state;
    struct simulate_conf c = conf_of(seed_of(5), 60, 300, 2);
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct simulate_tf s;
    struct pipeline_result r;
    void *data;
    size_t size;
    struct k_err e;

    struct tf tf = make(&c, &s, p, &r);
    assert_int_equal(simulate_truth(&s, r.out[1].data, r.out[1].size, &data, &size, &e), 0);
    struct truth t = truth_open(data, size);
    assert_int_equal(t.particles, 60);
    assert_int_equal(t.digits, r.out[0].count);
    assert_int_equal(t.clusters, r.out[1].count);
    const uint8_t *digit = (const uint8_t *)r.out[0].data + DIGITS_HEADER;
    const uint8_t *cluster = (const uint8_t *)r.out[1].data + CLUSTERS_HEADER;
    reference_points(&t);
    counts_add_up(&t, digit);
    charges_add_up(&t, digit, cluster);
    clusters_on_helix(&t, cluster);
    assert_int_equal(simulate_truth(&s, r.out[1].data, r.out[1].size - 1, &data, &size, &e), -1);
    assert_int_equal(e.code, K_EINPUT);
    free(data);
    simulate_free(&s);
    free(tf.data);
    pipeline_destroy(p);
}

/* The mean charge of straight tracks from the formulas alone, by another way: the mean number of electrons of a collision is
 * a sum over its spectrum, the shaper's sum an integral, and what falls on gaps between sectors is left out row by row. */
static void test_charge_scale(void **state)
{
    (void)state;
    double electrons = 0, far = pow(1e4 / 20.77, -1.2), bins = 0;

    for (unsigned n = 1; n <= 300; n++) {          /* at least n electrons: E >= 20.77 + 37.3 (n - 1) eV */
        double at = (20.77 + 37.3 * (n - 1)) / 20.77;
        electrons += at < 1e4 / 20.77 ? (pow(at, -1.2) - far) / (1 - far) : 0;
    }
    for (unsigned k = 1; k < 8; k++) {
        double sum = 0;
        for (unsigned f = 0; f < 1000; f++) {
            double x = (k - (f + 0.5) / 1000) * 199.606 / 160;
            sum += 55 * pow(x, 4) * exp(-4 * x) / 1000;
        }
        bins += sum;
    }
    assert_true(fabs(track_collisions(3.5, 1) / 14 - 1) < 0.02);        /* minimum ionising */
    assert_true(track_collisions(3.5, 2) / track_collisions(3.5, 1) == 4);

    struct simulate_conf c = conf_of(seed_of(6), 30, 300, 2);
    struct simulate_tf s;
    struct k_err e;
    double found = 0, want = 0;
    c.noise = 0;
    assert_int_equal(simulate_run(&c, &s, &e), 0);
    for (uint32_t i = 0; i < 30; i++) {
        const struct track_particle *q = &s.particle[i];
        double bg = q->pt * sqrt(1 + q->tanl * q->tanl) / q->mass, beta = bg / sqrt(1 + bg * bg), bb = pow(beta, 2.05873);
        unsigned rows = 0;
        bool seen[152] = { false };
        if (q->away || q->pt < 0.8 || bg < 2)
            continue;
        double charge = 0, length = 0;
        for (uint32_t k = 0; k < s.digits.n; k++) {
            if (s.digits.label[k] == i) {
                charge += s.digits.charge[k] / 4.0;
                rows += !seen[s.digits.row[k]];
                length += seen[s.digits.row[k]] ? 0 : height_of[s.digits.row[k]];
                seen[s.digits.row[k]] = true;
            }
        }
        double per_cm = 14 * 0.0820172 / bb * (9.94795 - bb - log(8.97292e-5 + pow(bg, -1.65272))) * electrons;
        double lost = 1 - 250 * 5e-6 * (250 - fabs(100 * q->tanl + q->z)) / 2.58;
        double path = length * sqrt(1 + q->tanl * q->tanl);
        found += charge;
        want += per_cm * path * lost * 2000 / 670.5 * bins;
        assert_true(rows > 100);
    }
    print_message("charge of straight tracks: %.0f counts, %.0f expected\n", found, want);
    /* rows are crossed at an angle (more), and samples below the cut are lost (less) */
    assert_true(want > 0 && found > 0.85 * want && found < 1.15 * want);
    simulate_free(&s);
}

/* ---- sizes --------------------------------------------------------------------------------- */

static void test_small(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct simulate_tf s;
    void *truth;
    size_t size;
    struct k_err e;

    for (uint32_t tracks = 0; tracks <= 11; tracks += tracks ? 10 : 1) {
        struct simulate_conf c = conf_of(4, tracks, 100, 2);
        c.noise = 0;
        struct tf tf = make(&c, &s, p, &r);
        assert_int_equal(s.digits.n > 0, tracks > 0);
        assert_int_equal(simulate_truth(&s, r.out[1].data, r.out[1].size, &truth, &size, &e), 0);
        assert_int_equal(truth_open(truth, size).particles, tracks);
        free(truth);
        free(tf.data);
        simulate_free(&s);
    }
    pipeline_destroy(p);
}

/* Noise alone: as many samples as asked for, all over the detector, none below the cut. */
static void test_noise(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct simulate_conf c = conf_of(seed_of(7), 0, 0, 4);
    struct simulate_tf s;
    struct pipeline_result r;
    unsigned sectors = 0, early = 0;
    double want = 4.1e-6 * 524160 * 1782;

    struct tf tf = make(&c, &s, p, &r);
    assert_true(fabs(s.digits.n - want) < 6 * sqrt(want));
    for (uint32_t i = 0; i < s.digits.n; i++) {
        assert_int_equal(s.digits.label[i], 0xffff);
        assert_true(s.digits.charge[i] >= 12);
        sectors += i == 0 || s.digits.sector[i] != s.digits.sector[i - 1];
        early += s.digits.time[i] < 891;
    }
    assert_int_equal(sectors, 36);
    assert_true(fabs(early - want / 2) < 6 * sqrt(want / 4));
    simulate_free(&s);
    free(tf.data);
    pipeline_destroy(p);
}

/* Digits are in order, no two in one cell, inside the TF and the rows; a long TF too. */
static void test_canonical(void **state)
{
    (void)state;
    struct pipeline *p = pipeline_of("decode", NULL);

    for (unsigned k = 0; k < 2; k++) {
        struct simulate_conf c = conf_of(12, 15, 0, k ? 40 : 1);
        struct simulate_tf s;
        struct pipeline_result r;
        struct tf tf = make(&c, &s, p, &r);
        const struct pads_digits *d = &s.digits;
        uint64_t last = 0;
        assert_int_equal(s.bins, k ? 17820 : 446);
        for (uint32_t i = 0; i < d->n; i++) {
            uint64_t key = 1 + ((uint64_t)d->sector[i] << 40 | (uint64_t)d->row[i] << 32 | (uint64_t)d->pad[i] << 16 | d->time[i]);
            assert_true(key > last);
            assert_true(d->sector[i] < 36 && d->row[i] < 152 && d->pad[i] < pads_of[d->row[i]] && d->time[i] < s.bins);
            assert_true(d->charge[i] > 0 && d->charge[i] <= 4092);
            assert_true(d->label[i] < 15 || d->label[i] == PADS_NOISE);
            last = key;
        }
        simulate_free(&s);
        free(tf.data);
    }
    pipeline_destroy(p);
}

/* Every place over a pad is that pad's, by the middles of pads from the layout rule; gaps belong to none. */
static void test_pads(void **state)
{
    (void)state;
    uint32_t row, pad;

    for (uint32_t k = 0; k < 152; k++) {
        for (uint32_t i = 0; i < pads_of[k]; i++) {
            double u = (i - (pads_of[k] - 1) / 2.0) * width_of[k];
            for (int at = 0; at < 4; at++) {
                double x = x_of[k] + (at & 1 ? 0.49 : -0.49) * height_of[k], y = u + (at & 2 ? 0.49 : -0.49) * width_of[k];
                assert_int_equal(pads_find(x, y, false, &row, &pad), 0);
                assert_true(row == k && pad == i);
                assert_int_equal(pads_find(x, -y, true, &row, &pad), 0);
                assert_true(row == k && pad == i);
            }
        }
        double end = pads_of[k] / 2.0 * width_of[k];
        assert_int_equal(pads_find(x_of[k], end + 0.001, false, &row, &pad), -1);
        assert_int_equal(pads_find(x_of[k], -end - 0.001, true, &row, &pad), -1);
    }
    static const double none[] = { -100, 0, 84.8, 132.2, 134.6, 168.8, 170.7, 206.9, 208.8, 246.5, 1e9, NAN };
    for (unsigned i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_int_equal(pads_find(none[i], 0, false, &row, &pad), -1);
    assert_int_equal(pads_find(100, NAN, false, &row, &pad), -1);
}

/* Two particles at one pad: the larger share names the digit, of equal ones the first; saturation; the TF's ends. */
static void test_electronics(void **state)
{
    (void)state;
    struct sim_normal t;
    struct pads_digits d = { 0 };
    struct k_err e;
    unsigned full = 0, seen[4] = { 0 };

    sim_normal_init(&t);
    struct pads *p = pads_create(200);
    for (uint16_t label = 0; label < 2; label++) {
        pads_add(p, 0, 0, 10, 50, label == 0 ? 40 : 60, label);      /* pad 10: the second */
        pads_add(p, 0, 0, 20, 50, 50, label);                        /* pad 20: equal */
        pads_add(p, 0, 0, 30, 50, 50000, label);                     /* pad 30: saturated */
        pads_add(p, 0, 0, 40, 199.5, 1e6f, label);                   /* past the end but for nothing */
        pads_add(p, 0, 0, 40, -0.001, 1e6f, label);
        pads_add(p, 0, 0, 40, 200, 1e6f, label);
        pads_add(p, 0, 0, 40, NAN, 1e6f, label);
    }
    assert_int_equal(pads_digitize(p, &t, 1, 1, 0, &d, &e), 0);
    for (uint32_t i = 0; i < d.n; i++) {
        assert_true(d.pad[i] == 10 || d.pad[i] == 20 || d.pad[i] == 30);
        assert_true(d.time[i] > 50 && d.time[i] < 58);
        assert_int_equal(d.label[i], d.pad[i] == 10 ? 1 : 0);
        full += d.charge[i] == 4092;
        seen[d.pad[i] / 10]++;
        /* the pulse at its start: x = 199.606 / 160 behind, 55 x^4 e^(-4x) = 0.9063 of 100 counts */
        if (d.pad[i] == 20 && d.time[i] == 51)
            assert_true(fabs(d.charge[i] / 4.0 - 90.6) < 6);
    }
    assert_true(full >= 2 && seen[1] >= 2 && seen[2] >= 2);
    pads_digits_free(&d);
    pads_destroy(p);
}

static void test_refusals(void **state)
{
    (void)state;
    struct simulate_tf s;
    struct k_err e;
    struct simulate_conf c[6];
    static const char *const words[6] = { "0 orbits", "129 orbits", "65001 tracks", "1783 bins", "noise", "noise" };

    for (unsigned i = 0; i < 6; i++)
        c[i] = conf_of(1, 1, 0, 4);
    c[0].orbits = 0;
    c[1].orbits = 129;
    c[2].tracks = 65001;
    c[3].bins = 1783;
    c[4].noise = -1;
    c[5].noise = NAN;
    for (unsigned i = 0; i < 6; i++) {
        e.code = K_OK;
        assert_int_equal(simulate_run(&c[i], &s, &e), -1);
        assert_int_equal(e.code, K_EOPTION);
        if (strstr(e.text, words[i]) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.text, words[i]);
    }
}

/* ---- the same again ------------------------------------------------------------------------ */

static uint64_t digest_of(uint64_t seed, uint32_t tf)
{
    struct simulate_conf c = conf_of(seed, 12, 0, 1);
    struct simulate_tf s;
    void *out;
    size_t size;
    struct k_err e;

    c.tf = tf;
    assert_int_equal(simulate_run(&c, &s, &e), 0);
    assert_int_equal(simulate_encode(&s, NULL, &out, &size, &e), 0);
    uint64_t d = result_digest(out, size);
    free(out);
    simulate_free(&s);
    return d;
}

/* The digest was written down once: it is that of every compiler, level of optimisation and libm. */
static void test_reproducible(void **state)
{
    (void)state;
    uint64_t d = digest_of(7, 1);

    print_message("digest %016llx\n", (unsigned long long)d);
    assert_true(d == digest_of(7, 1));
    assert_true(d != digest_of(8, 1));
    assert_true(d != digest_of(7, 2));
    assert_true(d == UINT64_C(0xa8ed20b591556587));
}

/* Filled up with another detector's blocks: the size to the byte, the same digits, all checks of a TF. */
static void test_padding(void **state)
{
    (void)state;
    struct simulate_conf c = conf_of(3, 2, 0, 1);
    struct pipeline *p = pipeline_of("decode", NULL);
    struct simulate_tf s;
    struct pipeline_result r;
    struct k_err e;
    struct tf tf = make(&c, &s, p, &r);
    uint64_t digest = r.digest, least = tf.size + 3 * 96 + 48;
    const uint64_t size[] = { least, least + 1, least + 2, least + 3, 3000017 };

    for (unsigned i = 0; i < 5; i++) {
        void *out;
        bool complete = false;
        struct tf_info info;
        struct tf_err te;
        assert_int_equal(simulate_pad(tf.data, tf.size, size[i], 3, 1, &out, &e), 0);
        struct tf_seg seg = { out, size[i] };
        if (tf_check(&seg, 1, &info, &complete, &te) < 0)
            fail_msg("%s", te.text);
        assert_true(complete);
        assert_int_equal(info.blocks, 720 + 3);
        struct tf padded = { out, size[i] };
        assert_int_equal(run_tf(p, &padded, &r, &e), 0);
        assert_true(r.digest == digest);
        free(out);
    }
    void *out;
    assert_int_equal(simulate_pad(tf.data, tf.size, least - 1, 3, 1, &out, &e), -1);
    assert_int_equal(e.code, K_EOPTION);
    assert_int_equal(simulate_pad(tf.data, tf.size, least, 0, 1, &out, &e), -1);
    simulate_free(&s);
    free(tf.data);
    pipeline_destroy(p);
}

/* The figures of every TF of the files, one column each. */
static int print_figures(int n, char **path)
{
    static struct stats st[16];
    unsigned k = 0;
    struct pipeline *p = pipeline_of("cluster", NULL);

    for (int i = 0; i < n; i++) {
        struct tf_err te;
        struct tf_info info;
        struct tf_file *f = tf_file_open(path[i], &te);
        while (f && k < 16 && tf_file_next(f, &info, &te) == 1) {
            struct tf tf = { malloc(info.size), info.size };
            struct pipeline_result r;
            struct k_err e;
            if (tf_file_read(f, info.offset, tf.data, tf.size, &te) < 0 || run_tf(p, &tf, &r, &e) < 0)
                return 1;
            st[k++] = stats_of(&r);
            free(tf.data);
        }
        tf_file_close(f);
    }
    for (unsigned i = 0; k > 0 && i < st[0].n; i++) {
        printf("%-18s", st[0].at[i].name);
        for (unsigned q = 0; q < k; q++)
            printf(" %10.6g", st[q].at[i].value);
        printf("\n");
    }
    pipeline_destroy(p);
    return k == 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),    cmocka_unit_test(test_distributions), cmocka_unit_test(test_normal_tail),
        cmocka_unit_test(test_pads),         cmocka_unit_test(test_electronics),   cmocka_unit_test(test_small),
        cmocka_unit_test(test_noise),        cmocka_unit_test(test_canonical),     cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_reproducible), cmocka_unit_test(test_padding),       cmocka_unit_test(test_truth),
        cmocka_unit_test(test_charge_scale), cmocka_unit_test(test_sparse),        cmocka_unit_test(test_dense),
    };
    geo_init();
    if (argc > 1)
        return print_figures(argc - 1, argv + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
