/* show_test.c - answers as JSON, tables and parsable lines */
#include "config.h"

#include "frame.h"
#include "mem.h"
#include "message.h"
#include "shares.h"
#include "show.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* --- standard output, caught ---------------------------------------------------------------- */

static int saved = -1;
static FILE *caught;

static void catch_stdout(void)
{
    fflush(stdout);
    saved = dup(STDOUT_FILENO);
    caught = tmpfile();
    assert_non_null(caught);
    dup2(fileno(caught), STDOUT_FILENO);
}

static char *caught_text(void)
{
    struct str s = { 0 };
    char buf[4096];
    size_t n;

    fflush(stdout);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    rewind(caught);
    while ((n = fread(buf, 1, sizeof(buf), caught)) > 0)
        str_addn(&s, buf, n);
    fclose(caught);
    return str_take(&s);
}

static const struct column columns[] = {
    { "name" }, { "size", "bytes", AS_SIZE }, { "took", "seconds", AS_SECONDS }, { "fill", NULL, AS_SHARE }, { "made", NULL, AS_TIME },
    { "marks", NULL, AS_COUNT }, { "reason", "marks.reason" }, { "dropped", NULL, AS_COUNTERS }, { 0 },
};
static const struct listing listing = { "things", columns, "name,size,took,reason" };

static char *shown(enum show_mode mode, const char *fields, bool no_header, const char *json)
{
    struct context ctx = { .mode = mode, .fields = fields, .no_header = no_header, .seq = 7 };
    json_t *objects = json_loads(json, 0, NULL);
    struct err e = { 0 };
    char *text;
    int r;

    assert_non_null(objects);
    catch_stdout();
    r = show_list(&ctx, &listing, NULL, objects, &e);
    text = caught_text();
    if (r < 0) {
        free(text);
        return mem_printf("error %d: %s", e.code, e.text);
    }
    return text;
}

static void shows(enum show_mode mode, const char *fields, bool no_header, const char *json, const char *want)
{
    char *got = shown(mode, fields, no_header, json);

    assert_string_equal(got, want);
    free(got);
}

/* --- tables and lines ----------------------------------------------------------------------- */

static void a_table_lines_up(void **state)
{
    (void)state;
    shows(SHOW_TABLE, NULL, false,
          "[{\"name\": \"a\", \"bytes\": 67108864, \"seconds\": 0.3, \"marks\": [{\"reason\": \"x\"}, {\"reason\": \"y\"}]},"
          " {\"name\": \"\u00e9\u00e9long\", \"bytes\": null, \"seconds\": 3700, \"marks\": []}]",
          "NAME    SIZE  TOOK   REASON\n"
          "a       64M   300ms  x,y\n"
          "\u00e9\u00e9long  -     1h01m  -\n");
    shows(SHOW_TABLE, "fill,marks,dropped,made", true,
          "[{\"fill\": 0.846, \"marks\": [1, 2], \"made\": \"2026-11-30T10:06:49.120+00:00\","
          " \"dropped\": [{\"name\": \"QueueFull\", \"value\": 3}, {\"name\": \"Short\", \"value\": 1}]}]",
          "85%  2  QueueFull 3, Short 1  2026-11-30T10:06:49\n");
    shows(SHOW_TABLE, NULL, false, "[]", "NAME  SIZE  TOOK  REASON\n");
}

static void b55_parsable_lines_always_have_their_fields(void **state)
{
    const char *json = "[{\"name\": \"n\", \"bytes\": 1, \"seconds\": 0.25, \"marks\": [{\"reason\": \"a|b,c\\nd\\\"e\\\\\"}]}]";

    (void)state;
    shows(SHOW_PARSABLE, NULL, false, json, "name|size|took|reason\nn|1|0.25|a\\|b,c\\nd\"e\\\\\n");
    shows(SHOW_PARSABLE, "reason", true, json, "a\\|b,c\\nd\"e\\\\\n");
    shows(SHOW_TABLE, "reason", true, json, "a|b,c\\nd\"e\\\\\n");
}

