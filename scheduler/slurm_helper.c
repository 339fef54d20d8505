/* slurm_helper.c - sluice-slurm: the one program that links libslurm; it may hang, exit or die in any call, sluiced does not
 *
 * From: sluiced (slurm_process.c), one question at a time.  To: slurmctld.
 * Run twice, as poll and as act, and tied to one release of Slurm by libslurm. Bits of node states do not leave this file. Every command reads, does what is not done yet, one
 * node a call, and reads again. Names and fields of Slurm that differ between 21.08 and 26.05 are not used, or guarded (doc/slurm.md).
 */
#include "config.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include "hostlist.h"
#include "mem.h"
#include "slurm_rules.h"
#include "slurm_serve.h"
#include "str.h"

#define NS INT64_C(1000000000)

/* ---- errors ---- */

/* Return values are not uniform: -1 with errno, or the number itself. */
static int code_of(int rc)
{
    return rc == -1 ? errno : rc;
}

static int failed(int rc, struct err *e, const char *what, const char *node)
{
    int code = code_of(rc);
    const struct passwd *self = code == ESLURM_USER_ID_MISSING ? getpwuid(geteuid()) : NULL;

    if (self != NULL)
        return err_set(e, ERR_PERMISSION, "%s%s%s: user %s is no operator of Slurm: make it one (sacctmgr, AdminLevel=Operator), or run sluiced as SlurmUser or root; Slurm says: %s (%d)", what,
                       node == NULL ? "" : " ", node == NULL ? "" : node, self->pw_name, slurm_strerror(code), code);
    return err_set(e, ERR_UNREACHABLE, "%s%s%s: %s (%d)", what, node == NULL ? "" : " ", node == NULL ? "" : node, slurm_strerror(code), code);
}

/* ---- nodes ---- */

static const struct { uint32_t bit; const char *word; } flag_words[] = {
    { NODE_STATE_DRAIN, "drain" },           { NODE_STATE_FAIL, "fail" },
    { NODE_STATE_COMPLETING, "completing" }, { NODE_STATE_NO_RESPOND, "no_respond" },
#ifdef NODE_STATE_RES
    { NODE_STATE_RES, "res" },
#endif
#ifdef NODE_STATE_MAINT
    { NODE_STATE_MAINT, "maint" },
#endif
#ifdef NODE_STATE_PLANNED
    { NODE_STATE_PLANNED, "planned" },
#endif
#ifdef NODE_STATE_INVALID_REG
    { NODE_STATE_INVALID_REG, "invalid" },
#endif
#ifdef NODE_STATE_POWERED_DOWN
    { NODE_STATE_POWERED_DOWN, "powered_down" },
#endif
#ifdef NODE_STATE_POWERING_UP
    { NODE_STATE_POWERING_UP, "powering_up" },
#endif
#ifdef NODE_STATE_POWERING_DOWN
    { NODE_STATE_POWERING_DOWN, "powering_down" },
#endif
};

static const char *base_word(uint32_t state)
{
    switch (state & NODE_STATE_BASE) {
    case NODE_STATE_DOWN:      return "down";
    case NODE_STATE_IDLE:      return "idle";
    case NODE_STATE_ALLOCATED: return "allocated";
    case NODE_STATE_MIXED:     return "mixed";
    case NODE_STATE_FUTURE:    return "future";
    case NODE_STATE_ERROR:     return "error";
    default:                   return "unknown";
    }
}

static char *state_words(uint32_t state)
{
    struct str s = { 0 };

    str_add(&s, base_word(state));
    for (size_t i = 0; i < ARRAY_LEN(flag_words); i++) {
        if (state & flag_words[i].bit)
            str_addf(&s, "+%s", flag_words[i].word);
    }
    return str_take(&s);
}

/* What comes from people may be no text of ours. */
static char *text_of(const char *s)
{
    char *copy = mem_strdup(s);

    if (copy != NULL)
        str_mend(copy, strlen(copy));
    return copy;
}

static char *user_name(uint32_t uid)
{
    const struct passwd *p = getpwuid(uid);

    return p == NULL ? mem_printf("%u", uid) : text_of(p->pw_name);
}

