/* conf.c - the configuration file: tables of keys in, a checked struct conf out
 *
 * From: a file or a text.  To: every program; conf_show writes the same tables back.
 * libconfuse reads the syntax and hands every value over as text; the rows below say what it must be, where
 * it goes and what it is when absent. A key or section that has no row is an error. Values are checked while
 * they are read, so that an error knows its line. Nothing half read ever leaves this file.
 */
#include "config.h"

#include "conf.h"
#include "file.h"
#include "mem.h"
#include "str.h"

#include <confuse.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONF_MAX_BYTES = 16 << 20 };

/* --- the tables ----------------------------------------------------------------------------- */

enum kind {
    PATH,       /* char *, begins with '/' */
    TEXT,       /* char *, no control characters */
    WORD,       /* char *, one of words */
    NAME,       /* char *, str_is_name */
    LISTEN,     /* char *, HOST:PORT */
    METHOD,     /* char *, none, munge or munge:SOCKET */
    SIZE,       /* uint64_t bytes */
    COUNT,      /* uint64_t */
    UINT,       /* unsigned */
    INT,        /* int */
    REAL,       /* double */
    BOOL,       /* bool */
    PATHS,      /* char ** and unsigned right after it */
    TEXTS,
    SIZES,      /* the same, each CLASS=SIZE */
};

struct key {
    const char *name;
    enum kind   kind;
    size_t      offset;
    double      min, max;       /* of numbers */
    const char *def;            /* NULL = zero */
    const char *words;          /* "none observe lend" */
};

#define AT(type, field) offsetof(struct type, field)

