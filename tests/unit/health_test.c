/* health_test.c - health in the real daemon: blame, marks, the brake over restarts, hardware against the class, checks, devices that go and come */
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
#include "health_part.h"
#include "mark.h"
#include "mem.h"
#include "show.h"

static const char conf_text[] =
    "class mi50 { devices = 1  shm = 1M }\n"
    "class big { devices = 8  shm = 1M  memory = 512G }\n"
    "node \"n[1-20]\" { class = mi50 }\n"
    "node \"g[1-4]\" { class = big }\n"
    "health { program = /site/node-check  brake_nodes = 2  brake_percent = 50 }\n";
static const char conf_clears[] =
    "class mi50 { devices = 1  shm = 1M }\n"
    "class big { devices = 8  shm = 1M }\n"
    "node \"n[1-20]\" { class = mi50 }\n"
    "node \"g[1-4]\" { class = big }\n"
    "health { program = /site/node-check  clear_automatic = yes  disk_min = 1M }\n";
static const char conf_off[] =
    "class mi50 { devices = 1  shm = 1M }\n"
    "node \"n[1-20]\" { class = mi50 }\n"
    "health { automatic = no }\n";

static int setup(void **state)
{
    *state = fx_new(conf_text);
    return 0;
}

static struct node *node_of(struct fixture *f, const char *name)
{
    return farm_node(f->d.farm, name);
}

/* n1, n2, ... */
static void simple_workers(struct fixture *f, int first, int last)
{
    char name[8];

    for (int i = first; i <= last; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        simple_worker(f, name);
    }
}

/* ---- by their work ---- */

/* A TF fails at `bad` and is done at `good`. */
static void fails_on_device(struct fixture *f, const char *bad, const char *device, const char *good)
{
    struct doubt *on = NULL;

    health_failed(&on, node_of(f, bad), device, "Crashed", "signal 11");
    health_done(&on, node_of(f, good), false, 1, 0, 0);
    assert_null(on);
}

static void fails_here_done_there(struct fixture *f, const char *bad, const char *good)
{
    fails_on_device(f, bad, "emu-0", good);
}

static void three_that_others_could_do_mark_the_node_with_evidence(void **state)
{
    struct fixture *f = *state;
    struct peer *p;
    const Sluice__Node *n;

    fx_start(f);
    simple_workers(f, 1, 2);
    p = person(f);
    fails_here_done_there(f, "n1", "n2");
    fails_here_done_there(f, "n1", "n2");
    assert_true(ask_node(p, "n1")->usable);
    fails_here_done_there(f, "n1", "n2");
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->owner_kind, "health");
    assert_string_equal(n->marks[0]->owner, "work");
    assert_string_equal(n->marks[0]->part, "node");
    assert_string_equal(n->marks[0]->reason, "3 time-frames in a row failed here and were done elsewhere: Crashed: signal 11");
    assert_non_null(strstr(n->marks[0]->evidence, "Crashed on emu-0: signal 11\nCrashed on emu-0"));
    assert_int_equal(n->state, SLUICE__NODE_STATE__BAD);
    assert_true(node_has_why(n, "MarkedByHealth"));
    assert_int_equal(ask_node(p, "n2")->n_marks, 0);
    /* cleared by an expert its record begins anew */
    assert_int_equal(ask_clear(p, "n1", 0, false, false), ERR_STATE);
    assert_int_equal(ask_clear(p, "n1", 0, true, false), 0);
    fails_here_done_there(f, "n1", "n2");
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
}

static void a_tf_that_fails_everywhere_blames_no_node(void **state)
{
    struct fixture *f = *state;

    fx_start(f);
    simple_workers(f, 1, 3);
    person(f);
    for (int k = 0; k < 20; k++) {
        struct doubt *on = NULL, *good = NULL;

        health_failed(&on, node_of(f, "n1"), NULL, "Crashed", "signal 11");
        health_failed(&on, node_of(f, "n2"), NULL, "Crashed", "signal 11");
        health_done(&good, node_of(f, "n3"), true, 1, 0, 0);         /* others are at work all the time */
        health_failed(&on, node_of(f, "n3"), NULL, "Crashed", "signal 11");
        health_dropped(&on);
        assert_null(on);
    }
    assert_int_equal(marks_open(f->d.marks), 0);
    assert_int_equal(counters_get(f->d.counters, "failures_blamed"), 0);
}

/* Its data are gone, nobody else can try: that counts when others work in the meantime, and not when nobody does. */
static void without_a_second_opinion_others_at_work_are_the_proof(void **state)
{
    struct fixture *f = *state;
    struct peer *p;

    fx_start(f);
    simple_workers(f, 1, 2);
    p = person(f);
    for (int k = 0; k < 20; k++) {
        struct doubt *on = NULL;

        health_failed(&on, node_of(f, "n1"), NULL, "Crashed", "signal 11");
        health_dropped(&on);
    }
    assert_int_equal(marks_open(f->d.marks), 0);
    for (int k = 0; k < 3; k++) {
        struct doubt *on = NULL, *good = NULL;

        health_done(&good, node_of(f, "n2"), false, 1, 0, 0);
        health_failed(&on, node_of(f, "n1"), NULL, "Crashed", "signal 11");
        health_dropped(&on);
    }
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
}

static void the_only_node_is_never_passed_over(void **state)
{
    struct fixture *f = *state;
    struct doubt *on = NULL;

    fx_start(f);
    simple_worker(f, "n1");
    assert_true(health_failed(&on, node_of(f, "n1"), NULL, "Crashed", NULL) == 0);
    simple_worker(f, "n2");
    assert_true(health_failed(&on, node_of(f, "n1"), NULL, "Crashed", NULL) == 0.5);
    health_dropped(&on);
}

