/* slurm_part.h - what slurm_farm.c, slurm_marks.c and slurm_lend.c share */
#ifndef SLUICE_SLURM_PART_H
#define SLUICE_SLURM_PART_H

#include "slurm_farm.h"
#include "slurm_link.h"
#include "slurm_rules.h"

enum slurm_mode { SLURM_OBSERVE, SLURM_LEND, SLURM_LEAVE };     /* leave: it was, and nothing of ours is to stay behind in Slurm */
enum slurm_mark { SLURM_MARK_STATE, SLURM_MARK_RESERVATION, SLURM_MARK_JOBS, SLURM_MARKS };

enum lease_state { LEASE_NONE, LEASE_QUEUED, LEASE_HELD };
extern const char *const lease_word[LEASE_HELD + 1];

struct slurm_try {
    double again_at, wait_s;             /* monotonic s: when it may be asked next, and how long it waits after it failed */
    char trouble[300];                   /* why it did */
};

/* One that was done (slurm_undone.c). */
struct slurm_did { bool stands; int64_t boot; unsigned undone; double undone_at; };

struct node_slurm {
    enum slurm_mode mode;
    bool taken;                          /* by the reading of the configuration under way */
    bool was_lent;                       /* it leaves, and Slurm may have jobs there */
    bool asked_for;                      /* a whole look with this node in it was answered */
    Sluice__SlurmNode *says;             /* NULL: nothing was heard, or Slurm does not know it (asked_for) */
    bool reserved;                       /* our reservation is there */
    int64_t reserved_end;                /* wall ns */
    char foreign[64], foreign_users[64]; /* somebody else's reservation */
    bool foreign_maint;
    int64_t bad_boot;                    /* of the slurmctld that said last that it is bad */
    unsigned clean[SLURM_MARKS];         /* looks in a row without what the mark is about */
    bool acting; Sluice__SlurmAct act;   /* a command is under way, or which one was the last */
    bool sent_drain; char sent_reason[512];              /* with which words last */
    bool resv_heard;                     /* reserved is what Slurm said */
    struct slurm_did done[SLURM_ACTS];
    int64_t acted;                       /* monotonic ns of the last answer to a command: looks asked before are too old */
    struct slurm_try tries[SLURM_ACTS];  /* of each kind of command: none waits for another that fails */
    struct { const struct move *move; int to; bool urgent, given; } hand;        /* slurm_lend.c; given: nothing of ours is there any more */
    Sluice__Parking parking; uint64_t parking_order;     /* what its worker was told last (slurm_park.c) */
    char waits[160];                     /* slurm_waits_for */
    enum lease_state lease;              /* slurm_lease.c */
    bool lease_heard, lease_wanted, lease_next, lease_over, lease_evicted;       /* next: wanted, while that is being decided among all; over: it ends soon; evicted: what was there was sent elsewhere */
    uint32_t lease_job;
    int64_t lease_end;                   /* wall ns, 0: not known */
    char lease_why[64], lease_never[400];                /* slurm_lease_never */
    uint64_t lease_for;                  /* the job of ours that it was asked for */
    double worked_at;                    /* monotonic s: when there was work for it last */
    char **jobs; unsigned n_jobs;        /* of Slurm: to be sent away, or requeued and not let go on yet */
};

struct slurm {
    struct sluiced *d;
    struct slurm_link *link;             /* NULL: no node takes part */
    char *program, *conf; double timeout_s;      /* of the link */
    ev_timer look, soon;                 /* soon: some node waits for less than a look */
    char *names;                         /* host list of those that take part */
    unsigned n_nodes;
    bool lends;                          /* some of them are lent */
    bool begun;                          /* the configuration was taken before */
    bool names_old;                      /* some have left */
    bool known;                          /* on our disk: something of ours may be in Slurm */
    double heard, started;               /* monotonic s of the last answer, 0 = never */
    int64_t heard_wall;
    char why[512];                       /* of the last look that failed since then */
    int64_t boot; double up_since;       /* of slurmctld: its start, and when we first saw it */
    char version[32];
};

bool slurm_is_settled(const struct slurm *s);            /* slurmctld was up for so long that what it does not say any more is over */
/* slurm_farm.c */
void slurm_said(void *arg, const Sluice__SlurmState *m, int64_t asked);       /* the answer to a look */
void slurm_silent(void *arg, const struct err *why);     /* there was none */
const char *slurm_trouble(const struct node_slurm *ns);  /* why something that is wanted of Slurm is not done; NULL: nothing of the kind */
void slurm_says_set(struct node_slurm *ns, const Sluice__SlurmNode *w);
/* slurm_conf.c */
extern const char slurm_setting[];                       /* in our store: "on" while something of ours may be in Slurm */
extern const char slurm_boot_setting[];                  /* and the start of the slurmctld that answered last */
void slurm_names_fold(struct slurm *s);                  /* those that have left are not asked about any more */
void slurm_leave_check(struct node *n);                  /* it leaves once nothing of ours is there */
/* slurm_marks.c: a look, or an answer about n: marks come and go by it. */
void slurm_marks_take(struct node *n, bool counts);
bool slurm_wants_drain(const struct node *n, char reason[512]);
/* slurm_lease.c */
bool slurm_lease_works(const struct node *n);
const char *slurm_lease_constraint(const struct node *n);        /* of its class; NULL: none */
const char *slurm_lease_never(const struct node *n);     /* why Slurm would refuse one for good; NULL: it would not */
void slurm_leases_take(struct slurm *s, const Sluice__SlurmState *m, int64_t asked);
void slurm_lease_answer(struct node *n, const Sluice__SlurmLease *l);
void slurm_leases_want(struct slurm *s);
/* slurm_lend.c */
bool slurm_wants_reservation(const struct node *n);
bool slurm_wants_clear_out(const struct node *n);
void slurm_reservation_name(const struct node *n, char out[80]);
void slurm_jobs_set(struct node_slurm *ns, char *const *jobs, size_t n);
/* slurm_undone.c */
void slurm_was_done(struct node *n, Sluice__SlurmAct act);
void slurm_undone_check(struct node *n, Sluice__SlurmAct act);   /* it is due: somebody else has undone it if it stood */
const char *slurm_undone(const struct node *n, unsigned *often); /* what somebody else does to it again and again; NULL: nothing */

bool slurm_may_be_lent(const struct node *n);            /* Slurm may have it: also while it leaves */

/* slurm_park.c */
bool slurm_is_parked(const struct node *n);              /* its worker has said that nothing of ours is on the devices */
void slurm_park_check(struct node *n);                   /* told anew when it is another thing now */
bool slurm_is_heard(const struct node *n);               /* its worker can say so */
bool slurm_is_handed(const struct node *n, int to);      /* slurm_lend.c: by the move that is as far as that */
bool slurm_lease_may_go(const struct node *n);           /* nothing of ours is there that it protects */

#endif
