/* userio.h - files of users are opened with their owner's rights, not with the worker's
 *
 * Only when the worker is root; else it has no more rights than its own and the user's are whatever these allow. File rights on Linux belong to the thread:
 * others go on as before.
 */
#ifndef SLUICE_USERIO_H
#define SLUICE_USERIO_H

#include <stdbool.h>
#include <sys/types.h>

struct user_id { bool set; uid_t uid; gid_t gid; };

int  user_become(const struct user_id *u);       /* in the thread that calls; -1: could not, and nothing changed */
void user_return(void);

#endif
