/* work.h - a run or a job as RunOpen told of it: what its TFs are done with */
#ifndef SLUICE_WORK_H
#define SLUICE_WORK_H

#include <stdbool.h>
#include <stdint.h>
#include <uthash.h>
#include "err.h"
#include "runkey.h"
#include "sluice.pb-c.h"

struct work {
    UT_hash_handle hh;
    struct { uint64_t run, job; } key;           /* one of them is 0 */
    char    *name, *owner, *workflow, *backends, *options;     /* owner: "" where nobody says */
    char    *recipe;                             /* workflow, backends and options in one string: equal recipes are done alike */
    char    *output;                             /* "": nothing is delivered */
    bool     has_key;
    uint8_t  secret[RUNKEY_SIZE];
    double   pull_timeout, process_timeout, deliver_timeout;      /* s */
    double   time_limit;                         /* s of a try in a reconstruction process; 0: none */
    bool     has_owner;
    uid_t    uid; gid_t gid;
    bool     has_nice;                           /* a level of its own */
    int      nice;
    unsigned users;                              /* TFs and connections that point here */
    bool     closed;
};

struct works { struct work *table; };

/* Makes it, or brings it up to date; sets nothing that a message leaves out but the defaults of `limits`. -1: the message is not sound. */
struct conf_limits;
struct work *works_open(struct works *s, const Sluice__RunOpen *m, const struct conf_limits *limits, struct err *e);
struct work *works_find(struct works *s, uint64_t run, uint64_t job);
void works_close(struct works *s, struct work *w);          /* gone as soon as nobody uses it */
/* A new registration: sluiced opens again what is still on; the rest goes as soon as nobody uses it. */
void works_lapse(struct works *s);
void works_free(struct works *s);
struct work *work_use(struct work *w);
void work_unuse(struct works *s, struct work *w);           /* NULL is fine */

#endif
