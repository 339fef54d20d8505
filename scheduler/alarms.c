/* alarms.c - what somebody should look at, with what to do about it
 *
 * From: every part of the daemon.  To: status, metrics.
 * An alarm is computed from how things are now; nothing has to be switched off. alarm.h says what tells two of them apart.
 */
#include "config.h"

#include "show.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "flow.h"
#include "health.h"
#include "hostlist.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "node.h"
#include "slurm_farm.h"
#include "str.h"

struct alarms { struct sluiced *d; alarm_fn fn; void *arg; };

static const double names_limit_s = 2;
static const double refusal_shown_s = 60;
static const double clock_limit_s = 2;

/* One alarm of its word. */
static void tell(struct alarms *a, const char *word, const char *text, const char *advice, double since_s)
{
    a->fn(a->arg, &(struct alarm){ .word = word, .text = text, .advice = advice, .since_s = since_s });
}

/* One of several of its word: what = "pool" or "node", name which. */
static void tell_about(struct alarms *a, const char *word, const char *what, const char *name, const char *text, const char *advice, double since_s)
{
    char about[96];

    snprintf(about, sizeof(about), "%s %s", what, name);
    a->fn(a->arg, &(struct alarm){ .word = word, .about = about, .text = text, .advice = advice, .since_s = since_s });
}

static void about_state(struct alarms *a)
{
    static const char *const free_space = "free space in the state folder (sluice config show: state_dir) or end who locks it; it goes on by itself";
    static const char *const mend_file = "put the file right as the text says, before sluiced is restarted: what waits in memory is lost with it";
    struct writer_state w;
    char text[800];

    writer_state(a->d->writer, &w);
    if (!w.writable) {
        snprintf(text, sizeof(text), "the state is not writable: %s; new moves, runs and jobs are refused, %llu changes wait in memory", w.why, (unsigned long long)w.kept);
        tell(a, "StateNotWritable", text, w.broken ? mend_file : free_space, w.since_s);
    } else if (w.waiting_s > 2) {
        snprintf(text, sizeof(text), "nothing could be stored for %.0f s: another process holds the lock of the database", w.waiting_s);
        tell(a, "StateLocked", text, "end whoever has state.db open (fuser state.db); read a copy made with `sluice backup` instead", w.waiting_s);
    }
    if (w.log_bytes > WRITER_LOG_WARNING) {
        snprintf(text, sizeof(text), "the write-ahead log has %llu MiB: somebody keeps a read transaction open", (unsigned long long)(w.log_bytes >> 20));
        tell(a, "StateLogGrows", text, "end the reader (fuser state.db); the file shrinks by itself", 0);
    }
    if (marks_not_stored(a->d->marks) > 0) {
        snprintf(text, sizeof(text), "%u marks act but are not on disk", marks_not_stored(a->d->marks));
        tell(a, "MarksNotStored", text, w.broken ? mend_file : "free space in the state folder before sluiced is restarted", w.since_s);
    }
}

/* Names of at most six nodes, folded to a sentence: "n001, n002 and 3 more". */
struct listed { struct str names; struct hostlist *all; unsigned n; double longest; const char *first; };     /* first: what the first of them lacks, or NULL */

static void list_add(struct listed *l, const char *name, double since, const char *lacks)
{
    if (l->n < 6)
        str_addf(&l->names, "%s%s", l->n == 0 ? "" : ", ", name);
    if (l->n == 0) {
        l->first = lacks;
        l->all = hostlist_create();
    }
    hostlist_add(l->all, name, NULL);
    l->n++;
    if (since > l->longest)
        l->longest = since;
}

static void list_raise(struct alarms *a, struct listed *l, const char *word, const char *what, const char *advice)
{
    if (l->n > 6)
        str_addf(&l->names, " and %u more", l->n - 6);
    if (l->n > 0) {
        char *text = mem_printf("%u node%s %s: %s%s%s", l->n, l->n == 1 ? "" : "s", what, str_text(&l->names),
                                l->first == NULL ? "" : l->n == 1 ? ": " : "; the first one says: ", l->first == NULL ? "" : l->first);

        a->fn(a->arg, &(struct alarm){ .word = word, .text = text, .advice = advice, .since_s = l->longest, .count = l->n, .things = l->all });
        free(text);
    }
    hostlist_destroy(l->all);
    str_free(&l->names);
}

