/* conf_test.c - the configuration file: what is taken, what is refused and where */
#include "config.h"

#include "conf.h"
#include "file.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void all_defaults_without_a_file(void **state)
{
    struct err e;
    struct conf *c = conf_read(NULL, &e);

    (void)state;
    assert_non_null(c);
    assert_null(c->path);
    assert_string_equal(c->state_dir, "/var/lib/sluice");
    assert_string_equal(c->socket, "/run/sluice/sluiced.sock");
    assert_null(c->listen);
    assert_string_equal(c->auth, "none");
    assert_null(c->log);
    assert_int_equal(c->n_roots_input, 0);
    assert_int_equal(c->n_classes, 0);
    assert_string_equal(c->pools[0].name, "online");
    assert_string_equal(c->pools[1].name, "async");
    assert_true(c->pools[1].degraded);
    assert_string_equal(c->worker.shm_dir, "/dev/shm");
    assert_true(c->worker.high_water == 0.8);
    assert_int_equal(c->worker.building_limit, 3);
    assert_string_equal(c->worker.crash_dir, "/var/lib/sluice/crash");
    assert_true(c->worker.crash_limit == UINT64_C(4) << 30);
    assert_int_equal(c->limits.clients, 256);
    assert_int_equal(c->limits.queue, 4096);
    assert_int_equal(c->limits.attempts, 3);
    assert_true(c->limits.part_timeout == 1 && c->limits.pull_timeout == 1 && c->limits.process_timeout == 120);
    assert_true(c->limits.deliver_timeout == 60 && c->limits.contact_timeout == 4 && c->limits.lock_timeout == 35 && c->limits.grace == 10 && c->limits.resize_timeout == 900);
    assert_true(c->limits.run_tfs == 1000000);
    assert_string_equal(c->slurm.reason_prefix, "sluice");
    assert_true(c->slurm.poll == 1 && c->slurm.timeout == 15 && c->slurm.settle == 10);
    assert_null(c->slurm.program);
    assert_null(c->slurm.conf);
    conf_destroy(c);
}

static const char whole[] =
    "# a farm\n"
    "state_dir = \"/srv/state\"\n"
    "socket = /run/s.sock\n"
    "listen = \"farm:7000\"\n"
    "auth = munge\n"
    "roots_input = { /data, '/more data' }\n"
    "limits { clients = 40 part_timeout = 0.25 run_tfs = 5 }\n"
    "health { program = { '/etc/a', \"/etc/b\" } brake_percent = 2.5 clear_automatic = yes disk_min = 1G }\n"
    "worker {\n"
    "    shm_dir = /dev/shm/x\n"
    "    huge_pages = yes\n"
    "    high_water = 0.5\n"
    "}\n"
    "pool async { min_good = 2 degraded = no nice = 10 }\n"
    "class mi50 { devices = 8 memory = 512G shm = 337G gpu_arch = gfx906 slurm_constraint = 'mi50&(ib|eth)' }\n"
    "class mi100 { nominal_ms = 200 shm = 64M }\n"
    "node \"mi50-[001-280]\" { class = mi50 }\n"
    "node \"mi100-[001-070]\" { class = mi100 pool = async slurm = lend }\n"
    "slurm { reason_prefix = farm poll = 0.5 conf = /etc/slurm/slurm.conf }\n"
    "role shift { users = { anna, bert } groups = { shifters } }\n";