static Sluice__SlurmNode *node_make(const node_info_t *in)
{
    Sluice__SlurmNode *n = mem_zalloc(sizeof(*n));
    uint32_t base = in->node_state & NODE_STATE_BASE;

    sluice__slurm_node__init(n);
    n->name = text_of(in->name);
    n->state = state_words(in->node_state);
    n->has_unknown = n->has_down = n->has_drain = n->has_fail = n->has_invalid = n->has_no_respond = n->has_busy = true;
    n->unknown = base == NODE_STATE_UNKNOWN;
    n->down = base == NODE_STATE_DOWN;
    n->drain = (in->node_state & NODE_STATE_DRAIN) != 0;
    n->fail = (in->node_state & NODE_STATE_FAIL) != 0;
    n->invalid = base == NODE_STATE_FUTURE;
#ifdef NODE_STATE_INVALID_REG
    n->invalid |= (in->node_state & NODE_STATE_INVALID_REG) != 0;
#endif
    n->no_respond = (in->node_state & NODE_STATE_NO_RESPOND) != 0;
    n->busy = base == NODE_STATE_ALLOCATED || base == NODE_STATE_MIXED || (in->node_state & NODE_STATE_COMPLETING) != 0;
    if (!str_is_empty(in->features))
        n->features = text_of(in->features);
    if (str_is_empty(in->reason))
        return n;
    n->reason = text_of(in->reason);
    n->has_reason_uid = n->has_reason_time = true;
    n->reason_uid = in->reason_uid;
    n->reason_user = user_name(in->reason_uid);
    n->reason_time = (int64_t)in->reason_time * NS;
    return n;
}

/* One node, read anew. NULL: e says why. */
static Sluice__SlurmNode *node_read(const char *name, struct err *e)
{
    node_info_msg_t *m = NULL;
    char *copy = mem_strdup(name);
    int rc = slurm_load_node_single(&m, copy, SHOW_ALL | SHOW_MIXED);
    Sluice__SlurmNode *n = NULL;

    free(copy);
    if (rc != 0) {
        failed(rc, e, "node", name);
        return NULL;
    }
    for (uint32_t i = 0; i < m->record_count && n == NULL; i++) {
        if (m->node_array[i].name != NULL && strcmp(m->node_array[i].name, name) == 0)
            n = node_make(&m->node_array[i]);
    }
    slurm_free_node_info_msg(m);
    if (n == NULL)
        err_set(e, ERR_NOT_FOUND, "node %s: Slurm does not know it", name);
    return n;
}

/* ---- reservations ---- */

static bool is_on(const reserve_info_t *r)
{
    time_t now = time(NULL);

    return r->start_time <= now && r->end_time > now;
}

/* Its name alone may be anybody's: also one that we made and somebody has opened to others. */
static bool is_ours(const reserve_info_t *r, const struct hostlist *nodes)
{
    const struct passwd *self = getpwuid(geteuid());

    return hostlist_count(nodes) == 1 && self != NULL && str_equal(r->users, self->pw_name) && str_is_empty(r->accounts) && !(r->flags & RESERVE_FLAG_MAINT);
}

/* With those of its nodes that are in names. NULL: none is. */
static Sluice__SlurmReservation *reservation_make(const reserve_info_t *in, const struct hostlist *names)
{
    struct hostlist *own = hostlist_parse(in->node_list == NULL ? "" : in->node_list, NULL, NULL, NULL);
    Sluice__SlurmReservation *r;

    if (own == NULL)
        return NULL;
    r = mem_zalloc(sizeof(*r));
    sluice__slurm_reservation__init(r);
    r->nodes = mem_array(hostlist_count(own) + 1, sizeof(*r->nodes));
    for (size_t i = 0; i < hostlist_count(own); i++) {
        if (names == NULL || hostlist_has(names, hostlist_name(own, i)))
            r->nodes[r->n_nodes++] = mem_strdup(hostlist_name(own, i));
    }
    r->has_ours = true;
    r->ours = is_ours(in, own);
    hostlist_destroy(own);
    if (r->n_nodes == 0) {
        sluice__slurm_reservation__free_unpacked(r, NULL);
        return NULL;
    }
    r->name = text_of(in->name);
    r->users = text_of(in->users);
    r->has_maint = r->has_end = true;
    r->maint = (in->flags & RESERVE_FLAG_MAINT) != 0;
    r->end = (int64_t)in->end_time * NS;
    return r;
}

