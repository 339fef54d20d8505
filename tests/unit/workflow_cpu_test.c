/* workflow_cpu_test.c - stages that have code for the CPU only: what is refused at once, and what the refusal says */
#include "kernels_help.h"

#define ALL_BACKENDS { "cpu", NULL }
#include "workflow.c"

static void refused(const char *backends, const char *word, const char *choices)
{
    struct workflow_choice c;
    struct k_err e = { 0 };

    assert_int_equal(workflow_choose("cluster", backends, NULL, &c, &e), -1);
    assert_int_equal(e.code, K_EOPTION);
    if (strstr(e.text, word) == NULL || strstr(e.text, choices) == NULL)
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", e.text, word, choices);
}

static void test_B73_stage_without_gpu_code(void **state)
{
    (void)state;
    struct workflow_choice c;
    struct k_err e = { 0 };

    refused("decode=cpu,cluster=gpu", "stage cluster has no code for a GPU", "choices are cpu");
    refused("gpu", "stage decode has no code for a GPU", "choices are cpu");
    refused("cluster=cuda", "stage cluster: no backend \"cuda\"", "choices are auto, gpu, cpu");
    assert_int_equal(workflow_choose("cluster", "decode=cpu,cluster=auto", NULL, &c, &e), 0);
    assert_string_equal(c.backend[STAGE_CLUSTER], "auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_B73_stage_without_gpu_code) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
