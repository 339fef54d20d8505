/* slurm_test.c - the Slurm beside us, played by tests/fake/fake-slurm: marks flow both ways, nodes change hands, nothing that Slurm does or says harms us */
#include "config.h"

#include <ftw.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "counters.h"
#include "farm_fixture.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "slurm_farm.h"
#include "str.h"

static char dir[64], *program;

static void say(const char *words)
{
    char *command = mem_printf("FAKE_SLURM=%s %s %s", dir, program, words);

    assert_int_equal(system(command), 0);
    free(command);
}

/* observe: o1, o2; lend: a1 a2 (async), n1 n2 (online); not in Slurm: x1. */
static char *conf_text(double timeout)
{
    return mem_printf("class mi50 { devices = 1  shm = 1M  nominal_ms = 300 }\n"
                      "node \"o[1-2]\" { class = mi50 slurm = observe }\n"
                      "node \"a[1-2]\" { class = mi50 pool = async slurm = lend }\n"
                      "node \"n[1-2]\" { class = mi50 slurm = lend }\n"
                      "node x1 { class = mi50 }\n"
                      "slurm { program = '%s' poll = 0.05 settle = 0.2 timeout = %g max_leases = 1 lease_time = 600 }\n", program, timeout);
}

static int setup(void **state)
{
    const char *build = getenv("SLUICE_BUILDDIR");
    struct fixture *f;
    char *conf;

    strcpy(dir, "/tmp/sluice-slurm-XXXXXX");
    assert_non_null(mkdtemp(dir));
    if (program == NULL) {
        char *here = realpath(build == NULL ? "." : build, NULL);

        program = mem_printf("%s/tests/fake/fake-slurm", here);
        free(here);
    }
    setenv("FAKE_SLURM", dir, 1);
    for (const char *const *n = (const char *const[]){ "o1", "o2", "a1", "a2", "n1", "n2", NULL }; *n != NULL; n++) {
        char *words = mem_printf("node %s idle", *n);

        say(words);
        free(words);
    }
    conf = conf_text(5);
    f = fx_new(conf);
    free(conf);
    fx_start(f);
    *state = f;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

static int teardown(void **state)
{
    int rc = fx_teardown(state);

    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    return rc;
}

/* ---- the fake's world, and ours ---- */

static json_t *world(void)
{
    char path[100];
    json_t *w;

    snprintf(path, sizeof(path), "%s/world.json", dir);
    w = json_load_file(path, 0, NULL);
    assert_non_null(w);
    return w;
}

static bool world_has(const char *section, const char *name, const char *key, const char *value)
{
    json_t *w = world(), *o = json_object_get(json_object_get(w, section), name);
    const char *is = json_string_value(json_object_get(o, key));
    bool has = key == NULL ? o != NULL : is != NULL && strcmp(is, value) == 0;

    json_decref(w);
    return has;
}

/* How often this was asked of the fake. */
static unsigned acts(const char *line)
{
    json_t *w = world(), *one;
    unsigned n = 0;
    size_t i;

    json_array_foreach(json_object_get(w, "acts"), i, one)
        n += strcmp(json_string_value(one), line) == 0;
    json_decref(w);
    return n;
}

struct expected { struct fixture *f; const char *a, *b, *c, *d; };

static bool is_in_world(void *arg)
{
    const struct expected *x = arg;

    return world_has(x->a, x->b, x->c, x->d);
}

static void until_world(struct fixture *f, const char *section, const char *name, const char *key, const char *value)
{
    struct expected x = { f, section, name, key, value };

    if (!fx_until(f, is_in_world, &x))
        fail_msg("%s %s: %s is not %s", section, name, key, value);
}

static bool is_not_in_world(void *arg)
{
    return !is_in_world(arg);
}

static void until_not_world(struct fixture *f, const char *section, const char *name)
{
    struct expected x = { f, section, name, NULL, NULL };

    if (!fx_until(f, is_not_in_world, &x))
        fail_msg("%s %s is still there", section, name);
}

static struct node *node(struct fixture *f, const char *name)
{
    struct node *n = farm_node(f->d.farm, name);

    assert_non_null(n);
    return n;
}

static const struct mark *slurm_mark(struct fixture *f, const char *name, const char *owner)
{
    return mark_automatic_find(node(f, name), NULL, "slurm", owner);
}

static bool is_marked(void *arg)
{
    const struct expected *x = arg;
    const struct mark *m = slurm_mark(x->f, x->a, x->b);

    return m != NULL && (x->c == NULL || strcmp(m->reason, x->c) == 0);
}

static bool is_not_marked(void *arg)
{
    const struct expected *x = arg;
    const struct mark *m;

    TAILQ_FOREACH(m, &node(x->f, x->a)->marks, entry) {
        if (strcmp(m->owner_kind, "slurm") == 0 && strcmp(m->owner, x->b) == 0)
            return false;
    }
    return true;
}

static void until_marked(struct fixture *f, const char *name, const char *owner, const char *reason)
{
    struct expected x = { f, name, owner, reason, NULL };

    if (!fx_until(f, is_marked, &x))
        fail_msg("%s has no mark of slurm %s: %s", name, owner, reason);
}

static void until_clear(struct fixture *f, const char *name, const char *owner)
{
    struct expected x = { f, name, owner, NULL, NULL };

    if (!fx_until(f, is_not_marked, &x))
        fail_msg("%s is still marked by slurm %s", name, owner);
}

static bool is_in_pool(void *arg)
{
    const struct expected *x = arg;

    return strcmp(pool_name[node(x->f, x->a)->pool], x->b) == 0 && node(x->f, x->a)->move == NULL;
}

static void until_pool(struct fixture *f, const char *name, const char *pool)
{
    struct expected x = { f, name, pool, NULL, NULL };

    if (!fx_until(f, is_in_pool, &x))
        fail_msg("%s is not in %s: %s", name, pool, slurm_waits_for(node(f, name)));
}

struct seen_alarm { const char *word; char text[700]; };

static void see_alarm(void *arg, const struct alarm *said)
{
    struct seen_alarm *a = arg;

    if (strcmp(said->word, a->word) == 0)
        snprintf(a->text, sizeof(a->text), "%s", said->text);
}

static bool has_alarm(void *arg)
{
    const struct expected *x = arg;
    struct seen_alarm a = { .word = x->a };

    slurm_alarms(&x->f->d, see_alarm, &a);
    return x->b == NULL ? a.text[0] == '\0' : strstr(a.text, x->b) != NULL;
}

static void until_alarm(struct fixture *f, const char *word, const char *part)
{
    struct expected x = { f, word, part, NULL, NULL };

    if (!fx_until(f, has_alarm, &x))
        fail_msg("alarm %s: %s", word, part);
}

/* A worker whose device is parked and works as Settings say. */
static struct peer *lent_worker(struct fixture *f, const char *name)
{
    struct peer *p = simple_worker(f, name);

    worker_parks(p, name);
    return p;
}

struct told { struct peer *p; Sluice__Parking want; };

static bool is_told(void *arg)
{
    const struct told *t = arg;
    const Sluice__Settings *s = (const Sluice__Settings *)t->p->settings;

    return s != NULL && s->has_parking && s->parking == t->want;
}

static void until_told(struct fixture *f, struct peer *p, Sluice__Parking want)
{
    struct told t = { p, want };

    if (!fx_until(f, is_told, &t))
        fail_msg("told %d, not %d", p->settings == NULL ? -1 : (int)((const Sluice__Settings *)p->settings)->parking, (int)want);
}

static bool is_usable(void *arg)
{
    const struct expected *x = arg;
    struct verdict v;

    node_judge(node(x->f, x->a), &v);
    return v.usable == (x->b != NULL);
}

static void until_usable(struct fixture *f, const char *name, bool is)
{
    struct expected x = { f, name, is ? "yes" : NULL, NULL, NULL };

    if (!fx_until(f, is_usable, &x))
        fail_msg("%s is %susable", name, is ? "not " : "");
}

static const Sluice__SlurmInfo *info(struct peer *p, const char *name)
{
    const Sluice__Node *n = ask_node(p, name);

    assert_non_null(n->slurm);
    return n->slurm;
}

/* ---- marks ---- */

static void bad_in_slurm_is_a_mark_with_reason_user_and_time(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    const struct mark *m;

    say("node o1 idle+drain 'fan is loud' anna");
    until_marked(f, "o1", "state", "fan is loud");
    m = slurm_mark(f, "o1", "state");
    assert_true(m->block);
    assert_string_equal(m->evidence, "Slurm: DRAIN, by anna (uid 1000), since 2023-11-14T22:13:20.000+00:00");
    assert_true(node_has_why(ask_node(p, "o1"), "MarkedBySlurm"));
    assert_string_equal(info(p, "o1")->state, "idle+drain");
    assert_string_equal(info(p, "o1")->reason, "fan is loud");
    assert_string_equal(info(p, "o1")->mode, "observe");
    assert_null(ask_node(p, "x1")->slurm);
    /* jobs come and go: the same mark */
    {
        uint64_t id = m->id;

        say("node o1 mixed+drain 'fan is loud' anna");
        fx_turn(f, 0.3);
        assert_int_equal(slurm_mark(f, "o1", "state")->id, id);
    }
    /* another reason: another mark, and never a moment without one */
    say("node o1 down+drain 'no power' bert");
    until_marked(f, "o1", "state", "no power");
    say("node o1 idle");
    until_clear(f, "o1", "state");
    say("node o1 idle+fail 'bad cable'");
    until_marked(f, "o1", "state", "bad cable");
    assert_int_equal(acts("drain o1") + acts("undrain o1"), 0);
    peer_close(p);
}

/* What comes from people in Slurm is cut to a length, but stays text: else nobody could be shown the node any more. */
static void a_long_reason_stays_text(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    char words[800] = "node o1 idle+drain '";
    const struct mark *m;

    for (int i = 0; i < 100; i++)
        strcat(words, "x\u20ac");        /* 4 bytes: 300 are not a whole number of letters */
    strcat(words, "y'");
    memmove(words + 21, words + 20, strlen(words + 20) + 1);
    words[20] = 'z';
    say(words);
    until_marked(f, "o1", "state", NULL);
    m = slurm_mark(f, "o1", "state");
    assert_int_equal(strlen(m->reason), 300);
    assert_true(frame_is_utf8(m->reason));
    assert_non_null(ask_node(p, "o1"));
    peer_close(p);
}

static void no_word_is_neither_good_nor_bad(void **state)
{
    struct fixture *f = *state;

    say("node o1 idle+drain 'fan is loud'");
    until_marked(f, "o1", "state", "fan is loud");
    say("node o1 unknown");
    say("node o2 unknown+drain");
    fx_turn(f, 0.5);
    assert_non_null(slurm_mark(f, "o1", "state"));
    assert_null(slurm_mark(f, "o2", "state"));
    say("node o2 idle+no_respond");
    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    fx_turn(f, 0.5);
    assert_non_null(slurm_mark(f, "o1", "state"));
    say("node o1 idle");
    say("how poll ok");
    until_clear(f, "o1", "state");
    assert_null(slurm_mark(f, "o2", "state"));
}

/* Slurm's word is believed against us only when slurmctld has been up for long enough to have heard of its nodes. */
static void a_fresh_slurmctld_clears_nothing(void **state)
{
    struct fixture *f = *state;

    say("node o1 idle+drain 'fan is loud'");
    until_marked(f, "o1", "state", "fan is loud");
    fx_turn(f, 0.3);
    for (int boot = 2; boot < 12; boot++) {              /* each start is seen, none has settled */
        char words[32];

        say("node o1 idle+drain 'fan is loud'");
        snprintf(words, sizeof(words), "boot %d", boot);
        say(words);
        fx_turn(f, 0.07);
        say("node o1 idle");
        fx_turn(f, 0.07);
        assert_non_null(slurm_mark(f, "o1", "state"));
    }
    say("node o1 idle+drain 'fan is loud'");             /* what is not there after a start may be lost: it is seen once more */
    fx_turn(f, 0.4);
    say("node o1 idle");
    until_clear(f, "o1", "state");
}

/* slurmctld comes back, and some nodes are as it says. */
static void restart_slurmctld(const char *boot, const char *const *nodes)
{
    char words[100];

    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    snprintf(words, sizeof(words), "boot %s", boot);
    say(words);
    for (; *nodes != NULL; nodes++) {
        snprintf(words, sizeof(words), "node %s", *nodes);
        say(words);
    }
    say("how poll ok");
}

/* Killed before it had saved its state, or started without it. */
static void a_drain_that_slurmctld_forgot_stays_a_mark(void **state)
{
    struct fixture *f = *state;
    struct peer *p;

    say("node o1 idle+drain 'keep it' anna");
    say("node o2 down 'Not responding'");
    say("node n1 idle+drain 'keep it, too' anna");
    until_marked(f, "o1", "state", "keep it");
    until_marked(f, "o2", "state", "Not responding");
    until_marked(f, "n1", "state", "keep it, too");
    restart_slurmctld("2", (const char *const[]){ "o1 idle", "o2 idle", "n1 idle", NULL });
    until_clear(f, "o2", "state");       /* it is there: Slurm has found out anew */
    fx_turn(f, 0.6);
    assert_non_null(strstr(slurm_mark(f, "o1", "state")->evidence, "by anna (uid 1000), since 2023-11-14T22:13:20.000+00:00; not said any more since a restart of slurmctld"));
    assert_string_equal(slurm_mark(f, "o1", "state")->reason, "keep it");
    /* not even when sluiced is started anew */
    fx_stop(f);
    fx_start(f);
    fx_turn(f, 0.8);
    assert_non_null(slurm_mark(f, "o1", "state"));
    /* a person's word, or Slurm's own: drained again, and resumed */
    p = person(f);
    assert_int_equal(ask_clear(p, "n1", slurm_mark(f, "n1", "state")->id, true, false), 0);
    say("node o1 idle+drain 'keep it' anna");
    fx_turn(f, 0.3);
    assert_null(strstr(slurm_mark(f, "o1", "state")->evidence, "not said"));
    say("node o1 idle");
    until_clear(f, "o1", "state");
    fx_turn(f, 0.3);
    assert_null(slurm_mark(f, "n1", "state"));
    peer_close(p);
}

/* While sluiced is away, too; what was resumed meanwhile is resumed. */
static void a_drain_that_was_forgotten_while_we_were_away_stays_a_mark(void **state)
{
    struct fixture *f = *state;

    say("node o1 idle+drain 'keep it' anna");
    say("node o2 idle+drain 'and that' anna");
    until_marked(f, "o1", "state", "keep it");
    until_marked(f, "o2", "state", "and that");
    fx_stop(f);
    say("node o2 idle");
    fx_start(f);
    until_clear(f, "o2", "state");
    assert_non_null(slurm_mark(f, "o1", "state"));
    fx_stop(f);
    restart_slurmctld("2", (const char *const[]){ "o1 idle", NULL });
    fx_start(f);
    fx_turn(f, 0.8);
    assert_non_null(slurm_mark(f, "o1", "state"));
}

static void our_marks_are_told_to_slurm_and_taken_back(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    until_world(f, "nodes", "o1", "state", "idle+drain");
    assert_true(world_has("nodes", "o1", "user", "sluice"));
    {
        char reason[300];

        snprintf(reason, sizeof(reason), "sluice: disk is slow (%s)", TAILQ_FIRST(&node(f, "o1")->marks)->owner);
        assert_true(world_has("nodes", "o1", "reason", reason));
    }
    fx_turn(f, 0.3);
    assert_null(slurm_mark(f, "o1", "state"));           /* what we said does not come back */
    assert_int_equal(acts("drain o1"), 1);
    /* somebody resumes it: said again, as our mark is still there */
    say("node o1 idle");
    until_world(f, "nodes", "o1", "state", "idle+drain");
    assert_int_equal(ask_clear(p, "o1", 0, false, false), 0);
    until_world(f, "nodes", "o1", "state", "idle");
    assert_int_equal(ask_mark(p, "x1", "not in Slurm", NULL), 0);
    peer_close(p);
}

static void no_foreign_reason_is_overwritten_and_no_foreign_drain_cleared(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    say("node o1 idle+drain 'fan is loud' anna");
    until_marked(f, "o1", "state", "fan is loud");
    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("nodes", "o1", "reason", "fan is loud"));
    assert_int_equal(ask_clear(p, "o1", 0, false, false), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("nodes", "o1", "state", "idle+drain"));
    /* ours first, then an administrator's over it */
    assert_int_equal(ask_mark(p, "o2", "disk is slow", NULL), 0);
    until_world(f, "nodes", "o2", "state", "idle+drain");
    say("node o2 idle+drain 'no power' bert");
    until_marked(f, "o2", "state", "no power");
    assert_int_equal(ask_clear(p, "o2", 0, false, false), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("nodes", "o2", "state", "idle+drain"));
    assert_true(world_has("nodes", "o2", "reason", "no power"));
    assert_int_equal(acts("undrain o2") + acts("undrain o1"), 0);
    peer_close(p);
}