/* A mark about a device that its node has no longer: somebody changed it, and the mark went on. */
static bool has_mark_of_the_gone(const struct node *n)
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (strcmp(m->part, "node") != 0 && n->registered != NULL && !node_part_is_here(n, m->part))
            return true;
    }
    return false;
}

static bool has_wrong_results(const struct node *n)
{
    const struct mark *m;

    TAILQ_FOREACH(m, &n->marks, entry) {
        if (strcmp(m->owner_kind, "health") == 0 && strcmp(m->owner, "verify") == 0)
            return true;
    }
    return false;
}

static void about_nodes(struct alarms *a)
{
    struct listed lost = { 0 }, aside = { 0 }, classless = { 0 }, trouble = { 0 }, clocks = { 0 }, old = { 0 }, wrong = { 0 };
    double since_s;

    for (struct node *n = farm_first(a->d->farm); n != NULL; n = n->hh.next) {
        bool here = n->contact == SLUICE__CONTACT__UP;

        if (n->added && node_has_gone(n, &since_s))
            list_add(&lost, n->name, since_s, NULL);
        if (n->added && conf_class_find(a->d->conf, n->class) == NULL)
            list_add(&classless, n->name, 0, NULL);
        if (!n->added && here)
            list_add(&aside, n->name, 0, NULL);
        if (n->added && here && n->report != NULL && n->report->trouble != NULL && n->report->trouble[0] != '\0' && !node_says_resizing(n))
            list_add(&trouble, n->name, 0, n->report->trouble);
        if (here && n->clock.known && (n->clock.low > clock_limit_s || n->clock.high < -clock_limit_s))
            list_add(&clocks, n->name, 0, NULL);
        if (has_wrong_results(n))
            list_add(&wrong, n->name, 0, NULL);
        if (here && has_mark_of_the_gone(n))
            list_add(&old, n->name, 0, NULL);
    }
    list_raise(a, &lost, "NodesLost", "without contact", "look at the machine and at sluice-worker there (sluice node show NAME)");
    list_raise(a, &aside, "NotAdded", "registered but not added", "sluice node add NAME --class CLASS, or stop the worker");
    list_raise(a, &classless, "ClassUnknown", "of a class that the configuration does not have", "put the class back into the configuration and send SIGHUP, or retire the nodes");
    list_raise(a, &trouble, "WorkerTrouble", "in contact but unable to work", "give it what it lacks (sluice node show NAME); it goes on by itself");
    list_raise(a, &wrong, "WrongResults", "with results that other nodes showed to be wrong",
               "sluice node show NAME has the digests; sluice mark NAME REASON takes it out, sluice clear NAME REASON --any-owner after a look");
    list_raise(a, &old, "PartGone", "with a mark about a part no longer present", "sluice nodes -R says which; if it was replaced: sluice clear NODE REASON --id MARK");
    list_raise(a, &clocks, "ClockOffset", "with a clock that is off by more than 2 s", "look at the time service there; nothing in Sluice depends on it");
}

static void about_refusals(struct alarms *a)
{
    for (struct node *n = farm_first(a->d->farm); n != NULL; n = n->hh.next) {
        if (n->refusal[0] != '\0' && clock_mono_s() - n->refused_at < refusal_shown_s)
            tell_about(a, "WorkerRefused", "node", n->name, n->refusal,
                       n->other_version_at == n->refused_at ? "install this release of Sluice there, or a neighbouring one" : "one worker a node: end the other one, or correct its --node or --class", clock_mono_s() - n->refused_at);
    }
}

static void about_jobs(struct alarms *a, int pool)
{
    char text[500], why[160], *lease;
    uint64_t first = 0;
    unsigned n = job_count_stuck(a->d, pool, &first, why);

    if (n == 0)
        return;
    lease = pool == POOL_ASYNC ? slurm_stuck_why(a->d) : NULL;
    snprintf(text, sizeof(text), "%u job%s wait%s for nodes that pool %s does not have, job %llu first: %s%s%.200s", n, n == 1 ? "" : "s", n == 1 ? "s" : "",
             pool_name[pool], (unsigned long long)first, why, lease == NULL ? "" : "; ", lease == NULL ? "" : lease);
    tell_about(a, "JobsStuck", "pool", pool_name[pool], text,
               lease == NULL && strncmp(why, "TooLarge", 8) == 0 ? "give nodes there larger buffers (sluice shm set), move such nodes there, or cancel the job" :
               lease == NULL ? "move nodes there (sluice move LIST --to POOL), or cancel the job" : "sluice why JOB says what each lease waits for; nodes of pool online can be moved there only to be Slurm's, too", 0);
    free(lease);
}