static void b55_any_text_keeps_lines_and_fields(void **state)
{
    const char *given = getenv("SLUICE_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int i = 0; i < 500; i++) {
        char text[24];
        json_t *list, *object;
        char *json, *got;
        size_t n = (size_t)(random() % (long)(sizeof(text) - 1)), bars = 0, lines = 0;

        for (size_t k = 0; k < n; k++)
            text[k] = "|\\\n\t\x1b\x7f\r ab,\""[random() % 12];
        text[n] = '\0';
        object = json_pack("{s:s,s:i,s:s}", "name", text, "bytes", 1, "fill", text);
        list = json_array();
        json_array_append_new(list, object);
        json = json_dumps(list, 0);
        got = shown(SHOW_PARSABLE, "name,size,fill", true, json);
        for (const char *p = got; *p != '\0'; p++) {
            if (*p == '\\')
                p++;
            else if (*p == '|')
                bars++;
            else if (*p == '\n')
                lines++;
            else
                assert_true((unsigned char)*p >= 0x20 && *p != 0x7f);
        }
        assert_int_equal(bars, 2);
        assert_int_equal(lines, 1);
        free(got);
        free(json);
        json_decref(list);
    }
}

static void escapes_reach_no_terminal(void **state)
{
    (void)state;
    shows(SHOW_TABLE, "name", true, "[{\"name\": \"\\u001b[31mred\\u009b\"}]", "\\x1B[31mred\\xC2\\x9B\n");
    shows(SHOW_JSONL, NULL, false, "[{\"name\": \"\\u001b[31m\\u009b\u00e9\"}]", "{\"name\":\"\\u001B[31m\\u009B\\u00E9\"}\n");
}

static void columns_are_chosen_by_name(void **state)
{
    char *got;

    (void)state;
    shows(SHOW_PARSABLE, "bytes,name", false, "[{\"name\": \"n\", \"bytes\": 5}]", "bytes|name\n5|n\n");
    got = shown(SHOW_TABLE, "name,colour", false, "[{\"name\": \"n\"}]");
    assert_string_equal(got, "error 2: -o 'colour': there is no such column; there are: name size took fill made marks reason dropped");
    free(got);
    got = shown(SHOW_TABLE, "name,,size", false, "[{\"name\": \"n\"}]");
    assert_int_equal(strncmp(got, "error 2", 7), 0);
    free(got);
    shows(SHOW_TABLE, "help", false, "[]", "name\nsize\ntook\nfill\nmade\nmarks\nreason\ndropped\n");
}

static void a_document_has_schema_meta_and_its_list(void **state)
{
    char *got = shown(SHOW_JSON, NULL, false, "[{\"name\": \"a|b,c\\nd\\\"e\", \"x\": 0.1, \"y\": null}]");
    json_t *doc = json_loads(got, 0, NULL);

    (void)state;
    assert_non_null(doc);
    assert_string_equal(json_string_value(json_object_get(json_object_get(doc, "schema"), "name")), "things");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "schema"), "version")), 1);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(doc, "meta"), "seq")), 7);
    assert_int_equal(strlen(json_string_value(json_object_get(json_object_get(doc, "meta"), "time"))), 29);
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(doc, "things"), 0), "name")), "a|b,c\nd\"e");
    assert_non_null(strstr(got, "\"x\": 0.1"));
    assert_non_null(strstr(got, "\"y\": null"));
    json_decref(doc);
    free(got);
}

/* --- messages ------------------------------------------------------------------------------- */

