/* outname.h - the names of a try's files, until they are published: STEM.STAGE and STEM.STAGE.json, each with the try's suffix
 *
 * The suffix says whose file it is: two jobs that came to one folder by two paths never write under one name, and what a job left is found.
 */
#ifndef SLUICE_OUTNAME_H
#define SLUICE_OUTNAME_H

#include <stddef.h>
#include "fence.h"

enum { OUTNAME_SUFFIX = 96 };

void outname_suffix(struct tf_name tf, struct fence fence, char out[OUTNAME_SUFFIX]);      /* ".aEPOCH-ATTEMPT-jJOB", "...-rRUN" */
void outname_former(struct fence fence, char out[OUTNAME_SUFFIX]);                         /* ".aEPOCH-ATTEMPT", as a former release wrote it */
/* How much of a name comes before a try's suffix; 0: it is no try's. whose: its run or job, neither where a former release wrote it. */
size_t outname_tried(const char *name, struct tf_name *whose);
/* "STAGE" or "STAGE.json". */
bool outname_is_stage(const char *text, size_t n);

#endif
