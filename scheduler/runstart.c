/* runstart.c - StartRun: every word and size checked, then stored, then answered
 *
 * From: StartRun.  To: run.c (the run), the writer.
 */
#include "config.h"
#include "run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "events.h"
#include "log.h"
#include "mem.h"
#include "nice.h"
#include "runkey.h"
#include "str.h"
#include "workflow_words.h"

int run_parse_word(const char *what, const char *word, const char *const *words, int n, int *value, struct err *e)
{
    if (word == NULL || word[0] == '\0')
        return 0;
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            *value = i;
            return 0;
        }
    }
    return err_set(e, ERR_USAGE, "%s is %s or %s, not \"%.40s\"", what, words[0], words[1], word);
}

/* Absolute, without "..", below a configured root. NULL or "": the default; nothing is delivered by workflow none. */
char *run_output(const struct conf *conf, const char *workflow, const char *asked, struct err *e)
{
    if (strcmp(workflow, "none") == 0)
        return mem_strdup("");
    if (asked == NULL || asked[0] == '\0') {
        if (conf->n_roots_output)
            return mem_strdup(conf->roots_output[0]);
        return conf->state_dir[0] == '/' ? mem_printf("%s/output", conf->state_dir)
                                         : err_null(e, ERR_USAGE, "no output folder was given, and the configuration has none (roots_output)");
    }
    if (asked[0] != '/' || strlen(asked) > 3500)
        return err_null(e, ERR_USAGE, "the output folder must be an absolute path, not \"%.200s\"", asked);
    for (const char *p = asked; (p = strstr(p, "/..")); p += 3) {
        if (p[3] == '/' || p[3] == '\0')
            return err_null(e, ERR_USAGE, "the output folder \"%.200s\" has \"..\" in it", asked);
    }
    if (str_is_below(asked, conf->roots_output, conf->n_roots_output))
        return mem_strdup(asked);
    return err_null(e, ERR_PERMISSION, "the output folder \"%.200s\" is below none of the configured roots", asked);
}

static int size_check(struct flow *f, uint64_t tf_size, struct err *e)
{
    uint64_t largest = flow_largest_buffer(f, POOL_ONLINE);
    char need[32], have[32];

    if (tf_size == 0 || largest == 0 || tf_size <= largest)
        return 0;
    return err_set(e, ERR_STATE, "its largest TF needs a buffer of at least %s (%" PRIu64 " bytes); the largest of the online pool has %s (%" PRIu64 ")",
                   str_size_text(tf_size, need), tf_size, str_size_text(largest, have), largest);
}

static int start_check(struct session *s, const Sluice__StartRun *m, struct err *e)
{
    struct sluiced *d = s->d;
    unsigned usable = flow_usable_nodes(d->flow, POOL_ONLINE);

    if (m->name && m->name[0] && !str_is_name(m->name))
        return err_set(e, ERR_USAGE, "a run's name is 1 to 63 letters, digits and ._-");
    if (workflow_words_check(m->workflow && m->workflow[0] ? m->workflow : "decode", m->backends, m->options, e) < 0)
        return -1;
    if (able_check(d->flow, m->workflow && m->workflow[0] ? m->workflow : "decode", m->backends, NULL, 0, e) < 0)
        return -1;
    if (m->has_nice && nice_check(s, m->nice, e) < 0)
        return -1;
    if (m->sources > RUN_MAX_SOURCES)
        return err_set(e, ERR_USAGE, "%u sources; at most %d are possible", m->sources, RUN_MAX_SOURCES);
    if (m->min_nodes > usable)
        return err_set(e, ERR_STATE, "it wants %u nodes, %u of the online pool are usable", m->min_nodes, usable);
    return size_check(d->flow, m->tf_size, e);
}

struct start_ask { struct session_ref ref; struct run *run; };

/* It is not started, and nobody heard of it. */
static void run_discard(struct run *r)
{
    TAILQ_REMOVE(&r->work.flow->works, &r->work, entry);
    TAILQ_REMOVE(&r->runs->open, r, entry);
    run_destroy(r);
}