static void check_whole(const struct conf *c)
{
    const struct conf_node *n;

    assert_string_equal(c->state_dir, "/srv/state");
    assert_string_equal(c->socket, "/run/s.sock");
    assert_string_equal(c->listen, "farm:7000");
    assert_string_equal(c->auth, "munge");
    assert_int_equal(c->n_roots_input, 2);
    assert_string_equal(c->roots_input[1], "/more data");
    assert_int_equal(c->limits.clients, 40);
    assert_int_equal(c->health.n_programs, 2);
    assert_string_equal(c->health.programs[1], "/etc/b");
    assert_true(c->health.brake_percent == 2.5 && c->health.clear_automatic && c->health.automatic && c->health.brake_nodes == 5);
    assert_true(c->health.disk_min == UINT64_C(1) << 30 && c->health.memory_min == 0);
    assert_true(c->health.period == 60 && c->health.timeout == 20 && c->health.brake_window == 3600);
    assert_string_equal(c->health.user, "nobody");
    assert_true(c->limits.part_timeout == 0.25);
    assert_true(c->limits.run_tfs == 5);
    assert_int_equal(c->limits.queue, 4096);
    assert_string_equal(c->worker.huge_pages, "yes");
    assert_string_equal(c->worker.crash_dir, "/srv/state/crash");
    assert_int_equal(c->pools[0].min_good, 0);
    assert_int_equal(c->pools[1].min_good, 2);
    assert_false(c->pools[1].degraded);
    assert_int_equal(c->pools[1].nice, 10);
    assert_int_equal(c->n_classes, 2);
    assert_int_equal(conf_class_find(c, "mi50")->devices, 8);
    assert_true(conf_class_find(c, "mi50")->memory == UINT64_C(512) << 30);
    assert_true(conf_class_find(c, "mi50")->nominal_ms == 0);
    assert_string_equal(conf_class_find(c, "mi50")->gpu_arch, "gfx906");
    assert_string_equal(conf_class_find(c, "mi50")->slurm_constraint, "mi50&(ib|eth)");
    assert_int_equal(conf_class_find(c, "mi100")->devices, 1);
    assert_null(conf_class_find(c, "mi100")->slurm_constraint);
    assert_null(conf_class_find(c, "mi300"));
    n = conf_node_find(c, "mi100-070");
    assert_non_null(n);
    assert_string_equal(n->class_name, "mi100");
    assert_string_equal(n->pool, "async");
    assert_string_equal(n->slurm, "lend");
    assert_string_equal(conf_node_find(c, "mi50-001")->slurm, "none");
    assert_string_equal(c->slurm.reason_prefix, "farm");
    assert_true(c->slurm.poll == 0.5 && c->slurm.timeout == 15);
    assert_string_equal(c->slurm.conf, "/etc/slurm/slurm.conf");
    assert_null(c->slurm.program);
    assert_int_equal(hostlist_count(n->names), 70);
    assert_string_equal(conf_node_find(c, "mi50-001")->pool, "online");
    assert_null(conf_node_find(c, "mi50-281"));
    assert_int_equal(c->n_roles, 1);
    assert_string_equal(c->roles[0].users[1], "bert");
    assert_int_equal(c->roles[0].n_groups, 1);
}

static void a_whole_file_is_read(void **state)
{
    char path[] = "/tmp/sluice-conf-test-XXXXXX";
    struct err e = { 0 };
    int fd = mkstemp(path);
    struct conf *c;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, whole, strlen(whole), &e), 0);
    close(fd);
    c = conf_read(path, &e);
    unlink(path);
    if (c == NULL)
        fail_msg("%s", e.text);
    assert_string_equal(c->path, path);
    check_whole(c);
    conf_destroy(c);
    assert_null(conf_read(path, &e));
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void what_is_shown_is_read_again(void **state)
{
    struct err e = { 0 };
    struct conf *c = conf_parse(whole, "a", &e), *again;
    char *first, *second;

    (void)state;
    assert_non_null(c);
    first = conf_show(c);
    again = conf_parse(first, "b", &e);
    if (again == NULL)
        fail_msg("%s\n%s", e.text, first);
    check_whole(again);
    second = conf_show(again);
    assert_string_equal(first, second);
    free(first);
    free(second);
    conf_destroy(c);
    conf_destroy(again);
}

