/* report.c - what the worker says of itself
 *
 * From: all modules (worker_changed).  To: link.c (Report), a thread (RUN_DIR/status.json).
 * A report touches no disk. The status file is written by a thread, one at a time, when what it says has changed: a disk that hangs only makes it
 * old.
 */
#include "config.h"
#include "report.h"

#include "check.h"
#include "clock.h"
#include "deliver.h"
#include "device.h"
#include "file.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "resize.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPACING 0.05                             /* s between reports at least */

struct report {
    struct worker *worker;
    struct ev_timer beat, soon;
    uint64_t number;
    double   late;
    int64_t  beat_at;                            /* monotonic: when the next beat is due */
    ev_tstamp sent;
    const char *extra_word; char extra[512];

    struct pool_task task;                       /* the status file */
    bool     writing;
    char    *path, *text, *last;
    char     state[16], reason[512], word[32];
    int64_t  since;                              /* wall ns, of state and reason */
};

/* ---- what is wrong ------------------------------------------------------------------------------------- */

/* The gravest thing that keeps it from working, as far as sluiced is concerned; "" when there is none. */
static const char *trouble(const struct report *r, const char **text)
{
    const struct worker *w = r->worker;
    const char *word;

    if (!buffer_is_open(w->buffer)) {
        *text = r->extra_word != NULL && strcmp(r->extra_word, "Shm") == 0 ? r->extra : buffer_size(w->buffer) > 0 ? "the buffer gets another size"
                                                                                                               : "the buffer is being made";
        return buffer_word(w->buffer);
    }
    if (r->extra_word != NULL) {
        *text = r->extra;
        return r->extra_word;
    }
    word = gpus_trouble(w->gpus, text);
    if (word[0] != '\0')
        return word;
    word = deliver_trouble(w->deliver, text);
    if (word[0] == '\0')
        *text = "";
    return word;
}

void report_trouble(struct report *r, const char *word, const char *text)
{
    r->extra_word = word;
    worker_text(r->extra, sizeof r->extra, text);
    worker_changed(r->worker);
}

/* ---- to sluiced -------------------------------------------------------------------------------------------- */

static void fill_domains(const struct worker *w, Sluice__Report *m, char *wanted, size_t room)
{
    const char *actual = buffer_domains(w->buffer);

    place_domains_text(buffer_domains_wanted(w->buffer), wanted, room);
    m->numa_wanted = wanted[0] != '\0' ? wanted : NULL;
    m->numa_actual = actual[0] != '\0' ? (char *)actual : NULL;
    m->has_misplaced = actual[0] != '\0';
    m->misplaced = buffer_is_misplaced(w->buffer);
}

static void fill_full_jobs(const struct worker *w, Sluice__Report *m, Sluice__FullJob *full, Sluice__FullJob **fulls)
{
    struct full_job job[FULL_JOBS];

    m->n_full_jobs = deliver_full_jobs(w->deliver, job, FULL_JOBS);
    m->full_jobs = fulls;
    for (size_t i = 0; i < m->n_full_jobs; i++) {
        sluice__full_job__init(&full[i]);
        full[i].has_job = true;
        full[i].job = job[i].job;
        full[i].word = (char *)job[i].word;
        full[i].text = (char *)job[i].text;
        fulls[i] = &full[i];
    }
}

struct undelivered { struct tf_name name[UNDELIVERED]; struct tf_id id[UNDELIVERED]; Sluice__Tf *tfs[UNDELIVERED]; };

static void fill_undelivered(const struct worker *w, Sluice__Report *m, struct undelivered *u)
{
    m->n_undelivered = deliver_undelivered(w->deliver, u->name, UNDELIVERED);
    m->undelivered = u->tfs;
    for (size_t i = 0; i < m->n_undelivered; i++) {
        tf_id_fill(&u->id[i], u->name[i], (struct fence){ 0 });
        u->tfs[i] = &u->id[i].tf;
    }
}

