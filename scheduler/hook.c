/* hook.c - calls the site's program when an alarm is raised, and when it is over
 *
 * From: alarms.c.  To: the program; the log when that fails.
 * There is no queue: each alarm knows how it is and what was told of it, and the next call is about one where these differ: it is on or over, or about
 * something that was not told: another node, or, where things have no names, more of them. So one program runs at a time, an alarm that comes and goes meanwhile is not told, and a call that fails is made again later.
 * The program is started and waited for in a thread, as even its start may hang on a disk.
 * What was told is stored once the program has ended well, so that a restart tells nothing anew; a kill before that makes the call again, and none is lost.
 */
#include "config.h"

#include "hook.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#include "change.h"
#include "clock.h"
#include "conf.h"
#include "counters.h"
#include "hostlist.h"
#include "log.h"
#include "mem.h"
#include "rows.h"
#include "show.h"
#include "str.h"

static const double look_s = 1;
static const double again_s = 30;        /* after a call that failed */
static const char key[] = "alarms_told";
enum { STORED_MOST = 1 << 20 };          /* bytes; what is beyond that is told anew after a restart */
enum { THINGS_MOST = 16 << 10 };         /* bytes: a line has to fit into a pipe */

/* An alarm, by its word and what it is about. */
struct known {
    TAILQ_ENTRY(known) entry;
    char *word, *about, *text, *advice;  /* about: "" when it is about the farm, or several things */
    int64_t since;                       /* wall ns */
    unsigned count, told;                /* how many things it is about; how many the program heard of at most since there were no fewer. 0: it is not on */
    struct hostlist *things, *heard;     /* their names, the same way; NULL: they have none */
    char *heard_text;                    /* heard, folded */
    bool seen;
    bool restored;                       /* told before our start */
    double not_before;                   /* monotonic s: a call about it failed */
};

struct call {
    char *program, *line;
    double timeout;
    char *word, *about;                  /* of the alarm */
    unsigned count;
    struct hostlist *things;
    atomic_int pid;                      /* 0: none that could be ended */
    int rc;
    struct err why;
};

struct hook {
    struct sluiced *d;
    TAILQ_HEAD(, known) known;
    ev_timer look;
    ev_async ended;
    pthread_t thread;
    struct call *call;                   /* NULL: none is under way */
    double settled_at;                   /* until then what was told before our start may not be back yet: nodes have to come into contact, or to be lost again */
    char *stored;                        /* what the state has of what was told */
};

static struct hostlist *copy_of(const struct hostlist *h)
{
    return h == NULL ? NULL : hostlist_and(h, h);
}

/* ---- one call, in its thread: a ladder ---- */

static int spawn(const struct call *c, int input, pid_t *pid, struct err *e)
{
    char *const argv[] = { c->program, NULL };
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    int rc;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, input, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclosefrom_np(&files, 3);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    errno = rc = posix_spawn(pid, c->program, &files, &attr, argv, environ);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
    return rc == 0 ? 0 : err_errno(e, ERR_FAILED, "%s", c->program);
}

/* A new pipe holds more than a line, so that nobody waits for a program that does not read. */
static int start(const struct call *c, pid_t *pid, struct err *e)
{
    int p[2], rc;

    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_errno(e, ERR_FAILED, "no pipe for %s", c->program);
    fcntl(p[0], F_SETFL, 0);
    rc = write(p[1], c->line, strlen(c->line)) < 0 ? err_errno(e, ERR_FAILED, "the pipe to %s", c->program) : spawn(c, p[0], pid, e);
    close(p[0]);
    close(p[1]);
    return rc;
}

/* True when it ended by itself. What is left of its group goes with it. */
static bool await_end(pid_t pid, double timeout)
{
    struct pollfd p = { .fd = pidfd_open(pid, 0), .events = POLLIN };
    bool ended = p.fd >= 0 && poll(&p, 1, (int)(timeout * 1000)) > 0;

    kill(-pid, SIGKILL);
    if (p.fd >= 0)
        close(p.fd);
    return ended;
}

