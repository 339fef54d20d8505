/* held.c - a TF that this worker holds
 *
 * From: intake.c (Assign), device.c, deliver.c (steps), link.c (Verdict, Cancel, forget).  To: link.c (final answers).
 */
#include "config.h"
#include "held.h"

#include "clock.h"
#include "deliver.h"
#include "device.h"
#include "intake.h"
#include "link.h"
#include "log.h"
#include "mem.h"
#include "str.h"
#include "worker.h"


#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { B = SLUICE__PHASE__BUILDING, Q = SLUICE__PHASE__QUEUED, P = SLUICE__PHASE__PROCESSING,
       D = SLUICE__PHASE__DELIVERING, R = SLUICE__PHASE__REPORTED, A = SLUICE__PHASE__ACCEPTED };

static const struct { int from, to; } step[] = {
    { B, Q }, { Q, P }, { P, D }, { D, R }, { R, A },
    { B, R }, { Q, R }, { P, R },                /* failed */
    { P, Q },                                    /* the device went before it began */
};

struct held *held_create(struct worker *w, struct tf_name name, struct fence fence, struct work *work)
{
    struct held *h = mem_zalloc(sizeof *h);

    h->worker = w;
    h->key.name = name;
    h->key.fence = fence;
    h->work = work_use(work);
    h->phase = SLUICE__PHASE__BUILDING;
    h->assigned = clock_mono_ns();
    HASH_ADD(hh, w->held.table, key, sizeof h->key, h);
    w->held.n[h->phase]++;
    return h;
}

struct held *held_find(struct held_table *t, struct tf_name name, struct fence fence)
{
    struct held *h;
    struct { struct tf_name name; struct fence fence; } key = { name, fence };
    HASH_FIND(hh, t->table, &key, sizeof key, h);
    return h;
}

void held_phase(struct held *h, Sluice__Phase to)
{
    size_t i = 0;

    while (i < ARRAY_LEN(step) && !(step[i].from == (int)h->phase && step[i].to == (int)to))
        i++;
    if (i == ARRAY_LEN(step)) {
        log_err("%s: no step from phase %d to %d", held_text(h), h->phase, to);
        abort();
    }
    h->worker->held.n[h->phase]--;
    h->worker->held.n[to]++;
    h->phase = to;
    worker_changed(h->worker);
}

static void held_free(struct held *h)
{
    intake_build_free(h->build);
    delivery_free(h->delivery);
    work_unuse(&h->worker->works, h->work);
    free(h->segment);
    free(h->stem);
    free(h->input);
    free(h->cancelled);
    free(h->said);
    free(h->answer);
    free(h);
}

/* What can be given back now. */
static void held_settle(struct held *h)
{
    if (h->busy > 0)
        return;
    if (h->finished && h->range.size > 0) {
        ranges_give(buffer_ranges(h->worker->buffer), &h->range);
        worker_changed(h->worker);
    }
    if (h->dead)
        held_free(h);
}

void held_busy(struct held *h)
{
    h->busy++;
}

void held_unbusy(struct held *h)
{
    h->busy--;
    held_settle(h);
}

void held_finish(struct held *h)
{
    h->finished = true;
    held_settle(h);
}

void held_remove(struct held *h)
{
    HASH_DEL(h->worker->held.table, h);
    h->worker->held.n[h->phase]--;
    h->dead = h->finished = true;
    worker_changed(h->worker);
    held_settle(h);
}

void held_answer(struct held *h, const ProtobufCMessage *m)
{
    if (h->silent) {
        deliver_discard(h);
        return;
    }
    h->answer_type = m->descriptor == &sluice__done__descriptor ? SLUICE__TYPE__DONE : SLUICE__TYPE__FAILED;
    h->answer_size = protobuf_c_message_get_packed_size(m);
    h->answer = mem_zalloc(h->answer_size + 1);
    protobuf_c_message_pack(m, h->answer);
    held_phase(h, SLUICE__PHASE__REPORTED);
    held_finish(h);
    link_answer(h->worker->link, h);
}

void held_fail(struct held *h, const char *word, const char *stage, const char *device, const char *crash, const char *fmt, ...)
{
    Sluice__Failed m = SLUICE__FAILED__INIT;
    struct tf_id id;
    char text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tf_id_fill(&id, h->key.name, h->key.fence);
    m.tf = &id.tf;
    m.fence = &id.fence;
    m.word = (char *)word;
    str_mend(text, strlen(text));                /* it names files, and may tell what a process said */
    m.text = text;
    m.stage = (char *)stage;
    m.device = (char *)device;
    m.crash = (char *)crash;
    m.log = h->said;
    if (!h->silent)
        log_warning("%s: failed: %s: %s", held_text(h), word, text);
    held_answer(h, &m.base);
}

void held_cancel(struct held *h, const char *reason)
{
    if (h->phase >= SLUICE__PHASE__REPORTED || h->cancelled != NULL)
        return;
    h->cancelled = mem_strdup(reason && reason[0] ? reason : "cancelled");
    switch (h->phase) {
    case SLUICE__PHASE__BUILDING:
        intake_cancel(h);
        held_fail(h, "Cancelled", NULL, NULL, NULL, "%s", h->cancelled);
        break;
    case SLUICE__PHASE__QUEUED:
        devices_cancel(h->worker->devices, h);
        held_fail(h, "Cancelled", NULL, NULL, NULL, "%s", h->cancelled);
        break;
    case SLUICE__PHASE__PROCESSING:
        devices_cancel(h->worker->devices, h);
        break;
    default:
        deliver_cancel(h);
    }
}

void held_forget(struct held *h)
{
    if (h->silent || h->phase == SLUICE__PHASE__ACCEPTED)
        return;
    log_info("%s: forgotten on sluiced's word", held_text(h));
    h->silent = true;
    if (h->phase == SLUICE__PHASE__REPORTED)
        deliver_discard(h);
    else
        held_cancel(h, "forgotten");
}

void held_free_all(struct held_table *t)
{
    struct held *h, *next;

    HASH_ITER(hh, t->table, h, next) {
        HASH_DEL(t->table, h);
        if (h->busy == 0)                        /* else a thread hangs in the kernel with it */
            held_free(h);
    }
}

const char *held_text(const struct held *h)
{
    static char text[TF_TEXT];
    return tf_text(h->key.name, h->key.fence, text);
}
