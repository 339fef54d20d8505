/* make_corpus.c - writes the corpora of fuzz_frame and fuzz_chan: every message that there is, with every field
 *
 * make_corpus FOLDER writes FOLDER/frame/NAME and FOLDER/chan/NAME. To be run again when messages are added (`make corpus`).
 */
#include "config.h"

#include "fill.h"
#include "file.h"
#include "frame.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

static void write_frame(const char *folder, const char *kind, const struct frame_type *t, const char *before, size_t n_before)
{
    ProtobufCMessage *m = fill_message(t->descriptor, 1, t->type);
    size_t size = protobuf_c_message_get_packed_size(m);
    char *path = mem_printf("%s/%s/%s", folder, kind, t->name);
    uint8_t *out = mem_zalloc(n_before + FRAME_HEAD + size);
    struct err e;

    for (size_t i = 0; i < n_before; i++)
        out[i] = (uint8_t)before[i];
    frame_pack_head(&(struct frame_head){ .type = (uint16_t)t->type, .length = (uint32_t)size, .id = 1 }, out + n_before);
    protobuf_c_message_pack(m, out + n_before + FRAME_HEAD);
    if (file_replace(path, out, n_before + FRAME_HEAD + size, 0644, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    protobuf_c_message_free_unpacked(m, NULL);
    free(path);
    free(out);
}

int main(int argc, char **argv)
{
    /* The ones that a connection itself acts on; the others are fuzz_frame's. */
    static const Sluice__Type in_chan[] = { SLUICE__TYPE__PING, SLUICE__TYPE__PONG, SLUICE__TYPE__HELLO, SLUICE__TYPE__PART,
                                            SLUICE__TYPE__GET_CHECK, SLUICE__TYPE__ANNOUNCE, SLUICE__TYPE__NODES };
    size_t n;
    const struct frame_type *t = frame_types(&n);

    if (argc != 2) {
        fprintf(stderr, "usage: make_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < n; i++)
        write_frame(argv[1], "frame", &t[i], "", 0);
    for (size_t i = 0; i < ARRAY_LEN(in_chan); i++) {
        write_frame(argv[1], "chan", frame_type(in_chan[i]), "\x80", 1);
    }
    return 0;
}