/* The first mark's words go with it, the drain does not; and words of somebody else stay whatever our marks say. */
static void our_reason_there_is_that_of_a_mark_that_stands(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    char reason[300];
    uint64_t first;

    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    first = TAILQ_FIRST(&node(f, "o1")->marks)->id;
    snprintf(reason, sizeof(reason), "sluice: disk is slow (%s)", TAILQ_FIRST(&node(f, "o1")->marks)->owner);
    until_world(f, "nodes", "o1", "reason", reason);
    assert_int_equal(ask_mark(p, "o1", "fan is loud", NULL), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("nodes", "o1", "reason", reason));
    assert_int_equal(ask_clear(p, "o1", first, false, false), 0);
    snprintf(reason, sizeof(reason), "sluice: fan is loud (%s)", TAILQ_FIRST(&node(f, "o1")->marks)->owner);
    until_world(f, "nodes", "o1", "reason", reason);
    assert_true(world_has("nodes", "o1", "state", "idle+drain"));
    fx_turn(f, 0.3);
    assert_int_equal(acts("drain o1"), 2);
    assert_int_equal(acts("undrain o1"), 0);
    /* Slurm has made something else of our words: they are not said again and again */
    say("node o1 idle+drain 'sluice: fan is' root");
    fx_turn(f, 0.3);
    assert_int_equal(acts("drain o1"), 2);
    until_alarm(f, "SlurmContested", NULL);
    /* an administrator's stay */
    say("node o1 idle+drain 'no power' anna");
    until_marked(f, "o1", "state", "no power");
    assert_int_equal(ask_mark(p, "o1", "fan is gone", NULL), 0);
    assert_int_equal(ask_clear(p, "o1", TAILQ_FIRST(&node(f, "o1")->marks)->id, false, false), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("nodes", "o1", "reason", "no power"));
    assert_int_equal(acts("drain o1"), 2);
    peer_close(p);
}

