/* frame.c - the table of all messages, the head of a frame, and what is checked before a message is unpacked
 *
 * From: chan.c (bytes of a peer that may be anybody).  To: chan.c, tests/fuzz.
 * Memory is taken only for what the table allows: a frame is refused by its head, a message by a walk over its packed
 * form that takes no memory at all. The walk is stricter than protobuf-c: counts, nesting, lengths, UTF-8, known enum values.
 */
#include "config.h"

#include "frame.h"

#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "mem.h"

#define MAX_DEPTH 8                     /* the deepest message of ours nests 3 */

enum { KIB = 1024, MIB = 1024 * 1024 };

enum {
    DAEMON = 1 << SLUICE__ROLE__ROLE_NONE,          /* sluiced: what it sends to those who connected */
    CLIENT = 1 << SLUICE__ROLE__CLIENT,
    WORKER = 1 << SLUICE__ROLE__WORKER,
    SOURCE = 1 << SLUICE__ROLE__SOURCE_ROLE,
    RECO   = 1 << SLUICE__ROLE__RECO,
    SLURM  = 1 << SLUICE__ROLE__SLURM_HELPER,
    ANY    = DAEMON | CLIENT | WORKER | SOURCE | RECO | SLURM,
};

#define ROW(TYPE, message, length, elements, from) \
    { SLUICE__TYPE__##TYPE, #TYPE, &sluice__##message##__descriptor, length, elements, from }

/* clang-format off */
static const struct frame_type types[] = {
    /*   type             message           largest     elements  from */
    ROW(PING,             ping,             64,               16, ANY),
    ROW(PONG,             pong,             64,               16, ANY),
    ROW(ERROR,            error,            8 * KIB,          64, ANY),
    ROW(OK,               ok,               8 * KIB,          64, ANY),
    ROW(HELLO,            hello,            4 * KIB,          64, CLIENT | WORKER | SOURCE),
    ROW(WELCOME,          welcome,          4 * KIB,          64, DAEMON),
    ROW(AUTH,             auth,             16 * KIB,         64, CLIENT | WORKER | SOURCE),
    ROW(READY,            ready,            4 * KIB,          64, DAEMON),

    ROW(REGISTER,         register,         4 * MIB,       65536, WORKER),
    ROW(REGISTERED,       registered,       4 * MIB,       65536, DAEMON),
    ROW(REPORT,           report,           64 * KIB,       1024, WORKER),
    ROW(SETTINGS,         settings,         4 * KIB,          64, DAEMON),
    ROW(RUN_OPEN,         run_open,         64 * KIB,         64, DAEMON),
    ROW(RUN_CLOSE,        run_close,        1 * KIB,          64, DAEMON),
    ROW(ASSIGN,           assign,           1 * MIB,        8192, DAEMON),
    ROW(REFUSED,          refused,          8 * KIB,          64, WORKER),
    ROW(BUILT,            built,            1 * KIB,          64, WORKER),
    ROW(DONE,             done,             64 * KIB,       1024, WORKER),
    ROW(FAILED,           failed,           64 * KIB,         64, WORKER),
    ROW(VERDICT,          verdict,          64 * KIB,         64, DAEMON),
    ROW(PUBLISHED,        published,        8 * KIB,          64, WORKER),
    ROW(CANCEL,           cancel,           8 * KIB,          64, DAEMON),
    ROW(LOG_QUERY,        log_query,        1 * KIB,          64, DAEMON),
    ROW(LOG_LINES,        log_lines,        8 * MIB,      100000, WORKER),

    ROW(CHECK_OUTPUT,     check_output,     1 * MIB,        8192, DAEMON),
    ROW(OUTPUT_CHECKED,   output_checked,   8 * KIB,          64, WORKER),

    ROW(SOURCE,           source,           4 * KIB,          64, SOURCE),
    ROW(SOURCE_ACCEPTED,  source_accepted,  4 * KIB,          64, DAEMON),
    ROW(ANNOUNCE,         announce,         4 * MIB,      500000, SOURCE),
    ROW(RELEASE,          release,          4 * MIB,      250000, DAEMON),
    ROW(END_OF_STREAM,    end_of_stream,    1 * KIB,          64, SOURCE),
    ROW(RUN_STOPPING,     run_stopping,     1 * KIB,          64, DAEMON),
    ROW(WINDOW,           window,           1 * KIB,          64, DAEMON),

    ROW(PULL_HELLO,       pull_hello,       4 * KIB,          64, WORKER),
    ROW(PULL_CHALLENGE,   pull_challenge,   1 * KIB,          64, SOURCE),
    ROW(PULL_PROOF,       pull_proof,       1 * KIB,          64, WORKER),
    ROW(PULL_READY,       pull_ready,       1 * KIB,          64, SOURCE),
    ROW(PULL,             pull,             1 * KIB,          64, WORKER),
    ROW(PART,             part_data,        256 * KIB,     16384, SOURCE),
    ROW(PULL_REFUSED,     pull_refused,     8 * KIB,          64, SOURCE),

    ROW(RECO_OPEN,        reco_open,        8 * KIB,          64, WORKER),
    ROW(RECO_READY,       reco_ready,       64 * KIB,       1024, RECO),
    ROW(RECO_RUN,         reco_run,         256 * KIB,     16384, WORKER),
    ROW(RECO_STAGE,       reco_stage,       1 * KIB,          64, RECO),
    ROW(RECO_DONE,        reco_done,        64 * KIB,       1024, RECO),
    ROW(RECO_FAILED,      reco_failed,      64 * KIB,         64, RECO),
    ROW(RECO_WORKFLOW,    reco_workflow,    64 * KIB,         64, WORKER),

    ROW(SLURM_POLL,       slurm_poll,       2 * MIB,          64, DAEMON),
    ROW(SLURM_STATE,      slurm_state,      32 * MIB,     500000, SLURM),
    ROW(SLURM_DO,         slurm_do,         1 * MIB,       65536, DAEMON),
    ROW(SLURM_DONE,       slurm_done,       1 * MIB,       65536, SLURM),

    ROW(GET_STATUS,       get_status,       1 * KIB,          64, CLIENT),
    ROW(STATUS,           status,           32 * MIB,     500000, DAEMON),
    ROW(GET_NODES,        get_nodes,        4 * MIB,      100000, CLIENT),
    ROW(NODES,            nodes,            64 * MIB,    2000000, DAEMON),
    ROW(GET_HISTORY,      get_history,      4 * MIB,      100000, CLIENT),
    ROW(HISTORY,          history,          64 * MIB,    1000000, DAEMON),
    ROW(ADD_NODES,        add_nodes,        4 * MIB,      100000, CLIENT),
    ROW(RETIRE_NODES,     retire_nodes,     4 * MIB,      100000, CLIENT),
    ROW(CHANGED,          changed,          32 * MIB,     200000, DAEMON),
    ROW(MARK_NODES,       mark_nodes,       4 * MIB,      100000, CLIENT),
    ROW(CLEAR_MARKS,      clear_marks,      4 * MIB,      100000, CLIENT),
    ROW(MOVE_NODES,       move_nodes,       4 * MIB,      100000, CLIENT),
    ROW(CANCEL_MOVE,      cancel_move,      1 * KIB,          64, CLIENT),
    ROW(GET_MOVES,        get_moves,        1 * KIB,          64, CLIENT),
    ROW(MOVES,            moves,            16 * MIB,     200000, DAEMON),
    ROW(START_RUN,        start_run,        64 * KIB,         64, CLIENT),
    ROW(STARTED_RUN,      started_run,      64 * KIB,         64, DAEMON),
    ROW(STOP_RUN,         stop_run,         1 * KIB,          64, CLIENT),
    ROW(GET_RUNS,         get_runs,         1 * KIB,          64, CLIENT),
    ROW(RUNS,             runs,             64 * MIB,    1000000, DAEMON),
    ROW(GET_RUN_TFS,      get_run_tfs,      1 * KIB,          64, CLIENT),
    ROW(RUN_TFS,          run_tfs,          64 * MIB,    1000000, DAEMON),
    ROW(SUBMIT,           submit,           64 * MIB,    4000000, CLIENT),
    ROW(SUBMITTED,        submitted,        1 * KIB,          64, DAEMON),
    ROW(GET_JOBS,         get_jobs,         1 * KIB,          64, CLIENT),
    ROW(JOBS,             jobs,             64 * MIB,    1000000, DAEMON),
    ROW(GET_TASKS,        get_tasks,        4 * KIB,         256, CLIENT),
    ROW(TASKS,            tasks,            64 * MIB,    1000000, DAEMON),
    ROW(CANCEL_JOB,       cancel_job,       8 * KIB,          64, CLIENT),
    ROW(WAIT,             wait,             1 * KIB,          64, CLIENT),
    ROW(WAITED,           waited,           8 * KIB,          64, DAEMON),
    ROW(GET_CRASHES,      get_crashes,      1 * KIB,          64, CLIENT),
    ROW(CRASHES,          crashes,          16 * MIB,     200000, DAEMON),
    ROW(PURGE_CRASHES,    purge_crashes,    1 * MIB,      100000, CLIENT),
    ROW(BACKUP,           backup,           8 * KIB,          64, CLIENT),
    ROW(GET_CHECK,        get_check,        1 * KIB,          64, CLIENT),
    ROW(CHECK_RESULT,     check_result,     4 * MIB,      100000, DAEMON),
    ROW(GET_SHM,          get_shm,          4 * MIB,      100000, CLIENT),
    ROW(SHM,              shm,              16 * MIB,     100000, DAEMON),
    ROW(GET_CONFIG,       get_config,       1 * KIB,          64, CLIENT),
    ROW(CONFIG,           config,           8 * MIB,          64, DAEMON),
    ROW(GET_SAMPLES,      get_samples,      1 * KIB,          64, CLIENT),
    ROW(SAMPLES,          samples,          64 * MIB,    2000000, DAEMON),
    ROW(GET_LOGS,         get_logs,         1 * KIB,          64, CLIENT),
    ROW(LOGS,             logs,             8 * MIB,      100000, DAEMON),
    ROW(GET_METRICS,      get_metrics,      1 * KIB,          64, CLIENT),
    ROW(METRICS,          metrics,          32 * MIB,         64, DAEMON),
    ROW(GET_HEALTH,       get_health,       1 * KIB,          64, CLIENT),
    ROW(HEALTH,           health,           32 * MIB,     500000, DAEMON),
    ROW(RESET_HEALTH,     reset_health,     1 * KIB,          64, CLIENT),
    ROW(SET_SHM,          set_shm,          4 * MIB,      100000, CLIENT),
    ROW(SET_NICE,         set_nice,         1 * KIB,          64, CLIENT),
    ROW(HOLD_JOB,         hold_job,         8 * KIB,          64, CLIENT),
    ROW(RELEASE_JOB,      release_job,      1 * KIB,          64, CLIENT),
    ROW(RERUN_JOB,        rerun_job,        1 * KIB,          64, CLIENT),
    ROW(GET_WHY,          get_why,          1 * KIB,          64, CLIENT),
    ROW(WHY,              why,              1 * MIB,       16384, DAEMON),
    ROW(GET_ATTEMPTS,     get_attempts,     1 * KIB,          64, CLIENT),
    ROW(ATTEMPTS,         attempts,         32 * MIB,      16384, DAEMON),
    ROW(WATCH,            watch,            1 * KIB,          64, CLIENT),
    ROW(SUBMIT_FILES,     submit_files,     64 * MIB,    4000000, CLIENT),
};
/* clang-format on */

const struct frame_type *frame_types(size_t *n)
{
    *n = ARRAY_LEN(types);
    return types;
}

/* Rows stand in the order of their numbers; frame_test checks it. */
const struct frame_type *frame_type(unsigned type)
{
    size_t low = 0, high = ARRAY_LEN(types);

    while (low < high) {
        size_t mid = (low + high) / 2;

        if ((unsigned)types[mid].type < type)
            low = mid + 1;
        else
            high = mid;
    }
    return low < ARRAY_LEN(types) && (unsigned)types[low].type == type ? &types[low] : NULL;
}

const struct frame_type *frame_type_of(const ProtobufCMessage *m)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (types[i].descriptor == m->descriptor)
            return &types[i];
    return NULL;
}

