/* show.c - answers to people's questions
 *
 * From: session.c's table.  To: the asker.
 * Everything is answered from memory at once, but for logs (the worker is asked, with a deadline) and a backup (a helper thread writes it).
 */
#include "config.h"

#include "show.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/queue.h>

#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "db.h"
#include "events.h"
#include "flow.h"
#include "helper.h"
#include "hook.h"
#include "log.h"
#include "mark.h"
#include "mem.h"
#include "move.h"
#include "node.h"
#include "str.h"

enum { MOST_LINES = 10000, LINES_DEFAULT = 200, MOST_LOG_QUESTIONS = 64 };
static const double logs_s = 3;

struct log_question {
    TAILQ_ENTRY(log_question) entry;
    struct session_ref asker;
    uint32_t number;
    char node[64];
    ev_timer late;
    struct show *all;
};

struct show {
    struct sluiced *d;
    TAILQ_HEAD(, log_question) logs;
    unsigned n_logs;
    uint32_t last;
};

struct show *show_create(struct sluiced *d)
{
    struct show *s = mem_zalloc(sizeof(*s));

    s->d = d;
    TAILQ_INIT(&s->logs);
    return s;
}

static void log_question_free(struct log_question *q)
{
    TAILQ_REMOVE(&q->all->logs, q, entry);
    q->all->n_logs--;
    ev_timer_stop(q->all->d->loop, &q->late);
    free(q);
}

void show_destroy(struct show *s)
{
    struct log_question *q;

    if (s == NULL)
        return;
    while ((q = TAILQ_FIRST(&s->logs)) != NULL)
        log_question_free(q);
    free(s);
}

bool show_is_shown(const struct node *n)
{
    return n->added || n->contact == SLUICE__CONTACT__UP || n->contact == SLUICE__CONTACT__LATE || !TAILQ_EMPTY(&n->marks);
}

/* ---- status ---- */

struct status_lists {
    Sluice__Status m;
    Sluice__PoolInfo pools[2];
    Sluice__PoolInfo *pool_at[2];
    int64_t now;
    struct sluiced *d;
};

static void add_alarm(void *arg, const struct alarm *said)
{
    struct status_lists *l = arg;
    Sluice__Alarm *a = mem_zalloc(sizeof(*a));

    sluice__alarm__init(a);
    a->word = mem_strdup(said->word);
    a->text = mem_strdup(said->text);
    a->advice = mem_strdup(said->advice);
    a->has_since = true;
    a->since = hook_since(l->d->hook, said);
    if (a->since == 0)
        a->since = l->now - (int64_t)(said->since_s * 1e9);
    l->m.alarms = mem_grow(l->m.alarms, l->m.n_alarms + 1, sizeof(*l->m.alarms));
    l->m.alarms[l->m.n_alarms++] = a;
}

static void add_counter(void *arg, const char *name, uint64_t value)
{
    struct status_lists *l = arg;
    Sluice__Counter *c = mem_zalloc(sizeof(*c));

    sluice__counter__init(c);
    c->name = (char *)name;
    c->has_value = true;
    c->value = value;
    l->m.counters = mem_grow(l->m.counters, l->m.n_counters + 1, sizeof(*l->m.counters));
    l->m.counters[l->m.n_counters++] = c;
}

static void fill_pools(struct sluiced *d, struct status_lists *l)
{
    for (int p = 0; p < 2; p++) {
        Sluice__PoolInfo *info = l->pool_at[p] = &l->pools[p];

        sluice__pool_info__init(info);
        info->name = (char *)pool_name[p];
        info->has_nodes = info->has_usable = info->has_min_good = true;
        info->min_good = d->conf->pools[p].min_good;
        info->usable = farm_usable(d->farm, p);
        for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next)
            info->nodes += n->added && n->pool == p;
    }
    l->m.pools = l->pool_at;
    l->m.n_pools = 2;
}

static void fill_self(struct sluiced *d, Sluice__Status *m)
{
    m->software = (char *)PACKAGE_VERSION;
    m->has_epoch = m->has_started = m->has_pid = m->has_marks = m->has_seq = true;
    m->epoch = d->epoch;
    m->started = d->started;
    m->pid = (uint32_t)getpid();
    m->state = (char *)(writer_accepts_new(d->writer) ? "running" : "state not writable");
    m->marks = marks_open(d->marks);
    m->seq = history_seq(d->history);
}

