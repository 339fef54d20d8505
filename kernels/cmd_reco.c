/* cmd_reco.c - sluice reco: TF files in, digests and results out
 *
 * From: files.  To: pipeline.c; stdout; DIR/STEM.STAGE, or DIR/STEM.K.STAGE (K from 0, as in
 * jobs) when a file holds several TFs.
 * A damaged file or TF is named and skipped; the exit code says so in the end.
 */
#include "cmd.h"
#include "cmd_part.h"
#include "pipeline.h"
#include "result.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char help[] =
    "sluice reco FILE... - reconstruct TF files\n"
    "  -w, --workflow W       none, decode, ... (default: the longest there is)\n"
    "  -b, --backend B        one for all stages, or STAGE=B,... (default auto)\n"
    "      --set S.O=V,...    options of single stages (sluice workflows lists them)\n"
    "      --device ID        as sluice devices shows it (default: the first)\n"
    "  -j, --threads N        of a CPU device (default: all the process may use)\n"
    "      --isa v1|v3        of the cpu backend (default: the best there is)\n"
    "      --memory SIZE      bytes a device may give (default: no limit)\n"
    "  -o, --output DIR       write STEM.digits, STEM.clusters, ... there; STEM.K.digits, ... when\n"
    "                         a file holds several TFs, K from 0\n"
    "      --digest           print only digest, file and number of the TF\n"
    "      --repeat N         do every TF N times; all must give one digest\n"
    "      --json             one JSON document\n";

struct reco {
    const char *output;
    bool digest, json;
    uint64_t repeat;
    struct pipeline *p;
    struct json j;
    unsigned done, failed, missing;
};

/* Mean and standard deviation of the seconds of one stage. */
struct spread {
    double sum, squares, least;
    unsigned n;
};

static void spread_add(struct spread *s, double x)
{
    s->sum += x;
    s->squares += x * x;
    s->least = s->n == 0 || x < s->least ? x : s->least;
    s->n++;
}

static double spread_dev(const struct spread *s)
{
    double mean = s->sum / s->n, v = s->squares / s->n - mean * mean;
    return v > 0 ? sqrt(v) : 0;
}

static int write_results(const struct reco *r, const char *path, unsigned k, bool several,
                         const struct pipeline_result *res, struct k_err *e)
{
    char stem[1024], name[4096];

    cmd_stem(path, stem, sizeof stem);
    for (unsigned i = 0; i < res->n_out; i++) {
        const struct pipeline_out *o = &res->out[i];
        int n = several ? snprintf(name, sizeof name, "%s/%s.%u.%s", r->output, stem, k, o->stage)
                        : snprintf(name, sizeof name, "%s/%s.%s", r->output, stem, o->stage);
        if (n >= (int)sizeof name)
            return k_fail(e, K_EINPUT, "%s: the name is too long", r->output);
        if (cmd_write(name, o->data, o->size, e) < 0)
            return -1;
    }
    return 0;
}

