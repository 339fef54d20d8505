/* room.h - how much memory a buffer may take here: file system, file size limit, machine, control groups */
#ifndef SLUICE_ROOM_H
#define SLUICE_ROOM_H

#include <stdint.h>
#include "err.h"

#define ROOM_ANY UINT64_MAX                      /* no limit known */

struct room {
    uint64_t disk;                               /* free in the folder's file system */
    uint64_t page;                               /* of a folder of type hugetlbfs: its page size; else 0 */
    uint64_t huge;                               /* then: free in pages of that size; no other memory of the machine counts */
    uint64_t file;                               /* RLIMIT_FSIZE */
    uint64_t locked;                             /* RLIMIT_MEMLOCK, for a buffer that is to be locked; none with CAP_IPC_LOCK */
    uint64_t memory;                             /* MemAvailable of the machine */
    uint64_t cgroup;                             /* least of limit - usage on the way from our group to the root */
    char     cgroup_path[256];                   /* of the group that sets it; for huge pages their own limits count */
};

/* What is left now. root: "" for this machine, a fixture tree in tests; /proc and /sys are read below it. A control group file that
 * is not there sets no limit; one that cannot be understood is an error. */
int room_measure(const char *folder, const char *root, struct room *r, struct err *e);
/* Whether a file of `wanted` bytes fits, of which `have` are there already. -1 (ERR_STATE): "128M wanted, 64M available in
 * DIR", naming whatever is the narrowest. */
int room_check(const struct room *r, const char *folder, uint64_t wanted, uint64_t have, struct err *e);

/* Whether the system gives huge pages for a file in that folder. -1 (ERR_STATE): says what it was asked for, and what it is set to. */
int room_check_huge(const char *folder, const char *root, uint64_t wanted, struct err *e);

/* Only the part of the control groups, versions 1 and 2 and both at once: of memory, or of huge pages of r->page bytes where that is not 0. */
int room_cgroup(const char *root, struct room *r, struct err *e);

#endif