/* The one of that name, or *found NULL. */
static int reservation_read(const char *name, Sluice__SlurmReservation **found, struct err *e)
{
    reserve_info_msg_t *m = NULL;
    int rc = slurm_load_reservations(0, &m);

    *found = NULL;
    if (rc != 0)
        return failed(rc, e, "reservations", NULL);
    for (uint32_t i = 0; i < m->record_count && *found == NULL; i++) {
        if (m->reservation_array[i].name != NULL && strcmp(m->reservation_array[i].name, name) == 0)
            *found = reservation_make(&m->reservation_array[i], NULL);
    }
    slurm_free_reservation_info_msg(m);
    return 0;
}

/* ---- leases ---- */

#define LEASE_NAME "sluice-lease-"

/* "sluice-lease-NODE:JOB": no node has a colon in its name. The node's is the token; the number is for whoever reads the records of Slurm, which have no comment. */
static char *lease_node(const slurm_job_info_t *j)
{
    char *node = text_of(j->name + strlen(LEASE_NAME));

    node[strcspn(node, ":")] = '\0';
    return node;
}

/* The number of a job: a member of its own until it became one of a step's. */
static uint32_t number_of(const slurm_job_info_t *j)
{
#ifdef HAVE_SLURM_JOB_INFO_T_JOB_ID
    return j->job_id;
#else
    return j->step_id.job_id;
#endif
}

/* As squeue words them. */
static const struct { uint32_t reason; const char *word; } reasons[] = {
    { WAIT_NO_REASON, "None" },                  { WAIT_PRIORITY, "Priority" },               { WAIT_RESOURCES, "Resources" },
    { WAIT_PART_NODE_LIMIT, "PartitionNodeLimit" }, { WAIT_PART_TIME_LIMIT, "PartitionTimeLimit" }, { WAIT_PART_DOWN, "PartitionDown" },
    { WAIT_PART_INACTIVE, "PartitionInactive" }, { WAIT_HELD, "JobHeldAdmin" },               { WAIT_HELD_USER, "JobHeldUser" },
    { WAIT_TIME, "BeginTime" },                  { WAIT_RESERVATION, "Reservation" },         { WAIT_NODE_NOT_AVAIL, "ReqNodeNotAvail" },
    { FAIL_ACCOUNT, "InvalidAccount" },          { FAIL_QOS, "InvalidQOS" },                  { FAIL_BAD_CONSTRAINTS, "BadConstraints" },
};

static char *reason_of(const slurm_job_info_t *j)
{
    struct str s = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(reasons) && s.len == 0; i++) {
        if (reasons[i].reason == j->state_reason)
            str_add(&s, reasons[i].word);
    }
    if (s.len == 0)
        str_addf(&s, "reason %u of Slurm", (unsigned)j->state_reason);
    if (!str_is_empty(j->state_desc)) {
        char *more = text_of(j->state_desc);

        str_addf(&s, ", %s", more);
        free(more);
    }
    return str_take(&s);
}

static Sluice__SlurmLease *lease_make(const slurm_job_info_t *j)
{
    Sluice__SlurmLease *l = mem_zalloc(sizeof(*l));

    sluice__slurm_lease__init(l);
    l->node = lease_node(j);
    l->has_job = l->has_running = true;
    l->job = number_of(j);
    l->running = (j->job_state & JOB_STATE_BASE) == JOB_RUNNING;
    l->has_end = l->running && j->end_time > 0;
    l->end = l->has_end ? (int64_t)j->end_time * NS : 0;
    if ((j->job_state & JOB_STATE_BASE) == JOB_SUSPENDED)
        l->why = mem_strdup("Suspended");
    else if (!l->running)
        l->why = reason_of(j);
    return l;
}

static bool is_lease(const slurm_job_info_t *j)
{
    uint32_t base = j->job_state & JOB_STATE_BASE;

    return j->user_id == getuid() && j->name != NULL && strncmp(j->name, LEASE_NAME, strlen(LEASE_NAME)) == 0
        && (base == JOB_PENDING || base == JOB_RUNNING || base == JOB_SUSPENDED) && !(j->job_state & JOB_COMPLETING);
}

/* Those of all nodes, or of one. The caller frees the list and what is in it. */
static int leases_read(const char *node, Sluice__SlurmLease ***list, size_t *n, struct err *e)
{
    job_info_msg_t *m = NULL;
    int rc = slurm_load_job_user(&m, getuid(), SHOW_ALL);

    *n = 0;
    *list = NULL;
    if (rc != 0)
        return failed(rc, e, "our jobs", NULL);
    *list = mem_array(m->record_count + 1, sizeof(**list));
    for (uint32_t i = 0; i < m->record_count; i++) {
        const slurm_job_info_t *j = &m->job_array[i];

        Sluice__SlurmLease *l = is_lease(j) ? lease_make(j) : NULL;

        if (l != NULL && (node == NULL || str_equal(l->node, node)))
            (*list)[(*n)++] = l;
        else if (l != NULL)
            sluice__slurm_lease__free_unpacked(l, NULL);
    }
    slurm_free_job_info_msg(m);
    return 0;
}

