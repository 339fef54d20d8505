/* local.h - programs of ours that commands start */
#ifndef SLUICE_LOCAL_H
#define SLUICE_LOCAL_H

#include "err.h"

/* The path of one of our programs: in the folder SLUICE_LIBEXEC names, beside this one (a build tree, or bin itself), else where it is
 * installed. The caller frees. NULL: e says where it was looked for. */
char *local_find(const char *program, struct err *e);

#endif
