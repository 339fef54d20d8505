/* deliver.c - results become files
 *
 * From: device_talk.c (results), link.c (verdicts).  To: outfile.c, outpublish.c (in threads), held.c (Done), link.c (Published).
 * A result is kept in its sealed memory until it is on disk. A disk that is full or fails is tried again, with growing pauses, as long as it takes:
 * meanwhile the results that wait are bounded, the devices stop, sluiced sees the trouble in the reports.
 */
#include "config.h"
#include "deliver.h"

#include "clock.h"
#include "device.h"
#include "frame.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "outcheck.h"
#include "outname.h"
#include "str.h"
#include "worker.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAUSE_FIRST_S 0.2
#define PAUSE_MOST_S  5.0

enum delivery_step { STEP_WRITE, STEP_PUBLISH, STEP_REMOVE };

struct delivery {
    TAILQ_ENTRY(delivery) entry;
    struct deliver *all;
    struct held *held;                           /* NULL: a stray verdict */
    struct pool_task task;
    enum delivery_step step;
    bool     running, cancelled, undelivered;
    bool     for_another;                        /* a stray verdict on what another node wrote: it may lie where only that one sees it */
    struct user_id user;
    char    *dir, *stem;
    struct fence fence; struct tf_name tf;
    struct output *out; unsigned n;
    dev_t    disk;                               /* where they were written; 0: not known */
    Sluice__Done *done;                          /* filled but for what delivery itself adds; memory of ours */
    char    *device;
    enum deliver_end end; struct err why;        /* the thread's */
    int64_t  begun, step_at, again_at;           /* monotonic; worker_now */
    double   pause;
    bool     full; const char *told_word; struct err told;       /* how its last try ended, for the loop while the next one runs */
};

struct deliver {
    struct worker *worker;
    TAILQ_HEAD(, delivery) list;
    unsigned undelivered, limit;
    uint64_t full_sum;                           /* of the jobs whose disk is full, and of what waits for a disk, as reported last */
    const char *word;                            /* "" when all is well */
    char text[512];
};

struct deliver *deliver_create(struct worker *w)
{
    struct deliver *d = mem_zalloc(sizeof *d);

    d->worker = w;
    d->limit = 2 * w->class->devices + 2;
    d->word = "";
    TAILQ_INIT(&d->list);
    return d;
}

void deliver_destroy(struct deliver *d)
{
    struct delivery *x;

    if (d == NULL)
        return;
    while ((x = TAILQ_FIRST(&d->list)) != NULL)
        delivery_free(x);                        /* strays: those of held TFs went with these */
    free(d);
}

/* What waits for the full disk of a job leaves the room of the others. */
bool deliver_has_room(const struct deliver *d, uint64_t job)
{
    const struct delivery *x;
    unsigned full = 0;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (!x->full || x->tf.job == 0)
            continue;
        if (x->tf.job == job)
            return false;
        full += x->undelivered;
    }
    return d->undelivered - full < d->limit;
}

const char *deliver_trouble(const struct deliver *d, const char **text)
{
    *text = d->text;
    return d->word;
}

/* ---- what came from the process -------------------------------------------------------------------- */

static bool stage_ok(const char *s)
{
    size_t n = s ? strlen(s) : 0;

    for (size_t i = 0; i < n; i++) {
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '_' && s[i] != '-')
            return false;
    }
    return n > 0 && n < OUTPUT_STAGE;
}

static bool digest_ok(const char *s)
{
    return s != NULL && strlen(s) == 16 && strspn(s, "0123456789abcdef") == 16;
}

static int check_output(const Sluice__Output *o, int fd, struct err *e)
{
    const int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    struct stat st;

    if (!stage_ok(o->stage) || !digest_ok(o->digest))
        return err_set(e, ERR_PROTOCOL, "its result has an output without a sound name or digest");
    if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != o->size)
        return err_set(e, ERR_PROTOCOL, "its output %s: %" PRIu64 " bytes announced, the descriptor has %jd", o->stage, o->size,
                       (intmax_t)st.st_size);
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & sealed) != sealed)
        return err_set(e, ERR_PROTOCOL, "its output %s: a sealed memfd wanted (shrink, grow, write)", o->stage);
    return 0;
}

