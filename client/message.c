/* message.c - walks the descriptors of protobuf-c, so that no listing needs code of its own
 *
 * From: an answer of sluiced.  To: show.c.
 * A field that a newer sluiced added and this program does not know is not shown; everything it knows is, under the name the
 * contract gives it.
 */
#include "config.h"

#include "message.h"

#include "clock.h"
#include "frame.h"
#include "mem.h"
#include "str.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- enums ---------------------------------------------------------------------------------- */

/* Length of the prefix that the values of the type may carry: JobState has JOB_. */
static size_t prefix_length(const ProtobufCEnumDescriptor *d, const char *name)
{
    const char *type = d->short_name;
    size_t n = 1;

    while (type[n] != '\0' && islower((unsigned char)type[n]))
        n++;
    if (strncasecmp(type, name, n) != 0 || name[n] != '_')
        return 0;
    return n + 1;
}

char *message_enum_word(const ProtobufCEnumDescriptor *d, int value)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(d, value);
    char *word;

    if (v == NULL)
        return mem_printf("unknown-%d", value);         /* of a newer sluiced */
    word = mem_strdup(v->name + prefix_length(d, v->name));
    for (char *p = word; *p != '\0'; p++)
        *p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
    return word;
}

int message_enum_value(const ProtobufCEnumDescriptor *d, const char *what, const char *word, int *value, struct err *e)
{
    struct str all = { 0 };

    for (unsigned i = 0; i < d->n_values; i++) {
        char *one = message_enum_word(d, d->values[i].value);
        bool same = strcmp(one, word) == 0;

        str_addf(&all, "%s%s", i > 0 ? " " : "", one);
        free(one);
        if (same) {
            *value = d->values[i].value;
            str_free(&all);
            return 0;
        }
    }
    err_set(e, ERR_USAGE, "%s '%s': one of these is wanted: %s", what, word, str_text(&all));
    str_free(&all);
    return -1;
}

/* --- values --------------------------------------------------------------------------------- */

/* Text that is not UTF-8 cannot stand in JSON: it is shown escaped. */
static json_t *text_json(const char *text, size_t n)
{
    json_t *j = json_stringn(text, n);
    struct str s = { 0 };

    if (j != NULL)
        return j;
    str_escape(&s, text, n);
    j = json_string(str_text(&s));
    str_free(&s);
    return j;
}

static json_t *bytes_json(const ProtobufCBinaryData *b)
{
    struct str s = { 0 };
    json_t *j;

    for (size_t i = 0; i < b->len; i++)
        str_addf(&s, "%02x", b->data[i]);
    j = json_string(str_text(&s));
    str_free(&s);
    return j;
}

/* JSON's integers end at 2^63 here; what is larger loses digits rather than its size. */
static json_t *unsigned_json(uint64_t v)
{
    return v <= INT64_MAX ? json_integer((json_int_t)v) : json_real((double)v);
}

static json_t *time_json(int64_t wall_ns)
{
    char text[CLOCK_TEXT];

    return json_string(clock_rfc3339(wall_ns, text));
}

static json_t *enum_json(const ProtobufCFieldDescriptor *f, int value)
{
    char *word = message_enum_word(f->descriptor, value);
    json_t *j = json_string(word);

    free(word);
    return j;
}

/* A real that is not finite cannot stand in JSON: unknown. */
static json_t *real_json(double v)
{
    json_t *j = json_real(v);

    return j != NULL ? j : json_null();
}

