/* conf_keys.c - every section and key of the configuration file: what its value must be, where it goes, what it is when absent
 *
 * To: conf_syntax.c, conf.c. doc/sluice.conf.5 explains them to people.
 */
#include "config.h"

#include "conf_part.h"
#include "mem.h"
#include "str.h"

#include <stdio.h>
#include <string.h>

const char *const conf_pool_names[2] = { "online", "async" };

#define AT(type, field) offsetof(struct type, field)

/* clang-format off */
static const struct conf_key top_keys[] = {
    { "state_dir",    CONF_PATH,   AT(conf, state_dir),    0, 0, "/var/lib/sluice" },
    { "socket",       CONF_PATH,   AT(conf, socket),       0, 0, "/run/sluice/sluiced.sock" },
    { "listen",       CONF_LISTEN, AT(conf, listen) },
    { "auth",         CONF_METHOD, AT(conf, auth),         0, 0, "none" },
    { "log",          CONF_PATH,   AT(conf, log) },
    { "roots_input",  CONF_PATHS,  AT(conf, roots_input) },
    { "roots_output", CONF_PATHS,  AT(conf, roots_output) },
};
static const struct conf_key class_keys[] = {
    { "devices",    CONF_UINT, AT(conf_class, devices),    1, 64, "1" },
    { "memory",     CONF_SIZE, AT(conf_class, memory) },
    { "shm",        CONF_SIZE, AT(conf_class, shm),        0, 0, "64M" },
    { "nominal_ms", CONF_REAL, AT(conf_class, nominal_ms), 0, 3600e3, "0" },
    { "gpu_arch",   CONF_NAME, AT(conf_class, gpu_arch) },
    { "slurm_constraint", CONF_FEATURES, AT(conf_class, slurm_constraint) },
};
static const struct conf_key pool_keys[] = {
    { "min_good", CONF_UINT, AT(conf_pool, min_good), 0, 65536, "0" },
    { "degraded", CONF_BOOL, AT(conf_pool, degraded), 0, 0, "yes" },
    { "nice",     CONF_INT,  AT(conf_pool, nice),     -20, 19, "0" },
};
static const struct conf_key node_keys[] = {
    { "class", CONF_NAME, AT(conf_node, class_name) },
    { "pool",  CONF_WORD, AT(conf_node, pool),  0, 0, "online", "online async" },
    { "slurm", CONF_WORD, AT(conf_node, slurm), 0, 0, "none", "none observe lend" },
};
static const struct conf_key role_keys[] = {
    { "users",  CONF_TEXTS, AT(conf_role, users) },
    { "groups", CONF_TEXTS, AT(conf_role, groups) },
};
static const struct conf_key nice_rule_keys[] = {
    { "users",  CONF_TEXTS, AT(conf_nice_rule, users) },
    { "groups", CONF_TEXTS, AT(conf_nice_rule, groups) },
    { "min",    CONF_INT,   AT(conf_nice_rule, min), -20, 19, "0" },
    { "max",    CONF_INT,   AT(conf_nice_rule, max), -20, 19, "19" },
};
static const struct conf_key profile_keys[] = {
    { "shm", CONF_SIZES, AT(conf_profile, shm) },
};
static const struct conf_key worker_keys[] = {
    { "shm_dir",        CONF_PATH, AT(conf_worker, shm_dir),        0, 0, "/dev/shm" },
    { "lock_memory",    CONF_BOOL, AT(conf_worker, lock_memory),    0, 0, "no" },
    { "huge_pages",     CONF_WORD, AT(conf_worker, huge_pages),     0, 0, "no", "no yes must" },
    { "high_water",     CONF_REAL, AT(conf_worker, high_water),     0.05, 1, "0.80" },
    { "building_limit", CONF_UINT, AT(conf_worker, building_limit), 1, 64, "3" },
    { "crash_dir",      CONF_PATH, AT(conf_worker, crash_dir) },
    { "crash_limit",    CONF_SIZE, AT(conf_worker, crash_limit),    0, 0, "4G" },
    { "fail_on_loss",   CONF_BOOL, AT(conf_worker, fail_on_loss),   0, 0, "no" },
    { "stall_factor",   CONF_REAL, AT(conf_worker, stall_factor),   2, 1000, "5" },
    { "stall_min",      CONF_REAL, AT(conf_worker, stall_min),      0.1, 86400, "30" },
    { "query_timeout",  CONF_REAL, AT(conf_worker, query_timeout),  0.1, 600, "30" },
    { "memory_tolerance", CONF_SIZE, AT(conf_worker, memory_tolerance), 0, 0, "256M" },
    { "pin_must",       CONF_BOOL, AT(conf_worker, pin_must),       0, 0, "no" },
};
static const struct conf_key alarm_keys[] = {
    { "program", CONF_PATH, AT(conf_alarm, program) },
    { "timeout", CONF_REAL, AT(conf_alarm, timeout), 0.1, 3600, "10" },
};
static const struct conf_key health_keys[] = {
    { "program",         CONF_PATHS, AT(conf_health, programs) },
    { "period",          CONF_REAL,  AT(conf_health, period),          0.1, 86400, "60" },
    { "timeout",         CONF_REAL,  AT(conf_health, timeout),         0.1, 3600, "20" },
    { "user",            CONF_NAME,  AT(conf_health, user),            0, 0, "nobody" },
    { "automatic",       CONF_BOOL,  AT(conf_health, automatic),       0, 0, "yes" },
    { "clear_automatic", CONF_BOOL,  AT(conf_health, clear_automatic), 0, 0, "no" },
    { "brake_nodes",     CONF_UINT,  AT(conf_health, brake_nodes),     1, 64, "5" },
    { "brake_percent",   CONF_REAL,  AT(conf_health, brake_percent),   0, 100, "10" },
    { "brake_window",    CONF_REAL,  AT(conf_health, brake_window),    1, 31536000, "3600" },
    { "verify_sample",   CONF_REAL,  AT(conf_health, verify_sample),   0, 1, "0" },
    { "disk_min",        CONF_SIZE,  AT(conf_health, disk_min) },
    { "memory_min",      CONF_SIZE,  AT(conf_health, memory_min) },
};
static const struct conf_key slurm_keys[] = {
    { "reason_prefix", CONF_NAME, AT(conf_slurm, reason_prefix), 0, 0, "sluice" },
    { "poll",          CONF_REAL, AT(conf_slurm, poll),          0.05, 60, "1" },
    { "timeout",       CONF_REAL, AT(conf_slurm, timeout),       0.1, 600, "15" },
    { "settle",        CONF_REAL, AT(conf_slurm, settle),        0, 3600, "10" },
    { "partition",     CONF_NAME, AT(conf_slurm, partition) },
    { "account",       CONF_NAME, AT(conf_slurm, account) },
    { "max_leases",    CONF_UINT, AT(conf_slurm, max_leases),    0, 65536, "0" },
    { "lease_time",    CONF_REAL, AT(conf_slurm, lease_time),    60, 31536000, "3600" },
    { "lease_nice",    CONF_INT,  AT(conf_slurm, lease_nice),    -10000, 10000, "0" },
    { "program",       CONF_PATH, AT(conf_slurm, program) },
    { "conf",          CONF_PATH, AT(conf_slurm, conf) },
    { "forget",        CONF_BOOL, AT(conf_slurm, forget),        0, 0, "no" },
};
static const struct conf_key limits_keys[] = {
    { "clients",         CONF_UINT,  AT(conf_limits, clients),         1, 65536, "256" },
    { "read_share",      CONF_REAL,  AT(conf_limits, read_share),      0.01, 1, "0.25" },
    { "queue",           CONF_UINT,  AT(conf_limits, queue),           1, 16777216, "4096" },
    { "attempts",        CONF_UINT,  AT(conf_limits, attempts),        1, 100, "3" },
    { "deaths",          CONF_UINT,  AT(conf_limits, deaths),          1, 100, "3" },
    { "part_timeout",    CONF_REAL,  AT(conf_limits, part_timeout),    0.01, 3600, "1" },
    { "pull_timeout",    CONF_REAL,  AT(conf_limits, pull_timeout),    0.01, 3600, "1" },
    { "process_timeout", CONF_REAL,  AT(conf_limits, process_timeout), 0.01, 86400, "120" },
    { "deliver_timeout", CONF_REAL,  AT(conf_limits, deliver_timeout), 0.01, 86400, "60" },
    { "contact_timeout", CONF_REAL,  AT(conf_limits, contact_timeout), 0.1, 3600, "4" },
    { "lock_timeout",    CONF_REAL,  AT(conf_limits, lock_timeout), 0.1, 3600, "35" },
    { "grace",           CONF_REAL,  AT(conf_limits, grace),           0, 3600, "10" },
    { "resize_timeout",  CONF_REAL,  AT(conf_limits, resize_timeout),  0.1, 86400, "900" },
    { "run_tfs",         CONF_COUNT, AT(conf_limits, run_tfs),         1, 1e12, "1000000" },
    { "job_tfs",         CONF_COUNT, AT(conf_limits, job_tfs),         0, 1e12, "5000000" },
    { "job_age",         CONF_REAL,  AT(conf_limits, job_age),         1, 1e10, "7776000" },
};