static void a_slow_node_gets_a_note_that_goes_when_it_is_fast_again(void **state)
{
    struct fixture *f = *state;
    struct doubt *none = NULL;
    struct peer *p;
    const Sluice__Node *n;

    fx_start(f);
    simple_workers(f, 1, 3);
    p = person(f);
    for (int k = 0; k < 30; k++) {
        health_done(&none, node_of(f, "n1"), false, 1, 3, 1000);
        health_done(&none, node_of(f, "n2"), false, 1, 1, 1000);
        health_done(&none, node_of(f, "n3"), false, 1, 2, 2000);     /* twice the bytes in twice the time: as fast */
    }
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->owner, "speed");
    assert_int_equal(n->marks[0]->severity, SLUICE__SEVERITY__INFO);
    assert_string_equal(n->marks[0]->reason, "slow: a time-frame takes 3.0 times what it takes on others of class mi50");
    assert_true(n->usable);
    assert_int_equal(ask_node(p, "n2")->n_marks + ask_node(p, "n3")->n_marks, 0);
    for (int k = 0; k < 33; k++)
        health_done(&none, node_of(f, "n1"), false, 1, 1, 1000);
    fx_turn(f, 0.1);
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
}

static void automatic_marking_can_be_off(void **state)
{
    struct fixture *f = *state;

    fx_conf(f, conf_off);
    fx_start(f);
    simple_workers(f, 1, 2);
    for (int i = 0; i < 10; i++)
        fails_here_done_there(f, "n1", "n2");
    assert_int_equal(marks_open(f->d.marks), 0);
}

/* ---- the brake ---- */

struct found { const char *word; unsigned n; char text[400]; };

static void look_for(void *arg, const struct alarm *a)
{
    struct found *k = arg;

    if (strcmp(a->word, k->word) != 0)
        return;
    k->n++;
    snprintf(k->text, sizeof(k->text), "%s", a->text);
}

static const Sluice__HealthInfo *ask_health(struct peer *p)
{
    Sluice__GetHealth q = SLUICE__GET_HEALTH__INIT;
    const Sluice__Health *h = (const Sluice__Health *)peer_ask(p, &q.base);

    assert_int_equal(p->answer_type, SLUICE__TYPE__HEALTH);
    return h->health[0];
}

/* brake_nodes = 2 of 20 that could be: the third and all others stay, one alarm, over a kill, until a person resets it. */
static void the_brake_ends_marking_until_a_person_resets_it(void **state)
{
    static const char *const bad[] = { "n1", "n2", "n3", "n4" };
    struct fixture *f = *state;
    Sluice__ResetHealth reset = SLUICE__RESET_HEALTH__INIT;
    struct peer *p;
    struct found alarm = { .word = "HealthBrake" };

    fx_start(f);
    simple_workers(f, 1, 6);
    p = person(f);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 5; k++)
            fails_here_done_there(f, bad[i], "n6");
    }
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    assert_int_equal(ask_node(p, "n2")->n_marks, 1);
    assert_int_equal(ask_node(p, "n3")->n_marks, 0);
    assert_int_equal(ask_node(p, "n4")->n_marks, 0);
    alarms_each(&f->d, look_for, &alarm);
    assert_int_equal(alarm.n, 1);
    assert_non_null(strstr(alarm.text, "pool online"));
    assert_non_null(strstr(alarm.text, "n3, n4"));
    assert_true(ask_health(p)->brakes[0]->on && !ask_health(p)->brakes[1]->on);
    assert_int_equal(ask_health(p)->brakes[0]->allowed, 2);
    assert_int_equal(ask_health(p)->brakes[0]->nodes, 6);
    assert_int_equal(ask_health(p)->brakes[0]->held, 2);
    fx_turn(f, 0.1);
    fx_again(f);                                         /* it is on after a restart */
    simple_workers(f, 3, 6);
    p = person(f);
    assert_true(ask_health(p)->brakes[0]->on);
    for (int k = 0; k < 5; k++)
        fails_here_done_there(f, "n3", "n6");
    assert_int_equal(ask_node(p, "n3")->n_marks, 0);
    fx_session(f, "test")->right = RIGHT_SHIFT;
    peer_ask(p, &reset.base);
    assert_int_equal(answer_code(p), ERR_PERMISSION);
    fx_session(f, "test")->right = RIGHT_EXPERT;
    peer_ask(p, &reset.base);
    assert_int_equal(answer_code(p), 0);
    assert_false(ask_health(p)->brakes[0]->on);
    fails_here_done_there(f, "n3", "n6");                /* what it did before is not forgotten */
    assert_int_equal(ask_node(p, "n3")->n_marks, 1);
    fx_turn(f, 0.1);
    fx_again(f);                                         /* n1 and n2 were marked before the reset: that stays so */
    simple_workers(f, 3, 6);
    p = person(f);
    assert_int_equal(ask_health(p)->brakes[0]->marked, 1);
    for (int k = 0; k < 3; k++)
        fails_here_done_there(f, "n4", "n6");
    assert_int_equal(ask_node(p, "n4")->n_marks, 1);
    assert_false(ask_health(p)->brakes[0]->on);
}

/* A person's marks do not use the brake up, and pools have one each. */
static void marks_of_people_and_the_other_pool_do_not_count(void **state)
{
    struct fixture *f = *state;
    struct peer *p;

    fx_start(f);
    simple_workers(f, 1, 6);
    p = person(f);
    assert_int_equal(ask_mark(p, "n4", "fan", NULL), 0);
    assert_int_equal(ask_mark(p, "n5", "fan", NULL), 0);
    for (int k = 0; k < 3; k++) {
        fails_here_done_there(f, "n1", "n6");
        fails_here_done_there(f, "n2", "n6");
    }
    assert_int_equal(ask_node(p, "n1")->n_marks + ask_node(p, "n2")->n_marks, 2);
    assert_false(ask_health(p)->brakes[0]->on);
    assert_int_equal(ask_health(p)->brakes[0]->nodes, 4);            /* of 6, two are out by others */
    node_of(f, "n3")->pool = POOL_ASYNC;
    for (int k = 0; k < 3; k++)
        fails_here_done_there(f, "n3", "n6");
    assert_int_equal(ask_node(p, "n3")->n_marks, 1);
    assert_false(ask_health(p)->brakes[1]->on);
}

