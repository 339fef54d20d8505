/* attach.c - the reconstruction process as the worker's child
 *
 * From: device_talk.c of the worker, over one socket.  To: kernels/pipeline.h, and back.
 * One TF at a time, one thread that talks. The buffer is mapped read-only; no request is believed before its generation and ranges were held against
 * the buffer's own head. A TF that cannot be done is an answer, not an end: the process goes on with the next.
 */
#include "config.h"
#include "attach.h"

#include "clock.h"
#include "mem.h"
#include "pipeline.h"
#include "place.h"
#include "shm_layout.h"
#include "str.h"
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WORKFLOWS = 8, MAX_SEGMENTS = 65536 };

struct attach {
    struct wire wire;
    char    *serial, *device_class;
    bool     emulated, pin_must;
    bool     on_cpu;                             /* its serial is a name only: it is the CPU */
    double   nominal;                            /* s; 0: none */
    const struct shm_head *head;                 /* of the buffer */
    const uint8_t *data;
    uint64_t size, mapped, generation;           /* mapped: with the head, whole pages of its file system */
    struct pipeline *pipeline[WORKFLOWS];
};

/* ---- the buffer --------------------------------------------------------------------------------------- */

static void unmap_buffer(struct attach *a)
{
    if (a->head != NULL)
        munmap((void *)a->head, a->mapped);
    a->head = NULL;
}

/* In the place of the one that was mapped before, if any. */
static int map_buffer(struct attach *a, int fd, const Sluice__RecoOpen *m, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_errno(e, ERR_FAILED, "the buffer");
    if (m->buffer_size > INT64_MAX - SHM_HEAD || (uint64_t)st.st_size < SHM_HEAD + m->buffer_size)
        return err_set(e, ERR_PROTOCOL, "the buffer: %" PRIu64 " bytes of data announced, the file has %jd", m->buffer_size,
                       (intmax_t)st.st_size);
    uint64_t page = st.st_blksize > 0 ? (uint64_t)st.st_blksize : 1, bytes = (SHM_HEAD + m->buffer_size + page - 1) / page * page;
    void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return err_errno(e, ERR_FAILED, "the buffer: %" PRIu64 " bytes cannot be mapped", bytes);
    unmap_buffer(a);
    a->head = p;
    a->mapped = bytes;
    a->data = (const uint8_t *)p + SHM_HEAD;
    a->size = m->buffer_size;
    a->generation = m->generation;
    if (a->head->magic != SHM_MAGIC || a->head->version != SHM_VERSION)
        return err_set(e, ERR_PROTOCOL, "the buffer: magic %016" PRIx64 " version %" PRIu32 ", wanted %016" PRIx64 " version %d",
                       a->head->magic, a->head->version, SHM_MAGIC, SHM_VERSION);
    if (a->head->size != m->buffer_size || a->head->generation != m->generation)
        return err_set(e, ERR_PROTOCOL, "the buffer: size %" PRIu64 " generation %" PRIu64 " announced, its head says %" PRIu64
                       " and %" PRIu64, m->buffer_size, m->generation, a->head->size, a->head->generation);
    return 0;
}

static int segments_of(const struct attach *a, const Sluice__RecoRun *m, struct pipeline_seg **out, struct err *e)
{
    if (m->generation != a->generation || a->head->generation != a->generation)
        return err_set(e, ERR_PROTOCOL, "generation %" PRIu64 " asked, the buffer is at %" PRIu64, m->generation, a->head->generation);
    if (m->n_segments == 0 || m->n_segments > MAX_SEGMENTS)
        return err_set(e, ERR_PROTOCOL, "1 to %d segments wanted, %zu found", MAX_SEGMENTS, m->n_segments);
    struct pipeline_seg *seg = mem_array(m->n_segments, sizeof *seg);
    for (size_t i = 0; i < m->n_segments; i++) {
        const Sluice__Extent *x = m->segments[i];
        if (x->offset > a->size || x->size > a->size - x->offset) {
            free(seg);
            return err_set(e, ERR_PROTOCOL, "segment %zu: %" PRIu64 " bytes from %" PRIu64 " on, the buffer has %" PRIu64, i, x->size,
                           x->offset, a->size);
        }
        seg[i] = (struct pipeline_seg){ a->data + x->offset, (size_t)x->size };
    }
    *out = seg;
    return 0;
}

/* ---- answers ------------------------------------------------------------------------------------------- */

