/* conf.h - the configuration file (libconfuse syntax), the same for every program; doc/sluice.conf.5 lists the keys
 *
 * Reading is all or nothing: an unknown key, a value out of range or two nodes of one name is an error with file and line, and the
 * caller keeps what it had. Strings belong to the struct conf.
 */
#ifndef SLUICE_CONF_H
#define SLUICE_CONF_H

#include <stdbool.h>
#include <stdint.h>
#include "err.h"
#include "hostlist.h"

struct conf_class {
    char     *name;
    unsigned  devices;          /* a node, 1..64 */
    uint64_t  memory;           /* of a node, bytes; 0 = not checked */
    uint64_t  shm;              /* buffer a node, bytes */
    double    nominal_ms;       /* > 0: emulated on the CPU, a TF is held to this service time; 0 = a real device */
    char     *gpu_arch;
    char     *slurm_constraint; /* features that Slurm must know of a node for a lease of it; NULL: any */
};
struct conf_pool { char *name; unsigned min_good; bool degraded; int nice; };        /* online, async: both always exist */
struct conf_node { char *list; struct hostlist *names; char *class_name, *pool; char *slurm; };
struct conf_role { char *name; char **users; unsigned n_users; char **groups; unsigned n_groups; };
/* Sizes of buffers by class, for `shm set --profile`; "CLASS=SIZE" in the file. */
struct conf_profile { char *name; char **shm; unsigned n_shm; };
/* Nice levels that these may set, of any pool. */
struct conf_nice_rule { char *name; char **users; unsigned n_users; char **groups; unsigned n_groups; int min, max; };
struct conf_worker {
    char    *shm_dir;           /* default /dev/shm */
    bool     lock_memory;       /* the buffer is never swapped out */
    char    *huge_pages;        /* no, yes (with small ones where there are none), must */
    double   high_water;        /* 0.05..1, default 0.80 */
    unsigned building_limit;    /* 1..64, default 3 */
    char    *crash_dir;         /* default STATE_DIR/crash */
    uint64_t crash_limit;       /* bytes kept in all, default 4G */
    bool     fail_on_loss;
    double   stall_factor;      /* 2..1000, default 5: times the usual time of a TF without progress that make a stall */
    double   stall_min;         /* s, default 30: never sooner */
    double   query_timeout;     /* s for an answer about devices, default 30: a driver may take long to start */
    uint64_t memory_tolerance;  /* bytes above its baseline that a device may have in use when it is offered, default 256M */
    bool     pin_must;          /* a device for which the buffer cannot be pinned is refused, default no: it goes on, slower */
};
enum { CONF_MOST_CHECKS = 16 };
struct conf_alarm {             /* section alarm { }: who is called when an alarm is raised or over */
    char    *program;           /* NULL: nobody */
    double   timeout;           /* s that it may take, default 10 */
};
struct conf_health {            /* section health { } */
    char   **programs; unsigned n_programs;    /* key program: checks that every worker runs; default none */
    double   period, timeout;   /* s between the starts of a check, default 60; of a check, default 20 */
    char    *user;              /* whom they run as when the worker is root, default nobody */
    bool     automatic;         /* nodes are marked by what is found, default yes */
    bool     clear_automatic;   /* and what was found is taken back when it is over, default no */
    unsigned brake_nodes;       /* at most so many of a pool are marked in a window, 1..64, default 5 */
    double   brake_percent;     /* and at most so much of it, default 10; one always may */
    double   brake_window;      /* s, default 3600 */
    double   verify_sample;     /* share of TFs that are made again elsewhere */
    uint64_t disk_min;          /* bytes free below which a node is marked, default 0: not looked at */
    uint64_t memory_min;        /* the same for memory */
};
struct conf_slurm {             /* section slurm { }: the Slurm beside us, for nodes with slurm = observe or lend */
    char    *reason_prefix;     /* how the reasons that we set in Slurm begin, default sluice */
    double   poll;              /* s between two looks, default 1 */
    double   timeout;           /* s for an answer of the helper before it is replaced, default 15: more than Slurm's MessageTimeout */
    double   settle;            /* s that slurmctld must have been up before what it no longer says clears a mark, default 10 */
    char    *partition, *account;       /* of leases; NULL: Slurm's default */
    unsigned max_leases;        /* jobs that hold nodes of Slurm for async work of ours, default 0: none is asked for */
    double   lease_time;        /* s that one lasts, default 3600, whole minutes */
    int      lease_nice;        /* of these jobs, default 0 */
    char    *program;           /* the helper; NULL: sluice-slurm beside sluiced, or where it is installed */
    char    *conf;              /* Slurm's configuration; NULL: where libslurm looks */
    bool     forget;            /* what is ours in Slurm is left there: that Slurm is gone */
};
struct conf_limits {            /* section limits { } at the top */
    unsigned clients;           /* connections of people, default 256 */
    double   read_share;        /* of the loop's time, that questions may take */
    unsigned queue;             /* TFs waiting in a run, default 4096 */
    unsigned attempts;          /* of a TF, default 3 */
    unsigned deaths;            /* processes that die of a TF before it is set aside, default 3 */
    double   part_timeout;      /* s from the first to the last announced part of a TF, default 1 */
    double   pull_timeout;      /* s without progress of a pull, default 1 */
    double   process_timeout;   /* s in a reconstruction process, default 120 */
    double   deliver_timeout;   /* s of a delivery without progress before it shows as stalled, default 60 */
    double   contact_timeout;   /* s without a sign of life, default 4 */
    double   lock_timeout;      /* s that another process may hold the database's lock before marks and new work are refused, default 35 */
    double   grace;             /* s that a lost worker's TFs wait for it after a restart of sluiced, default 10 */
    double   resize_timeout;    /* s without progress of a worker that gives its buffer another size, default 900 */
    uint64_t run_tfs;           /* settled TFs kept a run in the history, default 1000000 */
    uint64_t job_tfs;           /* TFs and files of jobs that are over, of which details are kept, default 5000000 */
    double   job_age;           /* s after its end that a job's details are kept at most, default 90 days */
};