/* ---- wrong results ---- */

static void b75_a_wrong_result_is_a_proposal_and_the_third_a_mark(void **state)
{
    struct fixture *f = *state;
    const Sluice__Node *n;
    struct peer *p;

    fx_start(f);
    simple_worker(f, "n13");
    p = person(f);
    for (unsigned k = 1; k <= 3; k++) {
        health_wrong(node_of(f, "n13"), "emu-n13-0", false, 5, k, "00000000000000bb", "00000000000000aa", "00000000000000bb on n13, 00000000000000aa on n2, 00000000000000aa on n3");
        fx_turn(f, 0.1);
        n = ask_node(p, "n13");
        assert_int_equal(n->n_marks, 1);
        assert_string_equal(n->marks[0]->owner_kind, "health");
        assert_string_equal(n->marks[0]->owner, "verify");
        assert_string_equal(n->marks[0]->part, "node");                  /* it has no other device */
        assert_int_equal(n->marks[0]->severity, k < 3 ? SLUICE__SEVERITY__INFO : SLUICE__SEVERITY__BLOCK);
        assert_int_equal(n->usable, k < 3);
        assert_string_equal(n->marks[0]->evidence, "00000000000000bb on n13, 00000000000000aa on n2, 00000000000000aa on n3");
    }
    assert_string_equal(n->marks[0]->reason, "wrong result: run 5 TF 3 gave 00000000000000bb here, 00000000000000aa elsewhere; it was not the first");
    assert_int_equal(ask_clear(p, "n13", 0, false, false), ERR_STATE);   /* health's: not a person's own */
    assert_int_equal(ask_clear(p, "n13", 0, true, false), 0);
    health_wrong(node_of(f, "n13"), NULL, true, 6, 1, "00000000000000bb", "00000000000000aa", "again");
    fx_turn(f, 0.1);
    n = ask_node(p, "n13");
    assert_int_equal(n->marks[0]->severity, SLUICE__SEVERITY__INFO);     /* counted anew */
    assert_true(n->usable);
}

static void b75_the_share_of_results_that_is_made_again_is_kept(void **state)
{
    static const double shares[] = { 0, 0.01, 0.3, 1 };
    struct fixture *f = *state;

    fx_start(f);
    for (size_t i = 0; i < ARRAY_LEN(shares); i++) {
        unsigned sampled = 0;

        f->d.conf->health.verify_sample = shares[i];
        health_of(node_of(f, "n1"))->sample = 0;
        for (unsigned k = 0; k < 1000; k++)
            sampled += health_samples(node_of(f, "n1"));
        assert_true(sampled + 1 >= (unsigned)(1000 * shares[i]) && sampled <= (unsigned)(1000 * shares[i]));
    }
}

/* ---- hardware ---- */

struct machine { const char *node, *boot; uint64_t start, memory; unsigned n, missing, other; bool broken; int64_t shift; const char *arch; };

static void fill_device(Sluice__Device *d, char serial[32], const struct machine *m, unsigned i)
{
    snprintf(serial, 32, i == m->other ? "GPU-new" : "GPU-%u", i);
    sluice__device__init(d);
    d->serial = serial;
    d->arch = (char *)m->arch;
    d->has_state = true;
    d->state = m->broken && i == 0 ? SLUICE__DEVICE_STATE__DEVICE_BROKEN : SLUICE__DEVICE_STATE__DEVICE_FREE;
    d->why = (char *)(d->state == SLUICE__DEVICE_STATE__DEVICE_BROKEN ? "GPU query stuck since 12:00" : "");
}

/* missing, other: number of the device that is away, or another one; 99: none. */
static struct peer *machine_register(struct fixture *f, const struct machine *m)
{
    struct peer *p = peer_connect_shifted(f, SLUICE__ROLE__WORKER, m->node, m->shift);
    Sluice__Register r = SLUICE__REGISTER__INIT;
    Sluice__Incarnation who = SLUICE__INCARNATION__INIT;
    Sluice__Device device[8], *devices[8];
    char serials[8][32];

    for (unsigned i = 0; i < m->n; i++) {
        if (i == m->missing)
            continue;
        fill_device(&device[i], serials[i], m, i);
        devices[r.n_devices++] = &device[i];
    }
    who.boot_id = (char *)m->boot;
    who.has_start = who.has_pid = true;
    who.start = m->start;
    who.pid = 100;
    r.node = (char *)m->node;
    r.class_ = (char *)"big";
    r.incarnation = &who;
    r.has_connection = r.has_buffer_size = r.has_memory = true;
    r.connection = 1;
    r.buffer_size = 1 << 20;
    r.memory = m->memory;
    r.devices = devices;
    r.host = (char *)"localhost";
    peer_ask(p, &r.base);
    if (p->answer_type != SLUICE__TYPE__REGISTERED)
        fail_msg("%s", answer_text(p));
    return p;
}

/* Its worker ends, and another one begins. */
static struct peer *machine_returns(struct peer *w, struct machine *m)
{
    struct fixture *f = w->f;

    peer_close(w);
    fx_turn(f, 0.1);
    m->start++;
    return machine_register(f, m);
}

