/* health_rules.h - when work that fails says that a node is bad, and when to stop believing it: a pure library, no clock, no node, no memory of its own but these structs
 *
 * A failure counts against a node only when the same TF was done elsewhere afterwards: that tells a bad node from bad data. Three such failures without a
 * TF done in between, or a quarter of the last 32 and six at least, are enough. A node that refuses all it is offered is bad after five in a row over 3 s.
 * Until then it is passed over for a while that grows with each failure. The brake ends all automatic marking when too many nodes of a pool would go.
 */
#ifndef SLUICE_HEALTH_RULES_H
#define SLUICE_HEALTH_RULES_H

#include <stdbool.h>
#include <stdint.h>
#include "str.h"

/* ---- a node's conduct ---- */

enum { CONDUCT_KEPT = 32, CONDUCT_FAILURES = 8, CONDUCT_IN_ROW = 3, CONDUCT_MOST = 6, CONDUCT_SHARE = 4, CONDUCT_REFUSED = 5 };
#define CONDUCT_REFUSED_S 3.0            /* and for so long: a node may be full for a moment */

struct failure { char code[24], device[121], text[200]; };
struct conduct {
    uint32_t ends;                       /* of its last TFs, the newest in bit 0: 1 failed here and was done elsewhere, 0 done */
    unsigned n;                          /* how many are known, at most CONDUCT_KEPT */
    unsigned failed_in_row, refused_in_row, trouble_in_row;      /* since a TF was done; trouble: attempts that failed or were refused, whoever is to blame */
    struct failure last[CONDUCT_FAILURES];                       /* a ring of what counted */
    unsigned n_last;
    double   refusing_since;             /* s, of the first in the row */
    char     refusal[224];               /* the last one's word and text */
};

void conduct_done(struct conduct *c);
/* An attempt failed, or was refused. Returns the seconds for which to pass the node over: 0.25, doubled each time in a row, at most 4; 60 once a failure in this row
 * was proved to be the node's. */
double conduct_trouble(struct conduct *c);
/* A failure is proved to be the node's. true: enough to mark it. */
bool conduct_failed(struct conduct *c, const struct failure *f);
/* It refused work that it should have had room for, at now (s, monotonic). true: enough to mark it. */
bool conduct_refused(struct conduct *c, const char *word, const char *text, double now);
/* Starts anew, as after a mark or when a mark was cleared. */
void conduct_forget(struct conduct *c);
unsigned conduct_count(const struct conduct *c);                 /* failures among the ends known */
/* The device that all kept failures name, or NULL when they name several, or none. */
const char *conduct_device(const struct conduct *c);
/* What to say, and with what: one line each. */
void conduct_reason(const struct conduct *c, struct str *out);
void conduct_evidence(const struct conduct *c, struct str *out);

/* ---- how fast it is ---- */

enum { PACE_KEPT = 33, PACE_LEAST = 16 };
struct pace { double kept[PACE_KEPT]; unsigned n, at; };
void   pace_add(struct pace *p, double value);
double pace_median(const struct pace *p);                        /* 0: nothing known */
/* ratios: time of each TF over the median of its class for the same work. 1: slow (median above 2), -1: as fast as the others (below 1.5), 0: between, or too few known. */
int    pace_judge(const struct pace *ratios);

/* ---- what comes and goes ---- */

enum { FLAP_MOST = 3 };
#define FLAP_WINDOW_S (24 * 3600.0)
#define NOTE_SHOWN_S 60.0
#define NOTE_TOLD_S 3600.0
struct flaps { int64_t at[FLAP_MOST]; unsigned n; };             /* when blocking marks were taken back because all was good again, wall ns: a ring */
void flaps_add(struct flaps *f, int64_t at);
/* Enough of that in the window before now: the next one stays, for a person. */
bool flaps_are_many(const struct flaps *f, int64_t now);
/* What becomes of a note whose owner says something now. One fault is one note: a text that changes all the time is shown at most once a minute and told to the
 * history at most once an hour; another kind of finding (level) is told at once. shown_s, told_s: since it was. */
enum note { NOTE_KEPT, NOTE_SHOWN, NOTE_TOLD };                  /* as it is; its new text is shown and stored; and a line of history says so */
enum note note_decide(bool same_text, bool same_level, double shown_s, double told_s);

/* ---- the brake ---- */

enum { BRAKE_MOST = 64 };
struct brake_limits { unsigned nodes; double percent, window; };  /* window: s */
struct brake {
    double   at[BRAKE_MOST];             /* when nodes were marked last, s of a monotonic clock; the newest last */
    const void *who[BRAKE_MOST];         /* which: each once */
    unsigned n;
    bool     on;
    unsigned held;                       /* marks that were not made because of it, since it is on */
};
/* How many of so many nodes may be marked in a window: both limits hold, but one always may. */
unsigned brake_allowance(const struct brake_limits *l, unsigned nodes);
/* Marked in the window before now. */
unsigned brake_count(const struct brake *b, const struct brake_limits *l, double now);
/* May `who`, one more of `nodes` nodes, be marked? Then it counts, once however often it is marked in a window. Else the brake is on from now on. */
bool brake_take(struct brake *b, const struct brake_limits *l, unsigned nodes, const void *who, double now);
void brake_note(struct brake *b, const void *who, double at);                     /* one that was marked before our start */
void brake_reset(struct brake *b);                               /* by a person: the window begins anew */

#endif
