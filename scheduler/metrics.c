/* metrics.c - the daemon's numbers as Prometheus text, from one table
 *
 * From: every part of the daemon.  To: `sluice metrics`, a scraper.
 * Labels are nodes, pools, classes and fixed words; free text (reasons, names of jobs and runs) never becomes one, so that the number of series depends
 * on the farm alone.
 */
#include "config.h"

#include "show.h"

#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "events.h"
#include "flow.h"
#include "health.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "node.h"
#include "ran.h"
#include "slurm_farm.h"
#include "str.h"

static const char *const state_word[] = { "idle", "busy", "full", "moving", "bad", "error", "down" };

/* What several rows read, taken once. */
struct scrape {
    struct sluiced *d;
    struct writer_state writer;
    struct { unsigned nodes, usable; } pool[2];
    unsigned alarms;
    struct str *out;
};

struct metric {
    const char *name, *type, *help;
    double (*value)(const struct scrape *s);                             /* one number, or: */
    void   (*series)(const struct scrape *s, const char *name);
};

/* ---- one number each ---- */

static double m_up(const struct scrape *s) { (void)s; return 1; }
static double m_epoch(const struct scrape *s) { return (double)s->d->epoch; }
static double m_started(const struct scrape *s) { return (double)s->d->started / 1e9; }
static double m_seq(const struct scrape *s) { return (double)history_seq(s->d->history); }
static double m_marks(const struct scrape *s) { return marks_open(s->d->marks); }
static double m_marks_not_stored(const struct scrape *s) { return marks_not_stored(s->d->marks); }
static double m_moves(const struct scrape *s) { return moves_open(s->d->moves); }
static double m_clients(const struct scrape *s) { return sessions_clients(s->d->sessions); }
static double m_alarms(const struct scrape *s) { return s->alarms; }
static double m_writable(const struct scrape *s) { return s->writer.writable; }
static double m_commits(const struct scrape *s) { return (double)s->writer.commits; }
static double m_changes(const struct scrape *s) { return (double)s->writer.changes; }
static double m_refused(const struct scrape *s) { return (double)s->writer.refused; }
static double m_queued(const struct scrape *s) { return (double)s->writer.queued; }
static double m_kept(const struct scrape *s) { return (double)s->writer.kept; }
static double m_last_commit(const struct scrape *s) { return s->writer.last_commit_s; }
static double m_slowest_commit(const struct scrape *s) { return s->writer.slowest_commit_s; }
static double m_log_bytes(const struct scrape *s) { return (double)s->writer.log_bytes; }
static double m_names_stuck(const struct scrape *s) { return names_stuck_s(s->d->names); }
static double m_stalled(const struct scrape *s) { return farm_stalled_s(s->d->farm); }

/* ---- series ---- */

static void connections(const struct scrape *s, const char *name)
{
    struct listener_stats st = sessions_stats(s->d->sessions);

    str_addf(s->out, "%s{end=\"accepted\"} %" PRIu64 "\n%s{end=\"refused\"} %" PRIu64 "\n", name, st.accepted, name, st.refused);
    str_addf(s->out, "%s{end=\"silent\"} %" PRIu64 "\n%s{end=\"malformed\"} %" PRIu64 "\n", name, st.timed_out, name, st.bad);
}

static void pool_nodes(const struct scrape *s, const char *name)
{
    for (int p = 0; p < 2; p++)
        str_addf(s->out, "%s{pool=\"%s\"} %u\n", name, pool_name[p], s->pool[p].nodes);
}

static void pool_usable(const struct scrape *s, const char *name)
{
    for (int p = 0; p < 2; p++)
        str_addf(s->out, "%s{pool=\"%s\"} %u\n", name, pool_name[p], s->pool[p].usable);
}

static void pool_min_good(const struct scrape *s, const char *name)
{
    for (int p = 0; p < 2; p++)
        str_addf(s->out, "%s{pool=\"%s\"} %u\n", name, pool_name[p], s->d->conf->pools[p].min_good);
}

static void brake_on(const struct scrape *s, const char *name)
{
    for (int p = 0; p < 2; p++)
        str_addf(s->out, "%s{pool=\"%s\"} %d\n", name, pool_name[p], health_brake_is_on(s->d, p));
}

static void each_node(const struct scrape *s, const char *name, bool (*value)(const struct node *n, double *out))
{
    double v;

    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        if (show_is_shown(n) && value(n, &v))
            str_addf(s->out, "%s{node=\"%s\",pool=\"%s\",class=\"%s\"} %.17g\n", name, n->name, pool_name[n->pool], n->class, v);
    }
}

