/* slurm_link_test.c - the link to the Slurm helper: deadlines, helpers that hang, die or talk nonsense, commands that wait; what Slurm's word means, as tables */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "loop_help.h"
#include "mem.h"
#include "slurm_link.h"
#include "slurm_rules.h"
#include "str.h"

struct rig {
    struct ev_loop *loop;
    struct slurm_link *link;
    char dir[64], *program;
    unsigned states, failures, done, refused;
    char why[512], refusal[512];
    char node_state[64];                 /* of the first node of the last look */
    size_t n_nodes;
    char did[600];                       /* texts of what was done, in order */
    volatile bool turned;
};

static void state_cb(void *arg, const Sluice__SlurmState *s, int64_t asked)
{
    struct rig *r = arg;

    assert_true(asked <= clock_mono_ns());
    r->states++;
    r->n_nodes = s->n_nodes;
    snprintf(r->node_state, sizeof(r->node_state), "%s", s->n_nodes > 0 ? s->nodes[0]->state : "");
    r->turned = true;
}

static void failed_cb(void *arg, const struct err *why)
{
    struct rig *r = arg;

    r->failures++;
    snprintf(r->why, sizeof(r->why), "%s", why->text);
    r->turned = true;
}

static void done_cb(void *arg, const Sluice__SlurmDone *d, const struct err *why)
{
    struct rig *r = arg;
    size_t n = strlen(r->did);

    if (d == NULL) {
        r->refused++;
        snprintf(r->refusal, sizeof(r->refusal), "%s", why->text);
    } else {
        r->done++;
        snprintf(r->did + n, sizeof(r->did) - n, "%s %s;", d->node->name, d->node->state);
    }
    r->turned = true;
}

static void say(struct rig *r, const char *words)
{
    char *command = mem_printf("FAKE_SLURM=%s %s %s", r->dir, r->program, words);

    assert_int_equal(system(command), 0);
    free(command);
}

static void link_start_conf(struct rig *r, const char *program, const char *slurm_conf, double timeout_s)
{
    struct slurm_link_conf conf = { .program = program, .slurm_conf = slurm_conf, .timeout_s = timeout_s, .state = state_cb, .failed = failed_cb, .arg = r };

    r->link = slurm_link_create(r->loop, &conf);
}

static void link_start(struct rig *r, const char *program, double timeout_s)
{
    link_start_conf(r, program, NULL, timeout_s);
}

