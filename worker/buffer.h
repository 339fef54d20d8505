/* buffer.h - the shared file that holds TFs: SHM_DIR/sluice-FARM-NODE.buffer (proto/shm_layout.h)
 *
 * Opening checks the room, adopts what a crashed worker left, reserves and faults every page: in a thread, minutes for hundreds of
 * GiB. Afterwards no access can end in SIGBUS, whoever fills the file system. Removes what an earlier worker of this node left under
 * another name.
 */
#ifndef SLUICE_BUFFER_H
#define SLUICE_BUFFER_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>
#include "err.h"
#include "range.h"

enum { BUFFER_LEAST = 65536 };                    /* bytes */

struct buffer_conf {
    struct ev_loop *loop;
    const char *shm_dir, *run_dir, *farm, *node;     /* copied */
    uint64_t size;                                   /* of the data, bytes */
    const char *huge_pages;                          /* no, yes, must; lives on */
    bool     lock;                                   /* its pages stay in memory */
    int      nice;                                   /* of the thread */
    const char *room_root;                           /* "" but in tests: see room.h */
    /* In the loop, once a buffer_open and once a buffer_resize. why NULL: the buffer is there, and as wanted. Else an open one is what it was, and of
     * one that is not buffer_word() says what kind of trouble that is. */
    void   (*opened)(void *arg, const struct err *why);
    void    *arg;
};
struct buffer;

struct buffer *buffer_create(const struct buffer_conf *conf, struct err *e);
/* From which NUMA domains its pages are to come, a bit each, in turn; 0: any. Before buffer_open. */
void  buffer_place(struct buffer *b, uint64_t domains);
int   buffer_open(struct buffer *b, struct err *e);  /* starts; again after a failure. ERR_STATE while it is under way or open */
/* Another size, in place: what it had stays, only what comes on top is taken and faulted. Grows the generation: who has it mapped maps it anew. ERR_STATE
 * while a range of it is taken, or it is being made. A closed one is opened with that size. */
int   buffer_resize(struct buffer *b, uint64_t size, struct err *e);
/* remove: the file goes too. Else it stays for the next worker of this node to adopt. */
void  buffer_destroy(struct buffer *b, bool remove);

bool  buffer_is_open(const struct buffer *b);        /* and can be used: not while it gets another size */
const char *buffer_word(const struct buffer *b);     /* ShmShort, ShmInUse, ShmFailed; Starting while it opens, Resizing; "" when open */
const char *buffer_path(const struct buffer *b);
uint64_t buffer_size(const struct buffer *b);        /* 0 while not open */
uint64_t buffer_generation(const struct buffer *b);
uint64_t buffer_progress(const struct buffer *b);        /* grows while its thread makes or changes it */
bool  buffer_was_adopted(const struct buffer *b);
uint64_t buffer_freed(const struct buffer *b);       /* bytes of left-over segments removed by buffer_open */

uint64_t buffer_domains_wanted(const struct buffer *b);
const char *buffer_domains(const struct buffer *b);  /* where the pages are: "0", "0 75 %, 1 25 %"; "" when not open, or not known */
bool  buffer_is_misplaced(const struct buffer *b);

const char *buffer_huge_wanted(const struct buffer *b);
/* Of its pages, bytes, as /proc/self/smaps says, when it was made or got its size; 0: not open, or not known. */
uint64_t buffer_page_size(const struct buffer *b);
uint64_t buffer_huge(const struct buffer *b);        /* so many of its bytes are in huge pages */

struct ranges *buffer_ranges(struct buffer *b);      /* NULL while not open */
void *buffer_at(struct buffer *b, uint64_t offset);  /* of the data */
/* A descriptor of its own that can only be read, for a child; the caller closes it. The lock does not travel with it. */
int   buffer_reader(const struct buffer *b, struct err *e);

#endif
