/* hostlist_test.c - host lists: every writing, every refusal, folding and back */
#include "config.h"

#include "hostlist.h"
#include "mem.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char *unfolded(const struct hostlist *h)
{
    struct str s = { 0 };

    for (size_t i = 0; i < hostlist_count(h); i++)
        str_addf(&s, "%s%s", i > 0 ? "," : "", hostlist_name(h, i));
    return str_take(&s);
}

static void unfolds_to(const char *text, const char *want)
{
    struct err e;
    struct hostlist *h = hostlist_parse(text, NULL, NULL, &e);
    char *got;

    if (h == NULL)
        fail_msg("'%s': %s", text, e.text);
    got = unfolded(h);
    assert_string_equal(got, want);
    free(got);
    hostlist_destroy(h);
}

static void folds_to(const char *text, const char *want)
{
    struct err e;
    struct hostlist *h = hostlist_parse(text, NULL, NULL, &e);
    char *got;

    if (h == NULL)
        fail_msg("'%s': %s", text, e.text);
    got = hostlist_fold(h);
    assert_string_equal(got, want);
    free(got);
    hostlist_destroy(h);
}

static void refused(const char *text, size_t column, const char *words)
{
    struct err e = { 0 };
    char want[64];
    struct hostlist *h = hostlist_parse(text, NULL, NULL, &e);

    if (h != NULL)
        fail_msg("'%s' was taken", text);
    snprintf(want, sizeof(want), "column %zu:", column);
    if (strstr(e.text, want) == NULL || strstr(e.text, words) == NULL)
        fail_msg("'%s': '%s', wanted %s %s", text, e.text, want, words);
    assert_int_equal(e.code, ERR_USAGE);
}

static void b49_width_is_kept(void **state)
{
    (void)state;
    unfolds_to("n[001-010]", "n001,n002,n003,n004,n005,n006,n007,n008,n009,n010");
    unfolds_to("n[01-04,10,007-009]", "n01,n02,n03,n04,n10,n007,n008,n009");
    unfolds_to("n[9-11]", "n9,n10,n11");
    unfolds_to("n[98-101]", "n98,n99,n100,n101");
    unfolds_to("n[08-101]x,n1", "n08x,n09x,n10x,n11x,n12x,n13x,n14x,n15x,n16x,n17x,n18x,n19x,n20x,n21x,n22x,n23x,n24x,n25x,n26x,n27x,n28x,"
               "n29x,n30x,n31x,n32x,n33x,n34x,n35x,n36x,n37x,n38x,n39x,n40x,n41x,n42x,n43x,n44x,n45x,n46x,n47x,n48x,n49x,n50x,n51x,n52x,"
               "n53x,n54x,n55x,n56x,n57x,n58x,n59x,n60x,n61x,n62x,n63x,n64x,n65x,n66x,n67x,n68x,n69x,n70x,n71x,n72x,n73x,n74x,n75x,n76x,"
               "n77x,n78x,n79x,n80x,n81x,n82x,n83x,n84x,n85x,n86x,n87x,n88x,n89x,n90x,n91x,n92x,n93x,n94x,n95x,n96x,n97x,n98x,n99x,n100x,"
               "n101x,n1");
    folds_to("n[001-010]", "n[001-010]");
    folds_to("n[01-04,10,007-009]", "n[01-04,007-009,10]");
    folds_to("n[9-11]", "n[9-11]");
    folds_to("n01,n001,n1", "n[1,01,001]");
    folds_to("n99,n100,n098", "n[098,99-100]");
}

