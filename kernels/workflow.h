/* workflow.h - which stages a workflow has, on which backend each runs, with which options */
#ifndef WORKFLOW_H
#define WORKFLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kerr.h"

enum stage_id { STAGE_DECODE, STAGE_CLUSTER, STAGE_COUNT };
enum { WORKFLOW_STAGES = 8, STAGE_OPTIONS = 8 };

struct stage_option {
    const char *name;
    uint64_t initial, min, max;
    bool is_size;                /* takes 64M and the like */
    const char *what;
};

struct stage_desc {
    const char *name;
    const char *output;          /* what its result is called: digits, clusters */
    const char *what;
    const char *backends[8];     /* that have code for it; ends with NULL */
    struct stage_option option[STAGE_OPTIONS];   /* ends with a NULL name */
};

struct workflow {
    const char *name;
    const char *what;
    unsigned stages;
    enum stage_id stage[WORKFLOW_STAGES];
};

extern const struct stage_desc stages[STAGE_COUNT];
extern const struct workflow workflows[];      /* ends with a NULL name */

/* A choice that was checked: nothing in it can be refused any more but for lack of a device. */
struct workflow_choice {
    const struct workflow *workflow;
    const char *backend[STAGE_COUNT];          /* cpu, gpu, auto, cuda, ... */
    uint64_t option[STAGE_COUNT][STAGE_OPTIONS];
};

/* backends: "STAGE=B,..." or one B for all, or both mixed; options: "STAGE.OPTION=V,...". NULL or
 * "" leaves the defaults (auto). A refusal names the stage and its choices. */
int workflow_choose(const char *workflow, const char *backends, const char *options,
                    struct workflow_choice *c, struct k_err *e);

/* The i-th backend that has code for the stage: the stage's own, then those added to the program (bk_register: a test's device). NULL: there are no more. */
const char *workflow_backend(const struct stage_desc *s, unsigned i);

/* The backends that a stage can be set to, as a list for a person. */
void workflow_backends(enum stage_id id, char *out, size_t room);

/* "64M", "4096": powers of 1024. 0 or -1. */
int workflow_size(const char *text, uint64_t *out);

#endif
