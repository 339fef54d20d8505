/* frame.h - a frame: 16 bytes of head, then one packed message
 *
 *   0  u16  magic 0x4C53 ("SL")     6  u16  type (enum Type of sluice.proto)
 *   2  u8   version (1)             8  u32  length of what follows
 *   3  u8   descriptors that come   12 u32  id: chosen by the asker, copied into the answer; 0 = no answer wanted
 *   4  u16  0
 * all little endian. The table in frame.c gives every type its message, its largest length and who may send it; a frame is
 * refused by its head alone, before memory is taken, and a message's repeated fields are counted before it is unpacked.
 */
#ifndef SLUICE_FRAME_H
#define SLUICE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "err.h"
#include "sluice.pb-c.h"

#define FRAME_MAGIC 0x4C53
#define FRAME_VERSION 1
#define FRAME_HEAD 16
#define FRAME_MAX_FDS 16

#ifndef PROTO_MAJOR                      /* a test builds a program that says another one */
#define PROTO_MAJOR 1
#endif
#ifndef PROTO_MINOR                      /* and one that says a later minor version, other features and another release */
#define PROTO_MINOR 0
#define PROTO_FEATURES UINT64_C(0)       /* bits of what this build can do beyond the minor version */
#define PROTO_SOFTWARE PACKAGE_VERSION
#endif

#define FRAME_FROM_DAEMON (1u << SLUICE__ROLE__ROLE_NONE)    /* in frame_type.from: sluiced, to those who connected */

struct frame_head { uint16_t type; uint8_t fds; uint32_t length, id; };

struct frame_type {
    Sluice__Type type;
    const char *name;
    const ProtobufCMessageDescriptor *descriptor;
    uint32_t max_length;             /* bytes, packed */
    uint32_t max_elements;           /* of all repeated fields and nested messages together */
    unsigned from;                   /* who may send it: bits 1 << Sluice__Role, and FRAME_FROM_DAEMON */
};

const struct frame_type *frame_types(size_t *n);                          /* the whole table, by rising type */

const struct frame_type *frame_type(unsigned type);                       /* NULL: no such type */
const struct frame_type *frame_type_of(const ProtobufCMessage *m);
void frame_pack_head(const struct frame_head *h, uint8_t out[FRAME_HEAD]);
/* The text may stand in a message: valid UTF-8. */
bool frame_is_utf8(const char *text);
/* Checks magic, version, type, length and descriptors. -1: e says what was wanted and found (ERR_PROTOCOL). */
int  frame_parse_head(const uint8_t in[FRAME_HEAD], struct frame_head *h, struct err *e);
/* First the packed form is walked without taking memory: lengths, depth, elements (what is repeated, nested or unknown), wire types,
 * UTF-8 (without NUL) and enum values, which handlers may use as an index. Then it is unpacked; unknown fields are kept.
 * The message is the caller's: protobuf_c_message_free_unpacked. NULL: e says why. */
ProtobufCMessage *frame_unpack(const struct frame_type *t, const uint8_t *data, size_t size, struct err *e);
/* A message of that type, unknown fields and all, that points to nothing of m: protobuf_c_message_free_unpacked. Never NULL: no memory ends the program. */
void *proto_copy(const ProtobufCMessage *m);

#endif
