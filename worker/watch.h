/* watch.h - child processes: started, ended for certain, and none of an earlier worker left
 *
 * A child leads a session of its own, dies when the worker dies, and bears a mark in its environment that its own children inherit: by it
 * whatever it left behind is found, also by the next worker of this node. This process is their subreaper: what wiped the mark from its environment and
 * left its parents comes to us, and goes with the next child that ends.
 */
#ifndef SLUICE_WATCH_H
#define SLUICE_WATCH_H

#include <ev.h>
#include <stdbool.h>
#include <sys/types.h>
#include <stdint.h>
#include "err.h"

struct place;
struct watch;
struct child;

struct child_conf {
    const char *const *argv;                     /* argv[0]: path of the program; NULL at the end */
    int    socket;                               /* becomes its descriptor 3; ours to close afterwards; -1: none */
    const char *name;                            /* of its device, for the log */
    bool   answers;                              /* what it writes to standard output goes to the socket, not to the log */
    bool   quiet;                                /* what it writes does not go to the log either: child_first_line and child_tail have it */
    bool   user;                                 /* it runs as uid, gid, without other groups; we are root */
    uid_t  uid;
    gid_t  gid;
    int    nice;
    const struct place *place;                   /* NULL: anywhere */
    /* It is gone, and so is everything it started. The child is freed after this. */
    void (*ended)(void *arg, int status, const char *how);        /* how: "exit 3", "signal 11 (Segmentation fault)" */
    /* It outlived KILL by 5 s: "pid 7, since ..., waiting in ...". It may end yet. */
    void (*stuck)(void *arg, const char *what);
    void  *arg;
};

/* run_dir: where the list of children is kept. mark: what tells this farm's node from all others, as in FARM-NODE. write: called with the text of that list
 * to be put into RUN_DIR/processes, off the loop. */
struct watch *watch_create(struct ev_loop *loop, const char *mark, void (*write)(void *arg, const char *list), void *arg, struct err *e);
void watch_destroy(struct watch *w);             /* kills what is left */

struct child *child_start(struct watch *w, const struct child_conf *conf, struct err *e);
pid_t child_pid(const struct child *c);
/* TERM to its session, KILL after grace_s. */
void  child_end(struct child *c, double grace_s);
/* It seems to be ending by itself: KILL when it has not within grace_s. */
void  child_leaves(struct child *c, double grace_s);
/* The last lines it wrote; valid until the next turn of the loop. */
const char *child_tail(struct child *c);
/* How many bytes it wrote so far; the last of what it wrote since, at most `most` bytes of it, whole lines where there are any. Valid until it writes more. */
uint64_t child_wrote(struct child *c);
const char *child_tail_since(struct child *c, uint64_t since, size_t most);
/* The first line that it wrote, "" when there is none; as long as the child. */
const char *child_first_line(struct child *c);
/* nice of all its threads: 0, or the errno of one that cannot have it. What its main thread has now. */
int   child_set_nice(struct child *c, int nice);
int   child_nice(const struct child *c);

#endif
