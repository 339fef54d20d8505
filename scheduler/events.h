/* events.h - history: one line for every change of intent, numbered by the database, the newest ones in memory
 *
 * From: change.c (with the change itself, in one transaction) and whoever else writes rows.  To: GetHistory, `node history`.
 * A line is added to memory after its commit, never before.
 */
#ifndef SLUICE_EVENTS_H
#define SLUICE_EVENTS_H

#include "rows.h"
#include "session.h"

enum { HISTORY_KEPT = 4096 };                  /* lines in memory */

struct event { uint64_t seq; int64_t time; char *node, *who, *what, *before, *after, *reason; };

/* Copies the strings; any may be NULL. time is now. */
struct event *event_create(const char *node, const char *who, const char *what, const char *before, const char *after, const char *reason);
struct event *event_from_row(const struct row_event *r);
void event_destroy(struct event *ev);
void event_message(const struct event *ev, Sluice__Event *m);      /* m borrows the strings */
/* In the writer's thread, within the change's transaction; the line gets its number. */
int  event_write(struct event *ev, struct db *db, struct err *e);

/* db: a reader, for the newest lines. */
struct history *history_create(struct sluiced *d, struct db *db, struct err *e);
void history_destroy(struct history *h);
void history_add(struct history *h, struct event *ev);     /* takes ev; after its commit, in the loop */
uint64_t history_seq(const struct history *h);              /* number of the newest line */
/* The first lines from this number on, at most `most`, oldest first, borrowed: how many. -1: memory does not reach back so far. */
int history_from(const struct history *h, uint64_t from, struct event **out, unsigned most);
/* A line that changes nothing stored but itself (contact lost, a configuration read): kept until it can be written. */
void history_note(struct sluiced *d, const char *node, const char *who, const char *what, const char *before, const char *after, const char *reason);

void history_get(struct session *s, uint32_t id, const void *m);       /* GET_HISTORY */

#endif