/* ---- the head ---- */

static void put_le(uint8_t *out, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        out[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t get_le(const uint8_t *in, unsigned bytes)
{
    uint32_t v = 0;

    for (unsigned i = 0; i < bytes; i++)
        v |= (uint32_t)in[i] << (8 * i);
    return v;
}

void frame_pack_head(const struct frame_head *h, uint8_t out[FRAME_HEAD])
{
    put_le(out, FRAME_MAGIC, 2);
    out[2] = FRAME_VERSION;
    out[3] = h->fds;
    put_le(out + 4, 0, 2);
    put_le(out + 6, h->type, 2);
    put_le(out + 8, h->length, 4);
    put_le(out + 12, h->id, 4);
}

int frame_parse_head(const uint8_t in[FRAME_HEAD], struct frame_head *h, struct err *e)
{
    const struct frame_type *t;
    unsigned magic = get_le(in, 2), type = get_le(in + 6, 2);
    uint32_t length = get_le(in + 8, 4);

    if (magic != FRAME_MAGIC)
        return err_set(e, ERR_PROTOCOL, "not a frame of Sluice: it begins with 0x%04x, wanted 0x%04x",
                       magic, FRAME_MAGIC);
    if (in[2] != FRAME_VERSION)
        return err_set(e, ERR_PROTOCOL, "frame version %u, this side speaks %u", in[2], FRAME_VERSION);
    if (get_le(in + 4, 2) != 0)
        return err_set(e, ERR_PROTOCOL, "frame with 0x%04x where 0 belongs", get_le(in + 4, 2));
    t = frame_type(type);
    if (t == NULL)
        return err_set(e, ERR_PROTOCOL, "frame of unknown type %u", type);
    if (length > t->max_length)
        return err_set(e, ERR_PROTOCOL, "%s of %u bytes, at most %u are taken", t->name, length,
                       t->max_length);
    if (in[3] > FRAME_MAX_FDS)
        return err_set(e, ERR_PROTOCOL, "%s with %u descriptors, at most %u are taken", t->name, in[3],
                       FRAME_MAX_FDS);
    *h = (struct frame_head){ .type = (uint16_t)type, .fds = in[3], .length = length,
                              .id = get_le(in + 12, 4) };
    return 0;
}

/* ---- the walk over a packed message ---- */

struct walk {
    const struct frame_type *type;
    size_t      elements;
    struct err *e;
};

struct span { const uint8_t *p, *end; };

static int refuse(struct walk *w, const char *what)
{
    return err_set(w->e, ERR_PROTOCOL, "%s: %s", w->type->name, what);
}

static int count(struct walk *w, size_t n)
{
    if (n > w->type->max_elements - w->elements)
        return err_set(w->e, ERR_PROTOCOL, "%s with more than %u elements", w->type->name,
                       w->type->max_elements);
    w->elements += n;
    return 0;
}

static int take_varint(struct span *s, uint64_t *value)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < 10 && s->p < s->end; i++) {
        uint8_t b = *s->p++;

        if (i == 9 && b > 1)
            return -1;
        v |= (uint64_t)(b & 0x7f) << (7 * i);
        if ((b & 0x80) == 0) {
            *value = v;
            return 0;
        }
    }
    return -1;
}