/* clang-format off */
static const struct key top_keys[] = {
    { "state_dir",    PATH,   AT(conf, state_dir),    0, 0, "/var/lib/sluice" },
    { "socket",       PATH,   AT(conf, socket),       0, 0, "/run/sluice/sluiced.sock" },
    { "listen",       LISTEN, AT(conf, listen) },
    { "auth",         METHOD, AT(conf, auth),         0, 0, "none" },
    { "log",          PATH,   AT(conf, log) },
    { "roots_input",  PATHS,  AT(conf, roots_input) },
    { "roots_output", PATHS,  AT(conf, roots_output) },
};
static const struct key class_keys[] = {
    { "devices",    UINT, AT(conf_class, devices),    1, 64, "1" },
    { "memory",     SIZE, AT(conf_class, memory) },
    { "shm",        SIZE, AT(conf_class, shm),        0, 0, "64M" },
    { "nominal_ms", REAL, AT(conf_class, nominal_ms), 0, 3600e3, "0" },
    { "gpu_arch",   NAME, AT(conf_class, gpu_arch) },
};
static const struct key pool_keys[] = {
    { "min_good", UINT, AT(conf_pool, min_good), 0, 65536, "0" },
    { "degraded", BOOL, AT(conf_pool, degraded), 0, 0, "yes" },
    { "nice",     INT,  AT(conf_pool, nice),     -20, 19, "0" },
};
static const struct key node_keys[] = {
    { "class", NAME, AT(conf_node, class_name) },
    { "pool",  WORD, AT(conf_node, pool),  0, 0, "online", "online async" },
    { "slurm", WORD, AT(conf_node, slurm), 0, 0, "none", "none observe lend" },
};
static const struct key role_keys[] = {
    { "users",  TEXTS, AT(conf_role, users) },
    { "groups", TEXTS, AT(conf_role, groups) },
};
static const struct key nice_rule_keys[] = {
    { "users",  TEXTS, AT(conf_nice_rule, users) },
    { "groups", TEXTS, AT(conf_nice_rule, groups) },
    { "min",    INT,   AT(conf_nice_rule, min), -20, 19, "0" },
    { "max",    INT,   AT(conf_nice_rule, max), -20, 19, "19" },
};
static const struct key profile_keys[] = {
    { "shm", SIZES, AT(conf_profile, shm) },
};
static const struct key worker_keys[] = {
    { "shm_dir",        PATH, AT(conf_worker, shm_dir),        0, 0, "/dev/shm" },
    { "lock_memory",    BOOL, AT(conf_worker, lock_memory),    0, 0, "no" },
    { "huge_pages",     WORD, AT(conf_worker, huge_pages),     0, 0, "no", "no yes must" },
    { "high_water",     REAL, AT(conf_worker, high_water),     0.05, 1, "0.80" },
    { "building_limit", UINT, AT(conf_worker, building_limit), 1, 64, "3" },
    { "crash_dir",      PATH, AT(conf_worker, crash_dir) },
    { "crash_limit",    SIZE, AT(conf_worker, crash_limit),    0, 0, "4G" },
    { "fail_on_loss",   BOOL, AT(conf_worker, fail_on_loss),   0, 0, "no" },
    { "stall_factor",   REAL, AT(conf_worker, stall_factor),   2, 1000, "5" },
    { "stall_min",      REAL, AT(conf_worker, stall_min),      0.1, 86400, "30" },
    { "query_timeout",  REAL, AT(conf_worker, query_timeout),  0.1, 600, "30" },
    { "memory_tolerance", SIZE, AT(conf_worker, memory_tolerance), 0, 0, "256M" },
    { "pin_must",       BOOL, AT(conf_worker, pin_must),       0, 0, "no" },
};
static const struct key alarm_keys[] = {
    { "program", PATH, AT(conf_alarm, program) },
    { "timeout", REAL, AT(conf_alarm, timeout), 0.1, 3600, "10" },
};
static const struct key health_keys[] = {
    { "program",         PATHS, AT(conf_health, programs) },
    { "period",          REAL,  AT(conf_health, period),          0.1, 86400, "60" },
    { "timeout",         REAL,  AT(conf_health, timeout),         0.1, 3600, "20" },
    { "user",            NAME,  AT(conf_health, user),            0, 0, "nobody" },
    { "automatic",       BOOL,  AT(conf_health, automatic),       0, 0, "yes" },
    { "clear_automatic", BOOL,  AT(conf_health, clear_automatic), 0, 0, "no" },
    { "brake_nodes",     UINT,  AT(conf_health, brake_nodes),     1, 64, "5" },
    { "brake_percent",   REAL,  AT(conf_health, brake_percent),   0, 100, "10" },
    { "brake_window",    REAL,  AT(conf_health, brake_window),    1, 31536000, "3600" },
    { "verify_sample",   REAL,  AT(conf_health, verify_sample),   0, 1, "0" },
    { "disk_min",        SIZE,  AT(conf_health, disk_min) },
    { "memory_min",      SIZE,  AT(conf_health, memory_min) },
};
static const struct key slurm_keys[] = {
    { "reason_prefix", NAME, AT(conf_slurm, reason_prefix), 0, 0, "sluice" },
    { "poll",          REAL, AT(conf_slurm, poll),          0.05, 60, "1" },
    { "timeout",       REAL, AT(conf_slurm, timeout),       0.1, 600, "15" },
    { "settle",        REAL, AT(conf_slurm, settle),        0, 3600, "10" },
    { "partition",     NAME, AT(conf_slurm, partition) },
    { "account",       NAME, AT(conf_slurm, account) },
    { "max_leases",    UINT, AT(conf_slurm, max_leases),    0, 65536, "0" },
    { "lease_time",    REAL, AT(conf_slurm, lease_time),    60, 31536000, "3600" },
    { "lease_nice",    INT,  AT(conf_slurm, lease_nice),    -10000, 10000, "0" },
    { "program",       PATH, AT(conf_slurm, program) },
    { "conf",          PATH, AT(conf_slurm, conf) },
};
static const struct key limits_keys[] = {
    { "clients",         UINT,  AT(conf_limits, clients),         1, 65536, "256" },
    { "read_share",      REAL,  AT(conf_limits, read_share),      0.01, 1, "0.25" },
    { "queue",           UINT,  AT(conf_limits, queue),           1, 16777216, "4096" },
    { "attempts",        UINT,  AT(conf_limits, attempts),        1, 100, "3" },
    { "deaths",          UINT,  AT(conf_limits, deaths),          1, 100, "3" },
    { "part_timeout",    REAL,  AT(conf_limits, part_timeout),    0.01, 3600, "1" },
    { "pull_timeout",    REAL,  AT(conf_limits, pull_timeout),    0.01, 3600, "1" },
    { "process_timeout", REAL,  AT(conf_limits, process_timeout), 0.01, 86400, "120" },
    { "deliver_timeout", REAL,  AT(conf_limits, deliver_timeout), 0.01, 86400, "60" },
    { "contact_timeout", REAL,  AT(conf_limits, contact_timeout), 0.1, 3600, "4" },
    { "lock_timeout",    REAL,  AT(conf_limits, lock_timeout), 0.1, 3600, "35" },
    { "grace",           REAL,  AT(conf_limits, grace),           0, 3600, "10" },
    { "resize_timeout",  REAL,  AT(conf_limits, resize_timeout),  0.1, 86400, "900" },
    { "run_tfs",         COUNT, AT(conf_limits, run_tfs),         0, 1e12, "1000000" },
    { "job_tfs",         COUNT, AT(conf_limits, job_tfs),         0, 1e12, "5000000" },
    { "job_age",         REAL,  AT(conf_limits, job_age),         1, 1e10, "7776000" },
};

enum section_id { CLASS, POOL, NODE, ROLE, NICE_RULE, PROFILE, WORKER, HEALTH, ALARM, SLURM, LIMITS, SECTIONS };
static const struct section {
    const char *name;
    bool titled;
    const struct key *keys;
    size_t n_keys;
} sections[SECTIONS] = {
    [CLASS]  = { "class",  true,  class_keys,  ARRAY_LEN(class_keys) },
    [POOL]   = { "pool",   true,  pool_keys,   ARRAY_LEN(pool_keys) },
    [NODE]   = { "node",   true,  node_keys,   ARRAY_LEN(node_keys) },
    [ROLE]   = { "role",   true,  role_keys,   ARRAY_LEN(role_keys) },
    [NICE_RULE] = { "nice_rule", true, nice_rule_keys, ARRAY_LEN(nice_rule_keys) },
    [PROFILE] = { "profile", true, profile_keys, ARRAY_LEN(profile_keys) },
    [WORKER] = { "worker", false, worker_keys, ARRAY_LEN(worker_keys) },
    [ALARM]  = { "alarm",  false, alarm_keys,  ARRAY_LEN(alarm_keys) },
    [SLURM]  = { "slurm",  false, slurm_keys,  ARRAY_LEN(slurm_keys) },
    [HEALTH] = { "health", false, health_keys, ARRAY_LEN(health_keys) },
    [LIMITS] = { "limits", false, limits_keys, ARRAY_LEN(limits_keys) },
};
/* clang-format on */

