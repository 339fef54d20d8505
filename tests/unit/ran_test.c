/* ran_test.c - on which backend stages ran: a text a TF, counts a run */
#include "config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ran.h"

static char *text_of(const char *const (*stage)[3], size_t n)
{
    Sluice__StageRan ran[20], *list[20];

    for (size_t i = 0; i < n; i++) {
        sluice__stage_ran__init(&ran[i]);
        ran[i].stage = (char *)stage[i][0];
        ran[i].backend = (char *)stage[i][1];
        ran[i].fallback = (char *)stage[i][2];
        list[i] = &ran[i];
    }
    return ran_text(list, n);
}

static void a_tf_is_told_stage_by_stage(void **unused)
{
    static const char *const stage[][3] = { { "decode", "cuda", NULL }, { "cluster", "cpu", "no usable GPU: driver 3 = 5!" } };
    size_t n;

    (void)unused;
    char *text = text_of(stage, 2);
    assert_string_equal(text, "decode=cuda\ncluster=cpu!no usable GPU: driver 3 = 5!");
    Sluice__StageRan **list = ran_stages(text, &n);
    assert_int_equal(n, 2);
    assert_string_equal(list[0]->stage, "decode");
    assert_string_equal(list[0]->backend, "cuda");
    assert_null(list[0]->fallback);
    assert_string_equal(list[1]->fallback, "no usable GPU: driver 3 = 5!");
    ran_stages_free(list, n);
    free(text);
}

static void what_is_no_name_is_left_out_and_a_reason_stays_on_its_line(void **unused)
{
    static const char *const stage[][3] = {
        { "de=code", "cpu", NULL }, { "decode", "", NULL }, { NULL, "cpu", NULL }, { "decode", "0123456789abcdef", NULL }, { "fit", "cpu", "a\nb=c" },
    };

    (void)unused;
    char *text = text_of(stage, 5);
    assert_string_equal(text, "fit=cpu!a\\nb=c");
    free(text);
    assert_null(ran_text(NULL, 0));
}

static void a_run_counts_by_stage_and_backend_and_keeps_the_last_reason(void **unused)
{
    struct ran *ran = NULL, *again = NULL;
    size_t n;

    (void)unused;
    assert_int_equal(ran_count(&ran, "decode=cpu!no driver\ncluster=cpu!no driver"), 2);
    assert_int_equal(ran_count(&ran, "decode=cpu!no device\ncluster=cuda"), 1);
    assert_int_equal(ran_count(&ran, "decode=cpu"), 0);
    assert_int_equal(ran_count(&ran, NULL), 0);
    char *text = ran_totals_text(ran);
    assert_string_equal(text, "decode=cpu 3 2!no device\ncluster=cpu 1 1!no driver\ncluster=cuda 1 0");
    ran_totals_read(&again, text);
    char *same = ran_totals_text(again);
    assert_string_equal(same, text);
    Sluice__StageTotal **list = ran_list(again, &n);
    assert_int_equal(n, 3);
    assert_int_equal(list[0]->tfs, 3);
    assert_int_equal(list[0]->fallbacks, 2);
    assert_string_equal(list[0]->reason, "no device");
    assert_null(list[2]->reason);
    ran_list_free(list, n);
    free(same);
    ran_uncount(&ran, "decode=cpu!no device\ncluster=cuda");
    ran_uncount(&ran, "decode=hip");                     /* one that was never counted */
    ran_uncount(&ran, NULL);
    free(text);
    text = ran_totals_text(ran);
    assert_string_equal(text, "decode=cpu 2 1!no device\ncluster=cpu 1 1!no driver");
    free(text);
    ran_free(ran);
    ran_free(again);
    assert_null(ran_totals_text(NULL));
}

static void a_worker_that_invents_stages_does_not_fill_the_memory(void **unused)
{
    struct ran *ran = NULL;
    unsigned kinds = 0;

    (void)unused;
    for (int i = 0; i < 1000; i++) {
        char text[40];
        snprintf(text, sizeof text, "stage%d=cpu", i);
        ran_count(&ran, text);
    }
    for (const struct ran *r = ran; r; r = r->next)
        kinds++;
    assert_int_equal(kinds, RAN_KINDS);
    ran_free(ran);
}

static void a_text_that_is_not_ours_counts_nothing(void **unused)
{
    static const char *const bad[] = { "", "\n\n", "decode", "=cpu", "!x", "decode!=cpu" };

    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct ran *ran = NULL;
        size_t n;
        ran_count(&ran, bad[i]);
        assert_null(ran);
        Sluice__StageRan **list = ran_stages(bad[i], &n);
        assert_int_equal(n, 0);
        ran_stages_free(list, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tf_is_told_stage_by_stage),
        cmocka_unit_test(what_is_no_name_is_left_out_and_a_reason_stays_on_its_line),
        cmocka_unit_test(a_run_counts_by_stage_and_backend_and_keeps_the_last_reason),
        cmocka_unit_test(a_worker_that_invents_stages_does_not_fill_the_memory),
        cmocka_unit_test(a_text_that_is_not_ours_counts_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