static bool usable_of(const struct node *n, double *v)
{
    struct verdict verdict;

    node_judge(n, &verdict);
    *v = verdict.usable;
    return true;
}

static bool silence_of(const struct node *n, double *v)
{
    *v = clock_mono_s() - n->last_contact;
    return n->last_contact > 0;
}

static bool charged_of(const struct node *n, double *v) { *v = (double)n->load.charged; return true; }
static bool tfs_of(const struct node *n, double *v) { *v = n->n_tfs; return true; }
static bool done_of(const struct node *n, double *v) { *v = (double)n->done; return true; }
static bool failed_of(const struct node *n, double *v) { *v = (double)n->failed; return true; }
static bool refused_of(const struct node *n, double *v) { *v = (double)n->refused; return true; }
static bool used_of(const struct node *n, double *v) { *v = n->report == NULL ? 0 : (double)n->report->bytes_used; return n->report != NULL; }
static bool late_of(const struct node *n, double *v) { *v = n->report == NULL ? 0 : n->report->late; return n->report != NULL && n->report->has_late; }
static bool offset_of(const struct node *n, double *v) { *v = offset_value(&n->clock); return n->clock.known; }

static bool size_of(const struct node *n, double *v)
{
    if (n->registered == NULL)
        return false;
    *v = (double)(n->report != NULL && n->report->has_buffer_size ? n->report->buffer_size : n->registered->buffer_size);
    return true;
}

static void node_usable(const struct scrape *s, const char *name) { each_node(s, name, usable_of); }
static void node_silence(const struct scrape *s, const char *name) { each_node(s, name, silence_of); }
static void node_size(const struct scrape *s, const char *name) { each_node(s, name, size_of); }
static void node_charged(const struct scrape *s, const char *name) { each_node(s, name, charged_of); }
static void node_used(const struct scrape *s, const char *name) { each_node(s, name, used_of); }
static void node_tfs(const struct scrape *s, const char *name) { each_node(s, name, tfs_of); }
static void node_done(const struct scrape *s, const char *name) { each_node(s, name, done_of); }
static void node_failed(const struct scrape *s, const char *name) { each_node(s, name, failed_of); }
static void node_refused(const struct scrape *s, const char *name) { each_node(s, name, refused_of); }
static void node_late(const struct scrape *s, const char *name) { each_node(s, name, late_of); }
static void node_offset(const struct scrape *s, const char *name) { each_node(s, name, offset_of); }

static void node_state(const struct scrape *s, const char *name)
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        struct verdict v;

        if (!show_is_shown(n))
            continue;
        node_judge(n, &v);
        for (size_t i = 0; i < ARRAY_LEN(state_word); i++)
            str_addf(s->out, "%s{node=\"%s\",state=\"%s\"} %d\n", name, n->name, state_word[i], (size_t)v.state == i);
    }
}

static void node_marks(const struct scrape *s, const char *name)
{
    static const char *const kinds[] = { "person", "health", "slurm", "tool" };

    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        for (size_t k = 0; show_is_shown(n) && k < ARRAY_LEN(kinds); k++) {
            const struct mark *m;
            unsigned count = 0;

            TAILQ_FOREACH(m, &n->marks, entry)
                count += str_equal(m->owner_kind, kinds[k]);
            str_addf(s->out, "%s{node=\"%s\",owner=\"%s\"} %u\n", name, n->name, kinds[k], count);
        }
    }
}

static void each_device(const struct scrape *s, const char *name, uint64_t (*value)(const Sluice__Device *d))
{
    for (struct node *n = farm_first(s->d->farm); n != NULL; n = n->hh.next) {
        Sluice__Device **devices;
        size_t count = show_is_shown(n) ? node_devices(n, &devices) : 0;

        for (size_t i = 0; i < count; i++) {
            if (devices[i]->serial != NULL && strpbrk(devices[i]->serial, "\"\\\n") == NULL)
                str_addf(s->out, "%s{node=\"%s\",device=\"%s\"} %" PRIu64 "\n", name, n->name, devices[i]->serial, value(devices[i]));
        }
    }
}

static void stage_tfs(const struct scrape *s, const char *name)
{
    for (const struct ran *r = flow_ran(s->d->flow); r != NULL; r = r->next)
        str_addf(s->out, "%s{stage=\"%s\",backend=\"%s\"} %" PRIu64 "\n", name, r->stage, r->backend, r->tfs);
}

static void stage_fallbacks(const struct scrape *s, const char *name)
{
    for (const struct ran *r = flow_ran(s->d->flow); r != NULL; r = r->next)
        str_addf(s->out, "%s{stage=\"%s\",backend=\"%s\"} %" PRIu64 "\n", name, r->stage, r->backend, r->fallbacks);
}

