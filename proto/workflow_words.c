/* workflow_words.c - the names of workflows, stages, backends and options
 *
 * From: StartRun, Submit.  To: run.c, job.c.
 */
#include "config.h"
#include "workflow_words.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mem.h"
#include "str.h"

/* clang-format off */
const struct workflow_word_stage workflow_word_stages[] = {
    { "decode",  { "cpu", "cuda", "hip", "opencl" }, { { "batch", 4096, UINT64_C(2) << 30, true } } },
    { "cluster", { "cpu", "cuda", "hip", "opencl" },
                 { { "peak", 0, 1023, false }, { "qtot", 0, 25575, false }, { "noise_run", 1, 4000, false },
                   { "noise_count", 1, 4000, false }, { "noise_max", 0, 1024, false } } },
    { 0 },
};

#define ROW(name, what, ...) { name, what, { __VA_ARGS__ } },
const struct workflow_word workflow_words[] = { WORKFLOWS(ROW) { 0 } };
/* clang-format on */

static const char *const any_stage[] = { "auto", "gpu", NULL };
static const char *const gpu[] = { "cuda", "hip", "opencl", NULL };

static bool is_among(const char *const *words, const char *word)
{
    for (; *words; words++) {
        if (strcmp(*words, word) == 0)
            return true;
    }
    return false;
}

/* "SENTENCE "word"; TAIL choices". The word came from outside. */
static int refuse(struct err *e, const char *before, const char *word, const char *after, const char *const *some, const char *const *more)
{
    struct str s = { 0 };
    unsigned n = 0;

    str_addf(&s, "%s \"", before);
    str_escape(&s, word, strnlen(word, 60));
    str_addf(&s, "\"%s", after);
    for (; some && *some; some++)
        str_addf(&s, "%s%s", n++ ? ", " : " ", *some);
    for (; more && *more; more++)
        str_addf(&s, "%s%s", n++ ? ", " : " ", *more);
    err_set(e, ERR_USAGE, "%s", str_text(&s));
    str_free(&s);
    return -1;
}

static const struct workflow_word_stage *stage_find(const char *name)
{
    const struct workflow_word_stage *s = workflow_word_stages;

    while (s->name && strcmp(s->name, name) != 0)
        s++;
    return s->name ? s : NULL;
}

static const struct workflow_word_stage *stage_of(const struct workflow_word *w, const char *name, struct err *e)
{
    char before[100];

    if (is_among(w->stages, name))
        return stage_find(name);
    snprintf(before, sizeof(before), "workflow %s has no stage", w->name);
    refuse(e, before, name, w->stages[0] ? "; its stages are" : "; it has none", w->stages, NULL);
    return NULL;
}

static int check_backend(const struct workflow_word_stage *s, const char *backend, struct err *e)
{
    char before[100];
    bool has_gpu = false;

    for (const char *const *b = s->backends; *b; b++)
        has_gpu = has_gpu || is_among(gpu, *b);
    snprintf(before, sizeof(before), "stage %s: no backend", s->name);
    if (!is_among(s->backends, backend) && !is_among(any_stage, backend))
        return refuse(e, before, backend, "; choices are", any_stage, s->backends);
    if (strcmp(backend, "gpu") == 0 && !has_gpu)
        return refuse(e, before, backend, ": it has no code for a GPU; choices are", s->backends, NULL);
    return 0;
}

/* B or STAGE=B. */
static int take_backend(const struct workflow_word *w, char *piece, struct err *e)
{
    char *sign = strchr(piece, '=');

    if (sign) {
        *sign = '\0';
        const struct workflow_word_stage *s = stage_of(w, piece, e);
        return s ? check_backend(s, sign + 1, e) : -1;
    }
    for (unsigned i = 0; w->stages[i]; i++) {
        if (check_backend(stage_find(w->stages[i]), piece, e) < 0)
            return -1;
    }
    if (w->stages[0] == NULL && !is_among(workflow_word_stages[0].backends, piece) && !is_among(any_stage, piece))
        return refuse(e, "no backend", piece, "; choices are", any_stage, workflow_word_stages[0].backends);
    return 0;
}

static bool value_fits(const struct workflow_word_option *o, const char *value)
{
    uint64_t v;
    const char *last = value + strlen(value);
    unsigned shift = 0;
    char digits[24];

    if (o->is_size && last > value && strchr("KMGT", last[-1])) {
        shift = 10 * (unsigned)(strchr("KMGT", last[-1]) - "KMGT" + 1);
        last--;
    }
    if ((size_t)(last - value) >= sizeof(digits))
        return false;
    memcpy(digits, value, (size_t)(last - value));
    digits[last - value] = '\0';
    if (digits[0] < '0' || digits[0] > '9' || str_parse_u64("value", digits, 0, UINT64_MAX, &v, NULL) < 0)
        return false;
    return v <= UINT64_MAX >> shift && v << shift >= o->min && v << shift <= o->max;
}

