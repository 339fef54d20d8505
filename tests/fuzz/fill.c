/* fill.c - a message of any type with every field set
 *
 * From: a descriptor.  To: frame_test (every message there and back), make_corpus.
 */
#include "config.h"

#include "fill.h"

#include "mem.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 16;
}

static size_t width(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64: case PROTOBUF_C_TYPE_SINT64: case PROTOBUF_C_TYPE_SFIXED64: case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_STRING: case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    default: return 4;
    }
}

static void set_value(const ProtobufCFieldDescriptor *f, void *at, unsigned repeats, uint64_t *seed)
{
    uint64_t v = next(seed) & 0xffffff;
    double real = (double)v / 1000;
    float small = (float)real;
    ProtobufCBinaryData bytes;
    const ProtobufCEnumDescriptor *e;
    void *p;

    switch (f->type) {
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(at, &real, sizeof(real));
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(at, &small, sizeof(small));
        break;
    case PROTOBUF_C_TYPE_BOOL:
        *(protobuf_c_boolean *)at = 1;
        break;
    case PROTOBUF_C_TYPE_ENUM:
        e = f->descriptor;
        memcpy(at, &e->values[v % e->n_values].value, sizeof(int));
        break;
    case PROTOBUF_C_TYPE_STRING:
        p = mem_printf("%s-%llu \xc3\xa9", f->name, (unsigned long long)(v & 0xff));
        memcpy(at, &p, sizeof(p));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        bytes.len = 32;
        bytes.data = mem_zalloc(bytes.len);
        for (size_t i = 0; i < bytes.len; i++)
            bytes.data[i] = (uint8_t)next(seed);
        memcpy(at, &bytes, sizeof(bytes));
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        p = fill_message(f->descriptor, repeats, next(seed));
        memcpy(at, &p, sizeof(p));
        break;
    default:
        memcpy(at, &v, width(f->type));
    }
}

ProtobufCMessage *fill_message(const ProtobufCMessageDescriptor *d, unsigned repeats, uint64_t seed)
{
    char *m = mem_zalloc(d->sizeof_message);

    d->message_init((ProtobufCMessage *)m);
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        char *at = m + f->offset, *array;
        size_t n = repeats;

        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE)
                *(protobuf_c_boolean *)(m + f->quantifier_offset) = 1;
            set_value(f, at, repeats, &seed);
            continue;
        }
        if (n == 0)
            continue;
        array = mem_array(n, width(f->type));
        for (size_t k = 0; k < n; k++)
            set_value(f, array + k * width(f->type), repeats, &seed);
        memcpy(at, &array, sizeof(array));
        memcpy(m + f->quantifier_offset, &n, sizeof(n));
    }
    return (ProtobufCMessage *)m;
}
