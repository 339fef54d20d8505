/* marks_test.c - marks over lists, over parts that go, over changes of the configuration; moves that are killed between two steps */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "clock.h"
#include "conf.h"
#include "farm_fixture.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "show.h"

static const char conf_text[] = "class mi50 { devices = 1  shm = 1M }\nnode \"n[1-12]\" { class = mi50 }\n";
static const char conf_shrunk[] = "class mi50 { devices = 1  shm = 1M }\nnode \"n[1-2]\" { class = mi50 }\n";

static int setup(void **state)
{
    *state = fx_new(conf_text);
    return 0;
}

/* ---- a list ---- */

static const Sluice__Changed *ask_clear_list(struct peer *p, const char *const *names, size_t n, bool dry_run, bool any_owner, bool repeat_ok)
{
    Sluice__ClearMarks m = SLUICE__CLEAR_MARKS__INIT;

    m.names = (char **)(uintptr_t)names;
    m.n_names = n;
    m.reason = (char *)"repaired";
    m.has_dry_run = m.has_any_owner = m.has_repeat_ok = true;
    m.dry_run = dry_run;
    m.any_owner = any_owner;
    m.repeat_ok = repeat_ok;
    peer_ask(p, &m.base);
    return p->answer_type == SLUICE__TYPE__CHANGED ? (const Sluice__Changed *)p->answer : NULL;
}

static void of_somebody_else(struct node *n, const char *reason)
{
    mark_automatic(n, &(struct row_mark){ .owner_kind = "person", .owner = "somebody-else", .class = "hw", .reason = reason });
}

static void clearing_a_list_says_per_node_what_goes_and_stops_at_others(void **state)
{
    static const char *const names[] = { "n1", "n2", "n3", "n4" };
    struct fixture *f = *state;
    const Sluice__Changed *c;
    struct peer *p;

    fx_start(f);
    p = person(f);
    assert_int_equal(ask_mark(p, "n1", "fan", NULL), 0);
    assert_int_equal(ask_mark(p, "n1", "ECC", NULL), 0);
    of_somebody_else(farm_node(f->d.farm, "n1"), "PSU");
    mark_automatic(farm_node(f->d.farm, "n1"), &(struct row_mark){ .owner_kind = "person", .owner = "a-third", .class = "hw", .reason = "hum" });
    of_somebody_else(farm_node(f->d.farm, "n3"), "theirs");
    of_somebody_else(farm_node(f->d.farm, "n4"), "theirs too");
    fx_turn(f, 0.1);

    assert_null(ask_clear_list(p, names, 4, false, false, false));        /* n3 and n4 stop it: nothing goes */
    assert_int_equal(answer_code(p), ERR_STATE);
    assert_string_equal(answer_word(p), "OtherOwner");
    assert_non_null(strstr(answer_text(p), "n[3-4]: 2 of 4 nodes stop this"));
    assert_non_null(strstr(answer_text(p), "node n3"));
    assert_non_null(strstr(answer_text(p), "somebody-else"));
    assert_int_equal(marks_open(f->d.marks), 6);

    c = ask_clear_list(p, names, 4, true, false, false);                  /* the dry run says it node by node */
    assert_non_null(c);
    assert_int_equal(c->n_results, 4);
    assert_string_equal(c->results[0]->text, "would clear mark 1, 2; stays: mark 3 of person somebody-else, mark 4 of person a-third");
    assert_int_equal(c->results[0]->code, 0);
    assert_string_equal(c->results[1]->text, "has no open mark");
    assert_int_equal(c->results[1]->code, 0);
    assert_int_equal(c->results[2]->code, ERR_STATE);
    assert_int_equal(c->results[3]->code, ERR_STATE);
    assert_int_equal(marks_open(f->d.marks), 6);

    c = ask_clear_list(p, names, 2, false, false, false);                 /* a node without marks does not stop a range */
    assert_non_null(c);
    assert_int_equal(c->n_results, 2);
    assert_string_equal(c->results[0]->text, "cleared mark 1, 2; stays: mark 3 of person somebody-else, mark 4 of person a-third");
    assert_false(ask_node(p, "n1")->usable);
    assert_int_equal(ask_node(p, "n1")->n_marks, 2);
    c = ask_clear_list(p, names + 1, 1, false, false, false);             /* nor is one with nothing at all a mistake */
    assert_non_null(c);
    assert_string_equal(c->results[0]->text, "has no open mark");
    assert_int_equal(c->results[0]->code, 0);

    c = ask_clear_list(p, names, 4, false, true, false);
    assert_non_null(c);
    assert_int_equal(marks_open(f->d.marks), 0);
    peer_close(p);
}

