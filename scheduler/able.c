/* able.c - which classes of nodes can have the backends that work asks for
 *
 * From: jobsubmit.c, runstart.c (what is asked for), the configuration.  To: work.classes, which dispatch obeys.
 * Always: nothing is refused that a node could do. A class says what its devices are; of one that the configuration does not have, and of an architecture
 * whose maker is not known, everything is believed: the node will say. Whether a driver is there is the node's to say, too.
 */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include "flow_core.h"
#include "mem.h"
#include "str.h"
#include "workflow_words.h"

enum { NAMED_MOST = 8 };                 /* classes in a sentence */

/* By how gpu_arch begins. An OpenCL driver has devices of every maker. */
static const struct maker { const char *arch; const char *has[5]; } makers[] = {
    { "gfx", { "cpu", "hip", "opencl" } },
    { "sm_", { "cpu", "cuda", "opencl" } },
    { "",    { "cpu", "cuda", "hip", "opencl" } },
};

static const char *const *backends_of(const struct conf_class *c)
{
    static const char *const no_gpu[] = { "cpu", NULL };
    const struct maker *m = makers;

    if (c->gpu_arch == NULL || c->nominal_ms > 0)
        return no_gpu;
    while (strncmp(c->gpu_arch, m->arch, strlen(m->arch)) != 0)
        m++;
    return m->has;
}

static bool is_able(const struct conf_class *c, const char *workflow, const char *backends)
{
    return workflow_words_fit(workflow, backends, backends_of(c));
}

static bool is_allowed(const char *class, char *const *classes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(class, classes[i]) == 0)
            return true;
    }
    return n == 0;
}

/* "mi50 (emulated) has cpu" */
static void class_text(struct str *s, const struct conf_class *c)
{
    const char *const *has = backends_of(c);

    str_addf(s, "%s (%s) has ", c->name, c->nominal_ms > 0 ? "emulated" : c->gpu_arch ? c->gpu_arch : "no GPU");
    for (unsigned i = 0; has[i]; i++)
        str_addf(s, "%s%s", i ? ", " : "", has[i]);
}

/* Whether a node is of a class that the work allows and the configuration does not know. */
static bool is_unknown_there(const struct flow *f, char *const *classes, size_t n)
{
    for (const struct fnode *x = f->nodes; x; x = x->hh.next) {
        if (conf_class_find(f->d->conf, x->node->class) == NULL && is_allowed(x->node->class, classes, n))
            return true;
    }
    return false;
}

int able_check(const struct flow *f, const char *workflow, const char *backends, char *const *classes, size_t n, struct err *e)
{
    const struct conf *conf = f->d->conf;
    struct str s = { 0 };
    unsigned unable = 0;
    bool able = is_unknown_there(f, classes, n);

    for (unsigned i = 0; i < conf->n_classes && !able; i++) {
        const struct conf_class *c = &conf->classes[i];
        if (!is_allowed(c->name, classes, n))
            continue;
        able = is_able(c, workflow, backends);
        if (unable < NAMED_MOST) {
            str_add(&s, unable ? "; " : "");
            class_text(&s, c);
        }
        unable++;
    }
    if (!able && unable > NAMED_MOST)
        str_addf(&s, "; and %u more", unable - NAMED_MOST);
    if (!able && unable > 0)
        err_set(e, ERR_STATE, "workflow %s is to run on %s, which no class that is allowed can have: %s", workflow, backends, str_text(&s));
    str_free(&s);
    return able || unable == 0 ? 0 : -1;
}

void able_narrow(struct work *w)
{
    const struct conf *conf = w->flow->d->conf;
    unsigned unable = 0;

    for (unsigned i = 0; i < conf->n_classes; i++) {
        unsigned bit = is_able(&conf->classes[i], w->workflow, w->backends) ? 0 : flow_class_bit(w->flow, conf->classes[i].name);
        if (bit != FLOW_CLASS_REST)
            unable |= bit;
    }
    w->classes = unable == 0 ? w->asked : (w->asked ? w->asked : ~0u) & ~unable;
    if (w->classes == 0)                 /* by a configuration that came later: its nodes will say why not */
        w->classes = w->asked;
}

void able_configured(struct flow *f)
{
    struct work *w;

    TAILQ_FOREACH(w, &f->works, entry)
        able_narrow(w);
    flow_kick(f);
}