/* An answer that came while a command about the node was under way is not taken: when that command fails what it said is asked for again. */
static void what_slurm_said_while_a_command_hung_is_heard(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    char *text = conf_text(0.5);

    fx_conf(f, text);
    free(text);
    sluiced_reload(&f->d);
    fx_turn(f, 0.5);
    say("how act silent");
    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    assert_int_equal(ask_clear(p, "o1", 0, false, false), 0);
    say("node o1 idle+drain 'no power' anna");
    until_marked(f, "o1", "state", "no power");
    assert_int_equal(acts("drain o1"), 0);
    peer_close(p);
}

static void both_stores_agree_again_after_a_restart_of_either(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    uint64_t id;

    say("node o1 idle+drain 'fan is loud' anna");
    until_marked(f, "o1", "state", "fan is loud");
    id = slurm_mark(f, "o1", "state")->id;
    assert_int_equal(ask_mark(p, "o2", "disk is slow", NULL), 0);
    until_world(f, "nodes", "o2", "state", "idle+drain");
    peer_close(p);
    fx_stop(f);
    say("node o2 idle");                 /* slurmctld lost it: killed right after its answer */
    say("node n1 idle+drain 'while we were away'");
    say("reservation sluice-n1");
    fx_start(f);
    assert_int_equal(slurm_mark(f, "o1", "state")->id, id);
    until_world(f, "nodes", "o2", "state", "idle+drain");
    until_marked(f, "n1", "state", "while we were away");
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    fx_turn(f, 0.3);
    assert_int_equal(slurm_mark(f, "o1", "state")->id, id);
}

/* sluiced died between the drain and its reason. */
static void a_drain_that_was_cut_short_is_known_by_its_mark(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    until_world(f, "nodes", "o1", "state", "idle+drain");
    fx_stop(f);
    peer_close(p);
    say("node o1 idle+drain");
    say("node o2 idle+drain");           /* not ours: nothing here wanted it */
    fx_start(f);
    until_marked(f, "o2", "state", "no reason given in Slurm");
    until_world(f, "nodes", "o1", "user", "sluice");
    assert_null(slurm_mark(f, "o1", "state"));
    p = person(f);
    assert_int_equal(ask_clear(p, "o1", 0, false, false), 0);
    until_world(f, "nodes", "o1", "state", "idle");
    assert_true(world_has("nodes", "o2", "state", "idle+drain"));
    peer_close(p);
}

static void a_foreign_reservation_is_a_mark_where_the_node_is_ours(void **state)
{
    struct fixture *f = *state;

    say("reservation maint-1 n1 anna maint");
    say("reservation maint-2 a1 anna maint");
    until_marked(f, "n1", "reservation", "reservation maint-1 in Slurm");
    fx_turn(f, 0.3);
    assert_null(slurm_mark(f, "a1", "reservation"));     /* Slurm's own business */
    say("reservation maint-1");
    until_clear(f, "n1", "reservation");
}

/* Its name is not enough. */
static void a_reservation_of_our_name_that_is_not_ours_is_foreign(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    say("reservation sluice-n1 n1 daemon");              /* somebody has opened it: his jobs may start there */
    until_marked(f, "n1", "reservation", "reservation sluice-n1 in Slurm");
    until_alarm(f, "SlurmRefused", "reservation sluice-n1 is not ours");
    say("reservation sluice-n1");
    until_clear(f, "n1", "reservation");
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_alarm(f, "SlurmRefused", NULL);
    say("reservation sluice-n2 n2 sluice maint");
    until_marked(f, "n2", "reservation", "reservation sluice-n2 in Slurm");
    /* on a node that Slurm has it is somebody's own business, and not ours */
    say("reservation sluice-a1 a1 daemon");
    fx_turn(f, 0.3);
    assert_false(info(p, "a1")->reserved);
    assert_string_equal(info(p, "a1")->reservation, "sluice-a1");
    assert_null(info(p, "a1")->trouble);
    assert_null(slurm_mark(f, "a1", "reservation"));
    peer_close(p);
}

/* ---- nodes change hands ---- */

static void what_is_ours_is_reserved_and_what_is_slurms_is_not(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1"), *v = lent_worker(f, "n1");

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    assert_false(world_has("reservations", "sluice-a1", NULL, NULL));
    assert_false(world_has("reservations", "sluice-o1", NULL, NULL));
    assert_true(node_has_why(ask_node(p, "a1"), "NoLease"));
    assert_false(ask_node(p, "a1")->usable);
    assert_int_equal(ask_node(p, "a1")->state, SLUICE__NODE_STATE__IDLE);
    assert_true(ask_node(p, "n1")->usable);
    say("reservation sluice-n1");        /* an administrator removes it */
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    say("job 5 n2");
    until_marked(f, "n2", "jobs", NULL);
    say("node n2 idle");
    until_clear(f, "n2", "jobs");
    peer_close(w);
    peer_close(v);
    peer_close(p);
}

static void undo(struct fixture *f, const char *reservation, const char *words, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        until_world(f, "reservations", reservation, NULL, NULL);
        say(words);
    }
}

