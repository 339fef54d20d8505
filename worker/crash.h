/* crash.h - TFs that killed or hung a reconstruction process, kept for `sluice crash`
 *
 * CRASH_DIR/NODE-TIME-RUN-TF-TRY/: tf (its bytes as in a TF file), crash.json (versions, parameters, how it ended), log (the last lines of the process).
 * All folders of a node together hold at most crash_limit bytes of TFs: beyond it only crash.json and log are written.
 */
#ifndef SLUICE_CRASH_H
#define SLUICE_CRASH_H

#include "held.h"

struct crash {                                   /* texts are copied */
    const char *word, *text, *stage, *device, *how, *tail, *software;
};

/* Keeps the TF, then fails it: held_fail with the folder's name. When the disk does not answer within 10 s: without it. */
void crash_keep(struct held *h, const struct crash *c);

/* The thread's part, alone for tests. Total bytes of files named "tf" in the node's folders. */
struct crash_seg { const void *data; size_t size; };
int  crash_write(const char *crash_dir, const char *folder, uint64_t limit, const struct crash_seg *seg, unsigned n,
                 const char *json, const char *tail, bool *kept, struct err *e);

#endif