static void print_json(struct reco *r, const char *path, unsigned k,
                       const struct pipeline_result *res, const struct spread *s)
{
    struct json *j = &r->j;

    json_open(j, NULL, '{');
    json_str(j, "file", path);
    json_u64(j, "tf", k);
    json_u64(j, "first_orbit", res->first_orbit);
    json_u64(j, "counter", res->counter);
    json_u64(j, "run", res->run);
    json_digest(j, "digest", res->digest);
    json_open(j, "outputs", '[');
    for (unsigned i = 0; i < res->n_out; i++) {
        json_open(j, NULL, '{');
        json_str(j, "stage", res->out[i].stage);
        json_u64(j, "count", res->out[i].count);
        json_u64(j, "size", res->out[i].size);
        json_digest(j, "digest", res->out[i].digest);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_open(j, "stages", '[');
    for (unsigned i = 0; i < res->n_stage; i++) {
        json_open(j, NULL, '{');
        json_str(j, "stage", res->stage[i].stage);
        json_str(j, "wanted", res->stage[i].wanted);
        json_str(j, "backend", res->stage[i].backend);
        json_str(j, "fallback", res->stage[i].fallback);
        json_str(j, "device", res->stage[i].device);
        json_u64(j, "bytes_in", res->stage[i].bytes_in);
        json_u64(j, "bytes_out", res->stage[i].bytes_out);
        json_u64(j, "items", res->stage[i].items);
        json_num(j, "seconds", s[i].sum / s[i].n);
        json_num(j, "seconds_least", s[i].least);
        json_num(j, "seconds_deviation", spread_dev(&s[i]));
        json_u64(j, "repeats", s[i].n);
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static void print_text(const char *path, unsigned k, const struct pipeline_result *res,
                       const struct spread *s)
{
    cmd_put(stdout, path);
    printf(" %u: orbit %" PRIu32 ", counter %" PRIu32 ", run %" PRIu32 ", digest %016" PRIx64 "\n", k, res->first_orbit, res->counter, res->run, res->digest);
    if (strcmp(result_digest_kind, "XXH3-64") != 0)
        printf("  digests   are %s\n", result_digest_kind);
    for (unsigned i = 0; i < res->n_out; i++)
        printf("  %-9s %10" PRIu64 "  %016" PRIx64 "\n", res->out[i].stage, res->out[i].count,
               res->out[i].digest);
    for (unsigned i = 0; i < res->n_stage; i++)
        printf("  %-9s on %s: %.2f ms (least %.2f, deviation %.2f, %u times)\n",
               res->stage[i].stage, res->stage[i].device, 1e3 * s[i].sum / s[i].n,
               1e3 * s[i].least, 1e3 * spread_dev(&s[i]), s[i].n);
}

static void print_digest(const char *path, unsigned k, uint64_t digest)
{
    printf("%016" PRIx64 "  ", digest);
    cmd_put(stdout, path);
    printf(" %u\n", k);
}

static int one_tf(struct reco *r, const char *path, unsigned k, bool several, const void *data,
                  size_t size, struct k_err *e)
{
    struct pipeline_seg seg = { data, size };
    struct pipeline_result res = { 0 };
    struct spread s[8] = { 0 };
    uint64_t digest = 0;

    for (uint64_t i = 0; i < r->repeat; i++) {
        if (pipeline_run(r->p, &seg, 1, &res, e) < 0)
            return -1;
        if (i > 0 && res.digest != digest)
            return k_fail(e, K_EINTERNAL, "repeat %" PRIu64 " gives digest %016" PRIx64
                          ", before it was %016" PRIx64, i + 1, res.digest, digest);
        digest = res.digest;
        for (unsigned q = 0; q < res.n_stage; q++)
            spread_add(&s[q], res.stage[q].seconds);
    }
    if (r->output && write_results(r, path, k, several, &res, e) < 0)
        return -1;
    if (r->json)
        print_json(r, path, k, &res, s);
    else if (r->digest)
        print_digest(path, k, digest);
    else
        print_text(path, k, &res, s);
    return 0;
}

/* How many TFs a file holds as far as it is sound: names of results depend on it. */
static unsigned count_tfs(struct tf_file *f)
{
    struct tf_info info;
    struct tf_err e;
    unsigned n = 0;

    while (tf_file_next(f, &info, &e) == 1)
        n++;
    tf_file_rewind(f);
    return n;
}

static void one_file(struct reco *r, const char *path)
{
    struct tf_err te;
    struct tf_info info;
    struct k_err e;
    struct tf_file *f = tf_file_open(path, &te);
    int got;

    if (f == NULL) {
        if (access(path, F_OK) < 0 && errno == ENOENT)
            r->missing++;
        cmd_say("reco", "%s; skipped", te.text);
        r->failed++;
        return;
    }
    unsigned n = count_tfs(f), k = 0;
    for (; (got = tf_file_next(f, &info, &te)) == 1; k++) {
        void *data = malloc(info.size);
        if (data == NULL)
            k_fail(&e, K_ENOMEM, "no memory for a TF of %" PRIu64 " bytes", info.size);
        else if (tf_file_read(f, info.offset, data, info.size, &te) < 0)
            k_fail(&e, K_EINPUT, "byte %" PRIu64 ": %s", te.offset, te.text);
        else if (one_tf(r, path, k, n > 1, data, info.size, &e) == 0) {
            r->done++;
            free(data);
            continue;
        }
        cmd_say("reco", "%s, TF %u: %s", path, k, e.text);
        r->failed++;
        free(data);
    }
    if (got < 0) {
        cmd_say("reco", "%s, byte %" PRIu64 ": %s; the rest of the file is skipped", path,
                te.offset, te.text);
        r->failed++;
    }
    tf_file_close(f);
}

enum { OPT_SET = 256, OPT_DEVICE, OPT_ISA, OPT_MEMORY, OPT_DIGEST, OPT_REPEAT, OPT_JSON };

static const struct option options[] = {
    { "workflow", required_argument, NULL, 'w' }, { "backend", required_argument, NULL, 'b' },
    { "set", required_argument, NULL, OPT_SET }, { "device", required_argument, NULL, OPT_DEVICE },
    { "threads", required_argument, NULL, 'j' }, { "memory", required_argument, NULL, OPT_MEMORY },
    { "isa", required_argument, NULL, OPT_ISA },
    { "output", required_argument, NULL, 'o' }, { "digest", no_argument, NULL, OPT_DIGEST },
    { "repeat", required_argument, NULL, OPT_REPEAT }, { "json", no_argument, NULL, OPT_JSON },
    { "help", no_argument, NULL, 'h' }, { 0 },
};

/* Joins what several --set or --backend give. */
static int append(char *out, size_t room, const char *value)
{
    size_t n = strlen(out);
    return snprintf(out + n, room - n, "%s%s", n ? "," : "", value) < (int)(room - n) ? 0 : -1;
}

/* -1: go on; else an exit code. */
static int parse(int argc, char **argv, struct reco *r, struct pipeline_conf *c)
{
    static char backends[1024], sets[1024];
    uint64_t v;
    int o;

    optind = 0;
    backends[0] = sets[0] = '\0';
    while ((o = getopt_long(argc, argv, "w:b:j:o:h", options, NULL)) != -1) {
        int bad = 0;
        switch (o) {
        case 'w': c->workflow = optarg; break;
        case 'b': bad = append(backends, sizeof backends, optarg); break;
        case OPT_SET: bad = append(sets, sizeof sets, optarg); break;
        case OPT_DEVICE: c->device = optarg; break;
        case OPT_ISA: c->isa = optarg; break;
        case 'j':
            if (cmd_want_number("reco", "threads", optarg, 1, 512, &v) < 0)
                return CMD_USAGE;
            c->threads = (unsigned)v;
            break;
        case OPT_MEMORY:
            if (workflow_size(optarg, &c->memory_limit) < 0)
                return cmd_usage("reco", "--memory: \"%s\": a size is wanted, as in 512M", optarg);
            break;
        case 'o': r->output = optarg; break;
        case OPT_DIGEST: r->digest = true; break;
        case OPT_REPEAT:
            if (cmd_want_number("reco", "repeat", optarg, 1, 1000000, &r->repeat) < 0)
                return CMD_USAGE;
            break;
        case OPT_JSON: r->json = true; break;
        case 'h': fputs(help, stdout); return CMD_DONE;
        default: return CMD_USAGE;
        }
        if (bad)
            return cmd_usage("reco", "\"%.40s...\" is too long a list", optarg);
    }
    if (optind >= argc)
        return cmd_usage("reco", "no file given");
    c->backends = backends;
    c->options = sets;
    return -1;
}

/* A device that was named is one that stages run on, or auto says why none of them does. */
static int check_device(struct reco *r, const char *device)
{
    struct pipeline_result res = { 0 };
    char where[300] = "";

    pipeline_describe(r->p, &res);
    for (unsigned i = 0; device && i < res.n_stage; i++) {
        size_t n = strlen(where);
        if (strcmp(res.stage[i].device, device) == 0 || res.stage[i].fallback)
            return 0;
        snprintf(where + n, sizeof where - n, "%s%s on %s", n ? ", " : "", res.stage[i].stage, res.stage[i].device);
    }
    if (device == NULL || res.n_stage == 0)
        return 0;
    cmd_say("reco", "no stage runs on device %s: %s", device, where);
    return -1;
}

static const char *longest_workflow(void)
{
    const struct workflow *best = workflows;
    for (const struct workflow *w = workflows; w->name; w++)
        best = w->stages > best->stages ? w : best;
    return best->name;
}

static int is_workflow(const char *name)
{
    const struct workflow *w = workflows;

    while (w->name != NULL && strcmp(w->name, name) != 0)
        w++;
    return w->name != NULL;
}

int kernels_cmd_reco(int argc, char **argv)
{
    struct reco r = { .repeat = 1 };
    struct pipeline_conf c = { .workflow = longest_workflow() };
    struct k_err e;
    int x = parse(argc, argv, &r, &c);

    if (x >= 0)
        return x;
    r.p = pipeline_create(&c, &e);
    if (r.p == NULL) {
        cmd_say("reco", "%s", e.text);
        return e.code != K_EOPTION ? CMD_FAILED : is_workflow(c.workflow) ? CMD_USAGE : CMD_NOT_THERE;
    }
    if (check_device(&r, c.device) < 0) {
        pipeline_destroy(r.p);
        return CMD_FAILED;
    }
    if (r.output && mkdir(r.output, 0777) < 0 && errno != EEXIST) {
        cmd_say("reco", "%s: %s", r.output, strerror(errno));
        pipeline_destroy(r.p);
        return CMD_FAILED;
    }
    if (r.json)
        json_begin(&r.j, "reco", "tfs");
    for (int i = optind; i < argc; i++)
        one_file(&r, argv[i]);
    if (r.json)
        json_end(&r.j);
    pipeline_destroy(r.p);
    if (r.done > 0)
        return r.failed ? CMD_PARTLY : CMD_DONE;
    return r.missing && r.missing == r.failed ? CMD_NOT_THERE : CMD_FAILED;
}
