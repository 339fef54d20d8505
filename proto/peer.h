/* peer.h - who is at the other end: listening, connecting, the handshake HELLO WELCOME (AUTH) READY
 *
 * address: "unix:PATH" (or a bare path with a '/'), "HOST:PORT", "[V6]:PORT"; without a port PEER_PORT, without a host (":7000", "*:7000") all
 * addresses of the machine. TCP needs a method ("munge", or "munge:SOCKET" when munged listens elsewhere): a listener without one is refused. Names are resolved and munge is asked by the name thread (names.h), never by the loop. A mismatch of versions ends in
 * ERR_PROTOCOL with a sentence naming both.
 */
#ifndef SLUICE_PEER_H
#define SLUICE_PEER_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "chan.h"

struct names;                                             /* names.h */

#define PEER_PORT "7447"

struct peer_id {
    bool     local;                                       /* Unix socket */
    uid_t    uid; gid_t gid; pid_t pid;                   /* of the process (Unix) or the credential (munge; pid 0) */
    char     user[64];                                    /* its number when it has no name */
    gid_t    groups[64]; unsigned n_groups;               /* that it belongs to by the user database */
    char     address[80];
    double   clock_offset;                                /* s, theirs minus ours */
};

/* The listener's side: called when a peer is known. The callee owns chan and sets its events (chan_set_owner). hello lives for the call. READY has not been sent: the
 * callee answers with peer_ready (or chan_send_error and chan_close_after_send). */
typedef void (*peer_accepted)(void *arg, struct chan *c, const struct peer_id *id, const Sluice__Hello *hello);

struct listener_conf {
    struct ev_loop *loop;  struct names *names;
    const char *address;  const char *method;             /* NULL or "munge" */
    uint64_t    epoch;
    unsigned    max_pending;                              /* handshakes in progress, default 64 */
    double      handshake_s;                              /* deadline, default 5 */
    struct chan_limits limits;
    mode_t      mode;                                     /* of a Unix socket, default 0666: who may do what is decided by peer credentials */
    peer_accepted accepted;  void *arg;
    /* May be NULL: a peer of another protocol version is refused, with this reason. Nobody knows yet whether it is who it says. */
    void (*mismatched)(void *arg, const Sluice__Hello *hello, const char *why);
};
/* A stale socket file is replaced when nobody listens on it; a live one is ERR_STATE. Out of descriptors: accept pauses with back-off, a reserved
 * descriptor lets it say so to the peer, logged once. */
struct listener *listener_create(const struct listener_conf *conf, struct err *e);
void  listener_destroy(struct listener *l);
const char *listener_address(const struct listener *l);   /* as bound: port 0 filled in */
struct listener_stats { uint64_t accepted, refused, timed_out, bad; } listener_stats(const struct listener *l);
int   peer_ready(struct chan *c, const struct peer_id *id, const char *role, uint64_t seq);     /* seq: of the newest event */

/* The connector's side. Reconnects with full jitter (0.1 s doubling to 5 s, spread random) until destroyed, unless once. */
struct connector_events {
    void (*ready)(void *arg, struct chan *c, const Sluice__Welcome *w, const Sluice__Ready *r);   /* chan is the connector's; set nothing on it */
    void (*message)(void *arg, struct chan *c, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds);
    void (*lost)(void *arg, const struct err *why);       /* of a ready connection, or of each failed try; may destroy the connector */
    void (*drained)(void *arg, struct chan *c);           /* may be NULL */
};
struct connector_conf {
    struct ev_loop *loop;  struct names *names;           /* names NULL: Unix sockets only */
    const char *address;  const char *method;
    Sluice__Role role;  const char *name;
    bool   once;                                          /* a command: no second try */
    double connect_s;                                     /* deadline of a try, default 5 */
    struct chan_limits limits;
    struct connector_events events;  void *arg;
};
struct connector *connector_create(const struct connector_conf *conf, struct err *e);
void  connector_destroy(struct connector *c);
unsigned connector_retry_ms(const struct connector *c);   /* within lost: the listener is busy and said after how long to try again; else 0 */
struct chan *connector_chan(const struct connector *c);   /* NULL while not ready */

/* Socket of an address, for others that listen or connect by themselves (source, worker). Nonblocking, close-on-exec. A stale socket file is
 * replaced, a live one is ERR_STATE. A host is looked up at once: for the start of a program, before it serves. */
int   peer_listen_fd(const char *address, mode_t mode, struct err *e);
void  peer_unlisten(int fd, const char *address);         /* closes it and removes its socket file */
void  peer_bound_address(int fd, const char *address, char out[320]);     /* as bound: port 0 filled in */
/* Numeric hosts and Unix paths only, at once; a TCP connect may still be under way (writable when it ended, SO_ERROR says how). */
int   peer_connect_fd(const char *address, struct err *e);
bool  peer_is_unix(const char *address);
const char *peer_unix_path(const char *address);          /* without "unix:" */
/* HOST:PORT taken apart; v6 in brackets or bare. An address of loopback, or a wildcard, advertised to others is for the caller to refuse (peer_is_loopback). */
int   peer_parse(const char *address, char host[256], char port[16], struct err *e);
bool  peer_is_loopback(const char *address);              /* by its text: also "localhost", the wildcards and mapped v6 forms */
bool  peer_sockaddr_is_loopback(const struct sockaddr_storage *a);        /* of what a name resolved to */

#endif
