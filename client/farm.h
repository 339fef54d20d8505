/* farm.h - the folder of a farm on this machine: where things lie, who was started, one at a time
 *
 * DIR/sluice.conf   its configuration              DIR/state/   database
 *     sluiced.sock  where sluiced listens              log/     NAME.log, and NAME.out for what a program says before
 *     lock          held by up and down                run/     NODE/: status, lock
 *     started       who was started (one a line)       shm-dir  names the folder of the buffers
 */
#ifndef SLUICE_FARM_H
#define SLUICE_FARM_H

#include <stdbool.h>
#include <stdint.h>
#include "err.h"
#include "file.h"

struct farm_process {
    char *name;                     /* "sluiced", or the node's */
    struct file_owner owner;        /* the process; it leads a session of its own */
};

struct farm {
    char *dir;                      /* real path */
    char *shm_dir;                  /* PARENT/sluice-UID-HASH */
    int   lock;                     /* descriptor */
    struct farm_process *processes;
    unsigned n;
};

/* The nearest folder sluice-farm in `from` or a parent that holds a farm of ours: its real path, or NULL. One that belongs to
 * another user is passed by. The caller frees. */
char *farm_search(const char *from);
/* Opens (and with create makes) the folder, takes its lock, reads who was started. The lock is waited for until limit_s. */
struct farm *farm_open(const char *dir, bool create, double limit_s, struct err *e);
void  farm_close(struct farm *f);
char *farm_path(const struct farm *f, const char *name);           /* DIR/NAME; the caller frees */
/* The living process of that name, NULL when it is not running. */
struct farm_process *farm_running(struct farm *f, const char *name);
/* Puts the process into the list, on disk before it returns. */
int   farm_record(struct farm *f, const char *name, pid_t pid, struct err *e);
/* Makes the folder of the buffers, below parent (shm_dir of the configuration), readable by us only. */
int   farm_make_shm(struct farm *f, const char *parent, struct err *e);
/* Ends everything recorded: TERM, after limit_s KILL, workers before sluiced; sessions are emptied. Then removes the folder of the buffers and the list. */
int   farm_end(struct farm *f, double limit_s, unsigned *ended, struct err *e);

/* Ends one process of the list and waits for it: asked first, killed after limit_s. */
int   farm_end_one(struct farm_process *p, double limit_s, struct err *e);

#endif