int deliver_check(const Sluice__RecoDone *m, const int *fds, unsigned n_fds, struct err *e)
{
    if (m->n_outputs != n_fds || n_fds > OUTPUTS_MOST)
        return err_set(e, ERR_PROTOCOL, "its result has %zu outputs and %u descriptors, at most %d each", m->n_outputs, n_fds, OUTPUTS_MOST);
    if (!digest_ok(m->digest))
        return err_set(e, ERR_PROTOCOL, "its result has no digest of 16 hex digits");
    for (unsigned i = 0; i < n_fds; i++) {
        if (check_output(m->outputs[i], fds[i], e) < 0)
            return -1;
        for (unsigned k = 0; k < i; k++) {
            if (strcmp(m->outputs[i]->stage, m->outputs[k]->stage) == 0)
                return err_set(e, ERR_PROTOCOL, "its result has the output %s twice", m->outputs[i]->stage);
        }
    }
    return 0;
}

static void set_text(json_t *j, const char *key, const char *s)
{
    json_t *v = s != NULL ? json_string(s) : NULL;           /* NULL for what is no UTF-8, too */
    json_object_set_new(j, key, v ? v : json_null());
}

static void set_number(json_t *j, const char *key, uint64_t v)
{
    json_object_set_new(j, key, json_integer((json_int_t)v));
}

static json_t *stages_json(const Sluice__RecoDone *m)
{
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_stages; i++) {
        json_t *j = json_object();
        set_text(j, "stage", m->stages[i]->stage);
        set_text(j, "backend", m->stages[i]->backend);
        set_text(j, "fallback", m->stages[i]->fallback);
        json_object_set_new(j, "seconds", json_real(m->stages[i]->seconds));
        set_number(j, "items", m->stages[i]->items);
        json_array_append_new(list, j);
    }
    return list;
}

/* The set of conditions that went into a result. The stages that there are use none: what they do follows from workflow, backends and options alone. */
static json_t *conditions_json(void)
{
    static const char *const names[] = { "version", "drift_velocity", "t0", "field", "gain_map", "correction_map" };
    json_t *j = json_object();

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        json_object_set_new(j, names[i], json_null());
    return j;
}

static json_t *outputs_json(const Sluice__RecoDone *m)
{
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_outputs; i++)
        json_array_append_new(list, json_string(m->outputs[i]->stage));
    return list;
}

/* The file beside an output that says how it came about. Caller frees. */
static char *provenance(const struct held *h, const Sluice__RecoDone *m, const Sluice__Output *o, const char *device, const char *software)
{
    char when[CLOCK_TEXT];
    json_t *j = json_object(), *schema = json_object();

    set_text(schema, "name", "provenance");
    set_number(schema, "version", 1);
    json_object_set_new(j, "schema", schema);
    set_text(j, "time", clock_rfc3339(clock_wall_ns(), when));
    set_text(j, "output", o->stage);
    json_object_set_new(j, "outputs", outputs_json(m));              /* all that belong together: published together, or not at all */
    set_number(j, "size", o->size);
    set_number(j, "count", o->count);
    set_text(j, "digest", o->digest);
    set_number(j, h->key.name.run ? "run" : "job", h->key.name.run ? h->key.name.run : h->key.name.job);
    set_number(j, "tf", h->key.name.id);
    set_text(j, "input", h->input);
    json_object_set_new(j, "input_offset", h->input != NULL ? json_integer((json_int_t)h->offset) : json_null());
    set_text(j, "owner", h->work->owner[0] != '\0' ? h->work->owner : NULL);
    set_number(j, "first_orbit", h->first_orbit);
    json_object_set_new(j, "incomplete", json_boolean(h->incomplete));
    set_number(j, "epoch", h->key.fence.epoch);
    set_number(j, "attempt", h->key.fence.attempt);
    set_text(j, "workflow", h->work->workflow);
    set_text(j, "backends", h->work->backends);
    set_text(j, "options", h->work->options);
    json_object_set_new(j, "conditions", conditions_json());
    json_object_set_new(j, "stages", stages_json(m));
    set_text(j, "node", h->worker->node);
    set_text(j, "class", h->worker->class->name);
    set_text(j, "device", device);
    json_object_set_new(j, "seconds", json_real(m->seconds));
    json_object_set_new(j, "cpu_seconds", m->has_cpu_seconds ? json_real(m->cpu_seconds) : json_null());
    json_object_set_new(j, "nominal", m->has_nominal ? json_real(m->nominal) : json_null());
    set_text(j, "software", PACKAGE_VERSION);
    set_text(j, "reco_software", software);
    char *s = json_dumps(j, JSON_INDENT(2));
    json_decref(j);
    return s;
}

