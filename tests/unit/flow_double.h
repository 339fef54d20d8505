/* flow_double.h - what the double of flow.h saw, and what it is told to say */
#ifndef SLUICE_FLOW_DOUBLE_H
#define SLUICE_FLOW_DOUBLE_H

#include "flow.h"

extern struct flow_double {
    unsigned registered, disconnected, lost, changed, reports, evicted, messages;
    uint64_t tasks;                      /* of jobs that want nodes */
    unsigned run_min_nodes;              /* > 0: run 7 is on and wants so many nodes online */
} flow_double;

#endif
