/* spec_test.c - what up is asked for becomes a configuration */
#include "config.h"

#include "mem.h"
#include "spec.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct conf *empty(void)
{
    struct err e;
    struct conf *c = conf_parse("", "empty", &e);

    assert_non_null(c);
    return c;
}

static void apply(struct conf *c, const char *nodes, const char *nominal, uint64_t shm, bool changes_nodes, bool changes_classes)
{
    struct spec s = { .shm = shm };
    struct spec_change change;
    struct err e = { 0 };

    if (spec_parse(&s, nodes, &e) < 0 || (nominal != NULL && spec_nominal(&s, nominal, &e) < 0) || spec_apply(&s, c, &change, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(change.nodes, changes_nodes);
    assert_int_equal(change.classes, changes_classes);
    spec_free(&s);
}

static void the_sample_classes_have_their_service_times(void **state)
{
    struct conf *c = empty();

    (void)state;
    apply(c, "mi50:2,mi100:1,cpu:3", NULL, 0, true, false);
    assert_true(conf_class_find(c, "mi50")->nominal_ms == 300);
    assert_true(conf_class_find(c, "mi100")->nominal_ms == 200);
    assert_true(conf_class_find(c, "cpu")->nominal_ms == 0);
    assert_true(conf_class_find(c, "mi50")->shm == UINT64_C(64) << 20);
    assert_string_equal(conf_node_find(c, "mi50-002")->class_name, "mi50");
    assert_string_equal(conf_node_find(c, "mi50-001")->pool, "online");
    assert_null(conf_node_find(c, "mi50-003"));
    assert_non_null(conf_node_find(c, "cpu-003"));
    conf_destroy(c);
}

static void a_second_time_adds_only_what_is_missing(void **state)
{
    struct conf *c = empty();

    (void)state;
    apply(c, "mi50:3", "mi50=30", 0, true, false);
    assert_true(conf_class_find(c, "mi50")->nominal_ms == 30);
    apply(c, "mi50:2", NULL, 0, false, false);
    apply(c, NULL, NULL, 0, false, false);
    apply(c, "mi50:3", "mi50=30", UINT64_C(64) << 20, false, false);
    assert_true(conf_class_find(c, "mi50")->nominal_ms == 30);
    apply(c, "mi50:5", NULL, 0, true, false);
    assert_non_null(conf_node_find(c, "mi50-005"));
    apply(c, "mi50:5", "mi50=40", 0, false, true);
    apply(c, NULL, NULL, UINT64_C(7) << 20, false, true);
    assert_true(conf_class_find(c, "mi50")->shm == UINT64_C(7) << 20);
    conf_destroy(c);
}

static void what_was_made_is_a_configuration(void **state)
{
    struct conf *c = empty(), *again;
    struct err e = { 0 };
    char *text;

    (void)state;
    apply(c, "mi50:2,mi100:1", NULL, UINT64_C(48) << 20, true, false);
    text = conf_show(c);
    again = conf_parse(text, "again", &e);
    if (again == NULL)
        fail_msg("%s", e.text);
    assert_non_null(conf_node_find(again, "mi100-001"));
    assert_true(conf_class_find(again, "mi50")->shm == UINT64_C(48) << 20);
    free(text);
    conf_destroy(again);
    conf_destroy(c);
}

static void slips_are_refused(void **state)
{
    static const char *const nodes[] = { "mi50", "mi50:", "mi50:0", "mi50:1001", ":2", "mi50:2,", "mi50:2,mi50:1", "mi 50:2", "mi50:-1", "mi50:2:3", "" };
    static const char *const nominal[] = { "mi50", "=3", "mi50=", "mi50=-1", "mi50=x", "mi50=1e99" };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        struct spec s = { 0 };

        if (spec_parse(&s, nodes[i], &e) == 0)
            fail_msg("'%s' was taken", nodes[i]);
        assert_int_equal(e.code, ERR_USAGE);
        spec_free(&s);
    }
    for (size_t i = 0; i < ARRAY_LEN(nominal); i++) {
        struct spec s = { 0 };

        if (spec_nominal(&s, nominal[i], &e) == 0)
            fail_msg("'%s' was taken", nominal[i]);
        spec_free(&s);
    }
}

static void a_service_time_of_no_class_is_refused(void **state)
{
    struct conf *c = empty();
    struct spec s = { 0 };
    struct spec_change change;
    struct err e;

    (void)state;
    assert_int_equal(spec_parse(&s, "mi50:1", &e), 0);
    assert_int_equal(spec_nominal(&s, "mi100=3", &e), 0);
    assert_int_equal(spec_apply(&s, c, &change, &e), -1);
    assert_non_null(strstr(e.text, "no class 'mi100'"));
    spec_free(&s);
    conf_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_classes_have_their_service_times),
        cmocka_unit_test(a_second_time_adds_only_what_is_missing),
        cmocka_unit_test(what_was_made_is_a_configuration),
        cmocka_unit_test(slips_are_refused),
        cmocka_unit_test(a_service_time_of_no_class_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
