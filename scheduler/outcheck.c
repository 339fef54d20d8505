/* outcheck.c - whether results can be put where somebody wants them, before a job or a run is accepted
 *
 * From: jobsubmit.c, runstart.c; jobsweep.c, for whom it is swept instead.  To: a worker (CheckOutput), who tries it with that user's rights; back to the caller.
 * sluiced never touches that disk. One that hangs holds up nobody but the asker: the next worker is asked, three at most. Without a worker that could be
 * asked the folder is believed: the first result will tell.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "chan.h"
#include "flow_core.h"
#include "log.h"
#include "mem.h"
#include "str.h"

enum { ASKED_MOST = 3 };
#define ANSWER_LIMIT 3.0         /* s for a worker's answer */
#define SWEEP_LIMIT  60.0        /* s for one who goes through the whole folder */

struct outcheck {
    struct outcheck *next;
    uint32_t number, uid, gid;
    int    pool;
    char  *output, **stem;
    uint64_t *tfs;
    size_t n_stems;
    double until;
    unsigned n_asked;
    char   asked[ASKED_MOST][64];        /* names of nodes */
    uint64_t sweep;                      /* the job; 0: it is looked at */
    const struct node *only;
    bool   by_default;
    outcheck_fn then;
    void  *arg;
};

static void over(struct flow *f, struct outcheck *c, int rc, const struct outcheck_said *said, const struct err *e)
{
    for (struct outcheck **p = &f->outchecks; *p; p = &(*p)->next) {
        if (*p == c) {
            *p = c->next;
            break;
        }
    }
    c->then(c->arg, rc, said, e);
    for (size_t i = 0; i < c->n_stems; i++)
        free(c->stem[i]);
    free(c->stem);
    free(c->tfs);
    free(c->output);
    free(c);
}

static bool can_ask(const struct outcheck *c, const struct fnode *n)
{
    const struct node *x = n->node;

    if (x->session == NULL || x->registered == NULL || !x->registered->checks_output || x->contact != SLUICE__CONTACT__UP)
        return false;
    if ((c->sweep && !x->registered->sweeps_output) || (c->only != NULL && c->only != x))
        return false;
    for (unsigned i = 0; i < c->n_asked; i++) {
        if (strcmp(c->asked[i], x->name) == 0)
            return false;
    }
    return true;
}

/* One of the pool before any other. */
static struct fnode *next_node(struct flow *f, const struct outcheck *c)
{
    struct fnode *found = NULL;

    for (struct fnode *n = f->nodes; n; n = n->hh.next) {
        if (can_ask(c, n) && (found == NULL || (found->node->pool != c->pool && n->node->pool == c->pool)))
            found = n;
    }
    return found;
}

static bool ask_next(struct flow *f, struct outcheck *c)
{
    Sluice__CheckOutput m = SLUICE__CHECK_OUTPUT__INIT;
    struct fnode *n;

    m.output = c->output;
    m.has_uid = m.has_gid = true;
    m.uid = c->uid;
    m.gid = c->gid;
    m.stems = c->stem;
    m.tfs = c->tfs;
    m.n_stems = m.n_tfs = c->n_stems;
    m.has_sweep = c->sweep != 0;
    m.sweep = c->sweep;
    while (c->n_asked < ASKED_MOST && (n = next_node(f, c)) != NULL) {
        snprintf(c->asked[c->n_asked++], sizeof(c->asked[0]), "%s", n->node->name);
        if (chan_send(n->node->session->chan, c->number, &m.base) < 0)
            continue;
        c->until = flow_now(f) + (c->sweep ? SWEEP_LIMIT : ANSWER_LIMIT);
        return true;
    }
    return false;
}

void outcheck(struct flow *f, int pool, const struct outcheck_ask *ask, outcheck_fn then, void *arg)
{
    static uint32_t last;
    struct outcheck *c = mem_zalloc(sizeof(*c));
    struct err e;

    *c = (struct outcheck){ .number = ++last ? last : ++last, .uid = ask->uid, .gid = ask->gid, .pool = pool, .output = mem_strdup(ask->output), .then = then,
                            .arg = arg, .next = f->outchecks, .n_stems = ask->n, .sweep = ask->sweep, .only = ask->only, .by_default = ask->by_default };
    c->stem = mem_array(ask->n + 1, sizeof(*c->stem));
    c->tfs = mem_array(ask->n + 1, sizeof(*c->tfs));
    for (size_t i = 0; i < ask->n; i++) {
        c->stem[i] = mem_strdup(ask->stem[i]);
        c->tfs[i] = ask->tfs[i];
    }
    f->outchecks = c;
    if (ask->output[0] != '\0' && ask_next(f, c))
        return;
    err_set(&e, ERR_STATE, "no node can be asked");
    over(f, c, c->sweep ? -1 : 0, NULL, c->sweep ? &e : NULL);
}

void outcheck_answer(struct session *s, uint32_t id, const void *m)
{
    const Sluice__OutputChecked *x = m;
    struct flow *f = s->d->flow;
    struct outcheck *c = f->outchecks;
    bool asked = false;
    struct err e;

    while (c && c->number != id)
        c = c->next;
    for (unsigned i = 0; c && i < c->n_asked; i++)
        asked = asked || strcmp(c->asked[i], s->node->name) == 0;
    if (!asked)
        return;                                  /* too late, or never asked */
    if (x->code == 0) {
        over(f, c, 0, &(struct outcheck_said){ str_is_empty(x->real) ? NULL : x->real, s->node, x->own_disk }, NULL);
        return;
    }
    char *says = mem_printf("node %s says: %s%s", s->node->name, x->text ? x->text : "no",
                            c->by_default ? "; that is the default folder, --output DIR names another one" : "");
    int room = (int)sizeof(e.text) - 60 - (int)strlen(says);                     /* the reason whole, of the folder what has room */
    err_set(&e, x->code <= ERR_LOST ? (enum err_code)x->code : ERR_FAILED, "results cannot be put into the output folder %.*s: %s", room > 0 ? room : 0, c->output, says);
    free(says);
    over(f, c, -1, NULL, &e);
}

void outcheck_tick(struct flow *f)
{
    double now = flow_now(f);
    struct outcheck *c, *next;
    struct err e;

    for (c = f->outchecks; c; c = next) {
        next = c->next;
        if (now < c->until)
            continue;
        log_warning("output folder %s: no word on it from node %s within %.0f s", c->output, c->asked[c->n_asked - 1], c->sweep ? SWEEP_LIMIT : ANSWER_LIMIT);
        if (ask_next(f, c))
            continue;
        err_set(&e, ERR_STATE, "whether results can be put into the output folder %.300s is not known: node%s %s%s%s%s%s did not answer within %.0f s; does its disk hang?",
                c->output, c->n_asked > 1 ? "s" : "", c->asked[0], c->n_asked > 1 ? ", " : "", c->asked[1], c->n_asked > 2 ? ", " : "", c->asked[2], ANSWER_LIMIT);
        over(f, c, -1, NULL, &e);
    }
}

void outcheck_drop(struct flow *f)
{
    struct err e;

    err_set(&e, ERR_STATE, "sluiced ends");
    while (f->outchecks)
        over(f, f->outchecks, -1, NULL, &e);
}
