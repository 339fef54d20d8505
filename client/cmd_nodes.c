/* cmd_nodes.c - nodes: grouped, one a line, or with their marks; node add, retire */
#include "config.h"

#include "command.h"

#include "call.h"
#include "change.h"
#include "mem.h"
#include "message.h"
#include "nodelist.h"
#include "nodes_listing.h"
#include "show.h"
#include "str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- columns -------------------------------------------------------------------------------- */

static json_t *make_fill(const json_t *node)
{
    double size = json_number_value(json_object_get(node, "buffer_size"));
    double charged = json_number_value(json_object_get(node, "buffer_charged"));

    return size > 0 ? json_real(charged / size) : NULL;
}

enum { MARKS_SHOWN = 3 };

/* A row has room for a few marks: those that block before the others, each in the order of their numbers; how many more there are is kept for the
 * reason. Only where nobody asked for columns, or a program reads. */
static void few_marks(json_t *node)
{
    json_t *marks = json_object_get(node, "marks"), *first = json_array(), *mark;
    size_t n = json_array_size(marks), i;

    for (int pass = 0; n > MARKS_SHOWN && pass < 2; pass++)
        json_array_foreach(marks, i, mark)
            if (str_equal(json_string_value(json_object_get(mark, "severity")), "block") == (pass == 0) && json_array_size(first) < MARKS_SHOWN)
                json_array_append(first, mark);
    if (n > MARKS_SHOWN) {
        json_object_set(node, "marks", first);
        json_object_set_new(node, "marks_more", json_integer((json_int_t)(n - MARKS_SHOWN)));
    }
    json_decref(first);
}

/* What a person wants to read next to the state: the marks' reasons, else the trouble, else the codes. */
static json_t *make_reason(const json_t *node)
{
    const json_t *marks = json_object_get(node, "marks"), *trouble = json_object_get(node, "trouble");
    json_int_t more = json_integer_value(json_object_get(node, "marks_more"));
    json_t *list = json_array(), *mark;
    size_t i;

    json_array_foreach((json_t *)marks, i, mark) {
        const char *reason = json_string_value(json_object_get(mark, "reason"));

        if (reason != NULL && json_is_false(json_object_get(mark, "part_present")))
            json_array_append_new(list, json_sprintf("%s (about a part no longer present: %s)", reason, json_string_value(json_object_get(mark, "part"))));
        else if (reason != NULL)
            json_array_append(list, json_object_get(mark, "reason"));
    }
    if (more > 0)
        json_array_append_new(list, json_sprintf("and %" JSON_INTEGER_FORMAT " more", more));
    if (json_array_size(list) == 0 && json_string_length(trouble) > 0)
        json_array_append(list, (json_t *)trouble);
    if (json_array_size(list) == 0)
        json_array_extend(list, json_object_get(node, "why"));
    return list;
}

static json_t *make_class(const json_t *node)
{
    const char *class = json_string_value(json_object_get(node, "class"));

    if (class == NULL)
        return NULL;
    return json_is_true(json_object_get(node, "emulated")) ? json_sprintf("%s emulated", class) : json_string(class);
}

/* A device a text: where its process is, and what of that is not as wanted. */
static json_t *make_placement(const json_t *node)
{
    json_t *list = json_array(), *d;
    size_t i;

    json_array_foreach(json_object_get(node, "devices"), i, d) {
        const char *serial = json_string_value(json_object_get(d, "serial")), *cpus = json_string_value(json_object_get(d, "cpus_actual"));
        const char *misplaced = json_string_value(json_object_get(d, "misplaced"));
        const json_t *domain = json_object_get(d, "numa_wanted");

        if (serial == NULL || cpus == NULL)
            continue;
        if (misplaced != NULL)
            json_array_append_new(list, json_sprintf("%s: MISPLACED: %s", serial, misplaced));
        else if (json_is_integer(domain))
            json_array_append_new(list, json_sprintf("%s: NUMA domain %d, CPUs %s", serial, (int)json_integer_value(domain), cpus));
        else
            json_array_append_new(list, json_sprintf("%s: CPUs %s", serial, cpus));
    }
    return list;
}

