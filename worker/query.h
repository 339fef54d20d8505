/* query.h - questions to the drivers of the devices, each asked by a process of its own that has a deadline
 *
 * A driver call may hang for ever, and whoever made it cannot be ended: so the worker never makes one. The reconstruction program does, as
 * `PROGRAM devices --json` and `PROGRAM usage --json` (doc/reco-contract.md). One question at a time: while a process that cannot be ended is
 * there, no other is started.
 */
#ifndef SLUICE_QUERY_H
#define SLUICE_QUERY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "err.h"

struct worker;
struct query;

enum { QUERY_DEVICES_MAX = 64, QUERY_PIDS_MAX = 32 };
enum query_what { QUERY_DEVICES, QUERY_USAGE };

struct query_device {
    char     id[96], backend[16], class[32], why[200];       /* why: it cannot be used */
    bool     usable;
    uint64_t memory, used;                                   /* bytes; used: of QUERY_USAGE only */
    int      numa;                                           /* -1: not known */
    pid_t    pid[QUERY_PIDS_MAX]; unsigned n_pids;           /* who holds memory there */
};
/* list belongs to the caller's caller: gone after the call. why: there is no answer, and list is NULL. */
typedef void (*query_fn)(void *arg, const struct query_device *list, unsigned n, const struct err *why);

struct query *query_create(struct worker *w);
void query_destroy(struct query *q);             /* after watch_destroy; fn is not called any more */
bool query_is_busy(const struct query *q);
/* fn is called once, from the loop, within query_timeout (worker section) and a little. Must not be busy. -1: no process could be started. */
int  query_ask(struct query *q, enum query_what what, query_fn fn, void *arg, struct err *e);

/* The text of an answer, alone for tests. -1: it is not what the contract says. Returns the number of devices. */
int  query_parse(enum query_what what, const char *text, size_t size, struct query_device *list, struct err *e);

#endif