static void b49_nothing_is_doubled_or_invented(void **state)
{
    (void)state;
    unfolds_to("n[1-1]", "n1");
    folds_to("n[1-1]", "n1");
    unfolds_to("n1,n1,n[1-2],n2", "n1,n2");
    unfolds_to("r[1-2]n[3-4]", "r1n3,r1n4,r2n3,r2n4");
    folds_to("r[1-2]n[3-4]", "r[1-2]n[3-4]");
    folds_to("r1n3,r1n4,r2n3", "r1n[3-4],r2n3");
    folds_to("r1n3,r2n4", "r1n3,r2n4");
    unfolds_to("n1, n2", "n1,n2");
    unfolds_to(" n1\n n2,\tn3\n", "n1,n2,n3");
    unfolds_to("[1-2]", "1,2");
    unfolds_to("a[1-2]b[07-08]c[1,3]", "a1b07c1,a1b07c3,a1b08c1,a1b08c3,a2b07c1,a2b07c3,a2b08c1,a2b08c3");
    folds_to("a[1-2]b[07-08]c[1,3]", "a[1-2]b[07-08]c[1,3]");
}

static void b49_reversed_and_open_ranges_name_their_column(void **state)
{
    (void)state;
    refused("n[010-9]", 3, "backwards");
    refused("n[1-]", 5, "no end");
    refused("n[]", 2, "nothing between");
    refused("n[-3]", 3, "number is missing");
    refused("n[1,]", 5, "number is missing");
    refused("n[,1]", 3, "number is missing");
    refused("n[1-2-3]", 6, "only numbers");
    refused("n[a]", 3, "number is missing");
    refused("n[1 -2]", 4, "only numbers");
    refused("n[1-3", 2, "without ']'");
    refused("n1]", 3, "without '['");
    refused("n[[1]]", 2, "without ']'");
    refused("ok[1-3],n[5-4]", 11, "backwards");
    refused("n[1-010]", 3, "widths");
    refused("n[007-10]", 3, "widths");
    refused("n1,,n2", 4, "missing");
    refused(",n1", 1, "missing");
    refused("n1,", 4, "missing");
    refused("n1;n2", 3, "cannot be in");
    refused("n1 n\xc3\xa9", 5, "cannot be in");
    refused("-n1", 1, "starts with");
    refused("n2,.n1", 4, "starts with");
    refused("@online", 1, "@words");
    refused("n1,@", 4, "missing after '@'");
    refused("n[1234567890123456789]", 3, "18 digits");
}

static void b49_counted_before_it_is_expanded(void **state)
{
    struct err e;
    struct hostlist *h;

    (void)state;
    refused("n[1-999999999999999999]", 23, "65536");
    refused("n[1-65536]x[1-65536]y[1-65536]z[1-65536]", 1, "65536");
    refused("n[1-65536],m1", 12, "65536");
    refused("a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1]i[1]", 34, "8 bracket groups");
    h = hostlist_parse("n[1-65536]", NULL, NULL, &e);
    assert_non_null(h);
    assert_int_equal(hostlist_count(h), 65536);
    assert_int_equal(hostlist_add(h, "n65536", &e), 0);
    assert_int_equal(hostlist_add(h, "n65537", &e), -1);
    assert_string_equal(e.text, "more than 65536 names");
    hostlist_destroy(h);
    h = hostlist_parse("a[1]b[1]c[1]d[1]e[1]f[1]g[1]h[1-2]", NULL, NULL, &e);
    assert_non_null(h);
    assert_string_equal(hostlist_name(h, 1), "a1b1c1d1e1f1g1h2");
    hostlist_destroy(h);
}

static void b49_a_long_list_is_not_cut(void **state)
{
    struct str s = { 0 };
    struct err e;
    struct hostlist *h;

    (void)state;
    for (int i = 0; i < 60000; i++)
        str_addf(&s, "%sx%d-some.quite-long_name-of-a.node-that-fills-the-list", i > 0 ? "," : "", 7 * i);
    h = hostlist_parse(str_text(&s), NULL, NULL, &e);
    assert_non_null(h);
    assert_int_equal(hostlist_count(h), 60000);
    assert_string_equal(hostlist_name(h, 59999), "x419993-some.quite-long_name-of-a.node-that-fills-the-list");
    hostlist_destroy(h);
    str_free(&s);
}

