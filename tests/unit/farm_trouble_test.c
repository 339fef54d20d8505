/* farm_trouble_test.c - a disk that is full, too many people, clocks that differ, old history, moves at a time, retiring, logs of a worker */
#include "config.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "farm_fixture.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "rights.h"

static const char conf_text[] =
    "class mi50 { devices = 1  shm = 1M }\n"
    "node \"n[1-4]\" { class = mi50 }\n"
    "limits { clients = 3 }\n";

static int setup(void **state)
{
    struct fixture *f = fx_new(conf_text);

    fx_start(f);
    *state = f;
    return 0;
}

static bool has_alarm(struct peer *p, const char *word)
{
    Sluice__GetStatus q = SLUICE__GET_STATUS__INIT;
    const Sluice__Status *s = (const Sluice__Status *)peer_ask(p, &q.base);

    for (size_t i = 0; i < s->n_alarms; i++) {
        if (strcmp(s->alarms[i]->word, word) == 0) {
            assert_true(s->alarms[i]->advice[0] != '\0');
            return true;
        }
    }
    return false;
}

/* No file of this process may grow: what a full disk looks like to the writer, reserve and all. */
static void disk_full(bool full)
{
    struct rlimit r;

    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = full ? 1 : r.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static bool all_stored(void *arg)
{
    return marks_not_stored(((struct fixture *)arg)->d.marks) == 0 && writer_accepts_new(((struct fixture *)arg)->d.writer);
}

/* B33: the mark acts, nobody is told that it is stored, and it gets there by itself. */
static void full_disk_stops_acknowledgements_not_marks(void **state)
{
    struct fixture *f = *state;
    struct peer *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");

    signal(SIGXFSZ, SIG_IGN);
    disk_full(true);
    assert_int_equal(ask_mark(p, "n1", "no space", NULL), ERR_STATE);
    assert_string_equal(answer_word(p), "StateNotWritable");
    assert_non_null(strstr(answer_text(p), "NOT stored"));
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    assert_true(node_has_why(ask_node(p, "n1"), "MarkedByOperator"));
    assert_true(has_alarm(p, "MarksNotStored"));
    assert_true(has_alarm(p, "StateNotWritable"));
    assert_int_equal(ask_move(p, "n2", "async", NULL), ERR_STATE);
    assert_int_equal(farm_node(f->d.farm, "n2")->pool, POOL_ONLINE);
    assert_null(farm_node(f->d.farm, "n2")->move);
    disk_full(false);
    assert_true(fx_until(f, all_stored, f));
    assert_false(has_alarm(p, "MarksNotStored"));
    assert_int_equal(ask_move(p, "n2", "async", NULL), 0);
    peer_close(p);
    fx_stop(f);
    fx_start(f);
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    peer_close(p);
}

/* A mark that waits for the disk is cleared meanwhile: what is written late must not bring it back. */
static void a_cleared_mark_does_not_come_back_late(void **state)
{
    struct fixture *f = *state;
    struct peer *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");

    signal(SIGXFSZ, SIG_IGN);
    disk_full(true);
    assert_int_equal(ask_mark(p, "n1", "no space", NULL), ERR_STATE);
    assert_int_equal(ask_mark(p, "n2", "no space", NULL), ERR_STATE);
    assert_int_equal(ask_clear(p, "n1", 0, false, false), ERR_STATE);      /* cannot be stored either, and then it stays */
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    disk_full(false);
    assert_int_equal(ask_clear(p, "n1", 0, false, false), 0);
    assert_true(fx_until(f, all_stored, f));
    peer_close(p);
    fx_stop(f);
    fx_start(f);
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
    assert_int_equal(ask_node(p, "n2")->n_marks, 1);
    peer_close(p);
}

static void number_of_people_is_bounded(void **state)
{
    struct fixture *f = *state;
    unsigned let_in = 0, refused = 0;
    struct peer *p[16];

    for (int i = 0; i < 16; i++) {
        p[i] = peer_try(f, SLUICE__ROLE__CLIENT, "many");
        let_in += p[i]->ready;
        refused += !p[i]->ready;
    }
    assert_int_equal(let_in, 3 + 8);                     /* we are admin: some places more are kept for us */
    assert_int_equal(refused, 5);
    assert_non_null(strstr(p[15]->why.text, "limits.clients"));
    for (int i = 0; i < 16; i++)
        peer_close(p[i]);
    fx_turn(f, 0.1);
    p[0] = peer_connect(f, SLUICE__ROLE__CLIENT, "again");
    peer_close(p[0]);
}

static void old_history_comes_from_the_disk(void **state)
{
    struct fixture *f = *state;
    struct peer *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    const Sluice__History *h;
    char *names[1] = { (char *)"n2" };

    for (int i = 0; i < HISTORY_KEPT + 200; i++) {
        char text[32];

        snprintf(text, sizeof(text), "line %d", i);
        history_note(&f->d, i < 3 ? "n2" : "n1", "test", "noted", "", "", text);
    }
    assert_int_equal(ask_mark(p, "n3", "after all that", NULL), 0);        /* written in order: the others are on disk */
    q.names = names;
    q.n_names = 1;
    h = (const Sluice__History *)peer_ask(p, &q.base);
    assert_int_equal(p->answer_type, SLUICE__TYPE__HISTORY);
    assert_int_equal(h->n_events, 4);                    /* added, and three notes */
    assert_string_equal(h->events[3]->reason, "line 2");
    q.n_names = 0;
    q.has_limit = true;
    q.limit = HISTORY_KEPT + 50;
    h = (const Sluice__History *)peer_ask(p, &q.base);
    assert_int_equal(h->n_events, HISTORY_KEPT + 50);
    for (size_t i = 1; i < h->n_events; i++)
        assert_true(h->events[i - 1]->seq < h->events[i]->seq);
    assert_string_equal(h->events[h->n_events - 1]->reason, "after all that");
    q.limit = 2;
    h = (const Sluice__History *)peer_ask(p, &q.base);
    assert_int_equal(h->n_events, 2);
    assert_string_equal(h->events[1]->reason, "after all that");
    peer_close(p);
}

static bool is_async(void *arg)
{
    return ((struct node *)arg)->pool == POOL_ASYNC;
}

static void move_at_a_time_waits_for_it_and_for_the_deadline(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .start = 1, .connection = 1 };
    struct peer *w = worker_register(f, &r), *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    struct node *n = farm_node(f->d.farm, "n1");
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    char *names[1] = { (char *)"n1" };

    n->n_tfs = 1;
    m.names = names;
    m.n_names = 1;
    m.to = (char *)"async";
    m.has_at = true;
    m.at = clock_wall_ns() + CLOCK_SECOND;
    m.has_deadline = true;
    m.deadline = clock_wall_ns() + 2 * CLOCK_SECOND;
    peer_ask(p, &m.base);
    assert_int_equal(answer_code(p), 0);
    assert_true(ask_node(p, "n1")->usable);              /* until its time */
    assert_string_equal(ask_node(p, "n1")->move->state, "pending");
    fx_turn(f, 1.4);
    assert_string_equal(ask_node(p, "n1")->move->state, "draining");
    assert_false(ask_node(p, "n1")->usable);
    assert_int_equal(flow_double.evicted, 0);
    fx_turn(f, 1.0);
    assert_int_equal(flow_double.evicted, 1);            /* once */
    n->n_tfs = 0;
    node_emptied(n);
    assert_true(fx_until(f, is_async, n));
    peer_close(w);
    peer_close(p);
}