/* Length of the sequence that begins at p, 0 when it is not UTF-8 (or NUL, which would cut the string short). */
static unsigned utf8_step(const uint8_t *p, const uint8_t *end)
{
    static const struct { uint8_t mask, lead; unsigned n; uint32_t least; } forms[] = {
        { 0x80, 0x00, 1, 1 }, { 0xe0, 0xc0, 2, 0x80 }, { 0xf0, 0xe0, 3, 0x800 }, { 0xf8, 0xf0, 4, 0x10000 },
    };

    for (size_t f = 0; f < ARRAY_LEN(forms); f++) {
        uint32_t c = (uint8_t)(p[0] & ~forms[f].mask);

        if ((p[0] & forms[f].mask) != forms[f].lead)
            continue;
        if ((size_t)(end - p) < forms[f].n)
            return 0;
        for (unsigned i = 1; i < forms[f].n; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (p[i] & 0x3f);
        }
        if (c < forms[f].least || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
        return forms[f].n;
    }
    return 0;
}

static bool is_utf8(struct span s)
{
    while (s.p < s.end) {
        unsigned n = utf8_step(s.p, s.end);

        if (n == 0)
            return false;
        s.p += n;
    }
    return true;
}

bool frame_is_utf8(const char *text)
{
    return is_utf8((struct span){ (const uint8_t *)text, (const uint8_t *)text + strlen(text) });
}

enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static enum wire wire_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32: case PROTOBUF_C_TYPE_FIXED32: case PROTOBUF_C_TYPE_FLOAT:
        return FIXED32;
    case PROTOBUF_C_TYPE_SFIXED64: case PROTOBUF_C_TYPE_FIXED64: case PROTOBUF_C_TYPE_DOUBLE:
        return FIXED64;
    case PROTOBUF_C_TYPE_STRING: case PROTOBUF_C_TYPE_BYTES: case PROTOBUF_C_TYPE_MESSAGE:
        return BYTES;
    default:
        return VARINT;
    }
}