static void about_full_jobs(struct alarms *a)
{
    const char *why = NULL;
    char text[400];
    uint64_t first = 0;
    unsigned n = job_count_full(a->d, &first, &why);

    if (n == 0)
        return;
    snprintf(text, sizeof(text), "%u job%s paused, job %llu first: %.300s", n, n == 1 ? " is" : "s are", (unsigned long long)first, why);
    a->fn(a->arg, &(struct alarm){ .word = "JobsPaused", .text = text, .count = n, .advice = strncmp(why, "OutputReadOnly", 14) == 0 ? "make that file system writable again; they go on by themselves within seconds"
                                                                      : "make room there; they go on by themselves within seconds" });
}

static void about_pools(struct alarms *a)
{
    static const char *const see_why = "see why its nodes are not usable (sluice nodes -p POOL); put that right, clear marks, or move nodes there";
    char text[160];

    about_full_jobs(a);
    for (int p = 0; p < 2; p++) {
        unsigned usable = farm_good(a->d->farm, p), min = a->d->conf->pools[p].min_good;

        if (usable < min) {
            snprintf(text, sizeof(text), "pool %s has %u usable nodes, its min_good is %u", pool_name[p], usable, min);
            tell_about(a, "PoolMinimum", "pool", pool_name[p], text, see_why, 0);
        }
        about_jobs(a, p);
    }
}

static void about_brakes(struct alarms *a)
{
    for (int p = 0; p < 2; p++) {
        struct str text = { 0 };

        if (health_brake_text(a->d, p, &text))
            tell_about(a, "HealthBrake", "pool", pool_name[p], str_text(&text), "look for one cause of all (sluice health, sluice nodes -R), then sluice health --reset", 0);
        str_free(&text);
    }
}

struct failed { unsigned n; const struct node *first; struct hostlist *names; };

static void count_failed(void *arg, const struct node *n)
{
    struct failed *all = arg;

    if (all->n++ == 0)
        all->first = n;
    hostlist_add(all->names, n->name, NULL);
}

static void about_buffers(struct alarms *a)
{
    struct failed all = { .names = hostlist_create() };
    char text[640], wanted[32];

    shm_each_failed(a->d, count_failed, &all);
    if (all.n == 0) {
        hostlist_destroy(all.names);
        return;
    }
    snprintf(text, sizeof(text), "%u buffer%s could not get %s size; node %s is to have %s: %s", all.n, all.n == 1 ? "" : "s", all.n == 1 ? "its" : "their", all.first->name,
             str_size_text(shm_wanted(all.first), wanted), all.first->shm.text);
    a->fn(a->arg, &(struct alarm){ .word = "ShmNotSet", .text = text, .count = all.n, .things = all.names,
                                   .advice = "make room there, or want less, then `sluice shm set` again; sluice shm lists them" });
    hostlist_destroy(all.names);
}

static void about_ourselves(struct alarms *a)
{
    char text[640];
    double stuck = names_stuck_s(a->d->names);

    if (stuck > names_limit_s) {
        snprintf(text, sizeof(text), "the name thread has waited %.0f s for munge, the user database or DNS", stuck);
        tell(a, "NamesStuck", text, "look at munged, the user database and DNS of this machine; people may be refused meanwhile", stuck);
    }
    if (a->d->reload_failed != 0) {
        snprintf(text, sizeof(text), "the configuration was not taken: %s", a->d->reload_why);
        tell(a, "ConfigRefused", text, "correct the file (sluiced --check-config) and send SIGHUP again; the old one holds",
              (double)(clock_wall_ns() - a->d->reload_failed) / 1e9);
    }
}

void alarms_each(struct sluiced *d, alarm_fn fn, void *arg)
{
    struct alarms a = { d, fn, arg };

    about_state(&a);
    about_nodes(&a);
    about_refusals(&a);
    about_pools(&a);
    about_brakes(&a);
    about_buffers(&a);
    about_ourselves(&a);
    slurm_alarms(d, fn, arg);
    flow_alarms(d->flow, fn, arg);
}
