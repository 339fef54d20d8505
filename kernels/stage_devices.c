/* stage_devices.c - the device that each stage runs on: chosen, opened, memory pinned for it
 *
 * From: pipeline.c (what was asked for, workflow.c).  To: kdev.c, khost.c.
 * Here a machine is looked at for the first time: what is not there is refused with its stage, the reason and the choices; only auto takes the CPU instead, and says why.
 */
#include "stage_devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backend/bk_load.h"

static const char *const gpu_order[] = { "cuda", "hip", "opencl", NULL };

/* Adds what is wrong with a backend to the list of reasons. */
static void add_reason(struct k_err *why, const char *backend, const char *reason)
{
    size_t n = strlen(why->text);
    snprintf(why->text + n, sizeof why->text - n, "%s%s: %.120s", n ? "; " : "", backend, reason);
}

/* The first usable GPU of a backend (an OpenCL device may be a CPU), or the one asked for. */
static struct kdev *open_gpu_of(const char *backend, const struct pipeline_conf *c,
                                const struct bk_option *o, struct k_err *why)
{
    char reason[300] = "";
    const struct bk_ops *ops = bk_load(backend, reason, sizeof reason);
    struct bk_info info;
    int n = ops ? ops->count() : 0;

    if (ops && n <= 0)
        ops->describe(0, &info, reason, sizeof reason);
    for (int i = 0; i < n; i++) {
        struct k_err e;
        struct kdev *d = NULL;
        if (ops->describe(i, &info, reason, sizeof reason) < 0)
            continue;
        if (strcmp(info.class, "cpu") == 0)
            snprintf(reason, sizeof reason, "no GPU, only the CPU as a device");
        else if (c->device && strcmp(c->device, info.id) != 0)
            snprintf(reason, sizeof reason, "no device %s", c->device);
        else if ((d = kdev_open(backend, info.id, o, &e)) != NULL)
            return d;
        else
            snprintf(reason, sizeof reason, "%.299s", e.text);
    }
    add_reason(why, backend, reason);
    return NULL;
}

static bool stage_has(enum stage_id id, const char *backend)
{
    for (const char *const *x = stages[id].backends; *x; x++) {
        if (strcmp(*x, backend) == 0)
            return true;
    }
    return false;
}

/* NULL: there is none, and why lists the reasons. */
static struct kdev *open_gpu(const struct pipeline_conf *c, const struct bk_option *o,
                             enum stage_id id, struct k_err *why)
{
    struct kdev *d = NULL;

    *why = (struct k_err){ .code = K_EDEVICE };
    if (c->cpu_only) {
        snprintf(why->text, sizeof why->text, "device %.100s is the CPU", c->device ? c->device : "of this process");
        return NULL;
    }
    for (const char *const *b = gpu_order; *b && d == NULL; b++) {
        if (stage_has(id, *b))
            d = open_gpu_of(*b, c, o, why);
    }
    return d;
}

static struct kdev *open_named(const struct pipeline_conf *c, enum stage_id id, const char *backend, const struct bk_option *o,
                               struct k_err *e)
{
    struct k_err why;
    char names[200];

    if (!c->cpu_only) {
        struct kdev *d = kdev_open(backend, c->device, o, &why);
        workflow_backends(id, names, sizeof names);
        if (d == NULL)
            k_fail(e, why.code, "%s asked for: %.250s; choices are %.80s", backend, why.text, names);
        return d;
    }
    k_fail(e, K_EDEVICE, "%s asked for, device %.100s is the CPU; choices are auto, cpu", backend,
           c->device ? c->device : "of this process");
    return NULL;
}

static struct kdev *open_for(struct stage_devices *s, const struct pipeline_conf *c, enum stage_id id,
                             const char *backend, struct k_err *e)
{
    struct bk_option o = { .threads = c->threads, .isa = c->isa,
                           .memory_limit = c->memory_limit };
    struct kdev *d;
    struct k_err why;
    char names[200];

    if (strcmp(backend, "cpu") == 0)
        return kdev_open(backend, NULL, &o, e);
    if (strcmp(backend, "gpu") != 0 && strcmp(backend, "auto") != 0)
        return open_named(c, id, backend, &o, e);
    d = open_gpu(c, &o, id, &why);
    if (d)
        return d;
    if (strcmp(backend, "auto") == 0) {
        snprintf(s->fallback[id], sizeof s->fallback[id], "no usable GPU (%.270s)", why.text);
        return kdev_open("cpu", NULL, &o, e);
    }
    workflow_backends(id, names, sizeof names);
    k_fail(e, K_EDEVICE, "gpu asked for, no usable GPU (%.250s); choices are %.80s", why.text, names);
    return NULL;
}

/* Stages with the same choice share a device, and the reason for it. */
static void share(struct stage_devices *s, enum stage_id id, enum stage_id with)
{
    s->dev[id] = s->dev[with];
    memcpy(s->fallback[id], s->fallback[with], sizeof s->fallback[id]);
}

/* Whether no stage before i has its device: each is opened, pinned for and closed once. */
static bool first_with(const struct stage_devices *s, unsigned i)
{
    for (unsigned k = 0; k < i; k++) {
        if (s->dev[k] == s->dev[i])
            return false;
    }
    return true;
}

/* Pins the memory of the TFs for every device. */
static int pin(struct stage_devices *s, const struct pipeline_conf *c, struct k_err *e)
{
    for (unsigned i = 0; i < STAGE_COUNT; i++) {
        struct kdev *d = s->dev[i];
        if (d && first_with(s, i) && khost_pin(d, &c->pin) < 0 && c->pin_must)
            return k_fail(e, K_ENOMEM, "stage %s: %" PRIu64 " bytes are to be pinned for device %s: %s", stages[i].name,
                          d->host.wanted, d->info.id, d->host.why);
    }
    return 0;
}

int stage_devices_open(struct stage_devices *s, const struct workflow_choice *choice, const struct pipeline_conf *c,
                       struct k_err *e)
{
    const struct workflow *w = choice->workflow;

    for (unsigned i = 0; i < w->stages; i++) {
        enum stage_id id = w->stage[i];
        for (unsigned j = 0; j < i && s->dev[id] == NULL; j++) {
            if (strcmp(choice->backend[w->stage[j]], choice->backend[id]) == 0)
                share(s, id, w->stage[j]);
        }
        if (s->dev[id] == NULL) {
            struct k_err why;
            s->dev[id] = open_for(s, c, id, choice->backend[id], &why);
            if (s->dev[id] == NULL)
                return k_fail(e, why.code, "stage %s: %.340s", stages[id].name, why.text);
        }
    }
    return pin(s, c, e);
}

void stage_devices_close(struct stage_devices *s)
{
    for (unsigned i = 0; i < STAGE_COUNT; i++) {
        if (first_with(s, i))
            kdev_close(s->dev[i]);
    }
}
