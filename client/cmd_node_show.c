/* cmd_node_show.c - node show: all about one node on one page
 *
 * From: sluiced, the node and its last events.  To: standard output; in the machine modes the object as `nodes` has it.
 * The page puts first what somebody at three in the morning looks for: whether it works, and why not.
 */
#include "config.h"

#include "command.h"

#include "call.h"
#include "clock.h"
#include "message.h"
#include "nodes_listing.h"
#include "show.h"
#include "str.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVENTS = 5 };

/* --- a line: its name, then what str_add put together ---------------------------------------- */

static void line(const char *name, struct str *s)
{
    if (s->len > 0)
        printf("%-10s  %s\n", name, str_text(s));
    str_free(s);
}

static void add_text(struct str *s, const char *before, const char *text)
{
    if (text == NULL || text[0] == '\0')
        return;
    str_add(s, before);
    str_escape(s, text, strlen(text));
}

static void add_seconds(struct str *s, const char *before, double seconds)
{
    char text[CLOCK_TEXT];

    str_addf(s, "%s%s", before, clock_duration_text((int64_t)(seconds * 1e9), text));
}

static void add_age(struct str *s, const char *before, int64_t since)
{
    char text[CLOCK_TEXT];

    str_addf(s, "%s%s ago", before, clock_duration_text((clock_wall_ns() - since) / CLOCK_SECOND * CLOCK_SECOND, text));
}

static void add_size(struct str *s, const char *before, uint64_t bytes)
{
    char text[32];

    str_addf(s, "%s%s", before, str_size_text(bytes, text));
}

static void add_word(struct str *s, const char *before, const ProtobufCEnumDescriptor *d, int value)
{
    char *word = message_enum_word(d, value);

    str_addf(s, "%s%s", before, word);
    free(word);
}

/* --- the node -------------------------------------------------------------------------------- */

/* The blocking mark on that device. */
static bool is_marked(const Sluice__Node *n, const Sluice__Device *d)
{
    for (size_t i = 0; i < n->n_marks; i++) {
        if (n->marks[i]->severity == SLUICE__SEVERITY__BLOCK && d->serial != NULL && str_equal(n->marks[i]->part, d->serial))
            return true;
    }
    return false;
}

static size_t devices_at_work(const Sluice__Node *n)
{
    size_t count = 0;

    for (size_t i = 0; i < n->n_devices; i++) {
        const Sluice__Device *d = n->devices[i];
        bool out = d->has_state && (d->state == SLUICE__DEVICE_STATE__DEVICE_BROKEN || d->state == SLUICE__DEVICE_STATE__DEVICE_UNCLEAN);

        count += !out && !is_marked(n, d);
    }
    return count;
}

/* One that takes work has reasons about single devices only. */
static void print_head(const Sluice__Node *n)
{
    struct str s = { 0 };

    add_word(&s, "", &sluice__node_state__descriptor, (int)n->state);
    str_add(&s, n->usable ? ", takes work" : ", takes no work");
    if (n->usable && n->n_why > 0)
        str_addf(&s, " (%zu of %zu devices", devices_at_work(n), n->n_devices);
    for (size_t i = 0; i < n->n_why; i++)
        add_text(&s, i == 0 ? ": " : ", ", n->why[i]);
    str_add(&s, n->usable && n->n_why > 0 ? ")" : "");
    str_add(&s, n->added ? "" : "; not added to the farm (sluice node add)");
    line(n->name, &s);
    add_text(&s, "", n->trouble);
    line("trouble", &s);
    add_text(&s, "", n->pool);
    if (n->move != NULL) {
        str_addf(&s, "; move %" PRIu64, n->move->id);
        add_text(&s, " to ", n->move->to);
        add_text(&s, ": ", n->move->state);
        add_text(&s, ", by ", n->move->requested_by);
        add_text(&s, ": ", n->move->text);
    } else if (!str_equal(n->pool, n->wanted_pool)) {
        add_text(&s, ", wanted ", n->wanted_pool);
    }
    line("pool", &s);
}