/* ---- one delivery --------------------------------------------------------------------------------- */

static void outputs_close(struct delivery *x)
{
    for (unsigned i = 0; i < x->n; i++) {
        if (x->out[i].fd >= 0)
            close(x->out[i].fd);
        x->out[i].fd = -1;
    }
}

void delivery_free(struct delivery *x)
{
    if (x == NULL)
        return;
    if (x->undelivered)
        x->all->undelivered--;
    outputs_close(x);
    for (unsigned i = 0; i < x->n; i++) {
        free(x->out[i].stage);
        free(x->out[i].digest);
        free(x->out[i].json);
    }
    if (x->done != NULL)
        sluice__done__free_unpacked(x->done, NULL);
    TAILQ_REMOVE(&x->all->list, x, entry);
    free(x->out);
    free(x->dir);
    free(x->stem);
    free(x->device);
    free(x);
}

static bool is_to_be_tried_again(enum deliver_end end)
{
    return end == DELIVER_AGAIN_FULL || end == DELIVER_AGAIN_READONLY || end == DELIVER_AGAIN_FAILING;
}

/* A link may have come into the path since it was looked at. The configuration does not change. */
static enum deliver_end look_at_roots(struct delivery *x)
{
    const struct conf *c = x->all->worker->conf;
    char *path = mem_printf("%s/%s", x->dir, x->stem);
    enum deliver_end end = DELIVER_OK;

    errno = 0;
    if (output_check_roots(path, c->roots_output, c->n_roots_output, &x->why) < 0)
        end = is_to_be_tried_again(deliver_judge(errno)) ? deliver_judge(errno) : DELIVER_DENIED;
    free(path);
    return end;
}

static enum deliver_end publish(struct delivery *x)
{
    struct err ignored;
    enum deliver_end end = look_at_roots(x);

    if (end != DELIVER_OK)
        return end;
    end = deliver_publish(x->dir, x->stem, x->tf, x->fence, x->disk, &x->why);
    if (end != DELIVER_OK && end != DELIVER_LEFT && !is_to_be_tried_again(end) && !x->for_another)
        deliver_remove(x->dir, x->stem, x->tf, x->fence, &ignored);        /* nobody will ever publish it */
    return end;
}

static enum deliver_end write_results(struct delivery *x)
{
    enum deliver_end end = look_at_roots(x);

    return end == DELIVER_OK ? deliver_write(x->dir, x->stem, x->tf, x->fence, x->out, x->n, &x->disk, &x->why) : end;
}

static void run(struct pool_task *t)
{
    struct delivery *x = CONTAINER_OF(t, struct delivery, task);

    if (user_become(&x->user) < 0) {
        err_set(&x->why, ERR_PERMISSION, "the owner's rights cannot be taken on");
        x->end = DELIVER_NEVER;
        return;
    }
    switch (x->step) {
    case STEP_WRITE:
        x->end = write_results(x);
        break;
    case STEP_PUBLISH:
        x->end = publish(x);
        break;
    case STEP_REMOVE:
        x->end = deliver_remove(x->dir, x->stem, x->tf, x->fence, &x->why);
        break;
    }
    user_return();
}

static void ended(struct pool_task *t);

static void submit(struct delivery *x)
{
    x->running = true;
    x->again_at = 0;
    x->task.run = run;
    x->task.done = ended;
    pool_submit(x->all->worker->out, &x->task);
}

static void begin(struct delivery *x, enum delivery_step step)
{
    x->step = step;
    x->cancelled = x->full = false;
    x->step_at = worker_now(x->all->worker);
    x->pause = 0;
    if (x->held != NULL)
        held_busy(x->held);                      /* until `finish` */
    submit(x);
}

/* Where an attempt's result lies, for sluiced. */
static void name_files(struct delivery *x)
{
    char suffix[OUTNAME_SUFFIX];

    outname_suffix(x->tf, x->fence, suffix);
    for (size_t i = 0; i < x->done->n_outputs; i++) {
        free(x->done->outputs[i]->file);
        x->done->outputs[i]->file = mem_printf("%s/%s.%s%s", x->dir, x->stem, x->done->outputs[i]->stage, suffix);
    }
}