static int setup(void **state)
{
    struct rig *r = mem_zalloc(sizeof(*r));
    const char *build = getenv("SLUICE_BUILDDIR");

    signal(SIGPIPE, SIG_IGN);
    strcpy(r->dir, "/tmp/sluice-slurm-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->program = mem_printf("%s/tests/fake/fake-slurm", build == NULL ? "." : build);
    r->loop = ev_loop_new(EVFLAG_AUTO);
    setenv("FAKE_SLURM", r->dir, 1);
    say(r, "node n1 idle");
    *state = r;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int teardown(void **state)
{
    struct rig *r = *state;

    slurm_link_destroy(r->link);
    ev_loop_destroy(r->loop);
    nftw(r->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(r->program);
    free(r);
    return 0;
}

static void turn(struct rig *r)
{
    r->turned = false;
    run_until(r->loop, &r->turned, 0.05);
}

/* Looks, as often as it takes, until *count has grown. */
static void look_until(struct rig *r, const unsigned *count)
{
    unsigned before = *count;

    for (int i = 0; i < 400 && *count == before; i++) {
        slurm_link_poll(r->link, "n[1-3]", false);
        turn(r);
    }
    assert_true(*count > before);
}

static void order(struct rig *r, Sluice__SlurmAct act, const char *node, const char *reason)
{
    Sluice__SlurmDo m = SLUICE__SLURM_DO__INIT;

    m.has_act = true;
    m.act = act;
    m.node = (char *)node;
    m.reason = (char *)reason;
    m.prefix = (char *)"sluice";
    m.reservation = (char *)"sluice-x";
    slurm_link_do(r->link, &m, done_cb, r);
}

static void until(struct rig *r, const unsigned *count, unsigned value)
{
    for (int i = 0; i < 400 && *count < value; i++)
        turn(r);
    assert_int_equal(*count, value);
}

static void a_look_says_what_slurm_says(void **state)
{
    struct rig *r = *state;

    link_start(r, r->program, 10);
    look_until(r, &r->states);
    assert_int_equal(r->n_nodes, 1);
    assert_string_equal(r->node_state, "idle");
    say(r, "node n1 mixed+drain 'fan is loud' anna");
    look_until(r, &r->states);
    assert_string_equal(r->node_state, "mixed+drain");
    assert_int_equal(r->failures, 0);
    assert_int_equal(slurm_link_starts(r->link), 2);
}

static void commands_are_done_in_order_and_answered_once(void **state)
{
    struct rig *r = *state;

    say(r, "node n2 idle");
    link_start(r, r->program, 10);
    order(r, SLUICE__SLURM_ACT__ACT_DRAIN, "n1", "sluice: one");
    order(r, SLUICE__SLURM_ACT__ACT_DRAIN, "n2", "sluice: two");
    order(r, SLUICE__SLURM_ACT__ACT_UNDRAIN, "n1", NULL);
    order(r, SLUICE__SLURM_ACT__ACT_DRAIN, "n9", "sluice: nobody");
    assert_int_equal(slurm_link_waiting(r->link), 4);
    until(r, &r->done, 3);
    until(r, &r->refused, 1);
    assert_string_equal(r->did, "n1 idle+drain;n2 idle+drain;n1 idle;");
    assert_non_null(strstr(r->refusal, "n9"));
    assert_int_equal(slurm_link_waiting(r->link), 0);
}

/* A helper that is silent is killed at its deadline, and another one goes on. */
static void silence_is_bounded(void **state)
{
    struct rig *r = *state;
    int64_t begun;

    say(r, "how poll '1 silent'");
    link_start(r, r->program, 0.3);
    begun = clock_mono_ns();
    look_until(r, &r->failures);
    assert_true((double)(clock_mono_ns() - begun) / 1e9 < 5);
    assert_non_null(strstr(r->why, "no answer within 0.3 s"));
    look_until(r, &r->states);
    assert_in_range(slurm_link_starts(r->link), 3, 2 + r->failures);      /* on a busy machine the next one may be late, too */
}

/* While the one that acts is silent, the one that looks goes on; what was asked waits and is answered. */
static void a_command_that_hangs_keeps_no_look_waiting(void **state)
{
    struct rig *r = *state;

    say(r, "how act '1 silent'");
    link_start(r, r->program, 1);
    order(r, SLUICE__SLURM_ACT__ACT_DRAIN, "n1", "sluice: one");
    order(r, SLUICE__SLURM_ACT__ACT_LOOK, "n1", NULL);
    look_until(r, &r->states);
    look_until(r, &r->states);
    assert_int_equal(r->refused, 0);
    until(r, &r->refused, 1);
    until(r, &r->done, 1);
    assert_string_equal(r->did, "n1 idle;");
}

static void what_makes_no_sense_ends_the_helper(void **state)
{
    struct rig *r = *state;

    say(r, "how poll '1 garbage'");
    say(r, "how act '1 other'");
    link_start(r, r->program, 10);
    look_until(r, &r->failures);
    assert_non_null(strstr(r->why, "SLURM_STATE of 2147483647 bytes"));
    look_until(r, &r->states);
    order(r, SLUICE__SLURM_ACT__ACT_LOOK, "n1", NULL);
    order(r, SLUICE__SLURM_ACT__ACT_LOOK, "n1", NULL);
    until(r, &r->refused, 1);
    assert_non_null(strstr(r->refusal, "another one"));
    until(r, &r->done, 1);
}

static void the_last_words_of_a_helper_are_the_reason(void **state)
{
    struct rig *r = *state;

    say(r, "how poll '1 exit slurm.conf is broken'");
    link_start(r, r->program, 10);
    look_until(r, &r->failures);
    assert_non_null(strstr(r->why, "fake-slurm: error: line 3; fake-slurm: fatal: slurm.conf is broken"));
    assert_null(strstr(r->why, "first"));
    look_until(r, &r->states);
}

/* It is never there when it could be asked: the looks that could not be made have its reason. */
static void one_that_ends_at_its_start_is_quoted(void **state)
{
    struct rig *r = *state;
    char *script = mem_printf("%s/broken", r->dir);
    FILE *f = fopen(script, "w");

    assert_non_null(f);
    fputs("#!/bin/sh\necho error: no such key; echo fatal: unable >&2; exit 1\n", f);
    assert_int_equal(fchmod(fileno(f), 0755), 0);
    assert_int_equal(fclose(f), 0);
    link_start_conf(r, script, "/etc/x/slurm.conf", 10);
    for (int i = 0; i < 200 && slurm_link_starts(r->link) < 4; i++)          /* each of the two was started again */
        turn(r);
    assert_int_equal(r->failures, 0);
    for (int i = 0; i < 20 && r->failures < 3; i++) {
        slurm_link_poll(r->link, "n1", false);
        turn(r);
    }
    assert_true(r->failures >= 3);
    assert_string_equal(r->why, "the helper ended (slurm.conf: /etc/x/slurm.conf): error: no such key; fatal: unable");
    free(script);
}

struct beat { double due, late; };

static void beat_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    struct beat *b = t->data;
    double now = (double)clock_mono_ns() / 1e9;

    (void)loop, (void)events;
    if (now - b->due > b->late)
        b->late = now - b->due;
    b->due = now + 0.01;
}

/* It is read piece by piece, and ended. */
static void one_that_writes_without_end_holds_nobody_up(void **state)
{
    struct rig *r = *state;
    struct beat b = { .due = (double)clock_mono_ns() / 1e9 + 0.01 };
    ev_timer timer;

    ev_timer_init(&timer, beat_cb, 0.01, 0.01);
    timer.data = &b;
    ev_timer_start(r->loop, &timer);
    link_start(r, "/usr/bin/yes", 10);
    look_until(r, &r->failures);
    assert_string_equal(r->why, "the helper (/usr/bin/yes) writes without end: poll; poll");
    for (int i = 0; i < 40; i++)
        turn(r);
    ev_timer_stop(r->loop, &timer);
    if (b.late > 1)
        fail_msg("the loop stood still for %.3g s", b.late);
}

static void an_error_of_slurm_ends_nothing(void **state)
{
    struct rig *r = *state;

    say(r, "how poll '2 error SlurmSilent Unable to contact slurm controller'");
    link_start(r, r->program, 10);
    look_until(r, &r->failures);
    look_until(r, &r->failures);
    assert_string_equal(r->why, "Unable to contact slurm controller");
    look_until(r, &r->states);
    assert_int_equal(slurm_link_starts(r->link), 2);
}

static void a_program_that_is_not_there_is_named(void **state)
{
    struct rig *r = *state;

    link_start(r, "/nowhere/sluice-slurm", 10);
    order(r, SLUICE__SLURM_ACT__ACT_LOOK, "n1", NULL);
    until(r, &r->refused, 1);
    assert_non_null(strstr(r->refusal, "/nowhere/sluice-slurm cannot be run: No such file"));
    order(r, SLUICE__SLURM_ACT__ACT_LOOK, "n1", NULL);
    until(r, &r->refused, 2);            /* asked for again after the back-off */
}

/* ---- rules ---- */

static void views_of_a_node(void **state)
{
    static const struct { bool unknown, down, drain, fail, invalid, no_respond; const char *reason; bool sent; enum slurm_view view; } t[] = {
        { .view = SLURM_CLEAN },
        { .no_respond = true, .view = SLURM_CLEAN },
        { .unknown = true, .drain = true, .view = SLURM_NO_WORD },
        { .drain = true, .reason = "sluice: fan", .view = SLURM_OURS },
        { .drain = true, .reason = "sluice", .view = SLURM_FOREIGN },
        { .drain = true, .reason = "sluicer: fan", .view = SLURM_FOREIGN },
        { .drain = true, .reason = "Kill task failed", .sent = true, .view = SLURM_FOREIGN },
        { .drain = true, .reason = "", .sent = true, .view = SLURM_OURS },
        { .drain = true, .reason = "", .view = SLURM_FOREIGN },
        { .drain = true, .view = SLURM_FOREIGN },
        { .drain = true, .sent = true, .view = SLURM_OURS },
        { .down = true, .reason = "Not responding", .view = SLURM_FOREIGN },
        { .down = true, .drain = true, .reason = "sluice: fan", .view = SLURM_FOREIGN },
        { .fail = true, .drain = true, .reason = "sluice: fan", .view = SLURM_FOREIGN },
        { .invalid = true, .reason = "Low RealMemory", .view = SLURM_FOREIGN },
    };

    (void)state;
    assert_int_equal(slurm_view(NULL, "sluice", true), SLURM_NO_WORD);
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        Sluice__SlurmNode n = SLUICE__SLURM_NODE__INIT;

        n.unknown = t[i].unknown;
        n.down = t[i].down;
        n.drain = t[i].drain;
        n.fail = t[i].fail;
        n.invalid = t[i].invalid;
        n.no_respond = t[i].no_respond;
        n.reason = (char *)t[i].reason;
        if (slurm_view(&n, "sluice", t[i].sent) != t[i].view)
            fail_msg("row %zu: %d", i, slurm_view(&n, "sluice", t[i].sent));
    }
}

static void what_is_asked_next(void **state)
{
    enum { NOTHING = -1, DRAIN = SLUICE__SLURM_ACT__ACT_DRAIN, UNDRAIN = SLUICE__SLURM_ACT__ACT_UNDRAIN, RESERVE = SLUICE__SLURM_ACT__ACT_RESERVE,
           RELEASE = SLUICE__SLURM_ACT__ACT_RELEASE, LEASE = SLUICE__SLURM_ACT__ACT_LEASE, UNLEASE = SLUICE__SLURM_ACT__ACT_UNLEASE, CLEAR_OUT = SLUICE__SLURM_ACT__ACT_CLEAR_OUT };
    const double year = 365 * 86400;
    const struct { struct slurm_facts f; int act; } t[] = {
        { { .view = SLURM_CLEAN }, NOTHING },
        { { .view = SLURM_CLEAN, .drain = true }, DRAIN },
        { { .view = SLURM_OURS, .drain = true }, NOTHING },
        { { .view = SLURM_OURS, .drain = true, .half = true }, DRAIN },
        { { .view = SLURM_OURS }, UNDRAIN },
        { { .view = SLURM_FOREIGN }, NOTHING },
        { { .view = SLURM_FOREIGN, .drain = true }, NOTHING },               /* no foreign reason is overwritten */
        { { .view = SLURM_NO_WORD, .drain = true }, NOTHING },
        { { .view = SLURM_CLEAN, .reserve = true, .heard = true }, NOTHING },            /* observed only */
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true }, NOTHING },             /* not heard yet whether it is there */
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true }, RESERVE },
        { { .view = SLURM_FOREIGN, .lend = true, .reserve = true, .heard = true }, RESERVE },
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .reserved = true, .left_s = year }, NOTHING },
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .reserved = true, .left_s = year / 3 }, RESERVE },
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .reserved = true, .left_s = year }, RELEASE },
        { { .view = SLURM_OURS, .lend = true, .heard = true, .reserved = true, .left_s = year }, UNDRAIN },      /* the guard goes last */
        { { .view = SLURM_FOREIGN, .lend = true, .heard = true, .reserved = true, .left_s = year }, RELEASE },
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .clear_out = true }, RESERVE },   /* and comes first */
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .reserved = true, .left_s = year, .clear_out = true }, CLEAR_OUT },
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .lease = true }, NOTHING },                        /* perhaps there is one */
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .lease = true, .lease_heard = true }, LEASE },
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .lease = true, .lease_heard = true, .leased = true }, NOTHING },
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .lease_heard = true, .leased = true }, UNLEASE },
        { { .view = SLURM_CLEAN, .lend = true, .heard = true, .reserve = true, .reserved = true, .left_s = year, .lease = true, .lease_heard = true }, NOTHING },    /* ours */
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .reserved = true, .left_s = year, .clear_out = true, .lease_heard = true, .leased = true }, UNLEASE },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        Sluice__SlurmAct due[SLURM_ACTS];
        int got = slurm_due(&t[i].f, due) > 0 ? (int)due[0] : NOTHING;

        if (got != t[i].act)
            fail_msg("row %zu: %d instead of %d", i, got, t[i].act);
    }
}