static int say_failed(struct attach *a, const Sluice__RecoRun *run, const char *word, const char *text, struct err *e)
{
    Sluice__RecoFailed m = SLUICE__RECO_FAILED__INIT;
    char *mended = mem_strdup(text);

    str_mend(mended, strlen(mended));
    m.tf = run->tf;
    m.fence = run->fence;
    m.word = (char *)word;
    m.text = mended;
    int rc = wire_send(&a->wire, 0, &m.base, NULL, 0, e);
    free(mended);
    return rc;
}

/* A result in memory that cannot change any more. -1: e. */
static int sealed(const struct pipeline_out *o, struct err *e)
{
    int fd = memfd_create(o->stage, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *p = o->data;
    size_t left = o->size;

    if (fd < 0)
        return err_errno(e, ERR_FAILED, "output %s: no memory file", o->stage);
    while (left > 0) {
        ssize_t n = write(fd, p, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            err_errno(e, ERR_FAILED, "output %s: %zu bytes of memory", o->stage, o->size);
            close(fd);
            return -1;
        }
        p += n;
        left -= (size_t)n;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
        err_errno(e, ERR_FAILED, "output %s cannot be sealed", o->stage);
        close(fd);
        return -1;
    }
    return fd;
}

struct answer {
    Sluice__RecoDone m;
    Sluice__Output   output[8], *outputs[8];
    Sluice__StageRan stage[8], *stages[8];
    Sluice__Pinned   pinned;
    char     digest[9][17];
    int      fd[8]; unsigned n_fd;
};

/* What of the buffer the device has pinned; where stages run on several, the one that has least of what it wanted. What could not be pinned costs time,
 * not results. */
static void fill_pinned(struct answer *x, const struct pipeline_result *r)
{
    const struct khost_report *least = NULL;

    for (unsigned i = 0; i < r->n_stage; i++) {
        const struct khost_report *h = r->stage[i].host;
        if (strcmp(r->stage[i].backend, "cpu") != 0 && h != NULL && h->wanted > 0 && (least == NULL || h->pinned < least->pinned))
            least = h;
    }
    if (least == NULL)
        return;                                  /* the CPU needs nothing pinned */
    sluice__pinned__init(&x->pinned);
    x->pinned.has_wanted = x->pinned.has_actual = x->pinned.has_chunks = x->pinned.has_staging = 1;
    x->pinned.wanted = least->wanted;
    x->pinned.actual = least->pinned;
    x->pinned.chunks = least->chunks;
    x->pinned.staging = least->ring;
    x->pinned.text = least->why[0] != '\0' ? (char *)least->why : NULL;
    x->m.pinned = &x->pinned;
}

static int fill(struct answer *x, const struct pipeline_result *r, struct err *e)
{
    snprintf(x->digest[8], 17, "%016" PRIx64, r->digest);
    x->m.digest = x->digest[8];
    for (unsigned i = 0; i < r->n_out; i++) {
        sluice__output__init(&x->output[i]);
        snprintf(x->digest[i], 17, "%016" PRIx64, r->out[i].digest);
        x->output[i].stage = (char *)r->out[i].stage;
        x->output[i].has_size = x->output[i].has_count = 1;
        x->output[i].size = r->out[i].size;
        x->output[i].count = r->out[i].count;
        x->output[i].digest = x->digest[i];
        x->outputs[i] = &x->output[i];
        if ((x->fd[i] = sealed(&r->out[i], e)) < 0)
            return -1;
        x->n_fd++;
    }
    for (unsigned i = 0; i < r->n_stage; i++) {
        sluice__stage_ran__init(&x->stage[i]);
        x->stage[i].stage = (char *)r->stage[i].stage;
        x->stage[i].backend = (char *)r->stage[i].backend;
        x->stage[i].has_seconds = x->stage[i].has_items = 1;
        x->stage[i].seconds = r->stage[i].seconds;
        x->stage[i].items = r->stage[i].items;
        x->stage[i].fallback = (char *)r->stage[i].fallback;
        x->stages[i] = &x->stage[i];
    }
    x->m.n_outputs = r->n_out;
    x->m.outputs = x->outputs;
    fill_pinned(x, r);
    x->m.n_stages = r->n_stage;
    x->m.stages = x->stages;
    return 0;
}

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- a TF ------------------------------------------------------------------------------------------------ */

static const char *word_of(const struct k_err *why)
{
    switch (why->code) {
    case K_EINPUT:
        return "BadInput";
    case K_EOPTION:
    case K_EDEVICE:
        return "BackendUnavailable";
    default:
        return "Crashed";
    }
}

/* Whether the worker says something (a Cancel, or its end) before `until`. */
static bool interrupted(struct attach *a, int64_t until)
{
    return wire_poll(&a->wire, until) != 0;
}

/* An emulated device holds the TF to its nominal time; the real work was done before. */
static bool hold(struct attach *a, int64_t begun)
{
    return a->nominal > 0 && interrupted(a, begun + (int64_t)(a->nominal * 1e9));
}

/* A worker that is gone is noticed by the answer to the TF. */
static void say_stage(void *arg, const char *name)
{
    struct attach *a = arg;
    Sluice__RecoStage m = SLUICE__RECO_STAGE__INIT;
    struct err ignored;

    m.stage = (char *)name;
    wire_send(&a->wire, 0, &m.base, NULL, 0, &ignored);
}

static int run_tf(struct attach *a, const Sluice__RecoRun *m, struct pipeline *p, const struct pipeline_seg *seg, struct err *e)
{
    struct pipeline_result r = { 0 };
    struct k_err why = { 0 };
    int64_t begun = clock_mono_ns();
    double cpu = cpu_s();

    if (pipeline_run(p, seg, (unsigned)m->n_segments, &r, &why) < 0)
        return say_failed(a, m, word_of(&why), why.text, e);

    struct answer x = { 0 };
    sluice__reco_done__init(&x.m);
    int rc = fill(&x, &r, e);
    cpu = cpu_s() - cpu;
    if (rc < 0) {
        rc = say_failed(a, m, "Crashed", e->text, e);
    } else if (hold(a, begun)) {
        rc = say_failed(a, m, "Cancelled", "the worker spoke up while the TF was held to its nominal time", e);
    } else {
        x.m.tf = m->tf;
        x.m.fence = m->fence;
        x.m.has_seconds = x.m.has_cpu_seconds = 1;
        x.m.seconds = (double)(clock_mono_ns() - begun) / 1e9;
        x.m.cpu_seconds = cpu;
        x.m.has_nominal = a->nominal > 0;
        x.m.nominal = a->nominal;
        rc = wire_send(&a->wire, 0, &x.m.base, x.fd, x.n_fd, e);
    }
    for (unsigned i = 0; i < x.n_fd; i++)
        close(x.fd[i]);
    return rc;
}

static int on_run(struct attach *a, const Sluice__RecoRun *m, struct err *e)
{
    struct pipeline_seg *seg = NULL;
    struct err why;
    struct pipeline *p = m->workflow_id < WORKFLOWS ? a->pipeline[m->workflow_id] : NULL;

    if (m->tf == NULL || m->fence == NULL)
        return err_set(e, ERR_PROTOCOL, "RecoRun without TF or fence");
    if (p == NULL)
        return say_failed(a, m, "BackendUnavailable", "the workflow was not set up", e);
    if (segments_of(a, m, &seg, &why) < 0)
        return say_failed(a, m, "BadInput", why.text, e);
    int rc = run_tf(a, m, p, seg, e);
    free(seg);
    return rc;
}

static int on_workflow(struct attach *a, uint32_t id, const Sluice__RecoWorkflow *m, struct err *e)
{
    const struct pipeline_conf conf = { .workflow = m->workflow ? m->workflow : "", .backends = m->backends, .options = m->options,
                                        .device = a->serial, .cpu_only = a->on_cpu, .threads = a->emulated ? 1 : 0, .stage = say_stage, .arg = a,
                                        .pin = { .data = a->head, .size = SHM_HEAD + a->size, .read_only = true }, .pin_must = a->pin_must };
    struct k_err why = { 0 };
    Sluice__Ok ok = SLUICE__OK__INIT;
    Sluice__Error refused = SLUICE__ERROR__INIT;

    if (m->id >= WORKFLOWS)
        return err_set(e, ERR_PROTOCOL, "workflow %" PRIu64 ": at most %d", m->id, WORKFLOWS);
    pipeline_destroy(a->pipeline[m->id]);
    a->pipeline[m->id] = pipeline_create(&conf, &why);
    if (a->pipeline[m->id] != NULL)
        return wire_send(&a->wire, id, &ok.base, NULL, 0, e);
    refused.has_code = 1;
    refused.code = ERR_STATE;
    refused.text = why.text;
    refused.word = (char *)"BackendUnavailable";
    return wire_send(&a->wire, id, &refused.base, NULL, 0, e);
}

/* ---- the conversation ---------------------------------------------------------------------------------- */

static void forget_pipelines(struct attach *a)
{
    for (unsigned i = 0; i < WORKFLOWS; i++) {
        pipeline_destroy(a->pipeline[i]);
        a->pipeline[i] = NULL;
    }
}

static int say_ready(struct attach *a, struct err *e)
{
    Sluice__RecoReady m = SLUICE__RECO_READY__INIT;
    Sluice__Device dev = SLUICE__DEVICE__INIT;
    char *names[32];

    dev.serial = a->serial;
    dev.class_ = a->device_class;
    dev.has_numa_actual = 1;
    dev.numa_actual = place_own_domain();
    m.software = (char *)"sluice-reco " PACKAGE_VERSION;
    m.device = &dev;
    m.workflows = names;
    for (const struct workflow *w = workflows; w->name != NULL && m.n_workflows < ARRAY_LEN(names); w++)
        names[m.n_workflows++] = (char *)w->name;
    return wire_send(&a->wire, 0, &m.base, NULL, 0, e);
}

static void take_device(struct attach *a, const Sluice__Device *device)
{
    a->serial = mem_strdup(device->serial);
    a->device_class = mem_strdup(device->class_);
    a->emulated = device->emulated;
    a->on_cpu = a->emulated || strncmp(a->serial, "cpu-", 4) == 0;
    a->nominal = device->has_nominal && device->nominal > 0 && device->nominal < 3600 ? device->nominal : 0;
}

/* The first says whose process this is, too; a later one, that the buffer has another size. */
static int on_open(struct attach *a, const struct wire_message *in, struct err *e)
{
    const Sluice__RecoOpen *open = (const Sluice__RecoOpen *)in->m;

    if (in->n_fds != 1 || open->device == NULL || open->device->serial == NULL)
        return err_set(e, ERR_PROTOCOL, "RecoOpen with a device and one descriptor wanted");
    if (open->major != PROTO_MAJOR)
        return err_set(e, ERR_PROTOCOL, "the worker speaks version %" PRIu32 " of the protocol, this program %d", open->major, PROTO_MAJOR);
    if (a->serial != NULL && strcmp(a->serial, open->device->serial) != 0)
        return err_set(e, ERR_PROTOCOL, "RecoOpen for device %.60s, this process is of %s", open->device->serial, a->serial);
    a->pin_must = open->pin_must;
    forget_pipelines(a);                         /* they may have pinned the old mapping */
    if (map_buffer(a, in->fds[0], open, e) < 0)
        return -1;
    if (a->serial == NULL)
        take_device(a, open->device);
    return say_ready(a, e);
}

static int open_first(struct attach *a, struct err *e)
{
    struct wire_message in;
    int rc = wire_read(&a->wire, &in, e);

    if (rc <= 0)
        return rc < 0 ? -1 : err_set(e, ERR_UNREACHABLE, "the worker closed before it said anything");
    rc = in.type == SLUICE__TYPE__RECO_OPEN ? on_open(a, &in, e) : err_set(e, ERR_PROTOCOL, "RecoOpen wanted first");
    wire_free(&in);
    return rc < 0 ? -1 : 0;
}

/* 1: go on; 0: the worker closed; -1. */
static int serve_one(struct attach *a, struct err *e)
{
    struct wire_message in;
    int rc = wire_read(&a->wire, &in, e);

    if (rc <= 0)
        return rc;
    switch (in.type) {
    case SLUICE__TYPE__RECO_OPEN:
        rc = on_open(a, &in, e);
        break;
    case SLUICE__TYPE__RECO_WORKFLOW:
        rc = on_workflow(a, in.id, (const Sluice__RecoWorkflow *)in.m, e);
        break;
    case SLUICE__TYPE__RECO_RUN:
        rc = on_run(a, (const Sluice__RecoRun *)in.m, e);
        break;
    case SLUICE__TYPE__CANCEL:
        rc = 0;                                  /* its TF was answered already */
        break;
    default:
        rc = err_set(e, ERR_PROTOCOL, "a message of type %u does not belong here", in.type);
    }
    wire_free(&in);
    return rc < 0 ? -1 : 1;
}

static void attach_free(struct attach *a)
{
    forget_pipelines(a);
    unmap_buffer(a);
    free(a->serial);
    free(a->device_class);
}

int attach_main(int argc, char **argv)
{
    struct attach a = { 0 };
    struct err e = { 0 };
    int64_t fd = 3;

    if (argc != 1 && (argc != 3 || strcmp(argv[1], "--fd") != 0 || str_parse_i64("--fd", argv[2], 0, 65535, &fd, &e) < 0)) {
        fprintf(stderr, "usage: sluice-reco attach [--fd N]: started by sluice-worker only%s%s\n", e.text[0] ? ": " : "", e.text);
        return ERR_USAGE;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    a.wire.fd = (int)fd;
    int rc = open_first(&a, &e);
    while (rc >= 0 && (rc = serve_one(&a, &e)) > 0)
        ;
    if (rc < 0)
        fprintf(stderr, "%s\n", e.text);
    attach_free(&a);
    return rc < 0 ? (int)(e.code ? e.code : ERR_FAILED) : 0;
}
