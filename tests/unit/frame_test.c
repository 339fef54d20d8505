/* frame_test.c - the table of messages, heads, and what is refused before a message is unpacked (B40) */
#include "config.h"
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "../fuzz/fill.h"
#include "clock.h"
#include "file.h"
#include "frame.h"
#include "mem.h"

struct bytes { uint8_t p[70000]; size_t n; };

static void add(struct bytes *b, const void *data, size_t n)
{
    assert_true(b->n + n <= sizeof(b->p));
    memcpy(b->p + b->n, data, n);
    b->n += n;
}

static void varint(struct bytes *b, uint64_t v)
{
    do {
        uint8_t byte = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));

        add(b, &byte, 1);
        v >>= 7;
    } while (v);
}

static void field(struct bytes *b, unsigned number, unsigned wire) { varint(b, (uint64_t)number << 3 | wire); }

static void text(struct bytes *b, unsigned number, const void *data, size_t n)
{
    field(b, number, 2);
    varint(b, n);
    add(b, data, n);
}

static ProtobufCMessage *unpack(unsigned type, const struct bytes *b, struct err *e)
{
    uint8_t *exact = malloc(b->n ? b->n : 1);          /* so that a sanitizer sees one byte too many */
    ProtobufCMessage *m;

    memcpy(exact, b->p, b->n);
    m = frame_unpack(frame_type(type), exact, b->n, e);
    free(exact);
    return m;
}

static void assert_refused(unsigned type, const struct bytes *b, const char *says)
{
    struct err e = { .code = ERR_NONE };
    ProtobufCMessage *m = unpack(type, b, &e);

    if (m)
        fail_msg("taken, where \"%s\" was expected", says);
    assert_int_equal(e.code, ERR_PROTOCOL);
    if (strstr(e.text, says) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", e.text, says);
}

static void assert_taken(unsigned type, const struct bytes *b)
{
    struct err e = { .text = "" };
    ProtobufCMessage *m = unpack(type, b, &e);

    if (m == NULL)
        fail_msg("refused: %s", e.text);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void every_type_has_one_row_in_order(void **unused)
{
    size_t n, known = 0;
    const struct frame_type *t = frame_types(&n);
    const ProtobufCEnumDescriptor *types = &sluice__type__descriptor;

    (void)unused;
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || t[i].type > t[i - 1].type);
        assert_ptr_equal(frame_type(t[i].type), &t[i]);
        assert_string_equal(protobuf_c_enum_descriptor_get_value(types, (int)t[i].type)->name, t[i].name);
        assert_true(t[i].from != 0 && t[i].max_length >= 64 && t[i].max_elements >= 16);
        assert_true(t[i].max_length <= 64u << 20);
        for (size_t k = 0; k < i; k++)
            assert_ptr_not_equal(t[k].descriptor, t[i].descriptor);
    }
    for (unsigned i = 0; i < types->n_values; i++)
        known += types->values[i].value != 0;
    assert_int_equal(n, known);         /* every number of sluice.proto is in the table */
    assert_null(frame_type(0));
    assert_null(frame_type(65535));
}

static void a_head_survives_the_way(void **unused)
{
    struct frame_head h = { .type = SLUICE__TYPE__NODES, .fds = 3, .length = 0x12345, .id = 0xfedcba98 }, back;
    uint8_t wire[FRAME_HEAD];
    struct err e;

    (void)unused;
    frame_pack_head(&h, wire);
    assert_memory_equal(wire, "SL\x01\x03\x00\x00\x67\x00\x45\x23\x01\x00\x98\xba\xdc\xfe", FRAME_HEAD);
    assert_int_equal(frame_parse_head(wire, &back, &e), 0);
    assert_int_equal(back.type, h.type);
    assert_int_equal(back.fds, 3);
    assert_int_equal(back.length, h.length);
    assert_int_equal(back.id, h.id);
}

static void a_head_says_what_is_wrong(void **unused)
{
    struct frame_head h = { .type = SLUICE__TYPE__PING, .length = 65 }, back;
    uint8_t wire[FRAME_HEAD];
    struct err e;

    (void)unused;
    frame_pack_head(&h, wire);
    assert_int_equal(frame_parse_head(wire, &back, &e), -1);
    assert_string_equal(e.text, "PING of 65 bytes, at most 64 are taken");
    h.length = 64;
    frame_pack_head(&h, wire);
    assert_int_equal(frame_parse_head(wire, &back, &e), 0);
    wire[2] = 2;
    assert_int_equal(frame_parse_head(wire, &back, &e), -1);
    assert_string_equal(e.text, "frame version 2, this side speaks 1");
    assert_int_equal(e.code, ERR_PROTOCOL);
}

