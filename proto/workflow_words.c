/* workflow_words.c - the names of workflows, stages and backends
 *
 * From: StartRun, Submit.  To: run.c, job.c, the commands.
 */
#include "config.h"
#include "workflow_words.h"

#include <stdbool.h>
#include <string.h>
#include "str.h"

const char *const workflow_words[]    = { "none", "decode", "cluster", NULL };
const char *const workflow_stages[]   = { "decode", "cluster", NULL };
const char *const workflow_backends[] = { "cpu", "gpu", "cuda", "hip", "opencl", "auto", NULL };

static bool is_among(const char *const *words, const char *word, size_t n)
{
    for (; *words; words++) {
        if (strlen(*words) == n && memcmp(*words, word, n) == 0)
            return true;
    }
    return false;
}

static int refuse(const char *what, const char *word, size_t n, const char *const *choices, struct err *e)
{
    struct str shown = { 0 }, list = { 0 };

    str_escape(&shown, word, n < 60 ? n : 60);
    for (; *choices; choices++)
        str_addf(&list, "%s%s", list.len ? ", " : "", *choices);
    err_set(e, ERR_USAGE, "no %s \"%s\": choices are %s", what, str_text(&shown), str_text(&list));
    str_free(&shown);
    str_free(&list);
    return -1;
}

static int check_backend(const char *item, size_t n, struct err *e)
{
    const char *sign = memchr(item, '=', n);
    const char *word = sign ? sign + 1 : item;

    if (sign && !is_among(workflow_stages, item, (size_t)(sign - item)))
        return refuse("stage", item, (size_t)(sign - item), workflow_stages, e);
    n -= (size_t)(word - item);
    return is_among(workflow_backends, word, n) ? 0 : refuse("backend", word, n, workflow_backends, e);
}

static int check_option(const char *item, size_t n, struct err *e)
{
    const char *sign = memchr(item, '=', n), *dot = memchr(item, '.', n);

    if (sign == NULL || dot == NULL || dot > sign || dot + 1 == sign || sign + 1 == item + n)
        return err_set(e, ERR_USAGE, "an option is STAGE.OPTION=VALUE, not \"%.*s\"", (int)(n < 60 ? n : 60), item);
    return is_among(workflow_stages, item, (size_t)(dot - item)) ? 0 : refuse("stage", item, (size_t)(dot - item), workflow_stages, e);
}

static int each_item(const char *list, int (*check)(const char *, size_t, struct err *), struct err *e)
{
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (check(list, n, e) < 0)
            return -1;
        list += n + (list[n] == ',');
    }
    return 0;
}

int workflow_words_check(const char *workflow, const char *backends, const char *options, struct err *e)
{
    if (!is_among(workflow_words, workflow, strlen(workflow)))
        return refuse("workflow", workflow, strlen(workflow), workflow_words, e);
    if (each_item(backends, check_backend, e) < 0)
        return -1;
    return each_item(options, check_option, e);
}
