/* cmd_simulate.c - sluice simulate: TF files with digits and truth
 *
 * Writes DIR/sim-KKKKKK.tf, .digits, .clusters and .truth for every frame.
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

static const char help[] =
    "sluice simulate -o DIR - made-up TFs with their truth\n"
    "      --frames N    how many TFs (1)\n"
    "      --tracks N    particles in each (250; 0 to 60000)\n"
    "      --orbits N    length of each (4; 1 to 147)\n"
    "      --bins N      collisions lie in the first so many time bins (all)\n"
    "      --seed S      (1) the same seed gives the same TFs\n"
    "      --pad-to SIZE --blocks N   fill each TF up with N blocks of another detector\n";

struct job {
    const char *dir;
    uint64_t frames, tracks, orbits, bins, seed, pad_to, blocks;
    struct pipeline *p;
    uint8_t packet[K_LINKS];
};

static int save(const struct job *j, uint64_t k, const char *ending, const void *data,
                size_t size, struct k_err *e)
{
    char path[4096];

    if (snprintf(path, sizeof path, "%s/sim-%06" PRIu64 ".%s", j->dir, k, ending) >=
        (int)sizeof path)
        return k_fail(e, K_EOPTION, "the name of the folder is too long");
    return cmd_write(path, data, size, e);
}

/* Adds blocks of a detector that stages pass over, so that the TF has the size asked for. */
static int pad(const struct job *j, struct sim_tf *t, struct k_err *e)
{
    struct tf_seg seg = { t->tf, t->tf_size };
    struct tf_iter it;
    struct tf_block b;
    struct tf_info info;
    struct tf_err te = { 0 };
    void *out = NULL;
    size_t n = 0, size = 0;
    uint64_t own = t->tf_size + j->blocks * (TF_HEADER_SIZE + TF_ENTRY_SIZE);

    if (j->pad_to < own)
        return k_fail(e, K_EOPTION, "the TF has %" PRIu64 " bytes already, %" PRIu64 " are asked "
                      "for", own, j->pad_to);
    if (tf_check(&seg, 1, &info, NULL, &te) < 0)
        return k_fail(e, K_EINTERNAL, "%s", te.text);
    uint64_t rest = j->pad_to - own, each = rest / j->blocks, last = rest - each * (j->blocks - 1);
    uint8_t *filler = malloc(last + 1);
    struct tf_new_block *nb = calloc(info.blocks + j->blocks, sizeof *nb);
    int r = -1;
    if (filler == NULL || nb == NULL) {
        k_fail(e, K_ENOMEM, "no memory for a TF of %" PRIu64 " bytes", j->pad_to);
        goto out;
    }
    for (uint64_t i = 0; i <= last; i++)
        filler[i] = (uint8_t)(i * 131 >> 3);
    tf_iter_init(&it, &seg, 1);
    while (tf_iter_next(&it, &b, &te) == 1) {
        if (tf_block_kind(&b) == TF_DATA)
            nb[n++] = (struct tf_new_block){ "RAWDATA", "TPC", b.subspec, b.payload, b.size };
    }
    for (uint64_t i = 0; i < j->blocks; i++)
        nb[n++] = (struct tf_new_block){ "RAWDATA", "ITS", (uint32_t)i, filler,
                                         i + 1 == j->blocks ? last : each };
    if (tf_build(nb, n, info.first_orbit, info.counter, info.run, info.written_ms, &out, &size,
                 &te) < 0) {
        k_fail(e, K_ENOMEM, "%s", te.text);
        goto out;
    }
    free(t->tf);
    t->tf = out;
    t->tf_size = size;
    r = 0;
out:
    free(filler);
    free(nb);
    return r;
}

