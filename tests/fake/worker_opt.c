/* worker_opt.c - the options of fake-worker */
#include "config.h"

#include "worker.h"
#include "fake.h"
#include "mem.h"
#include "str.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_options opt = {
    .prefix = "n", .class = "fake", .count = 1, .first = 1, .width = 3, .devices = 1, .building_limit = 3, .seconds = { 0.1 }, .n_seconds = 1,
    .build_s = 0.005, .buffer = UINT64_C(1) << 30, .ready_fd = -1, .connect_s = 5,
};

static const char usage[] =
    "fake-worker --server ADDRESS [option...]: workers that only pretend to work\n"
    "  --method munge[:SOCKET]   for a TCP address\n"
    "  --count N --name-prefix P --first K --width W    names PKKK (default n001 ...)\n"
    "  --class C --devices N --buffer SIZE --building-limit N\n"
    "  --seconds-per-tf S[,S2...]  of a device; worker i takes the i-th, over and over\n"
    "  --build-seconds S         from Assign to Built\n"
    "  --pull                    pull the parts from their sources first, over sockets\n"
    "  --reject K --fail K --stall K --forget K --leave K  every K-th TF of a worker: refused, failed, never finished, forgotten\n"
    "                            after Built (and reconnect), connection closed instead of an answer\n"
    "  --corrupt I:K             every K-th result of worker number I has another digest\n"
    "  --full I:FROM:SECONDS     worker number I reports a full buffer and refuses from FROM s after the start for SECONDS;\n"
    "                            FROM -: from each SIGUSR1 on\n"
    "  --resize-seconds S        another size of the buffer takes so long (default 0)\n"
    "  --resize-refuse K, --resize-silent K  every K-th worker keeps its size: says why, or never answers\n"
    "  --leak-dir DIR            while DIR/NODE is there, memory of its devices does not come free\n"
    "  --machine WORD            of which the serials of its devices and its boot id are made (default fake, and that of this machine)\n"
    "  --clock-shift S           its wall clock is said to be S ahead\n"
    "  --seconds S, --tfs N      end after S, or when N TFs were accepted; else at SIGTERM\n"
    "  --ready-fd N              says ready when all are registered\n"
    "At the end one line of JSON on stdout.\n";

static void parse_speeds(const char *text)
{
    char *list = mem_strdup(text), *save = NULL;
    struct err e;

    opt.n_seconds = 0;
    for (char *s = strtok_r(list, ",", &save); s && opt.n_seconds < MAX_SPEEDS; s = strtok_r(NULL, ",", &save))
        if (str_parse_f64("--seconds-per-tf", s, 0, 86400, &opt.seconds[opt.n_seconds++], &e) < 0)
            fake_die(&e);
    free(list);
}

static void parse_full(const char *text)
{
    opt.full_from = 1e18;
    if (sscanf(text, "%u:-:%lf", &opt.full_worker, &opt.full_s) != 2 &&
        sscanf(text, "%u:%lf:%lf", &opt.full_worker, &opt.full_from, &opt.full_s) != 3) {
        fprintf(stderr, "--full %s: wanted I:FROM:SECONDS\n", text);
        exit(2);
    }
}

static void parse_corrupt(const char *text)
{
    if (sscanf(text, "%u:%u", &opt.corrupt, &opt.corrupt_every) != 2 || opt.corrupt_every == 0) {
        fprintf(stderr, "--corrupt %s: wanted I:K\n", text);
        exit(2);
    }
}

static void help(const char *text)
{
    (void)text;
    fputs(usage, stdout);
    exit(0);
}