static const char *const pool_names[2] = { "online", "async" };
static const char role_words[] = "read shift expert admin worker";

/* --- one value ------------------------------------------------------------------------------ */

static bool has_word(const char *words, const char *text)
{
    size_t n = strlen(text);

    for (const char *p = words; n > 0 && (p = strstr(p, text)) != NULL; p += n)
        if ((p == words || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

static bool has_control(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++)
        if (*p < 0x20 || *p == 0x7f)
            return true;
    return false;
}

static int wrong(const struct key *k, const char *text, const char *wanted, struct err *e)
{
    struct str shown = { 0 };

    str_escape(&shown, text, strnlen(text, 200));
    err_set(e, ERR_USAGE, "%s '%s': %s is wanted", k->name, str_text(&shown), wanted);
    str_free(&shown);
    return -1;
}

static int check_path(const struct key *k, const char *text, struct err *e)
{
    if (text[0] != '/' || has_control(text) || strlen(text) >= 4096)
        return wrong(k, text, "an absolute path", e);
    return 0;
}

static int check_text(const struct key *k, const char *text, struct err *e)
{
    if (text[0] == '\0' || has_control(text))
        return wrong(k, text, "a text without control characters", e);
    return 0;
}

/* The size behind CLASS=. */
static int read_class_size(const char *text, uint64_t *size, struct err *e)
{
    const char *equals = strchr(text, '=');
    char class[64];

    if (equals == NULL || equals == text || equals - text >= (int)sizeof(class))
        return err_set(e, ERR_USAGE, "CLASS=SIZE is wanted");
    snprintf(class, sizeof(class), "%.*s", (int)(equals - text), text);
    if (!str_is_name(class))
        return err_set(e, ERR_USAGE, "'%s' is no name of a class", class);
    return str_parse_size(equals + 1, size, e);
}

static int check_class_size(const struct key *k, const char *text, struct err *e)
{
    uint64_t size;

    if (read_class_size(text, &size, e) < 0)
        return err_prefix(e, "%s '%.100s'", k->name, text);
    return size >= 65536 ? 0 : wrong(k, text, "a size of 64K at least", e);
}

static int check_listen(const struct key *k, const char *text, struct err *e)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon == NULL || colon == text || has_control(text) || strchr(text, ' ') != NULL)
        return wrong(k, text, "HOST:PORT", e);
    return str_parse_u64("port in listen", colon + 1, 1, 65535, &port, e);
}

static int check_method(const struct key *k, const char *text, struct err *e)
{
    if (has_word("none munge", text) || (strncmp(text, "munge:/", 7) == 0 && !has_control(text)))
        return 0;
    return wrong(k, text, "none, munge or munge:SOCKET", e);
}

static int read_bool(const struct key *k, const char *text, bool *value, struct err *e)
{
    if (has_word("yes true on", text))
        *value = true;
    else if (has_word("no false off", text))
        *value = false;
    else
        return wrong(k, text, "yes or no", e);
    return 0;
}

static int keep_string(int checked, const char *text, void *to)
{
    if (checked < 0)
        return -1;
    free(*(char **)to);
    *(char **)to = mem_strdup(text);
    return 0;
}

/* Checks text and puts it at to, which has the type of the row's kind (not for lists). */
static int read_value(const struct key *k, const char *text, void *to, struct err *e)
{
    char wanted[80];
    uint64_t u;
    int64_t i;

    switch (k->kind) {
    case PATH:
    case PATHS:
        return keep_string(check_path(k, text, e), text, to);
    case TEXT:
    case TEXTS:
        return keep_string(check_text(k, text, e), text, to);
    case SIZES:
        return keep_string(check_class_size(k, text, e), text, to);
    case LISTEN:
        return keep_string(check_listen(k, text, e), text, to);
    case METHOD:
        return keep_string(check_method(k, text, e), text, to);
    case NAME:
        return keep_string(str_is_name(text) ? 0 : wrong(k, text, "a name", e), text, to);
    case WORD:
        snprintf(wanted, sizeof(wanted), "one of: %s", k->words);
        return keep_string(has_word(k->words, text) ? 0 : wrong(k, text, wanted, e), text, to);
    case SIZE:
        return str_parse_size(text, to, e) < 0 ? err_prefix(e, "%s", k->name) : 0;
    case COUNT:
        return str_parse_u64(k->name, text, (uint64_t)k->min, (uint64_t)k->max, to, e);
    case UINT:
        if (str_parse_u64(k->name, text, (uint64_t)k->min, (uint64_t)k->max, &u, e) < 0)
            return -1;
        *(unsigned *)to = (unsigned)u;
        return 0;
    case INT:
        if (str_parse_i64(k->name, text, (int64_t)k->min, (int64_t)k->max, &i, e) < 0)
            return -1;
        *(int *)to = (int)i;
        return 0;
    case REAL:
        return str_parse_f64(k->name, text, k->min, k->max, to, e);
    case BOOL:
        return read_bool(k, text, to, e);
    }
    return err_set(e, ERR_FAILED, "%s: no such kind of key", k->name);
}