static void machine_report(struct peer *w, const struct machine *m)
{
    Sluice__Report r = SLUICE__REPORT__INIT;
    Sluice__Device device[8], *devices[8];
    char serials[8][32];

    for (unsigned i = 0; i < m->n; i++) {
        if (i == m->missing)
            continue;
        fill_device(&device[i], serials[i], m, i);
        devices[r.n_devices++] = &device[i];
    }
    r.devices = devices;
    r.has_buffer_size = true;
    r.buffer_size = 1 << 20;
    peer_tell(w, &r.base);
    fx_turn(w->f, 0.1);
}

static const Sluice__MarkInfo *mark_by(const Sluice__Node *n, const char *owner)
{
    for (size_t i = 0; i < n->n_marks; i++) {
        if (strcmp(n->marks[i]->owner, owner) == 0)
            return n->marks[i];
    }
    return NULL;
}

#define ALL (UINT64_C(512) << 30)
static const struct machine whole = { .node = "g1", .boot = "boot-1", .start = 1, .memory = ALL, .n = 8, .missing = 99, .other = 99 };

/* B66: 7 of 8; one disappears while it is in contact; another one in its place; back after a reboot. */
static void b66_a_missing_gpu_is_a_mark_on_it(void **state)
{
    struct fixture *f = *state;
    struct machine m = { .node = "g1", .boot = "boot-1", .start = 1, .memory = ALL, .n = 8, .missing = 7, .other = 99 };
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);                         /* which one is not known yet: a note */
    n = ask_node(p, "g1");
    assert_non_null(mark_by(n, "hardware"));
    assert_string_equal(mark_by(n, "hardware")->reason, "7 of the 8 devices of class big are there");
    assert_int_equal(mark_by(n, "hardware")->severity, SLUICE__SEVERITY__INFO);
    assert_true(n->usable);                              /* the pool lets degraded nodes work */
    m.missing = 99;
    w = machine_returns(w, &m);
    fx_turn(f, 0.1);
    assert_int_equal(ask_node(p, "g1")->n_marks, 0);     /* the note follows the facts */
    m.missing = 7;
    machine_report(w, &m);                               /* gone while busy */
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->part, "GPU-7");
    assert_string_equal(n->marks[0]->reason, "GPU 7 (serial GPU-7) missing: 7 of 8 devices are there");
    assert_int_equal(n->marks[0]->severity, SLUICE__SEVERITY__BLOCK);
    assert_true(n->marks[0]->has_part_present && !n->marks[0]->part_present);
    assert_true(n->usable);
    machine_report(w, &m);
    assert_int_equal(ask_node(p, "g1")->n_marks, 1);     /* one fault, one mark */
    m.boot = "boot-2";
    w = machine_returns(w, &m);                         /* a reboot does not bring it back */
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 2);
    assert_string_equal(n->marks[0]->part, "GPU-7");
    assert_int_equal(counters_get(f->d.counters, "reboots"), 1);
    m.missing = 99;
    w = machine_returns(w, &m);
    fx_turn(f, 0.1);                                     /* back: a person clears, unless the configuration lets health do it */
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->part, "GPU-7");
    assert_true(n->usable);
}

static void a_reboot_while_nobody_looked_is_seen(void **state)
{
    struct fixture *f = *state;
    struct machine m = whole;

    fx_start(f);
    peer_close(machine_register(f, &m));
    fx_again(f);
    m.start = 2;
    peer_close(machine_register(f, &m));                 /* the worker alone was started anew */
    assert_int_equal(counters_get(f->d.counters, "reboots"), 0);
    fx_again(f);
    m.start = 3;
    m.boot = "boot-2";
    peer_close(machine_register(f, &m));
    assert_int_equal(counters_get(f->d.counters, "reboots"), 1);
    fx_stop(f);
}

/* B66, with sluiced started anew in between: what was there before is known, so the missing one has a name. */
static void b66_a_gpu_that_went_while_nobody_looked_is_found_and_named(void **state)
{
    struct fixture *f = *state;
    struct machine m = whole;
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    w = machine_register(f, &m);
    fx_again(f);
    p = person(f);
    assert_true(node_has_part(node_of(f, "g1"), "GPU-7"));       /* can be marked before its worker is back */
    m.start = 2;
    m.missing = 7;
    w = machine_register(f, &m);
    n = ask_node(p, "g1");
    assert_non_null(mark_by(n, "device"));
    assert_string_equal(mark_by(n, "device")->part, "GPU-7");
    assert_string_equal(mark_by(n, "device")->reason, "GPU 7 (serial GPU-7) missing: 7 of 8 devices are there");
    assert_true(n->usable);
    /* cleared by a person it is gone for good: neither the next report nor the next start brings the mark back */
    assert_int_equal(ask_clear(p, "g1", mark_by(n, "device")->id, true, false), 0);
    machine_report(w, &m);
    assert_null(mark_by(ask_node(p, "g1"), "device"));
    fx_again(f);
    p = person(f);
    m.start = 3;
    w = machine_register(f, &m);
    assert_null(mark_by(ask_node(p, "g1"), "device"));
    peer_close(w);
    fx_turn(f, 0.1);
    /* another one in a known place, seen after a start */
    fx_again(f);
    p = person(f);
    m.start = 4;
    m.missing = 99;
    m.other = 2;
    w = machine_register(f, &m);
    fx_turn(f, 0.1);                                     /* the note on the node, that one was away, goes */
    n = ask_node(p, "g1");
    assert_non_null(mark_by(n, "hardware"));
    assert_string_equal(mark_by(n, "hardware")->part, "GPU-new");
    assert_string_equal(mark_by(n, "hardware")->reason, "another device: GPU 2 is serial GPU-new now, it was GPU-2");
    assert_int_equal(n->n_marks, 1);
}

