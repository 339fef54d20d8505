/* crash.h - TFs that killed a reconstruction process: rows about the folders that workers keep */
#ifndef SLUICE_CRASH_H
#define SLUICE_CRASH_H

#include "session.h"

struct crashes;
struct crashes *crashes_create(struct sluiced *d, struct db *db, struct err *e);
void crashes_destroy(struct crashes *c);
void crash_add(struct sluiced *d, const char *node, bool is_job, uint64_t work, const Sluice__Failed *x);

#endif