static int check_enum(struct walk *w, const ProtobufCFieldDescriptor *f, uint64_t value)
{
    if (f->type != PROTOBUF_C_TYPE_ENUM || protobuf_c_enum_descriptor_get_value(f->descriptor, (int)value))
        return 0;
    return err_set(w->e, ERR_PROTOCOL, "%s: %s has the unknown value %llu", w->type->name, f->name,
                   (unsigned long long)value);
}

static int walk_packed(struct walk *w, const ProtobufCFieldDescriptor *f, struct span s)
{
    unsigned width = wire_of(f->type) == FIXED64 ? 8 : 4;
    uint64_t value;

    if (wire_of(f->type) != VARINT)
        return (s.end - s.p) % width ? refuse(w, "packed numbers of a broken length")
                                     : count(w, (size_t)(s.end - s.p) / width);
    while (s.p < s.end) {
        if (take_varint(&s, &value) < 0)
            return refuse(w, "a broken number");
        if (count(w, 1) < 0 || check_enum(w, f, value) < 0)
            return -1;
    }
    return 0;
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *d, struct span s, unsigned depth);

/* A field whose bytes are s. f NULL: unknown, kept as it is. */
static int walk_bytes(struct walk *w, const ProtobufCFieldDescriptor *f, struct span s, unsigned depth)
{
    if (f == NULL || f->type == PROTOBUF_C_TYPE_BYTES)
        return 0;
    if (f->type == PROTOBUF_C_TYPE_STRING && !is_utf8(s))
        return err_set(w->e, ERR_PROTOCOL, "%s: %s is not UTF-8", w->type->name, f->name);
    if (f->type == PROTOBUF_C_TYPE_STRING)
        return 0;
    if (f->type == PROTOBUF_C_TYPE_MESSAGE)
        return count(w, 1) < 0 ? -1 : walk_message(w, f->descriptor, s, depth + 1);
    return walk_packed(w, f, s);
}

