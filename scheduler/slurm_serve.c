/* slurm_serve.c - see slurm_serve.h
 *
 * Nothing but blocking reads and writes: whoever asks has the deadline.
 */
#include "config.h"

#include "slurm_serve.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file.h"
#include "mem.h"

/* 1: all of it; 0: the other side has closed before the first byte. */
static int read_all(int fd, uint8_t *to, size_t size, struct err *e)
{
    size_t got = 0;

    while (got < size) {
        ssize_t n = read(fd, to + got, size - got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_UNREACHABLE, "reading a question");
        if (n == 0)
            return got == 0 ? 0 : err_set(e, ERR_UNREACHABLE, "the other side closed within a question");
        got += (size_t)n;
    }
    return 1;
}

static int send_message(int fd, uint32_t id, const ProtobufCMessage *m, struct err *e)
{
    const struct frame_type *t = frame_type_of(m);
    size_t size = protobuf_c_message_get_packed_size(m);
    struct frame_head h = { .type = (uint16_t)t->type, .length = (uint32_t)size, .id = id };
    uint8_t *bytes;
    int rc;

    if (size > t->max_length)
        return err_set(e, ERR_PROTOCOL, "an answer of %zu bytes, %s takes %u", size, t->name, t->max_length);
    bytes = mem_zalloc(FRAME_HEAD + size);
    frame_pack_head(&h, bytes);
    protobuf_c_message_pack(m, bytes + FRAME_HEAD);
    rc = file_write_all(fd, bytes, FRAME_HEAD + size, e);
    free(bytes);
    return rc;
}

static int send_error(int fd, uint32_t id, const struct err *why, const char *word, struct err *e)
{
    Sluice__Error m = SLUICE__ERROR__INIT;

    m.has_code = true;
    m.code = why->code;
    m.text = (char *)why->text;
    m.word = (char *)word;
    return send_message(fd, id, &m.base, e);
}

static int answer(int fd, const struct slurm_backend *b, const struct frame_head *h, const ProtobufCMessage *q, struct err *e)
{
    const char *word = "Slurm";
    ProtobufCMessage *out;
    struct err why;
    int rc;

    if (h->type == SLUICE__TYPE__SLURM_POLL) {
        Sluice__SlurmState *s = mem_zalloc(sizeof(*s));

        sluice__slurm_state__init(s);
        out = &s->base;
        rc = b->poll((const Sluice__SlurmPoll *)q, s, &why, &word);
    } else {
        Sluice__SlurmDone *d = mem_zalloc(sizeof(*d));

        sluice__slurm_done__init(d);
        out = &d->base;
        rc = b->act((const Sluice__SlurmDo *)q, d, &why, &word);
    }
    rc = rc < 0 ? send_error(fd, h->id, &why, word, e) : send_message(fd, h->id, out, e);
    protobuf_c_message_free_unpacked(out, NULL);
    return rc;
}

/* 1: answered; 0: the end. */
static int serve_one(int fd, const struct slurm_backend *b, struct err *e)
{
    uint8_t head[FRAME_HEAD], *bytes = NULL;
    const struct frame_type *t;
    struct frame_head h;
    ProtobufCMessage *q;
    int rc = read_all(fd, head, sizeof(head), e);

    if (rc <= 0)
        return rc;
    if (frame_parse_head(head, &h, e) < 0)
        return -1;
    t = frame_type(h.type);
    if (h.type != SLUICE__TYPE__SLURM_POLL && h.type != SLUICE__TYPE__SLURM_DO)
        return err_set(e, ERR_PROTOCOL, "%s is no question to this helper", t->name);
    bytes = mem_zalloc((size_t)h.length + 1);
    rc = h.length == 0 ? 1 : read_all(fd, bytes, h.length, e);
    q = rc > 0 ? frame_unpack(t, bytes, h.length, e) : NULL;
    free(bytes);
    if (q == NULL)
        return rc == 0 ? err_set(e, ERR_UNREACHABLE, "the other side closed within a question") : -1;
    rc = answer(fd, b, &h, q, e) < 0 ? -1 : 1;
    protobuf_c_message_free_unpacked(q, NULL);
    return rc;
}

int slurm_serve(int fd, const struct slurm_backend *backend, struct err *e)
{
    int rc;

    while ((rc = serve_one(fd, backend, e)) > 0)
        ;
    return rc;
}
