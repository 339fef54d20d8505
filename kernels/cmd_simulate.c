/* cmd_simulate.c - sluice simulate: TF files made from the physics, with their truth
 *
 * From: options.  To: DIR/sim-SEED-K.tf, .digits, .clusters, .truth for each TF, K from 1; with
 * --sources the .tf comes as parts. One TF is in memory at a time. What was written is proven: the
 * pages are decoded again, and the digits must be those that went in.
 */
#include "cmd.h"
#include "cmd_part.h"
#include "kdef.h"
#include "ktypes.h"
#include "pipeline.h"
#include "simulate/simulate.h"
#include "workflow.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FRAMES_MAX = 1000000, SOURCES_MAX = 4096, BLOCKS_MAX = 1000000 };

static const char help[] =
    "sluice simulate -o DIR - time-frames made from the physics, with their truth\n"
    "  -o, --output DIR   folder, made if it is not there\n"
    "      --frames N     how many TFs (default 1; up to 1000000)\n"
    "      --tracks N     particles in each (250; 0 to 65000)\n"
    "      --orbits N     length of each (4; 1 to 128)\n"
    "      --bins N       collisions lie in the first N time bins (default: all)\n"
    "      --seed S       the same seed gives the same TFs (default 1)\n"
    "      --no-noise     no noise samples apart from those on signals\n"
    "      --sources N    the TF as N part files, which joined in order are the TF\n"
    "      --pad-to SIZE --blocks N   fill each TF up to SIZE with N blocks of another detector\n"
    "Files: sim-SEED-K.tf, .digits, .clusters, .truth, K from 1; parts: sim-SEED-K.tf.part-I.\n";

struct job {
    const char *dir;
    uint64_t frames, tracks, orbits, bins, seed, sources, pad_to, blocks;
    bool no_noise;
    struct pipeline *p;
    uint8_t packet[K_LINKS];
};

static int save(const struct job *j, uint64_t k, const char *ending, const void *data,
                size_t size, struct k_err *e)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/sim-%" PRIu64 "-%" PRIu64 ".%s", j->dir, j->seed, k,
                 ending) >= (int)sizeof path)
        return k_fail(e, K_EOPTION, "the name of the folder is too long");
    return cmd_write(path, data, size, e);
}

static int save_parts(const struct job *j, uint64_t k, const void *tf, size_t size,
                      struct k_err *e)
{
    struct tf_seg *part = calloc(j->sources, sizeof *part);
    struct tf_err te;
    char ending[32];
    int r = 0;

    if (part == NULL)
        return k_fail(e, K_ENOMEM, "out of memory");
    if (tf_split(tf, size, (unsigned)j->sources, part, &te) < 0)
        r = k_fail(e, K_EINTERNAL, "%s", te.text);
    int width = snprintf(NULL, 0, "%" PRIu64, j->sources);
    for (uint64_t i = 0; i < j->sources && r == 0; i++) {
        snprintf(ending, sizeof ending, "tf.part-%0*" PRIu64, width, i + 1);
        r = save(j, k, ending, part[i].data, part[i].size, e);
    }
    free(part);
    return r;
}

static int save_tf(const struct job *j, uint64_t k, const void *tf, size_t size, size_t *written,
                   struct k_err *e)
{
    void *padded = NULL;
    int r;

    if (j->blocks > 0) {
        if (simulate_pad(tf, size, j->pad_to, j->blocks, j->seed, &padded, e) < 0)
            return -1;
        tf = padded;
        size = j->pad_to;
    }
    r = j->sources > 0 ? save_parts(j, k, tf, size, e) : save(j, k, "tf", tf, size, e);
    free(padded);
    *written = size;
    return r;
}

/* Digits in, digits out: what the pages hold must be what the simulation made. */
static int prove(const struct simulate_tf *s, const struct pipeline_result *r, struct k_err *e)
{
    void *digits = NULL;
    size_t size;

    if (simulate_digits(s, &digits, &size, e) < 0)
        return -1;
    bool same = size == r->out[0].size && memcmp(digits, r->out[0].data, size) == 0;
    free(digits);
    return same ? 0 : k_fail(e, K_EINTERNAL, "the pages hold %" PRIu64 " digits that are not the "
                             "%" PRIu32 " simulated ones", r->out[0].count, s->digits.n);
}

static int save_all(struct job *j, uint64_t k, const struct simulate_tf *s, const void *tf,
                    size_t tf_size, struct k_err *e)
{
    struct pipeline_seg seg = { tf, tf_size };
    struct pipeline_result r;
    void *truth = NULL;
    size_t size, written = 0;

    if (pipeline_run(j->p, &seg, 1, &r, e) < 0 || prove(s, &r, e) < 0 ||
        simulate_truth(s, r.out[1].data, r.out[1].size, &truth, &size, e) < 0)
        return -1;
    int bad = save_tf(j, k, tf, tf_size, &written, e) < 0 ||
              save(j, k, "digits", r.out[0].data, r.out[0].size, e) < 0 ||
              save(j, k, "clusters", r.out[1].data, r.out[1].size, e) < 0 ||
              save(j, k, "truth", truth, size, e) < 0;
    free(truth);
    if (bad)
        return -1;
    printf("sim-%" PRIu64 "-%" PRIu64 ": %zu bytes, %" PRIu32 " collisions, %" PRIu32 " particles, %"
           PRIu64 " digits, %" PRIu64 " clusters\n", j->seed, k, written, s->collisions,
           s->conf.tracks, r.out[0].count, r.out[1].count);
    return 0;
}

