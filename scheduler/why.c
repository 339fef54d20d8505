/* why.c - why a job, a TF of it or a node does not do what one expects of it
 *
 * From: GetWhy.  To: the asker: lines of a stable code, a sentence, and the nodes it is about.
 * It asks the same functions that decide: job_waits_for, node_judge, what assign.c gives dispatch. It stores nothing and changes nothing.
 */
#include "config.h"
#include "job.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "clock.h"
#include "mem.h"
#include "settle.h"
#include "slurm_farm.h"
#include "str.h"

enum { NODES_SHOWN = 16, LINES_MOST = 64 };

/* ---- lines --------------------------------------------------------------------------------- */

static Sluice__WhyLine *line_find(Sluice__Why *m, const char *code)
{
    for (size_t i = 0; i < m->n_lines; i++) {
        if (strcmp(m->lines[i]->code, code) == 0)
            return m->lines[i];
    }
    return NULL;
}

/* text is taken. */
static Sluice__WhyLine *line_add(Sluice__Why *m, const char *code, char *text)
{
    Sluice__WhyLine *x = mem_zalloc(sizeof(*x));

    sluice__why_line__init(x);
    x->code = mem_strdup(code);
    x->text = text;
    m->lines = mem_grow(m->lines, m->n_lines + 1, sizeof(*m->lines));
    m->lines[m->n_lines++] = x;
    return x;
}

/* One node more that this is true of. */
static void line_count(Sluice__Why *m, const char *code, const char *text, const struct node *n)
{
    Sluice__WhyLine *x = line_find(m, code);

    if (x == NULL && m->n_lines >= LINES_MOST)
        return;
    if (x == NULL)
        x = line_add(m, code, text ? mem_strdup(text) : NULL);
    x->has_count = true;
    x->count++;
    if (x->n_nodes < NODES_SHOWN) {
        x->nodes = mem_grow(x->nodes, x->n_nodes + 1, sizeof(*x->nodes));
        x->nodes[x->n_nodes++] = mem_strdup(n->name);
    }
}

static void why_free(Sluice__Why *m)
{
    for (size_t i = 0; i < m->n_lines; i++)
        sluice__why_line__free_unpacked(m->lines[i], NULL);
    free(m->lines);
    free(m->of);
    free(m->state);
}

/* ---- nodes --------------------------------------------------------------------------------- */

static const struct { const char *code, *text; } said[] = {
    { "ContactLost",      "no word from its worker: look at the machine" },
    { "NeverRegistered",  "its worker has not registered yet: is sluice-worker started there, under this name?" },
    { "VersionTooOld",    "its worker speaks another version of the protocol: install this release there, or a neighbouring one" },
    { "ContactLate",      "its worker is late, or its connection was just lost" },
    { "NotAdded",         "it registered, and nobody added it (sluice node add)" },
    { "Moving",           "it is being moved to another pool" },
    { "Resizing",         "its buffer gets another size" },
    { "Cooldown",         "work failed or was refused there; it is passed over for some seconds" },
    { "ShmShort",         "its buffer is not there or too small" },
    { "DeviceMissing",    "a device is missing" },
    { "SlotUnclean",      "memory of a device is in use by others" },
    { "NoLease",          "Slurm has it, and no lease of ours holds it" },
    { "MarkedByOperator", "a person marked it" },
    { "MarkedByHealth",   "it was marked automatically" },
    { "MarkedBySlurm",    "Slurm marked it" },
    { "WaitingForBuffer", "its buffer is full" },
    { "PrefetchFull",     "it has as many TFs of jobs as it may read ahead" },
    { "ReadingFull",      "it reads as many TFs at a time as it may (building_limit)" },
    { "OtherClass",       "it is not of a class that the job allows" },
    { "BackendUnavailable", "devices of its class cannot have a backend that is asked for" },
    { "Refused",          "it refused this TF, or failed at it: others are asked first" },
    { "Free",             "it can take one now" },
};

static const char *sentence(const char *code)
{
    for (size_t i = 0; i < ARRAY_LEN(said); i++) {
        if (strcmp(said[i].code, code) == 0)
            return said[i].text;
    }
    return NULL;
}