/* On disk, or with nothing to put there: the answer. */
static void delivered(struct delivery *x)
{
    struct held *h = x->held;

    x->done->deliver_seconds = (double)(clock_mono_ns() - x->begun) / 1e9;
    x->done->has_deliver_seconds = 1;
    outputs_close(x);
    x->undelivered = false;
    x->all->undelivered--;
    log_debug("%s: delivered", held_text(h));
    held_answer(h, &x->done->base);
}

/* Stable words for how a delivery ended. */
static const char *end_word(enum deliver_end end)
{
    static const char *const words[] = {
        [DELIVER_CORRUPT] = "DigestMismatch", [DELIVER_TAKEN] = "OutputExists", [DELIVER_DENIED] = "OutputDenied",
        [DELIVER_AGAIN_FULL] = "OutputFull", [DELIVER_AGAIN_READONLY] = "OutputReadOnly", [DELIVER_AGAIN_FAILING] = "OutputFailing",
    };

    return (size_t)end < ARRAY_LEN(words) && words[end] != NULL ? words[end] : "OutputFailed";
}

static void say_published(struct worker *w, struct tf_name tf, struct fence fence, const char *word, const char *why, bool left)
{
    Sluice__Published m = SLUICE__PUBLISHED__INIT;
    struct tf_id id;
    char text[512];

    tf_id_fill(&id, tf, fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    worker_text(text, sizeof text, why);
    m.word = (char *)word;
    m.has_left = m.left = left;
    m.text = why ? text : NULL;
    link_send(w->link, &m.base);
}

/* A step came to its end, well or for good. */
static void finish(struct delivery *x)
{
    struct worker *w = x->all->worker;
    struct held *h = x->held;
    bool left = x->end == DELIVER_LEFT, ok = x->end == DELIVER_OK || left;
    char line[TF_TEXT];

    if (!ok && x->for_another)
        log_debug("%s: not published for another node: %s", tf_text(x->tf, x->fence, line), x->why.text);
    else if ((!ok || left) && x->step != STEP_WRITE)
        log_warning("%s: %s: %s", tf_text(x->tf, x->fence, line), left ? "published, but its tries' names stay" : x->step == STEP_PUBLISH ? "not published" : "not removed", x->why.text);
    if (x->step == STEP_PUBLISH)
        say_published(w, x->tf, x->fence, ok ? NULL : end_word(x->end), ok ? NULL : x->why.text, left);
    if (h == NULL) {
        delivery_free(x);
        return;
    }
    if (x->step == STEP_WRITE && ok) {
        delivered(x);
    } else if (x->step == STEP_WRITE) {
        outputs_close(x);
        x->undelivered = false;
        x->all->undelivered--;
        held_fail(h, x->cancelled ? "Cancelled" : end_word(x->end), NULL, x->device, NULL, "%s", x->cancelled ? h->cancelled : x->why.text);
    } else {
        held_remove(h);
    }
    held_unbusy(h);                              /* h and x may be gone */
    devices_pump(w->devices);
}

static void ended(struct pool_task *t)
{
    struct delivery *x = CONTAINER_OF(t, struct delivery, task);
    struct deliver *d = x->all;

    x->running = false;
    if (t->dropped) {                            /* the program ends: what was accepted is published by the next worker */
        if (x->held != NULL)
            held_unbusy(x->held);
        return;
    }
    if (!is_to_be_tried_again(x->end) || x->cancelled) {
        finish(x);
        return;
    }
    if (x->pause == 0)
        log_warning("delivery: %s; kept and tried again", x->why.text);
    x->pause = x->pause == 0 ? PAUSE_FIRST_S : x->pause * 2 < PAUSE_MOST_S ? x->pause * 2 : PAUSE_MOST_S;
    x->again_at = worker_now(d->worker) + (int64_t)(x->pause * 1e9);
    x->full = x->end == DELIVER_AGAIN_FULL || x->end == DELIVER_AGAIN_READONLY;
    x->told_word = end_word(x->end);
    x->told = x->why;
    deliver_tick(d);
}

/* ---- called by device_talk.c --------------------------------------------------------------------------- */

static Sluice__Done *make_done(const struct held *h, const Sluice__RecoDone *m, const char *device)
{
    Sluice__Done d = SLUICE__DONE__INIT;
    struct tf_id id;

    tf_id_fill(&id, h->key.name, h->key.fence);
    d.tf = &id.tf;
    d.fence = &id.fence;
    d.digest = m->digest;
    d.n_outputs = m->n_outputs;
    d.outputs = m->outputs;
    d.n_stages = m->n_stages;
    d.stages = m->stages;
    d.device = (char *)device;
    d.has_build_seconds = d.has_wait_seconds = d.has_process_seconds = d.has_incomplete = 1;
    d.build_seconds = (double)(h->built - h->assigned) / 1e9;
    d.wait_seconds = (double)(h->started - h->built) / 1e9;
    d.process_seconds = (double)(h->processed - h->started) / 1e9;
    d.incomplete = h->incomplete;
    d.log = h->said;
    d.has_nominal = m->has_nominal;
    d.nominal = m->nominal;

    return proto_copy(&d.base);                  /* d points into what is others' */
}

void deliver_take(struct held *h, const Sluice__RecoDone *m, int *fds, const char *device, const char *software)
{
    struct deliver *d = h->worker->deliver;
    struct delivery *x = mem_zalloc(sizeof *x);

    x->all = d;
    x->held = h;
    x->user = (struct user_id){ h->work->has_owner, h->work->uid, h->work->gid };
    x->dir = mem_strdup(h->work->output);
    x->stem = mem_strdup(h->stem);
    x->fence = h->key.fence;
    x->tf = h->key.name;
    x->device = mem_strdup(device);
    x->begun = clock_mono_ns();
    x->n = (unsigned)m->n_outputs;
    x->out = mem_array(x->n + 1, sizeof *x->out);
    for (unsigned i = 0; i < x->n; i++) {
        x->out[i] = (struct output){ mem_strdup(m->outputs[i]->stage), fds[i], m->outputs[i]->size, m->outputs[i]->count,
                                     mem_strdup(m->outputs[i]->digest), provenance(h, m, m->outputs[i], device, software) };
        fds[i] = -1;
    }
    x->done = make_done(h, m, device);
    x->undelivered = true;
    d->undelivered++;
    h->delivery = x;
    TAILQ_INSERT_TAIL(&d->list, x, entry);
    held_phase(h, SLUICE__PHASE__DELIVERING);
    held_finish(h);                              /* its bytes are not needed any more */
    if (x->dir[0] == '\0' || x->n == 0) {
        delivered(x);
        return;
    }
    if (!deliver_stem_ok(x->stem)) {
        held_busy(h);
        x->step = STEP_WRITE;
        x->end = DELIVER_NEVER;
        err_set(&x->why, ERR_PROTOCOL, "stem \"%.200s\" cannot be a name below the output folder", x->stem);
        finish(x);
        return;
    }
    name_files(x);
    begin(x, STEP_WRITE);
}

void deliver_cancel(struct held *h)
{
    struct delivery *x = h->delivery;

    x->cancelled = true;
    if (!x->running && x->again_at != 0)
        finish(x);                               /* it waits for its disk: nothing lies there */
}

/* ---- verdicts ---------------------------------------------------------------------------------------------- */

static bool has_files(const struct held *h)
{
    return h->delivery != NULL && h->answer_type != SLUICE__TYPE__FAILED && h->delivery->dir[0] != '\0' && h->delivery->n > 0;
}

void deliver_accept(struct held *h)
{
    held_phase(h, SLUICE__PHASE__ACCEPTED);
    if (has_files(h)) {
        begin(h->delivery, STEP_PUBLISH);
        return;
    }
    if (h->answer_type == SLUICE__TYPE__DONE)
        say_published(h->worker, h->key.name, h->key.fence, NULL, NULL, false);
    held_remove(h);
}

void deliver_discard(struct held *h)
{
    h->silent = true;
    if (has_files(h))
        begin(h->delivery, STEP_REMOVE);
    else
        held_remove(h);
}

/* One that was asked for again while it waits for its disk. */
static bool is_under_way(const struct deliver *d, struct tf_name tf, struct fence fence)
{
    const struct delivery *x;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (x->held == NULL && x->step == STEP_PUBLISH && x->tf.run == tf.run && x->tf.job == tf.job && x->tf.id == tf.id && x->fence.epoch == fence.epoch &&
            x->fence.attempt == fence.attempt)
            return true;
    }
    return false;
}