static void move_at_a_time_fails_when_the_pool_cannot_spare_it(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .start = 1, .connection = 1 };
    struct peer *w = worker_register(f, &r), *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    Sluice__MoveNodes m = SLUICE__MOVE_NODES__INIT;
    Sluice__Wait wait = SLUICE__WAIT__INIT;
    char *names[1] = { (char *)"n1" };

    m.names = names;
    m.n_names = 1;
    m.to = (char *)"async";
    m.has_at = true;
    m.at = clock_wall_ns() + CLOCK_SECOND / 2;
    peer_ask(p, &m.base);
    wait.kind = (char *)"move";
    wait.has_id = true;
    wait.id = ((const Sluice__Changed *)p->answer)->results[0]->id;
    flow_double.run_min_nodes = 1;
    peer_ask(p, &wait.base);
    assert_int_equal(((const Sluice__Waited *)p->answer)->code, ERR_FAILED);
    assert_non_null(strstr(((const Sluice__Waited *)p->answer)->text, "run 7"));
    assert_int_equal(farm_node(f->d.farm, "n1")->pool, POOL_ONLINE);
    assert_true(ask_node(p, "n1")->usable);
    peer_close(w);
    peer_close(p);
}

static int ask_retire(struct peer *p, const char *node)
{
    Sluice__RetireNodes m = SLUICE__RETIRE_NODES__INIT;
    char *names[1] = { (char *)node };

    m.names = names;
    m.n_names = 1;
    m.reason = (char *)"sold";
    peer_ask(p, &m.base);
    return answer_code(p);
}

static void retired_node_stays_away_and_keeps_its_marks(void **state)
{
    struct fixture *f = *state;
    struct registration r = { .node = "n1", .start = 1, .connection = 1 };
    struct peer *w = worker_register(f, &r), *p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    struct node *n = farm_node(f->d.farm, "n1");
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;

    n->n_tfs = 1;
    assert_int_equal(ask_retire(p, "n1"), ERR_STATE);
    n->n_tfs = 0;
    assert_int_equal(ask_mark(p, "n1", "smoke", NULL), 0);
    assert_int_equal(ask_retire(p, "n1"), 0);
    assert_false(ask_node(p, "n1")->added);
    assert_int_equal(ask_retire(p, "n4"), 0);
    peer_ask(p, &q.base);
    assert_int_equal(((const Sluice__Nodes *)p->answer)->n_nodes, 3);      /* n4 is nowhere; n1 is in contact and marked */
    peer_close(w);
    peer_close(p);
    fx_stop(f);
    fx_start(f);                                         /* the configuration names it still: what is stored wins */
    p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
    assert_false(ask_node(p, "n1")->added);
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    peer_close(p);
}

