/* outplace.h - the folder of a result, opened once: what lies there, whose it is, and what its disk's errors mean
 *
 * All of it may block, and runs in threads of deliver.c.
 */
#ifndef SLUICE_OUTPLACE_H
#define SLUICE_OUTPLACE_H

#include <jansson.h>
#include <sys/types.h>
#include "deliver.h"

/* The folder of one TF's files as it was opened: what becomes of its name meanwhile does not spread them over two. */
struct place {
    char *folder; const char *base;
    int fd, error;
    int trouble;                                 /* the disk's, met while it was looked at: what is not seen then may be there all the same */
};

enum deliver_end place_open(struct place *p, const char *output, const char *stem, bool make, struct err *e);     /* make: the folder, where there is none */
void place_close(struct place *p);
enum deliver_end place_sync(struct place *p, struct err *e);
bool place_is_there(struct place *p);            /* its name still leads there */
void place_found_nothing(struct place *p);       /* after a call that found nothing: whether there is nothing, or the disk did not say (errno) */
/* What errno means, about the file of that name or, without a place, that path. */
enum deliver_end place_fail_at(struct place *p, const char *name, struct err *e);
enum deliver_end place_fail(struct err *e, const char *path);
/* What was found is believed of a disk alone that answers, and of the one where the result was written (0: not known): a file system that is mounted over the
 * folder, or not mounted for a while, is no reason to give a result up. */
enum deliver_end place_unless_away(struct place *p, dev_t disk, enum deliver_end end, struct err *e);

/* Whose a name is, by the provenance beside it. */
bool place_has(struct place *p, const char *name);
json_t *place_provenance(struct place *p, const char *name);       /* of that .json; NULL: there is none, or it cannot be read */
bool provenance_names(const json_t *j, struct tf_name tf);
bool place_is_ours(struct place *p, const char *final, struct tf_name tf);
enum deliver_end place_look_at(struct place *p, const char *final, struct tf_name tf, struct err *e);      /* DELIVER_TAKEN: a file of somebody else has this name, or that of its provenance */
enum deliver_end place_taken(struct place *p, const char *final, struct err *e);

/* The names of attempts. */
typedef enum deliver_end place_fn(struct place *p, const char *name, void *arg, struct err *e);
/* Calls fn with the name of every file of this stem; suffix "": those under their final names, NULL: those of all tries. Stops at the first that does not end
 * well. */
enum deliver_end place_each(struct place *p, const char *suffix, place_fn *fn, void *arg, unsigned *count, struct err *e);
size_t place_before_suffix(const char *name, const char *suffix);  /* 0: it does not end so */
enum deliver_end place_unlink(struct place *p, const char *name, void *arg, struct err *e);
void place_remove_try(struct place *p, const char *suffix);
/* What a former release wrote says in its .json alone whose it is: of this TF, or half and without one. */
bool place_is_former_of(struct place *p, const char *name, struct tf_name tf, bool half_too);

#endif
