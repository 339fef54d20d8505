/* hostlist.c - sets of node names, read from and folded into the way people write them
 *
 * Reading goes over the text twice: once to check every word and count the names, once to make them,
 * so that nothing is expanded before it is known to be right and small enough. Folding cuts a name
 * into letters and numbers and joins what differs in one number only, from the last number to the first.
 * Always: unfold(fold(x)) is x as a set; a number keeps its zeros.
 */
#include "config.h"

#include "hostlist.h"
#include "mem.h"
#include "str.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

enum { NAME_MAX_CHARS = 63, DIGITS_MAX = 18 };

struct entry {
    UT_hash_handle hh;
    char name[];
};

struct hostlist {
    struct entry **at;          /* in order */
    size_t n, cap;
    struct entry *by_name;
};

/* --- the set -------------------------------------------------------------------------------- */

struct hostlist *hostlist_create(void)
{
    return mem_zalloc(sizeof(struct hostlist));
}

void hostlist_destroy(struct hostlist *h)
{
    if (h == NULL)
        return;
    HASH_CLEAR(hh, h->by_name);
    for (size_t i = 0; i < h->n; i++)
        free(h->at[i]);
    free(h->at);
    free(h);
}

static struct entry *find(const struct hostlist *h, const char *name)
{
    struct entry *found;

    HASH_FIND_STR(h->by_name, name, found);
    return found;
}

int hostlist_add(struct hostlist *h, const char *name, struct err *e)
{
    struct entry *entry;

    if (!str_is_name(name)) {
        struct str shown = { 0 };

        str_escape(&shown, name, strnlen(name, 80));
        err_set(e, ERR_USAGE, "'%s' is not a node name: 1 to 63 letters, digits, '.', '_', '-', first a letter or digit",
                str_text(&shown));
        str_free(&shown);
        return -1;
    }
    if (find(h, name) != NULL)
        return 0;
    if (h->n >= HOSTLIST_MAX_NAMES)
        return err_set(e, ERR_USAGE, "more than %d names", HOSTLIST_MAX_NAMES);
    if (h->n == h->cap) {
        h->cap = h->cap == 0 ? 16 : 2 * h->cap;
        h->at = mem_grow(h->at, h->cap, sizeof(h->at[0]));
    }
    entry = mem_zalloc(sizeof(*entry) + strlen(name) + 1);
    strcpy(entry->name, name);
    HASH_ADD_STR(h->by_name, name, entry);
    h->at[h->n++] = entry;
    return 0;
}

size_t hostlist_count(const struct hostlist *h) { return h->n; }
const char *hostlist_name(const struct hostlist *h, size_t i) { return i < h->n ? h->at[i]->name : NULL; }
int hostlist_has(const struct hostlist *h, const char *name) { return find(h, name) != NULL; }

/* --- natural order -------------------------------------------------------------------------- */

static size_t digit_run(const char *p)
{
    return strspn(p, "0123456789");
}

/* Compares two runs of digits by value, then the shorter writing first. */
static int compare_runs(const char *a, size_t na, const char *b, size_t nb)
{
    size_t za = 0, zb = 0;
    int c;

    while (za + 1 < na && a[za] == '0')
        za++;
    while (zb + 1 < nb && b[zb] == '0')
        zb++;
    if (na - za != nb - zb)
        return na - za < nb - zb ? -1 : 1;
    c = memcmp(a + za, b + zb, na - za);
    if (c != 0)
        return c;
    return na < nb ? -1 : na > nb;
}

int hostlist_compare(const char *a, const char *b)
{
    while (*a != '\0' && *b != '\0') {
        size_t na = digit_run(a), nb = digit_run(b);

        if (na > 0 && nb > 0) {
            int c = compare_runs(a, na, b, nb);

            if (c != 0)
                return c;
            a += na;
            b += nb;
        } else if (*a != *b) {
            return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
        } else {
            a++;
            b++;
        }
    }
    return *a != '\0' ? 1 : *b != '\0' ? -1 : 0;
}