/* Another sluiced, or an administrator's script: it is not fought at every look, and people are told. */
static void what_somebody_else_undoes_all_the_time_is_told_and_not_repeated_at_once(void **state)
{
    struct fixture *f = *state;
    unsigned before;

    undo(f, "sluice-n1", "reservation sluice-n1", 2);
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_alarm(f, "SlurmContested", NULL);              /* by mistake, perhaps */
    say("reservation sluice-n1");
    until_alarm(f, "SlurmContested", "for 1 node, n1 first: its reservation was removed 3 times");
    undo(f, "sluice-n1", "reservation sluice-n1", 1);    /* still done again, after 1 s, then 2 s */
    before = acts("reserve n1");
    fx_turn(f, 1.5);
    assert_int_equal(acts("reserve n1"), before);
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    /* a slurmctld that forgets is no such body */
    for (int boot = 2; boot < 6; boot++) {
        char words[32];

        until_world(f, "reservations", "sluice-n2", NULL, NULL);
        snprintf(words, sizeof(words), "boot %d", boot);
        say(words);
        say("reservation sluice-n2");
    }
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    until_alarm(f, "SlurmContested", "for 1 node, n1");
}

/* Its drains say that they are ours. */
static void what_another_one_drains_in_our_words_is_left_alone_after_a_while(void **state)
{
    struct fixture *f = *state;
    double begun = 0;

    for (int i = 0; i < 3; i++) {
        begun = clock_mono_s();
        say("node o1 idle+drain 'sluice: hw is broken (root)' root");
        if (i < 2)
            until_world(f, "nodes", "o1", "state", "idle");
    }
    until_alarm(f, "SlurmContested", "o1 first: it was drained again in our words 2 times");
    until_world(f, "nodes", "o1", "state", "idle");      /* perhaps it was left behind: 1 s later */
    assert_true(clock_mono_s() - begun >= 1);
}

static void a_node_is_taken_when_its_jobs_have_ended(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");

    say("job 5 a1");
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    until_world(f, "reservations", "sluice-a1", NULL, NULL);
    fx_turn(f, 0.3);
    assert_int_equal(node(f, "a1")->pool, POOL_ASYNC);
    assert_non_null(strstr(slurm_waits_for(node(f, "a1")), "jobs of Slurm are there: mixed"));
    assert_string_equal(ask_node(p, "a1")->move->text, "jobs of Slurm are there: mixed");
    assert_int_equal(acts("clear-out a1"), 0);
    say("node a1 mixed+completing");
    fx_turn(f, 0.2);
    assert_int_equal(node(f, "a1")->pool, POOL_ASYNC);
    say("node a1 idle");
    until_pool(f, "a1", "online");
    assert_true(ask_node(p, "a1")->usable);
    peer_close(w);
    peer_close(p);
}

static void now_requeues_what_may_be_requeued_and_lets_it_begin(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    say("job 5 a1");
    say("job 6 a1 never");
    say("job 7 a2");
    assert_int_equal(ask_move(p, "a1", "online", "now"), 0);
    until_pool(f, "a1", "online");
    assert_true(world_has("jobs", "5", "state", "pending"));
    assert_true(world_has("jobs", "5", "begin", "now"));
    assert_false(world_has("jobs", "6", NULL, NULL));
    assert_true(world_has("jobs", "7", "state", "running"));
    peer_close(p);
}

static void a_drain_at_any_step_survives_the_move(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");

    say("node a1 mixed+drain 'before' anna");
    until_marked(f, "a1", "state", "before");
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    until_world(f, "reservations", "sluice-a1", NULL, NULL);
    say("node a1 mixed+drain 'while it is emptied' anna");
    until_marked(f, "a1", "state", "while it is emptied");
    say("node a1 idle+drain 'while it is emptied' anna");
    until_pool(f, "a1", "online");
    assert_true(node_has_why(ask_node(p, "a1"), "MarkedBySlurm"));
    assert_int_equal(ask_move(p, "a1", "async", NULL), 0);
    until_pool(f, "a1", "async");
    until_not_world(f, "reservations", "sluice-a1");
    assert_true(world_has("nodes", "a1", "reason", "while it is emptied"));
    assert_int_equal(acts("undrain a1"), 0);
    peer_close(w);
    peer_close(p);
}

/* No TF, no process that keeps memory of a device, and what the last one had is free. */
static void a_node_is_given_back_without_anything_of_ours(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "n1");

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    node(f, "n1")->n_tfs = 1;
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("reservations", "sluice-n1", NULL, NULL));
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);     /* a TF is still there */
    w->leaks = true;
    node(f, "n1")->n_tfs = 0;
    node_emptied(node(f, "n1"));
    until_told(f, w, SLUICE__PARKING__DEVICES_PARK);
    fx_turn(f, 0.4);
    assert_true(world_has("reservations", "sluice-n1", NULL, NULL));
    assert_int_equal(node(f, "n1")->pool, POOL_ONLINE);
    assert_string_equal(slurm_waits_for(node(f, "n1")), "memory of a device is still in use");
    w->leaks = false;
    worker_reports(w);
    until_pool(f, "n1", "async");
    assert_false(world_has("reservations", "sluice-n1", NULL, NULL));
    until_told(f, w, SLUICE__PARKING__DEVICES_LENT);
    /* and back: they are started again */
    assert_int_equal(ask_move(p, "n1", "online", NULL), 0);
    until_pool(f, "n1", "online");
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    until_usable(f, "n1", true);
    peer_close(w);
    peer_close(p);
}

/* A report that was under way when the order went out says nothing about it. */
static void an_old_report_gives_nothing_back(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "n1");
    Sluice__Report r = SLUICE__REPORT__INIT;
    Sluice__Device dev = SLUICE__DEVICE__INIT, *devices[1] = { &dev };

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    w->parks = NULL;                     /* says nothing by itself */
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    until_told(f, w, SLUICE__PARKING__DEVICES_PARK);
    dev.serial = (char *)"gpu-n1";
    dev.has_state = true;
    dev.state = SLUICE__DEVICE_STATE__DEVICE_PARKED;
    r.has_parking_order = r.has_buffer_size = true;
    r.parking_order = ((const Sluice__Settings *)w->settings)->parking_order - 1;
    r.n_devices = 1;
    r.devices = devices;
    r.buffer_size = 1 << 20;
    peer_tell(w, &r.base);
    fx_turn(f, 0.5);
    assert_int_equal(node(f, "n1")->pool, POOL_ONLINE);
    assert_string_equal(slurm_waits_for(node(f, "n1")), "reconstruction processes are being ended");
    r.parking_order++;
    peer_tell(w, &r.base);
    until_pool(f, "n1", "async");
    peer_close(w);
    peer_close(p);
}

/* Nobody can say what is on its devices: that is for whoever asks for the move to decide. */
static void a_node_whose_worker_does_not_answer_is_given_back_only_at_once(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__CancelMove q = SLUICE__CANCEL_MOVE__INIT;

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    fx_turn(f, 0.5);
    assert_int_equal(node(f, "n1")->pool, POOL_ONLINE);
    assert_non_null(strstr(ask_node(p, "n1")->move->text, "its worker does not answer"));
    q.has_id = true;
    q.id = ask_node(p, "n1")->move->id;
    peer_ask(p, &q.base);
    assert_int_equal(ask_move(p, "n1", "async", "now"), 0);
    until_pool(f, "n1", "async");
    assert_false(world_has("reservations", "sluice-n1", NULL, NULL));
    peer_close(p);
}

/* Before Slurm's word is there nobody knows whether a node is leased: its worker goes on as it was, and one that has just begun starts nothing. */
static void while_nobody_knows_whose_a_node_is_its_devices_stay_as_they_are(void **state)
{
    struct fixture *f = *state;
    struct peer *w, *v;

    fx_stop(f);
    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    fx_start(f);
    w = lent_worker(f, "a1");
    v = lent_worker(f, "n1");
    fx_turn(f, 0.3);
    until_told(f, w, SLUICE__PARKING__DEVICES_AS_THEY_ARE);
    until_told(f, v, SLUICE__PARKING__DEVICES_WORK);
    say("how poll ok");
    until_told(f, w, SLUICE__PARKING__DEVICES_LENT);
    peer_close(w);
    peer_close(v);
}

