/* farm_test.c - marks, moves, rights, registration through the real sessions; the judge as a table */
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
#include "counters.h"
#include "farm_fixture.h"
#include "mark.h"
#include "mem.h"
#include "move.h"

static const char conf_text[] =
    "class mi50 { devices = 1  shm = 1M  nominal_ms = 300 }\n"
    "class big { devices = 8  shm = 1M }\n"
    "node \"n[1-12]\" { class = mi50 }\n"
    "limits { contact_timeout = 4 }\n";

static int setup(void **state)
{
    struct fixture *f = fx_new(conf_text);

    fx_start(f);
    *state = f;
    return 0;
}

/* ---- node_judge ---- */

enum { MARK_NONE, MARK_BLOCK, MARK_INFO, MARK_DEVICE };

static const struct judged {
    const char *name;
    bool added; Sluice__Contact contact; int mark; const char *owner; bool broken, degraded_ok; unsigned devices, class_devices; bool moving; const char *trouble; unsigned tfs;
    bool usable; Sluice__NodeState state; const char *why; unsigned devices_usable;
} cases[] = {
#define UP   SLUICE__CONTACT__UP
#define LATE SLUICE__CONTACT__LATE
#define LOST SLUICE__CONTACT__LOST
#define NEVER SLUICE__CONTACT__NEVER
#define S(x) SLUICE__NODE_STATE__##x
    { "all is well",              true,  UP,   0,           "person", false, true,  1, 1, false, NULL, 0, true,  S(IDLE),       "",                 1 },
    { "it works",                 true,  UP,   0,           "person", false, true,  1, 1, false, NULL, 3, true,  S(BUSY),       "",                 1 },
    { "held aside",               false, UP,   0,           "person", false, true,  1, 1, false, NULL, 0, false, S(NODE_ERROR), "NotAdded",         1 },
    { "late",                     true,  LATE, 0,           "person", false, true,  1, 1, false, NULL, 0, false, S(NODE_ERROR), "ContactLate",      1 },
    { "lost",                     true,  LOST, 0,           "person", false, true,  1, 1, false, NULL, 0, false, S(DOWN),       "ContactLost",      0 },
    { "never there",              true,  NEVER, 0,          "person", false, true,  1, 1, false, NULL, 0, false, S(DOWN),       "NeverRegistered",  0 },
    { "lost under a mark",        true,  LOST, MARK_BLOCK,  "person", false, true,  1, 1, false, NULL, 0, false, S(DOWN),       "MarkedByOperator", 0 },
    { "marked by a person",       true,  UP,   MARK_BLOCK,  "person", false, true,  1, 1, false, NULL, 0, false, S(BAD),        "MarkedByOperator", 1 },
    { "marked by health",         true,  UP,   MARK_BLOCK,  "health", false, true,  1, 1, false, NULL, 0, false, S(BAD),        "MarkedByHealth",   1 },
    { "marked by slurm",          true,  UP,   MARK_BLOCK,  "slurm",  false, true,  1, 1, false, NULL, 0, false, S(BAD),        "MarkedBySlurm",    1 },
    { "a note is no mark",        true,  UP,   MARK_INFO,   "person", false, true,  1, 1, false, NULL, 0, true,  S(IDLE),       "",                 1 },
    { "its only device marked",   true,  UP,   MARK_DEVICE, "person", false, true,  1, 1, false, NULL, 0, false, S(BAD),        "MarkedByOperator", 0 },
    { "one device of 8 marked",   true,  UP,   MARK_DEVICE, "person", false, true,  8, 8, false, NULL, 0, true,  S(IDLE),       "MarkedByOperator", 7 },
    { "that, where all must be",  true,  UP,   MARK_DEVICE, "person", false, false, 8, 8, false, NULL, 0, false, S(NODE_ERROR), "DeviceMissing",    7 },
    { "7 devices of 8",           true,  UP,   0,           "person", false, true,  7, 8, false, NULL, 0, true,  S(IDLE),       "",                 7 },
    { "7 of 8, where all must be", true, UP,   0,           "person", false, false, 7, 8, false, NULL, 0, false, S(NODE_ERROR), "DeviceMissing",    7 },
    { "no device",                true,  UP,   0,           "person", false, true,  0, 1, false, NULL, 0, false, S(NODE_ERROR), "DeviceMissing",    0 },
    { "its only device broken",   true,  UP,   0,           "person", true,  true,  1, 1, false, NULL, 0, false, S(NODE_ERROR), "DeviceMissing",    0 },
    { "moving",                   true,  UP,   0,           "person", false, true,  1, 1, true,  NULL, 2, false, S(MOVING),     "Moving",           1 },
    { "marked while moving",      true,  UP,   MARK_BLOCK,  "person", false, true,  1, 1, true,  NULL, 0, false, S(BAD),        "Moving",           1 },
    { "buffer too small",         true,  UP,   0,           "person", false, true,  1, 1, false, "ShmShort", 0, false, S(NODE_ERROR), "ShmShort",     1 },
};

