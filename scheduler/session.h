/* session.h - who is at the other end, and THE table: message, handler, role
 *
 * From: proto/peer (accepted connections).  To: the handlers of node_register.c, mark.c, move.c, run.c, job.c, flow.c, show.c, ….
 * A handler reads an unpacked message, keeps nothing of it, and answers now or (change stored, run settled) later by a session_ref.
 */
#ifndef SLUICE_SESSION_H
#define SLUICE_SESSION_H

#include "sluiced.h"

enum right { RIGHT_NONE, RIGHT_READ, RIGHT_SHIFT, RIGHT_EXPERT, RIGHT_ADMIN };

struct node;
struct source;
struct staged;

struct session {
    struct sluiced *d;
    struct chan    *chan;
    struct peer_id  peer;
    Sluice__Role    role;
    enum right      right;
    char            name[64];            /* of node, source or program, as the peer said */
    char            software[32];        /* its version, as the peer said */
    struct node    *node;                /* a worker's, once registered */
    struct source  *source;              /* a source's, once accepted */
    struct staged  *staged;              /* a client's: files of a job that it is about to submit (jobstage.c) */
    uint64_t        number;              /* of the session: never used again */
};

struct sessions *sessions_create(struct sluiced *d, struct err *e);     /* listens on conf->socket and conf->listen */
void sessions_destroy(struct sessions *s);
/* What became of connections before they were known: of both listeners together. */
struct listener_stats sessions_stats(const struct sessions *s);
unsigned sessions_clients(const struct sessions *s);                     /* people's connections */
void sessions_each(struct sessions *s, void (*fn)(void *arg, struct session *), void *arg);

/* Answers. All are fine when the peer has gone. */
void session_answer(struct session *s, uint32_t id, ProtobufCMessage *m);       /* its seq, where it has one, is set */
void session_ok(struct session *s, uint32_t id);
void session_error(struct session *s, uint32_t id, const struct err *e, const char *word);     /* counted by code */
void session_busy(struct session *s, uint32_t id, const char *text, unsigned retry_ms);      /* to be asked again after so long */
void session_close(struct session *s, const char *why);

/* To answer later: remembers which session and question, not a pointer that may dangle. */
struct session_ref { struct sluiced *d; uint64_t number; uint32_t id; };
struct session_ref session_refer(struct session *s, uint32_t id);
struct session *session_find(struct session_ref r);                     /* NULL: the asker has gone */

/* "NAME (uid 1000)": the author of a change, for history. Returns out. */
const char *session_author(const struct session *s, char out[96]);

/* Every module that takes messages has a row in session.c's table. */
typedef void (*session_handler)(struct session *s, uint32_t id, const void *message);
/* The table, for tests: whether that role may send the type, and what right a client needs for it. */
bool session_takes(unsigned type, Sluice__Role role, enum right *right);

#endif
