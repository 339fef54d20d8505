/* flow_test.c - many random things happen to runs, jobs, workers, sources and sluiced; after every single one the books must balance
 *
 * The model knows what each worker has and says; it holds sluiced to this: a TF is accepted at most once, a worker that was told "accepted" is the only
 * one, announced = done + failed + dropped + lost + in flight (flow_check counts objects), and at the end every credit is back.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "farm_double.h"
#include "log.h"
#include "mem.h"

#define MB (UINT64_C(1) << 20)
enum { NODES = 5, SOURCES = 3, TFS = 400, HELD = 64 };

static uint64_t seed;

static uint64_t draw(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

/* What a worker has of one fence. */
struct have { Sluice__Assign *a; Sluice__Phase phase; bool failed, cancelled; };
struct worker { struct node *n; struct have have[HELD]; unsigned n_have; struct have old[HELD]; unsigned n_old; };
struct feed { struct session *s; uint64_t start, next; bool ended; };

static struct worker worker[NODES];
static struct feed feed[SOURCES];
static uint64_t run, job;
static struct idset accepted_run, accepted_job;
static struct session *client;
static unsigned restarts, lost_workers, stale;
static bool hold[SOURCES][TFS];          /* what a source still has */

static struct worker *some_worker(void)
{
    return &worker[draw(NODES)];
}

static void drop_have(struct worker *w, unsigned i)
{
    if (w->n_old < HELD && draw(3) == 0) {
        w->old[w->n_old++] = w->have[i];         /* to be said again later */
    } else {
        FREE(w->have[i].a);
    }
    w->have[i] = w->have[--w->n_have];
}

static int find_have(struct worker *w, const Sluice__Tf *tf, const Sluice__Fence *f)
{
    for (unsigned i = 0; i < w->n_have; i++) {
        const Sluice__Assign *a = w->have[i].a;
        if (a->tf->has_run == tf->has_run && a->tf->run == tf->run && a->tf->job == tf->job && a->tf->id == tf->id && a->fence->epoch == f->epoch &&
            a->fence->attempt == f->attempt)
            return (int)i;
    }
    return -1;
}

/* A worker reads what came: Assigns, Verdicts, Cancels. */
static void read_all(struct worker *w)
{
    Sluice__Assign *a;
    Sluice__Verdict *v;
    Sluice__Cancel *c;

    if (w->n->session == NULL)
        return;
    while ((a = TAKE(w->n->session, sluice__assign))) {
        assert_true(w->n_have < HELD);
        w->have[w->n_have++] = (struct have){ .a = a, .phase = SLUICE__PHASE__BUILDING };
    }
    while ((c = TAKE(w->n->session, sluice__cancel))) {
        int i = find_have(w, c->tf, c->fence);
        if (i >= 0)
            w->have[i].cancelled = true;
        FREE(c);
    }
    while ((v = TAKE(w->n->session, sluice__verdict))) {
        int i = find_have(w, v->tf, v->fence);
        if (v->accepted) {
            struct idset *set = v->tf->has_run ? &accepted_run : &accepted_job;
            bool first = idset_add(set, v->tf->id);
            if (i >= 0) {
                assert_true(w->have[i].phase == SLUICE__PHASE__REPORTED || w->have[i].phase == SLUICE__PHASE__ACCEPTED);
                assert_true(first || w->have[i].phase == SLUICE__PHASE__ACCEPTED || restarts > 0);
                w->have[i].phase = SLUICE__PHASE__ACCEPTED;
            }
        } else if (i >= 0 && w->have[i].phase == SLUICE__PHASE__REPORTED) {
            drop_have(w, (unsigned)i);
        }
        FREE(v);
    }
    world_forget_sent(w->n->session);
}

static void read_sources(void)
{
    for (int i = 0; i < SOURCES; i++) {
        Sluice__Release *r;
        if (feed[i].s == NULL)
            continue;
        while ((r = TAKE(feed[i].s, sluice__release))) {
            for (size_t k = 0; k < r->n_ranges; k++) {
                for (uint64_t id = r->ranges[k]->first; id < r->ranges[k]->first + r->ranges[k]->count && id < TFS; id++)
                    hold[i][id] = false;
            }
            FREE(r);
        }
        world_forget_sent(feed[i].s);
    }
}