static void fill_devices(Sluice__Register *r, unsigned n, bool broken)
{
    r->devices = mem_array(n + 1, sizeof(*r->devices));
    for (unsigned i = 0; i < n; i++) {
        r->devices[i] = mem_zalloc(sizeof(**r->devices));
        sluice__device__init(r->devices[i]);
        r->devices[i]->serial = mem_printf("gpu-%u", i);
        r->devices[i]->has_state = true;
        r->devices[i]->state = broken ? SLUICE__DEVICE_STATE__DEVICE_BROKEN : SLUICE__DEVICE_STATE__DEVICE_FREE;
    }
    r->n_devices = n;
}

static void judge_case(struct fixture *f, const struct judged *c)
{
    struct conf_class class = { .name = (char *)"test", .devices = c->class_devices, .shm = 1 };
    struct conf conf = { .classes = &class, .n_classes = 1 };
    struct sluiced d = f->d;
    struct session s = { .d = &d };
    struct mark mark = { .part = (char *)(c->mark == MARK_DEVICE ? "gpu-0" : "node"), .owner_kind = (char *)c->owner, .block = c->mark != MARK_INFO };
    struct node n = { .d = &d, .name = "n1", .class = "test", .added = c->added, .contact = c->contact, .n_tfs = c->tfs };
    Sluice__Register *reg = mem_zalloc(sizeof(*reg));
    Sluice__Report report = SLUICE__REPORT__INIT;
    struct verdict v;

    d.conf = &conf;
    conf.pools[0].degraded = c->degraded_ok;
    sluice__register__init(reg);
    fill_devices(reg, c->devices, c->broken);
    reg->has_buffer_size = true;
    reg->buffer_size = 1 << 20;
    TAILQ_INIT(&n.marks);
    if (c->mark != MARK_NONE)
        TAILQ_INSERT_TAIL(&n.marks, &mark, entry);
    if (c->contact != LOST && c->contact != NEVER)
        n.session = &s;
    n.registered = reg;
    if (c->trouble != NULL) {
        report.trouble = (char *)"the buffer could not be made";
        report.word = (char *)c->trouble;
        n.report = &report;
    }
    if (c->moving) {
        struct row_move row = { .id = 1, .node = "n1", .to = "async", .when = "drained", .state = "draining" };
        struct node *real = farm_node(f->d.farm, "n1");
        struct err e;

        if (real->move == NULL)
            assert_int_equal(move_restore(f->d.moves, &row, &e), 0);
        n.move = real->move;
    }
    node_judge(&n, &v);
    if (v.usable != c->usable || v.state != c->state || v.devices_usable != c->devices_usable || (c->why[0] == '\0') != (v.n_why == 0))
        fail_msg("%s: usable %d (wanted %d), state %d (%d), devices %u (%u), %u reasons, the first %s", c->name, v.usable, c->usable, (int)v.state, (int)c->state,
                 v.devices_usable, c->devices_usable, v.n_why, v.n_why > 0 ? v.why[0] : "-");
    if (c->why[0] != '\0') {
        bool found = false;

        for (unsigned i = 0; i < v.n_why; i++)
            found |= strcmp(v.why[i], c->why) == 0;
        if (!found)
            fail_msg("%s: %s is not among the reasons", c->name, c->why);
    }
    protobuf_c_message_free_unpacked(&reg->base, NULL);
}

static void judge_says_usable_state_and_why(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        judge_case(*state, &cases[i]);
}

static void names_are_in_natural_order(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__GetNodes all = SLUICE__GET_NODES__INIT;
    const Sluice__Nodes *nodes = (const Sluice__Nodes *)peer_ask(p, &all.base);

    assert_int_equal(nodes->n_nodes, 12);
    for (unsigned i = 0; i < 12; i++) {
        char name[8];

        snprintf(name, sizeof(name), "n%u", i + 1);
        assert_string_equal(nodes->nodes[i]->name, name);
    }
    peer_close(p);
}

/* ---- registration ---- */

static void worker_registers_and_becomes_usable(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    const Sluice__Registered *r = (const Sluice__Registered *)w->registered;
    const Sluice__Node *n;

    assert_true(r->added);
    assert_int_equal(r->epoch, 1);
    assert_string_equal(((const Sluice__Settings *)w->settings)->pool, "online");
    n = ask_node(p, "n1");
    assert_true(n->usable);
    assert_int_equal(n->state, SLUICE__NODE_STATE__IDLE);
    assert_int_equal(n->contact, SLUICE__CONTACT__UP);
    assert_int_equal(n->n_devices, 1);
    n = ask_node(p, "n2");
    assert_false(n->usable);
    assert_int_equal(n->state, SLUICE__NODE_STATE__DOWN);
    assert_int_equal(n->contact, SLUICE__CONTACT__NEVER);
    peer_close(w);
    peer_close(p);
}

static void newest_connection_of_one_incarnation_wins(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .start = 5, .connection = 3 };
    struct peer *first = worker_register(f, &r), *second, *late;

    r.connection = 4;
    second = worker_register(f, &r);
    assert_true(peer_until_gone(first));
    assert_int_equal(farm_node(f->d.farm, "n1")->connection, 4);
    assert_int_equal(flow_double.lost, 0);

    r.connection = 3;
    late = peer_connect(f, SLUICE__ROLE__WORKER, "n1");
    worker_say(late, &r);
    assert_int_equal(answer_code(late), ERR_STATE);
    assert_non_null(strstr(answer_text(late), "older"));
    assert_true(peer_until_gone(late));
    assert_false(second->gone);
    peer_close(first);
    peer_close(second);
    peer_close(late);
}

