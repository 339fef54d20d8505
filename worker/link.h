/* link.h - the connection to sluiced: registers, takes its orders, sends answers and reports; survives its loss */
#ifndef SLUICE_LINK_H
#define SLUICE_LINK_H

#include "held.h"

struct link;

struct link *link_create(struct worker *w, void (*registered)(void *arg), void *arg, struct err *e);
void link_destroy(struct link *l);
bool link_is_up(const struct link *l);           /* registered */
/* While there is no connection it is not sent: what must not be lost is in the table of held TFs and comes with the next registration. */
void link_send(struct link *l, const ProtobufCMessage *m);
void link_reply(struct link *l, uint32_t id, const ProtobufCMessage *m);      /* to a question of sluiced's */
void link_answer(struct link *l, struct held *h);            /* its Done or Failed, now and after every reconnect */
/* Why there is none, since when (wall ns); NULL while registered, and before the first try ended. */
const char *link_trouble(const struct link *l, int64_t *since);

#endif
