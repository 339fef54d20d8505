/* bench.c - time, bytes and operations of every stage and kernel, as JSON; a program of its own
 *
 *   bench [-b BACKEND] [-w WORKFLOW] [-j THREADS] [--isa v1|v3] [--repeat N] [--tf K] FILE.tf
 *
 * The first (K-th) TF of the file is done N times (20) as it is, for the stages, and N times with every kernel
 * waited for, for the kernels. bytes: what a kernel must read and write once. operations: instructions
 * of the v1 kernels (gcc 12 -O2), counted by callgrind on a dense and a sparse TF and shared out among digits,
 * pages, rows, chunks and clusters; so they are the same for every backend. The limits are measured on this host beforehand, with as many threads: a copy of
 * memory, and additions that depend on nothing. A device of its own has no limit here (null).
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cmd_part.h"
#include "input.h"
#include "pipeline.h"

enum { KERNELS_MOST = 16, THREADS_MOST = 64 };

struct sample {
    const char *name;
    unsigned n, calls;           /* repeats; launches in all */
    double sum, squares, least;
    double at_hand;              /* of the repeat being run */
};

struct bench {
    const char *backend, *workflow, *isa;
    uint64_t threads, repeat, tf;
    struct sample stage[8], kernel[KERNELS_MOST];
    unsigned stages, kernels;
    double memory, arithmetic;   /* limits: bytes/s, operations/s; 0: not known */
    struct counts { double bytes, pages, digits, rows, chunks, clusters; } c;
};

/* ---- what a kernel must do ---------------------------------------------------------------- */

struct model {
    const char *kernel;
    struct counts bytes, operations;             /* for each byte of pages, page, digit, row, chunk, cluster */
};

static const struct model models[] = {
    { "k_decode_count", { 1, 68, 0, 0, 0, 0 },      { 0, 1906, 54.1, 0, 0, 0 } },
    { "k_decode_rows",  { 0, 80, 0, 12, 0, 0 },     { 0, 69, 0, 17.9, 0, 0 } },
    { "k_scan",         { 0, 0, 0, 8, 8, 0 },       { 0, 0, 0, 6.6, 6.6, 0 } },
    { "k_decode_fill",  { 1, 64, 6, 0, 0, 0 },      { 0, 1307, 55.5, 0, 0, 0 } },
    { "k_decode_sort",  { 0, 0, 11, 4, 0, 0 },      { 0, 0, 31.3, 3465, 0, 0 } },
    { "k_pad_noise",    { 0, 0, 5, 720, 0, 0 },     { 0, 0, 56.2, 9016, 0, 0 } },
    { "k_clu_find",     { 0, 0, 4, 720, 12, 16 },   { 0, 0, 423, 0, 2545, 0 } },
    { "k_clu_order",    { 0, 0, 0, 4, 16, 32 },     { 0, 0, 0, 0, 18, 474 } },
};

static double weigh(const struct counts *w, const struct counts *c)
{
    return w->bytes * c->bytes + w->pages * c->pages + w->digits * c->digits + w->rows * c->rows + w->chunks * c->chunks +
           w->clusters * c->clusters;
}

/* ---- time --------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct sample *sample_of(struct sample *list, unsigned *n, unsigned room, const char *name)
{
    unsigned i = 0;
    while (i < *n && strcmp(list[i].name, name) != 0)
        i++;
    if (i == *n && *n < room)
        list[(*n)++] = (struct sample){ .name = name };
    return i < room ? &list[i] : NULL;
}

static void sample_end(struct sample *s)
{
    double x = s->at_hand;
    s->sum += x;
    s->squares += x * x;
    s->least = s->n == 0 || x < s->least ? x : s->least;
    s->n++;
    s->at_hand = 0;
}

static void took(void *arg, const char *kernel, double seconds)
{
    struct bench *b = arg;
    struct sample *s = sample_of(b->kernel, &b->kernels, KERNELS_MOST, kernel);
    if (s) {
        s->at_hand += seconds;
        s->calls++;
    }
}

/* ---- the host's limits -------------------------------------------------------------------- */

enum { COPY = 32 << 20, ADDS = 200000000 };

static void *copy_thread(void *arg)
{
    char *from = malloc(COPY), *to = malloc(COPY);
    double *least = arg;

    for (int i = 0; from && to && i < 6; i++) {
        double start;
        memset(from, i, COPY);
        start = now();
        memcpy(to, from, COPY);
        double t = now() - start;
        *least = *least <= 0 || t < *least ? t : *least;
    }
    free(from);
    free(to);
    return NULL;
}

#define ADD(x) x += one; __asm__ volatile("" : "+r"(x))
static void *add_thread(void *arg)
{
    double *least = arg;

    for (int k = 0; k < 3; k++) {
        uint32_t a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, one = (uint32_t)k;
        double start = now();
        for (unsigned i = 0; i < ADDS / 8; i++) {
            ADD(a); ADD(b); ADD(c); ADD(d); ADD(e); ADD(f); ADD(g); ADD(h);
        }
        double t = now() - start;
        *least = *least <= 0 || t < *least ? t : *least;
    }
    return NULL;
}