/* A device a text: what of the buffer is pinned for it. */
static json_t *make_pinned(const json_t *node)
{
    json_t *list = json_array(), *d;
    size_t i;

    json_array_foreach(json_object_get(node, "devices"), i, d) {
        const json_t *p = json_object_get(d, "pinned");
        const char *why = json_string_value(json_object_get(p, "text"));
        json_int_t staging = json_integer_value(json_object_get(p, "staging"));
        char wanted[32], actual[32], ring[32];

        if (!json_is_object(p))
            continue;
        str_size_text((uint64_t)json_integer_value(json_object_get(p, "wanted")), wanted);
        str_size_text((uint64_t)json_integer_value(json_object_get(p, "actual")), actual);
        str_size_text((uint64_t)staging, ring);
        json_array_append_new(list, json_sprintf("%s: %s of %s in %" JSON_INTEGER_FORMAT " chunks%s%s%s%s", json_string_value(json_object_get(d, "serial")),
                                                 actual, wanted, json_integer_value(json_object_get(p, "chunks")), staging > 0 ? ", staging ring of " : "",
                                                 staging > 0 ? ring : "", why != NULL ? ": " : "", why != NULL ? why : ""));
    }
    return list;
}

/* As sinfo would say it, with the reason that stands there. */
static json_t *make_slurm(const json_t *node)
{
    const json_t *slurm = json_object_get(node, "slurm"), *as_of = json_object_get(slurm, "as_of");
    const char *state = json_string_value(json_object_get(slurm, "state")), *reason = json_string_value(json_object_get(slurm, "reason"));

    if (!json_is_object(slurm))
        return NULL;
    if (state == NULL)
        return json_string("no answer yet");
    return json_sprintf("%s%s%s%s", as_of != NULL && !json_is_null(as_of) ? "(silent) " : "", state, reason == NULL ? "" : ": ", reason == NULL ? "" : reason);
}

static const struct column columns[] = {
    { "name" }, { "pool" }, { "wanted_pool" }, { "state" }, { "contact" }, { "usable" }, { "why" }, { "reason", .make = make_reason },
    { "class" }, { "kind", .make = make_class }, { "emulated" }, { "devices", NULL, AS_COUNT }, { "device_states", "devices.state" },
    { "serials", "devices.serial" }, { "restarts", "devices.restarts" }, { "stalls", "devices.stalls" },
    { "device_why", "devices.why" }, { "memory_used", "devices.memory_used", AS_SIZE }, { "placement", .make = make_placement }, { "pinned", .make = make_pinned },
    { "nominal", "devices.nominal", AS_SECONDS },
    { "size", "buffer_size", AS_SIZE }, { "charged", "buffer_charged", AS_SIZE }, { "used", "buffer_used", AS_SIZE },
    { "fill", NULL, AS_SHARE, make_fill }, { "tfs" }, { "building" }, { "queued" }, { "processing" }, { "delivering" },
    { "done" }, { "failed" }, { "refused" }, { "per_tf", "seconds_per_tf", AS_SECONDS }, { "trouble" }, { "added" }, { "host" }, { "software" },
    { "move", "move.to" }, { "owner", "marks.owner" }, { "age", "marks.created", AS_AGE }, { "mark", "marks.id" }, { "mark_class", "marks.class" }, { "severity", "marks.severity" },
    { "last_contact", "last_contact_s", AS_SECONDS }, { "clock", "clock_offset", AS_SECONDS },
    { "shm_wanted", NULL, AS_SIZE }, { "shm_active", NULL, AS_SIZE }, { "nice", "nice_actual" }, { "memory", NULL, AS_SIZE },
    { "buffer_size", NULL, AS_SIZE }, { "buffer_charged", NULL, AS_SIZE }, { "buffer_used", NULL, AS_SIZE },
    { "seconds_per_tf", NULL, AS_SECONDS }, { "last_contact_s", NULL, AS_SECONDS }, { "clock_offset", NULL, AS_SECONDS },
    { "clock_error", NULL, AS_SECONDS },
    { "slurm", .make = make_slurm }, { "slurm_state", "slurm.state" }, { "slurm_mode", "slurm.mode" }, { "slurm_reserved", "slurm.reserved" },
    { "slurm_reservation", "slurm.reservation" }, { "slurm_trouble", "slurm.trouble" }, { "lease", "slurm.lease" },
    { "nice_wanted" }, { "nice_actual" }, { "nice_text" }, { "marks", "marks.reason" }, { 0 },
};
const struct listing nodes_listing = { "nodes", columns, "name,pool,state,kind,devices,tfs,fill,per_tf,done,reason",
                                        &sluice__node__descriptor };