/* clang-format on */

/* --- titles --------------------------------------------------------------------------------- */

static int title_name(const char *title, struct err *e)
{
    return str_is_name(title) ? 0 : err_set(e, ERR_USAGE, "a name is wanted");
}

static int title_pool(const char *title, struct err *e)
{
    for (unsigned i = 0; i < ARRAY_LEN(conf_pool_names); i++)
        if (strcmp(title, conf_pool_names[i]) == 0)
            return 0;
    return err_set(e, ERR_USAGE, "the pools are online and async");
}

static int title_role(const char *title, struct err *e)
{
    static const char *const roles[] = { "read", "shift", "expert", "admin", "worker" };

    for (unsigned i = 0; i < ARRAY_LEN(roles); i++)
        if (strcmp(title, roles[i]) == 0)
            return 0;
    return err_set(e, ERR_USAGE, "the roles are read, shift, expert, admin and worker");
}

static int title_nodes(const char *title, struct err *e)
{
    struct hostlist *names = hostlist_parse(title, NULL, NULL, e);
    size_t n = names != NULL ? hostlist_count(names) : 0;

    if (names != NULL && n == 0)
        err_set(e, ERR_USAGE, "no name");
    hostlist_destroy(names);
    return n > 0 ? 0 : -1;
}

/* --- what no key can tell alone ------------------------------------------------------------- */

