/* words_test.c - sluiced and the kernels know the same workflows, stages, backends and options */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "workflow.h"
#include "workflow_words.h"

static unsigned taken, refused;

static void same_verdict(const char *workflow, const char *backends, const char *options)
{
    struct workflow_choice choice;
    struct k_err ke;
    struct err e = { 0 };
    int kernels = workflow_choose(workflow, backends, options, &choice, &ke);
    int ours = workflow_words_check(workflow, backends, options, &e);

    if (kernels != ours)
        fail_msg("\"%s\" \"%s\" \"%s\": the kernels %s it, sluiced %s it (%s)", workflow, backends ? backends : "", options ? options : "",
                 kernels ? "refuse" : "take", ours ? "refuses" : "takes", e.text);
    if (ours)
        assert_int_equal(e.code, strncmp(e.text, "no workflow ", 12) == 0 ? ERR_NOT_FOUND : ERR_USAGE);
    *(ours ? &refused : &taken) += 1;
}

static const char *const words[] = { "none", "decode", "cluster", "transform", "seed", "fit", "", "Decode", "decode " };
static const char *const backends[] = { "cpu", "gpu", "cuda", "hip", "opencl", "auto", "emu", "emulated", "", "CPU" };

static void backends_are_judged_alike(void **state)
{
    char text[200];

    (void)state;
    for (const struct workflow *w = workflows; w->name; w++)
        same_verdict(w->name, NULL, NULL);
    for (size_t w = 0; w < sizeof(words) / sizeof(words[0]); w++) {
        for (size_t b = 0; b < sizeof(backends) / sizeof(backends[0]); b++) {
            same_verdict(words[w], backends[b], NULL);
            for (size_t s = 0; s < sizeof(words) / sizeof(words[0]); s++) {
                snprintf(text, sizeof(text), "%s=%s", words[s], backends[b]);
                same_verdict(words[w], text, NULL);
                snprintf(text, sizeof(text), "cpu,%s=%s,cpu", words[s], backends[b]);
                same_verdict(words[w], text, "");
            }
        }
    }
}

/* taken: the same once more; refused: another value for what has one. */
static void twice_is_judged_alike(void **state)
{
    static const struct { const char *backends, *options; bool taken; } given[] = {
        { "cpu,cpu", NULL, true },       { "cpu,decode=gpu,cpu,decode=gpu", NULL, true }, { ",,cpu,,", "", true },
        { "cpu,auto", NULL, false },     { "decode=cpu,decode=cuda", NULL, false },       { "decode=cpu,cluster=cuda,decode=cp", NULL, false },
        { "decode=cpu,cluster=cpu", "cluster.peak=3,cluster.qtot=3", true },              { NULL, "cluster.peak=3,cluster.peak=3", true },
        { NULL, "cluster.peak=3,cluster.peak=33", false },                                { NULL, "decode.batch=1M,cluster.peak=2,decode.batch=2M", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        struct workflow_choice c;
        struct k_err e;
        same_verdict("cluster", given[i].backends, given[i].options);
        assert_int_equal(workflow_choose("cluster", given[i].backends, given[i].options, &c, &e), given[i].taken ? 0 : -1);
    }
}

static void options_are_judged_alike(void **state)
{
    static const char *const odd[] = { "decode", "decode.batch", "decode=3", "decode.batch=", "decode.batch=1x", "decode.batch=-1", "decode.batch=64M",
                                       "decode.batch=99999999999999999999", "decode.batch=1MM", "decode.batch=3G", "cluster.peak=3K", "decode.nothing=1",
                                       ".batch=1", "decode..batch=1", "cluster.peak=0x3", "cluster.peak= 3", "cluster.peak=+3" };
    char text[200];

    (void)state;
    for (const struct workflow *w = workflows; w->name; w++) {
        for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
            same_verdict(w->name, NULL, odd[i]);
        for (unsigned s = 0; s < STAGE_COUNT; s++) {
            for (unsigned i = 0; i < STAGE_OPTIONS && stages[s].option[i].name; i++) {
                const struct stage_option *o = &stages[s].option[i];
                uint64_t edge[] = { o->min, o->max, o->max + 1, o->initial, o->min ? o->min - 1 : o->max + 2 };
                for (unsigned k = 0; k < 5; k++) {
                    snprintf(text, sizeof(text), "%s.%s=%" PRIu64, stages[s].name, o->name, edge[k]);
                    same_verdict(w->name, "cpu", text);
                }
            }
        }
    }
    print_message("%u taken, %u refused by both\n", taken, refused);
    assert_true(taken > 30 && refused > 500);
}

static void workflows_are_the_same(void **state)
{
    unsigned i = 0;

    (void)state;
    for (; workflow_words[i].name && workflows[i].name; i++) {
        assert_string_equal(workflow_words[i].name, workflows[i].name);
        assert_string_equal(workflow_words[i].what, workflows[i].what);
    }
    assert_true(workflow_words[i].name == NULL && workflows[i].name == NULL);
}

static void a_device_fits_when_every_stage_finds_what_it_asks_for(void **state)
{
    static const char *const cpu[] = { "cpu", NULL }, *const amd[] = { "cpu", "hip", "opencl", NULL };
    static const struct { const char *workflow, *backends; bool cpu, amd; } given[] = {
        { "cluster", NULL, true, true },
        { "cluster", "", true, true },
        { "cluster", "auto", true, true },
        { "cluster", "cpu", true, true },
        { "cluster", "gpu", false, true },
        { "cluster", "hip", false, true },
        { "cluster", "cuda", false, false },
        { "cluster", "decode=cpu", true, true },
        { "cluster", "decode=cpu,cluster=opencl", false, true },
        { "cluster", "cuda,cluster=hip", false, false },
        { "cluster", "decode=hip,cluster=auto,cpu", false, true },
        { "cluster", "cluster=cpu,cuda,decode=cpu", true, true },       /* each stage has its own: nothing is left for the default */
        { "decode", "cuda,decode=cpu", true, true },
        { "none", "cuda", true, true },                                 /* no stage: no device is opened */
    };

    (void)state;
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        assert_int_equal(workflow_words_fit(given[i].workflow, given[i].backends, cpu), given[i].cpu);
        assert_int_equal(workflow_words_fit(given[i].workflow, given[i].backends, amd), given[i].amd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backends_are_judged_alike),
        cmocka_unit_test(twice_is_judged_alike),
        cmocka_unit_test(options_are_judged_alike),
        cmocka_unit_test(workflows_are_the_same),
        cmocka_unit_test(a_device_fits_when_every_stage_finds_what_it_asks_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