static uint64_t stalls_of(const Sluice__Device *d) { return d->stalls; }
static uint64_t restarts_of(const Sluice__Device *d) { return d->restarts; }

static void device_stalls(const struct scrape *s, const char *name) { each_device(s, name, stalls_of); }
static void device_restarts(const struct scrape *s, const char *name) { each_device(s, name, restarts_of); }

static void event_line(void *arg, const char *event, uint64_t value)
{
    str_addf(arg, "sluice_events_total{event=\"%s\"} %" PRIu64 "\n", event, value);
}

static void events_total(const struct scrape *s, const char *name)
{
    (void)name;
    counters_each(s->d->counters, event_line, s->out);
}

/* Runs and jobs as sums over all: their number is not bounded. */
static void open_runs(const struct scrape *s, const char *name)
{
    Sluice__Run **runs;
    size_t n;
    uint64_t in_flight = 0, queued = 0;

    run_fill(s->d, false, 0, &runs, &n);
    for (size_t i = 0; i < n; i++) {
        in_flight += runs[i]->in_flight;
        queued += runs[i]->queued;
    }
    str_addf(s->out, "%s{what=\"runs\"} %zu\n%s{what=\"tfs_in_flight\"} %" PRIu64 "\n%s{what=\"tfs_queued\"} %" PRIu64 "\n", name, n, name, in_flight, name, queued);
    run_fill_free(runs, n);
}

static void open_jobs(const struct scrape *s, const char *name)
{
    Sluice__Job **jobs;
    size_t n;
    uint64_t waiting = 0, running = 0;

    job_fill(s->d, false, 0, &jobs, &n);
    for (size_t i = 0; i < n; i++) {
        waiting += jobs[i]->waiting;
        running += jobs[i]->running;
    }
    str_addf(s->out, "%s{what=\"jobs\"} %zu\n%s{what=\"tasks_waiting\"} %" PRIu64 "\n%s{what=\"tasks_running\"} %" PRIu64 "\n", name, n, name, waiting, name, running);
    job_fill_free(jobs, n);
}

static double m_slurm_silent(const struct scrape *s) { return slurm_silent_s(s->d); }

static void slurm_nodes(const struct scrape *s, const char *name)
{
    struct slurm_count c;

    slurm_count(s->d, &c);
    str_addf(s->out, "%s{of=\"sluice\"} %u\n%s{of=\"slurm\"} %u\n%s{of=\"lease\"} %u\n", name, c.ours, name, c.slurm, name, c.leased);
}