struct conf {
    char  *path;                /* of the file, NULL = defaults */
    char  *state_dir;           /* default /var/lib/sluice */
    char  *socket;              /* default /run/sluice/sluiced.sock */
    char  *listen;              /* HOST:PORT or NULL; needs auth */
    char  *auth;                /* "none" (Unix socket only), "munge", or "munge:SOCKET" of a munged elsewhere */
    char  *log;                 /* file or NULL = stderr */
    char **roots_input;  unsigned n_roots_input;     /* default: any */
    char **roots_output; unsigned n_roots_output;
    struct conf_class *classes; unsigned n_classes;
    struct conf_pool   pools[2];                     /* [0] online, [1] async */
    struct conf_node  *nodes;   unsigned n_nodes;
    struct hostlist   *names;                        /* of all nodes */
    struct conf_role  *roles;   unsigned n_roles;
    struct conf_profile *profiles; unsigned n_profiles;
    struct conf_nice_rule *nice_rules; unsigned n_nice_rules;
    struct conf_worker worker;
    struct conf_health health;
    struct conf_alarm  alarm;
    struct conf_slurm  slurm;
    struct conf_limits limits;
};

struct conf *conf_read(const char *path, struct err *e);       /* NULL path = all defaults */
struct conf *conf_parse(const char *text, const char *name, struct err *e);
void  conf_destroy(struct conf *c);
char *conf_show(const struct conf *c);                         /* as a file that conf_parse takes; caller frees */
const struct conf_class *conf_class_find(const struct conf *c, const char *name);
const struct conf_profile *conf_profile_find(const struct conf *c, const char *name);
uint64_t conf_profile_size(const struct conf_profile *p, const char *class);     /* bytes; 0: it has none for that class */
/* Class and pool that the configuration gives a node, NULL when it names no such node. */
const struct conf_node *conf_node_find(const struct conf *c, const char *name);

#endif