static void status_free(struct status_lists *l)
{
    for (size_t i = 0; i < l->m.n_alarms; i++) {
        free(l->m.alarms[i]->word);
        free(l->m.alarms[i]->text);
        free(l->m.alarms[i]->advice);
        free(l->m.alarms[i]);
    }
    for (size_t i = 0; i < l->m.n_counters; i++)
        free(l->m.counters[i]);
    free(l->m.alarms);
    free(l->m.counters);
    run_fill_free(l->m.runs, l->m.n_runs);
    job_fill_free(l->m.jobs, l->m.n_jobs);
    moves_fill_free(l->m.moves, l->m.n_moves);
}

void show_status(struct session *s, uint32_t id, const void *message)
{
    struct sluiced *d = s->d;
    struct status_lists l = { .m = SLUICE__STATUS__INIT, .now = clock_wall_ns(), .d = s->d };

    (void)message;
    fill_self(d, &l.m);
    fill_pools(d, &l);
    alarms_each(d, add_alarm, &l);
    counters_each(d->counters, add_counter, &l);
    run_fill(d, false, 0, &l.m.runs, &l.m.n_runs);
    job_fill(d, false, 0, &l.m.jobs, &l.m.n_jobs);
    moves_fill(d->moves, false, &l.m.moves, &l.m.n_moves);
    session_answer(s, id, &l.m.base);
    status_free(&l);
}

/* ---- nodes ---- */

static bool has_state(const Sluice__GetNodes *q, const struct node *n)
{
    struct verdict v;

    if (q->n_states == 0)
        return true;
    node_judge(n, &v);
    for (size_t i = 0; i < q->n_states; i++) {
        if (q->states[i] == v.state)
            return true;
    }
    return false;
}

static bool is_wanted(const Sluice__GetNodes *q, const struct node *n)
{
    return show_is_shown(n) && (q->pool == NULL || q->pool[0] == '\0' || strcmp(q->pool, pool_name[n->pool]) == 0)
        && (q->class_ == NULL || q->class_[0] == '\0' || strcmp(q->class_, n->class) == 0) && (!q->marked || !TAILQ_EMPTY(&n->marks)) && has_state(q, n);
}

static int by_name(const void *a, const void *b)
{
    return hostlist_compare((*(struct node *const *)a)->name, (*(struct node *const *)b)->name);
}

struct node **show_named(struct farm *f, char *const *names, size_t n_names, size_t *n, struct err *e)
{
    struct node **at;
    size_t count = 0;

    if (farm_check_names(f, names, n_names, show_is_shown, e) < 0)
        return NULL;
    at = mem_array((n_names == 0 ? farm_count(f) : n_names) + 1, sizeof(*at));
    if (n_names == 0) {
        for (struct node *it = farm_first(f); it != NULL; it = it->hh.next)
            at[count++] = it;
    }
    for (size_t i = 0; i < n_names; i++)
        at[count++] = farm_node(f, names[i]);
    if (n_names > 0)
        qsort(at, count, sizeof(*at), by_name);
    *n = 0;
    for (size_t i = 0; i < count; i++) {
        if (*n == 0 || at[*n - 1] != at[i])
            at[(*n)++] = at[i];
    }
    return at;
}

/* A class that the configuration has, or that a node brought along from an earlier one. */
static int check_class(const struct sluiced *d, const char *class, struct err *e)
{
    struct str known = { 0 };

    if (class == NULL || class[0] == '\0' || conf_class_find(d->conf, class) != NULL)
        return 0;
    for (const struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (strcmp(n->class, class) == 0)
            return 0;
    }
    for (unsigned i = 0; i < d->conf->n_classes; i++)
        str_addf(&known, "%s%s", i == 0 ? "" : ", ", d->conf->classes[i].name);
    err_set(e, ERR_NOT_FOUND, "class %.63s: there is no such class; known are: %.300s", class, known.len > 0 ? str_text(&known) : "none");
    str_free(&known);
    return -1;
}

/* Borrowed names; the caller frees the list. */
static void fill_retired(const struct sluiced *d, Sluice__Nodes *out)
{
    out->retired = mem_array(farm_count(d->farm) + 1, sizeof(*out->retired));
    for (struct node *n = farm_first(d->farm); n != NULL; n = n->hh.next) {
        if (n->stored && !n->added && !n->adding)
            out->retired[out->n_retired++] = n->name;
    }
}

