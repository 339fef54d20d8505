/* workflow_words.h - the names of workflows, stages, backends and options that sluiced and its commands know
 *
 * sluiced refuses what is misspelt, and what no build has code for, when it is asked for it; whether a node has the device is the node's to say. The
 * table says what that of the kernels (kernels/workflow.c) says; tests/unit/words_test.c holds one against the other. They change together.
 */
#ifndef SLUICE_WORKFLOW_WORDS_H
#define SLUICE_WORKFLOW_WORDS_H

#include <stdbool.h>
#include <stdint.h>
#include "err.h"

struct workflow_word_option { const char *name; uint64_t min, max; bool is_size; };          /* is_size: takes 64M and the like */
struct workflow_word_stage { const char *name; const char *backends[8]; struct workflow_word_option options[8]; };     /* each ends with NULL */
struct workflow_word { const char *name, *what; const char *stages[8]; };

/* THE table of workflows: name, what comes out, stages. Help, completion and checks are made of it. */
#define WORKFLOWS(ROW) \
    ROW("none",    "takes in, checks the block headers, lets go", NULL) \
    ROW("decode",  "digits", "decode") \
    ROW("cluster", "digits and clusters", "decode", "cluster")

extern const struct workflow_word_stage workflow_word_stages[];      /* ends with a NULL name */
extern const struct workflow_word workflow_words[];

/* backends: "STAGE=B,..." or one B for all, or both mixed; options: "STAGE.OPTION=V,...". NULL or "" leaves the defaults.
 * -1: ERR_USAGE, the sentence names the stage and the choices. */
int workflow_words_check(const char *workflow, const char *backends, const char *options, struct err *e);
/* Whether a device that has these backends (ends with NULL) can run every stage as asked; the words were checked. */
bool workflow_words_fit(const char *workflow, const char *backends, const char *const *has);

#endif