static void started_then(struct run *r, int rc, const struct err *e, void *arg)
{
    struct start_ask *ask = arg;
    struct session *s = session_find(ask->ref);
    Sluice__StartedRun m = SLUICE__STARTED_RUN__INIT;

    if (rc < 0) {
        if (s)
            session_error(s, ask->ref.id, e, "StateNotWritable");
        run_discard(r);
    } else {
        r->stored = true;
        m.has_id = true;
        m.id = r->work.id;
        m.output = r->work.output;
        if (s)
            session_answer(s, ask->ref.id, &m.base);
    }
    free(ask);
}

/* Its output folder was looked at. */
static void checked_then(void *arg, int rc, const struct outcheck_said *said, const struct err *e)
{
    struct start_ask *ask = arg;
    (void)said;
    struct run *r = ask->run;

    if (rc < 0) {
        struct session *s = session_find(ask->ref);
        if (s)
            session_error(s, ask->ref.id, e, "OutputUnusable");
        run_discard(r);
        free(ask);
        return;
    }
    log_info("run %" PRIu64 ": %s: workflow %s, %u sources, policy %s, by %s", r->work.id, r->work.name, r->work.workflow, r->n_sources,
             disp_policy_name[r->work.policy], r->owner);
    run_put(r, CHANGE_NEW, event_create(NULL, r->owner, "run start", NULL, r->work.name, NULL), started_then, ask);
}

static int start_words(struct run *r, const Sluice__StartRun *m, struct err *e)
{
    static const char *const keep[] = { "until-done", "until-built" }, *const incomplete[] = { "build", "drop" };
    int policy = DISP_BUFFER, keeps = 0, drops = 0;

    if (run_parse_word("policy", m->policy, disp_policy_name, 2, &policy, e) < 0 || run_parse_word("keep", m->keep, keep, 2, &keeps, e) < 0 ||
        run_parse_word("incomplete", m->incomplete, incomplete, 2, &drops, e) < 0)
        return -1;
    r->work.policy = (enum disp_policy)policy;
    r->until_done = keeps == 0;
    r->drop_incomplete = drops == 1;
    return 0;
}

static int start_fill(struct run *r, struct session *s, const Sluice__StartRun *m, struct err *e)
{
    struct work *w = &r->work;
    char who[96];

    w->workflow = mem_strdup(m->workflow && m->workflow[0] ? m->workflow : "decode");
    w->backends = mem_strdup(m->backends ? m->backends : "");
    w->options = mem_strdup(m->options ? m->options : "");
    able_narrow(w);
    w->name = m->name && m->name[0] ? mem_strdup(m->name) : mem_printf("run-%" PRIu64, w->id);
    w->output = run_output(s->d->conf, w->workflow, m->output, e);
    if (w->output == NULL || start_words(r, m, e) < 0 || runkey_random(w->key, sizeof(w->key), e) < 0)
        return -1;
    w->uid = s->peer.uid;
    w->gid = s->peer.gid;
    nice_begin(s, w, m->has_nice, m->nice);
    w->limit = r->in_flight_asked = m->in_flight;
    r->min_nodes = m->min_nodes;
    r->tf_size = m->tf_size;
    r->owner = mem_strdup(session_author(s, who));
    r->started = clock_wall_ns();
    return 0;
}

void run_start(struct session *s, uint32_t id, const void *m)
{
    const Sluice__StartRun *x = m;
    struct runs *runs = s->d->runs;
    struct err e;

    if (start_check(s, x, &e) < 0) {
        session_error(s, id, &e, e.code == ERR_PERMISSION ? "NotPermitted" : x->min_nodes > flow_usable_nodes(s->d->flow, POOL_ONLINE) ? "PoolMinimum" : NULL);
        return;
    }
    struct run *r = run_create(runs, runs->last_id + 1, x->sources ? x->sources : 1);
    if (start_fill(r, s, x, &e) < 0) {
        session_error(s, id, &e, NULL);
        run_discard(r);
        return;
    }
    runs->last_id++;
    struct start_ask *ask = mem_zalloc(sizeof(*ask));
    *ask = (struct start_ask){ session_refer(s, id), r };
    outcheck(runs->flow, POOL_ONLINE, &(struct outcheck_ask){ .output = r->work.output, .uid = r->work.uid, .gid = r->work.gid, .by_default = str_is_empty(x->output) },
             checked_then, ask);
}