static void print_machine(const Sluice__Node *n)
{
    struct str s = { 0 };

    add_text(&s, "", n->class_);
    str_add(&s, n->emulated ? ", emulated" : "");
    line("class", &s);
    add_word(&s, "", &sluice__contact__descriptor, (int)n->contact);
    if (n->has_last_contact_s)
        add_seconds(&s, ", last ", n->last_contact_s);
    add_text(&s, " ago; host ", n->host);
    add_text(&s, ", sluice-worker ", n->software);
    if (n->has_clock_offset)
        add_seconds(&s, ", its clock off by ", n->clock_offset);
    if (n->has_clock_error && n->clock_error >= 0.1)
        add_seconds(&s, " +- ", n->clock_error);
    if (n->has_memory)
        add_size(&s, ", memory ", n->memory);
    line("contact", &s);
}

/* What Slurm says beside what we say. */
static void print_slurm(const Sluice__SlurmInfo *i)
{
    struct str s = { 0 };

    if (i == NULL)
        return;
    if (i->has_as_of)
        add_age(&s, "silent; said ", i->as_of);
    add_text(&s, i->has_as_of ? ": " : "", i->state == NULL ? "no answer yet" : i->state);
    add_text(&s, ": ", i->reason);
    add_text(&s, ", by ", i->reason_user);
    if (i->has_reason_time)
        add_age(&s, ", ", i->reason_time);
    add_text(&s, "; mode ", i->mode);
    if (i->has_reserved)
        str_add(&s, i->reserved ? ", reserved for us" : ", not reserved");
    add_text(&s, "; reservation ", i->reservation);
    add_text(&s, "; not done: ", i->trouble);
    line("slurm", &s);
    if (i->lease != NULL)
        str_add(&s, i->lease);
    if (i->has_lease_job)
        str_addf(&s, ", job %u", i->lease_job);
    if (i->has_lease_end)
        add_seconds(&s, ", ends in ", (double)((i->lease_end - clock_wall_ns()) / CLOCK_SECOND));
    add_text(&s, ": ", i->lease_why);
    line("lease", &s);
}

static void print_work(const Sluice__Node *n)
{
    struct str s = { 0 };

    str_addf(&s, "%u here", n->tfs);
    if (n->has_building)
        str_addf(&s, ": %u building, %u queued, %u processing, %u delivering", n->building, n->queued, n->processing, n->delivering);
    str_addf(&s, "; %" PRIu64 " done, %" PRIu64 " failed, %" PRIu64 " refused", n->done, n->failed, n->refused);
    if (n->has_seconds_per_tf)
        add_seconds(&s, ", each ", n->seconds_per_tf);
    line("TFs", &s);
    if (n->has_buffer_size) {
        add_size(&s, "", n->buffer_size);
        add_size(&s, ", charged ", n->buffer_charged);
        add_size(&s, ", used ", n->buffer_used);
    }
    if (n->has_shm_wanted && n->shm_wanted != n->shm_active)
        add_size(&s, s.len > 0 ? ", wanted " : "wanted ", n->shm_wanted);
    line("buffer", &s);
    if (n->has_nice_actual)
        str_addf(&s, "%d", n->nice_actual);
    if (n->has_nice_wanted && (!n->has_nice_actual || n->nice_wanted != n->nice_actual))
        str_addf(&s, "%swanted %d", s.len > 0 ? ", " : "", n->nice_wanted);
    add_text(&s, ": ", n->nice_text);
    line("nice", &s);
}

/* --- its devices ------------------------------------------------------------------------------ */

static void add_memory(struct str *s, const Sluice__Device *d)
{
    if (!d->has_memory_used)
        return;
    add_size(s, ", memory in use ", d->memory_used);
    for (size_t i = 0; i < d->n_pids; i++)
        str_addf(s, "%s%u", i == 0 ? " by pid " : ", ", d->pids[i]);
}

static void add_place(struct str *s, const Sluice__Device *d)
{
    if (d->misplaced != NULL)
        add_text(s, "; MISPLACED: ", d->misplaced);
    else
        add_text(s, ", CPUs ", d->cpus_actual);
    if (d->misplaced == NULL && d->has_numa_wanted)
        str_addf(s, " (NUMA domain %d)", d->numa_wanted);
}

static void add_pinned(struct str *s, const Sluice__Pinned *p)
{
    if (p == NULL)
        return;
    add_size(s, ", pinned ", p->actual);
    if (p->actual != p->wanted)
        add_size(s, " of ", p->wanted);
    if (p->staging > 0)
        add_size(s, ", staging ring of ", p->staging);
    add_text(s, ": ", p->text);
}

static void add_nice(struct str *s, const Sluice__Device *d)
{
    if (!d->has_nice_actual)
        return;
    str_addf(s, ", nice %d", d->nice_actual);
    if (d->nice_wanted != d->nice_actual)
        str_addf(s, " (wanted %d)", d->nice_wanted);
    add_text(s, " for ", d->nice_for);
}