static void a_list_stops_at_a_repeat_offender(void **state)
{
    static const char *const names[] = { "n1", "n2" };
    struct fixture *f = *state;
    const Sluice__Changed *c;
    struct peer *p;

    fx_start(f);
    p = person(f);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_mark(p, "n2", "again", NULL), 0);
        assert_int_equal(ask_clear(p, "n2", 0, false, false), 0);
    }
    assert_int_equal(ask_mark(p, "n1", "first time", NULL), 0);
    assert_int_equal(ask_mark(p, "n2", "and again", NULL), 0);
    assert_null(ask_clear_list(p, names, 2, false, false, false));
    assert_string_equal(answer_word(p), "RepeatOffender");
    assert_non_null(strstr(answer_text(p), "node n2: was marked 3 times before"));
    assert_int_equal(marks_open(f->d.marks), 2);
    c = ask_clear_list(p, names, 2, true, false, false);
    assert_non_null(c);
    assert_string_equal(c->results[0]->text, "would clear mark 4");
    assert_int_equal(c->results[1]->code, ERR_STATE);
    assert_non_null(ask_clear_list(p, names, 2, false, false, true));
    assert_int_equal(marks_open(f->d.marks), 0);
    peer_close(p);
}

/* ---- programs ---- */

static int ask_mark_as(struct peer *p, const char *tool, const char *node, const char *reason, const char *part)
{
    Sluice__MarkNodes m = SLUICE__MARK_NODES__INIT;
    char *names[1] = { (char *)(uintptr_t)node }, *parts[1] = { (char *)(uintptr_t)part };

    m.names = names;
    m.n_names = 1;
    m.parts = parts;
    m.n_parts = part != NULL;
    m.reason = (char *)(uintptr_t)reason;
    m.tool = (char *)(uintptr_t)tool;
    peer_ask(p, &m.base);
    return answer_code(p);
}

static int ask_clear_as(struct peer *p, const char *tool, const char *node)
{
    Sluice__ClearMarks m = SLUICE__CLEAR_MARKS__INIT;
    char *names[1] = { (char *)(uintptr_t)node };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)"good again";
    m.tool = (char *)(uintptr_t)tool;
    peer_ask(p, &m.base);
    return answer_code(p);
}

static void a_program_marks_once_and_clears_its_own_alone(void **state)
{
    struct fixture *f = *state;
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    const Sluice__History *h;
    const Sluice__Node *n;
    struct peer *p;

    fx_start(f);
    p = person(f);
    assert_int_equal(ask_mark_as(p, "ipmi watch", "n1", "hot", NULL), ERR_USAGE);
    assert_int_equal(ask_mark_as(p, "a|b", "n1", "hot", NULL), ERR_USAGE);
    assert_int_equal(ask_mark_as(p, "ipmi-watch", "n1", "hot", NULL), 0);
    assert_int_equal(ask_mark_as(p, "ipmi-watch", "n1", "hot", NULL), 0);            /* it looks every minute */
    assert_string_equal(((const Sluice__Changed *)p->answer)->results[0]->text, "is marked so already: mark 1");
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[0]->id, 1);
    assert_int_equal(ask_mark_as(p, "ipmi-watch", "n1", "fan 2 stands", NULL), 0);
    assert_int_equal(ask_mark_as(p, "raid-watch", "n1", "hot", NULL), 0);
    assert_int_equal(ask_mark(p, "n1", "PSU swap, ticket 17", NULL), 0);
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 4);
    assert_string_equal(n->marks[0]->owner_kind, "tool");
    assert_int_equal(ask_mark_as(p, "health", "n1", "in the name of another", NULL), ERR_USAGE);
    n = ask_node(p, "n1");
    assert_string_equal(n->marks[0]->owner, "ipmi-watch");
    assert_true(node_has_why(n, "MarkedByTool") && node_has_why(n, "MarkedByOperator"));

    assert_int_equal(ask_clear_as(p, "other-watch", "n1"), ERR_STATE);
    assert_string_equal(answer_word(p), "OtherOwner");
    assert_int_equal(ask_clear_as(p, "ipmi-watch", "n1"), 0);
    assert_int_equal(ask_node(p, "n1")->n_marks, 2);                                  /* raid-watch's and the person's */
    assert_int_equal(ask_clear(p, "n1", 0, false, true), 0);                          /* a person's own: not the program's */
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->owner, "raid-watch");
    assert_false(n->usable);
    assert_int_equal(ask_clear(p, "n1", 0, false, false), ERR_STATE);
    assert_int_equal(ask_clear(p, "n1", 0, true, false), ERR_STATE);
    assert_string_equal(answer_word(p), "RepeatOffender");
    assert_int_equal(ask_clear(p, "n1", 0, true, true), 0);                           /* with the right: any owner's */
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
    h = (const Sluice__History *)peer_ask(p, &q.base);
    for (size_t i = 0; i < h->n_events; i++) {
        if (strcmp(h->events[i]->what, "marked") == 0)
            assert_non_null(strstr(h->events[i]->who, "uid"));                        /* the real author of each */
        if (strcmp(h->events[i]->reason, "fan 2 stands") == 0)
            assert_non_null(strstr(h->events[i]->after, ", node, tool ipmi-watch)")); /* and for whom */
    }
    peer_close(p);
}

