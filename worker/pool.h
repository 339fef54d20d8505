/* pool.h - a few threads for what may block: disks, checksums, page faults
 *
 * A task is embedded in whatever needs it. `run` is called in a thread and touches nothing but its own task; `done` is called in
 * the loop afterwards, once, always: also for a task that never began because the pool ended (then `dropped` is set).
 */
#ifndef SLUICE_POOL_H
#define SLUICE_POOL_H

#include <ev.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include "err.h"

struct pool_task {
    void (*run)(struct pool_task *t);
    void (*done)(struct pool_task *t);
    bool dropped;
    atomic_int thread;               /* the kernel's number of the one that runs it, else 0 */
    struct pool_task *next;
};

struct pool;

/* name: of the threads, at most 15 letters. nice: theirs (priority.h); one better than the caller's may be refused, and then it stays. Signals are
 * blocked in them. */
struct pool *pool_create(struct ev_loop *loop, const char *name, unsigned threads, int nice, struct err *e);
void   pool_submit(struct pool *p, struct pool_task *t);
/* Whether the task is under way and waits for nothing but a processor: not for the disk or the peer that it reads. */
bool   pool_task_starved(const struct pool_task *t);
/* Waits at most limit_s for tasks that run. 0: all ended; -1: a thread hangs in a system call; it and its task are left behind. */
int    pool_destroy(struct pool *p, double limit_s);

#endif