static void say_done(struct worker *w, struct have *h)
{
    if (h->failed)
        answer_failed(w->n, h->a, h->cancelled ? "Cancelled" : "Crashed");
    else
        answer_done(w->n, h->a, true);
}

/* ---- what may happen --------------------------------------------------------------------------- */

static void op_work(void)
{
    static const char *const words[] = { "Crashed", "TimedOut", "BadInput", "PullTimeout", "PartGone", "OutputFailed" };
    struct worker *w = some_worker();

    if (w->n_have == 0 || w->n->session == NULL)
        return;
    unsigned i = (unsigned)draw(w->n_have);
    struct have *h = &w->have[i];
    switch (h->phase) {
    case SLUICE__PHASE__BUILDING:
        if (h->cancelled) {
            answer_failed(w->n, h->a, "Cancelled");
            drop_have(w, i);
        } else if (draw(12) == 0) {
            answer_refused(w->n, h->a, draw(2) ? "NoSpace" : "BuildingLimit");
            drop_have(w, i);
        } else if (draw(12) == 0) {
            answer_failed(w->n, h->a, words[draw(6)]);
            drop_have(w, i);
        } else {
            answer_built(w->n, h->a);
            h->phase = SLUICE__PHASE__QUEUED;
        }
        break;
    case SLUICE__PHASE__QUEUED:
        h->phase = SLUICE__PHASE__PROCESSING;
        break;
    case SLUICE__PHASE__PROCESSING:
        h->failed = h->cancelled || draw(10) == 0;
        if (h->failed && !h->cancelled) {
            answer_failed(w->n, h->a, words[draw(6)]);
            drop_have(w, i);
        } else {
            h->phase = SLUICE__PHASE__REPORTED;
            say_done(w, h);
        }
        break;
    case SLUICE__PHASE__REPORTED:
        if (draw(4) == 0)
            say_done(w, h);                      /* again: its Verdict has not come */
        break;
    case SLUICE__PHASE__ACCEPTED:
        answer_published(w->n, h->a);
        drop_have(w, i);
        break;
    default:
        break;
    }
}

static void op_say_old_things(void)
{
    struct worker *w = some_worker();

    if (w->n_old == 0 || w->n->session == NULL)
        return;
    struct have *h = &w->old[draw(w->n_old)];
    uint64_t before = the_run(run) ? the_run(run)->done : 0;
    if (h->phase == SLUICE__PHASE__ACCEPTED)
        return;                                  /* published: a worker never says Done of it again */
    if (draw(2))
        answer_done(w->n, h->a, true);
    else
        answer_failed(w->n, h->a, "Crashed");
    stale++;
    if (the_run(run))
        assert_int_equal(the_run(run)->done, before);
}

static void op_announce(void)
{
    struct feed *f = &feed[draw(SOURCES)];
    unsigned n = 1 + (unsigned)draw(3);

    if (f->s == NULL || f->ended)
        return;
    if (f->next + n > TFS) {
        f->ended = true;
        end_stream(f->s, run, f->next);
        return;
    }
    if (draw(15) != 0) {
        uint32_t orbit = (uint32_t)(32 * f->next) + (draw(60) == 0);
        for (unsigned i = 0; i < n; i++)
            hold[f - feed][f->next + i] = true;
        announce(f->s, run, f->next, n, 10 * MB + draw(20 * MB), orbit, f->next + n);
    } else {
        announce(f->s, run, 0, 0, 0, 0, f->next + n);        /* passed */
    }
    f->next += n;
}

static void op_source(void)
{
    unsigned i = (unsigned)draw(SOURCES);
    struct feed *f = &feed[i];

    if (f->s) {
        world_hang_up(f->s);
        f->s = NULL;
        if (draw(4) == 0) {                      /* another process: it holds nothing */
            f->start++;
            memset(hold[i], 0, sizeof(hold[i]));
        }
        return;
    }
    if (the_run(run) == NULL || the_run(run)->ended)
        return;
    f->s = join_source(run, i, true, f->start);
    assert_non_null(f->s->source);
    for (uint64_t id = 0; id < f->next; id++) {
        if (hold[i][id])
            announce(f->s, run, id, 1, 15 * MB, (uint32_t)(32 * id), 0);
    }
    announce(f->s, run, 0, 0, 0, 0, f->next ? f->next : 1);
    if (f->ended)
        end_stream(f->s, run, f->next);
}

