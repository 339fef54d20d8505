/* runload.c - runs at the start and end of sluiced: what the database has of them, and what is freed
 *
 * From: state/ (at start-up only).  To: run.c's structs.
 * Open runs come back with their settled TFs and with the accepted results that are still to be published; what was in flight is told by the
 * sources that announce it again and by the workers that list it.
 */
#include "config.h"
#include "run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "log.h"
#include "mem.h"
#include "rows.h"
#include "str.h"
#include "wait.h"

static Sluice__RunState state_parse(const char *word)
{
    for (int i = 0; i < 6; i++) {
        if (word && strcmp(word, run_state_name[i]) == 0)
            return (Sluice__RunState)i;
    }
    return SLUICE__RUN_STATE__RUN_ERROR;
}

struct loading { struct runs *runs; struct db *db; struct run *run; struct err *e; };

static int load_tf(void *arg, const struct row_run_tf *row)
{
    struct loading *l = arg;
    struct run *r = l->run;
    enum outcome outcome = END_KINDS;
    const char *text;
    char word[64];

    for (int i = 0; i < END_KINDS; i++) {
        if (row->outcome && strcmp(row->outcome, outcome_name[i]) == 0)
            outcome = (enum outcome)i;
    }
    if (outcome == END_KINDS)
        return err_set(l->e, ERR_FAILED, "run %" PRIu64 " TF %" PRIu64 ": unknown outcome \"%s\"", row->run, row->tf, row->outcome ? row->outcome : "");
    text = run_reason_split(row->reason, word);
    run_count_settled(r, row->tf, outcome, word, text, row->node, row->device, row->digest, row->stages, row->seconds, row->bytes, row->incomplete,
                      row->attempt);
    if (outcome == END_DONE && !row->published)
        record_restore(&r->work, row->tf, (struct fence){ row->epoch, row->attempt }, row->node, row->device, row->digest, row->stem, row->stages, row->seconds, row->bytes,
                       row->incomplete, row->time);
    return 0;
}

static void load_totals(struct run *r, const struct row_run *row)
{
    r->announced = row->announced;
    r->done = row->done;
    r->failed = row->failed;
    r->lost = row->lost;
    r->incomplete = row->incomplete;
    r->bytes_done = row->bytes_done;
    tally_read(&r->dropped, row->dropped_by);
    ran_totals_read(&r->ran, row->stages);
}

static int load_run(void *arg, const struct row_run *row)
{
    struct loading *l = arg;
    struct run *r = run_create(l->runs, row->id, row->sources ? row->sources : 1);
    struct work *w = &r->work;
    int policy = DISP_BUFFER;

    w->name = mem_strdup(row->name);
    w->workflow = mem_strdup(row->workflow);
    w->backends = mem_strdup(row->backends ? row->backends : "");
    w->options = mem_strdup(row->options ? row->options : "");
    w->output = mem_strdup(row->output ? row->output : "");
    able_narrow(w);
    run_parse_word("policy", row->policy, disp_policy_name, 2, &policy, NULL);
    w->policy = (enum disp_policy)policy;
    w->dispatched = row->dispatched;
    w->limit = r->in_flight_asked = row->in_flight;
    w->nice = (struct work_nice){ row->nice, row->nice_min, row->nice_max };
    memcpy(w->key, row->key, sizeof(w->key));
    r->until_done = !str_equal(row->keep, "until-built");
    r->drop_incomplete = str_equal(row->incomplete_rule, "drop");
    r->min_nodes = row->min_nodes;
    r->owner = mem_strdup(row->owner);
    r->text = mem_strdup(row->text);
    r->started = row->started;
    r->ended = row->ended;
    r->state = state_parse(row->state);
    r->stored = true;
    if (row->ended) {
        load_totals(r, row);
        r->stored_over = true;
        TAILQ_REMOVE(&w->flow->works, w, entry);
        TAILQ_REMOVE(&l->runs->open, r, entry);
        samples_destroy(r->samples);
        r->samples = NULL;
        run_retire(r);
        return 0;
    }
    r->restored = true;
    r->announced = row->announced;               /* until its settled ones are loaded */
    for (unsigned i = 0; i < r->n_sources; i++) {      /* they come back within the grace, or are given up */
        r->source[i].name = mem_printf("of part %u", i);
        r->source[i].gone_since = flow_now(w->flow);
    }
    w->paused = r->state == SLUICE__RUN_STATE__CONFIGURING;
    if (r->state == SLUICE__RUN_STATE__STOPPING) {
        r->stop_at = flow_now(w->flow) + l->runs->d->conf->limits.grace + RUN_DATA_TIMEOUT;
        r->cut_at = r->stop_at;
    }
    return 0;
}

static int load_details(struct loading *l)
{
    struct run *r;

    TAILQ_FOREACH(r, &l->runs->open, entry) {
        l->run = r;
        if (rows_load_run_tfs(l->db, r->work.id, 0, UINT32_MAX, load_tf, l, l->e) < 0)
            return -1;
        r->owed = r->announced > r->settled.count ? r->announced - r->settled.count : 0;
        r->unheard = r->owed;
        r->restored_at = flow_now(r->work.flow);
        r->announced = r->settled.count;         /* what was in flight is announced again, or listed by the worker that has it */
        log_info("run %" PRIu64 ": goes on: %" PRIu64 " TFs settled before, %u results to be published", r->work.id, r->settled.count, r->work.records);
    }
    return 0;
}

struct runs *runs_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct runs *runs = mem_zalloc(sizeof(*runs));
    struct loading l = { .runs = runs, .db = db, .e = e };
    struct row_ids ids;

    runs->d = d;
    runs->flow = flow_share(d->flow);
    TAILQ_INIT(&runs->open);
    TAILQ_INIT(&runs->over);
    ev_init(&runs->release_timer, run_release_cb);
    runs->release_timer.data = runs;
    if (db && (rows_load_ids(db, &ids, e) < 0 || rows_load_runs(db, false, load_run, &l, e) < 0 || load_details(&l) < 0)) {
        runs_destroy(runs);
        return NULL;
    }
    if (db)
        runs->last_id = ids.run;
    return runs;
}

void runs_destroy(struct runs *runs)
{
    struct run *r;

    if (runs == NULL)
        return;
    if (runs->d->loop)
        ev_timer_stop(runs->d->loop, &runs->release_timer);
    struct record *rec, *next;
    HASH_ITER(hh, runs->flow->records, rec, next) {
        if (!rec->key.is_job) {
            run_of(rec->work)->in_progress = true;       /* no end any more */
            record_free(rec);
        }
    }
    wait_free(runs);
    while ((r = TAILQ_FIRST(&runs->open))) {
        TAILQ_REMOVE(&runs->open, r, entry);
        TAILQ_REMOVE(&runs->flow->works, &r->work, entry);
        run_destroy(r);
    }
    while ((r = TAILQ_FIRST(&runs->over))) {
        TAILQ_REMOVE(&runs->over, r, entry);
        run_destroy(r);
    }
    flow_unshare(runs->flow);
    free(runs);
}
