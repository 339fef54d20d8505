/* change.h - what one decision writes: rows and their lines of history, together or not at all, and the answer that goes out after it
 *
 * From: mark.c, move.c, roster.c, shm.c.  To: writer.c, then back: history in memory, the maker's `then`, the asker's answer.
 * Copies every string it is given, so that the writer's thread touches nothing of the loop's.
 */
#ifndef SLUICE_CHANGE_H
#define SLUICE_CHANGE_H

#include "node.h"
#include "rows.h"
#include "session.h"

struct change;
typedef void (*change_done)(struct change *c, void *arg, int rc, const struct err *why);

struct change *change_create(struct sluiced *d);
struct change *change_asked(struct session *s, uint32_t id);       /* by a person: who and the address of the answer */
void change_destroy(struct change *c);
struct sluiced *change_sluiced(const struct change *c);
const char *change_author(const struct change *c);                  /* "sluiced" unless asked */

void change_node(struct change *c, const struct row_node *row);
void change_shm(struct change *c, const char *node, uint64_t size);  /* the wanted size of its buffer, nothing else of its row */
void change_mark(struct change *c, const struct row_mark *row);
void change_device(struct change *c, const struct row_device *row);
void change_boot(struct change *c, const struct row_boot *row);
void change_move(struct change *c, const struct row_move *row);
void change_setting(struct change *c, const char *name, const char *value);       /* rows_put_setting */
void change_event(struct change *c, const char *node, const char *what, const char *before, const char *after, const char *reason);
unsigned change_size(const struct change *c);                       /* rows so far */
/* That mark's row is not written any more: something newer says otherwise. Safe while the writer has the change. */
void change_void_mark(struct change *c, uint64_t id);

/* A line of the answer; text is formatted. */
void change_result(struct change *c, const char *node, enum err_code code, uint64_t id, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Takes c. In order: written, history in memory, then (may be NULL; refused: rc -1), the answer (Changed, or the Error), c is freed. */
void change_put(struct change *c, enum change_kind kind, change_done then, void *arg);
/* Within `then`, after a refusal: the answer goes out, and the same is put again as CHANGE_KEEP, until it is on disk. */
void change_keep_again(struct change *c, change_done then, void *arg);
/* Answers with what has been gathered and writes nothing (dry run, nothing to do). Takes c. */
void change_answer_only(struct change *c);
/* The asker hears e instead of Changed, when the answer goes out. */
void change_answer_error(struct change *c, const struct err *e, const char *word);

#endif