/* ---- a look ---- */

static struct seen { char *names; struct hostlist *list; time_t nodes; reserve_info_msg_t *reservations; int64_t conf_time; } seen;

/* NULL: libslurm alone knows where it looks. */
static const char *conf_path(void)
{
    return getenv("SLURM_CONF");
}

static int64_t conf_time(void)
{
    struct stat st;

    return conf_path() != NULL && stat(conf_path(), &st) == 0 ? st.st_mtim.tv_sec * NS + st.st_mtim.tv_nsec : 0;
}

/* The library keeps what it has read at its start. */
static void end_when_conf_changed(void)
{
    if (conf_time() == seen.conf_time)
        return;
    fprintf(stderr, "%s has changed and is read anew\n", conf_path());
    exit(0);
}

static void reservations_forget(void)
{
    if (seen.reservations != NULL)
        slurm_free_reservation_info_msg(seen.reservations);
    seen.reservations = NULL;
}

static int take_names(const Sluice__SlurmPoll *q, struct err *e)
{
    const char *names = q->names == NULL ? "" : q->names;
    struct hostlist *list;

    if (q->whole)
        reservations_forget();
    if (q->whole || !str_equal(names, seen.names))
        seen.nodes = 0;
    if (str_equal(names, seen.names))
        return 0;
    list = hostlist_parse(names, NULL, NULL, e);
    if (list == NULL)
        return -1;
    hostlist_destroy(seen.list);
    free(seen.names);
    seen.list = list;
    seen.names = mem_strdup(names);
    return 0;
}

static int look_at_ctld(Sluice__SlurmState *out, struct err *e)
{
    slurm_conf_t *conf = NULL;
    int rc = slurm_ping(0);              /* the one call that does not go on trying for seconds */

    if (rc != 0 && slurm_ping(1) != 0)
        return failed(rc, e, "slurmctld does not answer, or munged here does not", NULL);
    rc = slurm_load_ctl_conf(0, &conf);
    if (rc != 0)
        return failed(rc, e, "slurmctld's configuration", NULL);
    out->has_boot = true;
    out->boot = (int64_t)conf->boot_time * NS;
    out->version = text_of(conf->version);
    slurm_free_ctl_conf(conf);
    return 0;
}

static int look_at_nodes(Sluice__SlurmState *out, struct err *e)
{
    node_info_msg_t *m = NULL;
    int rc = slurm_load_node(seen.nodes, &m, SHOW_ALL | SHOW_MIXED);

    if (rc != 0 && code_of(rc) == SLURM_NO_CHANGE_IN_DATA)
        return 0;
    if (rc != 0)
        return failed(rc, e, "nodes", NULL);
    seen.nodes = m->last_update;
    out->has_nodes_known = out->nodes_known = true;
    out->nodes = mem_array(m->record_count + 1, sizeof(*out->nodes));
    for (uint32_t i = 0; i < m->record_count; i++) {
        if (m->node_array[i].name != NULL && hostlist_has(seen.list, m->node_array[i].name))
            out->nodes[out->n_nodes++] = node_make(&m->node_array[i]);
    }
    slurm_free_node_info_msg(m);
    return 0;
}

/* Slurm sends them when some have changed; whether one has begun is a matter of the clock, too. */
static int look_at_reservations(Sluice__SlurmState *out, struct err *e)
{
    reserve_info_msg_t *m = NULL;
    int rc = slurm_load_reservations(seen.reservations == NULL ? 0 : seen.reservations->last_update, &m);

    if (rc != 0 && code_of(rc) != SLURM_NO_CHANGE_IN_DATA)
        return failed(rc, e, "reservations", NULL);
    if (rc == 0) {
        reservations_forget();
        seen.reservations = m;
    }
    m = seen.reservations;
    if (m == NULL)
        return failed(rc, e, "reservations", NULL);
    out->has_reservations_known = out->reservations_known = true;
    out->reservations = mem_array(m->record_count + 1, sizeof(*out->reservations));
    for (uint32_t i = 0; i < m->record_count; i++) {
        const reserve_info_t *in = &m->reservation_array[i];
        Sluice__SlurmReservation *r = in->name != NULL && is_on(in) ? reservation_make(in, seen.list) : NULL;

        if (r != NULL)
            out->reservations[out->n_reservations++] = r;
    }
    return 0;
}