static void forget_have(void *arg, const Sluice__Held *h)
{
    struct worker *w = arg;
    int i = find_have(w, h->tf, h->fence);

    if (i >= 0)
        drop_have(w, (unsigned)i);
}

static void reconnect(struct worker *w, bool forgets)
{
    Sluice__Held held[HELD];
    size_t n = 0;

    if (forgets) {
        for (unsigned i = w->n_have; i > 0; i--) {
            if (draw(3) == 0)
                drop_have(w, i - 1);
        }
    }
    for (unsigned i = 0; i < w->n_have; i++, n++) {
        sluice__held__init(&held[n]);
        held[n].tf = w->have[i].a->tf;
        held[n].fence = w->have[i].a->fence;
        held[n].has_phase = held[n].has_bytes = true;
        held[n].phase = w->have[i].phase;
        held[n].bytes = w->have[i].a->bytes;
    }
    world_connect_with(w->n, held, n, forget_have, w);
    for (unsigned i = 0; i < w->n_have; i++) {
        if (w->have[i].phase == SLUICE__PHASE__REPORTED)
            say_done(w, &w->have[i]);
    }
}

static void op_worker(void)
{
    struct worker *w = some_worker();

    if (w->n->session) {
        read_all(w);
        world_disconnect(w->n);
        return;
    }
    if (draw(3) == 0) {
        flow_worker_lost(w->n, "contact lost");
        lost_workers++;
        return;
    }
    reconnect(w, draw(4) == 0);
}

static void op_evict(void)
{
    struct worker *w = some_worker();

    if (w->n->session)
        flow_evict(w->n, "the test wants it");
}

static void op_restart(void)
{
    for (int i = 0; i < NODES; i++)
        read_all(&worker[i]);
    read_sources();
    world_restart();
    restarts++;
    client = world_peer("client");
    for (int i = 0; i < SOURCES; i++)
        feed[i].s = NULL;
}

static void step(unsigned permille_restart)
{
    uint64_t what = draw(1000);

    if (what < permille_restart)
        op_restart();
    else if (what < 60)
        op_worker();
    else if (what < 90)
        op_source();
    else if (what < 100)
        op_evict();
    else if (what < 250)
        op_announce();
    else if (what < 320)
        op_say_old_things();
    else if (what < 700)
        op_work();
    else if (what < 800)
        world_pass(0.05);
    else if (what < 820)
        world_pass(1);
    else if (what < 900)
        world_commit();
    else
        flow_turn(world.d.flow);
    for (int i = 0; i < NODES; i++)
        read_all(&worker[i]);
    read_sources();
    world_check();
}

static uint64_t submit_job(void)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file = SLUICE__INPUT_FILE__INIT, *list = &file;
    Sluice__Extent extent[100], *extents[100];

    for (int i = 0; i < 100; i++) {
        sluice__extent__init(&extent[i]);
        extent[i].has_offset = extent[i].has_size = true;
        extent[i].offset = (uint64_t)i * 30 * MB;
        extent[i].size = 20 * MB;
        extents[i] = &extent[i];
    }
    file.path = "/data/x.tf";
    file.tfs = extents;
    file.n_tfs = 100;
    m.files = &list;
    m.n_files = 1;
    m.output = "/tmp/out";
    m.has_attempts = true;
    m.attempts = 6;
    job_submit(client, 1, &m);
    world_turn();
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    assert_non_null(s);
    uint64_t id = s->id;
    FREE(s);
    return id;
}