static json_t *value_json(const ProtobufCFieldDescriptor *f, const void *p)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: return json_integer(*(const int32_t *)p);
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:   return json_integer(*(const int64_t *)p);
    case PROTOBUF_C_TYPE_SFIXED64: return time_json(*(const int64_t *)p);
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32:  return json_integer(*(const uint32_t *)p);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:  return unsigned_json(*(const uint64_t *)p);
    case PROTOBUF_C_TYPE_FLOAT:    return real_json((double)*(const float *)p);
    case PROTOBUF_C_TYPE_DOUBLE:   return real_json(*(const double *)p);
    case PROTOBUF_C_TYPE_BOOL:     return json_boolean(*(const protobuf_c_boolean *)p);
    case PROTOBUF_C_TYPE_ENUM:     return enum_json(f, *(const int *)p);
    case PROTOBUF_C_TYPE_STRING:   return text_json(*(char *const *)p, strlen(*(char *const *)p));
    case PROTOBUF_C_TYPE_BYTES:    return bytes_json(p);
    case PROTOBUF_C_TYPE_MESSAGE:  return message_json(*(ProtobufCMessage *const *)p);
    }
    return json_null();
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_INT32: case PROTOBUF_C_TYPE_SINT32: case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_UINT32: case PROTOBUF_C_TYPE_FIXED32: case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_STRING: case PROTOBUF_C_TYPE_MESSAGE:
        return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 8;
    }
}

/* Whether an optional field is there: by its has_ flag, or by what its pointer leads to. */
static bool is_there(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *)m;

    if (f->label == PROTOBUF_C_LABEL_REQUIRED)
        return true;
    if (f->type == PROTOBUF_C_TYPE_STRING)       /* an empty text says nothing: one way to say that is enough */
        return *(char *const *)(base + f->offset) != NULL && **(char *const *)(base + f->offset) != '\0';
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return *(void *const *)(base + f->offset) != NULL;
    return *(const protobuf_c_boolean *)(base + f->quantifier_offset);
}

static json_t *field_json(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
    const char *base = (const char *)m;
    json_t *list;

    if (f->label != PROTOBUF_C_LABEL_REPEATED)
        return is_there(m, f) ? value_json(f, base + f->offset) : json_null();
    list = json_array();
    for (size_t i = 0, n = *(const size_t *)(base + f->quantifier_offset); i < n; i++)
        json_array_append_new(list, value_json(f, *(const char *const *)(base + f->offset) + i * element_size(f)));
    return list;
}

json_t *message_json(const ProtobufCMessage *m)
{
    json_t *object = json_object();

    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];

        json_object_set_new(object, f->name, field_json(m, f));
    }
    return object;
}

json_t *message_answer(const ProtobufCMessage *m)
{
    json_t *object = message_json(m);

    json_object_del(object, "seq");
    return object;
}

json_t *message_list(const ProtobufCMessage *m, const char *field)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(m->descriptor, field);
    json_t *value = f != NULL ? field_json(m, f) : NULL, *list;

    if (json_is_array(value))
        return value;
    list = json_array();
    if (value != NULL && !json_is_null(value))
        json_array_append_new(list, value);
    else
        json_decref(value);
    return list;
}

/* --- texts ---------------------------------------------------------------------------------- */

static int check_text(const ProtobufCFieldDescriptor *f, const char *text, struct err *e)
{
    if (text == NULL || frame_is_utf8(text))
        return 0;
    return err_set(e, ERR_USAGE, "%s '%.200s': text in UTF-8 is wanted", f->name, text);
}

static int check_value(const ProtobufCFieldDescriptor *f, const void *p, struct err *e)
{
    const ProtobufCMessage *inner;

    if (f->type == PROTOBUF_C_TYPE_STRING)
        return check_text(f, *(char *const *)p, e);
    inner = *(ProtobufCMessage *const *)p;
    return inner != NULL ? message_check_texts(inner, e) : 0;
}

int message_check_texts(const ProtobufCMessage *m, struct err *e)
{
    for (unsigned i = 0; i < m->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
        const char *at = (const char *)m + f->offset;

        if (f->type != PROTOBUF_C_TYPE_STRING && f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            if (check_value(f, at, e) < 0)
                return -1;
            continue;
        }
        for (size_t k = 0, n = *(const size_t *)((const char *)m + f->quantifier_offset); k < n; k++)
            if (check_value(f, *(const char *const *)at + k * sizeof(void *), e) < 0)
                return -1;
    }
    return 0;
}