void show_nodes(struct session *s, uint32_t id, const void *message)
{
    const Sluice__GetNodes *q = message;
    Sluice__Nodes out = SLUICE__NODES__INIT;
    Sluice__Node *bodies;
    struct node **at;
    struct err e;
    size_t n;
    int pool;

    if ((q->pool != NULL && q->pool[0] != '\0' && pool_parse(q->pool, &pool, &e) < 0) || check_class(s->d, q->class_, &e) < 0) {
        session_error(s, id, &e, NULL);
        return;
    }
    at = show_named(s->d->farm, q->names, q->n_names, &n, &e);
    if (at == NULL) {
        session_error(s, id, &e, NULL);
        return;
    }
    bodies = mem_array(n + 1, sizeof(*bodies));
    out.nodes = mem_array(n + 1, sizeof(*out.nodes));
    for (size_t i = 0; i < n; i++) {
        if (!is_wanted(q, at[i]))
            continue;
        out.nodes[out.n_nodes] = &bodies[out.n_nodes];
        node_message(at[i], &bodies[out.n_nodes++]);
    }
    if (q->retired)
        fill_retired(s->d, &out);
    session_answer(s, id, &out.base);
    free(out.retired);
    for (size_t i = 0; i < out.n_nodes; i++)
        node_message_free(out.nodes[i]);
    free(out.nodes);
    free(bodies);
    free(at);
}

/* ---- configuration, metrics, invariants ---- */

void show_config(struct session *s, uint32_t id, const void *message)
{
    Sluice__Config out = SLUICE__CONFIG__INIT;

    (void)message;
    out.text = conf_show(s->d->conf);
    out.path = s->d->conf->path;
    session_answer(s, id, &out.base);
    free(out.text);
}

void show_metrics(struct session *s, uint32_t id, const void *message)
{
    Sluice__Metrics out = SLUICE__METRICS__INIT;

    (void)message;
    out.text = metrics_text(s->d);
    session_answer(s, id, &out.base);
    free(out.text);
}

static void add_line(void *arg, const char *name, bool ok, const char *text)
{
    Sluice__CheckResult *out = arg;
    Sluice__CheckLine *l = mem_zalloc(sizeof(*l));

    sluice__check_line__init(l);
    l->name = mem_strdup(name);
    l->text = mem_strdup(text);
    l->has_ok = true;
    l->ok = ok;
    out->ok = out->ok && ok;
    out->checks = mem_grow(out->checks, out->n_checks + 1, sizeof(*out->checks));
    out->checks[out->n_checks++] = l;
}

void show_check(struct session *s, uint32_t id, const void *message)
{
    Sluice__CheckResult out = SLUICE__CHECK_RESULT__INIT;

    (void)message;
    out.has_ok = out.ok = true;
    invariants_each(s->d, add_line, &out);
    session_answer(s, id, &out.base);
    for (size_t i = 0; i < out.n_checks; i++) {
        free(out.checks[i]->name);
        free(out.checks[i]->text);
        free(out.checks[i]);
    }
    free(out.checks);
}

/* ---- backup ---- */

struct backup {
    struct session_ref asker;
    char *dir, *file;
    int rc;
    struct err why;
};

static void backup_work(void *arg)
{
    struct backup *b = arg;

    b->rc = db_backup(b->dir, b->file, &b->why);
}

static void backup_done(void *arg)
{
    struct backup *b = arg;
    struct session *s = session_find(b->asker);
    Sluice__Ok ok = SLUICE__OK__INIT;

    if (b->rc == 0)
        log_info("state: backup written to %s", b->file);
    if (s != NULL && b->rc < 0) {
        session_error(s, b->asker.id, &b->why, NULL);
    } else if (s != NULL) {
        ok.text = b->file;
        session_answer(s, b->asker.id, &ok.base);
    }
    free(b->dir);
    free(b->file);
    free(b);
}

void show_backup(struct session *s, uint32_t id, const void *message)
{
    const Sluice__Backup *q = message;
    struct backup *b;
    struct err e;

    if (q->file == NULL || q->file[0] != '/' || strlen(q->file) > 4000) {
        err_set(&e, ERR_USAGE, "backup: a file by its whole path is wanted, from / on; sluiced writes it");
        session_error(s, id, &e, NULL);
        return;
    }
    if (s->peer.uid != 0 && s->peer.uid != geteuid()) {
        err_set(&e, ERR_PERMISSION, "backup: sluiced writes the file with its own rights, wherever it is told to: only root and who runs sluiced (uid %u) may", (unsigned)geteuid());
        session_error(s, id, &e, "NotPermitted");
        return;
    }
    b = mem_zalloc(sizeof(*b));
    b->asker = session_refer(s, id);
    b->dir = mem_strdup(s->d->conf->state_dir);
    b->file = mem_strdup(q->file);
    if (helper_run(s->d->helper, backup_work, backup_done, b, &e) == 0)
        return;
    session_error(s, id, &e, NULL);
    free(b->dir);
    free(b->file);
    free(b);
}

/* ---- logs ---- */

