/* fuzz_frame.c - any bytes as frames of a peer: refused, or unpacked into something that packs and unpacks again */
#include "config.h"

#include "frame.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(int truth)
{
    if (!truth)
        abort();
}

/* Packed again it is taken again, unless the longer of two ways to write it has become too long. */
static void there_and_back(const struct frame_type *t, const ProtobufCMessage *m)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *wire;
    ProtobufCMessage *again;
    struct err e = { 0 };

    if (size > t->max_length)
        return;
    wire = malloc(size + 1);
    expect(wire != NULL && protobuf_c_message_pack(m, wire) == size);
    again = frame_unpack(t, wire, size, &e);
    expect(again != NULL && protobuf_c_message_get_packed_size(again) == size);
    protobuf_c_message_free_unpacked(again, NULL);
    free(wire);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frame_head h;
    struct err e = { 0 };

    while (size >= FRAME_HEAD && frame_parse_head(data, &h, &e) == 0 && h.length <= size - FRAME_HEAD) {
        const struct frame_type *t = frame_type(h.type);
        uint8_t *exact = malloc(h.length ? h.length : 1);
        ProtobufCMessage *m;

        expect(exact != NULL && t != NULL && h.length <= t->max_length && h.fds <= FRAME_MAX_FDS);
        memcpy(exact, data + FRAME_HEAD, h.length);
        m = frame_unpack(t, exact, h.length, &e);
        free(exact);
        if (m) {
            there_and_back(t, m);
            protobuf_c_message_free_unpacked(m, NULL);
        } else {
            expect(e.code == ERR_PROTOCOL && e.text[0]);
        }
        data += FRAME_HEAD + h.length;
        size -= FRAME_HEAD + h.length;
    }
    return 0;
}