static bool is_string(enum kind kind)
{
    return kind == PATH || kind == TEXT || kind == WORD || kind == NAME || kind == LISTEN || kind == METHOD;
}

static bool is_list(enum kind kind)
{
    return kind == PATHS || kind == TEXTS || kind == SIZES;
}

static unsigned *list_count(const struct key *k, char *base)
{
    return (unsigned *)(base + k->offset + sizeof(char **));
}

static void list_free(const struct key *k, char *base)
{
    char **list = *(char ***)(base + k->offset);

    for (unsigned i = 0; list != NULL && i < *list_count(k, base); i++)
        free(list[i]);
    free(list);
}

static int list_read(cfg_t *cfg, const struct key *k, char *base, struct err *e)
{
    unsigned n = cfg_size(cfg, k->name);
    char **list = mem_array(n + 1, sizeof(*list));      /* NULL ends it */

    *(char ***)(base + k->offset) = list;
    for (unsigned i = 0; i < n; i++) {
        *list_count(k, base) = i + 1;
        if (read_value(k, cfg_getnstr(cfg, k->name, i), &list[i], e) < 0)
            return -1;
    }
    return 0;
}

/* Fills the struct at base from the section; absent keys get their default. */
static int read_keys(cfg_t *cfg, const struct key *keys, size_t n, void *base, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct key *k = &keys[i];
        const char *text;

        if (is_list(k->kind)) {
            if (list_read(cfg, k, base, e) < 0)
                return -1;
            continue;
        }
        text = cfg != NULL ? cfg_getstr(cfg, k->name) : NULL;
        if (text == NULL)
            text = k->def;
        if (text != NULL && read_value(k, text, (char *)base + k->offset, e) < 0)
            return -1;
    }
    return 0;
}

static void free_keys(const struct key *keys, size_t n, void *base)
{
    for (size_t i = 0; i < n; i++) {
        if (is_string(keys[i].kind))
            free(*(char **)((char *)base + keys[i].offset));
        else if (is_list(keys[i].kind))
            list_free(&keys[i], base);
    }
}

/* --- libconfuse ----------------------------------------------------------------------------- */

/* What libconfuse's callbacks, which carry no argument, need: the reading that is going on in this thread. */
static _Thread_local struct reading {
    const char *name;           /* of the file, for messages */
    struct err *e;
    bool failed;                /* e holds the first error */
    bool ended;                 /* END_KEY was seen */
    int listen_line;            /* where listen stands */
    struct seen { cfg_opt_t *opt; unsigned n; char *last; bool closed; } *seen;     /* options that were given */
    size_t n_seen;
} reading;

/* Stands behind the text that is read. libconfuse takes an open section, quote or comment at the end of a file in silence;
 * then this key is met inside a section, or not at all. */
#define END_KEY "end of the file"

static void complain(int line, const char *text)
{
    struct str shown = { 0 };

    if (reading.failed)
        return;
    reading.failed = true;
    str_escape(&shown, text, strlen(text));
    err_set(reading.e, ERR_USAGE, "%s:%d: %s", reading.name, line, str_text(&shown));
    str_free(&shown);
}

static void on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
    char text[400];

    vsnprintf(text, sizeof(text), fmt, ap);
    if (strstr(text, END_KEY) != NULL)
        snprintf(text, sizeof(text), "the file ends before a section is closed by '}'");
    complain(cfg != NULL ? cfg->line : 0, text);
}

/* Refuses a key given twice: libconfuse would let the last one win in silence. It calls for a list after each element
 * and once more at its end, then with nothing new. */
static bool first_time(cfg_t *cfg, cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt);
    const char *last = n > 0 ? cfg_opt_getnstr(opt, n - 1) : NULL;
    struct seen *s = NULL;
    char text[120];

    for (size_t i = 0; i < reading.n_seen && s == NULL; i++)
        if (reading.seen[i].opt == opt)
            s = &reading.seen[i];
    if (s == NULL) {
        reading.seen = mem_grow(reading.seen, reading.n_seen + 1, sizeof(*reading.seen));
        reading.seen[reading.n_seen++] = (struct seen){ opt, n, mem_strdup(last), n == 0 };
        return true;
    }
    if (s->closed || !(opt->flags & CFGF_LIST) || n < s->n || (n == s->n && !str_equal(last, s->last))) {
        snprintf(text, sizeof(text), "%s is given twice", opt->name);
        complain(cfg->line, text);
        return false;
    }
    s->closed = n == s->n;
    s->n = n;
    free(s->last);
    s->last = mem_strdup(last);
    return true;
}

static void forget_seen(void)
{
    for (size_t i = 0; i < reading.n_seen; i++)
        free(reading.seen[i].last);
    free(reading.seen);
    reading.seen = NULL;
    reading.n_seen = 0;
}

static const struct key *key_of(const cfg_t *cfg, const char *name)
{
    const struct key *keys = top_keys;
    size_t n = ARRAY_LEN(top_keys);

    for (size_t s = 0; s < SECTIONS; s++) {
        if (str_equal(sections[s].name, cfg->name)) {
            keys = sections[s].keys;
            n = sections[s].n_keys;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i].name, name) == 0)
            return &keys[i];
    return NULL;
}