static void send_report(struct report *r)
{
    struct worker *w = r->worker;
    Sluice__Report m = SLUICE__REPORT__INIT;
    unsigned n = devices_count(w->devices);
    Sluice__Device *dev = mem_array(n, sizeof *dev), **devs = mem_array(n, sizeof *devs);
    int32_t *nice = mem_array(n, sizeof *nice);
    const struct ranges *ranges = buffer_ranges(w->buffer);
    const char *text = "", *word = trouble(r, &text);
    char domains[200];

    n = devices_fill(w->devices, dev, nice);
    for (unsigned i = 0; i < n; i++)
        devs[i] = &dev[i];
    m.has_number = m.has_bytes_used = m.has_largest_free = m.has_building = m.has_queued = m.has_processing = m.has_delivering = 1;
    m.has_generation = m.has_refused = m.has_stale = m.has_late = m.has_buffer_size = m.has_restarts = 1;
    m.number = ++r->number;
    m.bytes_used = ranges ? ranges_used(ranges) : 0;
    m.largest_free = ranges ? ranges_largest(ranges) : 0;
    m.building = w->held.n[SLUICE__PHASE__BUILDING];
    m.queued = w->held.n[SLUICE__PHASE__QUEUED];
    m.processing = w->held.n[SLUICE__PHASE__PROCESSING];
    m.delivering = w->held.n[SLUICE__PHASE__DELIVERING] + w->held.n[SLUICE__PHASE__ACCEPTED];
    m.n_devices = n;
    m.devices = devs;
    m.generation = buffer_generation(w->buffer);
    m.n_nice = n;
    m.nice = nice;
    m.trouble = (char *)text;
    m.word = (char *)word;
    m.refused = w->refused;
    m.stale = w->stale;
    m.late = r->late;
    m.buffer_size = buffer_size(w->buffer);
    m.restarts = w->restarts;
    checks_fill(w->checks, &m);
    m.has_shm_order = resize_done(w->resize) != 0;
    m.shm_order = resize_done(w->resize);
    m.shm_failure = (char *)resize_failure(w->resize);
    m.has_parking_order = 1;
    m.parking_order = devices_park_order(w->devices);
    m.has_shm_progress = 1;
    m.shm_progress = buffer_progress(w->buffer);
    m.has_page_size = buffer_page_size(w->buffer) != 0;
    m.page_size = buffer_page_size(w->buffer);
    m.huge_wanted = (char *)buffer_huge_wanted(w->buffer);
    m.has_huge_actual = m.has_page_size;
    m.huge_actual = buffer_huge(w->buffer);
    m.nice_text = (char *)devices_nice_text(w->devices);
    fill_domains(w, &m, domains, sizeof domains);
    Sluice__FullJob full[FULL_JOBS], *fulls[FULL_JOBS];
    fill_full_jobs(w, &m, full, fulls);
    struct undelivered undelivered;
    fill_undelivered(w, &m, &undelivered);
    link_send(w->link, &m.base);
    r->sent = ev_now(w->loop);
    r->late = 0;
    free(dev);
    free(devs);
    free(nice);
}

/* ---- for people ------------------------------------------------------------------------------------------------ */

static void set_text(json_t *j, const char *key, const char *s)
{
    json_t *v = s != NULL ? json_string(s) : NULL;
    json_object_set_new(j, key, v ? v : json_null());
}

static void set_number(json_t *j, const char *key, uint64_t v)
{
    json_object_set_new(j, key, json_integer((json_int_t)v));
}

static json_t *buffer_json(const struct worker *w)
{
    const struct ranges *ranges = buffer_ranges(w->buffer);
    json_t *j = json_object();

    set_text(j, "path", buffer_path(w->buffer));
    set_number(j, "size", buffer_size(w->buffer));
    set_number(j, "wanted", w->shm_size);
    set_number(j, "used", ranges ? ranges_used(ranges) : 0);
    set_number(j, "largest_free", ranges ? ranges_largest(ranges) : 0);
    set_number(j, "generation", buffer_generation(w->buffer));
    json_object_set_new(j, "adopted", json_boolean(buffer_was_adopted(w->buffer)));
    set_number(j, "freed", buffer_freed(w->buffer));
    return j;
}

static json_t *devices_json(const struct worker *w)
{
    static const char *const state[] = { "starting", "free", "busy", "broken", "unclean", "parked" };
    unsigned n = devices_count(w->devices);
    Sluice__Device *dev = mem_array(n, sizeof *dev);
    int32_t *nice = mem_array(n, sizeof *nice);
    json_t *list = json_array();

    n = devices_fill(w->devices, dev, nice);
    for (unsigned i = 0; i < n; i++) {
        json_t *j = json_object();
        set_text(j, "serial", dev[i].serial);
        set_text(j, "state", state[dev[i].state]);
        set_text(j, "why", dev[i].why);
        json_object_set_new(j, "pid", dev[i].has_pid ? json_integer((json_int_t)dev[i].pid) : json_null());
        set_number(j, "restarts", dev[i].restarts);
        set_number(j, "stalls", dev[i].stalls);
        json_object_set_new(j, "nice", json_integer(nice[i]));
        json_array_append_new(list, j);
    }
    free(dev);
    free(nice);
    return list;
}

static char *status_text(struct report *r)
{
    struct worker *w = r->worker;
    char since[CLOCK_TEXT];
    json_t *j = json_object(), *schema = json_object();

    set_text(schema, "name", "worker");
    set_number(schema, "version", 1);
    json_object_set_new(j, "schema", schema);
    set_text(j, "node", w->node);
    set_text(j, "class", w->class->name);
    set_number(j, "pid", (uint64_t)getpid());
    set_text(j, "state", r->state);
    set_text(j, "reason", r->reason[0] ? r->reason : NULL);
    set_text(j, "word", r->word[0] ? r->word : NULL);
    set_text(j, "since", clock_rfc3339(r->since, since));
    set_text(j, "server", w->server);
    json_object_set_new(j, "registered", json_boolean(link_is_up(w->link)));
    set_text(j, "pool", w->pool_name[0] ? w->pool_name : NULL);
    json_object_set_new(j, "buffer", buffer_json(w));
    json_object_set_new(j, "devices", devices_json(w));
    set_number(j, "building", w->held.n[SLUICE__PHASE__BUILDING]);
    set_number(j, "queued", w->held.n[SLUICE__PHASE__QUEUED]);
    set_number(j, "processing", w->held.n[SLUICE__PHASE__PROCESSING]);
    set_number(j, "delivering", w->held.n[SLUICE__PHASE__DELIVERING] + w->held.n[SLUICE__PHASE__ACCEPTED]);
    set_number(j, "reported", w->held.n[SLUICE__PHASE__REPORTED]);
    char *text = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    return text;
}

