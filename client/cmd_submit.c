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
#include "paths.h"
#include "progress.h"
#include "scan.h"
#include "show.h"
#include "str.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* The reading of the files, on a terminal: it may take long, as headers lie all over them. */
struct reading { struct progress line; size_t of; int64_t from; };

static void reading_show(void *arg, size_t files, size_t tfs)
{
    struct reading *r = arg;
    char text[80];

    if (!r->line.on || clock_mono_ns() < r->from)
        return;
    snprintf(text, sizeof(text), "files read, %zu time-frames found", tfs);
    progress_show(&r->line, files, r->of, text);
}

enum { NAMED_MOST = 100 };           /* skipped files that are named one by one */
enum { FILES_A_SECOND = 5000 };      /* that a busy sluiced can store at least: a job of very many files is waited for longer */

/* Names what is skipped; of very many only the first. */
static void say_skipped(const char *path, const char *why, size_t n, bool quiet)
{
    char *shown, *text;

    if (quiet || n > NAMED_MOST)
        return;
    shown = show_text(path);
    text = show_text(why);
    fprintf(stderr, "skipped %s: %s\n", shown, text);
    free(shown);
    free(text);
}

/* Where symbolic links lead, when that is elsewhere. */
static char *real_path(const char *path)
{
    char *real = realpath(path, NULL);

    if (real != NULL && strcmp(real, path) == 0) {
        free(real);
        real = NULL;
    }
    return real;
}

enum { PATH_MOST = 4000 };           /* bytes, as sluiced takes them */

/* A name that cannot be told as it is (too long, no UTF-8) is told as far as it can. */
static Sluice__InputFile *input_skipped(const char *path, const char *why)
{
    Sluice__InputFile *f = mem_zalloc(sizeof(*f));
    size_t n = strnlen(path, PATH_MOST);

    sluice__input_file__init(f);
    f->path = mem_zalloc(n + 1);
    memcpy(f->path, path, n);
    str_mend(f->path, n);
    f->text = mem_strdup(why);
    return f;
}

/* Why a path is nothing that a job can have, whatever lies there; NULL: it is. */
static const char *unfit(const char *path)
{
    size_t n = strlen(path);
    char *mended = mem_strdup(path);

    str_mend(mended, n);
    bool same = strcmp(mended, path) == 0;
    free(mended);
    return n > PATH_MOST ? "its name is longer than 4000 bytes" : !same ? "its name is not UTF-8" : NULL;
}

/* s: what was found in it, which goes. */
static Sluice__InputFile *input_file(const char *path, struct scan *s)
{
    const char *why = unfit(path);

    if (why != NULL)
        return input_skipped(path, why);
    Sluice__InputFile *f = input_skipped(path, s->trouble != NULL ? without_path(s->trouble, path) : NULL);
    if (s->trouble == NULL) {
        f->real_path = real_path(path);
        input_tfs(f, s);
        if (s->n == 0)
            f->text = mem_strdup("no time-frame is in it");
    }
    scan_free(s);
    return f;
}

/* All of them, some at a time, a line on a terminal meanwhile. The caller frees. */
static struct scan *read_files(const struct paths *l, bool quiet)
{
    struct scan *scans = mem_array(l->n + 1, sizeof(*scans));
    const char **fit = mem_array(l->n + 1, sizeof(*fit));
    struct reading r = { .of = l->n, .from = clock_mono_ns() + CLOCK_SECOND };

    for (size_t i = 0; i < l->n; i++)
        fit[i] = unfit(l->path[i]) == NULL ? l->path[i] : NULL;
    progress_start(&r.line);
    r.line.on = r.line.on && !quiet;
    scan_files(fit, l->n, scans, reading_show, &r);
    progress_clear(&r.line);
    free(fit);
    return scans;
}

static void input_free(Sluice__InputFile *f)
{
    for (size_t i = 0; i < f->n_tfs; i++)
        free(f->tfs[i]);
    free(f->tfs);
    free(f->sizes);
    free(f->path);
    free(f->real_path);
    free(f->text);
    free(f);
}