/* clang-format off */
static const struct metric table[] = {
    { "sluice_up",                         "gauge",   "The scheduler answers.",                                         m_up, NULL },
    { "sluice_epoch",                      "gauge",   "Number of this start.",                                          m_epoch, NULL },
    { "sluice_start_time_seconds",         "gauge",   "When it started, Unix time.",                                    m_started, NULL },
    { "sluice_history_seq",                "counter", "Number of the newest line of history.",                          m_seq, NULL },
    { "sluice_clients",                    "gauge",   "Connections of people.",                                         m_clients, NULL },
    { "sluice_handshakes_total",           "counter", "Connections, by the end of their handshake.",                    NULL, connections },
    { "sluice_alarms",                     "gauge",   "Alarms that status shows.",                                      m_alarms, NULL },
    { "sluice_marks",                      "gauge",   "Open marks.",                                                    m_marks, NULL },
    { "sluice_marks_not_stored",           "gauge",   "Marks that act but are not on disk.",                            m_marks_not_stored, NULL },
    { "sluice_moves",                      "gauge",   "Open moves.",                                                    m_moves, NULL },
    { "sluice_state_writable",             "gauge",   "1 while changes can be stored.",                                 m_writable, NULL },
    { "sluice_state_commits_total",        "counter", "Transactions committed.",                                        m_commits, NULL },
    { "sluice_state_changes_total",        "counter", "Changes stored.",                                                m_changes, NULL },
    { "sluice_state_refused_total",        "counter", "Changes that could not be stored.",                              m_refused, NULL },
    { "sluice_state_queued",               "gauge",   "Changes waiting to be stored.",                                  m_queued, NULL },
    { "sluice_state_kept",                 "gauge",   "Of them those that are kept until they can be.",                 m_kept, NULL },
    { "sluice_state_commit_seconds",       "gauge",   "Duration of the last commit.",                                   m_last_commit, NULL },
    { "sluice_state_commit_seconds_max",   "gauge",   "Duration of the slowest commit.",                                m_slowest_commit, NULL },
    { "sluice_state_log_bytes",            "gauge",   "Size of the write-ahead log.",                                   m_log_bytes, NULL },
    { "sluice_names_stuck_seconds",        "gauge",   "For how long the name thread has waited for one answer.",        m_names_stuck, NULL },
    { "sluice_loop_stalled_seconds_max",   "gauge",   "The longest time the loop stood still.",                         m_stalled, NULL },
    { "sluice_events_total",               "counter", "What happened, by name.",                                        NULL, events_total },
    { "sluice_pool_nodes",                 "gauge",   "Nodes of the pool.",                                             NULL, pool_nodes },
    { "sluice_pool_usable_nodes",          "gauge",   "Nodes of the pool that take work.",                              NULL, pool_usable },
    { "sluice_pool_min_good",              "gauge",   "Usable nodes that a move leaves in the pool.",                   NULL, pool_min_good },
    { "sluice_health_brake_on",            "gauge",   "1 while health marks no node of the pool any more.",             NULL, brake_on },
    { "sluice_slurm_silent_seconds",       "gauge",   "Since Slurm's last answer, 0 while it answers.",                 m_slurm_silent, NULL },
    { "sluice_slurm_nodes",                "gauge",   "Nodes that may be lent: ours, Slurm's, Slurm's with our lease.", NULL, slurm_nodes },
    { "sluice_online",                     "gauge",   "Open runs and their time-frames.",                               NULL, open_runs },
    { "sluice_async",                      "gauge",   "Open jobs and their tasks.",                                     NULL, open_jobs },
    { "sluice_node_usable",                "gauge",   "1 while the node takes work.",                                   NULL, node_usable },
    { "sluice_node_state",                 "gauge",   "1 for the state the node is in.",                                NULL, node_state },
    { "sluice_node_marks",                 "gauge",   "Open marks of the node, by kind of owner.",                      NULL, node_marks },
    { "sluice_node_last_contact_seconds",  "gauge",   "Since the last sign of life of the node's worker.",              NULL, node_silence },
    { "sluice_node_late_seconds",          "gauge",   "How late the worker's own timer was.",                           NULL, node_late },
    { "sluice_node_clock_offset_seconds",  "gauge",   "The worker's clock minus ours.",                                 NULL, node_offset },
    { "sluice_node_buffer_bytes",          "gauge",   "Size of the node's buffer.",                                     NULL, node_size },
    { "sluice_node_buffer_charged_bytes",  "gauge",   "Charged to it in the ledger.",                                   NULL, node_charged },
    { "sluice_node_buffer_used_bytes",     "gauge",   "Used as the worker reports.",                                    NULL, node_used },
    { "sluice_node_tfs",                   "gauge",   "Time-frames on the node.",                                       NULL, node_tfs },
    { "sluice_node_done_total",            "counter", "Time-frames done there.",                                        NULL, node_done },
    { "sluice_node_failed_total",          "counter", "Attempts failed there.",                                         NULL, node_failed },
    { "sluice_node_refused_total",         "counter", "Assignments refused there.",                                     NULL, node_refused },
    { "sluice_stage_tfs_total",            "counter", "Time-frames done, by stage and the backend that ran it.",       NULL, stage_tfs },
    { "sluice_stage_fallbacks_total",      "counter", "Those of them on which auto had to take that backend.",         NULL, stage_fallbacks },
    { "sluice_device_stalls_total",        "counter", "Times the device made no progress, since its worker started.",  NULL, device_stalls },
    { "sluice_device_restarts_total",      "counter", "Reconstruction processes of the device replaced.",               NULL, device_restarts },
};
/* clang-format on */

static void count_alarm(void *arg, const struct alarm *a)
{
    (void)a;
    ++*(unsigned *)arg;
}

static void scrape_take(struct scrape *s, struct sluiced *d)
{
    writer_state(d->writer, &s->writer);
    alarms_each(d, count_alarm, &s->alarms);
    for (int p = 0; p < 2; p++)
        s->pool[p].usable = farm_usable(d->farm, p);
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next)
        s->pool[n->pool].nodes += n->added;
}

char *metrics_text(struct sluiced *d)
{
    struct str out = { 0 };
    struct scrape s = { .d = d, .out = &out };

    scrape_take(&s, d);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        const struct metric *m = &table[i];

        str_addf(&out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
        if (m->value != NULL)
            str_addf(&out, "%s %.17g\n", m->name, m->value(&s));
        else
            m->series(&s, m->name);
    }
    return str_take(&out);
}