static int compare_entries(const void *a, const void *b)
{
    return hostlist_compare((*(struct entry *const *)a)->name, (*(struct entry *const *)b)->name);
}

void hostlist_sort(struct hostlist *h)
{
    if (h->n > 1)
        qsort(h->at, h->n, sizeof(h->at[0]), compare_entries);
}

/* --- reading -------------------------------------------------------------------------------- */

struct reader {
    const char *text, *p;
    struct hostlist *into;      /* NULL while only counting */
    hostlist_resolver resolve;
    void *arg;
    struct err *e;
    uint64_t count;
};

struct range { uint64_t low, high; int width; };

/* A word cut up: literal, group, literal, group ... literal. */
struct word {
    const char *start;
    struct { const char *p; size_t n; } literal[HOSTLIST_MAX_GROUPS + 1];
    struct { const char *p, *end; } group[HOSTLIST_MAX_GROUPS];     /* inside the brackets */
    unsigned groups;
};

static int wrong(struct reader *r, const char *at, const char *why)
{
    return err_set(r->e, ERR_USAGE, "host list, column %zu: %s", (size_t)(at - r->text) + 1, why);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
static bool is_name_char(char c) { return c != '\0' && (isalnum((unsigned char)c) || strchr("._-", c) != NULL); }

static int read_number(struct reader *r, const char **p, uint64_t *value, int *width, bool *padded)
{
    size_t n = digit_run(*p);

    if (n == 0)
        return wrong(r, *p, "a number is missing");
    if (n > DIGITS_MAX)
        return wrong(r, *p, "a number in brackets has at most 18 digits");
    *value = strtoull(*p, NULL, 10);
    *width = (int)n;
    *padded = n > 1 && **p == '0';
    *p += n;
    return 0;
}

/* One of "7", "010", "1-3", "010-012". The zeros of the first number set the width; those of the last must agree. */
static int read_range(struct reader *r, const char **p, struct range *range)
{
    const char *low_at = *p, *high_at;
    bool low_padded, high_padded;
    int high_width;

    if (read_number(r, p, &range->low, &range->width, &low_padded) < 0)
        return -1;
    range->high = range->low;
    if (**p != '-')
        return 0;
    high_at = ++*p;
    if (digit_run(high_at) == 0)
        return wrong(r, high_at, "the range has no end");
    if (read_number(r, p, &range->high, &high_width, &high_padded) < 0)
        return -1;
    if (range->high < range->low)
        return wrong(r, low_at, "the range runs backwards");
    if ((high_padded && high_width != range->width) || (low_padded && high_width < range->width))
        return wrong(r, low_at, "the two ends of the range are padded to different widths");
    return 0;
}

/* Checks a group and counts its names. The group's text ends at ']'. */
static int count_group(struct reader *r, const char *p, const char *end, uint64_t *count, size_t *longest)
{
    *count = 0;
    *longest = 0;
    for (;;) {
        struct range range;
        size_t width;

        if (read_range(r, &p, &range) < 0)
            return -1;
        *count += range.high - range.low + 1;      /* below 10^18 a range, and stopped below */
        if (*count > HOSTLIST_MAX_NAMES)
            return wrong(r, p, "more than 65536 names");
        width = (size_t)snprintf(NULL, 0, "%0*" PRIu64, range.width, range.high);
        *longest = width > *longest ? width : *longest;
        if (p == end)
            return 0;
        if (*p != ',')
            return wrong(r, p, "in brackets only numbers, '-' and ',' may stand");
        p++;
    }
}

/* Cuts the word at r->p; leaves r->p behind it. */
static int cut_word(struct reader *r, struct word *w)
{
    *w = (struct word){ .start = r->p };
    for (;;) {
        const char *end;

        w->literal[w->groups].p = r->p;
        while (is_name_char(*r->p))
            r->p++;
        w->literal[w->groups].n = (size_t)(r->p - w->literal[w->groups].p);
        if (*r->p == '\0' || *r->p == ',' || is_blank(*r->p))
            return 0;
        if (*r->p == ']')
            return wrong(r, r->p, "']' without '['");
        if (*r->p != '[')
            return wrong(r, r->p, "this character cannot be in a node name");
        if (w->groups == HOSTLIST_MAX_GROUPS)
            return wrong(r, r->p, "more than 8 bracket groups in a word");
        end = r->p + 1 + strcspn(r->p + 1, "[]");
        if (*end != ']')
            return wrong(r, r->p, "'[' without ']'");
        if (end == r->p + 1)
            return wrong(r, r->p, "nothing between the brackets");
        w->group[w->groups].p = r->p + 1;
        w->group[w->groups].end = end;
        w->groups++;
        r->p = end + 1;
    }
}

static int count_word(struct reader *r, const struct word *w)
{
    uint64_t count = 1, n;
    size_t length = w->literal[w->groups].n, longest;

    for (unsigned g = 0; g < w->groups; g++) {
        length += w->literal[g].n;
        if (count_group(r, w->group[g].p, w->group[g].end, &n, &longest) < 0)
            return -1;
        count *= n;                                 /* both at most 65536 */
        length += longest;
        if (count > HOSTLIST_MAX_NAMES)
            return wrong(r, w->start, "more than 65536 names");
    }
    if (length > NAME_MAX_CHARS)
        return wrong(r, w->start, "a node name has at most 63 characters");
    if (!isalnum((unsigned char)*w->start) && *w->start != '[')
        return wrong(r, w->start, "a node name starts with a letter or digit");
    r->count += count;
    if (r->count > HOSTLIST_MAX_NAMES)
        return wrong(r, w->start, "more than 65536 names");
    return 0;
}

/* Makes the names of the word from its group g on; name holds what stands before it. */
static int make_names(struct reader *r, const struct word *w, unsigned g, char *name, size_t len)
{
    const char *p;

    memcpy(name + len, w->literal[g].p, w->literal[g].n);
    len += w->literal[g].n;
    name[len] = '\0';
    if (g == w->groups)
        return hostlist_add(r->into, name, r->e);
    for (p = w->group[g].p; p < w->group[g].end; p++) {
        struct range range;

        if (read_range(r, &p, &range) < 0)
            return -1;
        for (uint64_t v = range.low; v <= range.high; v++) {
            int n = snprintf(name + len, NAME_MAX_CHARS + 1 - len, "%0*" PRIu64, range.width, v);

            if (make_names(r, w, g + 1, name, len + (size_t)n) < 0)
                return -1;
        }
    }
    return 0;
}

/* "@online": handed to the resolver in the second pass, when all else is known to be right. */
static int read_at_word(struct reader *r)
{
    const char *start = r->p;
    size_t n;
    char *word;
    int result;

    n = 1 + strspn(start + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-");
    r->p = start + n;
    if (*r->p != '\0' && *r->p != ',' && !is_blank(*r->p))
        return wrong(r, r->p, "this character cannot be in an @word");
    if (n == 1 || r->resolve == NULL)
        return wrong(r, start, n == 1 ? "a word is missing after '@'" : "@words are known to sluiced only, not here");
    if (r->into == NULL)
        return 0;
    word = mem_printf("%.*s", (int)n, start);
    result = r->resolve(r->arg, word, r->into, r->e);
    if (result < 0)
        err_prefix(r->e, "host list, column %zu", (size_t)(start - r->text) + 1);
    free(word);
    return result;
}

static int read_word(struct reader *r)
{
    struct word w;
    char name[NAME_MAX_CHARS + 1];

    if (*r->p == '@')
        return read_at_word(r);
    if (cut_word(r, &w) < 0)
        return -1;
    if (r->into == NULL)
        return count_word(r, &w);
    return make_names(r, &w, 0, name, 0);
}

static void skip_blanks(struct reader *r)
{
    while (is_blank(*r->p))
        r->p++;
}

/* One pass over the text: words apart by commas or blanks. */
static int pass(struct reader *r)
{
    bool comma = false;

    r->p = r->text;
    skip_blanks(r);
    while (*r->p != '\0') {
        if (*r->p == ',')
            return wrong(r, r->p, "a name is missing before ','");
        if (read_word(r) < 0)
            return -1;
        skip_blanks(r);
        comma = *r->p == ',';
        if (comma)
            r->p++;
        skip_blanks(r);
    }
    return comma ? wrong(r, r->p, "a name is missing after ','") : 0;
}

struct hostlist *hostlist_parse(const char *text, hostlist_resolver resolve, void *arg, struct err *e)
{
    struct reader r = { .text = text, .resolve = resolve, .arg = arg, .e = e };

    if (pass(&r) < 0)
        return NULL;
    r.into = hostlist_create();
    if (pass(&r) < 0) {
        hostlist_destroy(r.into);
        return NULL;
    }
    return r.into;
}

/* --- folding -------------------------------------------------------------------------------- */

/* A name cut into literals and numbers, or several names that were joined. number[d] is the writing
 * of one number, or once joined of a set: "1-3,7". */
struct item {
    size_t order;               /* of the first name in natural order */
    unsigned n;                 /* numbers */
    char *literal[HOSTLIST_MAX_GROUPS + 1];
    char *number[HOSTLIST_MAX_GROUPS];
    char *key;                  /* all but the number looked at */
};

static size_t numbers_in(const char *name)
{
    size_t n = 0;

    while (*name != '\0') {
        size_t run = digit_run(name);

        n += run > 0 && run <= DIGITS_MAX;
        name += run > 0 ? run : 1;
    }
    return n;
}

/* At most 8 numbers can become groups: the first ones of a name with more stay letters. */
static void item_cut(struct item *it, const char *name)
{
    size_t skip = numbers_in(name);
    struct str literal = { 0 };

    skip = skip > HOSTLIST_MAX_GROUPS ? skip - HOSTLIST_MAX_GROUPS : 0;
    while (*name != '\0') {
        size_t run = digit_run(name);
        bool number = run > 0 && run <= DIGITS_MAX;

        if (number && skip == 0) {
            it->literal[it->n] = str_take(&literal);
            it->number[it->n++] = mem_printf("%.*s", (int)run, name);
        } else {
            skip -= number;
            str_addn(&literal, name, run > 0 ? run : 1);
        }
        name += run > 0 ? run : 1;
    }
    it->literal[it->n] = str_take(&literal);
}

static void item_free(struct item *it)
{
    for (unsigned i = 0; i < it->n; i++)
        free(it->number[i]);
    for (unsigned i = 0; i <= it->n; i++)
        free(it->literal[i]);
    free(it->key);
}

/* '|' cannot be in a name, so two different items never share a key. */
static void item_key(struct item *it, unsigned d)
{
    struct str key = { 0 };

    for (unsigned i = 0; i <= it->n; i++) {
        str_addf(&key, "%s|", it->literal[i]);
        if (i < it->n)
            str_addf(&key, "%s|", i == d ? "*" : it->number[i]);
    }
    free(it->key);
    it->key = str_take(&key);
}

static int compare_keys(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int c = strcmp(x->key, y->key);

    return c != 0 ? c : x->order < y->order ? -1 : x->order > y->order;
}

static int compare_order(const void *a, const void *b)
{
    const struct item *x = a, *y = b;

    return x->order < y->order ? -1 : x->order > y->order;
}

struct open_range { const char *low, *high; uint64_t last; int width; };

/* Different paddings of one value can interleave (7, 07, 08, 8), so several ranges may be growing at once: those that end
 * at this value or the one before. A value has at most 18 writings, so they are few. */
enum { GROWING_MAX = 2 * DIGITS_MAX + 2 };

struct joiner {
    struct open_range *range;
    size_t n;
    size_t growing[GROWING_MAX], n_growing;     /* indices into range */
};

static bool grows_by(const struct open_range *o, uint64_t v, const char *text)
{
    char want[DIGITS_MAX + 8];

    if (o->last + 1 != v)
        return false;
    snprintf(want, sizeof(want), "%0*" PRIu64, o->width, v);
    return strcmp(want, text) == 0;
}

static void join_one(struct joiner *j, const char *text)
{
    uint64_t v = strtoull(text, NULL, 10);
    size_t kept = 0;

    for (size_t i = 0; i < j->n_growing; i++)
        if (j->range[j->growing[i]].last + 1 >= v)
            j->growing[kept++] = j->growing[i];
    j->n_growing = kept;
    for (size_t i = 0; i < kept; i++) {
        struct open_range *o = &j->range[j->growing[i]];

        if (grows_by(o, v, text)) {
            o->high = text;
            o->last = v;
            return;
        }
    }
    if (kept < GROWING_MAX)
        j->growing[j->n_growing++] = j->n;
    j->range[j->n++] = (struct open_range){ text, NULL, v, (int)strlen(text) };
}

/* Joins numbers, sorted by value and length, into "1-3,7,010-012". */
static char *join_numbers(const struct item *it, size_t n, unsigned d)
{
    struct joiner j = { .range = mem_array(n, sizeof(struct open_range)) };
    struct str out = { 0 };

    for (size_t i = 0; i < n; i++)
        join_one(&j, it[i].number[d]);
    for (size_t i = 0; i < j.n; i++) {
        const struct open_range *o = &j.range[i];

        str_addf(&out, "%s%s", i > 0 ? "," : "", o->low);
        if (o->high != NULL)
            str_addf(&out, "-%s", o->high);
    }
    free(j.range);
    return str_take(&out);
}

/* Joins the items that differ in number d only. Returns how many are left. */
static size_t join_dimension(struct item *items, size_t n, unsigned d)
{
    size_t left = 0;

    for (size_t i = 0; i < n; i++)
        item_key(&items[i], d);
    qsort(items, n, sizeof(items[0]), compare_keys);
    for (size_t i = 0, end; i < n; i = end) {
        char *joined = NULL;

        for (end = i + 1; end < n && strcmp(items[i].key, items[end].key) == 0; end++)
            ;
        if (end - i > 1 && d < items[i].n)
            joined = join_numbers(items + i, end - i, d);
        if (joined != NULL) {
            free(items[i].number[d]);
            items[i].number[d] = joined;
            for (size_t k = i + 1; k < end; k++)
                item_free(&items[k]);
        }
        items[left++] = items[i];
    }
    return left;
}

static void show_item(struct str *out, const struct item *it)
{
    for (unsigned i = 0; i < it->n; i++) {
        bool set = strpbrk(it->number[i], "-,") != NULL;

        str_addf(out, "%s%s%s%s", it->literal[i], set ? "[" : "", it->number[i], set ? "]" : "");
    }
    str_add(out, it->literal[it->n]);
}

char *hostlist_fold(const struct hostlist *h)
{
    struct item *items = mem_array(h->n, sizeof(*items));
    struct entry **sorted = mem_array(h->n, sizeof(*sorted));
    struct str out = { 0 };
    size_t n = h->n;

    if (n > 0)
        memcpy(sorted, h->at, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_entries);
    for (size_t i = 0; i < n; i++) {
        items[i].order = i;
        item_cut(&items[i], sorted[i]->name);
    }
    for (unsigned d = HOSTLIST_MAX_GROUPS; d-- > 0; )
        n = join_dimension(items, n, d);
    qsort(items, n, sizeof(items[0]), compare_order);
    for (size_t i = 0; i < n; i++) {
        str_add(&out, i > 0 ? "," : "");
        show_item(&out, &items[i]);
        item_free(&items[i]);
    }
    free(items);
    free(sorted);
    return str_take(&out);
}

/* --- sets ----------------------------------------------------------------------------------- */

static struct hostlist *choose(const struct hostlist *a, const struct hostlist *b, bool in_both)
{
    struct hostlist *h = hostlist_create();

    for (size_t i = 0; i < a->n; i++)
        if ((find(b, a->at[i]->name) != NULL) == in_both)
            hostlist_add(h, a->at[i]->name, NULL);     /* a valid name, and no more of them than in a */
    return h;
}

struct hostlist *hostlist_diff(const struct hostlist *a, const struct hostlist *b) { return choose(a, b, false); }
struct hostlist *hostlist_and(const struct hostlist *a, const struct hostlist *b) { return choose(a, b, true); }
