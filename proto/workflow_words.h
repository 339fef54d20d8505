/* workflow_words.h - the names of workflows, stages and backends that sluiced, its commands and the reconstruction agree on
 *
 * sluiced refuses what is misspelt when it is asked for it; whether a node has the backend is the node's to say. The kernels' own tables
 * (kernels/workflow.c) know the stages' options; a test holds both against each other.
 */
#ifndef SLUICE_WORKFLOW_WORDS_H
#define SLUICE_WORKFLOW_WORDS_H

#include "err.h"

extern const char *const workflow_words[];       /* none decode cluster; ends with NULL */
extern const char *const workflow_stages[];
extern const char *const workflow_backends[];

/* backends: "STAGE=B,..." or one B for all, or both mixed; options: "STAGE.OPTION=V,...". NULL or "" leaves the defaults.
 * -1: ERR_USAGE, the sentence names the word and the choices. */
int workflow_words_check(const char *workflow, const char *backends, const char *options, struct err *e);

#endif
