/* rights.h - who may do what: roles of the configuration, users and groups
 *
 * Without roles: the user who runs sluiced and root are admin, everybody else reads. With roles: each user has the highest role that
 * names them or a group of theirs; who is in none reads, unless a role `read` is there and leaves them out. Root and the user who runs
 * sluiced stay admin, so that nobody locks the door from outside. The role `worker` names users whose processes may register as workers and sources.
 */
#ifndef SLUICE_RIGHTS_H
#define SLUICE_RIGHTS_H

#include <sys/types.h>
#include "session.h"

extern const char *const right_name[RIGHT_ADMIN + 1];

struct rights;
/* Looks groups up by name, which may take long: at start-up or in a helper thread. A group that nobody knows is left out with a warning. */
struct rights *rights_create(const struct conf *conf, struct err *e);
void rights_destroy(struct rights *r);
enum right rights_of(const struct rights *r, uid_t uid, const char *user, const gid_t *groups, unsigned n);
/* Nice levels that the rules allow them, all that name them together. false: none does. */
bool rights_nice_range(const struct rights *r, const char *user, const gid_t *groups, unsigned n, int *min, int *max);
bool rights_is_worker(const struct rights *r, uid_t uid, const char *user, const gid_t *groups, unsigned n);

#endif
