/* ran.c - on which backend the stages of TFs ran
 *
 * From: settle.c (a TF is done), runload.c (what is stored).  To: run.c (stored), runlist.c and runrows.c (people), metrics.c.
 */
#include "config.h"
#include "ran.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "mem.h"
#include "str.h"

static bool is_word(const char *s, size_t most)
{
    size_t n = s ? strlen(s) : 0;

    for (size_t i = 0; i < n; i++) {
        if (!islower((unsigned char)s[i]) && !isdigit((unsigned char)s[i]) && s[i] != '_' && s[i] != '-')
            return false;
    }
    return n > 0 && n < most;
}

char *ran_text(Sluice__StageRan *const *stages, size_t n)
{
    struct str s = { 0 };

    for (size_t i = 0; i < n && i < RAN_STAGES; i++) {
        const struct Sluice__StageRan *x = stages[i];
        if (!is_word(x->stage, sizeof(((struct ran *)0)->stage)) || !is_word(x->backend, sizeof(((struct ran *)0)->backend)))
            continue;
        str_addf(&s, "%s%s=%s", s.len ? "\n" : "", x->stage, x->backend);
        if (x->fallback && x->fallback[0]) {
            struct str why = { 0 };
            str_show(&why, x->fallback, strnlen(x->fallback, RAN_REASON));
            str_addf(&s, "!%s", str_text(&why));
            str_free(&why);
        }
    }
    return s.len ? str_take(&s) : NULL;
}

/* One line taken apart. false: there is none, or it is not ours. *at goes on to the next. */
struct line { char stage[32], backend[16]; unsigned long long tfs, fallbacks; char *reason; };

static bool line_read(const char **at, struct line *l)
{
    size_t n = strcspn(*at, "\n");
    char *copy = mem_printf("%.*s", (int)n, *at), *why = strchr(copy, '!');

    *at += n + ((*at)[n] == '\n');
    *l = (struct line){ .tfs = 1, .fallbacks = why != NULL };
    if (why != NULL) {
        *why = '\0';
        l->reason = mem_strdup(why + 1);
    }
    bool ok = sscanf(copy, "%31[^=]=%15s %llu %llu", l->stage, l->backend, &l->tfs, &l->fallbacks) >= 2;
    free(copy);
    return ok;
}

static struct ran *find(struct ran **list, const struct line *l)
{
    unsigned n = 0;

    for (; *list; list = &(*list)->next, n++) {
        if (strcmp((*list)->stage, l->stage) == 0 && strcmp((*list)->backend, l->backend) == 0)
            return *list;
    }
    if (n == RAN_KINDS)
        return NULL;
    *list = mem_zalloc(sizeof(**list));
    snprintf((*list)->stage, sizeof((*list)->stage), "%s", l->stage);
    snprintf((*list)->backend, sizeof((*list)->backend), "%s", l->backend);
    return *list;
}

unsigned ran_count(struct ran **list, const char *text)
{
    unsigned fallbacks = 0;
    struct line l;

    while (text && *text) {
        struct ran *r = line_read(&text, &l) ? find(list, &l) : NULL;
        if (r) {
            r->tfs += l.tfs;
            r->fallbacks += l.fallbacks;
        }
        if (r && l.reason) {
            free(r->reason);
            r->reason = l.reason;
            l.reason = NULL;
        }
        fallbacks += l.fallbacks > 0;
        free(l.reason);
    }
    return fallbacks;
}

/* One of which nothing is left is taken out of the list. */
static void take_away(struct ran **list, const struct line *l)
{
    while (*list && (strcmp((*list)->stage, l->stage) != 0 || strcmp((*list)->backend, l->backend) != 0))
        list = &(*list)->next;
    struct ran *r = *list;
    if (r == NULL)
        return;
    r->tfs -= l->tfs < r->tfs ? l->tfs : r->tfs;
    r->fallbacks -= l->fallbacks < r->fallbacks ? l->fallbacks : r->fallbacks;
    if (r->tfs > 0)
        return;
    *list = r->next;
    free(r->reason);
    free(r);
}

void ran_uncount(struct ran **list, const char *text)
{
    struct line l;

    while (text && *text) {
        if (line_read(&text, &l))
            take_away(list, &l);
        free(l.reason);
    }
}

void ran_free(struct ran *list)
{
    while (list) {
        struct ran *next = list->next;
        free(list->reason);
        free(list);
        list = next;
    }
}

char *ran_totals_text(const struct ran *list)
{
    struct str s = { 0 };

    for (; list; list = list->next)
        str_addf(&s, "%s%s=%s %" PRIu64 " %" PRIu64 "%s%s", s.len ? "\n" : "", list->stage, list->backend, list->tfs, list->fallbacks,
                 list->reason ? "!" : "", list->reason ? list->reason : "");
    return s.len ? str_take(&s) : NULL;
}

void ran_totals_read(struct ran **list, const char *text)
{
    ran_count(list, text);
}

/* ---- for people ---------------------------------------------------------------------------- */

Sluice__StageRan **ran_stages(const char *text, size_t *n)
{
    Sluice__StageRan **list = NULL;
    struct line l;

    *n = 0;
    while (text && *text && *n < RAN_STAGES) {
        if (!line_read(&text, &l)) {
            free(l.reason);
            continue;
        }
        list = mem_grow(list, *n + 1, sizeof(struct Sluice__StageRan *));
        list[*n] = mem_zalloc(sizeof(Sluice__StageRan));
        sluice__stage_ran__init(list[*n]);
        list[*n]->stage = mem_strdup(l.stage);
        list[*n]->backend = mem_strdup(l.backend);
        list[(*n)++]->fallback = l.reason;
    }
    return list;
}

void ran_stages_free(Sluice__StageRan **stages, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(stages[i]->stage);
        free(stages[i]->backend);
        free(stages[i]->fallback);
        free(stages[i]);
    }
    free(stages);
}

Sluice__StageTotal **ran_list(const struct ran *list, size_t *n)
{
    Sluice__StageTotal **totals = NULL;

    *n = 0;
    for (; list; list = list->next) {
        totals = mem_grow(totals, *n + 1, sizeof(struct Sluice__StageTotal *));
        Sluice__StageTotal *t = totals[(*n)++] = mem_zalloc(sizeof(*t));
        sluice__stage_total__init(t);
        t->stage = (char *)list->stage;
        t->backend = (char *)list->backend;
        t->has_tfs = t->has_fallbacks = true;
        t->tfs = list->tfs;
        t->fallbacks = list->fallbacks;
        t->reason = list->reason;
    }
    return totals;
}

void ran_list_free(Sluice__StageTotal **totals, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(totals[i]);
    free(totals);
}