static int frame(struct job *j, uint64_t k, struct k_err *e)
{
    struct simulate_conf c = {
        .seed = j->seed, .tf = (uint32_t)k, .tracks = (uint32_t)j->tracks,
        .orbits = (uint32_t)j->orbits, .bins = (uint32_t)j->bins,
        .first_orbit = (uint32_t)(128 + (k - 1) * j->orbits), .counter = (uint32_t)k, .run = 1,
        .noise = j->no_noise ? 0 : SIMULATE_NOISE,
    };
    struct simulate_tf s;
    void *tf = NULL;
    size_t size;

    if (simulate_run(&c, &s, e) < 0)
        return -1;
    int r = simulate_encode(&s, j->packet, &tf, &size, e);
    if (r == 0)
        r = save_all(j, k, &s, tf, size, e);
    free(tf);
    simulate_free(&s);
    return r;
}

#define AT(member) offsetof(struct job, member)
static const struct { int letter; size_t at; uint64_t low, high; } numbers[] = {
    { 'f', AT(frames), 1, FRAMES_MAX },          { 't', AT(tracks), 0, SIMULATE_MAX_TRACKS },
    { 'O', AT(orbits), 1, SIMULATE_MAX_ORBITS }, { 'b', AT(bins), 1, 65536 },
    { 's', AT(seed), 0, UINT64_MAX },            { 'S', AT(sources), 1, SOURCES_MAX },
    { 'B', AT(blocks), 1, BLOCKS_MAX },
};
#undef AT

static int option(struct job *j, int o, const char *name, const char *text)
{
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t *to = (uint64_t *)(void *)((char *)j + numbers[i].at);
        if (numbers[i].letter == o)
            return cmd_want_number("simulate", name, text, numbers[i].low, numbers[i].high, to);
    }
    if (o == 'o')
        j->dir = text;
    if (o == 'N')
        j->no_noise = true;
    if (o == 'P' && (workflow_size(text, &j->pad_to) < 0 || j->pad_to == 0 || j->pad_to > TF_MAX_SIZE)) {
        cmd_usage("simulate", "--%s: \"%s\": a size to %" PRIu64 " is wanted", name, text, (uint64_t)TF_MAX_SIZE);
        return -1;
    }
    return 0;
}

/* -1: go on; otherwise the exit code. */
static int parse(int argc, char **argv, struct job *j)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' },  { "frames", required_argument, NULL, 'f' },
        { "tracks", required_argument, NULL, 't' },  { "orbits", required_argument, NULL, 'O' },
        { "bins", required_argument, NULL, 'b' },    { "seed", required_argument, NULL, 's' },
        { "no-noise", no_argument, NULL, 'N' },      { "sources", required_argument, NULL, 'S' },
        { "pad-to", required_argument, NULL, 'P' },  { "blocks", required_argument, NULL, 'B' },
        { "help", no_argument, NULL, 'h' },          { 0 },
    };
    int o, which = -1;

    optind = 0;
    while ((o = getopt_long(argc, argv, "o:h", options, &which)) != -1) {
        if (o == 'h') {
            fputs(help, stdout);
            return CMD_DONE;
        }
        if (o == '?')
            return CMD_USAGE;
        if (option(j, o, which >= 0 ? options[which].name : "output", optarg) < 0)
            return CMD_USAGE;
        which = -1;
    }
    if (optind != argc)
        return cmd_usage("simulate", "\"%s\": no further argument is wanted", argv[optind]);
    if (j->dir == NULL || *j->dir == '\0')
        return cmd_usage("simulate", "-o DIR is missing");
    if ((j->pad_to != 0) != (j->blocks != 0))
        return cmd_usage("simulate", "--pad-to and --blocks go together");
    if (j->bins > simulate_bins((uint32_t)j->orbits))
        return cmd_usage("simulate", "--bins %" PRIu64 ": %" PRIu64 " orbits have %" PRIu32 " bins",
                         j->bins, j->orbits, simulate_bins((uint32_t)j->orbits));
    return -1;
}

static int folder(const char *dir)
{
    if (mkdir(dir, 0777) == 0 || errno == EEXIST)
        return CMD_DONE;
    int bad = errno;
    cmd_say("simulate", "%s: %s", dir, strerror(bad));
    return bad == ENOENT ? CMD_NOT_THERE : CMD_FAILED;
}

int kernels_cmd_simulate(int argc, char **argv)
{
    struct job j = { .frames = 1, .tracks = 250, .orbits = 4, .seed = 1 };
    struct k_err e = { 0 };
    int x = parse(argc, argv, &j);

    if (x < 0)
        x = folder(j.dir);
    else
        return x;
    if (x != CMD_DONE)
        return x;
    j.p = pipeline_create(&(struct pipeline_conf){ .workflow = "cluster", .backends = "cpu" }, &e);
    if (j.p == NULL) {
        cmd_say("simulate", "%s", e.text);
        return CMD_FAILED;
    }
    for (uint64_t k = 1; k <= j.frames && x == CMD_DONE; k++) {
        if (frame(&j, k, &e) < 0) {
            cmd_say("simulate", "TF %" PRIu64 ": %s", k, e.text);
            x = CMD_FAILED;
        }
    }
    pipeline_destroy(j.p);
    return x;
}
