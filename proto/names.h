/* names.h - the name thread: munge, users and groups, DNS; everything that may hang in somebody else's code
 *
 * One thread a process, asked from the loop, answers in the loop. Each question has a deadline: when it passes, the asker hears ERR_TIMEOUT,
 * the late answer is dropped, and a thread that hangs is shown (names_stuck_s) and not asked more than a bounded queue.
 */
#ifndef SLUICE_NAMES_H
#define SLUICE_NAMES_H

#include <ev.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "err.h"

struct names;

struct names *names_create(struct ev_loop *loop, struct err *e);
void   names_destroy(struct names *n);                   /* does not wait for a hanging question */
double names_stuck_s(const struct names *n);             /* for how long the thread has been busy with one question; 0: it is not */
int    names_munge_socket(struct names *n, const char *path, struct err *e);       /* of munged; not called: munge's own default */

/* Each returns a handle for names_cancel, or NULL when the queue is full (e). */
struct name_question;
void names_cancel(struct name_question *q);              /* the callback will not come */

struct name_answer {
    int code; struct err why;                            /* ERR_NONE: the fields of the question are set */
    uid_t uid; gid_t gid; char user[64];                 /* munge decode, user lookup */
    void *data; size_t size;                             /* munge encode: credential; decode: payload */
    gid_t groups[64]; unsigned n_groups;
    struct sockaddr_storage addr[8]; socklen_t addr_len[8]; unsigned n_addr;     /* resolve: all of them, to be tried in turn */
};
typedef void (*name_done)(void *arg, const struct name_answer *a);

struct name_question *names_encode(struct names *n, const void *payload, size_t size, double limit_s, name_done done, void *arg, struct err *e);
struct name_question *names_decode(struct names *n, const void *cred, size_t size, double limit_s, name_done done, void *arg, struct err *e);
struct name_question *names_user(struct names *n, uid_t uid, double limit_s, name_done done, void *arg, struct err *e);
struct name_question *names_resolve(struct names *n, const char *host, const char *port, double limit_s, name_done done, void *arg, struct err *e);

#endif
