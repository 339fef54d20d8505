/* deliver.h - results become files: written under the attempt's own name, published under the final one once sluiced accepted them
 *
 *   OUTPUT/STEM.STAGE          OUTPUT/STEM.STAGE.json        final names
 *   OUTPUT/STEM.STAGE.aE-K-jJ  OUTPUT/STEM.STAGE.json.aE-K-jJ   of try K in epoch E for job J (-rR: for run R; outname.h)
 */
#ifndef SLUICE_DELIVER_H
#define SLUICE_DELIVER_H

#include "held.h"
#include "userio.h"

struct deliver;

struct deliver *deliver_create(struct worker *w);
void deliver_destroy(struct deliver *d);         /* after its pool ended */
/* Whether one more result may come: the number that waits for its disk is bounded, so that a full disk stops the devices, not the memory. */
bool deliver_has_room(const struct deliver *d, uint64_t job);        /* job 0: a run */
/* Whether the descriptors are as the message announces them, sealed, and its texts sound. */
int  deliver_check(const Sluice__RecoDone *m, const int *fds, unsigned n_fds, struct err *e);
/* Takes over a result that was checked: the descriptors (set to -1). h may be gone afterwards. */
void deliver_take(struct held *h, const Sluice__RecoDone *m, int *fds, const char *device, const char *software);
void deliver_cancel(struct held *h);             /* ends the attempt to deliver: Failed(Cancelled) follows */
/* A verdict on a TF whose answer was reported: publish, or remove its files and forget it. */
void deliver_accept(struct held *h);
void deliver_discard(struct held *h);
/* A verdict on a TF that we do not know (from before a restart): publish by its names alone, or remove. */
void deliver_stray(struct deliver *d, const Sluice__Verdict *m);
void deliver_tick(struct deliver *d);
/* What keeps results from being delivered: OutputFull, OutputFailing, OutputStalled, or "" and no text. */
const char *deliver_trouble(const struct deliver *d, const char **text);
/* Jobs whose results wait for a disk that is full: at most n, their numbers and why; texts live until the next tick. */
enum { FULL_JOBS = 16 };
struct full_job { uint64_t job; const char *word, *text; };
unsigned deliver_full_jobs(const struct deliver *d, struct full_job *out, unsigned n);
/* TFs whose results wait for their disk, whatever is wrong with it: at most n. */
enum { UNDELIVERED = 64 };
unsigned deliver_undelivered(const struct deliver *d, struct tf_name *out, unsigned n);
void delivery_free(struct delivery *d);

/* ---- the thread's part, alone for tests ---- */
enum { OUTPUTS_MOST = 8, OUTPUT_STAGE = 32 };
struct output { char *stage; int fd; uint64_t size, count; char *digest; char *json; };
enum deliver_end { DELIVER_OK, DELIVER_AGAIN_FULL, DELIVER_AGAIN_READONLY, DELIVER_AGAIN_FAILING, DELIVER_NEVER, DELIVER_DENIED, DELIVER_CORRUPT, DELIVER_TAKEN, DELIVER_LEFT };
enum deliver_end deliver_judge(int error);       /* what an errno of the output folder means: one of AGAIN, NEVER, DENIED */
/* Writes all outputs and their .json, fsyncs files and folder, all in one folder: one that is moved meanwhile is tried again. Whatever does not end well leaves
 * none of them. DELIVER_TAKEN: a final name is another's. disk: the file system where they lie then, for publishing. */
enum deliver_end deliver_write(const char *output, const char *stem, struct tf_name tf, struct fence fence, const struct output *out, unsigned n, dev_t *disk,
                               struct err *e);
/* Links what an attempt wrote to the final names: all that was delivered, as its .json say ("outputs"), or nothing. Never over another file: one that is there
 * with the same bytes, and a .json beside it that names this very TF, counts as published, any other is DELIVER_TAKEN. Then the attempt's names go. Files that
 * are gone already count as published when the final names are there, all of them, and are this TF's. While another file system than disk (0: not known) is
 * found at the folder's place, or what was looked for could not be seen for the disk's errors, it is to be tried again. DELIVER_LEFT: published, but tries' names are
 * still there. */
enum deliver_end deliver_publish(const char *output, const char *stem, struct tf_name tf, struct fence fence, dev_t disk, struct err *e);
enum deliver_end deliver_remove(const char *output, const char *stem, struct tf_name tf, struct fence fence, struct err *e);
/* Removes what tries at TFs of a job that is over left in its output folder. -1: e. */
int deliver_sweep(const char *output, uint64_t job, struct err *e);
uint64_t deliver_job_of(int dir, const char *name);      /* of which job a provenance tells; 0: of none */
bool deliver_stem_ok(const char *stem);          /* relative, no "..", no empty part */

#endif