static void names_are_checked(void **state)
{
    struct err e;
    struct hostlist *h = hostlist_create();
    char name[80];

    (void)state;
    memset(name, 'a', sizeof(name));
    name[64] = '\0';
    assert_int_equal(hostlist_add(h, name, &e), -1);
    assert_int_equal(hostlist_add(h, name + 1, &e), 0);
    assert_int_equal(hostlist_add(h, "a\x1b[31m", &e), -1);
    assert_null(strchr(e.text, '\x1b'));
    memcpy(name + 57, "[1-1000000]", 12);
    hostlist_destroy(h);
    refused("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 1, "63 characters");
    refused("x,aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa[99-100]", 3, "63 characters");
}

static void an_empty_text_is_an_empty_set(void **state)
{
    (void)state;
    unfolds_to("", "");
    unfolds_to(" \n", "");
    folds_to("", "");
}

static int resolve(void *arg, const char *word, struct hostlist *h, struct err *e)
{
    ++*(int *)arg;
    if (strcmp(word, "@class:mi100") == 0)
        return hostlist_add(h, "mi100-001", e);
    return err_set(e, ERR_USAGE, "no such word '%s'", word);
}

static void words_are_resolved_once_and_in_place(void **state)
{
    struct err e;
    int calls = 0;
    struct hostlist *h = hostlist_parse("n1,@class:mi100,n2", resolve, &calls, &e);
    char *got;

    (void)state;
    assert_non_null(h);
    got = unfolded(h);
    assert_string_equal(got, "n1,mi100-001,n2");
    assert_int_equal(calls, 1);
    free(got);
    hostlist_destroy(h);
    assert_null(hostlist_parse("n1,@nope", resolve, &calls, &e));
    assert_string_equal(e.text, "host list, column 4: no such word '@nope'");
}

static void natural_order_puts_2_before_10(void **state)
{
    struct err e;
    struct hostlist *h = hostlist_parse("n10,n2,n1,m5,n02,n2b,n2a,n", NULL, NULL, &e);
    char *got;

    (void)state;
    assert_non_null(h);
    hostlist_sort(h);
    got = unfolded(h);
    assert_string_equal(got, "m5,n,n1,n2,n2a,n2b,n02,n10");
    assert_true(hostlist_compare("n2", "n10") < 0 && hostlist_compare("n10", "n2") > 0);
    assert_true(hostlist_compare("a9b", "a10a") < 0);
    assert_int_equal(hostlist_compare("n7", "n7"), 0);
    free(got);
    hostlist_destroy(h);
}

static void sets_can_be_subtracted_and_met(void **state)
{
    struct err e;
    struct hostlist *a = hostlist_parse("n[1-5]", NULL, NULL, &e), *b = hostlist_parse("n[4-9],n02", NULL, NULL, &e);
    struct hostlist *diff = hostlist_diff(a, b), *and = hostlist_and(a, b);
    char *d = unfolded(diff), *n = unfolded(and);

    (void)state;
    assert_string_equal(d, "n1,n2,n3");
    assert_string_equal(n, "n4,n5");
    assert_true(hostlist_has(a, "n5"));
    assert_false(hostlist_has(a, "n05"));
    assert_null(hostlist_name(a, 5));
    free(d);
    free(n);
    hostlist_destroy(diff);
    hostlist_destroy(and);
    hostlist_destroy(a);
    hostlist_destroy(b);
}

/* --- unfold(fold(x)) = x -------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The same set, compared by sorting both with strcmp: no code of hostlist.c decides. */
static bool same_set(const struct hostlist *a, const struct hostlist *b)
{
    size_t n = hostlist_count(a);
    const char **x = mem_array(n, sizeof(*x)), **y = mem_array(n, sizeof(*y));
    bool same = n == hostlist_count(b);

    for (size_t i = 0; same && i < n; i++) {
        x[i] = hostlist_name(a, i);
        y[i] = hostlist_name(b, i);
    }
    if (same) {
        qsort(x, n, sizeof(*x), by_name);
        qsort(y, n, sizeof(*y), by_name);
    }
    for (size_t i = 0; same && i < n; i++)
        same = strcmp(x[i], y[i]) == 0;
    free(x);
    free(y);
    return same;
}

static size_t round_trip(const struct hostlist *h)
{
    struct err e = { 0 };
    char *folded = hostlist_fold(h);
    struct hostlist *back = hostlist_parse(folded, NULL, NULL, &e);
    size_t length = strlen(folded);

    if (back == NULL)
        fail_msg("'%s': %s", folded, e.text);
    if (!same_set(h, back))
        fail_msg("'%s' is another set", folded);
    free(folded);
    hostlist_destroy(back);
    return length;
}

static unsigned seed_shown(void)
{
    const char *given = getenv("SLUICE_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);

    printf("seed %u\n", seed);
    srandom(seed);
    return seed;
}

/* Names of few shapes with few numbers, so that they often join; paddings mixed. */
static void random_name(char *name, size_t size)
{
    static const char *const shapes[] = { "n%0*ld", "r%0*ldn%0*ld", "%0*ld", "a%0*ld-b%0*ld.c%0*ld", "gpu-%0*ldx" };
    const char *shape = shapes[random() % (long)ARRAY_LEN(shapes)];
    int w = (int)(random() % 4);

    snprintf(name, size, shape, w, random() % 13, (int)(random() % 3), random() % 5, 1, random() % 3);
}

static void b49_ten_thousand_random_sets_survive(void **state)
{
    struct err e;
    int sets = getenv("SLUICE_SOAK") != NULL ? 10000 : 2000;

    (void)state;
    seed_shown();
    for (int i = 0; i < sets; i++) {
        struct hostlist *h = hostlist_create();
        long n = random() % 40;

        for (long k = 0; k < n; k++) {
            char name[64];

            random_name(name, sizeof(name));
            assert_int_equal(hostlist_add(h, name, &e), 0);
        }
        round_trip(h);
        hostlist_destroy(h);
    }
}

static void b49_five_thousand_irregular_names_survive(void **state)
{
    static const char letters[] = "abcXYZ0123456789012345678901234567890123456789._-";
    struct hostlist *h = hostlist_create();
    struct err e;

    (void)state;
    seed_shown();
    while (hostlist_count(h) < 5000) {
        char name[64] = "n";
        long n = 1 + random() % 62;

        for (long k = 1; k < n; k++)
            name[k] = letters[random() % (long)(sizeof(letters) - 1)];
        name[n] = '\0';
        name[0] = letters[random() % 40];
        assert_int_equal(hostlist_add(h, name, &e), 0);
    }
    round_trip(h);
    hostlist_destroy(h);
}

static void a_large_farm_folds_short(void **state)
{
    struct err e;
    struct hostlist *h = hostlist_parse("r[01-64]n[001-032]x[0-31]", NULL, NULL, &e);

    (void)state;
    assert_non_null(h);
    assert_int_equal(hostlist_count(h), 65536);
    assert_int_equal(round_trip(h), strlen("r[01-64]n[001-032]x[0-31]"));
    hostlist_destroy(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(b49_width_is_kept),
        cmocka_unit_test(b49_nothing_is_doubled_or_invented),
        cmocka_unit_test(b49_reversed_and_open_ranges_name_their_column),
        cmocka_unit_test(b49_counted_before_it_is_expanded),
        cmocka_unit_test(b49_a_long_list_is_not_cut),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(an_empty_text_is_an_empty_set),
        cmocka_unit_test(words_are_resolved_once_and_in_place),
        cmocka_unit_test(natural_order_puts_2_before_10),
        cmocka_unit_test(sets_can_be_subtracted_and_met),
        cmocka_unit_test(b49_ten_thousand_random_sets_survive),
        cmocka_unit_test(b49_five_thousand_irregular_names_survive),
        cmocka_unit_test(a_large_farm_folds_short),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
