/* cmd_list.c - sluice workflows, workflow check, devices: what there is, and would it do? */
#include "cmd.h"
#include "cmd_part.h"
#include "workflow.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

#include "backend/bk_load.h"

static void join_backends(char *out, size_t room, const struct stage_desc *s)
{
    const char *b;
    size_t n = 0;
    out[0] = '\0';
    for (unsigned i = 0; (b = workflow_backend(s, i)) != NULL && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", n ? "," : "", b);
}

static void workflow_text(const struct workflow *w)
{
    printf("%s: %s\n", w->name, w->what);
    for (unsigned i = 0; i < w->stages; i++) {
        const struct stage_desc *s = &stages[w->stage[i]];
        char names[100];
        join_backends(names, sizeof names, s);
        printf("  %-8s %s, on %s\n", s->name, s->what, names);
        for (unsigned k = 0; k < STAGE_OPTIONS && s->option[k].name; k++)
            printf("    %s.%s=%" PRIu64 "  %s\n", s->name, s->option[k].name,
                   s->option[k].initial, s->option[k].what);
    }
}

static void workflow_json(struct json *j, const struct workflow *w,
                          const struct workflow_choice *c)
{
    json_open(j, NULL, '{');
    json_str(j, "name", w->name);
    json_str(j, "what", w->what);
    json_open(j, "stages", '[');
    for (unsigned i = 0; i < w->stages; i++) {
        const struct stage_desc *s = &stages[w->stage[i]];
        json_open(j, NULL, '{');
        json_str(j, "name", s->name);
        json_str(j, "output", s->output);
        json_open(j, "backends", '[');
        const char *b;
        for (unsigned k = 0; (b = workflow_backend(s, k)) != NULL; k++)
            json_str(j, NULL, b);
        json_close(j, ']');
        json_str(j, "backend", c ? c->backend[w->stage[i]] : "auto");
        json_open(j, "options", '{');
        for (unsigned k = 0; k < STAGE_OPTIONS && s->option[k].name; k++)
            json_u64(j, s->option[k].name, c ? c->option[w->stage[i]][k] : s->option[k].initial);
        json_close(j, '}');
        json_close(j, '}');
    }
    json_close(j, ']');
    json_close(j, '}');
}

static const struct option list_options[] = {
    { "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, 'h' },
    { "backend", required_argument, NULL, 'b' }, { "set", required_argument, NULL, 'S' }, { 0 },
};

/* -1: go on. */
static int list_parse(int argc, char **argv, const char *help, bool *json, const char **backend,
                      const char **set)
{
    int o;

    optind = 0;
    while ((o = getopt_long(argc, argv, "b:h", list_options, NULL)) != -1) {
        if (o == 'h') {
            fputs(help, stdout);
            return CMD_DONE;
        }
        if (o == '?' || (o != 'J' && backend == NULL))
            return o == '?' ? CMD_USAGE : cmd_usage(argv[0], "it takes --json only");
        if (o == 'J')
            *json = true;
        else if (o == 'b')
            *backend = optarg;
        else
            *set = optarg;
    }
    return -1;
}

int kernels_cmd_workflows(int argc, char **argv)
{
    bool json = false;
    struct json j;
    int x = list_parse(argc, argv, "sluice workflows [--json]\n", &json, NULL, NULL);

    if (x >= 0)
        return x;
    if (json)
        json_begin(&j, "workflows", "workflows");
    for (const struct workflow *w = workflows; w->name; w++) {
        if (json)
            workflow_json(&j, w, NULL);
        else
            workflow_text(w);
    }
    if (json)
        json_end(&j);
    return CMD_DONE;
}

static bool is_workflow(const char *name)
{
    const struct workflow *w = workflows;

    while (w->name && strcmp(w->name, name) != 0)
        w++;
    return w->name != NULL;
}

int kernels_cmd_workflow_check(int argc, char **argv)
{
    bool json = false;
    const char *backend = NULL, *set = NULL;
    struct workflow_choice c;
    struct k_err e;
    struct json j;
    int x = list_parse(argc, argv, "sluice workflow check NAME [-b STAGE=B,...] "
                       "[--set STAGE.OPTION=V,...] [--json]\n", &json, &backend, &set);

    if (x >= 0)
        return x;
    if (optind + 1 != argc)
        return cmd_usage("workflow check", "one workflow is wanted");
    if (workflow_choose(argv[optind], backend, set, &c, &e) < 0) {
        cmd_say("workflow check", "%s", e.text);
        return is_workflow(argv[optind]) ? CMD_FAILED : CMD_NOT_THERE;
    }
    if (json) {
        json_begin(&j, "workflow", "workflows");
        workflow_json(&j, c.workflow, &c);
        json_end(&j);
        return CMD_DONE;
    }
    printf("%s: accepted\n", c.workflow->name);
    for (unsigned i = 0; i < c.workflow->stages; i++)
        printf("  %-8s %s\n", stages[c.workflow->stage[i]].name, c.backend[c.workflow->stage[i]]);
    return CMD_DONE;
}

int kernels_cmd_workflow(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "check") != 0)
        return cmd_usage("workflow", "want: workflow check NAME");
    return kernels_cmd_workflow_check(argc - 1, argv + 1);
}

/* ---- devices ------------------------------------------------------------------------------ */

static void device_json(struct json *j, const char *backend, const struct bk_info *i,
                        const char *why)
{
    json_open(j, NULL, '{');
    json_str(j, "backend", backend);
    json_str(j, "id", i ? i->id : NULL);
    json_str(j, "name", i ? i->name : NULL);
    json_str(j, "class", i ? i->class : NULL);
    json_str(j, "driver", i ? i->driver : NULL);
    if (i && i->memory)
        json_u64(j, "memory", i->memory);
    else
        json_str(j, "memory", NULL);
    if (i && i->numa >= 0)
        json_u64(j, "numa", (uint64_t)i->numa);
    else
        json_str(j, "numa", NULL);
    json_bool(j, "usable", why == NULL);
    json_str(j, "why", why);
    json_close(j, '}');
}

static void device_text(const char *backend, const struct bk_info *i, const char *why)
{
    if (i == NULL) {
        printf("%-7s -  %s\n", backend, why);
        return;
    }
    printf("%-7s %s  %s, %s, %s, %.1f GiB", backend, i->id, i->name, i->class, i->driver,
           (double)i->memory / (1 << 30));
    if (i->numa >= 0)
        printf(", NUMA node %d", i->numa);
    printf("%s%s\n", why ? "  NOT USABLE: " : "", why ? why : "");
}

int kernels_cmd_devices(int argc, char **argv)
{
    bool json = false;
    struct json j;
    int x = list_parse(argc, argv, "sluice devices [--json]\n", &json, NULL, NULL);

    if (x >= 0)
        return x;
    if (json)
        json_begin(&j, "devices", "devices");
    for (const char *const *b = bk_names; *b; b++) {
        char why[300] = "";
        const struct bk_ops *ops = bk_load(*b, why, sizeof why);
        int n = ops ? ops->count() : 0;
        for (int i = 0; i < (n > 0 ? n : 1); i++) {
            struct bk_info info = { 0 };
            bool fit = ops && ops->describe(i, &info, why, sizeof why) == 0;
            const struct bk_info *known = info.id[0] ? &info : NULL;
            if (json)
                device_json(&j, *b, known, fit ? NULL : why);
            else
                device_text(*b, known, fit ? NULL : why);
        }
    }
    if (json)
        json_end(&j);
    return CMD_DONE;
}
