/* health_rules.c - see health_rules.h
 *
 * From: health.c, tests.  To: health.c, which does what these say.
 */
#include "config.h"

#include "health_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double cool_first = 0.25, cool_most = 4, cool_proved = 60;
static const double slow_above = 2, fine_below = 1.5;

/* ---- a node's conduct ---- */

static void end_add(struct conduct *c, bool failed)
{
    c->ends = c->ends << 1 | failed;
    if (c->n < CONDUCT_KEPT)
        c->n++;
}

void conduct_done(struct conduct *c)
{
    end_add(c, false);
    c->failed_in_row = c->refused_in_row = c->trouble_in_row = 0;
}

double conduct_trouble(struct conduct *c)
{
    double s = cool_first, most = c->failed_in_row > 0 ? cool_proved : cool_most;

    for (unsigned i = 0; i < c->trouble_in_row && s < most; i++)
        s *= 2;
    c->trouble_in_row++;
    return s < most ? s : most;
}

unsigned conduct_count(const struct conduct *c)
{
    return (unsigned)__builtin_popcount(c->ends);
}

bool conduct_failed(struct conduct *c, const struct failure *f)
{
    c->last[c->n_last++ % CONDUCT_FAILURES] = *f;
    end_add(c, true);
    c->failed_in_row++;
    return c->failed_in_row >= CONDUCT_IN_ROW || (conduct_count(c) >= CONDUCT_MOST && conduct_count(c) * CONDUCT_SHARE >= c->n);
}

bool conduct_refused(struct conduct *c, const char *word, const char *text, double now)
{
    if (c->refused_in_row == 0)
        c->refusing_since = now;
    snprintf(c->refusal, sizeof(c->refusal), "%.23s%s%.190s", word, text[0] == '\0' ? "" : ": ", text);
    return ++c->refused_in_row >= CONDUCT_REFUSED && now - c->refusing_since >= CONDUCT_REFUSED_S;
}

void conduct_forget(struct conduct *c)
{
    memset(c, 0, sizeof(*c));
}

static unsigned kept(const struct conduct *c)
{
    return c->n_last < CONDUCT_FAILURES ? c->n_last : CONDUCT_FAILURES;
}

/* The i-th of the kept ones, the oldest first. */
static const struct failure *nth(const struct conduct *c, unsigned i)
{
    return &c->last[(c->n_last - kept(c) + i) % CONDUCT_FAILURES];
}

const char *conduct_device(const struct conduct *c)
{
    for (unsigned i = 0; i < kept(c); i++) {
        if (nth(c, i)->device[0] == '\0' || strcmp(nth(c, i)->device, nth(c, 0)->device) != 0)
            return NULL;
    }
    return kept(c) == 0 ? NULL : nth(c, 0)->device;
}

void conduct_reason(const struct conduct *c, struct str *out)
{
    const struct failure *f = kept(c) > 0 ? nth(c, kept(c) - 1) : NULL;

    if (f == NULL || c->refused_in_row >= CONDUCT_REFUSED)
        str_addf(out, "refused %u time-frames in a row: %s", c->refused_in_row, c->refusal);
    else if (c->failed_in_row >= CONDUCT_IN_ROW)
        str_addf(out, "%u time-frames in a row failed here and were done elsewhere: %s%s%s", c->failed_in_row, f->code, f->text[0] == '\0' ? "" : ": ", f->text);
    else
        str_addf(out, "%u of the last %u time-frames failed here and were done elsewhere: %s%s%s", conduct_count(c), c->n, f->code, f->text[0] == '\0' ? "" : ": ",
                 f->text);
}

void conduct_evidence(const struct conduct *c, struct str *out)
{
    for (unsigned i = 0; i < kept(c); i++) {
        const struct failure *f = nth(c, i);

        str_addf(out, "%s%s%s%s%s%s", i == 0 ? "" : "\n", f->code, f->device[0] == '\0' ? "" : " on ", f->device, f->text[0] == '\0' ? "" : ": ", f->text);
    }
    if (c->refused_in_row > 0)
        str_addf(out, "%srefused %u in a row: %s", out->len == 0 ? "" : "\n", c->refused_in_row, c->refusal);
}

/* ---- how fast it is ---- */

void pace_add(struct pace *p, double value)
{
    p->kept[p->at] = value;
    p->at = (p->at + 1) % PACE_KEPT;
    p->n += p->n < PACE_KEPT;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double pace_median(const struct pace *p)
{
    double sorted[PACE_KEPT];

    if (p->n == 0)
        return 0;
    memcpy(sorted, p->kept, p->n * sizeof(double));
    qsort(sorted, p->n, sizeof(double), compare);
    return sorted[p->n / 2];
}

int pace_judge(const struct pace *ratios)
{
    double median = pace_median(ratios);

    if (ratios->n < PACE_LEAST)
        return 0;
    return median > slow_above ? 1 : median < fine_below ? -1 : 0;
}

/* ---- what comes and goes ---- */

void flaps_add(struct flaps *f, int64_t at)
{
    f->at[f->n++ % FLAP_MOST] = at;
}

/* The oldest kept is the one that is written over next. */
bool flaps_are_many(const struct flaps *f, int64_t now)
{
    return f->n >= FLAP_MOST && (double)(now - f->at[f->n % FLAP_MOST]) / 1e9 < FLAP_WINDOW_S;
}

enum note note_decide(bool same_text, bool same_level, double shown_s, double told_s)
{
    if (same_text)
        return NOTE_KEPT;
    if (!same_level || told_s >= NOTE_TOLD_S)
        return NOTE_TOLD;
    return shown_s >= NOTE_SHOWN_S ? NOTE_SHOWN : NOTE_KEPT;
}

/* ---- the brake ---- */

unsigned brake_allowance(const struct brake_limits *l, unsigned nodes)
{
    unsigned by_share = (unsigned)(l->percent * nodes / 100);
    unsigned n = by_share < l->nodes ? by_share : l->nodes;

    return n == 0 ? 1 : n < BRAKE_MOST ? n : BRAKE_MOST;
}

unsigned brake_count(const struct brake *b, const struct brake_limits *l, double now)
{
    unsigned n = 0;

    for (unsigned i = 0; i < b->n; i++)
        n += now - b->at[i] < l->window;
    return n;
}

static unsigned place_of(const struct brake *b, const void *who)
{
    unsigned i = 0;

    while (i < b->n && b->who[i] != who)
        i++;
    return i;
}

/* The one before of the same node goes, or the oldest when there is no room. */
void brake_note(struct brake *b, const void *who, double at)
{
    unsigned i = place_of(b, who);

    if (i == b->n && b->n == BRAKE_MOST)
        i = 0;
    if (i < b->n) {
        b->n--;
        memmove(b->at + i, b->at + i + 1, (b->n - i) * sizeof(b->at[0]));
        memmove(b->who + i, b->who + i + 1, (b->n - i) * sizeof(b->who[0]));
    }
    b->at[b->n] = at;
    b->who[b->n++] = who;
}

bool brake_take(struct brake *b, const struct brake_limits *l, unsigned nodes, const void *who, double now)
{
    unsigned i = place_of(b, who);
    bool counts_already = i < b->n && now - b->at[i] < l->window;

    if (!b->on && (counts_already || brake_count(b, l, now) < brake_allowance(l, nodes))) {
        brake_note(b, who, now);
        return true;
    }
    b->on = true;
    b->held++;
    return false;
}

void brake_reset(struct brake *b)
{
    memset(b, 0, sizeof(*b));
}
