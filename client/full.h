/* full.h - file systems without room, named where something failed that writes there */
#ifndef SLUICE_FULL_H
#define SLUICE_FULL_H

#include <stddef.h>
#include "err.h"

/* Puts after the sentence of e which of the folders' file systems is full and how much is free there; nothing when all have room. NULLs are passed over. */
void full_tell(const char *const *folders, size_t n, struct err *e);

#endif
