/* gpus.c - the real devices of the node
 *
 * From: query.c (answers), device.c (is it free again?).  To: device.c (devices_found, devices_offer), report.c (trouble).
 */
#include "config.h"
#include "gpus.h"

#include "device.h"
#include "file.h"
#include "log.h"
#include "mem.h"
#include "pool.h"
#include "str.h"
#include "worker.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOON_S  0.001
#define AGAIN_S 1.0                              /* between questions while somebody waits */
#define LONG_S  30.0                             /* between searches where there is nothing */

struct gpus {
    struct worker *worker;
    struct query *query;
    struct ev_timer again;
    struct gpu gpu[QUERY_DEVICES_MAX]; unsigned n;
    bool    searching, known;                    /* known: their baselines */
    void  (*answered_fn)(void *arg); void *arg;
    bool    awaited;                             /* somebody waits for an answer about memory */
    int64_t asked, answered;                     /* worker_now: when the question under way, and the last one with an answer, was asked */
    char    trouble[512]; const char *word;      /* of the last question */
    char   *path;                                /* of the baselines */
    struct pool_task task; char *text; bool changed;         /* text: being written */
};

bool gpus_are_real(const struct worker *w)
{
    return w->class->gpu_arch != NULL && w->class->nominal_ms <= 0;
}

const struct gpu *gpus_find(const struct gpus *g, const char *serial)
{
    for (unsigned i = 0; i < g->n; i++) {
        if (strcmp(g->gpu[i].device.id, serial) == 0)
            return &g->gpu[i];
    }
    return NULL;
}

static void say(struct gpus *g, const char *word, const char *text)
{
    if (word[0] != '\0' && strcmp(g->trouble, text) != 0)
        log_warning("devices: %s", text);
    g->word = word;
    snprintf(g->trouble, sizeof g->trouble, "%s", text);
    worker_changed(g->worker);
}

static bool in_trouble(const struct gpus *g)
{
    return g->trouble[0] != '\0';
}

const char *gpus_trouble(const struct gpus *g, const char **text)
{
    if (!g->searching || g->known || !in_trouble(g))
        return "";
    *text = g->trouble;
    return g->word;
}

static void ask_in(struct gpus *g, double s)
{
    g->again.repeat = s;
    ev_timer_again(g->worker->loop, &g->again);
}

/* ---- which there are -------------------------------------------------------------------------- */

static bool is_ours(const struct gpus *g, const struct query_device *d)
{
    return d->usable && d->id[0] != '\0' && strcmp(d->class, g->worker->class->gpu_arch) == 0 && gpus_find(g, d->id) == NULL;
}

/* Why there is none: what the backends said. */
static void say_none(struct gpus *g, const struct query_device *list, unsigned n)
{
    struct str s = { 0 };

    str_addf(&s, "no device of architecture %s can be used", g->worker->class->gpu_arch);
    for (unsigned i = 0; i < n; i++)
        str_addf(&s, "%s %s%s%s %s%s%s", i == 0 ? ":" : ";", list[i].backend, list[i].id[0] ? " " : "", list[i].id, list[i].class, list[i].why[0] ? " " : "",
                 list[i].why);
    say(g, "DeviceMissing", str_text(&s));
    str_free(&s);
}

/* Once, whatever the first answer was: others wait for it. */
static void tell_answered(struct gpus *g)
{
    void (*fn)(void *arg) = g->answered_fn;

    g->answered_fn = NULL;
    if (fn != NULL)
        fn(g->arg);
}

static void searched(void *arg, const struct query_device *list, unsigned n, const struct err *why)
{
    struct gpus *g = arg;

    if (why != NULL)
        say(g, "DeviceQuery", why->text);
    for (unsigned i = 0; i < n; i++) {
        if (is_ours(g, &list[i]))
            g->gpu[g->n++].device = list[i];
    }
    if (why == NULL && g->n == 0)
        say_none(g, list, n);
    if (g->n == 0) {
        ask_in(g, why != NULL ? AGAIN_S : LONG_S);
    } else {
        say(g, "", "");
        if (g->n < g->worker->class->devices)
            log_warning("devices: %u of %u of architecture %s are there", g->n, g->worker->class->devices, g->worker->class->gpu_arch);
        devices_found(g->worker->devices, g->gpu, g->n);
    }
    tell_answered(g);
}