/* What keeps the node from taking a TF of that size, the first that assign.c would meet. */
static const char *node_cause(struct fnode *n, const struct work *w, const struct tf *t, uint64_t bytes)
{
    const struct disp_node *load = n->account.load;
    struct verdict v;

    if (w->asked != 0 && (load->class_bit & w->asked) == 0)
        return "OtherClass";
    if (w->classes != 0 && (load->class_bit & w->classes) == 0)
        return "BackendUnavailable";
    node_judge(n->node, &v);
    if (!v.usable)
        return verdict_cause(&v) != NULL ? verdict_cause(&v) : "ContactLate";
    return assign_cause(n, t, bytes);
}

/* Of nodes that Slurm has: which of our leases waits there for what, and why there are no others. */
static void lease_add(Sluice__Why *m, const struct node *n)
{
    bool queued;
    char *text = slurm_lease_why(n, &queued);

    if (text != NULL && queued && m->n_lines < LINES_MOST) {
        Sluice__WhyLine *x = line_add(m, "LeaseQueued", text);

        x->nodes = mem_grow(x->nodes, 1, sizeof(*x->nodes));
        x->nodes[x->n_nodes++] = mem_strdup(n->name);
        return;
    }
    if (text != NULL)
        line_count(m, "LeaseNone", text, n);
    free(text);
}

static void nodes_count(Sluice__Why *m, struct work *w, const struct tf *t, uint64_t bytes)
{
    unsigned others = 0;
    char large[120], size[32];

    snprintf(large, sizeof(large), "its buffer is smaller than the TF, which has %s (sluice shm, sluice shm set)", str_size_text(bytes, size));
    for (struct fnode *n = w->flow->nodes; n; n = n->hh.next) {
        if (n->node->pool != w->pool) {
            others++;
            continue;
        }
        const char *code = node_cause(n, w, t, bytes);
        line_count(m, code, strcmp(code, "TooLarge") == 0 ? large : sentence(code), n->node);
        if (strcmp(code, "NoLease") == 0)
            lease_add(m, n->node);
    }
    if (others > 0) {
        Sluice__WhyLine *x = line_add(m, "OtherPool", mem_printf("they are not in the pool %s (sluice move)", pool_name[w->pool]));
        x->has_count = true;
        x->count = others;
    }
}

static void marks_add(Sluice__Why *m, const struct node *n)
{
    const struct mark *k;

    TAILQ_FOREACH(k, &n->marks, entry) {
        bool whole = str_is_empty(k->part) || strcmp(k->part, "node") == 0;
        line_add(m, "Mark", mem_printf("%s%s by %s: %s%s", k->block ? "" : "(note only) ", whole ? "the node" : k->part, str_is_empty(k->owner) ? "?" : k->owner,
                                       str_is_empty(k->reason) ? "no reason given" : k->reason, k->closing ? " (being cleared)" : ""));
    }
}

static int why_node(struct sluiced *d, const char *name, Sluice__Why *m, struct err *e)
{
    struct node *n = farm_node(d->farm, name);
    struct verdict v;

    if (n == NULL)
        return err_set(e, ERR_NOT_FOUND, "no node %.64s", name);
    node_judge(n, &v);
    m->of = mem_printf("node %s", n->name);
    const ProtobufCEnumValue *word = protobuf_c_enum_descriptor_get_value(&sluice__node_state__descriptor, (int)v.state);
    m->state = mem_strdup(word ? word->name : "?");
    for (char *p = m->state; *p; p++)
        *p = *p >= 'A' && *p <= 'Z' ? (char)(*p - 'A' + 'a') : *p;
    if (strncmp(m->state, "node_", 5) == 0)
        memmove(m->state, m->state + 5, strlen(m->state + 5) + 1);
    for (unsigned i = 0; i < v.n_why; i++) {
        const char *text = sentence(v.why[i]);
        line_add(m, v.why[i], text ? mem_strdup(text) : NULL);
    }
    if (n->report && !str_is_empty(n->report->trouble))
        line_add(m, "Worker", mem_strdup(n->report->trouble));
    lease_add(m, n);
    marks_add(m, n);
    if (v.usable)
        line_add(m, "Usable", mem_printf("it takes work of the pool %s; %u TFs are there now, %s", pool_name[n->pool], n->n_tfs,
                                         n->n_tfs ? "more come when their turn has come" : "nothing waits that it could take"));
    return 0;
}

/* ---- jobs ---------------------------------------------------------------------------------- */