/* The value after a tag: moves s behind it. */
static int walk_value(struct walk *w, const ProtobufCFieldDescriptor *f, unsigned wire, struct span *s, unsigned depth)
{
    uint64_t value = 0;
    size_t size = 0;

    switch (wire) {
    case VARINT:
        if (take_varint(s, &value) < 0)
            return refuse(w, "a broken number");
        return f ? check_enum(w, f, value) : 0;
    case FIXED64: size = 8; break;
    case FIXED32: size = 4; break;
    case BYTES:
        if (take_varint(s, &value) < 0)
            return refuse(w, "a broken length");
        if (value > (size_t)(s->end - s->p))
            return refuse(w, "a field longer than its message");
        size = (size_t)value;
        if (walk_bytes(w, f, (struct span){ s->p, s->p + size }, depth) < 0)
            return -1;
        break;
    default:
        return refuse(w, "a field of an unknown wire type");
    }
    if (size > (size_t)(s->end - s->p))
        return refuse(w, "it ends in the middle of a field");
    s->p += size;
    return 0;
}

/* The wire type fits the field, or is the packed form of a repeated number. */
static bool fits(const ProtobufCFieldDescriptor *f, unsigned wire)
{
    return wire == (unsigned)wire_of(f->type) || (wire == BYTES && f->label == PROTOBUF_C_LABEL_REPEATED);
}