/* ---- what they use ---------------------------------------------------------------------------- */

/* Baselines outlive the worker, so that the next one does not take what this one's processes leave behind for nobody's. Lines "ID BYTES"; a run folder
 * goes with a start of the machine. */
static void baselines_read(struct gpus *g)
{
    size_t n;
    struct err e;
    char *text = file_read(g->path, 65536, &n, &e), *rest = text, *line;

    while (text != NULL && (line = strsep(&rest, "\n")) != NULL) {
        char id[96];
        uint64_t bytes;
        struct gpu *gpu = sscanf(line, "%95s %" SCNu64, id, &bytes) == 2 ? (struct gpu *)gpus_find(g, id) : NULL;
        if (gpu != NULL && bytes < gpu->baseline)
            gpu->baseline = bytes;
    }
    free(text);
}

static void baselines_run(struct pool_task *t)
{
    struct gpus *g = CONTAINER_OF(t, struct gpus, task);
    struct err e;

    if (file_replace(g->path, g->text, strlen(g->text), 0644, &e) < 0)
        log_warning("%s", e.text);
}

static void baselines_submit(struct gpus *g);

static void baselines_done(struct pool_task *t)
{
    struct gpus *g = CONTAINER_OF(t, struct gpus, task);

    free(g->text);
    g->text = NULL;
    if (g->changed && !t->dropped)
        baselines_submit(g);
}

static void baselines_submit(struct gpus *g)
{
    struct str s = { 0 };

    g->changed = g->text != NULL;                /* one is being written: again when it is done */
    if (g->changed)
        return;
    for (unsigned i = 0; i < g->n; i++) {
        if (g->gpu[i].measured)
            str_addf(&s, "%s %" PRIu64 "\n", g->gpu[i].device.id, g->gpu[i].baseline);
    }
    g->text = str_take(&s);
    g->task = (struct pool_task){ .run = baselines_run, .done = baselines_done };
    pool_submit(g->worker->slow, &g->task);
}

/* Whether the baseline is another one now. */
static bool take_usage(struct gpu *gpu, const struct query_device *seen, bool first)
{
    struct query_device *d = &gpu->device;
    bool lower = first || seen->used < gpu->baseline;

    if (lower)
        gpu->baseline = seen->used;
    if (first)
        log_info("device %s: %s, %s, %" PRIu64 " of %" PRIu64 " bytes in use before anything of ours", d->id, d->backend, d->class, seen->used, d->memory);
    gpu->measured = true;
    d->used = seen->used;
    d->n_pids = seen->n_pids;
    memcpy(d->pid, seen->pid, sizeof d->pid);
    return lower;
}

/* A card that fell off its bus is in no list any more; what was in use on it says nothing then. */
static void look_who_is_gone(struct gpus *g, const struct query_device *list, unsigned n)
{
    for (unsigned i = 0; i < g->n; i++) {
        struct gpu *gpu = &g->gpu[i];
        bool listed = false;

        for (unsigned k = 0; k < n && !listed; k++)
            listed = strcmp(list[k].id, gpu->device.id) == 0;
        if (gpu->gone == (gpu->measured && !listed))
            continue;
        gpu->gone = !gpu->gone;
        log_warning("device %s: %s", gpu->device.id, gpu->gone ? "the driver does not have it any more" : "the driver has it again");
        worker_changed(g->worker);
    }
}