static bool has_no_session(void *arg)
{
    return ((struct node *)arg)->session == NULL;
}

static void another_incarnation_is_refused_while_the_first_is_in_contact(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .start = 5, .connection = 1 };
    struct peer *first = worker_register(f, &r), *other;

    r.start = 6;
    other = peer_connect(f, SLUICE__ROLE__WORKER, "n1");
    worker_say(other, &r);
    assert_int_equal(answer_code(other), ERR_STATE);
    assert_string_equal(answer_word(other), "NameInUse");
    assert_true(peer_until_gone(other));
    assert_false(first->gone);
    peer_close(other);
    assert_int_equal(counters_get(f->d.counters, "refused_workers"), 1);

    peer_close(first);
    assert_true(fx_until(f, has_no_session, farm_node(f->d.farm, "n1")));
    assert_int_equal(flow_double.lost, 0);
    other = worker_register(f, &r);
    assert_int_equal(flow_double.lost, 1);              /* what the old one held is lost with it */
    peer_close(other);
}

static void only_so_many_unknown_nodes_are_held_aside(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "one-more", .start = 5, .connection = 1 };
    struct peer *late, *known;

    for (unsigned i = 0; i < 1024; i++) {
        char name[16];

        snprintf(name, sizeof(name), "stranger%u", i);
        farm_obtain(f->d.farm, name);
    }
    late = peer_connect(f, SLUICE__ROLE__WORKER, "one-more");
    worker_say(late, &r);
    assert_int_equal(answer_code(late), ERR_STATE);
    assert_non_null(strstr(answer_text(late), "1024"));
    assert_true(peer_until_gone(late));
    assert_null(farm_node(f->d.farm, "one-more"));
    r.node = "stranger7";                                /* one of them may come again, and so may the farm's own */
    known = worker_register(f, &r);
    assert_false(known->gone);
    assert_true(((const Sluice__Registered *)simple_worker(f, "n1")->registered)->added);
}

static void unknown_node_is_held_aside_until_it_is_added(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "stranger"), *p = person(f);
    Sluice__AddNodes add = SLUICE__ADD_NODES__INIT;
    char *names[1] = { (char *)"stranger" };
    const Sluice__Node *n;

    assert_false(((const Sluice__Registered *)w->registered)->added);
    n = ask_node(p, "stranger");
    assert_false(n->usable);
    assert_false(n->added);
    assert_true(node_has_why(n, "NotAdded"));
    assert_int_equal(flow_double.registered, 0);

    add.names = names;
    add.n_names = 1;
    add.class_ = (char *)"nothing";
    peer_ask(p, &add.base);
    assert_int_equal(answer_code(p), ERR_NOT_FOUND);
    add.class_ = (char *)"mi50";
    add.pool = (char *)"async";
    peer_ask(p, &add.base);
    assert_int_equal(answer_code(p), 0);
    n = ask_node(p, "stranger");
    assert_true(n->usable);
    assert_string_equal(n->pool, "async");
    assert_int_equal(flow_double.registered, 1);
    assert_true(((const Sluice__Registered *)w->registered)->added);    /* the worker hears of it, too */
    assert_string_equal(((const Sluice__Settings *)w->settings)->pool, "async");
    peer_close(w);
    peer_close(p);
}

static void worker_of_another_class_or_without_a_name_is_refused(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .class = "big", .start = 1, .connection = 1 };
    struct peer *w = peer_connect(f, SLUICE__ROLE__WORKER, "n1");

    worker_say(w, &r);
    assert_int_equal(answer_code(w), ERR_STATE);
    assert_true(peer_until_gone(w));
    peer_close(w);
    w = peer_connect(f, SLUICE__ROLE__WORKER, "x");
    r.node = "../x";
    worker_say(w, &r);
    assert_int_equal(answer_code(w), ERR_PROTOCOL);
    assert_true(peer_until_gone(w));
    peer_close(w);
}

static void a_message_of_another_role_ends_the_connection(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *early = peer_connect(f, SLUICE__ROLE__WORKER, "n2");
    Sluice__Report report = SLUICE__REPORT__INIT;
    Sluice__GetStatus status = SLUICE__GET_STATUS__INIT;

    peer_tell(w, &status.base);
    assert_true(peer_until_gone(w));
    peer_tell(early, &report.base);                     /* before Register */
    assert_true(peer_until_gone(early));
    assert_true(counters_get(f->d.counters, "protocol_errors") >= 1);
    peer_close(w);
    peer_close(early);
}

static bool is_lost(void *arg)
{
    return ((struct node *)arg)->contact == SLUICE__CONTACT__LOST;
}

static void contact_is_lost_only_after_its_time(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n1");
    double took;

    peer_close(w);
    assert_true(fx_until(f, has_no_session, n));
    assert_int_equal(n->contact, SLUICE__CONTACT__LATE);
    assert_true(node_has_why(ask_node(p, "n1"), "ContactLate"));
    assert_int_equal(flow_double.disconnected, 1);
    assert_int_equal(flow_double.lost, 0);
    assert_true(fx_until(f, is_lost, n));
    took = (double)clock_mono_ns() / 1e9 - n->last_contact;
    if (took < 4 || took > 5 + farm_stalled_s(f->d.farm))
        fail_msg("lost after %.2f s of silence, contact_timeout is 4 s", took);
    assert_int_equal(flow_double.lost, 1);
    assert_int_equal(ask_node(p, "n1")->state, SLUICE__NODE_STATE__DOWN);
    peer_close(p);
}