static int walk_message(struct walk *w, const ProtobufCMessageDescriptor *d, struct span s, unsigned depth)
{
    size_t singles = 0;

    if (depth > MAX_DEPTH)
        return refuse(w, "messages nested too deep");
    while (s.p < s.end) {
        const ProtobufCFieldDescriptor *f;
        uint64_t tag;

        if (take_varint(&s, &tag) < 0 || tag >> 3 == 0 || tag >> 3 > 0x1fffffff)
            return refuse(w, "a broken tag");
        f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
        if (f && !fits(f, tag & 7))
            return err_set(w->e, ERR_PROTOCOL, "%s: %s has the wrong wire type %u", w->type->name, f->name,
                           (unsigned)(tag & 7));
        /* One that comes once is free; what is repeated, unknown, or sent over and over costs memory when it is unpacked. */
        if (f && f->label != PROTOBUF_C_LABEL_REPEATED && ++singles <= d->n_fields)
            ;
        else if (f && f->type == PROTOBUF_C_TYPE_MESSAGE)
            ;                           /* walk_bytes counts it */
        else if (f && f->label == PROTOBUF_C_LABEL_REPEATED && (tag & 7) == BYTES && wire_of(f->type) != BYTES)
            ;                           /* so does walk_packed, an element each */
        else if (count(w, 1) < 0)
            return -1;
        if (walk_value(w, f, tag & 7, &s, depth) < 0)
            return -1;
    }
    return 0;
}

ProtobufCMessage *frame_unpack(const struct frame_type *t, const uint8_t *data, size_t size, struct err *e)
{
    struct walk w = { .type = t, .e = e };
    ProtobufCMessage *m;

    if (size > t->max_length)
        return err_null(e, ERR_PROTOCOL, "%s of %zu bytes, at most %u are taken", t->name, size, t->max_length);
    if (size > 0 && walk_message(&w, t->descriptor, (struct span){ data, data + size }, 0) < 0)
        return NULL;
    m = protobuf_c_message_unpack(t->descriptor, NULL, size, data);
    if (m == NULL)
        return err_null(e, ERR_PROTOCOL, "%s that cannot be unpacked", t->name);
    return m;
}

void *proto_copy(const ProtobufCMessage *m)
{
    size_t size = protobuf_c_message_get_packed_size(m);
    uint8_t *bytes = mem_zalloc(size);
    ProtobufCMessage *copy;

    protobuf_c_message_pack(m, bytes);
    copy = protobuf_c_message_unpack(m->descriptor, NULL, size, bytes);
    free(bytes);
    if (copy == NULL) {
        struct err e;

        err_set(&e, ERR_FAILED, "a %s of %zu bytes could not be copied: no memory", m->descriptor->short_name, size);
        log_die(&e);
    }
    return copy;
}