static int look_at_leases(const Sluice__SlurmPoll *q, Sluice__SlurmState *out, struct err *e)
{
    if (!q->leases)
        return 0;
    if (leases_read(NULL, &out->leases, &out->n_leases, e) < 0)
        return -1;
    out->has_leases_known = out->leases_known = true;
    return 0;
}

static int poll_slurm(const Sluice__SlurmPoll *q, Sluice__SlurmState *out, struct err *e, const char **word)
{
    *word = "SlurmSilent";
    end_when_conf_changed();
    if (take_names(q, e) < 0 || look_at_ctld(out, e) < 0 || look_at_nodes(out, e) < 0 || look_at_reservations(out, e) < 0 || look_at_leases(q, out, e) < 0) {
        seen.nodes = 0;                  /* what was read is not sent */
        return -1;
    }
    return 0;
}

/* ---- commands: drain ---- */

static int node_update(const char *name, uint32_t state, const char *reason, struct err *e)
{
    update_node_msg_t m;
    int rc;

    slurm_init_update_node_msg(&m);
    m.node_names = mem_strdup(name);
    m.node_state = state;
    m.reason = mem_strdup(reason);
#ifdef HAVE_UPDATE_NODE_MSG_T_REASON_UID
    m.reason_uid = getuid();
#endif
    rc = slurm_update_node(&m);
    free(m.node_names);
    free(m.reason);
    return rc == 0 ? 0 : failed(rc, e, "update of node", name);
}

static int node_read_into(const char *name, Sluice__SlurmNode **at, struct err *e)
{
    Sluice__SlurmNode *n = node_read(name, e);

    if (n == NULL)
        return -1;
    if (*at != NULL)
        sluice__slurm_node__free_unpacked(*at, NULL);
    *at = n;
    return 0;
}

static int act_look(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    (void)q;
    (void)out;
    (void)e;
    return 0;
}

/* There is one place for a reason and no compare-and-set: DRAIN without one keeps what is there, and ours is set only where nothing is, or an older one of ours. */
static int act_drain(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    const Sluice__SlurmNode *n = out->node;
    bool stale = n->drain && slurm_reason_is_ours(n->reason, q->prefix) && !str_equal(n->reason, q->reason);

    if (n->unknown || n->down || n->fail || n->invalid || (n->drain && !str_is_empty(n->reason) && !stale))
        return 0;
    if (!n->drain && (node_update(q->node, NODE_STATE_DRAIN, NULL, e) < 0 || node_read_into(q->node, &out->node, e) < 0))
        return -1;
    if ((stale || str_is_empty(out->node->reason)) && node_update(q->node, NO_VAL, q->reason, e) < 0)
        return -1;
    out->text = mem_strdup(stale ? "the reason of our drain was renewed" : "drained");
    return node_read_into(q->node, &out->node, e);
}

static int act_undrain(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    const Sluice__SlurmNode *n = out->node;

    if (!n->drain || n->unknown || n->down || n->fail || n->invalid || (!str_is_empty(n->reason) && !slurm_reason_is_ours(n->reason, q->prefix)))
        return 0;
    if (node_update(q->node, NODE_STATE_UNDRAIN, NULL, e) < 0)
        return -1;
    out->text = mem_strdup("our drain was taken back");
    return node_read_into(q->node, &out->node, e);
}

/* ---- commands: reservation ---- */

static int reservation_create(const Sluice__SlurmDo *q, struct err *e)
{
    const struct passwd *self = getpwuid(geteuid());
    resv_desc_msg_t m;
    char *made;
    int code;

    if (self == NULL)
        return err_set(e, ERR_FAILED, "user %u has no name, and a reservation wants one", (unsigned)geteuid());
    slurm_init_resv_desc_msg(&m);
    m.name = mem_strdup(q->reservation);
    m.node_list = mem_strdup(q->node);
    m.users = mem_strdup(self->pw_name);
    m.start_time = time(NULL);
    m.duration = INFINITE;
    m.flags = RESERVE_FLAG_IGN_JOBS | RESERVE_FLAG_SPEC_NODES;
    made = slurm_create_reservation(&m);
    code = errno;
    free(m.name);
    free(m.node_list);
    free(m.users);
    if (made == NULL)
        return failed(code, e, "reservation of node", q->node);
    free(made);
    return 0;
}