/* ---- marks ---- */

static void mark_blocks_and_its_owner_clears_it(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    const Sluice__Node *n;

    assert_int_equal(ask_mark(p, "n1", "ECC errors a|b,c\nd\"e", NULL), 0);
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[0]->id, 1);
    n = ask_node(p, "n1");
    assert_false(n->usable);
    assert_int_equal(n->state, SLUICE__NODE_STATE__BAD);
    assert_string_equal(n->marks[0]->reason, "ECC errors a|b,c\nd\"e");
    assert_int_equal(ask_clear(p, "n1", 0, false, false), 0);
    assert_true(ask_node(p, "n1")->usable);
    assert_int_equal(ask_clear(p, "n1", 0, false, false), 0);              /* nothing is there any more: nothing to do */
    peer_close(w);
    peer_close(p);
}

static void mark_wants_a_reason_a_node_and_a_device_that_exists(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);

    assert_int_equal(ask_mark(p, "n1", "  \n", NULL), ERR_USAGE);
    assert_int_equal(ask_mark(p, "n99", "x", NULL), ERR_NOT_FOUND);
    assert_int_equal(ask_mark(p, "n1", "x", "gpu-that-never-was"), ERR_NOT_FOUND);
    assert_int_equal(ask_mark(p, "n1", "x", "emu-n1-0"), 0);
    assert_false(ask_node(p, "n1")->usable);            /* its only device */
    assert_int_equal(((const Sluice__Settings *)w->settings)->n_devices_off, 1);
    peer_close(w);
    peer_close(p);
}

static void list_is_marked_whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__MarkNodes m = SLUICE__MARK_NODES__INIT;
    char *names[3] = { (char *)"n1", (char *)"nXXX", (char *)"n3" };

    m.names = names;
    m.n_names = 3;
    m.reason = (char *)"cooling";
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), ERR_NOT_FOUND);
    assert_non_null(strstr(answer_text(p), "nXXX"));
    assert_int_equal(marks_open(f->d.marks), 0);
    names[1] = (char *)"n2";
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), 0);
    assert_int_equal(((const Sluice__Changed *)p->answer)->n_results, 3);
    assert_int_equal(marks_open(f->d.marks), 3);
    peer_close(p);
}

/* B03, B05: a mark of a health program comes and goes, the operator's stays with its reason. */
static void marks_of_two_owners_stand_side_by_side(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n4"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n4");
    const Sluice__Node *seen;

    assert_int_equal(ask_mark(p, "n4", "PSU swap, ticket 17", NULL), 0);
    mark_automatic(n, &(struct row_mark){ .owner_kind = "health", .owner = "health", .class = "hw", .reason = "worker lost" });
    mark_automatic(n, &(struct row_mark){ .owner_kind = "health", .owner = "health", .class = "hw", .reason = "worker lost again" });     /* one fault, one mark */
    seen = ask_node(p, "n4");
    assert_int_equal(seen->n_marks, 2);
    assert_string_equal(seen->marks[0]->reason, "PSU swap, ticket 17");
    assert_true(node_has_why(seen, "MarkedByOperator") && node_has_why(seen, "MarkedByHealth"));
    assert_int_equal(mark_automatic_clear(n, NULL, "health", "health", "recovered"), 1);
    fx_turn(f, 0.2);
    seen = ask_node(p, "n4");
    assert_int_equal(seen->n_marks, 1);
    assert_string_equal(seen->marks[0]->reason, "PSU swap, ticket 17");
    assert_false(seen->usable);
    peer_close(w);
    peer_close(p);
}

static void marks_of_others_stay_unless_an_expert_says_so(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    struct session *s = fx_session(f, "test");
    struct node *n = farm_node(f->d.farm, "n5");

    mark_automatic(n, &(struct row_mark){ .owner_kind = "person", .owner = "somebody-else", .class = "hw", .reason = "theirs" });
    fx_turn(f, 0.1);
    assert_int_equal(ask_clear(p, "n5", 0, false, false), ERR_STATE);
    assert_string_equal(answer_word(p), "OtherOwner");
    assert_non_null(strstr(answer_text(p), "somebody-else"));
    s->right = RIGHT_SHIFT;
    assert_int_equal(ask_clear(p, "n5", 0, true, false), ERR_PERMISSION);
    s->right = RIGHT_EXPERT;
    assert_int_equal(ask_clear(p, "n5", 0, true, false), 0);
    assert_true(TAILQ_EMPTY(&n->marks));
    peer_close(p);
}

static int ask_info(struct peer *p, const char *node, const char *reason)
{
    Sluice__MarkNodes m = SLUICE__MARK_NODES__INIT;
    char *names[1] = { (char *)(uintptr_t)node };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)(uintptr_t)reason;
    m.has_severity = true;
    m.severity = SLUICE__SEVERITY__INFO;
    peer_ask(p, &m.base);
    return answer_code(p);
}