static const char long_columns[] = "name,pool,state,contact,kind,devices,size,fill,tfs,building,queued,processing,delivering,done,failed,refused,per_tf,"
                                   "last_contact,reason";

static const struct column group_columns[] = { { "pool" }, { "state" }, { "kind" }, { "count" }, { "nodes" }, { "reason" }, { 0 } };
static const struct listing groups = { "nodes", group_columns, "pool,state,kind,count,nodes,reason" };

/* --- asking --------------------------------------------------------------------------------- */

struct filter {
    int status;                     /* of the command, where nothing was asked */
    struct hostlist *names;
    char **name_array;
    Sluice__NodeState *states;
    size_t n_states;
};

static int parse_states(const char *text, struct filter *f, struct err *e)
{
    char *copy = mem_strdup(text), *rest = copy, *word;
    int r = 0, value;

    while (r == 0 && (word = strsep(&rest, ",")) != NULL) {
        r = message_enum_value(&sluice__node_state__descriptor, "state", word, &value, e);
        f->states = mem_grow(f->states, f->n_states + 1, sizeof(*f->states));
        if (r == 0)
            f->states[f->n_states++] = (Sluice__NodeState)value;
    }
    free(copy);
    return r;
}

static void filter_free(struct filter *f)
{
    hostlist_destroy(f->names);
    free(f->name_array);
    free(f->states);
}

static Sluice__Nodes *ask(struct context *ctx, const struct args *a, struct filter *f, struct err *e)
{
    Sluice__GetNodes q = SLUICE__GET_NODES__INIT;
    const char *list = args_text(a, "node", args_has(a, "exclude") ? "@all" : NULL), *states = args_text(a, "state", NULL);

    if (list != NULL && (f->names = nodelist(ctx, a, list, &nodes_listing, &f->status, e)) == NULL)
        return NULL;
    f->status = -1;
    if (states != NULL && parse_states(states, f, e) < 0)
        return NULL;
    if (f->names != NULL) {
        f->name_array = nodelist_names(f->names);
        q.names = f->name_array;
        q.n_names = hostlist_count(f->names);
    }
    q.states = f->states;
    q.n_states = f->n_states;
    q.pool = (char *)args_word(a, "pool", "online async", NULL, e);
    if (q.pool == NULL && args_has(a, "pool"))
        return NULL;
    q.class_ = (char *)args_text(a, "class", NULL);
    q.has_marked = q.marked = args_has(a, "reasons");
    return call(ctx, &q.base, SLUICE__TYPE__NODES, CALL_LIMIT_S, e);
}

/* --- grouping ------------------------------------------------------------------------------- */

static char *text_of(const json_t *v)
{
    if (v == NULL || json_is_null(v))
        return mem_strdup("");
    return json_is_string(v) ? mem_strdup(json_string_value(v)) : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT);
}

/* What makes two nodes look alike. */
static char *group_key(const json_t *node)
{
    json_t *reason = make_reason(node), *kind = make_class(node);
    char *r = text_of(reason), *k = text_of(kind);
    char *key = mem_printf("%s\n%s\n%s\n%s", json_string_value(json_object_get(node, "pool")),
                           json_string_value(json_object_get(node, "state")), k, r);

    free(r);
    free(k);
    json_decref(reason);
    json_decref(kind);
    return key;
}

static json_t *group_of(json_t *out, json_t *by_key, const json_t *node)
{
    char *key = group_key(node);
    json_t *group = json_object_get(by_key, key), *kind;

    if (group == NULL) {
        kind = make_class(node);
        group = json_pack("{s:O?,s:O?,s:o?,s:o,s:[]}", "pool", json_object_get(node, "pool"), "state", json_object_get(node, "state"),
                          "kind", kind, "reason", make_reason(node), "names");
        json_object_set(by_key, key, group);
        json_array_append_new(out, group);
    }
    free(key);
    return group;
}