static void wait_line(Sluice__Why *m, const struct job *j, const char *code)
{
    char when[CLOCK_TEXT], *after = after_text(&j->after);
    const struct job *other = j->after.job ? job_find(j->jobs, j->after.job) : NULL;

    if (strcmp(code, "BeginTime") == 0)
        line_add(m, code, mem_printf("it is not to begin before %s", clock_rfc3339(j->begin, when)));
    else if (strcmp(code, "DependencyNotDone") == 0)
        line_add(m, code, mem_printf("it comes after %s, and job %" PRIu64 " is %s", after, j->after.job, other ? job_state_name[other->state] : "not known"));
    else
        line_add(m, code, mem_printf("it comes after %s, and job %" PRIu64 " ended otherwise: cancel it, or run that job again", after, j->after.job));
    free(after);
}

static bool goes_first(const struct work *w, const struct work *than)
{
    if (w == than || w->pool != than->pool || w->paused || (heap_top((struct heap *)&w->queue) == NULL && w->n[TF_BUILDING] + w->n[TF_BUILT] == 0))
        return false;
    if (w->priority != than->priority)
        return w->priority > than->priority;
    return work_share(w) != work_share(than) ? work_share(w) < work_share(than) : w->id < than->id;
}

static void rivals_add(Sluice__Why *m, struct work *than)
{
    struct work *w;
    unsigned n = 0;
    uint64_t first = 0;

    TAILQ_FOREACH(w, &than->flow->works, entry) {
        if (goes_first(w, than)) {
            first = n++ == 0 ? w->id : first;
        }
    }
    if (n > 0)
        line_add(m, "PriorityLower", mem_printf("%u other job%s first now, by priority, then by what their users have already: job %" PRIu64 "%s", n, n > 1 ? "s go" : " goes",
                                                first, n > 1 ? " and others" : ""));
}

/* Why nothing more of it is given out now. */
static void job_lines(Sluice__Why *m, struct job *j, const struct tf *t)
{
    struct work *w = &j->work;
    const char *waits = job_waits_for(j);
    uint64_t bytes = t ? t->bytes : 0;

    if (j->held)
        line_add(m, "Held", mem_printf("%s%ssluice job release %" PRIu64 " lets it go on", j->why ? j->why : "", j->why ? "; " : "", w->id));
    if (waits)
        wait_line(m, j, waits);
    if (j->full) {
        size_t n = strcspn(j->full, ":");
        char word[32];

        snprintf(word, sizeof(word), "%.*s", (int)n, j->full);
        line_add(m, word, mem_printf("%s", j->full + n + strspn(j->full + n, ": ")));
    }
    if (j->held || waits || j->full)
        return;
    if (j->n[TASK_WAITING] == 0) {
        line_add(m, "NothingWaits", mem_printf("all of it that is left is at nodes: %" PRIu64 " TFs", j->n[TASK_RUNNING]));
        return;
    }
    if (!writer_accepts_new(j->jobs->d->writer))
        line_add(m, "StateNotWritable", mem_strdup("sluiced cannot store anything now (sluice status)"));
    for (const struct tf *x = w->tfs; x && bytes == 0; x = x->hh.next)
        bytes = x->charge ? 0 : x->bytes;
    rivals_add(m, w);
    nodes_count(m, w, t, bytes);
}

static struct job *job_asked(struct sluiced *d, uint64_t id, struct err *e)
{
    struct job *j = job_find(d->jobs, id);

    if (j == NULL)
        err_set(e, ERR_NOT_FOUND, "no job %" PRIu64, id);
    return j;
}

/* Of those that failed, where it is in memory. */
static void aside_add(Sluice__Why *m, const struct job *j)
{
    uint64_t n = 0;

    for (uint64_t i = 0; j->task && i < j->n_tasks; i++)
        n += j->task[i].state == TASK_FAILED && j->task[i].aside;
    if (n > 0)
        line_add(m, "HeldPoison", mem_printf("%" PRIu64 " of those that failed %s set aside, as processes died of %s: sluice job tfs %" PRIu64 " -t set-aside", n,
                                             n == 1 ? "is" : "are", n == 1 ? "it" : "them", j->work.id));
}

static bool has_unpublished(const struct job *j, const struct node *n)
{
    for (const struct record *r = j->work.flow->records; r; r = r->hh.next) {
        if (r->work == &j->work && r->publish && !r->published && r->node && strcmp(r->node, n->name) == 0)
            return true;
    }
    return false;
}

