/* cmd_submit.c - submit: files become a job, every time-frame of them a task
 *
 * The files are scanned here, by the user who can read them; sluiced gets paths and ranges and never opens one. A file that is damaged is
 * skipped as a whole, named with the offset, and counted in the job.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "file.h"
#include "mem.h"
#include "message.h"
#include "scan.h"
#include "show.h"
#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_LIMIT = 64 << 20 };

struct list { char **path; size_t n; };

static void list_add(struct list *l, const char *path)
{
    if ((l->n & (l->n - 1)) == 0)
        l->path = mem_grow(l->path, l->n == 0 ? 1 : 2 * l->n, sizeof(*l->path));
    l->path[l->n++] = args_path(path);
}

static void list_free(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->path[i]);
    free(l->path);
}

/* One path a line; empty lines and lines that begin with # are passed over. */
static int list_read(struct list *l, const char *file, struct err *e)
{
    FILE *f = strcmp(file, "-") == 0 ? stdin : fopen(file, "re");
    char *line = NULL;
    size_t cap = 0, total = 0;
    ssize_t n;
    int r = 0;

    if (f == NULL)
        return err_errno(e, errno == ENOENT ? ERR_NOT_FOUND : ERR_FAILED, "%s", file);
    while (r == 0 && (n = getline(&line, &cap, f)) >= 0) {
        total += (size_t)n;
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        if (total > LIST_LIMIT || strlen(line) != (size_t)n)
            r = err_set(e, ERR_USAGE, "%s: a list of at most 64 MiB without zero bytes is wanted", file);
        else if (n > 0 && line[0] != '#')
            list_add(l, line);
    }
    if (r == 0 && ferror(f))
        r = err_errno(e, ERR_FAILED, "%s", file);
    free(line);
    if (f != stdin)
        fclose(f);
    return r;
}

/* --- the files of the message --------------------------------------------------------------- */

