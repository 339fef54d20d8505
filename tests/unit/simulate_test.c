/* simulate_test.c - the simulator: as the reference sets in all that can be counted, true to its own truth, the same for a seed */
#include "kernels_help.h"

#include <math.h>

#include "simulate/simulate.h"

/* Sums over TFs, from digits and clusters in their canonical layouts. */
struct stat {
    double digits, clusters, split_pad, split_time, edge, single, sigma_t, sigma_p, qmax, qtot, charge;
};

static void stat_add(struct stat *s, const struct pipeline_result *r)
{
    const uint8_t *d = r->out[0].data, *c = (const uint8_t *)r->out[1].data + 21920;
    uint64_t n = r->out[0].count, m = r->out[1].count;

    s->digits += n;
    s->clusters += m;
    for (uint64_t i = 0; i < n; i++)
        s->charge += (d[192 + 2 * n + 2 * i] | d[192 + 2 * n + 2 * i + 1] << 8) / 4.0;
    for (uint64_t i = 0; i < m; i++, c += 16) {
        s->split_pad += c[3] & 1;
        s->split_time += c[3] >> 1 & 1;
        s->edge += c[3] >> 2 & 1;
        s->single += c[3] >> 3 & 1;
        s->sigma_t += c[6];
        s->sigma_p += c[7];
        s->qmax += c[8] | c[9] << 8;
        s->qtot += c[10] | c[11] << 8;
    }
}

static void near(const char *what, double found, double want, double part)
{
    print_message("  %-20s %9.4f, reference %9.4f (%+.1f %%)\n", what, found, want, 100 * (found / want - 1));
    if (fabs(found / want - 1) > part)
        fail_msg("%s: %g, the reference has %g", what, found, want);
}

static void simulate_and_add(struct stat *s, uint64_t seed, uint32_t tracks, uint32_t bins)
{
    struct sim_conf c = { .seed = seed, .tracks = tracks, .orbits = 4, .bins = bins, .first_orbit = 128, .counter = 1, .run = 1 };
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct sim_tf t;
    struct k_err e;

    if (simulate_tf(&c, NULL, &t, &e) < 0)
        fail_msg("%s", e.text);
    struct pipeline_seg seg = { t.tf, t.tf_size };
    if (pipeline_run(p, &seg, 1, &r, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(r.out[0].count, t.ndigits);
    stat_add(s, &r);
    simulate_free(&t);
    pipeline_destroy(p);
}

/* The figures of tpc-b (920 particles over 1000 bins), counted in the reference's files. */
static void test_like_reference(void **state)
{
    (void)state;
    struct stat s = { 0 };
    uint64_t seed = seed_of(1);

    for (uint64_t i = 0; i < scaled(1); i++)
        simulate_and_add(&s, seed + i, 920, 1000);
    near("digits a cluster", s.digits / s.clusters, 7.3920, 0.10);
    near("split in pad", s.split_pad / s.clusters, 0.1704, 0.10);
    near("split in time", s.split_time / s.clusters, 0.1615, 0.10);
    near("edge", s.edge / s.clusters, 0.0599, 0.10);
    near("single", s.single / s.clusters, 0.0864, 0.10);
    near("sigma time", s.sigma_t / s.clusters, 21.1048, 0.10);
    near("sigma pad", s.sigma_p / s.clusters, 18.3121, 0.10);
    near("qmax", s.qmax / s.clusters, 50.4168, 0.10);
    near("qtot", s.qtot / s.clusters, 158.7019, 0.10);
    near("charge of a digit", s.charge / s.digits, 21.9015, 0.10);
}

/* Reference points lie on the helix from the point of birth; labels and counts agree. */
static void test_truth(void **state)
{
    (void)state;
    struct sim_conf c = { .seed = 5, .tracks = 60, .orbits = 2, .first_orbit = 128, .counter = 1, .run = 1 };
    struct pipeline *p = pipeline_of("cluster", NULL);
    struct pipeline_result r;
    struct sim_tf t;
    struct k_err e;
    void *truth;
    size_t size;
    unsigned checked = 0;

    assert_int_equal(simulate_tf(&c, NULL, &t, &e), 0);
    for (uint32_t i = 0; i < t.nparticles; i++) {
        const struct sim_particle *q = &t.particle[i];
        if (!(q->flags & 2) || q->pt < 0.3)
            continue;
        /* radius of the circle in cm: pt / (0.000299792458 * 5.00668 kG); a positive particle turns
         * counter-clockwise, so the centre lies to its left */
        double radius = q->pt / (0.000299792458 * 5.00668);
        double cx = q->x - q->charge * radius * sin(q->phi), cy = q->y + q->charge * radius * cos(q->phi);
        double off = hypot(q->ref[0] - cx, q->ref[1] - cy) - radius;
        assert_true(fabs(off) < 0.3);
        double turn = remainder(atan2(q->ref[4], q->ref[3]) - q->phi, 2 * M_PI);
        assert_true(fabs(q->ref[2] - q->z - radius * fabs(turn) * q->tgl) < 0.5);
        checked++;
    }
    assert_true(checked > 20);
    struct pipeline_seg seg = { t.tf, t.tf_size };
    assert_int_equal(pipeline_run(p, &seg, 1, &r, &e), 0);
    assert_int_equal(simulate_truth(&t, r.out[1].data, &truth, &size, &e), 0);
    assert_int_equal(size, 32 + 96 * t.nparticles + 2 * (t.ndigits + r.out[1].count));
    assert_memory_equal(truth, "TPCTRU1", 8);
    /* every label is a particle or noise; sums of digits and clusters are those of the labels */
    uint32_t digits = 0, clusters = 0, labelled = 0;
    for (uint32_t i = 0; i < t.nparticles; i++) {
        digits += t.particle[i].digits;
        clusters += t.particle[i].clusters;
    }
    for (uint32_t i = 0; i < t.ndigits; i++) {
        assert_true(t.label[i] < t.nparticles || t.label[i] == SIM_NOISE);
        labelled += t.label[i] != SIM_NOISE;
    }
    assert_int_equal(digits, labelled);
    assert_true(clusters > 0.9 * r.out[1].count);
    free(truth);
    simulate_free(&t);
    pipeline_destroy(p);
}

static void test_small(void **state)
{
    (void)state;
    struct sim_conf c = { .seed = 9, .tracks = 1, .orbits = 2, .first_orbit = 1, .counter = 1, .run = 1 };
    struct sim_tf a, b;
    struct k_err e;

    assert_int_equal(simulate_tf(&c, NULL, &a, &e), 0);
    assert_int_equal(simulate_tf(&c, NULL, &b, &e), 0);
    assert_true(a.ndigits > 50);
    assert_int_equal(a.tf_size, b.tf_size);
    assert_memory_equal(a.tf, b.tf, a.tf_size);
    simulate_free(&b);
    c.seed = 10;
    assert_int_equal(simulate_tf(&c, NULL, &b, &e), 0);
    assert_true(a.ndigits != b.ndigits || memcmp(a.charge, b.charge, 2 * a.ndigits) != 0);
    simulate_free(&a);
    simulate_free(&b);
    c.tracks = 0;
    assert_int_equal(simulate_tf(&c, NULL, &a, &e), 0);
    assert_int_equal(a.ndigits, 0);
    simulate_free(&a);
    c.orbits = 148;
    assert_int_equal(simulate_tf(&c, NULL, &a, &e), -1);
    assert_int_equal(e.code, K_EOPTION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_like_reference), cmocka_unit_test(test_truth), cmocka_unit_test(test_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