/* A value has been read: check it while the line is known. */
static int on_value(cfg_t *cfg, cfg_opt_t *opt)
{
    const struct key *k = key_of(cfg, opt->name);
    struct err why = { 0 };
    union { char *text; uint64_t u; double d; } scratch;

    if (strcmp(opt->name, END_KEY) == 0) {
        reading.ended = true;
        return 0;
    }
    if (k == NULL || !first_time(cfg, opt))
        return -1;
    if (k == key_of(cfg, "listen"))
        reading.listen_line = cfg->line;
    for (unsigned i = 0; i < cfg_opt_size(opt); i++) {
        const char *text = cfg_opt_getnstr(opt, i);

        memset(&scratch, 0, sizeof(scratch));
        if (read_value(k, text != NULL ? text : "", &scratch, &why) < 0) {
            complain(cfg->line, why.text);
            return -1;
        }
        if (is_string(k->kind) || is_list(k->kind))
            free(scratch.text);
    }
    return 0;
}

static int check_title(enum section_id id, const char *title, char why[160])
{
    struct err e = { 0 };
    struct hostlist *h;

    switch (id) {
    case CLASS:
    case PROFILE:
    case NICE_RULE:
        snprintf(why, 160, "%s '%.64s': a name is wanted", sections[id].name, title);
        return str_is_name(title) ? 0 : -1;
    case POOL:
        snprintf(why, 160, "pool '%.64s': the pools are online and async", title);
        return has_word("online async", title) ? 0 : -1;
    case ROLE:
        snprintf(why, 160, "role '%.64s': the roles are %s", title, role_words);
        return has_word(role_words, title) ? 0 : -1;
    case NODE:
        h = hostlist_parse(title, NULL, NULL, &e);
        snprintf(why, 160, "node: %.150s", h == NULL ? e.text : "no name");
        if (h != NULL && hostlist_count(h) == 0) {
            hostlist_destroy(h);
            return -1;
        }
        hostlist_destroy(h);
        return h != NULL ? 0 : -1;
    default:
        return 0;
    }
}

/* A section has been read: its title, and that an untitled one comes once. */
static int on_section(cfg_t *cfg, cfg_opt_t *opt)
{
    unsigned n = cfg_opt_size(opt);
    cfg_t *last = cfg_opt_getnsec(opt, n - 1);
    char why[160];

    for (size_t s = 0; s < SECTIONS; s++) {
        if (strcmp(sections[s].name, opt->name) != 0)
            continue;
        if (!sections[s].titled && n > 1) {
            snprintf(why, sizeof(why), "section %s is given twice", opt->name);
            complain(cfg->line, why);
            return -1;
        }
        if (sections[s].titled && check_title((enum section_id)s, cfg_title(last), why) < 0) {
            complain(cfg->line, why);
            return -1;
        }
    }
    return 0;
}

static void fill_options(cfg_opt_t *opts, const struct key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        cfg_opt_t one = CFG_STR(keys[i].name, NULL, CFGF_NONE);
        cfg_opt_t many = CFG_STR_LIST(keys[i].name, NULL, CFGF_NONE);

        opts[i] = is_list(keys[i].kind) ? many : one;
        opts[i].validcb = on_value;
    }
    opts[n] = (cfg_opt_t)CFG_END();
}

enum { KEYS_MAX = 24 };
_Static_assert(ARRAY_LEN(top_keys) + SECTIONS + 1 < 32, "room in the array of options");
_Static_assert(ARRAY_LEN(health_keys) < KEYS_MAX, "room in the array of options");
_Static_assert(ARRAY_LEN(limits_keys) < KEYS_MAX, "room in the array of options");

static cfg_t *make_parser(void)
{
    cfg_opt_t top[32], sub[SECTIONS][KEYS_MAX];     /* cfg_init copies them */
    size_t n = ARRAY_LEN(top_keys);
    cfg_t *cfg;

    fill_options(top, top_keys, n);
    for (size_t s = 0; s < SECTIONS; s++, n++) {
        cfg_flag_t flags = CFGF_MULTI | (sections[s].titled ? CFGF_TITLE | CFGF_NO_TITLE_DUPES : 0);
        cfg_opt_t section = CFG_SEC(sections[s].name, sub[s], flags);

        fill_options(sub[s], sections[s].keys, sections[s].n_keys);
        top[n] = section;
        top[n].validcb = on_section;
    }
    top[n++] = (cfg_opt_t)CFG_STR(END_KEY, NULL, CFGF_NONE);
    top[n - 1].validcb = on_value;
    top[n] = (cfg_opt_t)CFG_END();
    cfg = cfg_init(top, CFGF_NONE);
    if (cfg != NULL)
        cfg_set_error_function(cfg, on_error);
    return cfg;
}

/* --- the whole ------------------------------------------------------------------------------ */

static int at_line(const cfg_t *sec, struct err *e)
{
    return err_prefix(e, "%s:%d", reading.name, sec->line);
}