static int make_files(const struct paths *l, Sluice__Submit *q, bool quiet, struct err *e)
{
    size_t tfs = 0, skipped = 0;
    enum err_code all = ERR_NONE;                            /* of those that are skipped */
    bool alone = l->n + l->n_empty == 1;
    struct scan *scans = read_files(l, quiet);

    q->files = mem_array(l->n + l->n_empty + 1, sizeof(*q->files));
    for (size_t i = 0; i < l->n + l->n_empty; i++) {
        enum err_code code = i < l->n ? scans[i].code : l->empty[i - l->n].code;
        Sluice__InputFile *f = i < l->n ? input_file(l->path[i], &scans[i]) : input_skipped(l->empty[i - l->n].path, l->empty[i - l->n].text);

        q->files[q->n_files++] = f;
        tfs += f->n_tfs + f->n_sizes;
        if (f->text == NULL)
            continue;
        all = err_common(all, code != ERR_NONE ? code : ERR_FAILED);          /* one that could be read, and is of no use */
        say_skipped(i < l->n ? l->path[i] : l->empty[i - l->n].path, f->text, ++skipped, quiet || alone);
    }
    free(scans);
    if (skipped > NAMED_MOST && !quiet)
        fprintf(stderr, "skipped %zu more; sluice job tfs ID --state skipped names all\n", skipped - NAMED_MOST);
    if (skipped > 0 && !quiet && !alone)
        fprintf(stderr, "skipped in all: %zu of %zu files\n", skipped, q->n_files);
    if (l->comments > 0 && !quiet)
        fprintf(stderr, "passed over: %zu comment line%s of the list (a name that begins with # is ./#NAME there)\n", l->comments, l->comments == 1 ? "" : "s");
    if (l->hidden > 0 && !quiet)
        fprintf(stderr, "passed over: %zu folder%s whose name%s with a dot (name it to have it)\n", l->hidden, l->hidden == 1 ? "" : "s", l->hidden == 1 ? " begins" : "s begin");
    if (l->twice > 0 && !quiet)
        fprintf(stderr, "named more than once and taken once: %zu file%s\n", l->twice, l->twice == 1 ? "" : "s");
    if (q->has_max_bad && skipped > q->max_bad)
        return err_set(e, all, "submit: %zu of the %zu files cannot be read, at most %u may be (--max-bad)", skipped, q->n_files, q->max_bad);
    if (tfs > 0)
        return 0;
    return alone ? err_set(e, all, "%s: %s", q->files[0]->path, q->files[0]->text)
                 : err_set(e, all, "submit: no time-frame in any of the %zu files", q->n_files);
}

/* --- options -------------------------------------------------------------------------------- */

