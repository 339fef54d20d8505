/* node_show.c - a node as people see it: the message of `nodes` and `node show`
 *
 * From: show.c, watch.c.  To: proto.
 */
#include "config.h"

#include "node.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "conf.h"
#include "health.h"
#include "mem.h"
#include "move.h"
#include "nice.h"
#include "slurm_farm.h"

static void mark_message(const struct node *n, const struct mark *m, Sluice__MarkInfo *out)
{
    sluice__mark_info__init(out);
    out->has_id = out->has_severity = out->has_created = true;
    out->id = m->id;
    out->part = m->part;
    out->owner_kind = m->owner_kind;
    out->owner = m->owner;
    out->class_ = m->class;
    out->severity = m->block ? SLUICE__SEVERITY__BLOCK : SLUICE__SEVERITY__INFO;
    out->reason = m->reason;
    out->evidence = m->evidence;
    out->created = m->created;
    out->has_until = m->until != 0;
    out->until = m->until;
    out->has_part_present = strcmp(m->part, "node") != 0 && n->registered != NULL;
    out->part_present = out->has_part_present && node_part_is_here(n, m->part);
}

static void fill_marks(const struct node *n, Sluice__Node *out)
{
    const struct mark *m;
    size_t count = 0;

    TAILQ_FOREACH(m, &n->marks, entry)
        count++;
    if (count == 0)
        return;
    out->marks = mem_array(count, sizeof(*out->marks));
    TAILQ_FOREACH(m, &n->marks, entry) {
        Sluice__MarkInfo *info = mem_zalloc(sizeof(*info));

        mark_message(n, m, info);
        out->marks[out->n_marks++] = info;
    }
}

static void fill_numbers(const struct node *n, Sluice__Node *out)
{
    const Sluice__Report *r = n->report;

    out->has_buffer_charged = out->has_tfs = out->has_done = out->has_failed = out->has_refused = true;
    out->buffer_charged = n->load.charged;
    out->tfs = n->n_tfs;
    out->done = n->done;
    out->failed = n->failed;
    out->refused = n->refused;
    out->has_building = true;
    out->building = n->load.building;
    if (r == NULL)
        return;
    out->has_buffer_used = out->has_queued = out->has_processing = out->has_delivering = true;
    out->buffer_used = r->bytes_used;
    out->queued = r->queued;
    out->processing = r->processing;
    out->delivering = r->delivering;
    out->trouble = r->trouble;
    out->has_nice_actual = r->n_nice > 0;
    out->nice_actual = r->n_nice > 0 ? r->nice[0] : 0;
    out->nice_text = r->nice_text;
}

static void fill_worker(const struct node *n, Sluice__Node *out)
{
    const struct conf_class *class = conf_class_find(n->d->conf, n->class);
    double sum = 0;
    unsigned known = 0;

    out->n_devices = node_devices(n, &out->devices);
    for (size_t i = 0; i < out->n_devices; i++) {
        if (out->devices[i]->seconds_per_tf > 0) {
            sum += out->devices[i]->seconds_per_tf;
            known++;
        }
    }
    out->has_seconds_per_tf = known > 0;
    out->seconds_per_tf = known > 0 ? sum / known : 0;
    out->has_emulated = true;
    out->emulated = class != NULL && class->nominal_ms > 0;
    for (size_t i = 0; i < out->n_devices; i++)
        out->emulated |= out->devices[i]->emulated;
    if (n->registered == NULL)
        return;
    out->has_buffer_size = out->has_memory = true;
    out->buffer_size = shm_active(n);
    out->has_shm_active = true;
    out->shm_active = out->buffer_size;
    out->memory = n->registered->memory;
    out->has_clock_offset = out->has_clock_error = n->clock.known;
    out->clock_offset = offset_value(&n->clock);
    out->clock_error = offset_error(&n->clock);
    out->host = (char *)n->host;
    out->software = n->software[0] == '\0' ? NULL : (char *)n->software;
}

static void fill_intent(const struct node *n, Sluice__Node *out)
{
    out->name = (char *)n->name;
    out->class_ = (char *)n->class;
    out->has_added = true;
    out->added = n->added;
    out->pool = (char *)pool_name[n->pool];
    out->wanted_pool = (char *)pool_name[n->wanted_pool];
    out->has_shm_wanted = true;
    out->shm_wanted = shm_wanted(n);
    out->has_nice_wanted = true;
    out->nice_wanted = nice_of_pool(n->d, n->pool);
    out->slurm = slurm_info(n);
    if (n->move != NULL) {
        out->move = mem_zalloc(sizeof(*out->move));
        move_message(n->move, out->move);
    }
}

void node_message(const struct node *n, Sluice__Node *out)
{
    struct verdict v;

    node_judge(n, &v);
    sluice__node__init(out);
    fill_intent(n, out);
    fill_worker(n, out);
    fill_numbers(n, out);
    fill_marks(n, out);
    out->has_state = out->has_contact = out->has_usable = true;
    out->state = v.state;
    out->contact = v.contact;
    out->usable = v.usable;
    out->why = mem_array(v.n_why + 1, sizeof(*out->why));
    for (; out->n_why < v.n_why; out->n_why++)
        out->why[out->n_why] = (char *)v.why[out->n_why];
    out->has_last_contact_s = n->last_contact > 0;
    out->last_contact_s = n->last_contact > 0 ? clock_mono_s() - n->last_contact : 0;
}

void node_message_free(Sluice__Node *out)
{
    for (size_t i = 0; i < out->n_marks; i++)
        free(out->marks[i]);
    free(out->marks);
    free(out->move);
    free(out->slurm);
    free(out->why);
}
