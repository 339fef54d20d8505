/* farm_restart_test.c - the daemon is killed: what was acknowledged is there again, with its reason, author and time
 *
 * A client keeps a ledger of what it was told. SLUICE_TEST_SCALE multiplies the number of kills.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "farm_fixture.h"
#include "mem.h"

enum { NODES = 8, KILLS = 12 };

static const char conf_text[] = "class mi50 { devices = 1  shm = 1M }\nnode \"n[1-8]\" { class = mi50 }\n";

struct ledger {
    unsigned marks[NODES + 1];           /* acknowledged, open */
    int pool[NODES + 1];
    /* Of the request that was not answered, which may have happened or not. */
    unsigned node, marks_or;             /* 0: there was none */
    bool pool_either;
};

static int setup(void **state)
{
    *state = fx_new(conf_text);
    return 0;
}

static const char *name_of(unsigned i)
{
    static char name[16];

    snprintf(name, sizeof(name), "n%u", i);
    return name;
}

/* A move in the far future and its end: the pool stays. */
static void ask_and_cancel(struct peer *p, const char *node, int to)
{
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    Sluice__CancelMove cancel = SLUICE__CANCEL_MOVE__INIT;
    char *names[1] = { (char *)node };

    m.names = names;
    m.n_names = 1;
    m.to = (char *)pool_name[to];
    m.has_at = true;
    m.at = clock_wall_ns() + 3600 * CLOCK_SECOND;
    peer_ask(p, &m.base);
    if (answer_code(p) != 0)
        return;
    cancel.has_id = true;
    cancel.id = ((const Sluice__Changed *)p->answer)->results[0]->id;
    peer_ask(p, &cancel.base);
    assert_int_equal(answer_code(p), 0);
}

/* Out of the farm and in again, to the pool where it was: its marks are with its name. */
static void retire_and_add(struct peer *p, const char *node, int pool)
{
    Sluice__RetireNodes retire = SLUICE__RETIRE_NODES__INIT;
    Sluice__AddNodes add = SLUICE__ADD_NODES__INIT;
    char *names[1] = { (char *)node };

    retire.names = add.names = names;
    retire.n_names = add.n_names = 1;
    retire.reason = (char *)"to the workshop";
    add.class_ = (char *)"mi50";
    add.pool = (char *)pool_name[pool];
    peer_ask(p, &retire.base);
    if (answer_code(p) != 0)                             /* it moves this moment */
        return;
    peer_ask(p, &add.base);
    assert_int_equal(answer_code(p), 0);
}

static void one_request(struct peer *p, struct ledger *l)
{
    unsigned i = 1 + (unsigned)random() % NODES;
    long what = random() % 8;

    if (what == 0) {
        ask_and_cancel(p, name_of(i), !l->pool[i]);
    } else if (what == 1) {
        retire_and_add(p, name_of(i), l->pool[i]);
    } else if (what < 4) {
        int to = !l->pool[i];

        if (ask_move(p, name_of(i), pool_name[to], NULL) == 0)
            l->pool[i] = to;
    } else if (l->marks[i] > 0 && random() % 2 == 0) {
        if (ask_clear(p, name_of(i), 0, false, true) == 0)
            l->marks[i] = 0;
    } else if (ask_mark(p, name_of(i), "ECC errors", NULL) == 0) {
        l->marks[i]++;
    }
}

static bool is_in_pool(struct peer *p, unsigned i, int pool)
{
    int64_t end = clock_mono_ns() + WAIT_S * CLOCK_SECOND;
    const Sluice__Node *n;

    do {
        n = ask_node(p, name_of(i));
        if (strcmp(n->pool, pool_name[pool]) == 0)
            return true;
        fx_turn(p->f, 0.05);
    } while (clock_mono_ns() < end);
    return false;
}

/* A retirement that was not answered may have happened: what is left of the node must come back with it. */
static void add_retired(struct peer *p, const char *node, int pool)
{
    Sluice__AddNodes add = SLUICE__ADD_NODES__INIT;
    Sluice__GetNodes get = SLUICE__GET_NODES__INIT;
    char *names[1] = { (char *)node };

    get.names = add.names = names;
    get.n_names = add.n_names = 1;
    add.class_ = (char *)"mi50";
    add.pool = (char *)pool_name[pool];
    peer_ask(p, &get.base);
    if (p->answer_type == SLUICE__TYPE__NODES && ((const Sluice__Nodes *)p->answer)->nodes[0]->added)
        return;
    peer_ask(p, &add.base);
    assert_int_equal(answer_code(p), 0);
}

/* What was acknowledged stands, and nothing else. */
static void verify(struct peer *p, struct ledger *l)
{
    if (l->node != 0)
        add_retired(p, name_of(l->node), l->pool[l->node]);
    for (unsigned i = 1; i <= NODES; i++) {
        const Sluice__Node *n = ask_node(p, name_of(i));

        if (n->n_marks != l->marks[i] && (i != l->node || n->n_marks != l->marks_or))
            fail_msg("node %s: %u marks were acknowledged, %zu are there", n->name, l->marks[i], n->n_marks);
        assert_true(is_in_pool(p, i, i == l->node && l->pool_either && strcmp(n->wanted_pool, pool_name[l->pool[i]]) != 0 ? !l->pool[i] : l->pool[i]));
        n = ask_node(p, name_of(i));
        if (n->n_marks > 0) {
            assert_false(n->usable);
            assert_true(node_has_why(n, "MarkedByOperator"));
            assert_string_equal(n->marks[0]->reason, "ECC errors");
        }
        l->marks[i] = (unsigned)n->n_marks;
        l->pool[i] = strcmp(n->wanted_pool, "async") == 0;
    }
    l->node = 0;
    l->pool_either = false;
}