static void a_message_becomes_json_by_its_descriptor(void **state)
{
    Sluice__Node n = SLUICE__NODE__INIT;
    Sluice__MarkInfo mark = SLUICE__MARK_INFO__INIT;
    Sluice__MarkInfo *marks[] = { &mark };
    char *why[] = { "MarkedByOperator", "ContactLate" };
    json_t *j;

    (void)state;
    n.name = "n1";
    n.has_state = n.has_contact = n.has_usable = n.has_buffer_size = n.has_last_contact_s = 1;
    n.state = SLUICE__NODE_STATE__NODE_ERROR;
    n.contact = SLUICE__CONTACT__UP;
    n.buffer_size = UINT64_C(5000000000);
    n.last_contact_s = 0.25;
    n.n_why = 2;
    n.why = why;
    n.n_marks = 1;
    n.marks = marks;
    mark.reason = "a|b\n";
    mark.has_created = 1;
    mark.created = INT64_C(1796033209120000000);
    j = message_json(&n.base);
    assert_string_equal(json_string_value(json_object_get(j, "state")), "error");
    assert_string_equal(json_string_value(json_object_get(j, "contact")), "up");
    assert_true(json_is_false(json_object_get(j, "usable")));
    assert_true(json_is_null(json_object_get(j, "emulated")));
    assert_true(json_is_null(json_object_get(j, "pool")));
    assert_true(json_is_null(json_object_get(j, "move")));
    assert_true(json_integer_value(json_object_get(j, "buffer_size")) == 5000000000);
    assert_true(json_real_value(json_object_get(j, "last_contact_s")) == 0.25);
    assert_int_equal(json_array_size(json_object_get(j, "devices")), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(j, "why"), 1)), "ContactLate");
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "marks"), 0), "reason")), "a|b\n");
    assert_string_equal(json_string_value(json_object_get(json_array_get(json_object_get(j, "marks"), 0), "created")),
                        "2026-11-30T10:06:49.120+00:00");
    assert_int_equal(json_object_size(j), sluice__node__descriptor.n_fields);
    json_decref(j);
}

static void every_enum_of_the_contract_has_plain_words(void **state)
{
    static const struct { const ProtobufCEnumDescriptor *d; int value; const char *word; } cases[] = {
        { &sluice__node_state__descriptor, SLUICE__NODE_STATE__IDLE, "idle" },
        { &sluice__node_state__descriptor, SLUICE__NODE_STATE__DOWN, "down" },
        { &sluice__run_state__descriptor, SLUICE__RUN_STATE__RUN_DONE, "done" },
        { &sluice__run_state__descriptor, SLUICE__RUN_STATE__RUNNING, "running" },
        { &sluice__run_state__descriptor, SLUICE__RUN_STATE__RUN_READY, "ready" },
        { &sluice__job_state__descriptor, SLUICE__JOB_STATE__JOB_CANCELLED, "cancelled" },
        { &sluice__job_state__descriptor, SLUICE__JOB_STATE__HELD, "held" },
        { &sluice__device_state__descriptor, SLUICE__DEVICE_STATE__DEVICE_BROKEN, "broken" },
        { &sluice__severity__descriptor, SLUICE__SEVERITY__BLOCK, "block" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *word = message_enum_word(cases[i].d, cases[i].value);
        struct err e;
        int value;

        assert_string_equal(word, cases[i].word);
        assert_int_equal(message_enum_value(cases[i].d, "state", word, &value, &e), 0);
        assert_int_equal(value, cases[i].value);
        free(word);
    }
}

static void an_unknown_word_lists_the_choices(void **state)
{
    struct err e;
    int value;
    char *word = message_enum_word(&sluice__node_state__descriptor, 99);

    (void)state;
    assert_string_equal(word, "unknown-99");
    free(word);
    assert_int_equal(message_enum_value(&sluice__node_state__descriptor, "state", "lazy", &value, &e), -1);
    assert_string_equal(e.text, "state 'lazy': one of these is wanted: idle busy full moving bad error down");
}

static void lists_come_from_repeated_and_single_fields(void **state)
{
    Sluice__Changed c = SLUICE__CHANGED__INIT;
    Sluice__NodeResult r = SLUICE__NODE_RESULT__INIT, *rs[] = { &r };
    json_t *list;

    (void)state;
    list = message_list(&c.base, "results");
    assert_int_equal(json_array_size(list), 0);
    json_decref(list);
    r.node = "n1";
    c.n_results = 1;
    c.results = rs;
    list = message_list(&c.base, "results");
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "node")), "n1");
    json_decref(list);
}