static void a_fourth_time_is_a_repeat_offence(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask_mark(p, "n6", "again", NULL), 0);
        assert_int_equal(ask_clear(p, "n6", 0, false, false), 0);
    }
    assert_int_equal(ask_mark(p, "n6", "and again", NULL), 0);
    assert_int_equal(ask_clear(p, "n6", 0, false, false), ERR_STATE);
    assert_string_equal(answer_word(p), "RepeatOffender");
    assert_int_equal(ask_clear(p, "n6", 0, false, true), 0);
    peer_close(p);
}

/* However the marks that go are named: the rule looks at those that were there before the open ones. */
static void a_repeat_offence_is_one_by_whatever_name(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    uint64_t first, second;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask_mark(p, "n9", "again", NULL), 0);
        assert_int_equal(ask_clear(p, "n9", 0, false, false), 0);
    }
    /* two before, two open: neither all nor one of them is an offence */
    assert_int_equal(ask_mark(p, "n9", "one", NULL), 0);
    assert_int_equal(ask_mark(p, "n9", "two", NULL), 0);
    first = ask_node(p, "n9")->marks[0]->id;
    second = ask_node(p, "n9")->marks[1]->id;
    assert_int_equal(ask_clear(p, "n9", first, false, false), 0);
    /* three before: each way is one */
    assert_int_equal(ask_mark(p, "n9", "three", NULL), 0);
    assert_int_equal(ask_clear(p, "n9", second, false, false), ERR_STATE);
    assert_string_equal(answer_word(p), "RepeatOffender");
    assert_non_null(strstr(answer_text(p), "marked 3 times before"));
    assert_int_equal(ask_clear(p, "n9", 0, false, false), ERR_STATE);
    assert_string_equal(answer_word(p), "RepeatOffender");
    assert_int_equal(ask_clear(p, "n9", 0, false, true), 0);
    /* a note keeps nobody out of service, so its end brings nobody back */
    assert_int_equal(ask_info(p, "n9", "look at it some day"), 0);
    assert_int_equal(ask_clear(p, "n9", 0, false, false), 0);
    peer_close(p);
}

static bool is_unmarked(void *arg)
{
    return TAILQ_EMPTY(&((struct node *)arg)->marks);
}

static void mark_ends_at_its_time_with_a_line_of_history(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__MarkNodes m = SLUICE__MARK_NODES__INIT;
    Sluice__GetHistory h = SLUICE__GET_HISTORY__INIT;
    const Sluice__History *history;
    char *names[1] = { (char *)"n7" };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)"fan swap";
    m.class_ = (char *)"ops";
    m.has_until = true;
    m.until = clock_wall_ns() - CLOCK_SECOND;
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), ERR_USAGE);
    m.until = clock_wall_ns() + CLOCK_SECOND / 2;
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), 0);
    assert_true(fx_until(f, is_unmarked, farm_node(f->d.farm, "n7")));
    h.names = names;
    h.n_names = 1;
    history = (const Sluice__History *)peer_ask(p, &h.base);
    assert_int_equal(history->n_events, 3);
    assert_string_equal(history->events[0]->what, "added");
    assert_string_equal(history->events[1]->what, "marked");
    assert_string_equal(history->events[1]->reason, "fan swap");
    assert_string_equal(history->events[2]->what, "cleared");
    assert_string_equal(history->events[2]->who, "sluiced");
    assert_true(history->events[1]->seq < history->events[2]->seq);
    peer_close(p);
}

/* ---- moves ---- */

static bool is_async(void *arg)
{
    return ((struct node *)arg)->pool == POOL_ASYNC;
}

static void idle_node_moves_at_once(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n1");
    const Sluice__Node *seen;

    assert_int_equal(ask_move(p, "n1", "async", "drained"), 0);
    assert_true(fx_until(f, is_async, n));
    seen = ask_node(p, "n1");
    assert_string_equal(seen->pool, "async");
    assert_string_equal(seen->wanted_pool, "async");
    assert_null(seen->move);
    assert_true(seen->usable);
    fx_turn(f, 0.1);
    assert_string_equal(((const Sluice__Settings *)w->settings)->pool, "async");
    assert_int_equal(ask_move(p, "n1", "async", "drained"), 0);
    assert_non_null(strstr(((const Sluice__Changed *)p->answer)->results[0]->text, "already"));
    peer_close(w);
    peer_close(p);
}

static void busy_node_drains_first(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n1");
    const Sluice__Node *seen;

    n->n_tfs = 2;
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    seen = ask_node(p, "n1");
    assert_string_equal(seen->pool, "online");
    assert_string_equal(seen->wanted_pool, "async");
    assert_int_equal(seen->state, SLUICE__NODE_STATE__MOVING);
    assert_string_equal(seen->move->state, "draining");
    assert_int_equal(ask_move(p, "n1", "async", NULL), ERR_STATE);
    fx_turn(f, 0.4);
    assert_int_equal(n->pool, POOL_ONLINE);
    assert_int_equal(flow_double.evicted, 0);
    n->n_tfs = 0;
    node_emptied(n);
    assert_true(fx_until(f, is_async, n));
    peer_close(w);
    peer_close(p);
}

static void now_takes_back_what_runs(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n1");

    n->n_tfs = 2;
    assert_int_equal(ask_move(p, "n1", "async", "now"), 0);
    fx_turn(f, 0.4);
    assert_int_equal(flow_double.evicted, 1);
    n->n_tfs = 0;
    node_emptied(n);
    assert_true(fx_until(f, is_async, n));
    peer_close(w);
    peer_close(p);
}

