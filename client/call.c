/* call.c - connects, sends one question, waits for its answer
 *
 * From: the commands.  To: sluiced over proto/.
 * A loop of its own for each call, gone when it returns; heartbeats run in it, so that a dead sluiced is noticed also while an
 * answer takes its time.
 */
#include "config.h"

#include "call.h"

#include "clock.h"
#include "farm.h"
#include "frame.h"
#include "mem.h"
#include "message.h"
#include "names.h"
#include "peer.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct call {
    struct ev_loop *loop;
    const ProtobufCMessage *question;       /* NULL: only the handshake */
    const ProtobufCMessage *(*next)(void *arg, size_t i);       /* what follows it; NULL: nothing */
    void *arg;
    size_t sent;
    Sluice__Type want;
    ProtobufCMessage *answer;
    Sluice__Welcome *welcome;
    Sluice__Ready *ready;
    struct connector *connector;
    bool done, was_ready, expired;
    unsigned retry_ms;                      /* sluiced is busy: to be asked again after so long */
    struct err err;
};

enum { LATE_S = 1 };        /* an answer at the end of a wait may come so late */

/* --- where ---------------------------------------------------------------------------------- */

const char *call_address(struct context *ctx)
{
    const char *given = getenv("SLUICE_SOCKET");
    char *farm, *path;

    if (ctx->tcp || (ctx->address != NULL && strncmp(ctx->address, "unix:", 5) == 0))
        return ctx->address;
    if (ctx->address != NULL) {
        path = ctx->address;
    } else if (given != NULL && given[0] != '\0') {
        path = args_path(given);
    } else if ((farm = farm_search(".")) != NULL) {
        path = mem_printf("%s/sluiced.sock", farm);
        free(farm);
    } else {
        path = mem_strdup("/run/sluice/sluiced.sock");
    }
    ctx->address = mem_printf("unix:%s", path);
    free(path);
    return ctx->address;
}

/* --- the exchange --------------------------------------------------------------------------- */

static void finish(struct call *c)
{
    c->done = true;
    ev_break(c->loop, EVBREAK_ALL);
}

static void on_ready(void *arg, struct chan *chan, const Sluice__Welcome *w, const Sluice__Ready *r)
{
    struct call *c = arg;

    c->was_ready = true;
    if (c->question == NULL) {
        c->welcome = proto_copy(&w->base);
        c->ready = proto_copy(&r->base);
        finish(c);
    } else if (chan_send(chan, 1, c->question) < 0) {
        err_set(&c->err, ERR_UNREACHABLE, "the question could not be sent: it is too large, or the connection is gone");
        finish(c);
    }
}

static void on_message(void *arg, struct chan *chan, unsigned type, uint32_t id, const ProtobufCMessage *m, int *fds, unsigned n_fds)
{
    struct call *c = arg;
    const Sluice__Error *error = (const Sluice__Error *)m;
    const ProtobufCMessage *more;

    (void)fds;
    (void)n_fds;
    if (id != 1 || c->done)
        return;
    if (type == SLUICE__TYPE__OK && c->next != NULL && (more = c->next(c->arg, c->sent)) != NULL) {
        c->sent++;
        if (chan_send(chan, 1, more) == 0)
            return;
        err_set(&c->err, ERR_UNREACHABLE, "the question could not be sent: it is too large, or the connection is gone");
        finish(c);
        return;
    }
    c->retry_ms = type == SLUICE__TYPE__ERROR ? error->retry_ms : 0;
    if (type == SLUICE__TYPE__ERROR)
        err_set(&c->err, error->has_code && error->code != 0 ? (enum err_code)error->code : ERR_FAILED, "%s",
                error->text != NULL ? error->text : "refused without a reason");
    else if (type != (unsigned)c->want)
        err_set(&c->err, ERR_PROTOCOL, "sluiced answered with a message of type %u, %u was wanted", type, (unsigned)c->want);
    else
        c->answer = proto_copy(m);
    finish(c);
}

static void on_lost(void *arg, const struct err *why)
{
    struct call *c = arg;

    if (c->done)
        return;
    c->err = *why;
    c->retry_ms = c->connector == NULL ? 0 : connector_retry_ms(c->connector);
    if (why->code == ERR_NONE)
        err_set(&c->err, ERR_UNREACHABLE, "it closed the connection before it answered");
    else if (why->code == ERR_FAILED || why->code == ERR_TIMEOUT || why->code == ERR_NOT_FOUND)
        c->err.code = ERR_UNREACHABLE;
    finish(c);
}

static void on_limit(struct ev_loop *loop, ev_timer *t, int events)
{
    struct call *c = t->data;

    (void)loop;
    (void)events;
    c->expired = true;
    err_set(&c->err, c->was_ready ? ERR_TIMEOUT : ERR_UNREACHABLE,
            c->was_ready ? "no answer from sluiced in time" : "sluiced does not answer");
    finish(c);
}

/* Says where, unless the sentence does. */
static void name_place(const struct context *ctx, struct call *c)
{
    const char *place = ctx->tcp ? ctx->address : ctx->address + strlen("unix:");

    if (c->err.code == ERR_UNREACHABLE && strstr(c->err.text, place) == NULL)
        err_prefix(&c->err, "sluiced at %s", ctx->address);
}