struct found { const char *word; char text[200]; };

static void look_for(void *arg, const struct alarm *a)
{
    struct found *k = arg;

    if (strcmp(a->word, k->word) == 0)
        snprintf(k->text, sizeof(k->text), "%s", a->text);
}

/* ---- what hangs on a name stays with the name ---- */

static bool is_reloaded(void *arg)
{
    struct fixture *f = arg;

    return f->d.conf->n_nodes == 1 && hostlist_count(f->d.conf->nodes[0].names) == 2;
}

static bool is_grown(void *arg)
{
    struct fixture *f = arg;

    return hostlist_count(f->d.conf->nodes[0].names) == 12;
}

static void expect_mark(struct fixture *f, struct peer *p, int64_t created)
{
    const Sluice__Node *n = ask_node(p, "n7");

    (void)f;
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->reason, "ECC errors");
    assert_true(n->marks[0]->created == created);
    assert_true(node_has_why(n, "MarkedByOperator"));
    assert_false(n->usable);
    assert_string_equal(n->pool, "async");
}

static bool is_async(void *arg)
{
    return ((struct node *)arg)->pool == POOL_ASYNC;
}

static void marks_and_pool_outlive_a_configuration_without_the_node(void **state)
{
    struct fixture *f = *state;
    struct found classless = { .word = "ClassUnknown" };
    struct peer *p;
    int64_t created;

    fx_start(f);
    p = person(f);
    assert_int_equal(ask_mark(p, "n7", "ECC errors", NULL), 0);
    assert_int_equal(ask_move(p, "n7", "async", NULL), 0);
    assert_true(fx_until(f, is_async, farm_node(f->d.farm, "n7")));
    created = ask_node(p, "n7")->marks[0]->created;
    fx_conf(f, conf_shrunk);                             /* dropped while it runs */
    sluiced_reload(&f->d);
    assert_true(fx_until(f, is_reloaded, f));
    expect_mark(f, p, created);
    peer_close(p);
    fx_stop(f);
    fx_start(f);                                         /* and over a restart */
    p = person(f);
    expect_mark(f, p, created);
    fx_conf(f, conf_text);                               /* brought back: its class and pool of before, not the file's */
    sluiced_reload(&f->d);
    assert_true(fx_until(f, is_grown, f));
    expect_mark(f, p, created);
    peer_close(p);
    fx_stop(f);
    fx_start(f);
    p = person(f);
    expect_mark(f, p, created);
    peer_close(p);
    fx_stop(f);
    fx_conf(f, "class other { devices = 1 }\n");         /* an emptied file at a start: nothing is forgotten, and it is said */
    fx_start(f);
    p = person(f);
    expect_mark(f, p, created);
    alarms_each(&f->d, look_for, &classless);
    assert_non_null(strstr(classless.text, "12 nodes of a class that the configuration does not have: n1, n2"));
    peer_close(p);
}

/* B14: the device is replaced; its mark is kept, shown as about a part that is no longer there, and offered for clearing. */
static void b14_a_mark_outlives_the_device_and_says_so(void **state)
{
    struct fixture *f = *state;
    struct registration first = { .node = "n8", .start = 1, .connection = 1, .serial = "GPU-A", .boot = "boot-1" };
    struct registration second = { .node = "n8", .start = 2, .connection = 1, .serial = "GPU-B", .boot = "boot-2" };
    struct found gone = { .word = "PartGone" };
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    w = worker_register(f, &first);
    p = person(f);
    assert_int_equal(ask_mark(p, "n8", "ECC on gpu0", "GPU-A"), 0);
    n = ask_node(p, "n8");
    assert_true(n->marks[0]->has_part_present && n->marks[0]->part_present);
    assert_false(n->usable);
    alarms_each(&f->d, look_for, &gone);
    assert_string_equal(gone.text, "");
    peer_close(w);
    fx_turn(f, 0.1);
    w = worker_register(f, &second);
    n = ask_node(p, "n8");
    assert_int_equal(n->n_marks, 2);                     /* and health's note that there is another device now */
    assert_string_equal(n->marks[1]->part, "GPU-B");
    assert_int_equal(n->marks[1]->severity, SLUICE__SEVERITY__INFO);
    assert_string_equal(n->marks[0]->part, "GPU-A");
    assert_string_equal(n->marks[0]->reason, "ECC on gpu0");
    assert_true(n->marks[0]->has_part_present && !n->marks[0]->part_present);
    assert_true(n->usable);                              /* the new one is not the one that was bad */
    alarms_each(&f->d, look_for, &gone);
    assert_non_null(strstr(gone.text, "n8"));
    assert_int_equal(ask_clear(p, "n8", n->marks[0]->id, false, false), 0);
    assert_int_equal(ask_node(p, "n8")->n_marks, 1);
    peer_close(w);
    peer_close(p);
}