static void every_message_goes_there_and_back(void **unused)
{
    size_t n;
    const struct frame_type *t = frame_types(&n);

    (void)unused;
    for (size_t i = 0; i < n; i++) {
        for (unsigned repeats = 0; repeats < 3; repeats++) {
            ProtobufCMessage *m = fill_message(t[i].descriptor, repeats, i), *back;
            size_t size = protobuf_c_message_get_packed_size(m);
            uint8_t *wire = malloc(size + 1), *again = malloc(size + 1);
            struct err e;

            assert_ptr_equal(frame_type_of(m), &t[i]);
            protobuf_c_message_pack(m, wire);
            back = size <= t[i].max_length ? frame_unpack(&t[i], wire, size, &e) : NULL;
            if (back == NULL)
                fail_msg("%s with %u repeats, %zu bytes: %s", t[i].name, repeats, size, e.text);
            assert_int_equal(protobuf_c_message_get_packed_size(back), size);
            protobuf_c_message_pack(back, again);
            assert_memory_equal(wire, again, size);
            protobuf_c_message_free_unpacked(back, NULL);
            protobuf_c_message_free_unpacked(m, NULL);
            free(wire);
            free(again);
        }
    }
}

static void unknown_fields_are_kept(void **unused)
{
    struct bytes b = { .n = 0 };
    struct err e;
    ProtobufCMessage *m;
    uint8_t again[64];

    (void)unused;
    text(&b, 1, "known", 5);
    field(&b, 1000, 0);
    varint(&b, 77);
    text(&b, 1001, "\xff\x00later", 7);
    m = unpack(SLUICE__TYPE__OK, &b, &e);
    assert_non_null(m);
    assert_int_equal(m->n_unknown_fields, 2);
    assert_int_equal(protobuf_c_message_pack(m, again), b.n);
    assert_memory_equal(again, b.p, b.n);
    protobuf_c_message_free_unpacked(m, NULL);
}

static void B40_text_must_be_utf8(void **unused)
{
    static const struct { const char *bytes; size_t n; bool good; } cases[] = {
        { "", 0, true }, { "plain", 5, true }, { "\xc3\xa9", 2, true }, { "\xe2\x82\xac", 3, true }, { "\xf0\x9f\x98\x80", 4, true },
        { "\xf4\x8f\xbf\xbf", 4, true },
        { "\xff", 1, false }, { "a\x80", 2, false }, { "\xc3", 1, false }, { "\xc0\xaf", 2, false }, { "\xe0\x80\xaf", 3, false },
        { "\xed\xa0\x80", 3, false }, { "\xf4\x90\x80\x80", 4, false }, { "\xf8\x88\x80\x80\x80", 5, false }, { "a\0b", 3, false },
        { "\xe2\x82", 2, false },
    };

    (void)unused;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct bytes b = { .n = 0 };

        text(&b, 1, cases[i].bytes, cases[i].n);
        if (cases[i].good)
            assert_taken(SLUICE__TYPE__OK, &b);
        else
            assert_refused(SLUICE__TYPE__OK, &b, "is not UTF-8");
    }
    assert_true(frame_is_utf8("gr\xc3\xbc\xc3\x9f"));
    assert_false(frame_is_utf8("\xe9"));
}

