/* spec.h - what `up` is asked for ("mi50:2,mi100:1") becomes the farm's configuration */
#ifndef SLUICE_SPEC_H
#define SLUICE_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include "conf.h"

struct spec {
    struct spec_class { char *name; unsigned nodes; } *classes;
    unsigned n;
    uint64_t shm;                   /* 0 = not given */
    struct spec_nominal { char *class_name; double ms; } *nominal;
    unsigned n_nominal;
};

struct spec_change { bool nodes, classes; const char *real; };      /* what spec_apply changed; real: a new class that is not emulated, in c */

/* "CLASS:N,..."; NULL text: no classes. */
int  spec_parse(struct spec *s, const char *text, struct err *e);
int  spec_nominal(struct spec *s, const char *text, struct err *e);     /* "CLASS=MS" */
void spec_free(struct spec *s);
/* Adds classes and nodes to c that are not in it, and changes buffers and service times where they were given. Nothing is ever removed. */
int  spec_apply(const struct spec *s, struct conf *c, struct spec_change *change, struct err *e);

#endif
