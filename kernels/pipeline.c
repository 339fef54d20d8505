/* pipeline.c - the reconstruction as one call: a TF in, results out
 *
 * From: sluice-reco, the standalone program, tests.  To: input.c, the stages, result.c.
 * A TF goes through in batches of links. Between two stages on the same device the digits stay
 * there; the canonical result on the host is written batch behind batch, each at its place.
 */
#include "pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "result.h"
#include "stage.h"
#include "stage_devices.h"

struct pipeline {
    struct workflow_choice choice;
    struct stage_devices on;
    struct input in;
    struct decode *decode;
    struct kdigits digits;                    /* on the device of decode */
    struct kdigits moved;                     /* on that of cluster, when it is another */
    struct cluster *cluster;
    struct result_buf digits_out, clusters_out;
    uint32_t ndigits, nclusters;              /* of the TF at hand, so far */
    uint64_t batch_bytes;                     /* of pages done at a time */
    uint32_t rows_done;                       /* rows whose place in the indexes is known */
    double seconds[STAGE_COUNT];
    uint64_t bytes_in[STAGE_COUNT], bytes_out[STAGE_COUNT];
    void (*stage)(void *arg, const char *stage);
    void *arg;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ------------------------------------------------------------------------------ */

struct pipeline *pipeline_create(const struct pipeline_conf *c, struct k_err *e)
{
    struct pipeline *p = calloc(1, sizeof *p);

    if (p == NULL) {
        k_fail(e, K_ENOMEM, "out of memory");
        return NULL;
    }
    if (workflow_choose(c->workflow, c->backends, c->options, &p->choice, e) < 0 ||
        stage_devices_open(&p->on, &p->choice, c, e) < 0)
        goto fail;
    for (unsigned i = 0; i < STAGE_COUNT && c->kernel; i++) {
        if (p->on.dev[i]) {
            p->on.dev[i]->took = c->kernel;
            p->on.dev[i]->arg = c->arg;
        }
    }
    p->stage = c->stage;
    p->arg = c->arg;
    p->batch_bytes = p->choice.option[STAGE_DECODE][0];
    if (p->on.dev[STAGE_DECODE]) {
        p->decode = decode_new(p->on.dev[STAGE_DECODE]);
        if (p->decode == NULL) {
            k_fail(e, K_ENOMEM, "out of memory");
            goto fail;
        }
    }
    if (p->on.dev[STAGE_CLUSTER]) {
        const uint64_t *o = p->choice.option[STAGE_CLUSTER];
        struct cluster_option co = { o[0], o[1], o[2], o[3], o[4] };
        p->cluster = cluster_new(p->on.dev[STAGE_CLUSTER], &co);
        if (p->cluster == NULL) {
            k_fail(e, K_ENOMEM, "out of memory");
            goto fail;
        }
    }
    return p;
fail:
    pipeline_destroy(p);
    return NULL;
}

void pipeline_destroy(struct pipeline *p)
{
    if (p == NULL)
        return;
    if (p->on.dev[STAGE_DECODE]) {
        kdigits_release(p->on.dev[STAGE_DECODE], &p->digits);
        decode_free(p->decode);
    }
    if (p->on.dev[STAGE_CLUSTER]) {
        kdigits_release(p->on.dev[STAGE_CLUSTER], &p->moved);
        cluster_free(p->cluster);
    }
    stage_devices_close(&p->on);
    input_free(&p->in);
    result_free(&p->digits_out);
    result_free(&p->clusters_out);
    free(p);
}

/* ---- results ------------------------------------------------------------------------------ */

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

/* The header of the digits, and room for all of them. */
static int digits_begin(struct pipeline *p, struct k_err *e)
{
    const struct input *in = &p->in;
    const uint32_t head[6] = { (uint32_t)in->samples, in->bins, in->orbits, in->first_orbit,
                               in->counter, in->run };
    struct result_buf *r = &p->digits_out;

    if (in->samples > UINT32_MAX)
        return k_fail(e, K_EINPUT, "%llu digits in one TF, at most 4294967295 can be numbered",
                      (unsigned long long)in->samples);
    if (result_reserve(r, DIGITS_HEADER + DIGIT_SIZE * in->samples, e) < 0)
        return -1;
    r->size = DIGITS_HEADER + DIGIT_SIZE * in->samples;
    memset(r->data, 0, DIGITS_HEADER);
    memcpy(r->data, "TPCDIG1", 8);
    for (int i = 0; i < 6; i++)
        put32(r->data + 8 + 4 * i, head[i]);
    put32(r->data + 32 + 4 * 36, head[0]);
    return 0;
}

/* Writes the digits of a batch behind the `done` digits before it. */
static int digits_batch(struct pipeline *p, const struct batch *b, uint32_t done,
                        struct digits_host *h, struct k_err *e)
{
    uint8_t *base = p->digits_out.data + DIGITS_HEADER;
    size_t n = p->in.samples;