static int reservation_renew(const Sluice__SlurmDo *q, struct err *e)
{
    resv_desc_msg_t m;
    int rc;

    slurm_init_resv_desc_msg(&m);
    m.name = mem_strdup(q->reservation);
    m.end_time = time(NULL) + 365 * 86400;
    rc = slurm_update_reservation(&m);
    free(m.name);
    return rc == 0 ? 0 : failed(rc, e, "new end of the reservation of node", q->node);
}

static bool is_for(const Sluice__SlurmReservation *r, const char *node)
{
    return r->ours && str_equal(r->nodes[0], node);
}

static int foreign(const Sluice__SlurmDo *q, const Sluice__SlurmReservation *r, struct err *e)
{
    return err_set(e, ERR_STATE, "reservation %s is not ours, or not any more: it is for %.60s%s and has %zu node%s; remove it (scontrol delete reservationname=%s), ours is made then",
                   q->reservation, str_is_empty(r->users) ? "no user" : r->users, r->maint ? ", with MAINT," : "", r->n_nodes, r->n_nodes == 1 ? "" : "s", q->reservation);
}

/* The name is the lock: another sluiced that makes it finds it made. */
static int act_reserve(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    Sluice__SlurmReservation *r;
    int rc = 0;

    if (reservation_read(q->reservation, &r, e) < 0)
        return -1;
    if (r != NULL && !is_for(r, q->node))
        rc = foreign(q, r, e);
    else if (r == NULL)
        rc = reservation_create(q, e);
    else if (r->end < ((int64_t)time(NULL) + SLURM_RENEW_S) * NS)
        rc = reservation_renew(q, e);
    if (r == NULL && rc == 0)
        out->text = mem_printf("reservation %s was made", q->reservation);
    if (r != NULL)
        sluice__slurm_reservation__free_unpacked(r, NULL);
    if (rc < 0 || reservation_read(q->reservation, &out->reservation, e) < 0)
        return -1;
    if (out->reservation == NULL)
        return err_set(e, ERR_FAILED, "reservation %s was made and is not there", q->reservation);
    return node_read_into(q->node, &out->node, e);
}

static int act_release(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    reservation_name_msg_t m = { 0 };
    Sluice__SlurmReservation *r;
    int rc, code;

    if (reservation_read(q->reservation, &r, e) < 0)
        return -1;
    rc = r != NULL && !is_for(r, q->node) ? foreign(q, r, e) : 0;
    if (r != NULL)
        sluice__slurm_reservation__free_unpacked(r, NULL);
    if (rc < 0)
        return -1;
    m.name = mem_strdup(q->reservation);
    rc = slurm_delete_reservation(&m);
    code = code_of(rc);
    free(m.name);
    if (rc != 0 && code != ESLURM_RESERVATION_INVALID)
        return failed(rc, e, "removal of the reservation of node", q->node);
    if (rc == 0)
        out->text = mem_printf("reservation %s was removed", q->reservation);
    if (reservation_read(q->reservation, &out->reservation, e) < 0)
        return -1;
    return node_read_into(q->node, &out->node, e);
}

/* ---- commands: jobs go ---- */

/* As its owner would write it: each task of an array by itself. */
static char *job_id(const slurm_job_info_t *j)
{
    return j->array_task_id != NO_VAL && j->array_job_id != 0 ? mem_printf("%u_%u", j->array_job_id, j->array_task_id) : mem_printf("%u", number_of(j));
}

static bool is_there(const slurm_job_info_t *j, const char *node)
{
    uint32_t base = j->job_state & JOB_STATE_BASE;
    struct hostlist *nodes;
    bool there;

    if ((base != JOB_RUNNING && base != JOB_SUSPENDED) || (j->job_state & JOB_COMPLETING) || str_is_empty(j->nodes))
        return false;
    nodes = hostlist_parse(j->nodes, NULL, NULL, NULL);
    there = nodes != NULL && hostlist_has(nodes, node);
    hostlist_destroy(nodes);
    return there;
}

