/* shm_layout.h - the buffer file of a worker: shared memory is a wire format too
 *
 * FILE = SHM_DIR/sluice-FARM-NODE.buffer. One head page, then the data. Only the worker writes the head and gives out ranges;
 * reconstruction processes map the data read-only and check magic, version and generation of every request against the head.
 */
#ifndef SLUICE_SHM_LAYOUT_H
#define SLUICE_SHM_LAYOUT_H

#include <stdint.h>

#define SHM_MAGIC   UINT64_C(0x0031465542434C53)     /* "SLCBUF1" */
#define SHM_VERSION 1
#define SHM_HEAD    UINT64_C(4096)                   /* data begin here */
#define SHM_ALIGN   UINT64_C(64)                     /* of every part */

struct shm_head {
    uint64_t magic;
    uint32_t version, head_size;
    uint64_t size;                                   /* of the data, bytes */
    uint64_t generation;                             /* grows with every resize and adoption */
    uint64_t owner_pid, owner_start;                 /* of the worker: file_owner of base/file.h */
    char     owner_boot[40];
    char     farm[64], node[64];
    uint64_t created;                                /* wall ns */
    uint64_t faulted;                                /* bytes known to be backed by memory */
};

#endif
