/* job_fixture.c - the world of a job: two nodes of the async pool, somebody who submits, and what the farm does with it */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "job_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int open_world(void **state)
{
    (void)state;
    open_pair(POOL_ASYNC, "mi50", "mi100");
    return 0;
}

uint64_t submit(const struct wish *w, bool *existed)
{
    Sluice__Submit m = SLUICE__SUBMIT__INIT;
    Sluice__InputFile file[8], *files[8];
    Sluice__Extent extent[64], *extents[64];
    unsigned at = 0;
    uint64_t id = 0;

    for (unsigned i = 0; i < w->n; i++) {
        sluice__input_file__init(&file[i]);
        files[i] = &file[i];
        file[i].path = (char *)w->path[i];
        file[i].tfs = &extents[at];
        file[i].n_tfs = w->tfs[i];
        file[i].text = w->tfs[i] ? NULL : "wrong magic at byte 0";
        for (unsigned k = 0; k < w->tfs[i]; k++, at++) {
            sluice__extent__init(&extent[at]);
            extents[at] = &extent[at];
            extent[at].has_offset = extent[at].has_size = true;
            extent[at].offset = k * MB;
            extent[at].size = MB;
        }
    }
    m.files = files;
    m.n_files = w->n;
    m.workflow = "decode";
    char own[40];                                        /* jobs that are on together have no names in common */
    static unsigned count;
    snprintf(own, sizeof(own), "/tmp/out-%u", ++count);
    m.output = (char *)(w->output ? w->output : own);
    m.key = (char *)w->key;
    m.backends = w->backends;
    m.has_attempts = w->attempts != 0;
    m.attempts = w->attempts;
    m.has_hold = m.hold = w->hold;
    m.has_straggler = w->straggler > 0;
    m.straggler = w->straggler;
    m.after = (char *)w->after;
    m.has_begin = w->begin != 0;
    m.begin = w->begin;
    m.has_priority = w->priority != 0;
    m.priority = w->priority;
    if (w->class) {
        m.classes = (char **)&w->class;
        m.n_classes = 1;
    }
    job_submit(client, 5, &m);
    assert_int_equal(world_sent(client, &sluice__submitted__descriptor), w->there);     /* not before it is on disk */
    world_turn();
    Sluice__Submitted *s = TAKE(client, sluice__submitted);
    if (s) {
        id = s->id;
        if (existed)
            *existed = s->existed;
    }
    FREE(s);
    return id;
}

static void detailed(void *arg, struct job *j, const struct err *e)
{
    (void)arg;
    (void)e;
    assert_non_null(j);
}

/* With its tasks, which are read again for one that was over at a restart. */
struct job *the_job(uint64_t id)
{
    struct job *j = job_find(world.d.jobs, id);

    assert_non_null(j);
    if (j->ended && !j->pruned)
        job_detail(&world.d, id, detailed, NULL);
    return j;
}

int waited(uint64_t id)
{
    Sluice__Wait m = SLUICE__WAIT__INIT;
    int code = -1;

    m.kind = "job";
    m.has_id = true;
    m.id = id;
    flow_wait(client, 11, &m);
    Sluice__Waited *w = TAKE(client, sluice__waited);
    if (w)
        code = (int)w->code;
    FREE(w);
    return code;
}

/* Everything that is given out is done, until nothing comes any more. */
void finish_all(void)
{
    struct node *n;
    Sluice__Assign *a;

    for (int i = 0; i < 200; i++) {
        world_pass(0.05);
        while ((a = assigned_somewhere(&n))) {
            answer_built(n, a);
            answer_done(n, a, true);
            world_turn();
            answer_published(n, a);
            FREE(a);
        }
    }
    world_turn();
}

void restart(void)
{
    world_restart();
    client = world_peer("client");
    world_connect(n1, NULL, 0, NULL);
    world_connect(n2, NULL, 0, NULL);
}

/* What GetAttempts says: "N STATE CODE" of each, joined. */
void tries_are(uint64_t job, uint64_t tf, const char *expect)
{
    Sluice__GetAttempts q = SLUICE__GET_ATTEMPTS__INIT;
    char text[400] = "";

    q.has_job = q.has_tf = true;
    q.job = job;
    q.tf = tf;
    job_tries(client, 9, &q);
    Sluice__Attempts *m = TAKE(client, sluice__attempts);
    assert_non_null(m);
    for (size_t i = 0; i < m->n_attempts; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s %s %s", i ? ", " : "", strrchr(m->attempts[i]->id, '.') + 1, m->attempts[i]->state,
                 m->attempts[i]->code ? m->attempts[i]->code : "-");
    assert_string_equal(text, expect);
    FREE(m);
}

Sluice__Assign *assigned_to(struct node *n, double s)
{
    Sluice__Assign *a;

    for (double gone = 0; (a = TAKE(n->session, sluice__assign)) == NULL; gone += 0.05) {
        if (gone > s)
            fail_msg("nothing for %s within %g s", n->name, s);
        world_pass(0.05);
    }
    return a;
}

void release(uint64_t id)
{
    Sluice__ReleaseJob m = SLUICE__RELEASE_JOB__INIT;

    m.has_id = true;
    m.id = id;
    job_release(client, 6, &m);
}

/* The next assign within s, or NULL. */
Sluice__Assign *assigned_within(double s, struct node **n)
{
    Sluice__Assign *a = NULL;

    for (double gone = 0; gone < s && a == NULL; gone += 0.05) {
        world_pass(0.05);
        a = assigned_somewhere(n);
    }
    return a;
}
