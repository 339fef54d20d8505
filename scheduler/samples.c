/* samples.c - fill of the nodes' buffers while a run is on, as the ledger has it
 *
 * From: run.c's tick, ten times a second.  To: GetSamples, the means in the run's node shares.
 * Bounded: when KEPT values are there every second instant is left out and from then on the instants stand twice as far apart; the means in the
 * shares count every instant.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include "mem.h"
#include "run.h"

enum { KEPT = 262144, ANSWERED = 100000, NODES = 4096 };
#define HIGH 0.85

struct instant { double time; unsigned n; uint16_t *node; float *fill; };

struct samples {
    char   **names;
    unsigned n_names, cap_names;
    struct instant *at;
    size_t   n, cap, values;
    unsigned every, skip;
};

struct samples *samples_create(void)
{
    struct samples *s = mem_zalloc(sizeof(*s));

    s->every = 1;
    return s;
}

static void instant_free(struct instant *i)
{
    free(i->node);
    free(i->fill);
}

void samples_destroy(struct samples *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->n; i++)
        instant_free(&s->at[i]);
    for (unsigned i = 0; i < s->n_names; i++)
        free(s->names[i]);
    free(s->at);
    free(s->names);
    free(s);
}

/* The share knows the place of its name: nothing is looked for among thousands, ten times a second. */
static unsigned name_number(struct samples *s, struct share *share)
{
    if (share->place > 0)
        return share->place - 1;
    if (s->n_names == s->cap_names) {
        s->cap_names = s->cap_names ? 2 * s->cap_names : 16;
        s->names = mem_grow(s->names, s->cap_names, sizeof(*s->names));
    }
    s->names[s->n_names++] = mem_strdup(share->node);
    share->place = s->n_names;
    return s->n_names - 1;
}

static void thin_out(struct samples *s)
{
    size_t kept = 0;

    s->values = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (i % 2) {
            instant_free(&s->at[i]);
            continue;
        }
        s->values += s->at[i].n;
        s->at[kept++] = s->at[i];
    }
    s->n = kept;
    s->every *= 2;
}

static void keep(struct samples *s, struct instant *i)
{
    if (s->values + i->n > KEPT && s->n > 2)
        thin_out(s);
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->at = mem_grow(s->at, s->cap, sizeof(*s->at));
    }
    s->values += i->n;
    s->at[s->n++] = *i;
}

/* The nodes of the run's pool that are usable or still have something. */
void samples_take(struct run *r, double time)
{
    struct samples *s = r->samples;
    unsigned nodes = 0;
    bool wanted = s->skip == 0;
    struct instant now = { .time = time };

    s->skip = (s->skip + 1) % s->every;
    if (wanted) {
        nodes = HASH_COUNT(r->work.flow->nodes);
        nodes = nodes < NODES ? nodes : NODES;
        now.node = mem_array(nodes ? nodes : 1, sizeof(*now.node));
        now.fill = mem_array(nodes ? nodes : 1, sizeof(*now.fill));
    }
    for (struct fnode *n = r->work.flow->nodes; n; n = n->hh.next) {
        const struct disp_node *l = n->account.load;
        if (l->group != r->work.pool || l->size == 0 || (!l->usable && n->account.n == 0))
            continue;
        double fill = (double)l->charged / (double)l->size;
        struct share *share = run_share(r, n->node->name);
        share->samples++;
        share->fill += fill;
        share->high += fill > HIGH;
        if (wanted && now.n < nodes) {
            now.node[now.n] = (uint16_t)name_number(s, share);
            now.fill[now.n++] = (float)fill;
        }
    }
    if (wanted)
        keep(s, &now);
}

void samples_answer(struct run *r, struct session *session, uint32_t id)
{
    Sluice__Samples m = SLUICE__SAMPLES__INIT;
    const struct samples *s = r->samples;
    size_t step = s ? 1 + s->values / ANSWERED : 1, n = 0;

    Sluice__Sample *values = mem_array(s && s->values ? s->values : 1, sizeof(*values));
    Sluice__Sample **list = mem_array(s && s->values ? s->values : 1, sizeof(*list));
    for (size_t i = 0; s && i < s->n; i += step) {
        for (unsigned k = 0; k < s->at[i].n; k++, n++) {
            sluice__sample__init(&values[n]);
            values[n].has_time = values[n].has_fill = true;
            values[n].time = s->at[i].time;
            values[n].fill = (double)s->at[i].fill[k];
            values[n].node = s->names[s->at[i].node[k]];
            list[n] = &values[n];
        }
    }
    m.n_samples = n;
    m.samples = list;
    session_answer(session, id, &m.base);
    free(list);
    free(values);
}