/* ---- moves, killed between two steps ---- */

/* Both listings, of one moment: nothing happened between them. */
static unsigned pools_of(struct peer *p, const char *node)
{
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;
    uint64_t seq[2] = { 0, 1 };
    unsigned count = 0;

    for (int tries = 0; seq[0] != seq[1] && tries < 100; tries++) {
        count = 0;
        for (int pool = 0; pool < 2; pool++) {
            const Sluice__Nodes *nodes;

            q.pool = (char *)pool_name[pool];
            nodes = (const Sluice__Nodes *)peer_ask(p, &q.base);
            seq[pool] = nodes->seq;
            for (size_t i = 0; i < nodes->n_nodes; i++)
                count += strcmp(nodes->nodes[i]->name, node) == 0;
        }
    }
    assert_true(seq[0] == seq[1]);
    return count;
}

static const Sluice__Node *until_in(struct peer *p, const char *node, const char *pool)
{
    int64_t end = clock_mono_ns() + WAIT_S * CLOCK_SECOND;
    const Sluice__Node *n;

    do {
        n = ask_node(p, node);
        if (strcmp(n->pool, pool) == 0)
            return n;
        fx_turn(p->f, 0.02);
    } while (clock_mono_ns() < end);
    fail_msg("%s is not in %s", node, pool);
    return NULL;
}

static void killed_between_two_steps_a_node_is_in_exactly_one_pool(void **state)
{
    struct fixture *f = *state;
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    char *names[1] = { (char *)"n3" };
    const Sluice__Node *n;
    struct peer *p;

    fx_start_child(f);
    p = person(f);
    m.names = names;
    m.n_names = 1;
    m.to = (char *)"async";
    m.has_at = m.has_deadline = true;
    m.at = clock_wall_ns() + 2 * CLOCK_SECOND;
    m.deadline = clock_wall_ns() + 3600 * CLOCK_SECOND;
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), 0);
    fx_kill_child(f);                                    /* asked for, not begun */
    peer_close(p);
    fx_start_child(f);
    p = person(f);
    n = ask_node(p, "n3");
    assert_string_equal(n->pool, "online");
    assert_string_equal(n->wanted_pool, "async");
    assert_string_equal(n->move->state, "pending");
    assert_true(n->move->at == m.at && n->move->deadline == m.deadline);
    assert_int_equal(pools_of(p, "n3"), 1);
    n = until_in(p, "n3", "async");                      /* its time comes under the next daemon */
    fx_kill_child(f);                                    /* done */
    peer_close(p);
    fx_start_child(f);
    p = person(f);
    n = ask_node(p, "n3");
    assert_string_equal(n->pool, "async");
    assert_string_equal(n->wanted_pool, "async");
    assert_null(n->move);
    assert_int_equal(pools_of(p, "n3"), 1);
    for (int k = 0; k < 6; k++) {                        /* anywhere between the request and the switch */
        const char *to = k % 2 == 0 ? "online" : "async";

        assert_int_equal(ask_move(p, "n3", to, NULL), 0);
        fx_turn(f, 0.001 * k);
        fx_kill_child(f);
        peer_close(p);
        fx_start_child(f);
        p = person(f);
        assert_int_equal(pools_of(p, "n3"), 1);
        n = until_in(p, "n3", to);
        assert_int_equal(pools_of(p, "n3"), 1);
    }
    peer_close(p);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
    const struct CMUnitTest tests[] = {
        CASE(clearing_a_list_says_per_node_what_goes_and_stops_at_others),
        CASE(a_list_stops_at_a_repeat_offender),
        CASE(a_program_marks_once_and_clears_its_own_alone),
        CASE(marks_and_pool_outlive_a_configuration_without_the_node),
        CASE(b14_a_mark_outlives_the_device_and_says_so),
        CASE(killed_between_two_steps_a_node_is_in_exactly_one_pool),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
