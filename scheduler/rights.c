/* rights.c - roles, users and groups to one right
 *
 * From: the configuration.  To: session.c.
 * Groups are numbers here: names were looked up once, when the configuration was read.
 */
#include "config.h"

#include "rights.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"

const char *const right_name[RIGHT_ADMIN + 1] = { "none", "read", "shift", "expert", "admin" };

enum { WORKER_ROLE = RIGHT_ADMIN + 1 };

struct people { char **users; unsigned n_users; gid_t *groups; unsigned n_groups; };

struct role { int right; struct people people; };              /* right: enum right, or WORKER_ROLE */
struct nice_rule { int min, max; struct people people; };

struct rights {
    struct role *roles;
    unsigned n_roles;
    struct nice_rule *rules;
    unsigned n_rules;
    uid_t own;
    bool read_is_named;
};

static int role_parse(const char *name, int *right, struct err *e)
{
    for (int r = RIGHT_READ; r <= RIGHT_ADMIN; r++) {
        if (strcmp(name, right_name[r]) == 0) {
            *right = r;
            return 0;
        }
    }
    if (strcmp(name, "worker") != 0)
        return err_set(e, ERR_USAGE, "role '%s': the roles are read, shift, expert, admin and worker", name);
    *right = WORKER_ROLE;
    return 0;
}

/* 0 and the number, or -1: nobody knows it. */
static int group_number(const char *name, gid_t *gid)
{
    char buffer[16384];
    struct group entry, *found = NULL;

    if (getgrnam_r(name, &entry, buffer, sizeof(buffer), &found) != 0 || found == NULL)
        return -1;
    *gid = found->gr_gid;
    return 0;
}

static void people_fill(struct people *out, const char *what, char *const *users, unsigned n_users, char *const *groups, unsigned n_groups)
{
    out->users = mem_array(n_users + 1, sizeof(*out->users));
    for (; out->n_users < n_users; out->n_users++)
        out->users[out->n_users] = mem_strdup(users[out->n_users]);
    out->groups = mem_array(n_groups + 1, sizeof(*out->groups));
    for (unsigned i = 0; i < n_groups; i++) {
        if (group_number(groups[i], &out->groups[out->n_groups]) == 0)
            out->n_groups++;
        else
            log_warning("%s: group '%s' is not known on this machine; nobody is named by it", what, groups[i]);
    }
}

static void people_free(struct people *p)
{
    for (unsigned u = 0; u < p->n_users; u++)
        free(p->users[u]);
    free(p->users);
    free(p->groups);
}

static int role_fill(struct role *out, const struct conf_role *in, struct err *e)
{
    char what[100];

    if (role_parse(in->name, &out->right, e) < 0)
        return -1;
    snprintf(what, sizeof(what), "role %.80s", in->name);
    people_fill(&out->people, what, in->users, in->n_users, in->groups, in->n_groups);
    return 0;
}

static void rule_fill(struct nice_rule *out, const struct conf_nice_rule *in)
{
    char what[100];

    snprintf(what, sizeof(what), "nice_rule %.80s", in->name);
    people_fill(&out->people, what, in->users, in->n_users, in->groups, in->n_groups);
    out->min = in->min;
    out->max = in->max;
}

struct rights *rights_create(const struct conf *conf, struct err *e)
{
    struct rights *r = mem_zalloc(sizeof(*r));

    r->own = geteuid();
    r->roles = mem_array(conf->n_roles + 1, sizeof(*r->roles));
    for (unsigned i = 0; i < conf->n_roles; i++) {
        struct role *it = &r->roles[r->n_roles++];

        if (role_fill(it, &conf->roles[i], e) < 0) {
            rights_destroy(r);
            return NULL;
        }
        r->read_is_named |= it->right == RIGHT_READ;
    }
    r->rules = mem_array(conf->n_nice_rules + 1, sizeof(*r->rules));
    for (; r->n_rules < conf->n_nice_rules; r->n_rules++)
        rule_fill(&r->rules[r->n_rules], &conf->nice_rules[r->n_rules]);
    return r;
}

void rights_destroy(struct rights *r)
{
    if (r == NULL)
        return;
    for (unsigned i = 0; i < r->n_roles; i++)
        people_free(&r->roles[i].people);
    for (unsigned i = 0; i < r->n_rules; i++)
        people_free(&r->rules[i].people);
    free(r->roles);
    free(r->rules);
    free(r);
}

static bool is_owner(const struct rights *r, uid_t uid)
{
    return uid == 0 || uid == r->own;
}

static bool is_in(const struct people *p, const char *user, const gid_t *groups, unsigned n)
{
    for (unsigned i = 0; i < p->n_users; i++) {
        if (user[0] != '\0' && strcmp(p->users[i], user) == 0)
            return true;
    }
    for (unsigned i = 0; i < p->n_groups; i++) {
        for (unsigned g = 0; g < n; g++) {
            if (p->groups[i] == groups[g])
                return true;
        }
    }
    return false;
}

enum right rights_of(const struct rights *r, uid_t uid, const char *user, const gid_t *groups, unsigned n)
{
    int best = r->read_is_named ? RIGHT_NONE : RIGHT_READ;

    if (is_owner(r, uid))
        return RIGHT_ADMIN;
    for (unsigned i = 0; i < r->n_roles; i++) {
        const struct role *role = &r->roles[i];

        if (role->right != WORKER_ROLE && role->right > best && is_in(&role->people, user, groups, n))
            best = role->right;
    }
    return best;
}

bool rights_is_worker(const struct rights *r, uid_t uid, const char *user, const gid_t *groups, unsigned n)
{
    if (is_owner(r, uid))
        return true;
    for (unsigned i = 0; i < r->n_roles; i++) {
        if (r->roles[i].right == WORKER_ROLE && is_in(&r->roles[i].people, user, groups, n))
            return true;
    }
    return false;
}

bool rights_nice_range(const struct rights *r, const char *user, const gid_t *groups, unsigned n, int *min, int *max)
{
    bool named = false;

    for (unsigned i = 0; i < r->n_rules; i++) {
        const struct nice_rule *rule = &r->rules[i];

        if (!is_in(&rule->people, user, groups, n))
            continue;
        *min = named && *min < rule->min ? *min : rule->min;
        *max = named && *max > rule->max ? *max : rule->max;
        named = true;
    }
    return named;
}