static void one_object_has_a_line_a_field(void **state)
{
    struct context ctx = { .mode = SHOW_TABLE };
    struct err e;
    char *got;

    (void)state;
    catch_stdout();
    assert_int_equal(show_one(&ctx, &listing, json_loads("{\"name\": \"n\", \"bytes\": 1536, \"empty\": null, \"none\": [],"
                              " \"list\": [{\"a\": 1, \"b\": \"x\\ny\"}, {\"a\": 2, \"b\": null}]}", 0, NULL), &e), 0);
    got = caught_text();
    assert_string_equal(got, "name              n\n"
                             "bytes             1.5 KiB\n"
                             "list              a 1, b x\\ny\n"
                             "                  a 2\n");
    free(got);
}

static json_t *share(json_t *all, const char *name, const char *class, int done, int in_flight, double mean, double high)
{
    json_array_append_new(all, json_pack("{s:s,s:s,s:i,s:i,s:f,s:f}", "node", name, "class", class, "done", done, "in_flight", in_flight, "fill_mean", mean, "fill_high", high));
    return all;
}

/* 350 nodes of two classes, some of which were too full, one did nothing, one is new. */
static void the_nodes_of_a_run_fit_a_page(void **state)
{
    struct context ctx = { .mode = SHOW_TABLE };
    json_t *all = json_array(), *run;
    struct err e;
    char *got, name[8];

    (void)state;
    for (int i = 1; i <= 350; i++) {
        snprintf(name, sizeof(name), "n%03d", i);
        share(all, name, i <= 280 ? "mi50" : "mi100", i == 7 ? 0 : 10 + i % 3, i == 7 ? 0 : i % 2, 0.30 + (i % 2) * 0.1, i > 340 ? 0.02 : 0);
    }
    json_array_append_new(all, json_pack("{s:s,s:s,s:i,s:i,s:n,s:n}", "node", "new", "class", "x", "done", 0, "in_flight", 1, "fill_mean", "fill_high"));
    run = json_pack("{s:o}", "nodes", shares_grouped(all));
    catch_stdout();
    assert_int_equal(show_one(&ctx, &listing, run, &e), 0);
    got = caught_text();
    assert_string_equal(got, "nodes             node n[001-006,008-280], count 279, class mi50, done 3069 (10 to 12 each), in_flight 139 (0 to 1 each), fill_mean 30% to 40%, fill_high 0%\n"
                             "                  node n007, count 1, class mi50, done 0, in_flight 0, fill_mean 40%, fill_high 0%\n"
                             "                  node n[281-340], count 60, class mi100, done 660 (10 to 12 each), in_flight 30 (0 to 1 each), fill_mean 30% to 40%, fill_high 0%\n"
                             "                  node n[341-350], count 10, class mi100, done 111 (10 to 12 each), in_flight 5 (0 to 1 each), fill_mean 30% to 40%, fill_high 2%\n"
                             "                  node new, count 1, class x, done 0, in_flight 1\n");
    free(got);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_lines_up),
        cmocka_unit_test(b55_parsable_lines_always_have_their_fields),
        cmocka_unit_test(b55_any_text_keeps_lines_and_fields),
        cmocka_unit_test(escapes_reach_no_terminal),
        cmocka_unit_test(columns_are_chosen_by_name),
        cmocka_unit_test(a_document_has_schema_meta_and_its_list),
        cmocka_unit_test(a_message_becomes_json_by_its_descriptor),
        cmocka_unit_test(every_enum_of_the_contract_has_plain_words),
        cmocka_unit_test(an_unknown_word_lists_the_choices),
        cmocka_unit_test(lists_come_from_repeated_and_single_fields),
        cmocka_unit_test(one_object_has_a_line_a_field),
        cmocka_unit_test(the_nodes_of_a_run_fit_a_page),
    };

    setenv("TZ", "UTC0", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
