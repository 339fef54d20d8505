/* cmd_tf.c - sluice tf info|verify|dump: what is in a TF file, and is it sound?
 *
 * info: one line a TF. dump: its blocks as well. verify: every header, length and page, and every
 * sample of the pages, as the stage decode sees them.
 */
#include "cmd.h"
#include "cmd_part.h"
#include "pipeline.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum mode { INFO, VERIFY, DUMP };

struct look {
    enum mode mode;
    const char *word;
    bool json;
    struct json j;
    struct pipeline *p;
    unsigned done, failed, missing;
};

static int dump_block(const struct tf_block *b, void *arg)
{
    struct look *l = arg;

    if (l->json) {
        json_open(&l->j, NULL, '{');
        json_u64(&l->j, "offset", b->offset);
        json_str(&l->j, "description", b->description);
        json_str(&l->j, "origin", b->origin);
        json_u64(&l->j, "subspecification", b->subspec);
        json_u64(&l->j, "part", b->part);
        json_u64(&l->j, "parts", b->parts);
        json_u64(&l->j, "size", b->size);
        json_close(&l->j, '}');
        return 0;
    }
    printf("  %12" PRIu64 "  %-16s %-4s 0x%08" PRIx32 "  %3" PRIu32 "/%-3" PRIu32 "  %12" PRIu64
           "\n", b->offset, b->description, b->origin, b->subspec, b->part, b->parts, b->size);
    return 0;
}

/* The samples of one TF; 0 or -1 with the reason in e. */
static int verify_tf(struct look *l, struct tf_file *f, const struct tf_info *info,
                     uint64_t *digits, struct k_err *e)
{
    struct pipeline_result res;
    struct tf_err te;
    struct pipeline_seg seg = { malloc(info->size), info->size };
    int r = -1;

    if (seg.data == NULL)
        k_fail(e, K_ENOMEM, "no memory for a TF of %" PRIu64 " bytes", info->size);
    else if (tf_file_read(f, info->offset, (void *)(uintptr_t)seg.data, seg.size, &te) < 0)
        k_fail(e, K_EINPUT, "byte %" PRIu64 ": %s", te.offset, te.text);
    else if (pipeline_run(l->p, &seg, 1, &res, e) == 0) {
        *digits = res.out[0].count;
        r = 0;
    }
    free((void *)(uintptr_t)seg.data);
    return r;
}

static int show_tf(struct look *l, const char *path, unsigned k, struct tf_file *f,
                   const struct tf_info *t)
{
    struct tf_err te;
    struct k_err e;
    uint64_t digits = 0;
    int bad = l->mode == VERIFY ? verify_tf(l, f, t, &digits, &e) : 0;

    if (l->json) {
        json_open(&l->j, NULL, '{');
        json_str(&l->j, "file", path);
        json_u64(&l->j, "tf", k);
        json_u64(&l->j, "offset", t->offset);
        json_u64(&l->j, "size", t->size);
        json_u64(&l->j, "payload", t->payload);
        json_u64(&l->j, "blocks", t->blocks);
        json_u64(&l->j, "identities", t->identities);
        json_u64(&l->j, "first_orbit", t->first_orbit);
        json_u64(&l->j, "counter", t->counter);
        json_u64(&l->j, "run", t->run);
        json_u64(&l->j, "written_ms", t->written_ms);
        if (l->mode == VERIFY) {
            json_bool(&l->j, "sound", bad == 0);
            json_str(&l->j, "reason", bad ? e.text : NULL);
            json_u64(&l->j, "digits", digits);
        }
        if (l->mode == DUMP) {
            json_open(&l->j, "blocks_list", '[');
            tf_file_blocks(f, t, dump_block, l, &te);
            json_close(&l->j, ']');
        }
        json_close(&l->j, '}');
    } else {
        cmd_put(stdout, path);
        printf(" %u: at %" PRIu64 ", %" PRIu64 " bytes, orbit %" PRIu32 ", counter %" PRIu32
               ", run %" PRIu32 ", %" PRIu32 " blocks of %" PRIu32 " identities, payload %" PRIu64,
               k, t->offset, t->size, t->first_orbit, t->counter, t->run, t->blocks,
               t->identities, t->payload);
        if (l->mode == VERIFY && !bad)
            printf(", sound, %" PRIu64 " digits", digits);
        printf("%s\n", bad ? ", DAMAGED" : "");
        if (l->mode == DUMP && tf_file_blocks(f, t, dump_block, l, &te) < 0) {
            cmd_say("tf", "%s, byte %" PRIu64 ": %s", path, te.offset, te.text);
            return -1;
        }
    }
    if (bad)
        cmd_say("tf", "%s, TF %u: %s", path, k, e.text);
    return bad;
}

static void one_file(struct look *l, const char *path)
{
    struct tf_err te;
    struct tf_info info;
    struct tf_file *f = tf_file_open(path, &te);
    unsigned k = 0;
    int got;

    if (f == NULL) {
        if (access(path, F_OK) < 0 && errno == ENOENT)
            l->missing++;
        cmd_say("tf", "%s", te.text);
        l->failed++;
        return;
    }
    for (; (got = tf_file_next(f, &info, &te)) == 1; k++) {
        if (show_tf(l, path, k, f, &info) < 0)
            l->failed++;
        else
            l->done++;
    }
    if (got < 0) {
        cmd_say("tf", "%s, byte %" PRIu64 ": %s; %u TFs before it", path, te.offset, te.text, k);
        l->failed++;
    }
    tf_file_close(f);
}

static const char help[] =
    "sluice tf info|verify|dump FILE... [--json]\n"
    "TFs of a file are counted from 0.\n"
    "  info    one line a TF: place, size, orbit, counter, run, blocks\n"
    "  verify  every header, length, page and sample; exit 10 or 1 when something is wrong\n"
    "  dump    info, and every block\n";

int kernels_cmd_tf(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, 'h' }, { 0 },
    };
    static const char *const words[] = { "info", "verify", "dump" };
    struct look l = { 0 };
    struct k_err e;
    int o;

    optind = 0;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (o == 'h') {
            fputs(help, stdout);
            return CMD_DONE;
        }
        if (o != 'J')
            return CMD_USAGE;
        l.json = true;
    }
    for (unsigned i = 0; optind < argc && i < 3; i++) {
        if (strcmp(argv[optind], words[i]) == 0) {
            l.mode = (enum mode)i;
            l.word = words[i];
        }
    }
    if (l.word == NULL)
        return cmd_usage("tf", "want info, verify or dump");
    if (optind + 1 >= argc)
        return cmd_usage("tf", "no file given");
    if (l.mode == VERIFY) {
        l.p = pipeline_create(&(struct pipeline_conf){ .workflow = "decode", .backends = "cpu" },
                              &e);
        if (l.p == NULL) {
            cmd_say("tf", "%s", e.text);
            return CMD_FAILED;
        }
    }
    if (l.json)
        json_begin(&l.j, "tf", "tfs");
    for (int i = optind + 1; i < argc; i++)
        one_file(&l, argv[i]);
    if (l.json)
        json_end(&l.j);
    pipeline_destroy(l.p);
    if (l.failed == 0)
        return CMD_DONE;
    return l.missing == l.failed && l.done == 0 ? CMD_NOT_THERE : l.done ? CMD_PARTLY : CMD_FAILED;
}