enum kind { FLAG, TEXT, UINT, BIG, SIZE, REAL, CALL };
static const struct row {
    const char *name;
    enum kind   kind;
    void       *to;
    double      least, most;
    void      (*call)(const char *text);
} rows[] = {
    { "server",         TEXT, &opt.server, 0, 0, NULL },
    { "method",         TEXT, &opt.method, 0, 0, NULL },
    { "count",          UINT, &opt.count, 1, 10000, NULL },
    { "name-prefix",    TEXT, &opt.prefix, 0, 0, NULL },
    { "first",          UINT, &opt.first, 0, 1000000, NULL },
    { "width",          UINT, &opt.width, 1, 9, NULL },
    { "class",          TEXT, &opt.class, 0, 0, NULL },
    { "seconds-per-tf", CALL, NULL, 0, 0, parse_speeds },
    { "build-seconds",  REAL, &opt.build_s, 0, 3600, NULL },
    { "buffer",         SIZE, &opt.buffer, 0, 0, NULL },
    { "devices",        UINT, &opt.devices, 1, MAX_DEVICES, NULL },
    { "building-limit", UINT, &opt.building_limit, 1, 64, NULL },
    { "reject",         UINT, &opt.reject, 0, UINT32_MAX, NULL },
    { "fail",           UINT, &opt.fail, 0, UINT32_MAX, NULL },
    { "forget",         UINT, &opt.forget, 0, UINT32_MAX, NULL },
    { "stall",          UINT, &opt.stall, 0, UINT32_MAX, NULL },
    { "leave",          UINT, &opt.leave, 0, UINT32_MAX, NULL },
    { "full",           CALL, NULL, 0, 0, parse_full },
    { "corrupt",        CALL, NULL, 0, 0, parse_corrupt },
    { "resize-seconds", REAL, &opt.resize_s, 0, 3600, NULL },
    { "resize-refuse",  UINT, &opt.resize_refuse, 0, UINT32_MAX, NULL },
    { "resize-silent",  UINT, &opt.resize_silent, 0, UINT32_MAX, NULL },
    { "leak-dir",       TEXT, &opt.leaks, 0, 0, NULL },
    { "machine",        TEXT, &opt.machine, 0, 0, NULL },
    { "clock-shift",    REAL, &opt.clock_shift_s, -1e10, 1e10, NULL },
    { "seconds",        REAL, &opt.until_s, 0, 1e6, NULL },
    { "tfs",            BIG,  &opt.tfs, 1, 1e18, NULL },
    { "ready-fd",       UINT, &opt.ready_fd, 0, 1023, NULL },
    { "quiet",          FLAG, &opt.quiet, 0, 0, NULL },
    { "pull",           FLAG, &opt.pull, 0, 0, NULL },
    { "help",           CALL, NULL, 0, 0, help },
};

static int take(const struct row *r, const char *text, struct err *e)
{
    uint64_t u;

    switch (r->kind) {
    case FLAG: *(bool *)r->to = true; return 0;
    case TEXT: *(const char **)r->to = text; return 0;
    case BIG:  return str_parse_u64(r->name, text, (uint64_t)r->least, (uint64_t)r->most, r->to, e);
    case SIZE: return str_parse_size(text, r->to, e);
    case REAL: return str_parse_f64(r->name, text, r->least, r->most, r->to, e);
    case CALL: r->call(text); return 0;
    case UINT:
        if (str_parse_u64(r->name, text, (uint64_t)r->least, (uint64_t)r->most, &u, e) < 0)
            return -1;
        *(unsigned *)r->to = (unsigned)u;
        return 0;
    }
    return err_set(e, ERR_USAGE, "--%s: an option of no kind", r->name);
}

void options_read(int argc, char **argv)
{
    struct option options[ARRAY_LEN(rows) + 1] = { 0 };
    struct err e;
    int at;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        options[i] = (struct option){ rows[i].name, rows[i].kind != FLAG && rows[i].call != help, NULL, (int)i };
    while ((at = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (at == '?' || at == ':')
            break;
        if (take(&rows[at], optarg, &e) < 0)
            fake_die(&e);
    }
    if (at == -1 && opt.server != NULL)
        return;
    fputs(usage, stderr);
    exit(2);
}