struct lines { char **at; size_t n, most; };

static void keep_line(void *arg, const char *line)
{
    struct lines *l = arg;

    l->at = mem_grow(l->at, l->n + 1, sizeof(*l->at));
    l->at[l->n++] = mem_strdup(line);
}

static void own_logs(struct session *s, uint32_t id, uint32_t most)
{
    struct lines l = { 0 };
    Sluice__Logs out = SLUICE__LOGS__INIT;
    size_t skip;

    log_recent(keep_line, &l);
    skip = l.n > most ? l.n - most : 0;
    out.lines = l.at + skip;
    out.n_lines = l.n - skip;
    session_answer(s, id, &out.base);
    for (size_t i = 0; i < l.n; i++)
        free(l.at[i]);
    free(l.at);
}

static void log_late(struct ev_loop *loop, ev_timer *w, int events)
{
    struct log_question *q = w->data;
    struct session *s = session_find(q->asker);
    struct err e;

    (void)loop;
    (void)events;
    err_set(&e, ERR_TIMEOUT, "node %s: its worker did not send its log within %.0f s", q->node, logs_s);
    if (s != NULL)
        session_error(s, q->asker.id, &e, NULL);
    log_question_free(q);
}

static struct node *asked_node(struct session *s, const Sluice__GetLogs *m, struct err *e)
{
    struct node *n = farm_node(s->d->farm, m->node);

    if (n == NULL)
        return err_null(e, ERR_NOT_FOUND, "node %.63s: there is no such node", m->node);
    if (n->session == NULL)
        return err_null(e, ERR_STATE, "node %s: no contact with its worker", n->name);
    if (s->d->show->n_logs >= MOST_LOG_QUESTIONS)
        return err_null(e, ERR_STATE, "%d questions for logs are open already; try again", MOST_LOG_QUESTIONS);
    return n;
}

void show_logs(struct session *s, uint32_t id, const void *message)
{
    const Sluice__GetLogs *m = message;
    struct show *all = s->d->show;
    Sluice__LogQuery ask = SLUICE__LOG_QUERY__INIT;
    uint32_t most = m->has_lines && m->lines > 0 ? m->lines : LINES_DEFAULT;
    struct log_question *q;
    struct node *n;
    struct err e;

    if (most > MOST_LINES)
        most = MOST_LINES;
    if (m->node == NULL || m->node[0] == '\0') {
        own_logs(s, id, most);
        return;
    }
    n = asked_node(s, m, &e);
    if (n == NULL) {
        session_error(s, id, &e, NULL);
        return;
    }
    q = mem_zalloc(sizeof(*q));
    q->all = all;
    q->asker = session_refer(s, id);
    q->number = ++all->last == 0 ? ++all->last : all->last;
    snprintf(q->node, sizeof(q->node), "%s", n->name);
    ev_timer_init(&q->late, log_late, logs_s, 0);
    q->late.data = q;
    ev_timer_start(s->d->loop, &q->late);
    TAILQ_INSERT_TAIL(&all->logs, q, entry);
    all->n_logs++;
    ask.has_lines = true;
    ask.lines = most;
    chan_send(n->session->chan, q->number, &ask.base);
}

static struct log_question *question_find(struct session *s, uint32_t number)
{
    struct log_question *q;

    TAILQ_FOREACH(q, &s->d->show->logs, entry) {
        if (q->number == number && s->node != NULL && strcmp(q->node, s->node->name) == 0)
            return q;
    }
    return NULL;
}

void show_log_lines(struct session *s, uint32_t id, const void *message)
{
    const Sluice__LogLines *m = message;
    struct log_question *q = question_find(s, id);
    struct session *asker = q == NULL ? NULL : session_find(q->asker);
    Sluice__Logs out = SLUICE__LOGS__INIT;

    out.lines = m->lines;
    out.n_lines = m->n_lines;
    if (asker != NULL)
        session_answer(asker, q->asker.id, &out.base);
    if (q != NULL)
        log_question_free(q);
}

void show_log_error(struct session *s, uint32_t id, const void *message)
{
    const Sluice__Error *m = message;
    struct log_question *q = question_find(s, id);
    struct session *asker = q == NULL ? NULL : session_find(q->asker);
    struct err e;

    err_set(&e, m->has_code && m->code != 0 && m->code <= ERR_LOST ? (enum err_code)m->code : ERR_FAILED, "node %s: %s", s->name, m->text == NULL ? "its worker says no" : m->text);
    if (asker != NULL)
        session_error(asker, q->asker.id, &e, m->word);
    if (q != NULL)
        log_question_free(q);
}