/* Requeued where its owner allows it, else ended. 1: requeued; 0: ended. */
static int job_away(const slurm_job_info_t *j, char *id, struct err *e)
{
    job_array_resp_msg_t *answer = NULL;
    int rc = j->requeue && j->batch_flag ? slurm_requeue2(id, 0, &answer) : -1;

    if (answer != NULL)
        slurm_free_job_array_resp(answer);
    if (rc == 0)
        return 1;
    rc = slurm_kill_job2(id, SIGKILL, 0, NULL);
    if (rc == 0 || code_of(rc) == ESLURM_ALREADY_DONE)
        return 0;
    return failed(rc, e, "end of job", id);
}

/* A requeued job may not begin for two minutes unless it is told that it may. 1: told, or of no concern any more; 0: not yet. */
static int job_let_go(const slurm_job_info_t *j, char *id)
{
    job_array_resp_msg_t *answer = NULL;
    job_desc_msg_t m;
    int rc;

    if (j->job_state & JOB_COMPLETING)
        return 0;
    if ((j->job_state & JOB_STATE_BASE) != JOB_PENDING)
        return 1;
    slurm_init_job_desc_msg(&m);
    m.job_id_str = id;
    m.begin_time = time(NULL);
    rc = slurm_update_job2(&m, &answer);
    if (answer != NULL)
        slurm_free_job_array_resp(answer);
    return rc == 0 ? 1 : 0;
}

static bool is_waiting(const Sluice__SlurmDo *q, const char *id)
{
    for (size_t i = 0; i < q->n_jobs; i++) {
        if (str_equal(q->jobs[i], id))
            return true;
    }
    return false;
}

static int clear_one(const slurm_job_info_t *j, const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct str *said, struct err *e)
{
    char *id = job_id(j);
    int rc = 0;

    if (is_there(j, q->node) && !is_waiting(q, id)) {        /* whoever asks knows of it before it goes: what is said after that may get lost */
        out->jobs[out->n_jobs++] = id;
        return 0;
    }
    if (is_there(j, q->node)) {
        rc = job_away(j, id, e);
        if (rc >= 0)
            str_addf(said, "%sjob %s %s", said->len == 0 ? "" : ", ", id, rc == 1 ? "requeued" : "ended");
        if (rc == 1) {
            out->jobs[out->n_jobs++] = id;
            return 0;
        }
    } else if (is_waiting(q, id) && job_let_go(j, id) == 0) {
        out->jobs[out->n_jobs++] = id;
        return 0;
    }
    free(id);
    return rc < 0 ? -1 : 0;
}

static int act_clear_out(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    job_info_msg_t *m = NULL;
    struct str said = { 0 };
    int rc = slurm_load_jobs(0, &m, SHOW_ALL);

    if (rc != 0)
        return failed(rc, e, "jobs", NULL);
    out->jobs = mem_array(m->record_count + 1, sizeof(*out->jobs));
    for (uint32_t i = 0; i < m->record_count && rc == 0; i++)
        rc = clear_one(&m->job_array[i], q, out, &said, e);
    slurm_free_job_info_msg(m);
    out->text = str_take(&said);
    return rc < 0 ? -1 : node_read_into(q->node, &out->node, e);
}

/* ---- commands: leases ---- */

/* It holds the node and does nothing; our worker works beside it. */
static const char lease_script[] = "#!/bin/sh\nexec sleep 31536000\n";

static int lease_submit(const Sluice__SlurmDo *q, struct err *e)
{
    char *environment[] = { (char *)"PATH=/usr/local/bin:/usr/bin:/bin", NULL };
    submit_response_msg_t *answer = NULL;
    char name[128];
    job_desc_msg_t m;
    int rc;

    snprintf(name, sizeof(name), LEASE_NAME "%.63s:%llu", q->node, (unsigned long long)q->for_job);
    slurm_init_job_desc_msg(&m);
    m.name = name;
    m.script = (char *)lease_script;
    m.environment = environment;
    m.env_size = 1;
    m.work_dir = (char *)"/";
    m.std_in = m.std_out = m.std_err = (char *)"/dev/null";
    m.user_id = getuid();
    m.group_id = getgid();
    m.req_nodes = q->node;
    m.min_nodes = m.max_nodes = 1;
    m.num_tasks = 1;
    m.shared = JOB_SHARED_NONE;          /* the whole node */
    m.requeue = 0;
    m.time_limit = q->minutes;
    m.nice = (uint32_t)(NICE_OFFSET + q->nice);
    m.partition = q->partition;
    m.account = q->account;
    m.features = q->constraint;
    m.comment = q->comment;
    rc = slurm_submit_batch_job(&m, &answer);
    if (answer != NULL)
        slurm_free_submit_response_response_msg(answer);
    if (rc == 0)
        return 0;
    failed(rc, e, "lease of node", q->node);
    return str_is_empty(q->constraint) ? -1 : err_prefix(e, "constraint %.100s", q->constraint);
}