static int exchange(struct context *ctx, struct call *c, double limit_s, struct err *e)
{
    struct connector_conf conf = {
        .address = call_address(ctx), .method = ctx->tcp ? ctx->method : NULL, .role = SLUICE__ROLE__CLIENT, .name = "sluice",
        .once = true, .events = { on_ready, on_message, on_lost }, .arg = c,
    };
    struct names *names = NULL;
    bool refused = false;
    ev_timer limit;

    if (c->question != NULL && message_check_texts(c->question, e) < 0)
        return -1;
    c->loop = ev_loop_new(EVFLAG_AUTO);
    if (c->loop == NULL)
        return err_set(e, ERR_FAILED, "no event loop");
    conf.loop = c->loop;
    if (ctx->tcp && (names = names_create(c->loop, e)) == NULL)
        goto fail;
    conf.names = names;
    c->connector = connector_create(&conf, &c->err);
    ev_timer_init(&limit, on_limit, limit_s > 0 ? limit_s : 0, 0);
    limit.data = c;
    if (limit_s > 0)
        ev_timer_start(c->loop, &limit);
    if (c->connector != NULL && !c->done)
        ev_run(c->loop, 0);
    ev_timer_stop(c->loop, &limit);
    connector_destroy(c->connector);
    c->connector = NULL;
    refused = c->answer == NULL && c->ready == NULL;
    if (refused) {
        name_place(ctx, c);
        if (e != NULL)
            *e = c->err;
    }
    names_destroy(names);
    ev_loop_destroy(c->loop);
    return refused ? -1 : 0;
fail:
    ev_loop_destroy(c->loop);
    return -1;
}

static double seconds_since(int64_t mono_ns)
{
    return (double)(clock_mono_ns() - mono_ns) / 1e9;
}

/* As long as sluiced said, and up to half more: not all that were put off come back together. */
static void come_again_later(unsigned ms)
{
    uint64_t ns = (uint64_t)ms * 1000000 + (uint64_t)(clock_mono_ns() / 1000 % 997) * ms * 500000 / 997;

    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) }, NULL);
}

/* exchange, for as long as sluiced says that it is busy and there is time. */
static int exchange_heeding(struct context *ctx, struct call *c, double limit_s, struct err *e)
{
    int64_t start = clock_mono_ns();

    for (;;) {
        struct call next = { .question = c->next ? c->next(c->arg, 0) : c->question, .next = c->next, .arg = c->arg, .sent = 1, .want = c->want };
        double left = limit_s > 0 ? limit_s - seconds_since(start) : 0;
        int rc = exchange(ctx, &next, left, e);

        if (next.was_ready)
            ctx->seen = clock_mono_ns();
        if (rc == 0 || next.retry_ms == 0 || (limit_s > 0 && left < next.retry_ms / 1000. + 1)) {
            *c = next;
            return rc;
        }
        come_again_later(next.retry_ms);
    }
}

/* Whatever was asked: where a watcher goes on from. */
static void take_seq(struct context *ctx, const ProtobufCMessage *answer)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(answer->descriptor, "seq");

    if (!ctx->keeps_seq && f != NULL && f->type == PROTOBUF_C_TYPE_UINT64 && *(const protobuf_c_boolean *)((const char *)answer + f->quantifier_offset))
        ctx->seq = (int64_t)*(const uint64_t *)((const char *)answer + f->offset);
}

void *call(struct context *ctx, const ProtobufCMessage *question, Sluice__Type want, double limit_s, struct err *e)
{
    struct call c = { .question = question, .want = want };

    if (exchange_heeding(ctx, &c, limit_s, e) < 0)
        return NULL;
    take_seq(ctx, c.answer);
    return c.answer;
}

void *call_series(struct context *ctx, const ProtobufCMessage *(*next)(void *arg, size_t i), void *arg, Sluice__Type want, double limit_s, struct err *e)
{
    struct call c = { .next = next, .arg = arg, .want = want };

    if (exchange_heeding(ctx, &c, limit_s, e) < 0)
        return NULL;
    take_seq(ctx, c.answer);
    return c.answer;
}

static void *not_over(double limit_s, struct err *e)
{
    return err_null(e, ERR_TIMEOUT, "not over within %g s", limit_s);
}

/* A local sluiced that ended without a word: an orderly one takes its socket along. */
static bool has_left_its_socket(const struct context *ctx)
{
    return !ctx->tcp && access(ctx->address + strlen("unix:"), R_OK | W_OK) == 0;
}

void *call_patient(struct context *ctx, const ProtobufCMessage *question, Sluice__Type want, double limit_s, double *left, double away_s, struct err *e)
{
    int64_t start = clock_mono_ns();

    for (;;) {
        struct call c = { .question = question, .want = want };
        double rest = limit_s > 0 ? limit_s - seconds_since(start) : 0;

        if (limit_s > 0 && rest < 0.001)
            return not_over(limit_s, e);
        if (left != NULL && limit_s > 0)
            *left = rest;
        if (exchange_heeding(ctx, &c, limit_s > 0 ? rest + LATE_S : 0, e) == 0) {
            take_seq(ctx, c.answer);
            return c.answer;
        }
        if (ctx->seen != 0 && limit_s > 0 && seconds_since(start) >= limit_s && (c.expired || c.err.code == ERR_UNREACHABLE))
            return not_over(limit_s, e);
        /* Only a sluiced that was there once may be waited for, and only while it is away. */
        if (c.err.code != ERR_UNREACHABLE || (ctx->seen == 0 && !has_left_its_socket(ctx)) || seconds_since(ctx->seen != 0 ? ctx->seen : start) > away_s)
            return NULL;
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
    }
}

void call_free(void *message)
{
    if (message != NULL)
        protobuf_c_message_free_unpacked(message, NULL);
}

int call_hello(struct context *ctx, Sluice__Welcome **w, Sluice__Ready **r, double *seconds, struct err *e)
{
    struct call c = { 0 };
    int64_t start = clock_mono_ns();

    if (exchange(ctx, &c, CALL_LIMIT_S, e) < 0)
        return -1;
    *seconds = seconds_since(start);
    take_seq(ctx, &c.ready->base);
    *w = c.welcome;
    *r = c.ready;
    return 0;
}