static int take_option(const struct workflow_word *w, char *piece, struct err *e)
{
    char *dot = strchr(piece, '.'), *sign = strchr(piece, '='), before[100];

    if (dot == NULL || sign == NULL || dot > sign)
        return refuse(e, "an option is STAGE.OPTION=VALUE, not", piece, "", NULL, NULL);
    *dot = *sign = '\0';
    const struct workflow_word_stage *s = stage_of(w, piece, e);
    if (s == NULL)
        return -1;
    const char *names[9] = { 0 };
    for (unsigned i = 0; s->options[i].name; i++) {
        names[i] = s->options[i].name;
        if (strcmp(names[i], dot + 1) != 0)
            continue;
        if (value_fits(&s->options[i], sign + 1))
            return 0;
        snprintf(before, sizeof(before), "%s.%s wants a %s from %" PRIu64 " to %" PRIu64 ", not", s->name, names[i], s->options[i].is_size ? "size" : "number",
                 s->options[i].min, s->options[i].max);
        return refuse(e, before, sign + 1, "", NULL, NULL);
    }
    snprintf(before, sizeof(before), "stage %s has no option", s->name);
    return refuse(e, before, dot + 1, names[0] ? "; its options are" : "; it takes none", names, NULL);
}

/* The same key (none: the default) with another value further on: one of the two would be lost in silence. `pieces` is the list taken apart. */
static int check_twice(char *const *pieces, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        size_t key = strchr(pieces[i], '=') ? strcspn(pieces[i], "=") + 1 : 0;
        for (size_t k = i + 1; k < n; k++) {
            size_t other = strchr(pieces[k], '=') ? strcspn(pieces[k], "=") + 1 : 0;
            if (key != other || strncmp(pieces[i], pieces[k], key) != 0 || strcmp(pieces[i], pieces[k]) == 0)
                continue;
            struct str s = { 0 };
            str_add(&s, key == 0 ? "the default" : memchr(pieces[i], '.', key) ? "" : "stage ");
            str_escape(&s, pieces[i], key ? key - 1 : 0);
            str_add(&s, " is given twice: ");
            str_escape(&s, pieces[i] + key, strnlen(pieces[i] + key, 60));
            str_add(&s, " and ");
            str_escape(&s, pieces[k] + key, strnlen(pieces[k] + key, 60));
            err_set(e, ERR_USAGE, "%s", str_text(&s));
            str_free(&s);
            return -1;
        }
    }
    return 0;
}

static int each_piece(const struct workflow_word *w, const char *list, int (*take)(const struct workflow_word *, char *, struct err *), struct err *e)
{
    char *copy = mem_strdup(list ? list : ""), *save = NULL, **pieces = NULL;
    size_t n = 0;

    for (char *piece = strtok_r(copy, ",", &save); piece; piece = strtok_r(NULL, ",", &save)) {
        pieces = mem_grow(pieces, n + 1, sizeof(*pieces));
        pieces[n++] = piece;
    }
    int rc = check_twice(pieces, n, e);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take(w, pieces[i], e);
    free(pieces);
    free(copy);
    return rc;
}

int workflow_words_check(const char *workflow, const char *backends, const char *options, struct err *e)
{
    const struct workflow_word *w = workflow_words;
    const char *names[17] = { 0 };

    for (unsigned i = 0; w->name && strcmp(w->name, workflow) != 0; i++, w++)
        names[i] = w->name;
    if (w->name == NULL) {
        refuse(e, "no workflow", workflow, ": choices are", names, NULL);
        if (e != NULL)
            e->code = ERR_NOT_FOUND;     /* unlike a stage or backend it is a thing that is named */
        return -1;
    }
    if (each_piece(w, backends, take_backend, e) < 0)
        return -1;
    return each_piece(w, options, take_option, e);
}

/* The backend of a stage in the list: its own, else the default, else auto. The length goes to n. */
static const char *asked_for(const char *backends, const char *stage, size_t *n)
{
    const char *found = "auto";
    size_t n_stage = strlen(stage);
    bool own = false;

    *n = 4;
    for (const char *p = backends ? backends + strspn(backends, ",") : ""; *p != '\0'; p += strcspn(p, ","), p += strspn(p, ",")) {
        size_t len = strcspn(p, ",");
        const char *sign = memchr(p, '=', len);
        if (sign ? (size_t)(sign - p) != n_stage || strncmp(p, stage, n_stage) != 0 : own)
            continue;
        own = sign != NULL;
        found = sign ? sign + 1 : p;
        *n = len - (size_t)(found - p);
    }
    return found;
}

static bool stage_fits(const char *backends, const char *stage, const char *const *has)
{
    size_t n;
    const char *b = asked_for(backends, stage, &n);
    bool any_gpu = n == 3 && strncmp(b, "gpu", n) == 0;

    if (n == 4 && strncmp(b, "auto", n) == 0)
        return true;
    for (; *has; has++) {
        if (any_gpu ? is_among(gpu, *has) : strlen(*has) == n && strncmp(*has, b, n) == 0)
            return true;
    }
    return false;
}

bool workflow_words_fit(const char *workflow, const char *backends, const char *const *has)
{
    const struct workflow_word *w = workflow_words;

    while (w->name && strcmp(w->name, workflow) != 0)
        w++;
    for (unsigned i = 0; w->name && w->stages[i]; i++) {
        if (!stage_fits(backends, w->stages[i], has))
            return false;
    }
    return true;
}