/* Of a job that is over: what is done, and not to be seen yet. */
static void unpublished_add(Sluice__Why *m, const struct job *j)
{
    for (const struct node *n = j->work.records > 0 ? farm_first(j->jobs->d->farm) : NULL; n; n = n->hh.next) {
        if (has_unpublished(j, n))
            line_count(m, "Unpublished", "results that are accepted have no final name yet: the node is away and no other one finds them, or their disk is; they come when it is back, and those of a node that is retired are lost", n);
    }
}

static int why_job(struct job *j, Sluice__Why *m)
{
    m->of = mem_printf("job %" PRIu64, j->work.id);
    m->state = mem_strdup(job_state_name[j->state]);
    if (!j->ended) {
        job_lines(m, j, NULL);
        aside_add(m, j);
        return 0;
    }
    line_add(m, j->state == SLUICE__JOB_STATE__JOB_CANCELLED ? "Cancelled" : j->state == SLUICE__JOB_STATE__JOB_DONE ? "Done" : "Failed",
             mem_printf("%" PRIu64 " of %" PRIu64 " TFs done, %" PRIu64 " failed, %" PRIu64 " cancelled, %" PRIu64 " files skipped%s%s", j->n[TASK_DONE], j->n_tasks,
                        j->n[TASK_FAILED], j->n[TASK_CANCELLED], j->skipped_files, j->why ? ": " : "", j->why ? j->why : ""));
    aside_add(m, j);
    unpublished_add(m, j);
    return 0;
}

static int why_task(struct job *j, uint64_t number, Sluice__Why *m, struct err *e)
{
    if (number >= j->n_tasks)
        return err_set(e, ERR_NOT_FOUND, "job %" PRIu64 " has no TF %" PRIu64 ": it has %" PRIu64 ", from 0 on", j->work.id, number, j->n_tasks);
    if (j->task == NULL && j->pruned)
        return err_set(e, ERR_NOT_FOUND, "the tasks of job %" PRIu64 " " JOB_PRUNED_TEXT, j->work.id);
    if (j->task == NULL)
        return err_set(e, ERR_STATE, "the tasks of job %" PRIu64 " are not in memory: sluice job tfs %" PRIu64 " reads them", j->work.id, j->work.id);

    const struct task *x = &j->task[number];
    struct tf *t = tf_find(&j->work, number);
    m->of = mem_printf("TF %" PRIu64 "_%" PRIu64, j->work.id, number);
    m->state = mem_strdup(task_state_name[x->state]);
    if (x->state == TASK_RUNNING && t) {
        line_add(m, t->state == TF_BUILDING ? "Building" : "AtNode", mem_printf("try %u is at node %s for %.1f s", x->attempt, x->node, flow_now(j->work.flow) - t->entered));
        return 0;
    }
    if (x->state != TASK_WAITING) {
        line_add(m, x->code ? x->code : x->state == TASK_CANCELLED ? "Cancelled" : "Unknown",
                 mem_printf("%s%s%s%s%s", x->attempt ? "its last try" : "it was never tried", x->node ? " was at node " : "", x->node ? x->node : "", x->text ? ": " : "",
                            x->text ? x->text : ""));
        return 0;
    }
    if (t && t->tried.attempt)
        line_add(m, t->tried.word, mem_printf("try %u%s%s%s%s", t->tried.attempt, x->node ? " at node " : "", x->node ? x->node : "", t->tried.text ? ": " : "",
                                              t->tried.text ? t->tried.text : ""));
    if (t && t->state == TF_WAITING && t->due > 0)
        line_add(m, t->pulled ? "WaitingForReport" : "BackOff", mem_printf("it is given out again in %.1f s at the latest", t->due - flow_now(j->work.flow)));
    job_lines(m, j, t);
    return 0;
}

void why_ask(struct session *s, uint32_t id, const void *message)
{
    const Sluice__GetWhy *q = message;
    Sluice__Why m = SLUICE__WHY__INIT;
    struct job *j;
    struct err e;
    int rc = -1;

    if (!str_is_empty(q->node))
        rc = why_node(s->d, q->node, &m, &e);
    else if ((j = job_asked(s->d, q->job, &e)) != NULL)
        rc = q->has_tf ? why_task(j, q->tf, &m, &e) : why_job(j, &m);
    if (rc < 0)
        session_error(s, id, &e, NULL);
    else
        session_answer(s, id, &m.base);
    why_free(&m);
}
