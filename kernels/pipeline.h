/* pipeline.h - the reconstruction as one call: a TF in, results out
 *
 * The one interface that programs outside kernels/ link. A pipeline belongs to one thread at a
 * time; its devices stay open and their memory stays taken from TF to TF.
 */
#ifndef PIPELINE_H
#define PIPELINE_H

#include <stddef.h>
#include <stdint.h>

#include "kerr.h"
#include "khost.h"
#include "workflow.h"

struct pipeline_conf {
    const char *workflow;        /* none, decode, cluster, ... */
    const char *backends;        /* "STAGE=B,..." or one default; NULL: auto */
    const char *options;         /* "STAGE.OPTION=V,..." or NULL */
    const char *device;          /* id as `sluice devices` shows it; NULL: the backend's first; a name only with cpu_only */
    bool cpu_only;               /* device is the CPU, whatever GPUs are there: auto takes it, a GPU is refused */
    unsigned threads;            /* of a CPU device; 0: as many as the process may use */
    const char *isa;             /* of the cpu backend: v1, v3; NULL: the best there is */
    uint64_t memory_limit;       /* bytes a device may give; 0: no limit */
    struct khost_want pin;       /* memory that TFs will lie in; size 0: none is known beforehand */
    bool pin_must;               /* without it being pinned pipeline_create fails, else copies are slower */
    /* A stage begins on a batch of the TF: a sign of life while pipeline_run is at work; or NULL. */
    void (*stage)(void *arg, const char *stage);
    /* A kernel took so long: for measuring only, because every kernel is waited for then; or NULL. */
    void (*kernel)(void *arg, const char *kernel, double seconds);
    void *arg;
};

struct pipeline_seg {
    const void *data;
    size_t size;
};

struct pipeline_out {
    const char *stage;           /* what it is: digits, clusters (the ending of its file) */
    void *data;                  /* canonical layout, see result.h */
    size_t size;
    uint64_t digest;             /* XXH3-64 of data */
    uint64_t count;              /* of digits or clusters */
};

struct pipeline_stage {
    const char *stage;
    const char *wanted;          /* backend asked for: may be gpu or auto */
    const char *backend;         /* that ran, never gpu or auto */
    const char *device;          /* id */
    const struct khost_report *host;             /* what of conf.pin its device has pinned */
    double seconds;              /* wall time, copies of this stage included */
    uint64_t bytes_in, bytes_out;                /* copied to and from its device */
    uint64_t items;              /* digits or clusters */
    const char *fallback;        /* why auto took the CPU; NULL: it did not have to */
};

struct pipeline_result {
    uint32_t first_orbit, counter, run;
    uint64_t digest;             /* of the TF: that of the last stage's output */
    unsigned n_out, n_stage;
    struct pipeline_out out[8];
    struct pipeline_stage stage[8];
};

struct pipeline;

struct pipeline *pipeline_create(const struct pipeline_conf *c, struct k_err *e);
void pipeline_destroy(struct pipeline *p);

/* A device that has too little memory for the TF gets it in pieces; when even one link is too much,
 * the error is K_ENOMEM and its `need` what the device would have to give.
 *
 * One TF, given as segments, each a run of whole blocks (in order; a missing segment is a TF
 * without those blocks). 0: *r is filled, and its memory is the pipeline's until the next call.
 * -1: the pipeline can go on with another TF, whatever was wrong with this one. */
int pipeline_run(struct pipeline *p, const struct pipeline_seg *seg, unsigned n,
                 struct pipeline_result *r, struct k_err *e);

/* Backend and device of every stage as opened; for a report before the first TF. */
void pipeline_describe(const struct pipeline *p, struct pipeline_result *r);

#endif
