/* cmd_list.c - sluice workflows, workflow check, devices: what there is, and would it do? */
#include "cmd.h"
#include "cmd_part.h"
#include "detect.h"
#include "workflow.h"

#include <getopt.h>
#include <inttypes.h>
#include <string.h>

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

static void device_json(void *arg, const struct detected *d)
{
    const struct bk_info *i = d->known ? &d->info : NULL;
    struct json *j = arg;

    json_open(j, NULL, '{');
    json_str(j, "backend", d->backend);
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
    json_bool(j, "usable", d->usable);
    json_str(j, "why", d->usable ? NULL : d->why);
    json_close(j, '}');
}

static void device_text(void *arg, const struct detected *d)
{
    const struct bk_info *i = &d->info;

    (void)arg;
    if (!d->known) {
        printf("%-7s -  %s\n", d->backend, d->why);
        return;
    }
    printf("%-7s %s  %s, %s, %s, %.1f GiB", d->backend, i->id, i->name, i->class, i->driver,
           (double)i->memory / (1 << 30));
    if (i->numa >= 0)
        printf(", NUMA node %d", i->numa);
    printf("%s%s\n", d->usable ? "" : "  NOT USABLE: ", d->why);
}

static const char devices_help[] =
    "sluice devices [--json] [--timeout S]\n"
    "  --timeout S  seconds that a driver may take, 1 to 600 (30); it is asked in a process of its own. 0: asked in this one, without a limit\n";

int kernels_cmd_devices(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", no_argument, NULL, 'J' }, { "help", no_argument, NULL, 'h' }, { "timeout", required_argument, NULL, 't' }, { 0 },
    };
    uint64_t limit_s = DETECT_LIMIT_S;
    bool json = false;
    struct json j;
    int o;

    optind = 0;
    while ((o = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        if (o == 'h') {
            fputs(devices_help, stdout);
            return CMD_DONE;
        }
        if (o == '?')
            return CMD_USAGE;
        if (o == 't' && cmd_number(optarg, 0, 600, &limit_s) < 0)
            return cmd_usage("devices", "--timeout %s: 0 to 600 seconds are wanted", optarg);
        json |= o == 'J';
    }
    if (json)
        json_begin(&j, "devices", "devices");
    fflush(stdout);                              /* the processes that ask have a copy of what is not yet written */
    detect((double)limit_s, json ? device_json : device_text, &j);
    if (json)
        json_end(&j);
    return CMD_DONE;
}
