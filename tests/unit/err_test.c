/* err_test.c - codes and sentences of errors */
#include "config.h"

#include "err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void an_error_holds_code_and_sentence(void **state)
{
    struct err e = { 0 };

    (void)state;
    assert_int_equal(err_set(&e, ERR_STATE, "node %s: %d of %d GPUs", "gpu07", 3, 4), -1);
    assert_int_equal(e.code, 4);
    assert_string_equal(e.text, "node gpu07: 3 of 4 GPUs");
    assert_null(err_null(&e, ERR_LOST, "gone"));
    assert_int_equal(e.code, 12);
    assert_string_equal(e.text, "gone");
}

static void errno_is_told_and_kept(void **state)
{
    struct err e = { 0 };

    (void)state;
    errno = ENOENT;
    assert_int_equal(err_errno(&e, ERR_NOT_FOUND, "open %s", "/x"), -1);
    assert_string_equal(e.text, "open /x: No such file or directory");
    assert_int_equal(errno, ENOENT);
}

static void a_prefix_may_name_the_error_itself(void **state)
{
    struct err e = { 0 };

    (void)state;
    err_set(&e, ERR_USAGE, "bad");
    assert_int_equal(err_prefix(&e, "line %d", 7), -1);
    assert_string_equal(e.text, "line 7: bad");
    err_set(&e, ERR_USAGE, "again: %s", e.text);
    assert_string_equal(e.text, "again: line 7: bad");
}

static void no_struct_is_no_crash(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_FAILED, "x"), -1);
    assert_int_equal(err_errno(NULL, ERR_FAILED, "x"), -1);
    assert_null(err_null(NULL, ERR_FAILED, "x"));
    assert_int_equal(err_prefix(NULL, "x"), -1);
}

static void a_long_sentence_is_cut_at_a_character(void **state)
{
    struct err e = { 0 };
    char text[2 * sizeof(e.text)];

    (void)state;
    for (size_t shift = 0; shift < 2; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 2 < sizeof(text); i += 2)
            memcpy(text + i, "\xc3\xa9", 3);        /* e acute, two bytes */
        err_set(&e, ERR_FAILED, "%s", text);
        assert_in_range(strlen(e.text), sizeof(e.text) - 3, sizeof(e.text) - 1);
        assert_string_equal(e.text + strlen(e.text) - 3, "...");
        /* what stands before the dots is whole characters */
        assert_int_equal((strlen(e.text) - 3 - shift) % 2, 0);
    }
}

static void a_code_of_several_is_theirs_or_none_of_them(void **state)
{
    (void)state;
    assert_int_equal(err_of_errno(ENOENT), ERR_NOT_FOUND);
    assert_int_equal(err_of_errno(EACCES), ERR_PERMISSION);
    assert_int_equal(err_of_errno(EPERM), ERR_PERMISSION);
    assert_int_equal(err_of_errno(EIO), ERR_FAILED);
    assert_int_equal(err_of_errno(0), ERR_FAILED);
    assert_int_equal(err_common(ERR_NONE, ERR_PERMISSION), ERR_PERMISSION);
    assert_int_equal(err_common(ERR_PERMISSION, ERR_PERMISSION), ERR_PERMISSION);
    assert_int_equal(err_common(ERR_PERMISSION, ERR_NOT_FOUND), ERR_FAILED);
    assert_int_equal(err_common(ERR_FAILED, ERR_PERMISSION), ERR_FAILED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_error_holds_code_and_sentence),
        cmocka_unit_test(errno_is_told_and_kept),
        cmocka_unit_test(a_prefix_may_name_the_error_itself),
        cmocka_unit_test(no_struct_is_no_crash),
        cmocka_unit_test(a_long_sentence_is_cut_at_a_character),
        cmocka_unit_test(a_code_of_several_is_theirs_or_none_of_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