static int check_node(struct conf *c, void *section, struct err *e)
{
    struct conf_node *n = section;

    n->names = hostlist_parse(n->list, NULL, NULL, e);
    if (n->names == NULL)
        return -1;
    if (n->class_name == NULL)
        return err_set(e, ERR_USAGE, "node %s: class is missing", n->list);
    if (conf_class_find(c, n->class_name) == NULL)
        return err_set(e, ERR_USAGE, "node %s: there is no class '%s'", n->list, n->class_name);
    for (size_t i = 0; i < hostlist_count(n->names); i++) {
        const char *name = hostlist_name(n->names, i);

        if (hostlist_has(c->names, name))
            return err_set(e, ERR_USAGE, "node %s is given twice", name);
        if (hostlist_add(c->names, name, e) < 0)
            return -1;
    }
    return 0;
}

/* Every class that it names is there, once. */
static int check_profile(struct conf *c, void *section, struct err *e)
{
    const struct conf_profile *p = section;

    for (unsigned i = 0; i < p->n_shm; i++) {
        size_t n = strcspn(p->shm[i], "=");
        char class[64];

        snprintf(class, sizeof(class), "%.*s", (int)n, p->shm[i]);
        if (conf_class_find(c, class) == NULL)
            return err_set(e, ERR_USAGE, "profile %s: there is no class '%s'", p->name, class);
        for (unsigned k = 0; k < i; k++)
            if (strncmp(p->shm[k], p->shm[i], n + 1) == 0)
                return err_set(e, ERR_USAGE, "profile %s: class %s is given twice", p->name, class);
    }
    return 0;
}

static int check_nice_rule(struct conf *c, void *section, struct err *e)
{
    const struct conf_nice_rule *r = section;

    (void)c;
    if (r->min > r->max)
        return err_set(e, ERR_USAGE, "nice_rule %s: min %d is above max %d", r->name, r->min, r->max);
    return 0;
}

/* --- the sections --------------------------------------------------------------------------- */

#define KEYS(name) name##_keys, ARRAY_LEN(name##_keys)
#define ONE(name)          { #name, CONF_ONE, AT(conf, name), sizeof(struct conf_##name), KEYS(name), NULL, NULL }
#define MANY(name, field, title, check) \
    { #name, CONF_MANY, AT(conf, field), sizeof(struct conf_##name), KEYS(name), title, check }

const struct conf_section conf_sections[CONF_SECTIONS] = {
    { NULL, CONF_ONE, 0, sizeof(struct conf), KEYS(top), NULL, NULL },
    ONE(limits),
    ONE(worker),
    ONE(health),
    ONE(alarm),
    ONE(slurm),
    { "pool", CONF_BOTH, AT(conf, pools), sizeof(struct conf_pool), KEYS(pool), title_pool, NULL },
    MANY(class,     classes,    title_name,  NULL),
    MANY(node,      nodes,      title_nodes, check_node),
    MANY(role,      roles,      title_role,  NULL),
    MANY(nice_rule, nice_rules, title_name,  check_nice_rule),
    MANY(profile,   profiles,   title_name,  check_profile),
};

#define FITS(name) _Static_assert(ARRAY_LEN(name##_keys) < CONF_KEYS_MAX, "room for the options of a section")
FITS(top);
FITS(health);
FITS(limits);