/* Whoever does not want to wait any longer says so: the move that is there goes on, under its number, also over a restart. */
static void a_move_that_waits_is_made_one_of_now(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n1");
    uint64_t id;

    n->n_tfs = 2;
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    id = ((const Sluice__Changed *)p->answer)->results[0]->id;
    fx_turn(f, 0.4);
    assert_int_equal(flow_double.evicted, 0);
    assert_int_equal(ask_move(p, "n1", "async", NULL), ERR_STATE);
    assert_non_null(strstr(answer_text(p), "ends that, the same with --when now ends its waiting"));
    assert_int_equal(ask_move(p, "n1", "online", "now"), ERR_STATE);
    assert_int_equal(flow_double.evicted, 0);
    assert_int_equal(ask_move(p, "n1", "async", "now"), 0);
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[0]->id, id);
    assert_non_null(strstr(((const Sluice__Changed *)p->answer)->results[0]->text, "from online to async: now, it waited"));
    fx_turn(f, 0.4);
    assert_int_equal(flow_double.evicted, 1);
    assert_int_equal(moves_open(f->d.moves), 1);
    assert_string_equal(ask_node(p, "n1")->move->when, "now");
    assert_int_equal(ask_move(p, "n1", "async", "now"), ERR_STATE);      /* it is already */
    assert_null(strstr(answer_text(p), "--when now"));
    peer_close(w);
    peer_close(p);
    n->n_tfs = 0;
    fx_stop(f);
    flow_double.evicted = 0;
    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    n = farm_node(f->d.farm, "n1");
    assert_true(fx_until(f, is_async, n));
    peer_close(w);
    peer_close(p);
}

static void move_is_cancelled_and_waited_for(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f), *waiting = peer_connect(f, SLUICE__ROLE__CLIENT, "waiter");
    struct node *n = farm_node(f->d.farm, "n1");
    Sluice__CancelMove cancel = SLUICE__CANCEL_MOVE__INIT;
    Sluice__Wait wait = SLUICE__WAIT__INIT;

    n->n_tfs = 1;
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    cancel.has_id = true;
    cancel.id = ((const Sluice__Changed *)p->answer)->results[0]->id;
    wait.kind = (char *)"move";
    wait.has_id = wait.has_timeout = true;
    wait.id = cancel.id;
    wait.timeout = 0.3;
    peer_ask(waiting, &wait.base);
    assert_int_equal(answer_code(waiting), ERR_TIMEOUT);
    peer_ask(p, &cancel.base);
    assert_int_equal(answer_code(p), 0);
    peer_ask(waiting, &wait.base);
    assert_int_equal(((const Sluice__Waited *)waiting->answer)->code, ERR_CANCELLED);
    assert_null(n->move);
    assert_true(ask_node(p, "n1")->usable);
    peer_ask(p, &cancel.base);
    assert_int_equal(answer_code(p), ERR_STATE);
    wait.id = 999;
    peer_ask(waiting, &wait.base);
    assert_int_equal(answer_code(waiting), ERR_LOST);
    n->n_tfs = 0;
    peer_close(w);
    peer_close(p);
    peer_close(waiting);
}

static void pool_does_not_fall_below_what_a_run_wants(void **state)
{
    struct fixture *f = *state;
    struct peer *w1 = simple_worker(f, "n1"), *w2 = simple_worker(f, "n2"), *p = person(f);
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    char *names[3] = { (char *)"n1", (char *)"n2", (char *)"n3" };

    flow_double.run_min_nodes = 2;
    assert_int_equal(ask_move(p, "n1", "async", NULL), ERR_STATE);
    assert_string_equal(answer_word(p), "PoolMinimum");
    flow_double.run_min_nodes = 1;
    m.names = names;
    m.n_names = 3;
    m.to = (char *)"async";
    peer_ask(p, &m.base);                               /* both at once would leave none */
    assert_string_equal(answer_word(p), "PoolMinimum");
    assert_non_null(strstr(answer_text(p), "n2"));
    assert_int_equal(moves_open(f->d.moves), 0);
    m.has_keep_going = m.keep_going = true;
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), 0);
    assert_int_equal(((const Sluice__Changed *)p->answer)->n_results, 3);
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[0]->code, 0);
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[1]->code, ERR_STATE);
    assert_int_equal(((const Sluice__Changed *)p->answer)->results[2]->code, 0);        /* out of contact: nothing is lost by it */
    flow_double.run_min_nodes = 0;
    peer_close(w1);
    peer_close(w2);
    peer_close(p);
}

/* B13 */
static void move_names_the_bad_name_and_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    char *names[3] = { (char *)"n1", (char *)"nXXX", (char *)"n3" };
    const Sluice__Changed *changed;

    m.names = names;
    m.n_names = 3;
    m.to = (char *)"async";
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), ERR_NOT_FOUND);
    assert_non_null(strstr(answer_text(p), "nXXX"));
    assert_int_equal(farm_node(f->d.farm, "n1")->pool, POOL_ONLINE);
    m.has_keep_going = m.keep_going = true;
    peer_ask(p, &m.base);
    changed = (const Sluice__Changed *)p->answer;
    assert_int_equal(changed->n_results, 3);
    assert_string_equal(changed->results[1]->node, "nXXX");
    assert_int_equal(changed->results[1]->code, ERR_NOT_FOUND);
    assert_true(fx_until(f, is_async, farm_node(f->d.farm, "n3")));
    peer_close(p);
}

