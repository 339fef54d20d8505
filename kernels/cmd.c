/* cmd.c - the table of local commands, and what they share
 *
 * From: main.c of the standalone program, sluice-reco.  To: cmd_*.c.
 * Data go to stdout, messages to stderr.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "cmd.h"
#include "cmd_part.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *what;
} commands[] = {
    { "reco",      kernels_cmd_reco,      "reconstruct TF files" },
    { "simulate",  kernels_cmd_simulate,  "made-up TFs with their truth" },
    { "tf",        kernels_cmd_tf,        "look into TF files" },
    { "workflows", kernels_cmd_workflows, "workflows, stages, backends, options" },
    { "workflow",  kernels_cmd_workflow,  "workflow check NAME: would it be accepted?" },
    { "compare",   kernels_cmd_compare,   "two results: first difference and counts" },
    { "devices",   kernels_cmd_devices,   "devices of this machine" },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

int kernels_cmd(int argc, char **argv)
{
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);

    for (unsigned i = 0; argc > 1 && i < COMMANDS; i++) {
        if (strcmp(commands[i].name, argv[1]) == 0) {
            int r = commands[i].run(argc - 1, argv + 1);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                cmd_say(argv[1], "writing to standard output failed");
                return CMD_FAILED;
            }
            return r;
        }
    }
    FILE *out = help ? stdout : stderr;
    if (argc > 1 && !help)
        fprintf(out, "no command \"%s\"\n", argv[1]);
    fprintf(out, "commands:\n");
    for (unsigned i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].what);
    return help ? CMD_DONE : CMD_USAGE;
}

void cmd_put(FILE *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\x%02x", *p);
        else
            fputc(*p, out);
    }
}

static void put_message(const char *cmd, const char *fmt, va_list ap)
{
    char text[4096];

    vsnprintf(text, sizeof text, fmt, ap);
    fprintf(stderr, "sluice %s: ", cmd);
    cmd_put(stderr, text);
}

void cmd_say(const char *cmd, const char *fmt, ...)
{
    va_list ap;

    fflush(stdout);
    va_start(ap, fmt);
    put_message(cmd, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int cmd_usage(const char *cmd, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_message(cmd, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (see sluice %s --help)\n", cmd);
    return CMD_USAGE;
}

int cmd_number(const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    char *end;

    if (*text < '0' || *text > '9')
        return -1;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || v < low || v > high)
        return -1;
    *out = v;
    return 0;
}

int cmd_want_number(const char *cmd, const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out)
{
    if (cmd_number(text, low, high, out) == 0)
        return 0;
    cmd_usage(cmd, "--%s: \"%s\": a number from %" PRIu64 " to %" PRIu64 " is wanted", option, text, low, high);
    return -1;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void text(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            fprintf(f, "\\u%04x", c);   /* names of files need not be UTF-8 */
        else
            fputc(c, f);
    }
    fputc('"', f);
}

static void next(struct json *j, const char *key)
{
    if (j->any[j->depth])
        fputs(", ", j->out);
    j->any[j->depth] = true;
    if (key) {
        text(j->out, key);
        fputs(": ", j->out);
    }
}

void json_open(struct json *j, const char *key, char bracket)
{
    next(j, key);
    fputc(bracket, j->out);
    j->any[++j->depth] = false;
}

void json_close(struct json *j, char bracket)
{
    j->depth--;
    fputc(bracket, j->out);
}

void json_str(struct json *j, const char *key, const char *value)
{
    next(j, key);
    if (value)
        text(j->out, value);
    else
        fputs("null", j->out);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
    next(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_num(struct json *j, const char *key, double value)
{
    next(j, key);
    fprintf(j->out, "%.9g", value);
}

void json_bool(struct json *j, const char *key, bool value)
{
    next(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_digest(struct json *j, const char *key, uint64_t value)
{
    next(j, key);
    fprintf(j->out, "\"%016" PRIx64 "\"", value);
}

void json_begin(struct json *j, const char *schema, const char *plural)
{
    char when[32], zone[8];
    time_t t = time(NULL);
    struct tm tm;

    *j = (struct json){ .out = stdout };
    localtime_r(&t, &tm);
    strftime(zone, sizeof zone, "%z", &tm);
    size_t n = strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(when + n, sizeof when - n, "%.3s:%.2s", zone, zone + 3);
    json_open(j, NULL, '{');
    json_open(j, "schema", '{');
    json_str(j, "name", schema);
    json_u64(j, "version", 1);
    json_close(j, '}');
    json_open(j, "meta", '{');
    json_str(j, "time", when);
    json_str(j, "seq", NULL);            /* nothing was asked of sluiced */
    json_close(j, '}');
    json_open(j, plural, '[');
}

void json_end(struct json *j)
{
    json_close(j, ']');
    json_close(j, '}');
    fputc('\n', j->out);
}

/* ---- files -------------------------------------------------------------------------------- */

void cmd_stem(const char *path, char *out, size_t room)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    int len = dot && dot > name ? (int)(dot - name) : (int)strlen(name);

    snprintf(out, room, "%.*s", len, name);
}

static int write_all(int fd, const char *p, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        p += n;
        size -= (size_t)n;
    }
    return fsync(fd) < 0 && errno != EINVAL ? -1 : 0;
}

int cmd_write(const char *path, const void *data, size_t size, struct k_err *e)
{
    char part[4200];

    if (snprintf(part, sizeof part, "%s.part%ld", path, (long)getpid()) >= (int)sizeof part)
        return k_fail(e, K_EINPUT, "%.100s...: the name is too long", path);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0)
        return k_fail(e, K_EINPUT, "%s: %s", part, strerror(errno));
    int bad = write_all(fd, data, size) < 0 ? errno : 0;
    if (close(fd) < 0 && !bad)
        bad = errno;
    if (!bad && rename(part, path) < 0)
        bad = errno;
    if (bad) {
        unlink(part);
        return k_fail(e, K_EINPUT, "%s: %s", path, strerror(bad));
    }
    return 0;
}

int cmd_read(const char *path, void **out, size_t *size, struct k_err *e)
{
    struct tf_err te;
    struct tf_file *f = tf_file_open(path, &te);

    if (f == NULL) {
        bool there = access(path, F_OK) == 0 || errno != ENOENT;
        k_fail(e, K_EINPUT, "%s", te.text);
        return there ? CMD_FAILED : CMD_NOT_THERE;
    }
    *size = (size_t)tf_file_size(f);
    *out = malloc(*size + 1);
    if (*out == NULL || tf_file_read(f, 0, *out, *size, &te) < 0) {
        k_fail(e, K_EINPUT, "%s: %s", path, *out ? te.text : "no memory");
        free(*out);
        tf_file_close(f);
        return CMD_FAILED;
    }
    tf_file_close(f);
    return CMD_DONE;
}
