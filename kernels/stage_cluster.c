/* stage_cluster.c - stage cluster on a device: digits -> clusters
 *
 * From: stage_decode.c (digits on this device, or uploaded).  To: result.c.
 * How many clusters there are is known only afterwards. Room is taken from an estimate; the
 * kernel counts on when it is full, so a second try knows exactly what it needs.
 */
#include "stage.h"

#include <stdlib.h>

struct cluster {
    struct kdev *dev;
    struct cluster_option option;
    struct kbuf pad_start, noisy, slots, chunk_at, chunk_n, chunk_valid, chunk_start, used;
    struct kbuf out, row_start;
};

struct cluster *cluster_new(struct kdev *d, const struct cluster_option *o)
{
    struct cluster *s = calloc(1, sizeof *s);
    if (s) {
        s->dev = d;
        s->option = *o;
    }
    return s;
}

void cluster_shrink(struct cluster *s)
{
    struct kbuf *all[] = { &s->pad_start, &s->noisy, &s->slots, &s->chunk_at, &s->chunk_n,
                           &s->chunk_valid, &s->chunk_start, &s->used, &s->out, &s->row_start };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        kdev_release(s->dev, all[i]);
}

void cluster_free(struct cluster *s)
{
    if (s == NULL)
        return;
    cluster_shrink(s);
    free(s);
}

static kcluster_par parameters(const struct cluster *s, uint32_t rows, uint32_t bins)
{
    uint32_t t = s->dev->info.wide ? K_CLU_T_WIDE : K_CLU_T_NARROW;
    uint32_t chunks = bins > 0 ? (bins + t - 1) / t : 1;

    /* Charges come in quarters; the kernel compares in 1/16. */
    return (kcluster_par){
        .rows = rows, .chunks = chunks, .segment = chunks < 64 ? chunks : 64,
        .peak_min = (uint32_t)s->option.peak * 16, .qtot_min = (uint32_t)s->option.qtot,
        .noise_bins = 4000, .noise_run = (uint32_t)s->option.noise_run,
        .noise_count = (uint32_t)s->option.noise_count,
        .noise_max = (uint32_t)s->option.noise_max * 4,
        .min_diff = 160, .min_num = 76, .min_den = 255,
    };
}

static size_t estimate(uint32_t samples)
{
    return (size_t)samples / 4 + 1000;
}

unsigned cluster_wants(struct cluster *s, struct kdigits *moved, const struct batch_most *m,
                       uint32_t bins, struct kwant *w)
{
    size_t rows = m->rows, chunks = rows * parameters(s, m->rows, bins).chunks, n = m->samples;
    const struct kwant want[] = {
        { &s->pad_start, rows * K_PAD_ROOM * 4 },
        { &s->noisy, rows * K_PAD_ROOM },
        { &s->chunk_at, chunks * 4 },
        { &s->chunk_n, chunks * 4 },
        { &s->chunk_valid, chunks * 4 },
        { &s->chunk_start, (chunks + 1) * 4 },
        { &s->used, 8 },
        { &s->row_start, (rows + 1) * 4 },
        { &s->slots, estimate(m->samples) * CLUSTER_WORDS * 4 },
        { &s->out, estimate(m->samples) * CLUSTER_WORDS * 4 },
        { moved ? &moved->rows : NULL, rows * sizeof(krow) },
        { moved ? &moved->row_start : NULL, (rows + 1) * 4 },
        { moved ? &moved->time : NULL, n * 2 + 16 },
        { moved ? &moved->charge : NULL, n * 2 + 16 },
        { moved ? &moved->pad : NULL, n + 16 },
    };
    unsigned count = 0;

    for (unsigned i = 0; i < sizeof want / sizeof want[0]; i++) {
        if (want[i].buf)
            w[count++] = want[i];
    }
    return count;
}

static int find(struct cluster *s, const struct kdigits *k, const kcluster_par *par,
                uint32_t *used, struct k_err *e)
{
    struct kdev *d = s->dev;
    size_t chunks = (size_t)par->rows * par->chunks;
    uint32_t pieces = (par->chunks + par->segment - 1) / par->segment;

    if (kdev_zero(d, &s->chunk_n, chunks * 4, e) < 0 ||
        kdev_zero(d, &s->chunk_valid, chunks * 4, e) < 0 || kdev_zero(d, &s->used, 8, e) < 0 ||
        KLAUNCH(d, e, "k_clu_find", par->rows * pieces, KBUF(k->rows), KBUF(k->time),
                KBUF(k->charge), KBUF(s->pad_start), KBUF(s->noisy), KBUF(s->slots),
                KBUF(s->chunk_at), KBUF(s->chunk_n), KBUF(s->chunk_valid), KBUF(s->used),
                KVAL(*par)) < 0)
        return -1;
    return kdev_download(d, used, &s->used, 0, 4, e);
}

int cluster_run(struct cluster *s, const struct kdigits *k, uint32_t bins, uint32_t *n,
                struct k_err *e)
{
    struct kdev *d = s->dev;
    kcluster_par par = parameters(s, k->nrows, bins);
    uint32_t chunks = par.rows * par.chunks, used = 0;
    uint32_t pieces = (par.chunks + par.segment - 1) / par.segment;

    par.slots = (uint32_t)(s->slots.size / (CLUSTER_WORDS * 4));
    if (KLAUNCH(d, e, "k_pad_noise", par.rows, KBUF(k->rows), KBUF(k->row_start), KBUF(k->time),
                KBUF(k->charge), KBUF(k->pad), KBUF(s->pad_start), KBUF(s->noisy),
                KVAL(par)) < 0 ||
        find(s, k, &par, &used, e) < 0)
        return -1;
    if (used > par.slots) {
        if (kdev_reserve(d, &s->slots, (size_t)used * CLUSTER_WORDS * 4, e) < 0)
            return -1;
        par.slots = used;
        if (find(s, k, &par, &used, e) < 0)
            return -1;
    }
    if (KLAUNCH(d, e, "k_scan", 1, KBUF(s->chunk_valid), KBUF(s->chunk_start),
                KVAL(chunks)) < 0 ||
        kdev_download(d, n, &s->chunk_start, (size_t)chunks * 4, 4, e) < 0 ||
        kdev_reserve(d, &s->out, (size_t)*n * CLUSTER_WORDS * 4 + 16, e) < 0 ||
        KLAUNCH(d, e, "k_clu_order", par.rows * pieces, KBUF(s->slots), KBUF(s->chunk_at),
                KBUF(s->chunk_n), KBUF(s->chunk_start), KBUF(s->out), KBUF(s->row_start),
                KVAL(par)) < 0)
        return -1;
    return kdev_wait(d, e);
}

int cluster_download(struct cluster *s, uint32_t rows, uint32_t n, uint32_t *row_start,
                     void *records, struct k_err *e)
{
    if (kdev_download(s->dev, row_start, &s->row_start, 0, ((size_t)rows + 1) * 4, e) < 0)
        return -1;
    return kdev_download(s->dev, records, &s->out, 0, (size_t)n * CLUSTER_WORDS * 4, e);
}