static int judge(const struct call *c, bool ended, int status, struct err *e)
{
    if (!ended)
        return err_set(e, ERR_TIMEOUT, "%s did not end within %g s and was killed", c->program, c->timeout);
    if (WIFSIGNALED(status))
        return err_set(e, ERR_FAILED, "%s: ended by signal %d", c->program, WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return err_set(e, ERR_FAILED, "%s: exit status %d", c->program, WEXITSTATUS(status));
    return 0;
}

static int run(struct call *c, struct err *e)
{
    pid_t pid;
    bool ended;
    int status;

    if (start(c, &pid, e) < 0)
        return -1;
    atomic_store(&c->pid, pid);
    ended = await_end(pid, c->timeout);
    atomic_store(&c->pid, 0);            /* before it is waited for: then the number may be somebody else's */
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return judge(c, ended, status, e);
}

static void *call_main(void *arg)
{
    struct hook *h = arg;

    h->call->rc = run(h->call, &h->call->why);
    ev_async_send(h->d->loop, &h->ended);
    return NULL;
}

/* ---- calls, in the loop ---- */

static void call_free(struct call *c)
{
    free(c->program);
    free(c->line);
    free(c->word);
    free(c->about);
    hostlist_destroy(c->things);
    free(c);
}

/* The names, folded; null: there are none, or too many that do not fold. */
static json_t *things_of(const struct known *k)
{
    char *text = k->count > 0 && k->things != NULL ? hostlist_fold(k->things) : NULL;
    json_t *j = text != NULL && strlen(text) < THINGS_MOST ? json_string(text) : json_null();

    free(text);
    return j;
}

static char *line_of(const struct known *k)
{
    char now[CLOCK_TEXT], since[CLOCK_TEXT], *text, *line;
    json_t *j = json_pack("{s:{s:s,s:i},s:s,s:s,s:s?,s:s,s:i,s:o,s:s?,s:s?,s:s}", "schema", "name", "alarm", "version", 1, "time", clock_rfc3339(clock_wall_ns(), now),
                          "alarm", k->word, "about", k->about[0] == '\0' ? NULL : k->about, "state", k->count > 0 ? "raised" : "over", "count", (int)k->count,
                          "things", things_of(k), "text", k->text, "advice", k->advice, "since", clock_rfc3339(k->since, since));

    text = json_dumps(j, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(j);
    if (text == NULL)
        return NULL;
    line = mem_printf("%s\n", text);
    free(text);
    return line;
}

/* Signals are the loop's business. */
static int thread_start(struct hook *h)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&h->thread, NULL, call_main, h);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

static void call_start(struct hook *h, struct known *k)
{
    struct call *c = mem_zalloc(sizeof(*c));
    char *line = line_of(k);

    c->program = mem_strdup(h->d->conf->alarm.program);
    c->timeout = h->d->conf->alarm.timeout;
    c->word = mem_strdup(k->word);
    c->about = mem_strdup(k->about);
    c->count = k->count;
    c->things = copy_of(k->count > 0 ? k->things : NULL);
    c->line = line;
    h->call = c;
    if (line != NULL && thread_start(h) == 0) {
        counters_add(h->d->counters, "alarm_calls", 1);
        return;
    }
    log_warning("alarm %s: could not be told: %s", k->word, line == NULL ? "it is no text" : "no thread");
    h->call = NULL;
    k->not_before = clock_mono_s() + again_s;
    call_free(c);
}

/* things belong to k from now on. */
static void known_heard(struct known *k, unsigned count, struct hostlist *things)
{
    k->told = count;
    hostlist_destroy(k->heard);
    free(k->heard_text);
    k->heard = things;
    k->heard_text = things == NULL ? NULL : hostlist_fold(things);
}

static struct known *known_find(const struct hook *h, const char *word, const char *about)
{
    struct known *k;

    TAILQ_FOREACH(k, &h->known, entry) {
        if (strcmp(k->word, word) == 0 && strcmp(k->about, about) == 0)
            return k;
    }
    return NULL;
}

static struct known *known_add(struct hook *h, const char *word, const char *about)
{
    struct known *k = mem_zalloc(sizeof(*k));

    k->word = mem_strdup(word);
    k->about = mem_strdup(about);
    TAILQ_INSERT_TAIL(&h->known, k, entry);
    return k;
}

static void known_free(struct hook *h, struct known *k)
{
    TAILQ_REMOVE(&h->known, k, entry);
    free(k->word);
    free(k->about);
    free(k->text);
    free(k->advice);
    hostlist_destroy(k->things);
    hostlist_destroy(k->heard);
    free(k->heard_text);
    free(k);
}

/* ---- over a restart ---- */

static char *told_text(struct hook *h)
{
    json_t *all = json_array();
    const struct known *k;
    size_t size = 16;
    char *text;

    TAILQ_FOREACH(k, &h->known, entry) {
        size += 6 * (strlen(k->word) + strlen(k->about)) + 100;          /* at most: each byte may be escaped */
        size += k->heard_text == NULL ? 0 : strlen(k->heard_text);
        if (k->told > 0 && size < STORED_MOST)
            json_array_append_new(all, json_pack("{s:s,s:s,s:i,s:I,s:s?}", "alarm", k->word, "about", k->about, "told", (int)k->told, "since", (json_int_t)k->since,
                                                 "things", k->heard_text));
    }
    text = json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(all);
    return text;
}

static void store(struct hook *h)
{
    char *text = told_text(h);
    struct change *c;

    if (text == NULL || strcmp(text, h->stored) == 0 || h->d->stopping) {
        free(text);
        return;
    }
    free(h->stored);
    h->stored = text;
    c = change_create(h->d);
    change_setting(c, key, text);
    change_put(c, CHANGE_KEEP, NULL, NULL);
}

static void restore_one(struct hook *h, json_t *j)
{
    const char *word, *about, *things = json_string_value(json_object_get(j, "things"));
    json_int_t since;
    struct known *k;
    int told;

    if (json_unpack(j, "{s:s,s:s,s:i,s:I}", "alarm", &word, "about", &about, "told", &told, "since", &since) < 0 || told <= 0)
        return;
    k = known_add(h, word, about);
    known_heard(k, (unsigned)told, things == NULL ? NULL : hostlist_parse(things, NULL, NULL, NULL));
    k->since = since;
    k->restored = true;
}

/* What cannot be read is told anew. */
static int restore(struct hook *h, struct db *db, struct err *e)
{
    char *text = mem_zalloc(STORED_MOST);
    int rc = rows_load_setting(db, key, text, STORED_MOST, e);
    json_t *all = rc == 0 && text[0] != '\0' ? json_loads(text, 0, NULL) : NULL;

    if (rc == 0 && text[0] != '\0' && all == NULL)
        log_warning("alarms: the state does not say which were told: they are told anew");
    for (size_t i = 0; i < json_array_size(all); i++)
        restore_one(h, json_array_get(all, i));
    json_decref(all);
    h->stored = mem_strdup(text);
    free(text);
    return rc;
}

static bool is_settling(const struct hook *h, const struct known *k)
{
    return k->restored && clock_mono_s() < h->settled_at;
}

/* ---- the end of a call ---- */

static void ended_cb(struct ev_loop *loop, ev_async *w, int events)
{
    struct hook *h = w->data;
    struct call *c = h->call;
    struct known *k;

    (void)loop;
    (void)events;
    if (c == NULL)
        return;
    pthread_join(h->thread, NULL);
    h->call = NULL;
    k = known_find(h, c->word, c->about);
    if (c->rc == 0 && k != NULL) {
        known_heard(k, c->count, c->things);
        c->things = NULL;
    } else if (c->rc < 0) {
        counters_add(h->d->counters, "alarm_calls_failed", 1);
        log_warning("alarm %s: not told: %s; again in %g s", c->word, c->why.text, again_s);
        if (k != NULL)
            k->not_before = clock_mono_s() + again_s;        /* the others need not wait for it */
    }
    call_free(c);
    store(h);
}

/* ---- what there is to tell ---- */

static void see(void *arg, const struct alarm *a)
{
    struct hook *h = arg;
    const char *about = a->about == NULL ? "" : a->about;
    struct known *k = known_find(h, a->word, about);

    if (k == NULL)
        k = known_add(h, a->word, about);
    if (k->count == 0 && !is_settling(h, k))
        k->since = clock_wall_ns() - (int64_t)(a->since_s * 1e9);
    k->count = a->count == 0 ? 1 : a->count;
    hostlist_destroy(k->things);
    k->things = copy_of(a->things);
    free(k->text);
    free(k->advice);
    k->text = mem_strdup(a->text);
    k->advice = mem_strdup(a->advice);
    if (k->text != NULL)
        str_mend(k->text, strlen(k->text));
    k->seen = true;
}

static bool has_other(const struct hostlist *now, const struct hostlist *heard)
{
    for (size_t i = 0; i < hostlist_count(now); i++) {
        if (!hostlist_has(heard, hostlist_name(now, i)))
            return true;
    }
    return false;
}

static bool is_news(const struct hook *h, const struct known *k)
{
    if (k->count == 0)
        return k->told > 0 && !is_settling(h, k);
    return k->things != NULL && k->heard != NULL ? has_other(k->things, k->heard) : k->count > k->told;
}

/* Nothing but what was told, and maybe less: what comes back is news again. */
static void forget_gone(struct known *k)
{
    if (k->told != k->count || (k->things != NULL && k->heard == NULL))
        known_heard(k, k->count, copy_of(k->things));
}

static bool is_under_way(const struct hook *h, const struct known *k)
{
    return h->call != NULL && strcmp(h->call->word, k->word) == 0 && strcmp(h->call->about, k->about) == 0;
}

int64_t hook_since(const struct hook *h, const struct alarm *a)
{
    const struct known *k = h == NULL ? NULL : known_find(h, a->word, a->about == NULL ? "" : a->about);

    return k == NULL || k->count == 0 ? 0 : k->since;
}

/* Brings what is known up to date; the first that the program does not know so and that may be told now, or NULL. */
static struct known *look(struct hook *h)
{
    struct known *k, *next, *news = NULL;

    TAILQ_FOREACH(k, &h->known, entry)
        k->seen = false;
    alarms_each(h->d, see, h);
    for (k = TAILQ_FIRST(&h->known); k != NULL; k = next) {
        next = TAILQ_NEXT(k, entry);
        if (!k->seen)
            k->count = 0;
        if (is_news(h, k))
            news = news == NULL && clock_mono_s() >= k->not_before ? k : news;
        else if (is_settling(h, k))
            continue;
        else if (k->count > 0)
            forget_gone(k);
        else if (!is_under_way(h, k))
            known_free(h, k);
    }
    return news;
}

static void look_cb(struct ev_loop *loop, ev_timer *t, int events)
{
    struct hook *h = t->data;
    struct known *news;

    (void)loop;
    (void)events;
    news = look(h);
    store(h);
    if (news != NULL && h->call == NULL && h->d->conf->alarm.program != NULL)
        call_start(h, news);
}

struct hook *hook_create(struct sluiced *d, struct db *db, struct err *e)
{
    struct hook *h = mem_zalloc(sizeof(*h));

    h->d = d;
    TAILQ_INIT(&h->known);
    h->settled_at = clock_mono_s() + 2 * d->conf->limits.contact_timeout;
    ev_timer_init(&h->look, look_cb, look_s, look_s);
    ev_async_init(&h->ended, ended_cb);
    h->look.data = h->ended.data = h;
    ev_timer_start(d->loop, &h->look);
    ev_async_start(d->loop, &h->ended);
    if (restore(h, db, e) < 0) {
        hook_destroy(h);
        return NULL;
    }
    return h;
}

void hook_destroy(struct hook *h)
{
    struct known *k;
    pid_t pid;

    if (h == NULL)
        return;
    ev_timer_stop(h->d->loop, &h->look);
    if (h->call != NULL) {
        pid = atomic_load(&h->call->pid);
        if (pid > 0)
            kill(-pid, SIGKILL);
        pthread_join(h->thread, NULL);
        call_free(h->call);
    }
    ev_async_stop(h->d->loop, &h->ended);
    while ((k = TAILQ_FIRST(&h->known)) != NULL)
        known_free(h, k);
    free(h->stored);
    free(h);
}
