/* verify.h - results that are made again on another node and compared (health.verify_sample)
 *
 * From: settle.c (Done, Failed), runtf.c and run.c (what gives a TF up).  To: health.c (who was wrong).
 * Nothing of a sampled TF is accepted before the second result is there: its first worker keeps what it made. Two that differ are judged by a third node; the one that stands
 * alone was wrong. What cannot be made again is accepted as it is.
 */
#ifndef SLUICE_VERIFY_H
#define SLUICE_VERIFY_H

#include "tf.h"

/* t was done at n, its charge has returned. true: it waits for another result, nothing is to be settled. false: to be settled as *end says now. */
bool verify_done(struct tf *t, struct fnode *n, struct end *end);
/* It cannot be made again: settled with the first result, if its worker still has that. true: t is gone. */
bool verify_settle(struct tf *t);
/* t goes: whoever holds a result of it that was not accepted lets it go. */
void verify_drop(struct tf *t);

#endif