/* What Slurm has is not idle: min_good of its pool counts the good ones of them. */
static void min_good_counts_the_nodes_that_slurm_has(void **state)
{
    struct fixture *f = *state;
    struct peer *p, *w, *v;
    char *conf = conf_text(5), *more = mem_printf("%spool async { min_good = 1 }\n", conf);

    fx_stop(f);
    fx_conf(f, more);
    free(conf);
    free(more);
    fx_start(f);
    p = person(f);
    w = lent_worker(f, "a1");
    v = lent_worker(f, "a2");
    assert_true(node_has_why(ask_node(p, "a1"), "NoLease"));
    say("node a2 idle+drain 'fan is loud'");
    until_marked(f, "a2", "state", "fan is loud");
    assert_int_not_equal(ask_move(p, "a1", "online", NULL), 0);          /* a2 is there, and bad */
    assert_string_equal(answer_text(p), "node a1: pool async would have 0 usable nodes, its min_good is 1");
    say("node a2 idle");
    until_clear(f, "a2", "state");
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    until_pool(f, "a1", "online");
    assert_int_not_equal(ask_move(p, "a2", "online", NULL), 0);
    peer_close(v);
    peer_close(w);
    peer_close(p);
}

static void retire(struct peer *p, const char *name)
{
    Sluice__RetireNodes q = SLUICE__RETIRE_NODES__INIT;
    char *names[] = { (char *)name };

    q.names = names;
    q.n_names = 1;
    peer_ask(p, &q.base);
    assert_int_equal(answer_code(p), 0);
}

/* The configuration without the lent ones: x1 is lent in their place. */
static void lend_no_more(struct fixture *f)
{
    char *conf = mem_printf("class mi50 { devices = 1  shm = 1M  nominal_ms = 300 }\n"
                            "node \"o[1-2]\" { class = mi50 }\nnode \"a[1-2]\" { class = mi50 }\nnode \"n[1-2]\" { class = mi50 }\nnode x1 { class = mi50 slurm = lend }\n"
                            "slurm { program = '%s' poll = 0.05 settle = 0.2 timeout = 5 }\n", program);

    fx_conf(f, conf);
    free(conf);
}

static bool has_left(void *arg)
{
    const struct expected *x = arg;

    return node(x->f, x->a)->slurm == NULL;
}

static void until_left(struct fixture *f, const char *name)
{
    struct expected x = { f, name, NULL, NULL, NULL };

    if (!fx_until(f, has_left, &x))
        fail_msg("%s is still asked about", name);
}

/* Nothing of ours stays behind in Slurm, and nothing of others' is touched. */
static void what_leaves_takes_what_is_ours_with_it(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    assert_int_equal(ask_mark(p, "n2", "disk is slow", NULL), 0);
    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    until_world(f, "nodes", "n2", "state", "idle+drain");
    until_world(f, "nodes", "o1", "state", "idle+drain");
    say("node o2 idle+drain 'fan is loud' anna");
    until_marked(f, "o2", "state", "fan is loud");
    say("how act '2 error SlurmRefused Unable to contact slurm controller'");    /* it is tried until it is done */
    retire(p, "n2");
    assert_string_equal(((const Sluice__Changed *)p->answer)->results[0]->text, "retired; its marks here keep it drained in Slurm no longer");
    until_not_world(f, "reservations", "sluice-n2");
    until_world(f, "nodes", "n2", "state", "idle");
    assert_true(world_has("reservations", "sluice-n1", NULL, NULL));
    say("node x1 idle");
    say("reservation anna-n1 n1 anna");
    /* while sluiced is down: it is mended at its start */
    peer_close(p);
    fx_stop(f);
    lend_no_more(f);
    fx_start(f);
    until_not_world(f, "reservations", "sluice-n1");
    until_world(f, "nodes", "o1", "state", "idle");
    until_world(f, "reservations", "sluice-x1", NULL, NULL);
    assert_true(world_has("nodes", "o2", "reason", "fan is loud"));
    assert_true(world_has("reservations", "anna-n1", NULL, NULL));
    until_left(f, "n1");
    until_left(f, "o2");
}

static void lend_none(struct fixture *f, const char *more)
{
    char *conf = mem_printf("class mi50 { devices = 1  shm = 1M  nominal_ms = 300 }\n"
                            "node \"o[1-2],a[1-2],n[1-2],x1\" { class = mi50 }\n"
                            "slurm { program = '%s' poll = 0.05 settle = 0.2 timeout = 5 %s }\n", program, more);

    fx_stop(f);
    fx_conf(f, conf);
    fx_start(f);
    free(conf);
}

/* A node that Slurm has, and perhaps a job of Slurm on it: nothing of ours begins there because it is retired. */
static void a_node_that_is_retired_starts_nothing(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");

    until_told(f, w, SLUICE__PARKING__DEVICES_LENT);
    say("job 5 a1");
    retire(p, "a1");
    until_left(f, "a1");
    fx_turn(f, 0.2);
    until_told(f, w, SLUICE__PARKING__DEVICES_AS_THEY_ARE);
    peer_close(w);
    w = lent_worker(f, "a1");            /* nor by a worker that begins */
    fx_turn(f, 0.2);
    assert_true(w->settings == NULL || ((const Sluice__Settings *)w->settings)->parking == SLUICE__PARKING__DEVICES_AS_THEY_ARE);
    peer_close(w);
    peer_close(p);
}

/* It is Slurm's until no job of Slurm is there, and a lease goes as ever. */
static void a_node_that_slurm_is_to_give_up_is_ours_when_its_jobs_have_ended(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1"), *v = lent_worker(f, "a2");

    say("job 5 a2");
    flow_double.tasks = 10;
    until_usable(f, "a1", true);
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    lend_no_more(f);
    sluiced_reload(&f->d);
    until_not_world(f, "leases", "a1");
    until_left(f, "a1");
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    fx_turn(f, 0.3);
    until_told(f, v, SLUICE__PARKING__DEVICES_LENT);
    assert_true(node_has_why(ask_node(p, "a2"), "NoLease"));
    say("node a2 idle");
    until_left(f, "a2");
    until_told(f, v, SLUICE__PARKING__DEVICES_WORK);
    until_usable(f, "a2", true);
    peer_close(w);
    peer_close(v);
    peer_close(p);
}

/* No node has to do with Slurm any more, and was changed so while sluiced was down: what is ours there is taken back all the same, once. */
static void the_last_ones_that_leave_are_known_after_a_restart(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    until_world(f, "nodes", "o1", "state", "idle+drain");
    peer_close(p);
    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    lend_none(f, "");
    fx_turn(f, 2.5);
    until_alarm(f, "SlurmSilent", "Unable to contact");
    assert_true(world_has("reservations", "sluice-n1", NULL, NULL));
    say("how poll ok");
    until_not_world(f, "reservations", "sluice-n1");
    until_not_world(f, "reservations", "sluice-n2");
    until_world(f, "nodes", "o1", "state", "idle");
    until_left(f, "n1");
    until_left(f, "o1");
    until_alarm(f, "SlurmSilent", NULL);
    fx_turn(f, 0.2);
    lend_none(f, "");
    assert_null(node(f, "n1")->slurm);
}

/* Unless that Slurm is gone for good, which only people know. */
static void what_is_forgotten_is_not_asked_for(void **state)
{
    struct fixture *f = *state;

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    lend_none(f, "");
    assert_non_null(node(f, "n1")->slurm);
    lend_none(f, "forget = yes");
    assert_null(node(f, "n1")->slurm);
    fx_turn(f, 0.2);
    lend_none(f, "");
    assert_null(node(f, "n1")->slurm);
    assert_true(world_has("reservations", "sluice-n1", NULL, NULL));
    assert_int_equal(acts("release n1"), 0);
}

