/* message.h - answers as JSON: a message's fields are its keys */
#ifndef SLUICE_MESSAGE_H
#define SLUICE_MESSAGE_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include "err.h"

/* Every field of the message, absent ones and empty texts null. sfixed64 is a time (RFC 3339), an enum its word, bytes hexadecimal. A new reference. */
json_t *message_json(const ProtobufCMessage *m);
/* The same of an answer that is the object itself: without its seq, which stands in meta. */
json_t *message_answer(const ProtobufCMessage *m);
/* The elements of a repeated message field, or the message of a single one, as an array. */
json_t *message_list(const ProtobufCMessage *m, const char *field);

/* The word of an enum's value: its name without the type's prefix, lower case, '-' for '_' (RunState RUN_DONE: "done"). */
char *message_enum_word(const ProtobufCEnumDescriptor *d, int value);
/* The value of a word. -1: e lists them all. */
int message_enum_value(const ProtobufCEnumDescriptor *d, const char *what, const char *word, int *value, struct err *e);

/* Whether every text of the message is UTF-8, as the wire wants it; otherwise says which is not. 0 or -1. */
int message_check_texts(const ProtobufCMessage *m, struct err *e);

#endif