/* Sends a change, of each kind in turn, and kills before it can be answered. */
static void kill_in_mid_request(struct fixture *f, struct peer *p, struct ledger *l, unsigned turn)
{
    Sluice__MarkNodes mark = SLUICE__MARK_NODES__INIT;
    Sluice__ClearMarks clear = SLUICE__CLEAR_MARKS__INIT;
    Sluice__MoveNodes move = SLUICE__MOVE_NODES__INIT;
    Sluice__RetireNodes retire = SLUICE__RETIRE_NODES__INIT;
    Sluice__SetShm shm = SLUICE__SET_SHM__INIT;
    Sluice__SetNice nice = SLUICE__SET_NICE__INIT;
    const ProtobufCMessage *const kinds[] = { &mark.base, &clear.base, &move.base, &retire.base, &shm.base, &nice.base };
    const ProtobufCMessage *m = kinds[turn % ARRAY_LEN(kinds)];
    unsigned i = l->node = 1 + (unsigned)random() % NODES;
    char *names[1] = { (char *)name_of(i) };

    mark.names = clear.names = move.names = retire.names = shm.names = names;
    mark.n_names = clear.n_names = move.n_names = retire.n_names = shm.n_names = 1;
    mark.reason = clear.reason = retire.reason = (char *)"ECC errors";
    clear.has_repeat_ok = clear.repeat_ok = true;
    move.to = (char *)pool_name[!l->pool[i]];
    shm.has_size = true;
    shm.size = 1u << (18 + turn % 3);
    nice.pool = (char *)"async";
    nice.has_level = true;
    nice.level = (int32_t)(turn % 5);
    l->marks_or = m == &mark.base ? l->marks[i] + 1 : m == &clear.base ? 0 : l->marks[i];
    l->pool_either = m == &move.base;
    assert_int_equal(chan_send(connector_chan(p->c), 4711, m), 0);
    ev_run(f->loop, EVRUN_NOWAIT);
    usleep((useconds_t)(random() % 4000));
    fx_kill_child(f);
}

/* B01 */
static void marks_and_pools_outlive_sigkill(void **state)
{
    struct fixture *f = *state;
    struct ledger l = { .marks = { 0 } };
    const char *scale = getenv("SLUICE_TEST_SCALE"), *given = getenv("SLUICE_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : getenv("SLUICE_SOAK") != NULL ? (unsigned)time(NULL) : 1, kills = KILLS, mid = 0;
    struct peer *p;

    if (scale != NULL && atof(scale) > 0)
        kills = (unsigned)(kills * atof(scale)) + 1;
    printf("seed %u, %u kills\n", seed, kills);
    srandom(seed);
    for (unsigned k = 0; k < kills; k++) {
        fx_start_child(f);
        p = peer_connect(f, SLUICE__ROLE__CLIENT, "ledger");
        verify(p, &l);
        for (long n = random() % 20; n > 0; n--)
            one_request(p, &l);
        if (k % 2 == 0) {
            kill_in_mid_request(f, p, &l, mid++);
        } else {
            fx_kill_child(f);
        }
        peer_close(p);
    }
    fx_start_child(f);
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "ledger");
    verify(p, &l);
    peer_close(p);
    printf("%u kills, %u of them between request and answer\n", kills, mid);
}

/* B01: the author, the time and the history of a mark are the same after a kill. B07: cleared is cleared, the next mark acts. */
static void a_mark_is_the_same_after_a_kill(void **state)
{
    struct fixture *f = *state;
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    const Sluice__History *h;
    char *names[1] = { (char *)"n3" }, *owner;
    int64_t created;
    struct peer *p;

    fx_start_child(f);
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    assert_int_equal(ask_mark(p, "n3", "ECC errors", NULL), 0);
    assert_int_equal(ask_mark(p, "n4", "A", NULL), 0);
    assert_int_equal(ask_clear(p, "n4", 0, false, false), 0);
    created = ask_node(p, "n3")->marks[0]->created;
    owner = strdup(ask_node(p, "n3")->marks[0]->owner);
    fx_kill_child(f);
    peer_close(p);

    fx_start_child(f);
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    assert_true(ask_node(p, "n3")->marks[0]->created == created);
    assert_string_equal(ask_node(p, "n3")->marks[0]->owner, owner);
    assert_int_equal(ask_node(p, "n4")->n_marks, 0);
    assert_false(node_has_why(ask_node(p, "n4"), "MarkedByOperator"));
    assert_int_equal(ask_mark(p, "n4", "B", NULL), 0);
    assert_true(node_has_why(ask_node(p, "n4"), "MarkedByOperator"));
    q.names = names;
    q.n_names = 1;
    h = (const Sluice__History *)peer_ask(p, &q.base);
    assert_int_equal(h->n_events, 2);
    assert_string_equal(h->events[1]->what, "marked");
    assert_string_equal(h->events[1]->reason, "ECC errors");
    assert_true(strncmp(h->events[1]->who, owner, strlen(owner)) == 0);
    free(owner);
    fx_kill_child(f);
    peer_close(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(marks_and_pools_outlive_sigkill, setup, fx_teardown),
        cmocka_unit_test_setup_teardown(a_mark_is_the_same_after_a_kill, setup, fx_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