static int read_classes(struct conf *c, cfg_t *cfg, struct err *e)
{
    unsigned n = cfg_size(cfg, "class");

    c->classes = mem_array(n, sizeof(*c->classes));
    for (unsigned i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "class", i);

        c->n_classes = i + 1;
        c->classes[i].name = mem_strdup(cfg_title(sec));
        if (read_keys(sec, class_keys, ARRAY_LEN(class_keys), &c->classes[i], e) < 0)
            return at_line(sec, e);
    }
    return 0;
}

static int read_pools(struct conf *c, cfg_t *cfg, struct err *e)
{
    for (unsigned i = 0; i < 2; i++) {
        cfg_t *sec = NULL;

        for (unsigned k = 0; k < cfg_size(cfg, "pool"); k++)
            if (strcmp(cfg_title(cfg_getnsec(cfg, "pool", k)), pool_names[i]) == 0)
                sec = cfg_getnsec(cfg, "pool", k);
        c->pools[i].name = mem_strdup(pool_names[i]);
        if (read_keys(sec, pool_keys, ARRAY_LEN(pool_keys), &c->pools[i], e) < 0)
            return err_prefix(e, "%s", reading.name);
    }
    return 0;
}

static int check_node(const struct conf *c, const struct conf_node *n, struct hostlist *all, struct err *e)
{
    if (n->class_name == NULL)
        return err_set(e, ERR_USAGE, "node %s: class is missing", n->list);
    if (conf_class_find(c, n->class_name) == NULL)
        return err_set(e, ERR_USAGE, "node %s: there is no class '%s'", n->list, n->class_name);
    for (size_t i = 0; i < hostlist_count(n->names); i++) {
        const char *name = hostlist_name(n->names, i);

        if (hostlist_has(all, name))
            return err_set(e, ERR_USAGE, "node %s is given twice", name);
        if (hostlist_add(all, name, e) < 0)
            return -1;
    }
    return 0;
}

static int read_nodes(struct conf *c, cfg_t *cfg, struct err *e)
{
    unsigned n = cfg_size(cfg, "node");
    struct hostlist *all = hostlist_create();
    int r = 0;

    c->nodes = mem_array(n, sizeof(*c->nodes));
    for (unsigned i = 0; r == 0 && i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "node", i);
        struct conf_node *node = &c->nodes[i];

        c->n_nodes = i + 1;
        node->list = mem_strdup(cfg_title(sec));
        node->names = hostlist_parse(node->list, NULL, NULL, e);
        if (node->names == NULL || read_keys(sec, node_keys, ARRAY_LEN(node_keys), node, e) < 0
            || check_node(c, node, all, e) < 0)
            r = at_line(sec, e);
    }
    hostlist_destroy(all);
    return r;
}

static int read_roles(struct conf *c, cfg_t *cfg, struct err *e)
{
    unsigned n = cfg_size(cfg, "role");

    c->roles = mem_array(n, sizeof(*c->roles));
    for (unsigned i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "role", i);

        c->n_roles = i + 1;
        c->roles[i].name = mem_strdup(cfg_title(sec));
        if (read_keys(sec, role_keys, ARRAY_LEN(role_keys), &c->roles[i], e) < 0)
            return at_line(sec, e);
    }
    return 0;
}

/* Every class that it names is there, once. */
static int check_profile(const struct conf *c, const struct conf_profile *p, struct err *e)
{
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

static int read_profiles(struct conf *c, cfg_t *cfg, struct err *e)
{
    unsigned n = cfg_size(cfg, "profile");

    c->profiles = mem_array(n, sizeof(*c->profiles));
    for (unsigned i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "profile", i);
        struct conf_profile *p = &c->profiles[i];

        c->n_profiles = i + 1;
        p->name = mem_strdup(cfg_title(sec));
        if (read_keys(sec, profile_keys, ARRAY_LEN(profile_keys), p, e) < 0 || check_profile(c, p, e) < 0)
            return at_line(sec, e);
    }
    return 0;
}

static int read_nice_rules(struct conf *c, cfg_t *cfg, struct err *e)
{
    unsigned n = cfg_size(cfg, "nice_rule");

    c->nice_rules = mem_array(n, sizeof(*c->nice_rules));
    for (unsigned i = 0; i < n; i++) {
        cfg_t *sec = cfg_getnsec(cfg, "nice_rule", i);
        struct conf_nice_rule *r = &c->nice_rules[i];

        c->n_nice_rules = i + 1;
        r->name = mem_strdup(cfg_title(sec));
        if (read_keys(sec, nice_rule_keys, ARRAY_LEN(nice_rule_keys), r, e) < 0)
            return at_line(sec, e);
        if (r->min > r->max) {
            err_set(e, ERR_USAGE, "nice_rule %s: min %d is above max %d", r->name, r->min, r->max);
            return at_line(sec, e);
        }
    }
    return 0;
}

static cfg_t *only_section(cfg_t *cfg, const char *name)
{
    return cfg_size(cfg, name) > 0 ? cfg_getnsec(cfg, name, 0) : NULL;
}