/* Everybody is there and does its work, until all is settled. */
static void let_it_end(void)
{
    for (int i = 0; i < 40000; i++) {
        struct run *r = the_run(run);
        struct job *j = job_find(world.d.jobs, job);
        if ((r == NULL || r->ended) && (j == NULL || j->ended))
            return;
        for (int k = 0; k < NODES; k++) {
            if (worker[k].n->session == NULL)
                reconnect(&worker[k], false);
        }
        for (int k = 0; k < SOURCES; k++) {
            if (feed[k].s == NULL)
                op_source();
        }
        op_announce();
        op_work();
        op_work();
        if (i % 4 == 0)
            world_pass(0.05);
        for (int k = 0; k < NODES; k++)
            read_all(&worker[k]);
        read_sources();
        world_check();
    }
    fail_msg("it did not end");
}

static void everything_at_once(unsigned permille_restart, unsigned steps)
{
    static const char *const names[NODES] = { "a1", "a2", "a3", "b1", "b2" };
    Sluice__StartRun m = SLUICE__START_RUN__INIT;

    memset(worker, 0, sizeof(worker));
    memset(feed, 0, sizeof(feed));
    memset(hold, 0, sizeof(hold));
    restarts = lost_workers = stale = 0;
    world_open();
    client = world_peer("client");
    for (int i = 0; i < NODES; i++)
        worker[i].n = world_node(names[i], i % 2 ? "mi100" : "mi50", i < 3 ? POOL_ONLINE : POOL_ASYNC, (200 + draw(300)) * MB);
    m.output = "/tmp/out";
    m.has_sources = true;
    m.sources = SOURCES;
    run = start_run(client, &m);
    assert_true(run > 0);
    job = submit_job();
    for (unsigned i = 0; i < steps; i++)
        step(permille_restart);
    let_it_end();
    world_pass(1);
    struct run *r = the_run(run);
    struct job *j = job_find(world.d.jobs, job);
    print_message("run: %llu announced, %llu done, %llu failed, %llu dropped, %llu lost; job: %llu done, %llu failed of %llu; %u restarts, %u workers lost, "
                  "%u old answers\n", (unsigned long long)r->announced, (unsigned long long)r->done, (unsigned long long)r->failed,
                  (unsigned long long)tally_sum(r->dropped), (unsigned long long)r->lost, (unsigned long long)j->n[TASK_DONE],
                  (unsigned long long)j->n[TASK_FAILED], (unsigned long long)j->n_tasks, restarts, lost_workers, stale);
    for (size_t i = 0; getenv("SLUICE_TEST_VERBOSE") && i < r->ring_n; i++) {
        if (r->ring[i].outcome != END_DONE)
            print_message("TF %llu: %s %s\n", (unsigned long long)r->ring[i].id, outcome_name[r->ring[i].outcome], r->ring[i].reason ? r->word[r->ring[i].reason] : "");
    }
    assert_int_equal(r->announced, r->done + r->failed + tally_sum(r->dropped) + r->lost);
    assert_int_equal(j->n[TASK_DONE] + j->n[TASK_FAILED], j->n_tasks);
    assert_true(accepted_run.count <= r->done);
    assert_true(accepted_job.count <= j->n[TASK_DONE]);
    for (int i = 0; i < NODES; i++) {
        while (worker[i].n_have) {
            FREE(worker[i].have[--worker[i].n_have].a);
        }
        while (worker[i].n_old)
            FREE(worker[i].old[--worker[i].n_old].a);
    }
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(worker[i].n->load.charged, 0);
        assert_int_equal(worker[i].n->load.building, 0);
        assert_int_equal(worker[i].n->n_tfs, 0);
    }
    world_check();
    world_close();
    idset_free(&accepted_run);
    idset_free(&accepted_job);
}

static void B21_books_balance_after_every_step(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        everything_at_once(0, 6000);
}

static void B21_books_balance_whatever_restarts(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        everything_at_once(4, 5000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(B21_books_balance_after_every_step),
        cmocka_unit_test(B21_books_balance_whatever_restarts),
    };
    const char *given = getenv("SLUICE_TEST_SEED");
    struct err e;

    log_open("flow_test", "/dev/null", LOG_LEVEL_ERR, &e);
    seed = given ? strtoull(given, NULL, 10) : getenv("SLUICE_SOAK") ? (uint64_t)time(NULL) * 2654435761u + 1 : 7919;
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