static void odd_texts_survive(void **state)
{
    struct err e = { 0 };
    struct conf *c = conf_parse("state_dir = '/a \\'b\\' \"c\" ${HOME} \\\\ #{}=,'\nworker { crash_limit = 1000001 high_water = 0.1234567890123 }", "a", &e), *again;
    char *shown;

    (void)state;
    if (c == NULL)
        fail_msg("%s", e.text);
    assert_string_equal(c->state_dir, "/a 'b' \"c\" ${HOME} \\ #{}=,");
    shown = conf_show(c);
    again = conf_parse(shown, "b", &e);
    if (again == NULL)
        fail_msg("%s\n%s", e.text, shown);
    assert_string_equal(again->state_dir, c->state_dir);
    assert_true(again->worker.crash_limit == 1000001);
    assert_true(again->worker.high_water == 0.1234567890123);
    free(shown);
    conf_destroy(c);
    conf_destroy(again);
}

/* Two users share the farm: each sets the nice levels of its own side. */
static void the_sample_file_has_rules_for_both_users_of_the_farm(void **state)
{
    static const struct { const char *user; int min, max; } rules[] = { { "epn", 0, 10 }, { "epnasync", 10, 19 } };
    const char *top = getenv("SLUICE_SRCDIR");
    char path[4096];
    struct err e = { 0 };
    struct conf *c;

    (void)state;
    snprintf(path, sizeof(path), "%s/etc/sluice.conf", top ? top : ".");
    c = conf_read(path, &e);
    if (c == NULL)
        fail_msg("%s", e.text);
    assert_int_equal(c->n_nice_rules, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(c->nice_rules[i].n_users, 1);
        assert_string_equal(c->nice_rules[i].users[0], rules[i].user);
        assert_int_equal(c->nice_rules[i].min, rules[i].min);
        assert_int_equal(c->nice_rules[i].max, rules[i].max);
    }
    conf_destroy(c);
}