static json_t *grouped(json_t *nodes)
{
    json_t *out = json_array(), *by_key = json_object(), *node, *group;
    size_t i;

    json_array_foreach(nodes, i, node)
        json_array_append(json_object_get(group_of(out, by_key, node), "names"), json_object_get(node, "name"));
    json_array_foreach(out, i, group) {
        json_t *names = json_object_get(group, "names");
        char *folded = nodelist_fold(names);

        json_object_set_new(group, "count", json_integer((json_int_t)json_array_size(names)));
        json_object_set_new(group, "nodes", json_string(folded));
        free(folded);
    }
    json_decref(by_key);
    json_decref(nodes);
    return out;
}

/* --- nodes ---------------------------------------------------------------------------------- */

static int show_nodes(struct context *ctx, const struct args *a, Sluice__Nodes *n, struct err *e)
{
    json_t *nodes = message_list(&n->base, "nodes"), *node;
    size_t i;
    bool each = args_has(a, "one") || args_has(a, "long") || args_has(a, "reasons") || ctx->fields != NULL
             || ctx->mode == SHOW_JSON || ctx->mode == SHOW_JSONL;

    if (ctx->mode == SHOW_TABLE && ctx->fields == NULL)
        json_array_foreach(nodes, i, node)
            few_marks(node);
    if (!each)
        return show_list(ctx, &groups, NULL, grouped(nodes), e);
    return show_list(ctx, &nodes_listing, args_has(a, "reasons") ? "name,state,mark,severity,mark_class,owner,age,reason" : args_has(a, "long") ? long_columns : NULL,
                     nodes, e);
}

static int nodes_once(struct context *ctx, const struct args *a, struct err *e)
{
    struct filter f = { .status = -1 };
    Sluice__Nodes *n = ask(ctx, a, &f, e);
    int r = n != NULL ? show_nodes(ctx, a, n, e) : f.status;

    call_free(n);
    filter_free(&f);
    return r;
}

int cmd_nodes(struct context *ctx, const struct args *a, struct err *e)
{
    double every = 0;
    int r;

    if (show_columns_help(ctx, &nodes_listing))
        return 0;
    if (args_has(a, "interval") && str_parse_f64("--interval", args_text(a, "interval", ""), 0.1, 86400, &every, e) < 0)
        return -1;
    for (;;) {
        r = nodes_once(ctx, a, e);
        if (r < 0 || every == 0)
            return r;
        if (fflush(stdout) != 0)
            return 0;
        nanosleep(&(struct timespec){ (time_t)every, (long)((every - (double)(time_t)every) * 1e9) }, NULL);
    }
}

/* --- node add, retire -------------------------------------------------------- */

int cmd_node_add(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__AddNodes q = SLUICE__ADD_NODES__INIT;
    struct hostlist *h;
    int r = change_columns(ctx, e);

    if (r <= 0 || (h = nodelist(ctx, a, a->at[0], &change_listing, &r, e)) == NULL)
        return r;
    r = -1;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    q.class_ = (char *)args_text(a, "class", NULL);
    q.pool = (char *)args_word(a, "pool", "online async", "online", e);
    q.has_dry_run = q.dry_run = args_has(a, "dry-run");
    if (q.class_ == NULL)
        err_set(e, ERR_USAGE, "node add: --class is wanted");
    else if (q.pool != NULL)
        r = change(ctx, &q.base, e);
    free(q.names);
    hostlist_destroy(h);
    return r;
}

int cmd_node_retire(struct context *ctx, const struct args *a, struct err *e)
{
    Sluice__RetireNodes q = SLUICE__RETIRE_NODES__INIT;
    struct hostlist *h;
    int r = change_columns(ctx, e);

    if (r <= 0 || (h = nodelist(ctx, a, a->at[0], &change_listing, &r, e)) == NULL)
        return r;
    q.names = nodelist_names(h);
    q.n_names = hostlist_count(h);
    q.reason = a->at[1];
    q.has_dry_run = q.dry_run = args_has(a, "dry-run");
    r = change_check_reason(q.reason, e) < 0 ? -1 : change(ctx, &q.base, e);
    free(q.names);
    hostlist_destroy(h);
    return r;
}
