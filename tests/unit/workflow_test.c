/* workflow_test.c - a backend for each stage: what is accepted, and what a refusal says; compare finds the first difference */
#include "kernels_help.h"

#include "backend/bk_load.h"

#include "compare.h"

static void refused(const char *w, const char *backends, const char *options, const char *const *words)
{
    struct workflow_choice c;
    struct k_err e = { 0 };

    if (workflow_choose(w, backends, options, &c, &e) == 0)
        fail_msg("%s %s %s: accepted", w, backends ? backends : "", options ? options : "");
    assert_int_equal(e.code, K_EOPTION);
    for (; *words; words++) {
        if (strstr(e.text, *words) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", e.text, *words);
    }
}
#define REFUSED(w, b, o, ...) refused(w, b, o, (const char *const[]){ __VA_ARGS__, NULL })

/* A stage that is set to cpu by hand stays there while the others are on a GPU. */
static void test_B73_cpu_beside_gpu(void **state)
{
    (void)state;
    struct workflow_choice c;
    struct k_err e = { 0 };

    assert_int_equal(workflow_choose("cluster", "gpu,decode=cpu", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_DECODE], "cpu");
    assert_string_equal(c.backend[STAGE_CLUSTER], "gpu");
    /* the place of the default in the list does not matter, nor does doing it twice */
    assert_int_equal(workflow_choose("cluster", "decode=cpu,gpu", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_DECODE], "cpu");
    assert_string_equal(c.backend[STAGE_CLUSTER], "gpu");
    assert_int_equal(workflow_choose("cluster", "decode=cpu,gpu", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_DECODE], "cpu");
    assert_int_equal(workflow_choose("cluster", "cluster=auto", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_CLUSTER], "auto");
}

static void test_B73_refusals(void **state)
{
    (void)state;
    REFUSED("cluster", "decode=cpu,track=gpu", NULL, "no stage \"track\"", "decode, cluster");
    REFUSED("cluster", "cluster=tpu", NULL, "stage cluster", "\"tpu\"", "auto", "gpu", "cpu", "cuda", "hip", "opencl");
    REFUSED("cluster", "vulkan", NULL, "stage decode", "\"vulkan\"", "choices are");
    REFUSED("decode", "cluster=cpu", NULL, "workflow decode has no stage \"cluster\"", "its stages are decode");
    REFUSED("clusters", NULL, NULL, "no workflow \"clusters\"", "none, decode, cluster");
    REFUSED("none", "tpu", NULL, "\"tpu\"");
}

/* The emulated device of the tests is a choice only in a program that has it. Last in main: what was added stays. */
static void test_added_backend_shows_where_it_is(void **state)
{
    (void)state;
    static const struct bk_ops ops = { .abi = BK_ABI, .name = "emu" };
    struct workflow_choice c;
    struct k_err e = { 0 };
    char names[100];

    assert_int_equal(workflow_choose("cluster", "cluster=emu", NULL, &c, &e), -1);
    assert_string_equal(e.text, "stage cluster: no backend \"emu\"; choices are auto, gpu, cpu, cuda, hip, opencl");
    workflow_backends(STAGE_DECODE, names, sizeof names);
    assert_string_equal(names, "auto, gpu, cpu, cuda, hip, opencl");
    assert_null(workflow_backend(&stages[STAGE_DECODE], 4));
    bk_register(&ops);
    assert_int_equal(workflow_choose("cluster", "cluster=emu", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_CLUSTER], "emu");
    assert_string_equal(c.backend[STAGE_DECODE], "auto");
    REFUSED("cluster", "cluster=tpu", NULL, "choices are auto, gpu, cpu, cuda, hip, opencl, emu");
}

static void test_options(void **state)
{
    (void)state;
    struct workflow_choice c;
    struct k_err e = { 0 };

    assert_int_equal(workflow_choose("cluster", NULL, "decode.batch=64K,cluster.qtot=9", &c, &e), 0);
    assert_int_equal(c.option[STAGE_DECODE][0], 65536);
    assert_int_equal(c.option[STAGE_CLUSTER][1], 9);
    assert_int_equal(c.option[STAGE_CLUSTER][0], 3);
    REFUSED("cluster", NULL, "cluster.qmax=9", "stage cluster has no option \"qmax\"", "peak, qtot");
    REFUSED("cluster", NULL, "cluster.peak=2000", "cluster.peak=2000", "from 0 to 1023");
    REFUSED("cluster", NULL, "cluster.peak=1K", "want a number");
    REFUSED("cluster", NULL, "decode.batch=0", "want a size from 4096");
    REFUSED("cluster", NULL, "decode.batch=-1", "want a size");
    REFUSED("cluster", NULL, "batch=5", "want STAGE.OPTION=VALUE");
    REFUSED("cluster", NULL, "fit.x=5", "no stage \"fit\"");
}

/* gpu never falls back; auto does, and the result says what ran. */
static void test_no_gpu_here(void **state)
{
    (void)state;
    struct pipeline_conf c = { .workflow = "cluster", .backends = "gpu,decode=cpu", .threads = 1 };
    struct k_err e = { 0 };
    struct pipeline_result r;
    struct pipeline *p = pipeline_create(&c, &e);

    if (p) {
        pipeline_destroy(p);
        skip();                  /* there is one */
    }
    assert_int_equal(e.code, K_EDEVICE);
    assert_non_null(strstr(e.text, "stage cluster: gpu asked for"));
    c.backends = "auto";
    p = pipeline_create(&c, &e);
    assert_non_null(p);
    pipeline_describe(p, &r);
    assert_int_equal(r.n_stage, 2);
    assert_string_equal(r.stage[0].backend, "cpu");
    assert_string_equal(r.stage[1].backend, "cpu");
    for (int i = 0; i < 2; i++) {
        assert_non_null(r.stage[i].fallback);
        assert_non_null(strstr(r.stage[i].fallback, "no usable GPU"));
    }
    pipeline_destroy(p);
    c.backends = "cpu,cluster=auto";
    p = pipeline_create(&c, &e);
    assert_non_null(p);
    pipeline_describe(p, &r);
    assert_null(r.stage[0].fallback);            /* nobody asked for anything else */
    assert_non_null(r.stage[1].fallback);
    pipeline_destroy(p);
}

static void test_sizes(void **state)
{
    (void)state;
    uint64_t v;
    static const char *const bad[] = { "", "M", "-1", "1MM", "1 M", "1m", "0x10", "99999999999999999999", "17179869184G" };

    assert_true(workflow_size("4096", &v) == 0 && v == 4096);
    assert_true(workflow_size("3M", &v) == 0 && v == 3u << 20);
    assert_true(workflow_size("2T", &v) == 0 && v == UINT64_C(2) << 40);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(workflow_size(bad[i], &v), -1);
}

static void test_compare(void **state)
{
    (void)state;
    struct digit d[] = { { 3, 70, 20, 100, 80 }, { 3, 71, 20, 100, 90 }, { 5, 71, 20, 100, 99 } };
    struct tf tf = tf_of(d, 3, 2);
    struct pipeline *p = pipeline_of("cluster", NULL), *q = pipeline_of("cluster", NULL);
    struct pipeline_result r, s;
    struct compare c;
    struct k_err e;

    assert_int_equal(run_tf(p, &tf, &r, &e), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(compare_results(r.out[i].data, r.out[i].size, r.out[i].data, r.out[i].size, &c, &e), 0);
        assert_true(c.equal);
        assert_int_equal(c.same, 3);
    }
    struct digit d2[] = { { 3, 70, 20, 100, 80 }, { 3, 71, 20, 100, 94 }, { 5, 71, 20, 101, 99 }, { 6, 1, 1, 1, 99 } };
    struct tf tf2 = tf_of(d2, 4, 2);
    assert_int_equal(run_tf(q, &tf2, &s, &e), 0);
    assert_int_equal(compare_results(r.out[0].data, r.out[0].size, s.out[0].data, s.out[0].size, &c, &e), 0);
    assert_false(c.equal);
    assert_int_equal(c.same, 1);
    assert_int_equal(c.changed, 1);
    assert_int_equal(c.only_ref, 1);
    assert_int_equal(c.only_own, 2);
    assert_int_equal(c.index, 1);
    assert_non_null(strstr(c.first, "REF sector 3, row 71, pad 20, bin 100, charge 22.50; OWN sector 3, row 71, pad 20, bin 100, charge 23.50"));
    assert_int_equal(compare_results(r.out[1].data, r.out[1].size, s.out[1].data, s.out[1].size, &c, &e), 0);
    assert_int_equal(c.ref, 3);
    assert_int_equal(c.own, 4);
    assert_non_null(strstr(c.first, "row 71, time 100.000000, pad 20.000000"));
    assert_int_equal(compare_results(r.out[0].data, r.out[0].size, s.out[1].data, s.out[1].size, &c, &e), -1);
    assert_int_equal(compare_results(r.out[0].data, r.out[0].size - 1, s.out[0].data, s.out[0].size, &c, &e), -1);
    assert_non_null(strstr(e.text, "REF has"));
    assert_int_equal(compare_results("x", 1, "x", 1, &c, &e), -1);
    pipeline_destroy(p);
    pipeline_destroy(q);
    free(tf.data);
    free(tf2.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_B73_cpu_beside_gpu), cmocka_unit_test(test_B73_refusals),
        cmocka_unit_test(test_options), cmocka_unit_test(test_no_gpu_here),
        cmocka_unit_test(test_sizes), cmocka_unit_test(test_compare),
        cmocka_unit_test(test_added_backend_shows_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