static void set_state(struct report *r, const char *state, const char *word, const char *reason, int64_t since)
{
    if (strcmp(r->state, state) != 0 || strcmp(r->word, word) != 0) {
        r->since = since;
        if (strcmp(state, "error") == 0)
            log_err("worker: state error: %s: %s", word, reason);
        else
            log_info("worker: state %s", state);
    }
    snprintf(r->state, sizeof r->state, "%s", state);
    snprintf(r->word, sizeof r->word, "%s", word);
    snprintf(r->reason, sizeof r->reason, "%s", reason);
}

static void judge_state(struct report *r)
{
    struct worker *w = r->worker;
    const char *text = "", *word = trouble(r, &text);
    int64_t now = clock_wall_ns(), since = now;
    const char *link = link_trouble(w->link, &since);

    if (w->stopping)
        set_state(r, "stopping", "", "", now);
    else if ((link == NULL && !link_is_up(w->link)) || strcmp(word, "Starting") == 0)
        set_state(r, "starting", "", text, now);
    else if (link != NULL)
        set_state(r, "error", "NoScheduler", link, since);
    else if (word[0] != '\0')
        set_state(r, "error", word, text, now);
    else
        set_state(r, "running", "", "", now);
}

static void status_run(struct pool_task *t)
{
    struct report *r = CONTAINER_OF(t, struct report, task);
    struct err e;

    file_replace(r->path, r->text, strlen(r->text), 0644, &e);
}

static void status_done(struct pool_task *t)
{
    struct report *r = CONTAINER_OF(t, struct report, task);

    r->writing = false;
    free(r->last);
    r->last = r->text;
    r->text = NULL;
}

static void write_status(struct report *r)
{
    judge_state(r);
    if (r->writing)
        return;
    r->text = status_text(r);
    if (r->last != NULL && strcmp(r->text, r->last) == 0) {
        free(r->text);
        r->text = NULL;
        return;
    }
    r->writing = true;
    r->task.run = status_run;
    r->task.done = status_done;
    pool_submit(r->worker->slow, &r->task);
}

void report_last(struct report *r, const char *state, const char *reason)
{
    struct err e;

    if (r == NULL || r->writing)
        return;                                  /* its disk hangs */
    set_state(r, state, "", reason, clock_wall_ns());
    char *text = status_text(r);
    if (file_replace(r->path, text, strlen(text), 0644, &e) < 0)
        log_warning("%s", e.text);
    free(text);
}

/* ---- when ---------------------------------------------------------------------------------------------------------- */

static void beat(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct report *r = t->data;
    int64_t now = clock_mono_ns();
    double late = (double)(now - r->beat_at) / 1e9;

    (void)loop, (void)revents;
    if (late > r->late)
        r->late = late;
    r->beat_at = now + CLOCK_SECOND;
    send_report(r);
    write_status(r);
}

static void soon(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct report *r = t->data;

    (void)loop, (void)revents;
    judge_state(r);
    send_report(r);
}

void report_changed(struct report *r)
{
    if (r == NULL || ev_is_active(&r->soon))
        return;
    ev_tstamp passed = ev_now(r->worker->loop) - r->sent;
    ev_timer_set(&r->soon, passed >= SPACING ? 0 : SPACING - passed, 0);
    ev_timer_start(r->worker->loop, &r->soon);
}

void report_first(struct report *r)
{
    send_report(r);
    write_status(r);
}

struct report *report_create(struct worker *w)
{
    struct report *r = mem_zalloc(sizeof *r);

    r->worker = w;
    r->path = mem_printf("%s/status.json", w->run_dir);
    r->since = clock_wall_ns();
    snprintf(r->state, sizeof r->state, "starting");
    ev_init(&r->soon, soon);
    ev_timer_init(&r->beat, beat, 1, 1);
    r->soon.data = r->beat.data = r;
    r->beat_at = clock_mono_ns() + CLOCK_SECOND;
    ev_timer_start(w->loop, &r->beat);
    return r;
}

void report_destroy(struct report *r)
{
    if (r == NULL)
        return;
    ev_timer_stop(r->worker->loop, &r->beat);
    ev_timer_stop(r->worker->loop, &r->soon);
    free(r->path);
    free(r->text);
    free(r->last);
    free(r);
}
