/* str_test.c - strings, escapes, sizes and numbers */
#include "config.h"

#include "mem.h"
#include "str.h"

#include <stdlib.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void a_string_grows(void **state)
{
    struct str s = { 0 };
    char *taken;

    (void)state;
    assert_string_equal(str_text(&s), "");
    for (int i = 0; i < 1000; i++)
        str_addf(&s, "%d,", i);
    assert_int_equal(s.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_string_equal(str_text(&s) + s.len - 4, "999,");
    taken = str_take(&s);
    assert_string_equal(str_text(&s), "");
    assert_int_equal(strncmp(taken, "0,1,2,", 6), 0);
    free(taken);
    taken = str_take(&s);
    assert_string_equal(taken, "");
    free(taken);
    str_addn(&s, "a\0b", 3);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.p, "a\0b", 4);
    str_clear(&s);
    assert_string_equal(str_text(&s), "");
    str_free(&s);
}

static void what_came_from_people_is_escaped(void **state)
{
    static const struct { const char *in, *out; } cases[] = {
        { "plain", "plain" },
        { "a|b,c\nd\"e", "a|b,c\\nd\"e" },
        { "tab\there", "tab\\there" },
        { "back\\slash", "back\\\\slash" },
        { "\x1b[31mred", "\\x1B[31mred" },
        { "\x7f", "\\x7F" },
        { "\xc3\xa9", "\xc3\xa9" },                         /* e acute */
        { "\xe2\x82\xac", "\xe2\x82\xac" },                 /* euro */
        { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
        { "\xc2\x9b" "31m", "\\xC2\\x9B31m" },          /* CSI as one character */
        { "\xff\xfe", "\\xFF\\xFE" },
        { "\xc0\xaf", "\\xC0\\xAF" },                   /* overlong '/' */
        { "\xed\xa0\x80", "\\xED\\xA0\\x80" },        /* a surrogate */
        { "\xe2\x82", "\\xE2\\x82" },                   /* cut off */
        { "\xf4\x90\x80\x80", "\\xF4\\x90\\x80\\x80" },   /* above U+10FFFF */
        { "\xe2\x80\xae" "x", "\\xE2\\x80\\xAEx" },   /* right-to-left override */
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str s = { 0 };

        str_escape(&s, cases[i].in, strlen(cases[i].in));
        assert_string_equal(str_text(&s), cases[i].out);
        str_free(&s);
    }
}

static void sizes_are_powers_of_1024(void **state)
{
    static const struct { const char *text; uint64_t bytes; } good[] = {
        { "1", 1 }, { "64M", 67108864 }, { "112G", UINT64_C(120259084288) }, { "4K", 4096 }, { "1T", UINT64_C(1099511627776) },
        { "18446744073709551615", UINT64_MAX }, { "16777215T", UINT64_C(18446742974197923840) },
    };
    static const char *const bad[] = {
        "", "0", "0M", "-1", "+1", "1.5G", "64m", "64MB", " 64M", "64M ", "M", "18446744073709551616", "16777216T", "0x10",
    };
    uint64_t v;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_int_equal(str_parse_size(good[i].text, &v, &e), 0);
        assert_true(v == good[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        v = 77;
        assert_int_equal(str_parse_size(bad[i], &v, &e), -1);
        assert_int_equal(e.code, ERR_USAGE);
        assert_non_null(strstr(e.text, "accepted"));
        assert_true(v == 77);
    }
}

static void sizes_are_shown(void **state)
{
    char out[32];

    (void)state;
    assert_string_equal(str_size_text(67108864, out), "64M");
    assert_string_equal(str_size_text(UINT64_C(120259084288), out), "112G");
    assert_string_equal(str_size_text(UINT64_C(24684092) << 10, out), "23.5 GiB");
    assert_string_equal(str_size_text(0, out), "0");
    assert_string_equal(str_size_text(1023, out), "1023");
    assert_string_equal(str_size_text(1536, out), "1.5 KiB");
    assert_string_equal(str_size_text(UINT64_C(3435973837), out), "3.2 GiB");
    assert_string_equal(str_size_text(UINT64_MAX, out), "16777216.0 TiB");
}

static void numbers_are_read_whole(void **state)
{
    struct err e;
    uint64_t u = 5;
    int64_t i = 5;
    double d = 5;

    (void)state;
    assert_int_equal(str_parse_u64("port", "65535", 1, 65535, &u, &e), 0);
    assert_true(u == 65535);
    assert_int_equal(str_parse_u64("port", "65536", 1, 65535, &u, &e), -1);
    assert_string_equal(e.text, "port '65536': a whole number from 1 to 65535 is wanted");
    assert_int_equal(str_parse_u64("n", "", 0, 9, &u, &e), -1);
    assert_int_equal(str_parse_u64("n", "-0", 0, 9, &u, &e), -1);
    assert_int_equal(str_parse_u64("n", "1 ", 0, 9, &u, &e), -1);
    assert_int_equal(str_parse_u64("n", "99999999999999999999", 0, UINT64_MAX, &u, &e), -1);
    assert_true(u == 65535);
    assert_int_equal(str_parse_i64("nice", "-20", -20, 19, &i, &e), 0);
    assert_true(i == -20);
    assert_int_equal(str_parse_i64("n", "-9223372036854775808", INT64_MIN, INT64_MAX, &i, &e), 0);
    assert_true(i == INT64_MIN);
    assert_int_equal(str_parse_i64("n", "9223372036854775808", INT64_MIN, INT64_MAX, &i, &e), -1);
    assert_int_equal(str_parse_i64("n", "--1", -9, 9, &i, &e), -1);
    assert_int_equal(str_parse_f64("rate", "0.5", 0, 1, &d, &e), 0);
    assert_true(d == 0.5);
    assert_int_equal(str_parse_f64("rate", "1e3", 0, 1e9, &d, &e), 0);
    assert_true(d == 1000);
    for (const char *const *p = (const char *const[]){ "nan", "inf", "0x1p3", "1,5", " 1", "1 ", "", "-", ".", "2", NULL }; *p; p++)
        assert_int_equal(str_parse_f64("rate", *p, 0, 1, &d, &e), -1);
    assert_true(d == 1000);
}

static void names_are_narrow(void **state)
{
    char longest[65];

    (void)state;
    memset(longest, 'a', 64);
    longest[64] = '\0';
    assert_false(str_is_name(longest));
    assert_true(str_is_name(longest + 1));
    assert_true(str_is_name("mi50-001.cern_x"));
    assert_true(str_is_name("0"));
    assert_false(str_is_name(""));
    assert_false(str_is_name("-a"));
    assert_false(str_is_name(".a"));
    assert_false(str_is_name("a b"));
    assert_false(str_is_name("a/b"));
    assert_false(str_is_name("\xc3\xa9"));
    assert_true(str_equal(NULL, NULL));
    assert_false(str_equal("a", NULL));
    assert_true(str_equal("a", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_string_grows),
        cmocka_unit_test(what_came_from_people_is_escaped),
        cmocka_unit_test(sizes_are_powers_of_1024),
        cmocka_unit_test(sizes_are_shown),
        cmocka_unit_test(numbers_are_read_whole),
        cmocka_unit_test(names_are_narrow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