/* The answer to the last command got lost: what the next look shows is enough. */
static void what_was_done_late_is_no_trouble_for_long(void **state)
{
    struct fixture *f = *state;
    struct peer *p, *w;
    char *conf = conf_text(0.3);

    fx_stop(f);
    fx_conf(f, conf);
    free(conf);
    fx_start(f);
    p = person(f);
    w = lent_worker(f, "n1");
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    say("how act '1 late'");
    assert_int_equal(ask_move(p, "n1", "async", NULL), 0);
    until_alarm(f, "SlurmRefused", "no answer within 0.3 s");
    assert_false(world_has("reservations", "sluice-n1", NULL, NULL));
    until_pool(f, "n1", "async");
    until_alarm(f, "SlurmRefused", NULL);
    say("how act '1 late'");
    assert_int_equal(ask_mark(p, "n2", "disk is slow", NULL), 0);
    until_alarm(f, "SlurmRefused", "no answer within 0.3 s");
    until_world(f, "nodes", "n2", "state", "idle+drain");
    until_alarm(f, "SlurmRefused", NULL);
    assert_int_equal(acts("drain n2"), 1);
    peer_close(w);
    peer_close(p);
}

/* It is retired while Slurm does not answer, and sluiced is started anew: what is ours there goes all the same, though the configuration still names it. */
static void a_retired_node_leaves_after_a_restart_too(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    say("how act 'error SlurmRefused Unable to contact slurm controller'");
    retire(p, "n2");
    until_alarm(f, "SlurmRefused", "Unable to contact");
    peer_close(p);
    fx_stop(f);
    say("how act ok");
    fx_start(f);
    until_not_world(f, "reservations", "sluice-n2");
    until_left(f, "n2");
}

static void a_cancelled_move_leaves_things_as_they_were(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    Sluice__CancelMove q = SLUICE__CANCEL_MOVE__INIT;

    say("job 5 a1");
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    until_world(f, "reservations", "sluice-a1", NULL, NULL);
    q.has_id = true;
    q.id = ask_node(p, "a1")->move->id;
    peer_ask(p, &q.base);
    assert_int_equal(answer_code(p), 0);
    until_not_world(f, "reservations", "sluice-a1");
    assert_int_equal(node(f, "a1")->pool, POOL_ASYNC);
    assert_true(world_has("jobs", "5", "state", "running"));
    peer_close(p);
}

/* ---- leases ---- */

static void a_lease_is_had_while_there_is_work_and_given_back_then(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1"), *v = lent_worker(f, "a2");

    fx_turn(f, 0.3);
    assert_false(world_has("leases", "a1", NULL, NULL) || world_has("leases", "a2", NULL, NULL));
    say("job 5 a1");                     /* the idle one is chosen */
    fx_turn(f, 0.2);
    flow_double.tasks = 10;
    until_world(f, "leases", "a2", "state", "running");
    until_usable(f, "a2", true);
    until_told(f, v, SLUICE__PARKING__DEVICES_WORK);
    until_told(f, w, SLUICE__PARKING__DEVICES_LENT);
    {
        struct slurm_count c;

        slurm_count(&f->d, &c);
        assert_int_equal(c.ours, 2);
        assert_int_equal(c.slurm, 1);
        assert_int_equal(c.leased, 1);
        assert_true(slurm_silent_s(&f->d) == 0);
    }
    assert_true(world_has("leases", "a2", "comment", "sluice: job 4"));
    assert_string_equal(info(p, "a2")->lease, "held");
    assert_int_equal(info(p, "a2")->lease_job, 77);
    fx_turn(f, 0.3);
    assert_false(world_has("leases", "a1", NULL, NULL));             /* max_leases = 1 */
    assert_true(node_has_why(ask_node(p, "a1"), "NoLease"));
    assert_int_equal(acts("lease a2"), 1);
    /* no work any more: its processes end before anything of Slurm begins there */
    v->leaks = true;
    flow_double.tasks = 0;
    until_told(f, v, SLUICE__PARKING__DEVICES_PARK);
    fx_turn(f, 0.3);
    assert_true(world_has("leases", "a2", NULL, NULL));
    v->leaks = false;
    worker_reports(v);
    until_not_world(f, "leases", "a2");
    until_usable(f, "a2", false);
    assert_true(world_has("nodes", "a2", "state", "idle"));
    peer_close(w);
    peer_close(v);
    peer_close(p);
}

/* Its class asks for features of Slurm: they go with the lease; a node that has them not is asked for none, says why, and keeps none from the others. */
static void a_lease_asks_for_the_features_of_its_class(void **state)
{
    struct fixture *f = *state;
    char *text = conf_text(5), *more;
    struct peer *p = person(f), *w = lent_worker(f, "a1"), *v = lent_worker(f, "a2");

    more = mem_printf("%s%s", "class mi50 { devices = 1  shm = 1M  nominal_ms = 300  slurm_constraint = 'mi50&(ib|eth)' }", strchr(text, '\n'));
    free(text);
    fx_conf(f, more);
    sluiced_reload(&f->d);
    free(more);
    say("node a1 idle '' '' mi100,ib");
    say("node a2 idle '' '' eth,mi50");
    flow_double.tasks = 10;
    until_world(f, "leases", "a2", "state", "running");
    assert_true(world_has("leases", "a2", "constraint", "mi50&(ib|eth)"));
    until_told(f, v, SLUICE__PARKING__DEVICES_WORK);
    assert_string_equal(info(p, "a1")->lease, "none");
    assert_string_equal(info(p, "a1")->lease_why, "its features are mi100,ib in Slurm, and class mi50 wants 'mi50&(ib|eth)' there (slurm_constraint): no lease is asked for");
    {
        bool queued;
        char *why = slurm_lease_why(node(f, "a1"), &queued);

        assert_non_null(strstr(why, "wants 'mi50&(ib|eth)' there"));
        assert_false(queued);
        free(why);
    }
    say("lease a2");                     /* lost: another one is asked for, there */
    say("node a2 idle");                 /* and cannot be had any more */
    fx_turn(f, 1.5);
    assert_int_equal(acts("lease a1") + acts("lease a2"), 1);
    assert_non_null(strstr(info(p, "a2")->lease_why, "it has no features in Slurm"));
    until_alarm(f, "SlurmRefused", NULL);
    say("node a1 idle '' '' mi50,ib");
    until_world(f, "leases", "a1", "state", "running");
    peer_close(w);
    peer_close(v);
    peer_close(p);
}

/* A lease that Slurm refuses backs off by itself: what else is wanted is asked for at the next look, and no trouble is left when it is wanted no more. */
static void a_lease_that_is_refused_keeps_no_mark_waiting(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");
    int64_t begun;

    say("how lease 'error SlurmRefused Invalid partition name specified'");
    flow_double.tasks = 10;
    until_alarm(f, "SlurmRefused", "Invalid partition");
    fx_turn(f, 3.5);                     /* refused at 0, 1 and 3 s, and next at 7 s */
    begun = clock_mono_ns();
    assert_int_equal(ask_mark(p, "a1", "hw is broken", NULL), 0);
    until_world(f, "nodes", "a1", "state", "idle+drain");
    assert_true((double)(clock_mono_ns() - begun) / 1e9 < 1);
    assert_int_equal(ask_clear(p, "a1", 0, false, false), 0);
    until_world(f, "nodes", "a1", "state", "idle");
    until_alarm(f, "SlurmRefused", "Invalid partition");
    flow_double.tasks = 0;
    until_alarm(f, "SlurmRefused", NULL);
    peer_close(w);
    peer_close(p);
}