static int frame(struct job *j, uint64_t k, struct k_err *e)
{
    struct sim_conf c = {
        .seed = j->seed, .tracks = (uint32_t)j->tracks, .orbits = (uint32_t)j->orbits,
        .bins = (uint32_t)j->bins, .first_orbit = (uint32_t)(128 + (k - 1) * j->orbits),
        .counter = (uint32_t)k, .run = 1,
    };
    struct sim_tf t;
    struct pipeline_result r;
    void *truth = NULL;
    size_t size = 0;
    int ret = -1;

    if (simulate_tf(&c, j->packet, &t, e) < 0)
        return -1;
    struct pipeline_seg s = { t.tf, t.tf_size };
    if (pipeline_run(j->p, &s, 1, &r, e) == 0 &&
        simulate_truth(&t, r.out[1].data, &truth, &size, e) == 0 &&
        (j->blocks == 0 || pad(j, &t, e) == 0) &&
        save(j, k, "tf", t.tf, t.tf_size, e) == 0 &&
        save(j, k, "digits", r.out[0].data, r.out[0].size, e) == 0 &&
        save(j, k, "clusters", r.out[1].data, r.out[1].size, e) == 0 &&
        save(j, k, "truth", truth, size, e) == 0) {
        printf("sim-%06" PRIu64 ".tf: %zu bytes, %" PRIu32 " particles, %" PRIu64 " digits, %"
               PRIu64 " clusters\n", k, t.tf_size, t.nparticles, r.out[0].count, r.out[1].count);
        ret = 0;
    }
    free(truth);
    simulate_free(&t);
    return ret;
}

/* -1: go on. */
static int parse(int argc, char **argv, struct job *j)
{
    static const struct option options[] = {
        { "output", required_argument, NULL, 'o' }, { "frames", required_argument, NULL, 'f' },
        { "tracks", required_argument, NULL, 't' }, { "orbits", required_argument, NULL, 'O' },
        { "bins", required_argument, NULL, 'b' }, { "seed", required_argument, NULL, 's' },
        { "pad-to", required_argument, NULL, 'P' }, { "blocks", required_argument, NULL, 'B' },
        { "help", no_argument, NULL, 'h' }, { 0 },
    };
    int o;

    optind = 0;
    while ((o = getopt_long(argc, argv, "o:h", options, NULL)) != -1) {
        int bad = 0;
        switch (o) {
        case 'o': j->dir = optarg; break;
        case 'f': bad = cmd_number(optarg, 1, 999999, &j->frames); break;
        case 't': bad = cmd_number(optarg, 0, 60000, &j->tracks); break;
        case 'O': bad = cmd_number(optarg, 1, 147, &j->orbits); break;
        case 'b': bad = cmd_number(optarg, 1, 65536, &j->bins); break;
        case 's': bad = cmd_number(optarg, 0, UINT64_MAX, &j->seed); break;
        case 'P': bad = workflow_size(optarg, &j->pad_to); break;
        case 'B': bad = cmd_number(optarg, 1, 1000000, &j->blocks); break;
        case 'h': fputs(help, stdout); return CMD_DONE;
        default: return CMD_USAGE;
        }
        if (bad)
            return cmd_usage("simulate", "\"%s\" does not fit its option", optarg);
    }
    if (j->dir == NULL || optind != argc)
        return cmd_usage("simulate", "want -o DIR and no other argument");
    if ((j->pad_to != 0) != (j->blocks != 0))
        return cmd_usage("simulate", "--pad-to and --blocks go together");
    return -1;
}

int kernels_cmd_simulate(int argc, char **argv)
{
    struct job j = { .frames = 1, .tracks = 250, .orbits = 4, .seed = 1 };
    struct k_err e = { 0 };
    int x = parse(argc, argv, &j);

    if (x >= 0)
        return x;
    if (mkdir(j.dir, 0777) < 0 && errno != EEXIST) {
        cmd_say("simulate", "%s: %s", j.dir, strerror(errno));
        return CMD_FAILED;
    }
    j.p = pipeline_create(&(struct pipeline_conf){ .workflow = "cluster", .backends = "cpu" }, &e);
    if (j.p == NULL) {
        cmd_say("simulate", "%s", e.text);
        return CMD_FAILED;
    }
    x = CMD_DONE;
    for (uint64_t k = 1; k <= j.frames && x == CMD_DONE; k++) {
        if (frame(&j, k, &e) < 0) {
            cmd_say("simulate", "%s", e.text);
            x = CMD_FAILED;
        }
    }
    pipeline_destroy(j.p);
    return x;
}