static void what_is_wrong_names_its_line(void **state)
{
    static const struct { const char *text, *where, *words; } cases[] = {
        { "state_dir = /a\ncolour = red\n", "f:2:", "colour" },
        { "\nwealth {\n period = 3\n}\n", "f:2:", "wealth" },
        { "health {\n period = 0\n}\n", "f:2:", "period" },
        { "health { program = { /1,/2,/3,/4,/5,/6,/7,/8,/9,/10,/11,/12,/13,/14,/15,/16,/17 } }\n", "f: ", "at most 16" },
        { "health { brake_nodes = 65 }\n", "f:1:", "brake_nodes" },
        { "slurm {\n\n reason_prefix = 'a: b'\n}\n", "f:3:", "reason_prefix" },
        { "slurm { poll = 0 }\n", "f:1:", "poll" },
        { "slurm { conf = slurm.conf }\n", "f:1:", "absolute" },
        { "health { program = check }\n", "f:1:", "absolute" },
        { "health { brake_percent = 101 }\n", "f:1:", "brake_percent" },
        { "worker {\n\n depth = 3\n}\n", "f:3:", "depth" },
        { "state_dir = relative\n", "f:1:", "absolute" },
        { "\nworker {\n high_water = 1.5\n}\n", "f:3:", "0.05 to 1" },
        { "worker {\n building_limit = 65\n}\n", "f:2:", "1 to 64" },
        { "worker { huge_pages = maybe }\n", "f:1:", "one of: no yes must" },
        { "class x {\n devices = 0\n}\n", "f:2:", "1 to 64" },
        { "class x {\n shm = 64MB\n}\n", "f:2:", "not a size" },
        { "class x {\n slurm_constraint = 'mi50 ib'\n}\n", "f:2:", "at character 5 & or |" },
        { "class x {\n slurm_constraint = ''\n}\n", "f:2:", "at character 1 the name" },
        { "class x { slurm_constraint = '\x1b[31m' }\n", "f:1:", "x1B[31m': at character 1" },
        { "class x { }\nclass x { }\n", "f:2:", "" },
        { "class 'a b' {\n}\n", "f:2:", "name" },
        { "pool third { }\n", "f:1:", "online and async" },
        { "pool async { nice = 20 }\n", "f:1:", "-20 to 19" },
        { "class x { }\nnode n1 { class = y }\n", "f:2:", "no class 'y'" },
        { "class x { }\nnode n1 { }\n", "f:2:", "class is missing" },
        { "class x { }\nnode 'n[1-3]' { class = x }\nnode n2 { class = x }\n", "f:3:", "node n2 is given twice" },
        { "class x { }\nnode 'n[3-1]' { class = x }\n", "f:2:", "column 3" },
        { "class x { }\nnode '' { class = x }\n", "f:2:", "no name" },
        { "class x { }\nnode n1 { class = x pool = spare }\n", "f:2:", "one of: online async" },
        { "auth = password\n", "f:1:", "none, munge" },
        { "auth = 'munge:socket'\n", "f:1:", "munge:SOCKET" },
        { "listen = nowhere\nauth = munge\n", "f:1:", "HOST:PORT" },
        { "listen = 'h:70000'\nauth = munge\n", "f:1:", "65535" },
        { "listen = 'h:7000'\n", "f:", "munge" },
        { "state_dir = /a\nstate_dir = /b\n", "f:2:", "twice" },
        { "worker { }\nworker { }\n", "f:2:", "twice" },
        { "limits { queue = 1\n queue = 2 }\n", "f:2:", "twice" },
        { "role king { }\n", "f:1:", "roles are" },
        { "state_dir /a\n", "f:1:", "" },
        { "worker {\n", "f:", "" },
        { "log = '/a\x1b[31m'\n", "f:1:", "absolute" },
        { "'\x1b[31m' = 3\n", "f:1:", "" },
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct conf *c;

        memset(&e, 0, sizeof(e));
        c = conf_parse(cases[i].text, "f", &e);
        if (c != NULL)
            fail_msg("taken: %s", cases[i].text);
        if (strncmp(e.text, cases[i].where, strlen(cases[i].where)) != 0 || strstr(e.text, cases[i].words) == NULL)
            fail_msg("%s\n gave '%s', wanted %s ... %s", cases[i].text, e.text, cases[i].where, cases[i].words);
        assert_null(strchr(e.text, '\x1b'));
        assert_int_equal(e.code, ERR_USAGE);
    }
}

/* The lexer is one for the program: what a broken text left half open must not colour the next. */
static void a_broken_text_does_not_spoil_the_next(void **state)
{
    static const char *const broken[] = { "state_dir = \"/a", "state_dir = '/a", "/* never closed", "worker { shm_dir = \"", "roots_input = { /a,", "class" };
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct conf *c = conf_parse(broken[i], "broken", &e);

        conf_destroy(c);
        c = conf_parse(whole, "whole", &e);
        if (c == NULL)
            fail_msg("after '%s': %s", broken[i], e.text);
        check_whole(c);
        conf_destroy(c);
    }
}

static void a_zero_byte_is_no_end(void **state)
{
    char path[] = "/tmp/sluice-conf-test-XXXXXX";
    struct err e = { 0 };
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, "state_dir = /a\n\0nonsense", 24, &e), 0);
    close(fd);
    assert_null(conf_read(path, &e));
    assert_non_null(strstr(e.text, "zero byte"));
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_defaults_without_a_file),
        cmocka_unit_test(a_whole_file_is_read),
        cmocka_unit_test(what_is_shown_is_read_again),
        cmocka_unit_test(odd_texts_survive),
        cmocka_unit_test(the_sample_file_has_rules_for_both_users_of_the_farm),
        cmocka_unit_test(what_is_wrong_names_its_line),
        cmocka_unit_test(a_broken_text_does_not_spoil_the_next),
        cmocka_unit_test(a_zero_byte_is_no_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