void deliver_stray(struct deliver *d, const Sluice__Verdict *m)
{
    struct tf_name tf;
    struct fence fence;

    if (tf_name_from(m->tf, &tf) < 0 || fence_from(m->fence, &fence) < 0)
        return;
    if (m->output == NULL || m->output[0] != '/' || !deliver_stem_ok(m->stem)) {
        if (m->accepted)
            say_published(d->worker, tf, fence, NULL, NULL, false);           /* there were no files */
        return;
    }
    if (m->accepted && is_under_way(d, tf, fence))
        return;
    struct work *work = works_find(&d->worker->works, tf.run, tf.job);
    struct delivery *x = mem_zalloc(sizeof *x);
    x->all = d;
    x->for_another = m->for_another;
    x->tf = tf;
    x->fence = fence;
    x->dir = mem_strdup(m->output);
    x->stem = mem_strdup(m->stem);
    if (work != NULL)
        x->user = (struct user_id){ work->has_owner, work->uid, work->gid };
    TAILQ_INSERT_TAIL(&d->list, x, entry);
    begin(x, m->accepted ? STEP_PUBLISH : STEP_REMOVE);
}

/* ---- waiting for the disk ---------------------------------------------------------------------------------- */

unsigned deliver_full_jobs(const struct deliver *d, struct full_job *out, unsigned n)
{
    const struct delivery *x;
    unsigned found = 0, i;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (!x->full || x->tf.job == 0)
            continue;
        for (i = 0; i < found && out[i].job != x->tf.job; i++)
            ;
        if (i == found && found < n)
            out[found++] = (struct full_job){ x->tf.job, x->told_word, x->told.text };
    }
    return found;
}