/* `amount` by each thread in its best time, all at once. */
static double limit(void *(*fn)(void *), unsigned threads, double amount)
{
    pthread_t t[THREADS_MOST];
    double least[THREADS_MOST] = { 0 }, sum = 0;
    unsigned started = 0;

    while (started < threads && pthread_create(&t[started], NULL, fn, &least[started]) == 0)
        started++;
    for (unsigned i = 0; i < started; i++) {
        pthread_join(t[i], NULL);
        sum += least[i] > 0 ? amount / least[i] : 0;
    }
    return sum;
}

/* ---- running ------------------------------------------------------------------------------ */

static int run(struct bench *b, const struct pipeline_seg *seg, bool kernels, struct k_err *e, struct pipeline_result *r)
{
    struct pipeline_conf c = { .workflow = b->workflow, .backends = b->backend, .threads = (unsigned)b->threads, .isa = b->isa,
                               .kernel = kernels ? took : NULL, .arg = b };
    struct pipeline *p = pipeline_create(&c, e);
    int rc = p ? 0 : -1;

    /* one more at the start, which takes the memory */
    for (uint64_t i = 0; rc == 0 && i <= b->repeat; i++) {
        rc = pipeline_run(p, seg, 1, r, e);
        if (i == 0)
            b->kernels = 0;
        for (unsigned k = 0; rc == 0 && !kernels && i > 0 && k < r->n_stage; k++) {
            struct sample *s = sample_of(b->stage, &b->stages, 8, r->stage[k].stage);
            s->at_hand = r->stage[k].seconds;
            s->calls++;
            sample_end(s);
        }
        for (unsigned k = 0; k < b->kernels; k++)
            sample_end(&b->kernel[k]);
    }
    if (rc == 0 && !kernels && strcmp(r->stage[0].backend, "cpu") != 0 && strstr(r->stage[0].device, "opencl-") == NULL)
        b->memory = b->arithmetic = 0;
    if (rc == 0)
        b->c.digits = (double)r->stage[0].items, b->c.clusters = r->n_stage > 1 ? (double)r->stage[1].items : 0;
    pipeline_destroy(p);
    return rc;
}