/* B12, scaled: there and back, one pool at every look. */
static void node_moves_there_and_back_many_times(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n3"), *p = person(f);
    struct node *n = farm_node(f->d.farm, "n3");
    Sluice__GetStatus q = SLUICE__GET_STATUS__INIT;

    for (int i = 0; i < 50; i++) {
        int to = n->pool == POOL_ONLINE ? POOL_ASYNC : POOL_ONLINE;
        Sluice__Wait wait = SLUICE__WAIT__INIT;
        const Sluice__Status *st;

        assert_int_equal(ask_move(p, "n3", pool_name[to], NULL), 0);
        wait.kind = (char *)"move";
        wait.has_id = true;
        wait.id = ((const Sluice__Changed *)p->answer)->results[0]->id;
        st = (const Sluice__Status *)peer_ask(p, &q.base);
        assert_int_equal(st->pools[0]->nodes + st->pools[1]->nodes, 12);
        peer_ask(p, &wait.base);
        assert_int_equal(((const Sluice__Waited *)p->answer)->code, 0);
        assert_int_equal(n->pool, to);
    }
    peer_close(w);
    peer_close(p);
}

/* ---- rights ---- */

static void right_decides_and_refusals_are_counted(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    struct session *s = fx_session(f, "test");

    s->right = RIGHT_READ;
    assert_int_equal(ask_mark(p, "n1", "x", NULL), ERR_PERMISSION);
    assert_int_equal(ask_move(p, "n1", "async", NULL), ERR_PERMISSION);
    assert_int_equal(counters_get(f->d.counters, "refused_permission"), 2);
    ask_node(p, "n1");
    s->right = RIGHT_SHIFT;
    assert_int_equal(ask_mark(p, "n1", "x", NULL), 0);
    peer_close(p);
}

static void questions_of_all_kinds_are_answered(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    Sluice__GetStatus status = SLUICE__GET_STATUS__INIT;
    Sluice__GetMetrics metrics = SLUICE__GET_METRICS__INIT;
    Sluice__GetConfig config = SLUICE__GET_CONFIG__INIT;
    Sluice__GetCheck check = SLUICE__GET_CHECK__INIT;
    Sluice__GetShm shm = SLUICE__GET_SHM__INIT;
    Sluice__Backup backup = SLUICE__BACKUP__INIT;
    const Sluice__Status *st;

    st = (const Sluice__Status *)peer_ask(p, &status.base);
    assert_int_equal(p->answer_type, SLUICE__TYPE__STATUS);
    assert_string_equal(st->state, "running");
    assert_int_equal(st->pools[0]->nodes, 12);
    assert_int_equal(st->pools[0]->usable, 1);
    peer_ask(p, &metrics.base);
    assert_non_null(strstr(((const Sluice__Metrics *)p->answer)->text, "sluice_pool_usable_nodes{pool=\"online\"} 1\n"));
    peer_ask(p, &config.base);
    assert_non_null(strstr(((const Sluice__Config *)p->answer)->text, "n[1-12]"));
    peer_ask(p, &check.base);
    assert_true(((const Sluice__CheckResult *)p->answer)->ok);
    assert_true(((const Sluice__CheckResult *)p->answer)->n_checks >= 3);
    peer_ask(p, &shm.base);
    assert_int_equal(((const Sluice__Shm *)p->answer)->n_shm, 12);
    backup.file = (char *)"copy.db";
    peer_ask(p, &backup.base);
    assert_int_equal(answer_code(p), ERR_USAGE);
    backup.file = (char *)fx_path(f, "copy.db");
    peer_ask(p, &backup.base);
    assert_int_equal(answer_code(p), 0);
    peer_close(w);
    peer_close(p);
}

/* Whatever proto/frame.c lets a peer send to a daemon has a row in the table of sessions, but for what is not meant for sluiced; every change wants more than reading. */
static void every_message_has_its_row(void **state)
{
    static const Sluice__Role roles[] = { SLUICE__ROLE__CLIENT, SLUICE__ROLE__WORKER, SLUICE__ROLE__SOURCE_ROLE };
    static const unsigned reads[] = {
        SLUICE__TYPE__GET_STATUS, SLUICE__TYPE__GET_NODES, SLUICE__TYPE__GET_HISTORY, SLUICE__TYPE__GET_MOVES, SLUICE__TYPE__GET_RUNS, SLUICE__TYPE__GET_RUN_TFS,
        SLUICE__TYPE__GET_JOBS, SLUICE__TYPE__GET_TASKS, SLUICE__TYPE__GET_CRASHES, SLUICE__TYPE__GET_SHM, SLUICE__TYPE__GET_CONFIG, SLUICE__TYPE__GET_SAMPLES,
        SLUICE__TYPE__GET_METRICS, SLUICE__TYPE__GET_CHECK, SLUICE__TYPE__GET_HEALTH, SLUICE__TYPE__WAIT, SLUICE__TYPE__WATCH, SLUICE__TYPE__GET_WHY, SLUICE__TYPE__GET_ATTEMPTS,
    };
    size_t n;
    const struct frame_type *types = frame_types(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        unsigned type = types[i].type;
        bool is_read = false;

        if (type < SLUICE__TYPE__REGISTER || (type >= SLUICE__TYPE__PULL_HELLO && type <= SLUICE__TYPE__RECO_WORKFLOW))
            continue;                                    /* the handshake; between worker, source and reconstruction */
        for (size_t r = 0; r < ARRAY_LEN(reads); r++)
            is_read |= reads[r] == type;
        for (size_t r = 0; r < ARRAY_LEN(roles); r++) {
            enum right right = RIGHT_NONE;
            bool may = (types[i].from & (1u << roles[r])) != 0;

            if (session_takes(type, roles[r], &right) != may)
                fail_msg("%s from role %d: the frame says %d", types[i].name, (int)roles[r], may);
            if (may && roles[r] == SLUICE__ROLE__CLIENT && (right <= RIGHT_READ) != is_read)
                fail_msg("%s: right %d", types[i].name, (int)right);
        }
    }
}