static void B40_huge_counts_and_lengths_are_refused(void **unused)
{
    struct bytes b = { .n = 0 };

    (void)unused;
    field(&b, 1, 2);
    varint(&b, UINT64_MAX);             /* a string of 2^64 - 1 bytes */
    assert_refused(SLUICE__TYPE__OK, &b, "longer than its message");
    b.n = 0;
    field(&b, 1, 2);
    varint(&b, UINT32_MAX);
    assert_refused(SLUICE__TYPE__OK, &b, "longer than its message");
    b.n = 0;
    field(&b, 1, 2);
    varint(&b, 6);
    add(&b, "short", 5);
    assert_refused(SLUICE__TYPE__OK, &b, "longer than its message");
    b.n = 0;
    field(&b, 1, 2);
    add(&b, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10);          /* does not fit 64 bits */
    assert_refused(SLUICE__TYPE__OK, &b, "broken length");
    b.n = 0;
    add(&b, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", 11);
    assert_refused(SLUICE__TYPE__OK, &b, "broken tag");
    b.n = 0;
    field(&b, 0, 0);
    assert_refused(SLUICE__TYPE__OK, &b, "broken tag");
    b.n = 0;
    varint(&b, UINT64_C(0x20000000) << 3);
    assert_refused(SLUICE__TYPE__OK, &b, "broken tag");
}

static void B40_elements_are_counted_before_unpacking(void **unused)
{
    const struct frame_type *t = frame_type(SLUICE__TYPE__REPORT);
    struct bytes *b = mem_zalloc(sizeof(*b)), *packed = mem_zalloc(sizeof(*packed));

    (void)unused;
    for (uint32_t i = 0; i < t->max_elements; i++) {    /* nice, field 10, an element each */
        field(b, 10, 0);
        varint(b, 1);
    }
    assert_taken(t->type, b);
    field(b, 10, 0);
    varint(b, 1);
    assert_refused(t->type, b, "more than 1024 elements");

    field(packed, 10, 2);               /* the same, packed */
    varint(packed, t->max_elements);
    for (uint32_t i = 0; i < t->max_elements; i++)
        varint(packed, 1);
    assert_taken(t->type, packed);
    text(packed, 10, "\x01", 1);
    assert_refused(t->type, packed, "more than 1024 elements");

    b->n = 0;                           /* empty nested messages: two bytes each on the wire, a struct each in memory */
    for (uint32_t i = 0; i <= t->max_elements; i++)
        text(b, 8, "", 0);
    assert_refused(t->type, b, "more than 1024 elements");
    b->n = 0;                           /* unknown fields */
    for (uint32_t i = 0; i <= t->max_elements; i++) {
        field(b, 999, 0);
        varint(b, 0);
    }
    assert_refused(t->type, b, "more than 1024 elements");
    b->n = 0;                           /* one that should come once, over and over */
    for (uint32_t i = 0; i <= t->max_elements + t->descriptor->n_fields; i++) {
        field(b, 1, 0);
        varint(b, 0);
    }
    assert_refused(t->type, b, "more than 1024 elements");
    free(b);
    free(packed);
}

static void B40_wrong_wire_types_are_refused(void **unused)
{
    (void)unused;
    for (unsigned wire = 0; wire < 8; wire++) {
        struct bytes b = { .n = 0 };

        field(&b, 1, wire);             /* OK.text is a string */
        add(&b, "\0\0\0\0\0\0\0\0", 8);
        if (wire != 2)
            assert_refused(SLUICE__TYPE__OK, &b, "wire type");
    }
    for (unsigned wire = 3; wire < 8; wire++) {          /* the same for an unknown field: groups and worse */
        struct bytes b = { .n = 0 };

        field(&b, 500, wire);
        add(&b, "\0\0\0\0", 4);
        if (wire != 5)
            assert_refused(SLUICE__TYPE__OK, &b, "unknown wire type");
    }
    struct bytes b = { .n = 0 };

    field(&b, 3, 1);                    /* HELLO.features, cut */
    add(&b, "1234567", 7);
    assert_refused(SLUICE__TYPE__HELLO, &b, "middle of a field");
    b.n = 0;
    text(&b, 3, "\x81", 1);             /* ANNOUNCE ranges: a number that does not end */
    assert_refused(SLUICE__TYPE__ANNOUNCE, &b, "wrong wire type");
    b.n = 0;
    text(&b, 2, "\x1a\x01\x81", 3);
    assert_refused(SLUICE__TYPE__ANNOUNCE, &b, "broken number");
}

static void B40_enum_values_are_known_ones(void **unused)
{
    struct bytes b = { .n = 0 };

    (void)unused;
    field(&b, 5, 0);
    varint(&b, 1);
    assert_taken(SLUICE__TYPE__HELLO, &b);
    b.n = 0;
    field(&b, 5, 0);
    varint(&b, 99);
    assert_refused(SLUICE__TYPE__HELLO, &b, "role has the unknown value 99");
    b.n = 0;
    text(&b, 3, "\x00\x01\x07", 3);     /* GET_NODES.states packed */
    assert_refused(SLUICE__TYPE__GET_NODES, &b, "states has the unknown value 7");
}

/* A descriptor that nests in itself: the real ones nest 3 deep, so that the limit is not reached through them. */
static void B40_nesting_has_a_limit(void **unused)
{
    static ProtobufCFieldDescriptor f = { .name = "again", .id = 1, .label = PROTOBUF_C_LABEL_OPTIONAL, .type = PROTOBUF_C_TYPE_MESSAGE };
    static const ProtobufCIntRange range[] = { { 1, 0 }, { 0, 1 } };
    static ProtobufCMessageDescriptor d = { .magic = PROTOBUF_C__MESSAGE_DESCRIPTOR_MAGIC, .name = "nest", .n_fields = 1, .fields = &f,
                                            .n_field_ranges = 1, .field_ranges = range };
    struct frame_type t = { .name = "NEST", .descriptor = &d, .max_length = 70000, .max_elements = 60000 };
    uint8_t wire[70000];
    size_t n = 0;
    struct err e;

    (void)unused;
    f.descriptor = &d;
    for (size_t inner = 0; n < 60000; inner = n, n += 4) {              /* built from the inside: tag, length in 3 bytes, content */
        memmove(wire + 4, wire, inner);
        wire[0] = 0x0a;
        wire[1] = (uint8_t)(0x80 | (inner & 0x7f));
        wire[2] = (uint8_t)(0x80 | ((inner >> 7) & 0x7f));
        wire[3] = (uint8_t)(inner >> 14);
    }
    assert_null(frame_unpack(&t, wire, n, &e));
    assert_non_null(strstr(e.text, "nested too deep"));
}

/* Mutants of every message: refused or taken, never a crash; sanitizers watch. */
static void B40_mutants_do_no_harm(void **unused)
{
    const char *given = getenv("SLUICE_TEST_SEED"), *scale = getenv("SLUICE_TEST_SCALE");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)clock_wall_ns(), x = seed;
    unsigned rounds = (unsigned)(60 * (scale ? atof(scale) : 1)), refused = 0, taken = 0;
    size_t n;
    const struct frame_type *t = frame_types(&n);

    (void)unused;
    printf("seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < n; i++) {
        ProtobufCMessage *m = fill_message(t[i].descriptor, 1, seed + i), *back;
        size_t size = protobuf_c_message_get_packed_size(m);
        uint8_t *wire = malloc(size + 1);

        for (unsigned r = 0; r < rounds; r++) {
            size_t left = size;
            uint8_t *exact;
            struct err e;

            protobuf_c_message_pack(m, wire);
            for (unsigned k = 0; size && k < 1 + r % 4; k++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                wire[(x >> 33) % size] = (uint8_t)(x >> 20);
            }
            if (size && r % 5 == 0)
                left = (x >> 40) % size;
            exact = malloc(left ? left : 1);
            memcpy(exact, wire, left);
            back = frame_unpack(&t[i], exact, left, &e);
            refused += back == NULL;
            taken += back != NULL;
            if (back)
                protobuf_c_message_free_unpacked(back, NULL);
            free(exact);
        }
        free(wire);
        protobuf_c_message_free_unpacked(m, NULL);
    }
    assert_true(refused > 100 && taken > 100);
}