static void a_retired_node_misses_nothing(void **state)
{
    struct fixture *f = *state;
    struct machine m = whole;
    Sluice__RetireNodes retire = SLUICE__RETIRE_NODES__INIT;
    Sluice__AddNodes add = SLUICE__ADD_NODES__INIT;
    char *names[1] = { (char *)"g1" };
    struct peer *w, *p;

    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    peer_close(w);
    retire.names = add.names = names;
    retire.n_names = add.n_names = 1;
    add.class_ = (char *)"big";
    peer_ask(p, &retire.base);
    assert_int_equal(answer_code(p), 0);
    peer_ask(p, &add.base);
    assert_int_equal(answer_code(p), 0);
    fx_again(f);
    p = person(f);
    m.start = 2;
    m.missing = 7;
    w = machine_register(f, &m);
    assert_null(mark_by(ask_node(p, "g1"), "device"));
    assert_non_null(mark_by(ask_node(p, "g1"), "hardware"));
}

/* Our configuration says what the class has; the worker's may say something else. */
static void devices_of_another_architecture_than_the_class_take_the_node_out(void **state)
{
    struct fixture *f = *state;
    struct machine m = { .node = "g1", .boot = "boot-1", .start = 1, .memory = ALL, .n = 8, .missing = 99, .other = 99, .arch = "gfx908" };
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_conf(f, "class big { devices = 8  shm = 1M  gpu_arch = gfx906 }\nnode \"g[1-4]\" { class = big }\nhealth { clear_automatic = yes }\n");
    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->owner, "architecture");
    assert_string_equal(n->marks[0]->reason, "8 of its devices are no gfx906, which class big has: GPU-0 is gfx908, GPU-1 is gfx908, GPU-2 is gfx908, GPU-3 is gfx908, ...");
    assert_false(n->usable);
    m.arch = "gfx906";
    w = machine_returns(w, &m);
    fx_turn(f, 0.1);
    assert_int_equal(ask_node(p, "g1")->n_marks, 0);
    m.arch = NULL;                                       /* emulated, or on the CPU */
    w = machine_returns(w, &m);
    assert_int_equal(ask_node(p, "g1")->n_marks, 0);
}

static void another_serial_is_a_note_on_that_device(void **state)
{
    struct fixture *f = *state;
    struct machine m = whole;
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    m.other = 3;
    w = machine_returns(w, &m);
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->part, "GPU-new");
    assert_string_equal(n->marks[0]->reason, "another device: GPU 3 is serial GPU-new now, it was GPU-3");
    assert_int_equal(n->marks[0]->severity, SLUICE__SEVERITY__INFO);
    assert_true(n->usable);
    machine_report(w, &m);
    assert_int_equal(ask_node(p, "g1")->n_marks, 1);
}

/* B14, opt-in: health takes back its own mark on a part that was replaced; a person's on the same part stays. */
static void b14_marks_of_health_on_gone_parts_go_where_the_site_wants_it(void **state)
{
    struct fixture *f = *state;
    struct machine m = { .node = "g1", .boot = "boot-1", .start = 1, .n = 8, .missing = 99, .other = 99 };
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_conf(f, conf_clears);
    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    assert_int_equal(ask_mark(p, "g1", "ECC", "GPU-3"), 0);
    health_mark(node_of(f, "g1"), "GPU-3", "work", "hw", LEVEL_BAD, "crashes", NULL);
    fx_turn(f, 0.1);
    assert_int_equal(ask_node(p, "g1")->n_marks, 2);
    m.other = 3;
    m.boot = "boot-2";
    w = machine_returns(w, &m);
    fx_turn(f, 0.1);
    n = ask_node(p, "g1");
    assert_null(mark_by(n, "work"));
    assert_int_equal(n->n_marks, 2);                     /* the person's, and the note about the new one */
    assert_string_equal(n->marks[0]->reason, "ECC");
    assert_false(n->marks[0]->part_present);
}

/* B68: what the worker says of a device that does not answer becomes a mark on it. */
static void b68_a_device_that_stays_broken_is_marked_with_its_reason(void **state)
{
    struct fixture *f = *state;
    struct machine m = whole;
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    m.broken = true;
    machine_report(w, &m);
    assert_int_equal(ask_node(p, "g1")->n_marks, 0);     /* a process that is replaced is no broken device */
    health_of(node_of(f, "g1"))->known[0].broken_since -= 10;
    machine_report(w, &m);
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->part, "GPU-0");
    assert_string_equal(n->marks[0]->reason, "GPU 0 (serial GPU-0) does not work: GPU query stuck since 12:00");
    assert_true(n->usable);
}

static void too_little_memory_is_bad_and_a_wrong_clock_a_note(void **state)
{
    struct fixture *f = *state;
    struct machine m = { .node = "g1", .boot = "b", .start = 1, .memory = ALL / 2, .n = 8, .missing = 99, .other = 99, .shift = 10 * CLOCK_SECOND };
    const Sluice__Node *n;
    struct peer *w, *p;

    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    n = ask_node(p, "g1");
    assert_int_equal(n->n_marks, 2);
    assert_string_equal(mark_by(n, "memory")->reason, "the machine has 256G of memory, class big has 512G");
    assert_int_equal(mark_by(n, "memory")->severity, SLUICE__SEVERITY__BLOCK);
    assert_int_equal(mark_by(n, "clock")->severity, SLUICE__SEVERITY__INFO);
    assert_false(n->usable);
    peer_close(w);
    fx_turn(f, 0.1);
    m = (struct machine){ .node = "g2", .boot = "b", .start = 1, .memory = ALL / 100 * 95, .n = 8, .missing = 99, .other = 99 };
    w = machine_register(f, &m);                         /* the kernel keeps some */
    assert_int_equal(ask_node(p, "g2")->n_marks, 0);
}