static void print_device(const Sluice__Device *d, bool marked)
{
    struct str s = { 0 };

    add_text(&s, "", d->serial);
    str_add(&s, marked ? ": marked" : "");
    if (!marked || d->state != SLUICE__DEVICE_STATE__DEVICE_FREE)        /* what it does all the same, or what else is wrong with it */
        add_word(&s, marked ? ", " : ": ", &sluice__device_state__descriptor, (int)d->state);
    add_text(&s, ": ", d->why);
    add_text(&s, ", ", d->backend);
    if (d->has_seconds_per_tf)
        add_seconds(&s, ", a TF in ", d->seconds_per_tf);
    if (d->has_nominal && d->nominal > 0)
        add_seconds(&s, " (nominal ", d->nominal), str_add(&s, ")");
    str_addf(&s, ", %" PRIu64 " restarts, %" PRIu64 " stalls", d->restarts, d->stalls);
    add_nice(&s, d);
    add_memory(&s, d);
    add_place(&s, d);
    add_pinned(&s, d->pinned);
    line("device", &s);
}

/* --- what people and health said of it ---------------------------------------------------------- */

static void print_mark(const Sluice__MarkInfo *m)
{
    char until[CLOCK_TEXT];
    struct str s = { 0 };

    str_addf(&s, "%" PRIu64, m->id);
    add_text(&s, ", ", m->part);
    add_word(&s, ", ", &sluice__severity__descriptor, (int)m->severity);
    add_text(&s, " ", m->class_);
    add_text(&s, ", by ", m->owner);
    add_text(&s, " (", m->owner_kind);
    add_age(&s, m->owner_kind != NULL ? "), " : ", ", m->created);
    if (m->has_until && m->until != 0)
        str_addf(&s, ", until %.19s", clock_rfc3339(m->until, until));
    add_text(&s, ": ", m->reason);
    add_text(&s, "; ", m->evidence);
    if (m->has_part_present && !m->part_present)
        str_add(&s, " (about a part no longer present)");
    line("mark", &s);
}

static void print_event(const Sluice__Event *v)
{
    char time[CLOCK_TEXT];
    struct str s = { 0 };

    str_addf(&s, "%.19s", clock_rfc3339(v->time, time));
    add_text(&s, "  ", v->what);
    add_text(&s, " by ", v->who);
    add_text(&s, ", from ", v->before);
    add_text(&s, v->before != NULL && v->before[0] != '\0' ? " to " : ", ", v->after);
    add_text(&s, ": ", v->reason);
    line("event", &s);
}

static int print_events(struct context *ctx, char *name, struct err *e)
{
    Sluice__GetHistory q = SLUICE__GET_HISTORY__INIT;
    Sluice__History *h;

    q.names = &name;
    q.n_names = 1;
    q.has_limit = 1;
    q.limit = EVENTS;
    h = call(ctx, &q.base, SLUICE__TYPE__HISTORY, CALL_LIMIT_S, e);
    if (h == NULL)
        return -1;
    for (size_t i = 0; i < h->n_events; i++)
        print_event(h->events[i]);
    call_free(h);
    return 0;
}

static int print_page(struct context *ctx, const Sluice__Node *n, struct err *e)
{
    print_head(n);
    for (size_t i = 0; i < n->n_marks; i++)
        print_mark(n->marks[i]);
    print_slurm(n->slurm);
    print_work(n);
    print_machine(n);
    for (size_t i = 0; i < n->n_devices; i++)
        print_device(n->devices[i], is_marked(n, n->devices[i]));
    return print_events(ctx, n->name, e);
}

int cmd_node_show(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;
    Sluice__Nodes *n;
    int r;

    if (show_columns_help(ctx, &nodes_listing))
        return 0;
    q.names = a->at;
    q.n_names = 1;
    n = call(ctx, &q.base, SLUICE__TYPE__NODES, CALL_LIMIT_S, e);
    if (n == NULL)
        return -1;
    if (n->n_nodes == 0)
        r = err_set(e, ERR_NOT_FOUND, "there is no node '%s'", a->at[0]);
    else if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        r = print_page(ctx, n->nodes[0], e);
    else
        r = show_one(ctx, &nodes_listing, message_json(&n->nodes[0]->base), e);
    call_free(n);
    return r;
}
