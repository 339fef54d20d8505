/* cmd_compare.c - sluice compare REF OWN: the first differing digit or cluster, and the counts
 *
 * Exit 0: equal to the last byte; 1: not, or not comparable; 3: a file is not there.
 */
#include "cmd.h"
#include "cmd_part.h"
#include "compare.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>

static void print(const struct compare *c)
{
    if (c->equal) {
        printf("equal: %" PRIu64 " %s\n", c->ref, c->what);
        return;
    }
    printf("differ: %s %" PRIu64 " in REF, %" PRIu64 " in OWN; same %" PRIu64 ", changed %" PRIu64
           ", only in REF %" PRIu64 ", only in OWN %" PRIu64 "\nfirst: number %" PRIu64 ": %s\n",
           c->what, c->ref, c->own, c->same, c->changed, c->only_ref, c->only_own, c->index,
           c->first);
}

static void print_json(const struct compare *c)
{
    struct json j;

    json_begin(&j, "compare", "comparisons");
    json_open(&j, NULL, '{');
    json_str(&j, "what", c->what);
    json_bool(&j, "equal", c->equal);
    json_u64(&j, "ref", c->ref);
    json_u64(&j, "own", c->own);
    json_u64(&j, "same", c->same);
    json_u64(&j, "changed", c->changed);
    json_u64(&j, "only_ref", c->only_ref);
    json_u64(&j, "only_own", c->only_own);
    json_u64(&j, "first_index", c->index);
    json_str(&j, "first", c->equal ? NULL : c->first);
    json_close(&j, '}');
    json_end(&j);
}

int kernels_cmd_compare(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, 'h' }, { 0 },
    };
    bool json = false;
    int o, x[2], r = CMD_FAILED;
    void *data[2] = { 0 };
    size_t size[2];
    struct compare c;
    struct k_err e;

    optind = 0;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (o == 'h') {
            puts("sluice compare REF OWN [--json] - digits or clusters, to the last byte");
            return CMD_DONE;
        }
        if (o != 'J')
            return CMD_USAGE;
        json = true;
    }
    if (optind + 2 != argc)
        return cmd_usage("compare", "two files are wanted");
    for (int i = 0; i < 2; i++) {
        x[i] = cmd_read(argv[optind + i], &data[i], &size[i], &e);
        if (x[i] != CMD_DONE) {
            cmd_say("compare", "%s", e.text);
            free(data[0]);
            return x[i];
        }
    }
    if (compare_results(data[0], size[0], data[1], size[1], &c, &e) < 0) {
        cmd_say("compare", "%s", e.text);
    } else {
        r = c.equal ? CMD_DONE : CMD_FAILED;
        if (json)
            print_json(&c);
        else
            print(&c);
    }
    free(data[0]);
    free(data[1]);
    return r;
}
