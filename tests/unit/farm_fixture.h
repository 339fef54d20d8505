/* farm_fixture.h - sluiced's farm half in this process, with peers that speak the real protocol to it over its Unix socket
 *
 * Daemon and peers share one loop; every wait runs it until something is true, for at most WAIT_S.
 */
#ifndef SLUICE_FARM_FIXTURE_H
#define SLUICE_FARM_FIXTURE_H

#include "flow_double.h"
#include "sluiced.h"

#include <sys/types.h>

#define WAIT_S 10

struct fixture {
    struct ev_loop *loop;
    char dir[64];
    struct sluiced d;
    bool up;
    pid_t child;
    struct peer *peers;                  /* those that are open */
};

struct peer {                            /* one connection of ours to the daemon */
    struct fixture *f;
    struct peer *next;
    struct connector *c;
    bool ready, gone;
    struct err why;                      /* of being gone */
    uint32_t last_id;
    unsigned got[256];                   /* messages by type */
    uint32_t answer_id;
    unsigned answer_type;
    ProtobufCMessage *answer;            /* to the last question */
    ProtobufCMessage *settings, *registered;      /* the last of each */
    const char *parks;                   /* serial of the device of a worker that does as Settings say of it (worker_parks) */
    bool leaks;                          /* its memory does not come free */
};

/* conf: text of the configuration, state_dir and socket are put over it. */
void fx_open(struct fixture *f, const char *conf);       /* makes the folder and the configuration */
struct fixture *fx_new(const char *conf);                /* an opened one, for a test's state; fx_teardown closes and frees it */
int  fx_teardown(void **state);
void fx_start(struct fixture *f);
void fx_stop(struct fixture *f);
/* The same daemon in a process of its own, to be killed. */
void fx_start_child(struct fixture *f);
void fx_kill_child(struct fixture *f);                   /* SIGKILL, and waits until it is gone */
void fx_close(struct fixture *f);                        /* closes the peers that are left, stops, removes the folder */
void fx_again(struct fixture *f);                        /* the same peers leave, it stops and starts */
void fx_conf(struct fixture *f, const char *conf);
const char *fx_path(struct fixture *f, const char *name);        /* of a file in the folder; valid until the next call */

bool fx_until(struct fixture *f, bool (*is)(void *arg), void *arg);
void fx_turn(struct fixture *f, double seconds);         /* lets the loop run so long */

struct peer *peer_connect(struct fixture *f, Sluice__Role role, const char *name);     /* fails the test when it is not let in */
struct peer *peer_try(struct fixture *f, Sluice__Role role, const char *name);         /* ready or gone */
struct peer *peer_connect_shifted(struct fixture *f, Sluice__Role role, const char *name, int64_t shift_ns);      /* its wall clock is off */
void peer_close(struct peer *p);
/* Sends and waits for the answer, which is the peer's. */
const ProtobufCMessage *peer_ask(struct peer *p, const ProtobufCMessage *m);
void peer_tell(struct peer *p, const ProtobufCMessage *m);
bool peer_until_gone(struct peer *p);
struct peer *person(struct fixture *f);                  /* a client */
/* The daemon's session of that name. */
struct session *fx_session(struct fixture *f, const char *name);

/* A worker: registers and is answered. */
struct registration { const char *node, *class, *boot; uint64_t start, connection; const char *serial; uint64_t buffer; };
struct peer *worker_register(struct fixture *f, const struct registration *r);
struct peer *simple_worker(struct fixture *f, const char *node);
/* From now on it says in reports that its device is parked, or works, as it was told last. */
void worker_parks(struct peer *p, const char *serial);
void worker_reports(struct peer *p);
const ProtobufCMessage *worker_say(struct peer *p, const struct registration *r);

/* Common questions. Each returns the code of the answer, 0 for one that was done; text of an error in p->answer. */
int  ask_mark(struct peer *p, const char *node, const char *reason, const char *part);
int  ask_clear(struct peer *p, const char *node, uint64_t id, bool any_owner, bool repeat_ok);
int  ask_move(struct peer *p, const char *node, const char *to, const char *when);
const Sluice__Node *ask_node(struct peer *p, const char *node);
int  answer_code(const struct peer *p);
const char *answer_text(const struct peer *p);
const char *answer_word(const struct peer *p);
bool node_has_why(const Sluice__Node *n, const char *word);

#endif