/* ---- restart ---- */

/* B01, B07: the clean half; the killed half is farm_restart_test. */
static void marks_moves_and_pools_outlive_a_restart(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);
    const Sluice__Node *n;
    int64_t created;

    farm_node(f->d.farm, "n1")->n_tfs = 1;
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    assert_int_equal(ask_move(p, "n2", "async", NULL), 0);
    assert_int_equal(ask_mark(p, "n3", "ECC errors", NULL), 0);
    assert_int_equal(ask_mark(p, "n4", "first", NULL), 0);
    assert_int_equal(ask_clear(p, "n4", 0, false, false), 0);
    created = ask_node(p, "n3")->marks[0]->created;
    assert_true(fx_until(f, is_async, farm_node(f->d.farm, "n2")));
    peer_close(w);
    peer_close(p);
    fx_stop(f);
    fx_start(f);
    assert_int_equal(f->d.epoch, 2);
    p = person(f);
    n = ask_node(p, "n3");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->reason, "ECC errors");
    assert_true(n->marks[0]->created == created);
    assert_string_equal(ask_node(p, "n2")->pool, "async");
    assert_int_equal(ask_node(p, "n4")->n_marks, 0);
    assert_true(fx_until(f, is_async, farm_node(f->d.farm, "n1")));     /* nothing is there any more: the move goes on by itself */
    assert_int_equal(ask_mark(p, "n4", "second", NULL), 0);
    assert_int_equal(ask_node(p, "n4")->state, SLUICE__NODE_STATE__DOWN);
    assert_true(node_has_why(ask_node(p, "n4"), "MarkedByOperator"));
    peer_close(p);
}

static void configuration_is_taken_whole_or_not_at_all(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    fx_conf(f, "class mi50 { devices = 1 }\nnode \"n[1-12]\" { class = mi50 }\nnode extra { class = nothing }\n");
    sluiced_reload(&f->d);
    fx_turn(f, 0.5);
    assert_int_not_equal(f->d.reload_failed, 0);
    assert_null(farm_node(f->d.farm, "extra"));
    fx_conf(f, "class mi50 { devices = 1 }\nnode \"n[1-12]\" { class = mi50 }\nnode extra { class = mi50 pool = async }\n");
    sluiced_reload(&f->d);
    fx_turn(f, 0.5);
    assert_int_equal(f->d.reload_failed, 0);
    assert_string_equal(ask_node(p, "extra")->pool, "async");
    peer_close(p);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
    const struct CMUnitTest tests[] = {
        CASE(judge_says_usable_state_and_why),
        CASE(names_are_in_natural_order),
        CASE(worker_registers_and_becomes_usable),
        CASE(newest_connection_of_one_incarnation_wins),
        CASE(another_incarnation_is_refused_while_the_first_is_in_contact),
        CASE(only_so_many_unknown_nodes_are_held_aside),
        CASE(unknown_node_is_held_aside_until_it_is_added),
        CASE(worker_of_another_class_or_without_a_name_is_refused),
        CASE(a_message_of_another_role_ends_the_connection),
        CASE(contact_is_lost_only_after_its_time),
        CASE(mark_blocks_and_its_owner_clears_it),
        CASE(mark_wants_a_reason_a_node_and_a_device_that_exists),
        CASE(list_is_marked_whole_or_not_at_all),
        CASE(marks_of_two_owners_stand_side_by_side),
        CASE(marks_of_others_stay_unless_an_expert_says_so),
        CASE(a_fourth_time_is_a_repeat_offence),
        CASE(a_repeat_offence_is_one_by_whatever_name),
        CASE(mark_ends_at_its_time_with_a_line_of_history),
        CASE(idle_node_moves_at_once),
        CASE(busy_node_drains_first),
        CASE(now_takes_back_what_runs),
        CASE(a_move_that_waits_is_made_one_of_now),
        CASE(move_is_cancelled_and_waited_for),
        CASE(pool_does_not_fall_below_what_a_run_wants),
        CASE(move_names_the_bad_name_and_changes_nothing),
        CASE(node_moves_there_and_back_many_times),
        CASE(right_decides_and_refusals_are_counted),
        cmocka_unit_test(every_message_has_its_row),
        CASE(questions_of_all_kinds_are_answered),
        CASE(marks_moves_and_pools_outlive_a_restart),
        CASE(configuration_is_taken_whole_or_not_at_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