/* Accounting that refuses our account says so to people, and is not asked at each look. */
static void a_lease_carries_the_account_and_says_when_it_is_refused(void **state)
{
    static const char said[] = "lease of node a1: Invalid account or account/partition combination specified (2045)";
    struct fixture *f = *state;
    char *text = conf_text(5), *more = mem_printf("%.*s account = tpc }\n", (int)(strrchr(text, '}') - text), text), *why, *how;
    struct peer *p = person(f), *w = lent_worker(f, "a1");
    bool queued;

    free(text);
    fx_conf(f, more);
    free(more);
    sluiced_reload(&f->d);
    how = mem_printf("how lease 'error SlurmRefused %s'", said);
    say(how);
    free(how);
    flow_double.tasks = 10;
    until_alarm(f, "SlurmRefused", said);
    assert_non_null(strstr(info(p, "a1")->trouble, said));
    why = slurm_lease_why(node(f, "a1"), &queued);
    assert_non_null(strstr(why, said));
    assert_false(queued);
    free(why);
    fx_turn(f, 3.5);                     /* refused at 0, 1 and 3 s, and next at 7 s; one late start more or less */
    assert_in_range(counters_get(f->d.counters, "slurm_commands_failed"), 2, 4);
    say("how lease ok");                 /* the account was made */
    until_world(f, "leases", "a1", "state", "running");
    assert_true(world_has("leases", "a1", "account", "tpc"));
    until_alarm(f, "SlurmRefused", NULL);
    peer_close(w);
    peer_close(p);
}

/* Wanted while Slurm was away, and not any more: nothing is said of it, and what is wanted still is asked for as soon as it is back. */
static void what_is_wanted_no_more_is_no_trouble(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);
    int64_t begun;

    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    say("how act 'error SlurmRefused Unable to contact slurm controller'");
    assert_int_equal(ask_mark(p, "o1", "disk is slow", NULL), 0);
    until_alarm(f, "SlurmRefused", "Unable to contact");
    assert_int_equal(ask_clear(p, "o1", 0, false, false), 0);
    until_alarm(f, "SlurmRefused", NULL);
    assert_int_equal(ask_mark(p, "o2", "disk is slow", NULL), 0);
    say("how poll 'error SlurmSilent Unable to contact slurm controller'");
    fx_turn(f, 3.5);
    say("how act ok");
    begun = clock_mono_ns();
    say("how poll ok");
    until_world(f, "nodes", "o2", "state", "idle+drain");
    assert_true((double)(clock_mono_ns() - begun) / 1e9 < 1);
    peer_close(p);
}

static void a_lease_that_slurm_loses_sends_its_tfs_elsewhere(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");
    unsigned before;

    flow_double.tasks = 10;
    until_usable(f, "a1", true);
    node(f, "a1")->n_tfs = 3;
    before = flow_double.evicted;
    say("how poll '2 error SlurmSilent Unable to contact slurm controller'");
    fx_turn(f, 0.3);
    assert_int_equal(flow_double.evicted, before);       /* silence ends no lease */
    say("lease a1");                     /* preempted, cancelled, or forgotten */
    until_usable(f, "a1", false);
    assert_int_equal(flow_double.evicted, before + 1);
    node(f, "a1")->n_tfs = 0;
    until_usable(f, "a1", true);         /* and asked for again */
    /* yielded before its end: nothing new in the last fifth, then what is there goes */
    node(f, "a1")->n_tfs = 2;
    say("lease a1 100");
    until_usable(f, "a1", false);
    assert_int_equal(flow_double.evicted, before + 1);
    assert_true(world_has("leases", "a1", NULL, NULL));
    say("lease a1 25");
    fx_turn(f, 0.3);
    assert_int_equal(flow_double.evicted, before + 2);
    node(f, "a1")->n_tfs = 0;
    until_usable(f, "a1", true);
    assert_int_equal(info(p, "a1")->lease_job, 77);      /* another one */
    peer_close(w);
    peer_close(p);
}

static void a_node_with_a_lease_moves_when_its_tfs_have_left(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f), *w = lent_worker(f, "a1");
    uint64_t order;

    flow_double.tasks = 10;
    until_usable(f, "a1", true);
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    order = ((const Sluice__Settings *)w->settings)->parking_order;
    node(f, "a1")->n_tfs = 1;
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    fx_turn(f, 0.3);
    assert_true(world_has("leases", "a1", NULL, NULL));
    node(f, "a1")->n_tfs = 0;
    node_emptied(node(f, "a1"));
    until_pool(f, "a1", "online");
    assert_false(world_has("leases", "a1", NULL, NULL));
    assert_true(world_has("reservations", "sluice-a1", NULL, NULL));
    assert_true(ask_node(p, "a1")->usable);
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    assert_int_equal(((const Sluice__Settings *)w->settings)->parking_order, order);     /* nothing was started anew */
    peer_close(w);
    peer_close(p);
}

/* Its reservation takes its time, and the lease holds the node until it stands: nothing ends that would only be started anew. */
static void a_node_with_a_lease_works_on_while_it_is_reserved(void **state)
{
    struct fixture *f = *state;
    char *text = conf_text(2);
    struct peer *p = person(f), *w = lent_worker(f, "a1");
    uint64_t order;

    fx_conf(f, text);
    free(text);
    sluiced_reload(&f->d);
    until_world(f, "reservations", "sluice-n1", NULL, NULL);
    until_world(f, "reservations", "sluice-n2", NULL, NULL);
    flow_double.tasks = 10;
    until_usable(f, "a1", true);
    until_told(f, w, SLUICE__PARKING__DEVICES_WORK);
    order = ((const Sluice__Settings *)w->settings)->parking_order;
    say("how act silent");
    assert_int_equal(ask_move(p, "a1", "online", NULL), 0);
    fx_turn(f, 0.3);                     /* several looks */
    assert_int_equal(node(f, "a1")->pool, POOL_ASYNC);
    assert_true(world_has("leases", "a1", NULL, NULL));
    say("how act ok");
    until_pool(f, "a1", "online");
    assert_int_equal(((const Sluice__Settings *)w->settings)->parking, SLUICE__PARKING__DEVICES_WORK);
    assert_int_equal(((const Sluice__Settings *)w->settings)->parking_order, order);
    peer_close(w);
    peer_close(p);
}

/* sluiced was away: the lease that is there is taken up. */
static void a_restart_finds_its_leases(void **state)
{
    struct fixture *f = *state;
    struct peer *w = lent_worker(f, "a1");

    flow_double.tasks = 10;
    until_usable(f, "a1", true);
    peer_close(w);
    fx_stop(f);
    fx_start(f);
    flow_double.tasks = 10;
    w = lent_worker(f, "a1");
    until_usable(f, "a1", true);
    assert_int_equal(acts("lease a1"), 1);
    peer_close(w);
}

/* ---- Slurm is not there, or not in its right mind ---- */

static void silence_keeps_nothing_of_ours_waiting(void **state)
{
    struct fixture *f = *state;
    struct peer *p, *w;
    char *conf = conf_text(0.5);

    fx_stop(f);
    fx_conf(f, conf);
    free(conf);
    say("how poll silent");
    say("how act silent");
    fx_start(f);
    p = person(f);
    w = lent_worker(f, "n1");
    assert_true(ask_node(p, "n1")->usable);              /* what was ours is ours */
    assert_int_equal(ask_mark(p, "n1", "disk is slow", NULL), 0);
    assert_int_equal(ask_move(p, "a1", "online", "now"), 0);
    until_alarm(f, "SlurmSilent", "no answer within 0.5 s");
    assert_true(slurm_silent_s(&f->d) >= 2);
    until_alarm(f, "SlurmRefused", NULL);                /* one cause, one alarm */
    {
        char *why = slurm_stuck_why(&f->d);

        assert_string_equal(why, "Slurm does not answer (SlurmSilent), so there is no lease");
        free(why);
    }
    assert_int_equal(node(f, "a1")->pool, POOL_ASYNC);   /* nobody's word, nobody's node */
    assert_string_equal(slurm_waits_for(node(f, "a1")), "Slurm does not answer: waiting for Slurm's word");
    say("how poll ok");
    say("how act ok");
    until_pool(f, "a1", "online");
    until_world(f, "nodes", "n1", "state", "idle+drain");
    until_alarm(f, "SlurmSilent", NULL);
    assert_false(info(p, "o1")->has_as_of);
    assert_null(slurm_info(node(f, "x1")));
    {
        char *why = slurm_stuck_why(&f->d);

        assert_string_equal(why, "Slurm has node a2: there is no task for it that waits, or something else stands against it");
        free(why);
    }
    /* silent again: what is shown is old, and says so */
    say("node o1 idle+drain 'not heard'");
    say("how poll silent");
    until_alarm(f, "SlurmSilent", "no answer within 0.5 s");
    assert_true(info(p, "o1")->has_as_of);
    peer_close(w);
    peer_close(p);
}