unsigned deliver_undelivered(const struct deliver *d, struct tf_name *out, unsigned n)
{
    const struct delivery *x;
    unsigned found = 0;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (x->pause > 0 && x->step == STEP_WRITE && x->held != NULL && found < n)
            out[found++] = x->tf;
    }
    return found;
}

/* Some jobs' disks became full, or are not any more, or other results wait: sluiced is to hear of it. */
static void look_full(struct deliver *d)
{
    struct full_job job[FULL_JOBS];
    unsigned n = deliver_full_jobs(d, job, FULL_JOBS);
    struct tf_name tf[UNDELIVERED];
    unsigned waiting = deliver_undelivered(d, tf, UNDELIVERED);
    uint64_t sum = n;

    for (unsigned i = 0; i < n; i++)
        sum = sum * 31 + job[i].job;
    for (unsigned i = 0; i < waiting; i++)
        sum = (sum * 31 + tf[i].run + tf[i].job) * 31 + tf[i].id + 1;
    if (sum != d->full_sum)
        worker_changed(d->worker);
    d->full_sum = sum;
    for (unsigned i = 0; i < n; i++)
        devices_give_back(d->worker->devices, job[i].job, "the disk of its job's results is full");
}

/* The gravest of what holds results up. A job's full disk is the job's trouble, not the node's. */
static void look(struct deliver *d)
{
    int64_t now = worker_now(d->worker);
    const char *word = "";
    char text[700] = "";
    struct delivery *x;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (x->full && x->tf.job != 0)
            continue;
        double limit = x->held ? x->held->work->deliver_timeout : d->worker->conf->limits.deliver_timeout;
        if (x->again_at != 0 && (word[0] == '\0' || x->end == DELIVER_AGAIN_FULL)) {
            word = end_word(x->end);
            snprintf(text, sizeof text, "results wait for their disk: %s", x->why.text);
        } else if (x->running && x->pause > 0 && d->word[0] != '\0' && word[0] == '\0') {
            word = d->word;                      /* being tried: as it was until we know better */
        } else if (x->running && word[0] == '\0' && (double)(now - x->step_at) / 1e9 > limit) {
            word = "OutputStalled";
            snprintf(text, sizeof text, "for %.0f s a delivery hangs: to %.300s", (double)(now - x->step_at) / 1e9, x->dir);
        }
    }
    if (text[0] != '\0' || word[0] == '\0')
        worker_text(d->text, sizeof d->text, text);
    if (strcmp(word, d->word) != 0) {
        if (word[0] == '\0')
            log_info("delivery: results go to their disk again");
        d->word = word;
        worker_changed(d->worker);
    }
}

void deliver_tick(struct deliver *d)
{
    int64_t now = worker_now(d->worker);
    struct delivery *x;

    TAILQ_FOREACH(x, &d->list, entry) {
        if (x->again_at != 0 && now >= x->again_at && !d->worker->stopping)
            submit(x);
    }
    look(d);
    look_full(d);
}