static int read_all(struct conf *c, cfg_t *cfg, struct err *e)
{
    if (read_keys(cfg, top_keys, ARRAY_LEN(top_keys), c, e) < 0
        || read_keys(only_section(cfg, "worker"), worker_keys, ARRAY_LEN(worker_keys), &c->worker, e) < 0
        || read_keys(only_section(cfg, "alarm"), alarm_keys, ARRAY_LEN(alarm_keys), &c->alarm, e) < 0
        || read_keys(only_section(cfg, "health"), health_keys, ARRAY_LEN(health_keys), &c->health, e) < 0
        || read_keys(only_section(cfg, "slurm"), slurm_keys, ARRAY_LEN(slurm_keys), &c->slurm, e) < 0
        || read_keys(only_section(cfg, "limits"), limits_keys, ARRAY_LEN(limits_keys), &c->limits, e) < 0)
        return err_prefix(e, "%s", reading.name);
    if (read_classes(c, cfg, e) < 0 || read_pools(c, cfg, e) < 0 || read_nodes(c, cfg, e) < 0
        || read_roles(c, cfg, e) < 0 || read_profiles(c, cfg, e) < 0 || read_nice_rules(c, cfg, e) < 0)
        return -1;
    if (c->listen != NULL && strcmp(c->auth, "none") == 0)
        return err_set(e, ERR_USAGE, "%s:%d: listen needs a method of authentication: auth = munge", reading.name, reading.listen_line);
    if (c->health.n_programs > CONF_MOST_CHECKS)
        return err_set(e, ERR_USAGE, "%s: health.program: %u programs, at most %d are possible", reading.name, c->health.n_programs, CONF_MOST_CHECKS);
    if (c->worker.crash_dir == NULL)
        c->worker.crash_dir = mem_printf("%s/crash", c->state_dir);
    return 0;
}

struct conf *conf_parse(const char *text, const char *name, struct err *e)
{
    struct conf *c = mem_zalloc(sizeof(*c));
    cfg_t *cfg = make_parser();
    char *whole;
    int r;

    reading = (struct reading){ .name = name, .e = e };
    if (cfg == NULL) {
        err_set(e, ERR_FAILED, "%s: libconfuse has no memory", name);
        goto fail;
    }
    whole = mem_printf("%s\n'" END_KEY "' = yes\n", text);
    r = cfg_parse_buf(cfg, whole);
    free(whole);
    forget_seen();
    if (r != CFG_SUCCESS && !reading.failed)
        complain(cfg->line, "syntax error");
    else if (r == CFG_SUCCESS && !reading.ended)
        complain(cfg->line, "the file ends before a quote or comment is closed");
    if (reading.failed)
        goto fail;
    if (read_all(c, cfg, e) < 0)
        goto fail;
    cfg_free(cfg);
    return c;
fail:
    if (cfg != NULL)
        cfg_free(cfg);
    conf_destroy(c);
    return NULL;
}

struct conf *conf_read(const char *path, struct err *e)
{
    struct conf *c;
    size_t size;
    char *text;

    if (path == NULL)
        return conf_parse("", "defaults", e);
    text = file_read(path, CONF_MAX_BYTES, &size, e);
    if (text == NULL)
        return NULL;
    if (strlen(text) != size) {
        free(text);
        return err_null(e, ERR_USAGE, "%s: a zero byte stands in the text", path);
    }
    c = conf_parse(text, path, e);
    free(text);
    if (c != NULL)
        c->path = mem_strdup(path);
    return c;
}

void conf_destroy(struct conf *c)
{
    if (c == NULL)
        return;
    for (unsigned i = 0; i < c->n_classes; i++) {
        free(c->classes[i].name);
        free_keys(class_keys, ARRAY_LEN(class_keys), &c->classes[i]);
    }
    for (unsigned i = 0; i < c->n_nodes; i++) {
        free(c->nodes[i].list);
        hostlist_destroy(c->nodes[i].names);
        free_keys(node_keys, ARRAY_LEN(node_keys), &c->nodes[i]);
    }
    for (unsigned i = 0; i < c->n_roles; i++) {
        free(c->roles[i].name);
        free_keys(role_keys, ARRAY_LEN(role_keys), &c->roles[i]);
    }
    for (unsigned i = 0; i < c->n_profiles; i++) {
        free(c->profiles[i].name);
        free_keys(profile_keys, ARRAY_LEN(profile_keys), &c->profiles[i]);
    }
    for (unsigned i = 0; i < c->n_nice_rules; i++) {
        free(c->nice_rules[i].name);
        free_keys(nice_rule_keys, ARRAY_LEN(nice_rule_keys), &c->nice_rules[i]);
    }
    free(c->nice_rules);
    for (unsigned i = 0; i < 2; i++)
        free(c->pools[i].name);
    free_keys(worker_keys, ARRAY_LEN(worker_keys), &c->worker);
    free_keys(alarm_keys, ARRAY_LEN(alarm_keys), &c->alarm);
    free_keys(slurm_keys, ARRAY_LEN(slurm_keys), &c->slurm);
    free_keys(health_keys, ARRAY_LEN(health_keys), &c->health);
    free_keys(top_keys, ARRAY_LEN(top_keys), c);
    free(c->classes);
    free(c->nodes);
    free(c->roles);
    free(c->profiles);
    free(c->path);
    free(c);
}

/* --- showing -------------------------------------------------------------------------------- */