    h->row_start = malloc(((size_t)b->rows + 1) * 4);
    if (h->row_start == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    /* On a little-endian machine the device's arrays are the file's. */
    h->time = (uint16_t *)(void *)(base + 2 * (size_t)done);
    h->charge = (uint16_t *)(void *)(base + 2 * n + 2 * (size_t)done);
    h->pad = base + 6 * n + done;
    if (kdigits_download(p->on.dev[STAGE_DECODE], &p->digits, h, e) < 0)
        return -1;
    for (uint32_t i = 0; i < b->rows; i++) {
        uint32_t row = b->first_row + i, from = h->row_start[i], len = h->row_start[i + 1] - from;
        if (row % K_ROWS == 0)
            put32(p->digits_out.data + 32 + 4 * (row / K_ROWS), done + from);
        memset(base + 4 * n + done + from, (int)(row / K_ROWS), len);
        memset(base + 5 * n + done + from, (int)(row % K_ROWS), len);
    }
    return 0;
}

static int clusters_begin(struct pipeline *p, struct k_err *e)
{
    struct result_buf *r = &p->clusters_out;

    if (result_reserve(r, CLUSTERS_HEADER, e) < 0)
        return -1;
    r->size = CLUSTERS_HEADER;
    memset(r->data, 0, CLUSTERS_HEADER);
    memcpy(r->data, "TPCCLU1", 8);
    put32(r->data + 12, SECTOR_ROWS);
    return 0;
}

/* Appends the clusters of a batch. */
static int clusters_batch(struct pipeline *p, const struct batch *b, uint32_t n, struct k_err *e)
{
    struct result_buf *r = &p->clusters_out;
    size_t size = r->size + (size_t)n * CLUSTER_SIZE;
    uint32_t *row_start = malloc(((size_t)b->rows + 1) * 4);
    int ret = -1;

    if (row_start == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    if (n > UINT32_MAX - p->nclusters) {
        k_fail(e, K_EINPUT, "more than 4294967295 clusters in one TF");
        goto out;
    }
    /* Half as much again when it grows: a TF has many batches. */
    if (size > r->room && result_reserve(r, size + size / 2, e) < 0)
        goto out;
    if (cluster_download(p->cluster, b->rows, n, row_start, r->data + r->size, e) < 0)
        goto out;
    for (uint32_t i = 0; i < b->rows; i++)
        put32(r->data + 16 + 4 * (b->first_row + i), p->nclusters + row_start[i]);
    r->size = size;
    p->nclusters += n;
    put32(r->data + 8, p->nclusters);
    put32(r->data + 16 + 4 * SECTOR_ROWS, p->nclusters);
    ret = 0;
out:
    free(row_start);
    return ret;
}

/* Rows up to `row` have nothing more than is there already. */
static void rows_without(struct pipeline *p, uint32_t row)
{
    for (; p->rows_done < row; p->rows_done++) {
        if (p->rows_done % K_ROWS == 0)
            put32(p->digits_out.data + 32 + 4 * (p->rows_done / K_ROWS), p->ndigits);
        if (p->cluster)
            put32(p->clusters_out.data + 16 + 4 * p->rows_done, p->nclusters);
    }
}

/* ---- a TF --------------------------------------------------------------------------------- */

static void begins(const struct pipeline *p, enum stage_id id)
{
    if (p->stage)
        p->stage(p->arg, stages[id].name);
}

static int cluster_batch(struct pipeline *p, const struct batch *b, const struct digits_host *h,
                         struct k_err *e)
{
    const struct kdigits *k = &p->digits;
    uint32_t n;

    begins(p, STAGE_CLUSTER);
    /* Data move only where the device changes. */
    if (p->on.dev[STAGE_CLUSTER] != p->on.dev[STAGE_DECODE]) {
        if (kdigits_upload(p->on.dev[STAGE_CLUSTER], &p->moved, b, h, e) < 0)
            return -1;
        k = &p->moved;
    }
    if (cluster_run(p->cluster, k, p->in.bins, &n, e) < 0)
        return -1;
    return clusters_batch(p, b, n, e);
}

/* What a stage took since: time, and bytes to and from its device. */
struct lap {
    double start;
    uint64_t in, out;
};

static struct lap lap_begin(const struct pipeline *p, enum stage_id id)
{
    return (struct lap){ now(), p->on.dev[id]->copied_in, p->on.dev[id]->copied_out };
}

static void lap_end(struct pipeline *p, enum stage_id id, const struct lap *l)
{
    p->seconds[id] += now() - l->start;
    p->bytes_in[id] += p->on.dev[id]->copied_in - l->in;
    p->bytes_out[id] += p->on.dev[id]->copied_out - l->out;
}

static int run_batch(struct pipeline *p, const struct batch *b, const struct batch *next, struct k_err *e)
{
    struct digits_host h = { 0 };
    struct lap lap = lap_begin(p, STAGE_DECODE);
    int r = -1;

    begins(p, STAGE_DECODE);
    rows_without(p, b->first_row);
    if (decode_run(p->decode, &p->in, b, next, &p->digits, e) < 0 ||
        digits_batch(p, b, p->ndigits, &h, e) < 0)
        goto out;
    lap_end(p, STAGE_DECODE, &lap);
    p->ndigits += p->digits.n;
    if (p->cluster) {
        lap = lap_begin(p, STAGE_CLUSTER);
        if (cluster_batch(p, b, &h, e) < 0)
            goto out;
        lap_end(p, STAGE_CLUSTER, &lap);
    }
    p->rows_done = b->first_row + b->rows;
    r = 0;
out:
    free(h.row_start);
    return r;
}

/* Too little memory on a device: gives back what is taken, to go on with pieces of half the size. A
 * single link cannot be divided; then the error stands. */
static bool smaller(struct pipeline *p, uint64_t bytes, const struct k_err *e)
{
    if (e->code != K_ENOMEM || bytes == 0)
        return false;
    p->batch_bytes = bytes / 2;
    decode_shrink(p->decode);
    kdigits_release(p->on.dev[STAGE_DECODE], &p->digits);
    if (p->cluster) {
        cluster_shrink(p->cluster);
        kdigits_release(p->on.dev[STAGE_CLUSTER], &p->moved);
    }
    return true;
}

static uint64_t divisible(const struct batch *b)
{
    return b->link_end - b->link < 2 ? 0 : b->bytes;
}

/* Takes the memory that the greatest batch needs, once for all of them. */
static int take(struct pipeline *p, const struct batch_most *m, bool ahead, struct k_err *e)
{
    bool apart = p->cluster && p->on.dev[STAGE_CLUSTER] != p->on.dev[STAGE_DECODE];
    struct kwant w[2 * STAGE_BUFFERS];
    unsigned n = decode_wants(p->decode, &p->digits, m, ahead, w);

    if (apart && kdev_reserve_all(p->on.dev[STAGE_DECODE], w, n, e) < 0)
        return -1;
    if (apart)
        n = 0;
    if (p->cluster)
        n += cluster_wants(p->cluster, apart ? &p->moved : NULL, m, p->in.bins, w + n);
    return kdev_reserve_all(p->on.dev[p->cluster ? STAGE_CLUSTER : STAGE_DECODE], w, n, e);
}

/* Cuts the TF into batches that the devices have memory for. */
static int plan(struct pipeline *p, struct k_err *e)
{
    for (;;) {
        struct batch_most m = { 0 };
        struct batch b;
        uint64_t greatest = 0;
        for (uint32_t link = 0; batch_next(&p->in, link, p->batch_bytes, &b); link = b.link_end) {
            batch_most_add(&m, &p->in, &b);
            greatest = divisible(&b) > greatest ? b.bytes : greatest;
        }
        bool ahead = p->on.dev[STAGE_DECODE]->ahead && m.batches > 1;
        if (m.batches == 0 || take(p, &m, ahead, e) == 0)
            return 0;
        if (smaller(p, greatest, e))
            continue;
        return e->code == K_ENOMEM && ahead ? take(p, &m, false, e) : -1;
    }
}

/* All batches of the TF. What a batch that failed has written is written again by the next try. */
static int run_batches(struct pipeline *p, struct k_err *e)
{
    struct batch b, next;
    uint32_t link = 0;

    if (plan(p, e) < 0)
        return -1;
    while (batch_next(&p->in, link, p->batch_bytes, &b)) {
        uint32_t digits = p->ndigits;
        bool more = batch_next(&p->in, b.link_end, p->batch_bytes, &next);
        if (run_batch(p, &b, more ? &next : NULL, e) == 0) {
            link = b.link_end;
            continue;
        }
        p->ndigits = digits;
        if (!smaller(p, divisible(&b), e) || plan(p, e) < 0)
            return -1;
    }
    return 0;
}

static void add_out(struct pipeline_result *r, enum stage_id id, const struct result_buf *b,
                    uint64_t count)
{
    r->out[r->n_out++] = (struct pipeline_out){
        .stage = stages[id].output, .data = b->data, .size = b->size,
        .digest = result_digest(b->data, b->size), .count = count,
    };
    r->digest = r->out[r->n_out - 1].digest;
}

void pipeline_describe(const struct pipeline *p, struct pipeline_result *r)
{
    const struct workflow *w = p->choice.workflow;

    r->n_stage = w->stages;
    for (unsigned i = 0; i < w->stages; i++) {
        enum stage_id id = w->stage[i];
        r->stage[i] = (struct pipeline_stage){
            .stage = stages[id].name, .wanted = p->choice.backend[id],
            .backend = p->on.dev[id]->ops->name, .fallback = p->on.fallback[id][0] ? p->on.fallback[id] : NULL,
            .device = p->on.dev[id]->info.id, .host = &p->on.dev[id]->host, .seconds = p->seconds[id],
            .bytes_in = p->bytes_in[id], .bytes_out = p->bytes_out[id],
        };
    }
}

/* Workflow none: headers only; the digest is that of the input. */
static int run_none(struct pipeline *p, const struct tf_seg *seg, unsigned n,
                    struct pipeline_result *r, struct k_err *e)
{
    struct tf_info info;
    struct tf_err te;

    (void)p;
    if (tf_check(seg, n, &info, NULL, &te) < 0)
        return k_fail(e, K_EINPUT, "byte %llu of the TF: %s", (unsigned long long)te.offset,
                      te.text);
    struct result_hash *h = result_hash_new();
    if (h == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    for (unsigned i = 0; i < n; i++)
        result_hash_add(h, seg[i].data, seg[i].size);
    r->digest = result_hash_end(h);
    r->first_orbit = info.first_orbit;
    r->counter = info.counter;
    r->run = info.run;
    return 0;
}

static int run_stages(struct pipeline *p, const struct tf_seg *seg, unsigned n,
                      struct pipeline_result *r, struct k_err *e)
{
    double start = now();
    struct k_err own = { 0 };

    p->ndigits = p->nclusters = p->rows_done = 0;
    memset(p->seconds, 0, sizeof p->seconds);
    memset(p->bytes_in, 0, sizeof p->bytes_in);
    memset(p->bytes_out, 0, sizeof p->bytes_out);
    if (input_read(&p->in, seg, n, e) < 0 || digits_begin(p, e) < 0 ||
        (p->cluster && clusters_begin(p, e) < 0))
        return -1;
    p->seconds[STAGE_DECODE] = now() - start;
    int ret = run_batches(p, &own);
    decode_settle(p->decode);
    if (ret < 0) {
        if (e)
            *e = own;
        return -1;
    }
    rows_without(p, SECTOR_ROWS);
    r->first_orbit = p->in.first_orbit;
    r->counter = p->in.counter;
    r->run = p->in.run;
    pipeline_describe(p, r);
    r->stage[0].items = p->ndigits;
    add_out(r, STAGE_DECODE, &p->digits_out, p->ndigits);
    if (p->cluster) {
        r->stage[1].items = p->nclusters;
        add_out(r, STAGE_CLUSTER, &p->clusters_out, p->nclusters);
    }
    return 0;
}

int pipeline_run(struct pipeline *p, const struct pipeline_seg *seg, unsigned n,
                 struct pipeline_result *r, struct k_err *e)
{
    struct tf_seg *s = calloc(n + 1, sizeof *s);
    struct pipeline_result out = { 0 };
    int ret;

    if (s == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    for (unsigned i = 0; i < n; i++)
        s[i] = (struct tf_seg){ seg[i].data, seg[i].size };
    ret = p->choice.workflow->stages == 0 ? run_none(p, s, n, &out, e)
                                          : run_stages(p, s, n, &out, e);
    free(s);
    if (ret == 0)
        *r = out;
    return ret;
}
