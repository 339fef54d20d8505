/* rights.c - roles, users and groups to one right
 *
 * From: the configuration.  To: session.c.
 * Groups are numbers here: names were looked up once, when the configuration was read.
 */
#include "config.h"

#include "rights.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log.h"
#include "mem.h"

const char *const right_name[RIGHT_ADMIN + 1] = { "none", "read", "shift", "expert", "admin" };

enum { WORKER_ROLE = RIGHT_ADMIN + 1 };

struct role {
    int right;                           /* enum right, or WORKER_ROLE */
    char **users;
    unsigned n_users;
    gid_t *groups;
    unsigned n_groups;
};

struct rights {
    struct role *roles;
    unsigned n_roles;
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

static int role_fill(struct role *out, const struct conf_role *in, struct err *e)
{
    if (role_parse(in->name, &out->right, e) < 0)
        return -1;
    out->users = mem_array(in->n_users + 1, sizeof(*out->users));
    for (; out->n_users < in->n_users; out->n_users++)
        out->users[out->n_users] = mem_strdup(in->users[out->n_users]);
    out->groups = mem_array(in->n_groups + 1, sizeof(*out->groups));
    for (unsigned i = 0; i < in->n_groups; i++) {
        if (group_number(in->groups[i], &out->groups[out->n_groups]) == 0)
            out->n_groups++;
        else
            log_warning("role %s: group '%s' is not known on this machine; nobody gets the role by it", in->name, in->groups[i]);
    }
    return 0;
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
    return r;
}

void rights_destroy(struct rights *r)
{
    if (r == NULL)
        return;
    for (unsigned i = 0; i < r->n_roles; i++) {
        for (unsigned u = 0; u < r->roles[i].n_users; u++)
            free(r->roles[i].users[u]);
        free(r->roles[i].users);
        free(r->roles[i].groups);
    }
    free(r->roles);
    free(r);
}

static bool is_owner(const struct rights *r, uid_t uid)
{
    return uid == 0 || uid == r->own;
}

static bool is_in(const struct role *role, const char *user, const gid_t *groups, unsigned n)
{
    for (unsigned i = 0; i < role->n_users; i++) {
        if (user[0] != '\0' && strcmp(role->users[i], user) == 0)
            return true;
    }
    for (unsigned i = 0; i < role->n_groups; i++) {
        for (unsigned g = 0; g < n; g++) {
            if (role->groups[i] == groups[g])
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

        if (role->right != WORKER_ROLE && role->right > best && is_in(role, user, groups, n))
            best = role->right;
    }
    return best;
}

bool rights_is_worker(const struct rights *r, uid_t uid, const char *user, const gid_t *groups, unsigned n)
{
    if (is_owner(r, uid))
        return true;
    for (unsigned i = 0; i < r->n_roles; i++) {
        if (r->roles[i].right == WORKER_ROLE && is_in(&r->roles[i], user, groups, n))
            return true;
    }
    return false;
}