/* What is wrong, without the path in front that stands there already. */
static const char *without_path(const char *text, const char *path)
{
    size_t n = strlen(path);

    return strncmp(text, path, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

enum { FEW = 64 };

/* Extents one by one for few TFs, as every sluiced understands it, and where there are gaps; else the sizes alone: a job may have millions. */
static void input_tfs(Sluice__InputFile *f, const struct scan *s)
{
    bool joined = s->n > FEW;

    for (size_t i = 1; i < s->n && joined; i++)
        joined = s->tfs[i].offset == s->tfs[i - 1].offset + s->tfs[i - 1].size;
    if (joined) {
        f->n_sizes = s->n;
        f->sizes = mem_array(s->n, sizeof(*f->sizes));
        f->has_offset = true;
        f->offset = s->tfs[0].offset;
        for (size_t i = 0; i < s->n; i++)
            f->sizes[i] = s->tfs[i].size;
        return;
    }
    f->n_tfs = s->n;
    f->tfs = mem_array(s->n, sizeof(*f->tfs));
    for (size_t i = 0; i < s->n; i++) {
        f->tfs[i] = mem_zalloc(sizeof(**f->tfs));
        sluice__extent__init(f->tfs[i]);
        f->tfs[i]->has_offset = f->tfs[i]->has_size = 1;
        f->tfs[i]->offset = s->tfs[i].offset;
        f->tfs[i]->size = s->tfs[i].size;
    }
}

static Sluice__InputFile *input_file(const char *path, bool quiet, bool *missing)
{
    Sluice__InputFile *f = mem_zalloc(sizeof(*f));
    struct scan s;

    sluice__input_file__init(f);
    f->path = mem_strdup(path);
    scan_file(path, &s);
    *missing = s.missing;
    if (s.trouble != NULL) {
        char *shown = show_text(path), *why = show_text(without_path(s.trouble, path));

        f->text = mem_strdup(without_path(s.trouble, path));
        if (!quiet)
            fprintf(stderr, "skipped %s: %s\n", shown, why);
        free(shown);
        free(why);
    } else {
        input_tfs(f, &s);
    }
    scan_free(&s);
    return f;
}

static void input_free(Sluice__InputFile *f)
{
    for (size_t i = 0; i < f->n_tfs; i++)
        free(f->tfs[i]);
    free(f->tfs);
    free(f->sizes);
    free(f->path);
    free(f->text);
    free(f);
}

static int make_files(const struct list *l, Sluice__Submit *q, bool quiet, struct err *e)
{
    size_t tfs = 0;
    bool all_missing = true, missing;

    q->files = mem_array(l->n, sizeof(*q->files));
    for (size_t i = 0; i < l->n; i++) {
        q->files[q->n_files++] = input_file(l->path[i], quiet || l->n == 1, &missing);
        all_missing = all_missing && missing;
        tfs += q->files[i]->n_tfs + q->files[i]->n_sizes;
    }
    if (tfs > 0)
        return 0;
    enum err_code code = all_missing ? ERR_NOT_FOUND : ERR_FAILED;
    return l->n == 1 && q->files[0]->text != NULL ? err_set(e, code, "%s: %s", l->path[0], q->files[0]->text)
                                                  : err_set(e, code, "submit: no time-frame in any of the %zu files", l->n);
}

/* --- options -------------------------------------------------------------------------------- */

static int number_options(const struct args *a, Sluice__Submit *q, struct err *e)
{
    int64_t priority = 0, limit_ns = 0;
    uint64_t attempts = 0;
    char text[CLOCK_TEXT];

    if (args_i64(a, "priority", -1000000, 1000000, &priority, e) < 0 || args_u64(a, "attempts", 1, 100, &attempts, e) < 0
        || args_time(a, "begin", &q->begin, e) < 0 || args_nice(a, &q->has_nice, &q->nice, e) < 0)
        return -1;
    if (args_has(a, "time") && clock_parse_limit(args_text(a, "time", ""), &limit_ns, e) < 0)
        return err_prefix(e, "--time");
    if (limit_ns > 0)
        fprintf(stderr, "time limit of a try: %s (%.15g s)\n", clock_duration_text(limit_ns, text), (double)limit_ns / 1e9);
    if (args_has(a, "begin"))
        fprintf(stderr, "begins at %s\n", clock_rfc3339(q->begin, text));
    if (args_has(a, "straggler") && str_parse_f64("--straggler", args_text(a, "straggler", ""), 1.5, 1000, &q->straggler, e) < 0)
        return -1;
    q->has_straggler = args_has(a, "straggler");
    q->has_priority = args_has(a, "priority");
    q->priority = (int32_t)priority;
    q->has_attempts = attempts > 0;
    q->attempts = (uint32_t)attempts;
    q->has_time_limit = limit_ns > 0;
    q->time_limit = (double)limit_ns / 1e9;
    q->has_begin = args_has(a, "begin");
    q->has_hold = q->hold = args_has(a, "hold");
    return 0;
}

static void class_options(const struct args *a, Sluice__Submit *q)
{
    char *joined = args_joined(a, "class"), *rest = joined, *word;

    while (joined != NULL && (word = strsep(&rest, ",")) != NULL) {
        q->classes = mem_grow(q->classes, q->n_classes + 1, sizeof(*q->classes));
        q->classes[q->n_classes++] = mem_strdup(word);
    }
    free(joined);
}

static int text_options(const struct args *a, Sluice__Submit *q, struct err *e)
{
    const char *output = args_text(a, "output", NULL);

    q->name = (char *)args_text(a, "name", NULL);
    q->workflow = (char *)args_text(a, "workflow", "decode");
    q->backends = args_joined(a, "backend");
    q->options = args_joined(a, "set");
    q->key = (char *)args_text(a, "key", NULL);
    q->output = output != NULL ? args_path(output) : NULL;
    class_options(a, q);
    if (q->name != NULL && !str_is_name(q->name))
        return err_set(e, ERR_USAGE, "--name '%.64s': 1 to 63 letters, digits, '.', '_', '-' are wanted", q->name);
    return 0;
}

static void submit_free(Sluice__Submit *q)
{
    for (size_t i = 0; i < q->n_files; i++)
        input_free(q->files[i]);
    for (size_t i = 0; i < q->n_classes; i++)
        free(q->classes[i]);
    free(q->files);
    free(q->classes);
    free(q->backends);
    free(q->options);
    free(q->output);
}

/* --- the command ---------------------------------------------------------------------------- */

static const struct column columns[] = { { "id" }, { "tasks" }, { "skipped" }, { "existed" }, { 0 } };
static const struct listing listing = { "jobs", columns, "id,tasks,skipped,existed" };

static int accepted(struct context *ctx, const struct args *a, Sluice__Submitted *s, struct err *e)
{
    int r = 0;

    if (s->existed && !args_has(a, "quiet"))
        fprintf(stderr, "the job of this key is there already\n");
    if (ctx->mode != SHOW_TABLE || ctx->fields != NULL)
        r = show_one(ctx, &listing, message_json(&s->base), -1, e);
    else
        printf("%" PRIu64 "\n", s->id);
    if (r == 0 && args_has(a, "wait")) {
        fflush(stdout);
        r = wait_until_over(ctx, "job", s->id, 0, args_has(a, "quiet"), e);
    }
    return r;
}

int cmd_submit(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Submit q = SLUICE__SUBMIT__INIT;
    Sluice__Submitted *s = NULL;
    struct list files = { 0 };
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    for (int i = 0; i < a->n; i++)
        list_add(&files, a->at[i]);
    if (args_has(a, "input") && list_read(&files, args_text(a, "input", ""), e) < 0)
        goto out;
    if (files.n == 0) {
        err_set(e, ERR_USAGE, "submit: a file, or --input LIST, is wanted");
        goto out;
    }
    if (show_columns_check(ctx, &listing, e) < 0 || text_options(a, &q, e) < 0 || number_options(a, &q, e) < 0 || make_files(&files, &q, args_has(a, "quiet"), e) < 0)
        goto out;
    s = call(ctx, &q.base, SLUICE__TYPE__SUBMITTED, CALL_LIMIT_S, e);
    if (s != NULL)
        r = accepted(ctx, a, s, e);
out:
    call_free(s);
    submit_free(&q);
    list_free(&files);
    return r;
}