static void lease_keep_first(Sluice__SlurmDone *out, Sluice__SlurmLease **list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (i == 0)
            out->lease = list[i];
        else
            sluice__slurm_lease__free_unpacked(list[i], NULL);
    }
    free(list);
}

static void leases_free(Sluice__SlurmLease **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sluice__slurm_lease__free_unpacked(list[i], NULL);
    free(list);
}

/* Its name is its token: one that was submitted by a question whose answer got lost is found. */
static int act_lease(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    Sluice__SlurmLease **list;
    size_t n;

    if (leases_read(q->node, &list, &n, e) < 0)
        return -1;
    if (n == 0) {
        free(list);
        if (lease_submit(q, e) < 0 || leases_read(q->node, &list, &n, e) < 0)
            return -1;
        out->text = mem_strdup("a lease was asked for");
    }
    lease_keep_first(out, list, n);
    return 0;
}

static int act_unlease(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e)
{
    Sluice__SlurmLease **list;
    size_t n;
    int rc = 0;

    if (leases_read(q->node, &list, &n, e) < 0)
        return -1;
    for (size_t i = 0; i < n && rc == 0; i++) {
        char id[16];

        snprintf(id, sizeof(id), "%u", list[i]->job);
        rc = slurm_kill_job2(id, SIGKILL, 0, NULL);
        if (rc != 0 && code_of(rc) == ESLURM_ALREADY_DONE)
            rc = 0;
        if (rc != 0)
            rc = failed(rc, e, "end of the lease of node", q->node);
    }
    if (n > 0)
        out->text = mem_strdup("the lease was given back");
    leases_free(list, n);
    if (rc < 0 || leases_read(q->node, &list, &n, e) < 0)
        return -1;
    lease_keep_first(out, list, n);
    return node_read_into(q->node, &out->node, e);
}

/* ---- */

static int (*const acts[])(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e) = {
    [SLUICE__SLURM_ACT__ACT_LOOK] = act_look,       [SLUICE__SLURM_ACT__ACT_DRAIN] = act_drain,
    [SLUICE__SLURM_ACT__ACT_UNDRAIN] = act_undrain, [SLUICE__SLURM_ACT__ACT_RESERVE] = act_reserve,
    [SLUICE__SLURM_ACT__ACT_LEASE] = act_lease,     [SLUICE__SLURM_ACT__ACT_UNLEASE] = act_unlease,
    [SLUICE__SLURM_ACT__ACT_RELEASE] = act_release, [SLUICE__SLURM_ACT__ACT_CLEAR_OUT] = act_clear_out,
};

static int do_it(const Sluice__SlurmDo *q, Sluice__SlurmDone *out, struct err *e, const char **word)
{
    *word = "SlurmRefused";
    end_when_conf_changed();
    if (q->node == NULL || q->reservation == NULL || q->prefix == NULL || (size_t)q->act >= ARRAY_LEN(acts))
        return err_set(e, ERR_PROTOCOL, "a command without node, reservation or prefix");
    if (slurm_ping(0) != 0 && slurm_ping(1) != 0)
        return failed(-1, e, "slurmctld does not answer, or munged here does not", NULL);
    return node_read_into(q->node, &out->node, e) < 0 ? -1 : acts[q->act](q, out, e);
}

int main(int argc, char **argv)
{
    static const struct slurm_backend backend = { poll_slurm, do_it };
    struct err e;

    if (argc != 2 || (strcmp(argv[1], "poll") != 0 && strcmp(argv[1], "act") != 0)) {
        fprintf(stderr, "sluice-slurm is started by sluiced only; it was built for Slurm %d.%02d\n", SLURM_VERSION_NUMBER >> 16, (SLURM_VERSION_NUMBER >> 8) & 0xff);
        return 2;
    }
    if (conf_path() != NULL && access(conf_path(), R_OK) < 0) {         /* libslurm would go on trying for a minute */
        fprintf(stderr, "%s: %s\n", conf_path(), strerror(errno));
        return 1;
    }
    seen.conf_time = conf_time();
    slurm_init(NULL);
    if (slurm_serve(0, &backend, &e) == 0)
        return 0;
    fprintf(stderr, "sluice-slurm: %s\n", e.text);
    return 1;
}