static void must_hold(void *arg, const char *name, bool ok, const char *text)
{
    (void)arg;
    if (!ok)
        fail_msg("%s: %s", name, text);
}

/* brake_nodes = 2: what work says of a device counts its node as it does of a whole node, over a restart too; hardware that is not there does not. */
static void the_brake_counts_a_node_for_a_mark_on_one_of_its_devices(void **state)
{
    static const char *const names[] = { "g1", "g2", "g3", "g4" };
    struct fixture *f = *state;
    struct machine m = { .boot = "b", .start = 1, .memory = ALL, .n = 2, .missing = 99, .other = 99 };
    struct peer *w[4], *p;

    fx_conf(f, "class big { devices = 2  shm = 1M }\nnode \"g[1-4]\" { class = big }\nhealth { brake_nodes = 2  brake_percent = 100 }\n");
    fx_start(f);
    p = person(f);
    for (int i = 0; i < 4; i++) {
        m.node = names[i];
        w[i] = machine_register(f, &m);
        machine_report(w[i], &m);
    }
    health_mark(node_of(f, "g4"), "GPU-0", "device", "hw", LEVEL_BAD, "does not work", NULL);
    health_mark(node_of(f, "g4"), "GPU-1", "device-memory", "sw", LEVEL_BAD, "its memory is not free", NULL);
    assert_int_equal(ask_health(p)->brakes[0]->marked, 0);
    for (int k = 0; k < 3; k++)
        fails_on_device(f, "g1", "GPU-0", "g4");
    health_mark(node_of(f, "g1"), "GPU-1", "verify", "hw", LEVEL_BAD, "wrong result", NULL);     /* the same node */
    assert_int_equal(ask_node(p, "g1")->n_marks, 2);
    assert_int_equal(ask_health(p)->brakes[0]->marked, 1);
    fx_again(f);
    p = person(f);
    m.start = 2;
    for (int i = 0; i < 4; i++) {
        m.node = names[i];
        w[i] = machine_register(f, &m);
        machine_report(w[i], &m);
    }
    assert_int_equal(ask_health(p)->brakes[0]->marked, 1);
    for (int i = 1; i < 3; i++) {
        for (int k = 0; k < 3; k++)
            fails_on_device(f, names[i], "GPU-0", "g4");
    }
    assert_int_equal(ask_node(p, "g2")->n_marks, 1);
    assert_string_equal(ask_node(p, "g2")->marks[0]->part, "GPU-0");
    assert_int_equal(ask_node(p, "g3")->n_marks, 0);
    assert_true(ask_health(p)->brakes[0]->on);
}

/* Reasons that are about single devices take the node out with the last of them, and not before. */
static void a_node_works_on_beside_a_marked_device_and_that_is_in_order(void **state)
{
    struct fixture *f = *state;
    struct machine m = { .node = "g1", .boot = "b", .start = 1, .memory = ALL, .n = 2, .missing = 99, .other = 99 };
    struct peer *w, *p;
    struct verdict v;

    fx_conf(f, "class big { devices = 2  shm = 1M }\nnode g1 { class = big }\n");
    fx_start(f);
    p = person(f);
    w = machine_register(f, &m);
    machine_report(w, &m);
    assert_int_equal(ask_mark(p, "g1", "ECC", "GPU-1"), 0);
    assert_true(ask_node(p, "g1")->usable);
    assert_true(node_has_why(ask_node(p, "g1"), "MarkedByOperator"));
    invariants_each(&f->d, must_hold, NULL);
    node_of(f, "g1")->cooling = true;
    node_judge(node_of(f, "g1"), &v);
    assert_false(v.usable);
    assert_string_equal(verdict_cause(&v), "Cooldown");  /* that is all that takes it out */
    assert_int_equal(v.n_why - v.n_parts, 1);
    node_of(f, "g1")->cooling = false;
    assert_int_equal(ask_mark(p, "g1", "ECC", "GPU-0"), 0);
    assert_false(ask_node(p, "g1")->usable);
    invariants_each(&f->d, must_hold, NULL);
}

/* ---- checks and room ---- */

static void check_report(struct peer *w, Sluice__CheckState state, const char *text, uint64_t disk_free)
{
    Sluice__Report r = SLUICE__REPORT__INIT;
    Sluice__Check c = SLUICE__CHECK__INIT, *checks[1] = { &c };

    c.program = (char *)"node-check";
    c.has_state = true;
    c.state = state;
    c.text = (char *)text;
    r.checks = checks;
    r.n_checks = 1;
    r.has_buffer_size = r.has_disk_free = true;
    r.buffer_size = 1 << 20;
    r.disk_free = disk_free;
    peer_tell(w, &r.base);
    fx_turn(w->f, 0.1);
}

#define GOOD   SLUICE__CHECK_STATE__CHECK_GOOD
#define NOTE   SLUICE__CHECK_STATE__CHECK_NOTE
#define BAD    SLUICE__CHECK_STATE__CHECK_BAD
#define BROKEN SLUICE__CHECK_STATE__CHECK_BROKEN

static void checks_mark_by_their_exit_and_stay_until_cleared(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *p;
    const Sluice__Node *n;

    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    check_report(w, GOOD, "", 1 << 30);
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
    check_report(w, NOTE, "fan 3 is slow", 1 << 30);
    n = ask_node(p, "n1");
    assert_string_equal(n->marks[0]->owner, "node-check");
    assert_string_equal(n->marks[0]->reason, "fan 3 is slow");
    assert_int_equal(n->marks[0]->severity, SLUICE__SEVERITY__INFO);
    assert_true(n->usable);
    check_report(w, BAD, "fan 3 stands", 1 << 30);       /* worse: the note becomes a mark */
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->reason, "fan 3 stands");
    assert_false(n->usable);
    check_report(w, BAD, "fan 3 stands still", 1 << 30);
    check_report(w, GOOD, "", 1 << 30);                  /* one's health does not clear by itself unless the site wants it */
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->reason, "fan 3 stands");
    assert_int_equal(ask_clear(p, "n1", 0, true, false), 0);
    check_report(w, BROKEN, "not done within 20 s", 1 << 30);
    assert_int_equal(ask_node(p, "n1")->marks[0]->severity, SLUICE__SEVERITY__INFO);
    check_report(w, GOOD, "", 1 << 30);                  /* a note does */
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
}