static int count(struct bench *b, const struct pipeline_seg *seg, struct k_err *e)
{
    struct tf_seg s = { seg->data, seg->size };
    struct input in = { 0 };
    int rc = input_read(&in, &s, 1, e);

    b->c.bytes = (double)in.bytes;
    b->c.pages = in.pages;
    b->c.rows = 36 * K_ROWS;
    b->c.chunks = b->c.rows * ((in.bins + K_CLU_T_WIDE - 1) / K_CLU_T_WIDE);
    input_free(&in);
    return rc;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void fraction(struct json *j, const char *key, double amount, double seconds, double most)
{
    if (most > 0 && seconds > 0)
        json_num(j, key, amount / seconds / most);
    else
        json_str(j, key, NULL);
}

static void sample_json(struct json *j, const struct bench *b, const char *key, const struct sample *s, double bytes, double operations)
{
    double mean = s->sum / s->n, v = s->squares / s->n - mean * mean;

    json_open(j, NULL, '{');
    json_str(j, key, s->name);
    json_num(j, "seconds", mean);
    json_num(j, "seconds_deviation", v > 0 ? sqrt(v) : 0);
    json_num(j, "seconds_least", s->least);
    json_u64(j, "repeats", s->n);
    json_u64(j, "calls", s->calls / s->n);
    json_num(j, "bytes", bytes);
    json_num(j, "operations", operations);
    fraction(j, "memory_fraction", bytes, s->least, b->memory);
    fraction(j, "arithmetic_fraction", operations, s->least, b->arithmetic);
    json_close(j, '}');
}

static void kernels_json(struct json *j, const struct bench *b)
{
    json_open(j, "kernels", '[');
    for (unsigned i = 0; i < b->kernels; i++) {
        const struct model *m = models;
        while (m < models + sizeof models / sizeof models[0] - 1 && strcmp(m->kernel, b->kernel[i].name) != 0)
            m++;
        sample_json(j, b, "kernel", &b->kernel[i], weigh(&m->bytes, &b->c), weigh(&m->operations, &b->c));
    }
    json_close(j, ']');
}

/* A stage is the sum of its kernels; decode's are those with decode in their name, and the first scan is small. */
static void stages_json(struct json *j, const struct bench *b)
{
    json_open(j, "stages", '[');
    for (unsigned i = 0; i < b->stages; i++) {
        double bytes = 0, operations = 0;
        for (size_t k = 0; k < sizeof models / sizeof models[0]; k++) {
            bool decode = strstr(models[k].kernel, "decode") != NULL;
            if (decode != (strcmp(b->stage[i].name, "decode") == 0))
                continue;
            bytes += weigh(&models[k].bytes, &b->c);
            operations += weigh(&models[k].operations, &b->c);
        }
        sample_json(j, b, "stage", &b->stage[i], bytes, operations);
    }
    json_close(j, ']');
}

static void report(const struct bench *b, const struct pipeline_result *r, const char *file)
{
    double load[3] = { 0 }, seconds = 0;
    struct json j;

    getloadavg(load, 3);
    for (unsigned i = 0; i < b->stages; i++)
        seconds += b->stage[i].least;
    json_begin(&j, "bench", "benches");
    json_open(&j, NULL, '{');
    json_str(&j, "file", file);
    json_u64(&j, "tf", b->tf);
    json_str(&j, "backend", r->stage[0].backend);
    json_str(&j, "device", r->stage[0].device);
    json_str(&j, "isa", b->isa);
    json_u64(&j, "threads", b->threads);
    json_num(&j, "load", load[0]);
    json_digest(&j, "digest", r->digest);
    json_u64(&j, "digits", (uint64_t)b->c.digits);
    json_u64(&j, "clusters", (uint64_t)b->c.clusters);
    json_u64(&j, "pages", (uint64_t)b->c.pages);
    json_u64(&j, "chunks", (uint64_t)b->c.chunks);
    json_num(&j, "digits_per_second", seconds > 0 ? b->c.digits / seconds : 0);
    fraction(&j, "memory_limit", b->memory, 1, 1);
    fraction(&j, "arithmetic_limit", b->arithmetic, 1, 1);
    stages_json(&j, b);
    kernels_json(&j, b);
    json_close(&j, '}');
    json_end(&j);
}

static int parse(int argc, char **argv, struct bench *b)
{
    static const struct option options[] = {
        { "backend", required_argument, NULL, 'b' }, { "workflow", required_argument, NULL, 'w' }, { "threads", required_argument, NULL, 'j' },
        { "isa", required_argument, NULL, 'i' }, { "repeat", required_argument, NULL, 'r' },
        { "tf", required_argument, NULL, 'k' }, { 0 },
    };
    int o, bad = 0;

    while ((o = getopt_long(argc, argv, "b:w:j:", options, NULL)) != -1) {
        switch (o) {
        case 'b': b->backend = optarg; break;
        case 'w': b->workflow = optarg; break;
        case 'i': b->isa = optarg; break;
        case 'j': bad |= cmd_number(optarg, 1, THREADS_MOST, &b->threads); break;
        case 'r': bad |= cmd_number(optarg, 1, 100000, &b->repeat); break;
        case 'k': bad |= cmd_number(optarg, 0, 100000, &b->tf); break;
        default: bad = 1;
        }
    }
    return bad || optind + 1 != argc ? -1 : 0;
}

/* TF k of the file, from 0. */
static int find(struct tf_file *f, uint64_t k, struct tf_info *info, struct tf_err *e)
{
    int rc = 1;

    for (uint64_t i = 0; i <= k && rc == 1; i++)
        rc = tf_file_next(f, info, e);
    if (rc == 0)
        snprintf(e->text, sizeof e->text, "no TF %" PRIu64 " in it", k);
    return rc == 1 ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct bench b = { .backend = "cpu", .workflow = "cluster", .threads = 1, .repeat = 20, .tf = 0 };
    struct pipeline_seg seg = { 0 };
    struct pipeline_result r = { 0 };
    struct k_err e = { 0 };
    struct tf_err te;
    struct tf_info info;
    struct tf_file *f;
    void *data = NULL;

    if (parse(argc, argv, &b) < 0) {
        fprintf(stderr, "usage: bench [-b BACKEND] [-w WORKFLOW] [-j THREADS] [--isa v1|v3] [--repeat N] [--tf K] FILE.tf\n");
        return 2;
    }
    f = tf_file_open(argv[optind], &te);
    if (f == NULL || find(f, b.tf, &info, &te) < 0 || (data = malloc(info.size)) == NULL ||
        tf_file_read(f, info.offset, data, info.size, &te) < 0) {
        fprintf(stderr, "bench: %s: %s\n", argv[optind], te.text);
        return 1;
    }
    seg = (struct pipeline_seg){ data, info.size };
    b.memory = limit(copy_thread, (unsigned)b.threads, 2.0 * COPY);
    b.arithmetic = limit(add_thread, (unsigned)b.threads, ADDS);
    if (count(&b, &seg, &e) < 0 || run(&b, &seg, false, &e, &r) < 0 || run(&b, &seg, true, &e, &r) < 0) {
        fprintf(stderr, "bench: %s\n", e.text);
        return 1;
    }
    report(&b, &r, argv[optind]);
    free(data);
    tf_file_close(f);
    return 0;
}
