/* nice.h - nice levels: of a run or job its own, else what the rules make of the pool's for its owner, else the pool's
 *
 * From: people (session.c), restore.c.  To: every node of the pool (Settings), every node that has the run or job (RunOpen), the database.
 * An expert may set any level; whoever is named by a nice_rule of the configuration any within its range. What the rules allowed somebody when the run or job
 * was made holds for its life: the pool's level is held within it.
 */
#ifndef SLUICE_NICE_H
#define SLUICE_NICE_H

#include "db.h"
#include "session.h"

struct work;
enum { NICE_NONE = 100, NICE_FIRST = -20, NICE_LAST = 19 };
enum nice_source { NICE_OF_POOL, NICE_OF_RULE, NICE_OWN };

int nice_of_pool(const struct sluiced *d, int pool);
int nice_restore(struct sluiced *d, struct db *db, struct err *e);
/* The pool's level is another one now: whoever depends on it hears of it. */
void nice_tell(struct sluiced *d, int pool);

/* Whether this person may have that level for what is theirs: 0, or -1 with the range that is. */
int nice_check(struct session *s, int level, struct err *e);
/* Of a new run or job of this person. */
void nice_begin(const struct session *s, struct work *w, bool has_own, int own);

/* For people: "own", "rule" or "pool", and the level; over: it has ended, and only a level of its own is told. */
const char *nice_from(const struct work *w, bool over, protobuf_c_boolean *has, int32_t *level);
/* "n001: wanted 5, has 10", ...: where its processes have another one. NULL: nowhere. The caller frees. */
char *nice_text(const struct work *w);

int nice_of_work(const struct work *w, enum nice_source *from);

/* nice_work.c: of the runs and jobs of a pool; SET_NICE for one of them, answered unless it comes back with -1. */
void nice_tell_works(struct sluiced *d, int pool);
int  nice_set_work(struct session *s, uint32_t id, const Sluice__SetNice *q, struct err *e);

void nice_set(struct session *s, uint32_t id, const void *m);          /* SET_NICE */

#endif
