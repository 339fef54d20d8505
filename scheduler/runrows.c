/* runrows.c - a run's settled TFs that are no longer in memory, read from the database by a helper thread
 *
 * From: GetRunTfs (runlist.c).  To: the asker, when the page is read. The thread has a read connection of its own and touches nothing of the loop.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include "helper.h"
#include "mem.h"
#include "rows.h"
#include "run.h"

struct page {
    struct session_ref ref;
    char    *dir;
    uint64_t run, from;
    size_t   cap;
    Sluice__RunTfs answer;
    struct err e;
    bool     failed;
};

static int row_add(void *arg, const struct row_run_tf *row)
{
    struct page *p = arg;
    char word[64];

    if (p->answer.n_tfs == p->cap) {
        p->answer.has_more = p->answer.more = true;
        return 0;
    }
    Sluice__RunTf *x = mem_zalloc(sizeof(*x));
    sluice__run_tf__init(x);
    x->has_id = x->has_attempt = x->has_seconds = x->has_incomplete = x->has_bytes = true;
    x->id = row->tf;
    x->state = mem_strdup(row->outcome);
    x->node = mem_strdup(row->node);
    x->device = mem_strdup(row->device);
    x->text = mem_strdup(run_reason_split(row->reason, word));
    x->reason = mem_strdup(word[0] ? word : NULL);
    x->digest = mem_strdup(row->digest && row->digest[0] ? row->digest : NULL);
    x->attempt = row->attempt;
    x->seconds = row->seconds;
    x->incomplete = row->incomplete;
    x->bytes = row->bytes;
    x->stages = ran_stages(row->stages, &x->n_stages);
    p->answer.tfs[p->answer.n_tfs++] = x;
    return 0;
}

static void page_read(void *arg)
{
    struct page *p = arg;
    struct db *db = db_open_reader(p->dir, &p->e);

    p->failed = db == NULL || rows_load_run_tfs(db, p->run, p->from, (unsigned)p->cap + 1, row_add, p, &p->e) < 0;
    db_close(db);
}

static void page_free(struct page *p)
{
    for (size_t i = 0; i < p->answer.n_tfs; i++) {
        Sluice__RunTf *x = p->answer.tfs[i];
        free(x->state);
        free(x->node);
        free(x->device);
        free(x->reason);
        free(x->text);
        free(x->digest);
        ran_stages_free(x->stages, x->n_stages);
        free(x);
    }
    free(p->answer.tfs);
    free(p->dir);
    free(p);
}

static void page_done(void *arg)
{
    struct page *p = arg;
    struct session *s = session_find(p->ref);

    if (s && p->failed)
        session_error(s, p->ref.id, &p->e, NULL);
    else if (s)
        session_answer(s, p->ref.id, &p->answer.base);
    page_free(p);
}

void run_tfs_stored(struct session *s, uint32_t id, uint64_t run, uint64_t from, size_t cap)
{
    struct page *p = mem_zalloc(sizeof(*p));
    struct err e;

    p->ref = session_refer(s, id);
    p->dir = mem_strdup(s->d->conf->state_dir);
    p->run = run;
    p->from = from;
    p->cap = cap;
    sluice__run_tfs__init(&p->answer);
    p->answer.tfs = mem_array(cap, sizeof(struct Sluice__RunTf *));
    if (helper_run(s->d->helper, page_read, page_done, p, &e) < 0) {
        session_error(s, id, &e, NULL);
        page_free(p);
    }
}