/* A message that is added wants its file: `make corpus`. */
static void every_message_is_in_the_corpus(void **unused)
{
    const char *src = getenv("SLUICE_SRCDIR");
    size_t n, size;
    const struct frame_type *t = frame_types(&n);

    (void)unused;
    for (size_t i = 0; i < n; i++) {
        char *path = mem_printf("%s/tests/fuzz/corpus/frame/%s", src ? src : "..", t[i].name);
        struct err e = { .text = "" };
        char *data = file_read(path, 1 << 20, &size, &e);
        struct frame_head h;
        ProtobufCMessage *m;

        if (data == NULL)
            fail_msg("%s", e.text);
        assert_true(size >= FRAME_HEAD);
        assert_int_equal(frame_parse_head((uint8_t *)data, &h, &e), 0);
        assert_int_equal(h.type, t[i].type);
        assert_int_equal(h.length, size - FRAME_HEAD);
        m = frame_unpack(&t[i], (uint8_t *)data + FRAME_HEAD, h.length, &e);
        if (m == NULL)
            fail_msg("%s: %s", path, e.text);
        protobuf_c_message_free_unpacked(m, NULL);
        free(data);
        free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_has_one_row_in_order),
        cmocka_unit_test(a_head_survives_the_way),
        cmocka_unit_test(a_head_says_what_is_wrong),
        cmocka_unit_test(every_message_goes_there_and_back),
        cmocka_unit_test(unknown_fields_are_kept),
        cmocka_unit_test(B40_text_must_be_utf8),
        cmocka_unit_test(B40_huge_counts_and_lengths_are_refused),
        cmocka_unit_test(B40_elements_are_counted_before_unpacking),
        cmocka_unit_test(B40_wrong_wire_types_are_refused),
        cmocka_unit_test(B40_enum_values_are_known_ones),
        cmocka_unit_test(B40_nesting_has_a_limit),
        cmocka_unit_test(B40_mutants_do_no_harm),
        cmocka_unit_test(every_message_is_in_the_corpus),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