/* B50: measured, shown, used nowhere. */
static void clock_of_a_worker_matters_to_nobody(void **state)
{
    struct fixture *f = *state;
    static const double shift_s[] = { -3600, -5, 5, 3600, 315360000 };

    for (size_t i = 0; i < ARRAY_LEN(shift_s); i++) {
        struct registration r = { .node = "n1", .start = 1 + i, .connection = 1 };
        struct peer *w, *p;
        const Sluice__Node *n;

        w = peer_connect_shifted(f, SLUICE__ROLE__WORKER, "n1", (int64_t)(shift_s[i] * 1e9));
        worker_say(w, &r);
        assert_int_equal(answer_code(w), 0);
        p = peer_connect(f, SLUICE__ROLE__CLIENT, "test");
        n = ask_node(p, "n1");
        assert_true(n->usable);
        assert_true(n->clock_offset > shift_s[i] - 1 && n->clock_offset < shift_s[i] + 1);
        assert_true(has_alarm(p, "ClockOffset"));
        fx_turn(f, 0.6);
        assert_true(ask_node(p, "n1")->usable);
        peer_close(p);
        peer_close(w);
        fx_turn(f, 0.1);
    }
}

/* ---- a worker in trouble ---- */

static void worker_says(struct peer *w, const char *word, const char *text)
{
    Sluice__Report r = SLUICE__REPORT__INIT;

    r.has_buffer_size = true;
    r.buffer_size = 1 << 20;
    r.word = (char *)(uintptr_t)word;
    r.trouble = (char *)(uintptr_t)text;
    peer_tell(w, &r.base);
    fx_turn(w->f, 0.1);
}

static void a_resize_that_was_asked_for_is_no_trouble(void **state)
{
    struct fixture *f = *state;
    struct peer *w = simple_worker(f, "n1"), *p = person(f);

    worker_says(w, "Resizing", "the buffer gets another size");
    assert_true(node_has_why(ask_node(p, "n1"), "Resizing"));
    assert_false(has_alarm(p, "WorkerTrouble"));
    worker_says(w, "Shm", "64M wanted, 32M available in /dev/shm");
    assert_true(has_alarm(p, "WorkerTrouble"));
    worker_says(w, NULL, NULL);
    assert_false(has_alarm(p, "WorkerTrouble"));
    assert_true(ask_node(p, "n1")->usable);
    peer_close(w);
    peer_close(p);
}

/* ---- rights ---- */

static void roles_give_rights_by_user_and_group(void **state)
{
    static const char text[] = "role shift { users = { \"carla\" } }\nrole expert { groups = { \"daemon\" } }\n";
    struct err e;
    struct conf *c = conf_parse(text, "test", &e);
    struct rights *r;
    gid_t daemon_group = 1;                              /* in every Debian's base-passwd */

    (void)state;
    assert_non_null(c);
    r = rights_create(c, &e);
    assert_non_null(r);
    assert_int_equal(rights_of(r, 0, "root", NULL, 0), RIGHT_ADMIN);
    assert_int_equal(rights_of(r, 54321, "carla", NULL, 0), RIGHT_SHIFT);
    assert_int_equal(rights_of(r, 54321, "carla", &daemon_group, 1), RIGHT_EXPERT);
    assert_int_equal(rights_of(r, 54322, "nobody-special", NULL, 0), RIGHT_READ);
    assert_false(rights_is_worker(r, 54321, "carla", NULL, 0));
    rights_destroy(r);
    conf_destroy(c);
}

static void without_roles_others_read(void **state)
{
    struct err e;
    struct conf *c = conf_parse("", "test", &e);
    struct rights *r = rights_create(c, &e);

    (void)state;
    assert_int_equal(rights_of(r, 0, "root", NULL, 0), RIGHT_ADMIN);
    assert_int_equal(rights_of(r, 54321, "carla", NULL, 0), RIGHT_READ);
    assert_false(rights_is_worker(r, 54321, "carla", NULL, 0));
    rights_destroy(r);
    conf_destroy(c);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
    const struct CMUnitTest tests[] = {
        CASE(full_disk_stops_acknowledgements_not_marks),
        CASE(a_cleared_mark_does_not_come_back_late),
        CASE(number_of_people_is_bounded),
        CASE(old_history_comes_from_the_disk),
        CASE(move_at_a_time_waits_for_it_and_for_the_deadline),
        CASE(move_at_a_time_fails_when_the_pool_cannot_spare_it),
        CASE(retired_node_stays_away_and_keeps_its_marks),
        CASE(clock_of_a_worker_matters_to_nobody),
        CASE(a_resize_that_was_asked_for_is_no_trouble),
        cmocka_unit_test(roles_give_rights_by_user_and_group),
        cmocka_unit_test(without_roles_others_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