/* It is the same mark all the time; what it says is on disk too. */
static void a_note_says_what_happened_last(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *p;
    uint64_t id;

    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    check_report(w, NOTE, "fan 3 is slow", 1 << 30);
    id = ask_node(p, "n1")->marks[0]->id;
    check_report(w, BROKEN, "not done within 20 s, stuck since 12:00:00", 1 << 30);
    assert_int_equal(ask_node(p, "n1")->n_marks, 1);
    assert_int_equal(ask_node(p, "n1")->marks[0]->id, id);
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, "not done within 20 s, stuck since 12:00:00");
    fx_again(f);
    p = person(f);
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, "not done within 20 s, stuck since 12:00:00");
    w = simple_worker(f, "n1");
    check_report(w, NOTE, "fan 4 is slow", 1 << 30);
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, "fan 4 is slow");
    check_report(w, GOOD, "", 1 << 30);
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
}

static unsigned renewals(struct peer *p)
{
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    char *names[1] = { (char *)"n1" };
    const Sluice__History *h;
    unsigned count = 0;

    q.names = names;
    q.n_names = 1;
    q.has_limit = true;
    q.limit = 100;
    h = (const Sluice__History *)peer_ask(p, &q.base);
    assert_int_equal(p->answer_type, SLUICE__TYPE__HISTORY);
    for (size_t i = 0; i < h->n_events; i++)
        count += strcmp(h->events[i]->what, "mark renewed") == 0;
    return count;
}

/* A temperature that is printed, a time that is: one mark, and no line a period. */
static void a_text_that_changes_all_the_time_is_no_event_each_time(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *p;
    struct mark *m;
    char text[80];
    int64_t created;

    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    check_report(w, NOTE, "CPU 0 has 71 C", 1 << 30);
    m = mark_automatic_find(node_of(f, "n1"), NULL, "health", "node-check");
    created = m->created;
    for (int i = 0; i < 20; i++) {
        snprintf(text, sizeof(text), i % 2 == 0 ? "CPU 0 has %d C" : "CPU zero: %d C", 72 + i);
        m->shown -= 61 * CLOCK_SECOND;
        check_report(w, NOTE, text, 1 << 30);
    }
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, text);
    assert_int_equal(ask_node(p, "n1")->marks[0]->created, created);
    assert_int_equal(renewals(p), 0);
    m->told -= 3601 * CLOCK_SECOND;
    check_report(w, NOTE, "CPU 0 has 99 C", 1 << 30);
    assert_int_equal(renewals(p), 1);
    check_report(w, BROKEN, "not done within 20 s, stuck since 12:00:00", 1 << 30);      /* another kind: at once */
    assert_int_equal(renewals(p), 2);
    m->shown -= 61 * CLOCK_SECOND;
    check_report(w, BROKEN, "not done within 20 s, stuck since 13:00:00", 1 << 30);
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, "not done within 20 s, stuck since 13:00:00");
    check_report(w, BROKEN, "it ended with signal 9", 1 << 30);                          /* not before a minute is over */
    assert_string_equal(ask_node(p, "n1")->marks[0]->reason, "not done within 20 s, stuck since 13:00:00");
    assert_int_equal(renewals(p), 2);
    check_report(w, NOTE, "CPU 0 has 70 C", 1 << 30);
    assert_int_equal(renewals(p), 3);
}

/* clear_automatic: three times a day a mark is taken back, then a person has to look; over a restart too. */
static void what_comes_and_goes_stays_marked(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *p;
    const Sluice__Node *n;

    fx_conf(f, conf_clears);
    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    for (int i = 0; i < 2; i++) {
        check_report(w, BAD, "link is down", 1 << 30);
        assert_false(ask_node(p, "n1")->usable);
        check_report(w, GOOD, "", 1 << 30);
        assert_int_equal(ask_node(p, "n1")->n_marks, 0);
    }
    fx_again(f);
    p = person(f);
    w = simple_worker(f, "n1");
    check_report(w, BAD, "link is down", 100);           /* another cause counts as well */
    check_report(w, BAD, "link is down", 1 << 30);       /* the third: its disk has room again */
    assert_null(mark_by(ask_node(p, "n1"), "disk"));
    for (int i = 0; i < 5; i++) {
        check_report(w, GOOD, "", 1 << 30);
        check_report(w, i % 2 == 0 ? BAD : GOOD, "link is down", 1 << 30);
    }
    n = ask_node(p, "n1");
    assert_int_equal(n->n_marks, 1);
    assert_false(n->usable);
    assert_string_equal(n->marks[0]->reason, "link is down; it came and went again and again, so it stays until a person clears it");
    assert_int_equal(ask_clear(p, "n1", 0, true, true), 0);
    assert_true(ask_node(p, "n1")->usable);
    check_report(w, NOTE, "fan 3 is slow", 1 << 30);     /* notes follow what they are about, however often */
    check_report(w, GOOD, "", 1 << 30);
    assert_int_equal(ask_node(p, "n1")->n_marks, 0);
}