static void measured(void *arg, const struct query_device *list, unsigned n, const struct err *why)
{
    struct gpus *g = arg;
    bool first = !g->known, lower = false;

    ask_in(g, AGAIN_S);
    if (why != NULL) {
        say(g, "DeviceQuery", why->text);
        devices_offer(g->worker->devices);
        return;
    }
    say(g, "", "");
    look_who_is_gone(g, list, n);
    for (unsigned i = 0; i < n; i++) {
        struct gpu *gpu = (struct gpu *)gpus_find(g, list[i].id);
        if (gpu != NULL && (first || gpu->measured))
            lower |= take_usage(gpu, &list[i], first);
    }
    if (first)
        baselines_read(g);
    if (lower)
        baselines_submit(g);
    g->answered = g->asked;
    g->known = true;
    g->awaited = false;
    devices_offer(g->worker->devices);
}

static void describe_taken(const struct gpu *gpu, char *text, size_t room)
{
    char used[32], baseline[32];
    struct str pids = { 0 };

    for (unsigned i = 0; i < gpu->device.n_pids; i++)
        str_addf(&pids, "%s %d", i == 0 ? "; held by pids" : ",", (int)gpu->device.pid[i]);
    snprintf(text, room, "%s of its memory are in use, %s when it is free%.150s", str_size_text(gpu->device.used, used),
             str_size_text(gpu->baseline, baseline), str_text(&pids));
    str_free(&pids);
}

enum gpu_memory gpus_memory(struct gpus *g, const char *serial, int64_t since, char *text, size_t room)
{
    const struct gpu *gpu = gpus_find(g, serial);

    text[0] = '\0';
    if (gpu == NULL || (g->known && !gpu->measured))
        return GPU_FREE;
    if (g->known && g->answered >= since && !gpu->gone && gpu->device.used <= gpu->baseline + g->worker->conf->worker.memory_tolerance)
        return GPU_FREE;
    g->awaited = true;
    if (!query_is_busy(g->query) && g->answered < since && !in_trouble(g))
        ask_in(g, SOON_S);
    else if (!query_is_busy(g->query) && !ev_is_active(&g->again))
        ask_in(g, AGAIN_S);
    if (g->known && g->answered >= since && gpu->gone)
        snprintf(text, room, "the driver does not have it any more");
    else if (g->known && g->answered >= since)
        describe_taken(gpu, text, room);
    else if (in_trouble(g))
        snprintf(text, room, "whether its memory is free is not known: %.200s", g->trouble);
    return text[0] != '\0' ? GPU_TAKEN : GPU_ASKED;
}

/* ---- asking ----------------------------------------------------------------------------------- */

static void again(struct ev_loop *loop, struct ev_timer *t, int revents)
{
    struct gpus *g = t->data;
    bool search = g->n == 0;
    struct err e;

    (void)revents;
    ev_timer_stop(loop, t);
    if (g->worker->stopping || (!search && !g->awaited))
        return;
    if (query_is_busy(g->query)) {
        ask_in(g, AGAIN_S);
        return;
    }
    g->asked = worker_now(g->worker);
    if (query_ask(g->query, search ? QUERY_DEVICES : QUERY_USAGE, search ? searched : measured, g, &e) < 0) {
        say(g, "DeviceQuery", e.text);
        ask_in(g, AGAIN_S);
        tell_answered(g);
    }
}

void gpus_search(struct gpus *g, void (*answered)(void *arg), void *arg)
{
    g->searching = true;
    g->answered_fn = answered;
    g->arg = arg;
    say(g, "DeviceQuery", "the devices are being looked for");
    ask_in(g, SOON_S);
}

struct gpus *gpus_create(struct worker *w)
{
    struct gpus *g = mem_zalloc(sizeof *g);

    g->worker = w;
    g->query = query_create(w);
    g->path = mem_printf("%s/baselines", w->run_dir);
    ev_init(&g->again, again);
    g->again.data = g;
    return g;
}

void gpus_destroy(struct gpus *g)
{
    if (g == NULL)
        return;
    ev_timer_stop(g->worker->loop, &g->again);
    query_destroy(g->query);
    free(g->path);
    free(g->text);
    free(g);
}