/* One that Slurm refuses keeps none of the others waiting, but for those that must not come before it. */
static void what_is_asked_beside_it(void **state)
{
    enum { DRAIN = SLUICE__SLURM_ACT__ACT_DRAIN, UNDRAIN = SLUICE__SLURM_ACT__ACT_UNDRAIN, RESERVE = SLUICE__SLURM_ACT__ACT_RESERVE, LEASE = SLUICE__SLURM_ACT__ACT_LEASE,
           UNLEASE = SLUICE__SLURM_ACT__ACT_UNLEASE };
    const double year = 365 * 86400;
    const struct { struct slurm_facts f; unsigned n; int acts[3]; } t[] = {
        { { .view = SLURM_CLEAN, .drain = true, .lend = true, .heard = true, .reserve = true }, 2, { RESERVE, DRAIN } },
        { { .view = SLURM_CLEAN, .drain = true, .lend = true, .heard = true, .lease = true, .lease_heard = true }, 2, { DRAIN, LEASE } },
        { { .view = SLURM_CLEAN, .drain = true, .lend = true, .heard = true, .reserved = true, .left_s = year }, 1, { DRAIN } },          /* no release of a bad node before that */
        { { .view = SLURM_OURS, .lend = true, .heard = true, .reserved = true, .left_s = year }, 1, { UNDRAIN } },
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .lease_heard = true, .leased = true }, 1, { RESERVE } },   /* nobody else comes in between */
        { { .view = SLURM_CLEAN, .lend = true, .reserve = true, .heard = true, .reserved = true, .left_s = year, .clear_out = true, .lease_heard = true, .leased = true }, 1, { UNLEASE } },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(t); i++) {
        Sluice__SlurmAct due[SLURM_ACTS];

        assert_int_equal(slurm_due(&t[i].f, due), t[i].n);
        for (unsigned k = 0; k < t[i].n; k++)
            assert_int_equal(due[k], t[i].acts[k]);
    }
}

int main(void)
{
#define LINKED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        LINKED(a_look_says_what_slurm_says),
        LINKED(commands_are_done_in_order_and_answered_once),
        LINKED(silence_is_bounded),
        LINKED(a_command_that_hangs_keeps_no_look_waiting),
        LINKED(what_makes_no_sense_ends_the_helper),
        LINKED(the_last_words_of_a_helper_are_the_reason),
        LINKED(one_that_ends_at_its_start_is_quoted),
        LINKED(one_that_writes_without_end_holds_nobody_up),
        LINKED(an_error_of_slurm_ends_nothing),
        LINKED(a_program_that_is_not_there_is_named),
        cmocka_unit_test(views_of_a_node),
        cmocka_unit_test(what_is_asked_next),
        cmocka_unit_test(what_is_asked_beside_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
