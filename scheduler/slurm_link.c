/* slurm_link.c - see slurm_link.h */
#include "config.h"

#include "slurm_link.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "clock.h"
#include "frame.h"
#include "log.h"
#include "mem.h"
#include "slurm_process.h"
#include "str.h"

struct command {
    TAILQ_ENTRY(command) entry;
    Sluice__SlurmDo *m;
    slurm_done done;
    void *arg;
};
TAILQ_HEAD(commands, command);

struct slurm_link {
    struct slurm_link_conf to;
    struct slurm_process *looks, *acts;
    struct commands commands;            /* the first is under way when acts is not free */
    unsigned n_commands;
    int64_t asked;
    char *names;                         /* of the look before; another list is a new question */
    bool whole;                          /* the next look takes everything */
};

/* ---- looks ---- */

static void looked(void *arg, const ProtobufCMessage *m, const struct err *why, const char *word)
{
    struct slurm_link *l = arg;

    (void)word;
    l->whole = m == NULL;
    if (m == NULL)
        l->to.failed(l->to.arg, why);
    else
        l->to.state(l->to.arg, (const Sluice__SlurmState *)m, l->asked);
}

static void looks_ready(void *arg)
{
    struct slurm_link *l = arg;

    l->whole = true;                     /* a new helper knows nothing of what we know */
}

void slurm_link_poll(struct slurm_link *l, const char *names, bool leases)
{
    Sluice__SlurmPoll m = SLUICE__SLURM_POLL__INIT;
    const struct err *down = slurm_process_down(l->looks);

    if (down != NULL)                    /* also one that ended before it could be asked, as with a broken slurm.conf */
        l->to.failed(l->to.arg, down);
    if (!slurm_process_is_free(l->looks))
        return;
    if (!str_equal(names, l->names)) {
        free(l->names);
        l->names = mem_strdup(names);
        l->whole = true;
    }
    m.names = l->names;
    m.has_whole = true;
    m.whole = l->whole;
    m.has_leases = true;
    m.leases = leases;
    l->asked = clock_mono_ns();
    slurm_process_ask(l->looks, &m.base, SLUICE__TYPE__SLURM_STATE);
}

void slurm_link_whole(struct slurm_link *l)
{
    l->whole = true;
}

/* ---- commands ---- */

static void next(struct slurm_link *l)
{
    struct command *c = TAILQ_FIRST(&l->commands);

    if (c != NULL && slurm_process_is_free(l->acts))
        slurm_process_ask(l->acts, &c->m->base, SLUICE__TYPE__SLURM_DONE);
}

static void command_free(struct slurm_link *l, struct command *c)
{
    TAILQ_REMOVE(&l->commands, c, entry);
    l->n_commands--;
    protobuf_c_message_free_unpacked(&c->m->base, NULL);
    free(c);
}

/* An answer about another node is none. */
static bool is_about(const Sluice__SlurmDone *d, const Sluice__SlurmDo *q)
{
    return d->node != NULL && str_equal(d->node->name, q->node);
}

static void acted(void *arg, const ProtobufCMessage *m, const struct err *why, const char *word)
{
    struct slurm_link *l = arg;
    struct command *c = TAILQ_FIRST(&l->commands);
    const Sluice__SlurmDone *d = (const Sluice__SlurmDone *)m;
    slurm_done done = c->done;
    void *to = c->arg;
    struct err e;

    (void)word;
    if (d != NULL && !is_about(d, c->m)) {
        err_set(&e, ERR_PROTOCOL, "the helper's answer about node %.63s is about another one", c->m->node);
        d = NULL;
        why = &e;
    }
    command_free(l, c);
    done(to, d, why);
    next(l);
}

static void acts_ready(void *arg)
{
    next(arg);
}

void slurm_link_do(struct slurm_link *l, const Sluice__SlurmDo *m, slurm_done done, void *arg)
{
    struct command *c = mem_zalloc(sizeof(*c));

    c->m = proto_copy(&m->base);
    c->done = done;
    c->arg = arg;
    TAILQ_INSERT_TAIL(&l->commands, c, entry);
    l->n_commands++;
    next(l);
}

unsigned slurm_link_waiting(const struct slurm_link *l)
{
    return l->n_commands;
}

unsigned slurm_link_starts(const struct slurm_link *l)
{
    return slurm_process_starts(l->looks) + slurm_process_starts(l->acts);
}

/* ---- */

struct slurm_link *slurm_link_create(struct ev_loop *loop, const struct slurm_link_conf *conf)
{
    struct slurm_link *l = mem_zalloc(sizeof(*l));
    struct slurm_process_conf p = { .program = conf->program, .slurm_conf = conf->slurm_conf, .timeout_s = conf->timeout_s, .arg = l };

    l->to = *conf;
    l->whole = true;
    TAILQ_INIT(&l->commands);
    p.name = "poll";
    p.answered = looked;
    p.ready = looks_ready;
    l->looks = slurm_process_create(loop, &p);
    p.name = "act";
    p.answered = acted;
    p.ready = acts_ready;
    l->acts = slurm_process_create(loop, &p);
    return l;
}

void slurm_link_destroy(struct slurm_link *l)
{
    struct command *c;

    if (l == NULL)
        return;
    slurm_process_destroy(l->looks);
    slurm_process_destroy(l->acts);
    while ((c = TAILQ_FIRST(&l->commands)) != NULL)
        command_free(l, c);
    free(l->names);
    free(l);
}
