/* fill.h - a message of any type with every field set, made from its descriptor */
#ifndef SLUICE_FILL_H
#define SLUICE_FILL_H

#include <stdint.h>
#include <protobuf-c/protobuf-c.h>

/* repeats: elements of each repeated field. Values follow from seed. The caller's: protobuf_c_message_free_unpacked. */
ProtobufCMessage *fill_message(const ProtobufCMessageDescriptor *d, unsigned repeats, uint64_t seed);

#endif