/* In single quotes, where libconfuse expands nothing but \\ and \'. */
static void show_text(struct str *s, const char *text)
{
    str_add(s, "'");
    for (; *text != '\0'; text++) {
        if (*text == '\\' || *text == '\'')
            str_add(s, "\\");
        str_addn(s, text, 1);
    }
    str_add(s, "'");
}

static void show_size(struct str *s, uint64_t bytes)
{
    char out[32];

    if (strchr(str_size_text(bytes, out), ' ') != NULL)
        str_addf(s, "%" PRIu64, bytes);
    else
        str_add(s, out);
}

static void show_real(struct str *s, double v)
{
    char text[40];

    snprintf(text, sizeof(text), "%.15g", v);
    if (strtod(text, NULL) != v)
        snprintf(text, sizeof(text), "%.17g", v);
    str_add(s, text);
}

static void show_list(struct str *s, const struct key *k, const char *base)
{
    char **list = *(char **const *)(base + k->offset);
    unsigned n = *(const unsigned *)(base + k->offset + sizeof(char **));

    str_add(s, "{ ");
    for (unsigned i = 0; i < n; i++) {
        str_add(s, i > 0 ? ", " : "");
        show_text(s, list[i]);
    }
    str_add(s, " }");
}

/* Absent: a string that is NULL, a size of 0 (which cannot be written), an empty list. */
static bool is_absent(const struct key *k, const char *p)
{
    if (is_string(k->kind))
        return *(char *const *)p == NULL;
    if (is_list(k->kind))
        return *(const unsigned *)(p + sizeof(char **)) == 0;
    return k->kind == SIZE && *(const uint64_t *)p == 0;
}

static void show_keys(struct str *s, const char *indent, const struct key *keys, size_t n, const void *base)
{
    for (size_t i = 0; i < n; i++) {
        const struct key *k = &keys[i];
        const char *p = (const char *)base + k->offset;

        if (is_absent(k, p))
            continue;
        str_addf(s, "%s%s = ", indent, k->name);
        switch (k->kind) {
        case SIZE:  show_size(s, *(const uint64_t *)p); break;
        case COUNT: str_addf(s, "%" PRIu64, *(const uint64_t *)p); break;
        case UINT:  str_addf(s, "%u", *(const unsigned *)p); break;
        case INT:   str_addf(s, "%d", *(const int *)p); break;
        case REAL:  show_real(s, *(const double *)p); break;
        case BOOL:  str_add(s, *(const bool *)p ? "yes" : "no"); break;
        case PATHS:
        case TEXTS:
        case SIZES: show_list(s, k, base); break;
        default:    show_text(s, *(char *const *)p); break;
        }
        str_add(s, "\n");
    }
}

static void show_section(struct str *s, enum section_id id, const char *title, const void *base)
{
    str_addf(s, "\n%s ", sections[id].name);
    if (title != NULL) {
        show_text(s, title);
        str_add(s, " ");
    }
    str_add(s, "{\n");
    show_keys(s, "    ", sections[id].keys, sections[id].n_keys, base);
    str_add(s, "}\n");
}

char *conf_show(const struct conf *c)
{
    struct str s = { 0 };

    show_keys(&s, "", top_keys, ARRAY_LEN(top_keys), c);
    show_section(&s, LIMITS, NULL, &c->limits);
    show_section(&s, WORKER, NULL, &c->worker);
    show_section(&s, HEALTH, NULL, &c->health);
    show_section(&s, ALARM, NULL, &c->alarm);
    show_section(&s, SLURM, NULL, &c->slurm);
    for (unsigned i = 0; i < 2; i++)
        show_section(&s, POOL, c->pools[i].name, &c->pools[i]);
    for (unsigned i = 0; i < c->n_classes; i++)
        show_section(&s, CLASS, c->classes[i].name, &c->classes[i]);
    for (unsigned i = 0; i < c->n_nodes; i++)
        show_section(&s, NODE, c->nodes[i].list, &c->nodes[i]);
    for (unsigned i = 0; i < c->n_roles; i++)
        show_section(&s, ROLE, c->roles[i].name, &c->roles[i]);
    for (unsigned i = 0; i < c->n_nice_rules; i++)
        show_section(&s, NICE_RULE, c->nice_rules[i].name, &c->nice_rules[i]);
    for (unsigned i = 0; i < c->n_profiles; i++)
        show_section(&s, PROFILE, c->profiles[i].name, &c->profiles[i]);
    return str_take(&s);
}

const struct conf_class *conf_class_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_classes; i++)
        if (strcmp(c->classes[i].name, name) == 0)
            return &c->classes[i];
    return NULL;
}

const struct conf_profile *conf_profile_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].name, name) == 0)
            return &c->profiles[i];
    return NULL;
}

uint64_t conf_profile_size(const struct conf_profile *p, const char *class)
{
    size_t n = strlen(class);
    uint64_t size;

    for (unsigned i = 0; i < p->n_shm; i++)
        if (strncmp(p->shm[i], class, n) == 0 && p->shm[i][n] == '=' && read_class_size(p->shm[i], &size, NULL) == 0)
            return size;
    return 0;
}

const struct conf_node *conf_node_find(const struct conf *c, const char *name)
{
    for (unsigned i = 0; i < c->n_nodes; i++)
        if (hostlist_has(c->nodes[i].names, name))
            return &c->nodes[i];
    return NULL;
}