static int number_options(const struct args *a, Sluice__Submit *q, struct err *e)
{
    int64_t priority = 0, limit_ns = 0;
    uint64_t attempts = 0, bad = 0;
    char text[CLOCK_TEXT];

    if (args_i64(a, "priority", -1000000, 1000000, &priority, e) < 0 || args_u64(a, "attempts", 1, 100, &attempts, e) < 0
        || args_u64(a, "max-bad", 0, 1000000, &bad, e) < 0
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
    q->has_max_bad = args_has(a, "max-bad");
    q->max_bad = (uint32_t)bad;
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
    q->after = (char *)args_text(a, "after", NULL);
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

    if (s->skipped > 0 && s->existed && !args_has(a, "quiet"))
        fprintf(stderr, "%" PRIu64 " of its files are skipped\n", s->skipped);
    if (s->existed && !args_has(a, "quiet"))
        fprintf(stderr, "the job of this key is there already\n");
    if (ctx->mode != SHOW_TABLE || ctx->fields != NULL)
        r = show_one(ctx, &listing, message_answer(&s->base), e);
    else
        printf("%" PRIu64 "\n", s->id);
    if (r == 0 && args_has(a, "wait")) {
        fflush(stdout);
        return wait_until_over(ctx, "job", s->id, 0, args_has(a, "quiet"), e);
    }
    return r == 0 && s->skipped > 0 ? ERR_SOME_FAILED : r;
}

/* The job that has this key already, whether its files are still there or not. NULL with ERR_NOT_FOUND: none has. */
static Sluice__Submitted *ask_key(struct context *ctx, const char *key, struct err *e)
{
    Sluice__Submit q = SLUICE__SUBMIT__INIT;

    q.key = (char *)key;
    q.has_key_only = q.key_only = 1;
    return call(ctx, &q.base, SLUICE__TYPE__SUBMITTED, CALL_LIMIT_S, e);
}

static int gather(const struct args *a, struct paths *files, struct err *e)
{
    const char *key = args_text(a, "key", "");

    if (a->n == 0 && !args_has(a, "input") && key[0] != '\0')
        return err_set(e, ERR_USAGE, "submit: no job of yours has the key \"%.200s\"; for a new one a file, a folder, or --input LIST, is wanted", key);
    if (a->n == 0 && !args_has(a, "input"))
        return err_set(e, ERR_USAGE, "submit: a file, a folder, or --input LIST, is wanted");
    for (int i = 0; i < a->n; i++) {
        if (a->at[i][0] == '\0')
            return err_set(e, ERR_USAGE, "submit: an empty name is no file");
        paths_add(files, a->at[i]);
    }
    if (args_has(a, "input") && paths_read(files, args_text(a, "input", ""), e) < 0)
        return -1;
    paths_once(files);
    if (files->n + files->n_empty == 0)
        return err_set(e, ERR_USAGE, "submit: the list %s names no file", args_text(a, "input", ""));
    return 0;
}

/* --- telling sluiced ------------------------------------------------------------------------ */

enum { FILES_A_PART = 1000, TFS_A_PART = 50000 };        /* a job of more is told in parts, so that sluiced has time for others between them */

struct telling {
    Sluice__Submit *q;
    Sluice__InputFile **file;            /* all of them */
    size_t n, at;
    Sluice__SubmitFiles part;
};

/* The files from `at` on that go into one message. */
static size_t part_end(const struct telling *t, size_t at)
{
    size_t end = at, tfs = 0;

    while (end < t->n && end < at + FILES_A_PART && tfs < TFS_A_PART) {
        tfs += t->file[end]->n_tfs + t->file[end]->n_sizes;
        end++;
    }
    return end;
}

/* The next files; the last of them come with the job itself. */
static const ProtobufCMessage *tell_next(void *arg, size_t i)
{
    struct telling *t = arg;
    size_t at = i == 0 ? 0 : t->at, end = part_end(t, at);
    bool last = end == t->n;

    if (i > 0 && at == t->n)
        return NULL;
    t->at = end;
    if (!last) {
        sluice__submit_files__init(&t->part);
        t->part.files = t->file + at;
        t->part.n_files = end - at;
        return &t->part.base;
    }
    t->q->files = t->file + at;
    t->q->n_files = end - at;
    t->q->has_files_told = at > 0;
    t->q->files_told = at;
    return &t->q->base;
}

static Sluice__Submitted *tell(struct context *ctx, Sluice__Submit *q, struct err *e)
{
    struct telling t = { .q = q, .file = q->files, .n = q->n_files };

    if (message_check_texts(&q->base, e) < 0)
        return NULL;
    Sluice__Submitted *s = call_series(ctx, tell_next, &t, SLUICE__TYPE__SUBMITTED, CALL_LIMIT_S + (double)t.n / FILES_A_SECOND, e);

    q->files = t.file;
    q->n_files = t.n;
    return s;
}

int cmd_submit(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__Submit q = SLUICE__SUBMIT__INIT;
    Sluice__Submitted *s = NULL;
    struct paths files = { 0 };
    int r = -1;

    if (show_columns_help(ctx, &listing))
        return 0;
    if (show_columns_check(ctx, &listing, e) < 0 || text_options(a, &q, e) < 0 || number_options(a, &q, e) < 0)
        goto out;
    /* a sluiced that does not know the question takes it for a job without files */
    if (!str_is_empty(q.key) && (s = ask_key(ctx, q.key, e)) == NULL && e->code != ERR_NOT_FOUND && e->code != ERR_USAGE)
        goto out;
    if (s == NULL && gather(a, &files, e) == 0 && make_files(&files, &q, args_has(a, "quiet"), e) == 0)
        s = tell(ctx, &q, e);
    if (s != NULL)
        r = accepted(ctx, a, s, e);
out:
    call_free(s);
    submit_free(&q);
    paths_free(&files);
    return r;
}
