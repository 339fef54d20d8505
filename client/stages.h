/* stages.h - what the stages of a run or job ran on, as a column for people */
#ifndef SLUICE_STAGES_H
#define SLUICE_STAGES_H

#include <jansson.h>

/* Of a Run or Job: "decode on cpu: 12 TFs, 12 fall-backs (no usable GPU on this machine)" for each stage and backend. */
json_t *show_stages(const json_t *work);

#endif
