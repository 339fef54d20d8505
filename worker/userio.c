/* userio.c - files of users are opened with their owner's rights
 *
 * From: intake.c, deliver.c, in their threads.  To: the kernel.
 * glibc's setgroups would change every thread; the system call changes the one that makes it. Supplementary groups come from the
 * user data base, which may be slow: only threads that may block call this.
 */
#include "config.h"
#include "userio.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_GROUPS = 128 };

static __thread bool became;

static int groups_of(uid_t uid, gid_t gid, gid_t *groups)
{
    struct passwd pw, *found = NULL;
    char text[4096];
    int n = MAX_GROUPS;

    groups[0] = gid;
    if (getpwuid_r(uid, &pw, text, sizeof text, &found) != 0 || found == NULL)
        return 1;
    if (getgrouplist(pw.pw_name, gid, groups, &n) < 0)
        return MAX_GROUPS;                       /* the first ones of more */
    return n;
}

int user_become(const struct user_id *u)
{
    gid_t groups[MAX_GROUPS];

    if (!u->set || geteuid() != 0 || u->uid == 0)
        return 0;
    int n = groups_of(u->uid, u->gid, groups);
    if (syscall(SYS_setgroups, (size_t)n, groups) < 0)
        return -1;
    became = true;
    setfsgid(u->gid);
    setfsuid(u->uid);
    if ((uid_t)setfsuid((uid_t)-1) != u->uid) {
        user_return();
        return -1;
    }
    return 0;
}

void user_return(void)
{
    if (!became)
        return;
    became = false;
    setfsuid(0);
    setfsgid(getegid());
    if (syscall(SYS_setgroups, (size_t)0, NULL) < 0)
        abort();                                 /* a thread of root with a user's groups must not go on */
}
