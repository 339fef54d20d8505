/* slurm_conf.c - which nodes take part, as the configuration says: they join, and they leave with nothing of ours left behind in Slurm
 *
 * From: the configuration, roster.c (retired nodes).  To: slurm_farm.c, slurm_link.c.
 * A node that is not to take part any more is asked about until Slurm has said that there is neither reservation nor lease nor drain of ours. So is every other node at the start of
 * sluiced, once, where any node takes part, or our store says that one did: what was changed while it was away is mended, too.
 */
#include "config.h"

#include "slurm_part.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "log.h"
#include "mem.h"
#include "str.h"

/* Beside this program, as in a build tree; else where it is installed. */
static char *find_program(const struct conf *c)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

    if (c->slurm.program != NULL)
        return mem_strdup(c->slurm.program);
    if (n > 0) {
        char *beside;

        self[n] = '\0';
        beside = mem_printf("%.*s/sluice-slurm", (int)(strrchr(self, '/') - self), self);
        if (access(beside, X_OK) == 0)
            return beside;
        free(beside);
    }
    return mem_strdup(LIBEXECDIR "/sluice-slurm");
}

/* ---- joining and leaving ---- */

const char slurm_setting[] = "slurm", slurm_boot_setting[] = "slurm boot";

static bool node_join(struct node *n, enum slurm_mode mode)
{
    if (!n->added && !n->adding)         /* retired, though the configuration still names it */
        mode = SLURM_LEAVE;
    if (mode == SLURM_LEAVE && n->d->conf->slurm.forget)
        return false;
    if (n->slurm == NULL) {
        n->slurm = mem_zalloc(sizeof(*n->slurm));
        n->slurm->bad_boot = n->d->slurm->boot;
    }
    n->slurm->mode = mode;
    return true;
}

void slurm_node_free(struct node *n)
{
    struct node_slurm *ns = n->slurm;

    if (ns == NULL)
        return;
    slurm_says_set(ns, NULL);
    slurm_jobs_set(ns, NULL, 0);
    free(ns->jobs);
    free(ns);
    n->slurm = NULL;
}

static void node_left(struct node *n)
{
    slurm_node_free(n);
    n->d->slurm->names_old = true;
    node_send_settings(n);
    node_changed(n);
}

static void node_leave(struct node *n)
{
    if (n->d->conf->slurm.forget) {
        node_left(n);
        return;
    }
    if (n->slurm->mode == SLURM_LEAVE)
        return;
    log_info("node %s: Slurm: what is ours there is taken away", n->name);
    n->slurm->was_lent = n->slurm->mode == SLURM_LEND;
    n->slurm->mode = SLURM_LEAVE;
    memset(&n->slurm->hand, 0, sizeof(n->slurm->hand));
    node_changed(n);
}

void slurm_node_retired(struct node *n)
{
    if (n->slurm != NULL)
        node_leave(n);
}

void slurm_leave_check(struct node *n)
{
    struct node_slurm *ns = n->slurm;

    if (ns->mode != SLURM_LEAVE || ns->acting || !ns->asked_for || !ns->resv_heard || !ns->lease_heard || ns->reserved || ns->lease != LEASE_NONE)
        return;
    if (ns->says != NULL && (ns->says->unknown || slurm_view(ns->says, n->d->conf->slurm.reason_prefix, false) == SLURM_OURS))
        return;
    if (n->added && slurm_is_lent(n) && ns->says != NULL && ns->says->busy)
        return;                          /* ours to work on when the jobs of Slurm have ended there */
    node_left(n);
}

/* ---- names ---- */

/* Whoever starts sluiced without any of these nodes in the configuration has what is left of ours in Slurm taken back all the same. */
static void known_store(struct slurm *s)
{
    struct change *c;

    if (s->known == (s->n_nodes > 0))
        return;
    s->known = s->n_nodes > 0;
    c = change_create(s->d);
    change_setting(c, slurm_setting, s->known ? "on" : "off");
    change_put(c, CHANGE_KEEP, NULL, NULL);
}

static void fold(struct slurm *s)
{
    struct hostlist *all = hostlist_create();

    s->lends = false;
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm == NULL)
            continue;
        hostlist_add(all, n->name, NULL);
        s->lends |= n->slurm->mode != SLURM_OBSERVE;
    }
    free(s->names);
    s->n_nodes = (unsigned)hostlist_count(all);
    s->names = hostlist_fold(all);
    s->names_old = false;
    hostlist_destroy(all);
    known_store(s);
}

/* Those that join, and those that leave. */
static void take_names(struct slurm *s)
{
    const struct conf *c = s->d->conf;
    char reason[512];
    bool any = false;

    for (unsigned i = 0; i < c->n_nodes; i++) {
        const struct conf_node *in = &c->nodes[i];

        for (size_t k = 0; k < hostlist_count(in->names) && strcmp(in->slurm, "none") != 0; k++) {
            struct node *n = farm_node(s->d->farm, hostlist_name(in->names, k));

            any = true;
            if (n == NULL || !node_join(n, strcmp(in->slurm, "lend") == 0 ? SLURM_LEND : SLURM_OBSERVE))
                continue;
            n->slurm->taken = true;
            if (!s->begun)               /* the mark was on our disk before the drain: one without a reason is ours, and was cut short */
                n->slurm->sent_drain = slurm_wants_drain(n, reason);
        }
    }
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL && !n->slurm->taken)
            node_leave(n);
        else if (n->slurm != NULL)
            n->slurm->taken = false;
        else if ((any || s->known) && !s->begun)
            node_join(n, SLURM_LEAVE);
    }
    fold(s);
    s->begun |= any || s->known;
}

/* ---- the link ---- */

static void link_end(struct slurm *s)
{
    slurm_link_destroy(s->link);
    s->link = NULL;
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (n->slurm != NULL)
            n->slurm->acting = false;
    }
}

static void link_begin(struct slurm *s)
{
    const struct slurm_link_conf conf = { .program = s->program, .slurm_conf = s->conf, .timeout_s = s->timeout_s, .state = slurm_said, .failed = slurm_silent, .arg = s };

    s->started = clock_mono_s();
    s->link = slurm_link_create(s->d->loop, &conf);
}

void slurm_names_fold(struct slurm *s)
{
    if (!s->names_old)
        return;
    fold(s);
    if (s->n_nodes > 0 || s->link == NULL)
        return;
    link_end(s);
    ev_timer_stop(s->d->loop, &s->look);
    log_info("Slurm: nothing of ours is left there, and it is not asked any more");
}

void slurm_take_conf(struct sluiced *d)
{
    struct slurm *s = d->slurm;
    char *program = find_program(d->conf);
    bool same = s->link != NULL && str_equal(program, s->program) && str_equal(d->conf->slurm.conf, s->conf) && d->conf->slurm.timeout == s->timeout_s;

    if (!same && s->link != NULL)
        link_end(s);
    take_names(s);
    if (s->n_nodes == 0 && s->link != NULL)
        link_end(s);
    free(s->program);
    free(s->conf);
    s->program = program;
    s->conf = mem_strdup(d->conf->slurm.conf);
    s->timeout_s = d->conf->slurm.timeout;
    if (s->n_nodes > 0 && s->link == NULL)
        link_begin(s);
    ev_timer_stop(d->loop, &s->look);
    if (s->link != NULL) {
        ev_timer_set(&s->look, 0, d->conf->slurm.poll);
        ev_timer_start(d->loop, &s->look);
    }
}
