/* stage_devices.h - the device that each stage runs on: chosen, opened, memory pinned for it */
#ifndef STAGE_DEVICES_H
#define STAGE_DEVICES_H

#include "kdev.h"
#include "pipeline.h"

struct stage_devices {
    struct kdev *dev[STAGE_COUNT];               /* stages on the same backend share one; NULL: not of the workflow */
    char fallback[STAGE_COUNT][300];             /* why auto took the CPU; "": it did not */
};

/* All zero before. -1: what is open by then is still to be closed. */
int stage_devices_open(struct stage_devices *s, const struct workflow_choice *choice, const struct pipeline_conf *c,
                       struct k_err *e);
void stage_devices_close(struct stage_devices *s);

#endif