/* brake_nodes = 2: of four that get worse two are marked, the others keep their note, and each is held back once. */
static void a_note_stays_where_the_brake_holds_back_what_is_worse(void **state)
{
    static const char *const name[4] = { "n1", "n2", "n3", "n4" };
    struct fixture *f = *state;
    struct peer *w[4], *p;

    fx_start(f);
    p = person(f);
    for (int i = 0; i < 4; i++)
        w[i] = simple_worker(f, name[i]);
    for (int i = 0; i < 4; i++)
        check_report(w[i], NOTE, "fan 3 is slow", 1 << 30);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 4; i++)
            check_report(w[i], BAD, "fan 3 stands", 1 << 30);
    }
    for (int i = 0; i < 4; i++) {
        const Sluice__Node *n = ask_node(p, name[i]);

        assert_int_equal(n->n_marks, 1);
        assert_string_equal(n->marks[0]->reason, i < 2 ? "fan 3 stands" : "fan 3 is slow");
        assert_int_equal(n->marks[0]->severity, i < 2 ? SLUICE__SEVERITY__BLOCK : SLUICE__SEVERITY__INFO);
    }
    assert_int_equal(counters_get(f->d.counters, "marks_held"), 2);
}

/* B03, B05 with clear_automatic: the check takes back its own, the operator's mark keeps the node out. */
static void memory_that_is_used_up_is_marked_until_there_is_enough(void **state)
{
    static const struct { uint64_t left; bool marked; } steps[] = {
        { 2 << 20, false }, { (1 << 20) - 1, true }, { (1 << 20) + 10, true }, { 2 << 20, false },       /* a tenth more than is wanted ends it */
    };
    struct fixture *f = *state;
    Sluice__Report r = SLUICE__REPORT__INIT;
    struct peer *w, *p;
    const Sluice__Node *n;

    fx_conf(f, "class mi50 { devices = 1  shm = 1M }\nnode n1 { class = mi50 }\nhealth { clear_automatic = yes  memory_min = 1M }\n");
    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n1");
    r.has_buffer_size = r.has_memory_free = true;
    r.buffer_size = 1 << 20;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        r.memory_free = steps[i].left;
        peer_tell(w, &r.base);
        fx_turn(f, 0.1);
        n = ask_node(p, "n1");
        assert_int_equal(mark_by(n, "memory-left") != NULL, steps[i].marked);
        assert_int_equal(n->usable, !steps[i].marked);
    }
}

static void b03_b05_a_check_that_is_good_again_clears_its_own_mark_only(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *p;
    const Sluice__Node *n;

    fx_conf(f, conf_clears);
    fx_start(f);
    p = person(f);
    w = simple_worker(f, "n5");
    assert_int_equal(ask_mark(p, "n5", "PSU swap, ticket 17", NULL), 0);
    check_report(w, BAD, "worker lost", 100);            /* and too little room */
    n = ask_node(p, "n5");
    assert_int_equal(n->n_marks, 3);
    assert_true(node_has_why(n, "MarkedByOperator") && node_has_why(n, "MarkedByHealth"));
    assert_string_equal(mark_by(n, "disk")->reason, "100 of disk left, 1M are wanted");
    check_report(w, GOOD, "", (1 << 20) + 10);           /* not yet a tenth above */
    n = ask_node(p, "n5");
    assert_int_equal(n->n_marks, 2);
    assert_non_null(mark_by(n, "disk"));
    check_report(w, GOOD, "", 1 << 21);
    n = ask_node(p, "n5");
    assert_int_equal(n->n_marks, 1);
    assert_string_equal(n->marks[0]->reason, "PSU swap, ticket 17");
    assert_false(n->usable);
    assert_int_equal(ask_clear(p, "n5", 0, false, false), 0);
    assert_true(ask_node(p, "n5")->usable);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, fx_teardown)
    const struct CMUnitTest tests[] = {
        CASE(three_that_others_could_do_mark_the_node_with_evidence),
        CASE(a_tf_that_fails_everywhere_blames_no_node),
        CASE(without_a_second_opinion_others_at_work_are_the_proof),
        CASE(the_only_node_is_never_passed_over),
        CASE(a_slow_node_gets_a_note_that_goes_when_it_is_fast_again),
        CASE(automatic_marking_can_be_off),
        CASE(the_brake_ends_marking_until_a_person_resets_it),
        CASE(marks_of_people_and_the_other_pool_do_not_count),
        CASE(b75_a_wrong_result_is_a_proposal_and_the_third_a_mark),
        CASE(b75_the_share_of_results_that_is_made_again_is_kept),
        CASE(b66_a_missing_gpu_is_a_mark_on_it),
        CASE(a_reboot_while_nobody_looked_is_seen),
        CASE(b66_a_gpu_that_went_while_nobody_looked_is_found_and_named),
        CASE(a_retired_node_misses_nothing),
        CASE(devices_of_another_architecture_than_the_class_take_the_node_out),
        CASE(another_serial_is_a_note_on_that_device),
        CASE(b14_marks_of_health_on_gone_parts_go_where_the_site_wants_it),
        CASE(b68_a_device_that_stays_broken_is_marked_with_its_reason),
        CASE(the_brake_counts_a_node_for_a_mark_on_one_of_its_devices),
        CASE(a_node_works_on_beside_a_marked_device_and_that_is_in_order),
        CASE(too_little_memory_is_bad_and_a_wrong_clock_a_note),
        CASE(checks_mark_by_their_exit_and_stay_until_cleared),
        CASE(a_note_says_what_happened_last),
        CASE(a_text_that_changes_all_the_time_is_no_event_each_time),
        CASE(what_comes_and_goes_stays_marked),
        CASE(a_note_stays_where_the_brake_holds_back_what_is_worse),
        CASE(memory_that_is_used_up_is_marked_until_there_is_enough),
        CASE(b03_b05_a_check_that_is_good_again_clears_its_own_mark_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