static void insane_answers_change_nothing(void **state)
{
    struct fixture *f = *state;
    struct peer *p = person(f);

    say("node o1 idle+drain 'fan is loud'");
    until_marked(f, "o1", "state", "fan is loud");
    say("how poll '2 garbage'");
    say("node o1 idle");
    until_alarm(f, "SlurmSilent", NULL);
    fx_turn(f, 0.2);
    assert_non_null(slurm_mark(f, "o1", "state"));
    say("how poll '1 exit slurm.conf: line 3 is broken'");
    say("how act '2 error SlurmRefused Invalid job id specified'");
    assert_int_equal(ask_move(p, "a1", "online", "now"), 0);
    until_alarm(f, "SlurmRefused", "Invalid job id specified");
    until_pool(f, "a1", "online");
    until_clear(f, "o1", "state");
    until_alarm(f, "SlurmRefused", NULL);
    /* a node that Slurm does not know */
    say("node o2 -");
    until_alarm(f, "SlurmUnknownNode", "o2");
    assert_string_equal(info(p, "o2")->state, "not in Slurm");
    assert_int_equal(ask_mark(p, "o2", "disk is slow", NULL), 0);
    say("node a2 -");
    until_alarm(f, "SlurmUnknownNode", "2 nodes");
    assert_int_equal(ask_move(p, "a2", "online", "now"), 0);
    fx_turn(f, 0.3);
    assert_string_equal(slurm_waits_for(node(f, "a2")), "Slurm does not know the node");
    say("node a2 idle");
    until_pool(f, "a2", "online");
    peer_close(p);
}

/* ---- what Slurm does never holds up the loop, on which online TFs are dispatched ---- */

struct beat { ev_timer timer; double due, late; };       /* due 0: not counted */

static double mono(void)
{
    return (double)clock_mono_ns() / 1e9;
}

static void beat_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    struct beat *b = t->data;
    double now = mono();

    (void)loop, (void)events;
    if (b->due > 0 && now - b->due > b->late)
        b->late = now - b->due;
    b->due = now + 0.005;
}

/* The same beat in a thread that has nothing else to do: what the machine makes late. */
struct witness { pthread_t thread; atomic_bool stop; double late; };

static void *witness_run(void *arg)
{
    struct witness *w = arg;

    while (!w->stop) {
        double due = mono() + 0.005;

        usleep(5000);
        if (mono() - due > w->late)
            w->late = mono() - due;
    }
    return NULL;
}

static void whatever_slurm_does_the_loop_is_no_later_than_its_timer(void **state)
{
    static const char *const how[] = { "silent", "garbage", "exit slurm.conf: line 3 is broken", "error SlurmSilent Unable to contact slurm controller", "other", "ok" };
    struct fixture *f = *state;
    struct peer *p;
    struct beat b = { 0 };
    struct witness w = { 0 };
    char *conf = conf_text(0.3);

    fx_stop(f);
    fx_conf(f, conf);
    free(conf);
    fx_start(f);
    p = person(f);
    ev_timer_init(&b.timer, beat_cb, 0.005, 0.005);
    b.timer.data = &b;
    ev_timer_start(f->loop, &b.timer);
    assert_int_equal(pthread_create(&w.thread, NULL, witness_run, &w), 0);
    for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
        char words[100];

        b.due = 0;                       /* the test itself stands in the way of the loop */
        snprintf(words, sizeof(words), "how poll '%s'", how[i]);
        say(words);
        snprintf(words, sizeof(words), "how act '%s'", how[i]);
        say(words);
        ask_move(p, i % 2 == 0 ? "a1" : "a2", "online", "now");
        fx_turn(f, 0.02);
        b.due = mono() + 0.005;
        fx_turn(f, i == 0 && getenv("SLUICE_SOAK") != NULL ? 60 : 0.7);     /* silent: a minute in soak */
    }
    w.stop = true;
    pthread_join(w.thread, NULL);
    ev_timer_stop(f->loop, &b.timer);
    print_message("[          ] the loop was late by %.1f ms at most, a thread beside it by %.1f ms\n", b.late * 1e3, w.late * 1e3);
    if (b.late > w.late + 0.25)          /* a call that waits for Slurm takes seconds */
        fail_msg("the loop was late by %.1f ms, a thread beside it by %.1f ms", b.late * 1e3, w.late * 1e3);
    peer_close(p);
}

int main(void)
{
#define FARM(t) cmocka_unit_test_setup_teardown(t, setup, teardown)
    const struct CMUnitTest tests[] = {
        FARM(bad_in_slurm_is_a_mark_with_reason_user_and_time),
        FARM(a_long_reason_stays_text),
        FARM(no_word_is_neither_good_nor_bad),
        FARM(a_fresh_slurmctld_clears_nothing),
        FARM(a_drain_that_slurmctld_forgot_stays_a_mark),
        FARM(a_drain_that_was_forgotten_while_we_were_away_stays_a_mark),
        FARM(our_marks_are_told_to_slurm_and_taken_back),
        FARM(no_foreign_reason_is_overwritten_and_no_foreign_drain_cleared),
        FARM(our_reason_there_is_that_of_a_mark_that_stands),
        FARM(what_slurm_said_while_a_command_hung_is_heard),
        FARM(both_stores_agree_again_after_a_restart_of_either),
        FARM(a_drain_that_was_cut_short_is_known_by_its_mark),
        FARM(a_foreign_reservation_is_a_mark_where_the_node_is_ours),
        FARM(a_reservation_of_our_name_that_is_not_ours_is_foreign),
        FARM(what_is_ours_is_reserved_and_what_is_slurms_is_not),
        FARM(what_somebody_else_undoes_all_the_time_is_told_and_not_repeated_at_once),
        FARM(what_another_one_drains_in_our_words_is_left_alone_after_a_while),
        FARM(a_node_is_taken_when_its_jobs_have_ended),
        FARM(now_requeues_what_may_be_requeued_and_lets_it_begin),
        FARM(a_drain_at_any_step_survives_the_move),
        FARM(a_node_is_given_back_without_anything_of_ours),
        FARM(an_old_report_gives_nothing_back),
        FARM(a_node_whose_worker_does_not_answer_is_given_back_only_at_once),
        FARM(while_nobody_knows_whose_a_node_is_its_devices_stay_as_they_are),
        FARM(min_good_counts_the_nodes_that_slurm_has),
        FARM(what_leaves_takes_what_is_ours_with_it),
        FARM(a_node_that_is_retired_starts_nothing),
        FARM(a_node_that_slurm_is_to_give_up_is_ours_when_its_jobs_have_ended),
        FARM(the_last_ones_that_leave_are_known_after_a_restart),
        FARM(what_is_forgotten_is_not_asked_for),
        FARM(what_was_done_late_is_no_trouble_for_long),
        FARM(a_retired_node_leaves_after_a_restart_too),
        FARM(a_cancelled_move_leaves_things_as_they_were),
        FARM(a_lease_is_had_while_there_is_work_and_given_back_then),
        FARM(a_lease_asks_for_the_features_of_its_class),
        FARM(a_lease_that_is_refused_keeps_no_mark_waiting),
        FARM(a_lease_carries_the_account_and_says_when_it_is_refused),
        FARM(what_is_wanted_no_more_is_no_trouble),
        FARM(a_lease_that_slurm_loses_sends_its_tfs_elsewhere),
        FARM(a_node_with_a_lease_moves_when_its_tfs_have_left),
        FARM(a_node_with_a_lease_works_on_while_it_is_reserved),
        FARM(a_restart_finds_its_leases),
        FARM(silence_keeps_nothing_of_ours_waiting),
        FARM(insane_answers_change_nothing),
        FARM(whatever_slurm_does_the_loop_is_no_later_than_its_timer),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);

    free(program);
    return rc;
}
