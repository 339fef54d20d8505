/* constraint_test.c - feature expressions: which are taken, what is wrong with the others, and which nodes they mean */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "constraint.h"

static void expressions_mean_nodes(void **state)
{
    static const struct { const char *wanted, *have; bool fits; } cases[] = {
        { "mi50", "mi50", true },           { "mi50", "ib,mi50", true },         { "mi50", "mi50,ib", true },
        { "mi50", NULL, false },            { "mi50", "", false },               { "mi50", "mi500", false },
        { "mi500", "mi50", false },         { "mi50", "mi100,mi", false },       { "MI50", "mi50", false },
        { "a&b", "a,b", true },             { "a&b", "b,a,c", true },            { "a&b", "a", false },
        { "a|b", "b", true },               { "a|b", "a", true },                { "a|b", "c", false },
        { "a&b&c", "a,c,b", true },         { "a&b&c", "a,c", false },           { "a|b|c", "c", true },
        { "a&(b|c)", "a,c", true },         { "a&(b|c)", "c,b", false },         { "a&(b|c)", "a", false },
        { "(a&b)|(c&d)", "c,d", true },     { "(a&b)|(c&d)", "a,d", false },     { "(a)", "a", true },
        { "gfx.906-x:y=1_2", "gfx.906-x:y=1_2", true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(constraint_check(cases[i].wanted, NULL), 0);
        if (constraint_fits(cases[i].wanted, cases[i].have) != cases[i].fits)
            fail_msg("%s of %s", cases[i].wanted, cases[i].have == NULL ? "nothing" : cases[i].have);
    }
}

static void what_is_no_expression_says_where(void **state)
{
    static const struct { const char *text, *where; } cases[] = {
        { "", "character 1 " },          { " a", "character 1 " },        { "a b", "character 2 " },       { "a&", "character 3 " },
        { "a|b&c", "character 4 " },     { "a&b|c", "character 4 " },     { "a,b", "character 2 " },       { "!a", "character 1 " },
        { "(a|b", "character 5 " },      { "a)", "character 2 " },        { "()", "character 2 " },        { "((a))", "character 2 " },
        { "a*4", "character 2 " },       { "[a|b]", "character 1 " },     { "a&&b", "character 3 " },      { "(a|b&c)", "character 5 " },
        { "a\n", "character 2 " },
    };
    char *long_one = malloc(CONSTRAINT_MOST + 2);
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(constraint_check(cases[i].text, &e), -1);
        assert_int_equal(e.code, ERR_USAGE);
        if (strstr(e.text, cases[i].where) == NULL)
            fail_msg("'%s' gave '%s', wanted %s", cases[i].text, e.text, cases[i].where);
    }
    assert_non_null(long_one);
    memset(long_one, 'a', CONSTRAINT_MOST + 1);
    long_one[CONSTRAINT_MOST + 1] = '\0';
    assert_int_equal(constraint_check(long_one, &e), -1);
    long_one[CONSTRAINT_MOST] = '\0';
    assert_int_equal(constraint_check(long_one, &e), 0);
    free(long_one);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(expressions_mean_nodes),
        cmocka_unit_test(what_is_no_expression_says_where),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
